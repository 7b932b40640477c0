// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool.c - stag pool: its command line (pool_use.h).
 *
 * Verbs that use a pool need an RDMA device: if the software adapter is not loaded, the command executes itself again
 * with it.
 */
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "conf.h"
#include "pool_use.h"
#include "stag.h"

/* ---- options ---- */

#define TEXT(field) CLI_TEXT_AT(struct pool_use, field)
#define FLAG(field) CLI_FLAG_AT(struct pool_use, field)
#define CLIENT	    "status put get update incr rm ls switchover forget watch load secret shell"
#define NODE	    "create join"

static const struct cli_option pool_table[] = {
	{"user", .value = "NAME", .verbs = CLIENT, TEXT(user), .common = true,
	 .help = "the user to authenticate as (client; with a node's directory, the user with most "
		 "rights)"},
	{"secret-file", .value = "FILE", .verbs = CLIENT, CLI_FILE_AT(struct pool_use, secret_file),
	 .common = true,
	 .help = "the user's secret: the first line, or the line with the user's name"},
	{"tls", .value = "MODE", .verbs = CLIENT,
	 CLI_WORD_AT(struct pool_use, tls, "off allowed required"), .common = true,
	 .help = "encrypt the connection: off, allowed or required (as the node's INI file, or "
		 "off)"},
	{"tls-cert", .value = "FILE", .verbs = CLIENT, CLI_FILE_AT(struct pool_use, tls_cert),
	 .common = true,
	 .help = "a certificate to show to the nodes, in PEM; TLS is required then"},
	{"tls-key", .value = "FILE", .verbs = CLIENT, CLI_FILE_AT(struct pool_use, tls_key),
	 .common = true, .help = "the private key of the certificate"},
	{"tls-ca", .value = "FILE", .verbs = CLIENT, CLI_FILE_AT(struct pool_use, tls_ca),
	 .common = true, .help = "the authorities of the nodes' certificates"},
	{"wait", .value = "S", .verbs = CLIENT " join",
	 CLI_SECONDS_AT(struct pool_use, wait, 0, 86400), .common = true,
	 .help = "seconds to wait for a pool that is not served yet, and for a standby to become "
		 "in sync (10)"},
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
	{"force", .verbs = "rm", FLAG(force),
	 .help = "remove all names that match a pattern, without asking"},
	{.help = "Values:"},
	{"value", .value = "TEXT", .verbs = "put update", TEXT(value),
	 .help = "the value, also one that begins with - or is the name of a file"},
	{"file", .value = "FILE", .verbs = "put update", CLI_FILE_AT(struct pool_use, file),
	 .help = "the value is the content of FILE"},
	{"file", .value = "FILE", .verbs = "get", CLI_FILE_AT(struct pool_use, file),
	 .help = "write the value to FILE"},
	{"insert", .verbs = "put", FLAG(insert), .help = "without a name; prints a pointer"},
	{"pointer", .value = "PTR", .verbs = "get update rm", TEXT(pointer),
	 .help = "a pointer that an insert, or ls --long, has printed"},
	{"exclusive", .verbs = "put", FLAG(exclusive), .help = "only if the name does not exist"},
	{"version", .value = "N", .verbs = "put update rm", TEXT(version),
	 .help = "only if the value is at this version"},
	{"by", .value = "N", .verbs = "incr", TEXT(by),
	 .help = "how much to add, also a negative number (1)"},
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

/* Offers the pools that this user has on this machine. */
static void list_pools(struct cli_words *w, char *const *args)
{
	const struct registry_node *n = NULL;
	struct registry r;

	registry_read(&r);
	while ((n = registry_next_pool(&r, n)))
		cli_offer(w, n->pool, NULL);
	registry_free(&r);
}

static void list_names(struct cli_words *w, char *const *args)
{
	char *const argv[] = {"stag", "pool", "ls", args[0], "--wait", "0", NULL};

	cli_offer_output(w, argv);
}

static void list_nodes(struct cli_words *w, char *const *args)
{
	char *const argv[] = {"stag", "pool", "status", args[0], "--wait", "0", "--json", NULL};
	CLEANUP_FREE char *text = cli_run(argv);
	json_t *status = text ? json_loads(text, 0, NULL) : NULL, *node;
	size_t i;

	json_array_foreach (json_object_get(status, "nodes"), i, node)
		cli_offer(w, json_string_value(json_object_get(node, "name")), NULL);
	json_decref(status);
}

static const struct cli_argument pool_arguments[] = {
	{"POOL",
	 "its name, if this user has a node of it on this machine; or a node's directory or INI "
	 "file, with a / in it; or [USER@]HOST[:PORT][,HOST[:PORT]...]. Without POOL it is that of "
	 "STAG_POOL, or the only pool that this user has",
	 CLI_FILE, .list = list_pools},
	{"NAME", .type = CLI_TEXT, .list = list_names},
	{"NODE", .type = CLI_TEXT, .list = list_nodes},
	{"VALUE", "the value itself; - reads it from standard input", .type = CLI_TEXT},
	{"ACTION", "rotate: change the secret of the nodes; status: show which nodes accept which",
	 .type = CLI_WORD, .words = "rotate status"},
	{0},
};

/* ---- verbs ---- */

static const struct pool_verb pool_verbs[] = {
	{{"list", .args = "",
	  .summary = "Lists the pools that this user has on this machine, and their state.",
	  .example = "stag pool list", .excess = "'stag pool ls POOL' lists the names in a pool"},
	 pool_use_list,
	 WITH_ADAPTER,
	 NOTHING,
	 NOT_IN_SHELL},
	{{"create", .args = "NEW-POOL --size SIZE",
	  .summary = "Makes the first node of a pool on this machine, for stagd to serve.",
	  .example = "stag pool create shop --size 256M --node a --serve"},
	 pool_use_create,
	 ALONE,
	 NOTHING,
	 NOT_IN_SHELL},
	{{"join", .args = "POOL [--from NODE | --roll WHERE --secrets FILE]",
	  .summary = "Makes another node of a pool, for stagd to serve.",
	  .example = "stag pool join shop --node b --serve"},
	 pool_use_join,
	 ALONE,
	 NOTHING,
	 NOT_IN_SHELL},
	{{"status", .args = "[POOL]",
	  .summary =
		  "Shows a pool: its nodes, the primary, how far each standby is behind, and how "
		  "full the memory is.",
	  .example = "stag pool status shop"},
	 pool_use_status,
	 WITH_ADAPTER,
	 NOTHING,
	 IN_SHELL},
	{{"put",
	  .args = "[POOL] NAME {VALUE | --file FILE | --value TEXT} [--exclusive | --version N]\n"
		  "POOL --insert {VALUE | --file FILE | --value TEXT}",
	  .summary = "Puts a value into a pool, by name or without one.",
	  .example = "stag pool put shop greeting hello", .alias = "set",
	  .excess = "quote a value that has spaces"},
	 pool_use_put,
	 WITH_ADAPTER,
	 A_VALUE,
	 IN_SHELL},
	{{"get", .args = "[POOL] {NAME | --pointer PTR} [--file FILE]",
	  .summary = "Gets a value of a pool, to a file or to standard output.",
	  .example = "stag pool get shop greeting",
	  .excess = "--file FILE writes the value to a file"},
	 pool_use_get,
	 WITH_ADAPTER,
	 A_NAME,
	 IN_SHELL},
	{{"update",
	  .args = "[POOL] {NAME | --pointer PTR} {VALUE | --file FILE | --value TEXT} [--version "
		  "N]",
	  .summary = "Replaces a value that exists.",
	  .example = "stag pool update shop greeting bye --version 3",
	  .excess = "quote a value that has spaces"},
	 pool_use_update,
	 WITH_ADAPTER,
	 A_VALUE,
	 IN_SHELL},
	{{"incr", .args = "[POOL] NAME [--by N]",
	  .summary = "Adds to a number, which is 0 if it does not exist, and prints the sum. No "
		     "change of another client is lost.",
	  .example = "stag pool incr shop visits"},
	 pool_use_incr,
	 WITH_ADAPTER,
	 A_NAME,
	 IN_SHELL},
	{{"rm", .args = "[POOL] {NAME... | --pointer PTR} [--version N] [--force]",
	  .summary = "Removes values of a pool, by name or by a pattern such as 'sess*'.",
	  .example = "stag pool rm shop greeting", .alias = "del"},
	 pool_use_rm,
	 WITH_ADAPTER,
	 A_NAME,
	 IN_SHELL},
	{{"ls", .args = "[POOL] [PATTERN]", .summary = "Lists the names in a pool.",
	  .example = "stag pool ls shop 'order-*' --long", .alias = "keys"},
	 pool_use_ls,
	 WITH_ADAPTER,
	 NOTHING,
	 IN_SHELL},
	{{"switchover", .args = "[POOL] [NODE]",
	  .summary = "Makes another node the primary, without loss.",
	  .example = "stag pool switchover shop b"},
	 pool_use_switchover,
	 WITH_ADAPTER,
	 NOTHING,
	 IN_SHELL},
	{{"forget", .args = "[POOL] NODE",
	  .summary = "Removes a node from the roll that will not come back.",
	  .example = "stag pool forget shop b"},
	 pool_use_forget,
	 WITH_ADAPTER,
	 A_NODE,
	 IN_SHELL},
	{{"watch", .args = "[POOL]",
	  .summary = "Shows a pool, and updates it; on a terminal in place.",
	  .example = "stag pool watch shop"},
	 pool_use_watch,
	 WITH_ADAPTER,
	 NOTHING,
	 NOT_IN_SHELL},
	{{"shell", .args = "[POOL]",
	  .summary = "Takes commands, over one connection: put, get, ls and so on, without 'stag "
		     "pool' and POOL. On a terminal with history and completion; 'help' lists "
		     "them.",
	  .example = "stag pool shell shop <commands"},
	 pool_use_shell,
	 WITH_ADAPTER,
	 NOTHING,
	 NOT_IN_SHELL},
	{{"load", .args = "[POOL]",
	  .summary = "Puts values for a while, then checks that all acknowledged values are there.",
	  .example = "stag pool load shop --secs 10"},
	 pool_use_load,
	 WITH_ADAPTER,
	 NOTHING,
	 NOT_IN_SHELL},
	{{"secret", .args = "ACTION [POOL]",
	  .summary =
		  "Rotates the secret of the nodes while they serve: the old one goes when every "
		  "node has the new one.",
	  .example = "stag pool secret rotate shop"},
	 pool_use_secret,
	 WITH_ADAPTER,
	 NOTHING,
	 NOT_IN_SHELL},
};

const struct cli_noun pool_noun = {
	.call = "stag pool",
	.name = "pool",
	.summary = "make and use pools of replicated memory",
	.about = "Makes nodes of a pool for stagd to serve, and uses a pool: memory that several "
		 "machines replicate, with values by name and by remote pointer. See stag-pool(1) "
		 "and docs/HA.md.",
	.examples = "stag pool create shop --size 256M --node a --serve &\n"
		    "stag pool join shop --node b --serve &\n"
		    "stag pool put shop greeting hello\n"
		    "stag pool switchover shop && stag pool get shop greeting",
	CLI_VERBS(pool_verbs),
	.default_verb = "list",
	.options = pool_table,
	.arguments = pool_arguments,
};

/* Counts the arguments that the verb needs besides POOL. */
static int count_needed(const struct pool_use *u, const struct pool_verb *v)
{
	int name = u->pointer || u->insert ? 0 : 1;

	switch (v->follows) {
	case NOTHING:
		return 0;
	case A_NODE:
		return 1;
	case A_NAME:
		return name;
	case A_VALUE:
		return name + (u->value || u->file ? 0 : 1);
	}
	return 0;
}

/* Takes the first argument as POOL, unless POOL was left out: then there are no more than needed, or it is a pattern. */
static void take_arguments(struct pool_use *u, const struct pool_verb *v,
			   const struct cli_call *call)
{
	int needed = count_needed(u, v);
	bool left_out = call->num_args <= needed || (v->run == pool_use_ls && call->num_args == 1 &&
						     strpbrk(call->args[0], "*?"));

	if (v->run == pool_use_create || v->run == pool_use_join)
		left_out = false;
	u->pool = left_out ? NULL : call->args[0];
	u->args = call->args + !left_out;
	u->num_args = call->num_args - !left_out;
}

/* Returns what is missing if the first argument is POOL after all. */
static const char *missing_word(const struct pool_use *u, const struct pool_verb *v)
{
	if (v->follows == A_NODE)
		return "NODE is missing";
	if (v->follows == A_VALUE && (u->num_args > 1 || u->insert || u->pointer))
		return "the value is missing: VALUE, - for standard input, or --file FILE";
	return "the name of the value is missing";
}

/* Refuses the name of a pool where POOL was left out: rather than the name of a value, it is POOL, and something is missing. */
static bool names_a_pool(const struct pool_use *u, const struct pool_verb *v)
{
	char ini[PATH_MAX];
	struct registry r;
	bool is_pool;

	if (u->pool || u->num_args == 0 || v->follows == NOTHING)
		return false;
	registry_read(&r);
	snprintf(ini, sizeof(ini), "%s/stag.ini", u->args[0]);
	is_pool = registry_find(&r, u->args[0]) || access(ini, F_OK) == 0;
	registry_free(&r);
	if (is_pool)
		complain("'%s' is a pool, and %s; if it is a name in the pool, too, write POOL "
			 "before it",
			 u->args[0], missing_word(u, v));
	return is_pool;
}

static int run_pool(const struct command *self, int argc, char **argv)
{
	struct pool_use u = {.wait = 10,
			     .interval = 1,
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
	take_arguments(&u, v, &call);
	if (names_a_pool(&u, v))
		return EXIT_USAGE;
	return v->run(&u);
}

const struct command pool_command = {.noun = &pool_noun, .run = run_pool};
