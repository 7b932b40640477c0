/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * memory_unit.h - units in memory, in place of src/block/unit: what sessions need of it, and faults on demand.
 *
 * lun_open() accepts any where. A unit has MEMORY_UNIT_SIZE bytes, which are zero at first. Operations are carried out by
 * units_poll(), unless they are held.
 */
#ifndef STAG_TEST_MEMORY_UNIT_H
#define STAG_TEST_MEMORY_UNIT_H

#include <stdatomic.h>

#include "block/unit/unit.h"

#define MEMORY_UNIT_SIZE (4u << 20)

struct memory_unit_knobs {
	bool hold;		  /* operations are not carried out */
	int error;		  /* -errno of all operations, or 0 */
	uint64_t bad;		  /* operations on this byte get -EIO; 0: none */
	unsigned int max_buffers; /* 0: as staging_bytes says */
	uint8_t *kept;	   /* bytes of all units, which survive them; NULL: each unit has its own */
	bool lends;	   /* lun_borrow() lends the bytes in place */
	unsigned int lent; /* out: borrowed now */
	unsigned int in_use;  /* out: buffers */
	unsigned int started; /* out */
	atomic_bool grows;    /* lun_follow_growth() reports growth once */
};
extern struct memory_unit_knobs memory_unit;

uint8_t *memory_unit_bytes(void); /* of the last unit opened */
void memory_unit_kick(void);	  /* wakes the target after another thread changed a knob */

#endif
