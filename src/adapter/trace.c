// SPDX-License-Identifier: BSD-2-Clause
/*
 * trace.c - a record of a stream's bytes as pcapng, written inside the process.
 *
 * The adapter sees a stream of bytes, not packets, so IP and TCP headers are
 * synthesized here: a handshake, segments with consistent sequence numbers and correct
 * checksums, a FIN or RST. Wireshark then follows the stream and decodes iWARP as
 * if the packets had been captured, and nobody had to be root.
 *
 * Every block reaches the file by one writev(): a killed process leaves a file
 * that ends with a whole packet. A file that cannot be written on is given
 * up, with one line in the log; the program never notices.
 *
 * Names: %p becomes the process id. A name without %p belongs to the first
 * process that opens it; a process that finds it there already puts its id before
 * the extension (run.pcapng, run.4711.pcapng). So nothing is ever overwritten by
 * a process that only inherited STAG_TRACE.
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
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "adapter/config.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/random.h"

#define BLOCK_SECTION	 0x0a0d0d0au
#define BLOCK_INTERFACE	 1u
#define BLOCK_PACKET	 6u
#define BYTE_ORDER_MAGIC 0x1a2b3c4du
#define LINKTYPE_RAW	 101 /* packets begin with their IP header */
#define SNAPLEN		 65535u

enum { OPT_END = 0, OPT_USERAPPL = 4, OPT_IF_NAME = 2, OPT_IF_TSRESOL = 9, OPT_PACKET_FLAGS = 2 };
enum { PACKET_INBOUND = 1, PACKET_OUTBOUND = 2 };

#define MAX_SEGMENT  32768	  /* payload bytes of a synthesized packet */
#define MAX_MARKED   65470	  /* the same for an FPDU with markers, which is not cut */
#define ACK_EVERY    (256 * 1024) /* one-way bytes until the other side acknowledges */
#define HEAD_LEN     28		  /* bytes of a packet block before its packet */
#define TAIL_LEN     16 /* bytes behind it and its padding: direction, end of options, length */
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
	struct list link;    /* in file.conns */
	unsigned generation; /* of the file that it is written to */
	bool ipv6;
	uint16_t ip_id;
	struct end end[2];   /* these are indexed by enum side */
	uint32_t seq[2];     /* of the next byte */
	uint32_t unacked[2]; /* bytes since the other side last acknowledged */
	struct flow flow[2];
};

static struct {
	struct lock lock;
	pthread_once_t once;
	enum { FILE_UNOPENED, FILE_OPEN, FILE_GIVEN_UP } state; /* written by set_file_state() */
	unsigned generation; /* counts forks: a child writes a file of its own */
	int fd;
	dev_t dev; /* identify the file: a descriptor that the program closed */
	ino_t ino; /* and reused must not be written to */
	off_t size;
	struct list conns; /* open ones */
} file = {
	.lock = LOCK_INITIALIZER,
	.once = PTHREAD_ONCE_INIT,
	.fd = -1,
	.conns = {&file.conns, &file.conns},
};

/* ---- the file ---------------------------------------------------------- */

/* UNOPENED -> OPEN -> GIVEN_UP, or at once GIVEN_UP; a forked child begins again with UNOPENED. */
static void set_file_state(int to)
{
	assert(lock_held(&file.lock));
	assert(to == FILE_UNOPENED || file.state < (unsigned)to);
	file.state = to;
}

static void before_fork(void)
{
	lock_acquire(&file.lock);
}

static void after_fork_in_parent(void)
{
	lock_release(&file.lock);
}

static void after_fork_in_child(void)
{
	if (file.state == FILE_OPEN)
		close(file.fd);
	set_file_state(FILE_UNOPENED);
	file.generation++;
	list_init(&file.conns);
	lock_release(&file.lock);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void give_up(const char *why)
{
	log_warn("trace: %s, tracing stops", why);
	if (file.fd >= 0)
		close(file.fd);
	file.fd = -1;
	set_file_state(FILE_GIVEN_UP);
}

/* The program may have closed our descriptor (daemons do) and got its number for another file. */
static bool still_ours(void)
{
	struct stat st;

	return fstat(file.fd, &st) == 0 && st.st_dev == file.dev && st.st_ino == file.ino;
}

static void write_block(const struct iovec *iov, int n, size_t len)
{
	ssize_t done;
	int err;

	assert(lock_held(&file.lock));
	if (file.state != FILE_OPEN)
		return;
	if (!still_ours()) {
		file.fd = -1;
		give_up("the program closed its file");
		return;
	}
	do {
		done = writev(file.fd, iov, n);
	} while (done < 0 && errno == EINTR);
	if (done == (ssize_t)len) {
		file.size += done;
		return;
	}
	err = done < 0 ? errno : ENOSPC;
	if (ftruncate(file.fd, file.size) < 0)
		log_debug("trace: the last packet is cut off");
	give_up(strerror(err));
}

static uint8_t *put_u32(uint8_t *p, uint32_t v)
{
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static uint8_t *put_u16(uint8_t *p, uint16_t v)
{
	memcpy(p, &v, sizeof(v));
	return p + sizeof(v);
}

static uint8_t *put_option(uint8_t *p, uint16_t code, const void *value, uint16_t len)
{
	p = put_u16(p, code);
	p = put_u16(p, len);
	if (len)
		memcpy(p, value, len);
	memset(p + len, 0, -len & 3u);
	return p + len + (-len & 3u);
}

/* Fills in the two lengths of a block from start to p, where its last field goes. */
static size_t end_block(uint8_t *start, uint8_t *p)
{
	uint32_t len = (uint32_t)(p - start) + 4;

	put_u32(start + 4, len);
	put_u32(p, len);
	return len;
}

static size_t section_block(uint8_t *buf)
{
	static const char app[] = "stag";
	uint8_t *p = put_u32(buf, BLOCK_SECTION) + 4;

	p = put_u32(p, BYTE_ORDER_MAGIC);
	p = put_u16(p, 1); /* version 1.0 */
	p = put_u16(p, 0);
	memset(p, 0xff, 8); /* a section of unknown length */
	p = put_option(p + 8, OPT_USERAPPL, app, sizeof(app) - 1);
	return end_block(buf, put_option(p, OPT_END, NULL, 0));
}

static size_t interface_block(uint8_t *buf)
{
	static const char name[] = "stag0";
	static const uint8_t nanoseconds = 9;
	uint8_t *p = put_u32(buf, BLOCK_INTERFACE) + 4;

	p = put_u16(p, LINKTYPE_RAW);
	p = put_u16(p, 0);
	p = put_u32(p, SNAPLEN);
	p = put_option(p, OPT_IF_NAME, name, sizeof(name) - 1);
	p = put_option(p, OPT_IF_TSRESOL, &nanoseconds, 1);
	return end_block(buf, put_option(p, OPT_END, NULL, 0));
}

static void write_file_header(void)
{
	uint8_t buf[256];
	size_t len = section_block(buf);
	struct iovec iov;

	len += interface_block(buf + len);
	iov = (struct iovec){buf, len};
	write_block(&iov, 1, len);
}

/* Replaces %p in the pattern by the process id. Returns 1, 0 if there was none, or -errno. */
static int expand_name(char *out, size_t size, const char *pattern)
{
	const char *mark = strstr(pattern, "%p");
	int n;

	if (mark)
		n = snprintf(out, size, "%.*s%d%s", (int)(mark - pattern), pattern, (int)getpid(),
			     mark + 2);
	else
		n = snprintf(out, size, "%s", pattern);
	return n < (int)size ? mark != NULL : -ENAMETOOLONG;
}

/* run.pcapng -> run.4711.pcapng */
static int name_with_pid(char *out, size_t size, const char *name)
{
	const char *slash = strrchr(name, '/');
	const char *dot = strrchr(slash ? slash : name, '.');
	size_t stem = dot ? (size_t)(dot - name) : strlen(name);
	int n = snprintf(out, size, "%.*s.%d%s", (int)stem, name, (int)getpid(), name + stem);

	return n < (int)size ? 0 : -ENAMETOOLONG;
}

/* The file contains payload: only the user may read it. */
static int open_new(const char *name, int flag)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_CLOEXEC | flag, 0600);

	return fd < 0 ? -errno : fd;
}

static int open_by_pattern(const char *pattern, char *name, size_t size)
{
	int has_pid = expand_name(name, size, pattern);
	int fd, err;

	if (has_pid < 0)
		return has_pid;
	fd = open_new(name, has_pid ? O_TRUNC : O_EXCL);
	if (has_pid || fd != -EEXIST)
		return fd;
	err = name_with_pid(name, size, pattern);
	return err ? err : open_new(name, O_TRUNC);
}

static void open_file(void)
{
	char name[PATH_MAX];
	struct stat st;
	int fd = open_by_pattern(config()->trace, name, sizeof(name));

	if (fd < 0 || fstat(fd, &st) < 0) {
		log_warn("trace: cannot write %s: %s", config()->trace,
			 strerror(fd < 0 ? -fd : errno));
		set_file_state(FILE_GIVEN_UP);
		return;
	}
	/* Tells `stag run` that the file is in use: see app/stag/run.c. */
	flock(fd, LOCK_EX | LOCK_NB);
	file.fd = fd;
	file.dev = st.st_dev;
	file.ino = st.st_ino;
	file.size = 0;
	set_file_state(FILE_OPEN);
	log_info("trace: writing %s", name);
	write_file_header();
}

/* ---- packets ----------------------------------------------------------- */

struct checksum {
	uint64_t sum;
	bool odd; /* the number of bytes so far is odd */
};

static uint16_t fold(uint64_t sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)sum;
}

/* RFC 1071, over bytes that come in pieces of any length. */
static void checksum_add(struct checksum *c, const void *data, size_t len)
{
	const uint8_t *p = data;
	uint64_t sum = 0;
	uint16_t last = 0, folded;
	uint32_t word;
	size_t left = len;

	for (; left >= 4; left -= 4, p += 4) {
		memcpy(&word, p, 4);
		sum += word;
	}
	for (; left >= 2; left -= 2, p += 2) {
		memcpy(&last, p, 2);
		sum += last;
	}
	if (left) {
		last = 0;
		memcpy(&last, p, 1);
		sum += last;
	}
	folded = fold(sum);
	c->sum += c->odd ? __builtin_bswap16(folded) : folded;
	c->odd ^= len & 1;
}

static size_t put_ipv4(struct trace_conn *t, enum side from, uint8_t *p, size_t tcp_len)
{
	struct iphdr ip = {
		.version = 4,
		.ihl = 5,
		.tot_len = htons((uint16_t)(sizeof(ip) + tcp_len)),
		.id = htons(t->ip_id++),
		.frag_off = htons(IP_DF),
		.ttl = 64,
		.protocol = IPPROTO_TCP,
	};
	struct checksum c = {0};

	memcpy(&ip.saddr, t->end[from].addr, 4);
	memcpy(&ip.daddr, t->end[!from].addr, 4);
	checksum_add(&c, &ip, sizeof(ip));
	ip.check = (uint16_t)~fold(c.sum);
	memcpy(p, &ip, sizeof(ip));
	return sizeof(ip);
}

static size_t put_ipv6(struct trace_conn *t, enum side from, uint8_t *p, size_t tcp_len)
{
	struct ip6_hdr ip = {0};

	ip.ip6_flow = htonl(6u << 28);
	ip.ip6_plen = htons((uint16_t)tcp_len);
	ip.ip6_nxt = IPPROTO_TCP;
	ip.ip6_hlim = 64;
	memcpy(&ip.ip6_src, t->end[from].addr, 16);
	memcpy(&ip.ip6_dst, t->end[!from].addr, 16);
	memcpy(p, &ip, sizeof(ip));
	return sizeof(ip);
}

/* The part of TCP's checksum that is not in the segment. */
static void add_pseudo_header(struct checksum *c, struct trace_conn *t, size_t tcp_len)
{
	size_t len = t->ipv6 ? 16 : 4;
	uint32_t tail[2] = {htonl((uint32_t)tcp_len), htonl(IPPROTO_TCP)};

	checksum_add(c, t->end[OURS].addr, len);
	checksum_add(c, t->end[THEIRS].addr, len);
	checksum_add(c, tail, sizeof(tail));
}

static size_t put_tcp(struct trace_conn *t, enum side from, uint8_t *p, uint8_t flags,
		      const uint8_t *data, size_t len)
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
	add_pseudo_header(&c, t, header + len);
	checksum_add(&c, &tcp, sizeof(tcp));
	checksum_add(&c, p + sizeof(tcp), options);
	checksum_add(&c, data, len);
	tcp.th_sum = (uint16_t)~fold(c.sum);
	memcpy(p, &tcp, sizeof(tcp));
	return header;
}

static uint8_t *put_packet_header(uint8_t *p)
{
	struct timespec now;
	uint64_t ns;

	clock_gettime(CLOCK_REALTIME, &now);
	ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
	p = put_u32(p, BLOCK_PACKET) + 4;
	p = put_u32(p, 0); /* the one interface */
	p = put_u32(p, (uint32_t)(ns >> 32));
	p = put_u32(p, (uint32_t)ns);
	return p + 8; /* the lengths follow when they are known */
}

/* Padding, options and the block's length again. */
static size_t put_packet_tail(uint8_t *p, enum side from, uint32_t pad, uint32_t total)
{
	uint32_t direction = from == OURS ? PACKET_OUTBOUND : PACKET_INBOUND;

	memset(p, 0, pad);
	p = put_option(p + pad, OPT_PACKET_FLAGS, &direction, sizeof(direction));
	p = put_option(p, OPT_END, NULL, 0);
	put_u32(p, total);
	return pad + TAIL_LEN;
}

/* Writes a TCP segment from one side. */
static void write_packet(struct trace_conn *t, enum side from, uint8_t flags, const uint8_t *data,
			 size_t len)
{
	uint8_t head[HEAD_LEN + sizeof(struct ip6_hdr) + sizeof(struct tcphdr) + SYN_OPTIONS];
	uint8_t tail[3 + TAIL_LEN];
	struct iovec out[3];
	uint8_t *ip = put_packet_header(head), *p = ip;
	size_t tcp_len = sizeof(struct tcphdr) + (flags & TH_SYN ? SYN_OPTIONS : 0) + len;
	uint32_t captured, pad, total;

	p += t->ipv6 ? put_ipv6(t, from, p, tcp_len) : put_ipv4(t, from, p, tcp_len);
	p += put_tcp(t, from, p, flags, data, len);
	captured = (uint32_t)(p - ip) + (uint32_t)len;
	pad = -captured & 3u;
	total = HEAD_LEN + captured + pad + TAIL_LEN;
	put_u32(head + 4, total);
	put_u32(put_u32(ip - 8, captured), captured);

	out[0] = (struct iovec){head, (size_t)(p - head)};
	out[1] = (struct iovec){(void *)data, len};
	out[2] = (struct iovec){tail, put_packet_tail(tail, from, pad, total)};
	write_block(out, 3, total);

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
	list_for_each (it, &file.conns) {
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
	t->generation = file.generation;
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
	pthread_once(&file.once, watch_forks);
	HOLD_FOR_SCOPE(&file.lock);
	if (file.state == FILE_UNOPENED)
		open_file();
	if (file.state != FILE_OPEN)
		return NULL;
	t = conn_new(local, peer);
	if (!t || seen_from_other_end(t)) {
		conn_free(t);
		return NULL;
	}
	list_add_tail(&file.conns, &t->link);
	handshake(t, initiator ? OURS : THEIRS);
	return t;
}

/* A connection inherited through fork() belongs to the parent's file. */
static bool is_writable(const struct trace_conn *t)
{
	return file.state == FILE_OPEN && t->generation == file.generation;
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
	static uint8_t buf[MAX_MARKED]; /* protected by file.lock */
	enum side from = sent ? OURS : THEIRS;
	size_t off = 0, most, room;
	struct flow *f;

	if (!t)
		return;
	HOLD_FOR_SCOPE(&file.lock);
	f = &t->flow[from];
	while (off < len && is_writable(t)) {
		most = f->kind == MARKED_FPDUS ? MAX_MARKED : MAX_SEGMENT;
		room = most - f->held < len - off ? most - f->held : len - off;
		memcpy(buf, f->hold, f->held);
		room = gather_pieces(buf + f->held, room, iov, n, &off);
		write_packets(t, from, buf, f->held + room);
	}
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
	HOLD_FOR_SCOPE(&file.lock);
	if (t->generation == file.generation)
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
