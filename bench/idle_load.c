// SPDX-License-Identifier: BSD-2-Clause
/*
 * idle_load.c - what idle connections cost a server: the latency of one client that works, with none and with many of
 * them, and the memory that each needs.
 *
 *   idle_load KIND HOST PORT pid=PID [count=N] [ops=N] [passes=N] [user=NAME] [secret=WORD] [target=IQN] [path=PATH]
 *        [from=ADDRESS] [private=HEX] [probe=COMMAND] [json=FILE]
 *
 * KIND says what the idle connections are, and what the client does:
 *
 *   pool    authenticated clients of a pool that send nothing; the client puts 64 bytes (runs under `stag run`)
 *   iscsi   sessions that are logged in (to target, or for discovery); the client sends NOP-Outs
 *   store   clients of a store that were admitted to the partition target (to remote: no secret is sent) and sent nothing;
 *           the client reads 4 KiB (runs under `stag run`)
 *   api     HTTP connections that were answered once and are kept alive; the client gets path (/api/v1/health)
 *   mpa     RDMA connections, requested with this private data; needs probe
 *   tcp     connections that never say anything; needs probe
 *
 * probe: a command, run by sh, that prints the median latency in microseconds as its last word: measures with it
 * instead. HOST is an IPv4 address. pid: the server, whose resident memory is read before and after. count: 10000.
 * A pass measures with none, with count, and with none again; the ratio is that of the second to the mean of the
 * other two, and the median of all passes (3) counts. The server needs a descriptor for each connection, and so does this program:
 * `ulimit -n 20000` at both; stagd takes what systemd's LimitNOFILE allows. The listen queue is bounded by
 * /proc/sys/net/core/somaxconn: this program opens one connection at a time.
 *
 *   stag run -- build/bench/idle_load pool 127.0.0.1 7175 pid=$(pidof stagd) user=client secret=...
 *   build/bench/idle_load iscsi 127.0.0.1 3260 pid=...
 *   stag run -- build/bench/idle_load store 127.0.0.1 7174 pid=... target=goods
 *   build/bench/idle_load mpa 127.0.0.1 7174 pid=... probe='stag bench part ... | ...'
 *
 * Prints a table, and JSON to the file. Exits with 1 if a connection was refused or lost. bench/idle starts the servers, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <openssl/evp.h>

#include "base/clock.h"
#include "stag/pool.h"
#include "stag/store.h"
#include "stranger.h"

#define LIMIT	   1.3
#define MAX_PASSES 31
#define VALUE	   64
#define BLOCK	   4096

static struct {
	const char *kind, *host, *user, *secret, *target, *path, *from, *private_hex, *probe, *json;
	unsigned int port, count, ops, passes;
	pid_t pid;
	struct stranger_way way;
	int *fds;
	unsigned int open;
} b = {.user = "client", .path = "/api/v1/health", .count = 10000, .ops = 2000, .passes = 3};

struct figures {
	double median_us, p99_us;
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
	va_list ap;

	fputs("idle_load: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

static bool is_kind(const char *kind)
{
	return strcmp(b.kind, kind) == 0;
}

/* ---- connections ---- */

static int open_with(const void *private_data, size_t len)
{
	uint8_t frame[STRANGER_FRAME], said[STRANGER_FRAME];
	size_t room = sizeof(said);
	int fd = stranger_dial(&b.way), rc;

	if (fd < 0)
		return fd;
	rc = stranger_send(fd, frame, stranger_request(private_data, len, frame));
	if (rc == 0)
		rc = stranger_reply(fd, said, &room);
	if (rc == 1)
		return fd;
	close(fd);
	return rc == 0 ? -ECONNREFUSED : rc;
}

static int open_mpa(void)
{
	size_t len = b.private_hex ? strlen(b.private_hex) / 2 : 0;
	uint8_t private_data[256];

	for (size_t i = 0; i < len && i < sizeof(private_data); i++)
		if (sscanf(b.private_hex + 2 * i, "%2hhx", &private_data[i]) != 1)
			die("private: not hexadecimal");
	return open_with(private_data, len);
}

static int open_store(void)
{
	struct stag_store_hello h = {.magic = {'s', 't', 'a', 'g', 's', 't', 'o', 'r'},
				     .version = 2};
	const char *partition = b.target ? b.target : "";
	uint8_t digest[EVP_MAX_MD_SIZE];

	if (EVP_Digest(partition, strlen(partition), digest, NULL, EVP_sha256(), NULL) != 1)
		return -ENOMEM;
	memcpy(h.partition, digest, sizeof(h.partition));
	return open_with(&h, sizeof(h));
}

/* Sends a PDU of iSCSI (RFC 7143 11.2) without a data digest, and receives the answer's header. */
static int iscsi_exchange(int fd, uint8_t header[48], const char *data, size_t length)
{
	uint8_t pdu[1024] = {0}, rest[8192];
	size_t padded = (length + 3) & ~(size_t)3, answer;
	int rc;

	header[5] = (uint8_t)(length >> 16);
	header[6] = (uint8_t)(length >> 8);
	header[7] = (uint8_t)length;
	memcpy(pdu, header, 48);
	if (length)
		memcpy(pdu + 48, data, length);
	rc = stranger_send(fd, pdu, 48 + padded);
	if (rc == 0)
		rc = stranger_take(fd, header, 48);
	if (rc != 0)
		return rc;
	answer = ((size_t)header[5] << 16 | (size_t)header[6] << 8 | header[7]);
	answer = (answer + 3) & ~(size_t)3;
	return answer <= sizeof(rest) ? stranger_take(fd, rest, answer) : -EPROTO;
}

static int open_iscsi(void)
{
	static unsigned int number;
	uint8_t login[48] = {0x43, 0x87}; /* immediate Login; T, from operational to full feature */
	char text[512];
	int fd = stranger_dial(&b.way), len, rc;

	if (fd < 0)
		return fd;
	login[8] = 0x80; /* a random ISID, of our own */
	login[9] = (uint8_t)(++number >> 16);
	login[10] = (uint8_t)(number >> 8);
	login[11] = (uint8_t)number;
	len = snprintf(text, sizeof(text),
		       "InitiatorName=iqn.2026-01.example:idle%c%s%s%cSessionType=%s%c", 0,
		       b.target ? "TargetName=" : "AuthMethod=", b.target ? b.target : "None", 0,
		       b.target ? "Normal" : "Discovery", 0);
	rc = iscsi_exchange(fd, login, text, (size_t)len);
	if (rc == 0 && ((login[0] & 0x3f) != 0x23 || login[36] != 0))
		rc = -EACCES;
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

static int iscsi_ping(int fd)
{
	static uint32_t tag;
	uint8_t nop[48] = {0x40, 0x80}; /* immediate NOP-Out, that asks for a NOP-In */

	tag++;
	memcpy(nop + 16, &tag, sizeof(tag)); /* Initiator Task Tag, not ffffffff */
	memset(nop + 20, 0xff, 4);	     /* Target Transfer Tag */
	return iscsi_exchange(fd, nop, NULL, 0);
}

/* Reads an HTTP answer with a Content-Length to its end. */
static int http_get(int fd)
{
	char ask[512], answer[65536];
	size_t got = 0, need = SIZE_MAX;
	int rc = snprintf(ask, sizeof(ask), "GET %s HTTP/1.1\r\nHost: %s\r\n%s%s%s\r\n", b.path,
			  b.host, b.secret ? "Authorization: Bearer " : "",
			  b.secret ? b.secret : "", b.secret ? "\r\n" : "");

	rc = stranger_send(fd, ask, (size_t)rc);
	while (rc == 0 && got < need) {
		ssize_t n = recv(fd, answer + got, sizeof(answer) - 1 - got, 0);
		const char *end, *length;

		if (n <= 0)
			return n < 0 ? -errno : -ECONNRESET;
		got += (size_t)n;
		answer[got] = '\0';
		end = strstr(answer, "\r\n\r\n");
		length = strcasestr(answer, "content-length:");
		if (end && length)
			need = (size_t)(end + 4 - answer) + strtoul(length + 15, NULL, 10);
		else if (end)
			return -EPROTO;
	}
	return rc == 0 && strncmp(answer, "HTTP/1.1 200", 12) != 0 ? -EACCES : rc;
}

static int open_api(void)
{
	int fd = stranger_dial(&b.way), rc;

	if (fd < 0)
		return fd;
	rc = http_get(fd);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

static int open_one(void)
{
	if (is_kind("pool"))
		return stranger_join_pool(&b.way, b.user, b.secret);
	if (is_kind("iscsi"))
		return open_iscsi();
	if (is_kind("api"))
		return open_api();
	if (is_kind("store"))
		return open_store();
	return is_kind("mpa") ? open_mpa() : stranger_dial(&b.way);
}

static void open_all(void)
{
	for (b.open = 0; b.open < b.count; b.open++) {
		int fd = open_one();

		for (int tries = 0; fd == -EAGAIN && tries < 100; tries++) {
			nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
			fd = open_one();
		}
		if (fd < 0)
			die("connection %u: %s", b.open + 1, strerror(-fd));
		b.fds[b.open] = fd;
	}
}

/* Returns how many the server has closed. */
static unsigned int count_lost(void)
{
	unsigned int lost = 0;
	char c;

	for (unsigned int i = 0; i < b.open; i++) {
		ssize_t n = recv(b.fds[i], &c, 1, MSG_DONTWAIT | MSG_PEEK);

		lost += n == 0 || (n < 0 && errno != EAGAIN);
	}
	return lost;
}

static void close_all(void)
{
	while (b.open > 0)
		close(b.fds[--b.open]);
}

/* ---- the client that works ---- */

static struct stag_pool *pool;
static struct stag_store_endpoint *store;
static struct ibv_mr *store_mr;
static int client_fd = -1;

static void start_store_client(void)
{
	struct stag_store_connect_attr attr = {.token = b.secret, .timeout_ms = 20000};
	static char block[BLOCK];
	char where[128];

	snprintf(where, sizeof(where), "%s:%u/%s", b.host, b.port, b.target ? b.target : "");
	store = stag_store_connect(where, &attr);
	if (!store)
		die("%s", stag_store_error());
	store_mr = ibv_reg_mr(store->qp->pd, block, sizeof(block), IBV_ACCESS_LOCAL_WRITE);
	if (!store_mr)
		die("cannot register memory: %s", strerror(errno));
}

static int read_store(void)
{
	struct ibv_sge sge = {(uintptr_t)store_mr->addr, BLOCK, store_mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {store->base, store->rkey}},
			   *bad;
	struct ibv_wc wc;
	int n = 0;

	if (ibv_post_send(store->qp, &wr, &bad) != 0)
		return -EIO;
	while (n == 0)
		n = ibv_poll_cq(store->qp->send_cq, 1, &wc);
	return n == 1 && wc.status == IBV_WC_SUCCESS ? 0 : -EIO;
}

static void start_client(void)
{
	struct stag_pool_attr attr = {.user = b.user, .secret = b.secret};
	char where[64];

	if (b.probe)
		return;
	if (is_kind("pool")) {
		snprintf(where, sizeof(where), "%s:%u", b.host, b.port);
		pool = stag_pool_open(where, &attr);
		if (!pool)
			die("%s", stag_pool_error());
		return;
	}
	if (is_kind("store")) {
		start_store_client();
		return;
	}
	if (!is_kind("iscsi") && !is_kind("api"))
		die("%s needs a probe", b.kind);
	client_fd = open_one();
	if (client_fd < 0)
		die("the client that works: %s", strerror(-client_fd));
}

static int work_once(void)
{
	static const char value[VALUE];

	if (pool)
		return -stag_pool_put(pool, "idle", value, sizeof(value), 0, NULL);
	if (store)
		return read_store();
	return is_kind("iscsi") ? iscsi_ping(client_fd) : http_get(client_fd);
}

static int compare(const void *x, const void *y)
{
	double d = *(const double *)x - *(const double *)y;

	return d < 0 ? -1 : d > 0;
}

static double run_probe(void)
{
	char text[4096] = "", *word = NULL, *save, *at;
	FILE *p = popen(b.probe, "r");
	size_t len = p ? fread(text, 1, sizeof(text) - 1, p) : 0;

	if (!p || pclose(p) != 0 || len == 0)
		die("the probe failed");
	for (at = strtok_r(text, " \t\n", &save); at; at = strtok_r(NULL, " \t\n", &save))
		word = at;
	return word ? strtod(word, NULL) : 0;
}

static struct figures measure(void)
{
	double *us = calloc(b.ops, sizeof(*us));
	struct figures f;

	if (b.probe) {
		free(us);
		f.median_us = f.p99_us = run_probe();
		return f;
	}
	for (int i = -(int)(b.ops / 10); us && i < (int)b.ops; i++) {
		uint64_t since = clock_ns();
		int rc = work_once();

		if (rc != 0)
			die("the client that works: %s", strerror(-rc));
		if (i >= 0)
			us[i] = (double)(clock_ns() - since) / 1000;
	}
	if (!us)
		die("out of memory");
	qsort(us, b.ops, sizeof(*us), compare);
	f = (struct figures){us[b.ops / 2], us[b.ops * 99 / 100]};
	free(us);
	return f;
}

/* ---- memory ---- */

/* Returns a number of a line of /proc. */
static double read_proc(const char *path, const char *line, const char *word)
{
	FILE *f = fopen(path, "r");
	char text[512];
	double value = -1;

	while (f && fgets(text, sizeof(text), f)) {
		const char *at = strncmp(text, line, strlen(line)) == 0 ? strstr(text, word) : NULL;

		if (at)
			value = strtod(at + strlen(word), NULL);
	}
	if (f)
		fclose(f);
	return value;
}

static double resident_kib(void)
{
	char path[64];
	double kib;

	snprintf(path, sizeof(path), "/proc/%d/status", b.pid);
	kib = read_proc(path, "VmRSS:", "VmRSS:");
	if (kib < 0)
		die("cannot read %s", path);
	return kib;
}

/* Returns all that the machine has in use: sockets of both ends, too, which belong to no process. */
static double used_kib(void)
{
	return read_proc("/proc/meminfo", "MemTotal:", ":") -
	       read_proc("/proc/meminfo", "MemFree:", ":") -
	       read_proc("/proc/meminfo", "Cached:", ":") -
	       read_proc("/proc/meminfo", "Buffers:", ":");
}

/* ---- passes ---- */

struct pass {
	struct figures none, many, after;
	double ratio, resident_kib, sockets_kib, machine_kib; /* a connection */
	double connects_s;				      /* connections a second */
	unsigned int lost;
};

static struct pass run_pass(void)
{
	double resident = resident_kib(), used = used_kib();
	double sockets = read_proc("/proc/net/sockstat", "TCP:", " mem ");
	struct pass p = {.none = measure()};
	uint64_t since = clock_ns();

	open_all();
	p.connects_s = b.count / ((double)(clock_ns() - since) / NS_PER_S);
	p.resident_kib = (resident_kib() - resident) / b.count;
	p.machine_kib = (used_kib() - used) / b.count;
	p.sockets_kib = (read_proc("/proc/net/sockstat", "TCP:", " mem ") - sockets) * 4 / b.count;
	p.many = measure();
	p.lost = count_lost();
	close_all();
	p.after = measure();
	p.ratio = p.many.median_us / ((p.none.median_us + p.after.median_us) / 2);
	return p;
}

static int compare_passes(const void *x, const void *y)
{
	double d = ((const struct pass *)x)->ratio - ((const struct pass *)y)->ratio;

	return d < 0 ? -1 : d > 0;
}

static void print_pass(FILE *f, const struct pass *p)
{
	fprintf(f,
		"{\"kind\":\"%s\",\"connections\":%u,\"lost\":%u,\"connects_per_s\":%.0f,"
		"\"none_us\":%.1f,\"none_p99_us\":%.1f,\"many_us\":%.1f,\"many_p99_us\":%.1f,"
		"\"after_us\":%.1f,\"ratio\":%.3f,\"resident_kib\":%.2f,\"machine_kib\":%.2f,"
		"\"socket_buffers_kib\":%.2f}\n",
		b.kind, b.count, p->lost, p->connects_s, p->none.median_us, p->none.p99_us,
		p->many.median_us, p->many.p99_us, p->after.median_us, p->ratio, p->resident_kib,
		p->machine_kib, p->sockets_kib);
}

static void read_words(int argc, char **argv)
{
	const struct {
		const char *name;
		const char **text;
		unsigned int *number;
	} words[] = {{"count=", NULL, &b.count},   {"ops=", NULL, &b.ops},
		     {"passes=", NULL, &b.passes}, {"user=", &b.user, NULL},
		     {"secret=", &b.secret, NULL}, {"target=", &b.target, NULL},
		     {"path=", &b.path, NULL},	   {"from=", &b.from, NULL},
		     {"probe=", &b.probe, NULL},   {"private=", &b.private_hex, NULL},
		     {"json=", &b.json, NULL},	   {"pid=", NULL, (unsigned int *)&b.pid}};

	for (int i = 4; i < argc; i++) {
		size_t w = 0, n = sizeof(words) / sizeof(words[0]);

		while (w < n && strncmp(argv[i], words[w].name, strlen(words[w].name)) != 0)
			w++;
		if (w == n)
			die("'%s' is no option; the head of bench/idle_load.c has them", argv[i]);
		if (words[w].text)
			*words[w].text = argv[i] + strlen(words[w].name);
		else
			*words[w].number =
				(unsigned int)strtoul(argv[i] + strlen(words[w].name), NULL, 10);
	}
}

/* Returns the pass with the median ratio, and the memory of the first: later ones find what the server has kept. */
static struct pass choose_pass(struct pass *passes)
{
	double resident = passes[0].resident_kib, machine = passes[0].machine_kib;
	struct pass p;

	qsort(passes, b.passes, sizeof(passes[0]), compare_passes);
	p = passes[b.passes / 2];
	p.resident_kib = resident;
	p.machine_kib = machine;
	return p;
}

static void print_table(const struct pass *p)
{
	printf("%-34s %12s %12s\n", b.kind, "median", "p99");
	printf("%-34s %9.1f us %9.1f us\n", "no idle connection", p->none.median_us,
	       p->none.p99_us);
	printf("%9u %-24s %9.1f us %9.1f us\n", b.count, "idle connections", p->many.median_us,
	       p->many.p99_us);
	printf("%-34s %12.2f %12s\n", "ratio", p->ratio, p->ratio <= LIMIT ? "met" : "short");
	printf("%-34s %8.1f KiB\n", "resident memory a connection", p->resident_kib);
	printf("%-34s %8.1f KiB\n", "of the machine, both ends", p->machine_kib);
	printf("%-34s %12u\n", "lost", p->lost);
}

static void prepare(int argc, char **argv)
{
	if (argc < 4)
		die("usage: idle_load pool|iscsi|store|api|mpa|tcp HOST PORT pid=PID [count=N] "
		    "...");
	b.kind = argv[1];
	b.host = argv[2];
	b.port = (unsigned int)atoi(argv[3]);
	read_words(argc, argv);
	if (b.passes == 0 || b.passes > MAX_PASSES || b.ops == 0 || b.count == 0 || b.pid == 0)
		die("pid, count, ops and passes have to be positive");
	if (stranger_way(&b.way, b.host, (uint16_t)b.port, b.from) != 0)
		die("'%s' is no IPv4 address", b.host);
	if (stranger_raise_limit() < b.count + 64)
		die("%u descriptors are needed: ulimit -n", b.count + 64);
	b.fds = calloc(b.count, sizeof(*b.fds));
	if (!b.fds)
		die("out of memory");
}

int main(int argc, char **argv)
{
	struct pass passes[MAX_PASSES], p;
	FILE *json;
	bool good = true;

	prepare(argc, argv);
	start_client();
	for (unsigned int i = 0; i < b.passes; i++) {
		passes[i] = run_pass();
		good = good && passes[i].lost == 0;
		fprintf(stderr, "pass %u: %.1f us, %.1f us, %.1f us: %.2f\n", i + 1,
			passes[i].none.median_us, passes[i].many.median_us,
			passes[i].after.median_us, passes[i].ratio);
	}
	p = choose_pass(passes);
	print_table(&p);
	json = b.json ? fopen(b.json, "w") : NULL;
	if (json) {
		print_pass(json, &p);
		fclose(json);
	}
	if (pool)
		stag_pool_close(pool);
	return good ? 0 : 1;
}
