/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * suggest.h - which word somebody may have meant.
 */
#ifndef STAG_APP_SUGGEST_H
#define STAG_APP_SUGGEST_H

#include <stddef.h>

struct suggestion {
	const char *word; /* as it was written */
	const char *best; /* NULL: none is near */
	size_t distance;
};

void suggest_consider(struct suggestion *s, const char *name);
/* "no WHAT 'WORD'; did you mean 'PREFIXBEST'?" */
void suggest_complain(const struct suggestion *s, const char *what, const char *prefix);

#endif
