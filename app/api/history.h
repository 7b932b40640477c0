/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * history.h - samples of the last ten minutes, one a second, of all daemons and adapters of this user on this machine.
 *
 *	history.c         the thread, the samples, and the answer made of them
 *	history_series.c  computes a sample from two snapshots: rates and latencies
 */
#ifndef STAG_APP_API_HISTORY_H
#define STAG_APP_API_HISTORY_H

#include <stdint.h>
#include <jansson.h>

#define HISTORY_SAMPLES 600

struct daemon;
struct history;

struct history *history_start(struct daemon *d); /* returns NULL and sets errno on failure */
void history_stop(struct history *h);		 /* does not wait; NULL is allowed */

/* Returns {"time": [seconds since 1970...], "series": {NAME: [number or null...]}} with the samples after `since`. */
json_t *history_json(struct history *h, double since);

/* The reports of one moment. */
struct snapshot {
	json_t *daemons;   /* status of each daemon */
	const json_t *own; /* one of daemons: that which samples; NULL: none */
	json_t *lives;	   /* counters of each process */
};

/* Returns an object with a number for each series; a rate needs both snapshots, of which `before` may be empty. */
json_t *series_of(const struct snapshot *now, const struct snapshot *before);

#endif
