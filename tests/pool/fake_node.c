// SPDX-License-Identifier: BSD-2-Clause
/*
 * fake_node.c - see fake_node.h.
 */
#include "fake_node.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "base/clock.h"
#include "dv/dv.h"
#include "pool/admit/admit.h"
#include "pool/admit/protocol.h"

#define MAX_CLIENTS 8
#define RECORD_ROOM (POOL_RECORD_MAX + 4096u)

struct client {
	struct rdma_cm_id *id; /* NULL: the entry is free */
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_comp_channel *channel;
	struct ibv_mr *mr;
	uint8_t *in, *out; /* room for NODE_DEPTH messages; for one */
	struct pool_who who;
	uint32_t rights;
	bool attached;
	int node;
};

static struct {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listeners[2];
	char where[2][32];
	struct admit *admit;
	struct pool_region region;
	struct pool_core core;
	struct ibv_pd *pd;
	struct ibv_mr *region_mr, *pulled_mr;
	uint8_t *pulled;
	uint8_t record[RECORD_ROOM] __attribute__((aligned(8)));
	struct client clients[MAX_CLIENTS];
	uint64_t epoch;
	int primary;
	bool hung, gone[2];
	uint8_t uuid[16];
	pthread_t thread;
	pthread_mutex_t lock; /* the thread holds it except while it sleeps */
	atomic_bool stop, unleased, withhold, throws_out;
	atomic_int fault;
	atomic_ullong executed, messages, reads, proofs, attached_count;
} fake;

/* ---- carrying out ------------------------------------------------------------------------ */

static void settle(size_t used)
{
	if (used != 0)
		assert_int_equal(pool_settle(&fake.core, fake.record, used, NULL), 0);
}

static void change(struct client *c, const struct pool_request *rq, struct pool_answer *answer)
{
	size_t used;

	assert_int_equal(
		pool_change(&fake.core, &c->who, rq, fake.record, RECORD_ROOM, &used, answer), 0);
	if (used != 0 && rq->op < POOL_OP_ATTACH)
		fake.executed++;
	settle(used);
}

static void upload(struct client *c, struct pool_request *rq, const uint8_t *value,
		   struct pool_answer *answer)
{
	size_t used;

	assert_int_equal(
		pool_upload_begin(&fake.core, &c->who, rq, fake.record, RECORD_ROOM, &used, answer),
		0);
	settle(used);
	if (answer->status != EINPROGRESS)
		return;
	for (uint32_t at = 0; at < rq->length; at += POOL_DIRECT_MAX) {
		uint32_t n = rq->length - at < POOL_DIRECT_MAX ? rq->length - at : POOL_DIRECT_MAX;

		assert_int_equal(pool_upload_bytes(&fake.core, &c->who, rq->sequence, at,
						   value + at, n, fake.record, RECORD_ROOM, &used),
				 0);
		settle(used);
	}
	rq->flags |= POOL_UPLOADED;
	rq->hash = pool_hash(value, rq->length);
	change(c, rq, answer);
}

/* Reads or writes a client's memory and waits for the completion. Returns -1 if the client is gone. */
static int move_bytes(struct client *c, enum ibv_wr_opcode how, uint64_t address, uint32_t key,
		      uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)fake.pulled, length, fake.pulled_mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = 1,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = how,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {.remote_addr = address, .rkey = key},
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;
	int n;

	if (ibv_post_send(c->id->qp, &wr, &bad) != 0)
		return -1;
	do {
		n = ibv_poll_cq(c->send_cq, 1, &wc);
	} while (n == 0 || (n == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id != 1));
	return n == 1 && wc.status == IBV_WC_SUCCESS ? 0 : -1;
}

static int carry_out(struct client *c, struct pool_request *rq, uint32_t advertised,
		     struct pool_answer *answer)
{
	uint32_t key = rq->key ? rq->key : advertised;

	if (rq->source == POOL_SOURCE_PULL &&
	    move_bytes(c, IBV_WR_RDMA_READ, rq->source_address, key, rq->length) != 0)
		return -1;
	if (rq->source == POOL_SOURCE_PULL)
		rq->value = fake.pulled;
	if (rq->length > POOL_DIRECT_MAX)
		upload(c, rq, fake.pulled, answer);
	else
		change(c, rq, answer);
	return 0;
}

static int serve_read(struct client *c, const struct pool_request *rq, struct pool_answer *answer)
{
	int rc = 0;

	fake.reads++;
	pool_look(&fake.region, rq, answer);
	if (answer->status == 0 && answer->length > rq->length)
		answer->status = EMSGSIZE;
	if (answer->status == 0 && rq->source == POOL_SOURCE_PULL) {
		memcpy(fake.pulled, answer->bytes, answer->length);
		rc = move_bytes(c, IBV_WR_RDMA_WRITE, rq->source_address, rq->key, answer->length);
	}
	if (answer->status != 0 || rq->source == POOL_SOURCE_PULL)
		answer->bytes = NULL;
	return rc;
}

static struct node_facts facts_of(const struct client *c)
{
	const struct pool_region *r = &fake.region;
	struct node_facts f = {
		.address = r->address,
		.size = r->size,
		.index_at = r->index_at,
		.num_buckets = r->num_buckets,
		.name_key = {r->name_key[0], r->name_key[1]},
		.key = r->key,
		.rkey = fake.region_mr->rkey,
		.rights = c->rights,
		.flags = fake.unleased ? NODE_UNLEASED : 0,
	};

	memcpy(f.uuid, fake.uuid, sizeof(f.uuid));
	return f;
}

static void attach(struct client *c, struct pool_request *rq, struct pool_answer *answer,
		   struct node_facts *facts)
{
	c->who.id[0] = rq->ptr.address;
	c->who.id[1] = rq->ptr.generation;
	c->who.who = 7;
	if (c->rights & STAG_POOL_RIGHT_WRITE)
		change(c, rq, answer);
	else
		*answer = (struct pool_answer){.sequence = rq->sequence, .op = rq->op};
	if (answer->status != 0)
		return;
	c->attached = true;
	*facts = facts_of(c);
	answer->bytes = facts;
	answer->length = sizeof(*facts);
}

static void status(const struct pool_request *rq, struct pool_answer *answer, struct node_status *s)
{
	const struct pool_superblock *sb = pool_superblock(&fake.region);

	*s = (struct node_status){.epoch = fake.epoch,
				  .size = fake.region.size,
				  .objects = sb->objects,
				  .num_members = 2};
	strcpy(s->pool, "fake");
	for (int i = 0; i < 2; i++) {
		snprintf(s->members[i].name, ROLL_NAME_LEN, "n%d", i);
		strcpy(s->members[i].address, fake.where[i]);
		s->members[i].role =
			i == fake.primary ? STAG_POOL_ROLE_PRIMARY : STAG_POOL_ROLE_STANDBY;
	}
	*answer = (struct pool_answer){
		.sequence = rq->sequence, .op = rq->op, .bytes = s, .length = sizeof(*s)};
}

/* ---- connections --------------------------------------------------------------------------- */

static void end_client(struct client *c)
{
	if (!c->id)
		return;
	rdma_disconnect(c->id);
	rdma_destroy_qp(c->id);
	rdma_destroy_id(c->id);
	ibv_destroy_cq(c->send_cq);
	ibv_destroy_cq(c->recv_cq);
	ibv_destroy_comp_channel(c->channel);
	ibv_dereg_mr(c->mr);
	free(c->in);
	*c = (struct client){0};
}

static void promote_other(bool drop)
{
	fake.primary = 1 - fake.primary;
	fake.epoch++;
	pool_core_close(&fake.core);
	assert_int_equal(pool_core_open(&fake.core, &fake.region, fake.epoch), 0);
	for (int i = 0; i < MAX_CLIENTS && drop; i++)
		end_client(&fake.clients[i]);
}

static int receive(struct client *c, uint32_t i)
{
	struct ibv_sge sge = {(uintptr_t)(c->in + (size_t)i * NODE_MESSAGE), NODE_MESSAGE,
			      c->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

	return ibv_post_recv(c->id->qp, &wr, &bad);
}

static int send_answers(struct client *c, size_t used)
{
	struct ibv_sge sge = {(uintptr_t)c->out, (uint32_t)used, c->mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = 2,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};
	struct ibv_send_wr *bad;
	struct ibv_wc wc;

	if (ibv_post_send(c->id->qp, &wr, &bad) != 0)
		return -1;
	while (ibv_poll_cq(c->send_cq, 1, &wc) == 0)
		continue;
	return wc.status == IBV_WC_SUCCESS ? 0 : -1;
}

/* Serves one request. Returns false if the client is gone or is to be disconnected. */
static bool serve_one(struct client *c, struct pool_request *rq, uint32_t advertised, size_t *used)
{
	static struct node_facts facts;
	static struct node_status nodes;
	static uint8_t names[NODE_MESSAGE];
	enum fake_fault fault = FAKE_RIGHT;
	struct pool_answer answer;
	int rc = 0;

	if (rq->op == POOL_OP_ATTACH) {
		fake.attached_count++;
		attach(c, rq, &answer, &facts);
	} else if (fake.throws_out) {
		return false;
	} else if (rq->op == POOL_OP_NODES) {
		status(rq, &answer, &nodes);
	} else if (rq->op == POOL_OP_FRESH) {
		fake.proofs++;
		if (fake.withhold)
			return true;
		answer = (struct pool_answer){.sequence = rq->sequence, .op = rq->op};
	} else if (rq->op == POOL_OP_LIST) {
		pool_list(&fake.region, rq, names, 1024, &answer);
	} else if (rq->op == POOL_OP_SWITCH) {
		promote_other(true); /* and the answer is lost */
		return false;
	} else if (!pool_op_changes(rq->op)) {
		rc = serve_read(c, rq, &answer);
	} else if (!(c->rights & STAG_POOL_RIGHT_WRITE)) {
		answer = (struct pool_answer){
			.sequence = rq->sequence, .op = rq->op, .status = EACCES};
	} else {
		if (rq->op < POOL_OP_ATTACH)
			fault = (enum fake_fault)atomic_exchange(&fake.fault, FAKE_RIGHT);
		if (fault != FAKE_DIES_BEFORE)
			rc = carry_out(c, rq, advertised, &answer);
	}
	if (rc == 0 && fault == FAKE_RIGHT)
		return pool_message_answer(c->out, NODE_MESSAGE, used, &answer) == 0;
	if (fault == FAKE_HANGS) {
		promote_other(false);
		fake.hung = true;
	} else if (fault != FAKE_RIGHT) {
		promote_other(true);
	}
	return false;
}

/* Serves the requests of one message. Returns false if the client is gone or is to be disconnected. */
static bool serve_message(struct client *c, const struct ibv_wc *wc)
{
	const uint8_t *bytes = c->in + wc->wr_id * NODE_MESSAGE;
	uint32_t advertised = wc->wc_flags & STAGDV_WC_ADVERTISED ? wc->invalidated_rkey : 0;
	struct pool_message message;
	struct pool_request rq;
	size_t where = 0, used = 0;

	fake.messages++;
	if (pool_message_read(bytes, wc->byte_len, &where, &message) != 0 ||
	    (c->attached ? message.epoch != fake.epoch : message.epoch != 0))
		return false;
	pool_message_start(c->out, NODE_MESSAGE, &used, POOL_MESSAGE_ANSWERS, fake.epoch);
	for (unsigned int i = 0; i < message.count; i++) {
		if (pool_request_read(bytes, wc->byte_len, &where, &rq) != 0 ||
		    (!c->attached && rq.op != POOL_OP_ATTACH) ||
		    !serve_one(c, &rq, advertised, &used))
			return fake.hung;
		/* Sends when a message is half full, so that answers come in several messages. */
		if (used > POOL_MESSAGE_HEADER &&
		    (used > NODE_MESSAGE / 2 || i + 1 == message.count)) {
			if (send_answers(c, used) != 0)
				return false;
			used = 0;
			pool_message_start(c->out, NODE_MESSAGE, &used, POOL_MESSAGE_ANSWERS,
					   fake.epoch);
		}
	}
	return receive(c, (uint32_t)wc->wr_id) == 0;
}

static void serve(struct client *c)
{
	struct ibv_wc wc;

	while (c->id && !(fake.hung && c->node != fake.primary) &&
	       ibv_poll_cq(c->recv_cq, 1, &wc) > 0)
		if (wc.status != IBV_WC_SUCCESS || !serve_message(c, &wc))
			end_client(c);
}

/* ---- the listeners ------------------------------------------------------------------------------ */

static void make_device(struct ibv_context *verbs)
{
	if (fake.pd)
		return;
	fake.pd = ibv_alloc_pd(verbs);
	fake.region_mr = ibv_reg_mr(fake.pd, fake.region.at, fake.region.size,
				    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	fake.pulled_mr = ibv_reg_mr(fake.pd, fake.pulled, 64u << 20, IBV_ACCESS_LOCAL_WRITE);
	assert_true(fake.pd && fake.region_mr && fake.pulled_mr);
}

static void admit_client(struct rdma_cm_id *id, const struct admit_session *session)
{
	struct client *c = fake.clients;
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 8,
			.max_recv_wr = NODE_DEPTH,
			.max_send_sge = 1,
			.max_recv_sge = 1},
	};
	uint8_t reply[ADMIT_MAX];
	struct rdma_conn_param param = {
		.private_data = reply, .initiator_depth = 1, .responder_resources = NODE_READS};

	while (c->id)
		assert_true(++c < fake.clients + MAX_CLIENTS);
	make_device(id->verbs);
	c->id = id;
	c->rights = session->rights;
	c->node = fake.primary;
	c->channel = ibv_create_comp_channel(id->verbs);
	c->send_cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0);
	c->recv_cq = ibv_create_cq(id->verbs, NODE_DEPTH + 8, NULL, c->channel, 0);
	c->in = calloc(NODE_DEPTH + 1, NODE_MESSAGE);
	c->out = c->in + (size_t)NODE_DEPTH * NODE_MESSAGE;
	c->mr = ibv_reg_mr(fake.pd, c->in, (size_t)(NODE_DEPTH + 1) * NODE_MESSAGE,
			   IBV_ACCESS_LOCAL_WRITE);
	attr.send_cq = c->send_cq;
	attr.recv_cq = c->recv_cq;
	assert_int_equal(rdma_create_qp(id, fake.pd, &attr), 0);
	for (uint32_t i = 0; i < NODE_DEPTH; i++)
		assert_int_equal(receive(c, i), 0);
	ibv_req_notify_cq(c->recv_cq, 0);
	param.private_data_len = (uint8_t)admit_make_welcome(fake.admit, session, NULL, 0, reply);
	id->context = c;
	if (rdma_accept(id, &param) != 0)
		end_client(c);
}

/* Judges a connection request. A node that is not primary refers to the primary; one that is gone just rejects. */
static void on_connect_request(struct rdma_cm_id *id, const struct rdma_cm_event *event)
{
	int node = event->listen_id == fake.listeners[1];
	struct admit_place place = {.epoch = fake.epoch};
	struct admit_session session;
	uint8_t reply[ADMIT_MAX], said[256];
	size_t length = event->param.conn.private_data_len, reply_length;
	enum admit_verdict verdict;

	memcpy(said, event->param.conn.private_data, length);
	if (node != fake.primary && fake.hung)
		place.epoch--; /* a hung node does not know the new primary */
	else if (node != fake.primary)
		place.primary = fake.where[fake.primary];
	verdict = admit_judge(fake.admit, clock_ns(), "127.0.0.1", 9, &place, said, length, reply,
			      &reply_length, &session);
	if (fake.gone[node]) {
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
	} else if (verdict == ADMIT_YES && node == fake.primary) {
		admit_client(id, &session);
	} else {
		rdma_reject(id, reply, (uint8_t)reply_length);
		rdma_destroy_id(id);
	}
}

static void handle_cm_events(void)
{
	struct rdma_cm_event *event, copy;
	uint8_t said[256];

	while (rdma_get_cm_event(fake.events, &event) == 0) {
		copy = *event;
		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
			memcpy(said, event->param.conn.private_data,
			       event->param.conn.private_data_len);
			copy.param.conn.private_data = said;
		}
		rdma_ack_cm_event(event);
		if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST)
			on_connect_request(copy.id, &copy);
		else if (copy.event == RDMA_CM_EVENT_DISCONNECTED)
			end_client(copy.id->context);
	}
}

static void wait_for_events(void)
{
	struct pollfd fds[MAX_CLIENTS + 1] = {{.fd = fake.events->fd, .events = POLLIN}};
	int n = 1;

	for (int i = 0; i < MAX_CLIENTS; i++) {
		if (fake.clients[i].id) {
			ibv_req_notify_cq(fake.clients[i].recv_cq, 0);
			serve(&fake.clients[i]);
		}
		if (fake.clients[i].id)
			fds[n++] = (struct pollfd){.fd = fake.clients[i].channel->fd,
						   .events = POLLIN};
	}
	pthread_mutex_unlock(&fake.lock);
	poll(fds, (nfds_t)n, 5);
	pthread_mutex_lock(&fake.lock);
}

static void drain_cq_event(struct client *c)
{
	struct pollfd fd = {.fd = c->id ? c->channel->fd : -1, .events = POLLIN};
	struct ibv_cq *cq;
	void *context;

	if (poll(&fd, 1, 0) == 1 && ibv_get_cq_event(c->channel, &cq, &context) == 0)
		ibv_ack_cq_events(cq, 1);
}

static void *fake_node_thread(void *arg)
{
	pthread_mutex_lock(&fake.lock);
	while (!fake.stop) {
		handle_cm_events();
		for (int i = 0; i < MAX_CLIENTS; i++) {
			drain_cq_event(&fake.clients[i]);
			serve(&fake.clients[i]);
		}
		wait_for_events();
	}
	pthread_mutex_unlock(&fake.lock);
	return arg;
}

/* ---- for tests ------------------------------------------------------------------------------ */

static void open_listener(int i)
{
	struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};

	assert_int_equal(rdma_create_id(fake.events, &fake.listeners[i], NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(fake.listeners[i], (struct sockaddr *)&any), 0);
	assert_int_equal(rdma_listen(fake.listeners[i], 16), 0);
	snprintf(fake.where[i], sizeof(fake.where[i]), "127.0.0.1:%u",
		 ntohs(rdma_get_src_port(fake.listeners[i])));
}

static void make_region(uint64_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct pool_format format = {
		.size = size, .address = (uintptr_t)at, .key = 0x12345600, .name_key = {1, 2}};

	assert_ptr_not_equal(at, MAP_FAILED);
	assert_int_equal(pool_region_format(&fake.region, at, &format), 0);
	assert_int_equal(pool_core_open(&fake.core, &fake.region, fake.epoch), 0);
	fake.pulled = malloc(64u << 20);
	assert_non_null(fake.pulled);
}

void fake_start(uint64_t size)
{
	static struct user list[] = {
		{.name = "ann",
		 .rights = STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE | STAG_POOL_RIGHT_ADMIN,
		 .secret = FAKE_SECRET},
		{.name = "bob", .rights = STAG_POOL_RIGHT_READ, .secret = FAKE_SECRET},
		{.name = "pool", .rights = USER_RIGHT_NODE, .secret = "0123456789abcdefg"},
	};
	static const struct users users = {list, 3};

	for (unsigned int i = 0; i < users.count; i++)
		assert_true(admit_mark_name(list[i].name, list[i].mark));
	memset(&fake, 0, sizeof(fake));
	fake.epoch = 2;
	memcpy(fake.uuid, "a pool of tests!", 16);
	make_region(size);
	fake.admit = admit_create(fake.uuid, &users);
	fake.events = rdma_create_event_channel();
	assert_true(fake.admit && fake.events);
	fcntl(fake.events->fd, F_SETFL, O_NONBLOCK);
	open_listener(0);
	open_listener(1);
	pthread_mutex_init(&fake.lock, NULL);
	assert_int_equal(pthread_create(&fake.thread, NULL, fake_node_thread, NULL), 0);
}

void fake_stop(void)
{
	fake.stop = true;
	pthread_join(fake.thread, NULL);
	for (int i = 0; i < MAX_CLIENTS; i++)
		end_client(&fake.clients[i]);
	rdma_destroy_id(fake.listeners[0]);
	rdma_destroy_id(fake.listeners[1]);
	rdma_destroy_event_channel(fake.events);
	if (fake.pd) {
		ibv_dereg_mr(fake.region_mr);
		ibv_dereg_mr(fake.pulled_mr);
		ibv_dealloc_pd(fake.pd);
	}
	admit_destroy(fake.admit);
	pool_core_close(&fake.core);
	munmap(fake.region.at, fake.region.size);
	free(fake.pulled);
}

const char *fake_where(int node)
{
	return fake.where[node];
}

const struct pool_region *fake_region(void)
{
	return &fake.region;
}

void fake_fault(enum fake_fault fault)
{
	fake.fault = (int)fault;
}

void fake_move(void)
{
	pthread_mutex_lock(&fake.lock);
	promote_other(true);
	pthread_mutex_unlock(&fake.lock);
}

void fake_forget(void)
{
	size_t used;

	pthread_mutex_lock(&fake.lock);
	for (uint32_t i = 0; i < 16; i++) {
		pool_expire(&fake.core, i, fake.record, RECORD_ROOM, &used);
		settle(used);
	}
	pthread_mutex_unlock(&fake.lock);
}

void fake_gone(int node, bool gone)
{
	pthread_mutex_lock(&fake.lock);
	fake.gone[node] = gone;
	for (int i = 0; i < MAX_CLIENTS && gone; i++)
		if (fake.clients[i].id && fake.clients[i].node == node)
			end_client(&fake.clients[i]);
	pthread_mutex_unlock(&fake.lock);
}

void fake_tear(const struct stag_pool_ptr *ptr)
{
	struct pool_object *object = (struct pool_object *)(uintptr_t)ptr->address;

	pthread_mutex_lock(&fake.lock);
	object->hash = ~object->hash;
	pthread_mutex_unlock(&fake.lock);
}

void fake_unleased(bool unleased)
{
	fake.unleased = unleased;
}

void fake_withhold(bool withhold)
{
	fake.withhold = withhold;
}

void fake_throw_out(bool throw)
{
	fake.throws_out = throw;
}

uint64_t fake_attached(void)
{
	return fake.attached_count;
}

uint64_t fake_proofs(void)
{
	return fake.proofs;
}

uint64_t fake_executed(void)
{
	return fake.executed;
}

uint64_t fake_messages(void)
{
	return fake.messages;
}

uint64_t fake_reads(void)
{
	return fake.reads;
}
