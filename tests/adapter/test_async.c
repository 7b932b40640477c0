// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_async.c - asynchronous events that are dropped while a thread fetches them, or were not acknowledged.
 */
#include "adapter/device.h"
#include "adapter/qp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "await.h"

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

struct waiter {
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t acked;
};

static void *wait_for_all_types(void *arg)
{
	struct waiter *w = arg;
	struct acks a = {.mutex = &w->mutex,
			 .cond = &w->cond,
			 .acked = &w->acked,
			 .handed = 1,
			 .types = (2u << IBV_EVENT_WQ_FATAL) - 1};

	wait_for_acks(&a, "qp 1");
	return NULL;
}

static unsigned count(const char *text, const char *words)
{
	unsigned n = 0;

	for (; (text = strstr(text, words)); text++)
		n++;
	return n;
}

/* The warning of a destruction that waits for the program. */
static void every_type_of_event_has_a_name(void **state)
{
	struct waiter w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
	int log = memfd_create("log", MFD_CLOEXEC), screen = dup(STDERR_FILENO);
	static char text[4096];
	pthread_t waiter;

	assert_true(dup2(log, STDERR_FILENO) >= 0);
	assert_int_equal(pthread_create(&waiter, NULL, wait_for_all_types, &w), 0);
	await(pread(log, text, sizeof(text) - 1, 0) > 0 && strchr(text, '\n'));
	pthread_mutex_lock(&w.mutex);
	w.acked = 1;
	pthread_cond_signal(&w.cond);
	pthread_mutex_unlock(&w.mutex);
	assert_int_equal(pthread_join(waiter, NULL), 0);
	dup2(screen, STDERR_FILENO);
	close(screen);
	close(log);
	assert_int_equal(count(text, "IBV_EVENT_"), IBV_EVENT_WQ_FATAL + 1);
	assert_int_equal(count(text, "IBV_EVENT_SQ_DRAINED, "), 1);
	assert_int_equal(count(text, "IBV_EVENT_WQ_FATAL)"), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_type_of_event_has_a_name),
		cmocka_unit_test(async_event_can_be_dropped_while_it_is_fetched),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
