// SPDX-License-Identifier: BSD-2-Clause
/*
 * reserve.c - RESERVE and RELEASE of SPC-2, and commands for moving parts (START STOP UNIT, PREVENT ALLOW MEDIUM REMOVAL).
 *
 * Persistent reservations are in persist.c; a unit cannot have both kinds at once.
 */
#include "block/scsi/ops.h"

bool scsi_is_reserved(const struct scsi_unit *u, const struct scsi_nexus *n,
		      const struct scsi_op *op)
{
	bool shared = op && (op->flags & OP_SHARED);

	return (u->holder && u->holder != n && !shared) || scsi_persist_conflicts(u, n, op);
}

/* Conflicts have been checked by scsi_begin(). */
enum scsi_next scsi_op_reserve(struct scsi_cmd *c)
{
	c->at->holder = c->nexus;
	return scsi_done(c);
}

/* Does nothing, without an error, if another nexus holds the reservation. */
enum scsi_next scsi_op_release(struct scsi_cmd *c)
{
	if (c->at->holder == c->nexus)
		c->at->holder = NULL;
	return scsi_done(c);
}

/* Stopping flushes the unit, and nothing else: nothing rotates, and other nexuses use the unit, too. */
enum scsi_next scsi_op_start_stop(struct scsi_cmd *c)
{
	bool start = c->cdb[4] & 0x01, no_flush = c->cdb[4] & 0x04;

	if (c->cdb[4] & 0xf0) /* POWER CONDITION */
		return scsi_bad_cdb(c, 4, 7);
	if (c->cdb[4] & 0x02) /* LOEJ: the medium is fixed */
		return scsi_bad_cdb(c, 4, 1);
	if (start || no_flush)
		return scsi_done(c);
	return scsi_work(c, LUN_FLUSH, 0, 0);
}

enum scsi_next scsi_op_prevent(struct scsi_cmd *c)
{
	return scsi_done(c);
}
