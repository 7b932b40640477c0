/* SPDX-License-Identifier: BSD-2-Clause */
/* file.h - small files that are read whole, and replaced atomically. */
#ifndef STAG_BASE_FILE_H
#define STAG_BASE_FILE_H

#include <stddef.h>
#include <sys/types.h>

/*
 * Reads the file and appends a zero byte. Returns its length, which is less than room; -EFBIG if it
 * is longer, or -errno.
 */
ssize_t file_read(int dir, const char *name, char *to, size_t room);

/*
 * The same for a secret: -EPERM if the file is accessible to others, is no regular file, or belongs to somebody who is neither
 * this user nor root.
 */
ssize_t file_read_private(int dir, const char *name, char *to, size_t room);

/*
 * Replaces the file atomically: a reader finds the old or the new content at any time, and once
 * this returns 0 the new content survives a crash of the machine. NAME.new is the temporary file;
 * one left by a crash is overwritten. Callers serialise concurrent replacements themselves. Returns
 * 0 or -errno.
 */
int file_replace(int dir, const char *name, const char *text, size_t len, mode_t mode);

#endif
