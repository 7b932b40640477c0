// SPDX-License-Identifier: BSD-2-Clause
/*
 * rail.c - one queue pair: posts lists of records, and learns from completions what is done.
 *
 * loss.c handles the end of its connection.
 */
#include "xfer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX       32 /* work requests in one post: enough to make the call's cost negligible */
#define EAGER_CONFIRMS 2  /* while this many are in flight, writes accumulate for the next one */

void rail_set_state(struct rail *rail, enum rail_state to)
{
	static const bool legal[3][3] = {
		[RAIL_DOWN] = {[RAIL_UP] = true},
		[RAIL_UP] = {[RAIL_DRAINING] = true},
		[RAIL_DRAINING] = {[RAIL_DOWN] = true},
	};

	assert(legal[rail->state][to]);
	(void)legal;
	rail->state = to;
}

/* ---- work request ids ---- */

#define SEQ_BITS 24
#define SEQ_MASK ((1u << SEQ_BITS) - 1)
#define GEN_BITS 12
#define GEN_MASK ((1u << GEN_BITS) - 1)

/* tag (16), manager (8), rail (4), generation (12), seq (24) */
static uint64_t wr_id(const struct rail *rail, uint32_t seq)
{
	return (uint64_t)STAG_XFER_WR_ID_TAG << 48 | (uint64_t)rail->x->id << 40 |
	       (uint64_t)rail->number << 36 | (uint64_t)(rail->generation & GEN_MASK) << SEQ_BITS |
	       (seq & SEQ_MASK);
}

/* Returns the rail that a completion belongs to; NULL: not this manager's. */
static struct rail *rail_of(struct stag_xfer *x, uint64_t id)
{
	unsigned int number = id >> 36 & 0xf;

	if (id >> 48 != STAG_XFER_WR_ID_TAG || (id >> 40 & 0xff) != x->id || number >= x->num_rails)
		return NULL;
	return &x->rails[number];
}

/* Returns whether a completion belongs to a queue pair that this rail had before. */
static bool is_stale(const struct rail *rail, uint64_t id)
{
	return rail->state == RAIL_DOWN ||
	       (id >> SEQ_BITS & GEN_MASK) != (rail->generation & GEN_MASK);
}

static uint32_t seq_of(const struct rail *rail, uint64_t id)
{
	return rail->proved + (((uint32_t)id - rail->proved) & SEQ_MASK);
}

/* ---- posting ---- */

static void post_later(struct rail *rail, struct ibv_send_wr *wr, uint32_t seq)
{
	wr->wr_id = wr_id(rail, seq);
	wr->next = NULL;
	if (!rail->chain) {
		rail->chain = wr;
		rail->unposted = seq;
	} else {
		rail->chain_last->next = wr;
	}
	rail->chain_last = wr;
	rail->chain_length++;
}

static void set_proof(struct rail *rail, uint32_t seq)
{
	rail->proof = seq;
	rail->since = 0;
	rail->bytes_since = 0;
}

static bool proves(const struct rail *rail, const struct ibv_send_wr *wr)
{
	return !rail->confirming || wr->opcode == IBV_WR_RDMA_READ;
}

/* Adds a zero-length read of the memory that the last write went to. */
static void put_confirm(struct rail *rail)
{
	uint32_t i = rail->confirm_put++ % RAIL_CONFIRMS;
	struct ibv_send_wr *wr = &rail->confirm[i];

	*wr = (struct ibv_send_wr){
		.opcode = IBV_WR_RDMA_READ,
		.sg_list = &rail->x->confirm_sge,
		/* one segment of length 0: the kernel's siw refuses a read without any */
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {rail->last_addr, rail->last_rkey},
	};
	rail->confirm_seq[i] = rail->next_seq;
	rail->confirms++;
	rail->x->counters.confirms++;
	set_proof(rail, rail->next_seq);
	post_later(rail, wr, rail->next_seq++);
}

/*
 * Makes the last record signaled, if it is not posted yet, so that its completion proves all before
 * it. Returns false if that is not possible.
 */
static bool prove_by_last(struct rail *rail)
{
	if (!rail->since || !rail->chain || !proves(rail, rail->chain_last))
		return false;
	rail->chain_last->send_flags = IBV_SEND_SIGNALED;
	set_proof(rail, rail->next_seq - 1);
	return true;
}

/*
 * Ensures that a completion will prove the records put so far: by the last record, or by a confirm.
 * A confirm waits for the reads before it: the kernel's siw, while still busy with the response to
 * another read, answers a zero-length read with as many bytes as that other one had.
 */
static void request_proof(struct rail *rail, uint32_t max_confirms)
{
	if (prove_by_last(rail) || !rail->since)
		return;
	if (rail->confirms < max_confirms && !rail->reading)
		put_confirm(rail);
}

/* Puts a record without bytes, which is done when those before it are. */
static void put_marker(struct rail *rail, struct record *rec)
{
	if (!rail->ring.head) {
		record_done(rail->x, rec);
		return;
	}
	rec->seq = rail->next_seq - 1;
	record_list_append(&rail->ring, rec);
	rail->records++;
}

/* Returns whether a record must be signaled: on iWARP no later write proves a read. */
static bool needs_signal(const struct rail *rail, const struct record *rec)
{
	return rail->iwarp && !rail->confirming && rec->wr.opcode == IBV_WR_RDMA_READ;
}

/* Returns whether the record is a read that is posted, not a marker without bytes. */
static bool is_read(const struct record *rec)
{
	return rec->wr.opcode == IBV_WR_RDMA_READ && record_wire_bytes(rec);
}

void rail_put(struct rail *rail, struct record *rec)
{
	uint32_t bytes = record_wire_bytes(rec);

	assert(rail->state == RAIL_UP && !rail->exclusive && !rail->full);
	rail->x->counters.reposted += rec->posted;
	rail->exclusive = record_is_suspect(rec);
	record_enter_ring(rec);
	if (!bytes) {
		put_marker(rail, rec);
		return;
	}
	/*
	 * The confirm that this write requires will wait for the last read, so that read is
	 * signaled.
	 */
	if (rec->wr.opcode == IBV_WR_RDMA_WRITE && rail->confirming)
		prove_by_last(rail);
	rail->reading += is_read(rec);
	rec->seq = rail->next_seq++;
	rec->wr.send_flags = needs_signal(rail, rec) ? IBV_SEND_SIGNALED : 0;
	record_list_append(&rail->ring, rec);
	rail->records++;
	rail->bytes += bytes;
	rail->since++;
	rail->bytes_since += bytes;
	rail->last_addr = rec->wr.wr.rdma.remote_addr;
	rail->last_rkey = rec->wr.wr.rdma.rkey;
	post_later(rail, &rec->wr, rec->seq);
	if (rail->since >= rail->proof_records || rail->bytes_since >= rail->proof_bytes)
		request_proof(rail, rail->max_confirms);
}

void rail_post(struct rail *rail)
{
	struct ibv_send_wr *bad = NULL;
	int err;

	if (!rail->chain)
		return;
	rail->x->counters.posts++;
	err = abs(ibv_post_send(rail->qp, rail->chain, &bad)); /* siw's errors are negative, and */
	if (!err && bad)
		err = ENOMEM; /* it does not report when the queue accepted a part of the list */
	rail->chain_length = 0;
	rail->full = false;
	if (!err) {
		rail->chain = NULL;
		return;
	}
	rail->chain = bad ? bad : rail->chain;
	rail->unposted = seq_of(rail, rail->chain->wr_id);
	/* The caller posts to the queue pair, too: retried at the next poll. */
	rail->full = err == ENOMEM || err == EAGAIN;
	if (!rail->full)
		rail_refused(rail, err);
}

void rail_make_room(struct rail *rail)
{
	if (rail->chain_length < LIST_MAX)
		return;
	/* No other record may follow, so the last one proves all, if it can. */
	request_proof(rail, 0);
	rail_post(rail);
}

void rail_settle(struct rail *rail)
{
	if (rail->state != RAIL_UP || rail->full)
		return;
	request_proof(rail,
		      rail->max_confirms < EAGER_CONFIRMS ? rail->max_confirms : EAGER_CONFIRMS);
	rail_post(rail);
}

/* ---- completions ---- */

static bool is_proven(const struct rail *rail, const struct record *rec)
{
	if (!record_wire_bytes(rec))
		return true; /* it is the oldest */
	if (seq_reached(rail->proved, rec->seq))
		return true;
	return rec->wr.opcode == IBV_WR_RDMA_WRITE && seq_reached(rail->wrote, rec->seq);
}

static void retire(struct rail *rail)
{
	struct record *rec;

	while ((rec = rail->ring.head) && is_proven(rail, rec)) {
		record_list_pop(&rail->ring);
		rail->records--;
		rail->bytes -= record_wire_bytes(rec);
		rail->reading -= is_read(rec);
		rail->exclusive = false;
		record_done(rail->x, rec);
	}
}

void rail_prove(struct rail *rail, uint32_t seq)
{
	if (!seq_reached(rail->proved, seq))
		rail->proved = seq;
	while (rail->confirms &&
	       seq_reached(rail->proved,
			   rail->confirm_seq[(rail->confirm_put - rail->confirms) % RAIL_CONFIRMS]))
		rail->confirms--;
	retire(rail);
}

/* Handles a completion. On iWARP a write may complete before a read that was posted earlier. */
static void take_success(struct rail *rail, uint32_t seq, enum ibv_wc_opcode opcode)
{
	if (!rail->iwarp || opcode == IBV_WC_RDMA_READ) {
		rail_prove(rail, seq);
	} else if (!rail->confirming) {
		rail->wrote = seq;
		retire(rail);
		if (!rail->ring.head || !seq_reached(seq, rail->ring.head->seq))
			rail->proved = seq;
	}
}

bool rail_take(struct stag_xfer *x, const struct ibv_wc *wc)
{
	struct rail *rail = rail_of(x, wc->wr_id);

	if (!rail)
		return false;
	if (is_stale(rail, wc->wr_id))
		return true;
	if (wc->status == IBV_WC_SUCCESS)
		take_success(rail, seq_of(rail, wc->wr_id), wc->opcode);
	else
		rail_failed(rail, seq_of(rail, wc->wr_id), wc->status);
	return true;
}
