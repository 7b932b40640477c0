// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_faults_tagged.c - writes that a peer has no right to.
 *
 * The peer is a bare socket. Whatever it sends, the adapter answers with the Terminate that the
 * RFCs require, the queue pair enters the error state, no byte is placed outside of the target, and
 * other connections are not disturbed.
 */
#include "raw_peer.h"

#define LEN 4096

static const uint8_t junk[LEN] = {[0 ... LEN - 1] = 0xee};

/* Opens a side with a region advertised for writing, and requests that wait to be flushed. */
static struct region *open_with_region(struct scene *s, void **state, int access)
{
	struct region *lent;

	*s = (struct scene){.others = *state};
	scene_open(s, NULL);
	lent = lend_region(&s->us, LEN, access);
	post_receive(&s->us, own_region(&s->us, 64), 0, 64);
	post_receive(&s->us, own_region(&s->us, 64), 0, 64);
	return lent;
}

static uint64_t addr(const struct region *r)
{
	return (uintptr_t)r->at;
}

static void valid_write_lands(void **state)
{
	struct scene s;
	struct region *r = open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);

	raw_write(&s.peer, r->mr->rkey, addr(r), junk, LEN);
	raw_send(&s.peer, junk,
		 1); /* when this send arrives, the write before it has been placed */
	expect_received(&s.us, 1);
	assert_memory_equal(r->at, junk, LEN);
	raw_finish(&s.peer);
	expect_closed(&s);
	expect_no_async(&s.us);
	scene_close(&s);
}

static void write_to_an_unknown_tag_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);

	raw_write(&s.peer, r->mr->rkey ^ 0x5a5a5a00, addr(r), junk, 64);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void write_with_the_wrong_key_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);

	raw_write(&s.peer, r->mr->rkey ^ 1, addr(r), junk, 64);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void write_to_tag_zero_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);

	raw_write(&s.peer, 0, addr(r), junk, 64);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void write_to_a_deregistered_region_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);
	uint32_t rkey = r->mr->rkey;

	assert_int_equal(ibv_dereg_mr(r->mr), 0);
	r->mr = NULL;
	raw_write(&s.peer, rkey, addr(r), junk, 64);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void write_past_the_end_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);

	raw_write(&s.peer, r->mr->rkey, addr(r) + LEN - 8, junk, 9);
	expect_refused(&s, FAULT_DDP_BASE_BOUNDS, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void write_before_the_beginning_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);

	raw_write(&s.peer, r->mr->rkey, addr(r) - 1, junk, 8);
	expect_refused(&s, FAULT_DDP_BASE_BOUNDS, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void write_larger_than_the_region_is_refused(void **state)
{
	static const uint8_t much[60000];
	struct scene s;
	struct region *r = open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);

	raw_write(&s.peer, r->mr->rkey, addr(r), much, sizeof(much));
	expect_refused(&s, FAULT_DDP_BASE_BOUNDS, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

/* The first segment is good, and stays; the second is refused. */
static void second_segment_past_the_end_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);
	struct ddp_hdr h = write_hdr(r->mr->rkey, addr(r) + LEN - 100);

	h.last = false;
	raw_segment(&s.peer, &h, junk, 100);
	h.to += 100;
	h.last = true;
	raw_segment(&s.peer, &h, junk, 100);
	expect_refused(&s, FAULT_DDP_BASE_BOUNDS, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN - 100);
	assert_memory_equal(r->at + LEN - 100, junk, 100);
	scene_close(&s);
}

static void write_that_wraps_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);

	raw_write(&s.peer, r->mr->rkey, UINT64_MAX - 15, junk, 64);
	expect_refused(&s, FAULT_DDP_TO_WRAP, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

/* DDP has no error code for access rights; RDMAP has one. */
static void write_without_the_right_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_with_region(
		&s, state,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);

	raw_write(&s.peer, r->mr->rkey, addr(r), junk, 64);
	expect_refused(&s, FAULT_RDMAP_ACCESS, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void write_to_another_protection_domain_is_refused(void **state)
{
	struct scene s;
	struct pair *others = *state;
	struct region *theirs;

	open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);
	theirs = lend_region(&others->b, LEN, IBV_ACCESS_REMOTE_WRITE);
	raw_write(&s.peer, theirs->mr->rkey, addr(theirs), junk, 64);
	expect_refused(&s, FAULT_DDP_STAG_STREAM, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(theirs->at, LEN);
	drop_region(&others->b, theirs);
	scene_close(&s);
}

/* Returns a type-2 window over all of r, bound by the queue pair of side. */
static struct ibv_mw *bind_window(struct side *side, struct region *r, int access)
{
	struct ibv_mw *mw = ibv_alloc_mw(side->pd, IBV_MW_TYPE_2);
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};

	assert_non_null(mw);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = r->mr,
							 .addr = addr(r),
							 .length = r->len,
							 .mw_access_flags = (unsigned)access};
	expect_sent(side, post(side, &wr));
	mw->rkey = wr.bind_mw.rkey;
	return mw;
}

static void write_to_a_window_of_another_queue_pair_is_refused(void **state)
{
	struct pair *others = *state;
	struct scene s = {.others = others};
	struct scene_wish wish = {.us.pd = others->b.pd};
	struct region *r =
		lend_region(&others->b, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = bind_window(&others->b, r, IBV_ACCESS_REMOTE_WRITE);

	scene_open(&s, &wish); /* the same domain, but not the same queue pair */
	raw_write(&s.peer, mw->rkey, addr(r), junk, 64);
	expect_refused(&s, FAULT_DDP_STAG_STREAM, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	drop_region(&others->b, r);
}

static void write_past_the_end_of_a_window_is_refused(void **state)
{
	struct scene s = {.others = *state};
	struct region *r;
	struct ibv_mw *mw;
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};

	scene_open(&s, NULL);
	r = lend_region(&s.us, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(s.us.pd, IBV_MW_TYPE_2);
	assert_non_null(mw);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){.mr = r->mr,
					  .addr = addr(r) + 1024,
					  .length = 1024,
					  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
	expect_sent(&s.us, post(&s.us, &wr));
	raw_write(&s.peer, wr.bind_mw.rkey, addr(r) + 2047, junk, 2);
	expect_refused(&s, FAULT_DDP_BASE_BOUNDS, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	scene_close(&s);
}

static void write_to_a_window_without_the_right_is_refused(void **state)
{
	struct scene s = {.others = *state};
	struct region *r;
	struct ibv_mw *mw;

	scene_open(&s, NULL);
	r = lend_region(&s.us, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
	mw = bind_window(&s.us, r, IBV_ACCESS_REMOTE_READ);
	raw_write(&s.peer, mw->rkey, addr(r), junk, 64);
	expect_refused(&s, FAULT_RDMAP_ACCESS, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	scene_close(&s);
}

static void write_to_an_invalidated_window_is_refused(void **state)
{
	struct scene s = {.others = *state};
	struct ibv_send_wr wr = {.opcode = IBV_WR_LOCAL_INV};
	struct region *r;
	struct ibv_mw *mw;

	scene_open(&s, NULL);
	r = lend_region(&s.us, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
	mw = bind_window(&s.us, r, IBV_ACCESS_REMOTE_WRITE);
	wr.invalidate_rkey = mw->rkey;
	expect_sent(&s.us, post(&s.us, &wr));
	raw_write(&s.peer, mw->rkey, addr(r), junk, 64);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	scene_close(&s);
}

/* RFC 5041 §5.2: neither STag nor offset of an empty message is checked. */
static void empty_write_to_an_unknown_tag_is_accepted(void **state)
{
	struct scene s;
	struct region *r = open_with_region(&s, state, IBV_ACCESS_REMOTE_WRITE);

	raw_write(&s.peer, 0xdeadbeef, UINT64_MAX, NULL, 0);
	raw_write(&s.peer, r->mr->rkey, addr(r), junk, LEN);
	raw_send(&s.peer, junk, 1);
	expect_received(&s.us, 1);
	assert_memory_equal(r->at, junk, LEN);
	expect_state(&s.us, IBV_QPS_RTS);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(valid_write_lands),
		cmocka_unit_test(write_to_an_unknown_tag_is_refused),
		cmocka_unit_test(write_with_the_wrong_key_is_refused),
		cmocka_unit_test(write_to_tag_zero_is_refused),
		cmocka_unit_test(write_to_a_deregistered_region_is_refused),
		cmocka_unit_test(write_past_the_end_is_refused),
		cmocka_unit_test(write_before_the_beginning_is_refused),
		cmocka_unit_test(write_larger_than_the_region_is_refused),
		cmocka_unit_test(second_segment_past_the_end_is_refused),
		cmocka_unit_test(write_that_wraps_is_refused),
		cmocka_unit_test(write_without_the_right_is_refused),
		cmocka_unit_test(write_to_another_protection_domain_is_refused),
		cmocka_unit_test(write_to_a_window_of_another_queue_pair_is_refused),
		cmocka_unit_test(write_past_the_end_of_a_window_is_refused),
		cmocka_unit_test(write_to_a_window_without_the_right_is_refused),
		cmocka_unit_test(write_to_an_invalidated_window_is_refused),
		cmocka_unit_test(empty_write_to_an_unknown_tag_is_accepted),
	};

	return cmocka_run_group_tests_name("tagged faults", tests, others_open, others_close);
}
