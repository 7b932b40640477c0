// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_guard.c - regions that close when a word changes: before a message, between two segments, in
 * the middle of one; for each kind of access.
 *
 * After the word has changed, the memory has a new owner, which has written to it: no byte of the
 * new contents may change, and none may be sent. Afterwards no hazard is set.
 */
#include "raw_peer.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <stag/stagdv.h>

#include "base/clock.h"

#define LEN	   4096
#define BIG	   60000
#define CELLS	   4
#define HAZARD	   77
#define SINK_STAG  0x01020304
#define SINK_TO	   0x1000
#define ALL_REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define ALL_ACCESS (ALL_REMOTE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)

static const uint8_t junk[BIG] = {[0 ... BIG - 1] = 0xee};

/* ---- a guard ---- */

struct guard_lock {
	uint64_t word;
	uint64_t cells[CELLS];
};

static struct stagdv_guard guard_of(struct guard_lock *l)
{
	return (struct stagdv_guard){.word = &l->word,
				     .expected = 5,
				     .hazards = l->cells,
				     .n_hazards = CELLS,
				     .hazard = HAZARD};
}

/* Returns a region of s guarded by g; like all regions here it lies between canaries. */
static struct region *guarded_by(struct side *s, size_t len, const struct stagdv_guard *g)
{
	struct region *r = own_region(s, len);

	assert_int_equal(ibv_dereg_mr(r->mr), 0);
	r->mr = stagdv_reg_guarded_mr(s->pd, r->at, len, ALL_ACCESS, g);
	assert_non_null(r->mr);
	return r;
}

static struct region *guarded(struct side *s, size_t len, struct guard_lock *l)
{
	struct stagdv_guard g = guard_of(l);

	*l = (struct guard_lock){.word = 5};
	return guarded_by(s, len, &g);
}

static bool no_hazard(const struct guard_lock *l)
{
	for (int i = 0; i < CELLS; i++)
		if (__atomic_load_n(&l->cells[i], __ATOMIC_ACQUIRE))
			return false;
	return true;
}

/* Changes the word; once no access is in flight the memory is the new owner's. */
static void give_away(struct guard_lock *l, struct region *r)
{
	__atomic_fetch_add(&l->word, 1, __ATOMIC_SEQ_CST);
	await(no_hazard(l));
	fill(r->at, r->len, 99);
}

static void expect_untouched(struct guard_lock *l, const struct region *r)
{
	expect_filled(r->at, r->len, 99);
	assert_true(no_hazard(l));
}

/* ---- a peer, and a region advertised to it ---- */

static struct region *open_guarded(struct scene *s, void **state, size_t len, struct guard_lock *l)
{
	struct scene_wish w = {.peer.extensions = true};

	*s = (struct scene){.others = *state};
	scene_open(s, &w);
	post_receive(&s->us, own_region(&s->us, 64), 0, 64);
	return guarded(&s->us, len, l);
}

static uint64_t addr(const struct region *r)
{
	return (uintptr_t)r->at;
}

static void end_well(struct scene *s)
{
	raw_finish(&s->peer);
	expect_closed(s);
	expect_no_async(&s->us);
	scene_close(s);
}

/* ---- writes ---- */

static void write_lands_while_the_word_is_as_expected(void **state)
{
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, BIG, &l);

	raw_write(&s.peer, r->mr->rkey, addr(r), junk, BIG);
	raw_send(&s.peer, junk, 1);
	expect_received(&s.us, 1);
	assert_memory_equal(r->at, junk, BIG);
	assert_true(no_hazard(&l));
	end_well(&s);
}

static void write_after_the_change_is_refused(void **state)
{
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, LEN, &l);

	give_away(&l, r);
	raw_write(&s.peer, r->mr->rkey, addr(r), junk, 64);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_untouched(&l, r);
	scene_close(&s);
}

static void large_write_after_the_change_is_refused(void **state)
{
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, BIG, &l);

	give_away(&l, r);
	raw_write(&s.peer, r->mr->rkey, addr(r), junk, BIG);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_untouched(&l, r);
	scene_close(&s);
}

static void second_segment_after_the_change_is_refused(void **state)
{
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, LEN, &l);
	struct ddp_hdr h = write_hdr(r->mr->rkey, addr(r));

	h.last = false;
	raw_segment(&s.peer, &h, junk, 100);
	await(__atomic_load_n(r->at + 99, __ATOMIC_ACQUIRE) == junk[0]);
	give_away(&l, r);
	h.to += 100;
	h.last = true;
	raw_segment(&s.peer, &h, junk, 100);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_untouched(&l, r);
	scene_close(&s);
}

/*
 * Half of an FPDU has come when the word changes: that half was placed in time, the rest is not
 * placed.
 */
static void change_within_a_write_segment_stops_placement(void **state)
{
	static uint8_t raw[2 * FPDU_MAX_LEN];
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, BIG, &l);
	struct ddp_hdr h = write_hdr(r->mr->rkey, addr(r));
	size_t n = raw_build(&s.peer, &h, junk, BIG, raw);
	struct stagdv_counters c;

	raw_bytes(&s.peer, raw, n / 2);
	await(!stagdv_query_qp_counters(s.us.qp, &c, sizeof(c)) && c.rx_bytes >= n / 2);
	await(no_hazard(&l)); /* the hazard is not held while the adapter waits for the socket */
	give_away(&l, r);
	raw_bytes(&s.peer, raw + n / 2, n - n / 2);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_untouched(&l, r);
	scene_close(&s);
}

/* ---- reads ---- */

static struct rdmap_read_req read_of(const struct region *r, uint32_t size)
{
	return (struct rdmap_read_req){.sink_stag = SINK_STAG,
				       .sink_to = SINK_TO,
				       .size = size,
				       .src_stag = r->mr->rkey,
				       .src_to = addr(r)};
}

static void read_is_answered_while_the_word_is_as_expected(void **state)
{
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, BIG, &l);
	struct rdmap_read_req q = read_of(r, BIG);
	struct raw_fpdu *f = malloc(sizeof(*f));
	size_t off = 0;

	fill(r->at, BIG, 3);
	raw_read(&s.peer, &q);
	do {
		raw_take(&s.peer, f);
		assert_in_range(off + f->len, 0, BIG);
		assert_memory_equal(f->payload, r->at + off, f->len);
		off += f->len;
	} while (!f->h.last);
	assert_int_equal(off, BIG);
	await(no_hazard(&l));
	free(f);
	end_well(&s);
}

static void read_after_the_change_is_refused(void **state)
{
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, LEN, &l);
	struct rdmap_read_req q = read_of(r, 64);

	give_away(&l, r);
	raw_read(&s.peer, &q);
	expect_refused(&s, FAULT_RDMAP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_untouched(&l, r);
	scene_close(&s);
}

/* Returns whether any of the new owner's bytes are in the rest of the stream. */
static bool stream_has_new_bytes(struct scene *s, const struct region *r)
{
	static uint8_t in[1 << 16];
	size_t kept = 0;
	bool found = false;
	ssize_t n;

	while ((n = recv(s->peer.fd, in + kept, sizeof(in) - kept, 0)) > 0) {
		size_t have = kept + (size_t)n;

		for (size_t at = 0; at + 32 <= r->len && at < 4096; at += 32)
			found = found || memmem(in, have, r->at + at, 32);
		kept = have < 64 ? have : 64;
		memmove(in, in + have - kept, kept);
	}
	return found;
}

/* The peer reads slowly; the word changes while the response waits for room. */
static void change_within_a_read_response_stops_it(void **state)
{
	const size_t much = 32u << 20;
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, much, &l);
	struct rdmap_read_req q = read_of(r, (uint32_t)much);
	struct stagdv_counters c = {0};

	raw_read(&s.peer, &q);
	await(!stagdv_query_qp_counters(s.us.qp, &c, sizeof(c)) && c.tx_bytes > 65536);
	await(no_hazard(&l));
	__atomic_fetch_add(&l.word, 1, __ATOMIC_SEQ_CST);
	await(no_hazard(&l));
	for (size_t i = 0; i < much; i += 4096) /* a mark on each page */
		fill(r->at + i, 4096, 99);
	assert_false(stream_has_new_bytes(&s, r));
	expect_disconnected(&s.us);
	expect_state(&s.us, IBV_QPS_ERR);
	expect_flushed(&s.us);
	assert_true(no_hazard(&l));
	ping(s.others);
	scene_close(&s);
}

/* ---- atomics ---- */

static void atomic_after_the_change_is_refused(void **state)
{
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, LEN, &l);
	struct rdmap_atomic_req q = {.op = RDMAP_FETCH_ADD,
				     .id = 1,
				     .stag = r->mr->rkey,
				     .to = addr(r),
				     .data = 1,
				     .compare_mask = UINT64_MAX};
	struct raw_fpdu *f = malloc(sizeof(*f));
	uint64_t value;

	raw_atomic(&s.peer, &q);
	raw_take(&s.peer, f);
	assert_int_equal(f->h.opcode, RDMAP_ATOMIC_RESP);
	memcpy(&value, r->at, sizeof(value));
	assert_int_equal(value, 1);
	give_away(&l, r);
	raw_atomic(&s.peer, &q);
	expect_refused(&s, FAULT_RDMAP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_untouched(&l, r);
	free(f);
	scene_close(&s);
}

/* ---- windows ---- */

static struct ibv_mw *window_on(struct side *side, struct region *r)
{
	struct ibv_mw *mw = ibv_alloc_mw(side->pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.wr_id = note_posted(side, false),
				   .send_flags = IBV_SEND_SIGNALED,
				   .bind_info = {.mr = r->mr,
						 .addr = addr(r),
						 .length = r->len,
						 .mw_access_flags = ALL_REMOTE}};

	assert_non_null(mw);
	assert_int_equal(ibv_bind_mw(side->qp, mw, &bind), 0);
	expect_sent(side, bind.wr_id);
	return mw;
}

static void write_through_a_window_after_the_change_is_refused(void **state)
{
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, LEN, &l);
	struct ibv_mw *mw = window_on(&s.us, r);

	raw_write(&s.peer, mw->rkey, addr(r), junk, LEN);
	raw_send(&s.peer, junk, 1);
	expect_received(&s.us, 1);
	assert_memory_equal(r->at, junk, LEN);
	post_receive(&s.us, NULL, 0, 0);
	give_away(&l, r);
	raw_write(&s.peer, mw->rkey, addr(r), junk, 64);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_untouched(&l, r);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	scene_close(&s);
}

/* ---- local accesses ---- */

static void expect_local_fault(struct scene *s, struct guard_lock *l, const struct region *r)
{
	expect_hangup_at_last(&s->peer);
	expect_broken(s, IBV_EVENT_QP_FATAL);
	expect_untouched(l, r);
	scene_close(s);
}

static void receive_into_guarded_memory_after_the_change_fails(void **state)
{
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, LEN, &l);
	uint64_t id;

	raw_send(&s.peer, junk, 1);
	expect_received(&s.us, 1);
	id = post_receive(&s.us, r, 0, LEN);
	give_away(&l, r);
	raw_send(&s.peer, junk, LEN);
	expect_failed(&s.us, id, IBV_WC_LOC_PROT_ERR);
	expect_local_fault(&s, &l, r);
}

static void send_from_guarded_memory_after_the_change_fails(void **state)
{
	for (size_t len = 64; len <= LEN;
	     len += LEN - 64) { /* a length that is copied, and one that is gathered */
		struct guard_lock l;
		struct scene s;
		struct region *r = open_guarded(&s, state, LEN, &l);

		give_away(&l, r);
		expect_failed(&s.us, post_send(&s.us, r, 0, len), IBV_WC_LOC_PROT_ERR);
		expect_local_fault(&s, &l, r);
	}
}

static void read_into_guarded_memory_after_the_change_fails(void **state)
{
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, LEN, &l);
	struct region remote = {.at = (uint8_t *)0x5000, .len = LEN, .mr = r->mr};
	uint64_t id = post_read(&s.us, r, 0, LEN, &remote, 0);
	struct rdmap_read_req q;
	struct ddp_hdr h;

	raw_take_read(&s.peer, &q);
	give_away(&l, r);
	h = response_hdr(q.sink_stag, q.sink_to);
	raw_segment(&s.peer, &h, junk, LEN);
	expect_failed(&s.us, id, IBV_WC_LOC_PROT_ERR);
	expect_local_fault(&s, &l, r);
}

/* ---- hazards ---- */

/* A message from more guarded regions than there are cells is sent piece by piece. */
static void message_of_more_pieces_than_cells_is_sent(void **state)
{
	struct guard_lock l = {.word = 5};
	struct stagdv_guard g = guard_of(&l);
	struct pair p;
	struct region *from[4], *in, *lent;
	struct ibv_sge sge[4];
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 4};

	g.n_hazards = 1;
	pair_open(&p, NULL, NULL);
	in = guarded_by(&p.b, 4 * BIG, &g);
	lent = guarded_by(&p.b, 4 * BIG, &g);
	for (unsigned i = 0; i < 4; i++) {
		from[i] = guarded_by(&p.a, BIG, &g);
		fill(from[i]->at, BIG, i);
		sge[i] = piece(from[i], 0, BIG);
	}
	for (int turn = 0; turn < 10; turn++) {
		uint64_t id = post_receive(&p.b, in, 0, 4 * BIG), sent, written;

		wr.wr_id = 0;
		wr.opcode = IBV_WR_RDMA_WRITE;
		wr.wr.rdma.remote_addr = addr(lent);
		wr.wr.rdma.rkey = lent->mr->rkey;
		written = post(&p.a, &wr);
		wr.wr_id = 0;
		wr.opcode = IBV_WR_SEND;
		sent = post(&p.a, &wr);
		expect_received(&p.b, id);
		expect_sent(&p.a, written);
		expect_sent(&p.a, sent);
		for (unsigned i = 0; i < 4; i++) {
			expect_filled(in->at + i * BIG, BIG, i);
			expect_filled(lent->at + i * BIG, BIG, i);
		}
		memset(in->at, 0, in->len);
		expect_sent(&p.a, post_read(&p.a, from[0], 0, BIG, lent, 0));
		expect_filled(from[0]->at, BIG, 0);
	}
	assert_true(no_hazard(&l));
	pair_close(&p);
}

struct holder {
	struct guard_lock *lock;
	const struct region *r;
	bool early; /* a byte was placed while no cell was free */
};

static void *let_go_later(void *arg)
{
	struct holder *h = arg;

	uint64_t until = clock_ns() + 20 * NS_PER_MS;

	while (clock_ns() < until) {
		sched_yield();
		h->early |= __atomic_load_n(h->r->at + 63, __ATOMIC_ACQUIRE) != 0;
	}
	__atomic_store_n(&h->lock->cells[2], 0, __ATOMIC_RELEASE);
	return NULL;
}

/* If all cells are in use, an access waits for a free one instead of going without. */
static void access_waits_for_a_free_cell(void **state)
{
	struct guard_lock l;
	struct scene s;
	struct region *r = open_guarded(&s, state, LEN, &l);
	struct holder h = {.lock = &l, .r = r};
	pthread_t thread;

	for (int i = 0; i < CELLS; i++)
		l.cells[i] = 1000;
	raw_write(&s.peer, r->mr->rkey, addr(r), junk, 64);
	raw_send(&s.peer, junk, 1);
	assert_int_equal(pthread_create(&thread, NULL, let_go_later, &h), 0);
	expect_received(&s.us, 1);
	pthread_join(thread, NULL);
	assert_false(h.early);
	assert_memory_equal(r->at, junk, 64);
	assert_int_equal(l.cells[2], 0);
	assert_int_equal(l.cells[1], 1000);
	end_well(&s);
}

static void guard_without_hazards_compares_the_word(void **state)
{
	uint64_t word = 5;
	struct stagdv_guard g = {.word = &word, .expected = 5};
	struct scene s = {.others = *state};
	struct region *r;

	scene_open(&s, NULL);
	post_receive(&s.us, NULL, 0, 0);
	r = guarded_by(&s.us, LEN, &g);
	raw_write(&s.peer, r->mr->rkey, addr(r), junk, 64);
	await(__atomic_load_n(r->at + 63, __ATOMIC_ACQUIRE) == junk[0]);
	__atomic_store_n(&word, 6, __ATOMIC_SEQ_CST);
	raw_write(&s.peer, r->mr->rkey, addr(r) + 64, junk, 64);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at + 64, LEN - 64);
	scene_close(&s);
}

/* ---- invalid guards ---- */

static void invalid_guard_is_refused(void **state)
{
	struct pair *others = *state;
	struct guard_lock l = {.word = 5};
	struct stagdv_guard good = guard_of(&l), bad[5] = {good, good, good, good, good};

	bad[0].comp_mask = 1;
	bad[1].word = NULL;
	bad[2].word = (const uint64_t *)((uintptr_t)&l.word + 4);
	bad[3].n_hazards = 0;
	bad[4].hazard = 0;
	for (int i = 0; i < 5; i++) {
		errno = 0;
		assert_null(stagdv_reg_guarded_mr(others->a.pd, &l, sizeof(l), 0, &bad[i]));
		assert_int_equal(errno, EINVAL);
	}
}

/*
 * A guarded region is neither re-registered nor used in a fast region: both would lose the guard.
 */
static void guarded_memory_cannot_be_registered_without_its_guard(void **state)
{
	struct guard_lock l;
	struct pair p;
	struct region *r;
	struct ibv_mr *fast;
	struct ibv_sge sge;
	struct stagdv_fast_reg wr = {.sg_list = &sge, .num_sge = 1, .access = ALL_REMOTE};

	pair_open(&p, NULL, NULL);
	r = guarded(&p.a, LEN, &l);
	assert_int_not_equal(ibv_rereg_mr(r->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
	assert_int_equal(errno, EINVAL);
	fast = stagdv_alloc_fast_mr(p.a.pd, 1);
	sge = piece(r, 0, LEN);
	wr.mr = fast;
	wr.key = ibv_inc_rkey(fast->rkey);
	wr.access = ALL_REMOTE | IBV_ACCESS_LOCAL_WRITE;
	wr.send_flags = IBV_SEND_SIGNALED;
	wr.wr_id = note_posted(&p.a, false);
	assert_int_equal(stagdv_post_fast_reg(p.a.qp, &wr), 0);
	expect_failed(&p.a, wr.wr_id, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(fast), 0);
	assert_true(no_hazard(&l));
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(write_lands_while_the_word_is_as_expected),
		cmocka_unit_test(write_after_the_change_is_refused),
		cmocka_unit_test(large_write_after_the_change_is_refused),
		cmocka_unit_test(second_segment_after_the_change_is_refused),
		cmocka_unit_test(change_within_a_write_segment_stops_placement),
		cmocka_unit_test(read_is_answered_while_the_word_is_as_expected),
		cmocka_unit_test(read_after_the_change_is_refused),
		cmocka_unit_test(change_within_a_read_response_stops_it),
		cmocka_unit_test(atomic_after_the_change_is_refused),
		cmocka_unit_test(write_through_a_window_after_the_change_is_refused),
		cmocka_unit_test(receive_into_guarded_memory_after_the_change_fails),
		cmocka_unit_test(send_from_guarded_memory_after_the_change_fails),
		cmocka_unit_test(read_into_guarded_memory_after_the_change_fails),
		cmocka_unit_test(message_of_more_pieces_than_cells_is_sent),
		cmocka_unit_test(access_waits_for_a_free_cell),
		cmocka_unit_test(guard_without_hazards_compares_the_word),
		cmocka_unit_test(invalid_guard_is_refused),
		cmocka_unit_test(guarded_memory_cannot_be_registered_without_its_guard),
	};

	return cmocka_run_group_tests_name("guarded regions", tests, others_open, others_close);
}
