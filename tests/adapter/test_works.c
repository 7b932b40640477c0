// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_works.c - the engine's work: whether one piece leaves time for the others.
 */
#include "adapter/engine.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/clock.h"

#define LONG_ENOUGH 1000000

static struct {
	struct work work;
	struct timer timer;
	atomic_uint rounds;
	atomic_bool rang;
} greedy;

static void run_greedy(struct work *w)
{
	if (!atomic_load(&greedy.rang) && atomic_fetch_add(&greedy.rounds, 1) < LONG_ENOUGH)
		work_queue(w, run_greedy);
}

static void ring_greedy(struct timer *t)
{
	atomic_store(&greedy.rang, true);
}

/* As a queue pair does whose peer sends without a pause. */
static void work_that_queues_itself_again_lets_timers_ring(void **state)
{
	assert_int_equal(engine_start(), 0);
	engine_lock();
	timer_set(&greedy.timer, clock_ns(), ring_greedy);
	work_queue(&greedy.work, run_greedy);
	engine_unlock();
	while (!atomic_load(&greedy.rang))
		sched_yield();
	assert_true(atomic_load(&greedy.rounds) < LONG_ENOUGH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(work_that_queues_itself_again_lets_timers_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
