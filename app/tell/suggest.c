// SPDX-License-Identifier: BSD-2-Clause
/*
 * suggest.c - finds the word with the least edit distance (suggest.h).
 */
#include "suggest.h"

#include <string.h>

#include "complain.h"

#define TOO_FAR 3 /* edits: no typing error any more */
#define LONGEST 32

static size_t min3(size_t a, size_t b, size_t c)
{
	size_t m = a < b ? a : b;

	return m < c ? m : c;
}

/* Returns how many letters to change, insert, delete or swap with their neighbour to turn a into b (optimal string alignment). */
static size_t distance(const char *a, const char *b)
{
	size_t rows[3][LONGEST], *older = rows[0], *old = rows[1], *row = rows[2], n = strlen(b);

	if (n >= LONGEST)
		return n;
	for (size_t j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t *spare = older;

		older = old;
		old = row;
		row = spare;
		row[0] = i;
		for (size_t j = 1; j <= n; j++) {
			row[j] = min3(old[j] + 1, row[j - 1] + 1,
				      old[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = min3(row[j], older[j - 2] + 1, row[j]);
		}
	}
	return row[n];
}

void suggest_consider(struct suggestion *s, const char *name)
{
	size_t d = distance(s->word, name), limit = s->best ? s->distance : TOO_FAR;

	if (d >= limit || d >= strlen(name))
		return;
	s->best = name;
	s->distance = d;
}

void suggest_complain(const struct suggestion *s, const char *what, const char *prefix)
{
	if (s->best)
		complain("no %s '%s%s'; did you mean '%s%s'?", what, prefix, s->word, prefix,
			 s->best);
	else
		complain("no %s '%s%s'", what, prefix, s->word);
}
