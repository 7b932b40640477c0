// SPDX-License-Identifier: BSD-2-Clause
/*
 * metrics.c - GET /metrics: Prometheus' text format, version 0.0.4.
 *
 * A family is printed as a whole: HELP, TYPE, then all its samples, of every daemon of this user on this machine. families.c says
 * where the numbers of a family are in the daemons' status.
 */
#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "families.h"
#include "live.h"

/* ---- lines --------------------------------------------------------------------------------- */

/* Prints a label's value with \, " and line breaks escaped. */
static void put_label(FILE *f, bool *first, const char *name, const char *value)
{
	fprintf(f, "%s%s=\"", *first ? "{" : ",", name);
	*first = false;
	for (; *value; value++)
		if (*value == '\\' || *value == '"')
			fprintf(f, "\\%c", *value);
		else if (*value == '\n')
			fputs("\\n", f);
		else
			fputc(*value, f);
	fputc('"', f);
}

static void put_head(FILE *f, const struct metric_family *m)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, m->type);
}

/*
 * Prints the labels of an object: its daemon's name and INI file, since several daemons may have the same name, and its own
 * fields. The field "name" becomes a label with the name of the kind.
 */
struct object {
	const json_t *daemon, *o;
	const struct metric_source *of;
};

static void put_labels(FILE *f, const struct object *x, bool *first)
{
	static const char *const kinds[][2] = {
		{"pools", "pool"}, {"watches", "pool"}, {"stores", "store"}, {"targets", "target"}};
	const char *text = json_string_value(json_object_get(x->daemon, "name"));

	put_label(f, first, "daemon", text ? text : "");
	text = json_string_value(json_object_get(x->daemon, "config"));
	put_label(f, first, "config", text ? text : "");
	for (size_t i = 0; x->of->labels[i]; i++) {
		const char *label = x->of->labels[i];

		text = json_string_value(json_object_get(x->o, label));
		for (size_t k = 0; strcmp(label, "name") == 0 && k < 4; k++)
			if (strcmp(kinds[k][0], x->of->list) == 0)
				label = kinds[k][1];
		put_label(f, first, label, text ? text : "");
	}
}

typedef void (*each)(FILE *f, const struct object *x, const void *arg);

static void for_each(FILE *f, const json_t *all, const struct metric_source *of, each fn,
		     const void *arg)
{
	for (size_t i = 0; i < json_array_size(all); i++) {
		struct object x = {.daemon = json_array_get(all, i), .of = of};
		const json_t *list = of->list ? json_object_get(x.daemon, of->list) : NULL;

		x.o = x.daemon;
		if (!of->list)
			fn(f, &x, arg);
		for (size_t j = 0; j < json_array_size(list); j++) {
			x.o = json_array_get(list, j);
			fn(f, &x, arg);
		}
	}
}

static void print_number(FILE *f, const struct object *x, const void *arg)
{
	const struct metric_family *family = arg;
	const json_t *o = x->of->within ? json_object_get(x->o, x->of->within) : x->o;
	const json_t *value = json_object_get(o, family->field);
	bool first = true;

	if (!json_is_integer(value))
		return;
	fputs(family->name, f);
	put_labels(f, x, &first);
	fprintf(f, "} %lld\n", (long long)json_integer_value(value));
}

/* ---- histograms ------------------------------------------------------------------------------- */

/* Prints cumulative buckets, one for each power of two. The set is always the same: each is a time series of its own. */
static void put_buckets(FILE *f, const char *name, const char *labels,
			const struct stag_histogram *h)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < STAG_HISTOGRAM_BUCKETS - 1; i++) {
		sum += h->bucket[i];
		if (i % 4 == 0)
			fprintf(f, "%s_bucket%s,le=\"%.12g\"} %llu\n", name, labels,
				(double)stag_histogram_upper(i) / 1e9, (unsigned long long)sum);
	}
	sum += h->bucket[STAG_HISTOGRAM_BUCKETS - 1];
	fprintf(f, "%s_bucket%s,le=\"+Inf\"} %llu\n", name, labels, (unsigned long long)sum);
	fprintf(f, "%s_sum%s} %.9f\n", name, labels, (double)h->sum_ns / 1e9);
	fprintf(f, "%s_count%s} %llu\n", name, labels, (unsigned long long)sum);
}

static void put_histogram(FILE *f, const struct object *x, const void *arg)
{
	const struct metric_family *family = arg;
	const json_t *o = json_object_get(json_object_get(x->o, "latency"), family->field);
	struct stag_histogram h;
	char *labels = NULL;
	size_t length;
	bool first = true;
	FILE *text;

	if (!json_is_object(o) || !(text = open_memstream(&labels, &length)))
		return;
	put_labels(text, x, &first);
	if (fclose(text) == 0) {
		live_read_histogram(o, &h);
		put_buckets(f, family->name, labels, &h);
	}
	free(labels);
}

/* ---- roles, and adapters ----------------------------------------------------------------------- */

/* Prints 1 for the node's role and 0 for the others, so that an alert can test either. */
static void put_role(FILE *f, const struct object *x, const void *arg)
{
	static const char *const roles[] = {"primary", "standby", "joining",
					    "waiting", "refused", "unreachable"};
	const char *role = json_string_value(json_object_get(x->o, "role"));

	for (size_t i = 0; role && i < sizeof(roles) / sizeof(roles[0]); i++) {
		bool first = true;

		fputs(metric_role.name, f);
		put_labels(f, x, &first);
		put_label(f, &first, "role", roles[i]);
		fprintf(f, "} %d\n", strcmp(role, roles[i]) == 0);
	}
}

static void put_adapter_labels(FILE *f, const json_t *live)
{
	const char *program = json_string_value(json_object_get(live, "program"));
	bool first = true;
	char pid[24];

	snprintf(pid, sizeof(pid), "%lld",
		 (long long)json_integer_value(json_object_get(live, "pid")));
	put_label(f, &first, "pid", pid);
	put_label(f, &first, "program", program ? program : "");
}

static void put_adapters(FILE *f, const json_t *lives)
{
	for (const struct metric_family *m = metric_adapter; m->name; m++) {
		put_head(f, m);
		for (size_t j = 0; j < json_array_size(lives); j++) {
			const json_t *live = json_array_get(lives, j);
			const json_t *n =
				json_object_get(json_object_get(live, "counters"), m->field);

			if (!json_is_integer(n))
				continue;
			fputs(m->name, f);
			put_adapter_labels(f, live);
			fprintf(f, "} %lld\n", (long long)json_integer_value(n));
		}
	}
}

static void put_adapter_times(FILE *f, const json_t *lives)
{
	static const char *const operations[] = {"send", "write", "read", "atomic"};
	struct stag_histogram sum, one;
	char labels[32];

	put_head(f, &metric_adapter_times);
	for (size_t k = 0; k < sizeof(operations) / sizeof(operations[0]); k++) {
		sum = (struct stag_histogram){0};
		for (size_t j = 0; j < json_array_size(lives); j++) {
			live_read_histogram(
				json_object_get(
					json_object_get(json_array_get(lives, j), "latency"),
					operations[k]),
				&one);
			sum.sum_ns += one.sum_ns;
			for (unsigned int i = 0; i < STAG_HISTOGRAM_BUCKETS; i++)
				sum.bucket[i] += one.bucket[i];
		}
		snprintf(labels, sizeof(labels), "{op=\"%s\"", operations[k]);
		put_buckets(f, metric_adapter_times.name, labels, &sum);
	}
}

/* ---- the answer ------------------------------------------------------------------------------------ */

static void put_family(FILE *f, const json_t *all, const struct metric_family *m, each fn)
{
	put_head(f, m);
	for_each(f, all, m->of, fn, m);
}

static void put_all(FILE *f, const json_t *all, const json_t *lives)
{
	for (const struct metric_family *m = metric_numbers; m->name; m++)
		put_family(f, all, m, print_number);
	put_family(f, all, &metric_role, put_role);
	for (const struct metric_family *m = metric_times; m->name; m++)
		put_family(f, all, m, put_histogram);
	put_adapters(f, lives);
	put_adapter_times(f, lives);
}

void handle_metrics(struct request *r)
{
	json_t *all = daemons_json(r->daemon), *lives = live_ask_all("counters");
	char *text = NULL;
	size_t length = 0;
	FILE *f = open_memstream(&text, &length);

	if (f)
		put_all(f, all, lives);
	json_decref(all);
	json_decref(lives);
	if (f && fclose(f) == 0) {
		answer_bytes(r, "text/plain; version=0.0.4; charset=utf-8", text, length);
		return;
	}
	free(text);
	answer_error(r, ENOMEM, NULL, NULL);
}
