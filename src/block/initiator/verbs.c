// SPDX-License-Identifier: BSD-2-Clause
/*
 * verbs.c - an initiator's line over verbs: connecting, completions, closing.
 *
 *   ADDRESS -> ROUTE -> CONNECT -> UP
 *
 * Completions are polled by each step. Before sleeping the completion queue is armed, and polled once more. Events of the connection
 * manager are polled only now and then: the end of a connection also shows in flushed receives.
 */
#include "block/initiator/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/nonblock.h"

#define LOOK_NS	   (10 * NS_PER_MS)
#define ROUNDS	   8  /* batches of completions, before others get their turn */
#define READ_DEPTH 16 /* RDMA Reads of the target in flight */

/* Returns the calls of the software adapter if the connection uses it, or NULL. */
static const struct dv *dv_of(const struct rdma_cm_id *id)
{
	const struct dv *dv = dv_find();

	return dv && dv->is_supported(id->verbs->device) ? dv : NULL;
}

/* ---- its end ----------------------------------------------------------------------------------- */

static int fail_errno(struct initiator_verbs_line *v, const char *what)
{
	return block_fail(errno, "%s: %s: %s", v->line.b->config.url.host, what, strerror(errno));
}

/* Reports a lost connection; if the adapter ended it because of an invalid access, as a violation by the target. */
static int connection_lost(struct initiator_verbs_line *v)
{
	struct stagdv_counters c = {0};

	if (!v->dv || v->dv->query_counters(v->id->qp, &c, sizeof(c)) != 0)
		return -ECONNRESET;
	if (c.late)
		return initiator_violation(v->line.b, "it used an STag that is closed");
	if (c.terminates_sent)
		return initiator_violation(v->line.b, "it accessed memory that was not lent to it");
	return -ECONNRESET;
}

static void end_loans(struct initiator_verbs_line *v)
{
	for (uint32_t i = 0; v->loans && i < v->n_cmds; i++)
		initiator_lend_end(v, &v->loans[i]);
	free(v->loans);
}

static void verbs_close(struct initiator_line *l)
{
	struct initiator_verbs_line *v = to_verbs_line(l);

	if (v->stage == VERBS_UP)
		rdma_disconnect(v->id);
	if (v->id && v->id->qp)
		rdma_destroy_qp(v->id); /* from here on nothing accesses the memory */
	end_loans(v);
	if (v->id)
		initiator_lend_deregister_all(v);
	if (v->mr)
		ibv_dereg_mr(v->mr);
	if (v->cq)
		ibv_destroy_cq(v->cq);
	if (v->channel)
		ibv_destroy_comp_channel(v->channel);
	if (v->id)
		rdma_destroy_id(v->id);
	if (v->events)
		rdma_destroy_event_channel(v->events);
	free(v->memory);
	free(v);
}

/* ---- its beginning ------------------------------------------------------------------------------- */

static int add_to_epoll(struct initiator_verbs_line *v, int fd)
{
	struct epoll_event e = {.events = EPOLLIN};

	if (set_nonblocking(fd) != 0 ||
	    epoll_ctl(v->line.b->events.epoll, EPOLL_CTL_ADD, fd, &e) != 0)
		return fail_errno(v, "no descriptor");
	return 0;
}

static int verbs_open(struct stag_block *b, const struct initiator_line_ops *ops,
		      const struct sockaddr *to, socklen_t len, struct initiator_line **out)
{
	struct initiator_verbs_line *v = calloc(1, sizeof(*v));
	int rc = 0;

	if (!v)
		return block_fail(ENOMEM, "out of memory");
	v->line = (struct initiator_line){.ops = ops, .b = b};
	v->events = rdma_create_event_channel();
	if (!v->events)
		rc = block_fail(ENODEV, "no RDMA device; run the program with 'stag run --' for "
					"the software adapter");
	if (rc == 0)
		rc = add_to_epoll(v, v->events->fd);
	if (rc == 0 && rdma_create_id(v->events, &v->id, v, RDMA_PS_TCP) != 0)
		rc = fail_errno(v, "no RDMA");
	if (rc == 0)
		rc = initiator_tls_set(b, v->id);
	if (rc == 0 && rdma_resolve_addr(v->id, NULL, (struct sockaddr *)(uintptr_t)to,
					 (int)(b->config.timeout_ns / NS_PER_MS)) != 0)
		rc = fail_errno(v, "no RDMA device leads there");
	if (rc == 0)
		*out = &v->line;
	else
		verbs_close(&v->line);
	return rc;
}

static int make_memory(struct initiator_verbs_line *v)
{
	size_t bytes = (size_t)(v->n_cmds + VERBS_CONTROLS + v->n_receives) * VERBS_BODY;

	v->loans = calloc(v->n_cmds, sizeof(*v->loans));
	v->memory = calloc(1, bytes);
	if (!v->loans || !v->memory)
		return block_fail(ENOMEM, "out of memory");
	v->mr = ibv_reg_mr(v->id->pd, v->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!v->mr)
		return fail_errno(v, "memory cannot be registered");
	v->line.b->info.counters.registrations++;
	for (uint32_t i = 0; i < VERBS_CONTROLS; i++)
		v->free_controls[v->n_free_controls++] = i;
	return initiator_lend_register_all(v);
}

static int make_queues(struct initiator_verbs_line *v)
{
	struct ibv_qp_init_attr qp = {
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = v->n_cmds + VERBS_CONTROLS + VERBS_SPARE_SENDS,
			.max_recv_wr = v->n_receives,
			.max_send_sge = 1,
			.max_recv_sge = 1}};

	v->channel = ibv_create_comp_channel(v->id->verbs);
	if (!v->channel)
		return fail_errno(v, "no completion channel");
	v->cq = ibv_create_cq(v->id->verbs, (int)(qp.cap.max_send_wr + qp.cap.max_recv_wr), v,
			      v->channel, 0);
	if (!v->cq)
		return fail_errno(v, "no completion queue");
	qp.send_cq = qp.recv_cq = v->cq;
	if (rdma_create_qp(v->id, NULL, &qp) != 0)
		return fail_errno(v, "no queue pair");
	return add_to_epoll(v, v->channel->fd);
}

static uint8_t most_reads(const struct initiator_verbs_line *v)
{
	struct ibv_device_attr attr;

	if (ibv_query_device(v->id->verbs, &attr) != 0 || attr.max_qp_rd_atom > READ_DEPTH)
		return READ_DEPTH;
	return (uint8_t)attr.max_qp_rd_atom;
}

static int request_connection(struct initiator_verbs_line *v)
{
	struct iser_hello own = {.invalidates = v->dv,
				 .one_shot = v->dv && v->line.ops->kind == STAG_BLOCK_ONE_SHOT};
	uint8_t bytes[ISER_HELLO_MAX];
	struct rdma_conn_param param = {.private_data = bytes,
					.responder_resources = most_reads(v),
					.initiator_depth = 1,
					.retry_count = 7,
					.rnr_retry_count = 7};

	param.private_data_len = (uint8_t)iscsi_iser_hello_make(&own, bytes);
	v->stage = VERBS_CONNECT;
	return rdma_connect(v->id, &param) == 0 ? 0 : fail_errno(v, "cannot connect");
}

static int prepare_connection(struct initiator_verbs_line *v)
{
	int rc;

	v->dv = dv_of(v->id);
	v->n_cmds = v->line.b->config.depth + 1;
	v->n_receives = v->n_cmds + VERBS_UNEXPECTED;
	rc = make_queues(v);
	if (rc == 0)
		rc = make_memory(v);
	if (rc == 0)
		rc = initiator_verbs_post_receives(v);
	return rc == 0 ? request_connection(v) : rc;
}

/* Returns the reason why the connection cannot use one-shot, or NULL. */
static const char *find_obstacle(struct initiator_verbs_line *v,
				 const struct rdma_conn_param *answer)
{
	struct stagdv_qp_attr attr = {0};
	struct iser_hello peer;

	if (!v->dv)
		return "the adapter has no one-shot sends";
	iscsi_iser_hello_read(answer->private_data, answer->private_data_len, &peer);
	if (!peer.one_shot)
		return "the target does not speak it";
	if (dv_query_peer(v->dv, v->id->qp, &attr) != 0 || attr.one_shot == STAGDV_ONE_SHOT_NONE)
		return "the adapters agreed on no encoding";
	v->line.encoding = attr.one_shot;
	return NULL;
}

static void note_tls(struct initiator_verbs_line *v)
{
	struct stagdv_tls_info info = {0};

	if (v->line.b->config.tls.rdma && v->dv &&
	    v->dv->query_tls(v->id, &info, sizeof(info)) == 0)
		initiator_tls_note(v->line.b, &info);
}

/* Returns the error of an attempt that failed. */
static int connection_failed(struct initiator_verbs_line *v, int status)
{
	const struct initiator_url *u = &v->line.b->config.url;

	if (v->line.b->config.tls.mode == TLS_OFF ||
	    (status != -EPROTONOSUPPORT && status != -EACCES && status != -EPROTO))
		return status == -ETIMEDOUT ? -ETIMEDOUT : -ECONNREFUSED;
	return block_fail(-status, "%s:%s: no TLS: %s", u->host, u->port,
			  status == -EACCES ? "the target does not accept the user's key"
					    : "the target does not speak it");
}

static int on_established(struct initiator_verbs_line *v, const struct rdma_conn_param *answer)
{
	const char *obstacle = NULL;
	int rc = 0;

	v->stage = VERBS_UP;
	note_tls(v);
	if (v->line.ops->kind == STAG_BLOCK_ONE_SHOT) {
		obstacle = find_obstacle(v, answer);
		if (obstacle)
			rc = initiator_fall_back(v->line.b, obstacle);
		v->one_shot = !obstacle;
	}
	return rc == 0 ? initiator_connected(v->line.b) : rc;
}

/* ---- events ------------------------------------------------------------------------------------------ */

static int poll_batch(struct initiator_verbs_line *v);

/* Handles the completions that arrived before the end. */
static int on_disconnected(struct initiator_verbs_line *v)
{
	int n;

	while ((n = poll_batch(v)) > 0)
		;
	return n < 0 ? n : connection_lost(v);
}

static int handle_cm_event(struct initiator_verbs_line *v, const struct rdma_cm_event *event)
{
	switch (event->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		v->stage = VERBS_ROUTE;
		return rdma_resolve_route(v->id, (int)(v->line.b->config.timeout_ns / NS_PER_MS)) ==
				       0
			       ? 0
			       : fail_errno(v, "no route");
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return prepare_connection(v);
	case RDMA_CM_EVENT_ESTABLISHED:
		return on_established(v, &event->param.conn);
	case RDMA_CM_EVENT_REJECTED:
		return -ECONNREFUSED;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		return -EHOSTUNREACH;
	case RDMA_CM_EVENT_CONNECT_ERROR:
		return connection_failed(v, event->status);
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return on_disconnected(v);
	default:
		return 0;
	}
}

static int poll_cm_events(struct initiator_verbs_line *v)
{
	struct rdma_cm_event *event;
	int rc = 0;

	v->looked = v->line.b->now;
	while (rc == 0 && rdma_get_cm_event(v->events, &event) == 0) {
		rc = handle_cm_event(v, event);
		rdma_ack_cm_event(event);
	}
	return rc;
}

/* ---- completions ----------------------------------------------------------------------------------------- */

/* Reports a failed work request. Flushed ones only say that the connection has ended. */
static int on_failed_wr(struct initiator_verbs_line *v, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_REM_INV_REQ_ERR && wc->wr_id >> 32 == VERBS_RECEIVE)
		return initiator_violation(v->line.b, "it closed STag 0x%08x, which is not open",
					   wc->vendor_err);
	if (wc->status == IBV_WC_LOC_LEN_ERR)
		return initiator_violation(v->line.b, "it sent more than %d bytes", VERBS_BODY);
	return connection_lost(v);
}

static int on_completion(struct initiator_verbs_line *v, const struct ibv_wc *wc)
{
	v->line.b->info.counters.completions++;
	if (wc->status != IBV_WC_SUCCESS)
		return on_failed_wr(v, wc);
	switch ((enum initiator_verbs_kind)(wc->wr_id >> 32)) {
	case VERBS_COMMAND:
		break;
	case VERBS_CONTROL:
		v->free_controls[v->n_free_controls++] = (uint32_t)wc->wr_id;
		break;
	case VERBS_RECEIVE:
		return initiator_verbs_received(v, (uint32_t)wc->wr_id, wc);
	}
	return 0;
}

/* Returns the number of completions, or -errno. */
static int poll_batch(struct initiator_verbs_line *v)
{
	struct ibv_wc wc[VERBS_BATCH];
	int n = v->n_early, rc = 0;

	if (n > 0)
		memcpy(wc, v->early, (size_t)n * sizeof(*wc));
	else if (n == 0)
		n = ibv_poll_cq(v->cq, VERBS_BATCH, wc);
	v->n_early = 0;
	if (n < 0)
		return block_fail(EIO, "%s: cannot poll for completions",
				  v->line.b->config.url.host);
	for (int i = 0; i < n && rc == 0; i++)
		rc = on_completion(v, &wc[i]);
	return rc == 0 ? n : rc;
}

static int verbs_poll(struct initiator_line *l)
{
	struct initiator_verbs_line *v = to_verbs_line(l);
	int rc = 0, n = 1;

	if (v->stage != VERBS_UP || l->b->now - v->looked >= LOOK_NS)
		rc = poll_cm_events(v);
	if (rc != 0 || v->stage != VERBS_UP)
		return rc;
	for (int i = 0; i < ROUNDS && n > 0; i++)
		n = poll_batch(v);
	return n < 0 ? n : initiator_verbs_repost(v);
}

/* Consumes completion events. Returns true if there was one: the queue has to be armed again. */
static bool drop_events(struct initiator_verbs_line *v)
{
	struct ibv_cq *cq;
	void *context;
	bool some = false;

	while (ibv_get_cq_event(v->channel, &cq, &context) == 0) {
		ibv_ack_cq_events(cq, 1);
		some = true;
	}
	return some;
}

static int verbs_arm(struct initiator_line *l)
{
	struct initiator_verbs_line *v = to_verbs_line(l);

	if (v->stage != VERBS_UP)
		return 0;
	if (!v->armed || drop_events(v))
		v->armed = ibv_req_notify_cq(v->cq, 0) == 0;
	v->n_early = ibv_poll_cq(v->cq, VERBS_BATCH, v->early);
	return v->n_early != 0;
}

static void verbs_forget(struct initiator_line *l, struct initiator_cmd *c)
{
	struct initiator_verbs_line *v = to_verbs_line(l);

	if (v->held == c) /* not posted yet */
		v->held = NULL;
	initiator_lend_end(v, &v->loans[c->index]);
}

/* ---- iSER and one-shot ---------------------------------------------------------------------------------------- */

static int open_iser(struct stag_block *b, const struct sockaddr *to, socklen_t len,
		     struct initiator_line **out)
{
	return verbs_open(b, &initiator_iser_line, to, len, out);
}

static int open_one_shot(struct stag_block *b, const struct sockaddr *to, socklen_t len,
			 struct initiator_line **out)
{
	return verbs_open(b, &initiator_one_shot_line, to, len, out);
}

#define COMMON                                                                                     \
	.rdma = true, .send = initiator_verbs_send, .command = initiator_verbs_command,            \
	.poll = verbs_poll, .flush = initiator_verbs_flush, .arm = verbs_arm,                      \
	.forget = verbs_forget, .lend = initiator_lend_register,                                   \
	.unlend = initiator_lend_deregister, .close = verbs_close

const struct initiator_line_ops initiator_iser_line = {
	.kind = STAG_BLOCK_ISER, .name = "iSER", .open = open_iser, COMMON};
const struct initiator_line_ops initiator_one_shot_line = {
	.kind = STAG_BLOCK_ONE_SHOT, .name = "one-shot", .open = open_one_shot, COMMON};
