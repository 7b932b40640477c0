// SPDX-License-Identifier: BSD-2-Clause
/*
 * hello.c - the messages of client and server in the private data of a connection.
 *
 * Pure functions. Every byte is untrusted: lengths and values are checked before use.
 */
#include "store/endpoint.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

#include "base/zero.h"

static const char magic[8] = {'s', 't', 'a', 'g', 's', 't', 'o', 'r'};

/* ---- the client's request -------------------------------------------------------- */

int hello_make(struct stag_store_hello *h, const char *partition, const uint8_t *shown)
{
	*h = (struct stag_store_hello){.version = STORE_HELLO_VERSION};
	memcpy(h->magic, magic, sizeof(magic));
	if (shown)
		memcpy(h->token, shown, sizeof(h->token));
	return table_mark(partition, h->partition);
}

int hello_read(const void *data, size_t len, struct stag_store_hello *h, const uint8_t **shown)
{
	if (!data || len < sizeof(*h))
		return store_fail(EPROTO, "invalid request: %zu bytes", data ? len : 0);
	memcpy(h, data, sizeof(*h));
	if (memcmp(h->magic, magic, sizeof(magic)) != 0)
		return store_fail(EPROTO, "invalid request: not from a store client");
	if (h->version != STORE_HELLO_VERSION)
		return store_fail(EPROTO, "request of an unsupported version, %u", h->version);
	*shown = is_zero(h->token, sizeof(h->token)) ? NULL : h->token;
	return 0;
}

/* ---- the server's acceptance ------------------------------------------------------ */

void welcome_make(struct stag_store_welcome *w, const struct stag_store_endpoint *e)
{
	*w = (struct stag_store_welcome){
		.version = STORE_HELLO_VERSION,
		.access = (uint8_t)e->access,
		.level = (uint8_t)e->level,
		.rkey = htobe32(e->rkey),
		.base = htobe64(e->base),
		.size = htobe64(e->size),
		.relax = htobe32(e->relax),
		.block = htobe32(e->block),
	};
	memcpy(w->magic, magic, sizeof(magic));
}

static bool makes_sense(const struct stag_store_endpoint *e)
{
	return e->access <= STAG_STORE_WRITE && e->level <= STAG_STORE_DURABLE &&
	       (e->relax & ~(uint32_t)STORE_ALL_RELAX) == 0 && e->block >= STORE_BLOCK_MIN &&
	       e->block <= STORE_BLOCK_MAX && (e->block & (e->block - 1)) == 0 &&
	       e->size <= STORE_SIZE_MAX && e->base <= UINT64_MAX - e->size;
}

int welcome_read(const void *data, size_t len, struct stag_store_endpoint *e)
{
	struct stag_store_endpoint said = *e;
	struct stag_store_welcome w;

	if (!data || len < sizeof(w))
		return store_fail(EPROTO, "invalid reply of the server: %zu bytes", data ? len : 0);
	memcpy(&w, data, sizeof(w));
	if (memcmp(w.magic, magic, sizeof(magic)) != 0 || w.version != STORE_HELLO_VERSION)
		return store_fail(EPROTO,
				  "the peer is not a store server, or one of another version");
	said.access = w.access;
	said.level = w.level;
	said.rkey = be32toh(w.rkey);
	said.base = be64toh(w.base);
	said.size = be64toh(w.size);
	said.relax = be32toh(w.relax);
	said.block = be32toh(w.block);
	if (!makes_sense(&said))
		return store_fail(EPROTO, "invalid reply of the server");
	*e = said;
	return 0;
}

/* ---- the server's refusal ------------------------------------------------------------ */

void refusal_make(struct stag_store_refusal *r, enum refusal reason)
{
	*r = (struct stag_store_refusal){.version = STORE_HELLO_VERSION, .reason = (uint8_t)reason};
	memcpy(r->magic, magic, sizeof(magic));
}

int refusal_read(const void *data, size_t len, const char *where)
{
	struct stag_store_refusal r;

	if (!data || len < sizeof(r) || memcmp(data, magic, sizeof(magic)) != 0)
		return store_fail(ECONNREFUSED, "%s: no store is served there", where);
	memcpy(&r, data, sizeof(r));
	switch (r.reason) {
	case REFUSED_RIGHT:
		return store_fail(EACCES, "%s: no right to use it, or no such partition", where);
	case REFUSED_NAME:
		return store_fail(ENOENT, "%s: there is no such partition", where);
	case REFUSED_PROTOCOL:
		return store_fail(EPROTO, "%s: the server does not support this protocol version",
				  where);
	case REFUSED_FULL:
		return store_fail(ECONNREFUSED, "%s: the server has too many connections", where);
	default:
		return store_fail(EIO, "%s: the server cannot open it; see the server's log",
				  where);
	}
}
