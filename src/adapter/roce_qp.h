/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * roce_qp.h - the states of roce0's queue pairs, as ibv_modify_qp() changes them, and their attributes.
 *
 * ibv_qp.state is what the program made it, or ERR:
 *
 *   RESET -> INIT -> RTR -> RTS <-> SQD      any -> RESET      any but RESET -> ERR
 *
 * qp->state (enum qp_state) says whether there is a stream: QP_IDLE without one, QP_RTS with one, QP_ERROR in ERR. A
 * stream comes and goes without the program's knowledge: a queue pair that has lost it stays in RTR, RTS or SQD.
 */
#ifndef STAG_ROCE_QP_H
#define STAG_ROCE_QP_H

#include <infiniband/verbs.h>

struct stag_qp;

int roce_qp_modify(struct stag_qp *qp, const struct ibv_qp_attr *attr, int mask);
void roce_qp_query(struct stag_qp *qp, struct ibv_qp_attr *attr);

#endif
