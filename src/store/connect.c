// SPDX-License-Identifier: BSD-2-Clause
/*
 * connect.c - endpoints: a queue pair to a partition, of this machine or of a server.
 *
 * A local region is registered in the program's own protection domain, and watched: changes of the
 * table are applied to it. For a remote one the server does so.
 */
#include "store/endpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/export.h"
#include "base/log.h"
#include "base/nonblock.h"

#define TIMEOUT_MS  2000
#define DEFAULT_WR  64
#define DEFAULT_SGE 4
#define MAX_READS   255 /* responder resources are a byte */

struct endpoint {
	struct stag_store_endpoint face;  /* the public part; must be first */
	struct ibv_cq *send_cq, *recv_cq; /* to be freed with the endpoint; NULL: the program's */

	/* local */
	struct stag_store *store;
	struct shared_medium *medium;
	struct region region;
	struct store_watch watch;
	uint64_t generation; /* of the table that the region reflects */
	uint32_t own_relax;  /* in addition to the partition's */
	uint32_t own_level;  /* instead of the partition's, if set */
	bool has_level;

	/* remote */
	struct rdma_event_channel *channel;
	struct stagdv_tls *tls;
	uint64_t deadline; /* for connecting */
	const char *where;
};

/* ---- queue pairs ------------------------------------------------------------------- */

struct ibv_cq *endpoint_make_cq(struct ibv_context *context, uint32_t depth)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = channel ? ibv_create_cq(context, (int)depth, NULL, channel, 0) : NULL;

	if (channel && !cq)
		ibv_destroy_comp_channel(channel);
	if (!cq)
		store_fail(errno, "cannot create a completion queue: %s", strerror(errno));
	return cq;
}

void endpoint_free_cq(struct ibv_cq *cq)
{
	struct ibv_comp_channel *channel = cq ? cq->channel : NULL;

	if (!cq)
		return;
	ibv_destroy_cq(cq);
	ibv_destroy_comp_channel(channel);
}

static void set_defaults(struct ibv_qp_init_attr *qp)
{
	if (qp->cap.max_send_wr == 0)
		qp->cap.max_send_wr = DEFAULT_WR;
	if (qp->cap.max_send_sge == 0)
		qp->cap.max_send_sge = DEFAULT_SGE;
	if (qp->cap.max_recv_wr == 0 && !qp->srq)
		qp->cap.max_recv_wr = 1;
	if (qp->cap.max_recv_sge == 0 && !qp->srq)
		qp->cap.max_recv_sge = 1;
	if (qp->qp_type == 0)
		qp->qp_type = IBV_QPT_RC;
}

static int make_cqs(struct endpoint *e, struct ibv_context *context, struct ibv_qp_init_attr *qp)
{
	if (!qp->send_cq)
		qp->send_cq = e->send_cq = endpoint_make_cq(context, qp->cap.max_send_wr + 1);
	if (qp->send_cq && !qp->recv_cq)
		qp->recv_cq = e->recv_cq =
			endpoint_make_cq(context, qp->cap.max_recv_wr + DEFAULT_WR);
	return qp->send_cq && qp->recv_cq ? 0 : -ENOMEM;
}

static void free_cqs(struct endpoint *e)
{
	endpoint_free_cq(e->send_cq);
	endpoint_free_cq(e->recv_cq);
}

/* ---- local ---------------------------------------------------------------------------- */

static enum stag_store_access own_rights(void *arg, const struct stag_store *store,
					 const struct stag_store_partition *p)
{
	(void)arg;
	return rights_of_self(p, store->now.table.owner);
}

static struct stagdv_store_qp_attr qp_settings(const struct endpoint *e)
{
	return (struct stagdv_store_qp_attr){
		.relax = e->region.now.relax | e->own_relax,
		.level = e->has_level ? e->own_level : e->region.now.level,
	};
}

/* Applies the partition's settings to the queue pair, the only user of the region. */
static void apply_settings(struct endpoint *e)
{
	struct stagdv_store_qp_attr qp = qp_settings(e);
	int rc = e->region.dv->modify_qp(e->face.qp, &qp, STAGDV_STORE_RELAX | STAGDV_STORE_LEVEL);

	if (rc != 0)
		log_warn("store: partition %s: cannot apply its new settings: %s",
			 e->region.now.name, strerror(rc));
}

static void check_endpoint(struct store_watch *w)
{
	struct endpoint *e = container_of(w, struct endpoint, watch);
	int rc = store_look(e->store);

	if (rc == -ESTALE) {
		region_update(&e->region, NULL, own_rights, NULL);
	} else if (rc == 0 && e->store->now.table.generation != e->generation) {
		e->generation = e->store->now.table.generation;
		region_update(&e->region, e->store, own_rights, NULL);
		apply_settings(e);
	}
}

static int make_qp(struct endpoint *e, struct ibv_pd *pd,
		   const struct stag_store_connect_attr *attr)
{
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	struct ibv_qp_init_attr qp = attr->qp;
	int rc;

	set_defaults(&qp);
	rc = make_cqs(e, pd->context, &qp);
	if (rc != 0)
		return rc;
	e->face.qp = ibv_create_qp(pd, &qp);
	if (!e->face.qp)
		return store_fail(errno, "cannot create a queue pair: %s", strerror(errno));
	rc = ibv_modify_qp(e->face.qp, &init,
			   IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	return rc == 0 ? 0 : store_fail(rc, "cannot prepare a queue pair: %s", strerror(rc));
}

static int join(struct endpoint *e, const struct dv *dv)
{
	struct stagdv_store_qp_attr qp = qp_settings(e);
	int rc = dv->connect(e->face.qp, &qp);

	if (rc != 0)
		return store_fail(rc, "cannot connect a queue pair to storage: %s", strerror(rc));
	e->face.rkey = e->region.mr->rkey;
	e->face.size = e->region.now.size;
	e->face.relax = qp.relax;
	e->face.level = qp.level;
	e->face.access = e->region.access;
	e->face.block = e->store->now.table.block;
	e->generation = e->store->now.table.generation;
	return watch_start(&e->watch, check_endpoint);
}

static void close_local(struct endpoint *e)
{
	if (e->watch.look)
		watch_stop(&e->watch);
	if (e->face.qp)
		ibv_destroy_qp(e->face.qp);
	free_cqs(e);
	region_close(&e->region);
	shared_medium_put(e->medium);
	stag_store_close(e->store);
}

/* Opens the partition, or refuses a user without rights. */
static int open_partition(struct endpoint *e, const struct dv *dv, const struct where *w)
{
	int rc;

	e->store = stag_store_open(w->path, 0);
	if (!e->store)
		return -errno;
	rc = region_open(&e->region, dv, e->store, w->partition, own_rights, NULL);
	if (rc == -EACCES)
		log_warn("store: user %u is refused: %s", geteuid(), stag_store_error());
	return rc;
}

static int open_region(struct endpoint *e, const struct dv *dv, struct ibv_pd *pd)
{
	int rc = dv_check_device(dv, pd->context);

	if (rc != 0)
		return rc;
	e->medium = shared_medium_get(dv, pd->context, e->store);
	if (!e->medium)
		return -errno;
	return region_register(&e->region, e->store, pd, shared_medium_of(e->medium));
}

static int open_local(struct endpoint *e, const struct where *w,
		      const struct stag_store_connect_attr *attr)
{
	const struct dv *dv = dv_get();
	struct ibv_pd *pd;
	int rc;

	if (!dv)
		return -EOPNOTSUPP;
	rc = open_partition(e, dv, w);
	if (rc != 0)
		return rc;
	pd = attr->pd ? attr->pd : dv_default_pd(dv);
	if (!pd)
		return -ENODEV;
	rc = open_region(e, dv, pd);
	if (rc == 0)
		rc = make_qp(e, pd, attr);
	e->own_relax = attr->relax;
	e->own_level = attr->level;
	e->has_level = attr->flags & STAG_STORE_HAS_LEVEL;
	return rc == 0 ? join(e, dv) : rc;
}

/* ---- remote ------------------------------------------------------------------------------ */

static int timed_out(const struct endpoint *e)
{
	return store_fail(ETIMEDOUT, "%s: timed out", e->where);
}

static int event_error(const struct endpoint *e, const struct rdma_cm_event *event)
{
	int status = abs(event->status);

	switch (event->event) {
	case RDMA_CM_EVENT_REJECTED:
		return refusal_read(event->param.conn.private_data,
				    event->param.conn.private_data_len, e->where);
	case RDMA_CM_EVENT_UNREACHABLE:
		if (status == ETIMEDOUT)
			return timed_out(e);
		break;
	default:
		break;
	}
	if (status == 0)
		status = ECONNREFUSED;
	return store_fail(status, "%s: cannot connect: %s", e->where, strerror(status));
}

/* Returns the next event if it is the expected one. The caller acknowledges it. */
static int wait_for_event(struct endpoint *e, enum rdma_cm_event_type type,
			  struct rdma_cm_event **out)
{
	struct pollfd pfd = {.fd = e->channel->fd, .events = POLLIN};
	int rc;

	for (;;) {
		uint64_t now = clock_ns();
		uint64_t left = now < e->deadline ? (e->deadline - now) / NS_PER_MS + 1 : 0;

		if (rdma_get_cm_event(e->channel, out) == 0)
			break;
		if (errno != EAGAIN && errno != EINTR)
			return store_fail(errno, "%s: %s", e->where, strerror(errno));
		if (left == 0)
			return timed_out(e);
		poll(&pfd, 1, (int)left);
	}
	if ((*out)->event == type)
		return 0;
	rc = event_error(e, *out);
	rdma_ack_cm_event(*out);
	return rc;
}

static int await_only(struct endpoint *e, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	int rc = wait_for_event(e, type, &event);

	if (rc == 0)
		rdma_ack_cm_event(event);
	return rc;
}

static int make_channel(struct endpoint *e)
{
	e->channel = rdma_create_event_channel();
	if (!e->channel)
		return store_fail(errno, "%s: no RDMA connection manager: %s", e->where,
				  strerror(errno));
	if (set_nonblocking(e->channel->fd) != 0 ||
	    rdma_create_id(e->channel, &e->face.id, NULL, RDMA_PS_TCP) != 0)
		return store_fail(errno, "%s: %s", e->where, strerror(errno));
	if (e->tls) {
		int rc = dv_find()->set_tls(e->face.id, e->tls, STAGDV_TLS_REQUIRED);

		if (rc != 0)
			return store_fail(rc, "%s: cannot use TLS: %s", e->where, strerror(rc));
	}
	return 0;
}

static int resolve(struct endpoint *e, struct sockaddr *address)
{
	uint64_t now = clock_ns();
	int ms = now < e->deadline ? (int)((e->deadline - now) / NS_PER_MS) + 1 : 1, rc;

	if (rdma_resolve_addr(e->face.id, NULL, address, ms) != 0)
		return store_fail(errno, "%s: %s", e->where, strerror(errno));
	rc = await_only(e, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rc != 0)
		return rc;
	if (rdma_resolve_route(e->face.id, ms) != 0)
		return store_fail(errno, "%s: %s", e->where, strerror(errno));
	return await_only(e, RDMA_CM_EVENT_ROUTE_RESOLVED);
}

static int make_remote_qp(struct endpoint *e, const struct stag_store_connect_attr *attr)
{
	struct ibv_qp_init_attr qp = attr->qp;
	int rc;

	set_defaults(&qp);
	rc = make_cqs(e, e->face.id->verbs, &qp);
	if (rc != 0)
		return rc;
	if (rdma_create_qp(e->face.id, attr->pd, &qp) != 0)
		return store_fail(errno, "%s: cannot create a queue pair: %s", e->where,
				  strerror(errno));
	e->face.qp = e->face.id->qp;
	return 0;
}

static uint8_t reads_of(struct ibv_context *context)
{
	struct ibv_device_attr attr;

	if (ibv_query_device(context, &attr) != 0)
		return 1;
	return (uint8_t)(attr.max_qp_init_rd_atom < MAX_READS ? attr.max_qp_init_rd_atom
							      : MAX_READS);
}

static int call(struct endpoint *e, const char *partition, const uint8_t *shown)
{
	struct stag_store_hello hello;
	struct rdma_conn_param param = {.private_data = &hello,
					.private_data_len = sizeof(hello),
					.initiator_depth = reads_of(e->face.id->verbs),
					.responder_resources = 1,
					.retry_count = 7,
					.rnr_retry_count = 7};
	struct rdma_cm_event *event;
	int rc = hello_make(&hello, partition, shown);

	if (rc != 0)
		return rc;
	if (rdma_connect(e->face.id, &param) != 0)
		return store_fail(errno, "%s: %s", e->where, strerror(errno));
	rc = wait_for_event(e, RDMA_CM_EVENT_ESTABLISHED, &event);
	if (rc != 0)
		return rc;
	rc = welcome_read(event->param.conn.private_data, event->param.conn.private_data_len,
			  &e->face);
	rdma_ack_cm_event(event);
	return rc;
}

static void close_remote(struct endpoint *e)
{
	if (e->face.qp) {
		rdma_disconnect(e->face.id);
		rdma_destroy_qp(e->face.id);
	}
	free_cqs(e);
	if (e->face.id)
		rdma_destroy_id(e->face.id);
	if (e->channel)
		rdma_destroy_event_channel(e->channel);
}

static int open_remote(struct endpoint *e, const struct where *w, struct sockaddr *address,
		       const struct stag_store_connect_attr *attr, const uint8_t *shown)
{
	int rc = make_channel(e);

	if (rc == 0)
		rc = resolve(e, address);
	if (rc == 0)
		rc = make_remote_qp(e, attr);
	return rc == 0 ? call(e, w->partition, shown) : rc;
}

/* Returns whether the server itself has replied: its other addresses would give the same reply. */
static bool is_final(int rc)
{
	return rc == 0 || rc == -EACCES || rc == -ENOENT || rc == -EPROTO || rc == -ETIMEDOUT;
}

static int open_first(struct endpoint *e, const struct where *w,
		      const struct stag_store_connect_attr *attr, const uint8_t *shown)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
	struct endpoint fresh = *e;
	char port[8];
	int rc;

	snprintf(port, sizeof(port), "%u", w->port);
	rc = getaddrinfo(w->host, port, &hints, &list);
	if (rc != 0)
		return store_fail(EHOSTUNREACH, "%s: %s", e->where, gai_strerror(rc));
	rc = -EHOSTUNREACH;
	for (const struct addrinfo *a = list; a; a = a->ai_next) {
		rc = open_remote(e, w, a->ai_addr, attr, shown);
		if (is_final(rc))
			break;
		if (a->ai_next) {
			close_remote(e);
			*e = fresh;
		}
	}
	freeaddrinfo(list);
	return rc;
}

/* Prepares TLS by the key that the server derives from its digest of the token, too. */
static int prepare_tls(struct endpoint *e, const uint8_t shown[TOKEN_BYTES])
{
	const struct dv *dv = dv_get();
	uint8_t kept[TOKEN_BYTES];
	struct secure_key k;
	struct stagdv_tls_attr tls = {
		.identity = k.identity, .psk = k.key, .psk_len = sizeof(k.key)};
	int rc = dv ? token_kept(shown, kept) : -EOPNOTSUPP;

	if (rc == 0)
		rc = secure_key(kept, &k);
	if (rc == 0)
		rc = secure_context(dv, &tls, &e->tls);
	explicit_bzero(&k, sizeof(k));
	return rc;
}

static int open_far(struct endpoint *e, const struct where *w,
		    const struct stag_store_connect_attr *attr)
{
	uint64_t ms = (uint64_t)(attr->timeout_ms > 0 ? attr->timeout_ms : TIMEOUT_MS);
	uint8_t shown[TOKEN_BYTES];
	int rc = attr->token ? token_shown(attr->token, strlen(attr->token), shown) : 0;

	e->deadline = clock_ns() + ms * NS_PER_MS;
	if (rc == 0 && (attr->flags & STAG_STORE_TLS))
		rc = prepare_tls(e, shown);
	return rc == 0 ? open_first(e, w, attr, attr->token ? shown : NULL) : rc;
}

/* ---- public calls -------------------------------------------------------------------------- */

static int check_attr(const struct stag_store_connect_attr *a)
{
	if ((a->flags & STAG_STORE_TLS) && !a->token)
		return store_fail(EINVAL, "connect: TLS needs a token");
	if (a->comp_mask || (a->flags & ~(uint32_t)(STAG_STORE_HAS_LEVEL | STAG_STORE_TLS)) ||
	    (a->relax & ~(uint32_t)STORE_ALL_RELAX) || a->level > STAG_STORE_DURABLE ||
	    (a->qp.qp_type && a->qp.qp_type != IBV_QPT_RC))
		return store_fail(EINVAL, "connect: invalid attributes");
	return 0;
}

static void close_endpoint(struct endpoint *e, bool local)
{
	if (local)
		close_local(e);
	else
		close_remote(e);
	if (e->tls)
		dv_find()->destroy_tls(e->tls);
	free(e);
}

STAG_EXPORT struct stag_store_endpoint *stag_store_connect(
	const char *where, const struct stag_store_connect_attr *attr)
{
	static const struct stag_store_connect_attr plain;
	struct endpoint *e = calloc(1, sizeof(*e));
	struct where *w = malloc(sizeof(*w));
	bool local = false;
	int rc = e && w ? check_attr(attr ? attr : &plain) : store_fail(ENOMEM, "no memory");

	if (rc == 0)
		rc = where_parse(where, w);
	if (rc == 0) {
		local = w->local;
		e->where = where;
		rc = local ? open_local(e, w, attr ? attr : &plain)
			   : open_far(e, w, attr ? attr : &plain);
	}
	free(w);
	if (rc == 0)
		return &e->face;
	if (e)
		close_endpoint(e, local);
	errno = -rc;
	return NULL;
}

STAG_EXPORT void stag_store_disconnect(struct stag_store_endpoint *endpoint)
{
	if (endpoint)
		close_endpoint((struct endpoint *)endpoint, !endpoint->id);
}

STAG_EXPORT int stag_store_query_endpoint(const struct stag_store_endpoint *endpoint,
					  struct stag_store_counters *counters, size_t size)
{
	const struct endpoint *e = container_of(endpoint, const struct endpoint, face);
	struct stag_store_counters all = {0};
	int rc;

	if (endpoint->id)
		return -store_fail(EOPNOTSUPP,
				   "a remote endpoint has no counters; query its server");
	rc = dv_add_counters(e->region.dv, shared_medium_of(e->medium), &all);
	if (rc == 0)
		memcpy(counters, &all, size < sizeof(all) ? size : sizeof(all));
	return -rc;
}
