/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * state.h - a node's state directory: the facts that it needs after a restart.
 *
 *	state     the pool, the node's name, the region's key, the highest epoch that the node has seen
 *
 * One process at a time holds the directory. Only the owner may read the file.
 */
#ifndef STAG_POOL_STATE_H
#define STAG_POOL_STATE_H

#include <stdint.h>

#include "pool/role/roll.h"

struct pool_state {
	uint8_t uuid[ROLL_UUID_LEN];
	char node[ROLL_NAME_LEN];
	uint32_t key;	/* of the region, the same on every node */
	uint64_t epoch; /* the highest seen */
};

/*
 * Opens the directory, creating it if needed, and holds it until the descriptor is closed. -EBUSY: another process
 * holds it.
 */
int state_open(const char *path);
/*
 * Returns -ENOENT if there is no state yet, -EBADMSG if it is damaged (the log says how), -EPERM if others may
 * read it.
 */
int state_load(int dir, struct pool_state *state);
int state_save(int dir, const struct pool_state *state);

#endif
