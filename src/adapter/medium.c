// SPDX-License-Identifier: BSD-2-Clause
/*
 * medium.c - media, and which threads poll them.
 *
 * The engine watches the event descriptor of every medium. A thread that polls a completion
 * queue polls the media of its queue pairs, too, and claims them with the queue pair (claim.c):
 * a claimed medium is disarmed, so that the engine is not woken for what a poller is about to
 * see.
 */
#include "adapter/store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "adapter/cq.h"
#include "adapter/device.h"
#include "adapter/qp.h"
#include "adapter/store_peer.h"
#include "base/log.h"

#define MOST_ROUNDS 4 /* polls of one medium in a row, before others have their turn */

/* ---- open and close ---- */

/*
 * Returns false if the last reference is gone, and its owner waits for the engine lock to close
 * the medium.
 */
static bool try_get(struct stag_medium *m)
{
	int refs = atomic_load(&m->refs);

	while (refs && !atomic_compare_exchange_weak(&m->refs, &refs, refs + 1))
		;
	return refs;
}

static void on_event(struct watch *w, uint32_t revents)
{
	struct stag_medium *m = container_of(w, struct stag_medium, watch);

	if (!try_get(m)) /* serving a peer may drop the last other reference */
		return;
	media_clear_event(m->media);
	medium_poll(m);
	medium_put(m);
}

static int check_attr(const struct stagdv_medium_attr *a)
{
	const unsigned known =
		STAGDV_MEDIUM_BUFFERED | STAGDV_MEDIUM_VOLATILE | STAGDV_MEDIUM_SHARED;

	if (!a->comp_mask && a->fd >= 0 && !(a->flags & ~known))
		return 0;
	log_info("medium: invalid descriptor %d or flags 0x%x", a->fd, a->flags);
	return -EINVAL;
}

static int open_media(struct stag_medium *m, const struct stagdv_medium_attr *attr)
{
	struct media_attr a = {
		.fd = attr->fd,
		.flags = (attr->flags & STAGDV_MEDIUM_BUFFERED ? MEDIA_BUFFERED : 0) |
			 (attr->flags & STAGDV_MEDIUM_VOLATILE ? MEDIA_VOLATILE : 0) |
			 (attr->flags & STAGDV_MEDIUM_SHARED ? MEDIA_SHARED : 0),
		.staging_bytes = attr->staging_bytes,
		.cache_bytes = attr->cache_bytes,
		.depth = attr->depth,
		.block = attr->block,
	};

	return media_open(&m->media, &a);
}

int medium_open(struct stag_ctx *ctx, const struct stagdv_medium_attr *attr,
		struct stag_medium **out)
{
	struct stag_medium *m;
	int err = check_attr(attr);

	if (!err)
		err = engine_start();
	if (err)
		return err;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	err = open_media(m, attr);
	if (err)
		goto err_free;
	lock_init(&m->lock);
	atomic_store(&m->refs, 1);
	engine_lock();
	err = watch_add(&m->watch, media_event_fd(m->media), EPOLLIN, on_event);
	engine_unlock();
	if (err)
		goto err_close;
	media_arm(m->media);
	m->ctx = ctx;
	ctx_get(ctx);
	*out = m;
	return 0;

err_close:
	lock_destroy(&m->lock);
	media_close(m->media);
err_free:
	free(m);
	return err;
}

int medium_close(struct stag_medium *m)
{
	int regions = atomic_load(&m->regions);

	if (regions) {
		log_info("medium: close refused, %d regions use it", regions);
		return -EBUSY;
	}
	medium_put(m);
	return 0;
}

void medium_get(struct stag_medium *m)
{
	atomic_fetch_add(&m->refs, 1);
}

void medium_put(struct stag_medium *m)
{
	if (atomic_fetch_sub(&m->refs, 1) != 1)
		return;
	engine_lock();
	watch_del(&m->watch);
	engine_unlock();
	media_close(m->media);
	ctx_put(m->ctx);
	lock_destroy(&m->lock);
	free(m);
}

void medium_query(struct stag_medium *m, struct stagdv_medium_counters *c)
{
	struct media_counters n;

	media_query(m->media, &n);
	*c = (struct stagdv_medium_counters){
		.reads = n.reads,
		.writes = n.writes,
		.flushes = n.flushes,
		.atomics = n.atomics,
		.read_bytes = n.read_bytes,
		.written_bytes = n.written_bytes,
		.copied_bytes = n.copied_bytes,
		.submits = n.submits,
		.errors = n.errors,
		.pauses = n.pauses,
		.cache_hits = n.cache_hits,
		.cache_misses = n.cache_misses,
		.cache_bytes = n.cache_bytes,
		.read_times = n.read_times,
		.write_times = n.write_times,
		.flush_times = n.flush_times,
	};
}

/* ---- progress ---- */

static unsigned int poll_once(struct stag_medium *m)
{
	struct list news;
	unsigned int n;

	peers_listen(&news);
	n = media_poll(m->media);
	peers_serve(&news);
	return n;
}

/*
 * Polls again while callbacks run: what peers request when they are served may be done at once,
 * too. The caller holds a reference.
 */
unsigned int medium_poll(struct stag_medium *m)
{
	struct media *before = media_poller_enter(m->media);
	unsigned int sum = 0, n, rounds = 0;

	do {
		n = poll_once(m);
		sum += n;
	} while (n && ++rounds < MOST_ROUNDS);
	media_poller_leave(m->media, before);
	return sum;
}

void medium_claim(struct stag_medium *m)
{
	lock_acquire(&m->lock);
	if (m->claims++ == 0)
		media_disarm(m->media);
	lock_release(&m->lock);
}

void medium_unclaim(struct stag_medium *m)
{
	lock_acquire(&m->lock);
	assert(m->claims);
	if (--m->claims == 0)
		media_arm(m->media);
	lock_release(&m->lock);
}

/* ---- the media of a queue pair ---- */

/*
 * The media that a queue pair's poller polls; the engine polls others. Entries are added under
 * tx_lock, and stay until the queue pair is destroyed, so that a poller reads them without a
 * lock.
 */
struct qp_media {
	struct stag_medium *_Atomic at[QP_MAX_MEDIA];
	bool claimed[QP_MAX_MEDIA]; /* arm_lock */
};

int qp_use_medium(struct stag_qp *qp, struct stag_medium *m)
{
	assert(qp_tx_locked(qp));
	if (!qp->storage.media) {
		struct qp_media *q = calloc(1, sizeof(*q));

		if (!q)
			return -ENOMEM;
		__atomic_store_n(&qp->storage.media, q, __ATOMIC_RELEASE);
	}
	for (int i = 0; i < QP_MAX_MEDIA; i++) {
		struct stag_medium *there = atomic_load(&qp->storage.media->at[i]);

		if (there == m)
			return 0;
		if (there)
			continue;
		medium_get(m);
		atomic_store(&qp->storage.media->at[i], m);
		qp_arm_media(qp);
		return 0;
	}
	return -ENOMEM;
}

/* Claims the media with the queue pair, for its poller, or gives them back to the engine. */
void qp_arm_media(struct stag_qp *qp)
{
	struct qp_media *q = __atomic_load_n(&qp->storage.media, __ATOMIC_ACQUIRE);
	struct stag_cq *cq;
	bool claim;

	if (!q)
		return;
	lock_acquire(&qp->progress.arm_lock);
	cq = atomic_load(&qp->progress.claimed_by);
	claim = cq && atomic_load(&cq->claim) == CLAIM_POLLER; /* a sleeper watches sockets only */
	for (int i = 0; i < QP_MAX_MEDIA; i++) {
		struct stag_medium *m = atomic_load(&q->at[i]);

		if (!m || q->claimed[i] == claim)
			continue;
		q->claimed[i] = claim;
		if (claim)
			medium_claim(m);
		else
			medium_unclaim(m);
	}
	lock_release(&qp->progress.arm_lock);
}

bool qp_poll_media(struct stag_qp *qp)
{
	struct qp_media *q = __atomic_load_n(&qp->storage.media, __ATOMIC_ACQUIRE);
	unsigned int n = 0;

	assert(!qp_rx_locked(qp) && !qp_tx_locked(qp));
	if (!q)
		return false;
	for (int i = 0; i < QP_MAX_MEDIA; i++) {
		struct stag_medium *m = atomic_load_explicit(&q->at[i], memory_order_acquire);

		if (!m)
			break;
		n += medium_poll(m);
	}
	return n > 0;
}

unsigned int qp_media_fds(struct stag_qp *qp, int fds[QP_MAX_MEDIA])
{
	struct qp_media *q = __atomic_load_n(&qp->storage.media, __ATOMIC_ACQUIRE);
	struct stag_medium *m;
	unsigned int n = 0;

	while (q && n < QP_MAX_MEDIA && (m = atomic_load(&q->at[n])))
		fds[n++] = media_event_fd(m->media);
	return n;
}

void qp_clear_media(struct stag_qp *qp)
{
	struct qp_media *q = __atomic_load_n(&qp->storage.media, __ATOMIC_ACQUIRE);
	struct stag_medium *m;

	for (int i = 0; q && i < QP_MAX_MEDIA && (m = atomic_load(&q->at[i])); i++)
		media_clear_event(m->media);
}

struct media *qp_first_medium(struct stag_qp *qp)
{
	struct qp_media *q = __atomic_load_n(&qp->storage.media, __ATOMIC_ACQUIRE);
	struct stag_medium *m = q ? atomic_load(&q->at[0]) : NULL;

	return m ? m->media : NULL;
}

void qp_drop_media(struct stag_qp *qp)
{
	struct qp_media *q = qp->storage.media;

	if (!q)
		return;
	for (int i = 0; i < QP_MAX_MEDIA; i++) {
		struct stag_medium *m = atomic_load(&q->at[i]);

		if (m && q->claimed[i])
			medium_unclaim(m);
		if (m)
			medium_put(m);
	}
	free(q);
	qp->storage.media = NULL;
}
