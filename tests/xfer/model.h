/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model.h - what the definition says about the plan of a request, in another way than
 * plan.c: the chain as one range of bytes, with the places where neighbours part.
 */
#ifndef STAG_TEST_XFER_MODEL_H
#define STAG_TEST_XFER_MODEL_H

#include "stag/xfer.h"

#define MODEL_MAX_PIECES 512

/* A buffer that has bytes, as a part of the chain. */
struct piece {
	uint64_t at, length; /* bytes of the chain before it; its own */
	uint64_t local, remote;
	uint32_t lkey, rkey;
	struct stag_xfer_cursor begin;
	bool remote_break; /* it does not go on where the piece before it ends, there */
	bool local_break;  /* or here */
};

struct model {
	const struct stag_xfer_limits *limits;
	const struct stag_xfer_req *req;
	struct piece pieces[MODEL_MAX_PIECES];
	size_t n;
	uint64_t total;
};

/* The request has passed stag_xfer_check(), and has no more buffers than there are pieces. */
void model_make(struct model *m, const struct stag_xfer_limits *limits,
		const struct stag_xfer_req *req);

/* The piece that has this byte of the chain; the cursor that stands on it, or at the end. */
const struct piece *model_piece(const struct model *m, uint64_t at);
struct stag_xfer_cursor model_cursor(const struct model *m, uint64_t at);

/* How often neighbours part between the first and the last of these bytes. */
struct breaks {
	uint64_t remote, local;
};

/* What a descriptor is: no more than so many bytes, so many segments, one remote range. */
bool model_allows(const struct stag_xfer_limits *limits, uint64_t bytes, struct breaks within);

/*
 * Judges a descriptor that begins at this byte of the chain, and the cursor after it: it holds the
 * chain in order, breaks no limit, could not take another byte, and tells the truth about itself.
 * NULL, or the claim that does not hold.
 */
const char *model_judge(const struct model *m, uint64_t at, const struct stag_xfer_desc *desc,
			const struct stag_xfer_cursor *after);

#endif
