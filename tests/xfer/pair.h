/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair.h - both ends of a few connections, in one process and one thread.
 *
 * Near is where the transfer manager lives; far only lends memory. Plain verbs and
 * rdma_cm: the same program runs on stag0 (under `stag run`) and on any other device
 * that reaches the address in STAG_TEST_ADDRESS, 127.0.0.1 unless set. Where there is no
 * device it ends with 77. Everything waits for the thing itself, and not for ever (await.h).
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

struct pair_wish {	    /* zero: what a test that does not care gets */
	unsigned int rails; /* 1 */
	uint32_t send_wr;   /* of each rail's send queue; 64 */
	uint32_t sge;	    /* of its work requests; 4 */
	uint32_t cqe;	    /* of each send CQ; room for all of its rails' send queues */
	uint8_t reads;	    /* under way at a time (ORD and IRD); 16 */
	bool one_cq;	    /* for all rails; else each has its own */
	bool channel;	    /* completion events */
	bool sig_all;
};

/* One end of a rail. */
struct end {
	struct rdma_cm_id *id;
	unsigned int seen; /* the events that came: a bit for each enum rdma_cm_event_type */
	bool ended;	   /* by us */
};

struct rail {
	struct end near, far;
	struct ibv_cq *cq; /* the near end's send CQ */
};

struct pair {
	struct pair_wish wish;
	struct rdma_event_channel *near_events, *far_events;
	struct end listener;
	struct rdma_cm_id *request;  /* a connection that far was asked for */
	struct ibv_context *context; /* near's; far's is most probably the same one */
	struct ibv_pd *near_pd, *far_pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *far_cq;
	struct rail rails[PAIR_MAX_RAILS];
	struct region *regions;
	bool mute; /* its device is, see pair_is_up() */
};

void pair_open(struct pair *p, const struct pair_wish *wish);
void pair_close(struct pair *p); /* checks the canaries */

struct ibv_qp *pair_qp(const struct pair *p, unsigned int rail); /* the near one */

/* The ways in which a connection ends. */
enum pair_end {
	END_NEAR_DISCONNECTS,
	END_FAR_DISCONNECTS,
	END_NEAR_ERROR, /* its queue pair is put in the error state */
	END_FAR_ERROR,
	END_FAR_GONE, /* far's queue pair is destroyed */
	END_NEAR_RST, /* the TCP connection is reset, where this process can reach it; */
	END_FAR_RST,  /* where it can't, as END_..._ERROR */
	END_WAYS,
};

void pair_end(struct pair *p, unsigned int rail, enum pair_end how);

/*
 * Is the near queue pair connected, as far as anything tells? siw (of Linux 6.1) does not flush a
 * read when the peer closes, and does not tell the queue pair's state: there it is the event.
 */
bool pair_is_up(struct pair *p, unsigned int rail);
/* It has ended, and swallows what is posted: Linux 6.1's siw neither fails nor completes it. There
 * a program that hears of the end tells the manager. */
bool pair_ended_mutely(struct pair *p, unsigned int rail);

bool pair_is_siw(const struct pair *p); /* to be excused from what siw itself does wrong */

/*
 * A new connection in the place of a rail's old one, which is ended if it has not been, and
 * destroyed: when this returns, nothing more of it can arrive. The CQ stays.
 */
struct ibv_qp *pair_reconnect(struct pair *p, unsigned int rail);

/* The same in two steps: the old near queue pair lives on, in the error state. */
struct rdma_cm_id *pair_replace(struct pair *p, unsigned int rail);
void pair_discard(struct rdma_cm_id *old);

/* Lets far move on: for a thread that waits in a loop. */
void pair_serve(struct pair *p);

/* ---- memory of a pair -------------------------------------------------- */

/* Zeroed, between canaries, registered with these rights. near_region() adds what a read's sink
 * wants on this device. */
struct region *near_region(struct pair *p, size_t len);
struct region *far_region(struct pair *p, size_t len, int access);
void drop_region(struct pair *p, struct region *r); /* before the pair's end */
void check_canaries(const struct pair *p);

#endif
