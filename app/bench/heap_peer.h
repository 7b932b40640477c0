/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap_peer.h - another shared heap, to be measured beside stag's.
 *
 * stag itself provides none. A preloaded module that defines bench_peer becomes one more yardstick
 * of `stag bench heap` (bench/heap_boost.cpp).
 */
#ifndef STAG_APP_BENCH_PEER_H
#define STAG_APP_BENCH_PEER_H

#include <stddef.h>

struct bench_peer {
	const char *name, *words;
	int (*create)(const char *name); /* -1: failed */
	int (*attach)(const char *name); /* called in the second process */
	void (*detach)(void);
	void (*remove)(const char *name);
	void *(*take)(size_t size); /* NULL: out of memory */
	void (*give)(void *ptr);
};

#endif
