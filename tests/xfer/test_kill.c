// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_kill.c - connections are killed under load, at random moments and in every way, and
 * replaced: the data is right each time, and bytes known to be done are never posted again.
 *
 * Bytes are known to be done when the spy found them proven by polled completions. Memory is
 * counted in grains: all boundaries of buffers and descriptors are multiples of one.
 */
#include "dice.h"
#include "pair.h"
#include "spy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stag/xfer.h"

#define GRAIN 64u
#define SLOTS 24
#define SLOT  (64u << 10) /* bytes of a slot, at each end */
#define LEN   (SLOTS * SLOT)
#define ELEMS 8

/* A request, and the memory range at each end that only it uses. */
struct slot {
	struct stag_xfer_req req;
	struct stag_xfer_elem elems[ELEMS];
	struct stag_xfer_buf bufs[ELEMS];
	bool under_way;
};

static struct load {
	struct pair pair;
	struct spy spy;
	struct stag_xfer *x;
	struct region *near, *far;
	struct slot slots[SLOTS];
	bool proven[LEN / GRAIN];
	uint64_t posts_until_kill; /* posted work requests until the next kill; 0: none is due */
	unsigned int kills, wanted;
	unsigned long requests, again; /* grains posted again */
	bool posted[LEN / GRAIN];
} load;

/* ---- requests ---- */

static size_t base_of(const struct slot *s)
{
	return (size_t)(s - load.slots) * SLOT;
}

/* Makes a chain from one end of the slot to the other, at equal offsets, with some gaps. */
static void random_chain(struct slot *s)
{
	size_t off = base_of(s), end = off + SLOT;

	for (size_t i = 0; i < s->req.num_elems; i++) {
		size_t len = GRAIN * dice_size((end - off) / GRAIN / (s->req.num_elems - i));

		s->bufs[i] = (struct stag_xfer_buf){.addr = (uintptr_t)load.near->at + off,
						    .length = len,
						    .lkey = load.near->mr->lkey};
		s->elems[i] = (struct stag_xfer_elem){.bufs = &s->bufs[i],
						      .num_bufs = 1,
						      .remote_addr = (uintptr_t)load.far->at + off,
						      .rkey = load.far->mr->rkey};
		off += len + (one_in(3) ? GRAIN : 0);
		if (off >= end)
			off = end - GRAIN;
	}
}

static void start_request(struct slot *s)
{
	size_t base = base_of(s);

	s->req = (struct stag_xfer_req){.op = one_in(2) ? STAG_XFER_READ : STAG_XFER_WRITE,
					.elems = s->elems,
					.num_elems = 1 + dice(ELEMS - 1),
					.context = s};
	random_chain(s);
	dice_fill((s->req.op == STAG_XFER_READ ? load.far : load.near)->at + base, SLOT);
	memset(&load.proven[base / GRAIN], 0, SLOT / GRAIN * sizeof(bool));
	memset(&load.posted[base / GRAIN], 0, SLOT / GRAIN * sizeof(bool));
	s->under_way = true;
	assert_int_equal(stag_xfer_submit(load.x, &s->req), 0);
}

static void expect_arrived(struct slot *s)
{
	assert_true(s->under_way);
	s->under_way = false;
	assert_int_equal(s->req.error, 0);
	assert_int_equal(s->req.bytes_done, s->req.bytes_total);
	for (size_t i = 0; i < s->req.num_elems; i++) {
		size_t off = s->bufs[i].addr - (uintptr_t)load.near->at;

		assert_memory_equal(load.near->at + off, load.far->at + off, s->bufs[i].length);
	}
	load.requests++;
}

/* ---- the spy ---- */

static void kill_one(void)
{
	unsigned int rail = (unsigned int)dice(load.pair.wish.rails);

	load.posts_until_kill = 0;
	load.kills++;
	pair_end(&load.pair, rail, (enum pair_end)dice(END_WAYS));
}

static size_t first_grain(const struct spy_wr *wr)
{
	return (wr->remote_addr - (uintptr_t)load.far->at) / GRAIN;
}

static void on_posted(struct spy *spy, const struct spy_wr *wr)
{
	if (spy_is_confirm(wr))
		return;
	assert_int_equal(wr->length % GRAIN, 0);
	for (size_t i = first_grain(wr); i < first_grain(wr) + wr->length / GRAIN; i++) {
		if (load.proven[i])
			fail_msg("kill %u: grain %zu is known to be done, and was posted again",
				 load.kills, i);
		load.again += load.posted[i];
		load.posted[i] = true;
	}
	if (load.posts_until_kill && --load.posts_until_kill == 0)
		kill_one();
}

static void on_proven(struct spy *spy, const struct spy_wr *wr)
{
	for (size_t i = first_grain(wr); i < first_grain(wr) + wr->length / GRAIN; i++)
		load.proven[i] = true;
}

static uint64_t proven_bytes(const struct slot *s)
{
	uint64_t n = 0;

	for (size_t i = base_of(s) / GRAIN; i < (base_of(s) + SLOT) / GRAIN; i++)
		n += load.proven[i] * GRAIN;
	return n;
}

/* ---- rails ---- */

static bool has_ended(unsigned int rail)
{
	return !stag_xfer_rail_up(load.x, rail) || !pair_is_up(&load.pair, rail);
}

/* Waits until nothing of the old connection can arrive, before its memory is reused. */
static void wait_for_old_connection(unsigned int rail)
{
	pair_end(&load.pair, rail, END_NEAR_ERROR);
	if (load.pair.rails[rail].far.id)
		pair_end(&load.pair, rail, END_FAR_GONE);
}

/*
 * Replaces the connection. The old queue pair may still exist; the manager may not know yet that it
 * has ended.
 */
static void replace_connection(unsigned int rail)
{
	struct rdma_cm_id *old = NULL;

	if (one_in(2)) {
		old = pair_replace(&load.pair, rail);
		if (stag_xfer_rail_up(load.x, rail))
			assert_int_equal(stag_xfer_rebind(load.x, rail, NULL), 0);
	} else {
		assert_int_equal(stag_xfer_rebind(load.x, rail, NULL), 0);
		pair_reconnect(&load.pair, rail);
		spy_rebind(&load.spy, rail, NULL);
	}
	spy_rebind(&load.spy, rail, pair_qp(&load.pair, rail));
	/* The posts on other rails may kill this one again. */
	if (stag_xfer_rebind(load.x, rail, pair_qp(&load.pair, rail)) &&
	    pair_is_up(&load.pair, rail))
		fail_msg("rebind: %s", stag_xfer_error(load.x));
	spy_forget(&load.spy, rail);
	if (old)
		pair_discard(old);
}

/* Replaces ended rails, some immediately, some later. */
static void replace_ended_rails(void)
{
	for (unsigned int i = 0; i < load.pair.wish.rails; i++) {
		if (!has_ended(i))
			continue;
		wait_for_old_connection(i);
		if (one_in(4))
			replace_connection(i);
	}
}

/* ---- the load ---- */

static void poll_some(void)
{
	struct stag_xfer_req *done[SLOTS];
	int n = stag_xfer_poll(load.x, done, SLOTS);

	replace_ended_rails();
	for (int i = 0; i < n; i++)
		expect_arrived(done[i]->context);
	for (int i = 0; i < n; i++)
		if (load.kills < load.wanted)
			start_request(done[i]->context);
	pair_serve(&load.pair);
}

static void check_one(void)
{
	struct slot *s = &load.slots[dice(SLOTS)];

	if (s->under_way)
		assert_int_equal(s->req.bytes_done, proven_bytes(s));
}

static bool is_idle(void)
{
	poll_some();
	for (size_t i = 0; i < SLOTS; i++)
		if (load.slots[i].under_way)
			return false;
	return true;
}

static void plan_next_kill(void)
{
	load.posts_until_kill = dice_size(500);
	if (one_in(4))
		kill_one();
}

static void kill_many(unsigned int wanted)
{
	load.kills = 0;
	load.wanted = wanted;
	for (size_t i = 0; i < SLOTS; i++)
		start_request(&load.slots[i]);
	while (load.kills < wanted) {
		unsigned int before = load.kills;

		if (!load.posts_until_kill)
			plan_next_kill();
		await((poll_some(), check_one(), load.kills != before || !load.posts_until_kill));
	}
	load.posts_until_kill = 0;
	await(is_idle());
}

static void open_load(unsigned int rails)
{
	struct pair_wish wish = {.rails = rails, .one_cq = one_in(2), .channel = one_in(2)};
	struct stag_xfer_attr attr = {.descriptors = (uint32_t)dice_size(512),
				      .max_transfer = GRAIN * (uint32_t)dice_size(512),
				      .window = dice_size(1 << 20),
				      .turn = dice_size(1 << 17),
				      .max_losses = 1000};
	unsigned int number;

	pair_open(&load.pair, &wish);
	load.near = near_region(&load.pair, LEN);
	load.far = far_region(&load.pair, LEN, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	load.spy = (struct spy){.posted = on_posted, .proven = on_proven};
	spy_start(&load.spy, &load.pair);
	assert_non_null(load.x = stag_xfer_create(&attr));
	for (unsigned int i = 0; i < rails; i++)
		assert_int_equal(stag_xfer_add_rail(load.x, pair_qp(&load.pair, i), &number), 0);
}

static void close_load(void)
{
	assert_int_equal(stag_xfer_destroy(load.x), 0);
	spy_stop(&load.spy);
	pair_close(&load.pair);
}

static void killed_connections_lose_and_repeat_no_bytes(void **state)
{
	unsigned long wanted = scaled(2000), done = 0;

	while (done < wanted) {
		unsigned int n = wanted - done < 50 ? (unsigned int)(wanted - done) : 50;

		open_load(1 + (unsigned int)dice(3));
		kill_many(n);
		close_load();
		done += n;
	}
	print_message("%lu kills, %lu requests, %lu KiB posted again\n", done, load.requests,
		      load.again * GRAIN >> 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_connections_lose_and_repeat_no_bytes),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
