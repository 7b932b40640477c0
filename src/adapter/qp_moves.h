/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp_moves.h - which attributes a queue pair of roce0 needs, and may be given, in each change of its state.
 *
 * The table of the InfiniBand specification (volume 1, 11.2.5.2), as Linux has it: qp_state_table in core/verbs.c.
 */
#ifndef STAG_QP_MOVES_H
#define STAG_QP_MOVES_H

#include <infiniband/verbs.h>

/*
 * Checks the mask of ibv_modify_qp(). Without IBV_QP_STATE the state stays: to is from. Returns 0, or -EINVAL for a
 * move that does not exist, an attribute that is missing, or one too many; *wrong: the attributes of the last two, or 0.
 */
int qp_move_check(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask,
		  int *wrong);

#endif
