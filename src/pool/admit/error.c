// SPDX-License-Identifier: BSD-2-Clause
/*
 * error.c - the text of the thread's last error.
 */
#include "pool/admit/fail.h"

#include "base/export.h"
#include "stag/pool.h"

__thread char pool_error_text[512];

STAG_EXPORT const char *stag_pool_error(void)
{
	return pool_error_text;
}
