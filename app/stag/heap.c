// SPDX-License-Identifier: BSD-2-Clause
/*
 * heap.c - stag heap: its command line, and the verbs that change a heap: reap, trim and rm.
 */
#include "heap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stag.h"

struct heap_options {
	const char *name; /* of a heap; NULL: not given */
	bool blocks, check, json, shared, force;
	double interval;
	uint64_t count;
};

/* ---- show ---------------------------------------------------------------------- */

static void print_json(json_t *o)
{
	json_dumpf(o, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	puts("");
	json_decref(o);
}

static int show_all(const struct heap_options *o)
{
	size_t n, hidden;
	struct heap_view *views = heap_view_all(&n, &hidden);
	json_t *heaps;

	if (!views) {
		complain("%s", strerror(ENOMEM));
		return EXIT_FAILED;
	}
	if (o->json) {
		heaps = json_array();
		for (size_t i = 0; i < n; i++)
			json_array_append_new(heaps, heap_json(&views[i]));
		print_json(json_pack("{s:s s:o s:I}", "version", STAG_VERSION, "heaps", heaps,
				     "hidden", (json_int_t)hidden));
	} else {
		heap_print_list(views, n);
		if (hidden)
			printf("%zu heaps of other users are not shown; name one: OWNER/NAME\n",
			       hidden);
	}
	for (size_t i = 0; i < n; i++)
		heap_view_clear(&views[i]);
	free(views);
	return EXIT_OK;
}

static int read_heap(struct heap_view *view, const char *name, unsigned int flags)
{
	int rc = heap_view_take(view, name, flags);

	if (rc)
		complain_for(-rc, name, "%s", view->error ? view->error : strerror(-rc));
	return rc;
}

static int heap_show(const struct heap_options *o)
{
	unsigned int flags = (o->blocks ? VIEW_BLOCKS : 0) | (o->check ? VIEW_CHECK : 0);
	struct heap_view view;
	int rc;

	if (!o->name)
		return show_all(o);
	rc = read_heap(&view, o->name, flags) ? EXIT_FAILED : EXIT_OK;
	if (rc == EXIT_OK) {
		if (o->json)
			print_json(heap_json(&view));
		else
			heap_print(&view);
		rc = view.faults > 0 ? EXIT_FAILED : EXIT_OK;
	}
	heap_view_clear(&view);
	return rc;
}

static int heap_show_top(const struct heap_options *o)
{
	return heap_top(o->name, o->interval, o->count, o->json);
}

/* ---- verbs that change a heap ---------------------------------------------------------- */

static int memory_of(const char *name, uint64_t *bytes)
{
	struct heap_view view;
	int rc = read_heap(&view, name, 0);

	*bytes = view.stats.block_bytes;
	heap_view_clear(&view);
	return rc;
}

/*
 * Runs what() on a heap, and prints how much memory it freed. That is measured around the attachment, which frees the
 * memory of dead processes itself.
 */
static int change_heap(const struct heap_options *o,
		       uint64_t (*what)(struct stag_heap *, unsigned int), unsigned int flags)
{
	const char *name = o->name;
	uint64_t before, after;
	struct stag_heap *heap;
	char text[16];

	if (memory_of(name, &before))
		return EXIT_FAILED;
	heap = heap_view_attach(name);
	if (!heap) {
		complain_for(errno, name, "%s", stag_heap_error());
		return EXIT_FAILED;
	}
	what(heap, flags);
	stag_heap_detach(heap, true);
	if (memory_of(name, &after))
		return EXIT_FAILED;
	before -= before > after ? after : before;
	if (o->json)
		print_json(json_pack("{s:s s:I}", "name", name, "given_back_bytes",
				     (json_int_t)before));
	else
		printf("%s freed\n", heap_size_word(before, text, sizeof(text)));
	return EXIT_OK;
}

static int heap_reap(const struct heap_options *o)
{
	return change_heap(o, stag_heap_reap, o->shared ? STAG_HEAP_REAP_SHARED : 0);
}

static uint64_t trim_heap(struct stag_heap *heap, unsigned int flags)
{
	return stag_heap_trim(heap);
}

static int heap_trim(const struct heap_options *o)
{
	return change_heap(o, trim_heap, 0);
}

static int count_living(const char *name, uint64_t *living)
{
	struct heap_view view;
	int rc = read_heap(&view, name, 0);

	*living = view.stats.processes - view.stats.dead_processes;
	heap_view_clear(&view);
	return rc;
}

static int heap_rm(const struct heap_options *o)
{
	uint64_t living;
	int rc;

	if (!o->force) {
		if (count_living(o->name, &living))
			return EXIT_FAILED;
		if (living) {
			complain_for(
				EBUSY, o->name,
				"heap %s: %llu process%s it attached, see 'stag heap show %s'; "
				"--force removes only the name",
				o->name, (unsigned long long)living,
				living == 1 ? " has" : "es have", o->name);
			return EXIT_FAILED;
		}
	}
	rc = stag_heap_unlink(o->name);
	if (rc) {
		complain_for(rc, o->name, "%s", stag_heap_error());
		return EXIT_FAILED;
	}
	if (o->json)
		print_json(json_pack("{s:s}", "removed", o->name));
	return EXIT_OK;
}

/* ---- the command line --------------------------------------------------------------- */

static const struct cli_option heap_table[] = {
	{"blocks", .verbs = "show", CLI_FLAG_AT(struct heap_options, blocks),
	 .help = "also every block: blockId, address, size, owner, allocations"},
	{"check", .verbs = "show", CLI_FLAG_AT(struct heap_options, check),
	 .help = "look for faults; exit code 1 if there are any"},
	{"interval", .value = "S", .verbs = "top",
	 CLI_SECONDS_AT(struct heap_options, interval, 0.01, 86400),
	 .help = "seconds between two updates (1)"},
	{"count", .value = "N", .verbs = "top",
	 CLI_NUMBER_AT(struct heap_options, count, 1, UINT64_MAX), .help = "end after N updates"},
	{"shared", .verbs = "reap", CLI_FLAG_AT(struct heap_options, shared),
	 .help = "also free what the dead processes had shared"},
	{"force", .verbs = "rm", CLI_FLAG_AT(struct heap_options, force),
	 .help = "although processes have the heap attached: they keep it, without its name"},
	{"json", CLI_FLAG_AT(struct heap_options, json),
	 .help = "for programs; of top, one line for each update"},
	{0},
};

static const struct heap_verb {
	struct cli_verb cli;
	int (*run)(const struct heap_options *o);
} heap_verbs[] = {
	{{"show", .args = "[NAME]",
	  .summary = "Shows all heaps, or one: its memory, its processes and what they own.",
	  .example = "stag heap show cache --check"},
	 heap_show},
	{{"top", .args = "[NAME]",
	  .summary = "Shows the processes of all heaps, or of one, and updates it.",
	  .example = "stag heap top --interval 2"},
	 heap_show_top},
	{{"reap", .args = "NAME", .summary = "Frees what dead processes had allocated.",
	  .example = "stag heap reap cache --shared"},
	 heap_reap},
	{{"trim", .args = "NAME",
	  .summary = "Returns blocks to the system that are empty and have no owner.",
	  .example = "stag heap trim cache"},
	 heap_trim},
	{{"rm", .args = "NAME", .summary = "Removes a heap that was left behind.",
	  .example = "stag heap rm cache"},
	 heap_rm},
};

static int offer_heap(const char *name, void *words)
{
	cli_offer(words, name, NULL);
	return 0;
}

static void list_heaps(struct cli_words *w, char *const *args)
{
	stag_heap_list(offer_heap, w);
}

static const struct cli_argument heap_arguments[] = {
	{"NAME", "of a heap; 'stag heap show' lists them", CLI_TEXT, .list = list_heaps},
	{0},
};

static const struct cli_noun heap_noun = {
	.call = "stag heap",
	.name = "heap",
	.summary = "manage registered heaps (stag_heap(7))",
	.about = "Manages the registered heaps (stag_heap(7)) of this machine: memory that several "
		 "processes allocate from. show and top change nothing.",
	.examples = "stag heap show\nstag heap top cache --interval 2",
	CLI_VERBS(heap_verbs),
	.options = heap_table,
	.arguments = heap_arguments,
};

static int run_heap(const struct command *self, int argc, char **argv)
{
	struct heap_options o = {.interval = 1};
	struct cli_call call;
	int rc;

	if (!cli_parse(&heap_noun, argc, argv, &o, &call, &rc))
		return rc;
	o.name = call.args[0];
	if (!o.name && (o.blocks || o.check)) {
		complain("--blocks and --check need the name of a heap; 'stag heap show' lists "
			 "them");
		return EXIT_USAGE;
	}
	return ((const struct heap_verb *)call.verb)->run(&o);
}

const struct command heap_command = {.noun = &heap_noun, .run = run_heap};
