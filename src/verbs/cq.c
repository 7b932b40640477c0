// SPDX-License-Identifier: BSD-2-Clause
/*
 * cq.c - completion channels and completion queues.
 */
#include "verbs/verbs.h"

STAG_EXPORT struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct stag_channel *ch = NULL;

	if (!is_ours(context))
		return real()->create_comp_channel(context);
	FACE_RETURN(channel_create(to_stag_ctx(context), &ch), &ch->ibv);
}

STAG_EXPORT int ibv_destroy_comp_channel(struct ibv_comp_channel *channel)
{
	if (!is_ours(channel->context))
		return real()->destroy_comp_channel(channel);
	return -channel_destroy(to_stag_channel(channel));
}

int cq_check_attr(const struct ibv_context *context, const struct ibv_comp_channel *channel,
		  uint32_t vector)
{
	if (vector >= (uint32_t)context->num_comp_vectors) {
		log_info("cq: no completion vector %u, there are %d", vector,
			 context->num_comp_vectors);
		return -EINVAL;
	}
	if (channel && !is_ours(channel->context)) {
		log_info("cq: the channel belongs to another device");
		return -EINVAL;
	}
	return 0;
}

STAG_EXPORT struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
					 struct ibv_comp_channel *channel, int comp_vector)
{
	struct stag_cq *cq = NULL;

	if (!is_ours(context))
		return real()->create_cq(context, cqe, cq_context, channel, comp_vector);

	int err = cq_check_attr(context, channel, (uint32_t)comp_vector);

	if (!err)
		err = cq_create(to_stag_ctx(context), cqe,
				channel ? to_stag_channel(channel) : NULL, cq_context, false, &cq);
	FACE_RETURN(err, &cq->ibv);
}

STAG_EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	if (!is_ours(cq->context))
		return real()->resize_cq(cq, cqe);
	return -cq_resize(to_stag_cq(cq), cqe);
}

STAG_EXPORT int ibv_destroy_cq(struct ibv_cq *cq)
{
	if (!is_ours(cq->context))
		return real()->destroy_cq(cq);
	return -cq_destroy(to_stag_cq(cq));
}

STAG_EXPORT int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq,
				 void **cq_context)
{
	struct stag_cq *ready;

	if (!is_ours(channel->context))
		return real()->get_cq_event(channel, cq, cq_context);

	int err = channel_get_event(to_stag_channel(channel), &ready);

	if (!err) {
		*cq = &ready->ibv;
		*cq_context = ready->ibv.cq_context;
	}
	return minus_one(err);
}

STAG_EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int nevents)
{
	if (!is_ours(cq->context)) {
		real()->ack_cq_events(cq, nevents);
		return;
	}
	pthread_mutex_lock(&cq->mutex);
	cq->comp_events_completed += nevents;
	pthread_cond_signal(&cq->cond); /* ibv_destroy_cq() may wait for it */
	pthread_mutex_unlock(&cq->mutex);
}

int verbs_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	return cq_poll(to_stag_cq(cq), n, wc);
}

int verbs_req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	return -cq_arm(to_stag_cq(cq), solicited_only);
}

/* Moderation delays events to save interrupts, of which there are none: accepted without effect. */
int verbs_modify_cq(struct ibv_cq *cq, struct ibv_modify_cq_attr *attr)
{
	return attr->attr_mask & ~(uint32_t)IBV_CQ_ATTR_MODERATE ? EINVAL : 0;
}
