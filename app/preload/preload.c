// SPDX-License-Identifier: BSD-2-Clause
/*
 * preload.c - finds libstag-verbs.so and its companion libstag-found.so, and has them loaded into programs (ld.so(8),
 * LD_PRELOAD).
 */
#include "preload.h"

#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define LIBRARY	  "libstag-verbs.so.0"
#define COMPANION "libstag-found.so.0"

/* Relative to the directory of the executable: installed, and in the build tree. */
static const char *const library_places[] = {STAG_EXE_TO_LIB "/" LIBRARY,
					     "../../src/verbs/" LIBRARY};
/* Relative to the directory of libstag-verbs.so. */
static const char *const companion_places[] = {COMPANION, "../found/" COMPANION};

static int find_file(const char *name, int mode, char *path)
{
	if (!realpath(name, path))
		return -errno;
	return access(path, mode) == 0 ? 0 : -errno;
}

static int find_chosen(const char *name, char *path, char *why, size_t room)
{
	int err = find_file(name, R_OK, path);

	if (err)
		snprintf(why, room, "cannot read the library %s: %s", name, strerror(-err));
	return err;
}

/* Finds the directory of this executable. */
static int own_directory(char *path, size_t size)
{
	char exe[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);

	if (n < 0)
		return -errno;
	exe[n] = '\0';
	return snprintf(path, size, "%s", dirname(exe)) < (int)size ? 0 : -ENAMETOOLONG;
}

int find_beside_executable(const char *const *places, size_t n, int mode, char *path)
{
	char dir[PATH_MAX], name[2 * PATH_MAX + 2];
	int err = own_directory(dir, sizeof(dir));

	for (size_t i = 0; err == 0 && i < n; i++) {
		snprintf(name, sizeof(name), "%s/%s", dir, places[i]);
		if (find_file(name, mode, path) == 0)
			return 0;
	}
	return err ? err : -ENOENT;
}

static int find_near_executable(char *path, char *why, size_t room)
{
	char dir[PATH_MAX];
	int err = own_directory(dir, sizeof(dir));

	if (err) {
		snprintf(why, room, "cannot find the path of this program: %s", strerror(-err));
		return err;
	}
	if (find_beside_executable(library_places, sizeof(library_places) / sizeof(*library_places),
				   R_OK, path) == 0)
		return 0;
	snprintf(why, room, LIBRARY " is neither in %s/%s nor in %s/%s; name it with STAG_LIB", dir,
		 STAG_EXE_TO_LIB, dir, "../../src/verbs");
	return -ENOENT;
}

int preload_look(const char *chosen, char *path, size_t size, char *why, size_t room)
{
	char found[PATH_MAX];
	const char *env = getenv("STAG_LIB");
	int err;

	if (chosen || (env && *env))
		err = find_chosen(chosen ? chosen : env, found, why, room);
	else
		err = find_near_executable(found, why, room);
	if (err)
		return err;
	if (strpbrk(found, " :")) {
		snprintf(why, room, "LD_PRELOAD cannot name %s: the path has a space or a colon",
			 found);
		return -EINVAL;
	}
	if (snprintf(path, size, "%s", found) < (int)size)
		return 0;
	snprintf(why, room, "%s: %s", found, strerror(ENAMETOOLONG));
	return -ENAMETOOLONG;
}

int preload_find(const char *chosen, char *path, size_t size)
{
	char why[2 * PATH_MAX];
	int err = preload_look(chosen, path, size, why, sizeof(why));

	if (err)
		complain("%s", why);
	return err;
}

int preload_find_companion(const char *library, char *path)
{
	char name[2 * PATH_MAX];
	int dir = (int)(strrchr(library, '/') - library);

	for (size_t i = 0; i < sizeof(companion_places) / sizeof(*companion_places); i++) {
		snprintf(name, sizeof(name), "%.*s/%s", dir, library, companion_places[i]);
		if (find_file(name, R_OK, path) == 0)
			return 0;
	}
	return -ENOENT;
}

/* Is word in a list that is divided by spaces and colons? */
static bool is_listed(const char *list, const char *word)
{
	size_t len = strlen(word);

	for (const char *p = list; (p = strstr(p, word)); p += len)
		if ((p == list || strchr(" :", p[-1])) && strchr(" :", p[len]))
			return true;
	return false;
}

/* Adds a word at the front or the end of a list, unless it is in it. Frees the list; returns the new one, or NULL if memory runs out. */
static char *add_to_list(char *list, const char *word, bool in_front)
{
	CLEANUP_FREE char *old = list;
	char *longer = NULL;

	if (!old || is_listed(old, word)) {
		old = NULL;
		return list;
	}
	if (!*old)
		return strdup(word);
	return asprintf(&longer, "%s:%s", in_front ? word : old, in_front ? old : word) < 0
		       ? NULL
		       : longer;
}

char *preload_words(const char *old, const char *library)
{
	enum { BEHIND, IN_FRONT };
	char *list = strdup(old ? old : "");

	if (*STAG_SANITIZER) /* the runtime of a sanitizer must be loaded first */
		list = add_to_list(list, STAG_SANITIZER, IN_FRONT);
	return add_to_list(list, library, BEHIND);
}

int preload_set(const char *library)
{
	CLEANUP_FREE char *list = preload_words(getenv("LD_PRELOAD"), library);

	return list && setenv("LD_PRELOAD", list, 1) == 0 ? 0 : -ENOMEM;
}

/* By its path, so that lists of processes show its name; if its file was replaced meanwhile, as "exe". */
static void execute_again(char **argv)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	path[n > 0 ? n : 0] = '\0';
	execv(path, argv);
	execv("/proc/self/exe", argv);
}

int preload_program(char **argv)
{
	char library[PATH_MAX];
	const char *preload = getenv("LD_PRELOAD");

	if (dlsym(RTLD_DEFAULT, "stagdv_connect_store"))
		return 0;
	if (preload_find(NULL, library, sizeof(library)) != 0)
		return -ENOENT;
	if (preload && strstr(preload, library)) {
		complain("%s cannot be loaded", library);
		return -ENOENT;
	}
	if (preload_set(library) == 0)
		execute_again(argv);
	complain("cannot execute this program with %s: %s", library, strerror(errno));
	return -errno;
}

int preload_self(int argc, char **argv)
{
	char *again[argc + 2];

	again[0] = "stag";
	memcpy(again + 1, argv, ((size_t)argc + 1) * sizeof(*argv));
	return preload_program(again);
}

void preload_both_devices(void)
{
	setenv("STAG_DEVICE", "both", 0);
}

int preload_server(int argc, char **argv)
{
	char *again[argc + 2];
	int rc;

	preload_both_devices();
	if (getenv("STAG_LOG_TIME"))
		return preload_self(argc, argv);
	setenv("STAG_LOG_TIME", "utc", 1);
	rc = preload_self(argc, argv);
	if (rc != 0)
		return rc;
	again[0] = "stag";
	memcpy(again + 1, argv, ((size_t)argc + 1) * sizeof(*argv));
	execute_again(again);
	return -errno;
}
