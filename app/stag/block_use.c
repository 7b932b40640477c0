// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_use.c - stag block discover, info, read, write, bench, sessions and stags: their command line, and the first two.
 */
#include "block_use.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "stag.h"
#include "store.h"
#include "suggest.h"
#include "verb.h"

enum {
	U_USER = VERB_OPTION,
	U_SECRET,
	U_PEER_USER,
	U_PEER_SECRET,
	U_INITIATOR,
	U_OFFSET,
	U_LENGTH,
	U_OP,
	U_WRITES,
	U_SIZE,
	U_DEPTH,
	U_CONNECTIONS,
	U_SECS,
	U_DIGESTS, /* from here on without an argument */
	U_JSON,
	U_SEQUENTIAL,
	U_RANDOM,
	U_SLEEP,
	U_POLL,
	U_FORCE,
	U_STAGS,
};

#define BIT(name) VERB_BIT(name)
#define ALWAYS                                                                                     \
	(BIT(U_USER) | BIT(U_SECRET) | BIT(U_PEER_USER) | BIT(U_PEER_SECRET) | BIT(U_INITIATOR) |  \
	 BIT(U_DIGESTS) | BIT(U_JSON))
#define COPY (ALWAYS | BIT(U_OFFSET) | BIT(U_LENGTH) | BIT(U_STAGS))
#define BENCH                                                                                      \
	(ALWAYS | BIT(U_OP) | BIT(U_WRITES) | BIT(U_SIZE) | BIT(U_DEPTH) | BIT(U_CONNECTIONS) |    \
	 BIT(U_SECS) | BIT(U_SEQUENTIAL) | BIT(U_RANDOM) | BIT(U_SLEEP) | BIT(U_POLL) |            \
	 BIT(U_FORCE) | BIT(U_STAGS))

static const struct option long_options[] = {
	{"user", required_argument, NULL, U_USER},
	{"secret-file", required_argument, NULL, U_SECRET},
	{"peer-user", required_argument, NULL, U_PEER_USER},
	{"peer-secret-file", required_argument, NULL, U_PEER_SECRET},
	{"initiator", required_argument, NULL, U_INITIATOR},
	{"offset", required_argument, NULL, U_OFFSET},
	{"length", required_argument, NULL, U_LENGTH},
	{"op", required_argument, NULL, U_OP},
	{"writes", required_argument, NULL, U_WRITES},
	{"size", required_argument, NULL, U_SIZE},
	{"depth", required_argument, NULL, U_DEPTH},
	{"connections", required_argument, NULL, U_CONNECTIONS},
	{"secs", required_argument, NULL, U_SECS},
	{"digests", no_argument, NULL, U_DIGESTS},
	{"json", no_argument, NULL, U_JSON},
	{"sequential", no_argument, NULL, U_SEQUENTIAL},
	{"random", no_argument, NULL, U_RANDOM},
	{"sleep", no_argument, NULL, U_SLEEP},
	{"poll", no_argument, NULL, U_POLL},
	{"force", no_argument, NULL, U_FORCE},
	{"stags", no_argument, NULL, U_STAGS},
	{"help", no_argument, NULL, 'h'},
	{0},
};

/* Not the URL itself, which may have a secret in it. */
int block_failed(const struct block_use *u, int error)
{
	const char *scheme = strstr(u->url, "://"), *at = strchr(u->url, '@');
	const char *host = at ? at + 1 : scheme ? scheme + 3 : "HOST";

	complain("%s", stag_block_error());
	if (error == ECONNREFUSED)
		fputs("Try 'stag block serve' there, or another port: HOST:PORT.\n", stderr);
	else if (error == EACCES)
		fputs("Try --user NAME --secret-file FILE.\n", stderr);
	else if (error == ENOENT || error == ENODEV || error == ENXIO)
		fprintf(stderr, "Try 'stag block discover iscsi://%.*s'.\n",
			(int)strcspn(host, "/"), host);
	else if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
		fputs("Try 'stag doctor --quiet', on both machines.\n", stderr);
	return EXIT_FAILED;
}

/* ---- discover ------------------------------------------------------------------------- */

static void print_target(void *arg, const char *target, const char *address)
{
	printf("%s %s\n", target, address);
}

static void list_target(void *list, const char *target, const char *address)
{
	json_array_append_new(list, json_pack("{s:s, s:s}", "target", target, "address", address));
}

static int discover(const struct block_use *u)
{
	json_t *list = u->json ? json_array() : NULL;
	int rc = stag_block_discover(u->url, &u->attr, u->json ? list_target : print_target, list);

	if (rc != 0)
		block_failed(u, rc);
	if (rc == 0 && u->json)
		store_dump(list);
	else
		json_decref(list);
	return rc == 0 ? EXIT_OK : EXIT_FAILED;
}

/* ---- info -------------------------------------------------------------------------------- */

static json_t *info_json(const struct stag_block_info *i)
{
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:b}", "target",
			 i->target, "transport", block_transport_word(i->transport), "vendor",
			 i->vendor, "product", i->product, "revision", i->revision, "serial",
			 i->serial, "size", (json_int_t)i->size, "block", (json_int_t)i->block,
			 "max_transfer", (json_int_t)i->max_transfer, "read_only", i->read_only,
			 "write_back", i->write_back, "unmaps", i->unmaps);
}

static void print_info(const struct stag_block_info *i)
{
	char size[32];

	printf("target     %s\n", i->target);
	printf("transport  %s\n", block_transport_word(i->transport));
	printf("unit       %s %s %s, serial %s\n", i->vendor, i->product, i->revision, i->serial);
	printf("size       %s (%llu bytes), blocks of %u\n",
	       store_size_word(i->size, size, sizeof(size)), (unsigned long long)i->size, i->block);
	printf("command    %s at most\n", store_size_word(i->max_transfer, size, sizeof(size)));
	printf("writes     %s%s\n",
	       i->read_only    ? "none, it is read only"
	       : i->write_back ? "cached, until they are flushed"
			       : "durable at once",
	       i->unmaps ? "; unmaps" : "");
}

static int info(const struct block_use *u)
{
	struct stag_block *b = stag_block_open(u->url, &u->attr);
	struct stag_block_info i;

	if (!b)
		return block_failed(u, errno);
	stag_block_query(b, &i, sizeof(i));
	if (u->json)
		store_dump(info_json(&i));
	else
		print_info(&i);
	stag_block_close(b);
	return EXIT_OK;
}

/* ---- the command line ----------------------------------------------------------------------- */

#define A_URL	 "a URL"
#define A_COPY	 A_URL ", and perhaps a file"
#define A_TARGET "at most the name or the port of a target"

static const struct use_verb {
	struct verb verb;
	int (*run)(const struct block_use *u);
} verbs[] = {
	{{"discover", A_URL, 1, 1, ALWAYS, "Asks a portal which targets there are.",
	  "stag block discover iscsi://127.0.0.1"},
	 discover},
	{{"info", A_URL, 1, 1, ALWAYS, "Shows what a logical unit is, and how it is reached.",
	  "stag block info stag://127.0.0.1/iqn.2026-01.stag:host/1"},
	 info},
	{{"read", A_COPY, 1, 2, COPY, "Copies from a unit to a file, or to standard output.",
	  "stag block read stag://127.0.0.1/iqn.2026-01.stag:host/1 goods.img"},
	 block_read},
	{{"write", A_COPY, 1, 2, COPY,
	  "Copies from a file, or from standard input, to a unit; what is written is durable.",
	  "stag block write stag://127.0.0.1/iqn.2026-01.stag:host/1 goods.img"},
	 block_write},
	{{"bench", A_URL, 1, 1, BENCH, "Measures how fast a unit is.",
	  "stag block bench iser://127.0.0.1/iqn.2026-01.stag:host/1 --op read --secs 10"},
	 block_bench},
	{{"sessions", A_TARGET, 0, 1, BIT(U_JSON), "Shows the sessions of targets that run here.",
	  "stag block sessions 3260"},
	 block_sessions},
	{{"stags", A_TARGET, 0, 1, BIT(U_JSON),
	  "Shows the STags that targets here have been lent, and what became of them.",
	  "stag block stags"},
	 block_stags},
};

static bool take(void *to, int name, char *text)
{
	struct block_use *u = to;
	const char **words[] = {&u->user,      &u->secret_file, &u->peer_user, &u->peer_secret_file,
				&u->initiator, &u->offset,	&u->length,    &u->op,
				&u->writes,    &u->size,	&u->depth,     &u->connections,
				&u->secs};
	bool *flags[] = {&u->digests, &u->json,	 &u->sequential, &u->sequential,
			 &u->sleep,   &u->sleep, &u->force,	 &u->stags};

	if (name < U_DIGESTS)
		*words[name - U_USER] = text;
	else
		*flags[name - U_DIGESTS] = name != U_RANDOM && name != U_POLL;
	return true;
}

static int run_with_secrets(struct block_use *u, const struct use_verb *v)
{
	char secret[BLOCK_MAX_SECRET] = "", peer_secret[BLOCK_MAX_SECRET] = "";
	int rc;

	if ((u->secret_file && !block_read_secret(u->secret_file, secret)) ||
	    (u->peer_secret_file && !block_read_secret(u->peer_secret_file, peer_secret)))
		return EXIT_FAILED;
	u->attr = (struct stag_block_attr){.initiator = u->initiator,
					   .user = u->user,
					   .secret = u->secret_file ? secret : NULL,
					   .peer_user = u->peer_user,
					   .peer_secret = u->peer_secret_file ? peer_secret : NULL,
					   .header_digest = u->digests,
					   .data_digest = u->digests};
	rc = v->run(u);
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(peer_secret, sizeof(peer_secret));
	return rc;
}

/* RDMA comes with the adapter: the command is run once more with it. */
static bool wants_rdma(const char *url)
{
	return url && (!strncmp(url, "stag://", 7) || !strncmp(url, "iser://", 7));
}

static int run_verb(const struct command *self, const struct use_verb *v, int argc, char **argv)
{
	static const struct verb_options options = {long_options, take};
	struct block_use u = {0};
	int rc;

	if (!verb_parse(self, &v->verb, &options, &u, argc, argv, &rc))
		return rc;
	u.url = argc > optind ? argv[optind] : NULL;
	u.file = argc - optind > 1 ? argv[optind + 1] : NULL;
	if (wants_rdma(u.url) && preload_self(argc + 1, argv - 1) != 0)
		return EXIT_FAILED;
	rc = run_with_secrets(&u, v);
	return rc == EXIT_USAGE ? usage_error(self) : rc;
}

void block_use_suggest(struct suggestion *s)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		suggest_consider(s, verbs[i].verb.name);
}

bool block_use_verb(const struct command *self, int argc, char **argv, int *rc)
{
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(verbs[i].verb.name, argv[0]) == 0) {
			*rc = run_verb(self, &verbs[i], argc, argv);
			return true;
		}
	return false;
}
