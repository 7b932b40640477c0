// SPDX-License-Identifier: BSD-2-Clause
/*
 * iov.c - the caller's memory, as a sequence of bytes with a position in it.
 *
 * The position (state.iov_index, state.iov_skip) is where the current step begins.
 */
#include "media/medium.h"

#include <assert.h>
#include <string.h>

/* Returns the length and address of the contiguous piece n bytes after the position. 0: the end. */
uint64_t iov_run(const struct media_op *op, uint64_t ahead, uint8_t **at)
{
	uint64_t skip = op->state.iov_skip + ahead;

	for (uint32_t i = op->state.iov_index; i < op->n_iov; i++) {
		if (skip < op->iov[i].iov_len) {
			*at = (uint8_t *)op->iov[i].iov_base + skip;
			return op->iov[i].iov_len - skip;
		}
		skip -= op->iov[i].iov_len;
	}
	return 0;
}

void iov_advance(struct media_op *op, uint64_t n)
{
	struct media_op_state *s = &op->state;

	s->iov_skip += n;
	while (s->iov_index < op->n_iov && s->iov_skip >= op->iov[s->iov_index].iov_len)
		s->iov_skip -= op->iov[s->iov_index++].iov_len;
}

static void copy(const struct media_op *op, uint8_t *inside, uint64_t n, bool gather)
{
	uint64_t skip = op->state.iov_skip;

	for (uint32_t i = op->state.iov_index; n > 0; i++) {
		uint64_t here;

		assert(i < op->n_iov);
		here = least(n, op->iov[i].iov_len - skip);
		if (gather && here)
			memcpy(inside, (uint8_t *)op->iov[i].iov_base + skip, here);
		else if (here)
			memcpy((uint8_t *)op->iov[i].iov_base + skip, inside, here);
		inside += here;
		n -= here;
		skip = 0;
	}
}

void iov_gather(const struct media_op *op, uint8_t *to, uint64_t n)
{
	copy(op, to, n, true);
}

void iov_scatter(const struct media_op *op, const uint8_t *from, uint64_t n)
{
	copy(op, (uint8_t *)from, n, false);
}
