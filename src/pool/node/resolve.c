// SPDX-License-Identifier: BSD-2-Clause
/*
 * resolve.c - looks up the address of a node by its name, in a thread of its own: name servers may take seconds,
 * and the node's loop has to send heartbeats.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct resolve {
	char host_port[ROLL_ADDRESS_LEN];
	struct sockaddr_storage to;
	int rc;
	atomic_bool done;
	atomic_int users; /* references: the caller, and the thread */
};

void resolve_end(struct resolve *r)
{
	if (r && atomic_fetch_sub(&r->users, 1) == 1)
		free(r);
}

static void *resolve_thread(void *arg)
{
	struct resolve *r = arg;

	r->rc = listen_address(r->host_port, STAG_POOL_PORT, 0, &r->to);
	atomic_store(&r->done, true);
	resolve_end(r);
	return NULL;
}

struct resolve *resolve_start(const char *host_port)
{
	struct resolve *r = calloc(1, sizeof(*r));
	pthread_t thread;

	if (!r)
		return NULL;
	strncpy(r->host_port, host_port, sizeof(r->host_port) - 1);
	atomic_init(&r->users, 2);
	if (pthread_create(&thread, NULL, resolve_thread, r) != 0) {
		free(r);
		return NULL;
	}
	pthread_detach(thread);
	return r;
}

int resolve_poll(struct resolve *r, struct sockaddr_storage *to)
{
	if (!atomic_load(&r->done))
		return -EINPROGRESS;
	*to = r->to;
	return r->rc;
}
