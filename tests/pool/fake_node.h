/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fake_node.h - two fake nodes to test the client with: one region in this process, a listener for each node,
 * and a thread that serves the clients of the primary's listener. Nothing is replicated: the tests show how a
 * client copes when the primary changes.
 */
#ifndef POOL_FAKE_NODE_H
#define POOL_FAKE_NODE_H

#include <stdint.h>

#include "pool/memory/memory.h"

#define FAKE_SECRET "what ann and the nodes know"

/* The primary's fault at the next request that changes an object. Afterwards the other node is primary. */
enum fake_fault {
	FAKE_RIGHT,
	FAKE_DIES_BEFORE, /* dies before it carries the request out */
	FAKE_DIES_AFTER,  /* carries the request out, and dies before it answers */
	FAKE_HANGS,	  /* carries the request out, and answers no client any more */
};

void fake_start(uint64_t size);
void fake_stop(void);
const char *fake_where(int node); /* 0, 1: "127.0.0.1:PORT" */
const struct pool_region *fake_region(void);
void fake_fault(enum fake_fault fault);
void fake_move(void);		     /* the other node becomes primary, and all connections end */
void fake_forget(void);		     /* removes all clients from the region */
void fake_gone(int node, bool gone); /* gone: ends the node's connections and rejects new ones */
/* Damages the header of the object at ptr; a second call repairs it. */
void fake_tear(const struct stag_pool_ptr *ptr);
/* unleased: reports to clients that attach from now on that its adapter enforces no lease. */
void fake_unleased(bool unleased);
void fake_throw_out(bool throw);   /* throw: disconnects an attached client at its next request */
void fake_withhold(bool withhold); /* withhold: does not answer FRESH requests */
uint64_t fake_attached(void);	   /* ATTACH requests served */
uint64_t fake_proofs(void);	   /* FRESH requests received */
uint64_t fake_executed(void);	   /* changes carried out */
uint64_t fake_messages(void);	   /* messages received */
uint64_t fake_reads(void);	   /* reads served by the node's software */

#endif
