/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * printable.h - makes text from peers or disks safe to print: no control character reaches a
 * terminal, also none of U+0080 to U+009F in UTF-8, which some terminals obey.
 */
#ifndef STAG_BASE_PRINTABLE_H
#define STAG_BASE_PRINTABLE_H

#include <stdbool.h>

/* Returns whether a control character begins here. text ends with a zero. */
static inline bool is_control(const char *text)
{
	const unsigned char *c = (const unsigned char *)text;

	return *c < ' ' || *c == 0x7f || (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0);
}

static inline void make_printable(char *text)
{
	for (char *p = text; *p; p++)
		if (is_control(p)) {
			if ((unsigned char)*p == 0xc2)
				p[1] = '?';
			*p = '?';
		}
}

#endif
