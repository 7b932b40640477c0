/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * state.h - a node's state directory: what it has to know when it comes back.
 *
 *	state     which pool, which node, the pool's key, the highest epoch it has seen
 *	secrets   who may come in (secrets.h)
 *
 * One process at a time has it. Both files are their owner's only.
 */
#ifndef STAG_POOL_STATE_H
#define STAG_POOL_STATE_H

#include <stdint.h>

#include "pool/role/roll.h"

struct pool_state {
	uint8_t uuid[ROLL_UUID_LEN];
	char node[ROLL_NAME_LEN];
	uint32_t key;	/* of the region, on every node */
	uint64_t epoch; /* the highest seen */
};

#define STATE_SECRETS "secrets" /* its name in the directory */

/* Its descriptor, which holds it until it is closed. Made if it is not there. -EBUSY: another process has it. */
int state_open(const char *path);
/* -ENOENT: there is none yet. -EBADMSG: damaged, and the log says how. -EPERM: others may read it. */
int state_load(int dir, struct pool_state *state);
int state_save(int dir, const struct pool_state *state);

#endif
