// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_flood.c - strangers at the port of a pool (tests/lib/flood), beside honest clients: one that puts all the
 * time, others that come and go. Two nodes, each in a process of its own, with a lease of 200 ms.
 *
 * What the honest see is asserted: every put, and every new client's first put, is answered within a second, and no
 * node but the first ever becomes primary. On a machine with many other busy processes all of them may be slow for
 * lack of processors, attack or not: an attack in which somebody waited for longer is repeated. One that made a node
 * primary is repeated twice, or if the machine stood still, which threads find that only sleep and look at the clock, one on each processor.
 *
 * `test_pool_flood TEST` runs one test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "await.h"
#include "stag/pool.h"

#define SECRET	      "a secret of the nodes, long enough"
#define WORD	      "a word that the client knows"
#define SIZE	      (16ull << 20)
#define LEASE_MS      200
#define ATTACK_NS     (900 * NS_PER_MS)
#define WITHIN_NS     (1 * NS_PER_S)
#define STALL_NS      (15 * NS_PER_MS) /* the machine has no time for us */
#define ATTEMPTS      20
#define STANDSTILL_NS (5 * LEASE_MS * NS_PER_MS)
#define LOCKOUT_NS    (3 * NS_PER_S) /* an attack on a name: its user would be kept out for longer */
#define LOCKOUTS      3		     /* few: by chance, everybody gets in during one of many */
#define RETURN_NS     (2 * NS_PER_S) /* a node returns: process, connection and copy */
#define FLOODS	      4
#define MOST_WATCHERS 64

/* ---- processes ---------------------------------------------------------------------------- */

struct process {
	pid_t pid;
	int in;
	FILE *out;
};

static char self[512];

static void start_process(struct process *p, const char *const *words)
{
	int in[2], out[2];

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	p->pid = fork();
	if (p->pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execv(words[0], (char *const *)(uintptr_t)words);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	p->in = in[1];
	p->out = fdopen(out[0], "r");
}

static void end_process(struct process *p)
{
	if (!p->pid)
		return;
	close(p->in);
	waitpid(p->pid, NULL, 0);
	fclose(p->out);
	p->pid = 0;
}

/* Keeps the thread that gets the signal from doing anything else. */
static void stand_still(int signo)
{
	struct timespec rest = {.tv_sec = STANDSTILL_NS / NS_PER_S,
				.tv_nsec = STANDSTILL_NS % NS_PER_S};

	(void)signo;
	while (nanosleep(&rest, &rest) != 0)
		continue;
}

/* Stops the node's thread, and no other, for STANDSTILL_NS. */
static void stop_thread(void)
{
	struct dirent *e;
	DIR *dir = opendir("/proc/self/task");

	while ((e = readdir(dir))) {
		char path[300], name[32] = "";
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
		f = fopen(path, "r");
		if (f && fgets(name, sizeof(name), f) && strcmp(name, "stag-node\n") == 0)
			syscall(SYS_tgkill, getpid(), atoi(e->d_name), SIGUSR1);
		if (f)
			fclose(f);
	}
	closedir(dir);
}

/* test_pool_flood node NAME STATE ROLL create|join */
static int be_node(char **argv)
{
	const struct stag_pool_user users[] = {
		{.name = "writer",
		 .secret = WORD,
		 .rights = STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE}};
	struct stag_pool_node_attr attr = {
		.pool = "test",
		.node = argv[2],
		.state = argv[3],
		.roll = argv[4],
		.secret = SECRET,
		.address = "127.0.0.1",
		.flags = STAG_POOL_ANY_PORT | (argv[5][0] == 'c' ? STAG_POOL_CREATE : 0),
		.size = SIZE,
		.users = users,
		.num_users = 1,
		.beat_us = 10000,
		.lease_ms = LEASE_MS,
		.promote_ms = LEASE_MS,
		.log_bytes = 4 << 20,
	};
	struct stag_pool_node *node;
	struct stag_pool_node_info info = {0};
	unsigned int standbys;
	char what;

	signal(SIGUSR1, stand_still);
	node = stag_pool_node_start(&attr);
	printf("%d\n", node ? 0 : errno);
	fflush(stdout);
	while (node && read(STDIN_FILENO, &what, 1) == 1) {
		if (what == 's')
			stop_thread();
		stag_pool_node_query(node, &info, sizeof(info));
		standbys = 0;
		for (unsigned int i = 0; i < info.num_members; i++)
			standbys += info.members[i].role == STAG_POOL_ROLE_STANDBY;
		printf("%u %u %u %llu %llu %llu\n", info.role, info.port, standbys,
		       (unsigned long long)info.epoch, (unsigned long long)info.lapses,
		       (unsigned long long)info.refused);
		fflush(stdout);
	}
	stag_pool_node_stop(node);
	return 0;
}

struct news {
	unsigned int role, port, standbys;
	unsigned long long epoch, lapses, refused;
};

static struct news ask_node(struct process *p, char what)
{
	struct news w = {0};

	assert_int_equal(write(p->in, &what, 1), 1);
	assert_int_equal(fscanf(p->out, "%u %u %u %llu %llu %llu", &w.role, &w.port, &w.standbys,
				&w.epoch, &w.lapses, &w.refused),
			 6);
	return w;
}

static struct news query_node(struct process *p)
{
	return ask_node(p, 'q');
}

static void start_node(struct process *p, const char *dir, const char *name, const char *how)
{
	char state[128], roll[128];
	const char *words[] = {self, "node", name, state, roll, how, NULL};
	int rc = -1;

	snprintf(state, sizeof(state), "%s/%s", dir, name);
	snprintf(roll, sizeof(roll), "file:%s/roll", dir);
	start_process(p, words);
	assert_int_equal(fscanf(p->out, "%d", &rc), 1);
	assert_int_equal(rc, 0);
}

/* ---- honest clients ------------------------------------------------------------------------- */

struct honest {
	uint16_t port;
	_Atomic bool over;
	_Atomic uint64_t worst_put, worst_visit, puts, visits; /* ns; counts */
	_Atomic int error;
	_Atomic uint64_t stall; /* the longest time for which the machine stood still */
	struct stag_pool *pool;
};

static void note_worst(_Atomic uint64_t *worst, uint64_t ns)
{
	uint64_t was = *worst;

	while (ns > was && !atomic_compare_exchange_weak(worst, &was, ns))
		;
}

static struct stag_pool *open_pool(uint16_t port)
{
	const struct stag_pool_attr attr = {.user = "writer", .secret = WORD, .timeout_ms = 60000};
	char where[32];

	snprintf(where, sizeof(where), "127.0.0.1:%u", port);
	return stag_pool_open(where, &attr);
}

static void *put_all_the_time(void *arg)
{
	struct honest *h = arg;

	while (!h->over) {
		uint64_t since = clock_ns();
		int rc = stag_pool_put(h->pool, "honest", "a value", 7, 0, NULL);

		if (rc != 0)
			h->error = rc;
		note_worst(&h->worst_put, clock_ns() - since);
		h->puts++;
		nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
	}
	return NULL;
}

static void *visit_all_the_time(void *arg)
{
	struct honest *h = arg;

	while (!h->over) {
		uint64_t since = clock_ns();
		struct stag_pool *pool = open_pool(h->port);
		int rc = pool ? stag_pool_put(pool, "visitor", "a value", 7, 0, NULL) : errno;

		if (rc != 0)
			h->error = rc;
		note_worst(&h->worst_visit, clock_ns() - since);
		h->visits++;
		stag_pool_close(pool);
		nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	}
	return NULL;
}

/* Sleeps and looks at the clock, as nothing of the pool or of the attack can delay. */
static void *watch_the_machine(void *arg)
{
	struct honest *h = arg;

	while (!h->over) {
		uint64_t since = clock_ns();

		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		note_worst(&h->stall, clock_ns() - since);
	}
	return NULL;
}

/* A thread on each processor that watches: one of them may stand still while others run. */
struct watchers {
	unsigned int n;
	pthread_t threads[MOST_WATCHERS];
};

static void start_watchers(struct watchers *w, struct honest *h)
{
	cpu_set_t all, one;

	w->n = 0;
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	for (unsigned int cpu = 0; cpu < CPU_SETSIZE && w->n < MOST_WATCHERS; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		assert_int_equal(pthread_create(&w->threads[w->n], NULL, watch_the_machine, h), 0);
		pthread_setaffinity_np(w->threads[w->n++], sizeof(one), &one);
	}
}

static void join_watchers(struct watchers *w)
{
	while (w->n)
		pthread_join(w->threads[--w->n], NULL);
}

/* ---- attacks ---------------------------------------------------------------------------------- */

struct story {
	char dir[64];
	struct process a, b, floods[FLOODS];
	struct honest honest;
};

struct attack {
	const char *kind, *options[4];
};

static void start_floods(struct story *s, const struct attack *attacks)
{
	char port[8];

	snprintf(port, sizeof(port), "%u", s->honest.port);
	for (unsigned int i = 0; i < FLOODS && attacks[i].kind; i++) {
		const struct attack *a = &attacks[i];
		const char *words[] = {FLOOD,	      a->kind,	     "127.0.0.1",
				       port,	      a->options[0], a->options[1],
				       a->options[2], a->options[3], NULL};

		start_process(&s->floods[i], words);
	}
}

static void end_floods(struct story *s)
{
	for (unsigned int i = 0; i < FLOODS; i++) {
		char line[128] = "";

		if (!s->floods[i].pid)
			continue;
		close(s->floods[i].in);
		if (fgets(line, sizeof(line), s->floods[i].out))
			print_message("strangers: %s", line);
		waitpid(s->floods[i].pid, NULL, 0);
		fclose(s->floods[i].out);
		s->floods[i].pid = 0;
	}
}

static void attack_once(struct story *s, const struct attack *attacks, uint64_t duration)
{
	void *(*const parts[])(void *) = {put_all_the_time, visit_all_the_time};
	struct honest *h = &s->honest;
	struct watchers watchers;
	pthread_t threads[2];

	h->over = false;
	h->worst_put = h->worst_visit = h->stall = h->puts = h->visits = 0;
	h->error = 0;
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, parts[i], h), 0);
	start_watchers(&watchers, h);
	start_floods(s, attacks);
	nanosleep(&(struct timespec){.tv_sec = (time_t)(duration / NS_PER_S),
				     .tv_nsec = (long)(duration % NS_PER_S)},
		  NULL);
	end_floods(s);
	h->over = true;
	for (unsigned int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	join_watchers(&watchers);
	print_message("%s: %llu puts, the longest took %.0f ms; %llu visits, %.0f ms; the machine "
		      "stood still for %.0f ms\n",
		      attacks[0].kind, (unsigned long long)h->puts, (double)h->worst_put / 1e6,
		      (unsigned long long)h->visits, (double)h->worst_visit / 1e6,
		      (double)h->stall / 1e6);
}

static bool is_unharmed(struct story *s, unsigned long long epoch)
{
	struct honest *h = &s->honest;

	return h->error == 0 && h->worst_put < WITHIN_NS && h->worst_visit < WITHIN_NS &&
	       query_node(&s->a).epoch == epoch;
}

static bool has_failed_over(struct story *s, unsigned long long epoch)
{
	return s->honest.error != 0 || query_node(&s->a).epoch != epoch;
}

static void expect_unharmed_for(struct story *s, const struct attack *attacks, uint64_t duration,
				unsigned int attempts)
{
	struct honest *h = &s->honest;
	unsigned int failed = 0;

	for (unsigned int i = 0; i < attempts; i++) {
		unsigned long long epoch;

		await(query_node(&s->a).standbys == 1 || query_node(&s->b).standbys == 1);
		epoch = query_node(&s->a).epoch;
		attack_once(s, attacks, duration);
		if (is_unharmed(s, epoch))
			return;
		failed += h->stall < STALL_NS && has_failed_over(s, epoch);
		if (failed == 3)
			break; /* it was not the machine */
	}
	assert_int_equal(h->error, 0);
	assert_true(h->worst_put < WITHIN_NS);
	assert_true(h->worst_visit < WITHIN_NS);
	fail_msg("another node became primary");
}

static void expect_unharmed(struct story *s, const struct attack *attacks)
{
	expect_unharmed_for(s, attacks, ATTACK_NS, ATTEMPTS);
}

/* ---- stories ------------------------------------------------------------------------------------ */

static int set_up(void **state)
{
	struct story *s = calloc(1, sizeof(*s));

	strcpy(s->dir, "/tmp/stag-flood-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	*state = s;
	start_node(&s->a, s->dir, "a", "create");
	start_node(&s->b, s->dir, "b", "join");
	await(query_node(&s->a).standbys == 1);
	s->honest.port = (uint16_t)query_node(&s->a).port;
	s->honest.pool = open_pool(s->honest.port);
	assert_non_null(s->honest.pool);
	return 0;
}

static int tear_down(void **state)
{
	struct story *s = *state;
	char line[128];

	for (unsigned int i = 0; i < FLOODS; i++)
		end_process(&s->floods[i]);
	stag_pool_close(s->honest.pool);
	end_process(&s->a);
	end_process(&s->b);
	snprintf(line, sizeof(line), "rm -rf %s", s->dir);
	assert_int_equal(system(line), 0);
	free(s);
	return 0;
}

/* Returns whether the pool was as before while the thread of this node stood still. */
static bool is_unnoticed(struct story *s, struct process *node)
{
	struct honest *h = &s->honest;
	struct news a, b;
	struct watchers watchers;

	await(query_node(&s->a).standbys == 1);
	a = query_node(&s->a);
	h->over = false;
	h->stall = 0;
	start_watchers(&watchers, h);
	ask_node(node, 's');
	nanosleep(&(struct timespec){.tv_sec = (STANDSTILL_NS + NS_PER_S) / NS_PER_S}, NULL);
	h->over = true;
	join_watchers(&watchers);
	b = query_node(&s->a);
	print_message("%llu lapses, %u standbys, epoch %llu; the machine stood still for %.0f ms\n",
		      b.lapses - a.lapses, b.standbys, b.epoch, (double)h->stall / 1e6);
	return b.epoch == a.epoch && b.lapses == a.lapses && b.standbys == 1;
}

/* Without a pulse it is noticed every time; with one, on a machine that has no time for the pulse. */
static void expect_unnoticed(struct story *s, struct process *node)
{
	for (unsigned int i = 0; i < ATTEMPTS; i++)
		if (is_unnoticed(s, node))
			return;
	fail_msg("the lease lapsed, or a standby was dropped, or another node became primary");
}

static void primary_with_a_busy_thread_keeps_its_lease(void **state)
{
	struct story *s = *state;

	expect_unnoticed(s, &s->a);
}

static void standby_with_a_busy_thread_stays_in_sync(void **state)
{
	struct story *s = *state;

	expect_unnoticed(s, &s->b);
}

static void hellos_of_a_stranger_disturb_nobody(void **state)
{
	expect_unharmed(*state, (const struct attack[]){{"hello", {"from=127.0.0.2", "rate=5000"}},
							{"hello", {"from=127.0.0.3", "rate=5000"}},
							{"hello", {"from=127.0.0.4", "rate=5000"}},
							{0}});
}

static void hellos_from_the_address_of_a_client_disturb_nobody(void **state)
{
	expect_unharmed(*state,
			(const struct attack[]){{"hello", {"from=127.0.0.1", "rate=10000"}}, {0}});
}

static void silent_connections_disturb_nobody(void **state)
{
	expect_unharmed(*state,
			(const struct attack[]){{"silent", {"from=127.0.0.2", "open=4000"}}, {0}});
}

static void halves_of_requests_disturb_nobody(void **state)
{
	expect_unharmed(*state,
			(const struct attack[]){{"half", {"from=127.0.0.2", "open=4000"}}, {0}});
}

static void wrong_proofs_and_noise_disturb_nobody(void **state)
{
	expect_unharmed(*state, (const struct attack[]){{"proof", {"from=127.0.0.2"}},
							{"proof", {"from=127.0.0.1", "rate=1000"}},
							{"noise", {"from=127.0.0.3", "rate=5000"}},
							{0}});
}

/* Anybody can read a client's name on the network, and fail for it, from many addresses. */
static void wrong_proofs_in_the_name_of_a_client_do_not_keep_it_out(void **state)
{
	expect_unharmed_for(
		*state,
		(const struct attack[]){
			{"proof", {"from=127.66.0.1", "rate=1000", "name=writer", "addresses=8"}},
			{0}},
		LOCKOUT_NS, LOCKOUTS);
}

/* Stops the standby, and starts it again. Returns how long it took to be in sync again. */
static uint64_t restart_standby(struct story *s)
{
	uint64_t since;

	end_process(&s->b);
	await(query_node(&s->a).standbys == 0);
	since = clock_ns();
	start_node(&s->b, s->dir, "b", "join");
	while (query_node(&s->a).standbys == 0 && clock_ns() - since < RETURN_NS)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	return clock_ns() - since;
}

static void wrong_proofs_in_the_name_of_a_standby_do_not_keep_it_out(void **state)
{
	const struct attack attacks[] = {
		{"node", {"from=127.66.0.1", "rate=1000", "name=b", "addresses=8"}}, {0}};
	struct story *s = *state;
	unsigned long long refused;
	unsigned int quick = 0;

	await(query_node(&s->a).standbys == 1);
	refused = query_node(&s->a).refused;
	start_floods(s, attacks);
	await(query_node(&s->a).refused > refused + 200);
	for (unsigned int i = 0; i < LOCKOUTS; i++) {
		uint64_t took = restart_standby(s);

		print_message("the standby returned in %.0f ms\n", (double)took / 1e6);
		quick += took < RETURN_NS;
	}
	end_floods(s);
	assert_true(quick > LOCKOUTS / 2); /* not by chance, nor always if the machine is busy */
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(primary_with_a_busy_thread_keeps_its_lease),
		cmocka_unit_test(standby_with_a_busy_thread_stays_in_sync),
		cmocka_unit_test(hellos_of_a_stranger_disturb_nobody),
		cmocka_unit_test(hellos_from_the_address_of_a_client_disturb_nobody),
		cmocka_unit_test(silent_connections_disturb_nobody),
		cmocka_unit_test(halves_of_requests_disturb_nobody),
		cmocka_unit_test(wrong_proofs_and_noise_disturb_nobody),
		cmocka_unit_test(wrong_proofs_in_the_name_of_a_client_do_not_keep_it_out),
		cmocka_unit_test(wrong_proofs_in_the_name_of_a_standby_do_not_keep_it_out),
	};

	if (argc > 5 && strcmp(argv[1], "node") == 0)
		return be_node(argv);
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	signal(SIGPIPE, SIG_IGN);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, set_up, tear_down);
}
