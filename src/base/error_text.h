/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * error_text.h - a library's last error of the calling thread, in words.
 *
 * A library declares a thread-local buffer and a macro, `part_fail(error, fmt, ...)`, that passes it to
 * error_text_set(); its public stag_<part>_error() returns the buffer.
 */
#ifndef STAG_BASE_ERROR_TEXT_H
#define STAG_BASE_ERROR_TEXT_H

#include <stddef.h>

/*
 * Formats a message into the buffer, cut to its size. Control characters become '?': names in it may come from peers
 * or disks. Returns error unchanged, so that a function can fail in one statement.
 */
int error_text_set(char *text, size_t size, int error, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
