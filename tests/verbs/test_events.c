// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_events.c - events on descriptors, and destruction that waits for acknowledgements.
 */
#include "pair.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "asleep.h"

static int open_device(void **state)
{
	*state = open_stag();
	return 0;
}

static int close_device(void **state)
{
	return ibv_close_device(*state);
}

static void empty_channel_returns_eagain(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(*state);
	struct ibv_cq *cq;
	void *context;

	assert_non_null(ch);
	assert_int_equal(fcntl(ch->fd, F_SETFL, O_NONBLOCK), 0);
	errno = 0;
	assert_int_equal(ibv_get_cq_event(ch, &cq, &context), -1);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

static void channel_in_use_cannot_be_destroyed(void **state)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(*state);
	struct ibv_cq *cq = ibv_create_cq(*state, 4, NULL, ch, 0);

	assert_non_null(cq);
	assert_ptr_equal(cq->channel, ch);
	assert_int_equal(ibv_destroy_comp_channel(ch), EBUSY);
	assert_int_equal(ibv_destroy_cq(cq), 0);
	assert_int_equal(ibv_destroy_comp_channel(ch), 0);
}

/* A CQ with a channel, and one event fetched from it that is not acknowledged. */
struct waiting {
	struct ibv_comp_channel *ch;
	struct ibv_cq *cq;
	_Atomic pid_t tid; /* of the destroying thread; 0: it has not started */
	atomic_bool destroyed;
};

static void *destroy_cq(void *arg)
{
	struct waiting *w = arg;

	atomic_store(&w->tid, gettid());
	assert_int_equal(ibv_destroy_cq(w->cq), 0);
	atomic_store(&w->destroyed, true);
	return NULL;
}

static void destroy_cq_waits_for_acknowledgements(void **state)
{
	struct ibv_context *ctx = *state;
	struct waiting w = {.ch = ibv_create_comp_channel(ctx)};
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
	struct pollfd pfd = {.fd = w.ch->fd, .events = POLLIN};
	struct ibv_cq *got;
	void *context;
	pthread_t thread;

	w.cq = ibv_create_cq(ctx, 4, &w, w.ch, 0);
	assert_int_equal(ibv_req_notify_cq(w.cq, 0), 0);
	assert_int_equal(poll(&pfd, 1, 0), 0);
	cq_push(to_stag_cq(w.cq), &wc, false);
	assert_int_equal(poll(&pfd, 1, 1000), 1);
	assert_int_equal(ibv_get_cq_event(w.ch, &got, &context), 0);
	assert_ptr_equal(got, w.cq);
	assert_ptr_equal(context, &w);
	assert_int_equal(poll(&pfd, 1, 0), 0);

	assert_int_equal(pthread_create(&thread, NULL, destroy_cq, &w), 0);
	while (!atomic_load(&w.tid))
		sched_yield();
	await_asleep(atomic_load(&w.tid));
	assert_false(atomic_load(&w.destroyed));
	ibv_ack_cq_events(got, 1);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(atomic_load(&w.destroyed));
	assert_int_equal(ibv_destroy_comp_channel(w.ch), 0);
}

static void no_async_event_returns_eagain(void **state)
{
	struct ibv_context *ctx = *state;
	struct ibv_async_event event;

	assert_int_equal(fcntl(ctx->async_fd, F_SETFL, O_NONBLOCK), 0);
	errno = 0;
	assert_int_equal(ibv_get_async_event(ctx, &event), -1);
	assert_int_equal(errno, EAGAIN);
}

/* An overflow is reported as an event of the CQ, and no completion is lost. */
static void full_cq_raises_an_async_event(void **state)
{
	struct ibv_context *ctx = *state;
	struct ibv_cq *cq = ibv_create_cq(ctx, 1, NULL, NULL, 0);
	struct pollfd pfd = {.fd = ctx->async_fd, .events = POLLIN};
	struct ibv_async_event event;
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};
	int pushed = cq->cqe + 1;

	for (int i = 0; i < pushed; i++)
		cq_push(to_stag_cq(cq), &wc, false);
	assert_int_equal(poll(&pfd, 1, 1000), 1);
	assert_int_equal(ibv_get_async_event(ctx, &event), 0);
	assert_int_equal(event.event_type, IBV_EVENT_CQ_ERR);
	assert_ptr_equal(event.element.cq, cq);
	ibv_ack_async_event(&event);
	for (int i = 0; i < pushed; i++)
		assert_int_equal(ibv_poll_cq(cq, 1, &wc), 1);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

static void overrun_event_can_be_turned_off(void **state)
{
	struct ibv_context *ctx = *state;
	struct ibv_cq_init_attr_ex attr = {.cqe = 1,
					   .comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS,
					   .flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN};
	struct ibv_cq *cq = ibv_cq_ex_to_cq(ibv_create_cq_ex(ctx, &attr));
	struct pollfd pfd = {.fd = ctx->async_fd, .events = POLLIN};
	struct ibv_wc wc = {.status = IBV_WC_SUCCESS};

	for (int i = 0; i < cq->cqe + 1; i++)
		cq_push(to_stag_cq(cq), &wc, false);
	assert_int_equal(poll(&pfd, 1, 0), 0);
	assert_int_equal(ibv_destroy_cq(cq), 0);
}

/* An acknowledgement is counted on the event's object. */
static void acknowledgements_are_counted_on_the_object(void **state)
{
	struct ibv_qp qp = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
	struct ibv_srq srq = {.mutex = PTHREAD_MUTEX_INITIALIZER, .cond = PTHREAD_COND_INITIALIZER};
	struct ibv_async_event event = {.element.qp = &qp, .event_type = IBV_EVENT_QP_FATAL};

	ibv_ack_async_event(&event);
	event.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
	ibv_ack_async_event(&event);
	assert_int_equal(qp.events_completed, 2);
	event.element.srq = &srq;
	event.event_type = IBV_EVENT_SRQ_LIMIT_REACHED;
	ibv_ack_async_event(&event);
	assert_int_equal(srq.events_completed, 1);
	event.element.port_num = 1;
	event.event_type = IBV_EVENT_PORT_ACTIVE;
	ibv_ack_async_event(&event); /* a port number, not a pointer */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(empty_channel_returns_eagain),
		cmocka_unit_test(channel_in_use_cannot_be_destroyed),
		cmocka_unit_test(destroy_cq_waits_for_acknowledgements),
		cmocka_unit_test(no_async_event_returns_eagain),
		cmocka_unit_test(full_cq_raises_an_async_event),
		cmocka_unit_test(overrun_event_can_be_turned_off),
		cmocka_unit_test(acknowledgements_are_counted_on_the_object),
	};

	return cmocka_run_group_tests(tests, open_device, close_device);
}
