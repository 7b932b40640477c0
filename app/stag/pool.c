// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool.c - stag pool: its command line (pool_use.h).
 *
 * Verbs that use a pool need an RDMA device: if the software adapter is not loaded, the command executes itself again
 * with it.
 */
#include <dirent.h>
#include <limits.h>
#include <string.h>

#include "base/cleanup.h"
#include "conf.h"
#include "pool_use.h"
#include "stag.h"

/* ---- options ---- */

#define TEXT(field) CLI_TEXT_AT(struct pool_use, field)
#define FLAG(field) CLI_FLAG_AT(struct pool_use, field)
#define CLIENT	    "status put get update rm ls switchover forget watch load"
#define NODE	    "create join"

static const struct cli_option pool_table[] = {
	{"user", .value = "NAME", .verbs = CLIENT, TEXT(user), .common = true,
	 .help = "the user to authenticate as (client; with a node's directory, the user with most "
		 "rights)"},
	{"secret-file", .value = "FILE", .verbs = CLIENT, CLI_FILE_AT(struct pool_use, secret_file),
	 .common = true,
	 .help = "the user's secret: the first line, or the line with the user's name"},
	{"json", FLAG(json), .common = true, .help = "for programs"},
	{.help = "Nodes (these are settings of stag.ini(5), too):"},
	{"size", .value = "SIZE", .verbs = "create", TEXT(size),
	 .help = "memory of the pool: 512M, 4G"},
	{"roll", .value = "WHERE", .verbs = NODE, TEXT(roll), .words = "file: etcd://",
	 .help = "the roll (the pool's membership record) is kept in file:PATH, on one machine, or "
		 "in etcd://HOST:PORT[,...]/KEY"},
	{"node", .value = "NAME", .verbs = NODE, TEXT(node), .common = true,
	 .help = "of this node (the host's name)"},
	{"dir", .value = "DIRECTORY", .verbs = NODE, CLI_DIRECTORY_AT(struct pool_use, dir),
	 .common = true, .help = "of this node (by pool and node, in the user's state directory)"},
	{"address", .value = "ADDRESS", .verbs = NODE, TEXT(address), .common = true,
	 .help = "address to listen on (with a roll in a file 127.0.0.1, else all)"},
	{"advertise", .value = "HOST[:PORT]", .verbs = NODE, TEXT(advertise), .common = true,
	 .help = "address under which other nodes and clients reach this node"},
	{"port", .value = "PORT", .verbs = NODE, TEXT(port), .common = true,
	 .help = "port to listen on; 0: any free port (7175, or the next free one)"},
	{"memory", .value = "ADDRESS", .verbs = "create", TEXT(memory), .common = true,
	 .help = "virtual address of the pool's memory, on every node"},
	{"clients", .value = "N", .verbs = "create", TEXT(clients), .common = true,
	 .help = "how many clients the pool admits at most (1024)"},
	{"overwrite", .verbs = "create", FLAG(overwrite), .common = true,
	 .help = "overwrite values when they are deleted"},
	{"from", .value = "NODE", .verbs = "join", CLI_FILE_AT(struct pool_use, from),
	 .help = "another node's directory or INI file, to copy its settings"},
	{"secrets", .value = "FILE", .verbs = NODE, CLI_FILE_AT(struct pool_use, secrets),
	 .common = true, .help = "a copy of another node's secrets"},
	{"force", .verbs = NODE, FLAG(force),
	 .help = "replace a node in a directory that exists; its data is lost"},
	{"serve", .verbs = NODE, FLAG(serve), .help = "run the node, in the foreground"},
	{.help = "Values:"},
	{"value", .value = "TEXT", .verbs = "put update", TEXT(value),
	 .help = "the value, instead of a file or standard input"},
	{"insert", .verbs = "put", FLAG(insert), .help = "without a name; prints a pointer"},
	{"pointer", .value = "PTR", .verbs = "get update rm", TEXT(pointer),
	 .help = "a pointer that an insert, or ls --long, has printed"},
	{"exclusive", .verbs = "put", FLAG(exclusive), .help = "only if the name does not exist"},
	{"version", .value = "N", .verbs = "put update rm", TEXT(version),
	 .help = "only if the value is at this version"},
	{"long", .verbs = "ls", FLAG(details), .help = "with version, length and pointer"},
	{"interval", .value = "S", .verbs = "watch",
	 CLI_SECONDS_AT(struct pool_use, interval, 0.01, 86400),
	 .help = "seconds between two updates (1)"},
	{"count", .value = "N", .verbs = "watch",
	 CLI_NUMBER_AT(struct pool_use, count, 1, UINT64_MAX), .help = "end after N updates"},
	{"secs", .alias = "seconds", .value = "S", .verbs = "load",
	 CLI_SECONDS_AT(struct pool_use, seconds, 0, 1e9),
	 .help = "how long (10); 0: until SIGINT or SIGTERM"},
	{"clients", .value = "N", .verbs = "load",
	 CLI_NUMBER_AT(struct pool_use, load_clients, 1, POOL_LOAD_CLIENTS_MAX),
	 .help = "clients that put values at once (4)"},
	{"size", .value = "BYTES", .verbs = "load",
	 CLI_NUMBER_AT(struct pool_use, load_size, 1, POOL_LOAD_SIZE_MAX),
	 .help = "length of a value (64)"},
	{0},
};

/* ---- arguments ---- */

/* Offers the pools of which a node was made on this machine. */
static void list_pools(struct cli_words *w, char *const *args)
{
	char path[PATH_MAX];
	DIR *dir = conf_state_dir(path, sizeof(path)) ? opendir(path) : NULL;
	const struct dirent *entry;

	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.' && entry->d_type == DT_DIR)
			cli_offer(w, entry->d_name, NULL);
	if (dir)
		closedir(dir);
}

static void list_names(struct cli_words *w, char *const *args)
{
	char *const argv[] = {"stag", "pool", "ls", args[0], NULL};

	cli_offer_output(w, argv);
}

static void list_nodes(struct cli_words *w, char *const *args)
{
	char *const argv[] = {"stag", "pool", "status", args[0], "--json", NULL};
	CLEANUP_FREE char *text = cli_run(argv);
	json_t *status = text ? json_loads(text, 0, NULL) : NULL, *node;
	size_t i;

	json_array_foreach (json_object_get(status, "nodes"), i, node)
		cli_offer(w, json_string_value(json_object_get(node, "name")), NULL);
	json_decref(status);
}

static const struct cli_argument pool_arguments[] = {
	{"POOL",
	 "its name, if a node of it was made on this machine; or a node's directory or INI file, "
	 "with a / in it; or [USER@]HOST[:PORT][,HOST[:PORT]...]",
	 CLI_FILE, .list = list_pools},
	{"NAME", .type = CLI_TEXT, .list = list_names},
	{"NODE", .type = CLI_TEXT, .list = list_nodes},
	{"FILE", .type = CLI_FILE},
	{0},
};

/* ---- verbs ---- */

static const struct pool_verb {
	struct cli_verb cli;
	int (*run)(const struct pool_use *u);
	enum { ALONE, WITH_ADAPTER } needs;
} pool_verbs[] = {
	{{"create", .args = "NEW-POOL --size SIZE",
	  .summary = "Makes the first node of a pool on this machine, for stagd to serve.",
	  .example = "stag pool create shop --size 256M --node a --serve"},
	 pool_use_create,
	 ALONE},
	{{"join", .args = "POOL [--from NODE | --roll WHERE --secrets FILE]",
	  .summary = "Makes another node of a pool, for stagd to serve.",
	  .example = "stag pool join shop --node b --serve"},
	 pool_use_join,
	 ALONE},
	{{"status", .args = "POOL",
	  .summary =
		  "Shows a pool: its nodes, the primary, how far each standby is behind, and how "
		  "full the memory is.",
	  .example = "stag pool status shop"},
	 pool_use_status,
	 WITH_ADAPTER},
	{{"put",
	  .args = "POOL NAME [FILE | --value TEXT] [--exclusive | --version N]\n"
		  "POOL --insert [FILE | --value TEXT]",
	  .summary = "Puts a value into a pool, by name or without one.",
	  .example = "stag pool put shop greeting --value hello"},
	 pool_use_put,
	 WITH_ADAPTER},
	{{"get", .args = "POOL {NAME | --pointer PTR} [FILE]",
	  .summary = "Gets a value of a pool, to a file or to standard output.",
	  .example = "stag pool get shop greeting"},
	 pool_use_get,
	 WITH_ADAPTER},
	{{"update", .args = "POOL {NAME | --pointer PTR} [FILE | --value TEXT] [--version N]",
	  .summary = "Replaces a value that exists.",
	  .example = "stag pool update shop greeting --value bye --version 3"},
	 pool_use_update,
	 WITH_ADAPTER},
	{{"rm", .args = "POOL {NAME... | --pointer PTR} [--version N]",
	  .summary = "Removes values of a pool.", .example = "stag pool rm shop greeting"},
	 pool_use_rm,
	 WITH_ADAPTER},
	{{"ls", .args = "POOL [PATTERN]", .summary = "Lists the names in a pool.",
	  .example = "stag pool ls shop 'order-*' --long"},
	 pool_use_ls,
	 WITH_ADAPTER},
	{{"switchover", .args = "POOL [NODE]",
	  .summary = "Makes another node the primary, without loss.",
	  .example = "stag pool switchover shop b"},
	 pool_use_switchover,
	 WITH_ADAPTER},
	{{"forget", .args = "POOL NODE",
	  .summary = "Removes a node from the roll that will not come back.",
	  .example = "stag pool forget shop b"},
	 pool_use_forget,
	 WITH_ADAPTER},
	{{"watch", .args = "POOL",
	  .summary = "Shows a pool, and updates it; on a terminal in place.",
	  .example = "stag pool watch shop"},
	 pool_use_watch,
	 WITH_ADAPTER},
	{{"load", .args = "POOL",
	  .summary = "Puts values for a while, then checks that all acknowledged values are there.",
	  .example = "stag pool load shop --secs 10"},
	 pool_use_load,
	 WITH_ADAPTER},
};

static const struct cli_noun pool_noun = {
	.call = "stag pool",
	.name = "pool",
	.summary = "make and use pools of replicated memory",
	.about = "Makes nodes of a pool for stagd to serve, and uses a pool: memory that several "
		 "machines replicate, with values by name and by remote pointer. See stag-pool(1) "
		 "and docs/HA.md.",
	.examples = "stag pool create shop --size 256M --node a --serve &\n"
		    "stag pool join shop --node b --serve &\n"
		    "stag pool put shop greeting --value hello\n"
		    "stag pool switchover shop && stag pool get shop greeting",
	CLI_VERBS(pool_verbs),
	.options = pool_table,
	.arguments = pool_arguments,
};

static int run_pool(const struct command *self, int argc, char **argv)
{
	struct pool_use u = {.interval = 1,
			     .seconds = 10,
			     .load_clients = POOL_LOAD_CLIENTS,
			     .load_size = POOL_LOAD_SIZE};
	const struct pool_verb *v;
	struct cli_call call;
	int rc;

	if (!cli_parse(&pool_noun, argc, argv, &u, &call, &rc))
		return rc;
	v = (const struct pool_verb *)call.verb;
	if (v->needs == WITH_ADAPTER && preload_self(argc, argv) != 0)
		return EXIT_FAILED;
	u.pool = call.args[0];
	u.args = call.args + 1;
	u.num_args = call.num_args - 1;
	return v->run(&u);
}

const struct command pool_command = {.noun = &pool_noun, .run = run_pool};
