// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_revoke.c - when ibv_modify_qp() to ERR, or ibv_dereg_mr(), has returned, the memory is the
 * program's: no byte of the peer's is placed any more, and none that the program writes is sent.
 *
 * First the one critical interleaving is forced: a poller has seen the queue pair in a good state,
 * and gets its lock when it is in error. Then the same under load: a peer writes and reads as fast
 * as it can, and does not stop.
 */
#include "side.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/engine.h"
#include "adapter/qp.h"
#include "adapter/stream.h"
#include "dice.h"

#define LEN	(1u << 20)
#define DEPTH	16
#define MINE	0x5a
#define THEIRS	0x42
#define TELLING 16 /* this many equal bytes in a row are no coincidence */
#define ACCESS	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static void to_error(struct side *s)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	assert_int_equal(ibv_modify_qp(s->qp, &attr, IBV_QP_STATE), 0);
}

static size_t count_foreign_bytes(const uint8_t *at, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += at[i] != MINE;
	return n;
}

/* ---- the critical interleaving ---- */

static pthread_mutex_t *_Atomic ambush; /* the next trylock of this lock by a poller is held up */
static atomic_bool caught, may_go;
static __thread bool is_poller;

int __real_pthread_mutex_trylock(pthread_mutex_t *m);
int __wrap_pthread_mutex_trylock(pthread_mutex_t *m);

int __wrap_pthread_mutex_trylock(pthread_mutex_t *m)
{
	pthread_mutex_t *want = m;

	if (is_poller && atomic_load_explicit(&ambush, memory_order_relaxed) == m &&
	    atomic_compare_exchange_strong(&ambush, &want, NULL)) {
		atomic_store(&caught, true);
		while (!atomic_load(&may_go))
			sched_yield();
	}
	return __real_pthread_mutex_trylock(m);
}

struct poller {
	struct ibv_cq *cq;
	pthread_t thread;
	atomic_bool over;
};

static void *poll_on(void *arg)
{
	struct poller *p = arg;
	struct ibv_wc wc[DEPTH];

	is_poller = true;
	while (!atomic_load(&p->over))
		if (ibv_poll_cq(p->cq, DEPTH, wc) == 0)
			sched_yield();
	return NULL;
}

static void poller_start(struct poller *p, struct ibv_cq *cq)
{
	*p = (struct poller){.cq = cq};
	assert_int_equal(pthread_create(&p->thread, NULL, poll_on, p), 0);
}

static void poller_stop(struct poller *p)
{
	atomic_store(&p->over, true);
	pthread_join(p->thread, NULL);
}

/* Returns with the engine lock held: until it is released, only the poller reads the queue pair's socket. */
static void leave_to_poller(struct stag_qp *qp)
{
	for (;;) {
		await(atomic_load(&qp->progress.claimed_by));
		engine_lock();
		if (atomic_load(&qp->progress.claimed_by))
			return;
		engine_unlock(); /* the engine has it back: the poller was slow */
	}
}

static void late_poller_places_nothing(void **state)
{
	struct stag_qp *qp;
	struct pair p;
	struct poller poller;
	struct region *from, *to;

	pair_open(&p, NULL, NULL);
	from = own_region(&p.a, 64);
	to = lend_region(&p.b, 64, ACCESS);
	memset(from->at, THEIRS, 64);
	atomic_store(&caught, false);
	atomic_store(&may_go, false);
	poller_start(&poller, p.b.rcq);
	qp = to_stag_qp(p.b.qp);
	leave_to_poller(qp);
	atomic_store(&ambush, &qp->rx_lock.mutex);
	await(atomic_load(&caught));
	expect_sent(&p.a, post_write(&p.a, from, 0, 64, to, 0));
	await(qp->stream->ops->ready(qp->stream) & POLLIN);
	to_error(&p.b);
	memset(to->at, MINE, 64);
	atomic_store(&may_go, true);
	poller_stop(&poller);
	engine_unlock();
	assert_int_equal(count_foreign_bytes(to->at, 64), 0);
	pair_close(&p);
}

/* ---- under load ---- */

struct fire {
	struct pair p;
	struct region *from, *back, *to;
	size_t size;
	uint32_t rkey;
	uint64_t done;
	pthread_t thread;
};

/* Posts a write, and a read behind it, of this many bytes. */
static bool post_write_and_read(struct fire *f)
{
	struct ibv_sge out = piece(f->from, 0, f->size), in = piece(f->back, 0, f->size);
	struct ibv_send_wr read = {.opcode = IBV_WR_RDMA_READ,
				   .sg_list = &in,
				   .num_sge = 1,
				   .send_flags = IBV_SEND_SIGNALED,
				   .wr.rdma = {(uintptr_t)f->to->at, f->rkey}};
	struct ibv_send_wr write = {.next = &read,
				    .opcode = IBV_WR_RDMA_WRITE,
				    .sg_list = &out,
				    .num_sge = 1,
				    .wr.rdma = {(uintptr_t)f->to->at, f->rkey}},
			   *bad;

	return ibv_post_send(f->p.a.qp, &write, &bad) == 0;
}

/* Posts until a request fails, as one must: by then all that the other side sent has arrived. */
static void *access_until_failure(void *arg)
{
	struct fire *f = arg;
	unsigned under_way = 0;
	bool well = true;

	while (well) {
		struct ibv_wc wc[DEPTH];
		int n;

		while (under_way < DEPTH / 2 && post_write_and_read(f))
			under_way++;
		n = ibv_poll_cq(f->p.a.scq, DEPTH, wc);
		for (int i = 0; i < n; i++) {
			well = well && wc[i].status == IBV_WC_SUCCESS;
			__atomic_fetch_add(&f->done, well, __ATOMIC_RELAXED);
		}
		under_way -= well ? (unsigned)n : 0;
	}
	return NULL;
}

static void start_accesses(struct fire *f, size_t size)
{
	const struct side_wish w = {.send_wr = DEPTH};

	*f = (struct fire){.size = size};
	pair_open(&f->p, &w, &w);
	f->from = own_region(&f->p.a, LEN);
	f->back = own_region(&f->p.a, LEN);
	f->to = lend_region(&f->p.b, LEN, ACCESS);
	f->rkey = f->to->mr->rkey;
	memset(f->from->at, THEIRS, LEN);
	memset(f->to->at, THEIRS, LEN);
	assert_int_equal(pthread_create(&f->thread, NULL, access_until_failure, f), 0);
}

static size_t longest_run(const uint8_t *at, size_t len, uint8_t of)
{
	size_t run = 0, longest = 0;

	for (size_t i = 0; i < len; i++) {
		run = at[i] == of ? run + 1 : 0;
		longest = run > longest ? run : longest;
	}
	return longest;
}

/*
 * Expects that none of our bytes was read. A single byte that looks like ours proves nothing: a
 * Terminate may lie in the place of announced data that did not come.
 */
static void expect_nothing_was_read(const struct fire *f)
{
	assert_in_range(longest_run(f->back->at, f->size, MINE), 0, TELLING - 1);
}

static void revoke_in_error(struct fire *f)
{
	to_error(&f->p.b);
}

static void revoke_by_dereg(struct fire *f)
{
	assert_int_equal(ibv_dereg_mr(f->to->mr), 0);
	f->to->mr = NULL;
}

/*
 * Takes the memory back while the peer accesses it. polled: a thread polls the queue pair; else the
 * engine serves it.
 */
static void take_back(void (*revoke)(struct fire *f), size_t size, bool polled)
{
	struct fire f;
	struct poller poller;

	start_accesses(&f, size);
	if (polled)
		poller_start(&poller, f.p.b.rcq);
	await(__atomic_load_n(&f.done, __ATOMIC_RELAXED) > dice(8));
	for (unsigned spin = (unsigned)dice(20000); spin; spin--)
		__asm__ volatile("" ::: "memory");
	revoke(&f);
	memset(f.to->at, MINE, f.size);
	pthread_join(f.thread, NULL);
	if (polled)
		poller_stop(&poller);
	assert_int_equal(count_foreign_bytes(f.to->at, f.size), 0);
	expect_nothing_was_read(&f);
	pair_close(&f.p);
}

static void take_back_often(void (*revoke)(struct fire *f))
{
	static const size_t sizes[] = {64, 4096, 60000, LEN};
	unsigned long rounds = scaled(40);

	for (unsigned long i = 0; i < rounds; i++)
		take_back(revoke, sizes[i % 4], i / 4 % 2);
}

static void no_access_after_modify_to_error(void **state)
{
	take_back_often(revoke_in_error);
}

static void no_access_after_deregistration(void **state)
{
	take_back_often(revoke_by_dereg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(late_poller_places_nothing),
		cmocka_unit_test(no_access_after_modify_to_error),
		cmocka_unit_test(no_access_after_deregistration),
	};

	dice_start();
	return cmocka_run_group_tests_name("revocation", tests, NULL, NULL);
}
