// SPDX-License-Identifier: BSD-2-Clause
/*
 * listener.c - a listening socket, and the peers that have connected to it and not yet sent a
 * complete Request.
 *
 * Strangers must not use up what others need. Peers are kept by their source, the address without
 * its port. The number of peers without a complete Request is limited, and so is their time
 * (conn.c). If there are too many, the source with the most of them loses its oldest. Requests are presented to the program
 * by turns of the sources. While the program does not fetch its requests, further peers wait in
 * TCP's queue. If it does, but they come faster, the source with the most of them loses its oldest here,
 * too, because TCP's queue has no turns, and a SYN that finds it full is lost for a second.
 *
 * Requests are presented one at a time: the next one when the program has answered the last.
 * rping's server keeps the id of a request in one variable until another thread picks it up, and
 * would lose one of two that arrive together. A program that does not answer immediately expects
 * several: from then on they are presented as they arrive.
 */
#include "cm/cm.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/shortage.h"

#define ACCEPTS_AT_ONCE 16 /* connections accepted before other work gets a turn */
#define MOST_PRESENTED	64 /* Requests that the program has not fetched; more wait for their turn */
/* minimum: a SYN that finds no room, because of a flood, is retransmitted after a second */
#define TCP_BACKLOG 4096
#define RETRY_NS    (SHORTAGE_PAUSE_MS * NS_PER_MS)
#define ANSWER_NS                                                                                  \
	(200 * NS_PER_MS) /* counts as an immediate answer, for a thread on a busy machine */

static void listener_ready(struct watch *w, uint32_t revents);

/* Returns whether the program fetches its requests, if not as fast as they come. */
static bool is_fetching(const struct listener *l)
{
	return clock_ns() - l->delivered_at < ANSWER_NS;
}

static void listener_update(struct listener *l)
{
	bool paused =
		(l->undelivered + l->n_waiting >= l->backlog && !is_fetching(l)) || l->short_of_fds;

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
	log_warn("cm %u: accept failed with errno %d, retrying in %d ms", l->id->num, err,
		 SHORTAGE_PAUSE_MS);
	l->short_of_fds = true;
	listener_update(l);
	timer_set(&l->retry, clock_ns() + RETRY_NS, listener_retry);
}

/* Accepts one connection. Returns 0, 1 if there is none, or -errno if resources are short. */
static int accept_one(struct listener *l)
{
	int fd = accept4(l->watch.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int err;

	if (fd < 0 && shortage_is(errno))
		return -errno;
	if (fd < 0) /* an error other than EAGAIN concerns that connection alone */
		return errno == EAGAIN ? 1 : 0;
	err = conn_accepted(l, fd);
	return err && shortage_is(-err) ? err : 0;
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
	l->backlog = backlog <= 0		? CM_BACKLOG
		     : backlog < CM_MAX_BACKLOG ? (unsigned)backlog
						: CM_MAX_BACKLOG;
	list_init(&l->sources);
	list_init(&l->turns);
	/* Allows a successor to bind while connections of this listener are in TIME_WAIT. */
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	congestion_before_listen(fd);
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

/* The last one of a source frees the source. */
static void destroy_one(struct source *s)
{
	struct list *from = s->n_half_open ? &s->half_open : &s->waiting;

	conn_destroy(list_entry(from->next, struct conn, link));
}

void listener_destroy(struct listener *l)
{
	int fd;

	if (!l)
		return;
	assert(engine_locked());
	fd = l->watch.fd;
	watch_del(&l->watch);
	while (!list_empty(&l->sources))
		destroy_one(list_entry(l->sources.next, struct source, link));
	timer_cancel(&l->retry);
	timer_cancel(&l->answer);
	if (l->unanswered)
		l->unanswered->asked_by = NULL;
	close(fd);
	free(l);
}

/* ---- sources ----------------------------------------------------------- */

static void address_of(const struct conn *c, struct source *s)
{
	struct sockaddr_storage peer = c->stream->peer;

	address_unmap(&peer);
	s->family = peer.ss_family;
	if (s->family == AF_INET6)
		memcpy(s->address, &((struct sockaddr_in6 *)&peer)->sin6_addr, sizeof(s->address));
	else
		memcpy(s->address, &((struct sockaddr_in *)&peer)->sin_addr,
		       sizeof(struct in_addr));
}

/* Returns the source of a new peer, or NULL if memory runs out. */
static struct source *source_of(struct listener *l, const struct conn *c)
{
	struct source *s, is = {0};

	address_of(c, &is);
	list_for_each (it, &l->sources) {
		s = list_entry(it, struct source, link);
		if (s->family == is.family &&
		    memcmp(s->address, is.address, sizeof(is.address)) == 0)
			return s;
	}
	s = calloc(1, sizeof(*s));
	if (!s)
		return NULL;
	*s = is;
	list_init(&s->half_open);
	list_init(&s->waiting);
	list_init(&s->turn);
	list_init(&s->shakes);
	list_init(&s->shake_turn);
	list_init(&s->link);
	list_add_tail(&l->sources, &s->link);
	return s;
}

/* Frees a source that no peer refers to. */
static void source_put(struct source *s)
{
	if (s->n_half_open || s->n_waiting)
		return;
	list_del(&s->turn);
	list_del(&s->link);
	free(s);
}

/* Logs at most once a second. */
static void note_dropped(struct listener *l, const struct source *s)
{
	char name[ADDRESS_STR_LEN];
	const struct conn *c;

	l->dropped++;
	if (clock_ns() - l->told_at < NS_PER_S)
		return;
	c = list_entry((s->n_half_open ? &s->half_open : &s->waiting)->next, struct conn, link);
	log_info("cm %u: %llu connections dropped to make room for others; most come from %s",
		 l->id->num, (unsigned long long)(l->dropped - l->logged),
		 address_str((const struct sockaddr *)&c->stream->peer, name, sizeof(name)));
	l->logged = l->dropped;
	l->told_at = clock_ns();
}

/* Drops the oldest peer without a complete Request, of the source that has the most of them. */
static void drop_half_open(struct listener *l)
{
	struct source *most = NULL;

	list_for_each (it, &l->sources) {
		struct source *s = list_entry(it, struct source, link);

		if (s->n_half_open && (!most || s->n_half_open > most->n_half_open))
			most = s;
	}
	note_dropped(l, most);
	conn_destroy(list_entry(most->half_open.next, struct conn, link));
}

/* The same among those whose Request is to be presented. */
static void drop_waiting(struct listener *l)
{
	struct source *most = NULL;

	list_for_each (it, &l->turns) {
		struct source *s = list_entry(it, struct source, turn);

		if (!most || s->n_waiting > most->n_waiting)
			most = s;
	}
	if (!most)
		return;
	note_dropped(l, most);
	conn_destroy(list_entry(most->waiting.next, struct conn, link));
}

int listener_add(struct listener *l, struct conn *c)
{
	assert(engine_locked());
	c->source = source_of(l, c);
	if (!c->source)
		return -ENOMEM;
	c->listener = l;
	list_add_tail(&c->source->half_open, &c->link);
	c->source->n_half_open++;
	if (++l->n_half_open > CM_MAX_HALF_OPEN)
		drop_half_open(l);
	return 0;
}

/* Removes a peer that is half open. */
static void leave_half_open(struct listener *l, struct conn *c)
{
	list_del(&c->link);
	l->n_half_open--;
	c->source->n_half_open--;
}

/* Removes a peer that waits to be presented. */
static void leave_waiting(struct listener *l, struct conn *c)
{
	list_del(&c->link);
	l->n_waiting--;
	if (--c->source->n_waiting == 0)
		list_del(&c->source->turn);
}

static void forget_listener(struct conn *c)
{
	source_put(c->source);
	c->source = NULL;
	c->listener = NULL;
}

void listener_remove(struct listener *l, struct conn *c)
{
	assert(engine_locked());
	if (c->state <= CONN_REQUEST)
		leave_half_open(l, c);
	else
		leave_waiting(l, c);
	forget_listener(c);
	listener_update(l);
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

	leave_waiting(l, c);
	forget_listener(c);
	if (conn_present(c, l->id, &child)) {
		listener_update(l);
		return;
	}
	l->undelivered++;
	if (l->in_bulk)
		return;
	l->unanswered = child;
	child->asked_by = l;
	timer_set(&l->answer, clock_ns() + ANSWER_NS, on_no_answer);
}

static void present_all(struct listener *l)
{
	while (!list_empty(&l->turns) && l->undelivered < MOST_PRESENTED &&
	       (l->in_bulk || !l->unanswered)) {
		struct source *s = list_entry(l->turns.next, struct source, turn);

		list_del(&s->turn);
		list_add_tail(&l->turns, &s->turn);
		present(l, list_entry(s->waiting.next, struct conn, link));
	}
}

void listener_asked(struct listener *l, struct conn *c)
{
	assert(engine_locked());
	leave_half_open(l, c);
	list_add_tail(&c->source->waiting, &c->link);
	if (c->source->n_waiting++ == 0)
		list_add_tail(&l->turns, &c->source->turn);
	l->n_waiting++;
	present_all(l);
	if (l->n_waiting > (l->backlog > CM_BACKLOG ? l->backlog : CM_BACKLOG))
		drop_waiting(l);
	listener_update(l);
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
	l->delivered_at = clock_ns();
	present_all(l);
	listener_update(l);
}
