// SPDX-License-Identifier: BSD-2-Clause
/*
 * Queue pairs on a simulated disk that holds operations back: which requests wait for which, and
 * what happens to operations in flight when something ends.
 */
#include "order.h"
#include "storage.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/qp.h"
#include "adapter/store.h"
#include "dice.h"

struct scene {
	struct storage s;
	struct sim_disk disk;
	struct user u;
};

static int open_scene(void **state)
{
	struct scene *t = calloc(1, sizeof(*t));

	storage_open(&t->s, ON_PAGES);
	sim_disk_init(&t->disk, ((struct stag_medium *)t->s.medium)->media, SPACE);
	t->disk.lazy = 1;
	user_open(&t->u, &t->s, NULL);
	*state = t;
	return 0;
}

static int close_scene(void **state)
{
	struct scene *t = *state;

	user_close(&t->u);
	storage_close(&t->s);
	sim_disk_free(&t->disk);
	free(t);
	return 0;
}

/* Replaces the queue pair by one that gives up some order. */
static void relax(struct scene *t, uint32_t what, uint32_t depth)
{
	struct user_wish wish = {.attr = {.relax = what, .depth = depth}};

	user_close(&t->u);
	user_open(&t->u, &t->s, &wish);
}

static void hold_all(struct scene *t)
{
	atomic_store(&t->disk.held, UINT64_MAX);
}

static void release_all(struct scene *t)
{
	atomic_store(&t->disk.held, 0);
}

/* Expects n operations at the disk, and no more after many polls. */
static void expect_pending(struct scene *t, unsigned int n)
{
	struct ibv_wc wc;

	for (int i = 0; i < 1000; i++)
		assert_int_equal(ibv_poll_cq(t->u.scq, 1, &wc), 0);
	assert_int_equal(atomic_load(&t->disk.n_pending), n);
}

static void expect_both_done(struct scene *t)
{
	release_all(t);
	expect_done(&t->u, 1);
	expect_done(&t->u, 2);
}

/* ---- order of requests ---- */

static void disjoint_requests_run_at_once_and_complete_in_order(void **state)
{
	struct scene *t = *state;

	atomic_store(&t->disk.held, 4096);
	memset(t->s.mem, 1, 8192);
	post_write(&t->u, 1, 0, 4096, 0, 0);
	post_write(&t->u, 2, 4096, 4096, 8192, 0);
	expect_pending(t, 1);
	assert_memory_equal(t->disk.image + 8192, t->s.mem, 4096);
	expect_both_done(t);
}

static void relaxed_completions_come_as_operations_finish(void **state)
{
	struct scene *t = *state;

	relax(t, STAGDV_RELAX_COMPLETIONS, 0);
	atomic_store(&t->disk.held, 4096);
	post_write(&t->u, 1, 0, 4096, 0, 0);
	post_write(&t->u, 2, 4096, 4096, 8192, 0);
	expect_done(&t->u, 2);
	expect_pending(t, 1);
	release_all(t);
	expect_done(&t->u, 1);
}

/* A slow request holds its entry while the queue is used many times over. */
static void slow_request_occupies_one_queue_entry(void **state)
{
	struct scene *t = *state;
	struct user_wish wish = {.attr.relax = NO_ORDER, .send_wr = 4};
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;
	char text[] = "slow";

	user_close(&t->u);
	user_open(&t->u, &t->s, &wish);
	hold_all(t);
	sge = (struct ibv_sge){.addr = (uintptr_t)text, .length = sizeof(text)};
	wr = request(&t->u, 1000, IBV_WR_RDMA_WRITE, &sge, 0);
	wr.send_flags |= IBV_SEND_INLINE;
	post(&t->u, &wr);
	post_add(&t->u, 1001, 0, 8, 3);
	for (uint64_t i = 0; i < 100; i++) {
		hold_all(t); /* no completion frees an entry before the next check */
		post_write(&t->u, i, 0, 8, 4096 + i * 8, 0);
		post_write(&t->u, i, 0, 8, 8192 + i * 8, 0);
		assert_int_equal(ibv_post_send(t->u.qp, &wr, &bad), ENOMEM);
		atomic_store(&t->disk.held, 4096);
		expect_done(&t->u, i);
		expect_done(&t->u, i);
		hold_all(t);
	}
	release_all(t);
	assert_true(await_wc(t->u.scq).wr_id >= 1000);
	assert_true(await_wc(t->u.scq).wr_id >= 1000);
	assert_string_equal(t->disk.image, "slow");
	assert_int_equal(t->disk.image[8], 3);
}

static void post_kind(struct scene *t, uint64_t id, char kind, int flags)
{
	if (kind == 'w')
		post_write(&t->u, id, id * 4096, 16, 0, flags);
	else if (kind == 'r')
		post_read(&t->u, id, id * 4096, 16, 8, flags);
	else
		post_add(&t->u, id, id * 4096, 8, 1);
}

static void overlapping_requests_wait_unless_relaxed(void **state)
{
	static const struct {
		char first, second;
		uint32_t order;
	} pairs[] = {
		{'w', 'w', STAGDV_RELAX_WRITES},  {'w', 'r', STAGDV_RELAX_READS},
		{'r', 'w', STAGDV_RELAX_LATER},	  {'a', 'w', STAGDV_RELAX_ATOMICS},
		{'w', 'a', STAGDV_RELAX_ATOMICS}, {'a', 'r', STAGDV_RELAX_ATOMICS},
		{'r', 'a', STAGDV_RELAX_ATOMICS}, {'a', 'a', STAGDV_RELAX_ATOMICS},
	};
	struct scene *t = *state;

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		const struct lane *l;

		for (int given_up = 0; given_up < 2; given_up++) {
			relax(t, given_up ? pairs[i].order : NO_ORDER & ~pairs[i].order, 0);
			l = &to_stag_qp(t->u.qp)->storage.store->lane;
			hold_all(t);
			post_kind(t, 1, pairs[i].first, 0);
			post_kind(t, 2, pairs[i].second, 0);
			assert_int_equal(l->under_way,
					 1 + given_up); /* an atomic waits inside the lane */
			release_all(t);
			await_wc(t->u.scq);
			await_wc(t->u.scq);
		}
	}
}

/*
 * For any length, across any boundary, the second operation waits if they share a byte, and
 * only then.
 */
static void overlap_is_found_for_every_length(void **state)
{
	struct scene *t = *state;
	const struct lane *l = &to_stag_qp(t->u.qp)->storage.store->lane;
	unsigned long n = lessened(2000);

	for (unsigned long i = 0; i < n; i++) {
		uint32_t a_len = (uint32_t)dice_size(256 * KIB);
		uint32_t b_len = (uint32_t)dice_size(256 * KIB);
		uint64_t a = dice(256 * KIB);
		uint64_t b = one_in(2) ? a + a_len - dice(2) : dice(512 * KIB);
		bool meet = a < b + b_len && b < a + a_len;

		hold_all(t);
		post_write(&t->u, 1, 0, a_len, a, 0);
		post_read(&t->u, 2, MIB, b_len, b, 0);
		assert_int_equal(l->under_way, meet ? 1 : 2);
		expect_both_done(t);
		assert_int_equal(l->gates + l->wide, 0);
	}
	for (uint32_t i = 0; i < l->n_buckets; i++)
		assert_int_equal(l->users[i] + l->writers[i], 0);
}

static void overlapping_reads_do_not_wait(void **state)
{
	struct scene *t = *state;

	hold_all(t);
	post_read(&t->u, 1, 0, 4096, 0, 0);
	post_read(&t->u, 2, 4096, 4096, 0, 0);
	expect_pending(t, 2);
	expect_both_done(t);
}

static void fence_waits_for_all_before_it_and_all_behind_wait_for_its_start(void **state)
{
	struct scene *t = *state;

	relax(t, NO_ORDER & ~(uint32_t)STAGDV_RELAX_COMPLETIONS, 0);
	hold_all(t);
	post_read(&t->u, 1, 0, 8, MIB, 0);
	post_write(&t->u, 2, 4096, 8, 0, IBV_SEND_FENCE);
	post_write(&t->u, 3, 8192, 8, 8, 0);
	expect_pending(t, 1);
	atomic_store(&t->disk.held, MIB);
	expect_done(&t->u, 1);
	expect_pending(t, 2); /* both have begun */
	release_all(t);
	expect_done(&t->u, 2);
	expect_done(&t->u, 3);
}

static void barrier_waits_for_all_before_it_and_all_behind_wait_for_its_end(void **state)
{
	struct scene *t = *state;

	relax(t, NO_ORDER, 0);
	hold_all(t);
	post_write(&t->u, 1, 0, 8, 0, 0);
	post_barrier(&t->u, 2);
	post_read(&t->u, 3, 4096, 8, 4096, 0);
	expect_pending(t, 1);
	assert_int_equal(t->disk.pending[0].io.kind, MEDIA_IO_WRITE);
	release_all(t);
	for (uint64_t i = 1; i <= 3; i++)
		expect_done(&t->u, i);
	assert_int_equal(t->disk.n_writes, 0); /* flushed */
}

static void post_write_to(struct scene *t, uint64_t id, struct ibv_mr *region)
{
	struct ibv_sge sge = piece(&t->s, 0, 8);
	struct ibv_send_wr wr = request(&t->u, id, IBV_WR_RDMA_WRITE, &sge, 0);

	wr.wr.rdma.rkey = region->rkey;
	post(&t->u, &wr);
}

static void barrier_flushes_all_media(void **state)
{
	struct scene *t = *state;
	struct storage other;
	struct sim_disk disk;

	storage_open_in(&other, ON_PAGES, t->s.pd);
	sim_disk_init(&disk, ((struct stag_medium *)other.medium)->media, SPACE);
	post_write_to(t, 1, t->s.region);
	post_write_to(t, 2, other.region);
	expect_done(&t->u, 1);
	expect_done(&t->u, 2);
	assert_int_equal(t->disk.n_writes, 1);
	assert_int_equal(disk.n_writes, 1);
	post_barrier(&t->u, 3);
	expect_done(&t->u, 3);
	assert_int_equal(t->disk.n_writes, 0);
	assert_int_equal(disk.n_writes, 0);
	relax(t, 0, 0); /* the old queue pair holds the medium */
	storage_close(&other);
	sim_disk_free(&disk);
}

/* Order is given up only if both regions give it up. */
static void overlapping_regions_keep_order_unless_both_relax_it(void **state)
{
	struct scene *t = *state;
	struct stagdv_store_attr attr = {.length = SPACE, .access = ALL_RIGHTS, .relax = NO_ORDER};
	struct ibv_mr *loose = stagdv_reg_store_mr(t->s.pd, t->s.medium, &attr);

	hold_all(t);
	post_write_to(t, 1, t->s.region);
	post_write_to(t, 2, loose);
	expect_pending(t, 1);
	expect_both_done(t);
	assert_int_equal(ibv_dereg_mr(loose), 0);
}

static void operations_in_flight_are_limited_by_the_depth(void **state)
{
	struct scene *t = *state;

	relax(t, 0, 3);
	hold_all(t);
	for (uint64_t i = 0; i < 20; i++)
		post_write(&t->u, i, 0, 8, i * 8, 0);
	expect_pending(t, 3);
	release_all(t);
	for (uint64_t i = 0; i < 20; i++)
		expect_done(&t->u, i);
}

/* ---- accepted writes ---- */

static void accepted_write_no_longer_needs_the_callers_memory(void **state)
{
	struct scene *t = *state;
	const int accepted = STAGDV_SEND_ACCEPTED;
	uint8_t first[600];

	hold_all(t);
	dice_fill(t->s.mem, 8192);
	memcpy(first, t->s.mem + 100, sizeof(first));
	post_write(&t->u, 1, 100, sizeof(first), 4000, accepted);
	expect_done(&t->u, 1);
	memset(t->s.mem, 0, 4096); /* the memory is the caller's again */
	post_read(&t->u, 2, 8192, sizeof(first), 4000, 0);
	expect_pending(t, 1); /* the read waits for the write, as always */
	release_all(t);
	expect_done(&t->u, 2);
	assert_memory_equal(t->s.mem + 8192, first, sizeof(first));
	assert_memory_equal(t->disk.image + 4000, first, sizeof(first));
}

/*
 * Up to the depth, accepted writes leave the queue free for other requests; requests behind them
 * complete in order.
 */
static void accepted_writes_occupy_no_queue_entries(void **state)
{
	struct scene *t = *state;
	struct user_wish wish = {.attr.level = STAGDV_LEVEL_ACCEPTED, .send_wr = 4};

	user_close(&t->u);
	user_open(&t->u, &t->s, &wish);
	hold_all(t);
	for (uint64_t i = 0; i < 4; i++) {
		memset(t->s.mem, (int)i + 1, 8);
		post_write(&t->u, i, 0, 8, word_offset((unsigned int)i), 0);
		expect_done(&t->u, i);
	}
	memset(t->s.mem, 5, 8);
	post_write(&t->u, 4, 0, 8, word_offset(4),
		   0); /* the depth is reached: this write waits, with its memory */
	post_barrier(&t->u, 5);
	expect_pending(t, 4);
	release_all(t);
	expect_done(&t->u, 4);
	expect_done(&t->u, 5);
	for (unsigned int i = 0; i < 5; i++)
		assert_int_equal(t->disk.image[word_offset(i)], i + 1);
	assert_int_equal(t->disk.n_writes, 0); /* flushed */
}

/* A write behind a fence may have the sink of an earlier read as its source. */
static void fenced_write_reads_its_source_when_it_starts(void **state)
{
	struct scene *t = *state;

	memset(t->disk.image, 7, 8);
	hold_all(t);
	post_read(&t->u, 1, 0, 8, 0, 0);
	post_write(&t->u, 2, 0, 8, 4096, STAGDV_SEND_ACCEPTED | IBV_SEND_FENCE);
	expect_pending(t, 1);
	expect_both_done(t);
	post_barrier(&t->u, 3);
	expect_done(&t->u, 3);
	assert_int_equal(t->disk.image[4096], 7);
}

static void write_too_long_for_a_buffer_completes_when_visible(void **state)
{
	struct scene *t = *state;

	hold_all(t);
	post_write(&t->u, 1, 0, MEDIA_BUFFER_SIZE + 1, 0, STAGDV_SEND_ACCEPTED);
	expect_pending(t, 1);
	release_all(t);
	expect_done(&t->u, 1);
}

/* A failure after the completion ends the queue pair, whatever its order. */
static void failed_accepted_write_ends_the_queue_pair(void **state)
{
	struct scene *t = *state;

	for (int i = 0; i < 2; i++) {
		relax(t, i ? NO_ORDER : 0, 0);
		hold_all(t);
		atomic_store(&t->disk.error, -EIO);
		post_write(&t->u, 1, 0, 8, 0, STAGDV_SEND_ACCEPTED);
		expect_done(&t->u, 1);
		post_barrier(&t->u, 2);
		release_all(t);
		expect_failed(&t->u, 2, IBV_WC_WR_FLUSH_ERR);
		expect_state(&t->u, IBV_QPS_ERR);
		atomic_store(&t->disk.error, 0);
	}
}

/* ---- attributes that change while the region is in use ---- */

static void change_store_region(struct scene *t, uint32_t what, uint32_t level, int mask)
{
	struct stagdv_store_qp_attr attr = {.relax = what, .level = level}, now;

	assert_int_equal(stagdv_modify_store_qp(t->u.qp, &attr, mask), 0);
	assert_int_equal(stagdv_query_store_qp(t->u.qp, &now, sizeof(now)), 0);
	if (mask & STAGDV_STORE_RELAX)
		assert_int_equal(now.relax, what);
	if (mask & STAGDV_STORE_LEVEL)
		assert_int_equal(now.level, level);
}

static void changed_level_applies_to_later_posts(void **state)
{
	struct scene *t = *state;

	post_write(&t->u, 1, 0, 8, word_offset(0), 0);
	expect_done(&t->u, 1);
	assert_int_equal(t->disk.n_writes, 1); /* a power failure may undo it */
	change_store_region(t, NO_ORDER, STAGDV_LEVEL_DURABLE, STAGDV_STORE_LEVEL);
	post_write(&t->u, 2, 0, 8, word_offset(1), 0);
	expect_done(&t->u, 2);
	assert_int_equal(t->disk.n_writes, 1);
	change_store_region(t, 0, STAGDV_LEVEL_VISIBLE, STAGDV_STORE_LEVEL);
	post_write(&t->u, 3, 0, 8, word_offset(2), 0);
	expect_done(&t->u, 3);
	assert_int_equal(t->disk.n_writes, 2);
}

static void changed_order_applies_between_requests_posted_with_it(void **state)
{
	struct scene *t = *state;

	hold_all(t);
	post_write(&t->u, 1, 0, 8, 0, 0);
	change_store_region(t, STAGDV_RELAX_WRITES, STAGDV_LEVEL_DURABLE, STAGDV_STORE_RELAX);
	post_write(&t->u, 2, 8, 8, 0, 0); /* the first write has not given it up */
	expect_pending(t, 1);
	expect_both_done(t);
	assert_int_equal(t->disk.n_writes, 2); /* its level is unchanged */
	hold_all(t);
	post_write(&t->u, 1, 0, 8, 0, 0);
	post_write(&t->u, 2, 8, 8, 0, 0);
	assert_int_equal(to_stag_qp(t->u.qp)->storage.store->lane.under_way, 2);
	expect_both_done(t);
}

/* ---- errors of the disk ---- */

static void error_ends_an_ordered_queue_pair(void **state)
{
	struct scene *t = *state;

	hold_all(t);
	atomic_store(&t->disk.error, -EIO);
	post_write(&t->u, 1, 0, 8, 0, 0);
	post_write(&t->u, 2, 0, 8, 0, 0); /* waits, and is never started */
	post_write(&t->u, 3, 0, 8, 4096, 0);
	release_all(t);
	expect_failed(&t->u, 1, IBV_WC_REM_OP_ERR);
	expect_failed(&t->u, 2, IBV_WC_WR_FLUSH_ERR);
	expect_failed(&t->u, 3, IBV_WC_WR_FLUSH_ERR);
	expect_state(&t->u, IBV_QPS_ERR);
}

static void error_of_a_relaxed_queue_pair_fails_one_request(void **state)
{
	struct scene *t = *state;

	relax(t, NO_ORDER, 0);
	atomic_store(&t->disk.error, -ENOSPC);
	post_write(&t->u, 1, 0, 8, 0, 0);
	expect_failed(&t->u, 1, IBV_WC_REM_OP_ERR);
	atomic_store(&t->disk.error, 0);
	post_write(&t->u, 2, 0, 8, 0, 0);
	expect_done(&t->u, 2);
}

/*
 * Requests before the failed one are carried out, held back or not; those behind it are never
 * started.
 */
static void requests_before_a_bad_key_complete(void **state)
{
	struct scene *t = *state;
	struct ibv_sge sge = piece(&t->s, 0, 8);
	struct ibv_send_wr wr = request(&t->u, 3, IBV_WR_RDMA_WRITE, &sge, 0);

	hold_all(t);
	memset(t->s.mem, 5, 8192);
	post_write(&t->u, 1, 0, 8, 0, 0);
	post_read(&t->u, 2, 4096, 8, 0, 0);
	wr.wr.rdma.rkey++;
	post(&t->u, &wr);
	post_write(&t->u, 4, 0, 8, 64, 0);
	expect_pending(t, 1);
	release_all(t);
	expect_done(&t->u, 1);
	expect_done(&t->u, 2);
	expect_failed(&t->u, 3, IBV_WC_REM_ACCESS_ERR);
	expect_failed(&t->u, 4, IBV_WC_WR_FLUSH_ERR);
	assert_memory_equal(t->s.mem, t->s.mem + 4096, 8);
	assert_int_equal(t->disk.image[64], 0);
}

/* ---- destruction, reset, deregistration ---- */

static void error_state_flushes_after_the_disk_has_finished(void **state)
{
	struct scene *t = *state;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	hold_all(t);
	post_write(&t->u, 1, 0, 8, 0, 0);
	post_write(&t->u, 2, 0, 8, 0, 0);
	assert_int_equal(ibv_modify_qp(t->u.qp, &attr, IBV_QP_STATE), 0);
	expect_state(&t->u, IBV_QPS_ERR);
	post_write(&t->u, 3, 0, 8, 0, 0);
	expect_pending(t, 1); /* and nothing has completed */
	release_all(t);
	media_poll(((struct stag_medium *)t->s.medium)->media);
	await_wc(t->u.scq);
	expect_failed(&t->u, 2, IBV_WC_WR_FLUSH_ERR);
	expect_failed(&t->u, 3, IBV_WC_WR_FLUSH_ERR);
}

/* Runs a call that has to wait for the disk on another thread. */
struct ending {
	struct scene *t;
	int (*end)(struct scene *t);
	atomic_bool ended;
	pthread_t thread;
};

static void *run_ending(void *arg)
{
	struct ending *e = arg;

	assert_int_equal(e->end(e->t), 0);
	atomic_store(&e->ended, true);
	return NULL;
}

static void expect_to_wait(struct scene *t, int (*end)(struct scene *t))
{
	struct ending e = {.t = t, .end = end};

	hold_all(t);
	post_read(&t->u, 1, 0, 4096, 0, 0);
	assert_int_equal(pthread_create(&e.thread, NULL, run_ending, &e), 0);
	for (int i = 0; i < 2000; i++) {
		sched_yield();
		assert_false(atomic_load(&e.ended));
	}
	release_all(t);
	while (!atomic_load(&e.ended)) { /* whether or not the waiting thread polls */
		media_poll(((struct stag_medium *)t->s.medium)->media);
		sched_yield();
	}
	pthread_join(e.thread, NULL);
}

static int destroy_queue_pair(struct scene *t)
{
	return ibv_destroy_qp(t->u.qp);
}

static void destroy_waits_for_operations_in_flight(void **state)
{
	struct scene *t = *state;
	struct user old = t->u;

	expect_to_wait(t, destroy_queue_pair);
	user_open(&t->u, &t->s, NULL);
	assert_int_equal(ibv_destroy_cq(old.scq), 0);
	assert_int_equal(ibv_destroy_cq(old.rcq), 0);
}

static void accepted_write_outlives_its_queue_pair(void **state)
{
	struct scene *t = *state;
	struct user old = t->u;

	hold_all(t);
	memset(t->s.mem + 4096, 9, 8);
	post_write(&t->u, 2, 4096, 8, 8192, STAGDV_SEND_ACCEPTED);
	expect_done(&t->u, 2);
	expect_to_wait(t, destroy_queue_pair);
	assert_int_equal(t->disk.image[8192], 9);
	user_open(&t->u, &t->s, NULL);
	assert_int_equal(ibv_destroy_cq(old.scq), 0);
	assert_int_equal(ibv_destroy_cq(old.rcq), 0);
}

static int reset_queue_pair(struct scene *t)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};

	return ibv_modify_qp(t->u.qp, &attr, IBV_QP_STATE);
}

static void reset_waits_for_operations_in_flight(void **state)
{
	expect_to_wait(*state, reset_queue_pair);
}

static int dereg_memory(struct scene *t)
{
	return ibv_dereg_mr(t->s.mr);
}

static void memory_deregistration_waits_for_the_disk(void **state)
{
	struct scene *t = *state;

	expect_to_wait(t, dereg_memory);
	t->s.mr = ibv_reg_mr(t->s.pd, t->s.mem, SPACE, IBV_ACCESS_LOCAL_WRITE);
}

static int dereg_region(struct scene *t)
{
	return ibv_dereg_mr(t->s.region);
}

static void store_region_deregistration_waits_for_the_disk(void **state)
{
	struct stagdv_store_attr attr = {.length = SPACE, .access = ALL_RIGHTS};
	struct scene *t = *state;

	expect_to_wait(t, dereg_region);
	t->s.region = stagdv_reg_store_mr(t->s.pd, t->s.medium, &attr);
}

/* Operations in flight belong to the parent: a child does not wait for them. */
static void forked_child_destroys_inherited_queue_pair_without_waiting(void **state)
{
	struct scene *t = *state;
	int status;
	pid_t child;

	hold_all(t);
	post_read(&t->u, 1, 0, 4096, 0, 0);
	post_write(&t->u, 2, 4096, 4096, 0, 0); /* waits for the read */
	child = fork();
	if (child == 0) {
		alarm(30);
		_exit(ibv_destroy_qp(t->u.qp) || ibv_dereg_mr(t->s.mr) ||
		      ibv_dereg_mr(t->s.region) || stagdv_close_medium(t->s.medium));
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	expect_both_done(t);
}

/* ---- guarded memory ---- */

static void hazard_is_set_while_the_disk_uses_the_memory(void **state)
{
	struct scene *t = *state;
	static uint64_t word, hazards[1];
	struct stagdv_guard guard = {
		.word = &word, .hazards = hazards, .n_hazards = 1, .hazard = 77};
	struct ibv_mr *mr =
		stagdv_reg_guarded_mr(t->s.pd, t->s.mem, 8192, IBV_ACCESS_LOCAL_WRITE, &guard);
	struct ibv_sge sge = {.addr = (uintptr_t)t->s.mem, .length = 4096, .lkey = mr->lkey};
	struct ibv_send_wr wr = request(&t->u, 1, IBV_WR_RDMA_READ, &sge, 0);

	hold_all(t);
	post(&t->u, &wr);
	expect_pending(t, 1);
	assert_int_equal(__atomic_load_n(&hazards[0], __ATOMIC_SEQ_CST), 77);
	wr.wr_id = 2; /* there is only one cell: the second starts when the first has ended */
	wr.wr.rdma.remote_addr = 8192;
	post(&t->u, &wr);
	expect_pending(t, 1);
	expect_both_done(t);
	assert_int_equal(__atomic_load_n(&hazards[0], __ATOMIC_SEQ_CST), 0);
	__atomic_store_n(&hazards[0], 99, __ATOMIC_SEQ_CST); /* another region's hazard */
	post(&t->u, &wr);
	expect_pending(t, 0);
	__atomic_store_n(&hazards[0], 0, __ATOMIC_SEQ_CST);
	expect_done(&t->u, 2);
	__atomic_store_n(&word, 1, __ATOMIC_SEQ_CST);
	post(&t->u, &wr);
	expect_failed(&t->u, 2, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	word = 0;
}

/* ---- many queue pairs ---- */

static void more_queue_pairs_than_a_poller_reads_at_once_make_progress(void **state)
{
	struct scene *t = *state;
	struct ibv_cq *cq = ibv_create_cq(t->s.ctx, 1024, NULL, NULL, 0);
	struct user_wish wish = {.cq = cq};
	struct user u[20];

	for (int i = 0; i < 20; i++)
		user_open(&u[i], &t->s, &wish);
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 20; i++)
			post_write(&u[i], (uint64_t)i, 0, 512, (uint64_t)i * 512, 0);
		for (int i = 0; i < 20; i++)
			assert_int_equal(await_wc(cq).status, IBV_WC_SUCCESS);
	}
	for (int i = 0; i < 20; i++)
		user_close(&u[i]);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		STORY(disjoint_requests_run_at_once_and_complete_in_order),
		STORY(relaxed_completions_come_as_operations_finish),
		STORY(slow_request_occupies_one_queue_entry),
		STORY(overlapping_requests_wait_unless_relaxed),
		STORY(overlap_is_found_for_every_length),
		STORY(overlapping_reads_do_not_wait),
		STORY(fence_waits_for_all_before_it_and_all_behind_wait_for_its_start),
		STORY(barrier_waits_for_all_before_it_and_all_behind_wait_for_its_end),
		STORY(barrier_flushes_all_media),
		STORY(overlapping_regions_keep_order_unless_both_relax_it),
		STORY(operations_in_flight_are_limited_by_the_depth),
		STORY(accepted_write_no_longer_needs_the_callers_memory),
		STORY(accepted_writes_occupy_no_queue_entries),
		STORY(fenced_write_reads_its_source_when_it_starts),
		STORY(write_too_long_for_a_buffer_completes_when_visible),
		STORY(failed_accepted_write_ends_the_queue_pair),
		STORY(accepted_write_outlives_its_queue_pair),
		STORY(changed_level_applies_to_later_posts),
		STORY(changed_order_applies_between_requests_posted_with_it),
		STORY(error_ends_an_ordered_queue_pair),
		STORY(error_of_a_relaxed_queue_pair_fails_one_request),
		STORY(requests_before_a_bad_key_complete),
		STORY(error_state_flushes_after_the_disk_has_finished),
		STORY(destroy_waits_for_operations_in_flight),
		STORY(reset_waits_for_operations_in_flight),
		STORY(memory_deregistration_waits_for_the_disk),
		STORY(store_region_deregistration_waits_for_the_disk),
		STORY(forked_child_destroys_inherited_queue_pair_without_waiting),
		STORY(hazard_is_set_while_the_disk_uses_the_memory),
		STORY(more_queue_pairs_than_a_poller_reads_at_once_make_progress),
	};

	dice_start();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
