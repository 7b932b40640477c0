// SPDX-License-Identifier: BSD-2-Clause
/*
 * where.c - parses names of partitions: "PATH:PARTITION" and "HOST[:PORT]/PARTITION".
 *
 * A partition's name has neither "/" nor ":", so the last of these in the text decides which form
 * it is.
 */
#include "store/endpoint.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int copy_part(char *to, size_t size, const char *from, size_t len, const char *what)
{
	if (len == 0)
		return store_fail(EINVAL, "where: no %s is named", what);
	if (len >= size)
		return store_fail(EINVAL, "where: the %s is too long: at most %zu characters", what,
				  size - 1);
	memcpy(to, from, len);
	to[len] = 0;
	return 0;
}

static int parse_local(const char *text, size_t len, struct where *w)
{
	w->local = true;
	if (!memchr(text, '/', len) && strncmp(text, "mem:", 4) != 0)
		return store_fail(EINVAL, "'%s': a path has a '/' in it: use './%s'", text, text);
	return copy_part(w->path, sizeof(w->path), text, len, "path");
}

static int parse_port(const char *text, size_t len, uint16_t *port)
{
	unsigned int n = 0;

	for (size_t i = 0; i < len && n <= UINT16_MAX; i++) {
		if (text[i] < '0' || text[i] > '9')
			n = UINT16_MAX;
		n = n * 10 + (unsigned int)(text[i] - '0');
	}
	if (len == 0 || n == 0 || n > UINT16_MAX)
		return store_fail(EINVAL, "where: '%.*s' is not a valid port",
				  (int)(len < 32 ? len : 32), text);
	*port = (uint16_t)n;
	return 0;
}

/* Parses HOST, HOST:PORT, [IPv6] or [IPv6]:PORT. */
static int parse_remote(const char *text, size_t len, struct where *w)
{
	const char *last = text + len, *end;
	int rc;

	w->local = false;
	w->port = STAG_STORE_PORT;
	if (memchr(text, '/', len))
		return store_fail(EINVAL, "'%s': no partition is named: use PATH:PARTITION", text);
	if (len > 0 && *text == '[') {
		end = memchr(text, ']', len);
		if (!end || (end + 1 != last && end[1] != ':'))
			return store_fail(EINVAL, "'%s': '[' without ']'", text);
		rc = copy_part(w->host, sizeof(w->host), text + 1, (size_t)(end - text) - 1,
			       "host");
		end++;
	} else {
		end = memchr(text, ':', len);
		if (end && memchr(end + 1, ':', (size_t)(last - end) - 1))
			return store_fail(EINVAL, "'%s': an IPv6 address must be in brackets",
					  text);
		end = end ? end : last;
		rc = copy_part(w->host, sizeof(w->host), text, (size_t)(end - text), "host");
	}
	if (rc != 0 || end == last)
		return rc;
	return parse_port(end + 1, (size_t)(last - end) - 1, &w->port);
}

int where_parse(const char *text, struct where *w)
{
	const char *colon, *slash, *split;
	int rc;

	if (!text)
		return store_fail(EINVAL, "where: no partition is named");
	colon = strrchr(text, ':');
	slash = strrchr(text, '/');
	split = !colon || (slash && slash > colon) ? slash : colon;
	if (!split)
		return store_fail(EINVAL, "'%s': is neither PATH:PARTITION nor HOST/PARTITION",
				  text);
	rc = split == colon ? parse_local(text, (size_t)(split - text), w)
			    : parse_remote(text, (size_t)(split - text), w);
	if (rc == 0)
		rc = copy_part(w->partition, sizeof(w->partition), split + 1, strlen(split + 1),
			       "partition");
	return rc == 0 ? table_check_name("partition", w->partition) : rc;
}
