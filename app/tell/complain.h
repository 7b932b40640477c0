/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * complain.h - what is wrong, for whoever can do something about it.
 */
#ifndef STAG_APP_COMPLAIN_H
#define STAG_APP_COMPLAIN_H

#include <stddef.h>

/* "stag: ..." to stderr, with the program's name; or where the program, or the caller, wants it. */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

extern void (*complain_to)(const char *text); /* of the program; NULL: stderr */

/* This thread's complaints are the caller's, the last one there is kept, until caught with NULL. */
void complain_catch(char *why, size_t size);

#endif
