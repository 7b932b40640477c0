// SPDX-License-Identifier: BSD-2-Clause
/* ud.c - UD queue pairs: their creation, states and end. */
#include "adapter/ud.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "adapter/claim.h"
#include "adapter/gid.h"
#include "adapter/port.h"
#include "adapter/qp.h"
#include "base/log.h"

static int open_near(uint32_t qpn)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), err;
	struct sockaddr_storage name;
	int len = ud_socket_name(qpn, &name);

	if (fd < 0)
		return -errno;
	if (!bind(fd, (struct sockaddr *)&name, (socklen_t)len))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static void free_ud(struct ud *ud)
{
	if (ud->rx_fd >= 0)
		close(ud->rx_fd);
	if (ud->tx_fd >= 0)
		close(ud->tx_fd);
	if (ud->spent_fd >= 0)
		close(ud->spent_fd);
	free(ud->batch);
	free(ud->dest);
	free(ud);
}

int ud_create(struct stag_qp *qp)
{
	struct ud *ud = calloc(1, sizeof(*ud));
	int err = -ENOMEM;

	assert(engine_locked());
	if (!ud)
		return err;
	ud->qp = qp;
	ud->tx_fd = ud->rx_fd = ud->spent_fd = -1;
	list_init(&ud->held);
	srq_waiter_init(&ud->waiter, ud_on_shared_receive);
	ud->dest = calloc(qp->sq.mask + 1, sizeof(*ud->dest));
	if (!ud->dest)
		goto err_free;
	err = ud->rx_fd = open_near(qp->ibv.qp_num);
	if (err < 0)
		goto err_free;
	err = watch_add(&qp->progress.watch, ud->rx_fd, EPOLLIN, ud_on_near);
	if (err)
		goto err_free;
	qp_lock_both(qp); /* a reader of the port's socket may know it already */
	qp->ud = ud;
	qp_unlock_both(qp);
	return 0;

err_free:
	if (err != -EADDRINUSE)
		log_err("qp %u: cannot be opened for datagrams: %s", qp->ibv.qp_num,
			strerror(-err));
	free_ud(ud);
	return err;
}

/* A reader of the port's socket that has found the queue pair ends before it is gone. */
static void leave_port(struct stag_qp *qp)
{
	struct qp_port *p = qp->port;

	lock_acquire(&p->ud->lock);
	lock_acquire(&p->lock);
	p->qp[qp->ibv.qp_num & (PORT_QPS - 1)] = NULL;
	lock_release(&p->lock);
	lock_release(&p->ud->lock);
}

void ud_destroy(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;

	assert(engine_locked());
	leave_port(qp);
	if (qp->srq)
		srq_stop_waiting(qp->srq, &ud->waiter);
	work_cancel(&ud->waiter.work);
	lock_acquire(&qp->progress.arm_lock);
	watch_del(&qp->progress.watch);
	watch_del(&ud->tx_watch);
	lock_release(&qp->progress.arm_lock);
	timer_cancel(&ud->tx_timer);
	timer_cancel(&ud->held_timer);
	work_cancel(&ud->tx_work);
	work_cancel(&ud->fail_work);
	qp_lock_both(qp);
	ud_drop_held(qp);
	qp->ud = NULL;
	qp_unlock_both(qp);
	free_ud(ud);
}

/* The parent has the sockets. */
void ud_after_fork(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;

	if (ud->rx_fd >= 0)
		close(ud->rx_fd);
	if (ud->tx_fd >= 0)
		close(ud->tx_fd);
	if (ud->spent_fd >= 0)
		close(ud->spent_fd);
	ud->rx_fd = ud->tx_fd = ud->spent_fd = -1;
}

/* Forgets the datagrams of the former life: the next one may have another Q_Key. */
static void stop_receiving(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;

	assert(engine_locked());
	timer_cancel(&ud->held_timer);
	if (qp->srq)
		srq_stop_waiting(qp->srq, &ud->waiter);
	work_cancel(&ud->waiter.work);
	ud_drop_held(qp);
	ud->dry = false;
	qp_arm(qp); /* qp_close_stream() has ended a pause without a word to the engine */
}

static void start_over(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;

	ud->failed = false;
	ud->n_full = 0;
	ud->behind.tx = ud->behind.upto = qp->sq.tx;
	ud->behind.others = false;
	ud->packed.n = 0;
	atomic_store(&qp->progress.tx_blocked, false);
	stop_receiving(qp);
}

void ud_moved(struct stag_qp *qp, enum ibv_qp_state from)
{
	struct ud *ud = qp->ud;
	enum ibv_qp_state state = qp->ibv.state;
	uint32_t was = atomic_load(&ud->qkey);

	assert(qp_tx_locked(qp));
	if (was != qp->config.attr.qkey)
		atomic_store(&ud->qkey, qp->config.attr.qkey);
	atomic_store(&ud->open, state == IBV_QPS_RTR || state == IBV_QPS_RTS ||
					state == IBV_QPS_SQD || state == IBV_QPS_SQE);
	if (state == IBV_QPS_RESET)
		start_over(qp);
	if (state == IBV_QPS_SQD && from != IBV_QPS_SQD && qp->config.attr.en_sqd_async_notify)
		qp_async(qp, IBV_EVENT_SQ_DRAINED); /* no request is ever half sent */
	if (state == IBV_QPS_RTR && atomic_load(&qp->state) == QP_IDLE) {
		ud->mtu = 128u << gid_mtu();
		qp_set_state(qp, QP_RTS);
	}
	if (state == IBV_QPS_RTS)
		ud_run(qp);
}

void ud_arm(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;
	struct stag_cq *cq = atomic_load(&qp->progress.claimed_by);
	bool polled = cq && atomic_load(&cq->claim) == CLAIM_POLLER;

	assert(lock_held(&qp->progress.arm_lock));
	if (polled != ud->counted) {
		ud->counted = polled;
		atomic_fetch_add(&qp->port->ud->pollers, polled ? 1 : -1);
		ud_port_arm(qp->port);
	}
	/* A poller tries again by itself. */
	if (!polled && atomic_load(&qp->progress.tx_blocked))
		work_queue(&ud->tx_work, ud_watch_room);
}
