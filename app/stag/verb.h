/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verb.h - the second word of a command, and what may stand behind it.
 */
#ifndef STAG_APP_VERB_H
#define STAG_APP_VERB_H

#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>

struct command;

#define VERB_OPTION    256 /* a command numbers its options from here on */
#define VERB_BIT(name) (1ull << ((name)-VERB_OPTION))

struct verb {
	const char *name;
	const char *wants; /* its arguments, in words */
	int least, most;   /* how many they are */
	uint64_t options;  /* VERB_BIT() of those that it has */
};

/* Of all verbs of a command. */
struct verb_options {
	const struct option *table;		      /* by their numbers, then help ('h') */
	bool (*take)(void *to, int name, char *text); /* false: having complained */
};

/* The word behind the command's. NULL: there is none, and the question was asked, or it was --help; *rc is how the command ends. */
const char *verb_given(const struct command *self, const char *question, int argc, char **argv,
		       int *rc);

/*
 * All options to take(), then the arguments are from argv[optind] on; argv[0] is the verb. false: *rc is how the
 * command ends.
 */
bool verb_parse(const struct command *self, const struct verb *v, const struct verb_options *o,
		void *to, int argc, char **argv, int *rc);

#endif
