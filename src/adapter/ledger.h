/* SPDX-License-Identifier: BSD-2-Clause */
/* ledger.h - a record of the STags that went with sends: when each was opened and how it ended. */
#ifndef STAG_LEDGER_H
#define STAG_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stag/stagdv.h"

void ledger_add(const struct stagdv_stag *stag); /* records one that has ended */
/* Counts a late use on this queue pair. Returns false if the STag is not in the ledger. */
bool ledger_late(uint32_t stag, uint32_t qp_num, struct stagdv_stag *out);
ssize_t ledger_query(void *list, size_t n, size_t size); /* as stagdv_query_stags() */
void ledger_after_fork(void);

#endif
