// SPDX-License-Identifier: BSD-2-Clause
/* next.c - finds the C library's functions. */
#include "found/next.h"

#include <dlfcn.h>
#include <errno.h>

#include "found/found.h"

struct next_functions next_table;

void *next_find(void *place, const char *name)
{
	int saved = errno;
	void *function = dlsym(RTLD_NEXT, name);

	__atomic_store_n((void **)place, function, __ATOMIC_RELAXED);
	errno = saved;
	return function;
}

/* A signal handler may call these functions, and must not have to look one up: dlsym() takes a lock. */
__attribute__((constructor)) static void find_all(void)
{
#define NEXT_FIND(type, name, args) next_find(&next_table.name, #name);
	NEXT_FUNCTIONS(NEXT_FIND)
#undef NEXT_FIND
}
