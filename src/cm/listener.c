// SPDX-License-Identifier: BSD-2-Clause
/*
 * listener.c - a listening socket, and the peers that have connected to it and not yet sent a
 * complete Request.
 *
 * Two limits bound the resources that strangers can use: the number of peers without a complete
 * Request is limited, and the oldest is dropped first; and while the program does not fetch its
 * requests, further peers wait in TCP's queue.
 *
 * Requests are presented one at a time: the next one when the program has answered the last.
 * rping's server keeps the id of a request in one variable until another thread picks it up, and
 * would lose one of two that arrive together. A program that does not answer immediately expects
 * several: from then on all are presented as they arrive.
 */
#include "cm/cm.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"

#define ACCEPTS_AT_ONCE 64  /* connections accepted before other work gets a turn */
#define TCP_BACKLOG	128 /* minimum: a SYN that finds no room is retransmitted after a second */
#define RETRY_NS	(100 * NS_PER_MS)
#define ANSWER_NS                                                                                  \
	(200 * NS_PER_MS) /* counts as an immediate answer, for a thread on a busy machine */

static void listener_ready(struct watch *w, uint32_t revents);

static void listener_update(struct listener *l)
{
	bool paused = l->undelivered >= l->backlog || l->short_of_fds;

	if (paused == l->paused)
		return;
	l->paused = paused;
	watch_mod(&l->watch, paused ? 0 : EPOLLIN);
}

static void listener_retry(struct timer *t)
{
	struct listener *l = container_of(t, struct listener, retry);

	l->short_of_fds = false;
	listener_update(l);
}

/*
 * Stops accepting while descriptors or memory are short: peers wait in the queue until the retry.
 */
static void listener_pause(struct listener *l, int err)
{
	log_warn("cm %u: accept failed with errno %d, retrying in 100 ms", l->id->num, err);
	l->short_of_fds = true;
	listener_update(l);
	timer_set(&l->retry, clock_ns() + RETRY_NS, listener_retry);
}

static bool is_shortage(int err)
{
	return err == EMFILE || err == ENFILE || err == ENOBUFS || err == ENOMEM;
}

/* Accepts one connection. Returns 0, 1 if there is none, or -errno if resources are short. */
static int accept_one(struct listener *l)
{
	int fd = accept4(l->watch.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int err;

	if (fd < 0 && is_shortage(errno))
		return -errno;
	if (fd < 0) /* an error other than EAGAIN concerns that connection alone */
		return errno == EAGAIN ? 1 : 0;
	err = conn_accepted(l, fd);
	return err && is_shortage(-err) ? err : 0;
}

static void listener_ready(struct watch *w, uint32_t revents)
{
	struct listener *l = container_of(w, struct listener, watch);
	int ret = 0;

	for (int i = 0; i < ACCEPTS_AT_ONCE && !ret; i++)
		ret = accept_one(l);
	if (ret < 0)
		listener_pause(l, -ret);
}

int listener_create(struct cm_id *id, int fd, int backlog, struct listener **out)
{
	struct listener *l = calloc(1, sizeof(*l));
	int one = 1, err;

	assert(engine_locked());
	if (!l)
		return -ENOMEM;
	l->id = id;
	l->backlog = backlog > 0 && backlog < CM_BACKLOG ? (unsigned)backlog : CM_BACKLOG;
	list_init(&l->half_open);
	list_init(&l->waiting);
	/* Allows a successor to bind while connections of this listener are in TIME_WAIT. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (listen(fd, l->backlog > TCP_BACKLOG ? (int)l->backlog : TCP_BACKLOG)) {
		err = -errno;
		goto err_free;
	}
	err = watch_add(&l->watch, fd, EPOLLIN, listener_ready);
	if (err)
		goto err_free;
	*out = l;
	return 0;
err_free:
	free(l);
	return err;
}

static void destroy_all(struct list *conns)
{
	list_for_each_safe (it, conns) {
		conn_destroy(list_entry(it, struct conn, link));
	}
}

void listener_destroy(struct listener *l)
{
	int fd;

	if (!l)
		return;
	assert(engine_locked());
	fd = l->watch.fd;
	watch_del(&l->watch);
	destroy_all(&l->half_open);
	destroy_all(&l->waiting);
	timer_cancel(&l->retry);
	timer_cancel(&l->answer);
	if (l->unanswered)
		l->unanswered->asked_by = NULL;
	close(fd);
	free(l);
}

void listener_add(struct listener *l, struct conn *c)
{
	assert(engine_locked());
	c->listener = l;
	list_add_tail(&l->half_open, &c->link);
	if (++l->n_half_open > CM_MAX_HALF_OPEN)
		conn_destroy(list_entry(l->half_open.next, struct conn, link));
}

void listener_remove(struct listener *l, struct conn *c)
{
	assert(engine_locked());
	list_del(&c->link);
	c->listener = NULL;
	if (c->state == CONN_REQUEST)
		l->n_half_open--;
	else
		listener_delivered(l);
}

/* ---- requests, one at a time ------------------------------------------- */

static void present_all(struct listener *l);

static void on_no_answer(struct timer *t)
{
	struct listener *l = container_of(t, struct listener, answer);

	l->in_bulk = true;
	present_all(l);
}

static void present(struct listener *l, struct conn *c)
{
	struct cm_id *child;

	list_del(&c->link);
	c->listener = NULL;
	if (conn_present(c, l->id, &child)) {
		listener_delivered(l);
		return;
	}
	if (l->in_bulk)
		return;
	l->unanswered = child;
	child->asked_by = l;
	timer_set(&l->answer, clock_ns() + ANSWER_NS, on_no_answer);
}

static void present_all(struct listener *l)
{
	while (!list_empty(&l->waiting) && (l->in_bulk || !l->unanswered))
		present(l, list_entry(l->waiting.next, struct conn, link));
}

void listener_asked(struct listener *l, struct conn *c)
{
	assert(engine_locked());
	list_del(&c->link);
	l->n_half_open--;
	list_add_tail(&l->waiting, &c->link);
	l->undelivered++;
	listener_update(l);
	present_all(l);
}

void listener_answered(struct listener *l)
{
	assert(engine_locked());
	l->unanswered->asked_by = NULL;
	l->unanswered = NULL;
	timer_cancel(&l->answer);
	present_all(l);
}

void listener_delivered(struct listener *l)
{
	assert(engine_locked());
	l->undelivered--;
	listener_update(l);
}
