// SPDX-License-Identifier: BSD-2-Clause
/*
 * reserve.c - who has a unit to himself (SPC-2's RESERVE and RELEASE), and what moves the parts that we have not.
 *
 * Persistent reservations are in persist.c; who has the one kind cannot have the other.
 */
#include "block/scsi/ops.h"

bool scsi_is_reserved(const struct scsi_unit *u, const struct scsi_nexus *n,
		      const struct scsi_op *op)
{
	bool shared = op && (op->flags & OP_SHARED);

	return (u->holder && u->holder != n && !shared) || scsi_persist_conflicts(u, n, op);
}

/* A conflict was found before it came here. */
enum scsi_next scsi_op_reserve(struct scsi_cmd *c)
{
	c->at->holder = c->nexus;
	return scsi_done(c);
}

/* Of one that is not its own: nothing, and no error. */
enum scsi_next scsi_op_release(struct scsi_cmd *c)
{
	if (c->at->holder == c->nexus)
		c->at->holder = NULL;
	return scsi_done(c);
}

/*
 * There is nothing that could stop turning, and others use it too. Who stops it wants its data to be safe.
 */
enum scsi_next scsi_op_start_stop(struct scsi_cmd *c)
{
	bool start = c->cdb[4] & 0x01, no_flush = c->cdb[4] & 0x04;

	if (c->cdb[4] & 0xf0) /* power conditions */
		return scsi_bad_cdb(c, 4, 7);
	if (c->cdb[4] & 0x02) /* no medium to load or eject */
		return scsi_bad_cdb(c, 4, 1);
	if (start || no_flush)
		return scsi_done(c);
	return scsi_work(c, LUN_FLUSH, 0, 0);
}

enum scsi_next scsi_op_prevent(struct scsi_cmd *c)
{
	return scsi_done(c);
}
