// SPDX-License-Identifier: BSD-2-Clause
/*
 * options.c - stag torture pool: its command line.
 */
#include "torture.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "conf.h"
#include "stag.h"
#include "verb.h"

#define MAX_ROUNDS 1000u
#define LEAST_SIZE (1ull << 20)
#define MOST_SIZE  (1ull << 40)

enum {
	T_PHASE = VERB_OPTION,
	T_SECONDS,
	T_ROUNDS,
	T_FAILOVERS,
	T_NODES,
	T_CLIENTS,
	T_ETCD,
	T_RATE,
	T_PAUSE,
	T_SIZE,
	T_SEED,
	T_BEAT,
	T_LEASE,
	T_PROMOTE,
	T_DIRECTORY,
	T_CHECK,
	T_KEEP,
	T_NO_NET,
	T_CLOCK,
	T_LIST,
	T_JSON,
};

static const struct option long_options[] = {
	{"phase", required_argument, NULL, T_PHASE},
	{"secs", required_argument, NULL, T_SECONDS},
	{"seconds", required_argument, NULL, T_SECONDS},
	{"rounds", required_argument, NULL, T_ROUNDS},
	{"failovers", required_argument, NULL, T_FAILOVERS},
	{"nodes", required_argument, NULL, T_NODES},
	{"clients", required_argument, NULL, T_CLIENTS},
	{"etcd", required_argument, NULL, T_ETCD},
	{"rate", required_argument, NULL, T_RATE},
	{"longest-pause", required_argument, NULL, T_PAUSE},
	{"size", required_argument, NULL, T_SIZE},
	{"seed", required_argument, NULL, T_SEED},
	{"beat", required_argument, NULL, T_BEAT},
	{"lease", required_argument, NULL, T_LEASE},
	{"promote", required_argument, NULL, T_PROMOTE},
	{"dir", required_argument, NULL, T_DIRECTORY},
	{"directory", required_argument, NULL, T_DIRECTORY},
	{"check", required_argument, NULL, T_CHECK},
	{"keep", no_argument, NULL, T_KEEP},
	{"one-host", no_argument, NULL, T_NO_NET},
	{"clock", no_argument, NULL, T_CLOCK},
	{"list", no_argument, NULL, T_LIST},
	{"json", no_argument, NULL, T_JSON},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static bool number(const char *option, const char *text, uint64_t least, uint64_t most,
		   uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 0);
	if (*text >= '0' && *text <= '9' && !*end && !errno && *out >= least && *out <= most)
		return true;
	complain("--%s wants a number from %llu to %llu, not '%s'", option,
		 (unsigned long long)least, (unsigned long long)most, text);
	return false;
}

static bool seconds(const char *option, const char *text, double most, double *out)
{
	char *end;

	*out = strtod(text, &end);
	if (end != text && !*end && *out >= 0.01 && *out <= most)
		return true;
	complain("--%s wants seconds, at least 0.01 and at most %.0f, not '%s'", option, most,
		 text);
	return false;
}

static const struct phase *find_phase(const char *name)
{
	for (unsigned int i = 0; i < num_phases; i++)
		if (strcmp(phases[i].name, name) == 0)
			return &phases[i];
	return NULL;
}

static bool take_phase(struct options *o, const char *text)
{
	if (!find_phase(text)) {
		complain("no phase '%s'; --list names them", text);
		return false;
	}
	if (o->num_phases < sizeof(o->phases) / sizeof(*o->phases))
		o->phases[o->num_phases++] = text;
	return true;
}

static bool take_size(struct options *o, const char *text)
{
	if (conf_parse_size(text, &o->size) && o->size >= LEAST_SIZE && o->size <= MOST_SIZE)
		return true;
	complain("--size wants 1M to 1T, not '%s'", text);
	return false;
}

/* Those that are numbers. */
static bool take_number(struct options *o, int c, const char *text)
{
	static const struct {
		int option;
		const char *name;
		uint64_t least, most;
		size_t at;
	} numbers[] = {
		{T_ROUNDS, "rounds", 1, MAX_ROUNDS, offsetof(struct options, rounds)},
		{T_FAILOVERS, "failovers", 0, 1000, offsetof(struct options, failovers)},
		{T_NODES, "nodes", 2, MAX_NODES, offsetof(struct options, nodes)},
		{T_CLIENTS, "clients", 1, MAX_CLIENTS, offsetof(struct options, clients)},
		{T_ETCD, "etcd", 1, MAX_ENGINES, offsetof(struct options, engines)},
		{T_RATE, "rate", 1, 100000, offsetof(struct options, rate)},
		{T_BEAT, "beat", 100, 1000000, offsetof(struct options, beat_us)},
		{T_LEASE, "lease", 1, 10000, offsetof(struct options, lease_ms)},
		{T_PROMOTE, "promote", 1, 20000, offsetof(struct options, promote_ms)},
	};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		uint64_t n;

		if (numbers[i].option != c)
			continue;
		if (!number(numbers[i].name, text, numbers[i].least, numbers[i].most, &n))
			return false;
		*(uint32_t *)((char *)o + numbers[i].at) = (uint32_t)n;
		return true;
	}
	return false;
}

static bool take(void *to, int c, char *text)
{
	struct options *o = to;

	switch (c) {
	case T_PHASE:
		return take_phase(o, text);
	case T_SECONDS:
		return seconds("secs", text, 100, &o->seconds);
	case T_PAUSE:
		return seconds("longest-pause", text, 60, &o->longest_pause);
	case T_SIZE:
		return take_size(o, text);
	case T_SEED:
		return number("seed", text, 0, UINT64_MAX, &o->seed);
	case T_DIRECTORY:
		o->directory = text;
		return true;
	case T_CHECK:
		o->check = text;
		return true;
	case T_KEEP:
		o->keep = true;
		return true;
	case T_NO_NET:
		o->no_net = true;
		return true;
	case T_CLOCK:
		o->clock = true;
		return true;
	case T_JSON:
		o->json = true;
		return true;
	case T_LIST:
		o->list = true;
		return true;
	default:
		return take_number(o, c, text);
	}
}

static void list_phases(bool as_json)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < num_phases; i++)
		if (as_json)
			json_array_append_new(
				list,
				json_pack("{s:s s:s s:b}", "phase", phases[i].name, "what",
					  phases[i].what, "wants_namespaces", phases[i].wants_net));
		else
			printf("%-12s %s%s\n", phases[i].name, phases[i].what,
			       phases[i].wants_net ? " (wants network namespaces)" : "");
	if (as_json) {
		json_dumpf(list, stdout, JSON_INDENT(2));
		puts("");
	}
	json_decref(list);
}

bool options_take(struct options *o, const struct command *self, int argc, char **argv, int *rc)
{
	static const struct verb verb = {"pool",
					 "options only",
					 0,
					 0,
					 ~0ull,
					 "Serves a pool by several nodes, kills, stops and cuts "
					 "them off, and judges what clients "
					 "saw.",
					 "stag torture pool --phase kill-primary --failovers 20"};
	static const struct verb_options options = {long_options, take};

	*o = (struct options){.nodes = 2,
			      .clients = 8,
			      .rate = 500,
			      .rounds = 1,
			      .seconds = 10,
			      .longest_pause = 2,
			      .size = 64 << 20};
	if (!verb_parse(self, &verb, &options, o, argc, argv, rc))
		return false;
	*rc = EXIT_OK;
	if (o->list)
		list_phases(o->json);
	return !o->list;
}
