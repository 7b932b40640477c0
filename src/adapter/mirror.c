// SPDX-License-Identifier: BSD-2-Clause
/*
 * mirror.c - regions with a copy on another machine, which the adapter keeps up to date.
 *
 * Keeps the list of each region's mirrors, and of the writers that wait for one. A peer's write
 * is handed to the queue pair of each mirror (tx_forward.c) by the receiver that placed it
 * (rx_mirror.c).
 *
 * The lists are changed under the lock for writing, by calls of the program that hold no other
 * lock. Receivers hold it for reading, between their own rx_lock and the tx_lock of a mirror's
 * queue pair; a thread that holds a tx_lock never acquires it. Therefore a queue pair that
 * fails cannot remove its mirrors: a mirror finds out by the queue pair's state, and has then
 * ended for good.
 */
#include "adapter/mirror.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "adapter/mr.h"
#include "adapter/qp.h"
#include "base/lock.h"
#include "base/log.h"

static struct {
	/* held by the thread that has `lock` for writing, so that it can be asserted */
	struct lock writer;
	pthread_rwlock_t lock; /* protects the next two, and the lists of the regions */
	struct list all;       /* mirror.all */
	uint64_t last_id;

	/* counts events for which stalled writers should retry; see rx_mirror.c */
	_Atomic uint64_t turns;
	struct lock stall_lock; /* a leaf */
	struct list stalled;	/* qp_mirror.stall_link */
	struct work work;
} mirrors = {
	.writer = LOCK_INITIALIZER,
	.lock = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP,
	.all = {&mirrors.all, &mirrors.all},
	.stall_lock = LOCK_INITIALIZER,
	.stalled = {&mirrors.stalled, &mirrors.stalled},
};

struct mirror {
	struct list link; /* in stag_mr.mirrors, by id */
	struct list all;
	uint64_t id;
	struct stag_qp *qp; /* NULL: destroyed */
	/* identifies it to the program: the queue pair, also after its destruction */
	const void *name;
	uint32_t link_no; /* the number of qp's connection that it is for */
	unsigned flags;	  /* enum stagdv_mirror_flags */
	uint64_t remote;  /* TO of the region's first byte in the copy */
	uint32_t rkey;
	atomic_bool ended;
};

static void lock_for_writing(void)
{
	lock_acquire(&mirrors.writer);
	pthread_rwlock_wrlock(&mirrors.lock);
}

static void unlock_after_writing(void)
{
	pthread_rwlock_unlock(&mirrors.lock);
	lock_release(&mirrors.writer);
}

/* ---- the program's side ---- */

/* Once a mirror has ended it does not come back. */
static bool is_alive(struct mirror *m)
{
	assert(qp_tx_locked(m->qp));
	if (atomic_load(&m->qp->state) != QP_RTS || m->qp->link_no != m->link_no)
		atomic_store(&m->ended, true);
	return !atomic_load(&m->ended);
}

static bool has_ended(struct mirror *m)
{
	bool alive;

	if (!m->qp || atomic_load(&m->ended))
		return true;
	lock_acquire(&m->qp->tx_lock);
	alive = is_alive(m);
	lock_release(&m->qp->tx_lock);
	return !alive;
}

static void drop_mirror(struct mirror *m)
{
	assert(lock_held(&mirrors.writer));
	list_del(&m->link);
	list_del(&m->all);
	if (m->qp)
		atomic_fetch_sub(&m->qp->mirror.count, 1);
	free(m);
}

static struct mirror *find_mirror(struct stag_mr *mr, const void *name)
{
	assert(lock_held(&mirrors.writer));
	list_for_each (l, &mr->mirrors) {
		struct mirror *m = list_entry(l, struct mirror, link);

		if (m->name == name)
			return m;
	}
	return NULL;
}

static int check_attr(const struct stag_mr *mr, const struct stagdv_mirror *a)
{
	const unsigned known = STAGDV_MIRROR_CONFIRM | STAGDV_MIRROR_STRICT;
	const char *why = NULL;

	if (mr->slot->kind != KEY_MR || mr->slot->guard)
		why = "it is a fast region, guarded or on storage";
	else if (a->comp_mask || (a->flags & ~known))
		why = "unknown fields or flags";
	else if (mr->ibv.length && a->remote_addr > UINT64_MAX - (mr->ibv.length - 1))
		why = "the copy wraps around the end of the address space";
	if (why)
		log_info("mr 0x%08x: cannot be mirrored: %s", mr->slot->key, why);
	return why ? -EINVAL : 0;
}

static int make_ready(struct mirror *m)
{
	struct stag_qp *qp = m->qp;

	assert(qp_tx_locked(qp));
	if (atomic_load(&qp->state) != QP_RTS || !qp->tx) {
		log_info("qp %u: cannot mirror over it: not connected", qp->ibv.qp_num);
		return -ENOTCONN;
	}
	if ((m->flags & STAGDV_MIRROR_CONFIRM) && !qp->link.ord) {
		log_info("qp %u: cannot mirror over it with confirmations: no reads allowed (ORD "
			 "is 0)",
			 qp->ibv.qp_num);
		return -EINVAL;
	}
	m->link_no = qp->link_no;
	return tx_forwards_init(qp);
}

static int add_mirror(struct stag_mr *mr, struct mirror *m)
{
	struct mirror *old = find_mirror(mr, m->name);
	int err;

	assert(lock_held(&mirrors.writer));
	if (old && !has_ended(old))
		return -EEXIST;
	lock_acquire(&m->qp->tx_lock);
	err = make_ready(m);
	lock_release(&m->qp->tx_lock);
	if (err)
		return err;
	if (old)
		drop_mirror(old);
	m->id = ++mirrors.last_id;
	list_add_tail(&mr->mirrors, &m->link);
	list_add_tail(&mirrors.all, &m->all);
	atomic_fetch_add(&m->qp->mirror.count, 1);
	atomic_store(&mr->slot->mirrors, &mr->mirrors);
	return 0;
}

int mirror_add(struct stag_mr *mr, const struct stagdv_mirror *attr)
{
	struct mirror *m;
	int err = check_attr(mr, attr);

	if (err)
		return err;
	if (qp_is_roce(to_stag_qp(attr->qp))) /* forwards are no requests that roce0 could count */
		return -EOPNOTSUPP;
	m = calloc(1, sizeof(*m));
	if (!m)
		return -ENOMEM;
	m->qp = to_stag_qp(attr->qp);
	m->name = attr->qp;
	m->flags = attr->flags;
	m->remote = attr->remote_addr;
	m->rkey = attr->rkey;
	lock_for_writing();
	err = add_mirror(mr, m);
	unlock_after_writing();
	if (err)
		free(m);
	return err;
}

static void note_mirrored(struct stag_mr *mr)
{
	assert(lock_held(&mirrors.writer));
	if (list_empty(&mr->mirrors))
		atomic_store(&mr->slot->mirrors, NULL);
}

int mirror_remove(struct stag_mr *mr, const void *name)
{
	struct mirror *m;
	int err = -ENOENT;

	if (mr->slot->kind != KEY_MR)
		return -ENOENT;
	lock_for_writing();
	m = find_mirror(mr, name);
	if (m) {
		err = has_ended(m) ? -ENOTCONN : 0;
		drop_mirror(m);
		note_mirrored(mr);
	}
	unlock_after_writing();
	mirror_tell(); /* writers that waited for it go on */
	return err;
}

int mirror_end_mr(struct stag_mr *mr)
{
	int alive = 0;

	if (!atomic_load(&mr->slot->mirrors))
		return 0;
	lock_for_writing();
	list_for_each (l, &mr->mirrors)
		alive += !has_ended(list_entry(l, struct mirror, link));
	list_for_each_safe (l, &mr->mirrors)
		if (!alive)
			drop_mirror(list_entry(l, struct mirror, link));
	note_mirrored(mr);
	unlock_after_writing();
	return alive ? -EBUSY : 0;
}

void mirror_end_qp(struct stag_qp *qp)
{
	if (!atomic_load(&qp->mirror.count))
		return;
	lock_for_writing();
	list_for_each (l, &mirrors.all) {
		struct mirror *m = list_entry(l, struct mirror, all);

		if (m->qp != qp)
			continue;
		m->qp = NULL;
		atomic_store(&m->ended, true);
	}
	atomic_store(&qp->mirror.count, 0);
	unlock_after_writing();
	mirror_tell();
}

/* ---- the receiver's ---- */

static bool is_for(const struct mirror *m, const struct stag_qp *writer)
{
	return m->qp != writer; /* a write from the copy's side is there already */
}

/* Returns 0; -EAGAIN if there is no room; -EPIPE if it has ended and is strict. */
static int hand_over(struct mirror *m, const struct mirror_piece *p, uint64_t *seq)
{
	struct forward f = {.stag = p->region->key,
			    .life = p->region->life,
			    .pd = p->region->pd,
			    .to = p->region->base + p->off,
			    .len = p->len,
			    .rkey = m->rkey,
			    .remote = m->remote + p->off};
	bool alive = false, taken = false;

	if (m->qp) {
		lock_acquire(&m->qp->tx_lock);
		alive = is_alive(m);
		taken = alive && tx_forward_add(m->qp, &f, m->flags & STAGDV_MIRROR_CONFIRM, seq);
		lock_release(&m->qp->tx_lock);
	}
	if (!alive)
		return m->flags & STAGDV_MIRROR_STRICT ? -EPIPE : 0;
	return taken ? 0 : -EAGAIN;
}

int mirror_forward(struct stag_qp *writer, const struct mirror_piece *p, uint64_t *next,
		   struct mirror_gates *gates)
{
	struct list *list;
	int err = 0;

	assert(qp_rx_locked(writer) && !qp_tx_locked(writer));
	pthread_rwlock_rdlock(&mirrors.lock);
	list = atomic_load(&p->region->mirrors);
	for (struct list *l = list ? list->next : NULL; l && l != list && !err; l = l->next) {
		struct mirror *m = list_entry(l, struct mirror, link);
		uint64_t seq = 0;

		if (m->id < *next || !is_for(m, writer))
			continue;
		*next = m->id;
		if ((m->flags & STAGDV_MIRROR_CONFIRM) && !gates_have_room(gates, m->id))
			err = -EAGAIN;
		else
			err = hand_over(m, p, &seq);
		if (!err && seq && (m->flags & STAGDV_MIRROR_CONFIRM))
			gates_add(gates, m->id, seq);
		if (!err)
			*next = m->id + 1;
	}
	pthread_rwlock_unlock(&mirrors.lock);
	return err;
}

void mirror_kick(struct key_slot *region)
{
	struct list *list;

	pthread_rwlock_rdlock(&mirrors.lock);
	list = atomic_load(&region->mirrors);
	for (struct list *l = list ? list->next : NULL; l && l != list; l = l->next) {
		struct mirror *m = list_entry(l, struct mirror, link);

		if (!m->qp || atomic_load(&m->ended))
			continue;
		lock_acquire(&m->qp->tx_lock);
		qp_tx_run(m->qp);
		lock_release(&m->qp->tx_lock);
	}
	pthread_rwlock_unlock(&mirrors.lock);
}

/* Returns the same as hand_over(). A mirror that was removed has nothing to confirm. */
static int is_confirmed(uint64_t id, uint64_t seq)
{
	list_for_each (l, &mirrors.all) {
		struct mirror *m = list_entry(l, struct mirror, all);
		bool alive = false, came = false;

		if (m->id != id)
			continue;
		if (m->qp) {
			lock_acquire(&m->qp->tx_lock);
			alive = is_alive(m);
			came = alive && tx_forward_confirmed(m->qp, seq);
			lock_release(&m->qp->tx_lock);
		}
		if (!alive)
			return m->flags & STAGDV_MIRROR_STRICT ? -EPIPE : 0;
		return came ? 0 : -EAGAIN;
	}
	return 0;
}

int mirror_pass(struct mirror_gates *g)
{
	int err = 0;

	pthread_rwlock_rdlock(&mirrors.lock);
	while (g->n && !err) {
		err = is_confirmed(g->gate[g->n - 1].id, g->gate[g->n - 1].seq);
		g->n -= !err;
	}
	pthread_rwlock_unlock(&mirrors.lock);
	return err;
}

/* ---- who waits ---- */

uint64_t mirror_turns(void)
{
	return atomic_load(&mirrors.turns);
}

/* The engine lock keeps the queue pairs alive. Those that still have to wait line up again. */
static void on_work(struct work *w)
{
	struct list now;

	assert(engine_locked());
	list_init(&now);
	lock_acquire(&mirrors.stall_lock);
	while (!list_empty(&mirrors.stalled)) {
		struct list *first = mirrors.stalled.next;

		list_del(first);
		list_add_tail(&now, first);
	}
	while (!list_empty(&now)) {
		struct stag_qp *qp = list_entry(now.next, struct stag_qp, mirror.stall_link);

		list_del(&qp->mirror.stall_link);
		lock_release(&mirrors.stall_lock);
		rx_mirror_resume(qp);
		lock_acquire(&mirrors.stall_lock);
	}
	lock_release(&mirrors.stall_lock);
}

void mirror_tell(void)
{
	atomic_fetch_add(&mirrors.turns, 1);
	work_queue(&mirrors.work, on_work);
}

void mirror_line_up(struct stag_qp *qp, uint64_t turn)
{
	lock_acquire(&mirrors.stall_lock);
	list_del(&qp->mirror.stall_link);
	list_add_tail(&mirrors.stalled, &qp->mirror.stall_link);
	lock_release(&mirrors.stall_lock);
	if (mirror_turns() != turn) /* mirror_tell() came before the list had it */
		work_queue(&mirrors.work, on_work);
}

void mirror_leave(struct stag_qp *qp)
{
	assert(engine_locked());
	lock_acquire(&mirrors.stall_lock);
	list_del(&qp->mirror.stall_link);
	lock_release(&mirrors.stall_lock);
}

void mirrors_after_fork(void)
{
	lock_init(&mirrors.writer);
	mirrors.lock = (pthread_rwlock_t)PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
	lock_init(&mirrors.stall_lock);
}
