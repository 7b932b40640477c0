// SPDX-License-Identifier: BSD-2-Clause
/*
 * memory.c - the memory of a node: the region, mapped and registered for clients, its lease, and the log.
 *
 * The region is registered as soon as it exists, but no client can access it: its lease is over until the role
 * grants one, and no client has a queue pair in its protection domain. An adapter without leases has only the
 * latter protection; there clients confirm with the node what they have read (protocol.h). Clients that may not read
 * have their queue pairs in another domain, in which the region has no remote access.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include <openssl/rand.h>

#include "base/log.h"

#define LEASE_NONE 0u /* access is not limited in time */
#define LEASE_OVER 1u /* a time that has passed */

static int register_region(struct stag_pool_node *n)
{
	const struct pool_region *r = &n->memory.region;
	struct ibv_pd *pd = n->adapter.pd[DOMAIN_READERS];
	struct ibv_mr *mr = NULL;
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, rc;

	if (n->adapter.dv)
		mr = n->adapter.dv->reg_keyed(pd, r->at, r->size, (unsigned int)access, r->key);
	/*
	 * If the pool's key is taken, or the adapter does not let us choose keys, clients are told the key of this
	 * node.
	 */
	if (!mr)
		mr = ibv_reg_mr(pd, r->at, r->size, access);
	n->memory.region_mr[DOMAIN_READERS] = mr;
	rc = mr ? memory_lease(n, 0) : -errno;
	if (rc != 0)
		node_log(n, LOG_LEVEL_ERR, "the memory cannot be registered: %s", strerror(-rc));
	return rc;
}

int memory_open_for(struct stag_pool_node *n, enum node_domain domain)
{
	const struct pool_region *r = &n->memory.region;

	if (!n->memory.region_mr[domain])
		n->memory.region_mr[domain] = ibv_reg_mr(n->adapter.pd[domain], r->at, r->size, 0);
	return n->memory.region_mr[domain] ? 0 : -errno;
}

static int map_region(struct stag_pool_node *n, uint64_t address, uint64_t size)
{
	char why[512];
	int rc = pool_region_map(address, size, why, sizeof(why));

	if (rc != 0)
		node_log(n, LOG_LEVEL_ERR, "the pool's memory: %s", why);
	n->memory.mapped = rc == 0;
	n->conf.format.address = address;
	n->conf.format.size = size;
	return rc;
}

static void save_key(struct stag_pool_node *n)
{
	n->disk.state.key = n->memory.region.key;
	memcpy(n->disk.state.uuid, n->memory.region.uuid, sizeof(n->disk.state.uuid));
	saver_save(&n->disk.saver, &n->disk.state);
}

/* Chooses the key of the names' hash, and that of pointers, whose upper 24 bits must not be zero: adapters reserve such keys. */
static int choose_keys(struct stag_pool_node *n)
{
	if (RAND_bytes((unsigned char *)n->conf.format.name_key, sizeof(n->conf.format.name_key)) !=
	    1)
		return -EIO;
	if (n->adapter.dv)
		return -n->adapter.dv->choose_key(n->adapter.context, &n->conf.format.key);
	do {
		if (RAND_bytes((unsigned char *)&n->conf.format.key, sizeof(n->conf.format.key)) !=
		    1)
			return -EIO;
	} while (n->conf.format.key >> 8 == 0);
	return 0;
}

int memory_create(struct stag_pool_node *n)
{
	int rc = choose_keys(n);

	if (rc == 0)
		rc = map_region(n, n->conf.format.address, n->conf.format.size);
	if (rc == 0)
		rc = pool_region_format(&n->memory.region,
					(void *)(uintptr_t)n->conf.format.address, &n->conf.format);
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

	if (n->memory.mapped)
		return memcmp(n->memory.region.at, facts->superblock, POOL_FIXED) == 0 ? 0
										       : -ESTALE;
	memcpy(&sb, facts->superblock, POOL_FIXED);
	if (sb.size < POOL_MIN_SIZE || sb.size > POOL_MAX_SIZE)
		return -EPROTO;
	rc = map_region(n, sb.address, sb.size);
	if (rc != 0)
		return rc;
	memcpy((void *)(uintptr_t)sb.address, facts->superblock, POOL_FIXED);
	rc = pool_region_adopt(&n->memory.region, (void *)(uintptr_t)sb.address, sb.size);
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
	for (unsigned int d = 0; d < NODE_DOMAINS; d++) {
		if (n->memory.region_mr[d])
			ibv_dereg_mr(n->memory.region_mr[d]);
		n->memory.region_mr[d] = NULL;
	}
	if (n->memory.mapped)
		pool_region_unmap(n->conf.format.address, n->conf.format.size);
	if (n->memory.log.at)
		munmap(n->memory.log.at, n->memory.log.size);
	n->memory.mapped = false;
	n->memory.log.at = NULL;
}

int memory_lease(struct stag_pool_node *n, uint64_t until)
{
	uint64_t lease = until == 0 ? LEASE_OVER : until == LEASE_FOREVER ? LEASE_NONE : until;
	struct ibv_mr *mr = n->memory.region_mr[DOMAIN_READERS];

	return mr && n->adapter.dv ? -n->adapter.dv->set_lease(mr, lease) : 0;
}

/* Empties the log. Its positions start from 0 again: the welcome tells each standby where records begin. */
int memory_log(struct stag_pool_node *n)
{
	if (!n->memory.log.at) {
		void *at = mmap(NULL, n->conf.log_size, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (at == MAP_FAILED)
			return -errno;
		n->memory.log.at = at;
		n->memory.log.size = n->conf.log_size;
	}
	n->memory.log.put = n->memory.log.tail = n->memory.settled = 0;
	return 0;
}

/* Returns the record at the settled position of the log, skipping what is left at the end of the ring. */
static const struct pool_record *next_record(struct stag_pool_node *n, uint64_t *left)
{
	const struct pool_record *record;

	for (;;) {
		uint64_t at = n->memory.settled & (n->memory.log.size - 1);

		*left = n->memory.log.size - at;
		record = (const struct pool_record *)(n->memory.log.at + at);
		if (*left >= sizeof(*record) && !(record->flags & POOL_RECORD_SKIP))
			return record;
		n->memory.settled += *left;
	}
}

int memory_settle(struct stag_pool_node *n, uint64_t number)
{
	const struct pool_superblock *sb = pool_superblock(&n->memory.region);
	const struct pool_staging staging = node_staging_own(n);

	while (sb->number < number) {
		const struct pool_record *record;
		uint64_t left;
		int rc;

		if (n->memory.settled >= n->memory.log.put)
			return -EPROTO;
		record = next_record(n, &left);
		rc = pool_settle(&n->serve.core, record, left, &staging);
		if (rc != 0)
			return rc;
		n->memory.settled += record->length;
	}
	return 0;
}
