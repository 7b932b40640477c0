// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_strangers.c - a server among strangers that connect, guess tokens or say nothing, and clients
 * that take no answers. What an honest client sees beside them is asserted.
 *
 * The others are child processes: this program again, with the name of what they do, on bare
 * sockets.
 */
#include "stage.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "await.h"
#include "base/audit.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "store/endpoint.h"
#include "wire/wire.h"

#define PATIENCE_NS  (60 * NS_PER_S)
#define VISITS	     20
#define SOCKETS	     64 /* of each stranger, at the same time */
#define PROBE_NS     (2 * NS_PER_MS)
#define TIMEOUT_MS   500
#define BIG	     (8u << 20) /* answers: more than the sockets' buffers take */
#define ATTEMPTS     5
#define GOODS_SECRET "sesame"

/* ---- strangers ------------------------------------------------------------------------- */

static int dial(uint16_t port)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
				 .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
				 .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd >= 0)
		connect(fd, (struct sockaddr *)&to, sizeof(to));
	return fd;
}

/* Returns a Request with a store's hello. */
static size_t make_request(uint8_t *buf, size_t size, const char *partition, const uint8_t *shown)
{
	struct stag_store_hello h;
	struct mpa_frame f = {.flags = MPA_ENHANCED,
			      .rev = 2,
			      .ird = 1,
			      .ord = 16,
			      .private_data = (uint8_t *)&h,
			      .private_len = sizeof(h)};

	if (hello_make(&h, partition, shown) != 0)
		return 0;
	return (size_t)mpa_encode(&f, buf, size);
}

/* Opens connections without end, each in place of an older one; says what is in buf, if anything. */
static void flood(uint16_t port, const uint8_t *buf, size_t len)
{
	int fd[SOCKETS];

	memset(fd, -1, sizeof(fd));
	for (unsigned i = 0;; i = (i + 1) % SOCKETS) {
		int old = fd[(i + SOCKETS / 2) % SOCKETS];

		if (old >= 0 && len)
			(void)!send(old, buf, len, MSG_NOSIGNAL);
		if (fd[i] >= 0)
			close(fd[i]);
		fd[i] = dial(port);
		usleep(1000);
	}
}

static int be_stranger(const char *what, uint16_t port)
{
	uint8_t buf[MPA_FRAME_MAX], wrong[TOKEN_BYTES] = {1};
	size_t len = 0;

	if (!strcmp(what, "guess"))
		len = make_request(buf, sizeof(buf), "goods", wrong);
	else if (!strcmp(what, "junk"))
		len = (size_t)snprintf((char *)buf, sizeof(buf), "GET / HTTP/1.0\r\n\r\n");
	flood(port, buf, len);
	return 0;
}

static pid_t start_stranger(const struct stage *s, const char *what)
{
	char port[8];
	pid_t pid;

	snprintf(port, sizeof(port), "%u", stag_store_server_port(s->server));
	pid = fork();
	if (pid == 0) {
		execl("/proc/self/exe", "test_store_strangers", what, port, (char *)NULL);
		_exit(1);
	}
	assert_true(pid > 0);
	return pid;
}

static void stop_stranger(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status)); /* it was at work until now */
}

/* ---- an honest client ------------------------------------------------------------------- */

static void open_shop(struct stage *s)
{
	struct stag_store_right r = {.who = STAG_STORE_TOKEN, .access = STAG_STORE_WRITE};

	stage_open(s, true);
	add(s->store, "goods", 16 * MIB);
	assert_int_equal(stag_store_token(GOODS_SECRET, strlen(GOODS_SECRET), r.token), 0);
	set_rights(s, "goods", &r, 1);
}

/* Enters, writes and reads. Returns how long that took. */
static uint64_t visit(const struct stage *s, int i)
{
	struct stag_store_connect_attr attr = {.token = GOODS_SECRET};
	uint64_t begin = clock_ns();
	struct user u;
	char word[16];

	snprintf(word, sizeof(word), "visit %d", i);
	assert_int_equal(try_enter(&u, s, "goods", &attr), 0);
	assert_int_equal(do_write(&u, (uint64_t)i * 64, word, sizeof(word)), IBV_WC_SUCCESS);
	assert_true(reads_as(&u, (uint64_t)i * 64, word, sizeof(word)));
	leave(&u);
	return clock_ns() - begin;
}

static uint64_t thread_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* A control: a thread that needs little, and gets less than a quarter of a processor on a machine that is too slow. */
struct control {
	atomic_bool over, slow;
	pthread_t thread;
};

static void *watch_the_machine(void *arg)
{
	struct control *c = arg;

	do {
		uint64_t wall = clock_ns(), cpu = thread_ns();

		while (thread_ns() - cpu < PROBE_NS)
			;
		if (clock_ns() - wall > 4 * PROBE_NS)
			atomic_store(&c->slow, true);
		wall = clock_ns();
		usleep(10 * PROBE_NS / 1000);
		if (clock_ns() - wall > 20 * PROBE_NS)
			atomic_store(&c->slow, true);
	} while (!atomic_load(&c->over));
	return NULL;
}

/* Visits while the control runs. Returns how long that took; *slow: so was the machine, at some time. */
static uint64_t visit_beside_control(const struct stage *s, int i, bool *slow)
{
	struct control c = {0};
	uint64_t took;

	assert_int_equal(pthread_create(&c.thread, NULL, watch_the_machine, &c), 0);
	took = visit(s, i);
	atomic_store(&c.over, true);
	pthread_join(c.thread, NULL);
	*slow = atomic_load(&c.slow);
	return took;
}

/* Each visit takes less than a second; one during which the machine was too slow is repeated. */
static void visit_often(const struct stage *s)
{
	for (int i = 0; i < VISITS; i++) {
		bool in_time = false, slow = true;

		for (int attempt = 0; attempt < ATTEMPTS && !in_time && slow; attempt++)
			in_time = visit_beside_control(s, i, &slow) < NS_PER_S;
		if (!in_time && !slow)
			fail_msg("visit %d took more than a second", i);
	}
}

static struct stag_store_counters counters_of(const struct stage *s)
{
	struct stag_store_counters c;

	assert_int_equal(stag_store_query_server(s->server, &c, sizeof(c)), 0);
	return c;
}

/* ---- audit ------------------------------------------------------------------------------- */

static atomic_int allowed, refused, failed;

static void count_record(const struct stag_audit_record *r, void *arg)
{
	assert_string_equal(r->room, "store");
	assert_memory_equal(r->object, "store ", 6);
	assert_non_null(strstr(r->object, ", partition "));
	assert_non_null(strstr(r->from, "127.0.0.1:"));
	atomic_fetch_add(r->outcome == STAG_AUDIT_ALLOWED   ? &allowed
			 : r->outcome == STAG_AUDIT_REFUSED ? &refused
							    : &failed,
			 1);
}

static const struct audit_sink sink = {.call = count_record};

/* ---- claims -------------------------------------------------------------------------------- */

static void honest_clients_are_served_among_strangers(void **state)
{
	static const char *const what[] = {"silent", "guess", "junk"};
	struct stag_store_counters c;
	struct stage s;
	pid_t pid[3];

	atomic_store(&allowed, 0);
	atomic_store(&refused, 0);
	audit_set_sink(&sink);
	open_shop(&s);
	for (int i = 0; i < 3; i++)
		pid[i] = start_stranger(&s, what[i]);
	await((usleep(1000), counters_of(&s).refused >= 100));
	visit_often(&s);
	for (int i = 0; i < 3; i++)
		stop_stranger(pid[i]);
	await((usleep(1000), counters_of(&s).connections == 0));
	c = counters_of(&s);
	audit_set_sink(NULL);
	assert_true(atomic_load(&allowed) >= VISITS);
	assert_in_range(atomic_load(&refused), 1, c.refused - 1); /* not each of them */
	stage_close(&s);
}

static void wait_for_eviction(const struct stage *s, uint64_t n)
{
	uint64_t until = clock_ns() + PATIENCE_NS;

	while (counters_of(s).evicted < n && clock_ns() < until)
		usleep(1000);
	assert_int_equal(counters_of(s).evicted, n);
}

/* Connects as a client with the secret; fills in the server's welcome. */
static int admitted(const struct stage *s, struct stag_store_welcome *w)
{
	uint8_t buf[MPA_FRAME_MAX], shown[TOKEN_BYTES];
	int fd = dial(stag_store_server_port(s->server)), n = -EAGAIN;
	struct mpa_frame reply;
	size_t len, got = 0;

	assert_int_equal(token_shown(GOODS_SECRET, strlen(GOODS_SECRET), shown), 0);
	fcntl(fd, F_SETFL, 0);
	len = make_request(buf, sizeof(buf), "goods", shown);
	assert_int_equal(send(fd, buf, len, MSG_NOSIGNAL), len);
	while (n == -EAGAIN) {
		ssize_t more = recv(fd, buf + got, sizeof(buf) - got, 0);

		assert_true(more > 0);
		got += (size_t)more;
		n = mpa_decode(buf, got, true, &reply);
	}
	assert_true(n > 0 && !(reply.flags & MPA_REJECT) && reply.private_len >= sizeof(*w));
	memcpy(w, reply.private_data, sizeof(*w));
	return fd;
}

/* Reads far more than its socket takes, and takes nothing. */
static int read_and_take_nothing(const struct stage *s)
{
	struct stag_store_welcome w;
	int fd = admitted(s, &w);

	for (uint32_t i = 1; i <= 8; i++) {
		struct ddp_hdr h = {
			.last = true, .opcode = RDMAP_READ_REQ, .qn = QN_READ, .msn = i};
		struct rdmap_read_req q = {.sink_stag = 7,
					   .size = BIG,
					   .src_stag = be32toh(w.rkey),
					   .src_to = be64toh(w.base)};
		uint8_t fpdu[128] = {0};
		size_t hdr = ddp_encode(&h, fpdu + MPA_LEN_FIELD);
		size_t len = fpdu_len(hdr + RDMAP_READ_REQ_LEN);

		put_be16(fpdu, (uint16_t)(hdr + RDMAP_READ_REQ_LEN));
		rdmap_put_read_req(fpdu + MPA_LEN_FIELD + hdr, &q);
		crc32c_put(fpdu + len - MPA_CRC_LEN,
			   crc32c_update(CRC32C_INIT, fpdu, len - MPA_CRC_LEN));
		assert_int_equal(send(fd, fpdu, len, MSG_NOSIGNAL), len);
	}
	return fd;
}

static void clients_that_take_no_answers_are_evicted(void **state)
{
	struct stag_store_server_attr attr = {.comp_mask = STAG_STORE_SERVER_CLIENT_TIMEOUT,
					      .address = "127.0.0.1",
					      .flags = STAG_STORE_ANY_PORT,
					      .client_timeout_ms = TIMEOUT_MS,
					      .staging_bytes = 1 << 20};
	struct stage s;
	int fd[SOCKETS];

	open_shop(&s);
	stag_store_server_stop(s.server);
	s.server = stag_store_serve(s.store, &attr);
	assert_non_null(s.server);
	for (int i = 0; i < SOCKETS; i++)
		fd[i] = read_and_take_nothing(&s);
	visit_often(&s); /* they hold all buffers meanwhile */
	wait_for_eviction(&s, SOCKETS);
	for (int i = 0; i < SOCKETS; i++)
		close(fd[i]);
	visit(&s, 0);
	stage_close(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(honest_clients_are_served_among_strangers),
		cmocka_unit_test(clients_that_take_no_answers_are_evicted),
	};

	if (argc == 3)
		return be_stranger(argv[1], (uint16_t)atoi(argv[2]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
