// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_faults_framing.c - bytes that are no FPDUs, or whose headers are invalid: CRCs, lengths,
 * markers, versions, opcodes; and announced segments that do not come.
 */
#include "raw_peer.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

#define LEN 60000

static uint8_t junk[LEN];
static uint8_t raw[2 * FPDU_MAX_LEN];

static struct region *open_lent(struct scene *s, void **state, const struct raw_wish *peer)
{
	struct scene_wish w = {.peer = peer ? *peer : (struct raw_wish){0}};
	struct region *r;

	*s = (struct scene){.others = *state};
	memset(junk, 0xee, sizeof(junk));
	scene_open(s, &w);
	r = lend_region(&s->us, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	post_receive(&s->us, own_region(&s->us, 64), 0, 64);
	return r;
}

static struct ddp_hdr write_to(const struct region *r)
{
	return write_hdr(r->mr->rkey, (uintptr_t)r->at);
}

/* ---- CRCs ---- */

/* Skips a test that does not fit this way of framing. */
static void skip_unless(struct scene *s, bool fits)
{
	if (fits)
		return;
	scene_close(s);
	skip();
}

static void need_crc(struct scene *s)
{
	skip_unless(s, s->peer.crc);
}

/* No byte of a short FPDU is placed before its CRC has been checked. */
static void short_fpdu_with_a_bad_crc_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = write_to(r);
	size_t n = raw_build(&s.peer, &h, junk, 1000, raw);

	need_crc(&s);
	raw[n - 1] ^= 1;
	raw_bytes(&s.peer, raw, n);
	expect_refused(&s, FAULT_MPA_CRC, IBV_EVENT_QP_FATAL);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void flipped_header_bit_is_refused(void **state)
{
	for (int i = 0; i < (MPA_LEN_FIELD + DDP_TAGGED_LEN) * 8; i += 5) {
		struct scene s;
		struct region *r = open_lent(&s, state, NULL);
		struct ddp_hdr h = write_to(r);
		size_t n = raw_build(&s.peer, &h, junk, 100, raw);

		need_crc(&s);
		if (i < 16 || s.peer.markers_tx) { /* lengths and markers: see below */
			scene_close(&s);
			continue;
		}
		raw[i / 8] ^= (uint8_t)(0x80 >> i % 8);
		raw_bytes(&s.peer, raw, n);
		expect_refused(&s, FAULT_MPA_CRC, IBV_EVENT_QP_FATAL);
		expect_zeroes(r->at, LEN);
		scene_close(&s);
	}
}

/* The payload of a long FPDU is placed as it comes, but nowhere else. */
static void long_fpdu_with_a_bad_crc_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = write_hdr(r->mr->rkey, (uintptr_t)r->at + 100);
	size_t n = raw_build(&s.peer, &h, junk, 50000, raw);

	need_crc(&s);
	raw[n / 2] ^= 1;
	raw_bytes(&s.peer, raw, n);
	expect_refused(&s, FAULT_MPA_CRC, IBV_EVENT_QP_FATAL);
	expect_zeroes(r->at, 100);
	expect_zeroes(r->at + 50100, LEN - 50100);
	scene_close(&s);
}

static void crc_covers_the_pad(void **state)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = write_to(r);
	size_t n = raw_build(&s.peer, &h, junk, 3, raw); /* 2 + 14 + 3 bytes, and one byte of pad */

	need_crc(&s);
	raw[n - MPA_CRC_LEN - 1] = 0xff;
	raw_bytes(&s.peer, raw, n);
	expect_refused(&s, FAULT_MPA_CRC, IBV_EVENT_QP_FATAL);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void good_fpdus_before_a_bad_one_are_delivered(void **state)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = write_to(r);
	size_t n, m;

	need_crc(&s);
	raw_send(&s.peer, junk, 10);
	n = raw_build(&s.peer, &h, junk, 10, raw);
	h.to += 10;
	m = raw_build(&s.peer, &h, junk, 10, raw + n);
	raw[n + m - 1] ^= 1;
	raw_bytes(&s.peer, raw, n + m);
	expect_received(&s.us, 1);
	expect_refused(&s, FAULT_MPA_CRC, IBV_EVENT_QP_FATAL);
	assert_memory_equal(r->at, junk, 10);
	expect_zeroes(r->at + 10, LEN - 10);
	scene_close(&s);
}

/* If no side requested CRCs, the field may hold anything. */
static void crc_field_is_ignored_if_crc_is_off(void **state)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = write_to(r);
	size_t n = raw_build(&s.peer, &h, junk, 1000, raw);

	skip_unless(&s, !s.peer.crc);
	raw[n - 1] ^= 1;
	raw_bytes(&s.peer, raw, n);
	raw_send(&s.peer, junk, 10);
	expect_received(&s.us, 1);
	assert_memory_equal(r->at, junk, 1000);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

/* ---- lengths ---- */

/* Sends a ULPDU of len bytes that begin like a good write or send. */
static void truncated(void **state, bool tagged, size_t len)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = tagged ? write_to(r) : send_hdr(&s.peer);
	uint8_t ulpdu[DDP_MAX_HDR];

	ddp_encode(&h, ulpdu);
	raw_bytes(&s.peer, raw, raw_frame(&s.peer, ulpdu, len, raw));
	/* more bytes, so that the receiver has enough to parse */
	raw_write(&s.peer, r->mr->rkey, (uintptr_t)r->at, junk, 100);
	expect_refused(&s, FAULT_MPA_MARKER, IBV_EVENT_QP_FATAL);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void fpdu_without_a_whole_header_is_refused(void **state)
{
	truncated(state, true, 0);
	truncated(state, true, 1);
	truncated(state, true, 2);
	truncated(state, true, DDP_TAGGED_LEN - 1);
	truncated(state, false, DDP_TAGGED_LEN);
	truncated(state, false, DDP_UNTAGGED_LEN - 1);
}

/* A wrong length is found by the CRC, if nothing else finds it first. */
static void wrong_length(void **state, int by)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = write_to(r);
	size_t n = raw_build(&s.peer, &h, junk, 1000, raw);
	size_t at = s.peer.markers_tx ? MARKER_LEN : 0;

	need_crc(&s);
	put_be16(raw + at, (uint16_t)(get_be16(raw + at) + by));
	raw_bytes(&s.peer, raw, n);
	raw_bytes(&s.peer, junk, 4096);
	expect_refused(&s, FAULT_MPA_CRC, IBV_EVENT_QP_FATAL);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void wrong_length_is_refused(void **state)
{
	wrong_length(state, -4);
	wrong_length(state, 4);
	wrong_length(state, 1);
	wrong_length(state, 2000);
}

/* Sends the longest ULPDU that the length field can express; no buffer is large enough for it. */
static void longest_fpdu_is_refused(void **state, uint8_t opcode, bool tagged,
				    struct wire_fault fault, enum ibv_event_type event)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = tagged ? write_to(r) : send_hdr(&s.peer);
	uint8_t *much = calloc(1, 65536);

	h.opcode = opcode;
	h.qn = opcode == RDMAP_READ_REQ ? QN_READ : opcode == RDMAP_TERMINATE ? QN_TERMINATE : 0;
	raw_segment(&s.peer, &h, much, 65535 - (tagged ? DDP_TAGGED_LEN : DDP_UNTAGGED_LEN));
	free(much);
	if (opcode == RDMAP_SEND)
		expect_failed(&s.us, 1, IBV_WC_LOC_LEN_ERR);
	if (fault.set)
		expect_refused(&s, fault, event);
	else
		expect_broken(&s, event);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void longest_write_is_refused(void **state)
{
	longest_fpdu_is_refused(state, RDMAP_WRITE, true, FAULT_DDP_BASE_BOUNDS,
				IBV_EVENT_QP_ACCESS_ERR);
}

static void longest_send_is_refused(void **state)
{
	longest_fpdu_is_refused(state, RDMAP_SEND, false, FAULT_DDP_TOO_LONG, IBV_EVENT_QP_REQ_ERR);
}

static void longest_read_request_is_refused(void **state)
{
	longest_fpdu_is_refused(state, RDMAP_READ_REQ, false, FAULT_RDMAP_OP_OTHER,
				IBV_EVENT_QP_REQ_ERR);
}

static void longest_terminate_ends_the_connection(void **state)
{
	longest_fpdu_is_refused(state, RDMAP_TERMINATE, false, WIRE_OK, IBV_EVENT_QP_FATAL);
}

/* ---- markers ---- */

static void marker_with_a_wrong_pointer_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = write_to(r);
	size_t n = raw_build(&s.peer, &h, junk, 1000, raw);

	skip_unless(&s, s.peer.markers_tx);
	raw[MARKER_INTERVAL + 3] ^= 0x04;
	if (s.peer.crc)
		crc32c_put(raw + n - MPA_CRC_LEN, crc32c_update(CRC32C_INIT, raw, n - MPA_CRC_LEN));
	raw_bytes(&s.peer, raw, n);
	expect_refused(&s, FAULT_MPA_MARKER, IBV_EVENT_QP_FATAL);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

/* ---- versions and opcodes ---- */

static void control_bytes(void **state, uint8_t first, uint8_t second, struct wire_fault fault)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	bool tagged = first & DDP_T;
	struct ddp_hdr h = tagged ? write_to(r) : send_hdr(&s.peer);
	uint8_t ulpdu[DDP_MAX_HDR + 16] = {0};
	size_t len;

	len = ddp_encode(&h, ulpdu) + 16;
	ulpdu[0] = first;
	ulpdu[1] = second;
	raw_bytes(&s.peer, raw, raw_frame(&s.peer, ulpdu, len, raw));
	expect_refused(&s, fault, IBV_EVENT_QP_REQ_ERR);
	expect_zeroes(r->at, LEN);
	scene_close(&s);
}

static void bad_ddp_version_is_refused(void **state)
{
	for (uint8_t v = 0; v < 4; v++) {
		struct scene s;
		struct region *r;
		uint8_t ulpdu[DDP_MAX_HDR + 16] = {0};
		struct ddp_hdr h;
		size_t len;

		if (v == 1)
			continue;
		control_bytes(state, DDP_L | v, 0x43, FAULT_DDP_UNTAGGED_VERSION);
		r = open_lent(&s, state, NULL);
		h = write_to(r);
		len = ddp_encode(&h, ulpdu) + 16;
		ulpdu[0] = DDP_T | DDP_L | v;
		raw_bytes(&s.peer, raw, raw_frame(&s.peer, ulpdu, len, raw));
		expect_refused(&s, FAULT_DDP_TAGGED_VERSION, IBV_EVENT_QP_ACCESS_ERR);
		expect_zeroes(r->at, LEN);
		scene_close(&s);
	}
}

static void bad_rdmap_version_is_refused(void **state)
{
	control_bytes(state, DDP_T | DDP_L | 1, 0x00, FAULT_RDMAP_VERSION);
	control_bytes(state, DDP_T | DDP_L | 1, 0x80, FAULT_RDMAP_VERSION);
	control_bytes(state, DDP_L | 1, 0xc3, FAULT_RDMAP_VERSION);
}

static void unknown_opcode_is_refused(void **state)
{
	for (uint8_t op = 0xc; op <= 0xf; op++) {
		control_bytes(state, DDP_T | DDP_L | 1, 0x40 | op, FAULT_RDMAP_OPCODE);
		control_bytes(state, DDP_L | 1, 0x40 | op, FAULT_RDMAP_OPCODE);
	}
}

/* The opcodes of RFC 7306 and stag's own are valid only between peers that agreed on them. */
static void opcode_of_the_extensions_from_a_standard_peer_is_refused(void **state)
{
	static const uint8_t ops[] = {RDMAP_IMM,	 RDMAP_IMM_SE, RDMAP_ATOMIC_REQ,
				      RDMAP_ATOMIC_RESP, RDMAP_ESCAPE, RDMAP_SEND_IMM};

	for (unsigned i = 0; i < sizeof(ops); i++)
		control_bytes(state, DDP_L | 1, 0x40 | ops[i], FAULT_RDMAP_OPCODE);
}

static void opcode_with_the_wrong_t_bit_is_refused(void **state)
{
	control_bytes(state, DDP_L | 1, 0x40 | RDMAP_WRITE, FAULT_RDMAP_OPCODE);
	control_bytes(state, DDP_L | 1, 0x40 | RDMAP_READ_RESP, FAULT_RDMAP_OPCODE);
	control_bytes(state, DDP_T | DDP_L | 1, 0x40 | RDMAP_SEND, FAULT_RDMAP_OPCODE);
	control_bytes(state, DDP_T | DDP_L | 1, 0x40 | RDMAP_READ_REQ, FAULT_RDMAP_OPCODE);
	control_bytes(state, DDP_T | DDP_L | 1, 0x40 | RDMAP_TERMINATE, FAULT_RDMAP_OPCODE);
}

/* Reserved bits are ignored (RFC 5041 §4.1, RFC 5040 §4.1). */
static void reserved_bits_are_ignored(void **state)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = write_to(r);
	uint8_t ulpdu[DDP_MAX_HDR + 16] = {0};
	size_t len = ddp_encode(&h, ulpdu);

	memset(ulpdu + len, 0xee, 16);
	ulpdu[0] |= 0x3c;
	ulpdu[1] |= 0x30;
	raw_bytes(&s.peer, raw, raw_frame(&s.peer, ulpdu, len + 16, raw));
	raw_send(&s.peer, junk, 1);
	expect_received(&s.us, 1);
	assert_memory_equal(r->at, junk, 16);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

/* ---- partial frames ---- */

static void half_a_frame_and_silence(void **state, size_t payload, size_t part)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = write_to(r);
	size_t n = raw_build(&s.peer, &h, junk, payload, raw);

	raw_bytes(&s.peer, raw, part);
	for (int i = 0; i < 10; i++)
		ping(s.others);
	expect_state(&s.us, IBV_QPS_RTS);
	expect_nothing(&s.us);
	raw_bytes(&s.peer, raw + part, n - part); /* the peer was only slow */
	raw_send(&s.peer, junk, 1);
	expect_received(&s.us, 1);
	assert_memory_equal(r->at, junk, payload);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

static void partial_frame_does_not_disturb_other_connections(void **state)
{
	static const size_t parts[] = {1, 2, 3, 4, 8, 15, 16, 17, 100, 1015, 1016, 1019};

	for (unsigned i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		half_a_frame_and_silence(state, 1000, parts[i]);
	half_a_frame_and_silence(state, 50000, 20);
	half_a_frame_and_silence(state, 50000, 25000);
	half_a_frame_and_silence(state, 50000, 50016);
	half_a_frame_and_silence(state, 50000, 50018);
}

/* A frame that comes byte by byte is received. */
static void frame_sent_byte_by_byte_is_received(void **state)
{
	struct scene s;
	struct region *r = open_lent(&s, state, NULL);
	struct ddp_hdr h = write_to(r);
	size_t n = raw_build(&s.peer, &h, junk, 200, raw);

	for (size_t i = 0; i < n; i++)
		raw_bytes(&s.peer, raw + i, 1);
	raw_send(&s.peer, junk, 1);
	expect_received(&s.us, 1);
	assert_memory_equal(r->at, junk, 200);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

/* ---- announced segments between stag peers ---- */

#define FULL (MPA_MAX_ULPDU - DDP_TAGGED_LEN)

/* Returns the header of a message's first segment, which announces that a full one follows. */
static struct ddp_hdr announce_full_segment(struct scene *s, struct region *r, size_t first)
{
	struct ddp_hdr h = write_to(r);

	h.last = false;
	h.rsv = RDMAP_RSV_FULL_NEXT;
	raw_segment(&s->peer, &h, junk, first);
	h.rsv = 0;
	h.to += first;
	return h;
}

static struct region *open_announced(struct scene *s, void **state, size_t len)
{
	struct raw_wish peer = {.extensions = true};

	open_lent(s, state, &peer);
	return lend_region(&s->us, len, IBV_ACCESS_REMOTE_WRITE);
}

static void announced_segment_lands(void **state)
{
	static uint8_t full[FULL];
	struct scene s;
	struct region *r = open_announced(&s, state, 20000 + FULL);
	struct ddp_hdr h;

	fill(full, FULL, 3);
	h = announce_full_segment(&s, r, 20000);
	h.last = true;
	raw_segment(&s.peer, &h, full, FULL);
	raw_send(&s.peer, junk, 1);
	expect_received(&s.us, 1);
	assert_memory_equal(r->at, junk, 20000);
	expect_filled(r->at + 20000, FULL, 3);
	raw_finish(&s.peer);
	expect_closed(&s);
	scene_close(&s);
}

/* The region ends before the announced segment would. */
static void announced_segment_beyond_the_region_lands_nowhere(void **state)
{
	static uint8_t full[FULL];
	struct scene s;
	struct region *r = open_announced(&s, state, 20000 + FULL - 1);
	struct ddp_hdr h = announce_full_segment(&s, r, 20000);

	h.last = true;
	raw_segment(&s.peer, &h, full, FULL);
	expect_refused(&s, FAULT_DDP_BASE_BOUNDS, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at + 20000, FULL - 1);
	scene_close(&s);
}

/*
 * Whatever comes instead of the announced segment: no byte is placed outside of the region, and
 * other connections are unharmed. The fault is noticed only if the receiver made use of the
 * announcement.
 */
static void break_announcement(void **state, const struct ddp_hdr *instead, size_t len)
{
	static uint8_t full[FULL];
	struct scene s;
	struct region *r = open_announced(&s, state, 2 * FULL + 20000);
	struct ddp_hdr h = announce_full_segment(&s, r, 20000);

	if (instead->tagged)
		h.to += instead->to;
	else
		h = *instead;
	h.last = true;
	raw_segment(&s.peer, &h, full, len);
	raw_finish(&s.peer);
	expect_hangup_at_last(&s.peer);
	expect_disconnected(&s.us);
	expect_state(&s.us, IBV_QPS_ERR);
	if (has_async(&s.us))
		await_async(&s.us);
	expect_no_async(&s.us);
	check_canaries(&s.us);
	ping(s.others);
	scene_close(&s);
}

static void broken_announcement_does_not_disturb_other_connections(void **state)
{
	static const struct ddp_hdr elsewhere = {.tagged = true, .to = 1000};
	static const struct ddp_hdr send = {.opcode = RDMAP_SEND, .msn = 1};

	break_announcement(state, &elsewhere, FULL);
	break_announcement(state, &send, 10);
	break_announcement(state, &send, 60000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(short_fpdu_with_a_bad_crc_is_refused),
		cmocka_unit_test(flipped_header_bit_is_refused),
		cmocka_unit_test(long_fpdu_with_a_bad_crc_is_refused),
		cmocka_unit_test(crc_covers_the_pad),
		cmocka_unit_test(good_fpdus_before_a_bad_one_are_delivered),
		cmocka_unit_test(crc_field_is_ignored_if_crc_is_off),
		cmocka_unit_test(fpdu_without_a_whole_header_is_refused),
		cmocka_unit_test(wrong_length_is_refused),
		cmocka_unit_test(longest_write_is_refused),
		cmocka_unit_test(longest_send_is_refused),
		cmocka_unit_test(longest_read_request_is_refused),
		cmocka_unit_test(longest_terminate_ends_the_connection),
		cmocka_unit_test(marker_with_a_wrong_pointer_is_refused),
		cmocka_unit_test(bad_ddp_version_is_refused),
		cmocka_unit_test(bad_rdmap_version_is_refused),
		cmocka_unit_test(unknown_opcode_is_refused),
		cmocka_unit_test(opcode_of_the_extensions_from_a_standard_peer_is_refused),
		cmocka_unit_test(opcode_with_the_wrong_t_bit_is_refused),
		cmocka_unit_test(reserved_bits_are_ignored),
		cmocka_unit_test(partial_frame_does_not_disturb_other_connections),
		cmocka_unit_test(frame_sent_byte_by_byte_is_received),
		cmocka_unit_test(announced_segment_lands),
		cmocka_unit_test(announced_segment_beyond_the_region_lands_nowhere),
		cmocka_unit_test(broken_announcement_does_not_disturb_other_connections),
	};

	return cmocka_run_group_tests_name("framing faults", tests, others_open, others_close);
}
