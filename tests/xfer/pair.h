/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair.h - both ends of a few connections, in one process and one thread.
 *
 * The transfer manager runs at the near end; the far end only offers its memory. Plain verbs and
 * rdma_cm: the same program runs on stag0 (under `stag run`) and on any other device that reaches
 * the address in STAG_TEST_ADDRESS, by default 127.0.0.1. Without a device it exits with 77
 * (skipped). Every wait is for a condition and has a time limit (await.h).
 */
#ifndef STAG_TEST_XFER_PAIR_H
#define STAG_TEST_XFER_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <rdma/rdma_cma.h>

#include "await.h"

#define PATIENCE_MS    20000
#define PAIR_MAX_RAILS 4

/* ---- memory ------------------------------------------------------------ */

struct region {
	struct region *next;
	uint8_t *at; /* between two canaries */
	size_t len;
	struct ibv_mr *mr;
};

/* ---- connections ------------------------------------------------------- */

struct pair_wish {	    /* a zero field selects the default */
	unsigned int rails; /* default 1 */
	uint32_t send_wr;   /* of each rail's send queue; default 64 */
	uint32_t sge;	    /* of its work requests; default 4 */
	uint32_t cqe;	    /* of each send CQ; default: enough for the send queues of its rails */
	uint8_t reads;	    /* in flight at a time (ORD and IRD); default 16 */
	bool one_cq;	    /* one CQ for all rails; else each has its own */
	bool channel;	    /* completion events */
	bool sig_all;
};

/* One end of a rail. */
struct end {
	struct rdma_cm_id *id;
	unsigned int seen; /* events received: a bit for each enum rdma_cm_event_type */
	bool ended;	   /* by this end */
};

struct rail {
	struct end near, far;
	struct ibv_cq *cq; /* the near end's send CQ */
};

struct pair {
	struct pair_wish wish;
	struct rdma_event_channel *near_events, *far_events;
	struct end listener;
	struct rdma_cm_id *request;  /* a connection request that the far end received */
	struct ibv_context *context; /* of the near end; the far end most probably has the same */
	struct ibv_pd *near_pd, *far_pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *far_cq;
	struct rail rails[PAIR_MAX_RAILS];
	struct region *regions;
	bool mute; /* its device does not report states, see pair_is_up() */
};

void pair_open(struct pair *p, const struct pair_wish *wish);
void pair_close(struct pair *p); /* checks the canaries */

struct ibv_qp *pair_qp(const struct pair *p, unsigned int rail); /* of the near end */

/* Ways to end a connection. */
enum pair_end {
	END_NEAR_DISCONNECTS,
	END_FAR_DISCONNECTS,
	END_NEAR_ERROR, /* the near queue pair is moved to the error state */
	END_FAR_ERROR,
	END_FAR_GONE, /* the far queue pair is destroyed */
	END_NEAR_RST, /* the TCP connection is reset, if this process has its socket; */
	END_FAR_RST,  /* if not, as END_..._ERROR */
	END_WAYS,
};

void pair_end(struct pair *p, unsigned int rail, enum pair_end how);

/*
 * Returns whether the near queue pair seems connected. siw (of Linux 6.1) does not flush a read
 * when the peer closes, and does not report the queue pair's state: there the event decides.
 */
bool pair_is_up(struct pair *p, unsigned int rail);
/*
 * Returns whether the connection has ended on a device that neither fails nor completes later
 * posts: Linux 6.1's siw. There a program that sees the disconnect has to notify the manager.
 */
bool pair_ended_unreported(struct pair *p, unsigned int rail);

bool pair_is_siw(const struct pair *p); /* for tests that skip what siw does wrong */

/*
 * Replaces a rail's connection. The old one is ended if it has not been, and destroyed: when this
 * returns, nothing more of it can arrive. The CQ stays.
 */
struct ibv_qp *pair_reconnect(struct pair *p, unsigned int rail);

/* Do the same in two steps: the old near queue pair remains, in the error state. */
struct rdma_cm_id *pair_replace(struct pair *p, unsigned int rail);
void pair_discard(struct rdma_cm_id *old);

/* Handles events of the far end: for a thread that waits in a loop. */
void pair_serve(struct pair *p);

/* ---- memory of a pair -------------------------------------------------- */

/*
 * Return a zeroed region between canaries, registered with these rights. near_region() adds the
 * rights that the sink of a read needs on this device.
 */
struct region *near_region(struct pair *p, size_t len);
struct region *far_region(struct pair *p, size_t len, int access);
void drop_region(struct pair *p, struct region *r); /* before the pair is closed */
void check_canaries(const struct pair *p);

#endif
