/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block.h - the rooms of src/block, and which of them may use which.
 *
 *     target/     serves units to initiators: portals, logins, sessions, tasks; over TCP and verbs
 *     initiator/  uses a unit of a target: requests, commands, reconnection; over TCP and verbs
 *     scsi/       the meaning of a CDB: pure but for the state of units
 *     iscsi/      PDUs, text keys, CHAP, iSER headers, keys of TLS: bytes in, structures out; no sockets, locks or malloc
 *     unit/       logical units: blocks on a store's partition, a file or a device; asynchronous, through verbs
 *     error.c     the text of a thread's last error (below): every room may set it
 *
 * Includes go in the direction of the arrows only, so that the graph has no cycle (tests/block/no-other-room checks it):
 *
 *     target ------> scsi ----------> unit
 *        |  \          ^               ^
 *        |   \---------|---------------+
 *        v             | codes.h only
 *     iscsi <---- initiator
 *
 * The header of a room that has its name (unit/unit.h) is what other rooms include. unit/lun.h and scsi/ops.h are for their own
 * room's files.
 *
 * One thread serves all sessions of a target: below the public calls nothing takes a lock, and nothing blocks. One thread at a
 * time uses an initiator.
 *
 * Words:
 *   nexus      an initiator's session with the target: unit attentions and reservations are per nexus and unit
 *   unit       a logical unit
 *   data-in    data from the target to the initiator: the result of a read
 *   data-out   data from the initiator to the target: the source of a write
 */
#ifndef STAG_BLOCK_INTERNAL_H
#define STAG_BLOCK_INTERNAL_H

#include "base/error_text.h"
#include "stag/block.h"

/* ---- error.c ----------------------------------------------------------------- */

extern __thread char block_error_text[512];

/* Sets the text that stag_block_error() returns in this thread. Returns -error. */
#define block_fail(error, ...)                                                                     \
	error_text_set(block_error_text, sizeof(block_error_text), -(error), __VA_ARGS__)

#endif
