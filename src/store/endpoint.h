/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * endpoint.h - partitions in use: shared by connecting and serving.
 *
 *	connect.c    serve.c      local and remote endpoints; admission
 *	    |   \    /   |
 *	where.c hello.c  |        parsing of untrusted input: pure
 *	            \    |
 *	watch.c     region.c      a partition as a region, updated with the table
 *	                 |
 *	medium.c ----- dv.c       the software adapter, if the program has it
 *
 * Functions return 0 or -errno, with an error text (store_fail()).
 */
#ifndef STAG_STORE_ENDPOINT_H
#define STAG_STORE_ENDPOINT_H

#include "base/list.h"
#include "base/lock.h"
#include "dv/dv.h"
#include "dv/private_data.h"
#include "store/store.h"

/* ---- where.c ------------------------------------------------------------------ */

#define WHERE_MAX 4096

struct where {
	bool local;
	char path[WHERE_MAX]; /* local */
	char host[256];	      /* remote; an IPv6 address without its brackets */
	uint16_t port;
	char partition[STAG_STORE_NAME_MAX];
};

int where_parse(const char *text, struct where *w);

/* ---- hello.c ------------------------------------------------------------------ */

#define STORE_HELLO_VERSION 2 /* 1: with the name of the partition, in 112 bytes */

/*
 * The reason of a refusal: one byte of the private data of the server's reject. REFUSED_RIGHT also
 * stands for a partition that does not exist: strangers do not learn which. Older servers told them, by
 * REFUSED_NAME.
 */
enum refusal { REFUSED_RIGHT = 1, REFUSED_NAME, REFUSED_PROTOCOL, REFUSED_FULL, REFUSED_FAULT };

struct stag_store_refusal {
	char magic[8];
	uint8_t version, reason, reserved[6];
};

_Static_assert(sizeof(struct stag_store_hello) == PRIVATE_IN_REQUEST, "private data");
_Static_assert(sizeof(struct stag_store_welcome) <= PRIVATE_IN_ACCEPT, "private data");
_Static_assert(sizeof(struct stag_store_refusal) <= PRIVATE_IN_REJECT, "private data");

int hello_make(struct stag_store_hello *h, const char *partition, const uint8_t *shown);
/* Parses a request: returns the token (NULL: none), which points into h. -EPROTO: invalid. */
int hello_read(const void *data, size_t len, struct stag_store_hello *h, const uint8_t **shown);

void welcome_make(struct stag_store_welcome *w, const struct stag_store_endpoint *e);
int welcome_read(const void *data, size_t len, struct stag_store_endpoint *e);

void refusal_make(struct stag_store_refusal *r, enum refusal reason);
/* Returns the error for the program; -ECONNREFUSED if the server gave no reason. */
int refusal_read(const void *data, size_t len, const char *where);

/* ---- dv.c ----------------------------------------------------------------------- */

const struct dv *dv_get(void); /* NULL, with an error text: the program has none */
struct ibv_pd *dv_default_pd(const struct dv *dv);
int dv_check_device(const struct dv *dv, const struct ibv_context *context);
struct stagdv_medium *dv_open_medium(const struct dv *dv, struct ibv_context *context,
				     const struct stag_store *store, uint64_t staging_bytes,
				     uint64_t cache_bytes);

/* Adds the counters of a medium. */
int dv_add_counters(const struct dv *dv, struct stagdv_medium *medium,
		    struct stag_store_counters *sum);

/* ---- secure.c --------------------------------------------------------------------- */

struct secure_key {
	char identity[33];
	uint8_t key[TOKEN_BYTES];
};

/* Keys of all tokens that a store's rights have. Any thread may look one up. */
struct secure_keys {
	struct lock lock;
	size_t n;
	struct secure_key *key;
};

/* Derives the key from what a right keeps of a token. */
int secure_key(const uint8_t kept[TOKEN_BYTES], struct secure_key *k);
int secure_keys_read(struct secure_keys *keys,
		     struct stag_store *store);			 /* of the table as loaded */
int secure_find(void *keys, const char *identity, uint8_t *key); /* as stagdv_tls_attr.find_psk */
void secure_keys_end(struct secure_keys *keys);
int secure_context(const struct dv *dv, const struct stagdv_tls_attr *attr,
		   struct stagdv_tls **out);

/* ---- medium.c --------------------------------------------------------------------- */

/* A medium shared by the local endpoints of this process in one store: each has a reference. */
struct shared_medium;

/* Returns NULL and errno, with an error text. */
struct shared_medium *shared_medium_get(const struct dv *dv, struct ibv_context *context,
					const struct stag_store *store);
struct stagdv_medium *shared_medium_of(const struct shared_medium *m);
void shared_medium_put(struct shared_medium *m); /* once no region uses it; may be NULL */

/* ---- region.c --------------------------------------------------------------------- */

/* A partition as a region of one protection domain, for one endpoint or one connection. */
struct region {
	const struct dv *dv;
	struct ibv_mr *mr;
	struct reserve *reserve; /* of the partition's bytes */
	enum stag_store_access access;
	bool gone; /* the partition was removed */
	struct stag_store_partition now;
};

/* Returns the access that the partition's rights grant to the subject in arg. */
typedef enum stag_store_access (*region_rights_fn)(void *arg, const struct stag_store *store,
						   const struct stag_store_partition *p);

/*
 * Reserves the partition's bytes, if access is granted; does not touch the adapter. Returns
 * -ENOENT, -EACCES.
 */
int region_open(struct region *r, const struct dv *dv, struct stag_store *store, const char *name,
		region_rights_fn rights, void *arg);
int region_register(struct region *r, const struct stag_store *store, struct ibv_pd *pd,
		    struct stagdv_medium *medium);
/* Applies a change of the table; store is refreshed. NULL: the store no longer exists. */
void region_update(struct region *r, struct stag_store *store, region_rights_fn rights, void *arg);
void region_close(struct region *r); /* once nothing of it is in flight */

/* ---- watch.c ------------------------------------------------------------------------ */

#define WATCH_MS 100

/* A callback every WATCH_MS, from one thread for all watches. */
struct store_watch {
	struct list link;
	void (*look)(struct store_watch *w);
};

int watch_start(struct store_watch *w, void (*look)(struct store_watch *w));
void watch_stop(struct store_watch *w); /* afterwards look() is not running, and will not run */

/* Creates a completion queue with a channel of its own. */
struct ibv_cq *endpoint_make_cq(struct ibv_context *context, uint32_t depth);
void endpoint_free_cq(struct ibv_cq *cq);

#endif
