/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp.h - the queue pair: one connection's queues, stream and state.
 *
 * Its queues are in sq.h, rq.h and srq.h; the private parts of its two directions in qp_tx.h and qp_rx.h.
 */
#ifndef STAG_QP_H
#define STAG_QP_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <infiniband/verbs.h>

#include "adapter/engine.h"
#include "adapter/keys.h"
#include "adapter/one_shot.h"
#include "adapter/rq.h"
#include "adapter/sq.h"
#include "adapter/srq.h"
#include "base/histogram.h"
#include "base/list.h"
#include "base/lock.h"
#include "stag/stagdv.h"
#include "wire/wire.h"

struct peer_request;
struct qp_media;
struct qp_port;
struct qp_rx;
struct qp_tx;
struct rc;
struct stag_cq;
struct stag_ctx;
struct stag_pd;
struct stag_srq;
struct store_peer;
struct store_qp;
struct stream;
struct ud;

/*
 * The states of a queue pair, after RFC 5040's stream states:
 *
 *   IDLE --qp_attach--> RTS --disconnect, peer's FIN--> CLOSING --both done--> ERROR
 *    |                   |                                 |
 *    +--modify ERR-------+--fault, Terminate, reset--------+-----------------> ERROR
 *
 * ibv_qp.state follows: RESET and INIT are IDLE; RTR and RTS are RTS; SQD is
 * CLOSING; ERR is ERROR. On roce0 it does not: see roce_qp.h.
 */
enum qp_state { QP_IDLE, QP_RTS, QP_CLOSING, QP_ERROR };

/* The parameters that the two peers agreed on while the connection was set up. */
struct qp_link {
	bool initiator;
	bool crc;
	bool markers_tx, markers_rx;
	uint8_t mpa_rev;
	bool p2p;    /* an RTR opens the stream */
	uint8_t rtr; /* initiator: the RTR to send (one bit of enum mpa_rtr) */
	bool stag_peer;
	unsigned caps;		     /* enum mpa_ext_cap; 0 towards a standard peer */
	enum shot_encoding one_shot; /* SHOT_NONE without MPA_EXT_ONE_SHOT */
	uint16_t ird, ord;
	uint64_t hold_until;  /* clock_ns(): send no FPDU before (0: no hold) */
	bool wait_first;      /* responder: send nothing before the first FPDU came */
	const uint8_t *ahead; /* bytes that came right behind the MPA frame; copied */
	size_t ahead_len;
};

/*
 * The reports of a queue pair to the code that connected it. Called on the engine thread,
 * under the engine lock, each at most once a connection.
 */
struct qp_events {
	/* responder with p2p or wait_first: the first FPDU has come */
	void (*established)(void *arg);
	void (*disconnected)(void *arg); /* the stream has ended, orderly or not */
};

struct qp_attachment { /* a queue pair's place in a completion queue's list */
	struct list link;
	struct stag_qp *qp;
};

/* Attributes that the program chose. */
struct qp_config {
	bool sig_all;
	bool has_send_ops;	 /* created with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS */
	uint64_t send_ops;	 /* the flags */
	struct ibv_qp_attr attr; /* set by modify, for query */
	union ibv_gid sgid;	 /* roce0: our address when the path was set; engine lock, */
	uint32_t sgid_ifindex;	 /* and its interface */
	struct ibv_qp_cap cap;
};

/* The thread that reads and writes the stream (claim.c), and whether it may. */
struct qp_progress {
	struct watch watch; /* the engine's */
	/* the completion queue whose poller watches instead; or NULL */
	struct stag_cq *_Atomic claimed_by;
	struct qp_attachment in_scq, in_rcq;
	struct lock arm_lock; /* a leaf; see qp_arm() */
	uint32_t idle_polls; /* of the poller that claimed it, in a row, without a byte; qps_lock */
	atomic_bool tx_blocked; /* the stream is full: somebody must watch for room */
	atomic_bool tx_sending; /* requests may be in the stream that have not completed yet */
	struct work read_on;	/* the stream holds bytes that its descriptor does not show */
	atomic_bool rx_paused;	/* the stream is not read for now: see rx_store.c; under rx_lock */
};

/*
 * The end of a connection from our side: the stream stays open until the peer has read
 * everything.
 */
struct qp_end {
	struct timer timer;
	unsigned tries;	       /* times that the timer found bytes in flight */
	bool lingering;	       /* the stream closes when the peer has, or when the timer runs out */
	atomic_bool timed_out; /* the peer acknowledged nothing, or took nothing, for too long */
};

/* Reports to the code that connected the queue pair, made by the engine thread. */
struct qp_notify {
	struct work work;
	atomic_bool established, disconnected, fail; /* what work has to do; fail: qp_fail() */
	const struct qp_events *events;		     /* engine lock; NULL: nobody */
	void *arg;
};

/* Each field is written under one lock. */
struct qp_stats {
	struct stagdv_counters counters; /* tx_lock or rx_lock */
	uint64_t recv_posts;		 /* rq_lock */
	uint64_t recv_completions;	 /* rx_lock; those of the send side: counters.completions */
	_Atomic uint64_t lease_refusals;
	struct histogram times; /* latency.c */
};

struct qp_storage {
	struct qp_media *media; /* medium.c: media that its poller polls, too; or NULL */
	struct store_qp *store; /* tx_lock; connected to storage of this process; or NULL */
	atomic_bool on_store;	/* store is set, for readers without the lock */
	/* store_peer.c: its peer uses storage; or NULL. Under both locks */
	struct store_peer *peer;
	atomic_bool serves_store; /* peer is set, for readers without a lock */
};

struct qp_mirror {
	atomic_int count;	/* mirrors that send over it */
	struct list stall_link; /* mirror.c: while it waits for a mirror */
};

struct stag_qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ibv_ex;
	};
	struct stag_pd *pd;
	struct stag_cq *scq, *rcq;
	struct stag_srq *srq;
	struct qp_config config;

	struct lock rx_lock, tx_lock, rq_lock;
	_Atomic int state;     /* enum qp_state; written under tx_lock by qp_set_state() */
	struct stream *stream; /* from qp_attach() until the end; written under both locks */
	struct qp_link link;   /* the same */
	uint32_t link_no;      /* tx_lock: the connection's number */
	struct sq sq;	       /* tx_lock */
	struct rq rq;	       /* rq_lock */
	struct qp_tx *tx;      /* tx_lock */
	struct qp_rx *rx;      /* rx_lock */
	bool rtr_read_pending; /* the RTR was a read: its response completes no request */

	bool starving;		       /* a receive was missing; rq_lock */
	struct srq_waiter recv_waiter; /* the same with an SRQ, on stag0; rx_wait.c */
	struct timer recv_timer;

	struct timer hold_timer;
	struct qp_end end;
	struct qp_notify notify;
	struct qp_progress progress;
	struct qp_stats stats;
	struct shots shots; /* one_shot.c */
	atomic_int windows; /* type-2 windows bound to it */
	struct qp_mirror mirror;
	struct qp_storage storage;
	uint32_t async_sent;  /* asynchronous events that the program was handed; async_lock */
	uint32_t async_types; /* a bit for each type among them; async_lock */
	struct list all_link; /* in the table of all queue pairs */
	uint32_t slot;	      /* in that table */

	struct qp_port *port; /* roce0: where it is reached; NULL on stag0 */
	struct rc *rc;	      /* roce0, RC and UC: rc.h; otherwise NULL */
	struct ud *ud;	      /* roce0, UD: ud.h; otherwise NULL */

	struct {
		int err;
		uint32_t start_put; /* sq.put at ibv_wr_start() */
	} builder;		    /* of ibv_wr_*, src/verbs/wr.c; tx_lock */
};

static inline struct stag_qp *to_stag_qp(struct ibv_qp *qp)
{
	return (struct stag_qp *)qp;
}

static inline bool qp_is_roce(const struct stag_qp *qp)
{
	return qp->port;
}

static inline bool qp_is_uc(const struct stag_qp *qp)
{
	return qp->ibv.qp_type == IBV_QPT_UC;
}

/* Do the headers of long FPDUs have sums of their own (DDP_SUM)? */
static inline bool qp_sums(const struct stag_qp *qp)
{
	return qp->link.crc && (qp->link.caps & MPA_EXT_SUM);
}

/* Returns the length of a long tagged segment's header, with its sum if there is one. */
static inline uint32_t qp_long_hdr(const struct stag_qp *qp)
{
	return DDP_TAGGED_LEN + (qp_sums(qp) ? DDP_SUM_LEN : 0);
}

/* Returns the payload of a segment of MPA_MAX_ULPDU (RDMAP_RSV_FULL_NEXT). */
static inline uint32_t qp_full(const struct stag_qp *qp)
{
	return MPA_MAX_ULPDU - qp_long_hdr(qp);
}

/* For asserts: does this thread hold the lock? */
static inline bool qp_tx_locked(const struct stag_qp *qp)
{
	return lock_held(&qp->tx_lock);
}

static inline bool qp_rx_locked(const struct stag_qp *qp)
{
	return lock_held(&qp->rx_lock);
}

/* ---- qp.c -------------------------------------------------------------- */

/* Creates a queue pair in RESET. attr->cap is updated to what was given. */
int qp_create(struct stag_ctx *ctx, struct ibv_qp_init_attr_ex *attr, struct stag_qp **out);
int qp_destroy(struct stag_qp *qp); /* aborts a live connection; waits for acks of async events */
const char *qp_state_word(enum ibv_qp_state state); /* "RTS" */
int qp_modify(struct stag_qp *qp, const struct ibv_qp_attr *attr, int mask);
void qp_query(struct stag_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);
int qp_post_recv(struct stag_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void qp_set_state(struct stag_qp *qp, enum qp_state to);
void qp_show_state(struct stag_qp *qp, enum ibv_qp_state state); /* sets ibv_qp.state */
void qp_to_error(struct stag_qp *qp);
void qp_to_reset(struct stag_qp *qp);

/* ---- qp_table.c: all of them --------------------------------------------- */

int qp_table_add(struct stag_qp *qp);
void qp_table_remove(struct stag_qp *qp);
struct stag_qp *qp_by_num(uint32_t qpn); /* of stag0; those of roce0: port.h */
void qp_counters(struct stag_qp *qp, struct stagdv_counters *c);
void qp_table_after_fork(void); /* resets its lock in a forked child */
void qp_table_end_all(void);	/* ends all connections, without a Terminate or FIN */

/* ---- qp_link.c: from the connection to its end ---------------------------- */

/*
 * Gives a connected stream to a queue pair in INIT (or in RTR or RTS, where a program has moved
 * it by itself). From then on the queue pair owns the stream and is in RTS. Returns -EINVAL if
 * its state does not allow a connection.
 */
int qp_attach(struct stag_qp *qp, struct stream *s, const struct qp_link *link);

/* Sets the callbacks of the connection's owner. NULL: none from now on. */
void qp_set_events(struct stag_qp *qp, const struct qp_events *ev, void *arg);

/*
 * Disconnects in order: posted requests are still sent, then FIN; receives are flushed when the
 * peer has closed, too, or after a time-out. Returns at once; disconnected() follows.
 */
int qp_disconnect(struct stag_qp *qp);

/*
 * Ends a connection. term NULL: no Terminate is sent. qp_fail_later() is for callers
 * that cannot acquire rx_lock.
 */
void qp_fail(struct stag_qp *qp, const struct terminate *term, enum ibv_event_type event);
void qp_fail_later(struct stag_qp *qp);
void qp_peer_closed(struct stag_qp *qp, bool orderly);
void qp_async(struct stag_qp *qp, enum ibv_event_type type);
void qp_tell_established(struct stag_qp *qp);

void qp_tell(struct stag_qp *qp);
void qp_flush(struct stag_qp *qp);
void qp_end_by_us(struct stag_qp *qp, const struct terminate *term);
void qp_lock_both(struct stag_qp *qp);
void qp_unlock_both(struct stag_qp *qp);
void qp_close_stream(struct stag_qp *qp);
void qp_drop_claims(struct stag_qp *qp);
void qp_offer(struct stag_qp
		      *qp); /* to the poller of a queue that many queue pairs share: it is active */

/* ---- qp_tx.c, tx_response.c: the sending side ----------------------------- */

int qp_tx_init(struct stag_qp *qp); /* at attach */
void qp_tx_free(struct stag_qp *qp);
void qp_tx_run(struct stag_qp *qp); /* sends as much as the stream takes */
void qp_tx_terminate(struct stag_qp *qp, const struct terminate *t); /* sends nothing after it */
void qp_tx_release(struct stag_qp *qp);				     /* lets the first FPDU go */
void qp_tx_finish(struct stag_qp *qp);		   /* sends FIN once all is sent */
bool qp_tx_broken(const struct stag_qp *qp);	   /* has the stream refused a send? */
bool qp_tx_pending(const struct stag_qp *qp);	   /* is there anything to send? */
struct wqe *qp_tx_oldest_read(struct stag_qp *qp); /* awaits its response; or NULL */
struct wqe *qp_tx_read_came(struct stag_qp *qp); /* removes the oldest from those that await one */
/* the one with this MSN, or NULL */
struct wqe *qp_tx_read_by_msn(struct stag_qp *qp, uint32_t msn);
void qp_tx_read_done(struct stag_qp *qp); /* completes the oldest */
/*
 * Enqueues a response. Returns false beyond IRD. store: the data comes from there. gate: the response waits until
 * all writes to storage up to this number have reached their level.
 */
bool qp_tx_respond_read(struct stag_qp *qp, const struct rdmap_read_req *r,
			struct peer_request *store, uint64_t gate);
bool qp_tx_respond_atomic(struct stag_qp *qp, const struct rdmap_atomic_req *r,
			  struct peer_request *store, uint64_t gate);
/* the fault with which the sender gave up */
struct terminate qp_tx_reason(const struct stag_qp *qp);
unsigned qp_tx_mulpdu(const struct stag_qp *qp); /* 0: not connected */

/* ---- qp_rx.c, rx_place.c: the receiving side ------------------------------ */

int qp_rx_init(struct stag_qp *qp); /* at attach */
void qp_rx_free(struct stag_qp *qp);
/*
 * Reads and handles what the stream has. Returns whether anything came; false also if another
 * thread holds rx_lock.
 */
bool qp_progress(struct stag_qp *qp);
void qp_push_recv(struct stag_qp *qp, const struct ibv_wc *wc, bool solicited);
void rx_flush(struct stag_qp *qp);	   /* flushes the receives, the one in progress included */
void rx_consume_ahead(struct stag_qp *qp); /* handles bytes that came with the MPA frame */
void rx_read_on(struct stag_qp *qp);	   /* handles bytes that the stream holds, soon */
/* rx_wait.c */
void rx_wait_init(struct stag_qp *qp);
void rx_wait_stop(struct stag_qp *qp);		   /* under the engine lock */
void rx_receive_posted(struct stag_qp *qp);	   /* one was missing; no lock held */
struct wire_fault rx_read_fault(enum key_fault f); /* for the memory of a read or an atomic */

#endif
