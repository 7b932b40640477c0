// SPDX-License-Identifier: BSD-2-Clause
/* calls.c - the calls that wait: one operation at a time, names, queries. */
#include "pool/client/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/export.h"

/* ---- one at a time ------------------------------------------------------------------------ */

/* Drives the client until the op is done. Other operations in flight continue meanwhile. */
static void run_until_done(struct stag_pool *p, const struct op *op)
{
	uint64_t spin = clock_ns() + SPIN_NS;

	for (;;) {
		client_step(p);
		if (op->stage == OP_DONE)
			return;
		if (clock_ns() >= spin)
			client_sleep(p, UINT64_MAX);
	}
}

static int set_error(const struct op *op)
{
	int error = op->outcome.error;

	if (error != 0)
		pool_fail(error, "%s%s%s: %s", pool_op_name(op->wire_op),
			  op->name_length ? " " : "", op->name_length ? op->name : "",
			  error == ENOENT ? "gone" : strerror(error));
	return error;
}

static struct op *get_op_for_call(struct stag_pool *p)
{
	struct op *op;

	if (p->nodes.lost) {
		client_step(p);
		if (p->nodes.lost) {
			errno = -pool_fail(ENOTCONN, "no primary found for retry_ms");
			return NULL;
		}
	}
	op = client_op_get(p);
	if (op)
		op->whose = OP_FOR_CALL;
	else
		errno = ENOMEM;
	return op;
}

/* Returns an errno value. */
static int call_and_wait(struct stag_pool *p, const struct stag_pool_io *io,
			 struct stag_pool_done *done)
{
	struct op *op = get_op_for_call(p);
	int rc;

	if (!op)
		return errno;
	rc = -client_op_set(op, io);
	if (rc == 0) {
		client_op_start(p, op);
		run_until_done(p, op);
		*done = op->outcome;
		rc = set_error(op);
	}
	client_op_put(p, op);
	return rc;
}

static void set_ptr(struct stag_pool_ptr *ptr, const struct stag_pool_done *done)
{
	if (ptr)
		*ptr = done->ptr;
}

STAG_EXPORT int stag_pool_insert(struct stag_pool *p, const void *value, size_t length,
				 struct stag_pool_ptr *ptr)
{
	struct stag_pool_io io = {.op = STAG_POOL_INSERT, .from = value, .length = length};
	struct stag_pool_done done;
	int rc = call_and_wait(p, &io, &done);

	if (rc == 0)
		set_ptr(ptr, &done);
	return rc;
}

STAG_EXPORT int stag_pool_update(struct stag_pool *p, struct stag_pool_ptr *ptr, const void *value,
				 size_t length)
{
	struct stag_pool_io io = {
		.op = STAG_POOL_UPDATE, .ptr = *ptr, .from = value, .length = length};
	struct stag_pool_done done;
	int rc = call_and_wait(p, &io, &done);

	if (rc == 0)
		set_ptr(ptr, &done);
	return rc;
}

STAG_EXPORT int stag_pool_compare_update(struct stag_pool *p, struct stag_pool_ptr *ptr,
					 uint64_t *version, const void *value, size_t length)
{
	struct stag_pool_io io = {
		.op = STAG_POOL_UPDATE,
		.flags = STAG_POOL_COMPARE,
		.ptr = *ptr,
		.version = *version,
		.from = value,
		.length = length,
	};
	struct stag_pool_done done;
	int rc = call_and_wait(p, &io, &done);

	if (rc == 0)
		set_ptr(ptr, &done);
	if (rc == 0 || rc == EILSEQ)
		*version = done.version;
	return rc;
}

static int read_value(struct stag_pool *p, const struct stag_pool_io *io, size_t *length,
		      uint64_t *version)
{
	struct stag_pool_done done;
	int rc = call_and_wait(p, io, &done);

	if (rc == 0 || rc == EMSGSIZE)
		*length = done.length;
	if (rc == 0 && version)
		*version = done.version;
	return rc;
}

STAG_EXPORT int stag_pool_read(struct stag_pool *p, const struct stag_pool_ptr *ptr, void *to,
			       size_t *length, uint64_t *version)
{
	struct stag_pool_io io = {.op = STAG_POOL_READ, .ptr = *ptr, .to = to, .length = *length};

	return read_value(p, &io, length, version);
}

STAG_EXPORT int stag_pool_delete(struct stag_pool *p, const struct stag_pool_ptr *ptr)
{
	struct stag_pool_io io = {.op = STAG_POOL_DELETE, .ptr = *ptr};
	struct stag_pool_done done;

	return call_and_wait(p, &io, &done);
}

STAG_EXPORT int stag_pool_put(struct stag_pool *p, const char *name, const void *value,
			      size_t length, unsigned int flags, struct stag_pool_ptr *ptr)
{
	struct stag_pool_io io = {
		.op = STAG_POOL_PUT, .flags = flags, .name = name, .from = value, .length = length};
	struct stag_pool_done done;
	int rc = call_and_wait(p, &io, &done);

	if (rc == 0)
		set_ptr(ptr, &done);
	return rc;
}

STAG_EXPORT int stag_pool_get(struct stag_pool *p, const char *name, void *to, size_t *length,
			      uint64_t *version)
{
	struct stag_pool_io io = {.op = STAG_POOL_GET, .name = name, .to = to, .length = *length};

	return read_value(p, &io, length, version);
}

STAG_EXPORT int stag_pool_remove(struct stag_pool *p, const char *name)
{
	struct stag_pool_io io = {.op = STAG_POOL_REMOVE, .name = name};
	struct stag_pool_done done;

	return call_and_wait(p, &io, &done);
}

/* ---- requests of the library itself --------------------------------------------------------- */

/* Sends a request that is no operation of the program. Returns NULL and errno, or an op for client_op_put(). */
static struct op *request_and_wait(struct stag_pool *p, enum pool_op what, const char *name,
				   uint64_t version, size_t room)
{
	struct op *op = get_op_for_call(p);

	if (!op)
		return NULL;
	op->io = (struct stag_pool_io){.length = room, .version = version};
	op->wire_op = (uint8_t)what;
	op->name_length = name ? (uint16_t)strnlen(name, STAG_POOL_NAME_MAX) : 0;
	memcpy(op->name, name ? name : "", op->name_length);
	op->name[op->name_length] = 0;
	client_op_start(p, op);
	run_until_done(p, op);
	if (set_error(op) == 0)
		return op;
	errno = op->outcome.error;
	client_op_put(p, op);
	return NULL;
}

/* ---- names ------------------------------------------------------------------------------------ */

/* Fetches the page of names that begins after a cursor. */
static int fetch_page(struct stag_pool *p, uint64_t cursor)
{
	uint64_t from = cursor;

	do { /* a page may be empty, with more names behind it */
		struct op *op =
			request_and_wait(p, POOL_OP_LIST, NULL, from,
					 NODE_MESSAGE - POOL_MESSAGE_HEADER - POOL_ANSWER_HEADER);

		if (!op)
			return -errno;
		free(p->names.page);
		p->names.page = op->answer;
		p->names.length = op->answer ? (uint32_t)op->outcome.length : 0;
		from = op->outcome.version > from ? op->outcome.version : 0;
		op->answer = NULL;
		client_op_put(p, op);
	} while (p->names.length == 0 && from != 0);
	p->names.at = 0;
	p->names.cursor = cursor;
	return 0;
}

static int copy_entry(struct stag_pool *p, struct stag_pool_entry *entry)
{
	uint32_t left = p->names.length - p->names.at, size;
	struct pool_listed listed;

	if (left < sizeof(listed))
		return -EPROTO;
	memcpy(&listed, p->names.page + p->names.at, sizeof(listed));
	size = (uint32_t)sizeof(listed) + ((listed.name_length + 7u) & ~7u);
	if (listed.name_length > STAG_POOL_NAME_MAX || size > left ||
	    listed.cursor <= entry->cursor)
		return -EPROTO;
	memcpy(entry->name, p->names.page + p->names.at + sizeof(listed), listed.name_length);
	entry->name[listed.name_length] = 0;
	entry->ptr = listed.ptr;
	entry->version = listed.version;
	entry->cursor = p->names.cursor = listed.cursor;
	p->names.at += size;
	return 0;
}

STAG_EXPORT bool stag_pool_next(struct stag_pool *p, struct stag_pool_entry *entry)
{
	bool here = p->names.page && p->names.cursor == entry->cursor &&
		    p->names.at < p->names.length && entry->cursor != 0;
	int rc = here ? 0 : fetch_page(p, entry->cursor);

	if (rc == 0 && p->names.length == 0) {
		errno = 0;
		return false;
	}
	if (rc == 0)
		rc = copy_entry(p, entry);
	if (rc == -EPROTO)
		pool_fail(EPROTO, "invalid list of names from the node");
	errno = -rc;
	return rc == 0;
}

/* ---- queries ------------------------------------------------------------------------------------ */

static void copy_text(char *to, size_t room, const char *from, size_t length)
{
	length = strnlen(from, length);
	length = length < room ? length : room - 1;
	memcpy(to, from, length);
	to[length] = 0;
}

static void fill_member(struct stag_pool_member *to, const struct node_member *from,
			uint32_t secret)
{
	copy_text(to->name, sizeof(to->name), from->name, sizeof(from->name));
	copy_text(to->address, sizeof(to->address), from->address, sizeof(from->address));
	to->role = from->role;
	to->secret = secret;
	to->number = from->number;
	to->done = from->done;
	to->total = from->total;
}

static void fill_info(struct stag_pool_info *info, const struct node_status *s)
{
	memcpy(info->uuid, s->uuid, sizeof(info->uuid));
	copy_text(info->name, sizeof(info->name), s->pool, sizeof(s->pool));
	info->epoch = s->epoch;
	info->size = s->size;
	info->address = s->address;
	info->objects = s->objects;
	info->bytes = s->bytes;
	info->names = s->names;
	info->used = s->used;
	info->number = s->number;
	info->lease_us = s->lease_us == UINT32_MAX ? STAG_POOL_NO_LEASE : s->lease_us;
	info->num_members = s->num_members < ROLL_MAX_NODES ? s->num_members : ROLL_MAX_NODES;
	for (uint32_t i = 0; i < info->num_members; i++)
		fill_member(&info->members[i], &s->members[i], s->secrets[i]);
	info->clients = s->clients.connected;
	info->paused = s->clients.paused;
	info->pauses = s->clients.pauses;
	info->evicted = s->clients.evicted;
	info->slots = s->clients.slots;
	info->max_slots = s->clients.max_slots;
	info->reclaimed = s->clients.reclaimed;
}

static void note_tls(struct stag_pool *p, struct stag_pool_info *info)
{
	struct stagdv_tls_info tls;

	if (!p->link.id || !pool_tls_query(p->link.id, &tls))
		return;
	copy_text(info->tls_version, sizeof(info->tls_version), tls.version, sizeof(tls.version));
	copy_text(info->tls_cipher, sizeof(info->tls_cipher), tls.cipher, sizeof(tls.cipher));
	info->tls_kernel = tls.kernel;
}

STAG_EXPORT int stag_pool_query(struct stag_pool *p, struct stag_pool_info *info, size_t size)
{
	struct stag_pool_info all = p->counts;
	struct node_status status = {.num_members = 0};
	struct op *op;

	if (size < sizeof(info->comp_mask) || info->comp_mask != 0)
		return -pool_fail(EINVAL, "invalid query: comp_mask");
	op = request_and_wait(p, POOL_OP_NODES, NULL, 0, sizeof(status));
	if (!op)
		return errno;
	if (op->outcome.length < NODE_STATUS_MIN) {
		client_op_put(p, op);
		return -pool_fail(EPROTO, "invalid status from the node");
	}
	memcpy(&status, op->answer,
	       op->outcome.length < sizeof(status) ? op->outcome.length : sizeof(status));
	client_op_put(p, op);
	fill_info(&all, &status);
	note_tls(p, &all);
	memcpy(info, &all, size < sizeof(all) ? size : sizeof(all));
	return 0;
}

/* ---- events --------------------------------------------------------------------------------- */

/* Fetches the events after an id. */
static int fetch_events(struct stag_pool *p, uint64_t since)
{
	struct op *op;

	if (!(p->link.facts.rights & STAG_POOL_RIGHT_ADMIN))
		return pool_fail(EACCES, "events: no right to administer");
	if (!(p->link.facts.flags & NODE_EVENTS))
		return pool_fail(EOPNOTSUPP, "events: the primary keeps none");
	op = request_and_wait(p, POOL_OP_EVENTS, NULL, since,
			      NODE_MESSAGE - POOL_MESSAGE_HEADER - POOL_ANSWER_HEADER);
	if (!op)
		return -errno;
	free(p->events.page);
	p->events.page = op->answer;
	p->events.length = op->answer ? (uint32_t)op->outcome.length : 0;
	p->events.at = 0;
	op->answer = NULL;
	client_op_put(p, op);
	return 0;
}

static void fill_event(struct stag_pool_event *to, const struct node_event *from)
{
	*to = (struct stag_pool_event){.run = from->run,
				       .number = from->number,
				       .age_us = from->age_us,
				       .level = from->level,
				       .cursor = from->id};
	copy_text(to->node, sizeof(to->node), from->node, sizeof(from->node));
	copy_text(to->text, sizeof(to->text), from->text, sizeof(from->text));
}

/* Takes the next event of the page, if that follows the cursor. */
static bool next_of_page(struct stag_pool *p, struct stag_pool_event *event)
{
	struct node_event found;

	if (p->events.length - p->events.at < sizeof(found) || event->cursor != p->events.cursor)
		return false;
	memcpy(&found, p->events.page + p->events.at, sizeof(found));
	p->events.at += (uint32_t)sizeof(found);
	if (found.id <= event->cursor)
		return false;
	p->events.cursor = found.id;
	fill_event(event, &found);
	return true;
}

STAG_EXPORT bool stag_pool_next_event(struct stag_pool *p, struct stag_pool_event *event)
{
	int rc;

	if (event->comp_mask != 0) {
		errno = -pool_fail(EINVAL, "invalid event: comp_mask");
		return false;
	}
	if (p->events.epoch != p->nodes.epoch) { /* another node answers now, with ids of its own */
		p->events.epoch = p->nodes.epoch;
		p->events.length = p->events.at = 0;
		event->cursor = 0;
	}
	if (next_of_page(p, event))
		return true;
	rc = fetch_events(p, event->cursor);
	if (rc == 0)
		p->events.cursor = event->cursor;
	if (rc == 0 && next_of_page(p, event))
		return true;
	errno = -rc;
	return false;
}

/* ---- administration --------------------------------------------------------------------------- */

static int administer(struct stag_pool *p, enum pool_op what, const char *node)
{
	struct op *op = request_and_wait(p, what, node, 0, 0);

	if (!op)
		return errno;
	client_op_put(p, op);
	return 0;
}

STAG_EXPORT int stag_pool_switchover(struct stag_pool *p, const char *node)
{
	if (node && !name_is_valid(node))
		return -pool_fail(EINVAL, "invalid node name '%s'", node);
	return administer(p, POOL_OP_SWITCH, node);
}

STAG_EXPORT int stag_pool_forget(struct stag_pool *p, const char *node)
{
	if (!node || !name_is_valid(node))
		return -pool_fail(EINVAL, "invalid node name '%s'", node ? node : "");
	return administer(p, POOL_OP_FORGET, node);
}
