// SPDX-License-Identifier: BSD-2-Clause
/*
 * dv.c - the software adapter, where the program has it.
 *
 * libstag is linked to no adapter: its storage is there if the program was run with it (`stag run`), or linked to it.
 */
#include "store/endpoint.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/cleanup.h"

static struct dv found;
static bool complete;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void)
{
	const struct {
		const char *name;
		void **to;
	} calls[] = {
		{"stagdv_is_supported", (void **)&found.is_supported},
		{"stagdv_open_medium", (void **)&found.open_medium},
		{"stagdv_close_medium", (void **)&found.close_medium},
		{"stagdv_reg_store_mr", (void **)&found.reg_mr},
		{"stagdv_modify_store_mr", (void **)&found.modify_mr},
		{"stagdv_connect_store", (void **)&found.connect},
		{"stagdv_modify_store_qp", (void **)&found.modify_qp},
	};

	complete = true;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		*calls[i].to = dlsym(RTLD_DEFAULT, calls[i].name);
		if (!*calls[i].to)
			complete = false;
	}
}

const struct dv *dv_get(void)
{
	pthread_once(&once, find);
	if (complete)
		return &found;
	store_fail(EOPNOTSUPP, "storage needs the software adapter: run it with 'stag run --'");
	return NULL;
}

int dv_check_device(const struct dv *dv, const struct ibv_context *context)
{
	return dv->is_supported(context->device)
		       ? 0
		       : store_fail(EOPNOTSUPP, "%s: storage needs the software adapter",
				    ibv_get_device_name(context->device));
}

static struct ibv_context *open_first(const struct dv *dv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list && list[i] && !context; i++)
		if (dv->is_supported(list[i]))
			context = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	return context;
}

/* As librdmacm's: one for the process, while it lasts. */
struct ibv_pd *dv_default_pd(const struct dv *dv)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct ibv_pd *pd;
	struct ibv_context *context;

	LOCK_FOR_SCOPE(&lock);
	if (pd)
		return pd;
	context = open_first(dv);
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
