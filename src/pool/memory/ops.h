/* SPDX-License-Identifier: BSD-2-Clause */
/* ops.h - beginning and end of a record: shared by ops.c and upload.c. */
#ifndef POOL_OPS_H
#define POOL_OPS_H

#include "pool/memory/memory.h"

/* Begins the next record, at `at`, with a value of this many bytes. -EAGAIN: too much is ahead, or too little room. */
int pool_begin(struct pool_core *core, struct pool_build *build, void *at, size_t room,
	       size_t value);
/* Finishes the record: *used bytes. -ENOBUFS: it is too long, and the core is invalid from now on. */
int pool_end(struct pool_core *core, size_t *used);
/*
 * Discard the changes of the record. pool_begin_again() continues with the same record, empty; pool_give_up()
 * makes no record. Blocks that were allocated for it must be freed before; otherwise they are lost until the
 * next scan.
 */
void pool_begin_again(struct pool_core *core);
void pool_give_up(struct pool_core *core);

void pool_answer_result(const struct pool_core *core, const struct pool_result *result,
			struct pool_answer *answer);

#endif
