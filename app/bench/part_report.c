// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_report.c - figures as a table, as TSV or as JSON.
 *
 * A line of the table is printed when its case has ended. TSV has a line for each series; JSON has
 * all figures.
 */
#include "part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "stag.h"

static struct bench_head head;

/* ---- figures of a series ---- */

static int compare_ns(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* The samples are sorted. */
static double percentile(const struct bench_series *s, double p)
{
	return (double)s->ns[(size_t)(p / 100 * (double)(s->rounds - 1) + 0.5)];
}

static double per_round(const struct bench_series *s, uint64_t sum)
{
	return (double)sum / (double)s->rounds;
}

static double value_of(enum bench_unit unit, const struct bench_series *s)
{
	switch (unit) {
	case UNIT_ELEMENTS:
		return per_round(s, s->elements) / percentile(s, 50) * 1e3;
	case UNIT_BATCH:
		return percentile(s, 99) / 1e6;
	case UNIT_BANDWIDTH:
		return per_round(s, s->bytes) / percentile(s, 50);
	case UNIT_PLAN:
	case UNIT_OPERATION:
		return percentile(s, 50) / per_round(s, s->elements);
	case UNIT_TIME:
		return percentile(s, 50) / 1e6;
	}
	return 0;
}

static const char *unit_word(enum bench_unit unit)
{
	static const char *const words[] = {"M/s", "ms", "GB/s", "ns", "ns", "ms"};

	return words[unit];
}

/* Is it measured per element, not by bytes? */
static bool per_element(enum bench_unit unit)
{
	return unit != UNIT_BATCH && unit != UNIT_BANDWIDTH;
}

static const char *cpu_word(enum bench_unit unit)
{
	return per_element(unit) ? "ns/element" : "s/GiB";
}

/* Returns how many times as fast as the yardstick, if the time of one operation is measured. */
static double ratio_of(const struct bench_result *r, const struct bench_series *yardstick)
{
	double value = value_of(r->unit, &r->series[0]), yard = value_of(r->unit, yardstick);

	return r->unit == UNIT_OPERATION ? yard / value : value / yard;
}

static double cpu_of(enum bench_unit unit, const struct bench_series *s, uint64_t cpu)
{
	return per_element(unit) ? (double)cpu / (double)s->elements
				 : (double)cpu / 1e9 / ((double)s->bytes / (1 << 30));
}

/* ---- table ---- */

static bool progress_shown;

void report_progress(const char *name, size_t done, size_t total)
{
	static int last = -1;
	int percent = total && done < total ? (int)(100 * done / total) : 100;

	if (!isatty(STDERR_FILENO) || (progress_shown && percent == last))
		return;
	fprintf(stderr, "\r%s: %d %%\033[K", name, percent);
	last = percent;
	progress_shown = true;
}

static void erase_progress(void)
{
	if (progress_shown)
		fputs("\r\033[K", stderr);
	progress_shown = false;
}

/* Prints three digits for values between 0.1 and 999. */
static const char *short_number(double v, char *text, size_t size)
{
	snprintf(text, size, "%.*f", v >= 100 ? 0 : v >= 10 ? 1 : 2, v);
	return text;
}

static void print_series(const struct bench_result *r, unsigned int i)
{
	const struct bench_series *yard = &r->series[i];
	char a[16], c[16], ratio[16];

	printf("%-20s %-28s %8s %-4s  %-23s %8s %-4s  %7s\n", i == 1 ? r->name : "",
	       i == 1 ? r->what : "", short_number(value_of(r->unit, &r->series[0]), a, sizeof(a)),
	       unit_word(r->unit), yard->words, short_number(value_of(r->unit, yard), c, sizeof(c)),
	       unit_word(r->unit), short_number(ratio_of(r, yard), ratio, sizeof(ratio)));
}

/* Prints a series that has no yardstick. */
static void print_alone(const struct bench_result *r)
{
	char a[16];

	printf("%-20s %-28s %8s %-4s\n", r->name, r->what,
	       short_number(value_of(r->unit, &r->series[0]), a, sizeof(a)), unit_word(r->unit));
}

static void print_table_head(void)
{
	printf("stag %s, %s\n\n", STAG_VERSION, head.title);
	printf("%-20s %-28s %13s  %-23s %13s  %7s\n", "case", "", head.subject, "yardstick", "",
	       "ratio");
}

/* ---- TSV and JSON ---- */

static void print_tsv_head(void)
{
	puts("case\tseries\tvalue\tunit\tp50_us\tp90_us\tp99_us\tmax_us\tclient_cpu\ttarget_cpu\t"
	     "cpu_unit\tshare\trounds\telements\tbytes\tdescriptors\tmallocs");
}

static void print_tsv(const struct bench_result *r, const struct bench_series *s)
{
	printf("%s\t%s\t%.4f\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.4f\t%.4f\t%s\t%.2f\t%zu\t%.0f\t%.0f\t",
	       r->name, s->name, value_of(r->unit, s), unit_word(r->unit), percentile(s, 50) / 1e3,
	       percentile(s, 90) / 1e3, percentile(s, 99) / 1e3, percentile(s, 100) / 1e3,
	       cpu_of(r->unit, s, s->cpu), cpu_of(r->unit, s, s->target_cpu), cpu_word(r->unit),
	       (double)s->cpu / (double)s->wall, s->rounds, per_round(s, s->elements),
	       per_round(s, s->bytes));
	if (s->descriptors)
		printf("%llu\t", (unsigned long long)s->descriptors);
	else
		fputs("-\t", stdout);
	if (s->mallocs >= 0)
		printf("%lld\n", (long long)s->mallocs);
	else
		puts("-");
}

static json_t *json_of(const struct bench_result *r, const struct bench_series *s)
{
	json_t *o = json_pack("{s:s s:f s:s s:f s:f s:f s:f s:f s:f s:s s:I s:f s:f}", "series",
			      s->name, "value", value_of(r->unit, s), "unit", unit_word(r->unit),
			      "p50_us", percentile(s, 50) / 1e3, "p90_us", percentile(s, 90) / 1e3,
			      "p99_us", percentile(s, 99) / 1e3, "max_us", percentile(s, 100) / 1e3,
			      "client_cpu", cpu_of(r->unit, s, s->cpu), "target_cpu",
			      cpu_of(r->unit, s, s->target_cpu), "cpu_unit", cpu_word(r->unit),
			      "rounds", (json_int_t)s->rounds, "elements",
			      per_round(s, s->elements), "bytes", per_round(s, s->bytes));

	if (s->descriptors)
		json_object_set_new(o, "descriptors", json_integer((json_int_t)s->descriptors));
	if (s->mallocs >= 0)
		json_object_set_new(o, "mallocs", json_integer(s->mallocs));
	if (s != r->series)
		json_object_set_new(o, "ratio", json_real(ratio_of(r, s)));
	return o;
}

static void add_json(const struct bench_result *r)
{
	json_t *series = json_array();

	for (unsigned int i = 0; i < r->num_series; i++)
		json_array_append_new(series, json_of(r, &r->series[i]));
	json_array_append_new(
		json_object_get(head.json, "cases"),
		json_pack("{s:s s:s s:o}", "case", r->name, "what", r->what, "series", series));
}

/* ---- all formats ---- */

void report_begin(const struct bench_head *h)
{
	head = *h;
	if (head.format == FORMAT_TABLE)
		print_table_head();
	else if (head.format == FORMAT_TSV)
		print_tsv_head();
	json_object_set_new(head.json, "version", json_string(STAG_VERSION));
	json_object_set_new(head.json, "cases", json_array());
	fflush(stdout);
}

struct bench_series *report_series(struct bench_result *r, const char *name, const char *words,
				   size_t room)
{
	struct bench_series *s = &r->series[r->num_series++];

	*s = (struct bench_series){.name = name, .words = words, .room = room, .mallocs = -1};
	s->ns = bench_memory(room * sizeof(*s->ns));
	return s;
}

void report_result(struct bench_result *r)
{
	erase_progress();
	for (unsigned int i = 0; i < r->num_series; i++)
		qsort(r->series[i].ns, r->series[i].rounds, sizeof(uint64_t), compare_ns);
	if (head.format == FORMAT_JSON)
		add_json(r);
	for (unsigned int i = 0; head.format == FORMAT_TSV && i < r->num_series; i++)
		print_tsv(r, &r->series[i]);
	for (unsigned int i = 1; head.format == FORMAT_TABLE && i < r->num_series; i++)
		print_series(r, i);
	if (head.format == FORMAT_TABLE && r->num_series == 1)
		print_alone(r);
	fflush(stdout);
	for (unsigned int i = 0; i < r->num_series; i++)
		munmap(r->series[i].ns, r->series[i].room * sizeof(*r->series[i].ns));
}

void report_end(void)
{
	if (head.format == FORMAT_JSON) {
		json_dumpf(head.json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
		puts("");
	}
	json_decref(head.json);
	head.json = NULL;
}
