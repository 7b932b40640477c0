// SPDX-License-Identifier: BSD-2-Clause
/*
 * plan.c - turns chains of elements into as few descriptors as the limits allow.
 *
 * Pure functions over the caller's lists: no device, no allocation, no state but the cursor.
 * Scheduling and rails are not known here.
 *
 * Why taking as much as possible at every step gives the minimum: any part of an allowed descriptor
 * is itself allowed, since it has no more bytes, no more segments and no other remote range. So if
 * the k-th descriptor of some other division ended farther on than ours, its part from our border
 * on could have been added to ours, which took all it could.
 */
#include "xfer.h"

#include <errno.h>

#include "base/export.h"

/* Returns whether a range ends beyond 2^64; it may end at 2^64. */
static bool passes_end(uint64_t addr, uint64_t length)
{
	return length != 0 && length - 1 > UINT64_MAX - addr;
}

static int check_elem(const struct stag_xfer_elem *elem, uint64_t *total)
{
	uint64_t length = 0;

	if (elem->num_bufs != 0 && !elem->bufs)
		return -EINVAL;
	for (uint32_t i = 0; i < elem->num_bufs; i++) {
		const struct stag_xfer_buf *buf = &elem->bufs[i];

		if (passes_end(buf->addr, buf->length) || buf->length > UINT64_MAX - length)
			return -EINVAL;
		length += buf->length;
	}
	if (passes_end(elem->remote_addr, length) || length > UINT64_MAX - *total)
		return -EINVAL;
	*total += length;
	return 0;
}

static int check_chain(const struct stag_xfer_req *req, uint64_t *total, size_t *elem)
{
	*elem = req->num_elems;
	if ((req->op != STAG_XFER_READ && req->op != STAG_XFER_WRITE) || req->flags != 0)
		return -EINVAL;
	if (req->num_elems != 0 && !req->elems)
		return -EINVAL;
	for (size_t i = 0; i < req->num_elems; i++) {
		if (check_elem(&req->elems[i], total) != 0) {
			*elem = i;
			return -EINVAL;
		}
	}
	return 0;
}

STAG_EXPORT int stag_xfer_check(const struct stag_xfer_req *req, uint64_t *total, size_t *bad_elem)
{
	uint64_t sum = 0;
	size_t elem;
	int rc = check_chain(req, &sum, &elem);

	if (rc != 0) {
		if (bad_elem)
			*bad_elem = elem;
		return -rc;
	}
	if (total)
		*total = sum;
	return 0;
}

/*
 * Advances to the next byte, past everything of zero length, so that empty buffers do not prevent
 * coalescing. Returns false at the end.
 */
static inline bool find_byte(const struct stag_xfer_req *req, struct stag_xfer_cursor *at)
{
	for (; at->elem < req->num_elems; at->elem++, at->buf = 0, at->offset = 0) {
		const struct stag_xfer_elem *elem = &req->elems[at->elem];

		for (; at->buf < elem->num_bufs; at->buf++, at->buf_offset = 0) {
			if (at->buf_offset < elem->bufs[at->buf].length)
				return true;
		}
	}
	return false;
}

/* Returns whether a range ends where the next one begins. Never true if it ends at 2^64. */
static inline bool adjoins(uint64_t addr, uint64_t length, uint64_t next)
{
	return next - addr == length && next >= addr;
}

static inline uint32_t least(uint64_t a, uint32_t b)
{
	return a < b ? (uint32_t)a : b;
}

/* Returns the limit that keeps the byte at the cursor out of the descriptor; 0: none. */
static inline enum stag_xfer_end what_ends(const struct stag_xfer_limits *limits,
					   const struct stag_xfer_desc *desc, uint64_t remote_addr,
					   uint32_t rkey, bool same_segment)
{
	if (rkey != desc->rkey)
		return STAG_XFER_END_KEY;
	if (!adjoins(desc->remote_addr, desc->length, remote_addr))
		return STAG_XFER_END_GAP;
	if (desc->length >= limits->max_transfer)
		return STAG_XFER_END_SIZE;
	if (!same_segment && desc->num_sge >= limits->max_segments)
		return STAG_XFER_END_SEGMENTS;
	return 0;
}

/*
 * Adds the elements from number i on that have one buffer and fit completely: by far the most
 * common case. Returns the number of the first that does not; seg becomes the last segment.
 */
static inline size_t take_run(const struct stag_xfer_limits *limits,
			      const struct stag_xfer_req *req, size_t i, struct stag_xfer_desc *d,
			      struct ibv_sge **seg)
{
	uint64_t remote = d->remote_addr + d->length; /* 0: the end of the address space */
	uint64_t local = (*seg)->addr + (*seg)->length;

	for (; i < req->num_elems && remote; i++) {
		const struct stag_xfer_elem *elem = &req->elems[i];
		const struct stag_xfer_buf *buf = elem->bufs;

		if (elem->num_bufs != 1 || elem->remote_addr != remote || elem->rkey != d->rkey ||
		    buf->length == 0 || buf->length > limits->max_transfer - d->length)
			break;
		if (buf->addr != local || buf->lkey != (*seg)->lkey || !local) {
			if (d->num_sge >= limits->max_segments)
				break;
			if (d->sge)
				*seg = &d->sge[d->num_sge];
			**seg = (struct ibv_sge){.addr = buf->addr, .lkey = buf->lkey};
			d->num_sge++;
		}
		(*seg)->length += (uint32_t)buf->length;
		d->length += (uint32_t)buf->length;
		d->num_elems++;
		remote += buf->length;
		local = buf->addr + buf->length;
	}
	return i;
}

bool plan_extend(const struct stag_xfer_limits *limits, const struct stag_xfer_req *req,
		 struct stag_xfer_cursor *cursor, struct stag_xfer_desc *desc)
{
	/* Local copies, which the compiler can keep in registers. */
	struct stag_xfer_cursor at = *cursor;
	struct stag_xfer_desc d = *desc;
	struct ibv_sge unwanted, *seg = d.num_sge != 0 ? &d.sge[d.num_sge - 1] : &unwanted;
	size_t counted = SIZE_MAX; /* the last element counted in num_elems */
	bool more;

	while ((more = find_byte(req, &at))) {
		const struct stag_xfer_elem *elem = &req->elems[at.elem];
		const struct stag_xfer_buf *buf = &elem->bufs[at.buf];
		uint64_t remote = elem->remote_addr + at.offset, local = buf->addr + at.buf_offset;
		bool same = d.num_sge != 0 && seg->lkey == buf->lkey &&
			    adjoins(seg->addr, seg->length, local);
		uint32_t bytes;

		if (d.length == 0) {
			d.remote_addr = remote;
			d.rkey = elem->rkey;
		}
		d.end = what_ends(limits, &d, remote, elem->rkey, same);
		if (d.end != 0)
			break;
		bytes = least(buf->length - at.buf_offset, limits->max_transfer - d.length);
		if (!same) {
			seg = d.sge ? &d.sge[d.num_sge] : &unwanted;
			*seg = (struct ibv_sge){.addr = local, .lkey = buf->lkey};
			d.num_sge++;
		}
		seg->length += bytes;
		d.num_elems += at.elem != counted;
		counted = at.elem;
		d.length += bytes;
		at.offset += bytes;
		at.buf_offset += bytes;
		if (at.buf_offset == buf->length && at.buf + 1 == elem->num_bufs)
			at = (struct stag_xfer_cursor){
				.elem = take_run(limits, req, at.elem + 1, &d, &seg)};
	}
	if (!more)
		d.end = STAG_XFER_END_CHAIN;
	*cursor = at;
	*desc = d;
	return !more;
}

STAG_EXPORT bool stag_xfer_form(const struct stag_xfer_limits *limits,
				const struct stag_xfer_req *req, struct stag_xfer_cursor *cursor,
				struct stag_xfer_desc *desc)
{
	*desc = (struct stag_xfer_desc){.sge = desc->sge};
	plan_extend(limits, req, cursor, desc);
	return desc->length != 0;
}

STAG_EXPORT uint64_t stag_xfer_count(const struct stag_xfer_limits *limits,
				     const struct stag_xfer_req *req,
				     const struct stag_xfer_cursor *cursor)
{
	struct stag_xfer_cursor at = cursor ? *cursor : (struct stag_xfer_cursor){0};
	struct stag_xfer_desc desc = {.sge = NULL};
	uint64_t n = 0;

	while (stag_xfer_form(limits, req, &at, &desc))
		n++;
	return n;
}
