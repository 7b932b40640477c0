/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fail.h - the text of the last error of the calling thread, for stag_pool_error().
 */
#ifndef STAG_POOL_FAIL_H
#define STAG_POOL_FAIL_H

#include "base/error_text.h"

extern __thread char pool_error_text[512];

/* Sets the text that stag_pool_error() returns in this thread. Returns -error. */
#define pool_fail(error, ...)                                                                      \
	error_text_set(pool_error_text, sizeof(pool_error_text), -(error), __VA_ARGS__)

#endif
