/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fail.h - what went wrong, in words: of the thread that called, for stag_pool_error().
 */
#ifndef STAG_POOL_FAIL_H
#define STAG_POOL_FAIL_H

int pool_fail(int error, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* -error */

#endif
