// SPDX-License-Identifier: BSD-2-Clause
/* refusal.c - see refusal.h. */
#include "refusal.h"

#include <stdio.h>
#include <string.h>

bool refusal_is_unsaid(const struct stag_audit_record *r)
{
	return strcmp(r->room, "pool") != 0 && strcmp(r->room, "block") != 0;
}

void refusal_text(const struct stag_audit_record *r, char *text, size_t size)
{
	char user[128] = "", more[40] = "";

	if (r->user && *r->user)
		snprintf(user, sizeof(user), " by user '%s'", r->user);
	if (r->suppressed)
		snprintf(more, sizeof(more), " (and %u more before)", r->suppressed);
	snprintf(text, size, "refused: %s%s from %s: %s%s", r->action ? r->action : "request", user,
		 r->from ? r->from : "an unknown address", r->reason ? r->reason : "no right",
		 more);
}
