/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * story.h - helpers of the connection manager's tests: ids and their events, and peers that are
 * bare sockets and speak MPA by hand.
 *
 * Every wait is for a condition, at most PATIENCE_MS; then the test fails.
 */
#ifndef STAG_TEST_CM_STORY_H
#define STAG_TEST_CM_STORY_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "wire/cm_message.h"
#include "wire/wire.h"

#define PATIENCE_MS 30000

#define IPV4 "127.0.0.1"
#define IPV6 "::1"

/* ---- ids ---- */

struct rdma_event_channel *channel_new(void);
struct rdma_cm_id *id_new(struct rdma_event_channel *ch);
struct sockaddr_storage address(const char *host, uint16_t port); /* port in host order */
struct rdma_cm_id *id_listening(struct rdma_event_channel *ch, const char *host, int backlog);
uint16_t id_port(struct rdma_cm_id *id); /* host order */
void give_qp(struct rdma_cm_id *id);
/* Goes through ADDR_RESOLVED and ROUTE_RESOLVED, and creates a queue pair. */
struct rdma_cm_id *id_resolved(struct rdma_event_channel *ch, const char *host, uint16_t port);
void id_gone(struct rdma_cm_id *id); /* destroys queue pair and id */

/* Returns the next event of the channel, which must be of that type; the caller acknowledges it. */
struct rdma_cm_event *expect_event(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
/* Does the same and acknowledges it; returns its status. */
int expect_status(struct rdma_event_channel *ch, enum rdma_cm_event_type type);
/* Acknowledged; returns the new id. */
struct rdma_cm_id *expect_request(struct rdma_event_channel *ch);
void expect_silence(struct rdma_event_channel *ch, int ms);
/* Expects DISCONNECTED, then TIMEWAIT_EXIT; disconnects the id in between, where that has to be. */
void expect_end(struct rdma_event_channel *ch);

/* ---- what depends on the device ---- */

bool on_roce(void); /* STAG_DEVICE; otherwise stag0 */
/* The status of REJECTED. */
int rejected_by_program(void);
int rejected_without_listener(void);

/* Two ids of this process, connected. */
struct couple {
	struct rdma_event_channel *active_ch, *passive_ch;
	struct rdma_cm_id *listener, *active, *passive;
};

void couple_open(struct couple *c, const char *host);
void couple_close(struct couple *c);

/* ---- bare sockets ---- */

int raw_connect(const char *host, uint16_t port);
int raw_bind(const char *host, uint16_t *port); /* a port without a listener */
int raw_listen(const char *host, uint16_t *port);
int raw_accept(int fd);
void raw_send(int fd, const void *data, size_t len);
void raw_recv(int fd, void *data, size_t len); /* exactly len bytes */
void raw_reset(int fd);			       /* closes with a RST */
/* The peer closes or resets, and sends nothing before. */
void expect_hangup(int fd);
void expect_end_of_data(int fd); /* the same, after any data */

/* A frame sent or received; its private data is in room. */
struct raw_frame {
	struct mpa_frame f;
	uint8_t room[MPA_FRAME_MAX];
	size_t len;
};

void raw_send_frame(int fd, const struct mpa_frame *f);
void raw_recv_frame(int fd, bool reply, struct raw_frame *out);
struct mpa_frame plain_request(void);	 /* revision 1, no options */
struct mpa_frame enhanced_request(void); /* revision 2, IRD and ORD 4, client and server */
struct mpa_frame accepting_reply(
	const struct mpa_frame *request); /* the Reply that siw would send */

/* Receives the Terminate message that a peer sends instead of going on. */
struct wire_fault raw_recv_terminate(int fd, bool crc);

/* The messages of roce0. */
void raw_say(int fd, const struct cm_message *m);
void raw_say_kind(int fd, uint8_t kind);
struct cm_message raw_hear(int fd, uint8_t kind);
struct cm_message some_message(uint8_t kind); /* a valid one, of a peer on 127.0.0.1 */

/* ---- a listener of ours, for bare sockets ---- */

struct place {
	struct rdma_event_channel *ch;
	struct rdma_cm_id *listener;
	uint16_t port;
};

/* For cmocka: opens one in *state. */
int place_open(void **state);
int place_close(void **state);

/* Sends a Request, accepts it, and returns the socket after reading the Reply. */
int accepted(struct place *p, const struct mpa_frame *req, struct rdma_conn_param *param,
	     struct rdma_cm_id **id, struct raw_frame *rep);
/* Checks that a well-behaved peer is accepted: the listener still works. */
void expect_service(struct place *p);
/* Returns when the engine has handled everything that the peers have done before. */
void engine_catches_up(const struct place *p);

#endif
