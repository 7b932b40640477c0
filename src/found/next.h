/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * next.h - the C library's own functions, behind the ones of the same name here.
 *
 * They are looked up when this library is loaded; a call that comes before that (from the constructor of another library)
 * looks its function up itself.
 */
#ifndef STAG_FOUND_NEXT_H
#define STAG_FOUND_NEXT_H

#include <dirent.h>
#include <stdio.h>
#include <sys/stat.h>

#define NEXT_FUNCTIONS(X)                                                                          \
	X(void *, dlopen, (const char *, int))                                                     \
	X(int, stat, (const char *, struct stat *))                                                \
	X(int, lstat, (const char *, struct stat *))                                               \
	X(int, fstat, (int, struct stat *))                                                        \
	X(int, fstatat, (int, const char *, struct stat *, int))                                   \
	X(int, __xstat, (int, const char *, struct stat *))                                        \
	X(int, __lxstat, (int, const char *, struct stat *))                                       \
	X(int, __fxstat, (int, int, struct stat *))                                                \
	X(int, __fxstatat, (int, int, const char *, struct stat *, int))                           \
	X(int, statx, (int, const char *, int, unsigned, struct statx *))                          \
	X(int, access, (const char *, int))                                                        \
	X(int, euidaccess, (const char *, int))                                                    \
	X(int, faccessat, (int, const char *, int, int))                                           \
	X(int, open, (const char *, int, ...))                                                     \
	X(int, openat, (int, const char *, int, ...))                                              \
	X(int, __open_2, (const char *, int))                                                      \
	X(int, __openat_2, (int, const char *, int))                                               \
	X(FILE *, fopen, (const char *, const char *))                                             \
	X(ssize_t, readlink, (const char *, char *, size_t))                                       \
	X(ssize_t, readlinkat, (int, const char *, char *, size_t))                                \
	X(ssize_t, __readlink_chk, (const char *, char *, size_t, size_t))                         \
	X(ssize_t, __readlinkat_chk, (int, const char *, char *, size_t, size_t))                  \
	X(char *, realpath, (const char *, char *))                                                \
	X(char *, __realpath_chk, (const char *, char *, size_t))                                  \
	X(char *, canonicalize_file_name, (const char *))                                          \
	X(DIR *, opendir, (const char *))                                                          \
	X(DIR *, fdopendir, (int))                                                                 \
	X(struct dirent *, readdir, (DIR *))                                                       \
	X(int, closedir, (DIR *))                                                                  \
	X(int, dirfd, (DIR *))                                                                     \
	X(void, rewinddir, (DIR *))                                                                \
	X(long, telldir, (DIR *))                                                                  \
	X(void, seekdir, (DIR *, long))                                                            \
	X(ssize_t, getxattr, (const char *, const char *, void *, size_t))                         \
	X(ssize_t, lgetxattr, (const char *, const char *, void *, size_t))                        \
	X(ssize_t, listxattr, (const char *, char *, size_t))                                      \
	X(ssize_t, llistxattr, (const char *, char *, size_t))

struct next_functions {
#define NEXT_MEMBER(type, name, args) type(*name) args;
	NEXT_FUNCTIONS(NEXT_MEMBER)
#undef NEXT_MEMBER
};

extern struct next_functions next_table;

/* Looks a function up, and keeps it in its place of the table. */
void *next_find(void *place, const char *name);

#define NEXT(name)                                                                                 \
	({                                                                                         \
		__typeof__(next_table.name) next_ =                                                \
			__atomic_load_n(&next_table.name, __ATOMIC_RELAXED);                       \
		if (__builtin_expect(!next_, 0))                                                   \
			next_ = (__typeof__(next_))next_find(&next_table.name, #name);             \
		next_;                                                                             \
	})

#endif
