// SPDX-License-Identifier: BSD-2-Clause
/*
 * dashboard.c - a program of the build: writes a dashboard for Grafana, with a plot of each family of metrics that stagd exports.
 *
 *     dashboard OUTPUT
 *
 * Titles and descriptions are those of the metrics. Gauges are plotted as they are, counters as rates, histograms as the times that
 * half of the operations and 99 % of them take at most, a node's role by its name.
 */
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "families.h"

#define WIDTH	24 /* of Grafana's grid */
#define COLUMNS 3
#define HEIGHT	7

#define WHERE "instance=~\"$instance\""

struct board {
	json_t *panels;
	const char *row; /* title of the current row */
	int id, x, y;
};

static bool ends_with(const char *text, const char *end)
{
	size_t n = strlen(text), m = strlen(end);

	return n >= m && strcmp(text + n - m, end) == 0;
}

static const char *unit_of(const struct metric_family *m)
{
	if (ends_with(m->name, "_bytes_total"))
		return "Bps";
	if (ends_with(m->name, "_total"))
		return "ops";
	if (ends_with(m->name, "_bytes"))
		return "bytes";
	return ends_with(m->name, "_seconds") ? "s" : "short";
}

/* ---- queries ------------------------------------------------------------------------------- */

/* Adds a query, whose legend has a word and the labels of the series in {{}}. */
static void add_query(json_t *targets, const char *word, const char *series, const char *expr)
{
	char legend[160] = "", labels[64];
	size_t n = (size_t)snprintf(legend, sizeof(legend), "%s", word);

	snprintf(labels, sizeof(labels), "%s", series);
	for (char *save, *label = strtok_r(labels, ",", &save); label;
	     label = strtok_r(NULL, ",", &save))
		n += (size_t)snprintf(legend + n, sizeof(legend) - n, "%s{{%s}}", n ? " " : "",
				      label);
	json_array_append_new(targets, json_pack("{s:s, s:s, s:s, s:{s:s, s:s}}", "refId",
						 json_array_size(targets) ? "B" : "A",
						 "legendFormat", legend, "expr", expr, "datasource",
						 "type", "prometheus", "uid", "${datasource}"));
}

static void add_quantile(json_t *targets, const struct metric_family *m, const char *quantile,
			 const char *word)
{
	char expr[320];

	snprintf(expr, sizeof(expr),
		 "histogram_quantile(%s, sum by (le, %s) "
		 "(rate(%s_bucket{" WHERE "}[$__rate_interval])))",
		 quantile, m->of->series, m->name);
	add_query(targets, word, m->of->series, expr);
}

static json_t *queries_of(const struct metric_family *m)
{
	json_t *targets = json_array();
	char expr[320];

	if (strcmp(m->type, "histogram") == 0) {
		add_quantile(targets, m, "0.5", "half");
		add_quantile(targets, m, "0.99", "99 %");
		return targets;
	}
	snprintf(expr, sizeof(expr),
		 m == &metric_role		   ? "%s{" WHERE "} == 1"
		 : strcmp(m->type, "counter") == 0 ? "rate(%s{" WHERE "}[$__rate_interval])"
						   : "%s{" WHERE "}",
		 m->name);
	add_query(targets, "", m->of->series, expr);
	return targets;
}

/* ---- panels -------------------------------------------------------------------------------- */

static json_t *place(struct board *b, int w, int h)
{
	json_t *at;

	if (b->x + w > WIDTH) {
		b->x = 0;
		b->y += h;
	}
	at = json_pack("{s:i, s:i, s:i, s:i}", "x", b->x, "y", b->y, "w", w, "h", h);
	b->x += w;
	return at;
}

static void add_row(struct board *b, const char *title)
{
	if (b->row && strcmp(b->row, title) == 0)
		return;
	b->row = title;
	b->y += HEIGHT;
	b->x = 0;
	json_array_append_new(b->panels, json_pack("{s:i, s:s, s:s, s:b, s:[], s:o}", "id", ++b->id,
						   "type", "row", "title", title, "collapsed", 0,
						   "panels", "gridPos", place(b, WIDTH, 1)));
	b->y++;
	b->x = 0;
}

/* The title is the metric's help up to its first punctuation; the description has all of it. */
static void add_plot(struct board *b, const struct metric_family *m)
{
	char about[256];

	add_row(b, m->of->title);
	snprintf(about, sizeof(about), "%s (%s)", m->help, m->name);
	json_array_append_new(
		b->panels,
		json_pack("{s:i, s:s, s:s%, s:s, s:{s:s, s:s}, s:{s:{s:s, s:i}, s:[]}, s:o, s:o}",
			  "id", ++b->id, "type", "timeseries", "title", m->help,
			  strcspn(m->help, ".;:"), "description", about, "datasource", "type",
			  "prometheus", "uid", "${datasource}", "fieldConfig", "defaults", "unit",
			  unit_of(m), "min", 0, "overrides", "targets", queries_of(m), "gridPos",
			  place(b, WIDTH / COLUMNS, HEIGHT)));
}

/* Adds the plots of all families of one row: rows of the table are not always side by side. */
static void add_families(struct board *b, const char *title)
{
	const struct metric_family *const tables[] = {metric_times, metric_numbers, metric_adapter};

	if (strcmp(metric_role.of->title, title) == 0)
		add_plot(b, &metric_role);
	if (strcmp(metric_adapter_times.of->title, title) == 0)
		add_plot(b, &metric_adapter_times);
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct metric_family *m = tables[i]; m->name; m++)
			if (strcmp(m->of->title, title) == 0)
				add_plot(b, m);
}

/* Adds each row where a table names it first. */
static void add_all(struct board *b)
{
	const struct metric_family *const tables[] = {metric_times, metric_numbers, metric_adapter};
	const char *done[16];
	size_t n = 0;

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct metric_family *m = tables[i]; m->name; m++) {
			bool known = false;

			for (size_t k = 0; k < n; k++)
				known |= strcmp(done[k], m->of->title) == 0;
			if (known || n == sizeof(done) / sizeof(done[0]))
				continue;
			done[n++] = m->of->title;
			add_families(b, m->of->title);
		}
}

/* ---- the file ------------------------------------------------------------------------------ */

static json_t *variables(void)
{
	return json_pack("[{s:s, s:s, s:s, s:s}, {s:s, s:s, s:s, s:s, s:{s:s, s:s}, s:b, s:b, s:i, "
			 "s:{s:s, s:s}}]",
			 "name", "datasource", "type", "datasource", "query", "prometheus", "label",
			 "Prometheus", "name", "instance", "type", "query", "label", "Daemon",
			 "query", "label_values(stag_uptime_seconds, instance)", "datasource",
			 "type", "prometheus", "uid", "${datasource}", "multi", 1, "includeAll", 1,
			 "refresh", 2, "current", "text", "All", "value", "$__all");
}

int main(int argc, char **argv)
{
	struct board b = {.panels = json_array(), .y = -HEIGHT};
	json_t *board;
	int rc;

	if (argc != 2) {
		fprintf(stderr, "usage: dashboard OUTPUT\n");
		return 2;
	}
	add_all(&b);
	board = json_pack("{s:s, s:s, s:s, s:[s], s:i, s:s, s:{s:s, s:s}, s:{s:o}, s:o}", "uid",
			  "stag", "title", "stag", "description",
			  "Pools, stores, block targets and adapters, as stagd reports them at "
			  "/metrics",
			  "tags", "stag", "schemaVersion", 37, "refresh", "10s", "time", "from",
			  "now-1h", "to", "now", "templating", "list", variables(), "panels",
			  b.panels);
	rc = board ? json_dump_file(board, argv[1], JSON_INDENT(1)) : -1;
	if (rc != 0)
		fprintf(stderr, "dashboard: cannot write %s\n", argv[1]);
	json_decref(board);
	return rc == 0 ? 0 : 1;
}
