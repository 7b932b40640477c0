/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cq.h - completion queues.
 */
#ifndef STAG_CQ_H
#define STAG_CQ_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "base/list.h"
#include "base/lock.h"

struct stag_channel;
struct stag_ctx;
struct stag_qp;

struct cqe {
	struct ibv_wc wc;
	uint64_t ts; /* CLOCK_MONOTONIC ns, if the queue has time stamps */
	uint64_t wall_ts;
};

#define CQ_MAX_CLAIM 32

/*
 * The kind of thread that watches the sockets of a completion queue's queue pairs instead of the
 * engine.
 */
enum cq_claim { CLAIM_NONE, CLAIM_POLLER, CLAIM_SLEEPER };

struct stag_cq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ibv_ex;
	};
	struct stag_channel *channel;
	atomic_int users; /* queue pairs */

	struct lock lock; /* the ring and arming */
	struct cqe *ring;
	uint32_t mask; /* ring entries - 1; the ring grows on demand, up to any number */
	_Atomic uint32_t put, get; /* free-running */
	bool overflowed;	   /* held more than ibv.cqe entries; reported once */
	bool wants_ts;
	enum { CQ_IDLE, CQ_ARMED_SOLICITED, CQ_ARMED } armed;
	/* the kind of arming that would have raised an event since the ring was empty, and found CQ_IDLE; see cq_arm() */
	uint8_t missed;
	uint32_t events_sent;	  /* completion events that the program was given */
	uint32_t async_sent;	  /* asynchronous events that the program was given */
	uint32_t async_types;	  /* a bit for each type among them */
	struct list ready;	  /* in channel->ready */
	unsigned ready_count;	  /* events of this queue in channel->ready */
	struct list channel_link; /* in channel->cqs */

	struct lock qps_lock;		       /* held while making progress; see engine.c */
	struct list qps;		       /* qp_attachment.link */
	_Atomic unsigned n_qps;		       /* written under qps_lock */
	_Atomic unsigned n_on_store;	       /* queue pairs connected to storage */
	struct stag_qp *claimed[CQ_MAX_CLAIM]; /* queue pairs whose sockets the poller watches */
	unsigned n_claimed;
	_Atomic int claim;	      /* enum cq_claim */
	_Atomic uint32_t empty_polls; /* polls since it was armed that found it empty */
	/* counted at each poll, so that the engine sees that somebody polls */
	_Atomic uint32_t poll_ticks;
	uint32_t seen_ticks;	 /* engine.c: poll_ticks at the last tick */
	struct list polled_link; /* in the engine's list of queues with claims */
	atomic_bool in_polled;

	struct cqe cur;	     /* ibv_start_poll()'s current entry; for src/verbs */
	struct lock ex_lock; /* held from ibv_start_poll() to ibv_end_poll() */
};

static inline struct stag_cq *to_stag_cq(struct ibv_cq *cq)
{
	return (struct stag_cq *)cq;
}

int cq_create(struct stag_ctx *ctx, int cqe, struct stag_channel *ch, void *cq_context,
	      bool timestamps, struct stag_cq **out);
int cq_destroy(struct stag_cq *cq); /* -EBUSY while a QP uses it; waits for acks */
int cq_resize(struct stag_cq *cq, int cqe);
/*
 * Arms it. On roce0 a completion that came since the queue was last empty raises the event at once, as mlx5 does: programs
 * that poll first and arm then (UCX) would sleep beside it.
 */
int cq_arm(struct stag_cq *cq, bool solicited_only);
bool cq_is_armed(struct stag_cq *cq);
/* Returns up to n completions; makes progress if there are none. */
int cq_poll(struct stag_cq *cq, int n, struct ibv_wc *wc);
/* Returns 1 and one completion with its time stamps, or 0. */
int cq_poll_one(struct stag_cq *cq, struct cqe *out);

/* Adds a completion of a queue pair, and raises an event if the queue is armed. */
void cq_push(struct stag_cq *cq, const struct ibv_wc *wc, bool solicited);
/* drops the completions of a reset or destroyed QP */
void cq_forget_qp(struct stag_cq *cq, uint32_t qpn);

#endif
