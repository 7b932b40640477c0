// SPDX-License-Identifier: BSD-2-Clause
/*
 * record.c - records: the requests whose bytes a descriptor holds, and its end: done or lost.
 *
 * Knows nothing of queue pairs: rail.c and manager.c decide when and on which rail to post.
 */
#include "xfer.h"

#include <assert.h>

/* ---- lists ----- */

static void set_place(struct record *rec, enum record_place to)
{
	static const bool legal[3][3] = {
		[RECORD_FREE] = {[RECORD_RING] = true},
		[RECORD_RING] = {[RECORD_FREE] = true, [RECORD_LOST] = true},
		[RECORD_LOST] = {[RECORD_FREE] = true, [RECORD_RING] = true},
	};

	assert(legal[rec->place][to]);
	(void)legal;
	rec->place = to;
}

void record_list_append(struct record_list *list, struct record *rec)
{
	rec->next = NULL;
	if (list->head)
		list->tail->next = rec;
	else
		list->head = rec;
	list->tail = rec;
}

void record_list_prepend(struct record_list *list, struct record *rec)
{
	rec->next = list->head;
	if (!list->head)
		list->tail = rec;
	list->head = rec;
}

void record_list_join(struct record_list *list, struct record_list *more)
{
	if (!more->head)
		return;
	if (list->head)
		list->tail->next = more->head;
	else
		list->head = more->head;
	list->tail = more->tail;
}

struct record *record_list_pop(struct record_list *list)
{
	struct record *rec = list->head;

	if (rec)
		list->head = rec->next;
	return rec;
}

static void free_record(struct stag_xfer *x, struct record *rec)
{
	set_place(rec, RECORD_FREE);
	rec->next = x->free;
	x->free = rec;
}

/* ---- owners of bytes ---- */

/* Makes the record begin with its second request. */
static void drop_first(struct record *rec)
{
	struct stag_xfer_req *req = rec->first->follower;

	rec->length -= rec->first_bytes;
	rec->split = true;
	if (!--rec->num_reqs)
		return;
	rec->first = req;
	rec->start = (struct stag_xfer_cursor){0};
	rec->first_bytes = rec->num_reqs == 1 ? rec->length : (uint32_t)req->bytes_total;
}

/* Removes req, which directly follows `before` in the record. */
static void drop_behind(struct record *rec, struct stag_xfer_req *before, uint32_t bytes)
{
	before->follower = before->follower->follower;
	rec->num_reqs--;
	rec->length -= bytes;
	rec->split = true;
}

/* Returns the bytes of a request that is not the first one: all of it, unless it is the last. */
static uint32_t bytes_behind(const struct record *rec, const struct stag_xfer_req *req,
			     uint32_t nth, uint32_t left)
{
	return nth == rec->num_reqs - 1 ? left : (uint32_t)req->bytes_total;
}

uint32_t record_wire_bytes(const struct record *rec)
{
	return rec->split ? rec->first_bytes : rec->length;
}

bool record_is_suspect(const struct record *rec)
{
	return rec->first->alone;
}

/* ---- on a rail ---- */

void record_enter_ring(struct record *rec)
{
	bool lost = rec->place == RECORD_LOST;

	set_place(rec, RECORD_RING);
	record_for_each_req (rec, req) {
		req->in_flight++;
		req->in_lost -= lost;
	}
}

/* ---- lost ---- */

void record_lose(struct record *rec, bool was_posted)
{
	rec->posted = was_posted;
	set_place(rec, RECORD_LOST);
	record_for_each_req (rec, req) {
		req->in_flight--;
		req->in_lost++;
	}
}

static bool holds_suspect(const struct record *rec)
{
	const struct stag_xfer_req *req = rec->first;

	for (uint32_t i = 0; i < rec->num_reqs; i++, req = req->follower)
		if (req->alone)
			return true;
	return false;
}

/* Plans the first request's part again: as long as before, so with no more segments. */
static void plan_first(struct stag_xfer *x, struct record *rec)
{
	const struct stag_xfer_req *req = rec->first;
	struct stag_xfer_limits limits = {rec->first_bytes, x->limits[req->op].max_segments};
	struct stag_xfer_desc desc = {.sge = rec->wr.sg_list};
	struct stag_xfer_cursor at = rec->start;

	plan_extend(&limits, req, &at, &desc);
	assert(desc.length == rec->first_bytes);
	rec->wr.num_sge = (int)desc.num_sge;
	rec->wr.wr.rdma.remote_addr = desc.remote_addr;
	rec->wr.wr.rdma.rkey = desc.rkey;
}

void lost_prepare(struct stag_xfer *x, struct record *rec)
{
	assert(rec == x->lost.head);
	if (rec->num_reqs > 1 && holds_suspect(rec))
		rec->split = true;
	if (rec->split)
		plan_first(x, rec);
}

/* Removes a request from a record. Returns false if it is not in it. */
static bool forget_in(struct record *rec, struct stag_xfer_req *req)
{
	struct stag_xfer_req *before = rec->first, *at;
	uint32_t left = rec->length - rec->first_bytes;

	if (before == req) {
		drop_first(rec);
		return true;
	}
	for (uint32_t i = 1; i < rec->num_reqs; i++, before = at) {
		uint32_t bytes;

		at = before->follower;
		bytes = bytes_behind(rec, at, i, left);
		if (at == req) {
			drop_behind(rec, before, bytes);
			return true;
		}
		left -= bytes;
	}
	return false;
}

void lost_forget(struct stag_xfer *x, struct stag_xfer_req *req)
{
	struct record_list keep = {0};
	struct record *rec;

	while (req->in_lost && (rec = record_list_pop(&x->lost))) {
		if (forget_in(rec, req))
			req->in_lost--;
		if (rec->num_reqs)
			record_list_append(&keep, rec);
		else
			free_record(x, rec);
	}
	assert(!req->in_lost);
	record_list_join(&keep, &x->lost);
	x->lost = keep;
}

/* ---- done ---- */

static void finish_all(struct stag_xfer *x, struct record *rec)
{
	struct stag_xfer_req *req = rec->first, *next;
	uint32_t left = rec->length, bytes = rec->first_bytes;

	for (uint32_t i = 0; i < rec->num_reqs; i++, req = next) {
		if (i)
			bytes = bytes_behind(rec, req, i, left);
		next = req->follower;
		left -= bytes;
		req->in_flight--;
		req_progress(x, req, bytes);
	}
	assert(!left);
}

static void finish_first(struct stag_xfer *x, struct record *rec)
{
	struct stag_xfer_req *req = rec->first;
	uint32_t bytes = rec->first_bytes;

	drop_first(rec);
	req->in_flight--;
	req_progress(x, req, bytes);
}

/* Removes ending requests from a lost record. The record may be freed, too. */
static void purge(struct stag_xfer *x, struct record *rec)
{
	struct stag_xfer_req *req = rec->first, *next;

	for (uint32_t n = rec->num_reqs; n; n--, req = next) {
		next = req->follower;
		if (req->phase != REQ_ENDING)
			continue;
		lost_forget(x, req);
		req_settle(x, req);
	}
}

void record_done(struct stag_xfer *x, struct record *rec)
{
	if (!rec->split)
		finish_all(x, rec);
	else
		finish_first(x, rec);
	if (!rec->split || !rec->num_reqs) {
		free_record(x, rec);
		return;
	}
	/* The part of a split record that was not posted yet goes next. */
	record_lose(rec, false);
	record_list_prepend(&x->lost, rec);
	purge(x, rec);
}
