// SPDX-License-Identifier: BSD-2-Clause
/*
 * post.c - work requests: receives, writes, and the messages that follow them.
 *
 * Over iWARP a message is a Send after its Write, both in one list, so that nothing is posted
 * between them, and only the second one completes. Elsewhere it is a Write with immediate data. The
 * caller counts the work requests.
 */
#include "rsocket/rsocket.h"

#include <assert.h>
#include <endian.h>

#define RECEIVES_A_LIST 16

static uint64_t wr_id(enum rs_wr kind, uint32_t number)
{
	return (uint64_t)kind << 32 | number;
}

unsigned rs_message_wrs(const struct rsocket *rs)
{
	return rs->ep.msg_mode ? 2 : 1;
}

static int post_receive_list(struct rsocket *rs, const uint32_t *slots, unsigned n)
{
	struct ibv_recv_wr wr[RECEIVES_A_LIST], *bad;
	struct ibv_sge sge[RECEIVES_A_LIST];

	for (unsigned i = 0; i < n; i++) {
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)rs->ep.msgs.at + slots[i] * RS_MSG_LEN,
					  .length = RS_MSG_LEN,
					  .lkey = rs->ep.msgs.mr->lkey};
		wr[i] = (struct ibv_recv_wr){.wr_id = wr_id(RS_WR_RECV, slots[i]),
					     .sg_list = &sge[i],
					     .num_sge = rs->ep.msg_mode ? 1 : 0,
					     .next = i + 1 < n ? &wr[i + 1] : NULL};
	}
	return -ibv_post_recv(rs->conn.id->qp, wr, &bad);
}

int rs_post_receives(struct rsocket *rs, const uint32_t *slots, unsigned n)
{
	while (n) {
		unsigned now = n < RECEIVES_A_LIST ? n : RECEIVES_A_LIST;
		int ret = post_receive_list(rs, slots, now);

		if (ret)
			return ret;
		slots += now;
		n -= now;
	}
	return 0;
}

static int post(struct rsocket *rs, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	return -ibv_post_send(rs->conn.id->qp, wr, &bad);
}

/* Fills *wr with a message to send; *text and *sge must live as long as it does. */
static void make_send(struct ibv_send_wr *wr, struct ibv_sge *sge, const uint32_t *text)
{
	*sge = (struct ibv_sge){.addr = (uintptr_t)text, .length = sizeof(*text)};
	wr->sg_list = sge;
	wr->num_sge = 1;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
}

int rs_post_message(struct rsocket *rs, enum rs_wr kind, uint32_t number, uint32_t msg)
{
	struct ibv_send_wr wr = {.wr_id = wr_id(kind, number)};
	struct ibv_sge sge;

	assert(lock_held(&rs->lock));
	if (rs->ep.msg_mode) {
		make_send(&wr, &sge, &msg);
	} else {
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr.send_flags = IBV_SEND_SIGNALED;
		wr.imm_data = htobe32(msg);
	}
	return post(rs, &wr);
}

static struct ibv_send_wr make_write(struct ibv_sge *sge, int n_sge, bool in_line,
				     const struct rs_region *to)
{
	return (struct ibv_send_wr){.sg_list = sge,
				    .num_sge = n_sge,
				    .opcode = IBV_WR_RDMA_WRITE,
				    .send_flags = in_line ? IBV_SEND_INLINE : 0,
				    .wr.rdma = {.remote_addr = to->addr, .rkey = to->key}};
}

int rs_post_write(struct rsocket *rs, struct ibv_sge *sge, int n_sge, bool in_line, enum rs_wr kind,
		  uint32_t number, const struct rs_region *to)
{
	struct ibv_send_wr wr = make_write(sge, n_sge, in_line, to);

	wr.wr_id = wr_id(kind, number);
	wr.send_flags |= IBV_SEND_SIGNALED;
	return post(rs, &wr);
}

int rs_post_write_message(struct rsocket *rs, struct ibv_sge *sge, int n_sge, bool in_line,
			  enum rs_wr kind, uint32_t number, const struct rs_region *to,
			  uint32_t msg)
{
	struct ibv_send_wr write = make_write(sge, n_sge, in_line, to);
	struct ibv_send_wr send = {.wr_id = wr_id(kind, number)};
	struct ibv_sge text;

	if (rs->ep.msg_mode) {
		make_send(&send, &text, &msg);
		write.wr_id = wr_id(RS_WR_QUIET, 0);
		write.next = &send;
	} else {
		write.wr_id = send.wr_id;
		write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		write.send_flags |= IBV_SEND_SIGNALED;
		write.imm_data = htobe32(msg);
	}
	return post(rs, &write);
}
