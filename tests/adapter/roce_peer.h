/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roce_peer.h - a process of its own with a queue pair of roce0, which a test orders about, stops and kills.
 *
 * The test's program runs itself again. The peer carries out one order after the other; between two of them it polls, or,
 * if it was told to sleep, leaves everything to its engine.
 */
#ifndef STAG_TEST_ROCE_PEER_H
#define STAG_TEST_ROCE_PEER_H

#include <sys/types.h>

#include "roce_pair.h"

enum verb {
	ORDER_CONNECT, /* to queue pair qpn, as far as the state `to` */
	ORDER_MOVE,    /* to the state `to`, with the state alone */
	ORDER_RECV,    /* post `count` receives of `len` bytes */
	ORDER_LOAD,    /* keep requests of opcode `op` under way, until the end */
	ORDER_POST,    /* one request of opcode `op`, and wait for its completion */
	ORDER_ASK,     /* count completed receives */
	ORDER_SLEEP,   /* poll no more */
};

struct order {
	enum verb verb;
	enum ibv_qp_state to;
	enum ibv_wr_opcode op;
	uint32_t qpn, len, count;
	uint64_t addr; /* of our memory, and its key */
	uint32_t rkey;
	struct ways ways;
};

struct answer {
	uint32_t qpn, rkey;
	uint64_t addr;
	uint32_t received;	   /* receives that completed with success */
	enum ibv_wc_status status; /* of ORDER_POST */
};

struct peer {
	pid_t pid;
	int fd;
	struct answer is; /* the last answer */
};

/* ports: STAG_PORTS of the peer. */
void peer_start(struct peer *p, const char *ports);
void peer_order(struct peer *p, const struct order *o); /* waits until it is carried out */
/* Connects the peer's queue pair to ours, as far as the state. */
void peer_connect(struct peer *p, const struct end *e, const struct ways *w, enum ibv_qp_state to);
void peer_move(struct peer *p, enum ibv_qp_state to);
void peer_recv(struct peer *p, unsigned count, uint32_t len);
void peer_load(struct peer *p, enum ibv_wr_opcode op, uint32_t len, const struct end *to);
enum ibv_wc_status peer_post(struct peer *p, enum ibv_wr_opcode op, uint32_t len,
			     const struct end *to);
uint32_t peer_received(struct peer *p);
void peer_kill(struct peer *p); /* and waits for its end. Does nothing if there is none */
void peer_pause(struct peer *p);
void peer_continue(struct peer *p);

/* To be called first by main(): in the peer, it does not return. */
void peer_main(int argc, char **argv);

/* One request of ours, of len bytes, to the same place of the memory at addr; signalled. */
void post_at(struct end *e, enum ibv_wr_opcode op, uint64_t id, uint32_t len, uint64_t addr,
	     uint32_t rkey);

#endif
