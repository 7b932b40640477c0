// SPDX-License-Identifier: BSD-2-Clause
/*
 * trace.c - a record of a stream's bytes as pcapng, written inside the process.
 *
 * The adapter sees a stream of bytes, not packets, so IP and TCP headers are
 * synthesized here: a handshake, segments with consistent sequence numbers and correct
 * checksums, a FIN or RST. Wireshark then follows the stream and decodes iWARP as
 * if the packets had been captured, and nobody had to be root.
 *
 * Streams of roce0 begin with two hellos instead of MPA frames: trace_hellos().
 *
 * A connection of a process with itself passes two streams here and is recorded
 * from the end that was opened first: twice the same packets would make no sense
 * to a reader.
 *
 * Packets are cut where Wireshark can go on (4.0): it looks at an MPA frame only
 * whole, loses its place in the stream for good when a packet ends with less
 * than the first 8 bytes of an FPDU, and wants a stream with markers in packets
 * of exactly one FPDU. A socket cuts anywhere; so the beginning of a frame waits
 * here for the rest of it.
 */
#include "adapter/trace.h"

#include <assert.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/config.h"
#include "adapter/trace_file.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/random.h"
#include "wire/wire.h"

#define MAX_SEGMENT  32768	  /* payload bytes of a synthesized packet */
#define MAX_MARKED   65470	  /* the same for an FPDU with markers, which is not cut */
#define ACK_EVERY    (256 * 1024) /* one-way bytes until the other side acknowledges */
#define SYN_OPTIONS  8
#define WINDOW_SCALE 14

enum side { OURS, THEIRS };

struct end {
	uint8_t addr[16]; /* the first 4 bytes with IPv4 */
	uint16_t port;	  /* network order */
};

/* The bytes of one direction: their framing, and bytes that wait for their packet. */
struct flow {
	enum { MPA_FRAME, FPDUS, MARKED_FPDUS, NO_FRAMES } kind; /* what comes next */
	bool wants_markers;					 /* the other side requested them */
	uint64_t pos; /* MARKED_FPDUS: bytes of them so far, markers included */
	size_t left;  /* FPDUS: bytes of the present one that are still to come */
	size_t held;
	uint8_t *hold; /* MPA_FRAME_MAX bytes; with markers MAX_MARKED */
};

struct trace_conn {
	struct list link; /* in conns */
	unsigned age;	  /* of the file that it is written to */
	bool ipv6;
	enum side initiator;
	uint16_t ip_id;
	struct end end[2];   /* these are indexed by enum side */
	uint32_t seq[2];     /* of the next byte */
	uint32_t unacked[2]; /* bytes since the other side last acknowledged */
	struct flow flow[2];
};

static struct list conns = {&conns, &conns}; /* open ones, of conns_age; trace_lock */
static unsigned conns_age;

/* ---- packets ----------------------------------------------------------- */

static struct trace_path path_of(struct trace_conn *t, enum side from)
{
	struct trace_path path = {.ipv6 = t->ipv6, .hop_limit = 64, .id = t->ip_id++};

	memcpy(path.from, t->end[from].addr, sizeof(path.from));
	memcpy(path.to, t->end[!from].addr, sizeof(path.to));
	return path;
}

static size_t put_tcp(struct trace_conn *t, const struct trace_path *path, enum side from,
		      uint8_t *p, uint8_t flags, const uint8_t *data, size_t len)
{
	static const uint8_t syn_options[SYN_OPTIONS] = {
		TCPOPT_MAXSEG, TCPOLEN_MAXSEG, MAX_SEGMENT >> 8, MAX_SEGMENT & 0xff,
		TCPOPT_NOP,    TCPOPT_WINDOW,  TCPOLEN_WINDOW,	 WINDOW_SCALE};
	size_t options = flags & TH_SYN ? SYN_OPTIONS : 0;
	size_t header = sizeof(struct tcphdr) + options;
	struct checksum c = {0};
	struct tcphdr tcp = {
		.th_sport = t->end[from].port,
		.th_dport = t->end[!from].port,
		.th_seq = htonl(t->seq[from]),
		.th_ack = flags & TH_ACK ? htonl(t->seq[!from]) : 0,
		.th_off = (uint8_t)(header / 4) & 0xf,
		.th_flags = flags,
		.th_win = 0xffff,
	};

	memcpy(p + sizeof(tcp), syn_options, options);
	checksum_add_path(&c, path, IPPROTO_TCP, header + len);
	checksum_add(&c, &tcp, sizeof(tcp));
	checksum_add(&c, p + sizeof(tcp), options);
	checksum_add(&c, data, len);
	tcp.th_sum = checksum_end(&c);
	memcpy(p, &tcp, sizeof(tcp));
	return header;
}

/* Writes a TCP segment from one side. */
static void write_packet(struct trace_conn *t, enum side from, uint8_t flags, const uint8_t *data,
			 size_t len)
{
	uint8_t head[TRACE_IP_MAX + sizeof(struct tcphdr) + SYN_OPTIONS], *p = head;
	size_t tcp_len = sizeof(struct tcphdr) + (flags & TH_SYN ? SYN_OPTIONS : 0) + len;
	struct trace_path path = path_of(t, from);

	p += trace_put_ip(p, &path, IPPROTO_TCP, tcp_len);
	p += put_tcp(t, &path, from, p, flags, data, len);
	trace_file_packet(from == OURS, head, (size_t)(p - head), data, len);

	t->seq[from] += (uint32_t)len + (flags & (TH_SYN | TH_FIN) ? 1 : 0);
	t->unacked[from] += (uint32_t)len;
	t->unacked[!from] = 0;
}

static void segment(struct trace_conn *t, enum side from, const uint8_t *data, size_t len)
{
	write_packet(t, from, TH_ACK | TH_PUSH, data, len);
	if (t->unacked[from] >= ACK_EVERY)
		write_packet(t, !from, TH_ACK, NULL, 0);
}

static void handshake(struct trace_conn *t, enum side initiator)
{
	write_packet(t, initiator, TH_SYN, NULL, 0);
	write_packet(t, !initiator, TH_SYN | TH_ACK, NULL, 0);
	write_packet(t, initiator, TH_ACK, NULL, 0);
}

static void farewell(struct trace_conn *t)
{
	write_packet(t, OURS, TH_FIN | TH_ACK, NULL, 0);
	write_packet(t, THEIRS, TH_FIN | TH_ACK, NULL, 0);
	write_packet(t, OURS, TH_ACK, NULL, 0);
}

/* ---- connections ------------------------------------------------------- */

/* Returns whether the address is IPv6 (and not a mapped IPv4 one). */
static bool end_from_sockaddr(struct end *e, const struct sockaddr_storage *ss)
{
	const struct sockaddr_in *in = (const void *)ss;
	const struct sockaddr_in6 *in6 = (const void *)ss;

	memset(e, 0, sizeof(*e));
	if (ss->ss_family != AF_INET6) {
		e->port = in->sin_port;
		memcpy(e->addr, &in->sin_addr, 4);
		return false;
	}
	e->port = in6->sin6_port;
	if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		memcpy(e->addr, in6->sin6_addr.s6_addr + 12, 4);
		return false;
	}
	memcpy(e->addr, &in6->sin6_addr, 16);
	return true;
}

static bool same_end(const struct end *a, const struct end *b)
{
	return a->port == b->port && memcmp(a->addr, b->addr, sizeof(a->addr)) == 0;
}

/* Is the other end of this connection in this process, and recorded already? */
static bool seen_from_other_end(const struct trace_conn *t)
{
	list_for_each (it, &conns) {
		const struct trace_conn *o = list_entry(it, struct trace_conn, link);

		if (same_end(&o->end[OURS], &t->end[THEIRS]) &&
		    same_end(&o->end[THEIRS], &t->end[OURS]))
			return true;
	}
	return false;
}

static void conn_free(struct trace_conn *t)
{
	if (!t)
		return;
	free(t->flow[OURS].hold);
	free(t->flow[THEIRS].hold);
	free(t);
}

static struct trace_conn *conn_new(const struct sockaddr_storage *local,
				   const struct sockaddr_storage *peer)
{
	struct trace_conn *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	for (enum side from = OURS; from <= THEIRS; from++) {
		t->flow[from].hold = malloc(MPA_FRAME_MAX);
		if (!t->flow[from].hold)
			goto err_free;
		/* Random each time, so that a reused port is a new connection to a reader. */
		t->seq[from] = random_u32();
	}
	t->ipv6 = end_from_sockaddr(&t->end[OURS], local);
	end_from_sockaddr(&t->end[THEIRS], peer);
	if (same_end(&t->end[OURS], &t->end[THEIRS])) /* a socket that is connected to itself */
		t->end[THEIRS].port ^= htons(1);
	t->age = trace_file_age();
	t->ip_id = 1;
	return t;

err_free:
	conn_free(t);
	return NULL;
}

struct trace_conn *trace_open(const struct sockaddr_storage *local,
			      const struct sockaddr_storage *peer, bool initiator)
{
	struct trace_conn *t;

	if (!config()->trace)
		return NULL;
	trace_file_prepare();
	HOLD_FOR_SCOPE(&trace_lock);
	if (!trace_file_open())
		return NULL;
	if (conns_age != trace_file_age()) /* those are the parent's */
		list_init(&conns);
	conns_age = trace_file_age();
	t = conn_new(local, peer);
	if (!t || seen_from_other_end(t)) {
		conn_free(t);
		return NULL;
	}
	list_add_tail(&conns, &t->link);
	t->initiator = initiator ? OURS : THEIRS;
	handshake(t, t->initiator);
	return t;
}

/* A connection inherited through fork() belongs to the parent's file. */
static bool is_writable(const struct trace_conn *t)
{
	return trace_file_is_open() && t->age == trace_file_age();
}

/* ---- where packets may end --------------------------------------------- */

/* Sets the framing after an MPA frame of this direction. */
static void begin_fpdus(struct flow *f)
{
	uint8_t *hold = f->wants_markers ? realloc(f->hold, MAX_MARKED) : NULL;

	if (hold)
		f->hold = hold;
	f->kind = !f->wants_markers ? FPDUS : hold ? MARKED_FPDUS : NO_FRAMES;
}

/* Returns the length of the MPA frame at data, or 0 if it is incomplete. */
static size_t mpa_frame_len(struct trace_conn *t, enum side from, const uint8_t *data, size_t len)
{
	static const char key[] = "MPA ID Re"; /* Req or Rep */
	struct flow *f = &t->flow[from], *other = &t->flow[!from];
	size_t n = len < sizeof(key) - 1 ? len : sizeof(key) - 1;
	size_t size;

	if (memcmp(data, key, n) != 0) {
		f->kind = NO_FRAMES;
		return len;
	}
	if (len < MPA_FRAME_LEN)
		return 0;
	size = MPA_FRAME_LEN + get_be16(data + 18);
	if (size > MPA_FRAME_MAX) {
		f->kind = other->kind = NO_FRAMES;
		return len;
	}
	if (len < size)
		return 0;
	other->wants_markers = data[16] & MPA_MARKERS;
	if (other->wants_markers && other->kind == FPDUS)
		begin_fpdus(other);
	begin_fpdus(f);
	return size;
}

/* The same for an FPDU with its markers. */
static size_t marked_fpdu_len(struct flow *f, const uint8_t *data, size_t len)
{
	size_t marker = f->pos % MARKER_INTERVAL ? 0 : MARKER_LEN;
	size_t size;

	if (len < marker + MPA_LEN_FIELD)
		return 0;
	size = markers_raw_len(f->pos, fpdu_len(get_be16(data + marker)));
	if (size > MAX_MARKED) {
		f->kind = NO_FRAMES;
		return len;
	}
	if (len < size)
		return 0;
	f->pos += size;
	return size;
}

/* Plain FPDUs: takes all of them; the last one may continue in the next packet. */
static size_t fpdus_len(struct flow *f, const uint8_t *data, size_t len)
{
	size_t end = 0, n;

	while (end < len) {
		if (f->left == 0 && len - end < 8)
			break;
		if (f->left == 0)
			f->left = fpdu_len(get_be16(data + end));
		n = f->left < len - end ? f->left : len - end;
		f->left -= n;
		end += n;
	}
	return end;
}

/* Returns how many of these bytes make a packet that Wireshark can decode. */
static size_t good_end(struct trace_conn *t, enum side from, const uint8_t *data, size_t len)
{
	struct flow *f = &t->flow[from];

	if (!len)
		return 0;
	switch (f->kind) {
	case MPA_FRAME:
		return mpa_frame_len(t, from, data, len);
	case FPDUS:
		return fpdus_len(f, data, len);
	case MARKED_FPDUS:
		return marked_fpdu_len(f, data, len);
	case NO_FRAMES:
		break;
	}
	return len;
}

/* Copies from the pieces, beginning at *off, into a buffer with room for size bytes. */
static size_t gather_pieces(uint8_t *buf, size_t size, const struct iovec *iov, int n, size_t *off)
{
	size_t skip = *off, got = 0;

	for (int i = 0; i < n && got < size; i++) {
		size_t some = iov[i].iov_len;

		if (skip >= some) {
			skip -= some;
			continue;
		}
		some -= skip;
		if (some > size - got)
			some = size - got;
		memcpy(buf + got, (const uint8_t *)iov[i].iov_base + skip, some);
		got += some;
		skip = 0;
	}
	*off += got;
	return got;
}

/* Writes the packets that these bytes make; the rest waits. */
static void write_packets(struct trace_conn *t, enum side from, const uint8_t *data, size_t len)
{
	struct flow *f = &t->flow[from];
	size_t end;

	while ((end = good_end(t, from, data, len))) {
		segment(t, from, data, end);
		data += end;
		len -= end;
	}
	memcpy(f->hold, data, len);
	f->held = len;
}

void trace_bytes(struct trace_conn *t, bool sent, const struct iovec *iov, int n, size_t len)
{
	static uint8_t buf[MAX_MARKED]; /* protected by trace_lock */
	enum side from = sent ? OURS : THEIRS;
	size_t off = 0, most, room;
	struct flow *f;

	if (!t)
		return;
	HOLD_FOR_SCOPE(&trace_lock);
	f = &t->flow[from];
	while (off < len && is_writable(t)) {
		most = f->kind == MARKED_FPDUS ? MAX_MARKED : MAX_SEGMENT;
		room = most - f->held < len - off ? most - f->held : len - off;
		memcpy(buf, f->hold, f->held);
		room = gather_pieces(buf + f->held, room, iov, n, &off);
		write_packets(t, from, buf, f->held + room);
	}
}

/* Writes the MPA frame that stands for a hello. */
static void write_hello(struct trace_conn *t, enum side from, const struct hello *h, bool reply)
{
	uint8_t private_data[HELLO_LEN], buf[MPA_FRAME_LEN + HELLO_LEN];
	struct mpa_frame f = {
		.reply = reply,
		.flags = h->flags & HELLO_CRC ? MPA_CRC : 0,
		.rev = 1,
		.private_data = private_data,
		.private_len = HELLO_LEN,
	};
	int len;

	hello_encode(h, private_data);
	len = mpa_encode(&f, buf, sizeof(buf));
	assert(len == sizeof(buf));
	write_packets(t, from, buf, (size_t)len);
}

void trace_hellos(struct trace_conn *t, const struct hello *ask, const struct hello *ready)
{
	if (!t)
		return;
	HOLD_FOR_SCOPE(&trace_lock);
	if (!is_writable(t))
		return;
	write_hello(t, t->initiator, ask, false);
	write_hello(t, !t->initiator, ready, true);
}

/* Writes bytes that waited for more when the stream ends. */
static void flush(struct trace_conn *t, enum side from)
{
	struct flow *f = &t->flow[from];

	if (f->held)
		segment(t, from, f->hold, f->held);
	f->held = 0;
}

void trace_close(struct trace_conn *t, bool reset)
{
	if (!t)
		return;
	HOLD_FOR_SCOPE(&trace_lock);
	if (t->age == trace_file_age())
		list_del(&t->link);
	if (is_writable(t)) {
		flush(t, OURS);
		flush(t, THEIRS);
	}
	if (is_writable(t) && reset)
		write_packet(t, OURS, TH_RST | TH_ACK, NULL, 0);
	else if (is_writable(t))
		farewell(t);
	conn_free(t);
}
