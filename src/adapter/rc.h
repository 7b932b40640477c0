/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rc.h - reliable connections of roce0: what InfiniBand has on a stream that iWARP has not.
 */
#ifndef STAG_RC_H
#define STAG_RC_H

#include <stdbool.h>
#include <stdint.h>

struct stag_qp;

struct rc {
	struct stag_qp *qp;
};

int rc_create(struct stag_qp *qp); /* RC and UC queue pairs */
void rc_destroy(struct stag_qp *qp);
void rc_moved(struct stag_qp *qp); /* after a change of the state or of attributes; under tx_lock */
void rc_settle(struct stag_qp *qp);	       /* the same, under the engine lock only */
void rc_reset(struct stag_qp *qp);	       /* to RESET; under both locks */
void rc_posted(struct stag_qp *qp);	       /* requests were posted; under tx_lock */
bool rc_is_draining(const struct stag_qp *qp); /* in SQD: are requests under way? Under tx_lock */

#endif
