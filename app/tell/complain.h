/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * complain.h - reports errors to the user, or to the caller.
 */
#ifndef STAG_APP_COMPLAIN_H
#define STAG_APP_COMPLAIN_H

#include <stddef.h>

/* Prints "stag: ..." to stderr, with the program's name; or passes the text to complain_to or complain_catch(). */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

extern void (*complain_to)(const char *text); /* receives all errors of the program; NULL: stderr */

/* Stores the last error of this thread in why, instead of printing it, until it is called with NULL. */
void complain_catch(char *why, size_t size);

#endif
