// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_faults_untagged.c - sends that break DDP's rules for its queues, or that request an
 * invalidation that the peer has no right to.
 */
#include "raw_peer.h"

#include <stag/stagdv.h>

static const uint8_t junk[256] = {[0 ... 255] = 0xee};

/* Opens a side with two receives of 64 bytes posted; their ids are 1 and 2. */
static struct region *open_receiving(struct scene *s, void **state)
{
	struct region *r;

	*s = (struct scene){.others = *state};
	scene_open(s, NULL);
	r = own_region(&s->us, 128);
	assert_int_equal(post_receive(&s->us, r, 0, 64), 1);
	assert_int_equal(post_receive(&s->us, r, 64, 64), 2);
	return r;
}

static void good_sends_arrive(void **state)
{
	struct scene s;
	struct region *r = open_receiving(&s, state);

	raw_send(&s.peer, junk, 64);
	raw_send(&s.peer, junk, 0);
	assert_int_equal(expect_received(&s.us, 1).byte_len, 64);
	assert_int_equal(expect_received(&s.us, 2).byte_len, 0);
	assert_memory_equal(r->at, junk, 64);
	expect_zeroes(r->at + 64, 64);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

/* ---- MSNs, offsets and queue numbers ---- */

static void first_send_with_msn(void **state, uint32_t msn)
{
	struct scene s;
	struct region *r = open_receiving(&s, state);
	struct ddp_hdr h = send_hdr(&s.peer);

	h.msn = msn;
	raw_segment(&s.peer, &h, junk, 64);
	expect_refused(&s, FAULT_DDP_MSN_RANGE, IBV_EVENT_QP_REQ_ERR);
	expect_zeroes(r->at, r->len);
	scene_close(&s);
}

static void msn_that_skips_one_is_refused(void **state)
{
	first_send_with_msn(state, 2);
}

static void msn_zero_is_refused(void **state)
{
	first_send_with_msn(state, 0);
}

static void msn_far_away_is_refused(void **state)
{
	first_send_with_msn(state, 0x80000001);
}

static void msn_used_again_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_receiving(&s, state);
	struct ddp_hdr h = send_hdr(&s.peer);

	raw_segment(&s.peer, &h, junk, 64);
	raw_segment(&s.peer, &h, junk, 64);
	expect_received(&s.us, 1);
	expect_refused(&s, FAULT_DDP_MSN_RANGE, IBV_EVENT_QP_REQ_ERR);
	expect_zeroes(r->at + 64, 64);
	scene_close(&s);
}

static void msn_that_changes_within_a_message_is_refused(void **state)
{
	struct scene s;
	struct ddp_hdr h;

	open_receiving(&s, state);
	h = send_hdr(&s.peer);
	h.last = false;
	raw_segment(&s.peer, &h, junk, 16);
	h.msn++;
	h.mo = 16;
	raw_segment(&s.peer, &h, junk, 16);
	expect_refused(&s, FAULT_DDP_MSN_RANGE, IBV_EVENT_QP_REQ_ERR);
	scene_close(&s);
}

static void first_segment_not_at_zero_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_receiving(&s, state);
	struct ddp_hdr h = send_hdr(&s.peer);

	h.mo = 8;
	raw_segment(&s.peer, &h, junk, 8);
	expect_refused(&s, FAULT_DDP_INVALID_MO, IBV_EVENT_QP_REQ_ERR);
	expect_zeroes(r->at, r->len);
	scene_close(&s);
}

static void second_segment_at(void **state, uint32_t mo)
{
	struct scene s;
	struct region *r = open_receiving(&s, state);
	struct ddp_hdr h = send_hdr(&s.peer);

	h.last = false;
	raw_segment(&s.peer, &h, junk, 16);
	h.mo = mo;
	h.last = true;
	raw_segment(&s.peer, &h, junk, 16);
	expect_refused(&s, FAULT_DDP_INVALID_MO, IBV_EVENT_QP_REQ_ERR);
	expect_zeroes(r->at + 16, r->len - 16);
	scene_close(&s);
}

static void segment_behind_a_gap_is_refused(void **state)
{
	second_segment_at(state, 17);
}

static void segment_over_the_first_is_refused(void **state)
{
	second_segment_at(state, 0);
}

static void segment_at_the_highest_offset_is_refused(void **state)
{
	second_segment_at(state, UINT32_MAX - 4);
}

static void send_on_queue(void **state, uint32_t qn)
{
	struct scene s;
	struct region *r = open_receiving(&s, state);
	struct ddp_hdr h = send_hdr(&s.peer);

	h.qn = qn;
	raw_segment(&s.peer, &h, junk, 16);
	expect_refused(&s, FAULT_DDP_INVALID_QN, IBV_EVENT_QP_REQ_ERR);
	expect_zeroes(r->at, r->len);
	scene_close(&s);
}

static void send_on_the_read_queue_is_refused(void **state)
{
	send_on_queue(state, QN_READ);
}

static void send_on_an_unknown_queue_is_refused(void **state)
{
	send_on_queue(state, QN_COUNT);
}

static void send_on_the_last_queue_is_refused(void **state)
{
	send_on_queue(state, UINT32_MAX);
}

/* ---- buffers ---- */

static void send_longer_than_the_buffer_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_receiving(&s, state);

	raw_send(&s.peer, junk, 65);
	expect_failed(&s.us, 1, IBV_WC_LOC_LEN_ERR);
	expect_refused(&s, FAULT_DDP_TOO_LONG, IBV_EVENT_QP_REQ_ERR);
	expect_zeroes(r->at, r->len);
	scene_close(&s);
}

static void second_segment_longer_than_the_rest_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_receiving(&s, state);
	struct ddp_hdr h = send_hdr(&s.peer);

	h.last = false;
	raw_segment(&s.peer, &h, junk, 60);
	h.mo = 60;
	h.last = true;
	raw_segment(&s.peer, &h, junk, 5);
	expect_failed(&s.us, 1, IBV_WC_LOC_LEN_ERR);
	expect_refused(&s, FAULT_DDP_TOO_LONG, IBV_EVENT_QP_REQ_ERR);
	expect_zeroes(r->at + 60, r->len - 60);
	scene_close(&s);
}

static void send_of_64_kib_to_a_small_buffer_is_refused(void **state)
{
	static const uint8_t much[65000];
	struct scene s;
	struct region *r = open_receiving(&s, state);

	raw_send(&s.peer, much, sizeof(much));
	expect_failed(&s.us, 1, IBV_WC_LOC_LEN_ERR);
	expect_refused(&s, FAULT_DDP_TOO_LONG, IBV_EVENT_QP_REQ_ERR);
	expect_zeroes(r->at, r->len);
	scene_close(&s);
}

static void send_without_a_buffer_is_refused(void **state)
{
	struct scene s = {.others = *state};

	scene_open(&s, NULL);
	raw_send(&s.peer, junk, 16);
	expect_refused(&s, FAULT_DDP_NO_BUFFER, IBV_EVENT_QP_REQ_ERR);
	scene_close(&s);
}

static void third_send_to_two_buffers_is_refused(void **state)
{
	struct scene s;

	open_receiving(&s, state);
	raw_send(&s.peer, junk, 1);
	raw_send(&s.peer, junk, 2);
	raw_send(&s.peer, junk, 3);
	expect_received(&s.us, 1);
	expect_received(&s.us, 2);
	expect_refused(&s, FAULT_DDP_NO_BUFFER, IBV_EVENT_QP_REQ_ERR);
	scene_close(&s);
}

/* Receives of a shared queue are not flushed with the queue pair. */
static void send_to_an_empty_srq_is_refused(void **state)
{
	struct scene s = {.others = *state};
	struct scene_wish w = {.us.srq_wr = 8};

	scene_open(&s, &w);
	raw_send(&s.peer, junk, 16);
	expect_terminate(&s.peer, FAULT_DDP_NO_BUFFER);
	expect_disconnected(&s.us);
	expect_state(&s.us, IBV_QPS_ERR);
	expect_async(&s.us, IBV_EVENT_QP_LAST_WQE_REACHED);
	expect_async(&s.us, IBV_EVENT_QP_REQ_ERR);
	scene_close(&s);
}

/*
 * The buffer was deregistered, a mistake of the program: its receive fails, and the peer gets a
 * Terminate.
 */
static void receive_into_deregistered_memory_fails(void **state)
{
	struct scene s = {.others = *state};
	struct region *r;
	uint64_t id;

	scene_open(&s, NULL);
	r = own_region(&s.us, 64);
	id = post_receive(&s.us, r, 0, 64);
	assert_int_equal(ibv_dereg_mr(r->mr), 0);
	r->mr = NULL;
	raw_send(&s.peer, junk, 16);
	expect_failed(&s.us, id, IBV_WC_LOC_PROT_ERR);
	expect_refused(&s, FAULT_DDP_LOCAL, IBV_EVENT_QP_FATAL);
	expect_zeroes(r->at, 64);
	scene_close(&s);
}

/* ---- invalidation ---- */

static void expect_not_invalidated(struct scene *s, struct wire_fault fault)
{
	expect_failed(&s->us, 1, IBV_WC_REM_INV_REQ_ERR);
	expect_refused(s, fault, fault.etype == 1 ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
}

static void invalidating_an_unknown_tag_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_receiving(&s, state);

	raw_send_inv(&s.peer, r->mr->rkey ^ 0x12345600, junk, 16);
	expect_not_invalidated(&s, FAULT_RDMAP_OP_CANT_INV);
	scene_close(&s);
}

/* The peer may not invalidate a region of ibv_reg_mr(). */
static void invalidating_a_plain_region_is_refused(void **state)
{
	struct scene s;
	struct region *r;

	open_receiving(&s, state);
	r = lend_region(&s.us, 64, IBV_ACCESS_REMOTE_WRITE);
	raw_send_inv(&s.peer, r->mr->rkey, junk, 16);
	expect_not_invalidated(&s, FAULT_RDMAP_PROT_CANT_INV);
	assert_int_equal(ibv_dereg_mr(r->mr), 0); /* it is still registered */
	r->mr = NULL;
	scene_close(&s);
}

static struct ibv_mr *fast_region(struct side *side, struct region *r)
{
	struct ibv_mr *mr = stagdv_alloc_fast_mr(side->pd, 1);
	struct ibv_sge sge = piece(r, 0, r->len);
	struct stagdv_fast_reg wr = {.sg_list = &sge,
				     .num_sge = 1,
				     .access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
				     .iova = (uintptr_t)r->at,
				     .send_flags = IBV_SEND_SIGNALED};

	assert_non_null(mr);
	wr.mr = mr;
	wr.wr_id = note_posted(side, false);
	wr.key = ibv_inc_rkey(mr->rkey);
	assert_int_equal(stagdv_post_fast_reg(side->qp, &wr), 0);
	expect_sent(side, wr.wr_id);
	return mr;
}

static void invalidating_a_region_of_another_domain_is_refused(void **state)
{
	struct pair *others = *state;
	struct scene s;
	struct region *r;
	struct ibv_mr *mr;

	open_receiving(&s, state);
	r = own_region(&others->b, 64);
	mr = fast_region(&others->b, r);
	raw_send_inv(&s.peer, mr->rkey, junk, 16);
	expect_not_invalidated(&s, FAULT_RDMAP_PROT_CANT_INV);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	drop_region(&others->b, r);
	scene_close(&s);
}

static void invalidating_a_fast_region_ends_it(void **state)
{
	struct scene s;
	struct region *r = open_receiving(&s, state);
	struct region *below = own_region(&s.us, 64);
	struct ibv_mr *mr = fast_region(&s.us, below);
	struct ibv_wc wc;

	raw_write(&s.peer, mr->rkey, (uintptr_t)below->at, junk, 64);
	raw_send_inv(&s.peer, mr->rkey, junk, 16);
	wc = expect_received(&s.us, 1);
	assert_true(wc.wc_flags & IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, mr->rkey);
	assert_int_equal(wc.byte_len, 16);
	assert_memory_equal(r->at, junk, 16);
	assert_memory_equal(below->at, junk, 64);
	raw_write(&s.peer, mr->rkey, (uintptr_t)below->at, "again", 5);
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	assert_memory_equal(below->at, junk, 64);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	scene_close(&s);
}

static void invalidating_a_window_of_another_queue_pair_is_refused(void **state)
{
	struct pair *others = *state;
	struct scene s = {.others = others};
	struct scene_wish wish = {.us.pd = others->b.pd};
	struct region *r =
		lend_region(&others->b, 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(others->b.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){.mr = r->mr,
					  .addr = (uintptr_t)r->at,
					  .length = r->len,
					  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
	expect_sent(&others->b, post(&others->b, &wr));
	scene_open(&s, &wish);
	post_receive(&s.us, own_region(&s.us, 64), 0, 64);
	raw_send_inv(&s.peer, wr.bind_mw.rkey, junk, 16);
	expect_not_invalidated(&s, FAULT_RDMAP_PROT_CANT_INV);
	scene_close(&s);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	drop_region(&others->b, r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(good_sends_arrive),
		cmocka_unit_test(msn_that_skips_one_is_refused),
		cmocka_unit_test(msn_zero_is_refused),
		cmocka_unit_test(msn_far_away_is_refused),
		cmocka_unit_test(msn_used_again_is_refused),
		cmocka_unit_test(msn_that_changes_within_a_message_is_refused),
		cmocka_unit_test(first_segment_not_at_zero_is_refused),
		cmocka_unit_test(segment_behind_a_gap_is_refused),
		cmocka_unit_test(segment_over_the_first_is_refused),
		cmocka_unit_test(segment_at_the_highest_offset_is_refused),
		cmocka_unit_test(send_on_the_read_queue_is_refused),
		cmocka_unit_test(send_on_an_unknown_queue_is_refused),
		cmocka_unit_test(send_on_the_last_queue_is_refused),
		cmocka_unit_test(send_longer_than_the_buffer_is_refused),
		cmocka_unit_test(second_segment_longer_than_the_rest_is_refused),
		cmocka_unit_test(send_of_64_kib_to_a_small_buffer_is_refused),
		cmocka_unit_test(send_without_a_buffer_is_refused),
		cmocka_unit_test(third_send_to_two_buffers_is_refused),
		cmocka_unit_test(send_to_an_empty_srq_is_refused),
		cmocka_unit_test(receive_into_deregistered_memory_fails),
		cmocka_unit_test(invalidating_an_unknown_tag_is_refused),
		cmocka_unit_test(invalidating_a_plain_region_is_refused),
		cmocka_unit_test(invalidating_a_region_of_another_domain_is_refused),
		cmocka_unit_test(invalidating_a_fast_region_ends_it),
		cmocka_unit_test(invalidating_a_window_of_another_queue_pair_is_refused),
	};

	return cmocka_run_group_tests_name("untagged faults", tests, others_open, others_close);
}
