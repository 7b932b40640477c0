/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * live.h - queries the adapters of this machine's processes (libstag-verbs(7), STAG_LIVE).
 *
 * Each process that uses the adapter listens at @stag-live/UID/PID, in its network namespace. It answers its own
 * user, and root. Words: counters; qps (and the counters); regions; all.
 */
#ifndef STAG_APP_LIVE_H
#define STAG_APP_LIVE_H

#include <jansson.h>
#include <stdbool.h>
#include <stag/histogram.h>

/* Whether root also queries processes of other users (yes, until this is called); for daemons, before their first query. */
void live_query_all_users(bool all);

/*
 * Queries one process, with a timeout of a second. Returns an object with an integer pid and uid and a string program; all
 * else is untrusted. NULL and errno: ESRCH (no such process that this user may query), ETIMEDOUT, EPROTO, ENOMEM.
 */
json_t *live_ask(int pid, const char *word);
json_t *live_ask_all(
	const char *word); /* an array, sorted by pid, without those that did not answer in time */
/* Likewise, with {"pid", "uid", "program", "answers": false} for those that did not. pid: only that one; 0: all. */
json_t *live_ask_each(int pid, const char *word);

/* Histograms: {"count":n,"sum_ns":n,"max_ns":n,"buckets":[[upper_ns,count],...]}, without empty buckets. */
json_t *live_histogram(const struct stag_histogram *h);
void live_read_histogram(const json_t *o,
			 struct stag_histogram *h); /* zeroes if it is not a histogram */
double live_quantile(const json_t *o, double q);    /* ns; 0: it is empty */

/* Subtracts an earlier reading of the same histogram; max_ns stays that of all time. */
void live_histogram_since(struct stag_histogram *h, const struct stag_histogram *before);

#endif
