/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * raw.h - a client of a pool's node, on bare verbs: one connection, one request at a time. It checks answers no
 * more than the tests need, and retries nothing.
 */
#ifndef STAG_TEST_POOL_RAW_H
#define STAG_TEST_POOL_RAW_H

#include <rdma/rdma_cma.h>

#include "pool/admit/admit.h"
#include "pool/admit/protocol.h"
#include "pool/memory/memory.h"

#define RAW_MEMORY (1u << 20) /* bytes of the client's memory for values */

struct raw {
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr, *memory_mr;
	uint8_t *messages; /* NODE_DEPTH receive buffers, one send buffer */
	uint8_t *memory;   /* the node may read and write it */
	struct admit_session session;
	struct node_facts facts;
	uint64_t epoch, sequence;
	uint32_t open;			/* open staging slots, a bit each */
	uint32_t slot_rkey[NODE_SLOTS]; /* the slots' keys */
	uint32_t ends;		      /* key that the next request's message invalidates; 0: none */
	uint8_t answer[NODE_MESSAGE]; /* the last message received */
};

/*
 * Connects and authenticates. Returns -EACCES if refused, -EAGAIN to try later, -EREMCHG if the node is not
 * primary, or another -errno if there was no connection. On failure there is nothing to close.
 */
int raw_open(struct raw *r, uint16_t port, const char *user, const char *secret);
void raw_close(struct raw *r);
/* Returns the answer's status, or -errno. */
int raw_attach(struct raw *r, const uint64_t id[2], bool again);
/* Sends a request and receives its answer. A sequence of 0 becomes the next one. -errno: the connection is gone. */
int raw_request(struct raw *r, struct pool_request *rq, struct pool_answer *answer);
/* The two halves of raw_request(). */
int raw_send(struct raw *r, struct pool_request *rq);
int raw_receive(struct raw *r, const struct pool_request *rq, struct pool_answer *answer);
/* Sends a message of `count` copies of a request, and waits until it is sent. Answers that arrive are discarded. */
int raw_send_many(struct raw *r, struct pool_request *rq, unsigned int count);
int raw_await_sent(struct raw *r); /* the same for a message that raw_send() has posted */
/* Discards answers until that of a request without bytes behind it arrives. */
int raw_await_answer(struct raw *r, uint64_t sequence);
/* Reads bytes of the region into the client's memory. */
int raw_fetch(struct raw *r, uint64_t address, uint64_t length);
/* Writes to a slot. Returns -ENOTCONN if the write was refused. */
int raw_stage(struct raw *r, unsigned int slot, uint32_t offset, const void *bytes,
	      uint32_t length);
/* Makes the insert request for the bytes in a slot. */
struct pool_request raw_staged(struct raw *r, unsigned int slot, uint32_t length);
/* Reads one-sided. Returns 0, -ENOENT, -EAGAIN (the node has to be asked), or -ENOTCONN. */
int raw_read(struct raw *r, const struct stag_pool_ptr *ptr, void *to, size_t *length);

#endif
