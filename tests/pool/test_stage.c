// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_stage.c - staging slots, as a client uses them: which slot a value takes, which work requests are
 * posted, and what a node may announce. There is no device: the test has the verbs that stage.c calls.
 */
#include "pool/client/client.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#define STAGING 0x100000000ull

static struct {
	struct stag_pool *p;
	struct op op;
	struct loan loan;
	struct ibv_mr lent, own;
	struct ibv_context context;
	struct ibv_qp qp;
	struct rdma_cm_id id;
	struct ibv_send_wr posted[2];
	struct ibv_sge sge;
	unsigned int num_posted;
	int post_error, use_error;
} s;

/* ---- verbs that stage.c calls ------------------------------------------------------- */

int memory_use(struct stag_pool *p, struct op *op, const void *at, size_t length, int access,
	       uint32_t *lkey, uint32_t *rkey)
{
	assert_ptr_equal(at, op->io.from);
	assert_int_equal(length, op->io.length);
	assert_int_equal(access, 0); /* no remote access */
	*lkey = *rkey = 0;
	return s.use_error;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	assert_ptr_equal(qp, &s.qp);
	for (; wr && s.num_posted < 2; wr = wr->next) {
		if (wr->num_sge)
			s.sge = wr->sg_list[0];
		s.posted[s.num_posted++] = *wr;
	}
	assert_null(wr);
	return s.post_error;
}

/* ---- a link with all slots open -------------------------------------------------------------- */

static int begin(void **state)
{
	memset(&s, 0, sizeof(s));
	s.p = test_calloc(1, sizeof(*s.p));
	s.context.ops.post_send = post_send;
	s.qp.context = &s.context;
	s.id.qp = &s.qp;
	s.lent.lkey = 11;
	s.own.lkey = 22;
	s.loan.mr = &s.lent;
	s.p->link.id = &s.id;
	s.p->link.facts.staging_address = STAGING;
	s.p->link.facts.staging_length = NODE_SLICE;
	s.p->link.open = (1u << NODE_SLOTS) - 1;
	for (uint32_t i = 0; i < NODE_SLOTS; i++)
		s.p->link.slot_rkey[i] = 1000 + i;
	return 0;
}

static int end(void **state)
{
	test_free(s.p);
	return 0;
}

static int slot_of(size_t length)
{
	uint8_t slot = 0xff;

	return stage_find(s.p, length, &slot) ? slot : -1;
}

/* ---- which slot --------------------------------------------------------------------------------- */

static void short_values_take_short_slots_and_long_ones_long(void **state)
{
	assert_int_equal(slot_of(8192), 0);
	assert_int_equal(slot_of(NODE_SHORT), 0);
	assert_int_equal(slot_of(NODE_SHORT + 1), NODE_SHORTS);
	assert_int_equal(slot_of(POOL_DIRECT_MAX), NODE_SHORTS);
}

static void inline_and_pulled_values_take_no_slot(void **state)
{
	assert_int_equal(slot_of(0), -1);
	assert_int_equal(slot_of(8191), -1);
	assert_int_equal(slot_of(POOL_DIRECT_MAX + 1), -1);
	assert_int_equal(slot_of(SIZE_MAX), -1);
}

/* A short value does not take a free long slot, nor a long value a short one. */
static void a_slot_that_is_not_open_is_not_taken(void **state)
{
	s.p->link.open = 1u << 5 | 1u << (NODE_SLOTS - 1);
	assert_int_equal(slot_of(8192), 5);
	assert_int_equal(slot_of(NODE_SHORT + 1), NODE_SLOTS - 1);
	s.p->link.open = 1u << (NODE_SLOTS - 1);
	assert_int_equal(slot_of(8192), -1);
	s.p->link.open = 1u << 5;
	assert_int_equal(slot_of(NODE_SHORT + 1), -1);
	s.p->link.open = 0;
	assert_int_equal(slot_of(8192), -1);
}

static void a_value_fits_the_slot_that_it_takes(void **state)
{
	for (size_t length = 8192; length <= POOL_DIRECT_MAX; length += 4093) {
		int slot = slot_of(length);

		assert_true(slot >= 0);
		assert_true(length <= node_slot_size((uint32_t)slot));
		assert_true(node_slot_at((uint32_t)slot) + node_slot_size((uint32_t)slot) <=
			    NODE_SLICE);
	}
}

/* ---- requests and work requests -------------------------------------------------------------------- */

static char value[10000];

static void choose(uint8_t slot)
{
	s.op.slot = slot;
	s.op.io.from = value;
	s.op.io.length = sizeof(value);
}

static void a_request_says_where_the_value_is(void **state)
{
	struct pool_request rq = {0};

	choose(NODE_SHORTS + 1);
	assert_int_equal(stage_request(s.p, &s.op, &rq), 0);
	assert_int_equal(rq.source, POOL_SOURCE_STAGED);
	assert_int_equal(rq.source_address, STAGING + NODE_SHORTS * NODE_SHORT + NODE_LONG);
	s.use_error = -ENOMEM;
	assert_int_equal(stage_request(s.p, &s.op, &rq), -ENOMEM);
}

static void message_follows_the_value_and_invalidates_the_slot(void **state)
{
	struct ibv_send_wr message = {.wr_id = 7, .opcode = IBV_WR_SEND};

	choose(3);
	s.op.mr = &s.own;
	assert_int_equal(stage_post(s.p, &s.op, &message), 0);
	assert_int_equal(s.num_posted, 2);
	assert_int_equal(s.posted[0].opcode, IBV_WR_RDMA_WRITE);
	assert_int_equal(s.posted[0].wr.rdma.remote_addr, STAGING + 3 * NODE_SHORT);
	assert_int_equal(s.posted[0].wr.rdma.rkey, 1003);
	assert_int_equal(s.sge.addr, (uintptr_t)value);
	assert_int_equal(s.sge.length, sizeof(value));
	assert_int_equal(s.sge.lkey, 22);
	assert_int_equal(s.posted[1].wr_id, 7);
	assert_int_equal(s.posted[1].opcode, IBV_WR_SEND_WITH_INV);
	assert_int_equal(s.posted[1].invalidate_rkey, 1003);
	assert_int_equal(s.p->link.open, ((1u << NODE_SLOTS) - 1) & ~(1u << 3));
	assert_int_equal(slot_of(8192), 0);
}

static void registered_memory_is_used_by_its_key(void **state)
{
	struct ibv_send_wr message = {0};

	choose(0);
	s.op.loan = &s.loan;
	assert_int_equal(stage_post(s.p, &s.op, &message), 0);
	assert_int_equal(s.sge.lkey, 11);
}

static void failed_post_is_reported_and_its_slot_not_reused(void **state)
{
	struct ibv_send_wr message = {0};

	choose(0);
	s.op.mr = &s.own;
	s.post_error = ENOMEM;
	assert_int_equal(stage_post(s.p, &s.op, &message), -ENOMEM);
	assert_int_equal(slot_of(8192), 1);
}

/* ---- announcements of a node -------------------------------------------------------------------------- */

static bool announce_slots(const struct node_slot *slots, uint32_t bytes)
{
	struct pool_answer answer = {.bytes = slots, .length = bytes};

	return stage_hear(s.p, &answer);
}

static void slots_are_open_once_announced(void **state)
{
	const struct node_slot slots[] = {{4, 77}, {NODE_SLOTS - 1, 78}};

	s.p->link.open = 0;
	assert_true(announce_slots(slots, sizeof(slots)));
	assert_int_equal(s.p->link.open, 1u << 4 | 1u << (NODE_SLOTS - 1));
	assert_int_equal(s.p->link.slot_rkey[4], 77);
	assert_int_equal(s.p->link.slot_rkey[NODE_SLOTS - 1], 78);
	assert_true(announce_slots(slots, 0));
}

/* A node's slot numbers are checked. */
static void invalid_announcements_are_refused(void **state)
{
	const struct node_slot none = {NODE_SLOTS, 1}, wraps = {32, 1}, most = {UINT32_MAX, 1},
			       fine = {2, 9};
	const struct node_slot twice[] = {{2, 9}, {2, 10}};

	s.p->link.open = 0;
	assert_false(announce_slots(&none, sizeof(none)));
	assert_false(announce_slots(&wraps, sizeof(wraps)));
	assert_false(announce_slots(&most, sizeof(most)));
	assert_false(announce_slots(&fine, sizeof(fine) - 1));
	assert_int_equal(s.p->link.open, 0);
	assert_false(announce_slots(twice, sizeof(twice))); /* it is open already */
	s.p->link.open = 0;
	s.p->link.facts.staging_length = 0; /* a node without slots */
	assert_false(announce_slots(&fine, sizeof(fine)));
	assert_int_equal(s.p->link.open, 0);
}

#define STORY(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STORY(short_values_take_short_slots_and_long_ones_long),
		STORY(inline_and_pulled_values_take_no_slot),
		STORY(a_slot_that_is_not_open_is_not_taken),
		STORY(a_value_fits_the_slot_that_it_takes),
		STORY(a_request_says_where_the_value_is),
		STORY(message_follows_the_value_and_invalidates_the_slot),
		STORY(registered_memory_is_used_by_its_key),
		STORY(failed_post_is_reported_and_its_slot_not_reused),
		STORY(slots_are_open_once_announced),
		STORY(invalid_announcements_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
