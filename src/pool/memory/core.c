// SPDX-License-Identifier: BSD-2-Clause
/* core.c - the primary's view: the region, and what the records in flight will change in it. */
#include "pool/memory/memory.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define AHEAD_BITS 16 /* of the table's size: enough for some thousand records in flight */

int pool_core_open(struct pool_core *core, const struct pool_region *region, uint64_t epoch)
{
	int rc;

	*core = (struct pool_core){
		.region = *region,
		.number = pool_superblock(region)->number,
		.epoch = epoch,
	};
	if (epoch < pool_superblock(region)->epoch)
		return -EPROTO;
	rc = pool_ahead_create(&core->ahead, AHEAD_BITS);
	if (rc != 0)
		return rc;
	rc = pool_room_create(core);
	if (rc != 0)
		pool_ahead_destroy(&core->ahead);
	return rc;
}

void pool_core_close(struct pool_core *core)
{
	pool_room_destroy(core);
	pool_ahead_destroy(&core->ahead);
}

uint64_t pool_see(const struct pool_core *core, uint64_t offset)
{
	uint64_t value;

	assert(offset % 8 == 0 && pool_holds(&core->region, offset, 8));
	if (pool_ahead_get(&core->ahead, offset, &value))
		return value;
	return pool_word(&core->region, offset);
}

void pool_see_bytes(const struct pool_core *core, uint64_t offset, void *to, size_t length)
{
	uint64_t word;

	for (size_t i = 0; i < length; i += sizeof(word)) {
		word = pool_see(core, offset + i);
		memcpy((uint8_t *)to + i, &word,
		       length - i < sizeof(word) ? length - i : sizeof(word));
	}
}

void pool_put(struct pool_core *core, uint64_t offset, uint64_t value)
{
	assert(offset % 8 == 0 && pool_holds(&core->region, offset, 8));
	pool_build_bytes(core->build, offset, &value, sizeof(value));
	pool_ahead_set(&core->ahead, offset, value, core->number);
}

void pool_put_bytes(struct pool_core *core, uint64_t offset, const void *from, size_t length)
{
	uint64_t word;

	assert(length % 8 == 0);
	for (size_t i = 0; i < length; i += sizeof(word)) {
		memcpy(&word, (const uint8_t *)from + i, sizeof(word));
		pool_put(core, offset + i, word);
	}
}

void pool_add(struct pool_core *core, uint64_t offset, int64_t value)
{
	if (value != 0)
		pool_put(core, offset, pool_see(core, offset) + (uint64_t)value);
}

int pool_settle(struct pool_core *core, const void *record, size_t room,
		const struct pool_staging *staging)
{
	struct pool_record header;
	int rc = pool_record_apply(&core->region, record, room, staging);

	if (rc != 0)
		return rc;
	memcpy(&header, record, sizeof(header));
	pool_ahead_settle(&core->ahead, header.number);
	return 0;
}
