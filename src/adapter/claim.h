/* SPDX-License-Identifier: BSD-2-Clause */
/* claim.h - which thread watches which socket. */
#ifndef STAG_CLAIM_H
#define STAG_CLAIM_H

#include <stdbool.h>

#include "adapter/cq.h"

struct stag_qp;

/* does a sleeper of its channel watch the sockets? */
bool claim_is_slept_on(const struct stag_cq *cq);
void claim_all(struct stag_cq *cq, enum cq_claim how);
bool claim_one(struct stag_cq *cq, struct stag_qp *qp, enum cq_claim how);
void claim_drop(struct stag_cq *cq, struct stag_qp *qp);
void claim_release(struct stag_cq *cq); /* gives all of them back to the engine */
void cq_progress(struct stag_cq *cq);	/* for a poller; does nothing if qps_lock is taken */
/*
 * Reads what has arrived, for a thread that takes no completion (ibv_poll_cq() for 0 entries): one that looks at
 * memory that peers write to. Claims nothing, because that thread does not spin.
 */
void cq_look(struct stag_cq *cq);
void qp_arm(struct stag_qp *qp); /* updates the events that the engine watches for */

#endif
