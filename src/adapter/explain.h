/* SPDX-License-Identifier: BSD-2-Clause */
/* explain.h - why an access was refused, in words, with the range and the rights of the region. */
#ifndef STAG_EXPLAIN_H
#define STAG_EXPLAIN_H

#include <stdint.h>

#include "adapter/keys.h"
#include "wire/wire.h"

struct key_access {
	uint32_t stag;
	uint64_t to, len;
	unsigned access; /* the rights needed */
};

#define EXPLAIN_ROOM 400

/*
 * Writes why key_get() or store_get() refused the access, for a queue pair of this domain. Looks the key up again: if it changed meanwhile, the
 * text is that of the fault alone. Returns text. The caller holds no references to keys.
 */
const char *explain_key(const struct key_access *a, const struct stag_pd *pd, enum key_fault f,
			char text[EXPLAIN_ROOM]);

/*
 * Logs that a peer's access is refused; what: "write". An expired lease is not misuse, and logged at info.
 */
void log_refused_access(const struct stag_qp *qp, const char *what, const struct key_access *a,
			enum key_fault f);

/* Logs that memory of the program's own request is refused; of: "a receive". */
void log_bad_sge(const struct stag_qp *qp, uint64_t wr_id, uint32_t i, const char *of,
		 const struct ibv_sge *sge, unsigned access, enum key_fault f);

/* Writes what of ours a peer's Terminate refuses, and why, as far as the message tells. Returns text. */
const char *explain_terminate(const struct terminate *t, char text[EXPLAIN_ROOM]);

#endif
