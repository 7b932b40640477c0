// SPDX-License-Identifier: BSD-2-Clause
/*
 * raw_peer.c - a hand-made iWARP peer: see raw_peer.h.
 */
#include "raw_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/crc32c.h"

#define OUR_CAPS                                                                                   \
	(MPA_EXT_IMM | MPA_EXT_ATOMIC | MPA_EXT_BIG_FPDU | MPA_EXT_SEND_IMM | MPA_EXT_FLUSH)
#define RAW_MAX (2 * FPDU_MAX_LEN)

/* ---- sockets ---- */

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				    .sin_port = htons(port)};
}

static void raw_begin(struct raw_peer *p, int fd)
{
	struct timeval t = {.tv_sec = PATIENCE_MS / 1000};
	int one = 1;

	assert_true(fd >= 0);
	*p = (struct raw_peer){.fd = fd, .msn = {1, 1, 1, 1}};
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void raw_dial(struct raw_peer *p, uint16_t port)
{
	struct sockaddr_in to = loopback(port);

	raw_begin(p, socket(AF_INET, SOCK_STREAM, 0));
	assert_int_equal(connect(p->fd, (struct sockaddr *)&to, sizeof(to)), 0);
}

int raw_listen(uint16_t *port)
{
	struct sockaddr_in at = loopback(0);
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
	*port = ntohs(at.sin_port);
	return fd;
}

void raw_accept(struct raw_peer *p, int listener)
{
	raw_begin(p, accept(listener, NULL, NULL));
	close(listener);
}

void raw_bytes(struct raw_peer *p, const void *data, size_t len)
{
	if (len)
		assert_int_equal(send(p->fd, data, len, MSG_NOSIGNAL), len);
}

static void take_bytes(struct raw_peer *p, void *data, size_t len)
{
	size_t got = 0;
	ssize_t n = 1;

	while (got < len && n > 0) { /* a process that was stopped gets EINTR when it continues */
		n = TEMP_FAILURE_RETRY(recv(p->fd, (uint8_t *)data + got, len - got, MSG_WAITALL));
		got += n > 0 ? (size_t)n : 0;
	}
	if (got < len)
		fail_msg("received %zu of %zu bytes: %s", got, len,
			 n < 0 ? strerror(errno) : "the peer closed");
}

void raw_finish(struct raw_peer *p)
{
	assert_int_equal(shutdown(p->fd, SHUT_WR), 0);
}

void raw_close(struct raw_peer *p)
{
	if (p->fd > 0)
		close(p->fd);
	p->fd = -1;
}

void raw_reset(struct raw_peer *p)
{
	struct linger now = {.l_onoff = 1};

	setsockopt(p->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
	raw_close(p);
}

void expect_hangup(struct raw_peer *p)
{
	char c;
	ssize_t n = TEMP_FAILURE_RETRY(recv(p->fd, &c, 1, 0));

	if (n > 0 || (n < 0 && errno != ECONNRESET))
		fail_msg("expected the peer to close, got %zd bytes: %s", n,
			 n < 0 ? strerror(errno) : "data");
}

void expect_hangup_at_last(struct raw_peer *p)
{
	char buf[4096];
	ssize_t n;

	do {
		n = TEMP_FAILURE_RETRY(recv(p->fd, buf, sizeof(buf), 0));
	} while (n > 0);
	if (n < 0 && errno != ECONNRESET)
		fail_msg("the peer did not close: %s", strerror(errno));
}

/* ---- MPA ---- */

/* The environment variables that the adapter reads apply to both ends. */
static bool env_is(const char *name, const char *value)
{
	const char *v = getenv(name);

	return v && !strcmp(v, value);
}

static uint8_t mpa_flags_requested(const struct raw_wish *w)
{
	bool crc = !w->no_crc && !env_is("STAG_CRC", "off");
	bool markers = w->markers || env_is("STAG_MARKERS", "on");

	return (uint8_t)((crc ? MPA_CRC : 0) | (markers ? MPA_MARKERS : 0));
}

static void take_frame(struct raw_peer *p, bool reply, uint8_t room[MPA_FRAME_MAX],
		       struct mpa_frame *f)
{
	size_t len;

	take_bytes(p, room, MPA_FRAME_LEN);
	len = MPA_FRAME_LEN + get_be16(room + MPA_FRAME_LEN - 2);
	assert_in_range(len, MPA_FRAME_LEN, MPA_FRAME_MAX);
	take_bytes(p, room + MPA_FRAME_LEN, len - MPA_FRAME_LEN);
	assert_int_equal(mpa_decode(room, len, reply, f), len);
}

static void give_frame(struct raw_peer *p, const struct mpa_frame *f)
{
	uint8_t buf[MPA_FRAME_MAX];
	int n = mpa_encode(f, buf, sizeof(buf));

	assert_true(n > 0);
	raw_bytes(p, buf, (size_t)n);
}

static void apply_negotiation(struct raw_peer *p, const struct raw_wish *w,
			      const struct mpa_frame *theirs)
{
	p->crc = (mpa_flags_requested(w) | theirs->flags) & MPA_CRC;
	p->sums = p->crc && w->sums;
	p->markers_tx = theirs->flags & MPA_MARKERS;
	p->markers_rx = mpa_flags_requested(w) & MPA_MARKERS;
}

void raw_send_request(struct raw_peer *p, const struct raw_wish *w)
{
	struct mpa_frame req = {.rev = w->plain ? 1 : 2, .flags = mpa_flags_requested(w)};

	if (!w->plain) {
		req.flags |= MPA_ENHANCED | (w->extensions ? MPA_EXT_OFFER : 0) |
			     (w->escape ? MPA_ESCAPE_OFFER : 0) | (w->sums ? MPA_SUM_OFFER : 0) |
			     (w->one_shot ? MPA_SHOT_OFFER : 0);
		req.ird = w->ird ? w->ird : 8;
		req.ord = w->ord ? w->ord : 8;
		req.p2p = w->p2p;
		req.rtr = w->p2p ? MPA_RTR_WRITE | MPA_RTR_READ : 0;
	}
	give_frame(p, &req);
}

void raw_take_reply(struct raw_peer *p, const struct raw_wish *w)
{
	uint8_t room[MPA_FRAME_MAX];
	struct mpa_frame rep;

	take_frame(p, true, room, &rep);
	assert_false(rep.flags & MPA_REJECT);
	assert_int_equal(!!(rep.flags & MPA_EXT_ACCEPT), w->extensions);
	assert_int_equal(!!(rep.ext.caps & MPA_EXT_SUM), w->sums);
	p->one_shot = rep.ext.encoding;
	apply_negotiation(p, w, &rep);
}

void raw_answer_request(struct raw_peer *p, const struct raw_wish *w)
{
	uint8_t room[MPA_FRAME_MAX];
	struct mpa_frame req, rep = {.reply = true};

	take_frame(p, false, room, &req);
	rep.rev = req.rev;
	rep.flags = mpa_flags_requested(w) | (req.flags & MPA_ENHANCED);
	rep.ird = w->ird ? w->ird : 8;
	rep.ord = w->ord ? w->ord : 8;
	if (w->extensions) {
		assert_true(req.flags & MPA_EXT_OFFER);
		rep.flags |= MPA_EXT_ACCEPT;
		rep.ext = (struct mpa_ext){.version = 1,
					   .encoding = w->one_shot,
					   .caps = OUR_CAPS | (w->one_shot ? MPA_EXT_ONE_SHOT : 0) |
						   (w->escape ? MPA_EXT_ESCAPE : 0) |
						   (w->sums ? MPA_EXT_SUM : 0)};
		p->one_shot = w->one_shot;
	}
	give_frame(p, &rep);
	apply_negotiation(p, w, &req);
}

/* ---- FPDUs out ---- */

static void remember(struct raw_peer *p, const uint8_t *ulpdu, size_t len)
{
	p->last_len = len < sizeof(p->last) ? len : sizeof(p->last);
	memcpy(p->last, ulpdu, p->last_len);
	p->last_ulpdu = len;
}

size_t raw_frame(struct raw_peer *p, const void *ulpdu, size_t len, uint8_t *raw)
{
	uint8_t *fpdu = calloc(1, FPDU_MAX_LEN);
	size_t n = fpdu_len(len);

	assert_non_null(fpdu);
	put_be16(fpdu, (uint16_t)len);
	memcpy(fpdu + MPA_LEN_FIELD, ulpdu, len);
	if (p->markers_tx)
		n = markers_insert(p->tx_pos, fpdu, n, raw);
	else
		memcpy(raw, fpdu, n);
	free(fpdu);
	if (p->crc)
		crc32c_put(raw + n - MPA_CRC_LEN, crc32c_update(CRC32C_INIT, raw, n - MPA_CRC_LEN));
	p->tx_pos += n;
	remember(p, ulpdu, len);
	return n;
}

size_t raw_build(struct raw_peer *p, const struct ddp_hdr *h, const void *payload, size_t len,
		 uint8_t *raw)
{
	uint8_t *fpdu = malloc(MPA_LEN_FIELD + DDP_MAX_HDR + DDP_SUM_LEN + len);
	uint8_t *ulpdu = fpdu + MPA_LEN_FIELD;
	struct ddp_hdr summed = *h;
	size_t n;

	assert_non_null(fpdu);
	summed.summed = p->sums && fpdu_len(DDP_MAX_HDR + len) > FPDU_UNSUMMED;
	n = ddp_encode(&summed, ulpdu);
	if (summed.summed) {
		put_be16(fpdu, (uint16_t)(n + DDP_SUM_LEN + len));
		crc32c_put(ulpdu + n, crc32c_update(CRC32C_INIT, fpdu, MPA_LEN_FIELD + n));
		n += DDP_SUM_LEN;
	}
	if (len)
		memcpy(ulpdu + n, payload, len);
	n = raw_frame(p, ulpdu, n + len, raw);
	free(fpdu);
	return n;
}

void raw_segment(struct raw_peer *p, const struct ddp_hdr *h, const void *payload, size_t len)
{
	uint8_t *raw = malloc(RAW_MAX);

	assert_non_null(raw);
	raw_bytes(p, raw, raw_build(p, h, payload, len, raw));
	free(raw);
}

struct ddp_hdr write_hdr(uint32_t stag, uint64_t to)
{
	return (struct ddp_hdr){
		.tagged = true, .last = true, .opcode = RDMAP_WRITE, .stag = stag, .to = to};
}

struct ddp_hdr response_hdr(uint32_t stag, uint64_t to)
{
	struct ddp_hdr h = write_hdr(stag, to);

	h.opcode = RDMAP_READ_RESP;
	return h;
}

struct ddp_hdr send_hdr(struct raw_peer *p)
{
	return (struct ddp_hdr){
		.last = true, .opcode = RDMAP_SEND, .qn = QN_SEND, .msn = p->msn[QN_SEND]++};
}

struct ddp_hdr request_hdr(struct raw_peer *p, enum rdmap_op op)
{
	return (struct ddp_hdr){
		.last = true, .opcode = op, .qn = QN_READ, .msn = p->msn[QN_READ]++};
}

void raw_write(struct raw_peer *p, uint32_t stag, uint64_t to, const void *data, size_t len)
{
	struct ddp_hdr h = write_hdr(stag, to);

	raw_segment(p, &h, data, len);
}

void raw_send(struct raw_peer *p, const void *data, size_t len)
{
	struct ddp_hdr h = send_hdr(p);

	raw_segment(p, &h, data, len);
}

void raw_send_inv(struct raw_peer *p, uint32_t stag, const void *data, size_t len)
{
	struct ddp_hdr h = send_hdr(p);

	h.opcode = RDMAP_SEND_INV;
	h.ulp = stag;
	raw_segment(p, &h, data, len);
}

void raw_read(struct raw_peer *p, const struct rdmap_read_req *r)
{
	struct ddp_hdr h = request_hdr(p, RDMAP_READ_REQ);
	uint8_t buf[RDMAP_READ_REQ_LEN];

	rdmap_put_read_req(buf, r);
	raw_segment(p, &h, buf, sizeof(buf));
}

void raw_atomic(struct raw_peer *p, const struct rdmap_atomic_req *r)
{
	struct ddp_hdr h = request_hdr(p, RDMAP_ATOMIC_REQ);
	uint8_t buf[RDMAP_ATOMIC_REQ_LEN];

	rdmap_put_atomic_req(buf, r);
	raw_segment(p, &h, buf, sizeof(buf));
}

void raw_terminate(struct raw_peer *p, const void *payload, size_t len)
{
	struct ddp_hdr h = {.last = true, .opcode = RDMAP_TERMINATE, .qn = QN_TERMINATE, .msn = 1};

	raw_segment(p, &h, payload, len);
}

/* ---- FPDUs in ---- */

static void take_marked(struct raw_peer *p, uint8_t *raw)
{
	size_t skip = p->rx_pos % MARKER_INTERVAL ? 0 : MARKER_LEN;
	size_t have = skip + MPA_LEN_FIELD, n;

	take_bytes(p, raw, have);
	n = markers_raw_len(p->rx_pos, fpdu_len(get_be16(raw + skip)));
	take_bytes(p, raw + have, n - have);
	if (p->crc)
		assert_true(crc32c_matches(raw + n - MPA_CRC_LEN,
					   crc32c_update(CRC32C_INIT, raw, n - MPA_CRC_LEN)));
	assert_true(markers_strip(p->rx_pos, raw, n, raw) > 0);
	p->rx_pos += n;
}

static void take_plain(struct raw_peer *p, uint8_t *raw)
{
	size_t n;

	take_bytes(p, raw, MPA_LEN_FIELD);
	n = fpdu_len(get_be16(raw));
	take_bytes(p, raw + MPA_LEN_FIELD, n - MPA_LEN_FIELD);
	if (p->crc)
		assert_true(crc32c_matches(raw + n - MPA_CRC_LEN,
					   crc32c_update(CRC32C_INIT, raw, n - MPA_CRC_LEN)));
	else /* as siw does: the field is there, and zero */
		assert_int_equal(get_be32(raw + n - MPA_CRC_LEN), 0);
}

void raw_take(struct raw_peer *p, struct raw_fpdu *f)
{
	uint8_t *raw = malloc(RAW_MAX);
	size_t hdr;

	assert_non_null(raw);
	if (p->markers_rx)
		take_marked(p, raw);
	else
		take_plain(p, raw);
	assert_false(ddp_decode(raw + MPA_LEN_FIELD, &f->h).set);
	hdr = ddp_hdr_len(raw[MPA_LEN_FIELD]);
	if (p->sums && f->h.summed) {
		assert_true(crc32c_matches(raw + MPA_LEN_FIELD + hdr,
					   crc32c_update(CRC32C_INIT, raw, MPA_LEN_FIELD + hdr)));
		hdr += DDP_SUM_LEN;
	}
	assert_true(get_be16(raw) >= hdr);
	f->len = get_be16(raw) - hdr;
	memcpy(f->payload, raw + MPA_LEN_FIELD + hdr, f->len);
	free(raw);
}

void raw_take_read(struct raw_peer *p, struct rdmap_read_req *r)
{
	struct raw_fpdu *f = malloc(sizeof(*f));

	assert_non_null(f);
	raw_take(p, f);
	assert_int_equal(f->h.opcode, RDMAP_READ_REQ);
	assert_int_equal(f->len, RDMAP_READ_REQ_LEN);
	rdmap_get_read_req(f->payload, r);
	free(f);
}

static void read_terminate(const struct raw_fpdu *f, struct terminate *t)
{
	bool swapped;

	assert_int_equal(f->h.opcode, RDMAP_TERMINATE);
	assert_int_equal(f->h.qn, QN_TERMINATE);
	assert_int_equal(f->h.msn, 1);
	assert_int_equal(f->h.mo, 0);
	assert_true(f->h.last);
	assert_int_equal(terminate_decode(f->payload, f->len, t, &swapped), 0);
	assert_false(swapped);
}

static void take_terminate(struct raw_peer *p, struct terminate *t, bool first)
{
	struct raw_fpdu *f = malloc(sizeof(*f));

	assert_non_null(f);
	do {
		raw_take(p, f);
	} while (!first && f->h.opcode != RDMAP_TERMINATE);
	read_terminate(f, t);
	free(f);
}

void raw_take_terminate(struct raw_peer *p, struct terminate *t)
{
	take_terminate(p, t, true);
}

void raw_take_terminate_at_last(struct raw_peer *p, struct terminate *t)
{
	take_terminate(p, t, false);
}

/* RFC 5040 §4.8: lists which parts of the terminated message accompany which fault. */
static void expect_parts(const struct raw_peer *p, const struct terminate *t)
{
	bool tagged = p->last[0] & DDP_T, is_read = !tagged && (p->last[1] & 0xf) == RDMAP_READ_REQ;
	bool about_rdmap = t->fault.layer == FAULT_LAYER_RDMAP && t->fault.etype != 0;
	size_t hdr = ddp_hdr_len(p->last[0]);

	bool about_ddp = t->fault.layer == FAULT_LAYER_DDP && t->fault.etype != 0;
	if (!about_rdmap && !about_ddp) {
		assert_false(t->has_ddp);
		return;
	}
	assert_true(t->has_ddp);
	assert_true(t->has_seg_len);
	assert_int_equal(t->seg_len, p->last_ulpdu);
	assert_memory_equal(t->ddp, p->last, hdr);
	assert_int_equal(t->has_rdmap, is_read && about_rdmap && t->fault.etype == 1);
	if (t->has_rdmap)
		assert_memory_equal(t->read_req, p->last + hdr, RDMAP_READ_REQ_LEN);
}

static void check_terminate(struct raw_peer *p, struct wire_fault fault, bool first)
{
	struct terminate t;

	take_terminate(p, &t, first);
	if (t.fault.layer != fault.layer || t.fault.etype != fault.etype ||
	    t.fault.code != fault.code)
		fail_msg("Terminate with '%s', expected '%s'", wire_fault_str(t.fault),
			 wire_fault_str(fault));
	expect_parts(p, &t);
	expect_hangup(p);
}

void expect_terminate(struct raw_peer *p, struct wire_fault fault)
{
	check_terminate(p, fault, true);
}

void expect_terminate_at_last(struct raw_peer *p, struct wire_fault fault)
{
	check_terminate(p, fault, false);
}

/* ---- connections under test ---- */

int others_open(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	pair_open(p, NULL, NULL);
	*state = p;
	return 0;
}

int others_close(void **state)
{
	pair_close(*state);
	free(*state);
	return 0;
}

void scene_open(struct scene *s, const struct scene_wish *w)
{
	static const struct scene_wish nothing;
	uint16_t port;
	int fd;

	w = w ? w : &nothing;
	if (w->we_connect) {
		fd = raw_listen(&port);
		side_resolve(&s->us, &w->us, port);
		side_connect(&s->us);
		raw_accept(&s->peer, fd);
		raw_answer_request(&s->peer, &w->peer);
	} else {
		side_listen(&s->us, &w->us);
		raw_dial(&s->peer, side_port(&s->us));
		raw_send_request(&s->peer, &w->peer);
		side_take_request(&s->us);
		assert_int_equal(side_accept(&s->us), 0);
		raw_take_reply(&s->peer, &w->peer);
	}
	if (w->we_connect || (!w->peer.plain && !w->peer.p2p))
		expect_cm(&s->us, RDMA_CM_EVENT_ESTABLISHED);
}

void scene_close(struct scene *s)
{
	raw_close(&s->peer);
	side_close(&s->us);
}

static void expect_others_well(struct scene *s)
{
	if (!s->others)
		return;
	expect_cm_silence(&s->others->a);
	expect_cm_silence(&s->others->b);
	expect_no_async(&s->us);
	ping(s->others);
}

/* Checks the end: when the program gets the event, all work has been flushed. */
static void expect_over(struct scene *s)
{
	expect_disconnected(&s->us);
	expect_state(&s->us, IBV_QPS_ERR);
	expect_flushed(&s->us);
}

void expect_broken(struct scene *s, enum ibv_event_type event)
{
	expect_over(s);
	expect_async(&s->us, event);
	check_canaries(&s->us);
	expect_others_well(s);
}

void expect_refused(struct scene *s, struct wire_fault fault, enum ibv_event_type event)
{
	expect_terminate(&s->peer, fault);
	expect_broken(s, event);
}

void expect_closed(struct scene *s)
{
	expect_over(s);
	check_canaries(&s->us);
	expect_others_well(s);
}
