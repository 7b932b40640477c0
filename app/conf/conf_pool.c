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

const char *const conf_tls_words[] = {"off", "allowed", "required", NULL};

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

	{"tls", CONF_CHOICE, FIELD(tls), .wanted = "off, allowed or required",
	 .words = conf_tls_words, .usual = "**required** with **tls-cert**, else **off**",
	 .sample = "required", .value = "**off** | **allowed** | **required**", .json = "tls",
	 .help = "Encrypt the connections of clients and nodes: off, allowed or required.",
	 .more = "With TLS 1.3, and keys that are made of the secrets unless there is a "
		 "certificate: a connection belongs to the "
		 "user who proved the secret on it, and cannot be relayed. **allowed** also "
		 "accepts "
		 "clients and nodes without it. All nodes of a pool have the same setting; to "
		 "change it while the pool runs, set **allowed** on every node first. It is off by "
		 "default because it costs throughput."},
	{"tls-cert", CONF_FILE, FIELD(tls_cert), .usual = "none", .sample = "/etc/stag/node.pem",
	 .help = "File of this node's certificate and those that signed it, in PEM.",
	 .more = "Instead of keys made of the secrets. It has to have the address of the node, as "
		 "other nodes and clients use it (**advertise** or **address**), as an alternative "
		 "name, and to be meant for servers and clients. All nodes and clients of the pool "
		 "have certificates, then; the secret still says who a client is, and what it "
		 "may do."},
	{"tls-key", CONF_FILE, FIELD(tls_key), .usual = "none", .sample = "/etc/stag/node.key",
	 .help = "File of the certificate's private key, in PEM.",
	 .more = "Only its owner may read the file."},
	{"tls-ca", CONF_FILE, FIELD(tls_ca), .usual = "none", .sample = "/etc/stag/ca.pem",
	 .help = "File of the authorities whose certificates are accepted, in PEM."},

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
	{"roll-plain-password", CONF_SWITCH, FIELD(roll_plain_password), .preset = "no",
	 .help = "For etcd:// to other machines: whether the password may cross the network in the "
		 "clear. "
		 "With etcds:// it never does."},
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
	 .help = "Clients whose last changes are remembered, so that a retry is not done twice.",
	 .more = "A client needs this from its first change on. A few are for users with the right "
		 "**admin**. If there is no room, the client that was away, or made no change, for "
		 "the "
		 "longest time is forgotten."},
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
	{"retry", CONF_TIME, FIELD(retry), SECOND, UINT32_MAX *SECOND, SECOND, .preset = "60s",
	 .help = "Keep the outcomes of a client for this long after its last change, even if "
		 "others "
		 "need the room.",
	 .more = "At least the **retry_ms** of the clients (**stag_pool_open**(3)). If one user "
		 "has "
		 "most of the **clients**, its oldest ones make room earlier."},
	{"client-timeout", CONF_TIME, FIELD(client_timeout), 100 * MS, 3600 * SECOND, MS,
	 .preset = "30s",
	 .help = "Disconnect a client that takes no answers, or does not deliver a value, for this "
		 "long.",
	 .more = "Before that its requests wait; those of other clients do not."},

	{"user-clients", CONF_COUNT, FIELD(user_clients), 1, UINT32_MAX, 1, .preset = "16384",
	 .group = &other_group, .help = "Connections that one user may have at this node.",
	 .more = "Further ones are refused, and the audit log says so."},
	{"log-size", CONF_SIZE, FIELD(log_size), 1ull << 20, 1ull << 32, 4096, .preset = "16M",
	 .help = "Memory of the log of records in flight, on each node."},
	{"mirror", CONF_SWITCH, FIELD(mirror), .preset = "yes",
	 .help = "Let the adapter forward values of 8 KiB to 256 KiB to the standbys.",
	 .more = "It does so before software sees them. The primary's setting counts."},
#undef FIELD
};

_Static_assert(sizeof(settings) / sizeof(settings[0]) <= CONF_SETTINGS_MAX, "conf_section.lines");

bool conf_pool_counts_once(const char *setting)
{
	const struct conf_group *group = NULL;

	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		if (settings[i].group)
			group = settings[i].group;
		if (strcmp(settings[i].name, setting) == 0)
			return group == &creation_group;
	}
	return false;
}

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
		{"roll-plain-password", "plain-password", p->roll_plain_password ? "yes" : NULL},
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
	char *password = NULL;

	complete_roll(conf, p);
	if (stag_pool_node_check(&(struct stag_pool_node_attr){.roll = p->roll}) != 0)
		conf_fault(conf, conf_line_of(&p->at, "roll"), "%s", stag_pool_error());
	if (p->roll_password_file) /* it is read when etcd is used; here only its access is checked */
		password = conf_read_private(conf, conf_line_of(&p->at, "roll-password-file"),
					     "roll-password-file", p->roll_password_file, "");
	if (password)
		explicit_bzero(password, strlen(password));
	free(password);
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

uint64_t conf_check_tls(struct conf *conf, const struct conf_section *at, uint64_t tls,
			const char *cert, const char *key, const char *ca)
{
	struct stag_pool_node_attr attr = {.tls_cert = cert, .tls_key = key, .tls_ca = ca};
	const char *setting = cert ? "tls-cert" : key ? "tls-key" : ca ? "tls-ca" : "tls";
	char *text;

	if (!conf_is_set(at, "tls"))
		tls = cert ? STAG_POOL_TLS_REQUIRED : STAG_POOL_TLS_OFF;
	attr.tls = (uint32_t)tls;
	if (stag_pool_node_check(&attr) != 0)
		conf_fault(conf, conf_line_of(at, setting), "%s", stag_pool_error());
	if (!key)
		return tls;
	/* it is read when the pool is used; here only its access is checked */
	text = conf_read_private(conf, conf_line_of(at, "tls-key"), "tls-key", key, "");
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
	return tls;
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
	p->attr.also = nodes->also[0] ? nodes->also : NULL;
	p->attr.users = u;
	for (unsigned int i = 0; i < p->secrets.count; i++) {
		const struct secret *s = &p->secrets.list[i];

		if (!(s->rights & ~(uint32_t)RIGHT_NODE))
			continue;
		*u++ = (struct stag_pool_user){.name = s->name,
					       .secret = s->text,
					       .rights = s->rights & ~(uint32_t)RIGHT_NODE,
					       .num_prefixes = s->num_prefixes,
					       .prefixes = s->prefixes,
					       .also = s->also[0] ? s->also : NULL};
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
	a->client_timeout_ms = (uint32_t)(p->client_timeout / MS);
	a->retry_s = (uint32_t)(p->retry / SECOND);
	a->user_clients = (uint32_t)p->user_clients;
	a->log_bytes = p->log_size;
	a->tls = (uint32_t)p->tls;
	a->tls_cert = p->tls_cert;
	a->tls_key = p->tls_key;
	a->tls_ca = p->tls_ca;
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
	p->tls = conf_check_tls(conf, &p->at, p->tls, p->tls_cert, p->tls_key, p->tls_ca);
	make_attr(p);
	read_pool_secrets(conf, p);
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
};
