/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * preload.h - the library that makes a program's verbs ours: of stag, and of stagd.
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
 * find looks at chosen (NULL: nothing was), at STAG_LIB, where stag is installed,
 * and in the build tree; it says on stderr where it looked when it is nowhere.
 */
int preload_find(const char *chosen, char *path, size_t size);
/* The same, and says nothing but why (-errno), in the caller's memory. */
int preload_look(const char *chosen, char *path, size_t size, char *why, size_t room);
/* What LD_PRELOAD is with it, behind what is there already (NULL: nothing); the caller frees. NULL: no memory. */
char *preload_words(const char *old, const char *library);
int preload_set(const char *library); /* LD_PRELOAD, behind what is there already */
/* Runs this program once more, with the adapter: returns where it is there already, or cannot be had. */
int preload_program(char **argv);
int preload_self(int argc, char **argv); /* the same of a command of stag's; argv[0]: its name */

#endif
