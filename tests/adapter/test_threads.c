// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_threads.c - several threads on one queue, several queue pairs on one word, and a target
 * whose program is busy elsewhere.
 */
#include "side.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define ALL_REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

/* The other side neither polls nor waits; peers can still access its memory. */
static void target_that_never_polls_is_served(void **state)
{
	struct pair p;
	struct region *mine, *lent, *word;
	struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .num_sge = 1};
	struct ibv_sge sge;
	uint64_t id;

	pair_open(&p, NULL, NULL);
	mine = own_region(&p.a, 1 << 20);
	lent = lend_region(&p.b, 1 << 20, ALL_REMOTE);
	word = own_region(&p.a, 8);
	sge = piece(word, 0, 8);
	wr.sg_list = &sge;
	wr.wr.atomic.remote_addr = (uintptr_t)lent->at;
	wr.wr.atomic.rkey = lent->mr->rkey;
	wr.wr.atomic.compare_add = 1;
	for (unsigned i = 0; i < 20; i++) {
		fill(mine->at, 1 << 20, i);
		id = post_write(&p.a, mine, 0, 1 << 20, lent, 0);
		expect_sent(&p.a, id);
		id = post_read(&p.a, mine, 0, 1 << 20, lent, 0);
		expect_sent(&p.a, id);
		expect_filled(mine->at, 1 << 20, i);
		wr.wr_id = 0;
		expect_sent(&p.a, post(&p.a, &wr));
		assert_memory_equal(word->at, mine->at, 8);
	}
	pair_close(&p);
}

/* ---- many threads, one queue pair ---- */

#define THREADS 4
#define EACH	500

struct gang {
	struct pair p;
	struct region *from, *lent;
	_Atomic unsigned polled;
	_Atomic unsigned seen[THREADS * EACH];
	_Atomic bool bad;
};

struct worker {
	struct gang *g;
	unsigned first;
	pthread_t thread;
};

static void poll_some(struct gang *g)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(g->p.a.scq, 4, wc);

	for (int i = 0; i < n; i++) {
		if (wc[i].status != IBV_WC_SUCCESS || wc[i].wr_id >= THREADS * EACH)
			g->bad = true;
		else
			g->seen[wc[i].wr_id]++;
		g->polled++;
	}
}

static void *post_and_poll(void *arg)
{
	struct worker *w = arg;
	struct gang *g = w->g;

	for (unsigned i = 0; i < EACH; i++) {
		struct ibv_sge sge = piece(g->from, 0, 64);
		struct ibv_send_wr wr = {.wr_id = w->first + i,
					 .opcode = i % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED,
					 .sg_list = &sge,
					 .num_sge = 1};
		struct ibv_send_wr *bad;
		uint64_t until = deadline();

		/*
		 * Each thread's reads have a sink of their own, and a source that no thread writes.
		 */
		if (i % 2)
			sge = piece(g->from, 64 + 64 * (w->first / EACH), 64);
		wr.wr.rdma.remote_addr = (uintptr_t)g->lent->at + (i % 2 ? 64 : 0);
		wr.wr.rdma.rkey = g->lent->mr->rkey;
		while (ibv_post_send(g->p.a.qp, &wr, &bad)) { /* the queue is full: make room */
			poll_some(g);
			if (too_late(until)) {
				g->bad = true;
				return NULL;
			}
		}
	}
	return NULL;
}

static void many_threads_post_and_poll(void **state)
{
	struct gang *g = calloc(1, sizeof(*g));
	struct worker w[THREADS];

	pair_open(&g->p, &(struct side_wish){.send_wr = 32}, NULL);
	g->from = own_region(&g->p.a, 64 * (THREADS + 1));
	g->lent = lend_region(&g->p.b, 128, ALL_REMOTE);
	for (unsigned i = 0; i < THREADS; i++) {
		w[i] = (struct worker){.g = g, .first = i * EACH};
		assert_int_equal(pthread_create(&w[i].thread, NULL, post_and_poll, &w[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(w[i].thread, NULL);
	await((poll_some(g), g->polled >= THREADS * EACH || g->bad));
	assert_false(g->bad);
	assert_int_equal(g->polled, THREADS * EACH);
	for (unsigned i = 0; i < THREADS * EACH; i++)
		assert_int_equal(g->seen[i], 1);
	pair_close(&g->p);
	free(g);
}

/* ---- two queue pairs, one word ---- */

#define ADDS 2000

struct adder {
	struct pair p;
	struct region *sink;
	uint64_t addr;
	uint32_t rkey;
	_Atomic unsigned done;
	pthread_t thread;
};

static void *add_many(void *arg)
{
	struct adder *a = arg;
	struct ibv_sge sge = piece(a->sink, 0, 8);
	unsigned posted = 0;
	uint64_t until = deadline();

	while (a->done < ADDS && !too_late(until)) {
		struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
					 .send_flags = IBV_SEND_SIGNALED,
					 .sg_list = &sge,
					 .num_sge = 1};
		struct ibv_send_wr *bad;
		struct ibv_wc wc[8];
		int n;

		wr.wr.atomic.remote_addr = a->addr;
		wr.wr.atomic.rkey = a->rkey;
		wr.wr.atomic.compare_add = 1;
		while (posted < ADDS && ibv_post_send(a->p.a.qp, &wr, &bad) == 0)
			posted++;
		n = ibv_poll_cq(a->p.a.scq, 8, wc);
		for (int i = 0; i < n; i++)
			a->done += wc[i].status == IBV_WC_SUCCESS;
	}
	return NULL;
}

static void atomics_of_two_queue_pairs_add_up(void **state)
{
	struct adder *a = calloc(2, sizeof(*a));
	struct region *word;

	pair_open(&a[0].p, NULL, NULL);
	pair_open(&a[1].p, NULL, &(struct side_wish){.pd = a[0].p.b.pd});
	word = lend_region(&a[0].p.b, 8, IBV_ACCESS_REMOTE_ATOMIC);
	for (int i = 0; i < 2; i++) {
		a[i].sink = own_region(&a[i].p.a, 8);
		a[i].addr = (uintptr_t)word->at;
		a[i].rkey = word->mr->rkey;
		assert_int_equal(pthread_create(&a[i].thread, NULL, add_many, &a[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(a[i].thread, NULL);
	assert_int_equal(a[0].done, ADDS);
	assert_int_equal(a[1].done, ADDS);
	assert_int_equal(__atomic_load_n((uint64_t *)word->at, __ATOMIC_SEQ_CST), 2 * ADDS);
	pair_close(&a[1].p);
	pair_close(&a[0].p);
	free(a);
}

/*
 * A region is deregistered while a peer writes to it: the peer's request fails, and nothing
 * crashes.
 */
static void deregistration_under_traffic_ends_the_connection(void **state)
{
	for (int i = 0; i < 5; i++) {
		struct pair p;
		struct region *from, *lent;
		struct ibv_sge sge;
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .num_sge = 1};

		pair_open(&p, NULL, NULL);
		from = own_region(&p.a, 1 << 20);
		lent = lend_region(&p.b, 1 << 20, ALL_REMOTE);
		sge = piece(from, 0, 1 << 20);
		wr.sg_list = &sge;
		wr.wr.rdma.remote_addr = (uintptr_t)lent->at;
		wr.wr.rdma.rkey = lent->mr->rkey;
		for (int n = 0; n < 30; n++, wr.wr_id = 0)
			post(&p.a, &wr);
		assert_int_equal(ibv_dereg_mr(lent->mr), 0);
		lent->mr = NULL;
		fill(lent->at, 1 << 20, 1); /* the memory is the program's again */
		post(&p.a, &wr);	    /* this write is refused, if no earlier one was */
		expect_disconnected(&p.b);
		expect_async(&p.b, IBV_EVENT_QP_ACCESS_ERR);
		expect_disconnected(&p.a);
		expect_async(&p.a, IBV_EVENT_QP_FATAL);
		expect_filled(lent->at, 1 << 20, 1);
		pair_close(&p);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(target_that_never_polls_is_served),
		cmocka_unit_test(many_threads_post_and_poll),
		cmocka_unit_test(atomics_of_two_queue_pairs_add_up),
		cmocka_unit_test(deregistration_under_traffic_ends_the_connection),
	};

	return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
