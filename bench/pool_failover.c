// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_failover.c - kills the primary of a pool of two nodes again and again, and measures how long
 * its clients wait: for bench/pool. Runs under `stag run`; the nodes are those of `stag bench part
 * pool` of the same build.
 *
 *   pool_failover ROLL DIR COUNT [mib=N] [clients=N] [port=N] [samples=FILE]
 *
 * Each client submits a change right after the SIGKILL; the time ends when the former standby
 * acknowledges it. The killed node is restarted, and is in sync before the next kill. The steps in
 * between are found in the trace DIR/trace: the log of all processes, with times. Prints JSON:
 * milliseconds from the kill to each step, as median, 99th percentile and maximum. samples: the
 * same for each failover, divided by tabs. With several clients, the steps are those of the last
 * one.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "stag/pool.h"

#define MAX_CLIENTS 1024u
#define VALUE	    64u
#define PATIENCE    (30 * NS_PER_S)
#define LOST_MS	    5000

/*
 * The steps between the kill and the answer, and the text of the line in the trace that shows each.
 */
static const struct step {
	const char *name, *line;
} steps[] = {
	{"lost", " is lost"},		      /* the client has noticed the death */
	{"fenced", "fenced the primary of "}, /* the standby has fenced the old primary */
	{"primary", ": primary of epoch "},   /* the roll is changed, and clients are admitted */
	{"let_in", "pool: admitted by "},     /* the client is authenticated there */
	{"attached", "the primary is at "},   /* and is attached again */
	{"answered", NULL},		      /* its change is acknowledged: the failover is over */
	{"first", NULL},		      /* the same for the first of several clients */
};

#define STEPS	 (sizeof(steps) / sizeof(*steps))
#define FENCED	 1
#define PRIMARY	 2
#define ANSWERED 5
#define FIRST	 6

struct client {
	struct stag_pool *pool;
	struct stag_pool_ptr ptr;
	uint64_t epoch; /* before the kill */
	uint64_t answered;
	uint8_t value[VALUE];
};

static struct {
	const char *roll, *dir;
	unsigned int count, mib, num_clients, port;
	unsigned int pools; /* made so far */
	FILE *samples;
	pid_t nodes[2];
	int primary;
	int trace;
	struct client *clients;
	double *ms[STEPS];
} b = {.mib = 64, .num_clients = 1, .port = 5395};

static void kill_nodes(void)
{
	for (int i = 0; i < 2; i++)
		if (b.nodes[i] > 0)
			kill(b.nodes[i], SIGKILL);
}

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
	va_list ap;

	fputs("pool_failover: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	kill_nodes();
	exit(1);
}

static void *allocate(size_t size)
{
	void *p = calloc(1, size);

	if (!p)
		die("out of memory");
	return p;
}

static const char *format_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static const char *format_text(const char *fmt, ...)
{
	va_list ap;
	char *text;

	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		die("out of memory");
	va_end(ap);
	return text;
}

/* ---- nodes ---- */

static const char *path_of_stag(void)
{
	static char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 32);
	char *slash;

	path[len > 0 ? len : 0] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		die("cannot find the command stag");
	strcpy(slash, "/../app/stag/stag");
	return path;
}

static void start_node(int which, bool creates)
{
	const char *words[] = {path_of_stag(),
			       "bench",
			       "part",
			       "pool",
			       "node",
			       format_text("%s.%u", b.roll, b.pools),
			       format_text("%s/%u-%d", b.dir, b.pools, which),
			       which ? "second" : "first",
			       format_text("%u", b.port + (unsigned int)which),
			       creates ? format_text("create=%u", b.mib) : NULL,
			       NULL};
	pid_t pid = fork();

	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0) {
		execv(words[0], (char *const *)(uintptr_t)words);
		_exit(127);
	}
	b.nodes[which] = pid;
	free((char *)(uintptr_t)words[5]);
	free((char *)(uintptr_t)words[6]);
	free((char *)(uintptr_t)words[8]);
	free((char *)(uintptr_t)words[9]);
}

static const char *node_address(void)
{
	static char text[64];

	snprintf(text, sizeof(text), "127.0.0.1:%u,127.0.0.1:%u", b.port, b.port + 1);
	return text;
}

/* Waits until the primary reports that both are in sync. Returns its index. */
static int await_sync(struct stag_pool *pool)
{
	uint64_t until = clock_ns() + PATIENCE;
	struct stag_pool_info info;
	int primary, standbys;

	while (clock_ns() < until) {
		info = (struct stag_pool_info){0};
		if (stag_pool_query(pool, &info, sizeof(info)) != 0)
			die("query: %s", stag_pool_error());
		primary = -1;
		standbys = 0;
		for (unsigned int i = 0; i < info.num_members; i++) {
			standbys += info.members[i].role == STAG_POOL_ROLE_STANDBY;
			if (info.members[i].role == STAG_POOL_ROLE_PRIMARY)
				primary = strcmp(info.members[i].name, "second") == 0;
		}
		if (primary >= 0 && standbys == 1)
			return primary;
		poll(NULL, 0, 5);
	}
	die("the nodes are not in sync in time");
}

/* ---- clients ---- */

static void open_client(struct client *c)
{
	const struct stag_pool_attr attr = {.user = "bench",
					    .secret = "of the benchmark, of its clients",
					    .timeout_ms = 20000,
					    .retry_ms = 20000};

	c->pool = stag_pool_open(node_address(), &attr);
	if (!c->pool || stag_pool_insert(c->pool, c->value, VALUE, &c->ptr) != 0)
		die("a client: %s", stag_pool_error());
}

static uint64_t epoch_of(struct client *c)
{
	struct stag_pool_info info = {0};

	if (stag_pool_query(c->pool, &info, sizeof(info)) != 0)
		die("query: %s", stag_pool_error());
	return info.epoch;
}

static void submit_update(struct client *c)
{
	struct stag_pool_io io = {.op = STAG_POOL_UPDATE,
				  .ptr = c->ptr,
				  .from = c->value,
				  .length = VALUE,
				  .user = c};
	int rc = stag_pool_submit(c->pool, &io, 1);

	if (rc != 0)
		die("submit: %s", stag_pool_error());
	c->answered = 0;
}

/*
 * Returns false if the old primary acknowledged it just before its death; another change is
 * submitted then.
 */
static bool poll_answer(struct client *c)
{
	struct stag_pool_done done;

	if (stag_pool_poll(c->pool, &done, 1) == 0)
		return false;
	c->answered = clock_ns();
	if (done.error)
		die("an update: %s", strerror(done.error));
	c->ptr = done.ptr;
	if (epoch_of(c) != c->epoch)
		return true;
	submit_update(c);
	return false;
}

static bool await_one(struct client *c)
{
	while (!poll_answer(c))
		if (stag_pool_wait(c->pool, LOST_MS) != 0)
			return false;
	return true;
}

static bool await_many(void)
{
	unsigned int left = b.num_clients;
	struct epoll_event e;
	int fd = epoll_create1(EPOLL_CLOEXEC);

	for (unsigned int i = 0; i < b.num_clients; i++) {
		e = (struct epoll_event){.events = EPOLLIN, .data.u32 = i};
		if (epoll_ctl(fd, EPOLL_CTL_ADD, stag_pool_fd(b.clients[i].pool), &e) != 0)
			die("epoll: %s", strerror(errno));
	}
	while (left && epoll_wait(fd, &e, 1, LOST_MS) == 1) {
		if (!poll_answer(&b.clients[e.data.u32]))
			continue;
		left--;
		epoll_ctl(fd, EPOLL_CTL_DEL, stag_pool_fd(b.clients[e.data.u32].pool), NULL);
	}
	close(fd);
	return left == 0;
}

/* ---- the trace ---- */

/* Reads the time of each step from the lines added to the trace since the last call. */
static void read_trace(double at[STEPS])
{
	static char text[1 << 20];
	ssize_t len = read(b.trace, text, sizeof(text) - 1);
	char *next;

	text[len > 0 ? len : 0] = '\0';
	for (char *line = text; *line; line = next) {
		next = strchrnul(line, '\n');
		if (*next)
			*next++ = '\0';
		for (unsigned int s = 0; s < STEPS; s++)
			if (steps[s].line && strstr(line, steps[s].line))
				at[s] = strtod(line, NULL) * 1e3;
	}
}

/* ---- a failover ---- */

static void settle_pool(void)
{
	struct timespec moment = {.tv_nsec = (long)(rand() % 20) * (long)NS_PER_MS};
	double at[STEPS];

	await_sync(b.clients[0].pool);
	for (unsigned int i = 0; i < b.num_clients; i++)
		b.clients[i].epoch = epoch_of(&b.clients[i]);
	nanosleep(&moment, NULL);
	for (int i = 0; i < 20; i++)
		if (stag_pool_update(b.clients[0].pool, &b.clients[0].ptr, b.clients[0].value,
				     VALUE) != 0)
			die("an update: %s", stag_pool_error());
	b.primary = await_sync(b.clients[0].pool);
	read_trace(at);
}

/*
 * Returns false if the killed node was no longer primary: on a busy machine failovers happen by
 * themselves.
 */
static bool record_failover(unsigned int n, uint64_t killed)
{
	double at[STEPS], began = (double)killed / 1e6;
	uint64_t last = 0, first = UINT64_MAX;

	for (unsigned int s = 0; s < STEPS; s++)
		at[s] = began;
	read_trace(at);
	if (at[FENCED] == began || at[PRIMARY] == began)
		return false;
	for (unsigned int i = 0; i < b.num_clients; i++) {
		last = b.clients[i].answered > last ? b.clients[i].answered : last;
		first = b.clients[i].answered < first ? b.clients[i].answered : first;
	}
	at[ANSWERED] = (double)last / 1e6;
	at[FIRST] = (double)first / 1e6;
	for (unsigned int s = 0; s < STEPS; s++) {
		b.ms[s][n] = at[s] - began;
		if (b.samples)
			fprintf(b.samples, "%.3f%c", b.ms[s][n], s + 1 < STEPS ? '\t' : '\n');
	}
	return true;
}

static void make_pool(void)
{
	b.pools++;
	start_node(0, true);
	open_client(&b.clients[0]);
	start_node(1, false);
	for (unsigned int i = 1; i < b.num_clients; i++)
		open_client(&b.clients[i]);
}

static void close_pool(void)
{
	for (int i = 0; i < 2; i++) {
		kill(b.nodes[i], SIGKILL);
		waitpid(b.nodes[i], NULL, 0);
		b.nodes[i] = 0;
	}
	for (unsigned int i = 0; i < b.num_clients; i++) {
		stag_pool_close(b.clients[i].pool);
		b.clients[i].pool = NULL;
	}
}

static bool fail_over(unsigned int n)
{
	uint64_t killed;
	bool good;

	settle_pool();
	killed = clock_ns();
	kill(b.nodes[b.primary], SIGKILL);
	for (unsigned int i = 0; i < b.num_clients; i++)
		submit_update(&b.clients[i]);
	if (!(b.num_clients == 1 ? await_one(&b.clients[0]) : await_many())) {
		/* on a busy machine the other may have been dropped just before */
		fputs("pool_failover: the only copy was killed; once more\n", stderr);
		close_pool();
		make_pool();
		return false;
	}
	good = record_failover(n, killed);
	waitpid(b.nodes[b.primary], NULL, 0);
	start_node(b.primary, false);
	return good;
}

/* ---- results ---- */

static int by_size(const void *x, const void *y)
{
	const double *p = x, *q = y;

	return *p < *q ? -1 : *p > *q;
}

static void print_report(void)
{
	printf("{\"failovers\": %u, \"clients\": %u, \"ms\": {", b.count, b.num_clients);
	for (unsigned int s = 0; s < STEPS; s++) {
		double *ms = b.ms[s];

		qsort(ms, b.count, sizeof(*ms), by_size);
		printf("%s\"%s\": {\"p50\": %.3f, \"p99\": %.3f, \"max\": %.3f}", s ? ", " : "",
		       steps[s].name, ms[b.count / 2],
		       ms[b.count * 99 / 100 < b.count ? b.count * 99 / 100 : b.count - 1],
		       ms[b.count - 1]);
	}
	puts("}}");
}

/* The log settings are read when the library is loaded, so execute this program again with them. */
static void restart_with_trace(char **argv)
{
	const char *path = format_text("%s/trace", b.dir);

	if (!getenv("STAG_LOG_TIME")) {
		setenv("STAG_LOG", "info", 1);
		setenv("STAG_LOG_TIME", "1", 1);
		setenv("STAG_LOG_FILE", path, 1);
		execv("/proc/self/exe", argv);
		die("cannot execute this program again: %s", strerror(errno));
	}
	b.trace = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
	if (b.trace < 0)
		die("%s: %s", path, strerror(errno));
	free((char *)(uintptr_t)path);
}

static void parse_words(int argc, char **argv)
{
	if (argc < 4)
		die("needs ROLL DIR COUNT [mib=N] [clients=N] [port=N] [samples=FILE]");
	b.roll = argv[1];
	b.dir = argv[2];
	b.count = (unsigned int)strtoul(argv[3], NULL, 10);
	for (int i = 4; i < argc; i++) {
		const char *value = strchrnul(argv[i], '=');
		unsigned int number = *value ? (unsigned int)strtoul(value + 1, NULL, 10) : 0;

		if (strncmp(argv[i], "mib=", 4) == 0)
			b.mib = number;
		else if (strncmp(argv[i], "clients=", 8) == 0)
			b.num_clients = number;
		else if (strncmp(argv[i], "port=", 5) == 0)
			b.port = number;
		else if (strncmp(argv[i], "samples=", 8) == 0)
			b.samples = fopen(value + 1, "we");
		else
			die("unknown word '%s'", argv[i]);
	}
	if (b.count == 0 || b.num_clients == 0 || b.num_clients > MAX_CLIENTS)
		die("COUNT must be at least 1, clients at most %u", MAX_CLIENTS);
}

int main(int argc, char **argv)
{
	parse_words(argc, argv);
	mkdir(b.dir, 0700);
	restart_with_trace(argv);
	b.clients = allocate(b.num_clients * sizeof(*b.clients));
	for (unsigned int s = 0; s < STEPS; s++)
		b.ms[s] = allocate(b.count * sizeof(double));
	make_pool();
	for (unsigned int n = 0; n < b.count;)
		n += fail_over(n);
	kill_nodes();
	print_report();
	return 0;
}
