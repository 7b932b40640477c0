// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_faults_requests.c - reads and atomics that a peer has no right to, or whose requests are
 * malformed.
 */
#include "raw_peer.h"

#include <stdlib.h>
#include <string.h>

#define LEN	   4096
#define SINK_STAG  0x01020304
#define SINK_TO	   0x1000
#define ALL_REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static struct region *open_lending(struct scene *s, void **state, int access)
{
	struct scene_wish w = {.peer.extensions = true};
	struct region *r;

	*s = (struct scene){.others = *state};
	scene_open(s, &w);
	r = lend_region(&s->us, LEN, access);
	fill(r->at, LEN, 1);
	post_receive(&s->us, own_region(&s->us, 64), 0, 64);
	return r;
}

static struct rdmap_read_req read_of(uint32_t stag, uint64_t to, uint32_t size)
{
	return (struct rdmap_read_req){.sink_stag = SINK_STAG,
				       .sink_to = SINK_TO,
				       .size = size,
				       .src_stag = stag,
				       .src_to = to};
}

static uint64_t addr(const struct region *r)
{
	return (uintptr_t)r->at;
}

/* ---- reads ---- */

static void valid_read_is_answered(void **state)
{
	struct scene s;
	struct region *r = open_lending(&s, state, ALL_REMOTE);
	struct rdmap_read_req q = read_of(r->mr->rkey, addr(r) + 8, LEN - 8);
	struct raw_fpdu *f = malloc(sizeof(*f));
	uint8_t got[LEN];
	size_t off = 0;

	raw_read(&s.peer, &q);
	do {
		raw_take(&s.peer, f);
		assert_int_equal(f->h.opcode, RDMAP_READ_RESP);
		assert_int_equal(f->h.stag, SINK_STAG);
		assert_int_equal(f->h.to, SINK_TO + off);
		assert_in_range(off + f->len, 0, LEN - 8);
		memcpy(got + off, f->payload, f->len);
		off += f->len;
	} while (!f->h.last);
	assert_int_equal(off, LEN - 8);
	assert_memory_equal(got, r->at + 8, LEN - 8);
	free(f);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

static void refused_read(void **state, int access, uint32_t tag_flip, int64_t off, uint32_t size,
			 struct wire_fault fault)
{
	struct scene s;
	struct region *r = open_lending(&s, state, access);
	struct rdmap_read_req q = read_of(r->mr->rkey ^ tag_flip, addr(r) + (uint64_t)off, size);

	raw_read(&s.peer, &q);
	expect_refused(&s, fault, IBV_EVENT_QP_ACCESS_ERR);
	scene_close(&s);
}

static void read_of_an_unknown_tag_is_refused(void **state)
{
	refused_read(state, ALL_REMOTE, 0x77770000, 0, 64, FAULT_RDMAP_INVALID_STAG);
}

static void read_with_the_wrong_key_is_refused(void **state)
{
	refused_read(state, ALL_REMOTE, 1, 0, 64, FAULT_RDMAP_INVALID_STAG);
}

static void read_past_the_end_is_refused(void **state)
{
	refused_read(state, ALL_REMOTE, 0, LEN - 63, 64, FAULT_RDMAP_BASE_BOUNDS);
}

static void read_before_the_beginning_is_refused(void **state)
{
	refused_read(state, ALL_REMOTE, 0, -1, 64, FAULT_RDMAP_BASE_BOUNDS);
}

static void read_of_4_gib_is_refused(void **state)
{
	refused_read(state, ALL_REMOTE, 0, 0, UINT32_MAX, FAULT_RDMAP_BASE_BOUNDS);
}

static void read_without_the_right_is_refused(void **state)
{
	refused_read(state, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC, 0, 0, 64,
		     FAULT_RDMAP_ACCESS);
}

static void read_that_wraps_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_lending(&s, state, ALL_REMOTE);
	struct rdmap_read_req q = read_of(r->mr->rkey, UINT64_MAX - 62, 64);

	raw_read(&s.peer, &q);
	expect_refused(&s, FAULT_RDMAP_TO_WRAP, IBV_EVENT_QP_ACCESS_ERR);
	scene_close(&s);
}

static void read_of_another_protection_domain_is_refused(void **state)
{
	struct scene s;
	struct pair *others = *state;
	struct region *theirs = lend_region(&others->a, LEN, ALL_REMOTE);
	struct rdmap_read_req q = read_of(theirs->mr->rkey, addr(theirs), 64);

	open_lending(&s, state, ALL_REMOTE);
	raw_read(&s.peer, &q);
	expect_refused(&s, FAULT_RDMAP_STAG_STREAM, IBV_EVENT_QP_ACCESS_ERR);
	drop_region(&others->a, theirs);
	scene_close(&s);
}

static void read_of_a_window_of_another_queue_pair_is_refused(void **state)
{
	struct pair *others = *state;
	struct scene s = {.others = others};
	struct scene_wish wish = {.us.pd = others->b.pd};
	struct region *r = lend_region(&others->b, LEN, IBV_ACCESS_MW_BIND | ALL_REMOTE);
	struct ibv_mw *mw = ibv_alloc_mw(others->b.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};
	struct rdmap_read_req q;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = r->mr, .addr = addr(r), .length = LEN, .mw_access_flags = ALL_REMOTE};
	expect_sent(&others->b, post(&others->b, &wr));
	scene_open(&s, &wish);
	q = read_of(wr.bind_mw.rkey, addr(r), 64);
	raw_read(&s.peer, &q);
	expect_refused(&s, FAULT_RDMAP_STAG_STREAM, IBV_EVENT_QP_ACCESS_ERR);
	scene_close(&s);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	drop_region(&others->b, r);
}

/* RFC 5040 §5.2: a read of zero bytes gets a zero-length response, whatever its source. */
static void empty_read_of_an_unknown_tag_is_answered(void **state)
{
	struct scene s;
	struct rdmap_read_req q = read_of(0xdeadbeef, UINT64_MAX, 0);
	struct raw_fpdu *f = malloc(sizeof(*f));

	open_lending(&s, state, ALL_REMOTE);
	raw_read(&s.peer, &q);
	raw_take(&s.peer, f);
	assert_int_equal(f->h.opcode, RDMAP_READ_RESP);
	assert_true(f->h.last);
	assert_int_equal(f->len, 0);
	assert_int_equal(f->h.stag, SINK_STAG);
	assert_int_equal(f->h.to, SINK_TO);
	free(f);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

static void request_with(void **state, uint32_t msn, uint32_t mo, struct wire_fault fault)
{
	struct scene s;
	struct region *r = open_lending(&s, state, ALL_REMOTE);
	struct rdmap_read_req q = read_of(r->mr->rkey, addr(r), 64);
	struct ddp_hdr h = request_hdr(&s.peer, RDMAP_READ_REQ);
	uint8_t buf[RDMAP_READ_REQ_LEN];

	rdmap_put_read_req(buf, &q);
	h.msn = msn;
	h.mo = mo;
	raw_segment(&s.peer, &h, buf, sizeof(buf));
	expect_refused(&s, fault, IBV_EVENT_QP_REQ_ERR);
	scene_close(&s);
}

static void read_out_of_order_is_refused(void **state)
{
	request_with(state, 2, 0, FAULT_DDP_MSN_RANGE);
}

static void read_with_an_offset_is_refused(void **state)
{
	request_with(state, 1, 4, FAULT_DDP_INVALID_MO);
}

static void request_of_length(void **state, enum rdmap_op op, size_t len, bool last)
{
	uint8_t buf[256] = {0};
	struct scene s;
	struct ddp_hdr h;

	open_lending(&s, state, ALL_REMOTE);
	h = request_hdr(&s.peer, op);
	h.last = last;
	raw_segment(&s.peer, &h, buf, len);
	expect_refused(&s, FAULT_RDMAP_OP_OTHER, IBV_EVENT_QP_REQ_ERR);
	scene_close(&s);
}

static void read_request_of_the_wrong_length_is_refused(void **state)
{
	request_of_length(state, RDMAP_READ_REQ, RDMAP_READ_REQ_LEN - 1, true);
	request_of_length(state, RDMAP_READ_REQ, RDMAP_READ_REQ_LEN + 1, true);
	request_of_length(state, RDMAP_READ_REQ, 0, true);
	request_of_length(state, RDMAP_READ_REQ, RDMAP_READ_REQ_LEN, false);
}

static void read_request_on_the_send_queue_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_lending(&s, state, ALL_REMOTE);
	struct rdmap_read_req q = read_of(r->mr->rkey, addr(r), 64);
	struct ddp_hdr h = request_hdr(&s.peer, RDMAP_READ_REQ);
	uint8_t buf[RDMAP_READ_REQ_LEN];

	rdmap_put_read_req(buf, &q);
	h.qn = QN_SEND;
	raw_segment(&s.peer, &h, buf, sizeof(buf));
	expect_refused(&s, FAULT_DDP_INVALID_QN, IBV_EVENT_QP_REQ_ERR);
	scene_close(&s);
}

/*
 * Responses that do not fit into the socket buffers wait, and their requests count against the IRD:
 * as many as the IRD may wait, not one more.
 */
static void read_beyond_the_ird_is_refused(void **state)
{
	struct scene s = {.others = *state};
	struct scene_wish w = {.us.ird = 4, .peer.ord = 4};
	const uint32_t much = 32 << 20;
	struct region *r;
	struct rdmap_read_req q;

	scene_open(&s, &w);
	r = lend_region(&s.us, much, IBV_ACCESS_REMOTE_READ);
	q = read_of(r->mr->rkey, addr(r), much);
	for (int i = 0; i < 4; i++)
		raw_read(&s.peer, &q);
	ping(s.others);
	expect_state(&s.us, IBV_QPS_RTS);
	raw_read(&s.peer, &q); /* the first four still wait */
	expect_broken(&s, IBV_EVENT_QP_REQ_ERR);
	expect_hangup_at_last(&s.peer);
	scene_close(&s);
}

/* The same with room in the socket for a Terminate between two responses. */
static void burst_beyond_the_ird_is_answered_by_a_terminate(void **state)
{
	struct scene s = {.others = *state};
	struct scene_wish w = {.us.ird = 1, .peer.ord = 1};
	struct region *r;
	struct rdmap_read_req q;
	uint8_t raw[4096];
	size_t n = 0;

	scene_open(&s, &w);
	r = lend_region(&s.us, 64, IBV_ACCESS_REMOTE_READ);
	q = read_of(r->mr->rkey, addr(r), 64);
	for (int i = 0; i < 2; i++) {
		struct ddp_hdr h = request_hdr(&s.peer, RDMAP_READ_REQ);
		uint8_t buf[RDMAP_READ_REQ_LEN];

		rdmap_put_read_req(buf, &q);
		n += raw_build(&s.peer, &h, buf, sizeof(buf), raw + n);
	}
	raw_bytes(&s.peer, raw,
		  n); /* sent in one piece, so that both arrive before a response is framed */
	expect_terminate_at_last(&s.peer, FAULT_DDP_NO_BUFFER);
	expect_broken(&s, IBV_EVENT_QP_REQ_ERR);
	scene_close(&s);
}

/* Expects the unanswered rest of the request in the Terminate, as RFC 5040 §4.8 requires. */
static void expect_rest_of(const struct rdmap_read_req *q, const struct terminate *t)
{
	struct rdmap_read_req rest;
	uint64_t done;

	assert_int_equal(t->fault.layer, FAULT_LAYER_RDMAP);
	assert_int_equal(t->fault.etype, 1);
	assert_int_equal(t->fault.code, 0);
	assert_true(t->has_ddp && t->has_rdmap);
	assert_int_equal(t->seg_len, DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN);
	rdmap_get_read_req(t->read_req, &rest);
	done = q->size - rest.size;
	assert_in_range(done, 1, q->size - 1);
	assert_int_equal(rest.src_stag, q->src_stag);
	assert_int_equal(rest.src_to, q->src_to + done);
	assert_int_equal(rest.sink_stag, q->sink_stag);
	assert_int_equal(rest.sink_to, q->sink_to + done);
}

/* A region is deregistered while it is being read: no byte of it is sent after that. */
static void deregistration_ends_a_read_in_flight(void **state)
{
	struct scene s = {.others = *state};
	const uint32_t much = 32 << 20;
	struct raw_fpdu *f = malloc(sizeof(*f));
	struct region *r;
	struct rdmap_read_req q;
	struct terminate t;

	scene_open(&s, NULL);
	r = lend_region(&s.us, much, IBV_ACCESS_REMOTE_READ);
	q = read_of(r->mr->rkey, addr(r), much);
	raw_read(&s.peer, &q);
	raw_take(&s.peer, f);
	assert_int_equal(f->h.opcode, RDMAP_READ_RESP);
	assert_int_equal(ibv_dereg_mr(r->mr), 0);
	r->mr = NULL;
	if (s.peer.crc) { /* copied for the CRC: the segment in flight is completed */
		raw_take_terminate_at_last(&s.peer, &t);
		expect_rest_of(&q, &t);
	}
	expect_hangup_at_last(&s.peer);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	free(f);
	scene_close(&s);
}

/* ---- atomics ---- */

static struct rdmap_atomic_req add_to(uint32_t stag, uint64_t to)
{
	return (struct rdmap_atomic_req){.op = RDMAP_FETCH_ADD,
					 .id = 7,
					 .stag = stag,
					 .to = to,
					 .data = 5,
					 .compare_mask = UINT64_MAX};
}

static void valid_atomic_is_answered(void **state)
{
	struct scene s;
	struct region *r = open_lending(&s, state, ALL_REMOTE);
	struct rdmap_atomic_req q = add_to(r->mr->rkey, addr(r) + 8);
	struct rdmap_atomic_resp answer;
	struct raw_fpdu *f = malloc(sizeof(*f));
	uint64_t *word = (uint64_t *)(r->at + 8), before = *word;

	raw_atomic(&s.peer, &q);
	raw_take(&s.peer, f);
	assert_int_equal(f->h.opcode, RDMAP_ATOMIC_RESP);
	assert_int_equal(f->h.qn, QN_ATOMIC);
	assert_int_equal(f->h.msn, 1);
	assert_int_equal(f->len, RDMAP_ATOMIC_RESP_LEN);
	rdmap_get_atomic_resp(f->payload, &answer);
	assert_int_equal(answer.id, 7);
	assert_int_equal(answer.value, before);
	assert_int_equal(*word, before + 5);
	free(f);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

static void refused_atomic(void **state, int access, uint32_t tag_flip, int off,
			   struct wire_fault fault, enum ibv_event_type event)
{
	struct scene s;
	struct region *r = open_lending(&s, state, access);
	struct rdmap_atomic_req q = add_to(r->mr->rkey ^ tag_flip, addr(r) + (uint64_t)off);

	raw_atomic(&s.peer, &q);
	expect_refused(&s, fault, event);
	expect_filled(r->at, LEN, 1);
	scene_close(&s);
}

static void atomic_on_an_unknown_tag_is_refused(void **state)
{
	refused_atomic(state, ALL_REMOTE, 0x77770000, 0, FAULT_RDMAP_INVALID_STAG,
		       IBV_EVENT_QP_ACCESS_ERR);
}

static void atomic_past_the_end_is_refused(void **state)
{
	refused_atomic(state, ALL_REMOTE, 0, LEN - 4, FAULT_RDMAP_BASE_BOUNDS,
		       IBV_EVENT_QP_ACCESS_ERR);
}

static void atomic_without_the_right_is_refused(void **state)
{
	refused_atomic(state, IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE, 0, 0,
		       FAULT_RDMAP_ACCESS, IBV_EVENT_QP_ACCESS_ERR);
}

/* RFC 7306 §5.2.1 */
static void atomic_on_a_misaligned_address_is_refused(void **state)
{
	refused_atomic(state, ALL_REMOTE, 0, 4, FAULT_RDMAP_STREAM, IBV_EVENT_QP_REQ_ERR);
}

static void atomic_of_an_unknown_kind_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_lending(&s, state, ALL_REMOTE);
	struct rdmap_atomic_req q = add_to(r->mr->rkey, addr(r));

	q.op = 1;
	raw_atomic(&s.peer, &q);
	expect_refused(&s, FAULT_RDMAP_OP_OTHER, IBV_EVENT_QP_REQ_ERR);
	expect_filled(r->at, LEN, 1);
	scene_close(&s);
}

static void atomic_of_the_wrong_length_is_refused(void **state)
{
	request_of_length(state, RDMAP_ATOMIC_REQ, RDMAP_ATOMIC_REQ_LEN - 8, true);
	request_of_length(state, RDMAP_ATOMIC_REQ, RDMAP_ATOMIC_REQ_LEN + 8, true);
}

/* ---- the escape opcode ---- */

static void open_stag_peer(struct scene *s, void **state, bool escape)
{
	struct scene_wish w = {.peer = {.extensions = true, .escape = escape}};

	s->others = *state;
	scene_open(s, &w);
}

static void send_escape(struct scene *s, uint32_t subtype, uint32_t stag, size_t len)
{
	struct rdmap_flush_req r = {.flags = RDMAP_FLUSH_VISIBLE | RDMAP_FLUSH_REGION,
				    .stag = stag};
	struct ddp_hdr h = request_hdr(&s->peer, RDMAP_ESCAPE);
	uint8_t payload[RDMAP_FLUSH_REQ_LEN + 8] = {0};

	h.ulp = subtype << 24;
	rdmap_put_flush_req(payload, &r);
	raw_segment(&s->peer, &h, payload, len);
}

static void flush_is_answered(void **state, bool escape)
{
	struct scene s;
	struct region *r;
	struct raw_fpdu *f = malloc(sizeof(*f));

	open_stag_peer(&s, state, escape);
	r = lend_region(&s.us, LEN, ALL_REMOTE);
	send_escape(&s, RDMAP_SUB_FLUSH, r->mr->rkey, RDMAP_FLUSH_REQ_LEN);
	raw_take(&s.peer, f);
	assert_int_equal(f->h.opcode, RDMAP_READ_RESP);
	assert_int_equal(f->len, 0);
	free(f);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

static void flush_is_answered_with_and_without_subtypes(void **state)
{
	flush_is_answered(state, true);
	flush_is_answered(state, false); /* a peer of a version without subtypes */
}

static void escape_is_refused(void **state, bool escape, uint32_t subtype, size_t len,
			      struct wire_fault fault)
{
	struct scene s;

	open_stag_peer(&s, state, escape);
	send_escape(&s, subtype, 0x1234500, len);
	expect_refused(&s, fault, IBV_EVENT_QP_REQ_ERR);
	scene_close(&s);
}

static void unknown_subtype_is_refused(void **state)
{
	escape_is_refused(state, true, 1, RDMAP_FLUSH_REQ_LEN, FAULT_RDMAP_OPCODE);
	escape_is_refused(state, true, 255, RDMAP_FLUSH_REQ_LEN, FAULT_RDMAP_OPCODE);
	escape_is_refused(state, true, 255, 0, FAULT_RDMAP_OPCODE);
}

static void subtype_that_was_not_agreed_on_is_refused(void **state)
{
	escape_is_refused(state, false, 1, RDMAP_FLUSH_REQ_LEN, FAULT_RDMAP_OPCODE);
}

static void flush_of_the_wrong_length_is_refused(void **state)
{
	escape_is_refused(state, true, RDMAP_SUB_FLUSH, 0, FAULT_RDMAP_OP_OTHER);
	escape_is_refused(state, true, RDMAP_SUB_FLUSH, RDMAP_FLUSH_REQ_LEN - 1,
			  FAULT_RDMAP_OP_OTHER);
	escape_is_refused(state, true, RDMAP_SUB_FLUSH, RDMAP_FLUSH_REQ_LEN + 8,
			  FAULT_RDMAP_OP_OTHER);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(valid_read_is_answered),
		cmocka_unit_test(read_of_an_unknown_tag_is_refused),
		cmocka_unit_test(read_with_the_wrong_key_is_refused),
		cmocka_unit_test(read_past_the_end_is_refused),
		cmocka_unit_test(read_before_the_beginning_is_refused),
		cmocka_unit_test(read_of_4_gib_is_refused),
		cmocka_unit_test(read_without_the_right_is_refused),
		cmocka_unit_test(read_that_wraps_is_refused),
		cmocka_unit_test(read_of_another_protection_domain_is_refused),
		cmocka_unit_test(read_of_a_window_of_another_queue_pair_is_refused),
		cmocka_unit_test(empty_read_of_an_unknown_tag_is_answered),
		cmocka_unit_test(read_out_of_order_is_refused),
		cmocka_unit_test(read_with_an_offset_is_refused),
		cmocka_unit_test(read_request_of_the_wrong_length_is_refused),
		cmocka_unit_test(read_request_on_the_send_queue_is_refused),
		cmocka_unit_test(read_beyond_the_ird_is_refused),
		cmocka_unit_test(burst_beyond_the_ird_is_answered_by_a_terminate),
		cmocka_unit_test(deregistration_ends_a_read_in_flight),
		cmocka_unit_test(valid_atomic_is_answered),
		cmocka_unit_test(atomic_on_an_unknown_tag_is_refused),
		cmocka_unit_test(atomic_past_the_end_is_refused),
		cmocka_unit_test(atomic_without_the_right_is_refused),
		cmocka_unit_test(atomic_on_a_misaligned_address_is_refused),
		cmocka_unit_test(atomic_of_an_unknown_kind_is_refused),
		cmocka_unit_test(atomic_of_the_wrong_length_is_refused),
		cmocka_unit_test(flush_is_answered_with_and_without_subtypes),
		cmocka_unit_test(unknown_subtype_is_refused),
		cmocka_unit_test(subtype_that_was_not_agreed_on_is_refused),
		cmocka_unit_test(flush_of_the_wrong_length_is_refused),
	};

	return cmocka_run_group_tests_name("request faults", tests, others_open, others_close);
}
