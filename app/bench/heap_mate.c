// SPDX-License-Identifier: BSD-2-Clause
/*
 * heap_mate.c - a second process or thread that does its part of a round beside this one.
 *
 * Between rounds it sleeps on a socket; a round begins for both at a gate where they spin. This
 * file does not know what the parts do.
 */
#include "part.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "stag.h"

#define LOOKS (1u << 16) /* spins between two checks that the mate is alive */

/* In memory that both share. */
struct bench_mate {
	bench_part part; /* of the round */
	uint64_t n, ns, cpu;
	_Atomic uint64_t arrived;
	enum mate_kind kind;
	bool alone;  /* one CPU: a spinning process keeps the other from working */
	int sock[2]; /* of this process, of the mate */
	pid_t pid;
	pthread_t thread;
	uint64_t rounds;
};

static void check_mate_alive(const struct bench_mate *m)
{
	if (m->kind == MATE_PROCESS && waitpid(m->pid, NULL, WNOHANG) == m->pid)
		bench_die("the other process died");
}

void mate_relax(const struct bench_mate *m)
{
	static __thread unsigned int spins;

	if (m->alone)
		sched_yield();
	else
		__builtin_ia32_pause();
	if (++spins % LOOKS == 0)
		check_mate_alive(m);
}

static void meet_at_gate(struct bench_mate *m, uint64_t round)
{
	atomic_fetch_add(&m->arrived, 1);
	while (atomic_load(&m->arrived) < 2 * round)
		mate_relax(m);
}

static void *serve_rounds(void *arg)
{
	struct bench_mate *m = arg;
	char byte;

	bench_pin(0);
	for (uint64_t round = 1; read(m->sock[1], &byte, 1) == 1; round++) {
		uint64_t start, cpu;

		meet_at_gate(m, round);
		cpu = bench_clock(CLOCK_THREAD_CPUTIME_ID);
		start = clock_ns();
		m->part(m->n);
		m->ns = clock_ns() - start;
		m->cpu = bench_clock(CLOCK_THREAD_CPUTIME_ID) - cpu;
		if (write(m->sock[1], &byte, 1) != 1)
			break;
	}
	return NULL;
}

static void fork_mate(struct bench_mate *m)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid < 0)
		bench_die("cannot start a process: %s", strerror(errno));
	if (pid > 0) {
		m->pid = pid;
		close(m->sock[1]);
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(m->sock[0]);
	serve_rounds(m);
	_exit(EXIT_OK);
}

struct bench_mate *mate_start(enum mate_kind kind)
{
	struct bench_mate *m =
		mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (m == MAP_FAILED || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, m->sock))
		bench_die("cannot set up a second process: %s", strerror(errno));
	m->kind = kind;
	m->alone = bench_cpus() < 2;
	if (kind == MATE_PROCESS)
		fork_mate(m);
	else if (pthread_create(&m->thread, NULL, serve_rounds, m))
		bench_die("cannot start a thread");
	return m;
}

void mate_begin(struct bench_mate *m, bench_part part, uint64_t n)
{
	char go = 0;

	m->part = part;
	m->n = n;
	if (send(m->sock[0], &go, 1, MSG_NOSIGNAL) != 1)
		bench_die("the other process died");
	meet_at_gate(m, ++m->rounds);
}

void mate_await(struct bench_mate *m, uint64_t *ns, uint64_t *cpu)
{
	char done;

	if (read(m->sock[0], &done, 1) != 1)
		bench_die("the other process died");
	*ns = m->ns;
	*cpu = m->cpu;
}

void mate_do(struct bench_mate *m, bench_part part)
{
	uint64_t ns, cpu;

	mate_begin(m, part, 0);
	mate_await(m, &ns, &cpu);
}

void mate_end(struct bench_mate *m)
{
	int status = 0;

	shutdown(m->sock[0], SHUT_RDWR);
	if (m->kind == MATE_THREAD) {
		pthread_join(m->thread, NULL);
		close(m->sock[1]);
	} else if (waitpid(m->pid, &status, 0) == m->pid && status) {
		bench_die("the other process failed");
	}
	close(m->sock[0]);
	munmap(m, sizeof(*m));
}
