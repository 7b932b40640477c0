// SPDX-License-Identifier: BSD-2-Clause
/*
 * memory.c - the memory of a node: the region, mapped and registered for clients, and its lease; the log.
 *
 * The region is registered as soon as it is there, and open to nobody: its lease is over until the role says
 * something else, and no client has a queue pair in its protection domain. An adapter that knows no leases has the latter only;
 * there clients ask before they believe what they have read (protocol.h).
 */
#include "pool/node/node.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <openssl/rand.h>

#include "base/log.h"

#define LEASE_NONE 0u
#define LEASE_OVER 1u

static int register_region(struct stag_pool_node *n)
{
	const struct pool_region *r = &n->region;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, rc;

	if (n->dv)
		n->region_mr =
			n->dv->reg_keyed(n->pd, r->at, r->size, (unsigned int)access, r->key);
	/* Where the pool's key is another's, or keys cannot be chosen, clients are told which one it is here. */
	if (!n->region_mr)
		n->region_mr = ibv_reg_mr(n->pd, r->at, r->size, access);
	rc = n->region_mr ? memory_lease(n, 0) : -errno;
	if (rc != 0)
		node_tell(n, LOG_LEVEL_ERR, "the memory cannot be registered: %s", strerror(-rc));
	return rc;
}

static int map(struct stag_pool_node *n, uint64_t address, uint64_t size)
{
	char why[512];
	int rc = pool_region_map(address, size, why, sizeof(why));

	if (rc != 0)
		node_tell(n, LOG_LEVEL_ERR, "the pool's memory: %s", why);
	n->mapped = rc == 0;
	n->format.address = address;
	n->format.size = size;
	return rc;
}

static void save_key(struct stag_pool_node *n)
{
	n->state.key = n->region.key;
	memcpy(n->state.uuid, n->region.uuid, sizeof(n->state.uuid));
	saver_save(&n->saver, &n->state);
}

/* The upper 24 bits are not zero: no adapter that lets us choose would take that. */
static int choose_key(struct stag_pool_node *n)
{
	if (n->dv)
		return -n->dv->choose_key(n->context, &n->format.key);
	do {
		if (RAND_bytes((unsigned char *)&n->format.key, sizeof(n->format.key)) != 1)
			return -EIO;
	} while (n->format.key >> 8 == 0);
	return 0;
}

int memory_create(struct stag_pool_node *n)
{
	int rc = choose_key(n);

	if (rc == 0)
		rc = map(n, n->format.address, n->format.size);
	if (rc == 0)
		rc = pool_region_format(&n->region, (void *)(uintptr_t)n->format.address,
					&n->format);
	if (rc == 0)
		rc = register_region(n);
	if (rc == 0)
		save_key(n);
	return rc;
}

int memory_join(struct stag_pool_node *n, const struct link_facts *facts)
{
	struct pool_superblock sb = {0};
	int rc;

	if (n->mapped)
		return memcmp(n->region.at, facts->superblock, POOL_FIXED) == 0 ? 0 : -ESTALE;
	memcpy(&sb, facts->superblock, POOL_FIXED);
	if (sb.size < POOL_MIN_SIZE || sb.size > POOL_MAX_SIZE)
		return -EPROTO;
	rc = map(n, sb.address, sb.size);
	if (rc != 0)
		return rc;
	memcpy((void *)(uintptr_t)sb.address, facts->superblock, POOL_FIXED);
	rc = pool_region_adopt(&n->region, (void *)(uintptr_t)sb.address, sb.size);
	if (rc == 0)
		rc = register_region(n);
	if (rc == 0)
		save_key(n);
	else
		memory_destroy(n);
	return rc;
}

void memory_destroy(struct stag_pool_node *n)
{
	if (n->region_mr)
		ibv_dereg_mr(n->region_mr);
	if (n->mapped)
		pool_region_unmap(n->format.address, n->format.size);
	if (n->log.at)
		munmap(n->log.at, n->log.size);
	n->region_mr = NULL;
	n->mapped = false;
	n->log.at = NULL;
}

int memory_lease(struct stag_pool_node *n, uint64_t until)
{
	uint64_t lease = until == 0 ? LEASE_OVER : until == LEASE_FOREVER ? LEASE_NONE : until;

	return n->region_mr && n->dv ? -n->dv->set_lease(n->region_mr, lease) : 0;
}

/* Where the next record goes is of no consequence: each standby is told. */
int memory_log(struct stag_pool_node *n)
{
	if (!n->log.at) {
		void *at = mmap(NULL, n->log_size, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			return -errno;
		n->log.at = at;
		n->log.size = n->log_size;
	}
	n->log.put = n->log.tail = n->settled = 0;
	return 0;
}

/* The record at the log's settled position, or beyond what is left at the ring's end. */
static const struct pool_record *next_record(struct stag_pool_node *n, uint64_t *left)
{
	const struct pool_record *record;

	for (;;) {
		uint64_t at = n->settled & (n->log.size - 1);

		*left = n->log.size - at;
		record = (const struct pool_record *)(n->log.at + at);
		if (*left >= sizeof(*record) && !(record->flags & POOL_RECORD_SKIP))
			return record;
		n->settled += *left;
	}
}

int memory_settle(struct stag_pool_node *n, uint64_t number)
{
	const struct pool_superblock *sb = pool_superblock(&n->region);
	const struct pool_staging staging = staging_own(n);

	while (sb->number < number) {
		const struct pool_record *record;
		uint64_t left;
		int rc;

		if (n->settled >= n->log.put)
			return -EPROTO;
		record = next_record(n, &left);
		rc = pool_settle(&n->core, record, left, &staging);
		if (rc != 0)
			return rc;
		n->settled += record->length;
	}
	return 0;
}
