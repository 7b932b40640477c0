// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_one_shot_wire.c - one-shot sends as bytes: the FPDUs sent, in each encoding and to a
 * standard peer; and invalid closes and opcodes from a bare socket.
 */
#include "raw_peer.h"
#include "shot.h"

#include <stdlib.h>
#include <string.h>

#define LEN 4096

static const uint8_t junk[BODY] = {[0 ... BODY - 1] = 0xee};

/*
 * The raw peer connects and offers one-shot sends; our side chooses the encoding (STAG_ONE_SHOT).
 */
static void open_to_stag(struct scene *s, void **state)
{
	struct scene_wish w = {.peer = {.extensions = true, .one_shot = SHOT_OPCODES}};

	*s = (struct scene){.others = *state};
	scene_open(s, &w);
	assert_int_not_equal(s->peer.one_shot, SHOT_NONE);
	assert_int_equal(encoding(&s->us), s->peer.one_shot);
}

static void open_to_standard(struct scene *s, void **state)
{
	*s = (struct scene){.others = *state};
	scene_open(s, NULL);
	assert_int_equal(encoding(&s->us), STAGDV_ONE_SHOT_NONE);
}

/* Posts a command, and checks it as the peer receives it. Returns its STag. */
static uint32_t send_command_to_peer(struct scene *s, struct region *r, unsigned flags,
				     uint32_t reference, struct raw_fpdu *f)
{
	struct region *body = own_region(&s->us, BODY);
	struct ibv_sge sge = piece(r, 0, r->len);
	struct lend l = {.memory = &sge, .n = 1, .iova = 0, .reference = reference, .flags = flags};
	uint32_t stag;
	uint64_t id = advertise(&s->us, body, &l, &stag);

	raw_take(&s->peer, f);
	expect_sent(&s->us, id);
	assert_int_equal(f->len, BODY);
	assert_int_equal(get_be32(f->payload), stag);
	return stag;
}

/* Returns the header of a close by the peer, in its encoding. */
static struct ddp_hdr close_hdr(struct scene *s, uint32_t stag)
{
	struct ddp_hdr h = send_hdr(&s->peer);

	h.opcode = RDMAP_SEND_CLOSE;
	h.ulp = stag;
	rdmap_shot_to_wire(&h, s->peer.one_shot);
	return h;
}

static void end_well(struct scene *s)
{
	raw_finish(&s->peer);
	expect_closed(s);
	assert_int_equal(open_stags(s->us.ctx), 0);
	scene_close(s);
}

/* ---- sent ---- */

static void one_shot_header_carries_the_stag(void **state)
{
	struct raw_fpdu *f = malloc(sizeof(*f));
	struct scene s;
	uint32_t stag;
	uint64_t id;

	open_to_stag(&s, state);
	stag = send_command_to_peer(&s, own_region(&s.us, LEN), 0, 1, f);
	assert_false(rdmap_shot_from_wire(&f->h, s.peer.one_shot).set);
	assert_int_equal(f->h.opcode, RDMAP_SEND_ADVERTISE);
	assert_int_equal(f->h.ulp, stag);
	id = close_stag(&s.us, NULL, 0x11223344, 0);
	raw_take(&s.peer, f);
	expect_sent(&s.us, id);
	assert_false(rdmap_shot_from_wire(&f->h, s.peer.one_shot).set);
	assert_int_equal(f->h.opcode, RDMAP_SEND_CLOSE);
	assert_int_equal(f->h.ulp, 0x11223344);
	free(f);
	end_well(&s);
}

/* The side that accepts chooses the encoding; the side that connects supports each of them. */
static void connecting_side_accepts_every_encoding(void **state)
{
	struct raw_fpdu *f = malloc(sizeof(*f));

	for (enum shot_encoding e = SHOT_LITERAL; e <= SHOT_BITS; e++) {
		struct scene_wish w = {.we_connect = true,
				       .peer = {.extensions = true, .one_shot = e}};
		struct scene s = {.others = *state};
		struct ddp_hdr h;
		uint32_t stag;
		uint64_t in;

		scene_open(&s, &w);
		assert_int_equal(encoding(&s.us), e);
		in = post_receive(&s.us, own_region(&s.us, BODY), 0, BODY);
		stag = send_command_to_peer(&s, own_region(&s.us, LEN), 0, e, f);
		assert_false(rdmap_shot_from_wire(&f->h, e).set);
		assert_int_equal(f->h.opcode, RDMAP_SEND_ADVERTISE);
		assert_int_equal(f->h.ulp, stag);
		h = close_hdr(&s, stag);
		raw_segment(&s.peer, &h, junk, BODY);
		expect_end(&s.us, in, stag, e);
		end_well(&s);
	}
	free(f);
}

/* No bit is set that RFC 5040 and 5041 do not define. */
static void standard_peer_sees_standard_bytes(void **state)
{
	static const struct {
		unsigned flags;
		uint8_t advertise, close;
	} wanted[] = {{0, RDMAP_SEND, RDMAP_SEND_INV},
		      {IBV_SEND_SOLICITED, RDMAP_SEND_SE, RDMAP_SEND_SE_INV}};
	struct raw_fpdu *f = malloc(sizeof(*f));
	struct scene s;
	uint64_t id;

	open_to_standard(&s, state);
	for (unsigned i = 0; i < 2; i++) {
		send_command_to_peer(&s, own_region(&s.us, LEN), wanted[i].flags, 1, f);
		assert_int_equal(f->h.opcode, wanted[i].advertise);
		assert_int_equal(f->h.ulp, 0);
		assert_int_equal(f->h.bits | f->h.rsv, 0);
		id = close_stag(&s.us, NULL, 0x11223344, wanted[i].flags);
		raw_take(&s.peer, f);
		expect_sent(&s.us, id);
		assert_int_equal(f->h.opcode, wanted[i].close);
		assert_int_equal(f->h.ulp, 0x11223344);
		assert_int_equal(f->h.bits | f->h.rsv, 0);
	}
	free(f);
	end_well(&s);
}

/* ---- received ---- */

static void standard_peer_closes_by_send_with_invalidate(void **state)
{
	struct raw_fpdu *f = malloc(sizeof(*f));
	struct scene s;
	struct region *r;
	uint64_t in;
	uint32_t stag;

	open_to_standard(&s, state);
	r = own_region(&s.us, LEN);
	in = post_receive(&s.us, own_region(&s.us, BODY), 0, BODY);
	stag = send_command_to_peer(&s, r, 0, 42, f);
	raw_write(&s.peer, stag, 10, junk, 20);
	raw_send_inv(&s.peer, stag, junk, 5);
	expect_end(&s.us, in, stag, 42);
	assert_memory_equal(r->at + 10, junk, 20);
	free(f);
	end_well(&s);
}

/* A close in two segments closes the STag with the last one. */
static void close_in_two_segments_takes_effect_with_the_last(void **state)
{
	struct raw_fpdu *f = malloc(sizeof(*f));
	struct scene s;
	struct ddp_hdr h;
	uint64_t in;
	uint32_t stag;

	open_to_stag(&s, state);
	in = post_receive(&s.us, own_region(&s.us, BODY), 0, BODY);
	stag = send_command_to_peer(&s, own_region(&s.us, LEN), 0, 42, f);
	h = close_hdr(&s, stag);
	h.last = false;
	raw_segment(&s.peer, &h, junk, 8);
	raw_write(&s.peer, stag, 0, junk, 20); /* the STag is still open in between */
	h.last = true;
	h.mo = 8;
	raw_segment(&s.peer, &h, junk, 8);
	expect_end(&s.us, in, stag, 42);
	free(f);
	end_well(&s);
}

/* Reserved bits of a peer that did not agree on extensions are ignored. */
static void one_shot_bits_of_a_standard_peer_are_ignored(void **state)
{
	struct raw_fpdu *f = malloc(sizeof(*f));
	struct scene s;
	struct ddp_hdr h;
	uint64_t in;
	uint32_t stag;

	open_to_standard(&s, state);
	in = post_receive(&s.us, NULL, 0, 0);
	stag = send_command_to_peer(&s, own_region(&s.us, LEN), 0, 42, f);
	h = send_hdr(&s.peer);
	h.bits = DDP_CLOSE;
	h.ulp = stag;
	raw_segment(&s.peer, &h, NULL, 0);
	assert_int_equal(expect_received(&s.us, in).wc_flags, 0);
	assert_int_equal(life_of(s.us.ctx, stag).end, STAGDV_STAG_OPEN);
	free(f);
	end_well(&s);
}

/* ---- refused ---- */

static void refused(struct scene *s, const struct ddp_hdr *h, struct wire_fault fault,
		    enum ibv_event_type event)
{
	raw_segment(&s->peer, h, junk, BODY);
	expect_refused(s, fault, event);
	assert_int_equal(open_stags(s->us.ctx), 0);
	scene_close(s);
}

static void opcode_is_refused(void **state, bool stag_peer, uint8_t opcode, uint8_t bits,
			      struct wire_fault fault)
{
	struct scene s;
	struct ddp_hdr h;

	if (stag_peer)
		open_to_stag(&s, state);
	else
		open_to_standard(&s, state);
	post_receive(&s.us, own_region(&s.us, BODY), 0, BODY);
	h = send_hdr(&s.peer);
	h.opcode = opcode;
	h.bits = bits;
	refused(&s, &h, fault, IBV_EVENT_QP_REQ_ERR);
}

static void one_shot_opcodes_of_a_standard_peer_are_refused(void **state)
{
	opcode_is_refused(state, false, 0xc, 0, FAULT_RDMAP_OPCODE);
	opcode_is_refused(state, false, 0xd, 0, FAULT_RDMAP_OPCODE);
}

static void opcodes_of_another_encoding_are_refused(void **state)
{
	struct scene s;
	enum shot_encoding e;

	open_to_stag(&s, state);
	e = s.peer.one_shot;
	end_well(&s);
	if (e == SHOT_LITERAL) {
		opcode_is_refused(state, true, 0xd, 0, FAULT_RDMAP_OPCODE);
		opcode_is_refused(state, true, RDMAP_IMM_SE, 0, FAULT_RDMAP_OPCODE);
	} else if (e == SHOT_BITS) {
		opcode_is_refused(state, true, 0xc, 0, FAULT_RDMAP_OPCODE);
		opcode_is_refused(state, true, RDMAP_SEND, DDP_CLOSE | DDP_ADVERTISE,
				  FAULT_RDMAP_OP_OTHER);
		opcode_is_refused(state, true, RDMAP_SEND_INV, DDP_CLOSE, FAULT_RDMAP_OP_OTHER);
	}
}

/* Expects an invalid close to be refused; other connections, and their STags, are unchanged. */
static void close_is_refused(struct scene *s, uint32_t stag, struct wire_fault fault,
			     enum ibv_event_type event)
{
	uint64_t in = post_receive(&s->us, own_region(&s->us, BODY), 0, BODY);
	struct ddp_hdr h = close_hdr(s, stag);

	raw_segment(&s->peer, &h, junk, BODY);
	assert_int_equal(expect_failed(&s->us, in, IBV_WC_REM_INV_REQ_ERR).vendor_err, stag);
	expect_refused(s, fault, event);
}

static void close_of_a_stag_that_is_not_open_is_refused(void **state)
{
	struct scene s;

	open_to_stag(&s, state);
	close_is_refused(&s, 0x12345678, FAULT_RDMAP_OP_CANT_INV, IBV_EVENT_QP_REQ_ERR);
	scene_close(&s);
}

static void close_of_another_connections_stag_is_refused(void **state)
{
	struct pair *others = *state;
	struct region *r = own_region(&others->a, LEN), *body = own_region(&others->a, BODY),
		      *got = own_region(&others->b, BODY);
	struct ibv_sge sge = piece(r, 0, LEN);
	struct lend l = {.memory = &sge, .n = 1, .reference = 6};
	uint64_t in = post_receive(&others->b, got, 0, BODY), end;
	uint32_t stag;
	struct scene s;

	expect_sent(&others->a, advertise(&others->a, body, &l, &stag));
	expect_command(&others->b, in, got);
	open_to_stag(&s, state);
	close_is_refused(&s, stag, FAULT_RDMAP_PROT_CANT_INV, IBV_EVENT_QP_ACCESS_ERR);
	scene_close(&s);
	end = post_receive(&others->a, NULL, 0, 0);
	expect_sent(&others->b, close_stag(&others->b, NULL, stag, 0));
	expect_end(&others->a, end, stag, 6);
}

static void killed_peer_leaves_no_stag_open(void **state)
{
	struct raw_fpdu *f = malloc(sizeof(*f));
	struct scene s;
	uint32_t stag;

	open_to_stag(&s, state);
	stag = send_command_to_peer(&s, own_region(&s.us, LEN), 0, 1, f);
	raw_reset(&s.peer);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	assert_int_equal(life_of(s.us.ctx, stag).end, STAGDV_STAG_ORPHANED);
	free(f);
	scene_close(&s);
}

/* ---- responses in flight ---- */

#define LONG (8u << 20)

static void request_read(struct scene *s, uint32_t stag, uint32_t size)
{
	struct rdmap_read_req r = {.sink_stag = stag, .size = size, .src_stag = stag};

	raw_read(&s->peer, &r);
}

static void take_read_response(struct scene *s, uint32_t size, struct raw_fpdu *f)
{
	for (; size; size -= (uint32_t)f->len) {
		raw_take(&s->peer, f);
		assert_int_equal(f->h.opcode, RDMAP_READ_RESP);
		assert_in_range(f->len, 1, size);
	}
}

/*
 * The peer posts many reads, and closes each STag as soon as it has its bytes, while the next
 * response waits for room in the stream: sent data needs its memory no more.
 */
static void stag_can_be_closed_while_the_next_read_response_waits(void **state)
{
	struct raw_fpdu *f = malloc(sizeof(*f));
	struct scene s;
	uint32_t stags[6];
	uint64_t in[6];

	open_to_stag(&s, state);
	for (uint32_t i = 0; i < 6; i++) {
		in[i] = post_receive(&s.us, own_region(&s.us, BODY), 0, BODY);
		stags[i] = send_command_to_peer(&s, own_region(&s.us, i % 2 ? LEN : LONG / 2), 0, i,
						f);
	}
	for (uint32_t i = 0; i < 6; i++)
		request_read(&s, stags[i], i % 2 ? LEN : LONG / 2);
	for (uint32_t i = 0; i < 6; i++) {
		struct ddp_hdr h = close_hdr(&s, stags[i]);

		take_read_response(&s, i % 2 ? LEN : LONG / 2, f);
		raw_segment(&s.peer, &h, junk, BODY);
		expect_end(&s.us, in[i], stags[i], i);
	}
	free(f);
	end_well(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_shot_header_carries_the_stag),
		cmocka_unit_test(connecting_side_accepts_every_encoding),
		cmocka_unit_test(standard_peer_sees_standard_bytes),
		cmocka_unit_test(standard_peer_closes_by_send_with_invalidate),
		cmocka_unit_test(close_in_two_segments_takes_effect_with_the_last),
		cmocka_unit_test(one_shot_bits_of_a_standard_peer_are_ignored),
		cmocka_unit_test(one_shot_opcodes_of_a_standard_peer_are_refused),
		cmocka_unit_test(opcodes_of_another_encoding_are_refused),
		cmocka_unit_test(close_of_a_stag_that_is_not_open_is_refused),
		cmocka_unit_test(close_of_another_connections_stag_is_refused),
		cmocka_unit_test(killed_peer_leaves_no_stag_open),
		cmocka_unit_test(stag_can_be_closed_while_the_next_read_response_waits),
	};

	return cmocka_run_group_tests_name("one_shot_wire", tests, others_open, others_close);
}
