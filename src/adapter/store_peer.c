// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_peer.c - a connection that uses storage: its beginning and end, its buffers, and its
 * service after operations end.
 */
#include "adapter/store_peer.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "adapter/qp.h"
#include "base/log.h"

#define OWN_ALIGNMENT 4096

/* peers that this thread has to serve; NULL: the engine serves them */
static __thread struct list *listening;

/* ---- beginning and end ---- */

static void on_buffer_granted(struct media_waiter *w, void *memory);

static void supply_init(struct peer_supply *s, struct store_peer *p)
{
	s->peer = p;
	s->waiter.granted = on_buffer_granted;
	s->own.supply = s;
}

static struct store_peer *create_peer(struct stag_qp *qp)
{
	struct store_peer *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	lock_init(&p->lock);
	atomic_store(&p->refs, 1);
	p->qp = qp;
	lane_init(&p->lane, &p->lock, PEER_DEPTH);
	supply_init(&p->in, p);
	supply_init(&p->out, p);
	list_init(&p->writes);
	list_init(&p->requests);
	list_init(&p->news);
	return p;
}

struct store_peer *peer_of(struct stag_qp *qp)
{
	struct store_peer *p = qp->storage.peer;

	assert(qp_rx_locked(qp));
	if (p)
		return p;
	p = create_peer(qp);
	if (!p)
		return NULL;
	lock_acquire(&qp->tx_lock);
	qp->storage.peer = p;
	lock_release(&qp->tx_lock);
	/* its socket is no longer slept on: see claim.c */
	atomic_store(&qp->storage.serves_store, true);
	return p;
}

int peer_use(struct store_peer *p, struct stag_medium *m)
{
	struct stag_medium **more;

	assert(qp_rx_locked(p->qp) && !qp_tx_locked(p->qp));
	for (unsigned i = 0; i < p->n_media; i++)
		if (p->media[i] == m)
			return 0;
	more = realloc(p->media, (p->n_media + 1) * sizeof(struct stag_medium *));
	if (!more)
		return -ENOMEM;
	p->media = more;
	medium_get(m);
	p->media[p->n_media++] = m;
	lock_acquire(&p->qp->tx_lock);
	qp_use_medium(p->qp, m); /* if it fails, the engine polls the medium */
	lock_release(&p->qp->tx_lock);
	return 0;
}

static void on_free(struct work *w)
{
	struct store_peer *p = container_of(w, struct store_peer, work);

	lane_end(&p->lane);
	for (unsigned i = 0; i < p->n_media; i++)
		medium_put(p->media[i]);
	free(p->media);
	free(p->in.own.memory);
	free(p->out.own.memory);
	lock_destroy(&p->lock);
	free(p);
}

/* Closing the last medium takes the engine lock, which must not be acquired after another lock. */
static void put_peer(struct store_peer *p)
{
	if (atomic_fetch_sub(&p->refs, 1) != 1)
		return;
	if (engine_locked())
		on_free(&p->work);
	else
		work_queue(&p->work, on_free);
}

/* Ends it once the connection has ended and none of its operations is with a medium. */
static void end_if_idle(struct store_peer *p)
{
	bool idle;

	lock_acquire(&p->lock);
	idle = !p->qp && !p->users && !p->ops && !p->in.waiting && !p->out.waiting && !p->ended;
	p->ended |= idle;
	lock_release(&p->lock);
	if (idle)
		put_peer(p);
}

/* ---- buffers ---- */

static struct peer_buffer *wrap(struct peer_supply *s, struct media *m, void *memory)
{
	struct peer_buffer *b = malloc(sizeof(*b));

	if (!b) {
		media_give_buffer(m, memory);
		return NULL;
	}
	*b = (struct peer_buffer){.memory = memory, .media = m, .supply = s, .refs = 1};
	return b;
}

static void set_waiting(struct peer_supply *s, bool waiting)
{
	assert(lock_held(&s->peer->lock));
	s->waiting = waiting;
	atomic_fetch_add(&s->from->hungry, waiting ? 1 : -1);
}

static void on_buffer_granted(struct media_waiter *w, void *memory)
{
	struct peer_supply *s = container_of(w, struct peer_supply, waiter);
	struct store_peer *p = s->peer;
	struct media *m = s->from->media;

	lock_acquire(&p->lock);
	set_waiting(s, false);
	if (p->qp)
		s->spare = wrap(s, m, memory);
	else
		media_give_buffer(m, memory);
	peer_tell(p);
	lock_release(&p->lock);
}

static void stop_waiting(struct peer_supply *s)
{
	assert(lock_held(&s->peer->lock));
	if (s->waiting && media_stop_waiting(s->from->media, &s->waiter))
		set_waiting(s, false);
}

static struct peer_buffer *take_spare(struct peer_supply *s, struct stag_medium *m)
{
	struct peer_buffer *b = s->spare;

	s->spare = NULL;
	if (b && b->media != m->media) {
		peer_give(b);
		return NULL;
	}
	return b;
}

static struct peer_buffer *take_own(struct peer_supply *s)
{
	if (s->own.refs)
		return NULL;
	if (!s->own.memory)
		s->own.memory = aligned_alloc(OWN_ALIGNMENT, MEDIA_BUFFER_SIZE);
	if (!s->own.memory)
		return NULL;
	s->own.refs = 1;
	return &s->own;
}

struct peer_buffer *peer_take(struct peer_supply *s, struct stag_medium *m)
{
	struct peer_buffer *b = take_spare(s, m);
	void *memory;

	assert(lock_held(&s->peer->lock));
	if (b)
		return b;
	if (s->waiting && s->from != m)
		stop_waiting(s);
	if (!s->waiting) {
		s->from = m;
		memory = media_take_buffer(m->media, &s->waiter);
		if (memory)
			return wrap(s, m->media, memory);
		set_waiting(s, true);
	}
	return take_own(s);
}

struct peer_buffer *peer_try_take(struct peer_supply *s, struct stag_medium *m)
{
	struct peer_buffer *b;

	assert(lock_held(&s->peer->lock));
	if (s->waiting)
		return NULL;
	b = peer_take(s, m);
	stop_waiting(s);
	return b;
}

bool peer_is_starved(const struct peer_supply *s)
{
	assert(lock_held(&s->peer->lock));
	return !s->waiting && !s->own.refs;
}

void peer_give(struct peer_buffer *b)
{
	assert(!b || lock_held(&b->supply->peer->lock));
	if (!b || --b->refs)
		return;
	if (!b->media) {
		peer_tell(b->supply->peer); /* a request may wait for just this buffer */
		return;
	}
	media_give_buffer(b->media, b->memory);
	free(b);
}

/* ---- operations ---- */

void peer_add(struct store_peer *p, struct lane_op *op)
{
	assert(lock_held(&p->lock));
	p->ops++;
	lane_add(&p->lane, op);
}

void peer_done(struct store_peer *p)
{
	assert(lock_held(&p->lock));
	p->ops--;
	peer_tell(p);
}

/* ---- news ---- */

static void serve_peer(struct store_peer *p)
{
	struct stag_qp *qp;

	lock_acquire(&p->lock);
	p->told = false;
	qp = p->qp;
	p->users += qp != NULL;
	peer_advance(p);
	peer_rest(p);
	lane_kick(&p->lane);
	lock_release(&p->lock);
	if (qp) {
		lock_acquire(&qp->rx_lock);
		rx_store_serve(qp, p);
		lock_release(&qp->rx_lock);
		lock_acquire(&qp->tx_lock);
		qp_tx_run(qp);
		lock_release(&qp->tx_lock);
		lock_acquire(&p->lock);
		p->users--;
		lock_release(&p->lock);
	}
	end_if_idle(p);
	put_peer(p);
}

static void on_work(struct work *w)
{
	serve_peer(container_of(w, struct store_peer, work));
}

void peer_tell(struct store_peer *p)
{
	assert(lock_held(&p->lock));
	if (p->told)
		return;
	p->told = true;
	atomic_fetch_add(&p->refs, 1);
	if (listening)
		list_add_tail(listening, &p->news);
	else
		work_queue(&p->work, on_work);
}

void peers_listen(struct list *news)
{
	list_init(news);
	if (!listening)
		listening = news;
}

void peers_serve(struct list *news)
{
	if (listening == news)
		listening = NULL;
	while (!list_empty(news)) {
		struct store_peer *p = list_entry(news->next, struct store_peer, news);

		list_del(&p->news);
		serve_peer(p);
	}
}

/* Threads that serve the queue pair leave soon: they wait for no lock of this thread. */
static void wait_for_users(struct store_peer *p)
{
	assert(lock_held(&p->lock));
	while (p->users) {
		lock_release(&p->lock);
		sched_yield();
		lock_acquire(&p->lock);
	}
}

void peer_leave(struct store_peer *p)
{
	struct list news;

	if (!p)
		return;
	assert(engine_locked());
	peers_listen(&news);
	lock_acquire(&p->lock);
	p->qp = NULL;
	atomic_fetch_add(&p->refs, 1);
	wait_for_users(p);
	for (struct peer_supply *s = &p->in;; s = &p->out) {
		stop_waiting(s);
		peer_give(s->spare);
		s->spare = NULL;
		if (s == &p->out)
			break;
	}
	peer_rest(p);
	lane_kick(&p->lane);
	if (p->work.queued) {
		work_cancel(&p->work);
		list_add_tail(&news, &p->news);
	}
	lock_release(&p->lock);
	peers_serve(&news);
	end_if_idle(p);
	put_peer(p);
}
