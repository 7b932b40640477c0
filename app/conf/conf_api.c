// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_api.c - [api] of the INI file: where the management API listens, and its token.
 */
#include "conf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "access.h"
#include "base/cleanup.h"
#include "base/file.h"

#define USUAL	 "127.0.0.1:7180"
#define CERT_MAX (256u << 10)

/* Splits HOST:PORT; an IPv6 host is in brackets. */
static bool split_host_port(const char *text, char *host, size_t size, uint64_t *port)
{
	const char *colon = strrchr(text, ':'), *begin = text, *end = colon;

	if (!colon || !conf_parse_count(colon + 1, port) || *port > UINT16_MAX)
		return false;
	if (*text == '[') {
		begin++;
		end--;
		if (end < begin || *end != ']')
			return false;
	}
	return end > begin && snprintf(host, size, "%.*s", (int)(end - begin), begin) < (int)size;
}

static char *make_listen(const struct conf *conf, const char *value)
{
	char host[64];
	uint64_t port;
	struct in6_addr a;

	if (strcmp(value, "no") == 0)
		return strdup(value);
	if (!split_host_port(value, host, sizeof(host), &port))
		return NULL;
	return strcmp(host, "localhost") == 0 || inet_pton(AF_INET, host, &a) == 1 ||
			       (*value == '[' && inet_pton(AF_INET6, host, &a) == 1)
		       ? strdup(value)
		       : NULL;
}

static const char *const roles[] = {"look", "operate", "administer", NULL};

static const char *const tls_words[] = {"off", "allowed", "required", NULL};

static const struct conf_setting settings[] = {
#define FIELD(field) .at = offsetof(struct conf_api, field)
	{"listen", CONF_MADE, FIELD(listen), .wanted = "ADDRESS:PORT, or no", .make = make_listen,
	 .usual = "**" USUAL "**, or **no** with a socket", .sample = USUAL,
	 .value = "*address*:*port* | **no**",
	 .help = "TCP address to listen on, or no; port 0 selects a free one.",
	 .more = "Clients always need a token. Use **tls** for an address that other machines can "
		 "reach."},
	{"socket", CONF_FILE, FIELD(socket), .usual = "none", .sample = "/run/stag/api",
	 .help = "Unix socket to listen on, for the daemon's user and root.",
	 .more = "The kernel says who connects: these two have the role **administer** without a "
		 "token."},
	{"socket-group", CONF_TEXT, FIELD(socket_group), .usual = "none", .sample = "stag",
	 .value = "*name*", .help = "Group whose members may connect to the socket, too."},
	{"socket-role", CONF_CHOICE, FIELD(socket_role), .wanted = "look, operate or administer",
	 .words = roles, .preset = "look", .live = true,
	 .help = "What members of that group may do."},
	{"token-file", CONF_FILE, FIELD(token_file), .live = true,
	 .usual = "*api.token* in the state directory, which **stagd** creates",
	 .sample = "/etc/stag/api.token",
	 .help = "File whose first line is a token with the role administer.",
	 .more = "TCP clients must send a token: this one, or one of a section **[token** "
		 "*NAME***]**. The token has 16 characters or more. Only its owner may read the "
		 "file."},
	{"roots", CONF_TEXT, FIELD(roots), .live = true, .value = "*directory*[,*directory*...]",
	 .usual = "the state directory, and those of the stores and files that sections name",
	 .sample = "/srv/stag", .help = "Directories below which requests may name files.",
	 .more = "Symbolic links are followed before this is checked. Other users must not be "
		 "able to change these directories, nor those below them on the way to the file."},
	{"tls", CONF_CHOICE, FIELD(tls), .wanted = "off, allowed or required", .words = tls_words,
	 .usual = "**required** with **tls-cert**, else **off**", .sample = "required",
	 .value = "**off** | **allowed** | **required**",
	 .help = "Whether TCP clients may, or must, use HTTPS (TLS 1.3).",
	 .more = "HTTP and HTTPS are on the same port. With **required**, a request without TLS is "
		 "refused; browsers that ask for the console are led to https://."},
	{"tls-cert", CONF_FILE, FIELD(tls_cert), .usual = "none", .sample = "/etc/stag/api.crt",
	 .help = "File of the certificate and those that signed it, in PEM."},
	{"tls-key", CONF_FILE, FIELD(tls_key), .usual = "none", .sample = "/etc/stag/api.key",
	 .help = "File of the certificate's private key, in PEM.",
	 .more = "Only its owner may read the file."},
	{"hosts", CONF_TEXT, FIELD(hosts), .usual = "none", .sample = "stag.example",
	 .value = "*name*[,*name*...]",
	 .help = "Host names that browsers may use for this host, besides its addresses."},
	{"console", CONF_SWITCH, FIELD(console), .preset = "yes", .help = "Serve the web console."},
	{"body-max", CONF_SIZE, FIELD(body_max), 1024, 1u << 30, .preset = "1M",
	 .help = "Largest body of a request.",
	 .more = "Values of pools have a limit of their own."},
	{"connections", CONF_COUNT, FIELD(connections), 1, 65536, .preset = "64",
	 .help = "Connections with a request at the same time.",
	 .more = "If all are in use, the one that has been idle for longest is closed."},
	{"streams", CONF_COUNT, FIELD(streams), 1, 4096, .preset = "32",
	 .help = "Event streams at the same time, besides connections."},
	{"idle", CONF_COUNT, FIELD(idle), 16, 1u << 20, .preset = "16384",
	 .help = "Connections at the same time that have not sent anything yet.",
	 .more = "They cost a descriptor and no thread. If there are more, the oldest one of the "
		 "address that has most is closed."},
#undef FIELD
};

bool conf_is_loopback(const char *listen)
{
	char host[64];
	uint64_t port;

	return split_host_port(listen, host, sizeof(host), &port) &&
	       (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
		strcmp(host, "localhost") == 0);
}

/* The default file is made when the API starts: until then it need not exist. */
static void read_api_token(struct conf *conf, struct conf_api *a)
{
	if (a->token_made && access(a->token_file, F_OK) != 0)
		return;
	a->token = calloc(1, TOKEN_MAX + 2);
	if (!a->token) {
		conf_fault(conf, a->at.line, "out of memory");
		return;
	}
	if (!conf_read_secret(conf, &a->at, "token-file", a->token_file, a->token, TOKEN_MAX + 2)) {
		free(a->token);
		a->token = NULL;
	} else if (!token_is_valid(a->token)) {
		conf_fault(conf, conf_line_of(&a->at, "token-file"),
			   "token-file: " CONF_TOKEN_WANTED, TOKEN_MIN, a->token_file);
	}
}

static void set_token_file(struct conf *conf, struct conf_api *a)
{
	if (!a->token_file && a->listen && conf->daemon && conf->daemon->state) {
		a->token_made = true;
		if (asprintf(&a->token_file, "%s/" CONF_MADE_TOKEN, conf->daemon->state) < 0)
			a->token_file = NULL;
	}
	if (a->token_file)
		read_api_token(conf, a);
}

static void check_group(struct conf *conf, const struct conf_api *a)
{
	if (a->socket_group && !a->socket)
		conf_fault(conf, conf_line_of(&a->at, "socket-group"),
			   "socket-group requires socket = PATH");
	if (a->socket_group && !(conf->flags & CONF_TEXT_ONLY) && !getgrnam(a->socket_group))
		conf_fault(conf, conf_line_of(&a->at, "socket-group"), "group '%s' does not exist",
			   a->socket_group);
}

static char *read_certificate(struct conf *conf, const struct conf_api *a)
{
	char *text = conf->flags & CONF_TEXT_ONLY ? NULL : malloc(CERT_MAX);
	ssize_t len = text ? file_read(AT_FDCWD, a->tls_cert, text, CERT_MAX) : 0;

	if (len >= 0)
		return text;
	conf_fault(conf, conf_line_of(&a->at, "tls-cert"), "tls-cert: %s: %s", a->tls_cert,
		   strerror((int)-len));
	free(text);
	return NULL;
}

static void check_tls(struct conf *conf, struct conf_api *a)
{
	if (!conf_is_set(&a->at, "tls"))
		a->tls = a->tls_cert ? CONF_TLS_REQUIRED : CONF_TLS_OFF;
	if (a->tls == CONF_TLS_OFF)
		return;
	if (!a->tls_cert || !a->tls_key) {
		conf_fault(conf, conf_line_of(&a->at, a->tls_cert ? "tls-cert" : "tls"),
			   "TLS requires tls-cert and tls-key");
		return;
	}
	a->cert_text = read_certificate(conf, a);
	a->key_text =
		conf_read_private(conf, conf_line_of(&a->at, "tls-key"), "tls-key", a->tls_key, "");
}

static void check_api_section(struct conf *conf, void *section)
{
	struct conf_api *a = section;

	if (!a->listen && !a->socket)
		a->listen = strdup(USUAL);
	if (a->listen && strcmp(a->listen, "no") == 0) {
		free(a->listen);
		a->listen = NULL;
		if (!a->socket)
			conf_fault(conf, conf_line_of(&a->at, "listen"),
				   "listen = no requires socket = PATH; clients could not connect");
	}
	if (a->socket && strlen(a->socket) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		conf_fault(conf, conf_line_of(&a->at, "socket"), "socket: the path %s is too long",
			   a->socket);
	check_group(conf, a);
	check_tls(conf, a);
	set_token_file(conf, a);
}

static void free_api_section(void *section)
{
	struct conf_api *a = section;

	if (a->token)
		explicit_bzero(a->token, strlen(a->token));
	free(a->token);
	free(a->cert_text);
	if (a->key_text)
		explicit_bzero(a->key_text, strlen(a->key_text));
	free(a->key_text);
}

const struct conf_kind conf_api_kind = {
	.word = "api",
	.size = sizeof(struct conf_api),
	.settings = settings,
	.num_settings = sizeof(settings) / sizeof(settings[0]),
	.is_single = true,
	.check = check_api_section,
	.end = free_api_section,
};
