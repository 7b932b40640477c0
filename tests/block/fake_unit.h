/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fake_unit.h - a logical unit in memory, and a transport without an initiator: what a command asks for is done at once.
 *
 * A command that asks for what is not in the unit, or has more to say than the initiator takes, ends the program.
 */
#ifndef STAG_TEST_BLOCK_FAKE_UNIT_H
#define STAG_TEST_BLOCK_FAKE_UNIT_H

#include "block/scsi/scsi.h"

struct lun *fake_unit(uint64_t size, uint32_t block);
void fake_free(struct lun *l);
struct lun_facts *fake_facts(struct lun *l); /* to be changed */
uint8_t *fake_bytes(struct lun *l);
void fake_fail(struct lun *l, int error); /* its operations from now on */

/* Data of a command: what the initiator has, what it gets. */
struct wire {
	const uint8_t *out;
	uint8_t *in; /* room for what is expected */
	uint32_t in_len;
	unsigned int steps; /* operations of the unit */
	struct lun_io last; /* of these */
};

/* From scsi_begin() to scsi_release(). */
void fake_carry(struct scsi_target *t, struct scsi_cmd *c, struct wire *w);

#endif
