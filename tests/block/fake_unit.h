/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fake_unit.h - a logical unit in memory, and a transport without an initiator: commands are carried out at once.
 *
 * A command that accesses blocks outside the unit, or replies with more than the initiator expects, ends the program.
 */
#ifndef STAG_TEST_BLOCK_FAKE_UNIT_H
#define STAG_TEST_BLOCK_FAKE_UNIT_H

#include "block/scsi/scsi.h"

struct lun *fake_unit(uint64_t size, uint32_t block);
void fake_free(struct lun *l);
struct lun_facts *fake_facts(struct lun *l); /* may be changed by the test */
uint8_t *fake_bytes(struct lun *l);
void fake_fail(struct lun *l, int error); /* fails all operations from now on */

/* Data of a command: data-out of the initiator, and room for data-in. */
struct wire {
	const uint8_t *out;
	uint8_t *in; /* room for the expected length */
	uint32_t in_len;
	unsigned int steps; /* operations of the unit */
	struct lun_io last; /* the last operation */
};

/* Carries out a command, from scsi_begin() to scsi_release(). */
void fake_carry(struct scsi_target *t, struct scsi_cmd *c, struct wire *w);

#endif
