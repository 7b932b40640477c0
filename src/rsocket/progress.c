// SPDX-License-Identifier: BSD-2-Clause
/*
 * progress.c - processes completions, and announces the grants that follow from them.
 *
 * Any thread that uses a socket first processes all its completions, whichever thread they are for,
 * with the lock held. Nothing blocks in here except rs_wait(), which releases the lock while it
 * sleeps.
 */
#include "rsocket/rsocket.h"

#include <assert.h>
#include <endian.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#define COMPLETIONS_A_POLL 16
#define ACK_EVERY	   64 /* completion events; acknowledging takes the queue's lock */

/* Ends a connection after both sides have closed their halves. */
static void mark_disconnected(struct rsocket *rs)
{
	if (rs->state == RS_CONNECTED)
		rs_set_state(rs, RS_DISCONNECTED);
}

void rs_lost(struct rsocket *rs)
{
	assert(lock_held(&rs->lock));
	if (rs->readable)
		rs_fail(rs, ECONNRESET); /* data may be missing: this is no proper end */
	else
		mark_disconnected(rs);
}

static void on_credit(struct rsocket *rs, uint16_t seq_stop)
{
	int i = flow_tx_granted(&rs->tx, seq_stop);
	struct rs_region *slot = (struct rs_region *)rs->ep.slots.at + i;

	/* A peer with several threads may announce the buffer late; another message brings it. */
	if (i < 0 || !slot->addr || !slot->length)
		return;
	flow_tx_refill(&rs->tx, slot);
	memset(slot, 0, sizeof(*slot));
}

static void on_shutdown(struct rsocket *rs)
{
	if (!rs->writable) {
		mark_disconnected(rs);
		return;
	}
	rs->readable = false;
	rs_wake(rs);
}

static void on_ctrl(struct rsocket *rs, uint32_t what)
{
	switch (what) {
	case RS_CTRL_DISCONNECT:
		mark_disconnected(rs);
		rs_hang_up(rs); /* the peer waits for the disconnect, not for our program */
		break;
	case RS_CTRL_SHUTDOWN:
		on_shutdown(rs);
		break;
	default: /* keepalive, or an extension of a newer peer */
		break;
	}
}

static void on_message(struct rsocket *rs, uint32_t msg)
{
	uint32_t value = rs_msg_value(msg);

	switch (rs_msg_op(msg)) {
	case RS_OP_DATA:
		if (!flow_rx_arrived(&rs->rx, value))
			break;
		log_warn("rsocket %d: the peer announced %u bytes, more than it was granted",
			 rs->fd, value);
		rs_fail(rs, EPROTO);
		break;
	case RS_OP_CREDIT:
		on_credit(rs, (uint16_t)value);
		break;
	case RS_OP_IOMAP:
		flow_rx_counted(&rs->rx);
		rs_iomap_updated(rs, value & 0xFFFF);
		break;
	case RS_OP_CTRL:
		on_ctrl(rs, value);
		break;
	default: /* reserved */
		break;
	}
}

static uint32_t message_of(const struct rsocket *rs, const struct ibv_wc *wc)
{
	uint32_t msg;

	if (wc->wc_flags & IBV_WC_WITH_IMM)
		return be32toh(wc->imm_data);
	memcpy(&msg, rs->ep.msgs.at + (uint32_t)wc->wr_id * RS_MSG_LEN, sizeof(msg));
	return msg;
}

static void on_sent(struct rsocket *rs, enum rs_wr kind, uint32_t number)
{
	switch (kind) {
	case RS_WR_DATA:
		rs->sq.left += rs_message_wrs(rs);
		flow_tx_release(&rs->tx, number);
		break;
	case RS_WR_DIRECT:
		rs->sq.left++;
		flow_tx_release(&rs->tx, number);
		break;
	case RS_WR_IOMAP:
		rs->sq.left += rs_message_wrs(rs);
		break;
	case RS_WR_CTRL:
		rs->sq.ctrl_get++;
		break;
	case RS_WR_QUIET:
	case RS_WR_RECV:
		break;
	}
}

static void on_broken(struct rsocket *rs, const struct ibv_wc *wc)
{
	if (wc->status == IBV_WC_WR_FLUSH_ERR)
		rs_lost(rs); /* its cause is elsewhere, usually the end of the peer */
	else
		rs_fail(rs, EIO);
}

/* Handles n completions, and posts the receives among them again. */
static void handle(struct rsocket *rs, const struct ibv_wc *wc, int n)
{
	uint32_t slots[COMPLETIONS_A_POLL];
	unsigned received = 0;
	int ret;

	for (int i = 0; i < n; i++) {
		enum rs_wr kind = (enum rs_wr)(wc[i].wr_id >> 32);

		if (kind != RS_WR_RECV)
			on_sent(rs, kind, (uint32_t)wc[i].wr_id);
		if (wc[i].status != IBV_WC_SUCCESS) {
			on_broken(rs, &wc[i]);
		} else if (kind == RS_WR_RECV) {
			rs_unhush(rs);
			on_message(rs, message_of(rs, &wc[i]));
			slots[received++] = (uint32_t)wc[i].wr_id;
		}
	}
	if (rs->state > RS_CONNECTED)
		return;
	ret = rs_post_receives(rs, slots, received);
	if (ret)
		rs_fail(rs, -ret);
}

bool rs_ctrl_room(const struct rsocket *rs)
{
	return rs->sq.ctrl_put - rs->sq.ctrl_get < RS_CTRL_MAX;
}

/* Announces half of the ring in the peer's slot, and the credits in the message that follows. */
static int announce(struct rsocket *rs, const struct flow_grant *g, uint32_t msg)
{
	struct rs_region *text = (struct rs_region *)rs->ep.ctrl.at + rs->sq.ctrl_put % RS_CTRL_MAX;
	struct rs_region to = {.addr = rs->ep.peer.slots.addr + g->slot * sizeof(*text),
			       .key = rs->ep.peer.slots.key};
	struct ibv_sge sge = {
		.addr = (uintptr_t)text, .length = sizeof(*text), .lkey = rs->ep.ctrl.mr->lkey};

	*text = (struct rs_region){.addr = (uintptr_t)rs->ep.rbuf.at + g->give_at,
				   .key = rs->ep.rbuf.mr->rkey,
				   .length = g->length};
	return rs_post_write_message(rs, &sge, 1, false, RS_WR_CTRL, 0, &to, msg);
}

void rs_grant(struct rsocket *rs)
{
	struct flow_grant g;
	uint32_t msg;
	int ret;

	assert(lock_held(&rs->lock));
	if (rs->state != RS_CONNECTED || rs->ep.hushed || !flow_rx_due(&rs->rx) ||
	    !rs_ctrl_room(rs))
		return;
	g = flow_rx_grant(&rs->rx);
	msg = rs_msg(RS_OP_CREDIT, g.seq_stop);
	ret = g.half ? announce(rs, &g, msg) : rs_post_message(rs, RS_WR_CTRL, 0, msg);
	rs->sq.ctrl_put++;
	if (ret)
		rs_fail(rs, -ret);
}

void rs_progress(struct rsocket *rs)
{
	struct ibv_wc wc[COMPLETIONS_A_POLL];
	bool moved = false;
	int n;

	assert(lock_held(&rs->lock));
	do {
		n = ibv_poll_cq(rs->ep.cq, COMPLETIONS_A_POLL, wc);
		if (n < 0)
			rs_fail(rs, EIO);
		if (n <= 0)
			break;
		handle(rs, wc, n);
		moved = true;
	} while (n == COMPLETIONS_A_POLL);

	rs_grant(rs);
	if (moved)
		rs_wake(rs);
}

bool rs_arm(struct rsocket *rs)
{
	assert(lock_held(&rs->lock));
	if (rs->ep.cq_armed)
		return false;
	ibv_req_notify_cq(rs->ep.cq, 0);
	rs->ep.cq_armed = true;
	return true;
}

void rs_take_cq_event(struct rsocket *rs)
{
	struct ibv_cq *cq;
	void *context;

	assert(lock_held(&rs->lock));
	if (ibv_get_cq_event(rs->ep.comp, &cq, &context))
		return; /* another thread read it, and woke this one */
	rs->ep.cq_armed = false;
	if (++rs->ep.cq_unacked == ACK_EVERY) {
		ibv_ack_cq_events(rs->ep.cq, rs->ep.cq_unacked);
		rs->ep.cq_unacked = 0;
	}
	/* Threads that still sleep rely on an event that this thread has read. */
	rs_wake(rs);
}

/* Pauses between two polls: the thread waited for may need this processor, or this socket. */
static void pause_polling(struct rsocket *rs)
{
	lock_release(&rs->lock);
	sched_yield();
	lock_acquire(&rs->lock);
}

static int ms_until(uint64_t deadline)
{
	uint64_t now = clock_ns();

	if (!deadline)
		return -1;
	return now >= deadline ? 0 : (int)((deadline - now + NS_PER_MS - 1) / NS_PER_MS);
}

int rs_wait(struct rsocket *rs, bool (*ready)(const struct rsocket *), bool nonblock,
	    uint64_t deadline)
{
	uint64_t spin_end = 0;

	assert(lock_held(&rs->lock));
	for (;;) {
		int ret;

		rs_progress(rs);
		if (ready(rs))
			return 0;
		if (nonblock)
			return -EAGAIN;
		if (!spin_end)
			spin_end = clock_ns() + rs_polling_us() * 1000ull;
		if (clock_ns() < spin_end) {
			pause_polling(rs);
			continue;
		}
		if (rs_arm(rs))
			continue;
		ret = rs_sleep(rs, rs->ep.comp->fd, ms_until(deadline));
		if (ret < 0)
			return ret;
		if (ret)
			rs_take_cq_event(rs);
	}
}
