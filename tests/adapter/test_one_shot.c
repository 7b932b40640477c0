// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_one_shot.c - commands that advertise memory in one post, and end in one completion. The
 * program sees the same in each encoding, and with a peer that has none.
 */
#include "shot.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define LEN  4096
#define IOVA 0x700000000000

struct stage { /* side a sends commands, side b serves them */
	struct pair p;
	struct region *memory;	 /* a's memory to be advertised */
	struct region *out, *in; /* a's command and close bodies */
	struct region *got;	 /* b's received commands */
	struct region *data;	 /* b's data */
};

static void make_regions(struct stage *s)
{
	s->memory = own_region(&s->p.a, LEN);
	s->out = own_region(&s->p.a, BODY);
	s->in = own_region(&s->p.a, BODY);
	s->got = own_region(&s->p.b, BODY);
	s->data = own_region(&s->p.b, LEN);
}

static int stage_open(void **state)
{
	struct stage *s = calloc(1, sizeof(*s));

	pair_open(&s->p, NULL, NULL);
	make_regions(s);
	*state = s;
	return 0;
}

/* Expects that every STag ended with its connection, whatever the test did. */
static int stage_close(void **state)
{
	struct stage *s = *state;
	struct stagdv_counters c;
	struct ibv_context *ctx = s->p.a.ctx;

	pair_close(&s->p);
	assert_int_equal(open_stags(ctx), 0);
	assert_int_equal(stagdv_query_counters(ctx, &c, sizeof(c)), 0);
	assert_int_equal(c.advertised, c.closed + c.withdrawn + c.orphaned);
	free(s);
	return 0;
}

/* Sends a command from a, and returns the STag that b received. */
static uint32_t lend_to_b(struct stage *s, const struct lend *l)
{
	uint64_t in = post_receive(&s->p.b, s->got, 0, BODY), id;
	uint32_t stag;

	id = advertise(&s->p.a, s->out, l, &stag);
	assert_int_equal(expect_command(&s->p.b, in, s->got), stag);
	if (!s->p.a.wish.quiet)
		expect_sent(&s->p.a, id);
	return stag;
}

static uint32_t lend_all(struct stage *s, unsigned access, uint32_t reference)
{
	struct ibv_sge sge = piece(s->memory, 0, LEN);
	struct lend l = {
		.memory = &sge, .n = 1, .access = access, .iova = IOVA, .reference = reference};

	return lend_to_b(s, &l);
}

static void end_by_b(struct stage *s, uint32_t stag, uint32_t reference)
{
	uint64_t in = post_receive(&s->p.a, s->in, 0, BODY);
	uint64_t id = close_stag(&s->p.b, s->data, stag, 0);

	if (!s->p.b.wish.quiet)
		expect_sent(&s->p.b, id);
	expect_end(&s->p.a, in, stag, reference);
}

static void b_reads(struct stage *s, uint32_t stag, size_t len, uint64_t to)
{
	expect_sent(&s->p.b, post_remote(&s->p.b, IBV_WR_RDMA_READ, s->data, len, stag, to));
}

static void b_writes(struct stage *s, uint32_t stag, size_t len, uint64_t to)
{
	expect_sent(&s->p.b, post_remote(&s->p.b, IBV_WR_RDMA_WRITE, s->data, len, stag, to));
}

/* ---- a command ---- */

static void agreed_parameters_are_those_requested(void **state)
{
	static const char *const words[] = {"off", "literal", "opcodes", "bits"};
	struct stage *s = *state;
	const char *asked = getenv("STAG_ONE_SHOT"), *ext = getenv("STAG_EXTENSIONS");
	enum stagdv_one_shot want = STAGDV_ONE_SHOT_OPCODES;
	struct stagdv_device_attr attr;

	for (unsigned i = 0; asked && i < 4; i++)
		if (!strcmp(asked, words[i]))
			want = i;
	if (ext)
		want = STAGDV_ONE_SHOT_NONE;
	assert_int_equal(encoding(&s->p.a), want);
	assert_int_equal(encoding(&s->p.b), want);
	assert_int_equal(stagdv_query_device(s->p.a.ctx, &attr, sizeof(attr)), 0);
	assert_int_equal(!!(attr.abilities & STAGDV_ABILITY_ONE_SHOT),
			 want != STAGDV_ONE_SHOT_NONE);
}

/* b posts the data of a read and its close in one list; only the last request completes. */
static void data_and_close_are_posted_in_one_list(void **state)
{
	struct stage *s = *state;
	uint32_t stag = lend_all(s, IBV_ACCESS_REMOTE_WRITE, 5);
	uint64_t in = post_receive(&s->p.a, s->in, 0, BODY);
	struct ibv_sge data = piece(s->data, 0, LEN), body = piece(s->data, 0, BODY);
	struct ibv_send_wr *bad, end = {.wr_id = note_posted(&s->p.b, false),
					.sg_list = &body,
					.num_sge = 1,
					.opcode = IBV_WR_SEND_WITH_INV,
					.send_flags = IBV_SEND_SIGNALED | STAGDV_SEND_CLOSE,
					.invalidate_rkey = stag};
	struct ibv_send_wr first = {.next = &end,
				    .sg_list = &data,
				    .num_sge = 1,
				    .opcode = IBV_WR_RDMA_WRITE,
				    .wr.rdma = {.remote_addr = IOVA, .rkey = stag}};

	fill(s->data->at, LEN, 9);
	assert_int_equal(ibv_post_send(s->p.b.qp, &first, &bad), 0);
	expect_sent(&s->p.b, end.wr_id);
	expect_end(&s->p.a, in, stag, 5);
	assert_memory_equal(s->memory->at, s->data->at, LEN);
	assert_int_equal(counted(&s->p.a).closed, 1);
}

/* Figure 4: the command, b's reads of the data, the close. */
static void write_command_is_served_by_reads(void **state)
{
	struct stage *s = *state;
	uint32_t stag;
	struct stagdv_stag life;

	fill(s->memory->at, LEN, 1);
	stag = lend_all(s, IBV_ACCESS_REMOTE_READ, 77);
	assert_int_equal(life_of(s->p.a.ctx, stag).end, STAGDV_STAG_OPEN);
	b_reads(s, stag, LEN, IOVA);
	expect_filled(s->data->at, LEN, 1);
	b_reads(s, stag, 100, IOVA + LEN - 100);
	assert_memory_equal(s->data->at, s->memory->at + LEN - 100, 100);
	end_by_b(s, stag, 77);
	life = life_of(s->p.a.ctx, stag);
	assert_int_equal(life.end, STAGDV_STAG_CLOSED);
	assert_int_equal(life.reference, 77);
	assert_int_equal(life.qp_num, s->p.a.qp->qp_num);
	assert_int_equal(life.length, LEN);
	assert_int_equal(life.reads, 2);
	assert_int_equal(life.writes, 0);
	assert_int_equal(life.late, 0);
	assert_true(life.made && life.ended >= life.made);
}

/* Paragraph 37: the same with b's writes. */
static void read_command_is_served_by_writes(void **state)
{
	struct stage *s = *state;
	uint32_t stag = lend_all(s, IBV_ACCESS_REMOTE_WRITE, 78);

	fill(s->data->at, LEN, 2);
	b_writes(s, stag, LEN - 1, IOVA);
	end_by_b(s, stag, 78);
	expect_filled(s->memory->at, LEN - 1, 2);
	assert_int_equal(s->memory->at[LEN - 1], 0);
	assert_int_equal(life_of(s->p.a.ctx, stag).writes, 1);
}

static void inline_body_is_copied(void **state)
{
	struct stage *s = *state;
	struct ibv_sge sge = piece(s->memory, 0, LEN);
	struct lend l = {
		.memory = &sge, .n = 1, .iova = IOVA, .reference = 9, .flags = IBV_SEND_INLINE};
	uint32_t stag;

	fill(s->out->at, BODY, 3);
	stag = lend_to_b(s, &l);
	expect_filled(s->out->at, BODY, 3); /* the STag was put into the copy only */
	assert_memory_equal(s->got->at + 4, s->out->at + 4, BODY - 4);
	end_by_b(s, stag, 9);
}

/* A command needs neither a body nor a place for the STag in it: the header carries it. */
static void command_needs_no_body(void **state)
{
	struct stage *s = *state;
	struct ibv_sge sge = piece(s->memory, 0, LEN);
	struct stagdv_advertise wr = {.wr_id = note_posted(&s->p.a, false),
				      .send_flags = IBV_SEND_SIGNALED,
				      .memory = &sge,
				      .num_memory = 1,
				      .access = IBV_ACCESS_REMOTE_READ,
				      .reference = 5,
				      .stag_at = -1};
	uint64_t in = post_receive(&s->p.b, NULL, 0, 0), end = post_receive(&s->p.a, NULL, 0, 0);
	uint32_t stag;
	struct ibv_wc wc;

	assert_int_equal(stagdv_post_send_advertise(s->p.a.qp, &wr, &stag), 0);
	expect_sent(&s->p.a, wr.wr_id);
	wc = expect_received(&s->p.b, in);
	if (encoding(&s->p.b) != STAGDV_ONE_SHOT_NONE)
		assert_int_equal(wc.invalidated_rkey, stag);
	b_reads(s, stag, LEN, 0);
	expect_sent(&s->p.b, close_stag(&s->p.b, NULL, stag, 0));
	expect_end(&s->p.a, end, stag, 5);
}

/*
 * A standard peer closes a command with a Send with Invalidate; that works between stag peers, too.
 */
static void send_with_invalidate_closes_a_command(void **state)
{
	struct stage *s = *state;
	uint32_t stag = lend_all(s, 0, 123);
	uint64_t in = post_receive(&s->p.a, NULL, 0, 0);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = stag};

	expect_sent(&s->p.b, post(&s->p.b, &wr));
	expect_end(&s->p.a, in, stag, 123);
	assert_int_equal(counted(&s->p.a).closed, 1);
}

static void open_commands_close_in_any_order(void **state)
{
	enum { MANY = 32 };
	struct stage *s = *state;
	uint32_t stags[MANY];

	for (uint32_t i = 0; i < MANY; i++) {
		struct ibv_sge sge = piece(s->memory, i * 100, 100);
		struct lend l = {.memory = &sge, .n = 1, .iova = i, .reference = i};

		stags[i] = lend_to_b(s, &l);
	}
	assert_int_equal(open_stags(s->p.a.ctx), MANY);
	for (uint32_t i = 0; i < MANY; i++) {
		uint32_t k = i * 13 % MANY;

		fill(s->data->at, 100, k);
		b_writes(s, stags[k], 100, k);
		end_by_b(s, stags[k], k);
		expect_filled(s->memory->at + k * 100, 100, k);
	}
	assert_int_equal(open_stags(s->p.a.ctx), 0);
}

/* ---- memory ---- */

/* Expects the piece, and no byte changed after it. */
static void expect_piece(const uint8_t *at, const uint8_t *wanted, size_t len)
{
	assert_memory_equal(at, wanted, len);
	assert_int_equal(at[len], 0);
}

/* Pieces of three regions, down to single bytes, are one range to the peer. */
static void pieces_of_several_regions_are_one_range(void **state)
{
	enum { N = STAGDV_ADVERTISE_SGE };
	struct stage *s = *state;
	struct region *r[3] = {s->memory, own_region(&s->p.a, LEN), own_region(&s->p.a, LEN)};
	struct ibv_sge *sge = calloc(N + 1, sizeof(*sge));
	struct lend l = {.memory = sge, .n = N, .iova = IOVA, .reference = 1};
	size_t len = 0, off = 0;
	uint32_t stag;

	for (int i = 0; i < N; i++) {
		sge[i] = piece(r[i % 3], (size_t)i / 3 * 20, (size_t)(1 + i % 11));
		len += sge[i].length;
	}
	fill(s->data->at, len, 4);
	stag = lend_to_b(s, &l);
	b_writes(s, stag, len, IOVA);
	memset(s->data->at, 0, LEN);
	b_reads(s, stag, len, IOVA);
	expect_filled(s->data->at, len, 4);
	end_by_b(s, stag, 1);
	for (int i = 0; i < N; off += sge[i++].length)
		expect_piece((uint8_t *)(uintptr_t)sge[i].addr, s->data->at + off, sge[i].length);
	free(sge);
}

static int try_to_lend(struct stage *s, struct ibv_sge *sge, int n, unsigned access)
{
	struct ibv_sge body = piece(s->out, 0, BODY);
	struct lend l = {.memory = sge, .n = n, .access = access, .iova = IOVA};
	struct stagdv_advertise wr = command(&s->p.a, &body, &l);
	uint32_t stag = 0;
	int err = stagdv_post_send_advertise(s->p.a.qp, &wr, &stag);

	assert_int_equal(stag, 0);
	return err;
}

static void memory_that_may_not_be_advertised_is_refused(void **state)
{
	static const uint64_t word = 1;
	static uint64_t cells[1];
	struct stage *s = *state;
	struct stagdv_guard guard = {
		.word = &word, .expected = 1, .hazards = cells, .n_hazards = 1, .hazard = 1};
	struct region *plain = lend_region(&s->p.a, LEN, 0);
	struct ibv_mr *guarded = stagdv_reg_guarded_mr(s->p.a.pd, plain->at, LEN, 0, &guard);
	struct ibv_sge others = piece(s->data, 0, LEN), beyond = piece(s->memory, 1, LEN),
		       fixed = piece(plain, 0, LEN), good = piece(s->memory, 0, 10),
		       two[2] = {good, others}, closed = fixed;

	assert_non_null(guarded);
	closed.lkey = guarded->lkey;
	assert_int_equal(try_to_lend(s, &others, 1, 0), EPERM);
	assert_int_equal(try_to_lend(s, &beyond, 1, 0), EPERM);
	assert_int_equal(try_to_lend(s, &fixed, 1, IBV_ACCESS_REMOTE_WRITE), EPERM);
	assert_int_equal(try_to_lend(s, &closed, 1, IBV_ACCESS_REMOTE_READ), EPERM);
	assert_int_equal(try_to_lend(s, two, 2, 0), EPERM);
	good.lkey ^= 1;
	assert_int_equal(try_to_lend(s, &good, 1, 0), EPERM);
	assert_int_equal(counted(&s->p.a).advertised, 0);
	assert_int_equal(counted(&s->p.a).posts, 0);
	assert_int_equal(ibv_dereg_mr(guarded), 0);
	drop_region(&s->p.a, plain); /* no STag is left from it */
	end_by_b(s, lend_all(s, 0, 1), 1);
}

static void invalid_advertise_requests_are_refused(void **state)
{
	struct stage *s = *state;
	struct ibv_sge sge = piece(s->memory, 0, LEN), none = piece(s->memory, 0, 0);
	struct ibv_sge body = piece(s->out, 0, BODY);
	struct ibv_sge *many = calloc(STAGDV_ADVERTISE_SGE + 1, sizeof(*many));
	struct lend l = {.memory = &sge, .n = 1};
	struct stagdv_advertise wr;
	uint32_t stag;

	for (int i = 0; i <= STAGDV_ADVERTISE_SGE; i++)
		many[i] = piece(s->memory, (size_t)i * 2, 1);
	assert_int_equal(try_to_lend(s, &sge, 0, 0), EINVAL);
	assert_int_equal(try_to_lend(s, &none, 1, 0), EINVAL);
	assert_int_equal(try_to_lend(s, many, STAGDV_ADVERTISE_SGE + 1, 0), EINVAL);
	assert_int_equal(try_to_lend(s, &sge, 1, IBV_ACCESS_REMOTE_ATOMIC), EINVAL);
	for (int i = 0; i < 4; i++) {
		wr = command(&s->p.a, &body, &l);
		wr.stag_at = i == 0 ? BODY - 3 : wr.stag_at;
		wr.num_sge = i == 1 ? 5 : wr.num_sge;
		wr.comp_mask = i == 2;
		wr.iova = i == 3 ? UINT64_MAX - LEN + 2 : 0;
		assert_int_equal(stagdv_post_send_advertise(s->p.a.qp, &wr, &stag), EINVAL);
	}
	assert_int_equal(stagdv_query_stags(s->p.a.ctx, NULL, 0, 4), -EINVAL);
	assert_int_equal(counted(&s->p.a).posts, 0);
	free(many);
}

static void advertised_region_cannot_be_deregistered(void **state)
{
	struct stage *s = *state;
	struct region *r = own_region(&s->p.a, LEN);
	struct ibv_sge sge[2] = {piece(r, 0, 10), piece(s->memory, 0, 10)};
	struct lend l = {.memory = sge, .n = 2, .reference = 1};
	uint32_t stag = lend_to_b(s, &l);

	assert_int_equal(ibv_dereg_mr(r->mr), EBUSY);
	assert_int_equal(ibv_dereg_mr(s->memory->mr), EBUSY);
	assert_int_not_equal(ibv_rereg_mr(r->mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), 0);
	b_reads(s, stag, 20, 0);
	end_by_b(s, stag, 1);
	drop_region(&s->p.a, r);
}

/* ---- refusals ---- */

static void refused(struct stage *s, enum ibv_wr_opcode op, size_t len, uint32_t stag, uint64_t to)
{
	post_remote(&s->p.b, op, s->data, len, stag, to);
	expect_over(&s->p.a, &s->p.b, IBV_EVENT_QP_ACCESS_ERR);
	assert_int_equal(open_stags(s->p.a.ctx), 0);
}

static void write_without_the_right_is_refused(void **state)
{
	struct stage *s = *state;
	uint32_t stag = lend_all(s, IBV_ACCESS_REMOTE_READ, 1);

	fill(s->data->at, LEN, 1);
	refused(s, IBV_WR_RDMA_WRITE, 1, stag, IOVA);
	expect_zeroes(s->memory->at, LEN);
	assert_int_equal(life_of(s->p.a.ctx, stag).end, STAGDV_STAG_ORPHANED);
}

static void read_without_the_right_is_refused(void **state)
{
	struct stage *s = *state;

	refused(s, IBV_WR_RDMA_READ, 1, lend_all(s, IBV_ACCESS_REMOTE_WRITE, 1), IOVA);
}

static void write_past_the_end_is_refused(void **state)
{
	struct stage *s = *state;
	uint32_t stag = lend_all(s, 0, 1);

	fill(s->data->at, LEN, 1);
	refused(s, IBV_WR_RDMA_WRITE, 100, stag, IOVA + LEN - 99);
	expect_zeroes(s->memory->at, LEN);
}

static void read_before_the_beginning_is_refused(void **state)
{
	struct stage *s = *state;

	refused(s, IBV_WR_RDMA_READ, 100, lend_all(s, 0, 1), IOVA - 1);
}

static void expect_late(struct stage *s, uint32_t stag, enum stagdv_stag_end end)
{
	struct stagdv_stag life = life_of(s->p.a.ctx, stag);

	assert_int_equal(life.end, end);
	assert_int_equal(life.late, 1);
	assert_int_equal(life.late_qp_num, s->p.a.qp->qp_num);
	assert_int_equal(counted(&s->p.a).late, 1);
	expect_zeroes(s->memory->at, LEN);
}

static void write_after_the_close_is_refused(void **state)
{
	struct stage *s = *state;
	uint32_t stag = lend_all(s, 0, 1);

	end_by_b(s, stag, 1);
	fill(s->data->at, LEN, 1);
	refused(s, IBV_WR_RDMA_WRITE, 10, stag, IOVA);
	expect_late(s, stag, STAGDV_STAG_CLOSED);
}

static void read_after_the_close_is_refused(void **state)
{
	struct stage *s = *state;
	uint32_t stag = lend_all(s, 0, 1);

	end_by_b(s, stag, 1);
	refused(s, IBV_WR_RDMA_READ, 10, stag, IOVA);
	expect_late(s, stag, STAGDV_STAG_CLOSED);
}

static void withdrawn_stag_is_refused(void **state)
{
	struct stage *s = *state;
	uint32_t stag = lend_all(s, 0, 55), reference = 0;

	assert_int_equal(stagdv_withdraw(s->p.b.qp, stag, NULL), ENOENT);
	assert_int_equal(stagdv_withdraw(s->p.a.qp, stag ^ 1, NULL), ENOENT);
	assert_int_equal(stagdv_withdraw(s->p.a.qp, stag, &reference), 0);
	assert_int_equal(reference, 55);
	assert_int_equal(stagdv_withdraw(s->p.a.qp, stag, NULL), ENOENT);
	assert_int_equal(counted(&s->p.a).withdrawn, 1);
	fill(s->data->at, LEN, 1);
	refused(s, IBV_WR_RDMA_WRITE, 10, stag, IOVA);
	expect_late(s, stag, STAGDV_STAG_WITHDRAWN);
}

/* An STag of one connection is invalid on another, in either role. */
static void stag_of_another_connection_is_refused(void **state)
{
	struct stage *s = *state;
	struct side_wish same_domain = {.pd = s->p.a.pd};
	struct stage other = {.memory = NULL};
	uint32_t stag = lend_all(s, 0, 1);

	pair_open(&other.p, &same_domain, NULL);
	make_regions(&other);
	fill(other.data->at, LEN, 1);
	post_remote(&other.p.b, IBV_WR_RDMA_WRITE, other.data, 10, stag, IOVA);
	expect_over(&other.p.a, &other.p.b, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(s->memory->at, LEN);
	end_by_b(s, stag, 1); /* it is still open */
	pair_close(&other.p);
}

/* ---- invalid closes ---- */

/* b closes an STag that it may not close: the connection ends, and a is told which STag it was. */
static void wrong_close(struct stage *s, uint32_t stag, enum ibv_event_type event)
{
	uint64_t in = post_receive(&s->p.a, s->in, 0, BODY);
	struct ibv_wc wc;

	close_stag(&s->p.b, s->data, stag, 0);
	wc = expect_failed(&s->p.a, in, IBV_WC_REM_INV_REQ_ERR);
	assert_int_equal(wc.vendor_err, stag);
	expect_over(&s->p.a, &s->p.b, event);
}

static void second_close_is_refused(void **state)
{
	struct stage *s = *state;
	uint32_t stag = lend_all(s, 0, 1), other = lend_all(s, 0, 2);

	end_by_b(s, stag, 1);
	wrong_close(s, stag, IBV_EVENT_QP_REQ_ERR);
	assert_int_equal(life_of(s->p.a.ctx, stag).late, 1);
	assert_int_equal(life_of(s->p.a.ctx, other).end, STAGDV_STAG_ORPHANED);
}

static void close_of_an_unknown_stag_is_refused(void **state)
{
	wrong_close(*state, 0x12345678, IBV_EVENT_QP_REQ_ERR);
}

static void close_by_another_connection_is_refused(void **state)
{
	struct stage *s = *state;
	struct side_wish same_domain = {.pd = s->p.a.pd};
	struct stage other = {.memory = NULL};
	uint32_t stag = lend_all(s, 0, 1);

	pair_open(&other.p, &same_domain, NULL);
	make_regions(&other);
	wrong_close(&other, stag, IBV_EVENT_QP_ACCESS_ERR);
	b_reads(s, stag, LEN, IOVA);
	end_by_b(s, stag, 1);
	pair_close(&other.p);
}

/*
 * Only an advertised STag can be closed: a plain region cannot, nor, by a standard peer, a region
 * of ibv_reg_mr().
 */
static void close_of_a_plain_region_is_refused(void **state)
{
	struct stage *s = *state;
	bool standard = encoding(&s->p.a) == STAGDV_ONE_SHOT_NONE;

	wrong_close(s, s->memory->mr->rkey,
		    standard ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR);
}

/* ---- ends of connections ---- */

static void expect_orphaned(struct stage *s, struct ibv_context *ctx, uint32_t stag)
{
	await(open_stags(ctx) == 0);
	assert_int_equal(life_of(ctx, stag).end, STAGDV_STAG_ORPHANED);
	assert_int_equal(ibv_dereg_mr(s->memory->mr), 0);
	s->memory->mr = NULL;
}

static void disconnect_ends_all_stags(void **state)
{
	struct stage *s = *state;
	uint32_t stag = lend_all(s, 0, 1);

	assert_int_equal(rdma_disconnect(s->p.b.id), 0);
	expect_disconnected(&s->p.a);
	expect_disconnected(&s->p.b);
	expect_orphaned(s, s->p.a.ctx, stag);
}

static void reset_ends_all_stags(void **state)
{
	struct stage *s = *state;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	uint32_t stag = lend_all(s, 0, 1);

	assert_int_equal(ibv_modify_qp(s->p.a.qp, &attr, IBV_QP_STATE), 0);
	expect_orphaned(s, s->p.a.ctx, stag);
}

static void error_state_ends_all_stags(void **state)
{
	struct stage *s = *state;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_sge sge = piece(s->memory, 0, LEN);
	struct lend l = {.memory = &sge, .n = 1};
	uint32_t stag = lend_all(s, 0, 1);

	assert_int_equal(ibv_modify_qp(s->p.a.qp, &attr, IBV_QP_STATE), 0);
	await(open_stags(s->p.a.ctx) == 0);
	assert_int_equal(life_of(s->p.a.ctx, stag).end, STAGDV_STAG_ORPHANED);
	/* A later post is flushed, and its STag ends with it. */
	expect_failed(&s->p.a, advertise(&s->p.a, s->out, &l, &stag), IBV_WC_WR_FLUSH_ERR);
	expect_orphaned(s, s->p.a.ctx, stag);
}

static void destroy_ends_all_stags(void **state)
{
	struct stage *s = *state;
	uint32_t stag = lend_all(s, 0, 1);

	rdma_destroy_qp(s->p.a.id);
	expect_orphaned(s, s->p.a.ctx, stag);
}

/* ---- STags ---- */

static int compare_values(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

static void stags_are_not_reused_soon(void **state)
{
	enum { N = 200 };
	struct stage *s = *state;
	uint32_t stags[N];

	for (uint32_t i = 0; i < N; i++) {
		stags[i] = lend_all(s, 0, i);
		end_by_b(s, stags[i], i);
	}
	qsort(stags, N, sizeof(*stags), compare_values);
	for (int i = 1; i < N; i++)
		assert_int_not_equal(stags[i], stags[i - 1]);
}

/* ---- ways to receive ---- */

static void commands_arrive_at_a_shared_receive_queue(void **state)
{
	struct side_wish shared = {.srq_wr = 16};
	struct stage s = {.memory = NULL};
	uint32_t stag;

	pair_open(&s.p, &shared, &shared);
	make_regions(&s);
	stag = lend_all(&s, 0, 3);
	b_reads(&s, stag, LEN, IOVA);
	end_by_b(&s, stag, 3);
	pair_close(&s.p);
}

static void commands_complete_on_an_extended_cq(void **state)
{
	struct stage *near = *state;
	struct ibv_cq_init_attr_ex attr = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_cq_ex *cq = ibv_create_cq_ex(near->p.a.ctx, &attr);
	struct side_wish extended = {.cq = ibv_cq_ex_to_cq(cq), .quiet = true};
	struct ibv_poll_cq_attr nothing = {0};
	struct stage s = {.memory = NULL};
	uint32_t stag;
	uint64_t in;

	pair_open(&s.p, &extended, NULL);
	make_regions(&s);
	stag = lend_all(&s, 0, 4321);
	in = post_receive(&s.p.a, s.in, 0, BODY);
	expect_sent(&s.p.b, close_stag(&s.p.b, s.data, stag, 0));
	await(ibv_start_poll(cq, &nothing) == 0);
	assert_int_equal(cq->status, IBV_WC_SUCCESS);
	assert_int_equal(cq->wr_id, in);
	assert_int_equal(ibv_wc_read_wc_flags(cq), IBV_WC_WITH_INV | STAGDV_WC_CLOSED);
	assert_int_equal(ibv_wc_read_invalidated_rkey(cq), stag);
	assert_int_equal(ibv_wc_read_vendor_err(cq), 4321);
	ibv_end_poll(cq);
	pair_close(&s.p);
	assert_int_equal(ibv_destroy_cq(extended.cq), 0);
}

static void close_wakes_a_sleeper(void **state)
{
	struct side_wish sleeper = {.channel = true};
	struct stage s = {.memory = NULL};
	struct pollfd p = {.events = POLLIN};
	struct ibv_cq *cq;
	void *context;
	uint32_t stag;
	uint64_t in;

	pair_open(&s.p, &sleeper, NULL);
	make_regions(&s);
	stag = lend_all(&s, 0, 1);
	in = post_receive(&s.p.a, s.in, 0, BODY);
	assert_int_equal(ibv_req_notify_cq(s.p.a.rcq, 1), 0);
	expect_sent(&s.p.b, close_stag(&s.p.b, s.data, stag, IBV_SEND_SOLICITED));
	p.fd = s.p.a.channel->fd;
	assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
	assert_int_equal(ibv_get_cq_event(s.p.a.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	expect_end(&s.p.a, in, stag, 1);
	pair_close(&s.p);
}

/*
 * The literal opcodes are those of RFC 7306, so a connection has either immediate data or literal
 * one-shots.
 */
static void immediate_data_excludes_the_literal_encoding(void **state)
{
	struct stage *s = *state;
	bool literal = encoding(&s->p.a) == STAGDV_ONE_SHOT_LITERAL;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED,
				 .imm_data = 5},
			   *bad;
	uint64_t in = post_receive(&s->p.b, NULL, 0, 0);

	if (literal || getenv("STAG_EXTENSIONS")) {
		assert_int_equal(ibv_post_send(s->p.a.qp, &wr, &bad), EINVAL);
		return;
	}
	expect_sent(&s->p.a, post(&s->p.a, &wr));
	assert_int_equal(expect_received(&s->p.b, in).imm_data, 5);
}

/* ---- cost ---- */

#define TIMES 8

static struct stagdv_counters since(const struct side *s, const struct stagdv_counters *before)
{
	struct stagdv_counters now = counted_in_all(s), own = counted(s);

	now.registrations -= before->registrations;
	now.posts = own.posts - before->posts;
	now.completions = own.completions - before->completions;
	return now;
}

static struct stagdv_counters from_here(const struct side *s)
{
	struct stagdv_counters c = counted(s);

	c.registrations = counted_in_all(s).registrations;
	return c;
}

static void write_by_one_shot(struct stage *s, uint32_t i)
{
	uint64_t calls = counted(&s->p.a).tx_calls;
	uint32_t stag = lend_all(s, IBV_ACCESS_REMOTE_READ, i);

	assert_int_equal(counted(&s->p.a).tx_calls, calls + 1);
	b_reads(s, stag, LEN, IOVA);
	end_by_b(s, stag, i);
}

static uint64_t bind_window(struct stage *s, struct ibv_mw *mw, struct ibv_mr *mr)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = mw->rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){.mr = mr,
							 .addr = (uintptr_t)s->memory->at,
							 .length = LEN,
							 .mw_access_flags = IBV_ACCESS_REMOTE_READ};
	return post(&s->p.a, &wr);
}

/* Figure 3: register, bind, send; and at the end unbind, deregister. */
static void write_by_hand(struct stage *s, struct ibv_mw *mw)
{
	struct ibv_mr *mr = ibv_reg_mr(s->p.a.pd, s->memory->at, LEN, IBV_ACCESS_MW_BIND);
	uint64_t in = post_receive(&s->p.b, s->got, 0, BODY),
		 end = post_receive(&s->p.a, s->in, 0, BODY);
	struct ibv_send_wr inv = {.opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_sge body = piece(s->out, 0, BODY);
	struct ibv_send_wr send = {.opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED,
				   .sg_list = &body,
				   .num_sge = 1};

	assert_non_null(mr);
	expect_sent(&s->p.a, bind_window(s, mw, mr));
	expect_sent(&s->p.a, post(&s->p.a, &send));
	expect_received(&s->p.b, in);
	b_reads(s, mw->rkey, LEN, (uintptr_t)s->memory->at);
	expect_sent(&s->p.b, post_send(&s->p.b, s->data, 0, BODY));
	expect_received(&s->p.a, end);
	inv.invalidate_rkey = mw->rkey;
	expect_sent(&s->p.a, post(&s->p.a, &inv));
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/*
 * Several requests posted at once are transmitted by the last one's call. With markers each is sent
 * by a call of its own, but not before.
 */
static void commands_posted_together_are_sent_together(void **state)
{
	enum { MANY = 8 };
	struct stage *s = *state;
	struct ibv_sge sge = piece(s->memory, 0, LEN);
	struct region *got[MANY];
	uint64_t in[MANY], ids[MANY], calls = counted(&s->p.a).tx_calls;
	uint32_t stags[MANY];

	for (int i = 0; i < MANY; i++) {
		got[i] = own_region(&s->p.b, BODY);
		in[i] = post_receive(&s->p.b, got[i], 0, BODY);
	}
	for (int i = 0; i < MANY; i++) {
		struct lend l = {.memory = &sge,
				 .n = 1,
				 .iova = IOVA,
				 .reference = (uint32_t)i,
				 .flags = i < MANY - 1 ? STAGDV_SEND_MORE : 0};

		assert_int_equal(counted(&s->p.a).tx_calls, calls);
		ids[i] = advertise(&s->p.a, own_region(&s->p.a, BODY), &l, &stags[i]);
	}
	if (!getenv("STAG_MARKERS"))
		assert_int_equal(counted(&s->p.a).tx_calls, calls + 1);
	for (int i = 0; i < MANY; i++) {
		expect_sent(&s->p.a, ids[i]);
		assert_int_equal(expect_command(&s->p.b, in[i], got[i]), stags[i]);
	}
	for (int i = 0; i < MANY; i++)
		end_by_b(s, stags[i], (uint32_t)i);
}

/* Counts a 4 KiB write with the adapter's counters, at the commanding side. */
static void command_costs_one_post_and_one_completion(void **state)
{
	struct side_wish quiet = {.quiet = true};
	struct stage s = {.memory = NULL};
	struct stagdv_counters c;
	struct ibv_mw *mw;

	pair_open(&s.p, &quiet, NULL);
	make_regions(&s);
	mw = ibv_alloc_mw(s.p.a.pd, IBV_MW_TYPE_2);
	assert_non_null(mw);
	c = from_here(&s.p.a);
	for (uint32_t i = 0; i < TIMES; i++)
		write_by_one_shot(&s, i);
	c = since(&s.p.a, &c);
	print_message("  a 4 KiB write by one-shot: %.3f posts, %.3f completions, %.3f keys\n",
		      (double)c.posts / TIMES, (double)c.completions / TIMES,
		      (double)c.registrations / TIMES);
	assert_int_equal(c.posts, TIMES);
	assert_int_equal(c.completions, TIMES);
	assert_int_equal(c.registrations, TIMES);
	c = from_here(&s.p.a);
	for (uint32_t i = 0; i < TIMES; i++)
		write_by_hand(&s, mw);
	c = since(&s.p.a, &c);
	print_message("  by register, bind, send, unbind, deregister: %.3f posts, %.3f "
		      "completions, %.3f keys\n",
		      (double)c.posts / TIMES, (double)c.completions / TIMES,
		      (double)c.registrations / TIMES);
	assert_int_equal(c.posts, 3 * TIMES);
	assert_int_equal(c.completions, 4 * TIMES);
	assert_int_equal(c.registrations, 2 * TIMES);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	pair_close(&s.p);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, stage_open, stage_close)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(agreed_parameters_are_those_requested),
		STORY(data_and_close_are_posted_in_one_list),
		STORY(write_command_is_served_by_reads),
		STORY(read_command_is_served_by_writes),
		STORY(inline_body_is_copied),
		STORY(command_needs_no_body),
		STORY(send_with_invalidate_closes_a_command),
		STORY(open_commands_close_in_any_order),
		STORY(pieces_of_several_regions_are_one_range),
		STORY(memory_that_may_not_be_advertised_is_refused),
		STORY(invalid_advertise_requests_are_refused),
		STORY(advertised_region_cannot_be_deregistered),
		STORY(write_without_the_right_is_refused),
		STORY(read_without_the_right_is_refused),
		STORY(write_past_the_end_is_refused),
		STORY(read_before_the_beginning_is_refused),
		STORY(write_after_the_close_is_refused),
		STORY(read_after_the_close_is_refused),
		STORY(withdrawn_stag_is_refused),
		STORY(stag_of_another_connection_is_refused),
		STORY(second_close_is_refused),
		STORY(close_of_an_unknown_stag_is_refused),
		STORY(close_by_another_connection_is_refused),
		STORY(close_of_a_plain_region_is_refused),
		STORY(disconnect_ends_all_stags),
		STORY(reset_ends_all_stags),
		STORY(error_state_ends_all_stags),
		STORY(destroy_ends_all_stags),
		STORY(stags_are_not_reused_soon),
		STORY(commands_arrive_at_a_shared_receive_queue),
		STORY(commands_complete_on_an_extended_cq),
		STORY(close_wakes_a_sleeper),
		STORY(immediate_data_excludes_the_literal_encoding),
		STORY(commands_posted_together_are_sent_together),
		STORY(command_costs_one_post_and_one_completion),
	};

	return cmocka_run_group_tests_name("one_shot", tests, NULL, NULL);
}
