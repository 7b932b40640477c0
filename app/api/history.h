/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * history.h - the last ten minutes: a sample a second, of all daemons and adapters of this user on this machine.
 *
 *	history.c         the thread, the samples, and what is told of them
 *	history_series.c  what a sample has: rates and times, of two looks one after the other
 */
#ifndef STAG_APP_API_HISTORY_H
#define STAG_APP_API_HISTORY_H

#include <stdint.h>
#include <jansson.h>

#define HISTORY_SAMPLES 600

struct daemon;
struct history;

struct history *history_start(struct daemon *d); /* NULL and errno */
void history_stop(struct history *h);		 /* at once; NULL is allowed */

/* {"time": [seconds since 1970...], "series": {NAME: [number or null...]}}, of samples after since. */
json_t *history_json(struct history *h, double since);

/* What there was at one time. */
struct look {
	json_t *daemons; /* an array of their status */
	json_t *lives;	 /* and one of what processes say, "counters" */
};

/* An object of numbers by the names of series; those that are known by now. before may be empty. */
json_t *series_of(const struct look *now, const struct look *before);

#endif
