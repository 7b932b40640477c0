// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_tls.c - a target whose connections are encrypted by keys made of its users' secrets, over each transport; somebody
 * in between, who looks at all bytes; and strangers who begin a handshake and do not end it.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "await.h"
#include "base/audit.h"
#include "block/initiator/initiator.h"
#include "dice.h"
#include "model.h"

#define TARGET	   "iqn.2026-01.x:t"
#define SIZE	   (4u << 20)
#define WORDS	   "words that nobody in between may read "
#define SECRET	   "what ann knows alone"
#define BOB_SECRET "what bob knows alone"
#define STREAMS	   16

static const struct way {
	enum stag_block_transport kind;
	const char *scheme;
} ways[] = {{STAG_BLOCK_TCP, "iscsi"}, {STAG_BLOCK_ISER, "iser"}, {STAG_BLOCK_ONE_SHOT, "stag"}},
  *const tcp = &ways[0];

static char path[] = "/dev/shm/stag-block-tls-XXXXXX";
static uint8_t *unit_bytes;
static struct stag_block_target *target;

/* ---- the target ------------------------------------------------------------------------- */

static void no_log(void *arg, const char *line)
{
}

static void start_target(enum stag_block_tls tls)
{
	const struct stag_block_right rights[] = {{.user = "ann", .secret = SECRET},
						  {.user = "bob", .secret = BOB_SECRET}};
	struct stag_block_target_attr attr = {
		.comp_mask = STAG_BLOCK_TARGET_RIGHTS | STAG_BLOCK_TARGET_TLS,
		.name = TARGET,
		.address = "127.0.0.1",
		.flags = STAG_BLOCK_ANY_PORT,
		.rights = rights,
		.num_rights = 2,
		.log = no_log,
		.tls = tls};
	struct stag_block_lun lun = {.lun = 1, .where = path};

	target = stag_block_target_start(&attr);
	if (!target || stag_block_target_add(target, &lun) != 0)
		fail_msg("%s", stag_block_error());
}

static int set_up(void **state)
{
	int fd;

	strcpy(path + strlen(path) - 6, "XXXXXX");
	fd = mkstemp(path);
	if (fd < 0 || ftruncate(fd, SIZE) != 0)
		return -1;
	unit_bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	target = NULL;
	return unit_bytes == MAP_FAILED ? -1 : 0;
}

static int tear_down(void **state)
{
	stag_block_target_stop(target);
	munmap(unit_bytes, SIZE);
	return unlink(path);
}

/* ---- initiators -------------------------------------------------------------------------- */

static struct stag_block *open_at(uint16_t port, const struct way *way, enum stag_block_tls tls,
				  const char *secret)
{
	struct stag_block_attr attr = {.comp_mask = STAG_BLOCK_ATTR_TLS,
				       .transport = way->kind,
				       .user = "ann",
				       .secret = secret,
				       .timeout_ms = 60000,
				       .tls = tls};
	char url[128];

	snprintf(url, sizeof(url), "%s://127.0.0.1:%u/" TARGET "/1", way->scheme, port);
	return stag_block_open(url, &attr);
}

static struct stag_block *open_as_ann(const struct way *way, enum stag_block_tls tls)
{
	struct stag_block *b = open_at(stag_block_target_port(target), way, tls, SECRET);

	if (!b)
		fail_msg("%s", stag_block_error());
	return b;
}

static void assert_refused(const struct way *way, enum stag_block_tls tls, const char *secret,
			   int error)
{
	struct stag_block *b = open_at(stag_block_target_port(target), way, tls, secret);

	assert_null(b);
	if (errno != error)
		fail_msg("%d, %s", errno, stag_block_error());
}

static struct stag_block_info info_of(struct stag_block *b)
{
	struct stag_block_info info;

	assert_int_equal(stag_block_query(b, &info, sizeof(info)), 0);
	return info;
}

static void assert_works(struct stag_block *b)
{
	static uint8_t out[1u << 20], in[1u << 20];

	for (size_t i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)WORDS[i % (sizeof(WORDS) - 1)];
	memset(in, 0, sizeof(in));
	assert_int_equal(stag_block_write(b, out, 0, sizeof(out), STAG_BLOCK_FUA), 0);
	assert_int_equal(stag_block_read(b, in, 0, sizeof(in)), 0);
	assert_memory_equal(in, out, sizeof(in));
	assert_memory_equal(unit_bytes, out, sizeof(out));
}

/* ---- somebody in between ------------------------------------------------------------------ */

struct relay {
	int listening;
	uint16_t port;
	int fd[STREAMS][2];
	unsigned int n;
	bool slow; /* passes the first bytes on one by one */
	atomic_bool read_names, read_data, stop;
	atomic_uint passed;
	pthread_t thread;
};

static int dial(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(port),
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

static bool send_all(int fd, const uint8_t *bytes, size_t len)
{
	return send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len;
}

static void pass_on(struct relay *r, int *from, int *to)
{
	static uint8_t bytes[1 << 16];
	ssize_t n = recv(*from, bytes, sizeof(bytes), 0);
	size_t at = 0;
	bool good = n > 0;

	if (good &&
	    (memmem(bytes, (size_t)n, "CHAP_", 5) || memmem(bytes, (size_t)n, "InitiatorName", 13)))
		atomic_store(&r->read_names, true);
	if (good && memmem(bytes, (size_t)n, WORDS, sizeof(WORDS) - 1))
		atomic_store(&r->read_data, true);
	for (; r->slow && good && at < (size_t)n && atomic_load(&r->passed) < 200; at++) {
		good = send_all(*to, bytes + at, 1);
		atomic_fetch_add(&r->passed, 1);
		poll(NULL, 0, 1);
	}
	if (good && (at == (size_t)n || send_all(*to, bytes + at, (size_t)n - at)))
		return;
	close(*from);
	close(*to);
	*from = *to = -1;
}

static void *relay_thread(void *arg)
{
	struct relay *r = arg;

	while (!atomic_load(&r->stop)) {
		struct pollfd p[1 + 2 * STREAMS] = {{.fd = r->listening, .events = POLLIN}};

		for (unsigned int i = 0; i < 2 * r->n; i++)
			p[i + 1] = (struct pollfd){.fd = r->fd[i / 2][i % 2], .events = POLLIN};
		poll(p, 1 + 2 * r->n, 10);
		for (unsigned int i = 0; i < 2 * r->n; i++)
			if (p[i + 1].revents && r->fd[i / 2][i % 2] >= 0)
				pass_on(r, &r->fd[i / 2][i % 2], &r->fd[i / 2][!(i % 2)]);
		if (!p[0].revents || r->n == STREAMS)
			continue;
		r->fd[r->n][0] = accept(r->listening, NULL, NULL);
		r->fd[r->n++][1] = dial(stag_block_target_port(target));
	}
	return NULL;
}

static void relay_begin(struct relay *r, bool slow)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);

	*r = (struct relay){.slow = slow,
			    .listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
	assert_int_equal(bind(r->listening, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(r->listening, 16), 0);
	assert_int_equal(getsockname(r->listening, (struct sockaddr *)&a, &len), 0);
	r->port = ntohs(a.sin_port);
	assert_int_equal(pthread_create(&r->thread, NULL, relay_thread, r), 0);
}

static void relay_end(struct relay *r)
{
	atomic_store(&r->stop, true);
	pthread_join(r->thread, NULL);
	for (unsigned int i = 0; i < 2 * r->n; i++)
		if (r->fd[i / 2][i % 2] >= 0)
			close(r->fd[i / 2][i % 2]);
	close(r->listening);
}

static void work_through(struct relay *r, const struct way *way, enum stag_block_tls tls, bool slow)
{
	struct stag_block *b;

	relay_begin(r, slow);
	b = open_at(r->port, way, tls, SECRET);
	if (!b)
		fail_msg("%s: %s", way->scheme, stag_block_error());
	assert_works(b);
	assert_int_equal(info_of(b).transport, way->kind);
	stag_block_close(b);
	relay_end(r);
}

static void without_tls_somebody_in_between_reads_everything(void **state)
{
	start_target(STAG_BLOCK_TLS_ALLOWED);
	for (size_t i = 0; i < 3; i++) {
		struct relay r;

		work_through(&r, &ways[i], STAG_BLOCK_TLS_OFF, false);
		assert_true(atomic_load(&r.read_names) && atomic_load(&r.read_data));
	}
}

static void with_tls_somebody_in_between_reads_nothing(void **state)
{
	start_target(STAG_BLOCK_TLS_REQUIRED);
	for (size_t i = 0; i < 3; i++) {
		struct relay r;

		work_through(&r, &ways[i], STAG_BLOCK_TLS_REQUIRED, false);
		assert_false(atomic_load(&r.read_names) || atomic_load(&r.read_data));
	}
}

/* ---- what is accepted -------------------------------------------------------------------- */

static void assert_in_force(struct stag_block *b)
{
	struct stag_block_session s = {.comp_mask = STAG_BLOCK_SESSION_TLS};
	struct stag_block_tls_info tls = info_of(b).tls;

	assert_true(tls.encrypted);
	assert_string_equal(tls.version, "TLSv1.3");
	assert_string_equal(tls.cipher, "TLS_AES_128_GCM_SHA256");
	assert_true(stag_block_target_next(target, &s));
	assert_true(s.tls.encrypted);
	assert_string_equal(s.tls.version, "TLSv1.3");
	assert_string_equal(s.tls.cipher, tls.cipher);
	assert_string_equal(s.user, "ann");
}

static void both_sides_report_what_is_in_force(void **state)
{
	start_target(STAG_BLOCK_TLS_REQUIRED);
	for (size_t i = 0; i < 3; i++) {
		struct stag_block *b = open_as_ann(&ways[i], STAG_BLOCK_TLS_REQUIRED);

		assert_in_force(b);
		stag_block_close(b);
	}
}

static void allowed_takes_both(void **state)
{
	start_target(STAG_BLOCK_TLS_ALLOWED);
	for (size_t i = 0; i < 3; i++)
		for (unsigned int tls = STAG_BLOCK_TLS_OFF; tls <= STAG_BLOCK_TLS_REQUIRED; tls++) {
			struct stag_block *b = open_as_ann(&ways[i], tls);

			assert_works(b);
			assert_int_equal(info_of(b).tls.encrypted, tls != STAG_BLOCK_TLS_OFF);
			stag_block_close(b);
		}
}

static char refusal[256];
static atomic_bool has_refusal;

static void keep_refusal(const struct stag_audit_record *r, void *arg)
{
	if (r->outcome != STAG_AUDIT_REFUSED || atomic_load(&has_refusal))
		return;
	snprintf(refusal, sizeof(refusal), "%s %s %s %s", r->object, r->user ? r->user : "-",
		 r->action, r->reason);
	atomic_store(&has_refusal, true);
}

static void required_refuses_plain(void **state)
{
	static const struct audit_sink sink = {keep_refusal, NULL};

	start_target(STAG_BLOCK_TLS_REQUIRED);
	audit_set_sink(&sink);
	for (size_t i = 0; i < 3; i++) {
		struct stag_block *b = open_at(stag_block_target_port(target), &ways[i],
					       STAG_BLOCK_TLS_OFF, SECRET);

		assert_null(b);
		await(atomic_load(&has_refusal));
		assert_non_null(strstr(refusal, "target " TARGET));
		assert_non_null(strstr(refusal, "login TLS is required"));
		atomic_store(&has_refusal, false);
	}
	audit_set_sink(NULL);
	assert_refused(tcp, STAG_BLOCK_TLS_OFF, SECRET, EACCES);
	assert_non_null(strstr(stag_block_error(), "0x0202"));
	stag_block_close(open_as_ann(tcp, STAG_BLOCK_TLS_REQUIRED));
}

static void a_wrong_secret_is_refused(void **state)
{
	start_target(STAG_BLOCK_TLS_REQUIRED);
	for (size_t i = 0; i < 3; i++) {
		assert_refused(&ways[i], STAG_BLOCK_TLS_REQUIRED, "what ann does not know", EACCES);
		assert_refused(&ways[i], STAG_BLOCK_TLS_ALLOWED, "what ann does not know", EACCES);
	}
}

static void who_requires_tls_does_not_go_without(void **state)
{
	start_target(STAG_BLOCK_TLS_OFF);
	for (size_t i = 0; i < 3; i++)
		assert_refused(&ways[i], STAG_BLOCK_TLS_REQUIRED, SECRET, EPROTONOSUPPORT);
}

static void who_allows_tls_goes_without_if_the_target_has_none(void **state)
{
	start_target(STAG_BLOCK_TLS_OFF);
	for (size_t i = 0; i < 3; i++) {
		struct stag_block *b = open_as_ann(&ways[i], STAG_BLOCK_TLS_ALLOWED);

		assert_works(b);
		assert_false(info_of(b).tls.encrypted);
		stag_block_close(b);
	}
}

/* The connection is made with ann's key, and CHAP inside with bob's secret. */
static void proof_and_key_must_be_of_the_same_user(void **state)
{
	struct stag_block_attr attr = {.comp_mask = STAG_BLOCK_ATTR_TLS,
				       .user = "ann",
				       .secret = SECRET,
				       .timeout_ms = 60000,
				       .tls = STAG_BLOCK_TLS_REQUIRED};
	char url[128];

	start_target(STAG_BLOCK_TLS_REQUIRED);
	for (size_t i = 0; i < 3; i++) {
		struct stag_block *b;

		attr.transport = ways[i].kind;
		snprintf(url, sizeof(url), "%s://127.0.0.1:%u/" TARGET "/1", ways[i].scheme,
			 stag_block_target_port(target));
		assert_int_equal(initiator_create(url, true, &attr, &b), 0);
		strcpy(b->config.url.user, "bob");
		strcpy(b->config.url.secret, BOB_SECRET);
		assert_int_equal(initiator_bring_up(b), -EACCES);
		initiator_destroy(b);
	}
}

static void tls_needs_a_user(void **state)
{
	struct stag_block_target_attr attr = {.comp_mask = STAG_BLOCK_TARGET_TLS,
					      .name = TARGET,
					      .flags = STAG_BLOCK_ANY_PORT,
					      .tls = STAG_BLOCK_TLS_REQUIRED};
	struct stag_block_attr none = {.comp_mask = STAG_BLOCK_ATTR_TLS,
				       .tls = STAG_BLOCK_TLS_REQUIRED};

	assert_null(stag_block_target_start(&attr));
	assert_non_null(strstr(stag_block_error(), "user"));
	assert_null(stag_block_open("iscsi://127.0.0.1:1/" TARGET "/1", &none));
	assert_int_equal(errno, EINVAL);
	assert_non_null(strstr(stag_block_error(), "user"));
}

/* ---- much data ------------------------------------------------------------------------------ */

static void requests_match_a_model(void **state)
{
	start_target(STAG_BLOCK_TLS_REQUIRED);
	for (size_t i = 0; i < 3; i++) {
		struct stag_block *b = open_as_ann(&ways[i], STAG_BLOCK_TLS_REQUIRED);

		memset(unit_bytes, 0, SIZE); /* as the model begins */
		run_model(b, unit_bytes, scaled(300), 0, NULL);
		assert_int_equal(info_of(b).counters.violations, 0);
		assert_int_equal(info_of(b).counters.lost, 0);
		stag_block_close(b);
	}
}

/* ---- strangers ------------------------------------------------------------------------------ */

static void a_slow_hello_is_understood(void **state)
{
	start_target(STAG_BLOCK_TLS_REQUIRED);
	for (size_t i = 0; i < 2; i++) {
		struct relay r;

		work_through(&r, &ways[i], STAG_BLOCK_TLS_REQUIRED, true);
		assert_int_equal(atomic_load(&r.passed), 200);
	}
}

enum { STRANGERS = 400 };

/* Each says nothing, a byte, half a hello, garbage instead of one, or garbage in a record. */
static void send_something(int fd, int which)
{
	uint8_t bytes[300] = {0x16, 3, 1, 1, 0x20};

	dice_fill(bytes + 5, sizeof(bytes) - 5);
	switch (which % 5) {
	case 1:
		send(fd, bytes, 1, MSG_NOSIGNAL);
		break;
	case 2:
		send(fd, bytes, 100, MSG_NOSIGNAL);
		break;
	case 3:
		dice_fill(bytes + 1, 4);
		send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		break;
	case 4:
		send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
		break;
	}
}

static void strangers_hold_no_place(void **state)
{
	static int fds[STRANGERS];
	struct rlimit files;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	start_target(STAG_BLOCK_TLS_REQUIRED);
	for (int i = 0; i < STRANGERS; i++) {
		fds[i] = dial(stag_block_target_port(target));
		send_something(fds[i], i);
	}
	for (size_t i = 0; i < 3; i++) {
		struct stag_block *b = open_as_ann(&ways[i], STAG_BLOCK_TLS_REQUIRED);

		assert_works(b);
		stag_block_close(b);
	}
	for (int i = 0; i < STRANGERS; i++)
		close(fds[i]);
}

/* Whatever arrives, and wherever it is cut off: the parser reads no byte that is not there (a sanitizer tells). */
static void any_hello_can_be_parsed(void **state)
{
	for (int i = 0; i < 20000; i++) {
		size_t len = dice(600), wanted = 0;
		uint8_t *bytes = malloc(len ? len : 1);
		enum iscsi_tls_hello what;

		dice_fill(bytes, len);
		if (len > 10) {
			memcpy(bytes, "\x16\x03\x01", 3);
			bytes[3] = (uint8_t)((len - 5) >> 8);
			bytes[4] = (uint8_t)(len - 5);
			memcpy(bytes + 5, "\x01\x00", 2);
			bytes[7] = (uint8_t)dice(3);
		}
		what = iscsi_tls_hello(bytes, len, &wanted);
		assert_true(what != TLS_HELLO_SHORT || wanted > len);
		assert_true(what != TLS_HELLO_ISCSI);
		free(bytes);
	}
}

static bool has_adapter(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	bool has = list && list[0] && stagdv_is_supported(list[0]);

	if (list)
		ibv_free_device_list(list);
	return has;
}

int main(void)
{
#define ONE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		ONE(without_tls_somebody_in_between_reads_everything),
		ONE(with_tls_somebody_in_between_reads_nothing),
		ONE(both_sides_report_what_is_in_force),
		ONE(allowed_takes_both),
		ONE(required_refuses_plain),
		ONE(a_wrong_secret_is_refused),
		ONE(who_requires_tls_does_not_go_without),
		ONE(who_allows_tls_goes_without_if_the_target_has_none),
		ONE(proof_and_key_must_be_of_the_same_user),
		cmocka_unit_test(tls_needs_a_user),
		ONE(requests_match_a_model),
		ONE(a_slow_hello_is_understood),
		ONE(strangers_hold_no_place),
		cmocka_unit_test(any_hello_can_be_parsed),
	};

	if (!has_adapter())
		return 77;
	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
