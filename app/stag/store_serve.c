// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_serve.c - stag store serve: until it is told to stop.
 */
#include "store_options.h"

#include "control.h"
#include "stag.h"
#include "store.h"

static void announce(const struct store_options *o, const struct stag_store_server *server)
{
	unsigned int port = stag_store_server_port(server);

	if (o->json)
		store_dump(json_pack("{s:s, s:i}", "path", o->where, "port", (int)port));
	else
		printf("serving %s on port %u\n", o->where, port);
}

static json_t *answer(void *server, const char *word)
{
	struct stag_store_counters c;

	if (stag_store_query_server(server, &c, sizeof(c)) != 0)
		return json_object();
	return json_pack("{s:I s:I s:I s:I s:I s:I s:I s:I s:I s:I}", "reads", (json_int_t)c.reads,
			 "writes", (json_int_t)c.writes, "flushes", (json_int_t)c.flushes,
			 "atomics", (json_int_t)c.atomics, "read_bytes", (json_int_t)c.read_bytes,
			 "written_bytes", (json_int_t)c.written_bytes, "errors",
			 (json_int_t)c.errors, "cache_hits", (json_int_t)c.cache_hits,
			 "cache_misses", (json_int_t)c.cache_misses, "cache_bytes",
			 (json_int_t)c.cache_bytes);
}

static int serve(const struct store_options *o, struct stag_store *store,
		 const struct stag_store_server_attr *attr, const sigset_t *ends)
{
	struct stag_store_server *server = stag_store_serve(store, attr);
	struct control control;

	if (!server) {
		complain("%s", stag_store_error());
		return EXIT_FAILED;
	}
	control_open(&control, STORE_KIND, answer, server);
	announce(o, server);
	fflush(stdout);
	control_run(&control, ends);
	control_close(&control);
	stag_store_server_stop(server);
	return EXIT_OK;
}

int store_serve(const struct store_options *o)
{
	struct stag_store_server_attr attr = {.address = o->address};
	struct stag_store *store;
	sigset_t ends;
	int rc;

	if (!serve_port(o->port, STAG_STORE_PORT, &attr.port))
		return EXIT_USAGE;
	attr.flags = attr.port == 0 ? STAG_STORE_ANY_PORT : 0;
	serve_begin(&ends);
	store = stag_store_open(o->where, 0);
	if (!store) {
		complain("%s", stag_store_error());
		return EXIT_FAILED;
	}
	rc = serve(o, store, &attr, &ends);
	stag_store_close(store);
	return rc;
}
