// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_right.c - a right to use a block target: "PATTERN [user=NAME secret-file=FILE] [lun=LIST] [ro]".
 */
#include "conf.h"

#include <stdlib.h>
#include <string.h>

/* Returns what is behind the key of a word "KEY=VALUE" if it is this key and has a value, else NULL. */
static const char *value_of(const char *word, const char *key)
{
	size_t len = strlen(key);

	return strncmp(word, key, len) == 0 && word[len] == '=' && word[len + 1] ? word + len + 1
										 : NULL;
}

static bool take_number(const char **at, unsigned long *n)
{
	char *end;

	if (**at < '0' || **at > '9')
		return false;
	*n = strtoul(*at, &end, 10);
	*at = end;
	return *n <= CONF_LUN_MOST;
}

/* Accepts numbers and ranges, "0,2,8-15". */
static bool is_lun_list(const char *list)
{
	unsigned long from, to;

	for (;; list++) {
		if (!take_number(&list, &from))
			return false;
		to = from;
		if (*list == '-' && (list++, !take_number(&list, &to)))
			return false;
		if (to < from || (*list && *list != ','))
			return false;
		if (!*list)
			return true;
	}
}

static bool take_word(struct conf_right *r, const char *word)
{
	const char *user = value_of(word, "user"), *file = value_of(word, "secret-file");
	const char *luns = value_of(word, "lun");

	if (strcmp(word, "ro") == 0)
		r->right.flags |= STAG_BLOCK_READ_ONLY;
	else if (user)
		r->right.user = user;
	else if (file)
		r->secret_file = file;
	else if (luns && is_lun_list(luns))
		r->right.luns = luns;
	else
		return false;
	return true;
}

bool conf_right_parse(const char *text, struct conf_right *r, char *why, size_t size)
{
	char *save, *word;

	*r = (struct conf_right){.text = strdup(text)};
	word = r->text ? strtok_r(r->text, " \t", &save) : NULL;
	if (!word) {
		snprintf(why, size, "expected the name of an initiator, or a pattern");
		return false;
	}
	r->right.initiator = word;
	while ((word = strtok_r(NULL, " \t", &save)))
		if (!take_word(r, word)) {
			snprintf(why, size,
				 value_of(word, "lun")
					 ? "'%s' is not a list of numbers such as lun=0,2,8-15"
					 : "unknown option '%s'; expected user=NAME, "
					   "secret-file=FILE, lun=NUMBERS or ro",
				 word);
			conf_right_free(r);
			return false;
		}
	if (!r->right.user == !r->secret_file)
		return true;
	snprintf(why, size, "user requires secret-file, and vice versa");
	conf_right_free(r);
	return false;
}

void conf_right_free(struct conf_right *r)
{
	explicit_bzero(r->secret, sizeof(r->secret));
	free(r->text);
	*r = (struct conf_right){0};
}
