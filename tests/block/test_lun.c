// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_lun.c - units on real files and on partitions of a store, with the software adapter in this process.
 *
 * On tmpfs, which is fast; or, with the argument "disk", on a file system with blocks and slow flushes.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "await.h"
#include "block/unit/unit.h"
#include "dice.h"
#include "stag/stagdv.h"
#include "stag/store.h"

#define KIB	 1024ull
#define MIB	 (1024ull * KIB)
#define SIZE	 (8 * MIB)
#define STAGING	 (4 * MIB)
#define MANY	 24
#define PATIENCE 30000

struct room {
	char folder[64], file[96], store[96], part[128];
	struct units *u;
	struct lun *l;
	struct units_buffer *b[MANY]; /* buffers for data */
	int n_b;
};

struct deed { /* an operation, and its result */
	struct lun_io io;
	bool done;
	int result;
};

static bool on_disk;

/* ---- the room ---- */

static int open_room(void **state)
{
	struct room *r = calloc(1, sizeof(*r));
	struct units_buffer *b;

	assert_non_null(r);
	snprintf(r->folder, sizeof(r->folder), "%s/stag-lun-XXXXXX",
		 on_disk ? "/var/tmp" : "/dev/shm");
	assert_non_null(mkdtemp(r->folder));
	snprintf(r->file, sizeof(r->file), "%s/disk", r->folder);
	snprintf(r->store, sizeof(r->store), "%s/store", r->folder);
	snprintf(r->part, sizeof(r->part), "%s:part", r->store);
	if (units_create(&r->u, STAGING) != 0)
		fail_msg("%s", stag_block_error());
	while (r->n_b < 10 && (b = units_buffer(r->u)))
		r->b[r->n_b++] = b;
	*state = r;
	return 0;
}

static int close_room(void **state)
{
	struct room *r = *state;

	lun_close(r->l);
	while (r->n_b)
		units_put_buffer(r->u, r->b[--r->n_b]);
	units_destroy(r->u);
	unlink(r->file);
	unlink(r->store);
	rmdir(r->folder);
	free(r);
	return 0;
}

static void make_file(struct room *r, uint64_t size)
{
	int fd = open(r->file, O_CREAT | O_RDWR, 0600);

	assert_true(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	close(fd);
}

static int try_open(struct room *r, const char *where, uint32_t flags)
{
	struct stag_block_lun attr = {.where = where, .flags = flags};

	lun_close(r->l);
	r->l = NULL;
	return lun_open(r->u, &attr, &r->l);
}

static void open_it(struct room *r, const char *where, uint32_t flags)
{
	if (try_open(r, where, flags) != 0)
		fail_msg("%s", stag_block_error());
}

static void on_file(struct room *r, uint32_t flags)
{
	make_file(r, SIZE);
	open_it(r, r->file, flags);
}

static struct stag_store *make_store(struct room *r)
{
	struct stag_store_attr attr = {.size = 32 * MIB};
	struct stag_store_partition p = {.name = "part", .size = SIZE};
	struct stag_store *store;

	if (stag_store_format(r->store, &attr, 0) != 0)
		fail_msg("%s", stag_store_error());
	store = stag_store_open(r->store, 0);
	if (!store || stag_store_add(store, &p) != 0)
		fail_msg("%s", stag_store_error());
	return store;
}

/* ---- deeds ---- */

static void on_done(struct lun_io *io, int result)
{
	struct deed *d = (struct deed *)io;

	assert_false(d->done);
	d->done = true;
	d->result = result;
}

static void start_op(struct room *r, struct deed *d, enum lun_op op, uint64_t offset,
		     uint64_t length)
{
	d->done = false;
	d->io.op = op;
	d->io.offset = offset;
	d->io.length = length;
	d->io.done = on_done;
	lun_start(r->l, &d->io);
}

/* Waits for an operation, sleeping as a target does. */
static int wait_op(struct room *r, struct deed *d)
{
	struct pollfd p = {.fd = units_fd(r->u), .events = POLLIN};

	while (!d->done) {
		if (units_poll(r->u) > 0 || units_arm(r->u))
			continue;
		assert_int_equal(poll(&p, 1, PATIENCE), 1);
	}
	return d->result;
}

static struct deed with(void *memory, uint64_t len)
{
	struct deed d = {0};

	d.io.n_iov = 1;
	d.io.iov[0] = (struct iovec){memory, len};
	return d;
}

static int do_it(struct room *r, enum lun_op op, uint64_t offset, void *memory, uint64_t len)
{
	struct deed d = with(memory, op == LUN_COMPARE_WRITE ? 2 * len : len);

	if (!memory)
		d.io.n_iov = 0;
	start_op(r, &d, op, offset, len);
	return wait_op(r, &d);
}

static bool file_is(struct room *r, uint64_t offset, const void *bytes, size_t len)
{
	uint8_t *there = malloc(len);
	int fd = open(r->file, O_RDONLY);
	bool same;

	assert_true(fd >= 0 && there);
	same = pread(fd, there, len, (off_t)offset) == (ssize_t)len &&
	       memcmp(there, bytes, len) == 0;
	close(fd);
	free(there);
	return same;
}

static bool is_zero(struct room *r, uint64_t offset, size_t len)
{
	uint8_t *zeroes = calloc(1, len);
	bool same = file_is(r, offset, zeroes, len);

	free(zeroes);
	return same;
}

/* ---- reading and writing ---- */

static void write_and_read(struct room *r)
{
	uint8_t *out = r->b[0]->bytes, *in = r->b[1]->bytes;

	dice_fill(out, 64 * KIB);
	assert_int_equal(do_it(r, LUN_WRITE, 0, out, 64 * KIB), 0);
	assert_int_equal(do_it(r, LUN_WRITE, 128 * KIB + 512, out, 1536), 0);
	assert_int_equal(do_it(r, LUN_WRITE, SIZE - 512, out, 512), 0);
	assert_int_equal(do_it(r, LUN_READ, 0, in, 64 * KIB), 0);
	assert_memory_equal(in, out, 64 * KIB);
	assert_int_equal(do_it(r, LUN_READ, 128 * KIB, in, 4096), 0);
	assert_memory_equal(in + 512, out, 1536);
	assert_int_equal(in[511], 0);
	assert_int_equal(in[2048], 0);
	assert_int_equal(do_it(r, LUN_READ, SIZE - 512, in, 512), 0);
	assert_memory_equal(in, out, 512);
}

static void a_file_keeps_what_is_written(void **state)
{
	struct room *r = *state;

	on_file(r, 0);
	assert_int_equal(lun_facts(r->l)->size, SIZE);
	assert_true(lun_facts(r->l)->discards);
	write_and_read(r);
	assert_true(file_is(r, 0, r->b[0]->bytes, 64 * KIB));
}

static void a_partition_keeps_what_is_written(void **state)
{
	struct room *r = *state;

	stag_store_close(make_store(r));
	open_it(r, r->part, 0);
	assert_int_equal(lun_facts(r->l)->size, SIZE);
	assert_false(lun_facts(r->l)->discards);
	write_and_read(r);
}

static void a_list_of_buffers_is_one_operation(void **state)
{
	struct room *r = *state;
	struct deed d = {0};

	on_file(r, 0);
	for (int i = 0; i < 4; i++) {
		dice_fill(r->b[i]->bytes, UNITS_BUFFER);
		d.io.iov[i] = (struct iovec){r->b[i]->bytes, UNITS_BUFFER};
	}
	d.io.n_iov = 4;
	start_op(r, &d, LUN_WRITE, 4096, 4 * UNITS_BUFFER);
	assert_int_equal(wait_op(r, &d), 0);
	for (uint64_t i = 0; i < 4; i++)
		assert_true(file_is(r, 4096 + i * UNITS_BUFFER, r->b[i]->bytes, UNITS_BUFFER));
}

static void a_flush_ends_in_every_mode(void **state)
{
	struct room *r = *state;

	on_file(r, STAG_BLOCK_WRITE_BACK);
	assert_true(lun_facts(r->l)->write_back);
	assert_int_equal(do_it(r, LUN_WRITE, 0, r->b[0]->bytes, 4096), 0);
	assert_int_equal(do_it(r, LUN_FLUSH, 0, NULL, 0), 0);
	on_file(r, 0);
	assert_int_equal(do_it(r, LUN_FLUSH, 0, NULL, 0), 0);
}

static void a_read_only_unit_refuses_writes(void **state)
{
	struct room *r = *state;

	on_file(r, STAG_BLOCK_READ_ONLY);
	assert_true(lun_facts(r->l)->read_only);
	assert_int_equal(do_it(r, LUN_WRITE, 0, r->b[0]->bytes, 4096), -EROFS);
	assert_int_equal(do_it(r, LUN_DISCARD, 0, NULL, 4096), -EROFS);
	assert_int_equal(do_it(r, LUN_READ, 0, r->b[0]->bytes, 4096), 0);
}

/* ---- comparing ---- */

static void compare_write_reports_where_data_differs(void **state)
{
	struct room *r = *state;
	uint8_t *p = r->b[0]->bytes;
	struct deed d = with(p, 16 * KIB);

	on_file(r, 0);
	memset(p, 0, 8 * KIB);
	memset(p + 8 * KIB, 0x61, 8 * KIB);
	assert_int_equal(do_it(r, LUN_COMPARE_WRITE, 4096, p, 8 * KIB), 0);
	assert_true(file_is(r, 4096, p + 8 * KIB, 8 * KIB));
	memset(p, 0x61, 8 * KIB);
	memset(p + 8 * KIB, 0x62, 8 * KIB);
	p[5001] = 0;
	start_op(r, &d, LUN_COMPARE_WRITE, 4096, 8 * KIB);
	assert_int_equal(wait_op(r, &d), -EILSEQ);
	assert_int_equal(d.io.where, 5001);
	p[5001] = 0x61;
	assert_true(file_is(r, 4096, p, 8 * KIB));
}

/* Many operations compare with zero and write their own number: one wins, and no plain write comes in between. */
static void one_of_many_compare_writes_wins(void **state)
{
	struct room *r = *state;
	struct deed d[MANY];
	uint8_t *there = r->b[9]->bytes;
	int winners = 0, winner = -1;

	on_file(r, 0);
	for (int i = 0; i < MANY; i++) {
		uint8_t *p = r->b[0]->bytes + 1024 * i;

		memset(p, 0, 512);
		memset(p + 512, i + 1, 512);
		d[i] = with(p, 1024);
		start_op(r, &d[i], LUN_COMPARE_WRITE, 512, 512);
	}
	for (int i = 0; i < MANY; i++) {
		int rc = wait_op(r, &d[i]);

		assert_true(rc == 0 || rc == -EILSEQ);
		if (rc == 0) {
			winners++;
			winner = i;
		}
	}
	assert_int_equal(winners, 1);
	assert_int_equal(do_it(r, LUN_READ, 0, there, 4096), 0);
	assert_int_equal(there[600], winner + 1);
}

/* Writes that were started before a COMPARE_WRITE end before it; those started after it, after it. */
static void writes_wait_for_compare_writes(void **state)
{
	struct room *r = *state;
	uint8_t *p = r->b[0]->bytes;
	struct deed before = with(p, 4096), compare = with(p, 8192), behind = with(p + 8192, 4096);

	on_file(r, 0);
	memset(p, 1, 4096);
	memset(p + 4096, 2, 4096);
	memset(p + 8192, 3, 4096);
	for (unsigned long i = 0; i < lessened(on_disk ? 10 : 100); i++) {
		start_op(r, &before, LUN_WRITE, 0, 4096);
		start_op(r, &compare, LUN_COMPARE_WRITE, 0, 4096);
		start_op(r, &behind, LUN_WRITE, 0, 4096);
		assert_int_equal(wait_op(r, &behind), 0);
		assert_int_equal(wait_op(r, &compare), 0);
		assert_int_equal(wait_op(r, &before), 0);
		assert_true(file_is(r, 0, p + 8192, 4096));
	}
}

static void verify_compares_and_or_sets_bits(void **state)
{
	struct room *r = *state;
	uint8_t *p = r->b[0]->bytes;
	struct deed d = with(p, UNITS_BUFFER);

	on_file(r, 0);
	dice_fill(p, UNITS_BUFFER);
	d.io.verify = true;
	start_op(r, &d, LUN_WRITE, 512, UNITS_BUFFER);
	assert_int_equal(wait_op(r, &d), 0);
	assert_int_equal(do_it(r, LUN_VERIFY, 512, p, UNITS_BUFFER), 0);
	assert_int_equal(do_it(r, LUN_VERIFY, 0, NULL, SIZE), 0);
	p[UNITS_BUFFER - 1] ^= 1;
	start_op(r, &d, LUN_VERIFY, 512, UNITS_BUFFER);
	assert_int_equal(wait_op(r, &d), -EILSEQ);
	assert_int_equal(d.io.where, UNITS_BUFFER - 1);
	memset(p, 0x0f, 4096);
	assert_int_equal(do_it(r, LUN_WRITE, 0, p, 4096), 0);
	memset(p, 0xf1, 4096);
	assert_int_equal(do_it(r, LUN_OR, 0, p, 4096), 0);
	memset(p, 0xff, 4096);
	assert_true(file_is(r, 0, p, 4096));
}

/* ---- discarding and zeroing ---------- */

static uint64_t space_of(struct room *r)
{
	struct stat st;

	assert_int_equal(stat(r->file, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void fill_all(struct room *r, uint8_t byte)
{
	memset(r->b[0]->bytes, byte, UNITS_BUFFER);
	for (uint64_t at = 0; at < SIZE; at += UNITS_BUFFER)
		assert_int_equal(do_it(r, LUN_WRITE, at, r->b[0]->bytes, UNITS_BUFFER), 0);
}

static void a_discard_gives_space_back_and_reads_as_zeroes(void **state)
{
	struct room *r = *state;
	uint64_t before;

	on_file(r, STAG_BLOCK_WRITE_BACK);
	fill_all(r, 0x55);
	before = space_of(r);
	assert_int_equal(do_it(r, LUN_DISCARD, MIB - 512, NULL, 2 * MIB + 1024), 0);
	assert_true(is_zero(r, MIB - 512, 2 * MIB + 1024));
	assert_true(file_is(r, MIB - 1024, r->b[0]->bytes, 512));
	assert_true(file_is(r, 3 * MIB + 512, r->b[0]->bytes, 512));
	assert_true(space_of(r) <= before - 2 * MIB);
	assert_int_equal(do_it(r, LUN_DISCARD, 512, NULL, 1024), 0);
	assert_true(is_zero(r, 512, 1024));
	assert_true(file_is(r, 1536, r->b[0]->bytes, 4096));
}

static void extents_match_the_file(void **state)
{
	struct room *r = *state;
	struct deed d = {0};

	on_file(r, 0);
	assert_int_equal(do_it(r, LUN_WRITE, MIB, r->b[0]->bytes, 64 * KIB), 0);
	start_op(r, &d, LUN_EXTENT, 0, SIZE);
	assert_int_equal(wait_op(r, &d), 0);
	assert_true(!d.io.mapped && d.io.where == MIB);
	start_op(r, &d, LUN_EXTENT, MIB + 512, SIZE - MIB - 512);
	assert_int_equal(wait_op(r, &d), 0);
	assert_true(d.io.mapped && d.io.where >= MIB + 64 * KIB);
	start_op(r, &d, LUN_EXTENT, 4 * MIB, SIZE - 4 * MIB);
	assert_int_equal(wait_op(r, &d), 0);
	assert_true(!d.io.mapped && d.io.where == SIZE);
}

static void zeroes_and_partitions_discard_by_writing(void **state)
{
	struct room *r = *state;
	uint8_t *p = r->b[1]->bytes;

	stag_store_close(make_store(r));
	open_it(r, r->part, STAG_BLOCK_WRITE_BACK);
	fill_all(r, 0x77);
	assert_int_equal(do_it(r, LUN_ZERO, 512, NULL, 7 * MIB), 0);
	assert_int_equal(do_it(r, LUN_READ, 7 * MIB, p, 4096), 0);
	assert_int_equal(p[511], 0);
	assert_int_equal(p[512], 0x77);
	assert_int_equal(do_it(r, LUN_DISCARD, SIZE - 1024, NULL, 512), 0);
	assert_int_equal(do_it(r, LUN_READ, SIZE - 4096, p, 4096), 0);
	assert_int_equal(p[4096 - 1024], 0);
	assert_int_equal(p[4096 - 1], 0x77);
}

/* ---- bad backings -------------- */

static void bad_backings_are_refused_with_a_text(void **state)
{
	struct room *r = *state;
	struct stag_block_lun again;
	struct lun *second;

	assert_int_equal(try_open(r, "/nowhere/at-all", 0), -ENOENT);
	assert_int_equal(try_open(r, "/dev/null", 0), -EINVAL);
	make_file(r, 100);
	assert_int_equal(try_open(r, r->file, 0), -EINVAL);
	stag_store_close(make_store(r));
	assert_int_equal(try_open(r, r->store, 0), -EINVAL);
	assert_non_null(strstr(stag_block_error(), "partition"));
	snprintf(r->part, sizeof(r->part), "%s:other", r->store);
	assert_int_equal(try_open(r, r->part, 0), -ENOENT);
	on_file(r, 0);
	again = (struct stag_block_lun){.where = r->file, .flags = STAG_BLOCK_READ_ONLY};
	assert_int_equal(lun_open(r->u, &again, &second), -EBUSY);
	again.block = 1024;
	assert_int_equal(lun_open(r->u, &again, &second), -EINVAL);
}

/* ---- memory ---- */

static uint8_t *borrow(struct room *r, struct deed *d, enum lun_op op, uint64_t offset,
		       uint64_t length)
{
	uint32_t lkey;

	*d = (struct deed){.io = {.op = op, .offset = offset, .length = length}};
	return lun_borrow(r->l, &d->io, &lkey);
}

static void must_be_memory(void)
{
	if (on_disk)
		skip();
}

/* Holes are not filled by trying to borrow them. */
static void existing_pages_are_lent_in_place(void **state)
{
	struct room *r = *state;
	struct deed d;
	uint8_t *at;

	must_be_memory();
	on_file(r, 0);
	assert_null(borrow(r, &d, LUN_READ, MIB, 4096));
	assert_null(borrow(r, &d, LUN_WRITE, MIB, 4096));
	assert_int_equal(space_of(r), 0);
	dice_fill(r->b[0]->bytes, 64 * KIB);
	assert_int_equal(do_it(r, LUN_WRITE, MIB, r->b[0]->bytes, 64 * KIB), 0);
	at = borrow(r, &d, LUN_READ, MIB + 512, 4096);
	assert_non_null(at);
	assert_memory_equal(at, r->b[0]->bytes + 512, 4096);
	assert_int_equal(lun_return(&d.io), 0);
	at = borrow(r, &d, LUN_WRITE, MIB + 512, 1024);
	assert_non_null(at);
	memset(at, 0x77, 1024);
	assert_int_equal(lun_return(&d.io), 0);
	assert_true(file_is(r, MIB + 512, at, 1024));
	assert_null(borrow(r, &d, LUN_READ, MIB, 128 * KIB));
	assert_null(borrow(r, &d, LUN_READ, SIZE - 512, 1024));
	assert_int_equal(do_it(r, LUN_DISCARD, MIB, NULL, 64 * KIB), 0);
	assert_null(borrow(r, &d, LUN_READ, MIB, 4096));
	assert_int_equal(space_of(r), 0);
}

static void exclusive_operations_wait_for_borrowed_memory(void **state)
{
	struct room *r = *state;
	struct deed loan, alone = {0}, other;

	must_be_memory();
	on_file(r, 0);
	fill_all(r, 1);
	assert_non_null(borrow(r, &loan, LUN_WRITE, 0, 4096));
	start_op(r, &alone, LUN_DISCARD, 0, 8192);
	units_poll(r->u);
	assert_false(alone.done);
	assert_null(borrow(r, &other, LUN_WRITE, 4096,
			   4096)); /* it does not overtake the exclusive operation */
	assert_non_null(borrow(r, &other, LUN_READ, 4096, 4096));
	assert_int_equal(lun_return(&other.io), 0);
	assert_int_equal(lun_return(&loan.io), 0);
	assert_int_equal(wait_op(r, &alone), 0);
}

/* The file is truncated while its pages are borrowed. */
static void truncating_borrowed_memory_fails_writes_only(void **state)
{
	struct room *r = *state;
	struct deed d, read;
	uint8_t *at;

	must_be_memory();
	on_file(r, 0);
	fill_all(r, 1);
	assert_non_null(borrow(r, &read, LUN_READ, 6 * MIB, 4096));
	at = borrow(r, &d, LUN_WRITE, 5 * MIB, 8192);
	assert_non_null(at);
	assert_int_equal(truncate(r->file, (off_t)(4 * MIB)), 0);
	memset(at, 2, 8192);
	assert_int_equal(lun_return(&d.io), -EIO);
	lun_check_mapping(&read.io);
	assert_int_equal(lun_return(&read.io), 0);
	assert_null(borrow(r, &d, LUN_READ, 0, 4096));
	assert_int_equal(do_it(r, LUN_READ, 5 * MIB, r->b[0]->bytes, 4096), -EIO);
	assert_int_equal(do_it(r, LUN_READ, 0, r->b[0]->bytes, 4096), 0);
	assert_int_equal(lun_refresh_size(r->l), 1);
	at = borrow(r, &d, LUN_READ, 0, 4096);
	assert_non_null(at);
	assert_int_equal(at[4095], 1);
	assert_int_equal(lun_return(&d.io), 0);
}

/* A system call that meets a missing page fails without a signal: lun_check_mapping() finds out. */
static void a_failed_move_checks_the_mapping(void **state)
{
	struct room *r = *state;
	struct deed d;
	uint8_t *at;
	int fd[2];

	must_be_memory();
	on_file(r, 0);
	fill_all(r, 1);
	at = borrow(r, &d, LUN_READ, 6 * MIB, 4096);
	assert_non_null(at);
	assert_int_equal(truncate(r->file, (off_t)(4 * MIB)), 0);
	assert_int_equal(pipe(fd), 0);
	assert_true(write(fd[1], at, 4096) < 0 && errno == EFAULT);
	close(fd[0]);
	close(fd[1]);
	lun_check_mapping(&d.io);
	assert_int_equal(lun_return(&d.io), 0);
	assert_null(borrow(r, &d, LUN_READ, 6 * MIB, 4096));
	assert_int_equal(do_it(r, LUN_READ, 6 * MIB, r->b[0]->bytes, 4096), -EIO);
}

/* ---- changes of the backing ---- */

static void a_truncated_file_is_an_error_and_then_smaller(void **state)
{
	struct room *r = *state;
	struct deed d;

	on_file(r, 0);
	assert_int_equal(lun_refresh_size(r->l), 0);
	assert_int_equal(truncate(r->file, (off_t)(4 * MIB)), 0);
	assert_int_equal(do_it(r, LUN_READ, 6 * MIB, r->b[0]->bytes, 4096), -EIO);
	assert_int_equal(do_it(r, LUN_READ, 0, r->b[0]->bytes, 4096), 0);
	d = with(r->b[0]->bytes, UNITS_BUFFER);
	start_op(r, &d, LUN_READ, 4 * MIB - 5 * 4096 - 512, UNITS_BUFFER);
	assert_int_equal(wait_op(r, &d), -EIO);
	assert_int_equal(d.io.where, 5 * 4096 + 512);
	assert_int_equal(lun_refresh_size(r->l), 1);
	assert_int_equal(lun_facts(r->l)->size, 4 * MIB);
}

/* Uses a tmpfs of one MiB, which only root can mount. */
static void a_full_disk_is_reported(void **state)
{
	struct room *r = *state;
	uint64_t at = 0;
	int rc = 0;

	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("tmpfs", r->folder, "tmpfs", 0, "size=1m") != 0)
		skip();
	on_file(r, 0);
	memset(r->b[0]->bytes, 1, UNITS_BUFFER);
	for (; at < SIZE && rc == 0; at += UNITS_BUFFER)
		rc = do_it(r, LUN_WRITE, at, r->b[0]->bytes, UNITS_BUFFER);
	assert_int_equal(rc, -ENOSPC);
	assert_int_equal(do_it(r, LUN_READ, 0, r->b[0]->bytes, 4096), 0);
	assert_int_equal(do_it(r, LUN_DISCARD, 0, NULL, MIB), 0);
	assert_int_equal(do_it(r, LUN_WRITE, 4 * MIB, r->b[0]->bytes, 4096), 0);
	lun_close(r->l);
	r->l = NULL;
	umount2(r->folder, MNT_DETACH);
}

static void a_file_may_grow(void **state)
{
	struct room *r = *state;

	on_file(r, 0);
	assert_int_equal(truncate(r->file, (off_t)(12 * MIB)), 0);
	assert_int_equal(lun_refresh_size(r->l), 1);
	assert_int_equal(lun_facts(r->l)->size, 12 * MIB);
	dice_fill(r->b[0]->bytes, 4096);
	assert_int_equal(do_it(r, LUN_WRITE, 12 * MIB - 4096, r->b[0]->bytes, 4096), 0);
	assert_true(file_is(r, 12 * MIB - 4096, r->b[0]->bytes, 4096));
}

static void set_access(struct stag_store *store, uint8_t access)
{
	struct stag_store_partition p;

	assert_int_equal(stag_store_find(store, "part", &p), 0);
	p.num_rights = 1;
	p.rights[0] = (struct stag_store_right){.who = STAG_STORE_LOCAL, .access = access};
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_RIGHTS), 0);
}

/* Repeats an operation until it has this result: a change of the store takes effect within a second. */
static void until(struct room *r, enum lun_op op, int result)
{
	await((usleep(10000), do_it(r, op, 0, r->b[0]->bytes, 4096) == result));
}

static void rights_of_a_partition_may_change(void **state)
{
	struct room *r = *state;
	struct stag_store *store = make_store(r);

	open_it(r, r->part, 0);
	assert_int_equal(do_it(r, LUN_WRITE, 0, r->b[0]->bytes, 4096), 0);
	set_access(store, STAG_STORE_READ);
	until(r, LUN_WRITE, -EROFS);
	assert_int_equal(do_it(r, LUN_READ, 0, r->b[0]->bytes, 4096), 0);
	assert_int_equal(do_it(r, LUN_WRITE, 0, r->b[0]->bytes, 4096), -EROFS);
	set_access(store, STAG_STORE_WRITE);
	until(r, LUN_WRITE, 0);
	set_access(store, STAG_STORE_NONE);
	until(r, LUN_READ, -ENODEV);
	set_access(store, STAG_STORE_WRITE);
	until(r, LUN_WRITE, 0);
	set_access(store, STAG_STORE_READ);
	open_it(r, r->part, 0);
	assert_true(lun_facts(r->l)->read_only);
	stag_store_close(store);
}

static void a_partition_may_grow(void **state)
{
	struct room *r = *state;
	struct stag_store *store = make_store(r);
	struct stag_store_partition p;

	open_it(r, r->part, 0);
	assert_int_equal(stag_store_find(store, "part", &p), 0);
	p.size = 12 * MIB;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), 0);
	assert_int_equal(lun_refresh_size(r->l), 1);
	assert_int_equal(lun_facts(r->l)->size, 12 * MIB);
	assert_int_equal(do_it(r, LUN_WRITE, 12 * MIB - 4096, r->b[0]->bytes, 4096), 0);
	stag_store_close(store);
}

/* Operations in flight succeed, or fail because the partition is gone. */
static void a_partition_may_be_removed(void **state)
{
	struct room *r = *state;
	struct stag_store *store = make_store(r);
	uint64_t until = deadline();
	struct deed d[MANY];
	bool gone = false;

	open_it(r, r->part, 0);
	assert_int_equal(stag_store_remove(store, "part", STAG_STORE_FORCE), 0);
	while (!gone) {
		assert_false(too_late(until));
		for (int i = 0; i < MANY; i++) {
			d[i] = with(r->b[0]->bytes, 4096);
			start_op(r, &d[i], i % 2 ? LUN_READ : LUN_WRITE, (uint64_t)i * 4096, 4096);
		}
		for (int i = 0; i < MANY; i++) {
			int rc = wait_op(r, &d[i]);

			assert_true(rc == 0 || rc == -ENODEV);
			gone |= rc == -ENODEV;
		}
	}
	assert_int_equal(lun_refresh_size(r->l), -ENODEV);
	assert_int_equal(do_it(r, LUN_READ, 0, r->b[0]->bytes, 4096), -ENODEV);
	stag_store_close(store);
}

static void close_if_gone(struct lun_io *io, int result)
{
	on_done(io, result);
	if (result == -ENODEV)
		lun_close(io->lun);
}

/* Each operation is held until the one before it has ended. */
static void a_removed_unit_may_be_closed_by_its_last_operation(void **state)
{
	struct room *r = *state;
	struct stag_store *store = make_store(r);
	struct deed d[MANY], *last = &d[MANY - 1];
	uint64_t until = deadline();

	open_it(r, r->part, 0);
	assert_int_equal(stag_store_remove(store, "part", STAG_STORE_FORCE), 0);
	do {
		assert_false(too_late(until));
		for (int i = 0; i < MANY; i++) {
			d[i] = with(r->b[0]->bytes, 4096);
			d[i].io.op = LUN_OR;
			d[i].io.length = 4096;
			d[i].io.done = &d[i] == last ? close_if_gone : on_done;
			lun_start(r->l, &d[i].io);
		}
		wait_op(r, last);
	} while (last->result != -ENODEV);
	r->l = NULL;
	stag_store_close(store);
}

/* ---- memory ---- */

static void buffers_are_limited(void **state)
{
	struct room *r = *state;
	struct units_buffer *b, *last = NULL;

	while ((b = units_buffer(r->u))) {
		assert_int_equal((uintptr_t)b->bytes % 4096, 0);
		if (r->n_b < MANY)
			r->b[r->n_b++] = b;
		last = b;
	}
	assert_int_equal(r->n_b, STAGING / UNITS_BUFFER);
	assert_int_equal(r->n_b, units_num_buffers(r->u));
	r->n_b--;
	units_put_buffer(r->u, last);
	assert_ptr_equal(units_buffer(r->u), last);
	r->n_b++;
}

/* ---- random ---- */

struct model {
	uint8_t *bytes;
	struct deed d[MANY];
	uint64_t at[MANY], len[MANY];
	int n;
};

static bool is_free(const struct model *m, uint64_t at, uint64_t len)
{
	for (int i = 0; i < m->n; i++)
		if (at < m->at[i] + m->len[i] && m->at[i] < at + len)
			return false;
	return true;
}

/* Applies an operation to the model. p: the operation's memory. */
static void update_model(struct model *m, enum lun_op op, uint64_t at, uint64_t len, uint8_t *p)
{
	uint8_t *there = m->bytes + at;

	switch (op) {
	case LUN_WRITE:
		memcpy(there, p, len);
		break;
	case LUN_OR:
		for (uint64_t i = 0; i < len; i++)
			there[i] |= p[i];
		break;
	case LUN_COMPARE_WRITE:
		memcpy(p, there, len);
		memcpy(there, p + len, len);
		break;
	case LUN_VERIFY:
		memcpy(p, there, len);
		break;
	case LUN_ZERO:
	case LUN_DISCARD:
		memset(there, 0, len);
		break;
	default:
		break;
	}
}

static void begin_any(struct room *r, struct model *m)
{
	static const enum lun_op ops[] = {LUN_READ,   LUN_WRITE, LUN_WRITE,	    LUN_OR,
					  LUN_VERIFY, LUN_ZERO,	 LUN_COMPARE_WRITE, LUN_FLUSH,
					  LUN_DISCARD};
	enum lun_op op = ops[dice(sizeof(ops) / sizeof(ops[0]))];
	uint64_t len = dice_size(20) * 512, at = dice((SIZE - len) / 512) * 512;
	uint8_t *p = r->b[m->n % 10]->bytes + (uint64_t)(m->n / 10) * 64 * KIB;
	bool has_memory = op != LUN_ZERO && op != LUN_DISCARD && op != LUN_FLUSH;

	if (op == LUN_FLUSH)
		at = len = 0;
	if (!is_free(m, at, len))
		return;
	dice_fill(p, 2 * len);
	update_model(m, op, at, len, p);
	m->d[m->n] = with(p, op == LUN_COMPARE_WRITE ? 2 * len : len);
	if (!has_memory)
		m->d[m->n].io.n_iov = 0;
	m->d[m->n].io.fua = one_in(on_disk ? 20 : 2);
	m->at[m->n] = at;
	m->len[m->n] = len;
	start_op(r, &m->d[m->n], op, at, len);
	m->n++;
}

static void end_all(struct room *r, struct model *m)
{
	for (int i = 0; i < m->n; i++) {
		assert_int_equal(wait_op(r, &m->d[i]), 0);
		if (m->d[i].io.op == LUN_READ)
			assert_memory_equal(m->d[i].io.iov[0].iov_base, m->bytes + m->at[i],
					    m->len[i]);
	}
	m->n = 0;
}

static void act_at_random(struct room *r)
{
	struct model *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	m->bytes = calloc(1, SIZE);
	assert_non_null(m->bytes);
	for (unsigned long i = 0; i < scaled(on_disk ? 20 : 50); i++) {
		while (m->n < MANY && !one_in(40))
			begin_any(r, m);
		end_all(r, m);
	}
	for (uint64_t at = 0; at < SIZE; at += UNITS_BUFFER) {
		assert_int_equal(do_it(r, LUN_READ, at, r->b[0]->bytes, UNITS_BUFFER), 0);
		assert_memory_equal(r->b[0]->bytes, m->bytes + at, UNITS_BUFFER);
	}
	free(m->bytes);
	free(m);
}

static void random_operations_on_a_file_match_a_model(void **state)
{
	struct room *r = *state;

	on_file(r, STAG_BLOCK_WRITE_BACK);
	act_at_random(r);
}

static void random_operations_on_a_partition_match_a_model(void **state)
{
	struct room *r = *state;

	stag_store_close(make_store(r));
	open_it(r, r->part, STAG_BLOCK_WRITE_BACK);
	act_at_random(r);
}

static bool has_adapter(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	bool has = list && list[0] && stagdv_is_supported(list[0]);

	if (list)
		ibv_free_device_list(list);
	return has;
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, open_room, close_room)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		STORY(a_file_keeps_what_is_written),
		STORY(a_partition_keeps_what_is_written),
		STORY(a_list_of_buffers_is_one_operation),
		STORY(a_flush_ends_in_every_mode),
		STORY(a_read_only_unit_refuses_writes),
		STORY(compare_write_reports_where_data_differs),
		STORY(one_of_many_compare_writes_wins),
		STORY(writes_wait_for_compare_writes),
		STORY(verify_compares_and_or_sets_bits),
		STORY(a_discard_gives_space_back_and_reads_as_zeroes),
		STORY(extents_match_the_file),
		STORY(zeroes_and_partitions_discard_by_writing),
		STORY(bad_backings_are_refused_with_a_text),
		STORY(existing_pages_are_lent_in_place),
		STORY(exclusive_operations_wait_for_borrowed_memory),
		STORY(truncating_borrowed_memory_fails_writes_only),
		STORY(a_failed_move_checks_the_mapping),
		STORY(a_truncated_file_is_an_error_and_then_smaller),
		STORY(a_full_disk_is_reported),
		STORY(a_file_may_grow),
		STORY(rights_of_a_partition_may_change),
		STORY(a_partition_may_grow),
		STORY(a_partition_may_be_removed),
		STORY(a_removed_unit_may_be_closed_by_its_last_operation),
		STORY(buffers_are_limited),
		STORY(random_operations_on_a_file_match_a_model),
		STORY(random_operations_on_a_partition_match_a_model),
	};

	if (!has_adapter())
		return 77;
	on_disk = argc > 1 && strcmp(argv[1], "disk") == 0;
	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
