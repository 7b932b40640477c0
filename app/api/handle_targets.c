// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle_targets.c - block targets: creation, removal, logical units, sessions, and STags that initiators lent.
 */
#include "handle.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/lock.h"
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

/* Checks a field that becomes one of several words in a line: a blank would begin another word, with a meaning of its own. */
static bool check_word(struct request *r, const json_t *o, const char *field)
{
	const char *word = json_string_value(json_object_get(o, field));

	if (!word || !strpbrk(word, " \t"))
		return true;
	answer_fault(r, 400, "bad_value", NULL, "'%s' must have no blanks", field);
	return false;
}

/* The path without links, which path_check() puts there, must have none either. */
static bool check_lun(struct request *r, json_t *lun)
{
	return check_word(r, lun, "where") && path_check(r, lun, "where", PATH_LUN) &&
	       check_word(r, lun, "where");
}

static bool check_luns(struct request *r, json_t *luns)
{
	for (size_t i = 0; i < json_array_size(luns); i++)
		if (!check_lun(r, json_array_get(luns, i)))
			return false;
	return true;
}

static bool check_initiators(struct request *r, json_t *initiators)
{
	static const char *const fields[] = {"pattern", "user", "secret_file", "luns"};

	for (size_t i = 0; i < json_array_size(initiators); i++) {
		json_t *o = json_array_get(initiators, i);

		if (!path_check(r, o, "secret_file", PATH_OTHER))
			return false;
		for (size_t k = 0; k < sizeof(fields) / sizeof(*fields); k++)
			if (!check_word(r, o, fields[k]))
				return false;
	}
	return true;
}

static void put_word(FILE *file, const json_t *o, const char *field, const char *word)
{
	const char *value = json_string_value(json_object_get(o, field));

	if (value && *value)
		fprintf(file, " %s=%s", word, value);
}

static void put_initiators(struct settings *s, const json_t *initiators)
{
	for (size_t i = 0; s->file && i < json_array_size(initiators); i++) {
		const json_t *o = json_array_get(initiators, i);

		fprintf(s->file, "initiator.%s = %s", json_string_value(json_object_get(o, "name")),
			json_string_value(json_object_get(o, "pattern")));
		put_word(s->file, o, "user", "user");
		put_word(s->file, o, "secret_file", "secret-file");
		put_word(s->file, o, "luns", "lun");
		fprintf(s->file, "%s\n",
			json_is_true(json_object_get(o, "read_only")) ? " ro" : "");
	}
}

/* ---- a secret in the body: the INI file knows secrets in files only -------------------------- */

/* Held while a target is made or removed: two requests for one name would write and remove each other's file. */
static struct lock secrets_lock = LOCK_INITIALIZER;

/* Returns the path of the file for a target's secret, in the daemon's state directory; NULL: no memory. */
static char *secret_path(struct request *r, const char *name)
{
	json_t *status = daemon_status(r->daemon);
	const char *state = json_string_value(json_object_get(status, "state"));
	char *path = NULL;

	mkdir(state, 0700);
	if (asprintf(&path, "%s/target-%s.secret", state, name) < 0)
		path = NULL;
	json_decref(status);
	return path;
}

/* Writes the secret of the body to a file, which becomes the target's secret-file. Returns false after answering. */
static bool take_secret(struct request *r, const char *name)
{
	const char *secret = body_text(r, "secret", NULL);
	CLEANUP_FREE char *path = NULL;
	int rc;

	if (!secret)
		return path_check(r, r->body, "secret_file", PATH_OTHER);
	if (!body_text(r, "user", NULL) || body_text(r, "secret_file", NULL)) {
		answer_fault(r, 400, "bad_value", NULL,
			     "'secret' requires 'user', and replaces 'secret_file'");
		return false;
	}
	path = secret_path(r, name);
	rc = path ? file_replace(AT_FDCWD, path, secret, strlen(secret), 0600) : -ENOMEM;
	if (rc == 0 && json_object_set_new(r->body, "secret_file", json_string(path)) != 0)
		rc = -ENOMEM;
	if (rc != 0)
		answer_error(r, rc, NULL, path);
	return rc == 0;
}

/* Removes the file that take_secret() made, unless there is a target that uses it. */
static void drop_secret(struct request *r, const char *name)
{
	json_t *there = daemon_service_status(r->daemon, "target", name);
	CLEANUP_FREE char *path = there ? NULL : secret_path(r, name);

	json_decref(there);
	if (path)
		unlink(path);
}

void handle_target_create(struct request *r)
{
	const char *name = body_text(r, "name", "");
	struct settings s;

	HOLD_FOR_SCOPE(&secrets_lock);
	if (answer_taken(r, "target", name) ||
	    !path_check(r, r->body, "own_secret_file", PATH_OTHER) ||
	    !check_luns(r, json_object_get(r->body, "luns")) ||
	    !check_initiators(r, json_object_get(r->body, "initiators")) || !take_secret(r, name))
		return;
	settings_open(&s);
	settings_put(&s, r, &conf_target_kind);
	put_luns(&s, json_object_get(r->body, "luns"));
	put_initiators(&s, json_object_get(r->body, "initiators"));
	if (settings_apply(&s, r, "target", name) == 0)
		answer_made(r, "target", name);
	else
		drop_secret(r, name);
}

void handle_target_delete(struct request *r)
{
	HOLD_FOR_SCOPE(&secrets_lock);
	withdraw_service(r, "target");
	drop_secret(r, param(r, 0));
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
	if (!check_lun(r, r->body))
		return;
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
	if (*param(r, 1) < '0' || *param(r, 1) > '9' || *end || lun > CONF_LUN_MOST) {
		answer_fault(r, 400, "bad_lun", NULL, "a LUN must be a number from 0 to %d",
			     CONF_LUN_MOST);
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
