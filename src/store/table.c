// SPDX-License-Identifier: BSD-2-Clause
/*
 * table.c - the table of partitions in memory: validity, and free space.
 *
 * Pure functions: no files, no locks. Partitions are sorted by offset.
 */
#include "store.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>

/* ---- validity -------------------------------------------------------------- */

int table_check_name(const char *what, const char *name)
{
	size_t n = strnlen(name, STAG_STORE_NAME_MAX);

	if (n == 0 || n == STAG_STORE_NAME_MAX)
		return store_fail(EINVAL, "%s: a name must have 1 to %d characters", what,
				  STAG_STORE_NAME_MAX - 1);
	for (size_t i = 0; i < n; i++)
		if (!isascii(name[i]) ||
		    (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i])))
			return store_fail(EINVAL,
					  "%s: a name may contain letters, digits, \".\", \"_\" "
					  "and \"-\" only",
					  what);
	return 0;
}

static bool is_power_of_two(uint64_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

int table_check_geometry(uint64_t size, uint32_t block)
{
	if (!is_power_of_two(block) || block < STORE_BLOCK_MIN || block > STORE_BLOCK_MAX)
		return store_fail(EINVAL, "block size %u: must be a power of two from %u to %u",
				  block, STORE_BLOCK_MIN, STORE_BLOCK_MAX);
	if (size > STORE_SIZE_MAX || size % block != 0)
		return store_fail(EINVAL,
				  "size %" PRIu64 ": must be a multiple of the block size, %u, and "
				  "at most %" PRIu64,
				  size, block, (uint64_t)STORE_SIZE_MAX);
	if (size < STAG_STORE_DATA_OFFSET + block)
		return store_fail(EINVAL,
				  "size %" PRIu64 ": too small: the table alone takes %llu bytes",
				  size, STAG_STORE_DATA_OFFSET);
	return 0;
}

static unsigned int address_bits(uint8_t family)
{
	return family == AF_INET ? 32 : family == AF_INET6 ? 128 : 0;
}

static bool is_zero_behind(const uint8_t *address, unsigned int prefix, unsigned int bits)
{
	for (unsigned int i = prefix; i < bits; i++)
		if (address[i / 8] & 0x80 >> i % 8)
			return false;
	return true;
}

static int check_right(const char *name, unsigned int n, const struct stag_store_right *r)
{
	unsigned int bits = address_bits(r->family);

	if (r->who > STAG_STORE_TOKEN)
		return store_fail(EINVAL, "%s: right %u: unknown kind of user %u", name, n, r->who);
	if (r->access > STAG_STORE_WRITE)
		return store_fail(EINVAL, "%s: right %u: unknown access %u", name, n, r->access);
	if (r->who != STAG_STORE_NET)
		return 0;
	if (bits == 0 || r->prefix > bits)
		return store_fail(
			EINVAL,
			"%s: right %u: invalid network: address family %u, prefix length %u", name,
			n, r->family, r->prefix);
	if (!is_zero_behind(r->address, r->prefix, bits))
		return store_fail(EINVAL,
				  "%s: right %u: the network's address has bits after its prefix",
				  name, n);
	return 0;
}

int table_check_settings(const struct stag_store_partition *p)
{
	int rc = table_check_name("partition", p->name);

	if (rc != 0)
		return rc;
	if (p->comp_mask != 0)
		return store_fail(EINVAL, "%s: comp_mask is not zero", p->name);
	if (p->relax & ~(uint32_t)STORE_ALL_RELAX)
		return store_fail(EINVAL, "%s: unknown bits in relax (%#x)", p->name, p->relax);
	if (p->level > STAG_STORE_DURABLE)
		return store_fail(EINVAL, "%s: unknown level %u", p->name, p->level);
	if (p->num_rights > STAG_STORE_MAX_RIGHTS)
		return store_fail(EINVAL, "%s: too many rights: %u, at most %d", p->name,
				  p->num_rights, STAG_STORE_MAX_RIGHTS);
	for (unsigned int i = 0; i < p->num_rights && rc == 0; i++)
		rc = check_right(p->name, i + 1, &p->rights[i]);
	return rc;
}

static int check_shape(const struct table *t, const struct stag_store_partition *p)
{
	if (p->size == 0 || p->size % t->block != 0 || p->size > STORE_SIZE_MAX)
		return store_fail(EINVAL,
				  "%s: size %" PRIu64 ": must be a multiple of the store's block "
				  "size, %u",
				  p->name, p->size, t->block);
	if (!is_power_of_two(p->alignment) || p->alignment < t->block ||
	    p->alignment > STORE_SIZE_MAX)
		return store_fail(EINVAL,
				  "%s: alignment %" PRIu64 ": must be a power of two, at least the "
				  "store's block size, %u",
				  p->name, p->alignment, t->block);
	return 0;
}

static int check_place(const struct table *t, const struct stag_store_partition *p)
{
	if (p->offset % p->alignment != 0)
		return store_fail(EINVAL, "%s: offset %" PRIu64 " is no multiple of %" PRIu64,
				  p->name, p->offset, p->alignment);
	if (p->offset < STAG_STORE_DATA_OFFSET)
		return store_fail(EINVAL,
				  "%s: offset %" PRIu64 " is in the store's own table, which ends "
				  "at %llu",
				  p->name, p->offset, STAG_STORE_DATA_OFFSET);
	if (p->offset > t->size || p->size > t->size - p->offset)
		return store_fail(ENOSPC,
				  "%s: %" PRIu64 " bytes at %" PRIu64 " end after the store, "
				  "which has %" PRIu64 " bytes",
				  p->name, p->size, p->offset, t->size);
	return 0;
}

static int check_entry(const struct table *t, uint32_t i)
{
	const struct stag_store_partition *p = &t->entries[i];
	int rc = table_check_settings(p);

	if (rc == 0)
		rc = check_shape(t, p);
	if (rc == 0)
		rc = check_place(t, p);
	if (rc != 0)
		return -EINVAL;
	if (p->id == 0 || p->id >= t->next_id)
		return store_fail(EINVAL,
				  "%s: id %" PRIu64 " is not below the next new id, %" PRIu64,
				  p->name, p->id, t->next_id);
	if (i > 0 && p->offset < t->entries[i - 1].offset + t->entries[i - 1].size)
		return store_fail(EINVAL, "%s: begins at %" PRIu64 ", before the end of %s",
				  p->name, p->offset, t->entries[i - 1].name);
	return 0;
}

static int by_name(const void *a, const void *b)
{
	const struct stag_store_partition *const *p = a, *const *q = b;

	return strcmp((*p)->name, (*q)->name);
}

static int by_id(const void *a, const void *b)
{
	const struct stag_store_partition *const *p = a, *const *q = b;

	return (*p)->id < (*q)->id ? -1 : (*p)->id > (*q)->id;
}

/* Sorts pointers to the entries, so that duplicates are adjacent. */
static int check_unique(const struct table *t, int (*by)(const void *, const void *))
{
	const struct stag_store_partition *sorted[STAG_STORE_MAX_PARTITIONS];

	for (uint32_t i = 0; i < t->n; i++)
		sorted[i] = &t->entries[i];
	qsort(sorted, t->n, sizeof(sorted[0]), by);
	for (uint32_t i = 1; i < t->n; i++)
		if (by(&sorted[i - 1], &sorted[i]) == 0)
			return store_fail(EINVAL, "%s: its name or id exists twice",
					  sorted[i]->name);
	return 0;
}

int table_check(const struct table *t)
{
	int rc = table_check_geometry(t->size, t->block);

	if (rc != 0)
		return rc;
	if (t->label[0] != '\0') {
		rc = table_check_name("label", t->label);
		if (rc != 0)
			return rc;
	}
	if (t->n > STAG_STORE_MAX_PARTITIONS || t->next_id == 0 || t->next_id > STORE_ID_MAX ||
	    t->generation == 0 || t->generation > STORE_ID_MAX)
		return store_fail(EINVAL,
				  "invalid table: %u partitions, next id %" PRIu64
				  ", generation %" PRIu64,
				  t->n, t->next_id, t->generation);
	for (uint32_t i = 0; i < t->n && rc == 0; i++)
		rc = check_entry(t, i);
	if (rc == 0)
		rc = check_unique(t, by_name);
	return rc != 0 ? rc : check_unique(t, by_id);
}

static size_t bytes_of(const struct table *t)
{
	return offsetof(struct table, entries) + t->n * sizeof(t->entries[0]);
}

void table_copy(struct table *to, const struct table *from)
{
	memcpy(to, from, bytes_of(from));
}

bool table_is_same(const struct table *a, const struct table *b)
{
	return a->n == b->n && memcmp(a, b, bytes_of(a)) == 0;
}

static void clean_right(struct stag_store_right *r)
{
	struct stag_store_right clean = {.who = r->who, .access = r->access};

	if (r->who == STAG_STORE_USER || r->who == STAG_STORE_GROUP)
		clean.id = r->id;
	if (r->who == STAG_STORE_TOKEN)
		memcpy(clean.token, r->token, sizeof(clean.token));
	if (r->who == STAG_STORE_NET) {
		clean.family = r->family;
		clean.prefix = r->prefix;
		memcpy(clean.address, r->address, address_bits(r->family) / 8);
	}
	*r = clean;
}

bool table_is_clean(const struct stag_store_right *r)
{
	struct stag_store_right clean = *r;

	clean_right(&clean);
	return memcmp(&clean, r, sizeof(clean)) == 0;
}

void table_clean(struct stag_store_partition *p)
{
	size_t n = strnlen(p->name, sizeof(p->name));

	memset(p->name + n, 0, sizeof(p->name) - n);
	for (unsigned int i = 0; i < p->num_rights; i++)
		clean_right(&p->rights[i]);
	memset(&p->rights[p->num_rights], 0,
	       (STAG_STORE_MAX_RIGHTS - p->num_rights) * sizeof(p->rights[0]));
}

/* ---- lookup ------------------------------------------------------------------ */

struct stag_store_partition *table_find(struct table *t, const char *name)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (strcmp(t->entries[i].name, name) == 0)
			return &t->entries[i];
	return NULL;
}

struct stag_store_partition *table_find_id(struct table *t, uint64_t id)
{
	for (uint32_t i = 0; i < t->n; i++)
		if (t->entries[i].id == id)
			return &t->entries[i];
	return NULL;
}

int table_mark(const char *name, uint8_t mark[STAG_STORE_MARK])
{
	uint8_t digest[EVP_MAX_MD_SIZE];

	if (EVP_Digest(name, strlen(name), digest, NULL, EVP_sha256(), NULL) != 1)
		return store_fail(ENOMEM, "cannot compute a SHA-256");
	memcpy(mark, digest, STAG_STORE_MARK);
	return 0;
}

struct stag_store_partition *table_find_mark(struct table *t, const uint8_t mark[STAG_STORE_MARK])
{
	struct stag_store_partition *found = NULL;
	uint8_t theirs[STAG_STORE_MARK];

	for (uint32_t i = 0; i < t->n; i++)
		if (table_mark(t->entries[i].name, theirs) == 0 &&
		    CRYPTO_memcmp(theirs, mark, sizeof(theirs)) == 0)
			found = &t->entries[i];
	return found;
}

uint64_t table_used(const struct table *t)
{
	uint64_t used = 0;

	for (uint32_t i = 0; i < t->n; i++)
		used += t->entries[i].size;
	return used;
}

/* Returns the gap before entry i, or after the last one. */
static uint64_t gap(const struct table *t, uint32_t i, uint64_t *begin)
{
	uint64_t end = i < t->n ? t->entries[i].offset : t->size;

	*begin = i > 0 ? t->entries[i - 1].offset + t->entries[i - 1].size : STAG_STORE_DATA_OFFSET;
	return end - *begin;
}

uint64_t table_largest_gap(const struct table *t)
{
	uint64_t largest = 0, begin;

	for (uint32_t i = 0; i <= t->n; i++)
		if (gap(t, i, &begin) > largest)
			largest = gap(t, i, &begin);
	return largest;
}

uint64_t table_gap_behind(const struct table *t, const struct stag_store_partition *p)
{
	uint64_t begin;

	return gap(t, (uint32_t)(p - t->entries) + 1, &begin);
}

/* ---- allocation ---------------------------------------------------------------- */

static bool overlaps(const struct table *t, const struct stag_store_partition *p)
{
	for (uint32_t i = 0; i < t->n; i++) {
		const struct stag_store_partition *o = &t->entries[i];

		if (p->offset < o->offset + o->size && o->offset < p->offset + p->size)
			return store_fail(ENOSPC,
					  "%s: %" PRIu64 " bytes at %" PRIu64 " overlap "
					  "partition %s",
					  p->name, p->size, p->offset, o->name) != 0;
	}
	return false;
}

static int place_there(const struct table *t, const struct stag_store_partition *p,
		       table_free_fn free, void *arg)
{
	int rc = check_place(t, p);

	if (rc != 0)
		return rc;
	if (overlaps(t, p))
		return -ENOSPC;
	if (!free(arg, p->offset, p->size))
		return store_fail(EBUSY,
				  "%s: a removed partition that was at %" PRIu64 " is still in use",
				  p->name, p->offset);
	return 0;
}

static int place_anywhere(const struct table *t, struct stag_store_partition *p, table_free_fn free,
			  void *arg)
{
	uint64_t best = UINT64_MAX, at = 0, begin;
	bool busy = false;

	for (uint32_t i = 0; i <= t->n; i++) {
		uint64_t room = gap(t, i, &begin), skip = -begin & (p->alignment - 1);

		if (skip > room || p->size > room - skip || room >= best)
			continue;
		if (!free(arg, begin + skip, p->size)) {
			busy = true;
			continue;
		}
		best = room;
		at = begin + skip;
	}
	if (best == UINT64_MAX && busy)
		return store_fail(EBUSY,
				  "%s: the only gaps that are large enough belonged to removed "
				  "partitions that are still in use",
				  p->name);
	if (best == UINT64_MAX)
		return store_fail(ENOSPC,
				  "%s: no room for %" PRIu64 " bytes: the largest gap has %" PRIu64,
				  p->name, p->size, table_largest_gap(t));
	p->offset = at;
	return 0;
}

int table_place(const struct table *t, struct stag_store_partition *p, table_free_fn free,
		void *arg)
{
	int rc;

	if (p->alignment == 0)
		p->alignment = t->block;
	rc = check_shape(t, p);
	if (rc != 0)
		return rc;
	return p->offset != 0 ? place_there(t, p, free, arg) : place_anywhere(t, p, free, arg);
}

struct stag_store_partition *table_insert(struct table *t, const struct stag_store_partition *p)
{
	uint32_t i = t->n;

	while (i > 0 && t->entries[i - 1].offset > p->offset)
		i--;
	memmove(&t->entries[i + 1], &t->entries[i], (t->n - i) * sizeof(t->entries[0]));
	t->entries[i] = *p;
	t->n++;
	return &t->entries[i];
}

void table_delete(struct table *t, struct stag_store_partition *p)
{
	uint32_t i = (uint32_t)(p - t->entries);

	memmove(p, p + 1, (t->n - i - 1) * sizeof(*p));
	t->n--;
}
