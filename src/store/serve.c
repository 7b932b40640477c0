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
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/audit.h"
#include "base/clock.h"
#include "base/export.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/nonblock.h"
#include "base/rate.h"

#define MAX_CONNECTIONS 1024
#define CLIENT_TIMEOUT	30000 /* ms */
#define EVENTS_AT_ONCE	64    /* requests and ends that are handled before other work */
#define MEMORY		(64ull << 20)
#define BACKLOG		128
#define MAX_DEVICES	8
#define PEER_WORD	80
#define SERVER_MASK	(STAG_STORE_SERVER_CLIENT_TIMEOUT | STAG_STORE_SERVER_TLS)

/* Refusals that are logged; the next line says how many were not. */
static const struct rate_limit log_limit = RATE_LIMIT(4, 32);

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
	struct list connections; /* oldest first */
	_Atomic uint32_t num_connections;
	uint32_t max_connections;
	uint8_t ack_timeout; /* RDMA_OPTION_ID_ACK_TIMEOUT */
	bool has_tls;
	enum stagdv_tls_mode tls_mode; /* if has_tls */
	struct stagdv_tls *tls;
	struct secure_keys keys;
	struct rate log_rate;
	_Atomic uint64_t refused, evicted;
};

struct connection {
	struct list link;
	struct stag_store_server *server;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct region region;
	struct stag_store_hello hello;
	const uint8_t *shown;		     /* token in hello; NULL: none */
	char partition[STAG_STORE_NAME_MAX]; /* '#' and the mark, if there is none */
	bool established;		     /* the client has sent its first message */
	char peer[PEER_WORD];		     /* address and port */
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
	bool six = a->sa_family == AF_INET6;
	char host[INET6_ADDRSTRLEN + IF_NAMESIZE], port[8]; /* a link-local one has a scope */

	if (getnameinfo(a, six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in), host,
			sizeof(host), port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		snprintf(c->peer, sizeof(c->peer), "?");
	else
		snprintf(c->peer, sizeof(c->peer), six ? "[%s]:%s" : "%s:%s", host, port);
}

/* Returns the label of the store, else the name of its file. */
static const char *name_of(const struct stag_store *store)
{
	const char *label = store->now.table.label, *slash = strrchr(store->backing.name, '/');

	return *label ? label : slash ? slash + 1 : store->backing.name;
}

static void report(const struct connection *c, const char *action, enum stag_audit_outcome outcome,
		   const char *reason)
{
	char object[2 * STAG_STORE_NAME_MAX + 32];

	if (!audit_is_on())
		return;
	snprintf(object, sizeof(object), "store %.63s, partition %s", name_of(c->server->store),
		 c->partition);
	audit_report(&(struct stag_audit_record){.room = "store",
						 .object = object,
						 .from = c->peer,
						 .action = action,
						 .outcome = outcome,
						 .reason = reason});
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
	rdma_set_option(c->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &c->server->ack_timeout,
			sizeof(c->server->ack_timeout));
	if (rdma_accept(c->id, &param) != 0)
		return store_fail(errno, "cannot accept the connection: %s", strerror(errno));
	return 0;
}

/* Makes room for a connection, if need be in place of the oldest client that has not said a word. */
static int make_room(struct stag_store_server *s)
{
	if (s->num_connections <= s->max_connections)
		return 0;
	list_for_each_safe (it, &s->connections) {
		struct connection *c = list_entry(it, struct connection, link);

		if (c->established || !c->id->qp)
			continue;
		s->evicted++;
		report(c, "connect", STAG_AUDIT_FAILED, "silent, and another client needed room");
		end_connection(c);
		return 0;
	}
	return store_fail(EUSERS, "too many connections (%u): raise max_connections",
			  s->max_connections);
}

/* Names the partition of the hello. A name has no '#'. */
static int name_partition(struct connection *c)
{
	struct stag_store *store = c->server->store;
	const struct stag_store_partition *p;
	int rc = store_refresh(store), at = 1;

	if (rc != 0)
		return rc;
	strcpy(c->partition, "#");
	for (unsigned int i = 0; i < STAG_STORE_MARK; i++)
		at += sprintf(c->partition + at, "%02x", c->hello.partition[i]);
	p = table_find_mark(&store->now.table, c->hello.partition);
	if (p)
		memcpy(c->partition, p->name, sizeof(c->partition));
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
	rc = dv_check_device(s->dv, c->id->verbs);
	if (rc != 0)
		return rc;
	rc = name_partition(c);
	if (rc != 0)
		return rc;
	rc = region_open(&c->region, s->dv, s->store, c->partition, rights_of_peer, c);
	if (rc == 0)
		rc = make_room(s); /* for a client that has the right to it */
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

	refusal_make(&r, error == -EACCES || error == -ENOENT ? REFUSED_RIGHT
			 : error == -EPROTO		      ? REFUSED_PROTOCOL
			 : error == -EUSERS		      ? REFUSED_FULL
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
	id->context = c;
	list_add_tail(&s->connections, &c->link);
	s->num_connections++;
	name_peer(c);
	return c;
}

/* Counts a refusal, and logs it unless there are too many, or it is in the program's audit log. */
static void note_refused(struct connection *c, int rc)
{
	struct stag_store_server *s = c->server;
	uint32_t more = 0;

	s->refused++;
	report(c, "connect", rc == -EUSERS ? STAG_AUDIT_FAILED : STAG_AUDIT_REFUSED,
	       stag_store_error());
	if (audit_is_on() && rc != -EUSERS)
		return;
	if (!rate_allows(&s->log_rate, &log_limit, clock_ns(), &more))
		return;
	log_warn("refused: %s at store %s: %s", c->peer, s->store->backing.name,
		 stag_store_error());
	if (more)
		log_warn("refused: %u more at store %s, which were not logged", more,
			 s->store->backing.name);
}

static void on_request(struct stag_store_server *s, struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	struct connection *c = new_connection(s, id);
	int rc = c ? admit(c, &event->param.conn) : -ENOMEM;

	rdma_ack_cm_event(event);
	if (rc == 0) {
		log_info("store: %s uses partition %s", c->peer, c->partition);
		report(c, "connect", STAG_AUDIT_ALLOWED,
		       c->region.access == STAG_STORE_WRITE ? "to write" : "to read");
		return;
	}
	reject(id, rc);
	if (!c) {
		rdma_destroy_id(id);
		return;
	}
	note_refused(c, rc);
	end_connection(c);
}

/* ---- the server's thread --------------------------------------------------------------- */

static void note_left(struct connection *c, int status)
{
	if (status != -ETIMEDOUT) {
		log_info("store: %s has left partition %s", c->peer, c->partition);
		return;
	}
	c->server->evicted++;
	log_warn("store: %s of partition %s took no answers for too long, and was disconnected",
		 c->peer, c->partition);
	report(c, "evict", STAG_AUDIT_FAILED, "took no answers");
}

static void on_event(struct stag_store_server *s, struct rdma_cm_event *event)
{
	struct connection *c = event->id->context;
	bool ended = event->event != RDMA_CM_EVENT_ESTABLISHED && event->id != s->listener;
	int status = event->status;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		on_request(s, event);
		return;
	}
	rdma_ack_cm_event(event);
	if (!ended && c)
		c->established = true;
	if (ended && c) {
		note_left(c, status);
		end_connection(c);
	}
}

static void check_rights(struct stag_store_server *s)
{
	int rc = store_look(s->store);

	if (rc != -ESTALE && (rc != 0 || s->store->now.table.generation == s->generation))
		return;
	s->generation = s->store->now.table.generation;
	if (rc == 0 && s->tls && secure_keys_read(&s->keys, s->store) != 0)
		log_warn("store: %s", stag_store_error());
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
		for (int i = 0; i < EVENTS_AT_ONCE && (fds[0].revents & POLLIN) &&
				rdma_get_cm_event(s->channel, &event) == 0;
		     i++)
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

static int set_tls(struct stag_store_server *s)
{
	int rc = s->has_tls ? s->dv->set_tls(s->listener, s->tls, s->tls_mode) : 0;

	errno = rc;
	return rc;
}

static int listen_at(struct stag_store_server *s, struct sockaddr *address)
{
	if (rdma_create_id(s->channel, &s->listener, NULL, RDMA_PS_TCP) == 0 && set_tls(s) == 0 &&
	    rdma_bind_addr(s->listener, address) == 0 && rdma_listen(s->listener, BACKLOG) == 0)
		return 0;
	/* the port is in the same place of both kinds of address */
	return store_fail(errno, "cannot listen on port %u: %s",
			  ntohs(((const struct sockaddr_in *)address)->sin_port), strerror(errno));
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
	if (s->tls)
		s->dv->destroy_tls(s->tls);
	secure_keys_end(&s->keys);
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

/* Returns the exponent of the first power of two, in units of 4.096 us, that is not shorter. */
static uint8_t ack_timeout_for(const struct stag_store_server_attr *attr)
{
	bool set = attr->comp_mask & STAG_STORE_SERVER_CLIENT_TIMEOUT && attr->client_timeout_ms;
	uint64_t ns = (set ? attr->client_timeout_ms : CLIENT_TIMEOUT) * NS_PER_MS;
	uint8_t v = 1;

	while (v < 31 && 4096ull << v < ns)
		v++;
	return v;
}

static int prepare_tls(struct stag_store_server *s, const struct stag_store_server_attr *attr)
{
	struct stagdv_tls_attr tls = {.find_psk = secure_find, .arg = &s->keys};
	int rc;

	if (!(attr->comp_mask & STAG_STORE_SERVER_TLS))
		return 0;
	if (attr->tls > STAGDV_TLS_REQUIRED)
		return store_fail(EINVAL, "serve: invalid attributes");
	s->has_tls = true;
	s->tls_mode = (enum stagdv_tls_mode)attr->tls;
	if (s->tls_mode == STAGDV_TLS_OFF)
		return 0;
	rc = secure_keys_read(&s->keys, s->store);
	return rc == 0 ? secure_context(s->dv, &tls, &s->tls) : rc;
}

static int start(struct stag_store_server *s, struct stag_store *store,
		 const struct stag_store_server_attr *attr)
{
	int rc;

	if ((attr->comp_mask & ~(uint64_t)SERVER_MASK) ||
	    (attr->flags & ~(uint32_t)STAG_STORE_ANY_PORT))
		return store_fail(EINVAL, "serve: invalid attributes");
	s->dv = dv_get();
	if (!s->dv)
		return -EOPNOTSUPP;
	s->max_connections = attr->max_connections ? attr->max_connections : MAX_CONNECTIONS;
	s->ack_timeout = ack_timeout_for(attr);
	s->staging_bytes = attr->staging_bytes ? attr->staging_bytes : MEMORY;
	s->cache_bytes = attr->cache_bytes ? attr->cache_bytes : MEMORY;
	rc = reopen_store(s, store);
	if (rc == 0)
		rc = prepare_tls(s, attr);
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
	lock_init(&s->keys.lock);
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
	all.connections = server->num_connections;
	all.refused = server->refused;
	all.evicted = server->evicted;
	if (rc == 0)
		memcpy(counters, &all, size < sizeof(all) ? size : sizeof(all));
	return -rc;
}
