// SPDX-License-Identifier: BSD-2-Clause
/*
 * claim.c - which thread watches which socket.
 *
 * A thread that polls a completion queue reads the sockets of its queue pairs itself. After a
 * few polls of an empty queue that is not armed, the thread is taken to be spinning, and claims
 * the sockets: the engine no longer watches them, and is not woken for bytes that the poller is
 * about to see anyway. A few queue pairs are claimed all at once. Of many, only the active ones
 * are claimed (the engine hands them over), and those that fall silent go back to the engine.
 */
#include "adapter/claim.h"

#include <assert.h>
#include <sched.h>
#include <sys/epoll.h>

#include "adapter/channel.h"
#include "adapter/qp.h"
#include "adapter/rc.h"
#include "adapter/store.h"
#include "adapter/ud.h"

#define CLAIM_AFTER 8 /* polls of an empty queue since it was armed */
#define FEW	    8 /* queue pairs: up to so many, each is read at every poll */
/* polls without a byte, after which it goes back if more than FEW are claimed */
#define SILENT	   8192
#define HELP_AFTER 64 /* fruitless polls, after which the poller does the engine's work */

/* While reading is paused, a peer's hang-up, which epoll reports unasked, is reported once. */
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
	/* A UD queue pair sends by another socket. */
	blocked = !qp->ud && atomic_load(&qp->progress.tx_blocked);
	if (!cq)
		events = watched_events(atomic_load(&qp->progress.rx_paused), blocked);
	else if (blocked && atomic_load(&cq->claim) == CLAIM_SLEEPER)
		events = EPOLLOUT; /* a sleeper watches for incoming bytes only */
	else
		events = 0;
	watch_mod(&qp->progress.watch, events);
	if (qp->ud)
		ud_arm(qp);
	lock_release(&qp->progress.arm_lock);
	qp_arm_media(qp);
}

/* A sleeper watches sockets; these queue pairs have none, or one that is not read at times. */
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
		if (qp->rc)
			rc_flush_acks(qp); /* the poller may have left them for its next poll */
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
	/* Claimed in another way before: another thread may have to watch for room now. */
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

/* Adds one with a plain store: there is one writer, and an atomic addition costs more. */
static uint32_t count_up(_Atomic uint32_t *n)
{
	uint32_t v = atomic_load_explicit(n, memory_order_relaxed) + 1;

	atomic_store_explicit(n, v, memory_order_relaxed);
	return v;
}

/* Claims queue pairs on storage: they have no socket for which the engine could hand them over. */
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

/* Returns whether any of them had something to read. */
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

void cq_look(struct stag_cq *cq)
{
	if (!lock_try(&cq->qps_lock))
		return; /* another thread is reading */
	list_for_each (l, &cq->qps)
		qp_progress(list_entry(l, struct qp_attachment, link)->qp);
	lock_release(&cq->qps_lock);
}

void cq_progress(struct stag_cq *cq)
{
	bool help = false;

	if (!lock_try(&cq->qps_lock)) {
		sched_yield(); /* the thread that makes progress may wait for this very processor */
		return;
	}
	note_spinning(cq);
	if (cq->n_qps <= FEW) {
		list_for_each (l, &cq->qps)
			qp_progress(list_entry(l, struct qp_attachment, link)->qp);
	} else {
		/*
		 * A poller that always finds something keeps the engine off its processor: do
		 * the engine's work here.
		 */
		help = progress_claimed(cq) ||
		       atomic_load(&cq->empty_polls) % HELP_AFTER == HELP_AFTER - 1;
	}
	lock_release(&cq->qps_lock);
	if (help)
		engine_help();
}
