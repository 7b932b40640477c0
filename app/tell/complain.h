/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * complain.h - reports errors to the user, or to the caller.
 */
#ifndef STAG_APP_COMPLAIN_H
#define STAG_APP_COMPLAIN_H

#include <stdbool.h>
#include <stddef.h>

/* Prints "stag: ..." to stderr, with the program's name; or passes the text to complain_to or complain_catch(). */
void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* As complain(), and says what kind of failure it is: an errno value, and the object's name or NULL. */
void complain_for(int error, const char *object, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Sets what is in front of errors: "stag: line 3: "; NULL: the program's name. */
void complain_prefix(const char *text);
/* Prints advice after an error: "Try ...". Does not preserve errno. */
void complain_try(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

extern void (*complain_to)(const char *text); /* receives all errors of the program; NULL: stderr */

/* Stores the last error of this thread in why, instead of printing it, until it is called with NULL. */
void complain_catch(char *why, size_t size);

/*
 * From now on, prints errors as JSON, one object a line: {"object", "cause", "code", "exit", "try"}. An error is held back
 * until the next one or complain_end(), because its advice and the exit code follow it.
 */
void complain_as_json(void);
bool complain_is_json(void);
/*
 * Ends a command whose exit code is rc. Returns the exit code to use: if rc is EXIT_FAILED, that of the first error whose kind
 * is known (exit_code.h).
 */
int complain_end(int rc);

#endif
