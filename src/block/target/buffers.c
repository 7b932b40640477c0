// SPDX-License-Identifier: BSD-2-Clause
/*
 * buffers.c - shares of the buffers: no session can hold all of them.
 *
 * A session takes a buffer if it has none, or if an eighth as many as it holds stay free. So a single session uses nearly
 * all buffers, and several get equal shares; the last free one goes to a session that has none. Sessions that wait are
 * served in turn, one buffer each.
 */
#include "block/target/target.h"

#define LEAVES 8 /* a session leaves one buffer free for every so many that it holds */

static unsigned int num_free(const struct stag_block_target *t)
{
	return units_num_buffers(t->units) - t->buffers.in_use;
}

static bool may_take(const struct target_session *s)
{
	unsigned int left = num_free(s->target);

	return left > 0 && (s->buffers == 0 || left - 1 >= (s->buffers + LEAVES - 1) / LEAVES);
}

static struct units_buffer *take(struct target_session *s)
{
	struct units_buffer *b = may_take(s) ? units_buffer(s->target->units) : NULL;

	if (b) {
		s->buffers++;
		s->target->buffers.in_use++;
	}
	return b;
}

/* A session whose turn it is to take a buffer goes before one that has not waited. */
static bool is_anybodys_turn(const struct stag_block_target *t)
{
	return t->buffers.returned && !list_empty(&t->buffers.waiters);
}

static void wait_for_buffer(struct target_session *s, struct target_waiter *w)
{
	if (!list_empty(&w->link))
		return;
	list_add_tail(&s->waiters, &w->link);
	if (!list_empty(&s->waits))
		return;
	s->waits_since = s->target->loop.now;
	list_add_tail(&s->target->buffers.waiters, &s->waits);
}

struct units_buffer *target_buffer(struct target_session *s, struct target_waiter *w)
{
	struct stag_block_target *t = s->target;
	struct units_buffer *b = NULL;

	if (t->buffers.turn == s || (list_empty(&s->waiters) && !is_anybodys_turn(t)))
		b = take(s);
	if (t->buffers.turn == s)
		t->buffers.turn = NULL; /* a turn is one buffer */
	if (!b && w)
		wait_for_buffer(s, w);
	return b;
}

void target_buffer_put(struct target_session *s, struct units_buffer *b)
{
	struct stag_block_target *t = s->target;

	units_put_buffer(t->units, b);
	s->buffers--;
	t->buffers.in_use--;
	t->buffers.returned = true;
}

void target_buffer_forget(struct target_session *s, struct target_waiter *w)
{
	list_del(&w->link);
	if (list_empty(&s->waiters))
		list_del(&s->waits);
}

/* Returns the first session in the list that waits and may take a buffer, or NULL. */
static struct target_session *next_in_turn(struct stag_block_target *t)
{
	list_for_each (it, &t->buffers.waiters) {
		struct target_session *s = list_entry(it, struct target_session, waits);

		if (may_take(s))
			return s;
	}
	return NULL;
}

/* Calls the first waiter of a session, and moves the session to the end of the list. */
static void give_turn(struct stag_block_target *t, struct target_session *s)
{
	struct target_waiter *w = list_entry(s->waiters.next, struct target_waiter, link);

	list_del(&w->link);
	list_del(&s->waits);
	if (!list_empty(&s->waiters)) {
		s->waits_since = t->loop.now;
		list_add_tail(&t->buffers.waiters, &s->waits);
	}
	t->buffers.turn = s;
	w->go(w);
	t->buffers.turn = NULL;
}

void target_buffers_serve(struct stag_block_target *t)
{
	struct target_session *s;

	while ((s = next_in_turn(t)))
		give_turn(t, s);
	t->buffers.returned = false;
}

bool target_buffers_starve(const struct stag_block_target *t, uint64_t since)
{
	list_for_each (it, &t->buffers.waiters) {
		const struct target_session *s = list_entry(it, struct target_session, waits);

		if (s->buffers == 0 && s->waits_since <= since)
			return true;
	}
	return false;
}
