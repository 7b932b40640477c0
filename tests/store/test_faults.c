// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_faults.c - operations of the medium fail: it is full, broken, or does only part of a
 * request.
 */
#include "room.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "dice.h"

/* ---- fault injection ------------------------------------------------------------------- */

static struct {
	int fail_at; /* number of the operation that fails; counts down to 0 */
	int error;
	bool for_ever; /* and all operations after it */
	bool in_part;  /* a write that fails has written some of its bytes */
	bool grudging; /* short reads and writes, and EINTR */
} mood;

static bool refuses(void)
{
	if (mood.error == 0 || mood.fail_at < 0)
		return false;
	if (mood.fail_at > 0) {
		mood.fail_at--;
		return false;
	}
	if (!mood.for_ever)
		mood.fail_at = -1;
	errno = mood.error;
	return true;
}

static bool interrupts(void)
{
	if (!mood.grudging || !one_in(3))
		return false;
	errno = EINTR;
	return true;
}

static size_t some_of(size_t len)
{
	return mood.grudging && one_in(2) ? 1 + dice(len) : len;
}

static ssize_t faulty_pread(int fd, void *buf, size_t len, off_t offset)
{
	return interrupts() ? -1 : pread(fd, buf, some_of(len), offset);
}

static ssize_t faulty_pwrite(int fd, const void *buf, size_t len, off_t offset)
{
	int error;

	if (interrupts())
		return -1;
	if (!refuses())
		return pwrite(fd, buf, some_of(len), offset);
	error = errno;
	if (mood.in_part && pwrite(fd, buf, len / 2, offset) < 0)
		return -1;
	errno = error;
	return -1;
}

static int faulty_fdatasync(int fd)
{
	return refuses() ? -1 : fdatasync(fd);
}

static int faulty_fallocate(int fd, int mode, off_t offset, off_t len)
{
	return interrupts() || refuses() ? -1 : fallocate(fd, mode, offset, len);
}

static int faulty_ftruncate(int fd, off_t len)
{
	return refuses() ? -1 : ftruncate(fd, len);
}

static void inject_faults(void)
{
	store_io = (struct store_io){faulty_pread, faulty_pwrite, faulty_fdatasync,
				     faulty_fallocate, faulty_ftruncate};
}

static void stop_faults(void)
{
	store_io = (struct store_io){pread, pwrite, fdatasync, fallocate, ftruncate};
	memset(&mood, 0, sizeof(mood));
}

/* ---- changes to try ------------------------------------------------------------------------ */

static char path[64];
static struct table before, now;

static int step_add(struct stag_store *store)
{
	return try_add(store, "new", MIB, 0, 0);
}

static int step_change(struct stag_store *store)
{
	struct stag_store_partition p = find(store, "a");

	p.num_rights = 32;
	p.cache_ms = 1;
	return stag_store_change(store, &p, STAG_STORE_CHANGE_RIGHTS | STAG_STORE_CHANGE_CACHE);
}

static int step_size(struct stag_store *store)
{
	struct stag_store_partition p = find(store, "b");

	p.size += MIB;
	return stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE);
}

static int step_remove(struct stag_store *store)
{
	return stag_store_remove(store, "a", 0);
}

static int step_grow(struct stag_store *store)
{
	return stag_store_grow(store, 9 * MIB);
}

static void prepare(void)
{
	struct stag_store *store;

	room_clear();
	snprintf(path, sizeof(path), "%s", room_path("s"));
	make_store(path, 8 * MIB, 4096);
	store = open_store(path);
	add(store, "a", MIB);
	add(store, "b", MIB);
	table_copy(&before, &store->now.table);
	stag_store_close(store);
}

/*
 * Checks that a failed call has changed nothing, and that a successful one has, if only in one
 * copy. If the medium fails all writes, a change that is only in the page cache cannot be taken
 * back.
 */
static void expect_all_or_nothing(struct stag_store *store, int rc, bool for_ever)
{
	struct stag_store *other;
	bool unknown = rc != 0 && strstr(stag_store_error(), "cannot undo it either");

	if (rc != 0) {
		assert_says(path);
		assert_says(strerror(rc));
	}
	other = open_store(path);
	table_copy(&now, &other->now.table);
	if (!unknown)
		assert_int_equal(is_same_table(&now, &before), rc != 0);
	assert_true(!unknown || for_ever);
	assert_int_equal(store_refresh(store), 0);
	assert_true(is_same_table(&store->now.table, &now));
	stag_store_close(other);
}

static int change_with_fault(int (*step)(struct stag_store *), int n, int error, bool for_ever,
			     bool in_part)
{
	struct stag_store *store;
	int rc;

	prepare();
	store = open_store(path);
	inject_faults();
	mood.fail_at = n;
	mood.error = error;
	mood.for_ever = for_ever;
	mood.in_part = in_part;
	rc = step(store);
	assert_true(rc == 0 || rc == error);
	n = mood.fail_at;
	stop_faults();
	expect_all_or_nothing(store, rc, for_ever);
	assert_int_equal(stag_store_check(path, STAG_STORE_REPAIR, NULL), 0);
	assert_int_equal(stag_store_grow(store, 10 * MIB), 0);
	assert_int_equal(stag_store_check(path, 0, NULL), 0);
	stag_store_close(store);
	return n;
}

static void a_failed_change_leaves_the_old_table(void **state)
{
	static int (*const steps[])(struct stag_store *) = {step_add, step_change, step_size,
							    step_remove, step_grow};
	static const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS};
	unsigned long tries = 0, num_errors = sizeof(errors) / sizeof(errors[0]);

	for (size_t s = 0; s < sizeof(steps) / sizeof(steps[0]); s++)
		for (size_t e = 0; e < lessened(num_errors); e++)
			for (int how = 0; how < 4; how++)
				for (int n = 0; n < 20; n++, tries++)
					if (change_with_fault(steps[s], n, errors[e], how & 1,
							      how & 2) > 0)
						break; /* there were no more operations */
	print_message("%lu faults\n", tries);
}

static void a_lost_second_copy_is_reported(void **state)
{
	struct stag_store_info info;
	struct stag_store *store;

	prepare();
	store = open_store(path);
	inject_faults();
	mood.error = EIO;
	mood.fail_at = 2; /* the first copy is written and flushed */
	assert_int_equal(step_change(store), 0);
	stop_faults();
	assert_int_equal(stag_store_query(store, &info, sizeof(info)), 0);
	assert_int_equal(info.copies, 1);
	assert_int_equal(stag_store_check(path, 0, NULL), 1);
	assert_int_equal(step_grow(store), 0);
	assert_int_equal(stag_store_query(store, &info, sizeof(info)), 0);
	assert_int_equal(info.copies, 2);
	stag_store_close(store);
}

static void formatting_that_fails_leaves_no_file(void **state)
{
	struct stag_store_attr attr = {.size = 8 * MIB};

	room_clear();
	for (int n = 0; n < 7; n++) {
		inject_faults();
		mood.error = ENOSPC;
		mood.fail_at = n;
		assert_int_equal(stag_store_format(room_path("new"), &attr, 0), ENOSPC);
		assert_says("No space left");
		stop_faults();
		assert_int_equal(access(room_path("new"), F_OK), -1);
	}
	assert_int_equal(stag_store_format(room_path("new"), &attr, 0), 0);
}

static void short_and_interrupted_operations_are_continued(void **state)
{
	struct stag_store *store;

	for (unsigned long i = 0; i < scaled(50); i++) {
		inject_faults();
		mood.grudging = true;
		prepare();
		store = open_store(path);
		assert_int_equal(step_add(store), 0);
		assert_int_equal(step_change(store), 0);
		assert_int_equal(step_remove(store), 0);
		assert_int_equal(stag_store_check(path, 0, NULL), 0);
		stop_faults();
		assert_int_equal(stag_store_check(path, 0, NULL), 0);
		assert_int_equal(count(store), 2);
		stag_store_close(store);
	}
}

static void a_file_size_limit_is_reported(void **state)
{
	struct rlimit limit, old;
	struct stag_store *store;

	prepare();
	store = open_store(path);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
	limit = old;
	limit.rlim_cur = 8 * MIB + 4096;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_int_equal(stag_store_grow(store, 9 * MIB), EFBIG);
	assert_says("cannot grow to 9437184 bytes: File too large");
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
	assert_int_equal(stag_store_check(path, 0, NULL), 0);
	stag_store_close(store);
}

static ssize_t bad_sector(int fd, void *buf, size_t len, off_t offset)
{
	if (offset < (off_t)DISK_HEADER ||
	    ((uint64_t)offset >= START + MIB && (uint64_t)offset < START + 2 * MIB)) {
		errno = EIO;
		return -1;
	}
	return pread(fd, buf, len, offset);
}

static void unreadable_sectors_are_reported(void **state)
{
	struct stag_store *store;
	char text[1000] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	prepare();
	store_io.pread = bad_sector;
	store = open_store(path);
	assert_int_equal(count(store), 2);
	assert_int_equal(stag_store_check(path, 0, out), 2);
	fclose(out);
	stop_faults();
	assert_non_null(
		strstr(text, "copy A of the table: the header cannot be read: Input/output error"));
	assert_non_null(strstr(text, "partition b: cannot be read at 3145728: Input/output error"));
	assert_null(strstr(text, "partition a"));
	stag_store_close(store);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failed_change_leaves_the_old_table),
		cmocka_unit_test(a_lost_second_copy_is_reported),
		cmocka_unit_test(formatting_that_fails_leaves_no_file),
		cmocka_unit_test(short_and_interrupted_operations_are_continued),
		cmocka_unit_test(a_file_size_limit_is_reported),
		cmocka_unit_test(unreadable_sectors_are_reported),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
