// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_change.c - partitions are added, changed and removed; handles that have them open are
 * notified.
 */
#include "room.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static struct stag_store *store;

static int prepare(void **state)
{
	room_clear();
	make_store(room_path("s"), 10 * MIB, 4096);
	store = open_store(room_path("s"));
	return 0;
}

static int finish(void **state)
{
	stag_store_close(store);
	return 0;
}

static void reopen(void)
{
	stag_store_close(store);
	store = open_store(room_path("s"));
}

/* ---- add ------------------------------------------------------------------------- */

static void an_added_partition_is_found(void **state)
{
	struct stag_store_partition p = {.name = "goods",
					 .size = MIB,
					 .alignment = 64 * KIB,
					 .relax = STAG_STORE_ANY_PROCESSING,
					 .level = STAG_STORE_DURABLE,
					 .cache_ms = 500,
					 .num_rights = 1,
					 .rights = {{.who = STAG_STORE_USER,
						     .access = 2,
						     .id = 7}}},
				    got;

	assert_int_equal(stag_store_add(store, &p), 0);
	assert_int_equal(p.id, 1);
	assert_int_equal(p.offset, START);
	reopen();
	got = find(store, "goods");
	assert_same_partition(&p, &got);
}

static void partitions_are_listed_in_order_of_their_offsets(void **state)
{
	struct stag_store_partition p;
	uint32_t index = 0;

	assert_int_equal(try_add(store, "last", MIB, START + 5 * MIB, 0), 0);
	assert_int_equal(try_add(store, "first", MIB, START, 0), 0);
	assert_int_equal(try_add(store, "middle", MIB, START + 3 * MIB, 0), 0);
	assert_true(stag_store_next(store, &index, &p));
	assert_string_equal(p.name, "first");
	assert_true(stag_store_next(store, &index, &p));
	assert_string_equal(p.name, "middle");
	assert_true(stag_store_next(store, &index, &p));
	assert_string_equal(p.name, "last");
	assert_false(stag_store_next(store, &index, &p));
}

static void the_smallest_gap_that_fits_is_taken(void **state)
{
	struct stag_store_info info;

	assert_int_equal(try_add(store, "a", MIB, START + 3 * MIB, 0), 0);
	assert_int_equal(try_add(store, "b", MIB, START + 5 * MIB, 0), 0);
	/* gaps: 3 MiB, 1 MiB, 2 MiB */
	assert_int_equal(add(store, "c", 512 * KIB).offset, START + 4 * MIB);
	assert_int_equal(add(store, "d", 768 * KIB).offset, START + 6 * MIB);
	assert_int_equal(add(store, "e", 3 * MIB).offset, START);
	assert_int_equal(stag_store_query(store, &info, sizeof(info)), 0);
	assert_int_equal(info.largest_gap, 2 * MIB - 768 * KIB);
	assert_int_equal(info.used, 2 * MIB + 512 * KIB + 768 * KIB + 3 * MIB);
	assert_int_equal(try_add(store, "f", 2 * MIB, 0, 0), ENOSPC);
	assert_says("the largest gap has 1310720");
}

static void alignment_is_kept(void **state)
{
	struct stag_store_partition p = {.name = "b", .size = 4096, .alignment = MIB};

	add(store, "a", 4096);
	assert_int_equal(stag_store_add(store, &p), 0);
	assert_int_equal(p.offset, START + MIB);
	assert_int_equal(try_add(store, "c", 4096, START + 4096, 8192), EINVAL);
	assert_says("is no multiple");
	assert_int_equal(try_add(store, "c", 8 * MIB, 0, 4 * MIB), ENOSPC);
}

static void a_store_is_filled_to_its_last_block(void **state)
{
	assert_int_equal(try_add(store, "all", 8 * MIB + 4096, 0, 0), ENOSPC);
	add(store, "most", 8 * MIB - 4096);
	assert_int_equal(try_add(store, "two", 8192, 0, 0), ENOSPC);
	assert_int_equal(add(store, "one", 4096).offset, 10 * MIB - 4096);
	assert_int_equal(try_add(store, "none", 4096, 0, 0), ENOSPC);
	assert_says("the largest gap has 0");
	reopen();
	assert_int_equal(count(store), 2);
	assert_int_equal(stag_store_check(room_path("s"), 0, NULL), 0);
}

static void a_store_holds_256_partitions(void **state)
{
	char name[32];

	for (int i = 0; i < STAG_STORE_MAX_PARTITIONS; i++) {
		snprintf(name, sizeof(name), "p%d", i);
		add(store, name, 4096);
	}
	assert_int_equal(try_add(store, "one-more", 4096, 0, 0), ENOSPC);
	assert_says("256 partitions");
	reopen();
	assert_int_equal(count(store), 256);
	assert_int_equal(find(store, "p255").offset, START + 255 * 4096);
	assert_int_equal(stag_store_check(room_path("s"), 0, NULL), 0);
}

static void a_partition_holds_32_rights(void **state)
{
	struct stag_store_partition p = {.name = "p", .size = 4096, .num_rights = 32}, got;

	for (unsigned int i = 0; i < 32; i++) {
		p.rights[i] = (struct stag_store_right){.who = (uint8_t)(i % 6),
							.access = (uint8_t)(i % 3)};
		if (p.rights[i].who == STAG_STORE_NET) {
			p.rights[i].family = i % 4 == 0 ? AF_INET : AF_INET6;
			p.rights[i].prefix = 8;
			p.rights[i].address[0] = (uint8_t)i;
		}
		if (p.rights[i].who == STAG_STORE_TOKEN)
			memset(p.rights[i].token, (int)i, 32);
		if (p.rights[i].who == STAG_STORE_USER || p.rights[i].who == STAG_STORE_GROUP)
			p.rights[i].id = 1u << i;
	}
	assert_int_equal(stag_store_add(store, &p), 0);
	reopen();
	got = find(store, "p");
	assert_same_partition(&p, &got);
	p.num_rights = 33;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_RIGHTS), EINVAL);
	assert_says("too many rights: 33");
}

static void invalid_partitions_are_refused(void **state)
{
	static const struct {
		const char *name;
		uint64_t size, offset, alignment;
		int error;
		const char *words;
	} cases[] = {
		{"", 4096, 0, 0, EINVAL, "1 to 63 characters"},
		{"a/b", 4096, 0, 0, EINVAL, "letters, digits"},
		{"a b", 4096, 0, 0, EINVAL, "letters, digits"},
		{"\xc3\xa4", 4096, 0, 0, EINVAL, "letters, digits"},
		{"p", 0, 0, 0, EINVAL, "a multiple"},
		{"p", 4095, 0, 0, EINVAL, "a multiple"},
		{"p", 512, 0, 0, EINVAL, "a multiple"},
		{"p", UINT64_MAX - 4095, 0, 0, EINVAL, "a multiple"},
		{"p", 1ull << 62, 0, 0, ENOSPC, "the largest gap"},
		{"p", 4096, 0, 512, EINVAL, "must be a power of two"},
		{"p", 4096, 0, 12288, EINVAL, "must be a power of two"},
		{"p", 4096, 0, 1ull << 63, EINVAL, "must be a power of two"},
		{"p", 4096, 0, 1ull << 62, ENOSPC, "the largest gap"},
		{"p", 4096, 4096, 0, EINVAL, "the store's own table"},
		{"p", 4096, START - 4096, 0, EINVAL, "the store's own table"},
		{"p", 4096, START + 1, 0, EINVAL, "is no multiple"},
		{"p", 4096, 10 * MIB, 0, ENOSPC, "end after the store"},
		{"p", 8192, 10 * MIB - 4096, 0, ENOSPC, "end after the store"},
		{"p", 4096, UINT64_MAX - 4095, 0, ENOSPC, "end after the store"},
		{"p", 4096, START + 4096, 0, ENOSPC, "overlap partition there"},
		{"p", MIB, START, 0, ENOSPC, "overlap partition there"},
		{"there", 4096, 0, 0, EEXIST, "partition there exists already"},
	};

	assert_int_equal(try_add(store, "there", 8192, START + 4096, 0), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(try_add(store, cases[i].name, cases[i].size, cases[i].offset,
					 cases[i].alignment),
				 cases[i].error);
		assert_says(cases[i].words);
	}
	assert_int_equal(count(store), 1);
}

static void invalid_settings_are_refused(void **state)
{
	struct stag_store_partition good = {.name = "p", .size = 4096, .num_rights = 1}, p;

	p = good;
	p.comp_mask = 1;
	assert_int_equal(stag_store_add(store, &p), EINVAL);
	p = good;
	p.relax = 32;
	assert_int_equal(stag_store_add(store, &p), EINVAL);
	p = good;
	p.level = 3;
	assert_int_equal(stag_store_add(store, &p), EINVAL);
	p = good;
	p.rights[0].who = 6;
	assert_int_equal(stag_store_add(store, &p), EINVAL);
	p = good;
	p.rights[0].access = 3;
	assert_int_equal(stag_store_add(store, &p), EINVAL);
	p = good;
	p.rights[0].who = STAG_STORE_NET;
	assert_int_equal(stag_store_add(store, &p), EINVAL);
	p.rights[0].family = AF_INET;
	p.rights[0].prefix = 33;
	assert_int_equal(stag_store_add(store, &p), EINVAL);
	p.rights[0].prefix = 8;
	p.rights[0].address[1] = 1;
	assert_int_equal(stag_store_add(store, &p), EINVAL);
	assert_says("bits after its prefix");
	p.rights[0].prefix = 16;
	assert_int_equal(stag_store_add(store, &p), 0);
	memset(good.name, 'x', sizeof(good.name));
	assert_int_equal(stag_store_add(store, &good), EINVAL);
	good.id = 1;
	assert_int_equal(stag_store_change(store, &good, STAG_STORE_CHANGE_NAME), EINVAL);
}

static void unused_bytes_of_settings_are_not_stored(void **state)
{
	struct stag_store_partition p = {.name = "p\0junk", .size = 4096, .num_rights = 1}, got;

	memset(&p.rights, 0x11, sizeof(p.rights));
	p.rights[0] = (struct stag_store_right){.who = STAG_STORE_LOCAL, .access = 1, .id = 99};
	assert_int_equal(stag_store_add(store, &p), 0);
	got = find(store, "p");
	assert_int_equal(got.rights[0].id, 0);
	assert_int_equal(got.rights[1].who, 0);
	assert_int_equal(got.name[2], 0);
	reopen();
}

static void a_new_partition_reads_as_zeroes(void **state)
{
	struct stag_store_partition p = add(store, "old", MIB);
	uint8_t secret[4096];

	memset(secret, 's', sizeof(secret));
	put_bytes(room_path("s"), p.offset + 8192, secret, sizeof(secret));
	put_bytes(room_path("s"), p.offset + MIB + 8192, secret, sizeof(secret));
	assert_int_equal(stag_store_remove(store, "old", STAG_STORE_FORCE), 0);
	p = add(store, "new", MIB);
	assert_true(is_zero_at(room_path("s"), p.offset, p.size));
	p.size = 2 * MIB;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), 0);
	assert_true(is_zero_at(room_path("s"), p.offset, p.size));
}

/* ---- change -------------------------------------------------------------------------- */

static void only_the_named_settings_are_changed(void **state)
{
	struct stag_store_partition p = add(store, "p", MIB), want, got;

	for (unsigned int what = 1; what < 64; what++) {
		got = p;
		want = p = find(store, find(store, got.name).name);
		snprintf(want.name, sizeof(want.name), "n%u", what);
		want.relax = p.relax ^ STAG_STORE_RELAX_READS;
		want.level = (p.level + 1) % 3;
		want.cache_ms = p.cache_ms + 1;
		want.num_rights = (p.num_rights + 1) % 4;
		want.size = p.size + 4096;
		assert_int_equal(stag_store_change(store, &want, what), 0);
		reopen();
		got = find(store, what & STAG_STORE_CHANGE_NAME ? want.name : p.name);
		assert_int_equal(got.relax, what & STAG_STORE_CHANGE_RELAX ? want.relax : p.relax);
		assert_int_equal(got.level, what & STAG_STORE_CHANGE_LEVEL ? want.level : p.level);
		assert_int_equal(got.cache_ms,
				 what & STAG_STORE_CHANGE_CACHE ? want.cache_ms : p.cache_ms);
		assert_int_equal(got.num_rights,
				 what & STAG_STORE_CHANGE_RIGHTS ? want.num_rights : p.num_rights);
		assert_int_equal(got.size, what & STAG_STORE_CHANGE_SIZE ? want.size : p.size);
		assert_int_equal(got.id, p.id);
		assert_int_equal(got.offset, p.offset);
		p = got;
	}
}

static void invalid_changes_are_refused(void **state)
{
	struct stag_store_partition a = add(store, "a", MIB), p = a;

	add(store, "b", MIB);
	assert_int_equal(stag_store_change(store, &p, 0), EINVAL);
	assert_int_equal(stag_store_change(store, &p, 64), EINVAL);
	p.size = MIB - 4096;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), EINVAL);
	assert_says("never shrinks");
	p.size = MIB + 1;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), EINVAL);
	p.size = MIB + 4096;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), ENOSPC);
	assert_says("0 bytes free behind it");
	p.size = UINT64_MAX - 4095;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), ENOSPC);
	snprintf(p.name, sizeof(p.name), "b");
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_NAME), EEXIST);
	p = find(store, "b");
	snprintf(p.name, sizeof(p.name), "a");
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_NAME), EEXIST);
	p.id = 3;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_CACHE), ENOENT);
	p = find(store, "a");
	assert_same_partition(&p, &a);
	/* The name it had before. */
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_NAME), 0);
}

static void the_last_partition_grows_to_the_end(void **state)
{
	struct stag_store_partition p = add(store, "p", MIB);

	p.size = 8 * MIB + 4096;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), ENOSPC);
	p.size = 8 * MIB;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), 0);
	reopen();
	assert_int_equal(find(store, "p").size, 8 * MIB);
}

static void an_id_is_never_used_again(void **state)
{
	assert_int_equal(add(store, "p", 4096).id, 1);
	assert_int_equal(stag_store_remove(store, "p", 0), 0);
	reopen();
	assert_int_equal(add(store, "p", 4096).id, 2);
}

static void a_store_grows_with_its_file(void **state)
{
	struct stag_store_info info;
	struct stat st;

	add(store, "p", 8 * MIB);
	assert_int_equal(stag_store_grow(store, 0), 0);
	assert_int_equal(stag_store_grow(store, 9 * MIB), EINVAL);
	assert_says("cannot shrink");
	assert_int_equal(stag_store_grow(store, 10 * MIB + 512), EINVAL);
	assert_int_equal(stag_store_grow(store, 12 * MIB), 0);
	assert_int_equal(stat(room_path("s"), &st), 0);
	assert_int_equal(st.st_size, 12 * MIB);
	assert_int_equal(truncate(room_path("s"), 15 * MIB + 100), 0);
	assert_int_equal(stag_store_grow(store, 0), 0);
	reopen();
	assert_int_equal(stag_store_query(store, &info, sizeof(info)), 0);
	assert_int_equal(info.size, 15 * MIB);
	assert_int_equal(info.largest_gap, 5 * MIB);
}

/* ---- remove ------------------------------------------------------------------------------ */

static void removing_a_partition_frees_its_space(void **state)
{
	struct stag_store_partition p = add(store, "p", 4 * MIB);
	struct stat before, after;
	uint8_t byte = 1;

	for (uint64_t at = 0; at < p.size; at += 4096)
		put_bytes(room_path("s"), p.offset + at, &byte, 1);
	stat(room_path("s"), &before);
	assert_int_equal(stag_store_remove(store, "p", STAG_STORE_FORCE), 0);
	stat(room_path("s"), &after);
	assert_true(after.st_blocks + 8000 < before.st_blocks);
	assert_int_equal(stag_store_remove(store, "p", 0), ENOENT);
	assert_int_equal(stag_store_remove(store, "p", STAG_STORE_REPAIR), EINVAL);
}

/* The last byte, behind a hole: one byte decides, wherever it is. */
static void a_written_partition_is_removed_only_by_force(void **state)
{
	struct stag_store_partition p = add(store, "p", 4 * MIB);
	uint8_t byte = 1, zero = 0;

	add(store, "behind", MIB);
	put_bytes(room_path("s"), p.offset + p.size, &byte, 1); /* in the next partition */
	put_bytes(room_path("s"), p.offset, &zero, 1);
	put_bytes(room_path("s"), p.offset + p.size - 1, &byte, 1);
	assert_int_equal(stag_store_remove(store, "p", 0), ENOTEMPTY);
	assert_says("partition p has been written: it has data from byte 4194303 on");
	assert_int_equal(find(store, "p").id, p.id);
	put_bytes(room_path("s"), p.offset + p.size - 1, &zero, 1);
	assert_int_equal(stag_store_remove(store, "p", 0), 0);
	assert_int_equal(stag_store_remove(store, "behind", 0), ENOTEMPTY);
	assert_int_equal(stag_store_remove(store, "behind", STAG_STORE_FORCE), 0);
}

/* What was behind the end is lost already: it does not keep the partition. */
static void a_truncated_partition_is_removed_if_the_rest_has_no_data(void **state)
{
	struct stag_store_partition p = add(store, "p", 4 * MIB);
	uint8_t byte = 1;

	put_bytes(room_path("s"), p.offset + p.size - 1, &byte, 1);
	assert_int_equal(truncate(room_path("s"), (off_t)(p.offset + MIB)), 0);
	assert_int_equal(stag_store_remove(store, "p", 0), 0);
}

static void a_removed_partition_leaves_no_bytes_in_the_table(void **state)
{
	uint64_t end = DISK_HEADER + 3 * DISK_ENTRY;

	add(store, "a", 4096);
	add(store, "b", 4096);
	add(store, "c", 4096);
	assert_int_equal(stag_store_remove(store, "b", 0), 0);
	for (uint64_t copy = 0; copy < 2 * MIB; copy += MIB)
		assert_true(is_zero_at(room_path("s"), copy + end - DISK_ENTRY, DISK_ENTRY));
	reopen();
	assert_int_equal(stag_store_remove(store, "a", 0), 0);
	assert_int_equal(stag_store_remove(store, "c", 0), 0);
	for (uint64_t copy = 0; copy < 2 * MIB; copy += MIB)
		assert_true(is_zero_at(room_path("s"), copy + DISK_HEADER, 3 * DISK_ENTRY));
}

static void a_partition_in_use_is_not_removed(void **state)
{
	struct stag_store_partition p = add(store, "p", MIB), used;
	int first = store_use(store, p.id, &used), second = store_use(store, p.id, &used);

	assert_true(first >= 0 && second >= 0);
	assert_same_partition(&p, &used);
	add(store, "q", MIB);
	assert_int_equal(stag_store_remove(store, "q", 0), 0);
	assert_int_equal(stag_store_remove(store, "p", 0), EBUSY);
	assert_says("partition p is in use");
	close(first);
	assert_int_equal(stag_store_remove(store, "p", 0), EBUSY);
	close(second);
	assert_int_equal(stag_store_remove(store, "p", 0), 0);
	assert_int_equal(store_use(store, p.id, &used), -ENOENT);
}

/* A forced removal may leave a write in flight: the space is not reallocated meanwhile. */
static void space_of_a_partition_removed_by_force_is_not_reused(void **state)
{
	struct stag_store_partition p = add(store, "p", 8 * MIB), used;
	int user = store_use(store, p.id, &used);

	put_bytes(room_path("s"), p.offset, "data", 4);
	assert_int_equal(stag_store_remove(store, "p", STAG_STORE_FORCE), 0);
	assert_int_equal(count(store), 0);
	assert_int_equal(try_add(store, "q", 4096, 0, 0), EBUSY);
	assert_says("still in use");
	assert_int_equal(try_add(store, "q", 4096, START + MIB, 0), EBUSY);
	assert_false(is_zero_at(room_path("s"), p.offset, 4));
	assert_int_equal(stag_store_grow(store, 11 * MIB), 0);
	close(user);
	assert_int_equal(add(store, "q", 4096).offset, START);
	assert_true(is_zero_at(room_path("s"), START, 4096));
}

static void growing_does_not_take_space_still_in_use(void **state)
{
	struct stag_store_partition p = add(store, "p", MIB), q = add(store, "q", MIB), used;
	int user = store_use(store, q.id, &used);

	assert_int_equal(stag_store_remove(store, "q", STAG_STORE_FORCE), 0);
	p.size = 2 * MIB;
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), EBUSY);
	assert_says("still in use");
	close(user);
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), 0);
	user = store_use(store, p.id, &used);
	p.size = 3 * MIB; /* a user of the partition's present space is no obstacle */
	assert_int_equal(stag_store_change(store, &p, STAG_STORE_CHANGE_SIZE), 0);
	close(user);
}

/* ---- other handles and processes ------------------------------------------------------------- */

static void changes_by_other_handles_are_noticed(void **state)
{
	struct stag_store *other = open_store(room_path("s"));
	struct stag_store_partition p;

	assert_false(store_changed(store));
	p = add(other, "p", MIB);
	assert_false(store_changed(other));
	assert_true(store_changed(store));
	assert_int_equal(store_refresh(store), 0);
	assert_false(store_changed(store));
	assert_int_equal(store->now.table.n, 1);
	p.cache_ms = 77;
	assert_int_equal(stag_store_change(other, &p, STAG_STORE_CHANGE_CACHE), 0);
	assert_int_equal(find(store, "p").cache_ms, 77);
	assert_int_equal(stag_store_remove(store, "p", 0), 0);
	assert_int_equal(count(other), 0);
	stag_store_close(other);
}

static void two_handles_do_not_undo_each_other(void **state)
{
	struct stag_store *other = open_store(room_path("s"));

	add(store, "a", MIB);
	add(other, "b", MIB);
	add(store, "c", MIB);
	assert_int_equal(stag_store_remove(other, "a", 0), 0);
	assert_int_equal(count(store), 2);
	assert_int_equal(find(store, "b").id, 2);
	assert_int_equal(find(other, "c").id, 3);
	stag_store_close(other);
}

static void a_second_server_is_refused(void **state)
{
	struct stag_store *other = open_store(room_path("s"));
	struct stag_store_info info;
	int fd = store_serve_lock(store);

	assert_true(fd >= 0);
	stag_store_query(other, &info, sizeof(info));
	assert_int_equal(info.served_by, getpid());
	assert_int_equal(store_serve_lock(other), -EBUSY);
	assert_says("serves it already");
	assert_int_equal(store_serve_lock(store), -EBUSY);
	add(other, "p", MIB);
	close(fd);
	stag_store_query(other, &info, sizeof(info));
	assert_int_equal(info.served_by, 0);
	fd = store_serve_lock(other);
	assert_true(fd >= 0);
	close(fd);
	stag_store_close(other);
}

static void a_read_only_handle_changes_nothing(void **state)
{
	struct stag_store *look = stag_store_open(room_path("s"), STAG_STORE_LOOK);
	struct stag_store_partition p = add(store, "p", MIB);

	assert_int_equal(count(look), 1);
	assert_int_equal(try_add(look, "q", MIB, 0, 0), EACCES);
	assert_says("read-only");
	assert_int_equal(stag_store_change(look, &p, STAG_STORE_CHANGE_CACHE), EACCES);
	assert_int_equal(stag_store_remove(look, "p", 0), EACCES);
	assert_int_equal(stag_store_grow(look, 0), EACCES);
	assert_int_equal(store_serve_lock(look), -EACCES);
	stag_store_close(look);
	stag_store_close(NULL);
}

static void another_file_under_the_name_is_noticed(void **state)
{
	const char *path = room_path("s"), *aside = room_path("aside");

	add(store, "p", MIB);
	assert_int_equal(rename(path, aside), 0);
	assert_int_equal(try_add(store, "q", MIB, 0, 0), ESTALE);
	assert_says("has been removed");
	make_store(path, 10 * MIB, 4096);
	assert_int_equal(try_add(store, "q", MIB, 0, 0), ESTALE);
	assert_says("is another file");
	assert_int_equal(stag_store_query(store, &(struct stag_store_info){0}, 8), ESTALE);
	assert_int_equal(store_refresh(store), -ESTALE);
	unlink(path);
	assert_int_equal(rename(aside, path), 0);
	add(store, "q", MIB);
}

static void a_process_may_change_its_directory(void **state)
{
	struct stag_store_partition p;
	struct stag_store *here;
	char folder[64];
	int fd;

	snprintf(folder, sizeof(folder), "%s", room_path("s"));
	*strrchr(folder, '/') = '\0';
	assert_int_equal(chdir(folder), 0);
	here = open_store("s");
	assert_int_equal(chdir("/"), 0);
	p = add(here, "p", MIB);
	fd = store_use(here, p.id, &p);
	assert_true(fd >= 0);
	close(fd);
	stag_store_close(here);
}

static void report_progress(void *arg, uint64_t done, uint64_t total)
{
	uint64_t *seen = arg;

	assert_true(done <= total && done >= seen[0]);
	seen[0] = done;
	seen[1]++;
}

static int no_holes(int fd, int mode, off_t offset, off_t len)
{
	errno = EOPNOTSUPP;
	return -1;
}

static ssize_t slow_write(int fd, const void *buf, size_t len, off_t offset)
{
	if (len == MIB)
		usleep(100000);
	return pwrite(fd, buf, len, offset);
}

static void long_zeroing_reports_progress(void **state)
{
	uint64_t seen[2] = {0};

	store_io.fallocate = no_holes;
	store_io.pwrite = slow_write;
	stag_store_on_progress(store, report_progress, seen);
	add(store, "p", 8 * MIB);
	store_io.fallocate = fallocate;
	store_io.pwrite = pwrite;
	assert_true(seen[1] >= 2);
	assert_true(is_zero_at(room_path("s"), START, 8 * MIB));
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, prepare, finish)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		STORY(an_added_partition_is_found),
		STORY(partitions_are_listed_in_order_of_their_offsets),
		STORY(the_smallest_gap_that_fits_is_taken),
		STORY(alignment_is_kept),
		STORY(a_store_is_filled_to_its_last_block),
		STORY(a_store_holds_256_partitions),
		STORY(a_partition_holds_32_rights),
		STORY(invalid_partitions_are_refused),
		STORY(invalid_settings_are_refused),
		STORY(unused_bytes_of_settings_are_not_stored),
		STORY(a_new_partition_reads_as_zeroes),
		STORY(only_the_named_settings_are_changed),
		STORY(invalid_changes_are_refused),
		STORY(the_last_partition_grows_to_the_end),
		STORY(an_id_is_never_used_again),
		STORY(a_store_grows_with_its_file),
		STORY(removing_a_partition_frees_its_space),
		STORY(a_written_partition_is_removed_only_by_force),
		STORY(a_truncated_partition_is_removed_if_the_rest_has_no_data),
		STORY(a_removed_partition_leaves_no_bytes_in_the_table),
		STORY(a_partition_in_use_is_not_removed),
		STORY(space_of_a_partition_removed_by_force_is_not_reused),
		STORY(growing_does_not_take_space_still_in_use),
		STORY(changes_by_other_handles_are_noticed),
		STORY(two_handles_do_not_undo_each_other),
		STORY(a_second_server_is_refused),
		STORY(a_read_only_handle_changes_nothing),
		STORY(another_file_under_the_name_is_noticed),
		STORY(a_process_may_change_its_directory),
		STORY(long_zeroing_reports_progress),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
