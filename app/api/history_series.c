// SPDX-License-Identifier: BSD-2-Clause
/*
 * history_series.c - computes the series of a sample (history.h).
 *
 * Counters are compared with those of the same process: a restarted one begins at 0, and has no rate at first. A rate is computed
 * over the time between the two readings of the counters, not between the snapshots, which a hung process may have delayed. The
 * reports of processes are not trusted: only numbers are used, and they may have any value.
 *
 * One node of each pool is sampled, its primary. Several daemons of a machine may report one: another pool may have the same name,
 * and a node that stood still believes to be primary until it reads the roll.
 */
#include "history.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "live.h"

#define NAME_MAX_ 192

struct making {
	json_t *series;
	const json_t *daemons, *own; /* of the snapshot */
	double seconds; /* seconds between the two readings of the current object; 0: no new reading */
};

static const char *text_of(const json_t *o, const char *name)
{
	const char *text = json_string_value(json_object_get(o, name));

	return text ? text : "";
}

/* Returns the object of a list whose field has this value, or NULL. */
static json_t *same_in(const json_t *list, const char *field, const json_t *value)
{
	size_t i;
	json_t *o;

	json_array_foreach (list, i, o)
		if (value && json_equal(json_object_get(o, field), value))
			return o;
	return NULL;
}

/* Computes the seconds between two readings from their now_ns. */
static void set_seconds(struct making *m, const json_t *now, const json_t *before)
{
	const json_t *a = json_object_get(now, "now_ns"), *b = json_object_get(before, "now_ns");
	double ns = (double)json_integer_value(a) - (double)json_integer_value(b);

	m->seconds = json_is_integer(a) && json_is_integer(b) && ns > 0 ? ns / NS_PER_S : 0;
}

/* ---- one series ------------------------------------------------------------------------- */

static void put_sample(struct making *m, const char *prefix, const char *name, double value)
{
	char key[NAME_MAX_];

	if (snprintf(key, sizeof(key), "%s/%s", prefix, name) < (int)sizeof(key))
		json_object_set_new(m->series, key, json_real(value));
}

/* Adds to a series that several objects contribute to. */
static void add_sample(struct making *m, const char *prefix, const char *name, double value)
{
	char key[NAME_MAX_];

	if (snprintf(key, sizeof(key), "%s/%s", prefix, name) < (int)sizeof(key))
		json_object_set_new(
			m->series, key,
			json_real(json_real_value(json_object_get(m->series, key)) + value));
}

/* Adds a counter's rate per second to a series; several objects may contribute. */
static void add_rate(struct making *m, const char *prefix, const char *name, const json_t *now,
		     const json_t *before, const char *counter)
{
	const json_t *a = json_object_get(now, counter), *b = json_object_get(before, counter);
	double more = (double)json_integer_value(a) - (double)json_integer_value(b);

	if (json_is_integer(a) && json_is_integer(b) && more >= 0 && m->seconds > 0)
		add_sample(m, prefix, name, more / m->seconds);
}

/* Adds the counts between two snapshots to h. */
static void add_times(struct stag_histogram *h, const json_t *now, const json_t *before)
{
	struct stag_histogram a, b;

	if (!json_is_object(now) || !json_is_object(before))
		return;
	live_read_histogram(now, &a);
	live_read_histogram(before, &b);
	live_histogram_since(&a, &b);
	h->count += a.count;
	h->sum_ns += a.sum_ns;
	h->max_ns = a.max_ns > h->max_ns ? a.max_ns : h->max_ns;
	for (unsigned int i = 0; i < STAG_HISTOGRAM_BUCKETS; i++)
		h->bucket[i] += a.bucket[i];
}

static void put_times(struct making *m, const char *prefix, const char *what,
		      const struct stag_histogram *h)
{
	char name[48];

	if (h->count == 0)
		return;
	snprintf(name, sizeof(name), "%s_p50_us", what);
	put_sample(m, prefix, name, stag_histogram_quantile(h, 0.5) / 1000);
	snprintf(name, sizeof(name), "%s_p99_us", what);
	put_sample(m, prefix, name, stag_histogram_quantile(h, 0.99) / 1000);
}

static void put_latency(struct making *m, const char *prefix, const char *what, const json_t *now,
			const json_t *before)
{
	struct stag_histogram h = {0};

	add_times(&h, json_object_get(json_object_get(now, "latency"), what),
		  json_object_get(json_object_get(before, "latency"), what));
	put_times(m, prefix, what, &h);
}

static void prefix_of(char *prefix, size_t size, const char *kind, const json_t *o)
{
	snprintf(prefix, size, "%s/%s", kind, text_of(o, "name"));
}

/* ---- pools -------------------------------------------------------------------------------- */

/* The rate of changes is that of record numbers, which continue after a failover. */
static void put_field(struct making *m, const char *prefix, const json_t *now, const json_t *before)
{
	const json_t *a = json_object_get(now, "number"), *b = json_object_get(before, "number");
	double more = (double)json_integer_value(a) - (double)json_integer_value(b);

	if (json_is_integer(a) && json_is_integer(b) && more >= 0 && m->seconds > 0)
		put_sample(m, prefix, "changes_per_s", more / m->seconds);
}

static void put_gauge(struct making *m, const char *prefix, const char *name, const json_t *o)
{
	const json_t *value = json_object_get(o, name);

	if (json_is_integer(value))
		put_sample(m, prefix, name, (double)json_integer_value(value));
}

static void put_state(struct making *m, const char *prefix, const json_t *now, const json_t *before)
{
	put_field(m, prefix, now, before);
	put_gauge(m, prefix, "lag", now);
	put_gauge(m, prefix, "objects", now);
	put_gauge(m, prefix, "used", now);
}

static json_int_t epoch_of(const json_t *o)
{
	return json_integer_value(json_object_get(o, "epoch"));
}

/*
 * Returns whether o is of the pool that the sampling daemon serves or watches by this name, and not from an earlier epoch; true if it
 * has none.
 */
static bool is_own_pool(const struct making *m, const json_t *o)
{
	static const char *const lists[] = {"pools", "watches"};
	const json_t *own, *uuid;

	for (size_t i = 0; i < 2; i++) {
		own = same_in(json_object_get(m->own, lists[i]), "name",
			      json_object_get(o, "name"));
		uuid = json_object_get(own, "uuid");
		if (uuid)
			return json_equal(json_object_get(o, "uuid"), uuid) &&
			       epoch_of(o) >= epoch_of(own);
	}
	return true;
}

/* Returns the primary of this pool with the highest epoch, or NULL. */
static const json_t *primary_of(const struct making *m, const json_t *name)
{
	const json_t *o, *found = NULL;
	size_t i, j;
	json_t *d;

	json_array_foreach (m->daemons, i, d)
		json_array_foreach (json_object_get(d, "pools"), j, o)
			if (json_equal(json_object_get(o, "name"), name) &&
			    strcmp(text_of(o, "role"), "primary") == 0 && is_own_pool(m, o) &&
			    (!found || epoch_of(o) > epoch_of(found)))
				found = o;
	return found;
}

/* Samples the pool at its primary; the other nodes have no clients. */
static void sample_pool(struct making *m, const json_t *now, const json_t *before)
{
	char prefix[128];

	if (primary_of(m, json_object_get(now, "name")) != now)
		return;
	prefix_of(prefix, sizeof(prefix), "pool", now);
	put_state(m, prefix, now, before);
	add_rate(m, prefix, "reads_per_s", now, before, "reads");
	add_rate(m, prefix, "record_bytes_per_s", now, before, "record_bytes");
	add_rate(m, prefix, "mirrored_bytes_per_s", now, before, "mirrored_bytes");
	put_latency(m, prefix, "change", now, before);
	put_latency(m, prefix, "replication", now, before);
}

/* Used only if the primary is not on this machine, which would report more. */
static void sample_watch(struct making *m, const json_t *now, const json_t *before)
{
	char prefix[128], key[NAME_MAX_];

	prefix_of(prefix, sizeof(prefix), "pool", now);
	snprintf(key, sizeof(key), "%s/changes_per_s", prefix);
	if (json_is_true(json_object_get(now, "answers")) && is_own_pool(m, now) &&
	    !json_object_get(m->series, key))
		put_state(m, prefix, now, before);
}

/* Estimates reads of clients, which only the adapter sees: bytes that the primary's process sends, minus replication. */
static void sample_reads(struct making *m, const json_t *daemon, const json_t *live,
			 const json_t *live_before)
{
	const json_t *pool = json_array_get(json_object_get(daemon, "pools"), 0);
	char prefix[128], records[NAME_MAX_];
	const json_t *a = json_object_get(json_object_get(live, "counters"), "tx_payload");
	const json_t *b = json_object_get(json_object_get(live_before, "counters"), "tx_payload");
	double bytes = (double)json_integer_value(a) - (double)json_integer_value(b);

	set_seconds(m, live, live_before);
	if (json_array_size(json_object_get(daemon, "pools")) != 1 || !json_is_integer(a) ||
	    !json_is_integer(b) || m->seconds == 0 ||
	    primary_of(m, json_object_get(pool, "name")) != pool)
		return;
	prefix_of(prefix, sizeof(prefix), "pool", pool);
	bytes /= m->seconds;
	snprintf(records, sizeof(records), "%s/record_bytes_per_s", prefix);
	bytes -= json_real_value(json_object_get(m->series, records));
	snprintf(records, sizeof(records), "%s/mirrored_bytes_per_s", prefix);
	bytes -= json_real_value(json_object_get(m->series, records));
	put_sample(m, prefix, "read_bytes_per_s", bytes > 0 ? bytes : 0);
}

/* ---- stores and targets --------------------------------------------------------------------- */

static void sample_storage(struct making *m, const char *kind, const json_t *now,
			   const json_t *before)
{
	static const char *const rates[][2] = {{"read_per_s", "reads"},
					       {"write_per_s", "writes"},
					       {"read_bytes_per_s", "read_bytes"},
					       {"written_bytes_per_s", "written_bytes"},
					       {"errors_per_s", "errors"}};
	char prefix[128];

	prefix_of(prefix, sizeof(prefix), kind, now);
	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++)
		add_rate(m, prefix, rates[i][0], json_object_get(now, "counters"),
			 json_object_get(before, "counters"), rates[i][1]);
	put_latency(m, prefix, "read", now, before);
	put_latency(m, prefix, "write", now, before);
}

/* ---- adapters ------------------------------------------------------------------------------- */

static void sample_processes(struct making *m, const json_t *now, const json_t *before)
{
	static const char *const rates[][2] = {
		{"tx_bytes_per_s", "tx_bytes"}, {"rx_bytes_per_s", "rx_bytes"},
		{"tx_msgs_per_s", "tx_msgs"},	{"rx_msgs_per_s", "rx_msgs"},
		{"posts_per_s", "posts"},	{"completions_per_s", "completions"}};
	static const char *const kinds[] = {"send", "write", "read", "atomic"};
	struct stag_histogram times[4] = {{0}};
	const json_t *o, *was;

	for (size_t i = 0; i < json_array_size(now); i++) {
		o = json_array_get(now, i);
		was = same_in(before, "pid", json_object_get(o, "pid"));
		set_seconds(m, o, was);
		for (size_t j = 0; j < sizeof(rates) / sizeof(rates[0]); j++)
			add_rate(m, "adapter", rates[j][0], json_object_get(o, "counters"),
				 json_object_get(was, "counters"), rates[j][1]);
		for (size_t j = 0; j < 4; j++)
			add_times(&times[j],
				  json_object_get(json_object_get(o, "latency"), kinds[j]),
				  json_object_get(json_object_get(was, "latency"), kinds[j]));
	}
	for (size_t j = 0; j < 4; j++)
		put_times(m, "adapter", kinds[j], &times[j]);
	put_sample(m, "adapter", "processes", (double)json_array_size(now));
}

/* ---- a sample ------------------------------------------------------------------------------- */

static void sample_services(struct making *m, const json_t *daemon, const json_t *was,
			    const char *list, const char *kind)
{
	const json_t *services = json_object_get(daemon, list), *o, *before;

	for (size_t i = 0; i < json_array_size(services); i++) {
		o = json_array_get(services, i);
		before = same_in(json_object_get(was, list), "name", json_object_get(o, "name"));
		set_seconds(m, o, before);
		if (strcmp(kind, "pool") == 0)
			sample_pool(m, o, before);
		else if (strcmp(kind, "watch") == 0)
			sample_watch(m, o, before);
		else
			sample_storage(m, kind, o, before);
	}
}

static void sample_daemons(struct making *m, const struct snapshot *now,
			   const struct snapshot *before, const char *list, const char *kind)
{
	for (size_t i = 0; i < json_array_size(now->daemons); i++) {
		const json_t *d = json_array_get(now->daemons, i), *pid = json_object_get(d, "pid");

		sample_services(m, d, same_in(before->daemons, "pid", pid), list, kind);
		if (strcmp(kind, "pool") == 0)
			sample_reads(m, d, same_in(now->lives, "pid", pid),
				     same_in(before->lives, "pid", pid));
	}
}

json_t *series_of(const struct snapshot *now, const struct snapshot *before)
{
	struct making m = {.series = json_object(), .daemons = now->daemons, .own = now->own};

	sample_daemons(&m, now, before, "pools", "pool");
	sample_daemons(&m, now, before, "watches", "watch");
	sample_daemons(&m, now, before, "stores", "store");
	sample_daemons(&m, now, before, "targets", "target");
	sample_processes(&m, now->lives, before->lives);
	return m.series;
}
