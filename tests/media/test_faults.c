// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_faults.c - errors of the kernel's side: the operation concerned reports it, and no other one
 * is affected.
 */
#include "backing.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dice.h"

#define SIZE (2 * MIB)

static uint8_t *model, *memory;
static struct faulty faulty;

static const enum backing backings[] = {ON_DISK, ON_PAGES, ON_TMPFS};
#define NUM 3

/* ---- short transfers ---- */

static int shorten(struct faulty *f, struct media_io *io)
{
	uint32_t block = (uint32_t)f->value, blocks;

	if (io->kind > MEDIA_IO_WRITE || one_in(4))
		return 0;
	if (io->n_iov > 1) {
		io->buffer = io->iov[0].iov_base;
		io->length = (uint32_t)io->iov[0].iov_len;
		io->n_iov = 0;
		return 0;
	}
	blocks = io->length / block;
	if (io->n_iov == 0 && blocks > 1)
		io->length = (uint32_t)(1 + dice(blocks - 1)) * block;
	return 0;
}

static void write_and_read_back(struct medium *t)
{
	for (int i = 0; i < 60; i++) {
		uint64_t n = dice_size(300 * KIB), at = dice(SIZE - n), shift = dice(2) * dice(600);

		dice_fill(memory + shift, n);
		memcpy(model + at, memory + shift, n);
		assert_int_equal(perform(t, write_of(memory + shift, n, at)), 0);
		memset(memory, 0, SIZE);
		assert_int_equal(perform(t, read_of(memory + shift, n, at)), 0);
		assert_memory_equal(memory + shift, model + at, n);
	}
	expect_on_medium(t, model, SIZE, 0);
}

static void short_transfers_are_continued(void **state)
{
	for (int b = 0; b < NUM; b++) {
		struct medium t;

		assert_true(open_medium(&t, backings[b], SIZE, NULL));
		inject_between(&t, &faulty, shorten);
		faulty.value = media_block(t.m);
		memset(model, 0, SIZE);
		write_and_read_back(&t);
		assert_int_equal(counters(&t).errors, 0);
		close_medium(&t);
	}
}

static void a_short_vector_is_continued(void **state)
{
	struct iovec iov[] = {{memory, 8192}, {memory + 16384, 4096}, {memory + 65536, 12288}};
	struct deed d = write_of(NULL, 24576, 4096);
	struct medium t;

	assert_true(open_medium(&t, ON_TMPFS, SIZE, NULL));
	inject_between(&t, &faulty, shorten);
	faulty.value = 1;
	dice_fill(memory, 128 * KIB);
	d.op.iov = iov;
	d.op.n_iov = 3;
	for (int i = 0; i < 20; i++) {
		assert_int_equal(perform(&t, d), 0);
		expect_on_medium(&t, iov[0].iov_base, 8192, 4096);
		expect_on_medium(&t, iov[1].iov_base, 4096, 12288);
		expect_on_medium(&t, iov[2].iov_base, 12288, 16384);
	}
	close_medium(&t);
}

/* ---- interrupted operations ---- */

static int return_eagain(struct faulty *f, struct media_io *io)
{
	static const int passing[] = {-EINTR, -EAGAIN, -ECANCELED};

	return f->at-- > 0 ? passing[dice(3)] : 0;
}

static void interrupted_operations_are_retried(void **state)
{
	struct medium t;

	assert_true(open_medium(&t, ON_TMPFS, SIZE, NULL));
	inject_between(&t, &faulty, return_eagain);
	faulty.at = 50;
	dice_fill(memory, 4096);
	assert_int_equal(perform(&t, write_of(memory, 4096, 4096)), 0);
	expect_on_medium(&t, memory, 4096, 4096);
	faulty.at = 1 << 30;
	assert_int_not_equal(perform(&t, write_of(memory, 4096, 0)), 0);
	faulty.at = 0;
	assert_int_equal(perform(&t, write_of(memory, 4096, 0)), 0);
	close_medium(&t);
}

/* ---- errors ---- */

static int eio_at(struct faulty *f, struct media_io *io)
{
	return f->at-- == 0 ? -EIO : 0;
}

#define DEEDS 12

/* Prepares operations that are neighbours in the same few blocks. */
static void prepare(struct deed *deeds)
{
	for (int i = 0; i < DEEDS; i++)
		if (i % 4 == 3)
			deeds[i] = add_of(8 * (uint64_t)(90 + i));
		else
			deeds[i] = write_of(memory + i * 300, 300, 1000 + (uint64_t)i * 300);
}

/* Compares the bytes of the writes that did not fail, except for the words that lie in slices. */
static void expect_others(struct medium *t, struct deed *deeds)
{
	for (int i = 0; i < DEEDS; i++)
		if (deeds[i].op.kind == MEDIA_WRITE && deeds[i].op.result == 0)
			expect_on_medium(t, memory + i * 300, 300, deeds[i].op.offset);
}

static void fail_at(enum backing b, long n)
{
	struct deed deeds[DEEDS];
	struct medium t;
	int failed = 0;

	assert_true(open_medium(&t, b, SIZE, NULL));
	inject_between(&t, &faulty, eio_at);
	faulty.at = n;
	prepare(deeds);
	for (int i = 0; i < DEEDS; i++) {
		/* Atomics are elsewhere. */
		if (deeds[i].op.kind == MEDIA_ATOMIC)
			deeds[i].op.offset += 8192;
		begin(&t, &deeds[i]);
	}
	for (int i = 0; i < DEEDS; i++) {
		int result = end(&t, &deeds[i]);

		failed += result != 0;
		assert_true(result == 0 || result == -EIO);
	}
	assert_int_equal(failed, faulty.at < 0);
	assert_int_equal(counters(&t).errors, failed);
	expect_others(&t, deeds);
	faulty.at = -1;
	prepare(deeds);
	for (int i = 0; i < DEEDS; i++)
		assert_int_equal(perform(&t, deeds[i]), 0);
	close_medium(&t);
}

static void an_error_fails_its_operation_alone(void **state)
{
	dice_fill(memory, DEEDS * 300);
	for (int b = 0; b < NUM; b++)
		for (long n = 0; n < 2 * DEEDS; n++)
			fail_at(backings[b], n);
}

static int sync_fails_once(struct faulty *f, struct media_io *io)
{
	return io->kind == MEDIA_IO_SYNC && f->at-- == 0 ? -EIO : 0;
}

/* After a failed flush the kernel has dropped the pages that it could not write. */
static void after_a_failed_flush_all_flushes_fail(void **state)
{
	struct medium t;

	assert_true(open_medium(&t, ON_PAGES, SIZE, NULL));
	inject_between(&t, &faulty, sync_fails_once);
	assert_int_equal(perform(&t, flush_of()), -EIO);
	assert_int_equal(perform(&t, flush_of()), -EIO);
	assert_int_equal(perform(&t, write_of(memory, 100, 7)), 0);
	expect_on_medium(&t, memory, 100, 7);
	close_medium(&t);
}

/* ---- the end of the file ---- */

static void a_truncated_file_is_noticed(void **state)
{
	for (int b = 0; b < NUM; b++) {
		struct medium t;

		assert_true(open_medium(&t, backings[b], SIZE, NULL));
		dice_fill(memory, 8192);
		assert_int_equal(perform(&t, write_of(memory, 8192, 0)), 0);
		assert_int_equal(ftruncate(t.fd, SIZE / 2), 0);
		assert_int_equal(perform(&t, read_of(memory + SIZE / 2, 4096, SIZE / 2)), -ENXIO);
		assert_int_equal(perform(&t, read_of(memory + SIZE / 2, 4096, SIZE / 2 - 100)),
				 -ENXIO);
		/* A write does not make the file longer again. */
		assert_int_equal(perform(&t, write_of(memory, 4096, SIZE / 2)), -ENXIO);
		assert_int_equal(media_size(t.m), SIZE / 2);
		assert_int_equal(lseek(t.fd, 0, SEEK_END), SIZE / 2);
		expect_on_medium(&t, memory, 8192, 0);
		assert_int_equal(perform(&t, write_of(memory, 4096, SIZE / 2 - 4096)), 0);
		/* After the file is extended, operations succeed again. */
		assert_int_equal(ftruncate(t.fd, SIZE), 0);
		assert_int_equal(perform(&t, write_of(memory, 4096, SIZE - 4096)), 0);
		close_medium(&t);
	}
}

/* The rest of a truncated block is missing: it is not written back as zeroes. */
static void a_truncated_block_is_not_written_back(void **state)
{
	struct medium t;

	assert_true(open_medium(&t, ON_DISK, SIZE, NULL));
	if (media_is_direct(t.m)) {
		assert_int_equal(perform(&t, write_of(memory, 10, 0)), 0); /* reads the size */
		assert_int_equal(ftruncate(t.fd, 0), 0);
		assert_int_equal(perform(&t, write_of(memory, 100, 5000)), -ENXIO);
		assert_int_equal(lseek(t.fd, 0, SEEK_END), 0);
	}
	close_medium(&t);
}

/* ---- no space ---- */

static void fill_up(void)
{
	struct media_attr attr = {.fd = open("/mnt/file", O_RDWR | O_CREAT, 0600)};
	struct medium t = {.fd = attr.fd};
	int results[64], failed = 0;

	if (attr.fd < 0 || ftruncate(attr.fd, 4 * MIB) || media_open(&t.m, &attr))
		_exit(2);
	for (int i = 0; i < 64; i++) {
		memset(memory, i + 1, 64 * KIB);
		results[i] = perform(&t, write_of(memory, 64 * KIB, (uint64_t)i * 64 * KIB));
		if (results[i] != 0 && results[i] != -ENOSPC)
			_exit(3);
		failed += results[i] != 0;
	}
	for (int i = 0; i < 64; i++) {
		if (results[i])
			continue;
		if (perform(&t, read_of(memory, 64 * KIB, (uint64_t)i * 64 * KIB)) ||
		    memory[5] != i + 1 || memory[64 * KIB - 1] != i + 1)
			_exit(4);
	}
	if (perform(&t, write_of(memory, 4096, 0)))
		_exit(5);
	media_close(t.m);
	_exit(failed > 30 && failed < 60 ? 0 : 6);
}

static int write_line(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	return fd < 0 || write(fd, text, strlen(text)) < 0 || close(fd) ? -1 : 0;
}

/*
 * Enters a mount namespace, through a user namespace if necessary; there, an unmapped user could
 * create no file.
 */
static int own_mounts(void)
{
	char uid[32], gid[32];

	if (unshare(CLONE_NEWNS) == 0)
		return 0;
	snprintf(uid, sizeof(uid), "0 %u 1", geteuid());
	snprintf(gid, sizeof(gid), "0 %u 1", getegid());
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return -1;
	return write_line("/proc/self/uid_map", uid) ||
	       write_line("/proc/self/setgroups", "deny") || write_line("/proc/self/gid_map", gid);
}

static void a_full_medium_keeps_the_written_bytes(void **state)
{
	int status;
	pid_t pid;

	pid = fork();
	if (pid == 0) {
		if (own_mounts() || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("none", "/mnt", "tmpfs", 0, "size=1m"))
			_exit(77);
		fill_up();
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(WEXITSTATUS(status), 0);
}

static int allocate(void **state)
{
	dice_start();
	model = malloc(SIZE);
	return posix_memalign((void **)&memory, 4096, SIZE + 4096) || !model;
}

static int release(void **state)
{
	free(model);
	free(memory);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(short_transfers_are_continued),
		cmocka_unit_test(a_short_vector_is_continued),
		cmocka_unit_test(interrupted_operations_are_retried),
		cmocka_unit_test(an_error_fails_its_operation_alone),
		cmocka_unit_test(after_a_failed_flush_all_flushes_fail),
		cmocka_unit_test(a_truncated_file_is_noticed),
		cmocka_unit_test(a_truncated_block_is_not_written_back),
		cmocka_unit_test(a_full_medium_keeps_the_written_bytes),
	};

	return cmocka_run_group_tests_name("media/faults", tests, allocate, release);
}
