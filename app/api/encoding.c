// SPDX-License-Identifier: BSD-2-Clause
/*
 * encoding.c - parses Accept-Encoding (RFC 9110 §12.5.3).
 *
 * A client without the header gets uncompressed content, although the RFC would allow gzip: such clients are simple ones.
 */
#include "http.h"

#include <string.h>
#include <strings.h>

#define BLANKS " \t"

static bool equals_word(const char *text, size_t len, const char *word)
{
	return len == strlen(word) && strncasecmp(text, word, len) == 0;
}

/* Returns false for the weights ";q=0" and ";q=0.000" and for an invalid weight; true if there is none. */
static bool has_weight(const char *text, const char *end)
{
	text += strspn(text, BLANKS);
	if (text >= end)
		return true;
	if (*text++ != ';')
		return false;
	text += strspn(text, BLANKS);
	if (end - text < 3 || strncasecmp(text, "q=", 2) != 0)
		return false;
	for (text += 2; text < end && strchr("0.", *text); text++)
		;
	return text < end && *text >= '1' && *text <= '9';
}

bool accepts_gzip(const char *header)
{
	bool any = false;

	for (const char *end; header && *header; header = *end ? end + 1 : end) {
		const char *word = header + strspn(header, BLANKS);
		size_t len = strcspn(word, "," BLANKS ";");

		end = word + strcspn(word, ",");
		if (equals_word(word, len, "gzip") || equals_word(word, len, "x-gzip"))
			return has_weight(word + len, end);
		if (equals_word(word, len, "*"))
			any = has_weight(word + len, end);
	}
	return any;
}
