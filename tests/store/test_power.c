// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_power.c - power fails while the table is being changed.
 *
 * Writes and flushes are recorded. After a power loss at any point, the writes before the last
 * flush are on the medium; of later ones any sectors may be, in any order, and one of them even in
 * part: such states are made, and opened. Each holds the table before the change or after it, and
 * then accepts the change. In some of them power fails again during the first change.
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

/* ---- recording ------------------------------------------------------------------- */

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

static void forget_events(void)
{
	while (num_events > 0)
		free(events[--num_events].bytes);
}

static void start_recording(void)
{
	forget_events();
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

/* ---- a medium after a power loss -------------------------------------------------------- */

/* The first two MiB as of the last flush, and a file that holds them. */
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
	bool torn;    /* it was written in part */
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

/* Writes the surviving sectors to the file; m keeps the durable bytes. */
static void apply_power_loss(struct medium *m, const struct event *e, const struct fate *f)
{
	for (uint64_t at = 0; at < e->len; at += SECTOR) {
		size_t len = e->len - at < SECTOR ? e->len - at : SECTOR;

		if (arrives(f, at / SECTOR))
			medium_write(m, e->offset + at, e->bytes + at, len);
		else if (f->torn && at / SECTOR == f->cut)
			medium_write(m, e->offset + at, e->bytes + at, dice(len));
	}
}

/* Restores the durable bytes where something was written. */
static void restore_durable(struct medium *m, const struct event *e)
{
	medium_write(m, e->offset, m->bytes + e->offset, e->len);
}

/* ---- checks ------------------------------------------------------------------------------- */

static struct table before, after;
static unsigned long states, continued;

/*
 * Checks that the store opens. `made`: a whole copy has been flushed, so the change must be there.
 */
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

/* Checks that the store can be changed, has both copies then, and passes the check. */
static void expect_can_be_changed(struct medium *m)
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

static bool has_written_since(unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		if (!events[i].flush)
			return true;
	return false;
}

/*
 * Tries all states that may follow a power loss after the n-th event, where the last flush was the
 * f-th.
 */
static void cut_at(struct medium *m, unsigned int flushed, unsigned int n, unsigned int depth)
{
	uint64_t sectors = n > flushed ? (events[n - 1].len + SECTOR - 1) / SECTOR : 1;
	unsigned int tries = depth > 0 ? 6 : 3;

	for (unsigned int i = 0; i < LOSSES * tries; i++) {
		struct fate f = {(enum loss)(i % LOSSES), dice(sectors), one_in(2)};

		for (unsigned int k = flushed; k < n; k++)
			apply_power_loss(m, &events[k], &f);
		expect_opens(m, has_written_since(flushed));
		if (depth > 0 && one_in(is_slow_build() ? 60 : 6))
			cut_again(m, depth - 1);
		if (one_in(8))
			expect_can_be_changed(m);
		else
			for (unsigned int k = flushed; k < n; k++)
				restore_durable(m, &events[k]);
	}
}

/* Replays all that was recorded, on a medium as it was before. */
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

/*
 * Records one change of the file, and tries power losses at all points of it. bytes: contents
 * before it.
 */
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

/*
 * Uses the state that is on m now as the start of the next change. The outer replay's state is
 * saved.
 */
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
	forget_events();
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
	forget_events();
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
				apply_power_loss(&m, &events[k], &f);
			store = stag_store_open(m.path, 0);
			opened += store != NULL;
			assert_true(store ? store->now.table.generation == 1
					  : errno == EPROTO || errno == EBADMSG);
			assert_true(store || n < num_events - 1);
			stag_store_close(store);
		}
	}
	assert_true(opened > 50);
	forget_events();
	medium_close(&m);
}

/* ---- zeroes ----------------------------------------------------------------------------- */

static struct {
	bool zeroed, flushed, table;
} seen;

static ssize_t note_write(int fd, const void *buf, size_t len, off_t offset)
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

static int note_flush(int fd)
{
	seen.flushed = true;
	return 0;
}

static int note_hole(int fd, int mode, off_t offset, off_t len)
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

/* Otherwise a power loss could leave a partition that shows bytes of an earlier one. */
static void zeroes_are_flushed_before_the_table_is_written(void **state)
{
	struct stag_store_partition p;
	struct stag_store *store;

	make_store(room_path("zeroes"), SIZE, 512);
	store = open_store(room_path("zeroes"));
	store_io.pwrite = note_write;
	store_io.fdatasync = note_flush;
	for (int i = 0; i < 2; i++) {
		store_io.fallocate = i == 0 ? note_hole : no_hole;
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
