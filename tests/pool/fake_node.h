/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fake_node.h - nodes for clients to be tested with: one region in this process, listeners at two ports, a thread that serves whoever
 * came through the primary's. Nothing is replicated: what is shown is how a client takes it when the primary is another.
 */
#ifndef POOL_FAKE_NODE_H
#define POOL_FAKE_NODE_H

#include <stdint.h>

#include "pool/memory/memory.h"

#define FAKE_SECRET "what ann and the nodes know"

/* Faults of a node, at the next request that changes something, or at all of them. */
enum fake_fault {
	FAKE_RIGHT,
	FAKE_DIES_BEFORE, /* it is gone before it did anything */
	FAKE_DIES_AFTER,  /* it has done it, and is gone before it says so */
	FAKE_HANGS, /* it has done it, and says nothing more, to anybody; the other one takes over */
};

void fake_start(uint64_t size);
void fake_stop(void);
const char *fake_where(int node); /* 0, 1: "127.0.0.1:PORT" */
const struct pool_region *fake_region(void);
void fake_fault(enum fake_fault fault);
void fake_move(void);		     /* the other node is primary: connections end */
void fake_forget(void);		     /* every client that it knows */
void fake_gone(int node, bool gone); /* nobody answers there */
/* The header of what is at ptr is broken; once more: whole again. */
void fake_tear(const struct stag_pool_ptr *ptr);
/* Its adapter minds no lease: who attaches from now on is told so. */
void fake_unleased(bool unleased);
void fake_throw_out(bool throw);   /* whoever asks for something, once he was let in */
void fake_withhold(bool withhold); /* that what was read is fresh: nobody says so */
uint64_t fake_let_in(void);	   /* how often somebody was */
uint64_t fake_proofs(void);	   /* that were asked for */
uint64_t fake_executed(void);	   /* changes that were carried out */
uint64_t fake_messages(void);	   /* that came */
uint64_t fake_asked(void);	   /* reads that were asked for */

#endif
