// SPDX-License-Identifier: BSD-2-Clause
/*
 * ledger.c - a record of advertised STags: those that are open, and the last ones that ended.
 *
 * STags that ended are in one ring for the process. Each entry has a lock of its own, for which
 * two threads compete only if one of them queries the ledger, or is a whole turn behind.
 */
#include "adapter/ledger.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/keys.h"
#include "adapter/one_shot.h"

#define ENTRIES 4096

struct entry {
	atomic_bool locked;
	struct stagdv_stag stag; /* stag 0: none yet */
};

static struct entry ring[ENTRIES];
static _Atomic uint64_t put; /* free-running */

static struct entry *lock_entry(uint64_t i)
{
	struct entry *e = &ring[i % ENTRIES];

	while (atomic_exchange_explicit(&e->locked, true, memory_order_acquire))
		sched_yield();
	return e;
}

static void unlock_entry(struct entry *e)
{
	atomic_store_explicit(&e->locked, false, memory_order_release);
}

void ledger_add(const struct stagdv_stag *stag)
{
	struct entry *e = lock_entry(atomic_fetch_add_explicit(&put, 1, memory_order_relaxed));

	e->stag = *stag;
	unlock_entry(e);
}

/*
 * Counts a late use of an STag that has ended. The connection ends with it, so a slow search is
 * fine.
 */
bool ledger_late(uint32_t stag, uint32_t qp_num, struct stagdv_stag *out)
{
	uint64_t last = atomic_load(&put);

	for (uint64_t i = 1; stag && i <= ENTRIES && i <= last; i++) {
		struct entry *e = lock_entry(last - i);
		bool found = e->stag.stag == stag;

		if (found) {
			e->stag.late++;
			e->stag.late_qp_num = qp_num;
			*out = e->stag;
		}
		unlock_entry(e);
		if (found)
			return true;
	}
	return false;
}

/* ---- all of it ---- */

struct page { /* a copy of the ledger that grows */
	struct stagdv_stag *list;
	size_t n, room;
	bool failed;
};

static void note(struct page *p, const struct stagdv_stag *stag)
{
	if (p->n == p->room) {
		size_t room = p->room ? p->room * 2 : ENTRIES;
		struct stagdv_stag *list = realloc(p->list, room * sizeof(*list));

		if (!list) {
			p->failed = true;
			return;
		}
		p->list = list;
		p->room = room;
	}
	p->list[p->n++] = *stag;
}

static void note_open(const struct shot *s, void *arg)
{
	struct stagdv_stag stag;

	if (!shot_is_open(s))
		return;
	shot_describe(s, &stag);
	note(arg, &stag);
}

static int by_age(const void *a, const void *b)
{
	const struct stagdv_stag *x = a, *y = b;

	return x->made < y->made ? -1 : x->made > y->made;
}

ssize_t ledger_query(void *list, size_t n, size_t size)
{
	struct page p = {.list = NULL};
	uint64_t last = atomic_load(&put);
	size_t part = size < sizeof(*p.list) ? size : sizeof(*p.list);
	ssize_t count;

	for (uint64_t i = last > ENTRIES ? last - ENTRIES : 0; i < last; i++) {
		struct entry *e = lock_entry(i);

		if (e->stag.stag)
			note(&p, &e->stag);
		unlock_entry(e);
	}
	key_each_shot(note_open, &p);
	count = p.failed ? -ENOMEM : (ssize_t)p.n;
	if (p.n)
		qsort(p.list, p.n, sizeof(*p.list), by_age);
	for (size_t i = 0; !p.failed && i < n && i < p.n; i++) {
		memset((uint8_t *)list + i * size, 0, size);
		memcpy((uint8_t *)list + i * size, &p.list[i], part);
	}
	free(p.list);
	return count;
}

void ledger_after_fork(void)
{
	for (size_t i = 0; i < ENTRIES; i++)
		atomic_store(&ring[i].locked, false);
}
