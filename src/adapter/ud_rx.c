// SPDX-License-Identifier: BSD-2-Clause
/*
 * ud_rx.c - the receiving side of UD queue pairs.
 *
 * A datagram is read whole into a stage, checked, and copied into its receive. Nothing in it is believed before: one that
 * does not make sense, or is for nobody, is dropped without a word.
 */
#include "adapter/ud.h"

#include <assert.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/claim.h"
#include "adapter/cq.h"
#include "adapter/device.h"
#include "adapter/explain.h"
#include "adapter/port.h"
#include "adapter/qp.h"
#include "adapter/srq.h"
#include "adapter/trace.h"
#include "base/log.h"

#define ROUNDS 8   /* batches in a row */
#define SL_V4  0xa /* in wc.sl, as mlx5 has it: UDP, and IPv4 or IPv6 */
#define SL_V6  0x9

struct held {
	struct list link;
	struct datagram d;
	uint8_t bytes[]; /* as it came */
};

/* A receive request with room for its SGEs. */
union receive {
	struct rwqe w;
	uint8_t room[sizeof(struct rwqe) + STAG_MAX_SGE * sizeof(struct ibv_sge)];
};

struct ud_batch *ud_new_batch(void)
{
	struct ud_batch *b = malloc(sizeof(*b)); /* pages that are not used are not touched */

	if (!b)
		return NULL;
	for (unsigned i = 0; i < UD_BATCH; i++) {
		b->iov[i] = (struct iovec){b->bytes[i], sizeof(b->bytes[i])};
		b->msg[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &b->iov[i],
							 .msg_iovlen = 1,
							 .msg_name = &b->from[i],
							 .msg_control = b->control[i]}};
	}
	ud_rewind_batch(b, UD_BATCH);
	return b;
}

/* The same memory for a few trains, which come without names. */
static struct ud_batch *new_near_batch(void)
{
	struct ud_batch *b = malloc(sizeof(*b));

	_Static_assert(UD_NEAR_BATCH * UD_TRAIN <= sizeof(b->bytes), "trains fit");
	if (!b)
		return NULL;
	for (unsigned i = 0; i < UD_NEAR_BATCH; i++) {
		b->iov[i] = (struct iovec){&b->bytes[0][0] + i * UD_TRAIN, UD_TRAIN};
		b->msg[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &b->iov[i], .msg_iovlen = 1}};
	}
	return b;
}

void ud_rewind_batch(struct ud_batch *b, int n)
{
	for (int i = 0; i < n; i++) {
		b->msg[i].msg_hdr.msg_namelen = sizeof(b->from[i]);
		b->msg[i].msg_hdr.msg_controllen = sizeof(b->control[i]);
	}
}

/* ---- one datagram ---- */

enum found { FOUND, NONE, TOO_SHORT };

/* Takes the oldest receive if it has room. One that is too short stays where it is. */
static enum found take_receive(struct stag_qp *qp, uint32_t need, struct rwqe *out)
{
	enum found found = NONE;
	struct rwqe *w;

	if (qp->srq)
		switch (srq_take_fit(qp->srq, need, out, &qp->ud->waiter)) {
		case 0:
			return FOUND;
		case -EMSGSIZE:
			return TOO_SHORT;
		default:
			return NONE;
		}
	lock_acquire(&qp->rq_lock);
	w = rq_peek(&qp->rq);
	if (w)
		found = w->length < need ? TOO_SHORT : FOUND;
	if (found == FOUND) {
		memcpy(out, w, sizeof(*w) + w->num_sge * sizeof(struct ibv_sge));
		qp->rq.get++;
	}
	lock_release(&qp->rq_lock);
	return found;
}

static enum key_fault fill_sge(struct stag_qp *qp, const struct ibv_sge *sge, uint32_t len,
			       const uint8_t *from)
{
	while (len) {
		static const unsigned access = IBV_ACCESS_LOCAL_WRITE;
		uint64_t at = sge->addr + (sge->length - len);
		struct key_map map;
		enum key_fault f = key_get(sge->lkey, qp->pd, NULL, at, len, access, &map);

		if (f != KEY_OK)
			return f;
		for (unsigned i = 0; i < map.n; i++) {
			memcpy(map.iov[i].iov_base, from, map.iov[i].iov_len);
			from += map.iov[i].iov_len;
			len -= (uint32_t)map.iov[i].iov_len;
		}
		key_put(&map);
	}
	return KEY_OK;
}

static bool scatter(struct stag_qp *qp, const struct rwqe *r, const uint8_t *from, uint32_t len)
{
	for (uint32_t i = 0; i < r->num_sge && len; i++) {
		struct ibv_sge s = r->sge[i];
		enum key_fault f;

		if (s.length > len)
			s.length = len;
		f = fill_sge(qp, &s, s.length, from);
		if (f != KEY_OK) {
			log_bad_sge(qp, r->wr_id, i, "a receive", &r->sge[i],
				    IBV_ACCESS_LOCAL_WRITE, f);
			return false;
		}
		from += s.length;
		len -= s.length;
	}
	return true;
}

static void complete(struct stag_qp *qp, const struct datagram *d, const struct rwqe *r,
		     enum ibv_wc_status status)
{
	struct ibv_wc wc = {
		.wr_id = r->wr_id,
		.status = status,
		.opcode = IBV_WC_RECV,
		.byte_len = GRH_LEN + d->length,
		.qp_num = qp->ibv.qp_num,
		.src_qp = d->src_qpn,
		.wc_flags = IBV_WC_GRH,
		.sl = grh_is_v4(d) ? SL_V4 : SL_V6,
	};

	if (d->flags & DATAGRAM_IMM) {
		wc.wc_flags |= IBV_WC_WITH_IMM;
		wc.imm_data = d->imm;
	}
	qp->stats.counters.rx_msgs++;
	qp->stats.counters.rx_payload += d->length;
	qp->stats.counters.rx_bytes += DATAGRAM_HDR + d->length;
	qp_push_recv(qp, &wc, d->flags & DATAGRAM_SOLICITED);
}

/* Returns NONE if there is no receive. Everything else is settled. */
static enum found try_deliver(struct stag_qp *qp, const struct datagram *d, uint8_t *buf)
{
	uint8_t *grh = buf + DATAGRAM_HDR - GRH_LEN;
	union receive r;
	enum found found = take_receive(qp, GRH_LEN + d->length, &r.w);

	if (found != FOUND)
		return found;
	qp->ud->dry = false;
	grh_put(d, grh);
	if (scatter(qp, &r.w, grh, GRH_LEN + d->length)) {
		complete(qp, d, &r.w, IBV_WC_SUCCESS);
		return FOUND;
	}
	complete(qp, d, &r.w, IBV_WC_LOC_PROT_ERR);
	atomic_store(&qp->ud->open, false);
	ud_fail_soon(qp);
	return FOUND;
}

/* ---- holding ---- */

static void on_held_timer(struct timer *t);

/* A socket whose datagrams have no receives is not read. */
static void set_paused(struct stag_qp *qp, bool paused)
{
	assert(qp_rx_locked(qp));
	if (atomic_exchange(&qp->progress.rx_paused, paused) != paused)
		qp_arm(qp);
}

static void set_timer(struct stag_qp *qp)
{
	timer_set(&qp->ud->held_timer, qp->ud->held_since + UD_HOLD_NS, on_held_timer);
}

/* Returns false if it is dropped. */
static bool hold(struct stag_qp *qp, const struct datagram *d, const uint8_t *buf)
{
	struct ud *ud = qp->ud;
	size_t len = DATAGRAM_HDR + d->length;
	struct held *h;

	if (ud->dry || atomic_load(&ud->n_held) >= UD_MAX_HELD)
		return false;
	h = malloc(sizeof(*h) + len);
	if (!h)
		return false;
	h->d = *d;
	memcpy(h->bytes, buf, len);
	list_add_tail(&ud->held, &h->link);
	if (atomic_fetch_add(&ud->n_held, 1))
		return true;
	ud->held_since = clock_ns();
	set_timer(qp);
	set_paused(qp, true);
	return true;
}

static void drop_first(struct ud *ud)
{
	struct held *h = list_entry(ud->held.next, struct held, link);

	list_del(&h->link);
	free(h);
	atomic_fetch_sub(&ud->n_held, 1);
}

void ud_drop_held(struct stag_qp *qp)
{
	assert(qp_rx_locked(qp));
	while (!list_empty(&qp->ud->held))
		drop_first(qp->ud);
	set_paused(qp, false);
}

static bool is_open(struct stag_qp *qp)
{
	return atomic_load(&qp->ud->open) && atomic_load(&qp->state) == QP_RTS;
}

/* Returns whether it delivered any. */
static bool deliver_held(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;
	bool any = false;

	assert(qp_rx_locked(qp));
	while (!list_empty(&ud->held) && is_open(qp)) {
		struct held *h = list_entry(ud->held.next, struct held, link);

		if (try_deliver(qp, &h->d, h->bytes) == NONE) {
			ud->held_since = any ? clock_ns() : ud->held_since;
			return any;
		}
		any = true;
		drop_first(ud);
	}
	ud_drop_held(qp);
	return any;
}

static void on_held_timer(struct timer *t)
{
	struct ud *ud = container_of(t, struct ud, held_timer);
	struct stag_qp *qp = ud->qp;

	lock_acquire(&qp->rx_lock);
	deliver_held(qp);
	if (!list_empty(&ud->held) && clock_ns() - ud->held_since < UD_HOLD_NS) {
		set_timer(qp);
	} else if (!list_empty(&ud->held)) {
		log_info("qp %u: %u datagrams are dropped: no receive for them in %u ms",
			 qp->ibv.qp_num, atomic_load(&ud->n_held),
			 (unsigned)(UD_HOLD_NS / NS_PER_MS));
		ud->dry = true;
		ud_drop_held(qp);
	}
	lock_release(&qp->rx_lock);
}

bool ud_deliver(struct stag_qp *qp, const struct datagram *d, uint8_t *buf)
{
	struct ud *ud = qp->ud;

	assert(qp_rx_locked(qp));
	if (!is_open(qp) || d->qkey != atomic_load_explicit(&ud->qkey, memory_order_relaxed))
		return true;
	if (list_empty(&ud->held) && try_deliver(qp, d, buf) != NONE)
		return true;
	return !hold(qp, d, buf);
}

void ud_receive_posted(struct stag_qp *qp)
{
	if (!atomic_load_explicit(&qp->ud->n_held, memory_order_relaxed))
		return;
	lock_acquire(&qp->rx_lock);
	deliver_held(qp);
	lock_release(&qp->rx_lock);
}

/* A receive was posted to the shared queue. */
void ud_on_shared_receive(struct srq_waiter *w)
{
	ud_receive_posted(container_of(w, struct ud, waiter)->qp);
}

/* ---- the socket of this queue pair ---- */

static void take_near(struct stag_qp *qp, struct mmsghdr *m)
{
	uint8_t *buf = m->msg_hdr.msg_iov->iov_base;
	size_t left = m->msg_len, len;
	struct datagram d;
	bool sealed;

	for (; (len = datagram_first(buf, left)); buf += len, left -= len)
		if (!datagram_decode(buf, len, &d, &sealed) && d.dst_qpn == qp->ibv.qp_num) {
			trace_datagram(false, &d, buf + DATAGRAM_HDR);
			ud_deliver(qp, &d, buf);
		}
}

static bool read_near(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;
	int n = UD_NEAR_BATCH;
	bool any = false;

	assert(qp_rx_locked(qp));
	if (!ud->batch)
		ud->batch = new_near_batch();
	if (!ud->batch || ud->rx_fd < 0)
		return false;
	for (int i = 0; i < ROUNDS && n == UD_NEAR_BATCH && list_empty(&ud->held); i++) {
		n = recvmmsg(ud->rx_fd, ud->batch->msg, UD_NEAR_BATCH, MSG_DONTWAIT, NULL);
		qp->stats.counters.rx_calls++;
		any |= n > 0;
		for (int k = 0; k < n; k++)
			take_near(qp, &ud->batch->msg[k]);
	}
	return any;
}

static void send_on(struct stag_qp *qp)
{
	if (!lock_try(&qp->tx_lock))
		return; /* the thread that holds it sends */
	ud_run(qp);
	lock_release(&qp->tx_lock);
	if (atomic_load_explicit(&qp->progress.tx_blocked, memory_order_relaxed))
		sched_yield(); /* the receiver may wait for this very processor */
}

bool ud_progress(struct stag_qp *qp)
{
	struct ud *ud = qp->ud;
	bool any = false;

	if (lock_try(&qp->rx_lock)) {
		if (atomic_load_explicit(&ud->n_held, memory_order_relaxed))
			any = deliver_held(qp);
		any |= read_near(qp);
		lock_release(&qp->rx_lock);
	}
	if (atomic_load_explicit(&qp->progress.tx_blocked, memory_order_relaxed))
		send_on(qp);
	if (atomic_load_explicit(&qp->port->ud->hot, memory_order_relaxed))
		any |= ud_port_read(qp->port);
	return any;
}

void ud_on_near(struct watch *w, uint32_t revents)
{
	struct stag_qp *qp = container_of(w, struct stag_qp, progress.watch);

	ud_progress(qp);
	qp_offer(qp);
}
