// SPDX-License-Identifier: BSD-2-Clause
/*
 * flood.c - an attacker: opens connections to a port as fast as it can, or as fast as it is told, until its
 * standard input is closed.
 *
 *   flood KIND HOST PORT [from=ADDRESS] [addresses=N] [open=N] [rate=N] [name=NAME]
 *
 *   silent   connects and says nothing
 *   half     sends half of an MPA Request
 *   hello    says hello to a pool, as a client would, and does not read the challenge
 *   proof    answers the challenge with a wrong secret, as a client
 *   node     the same, as a node
 *   noise    sends bytes that are no protocol at all
 *
 * It keeps the newest `open` connections (256), and resets the oldest for each new one. rate: connections a second,
 * at most. from: the source address; all of 127.0.0.0/8 are the machine's own. addresses: so many, from that one on, in
 * turns. name: in greetings ("stranger"). At the end it prints how many connections it made, how many were refused, and in how many seconds.
 *
 * A program that starts it has to keep the other end of its standard input: then it ends with that program.
 */
#include "stranger.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define MOST_OPEN 16384u
#define LOOK	  64 /* connections between two looks at the standard input */

static struct {
	const char *kind, *name;
	struct stranger_way way;
	uint32_t first;		/* address */
	unsigned int addresses; /* from the first one on */
	unsigned int open;
	unsigned long rate;
	int fds[MOST_OPEN];
	unsigned long made, refused;
} f = {.name = "stranger", .addresses = 1, .open = 256};

static int usage(void)
{
	fputs("usage: flood silent|half|hello|proof|node|noise HOST PORT [from=ADDRESS] "
	      "[addresses=N] [open=N] [rate=N] [name=NAME]\n",
	      stderr);
	return 2;
}

static int send_kind(int fd)
{
	uint8_t frame[STRANGER_FRAME] = "GET / HTTP/1.0\r\n\r\n";
	size_t len = 0;

	if (strcmp(f.kind, "silent") == 0)
		return 0;
	if (strcmp(f.kind, "noise") == 0)
		len = 18;
	else
		len = stranger_hello(f.name, frame);
	return stranger_send(fd, frame, strcmp(f.kind, "half") == 0 ? len / 2 : len);
}

/* Returns a descriptor, 0 if the attempt is complete, or -errno. */
static int knock(void)
{
	int (*join)(const struct stranger_way *, const char *, const char *) =
		strcmp(f.kind, "proof") == 0  ? stranger_join_pool
		: strcmp(f.kind, "node") == 0 ? stranger_join_pool_as_node
					      : NULL;
	int fd, rc;

	if (join) {
		fd = join(&f.way, f.name, "a secret that nobody has");
		return fd == -EACCES || fd == -EAGAIN ? 0 : fd;
	}
	fd = stranger_dial(&f.way);
	if (fd < 0)
		return fd;
	rc = send_kind(fd);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

static bool is_told_to_end(void)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
	char c;

	return poll(&p, 1, 0) == 1 && read(STDIN_FILENO, &c, 1) <= 0;
}

static void keep_rate(uint64_t since)
{
	uint64_t due = f.rate ? since + (f.made + f.refused) * NS_PER_S / f.rate : 0,
		 now = clock_ns();
	struct timespec rest = {.tv_nsec = (long)(due > now ? due - now : 0) % (long)NS_PER_S};

	if (due > now)
		nanosleep(&rest, NULL);
}

static void flood_once(void)
{
	int *slot = &f.fds[f.made % f.open], fd;

	if (*slot > 0)
		stranger_reset(*slot);
	if (f.addresses > 1)
		f.way.from.sin_addr.s_addr =
			htonl(f.first + (uint32_t)((f.made + f.refused) % f.addresses));
	fd = knock();
	*slot = fd > 0 ? fd : 0;
	if (fd >= 0)
		f.made++;
	else
		f.refused++;
	if (fd <
	    0) /* descriptors, or ports, or the server's queue: others need a turn to free some */
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int main(int argc, char **argv)
{
	const char *from = NULL;
	uint64_t since;

	if (argc < 4)
		return usage();
	f.kind = argv[1];
	for (int i = 4; i < argc; i++) {
		if (strncmp(argv[i], "from=", 5) == 0)
			from = argv[i] + 5;
		else if (strncmp(argv[i], "open=", 5) == 0)
			f.open = (unsigned int)atoi(argv[i] + 5);
		else if (strncmp(argv[i], "rate=", 5) == 0)
			f.rate = strtoul(argv[i] + 5, NULL, 10);
		else if (strncmp(argv[i], "addresses=", 10) == 0)
			f.addresses = (unsigned int)atoi(argv[i] + 10);
		else if (strncmp(argv[i], "name=", 5) == 0)
			f.name = argv[i] + 5;
		else
			return usage();
	}
	if (f.open == 0 || f.open > MOST_OPEN || f.addresses == 0 || (f.addresses > 1 && !from) ||
	    stranger_way(&f.way, argv[2], (uint16_t)atoi(argv[3]), from) != 0)
		return usage();
	f.first = ntohl(f.way.from.sin_addr.s_addr);
	stranger_raise_limit();
	since = clock_ns();
	while ((f.made + f.refused) % LOOK || !is_told_to_end()) {
		flood_once();
		keep_rate(since);
	}
	printf("%lu made, %lu refused, in %.1f s\n", f.made, f.refused,
	       (double)(clock_ns() - since) / NS_PER_S);
	return 0;
}
