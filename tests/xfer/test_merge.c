// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_merge.c - several requests at a time: they merge, they complete independently and in order,
 * and small ones are not delayed by a huge one.
 */
#include "dice.h"
#include "spy.h"
#include "work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEN  (1u << 20)
#define MANY 64

static struct work works[MANY];

/* Makes requests that are adjacent at both ends. */
static void line_up(struct desk *d, enum stag_xfer_op op, size_t len)
{
	for (size_t i = 0; i < MANY; i++)
		desk_work(d, &works[i], op, i * len, len);
}

static void submit_plugged(struct desk *d)
{
	stag_xfer_plug(d->x);
	for (size_t i = 0; i < MANY; i++)
		submit(d, &works[i]);
	stag_xfer_unplug(d->x);
}

static void expect_all_in_order(struct desk *d)
{
	for (size_t i = 0; i < MANY; i++)
		expect_done(d, &works[i]);
}

static void adjacent_requests_merge_into_one_descriptor(void **state)
{
	struct desk d;

	desk_open(&d, NULL, NULL, LEN);
	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		struct stag_xfer_counters before = counters(&d), after;

		line_up(&d, op, 100);
		submit_plugged(&d);
		expect_all_in_order(&d);
		expect_same(&d, 0, MANY * 100);
		after = counters(&d);
		assert_int_equal(after.descriptors - before.descriptors, 1);
		assert_int_equal(after.merged - before.merged, MANY - 1);
		assert_int_equal(after.requests - before.requests, MANY);
		for (size_t i = 0; i < MANY; i++)
			assert_int_equal(works[i].req.transfers, 1);
	}
	desk_close(&d);
}

/* Buffers that are not adjacent need a segment each; and a descriptor has only so many. */
static void merging_ends_at_the_segment_limit(void **state)
{
	struct stag_xfer_limits limits;
	struct desk d;

	desk_open(&d, NULL, NULL, LEN);
	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		struct stag_xfer_counters before = counters(&d);

		assert_int_equal(stag_xfer_query_limits(d.x, op, &limits), 0);
		for (size_t i = 0; i < MANY; i++)
			work_init(&works[i], op, d.near, (MANY - 1 - i) * 100, d.far, i * 100, 100);
		submit_plugged(&d);
		expect_all_in_order(&d);
		assert_int_equal(counters(&d).descriptors - before.descriptors,
				 (MANY + limits.max_segments - 1) / limits.max_segments);
		for (size_t i = 0; i < MANY; i++)
			assert_memory_equal(d.near->at + (MANY - 1 - i) * 100, d.far->at + i * 100,
					    100);
	}
	desk_close(&d);
}

/* A descriptor that begins with the rest of one request continues with the next. */
static void the_rest_of_a_request_merges_with_the_next(void **state)
{
	struct stag_xfer_attr attr = {.max_transfer = 1000};
	struct desk d;

	desk_open(&d, NULL, &attr, LEN);
	line_up(&d, STAG_XFER_WRITE, 1250);
	submit_plugged(&d);
	expect_all_in_order(&d);
	expect_same(&d, 0, MANY * 1250);
	assert_int_equal(counters(&d).descriptors, MANY * 1250 / 1000);
	desk_close(&d);
}

static uint64_t descriptors_of(struct desk *d)
{
	struct stag_xfer_counters before = counters(d);

	submit_plugged(d);
	expect_all_in_order(d);
	return counters(d).descriptors - before.descriptors;
}

static void requests_with_gaps_or_other_keys_or_directions_do_not_merge(void **state)
{
	struct region *other;
	struct desk d;

	desk_open(&d, NULL, NULL, LEN);
	other = far_region(&d.pair, LEN, BOTH_WAYS);
	for (size_t i = 0; i < MANY; i++) /* with gaps between them */
		desk_work(&d, &works[i], STAG_XFER_WRITE, i * 101, 100);
	assert_int_equal(descriptors_of(&d), MANY);
	for (size_t i = 0; i < MANY; i++) /* in different directions */
		desk_work(&d, &works[i], i % 2 ? STAG_XFER_READ : STAG_XFER_WRITE, i * 100, 100);
	assert_int_equal(descriptors_of(&d), MANY);
	for (size_t i = 0; i < MANY; i++) /* with different keys */
		work_init(&works[i], STAG_XFER_WRITE, d.near, i * 100, i % 2 ? d.far : other,
			  i * 100, 100);
	assert_int_equal(descriptors_of(&d), MANY);
	assert_int_equal(counters(&d).merged, 0);
	desk_close(&d);
}

static void no_merge_prevents_merging(void **state)
{
	struct stag_xfer_attr attr = {.flags = STAG_XFER_NO_MERGE};
	struct desk d;

	desk_open(&d, NULL, &attr, LEN);
	line_up(&d, STAG_XFER_WRITE, 100);
	assert_int_equal(descriptors_of(&d), MANY);
	assert_int_equal(counters(&d).merged, 0);
	desk_close(&d);
}

static void scarce_descriptors_merge_without_a_plug(void **state)
{
	struct stag_xfer_attr attr = {.descriptors = 1};
	struct desk d;

	desk_open(&d, NULL, &attr, LEN);
	line_up(&d, STAG_XFER_READ, 100);
	for (size_t i = 0; i < MANY; i++)
		submit(&d, &works[i]);
	expect_all_in_order(&d);
	expect_same(&d, 0, MANY * 100);
	/* The first is posted alone; all others waited for it. */
	assert_int_equal(counters(&d).descriptors, 2);
	assert_int_equal(counters(&d).merged, MANY - 2);
	desk_close(&d);
}

static void count_post(struct spy *spy, const struct spy_wr *wr)
{
	++*(unsigned int *)spy->context;
}

static void a_plug_delays_all_posts_and_nests(void **state)
{
	unsigned int posted = 0;
	struct spy spy = {.posted = count_post, .context = &posted};
	struct desk d;

	desk_open(&d, NULL, NULL, LEN);
	spy_start(&spy, &d.pair);
	stag_xfer_plug(d.x);
	stag_xfer_plug(d.x);
	desk_work(&d, &works[0], STAG_XFER_WRITE, 0, 1000);
	submit(&d, &works[0]);
	stag_xfer_unplug(d.x);
	for (int i = 0; i < 100; i++)
		assert_null(poll_one(&d));
	assert_int_equal(posted, 0);
	stag_xfer_unplug(d.x);
	expect_done(&d, &works[0]);
	assert_int_not_equal(posted, 0);
	spy_stop(&spy);
	desk_close(&d);
}

/* ---- order and fairness ---- */

#define GIANT_PIECE (1u << 20)
#define GIANT	    5120 /* pieces: 5 GiB */

/* A request of 5 GiB: the same MiB again and again. */
static struct giant {
	struct work work; /* its element and buffer are not used */
	struct stag_xfer_elem elems[GIANT];
	struct stag_xfer_buf buf;
} giants[3];

static void giant_init(struct desk *d, struct giant *g)
{
	desk_work(d, &g->work, STAG_XFER_WRITE, 0, GIANT_PIECE);
	g->buf = g->work.buf;
	g->work.req.elems = g->elems;
	g->work.req.num_elems = GIANT;
	for (size_t i = 0; i < GIANT; i++)
		g->elems[i] = (struct stag_xfer_elem){.bufs = &g->buf,
						      .num_bufs = 1,
						      .rkey = d->far->mr->rkey,
						      .remote_addr = (uintptr_t)d->far->at};
}

static void cancel_giant(struct desk *d, struct giant *g)
{
	assert_int_equal(stag_xfer_cancel(d->x, &g->work.req), 0);
	assert_ptr_equal(await_one(d), &g->work);
	assert_int_equal(g->work.req.error, ECANCELED);
	assert_int_equal(g->work.req.bytes_total, (uint64_t)GIANT * GIANT_PIECE);
}

/* Bytes that are posted before the first descriptor of a given request, on its rail. */
struct watch {
	uint64_t remote_addr;
	uint64_t under_way[PAIR_MAX_RAILS]; /* bytes posted and not proven */
	uint64_t ahead[PAIR_MAX_RAILS];	    /* those in flight when the request was submitted */
	uint64_t passed[PAIR_MAX_RAILS];    /* bytes posted since */
	bool came;
	unsigned int rail;
};

static void watch_post(struct spy *spy, const struct spy_wr *wr)
{
	struct watch *w = spy->context;

	w->under_way[wr->rail] += wr->length;
	if (wr->remote_addr == w->remote_addr) {
		w->came = true;
		w->rail = wr->rail;
	} else if (!w->came) {
		w->passed[wr->rail] += wr->length;
	}
}

static void watch_proof(struct spy *spy, const struct spy_wr *wr)
{
	((struct watch *)spy->context)->under_way[wr->rail] -= wr->length;
}

static void watch_begin(struct watch *w)
{
	memcpy(w->ahead, w->under_way, sizeof(w->ahead));
	memset(w->passed, 0, sizeof(w->passed));
	w->came = false;
}

/*
 * Checks the bound behind some giants: each may take one turn, and complete its current descriptor.
 */
static void expect_bound(const struct watch *w, unsigned int n_giants,
			 const struct stag_xfer_attr *attr)
{
	uint64_t turns = n_giants * (attr->turn + attr->max_transfer);
	uint64_t window = attr->window > attr->max_transfer ? attr->window : attr->max_transfer;

	assert_true(w->came);
	assert_true(w->ahead[w->rail] <= window);
	if (w->passed[w->rail] > turns)
		fail_msg("%llu bytes passed: %u giants, turn %llu, descriptors of %u, window %llu",
			 (unsigned long long)w->passed[w->rail], n_giants,
			 (unsigned long long)attr->turn, attr->max_transfer,
			 (unsigned long long)attr->window);
}

static void submit_behind_giants(struct desk *d, unsigned int n_giants,
				 const struct stag_xfer_attr *attr)
{
	struct watch watch = {.remote_addr = (uintptr_t)d->far->at + GIANT_PIECE};
	struct spy spy = {.posted = watch_post, .proven = watch_proof, .context = &watch};

	spy_start(&spy, &d->pair);
	for (unsigned int i = 0; i < n_giants; i++) {
		giant_init(d, &giants[i]);
		submit(d, &giants[i].work);
	}
	for (unsigned long i = 0; i < lessened(20); i++) {
		for (uint64_t polls = dice(50); polls--;)
			assert_null(poll_one(d));
		watch_begin(&watch);
		desk_work(d, &works[0], STAG_XFER_WRITE, GIANT_PIECE, 1 + dice(500));
		submit(d, &works[0]);
		expect_done(d, &works[0]);
		expect_bound(&watch, n_giants, attr);
	}
	for (unsigned int i = 0; i < n_giants; i++)
		cancel_giant(d, &giants[i]);
	spy_stop(&spy);
}

static void small_requests_are_not_delayed_by_a_giant(void **state)
{
	for (unsigned long i = 0; i < lessened(12) + 2; i++) {
		struct stag_xfer_attr attr = {.max_transfer = (uint32_t)(1 + dice(1 << 18)),
					      .turn = 1 + dice(1 << 20),
					      .window = 1 + dice(1 << 22)};
		struct pair_wish wish = {.rails = 1 + (unsigned int)dice(3)};
		struct desk d;

		desk_open(&d, &wish, &attr, GIANT_PIECE + 500);
		submit_behind_giants(&d, 1 + (unsigned int)dice(3), &attr);
		desk_close(&d);
	}
}

static void small_requests_complete_in_order_beside_a_giant(void **state)
{
	struct desk d;

	desk_open(&d, NULL, NULL, 2 * GIANT_PIECE);
	giant_init(&d, &giants[0]);
	submit(&d, &giants[0].work);
	for (size_t i = 0; i < MANY; i++) {
		desk_work(&d, &works[i], i % 3 ? STAG_XFER_WRITE : STAG_XFER_READ,
			  GIANT_PIECE + i * 1000, i % 5 ? dice(900) : 0);
		submit(&d, &works[i]);
	}
	expect_all_in_order(&d);
	cancel_giant(&d, &giants[0]);
	desk_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(adjacent_requests_merge_into_one_descriptor),
		cmocka_unit_test(merging_ends_at_the_segment_limit),
		cmocka_unit_test(the_rest_of_a_request_merges_with_the_next),
		cmocka_unit_test(requests_with_gaps_or_other_keys_or_directions_do_not_merge),
		cmocka_unit_test(no_merge_prevents_merging),
		cmocka_unit_test(scarce_descriptors_merge_without_a_plug),
		cmocka_unit_test(a_plug_delays_all_posts_and_nests),
		cmocka_unit_test(small_requests_are_not_delayed_by_a_giant),
		cmocka_unit_test(small_requests_complete_in_order_beside_a_giant),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
