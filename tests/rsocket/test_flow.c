// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_flow.c - tests of a stream's flow control at its two ends, without a network.
 *
 * The wire between them is this file: a write is a memcpy, and a message is delivered when the test
 * says so.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "rsocket/flow.h"

#define RING   64
#define WINDOW 16
#define SBUF   40

/* A sender and a receiver, and the receiver's ring. */
struct ends {
	struct flow_tx tx;
	struct flow_rx rx;
	uint8_t ring[RING];
	uint8_t sbuf[SBUF];
	uint8_t sent, read; /* value of the next byte to send and to expect: they count up */
};

static uint64_t dice_state = 0x9e3779b97f4a7c15u;

static uint32_t dice(uint32_t below)
{
	dice_state ^= dice_state << 13;
	dice_state ^= dice_state >> 7;
	dice_state ^= dice_state << 17;
	return (uint32_t)(dice_state % below);
}

static int open_ends(void **state)
{
	struct ends *e = calloc(1, sizeof(*e));
	struct rs_offer offer = {.credits = WINDOW, .data = {.addr = 0x1000, .length = RING / 2}};

	assert_int_equal(flow_rx_init(&e->rx, RING, WINDOW), 0);
	flow_tx_init(&e->tx, SBUF, &offer);
	*state = e;
	return 0;
}

static int close_ends(void **state)
{
	struct ends *e = *state;

	flow_rx_free(&e->rx);
	free(e);
	return 0;
}

/* Sends up to n bytes as one message, and returns their number. */
static uint32_t send_some(struct ends *e, uint32_t n)
{
	struct flow_span span;
	struct rs_region aim;

	if (n > flow_tx_window(&e->tx))
		n = flow_tx_window(&e->tx);
	if (n > flow_tx_space(&e->tx))
		n = flow_tx_space(&e->tx);
	if (!n)
		return 0;
	span = flow_tx_reserve(&e->tx, n);
	aim = flow_tx_aim(&e->tx, n);
	for (uint32_t i = 0; i < n; i++)
		e->sbuf[i < span.first ? span.at + i : i - span.first] = e->sent++;
	memcpy(e->ring + aim.addr - 0x1000, e->sbuf + span.at, span.first);
	memcpy(e->ring + aim.addr - 0x1000 + span.first, e->sbuf, span.rest);
	assert_int_equal(flow_rx_arrived(&e->rx, n), 0);
	flow_tx_release(&e->tx, n);
	return n;
}

static uint32_t read_some(struct ends *e, uint32_t n)
{
	if (n > flow_rx_contiguous(&e->rx))
		n = flow_rx_contiguous(&e->rx);
	for (uint32_t i = 0; i < n; i++)
		assert_int_equal(e->ring[e->rx.read_at + i], e->read++);
	if (n)
		flow_rx_consume(&e->rx, n);
	return n;
}

static bool grant(struct ends *e)
{
	struct flow_grant g;
	int slot;

	if (!flow_rx_due(&e->rx))
		return false;
	g = flow_rx_grant(&e->rx);
	slot = flow_tx_granted(&e->tx, g.seq_stop);
	/* The sender knows whether a slot was filled, and which. */
	assert_int_equal(slot, g.half ? (int)g.slot : -1);
	if (g.half) {
		struct rs_region half = {.addr = 0x1000 + g.give_at, .length = g.length};

		flow_tx_refill(&e->tx, &half);
	}
	return true;
}

/*
 * The first half of the ring is granted by the offer, so the second can be announced immediately.
 */
static void the_second_half_of_the_ring_is_granted_immediately(void **state)
{
	struct ends *e = *state;

	assert_true(grant(e));
	assert_false(flow_rx_due(&e->rx));
	assert_int_equal(e->tx.target[1].length, RING / 2);
	assert_int_equal(e->tx.target[1].addr, 0x1000 + RING / 2);
}

static void a_sender_without_granted_space_waits(void **state)
{
	struct ends *e = *state;

	grant(e);
	assert_int_equal(send_some(e, RING), RING / 2); /* a message ends with the buffer */
	assert_int_equal(send_some(e, RING), RING / 2);
	assert_int_equal(flow_tx_window(&e->tx), 0);

	read_some(e, RING / 2 - 1);
	assert_false(grant(e));
	read_some(e, 1);
	assert_true(grant(e));
	assert_int_equal(flow_tx_window(&e->tx), RING / 2);
}

static void a_sender_without_credits_waits(void **state)
{
	struct ends *e = *state;

	for (int i = 0; i < WINDOW; i++)
		assert_int_equal(send_some(e, 1), 1);
	assert_int_equal(flow_tx_window(&e->tx), 0);

	/* Space is granted before half of the messages are read; credits come with it. */
	grant(e);
	assert_int_equal(flow_tx_window(&e->tx), 0);
	for (int i = 0; i < WINDOW / 2; i++)
		read_some(e, 1);
	assert_true(grant(e));
	assert_int_equal(flow_tx_window(&e->tx), RING / 2 - WINDOW);
}

/* A message counts as read with its last byte, however the reads divide it. */
static void messages_are_counted_not_reads(void **state)
{
	struct ends *e = *state;

	send_some(e, 8);
	send_some(e, 8);
	read_some(e, 7);
	assert_int_equal(e->rx.seq, 0);
	read_some(e, 9);
	assert_int_equal(e->rx.seq, 2);
}

static void a_peer_that_exceeds_its_granted_space_is_detected(void **state)
{
	struct ends *e = *state;

	assert_int_equal(flow_rx_arrived(&e->rx, RING / 2 + 1), -EPROTO);
	assert_int_equal(flow_rx_arrived(&e->rx, RS_MSG_MAX), -EPROTO);
	assert_int_equal(e->rx.unread, 0);
}

static void a_peer_that_exceeds_its_credits_is_detected(void **state)
{
	struct ends *e = *state;

	for (int i = 0; i < WINDOW; i++)
		assert_int_equal(flow_rx_arrived(&e->rx, 1), 0);
	assert_int_equal(flow_rx_arrived(&e->rx, 1), -EPROTO);
}

/* A peer that reports more bytes read than were sent: the buffer in use must stay. */
static void a_buffer_in_use_is_not_replaced(void **state)
{
	struct ends *e = *state;

	grant(e);
	for (unsigned seq_stop = 0; seq_stop <= UINT16_MAX; seq_stop++)
		assert_int_equal(flow_tx_granted(&e->tx, (uint16_t)seq_stop), -1);
}

/*
 * librdmacm does not count the announcement of an iomap as read; the slots are found all the same.
 */
static void messages_without_data_do_not_hide_a_slot(void **state)
{
	struct ends *e = *state;

	grant(e);
	flow_tx_counted(&e->tx);
	send_some(e, RING / 2);
	read_some(e, RING / 2);
	assert_int_equal(e->rx.seq, 1);
	assert_true(grant(e));
	assert_int_equal(e->tx.target[0].length, RING / 2);
}

/* The counters have 16 bits, and a stream may be longer. */
static void a_long_stream_arrives_as_it_was_sent(void **state)
{
	struct ends *e = *state;
	uint64_t bytes = 0;

	while (bytes < 4000000) {
		bytes += send_some(e, 1 + dice(50));
		if (dice(2))
			read_some(e, 1 + dice(RING));
		if (dice(2))
			grant(e);
		assert_true(e->rx.unread <= RING);
	}
	while (read_some(e, RING))
		;
	assert_int_equal(e->read, e->sent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_second_half_of_the_ring_is_granted_immediately,
						open_ends, close_ends),
		cmocka_unit_test_setup_teardown(a_sender_without_granted_space_waits, open_ends,
						close_ends),
		cmocka_unit_test_setup_teardown(a_sender_without_credits_waits, open_ends,
						close_ends),
		cmocka_unit_test_setup_teardown(messages_are_counted_not_reads, open_ends,
						close_ends),
		cmocka_unit_test_setup_teardown(a_peer_that_exceeds_its_granted_space_is_detected,
						open_ends, close_ends),
		cmocka_unit_test_setup_teardown(a_peer_that_exceeds_its_credits_is_detected,
						open_ends, close_ends),
		cmocka_unit_test_setup_teardown(a_buffer_in_use_is_not_replaced, open_ends,
						close_ends),
		cmocka_unit_test_setup_teardown(messages_without_data_do_not_hide_a_slot, open_ends,
						close_ends),
		cmocka_unit_test_setup_teardown(a_long_stream_arrives_as_it_was_sent, open_ends,
						close_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
