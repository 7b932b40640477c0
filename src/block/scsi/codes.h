/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * codes.h - SCSI statuses, sense keys and task management functions, as they are on the wire.
 *
 * This is all that initiator/ uses of this room.
 */
#ifndef STAG_BLOCK_SCSI_CODES_H
#define STAG_BLOCK_SCSI_CODES_H

enum scsi_status {
	SCSI_GOOD = 0,
	SCSI_CHECK_CONDITION = 2,
	SCSI_BUSY = 8,
	SCSI_RESERVATION_CONFLICT = 0x18,
	SCSI_TASK_SET_FULL = 0x28,
	SCSI_TASK_ABORTED = 0x40
};

enum scsi_key {
	SCSI_NO_SENSE,
	SCSI_RECOVERED_ERROR,
	SCSI_NOT_READY,
	SCSI_MEDIUM_ERROR,
	SCSI_HARDWARE_ERROR,
	SCSI_ILLEGAL_REQUEST,
	SCSI_UNIT_ATTENTION,
	SCSI_DATA_PROTECT,
	SCSI_ABORTED_COMMAND = 0xb,
	SCSI_MISCOMPARE = 0xe
};

enum scsi_tmf {
	TMF_ABORT_TASK = 1,
	TMF_ABORT_TASK_SET,
	TMF_CLEAR_ACA,
	TMF_CLEAR_TASK_SET,
	TMF_LUN_RESET,
	TMF_TARGET_WARM_RESET,
	TMF_TARGET_COLD_RESET
};

#endif
