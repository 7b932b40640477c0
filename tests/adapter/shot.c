// SPDX-License-Identifier: BSD-2-Clause
/*
 * shot.c - see shot.h.
 */
#include "shot.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define BOTH (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)

static unsigned signaled_flag(const struct side *s)
{
	return s->wish.quiet ? 0 : IBV_SEND_SIGNALED;
}

struct stagdv_advertise command(struct side *s, struct ibv_sge *body, const struct lend *l)
{
	return (struct stagdv_advertise){
		.sg_list = body,
		.num_sge = 1,
		.send_flags = l->flags | signaled_flag(s),
		.memory = l->memory,
		.num_memory = l->n,
		.access = l->access ? l->access : BOTH,
		.iova = l->iova,
		.reference = l->reference,
		.stag_at = 0,
	};
}

uint64_t advertise(struct side *s, const struct region *body, const struct lend *l, uint32_t *stag)
{
	struct ibv_sge sge = piece(body, 0, BODY);
	struct stagdv_advertise wr = command(s, &sge, l);

	wr.wr_id = note_posted(s, s->wish.quiet);
	assert_int_equal(stagdv_post_send_advertise(s->qp, &wr, stag), 0);
	assert_int_not_equal(*stag, 0);
	return wr.wr_id;
}

uint64_t close_stag(struct side *s, const struct region *body, uint32_t stag, unsigned flags)
{
	struct ibv_sge sge = body ? piece(body, 0, BODY) : (struct ibv_sge){0};
	struct stagdv_close wr = {
		.wr_id = note_posted(s, s->wish.quiet),
		.sg_list = &sge,
		.num_sge = body ? 1 : 0,
		.send_flags = flags | signaled_flag(s),
		.stag = stag,
	};

	assert_int_equal(stagdv_post_send_close(s->qp, &wr), 0);
	return wr.wr_id;
}

uint64_t post_remote(struct side *s, enum ibv_wr_opcode op, const struct region *local, size_t len,
		     uint32_t stag, uint64_t to)
{
	struct ibv_sge sge = piece(local, 0, len);
	struct ibv_send_wr wr = {.opcode = op,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {.remote_addr = to, .rkey = stag}};

	return post(s, &wr);
}

/* ---- posting requests ---- */

enum stagdv_one_shot encoding(const struct side *s)
{
	struct stagdv_qp_attr attr;

	assert_int_equal(stagdv_query_qp(s->qp, &attr, sizeof(attr)), 0);
	assert_int_equal(!!(attr.abilities & STAGDV_ABILITY_ONE_SHOT),
			 attr.one_shot != STAGDV_ONE_SHOT_NONE);
	return attr.one_shot;
}

struct stagdv_counters counted(const struct side *s)
{
	struct stagdv_counters c;

	assert_int_equal(stagdv_query_qp_counters(s->qp, &c, sizeof(c)), 0);
	return c;
}

struct stagdv_counters counted_in_all(const struct side *s)
{
	struct stagdv_counters c;

	assert_int_equal(stagdv_query_counters(s->ctx, &c, sizeof(c)), 0);
	return c;
}

static struct stagdv_stag *ledger(struct ibv_context *ctx, int *n)
{
	struct stagdv_stag *list;
	int room = stagdv_query_stags(ctx, NULL, 0, sizeof(*list));

	assert_true(room >= 0);
	list = calloc((size_t)room + 1, sizeof(*list));
	assert_non_null(list);
	*n = stagdv_query_stags(ctx, list, (size_t)room, sizeof(*list));
	assert_in_range(*n, 0, room);
	return list;
}

unsigned open_stags(struct ibv_context *ctx)
{
	unsigned open = 0;
	int n;
	struct stagdv_stag *list = ledger(ctx, &n);

	for (int i = 0; i < n; i++)
		open += list[i].end == STAGDV_STAG_OPEN;
	free(list);
	return open;
}

struct stagdv_stag life_of(struct ibv_context *ctx, uint32_t stag)
{
	struct stagdv_stag life = {0};
	int n;
	struct stagdv_stag *list = ledger(ctx, &n);

	for (int i = 0; i < n; i++) {
		if (i)
			assert_true(list[i].made >= list[i - 1].made);
		if (list[i].stag == stag)
			life = list[i];
	}
	free(list);
	assert_int_equal(life.stag, stag);
	return life;
}

/* ---- expected results ---- */

uint32_t expect_command(struct side *s, uint64_t wr_id, const struct region *in)
{
	struct ibv_wc wc = expect_received(s, wr_id);
	uint32_t stag;

	memcpy(&stag, in->at, sizeof(stag));
	stag = ntohl(stag);
	assert_int_equal(wc.byte_len, BODY);
	if (encoding(s) == STAGDV_ONE_SHOT_NONE) {
		assert_int_equal(wc.wc_flags, 0);
		return stag;
	}
	assert_int_equal(wc.wc_flags, STAGDV_WC_ADVERTISED);
	assert_int_equal(wc.invalidated_rkey, stag);
	return wc.invalidated_rkey;
}

void expect_end(struct side *s, uint64_t wr_id, uint32_t stag, uint32_t reference)
{
	struct ibv_wc wc = expect_received(s, wr_id);

	assert_int_equal(wc.wc_flags, IBV_WC_WITH_INV | STAGDV_WC_CLOSED);
	assert_int_equal(wc.invalidated_rkey, stag);
	assert_int_equal(wc.vendor_err, reference);
}

void expect_over(struct side *owner, struct side *peer, enum ibv_event_type event)
{
	expect_disconnected(owner);
	expect_async(owner, event);
	expect_disconnected(peer);
	expect_async(peer, IBV_EVENT_QP_FATAL);
}
