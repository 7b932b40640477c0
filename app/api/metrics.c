// SPDX-License-Identifier: BSD-2-Clause
/*
 * metrics.c - GET /metrics: Prometheus' text format, version 0.0.4.
 *
 * A family is printed as a whole: HELP, TYPE, then all its samples, of every daemon of this user on this machine. Tables say where
 * the numbers of a family are in the daemons' status.
 */
#include "handle.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "live.h"

/* The objects that a family has samples of. */
struct source {
	const char *list;      /* list in a daemon's status; NULL: the daemon itself */
	const char *within;    /* its member that has the numbers; NULL: the object itself */
	const char *labels[3]; /* labels, named as their fields */
};

static const struct source daemons = {NULL, NULL, {NULL}};
static const struct source pools = {"pools", NULL, {"name", "node", NULL}};
static const struct source watches = {"watches", NULL, {"name", NULL}};
static const struct source stores = {"stores", NULL, {"name", NULL}};
static const struct source store_counters = {"stores", "counters", {"name", NULL}};
static const struct source targets = {"targets", "counters", {"name", NULL}};
static const struct source apis = {NULL, "api", {NULL}};

static const struct family {
	const struct source *of;
	const char *field, *name, *type, *help;
} families[] = {
	{&daemons, "uptime_s", "stag_uptime_seconds", "gauge",
	 "Seconds since the daemon was started."},
	{&apis, "requests", "stag_api_requests_total", "counter",
	 "Requests to the management API."},
	{&apis, "refused", "stag_api_refused_total", "counter",
	 "Requests to the management API that were answered with an error."},
	{&apis, "connections", "stag_api_connections", "gauge",
	 "Open connections to the management API."},

	{&pools, "epoch", "stag_pool_epoch", "gauge", "Epoch of the pool as known to this node."},
	{&pools, "number", "stag_pool_record_number", "counter",
	 "Number of the node's last record."},
	{&pools, "lag", "stag_pool_lag_records", "gauge",
	 "Records that the slowest standby is behind; on a primary."},
	{&pools, "size", "stag_pool_size_bytes", "gauge", "Memory of the pool."},
	{&pools, "used", "stag_pool_used_bytes", "gauge", "Memory of the pool that is not free."},
	{&pools, "objects", "stag_pool_objects", "gauge", "Values in the pool."},
	{&pools, "names", "stag_pool_names", "gauge", "Values in the pool that have names."},
	{&pools, "clients", "stag_pool_clients", "gauge", "Clients that are known to the node."},
	{&pools, "changes", "stag_pool_changes_total", "counter",
	 "Changes that the node carried out."},
	{&pools, "reads", "stag_pool_asked_reads_total", "counter",
	 "Reads that the node did for clients that could not read the memory themselves."},
	{&pools, "records", "stag_pool_records_total", "counter", "Records sent to each standby."},
	{&pools, "record_bytes", "stag_pool_record_bytes_total", "counter",
	 "Bytes of records sent to each standby."},
	{&pools, "mirrored_bytes", "stag_pool_mirrored_bytes_total", "counter",
	 "Bytes of values that the adapter forwarded."},
	{&pools, "promotions", "stag_pool_promotions_total", "counter",
	 "Times that the node became primary."},
	{&pools, "lapses", "stag_pool_lapses_total", "counter",
	 "Times that the node's lease expired."},
	{&pools, "resyncs", "stag_pool_resyncs_total", "counter",
	 "Times that a standby was resynchronised."},
	{&pools, "refused", "stag_pool_refused_total", "counter",
	 "Connections whose authentication failed."},

	{&watches, "epoch", "stag_watched_pool_epoch", "gauge", "Epoch of a pool that is watched."},
	{&watches, "number", "stag_watched_pool_record_number", "counter",
	 "Number of the last record of a pool that is watched."},
	{&watches, "lag", "stag_watched_pool_lag_records", "gauge",
	 "Records that the slowest standby of a watched pool is behind."},
	{&watches, "used", "stag_watched_pool_used_bytes", "gauge",
	 "Memory of a watched pool that is not free."},
	{&watches, "objects", "stag_watched_pool_objects", "gauge", "Values in a watched pool."},

	{&stores, "size", "stag_store_size_bytes", "gauge", "Size of the store."},
	{&stores, "used", "stag_store_used_bytes", "gauge", "Bytes of the store in partitions."},
	{&stores, "copies", "stag_store_table_copies", "gauge",
	 "Intact copies of the store's table; fewer than 2 mean damage."},
	{&store_counters, "reads", "stag_store_reads_total", "counter", "Reads of the store."},
	{&store_counters, "writes", "stag_store_writes_total", "counter", "Writes to the store."},
	{&store_counters, "flushes", "stag_store_flushes_total", "counter",
	 "Flushes of the store."},
	{&store_counters, "atomics", "stag_store_atomics_total", "counter",
	 "Atomic operations on the store."},
	{&store_counters, "read_bytes", "stag_store_read_bytes_total", "counter",
	 "Bytes read from the store."},
	{&store_counters, "written_bytes", "stag_store_written_bytes_total", "counter",
	 "Bytes written to the store."},
	{&store_counters, "errors", "stag_store_errors_total", "counter",
	 "Operations on the store that failed."},
	{&store_counters, "cache_hits", "stag_store_cache_hits_total", "counter",
	 "Reads that the store's cache served completely."},
	{&store_counters, "cache_misses", "stag_store_cache_misses_total", "counter",
	 "Reads that the store's cache could not serve completely."},

	{&targets, "commands", "stag_target_commands_total", "counter", "Commands to the target."},
	{&targets, "reads", "stag_target_reads_total", "counter", "Reads of the target."},
	{&targets, "writes", "stag_target_writes_total", "counter", "Writes to the target."},
	{&targets, "errors", "stag_target_errors_total", "counter",
	 "Commands that ended with a status other than GOOD."},
	{&targets, "read_bytes", "stag_target_read_bytes_total", "counter",
	 "Bytes read from the target."},
	{&targets, "written_bytes", "stag_target_written_bytes_total", "counter",
	 "Bytes written to the target."},
	{&targets, "logins", "stag_target_logins_total", "counter", "Logins to the target."},
	{&targets, "lost", "stag_target_lost_total", "counter", "Connections that were lost."},
	{&targets, "violations", "stag_target_violations_total", "counter",
	 "Violations of the protocol by initiators."},
	{&targets, "stags_open", "stag_target_stags_open", "gauge",
	 "STags that initiators lend to the target now."},
};

static const struct histogram_family {
	const struct source *of;
	const char *field, *name, *help;
} histograms[] = {
	{&pools, "change", "stag_pool_change_seconds", "Time to carry out a change."},
	{&pools, "replication", "stag_pool_replication_seconds",
	 "Time from a record to its acknowledgement by all standbys in sync."},
	{&stores, "read", "stag_store_read_seconds", "Time of a read of the store."},
	{&stores, "write", "stag_store_write_seconds", "Time of a write to the store."},
	{&stores, "flush", "stag_store_flush_seconds", "Time of a flush of the store."},
	{&targets, "read", "stag_target_read_seconds", "Time of a read of the target."},
	{&targets, "write", "stag_target_write_seconds", "Time of a write to the target."},
};

static const struct {
	const char *field, *name, *help;
} adapter_counters[] = {
	{"tx_bytes", "stag_adapter_tx_bytes_total", "Bytes sent, headers included."},
	{"rx_bytes", "stag_adapter_rx_bytes_total", "Bytes received, headers included."},
	{"tx_msgs", "stag_adapter_tx_messages_total", "RDMAP messages sent."},
	{"rx_msgs", "stag_adapter_rx_messages_total", "RDMAP messages received."},
	{"posts", "stag_adapter_posts_total", "Work requests posted to send queues."},
	{"completions", "stag_adapter_completions_total", "Work completions delivered."},
	{"crc_errors", "stag_adapter_crc_errors_total", "Frames with a wrong CRC."},
	{"terminates_sent", "stag_adapter_terminates_sent_total", "Terminate messages sent."},
	{"terminates_received", "stag_adapter_terminates_received_total",
	 "Terminate messages received."},
};

static const char *const adapter_times[] = {"send", "write", "read", "atomic"};

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

static void put_head(FILE *f, const char *name, const char *type, const char *help)
{
	fprintf(f, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/*
 * Prints the labels of an object: its daemon's name and INI file, since several daemons may have the same name, and its own
 * fields. The field "name" becomes a label with the name of the kind.
 */
struct object {
	const json_t *daemon, *o;
	const struct source *of;
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

static void for_each(FILE *f, const json_t *all, const struct source *of, each fn, const void *arg)
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
	const struct family *family = arg;
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
	const struct histogram_family *family = arg;
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

		fputs("stag_pool_role", f);
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
	for (size_t i = 0; i < sizeof(adapter_counters) / sizeof(adapter_counters[0]); i++) {
		put_head(f, adapter_counters[i].name, "counter", adapter_counters[i].help);
		for (size_t j = 0; j < json_array_size(lives); j++) {
			const json_t *live = json_array_get(lives, j);
			const json_t *n = json_object_get(json_object_get(live, "counters"),
							  adapter_counters[i].field);

			if (!json_is_integer(n))
				continue;
			fputs(adapter_counters[i].name, f);
			put_adapter_labels(f, live);
			fprintf(f, "} %lld\n", (long long)json_integer_value(n));
		}
	}
}

/* Prints sums over all processes; GET /api/v1/processes/{pid} has the counters of one. */
static void put_adapter_times(FILE *f, const json_t *lives)
{
	static const char name[] = "stag_adapter_latency_seconds";
	struct stag_histogram sum, one;
	char labels[32];

	put_head(f, name, "histogram", "Time of a work request, from post to completion; sampled.");
	for (size_t k = 0; k < sizeof(adapter_times) / sizeof(adapter_times[0]); k++) {
		sum = (struct stag_histogram){0};
		for (size_t j = 0; j < json_array_size(lives); j++) {
			live_read_histogram(
				json_object_get(
					json_object_get(json_array_get(lives, j), "latency"),
					adapter_times[k]),
				&one);
			sum.sum_ns += one.sum_ns;
			for (unsigned int i = 0; i < STAG_HISTOGRAM_BUCKETS; i++)
				sum.bucket[i] += one.bucket[i];
		}
		snprintf(labels, sizeof(labels), "{op=\"%s\"", adapter_times[k]);
		put_buckets(f, name, labels, &sum);
	}
}

/* ---- the answer ------------------------------------------------------------------------------------ */

static void put_all(FILE *f, const json_t *all, const json_t *lives)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		put_head(f, families[i].name, families[i].type, families[i].help);
		for_each(f, all, families[i].of, print_number, &families[i]);
	}
	put_head(f, "stag_pool_role", "gauge",
		 "Role of the node: 1 for its role, 0 for the others.");
	for_each(f, all, &pools, put_role, NULL);
	for (size_t i = 0; i < sizeof(histograms) / sizeof(histograms[0]); i++) {
		put_head(f, histograms[i].name, "histogram", histograms[i].help);
		for_each(f, all, histograms[i].of, put_histogram, &histograms[i]);
	}
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
