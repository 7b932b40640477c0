/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * meet.h - two processes that tell each other over a socket where their queue pairs
 * are, for the examples without rdma_cm.
 *
 * Errors are printed to stderr and end the program.
 */
#ifndef EXAMPLES_MEET_H
#define EXAMPLES_MEET_H

#include <stdbool.h>
#include <stddef.h>
#include <infiniband/verbs.h>

struct meeting {
	int sock;
	bool server;
	struct ibv_context *context;
	uint8_t gid_index; /* of the address that the socket has here */
	union ibv_gid gid;
};

void die(const char *what); /* prints errno, too */

/* Connects the sockets, by the arguments "server" or "client HOST PORT"; opens a device. */
void meet(struct meeting *m, int argc, char **argv);

/* Sends size bytes to the peer, and receives as many from it. */
void meet_exchange(struct meeting *m, const void *mine, void *theirs, size_t size);

/* Has the peer sent something that was not received yet? */
bool meet_peer_waits(struct meeting *m);

void meet_end(struct meeting *m);

/* Takes one completion, which must be a success. Returns false if there is none. */
bool meet_try(struct ibv_cq *cq, struct ibv_wc *wc);

/* Waits for one. */
struct ibv_wc meet_wait(struct ibv_cq *cq);

#endif
