// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_serve.c - stag block serve: runs a target with logical units until SIGINT or SIGTERM; SIGHUP reads secrets and sizes again.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "block_control.h"
#include "conf.h"
#include "stag.h"
#include "stag/block.h"
#include "store.h"

#define MAX_SECRET BLOCK_MAX_SECRET

/* The logical units to serve. */
static struct stag_block_lun luns[STAG_BLOCK_MAX_LUNS];
static unsigned int num_luns;

/* ---- options ------------------------------------------------------------------------------ */

static bool parse_number(const char *text, unsigned long most, unsigned long *out)
{
	char *end;

	errno = 0;
	*out = strtoul(text, &end, 10);
	return isdigit((unsigned char)*text) && !*end && errno == 0 && *out <= most;
}

/* Parses NUMBER=WHERE[,WORD]..., and changes the text. */
static bool parse_lun(char *text)
{
	struct stag_block_lun *l = &luns[num_luns];
	char *equals = strchr(text, '='), *comma;
	unsigned long n;

	if (!equals || !equals[1]) {
		complain("--lun must be NUMBER=WHERE, not '%s'", text);
		return false;
	}
	*equals = '\0';
	if (!parse_number(text, 16383, &n)) {
		complain("--lun: the number of a unit must be 0 to 16383, not '%s'", text);
		return false;
	}
	*l = (struct stag_block_lun){.lun = (uint16_t)n, .where = equals + 1};
	while ((comma = strrchr(equals + 1, ',')) && conf_lun_word(comma + 1, l))
		*comma = '\0';
	num_luns++;
	return true;
}

static bool parse_luns(const struct block_use *u)
{
	for (unsigned int i = 0; i < u->num_luns; i++)
		if (!parse_lun(u->luns[i]))
			return false;
	return true;
}

static void set_spin(const struct block_use *u, struct stag_block_target_attr *attr)
{
	attr->spin_us = u->spin == BLOCK_SPIN_DEFAULT ? 0 : u->spin;
	attr->flags |= u->spin == 0 ? STAG_BLOCK_NO_SPIN : 0;
}

static char secret[MAX_SECRET], own_secret[MAX_SECRET];

static bool read_secrets(const struct block_use *o, struct stag_block_target_attr *attr)
{
	if (!o->user != !o->secret_file || !o->own_user != !o->own_secret_file) {
		complain("a user needs a secret: --user goes with --secret-file, --own-user with "
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

/* The initiators that may log in. */
static struct conf_right parsed[BLOCK_MAX_INITIATORS];
static struct stag_block_right rights[BLOCK_MAX_INITIATORS];

static bool read_secrets_of_rights(const struct block_use *o)
{
	for (unsigned int i = 0; i < o->num_initiators; i++)
		if (parsed[i].secret_file &&
		    !block_read_secret(parsed[i].secret_file, parsed[i].secret))
			return false;
	return true;
}

static bool read_rights(const struct block_use *o, struct stag_block_target_attr *attr)
{
	char why[160];

	for (unsigned int i = 0; i < o->num_initiators; i++) {
		struct conf_right *r = &parsed[i];

		if (!conf_right_parse(o->initiators[i], r, why, sizeof(why))) {
			complain("--initiator %s: %s", o->initiators[i], why);
			return false;
		}
		rights[i] = r->right;
		rights[i].secret = r->secret_file ? r->secret : NULL;
	}
	attr->comp_mask = STAG_BLOCK_TARGET_RIGHTS;
	attr->rights = rights;
	attr->num_rights = o->num_initiators;
	return read_secrets_of_rights(o);
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

static json_t *luns_json(void)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < num_luns; i++)
		json_array_append_new(list, json_pack("{s:i, s:s}", "lun", (int)luns[i].lun,
						      "where", luns[i].where));
	return list;
}

static void announce_target(const struct block_use *o, const char *name,
			    const struct stag_block_target *target)
{
	unsigned int port = stag_block_target_port(target);

	if (o->json) {
		store_dump(json_pack("{s:s, s:i, s:o}", "name", name, "port", (int)port, "luns",
				     luns_json()));
	} else {
		printf("serving %s on port %u\n", name, port);
		for (unsigned int i = 0; i < num_luns; i++)
			printf("  LUN %u  %s\n", luns[i].lun, luns[i].where);
	}
	fflush(stdout);
}

static bool add_luns(struct stag_block_target *target)
{
	for (unsigned int i = 0; i < num_luns; i++) {
		int rc = stag_block_target_add(target, &luns[i]);

		if (rc != 0) {
			complain_for(rc, luns[i].where, "%s", stag_block_error());
			return false;
		}
	}
	return true;
}

/* Logins, logouts, growth: worth a line each, at whatever level the libraries log. */
static void log_line(void *arg, const char *line)
{
	(void)arg;
	if (!getenv("STAG_LOG") || log_level >= LOG_LEVEL_INFO)
		log_write(LOG_LEVEL_INFO, "block: %s", line);
}

/* Reads again what is not on the command line: secrets, and the sizes of units, also of those that have shrunk. */
static void reload(const struct block_use *o, struct stag_block_target_attr *attr,
		   struct stag_block_target *target)
{
	bool read = read_secrets(o, attr) && read_secrets_of_rights(o);

	if (read && stag_block_target_set_rights(target, attr) != 0)
		complain("%s", stag_block_error());
	else if (read)
		log_line(NULL, "reloaded: secrets, for logins from now on, and sizes of units; all "
			       "else is given by options: start again to change it");
	for (unsigned int i = 0; i < num_luns; i++)
		if (stag_block_target_resized(target, luns[i].lun) != 0)
			complain("%s", stag_block_error());
}

/* Answers queries until SIGINT or SIGTERM. */
static void run(const struct block_use *o, struct stag_block_target_attr *attr,
		struct stag_block_target *target, const sigset_t *signals)
{
	struct block_control control;

	block_control_open(&control, target, attr->name);
	announce_target(o, attr->name, target);
	while (control_run(&control.control, signals) == SIGHUP)
		reload(o, attr, target);
	control_close(&control.control);
}

static int serve_units(const struct block_use *o, struct stag_block_target_attr *attr)
{
	struct stag_block_target *target;
	int rc = EXIT_FAILED;
	sigset_t signals;

	serve_begin(&signals);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	attr->log = log_line;
	target = stag_block_target_start(attr);
	if (!target) {
		bool taken = errno == EADDRINUSE || errno == EADDRNOTAVAIL;

		complain_for(
			errno, NULL, "%s%s", stag_block_error(),
			taken ? "; --port 0 takes any free port, --address another address" : "");
		return EXIT_FAILED;
	}
	if (add_luns(target)) {
		run(o, attr, target, &signals);
		rc = EXIT_OK;
	}
	stag_block_target_stop(target);
	return rc;
}

/* Says so if everybody in the network may read and write the units. */
static void warn_if_open(const struct block_use *o)
{
	const char *a = o->address;

	if (!o->user && o->num_initiators == 0 &&
	    (!a ||
	     (strncmp(a, "127.", 4) != 0 && strcmp(a, "::1") != 0 && strcmp(a, "localhost") != 0)))
		complain("warning: everybody who reaches %s may read and write the units; name "
			 "users with --user or --initiator, or use --address 127.0.0.1",
			 a ? a : "this machine");
}

int block_serve(const struct block_use *o)
{
	char name[STAG_BLOCK_NAME_MAX];
	struct stag_block_target_attr attr = {.name = o->name, .address = o->address};

	if (!parse_luns(o))
		return EXIT_USAGE;
	if (num_luns == 0) {
		complain("there is nothing to serve: name a unit with --lun");
		return EXIT_USAGE;
	}
	set_spin(o, &attr);
	if (!o->name) {
		make_name(name, sizeof(name));
		attr.name = name;
	}
	if (!serve_port(o->port, STAG_BLOCK_PORT, &attr.port) || !read_secrets(o, &attr) ||
	    !read_rights(o, &attr))
		return EXIT_USAGE;
	attr.flags |= attr.port == 0 ? STAG_BLOCK_ANY_PORT : 0;
	attr.comp_mask |= STAG_BLOCK_TARGET_STATE;
	attr.state = o->state;
	attr.max_sessions = o->max_sessions;
	attr.comp_mask |= STAG_BLOCK_TARGET_TLS;
	attr.tls = block_tls_mode(o);
	warn_if_open(o);
	return serve_units(o, &attr);
}
