// SPDX-License-Identifier: BSD-2-Clause
/*
 * queue.c - schedules requests, and forms records from them.
 *
 * Requests with bytes that are in no record yet wait in one queue. Records are formed from its
 * head. A request that has used up its turn goes to the end, but only between two records: so it
 * takes as few of them as it would by itself. A request without more bytes is followed by the next
 * one, which joins its last record if it is contiguous on the remote side.
 */
#include "xfer.h"

#include <assert.h>

void queue_add(struct stag_xfer *x, struct stag_xfer_req *req)
{
	req_set_phase(req, REQ_QUEUED);
	req->turn_left = x->turn;
	req_list_append(&x->queue, req);
}

void queue_remove(struct stag_xfer *x, struct stag_xfer_req *req)
{
	if (req == x->queue.head)
		x->need = 0;
	req_list_remove(&x->queue, req);
}

static bool is_used_up(const struct stag_xfer_req *req)
{
	return req->bytes_formed == req->bytes_total;
}

/* Accounts for the request's bytes up to the cursor, which are in the record now. */
static void advance(struct stag_xfer *x, struct stag_xfer_req *req,
		    const struct stag_xfer_cursor *to, uint32_t bytes)
{
	req->cursor = *to;
	req->bytes_formed += bytes;
	req->transfers += bytes != 0;
	req->turn_left -= bytes < req->turn_left ? bytes : req->turn_left;
	if (!is_used_up(req))
		return;
	queue_remove(x, req);
	req_set_phase(req, REQ_FORMED);
}

static bool may_join(const struct stag_xfer *x, const struct stag_xfer_req *req,
		     const struct stag_xfer_req *next)
{
	if (x->flags & STAG_XFER_NO_MERGE || !next || !is_used_up(req) || req->alone)
		return false;
	/* Only its head: a request that has begun continues in a record of its own. */
	return next->op == req->op && next->bytes_formed == 0 && !next->alone;
}

/* Appends the next request's head after req's tail, if it is contiguous and there is room. */
static bool join(struct stag_xfer *x, struct record *rec, struct stag_xfer_req *req,
		 struct stag_xfer_req *next, struct stag_xfer_desc *desc, uint64_t room)
{
	struct stag_xfer_desc before = *desc;
	struct ibv_sge *seg = before.num_sge ? &before.sge[before.num_sge - 1] : NULL;
	uint32_t seg_length = seg ? seg->length : 0;
	struct stag_xfer_cursor at = {0};

	plan_extend(&x->limits[next->op], next, &at, desc);
	if ((desc->length == before.length && next->bytes_total) || desc->length > room) {
		*desc = before;
		if (seg)
			seg->length = seg_length;
		return false;
	}
	req->follower = next;
	rec->num_reqs++;
	advance(x, next, &at, desc->length - before.length);
	x->counters.merged++;
	return true;
}

static void fill_record(struct stag_xfer *x, struct record *rec, const struct stag_xfer_desc *desc,
			enum stag_xfer_op op)
{
	rec->length = desc->length;
	rec->split = rec->posted = false;
	rec->wr.opcode = op == STAG_XFER_READ ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE;
	rec->wr.num_sge = (int)desc->num_sge;
	rec->wr.wr.rdma.remote_addr = desc->remote_addr;
	rec->wr.wr.rdma.rkey = desc->rkey;
	if (!desc->length)
		return;
	x->counters.descriptors++;
	x->counters.coalesced += desc->num_elems - 1;
}

/*
 * Moves the last request of a record, if bytes of it are left, to the end of the queue after its
 * turn.
 */
static void end_turn(struct stag_xfer *x, struct stag_xfer_req *req)
{
	if (is_used_up(req))
		return;
	x->counters.divided += req->cursor.offset != 0;
	if (req->turn_left)
		return;
	queue_remove(x, req);
	req->turn_left = x->turn;
	req_list_append(&x->queue, req);
}

struct record *queue_form(struct stag_xfer *x, uint64_t room)
{
	struct stag_xfer_req *req = x->queue.head, *last = req;
	struct record *rec = x->free;
	struct stag_xfer_desc desc;
	struct stag_xfer_cursor at = req->cursor;

	if (!rec || x->need > room)
		return NULL;
	desc = (struct stag_xfer_desc){.sge = rec->wr.sg_list};
	plan_extend(&x->limits[req->op], req, &at, &desc);
	if (desc.length > room) {
		x->need = desc.length; /* no new attempt before there is that much room */
		return NULL;
	}
	x->need = 0;
	x->free = rec->next;
	rec->first = req;
	rec->start = req->cursor;
	rec->first_bytes = desc.length;
	rec->num_reqs = 1;
	advance(x, req, &at, desc.length);
	for (struct stag_xfer_req *next = x->queue.head;
	     may_join(x, last, next) && join(x, rec, last, next, &desc, room); next = x->queue.head)
		last = next;
	fill_record(x, rec, &desc, req->op);
	end_turn(x, last);
	return rec;
}
