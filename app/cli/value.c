// SPDX-License-Identifier: BSD-2-Clause
/*
 * value.c - parses the value of an option by its type, and stores it in the noun's option struct.
 */
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "complain.h"
#include "conf.h"

/* "read write mix" becomes "read, write or mix". */
static void list_words(const char *words, char *to, size_t size)
{
	size_t n = 0;

	*to = '\0';
	for (const char *p = words; *p && n < size;) {
		size_t length = strcspn(p, " ");
		const char *next = p + length + strspn(p + length, " ");

		n += (size_t)snprintf(to + n, size - n, "%.*s%s", (int)length, p,
				      !*next		   ? ""
				      : !strchr(next, ' ') ? " or "
							   : ", ");
		p = next;
	}
}

static bool check_word(const struct cli_option *o, const char *text)
{
	char list[256];

	if (cli_list_has(o->words, text, strlen(text)))
		return true;
	list_words(o->words, list, sizeof(list));
	complain("--%s must be %s, not '%s'", o->name, list, text);
	return false;
}

static bool refuse_number(const struct cli_option *o, const char *what, const char *text)
{
	if (o->max == UINT64_MAX)
		complain("--%s must be a %s of at least %llu, not '%s'", o->name, what,
			 (unsigned long long)o->min, text);
	else
		complain("--%s must be a %s from %llu to %llu, not '%s'", o->name, what,
			 (unsigned long long)o->min, (unsigned long long)o->max, text);
	return false;
}

static bool store_number(void *at, const struct cli_option *o, const char *text)
{
	uint64_t n;

	if (!conf_parse_count(text, &n) || n < o->min || n > o->max)
		return refuse_number(o, "number", text);
	if (o->width == sizeof(uint16_t))
		*(uint16_t *)at = (uint16_t)n;
	else if (o->width == sizeof(uint32_t))
		*(uint32_t *)at = (uint32_t)n;
	else
		*(uint64_t *)at = n;
	return true;
}

static bool store_size(uint64_t *at, const struct cli_option *o, const char *text)
{
	uint64_t n;

	if (!conf_parse_size(text, &n) || n < o->min || n > o->max)
		return refuse_number(o, "size (4096, 512K, 1G)", text);
	*at = n;
	return true;
}

static bool store_seconds(double *at, const struct cli_option *o, const char *text)
{
	char *end;
	double s = strtod(text, &end);

	if (end == text || *end || !(s >= o->min_seconds && s <= o->max_seconds)) {
		complain("--%s must be %g to %.15g seconds, not '%s'", o->name, o->min_seconds,
			 o->max_seconds, text);
		return false;
	}
	*at = s;
	return true;
}

bool cli_store_value(void *to, const struct cli_option *o, char *text)
{
	void *at = (char *)to + o->at;

	if (o->parse)
		return o->parse(to, o, text);
	switch (o->type) {
	case CLI_FLAG:
	case CLI_CLEAR:
		*(bool *)at = o->type == CLI_FLAG;
		return true;
	case CLI_NUMBER:
		return store_number(at, o, text);
	case CLI_SIZE:
		return store_size(at, o, text);
	case CLI_SECONDS:
		return store_seconds(at, o, text);
	case CLI_WORD:
		if (!check_word(o, text))
			return false;
		break;
	case CLI_TEXT:
	case CLI_FILE:
	case CLI_DIRECTORY:
	case CLI_USER:
	case CLI_HOST:
		break;
	}
	*(const char **)at = text;
	return true;
}
