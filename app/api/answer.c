// SPDX-License-Identifier: BSD-2-Clause
/*
 * answer.c - builds a handler's answer, and reads fields of the request (http.h).
 */
#include "http.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void clear_answer(struct answer *a)
{
	free(a->bytes);
	*a = (struct answer){0};
}

void answer_fault(struct request *r, int status, const char *code, const char *next,
		  const char *fmt, ...)
{
	char message[sizeof(r->fault.message)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(message, sizeof(message), fmt, ap);
	va_end(ap);
	clear_answer(&r->answer);
	fault_set(&r->fault, status, code, next, "%s", message);
}

void answer_bytes(struct request *r, const char *type, char *bytes, size_t length)
{
	r->answer.status = 200;
	r->answer.type = type;
	r->answer.bytes = bytes;
	r->answer.length = length;
}

void answer_fixed(struct request *r, const char *type, const void *bytes, size_t length)
{
	r->answer.status = 200;
	r->answer.type = type;
	r->answer.fixed = bytes;
	r->answer.length = length;
}

void answer_json(struct request *r, int status, json_t *o)
{
	char *text = o ? json_dumps(o, JSON_COMPACT | JSON_REAL_PRECISION(14)) : NULL;

	json_decref(o);
	if (!text) {
		answer_fault(r, 500, "no_memory", NULL, "out of memory for the answer");
		return;
	}
	answer_bytes(r, "application/json", text, strlen(text));
	r->answer.status = status;
}

void answer_nothing(struct request *r)
{
	clear_answer(&r->answer);
	r->answer.status = 204;
}

/* ---- errors --------------------------------------------------------------------------- */

static const struct {
	int error, status;
	const char *code;
} meanings[] = {
	{ENOENT, 404, "not_found"},
	{EEXIST, 409, "exists"},
	{EBUSY, 409, "busy"},
	{ENOTEMPTY, 409, "has_data"},
	{EINVAL, 400, "invalid"},
	{EPERM, 409, "not_permitted"},
	{EACCES, 403, "no_right"},
	{ENOSPC, 507, "no_space"},
	{EMSGSIZE, 413, "too_large"},
	{EFBIG, 413, "too_large"},
	{EROFS, 409, "read_only"},
	{EILSEQ, 412, "changed"},
	{EADDRINUSE, 409, "address_in_use"},
	{EADDRNOTAVAIL, 400, "no_such_address"},
	{ETIMEDOUT, 504, "timed_out"},
	{ECONNREFUSED, 502, "not_reachable"},
	{ENOTCONN, 502, "not_reachable"},
	{EHOSTUNREACH, 502, "not_reachable"},
	{EBADMSG, 400, "invalid"},
	{EPROTO, 409, "not_a_store"},
	{ESTALE, 409, "stale"},
	{EOPNOTSUPP, 501, "not_supported"},
	{ENAMETOOLONG, 400, "invalid"},
	{ENOTDIR, 400, "invalid"},
	{EISDIR, 400, "invalid"},
	{ENOMEM, 503, "no_memory"},
	{ENOTRECOVERABLE, 409, "lost"},
};

void answer_error(struct request *r, int error, const char *next, const char *message)
{
	error = abs(error);
	for (size_t i = 0; i < sizeof(meanings) / sizeof(meanings[0]); i++)
		if (meanings[i].error == error) {
			answer_fault(r, meanings[i].status, meanings[i].code, next, "%s",
				     message && *message ? message : strerror(error));
			return;
		}
	answer_fault(r, 500, "failed", next, "%s", message && *message ? message : strerror(error));
}

/* ---- fields of the request -------------------------------------------------------------------- */

const char *param(const struct request *r, unsigned int i)
{
	return r->match.params[i];
}

const char *body_text(const struct request *r, const char *name, const char *otherwise)
{
	const char *text = json_string_value(json_object_get(r->body, name));

	return text ? text : otherwise;
}

json_int_t body_number(const struct request *r, const char *name, json_int_t otherwise)
{
	const json_t *value = json_object_get(r->body, name);

	return value ? json_integer_value(value) : otherwise;
}

bool body_flag(const struct request *r, const char *name)
{
	return json_is_true(json_object_get(r->body, name));
}

bool body_size(const struct request *r, const char *name, uint64_t *bytes)
{
	const json_t *value = json_object_get(r->body, name);

	return value && size_parse(value, bytes);
}

bool query_number(struct request *r, const char *name, uint64_t most, uint64_t *n)
{
	const char *text = target_query(&r->target, name);
	char *end;

	if (!text)
		return true;
	errno = 0;
	*n = strtoull(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end && errno == 0 && *n <= most)
		return true;
	answer_fault(r, 400, "bad_query", NULL, "'%s' must be a whole number of at most %llu", name,
		     (unsigned long long)most);
	return false;
}

bool query_flag(struct request *r, const char *name)
{
	const char *text = target_query(&r->target, name);

	return text && (!*text || strcmp(text, "1") == 0 || strcmp(text, "true") == 0);
}
