// SPDX-License-Identifier: BSD-2-Clause
/*
 * query.c - queries several processes at once (query.h).
 *
 * Only poll() waits. Sockets are non-blocking even in connect(), which would wait for a stopped process with a full backlog.
 */
#include "query.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define RETRY_MS     10		 /* before connecting again after a full backlog */
#define MOST	     (16u << 20) /* bytes of one response */
#define MOST_QUERIES 1024

void queries_add(struct queries *all, const struct sockaddr_un *to, socklen_t size, int pid,
		 uid_t uid)
{
	struct query *more;

	if (all->n >= MOST_QUERIES)
		return;
	more = realloc(all->list, (all->n + 1) * sizeof(*more));
	if (!more)
		return;
	all->list = more;
	all->list[all->n++] = (struct query){
		.to = *to, .size = size, .pid = pid, .uid = uid, .fd = -1, .error = EINPROGRESS};
}

void queries_free(struct queries *all)
{
	for (size_t i = 0; i < all->n; i++)
		free(all->list[i].text);
	free(all->list);
	*all = (struct queries){.n = 0};
}

/* ---- one query ---- */

static void end_query(struct query *a, int error)
{
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	a->error = error;
}

static bool is_expected_peer(const struct query *a)
{
	struct ucred who;
	socklen_t size = sizeof(who);

	if (a->uid == QUERY_ANY_UID)
		return true;
	return getsockopt(a->fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.pid == a->pid &&
	       who.uid == a->uid;
}

static bool send_word(const struct query *a, const char *line)
{
	size_t n = strlen(line);

	return send(a->fd, line, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static void connect_and_send(struct query *a, const char *line)
{
	a->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (a->fd < 0)
		end_query(a, errno);
	else if (connect(a->fd, (struct sockaddr *)&a->to, a->size) != 0)
		end_query(a, errno == EAGAIN ? EINPROGRESS : errno);
	else if (!is_expected_peer(a))
		end_query(a, ESRCH);
	else if (!send_word(a, line))
		end_query(a, EPROTO);
}

static bool grow_response(struct query *a)
{
	size_t room = a->room ? a->room * 2 : 16384;
	char *more;

	if (a->length < a->room)
		return true;
	more = room <= MOST ? realloc(a->text, room) : NULL;
	if (!more)
		return false;
	a->text = more;
	a->room = room;
	return true;
}

static void receive_answer(struct query *a)
{
	ssize_t n;

	if (!grow_response(a)) {
		end_query(a, ENOMEM);
		return;
	}
	n = recv(a->fd, a->text + a->length, a->room - a->length, 0);
	if (n > 0)
		a->length += (size_t)n;
	else if (n == 0)
		end_query(a, a->length ? 0 : EPROTO);
	else if (errno != EAGAIN && errno != EINTR)
		end_query(a, EPROTO);
}

/* ---- all queries ---- */

/* Connects and fills fds. Returns the number of queries in flight, and lowers *wait (ms) if one must be retried. */
static size_t prepare_poll(struct queries *all, const char *line, struct pollfd *fds, int *wait)
{
	size_t left = 0;

	for (size_t i = 0; i < all->n; i++) {
		struct query *a = &all->list[i];

		if (a->fd < 0 && a->error == EINPROGRESS)
			connect_and_send(a, line);
		fds[i] = (struct pollfd){.fd = a->fd, .events = POLLIN};
		if (a->error == EINPROGRESS)
			left++;
		if (a->error == EINPROGRESS && a->fd < 0 && *wait > RETRY_MS)
			*wait = RETRY_MS;
	}
	return left;
}

void queries_run(struct queries *all, const char *line, uint64_t timeout_ns)
{
	struct pollfd *fds = calloc(all->n ? all->n : 1, sizeof(*fds));
	uint64_t until = clock_ns() + timeout_ns;

	for (uint64_t now = clock_ns(); fds && now < until; now = clock_ns()) {
		int wait = (int)((until - now) / NS_PER_MS + 1);

		if (!prepare_poll(all, line, fds, &wait) ||
		    (poll(fds, all->n, wait) < 0 && errno != EINTR))
			break;
		for (size_t i = 0; i < all->n; i++)
			if (fds[i].fd >= 0 && fds[i].revents)
				receive_answer(&all->list[i]);
	}
	for (size_t i = 0; i < all->n; i++)
		if (all->list[i].error == EINPROGRESS)
			end_query(&all->list[i], fds ? ETIMEDOUT : ENOMEM);
	free(fds);
}
