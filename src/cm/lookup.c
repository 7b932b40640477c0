// SPDX-License-Identifier: BSD-2-Clause
/*
 * lookup.c - the asking side of a lookup: a message, repeated until it is answered or the deadline has passed.
 *
 * Every byte that comes is a stranger's until it is decoded and has the lookup's id; the kernel drops what does not come from
 * the address that was asked.
 */
#include "cm/ud.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"

#define MESSAGES_AT_ONCE 16

static void on_repeat(struct timer *t);

/* Ends the lookup before the id hears of it: the program may destroy the id then. */
static void finish(struct lookup *l, int status, const struct lookup_msg *m)
{
	struct cm_id *id = l->id;

	lookup_destroy(l);
	ud_looked_up(id, status, m);
}

/* Notes that the port is closed. */
static void note_refused(struct lookup *l)
{
	l->refused = true;
	l->pause = LOOKUP_FIRST_PAUSE_MS * NS_PER_MS;
}

/* Sends the message. on_repeat() sends it again, whether it was sent, refused or lost. */
static void ask(struct lookup *l)
{
	uint8_t buf[LOOKUP_LEN];

	lookup_encode(&l->ask, buf);
	if (send(l->watch.fd, buf, sizeof(buf), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
	    errno == ECONNREFUSED)
		note_refused(l); /* the last one was refused, and this one is not sent */
	timer_set(&l->repeat, clock_ns() + l->pause, on_repeat);
}

static void on_repeat(struct timer *t)
{
	struct lookup *l = container_of(t, struct lookup, repeat);

	if (l->refused && clock_ns() >= l->refused_until) {
		finish(l, LOOKUP_NO_LISTENER, NULL);
		return;
	}
	l->refused = false;
	l->pause = 2 * l->pause;
	if (l->pause > LOOKUP_LAST_PAUSE_MS * NS_PER_MS)
		l->pause = LOOKUP_LAST_PAUSE_MS * NS_PER_MS;
	ask(l);
}

static void on_deadline(struct timer *t)
{
	finish(container_of(t, struct lookup, deadline), -ETIMEDOUT, NULL);
}

void lookup_take(struct lookup *l, const uint8_t *buf, size_t len)
{
	struct lookup_msg m;

	assert(engine_locked());
	if (lookup_decode(buf, len, &m) || m.id != l->ask.id)
		return;
	if (m.kind == LOOKUP_ANSWER) {
		finish(l, m.status, &m);
	} else if (m.kind == LOOKUP_PROVE && m.cookie != l->ask.cookie) {
		l->ask.cookie = m.cookie;
		ask(l);
	}
}

/* The first answer ends the lookup: its id says whether there was one. */
static void on_message(struct watch *w, uint32_t revents)
{
	struct lookup *l = container_of(w, struct lookup, watch);
	struct cm_id *id = l->id;

	for (int i = 0; i < MESSAGES_AT_ONCE && id->lookup == l; i++) {
		uint8_t buf[LOOKUP_LEN + 1];
		ssize_t n = recv(w->fd, buf, sizeof(buf), MSG_DONTWAIT);

		if (n < 0 && errno == ECONNREFUSED)
			note_refused(l);
		else if (n < 0)
			return;
		else
			lookup_take(l, buf, (size_t)n);
	}
}

static uint64_t random_id(void)
{
	uint64_t id;

	do {
		id = (uint64_t)random_u32() << 32 | random_u32();
	} while (!id);
	return id;
}

int lookup_start(struct cm_id *id, int fd, const void *data, uint8_t len, struct lookup **out)
{
	const struct sockaddr *to = &id->cm.route.addr.dst_addr;
	struct lookup *l = calloc(1, sizeof(*l));
	uint64_t now = clock_ns();
	int err = -ENOMEM;

	assert(engine_locked() && len <= LOOKUP_ASK_PRIVATE);
	if (!l)
		goto err_close;
	err = connect(fd, to, address_len(to)) ? -errno : 0;
	if (!err)
		err = watch_add(&l->watch, fd, EPOLLIN, on_message);
	if (err)
		goto err_free;
	l->id = id;
	l->ask = (struct lookup_msg){.kind = LOOKUP_ASK, .id = random_id(), .private_len = len};
	if (len)
		memcpy(l->ask.private_data, data, len);
	l->pause = LOOKUP_FIRST_PAUSE_MS * NS_PER_MS;
	l->refused_until = now + config()->refused_retry_ms * NS_PER_MS;
	timer_set(&l->deadline, now + config()->connect_timeout_ms * NS_PER_MS, on_deadline);
	*out = l;
	ask(l);
	return 0;

err_free:
	free(l);
err_close:
	close(fd);
	return err;
}

void lookup_destroy(struct lookup *l)
{
	int fd;

	if (!l)
		return;
	assert(engine_locked());
	fd = l->watch.fd;
	watch_del(&l->watch);
	timer_cancel(&l->repeat);
	timer_cancel(&l->deadline);
	l->id->lookup = NULL;
	close(fd);
	free(l);
}
