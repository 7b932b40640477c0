// SPDX-License-Identifier: BSD-2-Clause
/*
 * paths.c - checks the paths in a request against the roots (access.h), and replaces them by what they lead to.
 *
 * Handlers read a path from the body only after this. The daemon may open files that the client may not: so a request names none
 * outside the directories that the INI file allows.
 */
#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"

/* Replaces the path by the one without symbolic links. Returns false after answering. */
static bool resolve(struct request *r, const char *path, enum path_use use, char **real)
{
	struct access *access = api_access(r->api);
	char why[WHY_MAX] = "";
	int rc = roots_resolve(access, path, real, why, sizeof(why));
	bool own = rc == 0 && use != PATH_OTHER && roots_is_own(access, *real);

	access_put(access);
	if (own)
		answer_fault(
			r, 403, "path_not_allowed",
			"use a file that is neither configuration, secret nor state of a daemon",
			"%s is a file of the daemon's own, and no storage", path);
	else if (rc == -EXDEV || rc == -EPERM || rc == -EACCES)
		answer_fault(r, 403, "path_not_allowed",
			     rc == -EXDEV
				     ? "add its directory with roots = DIRECTORY in the "
				       "section [api] of the INI file, then reload"
				     : "use a directory that only the daemon's user can change",
			     "%s", why);
	else if (rc == -ENOSYS)
		answer_fault(r, 501, "no_openat2",
			     "use Linux 5.6 or later, or name the file in the INI file, then "
			     "reload",
			     "%s", why);
	else if (rc != 0)
		answer_error(r, rc, NULL, why);
	return rc == 0 && !own;
}

static bool begins_with(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* Returns whether the text names something other than a file. */
static bool names_no_file(const char *text)
{
	return begins_with(text, "store:") || begins_with(text, "mem:") ||
	       begins_with(text, "etcd:") || begins_with(text, "etcds:");
}

/* Returns the length of the path in PATH[:PARTITION]. A file may have a colon in its name. */
static size_t path_length(const char *path, bool may_have_partition)
{
	const char *colon = may_have_partition ? strrchr(path, ':') : NULL;
	struct stat st;

	if (!colon || strchr(colon, '/') || lstat(path, &st) == 0)
		return strlen(path);
	return (size_t)(colon - path);
}

bool path_check(struct request *r, json_t *o, const char *field, enum path_use use)
{
	const char *text = json_string_value(json_object_get(o, field));
	CLEANUP_FREE char *path = NULL, *real = NULL, *whole = NULL;
	int at = text && begins_with(text, "file:") ? 5 : 0;
	size_t len;

	if (!text || names_no_file(text))
		return true;
	if (text[at] != '/') {
		answer_fault(r, 400, "bad_value", NULL, "'%s' must be an absolute path", field);
		return false;
	}
	len = path_length(text + at, use == PATH_LUN);
	path = strndup(text + at, len);
	if (!path)
		answer_error(r, ENOMEM, NULL, NULL);
	if (!path || !resolve(r, path, use, &real))
		return false;
	if (asprintf(&whole, "%.*s%s%s", at, text, real, text + at + len) < 0 ||
	    json_object_set_new(o, field, json_string(whole)) != 0) {
		answer_error(r, ENOMEM, NULL, NULL);
		return false;
	}
	return true;
}
