// SPDX-License-Identifier: BSD-2-Clause
/*
 * persist.c - persistent reservations (SPC-4, "Persistent reservations"): registrants of a unit, and its reservation.
 *
 * They survive the nexus that made them, and resets: an initiator is identified by its name and ISID. They survive a restart of
 * the target if the last registration said so (APTPL; persist_file.c). A reservation is held by one registrant or, depending on its
 * type, by all.
 */
#include "block/scsi/ops.h"

#include <stdio.h>
#include <stdlib.h>

#define LIST_LEN   24 /* parameter list of PERSISTENT RESERVE OUT */
#define HEAD_LEN   8  /* header of PERSISTENT RESERVE IN's data */
#define STATUS_LEN 28 /* a full status descriptor, up to the name */
#define NAME_MIN   20

enum persist_action {
	PERSIST_REGISTER,
	PERSIST_RESERVE,
	PERSIST_RELEASE,
	PERSIST_CLEAR,
	PERSIST_PREEMPT,
	PERSIST_REGISTER_ANYHOW = 6,
};

enum persist_type {
	TYPE_NONE,
	TYPE_WRITE_EXCLUSIVE = 1,
	TYPE_EXCLUSIVE = 3,
	TYPE_WRITE_REGISTRANTS = 5,
	TYPE_REGISTRANTS = 6,
	TYPE_WRITE_ALL = 7, /* all registrants hold it */
	TYPE_ALL = 8,
};

/* Byte 20 of the parameter list */
#define APTPL	      0x01 /* activate persist through power loss; of the registrations only */
#define NOT_SUPPORTED 0x0c /* SPEC_I_PT, ALL_TG_PT */

#define TYPE_MASK 0xea01 /* REPORT CAPABILITIES: all types */

static bool is_type(uint8_t type)
{
	return type == TYPE_WRITE_EXCLUSIVE || type == TYPE_EXCLUSIVE ||
	       (type >= TYPE_WRITE_REGISTRANTS && type <= TYPE_ALL);
}

bool scsi_persist_is_type(uint8_t type)
{
	return type == TYPE_NONE || is_type(type);
}

static bool is_for_registrants(uint8_t type)
{
	return type >= TYPE_WRITE_REGISTRANTS;
}

static bool is_of_all(uint8_t type)
{
	return type >= TYPE_WRITE_ALL;
}

static bool lets_read(uint8_t type)
{
	return type == TYPE_WRITE_EXCLUSIVE || type == TYPE_WRITE_REGISTRANTS ||
	       type == TYPE_WRITE_ALL;
}

/* ---- registrants ----------------------------------------------------------------------- */

static struct scsi_registrant *find_name(const struct scsi_unit *u, const char *name)
{
	for (uint32_t i = 0; i < u->persist.n; i++)
		if (strcmp(u->persist.list[i].name, name) == 0)
			return &u->persist.list[i];
	return NULL;
}

static struct scsi_registrant *find(const struct scsi_unit *u, const struct scsi_nexus *n)
{
	return find_name(u, n->name);
}

static bool holds(const struct scsi_unit *u, const struct scsi_registrant *r)
{
	return u->persist.type != TYPE_NONE && (is_of_all(u->persist.type) || r->holds);
}

bool scsi_persist_conflicts(const struct scsi_unit *u, const struct scsi_nexus *n,
			    const struct scsi_op *op)
{
	uint8_t type = u->persist.type;
	uint16_t flags = op ? op->flags : 0;
	const struct scsi_registrant *r;

	if (u->persist.n && (flags & OP_OLD_RESERVE))
		return true; /* RESERVE and RELEASE of SPC-2 conflict */
	if (type == TYPE_NONE || (flags & (OP_SHARED | OP_UNPERSIST)))
		return false;
	r = find(u, n);
	if (r && (holds(u, r) || is_for_registrants(type)))
		return false;
	return !(lets_read(type) && (flags & OP_READS));
}

/* Returns the length of the name in iSCSI's TransportID: with a final zero, padded. */
static uint32_t name_len(const char *name)
{
	uint32_t len = ((uint32_t)strlen(name) + 4) & ~3u;

	return len < NAME_MIN ? NAME_MIN : len;
}

/* Limits the registrants to what fits in the data of READ FULL STATUS. */
static bool has_room(const struct scsi_persist *p, const char *name)
{
	uint32_t len = HEAD_LEN + STATUS_LEN + name_len(name);

	for (uint32_t i = 0; i < p->n; i++)
		len += STATUS_LEN + name_len(p->list[i].name);
	return len <= SCSI_REPLY_MAX;
}

static struct scsi_registrant *add(struct scsi_unit *u, const char *name)
{
	struct scsi_persist *p = &u->persist;
	struct scsi_registrant *more = p->list;

	if (!has_room(p, name))
		return NULL;
	if (p->n == p->room) {
		more = realloc(p->list, (p->room + 8) * sizeof(*more));
		if (!more)
			return NULL;
		p->list = more;
		p->room += 8;
	}
	more[p->n] = (struct scsi_registrant){0};
	snprintf(more[p->n].name, sizeof(more[p->n].name), "%s", name);
	return &more[p->n++];
}

bool scsi_persist_restore(struct scsi_unit *u, const char *name, uint64_t key, bool holds)
{
	struct scsi_registrant *r = find_name(u, name) ? NULL : add(u, name);

	if (r) {
		r->key = key;
		r->holds = holds;
	}
	return r;
}

/* Keeps the order of the others, which READ KEYS shows. */
static void drop(struct scsi_unit *u, struct scsi_registrant *r)
{
	struct scsi_persist *p = &u->persist;
	uint32_t i = (uint32_t)(r - p->list);

	memmove(r, r + 1, (--p->n - i) * sizeof(*r));
}

/* ---- notifications ----------------------------------------------------------------------- */

static void notify(struct scsi_unit *u, const struct scsi_registrant *r, enum scsi_attention what)
{
	list_for_each (l, &u->target->nexuses) {
		struct scsi_nexus *n = list_entry(l, struct scsi_nexus, link);

		if (strcmp(n->name, r->name) == 0)
			n->at[u->slot].attentions |= (uint16_t)(1 << what);
	}
}

static void notify_others(struct scsi_unit *u, const struct scsi_nexus *but,
			  enum scsi_attention what)
{
	for (uint32_t i = 0; i < u->persist.n; i++)
		if (strcmp(u->persist.list[i].name, but->name) != 0)
			notify(u, &u->persist.list[i], what);
}

/* ---- holding ------------------------------------------------------------------------------- */

static void release(struct scsi_unit *u)
{
	u->persist.type = TYPE_NONE;
	for (uint32_t i = 0; i < u->persist.n; i++)
		u->persist.list[i].holds = false;
}

static void reserve(struct scsi_unit *u, struct scsi_registrant *r, uint8_t type)
{
	release(u);
	u->persist.type = type;
	r->holds = true;
}

static enum scsi_next conflict(struct scsi_cmd *c)
{
	c->status = SCSI_RESERVATION_CONFLICT;
	return SCSI_DONE;
}

/* ---- REGISTER -------------------------------------------------------------------------------- */

static void unregister(struct scsi_unit *u, struct scsi_registrant *r, const struct scsi_nexus *n)
{
	uint8_t type = u->persist.type;
	bool ends = holds(u, r) && (!is_of_all(type) || u->persist.n == 1);

	drop(u, r);
	if (!ends)
		return;
	release(u);
	if (is_for_registrants(type))
		notify_others(u, n, ATTENTION_RELEASED);
}

/* Ends a command that has changed something: at once, or when the change is saved. */
static enum scsi_next changed(struct scsi_cmd *c, bool was_lasting)
{
	return was_lasting || c->at->persist.lasting ? scsi_persist_save(c) : scsi_done(c);
}

static enum scsi_next do_register(struct scsi_cmd *c, struct scsi_registrant *r, uint64_t key)
{
	struct scsi_unit *u = c->at;
	bool was_lasting = u->persist.lasting;

	if (!r && !key)
		return scsi_done(c);
	if ((c->data[20] & APTPL) && u->target->dir < 0)
		return scsi_bad_parameter(c, 20, 0);
	if (!key) {
		unregister(u, r, c->nexus);
	} else {
		if (!r)
			r = add(u, c->nexus->name);
		if (!r)
			return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_NO_REGISTRATIONS);
		r->key = key;
	}
	u->persist.generation++;
	u->persist.lasting = c->data[20] & APTPL;
	return changed(c, was_lasting);
}

/* ---- RESERVE, RELEASE, CLEAR --------------------------------------------------------------------- */

static enum scsi_next do_reserve(struct scsi_cmd *c, struct scsi_registrant *r, uint8_t type)
{
	struct scsi_unit *u = c->at;

	if (u->persist.type != TYPE_NONE)
		return holds(u, r) && u->persist.type == type ? scsi_done(c) : conflict(c);
	reserve(u, r, type);
	return changed(c, false);
}

/* A registrant that does not hold the reservation gets GOOD, and nothing changes. */
static enum scsi_next do_release(struct scsi_cmd *c, struct scsi_registrant *r, uint8_t type)
{
	struct scsi_unit *u = c->at;

	if (!holds(u, r))
		return scsi_done(c);
	if (u->persist.type != type)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_BAD_RELEASE);
	release(u);
	if (is_for_registrants(type))
		notify_others(u, c->nexus, ATTENTION_RELEASED);
	return changed(c, false);
}

static enum scsi_next do_clear(struct scsi_cmd *c)
{
	struct scsi_unit *u = c->at;

	notify_others(u, c->nexus, ATTENTION_PREEMPTED);
	release(u);
	u->persist.n = 0;
	u->persist.generation++;
	return changed(c, false);
}

/* ---- PREEMPT ---------------------------------------------------------------------------------------- */

/* Removes all other registrants with this key, or all others (0). Returns how many. */
static uint32_t drop_others(struct scsi_cmd *c, uint64_t key)
{
	struct scsi_unit *u = c->at;
	uint32_t n = 0;

	for (uint32_t i = u->persist.n; i-- > 0;) {
		struct scsi_registrant *r = &u->persist.list[i];

		if (strcmp(r->name, c->nexus->name) == 0 || (key && r->key != key))
			continue;
		notify(u, r, ATTENTION_UNREGISTERED);
		drop(u, r);
		n++;
	}
	return n;
}

static bool is_holders_key(const struct scsi_unit *u, uint64_t key)
{
	for (uint32_t i = 0; i < u->persist.n; i++)
		if (u->persist.list[i].holds && u->persist.list[i].key == key)
			return true;
	return false;
}

/* Also takes over the reservation if the key is its holder's or, if all registrants hold it, if the key is 0. */
static enum scsi_next do_preempt(struct scsi_cmd *c, uint64_t key, uint8_t type)
{
	struct scsi_unit *u = c->at;
	uint8_t was = u->persist.type;
	bool takes = was != TYPE_NONE && (is_of_all(was) ? key == 0 : is_holders_key(u, key));

	if (key == 0 && !takes)
		return scsi_bad_parameter(c, 8, 7);
	if (drop_others(c, key) == 0 && !takes)
		return conflict(c);
	if (takes) {
		reserve(u, find(u, c->nexus), type);
		if (was != type && is_for_registrants(was))
			notify_others(u, c->nexus, ATTENTION_RELEASED);
	}
	u->persist.generation++;
	return changed(c, false);
}

/* ---- undoing a change ----------------------------------------------------------------------------------- */

/* Copies the state, for a command that may have to be undone. */
static bool remember(struct scsi_unit *u)
{
	size_t len = u->persist.n * sizeof(*u->persist.list);

	u->before = u->persist;
	u->before.list = malloc(len + 1);
	u->before.room = u->persist.n;
	if (!u->before.list)
		return false;
	if (len)
		memcpy(u->before.list, u->persist.list, len);
	return true;
}

static void forget(struct scsi_unit *u)
{
	free(u->before.list);
	u->before = (struct scsi_persist){0};
}

/* Attentions stay: whoever looks again finds that nothing has changed. */
void scsi_persist_settle(struct scsi_cmd *c)
{
	struct scsi_unit *u = c->at;

	if (u->saver != c)
		return;
	u->saver = NULL;
	if (u->save_result != 0) {
		free(u->persist.list);
		u->persist = u->before;
		u->before.list = NULL;
	}
	forget(u);
}

/* ---- PERSISTENT RESERVE OUT --------------------------------------------------------------------------- */

enum scsi_next scsi_op_persist_out(struct scsi_cmd *c)
{
	if (get_be32(c->cdb + 5) != LIST_LEN || scsi_data_out(c) < LIST_LEN)
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_LIST_LENGTH);
	return scsi_collect(c, LIST_LEN);
}

static bool scope_and_type_ok(struct scsi_cmd *c, enum persist_action action)
{
	if (action != PERSIST_RESERVE && action != PERSIST_RELEASE && action != PERSIST_PREEMPT)
		return true;
	if ((c->cdb[2] >> 4) == 0 && is_type(c->cdb[2] & 0x0f)) /* LU_SCOPE */
		return true;
	scsi_bad_cdb(c, 2, 7);
	return false;
}

static enum scsi_next persist_out(struct scsi_cmd *c)
{
	enum persist_action action = c->cdb[1] & 0x1f;
	struct scsi_registrant *r = find(c->at, c->nexus);
	uint64_t key = get_be64(c->data), new_key = get_be64(c->data + 8);
	uint8_t type = c->cdb[2] & 0x0f;

	if (!scope_and_type_ok(c, action))
		return SCSI_DONE;
	if (c->data[20] & NOT_SUPPORTED)
		return scsi_bad_parameter(c, 20, 3);
	if (action == PERSIST_REGISTER_ANYHOW)
		return do_register(c, r, new_key);
	if (action == PERSIST_REGISTER ? key != (r ? r->key : 0) : !r || r->key != key)
		return conflict(c);
	switch (action) {
	case PERSIST_REGISTER:
	case PERSIST_REGISTER_ANYHOW:
		return do_register(c, r, new_key);
	case PERSIST_RESERVE:
		return do_reserve(c, r, type);
	case PERSIST_RELEASE:
		return do_release(c, r, type);
	case PERSIST_CLEAR:
		return do_clear(c);
	case PERSIST_PREEMPT:
		return do_preempt(c, new_key, type);
	}
	return scsi_bad_cdb(c, 1, 4);
}

/* One at a time: a change that is being saved may be undone, and with it what was based on it. */
enum scsi_next scsi_op_persist_out_collected(struct scsi_cmd *c)
{
	struct scsi_unit *u = c->at;
	enum scsi_next next;

	if (u->saver) {
		c->status = SCSI_BUSY;
		return SCSI_DONE;
	}
	if (!remember(u))
		return scsi_refuse(c, SCSI_ILLEGAL_REQUEST, ASC_NO_REGISTRATIONS);
	next = persist_out(c);
	if (next == SCSI_WORK)
		u->saver = c;
	else
		forget(u);
	return next;
}

/* ---- PERSISTENT RESERVE IN ------------------------------------------------------------------------------ */

static enum scsi_next reply(struct scsi_cmd *c, uint32_t len)
{
	put_be32(c->reply, c->at->persist.generation);
	put_be32(c->reply + 4, len);
	return scsi_reply(c, HEAD_LEN + len, get_be16(c->cdb + 7));
}

enum scsi_next scsi_op_persist_keys(struct scsi_cmd *c)
{
	const struct scsi_persist *p = &c->at->persist;

	for (uint32_t i = 0; i < p->n; i++)
		put_be64(c->reply + HEAD_LEN + 8 * i, p->list[i].key);
	return reply(c, 8 * p->n);
}

enum scsi_next scsi_op_persist_holder(struct scsi_cmd *c)
{
	const struct scsi_persist *p = &c->at->persist;

	memset(c->reply, 0, 24);
	if (p->type == TYPE_NONE)
		return reply(c, 0);
	for (uint32_t i = 0; i < p->n && !is_of_all(p->type); i++)
		if (p->list[i].holds)
			put_be64(c->reply + HEAD_LEN, p->list[i].key);
	c->reply[21] = p->type;
	return reply(c, 16);
}

static uint32_t put_status(const struct scsi_unit *u, const struct scsi_registrant *r, uint8_t *to)
{
	uint32_t len = name_len(r->name);

	memset(to, 0, STATUS_LEN + len);
	put_be64(to, r->key);
	if (holds(u, r)) {
		to[12] = 0x01;
		to[13] = u->persist.type;
	}
	put_be16(to + 18, 1);	    /* the port */
	put_be32(to + 20, 4 + len); /* the TransportID: */
	to[24] = 0x45;		    /* of iSCSI, a name with an ISID */
	put_be16(to + 26, (uint16_t)len);
	memcpy(to + STATUS_LEN, r->name, strlen(r->name));
	return STATUS_LEN + len;
}

enum scsi_next scsi_op_persist_status(struct scsi_cmd *c)
{
	const struct scsi_persist *p = &c->at->persist;
	uint32_t len = 0;

	for (uint32_t i = 0; i < p->n; i++)
		len += put_status(c->at, &p->list[i], c->reply + HEAD_LEN + len);
	return reply(c, len);
}

enum scsi_next scsi_op_persist_capabilities(struct scsi_cmd *c)
{
	memset(c->reply, 0, 8);
	put_be16(c->reply, 8);
	c->reply[2] = c->at->target->dir >= 0;	     /* PTPL_C */
	c->reply[3] = 0x80 | c->at->persist.lasting; /* TMV: the type mask is valid; PTPL_A */
	put_be16(c->reply + 4, TYPE_MASK);
	return scsi_reply(c, 8, get_be16(c->cdb + 7));
}
