// SPDX-License-Identifier: BSD-2-Clause
/*
 * rx_read.c - reads bytes from the stream, into the stage or straight into their destination.
 *
 * Decides how many to read at a time, and so the number of system calls.
 */
#include "adapter/qp_rx.h"

#include <assert.h>
#include <errno.h>

#include "adapter/stream.h"

uint32_t rx_staged(const struct qp_rx *rx)
{
	return rx->tail - rx->head;
}

static void make_room(struct qp_rx *rx)
{
	uint32_t n = rx_staged(rx);

	if (rx->head == 0)
		return;
	if (n)
		memmove(rx->stage, rx->stage + rx->head, n);
	rx->head = 0;
	rx->tail = n;
}

/* Reads into the stage. *full: the read filled it, there may be more. */
static ssize_t read_staged(struct stag_qp *qp, bool *full)
{
	struct qp_rx *rx = qp->rx;
	struct iovec v;
	ssize_t n;

	make_room(rx);
	v = (struct iovec){rx->stage + rx->tail, rx->stage_size - rx->tail};
	n = qp->stream->ops->recv(qp->stream, &v, 1);
	if (n > 0)
		rx->tail += (uint32_t)n;
	*full = n == (ssize_t)v.iov_len;
	return n;
}

/*
 * Returns the number of full segments to read behind this one: as many as the peer announced,
 * but one with CRC, where more were measured to be slower (bench/verbs, read_bw_1M_crc).
 */
static uint32_t announced_segments(const struct stag_qp *qp)
{
	const struct ddp_hdr *h = &qp->rx->h;

	if (qp->rx->dropped)
		return 0;
	if (!(qp->link.caps & MPA_EXT_BIG_FPDU) || !(h->rsv & RDMAP_RSV_FULL_NEXT) || h->last ||
	    (h->opcode != RDMAP_WRITE && h->opcode != RDMAP_READ_RESP))
		return 0;
	if (qp->link.crc || (h->rsv & RDMAP_RSV_FULL_RUN) != RDMAP_RSV_FULL_RUN)
		return 1;
	return RDMAP_FULL_RUN;
}

/* Maps the memory of the announced segments. Returns how many of them have a place. */
static uint32_t next_target(struct stag_qp *qp, struct key_map *map)
{
	struct qp_rx *rx = qp->rx;
	uint32_t n = announced_segments(qp);
	enum key_fault f;

	if (!n)
		return 0;
	rx->promise = rx->h;
	rx->promise.to += rx->seg_len;
	if (rx->h.opcode == RDMAP_WRITE)
		f = key_try_get(rx->h.stag, qp->pd, qp, rx->promise.to, n * qp_full(qp),
				IBV_ACCESS_REMOTE_WRITE, map);
	else
		f = rx_try_sge_target(qp, rx->read->sge, rx->read->num_sge,
				      (uint64_t)rx->read->rx_off + rx->seg_len, n * qp_full(qp),
				      map);
	if (f != KEY_OK)
		return 0;
	n = (uint32_t)(map->len / qp_full(qp));
	if (!n)
		key_put(map);
	return n;
}

/*
 * The vector of a read: payload, trailer and next header, next payload, and so on. Everything
 * but payload goes into the stage, in order.
 */
struct scatter {
	struct iovec iov[8 + 1 + RDMAP_FULL_RUN * 2 + 8];
	int n;
	size_t len;
	struct key_map here, next;
	uint32_t run; /* announced segments, in next */
	size_t gap;   /* bytes for the stage after the first payload */
	size_t stage; /* bytes for the stage in all */
};

/* Returns the bytes for the stage between two payloads: a trailer, and a header. */
static size_t gap_after(const struct stag_qp *qp, size_t ulpdu_len)
{
	return fpdu_pad(ulpdu_len) + MPA_CRC_LEN + MPA_LEN_FIELD + qp_long_hdr(qp);
}

static void scatter_add(struct scatter *s, void *base, size_t len)
{
	s->iov[s->n++] = (struct iovec){base, len};
	s->len += len;
}

static void scatter_to_stage(struct qp_rx *rx, struct scatter *s, size_t len)
{
	scatter_add(s, rx->stage + s->stage, len);
	s->stage += len;
}

/* Adds the next full segment's part of the memory, whose pieces shrink from the front. */
static void scatter_full(struct scatter *s, struct iovec **piece, size_t left)
{
	while (left) {
		size_t n = (*piece)->iov_len < left ? (*piece)->iov_len : left;

		scatter_add(s, (*piece)->iov_base, n);
		(*piece)->iov_base = (uint8_t *)(*piece)->iov_base + n;
		(*piece)->iov_len -= n;
		left -= n;
		if (!(*piece)->iov_len)
			(*piece)++;
	}
}

static void scatter_behind(struct stag_qp *qp, struct scatter *s, uint32_t left)
{
	struct qp_rx *rx = qp->rx;
	struct iovec *piece = s->next.iov;

	s->run = next_target(qp, &s->next);
	if (!s->run) {
		memset(&s->next, 0, sizeof(s->next.slot));
		s->next.cell = NULL;
		s->gap = left >= BULK ? rx_tail_of(rx) + CATCH : rx->stage_size;
		scatter_to_stage(rx, s, s->gap);
		return;
	}
	s->gap = gap_after(qp, rx->ulpdu_len);
	for (uint32_t i = 0; i < s->run; i++) {
		scatter_to_stage(rx, s, i ? gap_after(qp, MPA_MAX_ULPDU) : s->gap);
		scatter_full(s, &piece, qp_full(qp));
	}
	scatter_to_stage(rx, s, CATCH);
}

static uint32_t take_part(size_t *n, size_t most)
{
	size_t part = *n < most ? *n : most;

	*n -= part;
	return (uint32_t)part;
}

static void note_scattered(struct stag_qp *qp, const struct scatter *s, size_t n)
{
	struct qp_rx *rx = qp->rx;
	uint32_t placed = take_part(&n, s->here.len);

	if (qp->link.crc)
		rx_crc_pieces(rx, &s->here, placed);
	rx->seg_done += placed;
	rx->tail = take_part(&n, s->gap);
	for (uint32_t i = 0; i < s->run; i++) {
		rx->pre_placed += take_part(&n, qp_full(qp));
		rx->tail += take_part(&n, i + 1 < s->run ? gap_after(qp, MPA_MAX_ULPDU) : CATCH);
	}
}

/* Reads payload straight to its place, and what follows into the (empty) stage. */
static ssize_t read_direct(struct stag_qp *qp, bool *full)
{
	struct qp_rx *rx = qp->rx;
	uint32_t left = rx->seg_len - rx->seg_done - rx_tail_of(rx);
	struct scatter s = {.n = 0};
	enum key_fault f = rx_target(qp, left, &s.here);
	ssize_t n;

	if (f != KEY_OK) {
		rx_target_fault(qp, f);
		return -ECANCELED;
	}
	rx->head = rx->tail = 0;
	for (unsigned i = 0; i < s.here.n; i++)
		scatter_add(&s, s.here.iov[i].iov_base, s.here.iov[i].iov_len);
	if (s.here.len == left)
		scatter_behind(qp, &s, left);
	n = qp->stream->ops->recv(qp->stream, s.iov, s.n);
	if (n > 0)
		note_scattered(qp, &s, (size_t)n);
	*full = n == (ssize_t)s.len;
	key_put(&s.here);
	key_put(&s.next);
	return n;
}

static ssize_t read_marked(struct stag_qp *qp, bool *full)
{
	struct qp_rx *rx = qp->rx;
	struct iovec v = {rx->marked + rx->marked_len, MARKED - rx->marked_len};
	ssize_t n = qp->stream->ops->recv(qp->stream, &v, 1);

	if (n > 0)
		rx->marked_len += (uint32_t)n;
	*full = n == (ssize_t)v.iov_len;
	return n;
}

ssize_t rx_read_some(struct stag_qp *qp, bool *full)
{
	struct qp_rx *rx = qp->rx;

	assert(qp_rx_locked(qp));
	assert(!rx->here.slot[0]); /* otherwise a peer could delay a deregistration */
	if (rx->marked)
		return read_marked(qp, full);
	if (rx->step == RX_PAYLOAD && rx_staged(rx) == 0 && !rx_is_control(rx->h.opcode) &&
	    rx->seg_len - rx->seg_done > rx_tail_of(rx))
		return read_direct(qp, full);
	return read_staged(qp, full);
}
