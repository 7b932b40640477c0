// SPDX-License-Identifier: BSD-2-Clause
/*
 * tcp_tx.c - PDUs to a socket: headers and data are gathered, many PDUs per system call.
 */
#include "block/target/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/crc32c.h"

#define GATHER 128

/* ---- the queue ---------------------------------------------------------------------- */

static bool has_header_digest(const struct target_conn *c)
{
	return c->session && c->session->keys.header_digest == DIGEST_CRC32C;
}

static bool has_data_digest(const struct target_conn *c)
{
	return c->session && c->session->keys.data_digest == DIGEST_CRC32C;
}

static void fill_head(const struct target_conn *c, struct target_tcp_pdu *o, struct pdu *p)
{
	p->data_len = o->data_len;
	iscsi_pdu_encode(p, o->head);
	o->head_len = BHS_LEN;
	if (!has_header_digest(c))
		return;
	crc32c_put(o->head + BHS_LEN, crc32c_update(CRC32C_INIT, o->head, BHS_LEN));
	o->head_len += DIGEST_LEN;
}

static void fill_tail(const struct target_conn *c, struct target_tcp_pdu *o)
{
	uint32_t crc = CRC32C_INIT;

	o->tail_len = iscsi_pdu_pad(o->data_len);
	memset(o->tail, 0, o->tail_len);
	if (!has_data_digest(c) || o->data_len == 0)
		return;
	crc = crc32c_update(crc, o->data, o->data_len);
	crc = crc32c_update(crc, o->tail, o->tail_len);
	crc32c_put(o->tail + o->tail_len, crc);
	o->tail_len += DIGEST_LEN;
}

/* Queues a PDU without copying its data. Returns NULL if memory runs out: the connection is marked as broken. */
static struct target_tcp_pdu *enqueue(struct target_tcp *t, struct pdu *p, const uint8_t *data,
				      uint32_t len)
{
	struct target_tcp_pdu *o = malloc(sizeof(*o));

	target_conn_dirty(&t->conn);
	if (!o) {
		t->broken = true;
		return NULL;
	}
	o->piece = NULL;
	o->copied = NULL;
	o->sent = 0;
	o->data = data;
	o->data_len = len;
	fill_head(&t->conn, o, p);
	fill_tail(&t->conn, o);
	list_add_tail(&t->tx.queue, &o->link);
	t->tx.n++;
	return o;
}

static void dequeue(struct target_tcp *t, struct target_tcp_pdu *o)
{
	list_del(&o->link);
	t->tx.n--;
	if (o->copied)
		t->tx.copied -= o->data_len;
	free(o->copied);
	free(o);
}

void target_tcp_send(struct target_conn *c, struct pdu *p, const void *data, uint32_t len)
{
	struct target_tcp *t = to_tcp(c);
	uint8_t *copy = NULL;
	struct target_tcp_pdu *o;

	if (c->state == CONN_DEAD)
		return;
	if (len > TX_INLINE) {
		copy = malloc(len);
		if (!copy) {
			t->broken = true;
			target_conn_dirty(c);
			return;
		}
		memcpy(copy, data, len);
	}
	o = enqueue(t, p, copy ? copy : data, len);
	if (!o) {
		free(copy);
		return;
	}
	o->copied = copy;
	t->tx.copied += copy ? len : 0;
	if (copy || len == 0)
		return;
	memcpy(o->small, data, len);
	o->data = o->small;
}

bool target_tcp_tx_is_full(const struct target_tcp *t)
{
	return t->tx.n >= TX_MAX_PDUS || t->tx.copied >= TX_MAX_BYTES;
}

/* ---- tasks ----------------------------------------------------------------------------- */

void target_tcp_respond(struct target_task *k, struct pdu *p, const void *data, uint32_t len)
{
	p->data_sn = k->data_sn + k->r2t_sn;
	target_tcp_send(k->session->conn, p, data, len);
}

/* Queues one Data-In: bytes [at, at + len) of a piece. */
static void send_part(struct target_piece *p, uint32_t at, uint32_t len, bool with_status)
{
	struct target_task *k = p->task;
	struct target_tcp *t = to_tcp(k->session->conn);
	bool last = at + len == p->len;
	bool burst_ends = (p->offset + at + len) % k->session->keys.max_burst == 0;
	struct pdu d = {.opcode = DATA_IN,
			.itt = k->itt,
			.ttt = TAG_NONE,
			.data_sn = k->data_sn++,
			.offset = p->offset + at};
	struct target_tcp_pdu *o;

	if (last && with_status) {
		d.flags = DATA_STATUS;
		target_task_fill(k, &d);
	}
	if (burst_ends || (last && p->offset + p->len == k->total))
		d.flags |= PDU_FINAL;
	target_conn_number(&t->conn, &d, last && with_status);
	if (!(last && with_status))
		d.stat_sn = 0;
	o = enqueue(t, &d, p->bytes + at, len);
	if (o && last)
		o->piece = p;
}

/* A PDU is limited by MaxRecvDataSegmentLength of the initiator, and by the end of the burst. */
static uint32_t part_len(const struct target_piece *p, uint32_t at)
{
	const struct keys *keys = &p->task->session->keys;
	uint32_t burst = keys->max_burst - (p->offset + at) % keys->max_burst;
	uint32_t len = p->len - at;

	len = len < keys->peer_recv_max ? len : keys->peer_recv_max;
	return len < burst ? len : burst;
}

static bool is_last_of_queue(const struct target_tcp *t, const struct target_piece *p)
{
	return !list_empty(&t->tx.queue) &&
	       list_entry(t->tx.queue.prev, struct target_tcp_pdu, link)->piece == p;
}

void target_tcp_data_in(struct target_piece *p, bool with_status)
{
	struct target_tcp *t = to_tcp(p->task->session->conn);
	uint32_t len;

	for (uint32_t at = 0; at < p->len; at += len) {
		len = part_len(p, at);
		send_part(p, at, len, with_status);
	}
	if (t->broken && !is_last_of_queue(t, p))
		target_piece_moved(p, -ECANCELED); /* no queued PDU will return it */
}

/* ---- R2T ---------------------------------------------------------------------------------- */

static void send_r2t(struct target_task *k, struct target_piece *p)
{
	struct target_session *s = k->session;
	struct pdu r = {.opcode = R2T,
			.flags = PDU_FINAL,
			.lun = k->cmd.lun,
			.itt = k->itt,
			.data_sn = k->r2t_sn++,
			.offset = p->offset + p->got,
			.length = p->len - p->got};

	if (r.length > s->keys.max_burst)
		r.length = s->keys.max_burst;
	p->ttt = r.ttt = target_session_ttt(s);
	p->asked_end = p->got + r.length;
	p->data_sn = 0;
	p->asked = true;
	k->r2ts++;
	s->awaiting++;
	target_conn_send(s->conn, &r, NULL, 0);
}

void target_tcp_send_r2ts(struct target_task *k)
{
	list_for_each (it, &k->wanted) {
		struct target_piece *p = list_entry(it, struct target_piece, wait);

		if (k->r2ts >= k->session->keys.max_r2t)
			return;
		if (!p->asked)
			send_r2t(k, p);
	}
}

void target_tcp_data_out(struct target_piece *p)
{
	list_add_tail(&p->task->wanted, &p->wait);
	target_tcp_send_r2ts(p->task);
}

/* ---- the socket ------------------------------------------------------------------------------ */

/* Adds the unsent rest of the part of a PDU that begins at *at. */
static int add_part(struct iovec *iov, int n, const struct target_tcp_pdu *o, uint32_t *at,
		    const void *bytes, uint32_t len)
{
	uint32_t from = *at, end = from + len;

	*at = end;
	if (o->sent >= end || len == 0)
		return n;
	from = o->sent > from ? o->sent - from : 0;
	iov[n] = (struct iovec){(uint8_t *)bytes + from, len - from};
	return n + 1;
}

static int gather(const struct target_tcp *t, struct iovec iov[GATHER])
{
	int n = 0;

	list_for_each (it, &t->tx.queue) {
		const struct target_tcp_pdu *o = list_entry(it, struct target_tcp_pdu, link);
		uint32_t at = 0;

		if (n > GATHER - 3)
			break;
		n = add_part(iov, n, o, &at, o->head, o->head_len);
		n = add_part(iov, n, o, &at, o->data, o->data_len);
		n = add_part(iov, n, o, &at, o->tail, o->tail_len);
	}
	return n;
}

/* Removes n sent bytes from the queue. */
static void advance(struct target_tcp *t, size_t n)
{
	while (n) {
		struct target_tcp_pdu *o =
			list_entry(t->tx.queue.next, struct target_tcp_pdu, link);
		uint32_t left = o->head_len + o->data_len + o->tail_len - o->sent;
		struct target_piece *p = o->piece;

		if (n < left) {
			o->sent += (uint32_t)n;
			return;
		}
		n -= left;
		dequeue(t, o);
		if (p)
			target_piece_moved(p, 0);
	}
}

/*
 * Sends as sendmsg() does, with errno. Of what a full socket left, some may be encrypted: the queue begins with the same
 * bytes then, as PDUs leave it only when they are sent.
 */
static ssize_t send_tls(struct target_tcp *t, const struct iovec *iov, int n)
{
	ssize_t sent = tls_sendv(t->tls, iov, n);

	if (sent >= 0)
		return sent;
	errno = (int)-sent;
	return -1;
}

int target_tcp_write(struct target_tcp *t)
{
	struct iovec iov[GATHER];
	struct msghdr m = {.msg_iov = iov};

	while (!list_empty(&t->tx.queue) && !t->tx.blocked) {
		ssize_t n;

		m.msg_iovlen = (size_t)gather(t, iov);
		n = t->tls ? send_tls(t, iov, (int)m.msg_iovlen)
			   : sendmsg(t->watch.fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			t->tx.blocked = true;
			break;
		}
		if (n < 0)
			return -errno;
		advance(t, (size_t)n);
	}
	return 0;
}

void target_tcp_tx_drop(struct target_tcp *t)
{
	while (!list_empty(&t->tx.queue)) {
		struct target_tcp_pdu *o =
			list_entry(t->tx.queue.next, struct target_tcp_pdu, link);
		struct target_piece *p = o->piece;

		dequeue(t, o);
		if (p)
			target_piece_moved(p, -ECANCELED);
	}
}
