// SPDX-License-Identifier: BSD-2-Clause
/*
 * noun_parts.c - stag bench xfer and heap: parts that measure their own yardsticks, alternating
 * every few milliseconds.
 */
#include "bench.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "preload.h"

#define MIMALLOC "libmimalloc.so.2"

struct part_case {
	const char *name, *unit;
	enum suite_better better;
	const char *yards[2];
	const char *what, *quick_what;
	bool quick;
};

static const struct part_case xfer_cases[] = {
	{"elements",
	 "M/s",
	 BETTER_MORE,
	 {"each", "alone"},
	 "one request of 100,000 elements of 64 bytes, gathered",
	 NULL,
	 true},
	{"elements_random",
	 "M/s",
	 BETTER_MORE,
	 {"each", "alone"},
	 "100,000 elements of 64 bytes, in random local order",
	 NULL,
	 true},
	{"elements_contiguous",
	 "M/s",
	 BETTER_MORE,
	 {"each", "alone"},
	 "100,000 elements of 64 bytes, contiguous on both sides",
	 NULL,
	 false},
	{"requests",
	 "M/s",
	 BETTER_MORE,
	 {"each", "alone"},
	 "100,000 requests of one element each",
	 NULL,
	 false},
	{"batches",
	 "ms",
	 BETTER_LESS,
	 {"alone", "each"},
	 "requests of 1 to 27,000 pieces of 1,852 bytes, p99",
	 NULL,
	 false},
	{"batches_apart",
	 "ms",
	 BETTER_LESS,
	 {"alone", "each"},
	 "as batches, scattered in the target's memory, too, p99",
	 NULL,
	 false},
	{"large",
	 "GB/s",
	 BETTER_MORE,
	 {"alone", NULL},
	 "one request of 256 MiB",
	 "one request of 64 MiB",
	 true},
	{"plan",
	 "ns",
	 BETTER_LESS,
	 {"each", NULL},
	 "forming descriptors for 100,000 elements, per element",
	 NULL,
	 false},
};

static const struct part_case heap_cases[] = {
	{"churn_64",
	 "ns",
	 BETTER_LESS,
	 {"malloc", "boost"},
	 "free and allocate 64 bytes, one process",
	 NULL,
	 true},
	{"churn_4k",
	 "ns",
	 BETTER_LESS,
	 {"malloc", "boost"},
	 "free and allocate 4 KiB, one process",
	 NULL,
	 false},
	{"churn_1m",
	 "ns",
	 BETTER_LESS,
	 {"malloc", "boost"},
	 "free and allocate 1 MiB, one process",
	 NULL,
	 false},
	{"churn2_64",
	 "ns",
	 BETTER_LESS,
	 {"malloc", "boost"},
	 "64 bytes, two processes at once in one heap",
	 NULL,
	 true},
	{"churn2_4k",
	 "ns",
	 BETTER_LESS,
	 {"malloc", "boost"},
	 "4 KiB, two processes at once in one heap",
	 NULL,
	 false},
	{"churn2_1m",
	 "ns",
	 BETTER_LESS,
	 {"malloc", "boost"},
	 "1 MiB, two processes at once in one heap",
	 NULL,
	 false},
	{"cross_64",
	 "ns",
	 BETTER_LESS,
	 {"malloc", NULL},
	 "64 bytes, allocated here, freed by another process",
	 NULL,
	 true},
	{"cross_4k",
	 "ns",
	 BETTER_LESS,
	 {"malloc", NULL},
	 "4 KiB, allocated here, freed by another process",
	 NULL,
	 false},
	{"cross_1m",
	 "ns",
	 BETTER_LESS,
	 {"malloc", NULL},
	 "1 MiB, allocated here, freed by another process",
	 NULL,
	 false},
	{"ready_4k", "ns", BETTER_LESS, {"registered", NULL}, "4 KiB, with its keys", NULL, true},
	{"ready_1m", "ns", BETTER_LESS, {"registered", NULL}, "1 MiB, with its keys", NULL, false},
	{"keys", "ns", BETTER_LESS, {NULL, NULL}, "keys of an allocation, looked up", NULL, false},
	{"attach", "ms", BETTER_LESS, {NULL, NULL}, "a heap of 64 GiB is attached", NULL, false},
};

/* ---- yardsticks ---- */

static bool have_mimalloc(void)
{
	void *library = *STAG_SANITIZER ? NULL : dlopen(MIMALLOC, RTLD_LAZY | RTLD_LOCAL);

	if (library)
		dlclose(library);
	return library != NULL;
}

/*
 * Returns the path of the module that uses Boost.Interprocess, which only a build tree has, or
 * NULL.
 */
static const char *boost_module(void)
{
	static const char *const places[] = {"../../bench/libheap_boost.so"};
	static char path[PATH_MAX];

	return find_beside_executable(places, 1, R_OK, path) == 0 ? path : NULL;
}

static const char *yard_words(const char *name, const struct suite_noun *noun, const char *of)
{
	if (strcmp(name, "malloc") == 0)
		return strncmp(of, "cross", 5) == 0 ? "the C library's, between threads"
						    : "the C library's, which shares nothing";
	if (strcmp(name, "mimalloc") == 0)
		return strncmp(of, "cross", 5) == 0 ? "mimalloc, between threads"
						    : "mimalloc, which shares nothing";
	if (strcmp(name, "boost") == 0)
		return "Boost.Interprocess, managed_shared_memory";
	if (strcmp(name, "registered") == 0)
		return "malloc, ibv_reg_mr, ibv_dereg_mr, free";
	if (noun == &suite_xfer && strcmp(name, "each") == 0)
		return strcmp(of, "plan") == 0 ? "a work request filled in for each"
					       : "a work request for each, posted by hand";
	return strcmp(of, "large") == 0 ? "a loop of 1 MiB"
					: "the same number of bytes in writes of 1 MiB";
}

/* the yardstick malloc is mimalloc if that is installed: it is preloaded */
static void add_yards(struct suite_case *c, const struct part_case *p, bool mimalloc)
{
	for (unsigned int i = 0; i < 2 && p->yards[i]; i++) {
		const char *name = p->yards[i];

		if (strcmp(name, "malloc") == 0 && mimalloc)
			name = "mimalloc";
		suite_yardstick(c, name, yard_words(name, c->noun, p->name));
	}
	if (!mimalloc && p->yards[0] && strcmp(p->yards[0], "malloc") == 0)
		suite_yardstick(c, "mimalloc", yard_words("mimalloc", c->noun, p->name));
}

static void list_of(struct suite *s, const struct suite_noun *noun, const struct part_case *cases,
		    size_t n)
{
	bool mimalloc = noun == &suite_heap && have_mimalloc();

	for (size_t i = 0; i < n; i++) {
		const struct part_case *p = &cases[i];
		struct suite_case *c = suite_add(s, noun, p->name, p->quick);

		if (!c)
			continue;
		snprintf(c->what, sizeof(c->what), "%s",
			 s->o.quick && p->quick_what ? p->quick_what : p->what);
		c->unit = p->unit;
		c->better = p->better;
		c->own = p;
		add_yards(c, p, mimalloc);
	}
}

static void list_xfer(struct suite *s)
{
	list_of(s, &suite_xfer, xfer_cases, sizeof(xfer_cases) / sizeof(*xfer_cases));
}

static void list_heap(struct suite *s)
{
	list_of(s, &suite_heap, heap_cases, sizeof(heap_cases) / sizeof(*heap_cases));
}

static void begin_heap(struct suite *s)
{
	if (!have_mimalloc())
		suite_missing(s, &suite_heap, "mimalloc", "apt install libmimalloc2.0",
			      *STAG_SANITIZER ? "this build has a sanitizer's malloc"
					      : "there is no " MIMALLOC);
	else
		json_object_set_new(s->programs, "mimalloc", json_string(MIMALLOC));
	if (!boost_module())
		suite_missing(s, &suite_heap, "boost", "apt install libboost-dev g++",
			      "bench/libheap_boost.so is missing: it is built if Boost is "
			      "installed");
}

/* ---- a run ---- */

/* Returns processor time per element, or per round if bytes are measured. */
static double cpu_us(const json_t *series, const char *which)
{
	const char *unit = json_string_value(json_object_get(series, "cpu_unit"));
	double v = result_number(series, which);

	if (unit && strcmp(unit, "s/GiB") == 0)
		return v * result_number(series, "bytes") / (1 << 30) * 1e6;
	return v / 1e3;
}

static void note_round(struct suite_case *c, const char *name, const json_t *series,
		       unsigned int pass)
{
	struct suite_series *y = suite_find(c, name);

	if (!y)
		return;
	y->samples[pass] = (struct suite_sample){.taken = true,
						 .value = result_number(series, "value"),
						 .cpu_us = cpu_us(series, "client_cpu"),
						 .server_us = cpu_us(series, "target_cpu")};
}

static void note_rounds(struct suite_case *c, const json_t *out, unsigned int pass)
{
	const json_t *found = json_array_get(json_object_get(out, "cases"), 0);
	size_t i;
	json_t *series;

	json_array_foreach (json_object_get(found, "series"), i, series)
		note_round(c,
			   i == 0 ? "stag" : json_string_value(json_object_get(series, "series")),
			   series, pass);
}

static void run_part(struct suite *s, struct suite_case *c, unsigned int pass,
		     const char *const *words)
{
	json_t *out = child_stag(s, CPU_ANY, words);

	if (out)
		note_rounds(c, out, pass);
	else if (!child_interrupted)
		suite_failed(c, child_complaint());
	json_decref(out);
}

static void measure_xfer(struct suite *s, struct suite_case *c, unsigned int pass)
{
	char secs[24];
	const char *const words[] = {"bench",	  "part",
				     "xfer",	  "--json",
				     "--case",	  c->name,
				     "--secs",	  secs,
				     "--bytes",	  s->o.quick ? "64M" : "256M",
				     "--batches", "100",
				     "--pieces",  s->o.quick ? "2700" : "27000",
				     NULL};

	snprintf(secs, sizeof(secs), "%g", s->o.secs);
	run_part(s, c, pass, words);
}

static void measure_heap(struct suite *s, struct suite_case *c, unsigned int pass)
{
	const struct part_case *p = c->own;
	bool churn = strncmp(c->name, "churn", 5) == 0;
	const char *boost = churn ? boost_module() : NULL;
	bool mimalloc = p->yards[0] && strcmp(p->yards[0], "malloc") == 0 && have_mimalloc();
	char preload[PATH_MAX + 128], secs[24];
	const char *const words[] = {preload,  "bench", "part",	  "heap", "--json",
				     "--case", c->name, "--secs", secs,	  NULL};

	snprintf(preload, sizeof(preload), "LD_PRELOAD=%s%s%s", mimalloc ? MIMALLOC : "",
		 mimalloc && boost ? ":" : "", boost ? boost : "");
	snprintf(secs, sizeof(secs), "%g", s->o.secs);
	run_part(s, c, pass, mimalloc || boost ? words : words + 1);
}

const struct suite_noun suite_xfer = {"xfer", "the transfer manager beside posting by hand",
				      list_xfer, NULL, measure_xfer};
const struct suite_noun suite_heap = {
	"heap", "the registered heap beside malloc(), Boost.Interprocess and registering",
	list_heap, begin_heap, measure_heap};
