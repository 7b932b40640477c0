// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_guard_race.c - an owner takes guarded memory back while a peer goes on writing to it and
 * reading from it at full speed.
 *
 * The owner waits for an access, changes the word, waits until no hazard is set, writes, and
 * expects its own bytes until it opens the region again. The peer is refused if it accesses the
 * region meanwhile, and reconnects.
 */
#include "side.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <stag/stagdv.h>

#include "base/clock.h"

#define OPEN   1
#define CELLS  16
#define BLOCKS 3
#define DEPTH  16
#define SPOT   1024 /* bytes of a larger block that its owner writes and checks */
#define ALL_ACCESS                                                                                 \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

static const size_t sizes[BLOCKS] = {64, 1024, 512 << 10};

struct block {
	uint64_t word;
	uint8_t *at;
	size_t len;
	struct ibv_mr *mr;
	uint64_t turns;
	uint64_t caught;  /* turns that found an access in flight */
	uint64_t touched; /* bytes that the owner did not write */
};

struct arena {
	struct block block[BLOCKS];
	uint64_t cells[CELLS];
	pthread_t owner;
	uint64_t turns; /* while the peer was accessing the blocks */
	atomic_bool live, over;
};

/* ---- the owner ---- */

static bool has_hazard(const struct arena *a, uint64_t hazard)
{
	for (int i = 0; i < CELLS; i++)
		if (__atomic_load_n(&a->cells[i], __ATOMIC_SEQ_CST) == hazard)
			return true;
	return false;
}

static uint64_t count_foreign_bytes(const uint8_t *at, size_t len, uint8_t mine)
{
	uint64_t n = 0;

	for (size_t i = 0; i < len; i++)
		n += at[i] != mine;
	return n;
}

/* Busy-waits: a thread that yields the processor may not get it back for long. */
static void spin(uint64_t ns)
{
	uint64_t until = clock_ns() + ns;

	while (clock_ns() < until)
		;
}

/* Writes to the block and checks it later, so that an access that should not be in flight shows. */
static void write_and_check(struct block *b)
{
	uint8_t mine = (uint8_t)(b->turns | 1);
	size_t len = b->len > SPOT ? SPOT : b->len;
	uint8_t *at = b->at + b->turns * 7919 % (b->len - len + 1);

	memset(at, mine, len);
	if (b->turns % 64 == 0)
		sched_yield();
	else if (b->turns % 4 == 0 || b->len > SPOT)
		spin(b->turns % 32 * 1000);
	b->touched += count_foreign_bytes(at, len, mine);
}

/* Waits until an access has just begun, or until ns have passed without one. */
static void wait_for_access(const struct arena *a, uint64_t hazard, uint64_t ns)
{
	uint64_t until = clock_ns() + ns;

	while (!has_hazard(a, hazard) && clock_ns() < until)
		;
}

static void take_block_back(struct arena *a, struct block *b)
{
	uint64_t hazard = (uint64_t)(b - a->block) + 1;

	wait_for_access(a, hazard, b->turns % 64 * 4000);
	__atomic_store_n(&b->word, OPEN + 1, __ATOMIC_SEQ_CST);
	b->caught += has_hazard(a, hazard);
	while (has_hazard(a, hazard)) /* an allocator would take another block */
		sched_yield();
	write_and_check(b);
	b->turns++;
	__atomic_store_n(&b->word, OPEN, __ATOMIC_SEQ_CST);
}

static void *run_owner(void *arg)
{
	struct arena *a = arg;

	for (unsigned i = 0; !atomic_load(&a->over); i++) {
		if (!atomic_load(&a->live)) {
			sched_yield();
			continue;
		}
		take_block_back(a, &a->block[i % BLOCKS]);
		__atomic_fetch_add(&a->turns, 1, __ATOMIC_RELAXED);
		sched_yield();
	}
	return NULL;
}

/* ---- the peer: writes from the first half of its memory, reads into the second ---- */

static const enum ibv_wr_opcode kinds[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
					   IBV_WR_ATOMIC_FETCH_AND_ADD};

static bool post_next(struct side *s, struct arena *a, const struct region *from, unsigned n)
{
	struct block *b = &a->block[n % BLOCKS];
	struct ibv_send_wr wr = {.wr_id = n,
				 .opcode = kinds[n / BLOCKS % 4],
				 .send_flags = IBV_SEND_SIGNALED,
				 .num_sge = 1},
			   *bad;
	struct ibv_sge sge = piece(from, wr.opcode == IBV_WR_RDMA_WRITE ? 0 : from->len / 2,
				   wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 8 : b->len);

	wr.sg_list = &sge;
	if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = (uintptr_t)b->at;
		wr.wr.atomic.rkey = b->mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)b->at;
		wr.wr.rdma.rkey = b->mr->rkey;
	}
	return ibv_post_send(s->qp, &wr, &bad) == 0;
}

/*
 * Accesses the blocks until one access is refused, or for long enough. Returns the number of
 * successful accesses.
 */
static uint64_t access_until_refused(struct pair *p, struct arena *a, const struct region *from)
{
	uint64_t done = 0, until = deadline();
	unsigned posted = 0, in_flight = 0;
	bool refused = false;

	atomic_store(&a->live, true);
	while (!refused && done < 2000 && clock_ns() < until) {
		struct ibv_wc wc[DEPTH];
		int n;

		while (in_flight < DEPTH && post_next(&p->a, a, from, posted)) {
			posted++;
			in_flight++;
		}
		n = ibv_poll_cq(p->a.scq, DEPTH, wc);
		for (int i = 0; i < n; i++) {
			refused |= wc[i].status != IBV_WC_SUCCESS;
			done += wc[i].status == IBV_WC_SUCCESS;
		}
		in_flight -= (unsigned)n;
	}
	atomic_store(&a->live, false);
	return done;
}

/* ---- the test ---- */

static void arena_open(struct arena *a, struct ibv_pd *pd)
{
	for (int i = 0; i < BLOCKS; i++) {
		struct block *b = &a->block[i];
		struct stagdv_guard g = {.word = &b->word,
					 .expected = OPEN,
					 .hazards = a->cells,
					 .n_hazards = CELLS,
					 .hazard = (uint64_t)i + 1};

		*b = (struct block){.word = OPEN, .len = sizes[i]};
		b->at = aligned_alloc(64, (b->len + 63) / 64 * 64);
		memset(b->at, 0, b->len);
		b->mr = stagdv_reg_guarded_mr(pd, b->at, b->len, ALL_ACCESS, &g);
		assert_non_null(b->mr);
	}
	assert_int_equal(pthread_create(&a->owner, NULL, run_owner, a), 0);
}

static void arena_close(struct arena *a)
{
	atomic_store(&a->over, true);
	pthread_join(a->owner, NULL);
	for (int i = 0; i < CELLS; i++)
		assert_int_equal(a->cells[i], 0);
	for (int i = 0; i < BLOCKS; i++) {
		assert_int_equal(ibv_dereg_mr(a->block[i].mr), 0);
		free(a->block[i].at);
	}
}

static void no_access_lands_after_guarded_memory_was_taken_back(void **state)
{
	uint64_t target = getenv("STAG_LONG") ? 100000 : 2000;
	struct arena *a = calloc(1, sizeof(*a));
	struct pair home;
	uint64_t done = 0, connections = 0;

	pair_open(&home, NULL, NULL); /* its protection domain outlives the connections */
	arena_open(a, home.b.pd);
	while (connections < 20 || __atomic_load_n(&a->turns, __ATOMIC_RELAXED) < target) {
		struct side_wish us = {.pd = home.b.pd, .send_wr = DEPTH, .cqe = 2 * DEPTH};
		struct pair p;
		struct region *from;

		pair_open(&p, &us, &us);
		from = own_region(&p.a, 2 * sizes[BLOCKS - 1]);
		memset(from->at, 0x42, from->len); /* the owner's bytes are odd, this one is even */
		done += access_until_refused(&p, a, from);
		connections++;
		pair_close(&p);
	}
	arena_close(a);
	for (int i = 0; i < BLOCKS; i++) {
		print_message("block of %zu: taken back %lu times, %lu with an access in flight\n",
			      sizes[i], a->block[i].turns, a->block[i].caught);
		assert_int_equal(a->block[i].touched, 0);
	}
	print_message("%lu accesses over %lu connections\n", done, connections);
	assert_true(done > 0);
	ping(&home);
	pair_close(&home);
	free(a);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_access_lands_after_guarded_memory_was_taken_back),
	};

	return cmocka_run_group_tests_name("guards under fire", tests, NULL, NULL);
}
