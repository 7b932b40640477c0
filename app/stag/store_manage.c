// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_manage.c - stag store format, list, show, add, set, rename, rm, grow and check.
 *
 * Management needs no device and no adapter, and changes nothing but the store's table.
 */
#include "store_options.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "stag.h"
#include "store.h"

/* ---- errors ---------------------------------------------------------------------------- */

/* Prints the library's error and, for common errors, what to do about it. */
int store_failed(const char *path, int error)
{
	complain_for(error, path, "%s", stag_store_error());
	if (error == EBADMSG)
		complain_try("'stag store check %s'.", path);
	else if (error == ENOENT)
		complain_try("'stag store format %s --size 1G' to make a store there.", path);
	else if (error == EACCES)
		complain_try("'ls -l %s': who may read and write it?", path);
	else if (error == EADDRINUSE || error == EADDRNOTAVAIL)
		complain_try("--port 0, for any free port, or another --address.");
	else if (error == ENOSYS || error == EPERM || error == EMFILE || error == ENOMEM)
		complain_try("'stag doctor --quiet'.");
	return EXIT_FAILED;
}

/* Prints the library's error, then "Try " and this advice. Returns EXIT_FAILED. */
__attribute__((format(printf, 3, 4))) static int failed_try(const struct store_options *o,
							    int error, const char *fmt, ...)
{
	CLEANUP_FREE char *advice = NULL;
	va_list ap;

	complain_for(error, o->name ? o->name : o->where, "%s", stag_store_error());
	va_start(ap, fmt);
	if (vasprintf(&advice, fmt, ap) < 0)
		advice = NULL;
	va_end(ap);
	complain_try("%s.", advice ? advice : "'stag help store'");
	return EXIT_FAILED;
}

static struct stag_store *open_store(const struct store_options *o, unsigned int flags)
{
	struct stag_store *store = stag_store_open(o->where, flags);
	int error = errno;

	if (!store)
		store_failed(o->where, error);
	return store;
}

/* ---- list and show ---------------------------------------------------------------------------------- */

int store_list(const struct store_options *o)
{
	struct stag_store *store = open_store(o, STAG_STORE_LOOK);
	json_t *json;

	if (!store)
		return EXIT_FAILED;
	if (o->json) {
		json = store_json(store, o->where);
		if (json)
			store_dump(json_incref(json_object_get(json, "partitions")));
		json_decref(json);
	} else {
		store_print_list(store);
	}
	stag_store_close(store);
	return EXIT_OK;
}

static int show_store(const struct store_options *o, struct stag_store *store)
{
	struct stag_store_info info;
	json_t *json;
	int rc = stag_store_query(store, &info, sizeof(info));

	if (rc != 0)
		return store_failed(o->where, rc);
	if (!o->json) {
		store_print(&info, o->where);
		return EXIT_OK;
	}
	json = store_json(store, o->where);
	if (!json)
		return store_failed(o->where, 0);
	store_dump(json);
	return EXIT_OK;
}

static int show_partition(const struct store_options *o, struct stag_store *store, const char *name)
{
	struct stag_store_partition p;
	int rc = stag_store_find(store, name, &p);

	if (rc != 0)
		return failed_try(o, rc, "'stag store list %s'", o->where);
	if (o->json)
		store_dump(store_partition_json(&p));
	else
		store_print_partition(&p);
	return EXIT_OK;
}

int store_show(const struct store_options *o)
{
	struct stag_store *store = open_store(o, STAG_STORE_LOOK);
	int rc;

	if (!store)
		return EXIT_FAILED;
	rc = o->name ? show_partition(o, store, o->name) : show_store(o, store);
	stag_store_close(store);
	return rc;
}

/* ---- add ------------------------------------------------------------------------------------ */

static bool room_of(struct stag_store *store, uint64_t now, struct store_room *room)
{
	struct stag_store_info info;
	int rc = stag_store_query(store, &info, sizeof(info));

	if (rc != 0) {
		complain_for(rc, NULL, "%s", stag_store_error());
		return false;
	}
	*room = (struct store_room){.whole = info.size - STAG_STORE_DATA_OFFSET,
				    .largest = info.largest_gap,
				    .now = now,
				    .block = info.block};
	return true;
}

static int add_partition(const struct store_options *o, struct stag_store *store,
			 struct stag_store_partition *p, const char *size)
{
	struct store_room room;
	int rc;

	if (!room_of(store, 0, &room) || !store_parse_size("--size", size, &room, &p->size))
		return EXIT_FAILED;
	store_show_progress(store, p->name, "zeroes");
	rc = stag_store_add(store, p);
	store_end_progress();
	if (rc == ENOSPC)
		return failed_try(
			o, rc,
			"'stag store list %s' to see what there is, or 'stag store grow %s "
			"--size ...' for more",
			o->where, o->where);
	if (rc == EEXIST)
		return failed_try(o, rc,
				  "'stag store set %s %s --size ...' to change it, or another name",
				  o->where, p->name);
	return rc == 0 ? EXIT_OK : store_failed(o->where, rc);
}

static bool set_name(struct stag_store_partition *p, const char *name, size_t len)
{
	if (len >= sizeof(p->name)) {
		complain("'%s' is too long: a name may have %d characters", name,
			 STAG_STORE_NAME_MAX - 1);
		return false;
	}
	memset(p->name, 0, sizeof(p->name));
	memcpy(p->name, name, len);
	return true;
}

int store_add(const struct store_options *o)
{
	struct stag_store_partition p = o->p;
	struct stag_store *store;
	int rc;

	if (!o->size) {
		complain("the partition %s needs a --size", o->name);
		return EXIT_USAGE;
	}
	if (!set_name(&p, o->name, strlen(o->name)) ||
	    (o->offset && !store_parse_offset(o->offset, &p.offset)) ||
	    (o->align && !store_parse_size("--align", o->align, NULL, &p.alignment)))
		return EXIT_USAGE;
	store = open_store(o, 0);
	if (!store)
		return EXIT_FAILED;
	rc = add_partition(o, store, &p, o->size);
	if (rc == EXIT_OK)
		rc = show_partition(o, store, o->name);
	stag_store_close(store);
	return rc;
}

/* ---- format ------------------------------------------------------------------------------------ */

/* Removes the partitions added so far: format makes all of them, or none. */
static void remove_first_partitions(const struct store_options *o, struct stag_store *store)
{
	struct stag_store_partition p;
	uint32_t first = 0;

	while (stag_store_next(store, &first, &p)) {
		if (stag_store_remove(store, p.name, 0) != 0) {
			store_failed(o->where, 0);
			return;
		}
		first = 0;
	}
	fprintf(stderr, "%s is now a store without partitions.\n", o->where);
}

static int add_first_partitions(const struct store_options *o, struct stag_store *store)
{
	int rc = EXIT_OK;

	for (unsigned int i = 0; i < o->num_partitions && rc == EXIT_OK; i++) {
		const char *text = o->partitions[i], *equals = strchr(text, '=');
		struct stag_store_partition p = {0};

		rc = set_name(&p, text, (size_t)(equals - text))
			     ? add_partition(o, store, &p, equals + 1)
			     : EXIT_FAILED;
	}
	if (rc != EXIT_OK)
		remove_first_partitions(o, store);
	return rc;
}

int store_format(const struct store_options *o)
{
	struct stag_store_attr attr = {0};
	struct stag_store *store;
	uint64_t block = 0;
	int rc;

	if ((o->size && !store_parse_size("--size", o->size, NULL, &attr.size)) ||
	    (o->block && !store_parse_size("--block", o->block, NULL, &block)))
		return EXIT_USAGE;
	attr.block = block > UINT32_MAX ? UINT32_MAX : (uint32_t)block;
	if (o->label && (size_t)snprintf(attr.label, sizeof(attr.label), "%s", o->label) >=
				sizeof(attr.label)) {
		complain("--label may have at most %d characters", STAG_STORE_NAME_MAX - 1);
		return EXIT_USAGE;
	}
	rc = stag_store_format(o->where, &attr, o->force ? STAG_STORE_FORCE : 0);
	if (rc == EEXIST)
		return failed_try(o, rc,
				  "'stag store format %s --force' to overwrite it, or another "
				  "path",
				  o->where);
	if (rc == EBUSY)
		return failed_try(o, rc,
				  "'fuser -v %s': which process uses it? --force overwrites data, "
				  "but nothing that is in use",
				  o->where);
	if (rc == EINVAL && !o->size)
		return failed_try(o, rc, "'stag store format %s --size 1G'", o->where);
	if (rc != 0)
		return store_failed(o->where, rc == ENOENT ? 0 : rc);
	store = open_store(o, 0);
	if (!store)
		return EXIT_FAILED;
	rc = add_first_partitions(o, store);
	if (rc == EXIT_OK)
		rc = show_store(o, store);
	stag_store_close(store);
	return rc;
}

/* ---- change ---------------------------------------------------------------------------------------- */

static int change_partition(const struct store_options *o, struct stag_store *store,
			    struct stag_store_partition *p, unsigned int what)
{
	int rc;

	store_show_progress(store, p->name, "zeroes");
	rc = stag_store_change(store, p, what);
	store_end_progress();
	if (rc == ENOSPC)
		return failed_try(o, rc, "'stag store list %s'", o->where);
	return rc == 0 ? show_partition(o, store, p->name) : store_failed(o->where, rc);
}

static struct stag_store *open_partition(const struct store_options *o,
					 struct stag_store_partition *p)
{
	struct stag_store *store = open_store(o, 0);
	int rc;

	if (!store)
		return NULL;
	rc = stag_store_find(store, o->name, p);
	if (rc == 0)
		return store;
	failed_try(o, rc, "'stag store list %s'", o->where);
	stag_store_close(store);
	return NULL;
}

/* Parses --size. "max" extends the partition over all free space after it. */
static bool parse_new_size(const struct store_options *o, struct stag_store *store,
			   struct stag_store_partition *p)
{
	struct stag_store_partition q;
	struct stag_store_info info;
	struct store_room room;
	uint64_t end = 0;

	if (!room_of(store, p->size, &room) || stag_store_query(store, &info, sizeof(info)) != 0)
		return false;
	for (uint32_t i = 0; stag_store_next(store, &i, &q) && end == 0;)
		if (q.offset > p->offset)
			end = q.offset;
	room.largest = (end != 0 ? end : info.size) - p->offset;
	return store_parse_size("--size", o->size, &room, &p->size);
}

int store_set(const struct store_options *o)
{
	struct stag_store_partition p;
	struct stag_store *store;
	unsigned int what = o->what;
	int rc = EXIT_USAGE;

	if (what == 0 && !o->size) {
		complain("nothing to change in %s: give --size, --order, --level, --cache or "
			 "--allow",
			 o->name);
		return EXIT_USAGE;
	}
	store = open_partition(o, &p);
	if (!store)
		return EXIT_FAILED;
	p.relax = o->p.relax;
	p.level = o->p.level;
	p.cache_ms = o->p.cache_ms;
	p.num_rights = o->p.num_rights;
	memcpy(p.rights, o->p.rights, sizeof(p.rights));
	if (!o->size || parse_new_size(o, store, &p))
		rc = change_partition(o, store, &p, what | (o->size ? STAG_STORE_CHANGE_SIZE : 0));
	stag_store_close(store);
	return rc;
}

int store_rename(const struct store_options *o)
{
	struct stag_store_partition p;
	struct stag_store *store = open_partition(o, &p);
	int rc = EXIT_USAGE;

	if (!store)
		return EXIT_FAILED;
	if (set_name(&p, o->new_name, strlen(o->new_name)))
		rc = change_partition(o, store, &p, STAG_STORE_CHANGE_NAME);
	stag_store_close(store);
	return rc;
}

int store_rm(const struct store_options *o)
{
	struct stag_store *store = open_store(o, 0);
	int rc;

	if (!store)
		return EXIT_FAILED;
	store_show_progress(store, o->name, "searched for data");
	rc = stag_store_remove(store, o->name, o->force ? STAG_STORE_FORCE : 0);
	store_end_progress();
	stag_store_close(store);
	if (rc == EBUSY)
		return failed_try(
			o, rc, "'stag store rm %s %s --force' to remove it although it is in use",
			o->where, o->name);
	if (rc == ENOTEMPTY)
		return failed_try(o, rc, "'stag store rm %s %s --force' to remove it with its data",
				  o->where, o->name);
	if (rc == ENOENT)
		return failed_try(o, rc, "'stag store list %s'", o->where);
	if (rc != 0)
		return store_failed(o->where, rc);
	if (o->json)
		store_dump(json_pack("{s:s s:s}", "path", o->where, "removed", o->name));
	return EXIT_OK;
}

int store_grow(const struct store_options *o)
{
	struct stag_store *store;
	uint64_t size = 0;
	int rc;

	if (o->size && !store_parse_size("--size", o->size, NULL, &size))
		return EXIT_USAGE;
	store = open_store(o, 0);
	if (!store)
		return EXIT_FAILED;
	rc = stag_store_grow(store, size);
	rc = rc != 0 ? store_failed(o->where, rc) : show_store(o, store);
	stag_store_close(store);
	return rc;
}

/* Returns the library's list of faults, a line for each, as an array. */
static json_t *lines_json(const char *text)
{
	json_t *lines = json_array();

	for (size_t n; *text; text += n + (text[n] == '\n')) {
		n = strcspn(text, "\n");
		json_array_append_new(lines, json_stringn(text, n));
	}
	return lines;
}

static void print_check(const struct store_options *o, int faults, const char *text)
{
	if (o->json) {
		store_dump(json_pack("{s:s s:i s:b s:o}", "path", o->where, "faults", faults,
				     "repaired", faults > 0 && o->repair, "lines",
				     lines_json(text)));
		return;
	}
	fputs(text, stdout);
	if (faults == 0)
		puts("no faults");
	else
		printf("%d fault%s\n", faults, faults == 1 ? "" : "s");
	if (faults > 0 && !o->repair)
		complain_try("'stag store check %s --repair'.", o->where);
}

int store_check(const struct store_options *o)
{
	CLEANUP_FREE char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int faults = f ? stag_store_check(o->where, o->repair ? STAG_STORE_REPAIR : 0, f) : -1;

	if (f)
		fclose(f);
	if (faults < 0)
		return store_failed(o->where, 0);
	print_check(o, faults, text);
	return faults == 0 ? EXIT_OK : EXIT_FAILED;
}
