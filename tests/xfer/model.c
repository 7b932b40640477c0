// SPDX-License-Identifier: BSD-2-Clause
/*
 * model.c - checks plans against the definition. Written to be read, not to be fast: every query
 * searches all pieces.
 *
 * Why plans that pass have the fewest descriptors. Let p(0), p(1), ... be the first bytes of the
 * descriptors. The bytes from p(i) up to and including p(i + 1) are more than one descriptor may
 * hold: that is one of the claims. Any descriptor that holds both p(i) and p(j), i < j, holds all
 * bytes from p(i) to p(i + 1), since a descriptor is one range of the chain. Such a descriptor is
 * not allowed, since adding bytes to a forbidden range does not make it allowed: it removes no
 * byte, no segment and no gap. So every division has a descriptor of its own for each of p(0),
 * p(1), ...
 */
#include "model.h"

/*
 * Returns whether `next` is adjacent to a range that has bytes. Nothing is adjacent to a range that
 * ends at 2^64.
 */
static bool follows(uint64_t addr, uint64_t length, uint64_t next)
{
	return length - 1 < UINT64_MAX - addr && next == addr + length;
}

static void add_piece(struct model *m, const struct piece *piece)
{
	struct piece *added = &m->pieces[m->n];
	const struct piece *before = added - 1;

	*added = *piece;
	if (m->n != 0) {
		added->remote_break = added->rkey != before->rkey ||
				      !follows(before->remote, before->length, added->remote);
		added->local_break = added->lkey != before->lkey ||
				     !follows(before->local, before->length, added->local);
	}
	m->n++;
	m->total += piece->length;
}

void model_make(struct model *m, const struct stag_xfer_limits *limits,
		const struct stag_xfer_req *req)
{
	m->limits = limits;
	m->req = req;
	m->n = 0;
	m->total = 0;
	for (size_t e = 0; e < req->num_elems; e++) {
		const struct stag_xfer_elem *elem = &req->elems[e];
		uint64_t offset = 0;

		for (uint32_t b = 0; b < elem->num_bufs; b++) {
			const struct stag_xfer_buf *buf = &elem->bufs[b];
			struct piece piece = {.at = m->total,
					      .length = buf->length,
					      .local = buf->addr,
					      .remote = elem->remote_addr + offset,
					      .lkey = buf->lkey,
					      .rkey = elem->rkey,
					      .begin = {.elem = e, .offset = offset, .buf = b}};

			if (buf->length != 0)
				add_piece(m, &piece);
			offset += buf->length;
		}
	}
}

const struct piece *model_piece(const struct model *m, uint64_t at)
{
	const struct piece *p = m->pieces;

	while (at - p->at >= p->length)
		p++;
	return p;
}

struct stag_xfer_cursor model_cursor(const struct model *m, uint64_t at)
{
	struct stag_xfer_cursor cursor = {.elem = m->req->num_elems};
	const struct piece *p;

	if (at == m->total)
		return cursor;
	p = model_piece(m, at);
	cursor = p->begin;
	cursor.offset += at - p->at;
	cursor.buf_offset += at - p->at;
	return cursor;
}

static struct breaks breaks_within(const struct model *m, uint64_t from, uint64_t to)
{
	struct breaks breaks = {0};

	for (size_t i = 0; i < m->n; i++) {
		if (m->pieces[i].at > from && m->pieces[i].at < to) {
			breaks.remote += m->pieces[i].remote_break;
			breaks.local += m->pieces[i].local_break;
		}
	}
	return breaks;
}

bool model_allows(const struct stag_xfer_limits *limits, uint64_t bytes, struct breaks within)
{
	return bytes != 0 && bytes <= limits->max_transfer && within.remote == 0 &&
	       within.local < limits->max_segments;
}

static bool may_be_one(const struct model *m, uint64_t from, uint64_t to)
{
	return model_allows(m->limits, to - from, breaks_within(m, from, to));
}

static uint32_t elems_with_bytes(const struct model *m, uint64_t from, uint64_t to)
{
	uint32_t n = 0;
	size_t last = SIZE_MAX;

	for (size_t i = 0; i < m->n; i++) {
		const struct piece *p = &m->pieces[i];

		if (p->at < to && p->at + p->length > from && p->begin.elem != last) {
			n++;
			last = p->begin.elem;
		}
	}
	return n;
}

/* Checks the reason that a descriptor gives for its end before byte `next`. */
static bool end_reason_is_true(const struct model *m, const struct stag_xfer_desc *desc,
			       uint64_t next)
{
	const struct piece *p;

	if (next == m->total)
		return desc->end == STAG_XFER_END_CHAIN;
	p = model_piece(m, next);
	switch (desc->end) {
	case STAG_XFER_END_CHAIN:
		return false;
	case STAG_XFER_END_KEY:
		return p->at == next && p->rkey != desc->rkey;
	case STAG_XFER_END_GAP:
		return p->at == next && p->remote_break && p->rkey == desc->rkey;
	case STAG_XFER_END_SIZE:
		return desc->length == m->limits->max_transfer &&
		       (p->at != next || !p->remote_break);
	case STAG_XFER_END_SEGMENTS:
		return p->at == next && p->local_break && !p->remote_break &&
		       desc->num_sge == m->limits->max_segments;
	}
	return false;
}

#define CLAIM(claim)                                                                               \
	do {                                                                                       \
		if (!(claim))                                                                      \
			return #claim;                                                             \
	} while (0)

/*
 * Checks that the segment is these bytes of the chain, in order. Returns NULL or the claim that
 * fails.
 */
static const char *check_segment(const struct model *m, uint64_t at, const struct ibv_sge *sge)
{
	uint64_t addr = sge->addr, left = sge->length;

	CLAIM(left != 0);
	CLAIM(left <= m->total - at);
	while (left != 0) {
		const struct piece *p = model_piece(m, at);
		uint64_t n = p->at + p->length - at;

		n = n < left ? n : left;
		CLAIM(sge->lkey == p->lkey);
		CLAIM(addr == p->local + (at - p->at));
		addr += n;
		at += n;
		left -= n;
	}
	return NULL;
}

static const char *check_segments(const struct model *m, uint64_t at,
				  const struct stag_xfer_desc *desc)
{
	const char *broken = NULL;
	uint64_t end = at + desc->length;

	for (uint32_t i = 0; i < desc->num_sge && !broken; i++) {
		broken = check_segment(m, at, &desc->sge[i]);
		at += desc->sge[i].length;
	}
	if (!broken)
		CLAIM(at == end);
	return broken;
}

static bool same_cursor(const struct stag_xfer_cursor *a, const struct stag_xfer_cursor *b)
{
	return a->elem == b->elem && a->offset == b->offset && a->buf == b->buf &&
	       a->buf_offset == b->buf_offset;
}

const char *model_check(const struct model *m, uint64_t at, const struct stag_xfer_desc *desc,
			const struct stag_xfer_cursor *after)
{
	uint64_t next = at + desc->length;
	struct stag_xfer_cursor there;
	const struct piece *p;

	CLAIM(at < m->total);
	CLAIM(desc->length <= m->total - at);
	CLAIM(may_be_one(m, at, next));
	CLAIM(next == m->total || !may_be_one(m, at, next + 1));
	CLAIM(desc->num_sge == breaks_within(m, at, next).local + 1);
	CLAIM(desc->num_elems == elems_with_bytes(m, at, next));
	CLAIM(end_reason_is_true(m, desc, next));
	p = model_piece(m, at);
	CLAIM(desc->remote_addr == p->remote + (at - p->at));
	CLAIM(desc->rkey == p->rkey);
	there = model_cursor(m, next);
	CLAIM(same_cursor(after, &there));
	return check_segments(m, at, desc);
}
