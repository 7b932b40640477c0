// SPDX-License-Identifier: BSD-2-Clause
/*
 * luns.c - lists the units of a target by REPORT LUNS, in a session of its own. LUN 0 answers it even if it has no unit.
 */
#include "block/initiator/initiator.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/export.h"

/* Calls fn for each LUN that a URL can name: of one level, with a number up to 16383 (SAM-5). */
static void report_luns(const struct stag_block *b, void (*fn)(void *arg, uint16_t lun), void *arg)
{
	for (uint32_t at = 8; at + 8 <= b->report.len; at += 8) {
		uint16_t first = get_be16(b->report.data + at);

		if (first >> 14 <= 1)
			fn(arg, first & 0x3fff);
	}
}

static int list_luns(struct stag_block *b, void (*fn)(void *arg, uint16_t lun), void *arg)
{
	CLEANUP_FREE uint8_t *data = malloc(REPORT_LUNS_MAX);
	int rc;

	if (!data)
		return block_fail(ENOMEM, "out of memory");
	b->report.data = data;
	b->config.retries = false;
	rc = initiator_bring_up(b);
	if (rc == 0) {
		initiator_log_out(b);
		report_luns(b, fn, arg);
	}
	return rc;
}

STAG_EXPORT int stag_block_list(const char *url, const struct stag_block_attr *attr,
				void (*fn)(void *arg, uint16_t lun), void *arg)
{
	struct stag_block *b;
	CLEANUP_FREE char *whole = malloc(strlen(url) + 3);
	int rc;

	if (!whole)
		return -block_fail(ENOMEM, "out of memory");
	rc = initiator_create(strcat(strcpy(whole, url), "/0"), true, attr, &b);
	explicit_bzero(whole, strlen(whole)); /* it may have a secret */
	if (rc != 0)
		return -rc;
	rc = list_luns(b, fn, arg);
	initiator_destroy(b);
	return -rc;
}
