// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_words.c - parses numbers, sizes, times and switches as written in a file. Pure.
 */
#include "conf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

bool conf_parse_count(const char *text, uint64_t *n)
{
	bool hex = strncmp(text, "0x", 2) == 0;
	char *end;
	uint64_t found;

	if (!is_digit(*text))
		return false;
	errno = 0;
	found = strtoull(text, &end, hex ? 16 : 10);
	if (*end || errno != 0)
		return false;
	*n = found;
	return true;
}

bool conf_parse_size(const char *text, uint64_t *size)
{
	static const char letters[] = "KMGTP";
	const char *letter;
	unsigned int shift = 0;
	char *end;
	uint64_t n;

	if (!is_digit(*text))
		return false;
	errno = 0;
	n = strtoull(text, &end, 10);
	letter = *end ? strchr(letters, *end) : NULL;
	if (letter) {
		shift = 10 * (unsigned int)(letter - letters + 1);
		end += strncmp(end + 1, "iB", 2) == 0 ? 3 : 1;
	}
	if (*end || errno != 0 || n > UINT64_MAX >> shift)
		return false;
	*size = n << shift;
	return true;
}

bool conf_parse_time(const char *text, uint64_t *us)
{
	static const struct {
		const char *word;
		double us;
	} units[] = {{"us", 1},	  {"ms", 1e3},	 {"s", 1e6},
		     {"m", 60e6}, {"h", 3600e6}, {"d", 86400e6}};
	char *end;
	double n;

	if (!is_digit(*text) || strncmp(text, "0x", 2) == 0)
		return false;
	n = strtod(text, &end);
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(end, units[i].word) != 0 || n * units[i].us > 1e15)
			continue;
		*us = (uint64_t)(n * units[i].us + 0.5);
		return true;
	}
	return false;
}

bool conf_parse_switch(const char *text, bool *on)
{
	static const char *const words[] = {"no", "yes", "off", "on", "false", "true", "0", "1"};

	for (unsigned int i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcasecmp(text, words[i]) == 0) {
			*on = i % 2;
			return true;
		}
	return false;
}
