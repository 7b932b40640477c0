// SPDX-License-Identifier: BSD-2-Clause
/* status.c - what a node reports about itself and the others. */
#include "pool/node/node.h"

#include <stdio.h>
#include <string.h>

static uint32_t role_of_us(const struct role *r)
{
	switch (r->state) {
	case ROLE_PRIMARY:
	case ROLE_HANDING:
		return STAG_POOL_ROLE_PRIMARY;
	case ROLE_STANDBY:
	case ROLE_FENCING:
	case ROLE_CLAIMING:
		return role_sits(r, r->roll.in_sync) ? STAG_POOL_ROLE_STANDBY
						     : STAG_POOL_ROLE_JOINING;
	case ROLE_OUTSIDE:
		return STAG_POOL_ROLE_JOINING;
	case ROLE_REFUSED:
		return STAG_POOL_ROLE_REFUSED;
	case ROLE_STARTING:
		break;
	}
	return STAG_POOL_ROLE_WAITING;
}

static uint32_t role_of(struct stag_pool_node *n, unsigned int seat)
{
	const struct role *r = &n->role;

	if ((int)seat == r->seat)
		return role_of_us(r);
	if (seat == r->roll.primary)
		return STAG_POOL_ROLE_PRIMARY;
	if (roll_in_sync(&r->roll, seat))
		return STAG_POOL_ROLE_STANDBY;
	if (n->standbys.links[seat])
		return STAG_POOL_ROLE_JOINING;
	return door_refuses(n, seat) ? STAG_POOL_ROLE_WAITING : STAG_POOL_ROLE_UNKNOWN;
}

static void describe(struct stag_pool_node *n, unsigned int seat, struct node_member *m)
{
	const struct roll_member *who = &n->role.roll.members[seat];
	const struct standby *l = n->standbys.links[seat];

	*m = (struct node_member){.role = role_of(n, seat)};
	memcpy(m->name, who->name, sizeof(m->name));
	memcpy(m->address, who->address, sizeof(m->address));
	if (l) {
		m->number = l->number;
		m->done = l->copied;
		m->total = l->total;
	} else if ((int)seat == n->role.seat && n->memory.mapped) {
		m->number = pool_superblock(&n->memory.region)->number;
	}
	if ((int)seat == n->role.seat && n->primary.link &&
	    n->primary.link->state == FOLLOW_COPYING) {
		m->done = n->primary.link->copy.next * COPY_CHUNK;
		m->total = n->primary.link->copy.chunks * COPY_CHUNK;
	}
}

static uint32_t lease_left(const struct stag_pool_node *n)
{
	uint64_t lease = n->role.lease, left = lease > n->now ? (lease - n->now) / 1000 : 0;

	if (lease == LEASE_FOREVER)
		return UINT32_MAX;
	return left < UINT32_MAX ? (uint32_t)left : UINT32_MAX - 1;
}

static void describe_clients(const struct stag_pool_node *n, struct node_status *status)
{
	status->clients.connected = n->serve.num_clients;
	status->clients.paused = n->serve.num_paused;
	status->clients.pauses = n->info.pauses;
	status->clients.evicted = n->info.evicted;
	status->clients.reclaimed = n->info.reclaimed;
	if (!n->memory.mapped)
		return;
	status->clients.slots = pool_superblock(&n->memory.region)->clients;
	status->clients.max_slots = n->memory.region.max_clients;
}

#define CENSUS_STEP 4096 /* entries of the span table, in one beat */

/*
 * Counts the free memory of a standby, once a second: the allocator's own count begins when the node becomes primary. A big pool
 * is counted over many beats, while records change it.
 */
static uint64_t count_used(struct stag_pool_node *n)
{
	const struct pool_region *r = &n->memory.region;
	struct node_census *c = &n->memory.census;

	if (c->span == 0 && c->used != 0 && n->now - c->begun < NS_PER_S)
		return c->used;
	if (c->span == 0)
		c->begun = n->now;
	pool_count_free(r, &c->span, CENSUS_STEP, &c->free);
	if (c->span < r->num_spans)
		return c->used;
	c->used = r->size - c->free * POOL_SPAN;
	c->span = c->free = 0;
	return c->used;
}

void node_status(struct stag_pool_node *n, struct node_status *status)
{
	*status = (struct node_status){.epoch = n->role.epoch, .lease_us = lease_left(n)};
	memcpy(status->pool, n->conf.pool, sizeof(status->pool));
	memcpy(status->uuid, n->role.roll.uuid, sizeof(status->uuid));
	if (n->memory.mapped) {
		const struct pool_superblock *sb = pool_superblock(&n->memory.region);

		status->number = sb->number;
		status->size = n->memory.region.size;
		status->address = n->memory.region.address;
		status->objects = sb->objects;
		status->bytes = sb->bytes;
		status->names = sb->names;
	}
	if (n->serve.running)
		status->used = status->size - n->serve.core.room.free_spans * POOL_SPAN;
	else if (n->memory.mapped && role_of_us(&n->role) == STAG_POOL_ROLE_STANDBY)
		status->used = count_used(n);
	describe_clients(n, status);
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (n->role.roll.members[s].name[0]) {
			status->secrets[status->num_members] = secret_status(n, s);
			describe(n, s, &status->members[status->num_members++]);
		}
}

static void show_member(struct stag_pool_member *to, const struct node_member *m, uint32_t secret)
{
	*to = (struct stag_pool_member){.role = m->role,
					.secret = secret,
					.number = m->number,
					.done = m->done,
					.total = m->total};
	memcpy(to->name, m->name, sizeof(to->name));
	memcpy(to->address, m->address, sizeof(m->address));
}

void node_show(struct stag_pool_node *n)
{
	struct stag_pool_node_info *i = &n->info;
	struct node_status s;

	n->loop.shown_at = n->now;
	node_status(n, &s);
	memcpy(i->uuid, s.uuid, sizeof(i->uuid));
	i->epoch = s.epoch;
	i->number = s.number;
	i->role = role_of_us(&n->role);
	i->clients = n->serve.num_clients;
	i->paused = n->serve.num_paused;
	i->refused = atomic_load_explicit(&n->door.refused, memory_order_relaxed);
	i->limited = atomic_load_explicit(&n->door.limited, memory_order_relaxed);
	i->lapses = atomic_load_explicit(&n->pulse.lapses, memory_order_relaxed);
	i->slots = s.clients.slots;
	i->max_slots = s.clients.max_slots;
	i->size = s.size;
	i->address = s.address;
	i->used = s.used;
	i->objects = s.objects;
	i->bytes = s.bytes;
	i->names = s.names;
	snprintf(i->why, sizeof(i->why), "%s", n->role.why ? n->role.why : "");
	i->num_members = s.num_members;
	for (unsigned int m = 0; m < s.num_members; m++)
		show_member(&i->members[m], &s.members[m], s.secrets[m]);
	HOLD_FOR_SCOPE(&n->program.lock);
	n->program.shown = *i;
}

void node_snapshot(struct stag_pool_node *n)
{
	if (n->now - n->loop.shown_at >= n->role.times.lease.beat)
		node_show(n);
}
