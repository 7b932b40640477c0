// SPDX-License-Identifier: BSD-2-Clause
/*
 * block.c - stag block: its command line.
 *
 * A target, and a user of one over RDMA, need the software adapter in this process: if it is not loaded, the command
 * executes itself again with it.
 */
#include <string.h>

#include "block_use.h"
#include "control.h"
#include "load.h"
#include "stag.h"

#define MAX_CONNECTIONS 256
#define MAX_SPIN_US	1000000

/* Keeps the text: it is parsed, and changed, after the command has executed itself again. */
static bool note_lun(void *to, const struct cli_option *option, char *text)
{
	struct block_use *u = to;

	if (u->num_luns == STAG_BLOCK_MAX_LUNS) {
		complain("--lun: a target has at most %d units", STAG_BLOCK_MAX_LUNS);
		return false;
	}
	u->luns[u->num_luns++] = text;
	return true;
}

static bool note_initiator(void *to, const struct cli_option *option, char *text)
{
	struct block_use *u = to;

	if (u->num_initiators == BLOCK_MAX_INITIATORS) {
		complain("--initiator: at most %d", BLOCK_MAX_INITIATORS);
		return false;
	}
	u->initiators[u->num_initiators++] = text;
	return true;
}

/* ---- options ---- */

#define TEXT(field)  CLI_TEXT_AT(struct block_use, field)
#define NAMED(field) CLI_FILE_AT(struct block_use, field)
#define FLAG(field)  CLI_FLAG_AT(struct block_use, field)
#define USE	     "discover info read write bench"

static const struct cli_option block_table[] = {
	{"lun", .value = "N=WHERE", .verbs = "serve", .type = CLI_FILE, .parse = note_lun,
	 .repeats = true,
	 .help = "logical unit N is WHERE: PATH:PARTITION of a store, or the path of a file or a "
		 "block device. May repeat. After it, with commas: ro (read only), write-back (a "
		 "write is durable when the initiator flushes it; otherwise at once), block=4096 "
		 "(512)"},
	{"initiator", .value = "PATTERN", .verbs = "serve", .type = CLI_TEXT,
	 .parse = note_initiator, .repeats = true,
	 .help = "an initiator that may log in: its name, or a pattern with * and ? (all). May "
		 "repeat. After it, with blanks, in quotes: user=NAME secret-file=FILE (CHAP), "
		 "lun=0,2,8-15 (the units that it sees; all), ro (read only)"},
	{"name", .value = "NAME", .verbs = "serve", TEXT(name),
	 .help = "of the target: iqn.…, eui.… or naa.… (made from the name of this host)"},
	{"address", .value = "ADDRESS", .verbs = "serve", TEXT(address),
	 .help = "address to listen on (all)"},
	{"port", .value = "PORT", .verbs = "serve", TEXT(port),
	 .help = "port to listen on; 0: any free port (3260)"},
	{"state", .value = "DIRECTORY", .verbs = "serve",
	 CLI_STORE(CLI_DIRECTORY, struct block_use, state, const char *),
	 .help = "directory for persistent reservations that survive a restart, if an initiator "
		 "requests that (none do)"},
	{"max-sessions", .value = "N", .verbs = "serve",
	 CLI_NUMBER_AT(struct block_use, max_sessions, 1, 65536),
	 .help = "sessions at the same time (1024)"},
	{"spin", .value = "MICROSECONDS", .verbs = "serve",
	 CLI_NUMBER_AT(struct block_use, spin, 0, MAX_SPIN_US),
	 .help = "how long to poll for the next request before sleeping, while requests come in "
		 "quick succession; 0: not at all (50)"},
	{"offset", .value = "BYTES", .verbs = "read write", TEXT(offset),
	 .help = "where to begin in the unit: 4096, 512K, 1G (0)"},
	{"length", .value = "BYTES", .verbs = "read write", TEXT(length),
	 .help = "how much to copy (read: to the end of the unit; write: all input)"},
	{"op", .value = "read|write|mix", .verbs = "bench",
	 CLI_WORD_AT(struct block_use, op, "read write mix"),
	 .help = "what to measure: read, write, or a mix of both (read)"},
	{"writes", .value = "PERCENT", .verbs = "bench",
	 CLI_NUMBER_AT(struct block_use, writes, 1, 99), .help = "share of writes in a mix (50)"},
	{"size", .value = "BYTES", .verbs = "bench", TEXT(size), .help = "of an operation (4K)"},
	{"depth", .value = "N", .verbs = "bench",
	 CLI_NUMBER_AT(struct block_use, depth, 1, LOAD_MAX_DEPTH),
	 .help = "operations in flight on each connection (32)"},
	{"connections", .value = "N", .verbs = "bench",
	 CLI_NUMBER_AT(struct block_use, connections, 1, MAX_CONNECTIONS),
	 .help = "sessions at once (1)"},
	{"secs", .value = "S", .verbs = "bench",
	 CLI_SECONDS_AT(struct block_use, secs, 0.001, 86400), .help = "how long to measure (1)"},
	{"random", .verbs = "bench", CLI_CLEAR_AT(struct block_use, sequential),
	 .help = "at random offsets (the default)"},
	{"sequential", .verbs = "bench", FLAG(sequential), .help = "at consecutive offsets"},
	{"poll", .verbs = "bench", CLI_CLEAR_AT(struct block_use, sleep),
	 .help = "spin for completions (the default)"},
	{"sleep", .verbs = "bench", FLAG(sleep), .help = "wait for completion events"},
	{"force", .verbs = "bench", FLAG(force), .help = "allow overwriting the data in the unit"},
	{"stags", .verbs = "read write bench", FLAG(stags),
	 .help = "afterwards list the STags that were made, and which peers used them after their "
		 "end"},
	{"user", .value = "NAME", .verbs = "serve " USE, TEXT(user), .common = true,
	 .help = "serve: the user that may log in, by CHAP. Otherwise: the user to log in as"},
	{"secret-file", .value = "FILE", .verbs = "serve " USE, NAMED(secret_file), .common = true,
	 .help = "its first line is the secret of --user: 12 characters or more"},
	{"own-user", .value = "NAME", .verbs = "serve", TEXT(own_user), .common = true,
	 .help = "the user as which the target authenticates itself if an initiator requests it"},
	{"own-secret-file", .value = "FILE", .verbs = "serve", NAMED(own_secret_file),
	 .common = true,
	 .help = "its first line is the secret of --own-user, another than that of --user"},
	{"peer-user", .value = "NAME", .verbs = USE, TEXT(peer_user), .common = true,
	 .help = "the user as which the target must authenticate itself"},
	{"peer-secret-file", .value = "FILE", .verbs = USE, NAMED(peer_secret_file), .common = true,
	 .help = "its first line is the secret of --peer-user"},
	{"initiator", .value = "NAME", .verbs = USE, TEXT(initiator), .common = true,
	 .help = "the initiator's name (made from the name of this host)"},
	{"tls", .value = "MODE", .verbs = "serve " USE,
	 CLI_WORD_AT(struct block_use, tls, "off allowed required"), .common = true,
	 .help = "whether connections are encrypted, by keys made of the users' secrets: off, "
		 "allowed or required (off)"},
	{"digests", .verbs = USE, FLAG(digests), .common = true,
	 .help = "CRC32C of headers and data, if the target supports it"},
	{"json", FLAG(json), .help = "for programs"},
	{0},
};

/* ---- arguments ---- */

/* Calls offer() for each target of this user that runs on this machine. */
static void for_each_target(struct cli_words *w,
			    void (*offer)(struct cli_words *w, const char *name, int port))
{
	json_t *all = control_query_all(BLOCK_KIND, "sessions"), *target;
	size_t i;

	json_array_foreach (all, i, target) {
		const char *name = json_string_value(json_object_get(target, "name"));

		if (name)
			offer(w, name, (int)json_integer_value(json_object_get(target, "port")));
	}
	json_decref(all);
}

static void offer_url(struct cli_words *w, const char *name, int port)
{
	char url[STAG_BLOCK_NAME_MAX + 64];

	snprintf(url, sizeof(url), "stag://127.0.0.1:%d/%s/", port, name);
	cli_offer(w, url, NULL);
}

static void offer_portal(struct cli_words *w, const char *name, int port)
{
	char portal[64];

	snprintf(portal, sizeof(portal), "iscsi://127.0.0.1:%d", port);
	cli_offer(w, portal, name);
}

static void offer_target(struct cli_words *w, const char *name, int port)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", port);
	cli_offer(w, name, NULL);
	cli_offer(w, text, name);
}

static void list_urls(struct cli_words *w, char *const *args)
{
	for_each_target(w, offer_url);
}

static void list_portals(struct cli_words *w, char *const *args)
{
	for_each_target(w, offer_portal);
}

static void list_targets(struct cli_words *w, char *const *args)
{
	for_each_target(w, offer_target);
}

static const struct cli_argument block_arguments[] = {
	{"URL",
	 "SCHEME://[USER[%SECRET]@]HOST[:PORT]/TARGET/LUN; the scheme is stag (the best "
	 "transport), iser or iscsi",
	 CLI_TEXT, .list = list_urls},
	{"PORTAL", "of targets: SCHEME://HOST[:PORT]", CLI_TEXT, .list = list_portals},
	{"TARGET", "a target that runs on this machine, by its name or port (all of yours)",
	 CLI_TEXT, .list = list_targets},
	{"FILE", .help = "standard input or output if it is missing or -", .type = CLI_FILE},
	{0},
};

/* ---- verbs ---- */

static const struct block_verb {
	struct cli_verb cli;
	int (*run)(const struct block_use *u);
} block_verbs[] = {
	{{"serve", .args = "--lun N=WHERE[,ro][,write-back][,block=BYTES]...",
	  .summary =
		  "Serves logical units to initiators, over iSCSI, iSER and one-shot, until SIGINT "
		  "or SIGTERM.",
	  .example = "stag block serve --lun 1=/srv/shop.img:goods --lun 2=/srv/disk.img,ro"},
	 block_serve},
	{{"discover", .args = "PORTAL",
	  .summary = "Lists the targets of a portal, and the units of each.",
	  .example = "stag block discover iscsi://127.0.0.1"},
	 block_discover},
	{{"info", .args = "URL", .summary = "Shows what a logical unit is, and how it is reached.",
	  .example = "stag block info stag://127.0.0.1/iqn.2026-01.stag:host/1"},
	 block_info},
	{{"read", .args = "URL [FILE]",
	  .summary = "Copies from a unit to a file, or to standard output.",
	  .example = "stag block read stag://127.0.0.1/iqn.2026-01.stag:host/1 goods.img"},
	 block_read},
	{{"write", .args = "URL [FILE]",
	  .summary =
		  "Copies from a file, or from standard input, to a unit; the data is durable when "
		  "it ends.",
	  .example = "stag block write stag://127.0.0.1/iqn.2026-01.stag:host/1 goods.img"},
	 block_write},
	{{"bench", .args = "URL [--random | --sequential] [--poll | --sleep]",
	  .summary = "Measures how fast a unit is.",
	  .example =
		  "stag block bench iser://127.0.0.1/iqn.2026-01.stag:host/1 --op read --secs 10"},
	 block_bench},
	{{"sessions", .args = "[TARGET]",
	  .summary = "Shows the sessions of targets that run on this machine.",
	  .example = "stag block sessions 3260"},
	 block_sessions},
	{{"stags", .args = "[TARGET]",
	  .summary =
		  "Shows the STags that initiators have advertised to targets on this machine, and "
		  "how each ended.",
	  .example = "stag block stags"},
	 block_stags},
};

static const struct cli_noun block_noun = {
	.call = "stag block",
	.name = "block",
	.summary = "serve block storage, and use it",
	.about = "Serves partitions of stores, files and block devices as logical units of a "
		 "target, to any iSCSI initiator; or uses a unit of any target: finds targets, "
		 "shows a unit, copies between a unit and a file, measures it; or shows the "
		 "sessions and STags of targets that run on this machine. See stag-block(1).",
	.examples = "stag block serve --lun 1=/srv/shop.img:goods --lun 2=/srv/disk.img,ro\n"
		    "stag block read iscsi://127.0.0.1/iqn.2026-01.stag:host/1 goods.img",
	CLI_VERBS(block_verbs),
	.options = block_table,
	.arguments = block_arguments,
};

/* ---- the command ---- */

static bool needs_adapter(const struct block_verb *v, const char *url)
{
	return v->run == block_serve ||
	       (url && (!strncmp(url, "stag://", 7) || !strncmp(url, "iser://", 7)));
}

static int run_block(const struct command *self, int argc, char **argv)
{
	struct block_use u = {.spin = BLOCK_SPIN_DEFAULT,
			      .depth = LOAD_DEPTH,
			      .secs = LOAD_SECONDS,
			      .connections = 1};
	const struct block_verb *v;
	struct cli_call call;
	int rc;

	if (!cli_parse(&block_noun, argc, argv, &u, &call, &rc))
		return rc;
	v = (const struct block_verb *)call.verb;
	u.url = call.num_args > 0 ? call.args[0] : NULL;
	u.file = call.num_args > 1 ? call.args[1] : NULL;
	if (v->run == block_serve && preload_server(argc, argv) != 0)
		return EXIT_FAILED;
	if (needs_adapter(v, u.url) && preload_self(argc, argv) != 0)
		return EXIT_FAILED;
	return v->run == block_serve ? block_serve(&u) : block_run_with_secrets(&u, v->run);
}

const struct command block_command = {.noun = &block_noun, .run = run_block};
