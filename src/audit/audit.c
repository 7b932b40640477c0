// SPDX-License-Identifier: BSD-2-Clause
/*
 * audit.c - <stag/audit.h>: sets where the records of this library go.
 */
#include "stag/audit.h"

#include <stdlib.h>

#include "base/audit.h"
#include "base/export.h"

/* A sink that was replaced may still be in use by a thread, so it is kept: there are few in a program's life. */
static struct kept_sink {
	struct audit_sink sink;
	struct kept_sink *next;
} * kept;

STAG_EXPORT void stag_audit_set_sink(stag_audit_sink sink, void *arg)
{
	struct kept_sink *k = sink ? malloc(sizeof(*k)) : NULL;

	if (sink && !k)
		abort(); /* a program that relies on its records must not run without them */
	if (k) {
		*k = (struct kept_sink){.sink = {.call = sink, .arg = arg}, .next = kept};
		kept = k;
	}
	audit_set_sink(k ? &k->sink : NULL);
}
