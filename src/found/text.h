/* SPDX-License-Identifier: BSD-2-Clause */
/* text.h - puts text together in a buffer: unlike snprintf(), also in a signal handler. Too long a text is marked as such. */
#ifndef STAG_FOUND_TEXT_H
#define STAG_FOUND_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct text {
	char *to; /* always ends with a zero */
	size_t room, len;
	bool too_long;
};

static inline void text_begin(struct text *t, char *to, size_t room)
{
	*t = (struct text){.to = to, .room = room};
	to[0] = '\0';
}

static inline void text_add_bytes(struct text *t, const char *from, size_t n)
{
	if (n >= t->room - t->len) {
		t->too_long = true;
		return;
	}
	memcpy(t->to + t->len, from, n);
	t->len += n;
	t->to[t->len] = '\0';
}

static inline void text_add(struct text *t, const char *from)
{
	text_add_bytes(t, from, strlen(from));
}

static inline void text_add_number(struct text *t, unsigned long n)
{
	char digits[24];
	size_t at = sizeof(digits);

	do
		digits[--at] = (char)('0' + n % 10);
	while (n /= 10);
	text_add_bytes(t, digits + at, sizeof(digits) - at);
}

/* Adds bytes as hexadecimal digits, in groups of two bytes with a colon between them. */
static inline void text_add_groups(struct text *t, const uint8_t *bytes, size_t n)
{
	static const char hex[] = "0123456789abcdef";

	for (size_t i = 0; i < n; i++) {
		char pair[2] = {hex[bytes[i] >> 4], hex[bytes[i] & 15]};

		if (i && i % 2 == 0)
			text_add(t, ":");
		text_add_bytes(t, pair, 2);
	}
}

#endif
