// SPDX-License-Identifier: BSD-2-Clause
/*
 * heap.c - stag heap: its command line, and what changes a heap: reap, trim and rm.
 */
#include "heap.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "rhythm.h"
#include "stag.h"
#include "verb.h"

static const char help_text[] =
	"usage: stag heap show [NAME] [--blocks] [--check] [--json]\n"
	"       stag heap top [NAME] [--interval S] [--count N] [--json]\n"
	"       stag heap reap NAME [--shared] [--json]\n"
	"       stag heap trim NAME [--json]\n"
	"       stag heap rm NAME [--force] [--json]\n\n"
	"Registered heaps (stag_heap(7)) of this machine: memory that several processes\n"
	"allocate from. show and top look, and change nothing.\n\n"
	"  show   all heaps, or one: its memory, its processes and what they own\n"
	"  top    the processes of all heaps, or of one, again and again\n"
	"  reap   give back what processes that have died had allocated\n"
	"  trim   give blocks back to the system that are empty and nobody's\n"
	"  rm     remove a heap that was left behind\n\n"
	"  --blocks       also every block: blockId, address, size, owner, allocations\n"
	"  --check        look for faults; exit code 1 if there are any\n"
	"  --interval S   seconds between two looks (1)\n"
	"  --count N      look so many times, then end\n"
	"  --shared       also what the dead had shared\n"
	"  --force        though processes have it attached: they keep it, without the name\n"
	"  --json         for programs; of top, a line for each look\n"
	"  -h, --help\n\n"
	"  stag heap show\n"
	"  stag heap top cache --interval 2\n";

struct heap_options {
	const char *name; /* NULL: none */
	bool blocks, check, json, shared, force;
	double interval;
	uint64_t count;
};

/* ---- show ---------------------------------------------------------------------- */

static void dump(json_t *o)
{
	json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	puts("");
	json_decref(o);
}

static int show_all(const struct heap_options *o)
{
	size_t n;
	struct heap_view *views = heap_view_all(&n);
	json_t *heaps;

	if (!views) {
		complain("%s", strerror(ENOMEM));
		return EXIT_FAILED;
	}
	if (o->json) {
		heaps = json_array();
		for (size_t i = 0; i < n; i++)
			json_array_append_new(heaps, heap_json(&views[i]));
		dump(json_pack("{s:s s:o}", "version", STAG_VERSION, "heaps", heaps));
	} else {
		heap_print_list(views, n);
	}
	for (size_t i = 0; i < n; i++)
		heap_view_clear(&views[i]);
	free(views);
	return EXIT_OK;
}

static int look(struct heap_view *view, const char *name, unsigned int flags)
{
	int rc = heap_view_take(view, name, flags);

	if (rc)
		complain("%s", view->error ? view->error : strerror(-rc));
	return rc;
}

static int show(const struct heap_options *o)
{
	unsigned int flags = (o->blocks ? VIEW_BLOCKS : 0) | (o->check ? VIEW_CHECK : 0);
	struct heap_view view;
	int rc;

	if (!o->name)
		return show_all(o);
	rc = look(&view, o->name, flags) ? EXIT_FAILED : EXIT_OK;
	if (rc == EXIT_OK) {
		if (o->json)
			dump(heap_json(&view));
		else
			heap_print(&view);
		rc = view.faults > 0 ? EXIT_FAILED : EXIT_OK;
	}
	heap_view_clear(&view);
	return rc;
}

static int top(const struct heap_options *o)
{
	return heap_top(o->name, o->interval, o->count, o->json);
}

/* ---- what changes a heap ---------------------------------------------------------- */

static int memory_of(const char *name, uint64_t *bytes)
{
	struct heap_view view;
	int rc = look(&view, name, 0);

	*bytes = view.stats.block_bytes;
	heap_view_clear(&view);
	return rc;
}

/* Attaching reaps already, so that what it says itself is not all. */
static int change(const struct heap_options *o, uint64_t (*what)(struct stag_heap *, unsigned int),
		  unsigned int flags)
{
	const char *name = o->name;
	uint64_t before, after;
	struct stag_heap *heap;
	char text[16];

	if (memory_of(name, &before))
		return EXIT_FAILED;
	heap = stag_heap_attach(name, NULL);
	if (!heap) {
		complain("%s", stag_heap_error());
		return EXIT_FAILED;
	}
	what(heap, flags);
	stag_heap_detach(heap, true);
	if (memory_of(name, &after))
		return EXIT_FAILED;
	before -= before > after ? after : before;
	if (o->json)
		dump(json_pack("{s:s s:I}", "name", name, "given_back_bytes", (json_int_t)before));
	else
		printf("%s given back\n", heap_size_word(before, text, sizeof(text)));
	return EXIT_OK;
}

static int reap(const struct heap_options *o)
{
	return change(o, stag_heap_reap, o->shared ? STAG_HEAP_REAP_SHARED : 0);
}

static uint64_t trim_heap(struct stag_heap *heap, unsigned int flags)
{
	return stag_heap_trim(heap);
}

static int trim(const struct heap_options *o)
{
	return change(o, trim_heap, 0);
}

static int count_living(const char *name, uint64_t *living)
{
	struct heap_view view;
	int rc = look(&view, name, 0);

	*living = view.stats.processes - view.stats.dead_processes;
	heap_view_clear(&view);
	return rc;
}

static int rm(const struct heap_options *o)
{
	uint64_t living;

	if (!o->force) {
		if (count_living(o->name, &living))
			return EXIT_FAILED;
		if (living) {
			complain("heap %s: %llu process%s it attached, see 'stag heap show %s'; "
				 "--force takes only its name away",
				 o->name, (unsigned long long)living,
				 living == 1 ? " has" : "es have", o->name);
			return EXIT_FAILED;
		}
	}
	if (stag_heap_unlink(o->name)) {
		complain("%s", stag_heap_error());
		return EXIT_FAILED;
	}
	if (o->json)
		dump(json_pack("{s:s}", "removed", o->name));
	return EXIT_OK;
}

/* ---- the command line --------------------------------------------------------------- */

enum {
	H_BLOCKS = VERB_OPTION,
	H_CHECK,
	H_JSON,
	H_SHARED,
	H_FORCE,
	H_INTERVAL,
	H_COUNT,
};

#define BIT(name) VERB_BIT(H_##name)
#define A_NAME	  "the name of a heap: 'stag heap show' lists them"
#define A_PERHAPS "perhaps the name of a heap"

static const struct heap_verb {
	struct verb verb;
	int (*run)(const struct heap_options *o);
} verbs[] = {
	{{"show", A_PERHAPS, 0, 1, BIT(BLOCKS) | BIT(CHECK) | BIT(JSON),
	  "Shows all heaps, or one: its memory, its processes and what they own.",
	  "stag heap show cache --check"},
	 show},
	{{"top", A_PERHAPS, 0, 1, BIT(INTERVAL) | BIT(COUNT) | BIT(JSON),
	  "Shows the processes of all heaps, or of one, again and again.",
	  "stag heap top --interval 2"},
	 top},
	{{"reap", A_NAME, 1, 1, BIT(SHARED) | BIT(JSON),
	  "Gives back what processes that have died had allocated.",
	  "stag heap reap cache --shared"},
	 reap},
	{{"trim", A_NAME, 1, 1, BIT(JSON),
	  "Gives blocks back to the system that are empty and nobody's.", "stag heap trim cache"},
	 trim},
	{{"rm", A_NAME, 1, 1, BIT(FORCE) | BIT(JSON), "Removes a heap that was left behind.",
	  "stag heap rm cache"},
	 rm},
};

static const struct option long_options[] = {
	{"blocks", no_argument, NULL, H_BLOCKS},
	{"check", no_argument, NULL, H_CHECK},
	{"json", no_argument, NULL, H_JSON},
	{"shared", no_argument, NULL, H_SHARED},
	{"force", no_argument, NULL, H_FORCE},
	{"interval", required_argument, NULL, H_INTERVAL},
	{"count", required_argument, NULL, H_COUNT},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static bool take_option(void *to, int name, char *text)
{
	struct heap_options *o = to;
	bool *flags[] = {&o->blocks, &o->check, &o->json, &o->shared, &o->force};

	if (name == H_INTERVAL)
		return rhythm_interval(text, &o->interval);
	if (name == H_COUNT)
		return rhythm_count(text, &o->count);
	*flags[name - H_BLOCKS] = true;
	return true;
}

static int run_verb(const struct command *self, const struct heap_verb *v, int argc, char **argv)
{
	static const struct verb_options options = {long_options, take_option};
	struct heap_options o = {.interval = 1};
	int rc;

	if (!verb_parse(self, &v->verb, &options, &o, argc, argv, &rc))
		return rc;
	o.name = argv[optind];
	if (!o.name && (o.blocks || o.check)) {
		complain("of which heap? 'stag heap show' lists them");
		return usage_error(self);
	}
	return v->run(&o);
}

static int heap(const struct command *self, int argc, char **argv)
{
	int rc = EXIT_USAGE;
	const char *name = verb_given(self, "show, top, reap, trim or rm?", argc, argv, &rc);
	const struct heap_verb *v =
		name ? verb_find(self, name, verbs, sizeof(verbs) / sizeof(*verbs), sizeof(*verbs))
		     : NULL;

	return v ? run_verb(self, v, argc - 1, argv + 1) : name ? EXIT_USAGE : rc;
}

const struct command heap_command = {"heap", "look after registered heaps (stag_heap(7))",
				     help_text, heap, NULL};
