/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xfer.h - internal header of the transfer manager.
 *
 * plan.c turns chains into descriptors and knows no device. queue.c schedules requests, and forms
 * records. request.c and record.c account for what is done, rail.c posts records and handles
 * completions, loss.c handles connections that break, limits.c queries the limits of devices.
 * manager.c is the public interface that ties them together, wait.c the part of it that sleeps.
 *
 * A record is a descriptor with its state. It is in one of these places:
 *
 *	free --form--> ring of a rail --proof--> free
 *	                  |    ^
 *	         rail down|    |posted again
 *	                  v    |
 *	                  lost
 *
 * It holds bytes of one request, or of several that merged. Then it holds the tail of the
 * first, all of those in the middle, and the head of the last; so `follower` of a request is
 * the next request in the one record that holds its tail, and no list of spans is needed.
 * (`num_reqs` is the number of requests in a record.)
 */
#ifndef XFER_XFER_H
#define XFER_XFER_H

#include "stag/xfer.h"

/* ---- records ---- */

enum record_place { RECORD_FREE, RECORD_RING, RECORD_LOST };

struct record {
	struct ibv_send_wr wr; /* as it was or will be posted; sg_list belongs to the record */
	struct record *next;   /* in its list */
	struct stag_xfer_req *first;
	uint32_t length;      /* total bytes */
	uint32_t first_bytes; /* bytes of the first request */
	uint32_t num_reqs;
	uint32_t seq; /* sequence number on the rail */
	uint8_t place;
	bool split;  /* posted one request at a time, and planned again for that */
	bool posted; /* was posted before, on another connection */
	struct stag_xfer_cursor start; /* position where the first request's bytes begin */
};

struct record_list {
	struct record *head, *tail;
};

/* ---- rails ---- */

/*
 *	UP --first error--> DRAINING --no more completions--> DOWN
 *	 ^                                                             |
 *	 +---------------------------- rebind -------------------------+
 */
enum rail_state { RAIL_DOWN, RAIL_UP, RAIL_DRAINING };

#define RAIL_CONFIRMS 4

/*
 * Work requests have sequence numbers in the order of posting. A completion that proves one proves
 * all before it. If a write's completion proves nothing (confirming: iWARP), only reads prove.
 */
struct rail {
	struct stag_xfer *x;
	struct ibv_qp *qp; /* the queue pair and its CQ may be destroyed when the rail is down */
	struct ibv_cq *cq;
	uint32_t qp_num;
	enum rail_state state;
	uint8_t number;
	bool iwarp, confirming;
	uint32_t depth, reads; /* limits of its queue pair */
	bool exclusive;	       /* holds a record that must be alone */
	uint16_t generation;   /* number of its queue pair */

	struct record_list ring; /* ordered by seq */
	uint32_t records, max_records;
	uint32_t reading; /* records that are reads */
	uint64_t bytes;	  /* bytes in the ring */

	uint32_t next_seq;
	uint32_t proved;	/* everything up to here is done */
	uint32_t wrote;		/* all writes up to here are done */
	uint32_t proof;		/* the last one whose completion will prove something */
	uint32_t since;		/* records put after it, and */
	uint64_t bytes_since;	/* their bytes */
	uint32_t proof_records; /* a proof is due after this many records, or */
	uint64_t proof_bytes;	/* this many bytes */

	struct ibv_send_wr *chain, *chain_last; /* put, but not posted yet */
	uint32_t chain_length, unposted;	/* unposted: seq of the first of them */
	bool full; /* the send queue accepted no more: the caller posts to it, too */

	uint32_t confirms, max_confirms; /* zero-length reads in flight */
	uint32_t confirm_put;		 /* free-running */
	uint32_t confirm_seq[RAIL_CONFIRMS];
	struct ibv_send_wr confirm[RAIL_CONFIRMS];
	uint64_t last_addr; /* destination of the last record */
	uint32_t last_rkey;

	/* The end of its connection. */
	enum ibv_wc_status status; /* the most significant error */
	uint32_t culprit;	   /* seq of the work request with that error */
	uint32_t drain;		   /* seq of the last completion to expect */
};

/* ---- the manager ---- */

struct req_list {
	struct stag_xfer_req *head, *tail;
};

struct stag_xfer {
	/* Accessed for every descriptor. */
	struct req_list queue;	 /* requests with bytes that are not in a record yet */
	struct record *free;	 /* LIFO: the last one used is in the cache */
	struct record_list lost; /* formed, to be posted before anything new */
	struct stag_xfer_limits limits[STAG_XFER_WRITE + 1]; /* by op */
	uint64_t window, turn;
	uint64_t need; /* bytes of the next descriptor, if it was too large for the window */
	unsigned int num_rails, plugged;
	unsigned int flags;
	uint8_t id; /* part of work request ids */
	bool paused;
	uint32_t check_every, calls; /* calls between two checks by xfer_is_valid(); 0: never */
	struct stag_xfer_counters counters;
	struct rail rails[STAG_XFER_MAX_RAILS];

	struct req_list done;
	struct stag_xfer_req *touched; /* requests with progress since the last poll */
	uint64_t in_flight_reqs;       /* requests submitted and not returned */
	uint32_t loss_mark;	       /* number of losses of rails */

	uint32_t descriptors, max_transfer, max_segments, max_losses;
	struct record *records;
	struct ibv_sge *sges;
	struct ibv_pd *pd;
	struct ibv_mr *mr;	    /* region of scratch */
	struct ibv_sge confirm_sge; /* of length 0, in scratch */
	uint64_t scratch;
	bool started; /* a request was submitted */
	char error[200];
};

/* plan.c */

/*
 * Appends to a descriptor (length 0: empty) as much of the request, from the cursor on, as the
 * limits allow, and advances the cursor. Returns true if all of the request is in descriptors now,
 * so that the next request may join this one.
 */
bool plan_extend(const struct stag_xfer_limits *limits, const struct stag_xfer_req *req,
		 struct stag_xfer_cursor *cursor, struct stag_xfer_desc *desc);

/* request.c */

/*
 *	NONE -> QUEUED -> FORMED -> DONE -> NONE
 *	           |         |       ^
 *	           +---------+--> ENDING
 *
 * ENDING: failed or canceled, and waits for posted descriptors.
 */
enum req_phase { REQ_NONE, REQ_QUEUED, REQ_FORMED, REQ_ENDING, REQ_DONE };

void req_set_phase(struct stag_xfer_req *req, enum req_phase to);
void req_list_append(struct req_list *list, struct stag_xfer_req *req);
void req_list_remove(struct req_list *list, struct stag_xfer_req *req);

/* Accounts for more of its bytes, all in one record, that are known to be done. */
void req_progress(struct stag_xfer *x, struct stag_xfer_req *req, uint32_t bytes);
/* Stops forming descriptors for it. The caller removes it from the lost records, and settles it. */
void req_end(struct stag_xfer *x, struct stag_xfer_req *req, int error, enum ibv_wc_status status);
/* If nothing is left to wait for, moves the request to those that a poll returns. */
void req_settle(struct stag_xfer *x, struct stag_xfer_req *req);
void req_call_progress(struct stag_xfer *x);

/* record.c */
void record_list_append(struct record_list *list, struct record *rec);
void record_list_prepend(struct record_list *list, struct record *rec);
void record_list_join(struct record_list *list, struct record_list *more);
struct record *record_list_pop(struct record_list *list);

/* Iterates over the requests that have bytes in it; none may be removed meanwhile. */
#define record_for_each_req(rec, req)                                                              \
	for (uint32_t req##_left = (rec)->num_reqs; req##_left; req##_left = 0)                    \
		for (struct stag_xfer_req *req = (rec)->first; req##_left;                         \
		     req##_left--, req = req->follower)

/* Returns how many bytes are posted, or will be, in one piece. */
uint32_t record_wire_bytes(const struct record *rec);
/* Returns whether it must be posted on an empty rail. */
bool record_is_suspect(const struct record *rec);
void record_enter_ring(struct record *rec);
/* Frees a record whose posted part is done, or requeues the rest as lost if it was split. */
void record_done(struct stag_xfer *x, struct record *rec);
void record_lose(struct record *rec, bool was_posted);
/* Prepares the first lost record for posting. */
void lost_prepare(struct stag_xfer *x, struct record *rec);
/* Removes a request's bytes from all lost records. */
void lost_forget(struct stag_xfer *x, struct stag_xfer_req *req);

/* queue.c */
void queue_add(struct stag_xfer *x, struct stag_xfer_req *req);
void queue_remove(struct stag_xfer *x, struct stag_xfer_req *req);
/*
 * Forms a record, no longer than room, from the head of the queue. Returns NULL if it does not fit,
 * or no record is free.
 */
struct record *queue_form(struct stag_xfer *x, uint64_t room);

/* rail.c */

/* Returns whether a has reached b in a sequence that wraps. */
static inline bool seq_reached(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b) >= 0;
}

void rail_set_state(struct rail *rail, enum rail_state to);
/* Appends a record to the rail; rail_post() posts it. */
void rail_put(struct rail *rail, struct record *rec);
void rail_post(struct rail *rail);
void rail_make_room(struct rail *rail); /* posts a list that is long enough */
/*
 * Called when there is nothing more to put: ensures that something proves all records, and posts.
 */
void rail_settle(struct rail *rail);
/* Marks every work request up to seq as done. */
void rail_prove(struct rail *rail, uint32_t seq);
bool rail_take(struct stag_xfer *x, const struct ibv_wc *wc);

/* loss.c */
void rail_failed(struct rail *rail, uint32_t seq, enum ibv_wc_status status);
void rail_refused(struct rail *rail, int err); /* by ibv_post_send() */
/* Takes a rail down at once: everything posted on its queue pair is lost. */
void rail_abandon(struct rail *rail);

/* limits.c */

/*
 * Connects a rail that is down to a queue pair; narrow: reduces the manager's limits accordingly.
 */
int rail_adopt(struct stag_xfer *x, struct rail *rail, struct ibv_qp *qp, bool narrow);

/* manager.c */
void xfer_complain(struct stag_xfer *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void xfer_pump(struct stag_xfer *x); /* posts as much as possible */
void xfer_reap(struct stag_xfer *x); /* processes completions */
/* Returns whether the rail's CQ is to be polled, and is not already polled for an earlier rail. */
bool xfer_owns_cq(const struct stag_xfer *x, unsigned int number);

/* valid.c */
bool xfer_is_valid(const struct stag_xfer *x);

#endif
