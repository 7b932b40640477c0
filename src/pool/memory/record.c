// SPDX-License-Identifier: BSD-2-Clause
/*
 * record.c - changes of the region as bytes: built by the primary, checked and applied by every node.
 *
 * A record may lie in memory that a peer can write to. So each number is copied from there once, and the copy is
 * checked and used.
 */
#include "pool/memory/memory.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static uint32_t padded(uint32_t length)
{
	return (length + 7) & ~7u;
}

/* ---- building -------------------------------------------------------------------- */

void pool_build_start(struct pool_build *b, void *at, size_t room)
{
	*b = (struct pool_build){.at = at, .room = room, .used = sizeof(struct pool_record)};
	b->failed = room < b->used;
}

/* Returns room for n more bytes, or NULL, with b->failed set, if there is none. */
static uint8_t *extend(struct pool_build *b, size_t n)
{
	uint8_t *at = b->at + b->used;

	if (b->failed || n > b->room - b->used) {
		b->failed = true;
		return NULL;
	}
	b->used += n;
	return at;
}

static uint8_t *add_range(struct pool_build *b, const struct pool_range *range, size_t payload)
{
	uint64_t at = b->used;
	uint8_t *to = extend(b, sizeof(*range) + payload);

	if (!to)
		return NULL;
	if (b->ranges == UINT16_MAX) {
		b->failed = true;
		return NULL;
	}
	memcpy(to, range, sizeof(*range));
	b->last = at;
	b->ranges++;
	return to + sizeof(*range);
}

/* Returns the place for bytes that continue the last range, or NULL if they do not. */
static uint8_t *continue_last(struct pool_build *b, uint64_t offset, uint32_t length)
{
	struct pool_range last;
	uint8_t *to;

	if (b->last == 0)
		return NULL;
	memcpy(&last, b->at + b->last, sizeof(last));
	if (last.kind != POOL_RANGE_INLINE || last.length % 8 != 0 ||
	    last.offset + last.length != offset || length > UINT32_MAX - 8 - last.length)
		return NULL;
	to = extend(b, padded(length));
	if (!to)
		return NULL;
	last.length += length;
	memcpy(b->at + b->last, &last, sizeof(last));
	return to;
}

void pool_build_pieces(struct pool_build *b, uint64_t offset, const struct pool_piece *pieces,
		       int n)
{
	struct pool_range range = {.offset = offset, .kind = POOL_RANGE_INLINE};
	uint8_t *to;

	for (int i = 0; i < n; i++)
		range.length += pieces[i].length;
	if (range.length == 0)
		return;
	to = continue_last(b, offset, range.length);
	if (!to)
		to = add_range(b, &range, padded(range.length));
	if (!to)
		return;
	for (int i = 0; i < n; to += pieces[i].length, i++)
		if (pieces[i].length != 0)
			memcpy(to, pieces[i].bytes, pieces[i].length);
	memset(to, 0, padded(range.length) - range.length);
}

void pool_build_bytes(struct pool_build *b, uint64_t offset, const void *bytes, uint32_t length)
{
	struct pool_piece piece = {bytes, length};

	pool_build_pieces(b, offset, &piece, 1);
}

void pool_build_staged(struct pool_build *b, uint64_t offset, uint32_t length,
		       const struct pool_staged *staged)
{
	struct pool_range range = {offset, length, POOL_RANGE_STAGED};
	uint8_t *to = add_range(b, &range, sizeof(*staged));

	if (to)
		memcpy(to, staged, sizeof(*staged));
}

void pool_build_zero(struct pool_build *b, uint64_t offset, uint32_t length)
{
	struct pool_range range = {offset, length, POOL_RANGE_ZERO};

	if (length != 0)
		add_range(b, &range, 0);
}

static uint64_t record_hash(const struct pool_record *header, const void *at)
{
	uint64_t seed = XXH3_64bits(header, offsetof(struct pool_record, hash));

	return XXH3_64bits_withSeed((const uint8_t *)at + sizeof(*header),
				    header->length - sizeof(*header), seed);
}

int pool_build_finish(struct pool_build *b, uint64_t number, uint64_t epoch, uint16_t flags)
{
	struct pool_record header = {
		.number = number,
		.epoch = epoch,
		.length = (uint32_t)b->used,
		.ranges = b->ranges,
		.flags = flags,
	};

	if (b->failed)
		return -ENOBUFS;
	header.hash = record_hash(&header, b->at);
	memcpy(b->at, &header, sizeof(header));
	return (int)b->used;
}

/* ---- checking -------------------------------------------------------------------- */

struct walk {
	const uint8_t *at;
	size_t left;
	uint16_t ranges;
};

static size_t payload_of(const struct pool_range *range)
{
	switch (range->kind) {
	case POOL_RANGE_INLINE:
		return padded(range->length);
	case POOL_RANGE_STAGED:
		return sizeof(struct pool_staged);
	default:
		return 0;
	}
}

/*
 * Returns 1 with the next range, within the bounds of the record and of what records may change, 0 at the end, or
 * -EBADMSG.
 */
static int next_range(struct walk *w, const struct pool_region *r, struct pool_range *range,
		      const uint8_t **payload)
{
	size_t size;

	if (w->ranges == 0)
		return w->left == 0 ? 0 : -EBADMSG;
	if (w->left < sizeof(*range))
		return -EBADMSG;
	memcpy(range, w->at, sizeof(*range));
	if (range->kind > POOL_RANGE_ZERO || range->length > UINT32_MAX - 8 ||
	    range->offset < POOL_FIXED || !pool_holds(r, range->offset, range->length))
		return -EBADMSG;
	size = payload_of(range);
	if (size > w->left - sizeof(*range))
		return -EBADMSG;
	*payload = w->at + sizeof(*range);
	w->at += sizeof(*range) + size;
	w->left -= sizeof(*range) + size;
	w->ranges--;
	return 1;
}

static struct walk walk_of(const struct pool_record *header, const void *at)
{
	return (struct walk){(const uint8_t *)at + sizeof(*header),
			     header->length - sizeof(*header), header->ranges};
}

/* Copies the header. Returns -EAGAIN if it does not fit the room, or its length is impossible. */
static int read_header(const void *at, size_t room, struct pool_record *header)
{
	if (room < sizeof(*header))
		return -EAGAIN;
	memcpy(header, at, sizeof(*header));
	if (header->length < sizeof(*header) || header->length > room || header->length % 8 != 0)
		return -EAGAIN;
	return 0;
}

int pool_record_check(const struct pool_region *r, const void *at, size_t room,
		      struct pool_record *header)
{
	struct pool_range range;
	const uint8_t *payload;
	struct walk w;
	int rc = read_header(at, room, header);

	if (rc != 0)
		return rc;
	if (record_hash(header, at) != header->hash)
		return -EAGAIN;
	if (header->flags & POOL_RECORD_SKIP)
		return 0;
	w = walk_of(header, at);
	do
		rc = next_range(&w, r, &range, &payload);
	while (rc > 0);
	return rc;
}

/* ---- applying -------------------------------------------------------------------- */

/*
 * Writes the bytes under concurrent readers. Aligned ranges up to 64 bytes are written in atomic words, as
 * index entries require.
 */
static void write_bytes(struct pool_region *r, const struct pool_range *range, const uint8_t *bytes)
{
	uint8_t *to = r->at + range->offset;
	uint64_t word;

	if (range->length > 64 || range->length % 8 != 0 || range->offset % 8 != 0) {
		memcpy(to, bytes, range->length);
		return;
	}
	for (uint32_t i = 0; i < range->length; i += 8) {
		memcpy(&word, bytes + i, sizeof(word));
		__atomic_store_n((uint64_t *)(to + i), word, __ATOMIC_RELEASE);
	}
}

/* Copies first, and checks the hash of the copy: a writer may be changing the staging memory at this moment. */
static int write_staged(struct pool_region *r, const struct pool_range *range,
			const uint8_t *payload, const struct pool_staging *staging)
{
	struct pool_staged staged;
	uint64_t at;

	memcpy(&staged, payload, sizeof(staged));
	if (!staging || staged.offset < staging->base)
		return -EILSEQ;
	at = staged.offset - staging->base;
	if (at > staging->length || range->length > staging->length - at)
		return -EILSEQ;
	memcpy(r->at + range->offset, staging->at + at, range->length);
	if (staging->trusted)
		return 0;
	return pool_hash(r->at + range->offset, range->length) == staged.hash ? 0 : -EILSEQ;
}

static int apply_staged(struct pool_region *r, struct walk w, const struct pool_staging *staging)
{
	struct pool_range range;
	const uint8_t *payload;
	int rc;

	while ((rc = next_range(&w, r, &range, &payload)) > 0)
		if (range.kind == POOL_RANGE_STAGED) {
			rc = write_staged(r, &range, payload, staging);
			if (rc != 0)
				return rc;
		}
	return rc;
}

static int apply_others(struct pool_region *r, struct walk w)
{
	struct pool_range range;
	const uint8_t *payload;
	int rc;

	while ((rc = next_range(&w, r, &range, &payload)) > 0) {
		if (range.kind == POOL_RANGE_INLINE)
			write_bytes(r, &range, payload);
		else if (range.kind == POOL_RANGE_ZERO)
			memset(r->at + range.offset, 0, range.length);
		atomic_thread_fence(memory_order_release);
	}
	return rc;
}

int pool_record_apply(struct pool_region *r, const void *at, size_t room,
		      const struct pool_staging *staging)
{
	struct pool_superblock *sb = pool_superblock(r);
	struct pool_record header;
	int rc = read_header(at, room, &header);

	if (rc != 0)
		return -EBADMSG;
	if (header.number <= sb->number)
		return -EALREADY;
	if (header.number != sb->number + 1 || header.epoch < sb->epoch)
		return -EPROTO;
	rc = apply_staged(r, walk_of(&header, at), staging);
	if (rc == 0)
		rc = apply_others(r, walk_of(&header, at));
	if (rc != 0)
		return rc;
	sb->epoch = header.epoch;
	sb->number = header.number;
	return 0;
}
