// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_pool.c - [pool NAME] of the INI file: its settings, one at a time, and whether they fit together.
 */
#include "conf.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "pool/lease.h"
#include "pool/roll.h"
#include "pool/roll_where.h"

#define SECRETS_ROOM (1u << 20)
#define US	     1ull
#define MS	     1000ull
#define SECOND	     1000000ull

enum kind { TEXT, NAME, PLACE, ROLL, COUNT, SIZE, TIME, SWITCH };

/* PLACE: a file or directory; what is not from the root is from where the INI file is. */
static const struct setting {
	const char *name;
	enum kind kind;
	size_t at;
	uint64_t least, most;
	uint64_t unit; /* what a number is a multiple of */
} settings[] = {
#define FIELD(field) offsetof(struct conf_pool, field)
	{"node", NAME, FIELD(node), 0, 0, 0},
	{"state", PLACE, FIELD(state), 0, 0, 0},
	{"secrets", PLACE, FIELD(secrets_file), 0, 0, 0},
	{"address", TEXT, FIELD(address), 0, 0, 0},
	{"advertise", TEXT, FIELD(advertise), 0, 0, 0},
	{"port", COUNT, FIELD(port), 0, UINT16_MAX, 1},
	{"roll", ROLL, FIELD(roll), 0, 0, 0},
	{"roll-ca", PLACE, FIELD(roll_ca), 0, 0, 0},
	{"roll-cert", PLACE, FIELD(roll_cert), 0, 0, 0},
	{"roll-key", PLACE, FIELD(roll_key), 0, 0, 0},
	{"roll-user", TEXT, FIELD(roll_user), 0, 0, 0},
	{"roll-password-file", PLACE, FIELD(roll_password_file), 0, 0, 0},
	{"roll-timeout", TIME, FIELD(roll_timeout), MS, 60 * SECOND, MS},
	{"create", SWITCH, FIELD(create), 0, 0, 0},
	{"size", SIZE, FIELD(size), 1ull << 20, 1ull << 46, 4096},
	{"memory", COUNT, FIELD(memory), 1ull << 16, 1ull << 47, 4096},
	{"clients", COUNT, FIELD(clients), 1, 1u << 20, 1},
	{"overwrite", SWITCH, FIELD(overwrite), 0, 0, 0},
	{"mirror", SWITCH, FIELD(mirror), 0, 0, 0},
	{"beat", TIME, FIELD(beat), 100 * US, 60 * SECOND, US},
	{"lease", TIME, FIELD(lease), MS, 3600 * SECOND, MS},
	{"promote", TIME, FIELD(promote), MS, 3600 * SECOND, MS},
	{"expire", TIME, FIELD(expire), SECOND, UINT32_MAX *SECOND, SECOND},
	{"log-size", SIZE, FIELD(log_size), 1ull << 20, 1ull << 32, 4096},
#undef FIELD
};

#define N_SETTINGS (sizeof(settings) / sizeof(settings[0]))

_Static_assert(N_SETTINGS <= CONF_SETTINGS_MAX, "conf_pool.lines");

static const char *const wanted[] = {
	[TEXT] = "a word",
	[NAME] = "a name: letters, digits and . - _, 63 at most",
	[PLACE] = "a path",
	[ROLL] = "file:PATH, or etcd://HOST:PORT[,HOST:PORT...]/KEY, or etcds://...",
	[COUNT] = "a number",
	[SIZE] = "a size, such as 512M or 1G",
	[TIME] = "a time with its unit, such as 500us, 20ms, 5s, 10m or 1h",
	[SWITCH] = "yes or no",
};

void conf_pool_init(struct conf_pool *p, const char *name, unsigned int line)
{
	*p = (struct conf_pool){.name = strdup(name), .line = line, .mirror = true};
}

static unsigned int index_of(const char *name)
{
	unsigned int i = 0;

	while (i < N_SETTINGS && strcmp(settings[i].name, name) != 0)
		i++;
	return i;
}

/* Of a setting, or of its section where it was not set. */
static unsigned int line_of(const struct conf_pool *p, const char *name)
{
	unsigned int i = index_of(name);

	return i < N_SETTINGS && p->lines[i] ? p->lines[i] : p->line;
}

static bool is_set(const struct conf_pool *p, const char *name)
{
	return p->lines[index_of(name)] != 0;
}

/* ---- one at a time ------------------------------------------------------------------ */

static char *in_directory_of(const char *file, const char *name)
{
	CLEANUP_FREE char *copy = strdup(file);
	char *path = NULL;

	if (*name == '/')
		return strdup(name);
	if (!copy || asprintf(&path, "%s/%s", dirname(copy), name) < 0)
		return NULL;
	return path;
}

static char *roll_text(const struct conf *conf, const char *value)
{
	CLEANUP_FREE char *path = NULL;
	char *text = NULL;

	if (strncmp(value, "etcd://", 7) == 0 || strncmp(value, "etcds://", 8) == 0)
		return strdup(value);
	path = in_directory_of(conf->path, value + 5);
	return path && asprintf(&text, "file:%s", path) > 0 ? text : NULL;
}

static bool roll_begins_well(const char *value)
{
	return (strncmp(value, "file:", 5) == 0 && value[5]) || strncmp(value, "etcd://", 7) == 0 ||
	       strncmp(value, "etcds://", 8) == 0;
}

static bool parse_number(const struct setting *s, const char *value, uint64_t *n)
{
	switch (s->kind) {
	case COUNT:
		return conf_parse_count(value, n);
	case SIZE:
		return conf_parse_size(value, n);
	default:
		return conf_parse_time(value, n);
	}
}

static void set_number(struct conf *conf, const struct setting *s, unsigned int line,
		       const char *value, uint64_t *to)
{
	uint64_t n;

	if (!parse_number(s, value, &n))
		conf_fault(conf, line, "%s is %s, not '%s'", s->name, wanted[s->kind], value);
	else if (n < s->least || n > s->most)
		conf_fault(conf, line, "%s = %s is too %s", s->name, value,
			   n < s->least ? "little" : "much");
	else if (n % s->unit)
		conf_fault(conf, line, "%s = %s is no multiple of %s", s->name, value,
			   s->kind != TIME ? "4096"
			   : s->unit == MS ? "a millisecond"
					   : "a second");
	else
		*to = n;
}

static void set_text(struct conf *conf, const struct setting *s, unsigned int line,
		     const char *value, char **to)
{
	if ((s->kind == NAME && !roll_name_is_valid(value)) ||
	    (s->kind == ROLL && !roll_begins_well(value))) {
		conf_fault(conf, line, "%s is %s, not '%s'", s->name, wanted[s->kind], value);
		return;
	}
	if (s->kind == PLACE)
		*to = in_directory_of(conf->path, value);
	else
		*to = s->kind == ROLL ? roll_text(conf, value) : strdup(value);
	if (!*to)
		conf_fault(conf, line, "no memory");
}

void conf_pool_set(struct conf *conf, struct conf_pool *p, unsigned int line, const char *name,
		   const char *value)
{
	unsigned int i = index_of(name);
	const struct setting *s = &settings[i];
	void *to;

	if (i == N_SETTINGS) {
		conf_fault(conf, line, "a pool has no setting '%s'; those there are: stag.ini(5)",
			   name);
		return;
	}
	if (p->lines[i]) {
		conf_fault(conf, line, "%s is set already, at line %u", name, p->lines[i]);
		return;
	}
	p->lines[i] = line;
	to = (char *)p + s->at;
	if (!*value)
		conf_fault(conf, line, "%s is %s; there is nothing", name, wanted[s->kind]);
	else if (s->kind == SWITCH && !conf_parse_switch(value, to))
		conf_fault(conf, line, "%s is yes or no, not '%s'", name, value);
	else if (s->kind == COUNT || s->kind == SIZE || s->kind == TIME)
		set_number(conf, s, line, value, to);
	else if (s->kind != SWITCH)
		set_text(conf, s, line, value, to);
}

/* ---- together --------------------------------------------------------------------------- */

static char *behind(const char *head, const char *tail)
{
	char *text = NULL;

	return head && asprintf(&text, "%s/%s", head, tail) > 0 ? text : NULL;
}

static void set_defaults(struct conf_pool *p)
{
	char host[HOST_NAME_MAX + 1] = "";

	if (!p->node && gethostname(host, sizeof(host) - 1) == 0)
		p->node = strdup(host);
	if (!p->state)
		p->state = behind(CONF_STATE, p->name);
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
			conf_fault(conf, line_of(p, options[i].setting),
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
		conf_fault(conf, line_of(p, "roll"), "roll: %s", why);
}

static void check_address(struct conf *conf, struct conf_pool *p)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM}, *list;
	int rc = p->address ? getaddrinfo(p->address, NULL, &hints, &list) : EAI_NONAME;

	if (p->address && rc != 0)
		conf_fault(conf, line_of(p, "address"), "address = %s: %s", p->address,
			   gai_strerror(rc));
	if (rc == 0)
		freeaddrinfo(list);
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
		   line_of(p, is_set(p, "promote") ? "promote"
			      : is_set(p, "lease") ? "lease"
						   : "beat"),
		   "beat %gms, lease %gms, promote %gms: %s", (double)terms.beat / NS_PER_MS,
		   (double)terms.lease / NS_PER_MS, (double)terms.takeover / NS_PER_MS, fault);
}

static void check_creation(struct conf *conf, struct conf_pool *p)
{
	if (p->create && p->size == 0 && !is_set(p, "size"))
		conf_fault(conf, line_of(p, "create"),
			   "create wants a size: how much memory the pool has");
}

/* ---- who comes in ------------------------------------------------------------------------ */

static bool read_secrets(struct conf *conf, struct conf_pool *p, char *text)
{
	unsigned int line = line_of(p, "secrets");
	struct stat st;
	ssize_t len;
	int rc;

	if (stat(p->secrets_file, &st) != 0) {
		conf_fault(conf, line, "secrets: %s: %s; 'stag pool create' and 'join' make it",
			   p->secrets_file, strerror(errno));
		return false;
	}
	if (st.st_mode & 077) {
		conf_fault(conf, line, "secrets: others may read %s; chmod 600 it",
			   p->secrets_file);
		return false;
	}
	len = file_read(AT_FDCWD, p->secrets_file, text, SECRETS_ROOM);
	if (len < 0) {
		conf_fault(conf, line, "secrets: %s: %s", p->secrets_file, strerror((int)-len));
		return false;
	}
	rc = strlen(text) == (size_t)len ? secrets_parse(text, p->secrets_file, &p->secrets)
					 : -EBADMSG;
	if (rc != 0) /* which line: secrets_parse() has told */
		conf_fault(conf, line, "secrets: %s is damaged", p->secrets_file);
	return rc == 0;
}

static void make_users(struct conf *conf, struct conf_pool *p)
{
	const struct secret *nodes = secrets_of_nodes(&p->secrets);
	struct stag_pool_user *u;

	if (!nodes) {
		conf_fault(conf, line_of(p, "secrets"),
			   "secrets: nobody in %s has the right 'node': the secret of the nodes",
			   p->secrets_file);
		return;
	}
	u = p->users = calloc(p->secrets.count, sizeof(*p->users));
	if (!u) {
		conf_fault(conf, p->line, "no memory");
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
	char *text = malloc(SECRETS_ROOM);

	if (!text)
		conf_fault(conf, p->line, "no memory");
	else if (read_secrets(conf, p, text))
		make_users(conf, p);
	if (text)
		explicit_bzero(text, SECRETS_ROOM);
	free(text);
}

/* ---- as the library takes it -------------------------------------------------------------- */

static void make_attr(struct conf_pool *p)
{
	struct stag_pool_node_attr *a = &p->attr;

	a->pool = p->name;
	a->node = p->node;
	a->roll = p->roll;
	a->state = p->state;
	a->address = p->address;
	a->advertise = p->advertise;
	a->port = is_set(p, "port") ? (uint16_t)p->port : STAG_POOL_PORT;
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

void conf_pool_check(struct conf *conf, struct conf_pool *p)
{
	set_defaults(p);
	if (!p->name || !p->node || !p->state || !p->secrets_file || !p->roll) {
		conf_fault(conf, p->line, "no memory");
		return;
	}
	if (!roll_name_is_valid(p->node))
		conf_fault(conf, p->line,
			   "this host's name, '%s', is no name of a node: set one with node",
			   p->node);
	check_roll(conf, p);
	check_address(conf, p);
	check_times(conf, p);
	check_creation(conf, p);
	make_attr(p);
	take_secrets(conf, p);
}

static bool is_same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_same(const struct setting *s, const void *a, const void *b)
{
	switch (s->kind) {
	case TEXT:
	case NAME:
	case PLACE:
	case ROLL:
		return is_same_text(*(char *const *)a, *(char *const *)b);
	case COUNT:
	case SIZE:
	case TIME:
		return *(const uint64_t *)a == *(const uint64_t *)b;
	case SWITCH:
		return *(const bool *)a == *(const bool *)b;
	}
	return false;
}

const char *conf_pool_differs(const struct conf_pool *a, const struct conf_pool *b)
{
	for (unsigned int i = 0; i < N_SETTINGS; i++)
		if (!is_same(&settings[i], (const char *)a + settings[i].at,
			     (const char *)b + settings[i].at))
			return settings[i].name;
	return is_same_text(a->attr.secret, b->attr.secret) ? NULL : "the secret of the nodes";
}

void conf_pool_free(struct conf_pool *p)
{
	char *texts[] = {p->name,      p->node,	     p->state,	   p->secrets_file,
			 p->address,   p->advertise, p->roll,	   p->roll_ca,
			 p->roll_cert, p->roll_key,  p->roll_user, p->roll_password_file};

	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		free(texts[i]);
	free(p->users);
	secrets_free(&p->secrets);
	*p = (struct conf_pool){0};
}
