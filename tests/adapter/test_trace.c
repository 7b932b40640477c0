// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_trace.c - the files that trace.c writes, read back by a small parser here and by tshark.
 *
 * A trace belongs to one process, so each conversation runs in a child; the test then checks the
 * file that it left.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "adapter/config.h"
#include "adapter/trace.h"
#include "base/crc32c.h"
#include "wire/datagram.h"
#include "wire/wire.h"

#define CLIENT_PORT 40001
#define SERVER_PORT 40002

static struct stag_config test_config;

const struct stag_config *config(void)
{
	return &test_config;
}

/* ---- a directory for each test ----------------------------------------- */

static char dir[64], path[128];

static int make_dir(void **state)
{
	strcpy(dir, "/tmp/test_trace.XXXXXX");
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/run.pcapng", dir);
	test_config.trace = path;
	return 0;
}

static int remove_dir(void **state)
{
	char name[512];
	DIR *d = opendir(dir);

	for (struct dirent *e; (e = readdir(d));) {
		snprintf(name, sizeof(name), "%s/%s", dir, e->d_name);
		unlink(name);
	}
	closedir(d);
	return rmdir(dir);
}

/* Runs story in a child process. Returns the child's process id. */
static pid_t in_a_process(void (*story)(void))
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		story();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) ? WEXITSTATUS(status) == 0 : WTERMSIG(status) == SIGKILL);
	return pid;
}

/* ---- writing a trace --------------------------------------------------- */

static struct sockaddr_storage ipv4(unsigned port)
{
	struct sockaddr_storage ss = {0};
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;

	in->sin_family = AF_INET;
	in->sin_port = htons((uint16_t)port);
	in->sin_addr.s_addr = htonl(0x7f000001);
	return ss;
}

static struct sockaddr_storage ipv6(const char *addr, unsigned port)
{
	struct sockaddr_storage ss = {0};
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&ss;

	in6->sin6_family = AF_INET6;
	in6->sin6_port = htons((uint16_t)port);
	inet_pton(AF_INET6, addr, &in6->sin6_addr);
	return ss;
}

static struct trace_conn *open_ipv4(void)
{
	struct sockaddr_storage local = ipv4(CLIENT_PORT), peer = ipv4(SERVER_PORT);

	return trace_open(&local, &peer, true);
}

enum { PEER_SAYS, WE_SAY };

static void pass_to_trace(struct trace_conn *t, int who, const void *data, size_t len)
{
	struct iovec iov = {(void *)data, len};

	trace_bytes(t, who == WE_SAY, &iov, 1, len);
}

/* Returns a byte that depends on its position. */
static uint8_t pattern(size_t i)
{
	return (uint8_t)(i * 7 + i / 251);
}

static uint8_t big[300000];

static void fill_big(void)
{
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = pattern(i);
}

/* ---- reading a trace --------------------------------------------------- */

struct view { /* state of one direction */
	uint8_t bytes[1 << 20];
	size_t len;
	uint32_t next_seq; /* valid after its SYN */
	unsigned syn, fin, rst;
	uint16_t sport;
};

static struct capture {
	uint8_t raw[2 << 20];
	size_t len;
	unsigned packets, conversations;
	struct view from_client, from_server;
} cap;

static uint32_t u32_at(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* Computes the checksum of RFC 1071, byte by byte. */
static unsigned ones_sum(unsigned sum, const uint8_t *p, size_t len)
{
	for (size_t i = 0; i < len; i++)
		sum += i & 1 ? p[i] : (unsigned)p[i] << 8;
	return sum;
}

static unsigned folded(unsigned sum)
{
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

static void read_tcp(const uint8_t *tcp, size_t len)
{
	struct view *v = get_be16(tcp) == CLIENT_PORT ? &cap.from_client : &cap.from_server;
	struct view *other = v == &cap.from_client ? &cap.from_server : &cap.from_client;
	size_t header = (size_t)(tcp[12] >> 4) * 4;
	uint32_t seq = get_be32(tcp + 4), ack = get_be32(tcp + 8);
	uint8_t flags = tcp[13];
	size_t payload = len - header;

	if (flags & 0x02) {
		v->syn++;
		v->next_seq = seq;
		cap.conversations += !(flags & 0x10);
	}
	assert_int_equal(seq, v->next_seq);
	if (flags & 0x10)
		assert_int_equal(ack, other->next_seq);
	v->fin += flags & 0x01;
	v->rst += (flags & 0x04) != 0;
	v->next_seq += (uint32_t)payload + !!(flags & 0x03);
	assert_true(v->len + payload <= sizeof(v->bytes));
	memcpy(v->bytes + v->len, tcp + header, payload);
	v->len += payload;
}

static void read_ip(const uint8_t *ip, size_t len)
{
	bool six = ip[0] >> 4 == 6;
	size_t header = six ? 40 : 20;
	size_t tcp_len = len - header;
	unsigned sum;

	assert_int_equal(ip[six ? 6 : 9], 6);
	if (six) {
		assert_int_equal(get_be16(ip + 4), tcp_len);
		sum = ones_sum(0, ip + 8, 32);
	} else {
		assert_int_equal(get_be16(ip + 2), len);
		assert_int_equal(folded(ones_sum(0, ip, 20)), 0xffff);
		sum = ones_sum(0, ip + 12, 8);
	}
	sum += 6 + (unsigned)tcp_len;
	assert_int_equal(folded(ones_sum(folded(sum), ip + header, tcp_len)), 0xffff);
	read_tcp(ip + header, tcp_len);
}

/* Reads the file, and checks every block and packet in it. */
static void read_capture(const char *name)
{
	FILE *f = fopen(name, "r");
	size_t off = 0;

	assert_non_null(f);
	memset(&cap, 0, sizeof(cap));
	cap.len = fread(cap.raw, 1, sizeof(cap.raw), f);
	fclose(f);
	for (unsigned n = 0; off < cap.len; n++) {
		const uint8_t *block = cap.raw + off;
		uint32_t type = u32_at(block), len = u32_at(block + 4);

		assert_true(len % 4 == 0 && len >= 12 && len <= cap.len - off);
		assert_int_equal(u32_at(block + len - 4), len);
		assert_int_equal(type, n == 0 ? 0x0a0d0d0a : n == 1 ? 1 : 6);
		if (type == 6) {
			assert_int_equal(u32_at(block + 20), u32_at(block + 24));
			read_ip(block + 28, u32_at(block + 20));
			cap.packets++;
		}
		off += len;
	}
	assert_int_equal(off, cap.len);
	assert_true(cap.packets > 0);
}

static void expect_said(const struct view *v, const void *bytes, size_t len)
{
	assert_int_equal(v->len, len);
	assert_memory_equal(v->bytes, bytes, len);
}

/* ---- the tests --------------------------------------------------------- */

static void short_talk(void)
{
	struct trace_conn *t = open_ipv4();

	pass_to_trace(t, WE_SAY, "hello", 5);
	pass_to_trace(t, PEER_SAYS, "good day", 8);
	pass_to_trace(t, WE_SAY, "bye", 3);
	trace_close(t, false);
}

static void recorded_conversation_reads_back(void **state)
{
	in_a_process(short_talk);
	read_capture(path);
	expect_said(&cap.from_client, "hellobye", 8);
	expect_said(&cap.from_server, "good day", 8);
	assert_int_equal(cap.from_client.syn + cap.from_server.syn, 2);
	assert_int_equal(cap.from_client.fin + cap.from_server.fin, 2);
	assert_int_equal(cap.from_client.rst + cap.from_server.rst, 0);
}

static void accept_ipv6_and_reset(void)
{
	struct sockaddr_storage local = ipv6("fe80::2", SERVER_PORT);
	struct sockaddr_storage peer = ipv6("fe80::1", CLIENT_PORT);
	struct trace_conn *t = trace_open(&local, &peer, false);

	pass_to_trace(t, PEER_SAYS, "hi", 2);
	trace_close(t, true);
}

static void reset_of_an_accepted_ipv6_connection_is_recorded(void **state)
{
	in_a_process(accept_ipv6_and_reset);
	read_capture(path);
	expect_said(&cap.from_client, "hi", 2);
	assert_int_equal(cap.from_server.rst, 1);
	assert_int_equal(cap.from_client.fin + cap.from_server.fin, 0);
	/* The client connected: the first packet is its SYN. */
	assert_int_equal(cap.conversations, 1);
}

static void mapped_talk(void)
{
	struct sockaddr_storage local = ipv6("::ffff:127.0.0.1", CLIENT_PORT);
	struct sockaddr_storage peer = ipv6("::ffff:127.0.0.1", SERVER_PORT);
	struct trace_conn *t = trace_open(&local, &peer, true);

	pass_to_trace(t, WE_SAY, "x", 1);
	trace_close(t, false);
}

static void mapped_addresses_become_ipv4_packets(void **state)
{
	in_a_process(mapped_talk);
	read_capture(path);
	expect_said(&cap.from_client, "x", 1);
	for (size_t off = 0; off < cap.len; off += u32_at(cap.raw + off + 4))
		if (u32_at(cap.raw + off) == 6)
			assert_int_equal(cap.raw[off + 28] >> 4, 4);
}

/* Sends pieces of every small length, empty ones too, and then one of 250 kB. */
static void many_pieces(void)
{
	struct trace_conn *t = open_ipv4();
	struct iovec iov[200];
	size_t off = 0;

	fill_big();
	for (size_t i = 0; i < 199; i++) {
		iov[i] = (struct iovec){big + off, i % 9};
		off += i % 9;
	}
	iov[199] = (struct iovec){big + off, 250000};
	trace_bytes(t, true, iov, 200, off + 250000);
	trace_close(t, false);
}

static void bytes_sent_in_many_pieces_are_recorded_whole(void **state)
{
	size_t off = 0;

	in_a_process(many_pieces);
	for (size_t i = 0; i < 199; i++)
		off += i % 9;
	fill_big();
	read_capture(path);
	expect_said(&cap.from_client, big, off + 250000);
}

static void short_count(void)
{
	struct trace_conn *t = open_ipv4();
	struct iovec iov[2] = {{"abcd", 4}, {"efgh", 4}};

	trace_bytes(t, true, iov, 2, 6);
	trace_close(t, false);
}

static void only_bytes_the_socket_took_are_recorded(void **state)
{
	in_a_process(short_count);
	read_capture(path);
	expect_said(&cap.from_client, "abcdef", 6);
}

static void long_monologue(void)
{
	struct trace_conn *t = open_ipv4();

	fill_big();
	pass_to_trace(t, WE_SAY, big, sizeof(big));
	trace_close(t, false);
}

static void a_long_one_way_stream_is_acknowledged(void **state)
{
	unsigned pure_acks = 0;

	in_a_process(long_monologue);
	read_capture(path);
	for (size_t off = 0; off < cap.len; off += u32_at(cap.raw + off + 4)) {
		const uint8_t *block = cap.raw + off;

		if (u32_at(block) == 6 && u32_at(block + 20) == 40)
			pure_acks += get_be16(block + 28 + 20) == SERVER_PORT &&
				     block[28 + 20 + 13] == 0x10;
	}
	assert_int_equal(pure_acks, 1);
}

static void talk_and_die(void)
{
	struct trace_conn *t = open_ipv4();

	pass_to_trace(t, WE_SAY, "last words", 10);
	raise(SIGKILL);
}

static void a_killed_process_leaves_a_readable_file(void **state)
{
	in_a_process(talk_and_die);
	read_capture(path);
	expect_said(&cap.from_client, "last words", 10);
}

static void name_of(char *out, size_t size, const char *format, pid_t pid)
{
	char tail[64];

	snprintf(tail, sizeof(tail), "%s.%d.pcapng", format, (int)pid);
	snprintf(out, size, "%s/%s", dir, tail);
}

static void a_second_process_does_not_touch_the_first_ones_file(void **state)
{
	char second[256];
	pid_t pid;

	in_a_process(short_talk);
	pid = in_a_process(talk_and_die);
	read_capture(path);
	expect_said(&cap.from_client, "hellobye", 8);
	name_of(second, sizeof(second), "run", pid);
	read_capture(second);
	expect_said(&cap.from_client, "last words", 10);
}

static void percent_p_becomes_the_process_id(void **state)
{
	char format[256], name[256];

	snprintf(format, sizeof(format), "%s/x.%%p.pcapng", dir);
	test_config.trace = format;
	name_of(name, sizeof(name), "x", in_a_process(short_talk));
	read_capture(name);
	expect_said(&cap.from_client, "hellobye", 8);
}

static void fork_in_mid_talk(void)
{
	struct trace_conn *t = open_ipv4();

	pass_to_trace(t, WE_SAY, "parent", 6);
	if (fork() == 0) {
		struct sockaddr_storage local = ipv4(CLIENT_PORT), peer = ipv4(SERVER_PORT);
		struct trace_conn *own;

		pass_to_trace(t, WE_SAY, "never", 5);
		trace_close(t, false);
		own = trace_open(&local, &peer, true);
		pass_to_trace(own, WE_SAY, "child", 5);
		trace_close(own, false);
		_exit(0);
	}
	wait(NULL);
	pass_to_trace(t, WE_SAY, "parent", 6);
	trace_close(t, false);
}

static void a_forked_child_writes_a_file_of_its_own(void **state)
{
	char name[512] = "";
	DIR *d = opendir(dir);

	in_a_process(fork_in_mid_talk);
	read_capture(path);
	expect_said(&cap.from_client, "parentparent", 12);
	for (struct dirent *e; (e = readdir(d));)
		if (strncmp(e->d_name, "run.", 4) == 0 && strcmp(e->d_name, "run.pcapng"))
			snprintf(name, sizeof(name), "%s/%s", dir, e->d_name);
	closedir(d);
	read_capture(name);
	expect_said(&cap.from_client, "child", 5);
}

static void talk_to_myself(void)
{
	struct sockaddr_storage a = ipv4(CLIENT_PORT), b = ipv4(SERVER_PORT);
	struct trace_conn *one = trace_open(&a, &b, true);
	struct trace_conn *two = trace_open(&b, &a, false);

	pass_to_trace(one, WE_SAY, "once", 4);
	pass_to_trace(two, PEER_SAYS, "once", 4);
	trace_close(two, false);
	trace_close(one, false);
}

static void a_connection_with_itself_is_recorded_once(void **state)
{
	in_a_process(talk_to_myself);
	read_capture(path);
	assert_int_equal(cap.conversations, 1);
	expect_said(&cap.from_client, "once", 4);
}

static void talk_on_a_full_disk(void)
{
	struct rlimit limit = {10000, 10000};
	struct trace_conn *t = open_ipv4();

	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
	pass_to_trace(t, WE_SAY, big, 5000);
	pass_to_trace(t, WE_SAY, big, 100000);
	pass_to_trace(t, WE_SAY, big, 100);
	trace_close(t, false);
	assert_null(open_ipv4());
}

static void a_full_disk_ends_the_trace_at_a_whole_packet(void **state)
{
	fill_big();
	in_a_process(talk_on_a_full_disk);
	read_capture(path);
	expect_said(&cap.from_client, big, 5000);
}

/* Acts as a daemon does: closes all descriptors, then opens its own. */
static void reuse_trace_descriptor(void)
{
	char other[256];
	struct trace_conn *t = open_ipv4();
	struct stat st;
	int fd;

	for (fd = 3; fd < 256; fd++)
		close(fd);
	snprintf(other, sizeof(other), "%s/database", dir);
	for (int i = 0; i < 16; i++)
		fd = open(other, O_RDWR | O_CREAT, 0600);
	pass_to_trace(t, WE_SAY, "poison", 6);
	trace_close(t, false);
	if (fstat(fd, &st) < 0 || st.st_size != 0)
		_exit(1);
}

static void trace_does_not_write_to_a_reused_descriptor(void **state)
{
	in_a_process(reuse_trace_descriptor);
	read_capture(path);
	assert_int_equal(cap.from_client.len, 0);
}

static void trace_to_unwritable_file(void)
{
	test_config.trace = "/nonexistent/run.pcapng";
	if (open_ipv4())
		_exit(1);
	trace_bytes(NULL, true, NULL, 0, 0);
	trace_close(NULL, true);
}

static void trace_is_off_if_its_file_cannot_be_created(void **state)
{
	in_a_process(trace_to_unwritable_file);
}

static void trace_is_off_without_a_file_name(void **state)
{
	test_config.trace = NULL;
	assert_null(open_ipv4());
}

/* ---- iWARP, as tshark sees it ------------------------------------------ */

static void trace_mpa(struct trace_conn *t, int who, bool reply)
{
	struct mpa_frame f = {
		.reply = reply, .flags = MPA_CRC | MPA_ENHANCED, .rev = 2, .ird = 1, .ord = 1};
	uint8_t buf[MPA_FRAME_MAX];

	pass_to_trace(t, who, buf, (size_t)mpa_encode(&f, buf, sizeof(buf)));
}

/* Passes an FPDU in three pieces: headers, payload, trailer. */
static void trace_fpdu(struct trace_conn *t, int who, const struct ddp_hdr *h, const void *payload,
		       size_t len)
{
	uint8_t head[2 + DDP_MAX_HDR], tail[3 + MPA_CRC_LEN] = {0};
	size_t hdr = ddp_encode(h, head + 2);
	unsigned pad = fpdu_pad(hdr + len);
	struct iovec iov[3] = {{head, 2 + hdr}, {(void *)payload, len}, {tail, pad + MPA_CRC_LEN}};
	uint32_t crc = CRC32C_INIT;

	put_be16(head, (uint16_t)(hdr + len));
	crc = crc32c_update(crc, head, 2 + hdr);
	crc = crc32c_update(crc, payload, len);
	crc = crc32c_update(crc, tail, pad);
	crc32c_put(tail + pad, crc);
	trace_bytes(t, who == WE_SAY, iov, 3, 2 + hdr + len + pad + MPA_CRC_LEN);
}

static void trace_iwarp(void)
{
	struct ddp_hdr send = {.last = true, .opcode = RDMAP_SEND, .qn = QN_SEND, .msn = 1};
	struct ddp_hdr write = {
		.tagged = true, .last = true, .opcode = RDMAP_WRITE, .stag = 0x100, .to = 64};
	struct trace_conn *t = open_ipv4();

	fill_big();
	trace_mpa(t, WE_SAY, false);
	trace_mpa(t, PEER_SAYS, true);
	trace_fpdu(t, WE_SAY, &send, "rkey 0x100", 10);
	for (unsigned i = 0; i < 20; i++)
		trace_fpdu(t, PEER_SAYS, &write, big, 30000 + i * 1735);
	send.opcode = RDMAP_SEND_SE;
	trace_fpdu(t, PEER_SAYS, &send, "done", 4);
	trace_close(t, false);
}

static void tshark_finds_no_error_in_the_iwarp_stream(void **state)
{
	char command[512];

	if (system("command -v tshark >/dev/null && command -v python3 >/dev/null") != 0)
		skip();
	in_a_process(trace_iwarp);
	read_capture(path);
	snprintf(command, sizeof(command),
		 "out=$('%s' '%s') && echo \"$out\" && case $out in *'22 FPDUs, 22 messages, 22 "
		 "good CRCs'*) ;; "
		 "*) exit 1 ;; esac",
		 CHECK_CAPTURE, path);
	assert_int_equal(system(command), 0);
}

/* Gathers an FPDU into a buffer; returns its length. */
static size_t put_fpdu(uint8_t *buf, const struct ddp_hdr *h, const void *payload, size_t len)
{
	size_t hdr = ddp_encode(h, buf + 2), end;
	uint32_t crc;

	put_be16(buf, (uint16_t)(hdr + len));
	memcpy(buf + 2 + hdr, payload, len);
	end = 2 + hdr + len;
	memset(buf + end, 0, fpdu_pad(hdr + len));
	end += fpdu_pad(hdr + len);
	crc = crc32c_update(CRC32C_INIT, buf, end);
	crc32c_put(buf + end, crc);
	return end + MPA_CRC_LEN;
}

/* Sends an MPA Reply, then sends and writes, cut into pieces at arbitrary points. */
static void trace_iwarp_in_odd_pieces(void)
{
	static uint8_t bytes[1 << 20];
	struct mpa_frame f = {
		.reply = true, .flags = MPA_CRC | MPA_ENHANCED, .rev = 2, .ird = 1, .ord = 1};
	struct ddp_hdr send = {.last = true, .opcode = RDMAP_SEND, .qn = QN_SEND};
	struct ddp_hdr write = {
		.tagged = true, .last = true, .opcode = RDMAP_WRITE, .stag = 0x100, .to = 64};
	struct trace_conn *t = open_ipv4();
	size_t len = (size_t)mpa_encode(&f, bytes, sizeof(bytes)), off = 0;

	fill_big();
	for (unsigned i = 0; i < 200; i++) {
		send.msn = i + 1;
		len += put_fpdu(bytes + len, &send, big, i % 9);
		len += put_fpdu(bytes + len, &write, big, i * 13);
	}
	trace_mpa(t, WE_SAY, false);
	for (size_t piece = 1; off < len; off += piece, piece = piece % 61 + 1)
		pass_to_trace(t, PEER_SAYS, bytes + off, piece < len - off ? piece : len - off);
	trace_close(t, false);
}

static void tshark_dissects_a_stream_cut_at_any_point(void **state)
{
	char command[512];

	if (system("command -v tshark >/dev/null && command -v python3 >/dev/null") != 0)
		skip();
	in_a_process(trace_iwarp_in_odd_pieces);
	read_capture(path);
	snprintf(command, sizeof(command),
		 "out=$('%s' '%s') && echo \"$out\" && case $out in *'400 FPDUs, 400 messages, 400 "
		 "good CRCs'*) ;; "
		 "*) exit 1 ;; esac",
		 CHECK_CAPTURE, path);
	assert_int_equal(system(command), 0);
}

/* ---- roce0, as tshark sees it ------------------------------------------ */

/* Checks with tests/lib/check-capture that the trace has no fault, and that it says this. */
static void expect_of_tshark(const char *words)
{
	char command[512];

	if (system("command -v tshark >/dev/null && command -v python3 >/dev/null") != 0)
		skip();
	snprintf(command, sizeof(command),
		 "out=$('%s' '%s') && echo \"$out\" && case $out in *'%s'*) ;; *) exit 1 ;; esac",
		 CHECK_CAPTURE, path, words);
	assert_int_equal(system(command), 0);
}

static const struct hello ask = {.kind = HELLO_ASK,
				 .type = HELLO_RC,
				 .flags = HELLO_CRC,
				 .from_qpn = 0x800101,
				 .to_qpn = 0x800201};
static const struct hello ready = {
	.kind = HELLO_READY, .type = HELLO_RC, .from_qpn = 0x800201, .to_qpn = 0x800101};

/* A send, its NAK and GO, and the same send again behind a RESUME, and the acknowledgement. */
static void talk_after_hellos(struct trace_conn *t)
{
	struct ddp_hdr send = {.last = true, .opcode = RDMAP_SEND, .qn = QN_SEND, .msn = 1};
	struct ddp_hdr control = {
		.last = true, .opcode = RDMAP_ESCAPE, .qn = QN_TERMINATE, .msn = 1};

	trace_fpdu(t, WE_SAY, &send, "no receive", 10);
	control.ulp = rdmap_escape_ulp(RDMAP_SUB_NAK) | rdmap_nak_arg(NAK_RNR, 12);
	trace_fpdu(t, PEER_SAYS, &control, NULL, 0);
	control.ulp = rdmap_escape_ulp(RDMAP_SUB_GO);
	trace_fpdu(t, PEER_SAYS, &control, NULL, 0);
	control.ulp = rdmap_escape_ulp(RDMAP_SUB_RESUME);
	trace_fpdu(t, WE_SAY, &control, NULL, 0);
	trace_fpdu(t, WE_SAY, &send, "no receive", 10);
	control.ulp = rdmap_escape_ulp(RDMAP_SUB_ACK);
	trace_fpdu(t, PEER_SAYS, &control, NULL, 0);
	trace_close(t, false);
}

static void trace_roce(void)
{
	struct trace_conn *t = open_ipv4();

	trace_hellos(t, &ask, &ready);
	talk_after_hellos(t);
}

static void tshark_finds_no_error_in_a_stream_of_roce0(void **state)
{
	in_a_process(trace_roce);
	read_capture(path);
	expect_of_tshark(
		"1 connections (1 with CRC, 0 rejected), 6 FPDUs, 6 messages, 6 good CRCs");
}

static void trace_roce_that_was_accepted(void)
{
	struct sockaddr_storage local = ipv6("fe80::2", SERVER_PORT);
	struct sockaddr_storage peer = ipv6("fe80::1", CLIENT_PORT);
	struct trace_conn *t = trace_open(&local, &peer, false);

	trace_hellos(t, &ask, &ready);
	talk_after_hellos(t);
}

/* The hello that asks is the peer's then. */
static void hellos_are_recorded_as_private_data(void **state)
{
	uint8_t expected[2][HELLO_LEN];

	in_a_process(trace_roce_that_was_accepted);
	read_capture(path);
	hello_encode(&ask, expected[0]);
	hello_encode(&ready, expected[1]);
	assert_memory_equal(cap.from_client.bytes, "MPA ID Req Frame", 16);
	assert_memory_equal(cap.from_server.bytes, "MPA ID Rep Frame", 16);
	assert_memory_equal(cap.from_client.bytes + MPA_FRAME_LEN, expected[0], HELLO_LEN);
	assert_memory_equal(cap.from_server.bytes + MPA_FRAME_LEN, expected[1], HELLO_LEN);
	expect_of_tshark("6 good CRCs");
}

static void trace_roce_to_itself(void)
{
	struct sockaddr_storage local = ipv4(CLIENT_PORT);
	struct ddp_hdr send = {.last = true, .opcode = RDMAP_SEND, .qn = QN_SEND, .msn = 1};
	struct trace_conn *t = trace_open(&local, &local, true);

	trace_hellos(t, &ask, &ready);
	trace_fpdu(t, WE_SAY, &send, "to myself", 9);
	trace_fpdu(t, PEER_SAYS, &send, "to myself", 9);
	trace_close(t, false);
}

static void a_socket_that_is_connected_to_itself_has_two_directions(void **state)
{
	in_a_process(trace_roce_to_itself);
	read_capture(path);
	expect_of_tshark("2 FPDUs, 2 messages, 2 good CRCs");
}

/* ---- datagrams --------------------------------------------------------- */

static struct datagram datagram(const char *from, const char *to, uint32_t length)
{
	struct datagram d = {.traffic_class = 4,
			     .hop_limit = 64,
			     .src_qpn = 0x800101,
			     .dst_qpn = 0x800201,
			     .qkey = 0x11111111,
			     .length = length};

	assert_int_equal(inet_pton(AF_INET6, from, d.sgid), 1);
	assert_int_equal(inet_pton(AF_INET6, to, d.dgid), 1);
	return d;
}

static void trace_datagrams(void)
{
	struct datagram four = datagram("::ffff:10.0.0.1", "::ffff:10.0.0.2", 1000);
	struct datagram six = datagram("fd00::1", "fd00::2", 0);

	fill_big();
	trace_datagram(true, &four, big);
	for (six.length = 0; six.length < 7; six.length++)
		trace_datagram(false, &six, big);
	six.flags = DATAGRAM_IMM | DATAGRAM_SOLICITED;
	six.length = DATAGRAM_PAYLOAD;
	trace_datagram(true, &six, big);
}

static void tshark_sees_datagrams_as_roce_v2(void **state)
{
	in_a_process(trace_datagrams);
	expect_of_tshark("9 datagrams");
}

/* The CRC of Ethernet, bit by bit. */
static uint32_t crc32_of(const uint8_t *p, size_t len)
{
	uint32_t crc = ~0u;

	for (size_t i = 0; i < len * 8; i++)
		crc = (crc >> 1) ^ ((crc ^ (uint32_t)(p[i / 8] >> i % 8)) & 1 ? 0xedb88320 : 0);
	return ~crc;
}

static void trace_one_datagram(void)
{
	struct datagram d = datagram("::ffff:10.0.0.1", "::ffff:10.0.0.2", 3);

	trace_datagram(true, &d, (const uint8_t *)"abc");
}

static void the_invariant_crc_leaves_out_what_routers_change(void **state)
{
	enum { IP = 20, UDP = 8, BTH = 12, DETH = 8, PAYLOAD = 4 };
	uint8_t raw[1024], masked[8 + IP + UDP + BTH + DETH + PAYLOAD];
	const uint8_t *packet;
	size_t len, off = 0;
	FILE *f;

	in_a_process(trace_one_datagram);
	f = fopen(path, "r");
	assert_non_null(f);
	len = fread(raw, 1, sizeof(raw), f);
	fclose(f);
	while (u32_at(raw + off) != 6)
		off += u32_at(raw + off + 4);
	assert_true(off < len);
	packet = raw + off + 28;
	assert_int_equal(u32_at(raw + off + 20), sizeof(masked) - 8 + 4);
	memset(masked, 0xff, 8);
	memcpy(masked + 8, packet, sizeof(masked) - 8);
	masked[8 + 1] = masked[8 + 8] = masked[8 + 10] = masked[8 + 11] = 0xff;
	masked[8 + IP + 6] = masked[8 + IP + 7] = masked[8 + IP + UDP + 4] = 0xff;
	assert_int_equal(get_be16(packet + IP + 2), 4791);
	assert_int_equal(get_le32(packet + sizeof(masked) - 8), crc32_of(masked, sizeof(masked)));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(recorded_conversation_reads_back),
		TEST(reset_of_an_accepted_ipv6_connection_is_recorded),
		TEST(mapped_addresses_become_ipv4_packets),
		TEST(bytes_sent_in_many_pieces_are_recorded_whole),
		TEST(only_bytes_the_socket_took_are_recorded),
		TEST(a_long_one_way_stream_is_acknowledged),
		TEST(a_killed_process_leaves_a_readable_file),
		TEST(a_second_process_does_not_touch_the_first_ones_file),
		TEST(percent_p_becomes_the_process_id),
		TEST(a_forked_child_writes_a_file_of_its_own),
		TEST(a_connection_with_itself_is_recorded_once),
		TEST(a_full_disk_ends_the_trace_at_a_whole_packet),
		TEST(trace_does_not_write_to_a_reused_descriptor),
		TEST(trace_is_off_if_its_file_cannot_be_created),
		TEST(trace_is_off_without_a_file_name),
		TEST(tshark_finds_no_error_in_the_iwarp_stream),
		TEST(tshark_dissects_a_stream_cut_at_any_point),
		TEST(tshark_finds_no_error_in_a_stream_of_roce0),
		TEST(hellos_are_recorded_as_private_data),
		TEST(a_socket_that_is_connected_to_itself_has_two_directions),
		TEST(tshark_sees_datagrams_as_roce_v2),
		TEST(the_invariant_crc_leaves_out_what_routers_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
