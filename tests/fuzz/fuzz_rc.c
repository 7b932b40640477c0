// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_rc.c - a queue pair of roce0 on a stream, against a peer that sends arbitrary bytes behind the hello.
 *
 * The input is a script: the peer sends requests, responses, acknowledgements, NAKs, GO, RESUME, or raw bytes; the program
 * posts requests and receives and changes the queue pair's state; time passes; the stream ends and another one begins.
 * Numbers that a peer would know are given relative to the right ones.
 *
 * For any input: no byte of memory changes that neither the peer nor a posted buffer gives access to; completions come in
 * the order of posting, and each once, unless RESET has dropped them; and we send only whole FPDUs.
 */
#include "fuzz.h"

#include <errno.h>

#include "adapter/adapter.h"
#include "adapter/qp_rx.h"
#include "adapter/qp_tx.h"
#include "adapter/rc.h"
#include "frames.h"
#include "peer.h"
#include "steps.h"

#define ROOM	4096
#define MARGIN	512
#define BIG	65536 /* the region that is written: more than one segment */
#define IOVA	0x1000
#define FILL	0x5a
#define PATTERN 0xa5
#define POSTED	256 /* wr_ids */
#define RIGHTS                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* ---- memory ---- */

enum place { WRITABLE, READABLE, LOCAL, FOREIGN, PLACES };
enum { NEVER = PLACES, TAGS };

static const unsigned access_of[PLACES] = {
	[WRITABLE] = RIGHTS,
	[READABLE] = IBV_ACCESS_REMOTE_READ,
	[LOCAL] = IBV_ACCESS_LOCAL_WRITE,
	[FOREIGN] = RIGHTS,
};

static uint8_t memory[PLACES][MARGIN + BIG + MARGIN] __attribute__((aligned(64)));
static struct stag_mr *regions[PLACES];
static uint32_t tags[TAGS];
static struct stag_ctx *ctx;
static struct stag_pd *pd, *other_pd;
static struct stag_srq *srq;
static struct stag_cq *scq, *rcq;
static struct stag_qp *qp;
static struct qp_link link_;

static bool all_fill(const uint8_t *p, size_t len)
{
	return p[0] == FILL && !memcmp(p, p + 1, len - 1);
}

static void check_memory(void)
{
	for (int i = 0; i < PLACES; i++) {
		CHECK(all_fill(memory[i], MARGIN) && all_fill(memory[i] + MARGIN + BIG, MARGIN));
		CHECK(i == WRITABLE || i == LOCAL || all_fill(memory[i], sizeof(memory[i])));
	}
}

static void lend_memory(void)
{
	memset(memory, FILL, sizeof(memory));
	for (int i = 0; i < PLACES; i++) {
		CHECK(mr_reg(i == FOREIGN ? other_pd : pd, memory[i] + MARGIN, BIG, IOVA,
			     access_of[i], NULL, &regions[i]) == 0);
		tags[i] = regions[i]->ibv.rkey;
	}
	tags[NEVER] = 0xffffff00;
}

/* ---- the program ---- */

static uint64_t sends, sent, recvs; /* wr_ids: posted, completed */
static bool received[POSTED];

static void drain(void)
{
	struct ibv_wc wc;

	while (cq_poll(scq, 1, &wc) == 1) {
		CHECK(wc.wr_id == sent && sent < sends);
		sent++;
	}
	while (cq_poll(rcq, 1, &wc) == 1) {
		CHECK(wc.wr_id < recvs && !received[wc.wr_id]);
		received[wc.wr_id] = true;
	}
}

static struct ibv_sge some_memory(struct input *in)
{
	uint32_t off = (uint32_t)take(in, 2), len = (uint32_t)take(in, 2);

	return (struct ibv_sge){IOVA + off % BIG, len, tags[off & 1 ? LOCAL : WRITABLE]};
}

static void post_recv(struct input *in)
{
	struct ibv_sge sge = some_memory(in);
	struct ibv_recv_wr wr = {.wr_id = recvs, .sg_list = &sge, .num_sge = 1}, *bad;

	if (recvs == POSTED)
		return;
	if ((srq ? srq_post(srq, &wr, &bad) : qp_post_recv(qp, &wr, &bad)) == 0)
		recvs++;
}

static void post_send(struct input *in, uint8_t how)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_READ,	    IBV_WR_RDMA_WRITE,		 IBV_WR_SEND,
		IBV_WR_ATOMIC_CMP_AND_SWP,  IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_INV,
	};
	struct ibv_sge sge = some_memory(in);
	struct ibv_send_wr wr = {.wr_id = sends, .sg_list = &sge, .num_sge = 1}, *bad;

	wr.opcode = opcodes[how & 7];
	wr.send_flags = how & 8 ? IBV_SEND_FENCE : 0;
	wr.wr.rdma.remote_addr = IOVA;
	if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = IOVA;
	}
	if (qp_post_send(qp, &wr, &bad) == 0)
		sends++;
}

/* ---- states ---- */

static bool move(enum ibv_qp_state to, struct ibv_qp_attr *a, int mask)
{
	a->qp_state = to;
	return qp_modify(qp, a, IBV_QP_STATE | mask) == 0;
}

static void to_init(uint8_t how)
{
	struct ibv_qp_attr a = {.port_num = 1, .qp_access_flags = how & 1 ? 0 : RIGHTS};

	move(IBV_QPS_INIT, &a, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void to_rtr(uint8_t how)
{
	struct ibv_qp_attr a = {
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 5, /* of no queue pair: it never asks */
		.max_dest_rd_atomic = how >> 1 & 7,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1},
	};
	int mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (qp->ibv.qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	move(IBV_QPS_RTR, &a, mask);
}

static void to_rts(uint8_t how)
{
	struct ibv_qp_attr a = {
		.timeout = how & 1 ? 1 : 0,
		.retry_cnt = how >> 1 & 7,
		.rnr_retry = how >> 4 & 7,
		.max_rd_atomic = 1 + (how >> 5),
	};
	int mask = IBV_QP_SQ_PSN;

	if (qp->ibv.qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	move(IBV_QPS_RTS, &a, mask);
}

/* Requests and completions are dropped. */
static void reset(void)
{
	CHECK(move(IBV_QPS_RESET, &(struct ibv_qp_attr){0}, 0));
	sent = sends;
	recvs = 0;
	memset(received, 0, sizeof(received));
}

static void step_state(struct input *in)
{
	uint8_t how = (uint8_t)take(in, 1);

	switch (how & 7) {
	case 0:
		move(IBV_QPS_SQD, &(struct ibv_qp_attr){0}, 0);
		break;
	case 1:
		move(IBV_QPS_RTS, &(struct ibv_qp_attr){0}, 0);
		break;
	case 2:
		move(IBV_QPS_ERR, &(struct ibv_qp_attr){0}, 0);
		break;
	case 3:
		if (!srq) /* a dropped completion would hide a receive of the SRQ */
			reset();
		break;
	case 4:
		to_init(how >> 3);
		break;
	case 5:
		to_rtr(how >> 3);
		break;
	default:
		to_rts((uint8_t)take(in, 1));
		break;
	}
}

/* ---- the peer ---- */

static uint32_t next_msn[QN_COUNT];

static void begin_stream(uint8_t how)
{
	struct qp_link link = {
		.initiator = how & 1,
		.crc = how & 2,
		.mpa_rev = 2,
		.stag_peer = true,
		.caps = MPA_EXT_IMM | MPA_EXT_ATOMIC | MPA_EXT_BIG_FPDU | MPA_EXT_SEND_IMM |
			MPA_EXT_ONE_SHOT | MPA_EXT_FLUSH | MPA_EXT_ESCAPE | MPA_EXT_ACK,
		.one_shot = SHOT_OPCODES,
		.ird = qp->config.attr.max_dest_rd_atomic,
		.ord = 1,
	};

	if (!peer.closed || atomic_load(&qp->state) != QP_IDLE)
		return;
	frames_check(&link_);
	peer_open(-1);
	for (int qn = 0; qn < QN_COUNT; qn++)
		next_msn[qn] = 1;
	link_ = link;
	engine_lock();
	qp->rc->peer_ird = how >> 4;
	if (qp_attach(qp, &peer.stream, &link))
		stream_close(&peer.stream);
	engine_unlock();
}

static void replace_tag(uint8_t *p)
{
	uint32_t index = get_be32(p);

	if (index < TAGS)
		put_be32(p, tags[index]);
}

/* Small numbers become the tag of that index, and a message number of zero the expected one. */
static void put_in_what_a_peer_would_know(uint8_t *ulpdu, size_t len)
{
	uint8_t opcode = ulpdu[1] & 0xf;
	uint32_t qn;

	replace_tag(ulpdu + 2);
	if (ulpdu[0] & DDP_T)
		return;
	qn = get_be32(ulpdu + 6);
	if (qn < QN_COUNT && get_be32(ulpdu + 10) == 0) {
		put_be32(ulpdu + 10, next_msn[qn]);
		next_msn[qn] += ulpdu[0] & DDP_L ? 1 : 0;
	}
	if (opcode == RDMAP_READ_REQ && len >= DDP_UNTAGGED_LEN + RDMAP_READ_REQ_LEN) {
		replace_tag(ulpdu + DDP_UNTAGGED_LEN);
		replace_tag(ulpdu + DDP_UNTAGGED_LEN + 16);
	}
	if (opcode == RDMAP_ATOMIC_REQ && len >= DDP_UNTAGGED_LEN + RDMAP_ATOMIC_REQ_LEN)
		replace_tag(ulpdu + DDP_UNTAGGED_LEN + 8);
}

static void step_segment(struct input *in)
{
	static uint8_t ulpdu[65535];
	uint8_t how = (uint8_t)take(in, 1);
	size_t pattern = how & 2 ? take(in, 2) : 0;
	size_t literal = take(in, 1);

	if (literal > in->len)
		literal = in->len;
	memcpy(ulpdu, in->p, literal);
	in->p += literal;
	in->len -= literal;
	if (pattern > sizeof(ulpdu) - literal)
		pattern = sizeof(ulpdu) - literal;
	memset(ulpdu + literal, PATTERN, pattern);
	if (literal + pattern >= DDP_MAX_HDR)
		put_in_what_a_peer_would_know(ulpdu, literal + pattern);
	frames_send(&link_, ulpdu, literal + pattern, how & 1);
}

/* The response to our oldest read or atomic, as a peer would give it, in one segment. */
static void step_response(struct input *in)
{
	static uint8_t ulpdu[65535];
	uint32_t less = (uint32_t)take(in, 1) & 1;
	struct ddp_hdr h = {.last = true};
	struct wqe *w;
	size_t len;

	lock_acquire(&qp->tx_lock);
	w = qp->tx ? qp_tx_oldest_read(qp) : NULL;
	lock_release(&qp->tx_lock);
	if (!w)
		return;
	if (w->opcode == IBV_WR_RDMA_READ) {
		h.tagged = true;
		h.opcode = RDMAP_READ_RESP;
		h.stag = w->length ? w->sge[0].lkey : 0;
		h.to = w->length ? w->sge[0].addr + w->rx_off : 0;
		len = ddp_encode(&h, ulpdu);
		if (w->length - w->rx_off > 60000)
			return;
		memset(ulpdu + len, PATTERN, w->length - w->rx_off);
		len += w->length - w->rx_off;
	} else {
		struct rdmap_atomic_resp r = {.id = (uint32_t)(w - qp->sq.wqe), .value = 7};

		h.opcode = RDMAP_ATOMIC_RESP;
		h.qn = QN_ATOMIC;
		h.msn = next_msn[QN_ATOMIC]++;
		len = ddp_encode(&h, ulpdu);
		rdmap_put_atomic_resp(ulpdu + len, &r);
		len += RDMAP_ATOMIC_RESP_LEN;
	}
	frames_send(&link_, ulpdu, len - (len ? less : 0), false);
}

/* A control message, about a request near the right one. */
static void step_word(struct input *in)
{
	static const enum rdmap_subtype kinds[] = {RDMAP_SUB_ACK, RDMAP_SUB_NAK, RDMAP_SUB_GO,
						   RDMAP_SUB_RESUME};
	uint8_t kind = (uint8_t)take(in, 1), arg = (uint8_t)take(in, 1);
	int8_t off = (int8_t)take(in, 1);
	const struct rc *rc = qp->rc;
	uint32_t right[] = {rc->framed, rc->acked + 1, rc->rnr.number, rc->executed + 1};
	struct ddp_hdr h = {.last = true, .opcode = RDMAP_ESCAPE, .qn = QN_TERMINATE};
	uint8_t ulpdu[DDP_MAX_HDR];

	h.msn = right[kind & 3] + (uint32_t)off;
	h.ulp = rdmap_escape_ulp(kinds[kind & 3]) | rdmap_nak_arg(kind >> 2 & 7, arg);
	frames_send(&link_, ulpdu, ddp_encode(&h, ulpdu), false);
}

static void step_raw(struct input *in)
{
	size_t len = take(in, 1);

	if (len > in->len)
		len = in->len;
	peer_sends(in->p, len);
	in->p += len;
	in->len -= len;
}

/* ---- the script ---- */

static void run(void)
{
	while (qp_progress(qp))
		;
	lock_acquire(&qp->tx_lock);
	qp_tx_run(qp);
	lock_release(&qp->tx_lock);
	steps_run();
	drain();
}

static void step(struct input *in)
{
	uint8_t what = (uint8_t)take(in, 1);

	switch (what & 15) {
	case 0:
	case 1:
	case 2:
		step_segment(in);
		break;
	case 3:
		step_raw(in);
		break;
	case 4:
	case 5:
		step_word(in);
		break;
	case 6:
		step_response(in);
		break;
	case 7:
		post_recv(in);
		break;
	case 8:
	case 9:
		post_send(in, (uint8_t)take(in, 1));
		break;
	case 10:
		step_state(in);
		break;
	case 11:
		steps_pass_time();
		break;
	case 12:
		peer.full ^= true;
		break;
	case 13:
		peer.piece = 1 + take(in, 2);
		break;
	case 14:
		peer.end = what & 16 ? 0 : -ECONNRESET;
		break;
	default:
		begin_stream((uint8_t)take(in, 1));
		break;
	}
	if (!(what & 0x80)) /* otherwise it comes together with the next */
		run();
}

static void start(void)
{
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD};
	struct stag_qp *first;
	struct stag_cq *cq;

	if (ctx)
		return;
	CHECK(ctx_create(FACE_ROCE, &ctx) == 0);
	CHECK(pd_alloc(ctx, &pd) == 0 && pd_alloc(ctx, &other_pd) == 0);
	CHECK(cq_create(ctx, 16, NULL, NULL, false, &cq) == 0);
	init.send_cq = init.recv_cq = &cq->ibv;
	init.pd = &pd->ibv;
	CHECK(qp_create(ctx, &init, &first) == 0); /* the port stays open */
	steps_keep_watches();
}

static void make_qp(uint8_t how)
{
	struct ibv_srq_init_attr s = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_qp_init_attr_ex init = {
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = how & 1 ? IBV_QPT_UC : IBV_QPT_RC,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = &pd->ibv,
	};

	CHECK(cq_create(ctx, 1024, NULL, NULL, false, &scq) == 0);
	CHECK(cq_create(ctx, 1024, NULL, NULL, false, &rcq) == 0);
	srq = NULL;
	if (how & 2)
		CHECK(srq_create(ctx, pd, &s.attr, NULL, &srq) == 0);
	init.send_cq = &scq->ibv;
	init.recv_cq = &rcq->ibv;
	init.srq = srq ? &srq->ibv : NULL;
	CHECK(qp_create(ctx, &init, &qp) == 0);
	to_init(how >> 2 & 1);
	to_rtr(how >> 3 & 15);
	if (!(how & 0x80))
		to_rts(0x76); /* no time, 3 retries; RNR for ever; 4 reads */
}

/* The queue pair's own receives are complete; those of the SRQ are not. */
static void end(void)
{
	run();
	if (qp->ibv.state != IBV_QPS_RESET)
		CHECK(move(IBV_QPS_ERR, &(struct ibv_qp_attr){0}, 0));
	steps_run();
	drain();
	CHECK(qp->ibv.state == IBV_QPS_RESET || sent == sends);
	for (uint64_t i = 0; i < recvs && !srq && qp->ibv.state == IBV_QPS_ERR; i++)
		CHECK(received[i]);
	CHECK(qp_destroy(qp) == 0);
	CHECK(peer.closed);
	if (srq)
		CHECK(srq_destroy(srq) == 0);
	steps_run();
	steps_check_idle();
	CHECK(cq_destroy(scq) == 0 && cq_destroy(rcq) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	steps_begin();
	start();
	lend_memory();
	sends = sent = recvs = 0;
	memset(received, 0, sizeof(received));
	peer.out_len = 0;
	make_qp((uint8_t)take(&in, 1));
	begin_stream((uint8_t)take(&in, 1));
	while (in.len)
		step(&in);
	frames_check(&link_);
	end();
	for (int i = 0; i < PLACES; i++)
		CHECK(mr_dereg(regions[i]) == 0);
	check_memory();
	return 0;
}
