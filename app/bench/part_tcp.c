// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_tcp.c - the yardstick of the adapter: the same two processes over plain TCP.
 *
 * One connection, TCP_NODELAY, the system's buffer sizes and congestion
 * control, as the adapter's own. By default both sides spin on non-blocking
 * calls; with -e they sleep in the kernel. With -c each end runs the project's
 * own CRC32C over every byte.
 */
#include "pair.h"
#include "part.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define RATE_BUFFER 65536 /* bytes that a receiver of small messages reads at once */

static int listener, sock;
static uint16_t port;
static char *buffer;
static volatile uint32_t crc_sink;

static struct sockaddr_in address(uint16_t at)
{
	struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(at)};

	if (inet_pton(AF_INET, options.address, &sa.sin_addr) != 1)
		pair_die("bad address %s", options.address);
	return sa;
}

static int no_delay(int fd)
{
	int one = 1;

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		pair_die("socket");
	return fd;
}

static int connect_out(void)
{
	struct sockaddr_in sa = address(port);
	int fd = no_delay(socket(AF_INET, SOCK_STREAM, 0));

	if (connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
		pair_die("connect");
	return fd;
}

/* Returns the port at which the server listens, and sets the port to which the client connects; both 0 without a relay. */
static uint16_t relay_ports(uint16_t *to)
{
	uint16_t at = 0;

	*to = 0;
	if (options.relay && sscanf(options.relay, "%hu:%hu", &at, to) != 2)
		pair_die("bad relay %s", options.relay);
	return at;
}

static void listen_here(void)
{
	uint16_t relay;
	struct sockaddr_in sa = address(relay_ports(&relay));
	socklen_t len = sizeof(sa);
	int one = 1;

	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    bind(listener, (struct sockaddr *)&sa, sizeof(sa)) || listen(listener, 128) ||
	    getsockname(listener, (struct sockaddr *)&sa, &len))
		pair_die("listen");
	port = relay ? relay : ntohs(sa.sin_port);
}

static void open_pair(void)
{
	if (pair_is_server) {
		listen_here();
		pair_tell(&port, sizeof(port));
		sock = no_delay(accept(listener, NULL, NULL));
	} else {
		pair_hear(&port, sizeof(port));
		sock = connect_out();
	}
}

static ssize_t receive_some(char *to, size_t len)
{
	for (;;) {
		ssize_t n = recv(sock, to, len, options.sleep ? 0 : MSG_DONTWAIT);

		if (n > 0)
			return n;
		if (n == 0 || errno != EAGAIN)
			pair_die("recv");
	}
}

static void receive_all(size_t len)
{
	size_t got = 0;

	while (got < len) {
		size_t n = (size_t)receive_some(buffer + got, len - got);

		if (options.crc)
			crc_sink = crc32c_update(crc_sink, buffer + got, n);
		got += n;
	}
}

static void send_all(size_t len)
{
	size_t put = 0;

	if (options.crc)
		crc_sink = crc32c_update(CRC32C_INIT, buffer, len);
	while (put < len) {
		ssize_t n = send(sock, buffer + put, len - put, options.sleep ? 0 : MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN)
			pair_die("send");
		if (n > 0)
			put += (size_t)n;
	}
}

static void prepare_buffer(void)
{
	buffer = pair_memory(options.size);
}

/* Sends messages of the full size; the first byte of the last one of a phase marks it. */
static void drive_stream(struct pair_phase *ph)
{
	uint64_t start = clock_ns(), end = start + ph->length;

	buffer[0] = 0;
	for (ph->ops = 1; clock_ns() < end; ph->ops++)
		send_all(options.size);
	buffer[0] = 1;
	send_all(options.size);
	receive_all(1);
	ph->ns = clock_ns() - start;
}

/*
 * Sends a mapped file instead, one message after the other: bytes that no CPU cache holds. Each
 * message begins with a page of this process, whose first byte marks the last message.
 */
static char *file;
static size_t file_len;

static void prepare_file(void)
{
	struct stat st;
	int fd;

	prepare_buffer();
	if (pair_is_server)
		return;
	fd = options.file ? open(options.file, O_RDONLY) : -1;
	if (fd < 0 || fstat(fd, &st) != 0 || (size_t)st.st_size < options.size)
		pair_die("-f needs a file that is at least as long as a message");
	file_len = (size_t)st.st_size / options.size * options.size;
	file = mmap(NULL, file_len, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (file == MAP_FAILED || madvise(file, file_len, MADV_POPULATE_READ) != 0)
		pair_die("mmap of %s", options.file);
	for (size_t at = 0; at < file_len; at += options.size)
		file[at] = 0;
	close(fd);
}

static void drive_file(struct pair_phase *ph)
{
	uint64_t start = clock_ns(), end = start + ph->length;
	size_t at = 0;

	for (ph->ops = 1; clock_ns() < end; ph->ops++) {
		buffer = file + at;
		send_all(options.size);
		at = at + options.size < file_len ? at + options.size : 0;
	}
	buffer = file + at;
	buffer[0] = 1;
	send_all(options.size);
	receive_all(1);
	buffer[0] = 0;
	ph->ns = clock_ns() - start;
}

static void serve_stream(struct pair_phase *ph)
{
	do {
		receive_all(options.size);
	} while (!buffer[0]);
	send_all(1);
}

static void drive_pingpong(struct pair_phase *ph)
{
	uint64_t last = clock_ns();

	for (size_t i = 0; i < ph->iters; i++) {
		send_all(options.size);
		receive_all(options.size);
		pair_sample(ph, i, &last);
	}
}

static void serve_pingpong(struct pair_phase *ph)
{
	for (size_t i = 0; i < ph->iters; i++) {
		receive_all(options.size);
		send_all(options.size);
	}
}

static void prepare_rate(void)
{
	buffer = pair_memory(RATE_BUFFER);
	if (options.list * options.size > RATE_BUFFER)
		pair_die("a list of %zu messages is too long", options.list);
}

/*
 * Sends lists of small messages, one send() per list. The last list of a phase is marked at its
 * end.
 */
static void drive_rate(struct pair_phase *ph)
{
	uint64_t start = clock_ns(), end = start + ph->length;
	size_t len = options.list * options.size;

	buffer[len - 1] = 0;
	for (ph->ops = options.list; clock_ns() < end; ph->ops += options.list)
		send_all(len);
	buffer[len - 1] = 1;
	send_all(len);
	receive_all(1);
	ph->ns = clock_ns() - start;
}

/* Receives as many bytes as there are, and counts the messages in them. */
static void serve_rate(struct pair_phase *ph)
{
	size_t n;

	do {
		n = (size_t)receive_some(buffer, RATE_BUFFER);
	} while (!buffer[n - 1]);
	send_all(1);
}

/* Connects, exchanges one byte each way (as MPA's request and reply), and closes. */
static void drive_connect(struct pair_phase *ph)
{
	uint64_t start = clock_ns(), end = start + ph->length;
	char last;

	do {
		last = clock_ns() >= end;
		sock = connect_out();
		buffer[0] = last;
		send_all(1);
		receive_all(1);
		close(sock);
		ph->ops++;
	} while (!last);
	ph->ns = clock_ns() - start;
}

static void serve_connect(struct pair_phase *ph)
{
	char last, eof;

	do {
		sock = no_delay(accept(listener, NULL, NULL));
		receive_all(1);
		last = buffer[0];
		send_all(1);
		if (recv(sock, &eof, 1, 0) != 0)
			pair_die("recv");
		close(sock);
	} while (!last);
}

static const struct pair_case cases[] = {
	{"stream", PAIR_BANDWIDTH, prepare_buffer, drive_stream, serve_stream, PAIR_TWO_SIDED},
	{"file", PAIR_BANDWIDTH, prepare_file, drive_file, serve_stream, PAIR_TWO_SIDED},
	{"pingpong", PAIR_HALF_TRIP, prepare_buffer, drive_pingpong, serve_pingpong,
	 PAIR_TWO_SIDED},
	{"rate", PAIR_RATE, prepare_rate, drive_rate, serve_rate, PAIR_TWO_SIDED},
	{"connect", PAIR_PER_SECOND, prepare_buffer, drive_connect, serve_connect, PAIR_TWO_SIDED},
	{.name = NULL},
};

int part_tcp(int argc, char **argv)
{
	const struct pair_case *c = pair_start(argc, argv, cases);

	open_pair();
	pair_run(c, NULL);
	return 0;
}
