/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * preload.h - finds libstag-verbs.so and its companion, and has them loaded into programs by LD_PRELOAD.
 */
#ifndef STAG_APP_PRELOAD_H
#define STAG_APP_PRELOAD_H

#include <stddef.h>

#include "complain.h"

/*
 * Finds the first of n paths, relative to the directory of this executable, that access(2) grants mode for; path takes PATH_MAX
 * bytes. Returns -ENOENT if there is none.
 */
int find_beside_executable(const char *const *places, size_t n, int mode, char *path);

/*
 * Finds the library: chosen, if not NULL; or STAG_LIB; or where stag is installed, or in the build tree. Returns -errno
 * after it has complained.
 */
int preload_find(const char *chosen, char *path, size_t size);
/* Likewise, but stores the reason of a failure in why. */
int preload_look(const char *chosen, char *path, size_t size, char *why, size_t room);
/*
 * Finds libstag-found.so, by which programs find devices with dlopen() and in /sys. library is the absolute path of the
 * libstag-verbs.so that it belongs to; path takes PATH_MAX bytes. Returns -ENOENT if it is not there.
 */
int preload_find_companion(const char *library, char *path);
/* Returns the value of LD_PRELOAD with the library added to the old one, which may be NULL. The caller frees it. NULL: out of memory. */
char *preload_words(const char *old, const char *library);
int preload_set(const char *library); /* adds it to LD_PRELOAD; returns -errno */
/* Executes this program again with the adapter. Returns 0 if the adapter is loaded already, -errno if it cannot be loaded. */
int preload_program(char **argv);
int preload_self(int argc, char **argv); /* likewise for a command of stag; argv[0] is its name */
/* Likewise for a command that serves: peers reach it on both devices of the adapter, unless STAG_DEVICE is set; log lines of the libraries, which read it when they are loaded, begin with the time. */
int preload_server(int argc, char **argv);
void preload_both_devices(
	void); /* for a program that serves: unless STAG_DEVICE is set; before preload_program() */

#endif
