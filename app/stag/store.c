// SPDX-License-Identifier: BSD-2-Clause
/*
 * store.c - stag store: its command line.
 *
 * Management needs no device and no adapter, and changes nothing but the store's table; what does need one is in
 * store_use.c.
 */
#include "store.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "stag.h"
#include "store_use.h"

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
	"       stag store rm PATH PARTITION [--force]\n"
	"       stag store grow PATH [--size SIZE] [--json]\n"
	"       stag store check PATH [--repair]\n"
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

#define PARTITIONS_MAX 64

struct options {
	const char *path, *name, *new_name;
	const char *size, *offset, *align, *block;
	const char *partitions[PARTITIONS_MAX]; /* NAME=SIZE */
	unsigned int num_partitions;
	struct stag_store_partition p;
	const char *label;
	unsigned int what; /* enum stag_store_change */
	bool force, repair, json;
};

/* ---- errors ---------------------------------------------------------------------------- */

/* What the library says. */
static int failed(const char *path, int error)
{
	complain("%s", stag_store_error());
	if (error == EBADMSG)
		fprintf(stderr, "Try 'stag store check %s'.\n", path);
	return EXIT_FAILED;
}

/* And what to do about it. */
__attribute__((format(printf, 1, 2))) static int failed_try(const char *fmt, ...)
{
	va_list ap;

	complain("%s", stag_store_error());
	fputs("Try ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputs(".\n", stderr);
	return EXIT_FAILED;
}

static struct stag_store *open_it(const struct options *o, unsigned int flags)
{
	struct stag_store *store = stag_store_open(o->path, flags);
	int error = errno;

	if (!store)
		failed(o->path, error);
	return store;
}

/* ---- look ---------------------------------------------------------------------------------- */

static int list(const struct options *o)
{
	struct stag_store *store = open_it(o, STAG_STORE_LOOK);
	json_t *json;

	if (!store)
		return EXIT_FAILED;
	if (o->json) {
		json = store_json(store, o->path);
		if (json)
			store_dump(json_incref(json_object_get(json, "partitions")));
		json_decref(json);
	} else {
		store_print_list(store);
	}
	stag_store_close(store);
	return EXIT_OK;
}

static int show_store(const struct options *o, struct stag_store *store)
{
	struct stag_store_info info;
	json_t *json;
	int rc = stag_store_query(store, &info, sizeof(info));

	if (rc != 0)
		return failed(o->path, rc);
	if (!o->json) {
		store_print(&info, o->path);
		return EXIT_OK;
	}
	json = store_json(store, o->path);
	if (!json)
		return failed(o->path, 0);
	store_dump(json);
	return EXIT_OK;
}

static int show_partition(const struct options *o, struct stag_store *store, const char *name)
{
	struct stag_store_partition p;
	int rc = stag_store_find(store, name, &p);

	if (rc != 0)
		return failed_try("'stag store list %s'", o->path);
	if (o->json)
		store_dump(store_partition_json(&p));
	else
		store_print_partition(&p);
	return EXIT_OK;
}

static int show(const struct options *o)
{
	struct stag_store *store = open_it(o, STAG_STORE_LOOK);
	int rc;

	if (!store)
		return EXIT_FAILED;
	rc = o->name ? show_partition(o, store, o->name) : show_store(o, store);
	stag_store_close(store);
	return rc;
}

/* ---- add ------------------------------------------------------------------------------------ */

static bool room_of(struct stag_store *store, uint64_t now, struct store_room *room)
{
	struct stag_store_info info;

	if (stag_store_query(store, &info, sizeof(info)) != 0) {
		complain("%s", stag_store_error());
		return false;
	}
	*room = (struct store_room){.whole = info.size - STAG_STORE_DATA_OFFSET,
				    .largest = info.largest_gap,
				    .now = now,
				    .block = info.block};
	return true;
}

static int add_one(const struct options *o, struct stag_store *store,
		   struct stag_store_partition *p, const char *size)
{
	struct store_room room;
	int rc;

	if (!room_of(store, 0, &room) || !store_parse_size("--size", size, &room, &p->size))
		return EXIT_FAILED;
	store_show_progress(store, p->name);
	rc = stag_store_add(store, p);
	store_end_progress();
	if (rc == ENOSPC)
		return failed_try(
			"'stag store list %s' to see what there is, or 'stag store grow %s "
			"--size ...' for more",
			o->path, o->path);
	return rc == 0 ? EXIT_OK : failed(o->path, rc);
}

static bool set_name(struct stag_store_partition *p, const char *name, size_t len)
{
	if (len >= sizeof(p->name)) {
		complain("'%s' is too long: a name has at most %d characters", name,
			 STAG_STORE_NAME_MAX - 1);
		return false;
	}
	memset(p->name, 0, sizeof(p->name));
	memcpy(p->name, name, len);
	return true;
}

static int add(const struct options *o)
{
	struct stag_store_partition p = o->p;
	struct stag_store *store;
	int rc;

	if (!o->size) {
		complain("how large shall %s be? --size says", o->name);
		return EXIT_USAGE;
	}
	if (!set_name(&p, o->name, strlen(o->name)) ||
	    (o->offset && !store_parse_offset(o->offset, &p.offset)) ||
	    (o->align && !store_parse_size("--align", o->align, NULL, &p.alignment)))
		return EXIT_USAGE;
	store = open_it(o, 0);
	if (!store)
		return EXIT_FAILED;
	rc = add_one(o, store, &p, o->size);
	if (rc == EXIT_OK)
		rc = show_partition(o, store, o->name);
	stag_store_close(store);
	return rc;
}

/* ---- format ------------------------------------------------------------------------------------ */

/* All of them, or none. */
static void drop_first_ones(const struct options *o, struct stag_store *store)
{
	struct stag_store_partition p;
	uint32_t first = 0;

	while (stag_store_next(store, &first, &p)) {
		if (stag_store_remove(store, p.name, 0) != 0) {
			failed(o->path, 0);
			return;
		}
		first = 0;
	}
	fprintf(stderr, "%s is a store now, and has no partitions.\n", o->path);
}

static int add_first_ones(const struct options *o, struct stag_store *store)
{
	int rc = EXIT_OK;

	for (unsigned int i = 0; i < o->num_partitions && rc == EXIT_OK; i++) {
		const char *text = o->partitions[i], *equals = strchr(text, '=');
		struct stag_store_partition p = {0};

		rc = set_name(&p, text, (size_t)(equals - text)) ? add_one(o, store, &p, equals + 1)
								 : EXIT_FAILED;
	}
	if (rc != EXIT_OK)
		drop_first_ones(o, store);
	return rc;
}

static int format(const struct options *o)
{
	struct stag_store_attr attr = {0};
	struct stag_store *store;
	uint64_t block = 0;
	int rc;

	if ((o->size && !store_parse_size("--size", o->size, NULL, &attr.size)) ||
	    (o->block && !store_parse_size("--block", o->block, NULL, &block)))
		return EXIT_USAGE;
	attr.block = block > UINT32_MAX ? UINT32_MAX : (uint32_t)block;
	if (o->label && (size_t)snprintf(attr.label, sizeof(attr.label), "%s", o->label) >=
				sizeof(attr.label)) {
		complain("--label has at most %d characters", STAG_STORE_NAME_MAX - 1);
		return EXIT_USAGE;
	}
	rc = stag_store_format(o->path, &attr, o->force ? STAG_STORE_FORCE : 0);
	if (rc == EEXIST)
		return failed_try(
			"'stag store format %s --force' to lose that for ever, or another "
			"path",
			o->path);
	if (rc != 0)
		return failed(o->path, rc);
	store = open_it(o, 0);
	if (!store)
		return EXIT_FAILED;
	rc = add_first_ones(o, store);
	if (rc == EXIT_OK)
		rc = show_store(o, store);
	stag_store_close(store);
	return rc;
}

/* ---- change ---------------------------------------------------------------------------------------- */

static int change(const struct options *o, struct stag_store *store, struct stag_store_partition *p,
		  unsigned int what)
{
	int rc;

	store_show_progress(store, p->name);
	rc = stag_store_change(store, p, what);
	store_end_progress();
	if (rc == ENOSPC)
		return failed_try("'stag store list %s'", o->path);
	return rc == 0 ? show_partition(o, store, p->name) : failed(o->path, rc);
}

static struct stag_store *open_partition(const struct options *o, struct stag_store_partition *p)
{
	struct stag_store *store = open_it(o, 0);
	int rc;

	if (!store)
		return NULL;
	rc = stag_store_find(store, o->name, p);
	if (rc == 0)
		return store;
	failed_try("'stag store list %s'", o->path);
	stag_store_close(store);
	return NULL;
}

/* From "max" it takes all that is behind it. */
static bool new_size(const struct options *o, struct stag_store *store,
		     struct stag_store_partition *p)
{
	struct stag_store_partition q;
	struct stag_store_info info;
	struct store_room room;
	uint64_t end = 0;

	if (!room_of(store, p->size, &room) || stag_store_query(store, &info, sizeof(info)) != 0)
		return false;
	for (uint32_t i = 0; stag_store_next(store, &i, &q) && end == 0;)
		if (q.offset > p->offset)
			end = q.offset;
	room.largest = (end != 0 ? end : info.size) - p->offset;
	return store_parse_size("--size", o->size, &room, &p->size);
}

static int set(const struct options *o)
{
	struct stag_store_partition p;
	struct stag_store *store;
	unsigned int what = o->what;
	int rc = EXIT_USAGE;

	if (what == 0 && !o->size) {
		complain("what of %s shall change? --size, --order, --level, --cache or --allow",
			 o->name);
		return EXIT_USAGE;
	}
	store = open_partition(o, &p);
	if (!store)
		return EXIT_FAILED;
	p.relax = o->p.relax;
	p.level = o->p.level;
	p.cache_ms = o->p.cache_ms;
	p.num_rights = o->p.num_rights;
	memcpy(p.rights, o->p.rights, sizeof(p.rights));
	if (!o->size || new_size(o, store, &p))
		rc = change(o, store, &p, what | (o->size ? STAG_STORE_CHANGE_SIZE : 0));
	stag_store_close(store);
	return rc;
}

static int rename_it(const struct options *o)
{
	struct stag_store_partition p;
	struct stag_store *store = open_partition(o, &p);
	int rc = EXIT_USAGE;

	if (!store)
		return EXIT_FAILED;
	if (set_name(&p, o->new_name, strlen(o->new_name)))
		rc = change(o, store, &p, STAG_STORE_CHANGE_NAME);
	stag_store_close(store);
	return rc;
}

static int rm(const struct options *o)
{
	struct stag_store *store = open_it(o, 0);
	int rc;

	if (!store)
		return EXIT_FAILED;
	rc = stag_store_remove(store, o->name, o->force ? STAG_STORE_FORCE : 0);
	stag_store_close(store);
	if (rc == EBUSY)
		return failed_try("'stag store rm %s %s --force' to take it from those who use it",
				  o->path, o->name);
	if (rc == ENOENT)
		return failed_try("'stag store list %s'", o->path);
	return rc == 0 ? EXIT_OK : failed(o->path, rc);
}

static int grow(const struct options *o)
{
	struct stag_store *store;
	uint64_t size = 0;
	int rc;

	if (o->size && !store_parse_size("--size", o->size, NULL, &size))
		return EXIT_USAGE;
	store = open_it(o, 0);
	if (!store)
		return EXIT_FAILED;
	rc = stag_store_grow(store, size);
	rc = rc != 0 ? failed(o->path, rc) : show_store(o, store);
	stag_store_close(store);
	return rc;
}

static int check(const struct options *o)
{
	int faults = stag_store_check(o->path, o->repair ? STAG_STORE_REPAIR : 0, stdout);

	if (faults < 0)
		return failed(o->path, 0);
	if (faults == 0) {
		puts("no faults");
		return EXIT_OK;
	}
	printf("%d fault%s\n", faults, faults == 1 ? "" : "s");
	if (!o->repair)
		fprintf(stderr, "Try 'stag store check %s --repair'.\n", o->path);
	return EXIT_FAILED;
}

/* ---- the command line ------------------------------------------------------------------------------- */

enum option_name {
	O_SIZE = 256,
	O_BLOCK,
	O_LABEL,
	O_PARTITION,
	O_OFFSET,
	O_ALIGN,
	O_ORDER,
	O_LEVEL,
	O_CACHE,
	O_ALLOW,
	O_FORCE,
	O_REPAIR,
	O_JSON,
};

#define BIT(name) (1u << ((name)-O_SIZE))
#define SETTINGS                                                                                   \
	(BIT(O_SIZE) | BIT(O_ORDER) | BIT(O_LEVEL) | BIT(O_CACHE) | BIT(O_ALLOW) | BIT(O_JSON))

static const struct option long_options[] = {
	{"size", required_argument, NULL, O_SIZE},
	{"block", required_argument, NULL, O_BLOCK},
	{"label", required_argument, NULL, O_LABEL},
	{"partition", required_argument, NULL, O_PARTITION},
	{"offset", required_argument, NULL, O_OFFSET},
	{"align", required_argument, NULL, O_ALIGN},
	{"order", required_argument, NULL, O_ORDER},
	{"level", required_argument, NULL, O_LEVEL},
	{"cache", required_argument, NULL, O_CACHE},
	{"allow", required_argument, NULL, O_ALLOW},
	{"force", no_argument, NULL, O_FORCE},
	{"repair", no_argument, NULL, O_REPAIR},
	{"json", no_argument, NULL, O_JSON},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const struct verb {
	const char *name;
	int least, most;      /* arguments */
	unsigned int options; /* BIT() */
	int (*run)(const struct options *o);
} verbs[] = {
	{"format", 1, 1,
	 BIT(O_SIZE) | BIT(O_BLOCK) | BIT(O_LABEL) | BIT(O_PARTITION) | BIT(O_FORCE) | BIT(O_JSON),
	 format},
	{"list", 1, 1, BIT(O_JSON), list},
	{"show", 1, 2, BIT(O_JSON), show},
	{"add", 2, 2, SETTINGS | BIT(O_OFFSET) | BIT(O_ALIGN), add},
	{"set", 2, 2, SETTINGS, set},
	{"rename", 3, 3, BIT(O_JSON), rename_it},
	{"rm", 2, 2, BIT(O_FORCE), rm},
	{"grow", 1, 1, BIT(O_SIZE) | BIT(O_JSON), grow},
	{"check", 1, 1, BIT(O_REPAIR), check},
};

static bool take_partition(struct options *o, const char *text)
{
	const char *equals = strchr(text, '=');

	if (!equals || equals == text || !equals[1]) {
		complain("--partition wants NAME=SIZE, not '%s'", text);
		return false;
	}
	if (o->num_partitions == PARTITIONS_MAX) {
		complain("--partition: %d at once are enough; 'stag store add' adds more",
			 PARTITIONS_MAX);
		return false;
	}
	o->partitions[o->num_partitions++] = text;
	return true;
}

static bool take_setting(struct options *o, int name, const char *text)
{
	switch (name) {
	case O_ORDER:
		o->what |= STAG_STORE_CHANGE_RELAX;
		return store_parse_order(text, &o->p.relax);
	case O_LEVEL:
		o->what |= STAG_STORE_CHANGE_LEVEL;
		return store_parse_level(text, &o->p.level);
	case O_CACHE:
		o->what |= STAG_STORE_CHANGE_CACHE;
		return store_parse_cache(text, &o->p.cache_ms);
	case O_ALLOW:
		o->what |= STAG_STORE_CHANGE_RIGHTS;
		return store_parse_right(text, &o->p);
	case O_PARTITION:
		return take_partition(o, text);
	default:
		return false;
	}
}

static bool take_option(struct options *o, int name, const char *text)
{
	const char **words[] = {[O_SIZE - O_SIZE] = &o->size,
				[O_BLOCK - O_SIZE] = &o->block,
				[O_LABEL - O_SIZE] = &o->label,
				[O_OFFSET - O_SIZE] = &o->offset,
				[O_ALIGN - O_SIZE] = &o->align};
	bool *flags[] = {&o->force, &o->repair, &o->json};

	if (name >= O_FORCE) {
		*flags[name - O_FORCE] = true;
		return true;
	}
	if (name <= O_ALIGN && words[name - O_SIZE]) {
		*words[name - O_SIZE] = text;
		return true;
	}
	return take_setting(o, name, text);
}

static int run_verb(const struct command *self, const struct verb *v, int argc, char **argv)
{
	struct options o = {0};
	int c, index, rc;

	argv[0] = "stag store"; /* getopt_long() says so */
	while ((c = getopt_long(argc, argv, "h", long_options, &index)) != -1) {
		if (c == 'h') {
			fputs(self->help, stdout);
			return EXIT_OK;
		}
		if (c == '?')
			return usage_error(self);
		if (!(v->options & BIT(c))) {
			complain("stag store %s has no option --%s", v->name,
				 long_options[c - O_SIZE].name);
			return usage_error(self);
		}
		if (!take_option(&o, c, optarg))
			return usage_error(self);
	}
	if (argc - optind < v->least || argc - optind > v->most) {
		complain("stag store %s wants %s", v->name,
			 v->least == 1	 ? (v->most == 1 ? "PATH" : "PATH and perhaps a partition")
			 : v->least == 2 ? "PATH and a partition"
					 : "PATH, a partition and its new name");
		return usage_error(self);
	}
	o.path = argv[optind];
	o.name = argc - optind > 1 ? argv[optind + 1] : NULL;
	o.new_name = argc - optind > 2 ? argv[optind + 2] : NULL;
	rc = v->run(&o);
	return rc == EXIT_USAGE ? usage_error(self) : rc;
}

static int run(const struct command *self, int argc, char **argv)
{
	int rc;

	if (argc < 2) {
		complain("what shall be done?");
		return usage_error(self);
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		fputs(self->help, stdout);
		return EXIT_OK;
	}
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].name, argv[1]) == 0)
			return run_verb(self, &verbs[i], argc - 1, argv + 1);
	if (store_use_verb(self, argc - 1, argv + 1, &rc))
		return rc;
	complain("stores are made, managed and used by format, list, show, add, set, rename, rm, "
		 "grow, check, serve, read and write, not by '%s'",
		 argv[1]);
	return usage_error(self);
}

const struct command store_command = {"store", "make and manage stores of partitions", help_text,
				      run};
