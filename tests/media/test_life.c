// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_life.c - opening, waiting for events, forking, closing; and which system calls are made, and
 * when.
 */
#include "backing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dice.h"

#define SIZE (4 * MIB)

static uint8_t *memory;
static struct faulty faulty;

/* ---- opening ---- */

static void an_unsuitable_file_is_refused(void **state)
{
	struct media_attr attr = {.fd = -1};
	struct media *m;
	int pipes[2];

	assert_int_equal(media_open(&m, &attr), -EBADF);
	assert_int_equal(pipe(pipes), 0);
	attr.fd = pipes[0];
	assert_int_equal(media_open(&m, &attr), -EINVAL);
	close(pipes[0]);
	close(pipes[1]);
	attr.fd = make_file(ON_DISK, SIZE, NULL);
	attr.block = 1000;
	assert_int_equal(media_open(&m, &attr), -EINVAL);
	close(attr.fd);
	media_close(NULL);
}

static void a_read_only_medium_refuses_writes(void **state)
{
	struct medium t = {.fd = make_file(ON_TMPFS, SIZE, NULL)};
	struct media_attr attr = {0};
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", t.fd);
	attr.fd = open(path, O_RDONLY);
	assert_int_equal(media_open(&t.m, &attr), 0);
	close(attr.fd);
	assert_int_equal(perform(&t, read_of(memory, 100, 7)), 0);
	assert_int_equal(perform(&t, write_of(memory, 100, 7)), -EBADF);
	assert_int_equal(perform(&t, read_of(memory, 100, 7)), 0);
	media_close(t.m);
	close(t.fd);
}

static void expect_child(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void an_ordinary_user_with_little_locked_memory_can_open(void **state)
{
	static const struct rlimit little = {64 * KIB, 64 * KIB};
	int fd = make_file(IN_MEMORY, SIZE, NULL);
	pid_t pid = fork();

	if (pid == 0) {
		struct media_attr attr = {.fd = fd};
		struct medium t = {.fd = fd};

		if (geteuid() == 0 && setresuid(65534, 65534, 65534))
			_exit(1);
		if (setrlimit(RLIMIT_MEMLOCK, &little) || media_open(&t.m, &attr))
			_exit(2);
		if (perform(&t, write_of(memory, 4096, 11)) || perform(&t, add_of(16)))
			_exit(3);
		media_close(t.m);
		_exit(0);
	}
	expect_child(pid);
	close(fd);
}

/* ---- system calls ---- */

static void a_batch_is_one_system_call(void **state)
{
	struct deed deeds[32];
	struct medium t;
	uint64_t before;

	assert_true(open_medium(&t, ON_PAGES, SIZE, NULL));
	before = counters(&t).submits;
	for (int i = 0; i < 32; i++) {
		deeds[i] = read_of(memory + i * 4096, 4096, (uint64_t)i * 8192);
		begin(&t, &deeds[i]);
	}
	assert_int_equal(counters(&t).submits, before);
	media_kick(t.m);
	assert_int_equal(counters(&t).submits, before + 1);
	for (int i = 0; i < 32; i++)
		assert_int_equal(end(&t, &deeds[i]), 0);
	assert_int_equal(counters(&t).submits, before + 1);
	close_medium(&t);
}

/* The kernel kills the child at any system call but read, write and exit (seccomp). */
static void polling_without_events_makes_no_system_call(void **state)
{
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
	skip();
#endif
	pid_t pid = fork();

	if (pid == 0) {
		struct medium t;

		if (!open_medium(&t, ON_DISK, SIZE, NULL) ||
		    perform(&t, write_of(memory, 100, 5)) ||
		    prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
			_exit(1);
		for (int i = 0; i < 100000; i++)
			if (media_poll(t.m))
				break;
		syscall(SYS_exit, 0);
	}
	expect_child(pid);
}

static void flushes_are_fdatasync(void **state)
{
	struct medium t;
	struct deed d;

	assert_true(open_medium(&t, ON_DISK, SIZE, NULL));
	inject_between(&t, &faulty, let_pass);
	assert_int_equal(perform(&t, write_of(memory, 8192, 0)), 0);
	assert_int_equal(faulty.durable, 0);
	assert_int_equal(perform(&t, flush_of()), 0);
	assert_int_equal(faulty.seen[MEDIA_IO_SYNC], 1);
	/* A durable write needs no flush; one of several steps is flushed after them. */
	d = write_of(memory, 8192, 0);
	d.op.durable = true;
	assert_int_equal(perform(&t, d), 0);
	assert_int_equal(faulty.durable, 1);
	assert_int_equal(faulty.seen[MEDIA_IO_SYNC], 1);
	if (media_is_direct(t.m)) {
		d = write_of(memory, 100000, 77);
		d.op.durable = true;
		assert_int_equal(perform(&t, d), 0);
		assert_int_equal(faulty.seen[MEDIA_IO_SYNC], 2);
	}
	assert_int_equal(counters(&t).flushes, 1);
	close_medium(&t);
}

static uint64_t keep_value(const struct media_op *op, uint64_t found)
{
	return found;
}

/* The value found may be only in caches, where an operation that was not durable left it. */
static void a_durable_atomic_is_written_though_it_changes_nothing(void **state)
{
	struct medium t;
	struct deed d = add_of(64);

	assert_true(open_medium(&t, ON_DISK, SIZE, NULL));
	inject_between(&t, &faulty, let_pass);
	d.op.apply = keep_value;
	assert_int_equal(perform(&t, d), 0);
	assert_int_equal(faulty.seen[MEDIA_IO_WRITE], 0);
	d.op.durable = true;
	assert_int_equal(perform(&t, d), 0);
	assert_int_equal(faulty.seen[MEDIA_IO_WRITE], 1);
	assert_int_equal(faulty.durable, 1);
	close_medium(&t);
}

static void concurrent_flushes_share_one(void **state)
{
	struct deed deeds[20];
	struct medium t;

	assert_true(open_medium(&t, ON_PAGES, SIZE, NULL));
	inject_between(&t, &faulty, let_pass);
	for (int i = 0; i < 20; i++) {
		deeds[i] = flush_of();
		begin(&t, &deeds[i]);
	}
	for (int i = 0; i < 20; i++)
		assert_int_equal(end(&t, &deeds[i]), 0);
	/* The first flush, and one for all that were requested while it ran. */
	assert_int_equal(faulty.seen[MEDIA_IO_SYNC], 2);
	close_medium(&t);
}

static void memory_is_not_flushed(void **state)
{
	struct medium t;
	struct deed d = write_of(memory, 100, 5);

	assert_true(open_medium(&t, ON_TMPFS, SIZE, NULL));
	inject_between(&t, &faulty, let_pass);
	d.op.durable = true;
	assert_int_equal(perform(&t, d), 0);
	assert_int_equal(perform(&t, flush_of()), 0);
	assert_int_equal(faulty.seen[MEDIA_IO_SYNC] + faulty.durable, 0);
	close_medium(&t);
}

/* ---- waiting for events ---- */

static bool is_woken(struct medium *t, int ms)
{
	struct pollfd p = {.fd = media_event_fd(t->m), .events = POLLIN};

	return poll(&p, 1, ms) == 1;
}

static void an_armed_event_descriptor_signals_completions(void **state)
{
	static const enum backing backings[] = {ON_DISK, ON_TMPFS};

	for (int b = 0; b < 2; b++) {
		struct medium t;
		struct deed d = read_of(memory, 4096, 0);

		assert_true(open_medium(&t, backings[b], SIZE, NULL));
		media_arm(t.m);
		assert_false(is_woken(&t, 0));
		begin(&t, &d);
		media_kick(t.m);
		assert_true(is_woken(&t, 60000));
		media_clear_event(t.m);
		await((media_poll(t.m), atomic_load(&d.done)));
		/* Errors that are found without the kernel. */
		d = read_of(memory, 4096, SIZE);
		begin(&t, &d);
		assert_true(is_woken(&t, 60000));
		media_clear_event(t.m);
		assert_int_equal(media_poll(t.m), 1);
		assert_false(is_woken(&t, 0));
		/* Disarmed: not signalled any more; armed again: existing events are signalled. */
		media_disarm(t.m);
		d = read_of(memory, 4096, 0);
		begin(&t, &d);
		media_kick(t.m);
		await(media_edge(t.m)->ready(media_edge(t.m)));
		assert_false(is_woken(&t, 0));
		media_arm(t.m);
		assert_true(is_woken(&t, 0));
		assert_int_equal(media_poll(t.m), 1);
		close_medium(&t);
	}
}

/* The thread that is woken submits it, since no thread polls any more. */
static void an_armed_event_descriptor_signals_unsubmitted_operations(void **state)
{
	struct medium t;
	struct deed d = read_of(memory, 4096, 0);

	assert_true(open_medium(&t, ON_DISK, SIZE, NULL));
	begin(&t, &d);
	media_arm(t.m);
	assert_true(is_woken(&t, 0));
	media_clear_event(t.m);
	await((media_poll(t.m), atomic_load(&d.done)));
	close_medium(&t);
}

/* ---- forking ---- */

static void a_forked_child_does_not_disturb_the_medium(void **state)
{
#if defined(__SANITIZE_THREAD__)
	skip();
#endif
	static const unsigned int flags[] = {0, MEDIA_SHARED};

	for (int k = 0; k < 2; k++) {
		struct media_attr attr = {.flags = flags[k]};
		struct deed deeds[8], mine;
		struct medium t;
		pid_t pid;

		assert_true(open_medium(&t, ON_DISK, SIZE, &attr));
		for (int i = 0; i < 8; i++) {
			deeds[i] = write_of(memory, 5000, 100 + (uint64_t)i * 5000);
			begin(&t, &deeds[i]);
		}
		media_kick(t.m);
		pid = fork();
		if (pid == 0) {
			mine = deeds[0];
			if (media_submit(t.m, &mine.op) != -EINVAL || media_poll(t.m) != 0)
				_exit(1);
			media_kick(t.m);
			media_arm(t.m);
			media_close(t.m);
			_exit(0);
		}
		expect_child(pid);
		for (int i = 0; i < 8; i++)
			assert_int_equal(end(&t, &deeds[i]), 0);
		close_medium(&t);
	}
}

/* ---- closing ---- */

#define MANY 400

static struct deed deeds_under_way[MANY];
static unsigned int calls[MANY];

static void count_call(struct media_op *op)
{
	struct deed *d = container_of(op, struct deed, op);

	calls[d - deeds_under_way]++;
	assert_true(op->result == 0 || op->result == -ECANCELED);
}

static void submit_many(struct medium *t)
{
	for (int i = 0; i < MANY; i++) {
		struct deed *d = &deeds_under_way[i];
		uint64_t n = dice_size(100 * KIB);

		switch (dice(5)) {
		case 0:
			*d = add_of(8 * dice(100));
			break;
		case 1:
			*d = flush_of();
			break;
		case 2:
			*d = read_of(memory, n, dice(SIZE - n));
			d->op.cache_ms = 5;
			break;
		default:
			*d = write_of(memory, n, dice(SIZE - n));
			d->op.durable = one_in(10);
		}
		d->op.iov = &d->iov;
		d->op.done = count_call;
		assert_int_equal(media_submit(t->m, &d->op), 0);
		if (one_in(100))
			media_kick(t->m);
	}
}

static void closing_completes_all_operations_in_flight(void **state)
{
	struct media_attr attrs[] = {
		{0}, {.depth = 16, .staging_bytes = 1}, {.flags = MEDIA_SHARED}};
	static const enum backing backings[] = {ON_DISK, ON_TMPFS, ON_PAGES};

	for (int round = 0; round < 9; round++) {
		struct medium t;

		memset(calls, 0, sizeof(calls));
		assert_true(open_medium(&t, backings[round % 3], SIZE, &attrs[round / 3]));
		submit_many(&t);
		close_medium(&t);
		for (int i = 0; i < MANY; i++)
			assert_int_equal(calls[i], 1);
	}
}

static int allocate(void **state)
{
	dice_start();
	return posix_memalign((void **)&memory, 4096, MIB);
}

static int release(void **state)
{
	free(memory);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_unsuitable_file_is_refused),
		cmocka_unit_test(a_read_only_medium_refuses_writes),
		cmocka_unit_test(an_ordinary_user_with_little_locked_memory_can_open),
		cmocka_unit_test(a_batch_is_one_system_call),
		cmocka_unit_test(polling_without_events_makes_no_system_call),
		cmocka_unit_test(flushes_are_fdatasync),
		cmocka_unit_test(a_durable_atomic_is_written_though_it_changes_nothing),
		cmocka_unit_test(concurrent_flushes_share_one),
		cmocka_unit_test(memory_is_not_flushed),
		cmocka_unit_test(an_armed_event_descriptor_signals_completions),
		cmocka_unit_test(an_armed_event_descriptor_signals_unsubmitted_operations),
		cmocka_unit_test(a_forked_child_does_not_disturb_the_medium),
		cmocka_unit_test(closing_completes_all_operations_in_flight),
	};

	return cmocka_run_group_tests_name("media/life", tests, allocate, release);
}
