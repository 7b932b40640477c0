/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock.h - a mutex that knows its owner, so that "the caller holds it" is an assert.
 *
 * A function that requires a lock begins with assert(lock_held(&x->lock)). Builds without NDEBUG record the owning
 * thread at each acquisition. They also abort where a thread acquires a lock that it holds already (a deadlock) and
 * where it releases one that it does not hold. With NDEBUG a lock is a pthread_mutex_t and nothing else.
 */
#ifndef STAG_BASE_LOCK_H
#define STAG_BASE_LOCK_H

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

struct lock {
	pthread_mutex_t mutex;
#ifndef NDEBUG
	_Atomic(pthread_t)
		owner; /* 0: none. Written by the owner only, so others may read it unlocked */
#endif
};

/* Initialises a static lock; a forked child assigns (struct lock)LOCK_INITIALIZER to one that a lost thread held. */
#define LOCK_INITIALIZER                                                                           \
	{                                                                                          \
		.mutex = PTHREAD_MUTEX_INITIALIZER                                                 \
	}

/* Returns whether the calling thread holds the lock. For asserts only: always true with NDEBUG. */
static inline bool lock_held(const struct lock *l)
{
#ifndef NDEBUG
	return pthread_equal(atomic_load_explicit(&l->owner, memory_order_relaxed), pthread_self());
#else
	return true;
#endif
}

static inline void lock_note_acquired(struct lock *l)
{
#ifndef NDEBUG
	atomic_store_explicit(&l->owner, pthread_self(), memory_order_relaxed);
#endif
}

static inline void lock_note_released(struct lock *l)
{
	assert(lock_held(l));
#ifndef NDEBUG
	atomic_store_explicit(&l->owner, (pthread_t)0, memory_order_relaxed);
#endif
}

/* Initialises with attributes; NULL: the default kind. A recursive mutex would lose its owner at the first release. */
static inline void lock_init_attr(struct lock *l, const pthread_mutexattr_t *attr)
{
	pthread_mutex_init(&l->mutex, attr);
#ifndef NDEBUG
	atomic_init(&l->owner, (pthread_t)0);
#endif
}

static inline void lock_init(struct lock *l)
{
	lock_init_attr(l, NULL);
}

static inline void lock_destroy(struct lock *l)
{
	pthread_mutex_destroy(&l->mutex);
}

static inline void lock_acquire(struct lock *l)
{
#ifndef NDEBUG
	assert(!lock_held(l));
#endif
	pthread_mutex_lock(&l->mutex);
	lock_note_acquired(l);
}

/* Returns false, without waiting, if another thread holds the lock (or this one does). */
static inline bool lock_try(struct lock *l)
{
	if (pthread_mutex_trylock(&l->mutex))
		return false;
	lock_note_acquired(l);
	return true;
}

static inline void lock_release(struct lock *l)
{
	lock_note_released(l);
	pthread_mutex_unlock(&l->mutex);
}

/* Waits for the condition: the lock is released meanwhile, and held again on return. */
static inline void lock_wait(struct lock *l, pthread_cond_t *cond)
{
	lock_note_released(l);
	pthread_cond_wait(cond, &l->mutex);
	lock_note_acquired(l);
}

/* The same until a time of the condition's clock. Returns 0, or ETIMEDOUT as pthread_cond_timedwait() does. */
static inline int lock_wait_until(struct lock *l, pthread_cond_t *cond,
				  const struct timespec *until)
{
	int rc;

	lock_note_released(l);
	rc = pthread_cond_timedwait(cond, &l->mutex, until);
	lock_note_acquired(l);
	return rc;
}

static inline void lock_cleanup(struct lock **l)
{
	lock_release(*l);
}

#define LOCK_PASTE(a, b) a##b
#define LOCK_NAME(line)	 LOCK_PASTE(held_lock_, line)

/* Holds a lock from here to the end of the enclosing scope. */
#define HOLD_FOR_SCOPE(l)                                                                          \
	__attribute__((cleanup(lock_cleanup), unused)) struct lock *LOCK_NAME(__LINE__) =          \
		(lock_acquire(l), (l))

#endif
