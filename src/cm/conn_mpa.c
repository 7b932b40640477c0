// SPDX-License-Identifier: BSD-2-Clause
/*
 * conn_mpa.c - the Request and the Reply of MPA (RFC 5044 §7.1), which connect queue pairs of stag0.
 *
 * A frame is read to its last byte and no further: bytes that a peer sends early after a Reply stay in the socket, for
 * the queue pair.
 */
#include "cm/conn.h"

#include <string.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "base/crc32c.h"

static int put_frame(struct conn *c, const struct mpa_frame *f)
{
	int len = mpa_encode(f, c->tx, sizeof(c->tx));

	if (len < 0)
		return len;
	c->tx_len = (size_t)len;
	c->tx_off = 0;
	return 0;
}

static size_t frame_rest(const struct conn *c)
{
	size_t whole = MPA_FRAME_LEN;

	/* mpa_decode() has checked that the length is valid */
	if (c->rx_len >= MPA_FRAME_LEN)
		whole += get_be16(c->rx + MPA_FRAME_LEN - sizeof(uint16_t));
	return whole - c->rx_len;
}

/*
 * Reads more bytes. Returns 0 if a frame is complete, -EAGAIN, -ENODATA at the end of the stream,
 * -EPROTO, or -errno.
 */
static int read_frame(struct conn *c, bool want_reply)
{
	int ret;

	do {
		struct iovec iov = {.iov_base = c->rx + c->rx_len, .iov_len = frame_rest(c)};
		ssize_t n = c->stream->ops->recv(c->stream, &iov, 1);

		if (n < 0)
			return (int)n;
		if (!n)
			return -ENODATA;
		c->rx_len += (size_t)n;
		ret = mpa_decode(c->rx, c->rx_len, want_reply, &c->peer);
	} while (ret == -EAGAIN);
	return ret < 0 ? ret : 0;
}

/*
 * The peer closed the connection on our Request. RFC 6581 §4.3: it may support revision 1 only; or
 * it rejects the reserved bit of our offer. Retries once, with neither.
 */
static bool retry_plain_request(struct conn *c)
{
	if (c->form != REQUEST_ENHANCED || c->rx_len || c->stream->tls)
		return false;
	conn_log_peer(c, -ECONNRESET,
		      "closed the connection on our Request: retrying with a plain one");
	conn_drop_stream(c, RESET);
	c->form = REQUEST_PLAIN;
	c->dialled_again = true;
	c->was_reset = true; /* this is the last attempt */
	return conn_dial(c) == 0;
}

static void hung_up(struct conn *c, int err)
{
	if (!conn_retry(c, err) && !retry_plain_request(c))
		conn_lost(c, -ECONNRESET, "closed the connection");
}

static void send_request(struct conn *c)
{
	int err;

	conn_set_state(c, CONN_REPLY);
	list_del(&c->link);
	c->wish.encrypted = c->stream->tls != NULL;
	negotiate_request(&c->wish, c->form, &c->ours);
	err = put_frame(c, &c->ours);
	if (!err)
		err = conn_flush(c);
	if (!conn_request_sent(c, err))
		hung_up(c, -ECONNRESET);
}

/* Sends a Terminate message as the only FPDU of a stream that is not established (RFC 6581 §8). */
static void send_terminate(struct conn *c, struct wire_fault fault)
{
	struct ddp_hdr h = {.last = true, .opcode = RDMAP_TERMINATE, .qn = QN_TERMINATE, .msn = 1};
	uint8_t fpdu[MPA_LEN_FIELD + DDP_UNTAGGED_LEN + TERMINATE_MAX + 3 + MPA_CRC_LEN] = {0};
	uint8_t raw[sizeof(fpdu) + MARKER_LEN];
	struct iovec iov = {.iov_base = raw};
	struct terminate t;
	size_t len = MPA_LEN_FIELD, total;

	terminate_init(&t, fault, NULL, 0, 0);
	len += ddp_encode(&h, fpdu + len);
	len += terminate_encode(&t, fpdu + len);
	put_be16(fpdu, (uint16_t)(len - MPA_LEN_FIELD));
	total = fpdu_len(len - MPA_LEN_FIELD);
	if (c->peer.flags & MPA_MARKERS)
		iov.iov_len = markers_insert(0, fpdu, total, raw);
	else
		iov.iov_len = (memcpy(raw, fpdu, total), total);
	if ((c->ours.flags | c->peer.flags) & MPA_CRC)
		crc32c_put(raw + iov.iov_len - MPA_CRC_LEN,
			   crc32c_update(CRC32C_INIT, raw, iov.iov_len - MPA_CRC_LEN));
	c->stream->ops->send(c->stream, &iov, 1);
}

static void rejected(struct conn *c)
{
	struct rdma_conn_param told;

	negotiate_param(&c->peer, &told);
	id_failed(c->id, -ECONNREFUSED, &told);
	conn_free(c, PEACE);
}

static void refuse(struct conn *c, struct wire_fault fault)
{
	log_info("cm %u: the Reply is not acceptable: %s", c->id->num, wire_fault_str(fault));
	send_terminate(c, fault);
	id_failed(c->id, -EINVAL, NULL);
	conn_free(c, PEACE);
}

static void replied(struct conn *c)
{
	struct rdma_conn_param told;
	struct cm_id *id = c->id;
	struct wire_fault fault;
	struct qp_link link;
	int err;

	if (c->peer.flags & MPA_REJECT) {
		rejected(c);
		return;
	}
	fault = negotiate_link(&c->ours, &c->peer, &c->wish, &link);
	if (fault.set) {
		refuse(c, fault);
		return;
	}
	if (c->dialled_again)
		conn_show_source(id, c->stream->fd);
	err = id_attach(id, conn_take_stream(c), &link);
	negotiate_param(&c->peer, &told);
	if (err)
		id_failed(id, err, NULL);
	else
		id_connected(id, &told);
	conn_free(c, PEACE);
}

/* A server that refuses our certificate says so now, after our part of the handshake. */
static void tls_reply_failed(struct conn *c, int err)
{
	if (*stream_tls_why(c->stream))
		conn_log_tls(c, stream_tls_why(c->stream));
	if (err == -ENODATA)
		err = -ECONNRESET;
	if (!conn_retry(c, err))
		conn_lost(c, err, "sent no valid Reply");
}

/* A listener that serves roce0 only says so in its own protocol. */
static void refused_transport(struct conn *c)
{
	conn_log_other_face(c, FACE_ROCE);
	id_failed(c->id, -ECONNREFUSED, NULL);
	conn_free(c, RESET);
}

static void step_reply(struct conn *c)
{
	int err;

	if (c->tx_off < c->tx_len && !conn_request_sent(c, conn_flush(c))) {
		hung_up(c, -ECONNRESET);
		return;
	}
	err = read_frame(c, true);
	if (err == -EAGAIN)
		return;
	if (err == -EPROTO && c->rx[0] == CM_MESSAGE_FIRST)
		refused_transport(c);
	else if (err == -EPROTO && !c->stream->tls)
		conn_lost(c, err, "sent no valid Reply");
	else if (err && c->stream->tls)
		tls_reply_failed(c, err);
	else if (err)
		hung_up(c, err);
	else
		replied(c);
}

static int read_request(struct conn *c)
{
	return read_frame(c, false);
}

static void present(struct conn *c, struct cm_id *child, struct rdma_conn_param *told)
{
	negotiate_param(&c->peer, told);
}

static int accept_request(struct conn *c, const struct conn_wish *w)
{
	struct conn_wish wish = *w;

	wish.encrypted = c->stream->tls != NULL;
	negotiate_reply(&c->peer, &wish, &c->ours, &c->agreed);
	return put_frame(c, &c->ours);
}

static int reject_request(struct conn *c, const struct conn_wish *w)
{
	negotiate_reject(&c->peer, w, &c->ours);
	return put_frame(c, &c->ours);
}

/* The stream is the queue pair's from now on. */
static int accepted(struct conn *c)
{
	struct cm_id *id = c->id;
	struct qp_link link = c->agreed;
	struct stream *s = conn_take_stream(c);
	int err;

	conn_free(c, PEACE);
	err = id_attach(id, s, &link);
	if (!err)
		id_accepted(id, &link);
	return err;
}

const struct conn_protocol conn_mpa = {
	.face = FACE_IWARP,
	.send_request = send_request,
	.step_reply = step_reply,
	.read_request = read_request,
	.present = present,
	.accept = accept_request,
	.reject = reject_request,
	.accepted = accepted,
};
