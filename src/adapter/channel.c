// SPDX-License-Identifier: BSD-2-Clause
/*
 * channel.c - completion channels, on which programs sleep until a completion.
 *
 * The descriptor is an eventfd that counts the events queued here, so that poll(), epoll and
 * O_NONBLOCK work on it. A thread that blocks in channel_get_event() watches the sockets of its
 * queue pairs itself: an arriving message wakes that thread, rather than the engine thread
 * first. Media are watched by both, because other queue pairs may use them too: the first to
 * wake polls.
 */
#include "adapter/channel.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "adapter/claim.h"
#include "adapter/device.h"
#include "adapter/misuse.h"
#include "adapter/qp.h"
#include "adapter/store.h"
#include "base/log.h"

/*
 * The channel for which this thread, as its sleeper, makes progress. An event that results is
 * for this thread, and need not go through the descriptor.
 */
static __thread struct stag_channel *awake_for;
static __thread struct stag_cq *woke_me;

int channel_create(struct stag_ctx *ctx, struct stag_channel **out)
{
	struct stag_channel *ch = calloc(1, sizeof(*ch));

	if (!ch)
		return -ENOMEM;
	ch->ibv.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	if (ch->ibv.fd < 0) {
		int err = -errno;

		free(ch);
		return err;
	}
	ch->ibv.context = &ctx->v.context;
	lock_init(&ch->lock);
	lock_init(&ch->cqs_lock);
	list_init(&ch->ready);
	list_init(&ch->cqs);
	ctx_get(ctx);
	*out = ch;
	return 0;
}

int channel_destroy(struct stag_channel *ch)
{
	bool busy;

	lock_acquire(&ch->cqs_lock);
	busy = !list_empty(&ch->cqs);
	lock_release(&ch->cqs_lock);
	if (busy) {
		misuse(__func__, (uint64_t)ch->ibv.fd,
		       "channel %d: destroy refused, completion queues use it", ch->ibv.fd);
		return -EBUSY;
	}
	close(ch->ibv.fd);
	lock_destroy(&ch->lock);
	lock_destroy(&ch->cqs_lock);
	ctx_put(to_stag_ctx(ch->ibv.context));
	free(ch);
	return 0;
}

/* ---- events ---- */

void channel_wake(struct stag_channel *ch, struct stag_cq *cq)
{
	uint64_t one = 1;

	lock_acquire(&ch->lock);
	if (awake_for == ch && !woke_me) {
		woke_me = cq;
		cq->events_sent++; /* destroying the queue waits for its acknowledgement */
		lock_release(&ch->lock);
		return;
	}
	if (cq->ready_count++ == 0)
		list_add_tail(&ch->ready, &cq->ready);
	if (write(ch->ibv.fd, &one, sizeof(one)) < 0)
		log_err("channel %d: an event could not be raised", ch->ibv.fd);
	lock_release(&ch->lock);
}

/* Takes one off the descriptor's count, which is not zero: never blocks. */
static void lower_count(struct stag_channel *ch)
{
	uint64_t n;

	assert(lock_held(&ch->lock));
	if (read(ch->ibv.fd, &n, sizeof(n)) < 0)
		log_err("channel %d: the descriptor counts other events than are queued",
			ch->ibv.fd);
}

void channel_forget(struct stag_channel *ch, struct stag_cq *cq)
{
	lock_acquire(&ch->lock);
	for (; cq->ready_count; cq->ready_count--)
		lower_count(ch);
	list_del(&cq->ready);
	lock_release(&ch->lock);
}

static struct stag_cq *take_event(struct stag_channel *ch)
{
	struct stag_cq *cq = NULL;

	lock_acquire(&ch->lock);
	if (!list_empty(&ch->ready)) {
		cq = list_entry(ch->ready.next, struct stag_cq, ready);
		list_del(&cq->ready);
		if (--cq->ready_count)
			list_add_tail(&ch->ready, &cq->ready);
		cq->events_sent++;
		lower_count(ch);
	}
	lock_release(&ch->lock);
	return cq;
}

/* ---- sleeping ---- */

#define MOST_MEDIA 8

struct nap {
	struct pollfd fd[1 + CQ_MAX_CLAIM + MOST_MEDIA]; /* the first is the channel's */
	unsigned n;
	unsigned n_media; /* how many of these are media */
};

static bool sockets_fit(struct stag_channel *ch)
{
	unsigned n = 0;

	assert(lock_held(&ch->cqs_lock));
	list_for_each (l, &ch->cqs) {
		struct stag_cq *cq = list_entry(l, struct stag_cq, channel_link);

		lock_acquire(&cq->qps_lock);
		n += cq->n_qps;
		lock_release(&cq->qps_lock);
	}
	return n <= CQ_MAX_CLAIM;
}

static bool is_watched(const struct nap *nap, int fd)
{
	for (unsigned i = 1; i < nap->n; i++)
		if (nap->fd[i].fd == fd)
			return true;
	return false;
}

/* Watches the media of a queue's queue pairs. Those that do not fit are left to the engine. */
static void watch_media(struct stag_cq *cq, struct nap *nap)
{
	int fds[QP_MAX_MEDIA];

	assert(lock_held(&cq->qps_lock));
	if (!atomic_load(&cq->n_on_store))
		return;
	list_for_each (l, &cq->qps) {
		struct stag_qp *qp = list_entry(l, struct qp_attachment, link)->qp;
		unsigned n = atomic_load(&qp->storage.on_store) ? qp_media_fds(qp, fds) : 0;

		while (n-- > 0 && nap->n_media < MOST_MEDIA) {
			if (is_watched(nap, fds[n]))
				continue;
			nap->fd[nap->n++] = (struct pollfd){.fd = fds[n], .events = POLLIN};
			nap->n_media++;
		}
	}
}

/* Claims the queue pairs of one completion queue. Returns false if there are too many to watch. */
static bool watch_cq(struct stag_cq *cq, struct nap *nap)
{
	assert(lock_held(&cq->qps_lock));
	if (cq->n_qps > CQ_MAX_CLAIM + 1 - (nap->n - nap->n_media))
		return false;
	claim_all(cq, CLAIM_SLEEPER);
	if (cq->n_claimed)
		engine_note_polled(cq);
	for (unsigned i = 0; i < cq->n_claimed; i++)
		nap->fd[nap->n++] =
			(struct pollfd){.fd = cq->claimed[i]->progress.watch.fd, .events = POLLIN};
	watch_media(cq, nap);
	return true;
}

static bool watch_cqs(struct stag_channel *ch, struct nap *nap)
{
	assert(lock_held(&ch->cqs_lock));
	list_for_each (l, &ch->cqs) {
		struct stag_cq *cq = list_entry(l, struct stag_cq, channel_link);
		bool ok;

		lock_acquire(&cq->qps_lock);
		ok = watch_cq(cq, nap);
		lock_release(&cq->qps_lock);
		if (!ok)
			return false;
	}
	return nap->n > 1;
}

/* Gives all of them back to the engine. */
static void unwatch_cqs(struct stag_channel *ch)
{
	assert(lock_held(&ch->cqs_lock));
	list_for_each (l, &ch->cqs) {
		struct stag_cq *cq = list_entry(l, struct stag_cq, channel_link);

		lock_acquire(&cq->qps_lock);
		claim_release(cq);
		lock_release(&cq->qps_lock);
	}
}

/*
 * Returns false if the sockets are to stay with their present watcher: then the caller waits
 * for the channel alone.
 */
static bool start_watching(struct stag_channel *ch, struct nap *nap)
{
	bool ok;

	nap->fd[0] = (struct pollfd){.fd = ch->ibv.fd, .events = POLLIN};
	nap->n = 1;
	nap->n_media = 0;
	/* There is one watcher at a time: a claimed socket must be in its list. */
	if (atomic_exchange(&ch->watched, true))
		return false;
	lock_acquire(&ch->cqs_lock);
	ok = sockets_fit(ch);
	if (ok && !watch_cqs(ch, nap)) {
		unwatch_cqs(ch);
		ok = false;
	}
	lock_release(&ch->cqs_lock);
	if (!ok) {
		nap->n = 1;
		atomic_store(&ch->watched, false);
	}
	return ok;
}

/* Other sleepers watch the channel alone: the engine takes the sockets over. */
static void stop_watching(struct stag_channel *ch)
{
	atomic_store(&ch->watched, false);
	if (atomic_load(&ch->sleepers) == 1)
		return;
	lock_acquire(&ch->cqs_lock);
	unwatch_cqs(ch);
	lock_release(&ch->cqs_lock);
}

static void poll_media(struct stag_cq *cq)
{
	assert(lock_held(&cq->qps_lock));
	if (!atomic_load(&cq->n_on_store))
		return;
	list_for_each (l, &cq->qps) {
		struct stag_qp *qp = list_entry(l, struct qp_attachment, link)->qp;

		if (!atomic_load(&qp->storage.on_store))
			continue;
		qp_clear_media(qp);
		qp_poll_media(qp);
	}
}

static void progress_claimed(struct stag_channel *ch)
{
	lock_acquire(&ch->cqs_lock);
	list_for_each (l, &ch->cqs) {
		struct stag_cq *cq = list_entry(l, struct stag_cq, channel_link);

		lock_acquire(&cq->qps_lock);
		atomic_fetch_add_explicit(&cq->poll_ticks, 1, memory_order_relaxed);
		for (unsigned i = 0; i < cq->n_claimed; i++)
			qp_progress(cq->claimed[i]);
		poll_media(cq);
		lock_release(&cq->qps_lock);
	}
	lock_release(&ch->cqs_lock);
}

/* Sleeps until the channel, or one of its sockets or media, has something; -EINTR. */
static int nap_once(struct stag_channel *ch)
{
	struct nap nap;
	bool watching;
	int err = 0;

	atomic_fetch_add(&ch->sleepers, 1);
	watching = start_watching(ch, &nap);
	if (poll(nap.fd, nap.n, -1) < 0)
		err = -errno;
	if (watching && !err && !nap.fd[0].revents) {
		awake_for = ch;
		progress_claimed(ch);
		awake_for = NULL;
	}
	if (watching)
		stop_watching(ch);
	atomic_fetch_sub(&ch->sleepers, 1);
	return err;
}

/* Returns the event that this thread has raised itself, or NULL. */
static struct stag_cq *own_event(void)
{
	struct stag_cq *cq = woke_me;

	woke_me = NULL;
	return cq;
}

int channel_get_event(struct stag_channel *ch, struct stag_cq **cq)
{
	int flags = -1;

	for (;;) {
		int err;

		*cq = take_event(ch);
		if (*cq)
			return 0;
		if (flags < 0)
			flags = fcntl(ch->ibv.fd, F_GETFL);
		if (flags < 0)
			return -errno;
		if (flags & O_NONBLOCK)
			return -EAGAIN;
		err = nap_once(ch);
		if (err)
			return err;
		*cq = own_event();
		if (*cq)
			return 0;
	}
}
