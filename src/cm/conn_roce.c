// SPDX-License-Identifier: BSD-2-Clause
/*
 * conn_roce.c - the messages that connect queue pairs of roce0 (cm_message.h), from the REQ to the end.
 *
 * The TCP connection lasts as long as the ids are connected: a process that ends closes it, and its peer learns of it as
 * from a DREQ. The queue pairs have a stream of their own, once they need one (adapter/reach.h).
 *
 * A DREQ is answered at once, without the program: the one that disconnects waits for no program but itself.
 */
#include "cm/conn.h"

#include <assert.h>
#include <string.h>
#include <sys/epoll.h>

#include "adapter/gid.h"
#include "base/clock.h"

/* ---- messages ---------------------------------------------------------- */

static void put_message(struct conn *c, const struct cm_message *m)
{
	cm_message_encode(m, c->tx);
	c->tx_len = CM_MESSAGE_LEN;
	c->tx_off = 0;
}

/* Sends a message for which the socket has room, unless the peer misbehaves. */
static bool say(struct conn *c, enum cm_kind kind, enum cm_reason reason)
{
	struct cm_message m = {.kind = (uint8_t)kind, .reason = (uint16_t)reason};

	if (c->tx_off < c->tx_len)
		return false;
	put_message(c, &m);
	return !conn_flush(c);
}

/* Reads more of a message. Returns 0 when it is whole, in theirs; -EAGAIN; -ENODATA at the end of the stream; -errno. */
static int read_message(struct conn *c)
{
	int ret;

	do {
		struct iovec iov = {.iov_base = c->rx + c->rx_len,
				    .iov_len = CM_MESSAGE_LEN - c->rx_len};
		ssize_t n = c->stream->ops->recv(c->stream, &iov, 1);

		if (n < 0)
			return (int)n;
		if (!n)
			return -ENODATA;
		c->rx_len += (size_t)n;
		ret = cm_message_decode(c->rx, c->rx_len, &c->theirs);
	} while (ret == -EAGAIN);
	if (ret < 0)
		return ret;
	c->rx_len = 0;
	return 0;
}

void conn_refuse_transport(struct conn *c)
{
	say(c, CM_REJ, CM_REJ_TRANSPORT);
}

/* Fills in what the program sees of a message: all of its private data, with the zeroes behind what was sent. */
static void param_of(const struct cm_message *m, struct rdma_conn_param *p)
{
	*p = (struct rdma_conn_param){
		.private_data = m->private_data,
		.private_data_len = (uint8_t)cm_message_private(m->kind),
	};
	if (m->kind != CM_REQ && m->kind != CM_REP)
		return;
	p->responder_resources = roce_depth(m->initiator_depth);
	p->initiator_depth = roce_depth(m->responder_resources);
	p->flow_control = m->flow_control;
	p->retry_count = m->kind == CM_REQ ? m->retry_count : 0;
	p->rnr_retry_count = m->rnr_retry_count;
	p->srq = m->srq;
	p->qp_num = m->qpn;
}

/*
 * A peer names the address of its queue pair, which need not be the one that it connects from. But a peer on another host
 * must not name an address of this one: we would connect to ourselves.
 */
static bool is_possible_gid(const struct conn *c, const uint8_t raw[16])
{
	static const union ibv_gid none6, none4 = {.raw = {[10] = 0xff, [11] = 0xff}};
	union ibv_gid gid, from;

	memcpy(gid.raw, raw, sizeof(gid.raw));
	if (gid_is_equal(&gid, &none6) || gid_is_equal(&gid, &none4))
		return false;
	gid_from_addr((const struct sockaddr *)&c->stream->peer, &from);
	return !gid_is_local(&gid) || gid_is_local(&from);
}

/* ---- the active side --------------------------------------------------- */

static void hung_up(struct conn *c, int err)
{
	if (!conn_retry(c, err))
		conn_lost(c, -ECONNRESET,
			  "closed the connection on our request; a listener that speaks iWARP only "
			  "does "
			  "that (stag run --device iwarp)");
}

static void send_request(struct conn *c)
{
	struct cm_message m;
	int err;

	conn_set_state(c, CONN_REPLY);
	list_del(&c->link);
	roce_request(c->id, &c->wish, &m);
	put_message(c, &m);
	err = conn_flush(c);
	if (!conn_request_sent(c, err))
		hung_up(c, -ECONNRESET);
}

/* Ends a set-up by the peer's REJ, or by something that is as good as one: then m is NULL. */
static void refused(struct conn *c, const struct cm_message *m)
{
	struct rdma_conn_param told = {.private_data = NULL};
	struct cm_id *id = c->id;
	int reason = m ? m->reason : CM_REJ_APPLICATION;

	if (m)
		param_of(m, &told);
	if (reason == CM_REJ_TRANSPORT)
		conn_log_other_face(c, FACE_IWARP);
	id_refused(id, reason, &told);
	conn_free(c, PEACE);
}

static void take_reply(struct conn *c)
{
	struct rdma_conn_param told;
	struct cm_id *id = c->id;
	int err;

	param_of(&c->theirs, &told);
	timer_cancel(&c->timer);
	if (c->dialled_again)
		conn_show_source(id, c->stream->fd);
	roce_replied(id, &c->theirs);
	if (!id->has_qp) { /* the program moves its own, and calls rdma_establish() */
		conn_set_state(c, CONN_REPLIED);
		id_answered(id, &told);
		return;
	}
	err = roce_to_rts(id);
	if (!err && !say(c, CM_RTU, 0))
		err = -ECONNRESET;
	if (!err) {
		conn_set_state(c, CONN_LIVE);
		id_connected(id, &told);
		return;
	}
	say(c, CM_REJ, CM_REJ_APPLICATION);
	id_failed(id, err, NULL);
	conn_free(c, PEACE);
}

static void on_answer(struct conn *c)
{
	if (c->theirs.kind == CM_REJ)
		refused(c, &c->theirs);
	else if (c->theirs.kind == CM_REP && is_possible_gid(c, c->theirs.gid))
		take_reply(c);
	else
		conn_lost(c, -EPROTO, "sent no valid answer");
}

static void step_reply(struct conn *c)
{
	int err;

	if (c->tx_off < c->tx_len && !conn_request_sent(c, conn_flush(c))) {
		hung_up(c, -ECONNRESET);
		return;
	}
	err = read_message(c);
	if (err == -EAGAIN)
		return;
	if (err == -EPROTO)
		conn_lost(c, err, "sent no valid answer");
	else if (err)
		hung_up(c, err == -ENODATA ? -ECONNRESET : err);
	else
		on_answer(c);
}

/* ---- the passive side -------------------------------------------------- */

static int read_request(struct conn *c)
{
	int err = read_message(c);

	if (err)
		return err;
	if (c->theirs.kind != CM_REQ || !is_possible_gid(c, c->theirs.gid))
		return -EPROTO;
	if (c->theirs.space == roce_space(c->listener->id))
		return 0;
	say(c, CM_REJ, CM_REJ_NO_SERVICE);
	return -EPROTONOSUPPORT;
}

static void present(struct conn *c, struct cm_id *child, struct rdma_conn_param *told)
{
	param_of(&c->theirs, told);
	roce_requested(child, &c->theirs);
}

static int accept_request(struct conn *c, const struct conn_wish *w)
{
	struct cm_message m;

	roce_reply(c->id, w, &m);
	put_message(c, &m);
	return 0;
}

static int reject_request(struct conn *c, const struct conn_wish *w)
{
	struct cm_message m = {.kind = CM_REJ, .reason = CM_REJ_APPLICATION};

	memcpy(m.private_data, w->private_data, w->private_len);
	put_message(c, &m);
	return 0;
}

static int accepted(struct conn *c)
{
	conn_set_state(c, CONN_AWAIT_RTU);
	timer_set(&c->timer, clock_ns() + config()->connect_timeout_ms * NS_PER_MS, conn_late);
	watch_mod(&c->watch, EPOLLIN);
	id_awaits_peer(c->id);
	return 0;
}

/* ---- connected, and the end -------------------------------------------- */

static void established(struct conn *c)
{
	timer_cancel(&c->timer);
	conn_set_state(c, CONN_LIVE);
	id_accept_done(c->id);
}

int conn_establish(struct conn *c)
{
	assert(engine_locked());
	if (c->state == CONN_AWAIT_RTU) {
		established(c);
		return 0;
	}
	if (c->state != CONN_REPLIED || !say(c, CM_RTU, 0))
		return -EINVAL;
	conn_set_state(c, CONN_LIVE);
	return 0;
}

/* The peer has disconnected, or its process has ended. */
static void peer_left(struct conn *c)
{
	struct cm_id *id = c->id;

	conn_free(c, PEACE);
	id_peer_left(id);
}

/* The end of a connection that the program disconnected. */
static void ended(struct conn *c, int status)
{
	struct cm_id *id = c->id;

	conn_free(c, PEACE);
	id_ended(id, status);
}

void conn_disconnect(struct conn *c)
{
	assert(engine_locked());
	if (!say(c, CM_DREQ, 0)) {
		ended(c, 0);
		return;
	}
	conn_set_state(c, CONN_LEAVING);
	timer_set(&c->timer, clock_ns() + config()->connect_timeout_ms * NS_PER_MS, conn_late);
}

/* The connection is gone, or the peer says what makes no sense: both are as good as its last message. */
static void lost(struct conn *c)
{
	switch (c->state) {
	case CONN_REPLIED:
	case CONN_AWAIT_RTU:
		refused(c, NULL);
		break;
	case CONN_LEAVING:
		ended(c, 0);
		break;
	default:
		peer_left(c);
		break;
	}
}

static void take_message(struct conn *c)
{
	uint8_t kind = c->theirs.kind;

	if (kind == CM_RTU && c->state == CONN_AWAIT_RTU) {
		established(c);
		return;
	}
	/* one that a message of ours, or the program's rdma_notify(), has overtaken */
	if (kind == CM_RTU && c->state != CONN_REPLIED)
		return;
	if (kind == CM_REJ && (c->state == CONN_AWAIT_RTU || c->state == CONN_REPLIED)) {
		refused(c, &c->theirs);
		return;
	}
	if (kind == CM_DREQ)
		say(c, CM_DREP, 0);
	lost(c);
}

static void step(struct conn *c)
{
	int err = read_message(c);

	if (err == -EAGAIN)
		return;
	if (err)
		lost(c);
	else
		take_message(c);
}

static void late(struct conn *c)
{
	struct cm_id *id = c->id;

	if (c->state == CONN_LEAVING) {
		ended(c, -ETIMEDOUT);
		return;
	}
	conn_log_peer(c, -ETIMEDOUT, "did not confirm the connection");
	conn_free(c, RESET);
	id_failed(id, -ETIMEDOUT, NULL);
}

/* The id is destroyed. */
static void hang_up(struct conn *c)
{
	if (c->state == CONN_LIVE)
		say(c, CM_DREQ, 0);
	else if (c->state == CONN_REPLIED || c->state == CONN_AWAIT_RTU)
		say(c, CM_REJ, CM_REJ_APPLICATION);
	conn_free(c, c->state < CONN_REPLIED ? RESET : PEACE);
}

const struct conn_protocol conn_roce = {
	.face = FACE_ROCE,
	.send_request = send_request,
	.step_reply = step_reply,
	.read_request = read_request,
	.present = present,
	.accept = accept_request,
	.reject = reject_request,
	.accepted = accepted,
	.step = step,
	.late = late,
	.hang_up = hang_up,
};
