// SPDX-License-Identifier: BSD-2-Clause
/*
 * block.c - stag block: block storage for initiators.
 *
 * serve is here; what uses a unit is in block_use.c. A target, and whoever uses one over verbs, needs the software adapter in
 * this very process: where it is not, the command is run once more with it.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "block_control.h"
#include "conf.h"
#include "stag.h"
#include "stag/block.h"
#include "store.h"
#include "suggest.h"
#include "verb.h"

static const char help_text[] =
	"usage: stag block serve --lun N=WHERE[,ro][,write-back][,block=BYTES]... [--name NAME]\n"
	"                        [--address ADDRESS] [--port PORT] [--spin MICROSECONDS]\n"
	"                        [--user NAME --secret-file FILE]\n"
	"                        [--own-user NAME --own-secret-file FILE] [--json]\n"
	"       stag block discover SCHEME://HOST[:PORT] [OPTION...]\n"
	"       stag block info URL [OPTION...]\n"
	"       stag block read URL [FILE] [--offset BYTES] [--length BYTES] [OPTION...]\n"
	"       stag block write URL [FILE] [--offset BYTES] [--length BYTES] [OPTION...]\n"
	"       stag block bench URL [--op read|write|mix] [--writes PERCENT] [--size BYTES]\n"
	"                        [--depth N] [--connections N] [--secs S] [--random|--sequential]\n"
	"                        [--poll|--sleep] [--force] [OPTION...]\n"
	"       stag block sessions [TARGET] [--json]\n"
	"       stag block stags [TARGET] [--json]\n\n"
	"Serves partitions of stores, files and block devices as logical units of a target, to\n"
	"any iSCSI initiator, until it is told to stop; or uses one, of any target: which targets\n"
	"there are, what a unit is, from a unit to a file and back, how fast it is; or looks at\n"
	"targets that run here: their sessions, and the STags that were lent. See "
	"stag-block(1).\n\n"
	"  URL                SCHEME://[USER[%SECRET]@]HOST[:PORT]/TARGET/LUN; the scheme is stag\n"
	"                     (the best transport), iser or iscsi\n"
	"  TARGET             one that runs here, by its name or port (all of yours)\n"
	"  --lun N=WHERE      logical unit N is WHERE: PATH:PARTITION of a store, or the path of\n"
	"                     a file or a block device. May repeat. Behind it, with commas:\n"
	"                     ro (read only), write-back (a write is durable when the initiator\n"
	"                     asks for it; else at once), block=4096 (512)\n"
	"  --name NAME        of the target: iqn.…, eui.… or naa.… (made of this host's)\n"
	"  --address ADDRESS  to listen on (all)\n"
	"  --port PORT        to listen on; 0: a free one (3260)\n"
	"  --spin MICROSECONDS\n"
	"                     so long a request is waited for awake, where they have come in\n"
	"                     quick succession; 0: not at all (50)\n"
	"  --user NAME        who may log in, by CHAP\n"
	"  --secret-file FILE its first line is that user's secret: 12 characters or more\n"
	"  --own-user NAME    whom the target says it is when an initiator asks back\n"
	"  --own-secret-file FILE\n"
	"                     and its secret, which is another\n"
	"  --offset BYTES     where in the unit to begin: 4096, 512K, 1G (0)\n"
	"  --length BYTES     how much (read: all; write: the file)\n"
	"  --peer-user NAME   whom the target has to say it is when we ask back\n"
	"  --peer-secret-file FILE\n"
	"                     and its secret; --user and --secret-file are ours\n"
	"  --initiator NAME   who we are (made of this host's)\n"
	"  --op OP            what is measured: read, write or mix (read)\n"
	"  --writes PERCENT   of mix (50)\n"
	"  --size BYTES       of an operation (4K)\n"
	"  --depth N          operations under way on each connection (32)\n"
	"  --connections N    as many sessions at once (1)\n"
	"  --secs S           how long (1)\n"
	"  --random, --sequential\n"
	"                     at any place, or one behind the other (random)\n"
	"  --poll, --sleep    how completions are waited for (poll)\n"
	"  --force            what is in the unit may be overwritten\n"
	"  --stags            behind it: the STags that were made, and who tried them after\n"
	"  --digests          CRC32C of headers and data, where the target can\n"
	"  --json             for programs\n"
	"  -h, --help\n\n"
	"  stag block serve --lun 1=/srv/shop.img:goods --lun 2=/srv/disk.img,ro\n"
	"  stag block read iscsi://127.0.0.1/iqn.2026-01.stag:host/1 goods.img\n";

#define MAX_SECRET  BLOCK_MAX_SECRET
#define MAX_SPIN_US 1000000

struct options {
	const char *name, *address, *port, *spin;
	const char *user, *secret_file, *own_user, *own_secret_file;
	char *texts[STAG_BLOCK_MAX_LUNS]; /* of --lun */
	struct stag_block_lun luns[STAG_BLOCK_MAX_LUNS];
	unsigned int num_texts, num_luns;
	bool json;
};

/* ---- words ------------------------------------------------------------------------------ */

static bool parse_number(const char *text, unsigned long most, unsigned long *out)
{
	char *end;

	errno = 0;
	*out = strtoul(text, &end, 10);
	return isdigit((unsigned char)*text) && !*end && errno == 0 && *out <= most;
}

/* It is taken apart when the command is not run once more. */
static bool note_lun(struct options *o, char *text)
{
	if (o->num_texts == STAG_BLOCK_MAX_LUNS) {
		complain("--lun: a target has at most %d units", STAG_BLOCK_MAX_LUNS);
		return false;
	}
	o->texts[o->num_texts++] = text;
	return true;
}

static bool take_lun(struct options *o, char *text)
{
	struct stag_block_lun *l = &o->luns[o->num_luns];
	char *equals = strchr(text, '='), *comma;
	unsigned long n;

	if (!equals || !equals[1]) {
		complain("--lun wants NUMBER=WHERE, not '%s'", text);
		return false;
	}
	*equals = '\0';
	if (!parse_number(text, 16383, &n)) {
		complain("--lun: a unit's number is 0 to 16383, not '%s'", text);
		return false;
	}
	*l = (struct stag_block_lun){.lun = (uint16_t)n, .where = equals + 1};
	while ((comma = strrchr(equals + 1, ',')) && conf_lun_word(comma + 1, l))
		*comma = '\0';
	o->num_luns++;
	return true;
}

static bool take_luns(struct options *o)
{
	for (unsigned int i = 0; i < o->num_texts; i++)
		if (!take_lun(o, o->texts[i]))
			return false;
	return true;
}

static bool take_spin(const char *text, struct stag_block_target_attr *attr)
{
	unsigned long us;

	if (!text)
		return true;
	if (!parse_number(text, MAX_SPIN_US, &us)) {
		complain("--spin wants microseconds, %d at most; not '%s'", MAX_SPIN_US, text);
		return false;
	}
	attr->spin_us = (uint32_t)us;
	attr->flags |= us == 0 ? STAG_BLOCK_NO_SPIN : 0;
	return true;
}

/* The first line of a file. */
bool block_read_secret(const char *path, char out[MAX_SECRET])
{
	FILE *f = fopen(path, "r");
	bool good = f && fgets(out, MAX_SECRET, f);

	if (!good)
		complain("%s: %s", path, f ? "there is no secret in it" : strerror(errno));
	else
		out[strcspn(out, "\r\n")] = '\0';
	if (f)
		fclose(f);
	return good;
}

static bool take_secrets(const struct options *o, struct stag_block_target_attr *attr,
			 char secret[MAX_SECRET], char own_secret[MAX_SECRET])
{
	if (!o->user != !o->secret_file || !o->own_user != !o->own_secret_file) {
		complain("a user has a secret: --user and --secret-file, --own-user and "
			 "--own-secret-file");
		return false;
	}
	if ((o->user && !block_read_secret(o->secret_file, secret)) ||
	    (o->own_user && !block_read_secret(o->own_secret_file, own_secret)))
		return false;
	attr->user = o->user;
	attr->secret = o->user ? secret : NULL;
	attr->own_user = o->own_user;
	attr->own_secret = o->own_user ? own_secret : NULL;
	return true;
}

static void make_name(char *name, size_t size)
{
	char host[64] = "";

	gethostname(host, sizeof(host) - 1);
	for (char *p = host; *p; p++)
		*p = isalnum((unsigned char)*p) || *p == '.' ? (char)tolower((unsigned char)*p)
							     : '-';
	snprintf(name, size, "iqn.2026-01.stag:%s", *host ? host : "target");
}

/* ---- serve -------------------------------------------------------------------------------- */

static json_t *luns_json(const struct options *o)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < o->num_luns; i++)
		json_array_append_new(list, json_pack("{s:i, s:s}", "lun", (int)o->luns[i].lun,
						      "where", o->luns[i].where));
	return list;
}

static void announce(const struct options *o, const char *name,
		     const struct stag_block_target *target)
{
	unsigned int port = stag_block_target_port(target);

	if (o->json) {
		store_dump(json_pack("{s:s, s:i, s:o}", "name", name, "port", (int)port, "luns",
				     luns_json(o)));
	} else {
		printf("serving %s on port %u\n", name, port);
		for (unsigned int i = 0; i < o->num_luns; i++)
			printf("  LUN %u  %s\n", o->luns[i].lun, o->luns[i].where);
	}
	fflush(stdout);
}

static bool add_luns(const struct options *o, struct stag_block_target *target)
{
	for (unsigned int i = 0; i < o->num_luns; i++)
		if (stag_block_target_add(target, &o->luns[i]) != 0) {
			complain("%s", stag_block_error());
			return false;
		}
	return true;
}

static int serve_units(const struct options *o, const struct stag_block_target_attr *attr)
{
	struct stag_block_target *target;
	struct block_control control;
	int rc = EXIT_FAILED;
	sigset_t ends;

	serve_begin(&ends);
	target = stag_block_target_start(attr);
	if (!target) {
		bool taken = errno == EADDRINUSE || errno == EADDRNOTAVAIL;

		complain("%s%s", stag_block_error(),
			 taken ? "; --port 0 takes one that is free, --address another" : "");
		return EXIT_FAILED;
	}
	if (add_luns(o, target)) {
		block_control_open(&control, target, attr->name);
		announce(o, attr->name, target);
		control_run(&control.control, &ends);
		control_close(&control.control);
		rc = EXIT_OK;
	}
	stag_block_target_stop(target);
	return rc;
}

static int serve(const struct options *o)
{
	char name[STAG_BLOCK_NAME_MAX], secret[MAX_SECRET], own_secret[MAX_SECRET];
	struct stag_block_target_attr attr = {.name = o->name, .address = o->address};

	if (o->num_luns == 0) {
		complain("what shall be served? --lun says");
		return EXIT_USAGE;
	}
	if (!o->name) {
		make_name(name, sizeof(name));
		attr.name = name;
	}
	if (!serve_port(o->port, STAG_BLOCK_PORT, &attr.port) || !take_spin(o->spin, &attr) ||
	    !take_secrets(o, &attr, secret, own_secret))
		return EXIT_USAGE;
	attr.flags |= attr.port == 0 ? STAG_BLOCK_ANY_PORT : 0;
	return serve_units(o, &attr);
}

/* ---- the command line ---------------------------------------------------------------------- */

enum {
	B_LUN = VERB_OPTION,
	B_NAME,
	B_ADDRESS,
	B_PORT,
	B_SPIN,
	B_USER,
	B_SECRET,
	B_OWN_USER,
	B_OWN_SECRET,
	B_JSON
};

static const struct option long_options[] = {
	{"lun", required_argument, NULL, B_LUN},
	{"name", required_argument, NULL, B_NAME},
	{"address", required_argument, NULL, B_ADDRESS},
	{"port", required_argument, NULL, B_PORT},
	{"spin", required_argument, NULL, B_SPIN},
	{"user", required_argument, NULL, B_USER},
	{"secret-file", required_argument, NULL, B_SECRET},
	{"own-user", required_argument, NULL, B_OWN_USER},
	{"own-secret-file", required_argument, NULL, B_OWN_SECRET},
	{"json", no_argument, NULL, B_JSON},
	{"help", no_argument, NULL, 'h'},
	{0},
};

static bool take(void *to, int name, char *text)
{
	struct options *o = to;
	const char **words[] = {&o->name, &o->address,	   &o->port,	 &o->spin,
				&o->user, &o->secret_file, &o->own_user, &o->own_secret_file};

	if (name == B_LUN)
		return note_lun(o, text);
	if (name == B_JSON)
		o->json = true;
	else
		*words[name - B_NAME] = text;
	return true;
}

static int run_serve(const struct command *self, int argc, char **argv)
{
	static const struct verb verb = {
		"serve",
		"options only",
		0,
		0,
		~0ull,
		"Serves logical units to initiators, over iSCSI, iSER and one-shot, until it is "
		"told to "
		"stop.",
		"stag block serve --lun 1=/srv/shop.img:goods --lun 2=/srv/disk.img,ro"};
	static const struct verb_options options = {long_options, take};
	static struct options o;
	int rc;

	if (!verb_parse(self, &verb, &options, &o, argc - 1, argv + 1, &rc))
		return rc;
	if (preload_self(argc, argv) != 0)
		return EXIT_FAILED;
	rc = take_luns(&o) ? serve(&o) : EXIT_USAGE;
	return rc == EXIT_USAGE ? usage_error(self) : rc;
}

static int no_verb(const struct command *self, const char *name)
{
	struct suggestion s = {.word = name};

	suggest_consider(&s, "serve");
	block_use_suggest(&s);
	suggest_consider(&s, "--help");
	suggest_complain(&s, "command", "stag block ");
	return usage_error(self);
}

static int run(const struct command *self, int argc, char **argv)
{
	int rc;
	const char *name = verb_given(self, "what shall be done?", argc, argv, &rc);

	if (!name)
		return rc;
	if (block_use_verb(self, argc - 1, argv + 1, &rc))
		return rc;
	if (strcmp(name, "serve") != 0)
		return no_verb(self, name);
	return run_serve(self, argc, argv);
}

const struct command block_command = {"block", "serve block storage, and use it", help_text, run,
				      NULL};
