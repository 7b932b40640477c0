// SPDX-License-Identifier: BSD-2-Clause
/*
 * ring.c - the log in memory: the primary builds records in it, and a standby has the same bytes at the same
 * places. A leftover of an earlier lap is not taken for a record, because its number is not the next one.
 */
#include "pool/memory/memory.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define HEADER sizeof(struct pool_record)

/* Marks that nothing follows up to the end of the ring. */
static void skip_to_end(struct pool_log *log, uint64_t number, uint64_t epoch)
{
	uint64_t at = log->put & (log->size - 1);
	uint64_t left = log->size - at;
	struct pool_build build;

	if (left >= HEADER) {
		pool_build_start(&build, log->at + at, HEADER);
		pool_build_finish(&build, number, epoch, POOL_RECORD_SKIP);
	}
	log->put += left;
}

void *pool_log_room(struct pool_log *log, size_t need, uint64_t number, uint64_t epoch)
{
	uint64_t left = log->size - (log->put & (log->size - 1));
	uint64_t room = log->size - (log->put - log->tail);
	uint64_t skipped = left < need ? left : 0;

	assert(log->put - log->tail <= log->size);
	if (room < skipped || room - skipped < need)
		return NULL;
	if (skipped != 0)
		skip_to_end(log, number, epoch);
	return log->at + (log->put & (log->size - 1));
}

void pool_log_add(struct pool_log *log, size_t length)
{
	assert(length % 8 == 0);
	log->put += length;
}

int pool_log_segments(uint64_t size, uint64_t from, uint64_t to, struct pool_segment segments[2])
{
	uint64_t at = from & (size - 1);
	uint64_t length = to - from;
	uint64_t left = size - at;

	if (length == 0)
		return 0;
	segments[0] = (struct pool_segment){at, length < left ? length : left};
	if (length <= left)
		return 1;
	segments[1] = (struct pool_segment){0, length - left};
	return 2;
}

/*
 * Returns whether this is the next record's header. Any other is left from an earlier lap, or an earlier
 * primary.
 */
static bool is_next(const struct pool_region *r, const struct pool_record *header)
{
	const struct pool_superblock *sb = pool_superblock(r);

	return header->number == sb->number + 1 && header->epoch >= sb->epoch;
}

/* Returns the position of the next record: the ring's beginning if a header does not fit before its end. */
static uint64_t next_at(const struct pool_ring *ring)
{
	uint64_t left = ring->size - (ring->get & (ring->size - 1));

	return left < HEADER ? ring->get + left : ring->get;
}

/* Applies one record. Returns 1 if it did, 0 if none is there, or -errno. */
static int drain_one(struct pool_ring *ring, struct pool_region *r,
		     const struct pool_staging *staging)
{
	uint64_t from = next_at(ring);
	uint64_t at = from & (ring->size - 1);
	struct pool_record header;
	int rc;

	/* A record of an earlier lap is not checked: it may be overwritten at this moment. */
	memcpy(&header, ring->at + at, HEADER);
	if (!is_next(r, &header))
		return 0;
	rc = pool_record_check(r, ring->at + at, ring->size - at, &header);
	if (rc == -EAGAIN || !is_next(r, &header))
		return 0;
	if (rc == 0 && (header.flags & POOL_RECORD_SKIP)) {
		if (at == 0)
			return -EBADMSG;
		ring->get = from + ring->size - at;
		return drain_one(ring, r, staging);
	}
	if (rc == 0)
		rc = pool_record_apply(r, ring->at + at, ring->size - at, staging);
	if (rc != 0)
		return rc;
	ring->get = from + header.length;
	return 1;
}

int pool_ring_drain(struct pool_ring *ring, struct pool_region *r,
		    const struct pool_staging *staging, unsigned int most)
{
	unsigned int n = 0;
	int rc = 0;

	while (n < most && (rc = drain_one(ring, r, staging)) > 0)
		n++;
	return n > 0 ? (int)n : rc;
}
