// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_use.c - stag block info, and the secrets of all verbs that use a target.
 */
#include "block_use.h"

#include <errno.h>
#include <string.h>

#include "stag.h"
#include "store.h"

/* Prints no URL: it may contain a secret. */
int block_failed(const struct block_use *u, int error)
{
	const char *scheme = strstr(u->url, "://"), *at = strchr(u->url, '@');
	const char *host = at ? at + 1 : scheme ? scheme + 3 : "HOST";

	complain_for(error, NULL, "%s", stag_block_error());
	if (error == ECONNREFUSED)
		complain_try("'stag block serve' on that machine, or another port: HOST:PORT.");
	else if (error == EACCES)
		complain_try("--user NAME --secret-file FILE%s.",
			     block_tls_mode(u) == STAG_BLOCK_TLS_OFF
				     ? ", and --tls required if the target requires TLS"
				     : "");
	else if (error == ENOENT || error == ENODEV || error == ENXIO)
		complain_try("'stag block discover iscsi://%.*s'.", (int)strcspn(host, "/"), host);
	else if (error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH)
		complain_try("'stag doctor --quiet', on both machines.");
	return EXIT_FAILED;
}

/* ---- info -------------------------------------------------------------------------------- */

static json_t *info_json(const struct stag_block_info *i)
{
	json_t *o =
		json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:b}", "target",
			  i->target, "transport", block_transport_word(i->transport), "vendor",
			  i->vendor, "product", i->product, "revision", i->revision, "serial",
			  i->serial, "size", (json_int_t)i->size, "block", (json_int_t)i->block,
			  "max_transfer", (json_int_t)i->max_transfer, "read_only", i->read_only,
			  "write_back", i->write_back, "unmaps", i->unmaps);

	json_object_set_new(o, "tls", block_tls_json(&i->tls));
	return o;
}

static void print_info(const struct stag_block_info *i)
{
	char size[32], tls[96];

	printf("target     %s\n", i->target);
	printf("transport  %s\n", block_transport_word(i->transport));
	printf("encrypted  %s\n", block_tls_word(&i->tls, tls, sizeof(tls)));
	printf("unit       %s %s %s, serial %s\n", i->vendor, i->product, i->revision, i->serial);
	printf("size       %s (%llu bytes), blocks of %u\n",
	       store_size_word(i->size, size, sizeof(size)), (unsigned long long)i->size, i->block);
	printf("command    %s at most\n", store_size_word(i->max_transfer, size, sizeof(size)));
	printf("writes     %s%s\n",
	       i->read_only    ? "none: the unit is read only"
	       : i->write_back ? "cached until a flush"
			       : "durable at once",
	       i->unmaps ? "; unmaps" : "");
}

int block_info(const struct block_use *u)
{
	struct stag_block *b = stag_block_open(u->url, &u->attr);
	struct stag_block_info i;

	if (!b)
		return block_failed(u, errno);
	stag_block_query(b, &i, sizeof(i));
	if (u->json)
		store_dump(info_json(&i));
	else
		print_info(&i);
	stag_block_close(b);
	return EXIT_OK;
}

/* ---- secrets ----------------------------------------------------------------------- */

bool block_read_secret(const char *path, char out[BLOCK_MAX_SECRET])
{
	FILE *f = fopen(path, "r");
	bool good = f && fgets(out, BLOCK_MAX_SECRET, f);

	if (!good)
		complain_for(
			f ? 0 : errno, path, "%s: %s", path,
			f ? "it is empty: the first line must be the secret" : strerror(errno));
	else
		out[strcspn(out, "\r\n")] = '\0';
	if (f)
		fclose(f);
	return good;
}

enum stag_block_tls block_tls_mode(const struct block_use *u)
{
	if (!u->tls)
		return STAG_BLOCK_TLS_OFF;
	return u->tls[0] == 'r'	  ? STAG_BLOCK_TLS_REQUIRED
	       : u->tls[0] == 'a' ? STAG_BLOCK_TLS_ALLOWED
				  : STAG_BLOCK_TLS_OFF;
}

int block_run_with_secrets(struct block_use *u, int (*run)(const struct block_use *u))
{
	char secret[BLOCK_MAX_SECRET] = "", peer_secret[BLOCK_MAX_SECRET] = "";
	int rc;

	if ((u->secret_file && !block_read_secret(u->secret_file, secret)) ||
	    (u->peer_secret_file && !block_read_secret(u->peer_secret_file, peer_secret)))
		return EXIT_FAILED;
	u->attr = (struct stag_block_attr){.comp_mask = STAG_BLOCK_ATTR_TLS,
					   .tls = block_tls_mode(u),
					   .initiator = u->initiator,
					   .user = u->user,
					   .secret = u->secret_file ? secret : NULL,
					   .peer_user = u->peer_user,
					   .peer_secret = u->peer_secret_file ? peer_secret : NULL,
					   .header_digest = u->digests,
					   .data_digest = u->digests};
	rc = run(u);
	explicit_bzero(secret, sizeof(secret));
	explicit_bzero(peer_secret, sizeof(peer_secret));
	return rc;
}
