// SPDX-License-Identifier: BSD-2-Clause
/*
 * verb.c - the second word of a command, and what may stand behind it.
 */
#include "verb.h"

#include <string.h>

#include "stag.h"

const char *verb_given(const struct command *self, const char *question, int argc, char **argv,
		       int *rc)
{
	if (argc < 2) {
		complain("%s", question);
		*rc = usage_error(self);
		return NULL;
	}
	if (strcmp(argv[1], "--help") != 0 && strcmp(argv[1], "-h") != 0)
		return argv[1];
	fputs(self->help, stdout);
	*rc = EXIT_OK;
	return NULL;
}

/* false: that was the last one, or the command ends with *rc. */
static bool parse_one(const struct command *self, const struct verb *v,
		      const struct verb_options *o, void *to, int c, int *rc)
{
	if (c == 'h') {
		fputs(self->help, stdout);
		*rc = EXIT_OK;
		return false;
	}
	*rc = EXIT_USAGE;
	if (c == '?')
		return false;
	if (v->options & VERB_BIT(c))
		return o->take(to, c, optarg);
	complain("stag %s %s has no option --%s", self->name, v->name,
		 o->table[c - VERB_OPTION].name);
	return false;
}

bool verb_parse(const struct command *self, const struct verb *v, const struct verb_options *o,
		void *to, int argc, char **argv, int *rc)
{
	char *first = argv[0], called[64];
	bool good = true;
	int c;

	snprintf(called, sizeof(called), "stag %s", self->name);
	argv[0] = called; /* getopt_long() says so */
	while (good && (c = getopt_long(argc, argv, "h", o->table, NULL)) != -1)
		good = parse_one(self, v, o, to, c, rc);
	argv[0] = first;
	if (good && (argc - optind < v->least || argc - optind > v->most)) {
		complain("stag %s %s wants %s", self->name, v->name, v->wants);
		*rc = EXIT_USAGE;
		good = false;
	}
	if (!good && *rc == EXIT_USAGE)
		usage_error(self);
	return good;
}
