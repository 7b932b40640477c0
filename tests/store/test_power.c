// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_power.c - power goes while the table is being changed.
 *
 * What is written and flushed is recorded. For a cut at any point, what was flushed before is on the medium, and of
 * what was written since any sectors may be, in any order, one of them even half: such states are
 * built, and opened. Each holds the table of before the change or after it, and the change can be made then.
 * From some of them power goes again in the first change.
 */
#include "room.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dice.h"

#define SECTOR	512u
#define RESERVE (2 * MIB)
#define SIZE	(RESERVE + 64 * KIB)
#define EVENTS	64

/* ---- what was done --------------------------------------------------------------- */

struct event {
	bool flush;
	uint64_t offset;
	size_t len;
	uint8_t *bytes;
};

static struct event events[EVENTS];
static unsigned int num_events;

static ssize_t record_write(int fd, const void *buf, size_t len, off_t offset)
{
	struct event *e = &events[num_events++];

	assert_true(num_events < EVENTS);
	*e = (struct event){.offset = (uint64_t)offset, .len = len, .bytes = malloc(len)};
	assert_non_null(e->bytes);
	assert_true(e->offset % SECTOR == 0 && e->offset + len <= RESERVE);
	memcpy(e->bytes, buf, len);
	return pwrite(fd, buf, len, offset);
}

static int record_flush(int fd)
{
	events[num_events++] = (struct event){.flush = true};
	assert_true(num_events < EVENTS);
	return 0;
}

static void forget(void)
{
	while (num_events > 0)
		free(events[--num_events].bytes);
}

static void start_recording(void)
{
	forget();
	store_io.pwrite = record_write;
	store_io.fdatasync = record_flush;
}

static void stop_recording(void)
{
	store_io.pwrite = pwrite;
	store_io.fdatasync = fdatasync;
}

/* ---- random changes ----------------------------------------------------------------- */

static void random_add(struct stag_store *store)
{
	struct stag_store_partition p = {.size = (1 + dice(8)) * 512,
					 .cache_ms = (uint32_t)dice(9)};

	snprintf(p.name, sizeof(p.name), "p%u", (unsigned int)dice(1000000));
	p.num_rights = (uint32_t)dice(4);
	stag_store_add(store, &p);
}

static void random_change(struct stag_store *store)
{
	struct stag_store_partition p;
	uint32_t index = (uint32_t)dice(count(store) + 1);

	if (index == 0 || (count(store) < 20 && one_in(3)) || !stag_store_next(store, &index, &p)) {
		random_add(store);
		return;
	}
	if (one_in(3)) {
		assert_int_equal(stag_store_remove(store, p.name, 0), 0);
		return;
	}
	p.cache_ms = (uint32_t)dice(1000000);
	p.num_rights = (uint32_t)dice(33);
	snprintf(p.name, sizeof(p.name), "n%u", (unsigned int)dice(1000000));
	stag_store_change(store, &p, 1 + (unsigned int)dice(31));
}

/* ---- a medium after a cut -------------------------------------------------------------- */

/* The first two MiB as the flushes have left them, and a file that holds them. */
struct medium {
	uint8_t *bytes;
	char path[64];
	int fd;
};

static void medium_write(struct medium *m, uint64_t offset, const void *bytes, size_t len)
{
	assert_int_equal(pwrite(m->fd, bytes, len, (off_t)offset), len);
}

static void medium_restore(struct medium *m)
{
	medium_write(m, 0, m->bytes, RESERVE);
}

static void medium_open(struct medium *m, const char *path)
{
	snprintf(m->path, sizeof(m->path), "%s", path);
	m->bytes = malloc(RESERVE);
	assert_non_null(m->bytes);
	make_file(path, SIZE);
	m->fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(m->fd >= 0);
}

static void medium_close(struct medium *m)
{
	close(m->fd);
	free(m->bytes);
}

enum loss {
	LOST_ALL,
	LOST_NONE,
	LOST_TAIL,
	LOST_HEAD,
	LOST_SOME,
	LOST_ONE,
	LOST_ALL_BUT_ONE,
	LOSSES
};

struct fate {
	enum loss loss;
	uint64_t cut; /* a sector */
	bool torn;    /* it arrived in part */
};

static bool arrives(const struct fate *f, uint64_t sector)
{
	switch (f->loss) {
	case LOST_ALL:
		return false;
	case LOST_NONE:
		return true;
	case LOST_TAIL:
		return sector < f->cut;
	case LOST_HEAD:
		return sector > f->cut;
	case LOST_SOME:
		return one_in(2);
	case LOST_ONE:
		return sector != f->cut;
	case LOST_ALL_BUT_ONE:
	case LOSSES:
		break;
	}
	return sector == f->cut;
}

/* To the file; the bytes that are sure stay. */
static void lose(struct medium *m, const struct event *e, const struct fate *f)
{
	for (uint64_t at = 0; at < e->len; at += SECTOR) {
		size_t len = e->len - at < SECTOR ? e->len - at : SECTOR;

		if (arrives(f, at / SECTOR))
			medium_write(m, e->offset + at, e->bytes + at, len);
		else if (f->torn && at / SECTOR == f->cut)
			medium_write(m, e->offset + at, e->bytes + at, dice(len));
	}
}

/* Back to what is sure, where something was written. */
static void regain(struct medium *m, const struct event *e)
{
	medium_write(m, e->offset, m->bytes + e->offset, e->len);
}

/* ---- the claim ---------------------------------------------------------------------------- */

static struct table before, after;
static unsigned long states, continued;

/* made: a whole copy has been flushed, so there is no way back. */
static void expect_opens(const struct medium *m, bool made)
{
	struct stag_store *store = stag_store_open(m->path, 0);

	states++;
	if (!store)
		fail_msg("after a cut: %s", stag_store_error());
	assert_true(is_same_table(&store->now.table, &after) ||
		    (!made && is_same_table(&store->now.table, &before)));
	stag_store_close(store);
}

/* It can be changed, is whole then, and check finds nothing. */
static void expect_goes_on(struct medium *m)
{
	struct stag_store *store = open_store(m->path);

	continued++;
	if (one_in(2))
		assert_int_equal(stag_store_check(m->path, STAG_STORE_REPAIR, NULL), 0);
	assert_int_equal(stag_store_grow(store, SIZE + 4 * KIB), 0);
	assert_int_equal(stag_store_check(m->path, 0, NULL), 0);
	stag_store_close(store);
	medium_restore(m);
	assert_int_equal(truncate(m->path, SIZE), 0);
}

static void cut_again(const struct medium *m, unsigned int depth);

static bool has_written(unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (!events[i].flush)
			return true;
	return false;
}

/* Everything that may be after a cut behind the n-th event, of which the last flush was the f-th. */
static void cut_at(struct medium *m, unsigned int flushed, unsigned int n, unsigned int depth)
{
	uint64_t sectors = n > flushed ? (events[n - 1].len + SECTOR - 1) / SECTOR : 1;
	unsigned int tries = depth > 0 ? 6 : 3;

	for (unsigned int i = 0; i < LOSSES * tries; i++) {
		struct fate f = {(enum loss)(i % LOSSES), dice(sectors), one_in(2)};

		for (unsigned int k = flushed; k < n; k++)
			lose(m, &events[k], &f);
		expect_opens(m, has_written(flushed));
		if (depth > 0 && one_in(is_slow_build() ? 60 : 6))
			cut_again(m, depth - 1);
		if (one_in(8))
			expect_goes_on(m);
		else
			for (unsigned int k = flushed; k < n; k++)
				regain(m, &events[k]);
	}
}

/* Through all that was recorded, from a medium as it was before. */
static void cut_everywhere(struct medium *m, unsigned int depth)
{
	unsigned int flushed = 0;

	for (unsigned int n = 0; n <= num_events; n++) {
		if (n > 0 && events[n - 1].flush) {
			for (unsigned int k = flushed; k + 1 < n; k++)
				memcpy(m->bytes + events[k].offset, events[k].bytes, events[k].len);
			medium_restore(m);
			flushed = n;
		}
		cut_at(m, flushed, n, depth);
	}
}

/* Records one change on the file, and goes through its cuts. bytes: as it was before. */
static void change_and_cut(const char *path, struct medium *m, unsigned int depth)
{
	struct stag_store *store = open_store(path);

	before = store->now.table;
	start_recording();
	random_change(store);
	stop_recording();
	after = store->now.table;
	stag_store_close(store);
	cut_everywhere(m, depth);
}

/* The state that is on m now is where the next change begins. What is under way elsewhere is kept. */
static void cut_again(const struct medium *m, unsigned int depth)
{
	struct event kept_events[EVENTS];
	unsigned int kept = num_events;
	struct table *tables = malloc(2 * sizeof(*tables));
	char path[64];
	struct medium again;

	assert_non_null(tables);
	memcpy(kept_events, events, sizeof(events));
	tables[0] = before;
	tables[1] = after;
	num_events = 0;
	snprintf(path, sizeof(path), "%s", room_path("again"));
	medium_open(&again, room_path("again.cut"));
	get_bytes(m->path, 0, again.bytes, RESERVE);
	medium_restore(&again);
	make_file(path, SIZE);
	put_bytes(path, 0, again.bytes, RESERVE);
	change_and_cut(path, &again, depth);
	forget();
	medium_close(&again);
	memcpy(events, kept_events, sizeof(events));
	num_events = kept;
	before = tables[0];
	after = tables[1];
	free(tables);
}

static void a_cut_leaves_the_old_table_or_the_new(void **state)
{
	char path[64];
	struct medium m;

	snprintf(path, sizeof(path), "%s", room_path("live"));
	make_store(path, SIZE, 512);
	medium_open(&m, room_path("cut"));
	get_bytes(path, 0, m.bytes, RESERVE);
	medium_restore(&m);
	for (unsigned long goal = scaled(12000); states < goal;)
		change_and_cut(path, &m, 1);
	forget();
	medium_close(&m);
	print_message("%lu states, %lu of them changed again\n", states, continued);
}

static void a_cut_while_formatting_leaves_nothing_or_a_store(void **state)
{
	const char *path = room_path("format");
	struct stag_store_attr attr = {.size = SIZE};
	struct stag_store *store;
	struct medium m;
	unsigned int flushed = 0, opened = 0;

	medium_open(&m, room_path("format.cut"));
	memset(m.bytes, 0, RESERVE);
	start_recording();
	assert_int_equal(stag_store_format(path, &attr, 0), 0);
	stop_recording();
	for (unsigned int n = 0; n <= num_events; n++) {
		if (n > 0 && events[n - 1].flush) {
			for (unsigned int k = flushed; k + 1 < n; k++)
				memcpy(m.bytes + events[k].offset, events[k].bytes, events[k].len);
			flushed = n;
		}
		for (unsigned int i = 0; i < 50; i++) {
			struct fate f = {(enum loss)(i % LOSSES), dice(9), one_in(2)};

			medium_restore(&m);
			for (unsigned int k = flushed; k < n; k++)
				lose(&m, &events[k], &f);
			store = stag_store_open(m.path, 0);
			opened += store != NULL;
			assert_true(store ? store->now.table.generation == 1
					  : errno == EPROTO || errno == EBADMSG);
			assert_true(store || n < num_events - 1);
			stag_store_close(store);
		}
	}
	assert_true(opened > 50);
	forget();
	medium_close(&m);
}

/* ---- zeroes ----------------------------------------------------------------------------- */

static struct {
	bool zeroed, flushed, table;
} seen;

static ssize_t see_write(int fd, const void *buf, size_t len, off_t offset)
{
	if ((uint64_t)offset >= START) {
		assert_false(seen.table);
		seen.zeroed = true;
		seen.flushed = false;
	} else {
		assert_true(seen.zeroed && seen.flushed);
		seen.table = true;
	}
	return pwrite(fd, buf, len, offset);
}

static int see_flush(int fd)
{
	seen.flushed = true;
	return 0;
}

static int see_hole(int fd, int mode, off_t offset, off_t len)
{
	seen.zeroed = true;
	seen.flushed = false;
	return fallocate(fd, mode, offset, len);
}

static int no_hole(int fd, int mode, off_t offset, off_t len)
{
	errno = EOPNOTSUPP;
	return -1;
}

/* Or a cut would leave a partition that shows what another one had. */
static void zeroes_are_flushed_before_the_table_is_written(void **state)
{
	struct stag_store_partition p;
	struct stag_store *store;

	make_store(room_path("zeroes"), SIZE, 512);
	store = open_store(room_path("zeroes"));
	store_io.pwrite = see_write;
	store_io.fdatasync = see_flush;
	for (int i = 0; i < 2; i++) {
		store_io.fallocate = i == 0 ? see_hole : no_hole;
		memset(&seen, 0, sizeof(seen));
		p = add(store, i == 0 ? "a" : "b", 1024);
		assert_true(seen.table);
	}
	memset(&seen, 0, sizeof(seen));
	p.size = 2048;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), 0);
	assert_true(seen.table);
	stop_recording();
	store_io.fallocate = fallocate;
	stag_store_close(store);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_cut_leaves_the_old_table_or_the_new),
		cmocka_unit_test(a_cut_while_formatting_leaves_nothing_or_a_store),
		cmocka_unit_test(zeroes_are_flushed_before_the_table_is_written),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
