/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * claim.h - who watches which socket.
 */
#ifndef STAG_CLAIM_H
#define STAG_CLAIM_H

#include <stdbool.h>

#include "adapter/cq.h"

struct stag_qp;

bool claim_is_slept_on(const struct stag_cq *cq); /* by one who watches the sockets */
void claim_all(struct stag_cq *cq, enum cq_claim how);
bool claim_one(struct stag_cq *cq, struct stag_qp *qp, enum cq_claim how);
void claim_drop(struct stag_cq *cq, struct stag_qp *qp);
void claim_release(struct stag_cq *cq); /* all of them, back to the engine */
void cq_progress(struct stag_cq *cq);	/* on behalf of a poller; takes qps_lock, if it is free */
void qp_arm(struct stag_qp *qp);	/* tells the engine what to watch of this queue pair */

#endif
