/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * work.h - the verbs of the manager's stories: a manager over a pair, simple requests for
 * it, and what comes back.
 */
#ifndef STAG_TEST_XFER_WORK_H
#define STAG_TEST_XFER_WORK_H

#include "pair.h"
#include "stag/xfer.h"

#define BOTH_WAYS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

/* A pair, a manager over all of its rails, and some memory at each end. */
struct desk {
	struct pair pair;
	struct stag_xfer *x;
	struct region *near, *far;
	uint8_t *model; /* as long as near and far: for the test */
};

/* near and far have len bytes each, which differ everywhere. */
void desk_open(struct desk *d, const struct pair_wish *wish, const struct stag_xfer_attr *attr,
	       size_t len);
void desk_close(struct desk *d); /* nothing is under way, and the canaries live */

/* A request of one element with one buffer. */
struct work {
	struct stag_xfer_req req;
	struct stag_xfer_elem elem;
	struct stag_xfer_buf buf;
	unsigned int returned; /* how often a poll gave it back */
};

void work_init(struct work *w, enum stag_xfer_op op, const struct region *near, size_t near_off,
	       const struct region *far, size_t far_off, uint64_t len);

/* The same between equal offsets of a desk. */
void desk_work(struct desk *d, struct work *w, enum stag_xfer_op op, size_t off, uint64_t len);

void submit(struct desk *d, struct work *w);
struct work *poll_one(struct desk *d);		  /* NULL: none is complete */
struct work *await_one(struct desk *d);		  /* the next that is complete */
void expect_done(struct desk *d, struct work *w); /* it is the next, whole and without an error */

void expect_same(struct desk *d, size_t off, size_t len); /* near and far are */
struct stag_xfer_counters counters(const struct desk *d);

/* A rail that has gone down, or whose connection has ended, gets another one. */
void await_down(struct desk *d, unsigned int rail);
void mend(struct desk *d, unsigned int rail);

/* Polls until so many requests have come back, and mends the rails that go down meanwhile. */
void settle(struct desk *d, unsigned int count);

#endif
