// SPDX-License-Identifier: BSD-2-Clause
/*
 * valve.c - a port that leads to a node's, with a valve in each direction (valve.h).
 */
#include "valve.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIPES 8 /* connections at a time */
#define ROOM  65536

/* A connection: its two sockets, by the way that leads to them. */
struct pipes {
	int to[VALVE_WAYS];
	bool ended[VALVE_WAYS]; /* nothing more comes from there */
};

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_port = htons(port),
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void close_pipe(struct pipes *p)
{
	for (int way = 0; way < VALVE_WAYS; way++) {
		if (p->to[way] >= 0)
			close(p->to[way]);
		p->to[way] = -1;
	}
}

/* Receives little ahead, so that what is not taken piles up at the node. */
static int connect_node(const struct valve *v)
{
	struct sockaddr_in at = loopback(v->node);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), room = 4096, on = 1;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0)
		return fd;
	close(fd);
	return -1;
}

static void accept_client(const struct valve *v, struct pipes *all)
{
	int fd = accept4(v->listener, NULL, NULL, SOCK_CLOEXEC), on = 1;

	if (fd < 0)
		return;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	for (int i = 0; i < PIPES; i++) {
		if (all[i].to[0] >= 0)
			continue;
		all[i] = (struct pipes){{connect_node(v), fd}, {false}};
		if (all[i].to[VALVE_TO_NODE] < 0)
			close_pipe(&all[i]);
		return;
	}
	close(fd);
}

/* Returns false if the receiver has hung up. */
static bool send_all(int fd, const char *bytes, size_t length)
{
	while (length > 0) {
		ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);

		if (sent <= 0)
			return false;
		bytes += sent;
		length -= (size_t)sent;
	}
	return true;
}

/* Moves what is there, one way. */
static void move_bytes(struct pipes *p, enum valve_way way)
{
	static _Thread_local char bytes[ROOM];
	int from = p->to[!way];
	ssize_t n = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n > 0 && send_all(p->to[way], bytes, (size_t)n))
		return;
	p->ended[way] = true;
	shutdown(p->to[way], SHUT_WR);
	if (p->ended[!way] || n != 0)
		close_pipe(p);
}

static short wanted(const struct valve *v, const struct pipes *p, enum valve_way way)
{
	if (p->ended[way])
		return 0;
	return v->shut[way] ? POLLRDHUP : POLLIN;
}

static void poll_pipes(struct valve *v, struct pipes *all)
{
	struct pollfd fds[2 + PIPES * VALVE_WAYS] = {{.fd = v->stop[0], .events = POLLIN},
						     {.fd = v->listener, .events = POLLIN}};

	for (int i = 0; i < PIPES; i++)
		for (int way = 0; way < VALVE_WAYS; way++) {
			short events = all[i].to[!way] >= 0 ? wanted(v, &all[i], way) : 0;

			fds[2 + i * VALVE_WAYS + way] =
				(struct pollfd){events ? all[i].to[!way] : -1, events, 0};
		}
	if (poll(fds, 2 + PIPES * VALVE_WAYS, 5) <= 0)
		return;
	for (int i = 0; i < PIPES; i++)
		for (int way = 0; way < VALVE_WAYS; way++) {
			short events = fds[2 + i * VALVE_WAYS + way].revents;

			if (!events || all[i].to[0] < 0)
				continue;
			if (!v->shut[way])
				move_bytes(&all[i], way);
			else if (events & (POLLRDHUP | POLLHUP | POLLERR))
				close_pipe(&all[i]);
		}
	if (fds[1].revents)
		accept_client(v, all);
}

static void *run(void *arg)
{
	struct valve *v = arg;
	struct pipes all[PIPES];
	struct pollfd stop = {.fd = v->stop[0], .events = POLLIN};

	for (int i = 0; i < PIPES; i++)
		all[i] = (struct pipes){{-1, -1}, {false}};
	while (poll(&stop, 1, 0) == 0)
		poll_pipes(v, all);
	for (int i = 0; i < PIPES; i++)
		close_pipe(&all[i]);
	return NULL;
}

void valve_open(struct valve *v, uint16_t node)
{
	struct sockaddr_in at = loopback(0);
	socklen_t length = sizeof(at);

	*v = (struct valve){.node = node,
			    .listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	if (bind(v->listener, (struct sockaddr *)&at, sizeof(at)) != 0 ||
	    listen(v->listener, PIPES) != 0 ||
	    getsockname(v->listener, (struct sockaddr *)&at, &length) != 0 || pipe(v->stop) != 0 ||
	    pthread_create(&v->thread, NULL, run, v) != 0)
		abort();
	v->port = ntohs(at.sin_port);
}

void valve_close(struct valve *v)
{
	if (write(v->stop[1], "x", 1) != 1)
		abort();
	pthread_join(v->thread, NULL);
	close(v->listener);
	close(v->stop[0]);
	close(v->stop[1]);
}
