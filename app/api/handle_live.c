// SPDX-License-Identifier: BSD-2-Clause
/*
 * handle_live.c - processes on this machine that use the adapter, by their own reports: this user's, or all for root.
 */
#include "handle.h"

#include <stdlib.h>
#include <string.h>

#include "live.h"

/* ---- validation: a process may report anything ---- */

static bool is_integer(const json_t *o)
{
	return json_is_integer(o);
}

static bool is_integer_or_null(const json_t *o)
{
	return json_is_integer(o) || json_is_null(o);
}

static bool is_count(const json_t *o)
{
	return json_is_integer(o) && json_integer_value(o) >= 0;
}

static bool is_json_string(const json_t *o)
{
	return json_is_string(o);
}

static bool is_word_or_null(const json_t *o)
{
	return json_is_string(o) || json_is_null(o);
}

static bool is_word_or_integer(const json_t *o)
{
	return json_is_string(o) || json_is_integer(o);
}

static bool are_words(const json_t *list)
{
	json_t *o;
	size_t i;

	json_array_foreach (list, i, o)
		if (!is_json_string(o))
			return false;
	return json_is_array(list);
}

static bool is_histogram(const json_t *o)
{
	const json_t *buckets = json_object_get(o, "buckets"), *one;
	size_t i;

	json_array_foreach (buckets, i, one)
		if (json_array_size(one) != 2 || !is_count(json_array_get(one, 0)) ||
		    !is_count(json_array_get(one, 1)))
			return false;
	return json_is_array(buckets) && is_count(json_object_get(o, "count")) &&
	       is_count(json_object_get(o, "sum_ns")) && is_count(json_object_get(o, "max_ns"));
}

static bool members_are(const json_t *object, bool (*is)(const json_t *))
{
	const char *name;
	json_t *o;

	json_object_foreach ((json_t *)object, name, o)
		if (!is(o))
			return false;
	return json_is_object(object);
}

static bool are_counts(const json_t *o)
{
	return members_are(o, is_count);
}

static bool are_histograms(const json_t *o)
{
	return members_are(o, is_histogram);
}

/* How a connection is encrypted. */
static bool is_tls_or_null(const json_t *o)
{
	return json_is_null(o) ||
	       (json_object_size(o) == 3 && json_is_string(json_object_get(o, "version")) &&
		json_is_string(json_object_get(o, "cipher")) &&
		json_is_string(json_object_get(o, "kernel")));
}

struct member {
	const char *name;
	bool (*is)(const json_t *o);
	bool required;
};

static const struct member process_members[] = {
	{"version", is_integer, false},	    {"device", is_json_string, false},
	{"now_ns", is_integer, false},	    {"counters", are_counts, false},
	{"latency", are_histograms, false}, {NULL, NULL, false},
};

static const struct member qp_members[] = {
	{"qpn", is_integer, true},	   {"state", is_json_string, true},
	{"local", is_word_or_null, false}, {"peer", is_word_or_null, false},
	{"kind", is_word_or_null, false},  {"tls", is_tls_or_null, false},
	{"posts", is_count, false},	   {"completions", is_count, false},
	{"tx_bytes", is_count, false},	   {"rx_bytes", is_count, false},
	{"tx_msgs", is_count, false},	   {"rx_msgs", is_count, false},
	{"latency", is_histogram, false},  {NULL, NULL, false},
};

static const struct member region_members[] = {
	{"stag", is_json_string, true},
	{"kind", is_json_string, true},
	{"address", is_word_or_integer, false},
	{"length", is_count, true},
	{"access", are_words, true},
	{"lease_ns", is_integer_or_null, false},
	{NULL, NULL, false},
};

/* Removes members that openapi.yaml does not allow so. Returns false if a required one is invalid. */
static bool drop_invalid_members(json_t *o, const struct member *m)
{
	if (!json_is_object(o))
		return false;
	for (; m->name; m++) {
		if (m->is(json_object_get(o, m->name)))
			continue;
		if (m->required)
			return false;
		json_object_del(o, m->name);
	}
	return true;
}

static void drop_invalid_elements(json_t *o, const char *name, const struct member *m)
{
	json_t *list = json_object_get(o, name);

	for (size_t i = json_array_size(list); i-- > 0;)
		if (!drop_invalid_members(json_array_get(list, i), m))
			json_array_remove(list, i);
	if (!json_is_array(list))
		json_object_set_new(o, name, json_array());
}

static void put_process_right(json_t *o)
{
	drop_invalid_members(o, process_members);
	drop_invalid_elements(o, "qps", qp_members);
	drop_invalid_elements(o, "regions", region_members);
}

/* ---- answers ---- */

static json_t *ask_all(const char *word)
{
	json_t *all = live_ask_all(word), *o;
	size_t i;

	json_array_foreach (all, i, o)
		put_process_right(o);
	return all;
}

/* Leaves out what has a list of its own: queue pairs and regions. */
void handle_processes(struct request *r)
{
	json_t *all = ask_all("counters"), *o;
	size_t i;

	json_array_foreach (all, i, o) {
		json_object_del(o, "qps");
		json_object_del(o, "regions");
	}
	answer_json(r, 200, json_pack("{s:o}", "processes", all));
}

void handle_process(struct request *r)
{
	char *end;
	long pid = strtol(param(r, 0), &end, 10);
	json_t *o = NULL;

	if (*param(r, 0) >= '1' && *param(r, 0) <= '9' && !*end && pid <= INT32_MAX)
		o = live_ask((int)pid, "all");
	if (!o) {
		answer_none(r, "process", param(r, 0));
		return;
	}
	put_process_right(o);
	answer_json(r, 200, o);
}

/* Joins the lists of all processes; each entry says which process it belongs to. */
static void answer_joined(struct request *r, const char *word, const char *from, const char *name)
{
	json_t *all = ask_all(word), *list = json_array(), *process, *o;
	size_t i, j;

	json_array_foreach (all, i, process)
		json_array_foreach (json_object_get(process, from), j, o) {
			json_object_set(o, "pid", json_object_get(process, "pid"));
			json_object_set(o, "program", json_object_get(process, "program"));
			json_array_append(list, o);
		}
	json_decref(all);
	answer_json(r, 200, json_pack("{s:o}", name, list));
}

void handle_connections(struct request *r)
{
	answer_joined(r, "qps", "qps", "connections");
}

void handle_regions(struct request *r)
{
	answer_joined(r, "regions", "regions", "regions");
}
