// SPDX-License-Identifier: BSD-2-Clause
/* rc.c - reliable connections of roce0. */
#include "adapter/rc.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "adapter/qp.h"

int rc_create(struct stag_qp *qp)
{
	qp->rc = calloc(1, sizeof(*qp->rc));
	if (!qp->rc)
		return -ENOMEM;
	qp->rc->qp = qp;
	return 0;
}

void rc_destroy(struct stag_qp *qp)
{
	free(qp->rc);
	qp->rc = NULL;
}

void rc_moved(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
}

void rc_settle(struct stag_qp *qp)
{
	assert(engine_locked());
}

void rc_reset(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
}

void rc_posted(struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
}

bool rc_is_draining(const struct stag_qp *qp)
{
	assert(qp_tx_locked(qp));
	return false;
}
