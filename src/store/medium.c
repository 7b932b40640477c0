// SPDX-License-Identifier: BSD-2-Clause
/*
 * medium.c - media of this process's endpoints: one for each store, shared by its endpoints.
 *
 * A medium has a ring and registered memory; opening one takes far longer than connecting.
 */
#include "store/endpoint.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/lock.h"

/* Read-only and writable users have one each: the descriptor limits what they may do. */
struct shared_medium {
	struct list link;
	unsigned int refs; /* one per endpoint */
	const struct dv *dv;
	struct ibv_context *context;
	struct stat st;
	bool writable;
	struct stagdv_medium *medium;
};

static struct lock lock = LOCK_INITIALIZER; /* protects media and their reference counts */
static struct list media = {&media, &media};

/* ---- processes --------------------------------------------------------------------- */

static void lock_for_fork(void)
{
	lock_acquire(&lock);
}

static void unlock_after_fork(void)
{
	lock_release(&lock);
}

/* A child cannot use its parent's media; it opens its own. */
static void forget_after_fork(void)
{
	list_for_each_safe (it, &media)
		list_del(it);
	lock_release(&lock);
}

static void watch_forks(void)
{
	pthread_atfork(lock_for_fork, unlock_after_fork, forget_after_fork);
}

/* ---- get and put ------------------------------------------------------------------------ */

static struct shared_medium *find_medium(const struct ibv_context *context, const struct backing *b)
{
	list_for_each (it, &media) {
		struct shared_medium *m = list_entry(it, struct shared_medium, link);

		if (m->context == context && m->writable == b->writable &&
		    backing_is_same_file(&m->st, &b->st))
			return m;
	}
	return NULL;
}

static struct shared_medium *create_medium(const struct dv *dv, struct ibv_context *context,
					   const struct stag_store *store)
{
	struct shared_medium *m = calloc(1, sizeof(*m));

	if (!m) {
		errno = -store_fail(ENOMEM, "no memory");
		return NULL;
	}
	*m = (struct shared_medium){.dv = dv,
				    .context = context,
				    .st = store->backing.st,
				    .writable = store->backing.writable};
	m->medium = dv_open_medium(dv, context, store, 0, 0);
	if (m->medium) {
		list_add_tail(&media, &m->link);
		return m;
	}
	free(m);
	return NULL;
}

struct shared_medium *shared_medium_get(const struct dv *dv, struct ibv_context *context,
					const struct stag_store *store)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct shared_medium *m;

	pthread_once(&once, watch_forks);
	HOLD_FOR_SCOPE(&lock);
	m = find_medium(context, &store->backing);
	if (!m)
		m = create_medium(dv, context, store);
	if (m)
		m->refs++;
	return m;
}

struct stagdv_medium *shared_medium_of(const struct shared_medium *m)
{
	return m->medium;
}

void shared_medium_put(struct shared_medium *m)
{
	if (!m)
		return;
	HOLD_FOR_SCOPE(&lock);
	if (--m->refs > 0)
		return;
	list_del(&m->link);
	m->dv->close_medium(m->medium);
	free(m);
}
