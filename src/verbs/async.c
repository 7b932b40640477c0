// SPDX-License-Identifier: BSD-2-Clause
/*
 * async.c - asynchronous events and their acknowledgement: destroying an object waits until
 * every event about it that was delivered has been acknowledged.
 */
#include "verbs/verbs.h"

STAG_EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	if (!is_ours(context))
		return real()->get_async_event(context, event);
	return minus_one(ctx_get_async(to_stag_ctx(context), event));
}

static void ack_one(pthread_mutex_t *mutex, pthread_cond_t *cond, uint32_t *completed)
{
	pthread_mutex_lock(mutex);
	(*completed)++;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

/*
 * The layout of the objects is public and the same for all devices: this works on objects of
 * any device.
 */
STAG_EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	struct ibv_cq *cq = event->element.cq;
	struct ibv_qp *qp = event->element.qp;
	struct ibv_srq *srq = event->element.srq;
	struct ibv_wq *wq = event->element.wq;

	switch (event->event_type) {
	case IBV_EVENT_CQ_ERR:
		ack_one(&cq->mutex, &cq->cond, &cq->async_events_completed);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		ack_one(&qp->mutex, &qp->cond, &qp->events_completed);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		ack_one(&srq->mutex, &srq->cond, &srq->events_completed);
		break;
	case IBV_EVENT_WQ_FATAL:
		ack_one(&wq->mutex, &wq->cond, &wq->events_completed);
		break;
	default: /* about the port or the device: nobody waits */
		break;
	}
}
