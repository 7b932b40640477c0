// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle_access.c - tokens of the API, and the audit log.
 */
#include "handle.h"

#include <errno.h>
#include <string.h>

#include "audit_log.h"

void handle_tokens(struct request *r)
{
	answer_json(r, 200, json_pack("{s:o}", "tokens", daemon_tokens(r->daemon)));
}

/* The only answer that ever contains a token. */
void handle_token_create(struct request *r)
{
	const char *name = body_text(r, "name", "");
	char text[TOKEN_ROOM], why[WHY_MAX] = "";
	enum role role = ROLE_LOOK;
	int rc;

	role_parse(body_text(r, "role", ""), &role);
	rc = daemon_token_create(r->daemon, name, role, text, why, sizeof(why));
	if (rc != 0)
		answer_daemon(r, rc, why);
	else
		answer_json(r, 201,
			    json_pack("{s:s s:s s:s}", "name", name, "role", role_word(role),
				      "token", text));
	explicit_bzero(text, sizeof(text));
}

void handle_token_revoke(struct request *r)
{
	char why[WHY_MAX] = "";
	int rc = daemon_token_revoke(r->daemon, param(r, 0), why, sizeof(why));

	if (rc == -ENOENT)
		answer_none(r, "token", param(r, 0));
	else if (rc != 0)
		answer_daemon(r, rc, why);
	else
		answer_nothing(r);
}

void handle_audit(struct request *r)
{
	uint64_t since = 0, limit = AUDIT_MOST;

	if (query_number(r, "since", INT64_MAX, &since) &&
	    query_number(r, "limit", AUDIT_MOST, &limit))
		answer_json(r, 200,
			    json_pack("{s:o s:o}", "log", audit_log_status(), "records",
				      audit_log_since(since, limit)));
}
