// SPDX-License-Identifier: BSD-2-Clause
/* request.c - the lifetime of a request: phases, progress, completion. */
#include "xfer.h"

#include <assert.h>
#include <errno.h>

void req_set_phase(struct stag_xfer_req *req, enum req_phase to)
{
	static const bool legal[5][5] = {
		[REQ_NONE] = {[REQ_QUEUED] = true},
		[REQ_QUEUED] = {[REQ_FORMED] = true, [REQ_ENDING] = true},
		[REQ_FORMED] = {[REQ_ENDING] = true, [REQ_DONE] = true},
		[REQ_ENDING] = {[REQ_DONE] = true},
		[REQ_DONE] = {[REQ_NONE] = true},
	};

	assert(legal[req->phase][to]);
	(void)legal;
	req->phase = to;
}

void req_list_append(struct req_list *list, struct stag_xfer_req *req)
{
	req->next = NULL;
	req->prev = list->tail;
	if (list->tail)
		list->tail->next = req;
	else
		list->head = req;
	list->tail = req;
}

void req_list_remove(struct req_list *list, struct stag_xfer_req *req)
{
	if (req->prev)
		req->prev->next = req->next;
	else
		list->head = req->next;
	if (req->next)
		req->next->prev = req->prev;
	else
		list->tail = req->prev;
}

/* ---- completion ---- */

static bool is_complete(const struct stag_xfer_req *req)
{
	return req->bytes_done == req->bytes_total && req->bytes_formed == req->bytes_total;
}

static void count_end(struct stag_xfer *x, const struct stag_xfer_req *req)
{
	if (req->error == ECANCELED) {
		x->counters.canceled++;
	} else if (req->error) {
		x->counters.failed++;
	} else {
		x->counters.requests++;
		x->counters.elements += req->num_elems;
		x->counters.bytes += req->bytes_total;
	}
}

void req_settle(struct stag_xfer *x, struct stag_xfer_req *req)
{
	if (req->in_flight || req->phase == REQ_DONE)
		return;
	if (req->phase != REQ_ENDING && !(req->phase == REQ_FORMED && is_complete(req)))
		return;
	assert(!req->in_lost);
	/* A request that was to be stopped when nothing was left to stop is complete. */
	if (is_complete(req)) {
		req->outcome = 0;
		req->status = IBV_WC_SUCCESS;
	}
	req->error = req->outcome;
	count_end(x, req);
	req_set_phase(req, REQ_DONE);
	req_list_append(&x->done, req);
}

void req_end(struct stag_xfer *x, struct stag_xfer_req *req, int error, enum ibv_wc_status status)
{
	if (req->phase == REQ_ENDING || req->phase == REQ_DONE)
		return;
	if (req->phase == REQ_QUEUED)
		queue_remove(x, req);
	req->outcome = error;
	req->status = status;
	req_set_phase(req, REQ_ENDING);
}

/* ---- progress ---- */

static void touch(struct stag_xfer *x, struct stag_xfer_req *req)
{
	if (!req->progress || req->touched)
		return;
	req->touched = true;
	req->touched_next = x->touched;
	x->touched = req;
}

void req_progress(struct stag_xfer *x, struct stag_xfer_req *req, uint32_t bytes)
{
	assert(bytes <= req->bytes_formed - req->bytes_done);
	if (bytes) {
		req->bytes_done += bytes;
		req->transfers_done++;
		req->losses = 0;
		req->alone = false;
		touch(x, req);
	}
	req_settle(x, req);
}

void req_call_progress(struct stag_xfer *x)
{
	struct stag_xfer_req *req;

	while ((req = x->touched)) {
		x->touched = req->touched_next;
		req->touched = false;
		req->progress(req, req->bytes_done, req->bytes_total);
	}
}
