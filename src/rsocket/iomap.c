// SPDX-License-Identifier: BSD-2-Clause
/*
 * iomap.c - buffers of the program that a peer writes directly.
 *
 * A mapping for writing uses an entry of the peer's iomap: the entry is written there, followed by
 * a message, before the next data. The peer's mappings are in our iomap; a private copy is used,
 * which is updated when the message arrives.
 */
#include "rsocket/rsocket.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"

/* A buffer mapped on this side. Those for writing are an array by entry; local ones are a list. */
struct rs_mapping {
	struct ibv_mr *mr; /* NULL: the entry is free */
	uint64_t offset;
	bool unsent; /* not announced to the peer yet */
	struct list link;
};

void rs_iomap_updated(struct rsocket *rs, uint32_t index)
{
	const uint8_t *map = rs->ep.slots.at + RS_SLOTS * sizeof(struct rs_region);

	assert(lock_held(&rs->lock));
	if (index >= rs->opt.config.iomaps) {
		log_warn("rsocket %d: the peer maps entry %u, but there are only %u", rs->fd, index,
			 rs->opt.config.iomaps);
		return;
	}
	memcpy(&rs->iomap.targets[index], map + index * sizeof(struct rs_iomap),
	       sizeof(struct rs_iomap));
}

static int make_mappings(struct rsocket *rs)
{
	struct rs_mapping *m;
	int ret;

	if (rs->iomap.mappings)
		return 0;
	if (!rs->ep.peer.iomaps)
		return -ENOMEM;
	m = calloc(rs->ep.peer.iomaps, sizeof(*m));
	if (!m)
		return -ENOMEM;
	ret = rs_buffer_new(&rs->iomap.text, rs->conn.id->qp->pd,
			    rs->ep.peer.iomaps * sizeof(struct rs_iomap), IBV_ACCESS_LOCAL_WRITE);
	if (ret)
		free(m);
	else
		rs->iomap.mappings = m;
	return ret;
}

static int free_entry(struct rsocket *rs, struct rs_mapping **out)
{
	int ret = make_mappings(rs);

	if (ret)
		return ret;
	for (unsigned i = 0; i < rs->ep.peer.iomaps; i++) {
		*out = &rs->iomap.mappings[i];
		if (!(*out)->mr)
			return 0;
	}
	return -ENOMEM;
}

static int map_for_peer(struct rsocket *rs, void *buf, size_t len, uint64_t offset)
{
	struct rs_mapping *m;
	int ret = free_entry(rs, &m);

	if (ret)
		return ret;
	m->mr = ibv_reg_mr(rs->conn.id->qp->pd, buf, len,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!m->mr)
		return -errno;
	m->offset = offset;
	m->unsent = true;
	rs->iomap.unsent++;
	return 0;
}

static int map_locally(struct rsocket *rs, void *buf, size_t len)
{
	struct rs_mapping *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->mr = ibv_reg_mr(rs->conn.id->qp->pd, buf, len, IBV_ACCESS_LOCAL_WRITE);
	if (!m->mr) {
		int err = errno;

		free(m);
		return -err;
	}
	list_add_tail(&rs->iomap.local, &m->link);
	return 0;
}

STAG_EXPORT off_t riomap(int socket, void *buf, size_t len, int prot, int flags, off_t offset)
{
	int ret;

	RS_GET_OR_RETURN(rs, socket);
	HOLD_FOR_SCOPE(&rs->lock);
	if (!rs_was_connected(rs) || prot & ~(PROT_WRITE | PROT_NONE) || len > UINT32_MAX)
		return rs_result(-EINVAL);
	if (offset == -1)
		offset = (off_t)(uintptr_t)buf;
	if (prot & PROT_WRITE)
		ret = map_for_peer(rs, buf, len, (uint64_t)offset);
	else
		ret = map_locally(rs, buf, len);
	return ret ? rs_result(ret) : offset;
}

static bool maps(const struct rs_mapping *m, const void *buf, size_t len)
{
	return m->mr && m->mr->addr == buf && m->mr->length == len;
}

static void unmap(struct rsocket *rs, struct rs_mapping *m)
{
	ibv_dereg_mr(m->mr);
	m->mr = NULL;
	rs->iomap.unsent -= m->unsent;
	m->unsent = false;
}

static bool unmap_for_peer(struct rsocket *rs, const void *buf, size_t len)
{
	for (unsigned i = 0; rs->iomap.mappings && i < rs->ep.peer.iomaps; i++) {
		if (!maps(&rs->iomap.mappings[i], buf, len))
			continue;
		unmap(rs, &rs->iomap.mappings[i]);
		return true;
	}
	return false;
}

static bool unmap_locally(struct rsocket *rs, const void *buf, size_t len)
{
	list_for_each_safe (it, &rs->iomap.local) {
		struct rs_mapping *m = list_entry(it, struct rs_mapping, link);

		if (!maps(m, buf, len))
			continue;
		list_del(&m->link);
		unmap(rs, m);
		free(m);
		return true;
	}
	return false;
}

STAG_EXPORT int riounmap(int socket, void *buf, size_t len)
{
	RS_GET_OR_RETURN(rs, socket);
	HOLD_FOR_SCOPE(&rs->lock);
	if (unmap_for_peer(rs, buf, len) || unmap_locally(rs, buf, len))
		return 0;
	return (int)rs_result(-EINVAL);
}

void rs_iomaps_free(struct rsocket *rs)
{
	for (unsigned i = 0; rs->iomap.mappings && i < rs->ep.peer.iomaps; i++)
		if (rs->iomap.mappings[i].mr)
			unmap(rs, &rs->iomap.mappings[i]);
	list_for_each_safe (it, &rs->iomap.local) {
		struct rs_mapping *m = list_entry(it, struct rs_mapping, link);

		unmap(rs, m);
		free(m);
	}
	free(rs->iomap.mappings);
	rs->iomap.mappings = NULL;
	rs_buffer_free(&rs->iomap.text);
}

static bool can_send_iomap(const struct rsocket *rs)
{
	return (rs->sq.left >= rs_message_wrs(rs) && flow_tx_credit(&rs->tx)) || !rs->writable;
}

static int send_iomap(struct rsocket *rs, unsigned index)
{
	struct rs_mapping *m = &rs->iomap.mappings[index];
	struct rs_iomap *text = (struct rs_iomap *)rs->iomap.text.at + index;
	struct rs_region to = {.addr = rs->ep.peer.slots.addr +
				       RS_SLOTS * sizeof(struct rs_region) + index * sizeof(*text),
			       .key = rs->ep.peer.slots.key};
	struct ibv_sge sge = {
		.addr = (uintptr_t)text, .length = sizeof(*text), .lkey = rs->iomap.text.mr->lkey};
	int ret;

	*text = (struct rs_iomap){.offset = m->offset,
				  .region = {.addr = (uintptr_t)m->mr->addr,
					     .key = m->mr->rkey,
					     .length = (uint32_t)m->mr->length}};
	m->unsent = false;
	rs->iomap.unsent--;
	rs->sq.left -= rs_message_wrs(rs);
	flow_tx_counted(&rs->tx);
	ret = rs_post_write_message(rs, &sge, 1, false, RS_WR_IOMAP, 0, &to,
				    rs_msg(RS_OP_IOMAP, index));
	if (ret)
		rs_fail(rs, -ret);
	return ret;
}

int rs_iomaps_send(struct rsocket *rs, int flags)
{
	int ret = 0;

	assert(lock_held(&rs->lock));
	for (unsigned i = 0; !ret && rs->iomap.unsent && i < rs->ep.peer.iomaps; i++) {
		if (!rs->iomap.mappings[i].unsent)
			continue;
		ret = rs_wait(rs, can_send_iomap, rs_nonblocking(rs, flags), 0);
		if (!ret && !rs->writable)
			ret = -ECONNRESET;
		/* It may have been unmapped during the wait. */
		if (!ret && rs->iomap.mappings[i].unsent)
			ret = send_iomap(rs, i);
	}
	return ret;
}

static bool can_write(const struct rsocket *rs)
{
	return rs->sq.left && flow_tx_space(&rs->tx) >= RS_SEND_LOW;
}

static bool write_ready(const struct rsocket *rs)
{
	return can_write(rs) || !rs->writable;
}

/*
 * Finds the region that the peer mapped at the offset: up to `length` bytes from there. Returns
 * false if there is none.
 */
static bool find_target(const struct rsocket *rs, uint64_t offset, struct rs_region *to)
{
	for (unsigned i = 0; i < rs->opt.config.iomaps; i++) {
		const struct rs_iomap *m = &rs->iomap.targets[i];
		uint64_t in = offset - m->offset;

		if (offset < m->offset || in >= m->region.length)
			continue;
		*to = (struct rs_region){.addr = m->region.addr + in,
					 .key = m->region.key,
					 .length = (uint32_t)(m->region.length - in)};
		return true;
	}
	return false;
}

/* Writes one piece to `to`; releases the lock while it copies and posts. */
static int write_piece(struct rsocket *rs, struct rs_cursor *from, uint32_t n,
		       const struct rs_region *to)
{
	struct flow_span span = flow_tx_reserve(&rs->tx, n);
	struct ibv_sge sge[2];
	int n_sge, ret;

	rs->sq.left--;
	lock_release(&rs->lock);
	n_sge = rs_stage(rs, from, &span, sge);
	ret = rs_post_write(rs, sge, n_sge, false, RS_WR_DIRECT, n, to);
	lock_acquire(&rs->lock);
	if (ret)
		rs_fail(rs, -ret);
	return ret;
}

static ssize_t write_mapped(struct rsocket *rs, const struct iovec *iov, uint64_t offset, int flags)
{
	struct rs_cursor from = {.iov = iov, .left = 1};
	size_t left = iov->iov_len;
	bool nonblock = rs_nonblocking(rs, flags);
	int ret = rs_wait_connected(rs, nonblock);

	if (!ret && rs->iomap.unsent)
		ret = rs_iomaps_send(rs, flags);
	if (!ret)
		rs_progress(rs); /* the mapping may just have been announced */
	while (!ret && left) {
		struct rs_region to;
		uint32_t n;

		if (!can_write(rs))
			ret = rs_wait(rs, write_ready, nonblock, 0);
		if (!ret && !rs->writable)
			ret = -ECONNRESET;
		if (ret || !find_target(rs, offset, &to))
			break;
		n = rs_transfer_size(rs, left, to.length);
		ret = write_piece(rs, &from, n, &to);
		if (ret)
			break;
		left -= n;
		offset += n;
	}
	return ret && left == iov->iov_len ? ret : (ssize_t)(iov->iov_len - left);
}

STAG_EXPORT size_t riowrite(int socket, const void *buf, size_t count, off_t offset, int flags)
{
	struct iovec iov = {.iov_base = (void *)buf, .iov_len = count};

	RS_GET_OR_RETURN(rs, socket);
	HOLD_FOR_SCOPE(&rs->send_lock);
	HOLD_FOR_SCOPE(&rs->lock);
	return (size_t)rs_result(write_mapped(rs, &iov, (uint64_t)offset, flags));
}
