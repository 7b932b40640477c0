/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * device.h - the devices, their contexts, and their attributes.
 *
 * One adapter has two faces: stag0 is an iWARP adapter, roce0 a RoCE adapter. Most of the adapter does not know
 * which one a program uses; face.h has the list of what differs.
 */
#ifndef STAG_DEVICE_H
#define STAG_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <infiniband/verbs.h>

#include "base/list.h"
#include "base/lock.h"
#include "stag/stagdv.h"
#include "wire/wire.h"

/* Limits */
#define STAG_MAX_QP	 65536
#define STAG_MAX_QP_WR	 32768
#define STAG_MAX_SGE	 32
#define STAG_MAX_INLINE	 4096
#define STAG_MAX_CQE	 (1 << 22)
#define STAG_MAX_CQ	 65536
#define STAG_MAX_SRQ_WR	 32768
#define STAG_MAX_RD_ATOM 128 /* IRD and ORD */
#define STAG_MAX_MSG	 0xffffffffu
#define STAG_MAX_PRIVATE (255 - MPA_ENHANCED_LEN - MPA_EXT_LEN)
#define STAG_FAST_MR_SGE 512

enum face { FACE_IWARP, FACE_ROCE };
#define FACES 2

struct stag_device {
	struct ibv_device ibv; /* first; */
	uint8_t tail[1024];    /* zeroes: provider libraries look behind ibv_device */
	enum face face;
};

struct async_item { /* an asynchronous event that waits to be fetched */
	struct list link;
	struct ibv_async_event event;
};

struct stag_ctx {
	struct list link; /* of those of roce0 that the program has open */
	atomic_int refs;  /* the program's, and one for each PD, CQ, channel and QP */
	struct lock async_lock;
	struct list async_events; /* async_item; the eventfd counts them */
	struct verbs_context v;	  /* last: v.context is what the program holds */
};

static inline struct stag_ctx *to_stag_ctx(struct ibv_context *c)
{
	return container_of(c, struct stag_ctx, v.context);
}

static inline enum face face_of(const struct ibv_context *c)
{
	return ((const struct stag_device *)c->device)->face;
}

struct stag_device *stag_device(enum face face); /* valid for the process's life */

/*
 * Creates a context without the function pointers of v, which src/verbs sets. async_fd is a
 * semaphore eventfd.
 */
int ctx_create(enum face face, struct stag_ctx **out);
/* drops the program's reference; PDs, CQs and channels keep theirs */
void ctx_destroy(struct stag_ctx *ctx);
void ctx_get(struct stag_ctx *ctx);
void ctx_put(struct stag_ctx *ctx);
/* enqueues an event; never blocks */
void ctx_async(struct stag_ctx *ctx, const struct ibv_async_event *ev);
/* an event of the port, to all open contexts of roce0; one of a kind waits at a time */
void ctx_async_all(enum ibv_event_type type);
void ctx_after_fork(void);
/* waits for one unless async_fd is non-blocking (-EAGAIN) */
int ctx_get_async(struct stag_ctx *ctx, struct ibv_async_event *ev);
/* drops undelivered events about it */
void ctx_drop_async(struct stag_ctx *ctx, const void *object);

/* Events of an object that the program was given, and has to acknowledge before the object ends. */
struct acks {
	pthread_mutex_t *mutex; /* of the verbs object, as cond: ibv_ack_...() signals it */
	pthread_cond_t *cond;
	const uint32_t *acked; /* how many were acknowledged */
	uint32_t handed;       /* how many were given to the program */
	uint32_t types; /* a bit for each enum ibv_event_type among them; 0: completion events */
};

#define ACKS_NAME	32
#define ACKS_PATIENCE_S 1 /* after which a program that still owes acknowledgements is told */

/*
 * Waits until all are acknowledged; name: the object, "qp 7". If that takes more than a second, logs what is missing: a
 * program that forgot an acknowledgement waits for ever.
 */
void wait_for_acks(const struct acks *a, const char *name);

void device_query(enum face face, struct ibv_device_attr_ex *attr);
void device_query_port(enum face face, struct ibv_port_attr *attr);
void device_gid(unsigned index, union ibv_gid *gid); /* of stag0; those of roce0: gid.h */
#define STAG_GID_COUNT 1
void device_counters(struct stagdv_counters *c); /* totals, live queue pairs included */
extern struct stag_totals {
	_Atomic uint64_t engine_wakeups, connects, accepts, disconnects;
	_Atomic uint64_t registrations;	  /* without those of one-shot sends */
	_Atomic uint64_t shared_receives; /* posted to SRQs */
} stag_totals;

#endif
