// SPDX-License-Identifier: BSD-2-Clause
/*
 * dlopen.c - dlopen() of libibverbs or librdmacm gives libstag-verbs.so, which has the functions of both.
 *
 * All other calls go on to the C library by a jump: it looks at its return address to find out who calls, and with it in whose
 * RUNPATH to search. tests/found checks that.
 */
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/export.h"
#include "found/found.h"
#include "found/next.h"

/* Is it a name of this library: plain (libibverbs.so), of an ABI (libibverbs.so.1), or of a version (libibverbs.so.1.14.44.0)? */
static bool is_named(const char *name, const char *library)
{
	size_t len = strlen(library);

	if (strncmp(name, library, len) != 0)
		return false;
	return !name[len] ||
	       (strncmp(name + len, ".1", 2) == 0 && (!name[len + 2] || name[len + 2] == '.'));
}

/* Is it libibverbs or librdmacm, by its name or by the path of a file that exists? */
static bool is_replaced(const char *file)
{
	const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;

	if (!is_named(name, "libibverbs.so") && !is_named(name, "librdmacm.so"))
		return false;
	return !slash || NEXT(access)(file, F_OK) == 0;
}

/* Finds the file of libstag-verbs.so. NULL if the process has not loaded it, or has it in the program itself. */
static const char *verbs_library(void)
{
	void *ours = dlsym(RTLD_DEFAULT, "stagdv_is_supported");
	struct link_map *map;
	Dl_info at;

	if (!ours || !dladdr1(ours, &at, (void **)&map, RTLD_DL_LINKMAP))
		return NULL;
	return *map->l_name ? map->l_name : NULL;
}

/* Returns the file to load in place of another one. Preserves errno. */
__attribute__((noinline)) static const char *replaced(const char *file)
{
	int saved = errno;
	const char *ours = is_replaced(file) ? verbs_library() : NULL;

	errno = saved;
	return ours ? ours : file;
}

STAG_EXPORT void *found_dlopen(const char *file, int mode) __asm__("dlopen");

void *found_dlopen(const char *file, int mode)
{
	return NEXT(dlopen)(file ? replaced(file) : file, mode);
}

STAG_EXPORT void *stag_found_next_dlopen(const char *file, int mode)
{
	return NEXT(dlopen)(file, mode);
}
