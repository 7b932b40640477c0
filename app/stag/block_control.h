/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block_control.h - looking at a target that runs: who is looked at, and who looks.
 */
#ifndef STAG_APP_BLOCK_CONTROL_H
#define STAG_APP_BLOCK_CONTROL_H

#include <jansson.h>
#include <signal.h>

#include "block_use.h"

#define BLOCK_SOCKET "block-" /* and the number of the process: a socket in the run directory */

struct block_control {
	int fd; /* -1: none */
	char path[108];
	struct stag_block_target *target;
	const char *name;
};

/* block_control.c */

/* Of this user: $XDG_RUNTIME_DIR/stag, or /tmp/stag-UID; it is made. False: it cannot be had. */
bool block_run_dir(char *path, size_t size);
void block_control_open(struct block_control *c, struct stag_block_target *target,
			const char *name);
void block_control_close(struct block_control *c);
void block_control_run(struct block_control *c, const sigset_t *ends); /* until one of them comes */
const char *block_end_word(uint32_t end);			       /* enum stagdv_stag_end */

#endif
