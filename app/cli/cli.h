/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cli.h - a command line described by one table.
 *
 * One grammar for all commands: stag NOUN VERB, with options before, between and after the arguments. A noun is a
 * struct cli_noun: its verbs, its options, its arguments. The parser, --help of the noun and of each verb, the
 * suggestions for misspelt words and the completions of bash, zsh and fish all come from it, so adding an option is
 * adding a row:
 *
 *	{"depth", .value = "N", .verbs = "bench", CLI_NUMBER_AT(struct store_options, depth, 1, 4096),
 *	 .help = "operations in flight (32)"},
 */
#ifndef STAG_APP_CLI_H
#define STAG_APP_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "exit_code.h"

/* ---- the table ------------------------------------------------------------------------------ */

/* The type of a value: how it is parsed, where it is stored, and how a shell completes it. */
enum cli_type {
	CLI_FLAG,      /* bool, set to true; no value */
	CLI_CLEAR,     /* bool, set to false; no value */
	CLI_TEXT,      /* const char * */
	CLI_FILE,      /* const char *: the name of a file */
	CLI_DIRECTORY, /* const char * */
	CLI_USER,      /* const char *: a user of this machine */
	CLI_HOST,      /* const char * */
	CLI_WORD,      /* const char *: one of `words` */
	CLI_NUMBER,  /* uint16_t, uint32_t or uint64_t from `min` to `max`; 0x... is hexadecimal */
	CLI_SIZE,    /* uint64_t, bytes from `min` to `max`: 4096, 512K, 1G */
	CLI_SECONDS, /* double from `min_seconds` to `max_seconds` */
};

struct cli_words;

/* Adds the words that a value may have now, by cli_offer(). args: the arguments so far, ended by NULL. */
typedef void (*cli_list_fn)(struct cli_words *w, char *const *args);

/* A row. Several rows may have one name, if no verb has two of them. */
struct cli_option {
	const char *name;  /* without "--"; NULL: a heading, which is `help` */
	const char *alias; /* another name that is accepted and not documented */
	char letter;	   /* of the short form; 0: none */
	const char *value; /* placeholder of the value; NULL: the option takes none */
	const char *verbs; /* that have it, divided by spaces; NULL: all of the noun */
	const char *help;  /* wrapped when it is printed */
	enum cli_type type;
	size_t at, width; /* of the field in the noun's option struct; see the macros below */
	uint64_t min, max;
	double min_seconds, max_seconds;
	const char *words; /* divided by spaces: of CLI_WORD; of other types, for completion only */
	bool repeats;	   /* may be given several times; needs `parse` */
	bool common;	   /* the noun's help does not repeat it for each verb: [OPTION]... */
	/* Stores the value, instead of the type's rule. Returns false after it has complained. */
	bool (*parse)(void *to, const struct cli_option *o, char *text);
	cli_list_fn list; /* for completion, besides `words` */
};

/* offsetof(), which does not compile if the field is not a `type`. */
#define CLI_OFFSET(s, field, type) (offsetof(s, field) + 0 * sizeof((type *)0 == &((s *)0)->field))

#define CLI_STORE(kind, s, field, c_type)                                                          \
	.type = kind, .at = CLI_OFFSET(s, field, c_type), .width = sizeof(c_type)
#define CLI_FLAG_AT(s, field)	   CLI_STORE(CLI_FLAG, s, field, bool)
#define CLI_CLEAR_AT(s, field)	   CLI_STORE(CLI_CLEAR, s, field, bool)
#define CLI_TEXT_AT(s, field)	   CLI_STORE(CLI_TEXT, s, field, const char *)
#define CLI_FILE_AT(s, field)	   CLI_STORE(CLI_FILE, s, field, const char *)
#define CLI_DIRECTORY_AT(s, field) CLI_STORE(CLI_DIRECTORY, s, field, const char *)
#define CLI_HOST_AT(s, field)	   CLI_STORE(CLI_HOST, s, field, const char *)
#define CLI_WORD_AT(s, field, list_of_words)                                                       \
	CLI_STORE(CLI_WORD, s, field, const char *), .words = list_of_words
#define CLI_NUMBER_AT(s, field, least, most)                                                       \
	.type = CLI_NUMBER, .at = offsetof(s, field), .width = sizeof(((s *)0)->field),            \
	.min = least, .max = most
#define CLI_SIZE_AT(s, field, least, most)                                                         \
	CLI_STORE(CLI_SIZE, s, field, uint64_t), .min = least, .max = most
#define CLI_SECONDS_AT(s, field, least, most)                                                      \
	CLI_STORE(CLI_SECONDS, s, field, double), .min_seconds = least, .max_seconds = most

/* A placeholder in the usage of verbs. */
struct cli_argument {
	const char *name; /* "PATH" */
	const char *help; /* NULL: needs no explanation */
	enum cli_type type;
	const char *words;
	cli_list_fn list;
};

struct cli_verb {
	const char *name; /* "": the noun has no verbs, this is the noun itself */
	/*
	 * Usage after the verb: "PATH [PARTITION] --size SIZE". Says how many arguments there are, which options are
	 * required or exclude each other, and, by the placeholders, what completes. A second usage follows a '\n'.
	 * Options of the verb that are not in it are added as [--name VALUE], unless it has [OPTION]... itself.
	 */
	const char *args;
	const char *summary; /* one sentence */
	const char *example; /* a command line */
	bool program;	     /* the first argument is a command with options of its own */
	const char *alias;   /* other names that are accepted, divided by spaces; or NULL */
	const char *excess;  /* advice, when there are more arguments than it takes; or NULL */
};

struct cli_noun {
	const char *call;     /* as it is typed: "stag store"; "": verbs are typed alone */
	const char *name;     /* "store" */
	const char *summary;  /* for the list of nouns; begins with a verb, lower case */
	const char *about;    /* paragraphs, divided by '\n' */
	const char *notes;    /* printed after the options, or NULL */
	const char *examples; /* command lines, divided by '\n' */
	const struct cli_verb *verbs;
	size_t verb_size; /* distance of the verbs: each may begin a larger struct */
	size_t num_verbs;
	const char *default_verb;	      /* if none is given; NULL: one is required */
	const struct cli_option *options;     /* ended by {0} */
	const struct cli_argument *arguments; /* ended by {0}, or NULL */
};

/* The three fields of an array of structs that begin with `struct cli_verb cli`. */
#define CLI_VERBS(array)                                                                           \
	.verbs = &(array)[0].cli, .verb_size = sizeof((array)[0]),                                 \
	.num_verbs = sizeof(array) / sizeof((array)[0])

/* table.c */
const struct cli_verb *cli_verb_at(const struct cli_noun *n, size_t i);
const struct cli_verb *cli_find_verb(const struct cli_noun *n, const char *name); /* or NULL */
bool cli_has_verbs(const struct cli_noun *n);
bool cli_verb_has(const struct cli_verb *v, const struct cli_option *o);
const struct cli_argument *cli_find_argument(const struct cli_noun *n, const char *name);
bool cli_is_end(const struct cli_option *o);			      /* {0}, and not a heading */
bool cli_list_has(const char *list, const char *word, size_t length); /* divided by spaces */

/* An element of a verb's usage, up to a space outside of brackets: "[FILE | --value TEXT]". */
struct cli_token {
	const char *text;
	size_t length;
	bool first;   /* of a usage */
	bool option;  /* and not an argument */
	bool needed;  /* cannot be left off */
	bool endless; /* ends with "..." */
	char placeholder[32];
};
/* Moves *at to the next element. Returns false at the end. */
bool cli_next_token(const struct cli_noun *n, const char **at, struct cli_token *t);

/* Counts the arguments that a verb takes; *most is INT_MAX if there is no limit. */
void cli_count_arguments(const struct cli_noun *n, const struct cli_verb *v, int *least, int *most);

/*
 * valid.c: checks a table for mistakes that the compiler does not see: a verb that does not exist, an option in a usage that
 * is not in the table, a name that a verb has twice. Prints the first to stderr. cli_parse() asserts it.
 */
bool cli_is_valid(const struct cli_noun *n);

/* ---- parsing -------------------------------------------------------------------------------- */

struct cli_call {
	const struct cli_verb *verb;
	char **args; /* in argv */
	int num_args;
};

/*
 * parse.c: parses argv, whose first word is the noun, into `to`, the noun's option struct, which holds the defaults.
 * Returns false if the command is over (help was printed, or an error): *rc is then its exit code.
 */
bool cli_parse(const struct cli_noun *n, int argc, char **argv, void *to, struct cli_call *call,
	       int *rc);

/*
 * Ends a command: prints "Try 'stag help store add'." for the noun and verb that cli_parse() saw last if rc is EXIT_USAGE.
 * Returns the exit code, which may be more precise than rc (complain_end()).
 */
int cli_end(int rc);

/*
 * words.c: divides a line into at most room - 1 words, in place, and ends the list by NULL. Words are quoted as for a shell; #
 * begins a comment. Returns their number, or -1 after it has complained.
 */
int cli_split(char *line, char **words, int room);

/* value.c: parses and stores one value. Returns false after it has complained. */
bool cli_store_value(void *to, const struct cli_option *o, char *text);

/* help.c; verb NULL: of the noun */
void cli_print_help(const struct cli_noun *n, const struct cli_verb *v);
/* Prints text in lines of 80 columns, which begin at `column`; the first line is there already. */
void cli_print_wrapped(FILE *out, const char *text, size_t column);

/* ---- completion ----------------------------------------------------------------------------- */

/* complete.c: words: what follows the noun; the last one is to be completed. before: how many are in front of these. */
void cli_complete(const struct cli_noun *n, int num_words, char **words, int before);
/* Prints a word if it begins as what is to be completed does; help may be NULL. */
void cli_offer(struct cli_words *w, const char *word, const char *help);
void cli_offer_list(struct cli_words *w, const char *words); /* divided by spaces */
/* Receives what cli_complete() offers, instead of standard output: words, and lines such as ":files". */
extern void (*cli_offer_to)(const char *word);
/* Runs this program with these arguments, 2 s at most. Returns what it prints, which the caller frees, or NULL. */
char *cli_run(char *const *argv);
void cli_offer_output(struct cli_words *w,
		      char *const *argv); /* the first word of each line of it */

struct cli_words {
	const char *typed;  /* what is to be completed */
	const char *prefix; /* "--name=", which is a part of the word */
	bool open;	    /* a word was offered that goes on: no space follows it */
};

/* completion.c: the script that calls the above; NULL: there is none for that shell */
const char *cli_completion_script(const char *shell);

/* ---- programs ------------------------------------------------------------------------------- */

/*
 * program.c: main() of a program with one noun. Handles --complete, then calls run(), and prints the hint if that
 * returns EXIT_USAGE.
 */
int cli_main(const struct cli_noun *n, int (*run)(int argc, char **argv), int argc, char **argv);

#endif
