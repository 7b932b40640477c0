// SPDX-License-Identifier: BSD-2-Clause
/*
 * name.c - names of heaps, and the objects that have them.
 *
 * A heap belongs to a user, and its object is in the directory of that user in /dev/shm (base/shm.h),
 * where nobody else can make a name. So a plain name means a heap of this user's. A heap of another
 * user is meant only if its owner is named: OWNER/NAME.
 */
#include "heap.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/shm.h"

/* ---- names ---- */

int heap_check_name(const char *name)
{
	size_t n = strnlen(name, STAG_HEAP_NAME_MAX);

	if (n == 0 || n == STAG_HEAP_NAME_MAX)
		return heap_fail(EINVAL, "a heap's name must have 1 to %d characters",
				 STAG_HEAP_NAME_MAX - 1);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)name[i]) && !strchr("._-", name[i]))
			return heap_fail(EINVAL,
					 "heap %s: names may contain letters, digits, \".\", "
					 "\"_\" and \"-\" only",
					 name);
	return 0;
}

int heap_parse_name(const char *text, uid_t *owner, const char **name)
{
	int rc = shm_parse(text, owner, name);
	int error = heap_check_name(*name);

	if (error == 0 && rc != 0)
		error = heap_fail(-rc, "heap %s: there is no user %.*s", text,
				  (int)(*name - text) - 1, text);
	return error;
}

void heap_file(const char *name, char file[HEAP_FILE_SIZE])
{
	snprintf(file, HEAP_FILE_SIZE, HEAP_PREFIX "%s", name);
}

/*
 * The path is stored in the object, and any process that may attach can have overwritten it: only a
 * file named as by make_huge() is opened or removed.
 */
bool heap_is_huge_path(const char *name, const char *path)
{
	const char *base = strrchr(path, '/');
	char want[HEAP_FILE_SIZE + 2];
	int n = snprintf(want, sizeof(want), "/" HEAP_HUGE "%s.", name);

	return path[0] == '/' && base && strncmp(base, want, (size_t)n) == 0 &&
	       strspn(base + n, "0123456789abcdef") == 8 && base[n + 8] == '\0';
}

/* ---- objects ---- */

int heap_check_object(const struct stag_heap *heap, int fd, unsigned int mode)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		return -errno;
	switch (shm_check(&st, heap->owner, mode)) {
	case SHM_GOOD:
		return 0;
	case SHM_STRANGE:
		return -heap_fail(EACCES, "heap %s: its object belongs to user %u, not to user %u",
				  heap->name, st.st_uid, heap->owner);
	case SHM_LINKED:
		return -heap_fail(EACCES, "heap %s: its object has %u names", heap->name,
				  (unsigned int)st.st_nlink);
	case SHM_OPEN:
		return -heap_fail(
			EACCES,
			"heap %s: other users may write it (mode %03o): attach it with this mode "
			"if they are trusted",
			heap->name, st.st_mode & 0777);
	default:
		return -EPROTO;
	}
}

int heap_open_object(struct stag_heap *heap, int flags)
{
	char file[HEAP_FILE_SIZE];

	heap->files.home = shm_open_home(heap->owner, false);
	if (heap->files.home < 0)
		return heap->files.home;
	heap_file(heap->name, file);
	heap->files.fd =
		openat(heap->files.home, file, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (heap->files.fd >= 0)
		return 0;
	return errno == ELOOP || errno == ENXIO ? -EPROTO : -errno;
}
