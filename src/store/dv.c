// SPDX-License-Identifier: BSD-2-Clause
/* dv.c - the software adapter's storage, if the program has it. */
#include "store/endpoint.h"

#include <errno.h>
#include <string.h>

#include "base/lock.h"

const struct dv *dv_get(void)
{
	const struct dv *dv = dv_find();

	if (!dv)
		store_fail(EOPNOTSUPP,
			   "storage needs the software adapter: run it with 'stag run --'");
	return dv;
}

int dv_check_device(const struct dv *dv, const struct ibv_context *context)
{
	return dv->is_supported(context->device)
		       ? 0
		       : store_fail(EOPNOTSUPP, "%s: storage needs the software adapter",
				    ibv_get_device_name(context->device));
}

/* Like librdmacm's: one for the process, never freed. */
struct ibv_pd *dv_default_pd(const struct dv *dv)
{
	static struct lock lock = LOCK_INITIALIZER;
	static struct ibv_pd *pd;
	struct ibv_context *context;

	HOLD_FOR_SCOPE(&lock);
	if (pd)
		return pd;
	context = dv_open_first(dv);
	pd = context ? ibv_alloc_pd(context) : NULL;
	if (context && !pd)
		ibv_close_device(context);
	if (!pd)
		store_fail(ENODEV, "the software adapter has no device");
	return pd;
}

struct stagdv_medium *dv_open_medium(const struct dv *dv, struct ibv_context *context,
				     const struct stag_store *store, uint64_t staging_bytes,
				     uint64_t cache_bytes)
{
	struct stagdv_medium_attr attr = {.fd = store->backing.fd,
					  .flags = STAGDV_MEDIUM_SHARED,
					  .staging_bytes = staging_bytes,
					  .cache_bytes = cache_bytes};
	struct stagdv_medium *m = dv->open_medium(context, &attr);
	int error = errno;

	if (!m)
		store_fail(error, "%s: cannot be used as a medium: %s", store->backing.name,
			   strerror(error));
	errno = error;
	return m;
}

int dv_add_counters(const struct dv *dv, struct stagdv_medium *medium,
		    struct stag_store_counters *sum)
{
	struct stagdv_medium_counters c = {0};
	int rc = dv->query_medium(medium, &c, sizeof(c));

	if (rc != 0)
		return store_fail(rc, "cannot query the counters of a medium: %s", strerror(rc));
	sum->reads += c.reads;
	sum->writes += c.writes;
	sum->flushes += c.flushes;
	sum->atomics += c.atomics;
	sum->read_bytes += c.read_bytes;
	sum->written_bytes += c.written_bytes;
	sum->errors += c.errors;
	sum->cache_hits += c.cache_hits;
	sum->cache_misses += c.cache_misses;
	sum->cache_bytes += c.cache_bytes;
	stag_histogram_add(&sum->read_times, &c.read_times);
	stag_histogram_add(&sum->write_times, &c.write_times);
	stag_histogram_add(&sum->flush_times, &c.flush_times);
	return 0;
}
