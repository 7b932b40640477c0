// SPDX-License-Identifier: BSD-2-Clause
/*
 * rx_read.c - bytes from the stream: into the stage, or straight into their place.
 *
 * How many at a time, and how many system calls that takes, is decided here.
 */
#include "adapter/qp_rx.h"

#include <errno.h>

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

/* Into the stage; *full: the read took all it asked for, there may be more. */
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

/* The place of the segment behind this one, where the peer promised a full one. */
static bool next_target(struct stag_qp *qp, struct key_map *map)
{
	struct qp_rx *rx = qp->rx;
	enum key_fault f;

	if (!(rx->h.rsv & RDMAP_RSV_FULL_NEXT) || !(qp->link.caps & MPA_EXT_BIG_FPDU) || rx->h.last)
		return false;
	rx->promise = rx->h;
	rx->promise.to += rx->seg_len;
	if (rx->h.opcode == RDMAP_WRITE)
		f = key_get(rx->h.stag, qp->pd, qp, rx->promise.to, FULL, IBV_ACCESS_REMOTE_WRITE,
			    map);
	else if (rx->h.opcode == RDMAP_READ_RESP)
		f = rx_sge_target(qp, rx->read->sge, rx->read->num_sge,
				  (uint64_t)rx->read->rx_off + rx->seg_len, FULL, map);
	else
		return false;
	if (f == KEY_OK && map->len < FULL)
		key_put(map);
	return f == KEY_OK && map->len == FULL;
}

/* The vector of a read: payload, trailer and next header, next payload, and what follows. */
struct scatter {
	struct iovec iov[18];
	int n;
	struct key_map here, next;
	size_t behind; /* into the stage, between the two payloads or after the only one */
	size_t catch;  /* into the stage, after the second payload */
};

static void scatter_add(struct scatter *s, const struct iovec *iov, unsigned n)
{
	memcpy(s->iov + s->n, iov, n * sizeof(*iov));
	s->n += (int)n;
}

static void scatter_behind(struct stag_qp *qp, struct scatter *s, uint32_t left)
{
	struct qp_rx *rx = qp->rx;

	s->catch = 0;
	if (!next_target(qp, &s->next)) {
		memset(&s->next, 0, sizeof(s->next.slot));
		s->next.len = 0;
		s->behind = left >= BULK ? rx_tail_of(rx) + CATCH : rx->stage_size;
		scatter_add(s, &(struct iovec){rx->stage, s->behind}, 1);
		return;
	}
	s->behind = fpdu_pad(rx->ulpdu_len) + MPA_CRC_LEN + MPA_LEN_FIELD + DDP_TAGGED_LEN;
	s->catch = CATCH;
	scatter_add(s, &(struct iovec){rx->stage, s->behind}, 1);
	scatter_add(s, s->next.iov, s->next.n);
	scatter_add(s, &(struct iovec){rx->stage + s->behind, CATCH}, 1);
}

static size_t take(size_t *n, size_t most)
{
	size_t part = *n < most ? *n : most;

	*n -= part;
	return part;
}

static void scattered(struct stag_qp *qp, const struct scatter *s, size_t n)
{
	struct qp_rx *rx = qp->rx;
	size_t placed = take(&n, s->here.len);

	if (qp->link.crc)
		rx_crc_pieces(rx, &s->here, placed);
	rx->seg_done += (uint32_t)placed;
	rx->tail = (uint32_t)take(&n, s->behind);
	rx->pre_placed = (uint32_t)take(&n, s->next.len);
	rx->tail += (uint32_t)n;
}

/* Payload straight to its place; what follows it into the (empty) stage. */
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
	scatter_add(&s, s.here.iov, s.here.n);
	if (s.here.len == left)
		scatter_behind(qp, &s, left);
	n = qp->stream->ops->recv(qp->stream, s.iov, s.n);
	if (n > 0)
		scattered(qp, &s, (size_t)n);
	*full = n == (ssize_t)(s.here.len + s.behind + s.next.len + s.catch);
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

	if (rx->marked)
		return read_marked(qp, full);
	if (rx->step == RX_PAYLOAD && rx_staged(rx) == 0 && !rx_is_control(rx->h.opcode) &&
	    rx->seg_len - rx->seg_done > rx_tail_of(rx))
		return read_direct(qp, full);
	return read_staged(qp, full);
}
