/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * audit_log.h - the audit log of stagd: who did what, from where, also what was refused (base/audit.h).
 *
 * Records of the libraries and of the API are queued; a thread writes them to a file, a JSON object a line:
 *
 *	{"id": 17, "time": "2026-03-01T12:00:00.123Z", "outcome": "refused", "room": "pool", "object": "pool shop", "action": "login",
 *	 "user": "ann", "from": "10.0.0.7:41288", "reason": "wrong secret", "suppressed": 3}
 *
 * The last ones are kept in memory, in rings (audit_kept.h), so that nobody pushes out what others did. Refusals have a rate for all
 * sources together, in each part of stag: those above it are counted, and neither kept nor written.
 * A thread that reports never waits for the disk. If the queue or the disk is full, records are lost, counted, and reported as an
 * event; nothing else stops.
 */
#ifndef STAG_APP_AUDIT_LOG_H
#define STAG_APP_AUDIT_LOG_H

#include <jansson.h>
#include <stdint.h>

#define AUDIT_MOST 1024 /* records that one request gets */

void audit_log_start(void); /* makes this process' sink, and that of libstag */
void audit_log_stop(void);  /* writes what is queued */
/* Writes to this file from now on; NULL: to none. Opens it again even if the path is the same, as logrotate(8) expects. */
void audit_log_to(const char *path);
/* Returns the records with an id above `since`, oldest first, at most `limit` and AUDIT_MOST: of more, the newest of each ring. */
json_t *audit_log_since(uint64_t since, uint64_t limit);
/* Returns {"file": PATH|null, "records": N, "lost": N, "left_out": N}. */
json_t *audit_log_status(void);

#endif
