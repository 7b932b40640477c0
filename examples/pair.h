/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair.h - two connected processes that exchange short messages, for the examples
 * from 02-ping on.
 *
 * Errors are printed to stderr and end the program.
 */
#ifndef EXAMPLES_PAIR_H
#define EXAMPLES_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <rdma/rdma_cma.h>

#define PAIR_MESSAGE  64 /* bytes of the longest message */
#define PAIR_DEPTH    64 /* work requests in flight */
#define PAIR_SEGMENTS 4	 /* pieces of local memory that a work request may have */

struct pair {
	bool server;
	struct rdma_cm_id *listener;  /* of a server */
	struct rdma_cm_id *id;	      /* id->qp, id->pd and id->send_cq may be used */
	struct ibv_mr *mr;	      /* of the two buffers */
	char buffer[2][PAIR_MESSAGE]; /* in, out */
};

/* Memory of one side, as the other addresses it. */
struct place {
	uint64_t addr;
	uint32_t rkey;
	uint32_t len;
};

void die(const char *what); /* prints errno, too */

/* Connects, by the arguments "server" or "client HOST PORT"; a server prints its port. */
void pair_open(struct pair *p, int argc, char **argv);
void pair_tell(struct pair *p, const void *message, size_t len);
void pair_hear(struct pair *p, void *message, size_t len);
void pair_close(struct pair *p);

/* Waits for the oldest signalled work request, which must succeed. */
void pair_wait_sent(struct pair *p);

#endif
