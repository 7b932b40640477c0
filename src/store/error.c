// SPDX-License-Identifier: BSD-2-Clause
/*
 * error.c - the text of the thread's last error.
 */
#include "store.h"

#include "base/export.h"

__thread char store_error_text[512];

STAG_EXPORT const char *stag_store_error(void)
{
	return store_error_text;
}
