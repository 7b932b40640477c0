// SPDX-License-Identifier: BSD-2-Clause
/*
 * store.c - stag store: its command line.
 *
 * serve, read, write and bench need the software adapter in this process: if it is not loaded, the command executes
 * itself again with it.
 */
#include <string.h>

#include "load.h"
#include "stag.h"
#include "store.h"
#include "store_options.h"

/* ---- values with rules of their own ---- */

static bool parse_partition(void *to, const struct cli_option *option, char *text)
{
	struct store_options *o = to;
	const char *equals = strchr(text, '=');

	if (!equals || equals == text || !equals[1]) {
		complain("--partition must be NAME=SIZE, not '%s'", text);
		return false;
	}
	if (o->num_partitions == STORE_MAX_FIRST) {
		complain("--partition: at most %d at once; 'stag store add' adds more",
			 STORE_MAX_FIRST);
		return false;
	}
	o->partitions[o->num_partitions++] = text;
	return true;
}

static bool parse_order(void *to, const struct cli_option *option, char *text)
{
	struct store_options *o = to;

	o->what |= STAG_STORE_CHANGE_RELAX;
	return store_parse_order(text, &o->p.relax);
}

static bool parse_level(void *to, const struct cli_option *option, char *text)
{
	struct store_options *o = to;

	o->what |= STAG_STORE_CHANGE_LEVEL;
	return store_parse_level(text, &o->p.level);
}

static bool parse_cache(void *to, const struct cli_option *option, char *text)
{
	struct store_options *o = to;

	o->what |= STAG_STORE_CHANGE_CACHE;
	return store_parse_cache(text, &o->p.cache_ms);
}

static bool parse_right(void *to, const struct cli_option *option, char *text)
{
	struct store_options *o = to;

	o->what |= STAG_STORE_CHANGE_RIGHTS;
	return store_parse_right(text, &o->p);
}

/* ---- options ---- */

#define TEXT(field)	 CLI_TEXT_AT(struct store_options, field)
#define FLAG(field)	 CLI_FLAG_AT(struct store_options, field)
#define CUSTOM(parse_it) .type = CLI_TEXT, .parse = parse_it

static const struct cli_option store_table[] = {
	{"size", .value = "SIZE", .verbs = "format add set grow bench", TEXT(size),
	 .help = "4096, 512K, 10G. Of a partition also 50% of the store, max (the largest gap), "
		 "and with set +1G. Of a store: of the whole file. Of bench: of an operation (4K)"},
	{"block", .value = "BYTES", .verbs = "format", TEXT(block),
	 .help = "the unit of writing: a power of two, 512 to 65536 (4096)"},
	{"label", .value = "NAME", .verbs = "format", TEXT(label), .help = "name of the store"},
	{"partition", .value = "NAME=SIZE", .verbs = "format", CUSTOM(parse_partition),
	 .repeats = true, .help = "a partition to begin with; may repeat"},
	{"offset", .value = "BYTES", .verbs = "add read write", TEXT(offset),
	 .help = "where the partition begins in the store (where it fits best); of read and write: "
		 "where to begin in the partition (0)"},
	{"align", .value = "SIZE", .verbs = "add", TEXT(align),
	 .help = "alignment of the partition's offset: a power of two (the block)"},
	{"length", .value = "SIZE", .verbs = "read write", TEXT(length),
	 .help = "how much to read (the rest of the partition) or to write (all input)"},
	{"op", .value = "read|write|mix", .verbs = "bench",
	 CLI_WORD_AT(struct store_options, op, "read write mix"),
	 .help = "what to measure: read, write, or a mix of both (read)"},
	{"writes", .value = "PERCENT", .verbs = "bench",
	 CLI_NUMBER_AT(struct store_options, writes, 1, 99),
	 .help = "share of writes in a mix (50)"},
	{"depth", .value = "N", .verbs = "bench",
	 CLI_NUMBER_AT(struct store_options, depth, 1, LOAD_MAX_DEPTH),
	 .help = "operations in flight, of --size each (32)"},
	{"secs", .value = "S", .verbs = "bench",
	 CLI_SECONDS_AT(struct store_options, secs, 0.001, 86400),
	 .help = "how long to measure (1)"},
	{"random", .verbs = "bench", CLI_CLEAR_AT(struct store_options, sequential),
	 .help = "at random offsets (the default)"},
	{"sequential", .verbs = "bench", FLAG(sequential), .help = "at consecutive offsets"},
	{"order", .value = "ORDER", .verbs = "add set bench", CUSTOM(parse_order),
	 .words = "strict any writes reads later atomics completions processing",
	 .help = "strict, any, or what need not hold, with commas: writes, reads, later, atomics, "
		 "completions, processing (strict)"},
	{"level", .value = "LEVEL", .verbs = "add set bench", CUSTOM(parse_level),
	 .words = "visible accepted durable",
	 .help = "what a completed write has reached: visible, accepted or durable (visible)"},
	{"poll", .verbs = "bench", CLI_CLEAR_AT(struct store_options, sleep),
	 .help = "spin for completions (the default)"},
	{"sleep", .verbs = "bench", FLAG(sleep), .help = "wait for completion events"},
	{"cache", .value = "MS", .verbs = "add set", CUSTOM(parse_cache),
	 .help = "how long data that was read or written is kept in memory; 5s (0)"},
	{"allow", .value = "RIGHT", .verbs = "add set", CUSTOM(parse_right), .repeats = true,
	 .words = "user: group: local: net: remote: token: owner",
	 .help = "WHO:none, WHO:read or WHO:write; WHO is user:NAME, group:NAME, local, "
		 "net:ADDRESS/BITS, remote or token:FILE. The first that matches decides; if none "
		 "does, only the owner has access. set replaces all rights; 'owner' leaves none. "
		 "May repeat"},
	{"address", .value = "ADDRESS", .verbs = "serve", TEXT(address),
	 .help = "address to listen on (all)"},
	{"port", .value = "PORT", .verbs = "serve", TEXT(port),
	 .help = "port to listen on; 0: any free port (7174)"},
	{"token", .value = "FILE", .verbs = "read write bench",
	 CLI_FILE_AT(struct store_options, token),
	 .help = "file with the secret that grants access"},
	{"tls", .value = "MODE", .verbs = "serve",
	 CLI_WORD_AT(struct store_options, tls, "off allowed required"),
	 .help = "whether clients encrypt their connections: off, allowed or required (as STAG_TLS "
		 "says, or off)"},
	{"tls", .value = "MODE", .verbs = "read write bench",
	 CLI_WORD_AT(struct store_options, tls, "off required"),
	 .help = "encrypt the connection by a key derived from the token: off or required (off)"},
	{"force", .verbs = "format rm bench", FLAG(force),
	 .help = "format: overwrite existing data. rm: remove although it has data, or is in "
		 "use. bench: allow overwriting the data in the partition"},
	{"repair", .verbs = "check", FLAG(repair),
	 .help = "rewrite a bad copy of the table from the good one"},
	{"json", FLAG(json), .help = "for programs"},
	{0},
};

static void list_partitions(struct cli_words *w, char *const *args)
{
	struct stag_store *store = args[0] ? stag_store_open(args[0], STAG_STORE_LOOK) : NULL;
	struct stag_store_partition p;

	for (uint32_t i = 0; store && stag_store_next(store, &i, &p);)
		cli_offer(w, p.name, NULL);
	if (store)
		stag_store_close(store);
}

static const struct cli_argument store_arguments[] = {
	{"PATH", .help = "a file, a block device or mem:NAME", .type = CLI_FILE},
	{"PARTITION", .type = CLI_TEXT, .list = list_partitions},
	{"WHERE", .help = "PATH:PARTITION or HOST[:PORT]/PARTITION", .type = CLI_FILE},
	{"FILE", .help = "standard input or output if it is missing or -", .type = CLI_FILE},
	{0},
};

/* ---- verbs ---- */

static const struct store_verb {
	struct cli_verb cli;
	int (*run)(const struct store_options *o);
	enum { ALONE, WITH_ADAPTER } needs;
} store_verbs[] = {
	{{"format", .args = "PATH",
	  .summary = "Makes a file, a block device or memory a store, and shows the result.",
	  .example = "stag store format /srv/shop.img --size 10G --partition goods=4G --partition "
		     "log=max"},
	 store_format,
	 ALONE},
	{{"list", .args = "PATH", .summary = "Lists the partitions of a store.",
	  .example = "stag store list /srv/shop.img"},
	 store_list,
	 ALONE},
	{{"show", .args = "PATH [PARTITION]",
	  .summary =
		  "Shows a store and the process that serves it, or one partition and its rights.",
	  .example = "stag store show /srv/shop.img goods"},
	 store_show,
	 ALONE},
	{{"add", .args = "PATH NAME --size SIZE",
	  .summary = "Adds a partition, filled with zeroes.",
	  .example = "stag store add /srv/shop.img goods --size 4G --allow user:alice:write"},
	 store_add,
	 ALONE},
	{{"set", .args = "PATH PARTITION",
	  .summary = "Changes a partition: its size, order, level, cache, and who may use it.",
	  .example = "stag store set /srv/shop.img goods --size +1G --allow net:10.0.0.0/8:read"},
	 store_set,
	 ALONE},
	{{"rename", .args = "PATH PARTITION NEW-NAME", .summary = "Renames a partition.",
	  .example = "stag store rename /srv/shop.img goods wares"},
	 store_rename,
	 ALONE},
	{{"rm", .args = "PATH PARTITION",
	  .summary = "Removes a partition: one with data only by --force.",
	  .example = "stag store rm /srv/shop.img goods"},
	 store_rm,
	 ALONE},
	{{"grow", .args = "PATH",
	  .summary = "Enlarges a store: to a size, or to the present size of its device.",
	  .example = "stag store grow /srv/shop.img --size 20G"},
	 store_grow,
	 ALONE},
	{{"check", .args = "PATH",
	  .summary = "Checks the table of a store; exit code 1 if it has faults.",
	  .example = "stag store check /srv/shop.img --repair"},
	 store_check,
	 ALONE},
	{{"serve", .args = "PATH",
	  .summary = "Serves the partitions of a store to peers, until SIGINT or SIGTERM.",
	  .example = "stag store serve /srv/shop.img --address 127.0.0.1"},
	 store_serve,
	 WITH_ADAPTER},
	{{"read", .args = "WHERE [FILE]",
	  .summary = "Copies from a partition to a file, or to standard output.",
	  .example = "stag store read 10.0.0.7/goods goods.img"},
	 store_read,
	 WITH_ADAPTER},
	{{"write", .args = "WHERE [FILE]",
	  .summary =
		  "Copies from a file, or from standard input, to a partition; the data is durable "
		  "when it ends.",
	  .example = "stag store write /srv/shop.img:goods goods.img"},
	 store_write,
	 WITH_ADAPTER},
	{{"bench", .args = "WHERE [--random | --sequential] [--poll | --sleep]",
	  .summary = "Measures how fast a partition is.",
	  .example = "stag store bench 10.0.0.7/goods --op mix --writes 30 --force --secs 10"},
	 store_bench,
	 WITH_ADAPTER},
};

static const struct cli_noun store_noun = {
	.call = "stag store",
	.name = "store",
	.summary = "make and manage stores of partitions",
	.about =
		"Makes a file, a block device or memory a store with named partitions, and manages "
		"them; serves them to peers; copies between a partition and a file; measures how "
		"fast a partition is. See stag-store(1).",
	.examples = "stag store format /srv/shop.img --size 10G --partition goods=4G --partition "
		    "log=max\n"
		    "stag store set /srv/shop.img goods --allow user:alice:write --allow "
		    "net:10.0.0.0/8:read",
	CLI_VERBS(store_verbs),
	.options = store_table,
	.arguments = store_arguments,
};

static int run_store(const struct command *self, int argc, char **argv)
{
	struct store_options o = {.depth = LOAD_DEPTH, .secs = LOAD_SECONDS};
	const struct store_verb *v;
	struct cli_call call;
	int rc;

	if (!cli_parse(&store_noun, argc, argv, &o, &call, &rc))
		return rc;
	v = (const struct store_verb *)call.verb;
	o.where = call.args[0];
	o.name = call.num_args > 1 ? call.args[1] : NULL;
	o.new_name = call.num_args > 2 ? call.args[2] : NULL;
	if (v->run == store_serve && preload_server(argc, argv) != 0)
		return EXIT_FAILED;
	if (v->needs == WITH_ADAPTER && preload_self(argc, argv) != 0)
		return EXIT_FAILED;
	return v->run(&o);
}

const struct command store_command = {.noun = &store_noun, .run = run_store};
