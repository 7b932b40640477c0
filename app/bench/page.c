// SPDX-License-Identifier: BSD-2-Clause
/*
 * page.c - a result as one page of HTML, to put in a report: no scripts, nothing from elsewhere.
 *
 * It is XML, too. Light and dark as the reader has it; on paper, light.
 */
#include "bench.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "stag.h"

static const char style[] =
	":root{--bg:#fff;--fg:#1b2733;--soft:#566573;--rule:#dfe4e9;--card:#f5f7f9;--better:#"
	"1a7f52;"
	"--worse:#b3412e;--even:#7a8793;--s0:#0b63b5;--s1:#c2560c;--s2:#1a7f52;--s3:#7b3fa0;--s4:#"
	"5d6b78;"
	"--s5:#a02c5a;--warn:#fff6e0;--warnrule:#d9a520}\n"
	"@media screen and "
	"(prefers-color-scheme:dark){:root{--bg:#12181e;--fg:#e4e9ee;--soft:#a3b0bc;"
	"--rule:#2c3640;--card:#1a222a;--better:#4cc38a;--worse:#ef8871;--even:#8d9aa7;--s0:#"
	"5fb0f5;--s1:#f0a04b;"
	"--s2:#4cc38a;--s3:#c69be8;--s4:#a3b0bc;--s5:#f08ab1;--warn:#2b2412;--warnrule:#a67c14}}\n"
	"*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 "
	"system-ui,"
	"-apple-system,\"Segoe UI\",Roboto,\"Liberation Sans\",sans-serif}\n"
	"main{max-width:1060px;margin:0 auto;padding:32px 20px 64px}\n"
	"header p{max-width:none}h1{font-size:28px;margin:0 0 "
	"4px;letter-spacing:-.01em}h2{font-size:20px;margin:44px 0 "
	"4px;padding-top:14px;"
	"border-top:2px solid var(--rule)}h3{font-size:15px;margin:24px 0 6px}\n"
	"p{margin:4px 0 12px;max-width:74ch}.soft,figcaption{color:var(--soft)}\n"
	".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(290px,100%),1fr));"
	"gap:12px;"
	"margin:20px 0}\n"
	".tile{background:var(--card);border:1px solid var(--rule);border-radius:8px;padding:12px "
	"14px}\n"
	".tile "
	"b{display:block;font-size:13px;text-transform:uppercase;letter-spacing:.06em;color:var(--"
	"soft)}\n"
	".tile a{color:inherit;text-decoration:none}.tile dl{margin:6px 0 "
	"0;display:grid;grid-template-columns:1fr auto;"
	"gap:2px 10px}.tile dt{color:var(--fg)}.tile "
	"dd{margin:0;font-weight:600;font-variant-numeric:tabular-nums;"
	"text-align:right}\n"
	"figure{margin:14px "
	"0;overflow-x:auto}figcaption{font-size:13px;margin-bottom:6px}svg{width:100%;height:auto;"
	"display:block}\n"
	".pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:"
	"8px 28px}\n"
	".wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:13.5px;"
	"font-variant-numeric:tabular-nums;margin:8px 0}\n"
	"caption{text-align:left;color:var(--soft);font-size:13px;padding-bottom:4px}\n"
	"th,td{padding:4px 10px 4px 0;text-align:right;border-bottom:1px solid "
	"var(--rule);vertical-align:top;"
	"white-space:nowrap}\n"
	"th{font-weight:600;color:var(--soft)}tbody "
	"th{color:var(--fg);text-align:left}th.l,td.l{text-align:left}"
	"td.what{white-space:normal;min-width:14em;color:var(--soft)}\n"
	".r{font-weight:600}.good{color:var(--better)}.bad{color:var(--worse)}\n"
	".note{background:var(--warn);border-left:4px solid var(--warnrule);padding:8px "
	"14px;margin:16px 0;"
	"border-radius:4px}.note ul{margin:4px 0;padding-left:20px}\n"
	"pre{background:var(--card);border:1px solid var(--rule);border-radius:6px;padding:10px "
	"14px;overflow-x:auto;"
	"font-size:13px}\n"
	"svg text{font:12px system-ui,-apple-system,\"Segoe UI\",Roboto,\"Liberation "
	"Sans\",sans-serif;fill:var(--fg)}"
	"svg .soft,svg .tick{fill:var(--soft)}svg "
	".tick{font-size:11px}.end{text-anchor:end}.middle{text-anchor:middle}\n"
	".grid{stroke:var(--rule)}.axis{stroke:var(--soft)}.whisker{stroke:var(--fg);stroke-width:"
	"1.3}\n"
	".better{fill:var(--better)}.worse{fill:var(--worse)}.even{fill:var(--even)}\n"
	".line{fill:none;stroke-width:2}.error{stroke-width:1.3}.dot{stroke:none}\n"
	".s0{stroke:var(--s0)}.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}.s4{"
	"stroke:var(--s4)}"
	".s5,.s6,.s7{stroke:var(--s5)}.dot.s0{fill:var(--s0)}.dot.s1{fill:var(--s1)}.dot.s2{fill:"
	"var(--s2)}"
	".dot.s3{fill:var(--s3)}.dot.s4{fill:var(--s4)}.dot.s5,.dot.s6,.dot.s7{fill:var(--s5)}\n"
	"@media screen and (max-width:700px){.whole svg{min-width:640px}}\n"
	"@media print{main{max-width:none;padding:0}body{font-size:10.5pt}h2{break-after:avoid}"
	"figure,tr,.tile,.note{break-inside:avoid}.pair{grid-template-columns:1fr "
	"1fr}.wide{overflow:visible}"
	"table{font-size:8.5pt}@page{margin:16mm}*{print-color-adjust:exact;-webkit-print-color-"
	"adjust:exact}}\n";

static const struct {
	const char *name, *title, *what;
} nouns[] = {
	{"verbs", "Verbs",
	 "The software adapter, as any program of libibverbs and librdmacm sees it, beside plain "
	 "sockets in the same loop."},
	{"xfer", "Transfer manager",
	 "Requests of many pieces, beside work requests that are posted by hand in the way that is "
	 "fastest."},
	{"heap", "Registered heap",
	 "Allocations in shared, registered memory, beside allocators that share nothing, one that "
	 "does, and registering each time."},
	{"store", "Store",
	 "Partitions of a store, in the same process (near) and served by another (far), beside "
	 "who else reads and writes the same file."},
	{"block", "Block target",
	 "Logical units in memory, served to our initiator, beside tgt's and nbdkit's service of "
	 "the same file."},
	{"pool", "Pool",
	 "Values in memory that two nodes keep, beside redis and memcached. A change is "
	 "acknowledged when both have it."},
};

void page_text(FILE *to, const char *text)
{
	for (; *text; text++) {
		if (*text == '&')
			fputs("&amp;", to);
		else if (*text == '<')
			fputs("&lt;", to);
		else if (*text == '>')
			fputs("&gt;", to);
		else if (*text == '"')
			fputs("&quot;", to);
		else if ((unsigned char)*text >= ' ')
			fputc(*text, to);
	}
}

static void put(FILE *to, const json_t *o, const char *key)
{
	page_text(to, result_string(o, key));
}

static void cell(FILE *to, double v)
{
	char text[24];

	fprintf(to, "<td>%s</td>", report_number(v, text, sizeof(text)));
}

static bool is_of(const json_t *c, const char *noun)
{
	return strcmp(result_string(c, "noun"), noun) == 0;
}

static bool has_noun(const json_t *result, const char *noun)
{
	size_t i;
	json_t *c;

	json_array_foreach (json_object_get(result, "cases"), i, c)
		if (is_of(c, noun))
			return true;
	return false;
}

/* ---- at a glance ---------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* The median over a noun's cases of the ratio to that yardstick; how many there are. */
static size_t typical(const json_t *result, const char *noun, const char *yard, double *ratio)
{
	double v[64];
	size_t n = 0, i, k;
	json_t *c, *y;

	json_array_foreach (json_object_get(result, "cases"), i, c) {
		if (!is_of(c, noun))
			continue;
		json_array_foreach (json_object_get(c, "yardsticks"), k, y)
			if (strcmp(result_string(y, "name"), yard) == 0 &&
			    isfinite(result_number(y, "ratio")) && n < 64)
				v[n++] = result_number(y, "ratio");
	}
	qsort(v, n, sizeof(*v), by_size);
	*ratio = n == 0 ? NAN : n % 2 ? v[n / 2] : sqrt(v[n / 2 - 1] * v[n / 2]);
	return n;
}

static void put_tile(FILE *to, const json_t *result, size_t which)
{
	static const char *const yards[] = {"tcp",    "libfabric", "each",   "alone",
					    "malloc", "mimalloc",  "boost",  "registered",
					    "plain",  "fio",	   "nbdkit", "tgt",
					    "redis",  "memcached", "adapter"};
	char text[24];
	double ratio;

	fprintf(to, "<div class=\"tile\"><a href=\"#%s\"><b>%s</b></a><dl>", nouns[which].name,
		nouns[which].title);
	for (size_t i = 0; i < sizeof(yards) / sizeof(*yards); i++)
		if (typical(result, nouns[which].name, yards[i], &ratio) > 0)
			fprintf(to, "<dt>%s</dt><dd>%s ×</dd>", yards[i],
				report_number(ratio, text, sizeof(text)));
	fputs("</dl></div>\n", to);
}

static void put_tiles(FILE *to, const json_t *result)
{
	fputs("<div class=\"tiles\">\n", to);
	for (size_t i = 0; i < sizeof(nouns) / sizeof(*nouns); i++)
		if (has_noun(result, nouns[i].name))
			put_tile(to, result, i);
	fputs("</div>\n<p class=\"soft\">How many times as good as each yardstick, typically: the "
	      "median over the "
	      "cases. Above 1, stag is better; whether more is better or less is taken into "
	      "account.</p>\n",
	      to);
}

static void put_list(FILE *to, const char *title, const json_t *list)
{
	size_t i;
	json_t *one;

	if (json_array_size(list) == 0)
		return;
	fprintf(to, "<div class=\"note\" role=\"note\"><strong>%s</strong><ul>\n", title);
	json_array_foreach (list, i, one) {
		fputs("<li>", to);
		if (json_is_string(one)) {
			page_text(to, json_string_value(one));
		} else {
			put(to, one, "noun");
			fputs(": ", to);
			put(to, one, "yardstick");
			fputs(" — ", to);
			put(to, one, "why");
			if (*result_string(one, "install")) {
				fputs(" (<code>", to);
				put(to, one, "install");
				fputs("</code>)", to);
			}
		}
		fputs("</li>\n", to);
	}
	fputs("</ul></div>\n", to);
}

/* ---- a noun ------------------------------------------------------------------------------------------ */

static void put_ratio(FILE *to, const json_t *y)
{
	double low = result_number(y, "ratio_low"), high = result_number(y, "ratio_high");
	double spread = result_number(y, "ratio_spread_percent");
	char text[24];

	fprintf(to, "<td class=\"r %s\">%s</td><td>",
		low > 1	   ? "good"
		: high < 1 ? "bad"
			   : "",
		report_number(result_number(y, "ratio"), text, sizeof(text)));
	if (isfinite(spread))
		fprintf(to, "±%.0f %%", spread);
	fputs("</td>", to);
}

static void put_yard(FILE *to, const json_t *y)
{
	fputs("<td class=\"l\" title=\"", to);
	put(to, y, "what");
	fputs("\">", to);
	put(to, y, "name");
	fputs("</td>", to);
	if (json_object_get(y, "missing")) {
		fputs("<td class=\"l\" colspan=\"5\">not measured</td>", to);
		return;
	}
	cell(to, result_number(y, "value"));
	cell(to, result_number(y, "cpu_us"));
	cell(to, result_number(y, "server_cpu_us"));
	put_ratio(to, y);
}

static void put_case(FILE *to, const json_t *c)
{
	const json_t *yards = json_object_get(c, "yardsticks");
	size_t rows = json_array_size(yards), span = rows ? rows : 1;
	char value[24], cpu[24], server[24];

	fprintf(to, "<tr><th scope=\"row\" rowspan=\"%zu\">", span);
	put(to, c, "case");
	fprintf(to, "</th><td class=\"l what\" rowspan=\"%zu\">", span);
	put(to, c, *result_string(c, "error") ? "error" : "what");
	fprintf(to, "</td><td rowspan=\"%zu\">%s ", span,
		report_number(result_number(c, "value"), value, sizeof(value)));
	put(to, c, "unit");
	fprintf(to, "</td><td rowspan=\"%zu\">%s</td><td rowspan=\"%zu\">%s</td>", span,
		report_number(result_number(c, "cpu_us"), cpu, sizeof(cpu)), span,
		report_number(result_number(c, "server_cpu_us"), server, sizeof(server)));
	for (size_t i = 0; i < rows; i++) {
		fputs(i ? "</tr>\n<tr>" : "", to);
		put_yard(to, json_array_get(yards, i));
	}
	if (rows == 0)
		fputs("<td class=\"l\" colspan=\"6\">no yardstick</td>", to);
	fputs("</tr>\n", to);
}

static void put_cases(FILE *to, const json_t *result, const char *noun)
{
	size_t i;
	json_t *c;

	fputs("<div class=\"wide\" tabindex=\"0\" role=\"region\" "
	      "aria-label=\"figures\"><table><caption>Medians over the passes. CPU: microseconds "
	      "of "
	      "processor time an "
	      "operation, of the client and of the server; who polls uses its CPU whole. ±: half "
	      "of what lies between "
	      "the least and the greatest ratio of the passes.</caption>\n"
	      "<thead><tr><th class=\"l\" scope=\"col\">case</th><th class=\"l\" "
	      "scope=\"col\">what happens</th>"
	      "<th scope=\"col\">stag</th><th scope=\"col\">CPU</th><th scope=\"col\">server</th>"
	      "<th class=\"l\" scope=\"col\">yardstick</th><th scope=\"col\">measured</th><th "
	      "scope=\"col\">CPU</th>"
	      "<th scope=\"col\">server</th><th scope=\"col\">ratio</th><th "
	      "scope=\"col\">±</th></tr></thead>\n<tbody>\n",
	      to);
	json_array_foreach (json_object_get(result, "cases"), i, c)
		if (is_of(c, noun))
			put_case(to, c);
	fputs("</tbody></table></div>\n", to);
}

/* What each yardstick is, in words. */
static void put_yardsticks(FILE *to, const json_t *result, const char *noun)
{
	json_t *seen = json_object(), *c, *y;
	size_t i, k;

	fputs("<p class=\"soft\">Yardsticks: ", to);
	json_array_foreach (json_object_get(result, "cases"), i, c) {
		if (!is_of(c, noun))
			continue;
		json_array_foreach (json_object_get(c, "yardsticks"), k, y) {
			if (json_object_get(seen, result_string(y, "what")))
				continue;
			fprintf(to, "%s<b>", json_object_size(seen) ? "; " : "");
			put(to, y, "name");
			fputs("</b> ", to);
			put(to, y, "what");
			json_object_set_new(seen, result_string(y, "what"), json_true());
		}
	}
	fputs(json_object_size(seen) ? ".</p>\n" : "none.</p>\n", to);
	json_decref(seen);
}

static void latency_row(FILE *to, const char *name, const json_t *latency)
{
	static const char *const keys[] = {"p50", "p90", "p99", "p99.9", "max"};

	if (!json_is_object(latency))
		return;
	fputs("<tr><th scope=\"row\">", to);
	page_text(to, name);
	fputs("</th>", to);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		cell(to, result_number(latency, keys[i]));
	fputs("</tr>\n", to);
}

static void put_latency(FILE *to, const json_t *c)
{
	size_t i;
	json_t *y;

	fputs("<figure>\n<figcaption><b>", to);
	put(to, c, "case");
	fputs("</b> — ", to);
	put(to, c, "what");
	fputs("</figcaption>\n", to);
	plot_latency(to, c);
	fputs("<table><thead><tr><th class=\"l\" scope=\"col\">us</th><th "
	      "scope=\"col\">p50</th><th scope=\"col\">p90</th>"
	      "<th scope=\"col\">p99</th><th scope=\"col\">p99.9</th><th "
	      "scope=\"col\">max</th></tr></thead>\n<tbody>\n",
	      to);
	latency_row(to, "stag", json_object_get(c, "latency_us"));
	json_array_foreach (json_object_get(c, "yardsticks"), i, y)
		latency_row(to, result_string(y, "name"), json_object_get(y, "latency_us"));
	fputs("</tbody></table>\n</figure>\n", to);
}

/* Of one at a time: with more under way it tells of the queue. */
static bool tells_latency(const json_t *c, const char *noun)
{
	const char *name = result_string(c, "case"), *end = strrchr(name, '_');

	return is_of(c, noun) && json_is_object(json_object_get(c, "latency_us")) &&
	       (strstr(name, "_lat") || (end && strcmp(end, "_1") == 0));
}

static void put_latencies(FILE *to, const json_t *result, const char *noun)
{
	bool any = false;
	size_t i;
	json_t *c;

	json_array_foreach (json_object_get(result, "cases"), i, c) {
		if (!tells_latency(c, noun))
			continue;
		if (!any)
			fputs("<h3>Latency</h3>\n<div class=\"pair\">\n", to);
		any = true;
		put_latency(to, c);
	}
	if (any)
		fputs("</div>\n", to);
}

/* The case of that kind and size, or NULL. */
static const json_t *bandwidth_of(const json_t *result, const char *kind, double size)
{
	size_t i;
	json_t *c;

	json_array_foreach (json_object_get(result, "cases"), i, c)
		if (strncmp(result_string(c, "case"), kind, strlen(kind)) == 0 &&
		    result_number(c, "size") == size)
			return c;
	return NULL;
}

/* NULL: it has none of that name. */
static const json_t *yard_of(const json_t *c, const char *name)
{
	size_t i;
	json_t *y;

	json_array_foreach (json_object_get(c, "yardsticks"), i, y)
		if (strcmp(result_string(y, "name"), name) == 0)
			return y;
	return NULL;
}

static void put_bandwidth_table(FILE *to, const json_t *result)
{
	fputs("<table><thead><tr><th class=\"l\" scope=\"col\">bytes</th><th scope=\"col\">stag "
	      "RDMA Write, "
	      "GB/s</th><th scope=\"col\">stag RDMA Read</th><th scope=\"col\">raw TCP</th><th "
	      "scope=\"col\">libfabric write</th></tr></thead>\n<tbody>\n",
	      to);
	for (double size = 4096; size <= 1 << 20; size *= 2) {
		const json_t *w = bandwidth_of(result, "write_bw_", size),
			     *r = bandwidth_of(result, "read_bw_", size);

		if (!w && !r)
			continue;
		fprintf(to, "<tr><th scope=\"row\">%.0f</th>", size);
		cell(to, result_number(w, "value"));
		cell(to, result_number(r, "value"));
		cell(to, result_number(yard_of(w ? w : r, "tcp"), "value"));
		cell(to, result_number(yard_of(w, "libfabric"), "value"));
		fputs("</tr>\n", to);
	}
	fputs("</tbody></table>\n", to);
}

static void put_bandwidth(FILE *to, const json_t *result)
{
	if (!bandwidth_of(result, "write_bw_", 4096) && !bandwidth_of(result, "write_bw_", 65536))
		return;
	fputs("<h3>Bandwidth over size</h3>\n<figure class=\"whole\" "
	      "tabindex=\"0\">\n<figcaption>RDMA Writes and "
	      "Reads, and raw TCP in the same loop; bars from the least to the greatest of the "
	      "passes</figcaption>\n",
	      to);
	plot_bandwidth(to, result);
	put_bandwidth_table(to, result);
	fputs("</figure>\n", to);
}

static void put_noun(FILE *to, const json_t *result, size_t which)
{
	const char *name = nouns[which].name;

	fprintf(to, "<section id=\"%s\">\n<h2>%s</h2>\n<p>%s</p>\n", name, nouns[which].title,
		nouns[which].what);
	fputs("<figure class=\"whole\" tabindex=\"0\">\n<figcaption>How many times as good as each "
	      "yardstick; whiskers from the "
	      "least to the "
	      "greatest of the passes</figcaption>\n",
	      to);
	plot_ratios(to, result, name);
	fputs("</figure>\n", to);
	put_cases(to, result, name);
	put_yardsticks(to, result, name);
	if (strcmp(name, "verbs") == 0)
		put_bandwidth(to, result);
	put_latencies(to, result, name);
	fputs("</section>\n", to);
}

/* ---- the machine -------------------------------------------------------------------------------------- */

static void fact(FILE *to, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void fact(FILE *to, const char *name, const char *fmt, ...)
{
	char text[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	fprintf(to, "<tr><th scope=\"row\">%s</th><td class=\"l\">", name);
	page_text(to, text);
	fputs("</td></tr>\n", to);
}

static void put_machine(FILE *to, const json_t *result)
{
	const json_t *m = json_object_get(result, "machine"),
		     *s = json_object_get(result, "settings");
	const char *name;
	json_t *v;

	fputs("<section id=\"machine\">\n<h2>The machine and the settings</h2>\n<table><tbody>\n",
	      to);
	fact(to, "processor", "%s, %.0f CPUs%s", result_string(m, "cpu"), result_number(m, "cpus"),
	     json_is_true(json_object_get(m, "virtual")) ? ", virtual machine" : "");
	fact(to, "memory", "%.1f GiB", result_number(m, "memory_bytes") / (1 << 30));
	fact(to, "system", "%s, Linux %s (%s)", result_string(m, "system"),
	     result_string(m, "kernel"), result_string(m, "architecture"));
	fact(to, "frequency governor", "%s", result_string(m, "governor"));
	fact(to, "network", "loopback, %s, congestion control %s",
	     json_is_true(json_object_get(m, "private_network"))
		     ? "in a network namespace of its own"
		     : "the machine's own",
	     result_string(m, "congestion"));
	fact(to, "passes", "%.0f of %g s each%s", result_number(s, "passes"),
	     result_number(s, "secs"),
	     json_is_true(json_object_get(s, "quick")) ? ", short form" : "");
	fact(to, "load before", "%.2f", result_number(m, "load_before"));
	fact(to, "time taken by the host", "%.1f %%", result_number(m, "steal_percent"));
	fact(to, "stag", "%s", result_string(result, "stag"));
	json_object_foreach (json_object_get(result, "programs"), name, v)
		fact(to, name, "%s", json_string_value(v));
	fputs("</tbody></table>\n</section>\n", to);
}

/* The command that gives the same cases. */
static void put_command(FILE *to, const json_t *result)
{
	const json_t *s = json_object_get(result, "settings");
	size_t i;
	json_t *v;

	fputs("stag bench", to);
	json_array_foreach (json_object_get(s, "nouns"), i, v) {
		fputc(' ', to);
		page_text(to, json_string_value(v));
	}
	if (json_is_true(json_object_get(s, "quick")))
		fputs(" --quick", to);
	fprintf(to, " --passes %.0f --secs %g", result_number(s, "passes"),
		result_number(s, "secs"));
	json_array_foreach (json_object_get(s, "cases"), i, v) {
		fputs(" --case '", to);
		page_text(to, json_string_value(v));
		fputc('\'', to);
	}
	fputs(" --congestion ", to);
	put(to, s, "congestion");
	fputs(" --html report.html --output result.json", to);
}

static void put_method(FILE *to, const json_t *result)
{
	fputs("<section id=\"method\">\n<h2>How it was measured, and how to do it again</h2>\n"
	      "<p>Servers on the first CPU, clients on the second. In each pass ours and the "
	      "yardsticks are measured one "
	      "after the other, in the next pass the other way around. A figure is the median of "
	      "the passes; a ratio is the "
	      "median of the passes' own ratios, since what a pass compares ran within seconds. "
	      "The adapter's CRC is off, "
	      "since no yardstick has one. What is behind each case is in "
	      "stag-bench(1).</p>\n<pre>",
	      to);
	put_command(to, result);
	fputs("</pre>\n<p>Two results are compared, with their noise, by <code>stag bench compare "
	      "OLD.json "
	      "NEW.json</code>.</p>\n</section>\n",
	      to);
}

/* ---- the page -------------------------------------------------------------------------------------------- */

static void put_head(FILE *to, const json_t *result)
{
	const json_t *m = json_object_get(result, "machine");
	const char *time = result_string(result, "time");

	if (strlen(time) < 16 || strpbrk(time, "<&"))
		time = "0000-00-00T00:00";
	fputs("<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" "
	      "lang=\"en\">\n<head>\n<meta "
	      "charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, "
	      "initial-scale=1\"/>\n"
	      "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>stag ",
	      to);
	put(to, result, "stag");
	fputs(": measurements</title>\n<style>\n", to);
	fputs(style, to);
	fputs("</style>\n</head>\n<body>\n<main>\n<header>\n<h1>stag ", to);
	put(to, result, "stag");
	fputs(" beside its yardsticks</h1>\n<p class=\"soft\">", to);
	put(to, m, "cpu");
	fprintf(to, ", %.0f CPUs, Linux ", result_number(m, "cpus"));
	put(to, m, "kernel");
	fprintf(to, " — measured on %.10s at %.5s UTC, in %.0f s</p>\n</header>\n", time, time + 11,
		result_number(result, "seconds"));
}

int page_write(const json_t *result, const char *file)
{
	FILE *to = fopen(file, "w");

	if (!to) {
		complain("cannot write %s: %s", file, strerror(errno));
		return -errno;
	}
	put_head(to, result);
	put_tiles(to, result);
	put_list(to, "This machine was not quiet", json_object_get(result, "noise"));
	put_list(to, "Yardsticks that were not measured", json_object_get(result, "missing"));
	for (size_t i = 0; i < sizeof(nouns) / sizeof(*nouns); i++)
		if (has_noun(result, nouns[i].name))
			put_noun(to, result, i);
	put_machine(to, result);
	put_method(to, result);
	fputs("</main>\n</body>\n</html>\n", to);
	if (fclose(to) == 0)
		return 0;
	complain("cannot write %s: %s", file, strerror(errno));
	return -EIO;
}
