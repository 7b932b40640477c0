// SPDX-License-Identifier: BSD-2-Clause
/* roll_where.c - the place of the roll in etcd, parsed (roll_where.h). Pure. */
#include "pool/role/roll_where.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_TIMEOUT_MS 1000
#define MAX_TIMEOUT_MS	   60000

static bool copy_text(char *to, size_t room, const char *from, size_t len)
{
	if (len == 0 || len >= room)
		return false;
	memcpy(to, from, len);
	to[len] = '\0';
	return true;
}

/* Parses host:port,host:port,... */
static const char *parse_hosts(const char *text, size_t len, struct roll_where *w)
{
	while (len) {
		size_t one = strcspn(text, ",/?");
		const char *colon = memrchr(text, ':', one);

		if (w->num_hosts == ROLL_WHERE_HOSTS)
			return "it names more than 8 endpoints";
		if (!colon || colon == text || colon == text + one - 1 ||
		    strspn(colon + 1, "0123456789") != (size_t)(text + one - colon - 1) ||
		    !copy_text(w->hosts[w->num_hosts], ROLL_WHERE_HOST, text, one))
			return "an endpoint is a host and a port: host:2379";
		w->num_hosts++;
		len -= one;
		text += one;
		if (len) {
			text++;
			if (--len == 0)
				return "an endpoint is missing after a comma";
		}
	}
	return w->num_hosts ? NULL : "it names no endpoint";
}

static bool parse_timeout(const char *value, size_t len, struct roll_where *w)
{
	char *end;
	unsigned long ms = strtoul(value, &end, 10);

	w->timeout_ms = (unsigned int)ms;
	return len && end == value + len && ms >= 1 && ms <= MAX_TIMEOUT_MS;
}

static bool is_option(const char *name, const char *text, size_t len)
{
	return strlen(name) == len && memcmp(name, text, len) == 0;
}

static const char *parse_option(const char *text, size_t len, struct roll_where *w)
{
	const char *equals = memchr(text, '=', len);
	const struct {
		const char *name;
		char *to;
		size_t room;
	} options[] = {
		{"ca", w->ca, sizeof(w->ca)},
		{"cert", w->cert, sizeof(w->cert)},
		{"key", w->cert_key, sizeof(w->cert_key)},
		{"user", w->user, sizeof(w->user)},
		{"password-file", w->password_file, sizeof(w->password_file)},
	};
	size_t name_len = equals ? (size_t)(equals - text) : 0;

	if (!equals)
		return "an option is NAME=VALUE";
	if (is_option("plain-password", text, name_len)) {
		w->plain_password = is_option("yes", equals + 1, len - name_len - 1);
		return w->plain_password ? NULL : "plain-password is yes, or left out";
	}
	if (is_option("timeout", text, name_len))
		return parse_timeout(equals + 1, len - name_len - 1, w)
			       ? NULL
			       : "timeout is 1 to 60000 ms";
	for (unsigned int i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		if (is_option(options[i].name, text, name_len))
			return copy_text(options[i].to, options[i].room, equals + 1,
					 len - name_len - 1)
				       ? NULL
				       : "an option's value is empty or too long";
	return "options are ca, cert, key, user, password-file, plain-password and timeout";
}

/* Returns whether an endpoint is on this machine by its text: 127.x.x.x, [::1] or localhost. */
static bool is_local(const char *endpoint)
{
	size_t len =
		strcspn(endpoint, "[") == 0 ? strcspn(endpoint, "]") + 1 : strcspn(endpoint, ":");
	char host[INET6_ADDRSTRLEN] = "";
	struct in_addr address;

	if (is_option("localhost", endpoint, len) || is_option("[::1]", endpoint, len))
		return true;
	if (len < sizeof(host))
		memcpy(host, endpoint, len);
	return inet_pton(AF_INET, host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

static const char *check_password(const struct roll_where *w)
{
	if (w->plain_password && (w->tls || !w->user[0]))
		return "plain-password is for etcd:// with user and password-file";
	if (w->tls || !w->user[0] || w->plain_password)
		return NULL;
	for (unsigned int i = 0; i < w->num_hosts; i++)
		if (!is_local(w->hosts[i]))
			return "etcd:// would send the password in the clear: use etcds://, or "
			       "allow "
			       "it with plain-password=yes";
	return NULL;
}

static const char *parse_options(const char *text, struct roll_where *w)
{
	while (*text) {
		size_t len = strcspn(text, "&");
		const char *why = parse_option(text, len, w);

		if (why)
			return why;
		text += len + (text[len] == '&');
	}
	if (!w->user[0] != !w->password_file[0])
		return "user and password-file come together";
	if (!w->cert[0] != !w->cert_key[0])
		return "cert and key come together";
	if (!w->tls && (w->ca[0] || w->cert[0]))
		return "ca, cert and key are for etcds://";
	return check_password(w);
}

static const char *parse_where(const char *text, struct roll_where *w)
{
	size_t hosts, key;
	const char *why;

	w->tls = strncmp(text, "etcds://", 8) == 0;
	if (!w->tls && strncmp(text, "etcd://", 7) != 0)
		return "it does not begin with etcd:// or etcds://";
	text += w->tls ? 8 : 7;
	hosts = strcspn(text, "/?");
	why = parse_hosts(text, hosts, w);
	if (why)
		return why;
	text += hosts;
	key = strcspn(text, "?");
	if (key < 2 || !copy_text(w->key, sizeof(w->key), text + 1, key - 1))
		return "the key is missing, or has more than 255 characters";
	text += key;
	return parse_options(text + (*text == '?'), w);
}

int roll_where_parse(const char *text, struct roll_where *where, const char **why)
{
	memset(where, 0, sizeof(*where));
	where->timeout_ms = DEFAULT_TIMEOUT_MS;
	*why = parse_where(text, where);
	return *why ? -EINVAL : 0;
}
