// SPDX-License-Identifier: BSD-2-Clause
/*
 * real.c - rdma-core's librdmacm, for processes that chose it (see cm.h).
 *
 * Functions are looked up by name and version in the library itself: a lookup by name alone would
 * find ours.
 */
#include "cm/cm.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "verbs/verbs.h"

static unsigned resolve(void *lib, const char *name, const char *version, void **out)
{
	*out = lib ? dlvsym(lib, name, version) : NULL;
	return *out ? 0 : 1;
}

unsigned real_cm_resolve(struct real_cm *table)
{
	void *lib = real_library("librdmacm.so.1", RTLD_NOW | RTLD_LOCAL);
	unsigned missing = 0;

#define RESOLVE(name, version)                                                                     \
	missing += resolve(lib, "rdma_" #name, version, (void **)&table->name);
	REAL_CM_FUNCTIONS(RESOLVE)
#undef RESOLVE
#define RESOLVE(name, version) resolve(lib, "rdma_" #name, version, (void **)&table->name);
	NEWER_CM_FUNCTIONS(RESOLVE)
#undef RESOLVE
	return missing;
}

static struct real_cm the_table;
static const struct real_cm *chosen;

static void choose(void)
{
	const char *want = secure_getenv("STAG_CM");
	unsigned missing;

	if (!want || strcmp(want, "real") != 0 || !real_devices_exist())
		return;
	missing = real_cm_resolve(&the_table);
	if (missing) {
		log_warn("cm: STAG_CM=real is ignored: librdmacm.so.1 lacks %u functions", missing);
		return;
	}
	chosen = &the_table;
}

const struct real_cm *real_cm(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, choose);
	return chosen;
}
