// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle_targets.c - block targets: creation, removal, logical units, sessions, and STags that initiators lent.
 */
#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "block_words.h"

void handle_targets(struct request *r)
{
	answer_list(r, "targets");
}

void handle_target(struct request *r)
{
	answer_service(r, "target");
}

/* ---- creation and removal ---------------------------------------------------------------------- */

/* Prints "WHERE [ro] [write-back] [block=4096]". Returns false if it does not fit. */
static bool lun_words(const json_t *o, char *text, size_t size)
{
	json_int_t block = json_integer_value(json_object_get(o, "block"));
	char tail[32] = "";
	int n;

	if (block)
		snprintf(tail, sizeof(tail), " block=%d", (int)block);
	n = snprintf(text, size, "%s%s%s%s", json_string_value(json_object_get(o, "where")),
		     json_is_true(json_object_get(o, "read_only")) ? " ro" : "",
		     json_is_true(json_object_get(o, "write_back")) ? " write-back" : "", tail);
	return n >= 0 && (size_t)n < size;
}

static void put_luns(struct settings *s, const json_t *luns)
{
	char text[640];

	for (size_t i = 0; s->file && i < json_array_size(luns); i++) {
		const json_t *o = json_array_get(luns, i);

		if (lun_words(o, text, sizeof(text)))
			fprintf(s->file, "lun.%d = %s\n",
				(int)json_integer_value(json_object_get(o, "lun")), text);
	}
}

void handle_target_create(struct request *r)
{
	const char *name = body_text(r, "name", "");
	struct settings s;

	if (answer_taken(r, "target", name))
		return;
	settings_open(&s);
	settings_put(&s, r, &conf_target_kind);
	put_luns(&s, json_object_get(r->body, "luns"));
	if (settings_apply(&s, r, "target", name) != 0)
		return;
	answer_made(r, "target", name);
}

void handle_target_delete(struct request *r)
{
	withdraw_service(r, "target");
}

/* ---- logical units --------------------------------------------------------------------------- */

static json_t *lun_of(struct request *r, int lun)
{
	json_t *target = daemon_service_status(r->daemon, "target", param(r, 0)), *o, *found = NULL;
	size_t i;

	json_array_foreach (json_object_get(target, "luns"), i, o)
		if (json_integer_value(json_object_get(o, "lun")) == lun)
			found = json_incref(o);
	json_decref(target);
	return found;
}

static bool is_target(struct request *r)
{
	struct daemon_target *t = daemon_target_get(r->daemon, param(r, 0));

	if (t)
		daemon_target_put(t);
	else
		answer_none(r, "target", param(r, 0));
	return t != NULL;
}

/* Sets or, with value NULL, removes a unit. Returns false after answering a fault. */
static bool set_lun(struct request *r, int lun, const char *value)
{
	char setting[16], why[WHY_MAX] = "";
	int rc;

	snprintf(setting, sizeof(setting), "lun.%d", lun);
	rc = daemon_set(r->daemon, "target", param(r, 0), setting, value, why, sizeof(why));
	if (rc != 0)
		answer_daemon(r, rc, why);
	return rc == 0;
}

void handle_lun_create(struct request *r)
{
	int lun = (int)body_number(r, "lun", 0);
	char text[640];
	json_t *there;

	if (!is_target(r))
		return;
	there = lun_of(r, lun);
	json_decref(there);
	if (there) {
		answer_fault(r, 409, "exists", NULL, "target %s already has a LUN %d", param(r, 0),
			     lun);
		return;
	}
	if (!lun_words(r->body, text, sizeof(text)))
		answer_fault(r, 400, "bad_value", NULL, "'where' is too long");
	else if (set_lun(r, lun, text))
		answer_json(r, 201, lun_of(r, lun));
}

void handle_lun_delete(struct request *r)
{
	char *end;
	long lun = strtol(param(r, 1), &end, 10);
	json_t *there;

	if (!is_target(r))
		return;
	if (*param(r, 1) < '0' || *param(r, 1) > '9' || *end || lun > 255) {
		answer_fault(r, 400, "bad_lun", NULL, "a LUN must be a number from 0 to 255");
		return;
	}
	there = lun_of(r, (int)lun);
	json_decref(there);
	if (!there)
		answer_fault(r, 404, "no_such_lun", "GET /api/v1/targets/{target} lists them",
			     "target %s has no LUN %ld", param(r, 0), lun);
	else if (set_lun(r, (int)lun, NULL))
		answer_nothing(r);
}

/* ---- sessions ----------------------------------------------------------------------------- */

void handle_sessions(struct request *r)
{
	struct daemon_target *t = daemon_target_get(r->daemon, param(r, 0));
	json_t *list;

	if (!t) {
		answer_none(r, "target", param(r, 0));
		return;
	}
	list = block_sessions_json(t->target);
	daemon_target_put(t);
	answer_json(r, 200, json_pack("{s:o}", "sessions", list));
}

void handle_stags(struct request *r)
{
	struct daemon_target *t;
	uint64_t limit = UINT32_MAX;
	json_t *list;

	if (!query_number(r, "limit", UINT32_MAX, &limit))
		return;
	t = daemon_target_get(r->daemon, param(r, 0));
	if (!t) {
		answer_none(r, "target", param(r, 0));
		return;
	}
	list = block_stags_json(t->target);
	daemon_target_put(t);
	while (json_array_size(list) > limit) /* keep the newest, which are last */
		json_array_remove(list, 0);
	answer_json(r, 200, json_pack("{s:o}", "stags", list));
}
