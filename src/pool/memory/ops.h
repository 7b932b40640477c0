/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ops.h - a record from its beginning to its end: what ops.c and upload.c share.
 */
#ifndef POOL_OPS_H
#define POOL_OPS_H

#include "pool/memory/memory.h"

/* The next record, at `at`, with a value of so many bytes in it. -EAGAIN: too much is ahead, or too little room. */
int pool_begin(struct pool_core *core, struct pool_build *build, void *at, size_t room,
	       size_t value);
/* It is made: *used bytes. -ENOBUFS: it is longer than records are, and the core is no longer right. */
int pool_end(struct pool_core *core, size_t *used);
/* Whatever it was to change it does not. Blocks that were allocated for it are freed before, or are lost until the next scan. */
void pool_begin_again(struct pool_core *core);
void pool_give_up(struct pool_core *core);

void pool_answer_result(const struct pool_core *core, const struct pool_result *result,
			struct pool_answer *answer);

#endif
