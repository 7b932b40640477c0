// SPDX-License-Identifier: BSD-2-Clause
/*
 * units_dv.c - the software adapter, where the program has it.
 *
 * libstag is linked to no adapter: units are there if the program was run with it (`stag run`), or linked to it.
 */
#include "block/lun.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

static struct units_dv found;
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
		{"stagdv_wr_barrier", (void **)&found.barrier},
	};

	complete = true;
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		*calls[i].to = dlsym(RTLD_DEFAULT, calls[i].name);
		if (!*calls[i].to)
			complete = false;
	}
}

const struct units_dv *units_dv(void)
{
	pthread_once(&once, find);
	if (complete)
		return &found;
	block_fail(EOPNOTSUPP,
		   "logical units need the software adapter: run it with 'stag run --'");
	return NULL;
}
