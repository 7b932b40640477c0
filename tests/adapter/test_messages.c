// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_messages.c - messages arrive whatever their size and shape. Run in each way of framing.
 */
#include "side.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ALL_REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static const size_t sizes[] = {
	0,    1,    2,	  3,	4,     63,    64,     1023,	     1024,
	1025, 1428, 4096, 8192, 65535, 65536, 100000, (1 << 20) + 1, 3 << 20};
#define N_SIZES (sizeof(sizes) / sizeof(*sizes))
#define MOST	(4 << 20)

static int open_pair(void **state)
{
	static const struct side_wish w = {.sge = 32, .inline_data = 4096};
	struct pair *p = calloc(1, sizeof(*p));

	pair_open(p, &w, &w);
	*state = p;
	return 0;
}

static int close_pair(void **state)
{
	pair_close(*state);
	free(*state);
	return 0;
}

static bool extended(void)
{
	const char *v = getenv("STAG_EXTENSIONS");

	return !v || strcmp(v, "off");
}

static void sends_of_every_size_arrive(void **state)
{
	struct pair *p = *state;
	struct region *from = own_region(&p->a, MOST), *to = own_region(&p->b, MOST);

	for (unsigned i = 0; i < N_SIZES; i++) {
		uint64_t in = post_receive(&p->b, to, 0, MOST), out;

		fill(from->at, sizes[i], i);
		memset(to->at, 0, sizes[i] + 64);
		out = post_send(&p->a, from, 0, sizes[i]);
		assert_int_equal(expect_received(&p->b, in).byte_len, sizes[i]);
		expect_sent(&p->a, out);
		expect_filled(to->at, sizes[i], i);
		expect_zeroes(to->at + sizes[i], 64);
	}
}

static void writes_and_reads_of_every_size_arrive(void **state)
{
	struct pair *p = *state;
	struct region *mine = own_region(&p->a, MOST), *lent = lend_region(&p->b, MOST, ALL_REMOTE);

	for (unsigned i = 0; i < N_SIZES; i++) {
		uint64_t written, read;

		fill(mine->at, sizes[i], 100 + i);
		memset(lent->at, 0, sizes[i] + 128);
		written = post_write(&p->a, mine, 0, sizes[i], lent, 7);
		expect_sent(&p->a, written);
		/* a read behind a write sees it */
		memset(mine->at, 0, sizes[i] + 64);
		read = post_read(&p->a, mine, 0, sizes[i], lent, 7);
		assert_int_equal(expect_sent(&p->a, read).byte_len, sizes[i]);
		expect_filled(lent->at + 7, sizes[i], 100 + i);
		expect_filled(mine->at, sizes[i], 100 + i);
		expect_zeroes(lent->at, 7);
		expect_zeroes(lent->at + 7 + sizes[i], 64);
		expect_zeroes(mine->at + sizes[i], 64);
	}
}

/* A message that fills a receive buffer, or a region, to its last byte. */
static void message_may_fill_its_buffer_exactly(void **state)
{
	struct pair *p = *state;
	struct region *from = own_region(&p->a, 70001), *to = own_region(&p->b, 70001);
	uint64_t in = post_receive(&p->b, to, 0, 70001), out;

	fill(from->at, 70001, 5);
	out = post_send(&p->a, from, 0, 70001);
	expect_received(&p->b, in);
	expect_sent(&p->a, out);
	expect_filled(to->at, 70001, 5);
}

/* Cuts a region into 32 pieces of odd lengths, which differ between the two sides. */
static uint32_t cut_into_pieces(struct ibv_sge *sge, const struct region *r, unsigned step)
{
	size_t off = 0;

	for (unsigned i = 0; i < 32; i++) {
		size_t len = i % 5 == 4 ? 0 : step + i * 7;

		sge[i] = piece(r, off, len);
		off += len + 3; /* gaps between them */
	}
	return 32;
}

static void gather(uint8_t *to, const struct ibv_sge *sge)
{
	for (unsigned i = 0; i < 32; i++) {
		memcpy(to, (void *)(uintptr_t)sge[i].addr, sge[i].length);
		to += sge[i].length;
	}
}

static size_t total(const struct ibv_sge *sge)
{
	size_t n = 0;

	for (unsigned i = 0; i < 32; i++)
		n += sge[i].length;
	return n;
}

static void many_pieces(struct pair *p, unsigned step)
{
	struct region *from = own_region(&p->a, 1 << 20), *to = own_region(&p->b, 1 << 20);
	struct ibv_sge out[32], in[32];
	struct ibv_recv_wr rwr = {.sg_list = in}, *rbad;
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = out};
	uint8_t *sent, *got;
	size_t len;

	wr.num_sge = (int)cut_into_pieces(out, from, step);
	rwr.num_sge = (int)cut_into_pieces(in, to, step + 11);
	len = total(out);
	sent = malloc(len);
	got = malloc(total(in));
	fill(from->at, from->len, step);
	rwr.wr_id = note_posted(&p->b, false);
	assert_int_equal(ibv_post_recv(p->b.qp, &rwr, &rbad), 0);
	post(&p->a, &wr);
	assert_int_equal(expect_received(&p->b, rwr.wr_id).byte_len, len);
	expect_sent(&p->a, wr.wr_id);
	gather(sent, out);
	gather(got, in);
	assert_memory_equal(sent, got, len);
	free(sent);
	free(got);
	drop_region(&p->a, from);
	drop_region(&p->b, to);
}

static void message_is_gathered_from_and_scattered_to_many_pieces(void **state)
{
	many_pieces(*state, 1);
	many_pieces(*state, 100);
	many_pieces(*state, 300);
	many_pieces(*state, 900);
	many_pieces(*state, 4000);
	many_pieces(*state, 20000);
}

/*
 * Returns a write of 32 pieces, alternately from two regions; the last one ends where its region
 * does.
 */
static struct ibv_send_wr write_by_turns(struct region *const from[2], struct region *to,
					 struct ibv_sge *sge, size_t len)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = sge, .num_sge = 32};

	for (unsigned i = 0; i < 32; i++)
		sge[i] = piece(from[i % 2], i * (len + 1), len);
	sge[30] = piece(from[1], 0, len);
	sge[31] = piece(from[1], from[1]->len - 2, 2);
	wr.wr.rdma.remote_addr = (uintptr_t)to->at;
	wr.wr.rdma.rkey = to->mr->rkey;
	return wr;
}

static void small_pieces_of_two_regions_come_in_order(void **state)
{
	struct pair *p = *state;
	struct region *from[2] = {own_region(&p->a, 65536), own_region(&p->a, 65536)};
	struct region *to = lend_region(&p->b, 65536, ALL_REMOTE), *sink = own_region(&p->a, 64);

	fill(from[0]->at, 65536, 1);
	fill(from[1]->at, 65536, 2);
	for (size_t len = 1; len < 1100; len = len * 3 + 5) {
		struct ibv_sge sge[32];
		struct ibv_send_wr wr = write_by_turns(from, to, sge, len);
		uint8_t sent[32 * 1100];

		memset(to->at, 0, to->len);
		expect_sent(&p->a, post(&p->a, &wr));
		expect_sent(&p->a,
			    post_read(&p->a, sink, 0, 1, to,
				      0)); /* when the read completes, the write has been placed */
		gather(sent, sge);
		assert_memory_equal(to->at, sent, total(sge));
		expect_zeroes(to->at + total(sge), 64);
	}
}

static void invalid_sge_among_small_ones_fails_the_write(void **state)
{
	struct pair *p = *state;
	struct region *from[2] = {own_region(&p->a, 65536), own_region(&p->a, 65536)};
	struct region *to = lend_region(&p->b, 65536, ALL_REMOTE);
	struct ibv_sge sge[32];
	struct ibv_send_wr wr = write_by_turns(from, to, sge, 100);

	sge[31].length = 3; /* one byte behind the end */
	fill(from[0]->at, 65536, 1);
	expect_failed(&p->a, post(&p->a, &wr), IBV_WC_LOC_PROT_ERR);
	expect_state(&p->a, IBV_QPS_ERR);
	expect_zeroes(to->at, to->len);
}

static void read_is_scattered_into_many_pieces(void **state)
{
	struct pair *p = *state;
	struct region *sink = own_region(&p->a, 1 << 20),
		      *lent = lend_region(&p->b, 1 << 20, ALL_REMOTE);
	struct ibv_sge in[32];
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ, .sg_list = in};
	uint8_t *got;

	wr.num_sge = (int)cut_into_pieces(in, sink, 9000);
	wr.wr.rdma.remote_addr = (uintptr_t)lent->at;
	wr.wr.rdma.rkey = lent->mr->rkey;
	fill(lent->at, lent->len, 77);
	expect_sent(&p->a, post(&p->a, &wr));
	got = malloc(total(in));
	gather(got, in);
	expect_filled(got, total(in), 77);
	free(got);
}

/* The memory is the caller's again when the post returns. */
static void inline_data_is_copied(void **state)
{
	struct pair *p = *state;
	struct region *in = own_region(&p->b, 8192), *lent = lend_region(&p->b, 8192, ALL_REMOTE);

	for (size_t len = 0; len <= 4096; len = len ? len * 4 : 1) {
		uint8_t data[4096];
		struct ibv_sge sge[2] = {{.addr = (uintptr_t)data, .length = (uint32_t)len / 2}};
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_INLINE,
					 .sg_list = sge,
					 .num_sge = 2};
		uint64_t rid = post_receive(&p->b, in, 0, 8192), written;

		sge[1].addr = (uintptr_t)data + len / 2;
		sge[1].length = (uint32_t)(len - len / 2);
		fill(data, len, 9);
		wr.wr.rdma.remote_addr = (uintptr_t)lent->at;
		wr.wr.rdma.rkey = lent->mr->rkey;
		written = post(&p->a, &wr);
		wr.opcode = IBV_WR_SEND;
		wr.wr_id = 0;
		post(&p->a, &wr);
		memset(data, 0, sizeof(data));
		expect_sent(&p->a, written);
		expect_sent(&p->a, wr.wr_id);
		expect_received(&p->b, rid); /* so the write before it has been placed, too */
		expect_filled(in->at, len, 9);
		expect_filled(lent->at, len, 9);
		memset(lent->at, 0, 8192);
	}
}

static void request_beyond_the_limits_is_refused_at_the_post(void **state)
{
	struct pair *p = *state;
	struct region *r = own_region(&p->a, 8192);
	struct ibv_sge sge[33];
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 2}, *bad = NULL;

	for (int i = 0; i < 33; i++)
		sge[i] = piece(r, 0, 0);
	sge[0].length = UINT32_MAX; /* more than 4 GiB: no DDP message is so long */
	sge[1].length = 1;
	assert_int_equal(ibv_post_send(p->a.qp, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	sge[0].length = 0;
	wr.num_sge = 33;
	assert_int_equal(ibv_post_send(p->a.qp, &wr, &bad), EINVAL);
	sge[0] = piece(r, 0, 4097);
	wr.num_sge = 1;
	wr.send_flags = IBV_SEND_INLINE;
	assert_int_equal(ibv_post_send(p->a.qp, &wr, &bad), EINVAL);
	expect_state(&p->a, IBV_QPS_RTS);
	ping(p);
}

static void messages_of_zero_bytes_arrive(void **state)
{
	struct pair *p = *state;
	struct region *mine = own_region(&p->a, 8), *lent = lend_region(&p->b, 8, ALL_REMOTE);
	uint64_t in = post_receive(&p->b, NULL, 0, 0), id[4];
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE};

	id[0] = post(&p->a, &wr); /* no SGE, no address, no key */
	wr.wr_id = 0;
	wr.opcode = IBV_WR_RDMA_READ;
	id[1] = post(&p->a, &wr);
	id[2] = post_read(&p->a, mine, 0, 0, lent, 0);
	id[3] = post_send(&p->a, NULL, 0, 0);
	for (int i = 0; i < 4; i++)
		assert_int_equal(expect_sent(&p->a, id[i]).status, IBV_WC_SUCCESS);
	assert_int_equal(expect_received(&p->b, in).byte_len, 0);
}

/* ---- immediate data ---- */

static void write_with_immediate_completes_a_receive(void **state)
{
	struct pair *p = *state;
	struct region *from = own_region(&p->a, 200000),
		      *lent = lend_region(&p->b, 200000, ALL_REMOTE);
	static const uint32_t lens[] = {0, 5, 200000, 0};

	if (!extended())
		skip();
	for (unsigned i = 0; i < 4; i++) {
		struct ibv_sge sge = piece(from, 0, lens[i]);
		struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
					 .imm_data = htobe32(0xfeed0000 + i),
					 .sg_list = &sge,
					 .num_sge = 1};
		uint64_t in = post_receive(&p->b, NULL, 0, 0);
		struct ibv_wc wc;

		wr.wr.rdma.remote_addr = (uintptr_t)lent->at;
		wr.wr.rdma.rkey = lent->mr->rkey;
		fill(from->at, lens[i], i);
		expect_sent(&p->a, post(&p->a, &wr));
		wc = expect_received(&p->b, in);
		assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
		assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
		assert_int_equal(be32toh(wc.imm_data), 0xfeed0000 + i);
		assert_int_equal(wc.byte_len, lens[i]);
		expect_filled(lent->at, lens[i], i);
	}
}

static void send_with_immediate_carries_it(void **state)
{
	struct pair *p = *state;
	struct region *from = own_region(&p->a, 200000), *to = own_region(&p->b, 200000);
	static const uint32_t lens[] = {0, 5, 200000};

	if (!extended())
		skip();
	for (unsigned i = 0; i < 3; i++) {
		struct ibv_sge sge = piece(from, 0, lens[i]);
		struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_IMM,
					 .imm_data = htobe32(0xbeef0000 + i),
					 .sg_list = &sge,
					 .num_sge = 1};
		uint64_t in = post_receive(&p->b, to, 0, 200000);
		struct ibv_wc wc;

		fill(from->at, lens[i], i);
		expect_sent(&p->a, post(&p->a, &wr));
		wc = expect_received(&p->b, in);
		assert_int_equal(wc.opcode, IBV_WC_RECV);
		assert_true(wc.wc_flags & IBV_WC_WITH_IMM);
		assert_int_equal(be32toh(wc.imm_data), 0xbeef0000 + i);
		assert_int_equal(wc.byte_len, lens[i]);
		expect_filled(to->at, lens[i], i);
	}
}

/* A peer that did not agree on the extensions is never sent one. */
static void extensions_not_agreed_are_refused_at_the_post(void **state)
{
	static const enum ibv_wr_opcode ops[] = {IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND_WITH_IMM,
						 IBV_WR_ATOMIC_CMP_AND_SWP,
						 IBV_WR_ATOMIC_FETCH_AND_ADD};
	struct pair *p = *state;
	struct region *r = own_region(&p->a, 8);
	struct ibv_sge sge = piece(r, 0, 8);

	if (extended())
		skip();
	for (unsigned i = 0; i < 4; i++) {
		struct ibv_send_wr wr = {.opcode = ops[i], .sg_list = &sge, .num_sge = 1}, *bad;

		assert_int_equal(ibv_post_send(p->a.qp, &wr, &bad), EINVAL);
	}
	ping(p);
}

/* ---- atomics ---- */

static uint64_t atomic(struct pair *p, enum ibv_wr_opcode op, struct region *sink,
		       struct region *there, uint64_t compare_add, uint64_t swap)
{
	struct ibv_sge sge = piece(sink, 0, 8);
	struct ibv_send_wr wr = {.opcode = op, .sg_list = &sge, .num_sge = 1};

	wr.wr.atomic.remote_addr = (uintptr_t)there->at;
	wr.wr.atomic.rkey = there->mr->rkey;
	wr.wr.atomic.compare_add = compare_add;
	wr.wr.atomic.swap = swap;
	expect_sent(&p->a, post(&p->a, &wr));
	return *(uint64_t *)sink->at;
}

static void atomics_return_the_previous_value(void **state)
{
	struct pair *p = *state;
	struct region *sink, *there;
	uint64_t *word;

	if (!extended())
		skip();
	sink = own_region(&p->a, 8);
	there = lend_region(&p->b, 8, IBV_ACCESS_REMOTE_ATOMIC);
	word = (uint64_t *)there->at;
	*word = UINT64_MAX;
	assert_int_equal(atomic(p, IBV_WR_ATOMIC_FETCH_AND_ADD, sink, there, 3, 0), UINT64_MAX);
	assert_int_equal(*word, 2);
	assert_int_equal(atomic(p, IBV_WR_ATOMIC_CMP_AND_SWP, sink, there, 3, 9), 2);
	assert_int_equal(*word, 2);
	assert_int_equal(atomic(p, IBV_WR_ATOMIC_CMP_AND_SWP, sink, there, 2, 9), 2);
	assert_int_equal(*word, 9);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(sends_of_every_size_arrive, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(writes_and_reads_of_every_size_arrive, open_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(message_may_fill_its_buffer_exactly, open_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(
			message_is_gathered_from_and_scattered_to_many_pieces, open_pair,
			close_pair),
		cmocka_unit_test_setup_teardown(small_pieces_of_two_regions_come_in_order,
						open_pair, close_pair),
		cmocka_unit_test_setup_teardown(invalid_sge_among_small_ones_fails_the_write,
						open_pair, close_pair),
		cmocka_unit_test_setup_teardown(read_is_scattered_into_many_pieces, open_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(inline_data_is_copied, open_pair, close_pair),
		cmocka_unit_test_setup_teardown(request_beyond_the_limits_is_refused_at_the_post,
						open_pair, close_pair),
		cmocka_unit_test_setup_teardown(messages_of_zero_bytes_arrive, open_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(write_with_immediate_completes_a_receive, open_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(send_with_immediate_carries_it, open_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(extensions_not_agreed_are_refused_at_the_post,
						open_pair, close_pair),
		cmocka_unit_test_setup_teardown(atomics_return_the_previous_value, open_pair,
						close_pair),
	};

	return cmocka_run_group_tests_name("messages", tests, NULL, NULL);
}
