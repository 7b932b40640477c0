/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_link.h - one measured connection between the two sides.
 *
 * Public verbs and librdmacm only: it runs on any adapter.
 */
#ifndef STAG_APP_BENCH_VERBS_LINK_H
#define STAG_APP_BENCH_VERBS_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define RECV_DEPTH 512 /* receives posted on the measured queue pair */
#define SEND_DEPTH 192 /* room for the longest window and its closing words */
#define INLINE_MAX 64

/* Words in memory through which the two sides signal each other. */
struct lane_words {
	uint64_t stop;	  /* number of the phase that has ended */
	uint64_t credits; /* messages that the server has received in total */
	uint64_t source;  /* source of writes to a word of the peer */
	uint64_t sink;	  /* destination of reads */
} __attribute__((aligned(64)));

/* Address of the peer's memory; sent over the pair's socket. */
struct lane_remote {
	uint64_t data;
	uint64_t words;
	uint32_t data_key;
	uint32_t words_key;
};

struct verbs_link {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener; /* server only */
	uint16_t port;
	struct rdma_cm_id **ids; /* the measured one is in the middle of the idle ones */
	struct ibv_qp **qps;	 /* the same without rdma_cm */
	struct ibv_qp *qp;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* with -e */
	struct ibv_cq *cq;
	struct ibv_mr *data_mr, *words_mr;
	char *data; /* out: size bytes for each of a list; in: as many; receives: RECV_DEPTH */
	size_t in;  /* offset of the incoming half */
	size_t receives;
	volatile struct lane_words *words;
	struct lane_remote remote;
	uint64_t posted;      /* work requests posted to the send queue */
	uint64_t done;	      /* of these, completed */
	uint64_t received;    /* receive completions */
	unsigned int unacked; /* completion events */
	int reads;	      /* RDMA Reads that the adapter has in flight at most */
};

extern struct verbs_link lane;

/* Creates what all queue pairs of the device share, once. */
void lane_use(struct ibv_context *dev);
struct ibv_qp_init_attr lane_attributes(bool measured);

/* Both sides: connect, register, exchange addresses. */
void lane_open(void);

/* A new connection to the server (flag is its private data), or the next one from the client. */
struct rdma_cm_id *lane_connect(char flag);
struct rdma_cm_id *lane_accept(char *flag);

/* Waits until the peer disconnects (the client begins), and frees the id. */
void lane_disconnect(struct rdma_cm_id *id);

/* ---- verbs_number.c: without rdma_cm, on options.device ---- */

void number_open(void); /* the measured queue pair, and the idle ones */
/*
 * Both sides: create n queue pairs, and connect each to its counterpart of the other side. Nothing is sent: an adapter may
 * make the connection when there is something to send.
 */
void number_connect(struct ibv_qp **qps, size_t n, size_t measured);

#endif
