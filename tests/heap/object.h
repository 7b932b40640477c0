/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * object.h - the model of one allocation: where it is, what it holds, and that no other allocation
 * overlaps it.
 *
 * The contents follow from the address, the size and a serial number. A small object is filled from
 * end to end; a larger one mostly at both ends and at page boundaries.
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
	uint64_t whole; /* objects up to this size are filled from end to end */
};

/* Fills the object; `base` is where its bytes are now: o->at, or a copy. */
void object_fill(const struct object *o, uint8_t *base);

/*
 * Checks those of the first `size` bytes that were filled. Returns false with the offset of a
 * mismatch in *wrong.
 */
bool object_holds(const struct object *o, const uint8_t *base, uint64_t size, uint64_t *wrong);

/*
 * A bitmap that all processes share, one bit for every 16 bytes of the heap: set while an object
 * owns them.
 */
struct taken {
	const char *area;
	_Atomic uint64_t *words;
};

uint64_t taken_bytes(uint64_t area_size);

/*
 * Return false if another object owns part of it (mark), or if part of it was not marked (clear).
 */
bool taken_mark(const struct taken *t, const struct object *o);
bool taken_clear(const struct taken *t, const struct object *o);

#endif
