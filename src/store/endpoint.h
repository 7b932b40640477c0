/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * endpoint.h - partitions in use: what connecting and serving share.
 *
 *	connect.c    serve.c      near and far; whom a server lets in
 *	    |   \    /   |
 *	where.c hello.c  |        words and bytes of others: pure
 *	            \    |
 *	watch.c     region.c      a partition as a region, kept as the table says
 *	                 |
 *	medium.c ----- dv.c       the software adapter, where the program has it
 *
 * Functions return 0 or -errno, having said why (store_fail()).
 */
#ifndef STAG_STORE_ENDPOINT_H
#define STAG_STORE_ENDPOINT_H

#include "base/list.h"
#include "dv/dv.h"
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

#define HELLO_VERSION 1

/* Why a server says no: one byte of the private data of its reject. */
enum refusal { REFUSED_RIGHT = 1, REFUSED_NAME, REFUSED_PROTOCOL, REFUSED_FULL, REFUSED_FAULT };

struct stag_store_refusal {
	char magic[8];
	uint8_t version, reason, reserved[6];
};

void hello_make(struct stag_store_hello *h, const char *partition, const uint8_t *shown);
/* The name and what is shown (NULL: nothing), in h itself. -EPROTO: no hello of ours. */
int hello_read(const void *data, size_t len, struct stag_store_hello *h, const uint8_t **shown);

void welcome_make(struct stag_store_welcome *w, const struct stag_store_endpoint *e);
int welcome_read(const void *data, size_t len, struct stag_store_endpoint *e);

void refusal_make(struct stag_store_refusal *r, enum refusal reason);
/* What to tell the program; -ECONNREFUSED where the server gave no reason. */
int refusal_read(const void *data, size_t len, const char *where);

/* ---- dv.c ----------------------------------------------------------------------- */

const struct dv *dv_get(void); /* NULL, having said so: the program has none */
struct ibv_pd *dv_default_pd(const struct dv *dv);
int dv_check_device(const struct dv *dv, const struct ibv_context *context);
struct stagdv_medium *dv_open_medium(const struct dv *dv, struct ibv_context *context,
				     const struct stag_store *store, uint64_t staging_bytes,
				     uint64_t cache_bytes);

/* Adds what a medium has counted. */
int dv_add_counters(const struct dv *dv, struct stagdv_medium *medium,
		    struct stag_store_counters *sum);

/* ---- medium.c --------------------------------------------------------------------- */

/* Of the endpoints that this process has in a store of this machine: each holds it. */
struct shared_medium;

/* NULL and errno, having said why. */
struct shared_medium *shared_medium_get(const struct dv *dv, struct ibv_context *context,
					const struct stag_store *store);
struct stagdv_medium *shared_medium_of(const struct shared_medium *m);
void shared_medium_put(struct shared_medium *m); /* when no region uses it; takes NULL */

/* ---- region.c --------------------------------------------------------------------- */

/* A partition as a region of one protection domain: one endpoint's, or one connection's. */
struct region {
	const struct dv *dv;
	struct ibv_mr *mr;
	int fd; /* keeps its bytes from being given to another partition */
	enum stag_store_access access;
	bool gone; /* the partition was removed */
	struct stag_store_partition now;
};

/* Who asks, and what the partition's rights say of it. */
typedef enum stag_store_access (*region_rights_fn)(void *arg, const struct stag_store *store,
						   const struct stag_store_partition *p);

/* Its bytes are kept for it, if there is a right to them; nothing of the adapter is touched. -ENOENT, -EACCES. */
int region_open(struct region *r, const struct dv *dv, struct stag_store *store, const char *name,
		region_rights_fn rights, void *arg);
int region_register(struct region *r, const struct stag_store *store, struct ibv_pd *pd,
		    struct stagdv_medium *medium);
/* The table has changed, and store is as it is now. NULL: there is no such store any more. */
void region_update(struct region *r, struct stag_store *store, region_rights_fn rights, void *arg);
void region_close(struct region *r); /* when nothing of it is under way */

/* ---- watch.c ------------------------------------------------------------------------ */

#define WATCH_MS 100

/* Something that is looked at every WATCH_MS, by a thread of all of them. */
struct store_watch {
	struct list link;
	void (*look)(struct store_watch *w);
};

int watch_start(struct store_watch *w, void (*look)(struct store_watch *w));
void watch_stop(struct store_watch *w); /* look() is not running, and will not */

/* Of queue pairs: a completion queue with a channel of its own. */
struct ibv_cq *endpoint_make_cq(struct ibv_context *context, uint32_t depth);
void endpoint_free_cq(struct ibv_cq *cq);

#endif
