// SPDX-License-Identifier: BSD-2-Clause
/*
 * region.c - a partition as a region: registered, and updated with the table.
 *
 * The rights of its user are the region's access: when they are withdrawn, the next work request
 * fails because its key does not allow it.
 */
#include "store/endpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

static unsigned int access_flags(enum stag_store_access access)
{
	switch (access) {
	case STAG_STORE_NONE:
		return 0;
	case STAG_STORE_READ:
		return IBV_ACCESS_REMOTE_READ;
	case STAG_STORE_WRITE:
		return IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
	}
	return 0;
}

static struct stagdv_store_attr attr_of(const struct region *r)
{
	return (struct stagdv_store_attr){
		.offset = r->now.offset,
		.length = r->now.size,
		.access = access_flags(r->access),
		.relax = r->now.relax,
		.level = r->now.level,
		.cache_ms = r->now.cache_ms,
	};
}

/* Reduces access to reads if this process has no permission to write the file. */
static enum stag_store_access limit_access(enum stag_store_access access,
					   const struct stag_store *store)
{
	return access == STAG_STORE_WRITE && !store->backing.writable ? STAG_STORE_READ : access;
}

/* ---- reservations ------------------------------------------------------------------ */

/* The bytes of a partition, which nobody can remove meanwhile; shared by all regions of a server. */
struct reserve {
	struct list link; /* in the store's reserved */
	uint64_t id, offset, size;
	int fd; /* has the lock */
	unsigned int users;
};

static void reserve_put(struct reserve *v)
{
	if (!v || --v->users)
		return;
	close(v->fd);
	list_del(&v->link);
	free(v);
}

static struct reserve *find_reserve(struct stag_store *store, const struct stag_store_partition *p)
{
	list_for_each_safe (it, &store->reserved) {
		struct reserve *v = list_entry(it, struct reserve, link);

		if (v->id == p->id && v->offset == p->offset && v->size == p->size)
			return v;
	}
	return NULL;
}

static int add_reserve(struct stag_store *store, struct stag_store_partition *p,
		       struct reserve **out)
{
	struct reserve *v = calloc(1, sizeof(*v));
	int fd = v ? store_use(store, p->id, p) : store_fail(ENOMEM, "no memory");

	if (fd < 0) {
		free(v);
		return fd;
	}
	*v = (struct reserve){
		.id = p->id, .offset = p->offset, .size = p->size, .fd = fd, .users = 1};
	list_add_tail(&store->reserved, &v->link);
	*out = v;
	return 0;
}

/* Reserves the partition, as the table has it now; updates p. */
static int reserve_get(struct stag_store *store, struct stag_store_partition *p,
		       struct reserve **out)
{
	const struct stag_store_partition *now = table_find_id(&store->now.table, p->id);
	struct reserve *v = now ? find_reserve(store, now) : NULL;

	if (!v)
		return add_reserve(store, p, out);
	*p = *now;
	v->users++;
	*out = v;
	return 0;
}

/* ---- open and close ---------------------------------------------------------------- */

void region_close(struct region *r)
{
	if (r->mr)
		ibv_dereg_mr(r->mr);
	reserve_put(r->reserve);
	r->mr = NULL;
	r->reserve = NULL;
}

/* Detects a truncated file, for which registration would fail without a clear reason. */
static int check_is_there(const struct stag_store *store, const struct stag_store_partition *p)
{
	uint64_t present;
	int rc = backing_size(&store->backing, &present);

	if (rc != 0)
		return rc;
	if (p->offset <= present && p->size <= present - p->offset)
		return 0;
	return store_fail(EIO,
			  "%s: ends at %" PRIu64 ", before the end of partition %s: it was "
			  "truncated; see 'stag store check'",
			  store->backing.name, present, p->name);
}

static int check_access(struct region *r, const struct stag_store *store, region_rights_fn rights,
			void *arg)
{
	r->access = limit_access(rights(arg, store, &r->now), store);
	if (r->access != STAG_STORE_NONE)
		return 0;
	return store_fail(EACCES, "%s: partition %s: no right to it", store->backing.name,
			  r->now.name);
}

/*
 * Finds the partition and checks the rights to it. One that does not exist is handled as one without
 * rights is, except for the error: a server's answer takes the same time.
 */
static int find_allowed(struct region *r, struct stag_store *store, const char *name,
			region_rights_fn rights, void *arg)
{
	int rc = -stag_store_find(store, name, &r->now), allowed;

	if (rc != 0)
		r->now = (struct stag_store_partition){.num_rights = 0};
	allowed = check_access(r, store, rights, arg);
	if (rc == -ENOENT)
		return store_fail(ENOENT, "%s: has no partition %s", store->backing.name, name);
	return rc != 0 ? rc : allowed;
}

int region_open(struct region *r, const struct dv *dv, struct stag_store *store, const char *name,
		region_rights_fn rights, void *arg)
{
	int rc = find_allowed(r, store, name, rights, arg);

	if (rc != 0)
		return rc;
	r->dv = dv;
	r->gone = false;
	rc = reserve_get(store, &r->now, &r->reserve);
	if (rc != 0)
		return rc;
	rc = check_access(r, store, rights, arg); /* it may have changed meanwhile */
	if (rc == 0)
		rc = check_is_there(store, &r->now);
	if (rc != 0)
		region_close(r);
	return rc;
}

int region_register(struct region *r, const struct stag_store *store, struct ibv_pd *pd,
		    struct stagdv_medium *medium)
{
	struct stagdv_store_attr attr = attr_of(r);

	r->mr = r->dv->reg_mr(pd, medium, &attr);
	if (r->mr)
		return 0;
	return store_fail(errno, "%s: partition %s: cannot register it: %s", store->backing.name,
			  r->now.name, strerror(errno));
}

/* ---- changes ---------------------------------------------------------------------------- */

/* Locks the range that was added to a partition, then allows access to it. */
static void follow_size(struct region *r, struct stag_store *store, uint64_t size)
{
	struct stag_store_partition p = r->now;
	struct reserve *more;

	if (size <= r->now.size || reserve_get(store, &p, &more) != 0)
		return;
	reserve_put(r->reserve);
	r->reserve = more;
	r->now.size = p.size;
}

static void apply(struct region *r, int mask)
{
	struct stagdv_store_attr attr = attr_of(r);
	int rc = r->dv->modify_mr(r->mr, &attr, mask);

	if (rc != 0)
		log_warn("store: partition %s: cannot apply its new settings: %s", r->now.name,
			 strerror(rc));
}

static void close_to_all(struct region *r)
{
	r->gone = true;
	r->access = STAG_STORE_NONE;
	apply(r, STAGDV_STORE_ACCESS);
	log_info("store: partition %s was removed", r->now.name);
}

static void log_region(const struct region *r, const struct stag_store_partition *p,
		       enum stag_store_access access)
{
	if (access != r->access)
		log_info("store: partition %s: access of its user is now %d, was %d", p->name,
			 access, r->access);
	if (p->relax != r->now.relax || p->level != r->now.level || p->cache_ms != r->now.cache_ms)
		log_info("store: partition %s: new settings: order 0x%x, level %u, cache %u ms",
			 p->name, p->relax, p->level, p->cache_ms);
}

void region_update(struct region *r, struct stag_store *store, region_rights_fn rights, void *arg)
{
	const struct stag_store_partition *p =
		store ? table_find_id(&store->now.table, r->now.id) : NULL;
	enum stag_store_access access;
	uint64_t size = r->now.size;

	if (r->gone)
		return;
	if (!p || p->offset != r->now.offset) {
		close_to_all(r);
		return;
	}
	access = limit_access(rights(arg, store, p), store);
	log_region(r, p, access);
	follow_size(r, store, p->size);
	p = table_find_id(&store->now.table, r->now.id);
	size = r->now.size;
	if (p)
		r->now = *p;
	r->now.size = size;
	r->access = access;
	apply(r, STAGDV_STORE_ACCESS | STAGDV_STORE_RELAX | STAGDV_STORE_LEVEL |
			 STAGDV_STORE_CACHE | STAGDV_STORE_LENGTH);
}
