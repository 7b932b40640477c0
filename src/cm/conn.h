/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * conn.h - what the files of connections share: conn.c, and
 *
 *   conn_active.c    the side that connects, until its Request is sent
 *   conn_passive.c   the side that listens, from accept() to the answer
 *   conn_mpa.c       the protocol of stag0: MPA's Request and Reply
 *   conn_roce.c      the protocol of roce0: REQ, REP, RTU, and what follows
 */
#ifndef STAG_CM_CONN_H
#define STAG_CM_CONN_H

#include "cm/cm.h"

/* How the socket is closed. PEACE: sent data still arrives. RESET: the peer gets a reset. */
enum parting { PEACE, RESET };

/*
 * What the messages of a protocol mean. The bytes of a Request, a Reply and their successors are in rx; what is to be
 * sent is in tx.
 */
struct conn_protocol {
	enum face face;
	void (*send_request)(struct conn *c);
	void (*step_reply)(struct conn *c); /* REPLY: the socket is readable, or writable */
	/* Reads more of a Request. Returns 0 when it is whole, -EAGAIN, or what is wrong. */
	int (*read_request)(struct conn *c);
	/* What the Request tells the program, and child, its new id. */
	void (*present)(struct conn *c, struct cm_id *child, struct rdma_conn_param *told);
	/* Put an answer into tx. Return -errno if it is not possible. */
	int (*accept)(struct conn *c, const struct conn_wish *w);
	int (*reject)(struct conn *c, const struct conn_wish *w);
	/* The accepting answer is sent. c is freed, or belongs to the protocol from now on. Returns -errno. */
	int (*accepted)(struct conn *c);
	void (*step)(struct conn *c); /* from REPLIED on: the socket is readable, */
	void (*late)(struct conn *c); /* or the time is up */
	void (*hang_up)(
		struct conn *c); /* the id is destroyed; frees c. NULL: nobody has to be told */
};

extern const struct conn_protocol conn_mpa, conn_roce;

/* ---- conn.c ---- */

struct conn *conn_new(enum conn_state state); /* or NULL */
void conn_free(struct conn *c, enum parting how);
void conn_set_state(struct conn *c, enum conn_state to);
void conn_drop_stream(struct conn *c, enum parting how);
struct stream *conn_take_stream(struct conn *c); /* for the queue pair */
void conn_lost(struct conn *c, int err,
	       const char *what); /* ends a set-up that did not become a connection */
void conn_log_peer(const struct conn *c, int err, const char *what);
void conn_log_tls(const struct conn *c, const char *why);
/* Tells the user which device to choose, as the peer has only that face. */
void conn_log_other_face(const struct conn *c, enum face theirs);
bool conn_is_cut(uint32_t revents); /* is the peer gone? Reported also where nothing is watched */
int conn_flush(
	struct conn *c); /* sends the bytes in tx. Returns 0 if all are sent, -EAGAIN, or -errno */
void conn_ready(struct watch *w, uint32_t revents);
void conn_late(struct timer *t);

/* ---- conn_active.c ---- */

void conn_step_tcp(struct conn *c);
void conn_step_tls_out(struct conn *c, uint32_t revents);
/* Leaves the dial queue; returns whether c was in it. */
void conn_leave_line(struct conn *c);
int conn_dial(struct conn *c);
/* Dials again later, if an error at the peer may be a short one. */
bool conn_retry(struct conn *c, int err);
/*
 * Called after an attempt to send the Request: waits for the Reply, and for room in the socket if necessary. Returns
 * false if the peer is gone.
 */
bool conn_request_sent(struct conn *c, int err);
const struct sockaddr *conn_destination(const struct conn *c);
void conn_show_source(struct cm_id *id, int fd);

/* ---- conn_roce.c ---- */

void conn_refuse_transport(
	struct conn *c); /* tells a peer of the other face, in a message of roce0 */

/* ---- conn_passive.c ---- */

void conn_step_hello(struct conn *c);
void conn_step_tls_in(struct conn *c, uint32_t revents);
void conn_step_request(struct conn *c);
void conn_step_asked(struct conn *c);
void conn_step_answering(struct conn *c);

#endif
