/* SPDX-License-Identifier: BSD-2-Clause */
/* ud_story.h - helpers of the tests of datagram ids: ids, their queue pairs, and peers that are bare UDP sockets. */
#ifndef STAG_TEST_CM_UD_STORY_H
#define STAG_TEST_CM_UD_STORY_H

#include "story.h"
#include "wire/lookup.h"

#define ROOM 4096 /* of a buffer */

struct rdma_cm_id *ud_id(struct rdma_event_channel *ch);
struct rdma_cm_id *ud_bound(struct rdma_event_channel *ch, const char *host);
struct rdma_cm_id *ud_listening(struct rdma_event_channel *ch, const char *host);
/* Goes through ADDR_RESOLVED and ROUTE_RESOLVED; without a queue pair. */
struct rdma_cm_id *ud_resolved(struct rdma_event_channel *ch, const char *host, uint16_t port);
void ud_give_qp(struct rdma_cm_id *id);

/* Datagrams of an id with a queue pair of its own, whose completion queues are the id's. */
struct mail {
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	uint8_t buf[ROOM];
};

void mail_open(struct mail *m, struct rdma_cm_id *id);
void mail_close(struct mail *m);
void mail_expect(struct mail *m); /* posts a receive */
void mail_send(struct mail *m, const struct rdma_ud_param *to, const char *text);
void mail_read(struct mail *m, const char *text); /* waits for it, and compares */

/* A bare socket of UDP at host; *port: where. */
int udp_open(const char *host, uint16_t *port);
void udp_send(int fd, const char *host, uint16_t port, const struct lookup_msg *m);
/* Waits for a message; *port, unless NULL: of its sender. */
struct lookup_msg udp_recv(int fd, uint16_t *port);
/* Asks a listener as a peer does, with its cookie; returns the message, to be repeated. */
struct lookup_msg udp_ask(int fd, const char *host, uint16_t port, uint64_t id);

#endif
