// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool.c - stag pool: the command line (pool_use.h).
 *
 * What uses a pool needs an RDMA device: the command is run once more with the software adapter, where it is not there yet.
 */
#include <limits.h>
#include <string.h>

#include "pool_use.h"
#include "stag.h"
#include "verb.h"

static const char help_text[] =
	"usage: stag pool create NAME --size SIZE [--roll WHERE] [SETTING...] [--force] [--serve]\n"
	"       stag pool join NAME [--from NODE | --roll WHERE --secrets FILE] [SETTING...]\n"
	"                      [--force] [--serve]\n"
	"       stag pool status POOL\n"
	"       stag pool put POOL NAME [FILE | --value TEXT] [--exclusive | --version N]\n"
	"       stag pool put POOL --insert [FILE | --value TEXT]\n"
	"       stag pool get POOL {NAME | --pointer PTR} [FILE]\n"
	"       stag pool update POOL {NAME | --pointer PTR} [FILE | --value TEXT] [--version N]\n"
	"       stag pool rm POOL {NAME... | --pointer PTR} [--version N]\n"
	"       stag pool ls POOL [PATTERN] [--long]\n"
	"       stag pool switchover POOL [NODE]\n"
	"       stag pool forget POOL NODE\n"
	"       stag pool watch POOL [--interval S] [--count N]\n"
	"       stag pool load POOL [--secs S] [--clients N] [--size BYTES]\n\n"
	"Memory that several machines hold alike, with values by name and by remote pointer: "
	"makes\n"
	"nodes of a pool for stagd to serve, and uses a pool. See stag-pool(1) and docs/HA.md.\n\n"
	"  POOL               its name, if a node of it was made here; or a node's directory or "
	"INI\n"
	"                     file, with a / in it; or [USER@]HOST[:PORT][,HOST[:PORT]...]\n"
	"  --user NAME        who we are (client; with a node's directory, whoever may do most)\n"
	"  --secret-file FILE our secret: the first line, or the line of our name\n"
	"  --json             for programs\n\n"
	"Nodes; SETTING is one of these, and all are in stag.ini(5):\n"
	"  --size SIZE        memory of the pool: 512M, 4G\n"
	"  --roll WHERE       who is primary is kept in file:PATH, on one machine, or in\n"
	"                     etcd://HOST:PORT[,...]/KEY\n"
	"  --node NAME        of this node (the host's)\n"
	"  --dir DIRECTORY    of this node (by pool and node, in the user's state directory)\n"
	"  --address ADDRESS  to listen on (with file: 127.0.0.1, else all)\n"
	"  --advertise HOST[:PORT]\n"
	"                     how others reach it\n"
	"  --port PORT        to listen on; 0: a free one (7175, or the next that is free)\n"
	"  --memory ADDRESS   of the pool's memory, on every node\n"
	"  --clients N        at most (1024)\n"
	"  --overwrite        what is deleted is overwritten\n"
	"  --from NODE        another node's directory or INI file: what it says holds here, too\n"
	"  --secrets FILE     a copy of another node's\n"
	"  --force            begin anew in a directory that is there: what it held is given up\n"
	"  --serve            and run it, in the foreground\n\n"
	"Values:\n"
	"  --value TEXT       instead of a file, or of standard input\n"
	"  --insert           without a name: prints a pointer\n"
	"  --pointer PTR      what an insert, or ls --long, has printed\n"
	"  --exclusive        only if there is no such name\n"
	"  --version N        only if it is at this version\n"
	"  --long             with version, length and pointer\n"
	"  --interval S       seconds between looks (1)\n"
	"  --count N          looks (no end)\n"
	"  --secs S           of load (10); 0: until it is told to stop\n"
	"  -h, --help\n\n"
	"  stag pool create shop --size 256M --node a --serve &\n"
	"  stag pool join shop --node b --serve &\n"
	"  stag pool put shop greeting --value hello\n"
	"  stag pool switchover shop && stag pool get shop greeting\n";

enum {
	P_USER = VERB_OPTION,
	P_SECRET_FILE,
	P_NODE,
	P_DIR,
	P_ROLL,
	P_ADDRESS,
	P_ADVERTISE,
	P_PORT,
	P_SIZE,
	P_MEMORY,
	P_CLIENTS,
	P_FROM,
	P_SECRETS,
	P_VERSION,
	P_VALUE,
	P_POINTER,
	P_INTERVAL,
	P_COUNT,
	P_SECONDS,
	P_JSON,
	P_EXCLUSIVE,
	P_INSERT,
	P_LONG,
	P_SERVE,
	P_FORCE,
	P_OVERWRITE
};

#define CLIENT (VERB_BIT(P_USER) | VERB_BIT(P_SECRET_FILE) | VERB_BIT(P_JSON))
#define NODE                                                                                       \
	(VERB_BIT(P_NODE) | VERB_BIT(P_DIR) | VERB_BIT(P_ROLL) | VERB_BIT(P_ADDRESS) |             \
	 VERB_BIT(P_ADVERTISE) | VERB_BIT(P_PORT) | VERB_BIT(P_SERVE) | VERB_BIT(P_FORCE) |        \
	 VERB_BIT(P_JSON))

static const struct option long_options[] = {
	{"user", required_argument, NULL, P_USER},
	{"secret-file", required_argument, NULL, P_SECRET_FILE},
	{"node", required_argument, NULL, P_NODE},
	{"dir", required_argument, NULL, P_DIR},
	{"roll", required_argument, NULL, P_ROLL},
	{"address", required_argument, NULL, P_ADDRESS},
	{"advertise", required_argument, NULL, P_ADVERTISE},
	{"port", required_argument, NULL, P_PORT},
	{"size", required_argument, NULL, P_SIZE},
	{"memory", required_argument, NULL, P_MEMORY},
	{"clients", required_argument, NULL, P_CLIENTS},
	{"from", required_argument, NULL, P_FROM},
	{"secrets", required_argument, NULL, P_SECRETS},
	{"version", required_argument, NULL, P_VERSION},
	{"value", required_argument, NULL, P_VALUE},
	{"pointer", required_argument, NULL, P_POINTER},
	{"interval", required_argument, NULL, P_INTERVAL},
	{"count", required_argument, NULL, P_COUNT},
	{"secs", required_argument, NULL, P_SECONDS},
	{"seconds", required_argument, NULL, P_SECONDS},
	{"json", no_argument, NULL, P_JSON},
	{"exclusive", no_argument, NULL, P_EXCLUSIVE},
	{"insert", no_argument, NULL, P_INSERT},
	{"long", no_argument, NULL, P_LONG},
	{"serve", no_argument, NULL, P_SERVE},
	{"force", no_argument, NULL, P_FORCE},
	{"overwrite", no_argument, NULL, P_OVERWRITE},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const struct pool_verb {
	struct verb verb;
	bool adapter; /* needs one */
	int (*run)(const struct pool_use *u);
} verbs[] = {
	{{"create", "the name of the pool", 1, 1,
	  NODE | VERB_BIT(P_SIZE) | VERB_BIT(P_MEMORY) | VERB_BIT(P_CLIENTS) |
		  VERB_BIT(P_OVERWRITE) | VERB_BIT(P_SECRETS),
	  "Makes the first node of a pool on this machine, for stagd to serve.",
	  "stag pool create shop --size 256M --node a --serve"},
	 false,
	 pool_use_create},
	{{"join", "the name of the pool", 1, 1, NODE | VERB_BIT(P_FROM) | VERB_BIT(P_SECRETS),
	  "Makes another node of a pool, for stagd to serve.",
	  "stag pool join shop --node b --serve"},
	 false,
	 pool_use_join},
	{{"status", "a pool", 1, 1, CLIENT,
	  "Shows a pool: its nodes, who is primary, how far each has got, and how full it is.",
	  "stag pool status shop"},
	 true,
	 pool_use_status},
	{{"put", "a pool, a name, and perhaps a file", 1, 3,
	  CLIENT | VERB_BIT(P_VALUE) | VERB_BIT(P_EXCLUSIVE) | VERB_BIT(P_VERSION) |
		  VERB_BIT(P_INSERT),
	  "Puts a value into a pool, by name or without one.",
	  "stag pool put shop greeting --value hello"},
	 true,
	 pool_use_put},
	{{"get", "a pool, a name, and perhaps a file", 1, 3, CLIENT | VERB_BIT(P_POINTER),
	  "Gets a value of a pool, to a file or to standard output.",
	  "stag pool get shop greeting"},
	 true,
	 pool_use_get},
	{{"update", "a pool, a name, and perhaps a file", 1, 3,
	  CLIENT | VERB_BIT(P_VALUE) | VERB_BIT(P_VERSION) | VERB_BIT(P_POINTER),
	  "Gives what is there another value.",
	  "stag pool update shop greeting --value bye --version 3"},
	 true,
	 pool_use_update},
	{{"rm", "a pool, and names", 1, INT_MAX, CLIENT | VERB_BIT(P_VERSION) | VERB_BIT(P_POINTER),
	  "Removes values of a pool.", "stag pool rm shop greeting"},
	 true,
	 pool_use_rm},
	{{"ls", "a pool, and perhaps a pattern", 1, 2, CLIENT | VERB_BIT(P_LONG),
	  "Lists the names in a pool.", "stag pool ls shop 'order-*' --long"},
	 true,
	 pool_use_ls},
	{{"switchover", "a pool, and perhaps a node", 1, 2, CLIENT,
	  "Makes another node primary, and loses nothing.", "stag pool switchover shop b"},
	 true,
	 pool_use_switchover},
	{{"forget", "a pool and a node", 2, 2, CLIENT,
	  "Takes a node off the roll that will not come back.", "stag pool forget shop b"},
	 true,
	 pool_use_forget},
	{{"watch", "a pool", 1, 1, CLIENT | VERB_BIT(P_INTERVAL) | VERB_BIT(P_COUNT),
	  "Shows a pool, again and again; on a terminal in place.", "stag pool watch shop"},
	 true,
	 pool_use_watch},
	{{"load", "a pool", 1, 1,
	  CLIENT | VERB_BIT(P_SECONDS) | VERB_BIT(P_CLIENTS) | VERB_BIT(P_SIZE),
	  "Puts values for a while, then looks whether all is there that was acknowledged.",
	  "stag pool load shop --secs 10"},
	 true,
	 pool_use_load},
};

#define N_VERBS (sizeof(verbs) / sizeof(verbs[0]))

static bool take(void *to, int name, char *text)
{
	struct pool_use *u = to;
	const char **words[] = {&u->user,    &u->secret_file, &u->node,	   &u->dir,	&u->roll,
				&u->address, &u->advertise,   &u->port,	   &u->size,	&u->memory,
				&u->clients, &u->from,	      &u->secrets, &u->version, &u->value,
				&u->pointer, &u->interval,    &u->count,   &u->seconds};
	bool *flags[] = {&u->json,  &u->exclusive, &u->insert,	 &u->details,
			 &u->serve, &u->force,	   &u->overwrite};

	if (name >= P_JSON)
		*flags[name - P_JSON] = true;
	else
		*words[name - P_USER] = text;
	return true;
}

static const struct verb_options options = {long_options, take};

/* argv: from "pool" on. */
static int run_verb(const struct command *self, const struct pool_verb *v, int argc, char **argv)
{
	struct pool_use u = {0};
	int rc;

	if (!verb_parse(self, &v->verb, &options, &u, argc - 1, argv + 1, &rc))
		return rc;
	if (v->adapter && preload_self(argc, argv) != 0)
		return EXIT_FAILED;
	u.pool = argv[1 + optind];
	u.args = argv + 2 + optind;
	u.num_args = argc - 2 - optind;
	rc = v->run(&u);
	return rc == EXIT_USAGE ? usage_error(self) : rc;
}

static int run(const struct command *self, int argc, char **argv)
{
	int rc = EXIT_USAGE;
	const char *name = verb_given(self, "what shall be done?", argc, argv, &rc);
	const struct pool_verb *v =
		name ? verb_find(self, name, verbs, N_VERBS, sizeof(*verbs)) : NULL;

	return v ? run_verb(self, v, argc, argv) : name ? EXIT_USAGE : rc;
}

const struct command pool_command = {"pool", "make and use pools of replicated memory", help_text,
				     run, NULL};
