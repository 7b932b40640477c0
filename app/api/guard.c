// SPDX-License-Identifier: BSD-2-Clause
/*
 * guard.c - decides whether a request is allowed (http.h).
 *
 * It refuses three attackers: a client without the token; a web page of another site that a user of this machine has open
 * (detected by Origin and Sec-Fetch-Site; besides, a form cannot send application/json); and a page whose host name was made to
 * resolve to this machine (DNS rebinding, detected by a Host that is not ours).
 */
#include "http.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>

/* ---- the token ------------------------------------------------------------------------- */

/* Compares hashes, so that the time taken reveals neither the length of a common prefix nor that of the token. */
static bool is_same_token(const char *a, const char *b)
{
	unsigned char hash[2][EVP_MAX_MD_SIZE] = {{0}};

	if (EVP_Digest(a, strlen(a), hash[0], NULL, EVP_sha256(), NULL) != 1 ||
	    EVP_Digest(b, strlen(b), hash[1], NULL, EVP_sha256(), NULL) != 1)
		return false;
	return CRYPTO_memcmp(hash[0], hash[1], 32) == 0;
}

static int check_token(const char *token, const char *authorization, struct fault *f)
{
	static const char next[] = "send 'Authorization: Bearer TOKEN' with the token from the "
				   "file that token-file names in the INI file";

	if (!authorization)
		return fault_set(f, 401, "no_token", next, "a token is required");
	if (strncasecmp(authorization, "Bearer ", 7) != 0 ||
	    !is_same_token(authorization + 7, token))
		return fault_set(f, 401, "wrong_token", next, "the token is wrong");
	return 0;
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

static int check_type(enum body_kind body, const char *type, struct fault *f)
{
	const char *wanted = body == BODY_JSON ? "application/json" : "application/octet-stream";
	size_t len = type ? strcspn(type, "; \t") : 0;

	if (body == BODY_NONE || (len == strlen(wanted) && strncasecmp(type, wanted, len) == 0))
		return 0;
	return fault_set(f, 415, "wrong_type", NULL, "'Content-Type: %s' is required", wanted);
}

int guard_check(const struct guard *g, const struct credentials *c, const struct route *route,
		struct fault *f)
{
	bool open = route && route->open;
	int rc = c->repeated ? fault_set(f, 400, "repeated_header", NULL,
					 "a security-relevant header occurs twice")
			     : check_host(g, c, f);

	if (rc == 0)
		rc = check_site(c, open, f);
	if (rc == 0 && g->token && !open)
		rc = check_token(g->token, c->authorization, f);
	if (rc == 0 && route)
		rc = check_type(route->body, c->type, f);
	return rc;
}
