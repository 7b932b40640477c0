/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * audit.h - reports who did what, from where, and whether it was allowed.
 *
 * Call it where a right is decided: a login, an admission, a refused operation, an act of administration. Do not call it for each
 * operation of a data path that is allowed.
 *
 *	audit_report(&(struct stag_audit_record){.room = "pool", .object = "pool shop", .user = "ann", .from = "10.0.0.7:41288",
 *						 .action = "put", .outcome = STAG_AUDIT_REFUSED, .reason = "no right to write"});
 *
 * Without a sink this costs one load. It takes no lock, makes no system call except for the time, does not allocate, and preserves
 * errno; the sink must not block either. Records of one source are limited to a rate (rate.h): the number of those left out is in
 * the next one. So there is no need to limit the calls.
 *
 * A library and a program that are linked separately each have a sink of their own: a program sets that of libstag.so with
 * stag_audit_set_sink(3), and its own with audit_set_sink().
 */
#ifndef STAG_BASE_AUDIT_H
#define STAG_BASE_AUDIT_H

#include <stdatomic.h>
#include <stag/audit.h>

/* A source may report this many records at once, and then so many each second; see audit.c for why they differ. */
#define AUDIT_REFUSED_BURST 32
#define AUDIT_REFUSED_RATE  4
#define AUDIT_ALLOWED_BURST 1024
#define AUDIT_ALLOWED_RATE  100

/* A sink with its argument; static, or never freed: a thread may still call it after another one was set. */
struct audit_sink {
	stag_audit_sink call;
	void *arg;
};

extern _Atomic(const struct audit_sink *) audit_sink; /* NULL: none; see audit_is_on() */

void audit_set_sink(const struct audit_sink *sink);
void audit_write(const struct stag_audit_record *record);

/* Returns whether anybody listens; for callers that would have to format a text first. */
static inline _Bool audit_is_on(void)
{
	return atomic_load_explicit(&audit_sink, memory_order_relaxed);
}

static inline void audit_report(const struct stag_audit_record *record)
{
	if (__builtin_expect(audit_is_on(), 0))
		audit_write(record);
}

#endif
