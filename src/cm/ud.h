/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ud.h - ids of the datagram service (RDMA_PS_UDP) on roce0: lookups, and multicast groups.
 *
 *   ud.c               what the rdma_* calls do for such an id
 *   lookup.c           the asking side of a lookup
 *   lookup_listener.c  a listener: strangers, their requests, and the answers
 *   multicast.c        groups
 *
 * rdma_connect() does not connect: it asks the listener for a queue pair's number and Q_Key (on InfiniBand: SIDR). The
 * messages are in wire/lookup.h. They are datagrams of UDP, between the ports of the ids: so the port space is not that of
 * RDMA_PS_TCP, as on hardware, and nothing is left behind when an id is destroyed.
 *
 * The engine lock protects everything here.
 */
#ifndef STAG_CM_UD_H
#define STAG_CM_UD_H

#include "cm/cm.h"
#include "wire/lookup.h"

#define LOOKUP_FIRST_PAUSE_MS                                                                      \
	20 /* before the message is repeated; then twice as long each time, at most */
#define LOOKUP_LAST_PAUSE_MS 500

/* Requests of one listener that wait for the program, and answers that are kept in case that they are lost. */
#define LOOKUP_MAX_WAITING  1024
#define LOOKUP_MAX_ANSWERED 4096

static inline bool is_ud(const struct cm_id *id)
{
	return id->cm.qp_type == IBV_QPT_UD;
}

/* ---- ud.c --------------------------------------------------------------- */

/* They return -1 and errno; ud_connect() 0 if an event follows. */
int ud_listen(struct cm_id *id, int backlog);
int ud_connect(struct cm_id *id, const struct rdma_conn_param *param);
int ud_accept(struct cm_id *id, const struct rdma_conn_param *param);
int ud_reject(struct cm_id *id, const void *data, uint8_t len);
int ud_disconnect(struct cm_id *id); /* 1: no event follows */
void ud_close(struct cm_id *id);
void ud_delivered(struct cm_id *listener); /* the program has fetched a request */

int ud_to_rts(struct cm_id *id, struct ibv_qp *qp);
void ud_init_attr(struct cm_id *id, struct ibv_qp_attr *attr, int *mask);

/* The path from the id's address to another one. */
void ud_path(const struct cm_id *id, const union ibv_gid *to, struct ibv_ah_attr *out);

/* The outcome of the id's lookup. m NULL: status says why there is no answer. */
void ud_looked_up(struct cm_id *id, int status, const struct lookup_msg *m);

/* ---- lookup.c ------------------------------------------------------------ */

struct lookup {
	struct cm_id *id;
	struct watch watch;	/* of a socket that is connected to the listener */
	struct timer repeat;	/* when the message is sent again */
	struct timer deadline;	/* of the whole */
	uint64_t pause;		/* ns, until then */
	uint64_t refused_until; /* until this time, a closed port is asked again */
	bool refused;
	struct lookup_msg ask;
};

/* Takes fd over, even if it fails. */
int lookup_start(struct cm_id *id, int fd, const void *data, uint8_t len, struct lookup **out);
void lookup_destroy(struct lookup *l); /* l may be NULL */
/* Handles a message from the network. Checks everything in it. */
void lookup_take(struct lookup *l, const uint8_t *buf, size_t len);

/* ---- lookup_listener.c ---------------------------------------------------- */

struct lookup_listener;
struct lookup_request;

/* Takes fd over, unless it fails. */
int lookup_listen(struct cm_id *id, int fd, struct lookup_listener **out);
/* Requests that the program has can still be answered. l may be NULL. */
void lookup_listener_destroy(struct lookup_listener *l);
void lookup_delivered(struct lookup_listener *l);
/* Answers the request of a child, which forgets it. */
void lookup_answer(struct cm_id *child, struct lookup_msg *answer);
void lookup_forget(
	struct
	cm_id *child); /* the same without an answer: the peer asks again, perhaps another listener */
/* Handles a message from the network to the local address. Checks everything in it. */
void lookup_listener_take(struct lookup_listener *l, const uint8_t *buf, size_t len,
			  const struct sockaddr_storage *peer,
			  const struct sockaddr_storage *local);

/* ---- multicast.c ----------------------------------------------------------- */

void groups_detach(struct cm_id *id); /* its queue pair is about to be destroyed */
void groups_leave(struct cm_id *id);

#endif
