// SPDX-License-Identifier: BSD-2-Clause
/*
 * url.c - SCHEME://[USER[%SECRET]@]HOST[:PORT][/TARGET/LUN], as libiscsi writes it.
 *
 * Error texts do not quote the URL: it may contain a secret.
 */
#include "block/initiator/initiator.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LUN 16383

static int fail_url(const char *what)
{
	return block_fail(
		EINVAL,
		"not a URL of the form SCHEME://[USER[%%SECRET]@]HOST[:PORT][/TARGET/LUN]: %s",
		what);
}

/* Copies len bytes of text, and adds a final zero. */
static bool copy_part(char *to, size_t size, const char *text, size_t len)
{
	if (len == 0 || len >= size)
		return false;
	memcpy(to, text, len);
	to[len] = '\0';
	return true;
}

static const char *parse_scheme(const char *text, uint32_t *transport)
{
	static const struct {
		const char *name;
		enum stag_block_transport transport;
	} schemes[] = {{"stag://", STAG_BLOCK_BEST},
		       {"iser://", STAG_BLOCK_ISER},
		       {"iscsi://", STAG_BLOCK_TCP}};

	for (size_t i = 0; i < sizeof(schemes) / sizeof(*schemes); i++)
		if (strncmp(text, schemes[i].name, strlen(schemes[i].name)) == 0) {
			*transport = schemes[i].transport;
			return text + strlen(schemes[i].name);
		}
	return NULL;
}

/* Parses "USER" or "USER%SECRET" up to end. */
static bool parse_user(struct initiator_url *u, const char *text, const char *end)
{
	const char *percent = memchr(text, '%', (size_t)(end - text));

	if (percent &&
	    !copy_part(u->secret, sizeof(u->secret), percent + 1, (size_t)(end - percent - 1)))
		return false;
	if (!percent)
		percent = end;
	return copy_part(u->user, sizeof(u->user), text, (size_t)(percent - text));
}

static bool parse_port(char port[6], const char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isdigit((unsigned char)text[i]))
			return false;
	return copy_part(port, 6, text, len) && atoi(port) > 0 && atoi(port) <= UINT16_MAX;
}

/* Parses "HOST", "HOST:PORT" or "[V6]:PORT" of len bytes. */
static bool parse_host(const char *text, size_t len, char host[WORD_MAX], char port[6])
{
	const char *end = text + len, *bracket, *colon;

	snprintf(port, 6, "%d", STAG_BLOCK_PORT);
	if (len && *text == '[') {
		bracket = memchr(text, ']', len);
		if (!bracket || !copy_part(host, WORD_MAX, text + 1, (size_t)(bracket - text - 1)))
			return false;
		colon = bracket + 1;
	} else {
		colon = memchr(text, ':', len);
		if (!colon)
			colon = end;
		if (!copy_part(host, WORD_MAX, text, (size_t)(colon - text)))
			return false;
	}
	if (colon == end)
		return true;
	return *colon == ':' && parse_port(port, colon + 1, (size_t)(end - colon - 1));
}

static int parse_unit(struct initiator_url *u, const char *text)
{
	const char *slash = strchr(text, '/');
	uint64_t lun;

	if (!slash && iscsi_text_is_name(text))
		return fail_url("the LUN is missing; 'stag block discover' lists the LUNs");
	if (!slash || !copy_part(u->target, sizeof(u->target), text, (size_t)(slash - text)) ||
	    !iscsi_text_is_name(u->target))
		return fail_url("the target's name must begin with iqn., eui. or naa.");
	if (!iscsi_text_number(slash + 1, &lun) || lun > MAX_LUN)
		return fail_url("the LUN must be a number from 0 to 16383");
	u->lun = (uint16_t)lun;
	return 0;
}

int initiator_url_parse(const char *text, bool whole, struct initiator_url *out)
{
	struct initiator_url u = {0};
	const char *rest = parse_scheme(text, &u.transport), *at;
	size_t len;
	int rc;

	if (!rest)
		return fail_url("the scheme must be stag, iser or iscsi");
	/* A secret may contain a slash; a host contains no @. */
	at = strrchr(rest, '@');
	if (at && !parse_user(&u, rest, at))
		return fail_url("invalid user or secret");
	rest = at ? at + 1 : rest;
	len = strcspn(rest, "/");
	if (!parse_host(rest, len, u.host, u.port))
		return fail_url("invalid host or port");
	rest += len;
	if (whole && *rest != '/')
		return fail_url("the target is missing; 'stag block discover' lists the targets");
	if (!whole && *rest && strcmp(rest, "/") != 0)
		return fail_url("the URL of a portal has no target");
	rc = whole ? parse_unit(&u, rest + 1) : 0;
	if (rc == 0)
		*out = u;
	return rc;
}

int initiator_url_parse_address(const char *text, char host[WORD_MAX], char port[6])
{
	return parse_host(text, strcspn(text, ","), host, port) ? 0 : -EINVAL;
}
