// SPDX-License-Identifier: BSD-2-Clause
/*
 * ask.c - see ask.h.
 *
 * Nothing here waits but poll(): who is stopped does not take connections from his queue, and once that is full connect() would wait,
 * too.
 */
#include "ask.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define RETRY_MS   10	       /* where so many look that there is no room in the queue */
#define MOST	   (16u << 20) /* bytes of an answer */
#define MOST_ASKED 1024

void asks_add(struct asks *all, const struct sockaddr_un *to, socklen_t size, int pid, uid_t uid)
{
	struct ask *more;

	if (all->n >= MOST_ASKED)
		return;
	more = realloc(all->ask, (all->n + 1) * sizeof(*more));
	if (!more)
		return;
	all->ask = more;
	all->ask[all->n++] = (struct ask){
		.to = *to, .size = size, .pid = pid, .uid = uid, .fd = -1, .error = EINPROGRESS};
}

void asks_drop(struct asks *all)
{
	for (size_t i = 0; i < all->n; i++)
		free(all->ask[i].text);
	free(all->ask);
	*all = (struct asks){.n = 0};
}

/* ---- one ---- */

static void end_ask(struct ask *a, int error)
{
	if (a->fd >= 0)
		close(a->fd);
	a->fd = -1;
	a->error = error;
}

static bool is_who_it_says(const struct ask *a)
{
	struct ucred who;
	socklen_t size = sizeof(who);

	if (a->uid == ASK_ANYBODY)
		return true;
	return getsockopt(a->fd, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.pid == a->pid &&
	       who.uid == a->uid;
}

static bool send_word(const struct ask *a, const char *line)
{
	size_t n = strlen(line);

	return send(a->fd, line, n, MSG_NOSIGNAL) == (ssize_t)n;
}

static void reach(struct ask *a, const char *line)
{
	a->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (a->fd < 0)
		end_ask(a, errno);
	else if (connect(a->fd, (struct sockaddr *)&a->to, a->size) != 0)
		end_ask(a, errno == EAGAIN ? EINPROGRESS : errno);
	else if (!is_who_it_says(a))
		end_ask(a, ESRCH);
	else if (!send_word(a, line))
		end_ask(a, EPROTO);
}

static bool make_room(struct ask *a)
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

static void receive_answer(struct ask *a)
{
	ssize_t n;

	if (!make_room(a)) {
		end_ask(a, ENOMEM);
		return;
	}
	n = recv(a->fd, a->text + a->length, a->room - a->length, 0);
	if (n > 0)
		a->length += (size_t)n;
	else if (n == 0)
		end_ask(a, a->length ? 0 : EPROTO);
	else if (errno != EAGAIN && errno != EINTR)
		end_ask(a, EPROTO);
}

/* ---- all ---- */

/* How many there are to hear of; *wait becomes the most ms to wait. */
static size_t prepare(struct asks *all, const char *line, struct pollfd *fds, int *wait)
{
	size_t left = 0;

	for (size_t i = 0; i < all->n; i++) {
		struct ask *a = &all->ask[i];

		if (a->fd < 0 && a->error == EINPROGRESS)
			reach(a, line);
		fds[i] = (struct pollfd){.fd = a->fd, .events = POLLIN};
		if (a->error == EINPROGRESS)
			left++;
		if (a->error == EINPROGRESS && a->fd < 0 && *wait > RETRY_MS)
			*wait = RETRY_MS;
	}
	return left;
}

void asks_run(struct asks *all, const char *line, uint64_t patience_ns)
{
	struct pollfd *fds = calloc(all->n ? all->n : 1, sizeof(*fds));
	uint64_t until = clock_ns() + patience_ns;

	for (uint64_t now = clock_ns(); fds && now < until; now = clock_ns()) {
		int wait = (int)((until - now) / NS_PER_MS + 1);

		if (!prepare(all, line, fds, &wait) ||
		    (poll(fds, all->n, wait) < 0 && errno != EINTR))
			break;
		for (size_t i = 0; i < all->n; i++)
			if (fds[i].fd >= 0 && fds[i].revents)
				receive_answer(&all->ask[i]);
	}
	for (size_t i = 0; i < all->n; i++)
		if (all->ask[i].error == EINPROGRESS)
			end_ask(&all->ask[i], fds ? ETIMEDOUT : ENOMEM);
	free(fds);
}
