/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * times.h - a histogram of how long operations took; buckets are a 32nd of their time wide.
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
void times_print(const struct times *t);   /* prints the same in a line */

#endif
