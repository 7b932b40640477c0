// SPDX-License-Identifier: BSD-2-Clause
/*
 * guard.c - decides whether a request is allowed (http.h).
 *
 * It refuses four attackers: a client without a token; one whose token has too low a role; a web page of another site that a user of this machine has open
 * (detected by Origin and Sec-Fetch-Site; besides, a form can neither send application/json nor PUT); and a page whose host name was made to
 * resolve to this machine (DNS rebinding, detected by a Host that is not ours).
 */
#include "http.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- who it is -------------------------------------------------------------------------- */

static int check_token(const struct access *access, const char *authorization, struct who *who,
		       struct fault *f)
{
	static const char next[] = "send 'Authorization: Bearer TOKEN' with the token from the "
				   "file that token-file names in the INI file, or with one of "
				   "'stag token create'";
	const struct token *t;

	if (!authorization)
		return fault_set(f, 401, "no_token", next, "a token is required");
	t = strncasecmp(authorization, "Bearer ", 7) == 0 ? access_find(access, authorization + 7)
							  : NULL;
	if (!t)
		return fault_set(f, 401, "wrong_token", next, "the token is wrong");
	who->role = t->role;
	memcpy(who->token, t->name, sizeof(who->token));
	memcpy(who->hash, t->hash, sizeof(who->hash));
	return 0;
}

/* A client of the Unix socket may also present a token, which then decides. */
static int check_who(const struct guard *g, const struct access *access,
		     const struct credentials *c, struct who *who, struct fault *f)
{
	if (!g->is_private || c->authorization)
		return check_token(access, c->authorization, who, f);
	who->role = c->peer;
	return 0;
}

static int check_role(const struct who *who, enum role needed, struct fault *f)
{
	if (who->role >= needed)
		return 0;
	return fault_set(f, 403, "role_too_low", "use a token with that role",
			 "this requires the role %s; %s%s has the role %s", role_word(needed),
			 *who->token ? "the token " : "the user", who->token, role_word(who->role));
}

/* ---- origin --------------------------------------------------------------------- */

bool host_name(const char *host, char *name, size_t size)
{
	const char *end = *host == '[' ? strchr(host, ']') : host + strcspn(host, ":");
	size_t len = end ? (size_t)(end - host) - (*host == '[') : 0;

	if (len == 0 || len >= size)
		return false;
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)host[i + (*host == '[')];

		if (!isalnum(c) && !strchr(*host == '[' ? ":.%" : ".-_", c))
			return false;
		name[i] = (char)tolower(c);
	}
	name[len] = '\0';
	end += *host == '[';
	if (*end == '\0')
		return true;
	return *end == ':' && end[1] && strspn(end + 1, "0123456789") == strlen(end + 1) &&
	       strlen(end + 1) <= 5;
}

/* Accepts a host name of the INI file, or the address that the client connected to, which no other site's page has. */
static bool is_ours(const char *hosts, const struct credentials *c)
{
	char word[300], name[256];

	if (!host_name(c->host, name, sizeof(name)))
		return false;
	if (c->local && strcmp(c->local, name) == 0)
		return true;
	snprintf(word, sizeof(word), " %s ", name);
	return strstr(hosts, word) != NULL;
}

static int check_host(const struct guard *g, const struct credentials *c, struct fault *f)
{
	if (!c->host)
		return fault_set(f, 400, "no_host", NULL, "the Host header is missing");
	if (g->is_private || is_ours(g->hosts, c))
		return 0;
	return fault_set(f, 421, "wrong_host",
			 "add the name with hosts = NAME in the section [api] of the INI file",
			 "'%.100s' is not a known name of this machine", c->host);
}

/* Returns whether the page is ours: its Origin equals our Host. */
static bool is_own_origin(const char *origin, const char *host)
{
	if (strncasecmp(origin, "http://", 7) == 0)
		return strcasecmp(origin + 7, host) == 0;
	return strncasecmp(origin, "https://", 8) == 0 && strcasecmp(origin + 8, host) == 0;
}

static int check_site(const struct credentials *c, bool open, struct fault *f)
{
	/* Allows links from other sites to the console; the linking page cannot read the response. */
	if (open && c->mode && strcmp(c->mode, "navigate") == 0)
		return 0;
	if (c->site && strcmp(c->site, "same-origin") != 0 && strcmp(c->site, "none") != 0)
		return fault_set(f, 403, "cross_site", NULL,
				 "requests from web pages of other sites are refused");
	if (c->origin && !is_own_origin(c->origin, c->host))
		return fault_set(f, 403, "cross_site", NULL,
				 "requests from web pages of %.100s are refused", c->origin);
	return 0;
}

/* ---- content type ---------------------------------------------------------------------------- */

static bool is_type(const char *type, const char *wanted)
{
	size_t len = strcspn(type, "; \t");

	return len == strlen(wanted) && strncasecmp(type, wanted, len) == 0;
}

/*
 * Returns whether a value may come with the type that curl --data-binary and urllib set by themselves, or with none, as from
 * net/http. Web pages are not trusted with it: no browser sends a PUT without these headers, and none sends one of another
 * site's page without asking first, which we never allow.
 */
static bool is_plain_put(const struct route *route, const struct credentials *c)
{
	return route->method == METHOD_PUT && route->body == BODY_BYTES && !c->origin && !c->site &&
	       !c->mode && (!c->type || is_type(c->type, "application/x-www-form-urlencoded"));
}

static int check_type(const struct route *route, const struct credentials *c, struct fault *f)
{
	const char *wanted =
		route->body == BODY_JSON ? "application/json" : "application/octet-stream";

	if (route->body == BODY_NONE || (c->type && is_type(c->type, wanted)) ||
	    is_plain_put(route, c))
		return 0;
	return fault_set(f, 415, "wrong_type", NULL, "'Content-Type: %s' is required", wanted);
}

/* An unknown path requires a token, too: a stranger learns nothing about which there are. */
int guard_check(const struct guard *g, const struct access *access, const struct credentials *c,
		const struct route *route, struct who *who, struct fault *f)
{
	enum role needed = route ? route->role : ROLE_LOOK;
	int rc = c->repeated ? fault_set(f, 400, "repeated_header", NULL,
					 "a security-relevant header occurs twice")
			     : check_host(g, c, f);

	*who = (struct who){.role = ROLE_NONE};
	if (rc == 0)
		rc = check_site(c, needed == ROLE_NONE, f);
	if (rc == 0 && needed > ROLE_NONE)
		rc = check_who(g, access, c, who, f) ?: check_role(who, needed, f);
	if (rc == 0 && route)
		rc = check_type(route, c, f);
	return rc;
}
