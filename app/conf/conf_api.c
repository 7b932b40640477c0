// SPDX-License-Identifier: BSD-2-Clause
/*
 * conf_api.c - [api] of the INI file: where the management API listens, and its token.
 */
#include "conf.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "base/cleanup.h"

#define USUAL	  "127.0.0.1:7180"
#define TOKEN_MIN 16
#define TOKEN_MAX 256

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

static const struct conf_setting settings[] = {
#define FIELD(field) .at = offsetof(struct conf_api, field)
	{"listen", CONF_MADE, FIELD(listen), .wanted = "ADDRESS:PORT, or no", .make = make_listen,
	 .usual = "**" USUAL "**, or **no** with a socket", .sample = USUAL,
	 .value = "*address*:*port* | **no**",
	 .help = "TCP address to listen on, or no; port 0 selects a free one.",
	 .more = "An address other than loopback requires a **token-file**."},
	{"socket", CONF_FILE, FIELD(socket), .usual = "none", .sample = "/run/stag/api",
	 .help = "Unix socket to listen on; only the daemon's user may connect."},
	{"token-file", CONF_FILE, FIELD(token_file), .usual = "none",
	 .sample = "/etc/stag/api.token",
	 .help = "File whose first line is the token that TCP clients must send.",
	 .more = "The token has 16 characters or more. Only its owner may read the file."},
	{"hosts", CONF_TEXT, FIELD(hosts), .usual = "none", .sample = "stag.example",
	 .value = "*name*[,*name*...]",
	 .help = "Host names that browsers may use for this host, besides its addresses."},
	{"console", CONF_SWITCH, FIELD(console), .preset = "yes", .help = "Serve the web console."},
	{"body-max", CONF_SIZE, FIELD(body_max), 1024, 1u << 30, .preset = "1M",
	 .help = "Largest body of a request.",
	 .more = "Values of pools have a limit of their own."},
	{"connections", CONF_COUNT, FIELD(connections), 1, 4096, .preset = "64",
	 .help = "Connections at the same time."},
#undef FIELD
};

static bool is_loopback(const char *listen)
{
	char host[64];
	uint64_t port;

	return split_host_port(listen, host, sizeof(host), &port) &&
	       (strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0 ||
		strcmp(host, "localhost") == 0);
}

static void read_api_token(struct conf *conf, struct conf_api *a)
{
	a->token = calloc(1, TOKEN_MAX + 1);
	if (!a->token) {
		conf_fault(conf, a->at.line, "out of memory");
		return;
	}
	if (!conf_read_secret(conf, &a->at, "token-file", a->token_file, a->token, TOKEN_MAX + 1))
		return;
	if (strlen(a->token) < TOKEN_MIN || a->token[strspn(a->token, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
								      "abcdefghijklmnopqrstuvwxyz"
								      "0123456789-._~+/=")])
		conf_fault(conf, conf_line_of(&a->at, "token-file"),
			   "token-file: a token has %d characters or more: letters, digits and "
			   "-._~+/=. Create one with head -c 24 /dev/urandom | base64 >%s",
			   TOKEN_MIN, a->token_file);
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
	if (a->listen && !a->token_file && !is_loopback(a->listen))
		conf_fault(conf, conf_line_of(&a->at, "listen"),
			   "%s is not a loopback address, which requires a token-file; anybody "
			   "could change anything",
			   a->listen);
	if (a->socket && strlen(a->socket) >= sizeof(((struct sockaddr_un *)0)->sun_path))
		conf_fault(conf, conf_line_of(&a->at, "socket"), "socket: the path %s is too long",
			   a->socket);
	if (a->token_file)
		read_api_token(conf, a);
}

static const char *api_token_differs(const void *a, const void *b)
{
	const char *x = ((const struct conf_api *)a)->token,
		   *y = ((const struct conf_api *)b)->token;

	return x == y || (x && y && strcmp(x, y) == 0) ? NULL : "the token";
}

static void free_api_section(void *section)
{
	struct conf_api *a = section;

	if (a->token)
		explicit_bzero(a->token, TOKEN_MAX);
	free(a->token);
}

const struct conf_kind conf_api_kind = {
	.word = "api",
	.size = sizeof(struct conf_api),
	.settings = settings,
	.num_settings = sizeof(settings) / sizeof(settings[0]),
	.is_single = true,
	.check = check_api_section,
	.end = free_api_section,
	.differs = api_token_differs,
};
