// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_client.c - the client library, with nodes that die, hang and forget clients (fake_node.h).
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "dice.h"
#include "fake_node.h"
#include "stag/pool.h"

#define REGION (96ull << 20)
#define WAIT   20000 /* ms: nothing here takes that long */

static struct stag_pool *pool;
static char both[80];
static bool unleased; /* the nodes' adapters enforce no lease */

static struct stag_pool *open_as(const char *user, const char *secret, const char *where)
{
	struct stag_pool_attr attr = {.user = user, .secret = secret, .timeout_ms = WAIT};

	return stag_pool_open(where, &attr);
}

static int setup(void **state)
{
	fake_start(REGION);
	fake_unleased(unleased);
	snprintf(both, sizeof(both), "%s,%s", fake_where(0), fake_where(1));
	pool = open_as("ann", FAKE_SECRET, both);
	assert_non_null(pool);
	return 0;
}

static int teardown(void **state)
{
	char why[256];

	stag_pool_close(pool);
	assert_int_equal(pool_superblock(fake_region())->clients, 0); /* the client has detached */
	assert_int_equal(pool_region_check(fake_region(), why, sizeof(why)), 0);
	fake_stop();
	return 0;
}

static uint8_t *bytes_of(size_t length, uint8_t seed)
{
	uint8_t *bytes = malloc(length + 1);

	assert_non_null(bytes);
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(i * 31 + (i >> 8) + seed);
	return bytes;
}

static void expect_read(const struct stag_pool_ptr *ptr, const void *value, size_t length)
{
	uint8_t *to = malloc(length + 1);
	size_t room = length;

	assert_int_equal(stag_pool_read(pool, ptr, to, &room, NULL), 0);
	assert_int_equal(room, length);
	assert_memory_equal(to, value, length);
	free(to);
}

static struct stag_pool_io read_of(const struct stag_pool_ptr *ptr, void *to, size_t length)
{
	return (struct stag_pool_io){.op = STAG_POOL_READ, .ptr = *ptr, .to = to, .length = length};
}

/* ---- values ------------------------------------------------------------------------------ */

static void stored_values_are_read_back(void **state)
{
	struct stag_pool_ptr ptr, same;
	uint64_t version, before;
	char to[16];
	size_t length = sizeof(to);

	assert_int_equal(stag_pool_insert(pool, "a value", 8, &ptr), 0);
	expect_read(&ptr, "a value", 8);
	same = ptr;
	assert_int_equal(stag_pool_update(pool, &same, "another", 8), 0);
	assert_int_equal(same.address, ptr.address);
	assert_int_equal(stag_pool_read(pool, &ptr, to, &length, &version), 0);
	assert_string_equal(to, "another");
	before = version - 1;
	assert_int_equal(stag_pool_compare_update(pool, &ptr, &before, "no", 3), EILSEQ);
	assert_int_equal(before, version);
	assert_int_equal(stag_pool_compare_update(pool, &ptr, &before, "yes", 4), 0);
	assert_true(before > version);
	assert_int_equal(stag_pool_delete(pool, &ptr), 0);
	length = sizeof(to);
	assert_int_equal(stag_pool_read(pool, &ptr, to, &length, NULL), ENOENT);
	assert_int_equal(stag_pool_delete(pool, &ptr), ENOENT);
	assert_int_equal(stag_pool_update(pool, &ptr, "x", 1), ENOENT);
}

static void values_of_every_length_are_read_back(void **state)
{
	static const size_t lengths[] = {0,	 1,	 7,	 991,	   992,	   993,	  4096,
					 15976,	 16031,	 16032,	 16033,	   16384,  65536, 262143,
					 262144, 262145, 300000, 1u << 20, 5000001};
	static uint8_t lent[8u << 20];

	assert_int_equal(stag_pool_lend(pool, lent, sizeof(lent)), 0);
	for (size_t i = 0; i < 2 * sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t length = lengths[i / 2], room = length;
		uint8_t *value = bytes_of(length, (uint8_t)i);
		struct stag_pool_ptr ptr;

		memcpy(lent + 77, value, length);
		assert_int_equal(stag_pool_insert(pool, i % 2 ? lent + 77 : value, length, &ptr),
				 0);
		assert_int_equal(ptr.length, length);
		memset(lent, 0xee, sizeof(lent));
		if (i % 2) {
			assert_int_equal(stag_pool_read(pool, &ptr, lent + 13, &room, NULL), 0);
			assert_memory_equal(lent + 13, value, length);
			assert_int_equal(lent[12], 0xee);
			assert_int_equal(lent[13 + length], 0xee);
		} else {
			expect_read(&ptr, value, length);
		}
		if (length > 0) {
			room = length - 1;
			assert_int_equal(stag_pool_read(pool, &ptr, lent, &room, NULL), EMSGSIZE);
			assert_int_equal(room, length);
		}
		ptr.length = 0; /* only a hint */
		expect_read(&ptr, value, length);
		ptr.length = 100000;
		expect_read(&ptr, value, length);
		assert_int_equal(stag_pool_delete(pool, &ptr), 0);
		free(value);
	}
	assert_int_equal(fake_reads(), 0); /* no read needed the node's software */
	assert_int_equal(stag_pool_unlend(pool, lent), 0);
	assert_int_equal(stag_pool_unlend(pool, lent), EINVAL);
}

static void operation_is_implied_by_its_operands(void **state)
{
	struct stag_pool_io io = {.from = "one", .length = 4};
	struct stag_pool_done done;

	for (int i = 0; i < 3; i++) {
		static const uint32_t meant[] = {STAG_POOL_INSERT, STAG_POOL_UPDATE,
						 STAG_POOL_DELETE};

		assert_int_equal(stag_pool_submit(pool, &io, 1), 0);
		assert_int_equal(stag_pool_wait(pool, WAIT), 0);
		assert_int_equal(stag_pool_poll(pool, &done, 1), 1);
		assert_int_equal(done.error, 0);
		assert_int_equal(done.op, meant[i]);
		if (i == 0)
			io.ptr = done.ptr;
		if (i == 1)
			io.length = 0;
	}
	assert_int_equal(pool_superblock(fake_region())->objects, 0);
	io = (struct stag_pool_io){0};
	assert_int_equal(stag_pool_submit(pool, &io, 1), EINVAL);
	io.flags = STAG_POOL_VALUE; /* an empty value */
	assert_int_equal(stag_pool_submit(pool, &io, 1), 0);
	assert_int_equal(stag_pool_wait(pool, WAIT), 0);
	assert_int_equal(stag_pool_poll(pool, &done, 1), 1);
	assert_int_equal(done.op, STAG_POOL_INSERT);
}

static void invalid_operations_are_rejected(void **state)
{
	struct stag_pool_io io[] = {{.op = STAG_POOL_INSERT, .from = "x", .length = 1},
				    {.op = STAG_POOL_INSERT, .flags = STAG_POOL_EXCLUSIVE}};
	struct stag_pool_done done;
	char name[STAG_POOL_NAME_MAX + 2];

	assert_int_equal(stag_pool_submit(pool, io, 2), EINVAL);
	io[1] = (struct stag_pool_io){.op = STAG_POOL_INSERT, .length = 5};
	assert_int_equal(stag_pool_submit(pool, io, 2), EINVAL);
	io[1] = (struct stag_pool_io){.op = 99};
	assert_int_equal(stag_pool_submit(pool, io, 2), EINVAL);
	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = 0;
	assert_int_equal(stag_pool_put(pool, name, "x", 1, 0, NULL), EINVAL);
	assert_int_equal(stag_pool_put(pool, "", "x", 1, 0, NULL), EINVAL);
	assert_int_equal(stag_pool_poll(pool, &done, 1), 0);
	assert_int_equal(pool_superblock(fake_region())->objects, 0);
}

/* ---- names --------------------------------------------------------------------------------- */

static void names_lead_to_values(void **state)
{
	struct stag_pool_ptr ptr;
	uint8_t *long_one = bytes_of(300000, 3), *to = malloc(300000);
	size_t length = 300000;

	assert_int_equal(stag_pool_get(pool, "none", to, &length, NULL), ENOENT);
	assert_int_equal(stag_pool_put(pool, "one", "1", 2, 0, &ptr), 0);
	assert_int_equal(stag_pool_get(pool, "one", to, &length, NULL), 0);
	assert_int_equal(length, 2);
	assert_string_equal((char *)to, "1");
	expect_read(&ptr, "1", 2);
	assert_int_equal(stag_pool_put(pool, "one", "x", 2, STAG_POOL_EXCLUSIVE, NULL), EEXIST);
	assert_int_equal(stag_pool_put(pool, "one", long_one, 5000, 0, NULL), 0);
	length = 300000;
	assert_int_equal(stag_pool_get(pool, "one", to, &length, NULL), 0);
	assert_int_equal(length, 5000);
	assert_memory_equal(to, long_one, 5000);
	assert_int_equal(stag_pool_put(pool, "one", long_one, 300000, 0, NULL), 0);
	length = 100;
	assert_int_equal(stag_pool_get(pool, "one", to, &length, NULL), EMSGSIZE);
	assert_int_equal(length, 300000);
	assert_int_equal(stag_pool_get(pool, "one", to, &length, NULL), 0);
	assert_memory_equal(to, long_one, 300000);
	assert_int_equal(fake_reads(), 0);
	assert_int_equal(stag_pool_remove(pool, "one"), 0);
	assert_int_equal(stag_pool_get(pool, "one", to, &length, NULL), ENOENT);
	assert_int_equal(stag_pool_remove(pool, "one"), ENOENT);
	free(long_one);
	free(to);
}

static void every_name_is_listed_once(void **state)
{
	struct stag_pool_entry entry = {0}, other = {0};
	bool seen[300] = {0};
	char name[32];
	int count = 0;

	for (int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "name %d", i);
		assert_int_equal(stag_pool_put(pool, name, name, strlen(name) + 1, 0, NULL), 0);
	}
	while (stag_pool_next(pool, &entry)) {
		int i = atoi(entry.name + 5);

		assert_true(i >= 0 && i < 300 && !seen[i]);
		seen[i] = true;
		snprintf(name, sizeof(name), "name %d", i);
		assert_string_equal(entry.name, name);
		expect_read(&entry.ptr, name, strlen(name) + 1);
		if (++count % 50 == 0) /* a second listing, in between */
			assert_true(stag_pool_next(pool, &other));
	}
	assert_int_equal(errno, 0);
	assert_int_equal(count, 300);
}

/* ---- many at once ---------------------------------------------------------------------------- */

static void await_completions(int n, struct stag_pool_done *done)
{
	for (int got = 0; got < n;) {
		assert_int_equal(stag_pool_wait(pool, WAIT), 0);
		got += stag_pool_poll(pool, done + got, n - got);
	}
}

static void a_batch_goes_in_few_messages(void **state)
{
	enum { N = 500 };
	static struct stag_pool_io io[N];
	static struct stag_pool_done done[N];
	static uint64_t values[N], back[N];
	uint64_t before = fake_messages();

	for (uint64_t i = 0; i < N; i++) {
		values[i] = i * i;
		io[i] = (struct stag_pool_io){.op = STAG_POOL_INSERT,
					      .from = &values[i],
					      .length = 8,
					      .user = &values[i]};
	}
	assert_int_equal(stag_pool_submit(pool, io, N), 0);
	await_completions(N, done);
	assert_true(fake_messages() - before < N / 2);
	for (int i = 0; i < N; i++) {
		assert_int_equal(done[i].error, 0);
		io[i] = (struct stag_pool_io){.op = STAG_POOL_READ,
					      .ptr = done[i].ptr,
					      .to = &back[(uint64_t *)done[i].user - values],
					      .length = 8};
	}
	before = fake_messages() - fake_proofs();
	assert_int_equal(stag_pool_submit(pool, io, N), 0);
	await_completions(N, done);
	assert_memory_equal(values, back, sizeof(values));
	/* Reads need no messages, but FRESH requests and perhaps a NODES request. */
	assert_true(fake_messages() - fake_proofs() - before <= 2);
}

static void descriptor_is_readable_when_done(void **state)
{
	struct pollfd fd = {.fd = stag_pool_fd(pool), .events = POLLIN};
	struct stag_pool_done done;

	assert_true(fd.fd >= 0);
	for (int i = 0; i < 50; i++) {
		struct stag_pool_io io = {.op = STAG_POOL_INSERT, .from = &i, .length = 4};

		if (i == 25)
			fake_fault(FAKE_DIES_AFTER);
		while (stag_pool_poll(pool, &done, 1) != 0)
			continue;
		assert_int_equal(stag_pool_submit(pool, &io, 1), 0);
		while (stag_pool_poll(pool, &done, 1) == 0)
			assert_int_equal(poll(&fd, 1, WAIT), 1);
		assert_int_equal(done.error, 0);
	}
	assert_int_equal(fake_executed(), 50);
}

/* ---- another primary --------------------------------------------------------------------------- */

static void pointers_outlive_their_primary(void **state)
{
	struct stag_pool_ptr ptrs[8];

	for (int i = 0; i < 8; i++) {
		assert_int_equal(stag_pool_insert(pool, &i, sizeof(i), &ptrs[i]), 0);
		fake_move();
		for (int k = 0; k <= i; k++)
			expect_read(&ptrs[k], &k, sizeof(k));
	}
}

static void a_change_happens_once(void **state)
{
	int rounds = (int)scaled(40);

	for (int i = 0; i < rounds; i++) {
		uint64_t before = fake_executed();
		struct stag_pool_ptr ptr;

		fake_fault(i % 2 ? FAKE_DIES_AFTER : FAKE_DIES_BEFORE);
		assert_int_equal(stag_pool_insert(pool, &i, sizeof(i), &ptr), 0);
		assert_int_equal(fake_executed(), before + 1);
		expect_read(&ptr, &i, sizeof(i));
	}
	assert_int_equal(pool_superblock(fake_region())->objects, rounds);
}

/* Many changes of all kinds are in flight while the primary changes repeatedly. */
static void many_changes_happen_once(void **state)
{
	enum { N = 200 };
	static struct stag_pool_io io[N];
	static struct stag_pool_done done[N];
	uint8_t *value = bytes_of(400000, 1);
	int rounds = (int)scaled(10);

	for (int r = 0; r < rounds; r++) {
		uint64_t objects = pool_superblock(fake_region())->objects,
			 before = fake_executed();

		for (int i = 0; i < N; i++)
			io[i] = (struct stag_pool_io){
				.op = STAG_POOL_INSERT,
				.from = value,
				.length = i % 40 == 7	? 400000
					  : i % 20 == 3 ? 20000
							: (size_t)i,
			};
		assert_int_equal(stag_pool_submit(pool, io, N), 0);
		for (int got = 0; got < N;) {
			if (got / 50 != (got + 1) / 50 || got == 0)
				fake_fault(got % 3 ? FAKE_DIES_AFTER : FAKE_DIES_BEFORE);
			assert_int_equal(stag_pool_wait(pool, WAIT), 0);
			got += stag_pool_poll(pool, done + got, 1);
		}
		fake_fault(FAKE_RIGHT);
		for (int i = 0; i < N; i++)
			assert_int_equal(done[i].error, 0);
		assert_int_equal(fake_executed(), before + N);
		assert_int_equal(pool_superblock(fake_region())->objects, objects + N);
		for (int i = 0; i < N; i++) {
			if (i % 10 == 0)
				expect_read(&done[i].ptr, value, done[i].length);
			io[i] = (struct stag_pool_io){.op = STAG_POOL_DELETE, .ptr = done[i].ptr};
		}
		assert_int_equal(stag_pool_submit(pool, io, N), 0);
		await_completions(N, done);
		for (int i = 0; i < N; i++)
			assert_int_equal(done[i].error, 0);
	}
	free(value);
}

static void client_leaves_a_node_that_hangs(void **state)
{
	struct stag_pool_info info = {0};
	struct stag_pool_ptr ptr;

	fake_fault(FAKE_HANGS);
	assert_int_equal(stag_pool_insert(pool, "x", 1, &ptr), 0);
	assert_int_equal(fake_executed(), 1);
	expect_read(&ptr, "x", 1);
	assert_int_equal(stag_pool_query(pool, &info, sizeof(info)), 0);
	assert_int_equal(info.failovers, 1);
	assert_int_equal(info.num_members, 2);
	assert_int_equal(info.members[1].role, STAG_POOL_ROLE_PRIMARY);
}

/* The client is given one node's address only; that node refers it to the primary. */
static void other_nodes_are_found(void **state)
{
	struct stag_pool_ptr ptr;

	stag_pool_close(pool);
	pool = open_as("ann", FAKE_SECRET, fake_where(1)); /* not the primary */
	assert_non_null(pool);
	assert_int_equal(stag_pool_insert(pool, "x", 1, &ptr), 0);
	stag_pool_close(pool);
	pool = open_as("ann", FAKE_SECRET, fake_where(0));
	assert_non_null(pool);
	expect_read(&ptr, "x", 1);
	fake_move();
	fake_gone(0, true);
	expect_read(&ptr, "x", 1);
}

static void switchover_is_not_repeated(void **state)
{
	struct stag_pool_info info = {0};

	assert_int_equal(stag_pool_switchover(pool, NULL), 0);
	assert_int_equal(stag_pool_query(pool, &info, sizeof(info)), 0);
	assert_int_equal(info.epoch, 3);
	assert_int_equal(stag_pool_switchover(pool, "a bad name"), EINVAL);
}

static void operations_time_out_without_a_primary(void **state)
{
	struct stag_pool_attr attr = {
		.user = "ann", .secret = FAKE_SECRET, .timeout_ms = WAIT, .retry_ms = 50};
	struct stag_pool *other = stag_pool_open(both, &attr);
	struct stag_pool_io io = {.op = STAG_POOL_INSERT, .from = "x", .length = 1};
	int rc;

	assert_non_null(other);
	fake_gone(0, true);
	fake_gone(1, true);
	assert_int_equal(stag_pool_insert(other, "x", 1, NULL), ETIMEDOUT);
	assert_int_equal(stag_pool_submit(other, &io, 1), ENOTCONN);
	fake_gone(0, false);
	fake_gone(1, false);
	do {
		rc = stag_pool_insert(other, "y", 1, NULL);
	} while (rc == ENOTCONN);
	assert_int_equal(rc, 0);
	stag_pool_close(other);
	assert_int_equal(stag_pool_insert(pool, "z", 1, NULL),
			 0); /* without a retry limit, the first client has reconnected */
}

/* Stops this process for `ms` milliseconds, from 100 ms on. */
static pid_t stop_this_process_soon(unsigned int ms)
{
	pid_t us = getpid(), pid = fork();

	if (pid != 0)
		return pid;
	usleep(100 * 1000);
	kill(us, SIGSTOP);
	usleep(ms * 1000);
	kill(us, SIGCONT);
	_exit(0);
}

/* Waits until the process has been stopped for half of *arg ms or more, and brings the nodes back. */
static void *bring_nodes_back_after_stop(void *arg)
{
	uint64_t last = clock_ns(), now;

	for (; (now = clock_ns()) - last < *(uint64_t *)arg * NS_PER_MS / 2; last = now)
		usleep(10 * 1000);
	fake_gone(0, false);
	fake_gone(1, false);
	return NULL;
}

static void time_while_stopped_does_not_count(void **state)
{
	struct stag_pool_attr attr = {.user = "ann", .secret = FAKE_SECRET, .timeout_ms = 3000};
	uint64_t still = 3500;
	struct stag_pool *other;
	pthread_t thread;
	int status;
	pid_t pid;

	fake_gone(0, true);
	fake_gone(1, true);
	assert_int_equal(pthread_create(&thread, NULL, bring_nodes_back_after_stop, &still), 0);
	pid = stop_this_process_soon((unsigned int)still);
	assert_true(pid > 0);
	other = stag_pool_open(both, &attr);
	pthread_join(thread, NULL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_non_null(other);
	stag_pool_close(other);
	assert_int_equal(stag_pool_insert(pool, "z", 1, NULL),
			 0); /* the first client has reconnected, too */
}

/* A client that is disconnected after each attach backs off, and is served once the node serves. */
static void disconnected_client_backs_off(void **state)
{
	struct stag_pool_io io = {.op = STAG_POOL_INSERT, .from = "x", .length = 1};
	uint64_t before = fake_attached(), until;
	struct stag_pool_done done;
	int n = 0;

	fake_throw_out(true);
	assert_int_equal(stag_pool_submit(pool, &io, 1), 0);
	for (until = clock_ns() + 300 * NS_PER_MS; clock_ns() < until;) {
		stag_pool_wait(pool, 20);
		assert_int_equal(stag_pool_poll(pool, &done, 1), 0);
	}
	assert_in_range(fake_attached() - before, 1, 20);
	fake_throw_out(false);
	while (n == 0) {
		stag_pool_wait(pool, 20);
		n = stag_pool_poll(pool, &done, 1);
	}
	assert_int_equal(done.error, 0);
}

/* A primary that disconnects the client each time is as good as none: operations time out all the same. */
static void operations_of_a_client_disconnected_each_time_fail(void **state)
{
	struct stag_pool_attr attr = {
		.user = "ann", .secret = FAKE_SECRET, .timeout_ms = WAIT, .retry_ms = 500};
	struct stag_pool *other = stag_pool_open(both, &attr);
	struct stag_pool_io io[2] = {{.op = STAG_POOL_INSERT, .from = "x", .length = 1},
				     {.op = STAG_POOL_GET, .name = "y"}};
	struct stag_pool_done done[2];
	int rc, n = 0, ops = unleased ? 2 : 1; /* with a lease, a GET is one-sided and succeeds */

	assert_non_null(other);
	fake_throw_out(true);
	assert_int_equal(stag_pool_submit(other, io, ops), 0);
	while (n < ops) {
		assert_int_equal(stag_pool_wait(other, WAIT), 0);
		n += stag_pool_poll(other, done + n, ops - n);
		assert_int_equal(done[n - 1].error, ETIMEDOUT);
	}
	fake_throw_out(false);
	do {
		rc = stag_pool_insert(other, "y", 1, NULL);
	} while (rc == ENOTCONN || rc == ETIMEDOUT);
	assert_int_equal(rc, 0);
	stag_pool_close(other);
}

static void forgotten_client_attaches_as_a_new_one(void **state)
{
	struct stag_pool_ptr ptr;

	assert_int_equal(stag_pool_insert(pool, "x", 1, &ptr), 0);
	fake_forget();
	fake_move();
	assert_int_equal(stag_pool_update(pool, &ptr, "y", 1),
			 0); /* a new request, so its outcome is known */
	expect_read(&ptr, "y", 1);
}

/* ---- reads ------------------------------------------------------------------------------------ */

static void a_torn_value_is_never_returned(void **state)
{
	struct stag_pool_info info = {0};
	struct stag_pool_ptr ptr;
	char to[8];
	size_t length = sizeof(to);

	assert_int_equal(stag_pool_insert(pool, "whole", 6, &ptr), 0);
	fake_tear(&ptr);
	assert_int_equal(stag_pool_read(pool, &ptr, to, &length, NULL),
			 EIO); /* as the node reports */
	assert_int_equal(fake_reads(), 1);
	fake_tear(&ptr);
	expect_read(&ptr, "whole", 6);
	assert_int_equal(stag_pool_query(pool, &info, sizeof(info)), 0);
	assert_int_equal(info.asked_reads, 1);
	assert_true(info.retried_reads > 0);
}

static void pointer_to_no_object_is_not_found(void **state)
{
	struct stag_pool_ptr good, bad;
	char to[8];
	size_t length = sizeof(to);

	assert_int_equal(stag_pool_insert(pool, "x", 1, &good), 0);
	bad = good;
	bad.address = 4096;
	assert_int_equal(stag_pool_read(pool, &bad, to, &length, NULL), ENOENT);
	bad = good;
	bad.generation++;
	assert_int_equal(stag_pool_read(pool, &bad, to, &length, NULL), ENOENT);
	bad = good;
	bad.key++;
	assert_int_equal(stag_pool_read(pool, &bad, to, &length, NULL), ENOENT);
	bad = good;
	bad.generation = 0;
	assert_int_equal(stag_pool_read(pool, &bad, to, &length, NULL), ENOENT);
	bad = (struct stag_pool_ptr){.address = UINT64_MAX - 8, .key = good.key, .generation = 1};
	assert_int_equal(stag_pool_read(pool, &bad, to, &length, NULL), ENOENT);
	expect_read(&good, "x", 1);
}

/* ---- rights ------------------------------------------------------------------------------------- */

static void only_known_users_are_admitted(void **state)
{
	struct stag_pool_attr attr = {.user = "ann", .secret = FAKE_SECRET, .timeout_ms = 100};
	struct stag_pool_ptr ptr;
	struct stag_pool *bob;
	char to[4];
	size_t length = sizeof(to);

	assert_null(open_as("ann", "something else, and as long", both));
	assert_int_equal(errno, EACCES);
	assert_null(open_as("eve", FAKE_SECRET, both));
	assert_int_equal(errno, EACCES);
	fake_gone(0, true);
	fake_gone(1, true);
	assert_null(stag_pool_open(both, &attr));
	assert_true(errno == ECONNREFUSED || errno == ETIMEDOUT);
	fake_gone(0, false);
	fake_gone(1, false);
	assert_null(stag_pool_open("no:such:form", &attr));
	assert_null(stag_pool_open("", &attr));
	assert_int_equal(errno, EINVAL);
	assert_int_equal(stag_pool_insert(pool, "x", 1, &ptr), 0);
	bob = open_as("bob", FAKE_SECRET, both);
	assert_non_null(bob);
	assert_int_equal(stag_pool_read(bob, &ptr, to, &length, NULL), 0);
	assert_int_equal(stag_pool_insert(bob, "x", 1, NULL), EACCES);
	stag_pool_close(bob);
}

/* ---- adapters that enforce no lease ----------------------------------------------------------- */

static void attach_unleased(void)
{
	fake_unleased(true);
	fake_move();
}

/* A single FRESH answer covers many reads. */
static void reads_are_proven_fresh(void **state)
{
	enum { MANY = 200 };
	static char to[MANY][16];
	struct stag_pool_io io[MANY];
	struct stag_pool_done done[MANY];
	struct stag_pool_ptr ptr;

	attach_unleased();
	assert_int_equal(stag_pool_insert(pool, "a value", 8, &ptr), 0);
	for (int i = 0; i < MANY; i++)
		io[i] = read_of(&ptr, to[i], sizeof(to[i]));
	assert_int_equal(stag_pool_submit(pool, io, MANY), 0);
	await_completions(MANY, done);
	for (int i = 0; i < MANY; i++) {
		assert_int_equal(done[i].error, 0);
		assert_string_equal(to[i], "a value");
	}
	assert_in_range(fake_proofs(), 1, MANY / 2);
	assert_int_equal(fake_reads(), 0);
}

/* Reads from the adapter of a node that does not answer FRESH, and that has lost its role, are not delivered. */
static void reads_without_a_fresh_answer_are_not_delivered(void **state)
{
	struct stag_pool *other;
	struct stag_pool_done done = {0};
	struct stag_pool_ptr ptr, same, none;
	struct stag_pool_io io;
	char to[16], to_gone[16];

	attach_unleased();
	assert_int_equal(stag_pool_insert(pool, "old", 4, &ptr), 0);
	assert_int_equal(stag_pool_insert(pool, "old", 4, &none), 0);
	assert_int_equal(stag_pool_delete(pool, &none), 0);
	fake_withhold(true);
	io = read_of(&ptr, to, sizeof(to));
	assert_int_equal(stag_pool_submit(pool, &io, 1), 0);
	io = read_of(&none, to_gone, sizeof(to_gone));
	assert_int_equal(stag_pool_submit(pool, &io, 1), 0);
	while (fake_proofs() == 0)
		assert_int_equal(stag_pool_poll(pool, &done, 1), 0);

	other = open_as("ann", FAKE_SECRET, both);
	assert_non_null(other);
	same = ptr;
	assert_int_equal(stag_pool_update(other, &same, "new", 4), 0);
	stag_pool_close(other);
	assert_int_equal(stag_pool_poll(pool, &done, 1), 0);
	fake_withhold(false);
	fake_move();
	for (int i = 0; i < 2; i++) {
		await_completions(1, &done);
		assert_int_equal(done.error, done.ptr.address == ptr.address ? 0 : ENOENT);
	}
	assert_string_equal(to, "new");
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* test_pool_client [unleased] */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		STORY(stored_values_are_read_back),
		STORY(values_of_every_length_are_read_back),
		STORY(operation_is_implied_by_its_operands),
		STORY(invalid_operations_are_rejected),
		STORY(names_lead_to_values),
		STORY(every_name_is_listed_once),
		STORY(a_batch_goes_in_few_messages),
		STORY(descriptor_is_readable_when_done),
		STORY(pointers_outlive_their_primary),
		STORY(a_change_happens_once),
		STORY(many_changes_happen_once),
		STORY(client_leaves_a_node_that_hangs),
		STORY(other_nodes_are_found),
		STORY(switchover_is_not_repeated),
		STORY(operations_time_out_without_a_primary),
		STORY(time_while_stopped_does_not_count),
		STORY(disconnected_client_backs_off),
		STORY(operations_of_a_client_disconnected_each_time_fail),
		STORY(forgotten_client_attaches_as_a_new_one),
		STORY(a_torn_value_is_never_returned),
		STORY(pointer_to_no_object_is_not_found),
		STORY(only_known_users_are_admitted),
		STORY(reads_are_proven_fresh),
		STORY(reads_without_a_fresh_answer_are_not_delivered),
	};

	unleased = argc > 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
