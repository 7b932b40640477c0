// SPDX-License-Identifier: BSD-2-Clause
/*
 * flow.c - the accounts of a stream: ring space, buffers granted, messages counted.
 *
 * Numbers only. The peer's numbers are untrusted, and are checked on arrival.
 */
#include "rsocket/flow.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t pow2_at_least(uint32_t n)
{
	uint32_t p = 1;

	while (p < n)
		p <<= 1;
	return p;
}

int flow_rx_init(struct flow_rx *rx, uint32_t ring_size, uint16_t window)
{
	uint32_t n = pow2_at_least(window);

	memset(rx, 0, sizeof(*rx));
	rx->lengths = calloc(n, sizeof(*rx->lengths));
	if (!rx->lengths)
		return -ENOMEM;

	rx->lengths_mask = n - 1;
	rx->size = ring_size;
	/* The first half is granted in the offer; the second is free from the start. */
	rx->granted = ring_size / 2;
	rx->freed = ring_size / 2;
	rx->give_at = ring_size / 2;
	rx->window = window;
	rx->seq_due = window / 2;
	return 0;
}

void flow_rx_free(struct flow_rx *rx)
{
	free(rx->lengths);
	rx->lengths = NULL;
}

int flow_rx_arrived(struct flow_rx *rx, uint32_t len)
{
	if (len > rx->granted || rx->put - rx->get >= rx->window)
		return -EPROTO;
	if (!len) {
		flow_rx_counted(rx);
		return 0;
	}
	rx->granted -= len;
	rx->unread += len;
	rx->lengths[rx->put++ & rx->lengths_mask] = len;
	return 0;
}

void flow_rx_counted(struct flow_rx *rx)
{
	rx->seq++;
}

uint32_t flow_rx_contiguous(const struct flow_rx *rx)
{
	uint32_t to_end = rx->size - rx->read_at;

	return rx->unread < to_end ? rx->unread : to_end;
}

/* Subtracts len bytes from the oldest messages; each message that is used up counts as read. */
static void count_messages(struct flow_rx *rx, uint32_t len)
{
	while (len) {
		uint32_t *left = &rx->lengths[rx->get & rx->lengths_mask];

		assert(rx->get != rx->put);
		if (len < *left) {
			*left -= len;
			return;
		}
		len -= *left;
		rx->get++;
		rx->seq++;
	}
}

void flow_rx_consume(struct flow_rx *rx, uint32_t len)
{
	assert(len <= flow_rx_contiguous(rx));
	rx->unread -= len;
	rx->freed += len;
	rx->read_at += len;
	if (rx->read_at == rx->size)
		rx->read_at = 0;
	count_messages(rx, len);
}

bool flow_rx_due(const struct flow_rx *rx)
{
	return rx->freed >= rx->size / 2 || (int16_t)(rx->seq - rx->seq_due) >= 0;
}

struct flow_grant flow_rx_grant(struct flow_rx *rx)
{
	uint32_t half = rx->size / 2;
	struct flow_grant g = {.seq_stop = (uint16_t)(rx->seq + rx->window)};

	rx->seq_due = (uint16_t)(rx->seq + rx->window / 2);
	if (rx->freed < half)
		return g;

	g.half = true;
	g.give_at = rx->give_at;
	g.length = half;
	g.slot = rx->give_at ? 1 : 0;
	rx->freed -= half;
	rx->granted += half;
	rx->give_at = rx->give_at ? 0 : half;
	return g;
}

void flow_tx_init(struct flow_tx *tx, uint32_t ring_size, const struct rs_offer *peer)
{
	memset(tx, 0, sizeof(*tx));
	tx->size = ring_size;
	tx->target[0] = peer->data;
	tx->next = 1; /* the buffer of slot 0 was in the offer */
	tx->window = peer->credits;
	tx->seq_stop = peer->credits;
}

bool flow_tx_credit(const struct flow_tx *tx)
{
	return (uint16_t)tx->sent != tx->seq_stop;
}

void flow_tx_counted(struct flow_tx *tx)
{
	tx->sent++;
	tx->uncounted++;
}

uint32_t flow_tx_window(const struct flow_tx *tx)
{
	return flow_tx_credit(tx) ? tx->target[tx->at].length : 0;
}

uint32_t flow_tx_space(const struct flow_tx *tx)
{
	return tx->size - tx->used;
}

struct rs_region flow_tx_aim(struct flow_tx *tx, uint32_t len)
{
	struct rs_region *t = &tx->target[tx->at];
	struct rs_region aim = {.addr = t->addr, .key = t->key, .length = len};

	assert(len <= flow_tx_window(tx));
	t->addr += len;
	t->length -= len;
	tx->sent++;
	if (!t->length) {
		tx->end[tx->at] = tx->sent;
		tx->at = (tx->at + 1) % RS_SLOTS;
	}
	return aim;
}

struct flow_span flow_tx_reserve(struct flow_tx *tx, uint32_t len)
{
	uint32_t to_end = tx->size - tx->put_at;
	struct flow_span s = {.at = tx->put_at, .first = len < to_end ? len : to_end};

	assert(len <= flow_tx_space(tx));
	s.rest = len - s.first;
	tx->used += len;
	tx->put_at = s.rest ? s.rest : s.at + s.first;
	if (tx->put_at == tx->size)
		tx->put_at = 0;
	return s;
}

void flow_tx_release(struct flow_tx *tx, uint32_t len)
{
	assert(len <= tx->used);
	tx->used -= len;
}

int flow_tx_granted(struct flow_tx *tx, uint16_t seq_stop)
{
	uint16_t seq_read = (uint16_t)(seq_stop - tx->window);
	uint64_t read = tx->sent - (uint16_t)((uint16_t)tx->sent - seq_read);

	tx->seq_stop = seq_stop;
	if (tx->target[tx->next].length || read + tx->uncounted < tx->end[tx->next])
		return -1;
	return (int)tx->next;
}

void flow_tx_refill(struct flow_tx *tx, const struct rs_region *region)
{
	assert(!tx->target[tx->next].length);
	tx->target[tx->next] = *region;
	tx->next = (tx->next + 1) % RS_SLOTS;
}
