// SPDX-License-Identifier: BSD-2-Clause
/*
 * portal.c - listens for TCP connections, and accepts them as long as there are descriptors.
 */
#include "block/target/target.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/shortage.h"

#define BACKLOG 1024
#define ACCEPTS 64 /* connections accepted per event */

static void set_events(struct stag_block_target *t, uint32_t events)
{
	for (unsigned int i = 0; i < t->portal.n; i++)
		target_rewatch(t, &t->portal.watch[i], events);
}

static void pause_accepting(struct stag_block_target *t)
{
	if (t->portal.full)
		return;
	t->portal.full = true;
	set_events(t, 0);
}

void target_portal_resume(struct stag_block_target *t)
{
	if (!t->portal.full)
		return;
	t->portal.full = false;
	set_events(t, EPOLLIN);
}

/* Accepts a connection. Returns false if there is none, or if accepting has to pause until a connection ends. */
static bool accept_one(struct target_watch *w)
{
	struct stag_block_target *t = w->target;
	int fd = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0) {
		if (shortage_of(w->fd, errno) && !target_strangers_drop_one(t))
			pause_accepting(t);
		return false;
	}
	target_tcp_adopt(t, fd);
	return true;
}

static void on_events(struct target_watch *w, uint32_t events)
{
	for (int i = 0; i < ACCEPTS; i++)
		if (!accept_one(w))
			return;
}

void target_portal_name(const struct sockaddr *a, socklen_t len, char out[64])
{
	char host[48], port[8];
	const char *h = host;
	bool six;

	snprintf(out, 64, "?");
	if (getnameinfo(a, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return;
	if (strncmp(h, "::ffff:", 7) == 0 &&
	    strchr(h, '.')) /* an IPv4 address at a dual-stack socket */
		h += 7;
	six = strchr(h, ':');
	snprintf(out, 64, "%s%s%s:%s", six ? "[" : "", h, six ? "]" : "", port);
}

/* ---- listening ------------------------------------------------------------------------ */

static int bind_to(const struct sockaddr *a, socklen_t len)
{
	int on = 1, off = 0, error;
	int fd = socket(a->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (a->sa_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, a, len) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	error = errno;
	close(fd);
	return -error;
}

static uint16_t port_of(int fd)
{
	struct sockaddr_storage a;
	socklen_t len = sizeof(a);

	if (getsockname(fd, (struct sockaddr *)&a, &len) != 0)
		return 0;
	return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
					     : ((struct sockaddr_in *)&a)->sin_port);
}

static int listen_at(struct stag_block_target *t, const struct sockaddr *a, socklen_t len)
{
	struct target_portal *p = &t->portal;
	struct target_watch *w = &p->watch[p->n];
	int fd = bind_to(a, len), rc;

	if (fd < 0)
		return fd;
	*w = (struct target_watch){.ready = on_events, .fd = fd, .target = t};
	rc = target_watch(t, w, EPOLLIN);
	if (rc != 0) {
		close(fd);
		return rc;
	}
	p->n++;
	p->port = port_of(fd);
	return 0;
}

/* Listens on both address families, if there are both. */
static int listen_on_all(struct stag_block_target *t, uint16_t port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
	int rc = listen_at(t, (struct sockaddr *)&six, sizeof(six));

	if (rc == 0 || rc == -EADDRINUSE || rc == -EACCES)
		return rc;
	return listen_at(t, (struct sockaddr *)&four, sizeof(four));
}

static int listen_at_name(struct stag_block_target *t, const char *address, uint16_t port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICSERV | AI_PASSIVE},
			*list;
	char word[8];
	int rc;

	snprintf(word, sizeof(word), "%u", port);
	rc = getaddrinfo(address, word, &hints, &list);
	if (rc != 0)
		return block_fail(EADDRNOTAVAIL, "%s: %s", address, gai_strerror(rc));
	rc = -EADDRNOTAVAIL;
	for (const struct addrinfo *a = list; a && rc != 0; a = a->ai_next)
		rc = listen_at(t, a->ai_addr, a->ai_addrlen);
	freeaddrinfo(list);
	return rc == 0 ? 0 : block_fail(-rc, "%s port %u: %s", address, port, strerror(-rc));
}

int target_portal_open(struct stag_block_target *t, const struct stag_block_target_attr *attr)
{
	uint16_t port = attr->flags & STAG_BLOCK_ANY_PORT ? 0
			: attr->port			  ? attr->port
							  : STAG_BLOCK_PORT;
	int rc;

	if (attr->address)
		return listen_at_name(t, attr->address, port);
	rc = listen_on_all(t, port);
	return rc == 0 ? 0 : block_fail(-rc, "port %u: %s", port, strerror(-rc));
}

void target_portal_close(struct stag_block_target *t)
{
	for (unsigned int i = 0; i < t->portal.n; i++) {
		target_unwatch(t, &t->portal.watch[i]);
		close(t->portal.watch[i].fd);
	}
	t->portal.n = 0;
}
