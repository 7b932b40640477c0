// SPDX-License-Identifier: BSD-2-Clause
/*
 * expire.c - frees memory of the region that is not needed any more: slots of the table of clients, and deleted
 * long values, which are overwritten before, if that was requested.
 *
 * A slot has the outcomes of a client's last changes, so that a change that is sent again is not made again. It is
 * taken away, by a record, and then a client that still claims to have it is told that it is forgotten (protocol.h):
 *
 * - from a client that was absent for conf.expire_s;
 * - if another client needs a slot and there is none: from the client that made no change, and whose connection
 *   did not end, for the longest time, if that is conf.retry or more: as long as that, a client may retry;
 * - if there is no such client: from a client of the user with the most slots, so that a user whose clients die
 *   again and again harms none but itself; if possible, from one to which no answer is owed.
 *
 * It is not taken away while a request of a connected client is in flight. If one user has more than half of the slots,
 * all in such use, and another user needs one, then a client of the first is disconnected. A client that is connected does not
 * notice: it gets another slot at its next change, which knows what the client cannot repeat any more.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"

#define RESERVED                                                                                   \
	8u	 /* slots for administrators, in a table of 512 or more; in a smaller one fewer */
#define HEAVY 8u /* users that are compared for the most slots */

int expire_begin(struct stag_pool_node *n)
{
	struct client_slot *slots = calloc(n->memory.region.max_clients, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	/* The previous primary's times are lost: count from now. */
	for (uint32_t i = 0; i < n->memory.region.max_clients; i++)
		slots[i] = (struct client_slot){
			.who = pool_client_who(&n->serve.core, i), .seen = n->now, .owed = true};
	n->serve.slots = slots;
	n->serve.expired_at = n->now;
	return 0;
}

void expire_end(struct stag_pool_node *n)
{
	free(n->serve.slots);
	n->serve.slots = NULL;
}

/* ---- slots ---------------------------------------------------------------------------- */

/* Returns the slot of a client, or NULL. */
static struct client_slot *slot_of(const struct client *k)
{
	const struct stag_pool_node *n = k->conn.node;

	if (!n->serve.slots || !k->enrolled || k->reclaimed ||
	    k->who.slot >= n->memory.region.max_clients)
		return NULL;
	return &n->serve.slots[k->who.slot];
}

void expire_enrolled(struct client *k)
{
	k->enrolled = true;
	k->reclaimed = false;
	*slot_of(k) =
		(struct client_slot){.who = k->who.who, .seen = k->conn.node->now, .client = k};
}

void expire_detached(struct client *k)
{
	struct client_slot *s = slot_of(k);

	if (s)
		*s = (struct client_slot){0};
	k->enrolled = false;
}

void expire_used(struct client *k)
{
	struct client_slot *s = slot_of(k);

	if (s)
		s->seen = k->conn.node->now;
}

/* Another connection may have continued as the same client already. */
void expire_left(struct client *k)
{
	struct client_slot *s = slot_of(k);

	if (!s || s->client != k)
		return;
	s->client = NULL;
	s->seen = k->conn.node->now;
	s->owed = k->unanswered != 0 || k->conn.unsent != 0;
}

/* Takes a slot away. A connected client that gets another one must not repeat what this one knew. */
static int take_away(struct stag_pool_node *n, uint32_t slot)
{
	struct client *k = n->serve.slots[slot].client;
	uint64_t last = pool_client_last(&n->serve.core, slot);
	size_t room, used;
	void *at = serve_record_room(n, POOL_RECORD_META, &room);

	if (!at || pool_expire(&n->serve.core, slot, at, room, &used) != 0)
		return -EAGAIN;
	pool_log_add(&n->memory.log, used);
	n->serve.slots[slot] = (struct client_slot){0};
	if (k) {
		k->reclaimed = true;
		k->who.acknowledged = last;
	}
	return 0;
}

/* ---- absent clients ------------------------------------------------------------------- */

/* Runs once a second, for a few clients at most, so that other work is not delayed. */
void expire_clients(struct stag_pool_node *n)
{
	uint64_t long_ago = n->conf.expire_s * NS_PER_S;
	unsigned int most = 16;

	if (n->now - n->serve.expired_at < NS_PER_S || !role_may_change(&n->role, n->now))
		return;
	n->serve.expired_at = n->now;
	for (uint32_t i = 0; i < n->memory.region.max_clients && most > 0; i++) {
		const struct client_slot *s = &n->serve.slots[i];

		if (s->who == 0 || s->client || n->now - s->seen < long_ago)
			continue;
		if (take_away(n, i) != 0)
			return;
		node_log(n, LOG_LEVEL_INFO, "a client that was not seen for %u s is forgotten",
			 n->conf.expire_s);
		most--;
	}
}

/* ---- room for others ------------------------------------------------------------------ */

static bool is_spare(const struct client_slot *s)
{
	return s->who != 0 &&
	       !(s->client && (s->client->unanswered != 0 || s->client->conn.unsent != 0));
}

struct wanted {
	uint64_t unused; /* for so many ns, or more */
	uint64_t who;	 /* of this user; 0: of any */
	bool owed;	 /* also if its client will perhaps ask again */
};

/* Returns the slot that was not used for the longest time, of those wanted, or -1. */
static int64_t find_oldest(const struct stag_pool_node *n, const struct wanted *w)
{
	int64_t oldest = -1;

	for (uint32_t i = 0; i < n->memory.region.max_clients; i++) {
		const struct client_slot *s = &n->serve.slots[i];

		if (!is_spare(s) || n->now - s->seen < w->unused || (w->who && s->who != w->who) ||
		    (s->owed && !w->owed))
			continue;
		if (oldest < 0 || s->seen < n->serve.slots[oldest].seen)
			oldest = i;
	}
	return oldest;
}

struct heavy {
	uint64_t who;
	uint32_t count;
};

/* Finds every user that has more than one in HEAVY + 1 slots, and perhaps others (Misra and Gries). */
static void find_heavy(const struct stag_pool_node *n, struct heavy heavy[HEAVY])
{
	for (uint32_t i = 0; i < n->memory.region.max_clients; i++) {
		uint64_t who = n->serve.slots[i].who;
		struct heavy *free = NULL, *same = NULL;

		for (struct heavy *h = heavy; who != 0 && h < heavy + HEAVY; h++) {
			if (h->count != 0 && h->who == who)
				same = h;
			else if (h->count == 0)
				free = h;
		}
		if (same)
			same->count++;
		else if (free)
			*free = (struct heavy){who, 1};
		else
			for (struct heavy *h = heavy; who != 0 && h < heavy + HEAVY; h++)
				h->count--;
	}
}

static uint64_t find_heaviest(const struct stag_pool_node *n)
{
	struct heavy heavy[HEAVY] = {{0}}, most = {0};

	find_heavy(n, heavy);
	for (unsigned int h = 0; h < HEAVY; h++) {
		struct heavy one = {heavy[h].count ? heavy[h].who : 0, 0};

		for (uint32_t i = 0; one.who != 0 && i < n->memory.region.max_clients; i++)
			one.count += n->serve.slots[i].who == one.who;
		if (one.count > most.count)
			most = one;
	}
	return most.who;
}

/* Returns the slot to be taken away first, or -1 if all are in use. */
static int64_t choose_slot(const struct stag_pool_node *n)
{
	struct wanted w = {.unused = n->conf.retry, .owed = true};
	int64_t slot = find_oldest(n, &w);

	if (slot >= 0)
		return slot;
	w = (struct wanted){.who = find_heaviest(n)};
	slot = find_oldest(n, &w);
	w.owed = true;
	return slot >= 0 ? slot : find_oldest(n, &w);
}

/*
 * Disconnects a client of a user who has more than half of the slots, unless that is the user who needs one. Returns whether a
 * slot will be free when connections that have ended are freed.
 */
static bool evict_one_for(const struct client *k)
{
	struct stag_pool_node *n = k->conn.node;
	uint64_t who = find_heaviest(n);
	struct client_slot *oldest = NULL;
	uint32_t count = 0;

	for (uint32_t i = 0; i < n->memory.region.max_clients; i++) {
		struct client_slot *s = &n->serve.slots[i];

		count += s->who == who;
		if (s->who != who || !s->client)
			continue;
		if (s->client->conn.over)
			return true;
		if (!oldest || s->seen < oldest->seen)
			oldest = s;
	}
	if (!oldest || who == k->who.who || count <= n->memory.region.max_clients / 2)
		return false;
	serve_evict(oldest->client, "its user has %u of %u slots, and another user needs one",
		    count, (uint32_t)n->memory.region.max_clients);
	return true;
}

static uint32_t reserved_of(const struct stag_pool_node *n)
{
	uint64_t some = n->memory.region.max_clients / 64;

	return some < RESERVED ? (uint32_t)some : RESERVED;
}

int expire_make_room(struct client *k)
{
	struct stag_pool_node *n = k->conn.node;

	k->who.leave = k->rights & STAG_POOL_RIGHT_ADMIN ? 0 : reserved_of(n);
	if (pool_client_room(&n->serve.core) > k->who.leave ||
	    pool_client_find(&n->serve.core, k->who.id) >= 0)
		return 0;
	if (!role_may_change(&n->role, n->now))
		return -EAGAIN;
	/* Several, if administrators use slots that are left for them. */
	while (pool_client_room(&n->serve.core) <= k->who.leave) {
		int64_t slot = choose_slot(n);

		if (slot < 0 && evict_one_for(k)) {
			n->loop.busy = true;
			return -EAGAIN;
		}
		if (slot < 0)
			return 0; /* all are in use: pool_change() says EUSERS */
		if (take_away(n, (uint32_t)slot) != 0)
			return -EAGAIN;
		n->info.reclaimed++;
	}
	return 0;
}

/* ---- deleted values ------------------------------------------------------------------- */

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
