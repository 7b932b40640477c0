/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block_control.h - answers queries about a running target (control.h).
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

/* block_control.c: begins to listen for queries; control_run() answers them, control_close() ends it */
void block_control_open(struct block_control *c, struct stag_block_target *target,
			const char *name);

#endif
