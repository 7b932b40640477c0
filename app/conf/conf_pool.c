// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_pool.c - [pool NAME] of the INI file: a node of a pool.
 */
#include "conf.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

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
	path = strncmp(value, "file:", 5) == 0 && value[5] ? conf_resolve_path(conf, value + 5)
							   : NULL;
	return path && asprintf(&text, "file:%s", path) > 0 ? text : NULL;
}

static const struct conf_group
	node_group = {"The node", NULL},
	roll_group = {"The roll", "The roll is the pool's membership record: its nodes, "
				  "the primary, and which nodes are in sync. All nodes of a "
				  "pool use the same one."},
	creation_group = {"Creation", "These count on the node that creates the pool, "
				      "once. The other nodes learn them."},
	times_group = {"Times", "The same on all nodes. A node whose **promote** is less "
				"than its primary's **lease**, or whose **lease** is more "
				"than its primary's **promote**, refuses to follow it: to "
				"change them while the pool is in use, raise **promote** on "
				"all nodes first, then **lease**. On a machine that often "
				"stalls, because of load or as a guest of a hypervisor, "
				"longer times mean fewer failovers: a **lease** of 200ms "
				"and a **promote** of 240ms, say."},
	other_group = {"Other", NULL};

static const struct conf_setting settings[] = {
#define FIELD(field) .at = offsetof(struct conf_pool, field)
	{"node", CONF_NAME, FIELD(node), .usual = "the host's name", .sample = "alpha",
	 .json = "node", .json_use = CONF_JSON_REQUIRED, .group = &node_group,
	 .help = "Name of this node, unique in the pool."},
	{"state", CONF_FILE, FIELD(state),
	 .usual = "*/var/lib/stag/NAME*, or *NAME* in the **state** that **[daemon]** sets",
	 .sample = "/var/lib/stag/shop",
	 .help = "Directory for what the node needs after a restart.",
	 .more = "No two nodes share one."},
	{"secrets", CONF_FILE, FIELD(secrets_file), .usual = "*secrets* in the state directory",
	 .sample = "/var/lib/stag/shop/secrets", .json = "secrets",
	 .help = "File of the pool's secrets: users, their rights and their secrets.",
	 .more = "It is described below. A reload reads the file again."},
	{"address", CONF_TEXT, FIELD(address), .usual = "all addresses", .sample = "0.0.0.0",
	 .json = "address", .value = "*address*", .help = "Address to listen on."},
	{"port", CONF_COUNT, FIELD(port), 0, UINT16_MAX, 1, .preset = CONF_STRING(STAG_POOL_PORT),
	 .json = "port", .help = "Port to listen on; 0 selects a free one."},
	{"advertise", CONF_TEXT, FIELD(advertise),
	 .usual = "the address; if that is not set, the host's name", .sample = "alpha.example",
	 .json = "advertise", .value = "*host*[:*port*]",
	 .help = "Where other nodes and clients reach this node."},

	{"roll", CONF_MADE, FIELD(roll), .wanted = ROLL_WANTED, .make = make_roll,
	 .usual = "the file *roll* in the state directory",
	 .sample = "file:/var/lib/stag/shop/roll", .json = "roll", .group = &roll_group,
	 .value = "**file:***path* | **etcd://***host*:*port*[,*host*:*port*...]/*key* | "
		  "**etcds://**...",
	 .help = "Where the roll is kept: file:PATH, or etcd://HOST:PORT[,HOST:PORT...]/KEY.",
	 .more = "A file is for nodes on one machine; its directory has to be on a file system "
		 "that is not shared with other machines. etcd (3.4 or later; with TLS: **etcds**) "
		 "is for several machines."},
	{"roll-ca", CONF_FILE, FIELD(roll_ca), .usual = "the system's",
	 .sample = "/etc/stag/etcd-ca.pem", .help = "For etcds: CA certificates to trust."},
	{"roll-cert", CONF_FILE, FIELD(roll_cert), .usual = "none",
	 .sample = "/etc/stag/etcd-cert.pem",
	 .help = "For etcds: client certificate of this node."},
	{"roll-key", CONF_FILE, FIELD(roll_key), .usual = "none",
	 .sample = "/etc/stag/etcd-key.pem", .help = "For etcds: private key of roll-cert."},
	{"roll-user", CONF_TEXT, FIELD(roll_user), .usual = "none", .sample = "stag",
	 .value = "*name*", .help = "For etcd: user to authenticate as."},
	{"roll-password-file", CONF_FILE, FIELD(roll_password_file), .usual = "none",
	 .sample = "/etc/stag/etcd-password", .help = "For etcd: file with that user's password."},
	{"roll-timeout", CONF_TIME, FIELD(roll_timeout), MS, 60 * SECOND, MS, .usual = "**1s**",
	 .sample = "1s", .help = "For etcd: how long to wait for one member's response."},

	{"create", CONF_SWITCH, FIELD(create), .preset = "no", .json = "create",
	 .group = &creation_group,
	 .help = "Create the pool if it does not exist; then size is required.",
	 .more = "A node that has been in a pool before does not create one. Set it on one node."},
	{"size", CONF_SIZE, FIELD(size), 1ull << 20, 1ull << 46, 4096,
	 .usual = "none; **create** requires it", .sample = "1G", .json = "size",
	 .help = "Memory of the pool, on every node."},
	{"memory", CONF_ADDRESS, FIELD(memory), 1ull << 16, 1ull << 47, 4096,
	 .usual = "**0x200000000000**", .sample = "0x200000000000", .json = "memory",
	 .help = "Address at which the pool's memory is mapped, on every node.",
	 .more = "The default is free as a rule. A node on which the range is in use says by what, "
		 "and does not start."},
	{"clients", CONF_COUNT, FIELD(clients), 1, 1u << 20, 1, .preset = "1024", .json = "clients",
	 .help = "Clients that can write at the same time."},
	{"overwrite", CONF_SWITCH, FIELD(overwrite), .preset = "no", .json = "overwrite",
	 .help = "Overwrite deleted values at once."},

	{"beat", CONF_TIME, FIELD(beat), 100 * US, 60 * SECOND, US, .preset = "2ms", .json = "beat",
	 .group = &times_group, .help = "Interval of heartbeats; at most half of the lease."},
	{"lease", CONF_TIME, FIELD(lease), MS, 3600 * SECOND, MS, .preset = "20ms", .json = "lease",
	 .help = "How long a primary may serve after a standby acknowledged a heartbeat.",
	 .more = "A primary that has not heard from a standby in sync for this long refuses reads "
		 "and changes, until it has dropped that standby from the in-sync set."},
	{"promote", CONF_TIME, FIELD(promote), MS, 3600 * SECOND, MS, .preset = "24ms",
	 .json = "promote",
	 .help = "A standby promotes itself after this long without a heartbeat; at least the "
		 "lease."},
	{"expire", CONF_TIME, FIELD(expire), SECOND, UINT32_MAX *SECOND, SECOND, .preset = "1h",
	 .help = "Forget a client after this long without a request.",
	 .more = "A retry of a request from before is refused then, so that it is not done twice."},

	{"log-size", CONF_SIZE, FIELD(log_size), 1ull << 20, 1ull << 32, 4096, .preset = "16M",
	 .group = &other_group, .help = "Memory of the log of records in flight, on each node."},
	{"mirror", CONF_SWITCH, FIELD(mirror), .preset = "yes",
	 .help = "Let the adapter forward values of 8 KiB to 256 KiB to the standbys.",
	 .more = "It does so before software sees them. The primary's setting counts."},
#undef FIELD
};

_Static_assert(sizeof(settings) / sizeof(settings[0]) <= CONF_SETTINGS_MAX, "conf_section.lines");

/* ---- checks --------------------------------------------------------------------------- */

static char *join_path(const char *head, const char *tail)
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
		p->state = join_path(
			conf_is_set(&conf->daemon->at, "state") ? conf->daemon->state : CONF_STATE,
			p->at.name);
	if (!p->secrets_file)
		p->secrets_file = join_path(p->state, CONF_SECRETS);
	if (!p->roll && p->state && asprintf(&p->roll, "file:%s/roll", p->state) < 0)
		p->roll = NULL;
}

/* Appends the settings of etcd to its URL, as options. */
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
				   "%s is for etcd://, but roll is a file", options[i].setting);
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
	complete_roll(conf, p);
	if (stag_pool_node_check(&(struct stag_pool_node_attr){.roll = p->roll}) != 0)
		conf_fault(conf, conf_line_of(&p->at, "roll"), "%s", stag_pool_error());
}

static void check_times(struct conf *conf, struct conf_pool *p)
{
	const struct stag_pool_node_attr times = {.beat_us = (uint32_t)p->beat,
						  .lease_ms = (uint32_t)(p->lease / MS),
						  .promote_ms = (uint32_t)(p->promote / MS)};

	if (stag_pool_node_check(&times) != 0)
		conf_fault(conf,
			   conf_line_of(&p->at, conf_is_set(&p->at, "promote") ? "promote"
						: conf_is_set(&p->at, "lease") ? "lease"
									       : "beat"),
			   "%s", stag_pool_error());
}

static void check_creation(struct conf *conf, struct conf_pool *p)
{
	if (p->create && p->size == 0 && !conf_is_set(&p->at, "size"))
		conf_fault(conf, conf_line_of(&p->at, "create"),
			   "create requires size, the memory of the new pool");
}

/* ---- users ------------------------------------------------------------------------ */

static void make_users(struct conf *conf, struct conf_pool *p)
{
	const struct secret *nodes = secrets_of_nodes(&p->secrets);
	struct stag_pool_user *u;

	if (!nodes) {
		conf_fault(conf, conf_line_of(&p->at, "secrets"),
			   "secrets: %s has no line with the right 'node', the secret of the nodes",
			   p->secrets_file);
		return;
	}
	u = p->users = calloc(p->secrets.count, sizeof(*p->users));
	if (!u) {
		conf_fault(conf, p->at.line, "out of memory");
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

static void read_pool_secrets(struct conf *conf, struct conf_pool *p)
{
	unsigned int line = conf_line_of(&p->at, "secrets");
	char *text = conf_read_private(conf, line, "secrets", p->secrets_file,
				       "; 'stag pool create' and 'stag pool join' create it");

	if (!text)
		return;
	if (secrets_parse(text, p->secrets_file, &p->secrets) != 0) /* it has logged which line */
		conf_fault(conf, line, "secrets: %s is damaged", p->secrets_file);
	else
		make_users(conf, p);
	explicit_bzero(text, strlen(text));
	free(text);
}

/* ---- attributes for libstag -------------------------------------------------------------- */

static void make_attr(struct conf_pool *p)
{
	struct stag_pool_node_attr *a = &p->attr;

	a->pool = p->at.name;
	a->node = p->node;
	a->roll = p->roll;
	a->state = p->state;
	a->address = p->address;
	a->advertise = p->advertise;
	a->port = (uint16_t)p->port;
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

static void check_pool_section(struct conf *conf, void *section)
{
	struct conf_pool *p = section;

	set_defaults(conf, p);
	if (!p->node || !p->state || !p->secrets_file || !p->roll) {
		conf_fault(conf, p->at.line, "out of memory");
		return;
	}
	if (!name_is_valid(p->node))
		conf_fault(conf, p->at.line,
			   "the host's name '%s' is no valid name of a node; set node = NAME",
			   p->node);
	check_roll(conf, p);
	conf_check_address(conf, &p->at, p->address);
	check_times(conf, p);
	check_creation(conf, p);
	make_attr(p);
	read_pool_secrets(conf, p);
}

/* Compares the nodes' secrets: a running node must keep the one that the other nodes know. */
static const char *node_secret_differs(const void *a, const void *b)
{
	const char *x = ((const struct conf_pool *)a)->attr.secret;
	const char *y = ((const struct conf_pool *)b)->attr.secret;

	return x == y || (x && y && strcmp(x, y) == 0) ? NULL : "the secret of the nodes";
}

static void free_pool_section(void *section)
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
	.sample = "shop",
	.sample_lines = "create = yes\nsize = 1G\n",
	.check = check_pool_section,
	.end = free_pool_section,
	.differs = node_secret_differs,
};
