// SPDX-License-Identifier: BSD-2-Clause
/*
 * serve.c - what the commands that serve until SIGINT or SIGTERM share.
 */
#include <ctype.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/log.h"
#include "base/printable.h"
#include "refusal.h"
#include "stag.h"

bool serve_port(const char *text, uint16_t usual, uint16_t *port)
{
	char *end;
	unsigned long n = text ? strtoul(text, &end, 10) : usual;

	*port = (uint16_t)n;
	if (!text || (isdigit((unsigned char)*text) && !*end && n <= UINT16_MAX))
		return true;
	complain("--port must be a number up to 65535, 0 for any free port; not '%s'", text);
	return false;
}

/* Raises the limit of open files to the maximum: each connection is a socket, and may lock a file. */
static void raise_open_files_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static void log_refusal(const struct stag_audit_record *record, void *arg)
{
	char text[512];

	(void)arg;
	if (record->outcome != STAG_AUDIT_REFUSED || !refusal_is_unsaid(record))
		return;
	refusal_text(record, text, sizeof(text));
	make_printable(text);
	log_warn("%s: %s", record->object, text);
}

void serve_begin(sigset_t *ends)
{
	stag_audit_set_sink(log_refusal, NULL);
	sigemptyset(ends);
	sigaddset(ends, SIGINT);
	sigaddset(ends, SIGTERM);
	sigprocmask(SIG_BLOCK, ends, NULL);
	raise_open_files_limit();
}
