// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_sleepers.c - threads that sleep on a completion channel while others
 * poll or sleep there too: what comes wakes somebody, whoever looked last.
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
	_Atomic pid_t tid; /* 0: it has not begun */
	_Atomic bool ended;
	_Atomic int ret;
};

static void *sleep_on(void *arg)
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

static void go_to_sleep(struct sleeper *s, struct ibv_comp_channel *channel)
{
	*s = (struct sleeper){.channel = channel};
	assert_int_equal(pthread_create(&s->thread, NULL, sleep_on, s), 0);
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

static void interrupt(struct sleeper *s)
{
	struct sigaction act = {.sa_handler = on_signal};

	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	/* one that comes before it sleeps is lost */
	await((pthread_kill(s->thread, SIGUSR1), s->ended));
	assert_int_equal(s->ret, -1);
	assert_int_equal(pthread_join(s->thread, NULL), 0);
}

/* The second pair's b completes where the first one's does. */
static void open_two(struct pair *one, struct pair *two)
{
	struct side_wish shared = {.channel = true};

	pair_open(one, NULL, &shared);
	shared = (struct side_wish){.cq = one->b.rcq, .pd = one->b.pd};
	pair_open(two, NULL, &shared);
}

static void close_two(struct pair *one, struct pair *two)
{
	side_close(&two->a);
	side_close(&two->b);
	pair_close(one);
}

static void poll_in_vain(struct ibv_cq *cq, int times)
{
	struct ibv_wc wc;

	while (times--)
		assert_int_equal(ibv_poll_cq(cq, 1, &wc), 0);
}

/* A slow poller may find that it is done already: then the sleeper's event is there. */
static void poll_for_a_while(struct ibv_cq *cq, int times)
{
	struct ibv_wc wc;

	while (times-- && ibv_poll_cq(cq, 1, &wc) == 0)
		;
}

static void send_to(struct pair *p)
{
	struct region *in = own_region(&p->b, 64), *out = own_region(&p->a, 64);

	post_receive(&p->b, in, 0, 64);
	expect_sent(&p->a, post_send(&p->a, out, 0, 64));
}

/* A thread sleeps; another polls for a new queue pair, and gives up. */
static void a_sleeper_hears_of_what_a_poller_left(void **state)
{
	struct side_wish with_channel = {.channel = true}, shared;
	struct pair one, two;
	struct sleeper s;

	pair_open(&one, NULL, &with_channel);
	assert_int_equal(ibv_req_notify_cq(one.b.rcq, 0), 0);
	go_to_sleep(&s, one.b.channel);
	shared = (struct side_wish){.cq = one.b.rcq, .pd = one.b.pd};
	pair_open(&two, NULL, &shared);
	poll_in_vain(one.b.rcq, 200);
	send_to(&two);
	expect_woken(&s);
	close_two(&one, &two);
}

/* The one who slept last watched more sockets than the one who sleeps on. */
static void a_sleeper_hears_of_what_another_left(void **state)
{
	struct side_wish with_channel = {.channel = true}, shared;
	struct sleeper first, second;
	struct pair one, two;

	pair_open(&one, NULL, &with_channel);
	assert_int_equal(ibv_req_notify_cq(one.b.rcq, 0), 0);
	go_to_sleep(&first, one.b.channel);
	shared = (struct side_wish){.cq = one.b.rcq, .pd = one.b.pd};
	pair_open(&two, NULL, &shared);
	go_to_sleep(&second, one.b.channel);
	interrupt(&second);
	send_to(&two);
	expect_woken(&first);
	close_two(&one, &two);
}

/* The stream is full; who polled, and would see room, goes to sleep in favour of another. */
static void a_full_stream_goes_on_while_one_sleeps(void **state)
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
	poll_for_a_while(p.b.scq, 100);
	s = (struct sleeper){.channel = p.b.channel};
	assert_int_equal(pthread_create(&s.thread, NULL, sleep_on, &s), 0);
	expect_woken(&s);
	pair_close(&p);
}

/* Two sleep; each of two events wakes one. */
static void each_event_wakes_one(void **state)
{
	struct sleeper first, second;
	struct pair one, two;

	open_two(&one, &two);
	assert_int_equal(ibv_req_notify_cq(one.b.rcq, 0), 0);
	go_to_sleep(&first, one.b.channel);
	go_to_sleep(&second, one.b.channel);
	send_to(&one);
	await(first.ended || second.ended);
	assert_int_equal(ibv_req_notify_cq(one.b.rcq, 0), 0);
	send_to(&two);
	expect_woken(&first);
	expect_woken(&second);
	close_two(&one, &two);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sleeper_hears_of_what_a_poller_left),
		cmocka_unit_test(a_sleeper_hears_of_what_another_left),
		cmocka_unit_test(a_full_stream_goes_on_while_one_sleeps),
		cmocka_unit_test(each_event_wakes_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
