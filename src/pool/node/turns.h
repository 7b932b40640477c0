/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * turns.h - the order in which clients with requests take turns: users first, then the clients of each.
 *
 * A user with many connections gets no more turns than a user with one. Users are told apart by a hash of their names, in
 * TURN_LANES lanes; two that meet in a lane share its turns.
 */
#ifndef STAG_POOL_TURNS_H
#define STAG_POOL_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

#define TURN_LANES 256

struct turn_lane {
	struct list link;    /* in the list of lanes with waiting clients */
	struct list waiting; /* clients, the next one first */
};

struct turns {
	struct list due; /* lanes, the next one first */
	struct turn_lane lanes[TURN_LANES];
};

/* A client's place. */
struct turn_place {
	struct list link;
	struct turn_lane *lane;
};

void turns_init(struct turns *t);
void turn_place_init(struct turn_place *p, struct turns *t, uint64_t user); /* user: a hash */
/* Enqueues a client that is not waiting. */
void turns_add(struct turns *t, struct turn_place *p);
/* Does nothing for a client that is not waiting. */
void turns_remove(struct turn_place *p);
/* Removes all. */
void turns_clear(struct turns *t);
bool turns_empty(const struct turns *t);
/* Returns the place of the client whose turn it is; there is one. */
struct turn_place *turns_first(const struct turns *t);
/* Ends the turn of the first client, which goes on waiting: the next user's client is first then. */
void turns_next(struct turns *t);

#endif
