// SPDX-License-Identifier: BSD-2-Clause
/*
 * rx_place.c - the destination of payload, and the end of a stream whose payload has none.
 *
 * Maps a segment's bytes to memory: of a region by its tag, of a receive, or of a read's sink.
 */
#include "adapter/qp_rx.h"

#include <assert.h>
#include <sched.h>

#include "adapter/explain.h"
#include "adapter/misuse.h"
#include "adapter/rc.h"
#include "base/crc32c.h"

static enum ibv_event_type fault_event(struct wire_fault f)
{
	bool access = (f.layer == FAULT_LAYER_RDMAP && f.etype == 1) ||
		      (f.layer == FAULT_LAYER_DDP && f.etype == 1);

	if (f.layer == FAULT_LAYER_LLP)
		return IBV_EVENT_QP_FATAL;
	return access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR;
}

/* Ends the stream with a Terminate, whose cause is logged already. Always returns false. */
bool rx_stop_logged(struct stag_qp *qp, struct wire_fault f)
{
	struct qp_rx *rx = qp->rx;
	struct terminate t;

	assert(qp_rx_locked(qp));
	if (qp->rc)
		return rc_refuse_fault(qp, f);
	terminate_init(&t, f, rx->seg_hdr_len ? rx->seg_hdr : NULL, rx->seg_hdr_len, rx->ulpdu_len);
	rx_end(qp, &(struct rx_end){.kind = END_FAULT, .term = t, .event = fault_event(f)});
	return false;
}

/* Ends the stream with a Terminate. Always returns false. */
bool rx_stop_with(struct stag_qp *qp, struct wire_fault f)
{
	const struct qp_rx *rx = qp->rx;

	assert(qp_rx_locked(qp));
	peer_misuse(wire_fault_str(f), qp->ibv.qp_num,
		    "qp %u: the peer's message (opcode %u, stag 0x%08x, to 0x%llx, qn %u, msn %u, "
		    "mo %u, %u bytes) is refused: %s",
		    qp->ibv.qp_num, rx->h.opcode, rx->h.stag, (unsigned long long)rx->h.to,
		    rx->h.qn, rx->h.msn, rx->h.mo, rx->seg_len, wire_fault_str(f));
	return rx_stop_logged(qp, f);
}

struct wire_fault rx_write_fault(enum key_fault f)
{
	switch (f) {
	case KEY_BOUNDS:
		return FAULT_DDP_BASE_BOUNDS;
	case KEY_RIGHTS:
	case KEY_LAPSED:
		return FAULT_RDMAP_ACCESS;
	case KEY_OTHER_PD:
	case KEY_OTHER_QP:
		return FAULT_DDP_STAG_STREAM;
	case KEY_WRAP:
		return FAULT_DDP_TO_WRAP;
	case KEY_BUSY:
	case KEY_ON_STORE:
	case KEY_OK:
	case KEY_INVALID:
		break;
	}
	return FAULT_DDP_INVALID_STAG;
}

struct wire_fault rx_read_fault(enum key_fault f)
{
	switch (f) {
	case KEY_BOUNDS:
		return FAULT_RDMAP_BASE_BOUNDS;
	case KEY_RIGHTS:
	case KEY_LAPSED:
		return FAULT_RDMAP_ACCESS;
	case KEY_OTHER_PD:
	case KEY_OTHER_QP:
		return FAULT_RDMAP_STAG_STREAM;
	case KEY_WRAP:
		return FAULT_RDMAP_TO_WRAP;
	case KEY_BUSY:
	case KEY_ON_STORE:
	case KEY_OK:
	case KEY_INVALID:
		break;
	}
	return FAULT_RDMAP_INVALID_STAG;
}

enum key_fault rx_try_sge_target(struct stag_qp *qp, const struct ibv_sge *sge, uint32_t n,
				 uint64_t off, uint32_t len, struct key_map *map)
{
	assert(qp_rx_locked(qp));
	for (uint32_t i = 0; i < n; i++) {
		enum key_fault f;

		if (off >= sge[i].length) {
			off -= sge[i].length;
			continue;
		}
		if (len > sge[i].length - off)
			len = (uint32_t)(sge[i].length - off);
		f = key_try_get(sge[i].lkey, qp->pd, NULL, sge[i].addr + off, len,
				IBV_ACCESS_LOCAL_WRITE, map);
		if (f != KEY_OK && f != KEY_BUSY)
			log_bad_sge(qp,
				    sge == qp->rx->recv->sge ? qp->rx->recv->wr_id
							     : qp->rx->read->wr_id,
				    i, sge == qp->rx->recv->sge ? "a receive" : "a read's sink",
				    &sge[i], IBV_ACCESS_LOCAL_WRITE, f);
		return f;
	}
	return KEY_BOUNDS;
}

enum key_fault rx_sge_target(struct stag_qp *qp, const struct ibv_sge *sge, uint32_t n,
			     uint64_t off, uint32_t len, struct key_map *map)
{
	enum key_fault f;

	while ((f = rx_try_sge_target(qp, sge, n, off, len, map)) == KEY_BUSY)
		sched_yield();
	return f;
}

enum key_fault rx_write_target(struct stag_qp *qp, uint32_t len, struct key_map *map)
{
	struct qp_rx *rx = qp->rx;

	if (rx->on_store)
		return rx_store_target(qp, len, map);
	return key_get(rx->h.stag, qp->pd, qp, rx->h.to + rx->seg_done, len,
		       IBV_ACCESS_REMOTE_WRITE, map);
}

enum key_fault rx_response_target(struct stag_qp *qp, uint32_t len, struct key_map *map)
{
	struct qp_rx *rx = qp->rx;

	return rx_sge_target(qp, rx->read->sge, rx->read->num_sge, rx->read->rx_off + rx->seg_done,
			     len, map);
}

enum key_fault rx_recv_target(struct stag_qp *qp, uint32_t len, struct key_map *map)
{
	struct qp_rx *rx = qp->rx;

	return rx_sge_target(qp, rx->recv->sge, rx->recv->num_sge, rx->recv_off + rx->seg_done, len,
			     map);
}

enum key_fault rx_target(struct stag_qp *qp, uint32_t len, struct key_map *map)
{
	assert(qp_rx_locked(qp));
	if (qp->rx->dropped)
		return rc_drop_target(qp, len, map) ? KEY_OK : KEY_INVALID;
	return rx_messages[qp->rx->h.opcode].target(qp, len, map);
}

void rx_complete_recv(struct stag_qp *qp, enum ibv_wc_status status, const struct ibv_wc *more,
		      bool solicited)
{
	struct qp_rx *rx = qp->rx;
	struct ibv_wc wc = {
		.wr_id = rx->recv->wr_id,
		.status = status,
		.opcode = IBV_WC_RECV,
		.byte_len = rx->recv_off,
		.qp_num = qp->ibv.qp_num,
		.src_qp = qp->ibv.qp_num,
	};

	assert(qp_rx_locked(qp));
	if (more) {
		wc.opcode = more->opcode;
		wc.byte_len = more->byte_len;
		wc.imm_data = more->imm_data; /* a union with invalidated_rkey */
		wc.wc_flags = more->wc_flags;
		wc.vendor_err = more->vendor_err;
	}
	rx->recv_open = false;
	if (status != IBV_WC_WR_FLUSH_ERR && rx_must_hold(qp))
		rx_hold_receive(qp, &wc, solicited);
	else
		qp_push_recv(qp, &wc, solicited);
}

/*
 * Fails a request of our own whose memory is invalid, and the queue pair with it. Always
 * returns false.
 */
bool rx_stop_locally(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	struct terminate t;

	assert(qp_rx_locked(qp));
	if (rx->h.opcode == RDMAP_READ_RESP)
		rx->read->status = IBV_WC_LOC_PROT_ERR;
	else
		rx_complete_recv(qp, IBV_WC_LOC_PROT_ERR, NULL, false);
	terminate_init(&t, FAULT_DDP_LOCAL, NULL, 0, 0);
	lock_acquire(&qp->tx_lock);
	if (rx->h.opcode == RDMAP_READ_RESP)
		rx->read->done = true;
	lock_release(&qp->tx_lock);
	if (qp->rc) /* what became of our own request is no concern of the peer */
		return rc_refuse(qp, rx->h.opcode == RDMAP_READ_RESP ? NAK_NONE : NAK_OP,
				 RC_NO_EVENT);
	rx_end(qp, &(struct rx_end){.kind = END_FAULT, .term = t, .event = IBV_EVENT_QP_FATAL});
	return false;
}

/* Refuses the peer's write. Always returns false. */
bool rx_refuse_write(struct stag_qp *qp, enum key_fault f)
{
	const struct qp_rx *rx = qp->rx;
	const struct key_access a = {.stag = rx->h.stag,
				     .to = rx->h.to,
				     .len = rx->seg_len,
				     .access = IBV_ACCESS_REMOTE_WRITE};

	assert(qp_rx_locked(qp));
	log_refused_access(qp, "write", &a, f);
	key_refused(qp, a.stag, f);
	return rx_stop_logged(qp, rx_write_fault(f));
}

bool rx_target_fault(struct stag_qp *qp, enum key_fault f)
{
	assert(qp_rx_locked(qp));
	if (qp->rx->h.opcode == RDMAP_WRITE)
		return rx_refuse_write(qp, f);
	return rx_stop_locally(qp);
}

/*
 * Programs wait for a write by polling its last bytes: they are stored last, and a word in one
 * store. memcpy() guarantees neither.
 */
static void copy_end_last(uint8_t *to, const uint8_t *from, size_t len)
{
	uint64_t word;

	if (len < sizeof(word) || (uintptr_t)(to + len) % sizeof(word)) {
		memcpy(to, from, len - 1);
		__atomic_store_n(to + len - 1, from[len - 1], __ATOMIC_RELEASE);
		return;
	}
	len -= sizeof(word);
	memcpy(to, from, len);
	memcpy(&word, from + len, sizeof(word));
	__atomic_store_n((uint64_t *)(to + len), word, __ATOMIC_RELEASE);
}

void rx_scatter(const struct key_map *map, const uint8_t *from)
{
	for (unsigned i = 0; i < map->n; i++) {
		copy_end_last(map->iov[i].iov_base, from, map->iov[i].iov_len);
		from += map->iov[i].iov_len;
	}
}

/* Places bytes in mapped memory, and drops the references to it. Returns how many. */
static uint32_t place_in(struct qp_rx *rx, struct key_map *map, const uint8_t *from)
{
	uint32_t n = (uint32_t)map->len;

	rx_scatter(map, from);
	key_put(map);
	rx->seg_done += n;
	return n;
}

/* Copies staged bytes to where they belong. */
bool rx_place(struct stag_qp *qp, const uint8_t *from, uint32_t len)
{
	struct qp_rx *rx = qp->rx;
	uint32_t n;

	assert(qp_rx_locked(qp));
	if (rx->here.slot[0]) {
		n = place_in(rx, &rx->here, from);
		from += n;
		len -= n;
	}
	while (len) {
		struct key_map map;
		enum key_fault f = rx_target(qp, len, &map);

		if (f != KEY_OK)
			return rx_target_fault(qp, f);
		n = place_in(rx, &map, from);
		from += n;
		len -= n;
	}
	return true;
}

void rx_crc_pieces(struct qp_rx *rx, const struct key_map *map, size_t n)
{
	for (unsigned i = 0; i < map->n && n; i++) {
		size_t part = map->iov[i].iov_len < n ? map->iov[i].iov_len : n;

		rx->crc = crc32c_update(rx->crc, map->iov[i].iov_base, part);
		n -= part;
	}
}

/*
 * The segment's payload was read before its header, to a place that the peer may write to. The
 * header must name that place, and continue the message if more of it was read.
 */
bool rx_keep_promise(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;
	uint32_t full = qp_full(qp), left = rx->pre_placed < full ? rx->pre_placed : full;

	assert(qp_rx_locked(qp));
	rx->pre_placed -= left;
	if (rx->h.opcode != rx->promise.opcode || rx->h.stag != rx->promise.stag ||
	    rx->h.to != rx->promise.to || rx->seg_len != full || (rx->pre_placed && rx->h.last))
		return rx_stop_with(qp, FAULT_RDMAP_STREAM);
	rx->promise.to += full;
	while (left) {
		struct key_map map;
		enum key_fault f = rx_target(qp, left, &map);

		if (f != KEY_OK)
			return rx_target_fault(qp, f);
		if (qp->link.crc)
			rx_crc_pieces(rx, &map, map.len);
		key_put(&map);
		rx->seg_done += (uint32_t)map.len;
		left -= (uint32_t)map.len;
	}
	return true;
}

static void stage_pieces(struct qp_rx *rx, const struct key_map *map)
{
	for (unsigned i = 0; i < map->n; i++) {
		memcpy(rx->stage + rx->tail, map->iov[i].iov_base, map->iov[i].iov_len);
		rx->tail += (uint32_t)map->iov[i].iov_len;
	}
}

/*
 * A Terminate may come in place of an announced segment. Its bytes went to the segment's place,
 * which the peer may overwrite anyway: copies them back into the stage.
 */
void rx_take_back(struct stag_qp *qp)
{
	struct qp_rx *rx = qp->rx;

	assert(qp_rx_locked(qp));
	if (rx->pre_placed >= qp_full(qp) || rx->pre_placed > rx->stage_size - rx->tail)
		return; /* longer than any Terminate: fails as a broken announcement */
	rx->h = rx->promise;
	for (rx->seg_done = 0; rx->pre_placed;) {
		struct key_map map;

		if (rx_target(qp, rx->pre_placed, &map) != KEY_OK)
			return;
		stage_pieces(rx, &map);
		key_put(&map);
		rx->seg_done += (uint32_t)map.len;
		rx->pre_placed -= (uint32_t)map.len;
	}
}

/*
 * The last segment of a write: a program may poll its end, and change all of it as soon as the
 * end is there. So the end is placed after the CRC was checked, and not by the kernel, which
 * copies in any order.
 */
static bool ends_write(const struct qp_rx *rx)
{
	return rx->h.opcode == RDMAP_WRITE && rx->h.last;
}

uint32_t rx_tail_of(const struct qp_rx *rx)
{
	uint32_t left = rx->seg_len - rx->seg_done;

	if (!ends_write(rx))
		return 0;
	return left < TAIL ? left : TAIL;
}

/*
 * Returns in *n how much of the staged payload may be placed now. Returns false if its CRC is
 * wrong.
 */
bool rx_may_place(struct stag_qp *qp, uint32_t *n)
{
	struct qp_rx *rx = qp->rx;
	uint32_t left = rx->seg_len - rx->seg_done, pad = fpdu_pad(rx->ulpdu_len);
	const uint8_t *p = rx->stage + rx->head;

	assert(qp_rx_locked(qp));
	*n = left < rx_staged(rx) ? left : rx_staged(rx);
	if (!qp->link.crc || rx->verified || !ends_write(rx))
		return true;
	if (rx_staged(rx) < left + pad + MPA_CRC_LEN) {
		if (*n > left - rx_tail_of(rx))
			*n = left - rx_tail_of(rx);
		return true;
	}
	rx->verified = true;
	return crc32c_matches(p + left + pad, crc32c_update(rx->crc, p, left + pad));
}
