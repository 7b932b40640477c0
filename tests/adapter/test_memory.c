// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_memory.c - regions and windows as a peer sees them: addresses, rights, and invalidation. And
 * the log messages about a program's mistakes.
 */
#include "side.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <stag/stagdv.h>

#define LEN	   4096
#define ALL_REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define ALL_ACCESS (ALL_REMOTE | IBV_ACCESS_LOCAL_WRITE)

static int open_pair(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));

	pair_open(p, NULL, NULL);
	*state = p;
	return 0;
}

static int close_pair(void **state)
{
	pair_close(*state);
	free(*state);
	return 0;
}

static uint64_t write_to(struct pair *p, struct region *from, size_t len, uint32_t rkey,
			 uint64_t addr)
{
	struct ibv_sge sge = piece(from, 0, len);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1};

	wr.wr.rdma.remote_addr = addr;
	wr.wr.rdma.rkey = rkey;
	return post(&p->a, &wr);
}

/* Sends a message to b: when it arrives, earlier writes are in b's memory. */
static void send_after_writes(struct pair *p)
{
	uint64_t in = post_receive(&p->b, NULL, 0, 0);

	expect_sent(&p->a, post_send(&p->a, NULL, 0, 0));
	expect_received(&p->b, in);
}

static void expect_write(struct pair *p, uint32_t rkey, uint64_t addr, const void *lands)
{
	static unsigned seed = 50;
	struct region *from = own_region(&p->a, 100);

	fill(from->at, 100, ++seed);
	expect_sent(&p->a, write_to(p, from, 100, rkey, addr));
	send_after_writes(p);
	expect_filled(lands, 100, seed);
}

/* Expects b to refuse the write, and both sides to be notified. */
static void expect_write_refused(struct pair *p, uint32_t rkey, uint64_t addr)
{
	struct region *from = own_region(&p->a, 100);

	fill(from->at, 100, 1);
	write_to(p, from, 100, rkey, addr);
	expect_disconnected(&p->b);
	expect_async(&p->b, IBV_EVENT_QP_ACCESS_ERR);
	expect_disconnected(&p->a);
	expect_async(&p->a, IBV_EVENT_QP_FATAL);
}

/* ---- regions ---- */

static void region_with_a_chosen_iova_is_addressed_by_it(void **state)
{
	struct pair *p = *state;
	struct region *r = own_region(&p->b, LEN);
	struct ibv_mr *mr = ibv_reg_mr_iova(p->b.pd, r->at, LEN, 0x100000000, ALL_ACCESS);

	assert_non_null(mr);
	expect_write(p, mr->rkey, 0x100000000 + 10, r->at + 10);
	expect_write(p, mr->rkey, 0x100000000 + LEN - 100, r->at + LEN - 100);
	expect_write_refused(p, mr->rkey, (uintptr_t)r->at);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void zero_based_region_is_addressed_by_offset(void **state)
{
	struct pair *p = *state;
	struct region *r = own_region(&p->b, LEN);
	struct ibv_mr *mr = ibv_reg_mr(p->b.pd, r->at, LEN, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);

	assert_non_null(mr);
	expect_write(p, mr->rkey, 0, r->at);
	expect_write(p, mr->rkey, LEN - 100, r->at + LEN - 100);
	expect_write_refused(p, mr->rkey, LEN - 99);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* After a re-registration the old STag is invalid, and the new one names the new memory. */
static void re_registration_invalidates_the_old_stag(void **state)
{
	struct pair *p = *state;
	struct region *first = own_region(&p->b, LEN), *second = own_region(&p->b, LEN);
	struct ibv_mr *mr = ibv_reg_mr(p->b.pd, first->at, LEN, ALL_ACCESS);
	uint32_t old;

	assert_non_null(mr);
	old = mr->rkey;
	expect_write(p, mr->rkey, (uintptr_t)first->at, first->at);
	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, second->at, LEN, 0), 0);
	assert_int_not_equal(mr->rkey, old);
	expect_write(p, mr->rkey, (uintptr_t)second->at, second->at);
	expect_write_refused(p, old, (uintptr_t)second->at);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void re_registration_takes_rights_away(void **state)
{
	struct pair *p = *state;
	struct region *r = own_region(&p->b, LEN);
	struct ibv_mr *mr = ibv_reg_mr(p->b.pd, r->at, LEN, ALL_ACCESS);

	assert_non_null(mr);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ),
			 0);
	expect_write_refused(p, mr->rkey, (uintptr_t)r->at);
	expect_zeroes(r->at, LEN);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* ---- fast registration ---- */

static void fast_register(struct pair *p, struct ibv_mr *mr, struct ibv_sge *sge, int n,
			  uint64_t iova)
{
	struct stagdv_fast_reg wr = {.wr_id = note_posted(&p->b, false),
				     .mr = mr,
				     .sg_list = sge,
				     .num_sge = n,
				     .access = ALL_ACCESS,
				     .iova = iova,
				     .key = ibv_inc_rkey(mr->rkey),
				     .send_flags = IBV_SEND_SIGNALED};

	assert_int_equal(stagdv_post_fast_reg(p->b.qp, &wr), 0);
	expect_sent(&p->b, wr.wr_id);
	assert_int_equal(mr->rkey, wr.key);
}

/* Two pieces of memory become one range; it is invalidated, and registered again. */
static void fast_region_is_invalidated_and_registered_again(void **state)
{
	struct pair *p = *state;
	struct region *one = own_region(&p->b, 150), *two = own_region(&p->b, 150);
	struct ibv_mr *mr = stagdv_alloc_fast_mr(p->b.pd, 4);
	struct ibv_sge sge[2] = {piece(one, 0, 150), piece(two, 0, 150)};
	struct ibv_send_wr inv = {.opcode = IBV_WR_LOCAL_INV};
	struct region *from = own_region(&p->a, 300);

	assert_non_null(mr);
	for (unsigned i = 0; i < 3; i++) {
		fast_register(p, mr, sge, 2, 0x5000);
		fill(from->at, 300, i);
		expect_sent(&p->a, write_to(p, from, 300, mr->rkey, 0x5000));
		send_after_writes(p);
		assert_memory_equal(one->at, from->at, 150);
		assert_memory_equal(two->at, from->at + 150, 150);
		inv.wr_id = 0;
		inv.invalidate_rkey = mr->rkey;
		expect_sent(&p->b, post(&p->b, &inv));
	}
	expect_write_refused(p, mr->rkey, 0x5000);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void peer_invalidates_a_fast_region(void **state)
{
	struct pair *p = *state;
	struct region *r = own_region(&p->b, 150);
	struct ibv_mr *mr = stagdv_alloc_fast_mr(p->b.pd, 1);
	struct ibv_sge sge = piece(r, 0, 150);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_INV};
	uint64_t in = post_receive(&p->b, NULL, 0, 0);
	struct ibv_wc wc;

	fast_register(p, mr, &sge, 1, 0x5000);
	wr.invalidate_rkey = mr->rkey;
	expect_sent(&p->a, post(&p->a, &wr));
	wc = expect_received(&p->b, in);
	assert_true(wc.wc_flags & IBV_WC_WITH_INV);
	assert_int_equal(wc.invalidated_rkey, mr->rkey);
	expect_write_refused(p, mr->rkey, 0x5000);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* ---- windows ---- */

static void type_1_window_is_bound_and_bound_again(void **state)
{
	struct pair *p = *state;
	struct region *r = lend_region(&p->b, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(p->b.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.wr_id = note_posted(&p->b, false),
				   .send_flags = IBV_SEND_SIGNALED,
				   .bind_info = {.mr = r->mr,
						 .addr = (uintptr_t)r->at + 1000,
						 .length = 1000,
						 .mw_access_flags = IBV_ACCESS_REMOTE_WRITE}};
	uint32_t old;

	assert_non_null(mw);
	assert_int_equal(ibv_bind_mw(p->b.qp, mw, &bind), 0);
	expect_sent(&p->b, bind.wr_id);
	expect_write(p, mw->rkey, (uintptr_t)r->at + 1000, r->at + 1000);
	old = mw->rkey;
	bind.wr_id = note_posted(&p->b, false);
	bind.bind_info.addr += 1000; /* bound again: another address, another STag */
	assert_int_equal(ibv_bind_mw(p->b.qp, mw, &bind), 0);
	expect_sent(&p->b, bind.wr_id);
	assert_int_not_equal(mw->rkey, old);
	expect_write(p, mw->rkey, (uintptr_t)r->at + 2000, r->at + 2000);
	assert_int_equal(ibv_dereg_mr(r->mr), EBUSY);
	expect_write_refused(p, old, (uintptr_t)r->at + 1000);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
}

static uint64_t bind_type_2(struct pair *p, struct ibv_mw *mw, struct region *r)
{
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};
	uint64_t id;

	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){.mr = r->mr,
					  .addr = (uintptr_t)r->at,
					  .length = LEN,
					  .mw_access_flags = IBV_ACCESS_REMOTE_WRITE};
	id = post(&p->b, &wr);
	mw->rkey = wr.bind_mw.rkey;
	return id;
}

static void type_2_window_is_bound_and_invalidated(void **state)
{
	struct pair *p = *state;
	struct region *r = lend_region(&p->b, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(p->b.pd, IBV_MW_TYPE_2);
	struct ibv_send_wr inv = {.opcode = IBV_WR_SEND_WITH_INV};
	uint64_t in;

	assert_non_null(mw);
	for (int i = 0; i < 3; i++) { /* bound, used, invalidated by the peer, bound again */
		expect_sent(&p->b, bind_type_2(p, mw, r));
		expect_write(p, mw->rkey, (uintptr_t)r->at, r->at);
		assert_int_equal(ibv_dereg_mr(r->mr), EBUSY);
		in = post_receive(&p->b, NULL, 0, 0);
		inv.wr_id = 0;
		inv.invalidate_rkey = mw->rkey;
		expect_sent(&p->a, post(&p->a, &inv));
		assert_int_equal(expect_received(&p->b, in).invalidated_rkey, mw->rkey);
	}
	expect_write_refused(p, mw->rkey, (uintptr_t)r->at);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
}

/* A type-2 window that is valid cannot be bound once more. */
static void second_bind_of_a_valid_type_2_window_fails(void **state)
{
	struct pair *p = *state;
	struct region *r = lend_region(&p->b, LEN, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	struct ibv_mw *mw = ibv_alloc_mw(p->b.pd, IBV_MW_TYPE_2);

	expect_sent(&p->b, bind_type_2(p, mw, r));
	expect_failed(&p->b, bind_type_2(p, mw, r), IBV_WC_MW_BIND_ERR);
	expect_disconnected(&p->b);
	expect_async(&p->b, IBV_EVENT_QP_FATAL);
	expect_disconnected(&p->a);
	expect_async(&p->a, IBV_EVENT_QP_FATAL);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
}

/* ---- mistakes, and their log messages ---- */

static bool log_says(const char *words)
{
	char text[65536] = "";
	int fd = open(getenv("STAG_LOG_FILE"), O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	close(fd);
	return n > 0 && strstr(text, words);
}

static void expect_logged(const char *words)
{
	if (!log_says(words))
		fail_msg("the log lacks '%s'", words);
}

/* Expects both ends of a connection to end after a mistake of a's program. */
static void expect_both_over(struct pair *p)
{
	expect_disconnected(&p->a);
	expect_async(&p->a, IBV_EVENT_QP_FATAL);
	expect_disconnected(&p->b);
	expect_async(&p->b, IBV_EVENT_QP_FATAL);
	expect_flushed(&p->a);
}

static void sink_of_another_domain_is_logged(void **state)
{
	struct pair *p = *state;
	struct region *theirs = own_region(&p->b, 64), *lent = lend_region(&p->b, 64, ALL_REMOTE);
	uint64_t id = post_read(&p->a, theirs, 0, 64, lent, 0);

	expect_failed(&p->a, id, IBV_WC_LOC_PROT_ERR);
	expect_both_over(p);
	expect_zeroes(theirs->at, 64);
	expect_logged("the region is of protection domain ");
}

static void source_beyond_its_region_is_logged(void **state)
{
	struct pair *p = *state;
	struct region *r = own_region(&p->a, 64), *lent = lend_region(&p->b, 64, ALL_REMOTE);
	uint64_t id = post_write(&p->a, r, 60, 64, lent, 0);

	expect_failed(&p->a, id, IBV_WC_LOC_PROT_ERR);
	expect_both_over(p);
	expect_zeroes(lent->at, 64);
	expect_logged("outside of the region, which is from ");
}

static void request_with_too_many_sges_is_logged(void **state)
{
	struct pair *p = *state;
	struct ibv_sge sge[5] = {{0}};
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND, .sg_list = sge, .num_sge = 5}, *bad;

	assert_int_equal(ibv_post_send(p->a.qp, &wr, &bad), EINVAL);
	expect_logged("5 SGEs, the queue pair was made with ");
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, open_pair, close_pair)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		STORY(region_with_a_chosen_iova_is_addressed_by_it),
		STORY(zero_based_region_is_addressed_by_offset),
		STORY(re_registration_invalidates_the_old_stag),
		STORY(re_registration_takes_rights_away),
		STORY(fast_region_is_invalidated_and_registered_again),
		STORY(peer_invalidates_a_fast_region),
		STORY(type_1_window_is_bound_and_bound_again),
		STORY(type_2_window_is_bound_and_invalidated),
		STORY(second_bind_of_a_valid_type_2_window_fails),
		STORY(sink_of_another_domain_is_logged),
		STORY(source_beyond_its_region_is_logged),
		STORY(request_with_too_many_sges_is_logged),
	};
	char log[] = "/tmp/stag-test-XXXXXX";
	int failed;

	if (!getenv("STAG_LOG_FILE")) { /* read at load time: start again */
		close(mkstemp(log));
		setenv("STAG_LOG", "info", 1);
		setenv("STAG_LOG_FILE", log, 1);
		execv("/proc/self/exe", argv);
		return 1;
	}
	failed = cmocka_run_group_tests_name("memory", tests, NULL, NULL);
	unlink(getenv("STAG_LOG_FILE"));
	return failed;
}
