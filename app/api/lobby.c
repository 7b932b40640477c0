// SPDX-License-Identifier: BSD-2-Clause
/*
 * lobby.c - connections that have not sent a request yet (server.h).
 *
 * A connection costs libmicrohttpd a thread, and it has room for few. So one thread accepts all connections and keeps them here,
 * at the cost of a descriptor, until the head of a request has arrived (of TLS: the first record). It looks at the bytes without
 * taking them (MSG_PEEK). Silent clients, and those that send a head byte by byte, wait here and are in nobody's way.
 *
 * Each door has room of its own at libmicrohttpd, and a queue of its own for it: a full port does not delay the Unix socket.
 *
 * Only the lobby's thread uses its lists; others use `waits`, `is_full` and `wake`.
 */
#include "server.h"

#include <assert.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/shortage.h"
#include "base/source.h"

#define FIRST_S	  60  /* for the first byte */
#define HEAD_S	  10  /* from there to the end of the head */
#define WAKES_MAX 256 /* pieces in which a head may arrive */
#define TICK_MS	  250
#define RETRY_MS                                                                                   \
	100 /* after accept() ran out of descriptors or memory, and nobody could make room */
#define BATCH 64
#define SHARE                                                                                      \
	8 /* a source may have an eighth of the lobby before its own connections make room for it */
#define TLS_HANDSHAKE 0x16

/* A connection in the lobby. */
struct guest {
	struct list all;    /* in lobby.guests, in the order of arrival, or in door.ready */
	struct list source; /* in lobby.sources */
	struct door *door;
	int fd;
	unsigned int index; /* of its source */
	unsigned int wakes;
	uint64_t until; /* deadline */
	bool began;
	struct listener *to; /* that takes it, once its head is here */
};

static void leave(struct lobby *l, struct guest *g)
{
	list_del(&g->all);
	list_del(&g->source);
	l->counts[g->index]--;
	atomic_fetch_sub(&l->waits, 1);
	free(g);
}

static void turn_away(struct lobby *l, struct guest *g)
{
	close(g->fd);
	leave(l, g);
}

/* ---- arrival ----------------------------------------------------------------------------- */

/* Returns which entry of the table counts this source; a peer cannot choose it. */
static unsigned int source_index(const struct lobby *l, const struct sockaddr_storage *a)
{
	const void *at = NULL;
	bool has_address = a->ss_family == AF_INET || a->ss_family == AF_INET6;
	size_t len = has_address ? source_of_address((const struct sockaddr *)a, &at) : 0;
	const unsigned char *bytes = at;
	uint64_t hash = l->seed;

	for (size_t i = 0; i < len; i++)
		hash = (hash ^ bytes[i]) * 0x9e3779b97f4a7c15ull;
	return (unsigned int)(hash >> 40) % LOBBY_SOURCES;
}

/*
 * Makes room by turning the oldest away: of the same source if that has more than its share, else of all that have sent no request.
 * Returns false if there are none.
 */
static bool make_room(struct lobby *l, unsigned int index)
{
	if (atomic_load(&l->waits) < l->most)
		return true;
	if (l->counts[index] > l->most / SHARE)
		turn_away(l, list_entry(l->sources[index].next, struct guest, source));
	else if (!list_empty(&l->guests))
		turn_away(l, list_entry(l->guests.next, struct guest, all));
	return atomic_load(&l->waits) < l->most;
}

static bool admit(struct lobby *l, struct door *door, int fd, const struct sockaddr_storage *from)
{
	unsigned int index = source_index(l, from);
	struct guest *g;

	if (!make_room(l, index))
		return false;
	g = malloc(sizeof(*g));
	if (!g)
		return false;
	*g = (struct guest){
		.door = door, .fd = fd, .index = index, .until = clock_ns() + FIRST_S * NS_PER_S};
	if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd,
		      &(struct epoll_event){.events = EPOLLIN | EPOLLRDHUP | EPOLLET,
					    .data.ptr = g}) != 0) {
		free(g);
		return false;
	}
	list_add_tail(&l->guests, &g->all);
	list_add_tail(&l->sources[index], &g->source);
	l->counts[index]++;
	atomic_fetch_add(&l->waits, 1);
	return true;
}

/*
 * Without a free descriptor, the oldest makes room, or the lobby pauses if it is empty: else nobody could come in, and epoll would not
 * let us sleep.
 */
static void accept_some(struct lobby *l, struct door *door)
{
	for (int i = 0; i < BATCH; i++) {
		struct sockaddr_storage from = {0};
		socklen_t len = sizeof(from);
		int fd = accept4(door->fd, (struct sockaddr *)&from, &len,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0 && !shortage_of(door->fd, errno))
			return;
		if (fd < 0 && list_empty(&l->guests)) {
			poll(NULL, 0, RETRY_MS);
			return;
		}
		if (fd < 0)
			turn_away(l, list_entry(l->guests.next, struct guest, all));
		else if (!admit(l, door, fd, &from))
			close(fd);
	}
}

/* ---- the head ------------------------------------------------------------------------------ */

static bool has_whole_head(const char *bytes, size_t len)
{
	return memmem(bytes, len, "\r\n\r\n", 4) || memmem(bytes, len, "\n\n", 2);
}

/* A record of TLS has its length in bytes 3 and 4. */
static bool has_whole_record(const unsigned char *bytes, size_t len)
{
	return len >= 5 && len >= 5u + (size_t)(bytes[3] << 8 | bytes[4]);
}

/* Decides by the bytes that are here; if ended, no more will come. Returns false if the connection is of no use any more. */
static bool look_at(struct lobby *l, struct guest *g, bool ended)
{
	ssize_t n = recv(g->fd, l->bytes, sizeof(l->bytes), MSG_PEEK | MSG_DONTWAIT);
	bool is_tls;

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || ++g->wakes > WAKES_MAX)
		return false;
	if (n < 0)
		return !ended;
	if (!g->began) {
		g->began = true;
		g->until = clock_ns() + HEAD_S * NS_PER_S;
	}
	is_tls = l->bytes[0] == TLS_HANDSHAKE && g->door->tls;
	if (is_tls ? has_whole_record((const unsigned char *)l->bytes, (size_t)n)
		   : has_whole_head(l->bytes, (size_t)n) || (size_t)n == sizeof(l->bytes))
		g->to = is_tls ? g->door->tls : g->door->plain;
	return g->to || !ended;
}

/* Gives the connection to libmicrohttpd, which closes it, also if it has no room. Returns false if it does not come. */
static bool give(struct guest *g)
{
	struct sockaddr_storage from = {0};
	socklen_t len = sizeof(from);

	if (getpeername(g->fd, (struct sockaddr *)&from, &len) == 0)
		return MHD_add_connection(g->to->mhd, g->fd, (struct sockaddr *)&from, len) ==
		       MHD_YES;
	close(g->fd);
	return false;
}

/* Returns false if there is no room. */
static bool hand_over(struct lobby *l, struct guest *g)
{
	bool is_local = g->to->guard.is_private;

	if (!timeouts_make_room(l->timeouts, is_local, l->active))
		return false;
	epoll_ctl(l->epoll, EPOLL_CTL_DEL, g->fd, NULL);
	if (!give(g))
		timeouts_cancel(l->timeouts, is_local);
	leave(l, g);
	return true;
}

static void attend(struct lobby *l, struct guest *g, uint32_t events)
{
	if (g->to) /* it is in the queue for room */
		return;
	if (!look_at(l, g, events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) {
		turn_away(l, g);
		return;
	}
	if (!g->to || (list_empty(&g->door->ready) && hand_over(l, g)))
		return;
	list_del(&g->all);
	list_add_tail(&g->door->ready, &g->all);
	atomic_store(&l->is_full, true);
}

/* Returns whether nobody waits at the door any more. */
static bool empty_queue(struct lobby *l, struct door *door)
{
	while (!list_empty(&door->ready))
		if (!hand_over(l, list_entry(door->ready.next, struct guest, all)))
			return false;
	return true;
}

static void hand_over_ready(struct lobby *l)
{
	bool is_full = false;

	for (unsigned int i = 0; i < LOBBY_DOORS; i++)
		is_full |= !empty_queue(l, &l->doors[i]);
	atomic_store(&l->is_full, is_full);
}

/* Guests that have sent nothing are in the order of their deadlines; others are mixed among them, so all are checked. */
static void turn_away_late(struct lobby *l)
{
	uint64_t now = clock_ns();

	if (now - l->swept < NS_PER_S)
		return;
	l->swept = now;
	list_for_each_safe (it, &l->guests) {
		struct guest *g = list_entry(it, struct guest, all);

		if (g->until < now)
			turn_away(l, g);
	}
}

/* ---- the thread ------------------------------------------------------------------------------ */

static struct door *door_of(struct lobby *l, const void *ptr)
{
	for (unsigned int i = 0; i < LOBBY_DOORS; i++)
		if (ptr == &l->doors[i])
			return &l->doors[i];
	return NULL;
}

static void *lobby_thread(void *arg)
{
	struct lobby *l = arg;
	struct epoll_event events[BATCH];
	uint64_t drained;

	while (!atomic_load(&l->stopping)) {
		int n = epoll_wait(l->epoll, events, BATCH, TICK_MS);

		for (int i = 0; i < n; i++)
			if (events[i].data.ptr != &l->wake && !door_of(l, events[i].data.ptr))
				attend(l, events[i].data.ptr, events[i].events);
		for (int i = 0; i < n; i++) /* after that: they may turn away those above */
			if (door_of(l, events[i].data.ptr))
				accept_some(l, events[i].data.ptr);
			else if (events[i].data.ptr == &l->wake)
				(void)!read(l->wake, &drained, sizeof(drained));
		hand_over_ready(l);
		turn_away_late(l);
	}
	return NULL;
}

void lobby_wake(struct lobby *l)
{
	if (atomic_load(&l->is_full))
		(void)!write(l->wake, &(uint64_t){1}, sizeof(uint64_t));
}

/* Leaves descriptors for the rest of the daemon. */
static unsigned int most_guests(unsigned int wanted)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 2 < wanted)
		return limit.rlim_cur / 2 > 16 ? (unsigned int)(limit.rlim_cur / 2) : 16;
	return wanted;
}

static int watch(struct lobby *l, int fd, void *ptr)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = ptr};

	return epoll_ctl(l->epoll, EPOLL_CTL_ADD, fd, &e) == 0 ? 0 : -errno;
}

int lobby_start(struct lobby *l, struct timeouts *timeouts, unsigned int idle, unsigned int active)
{
	int rc = 0;

	list_init(&l->guests);
	for (unsigned int i = 0; i < LOBBY_DOORS; i++)
		list_init(&l->doors[i].ready);
	for (unsigned int i = 0; i < LOBBY_SOURCES; i++)
		list_init(&l->sources[i]);
	l->timeouts = timeouts;
	l->most = most_guests(idle);
	l->active = active;
	l->seed = (uint64_t)random_u32() << 32 | random_u32();
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (l->epoll < 0 || l->wake < 0)
		return -errno;
	rc = watch(l, l->wake, &l->wake);
	for (unsigned int i = 0; rc == 0 && i < LOBBY_DOORS; i++)
		if (l->doors[i].fd >= 0)
			rc = watch(l, l->doors[i].fd, &l->doors[i]);
	if (rc == 0)
		rc = -pthread_create(&l->thread, NULL, lobby_thread, l);
	l->runs = rc == 0;
	return rc;
}

static void turn_all_away(struct lobby *l, struct list *list)
{
	list_for_each_safe (it, list)
		turn_away(l, list_entry(it, struct guest, all));
}

void lobby_stop(struct lobby *l)
{
	if (!l->runs)
		return;
	atomic_store(&l->stopping, true);
	(void)!write(l->wake, &(uint64_t){1}, sizeof(uint64_t));
	pthread_join(l->thread, NULL);
	for (unsigned int i = 0; i < LOBBY_DOORS; i++)
		turn_all_away(l, &l->doors[i].ready);
	turn_all_away(l, &l->guests);
	l->runs = false;
}

void lobby_close(struct lobby *l)
{
	assert(!l->runs);
	if (l->epoll > 0)
		close(l->epoll);
	if (l->wake > 0)
		close(l->wake);
	l->epoll = l->wake = -1;
}
