// SPDX-License-Identifier: BSD-2-Clause
/*
 * store.c - stag store: its command line.
 *
 * serve, read, write and bench need the software adapter in this very process: where it is not, the command is run once
 * more with it.
 */
#include <string.h>

#include "stag.h"
#include "store.h"
#include "store_options.h"
#include "verb.h"

static const char help_text[] =
	"usage: stag store format PATH [--size SIZE] [--block BYTES] [--label NAME]\n"
	"                         [--partition NAME=SIZE]... [--force] [--json]\n"
	"       stag store list PATH [--json]\n"
	"       stag store show PATH [PARTITION] [--json]\n"
	"       stag store add PATH PARTITION --size SIZE [--offset BYTES] [--align SIZE]\n"
	"                      [--order ORDER] [--level LEVEL] [--cache MS] [--allow RIGHT]...\n"
	"                      [--json]\n"
	"       stag store set PATH PARTITION [--size SIZE] [--order ORDER] [--level LEVEL]\n"
	"                      [--cache MS] [--allow RIGHT]... [--json]\n"
	"       stag store rename PATH PARTITION NEW-NAME [--json]\n"
	"       stag store rm PATH PARTITION [--force] [--json]\n"
	"       stag store grow PATH [--size SIZE] [--json]\n"
	"       stag store check PATH [--repair] [--json]\n"
	"       stag store serve PATH [--address ADDRESS] [--port PORT] [--json]\n"
	"       stag store read WHERE [FILE] [--offset BYTES] [--length SIZE] [--token FILE]\n"
	"                       [--json]\n"
	"       stag store write WHERE [FILE] [--offset BYTES] [--length SIZE] [--token FILE]\n"
	"                        [--json]\n"
	"       stag store bench WHERE [--op read|write|mix] [--writes PERCENT] [--size SIZE]\n"
	"                        [--depth N] [--secs S] [--random | --sequential]\n"
	"                        [--order ORDER] [--level LEVEL] [--poll | --sleep]\n"
	"                        [--token FILE] [--force] [--json]\n\n"
	"Makes a file, a block device or memory (mem:NAME) a store with named partitions, and\n"
	"manages them; serves them to peers; copies between a partition and a file (stdout,\n"
	"stdin); measures how fast a partition is. WHERE is PATH:PARTITION or\n"
	"HOST[:PORT]/PARTITION. See stag-store(1).\n\n"
	"  --size SIZE        4096, 512K, 10G; of a partition also 50% of the store, max (the\n"
	"                     largest gap), and in set +1G. Of a store: of the whole file\n"
	"  --block BYTES      what is written at once: a power of two, 512 to 65536 (4096)\n"
	"  --label NAME       of the store\n"
	"  --partition NAME=SIZE\n"
	"                     one to begin with; may repeat\n"
	"  --offset BYTES     where it is to be (where it fits best)\n"
	"  --align SIZE       of its offset: a power of two (the block)\n"
	"  --order ORDER      strict, any, or what need not hold, with commas: writes, reads, "
	"later,\n"
	"                     atomics, completions, processing (strict)\n"
	"  --level LEVEL      what a completed write has reached: visible, accepted or durable\n"
	"                     (visible)\n"
	"  --cache MS         how long what was read or written is kept in memory; 5s (0)\n"
	"  --allow RIGHT      WHO:none, WHO:read or WHO:write; WHO is user:NAME, group:NAME, "
	"local,\n"
	"                     net:ADDRESS/BITS, remote or token:FILE. The first that fits "
	"decides;\n"
	"                     the owner alone if none does. In set: instead of those there are;\n"
	"                     'owner' is none\n"
	"  --force            format: over what is there. rm: although it is in use. bench: may\n"
	"                     overwrite what is in the partition\n"
	"  --repair           write a bad copy of the table anew from the good one\n"
	"  --address ADDRESS  to listen on (all)\n"
	"  --port PORT        to listen on; 0: a free one (7174)\n"
	"  --length SIZE      how much to read (all there is) or to write (all that comes)\n"
	"  --token FILE       holds the secret that lets us in\n"
	"  --op OP            what is measured: read, write, or mix of both (read)\n"
	"  --writes PERCENT   so many of a mix (50)\n"
	"  --depth N          operations at once, of --size each (32, 4K)\n"
	"  --secs S           how long (1)\n"
	"  --random           wherever (the default); or\n"
	"  --sequential       one behind the other\n"
	"  --poll             spin for completions (the default); or\n"
	"  --sleep            wait for their event\n"
	"  --json             for programs\n"
	"  -h, --help\n\n"
	"  stag store format /srv/shop.img --size 10G --partition goods=4G --partition log=max\n"
	"  stag store set /srv/shop.img goods --allow user:alice:write --allow "
	"net:10.0.0.0/8:read\n";

enum option_name {
	O_SIZE = VERB_OPTION,
	O_BLOCK,
	O_LABEL,
	O_OFFSET,
	O_ALIGN,
	O_ADDRESS,
	O_PORT,
	O_LENGTH,
	O_TOKEN,
	O_OP,
	O_DEPTH,
	O_SECS,
	O_WRITES,
	O_PARTITION, /* from here on looked at at once */
	O_ORDER,
	O_LEVEL,
	O_CACHE,
	O_ALLOW,
	O_FORCE, /* from here on without an argument */
	O_REPAIR,
	O_JSON,
	O_SEQUENTIAL,
	O_RANDOM,
	O_SLEEP,
	O_POLL,
};

#define BIT(name) VERB_BIT(O_##name)
#define SETTINGS  (BIT(SIZE) | BIT(ORDER) | BIT(LEVEL) | BIT(CACHE) | BIT(ALLOW) | BIT(JSON))
#define COPY	  (BIT(OFFSET) | BIT(LENGTH) | BIT(TOKEN) | BIT(JSON))
#define BENCH                                                                                      \
	(BIT(TOKEN) | BIT(OP) | BIT(SIZE) | BIT(DEPTH) | BIT(SECS) | BIT(WRITES) | BIT(ORDER) |    \
	 BIT(LEVEL) | BIT(JSON) | BIT(SEQUENTIAL) | BIT(RANDOM) | BIT(SLEEP) | BIT(POLL) |         \
	 BIT(FORCE))

static const struct option table[] = {
	{"size", required_argument, NULL, O_SIZE},
	{"block", required_argument, NULL, O_BLOCK},
	{"label", required_argument, NULL, O_LABEL},
	{"offset", required_argument, NULL, O_OFFSET},
	{"align", required_argument, NULL, O_ALIGN},
	{"address", required_argument, NULL, O_ADDRESS},
	{"port", required_argument, NULL, O_PORT},
	{"length", required_argument, NULL, O_LENGTH},
	{"token", required_argument, NULL, O_TOKEN},
	{"op", required_argument, NULL, O_OP},
	{"depth", required_argument, NULL, O_DEPTH},
	{"secs", required_argument, NULL, O_SECS},
	{"writes", required_argument, NULL, O_WRITES},
	{"partition", required_argument, NULL, O_PARTITION},
	{"order", required_argument, NULL, O_ORDER},
	{"level", required_argument, NULL, O_LEVEL},
	{"cache", required_argument, NULL, O_CACHE},
	{"allow", required_argument, NULL, O_ALLOW},
	{"force", no_argument, NULL, O_FORCE},
	{"repair", no_argument, NULL, O_REPAIR},
	{"json", no_argument, NULL, O_JSON},
	{"sequential", no_argument, NULL, O_SEQUENTIAL},
	{"random", no_argument, NULL, O_RANDOM},
	{"sleep", no_argument, NULL, O_SLEEP},
	{"poll", no_argument, NULL, O_POLL},
	{"help", no_argument, NULL, 'h'},
	{0},
};

#define A_PATH	    "PATH"
#define A_PARTITION "PATH and a partition"
#define A_WHERE	    "PATH:PARTITION or HOST/PARTITION"
#define A_COPY	    A_WHERE ", and perhaps a file"

static const struct store_verb {
	struct verb verb;
	int (*run)(const struct store_options *o);
	enum { ALONE, WITH_ADAPTER } needs;
} verbs[] = {
	{{"format", A_PATH, 1, 1,
	  BIT(SIZE) | BIT(BLOCK) | BIT(LABEL) | BIT(PARTITION) | BIT(FORCE) | BIT(JSON),
	  "Makes a file, a block device or memory a store, and says what it is then.",
	  "stag store format /srv/shop.img --size 10G --partition goods=4G --partition log=max"},
	 store_format,
	 ALONE},
	{{"list", A_PATH, 1, 1, BIT(JSON), "Lists the partitions of a store.",
	  "stag store list /srv/shop.img"},
	 store_list,
	 ALONE},
	{{"show", "PATH and perhaps a partition", 1, 2, BIT(JSON),
	  "Shows a store and who serves it, or one partition and its rights.",
	  "stag store show /srv/shop.img goods"},
	 store_show,
	 ALONE},
	{{"add", A_PARTITION, 2, 2, SETTINGS | BIT(OFFSET) | BIT(ALIGN),
	  "Adds a partition, filled with zeroes.",
	  "stag store add /srv/shop.img goods --size 4G --allow user:alice:write"},
	 store_add,
	 ALONE},
	{{"set", A_PARTITION, 2, 2, SETTINGS,
	  "Changes a partition: how large it is, its order and level, its cache, and who may use "
	  "it.",
	  "stag store set /srv/shop.img goods --size +1G --allow net:10.0.0.0/8:read"},
	 store_set,
	 ALONE},
	{{"rename", "PATH, a partition and its new name", 3, 3, BIT(JSON),
	  "Gives a partition another name.", "stag store rename /srv/shop.img goods wares"},
	 store_rename,
	 ALONE},
	{{"rm", A_PARTITION, 2, 2, BIT(FORCE) | BIT(JSON),
	  "Removes a partition, and what is in it.", "stag store rm /srv/shop.img goods"},
	 store_rm,
	 ALONE},
	{{"grow", A_PATH, 1, 1, BIT(SIZE) | BIT(JSON),
	  "Makes a store larger: to a size, or to what its device has now.",
	  "stag store grow /srv/shop.img --size 20G"},
	 store_grow,
	 ALONE},
	{{"check", A_PATH, 1, 1, BIT(REPAIR) | BIT(JSON),
	  "Looks for faults in a store's table; exit code 1 if there are any.",
	  "stag store check /srv/shop.img --repair"},
	 store_check,
	 ALONE},
	{{"serve", A_PATH, 1, 1, BIT(ADDRESS) | BIT(PORT) | BIT(JSON),
	  "Serves the partitions of a store to peers, until it is told to stop.",
	  "stag store serve /srv/shop.img --address 127.0.0.1"},
	 store_serve,
	 WITH_ADAPTER},
	{{"read", A_COPY, 1, 2, COPY, "Copies from a partition to a file, or to standard output.",
	  "stag store read 10.0.0.7/goods goods.img"},
	 store_read,
	 WITH_ADAPTER},
	{{"write", A_COPY, 1, 2, COPY,
	  "Copies from a file, or from standard input, to a partition; what is written is durable.",
	  "stag store write /srv/shop.img:goods goods.img"},
	 store_write,
	 WITH_ADAPTER},
	{{"bench", A_WHERE, 1, 1, BENCH, "Measures how fast a partition is.",
	  "stag store bench 10.0.0.7/goods --op mix --writes 30 --force --secs 10"},
	 store_bench,
	 WITH_ADAPTER},
};

static bool take_partition(struct store_options *o, const char *text)
{
	const char *equals = strchr(text, '=');

	if (!equals || equals == text || !equals[1]) {
		complain("--partition wants NAME=SIZE, not '%s'", text);
		return false;
	}
	if (o->num_partitions == STORE_MAX_FIRST) {
		complain("--partition: %d at once are enough; 'stag store add' adds more",
			 STORE_MAX_FIRST);
		return false;
	}
	o->partitions[o->num_partitions++] = text;
	return true;
}

static bool take_setting(struct store_options *o, int name, const char *text)
{
	switch (name) {
	case O_PARTITION:
		return take_partition(o, text);
	case O_ORDER:
		o->what |= STAG_STORE_CHANGE_RELAX;
		return store_parse_order(text, &o->p.relax);
	case O_LEVEL:
		o->what |= STAG_STORE_CHANGE_LEVEL;
		return store_parse_level(text, &o->p.level);
	case O_CACHE:
		o->what |= STAG_STORE_CHANGE_CACHE;
		return store_parse_cache(text, &o->p.cache_ms);
	default: /* O_ALLOW */
		o->what |= STAG_STORE_CHANGE_RIGHTS;
		return store_parse_right(text, &o->p);
	}
}

static bool take(void *to, int name, char *text)
{
	struct store_options *o = to;
	const char **words[] = {&o->size,    &o->block, &o->label,  &o->offset, &o->align,
				&o->address, &o->port,	&o->length, &o->token,	&o->op,
				&o->depth,   &o->secs,	&o->writes};
	bool *flags[] = {&o->force,	 &o->repair, &o->json, &o->sequential,
			 &o->sequential, &o->sleep,  &o->sleep};

	if (name >= O_FORCE)
		*flags[name - O_FORCE] = name != O_RANDOM && name != O_POLL;
	else if (name >= O_PARTITION)
		return take_setting(o, name, text);
	else
		*words[name - O_SIZE] = text;
	return true;
}

static int run_verb(const struct command *self, const struct store_verb *v, int argc, char **argv)
{
	static const struct verb_options options = {table, take};
	struct store_options o = {0};
	int rc;

	if (!verb_parse(self, &v->verb, &options, &o, argc, argv, &rc))
		return rc;
	o.where = argv[optind];
	o.name = argc - optind > 1 ? argv[optind + 1] : NULL;
	o.new_name = argc - optind > 2 ? argv[optind + 2] : NULL;
	if (v->needs == WITH_ADAPTER && preload_self(argc + 1, argv - 1) != 0)
		return EXIT_FAILED;
	rc = v->run(&o);
	return rc == EXIT_USAGE ? usage_error(self) : rc;
}

static int run(const struct command *self, int argc, char **argv)
{
	int rc = EXIT_USAGE;
	const char *name = verb_given(self, "what shall be done?", argc, argv, &rc);
	const struct store_verb *v =
		name ? verb_find(self, name, verbs, sizeof(verbs) / sizeof(*verbs), sizeof(*verbs))
		     : NULL;

	return v ? run_verb(self, v, argc - 1, argv + 1) : name ? EXIT_USAGE : rc;
}

const struct command store_command = {"store", "make and manage stores of partitions", help_text,
				      run, NULL};
