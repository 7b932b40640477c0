/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * object.h - what the model test knows of an allocation: where it is, what it holds, and that
 * nobody else has any of it.
 *
 * What an object holds follows from its address, its size and a serial number. A small one is filled
 * from end to end; of a larger one mostly both ends and the edges of pages.
 */
#ifndef STAG_TEST_OBJECT_H
#define STAG_TEST_OBJECT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct object {
	uint8_t *at;
	uint64_t size, usable;
	uint64_t serial;
	uint64_t whole; /* filled from end to end */
};

/* `base` is where it lies now: o->at, or a copy. */
void object_fill(const struct object *o, uint8_t *base);

/* The first `size` bytes, as far as they were filled. False: *wrong is the offset of one that is not so. */
bool object_holds(const struct object *o, const uint8_t *base, uint64_t size, uint64_t *wrong);

/* A bit for every 16 bytes of the heap, for all processes: somebody's. */
struct taken {
	const char *area;
	_Atomic uint64_t *words;
};

uint64_t taken_bytes(uint64_t area_size);

/* False: some of it is another's (or, clear: was not taken). */
bool taken_mark(const struct taken *t, const struct object *o);
bool taken_clear(const struct taken *t, const struct object *o);

#endif
