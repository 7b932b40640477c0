// SPDX-License-Identifier: BSD-2-Clause
/*
 * options.c - stag torture: its command line.
 */
#include "torture.h"

#include <jansson.h>
#include <string.h>

#include "stag.h"

#define MAX_ROUNDS 1000u
#define MIN_SIZE   (1ull << 20)
#define MAX_SIZE   (1ull << 40)

static const struct phase *find_phase(const char *name)
{
	for (unsigned int i = 0; i < num_phases; i++)
		if (strcmp(phases[i].name, name) == 0)
			return &phases[i];
	return NULL;
}

static bool parse_phase(void *to, const struct cli_option *option, char *text)
{
	struct options *o = to;

	if (!find_phase(text)) {
		complain("no phase '%s'; --list names them", text);
		return false;
	}
	if (o->num_phases < sizeof(o->phases) / sizeof(*o->phases))
		o->phases[o->num_phases++] = text;
	return true;
}

static void offer_phases(struct cli_words *w, char *const *args)
{
	for (unsigned int i = 0; i < num_phases; i++)
		cli_offer(w, phases[i].name, phases[i].what);
}

static const struct cli_option torture_table[] = {
	{"phase", .value = "NAME", .repeats = true, .parse = parse_phase, .list = offer_phases,
	 .help = "inject only these faults; may repeat (all, one after the other)"},
	{"list", CLI_FLAG_AT(struct options, list), .help = "list the phases, and end"},
	{"secs", .alias = "seconds", .value = "S",
	 CLI_SECONDS_AT(struct options, seconds, 0.01, 100), .help = "seconds of a phase (10)"},
	{"rounds", .value = "N", CLI_NUMBER_AT(struct options, rounds, 1, MAX_ROUNDS),
	 .help = "how often all phases run (1)"},
	{"failovers", .value = "N", CLI_NUMBER_AT(struct options, failovers, 0, 1000),
	 .help = "a phase that kills primaries goes on until it has killed N (0)"},
	{"nodes", .value = "N", CLI_NUMBER_AT(struct options, nodes, 2, MAX_NODES),
	 .help = "nodes that serve the pool: 2 to 4 (2)"},
	{"clients", .value = "N", CLI_NUMBER_AT(struct options, clients, 1, MAX_CLIENTS),
	 .help = "clients that use the pool, besides one that measures its outages (8)"},
	{"etcd", .value = "MEMBERS", CLI_NUMBER_AT(struct options, etcd_members, 1, MAX_ETCD),
	 .help = "keep the roll in an etcd of 1 or 3 members that is started here (in a file)"},
	{"rate", .value = "N", CLI_NUMBER_AT(struct options, rate, 1, 100000),
	 .help = "operations per second of each client (500)"},
	{"longest-pause", .value = "S", CLI_SECONDS_AT(struct options, longest_pause, 0.01, 60),
	 .help = "the longest time that a node is stopped: 0.01 to 60 (2)"},
	{"size", .value = "SIZE", CLI_SIZE_AT(struct options, size, MIN_SIZE, MAX_SIZE),
	 .help = "size of the pool: 64M, 1G (64M)"},
	{"beat", .value = "US", CLI_NUMBER_AT(struct options, beat_us, 100, 1000000),
	 .help = "the nodes' interval of heartbeats, as in stag.ini(5)"},
	{"lease", .value = "MS", CLI_NUMBER_AT(struct options, lease_ms, 1, 10000),
	 .help = "the nodes' lease, as in stag.ini(5)"},
	{"promote", .value = "MS", CLI_NUMBER_AT(struct options, promote_ms, 1, 20000),
	 .help = "the silence after which a standby promotes itself, as in stag.ini(5)"},
	{"seed", .value = "N", CLI_NUMBER_AT(struct options, seed, 0, UINT64_MAX),
	 .help = "seed of all random numbers, to inject the same faults again"},
	{"one-host", CLI_FLAG_AT(struct options, no_net),
	 .help = "use no network namespaces: no node can be cut off"},
	{"clock", CLI_FLAG_AT(struct options, clock),
	 .help = "allow the phase clock to set this machine's clock; it is corrected afterwards"},
	{"dir", .alias = "directory", .value = "DIRECTORY",
	 CLI_DIRECTORY_AT(struct options, directory),
	 .help = "directory of logs, states and histories (a temporary one, removed at the end)"},
	{"keep", CLI_FLAG_AT(struct options, keep),
	 .help = "keep that directory even if nothing failed"},
	{"check", .value = "HISTORY", CLI_FILE_AT(struct options, check),
	 .help = "check a history again that a run has kept"},
	{"json", CLI_FLAG_AT(struct options, json), .help = "print JSON, for programs"},
	{0},
};

static const struct torture_verb {
	struct cli_verb cli;
} torture_verbs[] = {
	{{"pool",
	  .summary = "Serves a pool by several nodes, kills, stops and isolates them, and checks "
		     "the history of what clients saw.",
	  .example = "stag torture pool --phase kill-primary --failovers 20"}},
};

const struct cli_noun torture_noun = {
	.call = "stag torture",
	.name = "torture",
	.summary = "inject faults, and check that the guarantees hold",
	.about =
		"Serves a pool by several nodes on this machine, lets clients use it at random, "
		"and meanwhile kills, stops and isolates nodes. What clients saw is checked: every "
		"history has to be linearizable, no acknowledged change may be lost or happen "
		"twice, and the nodes' memory has to be the same, byte for byte. See "
		"stag-torture(1).",
	.examples = "stag torture pool\n"
		    "stag torture pool --phase kill-primary --failovers 200 --etcd 3",
	CLI_VERBS(torture_verbs),
	.options = torture_table,
};

static void list_phases(bool as_json)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < num_phases; i++)
		if (as_json)
			json_array_append_new(
				list,
				json_pack("{s:s s:s s:b}", "phase", phases[i].name, "what",
					  phases[i].what, "wants_namespaces", phases[i].needs_net));
		else
			printf("%-12s %s%s\n", phases[i].name, phases[i].what,
			       phases[i].needs_net ? " (needs network namespaces)" : "");
	if (as_json) {
		json_dumpf(list, stdout, JSON_INDENT(2));
		puts("");
	}
	json_decref(list);
}

bool options_parse(struct options *o, int argc, char **argv, int *rc)
{
	struct cli_call call;

	*o = (struct options){.nodes = 2,
			      .clients = 8,
			      .rate = 500,
			      .rounds = 1,
			      .seconds = 10,
			      .longest_pause = 2,
			      .size = 64 << 20};
	if (!cli_parse(&torture_noun, argc, argv, o, &call, rc))
		return false;
	*rc = EXIT_OK;
	if (o->list)
		list_phases(o->json);
	return !o->list;
}
