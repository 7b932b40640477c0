/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * qp.h - what the files about the queue pair's life share.
 */
#ifndef STAG_QP_H
#define STAG_QP_H

#include "adapter/adapter.h"

#define CLOSE_TIMEOUT_MS  5000 /* for the peer's FIN after ours */
#define CLOSE_TRIES	  12   /* as often while bytes are on their way */
#define LINGER_TIMEOUT_MS 2000 /* for the peer to read our last words */
#define FEW_QPS		  8    /* claim.c: beyond this the engine hands queue pairs over */

/* qp_table.c */
int qp_table_add(struct stag_qp *qp);
void qp_table_remove(struct stag_qp *qp);

/* qp_link.c */
void qp_tell(struct stag_qp *qp);
void qp_flush(struct stag_qp *qp);
void qp_end_by_us(struct stag_qp *qp, const struct terminate *term);
void qp_lock_both(struct stag_qp *qp);
void qp_unlock_both(struct stag_qp *qp);
void qp_close_stream(struct stag_qp *qp);
void qp_drop_claims(struct stag_qp *qp);

#endif
