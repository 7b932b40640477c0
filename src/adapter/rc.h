/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rc.h - reliable connections of roce0: what InfiniBand has on a stream that iWARP has not.
 *
 * Both sides count requests (sends, writes with or without immediate, reads, atomics, flushes) from 1 on, for each
 * stream. The responder acknowledges those that it has carried out, many at a time; a send or a write completes when it is
 * acknowledged, a read or an atomic when its response has come (rc_ack.c).
 *
 * A responder that has no receive drops the request and all that follow it, and says so (NAK, RNR). The requester waits for
 * its GO, or until rnr_retry is used up, and sends them again behind a RESUME (rc_rnr.c). Acknowledgements and
 * responses of the other direction go on meanwhile.
 *
 * A responder that refuses a request says which one, and why, and both queue pairs go to ERR (rc_fault.c).
 *
 * Local requests (bind, invalidate, fast registration) need no stream if nothing is before them in the send queue.
 *
 * The end of a stream is no error. A queue pair that has something to send looks for its peer again (reach.c). Requests that
 * were under way when a stream was lost fail when the retries are used up, and so do requests that make no progress (rc.c).
 *
 * Unreliable connections (UC) are the same without acknowledgements, retries and NAKs: uc.c.
 */
#ifndef STAG_RC_H
#define STAG_RC_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "adapter/engine.h"
#include "adapter/reach.h"
#include "adapter/srq.h"
#include "wire/wire.h"

struct key_map;
struct rwqe;
struct stag_qp;
struct wqe;

#define RC_NO_EVENT ((enum ibv_event_type) - 1)
#define RC_LAZY_ACKS                                                                               \
	64 /* requests that a polling thread may leave unacknowledged until its next poll */
/* An acknowledgement is asked for after so many requests or bytes at least: it costs as much as a few short requests. */
#define RC_ASK_REQUESTS 8
#define RC_ASK_BYTES	32768
/* Polls in a row without a byte, after which so many requests are acknowledged that the requester has not asked for. */
#define RC_LULLS 24
/*
 * Threads answer, not hardware: a shorter ACK timeout is taken as this one. While there is a stream, the peer's host is
 * alive, and its threads may be waiting for a processor.
 */
#define RC_MIN_RETRY_MS	      100
#define RC_MIN_RETRY_ALIVE_MS 1000
#define UC_PATIENCE_NS	      NS_PER_S /* how long a message of UC waits for a stream, or for room in it */

/* Why no new request is framed. */
enum rc_hold {
	RC_HOLD_STATE = 1 << 0, /* not in RTS */
	RC_HOLD_RNR = 1 << 1,	/* the peer has no receive */
	RC_HOLD_LOST = 1 << 2,	/* requests at the front will fail: they were under way, or wrong */
};

struct rc_rnr {		 /* as requester; tx_lock */
	uint32_t number; /* the request that waits */
	unsigned left;	 /* periods of the timer that are left */
	uint64_t period; /* ns */
	uint64_t until;	 /* end of the present period, clock_ns() */
	struct timer timer;
};

struct rc_words { /* control messages that are due; tx_lock */
	bool nak_rnr, go, resume;
	bool nak_is_out;    /* an RNR NAK has been framed: GO may follow */
	enum rdmap_nak nak; /* the last message: why the peer's request was refused */
	uint32_t nak_number;
};

struct rc {
	struct stag_qp *qp;
	struct reach reach; /* engine lock */

	/* as requester; tx_lock */
	unsigned hold;		/* enum rc_hold */
	uint32_t framed;	/* number of the last request that was framed */
	uint32_t acked;		/* of the last one that was acknowledged */
	uint32_t ack_idx;	/* SQ index: all before it are acknowledged */
	uint32_t promised;	/* segments that must follow the last one (RDMAP_RSV_FULL_NEXT) */
	bool draining;		/* in SQD, and requests are under way, or were a moment ago */
	uint32_t unasked;	/* requests since the last one with RDMAP_RSV_ASK, */
	uint64_t unasked_bytes; /* and their payload */
	uint16_t peer_ird;
	struct rc_rnr rnr;
	struct rc_words words;

	/* as responder */
	_Atomic uint32_t
		executed; /* number of the last request that was carried out; written under rx_lock */
	uint32_t ack_sent;	  /* of the last one that we acknowledged; tx_lock */
	bool dropping;		  /* until RESUME; UC: until the message ends; rx_lock */
	bool asked;		  /* an acknowledgement is not to wait; rx_lock */
	unsigned lulls;		  /* polls in a row that found nothing; rx_lock */
	struct srq_waiter waiter; /* the same with an SRQ; srq->lock */
	struct rwqe *kept;	  /* the receive of a message that was cut off, or NULL; rx_lock */
	bool has_kept;
	uint8_t *sink; /* payload that is dropped; rx_lock */

	/* retries */
	bool watched;		 /* the timer runs, */
	uint8_t watched_timeout; /* with this ACK timeout; tx_lock */
	struct timer patience;	 /* engine */
	unsigned tries;		 /* timer periods without progress */
	uint64_t seen;		 /* progress at the last one */
	_Atomic uint32_t heard;	 /* reads of the stream that brought something; streams */
	bool farewell; /* in ERR, and the last message waits for room in the stream; tx_lock */
	bool lost;     /* the stream has ended, and is to be closed; tx_lock */
};

/* ---- rc.c ---- */

int rc_create(struct stag_qp *qp); /* RC and UC queue pairs */
void rc_destroy(struct stag_qp *qp);
void rc_stop(struct stag_qp *qp);  /* before RESET and destruction; under the engine lock */
void rc_reset(struct stag_qp *qp); /* to RESET; under both locks */
/* after a change of the state or of attributes; under tx_lock */
void rc_moved(struct stag_qp *qp, enum ibv_qp_state from);
void rc_settle(struct stag_qp *qp);	       /* the same, under the engine lock only */
void rc_posted(struct stag_qp *qp);	       /* requests were posted; under tx_lock */
bool rc_is_draining(const struct stag_qp *qp); /* in SQD: are requests under way? Under tx_lock */
void rc_check_drained(struct stag_qp *qp);     /* after requests were retired; under tx_lock */

void rc_attached(struct stag_qp *qp);	  /* a stream has begun; under both locks */
void rc_lose(struct stag_qp *qp);	  /* it has ended; under both locks. The engine closes it */
void rc_detach(struct stag_qp *qp);	  /* closes it; under the engine lock */
void rc_flushed(struct stag_qp *qp);	  /* to ERR; under both locks */
void rc_say_farewell(struct stag_qp *qp); /* in ERR: the stream has room; on the engine thread */
void rc_on_work(struct stag_qp *qp); /* on the engine thread, after rc_lose() or rc_flushed() */
void rc_fail_oldest(struct stag_qp *qp, enum ibv_wc_status status); /* to ERR; under both locks */

/* ---- rc_ack.c ---- */

void rc_framed(struct stag_qp *qp, struct wqe *w); /* numbers a request; under tx_lock */
/*
 * Is the present request, whose last segment is being framed, to be acknowledged soon (RDMAP_RSV_ASK)? Call it once for
 * each request.
 */
bool rc_asks(struct stag_qp *qp, const struct wqe *w);
/* Frames a control message if one is due. Returns false if none is, or none may go now. */
bool rc_frame_word(struct stag_qp *qp);
bool rc_words_are_due(const struct stag_qp *qp); /* under tx_lock */
void rc_frame_last_words(struct stag_qp *qp); /* acknowledgement and NAK, behind everything else */
void rc_flush_acks_at_exit(struct stag_qp *qp);	  /* the same, unless another thread holds it */
void rc_flush_acks(struct stag_qp *qp);		  /* from any thread that does not hold tx_lock */
bool rc_acked(struct stag_qp *qp, uint32_t upto); /* under tx_lock. false: nonsense */
struct wqe *rc_find(struct stag_qp *qp, uint32_t number,
		    uint32_t *idx); /* not acknowledged; or NULL */
bool rc_end_ack(struct stag_qp *qp, const uint8_t *payload);

static inline void rc_executed(struct rc *rc)
{
	/* One writer: a plain store is enough, and cheaper than an atomic addition. */
	atomic_store_explicit(&rc->executed,
			      atomic_load_explicit(&rc->executed, memory_order_relaxed) + 1,
			      memory_order_release);
}

static inline uint32_t rc_unacknowledged(const struct rc *rc)
{
	return atomic_load_explicit(&rc->executed, memory_order_relaxed) -
	       __atomic_load_n(&rc->ack_sent, __ATOMIC_RELAXED);
}

/* Is there something to acknowledge? */
static inline bool rc_ack_is_due(const struct rc *rc)
{
	return rc_unacknowledged(rc) != 0;
}

/* ---- rc_rnr.c ---- */

void rc_begin_drop(struct stag_qp *qp); /* no receive; under rx_lock */
void rc_go(struct stag_qp *qp);		/* a receive was posted; no lock held */
bool rc_take_kept(struct stag_qp *qp);	/* into rx->recv; under rx_lock */
void rc_keep_receive(struct stag_qp *qp);
bool rc_drop_target(struct stag_qp *qp, uint32_t len, struct key_map *map);
bool rc_end_nak(struct stag_qp *qp, const uint8_t *payload);
bool rc_end_go(struct stag_qp *qp, const uint8_t *payload);
bool rc_end_resume(struct stag_qp *qp, const uint8_t *payload);
uint64_t rc_rnr_ns(uint8_t code); /* of a timer code of InfiniBand */

/* ---- rc_fault.c: the counterparts of rx_stop_...() for a stream of roce0. Under rx_lock; return false ---- */

bool rc_refuse_fault(struct stag_qp *qp, struct wire_fault f);
bool rc_refuse(struct stag_qp *qp, enum rdmap_nak nak, enum ibv_event_type event);
bool rc_break(struct stag_qp *qp); /* the peer makes no sense: lose the stream */
bool rc_may(struct stag_qp *qp, int access, const char *what); /* or refuses the request */
enum ibv_event_type rc_own_fault(struct stag_qp *qp); /* notes a response's NAK; under both locks */

/* ---- uc.c ---- */

/* Drops the message whose segment has begun. Returns false if the stream has to end. Under rx_lock. */
bool uc_drop(struct stag_qp *qp, const char *why);
void uc_dropped(struct stag_qp *qp); /* after each segment that was dropped; under rx_lock */
bool uc_has(uint8_t opcode);	     /* of a request of the peer */
/* Complete requests whose messages are lost. Under both locks. */
void uc_stream_lost(struct stag_qp *qp);
void uc_lose_patience(struct stag_qp *qp);

#endif
