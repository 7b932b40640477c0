// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_serve.c - stag store serve: until it is told to stop.
 */
#include "store_use.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "stag.h"
#include "store.h"

/* A connection is a socket and a lock: as many as the system lets us have. */
static void raise_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

static bool parse_port(const char *text, struct stag_store_server_attr *attr)
{
	char *end;
	unsigned long port = text ? strtoul(text, &end, 10) : STAG_STORE_PORT;

	if (text && (*text < '0' || *text > '9' || *end || port > UINT16_MAX)) {
		complain("--port wants a number up to 65535, 0 for one that is free; not '%s'",
			 text);
		return false;
	}
	attr->port = (uint16_t)port;
	attr->flags = port == 0 ? STAG_STORE_ANY_PORT : 0;
	return true;
}

static void announce(const struct store_use *u, const struct stag_store_server *server)
{
	unsigned int port = stag_store_server_port(server);

	if (u->json)
		store_dump(json_pack("{s:s, s:i}", "path", u->where, "port", (int)port));
	else
		printf("serving %s on port %u\n", u->where, port);
	fflush(stdout);
}

static int serve(const struct store_use *u, struct stag_store *store,
		 const struct stag_store_server_attr *attr, const sigset_t *ends)
{
	struct stag_store_server *server = stag_store_serve(store, attr);
	int sig;

	if (!server) {
		complain("%s", stag_store_error());
		return EXIT_FAILED;
	}
	announce(u, server);
	sigwait(ends, &sig);
	stag_store_server_stop(server);
	return EXIT_OK;
}

int store_serve(const struct store_use *u)
{
	struct stag_store_server_attr attr = {.address = u->address};
	struct stag_store *store;
	sigset_t ends;
	int rc;

	if (!parse_port(u->port, &attr))
		return EXIT_USAGE;
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	raise_limit();
	store = stag_store_open(u->where, 0);
	if (!store) {
		complain("%s", stag_store_error());
		return EXIT_FAILED;
	}
	rc = serve(u, store, &attr, &ends);
	stag_store_close(store);
	return rc;
}
