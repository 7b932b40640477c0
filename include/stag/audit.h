/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * audit.h - who did what, from where, and whether it was allowed: what the servers of libstag report to their program.
 *
 * A server (a node of a pool, a store's server, a block target) reports each decision about rights: logins, refused operations,
 * and administration. By default nobody listens, and a report costs one load.
 */
#ifndef STAG_AUDIT_H
#define STAG_AUDIT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum stag_audit_outcome {
	STAG_AUDIT_ALLOWED,
	STAG_AUDIT_REFUSED, /* the peer has no right to do this, or did not prove who it is */
	STAG_AUDIT_FAILED,  /* it was allowed, and did not succeed */
};

enum stag_audit_flags {
	STAG_AUDIT_ADMINISTRATION = 1 << 0, /* it needs the right to administer */
};

/* Texts are the server's, valid during the call; they may contain what a peer chose. NULL: unknown, or not applicable. */
struct stag_audit_record {
	uint64_t comp_mask; /* zero */
	const char *room;   /* the part of stag: "pool", "store", "block", "api", "daemon" */
	const char *object; /* "pool shop", "target up", "store disk, partition goods" */
	const char *user;   /* as the peer calls itself: proven only if the record says allowed */
	const char *from;   /* "10.0.0.7:41288", "[fe80::1]:7175", "uid 1000 pid 4711" */
	const char *action; /* "login", "put", "switchover" */
	const char *reason; /* why it was refused or failed; details of what was allowed */
	enum stag_audit_outcome outcome;
	uint32_t suppressed; /* records of the same source that were left out since its last one */
	uint32_t flags;	     /* enum stag_audit_flags */
};

typedef void (*stag_audit_sink)(const struct stag_audit_record *record, void *arg);

/*
 * Sets the function that gets the records; NULL: none. Threads of servers call it, several at once, and wait for it: it must be
 * quick, and must not call libstag. A call may still be in progress for a moment after another sink was set, so arg stays valid.
 * Records of one source (an IPv4 address, a /64 network of IPv6, or a local user) are limited to a rate: those above it are counted, and the
 * next record of the source has their number in `suppressed`.
 */
void stag_audit_set_sink(stag_audit_sink sink, void *arg);

#ifdef __cplusplus
}
#endif

#endif
