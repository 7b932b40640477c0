// SPDX-License-Identifier: BSD-2-Clause
/* live_text.c - a text that grows, and the syntax of JSON. */
#include "adapter/live.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM 4096

static bool make_room(struct live_text *t, size_t more)
{
	size_t room = t->room ? t->room : FIRST_ROOM;
	char *at;

	if (more > t->most - t->length)
		return false;
	while (room - t->length < more)
		room *= 2;
	if (room == t->room)
		return true;
	at = realloc(t->at, room);
	if (!at)
		return false;
	t->at = at;
	t->room = room;
	return true;
}

void text_add(struct live_text *t, const char *fmt, ...)
{
	va_list ap, again;
	int n;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(t->at ? t->at + t->length : NULL, t->room - t->length, fmt, ap);
	if (n < 0 || t->failed || !make_room(t, (size_t)n + 1)) {
		t->failed = true;
	} else {
		vsnprintf(t->at + t->length, t->room - t->length, fmt, again);
		t->length += (size_t)n;
	}
	va_end(again);
	va_end(ap);
}

/* Returns the length of the UTF-8 character at s, or 0 if it is invalid (RFC 3629 §4). */
static unsigned char_length(const unsigned char *s)
{
	unsigned n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;

	if (s[0] > 0xf4)
		return 0;
	for (unsigned i = 1; i < n; i++) /* stops at the end of the string */
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
	    (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

void text_add_string(struct live_text *t, const char *string)
{
	const unsigned char *s = (const unsigned char *)string;

	text_add(t, "\"");
	while (*s) {
		unsigned n = char_length(s);

		if (n == 0)
			text_add(t, "\\ufffd");
		else if (*s < ' ' || *s == 0x7f)
			text_add(t, "\\u%04x", *s);
		else
			text_add(t, "%s%.*s", *s == '"' || *s == '\\' ? "\\" : "", (int)n, s);
		s += n ? n : 1;
	}
	text_add(t, "\"");
}

void text_add_histogram(struct live_text *t, const struct stag_histogram *h)
{
	const char *comma = "";

	text_add(t, "{\"count\":%llu,\"sum_ns\":%llu,\"max_ns\":%llu,\"buckets\":[",
		 (unsigned long long)h->count, (unsigned long long)h->sum_ns,
		 (unsigned long long)h->max_ns);
	for (unsigned i = 0; i < STAG_HISTOGRAM_BUCKETS; i++) {
		if (!h->bucket[i])
			continue;
		text_add(t, "%s[%llu,%llu]", comma, (unsigned long long)stag_histogram_upper(i),
			 (unsigned long long)h->bucket[i]);
		comma = ",";
	}
	text_add(t, "]}");
}

void text_free(struct live_text *t)
{
	free(t->at);
	*t = (struct live_text){.at = NULL};
}
