/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * spy.h - sees what the manager posts and which completions it takes.
 *
 * It stands in the device context's own table of operations, between the manager and
 * the device. From completions it finds out by itself what is proven: on iWARP a completed read
 * proves itself and all before it on its queue pair; elsewhere every completion does.
 * One spy at a time.
 */
#ifndef STAG_TEST_XFER_SPY_H
#define STAG_TEST_XFER_SPY_H

#include "pair.h"

#define SPY_MAX_SGE 32

/* A work request as it was posted. */
struct spy_wr {
	uint64_t wr_id;
	enum ibv_wr_opcode opcode;
	unsigned int rail;
	int num_sge;
	uint64_t length;
	uint64_t remote_addr;
	uint32_t rkey;
	struct ibv_sge sge[SPY_MAX_SGE];
	bool done;
};

struct spy {
	/* The test's: each may be NULL. */
	void *context;
	void (*posted)(struct spy *s, const struct spy_wr *wr); /* accepted by the device */
	void (*proven)(struct spy *s, const struct spy_wr *wr);
	void (*failed)(struct spy *s, const struct spy_wr *wr, enum ibv_wc_status status);
	/* How many of a list the device shall be given; the rest is refused with this errno. */
	int (*refuse)(struct spy *s, int count, int *err);
	bool write_completion_proves; /* on iWARP, too */

	/* Its own. */
	struct ibv_context *device;
	struct ibv_context_ops real;
	struct spy_rail {
		struct ibv_qp *qp;
		uint32_t qp_num;
		struct spy_wr *wrs; /* posted, not proven, in order */
		size_t head, count, room;
	} rails[PAIR_MAX_RAILS], old[PAIR_MAX_RAILS];
};

void spy_start(struct spy *s, struct pair *p);
void spy_stop(struct spy *s);

/* A rail has a new queue pair (or none). What comes from the old one still counts, until */
void spy_rebind(struct spy *s, unsigned int rail, struct ibv_qp *qp);
void spy_forget(struct spy *s, unsigned int rail);

bool spy_is_tagged(const struct spy_wr *wr);  /* it is the manager's */
bool spy_is_confirm(const struct spy_wr *wr); /* a read without length */

#endif
