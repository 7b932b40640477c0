// SPDX-License-Identifier: BSD-2-Clause
/*
 * heap.c - stag heap: its command line, and what changes a heap: reap, trim and rm.
 */
#include "heap.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "stag.h"
#include "verb.h"

static const char help_text[] =
	"usage: stag heap show [NAME] [--blocks] [--check] [--json]\n"
	"       stag heap top [NAME] [--interval S] [--count N] [--json]\n"
	"       stag heap reap NAME [--shared]\n"
	"       stag heap trim NAME\n"
	"       stag heap rm NAME [--force]\n\n"
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
	"  -h, --help\n";

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
static int change(const char *name, uint64_t (*what)(struct stag_heap *, unsigned int),
		  unsigned int flags)
{
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
	printf("%s given back\n",
	       heap_size_word(before > after ? before - after : 0, text, sizeof(text)));
	return EXIT_OK;
}

static int reap(const struct heap_options *o)
{
	return change(o->name, stag_heap_reap, o->shared ? STAG_HEAP_REAP_SHARED : 0);
}

static uint64_t trim_heap(struct stag_heap *heap, unsigned int flags)
{
	return stag_heap_trim(heap);
}

static int trim(const struct heap_options *o)
{
	return change(o->name, trim_heap, 0);
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
	return EXIT_OK;
}

/* ---- the command line --------------------------------------------------------------- */

static const struct action {
	const char *name;
	int (*run)(const struct heap_options *o);
	const char *options; /* letters of long_options */
	bool wants_name;
} actions[] = {
	{"show", show, "bcj", false}, {"top", top, "inj", false}, {"reap", reap, "s", true},
	{"trim", trim, "", true},     {"rm", rm, "f", true},
};

static const struct option long_options[] = {
	{"help", no_argument, NULL, 'h'},
	{"blocks", no_argument, NULL, 'b'},
	{"check", no_argument, NULL, 'c'},
	{"json", no_argument, NULL, 'j'},
	{"interval", required_argument, NULL, 'i'},
	{"count", required_argument, NULL, 'n'},
	{"shared", no_argument, NULL, 's'},
	{"force", no_argument, NULL, 'f'},
	{0},
};

static const struct action *find_action(const char *name)
{
	for (size_t i = 0; i < sizeof(actions) / sizeof(*actions); i++)
		if (strcmp(actions[i].name, name) == 0)
			return &actions[i];
	return NULL;
}

static bool set_interval(struct heap_options *o, const char *text)
{
	char *end;

	o->interval = strtod(text, &end);
	if (end != text && !*end && o->interval >= 0.01 && o->interval <= 86400)
		return true;
	complain("--interval wants seconds, from 0.01 on, not '%s'", text);
	return false;
}

static bool set_count(struct heap_options *o, const char *text)
{
	char *end;

	o->count = strtoull(text, &end, 10);
	if (end != text && !*end && *text != '-' && o->count)
		return true;
	complain("--count wants a number from 1 on, not '%s'", text);
	return false;
}

static bool take_option(const struct action *action, struct heap_options *o, int c, int which)
{
	if (c == '?')
		return false;
	if (!strchr(action->options, c)) {
		complain("--%s is not for 'stag heap %s'", long_options[which].name, action->name);
		return false;
	}
	switch (c) {
	case 'b':
		return o->blocks = true;
	case 'c':
		return o->check = true;
	case 'j':
		return o->json = true;
	case 's':
		return o->shared = true;
	case 'f':
		return o->force = true;
	case 'i':
		return set_interval(o, optarg);
	case 'n':
		return set_count(o, optarg);
	}
	return false;
}

static int act(const struct command *self, const struct action *action, int argc, char **argv)
{
	struct heap_options o = {.interval = 1};
	int c, which = 0;

	argv[0] = "stag heap"; /* getopt_long() says so */
	while ((c = getopt_long(argc, argv, "h", long_options, &which)) != -1) {
		if (c == 'h') {
			fputs(self->help, stdout);
			return EXIT_OK;
		}
		if (!take_option(action, &o, c, which))
			return usage_error(self);
	}
	o.name = argv[optind];
	if (optind + 1 < argc) {
		complain("what is '%s' for?", argv[optind + 1]);
		return usage_error(self);
	}
	if (!o.name && (action->wants_name || o.blocks || o.check)) {
		complain("of which heap? 'stag heap show' lists them");
		return usage_error(self);
	}
	return action->run(&o);
}

static int heap(const struct command *self, int argc, char **argv)
{
	int rc;
	const char *name = verb_given(self, "show, top, reap, trim or rm?", argc, argv, &rc);
	const struct action *action;

	if (!name)
		return rc;
	action = find_action(name);
	if (!action) {
		complain("no '%s': show, top, reap, trim or rm?", name);
		return usage_error(self);
	}
	return act(self, action, argc - 1, argv + 1);
}

const struct command heap_command = {"heap", "look after registered heaps (stag_heap(7))",
				     help_text, heap};
