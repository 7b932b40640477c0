// SPDX-License-Identifier: BSD-2-Clause
/*
 * plot.c - plots of a result, as SVG within a page.
 *
 * Colours are the page's (classes), so that they follow its light or dark. Every plot has a title and a description for who does
 * not see it; the page has the same figures in a table beside it.
 */
#include "bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDE	    940.0
#define MOST_SERIES 8

static unsigned int plots; /* that were drawn: their names differ */

static void begin_svg(FILE *to, double width, double height, const char *title, const char *what)
{
	plots++;
	fprintf(to,
		"<svg viewBox=\"0 0 %.0f %.0f\" style=\"max-width:%.0fpx\" role=\"img\" "
		"aria-labelledby=\"t%u d%u\">\n<title id=\"t%u\">",
		width, height, width, plots, plots, plots);
	page_text(to, title);
	fprintf(to, "</title>\n<desc id=\"d%u\">", plots);
	page_text(to, what);
	fputs("</desc>\n", to);
}

static void text_at(FILE *to, double x, double y, const char *class, const char *text)
{
	fprintf(to, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
	page_text(to, text);
	fputs("</text>\n", to);
}

static void line_at(FILE *to, double x1, double y1, double x2, double y2, const char *class)
{
	fprintf(to, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"%s\"/>\n", x1,
		y1, x2, y2, class);
}

/* 1, 2 or 5 times a power of ten: the next one. */
static double next_step(double v)
{
	double power = pow(10, floor(log10(v) + 1e-9)), digit = v / power;

	return digit < 1.5 ? 2 * power : digit < 3.5 ? 5 * power : 10 * power;
}

/* The greatest step that is not more. */
static double step_below(double v)
{
	double at = pow(10, floor(log10(v)));

	while (next_step(at) <= v * 1.0000001)
		at = next_step(at);
	return at;
}

static void short_text(double v, char *text, size_t size)
{
	snprintf(text, size, "%g", v);
}

/* ---- ratios ------------------------------------------------------------------------------------ */

struct bars {
	FILE *to;
	double left, right, low, high; /* where the bars are, and what they span */
};

static double bar_x(const struct bars *b, double ratio)
{
	return b->left + (b->right - b->left) * log(ratio / b->low) / log(b->high / b->low);
}

static void draw_bar(const struct bars *b, const json_t *c, const json_t *y, bool first, double at)
{
	double ratio = result_number(y, "ratio"), low = result_number(y, "ratio_low"),
	       high = result_number(y, "ratio_high");
	double x = bar_x(b, ratio), one = bar_x(b, 1);
	char text[24], value[32];

	if (first)
		text_at(b->to, 4, at + 4, "label", result_string(c, "case"));
	text_at(b->to, b->left - 8, at + 4, "label end soft", result_string(y, "name"));
	fprintf(b->to,
		"<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"12\" rx=\"1.5\" "
		"class=\"%s\"/>\n",
		fmin(x, one), at - 6, fmax(fabs(x - one), 1.5),
		low > 1	   ? "better"
		: high < 1 ? "worse"
			   : "even");
	if (high > low) {
		line_at(b->to, bar_x(b, low), at, bar_x(b, high), at, "whisker");
		line_at(b->to, bar_x(b, low), at - 4, bar_x(b, low), at + 4, "whisker");
		line_at(b->to, bar_x(b, high), at - 4, bar_x(b, high), at + 4, "whisker");
	}
	snprintf(value, sizeof(value), "%s", report_number(ratio, text, sizeof(text)));
	text_at(b->to, WIDE - 4, at + 4, "label end", value);
}

static void ratio_range(const json_t *result, const char *noun, struct bars *b, unsigned int *rows)
{
	size_t i, k;
	json_t *c, *y;

	b->low = 0.7;
	b->high = 1.4;
	*rows = 0;
	json_array_foreach (json_object_get(result, "cases"), i, c) {
		if (strcmp(result_string(c, "noun"), noun) != 0)
			continue;
		json_array_foreach (json_object_get(c, "yardsticks"), k, y) {
			if (!isfinite(result_number(y, "ratio")))
				continue;
			++*rows;
			b->low = fmin(b->low, result_number(y, "ratio_low") / 1.1);
			b->high = fmax(b->high, result_number(y, "ratio_high") * 1.1);
		}
	}
}

static void draw_scale(const struct bars *b, double height)
{
	char text[24];

	for (double v = step_below(b->low); v < b->high; v = next_step(v)) {
		if (v < b->low)
			continue;
		line_at(b->to, bar_x(b, v), 16, bar_x(b, v), height - 22, v == 1 ? "axis" : "grid");
		if (b->high / b->low < 60 || fabs(log10(v) - round(log10(v))) < 1e-6) {
			short_text(v, text, sizeof(text));
			text_at(b->to, bar_x(b, v), height - 8, "tick middle", text);
		}
	}
	text_at(b->to, WIDE - 4, 11, "tick end", "stag is better →");
	text_at(b->to, b->left, 11, "tick", "← the yardstick is better");
}

void plot_ratios(FILE *to, const json_t *result, const char *noun)
{
	struct bars b = {.to = to, .left = 226, .right = WIDE - 64};
	unsigned int rows;
	double at = 30, height;
	char what[160];
	size_t i, k;
	json_t *c, *y;

	ratio_range(result, noun, &b, &rows);
	if (rows == 0)
		return;
	height = 30 + rows * 20 + 26;
	snprintf(what, sizeof(what),
		 "Bars on a logarithmic scale: to the right of 1 stag is better. Whiskers: the "
		 "least "
		 "and the greatest of the passes.");
	begin_svg(to, WIDE, height, "How many times as good as each yardstick", what);
	draw_scale(&b, height);
	json_array_foreach (json_object_get(result, "cases"), i, c) {
		bool first = true;

		if (strcmp(result_string(c, "noun"), noun) != 0)
			continue;
		json_array_foreach (json_object_get(c, "yardsticks"), k, y) {
			if (!isfinite(result_number(y, "ratio")))
				continue;
			draw_bar(&b, c, y, first, at);
			first = false;
			at += 20;
		}
	}
	fputs("</svg>\n", to);
}

/* ---- lines --------------------------------------------------------------------------------------- */

struct point {
	double x, y, low, high;
};

struct series {
	char name[64];
	struct point points[16];
	unsigned int n;
};

struct chart {
	FILE *to;
	double width, height, left, right, top, bottom;
	double x_low, x_high, y_low, y_high;
	bool y_log;
	struct series series[MOST_SERIES];
	unsigned int n;
};

static double chart_x(const struct chart *c, double x)
{
	return c->left + (c->right - c->left) * (x - c->x_low) / (c->x_high - c->x_low);
}

static double chart_y(const struct chart *c, double y)
{
	double share = c->y_log ? log(y / c->y_low) / log(c->y_high / c->y_low)
				: (y - c->y_low) / (c->y_high - c->y_low);

	return c->bottom - (c->bottom - c->top) * share;
}

/* From all points; y from 0, or from a step below the least where it is logarithmic. */
static void find_range(struct chart *c)
{
	double low = INFINITY, high = 0;

	for (unsigned int i = 0; i < c->n; i++)
		for (unsigned int k = 0; k < c->series[i].n; k++) {
			low = fmin(low, c->series[i].points[k].low);
			high = fmax(high, c->series[i].points[k].high);
		}
	c->y_low = c->y_log ? step_below(low) : 0;
	c->y_high = c->y_log ? next_step(step_below(high)) : high * 1.05;
}

static void draw_y_axis(const struct chart *c)
{
	double step = c->y_log ? 0 : step_below(c->y_high / 4);
	double v = c->y_low;
	char text[24];

	while (v <= c->y_high * 1.0000001) {
		line_at(c->to, c->left, chart_y(c, v), c->right, chart_y(c, v),
			v == 0 ? "axis" : "grid");
		short_text(v, text, sizeof(text));
		text_at(c->to, c->left - 6, chart_y(c, v) + 4, "tick end", text);
		v = c->y_log ? next_step(v) : v + step;
	}
}

static void draw_series(const struct chart *c, unsigned int i)
{
	const struct series *s = &c->series[i];
	char class[16];

	snprintf(class, sizeof(class), "s%u", i);
	fprintf(c->to, "<polyline class=\"line %s\" points=\"", class);
	for (unsigned int k = 0; k < s->n; k++)
		fprintf(c->to, "%s%.1f,%.1f", k ? " " : "", chart_x(c, s->points[k].x),
			chart_y(c, s->points[k].y));
	fputs("\"/>\n", c->to);
	for (unsigned int k = 0; k < s->n; k++) {
		const struct point *p = &s->points[k];

		if (p->high > p->low)
			fprintf(c->to,
				"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" "
				"class=\"error %s\"/>\n",
				chart_x(c, p->x), chart_y(c, p->low), chart_x(c, p->x),
				chart_y(c, p->high), class);
		fprintf(c->to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" class=\"dot %s\"/>\n",
			chart_x(c, p->x), chart_y(c, p->y), class);
	}
}

/* Above the chart, from left to right. */
static void draw_legend(const struct chart *c)
{
	double x = c->left;

	for (unsigned int i = 0; i < c->n; i++) {
		fprintf(c->to, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" class=\"dot s%u\"/>\n",
			x + 4, c->top - 16, i);
		text_at(c->to, x + 12, c->top - 12, "label", c->series[i].name);
		x += 26 + 6.6 * (double)strlen(c->series[i].name);
	}
}

static void draw_all(const struct chart *c)
{
	draw_legend(c);
	for (unsigned int i = c->n; i-- > 0;) /* ours on top */
		draw_series(c, i);
	fputs("</svg>\n", c->to);
}

static struct chart new_chart(FILE *to, double width, double height)
{
	return (struct chart){.to = to,
			      .width = width,
			      .height = height,
			      .left = 48,
			      .right = width - 26,
			      .top = 34,
			      .bottom = height - 38};
}

static struct series *series_named(struct chart *c, const char *name)
{
	for (unsigned int i = 0; i < c->n; i++)
		if (strcmp(c->series[i].name, name) == 0)
			return &c->series[i];
	if (c->n == MOST_SERIES)
		return NULL;
	snprintf(c->series[c->n].name, sizeof(c->series[c->n].name), "%s", name);
	return &c->series[c->n++];
}

static void add_point(struct chart *c, const char *name, struct point p)
{
	struct series *s = isfinite(p.y) && p.y > 0 ? series_named(c, name) : NULL;

	if (s && s->n < 16)
		s->points[s->n++] = p;
}

/* ---- bandwidth over size ------------------------------------------------------------------------------ */

static void add_bandwidth(struct chart *c, const char *name, double size, const json_t *o)
{
	add_point(c, name,
		  (struct point){log2(size), result_number(o, "value"), result_number(o, "low"),
				 result_number(o, "high")});
}

/* A yardstick of both directions is drawn once, with the writes. */
static void collect_bandwidth(struct chart *chart, const json_t *result)
{
	static const char *const kinds[] = {"write_bw_", "read_bw_"};
	static const char *const names[] = {"stag RDMA Write", "stag RDMA Read"};
	size_t i, k;
	json_t *c, *y;

	for (unsigned int d = 0; d < 2; d++)
		json_array_foreach (json_object_get(result, "cases"), i, c) {
			double size = result_number(c, "size");

			if (strncmp(result_string(c, "case"), kinds[d], strlen(kinds[d])) != 0)
				continue;
			add_bandwidth(chart, names[d], size, c);
		}
	json_array_foreach (json_object_get(result, "cases"), i, c)
		if (strncmp(result_string(c, "case"), kinds[0], strlen(kinds[0])) == 0)
			json_array_foreach (json_object_get(c, "yardsticks"), k, y)
				add_bandwidth(chart,
					      strcmp(result_string(y, "name"), "tcp")
						      ? "libfabric write"
						      : "raw TCP",
					      result_number(c, "size"), y);
}

static void draw_sizes(const struct chart *c)
{
	char text[24];

	for (double x = c->x_low; x <= c->x_high; x += 2) {
		double bytes = exp2(x);

		if (bytes >= 1 << 20)
			snprintf(text, sizeof(text), "%.0f MiB", bytes / (1 << 20));
		else
			snprintf(text, sizeof(text), "%.0f KiB", bytes / 1024);
		text_at(c->to, chart_x(c, x), c->bottom + 16, "tick middle", text);
	}
	text_at(c->to, (c->left + c->right) / 2, c->height - 4, "tick middle",
		"bytes of an operation");
	text_at(c->to, 4, c->top - 12, "tick", "GB/s");
}

void plot_bandwidth(FILE *to, const json_t *result)
{
	struct chart *c = calloc(1, sizeof(*c));

	if (!c)
		return;
	*c = new_chart(to, WIDE, 320);
	collect_bandwidth(c, result);
	if (c->n > 0 && c->series[0].n > 1) {
		c->x_low = 12;
		c->x_high = 20;
		find_range(c);
		begin_svg(to, c->width, c->height, "Bandwidth over the size of an operation",
			  "Gigabytes a second of RDMA Writes and Reads by the software adapter, "
			  "and of raw TCP "
			  "in the same loop. Bars: the least and the greatest of the passes.");
		draw_y_axis(c);
		draw_sizes(c);
		draw_all(c);
	}
	free(c);
}

/* ---- latency by percentile ----------------------------------------------------------------------------- */

static const double percents[] = {10, 25, 50, 75, 90, 95, 99, 99.9, 99.99};

/* Each nine is as far from the one before. */
static double nines(double percent)
{
	return -log10(1 - percent / 100);
}

static void add_latency(struct chart *c, const char *name, const json_t *latency)
{
	for (size_t i = 0; i < sizeof(percents) / sizeof(*percents); i++) {
		char key[16];
		double v;

		snprintf(key, sizeof(key), "p%g", percents[i]);
		v = result_number(latency, key);
		add_point(c, name, (struct point){nines(percents[i]), v, v, v});
	}
}

static void draw_percents(const struct chart *c)
{
	static const double shown[] = {50, 90, 99, 99.9, 99.99};

	for (size_t i = 0; i < sizeof(shown) / sizeof(*shown); i++) {
		double x = chart_x(c, nines(shown[i]));
		char text[24];

		snprintf(text, sizeof(text), "%g %%", shown[i]);
		line_at(c->to, x, c->top, x, c->bottom, "grid");
		text_at(c->to, x, c->bottom + 16, "tick middle", text);
	}
	text_at(c->to, (c->left + c->right) / 2, c->height - 4, "tick middle",
		"share of the operations that took no longer");
	text_at(c->to, 4, c->top - 12, "tick", "us");
}

bool plot_latency(FILE *to, const json_t *one)
{
	struct chart *c = calloc(1, sizeof(*c));
	char title[160];
	size_t i;
	json_t *y;
	bool any = false;

	if (!c)
		return false;
	*c = new_chart(to, 460, 290);
	c->y_log = true;
	add_latency(c, "stag", json_object_get(one, "latency_us"));
	any = c->n > 0 && c->series[0].n > 2;
	json_array_foreach (json_object_get(one, "yardsticks"), i, y)
		add_latency(c, result_string(y, "name"), json_object_get(y, "latency_us"));
	if (any) {
		c->x_low = 0;
		c->x_high = 4.15;
		find_range(c);
		snprintf(title, sizeof(title), "Latency of %s/%s by percentile",
			 result_string(one, "noun"), result_string(one, "case"));
		begin_svg(to, c->width, c->height, title,
			  "Microseconds on a logarithmic scale, over the share of operations that "
			  "took no "
			  "longer; each nine is as far from the one before.");
		draw_y_axis(c);
		draw_percents(c);
		draw_all(c);
	}
	free(c);
	return any;
}
