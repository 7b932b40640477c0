// SPDX-License-Identifier: BSD-2-Clause
/*
 * top_show.c - formats rows as lines of text, and as JSON.
 *
 * On a narrow terminal the least important columns are left out first, then the name is cut.
 */
#include "top.h"

#include <pwd.h>
#include <string.h>
#include <time.h>

#define WIDE_NAME 64 /* if lines have no limit */

enum column { TX, RX, REQUESTS, DONE, QUEUE, P50, P99, COLUMNS };

static const struct {
	const char *title;
	int width;
	int from; /* least width of the terminal */
} columns[COLUMNS] = {
	[TX] = {"TX/S", 9, 32},	      [RX] = {"RX/S", 9, 44},	    [REQUESTS] = {"REQ/S", 9, 84},
	[DONE] = {"COMPL/S", 9, 112}, [QUEUE] = {"QUEUE", 10, 122}, [P50] = {"P50", 8, 72},
	[P99] = {"P99", 8, 60},
};

static bool has_column(int width, enum column c)
{
	return width == 0 || width >= columns[c].from;
}

static int name_width(int width)
{
	int left = width;

	for (enum column c = 0; c < COLUMNS; c++)
		if (has_column(width, c))
			left -= columns[c].width;
	return width == 0 ? WIDE_NAME : left;
}

/* ---- words ---- */

const char *top_order_word(enum top_order order)
{
	static const char *const words[] = {"traffic", "requests", "latency", "pid"};

	return words[order];
}

static void bytes_word(double bytes, char *text, size_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	size_t unit = 0;

	while (bytes >= 999.5 && unit + 1 < sizeof(units) / sizeof(*units)) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, size, "%.*f%s", unit == 0 || bytes >= 99.95 ? 0 : 1, bytes, units[unit]);
}

static void rate_word(double rate, char *text, size_t size)
{
	if (rate >= 999999.5)
		snprintf(text, size, "%.2fM", rate / 1e6);
	else
		snprintf(text, size, "%.0f", rate);
}

static void time_word(double ns, char *text, size_t size)
{
	static const char *const units[] = {"ns", "us", "ms", "s"};
	size_t unit = 0;

	while (ns >= 999.5 && unit + 1 < sizeof(units) / sizeof(*units)) {
		ns /= 1000;
		unit++;
	}
	snprintf(text, size, "%.*f%s", unit == 0 || ns >= 99.95 ? 0 : 1, ns, units[unit]);
}

static void user_word(uid_t uid, char *text, size_t size)
{
	const struct passwd *p = getpwuid(uid);

	if (p)
		snprintf(text, size, "%s", p->pw_name);
	else
		snprintf(text, size, "%u", uid);
}

/* ---- a line ---- */

static void cell_word(const struct top_rows *rows, const struct top_row *r, enum column c,
		      char *text, size_t size)
{
	const struct top_rates *t = &r->rates;
	bool is_process = r->kind == TOP_PROCESS || r->kind == TOP_CONNECTION;

	snprintf(text, size, "-");
	if (r->silent)
		return;
	if (c == P50 || c == P99) {
		if (t->timed)
			time_word(c == P50 ? t->p50 : t->p99, text, size);
	} else if (c == QUEUE) {
		if (r->kind == TOP_CONNECTION)
			snprintf(text, size, "%u/%u", r->used, r->size);
	} else if (rows->has_rates && (c == TX || c == RX)) {
		bytes_word(c == TX ? t->tx : t->rx, text, size);
	} else if (rows->has_rates && (c == REQUESTS || is_process)) {
		rate_word(c == REQUESTS ? t->requests : t->done, text, size);
	}
}

static void name_word(const struct top_row *r, const struct top_options *o, char *text, size_t size)
{
	char user[33];

	switch (r->kind) {
	case TOP_PROCESS:
		user_word(r->uid, user, sizeof(user));
		if (r->silent)
			snprintf(text, size, "%d %s %s: does not respond", r->pid, user,
				 r->program);
		else
			snprintf(text, size, "%d %s %s, %u connection%s", r->pid, user, r->program,
				 r->connections, r->connections == 1 ? "" : "s");
		break;
	case TOP_CONNECTION:
		if (o->connections)
			snprintf(text, size, "%d %s %u %s %s%s to %s from %s", r->pid, r->program,
				 r->qpn, r->state, r->peer_kind, r->tls, r->peer, r->local);
		else
			snprintf(text, size, "  %u %s %s%s to %s from %s", r->qpn, r->state,
				 r->peer_kind, r->tls, r->peer, r->local);
		break;
	case TOP_DAEMON:
		snprintf(text, size, "%s", r->text);
		break;
	case TOP_SERVICE:
		snprintf(text, size, "  %s", r->text);
		break;
	}
}

static void append(char *text, size_t size, int width, const char *word)
{
	size_t at = strlen(text);

	snprintf(text + at, size - at, "%*s", width, word);
}

bool top_is_shown(const struct top_row *r, const struct top_options *o)
{
	return !(o->connections && r->kind == TOP_PROCESS) || r->silent;
}

/* Pads the name to its column; a space separates it from the next. */
static void put_name(int width, const char *name, char *text, size_t size)
{
	int room = name_width(width) - 1;

	if (room < 1)
		room = 1;
	snprintf(text, size, "%-*.*s ", room, room, name);
}

void top_line(const struct top_rows *rows, const struct top_row *row, const struct top_options *o,
	      int width, char *text, size_t size)
{
	char name[256], word[32];

	name_word(row, o, name, sizeof(name));
	put_name(width, name, text, size);
	for (enum column c = 0; c < COLUMNS && row->kind != TOP_DAEMON; c++)
		if (has_column(width, c)) {
			cell_word(rows, row, c, word, sizeof(word));
			append(text, size, columns[c].width, word);
		}
}

void top_titles(int width, char *text, size_t size)
{
	put_name(width, "PROCESS", text, size);
	for (enum column c = 0; c < COLUMNS; c++)
		if (has_column(width, c))
			append(text, size, columns[c].width, columns[c].title);
}

void top_head(const struct top_rows *rows, const struct top_options *o, int width, char *text,
	      size_t size)
{
	char now[16], tx[16] = "-", rx[16] = "-", line[256];
	time_t t = time(NULL);
	struct tm tm;

	strftime(now, sizeof(now), "%H:%M:%S", localtime_r(&t, &tm));
	if (rows->has_rates) {
		bytes_word(rows->sum.tx, tx, sizeof(tx));
		bytes_word(rows->sum.rx, rx, sizeof(rx));
	}
	snprintf(
		line, sizeof(line),
		"stag top %s  processes %zu  connections %zu  daemons %zu  tx %s/s  rx %s/s  by %s",
		now, rows->processes, rows->connections, rows->daemons, tx, rx,
		top_order_word(o->order));
	snprintf(text, size, "%.*s", width ? width : (int)sizeof(line), line);
}

/* ---- all rows ---- */

void top_print(const struct top_rows *rows, const struct top_options *o)
{
	char line[512];

	top_head(rows, o, 0, line, sizeof(line));
	puts(line);
	top_titles(0, line, sizeof(line));
	puts(line);
	for (size_t i = 0; i < rows->n; i++) {
		if (!top_is_shown(&rows->row[i], o))
			continue;
		top_line(rows, &rows->row[i], o, 0, line, sizeof(line));
		puts(line);
	}
	puts("");
}

/* ---- JSON ---- */

static json_t *rates_json(const struct top_rates *r, const char *const names[4])
{
	const double rates[] = {r->tx, r->rx, r->requests, r->done};
	json_t *o = json_object();

	for (int i = 0; i < 4; i++)
		if (names[i])
			json_object_set_new(o, names[i], json_real(rates[i]));
	json_object_set_new(o, "p50_us", r->timed ? json_real(r->p50 / 1000) : json_null());
	json_object_set_new(o, "p99_us", r->timed ? json_real(r->p99 / 1000) : json_null());
	return o;
}

static json_t *row_json(const struct top_row *r)
{
	static const char *const flow[] = {"tx_bytes_per_s", "rx_bytes_per_s", "posts_per_s",
					   "completions_per_s"};
	static const char *const service[] = {"read_bytes_per_s", "written_bytes_per_s",
					      "operations_per_s", NULL};
	static const char *const pool[] = {"record_bytes_per_s", "mirrored_bytes_per_s",
					   "operations_per_s", NULL};
	static const char *const said[] = {"qpn",  "state", "kind",    "local",	  "peer",   "sq",
					   "pid",  "uid",   "program", "name",	  "config", "node",
					   "role", "lag",   "primary", "answers", "tls"};
	bool is_pool = r->what && (!strcmp(r->what, "pool") || !strcmp(r->what, "watch"));
	json_t *o = json_object();

	if (r->what)
		json_object_set_new(o, "kind", json_string(r->what));
	for (size_t i = 0; i < sizeof(said) / sizeof(*said); i++) {
		json_t *value = json_object_get(r->said, said[i]);

		if (value && !json_object_get(o, said[i]))
			json_object_set(o, said[i], value);
	}
	if (r->kind != TOP_DAEMON && !r->silent)
		json_object_update_new(o, rates_json(&r->rates, !r->what  ? flow
								: is_pool ? pool
									  : service));
	return o;
}

/* Rows of a group follow its head: they are added to the last head. */
void top_print_json(const struct top_rows *rows, const struct top_options *o,
		    const struct top_look *l)
{
	json_t *processes = json_array(), *daemons = json_array(), *below = NULL, *all;

	for (size_t i = 0; i < rows->n; i++) {
		const struct top_row *r = &rows->row[i];
		json_t *one = row_json(r);

		if (r->kind == TOP_PROCESS || r->kind == TOP_DAEMON) {
			below = json_array();
			json_object_set_new(one, r->kind == TOP_PROCESS ? "qps" : "services",
					    below);
			json_array_append_new(r->kind == TOP_PROCESS ? processes : daemons, one);
		} else {
			json_array_append_new(below, one);
		}
	}
	all = json_pack("{s:I s:f s:o s:o}", "time", (json_int_t)time(NULL), "interval_s",
			o->interval, "processes", processes, "daemons", daemons);
	json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(9));
	puts("");
	json_decref(all);
}
