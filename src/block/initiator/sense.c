// SPDX-License-Identifier: BSD-2-Clause
/*
 * sense.c - maps a SCSI status and sense data (SPC-4 §4.5) to errno values.
 */
#include "block/initiator/initiator.h"

#include <errno.h>

uint32_t initiator_sense_parse(const uint8_t *s, uint32_t len)
{
	if (len < 4)
		return 0;
	switch (s[0] & 0x7f) {
	case 0x70: /* fixed */
	case 0x71:
		return SENSE(s[2] & 15, len > 12 ? s[12] : 0, len > 13 ? s[13] : 0);
	case 0x72: /* descriptors */
	case 0x73:
		return SENSE(s[1] & 15, s[2], s[3]);
	}
	return 0;
}

static int refusal_errno(uint32_t asc)
{
	switch (asc) {
	case 0x20: /* invalid opcode */
		return EOPNOTSUPP;
	case 0x25: /* logical unit not supported */
		return ENODEV;
	}
	return EINVAL;
}

int initiator_sense_errno(uint8_t status, uint32_t sense)
{
	uint32_t asc = sense >> 8 & 0xff;

	if (status == SCSI_GOOD)
		return 0;
	if (status == SCSI_RESERVATION_CONFLICT || status == SCSI_BUSY ||
	    status == SCSI_TASK_SET_FULL)
		return EBUSY;
	if (status != SCSI_CHECK_CONDITION)
		return EIO;
	switch (sense >> 16) {
	case SCSI_RECOVERED_ERROR:
		return 0;
	case SCSI_NOT_READY:
		return asc == 0x3a ? ENODEV : EIO;
	case SCSI_ILLEGAL_REQUEST:
		return refusal_errno(asc);
	case SCSI_DATA_PROTECT:
		return (sense & 0xffff) == 0x2707 ? ENOSPC : EROFS;
	case SCSI_MISCOMPARE:
		return EILSEQ;
	}
	return EIO;
}

bool initiator_sense_retries(uint32_t sense)
{
	return sense >> 16 == SCSI_UNIT_ATTENTION || sense >> 16 == SCSI_ABORTED_COMMAND;
}
