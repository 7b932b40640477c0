// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle_stores.c - stores: creation, removal, check, growth.
 */
#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "store_words.h"

void handle_stores(struct request *r)
{
	answer_list(r, "stores");
}

void handle_store(struct request *r)
{
	answer_service(r, "store");
}

/* ---- creation and removal ------------------------------------------------------ */

/* Returns -errno after answering if it fails. */
static int format_store(struct request *r, const char *path)
{
	struct stag_store_attr attr = {0};
	uint64_t block = 0;
	int rc;

	body_size(r, "size", &attr.size);
	body_size(r, "block", &block);
	attr.block = (uint32_t)block;
	if (strlen(body_text(r, "label", "")) >= sizeof(attr.label)) {
		answer_fault(r, 400, "bad_value", NULL, "a label has at most %d bytes",
			     STAG_STORE_NAME_MAX - 1);
		return -EINVAL;
	}
	strcpy(attr.label, body_text(r, "label", ""));
	rc = stag_store_format(path, &attr, body_flag(r, "force") ? STAG_STORE_FORCE : 0);
	if (rc != 0)
		answer_error(r, rc,
			     rc == EEXIST
				     ? "\"force\": true destroys that data; or use another path"
				     : NULL,
			     stag_store_error());
	return -rc;
}

static bool is_store_body_complete(struct request *r, const char *path)
{
	static const char *const of_format[] = {"size", "block", "label", "force"};

	if (*path != '/' && strncmp(path, "mem:", 4) != 0)
		answer_fault(r, 400, "bad_value", NULL,
			     "'path' must be an absolute path, or mem:NAME");
	for (size_t i = 0; i < sizeof(of_format) / sizeof(of_format[0]); i++)
		if (json_object_get(r->body, of_format[i]) && !body_flag(r, "format"))
			answer_fault(r, 400, "bad_value", NULL, "'%s' requires \"format\": true",
				     of_format[i]);
	return r->fault.status == 0;
}

void handle_store_create(struct request *r)
{
	const char *name = body_text(r, "name", ""), *path;
	struct settings s;
	bool new_file;

	if (answer_taken(r, "store", name) ||
	    !is_store_body_complete(r, body_text(r, "path", "")) ||
	    !path_check(r, r->body, "path", PATH_STORE))
		return;
	path = body_text(r, "path", "");
	new_file = *path == '/' && access(path, F_OK) != 0;
	if (body_flag(r, "format") && format_store(r, path) != 0)
		return;
	settings_open(&s);
	settings_put(&s, r, &conf_store_kind);
	if (settings_apply(&s, r, "store", name) != 0) {
		if (new_file && body_flag(r, "format"))
			unlink(path); /* on failure nothing remains */
		return;
	}
	answer_made(r, "store", name);
}

void handle_store_delete(struct request *r)
{
	withdraw_service(r, "store");
}

/* ---- check and grow ---------------------------------------------------------------------- */

/* Copies the path, so that the store is not held while a check reads all of it. Returns NULL after answering. */
static char *copy_store_path(struct request *r)
{
	struct daemon_store *s = daemon_store_get(r->daemon, param(r, 0));
	char *path = s ? strdup(s->path) : NULL;

	if (s)
		daemon_store_put(s);
	else
		answer_none(r, "store", param(r, 0));
	return path;
}

void handle_store_check(struct request *r)
{
	CLEANUP_FREE char *path = copy_store_path(r), *text = NULL;
	size_t length;
	FILE *out = path ? open_memstream(&text, &length) : NULL;
	int faults;

	if (!out) {
		if (!r->fault.status)
			answer_error(r, ENOMEM, NULL, NULL);
		return;
	}
	faults = stag_store_check(path, body_flag(r, "repair") ? STAG_STORE_REPAIR : 0, out);
	if (fclose(out) != 0)
		answer_error(r, ENOMEM, NULL, NULL);
	else if (faults < 0)
		answer_error(r, faults, NULL, stag_store_error());
	else
		answer_json(r, 200, json_pack("{s:i s:s}", "faults", faults, "report", text));
}

void handle_store_grow(struct request *r)
{
	struct daemon_store *s = daemon_store_get(r->daemon, param(r, 0));
	uint64_t size = 0;
	int rc;

	if (!s) {
		answer_none(r, "store", param(r, 0));
		return;
	}
	body_size(r, "size", &size);
	rc = stag_store_grow(s->store, size);
	if (rc != 0)
		answer_error(r, rc, NULL, stag_store_error());
	daemon_store_put(s);
	if (rc == 0)
		handle_store(r);
}
