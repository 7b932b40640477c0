/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * valve.h - a port that leads to a node's, with a valve in each direction. A client behind a shut valve does not
 * take, or does not deliver, what it should, while its connection stays up.
 */
#ifndef STAG_TEST_POOL_VALVE_H
#define STAG_TEST_POOL_VALVE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum valve_way { VALVE_TO_NODE, VALVE_TO_CLIENT, VALVE_WAYS };

struct valve {
	uint16_t port; /* for clients */
	uint16_t node; /* the node's */
	int listener, stop[2];
	pthread_t thread;
	atomic_bool shut[VALVE_WAYS];
};

void valve_open(struct valve *v, uint16_t node);
void valve_close(struct valve *v); /* ends its connections */

#endif
