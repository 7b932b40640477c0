// SPDX-License-Identifier: BSD-2-Clause
/*
 * discover.c - which targets a portal knows (RFC 7143, appendix C): a session of its own, with one question.
 */
#include "block/initiator/initiator.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/export.h"

#define TEXT_TAG 0x80000004u

static int ask(struct stag_block *b)
{
	static const char question[] = "SendTargets=All";
	struct pdu p = {
		.opcode = TEXT_REQUEST, .flags = PDU_FINAL, .itt = TEXT_TAG, .ttt = TAG_NONE};
	uint64_t end = clock_ns() + b->config.timeout_ns;

	b->text.list = calloc(1, sizeof(*b->text.list));
	b->text.tag = TEXT_TAG;
	if (!b->text.list)
		return block_fail(ENOMEM, "no memory for a list");
	if (initiator_send(b, &p, question, sizeof(question)) != 0)
		return block_fail(ENOMEM, "no memory for a question");
	while (!b->text.done) {
		initiator_step(b);
		if (b->text.done)
			break;
		if (b->state != INIT_LIVE)
			return block_fail(b->attempt.error, "%s", b->attempt.words);
		if (clock_ns() >= end)
			return block_fail(ETIMEDOUT, "%s does not answer", b->config.url.host);
		initiator_sleep(b, 100);
	}
	return 0;
}

/* A target without an address has the one that was asked. */
static int tell(struct stag_block *b,
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
	return rc < 0 ? block_fail(EPROTO, "%s: that is no list of targets", b->config.url.host)
		      : 0;
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
		rc = ask(b);
	if (rc == 0) {
		initiator_log_out(b);
		rc = tell(b, fn, arg);
	}
	free(b->text.list);
	b->text.list = NULL;
	initiator_destroy(b);
	return -rc;
}
