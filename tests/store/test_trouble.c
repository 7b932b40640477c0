// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_trouble.c - faults of a store in use: its disk is full or broken, its file is truncated,
 * replaced, removed or overwritten.
 *
 * In each case the user concerned gets an error, the log says what failed and why, all other users
 * continue, and no bytes are read that were never written. The tests run near and far.
 */
#include "stage.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/clock.h"
#include "dice.h"
#include "media/medium.h"
#include "stag/stagdv.h"

#define ROOM	    (64 * KIB)
#define PATIENCE_NS (30 * NS_PER_S)

/* File systems of our own; not every user may mount them. */
#define SMALL_MEMORY "/mnt/memory"
#define SMALL_DISK   "/mnt/disk/there"

static bool far;
static off_t since; /* offset in the log */

/* ---- fault injection at the medium's edge ---------------------------------------------------- */

#define MOST_EVENTS 64

struct edge {
	struct media_edge edge, *real;
	struct media *m;
	atomic_uint n_events;
	struct media_event events[MOST_EVENTS];
};

/* The error that reads and writes of these bytes, or flushes, return. */
static struct {
	_Atomic uint64_t from, to;
	atomic_int error, sync_error;
} bad;

static int injected_error(const struct media_io *io)
{
	if (io->kind == MEDIA_IO_SYNC)
		return atomic_load(&bad.sync_error);
	if (io->kind > MEDIA_IO_WRITE || io->offset >= bad.to ||
	    io->offset + io->length <= bad.from)
		return 0;
	return atomic_load(&bad.error);
}

static void queue_io(struct media_edge *e, const struct media_io *io)
{
	struct edge *edge = container_of(e, struct edge, edge);
	unsigned int n = atomic_load(&edge->n_events);
	int error = injected_error(io);

	if (!error) {
		edge->real->queue(edge->real, io);
		return;
	}
	if (n == MOST_EVENTS)
		abort();
	edge->events[n] = (struct media_event){.cookie = io->cookie, .result = error};
	atomic_store(&edge->n_events, n + 1);
	poll_wake(edge->m);
}

static unsigned int reap(struct media_edge *e, struct media_event *events, unsigned int most)
{
	struct edge *edge = container_of(e, struct edge, edge);
	unsigned int n = atomic_load(&edge->n_events), got = 0;

	while (got < most && n > 0)
		events[got++] = edge->events[--n];
	atomic_store(&edge->n_events, n);
	return got + edge->real->reap(edge->real, events + got, most - got);
}

static bool ready(struct media_edge *e)
{
	struct edge *edge = container_of(e, struct edge, edge);

	return atomic_load(&edge->n_events) > 0 || edge->real->ready(edge->real);
}

static bool queued(struct media_edge *e)
{
	struct edge *edge = container_of(e, struct edge, edge);

	return edge->real->queued(edge->real);
}

static int submit(struct media_edge *e, bool wait)
{
	struct edge *edge = container_of(e, struct edge, edge);

	return edge->real->submit(edge->real, wait && atomic_load(&edge->n_events) == 0);
}

int __real_media_open(struct media **out, const struct media_attr *attr);
int __wrap_media_open(struct media **out, const struct media_attr *attr);

/* Wraps each medium; memory is flushed, too, here. */
int __wrap_media_open(struct media **out, const struct media_attr *attr)
{
	static struct edge edges[64];
	static atomic_uint next;
	struct edge *e = &edges[atomic_fetch_add(&next, 1) % 64];
	int err = __real_media_open(out, attr);

	if (err)
		return err;
	*e = (struct edge){.edge = {.queue = queue_io,
				    .reap = reap,
				    .ready = ready,
				    .queued = queued,
				    .submit = submit},
			   .real = media_edge(*out),
			   .m = *out};
	(*out)->flags &= ~(unsigned int)MEDIA_VOLATILE;
	media_set_edge(*out, &e->edge);
	return 0;
}

static void break_bytes(const struct stag_store_partition *p, int error)
{
	bad.from = p ? p->offset : 0;
	bad.to = p ? p->offset + p->size : 0;
	bad.error = error;
}

/* ---- a store with two partitions, and their contents ----------------------------------------- */

struct shop {
	struct stage s;
	struct user goods, rest;
	struct stag_store_partition goods_at, rest_at;
	uint8_t before[ROOM], bytes[4096];
};

static void open_shop_at(struct shop *p, const char *path)
{
	*p = (struct shop){0};
	snprintf(p->s.path, sizeof(p->s.path), "%s", path);
	make_store(path, 8 * MIB, 4096);
	p->s.store = open_store(path);
	if (far)
		start_server(&p->s);
	p->goods_at = add(p->s.store, "goods", ROOM);
	p->rest_at = add(p->s.store, "rest", ROOM);
	allow(&p->s, "goods", STAG_STORE_WRITE);
	allow(&p->s, "rest", STAG_STORE_WRITE);
	dice_fill(p->before, sizeof(p->before));
	dice_fill(p->bytes, sizeof(p->bytes));
	put_bytes(path, p->goods_at.offset, p->before, ROOM);
	put_bytes(path, p->rest_at.offset, p->before, ROOM);
	enter(&p->goods, &p->s, "goods");
	enter(&p->rest, &p->s, "rest");
	is_logged(&since, "", "");
}

static void open_shop(struct shop *p)
{
	open_shop_at(p, room_path("store"));
}

static void close_shop(struct shop *p)
{
	leave(&p->goods);
	leave(&p->rest);
	stage_close(&p->s);
}

static void enter_again(struct shop *p, struct user *u, const char *partition)
{
	leave(u);
	enter(u, &p->s, partition);
}

static void expect_works(struct shop *p, struct user *u)
{
	uint64_t at = dice(ROOM - sizeof(p->bytes));

	dice_fill(p->bytes, sizeof(p->bytes));
	assert_int_equal(do_write(u, at, p->bytes, sizeof(p->bytes)), IBV_WC_SUCCESS);
	assert_true(reads_as(u, at, p->bytes, sizeof(p->bytes)));
	assert_int_equal(do_add(u, 0, 1), IBV_WC_SUCCESS);
}

/* Checks the status. A peer is disconnected; in this process the request itself has the error. */
static void expect_fails(enum ibv_wc_status status, enum ibv_wc_status near)
{
	assert_int_not_equal(status, IBV_WC_SUCCESS);
	if (!far)
		assert_int_equal(status, near);
}

static void await_log(const char *word, const char *other)
{
	uint64_t until = clock_ns() + PATIENCE_NS;

	while (!is_logged(&since, word, other)) {
		if (clock_ns() > until)
			fail_msg("the log has no line with \"%s\" and \"%s\"", word, other);
		usleep(1000);
	}
}

static void await_failure(struct user *u, enum ibv_wc_status near)
{
	uint64_t until = clock_ns() + PATIENCE_NS;
	enum ibv_wc_status status;

	while ((status = do_read(u, 0, 8)) == IBV_WC_SUCCESS) {
		if (clock_ns() > until)
			fail_msg("operations never failed");
		usleep(1000);
	}
	expect_fails(status, near);
}

/* ---- the disk ------------------------------------------------------------------------------ */

static void a_disk_error_is_reported_with_its_place(void **state)
{
	static const int errors[] = {-EIO, -ENOSPC, -EDQUOT};
	struct shop p;

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		open_shop(&p);
		break_bytes(&p.goods_at, errors[i]);
		expect_fails(do_write(&p.goods, 100, p.bytes, 3000), IBV_WC_REM_OP_ERR);
		await_log(p.s.path, strerror(-errors[i]));
		expect_works(&p, &p.rest);
		enter_again(&p, &p.goods, "goods");
		expect_fails(do_read(&p.goods, 0, 8), IBV_WC_REM_OP_ERR);
		if (!far) /* whose write was followed by a read, to learn the outcome */
			await_log(p.s.path, "cannot read");
		break_bytes(NULL, 0);
		enter_again(&p, &p.goods, "goods");
		assert_true(reads_as(&p.goods, 0, p.before, ROOM));
		expect_works(&p, &p.goods);
		assert_int_equal(stag_store_check(p.s.path, 0, NULL), 0);
		close_shop(&p);
	}
}

static enum ibv_wc_status do_barrier(struct user *u)
{
	struct stagdv_barrier b = {.rkey = u->e->rkey, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_wc wc;

	if (stagdv_wr_barrier(u->e->qp, &b) != 0)
		return IBV_WC_WR_FLUSH_ERR;
	while (ibv_poll_cq(u->e->qp->send_cq, 1, &wc) == 0)
		usleep(20);
	return wc.status;
}

/*
 * After a failed flush, which of the writes are on the disk is unknown. A user that opens the
 * partition again can rely on its later writes.
 */
static void after_a_failed_flush_barriers_fail(void **state)
{
	struct shop p;

	open_shop(&p);
	assert_int_equal(do_barrier(&p.goods), IBV_WC_SUCCESS);
	expect_works(&p, &p.goods);
	bad.sync_error = -EIO;
	expect_fails(do_barrier(&p.goods), IBV_WC_REM_OP_ERR);
	await_log(p.s.path, "cannot flush");
	bad.sync_error = 0;
	expect_works(&p, &p.rest);
	expect_fails(do_barrier(&p.rest), IBV_WC_REM_OP_ERR);
	leave(&p.goods);
	leave(&p.rest);
	if (far) {
		stag_store_server_stop(p.s.server);
		start_server(&p.s);
	}
	enter(&p.goods, &p.s, "goods");
	expect_works(&p, &p.goods);
	assert_int_equal(do_barrier(&p.goods), IBV_WC_SUCCESS);
	close_shop(&p);
}

/*
 * Waits until the written partition is not in use: a server releases it when it is notified that
 * its peer disconnected. Then removes it.
 */
static void await_removal(struct stag_store *store, const char *partition)
{
	uint64_t until = clock_ns() + PATIENCE_NS;

	while (stag_store_remove(store, partition, 0) == EBUSY) {
		if (clock_ns() > until)
			fail_msg("%s", stag_store_error());
		usleep(1000);
	}
	assert_int_equal(stag_store_remove(store, partition, STAG_STORE_FORCE), 0);
}

/* Fills a sparse file on a file system that is smaller than it. */
static void fill(const char *path)
{
	struct stag_store_partition p = {.size = 4 * MIB, .name = "big"};
	enum ibv_wc_status status = IBV_WC_SUCCESS;
	uint32_t i = 0;
	struct user big;
	struct shop s;

	open_shop_at(&s, path);
	assert_int_equal(stag_store_add(s.s.store, &p), 0);
	allow(&s.s, "big", STAG_STORE_WRITE);
	enter(&big, &s.s, "big");
	for (; status == IBV_WC_SUCCESS && i < 1024; i++) {
		memset(s.bytes, (int)i + 1, sizeof(s.bytes));
		status = do_write(&big, i * sizeof(s.bytes), s.bytes, sizeof(s.bytes));
	}
	expect_fails(status, IBV_WC_REM_OP_ERR);
	await_log(path, "No space left on device");
	assert_true(i > 50 && i < 1000);
	leave(&big);
	enter(&big, &s.s, "big");
	for (uint32_t k = 0; k + 1 < i; k += 7) {
		memset(s.bytes, (int)k + 1, sizeof(s.bytes));
		assert_true(reads_as(&big, k * sizeof(s.bytes), s.bytes, sizeof(s.bytes)));
	}
	expect_works(&s, &s.goods);
	expect_works(&s, &s.rest);
	assert_int_equal(stag_store_check(s.s.path, 0, NULL), 0);
	leave(&big);
	await_removal(s.s.store, "big"); /* there is space again */
	add(s.s.store, "small", 64 * KIB);
	allow(&s.s, "small", STAG_STORE_WRITE);
	enter(&big, &s.s, "small");
	expect_works(&s, &big);
	leave(&big);
	close_shop(&s);
	unlink(path);
}

static void full_memory_keeps_the_written_bytes(void **state)
{
	if (access(SMALL_MEMORY, F_OK) != 0)
		skip();
	fill(SMALL_MEMORY "/store");
}

static void a_full_disk_keeps_the_written_bytes(void **state)
{
	if (access(SMALL_DISK, F_OK) != 0)
		skip();
	fill(SMALL_DISK "/store");
}

/* ---- the file -------------------------------------------------------------------------------- */

static uint64_t size_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return (uint64_t)st.st_size;
}

static void expect_cut_off_partition_is_refused(struct shop *p)
{
	leave(&p->rest);
	assert_int_not_equal(try_enter(&p->rest, &p->s, "rest", NULL), 0);
	if (far)
		await_log("refused: ", "it was truncated");
	else
		assert_says("it was truncated");
}

static void access_behind_a_truncated_end_fails_and_is_logged(void **state)
{
	struct shop p;

	open_shop(&p);
	assert_int_equal(truncate(p.s.path, (off_t)p.rest_at.offset), 0);
	expect_fails(do_read(&p.rest, 0, 8), IBV_WC_REM_OP_ERR);
	await_log(p.s.path, "the medium ends before that");
	expect_cut_off_partition_is_refused(&p);
	assert_int_equal(size_of(p.s.path), p.rest_at.offset);
	assert_true(reads_as(&p.goods, 0, p.before, ROOM));
	expect_works(&p, &p.goods);
	assert_true(stag_store_check(p.s.path, 0, NULL) > 0);
	assert_int_equal(truncate(p.s.path, 8 * MIB), 0);
	enter_again(&p, &p.rest, "rest");
	expect_works(&p, &p.rest);
	close_shop(&p);
}

static void nothing_is_written_to_a_file_that_replaced_the_store(void **state)
{
	struct stag_store *store;
	struct user u;
	struct shop p;

	open_shop(&p);
	make_store(room_path("other"), 8 * MIB, 4096);
	store = open_store(room_path("other"));
	add(store, "goods", ROOM);
	stag_store_close(store);
	assert_int_equal(rename(room_path("other"), p.s.path), 0);
	await_failure(&p.goods, IBV_WC_REM_ACCESS_ERR);
	await_failure(&p.rest, IBV_WC_REM_ACCESS_ERR);
	await_log(p.s.path, "is another file than the one that was opened");
	assert_true(is_zero_at(p.s.path, START, ROOM));
	assert_int_equal(stag_store_check(p.s.path, 0, NULL), 0);
	if (far) /* the server knows which store it serves */
		assert_int_not_equal(try_enter(&u, &p.s, "goods", NULL), 0);
	close_shop(&p);
}

static void a_removed_file_is_reported(void **state)
{
	struct shop p;

	open_shop(&p);
	assert_int_equal(unlink(p.s.path), 0);
	await_failure(&p.goods, IBV_WC_REM_ACCESS_ERR);
	await_log(p.s.path, "has been removed since it was opened");
	close_shop(&p);
}

/* An open partition keeps its known place. */
static void an_overwritten_table_is_reported(void **state)
{
	uint8_t noise[8192];
	struct user u;
	struct shop p;

	open_shop(&p);
	dice_fill(noise, sizeof(noise));
	put_bytes(p.s.path, 0, noise, sizeof(noise));
	put_bytes(p.s.path, MIB, noise, sizeof(noise));
	await_log(p.s.path, "keep the settings that were read last");
	expect_works(&p, &p.goods);
	expect_works(&p, &p.rest);
	if (!far) { /* a server keeps the table that it read before, too */
		assert_int_not_equal(try_enter(&u, &p.s, "goods", NULL), 0);
		assert_says(p.s.path);
		leave(&u);
	}
	close_shop(&p);
}

/* ---- file systems and main ------------------------------------------------------------------- */

static void write_line(const char *path, const char *line)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, line, strlen(line)) < 0)
		perror(path);
	if (fd >= 0)
		close(fd);
}

/* Makes a file system in a file; needs root. */
static void make_small_disk(void)
{
	static const char command[] =
		"exec 2>/dev/null; PATH=$PATH:/sbin:/usr/sbin; truncate -s 6M /mnt/image && "
		"mkfs.ext4 -q -O ^has_journal -m 0 /mnt/image && mkdir /mnt/disk && "
		"mount -o loop /mnt/image /mnt/disk && mkdir " SMALL_DISK;

	if (system(command) != 0)
		print_message("there is no " SMALL_DISK "\n");
}

/* Mounts in a mount namespace of our own, before there are threads. */
static void make_small_places(void)
{
	char map[64];

	snprintf(map, sizeof(map), "0 %u 1", geteuid());
	if (unshare(CLONE_NEWNS)) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
			return;
		write_line("/proc/self/uid_map", map);
	}
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/mnt", "tmpfs", 0, "size=16m") || mkdir(SMALL_MEMORY, 0700) ||
	    mount("none", SMALL_MEMORY, "tmpfs", 0, "size=4m"))
		return;
	make_small_disk();
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_disk_error_is_reported_with_its_place),
		cmocka_unit_test(after_a_failed_flush_barriers_fail),
		cmocka_unit_test(full_memory_keeps_the_written_bytes),
		cmocka_unit_test(a_full_disk_keeps_the_written_bytes),
		cmocka_unit_test(access_behind_a_truncated_end_fails_and_is_logged),
		cmocka_unit_test(nothing_is_written_to_a_file_that_replaced_the_store),
		cmocka_unit_test(a_removed_file_is_reported),
		cmocka_unit_test(an_overwritten_table_is_reported),
	};

	log_to_memory(argv);
	far = argc > 1 && strcmp(argv[1], "far") == 0;
	make_small_places();
	dice_start();
	return cmocka_run_group_tests_name(far ? "far" : "near", tests, NULL, NULL);
}
