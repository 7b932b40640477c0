// SPDX-License-Identifier: BSD-2-Clause
/*
 * report.c - prints a result as a table or as TSV.
 */
#include "bench.h"

#include <math.h>
#include <string.h>

#include "colour.h"

const char *report_number(double v, char *text, size_t size)
{
	if (!isfinite(v))
		snprintf(text, size, "-");
	else
		snprintf(text, size, "%.*f", v >= 100 ? 0 : v >= 10 ? 1 : v >= 0.1 ? 2 : 4, v);
	return text;
}

/* ---- table ---- */

/* Green if stag is better in all passes, red if it is worse in all. */
static enum colour colour_of(const json_t *yard)
{
	if (result_number(yard, "ratio_low") > 1.05)
		return COLOUR_GREEN;
	return result_number(yard, "ratio_high") < 0.95 ? COLOUR_RED : COLOUR_NONE;
}

static void print_ratio(const json_t *yard, FILE *to)
{
	double spread = result_number(yard, "ratio_spread_percent");
	char text[24];

	fprintf(to, "%s%8s%s", colour(colour_of(yard)),
		report_number(result_number(yard, "ratio"), text, sizeof(text)),
		colour(COLOUR_NONE));
	if (isfinite(spread) &&
	    result_number(yard, "ratio_high") > result_number(yard, "ratio_low"))
		fprintf(to, "  ±%.0f %%", spread);
	fputc('\n', to);
}

static void print_yard(const json_t *c, const json_t *yard, bool first, FILE *to)
{
	char ours[24], theirs[24], cpu[24], their_cpu[24];

	if (first)
		fprintf(to, "%-19s %9s %-4s %8s", result_string(c, "case"),
			report_number(result_number(c, "value"), ours, sizeof(ours)),
			result_string(c, "unit"),
			report_number(result_number(c, "cpu_us"), cpu, sizeof(cpu)));
	else
		fprintf(to, "%-19s %9s %-4s %8s", "", "", "", "");
	if (json_object_get(yard, "missing")) {
		fprintf(to, "  %-10s not measured\n", result_string(yard, "name"));
		return;
	}
	fprintf(to, "  %-10s %9s %8s", result_string(yard, "name"),
		report_number(result_number(yard, "value"), theirs, sizeof(theirs)),
		report_number(result_number(yard, "cpu_us"), their_cpu, sizeof(their_cpu)));
	print_ratio(yard, to);
}

static void print_case(const json_t *c, FILE *to)
{
	const json_t *yards = json_object_get(c, "yardsticks");
	char value[24], cpu[24];
	size_t i;
	json_t *y;

	if (json_is_string(json_object_get(c, "error"))) {
		fprintf(to, "%-19s gave no figure: %s\n", result_string(c, "case"),
			result_string(c, "error"));
		return;
	}
	json_array_foreach (yards, i, y)
		print_yard(c, y, i == 0, to);
	if (json_array_size(yards) == 0)
		fprintf(to, "%-19s %9s %-4s %8s\n", result_string(c, "case"),
			report_number(result_number(c, "value"), value, sizeof(value)),
			result_string(c, "unit"),
			report_number(result_number(c, "cpu_us"), cpu, sizeof(cpu)));
}

static void print_notes(const json_t *result, FILE *to)
{
	size_t i;
	json_t *one;

	json_array_foreach (json_object_get(result, "missing"), i, one) {
		const char *install = result_string(one, "install");

		fprintf(to, "%s%s: %s is not measured: %s", i == 0 ? "\n" : "",
			result_string(one, "noun"), result_string(one, "yardstick"),
			result_string(one, "why"));
		fprintf(to, *install ? " (%s)\n" : "%s\n", install);
	}
	json_array_foreach (json_object_get(result, "noise"), i, one)
		fprintf(to, "%snoise: %s\n", i == 0 ? "\n" : "", json_string_value(one));
}

void report_table(const json_t *result, FILE *to)
{
	const json_t *m = json_object_get(result, "machine"),
		     *set = json_object_get(result, "settings");
	const char *noun = "";
	size_t i;
	json_t *c;

	fprintf(to, "stag %s on %s, %.0f CPUs, Linux %s; %.0f pass%s of %g s, %s network, %s\n",
		result_string(result, "stag"), result_string(m, "cpu"), result_number(m, "cpus"),
		result_string(m, "kernel"), result_number(set, "passes"),
		result_number(set, "passes") > 1 ? "es" : "", result_number(set, "secs"),
		json_is_true(json_object_get(m, "private_network")) ? "private" : "the machine's",
		result_string(m, "congestion"));
	fputs("ratio: how many times as good as the yardstick, median over the passes, ± half "
	      "its range; "
	      "CPU: of the client, us per operation\n",
	      to);
	json_array_foreach (json_object_get(result, "cases"), i, c) {
		if (strcmp(noun, result_string(c, "noun")) != 0) {
			noun = result_string(c, "noun");
			fprintf(to, "\n%-19s %9s %-4s %8s  %-10s %9s %8s%8s\n", noun, "stag", "",
				"CPU", "yardstick", "", "CPU", "ratio");
		}
		print_case(c, to);
	}
	print_notes(result, to);
}

/* ---- TSV ---- */

static void put_number(double v, FILE *to)
{
	if (isfinite(v))
		fprintf(to, "\t%.6g", v);
	else
		fputs("\t-", to);
}

static void put_yard(const json_t *c, const json_t *yard, FILE *to)
{
	static const char *const ours[] = {"value", "low", "high", "cpu_us", "server_cpu_us"};
	static const char *const theirs[] = {
		"value",     "cpu_us",	   "server_cpu_us",	  "ratio",
		"ratio_low", "ratio_high", "ratio_spread_percent"};
	const char *missing = result_string(yard, "missing"),
		   *install = result_string(yard, "install");

	fprintf(to, "%s\t%s\t%s\t%s\t%s", result_string(c, "noun"), result_string(c, "case"),
		result_string(c, "what"), result_string(c, "unit"), result_string(c, "better"));
	for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
		put_number(result_number(c, ours[i]), to);
	fprintf(to, "\t%s", yard ? result_string(yard, "name") : "-");
	for (size_t i = 0; i < sizeof(theirs) / sizeof(*theirs); i++)
		put_number(result_number(yard, theirs[i]), to);
	put_number((double)json_array_size(json_object_get(c, "passes")), to);
	if (*missing)
		fprintf(to, "\t%s%s%s\n", missing, *install ? ": " : "", install);
	else
		fprintf(to, "\t%s\n", *result_string(c, "error") ? result_string(c, "error") : "-");
}

void report_tsv(const json_t *result, FILE *to)
{
	size_t i, k;
	json_t *c, *y;

	fputs("noun\tcase\twhat\tunit\tbetter\tstag\tstag_low\tstag_high\tstag_cpu_us\tstag_server_"
	      "cpu_us\t"
	      "yardstick\tmeasured\tcpu_us\tserver_cpu_us\tratio\tratio_low\tratio_high\tspread_"
	      "percent\t"
	      "passes\tnote\n",
	      to);
	json_array_foreach (json_object_get(result, "cases"), i, c) {
		const json_t *yards = json_object_get(c, "yardsticks");

		json_array_foreach (yards, k, y)
			put_yard(c, y, to);
		if (json_array_size(yards) == 0)
			put_yard(c, NULL, to);
	}
}
