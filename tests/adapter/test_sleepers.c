// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_sleepers.c - threads that sleep on a completion channel while others poll it or sleep on it,
 * too: a completion wakes one of them, whichever thread watched the sockets last.
 */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "asleep.h"
#include "side.h"

#define BIG (192u << 20)

struct sleeper {
	pthread_t thread;
	struct ibv_comp_channel *channel;
	_Atomic pid_t tid; /* 0: the thread has not started */
	_Atomic bool ended;
	_Atomic int ret;
};

static void *wait_for_cq_event(void *arg)
{
	struct sleeper *s = arg;
	struct ibv_cq *cq;
	void *context;

	s->tid = gettid();
	s->ret = ibv_get_cq_event(s->channel, &cq, &context);
	if (!s->ret)
		ibv_ack_cq_events(cq, 1);
	s->ended = true;
	return NULL;
}

static void start_sleeper(struct sleeper *s, struct ibv_comp_channel *channel)
{
	*s = (struct sleeper){.channel = channel};
	assert_int_equal(pthread_create(&s->thread, NULL, wait_for_cq_event, s), 0);
	await(s->tid);
	await_asleep(s->tid);
}

static void expect_woken(struct sleeper *s)
{
	await(s->ended);
	assert_int_equal(s->ret, 0);
	assert_int_equal(pthread_join(s->thread, NULL), 0);
}

static void on_signal(int sig)
{
}

static void interrupt_sleeper(struct sleeper *s)
{
	struct sigaction act = {.sa_handler = on_signal};

	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	/* repeated: a signal before the thread sleeps is lost */
	await((pthread_kill(s->thread, SIGUSR1), s->ended));
	assert_int_equal(s->ret, -1);
	assert_int_equal(pthread_join(s->thread, NULL), 0);
}

/* Side b of the second pair uses the CQ of side b of the first. */
static void open_pairs_on_one_cq(struct pair *one, struct pair *two)
{
	struct side_wish shared = {.channel = true};

	pair_open(one, NULL, &shared);
	shared = (struct side_wish){.cq = one->b.rcq, .pd = one->b.pd};
	pair_open(two, NULL, &shared);
}

static void close_pairs_on_one_cq(struct pair *one, struct pair *two)
{
	side_close(&two->a);
	side_close(&two->b);
	pair_close(one);
}

static void poll_empty_cq(struct ibv_cq *cq, int times)
{
	struct ibv_wc wc;

	while (times--)
		assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
}

/*
 * Polls until the first completion: a slow poller may find the write done, and then the sleeper's
 * event is there already.
 */
static void poll_until_completion(struct ibv_cq *cq, int times)
{
	struct ibv_wc wc;

	while (times-- && ibv_poll_cq(cq, 1, &wc) == 0)
		;
}

static void send_one_message(struct pair *p)
{
	struct region *in = own_region(&p->b, 64), *out = own_region(&p->a, 64);

	post_receive(&p->b, in, 0, 64);
	expect_sent(&p->a, post_send(&p->a, out, 0, 64));
}

/* A thread sleeps; another thread polls a queue pair opened since, and stops. */
static void sleeper_is_woken_after_a_poller_stopped(void **state)
{
	struct side_wish with_channel = {.channel = true}, shared;
	struct pair one, two;
	struct sleeper s;

	pair_open(&one, NULL, &with_channel);
	assert_int_equal(ibv_req_notify_cq(one.b.rcq, 0), 0);
	start_sleeper(&s, one.b.channel);
	shared = (struct side_wish){.cq = one.b.rcq, .pd = one.b.pd};
	pair_open(&two, NULL, &shared);
	poll_empty_cq(one.b.rcq, 200);
	send_one_message(&two);
	expect_woken(&s);
	close_pairs_on_one_cq(&one, &two);
}

/* The thread that stopped sleeping watched more sockets than the one that still sleeps. */
static void sleeper_is_woken_after_another_sleeper_stopped(void **state)
{
	struct side_wish with_channel = {.channel = true}, shared;
	struct sleeper first, second;
	struct pair one, two;

	pair_open(&one, NULL, &with_channel);
	assert_int_equal(ibv_req_notify_cq(one.b.rcq, 0), 0);
	start_sleeper(&first, one.b.channel);
	shared = (struct side_wish){.cq = one.b.rcq, .pd = one.b.pd};
	pair_open(&two, NULL, &shared);
	start_sleeper(&second, one.b.channel);
	interrupt_sleeper(&second);
	send_one_message(&two);
	expect_woken(&first);
	close_pairs_on_one_cq(&one, &two);
}

/* The stream is full; the thread that polled, and would have noticed room, now sleeps. */
static void blocked_write_completes_while_its_poller_sleeps(void **state)
{
	struct side_wish with_channel = {.channel = true};
	struct region *from, *to;
	struct sleeper s;
	struct pair p;

	pair_open(&p, NULL, &with_channel);
	from = own_region(&p.b, BIG);
	to = lend_region(&p.a, BIG, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(ibv_req_notify_cq(p.b.scq, 0), 0);
	post_write(&p.b, from, 0, BIG, to, 0);
	poll_until_completion(p.b.scq, 100);
	s = (struct sleeper){.channel = p.b.channel};
	assert_int_equal(pthread_create(&s.thread, NULL, wait_for_cq_event, &s), 0);
	expect_woken(&s);
	pair_close(&p);
}

/* Two threads sleep; each of two events wakes one. */
static void each_event_wakes_one_sleeper(void **state)
{
	struct sleeper first, second;
	struct pair one, two;

	open_pairs_on_one_cq(&one, &two);
	assert_int_equal(ibv_req_notify_cq(one.b.rcq, 0), 0);
	start_sleeper(&first, one.b.channel);
	start_sleeper(&second, one.b.channel);
	send_one_message(&one);
	await(first.ended || second.ended);
	assert_int_equal(ibv_req_notify_cq(one.b.rcq, 0), 0);
	send_one_message(&two);
	expect_woken(&first);
	expect_woken(&second);
	close_pairs_on_one_cq(&one, &two);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sleeper_is_woken_after_a_poller_stopped),
		cmocka_unit_test(sleeper_is_woken_after_another_sleeper_stopped),
		cmocka_unit_test(blocked_write_completes_while_its_poller_sleeps),
		cmocka_unit_test(each_event_wakes_one_sleeper),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
