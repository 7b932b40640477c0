// SPDX-License-Identifier: BSD-2-Clause
/*
 * region.c - the pool's memory: its layout and its address.
 *
 *         superblock | client directory | span table | index | spans ...
 *
 * The superblock has the number of buckets and of clients, from which the places of all parts follow.
 */
#include "pool/memory/memory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define DEFAULT_CLIENTS	 1024u
#define BYTES_PER_BUCKET 1024u

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

/* Computes the layout from size, max_clients and num_buckets. */
static int lay_out(struct pool_region *r)
{
	uint64_t most = r->size / 8;

	if (r->size < POOL_MIN_SIZE || r->size > POOL_MAX_SIZE || r->size % POOL_PAGE != 0)
		return -EINVAL;
	if (r->address % POOL_SPAN != 0 || r->address == 0 || r->address > UINT64_MAX - r->size)
		return -EINVAL;
	if (r->max_clients == 0 || r->max_clients > most / sizeof(uint64_t) ||
	    r->max_clients > UINT32_MAX || r->num_buckets == 0 ||
	    r->num_buckets > most / sizeof(struct pool_bucket))
		return -EINVAL;
	r->clients_at = POOL_PAGE;
	r->spans_at = round_up(r->clients_at + r->max_clients * sizeof(uint64_t), POOL_PAGE);
	r->index_at =
		round_up(r->spans_at + r->size / POOL_SPAN * sizeof(struct pool_span), POOL_PAGE);
	r->memory_at =
		round_up(r->index_at + r->num_buckets * sizeof(struct pool_bucket), POOL_SPAN);
	if (r->memory_at > r->size - POOL_SPAN)
		return -EINVAL;
	r->num_spans = (r->size - r->memory_at) / POOL_SPAN;
	return 0;
}

static uint64_t check_of(const struct pool_superblock *sb)
{
	return pool_hash(sb, offsetof(struct pool_superblock, check));
}

static void write_superblock(const struct pool_region *r)
{
	struct pool_superblock *sb = pool_superblock(r);

	*sb = (struct pool_superblock){
		.version = POOL_VERSION,
		.key = r->key,
		.size = r->size,
		.address = r->address,
		.name_key = {r->name_key[0], r->name_key[1]},
		.num_buckets = r->num_buckets,
		.max_clients = r->max_clients,
	};
	memcpy(sb->magic, POOL_MAGIC, sizeof(sb->magic));
	memcpy(sb->uuid, r->uuid, sizeof(sb->uuid));
	sb->check = check_of(sb);
}

int pool_region_format(struct pool_region *r, void *at, const struct pool_format *format)
{
	struct pool_region new = {
		.at = at,
		.size = format->size,
		.address = format->address,
		.key = format->key,
		.name_key = {format->name_key[0], format->name_key[1]},
		.max_clients = format->max_clients ? format->max_clients : DEFAULT_CLIENTS,
		.num_buckets =
			format->num_buckets ? format->num_buckets : format->size / BYTES_PER_BUCKET,
	};
	int rc = lay_out(&new);

	if (rc != 0)
		return rc;
	memcpy(new.uuid, format->uuid, sizeof(new.uuid));
	write_superblock(&new);
	*r = new;
	return 0;
}

int pool_region_adopt(struct pool_region *r, void *at, uint64_t size)
{
	const struct pool_superblock *sb = at;
	struct pool_region new = {.at = at, .size = size};

	if (size < POOL_MIN_SIZE)
		return -EINVAL;
	if (memcmp(sb->magic, POOL_MAGIC, sizeof(sb->magic)) != 0 || sb->version != POOL_VERSION)
		return -EPROTO;
	if (sb->check != check_of(sb))
		return -EBADMSG;
	if (sb->size != size)
		return -EINVAL;
	new.address = sb->address;
	new.key = sb->key;
	new.max_clients = sb->max_clients;
	new.num_buckets = sb->num_buckets;
	memcpy(new.uuid, sb->uuid, sizeof(new.uuid));
	memcpy(new.name_key, sb->name_key, sizeof(new.name_key));
	if (lay_out(&new) != 0)
		return -EBADMSG;
	*r = new;
	return 0;
}

/* ---- mapping --------------------------------------------------------------------- */

/* Quotes the line of /proc/self/maps about the memory that is in the way. */
static void quote_mapping(uint64_t address, uint64_t size, char *why, size_t room)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	uint64_t from, to;
	char line[512];

	snprintf(why, room, "%#" PRIx64 " to %#" PRIx64 " is taken", address, address + size);
	if (!maps)
		return;
	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &from, &to) != 2)
			continue;
		if (from >= address + size || to <= address)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(why, room, "%#" PRIx64 " to %#" PRIx64 " is taken, by %s", address,
			 address + size, line);
		break;
	}
	fclose(maps);
}

int pool_region_map(uint64_t address, uint64_t size, char *why, size_t room)
{
	void *want = (void *)(uintptr_t)address;
	void *got = mmap(want, size, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	int rc = got == MAP_FAILED ? -errno : 0;

	if (rc == 0 && got == want)
		return 0;
	if (rc == 0) /* an old kernel takes the address only as a hint */
		munmap(got, size);
	if (rc == 0 || rc == -EEXIST)
		rc = -EADDRINUSE;
	if (why && rc == -EADDRINUSE)
		quote_mapping(address, size, why, room);
	else if (why)
		snprintf(why, room, "%" PRIu64 " bytes at %#" PRIx64 ": %s", size, address,
			 strerror(-rc));
	return rc;
}

void pool_region_unmap(uint64_t address, uint64_t size)
{
	munmap((void *)(uintptr_t)address, size);
}
