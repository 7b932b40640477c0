// SPDX-License-Identifier: BSD-2-Clause
/*
 * serve.c - a server: admission of peers, and their rights.
 *
 * One thread handles the connection manager's events and watches the table; the adapter transfers
 * the data. Each connection has a protection domain of its own, so that a key works only for the
 * peer that was given it.
 */
#include "store/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/export.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/nonblock.h"

#define MAX_CONNECTIONS 1024
#define MEMORY		(64ull << 20)
#define BACKLOG		128
#define MAX_DEVICES	8
#define PEER_WORD	64

struct stag_store_server {
	struct stag_store *store; /* a private one: the caller's belongs to the caller's thread */
	const struct dv *dv;
	int lock_fd; /* while it is open no other process can serve */
	int stop_fd;
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener;
	pthread_t thread;
	uint64_t generation; /* of the table that the connections reflect */
	uint64_t staging_bytes, cache_bytes;
	struct {
		struct ibv_context *context;
		struct stagdv_medium *medium;
	} media[MAX_DEVICES]; /* one for each device that peers connect through */
	/* the server's thread opens media, any thread may read their counters */
	struct lock media_lock;
	struct list connections;
	uint32_t num_connections, max_connections;
};

struct connection {
	struct list link;
	struct stag_store_server *server;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct region region;
	struct stag_store_hello hello;
	const uint8_t *shown; /* token in hello; NULL: none */
	char peer[PEER_WORD];
};

/* ---- connections -------------------------------------------------------------------- */

static enum stag_store_access rights_of_peer(void *arg, const struct stag_store *store,
					     const struct stag_store_partition *p)
{
	const struct connection *c = arg;
	const struct visitor v = {.peer = rdma_get_peer_addr(c->id), .shown = c->shown};

	return rights_of(p, store->now.table.owner, &v);
}

static void name_peer(struct connection *c)
{
	const struct sockaddr *a = rdma_get_peer_addr(c->id);
	socklen_t len =
		a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

	if (getnameinfo(a, len, c->peer, sizeof(c->peer), NULL, 0, NI_NUMERICHOST) != 0)
		snprintf(c->peer, sizeof(c->peer), "?");
}

static struct stagdv_medium *medium_for(struct stag_store_server *s, struct ibv_context *context)
{
	unsigned int i = 0;

	while (i < MAX_DEVICES && s->media[i].medium && s->media[i].context != context)
		i++;
	if (i == MAX_DEVICES) {
		errno = -store_fail(EMFILE, "peers connect through more than %d devices",
				    MAX_DEVICES);
		return NULL;
	}
	if (!s->media[i].medium) {
		struct stagdv_medium *m =
			dv_open_medium(s->dv, context, s->store, s->staging_bytes, s->cache_bytes);

		HOLD_FOR_SCOPE(&s->media_lock);
		s->media[i].context = context;
		s->media[i].medium = m;
	}
	return s->media[i].medium;
}

/* Creates minimal queues: the server posts no work requests on them. */
static int make_queue_pair(struct connection *c)
{
	struct ibv_qp_init_attr qp = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};

	c->cq = ibv_create_cq(c->id->verbs, 4, NULL, NULL, 0);
	if (!c->cq)
		return store_fail(errno, "cannot create a completion queue: %s", strerror(errno));
	qp.send_cq = qp.recv_cq = c->cq;
	if (rdma_create_qp(c->id, c->pd, &qp) != 0)
		return store_fail(errno, "cannot create a queue pair: %s", strerror(errno));
	return 0;
}

static void end_connection(struct connection *c)
{
	if (c->id->qp) {
		rdma_disconnect(c->id);
		rdma_destroy_qp(c->id);
	}
	region_close(&c->region);
	if (c->cq)
		ibv_destroy_cq(c->cq);
	if (c->pd)
		ibv_dealloc_pd(c->pd);
	rdma_destroy_id(c->id);
	list_del(&c->link);
	c->server->num_connections--;
	free(c);
}

static uint8_t reads_of(struct ibv_context *context)
{
	struct ibv_device_attr attr;

	if (ibv_query_device(context, &attr) != 0)
		return 1;
	return (uint8_t)(attr.max_qp_rd_atom < UINT8_MAX ? attr.max_qp_rd_atom : UINT8_MAX);
}

static int welcome(struct connection *c, uint8_t peer_reads)
{
	const struct stag_store_endpoint e = {
		.rkey = c->region.mr->rkey,
		.size = c->region.now.size,
		.relax = c->region.now.relax,
		.level = c->region.now.level,
		.access = c->region.access,
		.block = c->server->store->now.table.block,
	};
	uint8_t reads = reads_of(c->id->verbs);
	struct stag_store_welcome w;
	struct rdma_conn_param param = {
		.private_data = &w,
		.private_data_len = sizeof(w),
		.responder_resources = peer_reads < reads ? peer_reads : reads,
		.rnr_retry_count = 7};

	welcome_make(&w, &e);
	if (rdma_accept(c->id, &param) != 0)
		return store_fail(errno, "cannot accept the connection: %s", strerror(errno));
	return 0;
}

/* Checks a connection request and prepares its region. Returns 0, or -errno with an error text. */
static int admit(struct connection *c, const struct rdma_conn_param *asked)
{
	struct stag_store_server *s = c->server;
	struct stagdv_medium *medium;
	int rc = hello_read(asked->private_data, asked->private_data_len, &c->hello, &c->shown);

	if (rc != 0)
		return rc;
	if (s->num_connections > s->max_connections)
		return store_fail(EUSERS, "too many connections (%u): raise max_connections",
				  s->max_connections);
	rc = dv_check_device(s->dv, c->id->verbs);
	if (rc != 0)
		return rc;
	rc = region_open(&c->region, s->dv, s->store, c->hello.partition, rights_of_peer, c);
	if (rc != 0)
		return rc;
	medium = medium_for(s, c->id->verbs);
	if (!medium)
		return -errno;
	c->pd = ibv_alloc_pd(c->id->verbs);
	if (!c->pd)
		return store_fail(errno, "cannot create a protection domain: %s", strerror(errno));
	rc = region_register(&c->region, s->store, c->pd, medium);
	if (rc == 0)
		rc = make_queue_pair(c);
	return rc == 0 ? welcome(c, asked->responder_resources) : rc;
}

static void reject(struct rdma_cm_id *id, int error)
{
	struct stag_store_refusal r;

	refusal_make(&r, error == -EACCES   ? REFUSED_RIGHT
			 : error == -ENOENT ? REFUSED_NAME
			 : error == -EPROTO ? REFUSED_PROTOCOL
			 : error == -EUSERS ? REFUSED_FULL
					    : REFUSED_FAULT);
	rdma_reject(id, &r, sizeof(r));
}

static struct connection *new_connection(struct stag_store_server *s, struct rdma_cm_id *id)
{
	struct connection *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->server = s;
	c->id = id;
	c->region.fd = -1;
	id->context = c;
	list_add_tail(&s->connections, &c->link);
	s->num_connections++;
	name_peer(c);
	return c;
}

static void on_request(struct stag_store_server *s, struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	struct connection *c = new_connection(s, id);
	int rc = c ? admit(c, &event->param.conn) : -ENOMEM;

	rdma_ack_cm_event(event);
	if (rc == 0) {
		log_info("store: %s uses partition %s", c->peer, c->hello.partition);
		return;
	}
	reject(id, rc);
	if (!c) {
		rdma_destroy_id(id);
		return;
	}
	log_warn("store: %s is refused: %s", c->peer, stag_store_error());
	end_connection(c);
}

/* ---- the server's thread --------------------------------------------------------------- */

static void on_event(struct stag_store_server *s, struct rdma_cm_event *event)
{
	struct connection *c = event->id->context;
	bool ended = event->event != RDMA_CM_EVENT_ESTABLISHED && event->id != s->listener;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		on_request(s, event);
		return;
	}
	rdma_ack_cm_event(event);
	if (ended && c) {
		log_info("store: %s has left partition %s", c->peer, c->hello.partition);
		end_connection(c);
	}
}

static void check_rights(struct stag_store_server *s)
{
	int rc = store_look(s->store);

	if (rc != -ESTALE && (rc != 0 || s->store->now.table.generation == s->generation))
		return;
	s->generation = s->store->now.table.generation;
	list_for_each_safe (it, &s->connections) {
		struct connection *c = list_entry(it, struct connection, link);

		region_update(&c->region, rc == 0 ? s->store : NULL, rights_of_peer, c);
		if (c->region.gone)
			end_connection(c);
	}
}

static void *serve_loop(void *arg)
{
	struct stag_store_server *s = arg;
	struct pollfd fds[] = {{.fd = s->channel->fd, .events = POLLIN},
			       {.fd = s->stop_fd, .events = POLLIN}};
	uint64_t next = 0;

	while (!(fds[1].revents & POLLIN)) {
		struct rdma_cm_event *event;

		poll(fds, 2, WATCH_MS);
		if ((fds[0].revents & POLLIN) && rdma_get_cm_event(s->channel, &event) == 0)
			on_event(s, event);
		if (clock_ns() >= next) {
			check_rights(s);
			next = clock_ns() + WATCH_MS * NS_PER_MS;
		}
	}
	return NULL;
}

static int start_thread(struct stag_store_server *s)
{
	sigset_t all, before;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&s->thread, NULL, serve_loop, s);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc == 0 ? 0 : store_fail(rc, "cannot start the server thread: %s", strerror(rc));
}

/* ---- listening --------------------------------------------------------------------------- */

static int make_channel(struct stag_store_server *s)
{
	s->channel = rdma_create_event_channel();
	if (!s->channel)
		return store_fail(errno, "no RDMA connection manager: %s", strerror(errno));
	s->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (set_nonblocking(s->channel->fd) != 0 || s->stop_fd < 0)
		return store_fail(errno, "cannot listen: %s", strerror(errno));
	return 0;
}

static int listen_at(struct stag_store_server *s, struct sockaddr *address)
{
	if (rdma_create_id(s->channel, &s->listener, NULL, RDMA_PS_TCP) == 0 &&
	    rdma_bind_addr(s->listener, address) == 0 && rdma_listen(s->listener, BACKLOG) == 0)
		return 0;
	return store_fail(errno, "cannot listen: %s", strerror(errno));
}

static void stop_listening(struct stag_store_server *s)
{
	if (s->listener)
		rdma_destroy_id(s->listener);
	s->listener = NULL;
}

/* Listens on IPv4 and IPv6 if both exist. */
static int listen_at_all(struct stag_store_server *s, uint16_t port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
	int rc = listen_at(s, (struct sockaddr *)&six);

	if (rc == 0 || rc == -EADDRINUSE)
		return rc;
	stop_listening(s);
	return listen_at(s, (struct sockaddr *)&four);
}

static int start_listening(struct stag_store_server *s, const struct stag_store_server_attr *attr)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICSERV | AI_PASSIVE},
			*list;
	uint16_t port = attr->flags & STAG_STORE_ANY_PORT ? 0
			: attr->port			  ? attr->port
							  : STAG_STORE_PORT;
	char word[8];
	int rc;

	if (!attr->address)
		return listen_at_all(s, port);
	snprintf(word, sizeof(word), "%u", port);
	rc = getaddrinfo(attr->address, word, &hints, &list);
	if (rc != 0)
		return store_fail(EADDRNOTAVAIL, "%s: %s", attr->address, gai_strerror(rc));
	rc = listen_at(s, list->ai_addr);
	freeaddrinfo(list);
	return rc;
}

/* ---- public calls ---------------------------------------------------------------------------- */

static void free_server(struct stag_store_server *s)
{
	list_for_each_safe (it, &s->connections)
		end_connection(list_entry(it, struct connection, link));
	stop_listening(s);
	for (unsigned int i = 0; i < MAX_DEVICES && s->media[i].medium; i++)
		s->dv->close_medium(s->media[i].medium);
	if (s->channel)
		rdma_destroy_event_channel(s->channel);
	if (s->stop_fd >= 0)
		close(s->stop_fd);
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	stag_store_close(s->store);
	lock_destroy(&s->media_lock);
	free(s);
}

/* Opens the store again for the server, and fails if the path leads to another store by now. */
static int reopen_store(struct stag_store_server *s, struct stag_store *store)
{
	int rc = store_refresh(store);

	if (rc != 0)
		return rc;
	s->store = stag_store_open(store->backing.path, 0);
	if (!s->store)
		return -errno;
	if (memcmp(s->store->uuid, store->uuid, sizeof(store->uuid)) != 0)
		return store_fail(ESTALE, "%s: is another store than the one that was opened",
				  store->backing.name);
	s->lock_fd = store_serve_lock(s->store);
	return s->lock_fd < 0 ? s->lock_fd : 0;
}

static int start(struct stag_store_server *s, struct stag_store *store,
		 const struct stag_store_server_attr *attr)
{
	int rc;

	if (attr->comp_mask || (attr->flags & ~(uint32_t)STAG_STORE_ANY_PORT))
		return store_fail(EINVAL, "serve: invalid attributes");
	s->dv = dv_get();
	if (!s->dv)
		return -EOPNOTSUPP;
	s->max_connections = attr->max_connections ? attr->max_connections : MAX_CONNECTIONS;
	s->staging_bytes = attr->staging_bytes ? attr->staging_bytes : MEMORY;
	s->cache_bytes = attr->cache_bytes ? attr->cache_bytes : MEMORY;
	rc = reopen_store(s, store);
	if (rc == 0)
		rc = make_channel(s);
	if (rc == 0)
		rc = start_listening(s, attr);
	s->generation = rc == 0 ? s->store->now.table.generation : 0;
	return rc == 0 ? start_thread(s) : rc;
}

STAG_EXPORT struct stag_store_server *stag_store_serve(struct stag_store *store,
						       const struct stag_store_server_attr *attr)
{
	static const struct stag_store_server_attr plain;
	struct stag_store_server *s = calloc(1, sizeof(*s));
	int rc;

	if (!s) {
		errno = -store_fail(ENOMEM, "no memory");
		return NULL;
	}
	s->lock_fd = s->stop_fd = -1;
	lock_init(&s->media_lock);
	list_init(&s->connections);
	rc = start(s, store, attr ? attr : &plain);
	if (rc == 0)
		return s;
	free_server(s);
	errno = -rc;
	return NULL;
}

STAG_EXPORT uint16_t stag_store_server_port(const struct stag_store_server *server)
{
	return ntohs(rdma_get_src_port(server->listener));
}

STAG_EXPORT void stag_store_server_stop(struct stag_store_server *server)
{
	const uint64_t one = 1;

	if (!server)
		return;
	if (write(server->stop_fd, &one, sizeof(one)) == sizeof(one))
		pthread_join(server->thread, NULL);
	free_server(server);
}

STAG_EXPORT int stag_store_query_server(struct stag_store_server *server,
					struct stag_store_counters *counters, size_t size)
{
	struct stag_store_counters all = {0};
	int rc = 0;

	HOLD_FOR_SCOPE(&server->media_lock);
	for (unsigned int i = 0; i < MAX_DEVICES && server->media[i].medium && rc == 0; i++)
		rc = dv_add_counters(server->dv, server->media[i].medium, &all);
	if (rc == 0)
		memcpy(counters, &all, size < sizeof(all) ? size : sizeof(all));
	return -rc;
}
