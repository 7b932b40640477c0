// SPDX-License-Identifier: BSD-2-Clause
/*
 * qp_table.c - all queue pairs of the process: their numbers and their counters.
 *
 * A number of stag0 is reused after 255 other uses of its slot. Those of roce0 are in port.c.
 */
#include "adapter/qp.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "adapter/device.h"
#include "adapter/live.h"
#include "adapter/rc.h"
#include "adapter/stream.h"
#include "base/lock.h"

#define QP_SLOTS 65536

/* By slot, under table.lock. Not in `table`, whose initialiser would put them into .data. */
static struct stag_qp *slots[QP_SLOTS];
static uint8_t generations[QP_SLOTS];

static struct {
	struct lock lock; /* a leaf */
	uint32_t hint;	  /* the slot after the last one that was taken */
	struct list all;
	struct stagdv_counters gone; /* of destroyed queue pairs */
} table = {
	.lock = LOCK_INITIALIZER,
	.all = {&table.all, &table.all},
	.hint = 1,
};

/* A number has 8 bits that change at each use, and 16 bits of a slot. */
int qp_table_add(struct stag_qp *qp)
{
	int err = -ENOMEM;

	lock_acquire(&table.lock);
	for (uint32_t i = 0; i < QP_SLOTS; i++) {
		uint32_t s = (table.hint + i) % QP_SLOTS;

		if (s == 0 || slots[s])
			continue;
		slots[s] = qp;
		qp->slot = s;
		table.hint = s + 1;
		if (!qp_is_roce(qp))
			qp->ibv.qp_num = (uint32_t)generations[s]++ << 16 | s;
		list_add_tail(&table.all, &qp->all_link);
		err = 0;
		break;
	}
	lock_release(&table.lock);
	return err;
}

static void add_counters(struct stagdv_counters *to, const struct stagdv_counters *from)
{
	to->tx_msgs += from->tx_msgs;
	to->rx_msgs += from->rx_msgs;
	to->tx_bytes += from->tx_bytes;
	to->rx_bytes += from->rx_bytes;
	to->tx_payload += from->tx_payload;
	to->rx_payload += from->rx_payload;
	to->tx_fpdus += from->tx_fpdus;
	to->rx_fpdus += from->rx_fpdus;
	to->tx_calls += from->tx_calls;
	to->rx_calls += from->rx_calls;
	to->tx_again += from->tx_again;
	to->rx_again += from->rx_again;
	to->crc_errors += from->crc_errors;
	to->terminates_sent += from->terminates_sent;
	to->terminates_received += from->terminates_received;
	to->posts += from->posts;
	to->receives += from->receives;
	to->completions += from->completions;
	to->advertised += from->advertised;
	to->closed += from->closed;
	to->withdrawn += from->withdrawn;
	to->orphaned += from->orphaned;
	to->late += from->late;
	to->lease_refusals += from->lease_refusals;
	to->forwards += from->forwards;
	to->forwarded_bytes += from->forwarded_bytes;
	to->mirror_stalls += from->mirror_stalls;
}

void qp_table_remove(struct stag_qp *qp)
{
	struct stagdv_counters c;

	qp_counters(qp, &c);
	lock_acquire(&table.lock);
	slots[qp->slot] = NULL;
	list_del(&qp->all_link);
	add_counters(&table.gone, &c);
	lock_release(&table.lock);
}

struct stag_qp *qp_by_num(uint32_t qpn)
{
	struct stag_qp *qp;

	assert(engine_locked());
	lock_acquire(&table.lock);
	qp = slots[qpn & (QP_SLOTS - 1)];
	lock_release(&table.lock);
	return qp && !qp_is_roce(qp) && qp->ibv.qp_num == qpn ? qp : NULL;
}

static void shot_counters(struct shots *s, struct stagdv_counters *c)
{
	lock_acquire(&s->lock);
	c->advertised = s->advertised;
	c->closed = s->closed;
	c->withdrawn = s->withdrawn;
	c->orphaned = s->orphaned;
	c->late = atomic_load(&s->late);
	lock_release(&s->lock);
}

static void receive_counters(struct stag_qp *qp, struct stagdv_counters *c)
{
	lock_acquire(&qp->rq_lock);
	c->receives = qp->stats.recv_posts;
	lock_release(&qp->rq_lock);
	c->completions += qp->stats.recv_completions;
}

void qp_counters(struct stag_qp *qp, struct stagdv_counters *c)
{
	lock_acquire(&qp->rx_lock);
	lock_acquire(&qp->tx_lock);
	*c = qp->stats.counters;
	if (qp->stream) {
		c->tx_bytes += qp->stream->tx_bytes;
		c->rx_bytes += qp->stream->rx_bytes;
		c->tx_calls += qp->stream->tx_calls;
		c->rx_calls += qp->stream->rx_calls;
		c->tx_again += qp->stream->tx_again;
		c->rx_again += qp->stream->rx_again;
	}
	c->lease_refusals = atomic_load(&qp->stats.lease_refusals);
	receive_counters(qp, c);
	shot_counters(&qp->shots, c);
	lock_release(&qp->tx_lock);
	lock_release(&qp->rx_lock);
}

/* The engine lock keeps the queue pairs alive while their counters are added. */
void device_counters(struct stagdv_counters *c)
{
	memset(c, 0, sizeof(*c));
	engine_lock();
	lock_acquire(&table.lock);
	*c = table.gone;
	lock_release(&table.lock);
	for (struct list *l = table.all.next; l != &table.all; l = l->next) {
		struct stagdv_counters one;

		qp_counters(list_entry(l, struct stag_qp, all_link), &one);
		add_counters(c, &one);
	}
	engine_unlock();
	c->engine_wakeups = atomic_load(&stag_totals.engine_wakeups);
	c->connects = atomic_load(&stag_totals.connects);
	c->accepts = atomic_load(&stag_totals.accepts);
	c->disconnects = atomic_load(&stag_totals.disconnects);
	c->registrations = atomic_load(&stag_totals.registrations) + c->advertised;
	c->receives += atomic_load(&stag_totals.shared_receives);
}

/* ---- as it is seen from outside ---- */

static void snapshot_queues(struct stag_qp *qp, struct qp_look *out)
{
	out->sq_used = qp->sq.put - qp->sq.get;
	out->sq_size = qp->sq.max_wr;
	lock_acquire(&qp->rq_lock);
	out->rq_used = qp->rq.put - qp->rq.get;
	out->rq_size = qp->config.cap.max_recv_wr;
	lock_release(&qp->rq_lock);
}

static void snapshot_tls(const struct stream *s, struct qp_look *out)
{
	const struct tls_info *info = stream_tls_info(s);

	out->encrypted = info;
	if (info)
		out->tls = *info;
}

static void take_snapshot(struct stag_qp *qp, struct qp_look *out)
{
	*out = (struct qp_look){.number = qp->ibv.qp_num};
	qp_counters(qp, &out->counters);
	qp_lock_both(qp);
	out->state = qp->ibv.state;
	out->on_store = qp->storage.store != NULL;
	out->linked = qp->stream != NULL;
	out->stag_peer = qp->link.stag_peer;
	if (qp->stream) {
		out->local = qp->stream->local;
		out->peer = qp->stream->peer;
		snapshot_tls(qp->stream, out);
	}
	snapshot_queues(qp, out);
	qp_unlock_both(qp);
	histogram_sum(&qp->stats.times, &out->times);
}

size_t qp_table_look(uint32_t *at, struct qp_look *out, size_t n)
{
	size_t got = 0;

	engine_lock(); /* keeps the queue pairs alive */
	for (; *at < QP_SLOTS && got < n; ++*at) {
		struct stag_qp *qp;

		lock_acquire(&table.lock);
		qp = slots[*at];
		lock_release(&table.lock);
		if (qp)
			take_snapshot(qp, &out[got++]);
	}
	engine_unlock();
	return got;
}

static void end_one(struct stag_qp *qp)
{
	int state;

	qp_lock_both(qp);
	state = atomic_load(&qp->state);
	if (state == QP_RTS || state == QP_CLOSING)
		qp_peer_closed(qp, false);
	qp_unlock_both(qp);
}

void qp_table_end_all(void)
{
	assert(engine_locked());
	for (uint32_t at = 0; at < QP_SLOTS; at++) {
		struct stag_qp *qp;

		lock_acquire(&table.lock);
		qp = slots[at];
		lock_release(&table.lock);
		if (qp)
			end_one(qp);
	}
}

/*
 * A program that ends may have left acknowledgements for its next poll, and its peers wait for them. Other threads may
 * still run, and hold locks for ever.
 */
__attribute__((destructor)) static void flush_acks_at_exit(void)
{
	if (!lock_try(&table.lock))
		return;
	for (struct list *l = table.all.next; l != &table.all; l = l->next) {
		struct stag_qp *qp = list_entry(l, struct stag_qp, all_link);

		if (qp->rc)
			rc_flush_acks_at_exit(qp);
	}
	lock_release(&table.lock);
}

void qp_table_after_fork(void)
{
	lock_init(&table.lock);
}
