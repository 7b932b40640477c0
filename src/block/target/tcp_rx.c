// SPDX-License-Identifier: BSD-2-Clause
/*
 * tcp_rx.c - PDUs from a socket: each header determines where the data behind it goes.
 *
 * Back-pressure: a connection is not read while there is no buffer for the data of the command that has arrived, or
 * while the peer does not receive what it is sent. But a connection does not wait for a buffer while other tasks of its
 * own hold buffers and wait for data that follows this command in the stream, which could deadlock: then the command
 * ends with TASK SET FULL, and its data is dropped.
 */
#include "block/target/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/crc32c.h"

#define LOGIN_DATA_MAX TEXT_MAX
#define READ_ROUNDS    16 /* system calls before other connections get their turn */

enum rx_result { RX_GO_ON, RX_NEEDS_BYTES, RX_STOPS };

static struct target_session *session_of(const struct target_tcp *t)
{
	return t->conn.session;
}

static uint32_t buffered(const struct target_tcp *t)
{
	return t->rx.tail - t->rx.head;
}

static uint32_t header_digest_len(const struct target_tcp *t)
{
	return session_of(t) && session_of(t)->keys.header_digest ? DIGEST_LEN : 0;
}

static uint32_t tail_len(const struct target_tcp *t)
{
	uint32_t n = t->rx.pdu.data_len;

	return iscsi_pdu_pad(n) +
	       (n && session_of(t) && session_of(t)->keys.data_digest ? DIGEST_LEN : 0);
}

/* ---- where commands' data goes ----------------------------------------------------------- */

/* Ignores the PDU: its data is read, and dropped. */
static void ignore(struct target_tcp *t)
{
	t->rx.task = NULL;
	t->rx.to = NULL;
	t->rx.ignored = true;
	t->rx.state = RX_DATA;
}

static void reject(struct target_tcp *t, enum reject_reason why)
{
	target_conn_reject_violation(&t->conn, why, t->rx.bhs);
	ignore(t);
}

/* Gets a buffer for the command's data, waits for one, or lets the task fail without. */
static void place_first(struct target_tcp *t)
{
	struct target_task *k = t->rx.task;
	struct target_session *s = session_of(t);
	bool needed = t->rx.pdu.data_len || k->first_open;

	t->rx.state = RX_DATA;
	if (needed && !target_task_is_aborted(k) && k->fault != DATA_NO_MEMORY &&
	    target_task_first_buffer(k, s->awaiting ? NULL : &t->rx.wait) != 0) {
		if (!s->awaiting) {
			t->rx.state = RX_WAIT;
			return;
		}
		target_task_data_fault(k, DATA_NO_MEMORY);
	}
	t->rx.to = k->first ? k->first->bytes : NULL;
	s->awaiting += k->first_open;
}

static void place_command(struct target_tcp *t, const uint8_t *ahs)
{
	const struct pdu *p = &t->rx.pdu;
	struct target_session *s = session_of(t);
	struct target_task *k = target_session_admit(s, p, t->rx.bhs, ahs, NULL);

	if (!k) {
		ignore(t);
		return;
	}
	t->rx.task = k;
	if (p->flags & CMD_WRITE) {
		k->first_max =
			p->expected < s->keys.first_burst ? p->expected : s->keys.first_burst;
		k->first_open = !(p->flags & PDU_FINAL);
	}
	place_first(t);
}

/* ---- where Data-Outs go --------------------------------------------------------------------- */

static struct target_piece *find_solicited(struct target_task *k, uint32_t ttt)
{
	list_for_each (it, &k->wanted) {
		struct target_piece *p = list_entry(it, struct target_piece, wait);

		if (p->asked && p->ttt == ttt)
			return p;
	}
	return NULL;
}

/* RFC 7143 §7.9: a wrong DataSN is handled as a wrong digest: the task fails when all data has arrived. */
static bool place_unsolicited(struct target_tcp *t, struct target_task *k)
{
	const struct pdu *d = &t->rx.pdu;

	if (!k->first_open || d->offset != k->first_got ||
	    d->data_len > k->first_max - k->first_got)
		return false;
	if (d->data_sn != k->unsolicited_sn++)
		target_task_data_fault(k, DATA_DAMAGED);
	t->rx.to = k->first ? k->first->bytes + k->first_got : NULL;
	return true;
}

static bool place_solicited(struct target_tcp *t, struct target_task *k)
{
	const struct pdu *d = &t->rx.pdu;
	struct target_piece *p = find_solicited(k, d->ttt);

	if (!p || d->offset != p->offset + p->got || d->data_len > p->asked_end - p->got)
		return false;
	if (d->data_sn != p->data_sn++)
		target_task_data_fault(k, DATA_DAMAGED);
	t->rx.piece = p;
	t->rx.to = p->bytes + p->got;
	return true;
}

static void place_data(struct target_tcp *t)
{
	const struct pdu *d = &t->rx.pdu;
	struct target_task *k = target_session_find(session_of(t), d->itt);

	t->rx.piece = NULL;
	if (!k || target_task_is_aborted(k)) { /* aborted while the data was on its way */
		ignore(t);
		return;
	}
	t->rx.task = k;
	t->rx.state = RX_DATA;
	if (!(d->ttt == TAG_NONE ? place_unsolicited(t, k) : place_solicited(t, k))) {
		t->rx.task = NULL;
		target_conn_violation(&t->conn,
				      "Data-Out out of bounds or order: task 0x%x, %u bytes at %u",
				      d->itt, d->data_len, d->offset);
	}
}

/* ---- headers -------------------------------------------------------------------------------- */

static void place_control(struct target_tcp *t)
{
	t->rx.state = RX_DATA;
	t->rx.to = NULL;
	if (t->rx.pdu.data_len == 0)
		return;
	t->rx.to = t->rx.control = malloc(t->rx.pdu.data_len);
	if (!t->rx.control)
		target_conn_end(&t->conn);
}

static void place(struct target_tcp *t, int decoded, const uint8_t *ahs)
{
	struct target_conn *c = &t->conn;
	const struct pdu *p = &t->rx.pdu;
	uint32_t most = c->state == CONN_FULL ? c->target->config.rules.wishes.own_recv_max
					      : LOGIN_DATA_MAX;

	t->rx.task = NULL;
	t->rx.left = p->data_len;
	if (p->data_len > most)
		target_conn_violation(c, "%s of %u bytes", iscsi_pdu_name(p->opcode), p->data_len);
	else if (c->state != CONN_FULL)
		place_control(t);
	else if (decoded != 0 || !iscsi_pdu_from_initiator(p->opcode))
		reject(t, REJECT_NOT_SUPPORTED);
	else if (p->opcode == SCSI_COMMAND)
		place_command(t, ahs);
	else if (p->opcode == DATA_OUT)
		place_data(t);
	else
		place_control(t);
}

/*
 * Detects an RDMA connection request at a target without RDMA. It is shorter than a PDU, and its sender waits for a
 * reply: closing the connection lets it fall back.
 */
static bool is_rdma_request(const struct target_tcp *t)
{
	return t->conn.state == CONN_LOGIN && buffered(t) &&
	       is_rdma_first(t->rx.buffer[t->rx.head]);
}

static enum rx_result parse_header(struct target_tcp *t)
{
	uint8_t *h = t->rx.buffer + t->rx.head;
	uint32_t ahs, data, len;
	int decoded;

	if (is_rdma_request(t)) {
		target_conn_violation(&t->conn,
				      "RDMA connection request, but RDMA is not available");
		return RX_STOPS;
	}
	if (buffered(t) < BHS_LEN)
		return RX_NEEDS_BYTES;
	iscsi_pdu_lengths(h, &ahs, &data);
	len = BHS_LEN + ahs;
	if (buffered(t) < len + header_digest_len(t))
		return RX_NEEDS_BYTES;
	if (header_digest_len(t) && !crc32c_matches(h + len, crc32c_update(CRC32C_INIT, h, len))) {
		target_conn_violation(&t->conn, "wrong header digest");
		return RX_STOPS;
	}
	t->rx.head += len + header_digest_len(t);
	memcpy(t->rx.bhs, h, BHS_LEN);
	decoded = iscsi_pdu_decode(h, &t->rx.pdu);
	place(t, decoded, h + BHS_LEN);
	return RX_GO_ON;
}

/* ---- data ------------------------------------------------------------------------------------ */

static void count_data(struct target_tcp *t, uint32_t n)
{
	t->rx.left -= n;
	if (t->rx.to)
		t->rx.to += n;
	if (t->rx.task) /* ignored data is no progress */
		target_conn_moved(&t->conn, t->conn.target->loop.now, n);
}

static enum rx_result copy_data(struct target_tcp *t)
{
	uint32_t n = buffered(t) < t->rx.left ? buffered(t) : t->rx.left;

	if (t->rx.to)
		memcpy(t->rx.to, t->rx.buffer + t->rx.head, n);
	t->rx.head += n;
	count_data(t, n);
	if (t->rx.left)
		return RX_NEEDS_BYTES;
	t->rx.state = RX_TAIL;
	return RX_GO_ON;
}

/* Dropped data is not digest-checked. */
static bool digest_is_good(const struct target_tcp *t, const uint8_t *tail)
{
	uint32_t len = t->rx.pdu.data_len, pad = iscsi_pdu_pad(len), crc = CRC32C_INIT;

	if (tail_len(t) == pad || !t->rx.to)
		return true;
	crc = crc32c_update(crc, t->rx.to - len, len);
	return crc32c_matches(tail + pad, crc32c_update(crc, tail, pad));
}

/* ---- a whole PDU -------------------------------------------------------------------------------- */

static void deliver_command(struct target_tcp *t, bool good)
{
	struct target_task *k = t->rx.task;

	t->rx.task = NULL;
	if (!k)
		return;
	if (!good)
		target_task_data_fault(k, DATA_DAMAGED);
	target_task_unsolicited(k, t->rx.pdu.data_len, false);
	target_session_command(k);
}

static void finish_burst(struct target_tcp *t, struct target_task *k, struct target_piece *p)
{
	k->r2ts--;
	session_of(t)->awaiting--;
	p->asked = false;
	if (p->got == p->len)
		list_del(&p->wait);
	target_tcp_send_r2ts(k);
	if (p->got == p->len)
		target_piece_moved(p, 0);
}

static void deliver_solicited(struct target_tcp *t, struct target_task *k, struct target_piece *p)
{
	p->got += t->rx.pdu.data_len;
	if (p->got == p->asked_end)
		finish_burst(t, k, p);
	else if (t->rx.pdu.flags & PDU_FINAL)
		target_conn_violation(&t->conn, "a burst is shorter than its R2T");
}

static void deliver_data(struct target_tcp *t, bool good)
{
	const struct pdu *d = &t->rx.pdu;
	struct target_task *k = t->rx.task;

	t->rx.task = NULL;
	if (!k)
		return;
	if (!good) {
		target_conn_reject(&t->conn, REJECT_DATA_DIGEST, t->rx.bhs);
		target_task_data_fault(k, DATA_DAMAGED);
	}
	if (t->rx.piece) {
		deliver_solicited(t, k, t->rx.piece);
		return;
	}
	if (d->flags & PDU_FINAL)
		session_of(t)->awaiting--;
	target_task_unsolicited(k, d->data_len, d->flags & PDU_FINAL);
}

static void deliver_control(struct target_tcp *t, bool good)
{
	uint8_t *data = t->rx.control;

	t->rx.control = NULL;
	if (!good)
		target_conn_violation(&t->conn, "wrong data digest");
	else
		target_conn_received(&t->conn, &t->rx.pdu, t->rx.bhs, data);
	free(data);
}

static enum rx_result finish_pdu(struct target_tcp *t)
{
	uint32_t len = tail_len(t);
	bool good;

	if (buffered(t) < len)
		return RX_NEEDS_BYTES;
	good = digest_is_good(t, t->rx.buffer + t->rx.head);
	t->rx.head += len;
	t->rx.state = RX_HEADER;
	t->conn.heard = t->conn.target->loop.now;
	if (t->rx.ignored)
		t->rx.ignored = false;
	else if (t->conn.state == CONN_FULL && t->rx.pdu.opcode == SCSI_COMMAND)
		deliver_command(t, good);
	else if (t->conn.state == CONN_FULL && t->rx.pdu.opcode == DATA_OUT)
		deliver_data(t, good);
	else
		deliver_control(t, good);
	return RX_GO_ON;
}

static enum rx_result parse_step(struct target_tcp *t)
{
	switch (t->rx.state) {
	case RX_HEADER:
		return target_tcp_tx_is_full(t) ? RX_STOPS : parse_header(t);
	case RX_DATA:
		return copy_data(t);
	case RX_TAIL:
		return finish_pdu(t);
	case RX_WAIT:
		break;
	}
	return RX_STOPS;
}

/* Handles buffered PDUs. Returns false if reading has to pause. */
static bool parse_buffered(struct target_tcp *t)
{
	enum rx_result result = RX_GO_ON;

	while (result == RX_GO_ON && (t->conn.state == CONN_LOGIN || t->conn.state == CONN_FULL))
		result = parse_step(t);
	if (t->conn.state == CONN_CLOSING) {
		t->rx.head = t->rx.tail = 0;
		return true;
	}
	return result == RX_NEEDS_BYTES;
}

/* ---- the socket ----------------------------------------------------------------------------------- */

static void make_room(struct target_tcp *t)
{
	uint32_t n = buffered(t);

	if (t->rx.head == 0)
		return;
	memmove(t->rx.buffer, t->rx.buffer + t->rx.head, n);
	t->rx.head = 0;
	t->rx.tail = n;
}

/* Reads as readv() does, with errno. */
static ssize_t read_tls(struct target_tcp *t, const struct iovec *iov, int n)
{
	ssize_t got = tls_recvv(t->tls, iov, n);

	if (got >= 0)
		return got;
	errno = (int)-got;
	return -1;
}

/*
 * Reads data to its place, and what follows to the buffer. Returns the number of bytes; *is_short: the socket had no more.
 */
static ssize_t read_socket(struct target_tcp *t, bool *is_short)
{
	bool direct = t->rx.state == RX_DATA && t->rx.to && t->conn.state != CONN_CLOSING;
	struct iovec iov[2];
	size_t data = direct ? t->rx.left : 0;
	ssize_t n;

	make_room(t);
	iov[0] = (struct iovec){t->rx.to, data};
	iov[1] = (struct iovec){t->rx.buffer + t->rx.tail, RX_BYTES - t->rx.tail};
	if (t->tls)
		n = read_tls(t, direct ? iov : iov + 1, direct ? 2 : 1);
	else
		n = direct ? readv(t->watch.fd, iov, 2)
			   : read(t->watch.fd, iov[1].iov_base, iov[1].iov_len);
	if (n <= 0)
		return n;
	*is_short = t->tls ? !tls_pending(t->tls) : (size_t)n < data + iov[1].iov_len;
	if ((size_t)n <= data) {
		count_data(t, (uint32_t)n);
		return n;
	}
	count_data(t, (uint32_t)data);
	t->rx.tail += (uint32_t)((size_t)n - data);
	return n;
}

void target_tcp_read(struct target_tcp *t)
{
	bool is_short = false;

	for (int i = 0; i < READ_ROUNDS; i++) {
		ssize_t n;

		if (!parse_buffered(t) || is_short)
			return;
		n = read_socket(t, &is_short);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		if (n <= 0) {
			target_conn_end(&t->conn);
			return;
		}
	}
	parse_buffered(t);
	if (target_tcp_rx_has_more(t))
		target_conn_dirty(&t->conn);
}

/* ---- ends --------------------------------------------------------------------------------------------- */

void target_tcp_rx_wake(struct target_waiter *w)
{
	struct target_tcp *t = container_of(w, struct target_tcp, rx.wait);

	if (t->rx.state != RX_WAIT)
		return;
	place_first(t);
	if (t->rx.state != RX_WAIT)
		target_tcp_resume(&t->conn);
}

bool target_tcp_rx_waits(const struct target_tcp *t)
{
	return t->rx.state == RX_WAIT || t->conn.state == CONN_PARKED || target_tcp_tx_is_full(t);
}

bool target_tcp_rx_has_more(const struct target_tcp *t)
{
	return t->tls && t->stage == TCP_PDUS && !target_tcp_rx_waits(t) && tls_pending(t->tls);
}

void target_tcp_rx_forget(struct target_tcp *t, struct target_task *k)
{
	struct target_session *s = k->session;

	if (t->rx.task == k && t->rx.pdu.opcode == DATA_OUT) {
		t->rx.task = NULL;
		t->rx.to = NULL;
	}
	/* In RX_WAIT the command is not counted in awaiting yet. */
	if (k->first_open && !(t->rx.task == k && t->rx.state == RX_WAIT))
		s->awaiting--;
	list_for_each_safe (it, &k->wanted) {
		struct target_piece *p = list_entry(it, struct target_piece, wait);

		if (p->asked) {
			k->r2ts--;
			s->awaiting--;
		}
		list_del(&p->wait);
		target_piece_moved(p, -ECANCELED);
	}
}

void target_tcp_rx_drop(struct target_tcp *t)
{
	struct target_task *k = t->rx.task;

	if (k)
		target_buffer_forget(k->session, &t->rx.wait);
	free(t->rx.control);
	t->rx.control = NULL;
	t->rx.task = NULL;
	t->rx.to = NULL;
	if (k && t->rx.pdu.opcode == SCSI_COMMAND) {
		target_task_abort(k);
		target_task_start(k); /* ends it */
	}
}
