// SPDX-License-Identifier: BSD-2-Clause
/*
 * pair.c - two pinned processes that measure one thing together.
 *
 * Handles processes, CPUs, clocks and the printing of results, and knows nothing
 * about what is measured.
 */
#include "pair.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PEER_ENV    "STAG_BENCH_PEER" /* the server's end of the socket */
#define GIVE_UP_S   60
#define SERVER_CPU  0
#define CLIENT_CPU  1
#define WARM_DIVIDE 10

struct pair_options options = {
	.size = 8,
	.iters = 20000,
	.secs = 0.5,
	.list = 1,
	.address = "127.0.0.1",
};
bool pair_is_server;

static int peer = -1;
static pid_t server_pid;

void pair_die(const char *fmt, ...)
{
	int err = errno;
	va_list ap;

	va_start(ap, fmt);
	fprintf(stderr, "%s %s: ", program_invocation_short_name,
		pair_is_server ? "server" : "client");
	vfprintf(stderr, fmt, ap);
	fprintf(stderr, " (%s)\n", strerror(err));
	va_end(ap);
	exit(1);
}

void pair_tell(const void *buf, size_t len)
{
	if (send(peer, buf, len, MSG_NOSIGNAL) != (ssize_t)len)
		pair_die("the other side has closed the socket");
}

void pair_hear(void *buf, size_t len)
{
	if (recv(peer, buf, len, MSG_WAITALL) != (ssize_t)len)
		pair_die("the other side has closed the socket");
}

void pair_meet(void (*progress)(void))
{
	char c = 0;

	pair_tell(&c, 1);
	if (progress) {
		while (recv(peer, &c, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN)
			progress();
	}
	pair_hear(&c, 1);
}

void *pair_memory(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (p == MAP_FAILED)
		pair_die("mmap of %zu bytes", len);
	memset(p, 0, len);
	return p;
}

size_t pair_window(void)
{
	if (options.window)
		return options.window;
	return options.size >= 1 << 20 ? 16 : 64;
}

/* On a machine with one CPU neither side is pinned. */
static void pin_to_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* Returns the command line of this process. */
static char **own_command(void)
{
	static char text[4096], *words[128];
	int fd = open("/proc/self/cmdline", O_RDONLY), n = 0;
	ssize_t length = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

	for (char *at = text; at < text + length && n < 127; at += strlen(at) + 1)
		words[n++] = at;
	return words;
}

/*
 * The server is executed, not just forked: libraries that start threads or
 * open devices in their constructors see two ordinary processes, and their
 * threads inherit the server's CPU.
 */
static void start_server(void)
{
	int sv[2];
	char fd[16];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		pair_die("socketpair");
	server_pid = fork();
	if (server_pid < 0)
		pair_die("fork");
	if (server_pid == 0) {
		pin_to_cpu(SERVER_CPU);
		fcntl(sv[1], F_SETFD, 0);
		snprintf(fd, sizeof(fd), "%d", sv[1]);
		setenv(PEER_ENV, fd, 1);
		execv("/proc/self/exe", own_command());
		pair_die("exec");
	}
	pin_to_cpu(CLIENT_CPU);
	close(sv[1]);
	peer = sv[0];
}

static void print_usage(const struct pair_case *cases)
{
	fprintf(stderr,
		"usage: %s CASE [options]\n"
		"  -s SIZE     bytes per message        -l LIST    messages per post\n"
		"  -n ITERS    round trips, queue pairs -w WINDOW  operations in flight\n"
		"  -t SECS     length of the run        -i IDLE    further connections\n"
		"  -a ADDRESS  where to connect         -c         CRC32C at both ends (raw TCP)\n"
		"  -e          sleep in the kernel instead of polling\n"
		"  -d DEVICE   connects queue pairs by number, without rdma_cm\n"
		"  -p          the server's program does nothing (one-sided cases)\n"
		"  -g          small messages from memory, not inline\n"
		"  -r LISTEN:CONNECT  ports of the server and of a relay to it (raw TCP)\n"
		"  -j          print JSON\n"
		"prints: value, unit, p99 (or -), client and server CPU seconds, their base,\n"
		"and the share of the time that the less busy side had its CPU\ncases:",
		program_invocation_short_name);
	for (; cases->name; cases++)
		fprintf(stderr, " %s", cases->name);
	fputc('\n', stderr);
	exit(2);
}

static void parse_options(int argc, char **argv, const struct pair_case *cases)
{
	int opt;

	while ((opt = getopt(argc, argv, "s:n:t:w:l:i:a:d:r:f:epcgj")) != -1) {
		switch (opt) {
		case 's':
			options.size = strtoul(optarg, NULL, 0);
			break;
		case 'n':
			options.iters = strtoul(optarg, NULL, 0);
			break;
		case 't':
			options.secs = strtod(optarg, NULL);
			break;
		case 'w':
			options.window = strtoul(optarg, NULL, 0);
			break;
		case 'l':
			options.list = strtoul(optarg, NULL, 0);
			break;
		case 'i':
			options.idle = strtoul(optarg, NULL, 0);
			break;
		case 'a':
			options.address = optarg;
			break;
		case 'd':
			options.device = optarg;
			break;
		case 'r':
			options.relay = optarg;
			break;
		case 'f':
			options.file = optarg;
			break;
		case 'e':
			options.sleep = true;
			break;
		case 'p':
			options.passive = true;
			break;
		case 'c':
			options.crc = true;
			break;
		case 'g':
			options.no_inline = true;
			break;
		case 'j':
			options.json = true;
			break;
		default:
			print_usage(cases);
		}
	}
	if (!options.size || !options.iters || !options.list || options.list > pair_window())
		print_usage(cases);
}

const struct pair_case *pair_start(int argc, char **argv, const struct pair_case *cases)
{
	const struct pair_case *c = cases;
	const char *fd = getenv(PEER_ENV);

	if (argc < 2)
		print_usage(cases);
	while (c->name && strcmp(c->name, argv[1]))
		c++;
	if (!c->name)
		print_usage(cases);
	parse_options(argc - 1, argv + 1, cases);
	if (options.passive && c->sides != PAIR_ONE_SIDED)
		print_usage(cases);
	alarm(GIVE_UP_S);
	if (fd) {
		pair_is_server = true;
		peer = atoi(fd);
	} else {
		start_server();
	}
	return c;
}

/* CPU seconds that one side spent on a phase. */
struct cost {
	double cpu;
	double wall;
	uint64_t memory;
};

uint64_t pair_resident(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long all, resident = 0;

	if (!f || fscanf(f, "%lu %lu", &all, &resident) != 2)
		pair_die("/proc/self/statm");
	fclose(f);
	return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static double cpu_seconds(void)
{
	struct rusage ru;

	getrusage(RUSAGE_SELF, &ru);
	return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
	       1e-6 * (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec);
}

static int compare_samples(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Returns microseconds; the samples are sorted. */
static double percentile(const struct pair_phase *ph, double p)
{
	return ph->samples[(size_t)(p / 100 * (double)(ph->iters - 1))] / 1e3;
}

static bool is_latency(enum pair_unit unit)
{
	return unit == PAIR_HALF_TRIP || unit == PAIR_ROUND_TRIP;
}

static double per_trip(enum pair_unit unit)
{
	return unit == PAIR_HALF_TRIP ? 2 : 1;
}

/* Returns the figure in the unit of unit_word(). */
static double value_of(const struct pair_case *c, const struct pair_phase *ph)
{
	double ns = (double)ph->ns, ops = (double)ph->ops;

	switch (c->unit) {
	case PAIR_BANDWIDTH:
		return ops * (double)options.size / ns;
	case PAIR_HALF_TRIP:
	case PAIR_ROUND_TRIP:
		return percentile(ph, 50) / per_trip(c->unit);
	case PAIR_RATE:
		return ops / ns * 1e3;
	case PAIR_PER_SECOND:
		return ops / ns * 1e9;
	}
	return 0;
}

static const char *unit_word(enum pair_unit unit)
{
	static const char *const words[] = {"GB/s", "us", "us", "M/s", "/s"};

	return words[unit];
}

/* Returns the number of messages of the phase. */
static double messages_of(const struct pair_case *c, const struct pair_phase *ph)
{
	return is_latency(c->unit) ? (double)ph->iters * per_trip(c->unit) : (double)ph->ops;
}

static double least_share(const struct cost *mine, const struct cost *theirs)
{
	return fmin(mine->cpu / mine->wall, theirs->cpu / theirs->wall);
}

static void report_line(const struct pair_case *c, const struct pair_phase *ph,
			const struct cost *mine, const struct cost *theirs)
{
	double amount = c->unit == PAIR_BANDWIDTH
				? (double)ph->ops * (double)options.size / (1 << 30)
				: messages_of(c, ph) / 1e6;

	printf("%.4f\t%s\t", value_of(c, ph), unit_word(c->unit));
	if (is_latency(c->unit))
		printf("%.3f", percentile(ph, 99) / per_trip(c->unit));
	else
		putchar('-');
	printf("\t%.4f\t%.4f\t%s\t%.2f\n", mine->cpu / amount, theirs->cpu / amount,
	       c->unit == PAIR_BANDWIDTH ? "s/GiB" : "s/M", least_share(mine, theirs));
}

/* CPU time is per message. */
static void report_json(const struct pair_case *c, const struct pair_phase *ph,
			const struct cost *mine, const struct cost *theirs)
{
	static const double points[] = {10, 25, 50, 75, 90, 95, 99, 99.9, 99.99};
	double messages = messages_of(c, ph);

	printf("{\"value\": %.6f, \"unit\": \"%s\", \"cpu_us\": %.6f, \"server_us\": %.6f, "
	       "\"share\": %.3f",
	       value_of(c, ph), unit_word(c->unit), mine->cpu / messages * 1e6,
	       theirs->cpu / messages * 1e6, least_share(mine, theirs));
	if (mine->memory)
		printf(", \"bytes\": %.0f, \"server_bytes\": %.0f", (double)mine->memory / messages,
		       (double)theirs->memory / messages);
	if (is_latency(c->unit)) {
		fputs(", \"latency_us\": {", stdout);
		for (size_t i = 0; i < sizeof(points) / sizeof(*points); i++)
			printf("\"p%g\": %.3f, ", points[i],
			       percentile(ph, points[i]) / per_trip(c->unit));
		printf("\"max\": %.3f}", percentile(ph, 100) / per_trip(c->unit));
	}
	puts("}");
}

static void print_report(const struct pair_case *c, struct pair_phase *ph, const struct cost *mine,
			 const struct cost *theirs)
{
	if (is_latency(c->unit))
		qsort(ph->samples, ph->iters, sizeof(*ph->samples), compare_samples);
	if (options.json)
		report_json(c, ph, mine, theirs);
	else
		report_line(c, ph, mine, theirs);
}

/* A passive server sleeps here until the phase has ended. */
static void do_phase(const struct pair_case *c, struct pair_phase *ph)
{
	if (!pair_is_server)
		c->drive(ph);
	else if (!options.passive)
		c->serve(ph);
	if (options.passive)
		pair_meet(NULL);
}

static void run_phase(const struct pair_case *c, struct pair_phase *ph, void (*progress)(void))
{
	struct cost mine, theirs;
	uint64_t start;

	pair_meet(progress);
	start = clock_ns();
	mine.cpu = cpu_seconds();
	do_phase(c, ph);
	mine.cpu = cpu_seconds() - mine.cpu;
	mine.wall = (double)(clock_ns() - start) / NS_PER_S;
	mine.memory = ph->memory;
	pair_meet(progress);
	if (pair_is_server)
		pair_tell(&mine, sizeof(mine));
	else
		pair_hear(&theirs, sizeof(theirs));
	if (!pair_is_server && ph->number == 2)
		print_report(c, ph, &mine, &theirs);
}

void pair_run(const struct pair_case *c, void (*progress)(void))
{
	uint64_t length = (uint64_t)(options.secs * NS_PER_S);
	uint32_t *samples = pair_memory(options.iters * sizeof(*samples));
	struct pair_phase warm = {.number = 1,
				  .length = length / WARM_DIVIDE,
				  .iters = options.iters / WARM_DIVIDE + 1,
				  .samples = samples};
	struct pair_phase timed = {
		.number = 2, .length = length, .iters = options.iters, .samples = samples};
	int status = 0;

	if (c->prepare)
		c->prepare();
	run_phase(c, &warm, progress);
	run_phase(c, &timed, progress);
	if (pair_is_server)
		return;
	fflush(stdout);
	if (waitpid(server_pid, &status, 0) < 0 || status)
		pair_die("the server failed");
}
