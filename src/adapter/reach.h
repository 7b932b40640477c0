/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reach.h - how queue pairs of roce0 meet: from a GID and a number to a stream.
 *
 * A queue pair in RTS that has something to send connects to the peer's port (port.h), and sends a hello, which names both
 * queue pairs (struct hello in wire.h). The peer accepts if its own attributes name the same two, and if it is in RTR or
 * beyond. A hello for a queue pair that is not in RTR yet is kept, and answered when it is. All other hellos get the same
 * answer, no: for the queue pair that asked it is as if the message were lost, and it asks again, until its retries are
 * used up.
 *
 * Both sides may connect at the same time. If both have said hello, the stream stays that was begun by the side with the
 * smaller GID and number. A side that is still connecting takes the peer's stream: its own packets may not get through.
 *
 * A queue pair that is connected to itself uses a TCP socket that is connected to itself.
 *
 *   REACH_IDLE -> REACH_CONNECTING -> REACH_ASKED -> (stream) REACH_IDLE
 *        ^              |                 |
 *        +---------- REACH_PAUSED <-------+
 *
 * All of it is protected by the engine lock.
 */
#ifndef STAG_REACH_H
#define STAG_REACH_H

#include <stdbool.h>
#include <stdint.h>

#include "adapter/engine.h"
#include "wire/wire.h"

#define REACH_MAX_GUESTS    1024  /* of one port: connections that are no stream yet, */
#define REACH_MAX_OF_SOURCE 512	  /* and of one address */
#define REACH_HELLO_MS	    5000  /* for a whole hello */
#define REACH_KEEP_MS	    60000 /* a hello for a queue pair that is not in RTR */
#define REACH_TRY_MS	    3000  /* for the TCP connection */
#define REACH_MIN_PAUSE_MS  1	  /* doubled each time, */
#define REACH_MAX_PAUSE_MS  100	  /* up to this */

struct qp_port;
struct stag_qp;

enum reach_state { REACH_IDLE, REACH_CONNECTING, REACH_ASKED, REACH_PAUSED };

struct reach {
	enum reach_state state;
	int fd;
	struct watch watch;
	struct timer timer;
	struct work work; /* reach_want() */
	uint8_t buf[HELLO_LEN];
	unsigned have;
	unsigned pause_ms;
	_Atomic bool asked;   /* reach_ask(): for one attempt */
	uint32_t life, epoch; /* ours: see struct hello */
	/* The peer, once it was met: another process, or a queue pair that was reset since, is another peer. */
	bool met;
	uint64_t peer_process;
	uint32_t peer_life, peer_epoch;
};

void reach_init(struct reach *r);
void reach_reset(struct reach *r); /* forgets the peer; the queue pair begins another life */
void reach_want(
	struct stag_qp *qp); /* connects, soon, if there is something to send; from any thread */
void reach_ask(
	struct stag_qp
		*qp); /* likewise, also if there is nothing: tries once. The queue pair is in RTS */
void reach_stop(struct stag_qp *qp); /* ends an attempt, and refuses the guests of the queue pair */
void reach_answer_guests(struct stag_qp *qp); /* its state has changed */

void reach_accept(struct qp_port *p); /* the port's TCP socket has connections */
void reach_drop_guests(struct qp_port *p);

#endif
