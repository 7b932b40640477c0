// SPDX-License-Identifier: BSD-2-Clause
/*
 * claim.c - who watches which socket.
 *
 * A thread that polls a completion queue reads the sockets of its queue pairs
 * itself. When it has done so for a few polls, and has not armed the queue, it
 * is plainly spinning, and claims them: the engine no longer watches them, and
 * is not woken for what the poller is about to see anyway. A few queue pairs are claimed all at once; of
 * many, those are that have something to say (the engine hands them over),
 * and those that fall silent go back.
 */
#include "adapter/claim.h"

#include <assert.h>
#include <sched.h>
#include <sys/epoll.h>

#include "adapter/channel.h"
#include "adapter/qp.h"
#include "adapter/store.h"

#define CLAIM_AFTER 8	 /* polls of an empty queue, since it was armed */
#define FEW	    8	 /* queue pairs: read each of them at every poll */
#define SILENT	    8192 /* polls with no byte: give it back, where more than a few are claimed */
#define HELP_AFTER  64	 /* looks in vain: look at what the engine would be woken for */

/* A peer that has gone is reported whether we ask or not: while nobody may read, once is enough. */
static uint32_t watched_events(bool paused, bool blocked)
{
	if (blocked)
		return EPOLLOUT | (paused ? 0 : EPOLLIN);
	return paused ? EPOLLET : EPOLLIN;
}

void qp_arm(struct stag_qp *qp)
{
	struct stag_cq *cq;
	bool blocked;
	uint32_t events;

	lock_acquire(&qp->progress.arm_lock);
	cq = atomic_load(&qp->progress.claimed_by);
	blocked = atomic_load(&qp->progress.tx_blocked);
	if (!cq)
		events = watched_events(atomic_load(&qp->progress.rx_paused), blocked);
	else if (blocked && atomic_load(&cq->claim) == CLAIM_SLEEPER)
		events = EPOLLOUT; /* a sleeper watches for bytes only */
	else
		events = 0;
	watch_mod(&qp->progress.watch, events);
	lock_release(&qp->progress.arm_lock);
	qp_arm_media(qp);
}

/* Who sleeps watches sockets; these have none, or one that nobody may read at times. */
static bool needs_engine(const struct stag_qp *qp)
{
	return atomic_load(&qp->storage.on_store) || atomic_load(&qp->storage.serves_store) ||
	       atomic_load(&qp->progress.rx_paused);
}

bool claim_one(struct stag_cq *cq, struct stag_qp *qp, enum cq_claim how)
{
	struct stag_cq *nobody = NULL;
	int state = atomic_load(&qp->state);

	assert(lock_held(&cq->qps_lock));
	if (cq->n_claimed == CQ_MAX_CLAIM || (state != QP_RTS && state != QP_CLOSING))
		return false;
	if (how == CLAIM_SLEEPER && needs_engine(qp))
		return false;
	if (!atomic_compare_exchange_strong(&qp->progress.claimed_by, &nobody, cq))
		return false;
	atomic_store(&cq->claim, how);
	cq->claimed[cq->n_claimed++] = qp;
	qp->progress.idle_polls = 0;
	qp_arm(qp);
	return true;
}

bool claim_is_slept_on(const struct stag_cq *cq)
{
	return cq->channel && atomic_load(&cq->channel->watched);
}

void claim_drop(struct stag_cq *cq, struct stag_qp *qp)
{
	assert(lock_held(&cq->qps_lock));
	for (unsigned i = 0; i < cq->n_claimed; i++) {
		if (cq->claimed[i] != qp)
			continue;
		cq->claimed[i] = cq->claimed[--cq->n_claimed];
		atomic_store(&qp->progress.claimed_by, NULL);
		qp_arm(qp);
		return;
	}
}

void claim_all(struct stag_cq *cq, enum cq_claim how)
{
	int before = atomic_load(&cq->claim);

	assert(lock_held(&cq->qps_lock));
	for (unsigned i = 0; how == CLAIM_SLEEPER && i < cq->n_claimed; i++)
		if (needs_engine(cq->claimed[i]))
			claim_drop(cq, cq->claimed[i]), i--;
	list_for_each (l, &cq->qps)
		claim_one(cq, list_entry(l, struct qp_attachment, link)->qp, how);
	if (!cq->n_claimed || before == (int)how)
		return;
	/* Those that were claimed otherwise: who watches for room may be another now. */
	atomic_store(&cq->claim, how);
	for (unsigned i = 0; i < cq->n_claimed; i++)
		qp_arm(cq->claimed[i]);
}

void claim_release(struct stag_cq *cq)
{
	assert(lock_held(&cq->qps_lock));
	while (cq->n_claimed)
		claim_drop(cq, cq->claimed[0]);
	atomic_store(&cq->claim, CLAIM_NONE);
	atomic_store_explicit(&cq->empty_polls, 0, memory_order_relaxed);
}

/* Adds one, where nobody else adds: cheaper than an addition that others may take part in. */
static uint32_t count_up(_Atomic uint32_t *n)
{
	uint32_t v = atomic_load_explicit(n, memory_order_relaxed) + 1;

	atomic_store_explicit(n, v, memory_order_relaxed);
	return v;
}

/* Those on storage have no socket that the engine could hear of, and hand over. */
static void claim_stores(struct stag_cq *cq)
{
	list_for_each (l, &cq->qps) {
		struct stag_qp *qp = list_entry(l, struct qp_attachment, link)->qp;

		if (atomic_load(&qp->storage.on_store))
			claim_one(cq, qp, CLAIM_POLLER);
	}
}

static void note_spinning(struct stag_cq *cq)
{
	uint32_t n = count_up(&cq->empty_polls);

	assert(lock_held(&cq->qps_lock));
	count_up(&cq->poll_ticks);
	if (n < CLAIM_AFTER)
		return;
	engine_note_polled(cq);
	if (n % CLAIM_AFTER || cq->n_claimed >= cq->n_qps || claim_is_slept_on(cq))
		return;
	if (cq->n_qps <= FEW)
		claim_all(cq, CLAIM_POLLER);
	else if (cq->n_claimed < CQ_MAX_CLAIM && atomic_load(&cq->n_on_store) > cq->n_claimed)
		claim_stores(cq);
}

/* false: none of them had anything to say. */
static bool progress_claimed(struct stag_cq *cq)
{
	bool any = false;

	assert(lock_held(&cq->qps_lock));
	for (unsigned i = 0; i < cq->n_claimed; i++) {
		struct stag_qp *qp = cq->claimed[i];

		if (qp_progress(qp)) {
			qp->progress.idle_polls = 0;
			any = true;
		} else if (++qp->progress.idle_polls > SILENT && cq->n_claimed > FEW) {
			claim_drop(cq, qp), i--;
		}
	}
	return any;
}

void cq_progress(struct stag_cq *cq)
{
	bool help = false;

	if (!lock_try(&cq->qps_lock)) {
		sched_yield(); /* somebody is at it, and may wait for this very processor */
		return;
	}
	note_spinning(cq);
	if (cq->n_qps <= FEW) {
		list_for_each (l, &cq->qps)
			qp_progress(list_entry(l, struct qp_attachment, link)->qp);
	} else {
		/* Who always finds something keeps the engine from its processor, and the others wait. */
		help = progress_claimed(cq) ||
		       atomic_load(&cq->empty_polls) % HELP_AFTER == HELP_AFTER - 1;
	}
	lock_release(&cq->qps_lock);
	if (help)
		engine_help();
}
