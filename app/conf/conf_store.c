// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_store.c - [store NAME] of the INI file: a store and the partitions to create in it.
 */
#include "conf.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/name.h"
#include "complain.h"
#include "store_words.h"

static char *make_path(const struct conf *conf, const char *value)
{
	return strncmp(value, "mem:", 4) == 0 ? strdup(value) : conf_resolve_path(conf, value);
}

#define MS	     1000ull /* in microseconds */
#define SECOND	     1000000ull
#define LABEL_MAX    (STAG_STORE_NAME_MAX - 1)
#define LABEL_WANTED "a text of at most 63 bytes"

_Static_assert(LABEL_MAX == 63, "LABEL_WANTED");

static char *make_label(const struct conf *conf, const char *value)
{
	return strlen(value) <= LABEL_MAX ? strdup(value) : NULL;
}

static const char *const tls_words[] = {"off", "allowed", "required", NULL};

static const struct conf_setting settings[] = {
#define FIELD(field) .at = offsetof(struct conf_store, field)
	{"path", CONF_MADE, FIELD(store), .wanted = "a path, or mem:NAME", .make = make_path,
	 .sample = "/var/lib/stag/disk.store", .json = "path", .json_use = CONF_JSON_REQUIRED,
	 .value = "*path* | **mem:***name*",
	 .help = "The store: a file, a block device, or mem:NAME for shared memory."},
	{"address", CONF_TEXT, FIELD(address), .usual = "all addresses", .sample = "0.0.0.0",
	 .json = "address", .value = "*address*", .help = "Address to listen on."},
	{"port", CONF_COUNT, FIELD(port), 0, UINT16_MAX, .preset = CONF_STRING(STAG_STORE_PORT),
	 .json = "port", .help = "Port to listen on; 0 selects a free one."},
	{"max-connections", CONF_COUNT, FIELD(max_connections), 1, 1u << 20, .preset = "1024",
	 .json = "max_connections", .help = "Connections served at the same time."},
	{"client-timeout", CONF_TIME, FIELD(client_timeout), 100 * MS, 3600 * SECOND, MS,
	 .preset = "30s",
	 .help = "How long a client may take no answers before it is disconnected."},
	{"tls", CONF_CHOICE, FIELD(tls), .wanted = "off, allowed or required", .words = tls_words,
	 .value = "**off** | **allowed** | **required**", .usual = "that of STAG_TLS, or **off**",
	 .sample = "required", .json = "tls",
	 .help = "Whether clients may, or must, encrypt their connections.",
	 .more = "TLS 1.3, by a key that both sides derive from the client's token; the token does "
		 "not cross the network in the clear then. A client without a token cannot use it: "
		 "with **required**, partitions whose rights are for **remote:** and **net:** only "
		 "cannot be reached. Certificates are not used, unless this is not set and the "
		 "environment says so: see STAG_TLS in **libstag-verbs**(7)."},
	{"staging", CONF_SIZE, FIELD(staging), 1u << 20, 1ull << 40, .preset = "64M",
	 .json = "staging", .help = "Most memory for data in flight."},
	{"cache", CONF_SIZE, FIELD(cache), 1u << 20, 1ull << 40, .preset = "64M", .json = "cache",
	 .help = "Most memory for cached data."},
	{"create", CONF_SWITCH, FIELD(create), .preset = "no",
	 .help = "Format the store if nothing is at its path.",
	 .more = "A path that holds anything else is left alone, and **stagd** does not start."},
	{"size", CONF_SIZE, FIELD(size), 1ull << 20, 1ull << 60, 512,
	 .usual = "the device's size; a file requires one", .sample = "10G", .json = "size",
	 .json_use = CONF_JSON_HANDLED, .help = "Size of a store that is created."},
	{"block", CONF_SIZE, FIELD(block), 512, 65536, 512,
	 .usual = "**4096**, or the device's sector size if that is larger", .sample = "4096",
	 .json = "block", .json_use = CONF_JSON_HANDLED,
	 .help = "Block size of a store that is created."},
	{"label", CONF_MADE, FIELD(label), .wanted = LABEL_WANTED, .make = make_label,
	 .value = "*text*", .usual = "the section's name", .sample = "disk", .json = "label",
	 .json_use = CONF_JSON_HANDLED, .help = "Label of a store that is created."},
#undef FIELD
};

static const struct conf_setting partition_setting = {
	.name = "partition.",
	.wanted = "name",
	.live = true,
	.sample = "partition.goods = 4G local:write net:10.0.0.0/8:read\n"
		  "partition.log = 50% level=durable cache=5s",
	.value = "*size* [**order=***order*] [**level=***level*] [**cache=***time*] [*right*...]",
	.help = "A partition, created if the store does not have it.",
	.more = "The words behind the size are those of **stag store add**: **\\-\\-order**, "
		"**\\-\\-level**, **\\-\\-cache** and **\\-\\-allow**. The size may be a share "
		"of the store (**50%**), or **max**. A partition that exists is left as it is, "
		"whatever this line says; if the line is removed, the partition and its data stay.",
};

/* ---- partition.NAME = SIZE [WORD...] ------------------------------------------------------------- */

/* Resolves the token's file, as all paths, against the directory of the INI file. */
static bool parse_token_right(const struct conf *conf, const char *word,
			      struct stag_store_partition *p)
{
	CLEANUP_FREE char *place = conf_resolve_path(conf, word + 6), *text = NULL;

	return place && asprintf(&text, "token:%s", place) > 0 && store_parse_right(text, p);
}

static bool parse_partition_word(const struct conf *conf, const char *word,
				 struct stag_store_partition *p)
{
	if (strncmp(word, "token:", 6) == 0)
		return parse_token_right(conf, word, p);
	if (strncmp(word, "order=", 6) == 0)
		return store_parse_order(word + 6, &p->relax);
	if (strncmp(word, "level=", 6) == 0)
		return store_parse_level(word + 6, &p->level);
	if (strncmp(word, "cache=", 6) == 0)
		return store_parse_cache(word + 6, &p->cache_ms);
	return store_parse_right(word, p);
}

/* With CONF_TEXT_ONLY, skips rights whose parsing would read a token's file or look up a user. */
static bool needs_other_files(const struct conf *conf, const char *word)
{
	return conf->flags & CONF_TEXT_ONLY &&
	       (strncmp(word, "token:", 6) == 0 || strncmp(word, "user:", 5) == 0 ||
		strncmp(word, "group:", 6) == 0);
}

static bool parse_partition_words(struct conf *conf, const struct conf_item *item, char *rest,
				  struct conf_partition *p)
{
	char why[256], *save, *word;

	for (word = strtok_r(rest, " \t", &save); word; word = strtok_r(NULL, " \t", &save)) {
		bool good;

		if (needs_other_files(conf, word))
			continue;
		complain_catch(why, sizeof(why));
		good = parse_partition_word(conf, word, &p->p);
		complain_catch(NULL, 0);
		if (!good) {
			conf_fault(conf, item->line, "partition.%s: %s", item->name,
				   why + 2 * (strncmp(why, "--", 2) == 0));
			return false;
		}
	}
	return true;
}

/* Checks the syntax of a size. A share depends on the store's size, which is not known here, so an arbitrary one is used. */
static bool is_size(const char *text)
{
	const struct store_room some = {.whole = 1ull << 40, .largest = 1ull << 40, .block = 4096};
	char why[256];
	uint64_t size;
	bool good;

	complain_catch(why, sizeof(why));
	good = *text != '+' && store_parse_size("", text, &some, &size);
	complain_catch(NULL, 0);
	return good;
}

bool conf_store_partition(struct conf *conf, const struct conf_item *item, struct conf_partition *p)
{
	CLEANUP_FREE char *text = strdup(item->value);
	size_t len = strcspn(item->value, " \t");

	*p = (struct conf_partition){0};
	if (!text || !name_is_valid(item->name)) {
		conf_fault(conf, item->line,
			   "invalid name of a partition: '%s'; use letters, digits and . - _, 63 "
			   "at most",
			   item->name);
		return false;
	}
	snprintf(p->p.name, sizeof(p->p.name), "%s", item->name);
	snprintf(p->size, sizeof(p->size), "%.*s", (int)len, text);
	if (len >= sizeof(p->size) || !is_size(p->size)) {
		conf_fault(conf, item->line,
			   "partition.%s must begin with a size, such as 512M, 10G, 50%% or max; "
			   "not '%.*s'",
			   item->name, (int)len, text);
		return false;
	}
	return parse_partition_words(conf, item, text + len, p);
}

/* ---- checks -------------------------------------------------------------------------------------- */

static void check_store_section(struct conf *conf, void *section)
{
	struct conf_store *s = section;
	struct conf_partition p;

	if (!s->store)
		conf_fault(conf, s->at.line, "path is required: path = PATH");
	if (s->create && s->size == 0 && !(s->store && strncmp(s->store, "/dev/", 5) == 0))
		conf_fault(conf, conf_line_of(&s->at, "create"),
			   "create requires size, the size of the new store");
	conf_check_address(conf, &s->at, s->address);
	for (unsigned int i = 0; i < s->at.num_items; i++)
		conf_store_partition(conf, &s->at.items[i], &p);
	s->attr = (struct stag_store_server_attr){
		.address = s->address,
		.port = (uint16_t)s->port,
		.comp_mask = STAG_STORE_SERVER_CLIENT_TIMEOUT,
		.client_timeout_ms = (uint32_t)(s->client_timeout / MS),
		.max_connections = (uint32_t)s->max_connections,
		.staging_bytes = s->staging,
		.cache_bytes = s->cache};
	s->attr.flags = s->attr.port == 0 ? STAG_STORE_ANY_PORT : 0;
	if (conf_is_set(&s->at, "tls")) {
		s->attr.comp_mask |= STAG_STORE_SERVER_TLS;
		s->attr.tls = (uint32_t)s->tls;
	}
	s->made = (struct stag_store_attr){.size = s->size, .block = (uint32_t)s->block};
	snprintf(s->made.label, sizeof(s->made.label), "%s", s->label ? s->label : s->at.name);
}

const struct conf_kind conf_store_kind = {
	.word = "store",
	.size = sizeof(struct conf_store),
	.settings = settings,
	.num_settings = sizeof(settings) / sizeof(settings[0]),
	.family = &partition_setting,
	.sample = "disk",
	.check = check_store_section,
};
