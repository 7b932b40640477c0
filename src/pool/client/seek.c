// SPDX-License-Identifier: BSD-2-Clause
/*
 * seek.c - finding the primary: all known nodes are called at the same time, until one is primary.
 *
 * A call is two connects (admit.h). What a node says before it has proven itself is a hint: where else to call,
 * and whether the proof is worth a try. A node that we follow has admitted us, and knows our secret; only a
 * primary admits clients. A node that wrongly believes to be primary does not answer ATTACH, and is left when
 * another one has a higher epoch.
 */
#include "pool/client/client.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/zero.h"
#include "pool/admit/tls.h"

#define AGAIN_MIN      NS_PER_MS
#define AGAIN_MAX      (250 * NS_PER_MS)
#define AT_ONCE	       NS_PER_S /* a link that lasted less was ended at once */
#define MOST_DOUBLINGS 8

/* ---- calls ------------------------------------------------------------------------------- */

static void hang_up(struct stag_pool *p, struct client_peer *peer)
{
	if (peer->stage == CALL_NONE)
		return;
	if (peer->id->qp)
		rdma_destroy_qp(peer->id);
	rdma_destroy_id(peer->id);
	peer->id = NULL;
	peer->stage = CALL_NONE;
	p->nodes.calls--;
}

static void call_after(struct stag_pool *p, struct client_peer *peer, uint64_t now, uint64_t wait)
{
	hang_up(p, peer);
	wait = wait < AGAIN_MIN ? AGAIN_MIN : wait;
	peer->again = now + (wait > AGAIN_MAX ? AGAIN_MAX : wait);
}

/*
 * Backs off the longer no primary is found, and by how long the node takes to answer, because other clients call
 * it, too.
 */
static void call_later(struct stag_pool *p, struct client_peer *peer, uint64_t now)
{
	uint64_t wait = p->nodes.sought ? (now - p->nodes.sought) / 16 : AGAIN_MAX;
	uint64_t took = peer->stage != CALL_NONE ? now - peer->since : 0;

	call_after(p, peer, now, wait > took ? wait : took);
}

/* Backs off from an address where no node listens: the wait doubles with each failed call. */
static void call_absent(struct stag_pool *p, struct client_peer *peer, uint64_t now)
{
	uint64_t wait = AGAIN_MIN << peer->absent;

	peer->absent += peer->absent < MOST_DOUBLINGS;
	call_after(p, peer, now, p->nodes.sought ? wait : AGAIN_MAX);
}

static int start_call(struct stag_pool *p, struct client_peer *peer, uint64_t now)
{
	struct rdma_cm_id *id;
	int rc;

	if (rdma_create_id(p->nodes.events, &id, peer, RDMA_PS_TCP) != 0)
		return -errno;
	rc = pool_tls_prepare(&p->conf.tls, id, peer->address);
	if (rc != 0) { /* its text is set */
		p->nodes.refused = -rc;
		rdma_destroy_id(id);
		return rc;
	}
	peer->id = id;
	peer->stage = CALL_ADDRESS;
	peer->since = now;
	p->nodes.calls++;
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&peer->sockaddr,
			      (int)(CALL_NS / NS_PER_MS)) == 0)
		return 0;
	return -errno;
}

/* Sends a hello; its challenge leads to a second call, with the proof. */
static void call_peer(struct stag_pool *p, struct client_peer *peer, uint64_t now)
{
	peer->proves = false;
	peer->greeting_len =
		admit_say_hello(&peer->session, ADMIT_CLIENT, p->conf.user, peer->greeting);
	if (peer->greeting_len < 0 || start_call(p, peer, now) != 0)
		call_later(p, peer, now);
}

static void call_with_proof(struct stag_pool *p, struct client_peer *peer, uint64_t now)
{
	hang_up(p, peer);
	peer->proves = true;
	if (start_call(p, peer, now) != 0)
		call_later(p, peer, now);
}

static int connect_call(struct stag_pool *p, struct client_peer *peer)
{
	struct rdma_conn_param param = {
		.private_data = peer->greeting,
		.private_data_len = (uint8_t)peer->greeting_len,
		.initiator_depth = p->device.reads,
		.responder_resources = p->device.reads,
		.retry_count = 7,
		.rnr_retry_count = 7,
	};
	int rc = link_make_qp(p, peer->id, !peer->proves);

	if (rc != 0)
		return rc;
	peer->stage = CALL_CONNECT;
	return rdma_connect(peer->id, &param) == 0 ? 0 : -errno;
}

/* ---- events ------------------------------------------------------------------------------- */

struct seek_event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	struct client_peer *peer;
	uint8_t said[256];
	size_t length;
};

/* Returns whether a proof is worth a try. A client with a link leaves it only for a higher epoch. */
static bool is_promising(const struct stag_pool *p, uint64_t epoch)
{
	if (p->link.id)
		return epoch > p->nodes.epoch && epoch > p->link.epoch;
	return epoch >= p->nodes.epoch;
}

static const char *why_not_challenged(int error)
{
	switch (error) {
	case -EACCES:
		return "refuses us";
	case -EPROTONOSUPPORT:
		return "the node speaks another version of the pool's protocol";
	case -EPROTO:
		return "not a node of a pool";
	default:
		return strerror(-error);
	}
}

static void handle_challenge(struct stag_pool *p, const struct seek_event *n, uint64_t now)
{
	struct client_peer *peer = n->peer;
	char primary[ROLL_ADDRESS_LEN];
	int rc = admit_say_proof(&peer->session, p->conf.secret, n->said, n->length, &peer->claimed,
				 primary, peer->greeting);

	if (rc < 0 && rc != -EAGAIN)
		p->nodes.refused = pool_fail(-rc, "%s: %s", peer->address, why_not_challenged(rc));
	if (rc < 0) {
		call_later(p, peer, now);
		return;
	}
	peer->greeting_len = rc;
	peer->answered = now;
	peer->absent = 0;
	if (p->nodes.has_uuid &&
	    memcmp(peer->session.uuid, p->nodes.uuid, sizeof(p->nodes.uuid)) != 0) {
		call_later(p, peer, now);
		return;
	}
	if (primary[0])
		where_add(p, primary);
	if (!primary[0] && is_promising(p, peer->claimed))
		call_with_proof(p, peer, now);
	else
		call_later(p, peer, now);
}

/* Handles a refused proof: refused for good, or the node is not primary, or we were too slow. */
static void handle_refusal(struct stag_pool *p, const struct seek_event *n, uint64_t now)
{
	const void *facts;
	int rc = n->length == 0 ? -EAGAIN
				: admit_hear_welcome(&n->peer->session, p->conf.secret, n->said,
						     n->length, &facts);

	if (rc == -EACCES)
		p->nodes.refused =
			pool_fail(EACCES, "%s: no such user, or wrong secret", n->peer->address);
	call_later(p, n->peer, now);
}

static void handle_accept(struct stag_pool *p, const struct seek_event *n, uint64_t now)
{
	struct client_peer *peer = n->peer;
	const void *facts;
	int rc = admit_hear_welcome(&peer->session, p->conf.secret, n->said, n->length, &facts);

	if (rc < 0) {
		p->nodes.refused =
			pool_fail(EPROTO, "%s: the node does not know our secret", peer->address);
		call_later(p, peer, now);
		return;
	}
	memcpy(p->nodes.uuid, peer->session.uuid, sizeof(p->nodes.uuid));
	p->nodes.has_uuid = true;
	link_adopt(p, peer, now);
}

static void handle_tls_error(struct stag_pool *p, const struct seek_event *n)
{
	const char *why = pool_tls_why(&p->conf.tls, n->status);
	bool spoke = n->status == -EACCES || n->status == -EBADMSG;

	if (!why && n->status == -EPROTONOSUPPORT)
		why = "the node is on another device, or does not speak RDMA: choose the same on "
		      "both sides (STAG_DEVICE)";
	if (why)
		p->nodes.refused =
			pool_fail(spoke ? EACCES : EPROTO, "%s: %s", n->peer->address, why);
}

static void handle_call_event(struct stag_pool *p, const struct seek_event *n, uint64_t now)
{
	struct client_peer *peer = n->peer;
	int rc = 0;

	switch (n->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		rc = link_use_device(p, n->id->verbs);
		if (rc == 0 && rdma_resolve_route(n->id, (int)(CALL_NS / NS_PER_MS)) != 0)
			rc = -errno;
		peer->stage = CALL_ROUTE;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		rc = connect_call(p, peer);
		break;
	case RDMA_CM_EVENT_REJECTED:
		if (n->length != 0 && !peer->proves)
			handle_challenge(p, n, now);
		else if (n->length != 0 || peer->proves)
			handle_refusal(p, n, now);
		else
			call_absent(p, peer, now);
		return;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (peer->proves)
			handle_accept(p, n, now);
		else
			call_later(p, peer, now); /* a node never accepts a hello */
		return;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		handle_tls_error(p, n);
		call_absent(p, peer, now);
		return;
	default:
		call_absent(p, peer, now);
		return;
	}
	if (rc != 0)
		call_later(p, peer, now);
}

static void handle_event(struct stag_pool *p, const struct seek_event *n, uint64_t now)
{
	if (n->id == p->link.id) {
		if (n->type == RDMA_CM_EVENT_DISCONNECTED ||
		    n->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
			link_lost(p, now);
	} else if (n->peer->id == n->id) {
		handle_call_event(p, n, now);
	}
}

/* Acknowledges the event at once, because its id may be destroyed before long. */
static bool fetch_event(struct stag_pool *p, struct seek_event *n)
{
	struct rdma_cm_event *event;

	if (rdma_get_cm_event(p->nodes.events, &event) != 0)
		return false;
	*n = (struct seek_event){.type = event->event,
				 .status = event->status,
				 .id = event->id,
				 .peer = event->id->context};
	if (event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_ESTABLISHED) {
		n->length = event->param.conn.private_data ? event->param.conn.private_data_len : 0;
		if (is_zero(event->param.conn.private_data, n->length))
			n->length = 0; /* nothing was said: some adapters pad */
		if (n->length != 0)
			memcpy(n->said, event->param.conn.private_data, n->length);
	}
	rdma_ack_cm_event(event);
	return true;
}

/* ---- when to call ---------------------------------------------------------------------------- */

/*
 * A client that was disconnected once retries at once, because another node may be primary; if it happens again
 * and again, it backs off.
 */
static uint64_t pause_of(const struct client_peer *peer)
{
	uint64_t pause = peer->thrown > 1 ? AGAIN_MIN << peer->thrown : 0;

	return pause < AGAIN_MAX ? pause : AGAIN_MAX;
}

void seek_note_end(struct client_peer *peer, uint64_t lasted)
{
	if (lasted >= AT_ONCE)
		peer->thrown = 0;
	else if (peer->thrown < MOST_DOUBLINGS)
		peer->thrown++;
}

void seek_start(struct stag_pool *p, uint64_t now)
{
	if (p->nodes.sought == 0)
		p->nodes.sought = now;
	for (unsigned int i = 0; i < p->nodes.num_peers; i++) {
		p->nodes.peers[i].absent = 0;
		if (p->nodes.peers[i].stage == CALL_NONE)
			p->nodes.peers[i].again = now + pause_of(&p->nodes.peers[i]);
	}
}

void seek_stop(struct stag_pool *p)
{
	for (unsigned int i = 0; i < p->nodes.num_peers; i++)
		hang_up(p, &p->nodes.peers[i]);
}

static bool waits_for_link(const struct stag_pool *p)
{
	return p->link.stage == LINK_ATTACHING || p->link.enrolling || p->queue.asking != 0 ||
	       p->queue.reading != 0;
}

/* Calls the other nodes if the primary is silent: another one may be primary. */
static void watch_silence(struct stag_pool *p, uint64_t now)
{
	struct client_link *l = &p->link;

	if (!waits_for_link(p)) {
		l->heard = now;
		return;
	}
	if (now - l->heard > DEAF_NS && now - l->peer->answered > DEAF_NS) {
		link_lost(p, now);
		return;
	}
	if (now - l->heard < l->quiet)
		return;
	l->quiet = l->quiet * 2 < QUIET_MAX_NS ? l->quiet * 2 : l->quiet + QUIET_MAX_NS;
	for (unsigned int i = 0; i < p->nodes.num_peers; i++)
		if (p->nodes.peers[i].stage == CALL_NONE)
			call_peer(p, &p->nodes.peers[i], now);
}

static void step_calls(struct stag_pool *p, uint64_t now)
{
	for (unsigned int i = 0; i < p->nodes.num_peers; i++) {
		struct client_peer *peer = &p->nodes.peers[i];

		if (peer->stage != CALL_NONE && now - peer->since > CALL_NS)
			call_later(p, peer, now);
		else if (peer->stage == CALL_NONE && !p->link.id && now >= peer->again)
			call_peer(p, peer, now);
	}
}

void seek_step(struct stag_pool *p, uint64_t now)
{
	struct seek_event n;

	while (fetch_event(p, &n))
		handle_event(p, &n, now);
	if (p->link.id)
		watch_silence(p, now);
	step_calls(p, now);
}

uint64_t seek_next(const struct stag_pool *p)
{
	uint64_t next = UINT64_MAX, at;

	if (p->link.id && waits_for_link(p))
		next = p->link.heard + p->link.quiet;
	for (unsigned int i = 0; i < p->nodes.num_peers; i++) {
		const struct client_peer *peer = &p->nodes.peers[i];

		if (peer->stage == CALL_NONE && p->link.id)
			continue;
		at = peer->stage == CALL_NONE ? peer->again : peer->since + CALL_NS;
		next = at < next ? at : next;
	}
	return next;
}

/* ---- members ----------------------------------------------------------------------------------- */

void seek_status(struct stag_pool *p, const void *bytes, uint32_t length)
{
	struct node_status status;

	if (length < NODE_STATUS_MIN)
		return;
	memcpy(&status, bytes, NODE_STATUS_MIN);
	for (unsigned int i = 0; i < status.num_members && i < ROLL_MAX_NODES; i++) {
		char *address = status.members[i].address;

		if (address[0] && memchr(address, 0, ROLL_ADDRESS_LEN))
			where_add(p, address);
	}
}
