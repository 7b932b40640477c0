/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair.h - what the examples from 02-ping on share: two processes, connected, that
 * can tell each other short messages.
 *
 * What goes wrong is said on stderr and ends the program.
 */
#ifndef EXAMPLES_PAIR_H
#define EXAMPLES_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <rdma/rdma_cma.h>

#define PAIR_MESSAGE  64 /* bytes of the longest message */
#define PAIR_DEPTH    64 /* work requests that may be under way */
#define PAIR_SEGMENTS 4	 /* pieces of local memory that a work request may have */

struct pair {
	bool server;
	struct rdma_cm_id *listener;  /* a server's */
	struct rdma_cm_id *id;	      /* id->qp, id->pd, id->send_cq: yours to use */
	struct ibv_mr *mr;	      /* of the two buffers */
	char buffer[2][PAIR_MESSAGE]; /* in, out */
};

/* Memory of the one, as the other needs to know it. */
struct place {
	uint64_t addr;
	uint32_t rkey;
	uint32_t len;
};

void die(const char *what); /* with errno's words */

/* From "server" or "client HOST PORT"; a server says on stdout which port it is. */
void pair_open(struct pair *p, int argc, char **argv);
void pair_tell(struct pair *p, const void *message, size_t len);
void pair_hear(struct pair *p, void *message, size_t len);
void pair_close(struct pair *p);

/* Waits for the oldest signalled work request; it must have succeeded. */
void pair_wait_sent(struct pair *p);

#endif
