/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block_control.h - looking at a target that runs: what is told of it.
 */
#ifndef STAG_APP_BLOCK_CONTROL_H
#define STAG_APP_BLOCK_CONTROL_H

#include "block_use.h"
#include "block_words.h"
#include "control.h"

struct block_control {
	struct control control;
	struct stag_block_target *target;
	const char *name;
};

/* block_control.c: control_run() and control_close() do the rest */
void block_control_open(struct block_control *c, struct stag_block_target *target,
			const char *name);

#endif
