/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * audit_kept.h - the records of the audit log that are kept in memory.
 *
 * They are kept in rings of AUDIT_KEPT, so that nobody pushes out what others did:
 *
 *	administration	acts that need the right to administer: of the API, of `stag`, of a pool
 *	others		logins and other acts, a ring for each part of stag
 *	refusals	a ring for each part of stag, with a rate for all sources together
 *
 * In a full ring, a source (base/source.h) that has more than an eighth of it replaces its own oldest record; any other source the
 * oldest of all. So one address, or one network of IPv6, cannot push out the records of others, however long it tries.
 *
 * Not safe for several threads: audit_log.c holds its lock.
 */
#ifndef STAG_APP_AUDIT_KEPT_H
#define STAG_APP_AUDIT_KEPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "stag/audit.h"

#define AUDIT_KEPT 512 /* in each ring */

/* Refusals of all sources in one part of stag: that many at once, and then so many each second. */
#define AUDIT_ALL_REFUSED_BURST 256
#define AUDIT_ALL_REFUSED_RATE	16

struct audit_record {
	uint64_t id; /* from 1; 0: none */
	struct timespec time;
	enum stag_audit_outcome outcome;
	uint32_t suppressed, flags;
	char room[16], object[160], user[80], from[80], action[48], reason[256];
};

struct audit_kept;

struct audit_kept *audit_kept_create(void); /* NULL: no memory */
void audit_kept_destroy(struct audit_kept *kept);
/* Returns whether the record may be added: false for a refusal if too many of them come at once. */
bool audit_kept_allows(struct audit_kept *kept, const struct stag_audit_record *r, uint64_t now);
/* Copies a record. Ids rise from one to the next. */
void audit_kept_add(struct audit_kept *kept, const struct audit_record *r);
/*
 * Fills in pointers to the records with an id above `since`, oldest first, and returns their number, `room` at most. If there are
 * more, the rings take turns, each with its newest record.
 */
size_t audit_kept_list(const struct audit_kept *kept, uint64_t since,
		       const struct audit_record **list, size_t room);

#endif
