// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_roce_teardowns.c - random tear-downs: nothing hangs, nothing leaks, and no byte is wrong (roce_side.c).
 *
 * The argument says where the two sides are: in `one` process, or in `two`, of which one is killed now and then.
 */
#include "roce_side.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "adapter/port.h"
#include "dice.h"
#include "roce_pair.h"

#define FLAG   "--side"
#define ROUNDS 1000
#define STEPS  10000 /* each order of magnitude is equally likely */

/* The first queue pair of a process opens what stays open. */
static int warm_up(void **state)
{
	struct end e;

	dice_start();
	end_open(&e, NULL);
	end_close(&e);
	return 0;
}

static unsigned long rounds(void)
{
	return lessened(ROUNDS);
}

static void print_totals(void)
{
	const struct side_totals *t = &side_totals;

	print_message("%lu messages, %lu announced writes, %lu reads, %lu atomics, %lu datagrams "
		      "checked; %lu requests failed\n",
		      t->messages, t->writes, t->reads, t->atomics, t->datagrams, t->failures);
	assert_true(t->messages && t->writes && t->reads && t->atomics && t->datagrams &&
		    t->failures);
}

/*
 * The fewest descriptors that were ever open between two rounds. For a moment there may be one more: a stranger's
 * connection, whose port this process has got after another one.
 */
static unsigned fewest_fds = UINT_MAX;

static bool has_no_more_fds(void)
{
	unsigned n = side_count_fds();

	if (n > fewest_fds)
		return false;
	fewest_fds = n;
	return true;
}

/* The engine closes connections that get no answer. */
static void expect_no_more_fds(void)
{
	uint64_t until = deadline();

	while (!has_no_more_fds()) {
		if (!too_late(until))
			continue;
		side_print_fds();
		fail_msg("more than %u descriptors are open", fewest_fds);
	}
}

/* ---- in one process ---- */

static void one_round(uint64_t seed)
{
	struct side *side[2];
	int fd[2];
	bool left[2] = {true, true};

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd), 0);
	for (unsigned i = 0; i < 2; i++)
		side[i] = side_open(i, seed, fd[i]);
	for (uint64_t n = dice_size(STEPS); n > 0; n--)
		side_step(side[dice(2)]);
	while (left[0] || left[1]) {
		unsigned i = (unsigned)dice(2);

		if (left[i])
			left[i] = side_take_apart(side[i]);
		if (left[0] && left[1] && one_in(2))
			side_step(side[!i]);
	}
	close(fd[0]);
	close(fd[1]);
	expect_no_more_fds();
}

static void random_tear_downs_in_one_process(void **state)
{
	expect_no_more_fds();
	for (unsigned long i = 0; i < rounds(); i++)
		one_round(dice(UINT64_MAX));
	print_totals();
}

/* ---- in two processes ---- */

struct job {
	uint64_t seed;
	uint64_t dice; /* of the other side */
	uint64_t steps;
};

struct partner {
	pid_t pid;
	int jobs, cards; /* sockets */
};

static void do_round(unsigned number, const struct job *j, int cards)
{
	struct side *s = side_open(number, j->seed, cards);

	for (uint64_t n = j->steps; n > 0; n--)
		side_step(s);
	while (side_take_apart(s))
		;
}

static void drain(int fd)
{
	uint8_t junk[64];

	while (recv(fd, junk, sizeof(junk), MSG_DONTWAIT) > 0)
		;
}

/* In the partner: does what it is told, until the test ends. */
static void serve(int jobs, int cards)
{
	struct job j;

	warm_up(NULL);
	expect_no_more_fds();
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (recv(jobs, &j, sizeof(j), 0) == sizeof(j)) {
		dice_start_with(j.dice);
		do_round(1, &j, cards);
		expect_no_more_fds();
		send(jobs, &j, sizeof(j), MSG_NOSIGNAL);
	}
	_exit(0);
}

static void start(struct partner *p)
{
	int jobs[2], cards[2];
	char a[16], b[16];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, jobs), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, cards), 0);
	p->pid = fork();
	assert_true(p->pid >= 0);
	if (p->pid == 0) {
		snprintf(a, sizeof(a), "%d", dup(jobs[1])); /* without CLOEXEC */
		snprintf(b, sizeof(b), "%d", dup(cards[1]));
		execl("/proc/self/exe", "side", FLAG, a, b, (char *)NULL);
		_exit(127);
	}
	close(jobs[1]);
	close(cards[1]);
	p->jobs = jobs[0];
	p->cards = cards[0];
}

static void stop(struct partner *p)
{
	kill(p->pid, SIGKILL);
	while (waitpid(p->pid, NULL, 0) < 0 && errno == EINTR)
		;
	close(p->jobs);
	close(p->cards);
}

static void random_tear_downs_between_two_processes(void **state)
{
	struct partner p;

	expect_no_more_fds();
	start(&p);
	for (unsigned long i = 0; i < rounds(); i++) {
		struct job j = {dice(UINT64_MAX), dice(UINT64_MAX), dice_size(STEPS)};
		bool kills = one_in(16);

		assert_int_equal(send(p.jobs, &j, sizeof(j), MSG_NOSIGNAL), sizeof(j));
		j.steps = dice_size(STEPS);
		if (kills) {
			struct side *s = side_open(0, j.seed, p.cards);

			for (uint64_t n = j.steps; n > 0; n--)
				side_step(s);
			kill(p.pid, SIGKILL);
			for (uint64_t n = dice_size(STEPS); n > 0; n--)
				side_step(s);
			while (side_take_apart(s))
				;
			stop(&p);
			start(&p);
			continue;
		}
		do_round(0, &j, p.cards);
		assert_int_equal(recv(p.jobs, &j, sizeof(j), 0), sizeof(j));
		drain(p.cards);
	}
	stop(&p);
	expect_no_more_fds();
	print_totals();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest one[] = {cmocka_unit_test(random_tear_downs_in_one_process)};
	const struct CMUnitTest two[] = {cmocka_unit_test(random_tear_downs_between_two_processes)};

	if (argc > 3 && strcmp(argv[1], FLAG) == 0)
		serve(atoi(argv[2]), atoi(argv[3]));
	if (argc > 1 && strcmp(argv[1], "two") == 0)
		return cmocka_run_group_tests(two, warm_up, NULL);
	return cmocka_run_group_tests(one, warm_up, NULL);
}
