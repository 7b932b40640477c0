// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_json.c - pools as JSON: as a client sees a pool, and as a node sees itself.
 */
#include "pool_words.h"

#include <inttypes.h>
#include <stdio.h>

#include "store_words.h"

const char *pool_role_word(uint32_t role)
{
	switch ((enum stag_pool_role)role) {
	case STAG_POOL_ROLE_UNKNOWN:
		return "unreachable";
	case STAG_POOL_ROLE_PRIMARY:
		return "primary";
	case STAG_POOL_ROLE_STANDBY:
		return "standby";
	case STAG_POOL_ROLE_JOINING:
		return "joining";
	case STAG_POOL_ROLE_WAITING:
		return "waiting";
	case STAG_POOL_ROLE_REFUSED:
		return "refused";
	}
	return "unknown";
}

/* The nodes of a pool, from either of two structs. */
struct members {
	const struct stag_pool_member *list;
	uint32_t n;
	uint64_t number; /* of the last record of the pool */
};

static struct members members_of(const struct stag_pool_member *list, uint32_t n, uint64_t number)
{
	struct members m = {list, n < STAG_POOL_NODES_MAX ? n : STAG_POOL_NODES_MAX, number};

	for (uint32_t i = 0; i < m.n; i++)
		if (list[i].number > m.number)
			m.number = list[i].number;
	return m;
}

static json_t *member_json(const struct members *all, const struct stag_pool_member *m)
{
	json_t *o = json_pack("{s:s, s:s, s:s, s:I}", "name", m->name, "address", m->address,
			      "role", pool_role_word(m->role), "number", (json_int_t)m->number);

	json_object_set_new(o, "lag",
			    m->role == STAG_POOL_ROLE_UNKNOWN
				    ? json_null()
				    : json_integer((json_int_t)(all->number - m->number)));
	if (m->role == STAG_POOL_ROLE_JOINING) {
		json_object_set_new(o, "done", json_integer((json_int_t)m->done));
		json_object_set_new(o, "total", json_integer((json_int_t)m->total));
	}
	return o;
}

/* Adds "nodes", "primary", "in_sync" (standbys), "copies" (with the primary's), and "lag": how many records the slowest standby is behind. */
static void add_members(json_t *o, const struct members *all)
{
	json_t *list = json_array(), *primary = json_null(), *lag = json_null();
	int in_sync = 0, copies = 0;

	for (uint32_t i = 0; i < all->n; i++) {
		const struct stag_pool_member *m = &all->list[i];
		json_int_t behind = (json_int_t)(all->number - m->number);

		json_array_append_new(list, member_json(all, m));
		if (m->role == STAG_POOL_ROLE_PRIMARY)
			primary = json_string(m->name);
		in_sync += m->role == STAG_POOL_ROLE_STANDBY;
		copies += m->role == STAG_POOL_ROLE_STANDBY || m->role == STAG_POOL_ROLE_PRIMARY;
		if (m->role == STAG_POOL_ROLE_STANDBY &&
		    (!json_is_integer(lag) || behind > json_integer_value(lag))) {
			json_decref(lag);
			lag = json_integer(behind);
		}
	}
	json_object_set_new(o, "nodes", list);
	json_object_set_new(o, "primary", primary);
	json_object_set_new(o, "in_sync", json_integer(in_sync));
	json_object_set_new(o, "copies", json_integer(copies));
	json_object_set_new(o, "lag", lag);
}

json_t *pool_info_json(const struct stag_pool_info *i)
{
	const struct members all = members_of(i->members, i->num_members, i->number);
	char uuid[37], address[32];
	json_t *o;

	store_uuid_word(i->uuid, uuid);
	snprintf(address, sizeof(address), "0x%" PRIx64, i->address);
	o = json_pack("{s:s, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I}", "uuid", uuid, "epoch",
		      (json_int_t)i->epoch, "number", (json_int_t)i->number, "size",
		      (json_int_t)i->size, "address", address, "used", (json_int_t)i->used,
		      "objects", (json_int_t)i->objects, "bytes", (json_int_t)i->bytes, "names",
		      (json_int_t)i->names);
	json_object_update_new(
		o, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "clients",
			     (json_int_t)i->clients, "paused", (json_int_t)i->paused, "pauses",
			     (json_int_t)i->pauses, "evicted", (json_int_t)i->evicted, "slots",
			     (json_int_t)i->slots, "max_slots", (json_int_t)i->max_slots,
			     "reclaimed", (json_int_t)i->reclaimed));
	add_members(o, &all);
	return o;
}

json_t *pool_node_json(const struct stag_pool_node_info *i)
{
	const struct members all = members_of(i->members, i->num_members, i->number);
	char uuid[37];
	json_t *o;

	store_uuid_word(i->uuid, uuid);
	o = json_pack("{s:s, s:s, s:i, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:I}", "uuid", uuid,
		      "role", pool_role_word(i->role), "port", (int)i->port, "epoch",
		      (json_int_t)i->epoch, "number", (json_int_t)i->number, "why", i->why, "size",
		      (json_int_t)i->size, "used", (json_int_t)i->used, "objects",
		      (json_int_t)i->objects, "bytes", (json_int_t)i->bytes, "names",
		      (json_int_t)i->names);
	json_object_update_new(
		o, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, "
			     "s:I, s:I, s:I, s:I}",
			     "clients", (json_int_t)i->clients, "changes", (json_int_t)i->changes,
			     "reads", (json_int_t)i->reads, "records", (json_int_t)i->records,
			     "record_bytes", (json_int_t)i->record_bytes, "mirrored_bytes",
			     (json_int_t)i->mirrored_bytes, "promotions", (json_int_t)i->promotions,
			     "lapses", (json_int_t)i->lapses, "resyncs", (json_int_t)i->resyncs,
			     "refused", (json_int_t)i->refused, "paused", (json_int_t)i->paused,
			     "pauses", (json_int_t)i->pauses, "evicted", (json_int_t)i->evicted,
			     "slots", (json_int_t)i->slots, "max_slots", (json_int_t)i->max_slots,
			     "reclaimed", (json_int_t)i->reclaimed, "limited",
			     (json_int_t)i->limited));
	add_members(o, &all);
	return o;
}
