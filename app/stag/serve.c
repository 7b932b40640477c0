// SPDX-License-Identifier: BSD-2-Clause
/*
 * serve.c - what commands that serve until they are told to stop have in common.
 */
#include <ctype.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "stag.h"

bool serve_port(const char *text, uint16_t usual, uint16_t *port)
{
	char *end;
	unsigned long n = text ? strtoul(text, &end, 10) : usual;

	*port = (uint16_t)n;
	if (!text || (isdigit((unsigned char)*text) && !*end && n <= UINT16_MAX))
		return true;
	complain("--port wants a number up to 65535, 0 for one that is free; not '%s'", text);
	return false;
}

/* A connection is a socket, and perhaps a lock: as many as the system lets us have. */
static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

void serve_begin(sigset_t *ends)
{
	sigemptyset(ends);
	sigaddset(ends, SIGINT);
	sigaddset(ends, SIGTERM);
	sigprocmask(SIG_BLOCK, ends, NULL);
	raise_limit();
}
