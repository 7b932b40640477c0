// SPDX-License-Identifier: BSD-2-Clause
/*
 * roll.c - the roll: validity, the next primary, and the JSON form (roll.h). Pure.
 *
 * A backend may return bytes that anybody wrote: they are a roll only if every detail is valid.
 */
#include "pool/role/roll.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#define ROLL_VERSION 1

/* ---- the roll --------------------------------------------------------------------- */

static bool is_text(const char *text, size_t room)
{
	size_t len = strnlen(text, room);

	for (size_t i = 0; i < len; i++)
		if (!isgraph((unsigned char)text[i]) || text[i] == '"' || text[i] == '\\')
			return false;
	return len > 0 && len < room;
}

static const char *fault_of_members(const struct roll *roll)
{
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++) {
		const struct roll_member *m = &roll->members[s];

		if (!m->name[0])
			continue;
		if (!name_is_valid(m->name))
			return "a member's name";
		if (!is_text(m->address, sizeof(m->address)))
			return "a member's address";
		if (roll_seat(roll, m->name) != (int)s)
			return "two members of the same name";
	}
	return NULL;
}

static const char *fault_of(const struct roll *roll)
{
	if (roll->epoch == 0)
		return "the epoch";
	if (roll->primary >= ROLL_MAX_NODES || !roll->members[roll->primary].name[0])
		return "the primary";
	if (!roll_in_sync(roll, roll->primary) || roll->in_sync >> ROLL_MAX_NODES)
		return "the in-sync set";
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (roll_in_sync(roll, s) && !roll->members[s].name[0])
			return "the in-sync set";
	return fault_of_members(roll);
}

bool roll_is_valid(const struct roll *roll)
{
	return fault_of(roll) == NULL;
}

int roll_seat(const struct roll *roll, const char *name)
{
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (roll->members[s].name[0] && strcmp(roll->members[s].name, name) == 0)
			return (int)s;
	return -ENOENT;
}

int roll_free_seat(const struct roll *roll)
{
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (!roll->members[s].name[0])
			return (int)s;
	return -ENOSPC;
}

bool roll_in_sync(const struct roll *roll, unsigned int seat)
{
	return roll->in_sync & ROLL_BIT(seat);
}

static bool goes_before(const struct roll *roll, unsigned int a, unsigned int b)
{
	uint32_t order_a = roll->members[a].order, order_b = roll->members[b].order;

	return order_a != order_b ? order_a < order_b : a < b;
}

int roll_next(const struct roll *roll, unsigned int excluded)
{
	int next = -ENOENT;

	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (s != excluded && roll_in_sync(roll, s) &&
		    (next < 0 || goes_before(roll, s, (unsigned int)next)))
			next = (int)s;
	return next;
}

unsigned int roll_before(const struct roll *roll, unsigned int seat, unsigned int excluded)
{
	unsigned int n = 0;

	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		n += s != excluded && roll_in_sync(roll, s) && goes_before(roll, s, seat);
	return n;
}

/* ---- JSON --------------------------------------------------------------------------- */

static void uuid_to_text(const uint8_t uuid[ROLL_UUID_LEN], char text[37])
{
	char *at = text;

	for (int i = 0; i < ROLL_UUID_LEN; i++)
		at += sprintf(at, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x",
			      uuid[i]);
}

static bool uuid_from_text(const char *text, uint8_t uuid[ROLL_UUID_LEN])
{
	char again[37];
	int at = 0;

	for (int i = 0; i < ROLL_UUID_LEN; i++) {
		at += text[at] == '-';
		if (sscanf(text + at, "%2hhx", &uuid[i]) != 1)
			return false;
		at += 2;
	}
	uuid_to_text(uuid, again);
	return strcmp(again, text) == 0;
}

/* A member's index in the list is its seat, and null marks a free seat: so all readers agree on seats. */
static json_t *members_to_json(const struct roll *roll)
{
	json_t *list = json_array();

	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++) {
		const struct roll_member *m = &roll->members[s];

		json_array_append_new(list, m->name[0] ? json_pack("{s:s, s:s, s:I, s:b}", "name",
								   m->name, "address", m->address,
								   "order", (json_int_t)m->order,
								   "in-sync", roll_in_sync(roll, s))
						       : json_null());
	}
	return list;
}

int roll_to_text(const struct roll *roll, uint64_t revision, char *text, size_t room)
{
	char uuid[37];
	json_t *o;
	size_t len;

	uuid_to_text(roll->uuid, uuid);
	o = json_pack("{s:i, s:s, s:I, s:I, s:I, s:s, s:o}", "stag-pool", ROLL_VERSION, "uuid",
		      uuid, "revision", (json_int_t)revision, "epoch", (json_int_t)roll->epoch,
		      "base", (json_int_t)roll->base, "primary", roll->members[roll->primary].name,
		      "members", members_to_json(roll));
	if (!o)
		return -ENOMEM;
	len = json_dumpb(o, text, room - 1, JSON_INDENT(1));
	json_decref(o);
	if (len == 0 || len + 1 >= room)
		return -ENOSPC;
	text[len++] = '\n';
	text[len] = '\0';
	return (int)len;
}

static bool number_of(json_t *o, const char *key, uint64_t *to)
{
	json_t *n = json_object_get(o, key);

	if (!json_is_integer(n) || json_integer_value(n) < 0)
		return false;
	*to = (uint64_t)json_integer_value(n);
	return true;
}

static bool text_of(json_t *o, const char *key, char *to, size_t room)
{
	const char *text = json_string_value(json_object_get(o, key));

	if (!text || strlen(text) >= room)
		return false;
	strcpy(to, text);
	return true;
}

static bool member_from_json(json_t *o, struct roll *roll, unsigned int seat)
{
	struct roll_member *m = &roll->members[seat];
	json_t *in_sync = json_object_get(o, "in-sync");
	uint64_t order;

	if (json_is_null(o))
		return true;
	if (!text_of(o, "name", m->name, sizeof(m->name)) ||
	    !text_of(o, "address", m->address, sizeof(m->address)) ||
	    !number_of(o, "order", &order) || order > UINT32_MAX || !json_is_boolean(in_sync) ||
	    !m->name[0])
		return false;
	m->order = (uint32_t)order;
	if (json_is_true(in_sync))
		roll->in_sync |= ROLL_BIT(seat);
	return true;
}

static const char *members_from_json(json_t *o, struct roll *roll)
{
	const char *primary = json_string_value(json_object_get(o, "primary"));
	json_t *list = json_object_get(o, "members");
	int seat;

	if (!json_is_array(list) || json_array_size(list) > ROLL_MAX_NODES)
		return "the members";
	for (unsigned int s = 0; s < json_array_size(list); s++)
		if (!member_from_json(json_array_get(list, s), roll, s))
			return "a member";
	seat = primary ? roll_seat(roll, primary) : -ENOENT;
	if (seat < 0)
		return "the primary";
	roll->primary = (unsigned int)seat;
	return NULL;
}

static const char *from_json(json_t *o, struct roll *roll, uint64_t *revision)
{
	char uuid[37];
	uint64_t version;
	const char *why;

	if (!number_of(o, "stag-pool", &version))
		return "not the roll of a pool";
	if (version != ROLL_VERSION)
		return "the version";
	if (!text_of(o, "uuid", uuid, sizeof(uuid)) || !uuid_from_text(uuid, roll->uuid))
		return "the uuid";
	if (!number_of(o, "revision", revision) || !number_of(o, "epoch", &roll->epoch) ||
	    !number_of(o, "base", &roll->base))
		return "a number";
	why = members_from_json(o, roll);
	return why ? why : fault_of(roll);
}

int roll_from_text(const char *text, size_t len, struct roll *roll, uint64_t *revision,
		   const char **why)
{
	struct roll found = {0};
	uint64_t at = 0;
	json_t *o =
		len <= ROLL_MAX_TEXT ? json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL) : NULL;
	const char *fault = o ? from_json(o, &found, &at) : "it is not JSON";

	json_decref(o);
	if (fault) {
		*why = fault;
		return -EBADMSG;
	}
	*roll = found;
	if (revision)
		*revision = at;
	return 0;
}
