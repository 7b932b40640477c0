/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ledger.h - the lives of STags that went with sends.
 */
#ifndef STAG_LEDGER_H
#define STAG_LEDGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "stag/stagdv.h"

void ledger_add(const struct stagdv_stag *stag); /* one that ends */
/* Counts one that came on this queue pair; false: the STag is not in there. */
bool ledger_late(uint32_t stag, uint32_t qp_num, struct stagdv_stag *out);
ssize_t ledger_query(void *list, size_t n, size_t size); /* as stagdv_query_stags() */
void ledger_after_fork(void);

#endif
