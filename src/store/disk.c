// SPDX-License-Identifier: BSD-2-Clause
/*
 * disk.c - the table as bytes: docs/STORE-FORMAT.md in code.
 *
 * Pure functions over buffers. All numbers are little-endian. Input is untrusted: a copy is good
 * only if its checksums match, if all reserved bytes are zero, and if the table that it holds is
 * valid.
 */
#include "store.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/zero.h"

static const char magic[8] = {'S', 't', 'a', 'g', 'S', 't', 'o', 'r'};
static const char server_magic[8] = {'S', 't', 'a', 'g', 'S', 'e', 'r', 'v'};

/* Offsets in a header, */
enum {
	AT_MAGIC = 0,
	AT_VERSION = 8,
	AT_FEATURES = 12,
	AT_UUID = 16,
	AT_GENERATION = DISK_GENERATION,
	AT_SIZE = 40,
	AT_BLOCK = 48,
	AT_OWNER = 52,
	AT_LABEL = 56,
	AT_NEXT_ID = 120,
	AT_ENTRIES = 128,
	AT_ENTRY_SIZE = 132,
	AT_TABLE_LENGTH = 136,
	AT_TABLE_CRC = 140,
	AT_COPY = 144,
	AT_HEADER_RESERVED = 148,
	AT_HEADER_CRC = DISK_HEADER - 4,
};

/* in an entry, */
enum {
	AT_ID = 0,
	AT_NAME = 8,
	AT_OFFSET = 72,
	AT_LENGTH = 80,
	AT_ALIGNMENT = 88,
	AT_RELAX = 96,
	AT_LEVEL = 100,
	AT_CACHE_MS = 104,
	AT_NUM_RIGHTS = 108,
	AT_ENTRY_RESERVED = 112,
	AT_RIGHTS = 128,
};

/* and in a right. */
enum {
	AT_WHO = 0,
	AT_ACCESS = 1,
	AT_FAMILY = 2,
	AT_PREFIX = 3,
	AT_USER = 4,
	AT_SECRET = 8, /* or the address */
	RIGHT_BYTES = 40,
};

_Static_assert(AT_RIGHTS + RIGHT_BYTES * STAG_STORE_MAX_RIGHTS == DISK_ENTRY, "an entry's size");
_Static_assert(DISK_IMAGE_MAX <= DISK_SERVER, "room for a copy");

/* Address families on disk, independent of this machine's. */
enum { DISK_INET = 4, DISK_INET6 = 6 };

static uint32_t crc_of(const uint8_t *p, size_t len)
{
	return ~crc32c_update(CRC32C_INIT, p, len);
}

char disk_copy_name(unsigned int copy)
{
	return (char)('A' + copy);
}

/* ---- encoding ---------------------------------------------------------------- */

static void put_right(uint8_t *p, const struct stag_store_right *r)
{
	p[AT_WHO] = r->who;
	p[AT_ACCESS] = r->access;
	p[AT_FAMILY] = r->family == AF_INET ? DISK_INET : r->family == AF_INET6 ? DISK_INET6 : 0;
	p[AT_PREFIX] = r->prefix;
	put_le32(p + AT_USER, r->id);
	memcpy(p + AT_SECRET, r->token, sizeof(r->token));
}

static void put_entry(uint8_t *p, const struct stag_store_partition *e)
{
	put_le64(p + AT_ID, e->id);
	memcpy(p + AT_NAME, e->name, sizeof(e->name));
	put_le64(p + AT_OFFSET, e->offset);
	put_le64(p + AT_LENGTH, e->size);
	put_le64(p + AT_ALIGNMENT, e->alignment);
	put_le32(p + AT_RELAX, e->relax);
	put_le32(p + AT_LEVEL, e->level);
	put_le32(p + AT_CACHE_MS, e->cache_ms);
	put_le32(p + AT_NUM_RIGHTS, e->num_rights);
	for (unsigned int i = 0; i < e->num_rights; i++)
		put_right(p + AT_RIGHTS + i * RIGHT_BYTES, &e->rights[i]);
}

static void put_header(uint8_t *p, const struct table *t, unsigned int copy, uint32_t length,
		       uint32_t crc)
{
	memcpy(p + AT_MAGIC, magic, sizeof(magic));
	put_le32(p + AT_VERSION, STORE_VERSION);
	memcpy(p + AT_UUID, t->uuid, sizeof(t->uuid));
	put_le64(p + AT_GENERATION, t->generation);
	put_le64(p + AT_SIZE, t->size);
	put_le32(p + AT_BLOCK, t->block);
	put_le32(p + AT_OWNER, t->owner);
	memcpy(p + AT_LABEL, t->label, sizeof(t->label));
	put_le64(p + AT_NEXT_ID, t->next_id);
	put_le32(p + AT_ENTRIES, t->n);
	put_le32(p + AT_ENTRY_SIZE, DISK_ENTRY);
	put_le32(p + AT_TABLE_LENGTH, length);
	put_le32(p + AT_TABLE_CRC, crc);
	put_le32(p + AT_COPY, copy);
	put_le32(p + AT_HEADER_CRC, crc_of(p, AT_HEADER_CRC));
}

size_t disk_encode(const struct table *t, unsigned int copy, uint8_t *image)
{
	uint32_t length = t->n * DISK_ENTRY;

	memset(image, 0, DISK_HEADER + length);
	for (uint32_t i = 0; i < t->n; i++)
		put_entry(image + DISK_HEADER + i * DISK_ENTRY, &t->entries[i]);
	put_header(image, t, copy, length, crc_of(image + DISK_HEADER, length));
	return DISK_HEADER + length;
}

/* ---- decoding ------------------------------------------------------------------ */

static int check_header(const uint8_t *p, unsigned int copy)
{
	uint32_t n = get_le32(p + AT_ENTRIES);

	if (memcmp(p + AT_MAGIC, magic, sizeof(magic)) != 0)
		return store_fail(ENODATA, "no header is there");
	if (get_le32(p + AT_HEADER_CRC) != crc_of(p, AT_HEADER_CRC))
		return store_fail(EBADMSG, "the header's checksum is wrong");
	if (get_le32(p + AT_VERSION) != STORE_VERSION || get_le32(p + AT_FEATURES) != 0)
		return store_fail(EPROTO,
				  "it has version %u, features %#x, and this program supports only "
				  "version %d; use a newer program",
				  get_le32(p + AT_VERSION), get_le32(p + AT_FEATURES),
				  STORE_VERSION);
	if (get_le32(p + AT_COPY) != copy)
		return store_fail(EBADMSG, "the header belongs to the other copy");
	if (!is_zero(p + AT_HEADER_RESERVED, AT_HEADER_CRC - AT_HEADER_RESERVED))
		return store_fail(EBADMSG, "reserved bytes of the header are not zero");
	if (n > STAG_STORE_MAX_PARTITIONS || get_le32(p + AT_ENTRY_SIZE) != DISK_ENTRY ||
	    get_le32(p + AT_TABLE_LENGTH) != n * DISK_ENTRY)
		return store_fail(EBADMSG,
				  "invalid table size: %u entries of %u bytes, table of %u", n,
				  get_le32(p + AT_ENTRY_SIZE), get_le32(p + AT_TABLE_LENGTH));
	return 0;
}

int disk_table_length(const uint8_t header[DISK_HEADER], unsigned int copy, uint32_t *length)
{
	int rc = check_header(header, copy);

	if (rc == 0)
		*length = get_le32(header + AT_TABLE_LENGTH);
	return rc;
}

/* A name is terminated and padded with zeroes. */
static bool get_name(const uint8_t *p, char name[STAG_STORE_NAME_MAX])
{
	size_t n = strnlen((const char *)p, STAG_STORE_NAME_MAX);

	if (n == STAG_STORE_NAME_MAX || !is_zero(p + n, STAG_STORE_NAME_MAX - n))
		return false;
	memcpy(name, p, STAG_STORE_NAME_MAX);
	return true;
}

static bool get_right(const uint8_t *p, struct stag_store_right *r)
{
	memset(r, 0, sizeof(*r));
	r->who = p[AT_WHO];
	r->access = p[AT_ACCESS];
	r->family = p[AT_FAMILY] == DISK_INET ? AF_INET : p[AT_FAMILY] == DISK_INET6 ? AF_INET6 : 0;
	r->prefix = p[AT_PREFIX];
	r->id = get_le32(p + AT_USER);
	memcpy(r->token, p + AT_SECRET, sizeof(r->token));
	return p[AT_FAMILY] == 0 || r->family != 0;
}

static bool get_rights(const uint8_t *p, struct stag_store_partition *e)
{
	size_t used = e->num_rights * (size_t)RIGHT_BYTES;

	if (e->num_rights > STAG_STORE_MAX_RIGHTS ||
	    !is_zero(p + AT_RIGHTS + used, DISK_ENTRY - AT_RIGHTS - used))
		return false;
	for (unsigned int i = 0; i < e->num_rights; i++)
		if (!get_right(p + AT_RIGHTS + i * RIGHT_BYTES, &e->rights[i]) ||
		    !table_is_clean(&e->rights[i]))
			return false;
	return true;
}

static bool get_entry(const uint8_t *p, struct stag_store_partition *e)
{
	memset(e, 0, sizeof(*e));
	e->id = get_le64(p + AT_ID);
	e->offset = get_le64(p + AT_OFFSET);
	e->size = get_le64(p + AT_LENGTH);
	e->alignment = get_le64(p + AT_ALIGNMENT);
	e->relax = get_le32(p + AT_RELAX);
	e->level = get_le32(p + AT_LEVEL);
	e->cache_ms = get_le32(p + AT_CACHE_MS);
	e->num_rights = get_le32(p + AT_NUM_RIGHTS);
	return get_name(p + AT_NAME, e->name) && get_rights(p, e) &&
	       is_zero(p + AT_ENTRY_RESERVED, AT_RIGHTS - AT_ENTRY_RESERVED);
}

static bool get_header(const uint8_t *p, struct table *t)
{
	memcpy(t->uuid, p + AT_UUID, sizeof(t->uuid));
	t->generation = get_le64(p + AT_GENERATION);
	t->size = get_le64(p + AT_SIZE);
	t->block = get_le32(p + AT_BLOCK);
	t->owner = get_le32(p + AT_OWNER);
	t->next_id = get_le64(p + AT_NEXT_ID);
	t->n = get_le32(p + AT_ENTRIES);
	return get_name(p + AT_LABEL, t->label);
}

int disk_decode(const uint8_t *image, size_t len, unsigned int copy, struct table *t)
{
	const uint8_t *table = image + DISK_HEADER;
	uint32_t length;
	int rc;

	if (len < DISK_HEADER)
		return store_fail(ENODATA, "no header is there");
	rc = disk_table_length(image, copy, &length);
	if (rc != 0)
		return rc;
	if (len - DISK_HEADER < length)
		return store_fail(EBADMSG, "the table ends early");
	if (get_le32(image + AT_TABLE_CRC) != crc_of(table, length))
		return store_fail(EBADMSG, "the table's checksum is wrong");
	if (!get_header(image, t))
		return store_fail(EBADMSG, "the label is not a valid name");
	for (uint32_t i = 0; i < t->n; i++)
		if (!get_entry(table + i * DISK_ENTRY, &t->entries[i]))
			return store_fail(EBADMSG, "entry %u is invalid", i);
	return table_check(t) == 0 ? 0 : -EBADMSG;
}

uint64_t disk_generation(const uint8_t word[8])
{
	return get_le64(word);
}

/* ---- the server's record --------------------------------------------------------- */

void disk_put_server(uint8_t record[16], uint32_t pid)
{
	memcpy(record, server_magic, sizeof(server_magic));
	put_le32(record + 8, pid);
	put_le32(record + 12, ~pid);
}

uint32_t disk_get_server(const uint8_t record[16])
{
	if (memcmp(record, server_magic, sizeof(server_magic)) != 0 ||
	    get_le32(record + 8) != ~get_le32(record + 12))
		return 0;
	return get_le32(record + 8);
}
