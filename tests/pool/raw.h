/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw.h - a client of a pool's node, on bare verbs: one connection, one request at a time. What it is told is not
 * checked more than the stories need; nothing is tried twice.
 */
#ifndef STAG_TEST_POOL_RAW_H
#define STAG_TEST_POOL_RAW_H

#include <rdma/rdma_cma.h>

#include "pool/admit/admit.h"
#include "pool/admit/protocol.h"
#include "pool/memory/memory.h"

#define RAW_MEMORY (1u << 20) /* of its own, for values */

struct raw {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr, *memory_mr;
	uint8_t *messages; /* NODE_DEPTH to receive to, one to send */
	uint8_t *memory;   /* the node may read and write it */
	struct admit_session session;
	struct node_facts facts;
	uint64_t epoch, sequence;
	uint32_t open;			/* slots, a bit each, */
	uint32_t slot_rkey[NODE_SLOTS]; /* and their keys */
	uint32_t ends;			/* the next request's message ends this key; 0: none */
	uint8_t answer[NODE_MESSAGE];	/* the last */
};

/* -EACCES: refused; -EAGAIN: later; -EREMCHG: not here; others: no connection. Nothing is left then. */
int raw_open(struct raw *r, uint16_t port, const char *user, const char *secret);
void raw_close(struct raw *r);
int raw_attach(struct raw *r, const uint64_t id[2],
	       bool again); /* the answer's status, or -errno */
/* A sequence of 0 becomes the next one. -errno: the connection is gone. */
int raw_ask(struct raw *r, struct pool_request *rq, struct pool_answer *answer);
int raw_say(struct raw *r, struct pool_request *rq); /* and nothing more, */
int raw_hear(struct raw *r, const struct pool_request *rq, struct pool_answer *answer);
/* Bytes of the region, to its memory. */
int raw_fetch(struct raw *r, uint64_t address, uint64_t length);
/* Writes to a slot. -ENOTCONN: it was refused. The request for what is there. */
int raw_stage(struct raw *r, unsigned int slot, uint32_t offset, const void *bytes,
	      uint32_t length);
struct pool_request raw_staged(struct raw *r, unsigned int slot, uint32_t length);
/* Reads one-sided. Returns 0, -ENOENT, -EAGAIN (ask the node), or -ENOTCONN. */
int raw_read(struct raw *r, const struct stag_pool_ptr *ptr, void *to, size_t *length);

#endif
