// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_keys.c - the table of STags: an invalidation that comes late.
 *
 * White-box test: a peer and the owner of a key use it at the same time.
 */
#include "adapter/keys.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define LIVES 50000

/* Any addresses: the table compares them, and does not use what is there. */
static char domains[2];
#define PD	 ((struct stag_pd *)&domains[0])
#define OTHER_PD ((struct stag_pd *)&domains[1])

static struct {
	_Atomic uint32_t tag;  /* the one that the peer invalidates */
	_Atomic uint64_t done; /* its calls */
	atomic_bool stop;
} late;

static void *invalidate_late(void *arg)
{
	while (!atomic_load(&late.stop)) {
		key_invalidate(atomic_load(&late.tag), PD, NULL);
		atomic_fetch_add(&late.done, 1);
	}
	return NULL;
}

/* Waits until the peer's call that runs now, if any, has returned. */
static void await_peer(void)
{
	uint64_t seen = atomic_load(&late.done);

	while (atomic_load(&late.done) < seen + 1)
		sched_yield();
}

/* The owner registers again while an invalidation of the previous tag is under way. */
static void late_invalidation_leaves_the_next_tag_alone(void **state)
{
	struct key_slot *s;
	pthread_t peer;

	assert_int_equal(key_alloc(KEY_FAST_MR, PD, &s), 0);
	atomic_store(&late.tag, s->key);
	assert_int_equal(pthread_create(&peer, NULL, invalidate_late, NULL), 0);
	for (int i = 0; i < LIVES; i++) {
		uint32_t next = key_next(s);

		key_revoke(s);
		key_publish(s, next);
		for (int spin = 0; spin < i % 64; spin++)
			assert_int_equal(atomic_load(&s->stag), next);
		if (i % 64 == 0)
			await_peer();
		assert_int_equal(atomic_load(&s->stag), next);
		atomic_store(&late.tag, next);
	}
	atomic_store(&late.stop, true);
	pthread_join(peer, NULL);
	key_free(s);
}

static void stale_tag_is_refused(void **state)
{
	struct key_slot *s;
	uint32_t old;

	assert_int_equal(key_alloc(KEY_FAST_MR, PD, &s), 0);
	old = s->key;
	key_publish(s, old);
	key_revoke(s);
	key_publish(s, key_next(s));
	assert_int_equal(key_invalidate(old, PD, NULL), -ENOENT);
	assert_int_equal(key_invalidate(s->key, OTHER_PD, NULL), -EACCES);
	assert_int_equal(atomic_load(&s->stag), s->key);
	assert_int_equal(key_invalidate(s->key, PD, NULL), 0);
	assert_int_equal(atomic_load(&s->stag), 0);
	assert_int_equal(key_invalidate(s->key, PD, NULL), 0); /* as before: it is invalid */
	key_free(s);
	assert_int_equal(key_invalidate(s->key, PD, NULL), -ENOENT);
}

/* Memory that an operation on storage uses is not taken away, and its key stays as it was. */
static void key_of_lent_memory_stays(void **state)
{
	struct key_slot *s;

	assert_int_equal(key_alloc(KEY_FAST_MR, PD, &s), 0);
	key_publish(s, s->key);
	assert_true(key_hold(s, s->key));
	atomic_fetch_add(&s->lent, 1);
	assert_int_equal(key_invalidate(s->key, PD, NULL), -EACCES);
	assert_int_equal(atomic_load(&s->stag), s->key);
	atomic_fetch_sub(&s->lent, 1);
	key_release(s);
	assert_int_equal(key_invalidate(s->key, PD, NULL), 0);
	key_free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(late_invalidation_leaves_the_next_tag_alone),
		cmocka_unit_test(stale_tag_is_refused),
		cmocka_unit_test(key_of_lent_memory_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
