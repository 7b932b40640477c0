// SPDX-License-Identifier: BSD-2-Clause
/*
 * saver.c - writes the node's state to disk in a thread of its own, because a disk may take longer than a lease.
 * Only the latest state is written.
 */
#include "pool/node/node.h"

#include <errno.h>

#include "base/log.h"

static bool await_state(struct saver *s, struct pool_state *state)
{
	HOLD_FOR_SCOPE(&s->lock);
	while (!s->pending && !s->closing)
		lock_wait(&s->lock, &s->told);
	*state = s->state;
	if (!s->pending)
		return false;
	s->pending = false;
	return true;
}

static void *saver_thread(void *arg)
{
	struct saver *s = arg;
	struct pool_state state;

	while (await_state(s, &state))
		if (state_save(s->dir, &state) != 0)
			log_warn("node %s: epoch %llu could not be saved", state.node,
				 (unsigned long long)state.epoch);
	return NULL;
}

int saver_start(struct saver *s, int dir)
{
	int rc;

	s->dir = dir;
	lock_init(&s->lock);
	pthread_cond_init(&s->told, NULL);
	rc = -pthread_create(&s->thread, NULL, saver_thread, s);
	s->running = rc == 0;
	return rc;
}

void saver_save(struct saver *s, const struct pool_state *state)
{
	HOLD_FOR_SCOPE(&s->lock);
	s->state = *state;
	s->pending = true;
	pthread_cond_signal(&s->told);
}

void saver_stop(struct saver *s)
{
	if (!s->running)
		return;
	lock_acquire(&s->lock);
	s->closing = true;
	pthread_cond_signal(&s->told);
	lock_release(&s->lock);
	pthread_join(s->thread, NULL);
	pthread_cond_destroy(&s->told);
	lock_destroy(&s->lock);
}
