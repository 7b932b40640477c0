/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * printable.h - makes text from peers or disks safe to print: no control character reaches a
 * terminal.
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
