// SPDX-License-Identifier: BSD-2-Clause
/*
 * report.c - what clients were allowed and refused, for the program's audit log (base/audit.h), and what they were
 * refused for the node's log.
 */
#include "pool/node/node.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/audit.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rate.h"
#include "base/siphash.h"

#define FROM_LEN (INET6_ADDRSTRLEN + 10)
#define ALIKE_AGAIN                                                                                \
	(60 * NS_PER_S) /* between two lines about the same refusal of the same source */

static void write_address(struct rdma_cm_id *id, char to[FROM_LEN])
{
	const struct sockaddr *peer = rdma_get_peer_addr(id);
	const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)peer;
	const struct sockaddr_in *four = (const struct sockaddr_in *)peer;
	char host[INET6_ADDRSTRLEN] = "?";

	if (peer->sa_family == AF_INET6) {
		inet_ntop(AF_INET6, &six->sin6_addr, host, sizeof(host));
		snprintf(to, FROM_LEN, "[%s]:%u", host, ntohs(six->sin6_port));
	} else {
		inet_ntop(AF_INET, &four->sin_addr, host, sizeof(host));
		snprintf(to, FROM_LEN, "%s:%u", host, ntohs(four->sin_port));
	}
}

static void report(const struct stag_pool_node *n, struct rdma_cm_id *id,
		   struct stag_audit_record *record)
{
	char object[sizeof("pool ") + sizeof(n->conf.pool)], from[FROM_LEN];

	snprintf(object, sizeof(object), "pool %s", n->conf.pool);
	write_address(id, from);
	record->room = "pool";
	record->object = object;
	record->from = from;
	audit_report(record);
}

/* Identifies refusals of one kind: the port of the source changes with each attempt. */
static uint64_t key_of(const struct stag_pool_node *n, const struct stag_audit_record *r,
		       const char *from)
{
	char text[256 + POOL_MAX_NAME];
	int len = snprintf(text, sizeof(text), "%s %s %s %.*s", r->user, r->action, r->reason,
			   (int)(strrchr(from, ':') - from), from);

	return siphash(n->door.key, text,
		       (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1);
}

/* Returns the entry of the kind, or else the one that was used first. */
static struct refused_alike *find_alike(struct node_events *e, uint64_t key)
{
	struct refused_alike *oldest = &e->alike[0];

	assert(lock_held(&e->lock));
	for (unsigned int i = 0; i < REFUSALS_ALIKE; i++) {
		if (e->alike[i].logged_at && e->alike[i].key == key)
			return &e->alike[i];
		if (e->alike[i].logged_at < oldest->logged_at)
			oldest = &e->alike[i];
	}
	return oldest;
}

/* Returns whether the line may be logged; then *before is the number of those that were not. */
static bool may_log(struct node_events *e, uint64_t key, uint64_t now, uint32_t *before)
{
	static const struct rate_limit limit = RATE_LIMIT(2, 32);
	struct refused_alike *a;
	bool known;

	HOLD_FOR_SCOPE(&e->lock);
	a = find_alike(e, key);
	known = a->logged_at && a->key == key;
	if (known && now - a->logged_at < ALIKE_AGAIN) {
		a->suppressed++;
		return false;
	}
	if (!rate_allows(&e->refusals, &limit, now, before))
		return false;
	if (known)
		*before += a->suppressed;
	*a = (struct refused_alike){.key = key, .logged_at = now};
	return true;
}

/* A source that is refused again and again does not fill the log. */
static void log_refusal(struct stag_pool_node *n, const struct stag_audit_record *r,
			struct rdma_cm_id *id)
{
	char from[FROM_LEN], more[40] = "";
	uint32_t before;

	write_address(id, from);
	if (!may_log(&n->events, key_of(n, r, from), clock_ns(), &before))
		return;
	if (before)
		snprintf(more, sizeof(more), " (and %u more before)", before);
	node_log(n, LOG_LEVEL_WARN, "refused: %s by user '%s' from %s: %s%s", r->action, r->user,
		 from, r->reason, more);
}

void report_admission(struct stag_pool_node *n, struct rdma_cm_id *id, const char *user,
		      const char *refused)
{
	struct stag_audit_record record = {
		.user = user,
		.action = "login",
		.reason = refused,
		.outcome = refused ? STAG_AUDIT_REFUSED : STAG_AUDIT_ALLOWED};

	if (refused)
		log_refusal(n, &record, id);
	if (audit_is_on())
		report(n, id, &record);
}

/* Returns the operation, with the name that it is about, quoted as far as it is printable. */
static const char *action_of(const struct pool_request *rq, char *to, size_t room)
{
	size_t at = (size_t)snprintf(to, room, "%s", pool_op_name(rq->op));

	if (rq->name_length == 0)
		return to;
	to[at++] = ' ';
	for (unsigned int i = 0; i < rq->name_length && at < room - 1; i++, at++)
		to[at] = (char)(rq->name[i] > ' ' && rq->name[i] < 0x7f ? rq->name[i] : '?');
	to[at] = '\0';
	return to;
}

void report_refusal(const struct client *k, const struct pool_request *rq, const char *reason)
{
	char action[64 + POOL_MAX_NAME];
	struct stag_audit_record record = {
		.user = k->name, .reason = reason, .outcome = STAG_AUDIT_REFUSED};

	record.action = action_of(rq, action, sizeof(action));
	log_refusal(k->conn.node, &record, k->conn.id);
	if (audit_is_on())
		report(k->conn.node, k->conn.id, &record);
}

void report_act(const struct client *k, const struct pool_request *rq, int result)
{
	char action[64 + POOL_MAX_NAME];
	struct stag_audit_record record = {
		.user = k->name,
		.reason = result == 0 ? NULL : strerror(-result),
		.flags = STAG_AUDIT_ADMINISTRATION,
		.outcome = result == 0 ? STAG_AUDIT_ALLOWED : STAG_AUDIT_FAILED};

	if (!audit_is_on())
		return;
	record.action = action_of(rq, action, sizeof(action));
	report(k->conn.node, k->conn.id, &record);
}
