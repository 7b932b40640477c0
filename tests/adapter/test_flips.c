// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_flips.c - a long frame in which one bit is wrong. Whichever it is, not a byte changes
 * outside the place that the frame had before the bit was flipped.
 *
 * From each kind of peer: a standard one, a stag peer without sums of headers (an older one), and
 * one with them.
 */
#include "raw_peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LEN	  (256 << 10)
#define OFF	  100000
#define PAYLOAD	  20000
#define PATTERN	  0xee
#define FOLLOWING 70000 /* bytes behind the frame: more than a wrong length can claim */

enum kind { WRITE, RESPONSE, SEND };

static const struct raw_wish standard, older = {.extensions = true, .escape = true},
				       summed = {.extensions = true, .escape = true, .sums = true};

static uint8_t raw[2 * FPDU_MAX_LEN];
static uint8_t payload[PAYLOAD];
static uint8_t following[FOLLOWING];

/* A connection that awaits a frame of this kind, into [OFF, OFF + PAYLOAD) of a region. */
struct stage {
	struct scene s;
	struct region *r;
	struct ddp_hdr h;
};

static void await_response(struct stage *t)
{
	struct region source = {.mr = &(struct ibv_mr){.rkey = 1}};
	struct rdmap_read_req req;

	/* More than the frame carries, so that a longer one has room, too. */
	post_read(&t->s.us, t->r, OFF, LEN - OFF, &source, 0);
	raw_take_read(&t->s.peer, &req);
	t->h = response_hdr(req.sink_stag, req.sink_to);
	t->h.last = false;
}

static void await_send(struct stage *t)
{
	post_receive(&t->s.us, t->r, OFF, LEN - OFF);
	t->h = send_hdr(&t->s.peer);
	t->h.last = false;
}

static void stage_open(struct stage *t, void **state, const struct raw_wish *peer, enum kind kind)
{
	struct scene_wish w = {.peer = *peer};

	memset(payload, PATTERN, sizeof(payload));
	memset(following, PATTERN, sizeof(following));
	t->s = (struct scene){.others = *state};
	scene_open(&t->s, &w);
	t->r = lend_region(&t->s.us, LEN, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	t->h = write_hdr(t->r->mr->rkey, (uintptr_t)t->r->at + OFF);
	if (kind == RESPONSE)
		await_response(t);
	else if (kind == SEND)
		await_send(t);
}

/* Sends bytes to a side that may hang up meanwhile. */
static void pour(struct raw_peer *p, const uint8_t *data, size_t len)
{
	while (len) {
		ssize_t n = TEMP_FAILURE_RETRY(send(p->fd, data, len, MSG_NOSIGNAL));

		if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
			return;
		assert_true(n > 0);
		data += n;
		len -= (size_t)n;
	}
}

/* Sends the frame with one bit flipped; returns its length in bits, 0 if CRCs are off. */
static size_t send_flipped(void **state, const struct raw_wish *peer, enum kind kind, size_t bit)
{
	struct stage t;
	size_t n;

	stage_open(&t, state, peer, kind);
	n = raw_build(&t.s.peer, &t.h, payload, PAYLOAD, raw);
	if (t.s.peer.crc) {
		raw[bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
		pour(&t.s.peer, raw, n);
		pour(&t.s.peer, following, FOLLOWING);
		expect_disconnected(&t.s.us);
		expect_state(&t.s.us, IBV_QPS_ERR);
		expect_zeroes(t.r->at, OFF);
		expect_zeroes(t.r->at + OFF + PAYLOAD, LEN - OFF - PAYLOAD);
		check_canaries(&t.s.us);
	} else {
		n = 0;
	}
	scene_close(&t.s);
	return n * 8;
}

static void flip_each(void **state, const struct raw_wish *peer, enum kind kind)
{
	size_t hdr =
		(kind == SEND ? DDP_UNTAGGED_LEN : DDP_TAGGED_LEN) + (peer->sums ? DDP_SUM_LEN : 0);
	size_t head = (MPA_LEN_FIELD + hdr) * 8, bits = 1;

	for (size_t bit = 0; bit < head && bits; bit++)
		bits = send_flipped(state, peer, kind, bit);
	if (!bits)
		skip();
	/* payload, its last byte, and the CRC */
	send_flipped(state, peer, kind, head + 3);
	send_flipped(state, peer, kind, head + PAYLOAD * 4);
	send_flipped(state, peer, kind, head + PAYLOAD * 8 - 1);
	send_flipped(state, peer, kind, bits - 1);
	ping(*state);
}

static void flipped_bit_of_a_standard_write_moves_nothing(void **state)
{
	flip_each(state, &standard, WRITE);
}

static void flipped_bit_of_a_standard_response_moves_nothing(void **state)
{
	flip_each(state, &standard, RESPONSE);
}

static void flipped_bit_of_a_standard_send_moves_nothing(void **state)
{
	flip_each(state, &standard, SEND);
}

static void flipped_bit_of_an_older_write_moves_nothing(void **state)
{
	flip_each(state, &older, WRITE);
}

static void flipped_bit_of_an_older_response_moves_nothing(void **state)
{
	flip_each(state, &older, RESPONSE);
}

static void flipped_bit_of_an_older_send_moves_nothing(void **state)
{
	flip_each(state, &older, SEND);
}

static void flipped_bit_of_a_summed_write_moves_nothing(void **state)
{
	flip_each(state, &summed, WRITE);
}

static void flipped_bit_of_a_summed_response_moves_nothing(void **state)
{
	flip_each(state, &summed, RESPONSE);
}

static void flipped_bit_of_a_summed_send_moves_nothing(void **state)
{
	flip_each(state, &summed, SEND);
}

/* A header that is wrong is refused at once: the rest of its frame need not come. */
static void wrong_sum_is_refused_before_the_rest_of_its_frame(void **state)
{
	struct stage t;

	stage_open(&t, state, &summed, WRITE);
	if (t.s.peer.sums && !t.s.peer.markers_tx) {
		raw_build(&t.s.peer, &t.h, payload, PAYLOAD, raw);
		raw[MPA_LEN_FIELD + 7] ^= 1;
		raw_bytes(&t.s.peer, raw, MPA_LEN_FIELD + DDP_TAGGED_LEN + DDP_SUM_LEN);
		expect_refused(&t.s, FAULT_MPA_CRC, IBV_EVENT_QP_FATAL);
	}
	scene_close(&t.s);
}

/* A peer that agreed to sums leaves one out. */
static void long_frame_without_its_sum_is_refused(void **state)
{
	struct stage t;

	stage_open(&t, state, &summed, WRITE);
	if (t.s.peer.sums && !t.s.peer.markers_tx) {
		t.s.peer.sums = false;
		pour(&t.s.peer, raw, raw_build(&t.s.peer, &t.h, payload, PAYLOAD, raw));
		expect_disconnected(&t.s.us);
		expect_zeroes(t.r->at, LEN);
	}
	scene_close(&t.s);
}

/*
 * A frame that the one before announced is read before its header is known, to the place that the
 * announcement gives; a wrong header does not change that place.
 */
static void send_announced(void **state, size_t bit)
{
	struct stage t;
	uint32_t full = MPA_MAX_ULPDU - DDP_TAGGED_LEN - DDP_SUM_LEN;
	uint8_t *data = malloc(full);
	size_t n, m;

	assert_non_null(data);
	memset(data, PATTERN, full);
	stage_open(&t, state, &summed, WRITE);
	t.h.rsv = RDMAP_RSV_FULL_NEXT;
	t.h.last = false;
	n = raw_build(&t.s.peer, &t.h, payload, PAYLOAD, raw);
	t.h.to += PAYLOAD;
	m = raw_build(&t.s.peer, &t.h, data, full, raw + n);
	if (t.s.peer.sums) {
		raw[n + bit / 8] ^= (uint8_t)(0x80 >> bit % 8);
		pour(&t.s.peer, raw, n + m);
		pour(&t.s.peer, following, FOLLOWING);
		expect_disconnected(&t.s.us);
		assert_memory_equal(t.r->at + OFF, payload, PAYLOAD);
		expect_zeroes(t.r->at, OFF);
		expect_zeroes(t.r->at + OFF + PAYLOAD + full, LEN - OFF - PAYLOAD - full);
	}
	free(data);
	scene_close(&t.s);
}

static void flipped_bit_of_an_announced_frame_moves_nothing(void **state)
{
	for (size_t bit = 0; bit < (MPA_LEN_FIELD + DDP_TAGGED_LEN + DDP_SUM_LEN) * 8; bit++)
		send_announced(state, bit);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(flipped_bit_of_a_standard_write_moves_nothing),
		cmocka_unit_test(flipped_bit_of_a_standard_response_moves_nothing),
		cmocka_unit_test(flipped_bit_of_a_standard_send_moves_nothing),
		cmocka_unit_test(flipped_bit_of_an_older_write_moves_nothing),
		cmocka_unit_test(flipped_bit_of_an_older_response_moves_nothing),
		cmocka_unit_test(flipped_bit_of_an_older_send_moves_nothing),
		cmocka_unit_test(flipped_bit_of_a_summed_write_moves_nothing),
		cmocka_unit_test(flipped_bit_of_a_summed_response_moves_nothing),
		cmocka_unit_test(flipped_bit_of_a_summed_send_moves_nothing),
		cmocka_unit_test(wrong_sum_is_refused_before_the_rest_of_its_frame),
		cmocka_unit_test(long_frame_without_its_sum_is_refused),
		cmocka_unit_test(flipped_bit_of_an_announced_frame_moves_nothing),
	};

	return cmocka_run_group_tests(tests, others_open, others_close);
}
