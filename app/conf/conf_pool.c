// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_pool.c - [pool NAME] of the INI file: its settings, one at a time, and whether they fit together.
 */
#include "conf.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "pool/role/lease.h"
#include "pool/role/roll.h"
#include "pool/role/roll_where.h"

#define US     1ull
#define MS     1000ull
#define SECOND 1000000ull

#define ROLL_WANTED "file:PATH, or etcd://HOST:PORT[,HOST:PORT...]/KEY, or etcds://..."

static char *make_roll(const struct conf *conf, const char *value)
{
	CLEANUP_FREE char *path = NULL;
	char *text = NULL;

	if (strncmp(value, "etcd://", 7) == 0 || strncmp(value, "etcds://", 8) == 0)
		return strdup(value);
	path = strncmp(value, "file:", 5) == 0 && value[5] ? conf_place(conf, value + 5) : NULL;
	return path && asprintf(&text, "file:%s", path) > 0 ? text : NULL;
}

static const struct conf_setting settings[] = {
#define FIELD(field) .at = offsetof(struct conf_pool, field)
	{"node", CONF_NAME, FIELD(node)},
	{"state", CONF_PLACE, FIELD(state)},
	{"secrets", CONF_PLACE, FIELD(secrets_file)},
	{"address", CONF_TEXT, FIELD(address)},
	{"advertise", CONF_TEXT, FIELD(advertise)},
	{"port", CONF_COUNT, FIELD(port), 0, UINT16_MAX, 1},
	{"roll", CONF_MADE, FIELD(roll), 0, 0, 0, ROLL_WANTED, make_roll},
	{"roll-ca", CONF_PLACE, FIELD(roll_ca)},
	{"roll-cert", CONF_PLACE, FIELD(roll_cert)},
	{"roll-key", CONF_PLACE, FIELD(roll_key)},
	{"roll-user", CONF_TEXT, FIELD(roll_user)},
	{"roll-password-file", CONF_PLACE, FIELD(roll_password_file)},
	{"roll-timeout", CONF_TIME, FIELD(roll_timeout), MS, 60 * SECOND, MS},
	{"create", CONF_SWITCH, FIELD(create)},
	{"size", CONF_SIZE, FIELD(size), 1ull << 20, 1ull << 46, 4096},
	{"memory", CONF_COUNT, FIELD(memory), 1ull << 16, 1ull << 47, 4096},
	{"clients", CONF_COUNT, FIELD(clients), 1, 1u << 20, 1},
	{"overwrite", CONF_SWITCH, FIELD(overwrite)},
	{"mirror", CONF_SWITCH, FIELD(mirror)},
	{"beat", CONF_TIME, FIELD(beat), 100 * US, 60 * SECOND, US},
	{"lease", CONF_TIME, FIELD(lease), MS, 3600 * SECOND, MS},
	{"promote", CONF_TIME, FIELD(promote), MS, 3600 * SECOND, MS},
	{"expire", CONF_TIME, FIELD(expire), SECOND, UINT32_MAX *SECOND, SECOND},
	{"log-size", CONF_SIZE, FIELD(log_size), 1ull << 20, 1ull << 32, 4096},
#undef FIELD
};

_Static_assert(sizeof(settings) / sizeof(settings[0]) <= CONF_SETTINGS_MAX, "conf_section.lines");

static void init(void *section)
{
	struct conf_pool *p = section;

	p->mirror = true;
}

/* ---- together --------------------------------------------------------------------------- */

static char *behind(const char *head, const char *tail)
{
	char *text = NULL;

	return head && asprintf(&text, "%s/%s", head, tail) > 0 ? text : NULL;
}

static void set_defaults(const struct conf *conf, struct conf_pool *p)
{
	char host[HOST_NAME_MAX + 1] = "";

	if (!p->node && gethostname(host, sizeof(host) - 1) == 0)
		p->node = strdup(host);
	if (!p->state)
		p->state = behind(
			conf_is_set(&conf->daemon->at, "state") ? conf->daemon->state : CONF_STATE,
			p->at.name);
	if (!p->secrets_file)
		p->secrets_file = behind(p->state, CONF_SECRETS);
	if (!p->roll && p->state && asprintf(&p->roll, "file:%s/roll", p->state) < 0)
		p->roll = NULL;
}

/* The options of etcd, as its address has them. */
static void complete_roll(struct conf *conf, struct conf_pool *p)
{
	char timeout[32] = "", *text = NULL, separator = strchr(p->roll, '?') ? '&' : '?';
	const struct {
		const char *setting, *name, *value;
	} options[] = {
		{"roll-ca", "ca", p->roll_ca},
		{"roll-cert", "cert", p->roll_cert},
		{"roll-key", "key", p->roll_key},
		{"roll-user", "user", p->roll_user},
		{"roll-password-file", "password-file", p->roll_password_file},
		{"roll-timeout", "timeout", p->roll_timeout ? timeout : NULL},
	};

	snprintf(timeout, sizeof(timeout), "%llu", (unsigned long long)(p->roll_timeout / MS));
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
		if (!options[i].value)
			continue;
		if (strncmp(p->roll, "file:", 5) == 0) {
			conf_fault(conf, conf_line_of(&p->at, options[i].setting),
				   "%s is for etcd://, and roll is a file", options[i].setting);
		} else if (asprintf(&text, "%s%c%s=%s", p->roll, separator, options[i].name,
				    options[i].value) > 0) {
			free(p->roll);
			p->roll = text;
			separator = '&';
		}
	}
}

static void check_roll(struct conf *conf, struct conf_pool *p)
{
	struct roll_where where;
	const char *why;

	complete_roll(conf, p);
	if (strncmp(p->roll, "file:", 5) != 0 && roll_where_parse(p->roll, &where, &why) != 0)
		conf_fault(conf, conf_line_of(&p->at, "roll"), "roll: %s", why);
}

static void check_times(struct conf *conf, struct conf_pool *p)
{
	struct lease_terms terms = lease_defaults;
	const char *fault;

	terms.beat = p->beat ? p->beat * 1000 : terms.beat;
	terms.lease = p->lease ? p->lease * 1000 : terms.lease;
	terms.takeover = p->promote ? p->promote * 1000 : terms.takeover;
	fault = lease_terms_fault(&terms);
	if (!fault)
		return;
	conf_fault(conf,
		   conf_line_of(&p->at, conf_is_set(&p->at, "promote") ? "promote"
					: conf_is_set(&p->at, "lease") ? "lease"
								       : "beat"),
		   "beat %gms, lease %gms, promote %gms: %s", (double)terms.beat / NS_PER_MS,
		   (double)terms.lease / NS_PER_MS, (double)terms.takeover / NS_PER_MS, fault);
}

static void check_creation(struct conf *conf, struct conf_pool *p)
{
	if (p->create && p->size == 0 && !conf_is_set(&p->at, "size"))
		conf_fault(conf, conf_line_of(&p->at, "create"),
			   "create wants a size: how much memory the pool has");
}

/* ---- who comes in ------------------------------------------------------------------------ */

static void make_users(struct conf *conf, struct conf_pool *p)
{
	const struct secret *nodes = secrets_of_nodes(&p->secrets);
	struct stag_pool_user *u;

	if (!nodes) {
		conf_fault(conf, conf_line_of(&p->at, "secrets"),
			   "secrets: nobody in %s has the right 'node': the secret of the nodes",
			   p->secrets_file);
		return;
	}
	u = p->users = calloc(p->secrets.count, sizeof(*p->users));
	if (!u) {
		conf_fault(conf, p->at.line, "no memory");
		return;
	}
	p->attr.secret = nodes->text;
	p->attr.users = u;
	for (unsigned int i = 0; i < p->secrets.count; i++) {
		const struct secret *s = &p->secrets.list[i];

		if (!(s->rights & ~(uint32_t)RIGHT_NODE))
			continue;
		*u++ = (struct stag_pool_user){s->name, s->text, s->rights & ~(uint32_t)RIGHT_NODE};
		p->attr.num_users++;
	}
}

static void take_secrets(struct conf *conf, struct conf_pool *p)
{
	unsigned int line = conf_line_of(&p->at, "secrets");
	char *text = conf_read_private(conf, line, "secrets", p->secrets_file,
				       "; 'stag pool create' and 'join' make it");

	if (!text)
		return;
	if (secrets_parse(text, p->secrets_file, &p->secrets) != 0) /* which line: it has told */
		conf_fault(conf, line, "secrets: %s is damaged", p->secrets_file);
	else
		make_users(conf, p);
	explicit_bzero(text, strlen(text));
	free(text);
}

/* ---- as the library takes it -------------------------------------------------------------- */

static void make_attr(struct conf_pool *p)
{
	struct stag_pool_node_attr *a = &p->attr;

	a->pool = p->at.name;
	a->node = p->node;
	a->roll = p->roll;
	a->state = p->state;
	a->address = p->address;
	a->advertise = p->advertise;
	a->port = conf_is_set(&p->at, "port") ? (uint16_t)p->port : STAG_POOL_PORT;
	a->flags = (a->port == 0 ? STAG_POOL_ANY_PORT : 0u) |
		   (p->overwrite ? STAG_POOL_OVERWRITE : 0u) |
		   (p->mirror ? 0u : STAG_POOL_NO_MIRROR);
	a->size = p->size;
	a->memory = p->memory;
	a->clients = (uint32_t)p->clients;
	a->beat_us = (uint32_t)p->beat;
	a->lease_ms = (uint32_t)(p->lease / MS);
	a->promote_ms = (uint32_t)(p->promote / MS);
	a->expire_s = (uint32_t)(p->expire / SECOND);
	a->log_bytes = p->log_size;
}

static void check(struct conf *conf, void *section)
{
	struct conf_pool *p = section;

	set_defaults(conf, p);
	if (!p->node || !p->state || !p->secrets_file || !p->roll) {
		conf_fault(conf, p->at.line, "no memory");
		return;
	}
	if (!roll_name_is_valid(p->node))
		conf_fault(conf, p->at.line,
			   "this host's name, '%s', is no name of a node: set one with node",
			   p->node);
	check_roll(conf, p);
	conf_check_address(conf, &p->at, p->address);
	check_times(conf, p);
	check_creation(conf, p);
	make_attr(p);
	take_secrets(conf, p);
}

/* Whom the others know is not to be changed under a node that runs. */
static const char *differs(const void *a, const void *b)
{
	const char *x = ((const struct conf_pool *)a)->attr.secret;
	const char *y = ((const struct conf_pool *)b)->attr.secret;

	return x == y || (x && y && strcmp(x, y) == 0) ? NULL : "the secret of the nodes";
}

static void end(void *section)
{
	struct conf_pool *p = section;

	free(p->users);
	secrets_free(&p->secrets);
}

const struct conf_kind conf_pool_kind = {
	.word = "pool",
	.size = sizeof(struct conf_pool),
	.settings = settings,
	.num_settings = sizeof(settings) / sizeof(settings[0]),
	.init = init,
	.check = check,
	.end = end,
	.differs = differs,
};
