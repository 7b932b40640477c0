// SPDX-License-Identifier: BSD-2-Clause
/*
 * expire.c - frees memory of the region that is not needed any more. Clients that were not seen for long are
 * forgotten, by a record, with what is kept for them. Deleted long values are overwritten, if that was
 * requested, before their memory becomes free.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

int expire_begin(struct stag_pool_node *n)
{
	n->serve.seen = calloc(n->memory.region.max_clients, sizeof(*n->serve.seen));
	if (!n->serve.seen)
		return -ENOMEM;
	/* The previous primary's times are lost: count from now. */
	for (uint64_t i = 0; i < n->memory.region.max_clients; i++)
		n->serve.seen[i] = n->now;
	n->serve.expired_at = n->now;
	return 0;
}

void expire_end(struct stag_pool_node *n)
{
	free(n->serve.seen);
	n->serve.seen = NULL;
}

void expire_seen(struct client *k)
{
	struct stag_pool_node *n = k->conn.node;

	if (n->serve.seen && k->greeted && k->rights & STAG_POOL_RIGHT_WRITE &&
	    k->who.slot < n->memory.region.max_clients)
		n->serve.seen[k->who.slot] = n->now;
}

static bool expire_one(struct stag_pool_node *n, uint32_t slot)
{
	size_t room, used;
	void *at = serve_record_room(n, POOL_RECORD_META, &room);

	if (!at || pool_expire(&n->serve.core, slot, at, room, &used) != 0)
		return false;
	pool_log_add(&n->memory.log, used);
	n->serve.seen[slot] = n->now;
	node_log(n, LOG_LEVEL_INFO, "a client that was not seen for %u s is forgotten",
		 n->conf.expire_s);
	return true;
}

/* Runs once a second, for a few clients at most, so that other work is not delayed. */
void expire_clients(struct stag_pool_node *n)
{
	uint64_t long_ago = n->conf.expire_s * NS_PER_S;
	unsigned int most = 16;

	if (n->now - n->serve.expired_at < NS_PER_S || !role_may_change(&n->role, n->now))
		return;
	n->serve.expired_at = n->now;
	list_for_each (it, &n->conns)
		serve_keep_alive(list_entry(it, struct node_conn, link));
	for (uint32_t s = 0; s < n->memory.region.max_clients && most > 0; s++) {
		if (n->now - n->serve.seen[s] < long_ago || pool_client_who(&n->serve.core, s) == 0)
			continue;
		if (!expire_one(n, s))
			return;
		most--;
	}
}

/* Overwrites one step per round. */
void expire_values(struct stag_pool_node *n)
{
	size_t room, used;
	void *at;

	if (n->serve.core.room.scrubs == 0 || !role_may_change(&n->role, n->now))
		return;
	at = serve_record_room(n, POOL_RECORD_META, &room);
	if (!at || pool_scrub(&n->serve.core, at, room, &used) != 0)
		return;
	pool_log_add(&n->memory.log, used);
	n->loop.busy = true;
}
