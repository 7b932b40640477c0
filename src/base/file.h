/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * file.h - small files that are read whole, and replaced whole or not at all.
 */
#ifndef STAG_BASE_FILE_H
#define STAG_BASE_FILE_H

#include <stddef.h>
#include <sys/types.h>

/* Its length, which is less than room: a zero is put behind it. -EFBIG: it is longer. */
ssize_t file_read(int dir, const char *name, char *to, size_t room);

/*
 * Whoever looks, whenever, finds the file as it was or as it is to be, and when this returns 0 it stays so, whatever
 * happens to the machine. NAME.new is in between; a dead one is written over. Two at once are the caller's affair.
 */
int file_replace(int dir, const char *name, const char *text, size_t len, mode_t mode);

#endif
