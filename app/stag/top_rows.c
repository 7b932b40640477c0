// SPDX-License-Identifier: BSD-2-Clause
/*
 * top_rows.c - makes rows of two looks, with the rates between them.
 *
 * The answer of a process is untrusted: any field may be missing or of another type, and control characters in its
 * strings do not get to the terminal.
 */
#include "top.h"

#include <stdlib.h>
#include <string.h>

#include "live.h"
#include "tls_words.h"

/* ---- answers ---- */

static void copy_word(char *to, size_t size, const json_t *o, const char *name)
{
	const char *word = json_string_value(json_object_get(o, name));

	snprintf(to, size, "%s", word ? word : "-");
	for (char *p = to; *p; p++)
		if ((unsigned char)*p < ' ' || (unsigned char)*p >= 0x7f)
			*p = '?';
}

static double number(const json_t *o, const char *name)
{
	return json_number_value(json_object_get(o, name));
}

/* Returns by how much a counter has risen; 0 also if it has fallen: then another object has the same number now. */
static double increase_of(const json_t *now, const json_t *before, const char *name)
{
	double by = number(now, name) - number(before, name);

	return by > 0 ? by : 0;
}

static const json_t *find_object(const json_t *list, const char *key, const json_t *value)
{
	const json_t *o;
	size_t i;

	json_array_foreach (list, i, o)
		if (value && json_equal(json_object_get(o, key), value))
			return o;
	return NULL;
}

static const json_t *find_same(const json_t *list, const json_t *o, const char *key)
{
	return find_object(list, key, json_object_get(o, key));
}

/* ---- times ---- */

static void add_times(struct stag_histogram *sum, const json_t *now, const json_t *before)
{
	struct stag_histogram h, old;

	live_read_histogram(now, &h);
	live_read_histogram(before, &old);
	live_histogram_since(&h, &old);
	stag_histogram_add(sum, &h);
}

static void set_quantiles(struct top_rates *r, const struct stag_histogram *h)
{
	r->timed = h->count > 0;
	r->p50 = stag_histogram_quantile(h, 0.5);
	r->p99 = stag_histogram_quantile(h, 0.99);
}

/* Sums up the histograms of an object, under any names. */
static void set_all_times(struct top_rates *r, const json_t *now, const json_t *before)
{
	struct stag_histogram sum = {.count = 0};
	const json_t *h;
	const char *name;

	json_object_foreach ((json_t *)now, name, h)
		add_times(&sum, h, json_object_get(before, name));
	set_quantiles(r, &sum);
}

/* ---- rows ---- */

static struct top_row *add_row(struct top_rows *rows, enum top_kind kind, const json_t *said)
{
	struct top_row *r;

	if (rows->n == rows->room) {
		size_t room = rows->room ? rows->room * 2 : 64;

		r = realloc(rows->row, room * sizeof(*r));
		if (!r)
			return NULL;
		rows->row = r;
		rows->room = room;
	}
	r = &rows->row[rows->n];
	*r = (struct top_row){.kind = kind, .group = rows->n, .came = rows->n, .said = said};
	rows->n++;
	return r;
}

static void describe_tls(char *text, size_t size, const json_t *tls)
{
	char version[8];

	*text = '\0';
	if (!json_is_object(tls))
		return;
	copy_word(version, sizeof(version), tls, "version");
	snprintf(text, size, " %s%s", version,
		 tls_kernel_text(json_string_value(json_object_get(tls, "kernel"))));
}

static bool add_connection(struct top_rows *rows, const json_t *q, const json_t *before,
			   double seconds, size_t group)
{
	struct stag_histogram times = {.count = 0};
	struct top_row *r = add_row(rows, TOP_CONNECTION, q);
	const json_t *sq = json_object_get(q, "sq");

	if (!r)
		return false;
	r->group = group;
	r->pid = rows->row[group].pid;
	r->uid = rows->row[group].uid;
	snprintf(r->program, sizeof(r->program), "%s", rows->row[group].program);
	r->qpn = (uint32_t)json_integer_value(json_object_get(q, "qpn"));
	copy_word(r->state, sizeof(r->state), q, "state");
	copy_word(r->peer_kind, sizeof(r->peer_kind), q, "kind");
	copy_word(r->local, sizeof(r->local), q, "local");
	copy_word(r->peer, sizeof(r->peer), q, "peer");
	describe_tls(r->tls, sizeof(r->tls), json_object_get(q, "tls"));
	r->used = (unsigned int)json_integer_value(json_array_get(sq, 0));
	r->size = (unsigned int)json_integer_value(json_array_get(sq, 1));
	r->rates.tx = increase_of(q, before, "tx_bytes") / seconds;
	r->rates.rx = increase_of(q, before, "rx_bytes") / seconds;
	r->rates.requests = increase_of(q, before, "posts") / seconds;
	r->rates.done = increase_of(q, before, "completions") / seconds;
	add_times(&times, json_object_get(q, "latency"), json_object_get(before, "latency"));
	set_quantiles(&r->rates, &times);
	rows->connections++;
	return true;
}

static bool is_silent(const json_t *said)
{
	return json_is_false(json_object_get(said, "answers"));
}

/* Returns NULL if the earlier look has no answer: its counters are unknown then, not 0. */
static const json_t *known_before(const json_t *now, const json_t *before)
{
	return is_silent(before) ? now : before;
}

/* Returns the seconds between two answers, by the process's own clock if it has sent the time. */
static double seconds_between(const json_t *now, const json_t *before, double usual)
{
	double s = increase_of(now, before, "now_ns") / 1e9;

	return before && s > 0.001 ? s : usual;
}

static void add_to_sum(struct top_rates *sum, const struct top_rates *r)
{
	sum->tx += r->tx;
	sum->rx += r->rx;
	sum->requests += r->requests;
	sum->done += r->done;
}

static bool add_process(struct top_rows *rows, const json_t *p, const json_t *before, double usual)
{
	struct top_row *r = add_row(rows, TOP_PROCESS, p);
	const json_t *qps = json_object_get(p, "qps"), *c = json_object_get(p, "counters");
	const json_t *old = json_object_get(before, "counters"), *q;
	double seconds = seconds_between(p, before, usual);
	size_t group = rows->n - 1, i;

	if (!r)
		return false;
	r->pid = (int)json_integer_value(json_object_get(p, "pid"));
	r->uid = (uid_t)json_integer_value(json_object_get(p, "uid"));
	r->silent = is_silent(p);
	r->connections = (unsigned int)json_array_size(qps);
	copy_word(r->program, sizeof(r->program), p, "program");
	r->rates.tx = increase_of(c, old, "tx_bytes") / seconds;
	r->rates.rx = increase_of(c, old, "rx_bytes") / seconds;
	r->rates.requests = increase_of(c, old, "posts") / seconds;
	r->rates.done = increase_of(c, old, "completions") / seconds;
	set_all_times(&r->rates, json_object_get(p, "latency"), json_object_get(before, "latency"));
	add_to_sum(&rows->sum, &r->rates);
	rows->processes++;
	json_array_foreach (qps, i, q)
		if (!add_connection(rows, q, find_same(json_object_get(before, "qps"), q, "qpn"),
				    seconds, group))
			return false;
	return true;
}

/* ---- daemons ---- */

static void describe_pool(char *text, size_t size, const json_t *p, const char *what)
{
	char name[48], node[32], role[32], primary[32];
	const json_t *lag = json_object_get(p, "lag");
	char behind[48] = "";

	copy_word(name, sizeof(name), p, "name");
	copy_word(node, sizeof(node), p, "node");
	copy_word(role, sizeof(role), p, "role");
	copy_word(primary, sizeof(primary), p, "primary");
	if (json_is_integer(lag))
		snprintf(behind, sizeof(behind), ", lag %lld", (long long)json_integer_value(lag));
	if (strcmp(what, "pool") == 0)
		snprintf(text, size, "pool %s/%s %s%s", name, node, role, behind);
	else if (json_is_false(json_object_get(p, "answers")))
		snprintf(text, size, "watch %s: does not respond", name);
	else
		snprintf(text, size, "watch %s: primary %s%s", name, primary, behind);
}

static void describe_service(char *text, size_t size, const json_t *s, const char *what)
{
	char name[80], tls[12];

	copy_word(name, sizeof(name), s, "name");
	copy_word(tls, sizeof(tls), s, "tls");
	if (strcmp(what, "store") == 0)
		snprintf(text, size, "store %s, %zu partitions", name,
			 json_array_size(json_object_get(s, "partitions")));
	else if (strcmp(what, "target") == 0)
		snprintf(text, size, "target %s, %zu sessions", name,
			 json_array_size(json_object_get(s, "sessions")));
	else
		describe_pool(text, size, s, what);
	if (strcmp(tls, "-") != 0 && strcmp(tls, "off") != 0)
		snprintf(text + strlen(text), size - strlen(text), ", TLS %s", tls);
}

/* Sets the rates of a service. Stores and targets have "counters"; a pool has its own. */
static void set_service_rates(struct top_row *r, const json_t *s, const json_t *before,
			      double usual)
{
	const json_t *c = json_object_get(s, "counters"),
		     *old = json_object_get(before, "counters");
	double seconds = seconds_between(s, before, usual);

	if (!c) {
		r->rates.requests =
			(increase_of(s, before, "changes") + increase_of(s, before, "reads")) /
			seconds;
		r->rates.tx = increase_of(s, before, "record_bytes") / seconds;
		r->rates.rx = increase_of(s, before, "mirrored_bytes") / seconds;
	} else {
		r->rates.tx = increase_of(c, old, "read_bytes") / seconds;
		r->rates.rx = increase_of(c, old, "written_bytes") / seconds;
		r->rates.requests =
			(increase_of(c, old, "reads") + increase_of(c, old, "writes") +
			 increase_of(c, old, "flushes") + increase_of(c, old, "atomics")) /
			seconds;
	}
	set_all_times(&r->rates, json_object_get(s, "latency"), json_object_get(before, "latency"));
}

static bool add_services(struct top_rows *rows, const json_t *d, const json_t *before, double usual,
			 size_t group)
{
	static const struct {
		const char *list, *what;
	} kinds[] = {{"pools", "pool"},
		     {"watches", "watch"},
		     {"stores", "store"},
		     {"targets", "target"}};

	for (size_t k = 0; k < sizeof(kinds) / sizeof(*kinds); k++) {
		const json_t *list = json_object_get(d, kinds[k].list), *s;
		size_t i;

		json_array_foreach (list, i, s) {
			struct top_row *r = add_row(rows, TOP_SERVICE, s);

			if (!r)
				return false;
			r->group = group;
			r->pid = rows->row[group].pid;
			r->what = kinds[k].what;
			describe_service(r->text, sizeof(r->text), s, kinds[k].what);
			set_service_rates(
				r, s, find_same(json_object_get(before, kinds[k].list), s, "name"),
				usual);
		}
	}
	return true;
}

static bool add_daemon(struct top_rows *rows, const json_t *d, const json_t *before, double seconds)
{
	struct top_row *r = add_row(rows, TOP_DAEMON, d);
	char name[32], config[80];

	if (!r)
		return false;
	r->pid = (int)json_integer_value(json_object_get(d, "pid"));
	r->silent = is_silent(d);
	copy_word(name, sizeof(name), d, "name");
	copy_word(config, sizeof(config), d, "config");
	if (r->silent)
		snprintf(r->text, sizeof(r->text), "%d stagd: does not respond", r->pid);
	else
		snprintf(r->text, sizeof(r->text), "%d stagd %s", r->pid,
			 strcmp(name, "-") == 0 ? config : name);
	rows->daemons++;
	return add_services(rows, d, before, seconds, rows->n - 1);
}

/* ---- order ---- */

struct sorting {
	const struct top_row *row;
	enum top_order order;
	bool connections;
};

static double weight(const struct top_row *r, enum top_order order)
{
	if (r->silent && order != BY_PID)
		return -1;
	switch (order) {
	case BY_TRAFFIC:
		return r->rates.tx + r->rates.rx;
	case BY_REQUESTS:
		return r->rates.requests;
	case BY_LATENCY:
		return r->rates.timed ? r->rates.p99 : -1;
	case BY_PID:
	case TOP_ORDERS:
		break;
	}
	return -(double)r->pid;
}

static int compare_rows(const struct top_row *a, const struct top_row *b, enum top_order order)
{
	double x = weight(a, order), y = weight(b, order);

	return (x < y) - (x > y);
}

static int compare_index(size_t a, size_t b)
{
	return (a > b) - (a < b);
}

/* Sorts daemons after processes. A group stays together, its head first, unless only connections are listed. */
static int compare(const void *left, const void *right, void *arg)
{
	const struct top_row *a = left, *b = right;
	const struct sorting *s = arg;
	int c;

	if ((a->kind >= TOP_DAEMON) != (b->kind >= TOP_DAEMON))
		return a->kind >= TOP_DAEMON ? 1 : -1;
	if (a->kind >= TOP_DAEMON)
		return compare_index(a->came, b->came);
	if (a->group != b->group && !s->connections) {
		c = compare_rows(&s->row[a->group], &s->row[b->group], s->order);
		return c ? c : compare_index(a->group, b->group);
	}
	if (a->kind != b->kind)
		return a->kind == TOP_PROCESS ? -1 : 1;
	c = compare_rows(a, b, s->order);
	return c ? c : compare_index(a->came, b->came);
}

static bool sort_rows(struct top_rows *rows, const struct top_options *o)
{
	struct sorting s = {.order = o->order, .connections = o->connections};
	struct top_row *as_it_came;

	if (!rows->n)
		return true;
	as_it_came = malloc(rows->n * sizeof(*as_it_came));
	if (!as_it_came)
		return false;
	memcpy(as_it_came, rows->row, rows->n * sizeof(*as_it_came));
	s.row = as_it_came;
	qsort_r(rows->row, rows->n, sizeof(*rows->row), compare, &s);
	free(as_it_came);
	return true;
}

bool top_rows_make(struct top_rows *rows, const struct top_look *now, const struct top_look *before,
		   const struct top_options *o)
{
	double seconds = (double)(now->ns - before->ns) / 1e9;
	const json_t *one;
	size_t i;

	*rows = (struct top_rows){.has_rates = before->processes != NULL};
	json_array_foreach (now->processes, i, one)
		if (!add_process(rows, one,
				 known_before(one, find_same(before->processes, one, "pid")),
				 seconds))
			return false;
	json_array_foreach (now->daemons, i, one)
		if (!add_daemon(rows, one,
				known_before(one, find_same(before->daemons, one, "pid")), seconds))
			return false;
	return sort_rows(rows, o);
}

void top_rows_drop(struct top_rows *rows)
{
	free(rows->row);
	*rows = (struct top_rows){.n = 0};
}
