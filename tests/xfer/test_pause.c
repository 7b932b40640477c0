// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_pause.c - running out of descriptors only delays a request: the bytes are the same, and the
 * caller gets no error.
 */
#include "dice.h"
#include "spy.h"
#include "work.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LEN    (1u << 20)
#define PIECES 4096

/* A chain that needs a descriptor for each element: remotely they are in another order. */
struct chain {
	struct stag_xfer_req req;
	struct stag_xfer_elem elems[PIECES];
	struct stag_xfer_buf bufs[PIECES];
};

static void scatter(struct desk *d, struct chain *c, enum stag_xfer_op op)
{
	const uint64_t piece = LEN / PIECES;

	c->req = (struct stag_xfer_req){
		.op = op, .elems = c->elems, .num_elems = PIECES, .context = c};
	for (uint64_t i = 0; i < PIECES; i++) {
		uint64_t to = i * 1021 % PIECES;

		c->bufs[i] = (struct stag_xfer_buf){.addr = (uintptr_t)d->near->at + i * piece,
						    .length = piece,
						    .lkey = d->near->mr->lkey};
		c->elems[i] =
			(struct stag_xfer_elem){.bufs = &c->bufs[i],
						.num_bufs = 1,
						.remote_addr = (uintptr_t)d->far->at + to * piece,
						.rkey = d->far->mr->rkey};
	}
}

static void expect_scattered(const struct desk *d)
{
	const uint64_t piece = LEN / PIECES;

	for (uint64_t i = 0; i < PIECES; i++)
		assert_memory_equal(d->near->at + i * piece, d->far->at + i * 1021 % PIECES * piece,
				    piece);
}

/* Runs the chain with so many descriptors, and a send queue of so many work requests. */
static uint64_t scatter_with(uint32_t descriptors, uint32_t send_wr, enum stag_xfer_op op)
{
	static struct chain c;
	struct stag_xfer_attr attr = {.descriptors = descriptors};
	struct pair_wish wish = {.send_wr = send_wr};
	struct stag_xfer_counters seen;
	struct desk d;

	desk_open(&d, &wish, &attr, LEN);
	scatter(&d, &c, op);
	assert_int_equal(stag_xfer_submit(d.x, &c.req), 0);
	assert_ptr_equal(await_one(&d), &c);
	assert_int_equal(c.req.error, 0);
	assert_int_equal(c.req.transfers_done, PIECES);
	expect_scattered(&d);
	seen = counters(&d);
	assert_int_equal(seen.descriptors, PIECES);
	desk_close(&d);
	return seen.pauses;
}

static void one_descriptor_moves_the_same_bytes_as_4096(void **state)
{
	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		assert_int_not_equal(scatter_with(1, 8, op), 0);
		assert_int_not_equal(scatter_with(1, 8192, op), 0);
		assert_int_not_equal(scatter_with(4096, 8, op), 0);
		assert_int_equal(scatter_with(4096, 8192, op), 0);
		assert_int_not_equal(scatter_with(65536, 8, op), 0);
	}
}

/* ---- a queue that others use, too ---- */

#define FOREIGN 7 /* work request id of the other user */

struct intruder {
	uint32_t length; /* of its reads */
	unsigned int under_way;
	uint64_t posted;
};

/* Posts its own reads until the queue is full. */
static void fill_queue(struct desk *d, struct intruder *i)
{
	struct ibv_sge sge = {(uintptr_t)d->near->at + LEN, i->length, d->near->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = FOREIGN,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .wr.rdma = {(uintptr_t)d->far->at + LEN, d->far->mr->rkey}},
			   *bad = NULL;

	while (ibv_post_send(pair_qp(&d->pair, 0), &wr, &bad) == 0 && !bad) {
		i->under_way++;
		i->posted++;
	}
}

/* Polls all completions, and passes the manager its own. */
static void share_completions(struct desk *d, struct intruder *i)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(d->pair.rails[0].cq, 1, &wc) == 1) {
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(stag_xfer_take(d->x, &wc), wc.wr_id != FOREIGN);
		i->under_way -= wc.wr_id == FOREIGN;
	}
}

static bool all_done(struct desk *d, struct intruder *i, struct chain *c)
{
	struct stag_xfer_req *done;

	share_completions(d, i);
	/* From time to time the manager finds the queue full. */
	if (one_in(4) && i->posted < 4000)
		fill_queue(d, i);
	pair_serve(&d->pair);
	return stag_xfer_poll(d->x, &done, 1) == 1 && done == &c->req;
}

static void a_queue_filled_by_others_only_delays_requests(void **state)
{
	static struct chain c;
	struct stag_xfer_attr attr = {.descriptors = 4096, .flags = STAG_XFER_FED};
	struct pair_wish wish = {.send_wr = 64, .cqe = 1024};
	struct intruder i = {0};
	struct desk d;

	desk_open(&d, &wish, &attr, LEN + 1);
	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		/* siw answers a zero-length read wrongly while it handles a read with a length. */
		i.length = op == STAG_XFER_READ || !pair_is_siw(&d.pair);
		i.posted = 0;
		scatter(&d, &c, op);
		fill_queue(&d, &i);
		assert_int_equal(stag_xfer_submit(d.x, &c.req), 0);
		await(all_done(&d, &i, &c));
		assert_int_equal(c.req.error, 0);
		expect_scattered(&d);
		await((share_completions(&d, &i), i.under_way == 0));
	}
	desk_close(&d);
}

static int refuse_most(struct spy *spy, int count, int *err)
{
	*err = one_in(2) ? ENOMEM : EAGAIN;
	return one_in(3) ? count : (int)dice((uint64_t)count);
}

static void a_refused_post_is_retried(void **state)
{
	static struct chain c;
	struct stag_xfer_attr attr = {.descriptors = 300};
	struct spy spy = {.refuse = refuse_most};
	struct desk d;

	desk_open(&d, NULL, &attr, LEN);
	spy_start(&spy, &d.pair);
	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++) {
		scatter(&d, &c, op);
		assert_int_equal(stag_xfer_submit(d.x, &c.req), 0);
		assert_string_equal(stag_xfer_error(d.x), "");
		assert_ptr_equal(await_one(&d), &c);
		assert_int_equal(c.req.error, 0);
		expect_scattered(&d);
	}
	spy_stop(&spy);
	desk_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_descriptor_moves_the_same_bytes_as_4096),
		cmocka_unit_test(a_queue_filled_by_others_only_delays_requests),
		cmocka_unit_test(a_refused_post_is_retried),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
