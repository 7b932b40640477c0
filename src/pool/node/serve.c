// SPDX-License-Identifier: BSD-2-Clause
/*
 * serve.c - a primary's clients: requests come in, become records, and are answered when every standby that is in
 * sync has them.
 *
 * Messages of all clients wait in one queue, and are carried out in its order, as long as the role permits and the
 * log has room. An answer waits for its record. Reads see what is applied, and are answered at once, within the
 * lease.
 */
#include "pool/node/node.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/histogram.h"
#include "base/log.h"

#define RECORDS_A_ROUND 256u /* then records are sent, and other work is done */
#define BYTES_A_ROUND	(1u << 20)
#define LIST_ROOM	(NODE_MESSAGE - POOL_MESSAGE_HEADER - POOL_ANSWER_HEADER)

static struct client *to_client(struct node_conn *c)
{
	return container_of(c, struct client, conn);
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
static int write_answer(struct client *k, const struct pool_answer *answer)
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

static void write_facts(struct client *k, struct pool_answer *answer, struct node_facts *facts)
{
	const struct stag_pool_node *n = k->conn.node;
	const struct pool_region *r = &n->memory.region;

	*facts = (struct node_facts){.address = r->address,
				     .size = r->size,
				     .index_at = r->index_at,
				     .num_buckets = r->num_buckets,
				     .key = r->key,
				     .rkey = n->memory.region_mr->rkey,
				     .rights = k->rights,
				     .flags = n->adapter.dv ? 0 : NODE_UNLEASED};
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

	if (r->answer.op == POOL_OP_ATTACH && r->answer.status == 0) {
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
	struct client_reply *r;

	if (list_empty(&k->free_replies)) {
		log_warn("client %s: disconnected: too many requests in flight", k->name);
		node_conn_leave(&k->conn);
		return -EPROTO;
	}
	r = list_entry(k->free_replies.next, struct client_reply, link);
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
	return queue_reply(k, &n->serve.replies, answer, came);
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
	if (k->rights & STAG_POOL_RIGHT_WRITE)
		rc = serve_change(k, rq, n->now, &answer);
	else
		rc = serve_reply(k, &answer);
	/* A client that the pool has forgotten may attach again as a new one. */
	k->greeted = rc == 0 && answer.status == 0;
	return rc;
}

static int forget_node(struct stag_pool_node *n, const char *name)
{
	int seat = roll_seat(&n->role.roll, name);

	if (seat < 0)
		return -ENOENT;
	if (roll_in_sync(&n->role.roll, (unsigned int)seat))
		return -EBUSY;
	return role_leave(&n->role, n->now, (unsigned int)seat);
}

static int switch_to(struct stag_pool_node *n, const char *name)
{
	const struct roll *roll = &n->role.roll;
	int seat = name[0] ? roll_seat(roll, name) : roll_next(roll, (unsigned int)n->role.seat);

	if (seat == n->role.seat)
		return 0;
	if (seat < 0 || !roll_in_sync(roll, (unsigned int)seat))
		return seat < 0 && name[0] ? -ENOENT : -EBUSY;
	return role_switch(&n->role, n->now, (unsigned int)seat);
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

	if (!role_may_read(&n->role, n->now))
		return -EAGAIN;
	pool_list(&n->memory.region, rq, names, rq->length < LIST_ROOM ? rq->length : LIST_ROOM,
		  &answer);
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
	return write_answer(k, &answer);
}

static int serve_error(struct client *k, const struct pool_request *rq, int error)
{
	struct pool_answer answer = {
		.sequence = rq->sequence, .op = rq->op, .status = (uint32_t)error};

	return write_answer(k, &answer);
}

static bool is_allowed(const struct client *k, const struct pool_request *rq)
{
	uint32_t needs = pool_op_needs(rq->op);

	return rq->op == POOL_OP_ATTACH || (needs & ~k->rights) == 0;
}

/*
 * Returns 0 if the request is done or in flight, -EAGAIN if it has to wait, or another error if the client broke
 * the protocol.
 */
static int execute_request(struct client *k, struct node_message *m, const struct pool_request *rq)
{
	struct pool_answer answer;

	if (!k->greeted && rq->op != POOL_OP_ATTACH)
		return -EPROTO;
	if (!is_allowed(k, rq))
		return serve_error(k, rq, EACCES);
	switch ((enum pool_handler)pool_operations[rq->op].handler) {
	case POOL_DO_ATTACH:
		return serve_attach(k, rq);
	case POOL_DO_READ:
		return rq->source == POOL_SOURCE_PULL ? pull_start(k, m, rq) : serve_read(k, rq);
	case POOL_DO_LIST:
		return serve_list(k, rq);
	case POOL_DO_NODES:
		return serve_nodes(k, rq);
	case POOL_DO_FRESH:
		return serve_fresh(k, rq);
	case POOL_DO_ADMINISTER:
		return serve_administer(k, rq);
	case POOL_DO_CHANGE:
	case POOL_DO_DETACH:
		break;
	}
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

/* Returns -EAGAIN if the message stays in the queue. */
static int execute_message(struct client *k, struct node_message *m)
{
	while (m->left > 0) {
		struct pool_request rq;
		size_t where = m->where;
		int rc = pool_request_read(m->bytes, m->length, &where, &rq);

		if (rc == 0)
			rc = execute_request(k, m, &rq);
		if (rc == -EAGAIN)
			return rc;
		if (rc != 0) {
			log_warn("client %s: disconnected: invalid request: %s", k->name,
				 strerror(-rc));
			node_conn_leave(&k->conn);
			return rc;
		}
		m->where = where;
		m->left--;
	}
	return 0;
}

void serve_requests(struct stag_pool_node *n)
{
	uint64_t first = n->serve.core.number, put = n->memory.log.put + n->info.mirrored_bytes;

	node_read_clock(n);
	while (!list_empty(&n->serve.inbox) && n->serve.core.number - first < RECORDS_A_ROUND &&
	       n->memory.log.put + n->info.mirrored_bytes - put < BYTES_A_ROUND) {
		struct node_message *m = list_entry(n->serve.inbox.next, struct node_message, link);
		struct client *k = to_client(m->work.conn);

		if (!k->conn.over && execute_message(k, m) == -EAGAIN)
			return;
		list_del(&m->link);
		if (!k->conn.over)
			serve_message_done(m);
	}
	if (!list_empty(&n->serve.inbox))
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
		log_warn("client %s: disconnected: not a request of this epoch", k->name);
		node_conn_leave(c);
		return;
	}
	m->left = header.count;
	m->came = c->node->now;
	list_add_tail(&c->node->serve.inbox, &m->link);
}

/* ---- connections of clients ----------------------------------------------------------------------- */

static void client_event(struct node_conn *c, struct rdma_cm_event *e)
{
	if (e->event == RDMA_CM_EVENT_ESTABLISHED)
		c->up = true;
	else
		node_conn_leave(c);
}

/*
 * Drops requests that are not records yet, and all answers. The client sends the requests again on its next
 * connection.
 */
static void client_ended(struct node_conn *c)
{
	struct client *k = to_client(c);

	expire_seen(k);
	pulls_forget(k);
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

int serve_accept(struct stag_pool_node *n, struct rdma_cm_id *id, const struct admit_session *s)
{
	struct client *k = calloc(1, sizeof(*k));
	int rc;

	if (!k)
		return -ENOMEM;
	node_conn_begin(&k->conn, n, &ops, id);
	list_init(&k->free_replies);
	list_init(&k->ready);
	list_init(&k->dirty);
	for (unsigned int i = 0; i < NODE_DEPTH; i++) {
		k->replies[i].client = k;
		list_add_tail(&k->free_replies, &k->replies[i].link);
	}
	memcpy(k->name, s->name, sizeof(k->name));
	k->rights = s->rights;
	n->serve.num_clients++;
	rc = node_conn_prepare(&k->conn, n->adapter.pd, NODE_DEPTH, PULL_SLOTS + NODE_SLOTS);
	if (rc == 0)
		rc = accept_client(k, s);
	if (rc != 0) {
		node_log(n, LOG_LEVEL_WARN, "client %s cannot be admitted: %s", k->name,
			 strerror(-rc));
		node_conn_leave(&k->conn);
	}
	return 0;
}

void serve_keep_alive(struct node_conn *c)
{
	if (c->ops == &ops)
		expire_seen(to_client(c));
}

static bool is_same(const struct user *a, const struct user *b)
{
	return a && b && a->rights == b->rights && strcmp(a->secret, b->secret) == 0;
}

/* Disconnects clients whose secret or rights changed: they must authenticate again. Others are not affected. */
void serve_users(struct stag_pool_node *n, const struct users *before)
{
	list_for_each_safe (it, &n->conns) {
		struct node_conn *c = list_entry(it, struct node_conn, link);
		const char *name = c->ops == &ops ? to_client(c)->name : NULL;

		if (!name || is_same(users_find(before, name), users_find(&n->users, name)))
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
	while (!list_empty(&n->serve.inbox))
		list_del(n->serve.inbox.next);
	while (!list_empty(&n->serve.replies))
		list_del(n->serve.replies.next);
	while (!list_empty(&n->serve.switchovers))
		list_del(n->serve.switchovers.next);
	expire_end(n);
	node_staging_start(n);
	pool_core_close(&n->serve.core);
}
