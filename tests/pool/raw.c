// SPDX-License-Identifier: BSD-2-Clause
/*
 * raw.c - a client of a pool's node, on bare verbs (raw.h).
 */
#include "raw.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PATIENCE_S 20

static struct rdma_cm_event *next_event(struct raw *r)
{
	struct rdma_cm_event *e;

	return rdma_get_cm_event(r->events, &e) == 0 ? e : NULL;
}

static int await_event(struct raw *r, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *e = next_event(r);
	bool good = e && e->event == type;

	if (e)
		rdma_ack_cm_event(e);
	return good ? 0 : -ECONNREFUSED;
}

static int resolve(struct raw *r, uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int rc;

	if (rdma_create_id(r->events, &r->id, NULL, RDMA_PS_TCP) != 0 ||
	    rdma_resolve_addr(r->id, NULL, (struct sockaddr *)&to, 1000) != 0)
		return -errno;
	rc = await_event(r, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rc == 0 && rdma_resolve_route(r->id, 1000) != 0)
		rc = -errno;
	return rc == 0 ? await_event(r, RDMA_CM_EVENT_ROUTE_RESOLVED) : rc;
}

static int post_receive(struct raw *r, unsigned int i)
{
	struct ibv_sge sge = {(uintptr_t)r->messages + i * NODE_MESSAGE, NODE_MESSAGE, r->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

	return -ibv_post_recv(r->id->qp, &wr, &bad);
}

static int make_queues(struct raw *r)
{
	struct ibv_qp_init_attr attr = {.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = 16,
						.max_recv_wr = NODE_DEPTH,
						.max_send_sge = 1,
						.max_recv_sge = 1}};

	if (!r->pd) {
		size_t size = (NODE_DEPTH + 1) * NODE_MESSAGE;

		r->pd = ibv_alloc_pd(r->id->verbs);
		r->cq = ibv_create_cq(r->id->verbs, 2 * NODE_DEPTH, NULL, NULL, 0);
		r->messages = calloc(1, size);
		r->memory = calloc(1, RAW_MEMORY);
		r->mr = ibv_reg_mr(r->pd, r->messages, size, IBV_ACCESS_LOCAL_WRITE);
		r->memory_mr = ibv_reg_mr(
			r->pd, r->memory, RAW_MEMORY,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	}
	attr.send_cq = attr.recv_cq = r->cq;
	if (rdma_create_qp(r->id, r->pd, &attr) != 0)
		return -errno;
	for (unsigned int i = 0; i < NODE_DEPTH; i++)
		if (post_receive(r, i) != 0)
			return -ENOMEM;
	return 0;
}

/* Connects, and copies the node's private data to `said`. Returns 1 if the node accepted, 0 if it rejected. */
static int greet(struct raw *r, uint16_t port, const void *greeting, int len, uint8_t *said,
		 size_t *said_len)
{
	struct rdma_conn_param param = {.private_data = greeting,
					.private_data_len = (uint8_t)len,
					.initiator_depth = 16,
					.responder_resources = 16};
	struct rdma_cm_event *e;
	int rc = resolve(r, port);

	if (rc == 0)
		rc = make_queues(r);
	if (rc == 0 && rdma_connect(r->id, &param) != 0)
		rc = -errno;
	if (rc != 0)
		return rc;
	e = next_event(r);
	if (!e)
		return -EIO;
	rc = e->event == RDMA_CM_EVENT_ESTABLISHED ? 1
	     : e->event == RDMA_CM_EVENT_REJECTED  ? 0
						   : -ECONNREFUSED;
	*said_len = rc >= 0 ? e->param.conn.private_data_len : 0;
	if (*said_len)
		memcpy(said, e->param.conn.private_data, *said_len);
	rdma_ack_cm_event(e);
	return rc;
}

static void drop_id(struct raw *r)
{
	if (r->id && r->id->qp)
		rdma_destroy_qp(r->id);
	if (r->id)
		rdma_destroy_id(r->id);
	r->id = NULL;
}

static int authenticate(struct raw *r, uint16_t port, const char *user, const char *secret)
{
	uint8_t out[ADMIT_MAX], said[256];
	char primary[ROLL_ADDRESS_LEN];
	const void *facts;
	size_t len;
	int rc = greet(r, port, out, admit_say_hello(&r->session, ADMIT_CLIENT, user, out), said,
		       &len);

	if (rc != 0)
		return rc < 0 ? rc : -EPROTO;
	drop_id(r);
	rc = admit_say_proof(&r->session, secret, said, len, &r->epoch, primary, out);
	if (rc < 0)
		return rc;
	if (primary[0])
		return -EREMCHG;
	rc = greet(r, port, out, rc, said, &len);
	if (rc < 0)
		return rc;
	rc = admit_hear_welcome(&r->session, secret, said, len, &facts);
	return rc < 0 ? rc : 0;
}

int raw_open(struct raw *r, uint16_t port, const char *user, const char *secret)
{
	int rc;

	*r = (struct raw){.events = rdma_create_event_channel()};
	if (!r->events)
		return -errno;
	rc = authenticate(r, port, user, secret);
	if (rc != 0)
		raw_close(r);
	return rc;
}

void raw_close(struct raw *r)
{
	drop_id(r);
	if (r->mr)
		ibv_dereg_mr(r->mr);
	if (r->memory_mr)
		ibv_dereg_mr(r->memory_mr);
	if (r->cq)
		ibv_destroy_cq(r->cq);
	if (r->pd)
		ibv_dealloc_pd(r->pd);
	if (r->events)
		rdma_destroy_event_channel(r->events);
	free(r->messages);
	free(r->memory);
	*r = (struct raw){0};
}

/* On roce0 the queue pair does not notice that its peer is gone: the connection manager does. */
static bool is_left(struct raw *r)
{
	struct pollfd fd = {.fd = r->events->fd, .events = POLLIN};
	struct rdma_cm_event *e = poll(&fd, 1, 0) == 1 ? next_event(r) : NULL;
	bool left = e && e->event == RDMA_CM_EVENT_DISCONNECTED;

	if (e)
		rdma_ack_cm_event(e);
	return left;
}

/* Waits for the next completion that is not a send's: that of an answer or of a read. */
static int await_wc(struct raw *r, struct ibv_wc *wc)
{
	time_t until = time(NULL) + PATIENCE_S;

	for (;;) {
		int n = ibv_poll_cq(r->cq, 1, wc);

		if (n < 0 || time(NULL) > until)
			return -ETIMEDOUT;
		if (n == 0 && is_left(r))
			return -ENOTCONN;
		if (n == 0)
			continue;
		if (wc->status != IBV_WC_SUCCESS)
			return -ENOTCONN;
		if (wc->opcode != IBV_WC_SEND)
			return 0;
	}
}

static int post_message(struct raw *r, uint32_t length)
{
	struct ibv_sge sge = {.addr = (uintptr_t)r->messages + NODE_DEPTH * NODE_MESSAGE,
			      .length = length,
			      .lkey = r->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = r->ends ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED,
				 .invalidate_rkey = r->ends},
			   *bad;

	r->ends = 0;
	return -ibv_post_send(r->id->qp, &wr, &bad);
}

static int post_requests(struct raw *r, struct pool_request *rq, unsigned int count)
{
	uint8_t *at = r->messages + NODE_DEPTH * NODE_MESSAGE;
	uint64_t epoch = rq->op == POOL_OP_ATTACH ? 0 : r->epoch;
	size_t used = 0;
	int rc = pool_message_start(at, NODE_MESSAGE, &used, POOL_MESSAGE_REQUESTS, epoch);

	if (rq->sequence == 0)
		rq->sequence = ++r->sequence;
	for (unsigned int i = 0; i < count && rc == 0; i++)
		rc = pool_message_request(at, NODE_MESSAGE, &used, rq);
	return rc == 0 ? post_message(r, (uint32_t)used) : rc;
}

int raw_send(struct raw *r, struct pool_request *rq)
{
	return post_requests(r, rq, 1);
}

int raw_send_many(struct raw *r, struct pool_request *rq, unsigned int count)
{
	int rc = post_requests(r, rq, count);

	return rc == 0 ? raw_await_sent(r) : rc;
}

int raw_await_sent(struct raw *r)
{
	time_t until = time(NULL) + PATIENCE_S;
	struct ibv_wc wc;

	do {
		int n = ibv_poll_cq(r->cq, 1, &wc);

		if (n == 0) {
			nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
			continue;
		}
		if (n < 0 || wc.status != IBV_WC_SUCCESS)
			return -ENOTCONN;
		if (wc.opcode == IBV_WC_SEND)
			return 0;
		if (post_receive(r, (unsigned int)wc.wr_id) != 0)
			return -ENOTCONN;
	} while (time(NULL) <= until);
	return -ETIMEDOUT;
}

/* Reads the slots that the rest of the message announces as open. */
static int read_slots(struct raw *r, size_t length, size_t where, unsigned int n)
{
	struct pool_answer answer;
	struct node_slot s;

	for (unsigned int i = 0; i < n; i++) {
		if (pool_answer_read(r->answer, length, &where, &answer) != 0 ||
		    answer.op != POOL_OP_STAGING)
			return -EPROTO;
		for (uint32_t at = 0; at + sizeof(s) <= answer.length; at += sizeof(s)) {
			memcpy(&s, (const uint8_t *)answer.bytes + at, sizeof(s));
			r->open |= 1u << s.slot;
			r->slot_rkey[s.slot] = s.rkey;
		}
	}
	return 0;
}

int raw_receive(struct raw *r, const struct pool_request *rq, struct pool_answer *answer)
{
	struct pool_message header;
	struct ibv_wc wc;
	size_t where = 0;
	int rc = await_wc(r, &wc);

	if (rc != 0)
		return rc;
	memcpy(r->answer, r->messages + wc.wr_id * NODE_MESSAGE, wc.byte_len);
	rc = post_receive(r, (unsigned int)wc.wr_id);
	if (rc == 0)
		rc = pool_message_read(r->answer, wc.byte_len, &where, &header);
	if (rc == 0)
		rc = pool_answer_read(r->answer, wc.byte_len, &where, answer);
	if (rc == 0 && answer->sequence != rq->sequence)
		rc = -EPROTO;
	if (rc == 0)
		rc = read_slots(r, wc.byte_len, where, header.count - 1u);
	if (rc == 0)
		r->epoch = header.epoch;
	return rc;
}

int raw_await_answer(struct raw *r, uint64_t sequence)
{
	struct pool_request rq = {.sequence = sequence};
	struct pool_answer answer;
	int rc;

	do
		rc = raw_receive(r, &rq, &answer);
	while (rc == -EPROTO);
	return rc;
}

int raw_request(struct raw *r, struct pool_request *rq, struct pool_answer *answer)
{
	int rc = raw_send(r, rq);

	return rc == 0 ? raw_receive(r, rq, answer) : rc;
}

int raw_attach(struct raw *r, const uint64_t id[2], bool again)
{
	struct pool_request rq = {.op = POOL_OP_ATTACH,
				  .version = again,
				  .ptr = {.address = id[0], .generation = id[1]},
				  .sequence = UINT64_MAX};
	struct pool_answer answer;
	int rc = raw_request(r, &rq, &answer);

	if (rc != 0 || answer.status != 0)
		return rc != 0 ? rc : (int)answer.status;
	if (answer.length != sizeof(r->facts))
		return -EPROTO;
	memcpy(&r->facts, answer.bytes, sizeof(r->facts));
	return 0;
}

int raw_stage(struct raw *r, unsigned int slot, uint32_t offset, const void *bytes, uint32_t length)
{
	struct ibv_sge sge = {(uintptr_t)r->memory, length, r->memory_mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {r->facts.staging_address + node_slot_at(slot) + offset,
					     r->slot_rkey[slot]}},
			   *bad;
	struct ibv_wc wc;
	int rc;

	memcpy(r->memory, bytes, length);
	rc = -ibv_post_send(r->id->qp, &wr, &bad);
	return rc == 0 ? await_wc(r, &wc) : rc;
}

struct pool_request raw_staged(struct raw *r, unsigned int slot, uint32_t length)
{
	r->ends = r->slot_rkey[slot];
	r->open &= ~(1u << slot);
	return (struct pool_request){
		.op = STAG_POOL_INSERT,
		.flags = POOL_HAS_VALUE,
		.source = POOL_SOURCE_STAGED,
		.length = length,
		.source_address = r->facts.staging_address + node_slot_at(slot),
		.acknowledged = r->sequence,
	};
}

int raw_fetch(struct raw *r, uint64_t address, uint64_t length)
{
	struct ibv_sge sge = {(uintptr_t)r->memory, (uint32_t)length, r->memory_mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {address, r->facts.rkey}},
			   *bad;
	struct ibv_wc wc;
	int rc = length <= RAW_MEMORY ? -ibv_post_send(r->id->qp, &wr, &bad) : -EMSGSIZE;

	return rc == 0 ? await_wc(r, &wc) : rc;
}

int raw_read(struct raw *r, const struct stag_pool_ptr *ptr, void *to, size_t *length)
{
	enum pool_step step = POOL_MORE;
	struct pool_read read;
	const uint8_t *value;
	int rc;

	pool_read_start(&read, r->facts.address, r->facts.size, ptr, NULL, 0);
	while (step == POOL_MORE) {
		rc = raw_fetch(r, read.address, read.length);
		if (rc != 0)
			return rc;
		if (read.body)
			step = pool_read_feed(&read, NULL, r->memory);
		else
			step = pool_read_feed(&read, r->memory,
					      r->memory + sizeof(struct pool_object));
	}
	if (step != POOL_DONE)
		return step == POOL_GONE ? -ENOENT : -EAGAIN;
	value = r->memory + (read.body ? 0 : sizeof(struct pool_object)) + read.at;
	if (read.value_length > *length)
		return -EMSGSIZE;
	memcpy(to, value, read.value_length);
	*length = read.value_length;
	return 0;
}
