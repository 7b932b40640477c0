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

#define RETRY_MS     10 /* before connecting again after a full backlog */
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

static bool grow_response(struct queries *all, struct query *a)
{
	size_t room = a->room ? a->room * 2 : 16384, most = all->most ? all->most : QUERY_MOST;
	char *more;

	if (a->length < a->room)
		return true;
	if (room > most || (all->budget && room - a->room > all->budget - all->held))
		return false;
	more = realloc(a->text, room);
	if (!more)
		return false;
	all->held += room - a->room;
	a->text = more;
	a->room = room;
	return true;
}

/* A response that was refused is of no use: others may have its memory. */
static void forget_response(struct queries *all, struct query *a)
{
	free(a->text);
	all->held -= a->room;
	a->text = NULL;
	a->length = a->room = 0;
}

static void receive_answer(struct queries *all, struct query *a)
{
	ssize_t n;

	if (!grow_response(all, a)) {
		forget_response(all, a);
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
				receive_answer(all, &all->list[i]);
	}
	for (size_t i = 0; i < all->n; i++)
		if (all->list[i].error == EINPROGRESS)
			end_query(&all->list[i], fds ? ETIMEDOUT : ENOMEM);
	free(fds);
}

/* ---- the responses ---- */

/* Returns whether objects and arrays are nested at most `most` deep. The parser would recurse, and allocate for each of them. */
static bool is_shallow(const char *text, size_t length, unsigned int most)
{
	unsigned int depth = 0;
	bool in_string = false;

	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (in_string && c == '\\')
			i++;
		else if (c == '"')
			in_string = !in_string;
		else if (!in_string && (c == '{' || c == '[') && ++depth > most)
			return false;
		else if (!in_string && (c == '}' || c == ']') && depth-- == 0)
			return false;
	}
	return true;
}

json_t *query_json(const struct query *a)
{
	if (a->error || !is_shallow(a->text, a->length, QUERY_DEPTH))
		return NULL;
	return json_loadb(a->text, a->length, 0, NULL);
}
