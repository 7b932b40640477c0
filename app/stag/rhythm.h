/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rhythm.h - --interval and --count of the commands that look again and again.
 */
#ifndef STAG_APP_RHYTHM_H
#define STAG_APP_RHYTHM_H

#include <stdbool.h>
#include <stdint.h>

/* Both: false, having complained. */
bool rhythm_interval(const char *text, double *seconds); /* 0.01 to a day */
bool rhythm_count(const char *text, uint64_t *count);	 /* from 1 on */

#endif
