// SPDX-License-Identifier: BSD-2-Clause
/*
 * words.c - divides a line into words, by the quotes that shells have.
 *
 *	name\ x 'as it is' "with \" \\ \n \t" # a comment
 */
#include <stddef.h>
#include <string.h>

#include "cli.h"
#include "complain.h"

/* Copies a character after a backslash in double quotes. */
static char escaped(char c)
{
	return c == 'n' ? '\n' : c == 't' ? '\t' : c;
}

/* Moves the part in quotes at *from to *to. Returns false if the closing quote is missing. */
static bool take_quoted(char **from, char **to)
{
	char quote = *(*from)++;

	for (; **from && **from != quote; (*from)++) {
		if (quote == '"' && **from == '\\' && (*from)[1])
			*(*to)++ = escaped(*++*from);
		else
			*(*to)++ = **from;
	}
	return *(*from)++ == quote;
}

/* Moves one word, and ends it. Returns false if a quote is not closed. */
static bool take_word(char **from, char **to)
{
	while (**from && !strchr(" \t\r\n", **from)) {
		if (**from == '\'' || **from == '"') {
			if (!take_quoted(from, to))
				return false;
			continue;
		}
		if (**from == '\\' && (*from)[1])
			(*from)++;
		*(*to)++ = *(*from)++;
	}
	*from += **from != '\0'; /* the end of the word may overwrite the space */
	*(*to)++ = '\0';
	return true;
}

int cli_split(char *line, char **words, int room)
{
	char *from = line, *to = line;
	int n = 0;

	for (;;) {
		from += strspn(from, " \t\r\n");
		if (!*from || *from == '#')
			break;
		if (n == room - 1) {
			complain("the line has more than %d words", room - 1);
			return -1;
		}
		words[n++] = to;
		if (!take_word(&from, &to)) {
			complain("a quote is not closed");
			return -1;
		}
	}
	words[n] = NULL;
	return n;
}
