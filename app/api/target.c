// SPDX-License-Identifier: BSD-2-Clause
/*
 * target.c - parses the path and the query of a request (http.h).
 *
 * The path is split first and decoded afterwards, so that an encoded slash does not separate segments. Nothing is decoded twice.
 */
#include "http.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/name.h"

/* ---- characters -------------------------------------------------------------------------- */

/* Returns the number of bytes that follow this first byte, and the least code point of that length (RFC 3629); -1: invalid. */
static int utf8_follow(unsigned char c, uint32_t *code, uint32_t *least)
{
	static const struct {
		unsigned char mask, lead;
		uint32_t least;
	} kinds[] = {
		{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

	for (int n = 0; n < 4; n++)
		if ((c & kinds[n].mask) == kinds[n].lead) {
			*code = c & (unsigned char)~kinds[n].mask;
			*least = kinds[n].least;
			return n;
		}
	return -1;
}

bool utf8_is_valid(const char *text, size_t len)
{
	uint32_t code, least;

	for (size_t i = 0; i < len;) {
		int more = utf8_follow((unsigned char)text[i++], &code, &least);

		if (more < 0 || (size_t)more > len - i)
			return false;
		for (; more > 0; more--, i++) {
			if (((unsigned char)text[i] & 0xc0) != 0x80)
				return false;
			code = code << 6 | ((unsigned char)text[i] & 0x3f);
		}
		if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
			return false;
	}
	return true;
}

bool api_name_is_valid(const char *name)
{
	return *name != '.' && name_is_valid(name);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)tolower((unsigned char)c);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* ---- segments and queries ---------------------------------------------------------------------------- */

static int path_fault(struct fault *f, const char *why)
{
	return fault_set(f, 400, "bad_path", "GET /openapi.json lists every path", "the path %s",
			 why);
}

/* Decodes raw to *to, which advances past the terminating zero. Returns the decoded length, or -EBADMSG. */
static int decode_segment(const char *raw, size_t len, char **to, struct fault *f)
{
	char *start = *to;

	for (size_t i = 0; i < len; i++) {
		int high, low, c = (unsigned char)raw[i];

		if (c <= ' ' || c == 0x7f)
			return path_fault(f, "contains a blank or a control character");
		if (c == '%') {
			high = len - i > 2 ? hex_digit(raw[i + 1]) : -1;
			low = len - i > 2 ? hex_digit(raw[i + 2]) : -1;
			if (high < 0 || low < 0)
				return path_fault(f, "contains a % without two hexadecimal digits");
			c = high << 4 | low;
			i += 2;
			if (c == 0)
				return path_fault(f, "contains a zero byte");
		}
		*(*to)++ = (char)c;
	}
	*(*to)++ = '\0';
	return (int)(*to - 1 - start);
}

static bool is_odd(const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (text[i] == '/' || text[i] == '\\' || (unsigned char)text[i] < 0x20 ||
		    text[i] == 0x7f)
			return true;
	return !utf8_is_valid(text, len);
}

static int parse_segment(struct target *t, const char *raw, size_t len, char **to, struct fault *f)
{
	char *segment = *to;
	int n;

	if (len == 0)
		return fault_set(f, 404, "no_such_path", "GET /openapi.json lists every path",
				 "a segment of the path is empty");
	if (t->num_segments == TARGET_SEGMENTS)
		return fault_set(f, 404, "no_such_path", "GET /openapi.json lists every path",
				 "the path has too many segments");
	n = decode_segment(raw, len, to, f);
	if (n < 0)
		return n;
	if (strcmp(segment, ".") == 0 || strcmp(segment, "..") == 0)
		return path_fault(f, "contains a segment '.' or '..'");
	t->odd[t->num_segments] = is_odd(segment, (size_t)n);
	t->segments[t->num_segments++] = segment;
	return 0;
}

static int parse_query(struct target *t, const char *raw, size_t len, char **to, struct fault *f)
{
	const char *equals = memchr(raw, '=', len);
	size_t name_len = equals ? (size_t)(equals - raw) : len;
	char *name = *to, *value;
	int n = decode_segment(raw, name_len, to, f);

	if (n < 0)
		return n;
	value = *to;
	n = decode_segment(equals ? equals + 1 : "", equals ? len - name_len - 1 : 0, to, f);
	if (n < 0)
		return n;
	if (t->num_queries == TARGET_QUERIES)
		return fault_set(f, 400, "bad_query", NULL, "the query has too many parameters");
	if (!*name || is_odd(name, strlen(name)) || !utf8_is_valid(value, (size_t)n))
		return fault_set(f, 400, "bad_query", NULL, "the query must be NAME=VALUE&...");
	if (target_query(t, name))
		return fault_set(f, 400, "bad_query", NULL, "the query parameter '%s' occurs twice",
				 name);
	t->queries[t->num_queries].name = name;
	t->queries[t->num_queries++].value = value;
	return 0;
}

/* Calls `take` for each part between separators. */
static int split_parts(struct target *t, const char *raw, size_t len, char separator, char **to,
		       struct fault *f,
		       int (*take)(struct target *, const char *, size_t, char **, struct fault *))
{
	for (;;) {
		const char *end = memchr(raw, separator, len);
		size_t part = end ? (size_t)(end - raw) : len;
		int rc = take(t, raw, part, to, f);

		if (rc < 0 || !end)
			return rc;
		raw = end + 1;
		len -= part + 1;
	}
}

int target_parse(struct target *t, const char *raw, struct fault *f)
{
	size_t len = strnlen(raw, TARGET_MAX), path = strcspn(raw, "?");
	char *to = t->text;
	int rc;

	t->num_segments = t->num_queries = 0;
	if (len == TARGET_MAX)
		return fault_set(f, 414, "path_too_long", NULL, "the path is longer than %d bytes",
				 TARGET_MAX - 1);
	if (*raw != '/')
		return path_fault(f, "does not begin with a '/'");
	if (memchr(raw, '#', len))
		return path_fault(f, "contains a '#'");
	if (path > 1) {
		rc = split_parts(t, raw + 1, path - 1, '/', &to, f, parse_segment);
		if (rc < 0)
			return rc;
	}
	if (path + 1 >= len) /* an empty query */
		return 0;
	return split_parts(t, raw + path + 1, len - path - 1, '&', &to, f, parse_query);
}

const char *target_query(const struct target *t, const char *name)
{
	for (unsigned int i = 0; i < t->num_queries; i++)
		if (strcmp(t->queries[i].name, name) == 0)
			return t->queries[i].value;
	return NULL;
}
