// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_lock.c - a lock knows its owner, and a debug build aborts where a thread misuses one.
 */
#include "base/lock.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#ifdef NDEBUG
#define SKIP_WITHOUT_OWNERS() skip()
#else
#define SKIP_WITHOUT_OWNERS() (void)0
#endif

static struct lock static_lock = LOCK_INITIALIZER;

static void *is_held_here(void *lock)
{
	return lock_held(lock) ? lock : NULL;
}

static bool held_by_another_thread(struct lock *l)
{
	pthread_t t;
	void *held;

	assert_int_equal(pthread_create(&t, NULL, is_held_here, l), 0);
	assert_int_equal(pthread_join(t, &held), 0);
	return held != NULL;
}

static void only_the_owner_holds_a_lock(void **state)
{
	struct lock l;

	SKIP_WITHOUT_OWNERS();
	lock_init(&l);
	assert_false(lock_held(&l));
	lock_acquire(&l);
	assert_true(lock_held(&l));
	assert_false(held_by_another_thread(&l));
	lock_release(&l);
	assert_false(lock_held(&l));
	lock_destroy(&l);
}

static void static_lock_starts_free(void **state)
{
	SKIP_WITHOUT_OWNERS();
	assert_false(lock_held(&static_lock));
	lock_acquire(&static_lock);
	assert_true(lock_held(&static_lock));
	lock_release(&static_lock);
}

static void scope_releases_at_its_end(void **state)
{
	{
		HOLD_FOR_SCOPE(&static_lock);
		assert_true(lock_held(&static_lock));
		assert_false(lock_try(&static_lock));
	}
	assert_true(lock_try(&static_lock));
	assert_true(lock_held(&static_lock));
	lock_release(&static_lock);
}

static struct {
	struct lock lock;
	pthread_cond_t changed;
	bool set;
} flag = {.lock = LOCK_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *set_flag(void *arg)
{
	HOLD_FOR_SCOPE(&flag.lock);
	flag.set = true;
	pthread_cond_signal(&flag.changed);
	return NULL;
}

static void waiting_releases_and_reacquires_the_lock(void **state)
{
	pthread_t t;

	lock_acquire(&flag.lock);
	assert_int_equal(pthread_create(&t, NULL, set_flag, NULL), 0);
	while (!flag.set)
		lock_wait(&flag.lock, &flag.changed);
	assert_true(lock_held(&flag.lock));
	lock_release(&flag.lock);
	assert_int_equal(pthread_join(t, NULL), 0);
}

static void wait_that_times_out_holds_the_lock(void **state)
{
	struct timespec past = {0};

	lock_acquire(&flag.lock);
	assert_int_equal(lock_wait_until(&flag.lock, &flag.changed, &past), ETIMEDOUT);
	assert_true(lock_held(&flag.lock));
	lock_release(&flag.lock);
}

static void release_unheld(void)
{
	struct lock l = LOCK_INITIALIZER;

	lock_release(&l);
}

static void acquire_twice(void)
{
	struct lock l = LOCK_INITIALIZER;

	lock_acquire(&l);
	lock_acquire(&l);
}

static void expect_abort(void (*misuse)(void))
{
	pid_t child = fork();
	int status;

	assert_true(child >= 0);
	if (child == 0) {
		struct rlimit no_core = {0};

		signal(SIGABRT, SIG_DFL); /* cmocka's handler would report a failed test */
		setrlimit(RLIMIT_CORE, &no_core);
		fclose(stderr);
		misuse();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGABRT);
}

static void releasing_an_unheld_lock_aborts(void **state)
{
	SKIP_WITHOUT_OWNERS();
	expect_abort(release_unheld);
}

static void acquiring_a_held_lock_aborts(void **state)
{
	SKIP_WITHOUT_OWNERS();
	expect_abort(acquire_twice);
}

static void forked_child_holds_the_locks_of_its_thread(void **state)
{
	pid_t child;
	int status;

	lock_acquire(&static_lock);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		if (!lock_held(&static_lock))
			_exit(1);
		lock_release(&static_lock);
		_exit(lock_try(&static_lock) ? 0 : 2);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	lock_release(&static_lock);
}

static void release_build_adds_nothing_to_a_mutex(void **state)
{
#ifdef NDEBUG
	assert_int_equal(sizeof(struct lock), sizeof(pthread_mutex_t));
#else
	skip();
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_owner_holds_a_lock),
		cmocka_unit_test(static_lock_starts_free),
		cmocka_unit_test(scope_releases_at_its_end),
		cmocka_unit_test(waiting_releases_and_reacquires_the_lock),
		cmocka_unit_test(wait_that_times_out_holds_the_lock),
		cmocka_unit_test(releasing_an_unheld_lock_aborts),
		cmocka_unit_test(acquiring_a_held_lock_aborts),
		cmocka_unit_test(forked_child_holds_the_locks_of_its_thread),
		cmocka_unit_test(release_build_adds_nothing_to_a_mutex),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
