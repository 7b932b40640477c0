/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * scene.h - a primary and its standby without a network: two regions, the primary's log, and the ring it is
 * copied to.
 */
#ifndef POOL_SCENE_H
#define POOL_SCENE_H

#include "pool/memory/memory.h"

#define SCENE_ADDRESS 0x4000000000ull
#define SCENE_LOG     (2u << 20)
#define SCENE_PENDING 64u
#define SCENE_STAGING (4u << 20)

struct scene {
	struct pool_region a, b; /* primary, standby */
	struct pool_core core;
	struct pool_log log;
	struct pool_ring ring;
	uint64_t sent; /* position up to which the log was copied to the ring */
	struct {
		uint64_t number, from;
		size_t length;
		uint8_t *staged; /* the primary's copy of the staged value that the record names */
		uint64_t staged_at, staged_length;
	} pending[SCENE_PENDING]; /* records that are made and not applied, oldest first */
	unsigned int num_pending;
	uint8_t *staging; /* the standby's staging memory */
	uint64_t epoch;
};

void scene_open(struct scene *s, uint64_t size, uint64_t num_buckets);
void scene_close(struct scene *s);

struct pool_who scene_client(struct scene *s, uint64_t id);

/* Makes a record, which is pending then. Returns as pool_change(). */
int scene_change(struct scene *s, struct pool_who *who, const struct pool_request *request,
		 struct pool_answer *answer);
/* Applies the oldest pending record, at the standby and at the primary. */
void scene_settle(struct scene *s);
void scene_settle_all(struct scene *s);
void scene_expect_same(const struct scene *s); /* every byte of both regions */
void scene_expect_valid(const struct scene *s);

/* Kills the primary and promotes the standby, which has received the first `kept` pending records. */
void scene_promote(struct scene *s, unsigned int kept);

/* Makes a record and applies it. Returns the answer's status. */
int scene_do(struct scene *s, struct pool_who *who, struct pool_request *request,
	     struct pool_answer *answer);

/* The same for a value of more than POOL_DIRECT_MAX bytes, in many records. */
int scene_upload(struct scene *s, struct pool_who *who, struct pool_request *request,
		 struct pool_answer *answer);

struct pool_request scene_insert(uint64_t sequence, const void *value, uint32_t length);
struct pool_request scene_put(uint64_t sequence, const char *name, const void *value,
			      uint32_t length);

/* Reads one-sided; the value is allocated. Returns the last step of the state machine. */
enum pool_step scene_read(const struct pool_region *r, const struct stag_pool_ptr *ptr,
			  void **value, struct pool_read *read);
enum pool_step scene_get(const struct pool_region *r, const char *name, uint32_t hint, void **value,
			 struct pool_read *read);

#endif
