// SPDX-License-Identifier: BSD-2-Clause
/*
 * serve.c - a primary's clients: requests come in, become records, and are answered when every standby that is in
 * sync has them.
 *
 * Each client has a queue of its own, and users and their clients take turns (turns.h), as long as the role permits
 * and the log has room: a greedy client waits for itself, and a user with many clients for its own. An answer waits for its record. Reads see what is applied, and are answered at
 * once, within the lease.
 *
 * A client has budgets: NODE_DEPTH unanswered requests (more break the protocol, and end the connection), and
 * NODE_DEPTH messages of answers. If all of these are unsent, the client is paused: the receives of its requests
 * are not posted again, so that its connection fills up, and nobody else's. A client that takes no answer, or
 * delivers no value (pull.c), for conf.client_timeout is evicted.
 */
#include "pool/node/node.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/audit.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "base/log.h"

#define RECORDS_A_ROUND 256u /* then records are sent, and other work is done */
#define BYTES_A_ROUND	(1u << 20)
#define TURNS_A_ROUND	256u
#define TURN_REQUESTS	16u /* then it is the next client's turn */
#define TURN_BYTES	(64u << 10)
#define LIST_ROOM	(NODE_MESSAGE - POOL_MESSAGE_HEADER - POOL_ANSWER_HEADER)

static const struct node_conn_ops ops;

static struct client *to_client(struct node_conn *c)
{
	return container_of(c, struct client, conn);
}

/* ---- states ---------------------------------------------------------------------------------- */

#define FROM(state) (1u << CLIENT_##state)

static const unsigned int comes_from[] = {
	[CLIENT_IDLE] = FROM(WAITING) | FROM(PAUSED),
	[CLIENT_WAITING] = FROM(IDLE) | FROM(PAUSED),
	[CLIENT_PAUSED] = FROM(WAITING),
};

/* Changes the state: nothing else writes it. */
static void client_become(struct client *k, enum client_state state)
{
	assert(comes_from[state] & 1u << k->state);
	turns_remove(&k->turn);
	if (state == CLIENT_WAITING)
		turns_add(&k->conn.node->serve.turns, &k->turn);
	k->state = state;
}

static bool takes_no_answers(const struct client *k)
{
	return list_empty(&k->conn.out);
}

static void pause_client(struct client *k)
{
	client_become(k, CLIENT_PAUSED);
	if (!takes_no_answers(k))
		return;
	k->slow = true;
	k->conn.node->serve.num_paused++;
	k->conn.node->info.pauses++;
}

/* A client that takes its answers slowly waits until half of them are sent, so that it is not paused all the time. */
void serve_resume(struct client *k)
{
	if (k->state != CLIENT_PAUSED || (k->slow && k->conn.unsent > NODE_DEPTH / 2))
		return;
	k->conn.node->serve.num_paused -= k->slow;
	k->slow = false;
	client_become(k, CLIENT_WAITING);
}

/* A client that is evicted again and again does not fill the log. */
static void log_eviction(const struct client *k, const char *cause)
{
	static const struct rate_limit limit = RATE_LIMIT(2, 32);
	struct stag_pool_node *n = k->conn.node;
	uint32_t more;

	if (!rate_allows(&n->serve.eviction_lines, &limit, n->now, &more))
		return;
	if (more != 0)
		node_log(n, LOG_LEVEL_WARN, "%u more clients were disconnected before", more);
	node_log(n, LOG_LEVEL_WARN, "client %s at %s is disconnected: %s", k->name, k->address,
		 cause);
}

void serve_evict(struct client *k, const char *fmt, ...)
{
	struct stag_pool_node *n = k->conn.node;
	char cause[128], object[sizeof(n->conf.pool) + 8];
	va_list args;

	if (k->conn.over)
		return;
	va_start(args, fmt);
	vsnprintf(cause, sizeof(cause), fmt, args);
	va_end(args);
	log_eviction(k, cause);
	snprintf(object, sizeof(object), "pool %s", n->conf.pool);
	audit_report(&(struct stag_audit_record){.room = "pool",
						 .object = object,
						 .user = k->name,
						 .from = k->address,
						 .action = "evict",
						 .reason = cause,
						 .outcome = STAG_AUDIT_REFUSED});
	n->info.evicted++;
	node_conn_leave(&k->conn);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void send_written(struct client *k)
{
	struct node_message *m = k->writing;

	if (!m)
		return;
	node_staging_announce(k);
	k->writing = NULL;
	m->length = (uint32_t)k->used;
	node_conn_send(&k->conn, m);
}

static int start_writing(struct client *k)
{
	if (k->writing)
		return 0;
	k->writing = node_conn_message(&k->conn);
	k->used = 0;
	if (!k->writing)
		return -EAGAIN;
	if (list_empty(&k->dirty))
		list_add_tail(&k->conn.node->serve.unsent, &k->dirty);
	return pool_message_start(k->writing->bytes, NODE_MESSAGE, &k->used, POOL_MESSAGE_ANSWERS,
				  k->conn.node->role.epoch);
}

/* Returns -EAGAIN if all messages are in flight, -ENOBUFS if the answer is too long for a message. */
static int append_answer(struct client *k, const struct pool_answer *answer)
{
	int rc = start_writing(k);

	if (rc != 0)
		return rc;
	rc = pool_message_answer(k->writing->bytes, NODE_MESSAGE, &k->used, answer);
	if (rc != -ENOBUFS || k->used == POOL_MESSAGE_HEADER)
		return rc;
	send_written(k);
	rc = start_writing(k);
	return rc == 0 ? pool_message_answer(k->writing->bytes, NODE_MESSAGE, &k->used, answer)
		       : rc;
}

static int write_answer(struct client *k, const struct pool_answer *answer)
{
	int rc = append_answer(k, answer);

	if (rc == 0) {
		k->unanswered--;
		k->conn.node->serve.answer_bytes +=
			POOL_ANSWER_HEADER + (answer->bytes ? answer->length : 0);
	}
	return rc;
}

static void write_facts(struct client *k, struct pool_answer *answer, struct node_facts *facts)
{
	const struct stag_pool_node *n = k->conn.node;
	const struct pool_region *r = &n->memory.region;

	*facts = (struct node_facts){.address = r->address,
				     .size = r->size,
				     .index_at = r->index_at,
				     .num_buckets = r->num_buckets,
				     .key = r->key,
				     .rights = k->rights,
				     .flags = (n->adapter.dv ? 0 : NODE_UNLEASED) |
					      (k->scope ? NODE_LIMITED : 0) | NODE_EVENTS};
	if (!k->enrolled && (k->rights & STAG_POOL_RIGHT_WRITE))
		facts->flags |= NODE_ENROLS;
	if (k->domain == DOMAIN_READERS) {
		facts->rkey = n->memory.region_mr[DOMAIN_READERS]->rkey;
		memcpy(facts->name_key, r->name_key, sizeof(facts->name_key));
	}
	if (k->slice) { /* the address of its first slot */
		facts->staging_address =
			(uintptr_t)n->memory.staging.at +
			k->slice->slots[0].index / NODE_SLOTS * (uint64_t)NODE_SLICE;
		facts->staging_length = NODE_SLICE;
	}
	memcpy(facts->uuid, r->uuid, sizeof(facts->uuid));
	memcpy(facts->pool, n->conf.pool, sizeof(facts->pool));
	answer->bytes = facts;
	answer->length = sizeof(*facts);
}

static int write_reply(struct client *k, struct client_reply *r)
{
	struct node_facts facts;

	if ((r->answer.op == POOL_OP_ATTACH || r->answer.op == POOL_OP_ENROL) &&
	    r->answer.status == 0) {
		if (k->enrolled)
			node_staging_assign(k);
		write_facts(k, &r->answer, &facts);
	}
	return write_answer(k, &r->answer);
}

/* Writes the answers whose records are applied. */
static void write_ready(struct client *k)
{
	while (!list_empty(&k->ready)) {
		struct client_reply *r = list_entry(k->ready.next, struct client_reply, link);

		if (write_reply(k, r) != 0)
			return;
		list_del(&r->link);
		list_add_tail(&k->free_replies, &r->link);
	}
}

/* Queues an answer that is sent later. */
static int queue_reply(struct client *k, struct list *where, const struct pool_answer *answer,
		       uint64_t came)
{
	struct client_reply *r = list_entry(k->free_replies.next, struct client_reply, link);

	assert(!list_empty(&k->free_replies)); /* it has at most NODE_DEPTH unanswered requests */
	list_del(&r->link);
	r->answer = *answer;
	r->came = came;
	list_add_tail(where, &r->link);
	return 0;
}

/* Requests are executed in the order of their records, so the queue is sorted. */
int serve_reply(struct client *k, const struct pool_answer *answer)
{
	return queue_reply(k, &k->conn.node->serve.replies, answer, 0);
}

void serve_answers(struct stag_pool_node *n, uint64_t number)
{
	while (!list_empty(&n->serve.replies)) {
		struct client_reply *r =
			list_entry(n->serve.replies.next, struct client_reply, link);
		struct client *k = r->client;

		if (r->answer.after > number)
			return;
		if (r->came)
			histogram_count(&n->info.change_times, n->now - r->came);
		list_del(&r->link);
		list_add_tail(&k->ready, &r->link);
		if (list_empty(&k->dirty))
			list_add_tail(&n->serve.unsent, &k->dirty);
	}
}

void serve_flush(struct stag_pool_node *n)
{
	while (!list_empty(&n->serve.unsent)) {
		struct client *k = list_entry(n->serve.unsent.next, struct client, dirty);

		write_ready(k);
		list_del(&k->dirty);
		send_written(k);
	}
}

/* Schedules more answers, now that a message is free again. */
static void client_sent(struct node_conn *c)
{
	struct client *k = to_client(c);

	if (!list_empty(&k->ready) && list_empty(&k->dirty))
		list_add_tail(&c->node->serve.unsent, &k->dirty);
	serve_resume(k);
}

/* ---- requests ---------------------------------------------------------------------------------- */

void *serve_record_room(struct stag_pool_node *n, size_t need, size_t *room)
{
	*room = need;
	return pool_log_room(&n->memory.log, need, n->serve.core.number + 1, n->serve.core.epoch);
}

static size_t record_need(const struct pool_request *rq)
{
	bool is_inline = rq->value && rq->source != POOL_SOURCE_STAGED;

	return POOL_RECORD_META + (((is_inline ? rq->length : 0) + 7u) & ~7u);
}

int serve_change(struct client *k, const struct pool_request *rq, uint64_t came,
		 struct pool_answer *answer)
{
	struct stag_pool_node *n = k->conn.node;
	size_t room, used;
	void *at;
	int rc;

	if (!role_may_change(&n->role, n->now))
		return -EAGAIN;
	at = serve_record_room(n, record_need(rq), &room);
	if (!at)
		return -EAGAIN;
	rc = pool_change(&n->serve.core, &k->who, rq, at, room, &used, answer);
	if (rc != 0)
		return rc;
	pool_log_add(&n->memory.log, used);
	n->info.changes++;
	expire_used(k);
	return queue_reply(k, &n->serve.replies, answer, came);
}

/* Gives the client a slot, unless it has one, and answers when all standbys know it. */
static int serve_enrol(struct client *k, const struct pool_request *rq, struct pool_answer *answer)
{
	/* Nobody loses a slot for a client that only looks for its own (version 1), and perhaps in vain. */
	int rc = rq->version != 0 ? 0 : expire_make_room(k);

	if (rc == 0)
		rc = serve_change(k, rq, k->conn.node->now, answer);
	if (rc == 0 && answer->status == 0)
		expire_enrolled(k);
	return rc;
}

/*
 * Gives a client that is connected another slot, after its own was taken away: it had no request in flight then, so
 * that nothing it may still repeat on this connection is lost. Returns -EAGAIN, or -EUSERS if there is no slot.
 */
static int enrol_again(struct client *k)
{
	struct stag_pool_node *n = k->conn.node;
	struct pool_request rq = {.op = POOL_OP_ENROL};
	struct pool_answer answer;
	size_t room, used;
	int rc = role_may_change(&n->role, n->now) ? expire_make_room(k) : -EAGAIN;
	void *at = rc == 0 ? serve_record_room(n, POOL_RECORD_META, &room) : NULL;

	if (!at)
		return -EAGAIN;
	rc = pool_change(&n->serve.core, &k->who, &rq, at, room, &used, &answer);
	if (rc != 0)
		return rc;
	pool_log_add(&n->memory.log, used);
	if (answer.status != 0)
		return -EUSERS;
	expire_enrolled(k);
	return 0;
}

static int serve_detach(struct client *k, const struct pool_request *rq, uint64_t came)
{
	struct pool_answer answer;
	int rc = serve_change(k, rq, came, &answer);

	if (rc == 0 && answer.status == 0)
		expire_detached(k);
	return rc;
}

static int serve_attach(struct client *k, const struct pool_request *rq)
{
	struct stag_pool_node *n = k->conn.node;
	struct pool_answer answer = {
		.sequence = rq->sequence, .op = rq->op, .after = n->serve.core.number};
	int rc;

	if (k->greeted)
		return -EPROTO;
	k->who.id[0] = rq->ptr.address;
	k->who.id[1] = rq->ptr.generation;
	k->who.who = pool_hash(k->name, strlen(k->name));
	if (k->who.who == 0)
		k->who.who = 1; /* 0 marks a free entry, which would never expire */
	if (!(k->rights & STAG_POOL_RIGHT_WRITE) ||
	    (rq->version == 0 && rq->key == NODE_ENROL_LATER))
		rc = serve_reply(k, &answer);
	else
		rc = serve_enrol(k, rq, &answer);
	/* A client that the pool has forgotten may attach again as a new one. */
	k->greeted = rc == 0 && answer.status == 0;
	return rc;
}

static int forget_node(struct stag_pool_node *n, const char *name)
{
	int seat = roll_seat(&n->role.roll, name), rc;

	if (seat < 0)
		return -ENOENT;
	if (roll_in_sync(&n->role.roll, (unsigned int)seat))
		return -EBUSY;
	ROLE_EVENT(n, rc = role_leave(&n->role, n->now, (unsigned int)seat));
	return rc;
}

static int switch_to(struct stag_pool_node *n, const char *name)
{
	const struct roll *roll = &n->role.roll;
	int seat = name[0] ? roll_seat(roll, name) : roll_next(roll, (unsigned int)n->role.seat);
	int rc;

	if (seat == n->role.seat)
		return 0;
	if (seat < 0 || !roll_in_sync(roll, (unsigned int)seat))
		return seat < 0 && name[0] ? -ENOENT : -EBUSY;
	ROLE_EVENT(n, rc = role_switch(&n->role, n->now, (unsigned int)seat));
	return rc;
}

static int serve_administer(struct client *k, const struct pool_request *rq)
{
	struct stag_pool_node *n = k->conn.node;
	struct pool_answer answer = {.sequence = rq->sequence, .op = rq->op};
	char name[ROLL_NAME_LEN] = "";
	int rc;

	if (rq->name_length >= sizeof(name))
		rc = -ENOENT;
	else {
		memcpy(name, rq->name, rq->name_length);
		rc = rq->op == POOL_OP_SWITCH ? switch_to(n, name) : forget_node(n, name);
	}
	report_act(k, rq, rc);
	answer.status = (uint32_t)-rc;
	node_act(n);
	/* The answer comes from the next primary: the client sends the request again there. */
	if (rc == 0 && n->role.state == ROLE_HANDING)
		return queue_reply(k, &n->serve.switchovers, &answer, 0);
	return write_answer(k, &answer);
}

void serve_fail_switchovers(struct stag_pool_node *n)
{
	while (n->role.state == ROLE_PRIMARY && !list_empty(&n->serve.switchovers)) {
		struct client_reply *r =
			list_entry(n->serve.switchovers.next, struct client_reply, link);

		r->answer.status = EBUSY;
		r->answer.after = n->serve.core.number;
		list_del(&r->link);
		list_add_tail(&n->serve.replies, &r->link);
	}
}

static int serve_read(struct client *k, const struct pool_request *rq)
{
	struct stag_pool_node *n = k->conn.node;
	struct pool_answer answer;

	if (!role_may_read(&n->role, n->now))
		return -EAGAIN;
	pool_look(&n->memory.region, rq, &answer);
	n->info.reads++;
	if (answer.bytes && answer.length > (rq->length < LIST_ROOM ? rq->length : LIST_ROOM)) {
		answer.bytes = NULL;
		answer.status = EMSGSIZE;
	}
	return write_answer(k, &answer);
}

static int serve_list(struct client *k, const struct pool_request *rq)
{
	struct stag_pool_node *n = k->conn.node;
	uint8_t names[LIST_ROOM];
	struct pool_answer answer;
	uint32_t steps;

	if (!role_may_read(&n->role, n->now))
		return -EAGAIN;
	steps = pool_list(&n->memory.region, rq, names,
			  rq->length < LIST_ROOM ? rq->length : LIST_ROOM, &answer);
	/* Its turn pays for what was read, too: most of the entries may be empty, or of other users. */
	n->serve.answer_bytes += (uint64_t)steps * sizeof(uint64_t);
	return write_answer(k, &answer);
}

/*
 * Answers while the lease lasts: then it also lasted when the reads were done that the client made before its
 * request.
 */
static int serve_fresh(struct client *k, const struct pool_request *rq)
{
	struct stag_pool_node *n = k->conn.node;
	struct pool_answer answer = {.sequence = rq->sequence, .op = rq->op};

	return role_may_read(&n->role, n->now) ? write_answer(k, &answer) : -EAGAIN;
}

static int serve_nodes(struct client *k, const struct pool_request *rq)
{
	struct node_status status;
	struct pool_answer answer = {
		.sequence = rq->sequence, .op = rq->op, .bytes = &status, .length = sizeof(status)};

	node_status(k->conn.node, &status);
	if (!(k->rights & STAG_POOL_RIGHT_ADMIN))
		memset(status.secrets, 0, sizeof(status.secrets));
	return write_answer(k, &answer);
}

static int serve_events(struct client *k, const struct pool_request *rq)
{
	struct node_event list[LIST_ROOM / sizeof(struct node_event)];
	uint32_t room = rq->length < LIST_ROOM ? rq->length : LIST_ROOM;
	unsigned int n = events_list(&k->conn.node->events, rq->version, list,
				     (unsigned int)(room / sizeof(list[0])));
	struct pool_answer answer = {.sequence = rq->sequence,
				     .op = rq->op,
				     .bytes = list,
				     .length = (uint32_t)(n * sizeof(list[0]))};

	return write_answer(k, &answer);
}

static int serve_error(struct client *k, const struct pool_request *rq, int error)
{
	struct pool_answer answer = {
		.sequence = rq->sequence, .op = rq->op, .status = (uint32_t)error};

	return write_answer(k, &answer);
}

/* Returns why the client's user may not do this, or NULL if it may, and the error with which to answer. */
static const char *why_refused(const struct client *k, const struct pool_request *rq, int *error)
{
	uint32_t lacks = pool_op_needs(rq->op) & ~k->rights;

	*error = EACCES;
	if (lacks & STAG_POOL_RIGHT_READ)
		return "no right to read";
	if (lacks & STAG_POOL_RIGHT_WRITE)
		return "no right to write";
	if (lacks)
		return "no right to administer";
	if (!pool_scope_allows(rq))
		return rq->name_length ? "no right to this name"
				       : "no right to values without a name";
	*error = ENOENT; /* it exists, which the client must not learn */
	return pool_scope_hides(&k->conn.node->memory.region, rq) ? "no right to this value" : NULL;
}

/*
 * Returns whether the client has to wait for itself. Every request is checked before it is carried out, because a
 * part of it must not be done twice.
 */
static bool must_wait(const struct client *k, const struct pool_request *rq)
{
	return takes_no_answers(k) || (rq->source == POOL_SOURCE_PULL && k->pulls >= CLIENT_PULLS);
}

/*
 * Returns 0 if the request is done or in flight, -EAGAIN if it has to wait for the node, -EBUSY if it has to wait
 * for its client, or another error if the client broke the protocol.
 */
static int execute_request(struct client *k, struct node_message *m, const struct pool_request *rq)
{
	struct pool_answer answer;
	const char *refused;
	int error, rc;

	if (!k->greeted && rq->op != POOL_OP_ATTACH)
		return -EPROTO;
	if (must_wait(k, rq))
		return -EBUSY;
	refused = why_refused(k, rq, &error);
	if (refused) {
		if (rq->source == POOL_SOURCE_STAGED)
			node_staging_refuse(k, m, rq);
		report_refusal(k, rq, refused);
		return serve_error(k, rq, error);
	}
	switch ((enum pool_handler)pool_operations[rq->op].handler) {
	case POOL_DO_ATTACH:
		return serve_attach(k, rq);
	case POOL_DO_READ:
		return rq->source == POOL_SOURCE_PULL ? pull_start(k, m, rq) : serve_read(k, rq);
	case POOL_DO_LIST:
		return serve_list(k, rq);
	case POOL_DO_NODES:
		return serve_nodes(k, rq);
	case POOL_DO_EVENTS:
		return serve_events(k, rq);
	case POOL_DO_FRESH:
		return serve_fresh(k, rq);
	case POOL_DO_ADMINISTER:
		return serve_administer(k, rq);
	case POOL_DO_ENROL:
		return serve_enrol(k, rq, &answer);
	case POOL_DO_DETACH:
		return serve_detach(k, rq, m->came);
	case POOL_DO_CHANGE:
		break;
	}
	rc = k->reclaimed ? enrol_again(k) : 0;
	if (rc == -EUSERS && rq->source == POOL_SOURCE_STAGED)
		node_staging_refuse(k, m, rq);
	if (rc != 0)
		return rc == -EUSERS ? serve_error(k, rq, EUSERS) : rc;
	if (rq->source == POOL_SOURCE_STAGED)
		return node_staging_change(k, m, rq);
	return rq->source == POOL_SOURCE_PULL ? pull_start(k, m, rq)
					      : serve_change(k, rq, m->came, &answer);
}

void serve_message_done(struct node_message *m)
{
	if (m->left == 0 && m->pulls == 0)
		node_conn_receive(m->work.conn, m);
}

/* What a client may still do before it is the next one's turn. */
struct turn {
	unsigned int requests;
	uint64_t until; /* sum of bytes: of records, values and answers */
};

static uint64_t bytes_done(const struct stag_pool_node *n)
{
	return n->memory.log.put + n->info.mirrored_bytes + n->serve.answer_bytes;
}

static bool is_over(const struct stag_pool_node *n, const struct turn *t)
{
	return t->requests == 0 || bytes_done(n) >= t->until;
}

/* Returns 0 if all of the message, or of the turn, is done; otherwise as execute_request(). */
static int execute_message(struct client *k, struct node_message *m, struct turn *t)
{
	while (m->left > 0 && !is_over(k->conn.node, t)) {
		struct pool_request rq;
		size_t where = m->where;
		int rc = pool_request_read(m->bytes, m->length, &where, &rq);

		rq.scope = k->scope;
		if (rc == 0)
			rc = execute_request(k, m, &rq);
		if (rc != 0)
			return rc;
		m->where = where;
		m->left--;
		t->requests--;
	}
	return 0;
}

/* Carries out requests of a client until its turn is over. Returns as execute_request(). */
static int take_turn(struct client *k)
{
	struct turn t = {TURN_REQUESTS, bytes_done(k->conn.node) + TURN_BYTES};
	int rc = 0;

	while (!list_empty(&k->inbox) && !is_over(k->conn.node, &t)) {
		struct node_message *m = list_entry(k->inbox.next, struct node_message, link);

		rc = execute_message(k, m, &t);
		if (rc != 0 || k->conn.over)
			break;
		if (m->left == 0) {
			list_del(&m->link);
			serve_message_done(m);
		}
	}
	return rc;
}

/* Lets the first client take its turn. Returns -EAGAIN if the node can carry out nothing more. */
static int serve_next(struct stag_pool_node *n)
{
	struct client *k = container_of(turns_first(&n->serve.turns), struct client, turn);
	int rc;

	node_read_clock(n); /* for the lease; the turn's requests arrived before */
	rc = take_turn(k);
	if (rc == -EAGAIN)
		return rc;
	if (rc != 0 && rc != -EBUSY)
		serve_evict(k, "invalid request: %s", strerror(-rc));
	if (k->conn.over || list_empty(&k->inbox)) {
		client_become(k, CLIENT_IDLE);
	} else if (rc == -EBUSY) {
		pause_client(k);
	} else {
		turns_next(&n->serve.turns);
	}
	return 0;
}

void serve_requests(struct stag_pool_node *n)
{
	uint64_t first = n->serve.core.number, done = bytes_done(n);
	unsigned int turns = 0;

	node_read_clock(n);
	while (!turns_empty(&n->serve.turns) && n->serve.core.number - first < RECORDS_A_ROUND &&
	       bytes_done(n) - done < BYTES_A_ROUND && turns++ < TURNS_A_ROUND)
		if (serve_next(n) == -EAGAIN)
			return;
	if (!turns_empty(&n->serve.turns))
		n->loop.busy = true;
	/* An answer without a record waits only for the records before it. */
	serve_answers(n, pool_superblock(&n->memory.region)->number);
}

static void client_received(struct node_conn *c, struct node_message *m)
{
	struct client *k = to_client(c);
	struct pool_message header;

	m->where = 0;
	m->pulls = 0;
	if (pool_message_read(m->bytes, m->length, &m->where, &header) != 0 ||
	    header.kind != POOL_MESSAGE_REQUESTS || header.count == 0 ||
	    header.epoch != (k->greeted ? c->node->role.epoch : 0)) {
		serve_evict(k, "not a request of this epoch");
		return;
	}
	if (header.count > NODE_DEPTH - k->unanswered) {
		serve_evict(k, "%u requests unanswered, and %u are allowed",
			    k->unanswered + header.count, NODE_DEPTH);
		return;
	}
	k->unanswered += header.count;
	m->left = header.count;
	m->came = c->node->now;
	list_add_tail(&k->inbox, &m->link);
	if (k->state == CLIENT_IDLE)
		client_become(k, CLIENT_WAITING);
}

/* ---- slow clients ------------------------------------------------------------------------------------ */

static void watch_client(struct client *k, uint64_t timeout)
{
	struct stag_pool_node *n = k->conn.node;

	if (timeout == 0)
		k->conn.sent_at = n->now;
	else if (k->conn.unsent != 0 && n->now - k->conn.sent_at > timeout)
		serve_evict(k, "%u messages of answers are not taken, for %llu s", k->conn.unsent,
			    (unsigned long long)((n->now - k->conn.sent_at) / NS_PER_S));
}

/* A node that was stopped counts from now on: nobody could make progress meanwhile. */
void serve_watch(struct stag_pool_node *n)
{
	uint64_t timeout = n->conf.client_timeout, since = n->now - n->serve.watched_at;

	if (since < NS_PER_S && since < timeout / 4)
		return;
	if (since > timeout / 2 && since > 2 * NS_PER_S)
		timeout = 0;
	n->serve.watched_at = n->now;
	list_for_each_safe (it, &n->conns) {
		struct node_conn *c = list_entry(it, struct node_conn, link);

		if (c->ops == &ops)
			watch_client(to_client(c), timeout);
	}
	pulls_watch(n, timeout);
}

/* ---- connections of clients ----------------------------------------------------------------------- */

static void client_event(struct node_conn *c, struct rdma_cm_event *e)
{
	if (e->event == RDMA_CM_EVENT_ESTABLISHED)
		c->up = true;
	else
		node_conn_leave(c);
}

/* Counts the connections of its user, unless that is a user no more. */
static void count_client(const struct client *k, int change)
{
	const struct users *all = &k->conn.node->users;
	const struct user *u = users_find(all, k->name);

	if (u && (change > 0 || u->clients > 0))
		all->list[u - all->list].clients += (uint32_t)change;
}

/*
 * Drops requests that are not records yet, and all answers. The client sends the requests again on its next
 * connection.
 */
static void client_ended(struct node_conn *c)
{
	struct client *k = to_client(c);

	count_client(k, -1);
	expire_left(k);
	pulls_forget(k);
	c->node->serve.num_paused -= k->slow;
	turns_remove(&k->turn);
	for (unsigned int i = 0; i < c->depth && c->messages; i++)
		list_del(&c->messages[i].link);
	for (unsigned int i = 0; i < NODE_DEPTH; i++)
		list_del(&k->replies[i].link);
	list_del(&k->dirty);
	c->node->serve.num_clients--;
}

static void free_client(struct node_conn *c)
{
	node_staging_leave(to_client(c));
	pulls_free_slot(to_client(c));
	free(to_client(c)->scope);
	free(to_client(c));
}

static const struct node_conn_ops ops = {.event = client_event,
					 .received = client_received,
					 .sent = client_sent,
					 .ended = client_ended,
					 .free = free_client};

static int accept_client(struct client *k, const struct admit_session *s)
{
	uint8_t greeting[ADMIT_MAX];
	struct rdma_conn_param param = {.private_data = greeting,
					.responder_resources = k->conn.node->adapter.reads,
					.initiator_depth = k->conn.node->adapter.reads,
					.rnr_retry_count = 7};
	int len = admit_make_welcome(k->conn.node->admit, s, NULL, 0, greeting);

	if (len < 0)
		return len;
	param.private_data_len = (uint8_t)len;
	return rdma_accept(k->conn.id, &param) == 0 ? 0 : -errno;
}

/* Notes what the client's user may do. */
static int set_rights(struct client *k, const struct admit_session *s)
{
	const struct user *u = users_find(&k->conn.node->users, s->name);

	memcpy(k->name, s->name, sizeof(k->name));
	k->rights = s->rights;
	k->domain = DOMAIN_OTHERS;
	if (!u)
		return -EACCES;
	k->proven = secret_mark(k->conn.node, user_secret(u, s->secret));
	count_client(k, 1);
	if (u->num_prefixes) {
		k->scope = calloc(1, sizeof(*k->scope));
		if (!k->scope)
			return -ENOMEM;
		k->scope->count = u->num_prefixes;
		memcpy(k->scope->prefixes, u->prefixes, sizeof(u->prefixes));
	}
	if (!(k->rights & STAG_POOL_RIGHT_READ))
		return 0;
	if (!k->scope)
		k->domain = DOMAIN_READERS;
	return memory_open_for(k->conn.node, k->domain);
}

int serve_accept(struct stag_pool_node *n, struct rdma_cm_id *id, const struct admit_session *s)
{
	const struct user *u = users_find(&n->users, s->name);
	struct client *k;
	int rc;

	if (u && u->clients >= n->conf.user_clients)
		return -EUSERS;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	node_conn_begin(&k->conn, n, &ops, id);
	list_init(&k->free_replies);
	list_init(&k->ready);
	list_init(&k->dirty);
	turn_place_init(&k->turn, &n->serve.turns, pool_hash(s->name, strlen(s->name)));
	list_init(&k->inbox);
	listen_describe_peer(id, k->address, sizeof(k->address));
	for (unsigned int i = 0; i < NODE_DEPTH; i++) {
		k->replies[i].client = k;
		list_add_tail(&k->free_replies, &k->replies[i].link);
	}
	n->serve.num_clients++;
	rc = set_rights(k, s);
	if (rc == 0)
		rc = node_conn_prepare(&k->conn, &n->adapter.clients, n->adapter.pd[k->domain],
				       NODE_DEPTH, PULL_SLOTS + NODE_SLOTS);
	if (rc == 0)
		rc = accept_client(k, s);
	if (rc != 0) {
		node_log(n, LOG_LEVEL_WARN, "client %s cannot be admitted: %s", k->name,
			 strerror(-rc));
		node_conn_leave(&k->conn);
	}
	return 0;
}

static bool has_scope(const struct client *k, const struct user *u)
{
	if (!k->scope || u->num_prefixes == 0)
		return !k->scope && u->num_prefixes == 0;
	return k->scope->count == u->num_prefixes &&
	       memcmp(k->scope->prefixes, u->prefixes, sizeof(u->prefixes)) == 0;
}

/* Returns whether the user may still do the same, and has the secret that the client has proven. */
static bool is_still(const struct client *k, const struct user *u)
{
	return u && k->rights == u->rights && has_scope(k, u) &&
	       secret_has_mark(k->conn.node, u, k->proven);
}

/* Disconnects clients whose secret, rights or prefixes changed: they must authenticate again. Others are not affected. */
void serve_users(struct stag_pool_node *n)
{
	list_for_each_safe (it, &n->conns) {
		struct node_conn *c = list_entry(it, struct node_conn, link);
		const char *name = c->ops == &ops ? to_client(c)->name : NULL;

		if (!name)
			continue;
		count_client(to_client(c), 1);
		if (is_still(to_client(c), users_find(&n->users, name)))
			continue;
		node_log(n, LOG_LEVEL_INFO,
			 "client %s: secret or rights changed, it must authenticate again", name);
		node_conn_leave(c);
	}
}

/* ---- as primary -------------------------------------------------------------------------------------- */

int serve_start(struct stag_pool_node *n)
{
	int rc = memory_log(n);

	node_staging_open(n);
	if (rc == 0)
		rc = pool_core_open(&n->serve.core, &n->memory.region, n->role.epoch);
	if (rc != 0)
		return rc;
	n->serve.core.overwrite = n->conf.flags & STAG_POOL_OVERWRITE;
	rc = expire_begin(n);
	if (rc != 0) {
		pool_core_close(&n->serve.core);
		return rc;
	}
	n->memory.posted = n->serve.core.number;
	n->memory.full_since = 0;
	n->serve.running = true;
	return 0;
}

/* Stops answering clients, and takes their access to the region away. */
void serve_stop(struct stag_pool_node *n)
{
	if (!n->serve.running)
		return;
	n->serve.running = false;
	list_for_each_safe (it, &n->conns) {
		struct node_conn *c = list_entry(it, struct node_conn, link);

		if (c->ops == &ops)
			node_conn_leave(c);
	}
	turns_clear(&n->serve.turns);
	while (!list_empty(&n->serve.replies))
		list_del(n->serve.replies.next);
	while (!list_empty(&n->serve.switchovers))
		list_del(n->serve.switchovers.next);
	expire_end(n);
	node_staging_start(n);
	pool_core_close(&n->serve.core);
}
