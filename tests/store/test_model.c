// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_model.c - thousands of random changes, each compared with a model.
 *
 * The model represents a store as an array of blocks, each with the id of its partition or 0. The
 * store is reopened for each change, and compared whole.
 */
#include "room.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "dice.h"

#define BLOCK	   512u
#define MAX_BLOCKS 4096u
#define NAMES	   400u

static struct {
	uint64_t blocks, next_id;
	uint64_t owner[MAX_BLOCKS]; /* partition id, by block behind the table */
	struct stag_store_partition parts[STAG_STORE_MAX_PARTITIONS];
	uint32_t n;
} model;

static unsigned long done, refused;

/* ---- the model --------------------------------------------------------------------- */

static struct stag_store_partition *model_find(const char *name)
{
	for (uint32_t i = 0; i < model.n; i++)
		if (strcmp(model.parts[i].name, name) == 0)
			return &model.parts[i];
	return NULL;
}

static bool is_free(uint64_t block, uint64_t n)
{
	if (block >= model.blocks || n > model.blocks - block)
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (model.owner[block + i] != 0)
			return false;
	return true;
}

static uint64_t gap_at(uint64_t block)
{
	uint64_t end = block;

	while (end < model.blocks && model.owner[end] == 0)
		end++;
	return end - block;
}

/* Returns the first block of the smallest gap that is large enough, or UINT64_MAX. */
static uint64_t best_place(uint64_t n, uint64_t align_blocks)
{
	uint64_t best = UINT64_MAX, at = UINT64_MAX;

	for (uint64_t b = 0, gap; b < model.blocks; b += gap + 1) {
		uint64_t aligned =
			(START / BLOCK + b + align_blocks - 1) / align_blocks * align_blocks -
			START / BLOCK;

		gap = gap_at(b);
		if (gap < best && aligned + n <= b + gap) {
			best = gap;
			at = aligned;
		}
	}
	return at;
}

static void set_owner(uint64_t block, uint64_t n, uint64_t id)
{
	for (uint64_t i = 0; i < n; i++)
		model.owner[block + i] = id;
}

static int model_add(struct stag_store_partition *p)
{
	uint64_t n = p->size / BLOCK, at;

	if (model_find(p->name))
		return EEXIST;
	if (model.n == STAG_STORE_MAX_PARTITIONS)
		return ENOSPC;
	if (p->size == 0 || p->size % BLOCK != 0)
		return EINVAL;
	if (p->alignment == 0)
		p->alignment = BLOCK;
	if (p->offset != 0 && (p->offset % p->alignment != 0 || p->offset < START))
		return EINVAL;
	at = p->offset != 0 ? (p->offset - START) / BLOCK : best_place(n, p->alignment / BLOCK);
	if (at == UINT64_MAX || !is_free(at, n))
		return ENOSPC;
	p->offset = START + at * BLOCK;
	p->id = model.next_id++;
	set_owner(at, n, p->id);
	model.parts[model.n++] = *p;
	return 0;
}

static int model_remove(const char *name)
{
	struct stag_store_partition *p = model_find(name);

	if (!p)
		return ENOENT;
	set_owner((p->offset - START) / BLOCK, p->size / BLOCK, 0);
	*p = model.parts[--model.n];
	return 0;
}

static int model_change(const struct stag_store_partition *want, unsigned int what)
{
	struct stag_store_partition *p = NULL, *same;
	uint64_t end;

	for (uint32_t i = 0; i < model.n; i++)
		if (model.parts[i].id == want->id)
			p = &model.parts[i];
	if (!p)
		return ENOENT;
	same = model_find(want->name);
	if (what & STAG_STORE_CHANGE_NAME && same && same != p)
		return EEXIST;
	if (what & STAG_STORE_CHANGE_SIZE) {
		end = (p->offset - START + p->size) / BLOCK;
		if (want->size < p->size || want->size % BLOCK != 0)
			return EINVAL;
		if ((want->size - p->size) / BLOCK > gap_at(end))
			return ENOSPC;
		set_owner(end, (want->size - p->size) / BLOCK, p->id);
		p->size = want->size;
	}
	if (what & STAG_STORE_CHANGE_NAME)
		memcpy(p->name, want->name, sizeof(p->name));
	if (what & STAG_STORE_CHANGE_RELAX)
		p->relax = want->relax;
	if (what & STAG_STORE_CHANGE_LEVEL)
		p->level = want->level;
	if (what & STAG_STORE_CHANGE_CACHE)
		p->cache_ms = want->cache_ms;
	if (what & STAG_STORE_CHANGE_RIGHTS) {
		p->num_rights = want->num_rights;
		memcpy(p->rights, want->rights, sizeof(p->rights));
	}
	return 0;
}

static int model_grow(uint64_t size)
{
	if (size % BLOCK != 0 || size < START + model.blocks * BLOCK)
		return EINVAL;
	model.blocks = (size - START) / BLOCK;
	return 0;
}

/* ---- random changes --------------------------------------------------------------------- */

static void random_name(char name[STAG_STORE_NAME_MAX])
{
	memset(name, 0, STAG_STORE_NAME_MAX);
	if (model.n > 0 && one_in(2))
		memcpy(name, model.parts[dice(model.n)].name, STAG_STORE_NAME_MAX);
	else
		snprintf(name, STAG_STORE_NAME_MAX, "p.%u", (unsigned int)dice(NAMES));
}

static void random_settings(struct stag_store_partition *p)
{
	p->relax = (uint32_t)dice(32);
	p->level = (uint32_t)dice(3);
	p->cache_ms = (uint32_t)dice(UINT32_MAX);
	p->num_rights = (uint32_t)dice(one_in(20) ? 33 : 4);
	memset(p->rights, 0, sizeof(p->rights));
	for (unsigned int i = 0; i < p->num_rights; i++) {
		p->rights[i].who = one_in(2) ? STAG_STORE_USER : STAG_STORE_TOKEN;
		p->rights[i].access = (uint8_t)dice(3);
		if (p->rights[i].who == STAG_STORE_USER)
			p->rights[i].id = (uint32_t)dice(UINT32_MAX);
		else
			dice_fill(p->rights[i].token, 32);
	}
}

static int random_add(struct stag_store *store, struct stag_store_partition *p)
{
	struct stag_store_partition q;
	int expected, rc;

	memset(p, 0, sizeof(*p));
	random_settings(p);
	random_name(p->name);
	p->size = one_in(20) ? dice(100000) : dice_size(300) * BLOCK;
	if (one_in(4))
		p->alignment = BLOCK << dice(6);
	if (one_in(4))
		p->offset = START + dice(model.blocks + 10) * BLOCK + (one_in(20) ? 1 : 0);
	q = *p;
	expected = model_add(&q);
	rc = stag_store_add(store, p);
	if (rc == 0)
		assert_same_partition(p, &q);
	return rc == expected ? rc : -1;
}

static int random_change(struct stag_store *store, struct stag_store_partition *p)
{
	unsigned int what = 1 + (unsigned int)dice(63);
	int expected;

	memset(p, 0, sizeof(*p));
	random_settings(p);
	random_name(p->name);
	if (model.n > 0 && !one_in(20)) {
		const struct stag_store_partition *old = &model.parts[dice(model.n)];

		p->id = old->id;
		p->size = old->size + dice(4) * BLOCK - (one_in(10) ? BLOCK : 0);
	}
	expected = model_change(p, what);
	return stag_store_change(store, p, what) == expected ? expected : -1;
}

static int random_remove(struct stag_store *store, struct stag_store_partition *p)
{
	int expected;

	random_name(p->name);
	expected = model_remove(p->name);
	return stag_store_remove(store, p->name, 0) == expected ? expected : -1;
}

static int random_grow(struct stag_store *store, struct stag_store_partition *p)
{
	uint64_t size = START + (model.blocks + dice(20)) * BLOCK - dice(2) * BLOCK + dice(2);
	int expected;

	if (size > START + MAX_BLOCKS * BLOCK || !one_in(10))
		return 0;
	expected = model_grow(size);
	return stag_store_grow(store, size) == expected ? expected : -1;
}

/* ---- the comparison ------------------------------------------------------------------------ */

static void compare(struct stag_store *store)
{
	struct stag_store_partition p;
	struct stag_store_info info;
	uint64_t used = 0, largest = 0, offset = 0;
	uint32_t index = 0;

	while (stag_store_next(store, &index, &p)) {
		const struct stag_store_partition *m = model_find(p.name);

		assert_non_null(m);
		assert_same_partition(&p, m);
		assert_true(p.offset > offset);
		offset = p.offset;
		used += p.size;
	}
	assert_int_equal(index, model.n);
	for (uint64_t b = 0; b < model.blocks; b += gap_at(b) + 1)
		if (gap_at(b) > largest)
			largest = gap_at(b);
	assert_int_equal(stag_store_query(store, &info, sizeof(info)), 0);
	assert_int_equal(info.used, used);
	assert_int_equal(info.largest_gap, largest * BLOCK);
	assert_int_equal(info.size, START + model.blocks * BLOCK);
	assert_int_equal(info.copies, 2);
}

static void random_changes_leave_the_store_as_the_model(void **state)
{
	static int (*const steps[])(struct stag_store *, struct stag_store_partition *) = {
		random_add,    random_add,    random_add,    random_change,
		random_change, random_change, random_remove, random_grow};
	char path[64];

	snprintf(path, sizeof(path), "%s", room_path("model"));
	model.blocks = 1000;
	model.next_id = 1;
	make_store(path, START + model.blocks * BLOCK, BLOCK);
	for (unsigned long i = 0; i < scaled(4000); i++) {
		struct stag_store *store = open_store(path);
		struct stag_store_partition p;
		int rc = steps[dice(sizeof(steps) / sizeof(steps[0]))](store, &p);

		if (rc < 0)
			fail_msg("step %lu: store and model differ: %s", i, stag_store_error());
		*(rc == 0 ? &done : &refused) += 1;
		compare(store);
		stag_store_close(store);
		store = stag_store_open(path, STAG_STORE_LOOK);
		compare(store);
		stag_store_close(store);
		if (model.n > 120 && one_in(50))
			while (model.n > 20) {
				store = open_store(path);
				assert_int_equal(stag_store_remove(store, model.parts[0].name, 0),
						 0);
				model_remove(model.parts[0].name);
				stag_store_close(store);
			}
	}
	assert_int_equal(stag_store_check(path, 0, stdout), 0);
	print_message("%lu changes, %lu refused\n", done, refused);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_changes_leave_the_store_as_the_model),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
