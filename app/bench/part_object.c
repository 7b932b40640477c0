// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_object.c - loads a redis or memcached server: a yardstick of the pool.
 *
 *   stag bench part object redis|memcached PORT get|set|setwait SIZE CONNECTIONS DEPTH SECS [poll] [json]
 *
 * Each connection sends DEPTH requests at once, and the next ones when all of them have been
 * answered. setwait is SET, followed by WAIT for one replica: it counts when both are answered.
 * With poll, the thread never sleeps.
 *
 * Prints, divided by tabs: operations per second, microseconds of processor time per operation, and
 * the median and 99th percentile of the time that DEPTH operations take, in microseconds.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "part.h"

#define KEYS	 10000u
#define OVERHEAD 256u	/* bytes of protocol around a value, in a request or an answer */
#define FILL	 65536u /* bytes that are set with one request, before the measurement */

struct connection {
	int fd;
	char *out, *in;
	size_t out_length, sent, in_length, in_room;
	unsigned int due; /* answers */
	uint64_t began;
};

static struct {
	bool redis, get, wait, poll;
	size_t size;
	unsigned int connections, depth;
	uint64_t ns;
	char *value;
	uint64_t dice;
	bool json;
	struct part_figures figures;
} load;

static unsigned int any_key(void)
{
	load.dice = load.dice * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)((load.dice >> 33) % KEYS);
}

/* ---- requests ---- */

static size_t put_get(char *to, unsigned int key)
{
	if (load.redis)
		return (size_t)sprintf(to, "*2\r\n$3\r\nGET\r\n$8\r\nkey%05u\r\n", key);
	return (size_t)sprintf(to, "get key%05u\r\n", key);
}

static size_t put_set(char *to, unsigned int key, bool wait)
{
	size_t n;

	if (load.redis)
		n = (size_t)sprintf(to, "*3\r\n$3\r\nSET\r\n$8\r\nkey%05u\r\n$%zu\r\n", key,
				    load.size);
	else
		n = (size_t)sprintf(to, "set key%05u 0 0 %zu\r\n", key, load.size);
	memcpy(to + n, load.value, load.size);
	n += load.size;
	n += (size_t)sprintf(to + n, "\r\n");
	if (wait)
		n += (size_t)sprintf(to + n, "*3\r\n$4\r\nWAIT\r\n$1\r\n1\r\n$1\r\n0\r\n");
	return n;
}

static void send_more(struct connection *c)
{
	while (c->sent < c->out_length) {
		ssize_t n = send(c->fd, c->out + c->sent, c->out_length - c->sent, MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0)
			bench_die("send: %s", strerror(errno));
		c->sent += (size_t)n;
	}
}

static void send_requests(struct connection *c)
{
	c->out_length = c->sent = 0;
	for (unsigned int i = 0; i < load.depth; i++)
		c->out_length += load.get ? put_get(c->out + c->out_length, any_key())
					  : put_set(c->out + c->out_length, any_key(), load.wait);
	c->due = load.depth * (load.wait ? 2 : 1);
	c->in_length = 0;
	c->began = clock_ns();
	send_more(c);
}

/* ---- answers ---- */

/* Returns the length of the answer, or 0 if it is incomplete. */
static size_t answer_length(const char *in, size_t length)
{
	const char *line_end = memchr(in, '\n', length);
	size_t head = line_end ? (size_t)(line_end - in) + 1 : 0, all = head;

	if (head == 0)
		return 0;
	if (load.redis && *in == '-')
		bench_die("%.*s", (int)head, in);
	if (load.redis && *in == '$' && in[1] != '-') {
		all += strtoul(in + 1, NULL, 10) + 2;
	} else if (!load.redis && strncmp(in, "VALUE ", 6) == 0) {
		const char *last = memrchr(in, ' ', head);

		all += strtoul(last, NULL, 10) + 2 + strlen("END\r\n");
	}
	return all <= length ? all : 0;
}

/* Returns true if all answers have arrived. */
static bool receive_answers(struct connection *c)
{
	ssize_t n = recv(c->fd, c->in + c->in_length, c->in_room - c->in_length, MSG_DONTWAIT);
	size_t used = 0, one;

	if (n < 0 && errno == EAGAIN)
		return false;
	if (n <= 0)
		bench_die("the server closed the connection");
	c->in_length += (size_t)n;
	while (c->due && (one = answer_length(c->in + used, c->in_length - used)) > 0) {
		used += one;
		c->due--;
	}
	memmove(c->in, c->in + used, c->in_length - used);
	c->in_length -= used;
	return c->due == 0;
}

/* ---- the run ---- */

static void open_connection(struct connection *c, uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_port = htons(port),
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int one = 1;

	c->fd = socket(AF_INET, SOCK_STREAM, 0);
	if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&to, sizeof(to)) != 0)
		bench_die("connect: %s", strerror(errno));
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	c->in_room = load.depth * (load.size + OVERHEAD);
	if (c->in_room < FILL)
		c->in_room = FILL;
	c->out = bench_zeroed(c->in_room);
	c->in = bench_zeroed(c->in_room);
}

/* Sets every key before the measurement. */
static void fill_server(struct connection *c)
{
	size_t most = c->in_room / (load.size + OVERHEAD);

	for (unsigned int key = 0; key < KEYS;) {
		c->out_length = c->sent = 0;
		for (c->due = 0; c->due < most && key < KEYS; c->due++)
			c->out_length += put_set(c->out + c->out_length, key++, false);
		do
			send_more(c);
		while (!receive_answers(c));
	}
}

static void note_time(uint64_t ns)
{
	times_note(&load.figures.times, ns);
	load.figures.operations += load.depth;
}

static void run_load(struct connection *c, int epoll)
{
	struct epoll_event events[64];
	uint64_t until = clock_ns() + load.ns;

	for (unsigned int i = 0; i < load.connections; i++)
		send_requests(&c[i]);
	while (clock_ns() < until || load.figures.operations == 0) {
		int n = epoll_wait(epoll, events, 64, load.poll ? 0 : 1);

		for (int i = 0; i < n; i++) {
			struct connection *one = events[i].data.ptr;

			if (!receive_answers(one))
				continue;
			note_time(clock_ns() - one->began);
			send_requests(one);
		}
		for (unsigned int i = 0; i < load.connections; i++)
			send_more(&c[i]);
	}
}

static void parse_words(int argc, char **argv)
{
	if (argc < 8)
		bench_die("needs redis|memcached PORT get|set|setwait SIZE CONNECTIONS DEPTH SECS "
			  "[poll] [json]");
	load.redis = strcmp(argv[1], "redis") == 0;
	load.get = strcmp(argv[3], "get") == 0;
	load.wait = strcmp(argv[3], "setwait") == 0;
	load.size = strtoul(argv[4], NULL, 10);
	load.connections = (unsigned int)strtoul(argv[5], NULL, 10);
	load.depth = (unsigned int)strtoul(argv[6], NULL, 10);
	load.ns = (uint64_t)(strtod(argv[7], NULL) * 1e9);
	for (int i = 8; i < argc; i++) {
		load.poll |= strcmp(argv[i], "poll") == 0;
		load.json |= strcmp(argv[i], "json") == 0;
	}
	load.value = bench_zeroed(load.size + 1);
	memset(load.value, 'v', load.size);
}

int part_object(int argc, char **argv)
{
	struct connection *c;
	int epoll = epoll_create1(0);

	parse_words(argc, argv);
	c = bench_zeroed(load.connections * sizeof(*c));
	for (unsigned int i = 0; i < load.connections; i++) {
		struct epoll_event event = {.events = EPOLLIN, .data.ptr = &c[i]};

		open_connection(&c[i], (uint16_t)strtoul(argv[2], NULL, 10));
		epoll_ctl(epoll, EPOLL_CTL_ADD, c[i].fd, &event);
	}
	if (load.get)
		fill_server(&c[0]);
	part_load_begin(&load.figures);
	run_load(c, epoll);
	part_load_end(&load.figures, load.json);
	return 0;
}
