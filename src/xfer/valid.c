// SPDX-License-Identifier: BSD-2-Clause
/*
 * valid.c - invariants of a manager between two calls. Debug builds check them if STAG_XFER_CHECK
 * is set in the environment.
 */
#include "xfer.h"

/* ---- one request, over all records ---- */

struct account {
	uint64_t bytes;
	uint32_t in_flight, in_lost;
};

static void add_record(struct account *a, const struct record *rec, const struct stag_xfer_req *who)
{
	const struct stag_xfer_req *req = rec->first;
	uint32_t left = rec->length, bytes = rec->first_bytes;

	for (uint32_t i = 0; i < rec->num_reqs; i++, req = req->follower) {
		if (i)
			bytes = i == rec->num_reqs - 1 ? left : (uint32_t)req->bytes_total;
		left -= bytes;
		if (req != who)
			continue;
		a->bytes += bytes;
		a->in_flight += rec->place == RECORD_RING;
		a->in_lost += rec->place == RECORD_LOST;
	}
}

static struct account count_request(const struct stag_xfer *x, const struct stag_xfer_req *req)
{
	struct account a = {0};

	for (uint32_t i = 0; i < x->descriptors; i++)
		if (x->records[i].place != RECORD_FREE)
			add_record(&a, &x->records[i], req);
	return a;
}

/* Formed bytes are done, or in a record; or dropped, if the request is ending. */
static bool request_is_valid(const struct stag_xfer *x, const struct stag_xfer_req *req)
{
	struct account a = count_request(x, req);

	if (req->phase == REQ_NONE || req->phase == REQ_DONE)
		return false;
	if (a.in_flight != req->in_flight || a.in_lost != req->in_lost)
		return false;
	if (req->phase == REQ_ENDING)
		return a.bytes <= req->bytes_formed - req->bytes_done;
	return a.bytes == req->bytes_formed - req->bytes_done &&
	       (req->phase == REQ_FORMED) == (req->bytes_formed == req->bytes_total);
}

static bool requests_are_valid(const struct stag_xfer *x)
{
	const struct stag_xfer_req *last = NULL;

	for (uint32_t i = 0; i < x->descriptors; i++) {
		const struct record *rec = &x->records[i];

		if (rec->place == RECORD_FREE || rec->first == last)
			continue;
		last = rec->first;
		if (!request_is_valid(x, last))
			return false;
	}
	return true;
}

/* ---- records: each in one place ---- */

static bool list_is_valid(const struct record *rec, enum record_place place, uint32_t *n)
{
	for (; rec; rec = rec->next, ++*n)
		if (rec->place != place || (place != RECORD_FREE && !rec->num_reqs))
			return false;
	return true;
}

static bool rail_is_valid(const struct rail *rail)
{
	uint64_t bytes = 0;
	uint32_t records = 0, seq = rail->proved;

	for (const struct record *rec = rail->ring.head; rec; rec = rec->next, records++) {
		if (!seq_reached(rec->seq, seq) || seq_reached(rec->seq, rail->next_seq))
			return false;
		seq = rec->seq;
		bytes += record_wire_bytes(rec);
	}
	if (rail->state == RAIL_DOWN && (records || rail->chain || rail->confirms))
		return false;
	/* Something in flight, or not posted yet, will prove the rest. */
	if (rail->state == RAIL_UP && bytes && rail->proof == rail->proved && !rail->full)
		return false;
	return bytes == rail->bytes && records == rail->records && records <= rail->max_records &&
	       rail->confirms <= rail->max_confirms;
}

static bool records_are_valid(const struct stag_xfer *x)
{
	uint32_t n = 0;

	if (!list_is_valid(x->free, RECORD_FREE, &n) ||
	    !list_is_valid(x->lost.head, RECORD_LOST, &n))
		return false;
	for (unsigned int i = 0; i < x->num_rails; i++)
		if (!list_is_valid(x->rails[i].ring.head, RECORD_RING, &n) ||
		    !rail_is_valid(&x->rails[i]))
			return false;
	return n == x->descriptors;
}

static bool queue_is_valid(const struct stag_xfer *x)
{
	const struct stag_xfer_req *prev = NULL;

	for (const struct stag_xfer_req *req = x->queue.head; req; prev = req, req = req->next)
		if (req->phase != REQ_QUEUED || req->prev != prev || !req->turn_left)
			return false;
	return x->queue.tail == prev || !x->queue.head;
}

bool xfer_is_valid(const struct stag_xfer *x)
{
	return records_are_valid(x) && requests_are_valid(x) && queue_is_valid(x);
}
