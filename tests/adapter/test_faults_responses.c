// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_faults_responses.c - responses that do not match a request of ours.
 */
#include "raw_peer.h"

#include <stdlib.h>
#include <string.h>

#define LEN 1024

static const uint8_t junk[2 * LEN] = {[0 ... 2 * LEN - 1] = 0xee};

/* Posts a read of LEN bytes, and makes the peer receive the request. */
static struct region *open_reading(struct scene *s, void **state, struct rdmap_read_req *q)
{
	struct scene_wish w = {.we_connect = true, .peer.extensions = true};
	struct region *sink;

	*s = (struct scene){.others = *state};
	scene_open(s, &w);
	sink = own_region(&s->us, LEN);
	post_receive(&s->us, own_region(&s->us, 64), 0, 64);
	post_read(&s->us, sink, 0, LEN, sink,
		  0); /* any source will do: the peer chooses the bytes */
	raw_take_read(&s->peer, q);
	assert_int_equal(q->size, LEN);
	post_send(&s->us, sink, 0, 0); /* completes after the read */
	return sink;
}

static void send_read_response(struct scene *s, uint32_t stag, uint64_t to, size_t len, bool last)
{
	struct ddp_hdr h = response_hdr(stag, to);

	h.last = last;
	raw_segment(&s->peer, &h, junk, len);
}

static void matching_read_response_completes_the_read(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct region *sink = open_reading(&s, state, &q);

	send_read_response(&s, q.sink_stag, q.sink_to, 1000, false);
	send_read_response(&s, q.sink_stag, q.sink_to + 1000, 24, true);
	expect_sent(&s.us, 2);
	expect_sent(&s.us, 3);
	assert_memory_equal(sink->at, junk, LEN);
	raw_finish(&s.peer);
	expect_closed(&s);
	expect_no_async(&s.us);
	scene_close(&s);
}

/* Skips FPDUs that were sent earlier, e.g. the send behind the read. */
static void expect_refused_response(struct scene *s, struct wire_fault fault)
{
	bool access = fault.layer == FAULT_LAYER_DDP && fault.etype == 1;

	expect_terminate_at_last(&s->peer, fault);
	expect_broken(s, access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
}

static void read_response_to_another_stag_is_refused(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct region *sink = open_reading(&s, state, &q);

	send_read_response(&s, q.sink_stag ^ 0x100, q.sink_to, LEN, true);
	expect_refused_response(&s, FAULT_DDP_INVALID_STAG);
	expect_zeroes(sink->at, LEN);
	scene_close(&s);
}

/* A response to another STag is refused even if the peer may write there. */
static void read_response_to_an_advertised_region_is_refused(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct region *lent;

	open_reading(&s, state, &q);
	lent = lend_region(&s.us, LEN, IBV_ACCESS_REMOTE_WRITE);
	send_read_response(&s, lent->mr->rkey, (uintptr_t)lent->at, LEN, true);
	expect_refused_response(&s, FAULT_DDP_INVALID_STAG);
	expect_zeroes(lent->at, LEN);
	scene_close(&s);
}

static void read_response_to_another_offset_is_refused(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct region *sink = open_reading(&s, state, &q);

	send_read_response(&s, q.sink_stag, q.sink_to + 4, LEN - 4, true);
	expect_refused_response(&s, FAULT_DDP_BASE_BOUNDS);
	expect_zeroes(sink->at, LEN);
	scene_close(&s);
}

static void read_response_with_a_gap_is_refused(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct region *sink = open_reading(&s, state, &q);

	send_read_response(&s, q.sink_stag, q.sink_to, 100, false);
	send_read_response(&s, q.sink_stag, q.sink_to + 101, LEN - 101, true);
	expect_refused_response(&s, FAULT_DDP_BASE_BOUNDS);
	expect_zeroes(sink->at + 100, LEN - 100);
	scene_close(&s);
}

static void read_response_that_is_too_long_is_refused(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct region *sink = open_reading(&s, state, &q);

	send_read_response(&s, q.sink_stag, q.sink_to, LEN + 1, true);
	expect_refused_response(&s, FAULT_DDP_BASE_BOUNDS);
	expect_zeroes(sink->at, LEN);
	scene_close(&s);
}

static void second_segment_that_is_too_long_is_refused(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct region *sink = open_reading(&s, state, &q);

	send_read_response(&s, q.sink_stag, q.sink_to, LEN - 8, false);
	send_read_response(&s, q.sink_stag, q.sink_to + LEN - 8, 9, true);
	expect_refused_response(&s, FAULT_DDP_BASE_BOUNDS);
	expect_zeroes(sink->at + LEN - 8, 8);
	scene_close(&s);
}

static void read_response_that_is_too_short_is_refused(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct region *sink = open_reading(&s, state, &q);

	send_read_response(&s, q.sink_stag, q.sink_to, LEN - 1, true);
	expect_refused_response(&s, FAULT_DDP_BASE_BOUNDS);
	expect_zeroes(sink->at, LEN);
	scene_close(&s);
}

static void empty_read_response_is_refused(void **state)
{
	struct scene s;
	struct rdmap_read_req q;

	open_reading(&s, state, &q);
	send_read_response(&s, q.sink_stag, q.sink_to, 0, true);
	expect_refused_response(&s, FAULT_DDP_BASE_BOUNDS);
	scene_close(&s);
}

static void second_read_response_is_refused(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct region *sink = open_reading(&s, state, &q);

	send_read_response(&s, q.sink_stag, q.sink_to, LEN, true);
	expect_sent(&s.us, 2);
	expect_sent(&s.us, 3);
	memset(sink->at, 0, LEN);
	send_read_response(&s, q.sink_stag, q.sink_to, LEN, true);
	expect_refused_response(&s, FAULT_RDMAP_OPCODE);
	expect_zeroes(sink->at, LEN);
	scene_close(&s);
}

static void read_response_without_a_request_is_refused(void **state)
{
	struct scene s = {.others = *state};
	struct region *sink;

	scene_open(&s, NULL);
	sink = lend_region(&s.us, LEN, IBV_ACCESS_REMOTE_WRITE);
	send_read_response(&s, sink->mr->rkey, (uintptr_t)sink->at, LEN, true);
	expect_refused(&s, FAULT_RDMAP_OPCODE, IBV_EVENT_QP_REQ_ERR);
	expect_zeroes(sink->at, LEN);
	scene_close(&s);
}

/*
 * The sink was deregistered, a mistake of the program: its read fails, the other requests are
 * flushed.
 */
static void read_into_deregistered_memory_fails(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct region *sink = open_reading(&s, state, &q);

	assert_int_equal(ibv_dereg_mr(sink->mr), 0);
	sink->mr = NULL;
	send_read_response(&s, q.sink_stag, q.sink_to, LEN, true);
	expect_failed(&s.us, 2, IBV_WC_LOC_PROT_ERR);
	expect_terminate_at_last(&s.peer, FAULT_DDP_LOCAL);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	expect_zeroes(sink->at, LEN);
	scene_close(&s);
}

/* ---- atomics ---- */

static struct region *open_adding(struct scene *s, void **state, struct rdmap_atomic_req *q)
{
	struct scene_wish w = {.we_connect = true, .peer.extensions = true};
	struct raw_fpdu *f = malloc(sizeof(*f));
	struct ibv_send_wr wr = {.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .num_sge = 1};
	struct ibv_sge sge;
	struct region *sink;

	*s = (struct scene){.others = *state};
	scene_open(s, &w);
	sink = own_region(&s->us, 8);
	sge = piece(sink, 0, 8);
	wr.sg_list = &sge;
	wr.wr.atomic.remote_addr = 0x1000;
	wr.wr.atomic.rkey = 0x1234;
	wr.wr.atomic.compare_add = 1;
	post(&s->us, &wr);
	raw_take(&s->peer, f);
	assert_int_equal(f->h.opcode, RDMAP_ATOMIC_REQ);
	rdmap_get_atomic_req(f->payload, q);
	free(f);
	return sink;
}

static void send_atomic_response(struct scene *s, uint32_t msn, uint32_t id)
{
	struct ddp_hdr h = {.last = true, .opcode = RDMAP_ATOMIC_RESP, .qn = QN_ATOMIC, .msn = msn};
	struct rdmap_atomic_resp r = {.id = id, .value = 0xeeeeeeeeeeeeeeee};
	uint8_t buf[RDMAP_ATOMIC_RESP_LEN];

	rdmap_put_atomic_resp(buf, &r);
	raw_segment(&s->peer, &h, buf, sizeof(buf));
}

static void matching_atomic_response_completes_the_atomic(void **state)
{
	struct scene s;
	struct rdmap_atomic_req q;
	struct region *sink = open_adding(&s, state, &q);

	send_atomic_response(&s, 1, q.id);
	expect_sent(&s.us, 1);
	assert_memory_equal(sink->at, junk, 8);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

static void atomic_response_with_another_id_is_refused(void **state)
{
	struct scene s;
	struct rdmap_atomic_req q;
	struct region *sink = open_adding(&s, state, &q);

	send_atomic_response(&s, 1, q.id + 1);
	expect_refused_response(&s, FAULT_RDMAP_OPCODE);
	expect_zeroes(sink->at, 8);
	scene_close(&s);
}

static void atomic_response_out_of_order_is_refused(void **state)
{
	struct scene s;
	struct rdmap_atomic_req q;
	struct region *sink = open_adding(&s, state, &q);

	send_atomic_response(&s, 2, q.id);
	expect_refused_response(&s, FAULT_DDP_MSN_RANGE);
	expect_zeroes(sink->at, 8);
	scene_close(&s);
}

static void second_atomic_response_is_refused(void **state)
{
	struct scene s;
	struct rdmap_atomic_req q;

	open_adding(&s, state, &q);
	send_atomic_response(&s, 1, q.id);
	expect_sent(&s.us, 1);
	send_atomic_response(&s, 2, q.id);
	expect_refused_response(&s, FAULT_RDMAP_OPCODE);
	scene_close(&s);
}

static void read_response_to_an_atomic_is_refused(void **state)
{
	struct scene s;
	struct rdmap_atomic_req q;
	struct region *sink = open_adding(&s, state, &q);

	send_read_response(&s, sink->mr->lkey, (uintptr_t)sink->at, 8, true);
	expect_refused_response(&s, FAULT_RDMAP_OPCODE);
	expect_zeroes(sink->at, 8);
	scene_close(&s);
}

static void atomic_response_to_a_read_is_refused(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct region *sink = open_reading(&s, state, &q);

	send_atomic_response(&s, 1, 0);
	expect_refused_response(&s, FAULT_RDMAP_OPCODE);
	expect_zeroes(sink->at, LEN);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matching_read_response_completes_the_read),
		cmocka_unit_test(read_response_to_another_stag_is_refused),
		cmocka_unit_test(read_response_to_an_advertised_region_is_refused),
		cmocka_unit_test(read_response_to_another_offset_is_refused),
		cmocka_unit_test(read_response_with_a_gap_is_refused),
		cmocka_unit_test(read_response_that_is_too_long_is_refused),
		cmocka_unit_test(second_segment_that_is_too_long_is_refused),
		cmocka_unit_test(read_response_that_is_too_short_is_refused),
		cmocka_unit_test(empty_read_response_is_refused),
		cmocka_unit_test(second_read_response_is_refused),
		cmocka_unit_test(read_response_without_a_request_is_refused),
		cmocka_unit_test(read_into_deregistered_memory_fails),
		cmocka_unit_test(matching_atomic_response_completes_the_atomic),
		cmocka_unit_test(atomic_response_with_another_id_is_refused),
		cmocka_unit_test(atomic_response_out_of_order_is_refused),
		cmocka_unit_test(second_atomic_response_is_refused),
		cmocka_unit_test(read_response_to_an_atomic_is_refused),
		cmocka_unit_test(atomic_response_to_a_read_is_refused),
	};

	return cmocka_run_group_tests_name("response faults", tests, others_open, others_close);
}
