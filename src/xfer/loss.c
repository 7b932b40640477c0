// SPDX-License-Identifier: BSD-2-Clause
/*
 * loss.c - handles a broken connection: requeues its records, and finds the request that broke it.
 *
 * A completion with an error of its own identifies the record that broke the connection. If that
 * holds one request, this request fails. If it holds several, each is posted by itself from then
 * on, and the culprit is identified next time. If no record is identified (iWARP: a write that the
 * peer refuses ends the connection), each request with data in flight counts a loss. A suspect
 * request is posted alone, so that it either makes progress, or is the only one to count the next
 * loss.
 */
#include "xfer.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SUSPECT_LOSSES 2

/* Returns whether the status concerns the work request, and not only the connection. */
static bool names_culprit(const struct rail *rail, enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_LOC_QP_OP_ERR:
		/*
		 * The kernel's siw reports this for whatever it was about to send when the peer
		 * disconnected.
		 */
		return !rail->iwarp;
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_REM_ABORT_ERR:
	case IBV_WC_FATAL_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
	case IBV_WC_GENERAL_ERR:
		return false;
	default:
		return true;
	}
}

/* ---- counting losses ---- */

/* Returns whether the record was posted on this connection, or its post was refused. */
static bool was_tried(const struct rail *rail, const struct record *rec)
{
	return !rail->chain || seq_reached(rail->unposted, rec->seq);
}

static bool was_posted(const struct rail *rail, const struct record *rec)
{
	return record_wire_bytes(rec) && was_tried(rail, rec) &&
	       !(rail->chain && rec->seq == rail->unposted);
}

static void add_ending(struct stag_xfer *x, struct req_list *ending, struct stag_xfer_req *req)
{
	if (req->loss_mark == x->loss_mark)
		return;
	req->loss_mark = x->loss_mark;
	req_list_append(ending, req);
}

static void count_loss(struct stag_xfer *x, struct stag_xfer_req *req, enum ibv_wc_status status)
{
	if (req->loss_mark == x->loss_mark || !req->bytes_total)
		return;
	if (++req->losses >= x->max_losses) {
		req_end(x, req, EIO, status);
		return; /* marked when it is added to the ending requests */
	}
	req->loss_mark = x->loss_mark;
	req->alone = req->losses >= SUSPECT_LOSSES;
}

static void blame_all_in_record(struct stag_xfer *x, struct record *rec, enum ibv_wc_status status)
{
	/* requests of these that had data in flight */
	uint32_t left = rec->split ? 1 : rec->num_reqs;
	struct stag_xfer_req *req = rec->first;

	for (; left; left--, req = req->follower)
		if (req->phase != REQ_ENDING)
			count_loss(x, req, status);
}

static void blame_record(struct stag_xfer *x, struct record *rec, enum ibv_wc_status status)
{
	if (rec->split || rec->num_reqs == 1)
		req_end(x, rec->first, EIO, status);
	else
		rec->split = true;
}

/* ---- from the ring to the lost records ---- */

static struct record *find_record(const struct rail *rail, uint32_t seq)
{
	struct record *rec = rail->ring.head;

	while (rec && (rec->seq != seq || !record_wire_bytes(rec)))
		rec = rec->next;
	return rec;
}

static void blame_requests(struct rail *rail)
{
	struct stag_xfer *x = rail->x;
	struct record *culprit =
		names_culprit(rail, rail->status) ? find_record(rail, rail->culprit) : NULL;

	if (culprit) {
		blame_record(x, culprit, rail->status);
		return;
	}
	for (struct record *rec = rail->ring.head; rec; rec = rec->next)
		if (was_tried(rail, rec))
			blame_all_in_record(x, rec, rail->status);
}

static void forget_connection(struct rail *rail)
{
	rail->ring = (struct record_list){0};
	rail->records = rail->reading = rail->confirms = 0;
	rail->bytes = 0;
	rail->chain = NULL;
	rail->chain_length = 0;
	rail->exclusive = rail->full = false;
	rail->generation++;
}

/* Moves the rail's records to the lost ones, before those lost earlier, which are younger. */
static void move_ring(struct rail *rail, struct req_list *ending)
{
	struct stag_xfer *x = rail->x;
	struct record_list lost = {0};
	struct record *rec;

	while ((rec = record_list_pop(&rail->ring))) {
		record_lose(rec, was_posted(rail, rec));
		record_list_append(&lost, rec);
		record_for_each_req (rec, req)
			if (req->phase == REQ_ENDING)
				add_ending(x, ending, req);
	}
	record_list_join(&lost, &x->lost);
	x->lost = lost;
}

/* Takes the rail down, when no more completions will come from the queue pair. */
static void drop_rail(struct rail *rail)
{
	struct stag_xfer *x = rail->x;
	struct req_list ending = {0};
	struct stag_xfer_req *req;

	x->loss_mark++;
	blame_requests(rail);
	move_ring(rail, &ending);
	forget_connection(rail);
	while ((req = ending.head)) {
		req_list_remove(&ending, req);
		lost_forget(x, req);
		req_settle(x, req);
	}
	rail_set_state(rail, RAIL_DOWN);
}

/* ---- the end of a connection ---- */

/*
 * Returns the seq of the last work request that is sure to complete, or `proved` if there is none.
 */
static uint32_t last_sure(const struct rail *rail)
{
	uint32_t last = rail->proved;

	if (!rail->chain)
		return seq_reached(last, rail->proof) ? last : rail->proof;
	for (const struct record *rec = rail->ring.head; rec; rec = rec->next)
		if (rec->wr.send_flags & IBV_SEND_SIGNALED && was_posted(rail, rec))
			last = rec->seq;
	for (uint32_t i = rail->confirm_put - rail->confirms; i != rail->confirm_put; i++) {
		uint32_t seq = rail->confirm_seq[i % RAIL_CONFIRMS];

		if (!seq_reached(seq, rail->unposted) && seq_reached(seq, last))
			last = seq;
	}
	return last;
}

static void begin_end(struct rail *rail, uint32_t seq, enum ibv_wc_status status)
{
	rail->status = status;
	rail->culprit = seq;
	rail->drain = last_sure(rail);
	rail->x->counters.losses++;
	rail_set_state(rail, RAIL_DRAINING);
	xfer_complain(rail->x, "rail %u, queue pair %u: down: %s", rail->number, rail->qp_num,
		      ibv_wc_status_str(status));
}

void rail_failed(struct rail *rail, uint32_t seq, enum ibv_wc_status status)
{
	if (rail->state == RAIL_UP) {
		/* Except on iWARP, all before the first that failed are done. */
		if (!rail->iwarp)
			rail_prove(rail, seq - 1);
		begin_end(rail, seq, status);
	} else if (names_culprit(rail, status) && !names_culprit(rail, rail->status)) {
		rail->status = status;
		rail->culprit = seq;
	}
	if (seq_reached(seq, rail->drain))
		drop_rail(rail);
}

void rail_refused(struct rail *rail, int err)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	begin_end(rail, rail->unposted, IBV_WC_GENERAL_ERR);
	xfer_complain(rail->x, "rail %u, queue pair %u: ibv_post_send failed: %s", rail->number,
		      rail->qp_num, strerror(err));
	/* Flushes everything that is posted. */
	(void)ibv_modify_qp(rail->qp, &attr, IBV_QP_STATE);
	if (rail->drain == rail->proved)
		drop_rail(rail);
}

void rail_abandon(struct rail *rail)
{
	if (rail->state == RAIL_UP)
		begin_end(rail, rail->proved, IBV_WC_WR_FLUSH_ERR);
	if (rail->state == RAIL_DRAINING)
		drop_rail(rail);
}
