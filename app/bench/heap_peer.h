/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap_peer.h - another heap of several processes, to be measured beside ours.
 *
 * stag itself has none. A module that is preloaded and defines bench_peer joins the cases of
 * `stag bench heap` as one more yardstick (bench/heap_boost.cpp).
 */
#ifndef STAG_APP_BENCH_PEER_H
#define STAG_APP_BENCH_PEER_H

#include <stddef.h>

struct bench_peer {
	const char *name, *words;
	int (*create)(const char *name); /* -1: could not */
	int (*attach)(const char *name); /* in the other process */
	void (*detach)(void);
	void (*remove)(const char *name);
	void *(*take)(size_t size); /* NULL: no memory */
	void (*give)(void *ptr);
};

#endif
