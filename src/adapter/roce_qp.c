// SPDX-License-Identifier: BSD-2-Clause
/* roce_qp.c - modify and query of roce0's queue pairs. */
#include "adapter/roce_qp.h"

#include <assert.h>
#include <errno.h>
#include <unistd.h>

#include "adapter/device.h"
#include "adapter/face.h"
#include "adapter/gid.h"
#include "adapter/misuse.h"
#include "adapter/qp.h"
#include "adapter/qp_moves.h"
#include "adapter/rc.h"
#include "adapter/ud.h"

#define PSN_MASK	0xffffff
#define PRIVILEGED_QKEY 0x80000000u

static int refuse(struct stag_qp *qp, const char *why, uint64_t value)
{
	misuse(why, qp->ibv.qp_num, "qp %u: modify: %s (%#llx)", qp->ibv.qp_num, why,
	       (unsigned long long)value);
	return -EINVAL;
}

/* ---- checking ---- */

static int check_path(struct stag_qp *qp, const struct ibv_ah_attr *av)
{
	if (!av->is_global)
		return refuse(qp, "a RoCE address needs a GID: is_global is 0", 0);
	if (av->port_num != 1)
		return refuse(qp, "the address names a port that does not exist", av->port_num);
	return 0;
}

static int check_numbers(struct stag_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	if ((mask & IBV_QP_PORT) && a->port_num != 1)
		return refuse(qp, "no such port", a->port_num);
	if ((mask & IBV_QP_PKEY_INDEX) && a->pkey_index)
		return refuse(qp, "no such P_Key index", a->pkey_index);
	if ((mask & IBV_QP_PATH_MTU) && (a->path_mtu < IBV_MTU_256 || a->path_mtu > IBV_MTU_4096))
		return refuse(qp, "no such path MTU", a->path_mtu);
	if ((mask & IBV_QP_MAX_QP_RD_ATOMIC) && a->max_rd_atomic > STAG_MAX_RD_ATOM)
		return refuse(qp, "max_rd_atomic is too high", a->max_rd_atomic);
	if ((mask & IBV_QP_MAX_DEST_RD_ATOMIC) && a->max_dest_rd_atomic > STAG_MAX_RD_ATOM)
		return refuse(qp, "max_dest_rd_atomic is too high", a->max_dest_rd_atomic);
	if ((mask & IBV_QP_TIMEOUT) && a->timeout > ROCE_SQ_TIMEOUTS)
		return refuse(qp, "the timeout has 5 bits", a->timeout);
	if ((mask & IBV_QP_MIN_RNR_TIMER) && a->min_rnr_timer > ROCE_SQ_TIMEOUTS)
		return refuse(qp, "min_rnr_timer has 5 bits", a->min_rnr_timer);
	if ((mask & IBV_QP_RETRY_CNT) && a->retry_cnt > 7)
		return refuse(qp, "retry_cnt has 3 bits", a->retry_cnt);
	if ((mask & IBV_QP_RNR_RETRY) && a->rnr_retry > 7)
		return refuse(qp, "rnr_retry has 3 bits", a->rnr_retry);
	return 0;
}

static int check_values(struct stag_qp *qp, const struct ibv_qp_attr *a, int mask)
{
	int err = check_numbers(qp, a, mask);

	if (!err && (mask & IBV_QP_AV))
		err = check_path(qp, &a->ah_attr);
	if (!err && (mask & IBV_QP_ALT_PATH))
		err = refuse(qp, "alternate paths are not supported", 0);
	if (!err && (mask & IBV_QP_QKEY) && (a->qkey & PRIVILEGED_QKEY) && geteuid() != 0) {
		refuse(qp, "a Q_Key with the highest bit set is for privileged programs", a->qkey);
		err = -EPERM;
	}
	return err;
}

/* ---- keeping ---- */

static void keep(struct ibv_qp_attr *to, const struct ibv_qp_attr *a, int mask)
{
	if (mask & IBV_QP_ACCESS_FLAGS)
		to->qp_access_flags = a->qp_access_flags;
	if (mask & IBV_QP_PKEY_INDEX)
		to->pkey_index = a->pkey_index;
	if (mask & IBV_QP_PORT)
		to->port_num = a->port_num;
	if (mask & IBV_QP_QKEY)
		to->qkey = a->qkey;
	if (mask & IBV_QP_AV)
		to->ah_attr = a->ah_attr;
	if (mask & IBV_QP_PATH_MTU)
		to->path_mtu = a->path_mtu;
	if (mask & IBV_QP_TIMEOUT)
		to->timeout = a->timeout;
	if (mask & IBV_QP_RETRY_CNT)
		to->retry_cnt = a->retry_cnt;
	if (mask & IBV_QP_RNR_RETRY)
		to->rnr_retry = a->rnr_retry;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		to->min_rnr_timer = a->min_rnr_timer;
	if (mask & IBV_QP_RQ_PSN)
		to->rq_psn = a->rq_psn & PSN_MASK;
	if (mask & IBV_QP_SQ_PSN)
		to->sq_psn = a->sq_psn & PSN_MASK;
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		to->max_rd_atomic = a->max_rd_atomic;
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		to->max_dest_rd_atomic = a->max_dest_rd_atomic;
	if (mask & IBV_QP_DEST_QPN)
		to->dest_qp_num = a->dest_qp_num & PSN_MASK;
	if (mask & IBV_QP_EN_SQD_ASYNC_NOTIFY)
		to->en_sqd_async_notify = a->en_sqd_async_notify;
}

/* ---- moving ---- */

/* The address counts from now on, not its index: another one may get that. */
static int look_up_sgid(struct stag_qp *qp, const struct ibv_ah_attr *av, struct gid_entry *sgid)
{
	if (gid_get(av->grh.sgid_index, sgid))
		return 0;
	return refuse(qp, "there is no GID at sgid_index", av->grh.sgid_index);
}

static int begin_move(struct stag_qp *qp, const struct ibv_qp_attr *attr, int mask,
		      enum ibv_qp_state from, enum ibv_qp_state to)
{
	int err = 0;

	assert(qp_tx_locked(qp));
	if (qp->ibv.state != from) /* it failed meanwhile */
		return -EINVAL;
	if (from == IBV_QPS_SQD && to == IBV_QPS_RTS && qp->rc && rc_is_draining(qp))
		return refuse(qp, "its send queue is not drained yet", 0);
	keep(&qp->config.attr, attr, mask);
	if (from == IBV_QPS_RTS && to == IBV_QPS_SQD && !(mask & IBV_QP_EN_SQD_ASYNC_NOTIFY))
		qp->config.attr.en_sqd_async_notify = 0; /* it is asked for each time */
	if (from != to)
		qp_show_state(qp, to);
	if (qp->rc)
		rc_moved(qp, from);
	else
		ud_moved(qp, from);
	return err;
}

static int advance(struct stag_qp *qp, const struct ibv_qp_attr *attr, int mask,
		   enum ibv_qp_state from, enum ibv_qp_state to)
{
	struct gid_entry sgid;
	int err = mask & IBV_QP_AV ? look_up_sgid(qp, &attr->ah_attr, &sgid) : 0;

	assert(engine_locked());
	if (err)
		return err;
	lock_acquire(&qp->tx_lock);
	err = begin_move(qp, attr, mask, from, to);
	lock_release(&qp->tx_lock);
	if (err)
		return err;
	if (mask & IBV_QP_AV) {
		qp->config.sgid = sgid.gid;
		qp->config.sgid_ifindex = sgid.ifindex;
	}
	if (qp->rc)
		rc_settle(qp);
	return 0;
}

static void forget_attributes(struct stag_qp *qp)
{
	lock_acquire(&qp->tx_lock);
	qp->config.attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET};
	lock_release(&qp->tx_lock);
}

static int move(struct stag_qp *qp, const struct ibv_qp_attr *attr, int mask,
		enum ibv_qp_state from, enum ibv_qp_state to)
{
	int err = 0;

	if (to == IBV_QPS_ERR && from != IBV_QPS_ERR) {
		qp_to_error(qp);
	} else if (to == IBV_QPS_RESET) {
		qp_to_reset(qp);
		forget_attributes(qp);
	} else if (to != IBV_QPS_ERR) {
		engine_lock();
		err = advance(qp, attr, mask, from, to);
		engine_unlock();
	}
	return err;
}

int roce_qp_modify(struct stag_qp *qp, const struct ibv_qp_attr *attr, int mask)
{
	enum ibv_qp_state from = __atomic_load_n(&qp->ibv.state, __ATOMIC_RELAXED);
	enum ibv_qp_state to = mask & IBV_QP_STATE ? attr->qp_state : from;
	int wrong, err;

	if ((mask & IBV_QP_CUR_STATE) && attr->cur_qp_state != from)
		return refuse(qp, "cur_qp_state is not its state", attr->cur_qp_state);
	if (qp_move_check(qp->ibv.qp_type, from, to, mask, &wrong)) {
		misuse(__func__, qp->ibv.qp_num,
		       "qp %u: modify from %s to %s with mask %#x is refused%s (%#x)",
		       qp->ibv.qp_num, qp_state_word(from), qp_state_word(to), mask,
		       wrong ? ": attributes are missing, or do not belong there" : "", wrong);
		return -EINVAL;
	}
	err = check_values(qp, attr, mask);
	return err ? err : move(qp, attr, mask, from, to);
}

void roce_qp_query(struct stag_qp *qp, struct ibv_qp_attr *attr)
{
	lock_acquire(&qp->tx_lock);
	*attr = qp->config.attr;
	attr->qp_state = attr->cur_qp_state = qp->ibv.state;
	attr->sq_draining = qp->rc && rc_is_draining(qp);
	lock_release(&qp->tx_lock);
	attr->cap = qp->config.cap;
}
