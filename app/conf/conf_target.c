// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_target.c - [target NAME] of the INI file: a block target and its logical units.
 */
#include "conf.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

#define SECRET_LEN 12 /* RFC 7143 §9.2.1: at least 96 bits */

static const struct conf_setting settings[] = {
#define FIELD(field) .at = offsetof(struct conf_target, field)
	{"iqn", CONF_TEXT, FIELD(iqn), .usual = "made of the host's and the section's name",
	 .sample = "iqn.2026-01.stag:host:shop", .json = "iqn", .value = "*name*",
	 .help = "The target's iSCSI name: iqn.…, eui.… or naa.…"},
	{"alias", CONF_TEXT, FIELD(alias), .usual = "none", .sample = "goods of the shop",
	 .json = "alias", .help = "A second name, for people."},
	{"address", CONF_TEXT, FIELD(address), .usual = "all addresses", .sample = "0.0.0.0",
	 .json = "address", .value = "*address*", .help = "Address to listen on."},
	{"port", CONF_COUNT, FIELD(port), 0, UINT16_MAX, .preset = CONF_STRING(STAG_BLOCK_PORT),
	 .json = "port", .help = "Port to listen on, of TCP and RDMA; 0 selects a free one."},
	{"transports", CONF_TEXT, FIELD(transports), .preset = "tcp,iser,one-shot",
	 .json = "transports", .value = "**tcp**[,**iser**[,**one-shot**]]",
	 .help = "Transports that initiators may use; one-shot requires iser."},
	{"user", CONF_TEXT, FIELD(user), .usual = "anybody may log in", .sample = "ann",
	 .json = "user", .value = "*name*",
	 .help = "CHAP user that initiators log in as; requires secret-file."},
	{"secret-file", CONF_FILE, FIELD(secret_file), .usual = "none",
	 .sample = "/etc/stag/ann.secret", .json = "secret_file",
	 .help = "File whose first line is that user's secret: 12 characters or more."},
	{"tls", CONF_CHOICE, FIELD(tls), .wanted = "off, allowed or required",
	 .words = conf_tls_words, .preset = "off", .json = "tls",
	 .help = "Encrypt the connections of initiators: off, allowed or required.",
	 .more = "With TLS 1.3 and keys that are made of the secrets of the CHAP users, of which "
		 "there must be one; for all transports. Only stag's initiators speak it: "
		 "**allowed** also accepts others. With **required** a login without TLS is "
		 "refused. It is off by default because it costs throughput."},
	{"own-user", CONF_TEXT, FIELD(own_user), .usual = "none", .sample = "shop",
	 .json = "own_user", .value = "*name*",
	 .help = "CHAP user of the target, if an initiator authenticates the target."},
	{"own-secret-file", CONF_FILE, FIELD(own_secret_file), .usual = "none",
	 .sample = "/etc/stag/shop.secret", .json = "own_secret_file",
	 .help = "File whose first line is the secret of own-user; not that of user."},
	{"state", CONF_FILE, FIELD(state),
	 .usual = "*targets* in the **state** of **[daemon]**, if it can be created there",
	 .sample = "/var/lib/stag/targets",
	 .help = "Directory for persistent reservations that survive a restart (APTPL)."},
	{"max-sessions", CONF_COUNT, FIELD(max_sessions), 1, 1u << 16, .preset = "1024",
	 .help = "Sessions at the same time."},
	{"staging", CONF_SIZE, FIELD(staging), 1u << 20, 1ull << 40, .preset = "64M",
	 .help = "Most memory for data in flight."},
	{"spin", CONF_TIME, FIELD(spin), 0, 1000000, .preset = "50us",
	 .help = "Busy-wait this long for the next request; 0us never does.",
	 .more = "It does so only while requests arrive in quick succession."},
#undef FIELD
};

static const struct conf_setting lun_setting = {
	.name = "lun.",
	.wanted = "number",
	.live = true,
	.sample = "lun.1 = store:disk/goods\n"
		  "lun.2 = /srv/other.store:log ro\n"
		  "lun.3 = /dev/sdz write-back block=4096",
	.value = "*where* [**ro**] [**write-back**] [**block=***bytes*]",
	.help = "A logical unit, 0 to 16383: a partition, a file or a block device.",
	.more = "*where* is **store:***store*/*partition* for a store of this file, "
		"*path*:*partition* for another one, or the path of a file or block device. "
		"**ro**: "
		"read only. **write-back**: a write is durable after the initiator's flush; "
		"without "
		"it, at once. **block=4096**: the block size, 512 without it.",
};

static const struct conf_setting initiator_setting = {
	.name = "initiator.",
	.wanted = "name",
	.sample = "initiator.web = iqn.2026-01.example:web* lun=0,2 ro\n"
		  "initiator.db = iqn.2026-01.example:db user=ann secret-file=/etc/stag/ann.secret",
	.value = "*pattern* [**user=***name* **secret-file=***file*] [**lun=***numbers*] [**ro**]",
	.help = "Initiators that may log in: without such a line all may.",
	.more = "*pattern* is the name of an initiator, or has **\\*** and **?**; *name* is for "
		"people. **user** and **secret-file**: the CHAP user that it logs in as; without "
		"them, that of the target, if it has one. **lun=0,2,8-15**: the units that it "
		"sees; "
		"without it, all. **ro**: it may only read, and it neither reserves nor resets. "
		"The "
		"first line with the user that an initiator has proved to be applies, else the "
		"first line without a user.",
};

/* ---- lun.N = WHERE [WORD...] --------------------------------------------------------------------- */

void conf_lun_free(struct conf_lun *l)
{
	free(l->store);
	free(l->partition);
	free(l->where);
	*l = (struct conf_lun){0};
}

bool conf_lun_word(const char *word, struct stag_block_lun *l)
{
	uint64_t block;

	if (strcmp(word, "ro") == 0) {
		l->flags |= STAG_BLOCK_READ_ONLY;
		return true;
	}
	if (strcmp(word, "write-back") == 0) {
		l->flags |= STAG_BLOCK_WRITE_BACK;
		return true;
	}
	if (strncmp(word, "block=", 6) != 0 || !conf_parse_count(word + 6, &block) ||
	    block > UINT32_MAX)
		return false;
	l->block = (uint32_t)block;
	return true;
}

static bool parse_lun_word(const char *word, struct stag_block_lun *l)
{
	return conf_lun_word(word, l) &&
	       (strncmp(word, "block=", 6) != 0 || l->block == 512 || l->block == 4096);
}

/* Parses "store:STORE/PARTITION" (a store of this daemon), "mem:NAME:PARTITION", or PATH[:PARTITION]. */
static bool parse_lun_where(struct conf *conf, const struct conf_item *item, const char *where,
			    struct conf_lun *l)
{
	const char *slash;

	if (strncmp(where, "store:", 6) != 0) {
		l->where = strncmp(where, "mem:", 4) == 0 ? strdup(where)
							  : conf_resolve_path(conf, where);
		return l->where;
	}
	slash = strchr(where, '/');
	if (!slash || slash == where + 6 || !slash[1]) {
		conf_fault(conf, item->line, "lun.%s: expected store:STORE/PARTITION, not '%s'",
			   item->name, where);
		return false;
	}
	l->store = strndup(where + 6, (size_t)(slash - where - 6));
	l->partition = strdup(slash + 1);
	return l->store && l->partition;
}

bool conf_target_lun(struct conf *conf, const struct conf_item *item, struct conf_lun *l)
{
	CLEANUP_FREE char *text = strdup(item->value);
	char *save, *word = text ? strtok_r(text, " \t", &save) : NULL;
	uint64_t n;

	*l = (struct conf_lun){0};
	if (!conf_parse_count(item->name, &n) || n > CONF_LUN_MOST) {
		conf_fault(conf, item->line, "lun.%s: the number of a unit is 0 to %d", item->name,
			   CONF_LUN_MOST);
		return false;
	}
	if (!word || !parse_lun_where(conf, item, word, l)) {
		conf_lun_free(l);
		return false;
	}
	l->lun.lun = (uint16_t)n;
	while ((word = strtok_r(NULL, " \t", &save)))
		if (!parse_lun_word(word, &l->lun)) {
			conf_fault(
				conf, item->line,
				"lun.%s: unknown option '%s'; expected ro, write-back, block=512 "
				"or block=4096",
				item->name, word);
			conf_lun_free(l);
			return false;
		}
	return true;
}

/* Returns whether an earlier item has the same number; "1" and "01" are the same unit. */
static bool is_twice(const struct conf_target *t, unsigned int i, uint16_t lun)
{
	uint64_t n;

	while (i-- > 0)
		if (conf_parse_count(t->at.items[i].name, &n) && n == lun)
			return true;
	return false;
}

/* Checks units against the sections. Whether a partition exists is known only when its store is open. */
static void check_luns(struct conf *conf, const struct conf_target *t)
{
	for (unsigned int i = 0; i < t->at.num_items; i++) {
		const struct conf_item *item = &t->at.items[i];
		struct conf_lun l;

		if (!conf_target_lun(conf, item, &l))
			continue;
		if (l.store && !conf_find(conf, &conf_store_kind, l.store))
			conf_fault(conf, item->line, "lun.%s: there is no section [store %s]",
				   item->name, l.store);
		if (is_twice(t, i, l.lun.lun))
			conf_fault(conf, item->line, "lun.%s: duplicate unit", item->name);
		conf_lun_free(&l);
	}
	if (t->at.num_items > STAG_BLOCK_MAX_LUNS)
		conf_fault(conf, t->at.line, "a target has at most %d units", STAG_BLOCK_MAX_LUNS);
}

/* ---- initiator.NAME = PATTERN [WORD...] ---------------------------------------------------------- */

static void read_right(struct conf *conf, const struct conf_target *t, const struct conf_item *item,
		       struct conf_right *r)
{
	char why[160], setting[128];

	snprintf(setting, sizeof(setting), "initiator.%s", item->name);
	if (!conf_right_parse(item->value, r, why, sizeof(why))) {
		conf_fault(conf, item->line, "%s: %s", setting, why);
		return;
	}
	if (!r->secret_file)
		return;
	CLEANUP_FREE char *path = conf_resolve_path(conf, r->secret_file);

	if (!path || !conf_read_secret(conf, &t->at, setting, path, r->secret, sizeof(r->secret)))
		return;
	if (strlen(r->secret) < SECRET_LEN)
		conf_fault(conf, item->line, "%s: the secret must have %d characters or more",
			   setting, SECRET_LEN);
	r->right.secret = r->secret;
}

/* Returns whether a right has a user of the target, or of a right before it, with another secret. */
static bool has_other_secret(const struct conf_target *t, unsigned int i)
{
	const char *user = t->rights[i].user, *secret = t->rights[i].secret;
	bool differs = user && secret && t->attr.user && t->attr.secret &&
		       strcmp(user, t->attr.user) == 0 && strcmp(secret, t->attr.secret) != 0;

	while (user && secret && i-- > 0) {
		const struct stag_block_right *r = &t->rights[i];

		differs |= r->user && r->secret && strcmp(user, r->user) == 0 &&
			   strcmp(secret, r->secret) != 0;
	}
	return differs;
}

static void read_rights(struct conf *conf, struct conf_target *t)
{
	unsigned int n = t->at.num_others;

	if (n == 0)
		return;
	t->parsed = calloc(n, sizeof(*t->parsed));
	t->rights = calloc(n, sizeof(*t->rights));
	if (!t->parsed || !t->rights) {
		conf_fault(conf, t->at.line, "out of memory");
		return;
	}
	for (unsigned int i = 0; i < n; i++) {
		read_right(conf, t, &t->at.others[i], &t->parsed[i]);
		t->rights[i] = t->parsed[i].right;
		if (has_other_secret(t, i))
			conf_fault(conf, t->at.others[i].line,
				   "initiator.%s: user '%s' has another secret elsewhere",
				   t->at.others[i].name, t->rights[i].user);
	}
	t->attr.comp_mask |= STAG_BLOCK_TARGET_RIGHTS;
	t->attr.rights = t->rights;
	t->attr.num_rights = n;
}

/* ---- checks -------------------------------------------------------------------------------------- */

static char *default_iqn(const struct conf_target *t)
{
	char host[HOST_NAME_MAX + 1] = "", *text = NULL;

	gethostname(host, sizeof(host) - 1);
	if (asprintf(&text, "iqn.2026-01.stag:%s:%s", *host ? host : "target", t->at.name) < 0)
		return NULL;
	for (char *p = text; *p; p++)
		*p = *p == '_' ? '-' : (char)tolower((unsigned char)*p);
	return text;
}

static char *default_state(const struct conf *conf)
{
	char *text = NULL;

	return asprintf(&text, "%s/targets", conf->daemon->state) < 0 ? NULL : text;
}

static void check_transports(struct conf *conf, struct conf_target *t)
{
	CLEANUP_FREE char *text = strdup(t->transports);
	bool tcp = false, iser = false, one_shot = false;
	char *save, *word = text ? strtok_r(text, ", \t", &save) : NULL;

	for (; word; word = strtok_r(NULL, ", \t", &save)) {
		tcp |= strcmp(word, "tcp") == 0;
		iser |= strcmp(word, "iser") == 0;
		one_shot |= strcmp(word, "one-shot") == 0;
		if (strcmp(word, "tcp") != 0 && strcmp(word, "iser") != 0 &&
		    strcmp(word, "one-shot") != 0)
			conf_fault(conf, conf_line_of(&t->at, "transports"),
				   "unknown transport '%s'; expected tcp, iser or one-shot", word);
	}
	if (one_shot && !iser)
		conf_fault(conf, conf_line_of(&t->at, "transports"),
			   "one-shot requires iser, which negotiates it");
	if (!tcp && !iser)
		conf_fault(conf, conf_line_of(&t->at, "transports"),
			   "transports must include tcp or iser, or no initiator can connect");
	t->attr.flags = (tcp ? 0u : STAG_BLOCK_NO_TCP) | (iser ? 0u : STAG_BLOCK_NO_RDMA) |
			(one_shot ? 0u : STAG_BLOCK_NO_ONE_SHOT);
}

static const char *read_target_secret(struct conf *conf, struct conf_target *t, const char *user,
				      const char *file, const char *setting, char *to)
{
	if (!user != !file)
		conf_fault(conf,
			   conf_line_of(&t->at, file		  ? setting
						: user == t->user ? "user"
								  : "own-user"),
			   "user requires secret-file, own-user requires own-secret-file, and "
			   "vice versa");
	if (!user || !file || !conf_read_secret(conf, &t->at, setting, file, to, CONF_SECRET_MAX))
		return NULL;
	if (strlen(to) < SECRET_LEN)
		conf_fault(conf, conf_line_of(&t->at, setting),
			   "%s: the secret must have %d characters or more", setting, SECRET_LEN);
	return to;
}

static void check_tls(struct conf *conf, struct conf_target *t)
{
	bool has_user = t->user;

	for (unsigned int i = 0; t->parsed && i < t->at.num_others; i++)
		has_user |= t->parsed[i].right.user != NULL;
	if (t->tls != STAG_BLOCK_TLS_OFF && !has_user)
		conf_fault(conf, conf_line_of(&t->at, "tls"),
			   "TLS requires user and secret-file, or an initiator with them: its keys "
			   "are made of the secrets");
	t->attr.comp_mask |= STAG_BLOCK_TARGET_TLS;
	t->attr.tls = (uint32_t)t->tls;
}

static bool is_iscsi_name(const char *name)
{
	return strlen(name) < STAG_BLOCK_NAME_MAX &&
	       (strncmp(name, "iqn.", 4) == 0 || strncmp(name, "eui.", 4) == 0 ||
		strncmp(name, "naa.", 4) == 0);
}

static void check_target_section(struct conf *conf, void *section)
{
	struct conf_target *t = section;
	struct stag_block_target_attr *a = &t->attr;

	if (!t->iqn)
		t->iqn = default_iqn(t);
	if (!t->iqn || !is_iscsi_name(t->iqn))
		conf_fault(conf, conf_line_of(&t->at, "iqn"),
			   "a target's name must be iqn.YYYY-MM.…, eui.… or naa.…, %d characters "
			   "at most",
			   STAG_BLOCK_NAME_MAX - 1);
	if (!t->state)
		t->state = default_state(conf);
	if (!t->state)
		conf_fault(conf, t->at.line, "out of memory");
	check_transports(conf, t);
	conf_check_address(conf, &t->at, t->address);
	check_luns(conf, t);
	a->name = t->iqn;
	a->alias = t->alias;
	a->address = t->address;
	a->comp_mask |= STAG_BLOCK_TARGET_STATE;
	a->state = t->state;
	a->port = (uint16_t)t->port;
	a->flags |= (a->port == 0 ? STAG_BLOCK_ANY_PORT : 0u) |
		    (t->spin == 0 ? STAG_BLOCK_NO_SPIN : 0u);
	a->max_sessions = (uint32_t)t->max_sessions;
	a->staging_bytes = t->staging;
	a->spin_us = (uint32_t)t->spin;
	a->user = t->user;
	a->secret = read_target_secret(conf, t, t->user, t->secret_file, "secret-file", t->secret);
	read_rights(conf, t);
	check_tls(conf, t);
	a->own_user = t->own_user;
	a->own_secret = read_target_secret(conf, t, t->own_user, t->own_secret_file,
					   "own-secret-file", t->own_secret);
}

static bool is_same_right(const struct conf_target *x, const struct conf_target *y, unsigned int i)
{
	return strcmp(x->at.others[i].name, y->at.others[i].name) == 0 &&
	       strcmp(x->at.others[i].value, y->at.others[i].value) == 0 &&
	       strcmp(x->parsed[i].secret, y->parsed[i].secret) == 0;
}

static const char *target_secret_differs(const void *a, const void *b)
{
	const struct conf_target *x = a, *y = b;

	if (strcmp(x->secret, y->secret) != 0 || strcmp(x->own_secret, y->own_secret) != 0)
		return "the secret";
	if (x->at.num_others != y->at.num_others)
		return "the initiators";
	for (unsigned int i = 0; i < x->at.num_others; i++)
		if (!is_same_right(x, y, i))
			return "the initiators";
	return NULL;
}

static void free_target_section(void *section)
{
	struct conf_target *t = section;

	explicit_bzero(t->secret, sizeof(t->secret));
	explicit_bzero(t->own_secret, sizeof(t->own_secret));
	for (unsigned int i = 0; t->parsed && i < t->at.num_others; i++)
		conf_right_free(&t->parsed[i]);
	free(t->parsed);
	free(t->rights);
}

const struct conf_kind conf_target_kind = {
	.word = "target",
	.size = sizeof(struct conf_target),
	.settings = settings,
	.num_settings = sizeof(settings) / sizeof(settings[0]),
	.family = &lun_setting,
	.other = &initiator_setting,
	.sample = "shop",
	.check = check_target_section,
	.end = free_target_section,
	.differs = target_secret_differs,
};
