// SPDX-License-Identifier: BSD-2-Clause
/*
 * service_store.c - a store: opens it, formats it if create is set and nothing is there, creates the partitions of its section,
 * and serves it.
 *
 * An existing partition is left as it is, whatever its line says: people change it by other means. If its line is removed, the
 * partition stays.
 */
#include "service.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "complain.h"
#include "live.h"
#include "store_words.h"

struct store {
	struct service service;
	struct daemon_store use;
	struct lock lock; /* protects use.store */
	struct stag_store *
		look; /* a second handle for the status, which so need not wait for a long change */
	struct lock look_lock;
	char uuid[37];
	char (*made)[STAG_STORE_NAME_MAX]; /* partitions that the last change created, for undo */
	unsigned int num_made;
};

static struct store *to_store(struct service *s)
{
	return (struct store *)s;
}

static const struct conf_store *store_conf(const struct service *s)
{
	return (const struct conf_store *)s->conf;
}

/* ---- partitions ---------------------------------------------------------------------------- */

static int resolve_partition_size(struct store *st, struct conf_partition *p, char *why,
				  size_t size)
{
	struct stag_store_info info;
	struct store_room room;
	int rc = stag_store_query(st->use.store, &info, sizeof(info));

	if (rc != 0)
		return service_fail(why, size, rc, "%s", stag_store_error());
	room = (struct store_room){.whole = info.size - STAG_STORE_DATA_OFFSET,
				   .largest = info.largest_gap,
				   .block = info.block};
	complain_catch(why, size);
	rc = store_parse_size("a partition", p->size, &room, &p->p.size) ? 0 : -EINVAL;
	complain_catch(NULL, 0);
	return rc;
}

static int make_partition(struct store *st, const struct conf_section *of,
			  const struct conf_item *item, char *why, size_t size)
{
	struct conf none = {.path = (char *)daemon_path(st->service.daemon)};
	struct stag_store_partition found;
	struct conf_partition p;
	char text[256];
	int rc = stag_store_find(st->use.store, item->name, &found);

	if (rc != ENOENT)
		return rc == 0 ? 0
			       : service_fails(of, item->line, why, size, rc, "%s",
					       stag_store_error());
	if (!conf_store_partition(&none, item,
				  &p)) /* it passed the check; a file of its tokens may be gone */
		return service_fails(of, item->line, why, size, EINVAL,
				     "partition.%s is not valid any more", item->name);
	rc = resolve_partition_size(st, &p, text, sizeof(text));
	if (rc != 0)
		return service_fails(of, item->line, why, size, -rc, "%s", text);
	rc = stag_store_add(st->use.store, &p.p);
	if (rc != 0)
		return service_fails(
			of, item->line, why, size, rc, "partition %s cannot be created: %s%s",
			item->name, stag_store_error(),
			rc == ENOSPC ? "; enlarge the store with 'stag store grow'" : "");
	memcpy(st->made[st->num_made++], p.p.name, sizeof(p.p.name));
	event_add(EVENT_INFO, st->service.object, "partition %s was created, %llu bytes", p.p.name,
		  (unsigned long long)p.p.size);
	return 0;
}

static void unmake_partitions(struct store *st)
{
	while (st->num_made > 0)
		stag_store_remove(st->use.store, st->made[--st->num_made], STAG_STORE_FORCE);
}

static int make_partitions(struct store *st, const struct conf_section *of, char *why, size_t size)
{
	int rc = 0;

	free(st->made);
	st->num_made = 0;
	st->made = calloc(of->num_items + 1, sizeof(*st->made));
	if (!st->made)
		return service_fail(why, size, ENOMEM, "out of memory");
	for (unsigned int i = 0; i < of->num_items && rc == 0; i++)
		rc = make_partition(st, of, &of->items[i], why, size);
	if (rc != 0)
		unmake_partitions(st);
	return rc;
}

/* ---- start and stop ------------------------------------------------------------------------ */

static const char *store_advice(const struct conf_store *c, int error)
{
	switch (error) {
	case ENOENT:
		return "; set create = yes, or run 'stag store format'";
	case EPROTO:
		return "; 'stag store format' formats it";
	case EBUSY:
		return "; is another stagd or 'stag store serve' serving it?";
	case EADDRINUSE:
		return "; set another port in its section: port = PORT";
	case EACCES:
	case EPERM:
		return "; the user of stagd must be able to read and write it";
	case EBADMSG:
		return "; run 'stag store check' for details";
	default:
		return "";
	}
}

static int store_fail(struct service *s, const char *setting, char *why, size_t size)
{
	int error = errno;

	return service_fails(s->conf, conf_line_of(s->conf, setting), why, size, error, "%s%s",
			     stag_store_error(), store_advice(store_conf(s), error));
}

/* Formats the store only if nothing is there: other content is never overwritten. */
static int open_store(struct service *s, char *why, size_t size)
{
	const struct conf_store *c = store_conf(s);
	struct store *st = to_store(s);
	struct stag_store_info info;
	int rc;

	st->use.store = stag_store_open(c->store, 0);
	if (!st->use.store && c->create && (errno == ENOENT || errno == EPROTO)) {
		rc = stag_store_format(c->store, &c->made, 0);
		errno = rc;
		if (rc != 0)
			return store_fail(s, "create", why, size);
		event_add(EVENT_INFO, s->object, "%s was formatted", c->store);
		st->use.store = stag_store_open(c->store, 0);
	}
	if (st->use.store)
		st->look = stag_store_open(c->store, STAG_STORE_LOOK);
	if (!st->look || stag_store_query(st->look, &info, sizeof(info)) != 0)
		return store_fail(s, "path", why, size);
	store_uuid_word(info.uuid, st->uuid);
	return 0;
}

static void close_store(struct store *st)
{
	if (st->look)
		stag_store_close(st->look);
	if (st->use.store)
		stag_store_close(st->use.store);
	free(st->made);
}

static int store_start(struct service *s, char *why, size_t size)
{
	const struct conf_store *c = store_conf(s);
	struct store *st = to_store(s);
	int rc;

	snprintf(s->object, sizeof(s->object), "store %s", s->conf->name);
	st->use.name = s->conf->name;
	st->use.path = c->store;
	rc = open_store(s, why, size);
	if (rc == 0)
		rc = make_partitions(st, s->conf, why, size);
	if (rc == 0) {
		st->use.server = stag_store_serve(st->use.store, &c->attr);
		rc = st->use.server ? 0 : store_fail(s, "port", why, size);
	}
	if (rc != 0) {
		close_store(st);
		return rc;
	}
	lock_init(&st->lock);
	lock_init(&st->look_lock);
	event_add(EVENT_INFO, s->object, "%s is served on port %u", c->store,
		  stag_store_server_port(st->use.server));
	return 0;
}

static void store_stop(struct service *s)
{
	struct store *st = to_store(s);

	stag_store_server_stop(st->use.server);
	close_store(st);
	lock_destroy(&st->lock);
	lock_destroy(&st->look_lock);
	event_add(EVENT_INFO, s->object, "stopped");
}

/* ---- change --------------------------------------------------------------------------------- */

static int store_change(struct service *s, struct conf_section *to, char *why, size_t size)
{
	struct store *st = to_store(s);

	HOLD_FOR_SCOPE(&st->lock);
	return make_partitions(st, to, why, size);
}

static void store_undo_change(struct service *s, struct conf_section *before)
{
	struct store *st = to_store(s);

	HOLD_FOR_SCOPE(&st->lock);
	unmake_partitions(st);
}

/* ---- status --------------------------------------------------------------------- */

static bool store_answers(struct service *s)
{
	struct stag_store_counters c;

	return stag_store_query_server(to_store(s)->use.server, &c, sizeof(c)) == 0;
}

json_t *store_service_counters(struct service *s)
{
	struct stag_store_counters c;

	if (stag_store_query_server(to_store(s)->use.server, &c, sizeof(c)) != 0)
		return NULL;
	return store_counters_json(&c);
}

static json_t *store_table(struct store *st)
{
	HOLD_FOR_SCOPE(&st->look_lock);

	return store_table_json(st->look, st->use.path);
}

/* Without a setting the environment decides, as for every program that uses the adapter. */
static const char *tls_word(const struct conf_store *c)
{
	const char *word = getenv("STAG_TLS");

	if (conf_is_set(&c->at, "tls"))
		return conf_tls_words[c->tls];
	for (const char *const *w = conf_tls_words; word && *w; w++)
		if (strcmp(word, *w) == 0)
			return *w;
	return conf_tls_words[0];
}

static json_t *store_status(struct service *s, const struct conf_section *now)
{
	struct store *st = to_store(s);
	json_t *o = json_pack("{s:s, s:s, s:i, s:s?}", "name", s->conf->name, "path", st->use.path,
			      "port", (int)stag_store_server_port(st->use.server), "address",
			      store_conf(s)->address);
	struct stag_store_counters c = {0};
	json_t *table = store_table(st);

	json_object_set_new(o, "tls", json_string(tls_word(store_conf(s))));
	if (table)
		json_object_update_new(o, table);
	if (stag_store_query_server(st->use.server, &c, sizeof(c)) == 0) {
		json_object_set_new(o, "counters", store_counters_json(&c));
		json_object_set_new(
			o, "latency",
			json_pack("{s:o s:o s:o}", "read", live_histogram(&c.read_times), "write",
				  live_histogram(&c.write_times), "flush",
				  live_histogram(&c.flush_times)));
	}
	return o;
}

static void store_announce(struct service *s, json_t *list)
{
	const struct store *st = to_store(s);
	unsigned int port = stag_store_server_port(st->use.server);

	if (list)
		json_array_append_new(list, json_pack("{s:s, s:s, s:i}", "store", s->conf->name,
						      "path", st->use.path, "port", (int)port));
	else
		printf("serving store %s (%s) on port %u\n", s->conf->name, st->use.path, port);
}

struct daemon_store *store_service_get(struct service *s)
{
	struct store *st = to_store(s);

	lock_acquire(&st->lock);
	return &st->use;
}

void daemon_store_put(struct daemon_store *use)
{
	struct store *st = (struct store *)((char *)use - offsetof(struct store, use));

	lock_release(&st->lock);
	daemon_put(&st->service);
}

bool store_service_has_uuid(struct service *s, const char *uuid)
{
	return strcmp(to_store(s)->uuid, uuid) == 0;
}

const char *store_service_path(struct service *s)
{
	return to_store(s)->use.path;
}

const struct service_kind store_service = {
	.conf = &conf_store_kind,
	.list = "stores",
	.size = sizeof(struct store),
	.frees_port = true,
	.start = store_start,
	.stop = store_stop,
	.change = store_change,
	.undo = store_undo_change,
	.answers = store_answers,
	.status = store_status,
	.announce = store_announce,
};
