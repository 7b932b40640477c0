/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * spy.h - intercepts the manager's posts and the completions that it polls.
 *
 * The spy replaces entries in the device context's table of operations, between the manager and the
 * device. From completions it derives by itself which work requests are proven done: on iWARP a
 * completed read proves itself and all before it on its queue pair; elsewhere every completion
 * does. Only one spy may be active.
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
	/* Set by the test: each may be NULL. */
	void *context;
	void (*posted)(struct spy *s, const struct spy_wr *wr); /* accepted by the device */
	void (*proven)(struct spy *s, const struct spy_wr *wr);
	void (*failed)(struct spy *s, const struct spy_wr *wr, enum ibv_wc_status status);
	/* Returns how many of a list to pass to the device; the rest is refused with this errno. */
	int (*refuse)(struct spy *s, int count, int *err);
	bool write_completion_proves; /* on iWARP, too */

	/* Private. */
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

/*
 * Set a rail's new queue pair (or none). Completions of the old one still count until spy_forget().
 */
void spy_rebind(struct spy *s, unsigned int rail, struct ibv_qp *qp);
void spy_forget(struct spy *s, unsigned int rail);

bool spy_is_tagged(const struct spy_wr *wr);  /* posted by the manager */
bool spy_is_confirm(const struct spy_wr *wr); /* a zero-length read */

#endif
