// SPDX-License-Identifier: BSD-2-Clause
/*
 * clients.c - the requests of each client, and their outcomes: in the region, so that every later primary has
 * them.
 *
 * A client numbers its requests, and has at most POOL_WINDOW whose outcomes it has not acknowledged. Each
 * request says up to which sequence number it has: so only POOL_WINDOW outcomes must be kept.
 */
#include "pool/memory/memory.h"

#include <errno.h>
#include <string.h>

static uint64_t directory_at(const struct pool_core *core, uint32_t slot)
{
	return core->region.clients_at + (uint64_t)slot * sizeof(uint64_t);
}

/* Returns the offset of the client in a slot, or POOL_NOWHERE. */
static uint64_t client_at(const struct pool_core *core, uint32_t slot)
{
	uint64_t at;

	if (slot >= core->region.max_clients)
		return POOL_NOWHERE;
	at = pool_see(core, directory_at(core, slot));
	if (at == 0 || pool_block_size(core, at) < sizeof(struct pool_client))
		return POOL_NOWHERE;
	return at;
}

static bool is_client(const struct pool_core *core, uint64_t at, const uint64_t id[2])
{
	return pool_see(core, at + offsetof(struct pool_client, id)) == id[0] &&
	       pool_see(core, at + offsetof(struct pool_client, id) + 8) == id[1];
}

int pool_client_find(const struct pool_core *core, const uint64_t id[2])
{
	uint64_t at;

	for (uint32_t slot = 0; slot < core->region.max_clients; slot++) {
		at = client_at(core, slot);
		if (at != POOL_NOWHERE && is_client(core, at, id))
			return (int)slot;
	}
	return -ENOENT;
}

uint64_t pool_client_who(const struct pool_core *core, uint32_t slot)
{
	uint64_t at = client_at(core, slot);

	return at == POOL_NOWHERE ? 0 : pool_see(core, at + offsetof(struct pool_client, who));
}

uint64_t pool_client_room(const struct pool_core *core)
{
	uint64_t used = pool_see(core, offsetof(struct pool_superblock, clients));

	return used < core->region.max_clients ? core->region.max_clients - used : 0;
}

static int64_t free_slot(const struct pool_core *core, uint32_t leave)
{
	if (pool_client_room(core) <= leave)
		return -EUSERS;
	for (uint32_t slot = 0; slot < core->region.max_clients; slot++)
		if (pool_see(core, directory_at(core, slot)) == 0)
			return slot;
	return -EUSERS;
}

int pool_client_add(struct pool_core *core, struct pool_who *who)
{
	struct pool_client client = {
		.id = {who->id[0], who->id[1]}, .who = who->who, .acknowledged = who->acknowledged};
	int64_t slot = free_slot(core, who->leave);
	uint64_t at;

	if (slot < 0)
		return (int)slot;
	at = pool_alloc(core, sizeof(client));
	if (at == POOL_NOWHERE)
		return -ENOSPC;
	pool_put_bytes(core, at, &client, sizeof(client));
	pool_put(core, directory_at(core, (uint32_t)slot), at);
	pool_add(core, offsetof(struct pool_superblock, clients), 1);
	who->slot = (uint32_t)slot;
	return 0;
}

static uint64_t result_at(uint64_t client, uint64_t sequence)
{
	return client + offsetof(struct pool_client, results) +
	       sequence % POOL_WINDOW * sizeof(struct pool_result);
}

static struct pool_result see_result(const struct pool_core *core, uint64_t client,
				     uint64_t sequence)
{
	struct pool_result result;

	pool_see_bytes(core, result_at(client, sequence), &result, sizeof(result));
	return result;
}

uint64_t pool_client_last(const struct pool_core *core, uint32_t slot)
{
	uint64_t at = client_at(core, slot), last;

	if (at == POOL_NOWHERE)
		return 0;
	last = pool_see(core, at + offsetof(struct pool_client, acknowledged));
	for (uint64_t s = 0; s < POOL_WINDOW; s++) {
		uint64_t sequence = pool_see(core, result_at(at, s));

		last = sequence > last ? sequence : last;
	}
	return last;
}

static bool is_upload(const struct pool_result *result)
{
	return result->sequence != 0 && result->status == EINPROGRESS;
}

/* Frees the memory of an unfinished upload; does nothing for other results. */
static void free_upload(struct pool_core *core, const struct pool_result *result)
{
	uint64_t at = pool_offset(&core->region, result->address);

	if (is_upload(result) && at != POOL_NOWHERE)
		pool_free_run(core, at);
}

void pool_client_remove(struct pool_core *core, uint32_t slot)
{
	uint64_t at = client_at(core, slot);
	struct pool_result result;
	unsigned int uploads = 0;

	if (at == POOL_NOWHERE)
		return;
	for (uint64_t s = 0; s < POOL_WINDOW && uploads < POOL_MAX_UPLOADS; s++) {
		result = see_result(core, at, s);
		uploads += is_upload(&result);
		free_upload(core, &result);
	}
	pool_free(core, at);
	pool_put(core, directory_at(core, slot), 0);
	pool_add(core, offsetof(struct pool_superblock, clients), -1);
}

enum pool_seen pool_client_seen(const struct pool_core *core, const struct pool_who *who,
				uint64_t sequence, uint64_t acknowledged,
				struct pool_result *result)
{
	uint64_t at = client_at(core, who->slot);
	uint64_t before;

	if (at == POOL_NOWHERE || !is_client(core, at, who->id))
		return POOL_STALE;
	before = pool_see(core, at + offsetof(struct pool_client, acknowledged));
	if (sequence <= before)
		return POOL_STALE;
	*result = see_result(core, at, sequence);
	if (result->sequence == sequence)
		return is_upload(result) ? POOL_UPLOADING : POOL_REMEMBERED;
	if (result->sequence > sequence)
		return POOL_STALE;
	if (acknowledged > before && acknowledged < sequence)
		before = acknowledged;
	return sequence - before > POOL_WINDOW ? POOL_TOO_MANY : POOL_NEW;
}

void pool_client_remember(struct pool_core *core, const struct pool_who *who,
			  const struct pool_result *result, uint64_t acknowledged)
{
	uint64_t at = client_at(core, who->slot);
	uint64_t ack_at = at + offsetof(struct pool_client, acknowledged);
	struct pool_result old;

	if (at == POOL_NOWHERE)
		return;
	old = see_result(core, at, result->sequence);
	if (old.sequence != result->sequence)
		free_upload(core, &old);
	if (acknowledged < result->sequence && acknowledged > pool_see(core, ack_at))
		pool_put(core, ack_at, acknowledged);
	pool_put_bytes(core, result_at(at, result->sequence), result, sizeof(*result));
}

unsigned int pool_client_uploads(const struct pool_core *core, const struct pool_who *who)
{
	uint64_t at = client_at(core, who->slot);
	struct pool_result result;
	unsigned int n = 0;

	for (uint64_t s = 0; at != POOL_NOWHERE && s < POOL_WINDOW; s++) {
		result = see_result(core, at, s);
		n += is_upload(&result);
	}
	return n;
}
