/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * work.h - helpers that tests of the manager share: a manager over a pair, simple requests, and
 * checks of their results.
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
	uint8_t *model; /* as long as near and far: for the test's use */
};

/* Opens the pair; near and far have len bytes each, which differ everywhere. */
void desk_open(struct desk *d, const struct pair_wish *wish, const struct stag_xfer_attr *attr,
	       size_t len);
void desk_close(struct desk *d); /* checks that nothing is in flight, and the canaries */

/* A request of one element with one buffer. */
struct work {
	struct stag_xfer_req req;
	struct stag_xfer_elem elem;
	struct stag_xfer_buf buf;
	unsigned int returned; /* number of times that a poll returned it */
};

void work_init(struct work *w, enum stag_xfer_op op, const struct region *near, size_t near_off,
	       const struct region *far, size_t far_off, uint64_t len);

/* Prepares a request between equal offsets of the desk's memory. */
void desk_work(struct desk *d, struct work *w, enum stag_xfer_op op, size_t off, uint64_t len);

void submit(struct desk *d, struct work *w);
struct work *poll_one(struct desk *d);	/* NULL: none is complete */
struct work *await_one(struct desk *d); /* the next that completes */
/* Checks that it is the next, whole and without an error. */
void expect_done(struct desk *d, struct work *w);

void expect_same(struct desk *d, size_t off, size_t len); /* checks that near and far are equal */
struct stag_xfer_counters counters(const struct desk *d);

/* Wait until a rail is down; reconnect a rail that is down, or whose connection has ended. */
void await_rail_down(struct desk *d, unsigned int rail);
void reconnect_rail(struct desk *d, unsigned int rail);

/* Polls until so many requests have come back, and reconnects the rails that go down meanwhile. */
void await_returned(struct desk *d, unsigned int count);

#endif
