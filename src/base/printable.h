/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * printable.h - words that a stranger had a say in: none of them shall command a terminal.
 */
#ifndef STAG_BASE_PRINTABLE_H
#define STAG_BASE_PRINTABLE_H

static inline void make_printable(char *text)
{
	for (char *p = text; *p; p++)
		if ((unsigned char)*p < ' ' || *p == 0x7f)
			*p = '?';
}

#endif
