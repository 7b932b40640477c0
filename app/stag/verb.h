/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verb.h - the second word of a command, what may stand behind it, and how it explains itself.
 *
 * One grammar for all: stag NOUN VERB, with options before, between and behind the arguments. A noun's help has all of its
 * verbs: "usage:" and their lines, what it is about, its options, examples. That of a verb is cut out of it, so that
 * nothing is said twice.
 */
#ifndef STAG_APP_VERB_H
#define STAG_APP_VERB_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct command;

#define VERB_OPTION    256 /* a command numbers its options from here on */
#define VERB_BIT(name) (1ull << ((name)-VERB_OPTION))

struct verb {
	const char *name;  /* "": the command has no verbs, and explains itself */
	const char *wants; /* its arguments, in words */
	int least, most;   /* how many they are */
	uint64_t options;  /* VERB_BIT() of those that it has */
	const char *does;  /* one sentence */
	const char *example;
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
 * The verb of that name in a table of n entries, size bytes apart, which begin with a struct verb. NULL: it was said that there is
 * none, which there are, and which was perhaps meant.
 */
const void *verb_find(const struct command *self, const char *name, const void *table, size_t n,
		      size_t size);

/*
 * All options to take(), then the arguments are from argv[optind] on; argv[0] is the verb. false: *rc is how the
 * command ends.
 */
bool verb_parse(const struct command *self, const struct verb *v, const struct verb_options *o,
		void *to, int argc, char **argv, int *rc);

/* As getopt_long(), but '?' has been explained in our words: called is whose options these are, "stag info". */
int verb_option(const char *called, int argc, char **argv, const char *shorts,
		const struct option *table);

#endif
