/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * suggest.h - suggests the word that a misspelt one was meant to be.
 */
#ifndef STAG_APP_SUGGEST_H
#define STAG_APP_SUGGEST_H

#include <stddef.h>

struct suggestion {
	const char *word; /* the misspelt word */
	const char *best; /* the nearest so far; NULL: none is near */
	size_t distance;
};

void suggest_consider(struct suggestion *s, const char *name);
/* Prints "no WHAT 'WORD'; did you mean 'PREFIXBEST'?" */
void suggest_complain(const struct suggestion *s, const char *what, const char *prefix);

#endif
