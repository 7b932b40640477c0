// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_roce_deaths.c - peers of roce0 that are killed or stopped, and what comes to their port afterwards.
 *
 * The peer is a process of its own (roce_peer.h). Each test ends with as many descriptors and numbers of queue pairs
 * as it began with.
 */
#include "roce_peer.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/device.h"
#include "adapter/port.h"
#include "adapter/qp.h"
#include "adapter/rc.h"
#include "adapter/reach.h"
#include "adapter/stream.h"
#include "dice.h"
#include "wire/wire.h"

#define DEPTH	    64
#define SLOW_NS	    (30 * NS_PER_S)   /* for what takes less than a second, on a loaded machine */
#define LEAST_NS    (300 * NS_PER_MS) /* retry_cnt times the least T */
#define COMPLETIONS 400
#define PORTS	    "10000-19999"

/* T is taken as 100 ms without a stream, and as 1 s with one. */
static const struct ways brief = {.timeout = 10, .retry_cnt = 3};

struct scene {
	struct end me;
	struct peer peer;
	struct qp_port *port;
	unsigned fds; /* open before */
};

static unsigned count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* The first queue pair of a process opens what stays open. */
static int warm_up(void **state)
{
	struct end e;

	dice_start();
	end_open(&e, NULL);
	end_close(&e);
	return 0;
}

static int open_scene(void **state)
{
	struct scene *s = calloc(1, sizeof(*s));

	s->fds = count_fds();
	end_open(&s->me, NULL);
	s->port = to_stag_qp(s->me.qp)->port;
	/* A port that was chosen can be opened again at once. */
	peer_start(&s->peer, PORTS);
	*state = s;
	return 0;
}

static int close_scene(void **state)
{
	struct scene *s = *state;
	unsigned qps;

	peer_kill(&s->peer);
	end_close(&s->me);
	engine_lock();
	qps = s->port->n_qps;
	engine_unlock();
	assert_int_equal(qps, 0);
	await(count_fds() == s->fds);
	free(s);
	return 0;
}

/* The same with another peer and another queue pair. */
static struct scene *reopen(void **state)
{
	close_scene(state);
	open_scene(state);
	return *state;
}

static void connect_both(struct scene *s, const struct ways *theirs)
{
	peer_connect(&s->peer, &s->me, theirs, IBV_QPS_RTS);
	end_connect(&s->me, s->peer.is.qpn, NULL);
}

static void post(struct scene *s, enum ibv_wr_opcode op, uint64_t id, uint32_t len)
{
	post_at(&s->me, op, id, len, s->peer.is.addr, s->peer.is.rkey);
}

static void make_stream(struct scene *s)
{
	post(s, IBV_WR_RDMA_WRITE, 900, 8);
	expect_wc(s->me.scq, 900, IBV_WC_SUCCESS);
}

/* Connects, with as much time as that takes, and is impatient from then on. */
static void connect_briefly(struct scene *s, const struct ways *w, const struct ways *theirs)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_SQD,
		.timeout = w->timeout,
		.retry_cnt = w->retry_cnt,
	};

	connect_both(s, theirs);
	make_stream(s);
	end_drain(&s->me);
	assert_int_equal(
		ibv_modify_qp(s->me.qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT), 0);
	end_move(&s->me, IBV_QPS_RTS);
}

static void expect_death(struct scene *s, uint64_t since)
{
	expect_wc(s->me.scq, 1, IBV_WC_RETRY_EXC_ERR);
	assert_true(clock_ns() - since >= LEAST_NS);
	assert_true(clock_ns() - since < SLOW_NS);
	expect_wc(s->me.scq, 2, IBV_WC_WR_FLUSH_ERR);
	expect_qp_state(&s->me, IBV_QPS_ERR);
	expect_no_event(&s->me);
}

static bool is_idle(struct scene *s)
{
	return atomic_load(&to_stag_qp(s->me.qp)->state) == QP_IDLE;
}

/* ---- before there is a stream ---- */

static const enum ibv_qp_state stages[] = {IBV_QPS_RESET, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS};

static void a_peer_that_died_at_any_stage_is_asked_in_vain(void **state)
{
	for (unsigned i = 0; i < sizeof(stages) / sizeof(*stages); i++) {
		struct scene *s = i ? reopen(state) : *state;
		uint64_t began;

		peer_connect(&s->peer, &s->me, NULL, stages[i]);
		end_connect(&s->me, s->peer.is.qpn, &brief);
		peer_kill(&s->peer);
		began = clock_ns();
		post(s, IBV_WR_SEND, 1, 64);
		post(s, IBV_WR_SEND, 2, 64);
		expect_death(s, began);
	}
}

static enum reach_state reach_of(struct scene *s)
{
	enum reach_state r;

	engine_lock();
	r = to_stag_qp(s->me.qp)->rc->reach.state;
	engine_unlock();
	return r;
}

/* The peer has kept our hello. */
static void a_peer_that_dies_before_it_answers_is_asked_in_vain(void **state)
{
	for (unsigned i = 0; i < 2; i++) {
		struct scene *s = i ? reopen(state) : *state;
		uint64_t began;

		peer_connect(&s->peer, &s->me, NULL, stages[i]);
		end_connect(&s->me, s->peer.is.qpn, &brief);
		post(s, IBV_WR_SEND, 1, 64);
		post(s, IBV_WR_SEND, 2, 64);
		began = clock_ns();
		await(reach_of(s) == REACH_ASKED);
		peer_kill(&s->peer);
		expect_death(s, began);
	}
}

/* It takes connections, and answers nothing. */
static void a_peer_that_is_stopped_before_it_answers_may_answer_later(void **state)
{
	struct scene *s = *state;

	peer_connect(&s->peer, &s->me, NULL, IBV_QPS_RTS);
	end_connect(&s->me, s->peer.is.qpn, NULL);
	peer_recv(&s->peer, 2, 64);
	peer_pause(&s->peer);
	post(s, IBV_WR_SEND, 1, 64);
	await(reach_of(s) == REACH_ASKED);
	expect_nothing(s->me.scq);
	peer_continue(&s->peer);
	expect_wc(s->me.scq, 1, IBV_WC_SUCCESS);
	assert_int_equal(peer_received(&s->peer), 1);
}

/* ---- under load ---- */

static const enum ibv_wr_opcode ops[] = {
	IBV_WR_SEND,	   IBV_WR_SEND_WITH_IMM,
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM,
	IBV_WR_RDMA_READ,  IBV_WR_ATOMIC_FETCH_AND_ADD,
};

struct load {
	uint64_t posted, done;
	enum ibv_wc_status last; /* SUCCESS, then one error, then FLUSH_ERR */
	unsigned errors;
};

static void take_completion(struct load *l, const struct ibv_wc *wc)
{
	assert_int_equal(wc->wr_id, l->done++);
	if (l->errors) {
		assert_int_equal(wc->status, IBV_WC_WR_FLUSH_ERR);
	} else if (wc->status != IBV_WC_SUCCESS) {
		assert_int_equal(wc->status, IBV_WC_RETRY_EXC_ERR);
		l->errors++;
	}
}

static void poll_load(struct scene *s, struct load *l)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(s->me.scq, 1, &wc) == 1)
		take_completion(l, &wc);
}

static void run_load(struct scene *s, struct load *l, enum ibv_wr_opcode op, uint32_t len,
		     uint64_t until)
{
	while (l->done < until) {
		while (l->posted - l->done < DEPTH / 2)
			post(s, op, l->posted++, len);
		poll_load(s, l);
	}
}

/* Requests that were under way when the peer died fail, once, and in order. */
static void a_peer_that_dies_under_our_load_ends_it_in_order(void **state)
{
	for (unsigned i = 0; i < 2 * sizeof(ops) / sizeof(*ops); i++) {
		struct scene *s = i ? reopen(state) : *state;
		struct load l = {0};
		uint64_t killed;

		connect_briefly(s, &brief, NULL);
		peer_recv(&s->peer, DEPTH, ROCE_BUF);
		run_load(s, &l, ops[i / 2], i % 2 ? ROCE_BUF : 64, 1 + dice(COMPLETIONS));
		while (l.posted - l.done < DEPTH / 2)
			post(s, ops[i / 2], l.posted++, i % 2 ? ROCE_BUF : 64);
		killed = clock_ns();
		peer_kill(&s->peer);
		post(s, ops[i / 2], l.posted++, 8);
		await((poll_load(s, &l), l.done == l.posted));
		assert_int_equal(l.errors, 1);
		assert_true(clock_ns() - killed >= LEAST_NS);
		assert_true(clock_ns() - killed < SLOW_NS);
		expect_qp_state(&s->me, IBV_QPS_ERR);
		expect_no_event(&s->me);
	}
}

struct receives {
	unsigned posted, done;
};

static void poll_receives(struct scene *s, struct receives *r)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(s->me.rcq, 1, &wc) == 1) {
		assert_int_equal(wc.status, IBV_WC_SUCCESS);
		assert_int_equal(wc.wr_id, r->done++);
		post_recv_(&s->me, r->posted++, 0, ROCE_BUF);
	}
}

static uint64_t messages_of(struct scene *s)
{
	struct stag_qp *qp = to_stag_qp(s->me.qp);
	uint64_t n;

	lock_acquire(&qp->rx_lock);
	n = qp->stats.counters.rx_msgs;
	lock_release(&qp->rx_lock);
	return n;
}

static void expect_flushed(struct scene *s, struct receives *r)
{
	end_move(&s->me, IBV_QPS_ERR);
	for (; r->done < r->posted; r->done++)
		expect_wc(s->me.rcq, r->done, IBV_WC_WR_FLUSH_ERR);
	expect_nothing(s->me.rcq);
}

/* We learn nothing, and keep our receives: the end of a stream is no error. */
static void a_peer_that_dies_while_it_loads_us_is_not_noticed(void **state)
{
	for (unsigned i = 0; i < 2 * sizeof(ops) / sizeof(*ops); i++) {
		struct scene *s = i ? reopen(state) : *state;
		struct receives r = {0};
		uint64_t enough = 1 + dice(COMPLETIONS);

		connect_both(s, NULL);
		while (r.posted < DEPTH)
			post_recv_(&s->me, r.posted++, 0, ROCE_BUF);
		peer_load(&s->peer, ops[i / 2], i % 2 ? ROCE_BUF : 64, &s->me);
		await((poll_receives(s, &r), messages_of(s) >= enough));
		peer_kill(&s->peer);
		await((poll_receives(s, &r), is_idle(s)));
		poll_receives(s, &r);
		expect_qp_state(&s->me, IBV_QPS_RTS);
		expect_no_event(&s->me);
		expect_nothing(s->me.scq);
		expect_flushed(s, &r);
	}
}

static void a_peer_that_dies_while_both_load_each_other_fails_ours_only(void **state)
{
	for (unsigned i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		struct scene *s = i ? reopen(state) : *state;
		enum ibv_wr_opcode other = ops[dice(sizeof(ops) / sizeof(*ops))];
		struct load l = {0};

		connect_briefly(s, &brief, NULL);
		for (int k = 0; k < DEPTH; k++)
			post_recv_(&s->me, (uint64_t)k, 0, ROCE_BUF);
		peer_recv(&s->peer, DEPTH, ROCE_BUF);
		peer_load(&s->peer, other, 4096, &s->me);
		run_load(s, &l, ops[i], 4096, 1 + dice(COMPLETIONS));
		peer_kill(&s->peer);
		post(s, ops[i], l.posted++, 8);
		await((poll_load(s, &l), l.done == l.posted));
		assert_int_equal(l.errors, 1);
		expect_no_event(&s->me);
	}
}

/* ---- while something waits ---- */

static void wait_for_receive(struct scene *s)
{
	struct stag_qp *qp = to_stag_qp(s->me.qp);
	bool waits = false;

	await((lock_acquire(&qp->tx_lock), waits = qp->rc->hold & RC_HOLD_RNR,
	       lock_release(&qp->tx_lock), waits));
}

static void a_peer_that_dies_while_we_wait_for_its_receive_does_not_answer(void **state)
{
	struct scene *s = *state;
	uint64_t killed;

	connect_briefly(s, &brief, NULL);
	post(s, IBV_WR_SEND, 1, 64);
	post(s, IBV_WR_SEND, 2, 64);
	wait_for_receive(s);
	killed = clock_ns();
	peer_kill(&s->peer);
	expect_death(s, killed);
}

static bool is_draining(struct scene *s)
{
	struct ibv_qp_init_attr init;
	struct ibv_qp_attr a;

	assert_int_equal(ibv_query_qp(s->me.qp, &a, IBV_QP_STATE, &init), 0);
	return a.sq_draining;
}

static void a_peer_that_dies_during_our_sqd_ends_it(void **state)
{
	struct scene *s = *state;
	uint64_t killed;

	connect_briefly(s, &brief, NULL);
	peer_pause(&s->peer);
	post(s, IBV_WR_RDMA_READ, 1, 64);
	end_move(&s->me, IBV_QPS_SQD);
	post(s, IBV_WR_RDMA_READ, 2, 64);
	assert_true(is_draining(s));
	killed = clock_ns();
	peer_kill(&s->peer);
	expect_death(s, killed);
}

static void a_peer_that_dies_in_sqd_is_not_noticed(void **state)
{
	struct scene *s = *state;

	connect_both(s, NULL);
	peer_load(&s->peer, IBV_WR_RDMA_WRITE, 4096, &s->me);
	await(messages_of(s) > 10);
	peer_move(&s->peer, IBV_QPS_SQD);
	peer_kill(&s->peer);
	await(is_idle(s));
	expect_qp_state(&s->me, IBV_QPS_RTS);
	expect_no_event(&s->me);
}

/* ---- a peer that is stopped ---- */

static void a_pause_within_the_retries_loses_nothing(void **state)
{
	struct scene *s = *state;

	connect_both(s, NULL); /* 17 s */
	peer_recv(&s->peer, DEPTH, ROCE_BUF);
	make_stream(s);
	peer_pause(&s->peer);
	for (uint64_t i = 0; i < 12; i++)
		post(s, ops[i % 6], i, ROCE_BUF);
	expect_nothing(s->me.scq);
	peer_continue(&s->peer);
	for (uint64_t i = 0; i < 12; i++)
		expect_wc(s->me.scq, i, IBV_WC_SUCCESS);
	assert_int_equal(peer_received(&s->peer), 6); /* sends, and writes with immediate */
}

static void a_pause_beyond_the_retries_is_a_death_for_both(void **state)
{
	static const struct ways once = {.timeout = 10, .retry_cnt = 1};
	struct scene *s = *state;
	uint64_t began;

	connect_briefly(s, &once, &once);
	peer_pause(&s->peer);
	began = clock_ns();
	post(s, IBV_WR_RDMA_READ, 1, 64);
	post(s, IBV_WR_SEND, 2, 64);
	expect_wc(s->me.scq, 1, IBV_WC_RETRY_EXC_ERR);
	assert_true(clock_ns() - began >= NS_PER_S);
	expect_wc(s->me.scq, 2, IBV_WC_WR_FLUSH_ERR);
	peer_continue(&s->peer);
	assert_int_equal(peer_post(&s->peer, IBV_WR_RDMA_WRITE, 64, &s->me), IBV_WC_RETRY_EXC_ERR);
}

/* ---- a stranger at the port of a peer that is gone ---- */

enum squat { SILENT, GARBAGE, CLOSES, PART_OF_ANSWER, OLD_ANSWER, SQUATS };

struct squatter { /* a plain TCP server */
	enum squat kind;
	int listener, fd;
	uint8_t answer[HELLO_LEN];
	size_t heard;	/* bytes of the present connection */
	unsigned calls; /* connections */
	size_t most;	/* bytes on any connection */
};

static void squat(struct squatter *q, uint32_t qpn)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)(qpn >> 8))};
	int one = 1;

	q->fd = -1;
	q->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	assert_true(q->listener >= 0);
	setsockopt(q->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	assert_int_equal(bind(q->listener, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(q->listener, 8), 0);
}

static void hang_up(struct squatter *q)
{
	if (q->fd >= 0)
		close(q->fd);
	q->fd = -1;
	q->heard = 0;
}

static void say(struct squatter *q)
{
	uint8_t junk[4096];

	dice_fill(junk, sizeof(junk));
	switch (q->kind) {
	case GARBAGE:
		send(q->fd, junk, sizeof(junk), MSG_NOSIGNAL);
		break;
	case OLD_ANSWER:
		send(q->fd, q->answer, HELLO_LEN, MSG_NOSIGNAL);
		break;
	case PART_OF_ANSWER:
		send(q->fd, q->answer, 1 + dice(HELLO_LEN - 1), MSG_NOSIGNAL);
		hang_up(q);
		break;
	case CLOSES:
		hang_up(q);
		break;
	case SILENT:
	case SQUATS:
		break;
	}
}

static void serve(struct squatter *q)
{
	uint8_t buf[4096];
	size_t before = q->heard;
	ssize_t n;

	if (q->fd < 0) {
		q->fd = accept4(q->listener, NULL, NULL, SOCK_NONBLOCK);
		q->calls += q->fd >= 0;
	}
	if (q->fd < 0)
		return;
	n = recv(q->fd, buf, sizeof(buf), 0);
	if (n == 0 || (n < 0 && errno != EAGAIN)) {
		hang_up(q);
		return;
	}
	if (n > 0)
		q->heard += (size_t)n;
	if (q->heard > q->most)
		q->most = q->heard;
	if (before < HELLO_LEN && q->heard >= HELLO_LEN)
		say(q);
}

static void leave(struct squatter *q)
{
	hang_up(q);
	close(q->listener);
}

/* Makes the answer that the peer gave when the stream was made (later 0), as if it had been recorded, or a later one. */
static void compose_answer(struct scene *s, uint32_t later, uint8_t buf[HELLO_LEN])
{
	const struct stag_qp *qp = to_stag_qp(s->me.qp);
	const struct reach *r = &qp->rc->reach;
	struct hello h = {
		.kind = HELLO_READY,
		.type = HELLO_RC,
		.flags = HELLO_CRC,
		.caps = 0x1ff,
		.ird = 4,
		.ord = 4,
		.from_qpn = s->peer.is.qpn,
		.to_qpn = s->me.qp->qp_num,
	};
	union ibv_gid gid;

	ibv_query_gid(s->me.ctx, 1, 0, &gid);
	memcpy(h.from_gid, gid.raw, 16);
	memcpy(h.to_gid, gid.raw, 16);
	engine_lock();
	h.process = r->peer_process;
	h.life = r->peer_life;
	h.epoch = r->peer_epoch + later;
	engine_unlock();
	hello_encode(&h, buf);
}

/* A stranger at the peer's port hears no more than our hello, and our requests fail no earlier than without it. */
static void a_stranger_at_the_port_of_a_dead_peer_gets_nothing(void **state)
{
	for (int i = 0; i < SQUATS; i++) {
		struct scene *s = i ? reopen(state) : *state;
		struct squatter q = {.kind = (enum squat)i};
		struct ibv_wc wc;
		uint64_t began;

		connect_briefly(s, &brief, NULL);
		compose_answer(s, i == OLD_ANSWER ? 0 : 1000, q.answer);
		peer_kill(&s->peer);
		await(is_idle(s));
		squat(&q, s->peer.is.qpn);
		began = clock_ns();
		post(s, IBV_WR_RDMA_WRITE, 1, 64);
		post(s, IBV_WR_RDMA_READ, 2, 64);
		await((serve(&q), ibv_poll_cq(s->me.scq, 1, &wc) == 1));
		assert_int_equal(wc.wr_id, 1);
		assert_int_equal(wc.status, IBV_WC_RETRY_EXC_ERR);
		assert_true(clock_ns() - began >= LEAST_NS);
		expect_wc(s->me.scq, 2, IBV_WC_WR_FLUSH_ERR);
		assert_true(q.calls > 0);
		assert_int_equal(q.most, HELLO_LEN);
		leave(&q);
	}
}

/* ---- another process with the same port, and so the same number ---- */

static uint32_t restart(struct scene *s)
{
	uint32_t old = s->peer.is.qpn;
	char ports[32];

	peer_kill(&s->peer);
	snprintf(ports, sizeof(ports), "%u-%u", old >> 8, old >> 8);
	peer_start(&s->peer, ports);
	return old;
}

static void a_process_that_inherits_a_number_gets_nothing_of_what_was_meant_for_the_old_one(
	void **state)
{
	for (unsigned i = 0; i < sizeof(ops) / sizeof(*ops); i++) {
		struct scene *s = i ? reopen(state) : *state;
		uint32_t old;

		connect_briefly(s, &brief, NULL);
		memset(s->me.buf, 0x55, 64);
		old = restart(s);
		assert_int_equal(s->peer.is.qpn, old);
		peer_connect(&s->peer, &s->me, NULL, IBV_QPS_RTS);
		peer_recv(&s->peer, DEPTH, ROCE_BUF);
		post(s, ops[i], 1, 64);
		expect_wc(s->me.scq, 1, IBV_WC_RETRY_EXC_ERR);
		assert_int_equal(peer_received(&s->peer), 0);
		for (int k = 0; k < 64; k++)
			assert_int_equal(s->me.buf[k], 0x55);
	}
}

static void a_process_that_inherits_a_number_cannot_speak_for_the_old_one(void **state)
{
	struct scene *s = *state;
	static const struct ways once = {.timeout = 10, .retry_cnt = 1};

	connect_both(s, NULL);
	make_stream(s);
	memset(s->me.buf, 0x55, 64);
	post_recv_(&s->me, 7, 0, 64);
	restart(s);
	peer_connect(&s->peer, &s->me, &once, IBV_QPS_RTS);
	assert_int_equal(peer_post(&s->peer, IBV_WR_RDMA_WRITE, 64, &s->me), IBV_WC_RETRY_EXC_ERR);
	for (int k = 0; k < 64; k++)
		assert_int_equal(s->me.buf[k], 0x55);
	restart(s);
	peer_connect(&s->peer, &s->me, &once, IBV_QPS_RTS);
	assert_int_equal(peer_post(&s->peer, IBV_WR_SEND, 64, &s->me), IBV_WC_RETRY_EXC_ERR);
	expect_nothing(s->me.rcq);
	expect_qp_state(&s->me, IBV_QPS_RTS);
}

/* After RESET it is a peer like any other. */
static void a_queue_pair_that_was_reset_meets_the_new_process(void **state)
{
	struct scene *s = *state;

	connect_both(s, NULL);
	make_stream(s);
	restart(s);
	end_move(&s->me, IBV_QPS_RESET);
	connect_both(s, NULL);
	peer_recv(&s->peer, 1, 64);
	post(s, IBV_WR_SEND, 1, 64);
	expect_wc(s->me.scq, 1, IBV_WC_SUCCESS);
	assert_int_equal(peer_received(&s->peer), 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_scene, close_scene)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_peer_that_died_at_any_stage_is_asked_in_vain),
		TEST(a_peer_that_dies_before_it_answers_is_asked_in_vain),
		TEST(a_peer_that_is_stopped_before_it_answers_may_answer_later),
		TEST(a_peer_that_dies_under_our_load_ends_it_in_order),
		TEST(a_peer_that_dies_while_it_loads_us_is_not_noticed),
		TEST(a_peer_that_dies_while_both_load_each_other_fails_ours_only),
		TEST(a_peer_that_dies_while_we_wait_for_its_receive_does_not_answer),
		TEST(a_peer_that_dies_during_our_sqd_ends_it),
		TEST(a_peer_that_dies_in_sqd_is_not_noticed),
		TEST(a_pause_within_the_retries_loses_nothing),
		TEST(a_pause_beyond_the_retries_is_a_death_for_both),
		TEST(a_stranger_at_the_port_of_a_dead_peer_gets_nothing),
		TEST(a_process_that_inherits_a_number_gets_nothing_of_what_was_meant_for_the_old_one),
		TEST(a_process_that_inherits_a_number_cannot_speak_for_the_old_one),
		TEST(a_queue_pair_that_was_reset_meets_the_new_process),
	};

	peer_main(argc, argv);
	return cmocka_run_group_tests(tests, warm_up, NULL);
}
