// SPDX-License-Identifier: BSD-2-Clause
/*
 * error.c - the text of the thread's last error.
 */
#include "block/block.h"

#include "base/export.h"

__thread char block_error_text[512];

STAG_EXPORT const char *stag_block_error(void)
{
	return block_error_text;
}
