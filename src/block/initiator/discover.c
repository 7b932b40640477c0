// SPDX-License-Identifier: BSD-2-Clause
/*
 * discover.c - lists the targets of a portal by SendTargets (RFC 7143, appendix C), in a discovery session.
 */
#include "block/initiator/initiator.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/export.h"

#define TEXT_TAG 0x80000004u

static int request_targets(struct stag_block *b)
{
	static const char question[] = "SendTargets=All";
	struct pdu p = {
		.opcode = TEXT_REQUEST, .flags = PDU_FINAL, .itt = TEXT_TAG, .ttt = TAG_NONE};
	uint64_t end = clock_ns() + b->config.timeout_ns;

	b->text.list = calloc(1, sizeof(*b->text.list));
	b->text.tag = TEXT_TAG;
	if (!b->text.list)
		return block_fail(ENOMEM, "out of memory");
	if (initiator_send(b, &p, question, sizeof(question)) != 0)
		return block_fail(ENOMEM, "out of memory");
	while (!b->text.done) {
		initiator_step(b);
		if (b->text.done)
			break;
		if (b->state != INIT_LIVE)
			return block_fail(b->attempt.error, "%s", b->attempt.words);
		if (clock_ns() >= end)
			return block_fail(ETIMEDOUT, "%s: no response to SendTargets",
					  b->config.url.host);
		initiator_sleep(b, 100);
	}
	return 0;
}

/* Calls fn for each target. One that has no address has that of the portal. */
static int report_targets(struct stag_block *b,
			  void (*fn)(void *arg, const char *target, const char *address), void *arg)
{
	char name[STAG_BLOCK_NAME_MAX] = "", own[WORD_MAX + 8];
	const char *key, *value;
	bool told = true;
	uint32_t at = 0;
	int rc;

	snprintf(own, sizeof(own), strchr(b->config.url.host, ':') ? "[%s]:%s" : "%s:%s",
		 b->config.url.host, b->config.url.port);
	while ((rc = iscsi_text_next(b->text.list, &at, &key, &value)) > 0) {
		if (strcmp(key, "TargetName") == 0 && iscsi_text_is_name(value)) {
			if (!told)
				fn(arg, name, own);
			snprintf(name, sizeof(name), "%s", value);
			told = false;
		} else if (strcmp(key, "TargetAddress") == 0 && *name) {
			fn(arg, name, value);
			told = true;
		}
	}
	if (!told)
		fn(arg, name, own);
	return rc < 0 ? block_fail(EPROTO, "%s: malformed list of targets", b->config.url.host) : 0;
}

STAG_EXPORT int stag_block_discover(const char *portal, const struct stag_block_attr *attr,
				    void (*fn)(void *arg, const char *target, const char *address),
				    void *arg)
{
	struct stag_block *b;
	int rc = initiator_create(portal, false, attr, &b);

	if (rc != 0)
		return -rc;
	b->config.retries = false;
	rc = initiator_bring_up(b);
	if (rc == 0)
		rc = request_targets(b);
	if (rc == 0) {
		initiator_log_out(b);
		rc = report_targets(b, fn, arg);
	}
	free(b->text.list);
	b->text.list = NULL;
	initiator_destroy(b);
	return -rc;
}
