// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle_values.c - values of a pool by their names. The ETag is a value's version, which is unique within the pool.
 */
#include "handle.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "pool_words.h"

#define LIST_MAX   1000
#define LIST	   100
#define LOOK_MAX   50000      /* names that one request looks at: a match may be rare */
#define FIRST_ROOM (64 << 10) /* first buffer for a value of unknown length */

static void answer_value_error(struct request *r, struct daemon_pool *p, int error,
			       const char *next, const char *text)
{
	if (error == ENOENT)
		answer_fault(r, 404, "no_such_value", "GET /api/v1/pools/{pool}/values lists them",
			     "pool %s has no value '%s'", p->name, param(r, 1));
	else
		answer_error(r, error, next, text);
	if (error == EEXIST) /* the condition of If-None-Match */
		r->fault.status = 412;
	if (error == ENOTCONN || error == ETIMEDOUT)
		daemon_pool_lost(p);
}

static bool name_fits(struct request *r)
{
	if (strlen(param(r, 1)) <= STAG_POOL_NAME_MAX)
		return true;
	answer_fault(r, 400, "bad_name", NULL, "a value's name has at most %d bytes",
		     STAG_POOL_NAME_MAX);
	return false;
}

/* ---- list ----------------------------------------------------------------------------- */

/* Percent-encodes a name for a path (RFC 3986 §2.3). */
static json_t *encoded_name(const char *name)
{
	char text[3 * STAG_POOL_NAME_MAX + 1], *to = text;

	for (; *name; name++) {
		unsigned char c = (unsigned char)*name;

		if ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
		    strchr("-._~", c))
			*to++ = (char)c;
		else
			to += sprintf(to, "%%%02X", c);
	}
	*to = '\0';
	return json_string(text);
}

static json_t *entry_json(const struct stag_pool_entry *e)
{
	bool readable = utf8_is_valid(e->name, strlen(e->name));

	return json_pack("{s:o s:o s:I s:I}", "name", readable ? json_string(e->name) : json_null(),
			 "path", encoded_name(e->name), "length", (json_int_t)e->ptr.length,
			 "version", (json_int_t)e->version);
}

/*
 * Returns whether a name matches a pattern with * and ?, in letters of either case. Not fnmatch(), which takes exponential time for
 * a pattern with many stars.
 */
static bool name_matches(const char *pattern, const char *name)
{
	const char *star = NULL,
		   *from = NULL; /* the last star, and the first byte behind what it stands for */

	while (*name) {
		if (*pattern == '*') {
			star = ++pattern;
			from = name;
		} else if (*pattern == '?' ||
			   tolower((unsigned char)*pattern) == tolower((unsigned char)*name)) {
			pattern++;
			name++;
		} else if (star) {
			pattern = star;
			name = ++from;
		} else {
			return false;
		}
	}
	return pattern[strspn(pattern, "*")] == '\0';
}

/* Lists names from e->cursor on. Returns false at the end, or on an error (errno). */
static bool list_values(struct stag_pool *pool, struct stag_pool_entry *e, const char *pattern,
			uint64_t limit, json_t *list)
{
	for (unsigned int n = 0; json_array_size(list) < limit && n < LOOK_MAX; n++) {
		if (!stag_pool_next(pool, e))
			return false;
		if (!pattern || name_matches(pattern, e->name))
			json_array_append_new(list, entry_json(e));
	}
	return true;
}

void handle_values(struct request *r)
{
	const char *pattern = target_query(&r->target, "match");
	uint64_t limit = LIST, after = 0;
	struct stag_pool_entry e = {0};
	json_t *list = json_array();
	struct daemon_pool *p = NULL;
	bool more;

	if (query_number(r, "limit", LIST_MAX, &limit) &&
	    query_number(r, "after", INT64_MAX, &after))
		p = pool_get(r);
	if (!p) {
		json_decref(list);
		return;
	}
	e.cursor = after;
	more = list_values(p->client, &e, pattern, limit, list);
	if (!more && errno != 0) {
		answer_value_error(r, p, errno, NULL, stag_pool_error());
		json_decref(list);
	} else {
		answer_json(r, 200,
			    json_pack("{s:o s:o}", "values", list, "next",
				      more ? json_integer((json_int_t)e.cursor) : json_null()));
	}
	daemon_pool_put(p);
}

/* ---- get ------------------------------------------------------------------------------- */

/* Repeats with a larger buffer: the value may grow between two reads. */
static int fetch_value(struct daemon_pool *p, const char *name, char **bytes, size_t *length,
		       uint64_t *version)
{
	size_t room = FIRST_ROOM;
	int rc;

	do {
		free(*bytes);
		*bytes = malloc(room);
		if (!*bytes)
			return ENOMEM;
		*length = room;
		rc = stag_pool_get(p->client, name, *bytes, length, version);
		room = *length;
	} while (rc == EMSGSIZE && room <= STAG_POOL_VALUE_MAX);
	return rc;
}

static void set_etag(struct request *r, uint64_t version)
{
	snprintf(r->answer.etag, sizeof(r->answer.etag), "\"%llu\"", (unsigned long long)version);
}

void handle_value_get(struct request *r)
{
	struct daemon_pool *p = name_fits(r) ? pool_get(r) : NULL;
	CLEANUP_FREE char *bytes = NULL;
	uint64_t version = 0;
	size_t length;
	int rc;

	if (!p)
		return;
	rc = fetch_value(p, param(r, 1), &bytes, &length, &version);
	if (rc != 0) {
		answer_value_error(r, p, rc, NULL,
				   rc == ENOMEM ? "out of memory" : stag_pool_error());
	} else {
		answer_bytes(r, "application/octet-stream", bytes, length);
		set_etag(r, version);
		bytes = NULL;
	}
	daemon_pool_put(p);
}

/* ---- put and delete ---------------------------------------------------------------------- */

/* Carries out one operation and waits for it. Returns an errno value; if that is of stag_pool_submit(), done->error is 0. */
static int carry_out(struct stag_pool *pool, const struct stag_pool_io *io,
		     struct stag_pool_done *done)
{
	int rc = stag_pool_submit(pool, io, 1);

	if (rc != 0)
		return rc;
	while (stag_pool_poll(pool, done, 1) == 0)
		stag_pool_wait(pool, 1000); /* retry_ms bounds it */
	return done->error;
}

static void answer_full(struct request *r, struct daemon_pool *p, size_t length)
{
	struct stag_pool_info info = {0};
	char words[256], text[512];
	bool helps;

	if (stag_pool_query(p->client, &info, sizeof(info)) != 0)
		info = (struct stag_pool_info){0};
	helps = pool_full_words(length, info.size, info.size - info.used, words, sizeof(words));
	snprintf(text, sizeof(text), "pool %s: %s", p->name, words);
	answer_value_error(r, p, ENOSPC,
			   helps ? "DELETE /api/v1/pools/{pool}/values/{name} frees memory" : NULL,
			   text);
}

/* Answers with the outcome of an operation that was polled: for those, the library has no text. */
static void answer_outcome(struct request *r, struct daemon_pool *p, const struct stag_pool_io *io,
			   int error)
{
	char text[512];

	switch (error) {
	case ENOSPC:
		answer_full(r, p, io->length);
		return;
	case EEXIST:
		snprintf(text, sizeof(text), "a value of this name exists");
		break;
	case EILSEQ:
		snprintf(text, sizeof(text), "the value has another version now");
		break;
	case EACCES:
		snprintf(text, sizeof(text),
			 "pool %s: its user '%s' has no right to change this value", p->name,
			 p->user);
		break;
	case ETIMEDOUT:
	case ESTALE:
		snprintf(text, sizeof(text),
			 "pool %s: the connection was lost, and it is not known whether the change "
			 "was made: GET the value",
			 p->name);
		break;
	default:
		snprintf(text, sizeof(text), "pool %s: %s", p->name, strerror(error));
	}
	answer_value_error(r, p, error, NULL, text);
}

/* Parses a quoted version, as in an ETag. Returns false after answering if the condition has another form. */
static bool parse_condition(struct request *r, struct stag_pool_io *io)
{
	const char *text = r->if_match;
	char *end;

	if (r->if_none_match && strcmp(r->if_none_match, "*") == 0 && io->op == STAG_POOL_PUT &&
	    !text)
		io->flags |= STAG_POOL_EXCLUSIVE;
	else if (r->if_none_match)
		goto wrong;
	if (!text)
		return true;
	errno = 0;
	io->version =
		*text == '"' && text[1] >= '0' && text[1] <= '9' ? strtoull(text + 1, &end, 10) : 0;
	if (!io->version || errno != 0 || strcmp(end, "\"") != 0)
		goto wrong;
	io->flags |= STAG_POOL_COMPARE;
	return true;
wrong:
	answer_fault(r, 400, "bad_condition", NULL,
		     "the condition must be If-Match: \"VERSION\" or, for PUT, If-None-Match: *");
	return false;
}

static bool change_value(struct request *r, struct stag_pool_io *io, struct stag_pool_done *done)
{
	struct daemon_pool *p = name_fits(r) && parse_condition(r, io) ? pool_get(r) : NULL;
	int rc;

	if (!p)
		return false;
	io->name = param(r, 1);
	rc = carry_out(p->client, io, done);
	if (rc != 0 && done->error == 0)
		answer_value_error(r, p, rc, NULL, stag_pool_error());
	else if (rc != 0)
		answer_outcome(r, p, io, rc);
	daemon_pool_put(p);
	return rc == 0;
}

void handle_value_put(struct request *r)
{
	struct stag_pool_io io = {.op = STAG_POOL_PUT, .from = r->bytes ?: "", .length = r->length};
	struct stag_pool_done done = {0};

	if (!change_value(r, &io, &done))
		return;
	answer_json(r, 200,
		    json_pack("{s:I s:I}", "version", (json_int_t)done.version, "length",
			      (json_int_t)r->length));
	set_etag(r, done.version);
}

void handle_value_delete(struct request *r)
{
	struct stag_pool_io io = {.op = STAG_POOL_REMOVE};
	struct stag_pool_done done = {0};

	if (change_value(r, &io, &done))
		answer_nothing(r);
}
