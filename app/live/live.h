/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * live.h - what the adapters of this machine's processes say of themselves (libstag-verbs(7), STAG_LIVE).
 *
 * Each process that uses the adapter listens at @stag-live/UID/PID, in its network namespace. This user is
 * told of his own processes, root of all. Words: counters; qps (and the counters); regions; all.
 */
#ifndef STAG_APP_LIVE_H
#define STAG_APP_LIVE_H

#include <jansson.h>
#include <stag/histogram.h>

/*
 * What one says, within a second: an object with an integer pid and uid and a string program; all else may
 * be whatever a stranger makes up. NULL and errno: ESRCH (there is no such process that could be looked
 * at), ETIMEDOUT, EPROTO, ENOMEM.
 */
json_t *live_ask(int pid, const char *word);
json_t *live_ask_all(
	const char *word); /* an array, by pid; who says nothing in time is not in it */
/* Likewise, and he is: {"pid", "uid", "program", "answers": false}. pid: that one alone; 0: all. */
json_t *live_ask_each(int pid, const char *word);

/* Histograms: {"count":n,"sum_ns":n,"max_ns":n,"buckets":[[upper_ns,count],...]}, empty buckets left off. */
json_t *live_histogram(const struct stag_histogram *h);
void live_read_histogram(const json_t *o, struct stag_histogram *h); /* zeroes where it is none */
double live_quantile(const json_t *o, double q);		     /* ns; 0: it has nothing */

/* What came since before, which is an earlier reading of the same; its max_ns is that of all. */
void live_histogram_since(struct stag_histogram *h, const struct stag_histogram *before);

#endif
