// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_watch.c - [watch NAME] of the INI file: a pool that other daemons serve.
 */
#include "conf.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

/* ---- addresses of nodes, with the syntax of src/pool/client/where.c; names are not resolved ------------ */

#define NODES_MOST   1023
#define NODE_ROOM    92 /* for one of them */
#define NODES_WANTED "HOST[:PORT][,HOST[:PORT]...], an IPv6 address in brackets"

static bool is_port(const char *text)
{
	size_t digits = strspn(text, "0123456789");
	unsigned long port = digits <= 5 ? strtoul(text, NULL, 10) : 0;

	return !text[digits] && port > 0 && port <= UINT16_MAX;
}

/* Accepts a host name or an IPv4 address. */
static bool is_host(const char *text)
{
	struct in_addr a;

	if (!*text || text[strspn(text, "0123456789.")] == '\0')
		return inet_aton(text, &a) != 0;
	return text[strspn(text,
			   "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_")] ==
	       '\0';
}

/* Accepts an IPv6 address with or without its scope. */
static bool is_ipv6(char *text)
{
	struct in6_addr a;

	text[strcspn(text, "%")] = '\0';
	return inet_pton(AF_INET6, text, &a) == 1;
}

static bool is_node(char *text)
{
	char *end = *text == '[' ? strchr(text, ']') : strchrnul(text, ':');
	bool has_port;

	if (!end)
		return false;
	if (*end == ']')
		*end++ = '\0';
	has_port = *end == ':';
	if (*end && (!has_port || !is_port(end + 1)))
		return false;
	*end = '\0';
	return *text == '[' ? is_ipv6(text + 1) : is_host(text);
}

static char *make_nodes(const struct conf *conf, const char *value)
{
	char node[NODE_ROOM];

	if (!*value || strlen(value) > NODES_MOST)
		return NULL;
	for (const char *at = value, *end; *at; at = *end ? end + 1 : end) {
		end = strchrnul(at, ',');
		if ((size_t)snprintf(node, sizeof(node), "%.*s", (int)(end - at), at) >=
			    sizeof(node) ||
		    !is_node(node))
			return NULL;
	}
	return strdup(value);
}

/* ---- the section ---------------------------------------------------------------------------- */

static const struct conf_setting settings[] = {
#define FIELD(field) .at = offsetof(struct conf_watch, field)
	{"nodes", CONF_MADE, FIELD(nodes), .wanted = NODES_WANTED, .make = make_nodes,
	 .sample = "alpha.example:7175,beta.example:7175",
	 .value = "*host*[:*port*][,*host*[:*port*]...]",
	 .help = "Any of the pool's nodes; the others are found through these."},
	{"user", CONF_NAME, FIELD(user), .preset = "admin", .help = "User to authenticate as.",
	 .more = "With the right **admin**, what happened to the pool's nodes is among this "
		 "daemon's events: failovers with their causes, refused logins, and the rest of "
		 "their logs."},
	{"secret-file", CONF_FILE, FIELD(secret_file), .sample = "/etc/stag/far.secret",
	 .help = "File with that user's secret, or the pool's file of secrets.",
	 .more = "The secret stands alone in the first line; a file of secrets is described below. "
		 "Only its owner may read the file."},
	{"tls", CONF_CHOICE, FIELD(tls), .wanted = "off, allowed or required",
	 .words = conf_tls_words, .usual = "**required** with **tls-cert**, else **off**",
	 .sample = "required", .value = "**off** | **allowed** | **required**",
	 .help = "Encrypt the connection to the pool: off, allowed or required.",
	 .more = "As the pool's nodes have it."},
	{"tls-cert", CONF_FILE, FIELD(tls_cert), .usual = "none", .sample = "/etc/stag/watch.pem",
	 .help = "File of a certificate to show to the pool's nodes, in PEM.",
	 .more = "If the nodes have **tls-cert**. Their certificates have to have the addresses "
		 "of **nodes**."},
	{"tls-key", CONF_FILE, FIELD(tls_key), .usual = "none", .sample = "/etc/stag/watch.key",
	 .help = "File of the certificate's private key, in PEM.",
	 .more = "Only its owner may read the file."},
	{"tls-ca", CONF_FILE, FIELD(tls_ca), .usual = "none", .sample = "/etc/stag/ca.pem",
	 .help = "File of the authorities of the nodes' certificates, in PEM."},
#undef FIELD
};

/* Reads the secret from a file that holds nothing else, or the user's secret from a pool's file of secrets. */
static void read_watch_secret(struct conf *conf, struct conf_watch *w)
{
	unsigned int line = conf_line_of(&w->at, "secret-file");
	char *text = conf_read_private(conf, line, "secret-file", w->secret_file, "");
	struct secrets all = {0};
	const struct secret *found;

	if (!text)
		return;
	if (!text[strcspn(text, " \t")]) {
		text[strcspn(text, "\r\n")] = '\0';
		snprintf(w->secret, sizeof(w->secret), "%s", text);
	} else if (secrets_parse(text, w->secret_file, &all) == 0) {
		found = secrets_find(&all, w->user);
		snprintf(w->secret, sizeof(w->secret), "%s", found ? found->text : "");
	}
	if (!*w->secret)
		conf_fault(conf, line, "secret-file: user '%s' has no secret in %s", w->user,
			   w->secret_file);
	secrets_free(&all);
	explicit_bzero(text, strlen(text));
	free(text);
}

static void check_watch_section(struct conf *conf, void *section)
{
	struct conf_watch *w = section;

	w->tls = conf_check_tls(conf, &w->at, w->tls, w->tls_cert, w->tls_key, w->tls_ca);
	if (!w->nodes && !conf_is_set(&w->at, "nodes"))
		conf_fault(conf, w->at.line,
			   "nodes is required: nodes = HOST[:PORT][,HOST[:PORT]...]");
	if (!w->secret_file)
		conf_fault(conf, w->at.line,
			   "secret-file is required to authenticate: secret-file = PATH");
	else if (w->user)
		read_watch_secret(conf, w);
}

/* Compares the secrets themselves: the file may have new content. */
static const char *watch_secret_differs(const void *a, const void *b)
{
	const struct conf_watch *x = a, *y = b;

	return strcmp(x->secret, y->secret) == 0 ? NULL : "the secret";
}

static void free_watch_section(void *section)
{
	struct conf_watch *w = section;

	explicit_bzero(w->secret, sizeof(w->secret));
}

const struct conf_kind conf_watch_kind = {
	.word = "watch",
	.sample = "far",
	.live = true,
	.size = sizeof(struct conf_watch),
	.settings = settings,
	.num_settings = sizeof(settings) / sizeof(settings[0]),
	.check = check_watch_section,
	.end = free_watch_section,
	.differs = watch_secret_differs,
};
