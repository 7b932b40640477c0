// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_initiator.c - an initiator over TCP, and our own target in another process, which can be killed.
 *
 * The unit's bytes are in shared memory, and survive the target.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "block/initiator/initiator.h"
#include "dice.h"
#include "memory_unit.h"
#include "model.h"

#define TARGET "iqn.2026-01.x:t"

static uint8_t *shared;
static pid_t target;
static uint16_t port;
static struct stag_block *unit;

/* ---- the target's process ---------------------------------------------------------------- */

static void no_log(void *arg, const char *line)
{
}

static void run_target_process(struct stag_block_target_attr attr, int to)
{
	static const struct stag_block_lun lun = {.lun = 1, .where = "memory"},
					   high = {.lun = 300, .where = "memory"};
	struct stag_block_target *t;
	uint16_t got;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	attr.name = TARGET;
	attr.address = "127.0.0.1";
	attr.port = port;
	attr.flags = STAG_BLOCK_NO_RDMA | (port ? 0 : STAG_BLOCK_ANY_PORT);
	attr.log = no_log;
	t = stag_block_target_start(&attr);
	if (!t || stag_block_target_add(t, &lun) != 0 || stag_block_target_add(t, &high) != 0)
		_exit(1);
	got = stag_block_target_port(t);
	if (write(to, &got, sizeof(got)) != sizeof(got))
		_exit(1);
	for (;;)
		pause();
}

/* Starts the target, on the same port as before if there was one. */
static void start_target(const struct stag_block_target_attr *attr)
{
	static const struct stag_block_target_attr plain;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	memory_unit = (struct memory_unit_knobs){.kept = shared, .error = memory_unit.error};
	fflush(NULL);
	target = fork();
	assert_true(target >= 0);
	if (target == 0)
		run_target_process(attr ? *attr : plain, ends[1]);
	close(ends[1]);
	assert_int_equal(read(ends[0], &port, sizeof(port)), sizeof(port));
	close(ends[0]);
}

static void kill_target(void)
{
	if (target > 0) {
		kill(target, SIGKILL);
		waitpid(target, NULL, 0);
	}
	target = 0;
}

static const char *url_with(const char *user, const char *name, unsigned int lun)
{
	static char url[512];

	snprintf(url, sizeof(url), "iscsi://%s127.0.0.1:%u/%s/%u", user, port, name, lun);
	return url;
}

static struct stag_block *open_unit(const struct stag_block_attr *attr)
{
	struct stag_block *b = stag_block_open(url_with("", TARGET, 1), attr);

	if (!b)
		fail_msg("%s", stag_block_error());
	return b;
}

static int set_up(void **state)
{
	shared = mmap(NULL, MEMORY_UNIT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		      -1, 0);
	assert_ptr_not_equal(shared, MAP_FAILED);
	memory_unit.error = 0;
	port = 0;
	unit = NULL;
	return 0;
}

static int tear_down(void **state)
{
	stag_block_close(unit);
	kill_target();
	munmap(shared, MEMORY_UNIT_SIZE);
	return 0;
}

/* Kills the target, and starts it again. */
static void replace_target(void)
{
	kill_target();
	start_target(NULL);
}

/* ---- stories ------------------------------------------------------------------------------------- */

static void unit_properties_are_reported(void **state)
{
	struct stag_block_info info;

	start_target(NULL);
	unit = open_unit(NULL);
	assert_int_equal(stag_block_query(unit, &info, sizeof(info)), 0);
	assert_int_equal(info.transport, STAG_BLOCK_TCP);
	assert_int_equal(info.block, 512);
	assert_int_equal(info.size, MEMORY_UNIT_SIZE);
	assert_string_equal(info.target, TARGET);
	assert_string_equal(info.product, "memory");
	assert_string_equal(info.serial, "memory-unit");
	assert_true(info.unmaps);
	assert_false(info.read_only || info.write_back);
	assert_int_equal(info.counters.logins, 1);
}

static void requests_match_a_model(void **state)
{
	start_target(NULL);
	unit = open_unit(NULL);
	run_model(unit, shared, scaled(1500), 0, NULL);
}

static void digests_change_nothing(void **state)
{
	start_target(NULL);
	unit = open_unit(&(struct stag_block_attr){.header_digest = true, .data_digest = true});
	assert_int_equal(unit->session.keys.header_digest, DIGEST_CRC32C);
	assert_int_equal(unit->session.keys.data_digest, DIGEST_CRC32C);
	run_model(unit, shared, scaled(400), 0, NULL);
}

/* Moves more than one command can, from and to memory in odd pieces. */
static void long_requests_are_divided(void **state)
{
	static uint8_t out[MEMORY_UNIT_SIZE], in[MEMORY_UNIT_SIZE];
	struct stag_block_info info;

	start_target(NULL);
	unit = open_unit(&(struct stag_block_attr){.depth = 2});
	dice_fill(out, sizeof(out));
	assert_int_equal(stag_block_write(unit, out, 0, sizeof(out), 0), 0);
	assert_memory_equal(shared, out, sizeof(out));
	assert_int_equal(stag_block_read(unit, in, 512, sizeof(in) - 512), 0);
	assert_memory_equal(in, out + 512, sizeof(in) - 512);
	assert_int_equal(stag_block_flush(unit), 0);
	stag_block_query(unit, &info, sizeof(info));
	assert_int_equal(info.counters.written_bytes, sizeof(out));
	assert_true(info.counters.commands >= 2 * sizeof(out) / info.max_transfer);
}

/* No write is lost when a target is killed and restarted; a COMPARE AND WRITE that was sent may fail with unknown effect. */
static void commands_survive_a_restart_of_the_target(void **state)
{
	struct stag_block_info info;

	start_target(NULL);
	unit = open_unit(NULL);
	run_model(unit, shared, scaled(600), 40, replace_target);
	kill_target();
	start_target(NULL);
	assert_int_equal(stag_block_flush(unit), 0);
	stag_block_query(unit, &info, sizeof(info));
	assert_true(info.counters.lost >= 1);
	assert_int_equal(info.counters.logins, info.counters.lost + 1);
	assert_int_equal(info.counters.violations, 0);
}

static void a_target_that_stays_away_is_given_up(void **state)
{
	static uint8_t block[512];

	start_target(NULL);
	unit = open_unit(&(struct stag_block_attr){.retry_ms = 100});
	kill_target();
	assert_int_equal(stag_block_read(unit, block, 0, 512), ENODEV);
	assert_int_equal(stag_block_read(unit, block, 0, 512), ENODEV);
	stag_block_close(unit);
	start_target(NULL);
	unit = open_unit(&(struct stag_block_attr){.retry_ms = -1});
	kill_target();
	assert_int_equal(stag_block_read(unit, block, 0, 512), ENODEV);
}

static void errors_are_returned_as_errno_values(void **state)
{
	static uint8_t block[512];

	memory_unit.error = -EIO;
	start_target(NULL);
	unit = open_unit(NULL);
	assert_int_equal(stag_block_read(unit, block, 0, 512), EIO);
	assert_int_equal(stag_block_read(unit, block, 1, 512), EINVAL);
	assert_int_equal(stag_block_read(unit, block, MEMORY_UNIT_SIZE, 512), EINVAL);
	assert_int_equal(stag_block_read(unit, block, 0, 0), EINVAL);
	kill_target();
	memory_unit.error = -ENOSPC;
	start_target(NULL);
	assert_int_equal(stag_block_write(unit, block, 0, 512, 0), ENOSPC);
}

static void refused(const char *user, const char *name, unsigned int lun,
		    const struct stag_block_attr *attr, int error)
{
	assert_null(stag_block_open(url_with(user, name, lun), attr));
	assert_int_equal(errno, error);
	assert_true(strlen(stag_block_error()) > 0);
}

static void wrong_urls_and_attributes_are_refused(void **state)
{
	start_target(NULL);
	refused("", "iqn.2026-01.x:other", 1, NULL, ENOENT);
	refused("", TARGET, 2, NULL, ENOENT);
	refused("", TARGET, 1, &(struct stag_block_attr){.transport = 77}, EINVAL);
	refused("user@", TARGET, 1, NULL, EINVAL);
	kill_target();
	refused("", TARGET, 1, NULL, ECONNREFUSED);
}

static void mutual_chap_authenticates_both_sides(void **state)
{
	static const struct stag_block_target_attr attr = {.user = "me",
							   .secret = "what only I know",
							   .own_user = "you",
							   .own_secret = "what only you know"};
	struct stag_block_attr mine = {.peer_user = "you", .peer_secret = "what only you know"};

	start_target(&attr);
	refused("", TARGET, 1, NULL, EACCES);
	refused("me%something else@", TARGET, 1, NULL, EACCES);
	refused("you%what only I know@", TARGET, 1, NULL, EACCES);
	unit = stag_block_open(url_with("me%what only I know@", TARGET, 1), NULL);
	assert_non_null(unit);
	stag_block_close(unit);
	unit = stag_block_open(url_with("me%what only I know@", TARGET, 1), &mine);
	assert_non_null(unit);
	mine.peer_secret = "what nobody knows";
	refused("me%what only I know@", TARGET, 1, &mine, EACCES);
	mine.peer_secret = attr.own_secret;
	mine.peer_user = "them";
	refused("me%what only I know@", TARGET, 1, &mine, EACCES);
	mine.peer_secret = attr.secret;
	refused("me%what only I know@", TARGET, 1, &mine, EINVAL);
}

/* A target without CHAP cannot authenticate itself. */
static void a_target_that_does_not_authenticate_is_refused(void **state)
{
	struct stag_block_attr mine = {.peer_secret = "what only you know"};

	start_target(NULL);
	refused("me%what only I know@", TARGET, 1, &mine, EACCES);
}

static void take_target(void *arg, const char *name, const char *address)
{
	char own[32];

	snprintf(own, sizeof(own), "127.0.0.1:%u", port);
	assert_string_equal(name, TARGET);
	assert_memory_equal(address, own, strlen(own));
	++*(unsigned int *)arg;
}

static void discovery_lists_the_targets_of_a_portal(void **state)
{
	unsigned int seen = 0;
	char portal[64];

	start_target(NULL);
	snprintf(portal, sizeof(portal), "iscsi://127.0.0.1:%u", port);
	assert_int_equal(stag_block_discover(portal, NULL, take_target, &seen), 0);
	assert_int_equal(seen, 1);
	kill_target();
	assert_int_equal(stag_block_discover(portal, NULL, take_target, &seen), ECONNREFUSED);
}

static void take_lun(void *arg, uint16_t lun)
{
	unsigned int *luns = arg;

	luns[++luns[0]] = lun;
}

static void the_units_of_a_target_are_listed(void **state)
{
	unsigned int luns[8] = {0};
	char url[128];

	start_target(NULL);
	snprintf(url, sizeof(url), "iscsi://127.0.0.1:%u/%s", port, TARGET);
	assert_int_equal(stag_block_list(url, NULL, take_lun, luns), 0);
	assert_int_equal(luns[0], 2);
	assert_int_equal(luns[1], 1);
	assert_int_equal(luns[2], 300);
	snprintf(url, sizeof(url), "iscsi://127.0.0.1:%u/iqn.2026-01.x:other", port);
	assert_int_equal(stag_block_list(url, NULL, take_lun, luns), ENOENT);
	assert_int_equal(stag_block_list("iscsi://127.0.0.1", NULL, take_lun, luns), EINVAL);
}

/* ---- parsing ---------------------------------------------------------------------------------------- */

static void urls_are_parsed(void **state)
{
	static const char *const wrong[] = {"",
					    "http://h/iqn.x:t/1",
					    "iscsi:///iqn.x:t/1",
					    "iscsi://h",
					    "iscsi://h/iqn.x:t",
					    "iscsi://h/iqn.x:t/",
					    "iscsi://h/iqn.x:t/x",
					    "iscsi://h/iqn.x:t/16384",
					    "iscsi://h/nothing/1",
					    "iscsi://h:/iqn.x:t/1",
					    "iscsi://h:0/iqn.x:t/1",
					    "iscsi://h:65536/iqn.x:t/1",
					    "iscsi://h:3x/iqn.x:t/1",
					    "iscsi://[::1/iqn.x:t/1",
					    "iscsi://[::1]x/iqn.x:t/1",
					    "iscsi://@h/iqn.x:t/1",
					    "iscsi://u%@h/iqn.x:t/1"};
	struct initiator_url u;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		assert_int_equal(initiator_url_parse(wrong[i], true, &u), -EINVAL);
	assert_int_equal(initiator_url_parse("stag://h/iqn.x:t/7", true, &u), 0);
	assert_int_equal(u.transport, STAG_BLOCK_BEST);
	assert_string_equal(u.host, "h");
	assert_string_equal(u.port, "3260");
	assert_string_equal(u.target, "iqn.x:t");
	assert_int_equal(u.lun, 7);
	assert_int_equal(initiator_url_parse("iser://me%a/b@c@[::1]:99/iqn.x:t/0", true, &u), 0);
	assert_int_equal(u.transport, STAG_BLOCK_ISER);
	assert_string_equal(u.user, "me");
	assert_string_equal(u.secret, "a/b@c");
	assert_string_equal(u.host, "::1");
	assert_string_equal(u.port, "99");
	assert_int_equal(initiator_url_parse("iscsi://h:1", false, &u), 0);
	assert_int_equal(initiator_url_parse("iscsi://h/iqn.x:t/1", false, &u), -EINVAL);
}

static void sense_data_is_parsed(void **state)
{
	static const uint8_t fixed[] = {0x70, 0, 0x0e, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x1d, 0};
	static const uint8_t described[] = {0x72, 7, 0x27, 7};

	assert_int_equal(initiator_sense_parse(fixed, sizeof(fixed)), 0x0e1d00);
	assert_int_equal(initiator_sense_parse(described, sizeof(described)), 0x072707);
	assert_int_equal(initiator_sense_parse(fixed, 3), 0);
	assert_int_equal(initiator_sense_errno(SCSI_CHECK_CONDITION, 0x0e1d00), EILSEQ);
	assert_int_equal(initiator_sense_errno(SCSI_CHECK_CONDITION, 0x072707), ENOSPC);
	assert_int_equal(initiator_sense_errno(SCSI_CHECK_CONDITION, 0x072700), EROFS);
	assert_int_equal(initiator_sense_errno(SCSI_CHECK_CONDITION, 0x052000), EOPNOTSUPP);
	assert_int_equal(initiator_sense_errno(SCSI_RESERVATION_CONFLICT, 0), EBUSY);
	assert_int_equal(initiator_sense_errno(SCSI_GOOD, 0), 0);
}

/* Redirects one login to another port. */
static void redirect_one(int listener, uint16_t to)
{
	struct pdu r = {.opcode = LOGIN_RESPONSE, .status_class = 1, .status_detail = 1}, request;
	uint8_t bytes[BHS_LEN + 64] = {0}, in[BHS_LEN];
	int fd = accept(listener, NULL, NULL), n;

	if (recv(fd, in, sizeof(in), MSG_WAITALL) != BHS_LEN || iscsi_pdu_decode(in, &request) != 0)
		_exit(1);
	n = snprintf((char *)bytes + BHS_LEN, 64, "TargetAddress=127.0.0.1:%u,1", to) + 1;
	r.itt = request.itt;
	r.data_len = (uint32_t)n;
	iscsi_pdu_encode(&r, bytes);
	n += (int)iscsi_pdu_pad((uint32_t)n);
	if (write(fd, bytes, BHS_LEN + (size_t)n) < 0)
		_exit(1);
	pause();
}

static void a_redirect_is_followed(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	uint8_t block[512];
	char url[64];
	pid_t pid;

	start_target(NULL);
	assert_int_equal(bind(listener, (struct sockaddr *)&a, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &len), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		redirect_one(listener, port);
	}
	close(listener);
	snprintf(url, sizeof(url), "iscsi://127.0.0.1:%u/" TARGET "/1", ntohs(a.sin_port));
	unit = stag_block_open(url, NULL);
	assert_non_null(unit);
	assert_int_equal(stag_block_read(unit, block, 0, 512), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- a bad wire ---------------------------------------------------------------------------------------- */

static int connect_to_target(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_port = htons(port),
				.sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) != 0)
		_exit(1);
	return fd;
}

/* Forwards bytes; in one of so many times with a byte changed. Returns false at the end of the stream. */
static bool pass_on(int from, int to, unsigned int spoil)
{
	uint8_t bytes[4096];
	ssize_t n = read(from, bytes, sizeof(bytes));

	if (n <= 0)
		return false;
	if (spoil && one_in(spoil))
		bytes[dice((uint64_t)n < 64 ? (uint64_t)n : 64)] ^= (uint8_t)(1 + dice(255));
	return send(to, bytes, (size_t)n, MSG_NOSIGNAL) == n;
}

static void relay(int guest, unsigned int spoil)
{
	int host = connect_to_target();
	bool alive = true;

	while (alive) {
		struct pollfd fds[2] = {{.fd = guest, .events = POLLIN},
					{.fd = host, .events = POLLIN}};

		poll(fds, 2, -1);
		if (fds[0].revents)
			alive = pass_on(guest, host, 0);
		if (alive && fds[1].revents)
			alive = pass_on(host, guest, spoil);
	}
	close(host);
	close(guest);
}

/* Starts a proxy process between initiator and target. Returns its port. */
static uint16_t start_wire(unsigned int spoil, pid_t *pid)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(a);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	uint64_t seed = dice(UINT32_MAX);

	assert_int_equal(bind(listener, (struct sockaddr *)&a, len), 0);
	assert_int_equal(listen(listener, 16), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &len), 0);
	*pid = fork();
	if (*pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dice_start_with(seed);
		for (;;)
			relay(accept(listener, NULL, NULL), spoil);
	}
	close(listener);
	return ntohs(a.sin_port);
}

/* Does one request; ETIMEDOUT: a changed byte may have lost it. */
static int try_one(uint32_t op, void *memory, uint64_t at, size_t len)
{
	struct iovec iov = {memory, len};
	struct stag_block_io io = {.op = op, .offset = at, .length = len, .iov = &iov, .n_iov = 1};
	struct stag_block_done done;
	int rc = stag_block_submit(unit, &io);

	if (rc == 0)
		rc = stag_block_wait(unit, 100);
	if (rc == 0 && stag_block_poll(unit, &done, 1) == 1)
		rc = done.error;
	return rc;
}

static void use_a_little(bool digests)
{
	static uint8_t block[65536];
	int rc = 0;

	unit->config.ping_ns = 20000000;
	for (int i = 0; i < 20 && rc != ENODEV && rc != ETIMEDOUT; i++) {
		uint64_t at = 512 * dice((MEMORY_UNIT_SIZE - sizeof(block)) / 512);

		rc = try_one(STAG_BLOCK_READ, block, at, sizeof(block));
		if (rc == 0 && digests)
			assert_memory_equal(block, shared + at, sizeof(block));
		if (rc == 0)
			rc = try_one(STAG_BLOCK_WRITE, shared + at, at, 4096);
	}
}

/* All requests end, whatever bytes are changed, and with digests no wrong data gets through. */
static void corrupted_bytes_do_no_harm(void **state)
{
	struct stag_block_attr attr = {.timeout_ms = 100, .retry_ms = -1};
	char url[64];
	pid_t pid;

	start_target(NULL);
	dice_fill(shared, MEMORY_UNIT_SIZE);
	snprintf(url, sizeof(url), "iscsi://127.0.0.1:%u/" TARGET "/1", start_wire(12, &pid));
	for (unsigned long i = 0; i < scaled(5); i++) {
		attr.header_digest = attr.data_digest = one_in(2);
		unit = stag_block_open(url, &attr);
		if (!unit)
			continue;
		use_a_little(unit->session.keys.header_digest && unit->session.keys.data_digest);
		stag_block_close(unit);
	}
	unit = NULL;
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(void)
{
#define STORY(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(urls_are_parsed),
		cmocka_unit_test(sense_data_is_parsed),
		STORY(unit_properties_are_reported),
		STORY(requests_match_a_model),
		STORY(digests_change_nothing),
		STORY(long_requests_are_divided),
		STORY(commands_survive_a_restart_of_the_target),
		STORY(a_target_that_stays_away_is_given_up),
		STORY(errors_are_returned_as_errno_values),
		STORY(wrong_urls_and_attributes_are_refused),
		STORY(mutual_chap_authenticates_both_sides),
		STORY(a_target_that_does_not_authenticate_is_refused),
		STORY(discovery_lists_the_targets_of_a_portal),
		STORY(the_units_of_a_target_are_listed),
		STORY(a_redirect_is_followed),
		STORY(corrupted_bytes_do_no_harm),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
