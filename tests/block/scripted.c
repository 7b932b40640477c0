// SPDX-License-Identifier: BSD-2-Clause
/*
 * scripted.c - see scripted.h.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include <rdma/rdma_verbs.h>

#include "scripted.h"
#include "base/bytes.h"
#include "stag/stagdv.h"

#define BODY	 8448u
#define RECEIVES 96u
#define LOOK_MS	 2
#define MEMORY	 ((2 + RECEIVES) * BODY + SCRIPTED_SIZE)

static bool is_verbs(const struct scripted *s)
{
	return s->kind != STAG_BLOCK_TCP;
}

static uint32_t head_of(const struct scripted *s)
{
	return s->kind == STAG_BLOCK_ISER ? ISER_LEN : 0;
}

static bool stops(struct scripted *s)
{
	return __atomic_load_n(&s->stop, __ATOMIC_ACQUIRE);
}

/* Ends the connection if a step failed: the initiator may disconnect at any time. */
static void require(struct scripted *s, bool ok)
{
	if (!ok)
		s->leaves = true;
}

/* ---- out ------------------------------------------------------------------------------- */

static uint8_t *place_for_data(struct scripted *s)
{
	return s->memory + (2 + RECEIVES) * BODY;
}

static void await_sent(struct scripted *s)
{
	struct ibv_wc wc;

	require(s, rdma_get_send_comp(s->id, &wc) == 1 && wc.status == IBV_WC_SUCCESS);
}

static void send_bytes(struct scripted *s, const void *bytes, uint32_t len, uint32_t closes)
{
	struct ibv_sge sge = {(uintptr_t)s->memory, len, is_verbs(s) ? s->mr->lkey : 0};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = closes ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND,
				       .send_flags = IBV_SEND_SIGNALED,
				       .invalidate_rkey = closes};

	if (s->leaves)
		return;
	if (!is_verbs(s)) {
		require(s, send(s->fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len);
		return;
	}
	memmove(s->memory, bytes, len);
	require(s, ibv_post_send(s->id->qp, &wr, &bad) == 0);
	if (!s->leaves)
		await_sent(s);
}

void scripted_say(struct scripted *s, const void *bytes, uint32_t len)
{
	send_bytes(s, bytes, len, 0);
}

void scripted_say_closing(struct scripted *s, const void *bytes, uint32_t len, uint32_t stag)
{
	send_bytes(s, bytes, len, stag);
}

static void send_pdu(struct scripted *s, struct pdu *p, const void *data, uint32_t len,
		     uint32_t closes)
{
	static const struct iser nothing;
	static __thread uint8_t body[BODY];
	uint32_t head = head_of(s);

	p->stat_sn = s->stat_sn;
	p->exp_cmd_sn = s->exp_cmd_sn;
	p->max_cmd_sn = s->exp_cmd_sn + 64;
	p->data_len = len;
	memset(body, 0, head + BHS_LEN + len + 4);
	if (head)
		iscsi_iser_encode(&nothing, body);
	iscsi_pdu_encode(p, body + head);
	if (len)
		memcpy(body + head + BHS_LEN, data, len);
	send_bytes(s, body, head + BHS_LEN + len + iscsi_pdu_pad(len), closes);
}

static void respond(struct scripted *s, const struct pdu *p, uint8_t status, uint32_t sense,
		    uint32_t missing, uint32_t closes)
{
	struct pdu r = {.opcode = SCSI_RESPONSE,
			.flags = PDU_FINAL | (missing ? RES_UNDER : 0),
			.status = status,
			.itt = p->itt,
			.residual = missing};
	uint8_t data[20] = {0, 18, 0x70};

	data[2 + 2] = (uint8_t)(sense >> 16);
	data[2 + 7] = 10;
	data[2 + 12] = (uint8_t)(sense >> 8);
	data[2 + 13] = (uint8_t)sense;
	send_pdu(s, &r, data, status == SCSI_CHECK_CONDITION ? sizeof(data) : 0, closes);
	s->stat_sn++;
}

void scripted_answer(struct scripted *s, const struct pdu *p, uint8_t status, uint32_t sense)
{
	respond(s, p, status, sense, 0, s->stag);
}

void scripted_close(struct scripted *s, const struct pdu *p, uint32_t stag)
{
	respond(s, p, SCSI_GOOD, 0, 0, stag);
}

void scripted_leave(struct scripted *s)
{
	struct pdu r = {.opcode = ASYNC_MESSAGE,
			.flags = PDU_FINAL,
			.itt = TAG_NONE,
			.event = ASYNC_LOGOUT};

	send_pdu(s, &r, NULL, 0, 0);
	s->stat_sn++;
}

void scripted_task(struct scripted *s, const struct pdu *p, enum task_outcome outcome)
{
	struct pdu r = {.opcode = TASK_RESPONSE,
			.flags = PDU_FINAL,
			.code = (uint8_t)outcome,
			.itt = p->itt};

	send_pdu(s, &r, NULL, 0, 0);
	s->stat_sn++;
}

static uint64_t base_of(const struct scripted *s, const struct pdu *p);

static void move(struct scripted *s, enum ibv_wr_opcode how, uint32_t stag, uint64_t at,
		 uint32_t len)
{
	struct ibv_sge sge = {(uintptr_t)place_for_data(s), len, s->mr->lkey};
	struct ibv_send_wr *bad, wr = {.sg_list = &sge,
				       .num_sge = 1,
				       .opcode = how,
				       .send_flags = IBV_SEND_SIGNALED,
				       .wr.rdma = {.remote_addr = at, .rkey = stag}};

	if (s->leaves)
		return;
	require(s, ibv_post_send(s->id->qp, &wr, &bad) == 0);
	if (!s->leaves)
		await_sent(s);
}

void scripted_poke(struct scripted *s, uint32_t stag, uint64_t at, uint32_t len)
{
	move(s, IBV_WR_RDMA_WRITE, stag, at, len);
}

/* Sends Data-In, cut to the expected length. */
static void send_data_in(struct scripted *s, const struct pdu *p, const void *bytes, uint32_t len)
{
	uint32_t n = len < p->expected ? len : p->expected;
	struct pdu d = {.opcode = DATA_IN, .flags = PDU_FINAL, .itt = p->itt, .ttt = TAG_NONE};

	if (is_verbs(s)) {
		memcpy(place_for_data(s), bytes, n);
		move(s, IBV_WR_RDMA_WRITE, s->stag, base_of(s, p), n);
	} else {
		send_pdu(s, &d, bytes, n, 0);
	}
	respond(s, p, SCSI_GOOD, 0, p->expected - n, s->stag);
}

/* ---- commands ------------------------------------------------------------------------------ */

static void inquire(struct scripted *s, const struct pdu *p)
{
	uint8_t d[64] = {0};
	uint32_t len = 36;

	if (p->cdb[1] & 1) {
		len = 64;
		d[1] = p->cdb[2];
		d[3] = 60;
		d[5] = p->cdb[2] == 0xb2 ? 0x80 : 8;
		put_be32(d + 20, 1024);
		put_be32(d + 24, 1);
	} else {
		memcpy(d + 8, "SCRIPTED", 8);
	}
	if (d[1] == 0x80)
		d[3] = 0;
	send_data_in(s, p, d, len);
}

static void tell_capacity(struct scripted *s, const struct pdu *p)
{
	uint8_t d[32] = {0};

	put_be64(d, s->size / 512 - 1);
	put_be32(d + 8, 512);
	send_data_in(s, p, d, sizeof(d));
}

void scripted_fetch(struct scripted *s, const struct pdu *p)
{
	if (!is_verbs(s) || s->data_len)
		return;
	s->data_len = p->expected < sizeof(s->data) ? p->expected : sizeof(s->data);
	move(s, IBV_WR_RDMA_READ, s->stag, base_of(s, p), s->data_len);
	memcpy(s->data, place_for_data(s), s->data_len);
}

void scripted_good(struct scripted *s, const struct pdu *p)
{
	uint64_t at = get_be64(p->cdb + 2) * 512 % SCRIPTED_SIZE;

	if (p->cdb[0] == 0x88) {
		send_data_in(s, p, s->bytes + at, (uint32_t)(SCRIPTED_SIZE - at));
		return;
	}
	if (p->flags & CMD_WRITE)
		scripted_fetch(s, p);
	if (p->cdb[0] == 0x8a)
		memcpy(s->bytes + at, s->data,
		       s->data_len < SCRIPTED_SIZE - at ? s->data_len : SCRIPTED_SIZE - at);
	scripted_answer(s, p, SCSI_GOOD, 0);
}

static void take_command(struct scripted *s, const struct pdu *p)
{
	if (!p->immediate)
		s->exp_cmd_sn = p->cmd_sn + 1;
	if (p->cdb[0] == 0x12)
		inquire(s, p);
	else if (p->cdb[0] == 0x1a)
		scripted_answer(s, p, SCSI_CHECK_CONDITION, 0x052400);
	else if (p->cdb[0] == 0x9e)
		tell_capacity(s, p);
	else {
		s->commands++;
		s->on_command(s, p);
	}
}

static void log_in(struct scripted *s, const struct pdu *p)
{
	char keys[64];
	bool operational = LOGIN_CSG(p->flags) == STAGE_OPERATIONAL;
	struct pdu r = {.opcode = LOGIN_RESPONSE, .flags = p->flags, .tsih = 1, .itt = p->itt};
	int len = 0;

	memcpy(r.isid, p->isid, sizeof(r.isid));
	s->exp_cmd_sn = p->cmd_sn;
	s->logins += operational;
	len += snprintf(keys, sizeof(keys), "RDMAExtensions=Yes") + 1;
	len += snprintf(keys + len, sizeof(keys) - (size_t)len, "TargetRecvDataSegmentLength=%u",
			s->target_recv ? s->target_recv : 512) +
	       1;
	send_pdu(s, &r, keys, operational && is_verbs(s) ? (uint32_t)len : 0, 0);
	s->stat_sn++;
}

static void log_out(struct scripted *s, const struct pdu *p)
{
	struct pdu r = {.opcode = LOGOUT_RESPONSE, .flags = PDU_FINAL, .itt = p->itt};

	send_pdu(s, &r, NULL, 0, 0);
	s->leaves = true;
}

static void handle_pdu(struct scripted *s, const struct pdu *p)
{
	switch (p->opcode) {
	case LOGIN_REQUEST:
		log_in(s, p);
		return;
	case SCSI_COMMAND:
		take_command(s, p);
		return;
	case TASK_REQUEST:
		s->on_task(s, p);
		return;
	case LOGOUT_REQUEST:
		log_out(s, p);
		return;
	}
}

/* ---- TCP -------------------------------------------------------------------------------------- */

static bool wait_for(struct scripted *s, int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	while (!stops(s))
		if (poll(&p, 1, LOOK_MS) > 0)
			return true;
	return false;
}

static bool get(struct scripted *s, void *to, uint32_t len)
{
	return len == 0 || recv(s->fd, to, len, MSG_WAITALL) == (ssize_t)len;
}

static bool hear_tcp(struct scripted *s, struct pdu *p)
{
	uint8_t bhs[BHS_LEN], pad[4];

	if (!wait_for(s, s->fd) || !get(s, bhs, BHS_LEN) || iscsi_pdu_decode(bhs, p) != 0 ||
	    p->data_len > sizeof(s->data))
		return false;
	s->data_len = p->data_len;
	return get(s, s->data, p->data_len) && get(s, pad, iscsi_pdu_pad(p->data_len));
}

static void serve_tcp(struct scripted *s)
{
	struct pdu p;
	int on = 1;

	while (wait_for(s, s->listener)) {
		s->fd = accept(s->listener, NULL, NULL);
		setsockopt(s->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		s->stat_sn = 1;
		s->leaves = false;
		while (!s->leaves && hear_tcp(s, &p))
			handle_pdu(s, &p);
		close(s->fd);
	}
}

static void listen_tcp(struct scripted *s)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(a);

	s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(s->listener, (struct sockaddr *)&a, len), 0);
	assert_int_equal(listen(s->listener, 16), 0);
	assert_int_equal(getsockname(s->listener, (struct sockaddr *)&a, &len), 0);
	s->port = ntohs(a.sin_port);
}

/* ---- verbs --------------------------------------------------------------------------------------- */

static struct iser lent; /* by the current command; there is one thread */

static uint64_t base_of(const struct scripted *s, const struct pdu *p)
{
	if (s->kind == STAG_BLOCK_ONE_SHOT)
		return 0;
	return p->flags & CMD_READ ? lent.read_base : lent.write_base;
}

static bool take_body(struct scripted *s, const uint8_t *body, const struct ibv_wc *wc,
		      struct pdu *p)
{
	s->stag = wc->wc_flags & STAGDV_WC_ADVERTISED ? wc->invalidated_rkey : 0;
	memset(&lent, 0, sizeof(lent));
	if (head_of(s) && iscsi_iser_decode(body, wc->byte_len, &lent) != 0)
		return false;
	if (iscsi_pdu_decode(body + head_of(s), p) != 0 || p->data_len > sizeof(s->data))
		return false;
	if (head_of(s))
		s->stag = lent.read ? lent.read_stag : lent.write ? lent.write_stag : 0;
	s->data_len = p->data_len;
	memcpy(s->data, body + head_of(s) + BHS_LEN, p->data_len);
	return true;
}

static bool repost(struct scripted *s, uint8_t *body)
{
	return rdma_post_recv(s->id, body, body, BODY, s->mr) == 0;
}

static bool hear_verbs(struct scripted *s, struct pdu *p)
{
	struct ibv_wc wc;
	uint8_t *body;

	while (ibv_poll_cq(s->id->recv_cq, 1, &wc) == 0) {
		struct pollfd fd = {.fd = s->id->recv_cq_channel->fd, .events = POLLIN};
		struct ibv_cq *cq;
		void *context;

		if (stops(s))
			return false;
		ibv_req_notify_cq(s->id->recv_cq, 0);
		if (poll(&fd, 1, 1) > 0 &&
		    ibv_get_cq_event(s->id->recv_cq_channel, &cq, &context) == 0)
			ibv_ack_cq_events(cq, 1);
	}
	body = (uint8_t *)(uintptr_t)wc.wr_id;
	return wc.status == IBV_WC_SUCCESS && take_body(s, body, &wc, p) && repost(s, body);
}

static bool accept_connection(struct scripted *s, struct rdma_cm_id *id)
{
	static const uint8_t hello[] = {0x80, 0, 0, 0, 'S', 't', 'B', '1'};
	struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC,
				      .cap = {.max_send_wr = 16,
					      .max_recv_wr = RECEIVES,
					      .max_send_sge = 1,
					      .max_recv_sge = 1}};
	struct rdma_conn_param param = {
		.private_data = hello,
		.private_data_len = s->kind == STAG_BLOCK_ONE_SHOT ? sizeof(hello) : 4,
		.responder_resources = 1,
		.initiator_depth = 1};

	s->id = id;
	if (rdma_create_qp(id, NULL, &qp) != 0)
		return false;
	s->mr = ibv_reg_mr(id->pd, s->memory, MEMORY, IBV_ACCESS_LOCAL_WRITE);
	for (unsigned int i = 0; i < RECEIVES; i++)
		if (!repost(s, s->memory + (2 + i) * BODY))
			return false;
	return rdma_accept(id, &param) == 0;
}

static void serve_guest(struct scripted *s, struct rdma_cm_id *id)
{
	struct pdu p;

	s->stat_sn = 1;
	s->leaves = !accept_connection(s, id);
	while (!s->leaves && hear_verbs(s, &p))
		handle_pdu(s, &p);
	rdma_disconnect(id);
	rdma_destroy_qp(id);
	ibv_dereg_mr(s->mr);
	rdma_destroy_id(id);
}

static void serve_verbs(struct scripted *s)
{
	struct rdma_cm_event *event;

	while (wait_for(s, s->channel->fd)) {
		struct rdma_cm_id *id;
		bool asks;

		if (rdma_get_cm_event(s->channel, &event) != 0)
			return;
		id = event->id;
		asks = event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
		rdma_ack_cm_event(event);
		if (asks)
			serve_guest(s, id);
	}
}

static void listen_verbs(struct scripted *s)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};

	s->memory = calloc(1, MEMORY);
	s->channel = rdma_create_event_channel();
	assert_non_null(s->channel);
	assert_int_equal(rdma_create_id(s->channel, &s->listening, NULL, RDMA_PS_TCP), 0);
	assert_int_equal(rdma_bind_addr(s->listening, (struct sockaddr *)&a), 0);
	assert_int_equal(rdma_listen(s->listening, 16), 0);
	s->port = ntohs(rdma_get_src_port(s->listening));
}

/* ---- both -------------------------------------------------------------------------------------------- */

static void *run_scripted(void *arg)
{
	struct scripted *s = arg;

	if (is_verbs(s))
		serve_verbs(s);
	else
		serve_tcp(s);
	return NULL;
}

void scripted_start(struct scripted *s, enum stag_block_transport kind)
{
	s->kind = kind;
	s->size = SCRIPTED_SIZE;
	s->stop = false;
	if (is_verbs(s))
		listen_verbs(s);
	else
		listen_tcp(s);
	assert_int_equal(pthread_create(&s->thread, NULL, run_scripted, s), 0);
}

void scripted_stop(struct scripted *s)
{
	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	pthread_join(s->thread, NULL);
	if (!is_verbs(s)) {
		close(s->listener);
		return;
	}
	rdma_destroy_id(s->listening);
	rdma_destroy_event_channel(s->channel);
	free(s->memory);
}

const char *scripted_url(const struct scripted *s)
{
	static const char *const schemes[] = {"stag", "iscsi", "iser", "stag"};
	static char url[128];

	snprintf(url, sizeof(url), "%s://127.0.0.1:%u/" SCRIPTED_NAME "/1", schemes[s->kind],
		 s->port);
	return url;
}
