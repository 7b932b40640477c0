// SPDX-License-Identifier: BSD-2-Clause
/*
 * calls.c - the C library's names for what this library does.
 *
 * A function first compares the beginning of its path; then it is done by the C library, for all but our files. The names of C are not
 * the names of the symbols: the C library's headers define and redirect some of the latter. On 64-bit machines
 * the functions for large files are the same as the others.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/export.h"
#include "found/found.h"
#include "found/next.h"
#include "found/text.h"

_Static_assert(sizeof(off_t) == 8 && sizeof(struct stat) == sizeof(struct stat64) &&
		       sizeof(struct dirent) == sizeof(struct dirent64),
	       "stat and stat64 are the same function");

/* Declares a function of this file under a symbol of the C library, so that the definition may follow. */
#define CALL(type, symbol, args)                                                                   \
	STAG_EXPORT type found_##symbol args __asm__(#symbol);                                     \
	type found_##symbol args
/* Gives a function a second symbol. */
#define ALSO(symbol, other)                                                                        \
	STAG_EXPORT __typeof__(found_##other) found_##symbol __asm__(#symbol)                      \
		__attribute__((alias(#other)));

/* ---- whose is it? ---- */

enum {
	FOLLOW = 1, /* a link at the end of the path */
	LIST = 2,   /* take a real directory that has something of ours in it for one of ours */
};

/* A file of ours that a call is about. */
struct place {
	struct shown *shown;
	struct spot at;
	int saved_errno;
};

static bool begins(const char *path, const char *with)
{
	return strncmp(path, with, strlen(with)) == 0;
}

static bool is_at_or_below(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	return begins(path, dir) && (!path[len] || path[len] == '/');
}

/* Could something of ours be there? Else no address has to be read, and no path to be followed. */
static bool could_be_ours(const char *path)
{
	static const char class[] = "/sys/class";

	if (is_at_or_below(path, "/sys/class/infiniband") ||
	    is_at_or_below(path, "/dev/infiniband"))
		return true;
	if (begins(path, "/sys/devices/"))
		return strstr(path, "/infiniband") || strstr(path, "/net") || strstr(path, "/stag");
	return is_at_or_below(path, class) &&
	       strspn(path + strlen(class), "/") == strlen(path + strlen(class));
}

/* Writes the absolute path of one that is relative to a directory that serve_open() has opened. */
static bool make_absolute(int dirfd, const char *path, char absolute[FOUND_PATH])
{
	struct text t;

	if (!serve_directory(dirfd, absolute))
		return false;
	t = (struct text){.to = absolute, .room = FOUND_PATH, .len = strlen(absolute)};
	text_add(&t, "/");
	text_add(&t, path);
	return !t.too_long;
}

/* Follows the path. If it ends at a real file under another name, changes the path. */
static bool is_ours_at(const char **path, int how, struct place *p)
{
	p->shown = shown_get();
	if (!p->shown)
		return false;
	if (walk(p->shown, *path, how & FOLLOW, &p->at) == 0) {
		if (p->at.node.kind != NODE_NONE && (p->at.node.kind != NODE_SHARED || how & LIST))
			return true;
		*path = p->at.path;
	}
	shown_put(p->shown);
	return false;
}

/* The same for a path that is relative to a directory. It is always changed: the C library cannot use the file descriptor. */
static bool is_ours_below(int dirfd, const char **path, int how, struct place *p)
{
	char absolute[FOUND_PATH];
	const char *was = absolute;

	if (!make_absolute(dirfd, *path, absolute))
		return false;
	if (is_ours_at(&was, how, p))
		return true;
	if (was == absolute)
		strcpy(p->at.path, absolute);
	*path = p->at.path;
	return false;
}

__attribute__((noinline)) static bool look(int dirfd, const char **path, int how, struct place *p)
{
	bool ours;

	p->saved_errno = errno;
	if (**path != '/')
		ours = is_ours_below(dirfd, path, how, p);
	else
		ours = shown_any() && could_be_ours(*path) && is_ours_at(path, how, p);
	errno = p->saved_errno;
	return ours;
}

/* The one comparison that a call of another path costs. */
static inline bool may_be_ours(int dirfd, const char *path)
{
	if (!path)
		return false;
	if (path[0] != '/')
		return __builtin_expect(
			dirfd != AT_FDCWD &&
				atomic_load_explicit(&serve_has_directories, memory_order_relaxed),
			0);
	if (path[1] == 's')
		return path[2] == 'y' && path[3] == 's' && path[4] == '/';
	return path[1] == 'd' && path[2] == 'e' && path[3] == 'v' && path[4] == '/' &&
	       path[5] == 'i' && path[6] == 'n';
}

/* Is a path one of ours? If so, p has it, until done() or failed(). If not, *path is what the C library is to be called with. */
static inline bool is_ours(int dirfd, const char **path, int how, struct place *p)
{
	return may_be_ours(dirfd, *path) && look(dirfd, path, how, p);
}

/* Ends a call: with what it returns and errno. */
static ssize_t done(struct place *p, ssize_t rc)
{
	shown_put(p->shown);
	errno = rc < 0 ? (int)-rc : p->saved_errno;
	return rc < 0 ? -1 : rc;
}

static inline int following(int flags)
{
	return flags & AT_SYMLINK_NOFOLLOW ? 0 : FOLLOW;
}

/* ---- stat ---- */

CALL(int, stat, (const char *path, struct stat *st))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, FOLLOW, &p))
		return (int)done(&p, serve_stat(p.shown, &p.at, st));
	return NEXT(stat)(path, st);
}
ALSO(stat64, stat)

CALL(int, lstat, (const char *path, struct stat *st))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, 0, &p))
		return (int)done(&p, serve_stat(p.shown, &p.at, st));
	return NEXT(lstat)(path, st);
}
ALSO(lstat64, lstat)

/* A path of no length means the file descriptor itself (AT_EMPTY_PATH): look() has made a directory's path of it. */
CALL(int, fstatat, (int dirfd, const char *path, struct stat *st, int flags))
{
	struct place p;

	if (is_ours(dirfd, &path, following(flags), &p))
		return (int)done(&p, serve_stat(p.shown, &p.at, st));
	return NEXT(fstatat)(dirfd, path, st, flags);
}
ALSO(fstatat64, fstatat)

/* The file descriptor of a directory of ours is not that of a directory. */
CALL(int, fstat, (int fd, struct stat *st))
{
	if (__builtin_expect(atomic_load_explicit(&serve_has_directories, memory_order_relaxed),
			     0)) {
		const char *path = "";
		struct place p;

		if (is_ours(fd, &path, FOLLOW, &p))
			return (int)done(&p, serve_stat(p.shown, &p.at, st));
		if (*path)
			return NEXT(stat)(path, st);
	}
	return NEXT(fstat)(fd, st);
}
ALSO(fstat64, fstat)

/* What programs from before glibc 2.33 call for these. version says which struct stat they know: there is only one on 64-bit machines. */

CALL(int, __xstat, (int version, const char *path, struct stat *st))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, FOLLOW, &p))
		return (int)done(&p, serve_stat(p.shown, &p.at, st));
	return NEXT(__xstat)(version, path, st);
}
ALSO(__xstat64, __xstat)

CALL(int, __lxstat, (int version, const char *path, struct stat *st))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, 0, &p))
		return (int)done(&p, serve_stat(p.shown, &p.at, st));
	return NEXT(__lxstat)(version, path, st);
}
ALSO(__lxstat64, __lxstat)

CALL(int, __fxstatat, (int version, int dirfd, const char *path, struct stat *st, int flags))
{
	struct place p;

	if (is_ours(dirfd, &path, following(flags), &p))
		return (int)done(&p, serve_stat(p.shown, &p.at, st));
	return NEXT(__fxstatat)(version, dirfd, path, st, flags);
}
ALSO(__fxstatat64, __fxstatat)

CALL(int, __fxstat, (int version, int fd, struct stat *st))
{
	if (__builtin_expect(atomic_load_explicit(&serve_has_directories, memory_order_relaxed), 0))
		return found_fstat(fd, st);
	return NEXT(__fxstat)(version, fd, st);
}
ALSO(__fxstat64, __fxstat)

CALL(int, statx, (int dirfd, const char *path, int flags, unsigned mask, struct statx *st))
{
	struct place p;

	if (is_ours(dirfd, &path, following(flags), &p))
		return (int)done(&p, serve_statx(p.shown, &p.at, st));
	return NEXT(statx)(dirfd, path, flags, mask, st);
}

/* ---- access ---- */

CALL(int, access, (const char *path, int mode))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, FOLLOW, &p))
		return (int)done(&p, serve_access(&p.at, mode));
	return NEXT(access)(path, mode);
}

CALL(int, euidaccess, (const char *path, int mode))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, FOLLOW, &p))
		return (int)done(&p, serve_access(&p.at, mode));
	return NEXT(euidaccess)(path, mode);
}
ALSO(eaccess, euidaccess)

CALL(int, faccessat, (int dirfd, const char *path, int mode, int flags))
{
	struct place p;

	if (is_ours(dirfd, &path, following(flags), &p))
		return (int)done(&p, serve_access(&p.at, mode));
	return NEXT(faccessat)(dirfd, path, mode, flags);
}

/* ---- open ---- */

static inline int opening(int flags)
{
	return flags & O_NOFOLLOW ? LIST : LIST | FOLLOW;
}

/* Takes the third argument of open(), which is there only if a file may be created. */
#define TAKE_MODE(flags)                                                                           \
	({                                                                                         \
		mode_t mode_ = 0;                                                                  \
		if ((flags) & (O_CREAT | __O_TMPFILE)) {                                           \
			va_list more_;                                                             \
			va_start(more_, flags);                                                    \
			mode_ = va_arg(more_, mode_t);                                             \
			va_end(more_);                                                             \
		}                                                                                  \
		mode_;                                                                             \
	})

CALL(int, open, (const char *path, int flags, ...))
{
	mode_t mode = TAKE_MODE(flags);
	struct place p;

	if (is_ours(AT_FDCWD, &path, opening(flags), &p))
		return (int)done(&p, serve_open(p.shown, &p.at, flags));
	return NEXT(open)(path, flags, mode);
}
ALSO(open64, open)

CALL(int, openat, (int dirfd, const char *path, int flags, ...))
{
	mode_t mode = TAKE_MODE(flags);
	struct place p;

	if (is_ours(dirfd, &path, opening(flags), &p))
		return (int)done(&p, serve_open(p.shown, &p.at, flags));
	return NEXT(openat)(dirfd, path, flags, mode);
}
ALSO(openat64, openat)

/* What _FORTIFY_SOURCE makes of open() without a mode; the C library ends a program that would need one. */
CALL(int, __open_2, (const char *path, int flags))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, opening(flags), &p))
		return (int)done(&p, serve_open(p.shown, &p.at, flags));
	return NEXT(__open_2)(path, flags);
}
ALSO(__open64_2, __open_2)

CALL(int, __openat_2, (int dirfd, const char *path, int flags))
{
	struct place p;

	if (is_ours(dirfd, &path, opening(flags), &p))
		return (int)done(&p, serve_open(p.shown, &p.at, flags));
	return NEXT(__openat_2)(dirfd, path, flags);
}
ALSO(__openat64_2, __openat_2)

/* The flags of open() for a mode of fopen(). */
static int flags_of(const char *mode)
{
	int flags = mode[0] == 'r' ? O_RDONLY : O_WRONLY | O_CREAT;

	if (strchr(mode, '+'))
		flags = (flags & ~O_ACCMODE) | O_RDWR;
	if (strchr(mode, 'x'))
		flags |= O_EXCL;
	return strchr(mode, 'e') ? flags | O_CLOEXEC : flags;
}

CALL(FILE *, fopen, (const char *path, const char *mode))
{
	struct place p;
	FILE *file = NULL;
	int fd;

	if (!is_ours(AT_FDCWD, &path, LIST | FOLLOW, &p))
		return NEXT(fopen)(path, mode);
	fd = (int)done(&p, serve_open(p.shown, &p.at, flags_of(mode)));
	if (fd >= 0)
		file = fdopen(fd, mode);
	if (fd >= 0 && !file)
		close(fd);
	return file;
}
ALSO(fopen64, fopen)

/* ---- links ---- */

CALL(ssize_t, readlink, (const char *path, char *to, size_t room))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, 0, &p))
		return done(&p, serve_readlink(p.shown, &p.at, to, room));
	return NEXT(readlink)(path, to, room);
}

CALL(ssize_t, readlinkat, (int dirfd, const char *path, char *to, size_t room))
{
	struct place p;

	if (is_ours(dirfd, &path, 0, &p))
		return done(&p, serve_readlink(p.shown, &p.at, to, room));
	return NEXT(readlinkat)(dirfd, path, to, room);
}

/* What _FORTIFY_SOURCE makes of these; the C library ends a program whose buffer is too small. */

CALL(ssize_t, __readlink_chk, (const char *path, char *to, size_t room, size_t size))
{
	struct place p;

	if (room <= size && is_ours(AT_FDCWD, &path, 0, &p))
		return done(&p, serve_readlink(p.shown, &p.at, to, room));
	return NEXT(__readlink_chk)(path, to, room, size);
}

CALL(ssize_t, __readlinkat_chk, (int dirfd, const char *path, char *to, size_t room, size_t size))
{
	struct place p;

	if (room <= size && is_ours(dirfd, &path, 0, &p))
		return done(&p, serve_readlink(p.shown, &p.at, to, room));
	return NEXT(__readlinkat_chk)(dirfd, path, to, room, size);
}

/* The path of a place of ours has no links in it. */
static char *resolved_path(struct place *p, char *to)
{
	char *path = to ? strcpy(to, p->at.path) : strdup(p->at.path);

	return done(p, path ? 0 : -ENOMEM) == 0 ? path : NULL;
}

CALL(char *, realpath, (const char *path, char *to))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, FOLLOW, &p))
		return resolved_path(&p, to);
	return NEXT(realpath)(path, to);
}

CALL(char *, __realpath_chk, (const char *path, char *to, size_t size))
{
	struct place p;

	if (size >= PATH_MAX && is_ours(AT_FDCWD, &path, FOLLOW, &p))
		return resolved_path(&p, to);
	return NEXT(__realpath_chk)(path, to, size);
}

CALL(char *, canonicalize_file_name, (const char *path))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, FOLLOW, &p))
		return resolved_path(&p, NULL);
	return NEXT(canonicalize_file_name)(path);
}

/* ---- directories ---- */

CALL(DIR *, fdopendir, (int fd))
{
	const char *path = "";
	struct place p;
	DIR *dir;

	if (!is_ours(fd, &path, LIST | FOLLOW, &p))
		return NEXT(fdopendir)(fd);
	dir = list_open(p.shown, &p.at, fd);
	return done(&p, dir ? 0 : -errno) == 0 ? dir : NULL;
}

CALL(DIR *, opendir, (const char *path))
{
	struct place p;
	DIR *dir;
	int fd;

	if (!is_ours(AT_FDCWD, &path, LIST | FOLLOW, &p))
		return NEXT(opendir)(path);
	fd = serve_open(p.shown, &p.at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	dir = fd < 0 ? NULL : list_open(p.shown, &p.at, fd);
	if (!dir && fd >= 0) {
		int err = errno;

		close(fd);
		fd = -err;
	}
	return done(&p, fd < 0 ? fd : 0) == 0 ? dir : NULL;
}

CALL(struct dirent *, readdir, (DIR * dir))
{
	return list_is_ours(dir) ? list_next(dir) : NEXT(readdir)(dir);
}
ALSO(readdir64, readdir)

CALL(int, closedir, (DIR * dir))
{
	return list_is_ours(dir) ? list_close(dir) : NEXT(closedir)(dir);
}

CALL(int, dirfd, (DIR * dir))
{
	return list_is_ours(dir) ? list_fd(dir) : NEXT(dirfd)(dir);
}

CALL(void, rewinddir, (DIR * dir))
{
	if (list_is_ours(dir))
		list_seek(dir, 0);
	else
		NEXT(rewinddir)(dir);
}

CALL(void, seekdir, (DIR * dir, long where))
{
	if (list_is_ours(dir))
		list_seek(dir, where);
	else
		NEXT(seekdir)(dir, where);
}

CALL(long, telldir, (DIR * dir))
{
	return list_is_ours(dir) ? list_tell(dir) : NEXT(telldir)(dir);
}

/* ---- extended attributes, of which ours have none: ls -l asks for them ---- */

CALL(ssize_t, getxattr, (const char *path, const char *name, void *value, size_t size))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, FOLLOW, &p))
		return done(&p, -ENODATA);
	return NEXT(getxattr)(path, name, value, size);
}

CALL(ssize_t, lgetxattr, (const char *path, const char *name, void *value, size_t size))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, 0, &p))
		return done(&p, -ENODATA);
	return NEXT(lgetxattr)(path, name, value, size);
}

CALL(ssize_t, listxattr, (const char *path, char *list, size_t size))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, FOLLOW, &p))
		return done(&p, 0);
	return NEXT(listxattr)(path, list, size);
}

CALL(ssize_t, llistxattr, (const char *path, char *list, size_t size))
{
	struct place p;

	if (is_ours(AT_FDCWD, &path, 0, &p))
		return done(&p, 0);
	return NEXT(llistxattr)(path, list, size);
}
