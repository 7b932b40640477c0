// SPDX-License-Identifier: BSD-2-Clause
/*
 * seek.c - who is primary: every known node is called, at the same time, until one is.
 *
 * A call is two connects (admit.h). What a node says before it has proven itself is a hint: where else to call, and whether to go on
 * with it. Whom we follow has accepted us, and knows our secret; only a primary accepts. One that only believes that it is one
 * does not answer ATTACH, and is left when another has a higher epoch.
 */
#include "pool/client/client.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

#define AGAIN_MIN      NS_PER_MS
#define AGAIN_MAX      (250 * NS_PER_MS)
#define AT_ONCE	       NS_PER_S /* so short a link was none */
#define MOST_DOUBLINGS 8

/* ---- calls ------------------------------------------------------------------------------- */

static void hang_up(struct stag_pool *p, struct seat *seat)
{
	if (seat->stage == CALL_NONE)
		return;
	if (seat->id->qp)
		rdma_destroy_qp(seat->id);
	rdma_destroy_id(seat->id);
	seat->id = NULL;
	seat->stage = CALL_NONE;
	p->nodes.calls--;
}

static void call_after(struct stag_pool *p, struct seat *seat, uint64_t now, uint64_t wait)
{
	hang_up(p, seat);
	wait = wait < AGAIN_MIN ? AGAIN_MIN : wait;
	seat->again = now + (wait > AGAIN_MAX ? AGAIN_MAX : wait);
}

/* The longer nobody was found, the less often we call; and no more often than it can answer, for others may call it, too. */
static void call_later(struct stag_pool *p, struct seat *seat, uint64_t now)
{
	uint64_t wait = p->nodes.sought ? (now - p->nodes.sought) / 16 : AGAIN_MAX;
	uint64_t took = seat->stage != CALL_NONE ? now - seat->since : 0;

	call_after(p, seat, now, wait > took ? wait : took);
}

/* Nobody is there: as a rule not in a moment, either. */
static void call_absent(struct stag_pool *p, struct seat *seat, uint64_t now)
{
	uint64_t wait = AGAIN_MIN << seat->absent;

	seat->absent += seat->absent < MOST_DOUBLINGS;
	call_after(p, seat, now, p->nodes.sought ? wait : AGAIN_MAX);
}

static int start_call(struct stag_pool *p, struct seat *seat, uint64_t now)
{
	struct rdma_cm_id *id;

	if (rdma_create_id(p->nodes.events, &id, seat, RDMA_PS_TCP) != 0)
		return -errno;
	seat->id = id;
	seat->stage = CALL_ADDRESS;
	seat->since = now;
	p->nodes.calls++;
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&seat->sockaddr,
			      (int)(CALL_NS / NS_PER_MS)) == 0)
		return 0;
	return -errno;
}

/* First a hello; what comes of it is the greeting of a second call. */
static void call_seat(struct stag_pool *p, struct seat *seat, uint64_t now)
{
	seat->proves = false;
	seat->greeting_len =
		admit_say_hello(&seat->session, ADMIT_CLIENT, p->conf.user, seat->greeting);
	if (seat->greeting_len < 0 || start_call(p, seat, now) != 0)
		call_later(p, seat, now);
}

static void call_with_proof(struct stag_pool *p, struct seat *seat, uint64_t now)
{
	hang_up(p, seat);
	seat->proves = true;
	if (start_call(p, seat, now) != 0)
		call_later(p, seat, now);
}

static int connect_call(struct stag_pool *p, struct seat *seat)
{
	struct rdma_conn_param param = {
		.private_data = seat->greeting,
		.private_data_len = (uint8_t)seat->greeting_len,
		.initiator_depth = p->device.reads,
		.responder_resources = p->device.reads,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	int rc = link_make_qp(p, seat->id, !seat->proves);

	if (rc != 0)
		return rc;
	seat->stage = CALL_CONNECT;
	return rdma_connect(seat->id, &param) == 0 ? 0 : -errno;
}

/* ---- what they say ------------------------------------------------------------------------ */

struct news {
	enum rdma_cm_event_type type;
	struct rdma_cm_id *id;
	struct seat *seat;
	uint8_t said[256];
	size_t length;
};

/* Is it worth a proof? Whoever follows a primary leaves it for a later one only. */
static bool is_promising(const struct stag_pool *p, uint64_t epoch)
{
	if (p->link.id)
		return epoch > p->nodes.epoch && epoch > p->link.epoch;
	return epoch >= p->nodes.epoch;
}

static void handle_challenge(struct stag_pool *p, const struct news *n, uint64_t now)
{
	struct seat *seat = n->seat;
	char primary[ROLL_ADDRESS_LEN];
	int rc = admit_say_proof(&seat->session, p->conf.secret, n->said, n->length, &seat->claimed,
				 primary, seat->greeting);

	if (rc == -EACCES || rc == -EPROTO)
		p->nodes.refused = pool_fail(-rc, "%s: %s", seat->address,
					     rc == -EACCES ? "refuses us" : "is no node of a pool");
	if (rc < 0) {
		call_later(p, seat, now);
		return;
	}
	seat->greeting_len = rc;
	seat->answered = now;
	seat->absent = 0;
	if (p->nodes.has_uuid &&
	    memcmp(seat->session.uuid, p->nodes.uuid, sizeof(p->nodes.uuid)) != 0) {
		call_later(p, seat, now);
		return;
	}
	if (primary[0])
		where_add(p, primary);
	if (!primary[0] && is_promising(p, seat->claimed))
		call_with_proof(p, seat, now);
	else
		call_later(p, seat, now);
}

/* A proof was refused: for good, or because it is not primary, or was too slow. */
static void handle_refusal(struct stag_pool *p, const struct news *n, uint64_t now)
{
	const void *facts;
	int rc = n->length == 0 ? -EAGAIN
				: admit_hear_welcome(&n->seat->session, p->conf.secret, n->said,
						     n->length, &facts);

	if (rc == -EACCES)
		p->nodes.refused =
			pool_fail(EACCES, "%s: no such user, or another secret", n->seat->address);
	call_later(p, n->seat, now);
}

static void handle_accept(struct stag_pool *p, const struct news *n, uint64_t now)
{
	struct seat *seat = n->seat;
	const void *facts;
	int rc = admit_hear_welcome(&seat->session, p->conf.secret, n->said, n->length, &facts);

	if (rc < 0) {
		p->nodes.refused =
			pool_fail(EPROTO, "%s: the node does not know our secret", seat->address);
		call_later(p, seat, now);
		return;
	}
	memcpy(p->nodes.uuid, seat->session.uuid, sizeof(p->nodes.uuid));
	p->nodes.has_uuid = true;
	link_adopt(p, seat, now);
}

static void handle_call_event(struct stag_pool *p, const struct news *n, uint64_t now)
{
	struct seat *seat = n->seat;
	int rc = 0;

	switch (n->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		rc = link_use_device(p, n->id->verbs);
		if (rc == 0 && rdma_resolve_route(n->id, (int)(CALL_NS / NS_PER_MS)) != 0)
			rc = -errno;
		seat->stage = CALL_ROUTE;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		rc = connect_call(p, seat);
		break;
	case RDMA_CM_EVENT_REJECTED:
		if (n->length != 0 && !seat->proves)
			handle_challenge(p, n, now);
		else if (n->length != 0 || seat->proves)
			handle_refusal(p, n, now);
		else
			call_absent(p, seat, now);
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (seat->proves)
			handle_accept(p, n, now);
		else
			call_later(p, seat, now); /* who accepts a hello is no node */
		return;
	default:
		call_absent(p, seat, now);
		return;
	}
	if (rc != 0)
		call_later(p, seat, now);
}

static void handle_events(struct stag_pool *p, const struct news *n, uint64_t now)
{
	if (n->id == p->link.id) {
		if (n->type == RDMA_CM_EVENT_DISCONNECTED ||
		    n->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			link_lost(p, now);
	} else if (n->seat->id == n->id) {
		handle_call_event(p, n, now);
	}
}

/* An event is given back before its id may go. */
static bool note_claim(struct stag_pool *p, struct news *n)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(p->nodes.events, &event) != 0)
		return false;
	*n = (struct news){.type = event->event, .id = event->id, .seat = event->id->context};
	if (event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_ESTABLISHED) {
		n->length = event->param.conn.private_data ? event->param.conn.private_data_len : 0;
		if (n->length != 0)
			memcpy(n->said, event->param.conn.private_data, n->length);
	}
	rdma_ack_cm_event(event);
	return true;
}

/* ---- when to call ---------------------------------------------------------------------------- */

/* Who is sent away once comes back at once, for another may be primary; who is sent away again and again, ever later. */
static uint64_t pause_of(const struct seat *seat)
{
	uint64_t pause = seat->thrown > 1 ? AGAIN_MIN << seat->thrown : 0;

	return pause < AGAIN_MAX ? pause : AGAIN_MAX;
}

void seek_note_end(struct seat *seat, uint64_t lasted)
{
	if (lasted >= AT_ONCE)
		seat->thrown = 0;
	else if (seat->thrown < MOST_DOUBLINGS)
		seat->thrown++;
}

void seek_start(struct stag_pool *p, uint64_t now)
{
	if (p->nodes.sought == 0)
		p->nodes.sought = now;
	for (unsigned int i = 0; i < p->nodes.num_seats; i++) {
		p->nodes.seats[i].absent = 0;
		if (p->nodes.seats[i].stage == CALL_NONE)
			p->nodes.seats[i].again = now + pause_of(&p->nodes.seats[i]);
	}
}

void seek_stop(struct stag_pool *p)
{
	for (unsigned int i = 0; i < p->nodes.num_seats; i++)
		hang_up(p, &p->nodes.seats[i]);
}

static bool waits_for_link(const struct stag_pool *p)
{
	return p->link.stage == LINK_ATTACHING || p->queue.asking != 0 || p->queue.reading != 0;
}

/* Nothing is heard: is somebody else primary? */
static void watch_silence(struct stag_pool *p, uint64_t now)
{
	struct client_link *l = &p->link;

	if (!waits_for_link(p)) {
		l->heard = now;
		return;
	}
	if (now - l->heard > DEAF_NS && now - l->seat->answered > DEAF_NS) {
		link_lost(p, now);
		return;
	}
	if (now - l->heard < l->quiet)
		return;
	l->quiet = l->quiet * 2 < QUIET_MAX_NS ? l->quiet * 2 : l->quiet + QUIET_MAX_NS;
	for (unsigned int i = 0; i < p->nodes.num_seats; i++)
		if (p->nodes.seats[i].stage == CALL_NONE)
			call_seat(p, &p->nodes.seats[i], now);
}

static void expire_calls(struct stag_pool *p, uint64_t now)
{
	for (unsigned int i = 0; i < p->nodes.num_seats; i++) {
		struct seat *seat = &p->nodes.seats[i];

		if (seat->stage != CALL_NONE && now - seat->since > CALL_NS)
			call_later(p, seat, now);
		else if (seat->stage == CALL_NONE && !p->link.id && now >= seat->again)
			call_seat(p, seat, now);
	}
}

void seek_step(struct stag_pool *p, uint64_t now)
{
	struct news n;

	while (note_claim(p, &n))
		handle_events(p, &n, now);
	if (p->link.id)
		watch_silence(p, now);
	expire_calls(p, now);
}

uint64_t seek_next(const struct stag_pool *p)
{
	uint64_t next = UINT64_MAX, at;

	if (p->link.id && waits_for_link(p))
		next = p->link.heard + p->link.quiet;
	for (unsigned int i = 0; i < p->nodes.num_seats; i++) {
		const struct seat *seat = &p->nodes.seats[i];

		if (seat->stage == CALL_NONE && p->link.id)
			continue;
		at = seat->stage == CALL_NONE ? seat->again : seat->since + CALL_NS;
		next = at < next ? at : next;
	}
	return next;
}

/* ---- who is there ------------------------------------------------------------------------------ */

void seek_status(struct stag_pool *p, const void *bytes, uint32_t length)
{
	struct node_status status;

	if (length < sizeof(status))
		return;
	memcpy(&status, bytes, sizeof(status));
	for (unsigned int i = 0; i < status.num_members && i < ROLL_MAX_NODES; i++) {
		char *address = status.members[i].address;

		if (address[0] && memchr(address, 0, ROLL_ADDRESS_LEN))
			where_add(p, address);
	}
}
