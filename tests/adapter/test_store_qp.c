// SPDX-License-Identifier: BSD-2-Clause
/*
 * A local queue pair on storage: the result of every opcode, their order, and their failures.
 */
#include "storage.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "asleep.h"
#include "dice.h"

static enum backing backing;

struct scene {
	struct storage s;
	struct user u;
};

static int open_scene(void **state)
{
	struct scene *t = calloc(1, sizeof(*t));

	storage_open(&t->s, backing);
	user_open(&t->u, &t->s, NULL);
	*state = t;
	return 0;
}

static int close_scene(void **state)
{
	struct scene *t = *state;

	user_close(&t->u);
	storage_close(&t->s);
	free(t);
	return 0;
}

/* ---- each opcode ---- */

static void a_write_is_on_the_medium_and_a_read_finds_it(void **state)
{
	struct scene *t = *state;

	dice_fill(t->s.mem, 64 * KIB);
	post_write(&t->u, 1, 0, 64 * KIB, 128 * KIB, 0);
	expect_done(&t->u, 1);
	expect_on_medium(&t->u, t->s.mem, 64 * KIB, 128 * KIB);
	post_read(&t->u, 2, MIB, 64 * KIB, 128 * KIB, 0);
	expect_done(&t->u, 2);
	assert_memory_equal(t->s.mem, t->s.mem + MIB, 64 * KIB);
}

/* Whatever the alignment of either side; the bytes around stay unchanged. */
static void any_offset_and_length_is_written_and_read(void **state)
{
	struct scene *t = *state;
	uint8_t *image = calloc(1, SPACE);
	unsigned long n = lessened(200);

	for (unsigned long i = 0; i < n; i++) {
		uint32_t len = (uint32_t)dice_size(100000);
		uint64_t to = dice(SPACE - len);
		size_t at = dice(SPACE / 2 - len);

		dice_fill(t->s.mem + at, len);
		post_write(&t->u, i, at, len, to, 0);
		expect_done(&t->u, i);
		memcpy(image + to, t->s.mem + at, len);
		post_read(&t->u, i, SPACE / 2 + at, len, to, 0);
		expect_done(&t->u, i);
		assert_memory_equal(t->s.mem + SPACE / 2 + at, image + to, len);
	}
	expect_on_medium(&t->u, image, SPACE, 0);
	free(image);
}

static void pieces_are_gathered_and_scattered(void **state)
{
	struct scene *t = *state;
	struct ibv_sge sge[3] = {piece(&t->s, 100, 1000), piece(&t->s, 8192, 4096),
				 piece(&t->s, 50000, 7)};
	struct ibv_send_wr wr = request(&t->u, 1, IBV_WR_RDMA_WRITE, sge, 4096);
	uint8_t whole[5103];

	dice_fill(t->s.mem, 65536);
	memcpy(whole, t->s.mem + 100, 1000);
	memcpy(whole + 1000, t->s.mem + 8192, 4096);
	memcpy(whole + 5096, t->s.mem + 50000, 7);
	wr.num_sge = 3;
	post(&t->u, &wr);
	expect_done(&t->u, 1);
	expect_on_medium(&t->u, whole, sizeof(whole), 4096);
	memset(t->s.mem, 0, 65536);
	wr.opcode = IBV_WR_RDMA_READ;
	post(&t->u, &wr);
	expect_done(&t->u, 1);
	assert_memory_equal(t->s.mem + 100, whole, 1000);
	assert_memory_equal(t->s.mem + 8192, whole + 1000, 4096);
	assert_memory_equal(t->s.mem + 50000, whole + 5096, 7);
	assert_int_equal(t->s.mem[99] | t->s.mem[1100] | t->s.mem[50007], 0);
}

static void inline_data_is_copied_by_the_post(void **state)
{
	struct scene *t = *state;
	char text[] = "said and forgotten";
	struct ibv_sge sge = {.addr = (uintptr_t)text, .length = sizeof(text)};
	struct ibv_send_wr wr = request(&t->u, 1, IBV_WR_RDMA_WRITE, &sge, 777);

	wr.send_flags |= IBV_SEND_INLINE;
	post(&t->u, &wr);
	memset(text, 0, sizeof(text));
	expect_done(&t->u, 1);
	expect_on_medium(&t->u, "said and forgotten", sizeof(text), 777);
}

static void immediate_completes_a_receive_of_the_same_queue_pair(void **state)
{
	struct scene *t = *state;
	struct ibv_sge sge = piece(&t->s, 0, 512);
	struct ibv_send_wr wr = request(&t->u, 1, IBV_WR_RDMA_WRITE_WITH_IMM, &sge, 0);
	struct ibv_wc wc;

	dice_fill(t->s.mem, 512);
	wr.imm_data = htobe32(0x12345678);
	post_receive(&t->u, 55);
	post(&t->u, &wr);
	wc = await_wc(t->u.rcq);
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(wc.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
	assert_int_equal(wc.wr_id, 55);
	assert_int_equal(wc.byte_len, 512);
	assert_int_equal(wc.wc_flags, IBV_WC_WITH_IMM);
	assert_int_equal(be32toh(wc.imm_data), 0x12345678);
	expect_on_medium(&t->u, t->s.mem, 512, 0);
	expect_done(&t->u, 1);
}

static void immediate_without_a_receive_is_an_error(void **state)
{
	struct scene *t = *state;
	struct ibv_send_wr wr = request(&t->u, 1, IBV_WR_RDMA_WRITE_WITH_IMM, NULL, 0);

	post(&t->u, &wr);
	expect_failed(&t->u, 1, IBV_WC_RNR_RETRY_EXC_ERR);
	expect_state(&t->u, IBV_QPS_ERR);
}

static void atomics_return_the_previous_value(void **state)
{
	struct scene *t = *state;
	uint64_t *found = (uint64_t *)t->s.mem, there = 40;

	poke(&t->s, &there, sizeof(there), 4104);
	post_add(&t->u, 1, 0, 4104, 2);
	expect_done(&t->u, 1);
	assert_int_equal(found[0], 40);
	post_swap(&t->u, 2, 8, 4104, 42, 1000);
	expect_done(&t->u, 2);
	assert_int_equal(found[1], 42);
	post_swap(&t->u, 3, 16, 4104, 42, 2000);
	expect_done(&t->u, 3);
	assert_int_equal(found[2], 1000);
	there = 1000;
	expect_on_medium(&t->u, &there, sizeof(there), 4104);
}

static void requests_of_zero_bytes_succeed(void **state)
{
	struct scene *t = *state;
	struct ibv_send_wr wr = request(&t->u, 1, IBV_WR_RDMA_WRITE, NULL, 0);

	wr.wr.rdma.rkey = 1; /* RFC 5041: the key of an empty request is not checked */
	post(&t->u, &wr);
	expect_done(&t->u, 1);
	wr.opcode = IBV_WR_RDMA_READ;
	post(&t->u, &wr);
	expect_done(&t->u, 1);
}

static void completions_report_opcode_and_length(void **state)
{
	struct scene *t = *state;
	static const enum ibv_wc_opcode opcode[] = {IBV_WC_RDMA_WRITE, IBV_WC_RDMA_READ,
						    IBV_WC_FETCH_ADD, IBV_WC_COMP_SWAP,
						    IBV_WC_DRIVER1};

	post_write(&t->u, 0, 0, 4096, 0, 0);
	post_read(&t->u, 1, 4096, 4096, 0, 0);
	post_add(&t->u, 2, 8192, 0, 1);
	post_swap(&t->u, 3, 8200, 0, 0, 1);
	post_barrier(&t->u, 4);
	for (uint64_t i = 0; i < 5; i++) {
		struct ibv_wc wc = await_wc(t->u.scq);

		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.opcode, opcode[i]);
	}
}

static void sends_are_refused(void **state)
{
	struct scene *t = *state;
	struct ibv_sge sge = piece(&t->s, 0, 8);
	struct ibv_send_wr wr = request(&t->u, 1, IBV_WR_SEND, &sge, 0), *bad = NULL;

	assert_int_equal(ibv_post_send(t->u.qp, &wr, &bad), EINVAL);
	assert_ptr_equal(bad, &wr);
	post_read(&t->u, 2, 0, 8, 0, 0);
	expect_done(&t->u, 2);
}

/* Posts with the ibv_wr_*() calls, in one bracket. */
static void requests_are_posted_by_the_ibv_wr_calls(void **state)
{
	struct scene *t = *state;
	struct ibv_qp_init_attr_ex init = {
		.send_cq = t->u.scq,
		.recv_cq = t->u.rcq,
		.cap = {.max_send_wr = 8, .max_send_sge = 1},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = t->s.pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
				  IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT};
	struct ibv_qp *qp = ibv_create_qp_ex(t->s.ctx, &init);
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);

	assert_int_equal(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(stagdv_connect_store(qp, NULL), 0);
	memset(t->s.mem, 7, 4096);
	ibv_wr_start(ex);
	ex->wr_flags = IBV_SEND_SIGNALED | STAGDV_SEND_DURABLE;
	ex->wr_id = 1;
	ibv_wr_rdma_write(ex, t->s.region->rkey, 0);
	ibv_wr_set_sge(ex, t->s.mr->lkey, (uintptr_t)t->s.mem, 4096);
	ex->wr_id = 2;
	ibv_wr_rdma_read(ex, t->s.region->rkey, 0);
	ibv_wr_set_sge(ex, t->s.mr->lkey, (uintptr_t)t->s.mem + 4096, 4096);
	ex->wr_id = 3;
	ibv_wr_atomic_fetch_add(ex, t->s.region->rkey, 0, 1);
	ibv_wr_set_sge(ex, t->s.mr->lkey, (uintptr_t)t->s.mem + 8192, 8);
	assert_int_equal(ibv_wr_complete(ex), 0);
	for (uint64_t i = 1; i <= 3; i++)
		assert_int_equal(await_wc(t->u.scq).wr_id, i);
	assert_memory_equal(t->s.mem, t->s.mem + 4096, 4096);
	assert_memory_equal(t->s.mem, t->s.mem + 8192, 8);
	assert_int_equal(ibv_destroy_qp(qp), 0);
}

static void fast_registration_and_invalidation_complete_in_order(void **state)
{
	struct scene *t = *state;
	struct ibv_mr *fast = stagdv_alloc_fast_mr(t->s.pd, 4);
	struct ibv_sge pieces[3] = {piece(&t->s, 0, 1024), piece(&t->s, 4096, 1024),
				    piece(&t->s, 65536, 2048)};
	struct stagdv_fast_reg reg = {.wr_id = 1,
				      .mr = fast,
				      .sg_list = pieces,
				      .num_sge = 3,
				      .access = IBV_ACCESS_LOCAL_WRITE,
				      .iova = 0x1000,
				      .key = fast->rkey ^ 1,
				      .send_flags = IBV_SEND_SIGNALED};
	struct ibv_sge sge = {.addr = 0x1000, .length = 4096, .lkey = reg.key};
	struct ibv_send_wr wr = request(&t->u, 2, IBV_WR_RDMA_READ, &sge, 8192);
	struct ibv_send_wr inv = {.wr_id = 3,
				  .opcode = IBV_WR_LOCAL_INV,
				  .send_flags = IBV_SEND_SIGNALED,
				  .invalidate_rkey = reg.key};
	uint8_t bytes[4096];

	dice_fill(bytes, sizeof(bytes));
	poke(&t->s, bytes, sizeof(bytes), 8192);
	assert_int_equal(stagdv_post_fast_reg(t->u.qp, &reg), 0);
	post(&t->u, &wr);
	post(&t->u, &inv);
	for (uint64_t i = 1; i <= 3; i++)
		expect_done(&t->u, i);
	assert_memory_equal(t->s.mem, bytes, 1024);
	assert_memory_equal(t->s.mem + 4096, bytes + 1024, 1024);
	assert_memory_equal(t->s.mem + 65536, bytes + 2048, 2048);
	wr.wr_id = 4;
	post(&t->u, &wr);
	expect_failed(&t->u, 4, IBV_WC_LOC_PROT_ERR);
	assert_int_equal(ibv_dereg_mr(fast), 0);
}

/* ---- order ---- */

static void a_read_finds_the_write_before_it(void **state)
{
	struct scene *t = *state;
	unsigned long n = lessened(500);

	for (unsigned long i = 0; i < n; i++) {
		uint64_t at = dice(16) * 512;

		dice_fill(t->s.mem, 4096);
		post_write(&t->u, 1, 0, 4096, at, 0);
		post_read(&t->u, 2, 8192, 4096, at, 0);
		expect_done(&t->u, 1);
		expect_done(&t->u, 2);
		assert_memory_equal(t->s.mem, t->s.mem + 8192, 4096);
	}
}

/* A copy within the region: without the fence the write may start before the read has finished. */
static void a_fence_waits_for_the_read(void **state)
{
	struct scene *t = *state;
	uint8_t bytes[4096];
	unsigned long n = lessened(300);

	for (unsigned long i = 0; i < n; i++) {
		dice_fill(bytes, sizeof(bytes));
		poke(&t->s, bytes, sizeof(bytes), 0);
		post_read(&t->u, 1, 0, 4096, 0, 0);
		post_write(&t->u, 2, 0, 4096, MIB, IBV_SEND_FENCE);
		expect_done(&t->u, 1);
		expect_done(&t->u, 2);
		expect_on_medium(&t->u, bytes, sizeof(bytes), MIB);
	}
}

static void only_signaled_requests_raise_a_completion(void **state)
{
	struct scene *t = *state;
	struct user_wish wish = {.quiet = true, .send_wr = 8};
	struct user u;
	struct ibv_sge sge = piece(&t->s, 0, 512);

	user_open(&u, &t->s, &wish);
	for (uint64_t i = 0; i < 100; i++) {
		struct ibv_send_wr wr = request(&u, i, IBV_WR_RDMA_WRITE, &sge, i * 512);

		wr.send_flags = i % 4 == 3 ? IBV_SEND_SIGNALED : 0;
		post(&u, &wr);
		if (i % 4 == 3)
			expect_done(&u, i);
	}
	user_close(&u);
}

static void queue_takes_as_many_requests_as_it_reports(void **state)
{
	struct scene *t = *state;
	struct user_wish wish = {.send_wr = 4, .attr.depth = 2};
	struct stagdv_store_qp_attr attr;
	struct user u;

	user_open(&u, &t->s, &wish);
	assert_int_equal(stagdv_query_store_qp(u.qp, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.depth, 2);
	for (int round = 0; round < 50; round++) {
		for (uint64_t i = 0; i < 4; i++)
			post_write(&u, i, 0, 4096, i * 4096, 0);
		for (uint64_t i = 0; i < 4; i++)
			expect_done(&u, i);
	}
	user_close(&u);
}

static void query_returns_the_relaxed_order(void **state)
{
	struct scene *t = *state;
	struct user_wish wish = {.attr = {.relax = STAGDV_RELAX_READS | STAGDV_RELAX_COMPLETIONS,
					  .level = STAGDV_LEVEL_DURABLE}};
	struct stagdv_store_qp_attr attr;
	struct ibv_qp_attr qp_attr;
	struct ibv_qp_init_attr init;
	struct user u;

	user_open(&u, &t->s, &wish);
	assert_int_equal(stagdv_query_store_qp(u.qp, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.relax, wish.attr.relax);
	assert_int_equal(attr.level, STAGDV_LEVEL_DURABLE);
	assert_int_equal(attr.depth, 64);
	assert_int_equal(ibv_query_qp(u.qp, &qp_attr, IBV_QP_STATE | IBV_QP_CAP, &init), 0);
	assert_int_equal(qp_attr.qp_state, IBV_QPS_RTS);
	assert_int_equal(qp_attr.cap.max_send_wr, 64);
	user_close(&u);
}

static void invalid_modify_changes_nothing(void **state)
{
	struct scene *t = *state;
	struct stagdv_store_qp_attr attr = {.relax = 1u << 31, .level = STAGDV_LEVEL_DURABLE + 1};
	const int both = STAGDV_STORE_RELAX | STAGDV_STORE_LEVEL;
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

	assert_int_equal(stagdv_modify_store_qp(t->u.qp, &attr, STAGDV_STORE_RELAX), EINVAL);
	assert_int_equal(stagdv_modify_store_qp(t->u.qp, &attr, STAGDV_STORE_LEVEL), EINVAL);
	attr = (struct stagdv_store_qp_attr){.relax = STAGDV_RELAX_READS, .level = 2};
	assert_int_equal(stagdv_modify_store_qp(t->u.qp, &attr, both | STAGDV_STORE_CACHE), EINVAL);
	attr.comp_mask = 1;
	assert_int_equal(stagdv_modify_store_qp(t->u.qp, &attr, both), EINVAL);
	assert_int_equal(stagdv_query_store_qp(t->u.qp, &attr, sizeof(attr)), 0);
	assert_int_equal(attr.relax | attr.level, 0);
	assert_int_equal(ibv_modify_qp(t->u.qp, &reset, IBV_QP_STATE), 0);
	assert_int_equal(stagdv_modify_store_qp(t->u.qp, &attr, both), ENOTCONN);
}

/* ---- errors ---- */

static void expect_access_error(struct scene *t, struct ibv_send_wr *wr)
{
	struct user u;

	user_open(&u, &t->s, NULL);
	post_write(&u, 10, 0, 4096, 0, 0);
	wr->wr_id = 11;
	post(&u, wr);
	post_write(&u, 12, 0, 4096, 8192, 0);
	expect_done(&u, 10);
	expect_failed(&u, 11, IBV_WC_REM_ACCESS_ERR);
	expect_failed(&u, 12, IBV_WC_WR_FLUSH_ERR);
	expect_state(&u, IBV_QPS_ERR);
	post_write(&u, 13, 0, 4096, 8192, 0);
	expect_failed(&u, 13, IBV_WC_WR_FLUSH_ERR);
	user_close(&u);
}

static void wrong_key_ends_the_queue_pair(void **state)
{
	struct scene *t = *state;
	struct ibv_sge sge = piece(&t->s, 0, 4096);
	struct ibv_send_wr wr = request(&t->u, 0, IBV_WR_RDMA_WRITE, &sge, 0);

	wr.wr.rdma.rkey ^= 0x55;
	expect_access_error(t, &wr);
	wr.wr.rdma.rkey = t->s.mr->rkey; /* a key of memory */
	expect_access_error(t, &wr);
	wr.wr.rdma.rkey = 0;
	expect_access_error(t, &wr);
}

static void access_beyond_the_end_ends_the_queue_pair(void **state)
{
	struct scene *t = *state;
	struct ibv_sge sge = piece(&t->s, 0, 4096);
	static const uint64_t bad[] = {SPACE - 4095, SPACE, UINT64_MAX - 4095, UINT64_MAX};

	for (size_t i = 0; i < 4; i++) {
		struct ibv_send_wr wr = request(&t->u, 0, IBV_WR_RDMA_READ, &sge, bad[i]);

		expect_access_error(t, &wr);
	}
}

static void rights_are_checked_for_each_request(void **state)
{
	struct scene *t = *state;
	struct stagdv_store_attr attr = {.access = IBV_ACCESS_REMOTE_READ};
	struct ibv_sge sge = piece(&t->s, 0, 8);
	struct ibv_send_wr wr = request(&t->u, 1, IBV_WR_RDMA_WRITE, &sge, 0);

	post(&t->u, &wr);
	expect_done(&t->u, 1);
	assert_int_equal(stagdv_modify_store_mr(t->s.region, &attr, STAGDV_STORE_ACCESS), 0);
	post_read(&t->u, 2, 0, 8, 0, 0);
	expect_done(&t->u, 2);
	post_add(&t->u, 3, 0, 0, 1);
	expect_failed(&t->u, 3, IBV_WC_REM_ACCESS_ERR);
	expect_state(&t->u, IBV_QPS_ERR);
}

static void read_into_memory_without_local_write_fails(void **state)
{
	struct scene *t = *state;
	struct ibv_mr *closed = ibv_reg_mr(t->s.pd, t->s.mem, 4096, 0);
	struct ibv_sge sge = {.addr = (uintptr_t)t->s.mem, .length = 4096, .lkey = closed->lkey};
	struct ibv_send_wr wr = request(&t->u, 1, IBV_WR_RDMA_WRITE, &sge, 0);

	post(&t->u, &wr);
	expect_done(&t->u, 1);
	wr.opcode = IBV_WR_RDMA_READ; /* it may not be written to */
	post(&t->u, &wr);
	expect_failed(&t->u, 1, IBV_WC_LOC_PROT_ERR);
	expect_state(&t->u, IBV_QPS_ERR);
	assert_int_equal(ibv_dereg_mr(closed), 0);
}

static void region_on_storage_is_not_local_memory(void **state)
{
	struct scene *t = *state;
	struct ibv_sge sge = {.addr = 0, .length = 4096, .lkey = t->s.region->rkey};
	struct ibv_send_wr wr = request(&t->u, 1, IBV_WR_RDMA_WRITE, &sge, 0);

	assert_int_equal(t->s.region->lkey, 0);
	post(&t->u, &wr);
	expect_failed(&t->u, 1, IBV_WC_LOC_PROT_ERR);
}

static void an_atomic_needs_an_aligned_word(void **state)
{
	struct scene *t = *state;

	post_add(&t->u, 1, 0, 4, 1);
	expect_failed(&t->u, 1, IBV_WC_REM_INV_REQ_ERR);
}

static void region_of_another_domain_is_refused(void **state)
{
	struct scene *t = *state;
	struct ibv_pd *pd = ibv_alloc_pd(t->s.ctx);
	struct stagdv_store_attr attr = {.length = 4096, .access = ALL_RIGHTS};
	struct ibv_mr *mr = stagdv_reg_store_mr(pd, t->s.medium, &attr);
	struct ibv_sge sge = piece(&t->s, 0, 8);
	struct ibv_send_wr wr = request(&t->u, 1, IBV_WR_RDMA_WRITE, &sge, 0);

	wr.wr.rdma.rkey = mr->rkey;
	expect_access_error(t, &wr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
}

/* The helpers use the scene's region, which this test replaces for a while. */
static void region_is_addressed_from_its_iova(void **state)
{
	struct scene *t = *state;
	struct stagdv_store_attr attr = {
		.offset = 8192, .length = 8192, .access = ALL_RIGHTS, .iova = 0x7f0123456000};
	struct ibv_mr *all = t->s.region;
	uint64_t base = attr.iova;

	t->s.region = stagdv_reg_store_mr(t->s.pd, t->s.medium, &attr);
	assert_non_null(t->s.region);
	memset(t->s.mem, 0xa5, 4096);
	post_write(&t->u, 1, 0, 4096, base + 4096, 0);
	expect_done(&t->u, 1);
	expect_on_medium(&t->u, t->s.mem, 4096, 12288);
	post_add(&t->u, 2, 0, base + 8184, 1);
	expect_done(&t->u, 2);
	post_barrier(&t->u, 3);
	assert_int_equal(await_wc(t->u.scq).status, IBV_WC_SUCCESS);
	post_read(&t->u, 4, 0, 4096, 4096, 0); /* as if it began at 0 */
	expect_failed(&t->u, 4, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(ibv_dereg_mr(t->s.region), 0);
	t->s.region = all;
}

static void a_region_needs_an_aligned_address(void **state)
{
	struct scene *t = *state;
	struct stagdv_store_attr between = {.length = 8192, .iova = 4096 + 4};
	struct stagdv_store_attr last = {.length = 8192, .iova = UINT64_MAX - 4095};

	assert_null(stagdv_reg_store_mr(t->s.pd, t->s.medium, &between));
	assert_int_equal(errno, EINVAL);
	assert_null(stagdv_reg_store_mr(t->s.pd, t->s.medium, &last));
	assert_int_equal(errno, EINVAL);
}

static void a_truncated_file_is_an_error_of_the_medium(void **state)
{
	struct scene *t = *state;

	assert_int_equal(ftruncate(t->s.fd, MIB), 0);
	post_read(&t->u, 1, 0, 4096, 2 * MIB, 0);
	expect_failed(&t->u, 1, IBV_WC_REM_OP_ERR);
	expect_state(&t->u, IBV_QPS_ERR);
}

static void relaxed_error_fails_one_request_only(void **state)
{
	struct scene *t = *state;
	struct user_wish wish = {.attr.relax = NO_ORDER};
	struct user u;

	user_open(&u, &t->s, &wish);
	assert_int_equal(ftruncate(t->s.fd, MIB), 0);
	post_read(&u, 1, 0, 4096, 2 * MIB, 0);
	expect_failed(&u, 1, IBV_WC_REM_OP_ERR);
	post_read(&u, 2, 0, 4096, 0, 0);
	expect_done(&u, 2);
	expect_state(&u, IBV_QPS_RTS);
	user_close(&u);
}

static void error_and_reset_work_as_on_other_queue_pairs(void **state)
{
	struct scene *t = *state;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct stagdv_store_qp_attr none = {0}, bad = {.level = 3};

	assert_int_equal(stagdv_connect_store(t->u.qp, &none),
			 EINVAL); /* the queue pair is in RTS */
	post_receive(&t->u, 9);
	assert_int_equal(ibv_modify_qp(t->u.qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(await_wc(t->u.rcq).status, IBV_WC_WR_FLUSH_ERR);
	attr.qp_state = IBV_QPS_RESET;
	assert_int_equal(ibv_modify_qp(t->u.qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(stagdv_connect_store(t->u.qp, &none),
			 EINVAL); /* the queue pair is in RESET */
	attr.qp_state = IBV_QPS_INIT;
	assert_int_equal(ibv_modify_qp(t->u.qp, &attr, IBV_QP_STATE), 0);
	assert_int_equal(stagdv_connect_store(t->u.qp, &bad), EINVAL);
	assert_int_equal(stagdv_connect_store(t->u.qp, &none), 0);
	post_read(&t->u, 2, 0, 8, 0, 0);
	expect_done(&t->u, 2);
}

static void medium_in_use_cannot_be_closed(void **state)
{
	struct scene *t = *state;
	struct stagdv_store_attr beyond = {.offset = 4096, .length = SPACE, .access = ALL_RIGHTS};
	struct stagdv_store_attr shorter = {.length = 4096};
	struct stagdv_medium_counters c;

	assert_int_equal(stagdv_close_medium(t->s.medium), EBUSY);
	assert_null(stagdv_reg_store_mr(t->s.pd, t->s.medium, &beyond));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(stagdv_modify_store_mr(t->s.region, &shorter, STAGDV_STORE_LENGTH),
			 EINVAL);
	assert_int_equal(stagdv_modify_store_mr(t->s.mr, &shorter, 0), EINVAL);
	post_write(&t->u, 1, 0, 4096, 0, 0);
	expect_done(&t->u, 1);
	assert_int_equal(stagdv_query_medium(t->s.medium, &c, sizeof(c)), 0);
	assert_int_equal(c.writes, 1);
	assert_int_equal(c.written_bytes, 4096);
}

/* ---- many at once ---- */

struct adder {
	struct scene *t;
	unsigned long times;
	pthread_t thread;
	int number;
};

/* Adds on a queue pair of its own; every other one gives up all order. */
static void *add_many(void *arg)
{
	struct adder *a = arg;
	struct user_wish wish = {.attr.relax = a->number % 2 ? NO_ORDER : 0};
	struct user u;
	unsigned long posted = 0, done = 0;

	user_open(&u, &a->t->s, &wish);
	while (done < a->times) {
		for (; posted < a->times && posted < done + 16; posted++)
			post_add(&u, posted, (size_t)a->number * 4096 + posted % 64 * 8,
				 posted % 3 * 8, 1);
		assert_int_equal(await_wc(u.scq).status, IBV_WC_SUCCESS);
		done++;
	}
	user_close(&u);
	return NULL;
}

static void atomics_of_many_threads_add_up(void **state)
{
	struct scene *t = *state;
	struct adder a[4];
	uint64_t sums[3];

	for (int i = 0; i < 4; i++) {
		a[i] = (struct adder){.t = t, .times = lessened(3000), .number = i};
		assert_int_equal(pthread_create(&a[i].thread, NULL, add_many, &a[i]), 0);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(a[i].thread, NULL);
	post_read(&t->u, 1, 0, sizeof(sums), 0, 0);
	expect_done(&t->u, 1);
	memcpy(sums, t->s.mem, sizeof(sums));
	assert_int_equal(sums[0] + sums[1] + sums[2], 4 * lessened(3000));
}

/* No thread polls: the engine does, and the channel wakes the sleeper. */
static void completion_wakes_a_sleeper(void **state)
{
	struct scene *t = *state;
	struct user_wish wish = {.channel = true};
	struct user u;

	user_open(&u, &t->s, &wish);
	for (uint64_t i = 0; i < 200; i++) {
		struct ibv_cq *cq;
		struct ibv_wc wc;
		void *context;

		assert_int_equal(ibv_req_notify_cq(u.scq, 0), 0);
		post_write(&u, i, 0, 4096, i * 4096, 0);
		if (i % 2) { /* every other one polls a little, and stops */
			int got = 0;

			for (int k = 0; k < 20 && !got; k++)
				got = ibv_poll_cq(u.scq, 1, &wc);
			if (got) {
				assert_int_equal(wc.wr_id, i);
				continue;
			}
			assert_int_equal(ibv_req_notify_cq(u.scq, 0), 0);
			if (ibv_poll_cq(u.scq, 1, &wc))
				continue;
		}
		do {
			assert_int_equal(ibv_get_cq_event(u.channel, &cq, &context), 0);
			ibv_ack_cq_events(cq, 1);
			assert_ptr_equal(cq, u.scq);
		} while (ibv_poll_cq(cq, 1, &wc) == 0 && ibv_req_notify_cq(cq, 0) == 0);
		assert_int_equal(wc.wr_id, i);
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
	}
	user_close(&u);
}

/* A thread that waits in poll(2) does not need another thread to poll. */
static void channel_descriptor_becomes_readable(void **state)
{
	struct scene *t = *state;
	struct user_wish wish = {.channel = true};
	struct user u;
	struct pollfd p;
	struct ibv_cq *cq;
	void *context;

	user_open(&u, &t->s, &wish);
	p = (struct pollfd){.fd = u.channel->fd, .events = POLLIN};
	assert_int_equal(ibv_req_notify_cq(u.scq, 0), 0);
	post_read(&u, 1, 0, 65536, 0, 0);
	assert_int_equal(poll(&p, 1, 60000), 1);
	assert_int_equal(ibv_get_cq_event(u.channel, &cq, &context), 0);
	ibv_ack_cq_events(cq, 1);
	expect_done(&u, 1);
	user_close(&u);
}

/* More media than a poller polls: the engine polls the others. */
static void one_queue_pair_uses_many_media(void **state)
{
	enum { MEDIA = 7 };
	struct scene *t = *state;
	struct storage more[MEDIA];

	dice_fill(t->s.mem, 4096);
	for (uint64_t i = 0; i < MEDIA; i++) {
		struct ibv_sge sge = piece(&t->s, 0, 4096);
		struct ibv_send_wr wr = request(&t->u, i, IBV_WR_RDMA_WRITE, &sge, 8192);

		storage_open_in(&more[i], backing, t->s.pd);
		wr.wr.rdma.rkey = more[i].region->rkey;
		post(&t->u, &wr);
	}
	for (uint64_t i = 0; i < MEDIA; i++)
		expect_done(&t->u, i);
	for (int i = 0; i < MEDIA; i++) {
		peek(&more[i], t->s.mem + 4096, 4096, 8192);
		assert_memory_equal(t->s.mem, t->s.mem + 4096, 4096);
		storage_close(&more[i]);
	}
}

/*
 * Destroys the queue pair with requests in flight: the medium's memory is the program's again when
 * destroy returns.
 */
static void queue_pair_can_be_destroyed_at_any_time(void **state)
{
	struct scene *t = *state;
	unsigned long n = lessened(100);

	for (unsigned long i = 0; i < n; i++) {
		struct user_wish wish = {.attr.relax = i % 2 ? NO_ORDER : 0};
		struct user u;
		size_t len = 256 * KIB;
		uint8_t *mem =
			mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		struct ibv_mr *mr = ibv_reg_mr(t->s.pd, mem, len, IBV_ACCESS_LOCAL_WRITE);

		user_open(&u, &t->s, &wish);
		for (uint64_t k = 0; k < 32; k++) {
			struct ibv_sge sge = {.addr = (uintptr_t)mem + dice(64) * 4096,
					      .length = (uint32_t)dice_size(8192) & ~7u,
					      .lkey = mr->lkey};
			struct ibv_send_wr wr =
				request(&u, k, k % 2 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, &sge,
					dice(128) * 512);

			if (sge.addr + sge.length > (uintptr_t)mem + len)
				sge.addr = (uintptr_t)mem;
			if (one_in(8))
				wr.send_flags |= IBV_SEND_FENCE;
			post(&u, &wr);
		}
		if (one_in(2)) {
			struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

			assert_int_equal(ibv_modify_qp(u.qp, &attr, IBV_QP_STATE), 0);
			for (int k = 0; k < 32; k++) { /* each completes once */
				struct ibv_wc wc = await_wc(u.scq);

				assert_true(wc.status == IBV_WC_SUCCESS ||
					    wc.status == IBV_WC_WR_FLUSH_ERR);
			}
		}
		if (one_in(2)) {
			assert_int_equal(ibv_dereg_mr(mr), 0);
			mr = NULL;
			munmap(mem, len);
		}
		user_close(&u);
		if (mr) {
			assert_int_equal(ibv_dereg_mr(mr), 0);
			munmap(mem, len);
		}
	}
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, open_scene, close_scene)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		STORY(a_write_is_on_the_medium_and_a_read_finds_it),
		STORY(any_offset_and_length_is_written_and_read),
		STORY(pieces_are_gathered_and_scattered),
		STORY(inline_data_is_copied_by_the_post),
		STORY(immediate_completes_a_receive_of_the_same_queue_pair),
		STORY(immediate_without_a_receive_is_an_error),
		STORY(atomics_return_the_previous_value),
		STORY(requests_of_zero_bytes_succeed),
		STORY(completions_report_opcode_and_length),
		STORY(sends_are_refused),
		STORY(requests_are_posted_by_the_ibv_wr_calls),
		STORY(fast_registration_and_invalidation_complete_in_order),
		STORY(a_read_finds_the_write_before_it),
		STORY(a_fence_waits_for_the_read),
		STORY(only_signaled_requests_raise_a_completion),
		STORY(queue_takes_as_many_requests_as_it_reports),
		STORY(query_returns_the_relaxed_order),
		STORY(invalid_modify_changes_nothing),
		STORY(wrong_key_ends_the_queue_pair),
		STORY(access_beyond_the_end_ends_the_queue_pair),
		STORY(rights_are_checked_for_each_request),
		STORY(read_into_memory_without_local_write_fails),
		STORY(region_on_storage_is_not_local_memory),
		STORY(an_atomic_needs_an_aligned_word),
		STORY(region_of_another_domain_is_refused),
		STORY(region_is_addressed_from_its_iova),
		STORY(a_region_needs_an_aligned_address),
		STORY(a_truncated_file_is_an_error_of_the_medium),
		STORY(relaxed_error_fails_one_request_only),
		STORY(error_and_reset_work_as_on_other_queue_pairs),
		STORY(medium_in_use_cannot_be_closed),
		STORY(atomics_of_many_threads_add_up),
		STORY(completion_wakes_a_sleeper),
		STORY(channel_descriptor_becomes_readable),
		STORY(one_queue_pair_uses_many_media),
		STORY(queue_pair_can_be_destroyed_at_any_time),
	};

	dice_start();
	if (argc > 1)
		backing = strcmp(argv[1], "pages") == 0	   ? ON_PAGES
			  : strcmp(argv[1], "memory") == 0 ? IN_MEMORY
							   : ON_DISK;
	if (argc > 2)
		cmocka_set_test_filter(argv[2]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
