// SPDX-License-Identifier: BSD-2-Clause
/* ud_story.c - helpers of the tests of datagram ids: see ud_story.h. */
#include "ud_story.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "await.h"

#define GRH 40

struct rdma_cm_id *ud_id(struct rdma_event_channel *ch)
{
	struct rdma_cm_id *id;

	assert_int_equal(rdma_create_id(ch, &id, NULL, RDMA_PS_UDP), 0);
	assert_int_equal(id->qp_type, IBV_QPT_UD);
	return id;
}

struct rdma_cm_id *ud_bound(struct rdma_event_channel *ch, const char *host)
{
	struct sockaddr_storage a = address(host, 0);
	struct rdma_cm_id *id = ud_id(ch);

	assert_int_equal(rdma_bind_addr(id, (struct sockaddr *)&a), 0);
	return id;
}

struct rdma_cm_id *ud_listening(struct rdma_event_channel *ch, const char *host)
{
	struct rdma_cm_id *id = ud_bound(ch, host);

	assert_int_equal(rdma_listen(id, 0), 0);
	return id;
}

struct rdma_cm_id *ud_resolved(struct rdma_event_channel *ch, const char *host, uint16_t port)
{
	struct sockaddr_storage a = address(host, port);
	struct rdma_cm_id *id = ud_id(ch);

	assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&a, 1000), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ADDR_RESOLVED), 0);
	assert_int_equal(rdma_resolve_route(id, 1000), 0);
	assert_int_equal(expect_status(ch, RDMA_CM_EVENT_ROUTE_RESOLVED), 0);
	return id;
}

void ud_give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr attr = {
		.qp_type = IBV_QPT_UD,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.sq_sig_all = 1};

	assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
}

/* ---- datagrams ---- */

void mail_open(struct mail *m, struct rdma_cm_id *id)
{
	memset(m, 0, sizeof(*m));
	m->id = id;
	m->mr = ibv_reg_mr(id->pd, m->buf, ROOM, IBV_ACCESS_LOCAL_WRITE);
	assert_non_null(m->mr);
}

void mail_close(struct mail *m)
{
	id_gone(m->id);
	assert_int_equal(ibv_dereg_mr(m->mr), 0);
}

void mail_expect(struct mail *m)
{
	struct ibv_sge sge = {(uintptr_t)m->buf, ROOM / 2, m->mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(m->id->qp, &wr, &bad), 0);
}

static struct ibv_wc next(struct ibv_cq *cq)
{
	struct ibv_wc wc;

	await(ibv_poll_cq(cq, 1, &wc) == 1);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	return wc;
}

void mail_send(struct mail *m, const struct rdma_ud_param *to, const char *text)
{
	struct ibv_ah_attr attr = to->ah_attr;
	struct ibv_ah *ah = ibv_create_ah(m->id->pd, &attr);
	struct ibv_sge sge = {(uintptr_t)m->buf + ROOM / 2, (uint32_t)strlen(text) + 1,
			      m->mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .wr.ud = {.ah = ah,
					   .remote_qpn = to->qp_num,
					   .remote_qkey = to->qkey}},
			   *bad;

	assert_non_null(ah);
	strcpy((char *)m->buf + ROOM / 2, text);
	assert_int_equal(ibv_post_send(m->id->qp, &wr, &bad), 0);
	next(m->id->send_cq);
	assert_int_equal(ibv_destroy_ah(ah), 0);
}

void mail_read(struct mail *m, const char *text)
{
	struct ibv_wc wc = next(m->id->recv_cq);

	assert_int_equal(wc.byte_len, GRH + strlen(text) + 1);
	assert_string_equal(m->buf + GRH, text);
}

/* ---- bare sockets ---- */

int udp_open(const char *host, uint16_t *port)
{
	struct sockaddr_storage a = address(host, 0);
	struct timeval patience = {.tv_sec = PATIENCE_MS / 1000};
	socklen_t len = sizeof(a);
	int fd = socket(a.ss_family, SOCK_DGRAM, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, len), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	*port = ntohs(((struct sockaddr_in *)&a)->sin_port);
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	return fd;
}

void udp_send(int fd, const char *host, uint16_t port, const struct lookup_msg *m)
{
	struct sockaddr_storage a = address(host, port);
	uint8_t buf[LOOKUP_LEN];

	lookup_encode(m, buf);
	assert_int_equal(sendto(fd, buf, sizeof(buf), 0, (struct sockaddr *)&a, sizeof(a)),
			 sizeof(buf));
}

struct lookup_msg udp_recv(int fd, uint16_t *port)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);
	struct lookup_msg m = {0};
	uint8_t buf[LOOKUP_LEN + 1];
	ssize_t n =
		TEMP_FAILURE_RETRY(recvfrom(fd, buf, sizeof(buf), 0, (struct sockaddr *)&a, &len));

	assert_int_equal(n, LOOKUP_LEN);
	assert_int_equal(lookup_decode(buf, LOOKUP_LEN, &m), 0);
	if (port)
		*port = ntohs(((struct sockaddr_in *)&a)->sin_port);
	return m;
}

struct lookup_msg udp_ask(int fd, const char *host, uint16_t port, uint64_t id)
{
	struct lookup_msg ask = {.kind = LOOKUP_ASK, .id = id}, proof;

	udp_send(fd, host, port, &ask);
	proof = udp_recv(fd, NULL);
	assert_int_equal(proof.kind, LOOKUP_PROVE);
	assert_int_equal(proof.id, id);
	ask.cookie = proof.cookie;
	udp_send(fd, host, port, &ask);
	return ask;
}
