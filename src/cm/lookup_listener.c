// SPDX-License-Identifier: BSD-2-Clause
/*
 * lookup_listener.c - the listener of RDMA_PS_UDP: requests of strangers, and the answers of the program.
 *
 * A peer that asks must first prove that it receives at its address, by a cookie that takes no memory here. Requests are then
 * kept by their source (the address without its port): if too many wait for the program, the source with the most of them loses its
 * oldest; and they are presented by turns of the sources. An answer is kept as long as its peer may ask again, within the same
 * limits.
 *
 *   request:  WAITING --presented--> PRESENTED --accept, reject--> ANSWERED --> forgotten
 */
#include "cm/ud.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/siphash.h"
#include "base/source.h"

#define MESSAGES_AT_ONCE 64
#define MOST_PRESENTED	 64 /* requests that the program has not fetched; more wait for their turn */
#define BUCKETS		 256
#define ROOM		 (1 << 20) /* of the socket, as far as the system allows */

enum request_state { WAITING, PRESENTED, ANSWERED };

struct asker {			/* a source */
	struct list link;	/* in listener.askers */
	struct list turn;	/* in listener.turns, while any is waiting */
	struct list of[2];	/* requests WAITING and ANSWERED, oldest first */
	unsigned n[2], present; /* and those PRESENTED */
	size_t address_len;
	uint8_t address[16];
};

struct lookup_request {
	struct list bucket;
	struct list link; /* in a list of its asker; not while PRESENTED */
	struct lookup_listener *listener;
	struct asker *asker;
	enum request_state state;
	uint64_t since; /* when it got there, clock_ns() */
	struct sockaddr_storage peer, local;
	uint64_t id, cookie;
	union {
		struct {
			uint8_t len, data[LOOKUP_ASK_PRIVATE];
		} asked;
		uint8_t answer[LOOKUP_LEN]; /* ANSWERED */
	};
};

struct lookup_listener {
	struct cm_id *id; /* NULL: destroyed, while the program has requests */
	struct watch watch;
	struct timer sweep; /* drops answers that are old */
	uint64_t key[2];    /* of the cookies */
	struct list askers, turns;
	struct list buckets[BUCKETS];
	unsigned n[3]; /* requests in each state */
	unsigned undelivered;
};

/* ---- sources ------------------------------------------------------------- */

static struct asker *asker_of(struct lookup_listener *l, const struct sockaddr_storage *peer)
{
	const void *at;
	size_t len = source_of_address((const struct sockaddr *)peer, &at);
	struct asker *a;

	list_for_each (it, &l->askers) {
		a = list_entry(it, struct asker, link);
		if (a->address_len == len && !memcmp(a->address, at, len))
			return a;
	}
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	assert(len <= sizeof(a->address));
	a->address_len = len;
	memcpy(a->address, at, len);
	list_init(&a->link);
	list_init(&a->turn);
	list_init(&a->of[0]);
	list_init(&a->of[1]);
	list_add_tail(&l->askers, &a->link);
	return a;
}

static struct list *list_of(struct asker *a, enum request_state s)
{
	return &a->of[s == ANSWERED];
}

static void enter(struct lookup_request *r, enum request_state s)
{
	struct lookup_listener *l = r->listener;
	struct asker *a = r->asker;

	r->state = s;
	r->since = clock_ns();
	l->n[s]++;
	if (s == PRESENTED) {
		a->present++;
		return;
	}
	list_add_tail(list_of(a, s), &r->link);
	if (a->n[s == ANSWERED]++ == 0 && s == WAITING)
		list_add_tail(&l->turns, &a->turn);
}

static void leave(struct lookup_request *r)
{
	struct asker *a = r->asker;

	r->listener->n[r->state]--;
	if (r->state == PRESENTED) {
		a->present--;
		return;
	}
	list_del(&r->link);
	if (--a->n[r->state == ANSWERED] == 0 && r->state == WAITING)
		list_del(&a->turn);
}

/* Frees a request that has left its state, and its source if that was its last one. */
static void request_free(struct lookup_request *r)
{
	struct asker *a = r->asker;

	list_del(&r->bucket);
	free(r);
	if (a->n[0] || a->n[1] || a->present)
		return;
	list_del(&a->link);
	free(a);
}

static void drop(struct lookup_request *r)
{
	leave(r);
	request_free(r);
}

static struct lookup_request *oldest(struct asker *a, enum request_state s)
{
	return list_entry(list_of(a, s)->next, struct lookup_request, link);
}

/* Drops the oldest request in that state, of the source that has the most of them. */
static void make_room(struct lookup_listener *l, enum request_state s)
{
	struct asker *most = NULL;

	list_for_each (it, &l->askers) {
		struct asker *a = list_entry(it, struct asker, link);

		if (!most || a->n[s == ANSWERED] > most->n[s == ANSWERED])
			most = a;
	}
	drop(oldest(most, s));
}

/* ---- the socket ---------------------------------------------------------- */

/* Sends from the address that the peer asked. If the message is lost, also in this function, the peer asks again. */
static void send_from(struct lookup_listener *l, const struct sockaddr_storage *local,
		      const struct sockaddr_storage *peer, uint8_t buf[LOOKUP_LEN])
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(struct in6_pktinfo))] = {0};
	struct iovec iov = {buf, LOOKUP_LEN};
	struct msghdr m = {.msg_name = (void *)(uintptr_t)peer,
			   .msg_namelen = address_len((const struct sockaddr *)peer),
			   .msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	if (local->ss_family == AF_INET6) {
		const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)local;
		struct in6_pktinfo info = {six->sin6_addr, six->sin6_scope_id};

		*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(info)),
				      .cmsg_level = IPPROTO_IPV6,
				      .cmsg_type = IPV6_PKTINFO};
		memcpy(CMSG_DATA(c), &info, sizeof(info));
	} else {
		struct in_pktinfo info = {.ipi_spec_dst =
						  ((const struct sockaddr_in *)local)->sin_addr};

		*c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(info)),
				      .cmsg_level = IPPROTO_IP,
				      .cmsg_type = IP_PKTINFO};
		memcpy(CMSG_DATA(c), &info, sizeof(info));
		m.msg_controllen = CMSG_SPACE(sizeof(info));
	}
	if (sendmsg(l->watch.fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		log_debug("cm: a message of a lookup is lost: %s", strerror(errno));
}

static bool find_local(struct msghdr *m, struct sockaddr_storage *local)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
		struct in6_pktinfo six;
		struct in_pktinfo four;

		if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
			struct sockaddr_in6 *a = (struct sockaddr_in6 *)local;

			memcpy(&six, CMSG_DATA(c), sizeof(six));
			a->sin6_addr = six.ipi6_addr;
			if (IN6_IS_ADDR_LINKLOCAL(&six.ipi6_addr))
				a->sin6_scope_id = six.ipi6_ifindex;
			return true;
		}
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
			memcpy(&four, CMSG_DATA(c), sizeof(four));
			((struct sockaddr_in *)local)->sin_addr = four.ipi_spec_dst;
			return true;
		}
	}
	return false;
}

/* Returns false if there is none. */
static bool receive(struct lookup_listener *l)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(sizeof(struct in6_pktinfo))];
	struct sockaddr_storage peer = {0}, local = {0};
	uint8_t buf[LOOKUP_LEN + 1];
	struct iovec iov = {buf, sizeof(buf)};
	struct msghdr m = {.msg_name = &peer,
			   .msg_namelen = sizeof(peer),
			   .msg_iov = &iov,
			   .msg_iovlen = 1,
			   .msg_control = control,
			   .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(l->watch.fd, &m, MSG_DONTWAIT);
	socklen_t len = sizeof(local);

	if (n < 0)
		return false;
	getsockname(l->watch.fd, (struct sockaddr *)&local, &len);
	if (find_local(&m, &local))
		lookup_listener_take(l, buf, (size_t)n, &peer, &local);
	return true;
}

static void on_messages(struct watch *w, uint32_t revents)
{
	struct lookup_listener *l = container_of(w, struct lookup_listener, watch);

	for (int i = 0; i < MESSAGES_AT_ONCE && receive(l); i++)
		;
}

/* ---- requests ------------------------------------------------------------ */

static uint64_t cookie_of(const struct lookup_listener *l, const struct sockaddr_storage *peer,
			  uint64_t id)
{
	struct {
		uint64_t id;
		uint32_t scope;
		uint16_t family, port;
		uint8_t address[16];
	} of = {.id = id,
		.family = peer->ss_family,
		.port = address_port((const struct sockaddr *)peer)};
	uint64_t cookie;

	if (peer->ss_family == AF_INET6) {
		const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)peer;

		memcpy(of.address, &six->sin6_addr, sizeof(of.address));
		of.scope = six->sin6_scope_id;
	} else {
		memcpy(of.address, &((const struct sockaddr_in *)peer)->sin_addr, 4);
	}
	cookie = siphash(l->key, &of, sizeof(of));
	return cookie ? cookie : 1;
}

static struct list *bucket_of(struct lookup_listener *l, uint64_t cookie)
{
	return &l->buckets[cookie % BUCKETS];
}

static struct lookup_request *find(struct lookup_listener *l, uint64_t cookie, uint64_t id,
				   const struct sockaddr_storage *peer)
{
	list_for_each (it, bucket_of(l, cookie)) {
		struct lookup_request *r = list_entry(it, struct lookup_request, bucket);

		if (r->cookie == cookie && r->id == id &&
		    address_same((struct sockaddr *)&r->peer, (const struct sockaddr *)peer))
			return r;
	}
	return NULL;
}

static uint64_t lifetime(void)
{
	return config()->connect_timeout_ms * NS_PER_MS;
}

static void present(struct lookup_listener *l, struct lookup_request *r)
{
	struct rdma_ud_param told = {.private_data_len = LOOKUP_ASK_PRIVATE};
	uint8_t data[LOOKUP_ASK_PRIVATE] = {0};
	struct cm_id *child;

	leave(r);
	if (clock_ns() - r->since > lifetime() || /* the peer has given up */
	    id_create_child(l->id, FACE_ROCE, &r->local, &r->peer, &child)) {
		request_free(r);
		return;
	}
	enter(r, PRESENTED);
	child->request = r;
	memcpy(data, r->asked.data, r->asked.len);
	told.private_data = data;
	if (event_post_ud_request(l->id, child, &told))
		id_drop_request(child);
	else
		l->undelivered++;
}

static void present_all(struct lookup_listener *l)
{
	while (!list_empty(&l->turns) && l->undelivered < MOST_PRESENTED) {
		struct asker *a = list_entry(l->turns.next, struct asker, turn);

		list_del(&a->turn);
		list_add_tail(&l->turns, &a->turn);
		present(l, oldest(a, WAITING));
	}
}

/* Returns NULL if memory runs out: the peer asks again. */
static struct lookup_request *request_new(struct lookup_listener *l, const struct lookup_msg *m,
					  const struct sockaddr_storage *peer,
					  const struct sockaddr_storage *local)
{
	struct lookup_request *r = calloc(1, sizeof(*r));
	struct asker *a = r ? asker_of(l, peer) : NULL;

	if (!a) {
		free(r);
		return NULL;
	}
	r->listener = l;
	r->asker = a;
	r->peer = *peer;
	r->local = *local;
	r->id = m->id;
	r->cookie = m->cookie;
	r->asked.len = m->private_len;
	memcpy(r->asked.data, m->private_data, m->private_len);
	list_init(&r->link);
	list_init(&r->bucket);
	list_add_tail(bucket_of(l, m->cookie), &r->bucket);
	return r;
}

static void demand_proof(struct lookup_listener *l, uint64_t id, uint64_t cookie,
			 const struct sockaddr_storage *peer, const struct sockaddr_storage *local)
{
	struct lookup_msg m = {.kind = LOOKUP_PROVE, .id = id, .cookie = cookie};
	uint8_t buf[LOOKUP_LEN];

	lookup_encode(&m, buf);
	send_from(l, local, peer, buf);
}

void lookup_listener_take(struct lookup_listener *l, const uint8_t *buf, size_t len,
			  const struct sockaddr_storage *peer, const struct sockaddr_storage *local)
{
	struct lookup_request *r;
	struct lookup_msg m;
	uint64_t cookie;

	assert(engine_locked());
	if (lookup_decode(buf, len, &m) || m.kind != LOOKUP_ASK)
		return;
	cookie = cookie_of(l, peer, m.id);
	if (m.cookie != cookie) {
		demand_proof(l, m.id, cookie, peer, local);
		return;
	}
	r = find(l, cookie, m.id, peer);
	if (r && r->state == ANSWERED)
		send_from(l, &r->local, peer, r->answer);
	if (r || !l->id)
		return;
	r = request_new(l, &m, peer, local);
	if (!r)
		return;
	enter(r, WAITING);
	present_all(l);
	if (l->n[WAITING] > LOOKUP_MAX_WAITING)
		make_room(l, WAITING);
}

void lookup_delivered(struct lookup_listener *l)
{
	assert(engine_locked());
	l->undelivered--;
	present_all(l);
}

/* ---- answers ------------------------------------------------------------- */

static void on_sweep(struct timer *t)
{
	struct lookup_listener *l = container_of(t, struct lookup_listener, sweep);
	uint64_t now = clock_ns();

	list_for_each_safe (it, &l->askers) {
		struct asker *a = list_entry(it, struct asker, link);

		/* the last one frees the source */
		for (unsigned left = a->n[1]; left; left--) {
			if (now - oldest(a, ANSWERED)->since < lifetime())
				break;
			drop(oldest(a, ANSWERED));
		}
	}
	if (l->n[ANSWERED])
		timer_set(t, now + lifetime(), on_sweep);
}

static void listener_free(struct lookup_listener *l)
{
	int fd = l->watch.fd;

	watch_del(&l->watch);
	timer_cancel(&l->sweep);
	list_for_each_safe (it, &l->askers) {
		struct asker *a = list_entry(it, struct asker, link);

		for (unsigned left = a->n[0] + a->n[1]; left; left--)
			drop(oldest(a, a->n[0] ? WAITING : ANSWERED));
	}
	close(fd);
	free(l);
}

/* The listener is gone, and so is the last request that the program had. */
static void free_if_done(struct lookup_listener *l)
{
	if (!l->id && !l->n[PRESENTED])
		listener_free(l);
}

void lookup_answer(struct cm_id *child, struct lookup_msg *answer)
{
	struct lookup_request *r = child->request;
	struct lookup_listener *l = r->listener;

	assert(engine_locked() && r->state == PRESENTED);
	child->request = NULL;
	answer->kind = LOOKUP_ANSWER;
	answer->id = r->id;
	answer->cookie = r->cookie;
	lookup_encode(answer, r->answer);
	send_from(l, &r->local, &r->peer, r->answer);
	leave(r);
	if (!l->n[ANSWERED])
		timer_set(&l->sweep, clock_ns() + lifetime(), on_sweep);
	enter(r, ANSWERED);
	if (l->n[ANSWERED] > LOOKUP_MAX_ANSWERED)
		make_room(l, ANSWERED);
	free_if_done(l);
}

void lookup_forget(struct cm_id *child)
{
	struct lookup_request *r = child->request;
	struct lookup_listener *l = r->listener;

	assert(engine_locked());
	child->request = NULL;
	drop(r);
	free_if_done(l);
}

/* ---- life ---------------------------------------------------------------- */

/* Asks the kernel to say to which address a message came. */
static int want_local_address(int fd, int family)
{
	int one = 1, room = ROOM;

	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
	if (family == AF_INET6)
		return setsockopt(fd, IPPROTO_IPV6, IPV6_RECVPKTINFO, &one, sizeof(one)) ? -errno
											 : 0;
	return setsockopt(fd, IPPROTO_IP, IP_PKTINFO, &one, sizeof(one)) ? -errno : 0;
}

int lookup_listen(struct cm_id *id, int fd, struct lookup_listener **out)
{
	struct lookup_listener *l = calloc(1, sizeof(*l));
	int err;

	assert(engine_locked());
	if (!l)
		return -ENOMEM;
	l->id = id;
	list_init(&l->askers);
	list_init(&l->turns);
	for (unsigned i = 0; i < BUCKETS; i++)
		list_init(&l->buckets[i]);
	for (unsigned i = 0; i < 2; i++)
		l->key[i] = (uint64_t)random_u32() << 32 | random_u32();
	err = want_local_address(fd, id->cm.route.addr.src_addr.sa_family);
	if (!err)
		err = watch_add(&l->watch, fd, EPOLLIN, on_messages);
	if (err) {
		free(l);
		return err;
	}
	*out = l;
	return 0;
}

void lookup_listener_destroy(struct lookup_listener *l)
{
	if (!l)
		return;
	assert(engine_locked());
	l->id = NULL;
	free_if_done(l);
}
