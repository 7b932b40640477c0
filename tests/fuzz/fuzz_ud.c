// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_ud.c - queue pairs of roce0 that take datagrams, against any bytes at their sockets.
 *
 * The input is a script: datagrams that are right but for one field, or any bytes, come by UDP, through the socket on this
 * host, and for a multicast group; the program posts receives, some without memory behind them; states and Q_Keys change.
 *
 * For any input: no byte changes but those of receives that completed, which have the datagram's length and their own room,
 * and complete once, in order; and nothing is left.
 */
#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "adapter/adapter.h"
#include "steps.h"
#include "wire/datagram.h"

#define QPS	3 /* the last one has an SRQ */
#define RECVS	16
#define LEN	(GRH_LEN + DATAGRAM_PAYLOAD)
#define QKEY	0x11111111
#define FILL	0x5a
#define PATTERN 0xa5
#define POSTED	64

static struct stag_ctx *ctx;
static struct stag_pd *pd;
static struct stag_cq *cq;
static struct stag_srq *srq;
static struct stag_qp *qps[QPS];
static struct stag_mr *mr;
static uint8_t memory[POSTED][LEN + 64]; /* a receive each, and bytes that must not change */
static uint32_t length[POSTED];		 /* of the receive that has it */
static bool is_member[QPS];
static unsigned posted;
static int udp = -1, near = -1;
static union ibv_gid gid, group;

/* ---- the program ---- */

static void post_recv(struct input *in, int q)
{
	uint8_t how = (uint8_t)take(in, 1);
	struct ibv_sge sge = {(uintptr_t)memory[posted], how & 1 ? LEN : how * 16u, mr->ibv.lkey};
	struct ibv_recv_wr wr = {.wr_id = posted, .sg_list = &sge, .num_sge = 1}, *bad;

	if (posted == POSTED - 1)
		return;
	if (how == 255)
		sge.lkey ^= 0x100; /* memory that is not ours */
	length[posted] = how == 255 ? 0 : sge.length;
	if (!(qps[q]->srq ? srq_post(qps[q]->srq, &wr, &bad) : qp_post_recv(qps[q], &wr, &bad)))
		posted++;
}

static bool all_fill(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == FILL && !memcmp(p, p + 1, len - 1));
}

static void drain(void)
{
	static uint8_t seen[POSTED];
	struct ibv_wc wc;

	if (!posted)
		memset(seen, 0, sizeof(seen));
	while (cq_poll(cq, 1, &wc) == 1) {
		CHECK(wc.wr_id < posted);
		if (wc.status != IBV_WC_SUCCESS)
			continue;
		CHECK(wc.byte_len >= GRH_LEN && wc.byte_len <= length[wc.wr_id]);
		CHECK(wc.wc_flags & IBV_WC_GRH);
		CHECK(all_fill(memory[wc.wr_id] + wc.byte_len, sizeof(memory[0]) - wc.byte_len));
		length[wc.wr_id] = 0; /* once */
	}
}

static void move(struct stag_qp *qp, enum ibv_qp_state to, uint32_t qkey)
{
	struct ibv_qp_attr a = {.qp_state = to, .port_num = 1, .qkey = qkey};
	int mask = to == IBV_QPS_INIT ? IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY
		   : to == IBV_QPS_RTS && qp->ibv.state == IBV_QPS_RTR ? IBV_QP_SQ_PSN
		   : to == IBV_QPS_RTS				       ? IBV_QP_QKEY
								       : 0;

	qp_modify(qp, &a, IBV_QP_STATE | mask);
}

/* ---- the senders ---- */

static void to_port(uint16_t port, const uint8_t *p, size_t len)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr = {htonl(INADDR_LOOPBACK)}};

	(void)!sendto(udp, p, len, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
}

static void to_qp(const struct stag_qp *qp, const uint8_t *p, size_t len)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	int n = snprintf(to.sun_path + 1, sizeof(to.sun_path) - 1, "stag-ud-%06x", qp->ibv.qp_num);

	(void)!sendto(near, p, len, MSG_DONTWAIT, (struct sockaddr *)&to,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n));
}

static void send_it(uint8_t how, const struct stag_qp *qp, const uint8_t *p, size_t len)
{
	if (how & 1)
		to_qp(qp, p, len);
	else
		to_port(how & 8 ? MCAST_PORT : (uint16_t)(qps[0]->ibv.qp_num >> 8), p, len);
}

static void say_datagram(struct input *in, const struct stag_qp *qp)
{
	static uint8_t train[3 * DATAGRAM_MAX];
	uint8_t how = (uint8_t)take(in, 1), field = (uint8_t)take(in, 1);
	uint32_t by = (uint32_t)take(in, 4);
	struct datagram d = {
		.flags = how >> 1 & 3,
		.src_qpn = 0x800102,
		.dst_qpn = how & 8 ? DATAGRAM_MULTICAST : qp->ibv.qp_num,
		.qkey = QKEY,
		.length = (uint32_t)take(in, 2) % (DATAGRAM_PAYLOAD + 1),
	};
	size_t len = 0;

	memcpy(d.sgid, gid.raw, 16);
	memcpy(d.dgid, how & 8 ? group.raw : gid.raw, 16);
	for (int i = 0; i < 1 + (how >> 6 & 1) * 2; i++) { /* or a train */
		uint8_t *p = train + len;

		datagram_encode(&d, p);
		p[4 + field % 60] ^= field ? by : 0;
		memset(p + DATAGRAM_HDR, PATTERN, d.length);
		if (how & 16)
			datagram_seal(p, d.length);
		len += DATAGRAM_HDR + d.length;
	}
	if (how & 32)
		len -= by % (len + 1);
	send_it(how, qp, train, len);
}

static void say_bytes(struct input *in, const struct stag_qp *qp)
{
	uint8_t how = (uint8_t)take(in, 1);
	size_t len = take(in, 1);

	if (len > in->len)
		len = in->len;
	send_it(how, qp, in->p, len);
	in->p += len;
	in->len -= len;
}

/* ---- the script ---- */

static void run(void)
{
	steps_ready();
	steps_run();
	for (int i = 0; i < QPS; i++)
		qp_progress(qps[i]);
	steps_run();
	drain();
}

static void step(struct input *in)
{
	uint8_t what = (uint8_t)take(in, 1);
	int q = (what >> 4 & 7) % QPS;

	switch (what & 7) {
	case 0:
	case 1:
		post_recv(in, q);
		break;
	case 2:
	case 3:
	case 4:
		say_datagram(in, qps[q]);
		break;
	case 5:
		say_bytes(in, qps[q]);
		break;
	case 6:
		steps_pass_time();
		break;
	case 7:
		move(qps[q], (enum ibv_qp_state)(take(in, 1) % 6), QKEY ^ (uint32_t)take(in, 1));
		break;
	}
	if (!(what & 0x80))
		run();
}

static struct ibv_qp_init_attr_ex attributes(bool with_srq)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = &cq->ibv,
		.recv_cq = &cq->ibv,
		.srq = with_srq ? &srq->ibv : NULL,
		.cap = {.max_recv_wr = RECVS, .max_recv_sge = 1},
		.qp_type = IBV_QPT_UD,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = &pd->ibv,
	};
}

static void start(void)
{
	struct ibv_qp_init_attr_ex init;
	struct stag_qp *first;
	struct gid_entry e;

	if (ctx)
		return;
	CHECK(ctx_create(FACE_ROCE, &ctx) == 0 && pd_alloc(ctx, &pd) == 0);
	CHECK(cq_create(ctx, 1024, NULL, NULL, false, &cq) == 0);
	CHECK(mr_reg(pd, memory, sizeof(memory), (uintptr_t)memory, IBV_ACCESS_LOCAL_WRITE, NULL,
		     &mr) == 0);
	init = attributes(false);
	init.qp_type = IBV_QPT_RC;
	CHECK(qp_create(ctx, &init, &first) == 0); /* the port stays open */
	steps_keep_watches();
	CHECK(gid_get(0, &e));
	gid = e.gid;
	group = (union ibv_gid){.raw = {[10] = 0xff, 0xff, 239, 1, 2, 3}};
	udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	near = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	CHECK(udp >= 0 && near >= 0);
}

static void make_qps(void)
{
	struct ibv_srq_init_attr s = {.attr = {.max_wr = RECVS, .max_sge = 1}};

	CHECK(srq_create(ctx, pd, &s.attr, NULL, &srq) == 0);
	for (int i = 0; i < QPS; i++) {
		struct ibv_qp_init_attr_ex init = attributes(i == QPS - 1);

		CHECK(qp_create(ctx, &init, &qps[i]) == 0);
		move(qps[i], IBV_QPS_INIT, QKEY);
		move(qps[i], IBV_QPS_RTR, 0);
		if (i)
			move(qps[i], IBV_QPS_RTS, 0);
	}
	for (int i = 1; i < QPS; i++)
		is_member[i] = mcast_attach(qps[i], &group) == 0; /* not without a network */
}

static void end(void)
{
	run();
	for (int i = 0; i < QPS; i++) {
		if (qps[i]->ibv.state != IBV_QPS_RESET)
			move(qps[i], IBV_QPS_ERR, 0);
		steps_run();
		drain();
		if (is_member[i])
			CHECK(mcast_detach(qps[i], &group) == 0);
		CHECK(qp_destroy(qps[i]) == 0);
	}
	CHECK(srq_destroy(srq) == 0);
	steps_run();
	steps_check_idle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	steps_begin();
	start();
	posted = 0;
	drain();
	memset(memory, FILL, sizeof(memory));
	memset(length, 0, sizeof(length));
	make_qps();
	for (int n = 0; in.len && n < 200; n++)
		step(&in);
	end();
	CHECK(all_fill(memory[POSTED - 1], sizeof(memory[0])));
	return 0;
}
