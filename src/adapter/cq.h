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
	uint64_t ts; /* CLOCK_MONOTONIC ns, where the queue wants time stamps */
	uint64_t wall_ts;
};

#define CQ_MAX_CLAIM 32

/* Who watches the sockets of a completion queue's queue pairs instead of the engine. */
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
	bool overflowed;	   /* more than ibv.cqe entries at once: told once */
	bool wants_ts;
	enum { CQ_IDLE, CQ_ARMED_SOLICITED, CQ_ARMED } armed;
	uint32_t events_sent;	  /* completion events that the program was handed */
	uint32_t async_sent;	  /* the same for asynchronous ones */
	struct list ready;	  /* in channel->ready */
	unsigned ready_count;	  /* events of this queue that wait there */
	struct list channel_link; /* in channel->cqs */

	struct lock qps_lock;		       /* progress; see engine.c */
	struct list qps;		       /* qp_attachment.link */
	_Atomic unsigned n_qps;		       /* written under qps_lock */
	_Atomic unsigned n_on_store;	       /* of these, those on storage */
	struct stag_qp *claimed[CQ_MAX_CLAIM]; /* whose sockets the poller watches */
	unsigned n_claimed;
	_Atomic int claim;	      /* enum cq_claim: by whom */
	_Atomic uint32_t empty_polls; /* that found it empty, and looked; since it was armed */
	_Atomic uint32_t poll_ticks;  /* so that the engine sees that somebody polls */
	uint32_t seen_ticks;	      /* engine's */
	struct list polled_link;      /* in the engine's list of queues with claims */
	atomic_bool in_polled;

	struct cqe cur;	     /* ibv_start_poll()'s current entry; src/verbs' */
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
int cq_arm(struct stag_cq *cq, bool solicited_only);
bool cq_is_armed(struct stag_cq *cq);
/* Takes up to n completions; makes progress when there are none. */
int cq_poll(struct stag_cq *cq, int n, struct ibv_wc *wc);
/* The same for one, with time stamps: 1, 0 */
int cq_poll_one(struct stag_cq *cq, struct cqe *out);

/* For the queue pair: adds a completion, raises an event if armed. */
void cq_push(struct stag_cq *cq, const struct ibv_wc *wc, bool solicited);
void cq_forget_qp(struct stag_cq *cq, uint32_t qpn); /* a destroyed QP's completions vanish */

#endif
