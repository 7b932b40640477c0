// SPDX-License-Identifier: BSD-2-Clause
/* roce_side.c - one of two sides of a random tear-down. */
#include "roce_side.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/device.h"
#include "dice.h"
#include "roce_pair.h"

#define DEPTH 32 /* requests under way */
#define RECVS 16 /* receives of a queue pair, */
#define SHARED                                                                                     \
	32 /* and of the SRQ: fewer than SLOTS, so that no slot is written before it was checked */
#define SLOTS	 64   /* more than DEPTH, so that no write meets another that is under way */
#define MESSAGE	 8192 /* the longest */
#define DATAGRAM 1024
#define SLOT	 2048
#define GRH	 40
#define QKEY	 0x11111111
#define OBJECTS	 (3 * SIDE_QPS + 4)

struct side_totals side_totals;

struct memory { /* of one queue pair; registered as a whole */
	uint8_t from[DEPTH]
		    [MESSAGE]; /* of requests under way: their source, or where they read to */
	uint8_t into[RECVS][GRH + MESSAGE];
	uint8_t written[SLOTS][SLOT];	/* by the peer, without immediate, */
	uint8_t announced[SLOTS][SLOT]; /* and with it */
	uint8_t fixed[MESSAGE];
	uint64_t word;
};

struct card { /* what the other side has to know of a queue pair */
	uint32_t index, qpn, rkey;
	uint64_t addr;
};

struct label { /* the beginning of all that is sent or written */
	uint32_t side, index, life, number, to_qpn, length;
};

struct request {
	enum ibv_wr_opcode op;
	uint32_t length, number;
	uint8_t *at;
	bool signaled, of_written;
};

struct place { /* a queue pair, and what is known about it; the memory stays when the queue pair is made again */
	unsigned index;
	enum ibv_qp_type type;
	bool with_srq, to_itself;
	struct ibv_qp *qp;
	enum ibv_qp_state state; /* as far as we know */
	struct memory *mem;
	struct ibv_mr *mr;
	struct ibv_ah *ah; /* UD: to the peer */
	struct card peer;

	uint32_t life;
	struct request sq[DEPTH];
	uint64_t put, get;			  /* wr_ids */
	uint64_t signaled;			  /* the last one that was */
	uint32_t sent, announced, written, added; /* in this life */
	uint64_t last_word;			  /* that an atomic has seen */
	bool has_word, has_seen_in_life;

	bool has_heard; /* in this life: of life `heard_life` of the peer, */
	uint32_t heard_life, heard, heard_written; /* and so many messages and announced writes */
};

struct side {
	unsigned number;
	uint64_t seed;
	int fd;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *scq, *rcq;
	struct ibv_srq *srq;
	uint8_t *shared; /* SHARED receives */
	struct ibv_mr *shared_mr;
	struct place place[SIDE_QPS];
	unsigned n;
	bool ending; /* memory may be gone */
};

unsigned side_count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

void side_print_fds(void)
{
	char path[64], name[128];

	for (int fd = 0; fd < 1024; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, name, sizeof(name));
		if (n > 0)
			print_error("%d: %.*s\n", fd, (int)n, name);
	}
}

/* ---- bytes that follow from a label ---- */

static uint64_t stir(uint64_t x)
{
	x ^= x >> 33;
	x *= 0xff51afd7ed558ccdull;
	x ^= x >> 29;
	return x;
}

static uint64_t word_of(const struct side *s, const struct label *l, uint32_t at)
{
	uint64_t x = s->seed ^ ((uint64_t)l->side << 60) ^ ((uint64_t)l->index << 56) ^
		     ((uint64_t)l->life << 40) ^ l->number;

	return stir(x + at);
}

static void fill(const struct side *s, const struct label *l, uint8_t *to)
{
	for (uint32_t i = 0; i < l->length; i += 8) {
		uint64_t w = word_of(s, l, i);

		memcpy(to + i, &w, l->length - i < 8 ? l->length - i : 8);
	}
	if (l->length >= sizeof(*l))
		memcpy(to, l, sizeof(*l));
}

/* Are these the first bytes of what the label says? */
static void expect_bytes(const struct side *s, const struct label *l, const uint8_t *at,
			 uint32_t length, const char *what)
{
	static uint8_t expected[MESSAGE];

	fill(s, l, expected);
	for (uint32_t i = 0; i < length; i++)
		if (at[i] != expected[i])
			fail_msg("side %u, queue pair %u, life %u, %s %u of %u bytes: byte %u is "
				 "%#x, not %#x",
				 l->side, l->index, l->life, what, l->number, length, i, at[i],
				 expected[i]);
}

static unsigned other_of(const struct side *s, const struct place *p)
{
	return p->to_itself ? s->number : !s->number;
}

static struct label fixed_label(unsigned side, unsigned index)
{
	return (struct label){.side = side,
			      .index = index,
			      .life = 0xffff,
			      .length = sizeof((struct memory *)0)->fixed};
}

/* ---- opening ---- */

static void tell(struct side *s, const struct place *p)
{
	struct card c = {p->index, p->qp->qp_num, p->mr->rkey, (uintptr_t)p->mem};

	send(s->fd, &c, sizeof(c), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void listen_to_peer(struct side *s)
{
	struct card c;

	while (recv(s->fd, &c, sizeof(c), MSG_DONTWAIT) == sizeof(c))
		if (c.index < s->n && !s->place[c.index].to_itself)
			s->place[c.index].peer = c;
}

static void make_qp(struct side *s, struct place *p)
{
	struct ibv_qp_init_attr init = {
		.send_cq = s->scq,
		.recv_cq = s->rcq,
		.srq = p->with_srq ? s->srq : NULL,
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = RECVS,
			.max_send_sge = 1,
			.max_recv_sge = 1},
		.qp_type = p->type,
	};

	p->qp = ibv_create_qp(s->pd, &init);
	assert_non_null(p->qp);
	p->state = IBV_QPS_RESET;
	if (p->to_itself)
		p->peer = (struct card){p->index, p->qp->qp_num, p->mr->rkey, (uintptr_t)p->mem};
	tell(s, p);
}

static void begin_life(struct place *p)
{
	p->life++;
	p->get = p->signaled = p->put;
	p->sent = p->announced = p->written = p->added = 0;
	p->has_heard = p->has_seen_in_life = false;
	p->heard = p->heard_written = 0;
}

static void open_place(struct side *s, unsigned i)
{
	static const enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	struct place *p = &s->place[i];
	struct label l = fixed_label(s->number, i);
	uint64_t plan = stir(s->seed + i); /* the same at both sides */

	p->index = i;
	p->type = types[plan % 4];
	p->to_itself = p->type != IBV_QPT_UD && (plan >> 8) % 8 == 0;
	p->with_srq = one_in(3);
	p->mem = calloc(1, sizeof(*p->mem));
	assert_non_null(p->mem);
	fill(s, &l, p->mem->fixed);
	p->mr = ibv_reg_mr(s->pd, p->mem, sizeof(*p->mem), ROCE_ACCESS);
	assert_non_null(p->mr);
	make_qp(s, p);
}

static void post_shared(struct side *s, uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)s->shared + i * (GRH + MESSAGE), GRH + MESSAGE,
			      s->shared_mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_srq_recv(s->srq, &wr, &bad), 0);
}

struct side *side_open(unsigned number, uint64_t seed, int fd)
{
	struct ibv_srq_init_attr srq = {.attr = {.max_wr = SHARED, .max_sge = 1}};
	struct side *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	s->number = number;
	s->seed = seed;
	s->fd = fd;
	s->n = 1 + (unsigned)(stir(seed) % SIDE_QPS);
	s->ctx = ibv_open_device(&stag_device(FACE_ROCE)->ibv);
	s->pd = ibv_alloc_pd(s->ctx);
	s->scq = ibv_create_cq(s->ctx, 4096, NULL, NULL, 0);
	s->rcq = one_in(2) ? s->scq : ibv_create_cq(s->ctx, 4096, NULL, NULL, 0);
	s->srq = ibv_create_srq(s->pd, &srq);
	s->shared = calloc(SHARED, GRH + MESSAGE);
	s->shared_mr = ibv_reg_mr(s->pd, s->shared, SHARED * (GRH + MESSAGE), ROCE_ACCESS);
	assert_true(s->scq && s->rcq && s->srq && s->shared_mr);
	for (unsigned i = 0; i < SHARED; i++)
		post_shared(s, i);
	for (unsigned i = 0; i < s->n; i++)
		open_place(s, i);
	return s;
}

/* ---- states ---- */

static void post_into(struct place *p, uint64_t i)
{
	struct ibv_sge sge = {(uintptr_t)p->mem->into[i], GRH + MESSAGE, p->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;

	assert_int_equal(ibv_post_recv(p->qp, &wr, &bad), 0);
}

static bool modify(struct place *p, struct ibv_qp_attr *a, enum ibv_qp_state to, int mask)
{
	a->qp_state = to;
	if (ibv_modify_qp(p->qp, a, IBV_QP_STATE | mask))
		return false; /* it may have failed meanwhile, or drain */
	p->state = to;
	return true;
}

static void go_to_init(struct place *p)
{
	struct ibv_qp_attr a = {.port_num = 1, .qp_access_flags = ROCE_ACCESS, .qkey = QKEY};
	int last = p->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;

	assert_true(modify(p, &a, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | last));
	for (unsigned i = 0; i < RECVS && !p->with_srq; i++)
		post_into(p, i);
}

static struct ibv_ah_attr path(const struct side *s)
{
	struct ibv_ah_attr a = {.is_global = 1, .port_num = 1};

	assert_int_equal(ibv_query_gid(s->ctx, 1, 0, &a.grh.dgid), 0);
	return a;
}

static void go_to_rtr(struct side *s, struct place *p)
{
	struct ibv_qp_attr a = {
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = p->peer.qpn,
		.max_dest_rd_atomic = (uint8_t)(1 + dice(8)),
		.min_rnr_timer = 1,
		.ah_attr = path(s),
	};
	int mask = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;

	if (p->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	modify(p, &a, IBV_QPS_RTR, p->type == IBV_QPT_UD ? 0 : mask);
}

static void go_to_rts(struct place *p)
{
	struct ibv_qp_attr a = {
		.timeout = (uint8_t)(one_in(2) ? 10 : 20),
		.retry_cnt = (uint8_t)dice(8),
		.rnr_retry = (uint8_t)(one_in(4) ? dice(7) : 7),
		.max_rd_atomic = (uint8_t)(1 + dice(8)),
	};
	int mask = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;

	modify(p, &a, IBV_QPS_RTS, IBV_QP_SQ_PSN | (p->type == IBV_QPT_RC ? mask : 0));
}

static void advance(struct side *s, struct place *p)
{
	switch (p->state) {
	case IBV_QPS_RESET:
		go_to_init(p);
		break;
	case IBV_QPS_INIT:
		if (p->peer.qpn)
			go_to_rtr(s, p);
		break;
	case IBV_QPS_RTR:
		go_to_rts(p);
		break;
	case IBV_QPS_SQD:
		modify(p, &(struct ibv_qp_attr){0}, IBV_QPS_RTS, 0);
		break;
	default:
		break;
	}
}

static void reset(struct place *p)
{
	assert_true(modify(p, &(struct ibv_qp_attr){0}, IBV_QPS_RESET, 0));
	begin_life(p);
}

static void make_again(struct side *s, struct place *p)
{
	assert_int_equal(ibv_destroy_qp(p->qp), 0);
	begin_life(p);
	make_qp(s, p);
}

/* ---- requests ---- */

static uint64_t remote(const struct place *p, const void *in_memory)
{
	return p->peer.addr + (uint64_t)((const uint8_t *)in_memory - (const uint8_t *)p->mem);
}

static void label_request(const struct side *s, struct place *p, struct request *r, uint32_t number,
			  uint32_t most)
{
	struct label l = {s->number, p->index, p->life, number, p->peer.qpn, 0};

	l.length = (uint32_t)(sizeof(l) + dice(most - sizeof(l) + 1));
	r->length = l.length;
	r->number = number;
	fill(s, &l, r->at);
}

static void prepare_write(struct side *s, struct place *p, struct request *r,
			  struct ibv_send_wr *wr)
{
	bool announced = r->op == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint32_t number = announced ? p->announced : p->written;
	const struct memory *m = p->mem;

	label_request(s, p, r, number, SLOT);
	wr->wr.rdma.remote_addr =
		remote(p, announced ? m->announced[number % SLOTS] : m->written[number % SLOTS]);
	wr->imm_data = htobe32(number);
}

static void prepare_read(struct side *s, struct place *p, struct request *r, struct ibv_send_wr *wr)
{
	r->of_written = p->written && one_in(2);
	r->number = p->written - 1;
	r->length = r->of_written ? sizeof(struct label) : (uint32_t)dice(MESSAGE + 1);
	wr->wr.rdma.remote_addr =
		remote(p, r->of_written ? p->mem->written[r->number % SLOTS] : p->mem->fixed);
	memset(r->at, 0xee, MESSAGE);
}

static enum ibv_wr_opcode choose(const struct place *p)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND,	   IBV_WR_SEND_WITH_IMM,
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD,
	};

	return ops[dice(p->type == IBV_QPT_RC ? 6 : p->type == IBV_QPT_UC ? 4 : 2)];
}

static void prepare(struct side *s, struct place *p, struct request *r, struct ibv_send_wr *wr)
{
	wr->wr.rdma.rkey = p->peer.rkey;
	switch (r->op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		prepare_write(s, p, r, wr);
		break;
	case IBV_WR_RDMA_READ:
		prepare_read(s, p, r, wr);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		r->length = 8;
		wr->wr.atomic.remote_addr = remote(p, &p->mem->word);
		wr->wr.atomic.rkey = p->peer.rkey;
		wr->wr.atomic.compare_add = 1;
		wr->wr.atomic.swap = 0;
		break;
	default:
		label_request(s, p, r, p->sent, p->type == IBV_QPT_UD ? DATAGRAM : MESSAGE);
		wr->imm_data = htobe32(p->sent);
		break;
	}
	if (p->type == IBV_QPT_UD) {
		wr->wr.ud.ah = p->ah;
		wr->wr.ud.remote_qpn = p->peer.qpn;
		wr->wr.ud.remote_qkey = QKEY;
	}
}

static void count_posted(struct place *p, const struct request *r)
{
	switch (r->op) {
	case IBV_WR_RDMA_WRITE:
		p->written++;
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		p->announced++;
		break;
	case IBV_WR_RDMA_READ:
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		p->added++;
		break;
	default:
		p->sent++;
		break;
	}
	if (r->signaled)
		p->signaled = p->put;
	p->put++;
}

static void post(struct side *s, struct place *p)
{
	struct request *r = &p->sq[p->put % DEPTH];
	struct ibv_sge sge;
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	int err;

	if (p->put - p->get >= DEPTH || p->state == IBV_QPS_RESET || p->state == IBV_QPS_INIT ||
	    p->state == IBV_QPS_RTR || !p->peer.qpn)
		return;
	if (p->type == IBV_QPT_UD && !p->ah) {
		struct ibv_ah_attr a = path(s);

		p->ah = ibv_create_ah(s->pd, &a);
		assert_non_null(p->ah);
	}
	*r = (struct request){.op = choose(p), .at = p->mem->from[p->put % DEPTH]};
	r->signaled = p->put - p->signaled > 8 || dice(4) > 0;
	prepare(s, p, r, &wr);
	sge = (struct ibv_sge){(uintptr_t)r->at, r->length, p->mr->lkey};
	wr.wr_id = (uint64_t)p->index << 32 | (uint32_t)p->put;
	wr.opcode = r->op;
	wr.send_flags = r->signaled ? IBV_SEND_SIGNALED : 0;
	err = ibv_post_send(p->qp, &wr, &bad);
	assert_true(err == 0 || err == ENOMEM);
	if (!err)
		count_posted(p, r);
}

/* ---- completions ---- */

static void check_atomic(struct place *p, const struct request *r)
{
	uint64_t seen;

	memcpy(&seen, r->at, 8);
	if (p->has_seen_in_life)
		assert_int_equal(seen, p->last_word + 1);
	else if (p->has_word)
		assert_true(seen > p->last_word);
	p->last_word = seen;
	p->has_word = p->has_seen_in_life = true;
	side_totals.atomics++;
}

/* The label of the last write before it; the bytes behind may be of an earlier, longer one. */
static void check_read_back(const struct side *s, const struct place *p, const struct request *r)
{
	struct label l;

	memcpy(&l, r->at, sizeof(l));
	assert_int_equal(l.side, s->number);
	assert_int_equal(l.index, p->index);
	assert_int_equal(l.life, p->life);
	assert_int_equal(l.number, r->number);
	side_totals.reads++;
}

static void check_read(const struct side *s, const struct place *p, const struct request *r)
{
	struct label l = fixed_label(other_of(s, p), p->index);

	expect_bytes(s, &l, r->at, r->length, "read");
	side_totals.reads++;
}

static void check_done(const struct side *s, struct place *p, const struct request *r)
{
	if (r->op == IBV_WR_ATOMIC_FETCH_AND_ADD)
		check_atomic(p, r);
	else if (r->op == IBV_WR_RDMA_READ && r->of_written)
		check_read_back(s, p, r);
	else if (r->op == IBV_WR_RDMA_READ)
		check_read(s, p, r);
}

static bool is_legal(const struct side *s, const struct ibv_wc *wc)
{
	switch (wc->status) {
	case IBV_WC_SUCCESS:
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return true;
	case IBV_WC_REM_ACCESS_ERR: /* the peer's memory is gone */
	case IBV_WC_REM_OP_ERR:
		return true;
	default:
		return s->ending; /* our own memory is gone */
	}
}

static void take_sent(struct side *s, const struct ibv_wc *wc)
{
	struct place *p = &s->place[wc->wr_id >> 32];
	uint32_t id = (uint32_t)wc->wr_id;

	assert_true(is_legal(s, wc));
	assert_true(id - (uint32_t)p->get < (uint32_t)(p->put - p->get)); /* once, and in order */
	while ((uint32_t)p->get != id) {
		struct request *r = &p->sq[p->get % DEPTH];

		assert_false(r->signaled); /* an error, or a signaled success, is reported */
		if (!s->ending && wc->status == IBV_WC_SUCCESS)
			check_done(s, p, r);
		p->get++;
	}
	if (wc->status != IBV_WC_SUCCESS)
		side_totals.failures++;
	else if (!s->ending)
		check_done(s, p, &p->sq[p->get % DEPTH]);
	p->get++;
}

static struct place *place_of(struct side *s, uint32_t qpn)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->place[i].qp && s->place[i].qp->qp_num == qpn)
			return &s->place[i];
	fail_msg("a completion of queue pair %u, which is none of ours", qpn);
	return NULL;
}

/* One life of ours hears one life of the peer, from its first message on. */
static void check_sender(struct side *s, struct place *p, const struct label *l)
{
	assert_int_equal(l->side, other_of(s, p));
	assert_int_equal(l->index, p->index);
	assert_int_equal(l->to_qpn, p->qp->qp_num);
	if (p->type == IBV_QPT_UD)
		return;
	if (!p->has_heard)
		p->heard_life = l->life;
	p->has_heard = true;
	assert_int_equal(l->life, p->heard_life);
}

static void check_number(struct place *p, uint32_t *next, uint32_t number)
{
	if (p->type == IBV_QPT_RC)
		assert_int_equal(number, *next);
	else if (p->type == IBV_QPT_UC)
		assert_true(number >= *next);
	*next = number + 1;
}

static void check_message(struct side *s, struct place *p, const uint8_t *at, uint32_t length)
{
	struct label l;

	assert_true(length >= sizeof(l) && length <= MESSAGE);
	memcpy(&l, at, sizeof(l));
	assert_int_equal(l.length, length);
	check_sender(s, p, &l);
	check_number(p, &p->heard, l.number);
	expect_bytes(s, &l, at, length, "message");
	if (p->type == IBV_QPT_UD)
		side_totals.datagrams++;
	else
		side_totals.messages++;
}

static void check_announced(struct side *s, struct place *p, const struct ibv_wc *wc)
{
	uint32_t number = be32toh(wc->imm_data);
	const uint8_t *at = p->mem->announced[number % SLOTS];
	struct label l;

	memcpy(&l, at, sizeof(l));
	assert_int_equal(l.number, number);
	assert_int_equal(l.length, wc->byte_len);
	check_sender(s, p, &l);
	check_number(p, &p->heard_written, number);
	expect_bytes(s, &l, at, l.length, "write");
	side_totals.writes++;
}

static void take_received(struct side *s, const struct ibv_wc *wc)
{
	struct place *p = place_of(s, wc->qp_num);
	uint8_t *at =
		p->with_srq ? s->shared + wc->wr_id * (GRH + MESSAGE) : p->mem->into[wc->wr_id];
	unsigned skip = p->type == IBV_QPT_UD ? GRH : 0;

	if (wc->status != IBV_WC_SUCCESS) {
		assert_true(wc->status == IBV_WC_WR_FLUSH_ERR || s->ending);
		if (p->with_srq && !s->ending)
			post_shared(s, wc->wr_id);
		return;
	}
	if (s->ending)
		return;
	if (wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
		check_announced(s, p, wc);
	else
		check_message(s, p, at + skip, wc->byte_len - skip);
	if (p->with_srq)
		post_shared(s, wc->wr_id);
	else if (p->state != IBV_QPS_RESET)
		post_into(p, wc->wr_id);
}

static bool is_received(const struct side *s, const struct ibv_cq *cq, const struct ibv_wc *wc)
{
	/* wr_ids of requests tell, also of those that failed, unless it is the first request of place 0 */
	return cq == s->rcq && (s->rcq != s->scq || wc->opcode == IBV_WC_RECV ||
				wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM);
}

static void poll(struct side *s, struct ibv_cq *cq)
{
	struct ibv_wc wc;

	for (int i = 0; i < 16 && ibv_poll_cq(cq, 1, &wc) == 1; i++) {
		if (is_received(s, cq, &wc))
			take_received(s, &wc);
		else
			take_sent(s, &wc);
	}
}

static void drain_events(struct side *s)
{
	struct ibv_async_event ev;
	int flags = fcntl(s->ctx->async_fd, F_GETFL);

	fcntl(s->ctx->async_fd, F_SETFL, flags | O_NONBLOCK);
	while (ibv_get_async_event(s->ctx, &ev) == 0)
		ibv_ack_async_event(&ev);
}

/* ---- steps ---- */

void side_step(struct side *s)
{
	struct place *p = &s->place[dice(s->n)];
	uint64_t what = dice(200);

	if (s->ending)
		return;
	listen_to_peer(s);
	if (what < 90)
		post(s, p);
	else if (what < 140)
		poll(s, one_in(2) ? s->scq : s->rcq);
	else if (what < 180 || p->state != IBV_QPS_ERR)
		advance(s, p);
	if (what == 199)
		make_again(s, p);
	else if (what >= 196 || (p->state == IBV_QPS_ERR && one_in(4)))
		reset(p);
	else if (what == 195)
		modify(p, &(struct ibv_qp_attr){0}, IBV_QPS_ERR, 0);
	else if (what >= 193)
		modify(p, &(struct ibv_qp_attr){0}, IBV_QPS_SQD, 0);
	else if (what == 192)
		drain_events(s);
	if (__atomic_load_n(&p->qp->state, __ATOMIC_RELAXED) ==
	    IBV_QPS_ERR) /* the engine writes it */
		p->state = IBV_QPS_ERR;
}

/* ---- the end ---- */

static bool took(int err)
{
	assert_true(err == 0 || err == EBUSY);
	return err == 0;
}

/* Each function returns true if it has destroyed something. */
static bool end_qp(struct place *p)
{
	if (!p->qp || !took(ibv_destroy_qp(p->qp)))
		return false;
	p->qp = NULL;
	return true;
}

static bool end_memory(struct place *p)
{
	if (!p->mr || !took(ibv_dereg_mr(p->mr)))
		return false;
	p->mr = NULL;
	free(p->mem);
	return true;
}

static bool end_ah(struct place *p)
{
	if (!p->ah || !took(ibv_destroy_ah(p->ah)))
		return false;
	p->ah = NULL;
	return true;
}

static bool end_shared_memory(struct side *s)
{
	if (!s->shared_mr || !took(ibv_dereg_mr(s->shared_mr)))
		return false;
	s->shared_mr = NULL;
	free(s->shared);
	return true;
}

static bool end_srq(struct side *s)
{
	if (!s->srq || !took(ibv_destroy_srq(s->srq)))
		return false;
	s->srq = NULL;
	return true;
}

static bool end_cq(struct side *s)
{
	struct ibv_cq **cq = s->rcq ? &s->rcq : &s->scq;

	if (!*cq || !took(ibv_destroy_cq(*cq)))
		return false;
	if (s->rcq == s->scq)
		s->scq = NULL;
	*cq = NULL;
	return true;
}

static bool end_pd(struct side *s)
{
	if (!s->pd || !took(ibv_dealloc_pd(s->pd)))
		return false;
	s->pd = NULL;
	return true;
}

static bool end_object(struct side *s, unsigned i)
{
	if (i < 3 * s->n) {
		struct place *p = &s->place[i / 3];

		return i % 3 == 0 ? end_qp(p) : i % 3 == 1 ? end_memory(p) : end_ah(p);
	}
	switch (i - 3 * s->n) {
	case 0:
		return end_shared_memory(s);
	case 1:
		return end_srq(s);
	case 2:
		return end_cq(s);
	default:
		return end_pd(s);
	}
}

bool side_take_apart(struct side *s)
{
	unsigned count = 3 * s->n + 4, first = (unsigned)dice(count);
	struct ibv_wc wc;

	s->ending = true;
	drain_events(s);
	if (s->rcq && one_in(2))
		ibv_poll_cq(s->rcq, 1, &wc);
	for (unsigned i = 0; i < count; i++)
		if (end_object(s, (first + i) % count))
			return true;
	assert_true(!s->pd && !s->scq && !s->rcq && !s->srq); /* something kept it */
	assert_int_equal(ibv_close_device(s->ctx), 0);
	free(s);
	return false;
}
