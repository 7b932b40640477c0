// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_rx.c - a connected queue pair against a peer that sends arbitrary bytes.
 *
 * The input is a script. It sets the connection up, and continues in steps: the
 * peer sends a segment or raw bytes, the program posts something, bytes arrive
 * in pieces of any size. Tags and message numbers that a peer would have to
 * guess are given by their index, so that the fuzzer gets past the first check.
 *
 * For any input: no byte in memory or on storage changes that neither the peer
 * nor a posted buffer gives access to, each work request completes once, and we
 * send only whole FPDUs, and nothing after a Terminate.
 */
#include "fuzz.h"

#include <errno.h>

#include "adapter/adapter.h"
#include "disk.h"
#include "frames.h"
#include "peer.h"
#include "steps.h"

#define ROOM	   4096	       /* bytes in a region */
#define BIG_ROOM   (3 * 65536) /* bytes in one that holds several of the largest segments */
#define MARGIN	   512	       /* bytes around each that must not change */
#define IOVA	   0x1000
#define IOVA_HIGH  (UINT64_MAX - ROOM + 1) /* ends at the end of the address space */
#define MAX_POSTED 64
#define FILL	   0x5a
#define PATTERN	   0xa5

/* ---- memory: regions, and bytes around them ---------------------------- */

enum place { WRITABLE, READABLE, ATOMIC, LOCAL, FOREIGN, HIGH, PIECED, PLACES };

static const struct {
	unsigned access;
	bool may_change;
	size_t room;
	uint64_t iova;
} places[PLACES] = {
	[WRITABLE] = {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, true, BIG_ROOM, IOVA},
	[READABLE] = {IBV_ACCESS_REMOTE_READ, false, ROOM, IOVA},
	[ATOMIC] = {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC, true, ROOM, IOVA},
	[LOCAL] = {IBV_ACCESS_LOCAL_WRITE, true, BIG_ROOM, IOVA},
	[FOREIGN] = {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			     IBV_ACCESS_REMOTE_ATOMIC,
		     false, ROOM, IOVA},
	[HIGH] = {IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, true, ROOM, IOVA_HIGH},
	[PIECED] = {IBV_ACCESS_LOCAL_WRITE, true, ROOM, IOVA},
};

/* The places, one after the other, with a margin before each and after the last. */
static uint8_t memory[2 * BIG_ROOM + (PLACES - 2) * ROOM + (PLACES + 1) * MARGIN]
	__attribute__((aligned(64)));

static uint8_t *bytes_of(enum place place)
{
	uint8_t *p = memory + MARGIN;

	for (int i = 0; i < (int)place; i++)
		p += places[i].room + MARGIN;
	return p;
}

/* The pieces that a fast registration makes of PIECED; bytes between them must not change. */
static const struct {
	unsigned off, len;
} pieces[] = {{0, 100}, {200, 3}, {1000, 2000}};

#define N_PIECES (sizeof(pieces) / sizeof(pieces[0]))

static struct stag_mr *regions[PLACES], *fast, *stored;
static bool has_disk;

#define STORED_AT   4096 /* the region on storage, and bytes around it that must not change */
#define STORED_ROOM (DISK_SIZE - 2 * STORED_AT)

enum { STALE = PLACES, NEVER, FAST, STORED, SHOT, TAGS };
static uint32_t tags[TAGS]; /* of the places, and these */

static bool all_fill(const uint8_t *p, size_t len)
{
	return len == 0 || (p[0] == FILL && !memcmp(p, p + 1, len - 1));
}

static void check_gaps(void)
{
	const uint8_t *p = bytes_of(PIECED);
	size_t off = 0;

	for (size_t i = 0; i < N_PIECES; i++) {
		CHECK(all_fill(p + off, pieces[i].off - off));
		off = pieces[i].off + pieces[i].len;
	}
	CHECK(all_fill(p + off, ROOM - off));
}

static void check_memory(void)
{
	check_gaps();
	CHECK(!has_disk || (all_fill(disk.bytes, STORED_AT) &&
			    all_fill(disk.bytes + STORED_AT + STORED_ROOM, STORED_AT)));
	for (int i = 0; i < PLACES; i++) {
		const uint8_t *p = bytes_of(i);

		CHECK(all_fill(p - MARGIN, MARGIN));
		CHECK(all_fill(p + places[i].room, MARGIN));
		CHECK(places[i].may_change || all_fill(p, places[i].room));
	}
}

/* ---- the peer ---------------------------------------------------- */

static uint32_t next_msn[QN_COUNT];

static uint8_t open_stream(struct input *in)
{
	static const unsigned segments[] = {1460, 536, 65483, 0};
	uint8_t how = (uint8_t)take(in, 1);

	peer_open(-1);
	peer.emss = segments[how >> 5 & 3];
	if (how & 0x80)
		peer.piece = 1 + (how & 0x1f);
	for (int qn = 0; qn < QN_COUNT; qn++)
		next_msn[qn] = 1;
	return how;
}

static void replace_tag(uint8_t *p)
{
	uint32_t index = get_be32(p);

	if (index < TAGS)
		put_be32(p, tags[index]);
}

/*
 * Replaces small numbers by the tag of that index, and a message number of zero by the expected
 * one.
 */
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
	if (opcode == RDMAP_ESCAPE && len >= DDP_UNTAGGED_LEN + RDMAP_FLUSH_REQ_LEN)
		replace_tag(ulpdu + DDP_UNTAGGED_LEN + 4);
}

/* Step: sends a header, some bytes of the input, and a pattern. */
static void step_segment(struct input *in, const struct qp_link *link)
{
	static uint8_t ulpdu[65535];
	uint8_t how = (uint8_t)take(in, 1);
	size_t pattern = how & 2 ? take(in, 2) : 0;
	size_t literal = take(in, 1);
	size_t len;

	if (literal > in->len)
		literal = in->len;
	memcpy(ulpdu, in->p, literal);
	in->p += literal;
	in->len -= literal;
	if (pattern > sizeof(ulpdu) - literal)
		pattern = sizeof(ulpdu) - literal;
	memset(ulpdu + literal, PATTERN, pattern);
	len = literal + pattern;
	if (len >= DDP_MAX_HDR)
		put_in_what_a_peer_would_know(ulpdu, len);
	frames_send(link, ulpdu, len, how & 1);
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

/* ---- the program -------------------------------------------------- */

static struct stag_ctx *ctx;
static struct stag_pd *pd, *other_pd;
static struct stag_cq *cq;
static unsigned posted;
static bool completed[MAX_POSTED];

/* Draws local memory of a plain region or of the one in pieces, not always within its bounds. */
static struct ibv_sge some_memory(struct input *in)
{
	uint32_t off = (uint32_t)take(in, 2), len = (uint32_t)take(in, 2);

	return (struct ibv_sge){.addr = IOVA + off % ROOM,
				.length = len & 0x8000 ? (len & 0x7fff) * 8 : len,
				.lkey = tags[off & 0x8000 ? FAST : LOCAL]};
}

static void step_post_recv(struct input *in, struct stag_qp *qp)
{
	struct ibv_sge sge = some_memory(in);
	struct ibv_recv_wr wr = {.wr_id = posted, .sg_list = &sge, .num_sge = 1}, *bad;

	if (posted < MAX_POSTED && qp_post_recv(qp, &wr, &bad) == 0)
		posted++;
}

static void step_post_verb(struct input *in, struct stag_qp *qp, uint8_t how)
{
	static const enum ibv_wr_opcode opcodes[] = {
		IBV_WR_RDMA_READ,	    IBV_WR_RDMA_WRITE,		 IBV_WR_SEND,
		IBV_WR_ATOMIC_CMP_AND_SWP,  IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_INV,
	};
	struct ibv_sge sge = some_memory(in);
	struct ibv_send_wr wr = {.wr_id = posted, .sg_list = &sge, .num_sge = 1}, *bad;

	wr.opcode = opcodes[how & 7];
	wr.send_flags = how & 8 ? IBV_SEND_FENCE : 0;
	if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		sge.length = 8;
		wr.wr.atomic.remote_addr = IOVA;
	} else {
		wr.wr.rdma.remote_addr = IOVA;
	}
	if (posted < MAX_POSTED && qp_post_send(qp, &wr, &bad) == 0)
		posted++;
}

/*
 * A send that advertises the rest of the pieces' memory in the same way; the peer knows the last
 * tag.
 */
static void post_advertise(struct stag_qp *qp)
{
	struct ibv_sge sge[N_PIECES];
	struct stagdv_advertise wr = {
		.wr_id = posted,
		.memory = sge,
		.num_memory = N_PIECES,
		.access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
		.iova = IOVA,
		.stag_at = -1,
	};

	for (size_t i = 0; i < N_PIECES; i++)
		sge[i] = (struct ibv_sge){IOVA + pieces[i].off, pieces[i].len, tags[PIECED]};
	if (posted < MAX_POSTED && qp_post_advertise(qp, &wr, &tags[SHOT]) == 0)
		posted++;
}

static void post_close(struct input *in, struct stag_qp *qp)
{
	struct stagdv_close wr = {.wr_id = posted, .stag = tags[take(in, 1) % TAGS]};

	if (posted < MAX_POSTED && qp_post_close(qp, &wr) == 0)
		posted++;
}

static void step_post_send(struct input *in, struct stag_qp *qp)
{
	uint8_t how = (uint8_t)take(in, 1);

	if (!(how & 0x40))
		step_post_verb(in, qp, how);
	else if (how & 0x20)
		post_close(in, qp);
	else
		post_advertise(qp);
}

static void post_fast_reg(struct stag_qp *qp)
{
	struct ibv_sge sge[N_PIECES];
	struct stagdv_fast_reg wr = {
		.wr_id = posted,
		.mr = &fast->ibv,
		.sg_list = sge,
		.num_sge = N_PIECES,
		.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
			  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
		.iova = IOVA,
		.key = tags[FAST],
	};

	for (size_t i = 0; i < N_PIECES; i++)
		sge[i] = (struct ibv_sge){IOVA + pieces[i].off, pieces[i].len, tags[PIECED]};
	CHECK(qp_post_fast_reg(qp, &wr) == 0);
	posted++;
}

static void drain(void)
{
	struct ibv_wc wc;

	while (cq_poll(cq, 1, &wc) == 1) {
		CHECK(wc.wr_id < posted);
		CHECK(!completed[wc.wr_id]);
		completed[wc.wr_id] = true;
	}
}

/* ---- the script ------------------------------------------------------------------ */

static void start(void)
{
	if (ctx)
		return;
	CHECK(ctx_create(FACE_IWARP, &ctx) == 0);
	CHECK(pd_alloc(ctx, &pd) == 0);
	CHECK(pd_alloc(ctx, &other_pd) == 0);
	has_disk = disk_open();
}

static uint32_t lend_storage(void)
{
	struct stagdv_store_attr attr = {
		.offset = STORED_AT,
		.length = STORED_ROOM,
		.access =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};

	if (!has_disk)
		return 0xffffff00;
	memset(disk.bytes, FILL, sizeof(disk.bytes));
	CHECK(store_mr_reg(pd, &disk.medium, &attr, &stored) == 0);
	return stored->ibv.rkey;
}

static void lend_memory(void)
{
	memset(memory, FILL, sizeof(memory));
	for (int i = 0; i < PLACES; i++) {
		CHECK(mr_reg(i == FOREIGN ? other_pd : pd, bytes_of(i), places[i].room,
			     places[i].iova, places[i].access, NULL, &regions[i]) == 0);
		tags[i] = regions[i]->ibv.rkey;
	}
	CHECK(mr_alloc_fast(pd, N_PIECES, &fast) == 0);
	tags[FAST] = fast->ibv.rkey ^ 1;
	tags[NEVER] = 0xffffff00;
	tags[STORED] = lend_storage();
	tags[SHOT] = 0xffffff00;
}

static void take_memory_back(void)
{
	tags[STALE] = tags[WRITABLE];
	CHECK(mr_dereg(fast) == 0);
	if (has_disk)
		CHECK(mr_dereg(stored) == 0);
	for (int i = 0; i < PLACES; i++)
		CHECK(mr_dereg(regions[i]) == 0);
}

static struct stag_qp *make_qp(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = &cq->ibv,
		.recv_cq = &cq->ibv,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = N_PIECES,
			.max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = &pd->ibv,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
				   IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	struct stag_qp *qp;

	CHECK(qp_create(ctx, &init, &qp) == 0);
	CHECK(qp_modify(qp, &attr,
			IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
	return qp;
}

/*
 * A peer with extensions may have sums of headers, and one-shot sends, in the encoding that the
 * lowest bits of how choose.
 */
static void agree_on_extensions(struct qp_link *link, uint8_t how)
{
	if (link->caps && (how & 4))
		link->caps |= MPA_EXT_SUM;
	link->one_shot = link->caps ? how & 3 : SHOT_NONE;
	if (link->one_shot != SHOT_NONE)
		link->caps |= MPA_EXT_ONE_SHOT;
	if (link->one_shot == SHOT_LITERAL)
		link->caps &= ~(unsigned)MPA_EXT_IMM;
}

static struct qp_link agree(struct input *in)
{
	uint8_t flags = (uint8_t)take(in, 1), depths = (uint8_t)take(in, 1);
	struct qp_link link = {
		.initiator = flags & 1,
		.crc = flags & 2,
		.markers_tx = flags & 4,
		.markers_rx = flags & 8,
		.mpa_rev = 2,
		.p2p = flags & 16,
		.rtr = flags & 64 ? MPA_RTR_READ : MPA_RTR_WRITE,
		.caps = flags & 32 ? MPA_EXT_IMM | MPA_EXT_ATOMIC | MPA_EXT_BIG_FPDU |
					     MPA_EXT_SEND_IMM | MPA_EXT_FLUSH | MPA_EXT_ESCAPE
				   : 0,
		.ird = depths & 0xf,
		.ord = depths >> 4,
		.wait_first = flags & 128,
	};

	link.stag_peer = link.caps;
	if (link.initiator)
		link.wait_first = false;
	return link;
}

static void run(struct stag_qp *qp)
{
	while (qp_progress(qp))
		;
	lock_acquire(&qp->tx_lock);
	qp_tx_run(qp);
	lock_release(&qp->tx_lock);
	steps_run();
	drain();
}

static void step(struct input *in, struct stag_qp *qp, const struct qp_link *link)
{
	uint8_t what = (uint8_t)take(in, 1);

	switch (what & 7) {
	case 0:
	case 1:
		step_segment(in, link);
		break;
	case 2:
		step_raw(in);
		break;
	case 3:
		step_post_recv(in, qp);
		break;
	case 4:
		step_post_send(in, qp);
		break;
	case 5:
		peer.full ^= !(what & 0x18);
		disk.held ^= (what & 8) != 0;
		disk.failing ^= (what & 16) != 0;
		break;
	case 6:
		peer.piece = 1 + take(in, 2);
		break;
	case 7:
		peer.end = what & 8 ? 0 : -ECONNRESET;
		break;
	}
	if (!(what & 0x80)) /* otherwise it is sent together with the next */
		run(qp);
}

static void end(struct stag_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	run(qp);
	CHECK(qp_modify(qp, &attr, IBV_QP_STATE) == 0);
	steps_run();
	drain();
	for (unsigned i = 0; i < posted; i++)
		CHECK(completed[i]);
	CHECK(qp_destroy(qp) == 0);
	CHECK(peer.closed);
	if (has_disk)
		disk_settle();
	steps_run();
	steps_check_idle();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	struct qp_link link;
	struct stag_qp *qp;
	uint8_t how;

	steps_begin();
	start();
	lend_memory();
	posted = 0;
	memset(completed, 0, sizeof(completed));
	CHECK(cq_create(ctx, 256, NULL, NULL, false, &cq) == 0);
	qp = make_qp();
	how = open_stream(&in);
	link = agree(&in);
	agree_on_extensions(&link, how);
	engine_lock();
	CHECK(qp_attach(qp, &peer.stream, &link) == 0);
	engine_unlock();
	post_fast_reg(qp);
	if (link.one_shot != SHOT_NONE)
		post_advertise(qp);

	while (in.len)
		step(&in, qp, &link);

	end(qp);
	frames_check(&link);
	CHECK(cq_destroy(cq) == 0);
	take_memory_back();
	check_memory();
	return 0;
}
