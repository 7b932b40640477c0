/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * times.h - how long operations took: counted by their size, a 32nd of it apart.
 */
#ifndef STAG_APP_TIMES_H
#define STAG_APP_TIMES_H

#include <jansson.h>
#include <stdint.h>

#define TIMES_PLACES 2048

struct times {
	uint64_t count[TIMES_PLACES];
	uint64_t n, sum, max; /* nanoseconds */
};

void times_note(struct times *t, uint64_t ns);
double times_percentile(const struct times *t, double percent); /* in microseconds */
json_t *times_json(const struct times *t); /* mean and percentiles, in microseconds */
void times_print(const struct times *t);   /* a line of the same */

#endif
