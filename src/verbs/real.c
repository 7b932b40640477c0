// SPDX-License-Identifier: BSD-2-Clause
/*
 * real.c - rdma-core's libibverbs, for devices that are not ours.
 *
 * This library precedes the real one in the search order, so a plain dlsym() would find this
 * library. The real one is opened by name (a program that is linked with it has it loaded
 * already, and gets another handle), and each function is looked up in that handle under its
 * version. Calls of the real library to its own functions come here first, name a real device,
 * and are passed back.
 *
 * Programs that open the real library by its name get this one, from libstag-found.so (see src/found): the search for the real
 * one goes past that.
 */
#include "verbs/verbs.h"

#include <dlfcn.h>
#include <string.h>

static struct real_verbs table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

void *real_library(const char *soname, int mode)
{
	void *(*next)(const char *, int) = dlsym(RTLD_DEFAULT, "stag_found_next_dlopen");

	return next ? next(soname, mode) : dlopen(soname, mode);
}

static void load(void)
{
	void *lib = real_library("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);

	if (!lib) {
		log_info("verbs: cannot load the real libibverbs: %s", dlerror());
		return;
	}
#define REAL_LOOKUP(name, version) *(void **)&table.name = dlvsym(lib, "ibv_" #name, version);
	REAL_FUNCTIONS(REAL_LOOKUP)
#undef REAL_LOOKUP
	*(void **)&table.query_gid_ex = dlvsym(lib, "_ibv_query_gid_ex", "IBVERBS_1.11");
	*(void **)&table.query_gid_table = dlvsym(lib, "_ibv_query_gid_table", "IBVERBS_1.11");
	*(void **)&table.query_comp_cntr_caps =
		dlvsym(lib, "_ibv_query_comp_cntr_caps", "IBVERBS_1.18");
	*(void **)&table.query_gid_type = dlsym(lib, "ibv_query_gid_type");

	/* This library is installed under that name: there is no real one. */
	if (table.get_device_list == ibv_get_device_list)
		memset(&table, 0, sizeof(table));
}

const struct real_verbs *real(void)
{
	pthread_once(&once, load);
	return &table;
}
