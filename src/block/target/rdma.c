// SPDX-License-Identifier: BSD-2-Clause
/*
 * rdma.c - connections over verbs: listening, setup and end, completions.
 *
 * A connection's completion queue is polled while completions arrive, and for a while after that; then it is armed, and polled
 * once more. The target's thread sleeps on the completion channel that all connections share.
 */
#include "block/target/rdma.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "base/nonblock.h"
#include "dv/dv.h"

#define BACKLOG	  128
#define MAX_READS 64   /* RDMA Reads of a connection in flight */
#define PATIENCE  1024 /* empty polls, of all connections together; then a connection is armed */

void target_rdma_query(const struct target_rdma *r, struct stagdv_qp_attr *attr)
{
	const struct dv *dv = dv_find();

	*attr = (struct stagdv_qp_attr){.one_shot = STAGDV_ONE_SHOT_NONE, .crc = 1};
	if (dv && dv->is_supported(r->id->verbs->device))
		dv->query_qp(r->id->qp, attr, sizeof(*attr));
}

/* ---- completions ------------------------------------------------------------------------- */

/* Ends the connection of a failed work request. Flushed requests are not reported: the connection has ended already. */
static void on_failed_wr(struct target_rdma *r, const struct ibv_wc *wc)
{
	struct target_conn *c = &r->conn;

	if (wc->status == IBV_WC_REM_ACCESS_ERR || wc->status == IBV_WC_REM_INV_REQ_ERR ||
	    wc->status == IBV_WC_REM_OP_ERR || wc->status == IBV_WC_LOC_LEN_ERR)
		target_conn_violation(c, "%s", ibv_wc_status_str(wc->status));
	else
		target_conn_end(c);
}

static void on_completion(struct target_rdma *r, const struct ibv_wc *wc)
{
	struct target_verb *v = (struct target_verb *)(uintptr_t)wc->wr_id;

	target_conn_count(&r->conn, completions);
	if (wc->status != IBV_WC_SUCCESS)
		on_failed_wr(r, wc);
	else if (v->kind == VERB_RECEIVE)
		target_rdma_received(r, container_of(v, struct target_receive, verb), wc);
	else
		target_rdma_sent(r, v);
}

static int poll_one(struct target_rdma *r)
{
	struct ibv_wc wc[RDMA_BATCH];
	int n = r->conn.state == CONN_DEAD ? 0 : ibv_poll_cq(r->cq, RDMA_BATCH, wc);

	for (int i = 0; i < n && r->conn.state != CONN_DEAD; i++)
		on_completion(r, &wc[i]);
	if (n > 0)
		target_rdma_repost(r);
	return n > 0 ? n : 0;
}

static void make_busy(struct target_rdma *r)
{
	if (!list_empty(&r->busy) || r->conn.state == CONN_DEAD)
		return;
	r->quiet = 0;
	r->conn.target->rdma.n_busy++;
	list_add_tail(&r->conn.target->rdma.busy, &r->busy);
}

static void make_idle(struct target_rdma *r)
{
	if (list_empty(&r->busy))
		return;
	r->conn.target->rdma.n_busy--;
	list_del(&r->busy);
}

/* Arms an idle connection, and polls once more for completions that arrived before. */
static int poll_and_arm(struct target_rdma *r)
{
	int n = 0;

	if (r->conn.state != CONN_DEAD && ibv_req_notify_cq(r->cq, 0) == 0)
		n = poll_one(r);
	if (n == 0)
		make_idle(r);
	return n;
}

static int poll_busy(struct target_rdma *r)
{
	struct target_rdma_portal *p = &r->conn.target->rdma;
	int n = poll_one(r);

	if (n)
		r->quiet = 0;
	else if (++r->quiet > PATIENCE / p->n_busy)
		n = poll_and_arm(r);
	return n;
}

/* Polls each busy connection once. Any connection may end during this. */
static int poll_each(struct stag_block_target *t, int (*poll)(struct target_rdma *r))
{
	struct list *busy = &t->rdma.busy;
	struct list end;
	int sum = 0;

	if (list_empty(busy))
		return 0;
	list_add_tail(busy, &end);
	while (busy->next != &end) {
		struct target_rdma *r = list_entry(busy->next, struct target_rdma, busy);

		list_del(&r->busy);
		list_add_tail(busy, &r->busy);
		sum += poll(r);
	}
	list_del(&end);
	return sum;
}

int target_rdma_poll(struct stag_block_target *t)
{
	return poll_each(t, poll_busy);
}

int target_rdma_arm(struct stag_block_target *t)
{
	return poll_each(t, poll_and_arm);
}

static void on_completions(struct target_watch *w, uint32_t events)
{
	struct ibv_cq *cq;
	void *context;

	while (ibv_get_cq_event(w->target->rdma.completions, &cq, &context) == 0) {
		ibv_ack_cq_events(cq, 1);
		make_busy(context);
	}
}

/* ---- its end --------------------------------------------------------------------------------- */

/*
 * A closing connection waits a while for the peer to disconnect (target_conn_tick()). Linux and our initiator disconnect
 * when they get the logout response. libiscsi does not while its program keeps the session; and it would take a
 * disconnect event that overtakes that response, on another channel, for a failure.
 */
static void flush(struct target_conn *c)
{
	struct target_rdma *r = to_rdma(c);

	if (r->broken)
		target_log(c->target,
			   "%s: the peer does not receive what it is sent; closing the connection",
			   c->peer);
	if (r->broken || target_rdma_post(r) != 0)
		target_conn_end(c);
}

/* Everything that is posted, or waits for that, needs the peer: it answers RDMA Reads, and receives the rest. */
static bool owes(const struct target_conn *c)
{
	const struct target_rdma *r = container_of(c, const struct target_rdma, conn);

	return !list_empty(&r->posted);
}

static void resume(struct target_conn *c)
{
	/* Nothing to do: receiving never pauses. */
}

static void close_conn(struct target_conn *c)
{
	struct target_rdma *r = to_rdma(c);

	make_idle(r);
	if (r->accepted)
		rdma_disconnect(r->id);
	rdma_destroy_qp(r->id);
	target_rdma_tx_drop(r);
}

static void free_memory(struct target_rdma *r)
{
	if (r->window_mr)
		ibv_dereg_mr(r->window_mr);
	if (r->mr)
		ibv_dereg_mr(r->mr);
	if (r->cq)
		ibv_destroy_cq(r->cq);
	if (r->window)
		munmap(r->window, r->window_bytes);
	free(r->memory);
	free(r);
}

static void free_conn(struct target_conn *c)
{
	struct target_rdma *r = to_rdma(c);
	struct rdma_cm_id *id = r->id;

	free_memory(r);
	rdma_destroy_id(id);
}

/* With CRCs memory of the unit cannot be sent in place: it may change between computing the CRC and sending. */
static bool borrows(const struct target_conn *c)
{
	return !container_of(c, const struct target_rdma, conn)->crc;
}

#define COMMON                                                                                     \
	.rdma = true, .send = target_rdma_send, .respond = target_rdma_respond,                    \
	.data_in = target_rdma_data_in, .data_out = target_rdma_data_out,                          \
	.forget = target_rdma_forget, .flush = flush, .resume = resume, .close = close_conn,       \
	.free = free_conn, .borrows = borrows, .owes = owes

const struct target_transport target_rdma_iser = {.kind = STAG_BLOCK_ISER, COMMON};
const struct target_transport target_rdma_one_shot = {.kind = STAG_BLOCK_ONE_SHOT, COMMON};

/* ---- its beginning ------------------------------------------------------------------------------ */

static void divide_memory(struct target_rdma *r)
{
	uint8_t *at = r->memory;

	for (unsigned int i = 0; i < NUM_SMALL + NUM_LARGE; i++) {
		struct target_message *m = &r->messages[i];

		m->home = i < NUM_SMALL ? &r->small : &r->large;
		m->bytes = at;
		at += i < NUM_SMALL ? SMALL_BYTES : LARGE_BYTES;
		list_add_tail(m->home, &m->verb.link);
	}
	for (unsigned int i = 0; i < NUM_REPLIES; i++, at += REPLY_BYTES) {
		r->replies[i].bytes = at;
		list_add_tail(&r->free_replies, &r->replies[i].link);
	}
	r->login = (struct target_receive){.verb = {.kind = VERB_RECEIVE},
					   .bytes = at,
					   .size = LARGE_BYTES,
					   .lkey = r->mr->lkey};
}

static int make_memory(struct target_rdma *r, struct ibv_pd *pd)
{
	size_t bytes =
		NUM_SMALL * SMALL_BYTES + (NUM_LARGE + 1) * LARGE_BYTES + NUM_REPLIES * REPLY_BYTES;

	r->memory = calloc(1, bytes);
	if (!r->memory)
		return -ENOMEM;
	r->mr = ibv_reg_mr(pd, r->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!r->mr)
		return -errno;
	divide_memory(r);
	return 0;
}

static int make_queues(struct target_rdma *r, struct stag_block_target *t, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr qp = {.qp_type = IBV_QPT_RC,
				      .cap = {.max_send_wr = SEND_DEPTH,
					      .max_recv_wr = NUM_RECEIVES + 1,
					      .max_send_sge = 1,
					      .max_recv_sge = 2}};

	r->cq = ibv_create_cq(pd->context, SEND_DEPTH + NUM_RECEIVES + 1, r, t->rdma.completions,
			      0);
	if (!r->cq || ibv_req_notify_cq(r->cq, 0) != 0)
		return -errno;
	qp.send_cq = qp.recv_cq = r->cq;
	return rdma_create_qp(r->id, pd, &qp) == 0 ? 0 : -errno;
}

static int make_conn(struct stag_block_target *t, struct rdma_cm_id *id, struct target_rdma **out)
{
	struct ibv_pd *pd = units_pd(t->units);
	struct target_rdma *r;
	int rc;

	if (!dv_shares(pd->context, id->verbs))
		return -EXDEV; /* another adapter, where the units' memory is not registered */
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->id = id;
	list_init(&r->busy);
	list_init(&r->taken);
	list_init(&r->small);
	list_init(&r->large);
	list_init(&r->free_replies);
	list_init(&r->queue);
	list_init(&r->posted);
	rc = make_memory(r, pd);
	if (rc == 0)
		rc = make_queues(r, t, pd);
	if (rc == 0) {
		*out = r;
		return 0;
	}
	free_memory(r);
	return rc;
}

static socklen_t address_len(const struct sockaddr *a)
{
	return a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static uint8_t least(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

static int accept_conn(struct target_rdma *r, const struct rdma_conn_param *asked)
{
	struct iser_hello own = {.invalidates = true};
	uint8_t bytes[ISER_HELLO_MAX];
	struct rdma_conn_param param = {.private_data = bytes,
					.responder_resources = least(asked->responder_resources, 1),
					.initiator_depth = least(asked->initiator_depth, MAX_READS),
					.rnr_retry_count = 7};

	iscsi_iser_hello_read(asked->private_data, asked->private_data_len, &r->peer);
	own.one_shot = r->peer.one_shot && r->conn.target->rdma.one_shot;
	param.private_data_len = (uint8_t)iscsi_iser_hello_make(&own, bytes);
	if (target_rdma_post_login(r) != 0 || rdma_accept(r->id, &param) != 0)
		return -EIO;
	r->accepted = true;
	return 0;
}

static void query_tls(struct target_rdma *r)
{
	if (r->conn.target->tls.rdma)
		dv_find()->query_tls(r->id, &r->conn.tls, sizeof(r->conn.tls));
}

/* Accepts a connection request. Returns true if the id belongs to a connection now. */
static bool admit_conn(struct stag_block_target *t, struct rdma_cm_id *id,
		       const struct rdma_conn_param *asked)
{
	struct target_rdma *r;

	if (t->stop.requested || make_conn(t, id, &r) != 0)
		return false;
	id->context = r;
	t->counters.registrations++;
	target_portal_name(rdma_get_peer_addr(id), address_len(rdma_get_peer_addr(id)),
			   r->conn.peer);
	target_portal_name(rdma_get_local_addr(id), address_len(rdma_get_local_addr(id)),
			   r->conn.local);
	target_conn_open(t, &r->conn, &target_rdma_iser);
	query_tls(r);
	if (accept_conn(r, asked) != 0)
		target_conn_end(&r->conn);
	return true;
}

/* ---- events ---------------------------------------------------------------------------------------- */

static void on_request(struct stag_block_target *t, struct rdma_cm_event *event)
{
	struct rdma_cm_id *id = event->id;
	bool taken;

	id->context = NULL;
	taken = admit_conn(t, id, &event->param.conn);
	rdma_ack_cm_event(event);
	if (taken)
		return;
	rdma_reject(id, NULL, 0);
	rdma_destroy_id(id);
}

static void on_event(struct stag_block_target *t, struct rdma_cm_event *event)
{
	struct target_rdma *r = event->id == t->rdma.listener ? NULL : event->id->context;
	bool ended = event->event != RDMA_CM_EVENT_ESTABLISHED;

	if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		on_request(t, event);
		return;
	}
	rdma_ack_cm_event(event);
	if (!r || !ended)
		return;
	while (poll_one(r) > 0) /* handle what arrived before the end */
		;
	target_conn_end(&r->conn);
}

static void on_events(struct target_watch *w, uint32_t events)
{
	struct rdma_cm_event *event;

	while (rdma_get_cm_event(w->target->rdma.events, &event) == 0)
		on_event(w->target, event);
}

/* ---- listening --------------------------------------------------------------------------------------- */

static int watch(struct stag_block_target *t, struct target_watch *w, int fd,
		 void (*ready)(struct target_watch *, uint32_t))
{
	int rc = set_nonblocking(fd);

	*w = (struct target_watch){.ready = ready, .fd = fd, .target = t};
	return rc == 0 ? target_watch(t, w, EPOLLIN) : rc;
}

static int make_channels(struct stag_block_target *t)
{
	struct target_rdma_portal *p = &t->rdma;
	int rc;

	p->events = rdma_create_event_channel();
	p->completions = ibv_create_comp_channel(units_pd(t->units)->context);
	if (!p->events || !p->completions)
		return block_fail(errno, "cannot create event channels: %s", strerror(errno));
	rc = watch(t, &p->event_watch, p->events->fd, on_events);
	if (rc == 0)
		rc = watch(t, &p->completion_watch, p->completions->fd, on_completions);
	return rc == 0 ? 0 : block_fail(-rc, "cannot set up epoll: %s", strerror(-rc));
}

static int listen_at(struct stag_block_target *t, struct sockaddr *a)
{
	struct target_rdma_portal *p = &t->rdma;
	int error;

	if (rdma_create_id(p->events, &p->listener, NULL, RDMA_PS_TCP) != 0)
		return -errno;
	error = -target_tls_set_rdma(t, p->listener);
	if (!error && rdma_bind_addr(p->listener, a) == 0 && rdma_listen(p->listener, BACKLOG) == 0)
		return 0;
	error = error ? error : errno;
	target_rdma_close(t);
	return -error;
}

/* Listens on both address families, if there are both. */
static int listen_on_all(struct stag_block_target *t, uint16_t port)
{
	struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
	int rc = listen_at(t, (struct sockaddr *)&six);

	return rc == 0 || rc == -EADDRINUSE ? rc : listen_at(t, (struct sockaddr *)&four);
}

static int listen_at_name(struct stag_block_target *t, const char *address, uint16_t port)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_NUMERICSERV | AI_PASSIVE},
			*list;
	char word[8];
	int rc;

	if (!address)
		return listen_on_all(t, port);
	snprintf(word, sizeof(word), "%u", port);
	if (getaddrinfo(address, word, &hints, &list) != 0)
		return -EADDRNOTAVAIL;
	rc = listen_at(t, list->ai_addr);
	freeaddrinfo(list);
	return rc;
}

/*
 * Listens on the same port as TCP. The software adapter's ports are TCP ports, so there the TCP socket listens for both,
 * and RDMA connections that it accepts are passed to an id that listens at a private port (target_rdma_adopt()).
 */
static int find_port(struct stag_block_target *t, const struct stag_block_target_attr *attr)
{
	uint16_t port = attr->flags & STAG_BLOCK_ANY_PORT ? 0
			: attr->port			  ? attr->port
							  : STAG_BLOCK_PORT;
	struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int rc = listen_at_name(t, attr->address, t->portal.n ? t->portal.port : port);

	if (rc == -EADDRINUSE && t->portal.n && dv_find()) {
		t->rdma.adopts = true;
		return listen_at(t, (struct sockaddr *)&own);
	}
	if (rc == 0 && !t->portal.n)
		t->portal.port = ntohs(rdma_get_src_port(t->rdma.listener));
	return rc;
}

bool target_rdma_adopts(const struct stag_block_target *t)
{
	return t->rdma.adopts && t->rdma.listener;
}

void target_rdma_adopt(struct stag_block_target *t, int fd)
{
	dv_find()->adopt(t->rdma.listener, fd);
}

int target_rdma_open(struct stag_block_target *t, const struct stag_block_target_attr *attr)
{
	int rc = make_channels(t);

	if (rc != 0)
		return rc;
	t->rdma.whole = malloc(HEADERS + AHS_ROOM + LOGIN_BYTES + 4);
	if (!t->rdma.whole)
		return block_fail(ENOMEM, "out of memory");
	t->rdma.one_shot = dv_find() && !(attr->flags & STAG_BLOCK_NO_ONE_SHOT);
	rc = find_port(t, attr);
	return rc == 0 ? 0
		       : block_fail(-rc, "cannot listen for RDMA connections: %s", strerror(-rc));
}

void target_rdma_close(struct stag_block_target *t)
{
	if (t->rdma.listener)
		rdma_destroy_id(t->rdma.listener);
	t->rdma.listener = NULL;
}

void target_rdma_destroy(struct stag_block_target *t)
{
	struct target_rdma_portal *p = &t->rdma;

	target_rdma_close(t);
	free(p->whole);
	if (p->completions) {
		target_unwatch(t, &p->completion_watch);
		ibv_destroy_comp_channel(p->completions);
	}
	if (p->events) {
		target_unwatch(t, &p->event_watch);
		rdma_destroy_event_channel(p->events);
	}
}
