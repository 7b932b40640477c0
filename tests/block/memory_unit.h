/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory_unit.h - units in memory, in place of lun*.c and units*.c: what sessions need of them, and faults on demand.
 *
 * lun_open() takes any where; a unit has MEMORY_UNIT_SIZE bytes, which are zero at first. What was started is done in
 * units_poll(), unless it is held.
 */
#ifndef STAG_TEST_MEMORY_UNIT_H
#define STAG_TEST_MEMORY_UNIT_H

#include "block/unit/unit.h"

#define MEMORY_UNIT_SIZE (4u << 20)

struct memory_unit_knobs {
	bool hold;		  /* nothing gets done */
	int error;		  /* -errno of all that is done */
	uint64_t bad;		  /* what has to do with this byte gets -EIO; 0: none is bad */
	unsigned int max_buffers; /* 0: as staging_bytes says */
	uint8_t *kept;	   /* the bytes of all units, which outlive them; NULL: each has its own */
	bool lends;	   /* its bytes, where they are */
	unsigned int lent; /* out: now */
	unsigned int in_use;  /* out: buffers */
	unsigned int started; /* out */
};
extern struct memory_unit_knobs memory_unit;

uint8_t *memory_unit_bytes(void); /* of the last one opened */
void memory_unit_kick(
	void); /* from another thread, after a knob was turned: the units' descriptor is readable */

#endif
