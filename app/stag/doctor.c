// SPDX-License-Identifier: BSD-2-Clause
/*
 * doctor.c - stag doctor: prints the findings of app/doctor as text or JSON.
 */
#include "doctor.h"

#include <string.h>

#include "colour.h"
#include "stag.h"
#include "store.h"

static const char *text_of(const json_t *finding, const char *key)
{
	const char *text = json_string_value(json_object_get(finding, key));

	return text ? text : "";
}

static enum colour colour_of(const char *level)
{
	return !strcmp(level, "fault")	   ? COLOUR_RED
	       : !strcmp(level, "warning") ? COLOUR_YELLOW
	       : !strcmp(level, "note")	   ? COLOUR_CYAN
					   : COLOUR_GREEN;
}

/* Prints text in lines of 100 columns, broken between words. */
static void print_wrapped(const char *text)
{
	const size_t indent = 30, room = 100 - indent;

	while (*text) {
		size_t n = strlen(text), at = n;

		if (n > room)
			for (at = room; at > 0 && text[at] != ' '; at--)
				;
		at = at ? at : n;
		printf("%*s%.*s\n", (int)indent, "", (int)at, text);
		text += at + strspn(text + at, " ");
	}
}

static void print_finding(const json_t *f)
{
	const char *level = text_of(f, "level"), *next = text_of(f, "next");

	printf("  %s%-7s%s  %-18s %s\n", colour(colour_of(level)), level, colour(COLOUR_NONE),
	       text_of(f, "subject"), text_of(f, "found"));
	print_wrapped(text_of(f, "means"));
	if (*next)
		printf("                           -> %s\n", next);
}

static void print_all(const json_t *all, bool quiet)
{
	const char *area = "";
	const json_t *f;
	size_t i;

	json_array_foreach (json_object_get(all, "findings"), i, f) {
		if (quiet && !strcmp(text_of(f, "level"), "good"))
			continue;
		if (strcmp(area, text_of(f, "area")) != 0)
			printf("%s%s\n", *area ? "\n" : "", text_of(f, "area"));
		area = text_of(f, "area");
		print_finding(f);
	}
}

static int count_of(const json_t *all, const char *level)
{
	return (int)json_integer_value(json_object_get(json_object_get(all, "counts"), level));
}

struct options {
	bool quiet, json;
};

static int print_report(const struct options *o)
{
	json_t *all = doctor_examine();
	int faults = count_of(all, "fault");

	if (o->json) {
		store_dump(all);
		return faults ? EXIT_FAILED : EXIT_OK;
	}
	print_all(all, o->quiet);
	if (!o->quiet || faults || count_of(all, "warning") || count_of(all, "note"))
		printf("%s%d good, %d notes, %d warnings, %d faults\n", o->quiet ? "" : "\n",
		       count_of(all, "good"), count_of(all, "note"), count_of(all, "warning"),
		       faults);
	json_decref(all);
	return faults ? EXIT_FAILED : EXIT_OK;
}

static const struct cli_option doctor_options[] = {
	{"quiet", CLI_FLAG_AT(struct options, quiet), .help = "only findings that are not good"},
	{"json", CLI_FLAG_AT(struct options, json), .help = "all findings as a JSON document"},
	{0},
};

static const struct cli_verb doctor_verb = {.name = ""};

static const struct cli_noun doctor_noun = {
	.call = "stag doctor",
	.name = "doctor",
	.summary = "check this machine: what it has, and what stag uses of it",
	.about = "Shows what this machine has, what stag uses of it, and why it does not use "
		 "something better: daemons, adapters, kernel, limits, io_uring, "
		 "network, ports, directories. Changes nothing.",
	.notes = "A finding is good; or a note: stag does something else than it could; or a "
		 "warning: it works, but worse than it should; or a fault: something does not work "
		 "here. After -> is what to do about it. Exit code 1 if there are faults.",
	.examples = "stag doctor\n"
		    "stag doctor --json | jq '.findings[] | select(.level == \"fault\")'",
	.verbs = &doctor_verb,
	.num_verbs = 1,
	.options = doctor_options,
};

static int run_doctor(const struct command *self, int argc, char **argv)
{
	struct options o = {0};
	struct cli_call call;
	int rc;

	return cli_parse(&doctor_noun, argc, argv, &o, &call, &rc) ? print_report(&o) : rc;
}

const struct command doctor_command = {.noun = &doctor_noun, .run = run_doctor};
