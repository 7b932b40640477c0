/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * model.h - the definition of a request's plan, implemented in another way than plan.c: the chain
 * as one range of bytes, with the breaks where neighbours are not adjacent.
 */
#ifndef STAG_TEST_XFER_MODEL_H
#define STAG_TEST_XFER_MODEL_H

#include "stag/xfer.h"

#define MODEL_MAX_PIECES 512

/* A buffer that has bytes, as a part of the chain. */
struct piece {
	uint64_t at, length; /* bytes of the chain before it; its own length */
	uint64_t local, remote;
	uint32_t lkey, rkey;
	struct stag_xfer_cursor begin;
	bool remote_break; /* not adjacent to the piece before it, remotely */
	bool local_break;  /* or locally */
};

struct model {
	const struct stag_xfer_limits *limits;
	const struct stag_xfer_req *req;
	struct piece pieces[MODEL_MAX_PIECES];
	size_t n;
	uint64_t total;
};

/*
 * Requires that the request passed stag_xfer_check(), and has no more buffers than there are
 * pieces.
 */
void model_make(struct model *m, const struct stag_xfer_limits *limits,
		const struct stag_xfer_req *req);

/* Return the piece that has this byte of the chain; the cursor at this byte, or at the end. */
const struct piece *model_piece(const struct model *m, uint64_t at);
struct stag_xfer_cursor model_cursor(const struct model *m, uint64_t at);

/* Number of breaks between the first and the last of these bytes. */
struct breaks {
	uint64_t remote, local;
};

/*
 * Returns whether one descriptor may hold this: within the limits of bytes and segments, one remote
 * range.
 */
bool model_allows(const struct stag_xfer_limits *limits, uint64_t bytes, struct breaks within);

/*
 * Checks a descriptor that begins at this byte of the chain, and the cursor after it: it holds the
 * chain in order, breaks no limit, could not hold another byte, and describes itself correctly.
 * Returns NULL, or the claim that fails.
 */
const char *model_check(const struct model *m, uint64_t at, const struct stag_xfer_desc *desc,
			const struct stag_xfer_cursor *after);

#endif
