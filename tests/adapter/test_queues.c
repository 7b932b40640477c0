// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_queues.c - completion queues, their events and channels, shared receive queues; and objects
 * that cannot be destroyed while in use.
 */
#include "side.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#define ALL_REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static struct ibv_cq *take_event(struct side *s)
{
	struct ibv_cq *cq;
	void *context;

	assert_int_equal(ibv_get_cq_event(s->channel, &cq, &context), 0);
	assert_ptr_equal(context, s);
	ibv_ack_cq_events(cq, 1);
	return cq;
}

/* ---- completion queues ---- */

/* A CQ that is too small reports one overflow, and loses no completion. */
static void overflow_is_reported_once_and_loses_nothing(void **state)
{
	struct pair p;
	struct region *from, *lent;
	uint64_t id[40];

	pair_open(&p, &(struct side_wish){.cqe = 4}, NULL);
	from = own_region(&p.a, 64);
	lent = lend_region(&p.b, 64, ALL_REMOTE);
	for (int i = 0; i < 40; i++)
		id[i] = post_write(&p.a, from, 0, 64, lent, 0);
	expect_async(&p.a, IBV_EVENT_CQ_ERR);
	for (int i = 0; i < 40; i++)
		expect_sent(&p.a, id[i]);
	expect_no_async(&p.a);
	ping(&p);
	pair_close(&p);
}

static void resize_keeps_completions(void **state)
{
	struct pair p;
	struct region *from, *lent;
	uint64_t id[20];

	pair_open(&p, &(struct side_wish){.cqe = 32}, NULL);
	from = own_region(&p.a, 8);
	lent = lend_region(&p.b, 8, ALL_REMOTE);
	for (int i = 0; i < 20; i++)
		id[i] = post_write(&p.a, from, 0, 8, lent, 0);
	assert_int_equal(ibv_resize_cq(p.a.scq, 1000), 0);
	assert_true(p.a.scq->cqe >= 1000);
	for (int i = 0; i < 20; i++)
		expect_sent(&p.a, id[i]);
	assert_int_equal(ibv_resize_cq(p.a.scq, 8), 0);
	expect_no_async(&p.a);
	ping(&p);
	pair_close(&p);
}

/* ---- events ---- */

static void armed_cq_raises_one_event(void **state)
{
	struct pair p;
	struct region *from, *in;
	uint64_t received[3];

	pair_open(&p, NULL, &(struct side_wish){.channel = true});
	from = own_region(&p.a, 8);
	in = own_region(&p.b, 8);
	for (int i = 0; i < 3; i++)
		received[i] = post_receive(&p.b, in, 0, 8);
	assert_int_equal(ibv_req_notify_cq(p.b.rcq, 0), 0);
	assert_false(readable(p.b.channel->fd));
	for (int i = 0; i < 3; i++)
		post_send(&p.a, from, 0, 8);
	assert_ptr_equal(take_event(&p.b), p.b.rcq);
	for (int i = 0; i < 3; i++)
		expect_received(&p.b, received[i]);
	assert_false(readable(p.b.channel->fd)); /* the CQ was armed once */
	pair_close(&p);
}

/* Armed for solicited events only: a plain send raises none, one with the flag does. */
static void solicited_only_waiter_ignores_other_work(void **state)
{
	struct pair p;
	struct region *from, *in;
	uint64_t received[2];
	struct ibv_sge sge;
	struct ibv_send_wr wr = {
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SOLICITED, .num_sge = 1};

	pair_open(&p, NULL, &(struct side_wish){.channel = true});
	from = own_region(&p.a, 8);
	in = own_region(&p.b, 8);
	sge = piece(from, 0, 8);
	wr.sg_list = &sge;
	received[0] = post_receive(&p.b, in, 0, 8);
	received[1] = post_receive(&p.b, in, 0, 8);
	assert_int_equal(ibv_req_notify_cq(p.b.rcq, 1), 0);
	post_send(&p.a, from, 0, 8);
	expect_received(&p.b, received[0]);
	assert_false(readable(p.b.channel->fd));
	post(&p.a, &wr);
	take_event(&p.b);
	expect_received(&p.b, received[1]);
	pair_close(&p);
}

/* A failed completion always raises an event. */
static void failure_wakes_a_solicited_only_waiter(void **state)
{
	struct pair p;

	pair_open(&p, NULL, &(struct side_wish){.channel = true});
	post_receive(&p.b, own_region(&p.b, 8), 0, 8);
	assert_int_equal(ibv_req_notify_cq(p.b.rcq, 1), 0);
	assert_int_equal(rdma_disconnect(p.a.id), 0);
	assert_ptr_equal(take_event(&p.b), p.b.rcq);
	expect_disconnected(&p.b);
	expect_flushed(&p.b);
	pair_close(&p);
}

/* Two CQs on one channel: each event names its CQ. */
static void channel_serves_several_queues(void **state)
{
	struct pair p;
	struct region *mine, *lent;
	uint64_t sent;

	pair_open(&p, &(struct side_wish){.channel = true}, NULL);
	mine = own_region(&p.a, 8);
	lent = lend_region(&p.b, 8, ALL_REMOTE);
	assert_int_equal(ibv_req_notify_cq(p.a.scq, 0), 0);
	assert_int_equal(ibv_req_notify_cq(p.a.rcq, 0), 0);
	sent = post_read(&p.a, mine, 0, 8, lent, 0);
	assert_ptr_equal(take_event(&p.a), p.a.scq);
	expect_sent(&p.a, sent);
	sent = post_receive(&p.a, mine, 0, 8);
	post_send(&p.b, lent, 0, 8);
	assert_ptr_equal(take_event(&p.a), p.a.rcq);
	expect_received(&p.a, sent);
	pair_close(&p);
}

static void channel_honours_nonblock(void **state)
{
	struct pair p;
	struct ibv_cq *cq;
	void *context;

	pair_open(&p, &(struct side_wish){.channel = true}, NULL);
	assert_int_equal(fcntl(p.a.channel->fd, F_SETFL, O_NONBLOCK), 0);
	assert_int_equal(ibv_get_cq_event(p.a.channel, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	pair_close(&p);
}

/* ---- shared receive queues ---- */

static void shared_receives_serve_two_queue_pairs(void **state)
{
	struct pair p, q;
	struct region *in, *out, *out2;
	uint64_t first, second;
	struct ibv_wc wc;

	pair_open(&p, NULL, &(struct side_wish){.srq_wr = 16});
	pair_open(&q, NULL, &(struct side_wish){.srq = p.b.srq, .pd = p.b.pd});
	in = own_region(&p.b, 128);
	out = own_region(&p.a, 64);
	out2 = own_region(&q.a, 64);
	fill(out->at, 64, 1);
	fill(out2->at, 64, 2);
	first = post_receive(&p.b, in, 0, 64);
	second = post_receive(&p.b, in, 64, 64);
	note_posted(&q.b, false); /* the wr_ids are p.b's */
	note_posted(&q.b, false);
	post_send(&q.a, out2, 0, 64);
	wc = expect_received(&q.b, first);
	assert_int_equal(wc.qp_num, q.b.qp->qp_num);
	post_send(&p.a, out, 0, 64);
	wc = expect_received(&p.b, second);
	assert_int_equal(wc.qp_num, p.b.qp->qp_num);
	expect_filled(in->at, 64, 2);
	expect_filled(in->at + 64, 64, 1);
	pair_close(&q);
	pair_close(&p);
}

/* An armed limit raises one event, when fewer receives than the limit are left. */
static void srq_limit_is_reported_once(void **state)
{
	struct ibv_srq_attr attr = {.srq_limit = 3};
	struct pair p;
	struct region *in, *out;
	uint64_t id[5];

	pair_open(&p, NULL, &(struct side_wish){.srq_wr = 16});
	in = own_region(&p.b, 8);
	out = own_region(&p.a, 8);
	for (int i = 0; i < 5; i++)
		id[i] = post_receive(&p.b, in, 0, 8);
	assert_int_equal(ibv_modify_srq(p.b.srq, &attr, IBV_SRQ_LIMIT), 0);
	post_send(&p.a, out, 0, 8);
	post_send(&p.a, out, 0, 8);
	expect_received(&p.b, id[0]);
	expect_received(&p.b, id[1]);
	expect_no_async(&p.b);
	for (int i = 2; i < 5; i++)
		post_send(&p.a, out, 0, 8);
	for (int i = 2; i < 5; i++)
		expect_received(&p.b, id[i]);
	expect_async(&p.b, IBV_EVENT_SRQ_LIMIT_REACHED);
	expect_no_async(&p.b);
	pair_close(&p);
}

/*
 * Receives of a shared queue outlive a queue pair; an event reports that the queue pair takes no
 * more.
 */
static void shared_receives_outlive_a_queue_pair(void **state)
{
	struct pair p;

	pair_open(&p, NULL, &(struct side_wish){.srq_wr = 16});
	post_receive(&p.b, own_region(&p.b, 8), 0, 8);
	assert_int_equal(rdma_disconnect(p.a.id), 0);
	expect_disconnected(&p.b);
	expect_async(&p.b, IBV_EVENT_QP_LAST_WQE_REACHED);
	expect_no_async(&p.b);
	expect_nothing(&p.b);
	pair_close(&p);
}

/* ---- objects in use ---- */

static void objects_in_use_cannot_be_destroyed(void **state)
{
	struct pair p;
	struct region *r;
	struct ibv_mw *mw;
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};

	pair_open(&p, NULL, &(struct side_wish){.srq_wr = 4, .channel = true});
	r = lend_region(&p.b, 64, ALL_REMOTE | IBV_ACCESS_MW_BIND);
	mw = ibv_alloc_mw(p.b.pd, IBV_MW_TYPE_2);
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = r->mr, .addr = (uintptr_t)r->at, .length = 64, .mw_access_flags = ALL_REMOTE};
	expect_sent(&p.b, post(&p.b, &wr));
	assert_int_equal(ibv_destroy_cq(p.b.scq), EBUSY);
	assert_int_equal(ibv_destroy_cq(p.b.rcq), EBUSY);
	assert_int_equal(ibv_destroy_srq(p.b.srq), EBUSY);
	assert_int_equal(ibv_destroy_comp_channel(p.b.channel), EBUSY);
	assert_int_equal(ibv_dealloc_pd(p.b.pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(r->mr), EBUSY);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	post_receive(&p.b, r, 0, 64); /* everything still works */
	post_send(&p.a, own_region(&p.a, 64), 0, 64);
	expect_received(&p.b, p.b.n_posted);
	pair_close(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(overflow_is_reported_once_and_loses_nothing),
		cmocka_unit_test(resize_keeps_completions),
		cmocka_unit_test(armed_cq_raises_one_event),
		cmocka_unit_test(solicited_only_waiter_ignores_other_work),
		cmocka_unit_test(failure_wakes_a_solicited_only_waiter),
		cmocka_unit_test(channel_serves_several_queues),
		cmocka_unit_test(channel_honours_nonblock),
		cmocka_unit_test(shared_receives_serve_two_queue_pairs),
		cmocka_unit_test(srq_limit_is_reported_once),
		cmocka_unit_test(shared_receives_outlive_a_queue_pair),
		cmocka_unit_test(objects_in_use_cannot_be_destroyed),
	};

	return cmocka_run_group_tests_name("queues", tests, NULL, NULL);
}
