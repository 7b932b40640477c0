// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_serve.c - stag store serve: serves until SIGINT or SIGTERM.
 */
#include "store_options.h"

#include <errno.h>

#include <stag/stagdv.h>

#include "control.h"
#include "stag.h"
#include "store.h"

static void announce_store(const struct store_options *o, const struct stag_store_server *server)
{
	unsigned int port = stag_store_server_port(server);

	if (o->json)
		store_dump(json_pack("{s:s, s:i}", "path", o->where, "port", (int)port));
	else
		printf("serving %s on port %u\n", o->where, port);
}

static json_t *answer_query(void *server, const char *word)
{
	struct stag_store_counters c;

	if (stag_store_query_server(server, &c, sizeof(c)) != 0)
		return json_object();
	return store_counters_json(&c);
}

static int serve_until_signal(const struct store_options *o, struct stag_store *store,
			      const struct stag_store_server_attr *attr, const sigset_t *ends)
{
	struct stag_store_server *server = stag_store_serve(store, attr);
	struct control control;

	if (!server)
		return store_failed(o->where, errno);
	if (control_open(&control, STORE_KIND, answer_query, server) != 0)
		complain("'stag store show' will not show counters: the run directory cannot be "
			 "used");
	announce_store(o, server);
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
	if (o->tls) {
		attr.comp_mask = STAG_STORE_SERVER_TLS;
		attr.tls = o->tls[0] == 'r'   ? STAGDV_TLS_REQUIRED
			   : o->tls[0] == 'a' ? STAGDV_TLS_ALLOWED
					      : STAGDV_TLS_OFF;
	}
	serve_begin(&ends);
	store = stag_store_open(o->where, 0);
	if (!store)
		return store_failed(o->where, errno);
	rc = serve_until_signal(o, store, &attr, &ends);
	stag_store_close(store);
	return rc;
}
