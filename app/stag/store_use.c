// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_use.c - stag store serve, read, write and bench: their command line.
 *
 * They need the software adapter in this very process: where it is not, the command is run once more with it.
 */
#include "store_use.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "stag.h"
#include "store.h"

enum {
	U_ADDRESS = 256,
	U_PORT,
	U_OFFSET,
	U_LENGTH,
	U_TOKEN,
	U_OP,
	U_SIZE,
	U_DEPTH,
	U_SECS,
	U_WRITES,
	U_ORDER,
	U_LEVEL,
	U_JSON, /* from here on without an argument */
	U_SEQUENTIAL,
	U_RANDOM,
	U_SLEEP,
	U_POLL,
	U_FORCE,
};

#define BIT(name) (1u << ((name)-U_ADDRESS))
#define COPY	  (BIT(U_OFFSET) | BIT(U_LENGTH) | BIT(U_TOKEN) | BIT(U_JSON))
#define BENCH                                                                                      \
	(BIT(U_TOKEN) | BIT(U_OP) | BIT(U_SIZE) | BIT(U_DEPTH) | BIT(U_SECS) | BIT(U_WRITES) |     \
	 BIT(U_ORDER) | BIT(U_LEVEL) | BIT(U_JSON) | BIT(U_SEQUENTIAL) | BIT(U_RANDOM) |           \
	 BIT(U_SLEEP) | BIT(U_POLL) | BIT(U_FORCE))

static const struct option long_options[] = {
	{"address", required_argument, NULL, U_ADDRESS},
	{"port", required_argument, NULL, U_PORT},
	{"offset", required_argument, NULL, U_OFFSET},
	{"length", required_argument, NULL, U_LENGTH},
	{"token", required_argument, NULL, U_TOKEN},
	{"op", required_argument, NULL, U_OP},
	{"size", required_argument, NULL, U_SIZE},
	{"depth", required_argument, NULL, U_DEPTH},
	{"secs", required_argument, NULL, U_SECS},
	{"writes", required_argument, NULL, U_WRITES},
	{"order", required_argument, NULL, U_ORDER},
	{"level", required_argument, NULL, U_LEVEL},
	{"json", no_argument, NULL, U_JSON},
	{"sequential", no_argument, NULL, U_SEQUENTIAL},
	{"random", no_argument, NULL, U_RANDOM},
	{"sleep", no_argument, NULL, U_SLEEP},
	{"poll", no_argument, NULL, U_POLL},
	{"force", no_argument, NULL, U_FORCE},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static const struct verb {
	const char *name;
	int most; /* arguments */
	unsigned int options;
	int (*run)(const struct store_use *u);
} verbs[] = {
	{"serve", 1, BIT(U_ADDRESS) | BIT(U_PORT) | BIT(U_JSON), store_serve},
	{"read", 2, COPY, store_read},
	{"write", 2, COPY, store_write},
	{"bench", 1, BENCH, store_bench},
};

static void take(struct store_use *u, int name, const char *text)
{
	const char **words[] = {&u->address, &u->port,	 &u->offset, &u->length,
				&u->token,   &u->op,	 &u->size,   &u->depth,
				&u->secs,    &u->writes, &u->order,  &u->level};
	bool *flags[] = {&u->json, &u->sequential, &u->sequential, &u->sleep, &u->sleep, &u->force};

	if (name < U_JSON)
		*words[name - U_ADDRESS] = text;
	else
		*flags[name - U_JSON] = name != U_RANDOM && name != U_POLL;
}

static int run_verb(const struct command *self, const struct verb *v, int argc, char **argv)
{
	char *first = argv[0];
	struct store_use u = {0};
	int c, rc;

	argv[0] = "stag store"; /* getopt_long() says so */
	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
		if (c == 'h') {
			fputs(self->help, stdout);
			return EXIT_OK;
		}
		if (c == '?')
			return usage_error(self);
		if (!(v->options & BIT(c))) {
			complain("stag store %s has no option --%s", v->name,
				 long_options[c - U_ADDRESS].name);
			return usage_error(self);
		}
		take(&u, c, optarg);
	}
	if (argc - optind < 1 || argc - optind > v->most) {
		complain("stag store %s wants %s%s", v->name,
			 v->run == store_serve ? "PATH" : "PATH:PARTITION or HOST/PARTITION",
			 v->most == 2 ? ", and perhaps a file" : "");
		return usage_error(self);
	}
	u.where = argv[optind];
	u.file = argc - optind > 1 ? argv[optind + 1] : NULL;
	argv[0] = first;
	if (preload_self(argc + 1, argv - 1) != 0)
		return EXIT_FAILED;
	rc = v->run(&u);
	return rc == EXIT_USAGE ? usage_error(self) : rc;
}

bool store_use_verb(const struct command *self, int argc, char **argv, int *rc)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].name, argv[0]) == 0) {
			*rc = run_verb(self, &verbs[i], argc, argv);
			return true;
		}
	return false;
}
