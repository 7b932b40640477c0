// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_random.c - random requests through managers of every size, over real queue pairs.
 *
 * Each byte that a request writes, remote or local, has one owner and a state: requested, posted,
 * proven. So these errors are found immediately: a byte that is posted twice or not requested, a
 * descriptor that breaks a limit, a request whose state contradicts the completions, and a proven
 * byte that has not arrived. Bytes between the ranges are checked at the end.
 */
#include "dice.h"
#include "pair.h"
#include "spy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stag/xfer.h"

#define ARENA	    (1u << 20)
#define KEYS	    3	/* regions over each arena */
#define MAX_STORIES 600 /* per round */
#define MAX_ELEMS   8
#define MAX_BUFS    4 /* per element */

/* ---- memory ---- */

enum byte { FREE, REQUESTED, POSTED, PROVEN };

struct arena {
	struct region *region;
	struct ibv_mr *mrs[KEYS];
	/* Only for the two arenas that are written to: */
	uint8_t *model;	 /* expected contents at the end */
	uint16_t *owner; /* the story that owns each byte */
	uint8_t *state;	 /* enum byte */
	uint8_t *key;	 /* index of the region whose key is used */
	bool *mangled;	 /* by siw: see siw_mangles() */
	size_t used;
	unsigned int last_key;
};

static struct arena source, sink;   /* near: source of writes, sink of reads */
static struct arena target, origin; /* far: target of writes, origin of reads */

static bool lies_in(const struct arena *a, uint64_t addr, uint64_t len)
{
	uint64_t off = addr - (uintptr_t)a->region->at;

	return off <= ARENA && len <= ARENA - off;
}

static size_t offset_in(const struct arena *a, uint64_t addr)
{
	return addr - (uintptr_t)a->region->at;
}

static void arena_open(struct arena *a, struct ibv_pd *pd, struct region *r, int access)
{
	*a = (struct arena){.region = r, .mrs = {r->mr}};
	for (int i = 1; i < KEYS; i++)
		assert_non_null(a->mrs[i] = ibv_reg_mr(pd, r->at, r->len, access));
	a->model = calloc(ARENA, 1);
	a->owner = calloc(ARENA, sizeof(*a->owner));
	a->state = calloc(ARENA, 1);
	a->key = calloc(ARENA, 1);
	a->mangled = calloc(ARENA, sizeof(*a->mangled));
	assert_true(a->model && a->owner && a->state && a->key && a->mangled);
}

static void arena_close(struct arena *a)
{
	for (int i = 1; i < KEYS; i++)
		assert_int_equal(ibv_dereg_mr(a->mrs[i]), 0);
	free(a->model);
	free(a->owner);
	free(a->state);
	free(a->key);
	free(a->mangled);
}

static void arena_clear(struct arena *a)
{
	memset(a->region->at, 0, ARENA);
	memset(a->model, 0, ARENA);
	memset(a->state, FREE, ARENA);
	memset(a->mangled, false, ARENA);
	a->used = 0;
}

static void open_arenas(struct pair *p)
{
	int sink_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	int target_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

	arena_open(&source, p->near_pd, near_region(p, ARENA), sink_access);
	arena_open(&sink, p->near_pd, near_region(p, ARENA), sink_access);
	arena_open(&target, p->far_pd, far_region(p, ARENA, target_access), target_access);
	arena_open(&origin, p->far_pd, far_region(p, ARENA, IBV_ACCESS_REMOTE_READ),
		   IBV_ACCESS_REMOTE_READ);
	dice_fill(source.region->at, ARENA);
	dice_fill(origin.region->at, ARENA);
}

static void close_arenas(void)
{
	arena_close(&source);
	arena_close(&sink);
	arena_close(&target);
	arena_close(&origin);
}

/* Picks a range to read from: where the last one ended, or anywhere. */
static uint8_t *pick_source(struct arena *a, size_t len)
{
	if (a->used + len > ARENA || one_in(2)) {
		a->used = dice(ARENA - len);
		a->last_key = (unsigned int)dice(KEYS);
	}
	a->used += len;
	return a->region->at + a->used - len;
}

/* Reserves a range to write to, for this story alone: behind the last one, or a bit further. */
static uint8_t *reserve_range(struct arena *a, size_t len, size_t story)
{
	size_t at;

	if (one_in(4))
		a->used += dice_size(64);
	if (one_in(6))
		a->last_key = (unsigned int)dice(KEYS);
	at = a->used;
	assert_true(at + len <= ARENA);
	for (size_t i = at; i < at + len; i++) {
		a->owner[i] = (uint16_t)story;
		a->state[i] = REQUESTED;
		a->key[i] = (uint8_t)a->last_key;
	}
	a->used += len;
	return a->region->at + at;
}

/* ---- stories: a request, and its expected state ---- */

struct story {
	struct stag_xfer_req req;
	struct stag_xfer_elem elems[MAX_ELEMS];
	struct stag_xfer_buf bufs[MAX_ELEMS][MAX_BUFS];
	uint64_t total;
	uint64_t posted, proven;     /* bytes, as counted by the spy */
	uint64_t wrs, wrs_proven;    /* work requests that hold bytes of it */
	uint64_t last_wr, last_seen; /* number of the last one counted, so that each counts once */
	uint64_t told;		     /* bytes reported by the progress callback */
	bool complete;
};

/* The life of one manager. */
static struct game {
	struct stag_xfer *x;
	struct stag_xfer_attr attr;
	struct stag_xfer_limits limits[STAG_XFER_WRITE + 1];
	uint32_t send_wr;
	uint64_t length_scale;
	bool inject; /* simulate full queues */
	bool siw;
	unsigned int plugged;
	struct spy spy;

	size_t wanted, submitted, completed;
	size_t last_short; /* number of the last short request that completed, + 1 */
	uint64_t alone;	   /* descriptors needed if requests were not merged */
	uint64_t elements, bytes;

	uint64_t wrs, confirms, wrs_proven;  /* as counted by the spy */
	uint64_t rail_bytes[PAIR_MAX_RAILS]; /* posted and not proven */
	struct story stories[MAX_STORIES];
} game;

static size_t number_of(const struct story *s)
{
	return (size_t)(s - game.stories);
}

static struct stag_xfer_buf random_buf(struct story *s)
{
	struct arena *a = s->req.op == STAG_XFER_READ ? &sink : &source;
	uint64_t len = one_in(8) ? 0 : dice_size(game.length_scale);
	uint8_t *at = s->req.op == STAG_XFER_READ ? reserve_range(a, len, number_of(s))
						  : pick_source(a, len);

	return (struct stag_xfer_buf){
		.addr = (uintptr_t)at, .length = len, .lkey = a->mrs[a->last_key]->lkey};
}

/* Computes the contents of the element's destination. */
static void model_element(const struct story *s, const struct stag_xfer_elem *e)
{
	uint64_t remote = e->remote_addr;

	for (uint32_t i = 0; i < e->num_bufs; i++) {
		const struct stag_xfer_buf *b = &e->bufs[i];

		if (s->req.op == STAG_XFER_READ)
			memcpy(sink.model + offset_in(&sink, b->addr),
			       origin.region->at + offset_in(&origin, remote), b->length);
		else
			memcpy(target.model + offset_in(&target, remote),
			       source.region->at + offset_in(&source, b->addr), b->length);
		remote += b->length;
	}
}

static void random_element(struct story *s, size_t number)
{
	struct arena *a = s->req.op == STAG_XFER_READ ? &origin : &target;
	struct stag_xfer_elem *e = &s->elems[number];
	uint64_t len = 0;
	uint8_t *at;

	*e = (struct stag_xfer_elem){.bufs = s->bufs[number],
				     .num_bufs = (uint32_t)(one_in(3) ? dice(MAX_BUFS + 1) : 1)};
	for (uint32_t i = 0; i < e->num_bufs; i++) {
		s->bufs[number][i] = random_buf(s);
		len += s->bufs[number][i].length;
	}
	at = s->req.op == STAG_XFER_READ ? pick_source(a, len)
					 : reserve_range(a, len, number_of(s));
	e->remote_addr = (uintptr_t)at;
	e->rkey = a->mrs[a->last_key]->rkey;
	s->total += len;
	model_element(s, e);
}

static void on_progress(struct stag_xfer_req *req, uint64_t done, uint64_t total);

static void random_story(struct story *s)
{
	memset(s, 0, sizeof(*s));
	s->last_wr = s->last_seen = UINT64_MAX;
	s->req = (struct stag_xfer_req){.op = one_in(2) ? STAG_XFER_READ : STAG_XFER_WRITE,
					.elems = s->elems,
					.num_elems = one_in(2) ? 1 : dice(MAX_ELEMS + 1),
					.progress = one_in(2) ? on_progress : NULL,
					.context = s};
	for (size_t i = 0; i < s->req.num_elems; i++)
		random_element(s, i);
}

/* ---- callbacks of the spy ---- */

typedef void (*visit)(struct story *s, uint64_t bytes, uint64_t number);

/* Moves bytes from one state to the next, and reports to their stories how many were theirs. */
static void advance(struct arena *a, uint64_t addr, uint64_t len, uint32_t key, enum byte from,
		    visit f, uint64_t number)
{
	size_t at = offset_in(a, addr), end = at + len, begin;

	assert_true(lies_in(a, addr, len));
	while (at < end) {
		for (begin = at; at < end && a->owner[at] == a->owner[begin]; at++) {
			const struct ibv_mr *mr = a->mrs[a->key[at]];

			if (a->state[at] != from)
				fail_msg("byte %zu is in state %d, not %d", at, a->state[at], from);
			if (key != (a == &sink ? mr->lkey : mr->rkey))
				fail_msg("byte %zu was requested with another key", at);
			a->state[at]++;
		}
		f(&game.stories[a->owner[begin]], at - begin, number);
	}
}

static void advance_wr(const struct spy_wr *wr, enum byte from, visit f, uint64_t number)
{
	if (wr->opcode == IBV_WR_RDMA_WRITE)
		return advance(&target, wr->remote_addr, wr->length, wr->rkey, from, f, number);
	for (int i = 0; i < wr->num_sge; i++)
		advance(&sink, wr->sge[i].addr, wr->sge[i].length, wr->sge[i].lkey, from, f,
			number);
}

static void count_posted(struct story *s, uint64_t bytes, uint64_t number)
{
	s->posted += bytes;
	s->wrs += s->last_wr != number;
	s->last_wr = number;
}

static void count_proven(struct story *s, uint64_t bytes, uint64_t number)
{
	s->proven += bytes;
	s->wrs_proven += s->last_seen != number;
	s->last_seen = number;
}

static void check_limits(const struct spy_wr *wr)
{
	const struct stag_xfer_limits *l =
		&game.limits[wr->opcode == IBV_WR_RDMA_READ ? STAG_XFER_READ : STAG_XFER_WRITE];
	uint64_t under_way = game.rail_bytes[wr->rail];

	assert_in_range(wr->length, 1, l->max_transfer);
	assert_in_range(wr->num_sge, 1, l->max_segments);
	for (int i = 0; i < wr->num_sge; i++)
		assert_int_not_equal(wr->sge[i].length, 0);
	assert_true(under_way == 0 || under_way + wr->length <= game.attr.window);
	assert_true(game.wrs - game.wrs_proven < game.attr.descriptors);
	assert_int_equal(game.plugged, 0);
}

/*
 * Linux 6.1's siw sends wrong bytes where 32 or fewer lie in two pages: with nothing but its own
 * verbs, a read of 12 bytes, one of them in the next page, returns wrong ones.
 */
static bool siw_mangles(const struct spy_wr *wr)
{
	const uint64_t page = 4096;
	uint64_t from = wr->opcode == IBV_WR_RDMA_WRITE ? wr->sge[0].addr : wr->remote_addr;

	return wr->num_sge == 1 && wr->length <= 32 && from % page + wr->length > page;
}

static void mark_mangled(const struct spy_wr *wr)
{
	if (wr->opcode == IBV_WR_RDMA_WRITE)
		memset(target.mangled + offset_in(&target, wr->remote_addr), true, wr->length);
	else
		memset(sink.mangled + offset_in(&sink, wr->sge[0].addr), true, wr->length);
}

static void on_posted(struct spy *spy, const struct spy_wr *wr)
{
	assert_true(spy_is_tagged(wr));
	assert_in_range(spy->rails[wr->rail].count, 1, game.send_wr);
	if (spy_is_confirm(wr)) {
		game.confirms++;
		return;
	}
	check_limits(wr);
	if (game.siw && siw_mangles(wr))
		mark_mangled(wr);
	advance_wr(wr, REQUESTED, count_posted, game.wrs);
	game.wrs++;
	game.rail_bytes[wr->rail] += wr->length;
}

static bool is_as_the_model(const struct arena *a, size_t at, size_t len)
{
	const uint8_t *is = a->region->at, *should = a->model;

	if (!memcmp(is + at, should + at, len))
		return true;
	for (size_t i = at; i < at + len; i++)
		if (is[i] != should[i] && !a->mangled[i])
			return false;
	return true;
}

static void expect_model(const struct arena *a, uint64_t addr, uint64_t len)
{
	size_t at = offset_in(a, addr);

	if (!is_as_the_model(a, at, len))
		fail_msg("%llu proven bytes at %zu have not arrived", (unsigned long long)len, at);
}

static void on_proven(struct spy *spy, const struct spy_wr *wr)
{
	if (spy_is_confirm(wr))
		return;
	advance_wr(wr, POSTED, count_proven, game.wrs_proven);
	game.wrs_proven++;
	game.rail_bytes[wr->rail] -= wr->length;
	if (wr->opcode == IBV_WR_RDMA_WRITE) {
		if (!spy->write_completion_proves)
			expect_model(&target, wr->remote_addr, wr->length);
		return;
	}
	for (int i = 0; i < wr->num_sge; i++)
		expect_model(&sink, wr->sge[i].addr, wr->sge[i].length);
}

static void on_failed(struct spy *spy, const struct spy_wr *wr, enum ibv_wc_status status)
{
	fail_msg("a work request failed: %s", ibv_wc_status_str(status));
}

static int on_refuse(struct spy *spy, int count, int *err)
{
	*err = one_in(2) ? ENOMEM : EAGAIN;
	return game.inject && one_in(3) ? (int)dice((uint64_t)count) : count;
}

/* ---- the state between polls ---- */

static uint64_t bytes_before(const struct stag_xfer_req *req, const struct stag_xfer_cursor *c)
{
	uint64_t n = 0, offset = 0;

	for (size_t i = 0; i < c->elem; i++)
		for (uint32_t j = 0; j < req->elems[i].num_bufs; j++)
			n += req->elems[i].bufs[j].length;
	if (c->elem == req->num_elems)
		return n;
	for (uint32_t j = 0; j < c->buf; j++)
		offset += req->elems[c->elem].bufs[j].length;
	assert_int_equal(offset + c->buf_offset, c->offset);
	return n + c->offset;
}

static void expect_state(const struct story *s)
{
	const struct stag_xfer_req *r = &s->req;
	uint64_t formed = bytes_before(r, &r->cursor);

	assert_int_equal(r->bytes_total, s->total);
	assert_int_equal(r->bytes_done, s->proven);
	assert_int_equal(r->transfers_done, s->wrs_proven);
	if (game.inject) { /* some are formed that the queue did not accept */
		assert_true(formed >= s->posted);
		assert_true(r->transfers >= s->wrs);
	} else {
		assert_int_equal(formed, s->posted);
		assert_int_equal(r->transfers, s->wrs);
	}
}

static void on_progress(struct stag_xfer_req *req, uint64_t done, uint64_t total)
{
	struct story *s = req->context;

	assert_int_equal(total, s->total);
	assert_true(done > s->told && done <= s->proven);
	s->told = done;
}

static bool merges(void)
{
	return !(game.attr.flags & STAG_XFER_NO_MERGE);
}

/* A request alone takes its minimum; one that begins in another's descriptor may need one more. */
static void expect_minimum(const struct story *s)
{
	uint64_t alone = stag_xfer_count(&game.limits[s->req.op], &s->req, NULL);

	game.alone += alone;
	if (merges())
		assert_true(s->req.transfers <= alone + (alone > 0));
	else
		assert_int_equal(s->req.transfers, alone);
}

static void expect_order(const struct story *s)
{
	if (game.spy.rails[1].qp || s->total > game.attr.turn)
		return;
	assert_true(number_of(s) >= game.last_short);
	game.last_short = number_of(s) + 1;
}

static void expect_complete(struct story *s)
{
	assert_false(s->complete);
	s->complete = true;
	assert_int_equal(s->req.error, 0);
	assert_int_equal(s->req.status, IBV_WC_SUCCESS);
	expect_state(s);
	assert_int_equal(s->req.bytes_done, s->total);
	assert_true(!s->req.progress || s->told == s->total);
	expect_order(s);
	expect_minimum(s);
	game.completed++;
	game.elements += s->req.num_elems;
	game.bytes += s->total;
}

/* ---- running requests ---- */

/* Returns whether another story fits in the arenas, whatever its random size. */
static bool has_room(void)
{
	size_t most = (game.length_scale * MAX_BUFS + 64 * (MAX_BUFS + 1)) * MAX_ELEMS;

	return sink.used + most <= ARENA && target.used + most <= ARENA;
}

static void submit(void)
{
	struct story *s = &game.stories[game.submitted];

	if (!has_room())
		game.wanted = game.submitted;
	if (game.submitted == game.wanted)
		return;
	random_story(s);
	game.submitted++;
	assert_int_equal(stag_xfer_submit(game.x, &s->req), 0);
	assert_string_equal(stag_xfer_error(game.x), "");
}

static void submit_some(void)
{
	uint64_t count = dice_size(64);
	bool plug = one_in(2);

	if (plug) {
		game.plugged++;
		stag_xfer_plug(game.x);
	}
	while (count--)
		submit();
	if (plug) {
		game.plugged--;
		stag_xfer_unplug(game.x);
	}
}

/* Polls completions as a caller does, and feeds them to the manager. */
static void feed_completions(struct pair *p)
{
	struct ibv_wc wc;

	for (unsigned int i = 0; i < p->wish.rails; i++)
		if (ibv_poll_cq(p->rails[i].cq, 1, &wc) == 1)
			assert_true(stag_xfer_take(game.x, &wc));
}

static void poll_some(struct pair *p)
{
	struct stag_xfer_req *done[16];
	int max = (int)dice_size(16), n;

	if (one_in(16))
		feed_completions(p);
	if (game.submitted == game.completed)
		assert_int_equal(stag_xfer_poll(game.x, done, max), 0);
	n = one_in(16) ? stag_xfer_wait(game.x, done, max, (int)dice(3))
		       : stag_xfer_poll(game.x, done, max);
	assert_in_range(n, 0, max);
	for (int i = 0; i < n; i++)
		expect_complete(done[i]->context);
	for (int i = 0; i < 4 && game.submitted; i++)
		expect_state(&game.stories[dice(game.submitted)]);
	pair_serve(p);
}

static void expect_counters(void)
{
	struct stag_xfer_counters c;

	assert_int_equal(stag_xfer_query_counters(game.x, &c, sizeof(c)), 0);
	assert_int_equal(c.requests, game.completed);
	assert_int_equal(c.elements, game.elements);
	assert_int_equal(c.bytes, game.bytes);
	assert_int_equal(c.descriptors, game.wrs);
	assert_int_equal(c.confirms, game.confirms);
	assert_int_equal(c.failed + c.canceled + c.reposted + c.losses, 0);
	assert_true(merges() ? game.wrs <= game.alone : game.wrs == game.alone && !c.merged);
}

static bool is_all_proven(const struct arena *a)
{
	for (size_t i = 0; i < a->used; i++)
		if (a->state[i] != FREE && a->state[i] != PROVEN)
			return false;
	return true;
}

static void expect_bytes(struct pair *p)
{
	if (game.spy.write_completion_proves)
		await(is_as_the_model(&target, 0, ARENA));
	assert_true(is_as_the_model(&target, 0, ARENA));
	assert_true(is_as_the_model(&sink, 0, ARENA));
	assert_true(is_all_proven(&target) && is_all_proven(&sink));
	check_canaries(p);
}

/* ---- a round: a manager, from creation to destruction ---- */

static void random_attr(struct stag_xfer_attr *a)
{
	*a = (struct stag_xfer_attr){.descriptors = (uint32_t)dice_size(4096),
				     .max_transfer = (uint32_t)dice_size(1 << 20),
				     .window = one_in(3) ? dice_size(1 << 20) : 1 << 20,
				     .turn = dice_size(1 << 20)};
	if (one_in(3))
		a->max_segments = (uint32_t)dice_size(8);
	if (one_in(4))
		a->peer_max_transfer = (uint32_t)dice_size(1 << 20);
	if (one_in(3))
		a->flags |= STAG_XFER_NO_MERGE;
	if (one_in(10))
		a->flags |= STAG_XFER_UNCONFIRMED;
}

static void expect_limits(const struct pair *p)
{
	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		struct stag_xfer_limits *l = &game.limits[op];

		assert_int_equal(stag_xfer_query_limits(game.x, op, l), 0);
		assert_in_range(l->max_transfer, 1, game.attr.max_transfer);
		assert_in_range(l->max_segments, 1, p->wish.sge);
		if (game.attr.peer_max_transfer)
			assert_in_range(l->max_transfer, 1, game.attr.peer_max_transfer);
		if (game.attr.max_segments)
			assert_in_range(l->max_segments, 1, game.attr.max_segments);
	}
}

/* Returns the queue's depth: a device may give more than was requested. */
static uint32_t depth_of(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;

	assert_int_equal(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init), 0);
	return attr.cap.max_send_wr;
}

static void begin_round(struct pair *p)
{
	unsigned int rails = 1 + (unsigned int)dice(p->wish.rails), number;

	memset(&game, 0, offsetof(struct game, stories));
	arena_clear(&sink);
	arena_clear(&target);
	game.siw = pair_is_siw(p);
	random_attr(&game.attr);
	/* Checking the manager's invariants at every call is slow. */
	if (one_in(16))
		setenv("STAG_XFER_CHECK", "1", 1);
	else
		unsetenv("STAG_XFER_CHECK");
	assert_non_null(game.x = stag_xfer_create(&game.attr));
	for (unsigned int i = 0; i < rails; i++) {
		assert_int_equal(stag_xfer_add_rail(game.x, pair_qp(p, i), &number), 0);
		assert_int_equal(number, i);
	}
	game.send_wr = depth_of(pair_qp(p, 0));
	game.inject = one_in(4);
	expect_limits(p);
	game.length_scale = game.limits[STAG_XFER_WRITE].max_transfer * 8ull;
	if (game.length_scale > 1024)
		game.length_scale = dice_size(one_in(10) ? 16384 : 1024);
	game.spy = (struct spy){.posted = on_posted,
				.proven = on_proven,
				.failed = on_failed,
				.refuse = on_refuse,
				.write_completion_proves = game.attr.flags & STAG_XFER_UNCONFIRMED};
	spy_start(&game.spy, p);
	for (unsigned int i = rails; i < p->wish.rails; i++)
		spy_rebind(&game.spy, i, NULL);
}

static size_t run_round(struct pair *p, size_t wanted)
{
	size_t most_at_once = one_in(3) ? dice_size(MAX_STORIES) : MAX_STORIES;
	uint64_t until = deadline();

	begin_round(p);
	game.wanted = wanted < MAX_STORIES ? wanted : MAX_STORIES;
	while (game.completed < game.wanted) {
		if (game.submitted < game.wanted && game.submitted - game.completed < most_at_once)
			submit_some();
		if (one_in(64) && game.submitted > game.completed)
			assert_int_equal(stag_xfer_destroy(game.x), EBUSY);
		poll_some(p);
		if (too_late(until))
			fail_msg("%zu of %zu requests complete", game.completed, game.submitted);
	}
	expect_bytes(p);
	expect_counters();
	assert_int_equal(stag_xfer_destroy(game.x), 0);
	spy_stop(&game.spy);
	return game.completed;
}

static void random_pair(struct pair *p)
{
	struct pair_wish wish = {.rails = 1 + (unsigned int)dice(3),
				 .send_wr = one_in(2) ? 8 + (uint32_t)dice(60) : 1024,
				 .sge = 1 + (uint32_t)dice(6),
				 .reads = 1 + (uint8_t)dice(16),
				 .one_cq = one_in(2),
				 .channel = one_in(2),
				 .sig_all = one_in(4)};

	pair_open(p, &wish);
	open_arenas(p);
}

static void random_requests_move_exactly_their_bytes(void **state)
{
	static struct pair p;
	size_t wanted = scaled(200000), done = 0;
	unsigned int rounds = 0;

	while (done < wanted) {
		if (rounds % 20 == 0)
			random_pair(&p);
		done += run_round(&p, wanted - done);
		if (++rounds % 20 == 0 || done >= wanted) {
			close_arenas();
			pair_close(&p);
		}
	}
	print_message("%zu requests in %u rounds\n", done, rounds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_requests_move_exactly_their_bytes),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
