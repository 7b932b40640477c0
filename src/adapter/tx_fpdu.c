// SPDX-License-Identifier: BSD-2-Clause
/*
 * tx_fpdu.c - one FPDU of a batch: its bytes, its header, its CRC.
 *
 * Knows how bytes get into a batch, and nothing of their meaning.
 */
#include "adapter/qp_tx.h"

#include <assert.h>

#include "adapter/guard.h"
#include "adapter/rc.h"
#include "base/crc32c.h"

static void ref_put(struct tx_ref *r)
{
	guard_leave(r->cell);
	r->cell = NULL;
	key_release(r->slot);
}

void tx_refs_put(struct qp_tx *tx)
{
	if (!tx->refs_held)
		return;
	for (unsigned i = 0; i < tx->n_ref; i++)
		ref_put(&tx->ref[i]);
	tx->refs_held = false;
}

/*
 * Data of a leased region is copied within the lease for a peer. If the batch refers to memory,
 * the region had no lease then; if it has one now, the reference is refused.
 */
static enum key_fault ref_get_again(struct tx_ref *r)
{
	enum key_fault f = KEY_OK;

	if (!key_hold_again(r->slot, r->stag, r->life))
		return KEY_INVALID;
	if (r->who == FOR_PEER && key_is_leased(r->slot))
		f = KEY_LAPSED;
	else if (r->slot->guard)
		f = guard_enter(r->slot->guard, &r->cell);
	if (f != KEY_OK)
		key_release(r->slot);
	return f;
}

/*
 * Drops references to memory that is already sent: the peer may have closed its STag for that
 * reason.
 */
static void forget_sent(struct qp_tx *tx)
{
	unsigned sent = 0;

	while (sent < tx->n_ref && tx->ref[sent].upto < tx->cur)
		sent++;
	if (!sent)
		return;
	tx->n_ref -= sent;
	memmove(tx->ref, tx->ref + sent, tx->n_ref * sizeof(*tx->ref));
}

enum key_fault tx_refs_get_again(struct qp_tx *tx)
{
	forget_sent(tx);
	for (unsigned i = 0; i < tx->n_ref; i++) {
		enum key_fault f = ref_get_again(&tx->ref[i]);

		if (f == KEY_OK)
			continue;
		while (i--)
			ref_put(&tx->ref[i]);
		return f;
	}
	tx->refs_held = true;
	return KEY_OK;
}

enum key_fault tx_key_get(struct stag_qp *qp, uint32_t stag, struct stag_qp *peer, uint64_t to,
			  uint64_t len, unsigned access, struct key_map *map)
{
	assert(qp_tx_locked(qp));
	if (qp->tx->n_ref) /* a thread that holds hazard cells must not wait for one */
		return key_try_get(stag, qp->pd, peer, to, len, access, map);
	return key_get(stag, qp->pd, peer, to, len, access, map);
}

struct mark tx_mark(const struct qp_tx *tx)
{
	return (struct mark){
		.n = tx->n,
		.last_len = tx->n ? tx->iov[tx->n - 1].iov_len : 0,
		.n_ref = tx->n_ref,
		.buf_used = tx->buf_used,
		.bytes = tx->bytes,
		.bounce_used = tx->bounce_used,
	};
}

void tx_back_to(struct qp_tx *tx, const struct mark *m)
{
	while (tx->n_ref > m->n_ref)
		ref_put(&tx->ref[--tx->n_ref]);
	tx->n = m->n;
	if (tx->n)
		tx->iov[tx->n - 1].iov_len = m->last_len;
	tx->buf_used = m->buf_used;
	tx->bytes = m->bytes;
	tx->bounce_used = m->bounce_used;
}

/* Returns the next len bytes of the batch's buffer, as the next bytes of the stream. */
uint8_t *tx_own_bytes(struct qp_tx *tx, size_t len)
{
	uint8_t *p = tx->buf + tx->buf_used;
	struct iovec *last = tx->n ? &tx->iov[tx->n - 1] : NULL;

	assert(len <= TX_BUF - tx->buf_used);
	tx->buf_used += (uint32_t)len;
	tx->bytes += (uint32_t)len;
	if (last && (uint8_t *)last->iov_base + last->iov_len == p)
		last->iov_len += len;
	else
		tx->iov[tx->n++] = (struct iovec){p, len};
	return p;
}

void tx_foreign_bytes(struct qp_tx *tx, const struct iovec *piece)
{
	tx->iov[tx->n++] = *piece;
	tx->bytes += (uint32_t)piece->iov_len;
}

/* Moves the map's references to the batch. */
void tx_keep_refs(struct qp_tx *tx, struct key_map *map, enum tx_for who)
{
	for (int i = 0; i < 2; i++) {
		struct tx_ref *last = tx->n_ref ? &tx->ref[tx->n_ref - 1] : NULL;
		struct key_slot *s = map->slot[i];

		if (!s)
			continue;
		map->slot[i] = NULL;
		if (last && last->slot == s && last->who == who) {
			key_release(s); /* the previous piece holds it */
			last->upto = tx->n - 1;
			continue;
		}
		tx->ref[tx->n_ref++] = (struct tx_ref){.slot = s,
						       .stag = atomic_load(&s->stag),
						       .life = s->life,
						       .upto = tx->n - 1,
						       .who = who};
		if (s->guard) {
			tx->ref[tx->n_ref - 1].cell = map->cell;
			map->cell = NULL;
		}
	}
	guard_leave(map->cell);
	map->cell = NULL;
	tx->refs_held = true;
}

void tx_sum_header(const struct stag_qp *qp, struct ddp_hdr *h, size_t payload)
{
	h->summed = qp_sums(qp) && fpdu_len(DDP_MAX_HDR + payload) > FPDU_UNSUMMED;
}

struct fpdu fpdu_begin(struct qp_tx *tx, const struct ddp_hdr *h)
{
	struct fpdu f = {.hdr_len = h->tagged ? DDP_TAGGED_LEN : DDP_UNTAGGED_LEN, .flat = true};

	f.hdr_len += h->summed ? DDP_SUM_LEN : 0;
	f.start = tx_own_bytes(tx, MPA_LEN_FIELD + f.hdr_len);
	f.first = tx->n;
	return f;
}

static void put_header(const struct fpdu *f, const struct ddp_hdr *h)
{
	size_t len;

	put_be16(f->start, (uint16_t)(f->hdr_len + f->payload));
	len = MPA_LEN_FIELD + ddp_encode(h, f->start + MPA_LEN_FIELD);
	if (h->summed)
		crc32c_put(f->start + len, crc32c_update(CRC32C_INIT, f->start, len));
}

/* Copies the payload, all of which is in map, and computes its CRC on the way. */
void fpdu_sum_copy(struct fpdu *f, const struct ddp_hdr *h, uint8_t *to, const struct key_map *map)
{
	put_header(f, h);
	f->crc = crc32c_update(CRC32C_INIT, f->start, MPA_LEN_FIELD + f->hdr_len);
	for (unsigned i = 0; i < map->n; i++) {
		f->crc = crc32c_copy(f->crc, to, map->iov[i].iov_base, map->iov[i].iov_len);
		to += map->iov[i].iov_len;
	}
	f->summed = true;
}

static uint32_t fpdu_crc(const struct qp_tx *tx, const struct fpdu *f, unsigned pad)
{
	size_t head = MPA_LEN_FIELD + f->hdr_len;
	uint32_t crc;

	if (f->summed)
		return crc32c_update(f->crc, "\0\0\0", pad);
	if (f->flat)
		return crc32c_update(CRC32C_INIT, f->start, head + f->payload + pad);
	crc = crc32c_update(CRC32C_INIT, f->start, head);
	size_t left = f->payload;

	for (int i = f->first; left; i++) {
		crc = crc32c_update(crc, tx->iov[i].iov_base, tx->iov[i].iov_len);
		left -= tx->iov[i].iov_len;
	}
	return crc32c_update(crc, "\0\0\0", pad);
}

/* Counts the segments that the peer expects to follow this one. */
static void note_promise(struct rc *rc, const struct ddp_hdr *h)
{
	uint32_t more = 0;

	if (h->tagged && !h->last && (h->rsv & RDMAP_RSV_FULL_NEXT))
		more = (h->rsv & RDMAP_RSV_FULL_RUN) == RDMAP_RSV_FULL_RUN ? RDMAP_FULL_RUN : 1;
	if (rc->promised)
		rc->promised--;
	if (rc->promised < more)
		rc->promised = more;
}

/* Completes an FPDU whose payload is known: header, pad and CRC. */
void fpdu_end(struct stag_qp *qp, const struct fpdu *f, const struct ddp_hdr *h)
{
	struct qp_tx *tx = qp->tx;
	size_t ulpdu = f->hdr_len + f->payload;
	unsigned pad = fpdu_pad(ulpdu);
	uint8_t *tail;

	assert(qp_tx_locked(qp));
	put_header(f, h);
	tail = tx_own_bytes(tx, pad + MPA_CRC_LEN);
	memset(tail, 0, pad + MPA_CRC_LEN);
	if (qp->link.crc && !qp->link.markers_tx)
		crc32c_put(tail + pad, fpdu_crc(tx, f, pad));
	if (qp->rc)
		note_promise(qp->rc, h);
	qp->stats.counters.tx_fpdus++;
	qp->stats.counters.tx_payload += f->payload;
	qp->stats.counters.tx_msgs += h->last;
}

/*
 * Returns the place of a payload that is built in the buffer: a request, a response, an
 * immediate.
 */
uint8_t *fpdu_own_payload(struct qp_tx *tx, struct fpdu *f, size_t len)
{
	f->payload = len;
	return tx_own_bytes(tx, len);
}

struct ddp_hdr tx_untagged(struct qp_tx *tx, enum rdmap_op op, enum ddp_qn qn)
{
	return (struct ddp_hdr){.opcode = op, .qn = qn, .msn = tx->msn[qn], .last = true};
}

void tx_copy_pieces(uint8_t *to, const struct key_map *map)
{
	for (unsigned i = 0; i < map->n; i++) {
		memcpy(to, map->iov[i].iov_base, map->iov[i].iov_len);
		to += map->iov[i].iov_len;
	}
}

/*
 * Announces full segments: the peer may read several in one go if it knows their length. Only
 * for memory in one piece, which is never cut short, and not for the last segment, whose end
 * the peer places after the rest.
 */
void tx_promise_full(const struct stag_qp *qp, struct ddp_hdr *h, size_t left)
{
	size_t full = qp_full(qp);

	if (!(qp->link.caps & MPA_EXT_BIG_FPDU) || left <= full)
		return;
	if (qp->rc && rc_words_are_due(qp))
		return; /* they may go before the next segment */
	h->rsv |= left > RDMAP_FULL_RUN * full ? RDMAP_RSV_FULL_RUN : RDMAP_RSV_FULL_NEXT;
}
