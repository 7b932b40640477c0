// SPDX-License-Identifier: BSD-2-Clause
/*
 * connect.c - listen, connect, accept, reject, disconnect; and how an id changes as its connection
 * is set up and ends.
 *
 * Order and status of the events are the kernel's for an iWARP device. One is added: TIMEWAIT_EXIT
 * after DISCONNECTED, since some programs (tgtd) keep a connection until it arrives.
 */
#include "cm/ud.h"

#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "adapter/port.h"
#include "base/clock.h"
#include "base/nonblock.h"
#include "stag/stagdv.h"

#define MAX_RETRY 7 /* 3 bits */

/* ---- the queue pair ---------------------------------------------------- */

void id_set_qp(struct cm_id *id, uint32_t qpn)
{
	assert(engine_locked());
	id->qpn = qpn;
	id->has_qp = true;
}

struct stag_qp *id_find_qp(const struct cm_id *id)
{
	if (!id->has_qp)
		return NULL;
	return id->face == FACE_ROCE ? port_qp_by_num(id->qpn) : qp_by_num(id->qpn);
}

struct stag_qp *id_qp(struct cm_id *id)
{
	struct stag_qp *qp = id_find_qp(id);

	assert(engine_locked());
	return qp && qp->notify.events && qp->notify.arg == id ? qp : NULL;
}

/* On roce0 a queue pair of the program's own is its own business: it has a number, which the peer is told. */
static int choose_roce_qp(struct cm_id *id, const struct rdma_conn_param *param,
			  struct conn_wish *w)
{
	if (!id->cm.qp && !param)
		return id_error(id, EINVAL, "the id has no queue pair to connect");
	if (id->cm.qp)
		id_set_qp(id, id->cm.qp->qp_num);
	w->qpn = id->cm.qp ? id->cm.qp->qp_num : param->qp_num;
	w->srq = id->cm.qp ? id->cm.qp->srq != NULL : param->srq;
	w->flow_control = param && param->flow_control;
	w->retry_count = param ? param->retry_count & MAX_RETRY : MAX_RETRY;
	w->rnr_retry_count = param ? param->rnr_retry_count & MAX_RETRY : MAX_RETRY;
	return 0;
}

/* Determines the queue pair to connect: the id's, or the program's own. */
static int choose_qp(struct cm_id *id, const struct rdma_conn_param *param, struct conn_wish *w)
{
	const struct stag_qp *qp;

	if (id->face == FACE_ROCE)
		return choose_roce_qp(id, param, w);
	if (id->cm.qp)
		id_set_qp(id, id->cm.qp->qp_num);
	else if (param)
		id_set_qp(id, param->qp_num);
	qp = id_find_qp(id);
	if (!qp)
		return id_error(id, EINVAL, "the id has no queue pair to connect");
	if (qp->notify.events || atomic_load(&qp->state) != QP_IDLE)
		return id_error(id, EINVAL, "queue pair %u is in a state that cannot be connected",
				id->qpn);
	return 0;
}

static void abort_qp(struct stag_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	qp_set_events(qp, NULL, NULL);
	qp_modify(qp, &attr, IBV_QP_STATE);
}

/* ---- begin and end of connections -------------------------------------- */

void id_ended(struct cm_id *id, int status)
{
	assert(engine_locked());
	id_set_state(id, ID_CLOSED);
	event_post(id, RDMA_CM_EVENT_DISCONNECTED, status);
	event_post(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
}

/* The stream of a queue pair of stag0 has ended. */
static void stream_ended(struct cm_id *id)
{
	struct stag_qp *qp = id_qp(id);

	id_ended(id, qp && atomic_load(&qp->end.timed_out) ? -ETIMEDOUT : 0);
}

/* The queue pair stays as it is, until the program disconnects, too. */
void id_peer_left(struct cm_id *id)
{
	assert(engine_locked());
	id_set_state(id, ID_LEFT);
	event_post(id, RDMA_CM_EVENT_DISCONNECTED, 0);
}

static void id_accept_failed(struct cm_id *id, int status)
{
	id_set_state(id, ID_CLOSED);
	event_post(id, RDMA_CM_EVENT_CONNECT_ERROR, status);
}

void id_accept_done(struct cm_id *id)
{
	struct rdma_conn_param peer = {.initiator_depth = id->peer_ird,
				       .responder_resources = id->peer_ord};

	assert(engine_locked());
	id_set_state(id, ID_CONNECTED);
	if (id->face == FACE_IWARP) /* those of roce0 count when they have a stream */
		atomic_fetch_add(&stag_totals.accepts, 1);
	event_post_conn(id, RDMA_CM_EVENT_ESTABLISHED, 0, &peer);
}

static void on_established(void *arg)
{
	struct cm_id *id = arg;

	if (id->state != ID_ACCEPTING)
		return;
	timer_cancel(&id->first);
	id_accept_done(id);
}

static void on_disconnected(void *arg)
{
	struct cm_id *id = arg;

	timer_cancel(&id->first);
	if (id->state == ID_ACCEPTING && !id->disconnecting)
		id_accept_failed(id, -ECONNRESET);
	else if (id->state == ID_ACCEPTING || id->state == ID_CONNECTED)
		stream_ended(id);
}

static const struct qp_events id_events = {.established = on_established,
					   .disconnected = on_disconnected};

/* Times out a peer that got our Reply and did not send its first FPDU. */
static void on_no_first(struct timer *t)
{
	struct cm_id *id = container_of(t, struct cm_id, first);
	struct stag_qp *qp = id_qp(id);

	if (qp)
		abort_qp(qp);
	log_info("cm %u: the peer sent no first FPDU in time", id->num);
	id_accept_failed(id, -ETIMEDOUT);
}

int id_attach(struct cm_id *id, struct stream *s, const struct qp_link *link)
{
	struct stag_qp *qp = id_find_qp(id);
	int err = -EINVAL;

	assert(engine_locked());
	if (qp) {
		qp_set_events(qp, &id_events, id);
		err = qp_attach(qp, s, link);
	}
	if (!err)
		return 0;
	if (qp)
		qp_set_events(qp, NULL, NULL);
	log_info("cm %u: queue pair %u refuses the connection: %s", id->num, id->qpn,
		 strerror(-err));
	s->ops->abort(s);
	stream_close(s);
	return err;
}

void id_connected(struct cm_id *id, const struct rdma_conn_param *reply)
{
	assert(engine_locked());
	id_set_state(id, ID_CONNECTED);
	if (id->face == FACE_IWARP)
		atomic_fetch_add(&stag_totals.connects, 1);
	event_post_conn(id, RDMA_CM_EVENT_ESTABLISHED, 0, reply);
}

void id_accepted(struct cm_id *id, const struct qp_link *link)
{
	assert(engine_locked());
	id_set_state(id, ID_ACCEPTING);
	if (!link->p2p) {
		id_accept_done(id);
		return;
	}
	timer_set(&id->first, clock_ns() + config()->connect_timeout_ms * NS_PER_MS, on_no_first);
}

void id_answered(struct cm_id *id, const struct rdma_conn_param *reply)
{
	assert(engine_locked());
	id_set_state(id, ID_ANSWERED);
	event_post_conn(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, reply);
}

void id_awaits_peer(struct cm_id *id)
{
	assert(engine_locked());
	id_set_state(id, ID_ACCEPTING);
}

void id_refused(struct cm_id *id, int reason, const struct rdma_conn_param *told)
{
	assert(engine_locked());
	roce_to_err(id);
	id_set_state(id, ID_CLOSED);
	event_post_conn(id, RDMA_CM_EVENT_REJECTED, reason, told);
}

/* A set-up on roce0 failed without a message of the peer, which has given up, or is not there. */
static void roce_failed(struct cm_id *id, int status)
{
	static const struct rdma_conn_param nothing;

	switch (status) {
	case -ECONNREFUSED:
		id_refused(id, CM_REJ_NO_SERVICE, &nothing);
		break;
	case -ECONNRESET:
		id_refused(id, CM_REJ_APPLICATION, &nothing);
		break;
	case -ETIMEDOUT:
	case -EHOSTUNREACH:
	case -ENETUNREACH:
		id_set_state(id, ID_CLOSED);
		event_post(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
		break;
	default:
		id_set_state(id, ID_CLOSED);
		event_post(id, RDMA_CM_EVENT_CONNECT_ERROR, status);
		break;
	}
}

/* Returns the event by which the kernel reports this failure on the active side. */
static enum rdma_cm_event_type failure_event(int status)
{
	switch (status) {
	case -ECONNREFUSED:
	case -ECONNRESET:
		return RDMA_CM_EVENT_REJECTED;
	case -ETIMEDOUT:
		return RDMA_CM_EVENT_UNREACHABLE;
	default:
		return RDMA_CM_EVENT_CONNECT_ERROR;
	}
}

void id_failed(struct cm_id *id, int status, const struct rdma_conn_param *reply)
{
	assert(engine_locked());
	if (id->face == FACE_ROCE) {
		roce_failed(id, status);
		return;
	}
	if (id->state != ID_CONNECTING) {
		id_accept_failed(id, status);
		return;
	}
	id_set_state(id, ID_CLOSED);
	event_post_conn(id, failure_event(status), status, reply);
}

/* Closes what the program did not close itself. A request without an answer is rejected. */
static void close_conn(struct cm_id *id)
{
	static const struct conn_wish nothing;

	if (id->conn && id->conn->state == CONN_ASKED)
		conn_send_reject(id->conn, &nothing);
	else
		conn_destroy(id->conn);
}

void id_close(struct cm_id *id)
{
	struct stag_qp *qp = id->face == FACE_IWARP ? id_qp(id) : NULL;
	bool live = id->state == ID_ACCEPTING || id->state == ID_CONNECTED;

	assert(engine_locked());
	timer_cancel(&id->first);
	listener_destroy(id->listener);
	id->listener = NULL;
	ud_close(id);
	close_conn(id);
	if (id->fd >= 0)
		close(id->fd);
	id->fd = -1;
	if (qp && live && !id->disconnecting)
		abort_qp(qp);
	else if (qp)
		qp_set_events(qp, NULL, NULL);
	id_set_state(id, ID_CLOSED);
}

/*
 * Resets the connection instead of rejecting it in a Reply: the peer may retry, and find a new
 * listener.
 */
void id_drop_request(struct cm_id *child)
{
	assert(engine_locked());
	if (child->request)
		lookup_forget(child);
	conn_destroy(child->conn);
	id_destroy(child);
}

void id_qp_gone(struct cm_id *id)
{
	struct stag_qp *qp = id->face == FACE_IWARP ? id_qp(id) : NULL;

	assert(engine_locked());
	if (qp)
		qp_set_events(qp, NULL, NULL);
	timer_cancel(&id->first);
	groups_detach(id);
	id->has_qp = false;
	if (id->face == FACE_ROCE) /* its connection does not depend on it */
		return;
	if (id->state == ID_ACCEPTING || id->state == ID_CONNECTED)
		stream_ended(id);
}

/* ---- listen ------------------------------------------------------------ */

/* roce0 has no TLS: where it is required, it cannot connect, and listens for peers of stag0 only. */
static int choose_tls(struct cm_id *id, enum face face)
{
	int err = id_choose_tls(id);

	if (err || face != FACE_ROCE || id->tls.mode != TLS_REQUIRED)
		return err;
	log_err("cm %u: TLS is required, and roce0 has none; stag0 has (STAG_DEVICE=iwarp)",
		id->num);
	return -EOPNOTSUPP;
}

static int start_listening(struct cm_id *id, int backlog)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	int err;

	if (id->state == ID_IDLE && rdma_bind_addr(&id->cm, (struct sockaddr *)&any))
		return -1;
	if (is_ud(id))
		return ud_listen(id, backlog);
	if (id->state != ID_BOUND)
		return id_error(id, EINVAL, "only a bound id can listen");
	err = choose_tls(id, cm_may_use(id, FACE_IWARP) ? FACE_IWARP : FACE_ROCE);
	if (!err)
		err = listener_create(id, id->fd, backlog, &id->listener);
	if (err)
		return id_error(id, -err, "listen");
	id->fd = -1;
	id_set_state(id, ID_LISTENING);
	return 0;
}

STAG_EXPORT int rdma_listen(struct rdma_cm_id *cm, int backlog)
{
	if (tls_forbids_real())
		return -1;
	PASS_TO_REAL(listen(cm, backlog));
	int ret;

	engine_lock();
	ret = start_listening(to_cm_id(cm), backlog);
	engine_unlock();
	return ret;
}

/* Takes over fd, even if it fails. */
static int adopt_socket(struct cm_id *id, int fd)
{
	assert(engine_locked());
	if (id->state != ID_LISTENING || set_nonblocking(fd)) {
		close(fd);
		return -EINVAL;
	}
	return conn_accepted(id->listener, fd);
}

STAG_EXPORT int stagdv_adopt(struct rdma_cm_id *listener, int fd)
{
	int err;

	if (real_cm()) {
		close(fd);
		return EOPNOTSUPP;
	}
	engine_lock();
	err = adopt_socket(to_cm_id(listener), fd);
	engine_unlock();
	return -err;
}

/* ---- connect, accept --------------------------------------------------- */

/*
 * Checks a depth of a conn_param: RDMA_MAX_INIT_DEPTH and RDMA_MAX_RESP_RES stand for the maximum.
 */
static int check_depth(uint8_t asked, uint8_t all, uint16_t *out)
{
	if (asked != RDMA_MAX_INIT_DEPTH && asked > STAG_MAX_RD_ATOM)
		return -EINVAL;
	*out = asked == RDMA_MAX_INIT_DEPTH ? all : asked;
	return 0;
}

/* Concatenates rdma_create_ep()'s private data and the call's own. */
static int join_private_data(const struct cm_id *id, const struct rdma_conn_param *param,
			     struct conn_wish *w)
{
	size_t own = param && param->private_data ? param->private_data_len : 0;

	if (id->ep_private_len > CM_MAX_PRIVATE - own)
		return -EINVAL;
	if (id->ep_private_len)
		memcpy(w->private_data, id->ep_private, id->ep_private_len);
	if (own)
		memcpy(w->private_data + id->ep_private_len, param->private_data, own);
	w->private_len = (uint8_t)(id->ep_private_len + own);
	return 0;
}

static int make_wish(struct cm_id *id, const struct rdma_conn_param *param, uint8_t all_ord,
		     uint8_t all_ird, size_t roce_private, struct conn_wish *w)
{
	size_t most = id->face == FACE_ROCE ? roce_private : CM_MAX_PRIVATE;
	uint8_t ord = param ? param->initiator_depth : RDMA_MAX_INIT_DEPTH;
	uint8_t ird = param ? param->responder_resources : RDMA_MAX_RESP_RES;

	if (check_depth(ord, all_ord, &w->ord) || check_depth(ird, all_ird, &w->ird))
		return id_error(
			id, EINVAL,
			"initiator depth %u or responder resources %u exceed the device's %u", ord,
			ird, STAG_MAX_RD_ATOM);
	if (join_private_data(id, param, w) || w->private_len > most)
		return id_error(id, EINVAL, "more than %zu bytes of private data", most);
	return 0;
}

static int start_connecting(struct cm_id *id, const struct rdma_conn_param *param)
{
	struct conn_wish wish = {0};
	int err;

	if (is_ud(id))
		return ud_connect(id, param);
	if (id->state != ID_ROUTE_RESOLVED)
		return id_error(id, EINVAL, "connecting requires a resolved route");
	if (choose_qp(id, param, &wish) ||
	    make_wish(id, param, STAG_MAX_RD_ATOM, STAG_MAX_RD_ATOM, CM_REQ_PRIVATE, &wish))
		return -1;
	err = choose_tls(id, id->face);
	if (!err)
		err = conn_connect(id, &wish, &id->conn);
	if (err)
		return id_error(id, -err, "connect");
	id_set_state(id, ID_CONNECTING);
	return 0;
}

STAG_EXPORT int rdma_connect(struct rdma_cm_id *cm, struct rdma_conn_param *conn_param)
{
	if (tls_forbids_real())
		return -1;
	PASS_TO_REAL(connect(cm, conn_param));
	int ret;

	engine_lock();
	ret = start_connecting(to_cm_id(cm), conn_param);
	return id_complete(to_cm_id(cm), ret);
}

/* The queue pair receives before the peer knows its number. */
static int prepare_roce(struct cm_id *id, const struct conn_wish *w)
{
	roce_accepting(id, w);
	return id->has_qp ? roce_to_rts(id) : 0;
}

static int accept_request(struct cm_id *id, const struct rdma_conn_param *param)
{
	struct conn_wish wish = {0};
	int err;

	if (id->state != ID_REQUESTED || !id->conn)
		return id_error(id, EINVAL, "there is no request to accept");
	if (choose_qp(id, param, &wish) ||
	    make_wish(id, param, id->peer_ird, id->peer_ord, CM_REP_PRIVATE, &wish))
		return -1;
	err = id->face == FACE_ROCE ? prepare_roce(id, &wish) : 0;
	if (!err)
		err = conn_accept(id->conn, &wish);
	if (err && id->face == FACE_ROCE)
		roce_to_err(id);
	if (err)
		return id_error(id, -err, "accept");
	return 0;
}

STAG_EXPORT int rdma_accept(struct rdma_cm_id *cm, struct rdma_conn_param *conn_param)
{
	PASS_TO_REAL(accept(cm, conn_param));
	int ret;

	engine_lock();
	if (is_ud(to_cm_id(cm))) {
		ret = ud_accept(to_cm_id(cm), conn_param);
		engine_unlock();
		return ret;
	}
	ret = accept_request(to_cm_id(cm), conn_param);
	return id_complete(to_cm_id(cm), ret);
}

static int reject_request(struct cm_id *id, const void *data, uint8_t len)
{
	struct conn_wish wish = {.private_len = data ? len : 0};
	int err;

	if (is_ud(id))
		return ud_reject(id, data, len);
	if (id->state != ID_REQUESTED || !id->conn)
		return id_error(id, EINVAL, "there is no request to reject");
	if (id->face == FACE_ROCE && wish.private_len > CM_REJ_PRIVATE)
		return id_error(id, EINVAL, "more than %u bytes of private data", CM_REJ_PRIVATE);
	if (wish.private_len)
		memcpy(wish.private_data, data, wish.private_len);
	err = conn_send_reject(id->conn, &wish);
	if (err)
		return id_error(id, -err, "reject");
	id_set_state(id, ID_CLOSED);
	return 0;
}

STAG_EXPORT int rdma_reject(struct rdma_cm_id *cm, const void *private_data,
			    uint8_t private_data_len)
{
	PASS_TO_REAL(reject(cm, private_data, private_data_len));
	int ret;

	engine_lock();
	ret = reject_request(to_cm_id(cm), private_data, private_data_len);
	engine_unlock();
	return ret;
}

STAG_EXPORT int rdma_reject_ece(struct rdma_cm_id *cm, const void *private_data,
				uint8_t private_data_len)
{
	PASS_TO_REAL(reject_ece(cm, private_data, private_data_len));
	return rdma_reject(cm, private_data, private_data_len);
}

STAG_EXPORT int rdma_establish(struct rdma_cm_id *cm)
{
	PASS_TO_REAL(establish(cm));
	struct cm_id *id = to_cm_id(cm);
	int err = -EINVAL;

	engine_lock();
	if (id->state == ID_ANSWERED)
		err = conn_establish(id->conn);
	if (!err)
		id_set_state(id, ID_CONNECTED);
	else if (!cm->qp && id->state == ID_CONNECTED && id->face == FACE_IWARP)
		err = 0; /* MPA has established it already */
	engine_unlock();
	if (err)
		return id_error(id, EINVAL,
				"establishing requires a reply, and an id without a queue pair");
	return 0;
}

STAG_EXPORT int rdma_notify(struct rdma_cm_id *cm, enum ibv_event_type event)
{
	PASS_TO_REAL(notify(cm, event));
	struct cm_id *id = to_cm_id(cm);

	engine_lock();
	/* a message that came before the peer's RTU is as good; connections of iWARP do not depend on it */
	if (event == IBV_EVENT_COMM_EST && id->state == ID_ACCEPTING && id->face == FACE_ROCE)
		conn_establish(id->conn);
	engine_unlock();
	return 0;
}

/* ---- disconnect -------------------------------------------------------- */

static void disconnect_live(struct cm_id *id)
{
	struct stag_qp *qp;

	if (id->disconnecting)
		return;
	id->disconnecting = true;
	if (id->face == FACE_ROCE) {
		roce_to_err(id);
		conn_disconnect(id->conn);
		return;
	}
	qp = id_qp(id);
	if (!qp) /* destroyed without the id's knowledge: no other event will come */
		on_disconnected(id);
	else if (qp_disconnect(qp))
		log_debug("cm %u: queue pair %u is already disconnected", id->num, id->qpn);
}

/* Returns 0 if an event follows or is queued, 1 if none will come, or -1 and errno. */
static int disconnect_id(struct cm_id *id)
{
	if (is_ud(id))
		return ud_disconnect(id);
	switch (id->state) {
	case ID_CONNECTED:
	case ID_ACCEPTING:
		disconnect_live(id);
		return 0;
	case ID_CONNECTING:
	case ID_ANSWERED:
		conn_destroy(id->conn);
		id_failed(id, -ECONNABORTED, NULL);
		return 0;
	case ID_LEFT:
		roce_to_err(id);
		id_set_state(id, ID_CLOSED);
		event_post(id, RDMA_CM_EVENT_TIMEWAIT_EXIT, 0);
		return 0;
	case ID_REQUESTED:
		return 1;
	case ID_CLOSED:
		return event_pending(id) ? 0 : 1;
	case ID_IDLE:
	case ID_BOUND:
	case ID_ADDR_RESOLVED:
	case ID_ROUTE_RESOLVED:
	case ID_LISTENING:
		break;
	}
	return id_error(id, EINVAL, "the id is not connected");
}

STAG_EXPORT int rdma_disconnect(struct rdma_cm_id *cm)
{
	PASS_TO_REAL(disconnect(cm));
	int ret;

	engine_lock();
	ret = id_complete(to_cm_id(cm), disconnect_id(to_cm_id(cm)));
	return ret < 0 ? ret : 0;
}
