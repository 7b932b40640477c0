// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_faults_ends.c - connections that end in every way and at every moment: by a reset, by a
 * close in the middle of a message, by a Terminate.
 */
#include "raw_peer.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <stag/stagdv.h>

#include "base/clock.h"

#define LEN  4096
#define MUCH (32 << 20) /* more than the socket buffers take */

static const uint8_t junk[LEN] = {[0 ... LEN - 1] = 0xee};
static uint8_t raw[2 * FPDU_MAX_LEN];

static struct region *open_lent(struct scene *s, void **state)
{
	*s = (struct scene){.others = *state};
	scene_open(s, NULL);
	post_receive(&s->us, own_region(&s->us, 64), 0, 64);
	post_receive(&s->us, own_region(&s->us, 64), 0, 64);
	return lend_region(&s->us, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
}

/* ---- resets while the connection is set up ---- */

/* Expects the listener to serve the next connection, whatever the first peer did. */
static void expect_listener_well(struct scene *s)
{
	static const struct raw_wish standard;

	raw_dial(&s->peer, side_port(&s->us));
	raw_send_request(&s->peer, &standard);
	side_take_request(&s->us);
	assert_int_equal(side_accept(&s->us), 0);
	raw_take_reply(&s->peer, &standard);
	expect_cm(&s->us, RDMA_CM_EVENT_ESTABLISHED);
	post_receive(&s->us, own_region(&s->us, 64), 0, 64);
	raw_send(&s->peer, junk, 8);
	expect_received(&s->us, 1);
	raw_finish(&s->peer);
	expect_closed(s);
	scene_close(s);
}

static void reset_before_the_request(void **state)
{
	struct scene s = {.others = *state};

	side_listen(&s.us, NULL);
	raw_dial(&s.peer, side_port(&s.us));
	raw_reset(&s.peer);
	expect_listener_well(&s);
}

static void reset_within_the_request(void **state)
{
	struct scene s = {.others = *state};

	side_listen(&s.us, NULL);
	raw_dial(&s.peer, side_port(&s.us));
	raw_bytes(&s.peer, "MPA ID Req Frame", 16);
	raw_reset(&s.peer);
	expect_listener_well(&s);
}

/*
 * The program is notified of the reset when it accepts, or by an event; at least by one of the two.
 */
static void reset_before_the_accept(void **state)
{
	static const struct raw_wish standard;
	struct scene s = {.others = *state};

	side_listen(&s.us, NULL);
	raw_dial(&s.peer, side_port(&s.us));
	raw_send_request(&s.peer, &standard);
	side_take_request(&s.us);
	post_receive(&s.us, own_region(&s.us, 64), 0, 64);
	raw_reset(&s.peer);
	if (side_accept(&s.us)) {
		assert_int_equal(errno, ECONNRESET);
		ping(s.others);
	} else {
		expect_cm(&s.us, RDMA_CM_EVENT_ESTABLISHED);
		expect_broken(&s, IBV_EVENT_QP_FATAL);
	}
	scene_close(&s);
}

static void reset_after_the_accept(void **state)
{
	struct scene s = {.others = *state};

	side_listen(&s.us, NULL);
	raw_dial(&s.peer, side_port(&s.us));
	raw_send_request(&s.peer, &(struct raw_wish){0});
	side_take_request(&s.us);
	post_receive(&s.us, own_region(&s.us, 64), 0, 64);
	assert_int_equal(side_accept(&s.us), 0);
	raw_reset(&s.peer);
	expect_cm(&s.us, RDMA_CM_EVENT_ESTABLISHED);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	scene_close(&s);
}

/* A peer-to-peer stream is not established before its first message. */
static void reset_before_the_first_message(void **state)
{
	struct scene s = {.others = *state};
	struct scene_wish w = {.peer.p2p = true};
	struct rdma_cm_event *ev;

	scene_open(&s, &w);
	post_receive(&s.us, own_region(&s.us, 64), 0, 64);
	expect_cm_silence(&s.us);
	raw_reset(&s.peer);
	assert_int_equal(rdma_get_cm_event(s.us.events, &ev), 0);
	assert_int_equal(ev->event, RDMA_CM_EVENT_CONNECT_ERROR);
	rdma_ack_cm_event(ev);
	expect_state(&s.us, IBV_QPS_ERR);
	expect_flushed(&s.us);
	while (has_async(&s.us))
		expect_async(&s.us, IBV_EVENT_QP_FATAL);
	ping(s.others);
	scene_close(&s);
}

/* ---- resets and closes in the middle of a message ---- */

enum way { RESET, FINISH };

static void end_within(void **state, enum way way, size_t payload, size_t part)
{
	struct scene s;
	struct region *r = open_lent(&s, state);
	struct ddp_hdr h = write_hdr(r->mr->rkey, (uintptr_t)r->at);
	size_t n = raw_build(&s.peer, &h, junk, payload, raw);

	assert_true(part < n);
	raw_bytes(&s.peer, raw, part);
	if (way == RESET)
		raw_reset(&s.peer);
	else
		raw_finish(&s.peer);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	if (way == FINISH)
		expect_hangup(&s.peer);
	scene_close(&s);
}

static void end_anywhere_within(void **state, enum way way)
{
	end_within(state, way, LEN, 1);	       /* in the length field */
	end_within(state, way, LEN, 10);       /* in the header */
	end_within(state, way, LEN, 16);       /* before the payload */
	end_within(state, way, LEN, 1000);     /* in the payload */
	end_within(state, way, LEN, 16 + LEN); /* before the trailer */
	end_within(state, way, 2, 19);	       /* in the pad */
	end_within(state, way, LEN, 18 + LEN); /* in the CRC */
}

static void reset_within_a_message(void **state)
{
	end_anywhere_within(state, RESET);
}

static void close_within_a_message(void **state)
{
	end_anywhere_within(state, FINISH);
}

static void reset_between_messages(void **state)
{
	struct scene s;

	open_lent(&s, state);
	raw_send(&s.peer, junk, 8);
	expect_received(&s.us, 1);
	raw_reset(&s.peer);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	scene_close(&s);
}

/* An orderly end of a connection raises one event only. */
static void close_between_messages(void **state)
{
	struct scene s;

	open_lent(&s, state);
	raw_send(&s.peer, junk, 8);
	expect_received(&s.us, 1);
	raw_finish(&s.peer);
	expect_closed(&s);
	expect_hangup(&s.peer);
	scene_close(&s);
}

/* Only the first of a message's two segments comes: its receive is flushed, too, once. */
static void close_between_segments(void **state)
{
	struct scene s;
	struct ddp_hdr h;

	open_lent(&s, state);
	h = send_hdr(&s.peer);
	h.last = false;
	raw_segment(&s.peer, &h, junk, 8);
	raw_finish(&s.peer);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	scene_close(&s);
}

/* ---- resets with requests in flight ---- */

static void reset_while_read_responses_wait(void **state)
{
	struct scene s = {.others = *state};
	struct region *r;
	struct rdmap_read_req q = {.sink_stag = 1, .size = MUCH};

	scene_open(&s, NULL);
	r = lend_region(&s.us, MUCH, IBV_ACCESS_REMOTE_READ);
	q.src_stag = r->mr->rkey;
	q.src_to = (uintptr_t)r->at;
	raw_read(&s.peer, &q);
	raw_read(&s.peer, &q);
	ping(s.others);
	raw_reset(&s.peer);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	scene_close(&s);
}

static void reset_while_sends_wait(void **state)
{
	struct scene s = {.others = *state};
	struct scene_wish w = {.we_connect = true};
	struct region *r;

	scene_open(&s, &w);
	r = own_region(&s.us, MUCH);
	for (int i = 0; i < 8; i++)
		post_write(&s.us, r, 0, MUCH, r,
			   0); /* any target will do: the peer does not read */
	post_read(&s.us, r, 0, 64, r, 0);
	post_send(&s.us, r, 0, 64);
	ping(s.others);
	raw_reset(&s.peer);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	scene_close(&s);
}

static void reset_while_a_read_waits(void **state)
{
	struct scene s = {.others = *state};
	struct scene_wish w = {.we_connect = true};
	struct rdmap_read_req q;
	struct region *r;

	scene_open(&s, &w);
	r = own_region(&s.us, LEN);
	for (int i = 0; i < 20; i++)
		post_read(&s.us, r, 0, LEN, r, 0);
	raw_take_read(&s.peer, &q);
	raw_reset(&s.peer);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	scene_close(&s);
}

/* A close by the peer that leaves our reads unanswered is an error. */
static void close_while_a_read_waits(void **state)
{
	struct scene s = {.others = *state};
	struct scene_wish w = {.we_connect = true};
	struct rdmap_read_req q;
	struct region *r;

	scene_open(&s, &w);
	r = own_region(&s.us, LEN);
	post_read(&s.us, r, 0, LEN, r, 0);
	raw_take_read(&s.peer, &q);
	raw_finish(&s.peer);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	scene_close(&s);
}

/* ---- a close by our side ---- */

static void reset_while_we_close(void **state)
{
	struct scene s;

	open_lent(&s, state);
	assert_int_equal(rdma_disconnect(s.us.id), 0);
	expect_hangup(&s.peer); /* our FIN */
	raw_reset(&s.peer);
	expect_disconnected(&s.us);
	expect_state(&s.us, IBV_QPS_ERR);
	expect_flushed(&s.us);
	while (has_async(&s.us))
		expect_async(&s.us, IBV_EVENT_QP_FATAL);
	ping(s.others);
	scene_close(&s);
}

/* The other direction is open until the peer closes it. */
static void messages_after_our_close_are_received(void **state)
{
	struct scene s;
	struct region *r = open_lent(&s, state);

	assert_int_equal(rdma_disconnect(s.us.id), 0);
	expect_hangup(&s.peer); /* our FIN */
	raw_write(&s.peer, r->mr->rkey, (uintptr_t)r->at, junk, LEN);
	raw_send(&s.peer, junk, 8);
	expect_received(&s.us, 1);
	assert_memory_equal(r->at, junk, LEN);
	raw_finish(&s.peer);
	expect_closed(&s);
	expect_no_async(&s.us);
	scene_close(&s);
}

static void fault_while_we_close(void **state)
{
	struct scene s;
	struct region *r = open_lent(&s, state);

	assert_int_equal(rdma_disconnect(s.us.id), 0);
	expect_hangup(&s.peer);
	raw_write(&s.peer, r->mr->rkey ^ 1, (uintptr_t)r->at, junk, LEN);
	expect_broken(&s, IBV_EVENT_QP_ACCESS_ERR); /* too late for a Terminate */
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

/* ---- Terminates from the peer ---- */

/* Opens a scene with reads (1, 2) and a send (3) in flight; the peer has the first request. */
static void open_with_reads_in_flight(struct scene *s, void **state, struct rdmap_read_req *q)
{
	struct scene_wish w = {.we_connect = true};
	struct region *r;

	*s = (struct scene){.others = *state};
	scene_open(s, &w);
	r = own_region(&s->us, LEN);
	post_read(&s->us, r, 0, LEN, r, 0);
	post_read(&s->us, r, 0, LEN, r, 0);
	post_send(&s->us, r, 0, 64);
	post_receive(&s->us, r, 0, 64);
	raw_take_read(&s->peer, q);
}

/* Sends a Terminate for the segment whose header is h; siw: in siw's encoding. */
static void terminate_about(struct scene *s, struct wire_fault fault, const struct ddp_hdr *h,
			    const struct rdmap_read_req *q)
{
	uint8_t seg[DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN], payload[TERMINATE_MAX];
	struct terminate t;
	size_t len = h ? ddp_encode(h, seg) : 0;

	if (q) {
		rdmap_put_read_req(seg + len, q);
		len += RDMAP_READ_REQ_LEN;
	}
	terminate_init(&t, fault, h ? seg : NULL, len, len);
	raw_terminate(&s->peer, payload, terminate_encode(&t, payload));
}

static const struct ddp_hdr first_read = {
	.last = true, .opcode = RDMAP_READ_REQ, .qn = QN_READ, .msn = 1};

static void expect_terminated(struct scene *s)
{
	expect_broken(s, IBV_EVENT_QP_FATAL);
	expect_hangup_at_last(&s->peer);
	scene_close(s);
}

static void terminate_about_a_read_fails_it(void **state)
{
	struct scene s;
	struct rdmap_read_req q;

	open_with_reads_in_flight(&s, state, &q);
	terminate_about(&s, FAULT_RDMAP_INVALID_STAG, &first_read, &q);
	expect_failed(&s.us, 1, IBV_WC_REM_ACCESS_ERR);
	expect_terminated(&s);
}

/* A peer may refuse a request before it has answered the earlier ones. */
static void terminate_about_the_second_read_fails_it(void **state)
{
	const struct ddp_hdr second_read = {
		.last = true, .opcode = RDMAP_READ_REQ, .qn = QN_READ, .msn = 2};
	struct scene s;
	struct rdmap_read_req q;

	open_with_reads_in_flight(&s, state, &q);
	raw_take_read(&s.peer, &q);
	terminate_about(&s, FAULT_RDMAP_INVALID_STAG, &second_read, &q);
	expect_failed(&s.us, 1, IBV_WC_WR_FLUSH_ERR);
	expect_failed(&s.us, 2, IBV_WC_REM_ACCESS_ERR);
	expect_terminated(&s);
}

/* The Terminate names a read that was never sent: no read is blamed for it. */
static void terminate_about_no_read_of_ours_flushes_all(void **state)
{
	static const uint32_t msns[] = {0, 3, UINT32_MAX};

	for (size_t i = 0; i < sizeof(msns) / sizeof(*msns); i++) {
		const struct ddp_hdr none = {
			.last = true, .opcode = RDMAP_READ_REQ, .qn = QN_READ, .msn = msns[i]};
		struct scene s;
		struct rdmap_read_req q;

		open_with_reads_in_flight(&s, state, &q);
		raw_take_read(&s.peer, &q);
		terminate_about(&s, FAULT_RDMAP_INVALID_STAG, &none, &q);
		expect_failed(&s.us, 1, IBV_WC_WR_FLUSH_ERR);
		expect_failed(&s.us, 2, IBV_WC_WR_FLUSH_ERR);
		expect_terminated(&s);
	}
}

static void terminate_about_an_operation_fails_it(void **state)
{
	struct scene s;
	struct rdmap_read_req q;

	open_with_reads_in_flight(&s, state, &q);
	terminate_about(&s, FAULT_RDMAP_STREAM, &first_read, &q);
	expect_failed(&s.us, 1, IBV_WC_REM_OP_ERR);
	expect_terminated(&s);
}

/* siw swaps nibbles and bits, sets R, and appends no request. */
static void terminate_of_siw_is_decoded(void **state)
{
	static const uint8_t siw[] = {0x10, 0x00, 0x07, 0x00, 0x00, 0x1c, 0x41, 0x41, 0, 0, 0, 0,
				      0,    0,	  0,	1,    0,    0,	  0,	1,    0, 0, 0, 0};
	struct scene s;
	struct rdmap_read_req q;

	open_with_reads_in_flight(&s, state, &q);
	raw_terminate(&s.peer, siw, sizeof(siw));
	expect_failed(&s.us, 1, IBV_WC_REM_ACCESS_ERR);
	expect_terminated(&s);
}

/* The Terminate is about a send: no read is to blame, all requests are flushed. */
static void terminate_about_a_send_blames_no_read(void **state)
{
	struct ddp_hdr send = {.last = true, .opcode = RDMAP_SEND_INV, .qn = QN_SEND, .msn = 1};
	struct scene s;
	struct rdmap_read_req q;

	open_with_reads_in_flight(&s, state, &q);
	terminate_about(&s, FAULT_RDMAP_OP_CANT_INV, &send, NULL);
	expect_terminated(&s);
}

static void terminate_about_a_write_blames_no_read(void **state)
{
	struct ddp_hdr write = write_hdr(1, 2);
	struct scene s;
	struct rdmap_read_req q;

	open_with_reads_in_flight(&s, state, &q);
	terminate_about(&s, FAULT_RDMAP_ACCESS, &write, NULL);
	expect_terminated(&s);
}

static void terminate_of_other_layers_flushes_all(void **state)
{
	struct scene s;
	struct rdmap_read_req q;
	struct ddp_hdr write = write_hdr(1, 2);

	open_with_reads_in_flight(&s, state, &q);
	terminate_about(&s, FAULT_DDP_BASE_BOUNDS, &write, NULL);
	expect_terminated(&s);
	open_with_reads_in_flight(&s, state, &q);
	terminate_about(&s, FAULT_MPA_CRC, NULL, NULL);
	expect_terminated(&s);
}

/* A Terminate ends the connection, however short it is and whatever it says. */
static void terminate_of_any_length_ends_the_connection(void **state)
{
	for (size_t len = 0; len < 40; len += 3) {
		uint8_t payload[64];
		struct scene s;

		memset(payload, 0xff, sizeof(payload));
		open_lent(&s, state);
		raw_terminate(&s.peer, payload, len);
		expect_terminated(&s);
	}
}

/* Bytes that a peer sends behind its Terminate are ignored. */
static void bytes_after_a_terminate_are_ignored(void **state)
{
	static const uint8_t why[4] = {0x20, 0x01};
	struct scene s;
	struct region *r = open_lent(&s, state);

	raw_terminate(&s.peer, why, sizeof(why));
	raw_write(&s.peer, r->mr->rkey, (uintptr_t)r->at, junk, LEN);
	raw_send(&s.peer, junk, 8);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	expect_zeroes(r->at, LEN);
	expect_hangup_at_last(&s.peer);
	scene_close(&s);
}

/* Bytes that a peer sends behind a message that was refused are ignored, too. */
static void bytes_after_a_fault_are_ignored(void **state)
{
	struct scene s;
	struct region *r = open_lent(&s, state);
	struct ddp_hdr good = write_hdr(r->mr->rkey, (uintptr_t)r->at);
	struct ddp_hdr bad = write_hdr(r->mr->rkey ^ 1, (uintptr_t)r->at);
	size_t n = raw_build(&s.peer, &good, junk, 8, raw);
	struct raw_peer blamed;

	n += raw_build(&s.peer, &bad, junk, 8, raw + n);
	blamed = s.peer;
	good.to += 8;
	n += raw_build(&s.peer, &good, junk, 8, raw + n);
	raw_bytes(&s.peer, raw, n);
	memcpy(s.peer.last, blamed.last, sizeof(blamed.last));
	expect_refused(&s, FAULT_DDP_INVALID_STAG, IBV_EVENT_QP_ACCESS_ERR);
	assert_memory_equal(r->at, junk, 8);
	expect_zeroes(r->at + 8, LEN - 8);
	scene_close(&s);
}

static uint64_t wakeups(const struct scene *s)
{
	struct stagdv_counters c;

	assert_int_equal(stagdv_query_counters(s->us.ctx, &c, sizeof(c)), 0);
	return c.engine_wakeups;
}

static uint64_t bytes_out(const struct scene *s)
{
	struct stagdv_counters c;

	assert_int_equal(stagdv_query_qp_counters(s->us.qp, &c, sizeof(c)), 0);
	return c.tx_bytes;
}

/* Returns whether nothing is sent for a moment. */
static bool is_stuck(const struct scene *s)
{
	uint64_t before = bytes_out(s);

	poll(NULL, 0, 20);
	return bytes_out(s) == before;
}

/* Waiting for a peer that neither reads our Terminate nor closes uses no processor time. */
static void waiting_for_the_peer_to_close_is_idle(void **state)
{
	struct scene s = {.others = *state};
	struct rdmap_read_req q = {.sink_stag = 1, .size = MUCH};
	struct region *r;
	uint64_t before, began;

	scene_open(&s, NULL);
	r = lend_region(&s.us, MUCH, IBV_ACCESS_REMOTE_READ);
	q.src_stag = r->mr->rkey;
	q.src_to = (uintptr_t)r->at;
	for (int i = 0; i < 6;
	     i++) { /* each makes the adapter try again, until the socket buffers are full */
		raw_read(&s.peer, &q);
		await(is_stuck(&s));
	}
	raw_write(&s.peer, 0, 0, junk, 8);
	expect_broken(&s, IBV_EVENT_QP_ACCESS_ERR);
	before = wakeups(&s);
	began = clock_ns();
	poll(NULL, 0, 100);
	assert_in_range(wakeups(&s) - before, 0, (clock_ns() - began) / NS_PER_MS);
	expect_hangup_at_last(&s.peer);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reset_before_the_request),
		cmocka_unit_test(reset_within_the_request),
		cmocka_unit_test(reset_before_the_accept),
		cmocka_unit_test(reset_after_the_accept),
		cmocka_unit_test(reset_before_the_first_message),
		cmocka_unit_test(reset_within_a_message),
		cmocka_unit_test(close_within_a_message),
		cmocka_unit_test(reset_between_messages),
		cmocka_unit_test(close_between_messages),
		cmocka_unit_test(close_between_segments),
		cmocka_unit_test(reset_while_read_responses_wait),
		cmocka_unit_test(reset_while_sends_wait),
		cmocka_unit_test(reset_while_a_read_waits),
		cmocka_unit_test(close_while_a_read_waits),
		cmocka_unit_test(reset_while_we_close),
		cmocka_unit_test(messages_after_our_close_are_received),
		cmocka_unit_test(fault_while_we_close),
		cmocka_unit_test(terminate_about_a_read_fails_it),
		cmocka_unit_test(terminate_about_the_second_read_fails_it),
		cmocka_unit_test(terminate_about_no_read_of_ours_flushes_all),
		cmocka_unit_test(terminate_about_an_operation_fails_it),
		cmocka_unit_test(terminate_of_siw_is_decoded),
		cmocka_unit_test(terminate_about_a_send_blames_no_read),
		cmocka_unit_test(terminate_about_a_write_blames_no_read),
		cmocka_unit_test(terminate_of_other_layers_flushes_all),
		cmocka_unit_test(terminate_of_any_length_ends_the_connection),
		cmocka_unit_test(bytes_after_a_terminate_are_ignored),
		cmocka_unit_test(bytes_after_a_fault_are_ignored),
		cmocka_unit_test(waiting_for_the_peer_to_close_is_idle),
	};

	return cmocka_run_group_tests_name("ends", tests, others_open, others_close);
}
