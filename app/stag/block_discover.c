// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_discover.c - stag block discover: lists the targets of a portal, and the units of each.
 *
 * A session of its own lists the LUNs of a target, and another one queries each: what this user may not see is not shown. A target
 * that refuses the login is listed with the reason.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "block_use.h"
#include "stag.h"
#include "store.h"

static void add_target(void *arg, const char *target, const char *address)
{
	json_t *list = arg;

	json_array_append_new(list, json_pack("{s:s, s:s}", "target", target, "address", address));
}

static void add_lun(void *arg, uint16_t lun)
{
	json_array_append_new(arg, json_pack("{s:i}", "lun", (int)lun));
}

/* The URL of a target at its own address, with the user and secret of the portal's URL. */
static char *target_url(const struct block_use *u, const json_t *target)
{
	const char *address = json_string_value(json_object_get(target, "address"));
	const char *at = strrchr(u->url, '@'), *scheme_end = strstr(u->url, "://");
	const char *host = at ? at + 1 : scheme_end ? scheme_end + 3 : u->url;
	char *url = NULL;

	if (asprintf(&url, "%.*s%.*s/%s", (int)(host - u->url), u->url, (int)strcspn(address, ","),
		     address, json_string_value(json_object_get(target, "target"))) < 0)
		return NULL;
	return url;
}

static void set_error(json_t *o)
{
	json_object_set_new(o, "error", json_string(stag_block_error()));
}

/* Adds the properties of a unit to its entry, or why it has none. */
static void describe_lun(const struct block_use *u, const char *url, json_t *lun)
{
	CLEANUP_FREE char *whole = NULL;
	struct stag_block_info i;
	struct stag_block *b = NULL;

	if (asprintf(&whole, "%s/%d", url, (int)json_integer_value(json_object_get(lun, "lun"))) >=
	    0)
		b = stag_block_open(whole, &u->attr);
	if (!b) {
		set_error(lun);
		return;
	}
	stag_block_query(b, &i, sizeof(i));
	stag_block_close(b);
	json_object_update_new(
		lun, json_pack("{s:s, s:s, s:s, s:I, s:i, s:b}", "name", i.product, "vendor",
			       i.vendor, "serial", i.serial, "size", (json_int_t)i.size, "block",
			       (int)i.block, "read_only", i.read_only));
}

static void describe_target(const struct block_use *u, json_t *target)
{
	CLEANUP_FREE char *url = target_url(u, target);
	json_t *luns = json_array(), *lun;
	size_t i;

	if (!url || stag_block_list(url, &u->attr, add_lun, luns) != 0)
		set_error(target);
	json_array_foreach (luns, i, lun)
		describe_lun(u, url, lun);
	json_object_set_new(target, "luns", luns);
}

static const char *text_of(const json_t *o, const char *key)
{
	return json_string_value(json_object_get(o, key));
}

static void print_lun(const json_t *lun)
{
	int number = (int)json_integer_value(json_object_get(lun, "lun"));
	char size[32];

	if (text_of(lun, "error")) {
		printf("  LUN %-5d %s\n", number, text_of(lun, "error"));
		return;
	}
	store_size_word((uint64_t)json_integer_value(json_object_get(lun, "size")), size,
			sizeof(size));
	printf("  LUN %-5d %9s  %-16s  serial %s%s\n", number, size, text_of(lun, "name"),
	       text_of(lun, "serial"),
	       json_is_true(json_object_get(lun, "read_only")) ? ", read only" : "");
}

static void print_target(const json_t *target)
{
	const json_t *lun;
	size_t i;

	printf("%s %s\n", text_of(target, "target"), text_of(target, "address"));
	if (text_of(target, "error"))
		printf("  its units are not known: %s\n", text_of(target, "error"));
	else if (json_array_size(json_object_get(target, "luns")) == 0)
		printf("  no units\n");
	json_array_foreach (json_object_get(target, "luns"), i, lun)
		print_lun(lun);
}

int block_discover(const struct block_use *u)
{
	json_t *list = json_array(), *target;
	int rc = stag_block_discover(u->url, &u->attr, add_target, list);
	size_t i;

	if (rc != 0) {
		json_decref(list);
		return block_failed(u, rc);
	}
	json_array_foreach (list, i, target) {
		describe_target(u, target);
		if (!u->json)
			print_target(target);
	}
	if (u->json)
		store_dump(list);
	else
		json_decref(list);
	return EXIT_OK;
}
