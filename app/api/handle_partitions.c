// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle_partitions.c - partitions of a store, and rights to them.
 */
#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "store_words.h"

#define SECRET_MIN 16 /* as for a token in a file */

static struct daemon_store *get_store(struct request *r)
{
	struct daemon_store *s = daemon_store_get(r->daemon, param(r, 0));

	if (!s)
		answer_none(r, "store", param(r, 0));
	return s;
}

static void answer_partition_error(struct request *r, int rc)
{
	if (rc == ENOENT)
		answer_fault(r, 404, "no_such_partition",
			     "GET /api/v1/stores/{store}/partitions lists them",
			     "store %s has no partition '%s'", param(r, 0), param(r, 1));
	else if (rc == ENOSPC)
		answer_error(r, rc, "POST /api/v1/stores/{store}/grow enlarges the store",
			     stag_store_error());
	else
		answer_error(r, rc, NULL, stag_store_error());
}

/* Answers with the partition's current state. */
static void answer_partition(struct request *r, struct daemon_store *s, int status,
			     const char *name)
{
	struct stag_store_partition p;
	int rc = stag_store_find(s->store, name, &p);

	if (rc != 0) {
		answer_partition_error(r, rc);
		return;
	}
	answer_json(r, status, store_partition_json(&p));
}

/* ---- queries ------------------------------------------------------------------------------- */

void handle_partitions(struct request *r)
{
	struct daemon_store *s = get_store(r);
	struct stag_store_partition p;
	json_t *list;

	if (!s)
		return;
	list = json_array();
	for (uint32_t i = 0; stag_store_next(s->store, &i, &p);)
		json_array_append_new(list, store_partition_json(&p));
	daemon_store_put(s);
	answer_json(r, 200, json_pack("{s:o}", "partitions", list));
}

void handle_partition(struct request *r)
{
	struct daemon_store *s = get_store(r);

	if (!s)
		return;
	answer_partition(r, s, 200, param(r, 1));
	daemon_store_put(s);
}

/* ---- rights ------------------------------------------------------------------------------- */

/* Parses "token:SECRET:write", or the form in which answers show an existing token: "token:1234abcd...:read". */
static bool parse_body_token(const char *text, const struct stag_store_partition *was,
			     struct stag_store_right *right)
{
	const char *secret = text + strlen("token:"), *end = strrchr(secret, ':');
	char known[64];

	*right = (struct stag_store_right){.who = STAG_STORE_TOKEN};
	for (right->access = STAG_STORE_NONE; right->access <= STAG_STORE_WRITE; right->access++)
		if (end && strcmp(end + 1, store_access_word(right->access)) == 0)
			break;
	if (!end || end == secret || right->access > STAG_STORE_WRITE)
		return false;
	for (uint32_t i = 0; i < was->num_rights; i++) {
		struct stag_store_right old = was->rights[i];

		old.access = right->access;
		store_right_words(&old, known, sizeof(known));
		if (old.who == STAG_STORE_TOKEN && strcmp(known, text) == 0) {
			*right = old;
			return true;
		}
	}
	return (size_t)(end - secret) >= SECRET_MIN &&
	       stag_store_token(secret, (size_t)(end - secret), right->token) == 0;
}

static bool parse_right(const char *text, const struct stag_store_partition *was,
			struct stag_store_partition *p)
{
	if (p->num_rights == STAG_STORE_MAX_RIGHTS)
		return false;
	if (strncmp(text, "token:", 6) != 0)
		return store_parse_right(text, p);
	return parse_body_token(text, was, &p->rights[p->num_rights]) && ++p->num_rights;
}

static bool parse_body_rights(struct request *r, struct stag_store_partition *p)
{
	const struct stag_store_partition was = *p;
	const json_t *list = json_object_get(r->body, "rights");

	p->num_rights = 0;
	for (size_t i = 0; i < json_array_size(list); i++)
		if (!parse_right(json_string_value(json_array_get(list, i)), &was, p)) {
			answer_fault(
				r, 400, "bad_right", NULL,
				"a right must be WHO:none, WHO:read or WHO:write, %d at most; WHO "
				"is user:NAME, group:NAME, local, net:ADDRESS/BITS, remote or "
				"token:SECRET; '%.60s' is none of these",
				STAG_STORE_MAX_RIGHTS,
				strncmp(json_string_value(json_array_get(list, i)), "token:", 6)
					? json_string_value(json_array_get(list, i))
					: "token:...");
			return false;
		}
	return true;
}

/* ---- settings ----------------------------------------------------------------------------- */

/* Takes the settings that the body has, and adds their flags to *what. Returns false after answering a fault. */
static bool parse_partition_settings(struct request *r, struct stag_store_partition *p,
				     unsigned int *what)
{
	const char *order = body_text(r, "order", NULL), *level = body_text(r, "level", NULL);

	if (order && !store_parse_order(order, &p->relax)) {
		answer_fault(
			r, 400, "bad_value", NULL,
			"'order' must be strict, any, or a comma-separated list of rules that "
			"need not hold: writes, reads, later, atomics, completions, processing");
		return false;
	}
	if (level)
		store_parse_level(level, &p->level); /* one of the words of its field */
	p->cache_ms = (uint32_t)body_number(r, "cache_ms", p->cache_ms);
	*what |= (order ? STAG_STORE_CHANGE_RELAX : 0) | (level ? STAG_STORE_CHANGE_LEVEL : 0);
	if (json_object_get(r->body, "cache_ms"))
		*what |= STAG_STORE_CHANGE_CACHE;
	if (!json_object_get(r->body, "rights"))
		return true;
	*what |= STAG_STORE_CHANGE_RIGHTS;
	return parse_body_rights(r, p);
}

void handle_partition_create(struct request *r)
{
	struct stag_store_partition p = {0};
	const char *name = body_text(r, "name", "");
	struct daemon_store *s;
	unsigned int what;
	int rc;

	strcpy(p.name, name); /* it fits: api_name_is_valid() allows 63 characters */
	body_size(r, "size", &p.size);
	body_size(r, "offset", &p.offset);
	body_size(r, "alignment", &p.alignment);
	if (!parse_partition_settings(r, &p, &what) || !(s = get_store(r)))
		return;
	rc = stag_store_add(s->store, &p);
	if (rc != 0) {
		answer_partition_error(r, rc);
	} else {
		event_add(EVENT_INFO, "api", "store %s: partition %s was created", s->name, name);
		answer_partition(r, s, 201, name);
		snprintf(r->answer.location, sizeof(r->answer.location),
			 "/api/v1/stores/%s/partitions/%s", s->name, name);
	}
	daemon_store_put(s);
}

/* Applies all changes of the body by one call, so that all or none take effect. */
static void change_partition(struct request *r, struct daemon_store *s)
{
	struct stag_store_partition p;
	unsigned int what = 0;
	int rc = stag_store_find(s->store, param(r, 1), &p);

	if (rc == 0 && !parse_partition_settings(r, &p, &what))
		return;
	if (body_size(r, "size", &p.size))
		what |= STAG_STORE_CHANGE_SIZE;
	if (body_text(r, "name", NULL)) {
		memset(p.name, 0, sizeof(p.name));
		strcpy(p.name, body_text(r, "name", ""));
		what |= STAG_STORE_CHANGE_NAME;
	}
	if (rc == 0 && what != 0)
		rc = stag_store_change(s->store, &p, what);
	if (rc != 0) {
		answer_partition_error(r, rc);
		return;
	}
	event_add(EVENT_INFO, "api", "store %s: partition %s was changed", s->name, param(r, 1));
	answer_partition(r, s, 200, p.name);
}

void handle_partition_change(struct request *r)
{
	struct daemon_store *s = get_store(r);

	if (!s)
		return;
	change_partition(r, s);
	daemon_store_put(s);
}

/* ---- removal ---------------------------------------------------------------------------------- */

/* Removes the partition's line from the settings, so that the next reload does not create it again. */
static void forget_setting(struct request *r)
{
	CLEANUP_FREE char *settings = daemon_settings(r->daemon, "store", param(r, 0));
	char name[STAG_STORE_NAME_MAX + 16], why[WHY_MAX] = "";
	int rc = -ENOENT;

	snprintf(name, sizeof(name), "partition.%s", param(r, 1));
	if (settings && strstr(settings, name))
		rc = daemon_set(r->daemon, "store", param(r, 0), name, NULL, why, sizeof(why));
	if (rc != 0 && rc != -ENOENT)
		event_add(EVENT_WARN, "api",
			  "store %s: partition %s will be created again at the next start: %s",
			  param(r, 0), param(r, 1), why);
}

void handle_partition_delete(struct request *r)
{
	struct daemon_store *s = get_store(r);
	int rc;

	if (!s)
		return;
	rc = stag_store_remove(s->store, param(r, 1),
			       query_flag(r, "force") ? STAG_STORE_FORCE : 0);
	daemon_store_put(s);
	if (rc == EBUSY || rc == ENOTEMPTY) {
		answer_error(r, rc,
			     rc == EBUSY ? "?force=true removes it even while it is in use"
					 : "?force=true removes it with its data",
			     stag_store_error());
		return;
	}
	if (rc != 0) {
		answer_partition_error(r, rc);
		return;
	}
	forget_setting(r);
	event_add(EVENT_INFO, "api", "store %s: partition %s was removed", param(r, 0),
		  param(r, 1));
	answer_nothing(r);
}
