// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_async.c - asynchronous events that are dropped while a thread fetches them.
 */
#include "adapter/device.h"
#include "adapter/qp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <unistd.h>

#define ROUNDS 20000

static void *fetch_async_events(void *arg)
{
	struct stag_ctx *ctx = arg;
	struct ibv_async_event ev;

	do {
		assert_int_equal(ctx_get_async(ctx, &ev), 0);
	} while (ev.event_type != IBV_EVENT_QP_LAST_WQE_REACHED);
	return NULL;
}

/* A thread about to fetch an event does not block the destruction of the event's queue pair. */
static void async_event_can_be_dropped_while_it_is_fetched(void **state)
{
	struct stag_qp qp = {0};
	struct ibv_async_event ev = {.element.qp = &qp.ibv, .event_type = IBV_EVENT_QP_FATAL};
	struct stag_ctx *ctx;
	pthread_t fetcher;

	assert_int_equal(ctx_create(FACE_IWARP, &ctx), 0);
	assert_int_equal(pthread_create(&fetcher, NULL, fetch_async_events, ctx), 0);
	alarm(50);
	for (int i = 0; i < ROUNDS; i++) {
		ctx_async(ctx, &ev);
		for (volatile int pause = i % 512 * 8; pause > 0; pause--)
			;
		ctx_drop_async(ctx, &qp.ibv);
	}
	ev.event_type = IBV_EVENT_QP_LAST_WQE_REACHED;
	ctx_async(ctx, &ev);
	assert_int_equal(pthread_join(fetcher, NULL), 0);
	alarm(0);
	ctx_destroy(ctx);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(async_event_can_be_dropped_while_it_is_fetched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
