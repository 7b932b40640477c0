// SPDX-License-Identifier: BSD-2-Clause
/*
 * tcp.c - an initiator's line over TCP: PDUs to and from a non-blocking socket.
 *
 * Data-In is read directly to the caller's memory, and Data-Out is written from it: only data that arrives in one read with a
 * header is copied. If a command ends while one of its Data-Outs is being written (a target may end it early), the rest of that
 * PDU is copied, as the caller may reuse its memory.
 */
#include "block/initiator/initiator.h"

#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/crc32c.h"

#define RX_BYTES 65536
#define READ_MOST                                                                                  \
	(256u << 10) /* bytes per poll: then commands that have ended make room for new ones */
#define MAX_IOV 64

/* A PDU in the send queue. */
struct queued_pdu {
	struct list link;
	struct initiator_cmd *cmd; /* that the PDU belongs to, or NULL */
	bool is_command;
	uint32_t sent; /* bytes of head, data and tail together */
	uint32_t head_len, data_len, tail_len;
	uint32_t offset;    /* of the data, in the command's data */
	uint8_t *copied;    /* a copy of the data, used instead */
	uint32_t copied_at; /* offset of the copy in the data of the PDU */
	uint8_t head[BHS_LEN + DIGEST_LEN];
	uint8_t tail[3 + DIGEST_LEN];
};

enum rx_state { RX_HEADER, RX_DATA, RX_TAIL };

struct initiator_tcp_line {
	struct initiator_line line;
	int fd;
	uint32_t events;
	bool connecting, blocked;
	bool plain, shaking;	 /* without TLS; in the handshake of TLS */
	struct tls_session *tls; /* NULL: not encrypted */
	size_t taken; /* bytes of the queue that may be encrypted already, and are not sent */
	bool broken;  /* memory ran out: ends at the next flush */
	struct list out;
	struct {
		enum rx_state state;
		uint32_t head, tail; /* of buffer */
		struct pdu pdu;
		uint32_t got;		   /* bytes of data that have arrived */
		struct initiator_cmd *cmd; /* the data goes to this command's memory, */
		uint8_t *control;	   /* or here, */
		bool dropped;		   /* or is dropped: the command has ended meanwhile */
		uint8_t buffer[RX_BYTES];
	} rx;
};

static struct initiator_tcp_line *to_tcp_line(struct initiator_line *l)
{
	return container_of(l, struct initiator_tcp_line, line);
}

static bool has_digest(const struct initiator_tcp_line *t, bool header)
{
	const struct stag_block *b = t->line.b;

	return b->state >= INIT_PROBE &&
	       (header ? b->session.keys.header_digest : b->session.keys.data_digest);
}

/* ---- the socket ---------------------------------------------------------------------- */

static int update_events(struct initiator_tcp_line *t)
{
	bool out = t->connecting || t->blocked || (t->shaking && (tls_events(t->tls) & POLLOUT));
	uint32_t events = EPOLLIN | (out ? EPOLLOUT : 0);
	struct epoll_event e = {.events = events};
	int op = t->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;

	if (events == t->events)
		return 0;
	t->events = events;
	return epoll_ctl(t->line.b->events.epoll, op, t->fd, &e) == 0 ? 0 : -errno;
}

static void tcp_line_close(struct initiator_line *l)
{
	struct initiator_tcp_line *t = to_tcp_line(l);

	list_for_each_safe (it, &t->out) {
		struct queued_pdu *p = list_entry(it, struct queued_pdu, link);

		list_del(it);
		free(p->copied);
		free(p);
	}
	free(t->rx.control);
	if (t->tls && !t->shaking)
		tls_shutdown(t->tls);
	tls_close(t->tls);
	close(t->fd);
	free(t);
}

static int tcp_line_open(struct stag_block *b, const struct sockaddr *to, socklen_t len,
			 struct initiator_line **out)
{
	struct initiator_tcp_line *t = malloc(sizeof(*t));
	int on = 1, rc;

	if (!t)
		return -ENOMEM;
	memset(t, 0, offsetof(struct initiator_tcp_line, rx.buffer));
	t->line = (struct initiator_line){.ops = &initiator_tcp_line, .b = b};
	list_init(&t->out);
	t->connecting = true;
	t->plain = b->config.tls.mode == TLS_OFF || b->route.plain;
	t->fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (t->fd < 0) {
		rc = -errno;
		free(t);
		return rc;
	}
	setsockopt(t->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	rc = connect(t->fd, to, len) == 0 || errno == EINPROGRESS ? 0 : -errno;
	if (rc == 0)
		rc = update_events(t);
	if (rc != 0)
		tcp_line_close(&t->line);
	else
		*out = &t->line;
	return rc;
}

/* ---- TLS -------------------------------------------------------------------------------- */

static int tls_failed(struct initiator_tcp_line *t, int rc)
{
	struct stag_block *b = t->line.b;
	bool closed = rc == -ECONNRESET || rc == -EPIPE || rc == -EPROTO;

	b->attempt.no_tls = closed;
	return block_fail(closed ? EPROTONOSUPPORT : -rc, "%s:%s: no TLS: %s%s", b->config.url.host,
			  b->config.url.port, tls_why(t->tls),
			  closed ? "; does the target speak it?" : "");
}

static void note_tls(struct initiator_tcp_line *t)
{
	struct stagdv_tls_info out = {.encrypted = 1};
	struct tls_info info;

	tls_describe(t->tls, &info);
	out.kernel = tls_kernel_bits(&info);
	memcpy(out.version, info.version, sizeof(out.version));
	memcpy(out.cipher, info.cipher, sizeof(out.cipher));
	initiator_tls_note(t->line.b, &out);
}

/* Returns 0 if the handshake is done, -EAGAIN if it is not yet, or -errno. */
static int shake(struct initiator_tcp_line *t)
{
	int rc = tls_handshake(t->tls);

	if (rc == -EAGAIN)
		return update_events(t) == 0 ? -EAGAIN : -EIO;
	if (rc != 0)
		return tls_failed(t, rc);
	t->shaking = false;
	note_tls(t);
	return initiator_connected(t->line.b);
}

static int start_tls(struct initiator_tcp_line *t)
{
	struct stag_block *b = t->line.b;
	char why[TLS_WHY_LEN];
	int rc = tls_open(&t->tls, b->config.tls.context, t->fd, TLS_CLIENT, why);

	if (rc != 0)
		return block_fail(-rc, "%s:%s: no TLS: %s", b->config.url.host, b->config.url.port,
				  why);
	t->shaking = true;
	return shake(t);
}

static ssize_t receive(struct initiator_tcp_line *t, const struct iovec *iov, int n)
{
	ssize_t got;

	if (!t->tls)
		return readv(t->fd, iov, n);
	got = tls_recvv(t->tls, iov, n);
	if (got >= 0)
		return got;
	errno = (int)-got;
	return -1;
}

static size_t bytes_in(const struct msghdr *m)
{
	size_t sum = 0;

	for (size_t i = 0; i < m->msg_iovlen; i++)
		sum += m->msg_iov[i].iov_len;
	return sum;
}

static ssize_t transmit(struct initiator_tcp_line *t, const struct msghdr *m)
{
	ssize_t sent;

	if (!t->tls)
		return sendmsg(t->fd, m, MSG_NOSIGNAL);
	sent = tls_sendv(t->tls, m->msg_iov, (int)m->msg_iovlen);
	t->taken = sent == -EAGAIN ? bytes_in(m) : 0;
	if (sent >= 0)
		return sent;
	errno = (int)-sent;
	return -1;
}

/* ---- connecting --------------------------------------------------------------------------- */

/* Returns 0 if the connection is established, -EAGAIN if it is not yet, or -errno. */
static int finish_connect(struct initiator_tcp_line *t)
{
	struct pollfd fd = {.fd = t->fd, .events = POLLOUT};
	socklen_t len = sizeof(int);
	int error = 0;

	if (poll(&fd, 1, 0) <= 0)
		return -EAGAIN;
	if (getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		return -errno;
	if (error)
		return -error;
	t->connecting = false;
	return t->plain ? initiator_connected(t->line.b) : start_tls(t);
}

/* ---- out ---------------------------------------------------------------------------------- */

static struct queued_pdu *new_queued_pdu(struct initiator_tcp_line *t, struct pdu *p, uint32_t len)
{
	struct queued_pdu *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	p->data_len = len;
	p->exp_stat_sn =
		t->line.b->state >= INIT_PROBE ? t->line.b->session.exp_stat_sn : p->exp_stat_sn;
	iscsi_pdu_encode(p, o->head);
	o->head_len = BHS_LEN;
	o->data_len = len;
	o->tail_len = iscsi_pdu_pad(len);
	if (has_digest(t, true)) {
		crc32c_put(o->head + BHS_LEN, crc32c_update(CRC32C_INIT, o->head, BHS_LEN));
		o->head_len += DIGEST_LEN;
	}
	list_add_tail(&t->out, &o->link);
	return o;
}

/* Adds the data digest to the tail. crc: of the data. */
static void add_digest(const struct initiator_tcp_line *t, struct queued_pdu *o, uint32_t crc)
{
	if (!o->data_len || !has_digest(t, false))
		return;
	crc = crc32c_update(crc, o->tail, o->tail_len); /* the padding */
	crc32c_put(o->tail + o->tail_len, crc);
	o->tail_len += DIGEST_LEN;
}

static int tcp_line_send(struct initiator_line *l, struct pdu *p, const void *data, uint32_t len)
{
	struct initiator_tcp_line *t = to_tcp_line(l);
	struct queued_pdu *o = new_queued_pdu(t, p, len);

	if (!o)
		return -ENOMEM;
	if (len == 0)
		return 0;
	o->copied = malloc(len);
	if (!o->copied)
		return -ENOMEM; /* closing the line frees the PDU */
	memcpy(o->copied, data, len);
	add_digest(t, o, crc32c_update(CRC32C_INIT, data, len));
	return 0;
}

static struct queued_pdu *send_from(struct initiator_tcp_line *t, struct initiator_cmd *c,
				    struct pdu *p, uint32_t offset, uint32_t len)
{
	struct queued_pdu *o = new_queued_pdu(t, p, len);

	if (!o)
		return NULL;
	o->cmd = c;
	o->offset = offset;
	if (len && has_digest(t, false))
		add_digest(t, o, initiator_cmd_crc(c, offset, len, CRC32C_INIT));
	return o;
}

/* Queues a burst of Data-Outs. */
static int send_burst(struct initiator_tcp_line *t, struct initiator_cmd *c, uint32_t ttt,
		      uint32_t offset, uint32_t len, uint64_t lun)
{
	uint32_t most = t->line.b->session.keys.peer_recv_max, sn = 0;

	while (len) {
		uint32_t n = len < most ? len : most;
		struct pdu p = {.opcode = DATA_OUT,
				.flags = n == len ? PDU_FINAL : 0,
				.lun = lun,
				.itt = c->itt,
				.ttt = ttt,
				.data_sn = sn++,
				.offset = offset};

		if (!send_from(t, c, &p, offset, n))
			return -ENOMEM;
		offset += n;
		len -= n;
	}
	return 0;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static int tcp_line_command(struct initiator_line *l, struct initiator_cmd *c, struct pdu *p)
{
	struct initiator_tcp_line *t = to_tcp_line(l);
	const struct keys *k = &l->b->session.keys;
	uint32_t first = c->writes ? least(c->length, k->first_burst) : 0;
	uint32_t now = k->immediate_data ? least(first, k->peer_recv_max) : 0;
	struct queued_pdu *o;

	if (k->initial_r2t)
		first = now;
	c->asked = first;
	if (first > now)
		p->flags &= (uint8_t)~PDU_FINAL;
	o = send_from(t, c, p, 0, now);
	if (!o)
		return -ENOMEM;
	o->is_command = true;
	return send_burst(t, c, TAG_NONE, now, first - now, p->lun);
}

/* Accepts R2Ts in order only, and each byte once, which limits what a target can make the initiator queue. */
static int tcp_line_r2t(struct initiator_line *l, struct initiator_cmd *c, const struct pdu *r)
{
	if (!c->writes || r->offset != c->asked || r->length == 0 ||
	    r->length > c->length - c->asked || r->length > l->b->session.keys.max_burst ||
	    r->data_sn != c->r2t_sn)
		return initiator_violation(l->b,
					   "invalid R2T: %u bytes at %u for task 0x%x of %u bytes",
					   r->length, r->offset, c->itt, c->length);
	c->r2t_sn++;
	c->asked += r->length;
	return send_burst(to_tcp_line(l), c, r->ttt, r->offset, r->length, r->lun);
}

/* Adds the unsent rest of one of a PDU's three parts. */
static bool add_part(struct iovec *iov, int *n, const uint8_t *bytes, uint32_t len, uint32_t *skip)
{
	uint32_t s = least(*skip, len);

	*skip -= s;
	if (len > s)
		iov[(*n)++] = (struct iovec){(void *)(uintptr_t)(bytes + s), len - s};
	return *n < MAX_IOV;
}

static bool add_data(const struct queued_pdu *o, struct iovec *iov, int *n, uint32_t *skip)
{
	uint32_t s = least(*skip, o->data_len), left = o->data_len - s, covered;

	*skip -= s;
	if (left == 0)
		return true;
	if (o->copied) {
		iov[(*n)++] = (struct iovec){o->copied + (s - o->copied_at), left};
		return *n < MAX_IOV;
	}
	*n += initiator_cmd_slice(o->cmd, o->offset + s, left, iov + *n, MAX_IOV - *n, &covered);
	return covered == left && *n < MAX_IOV;
}

/* Returns false if the iovecs do not suffice. */
static bool add_queued_pdu(const struct queued_pdu *o, struct iovec *iov, int *n)
{
	uint32_t skip = o->sent;

	return add_part(iov, n, o->head, o->head_len, &skip) && add_data(o, iov, n, &skip) &&
	       add_part(iov, n, o->tail, o->tail_len, &skip);
}

static void count_sent(struct initiator_tcp_line *t, size_t bytes)
{
	while (bytes) {
		struct queued_pdu *o = list_entry(t->out.next, struct queued_pdu, link);
		uint32_t left = o->head_len + o->data_len + o->tail_len - o->sent;

		if (o->is_command && o->cmd)
			o->cmd->sent = true;
		if (bytes < left) {
			o->sent += (uint32_t)bytes;
			return;
		}
		bytes -= left;
		list_del(&o->link);
		free(o->copied);
		free(o);
	}
}

static int tcp_line_flush(struct initiator_line *l)
{
	struct initiator_tcp_line *t = to_tcp_line(l);

	if (t->broken)
		return -ENOMEM;
	t->blocked = false;
	while (!list_empty(&t->out) && !t->connecting && !t->shaking) {
		struct iovec iov[MAX_IOV];
		struct msghdr m = {.msg_iov = iov};
		int n = 0;
		ssize_t sent;

		list_for_each (it, &t->out)
			if (!add_queued_pdu(list_entry(it, struct queued_pdu, link), iov, &n))
				break;
		m.msg_iovlen = (size_t)n;
		sent = transmit(t, &m);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno == EAGAIN) {
			t->blocked = true;
			break;
		}
		if (sent < 0)
			return -errno;
		count_sent(t, (size_t)sent);
	}
	return update_events(t);
}

/* Copies the unsent data of a PDU that is partly sent. */
static bool keep_rest(struct queued_pdu *o)
{
	uint32_t at = o->sent > o->head_len ? o->sent - o->head_len : 0, left;
	struct initiator_cmd *c = o->cmd;

	o->cmd = NULL;
	if (at >= o->data_len)
		return true;
	left = o->data_len - at;
	o->copied = malloc(left);
	if (!o->copied)
		return false;
	o->copied_at = at;
	initiator_cmd_gather(c, o->offset + at, left, o->copied);
	return true;
}

static void tcp_line_forget(struct initiator_line *l, struct initiator_cmd *c)
{
	struct initiator_tcp_line *t = to_tcp_line(l);
	size_t at = 0; /* where the PDU begins in the queue */

	if (t->rx.cmd == c) {
		t->rx.cmd = NULL;
		t->rx.dropped = true;
	}
	list_for_each_safe (it, &t->out) {
		struct queued_pdu *o = list_entry(it, struct queued_pdu, link);
		bool begun = o->sent || at < t->taken;

		at += o->head_len + o->data_len + o->tail_len - o->sent;
		if (o->cmd != c)
			continue;
		if (!begun) {
			list_del(it);
			free(o);
		} else if (!keep_rest(o)) {
			t->broken = true;
		}
	}
}

/* ---- in ------------------------------------------------------------------------------------- */

enum rx_result { RX_GO_ON, RX_NEEDS_BYTES };

static uint32_t buffered(const struct initiator_tcp_line *t)
{
	return t->rx.tail - t->rx.head;
}

/* Determines where the data behind a header goes. */
static int place_data(struct initiator_tcp_line *t)
{
	struct stag_block *b = t->line.b;
	const struct pdu *p = &t->rx.pdu;

	t->rx.cmd = NULL;
	t->rx.dropped = false;
	t->rx.got = 0;
	t->rx.state = RX_DATA;
	if (p->data_len > INITIATOR_RECV_MAX)
		return initiator_violation(b, "%s with %u bytes of data", iscsi_pdu_name(p->opcode),
					   p->data_len);
	if (p->opcode == DATA_IN && b->state >= INIT_PROBE) {
		t->rx.cmd = initiator_data_in(b, p);
		return t->rx.cmd ? 0 : -EPROTO;
	}
	if (p->data_len == 0)
		return 0;
	t->rx.control = malloc(p->data_len);
	return t->rx.control ? 0 : -ENOMEM;
}

static int parse_header(struct initiator_tcp_line *t)
{
	uint8_t *h = t->rx.buffer + t->rx.head;
	uint32_t digest = has_digest(t, true) ? DIGEST_LEN : 0, ahs, data, len;

	if (buffered(t) < BHS_LEN)
		return RX_NEEDS_BYTES;
	iscsi_pdu_lengths(h, &ahs, &data);
	len = BHS_LEN + ahs;
	if (buffered(t) < len + digest)
		return RX_NEEDS_BYTES;
	if (digest && !crc32c_matches(h + len, crc32c_update(CRC32C_INIT, h, len)))
		return initiator_violation(t->line.b, "wrong header digest");
	t->rx.head += len + digest;
	if (iscsi_pdu_decode(h, &t->rx.pdu) != 0 || iscsi_pdu_from_initiator(t->rx.pdu.opcode))
		return initiator_violation(t->line.b, "PDU with invalid opcode 0x%02x", h[0]);
	return place_data(t);
}

static int copy_data(struct initiator_tcp_line *t)
{
	uint32_t n = least(buffered(t), t->rx.pdu.data_len - t->rx.got);
	const uint8_t *from = t->rx.buffer + t->rx.head;

	if (t->rx.cmd)
		initiator_cmd_scatter(t->rx.cmd, t->rx.pdu.offset + t->rx.got, n, from);
	else if (t->rx.control)
		memcpy(t->rx.control + t->rx.got, from, n);
	t->rx.head += n;
	t->rx.got += n;
	if (t->rx.got < t->rx.pdu.data_len)
		return RX_NEEDS_BYTES;
	t->rx.state = RX_TAIL;
	return RX_GO_ON;
}

static bool digest_is_good(const struct initiator_tcp_line *t, const uint8_t *tail)
{
	uint32_t len = t->rx.pdu.data_len, pad = iscsi_pdu_pad(len), crc = CRC32C_INIT;

	if (len == 0 || !has_digest(t, false) || t->rx.dropped)
		return true;
	crc = t->rx.cmd ? initiator_cmd_crc(t->rx.cmd, t->rx.pdu.offset, len, crc)
			: crc32c_update(crc, t->rx.control, len);
	return crc32c_matches(tail + pad, crc32c_update(crc, tail, pad));
}

static int deliver(struct initiator_tcp_line *t)
{
	struct stag_block *b = t->line.b;
	uint8_t *data = t->rx.control;
	struct initiator_cmd *c = t->rx.cmd;
	int rc;

	t->rx.control = NULL;
	t->rx.cmd = NULL;
	if (t->rx.dropped)
		return 0;
	if (c)
		return initiator_data_came(b, c, &t->rx.pdu);
	rc = initiator_received(b, &t->rx.pdu, data);
	free(data);
	return rc;
}

static int finish_pdu(struct initiator_tcp_line *t)
{
	uint32_t len = iscsi_pdu_pad(t->rx.pdu.data_len);
	bool good;

	if (t->rx.pdu.data_len && has_digest(t, false))
		len += DIGEST_LEN;
	if (buffered(t) < len)
		return RX_NEEDS_BYTES;
	good = digest_is_good(t, t->rx.buffer + t->rx.head);
	t->rx.head += len;
	t->rx.state = RX_HEADER;
	if (!good)
		return initiator_violation(t->line.b, "wrong data digest");
	return deliver(t);
}

static int parse_buffered(struct initiator_tcp_line *t)
{
	int rc = RX_GO_ON;

	while (rc == RX_GO_ON) {
		switch (t->rx.state) {
		case RX_HEADER:
			rc = parse_header(t);
			break;
		case RX_DATA:
			rc = copy_data(t);
			break;
		case RX_TAIL:
			rc = finish_pdu(t);
			break;
		}
	}
	return rc < 0 ? rc : 0;
}

/* Reads data to its place, and what follows to the buffer. */
static ssize_t read_socket(struct initiator_tcp_line *t, bool *is_short)
{
	uint32_t kept = buffered(t), left, covered = 0;
	struct iovec iov[MAX_IOV];
	size_t room;
	ssize_t n;
	int count = 0;

	memmove(t->rx.buffer, t->rx.buffer + t->rx.head, kept);
	t->rx.head = 0;
	t->rx.tail = kept;
	left = t->rx.state == RX_DATA ? t->rx.pdu.data_len - t->rx.got : 0;
	if (left && t->rx.cmd)
		count = initiator_cmd_slice(t->rx.cmd, t->rx.pdu.offset + t->rx.got, left, iov,
					    MAX_IOV - 1, &covered);
	room = covered;
	if (covered == left || !t->rx.cmd) {
		iov[count++] = (struct iovec){t->rx.buffer + kept, RX_BYTES - kept};
		room += RX_BYTES - kept;
	}
	n = receive(t, iov, count);
	if (n <= 0)
		return n;
	/* The end of what is decrypted, as no event announces that; else the end of what has arrived. */
	*is_short = t->tls ? !tls_pending(t->tls) : (size_t)n < room;
	covered = least(covered, (uint32_t)n);
	t->rx.got += covered;
	t->rx.tail += (uint32_t)n - covered;
	return n;
}

static int tcp_line_read(struct initiator_tcp_line *t)
{
	bool is_short = false;
	ssize_t n;

	for (size_t sum = 0; (sum < READ_MOST || t->tls) && !is_short; sum += (size_t)n) {
		int rc;

		n = read_socket(t, &is_short);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n <= 0)
			return n < 0 ? -errno : -ECONNRESET;
		rc = parse_buffered(t);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int tcp_line_poll(struct initiator_line *l)
{
	struct initiator_tcp_line *t = to_tcp_line(l);
	int rc = t->connecting ? finish_connect(t) : t->shaking ? shake(t) : 0;

	if (rc == -EAGAIN)
		return 0;
	if (rc == 0)
		rc = tcp_line_read(t);
	return rc != 0 ? rc : tcp_line_flush(l);
}

const struct initiator_line_ops initiator_tcp_line = {.kind = STAG_BLOCK_TCP,
						      .name = "TCP",
						      .open = tcp_line_open,
						      .send = tcp_line_send,
						      .command = tcp_line_command,
						      .r2t = tcp_line_r2t,
						      .poll = tcp_line_poll,
						      .flush = tcp_line_flush,
						      .forget = tcp_line_forget,
						      .close = tcp_line_close};
