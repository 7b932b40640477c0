// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_plan.c - chains divided into descriptors: the figures of the specification (numbers in names
 * and comments are the specification's), and each rule by itself. No device.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "xfer/xfer.h"

#define GIB ((uint64_t)1 << 30)
#define TOP UINT64_MAX /* the last address */

#define COUNT(array)	(sizeof(array) / sizeof((array)[0]))
#define LIST(type, ...) (type[]){__VA_ARGS__}, COUNT(((type[]){__VA_ARGS__}))

/* BUF(address, length, lkey); ELEM(remote address, rkey, buffers...); CHAIN(elements...) */
#define BUF(...) ((struct stag_xfer_buf){__VA_ARGS__, 0})
#define ELEM(remote, key, ...)                                                                     \
	((struct stag_xfer_elem){LIST(struct stag_xfer_buf, __VA_ARGS__), key, remote})
#define NOTHING(remote, key) ((struct stag_xfer_elem){NULL, 0, key, remote})
#define CHAIN(...)	     chain(LIST(struct stag_xfer_elem, __VA_ARGS__))
/* SEG(address, length, lkey) */
#define SEG(...) ((struct ibv_sge){__VA_ARGS__})

static struct stag_xfer_req chain(const struct stag_xfer_elem *elems, size_t n)
{
	return (struct stag_xfer_req){.op = STAG_XFER_WRITE, .elems = elems, .num_elems = n};
}

/* A request being planned. */
struct plan {
	struct stag_xfer_limits limits;
	const struct stag_xfer_req *req;
	struct stag_xfer_cursor cursor;
	struct stag_xfer_desc desc; /* the last one formed */
	struct ibv_sge sge[64];
};

static void begin_plan(struct plan *p, const struct stag_xfer_req *req, uint32_t max_transfer,
		       uint32_t max_segments)
{
	*p = (struct plan){.limits = {max_transfer, max_segments}, .req = req};
	p->desc.sge = p->sge;
	assert_true(max_segments <= COUNT(p->sge));
	assert_int_equal(stag_xfer_check(req, NULL, NULL), 0);
}

static void desc_holds(const struct stag_xfer_desc *desc, uint64_t remote, uint32_t rkey,
		       const struct ibv_sge *sge, size_t n)
{
	uint64_t length = 0;

	assert_int_equal(desc->remote_addr, remote);
	assert_int_equal(desc->rkey, rkey);
	assert_int_equal(desc->num_sge, n);
	for (size_t i = 0; i < n; i++) {
		assert_int_equal(desc->sge[i].addr, sge[i].addr);
		assert_int_equal(desc->sge[i].length, sge[i].length);
		assert_int_equal(desc->sge[i].lkey, sge[i].lkey);
		length += sge[i].length;
	}
	assert_int_equal(desc->length, length);
}

/* Checks that the next descriptor has this remote range and these segments. */
#define NEXT_IS(p, remote, rkey, ...)                                                              \
	do {                                                                                       \
		struct plan *p_ = (p);                                                             \
		assert_true(stag_xfer_form(&p_->limits, p_->req, &p_->cursor, &p_->desc));         \
		desc_holds(&p_->desc, remote, rkey, LIST(struct ibv_sge, __VA_ARGS__));            \
	} while (0)

static void last_ended(const struct plan *p, enum stag_xfer_end why)
{
	assert_int_equal(p->desc.end, why);
}

static void nothing_is_left(struct plan *p)
{
	last_ended(p, STAG_XFER_END_CHAIN);
	assert_int_equal(p->cursor.elem, p->req->num_elems);
	assert_false(stag_xfer_form(&p->limits, p->req, &p->cursor, &p->desc));
}

/* ---- the figures ------------------------------------------------------- */

#define KEY_50	  0x50
#define REMOTE_50 0x500000

/* Element 28 names the buffers 23, 25 and 27, and one remote segment, 50. */
static void figure_6_an_element_of_three_buffers_is_one_descriptor(void **state)
{
	struct stag_xfer_req req = CHAIN(ELEM(REMOTE_50, KEY_50, BUF(0x22000, 100, 22),
					      BUF(0x24000, 2000, 24), BUF(0x26000, 30, 26)));
	struct plan p;

	begin_plan(&p, &req, 4096, 4);
	NEXT_IS(&p, REMOTE_50, KEY_50, SEG(0x22000, 100, 22), SEG(0x24000, 2000, 24),
		SEG(0x26000, 30, 26));
	nothing_is_left(&p);
}

static void figure_6_contiguous_buffers_22_24_26_are_one_segment(void **state)
{
	struct stag_xfer_req req = CHAIN(ELEM(REMOTE_50, KEY_50, BUF(0x22000, 100, 1),
					      BUF(0x22064, 100, 1), BUF(0x220c8, 9, 1)));
	struct plan p;

	begin_plan(&p, &req, 4096, 1);
	NEXT_IS(&p, REMOTE_50, KEY_50, SEG(0x22000, 209, 1));
	nothing_is_left(&p);
}

/* Elements 64, 66, 68 of the request 62: the buffers 70, 72 and 74, one after another in 50. */
#define LOCAL_70 0x70000
#define LOCAL_72 0x72000
#define LOCAL_74 0x74000
#define LEN_70	 3000
#define LEN_72A	 1096
#define LEN_72B	 904
#define LEN_74	 1500
#define FIGURE_7                                                                                   \
	CHAIN(ELEM(REMOTE_50, KEY_50, BUF(LOCAL_70, LEN_70, 70)),                                  \
	      ELEM(REMOTE_50 + LEN_70, KEY_50, BUF(LOCAL_72, LEN_72A + LEN_72B, 72)),              \
	      ELEM(REMOTE_50 + LEN_70 + LEN_72A + LEN_72B, KEY_50, BUF(LOCAL_74, LEN_74, 74)))

static void descriptor_80_of_figure_7_is_next(struct plan *p)
{
	NEXT_IS(p, REMOTE_50, KEY_50, SEG(LOCAL_70, LEN_70, 70), SEG(LOCAL_72, LEN_72A, 72));
	last_ended(p, STAG_XFER_END_SIZE);
	assert_int_equal(p->desc.num_elems, 2);
	/* CURRENT ELEMENT and OFFSET: where 72A ends and 72B begins */
	assert_int_equal(p->cursor.elem, 1);
	assert_int_equal(p->cursor.offset, LEN_72A);
}

static void descriptor_82_of_figure_7_is_next(struct plan *p)
{
	NEXT_IS(p, REMOTE_50 + LEN_70 + LEN_72A, KEY_50, SEG(LOCAL_72 + LEN_72A, LEN_72B, 72),
		SEG(LOCAL_74, LEN_74, 74));
	assert_int_equal(p->desc.num_elems, 2);
	nothing_is_left(p);
}

static void figure_7_70_and_72A_are_descriptor_80_72B_and_74_are_82(void **state)
{
	struct stag_xfer_req req = FIGURE_7;
	struct plan p;

	begin_plan(&p, &req, LEN_70 + LEN_72A, 4);
	descriptor_80_of_figure_7_is_next(&p);
	descriptor_82_of_figure_7_is_next(&p);
}

static void figure_7_is_the_same_for_a_read(void **state)
{
	struct stag_xfer_req req = FIGURE_7;
	struct plan p;

	req.op = STAG_XFER_READ;
	begin_plan(&p, &req, LEN_70 + LEN_72A, 4);
	descriptor_80_of_figure_7_is_next(&p);
	descriptor_82_of_figure_7_is_next(&p);
}

/* Buffer 200 is larger than a transfer: its rest, 200B, goes with 202. */
static void figure_8_200A_is_descriptor_80_200B_and_202_are_82(void **state)
{
	struct stag_xfer_req req = CHAIN(ELEM(REMOTE_50, KEY_50, BUF(0x200000, 6000, 200)),
					 ELEM(REMOTE_50 + 6000, KEY_50, BUF(0x202000, 1000, 202)));
	struct plan p;

	begin_plan(&p, &req, 4096, 4);
	NEXT_IS(&p, REMOTE_50, KEY_50, SEG(0x200000, 4096, 200));
	last_ended(&p, STAG_XFER_END_SIZE);
	NEXT_IS(&p, REMOTE_50 + 4096, KEY_50, SEG(0x200000 + 4096, 1904, 200),
		SEG(0x202000, 1000, 202));
	nothing_is_left(&p);
}

/* The total transfer count: blocks 304 to 308, before block 310 posts anything. */
static void figure_9_the_transfers_are_counted_before_the_first(void **state)
{
	struct stag_xfer_req req = FIGURE_7;
	struct plan p;

	begin_plan(&p, &req, LEN_70 + LEN_72A, 4);
	assert_int_equal(stag_xfer_count(&p.limits, &req, NULL), 2);
	assert_int_equal(stag_xfer_count(&p.limits, &req, &p.cursor), 2);
	descriptor_80_of_figure_7_is_next(&p);
	assert_int_equal(stag_xfer_count(&p.limits, &req, &p.cursor), 1);
	descriptor_82_of_figure_7_is_next(&p);
	assert_int_equal(stag_xfer_count(&p.limits, &req, &p.cursor), 0);
	assert_int_equal(stag_xfer_count(&p.limits, &req, NULL), 2);
}

/* The loop of blocks 310 to 320: post, transfer, count, until as many as were counted are done. */
static void figure_9_the_loop_runs_as_often_as_counted(void **state)
{
	struct stag_xfer_req req = CHAIN(ELEM(REMOTE_50, KEY_50, BUF(0x10000, 100000, 1)));
	struct plan p;
	uint64_t wanted, done = 0;

	begin_plan(&p, &req, 4096, 1);
	wanted = stag_xfer_count(&p.limits, &req, NULL);
	assert_int_equal(wanted, 25);
	for (; done < wanted; done++)
		assert_true(stag_xfer_form(&p.limits, &req, &p.cursor, &p.desc));
	nothing_is_left(&p);
}

/* Descriptor 82 may be formed before, during or after the transfer of 80. */
static void descriptor_82_is_the_same_whenever_it_is_formed(void **state)
{
	struct stag_xfer_req req = FIGURE_7, other = FIGURE_7;
	struct plan p, q;
	struct stag_xfer_cursor kept;

	begin_plan(&p, &req, LEN_70 + LEN_72A, 4);
	descriptor_80_of_figure_7_is_next(&p);
	kept = p.cursor;
	descriptor_82_of_figure_7_is_next(&p);

	begin_plan(&q, &other, 7, 1);
	while (stag_xfer_form(&q.limits, &other, &q.cursor, &q.desc))
		;

	memset(&p.desc, 0, sizeof(p.desc));
	memset(p.sge, 0, sizeof(p.sge));
	p.desc.sge = p.sge;
	p.cursor = kept;
	descriptor_82_of_figure_7_is_next(&p);
}

/* ---- pauses ------------------------------------------------------------ */

#define MANY 256

/* A chain in which descriptors end for every possible reason. */
#define MIXED_CHAIN                                                                                \
	CHAIN(ELEM(0x1000, 1, BUF(0x10000, 10, 1), BUF(0x1000a, 5, 1), BUF(0x20000, 0, 3),         \
		   BUF(0x30000, 9, 1)),                                                            \
	      NOTHING(0x9999, 8), ELEM(0x1018, 1, BUF(0x30009, 7, 1), BUF(0x40000, 100, 2)),       \
	      ELEM(0x1083, 2, BUF(0x50000, 3, 2)), ELEM(0x2000, 2, BUF(0x60000, 0, 2)),            \
	      ELEM(0x2000, 2, BUF(0x70000, 1, 2), BUF(0x80000, 1, 2), BUF(0x90000, 1, 2)),         \
	      ELEM(0x3000, 2, BUF(0xa0000, 20, 2)), NOTHING(0, 0))

struct formed {
	struct stag_xfer_cursor before;
	struct stag_xfer_desc desc;
	struct ibv_sge sge[2];
};

static size_t form_all(struct plan *p, struct formed *out)
{
	size_t n = 0;

	for (;; n++) {
		assert_true(n < MANY);
		out[n].before = p->cursor;
		out[n].desc.sge = out[n].sge;
		if (!stag_xfer_form(&p->limits, p->req, &p->cursor, &out[n].desc))
			return n;
	}
}

static void same_descriptor(const struct stag_xfer_desc *a, const struct stag_xfer_desc *b)
{
	desc_holds(a, b->remote_addr, b->rkey, b->sge, b->num_sge);
	assert_int_equal(a->num_elems, b->num_elems);
	assert_int_equal(a->end, b->end);
}

static void a_plan_resumed_anywhere_gives_the_same_descriptors(void **state)
{
	static struct formed all[MANY], rest[MANY];
	struct stag_xfer_req req = MIXED_CHAIN;
	struct plan p;

	for (uint32_t max_transfer = 1; max_transfer < 30; max_transfer++) {
		size_t n, m;

		begin_plan(&p, &req, max_transfer, 2);
		n = form_all(&p, all);
		for (size_t i = 0; i <= n; i++) {
			p.cursor = all[i].before;
			m = form_all(&p, rest);
			assert_int_equal(m, n - i);
			assert_int_equal(stag_xfer_count(&p.limits, &req, &all[i].before), n - i);
			for (size_t k = 0; k < m; k++)
				same_descriptor(&rest[k].desc, &all[i + k].desc);
		}
	}
}

static void a_descriptor_without_its_segment_list_is_the_same(void **state)
{
	struct stag_xfer_req req = MIXED_CHAIN;
	struct stag_xfer_cursor cursor = {0};
	struct stag_xfer_desc desc = {.sge = NULL};
	struct plan p;

	begin_plan(&p, &req, 16, 2);
	while (stag_xfer_form(&p.limits, &req, &p.cursor, &p.desc)) {
		assert_true(stag_xfer_form(&p.limits, &req, &cursor, &desc));
		assert_int_equal(desc.remote_addr, p.desc.remote_addr);
		assert_int_equal(desc.length, p.desc.length);
		assert_int_equal(desc.num_sge, p.desc.num_sge);
		assert_int_equal(desc.end, p.desc.end);
		assert_memory_equal(&cursor, &p.cursor, sizeof(cursor));
	}
	assert_false(stag_xfer_form(&p.limits, &req, &cursor, &desc));
}

/* ---- zero lengths -------------------------------------------------------- */

static void an_empty_request_takes_no_descriptor(void **state)
{
	struct stag_xfer_req none = chain(NULL, 0);
	struct stag_xfer_req hollow =
		CHAIN(NOTHING(TOP, 1), ELEM(TOP, 2, BUF(TOP, 0, 3), BUF(0, 0, 4)), NOTHING(0, 5));
	const struct stag_xfer_req *all[] = {&none, &hollow};

	for (size_t i = 0; i < COUNT(all); i++) {
		uint64_t total = 1;
		struct plan p;

		begin_plan(&p, all[i], 100, 1);
		assert_int_equal(stag_xfer_check(all[i], &total, NULL), 0);
		assert_int_equal(total, 0);
		assert_int_equal(stag_xfer_count(&p.limits, all[i], NULL), 0);
		assert_false(stag_xfer_form(&p.limits, all[i], &p.cursor, &p.desc));
		assert_int_equal(p.cursor.elem, all[i]->num_elems);
	}
}

/* Zero-length buffers and elements affect neither coalescing nor adjacency. */
static void zero_length_buffers_do_not_end_a_segment(void **state)
{
	struct stag_xfer_req req =
		CHAIN(NOTHING(0x77, 77), ELEM(0x66, 66, BUF(0x66, 0, 66)),
		      ELEM(0x1000, 1, BUF(0x55, 0, 55), BUF(0x10000, 10, 1), BUF(0x44, 0, 44),
			   BUF(0x1000a, 10, 1), BUF(0x33, 0, 33)),
		      NOTHING(0x22, 22), ELEM(0x11, 11, BUF(0x11, 0, 11), BUF(0x12, 0, 11)),
		      ELEM(0x1014, 1, BUF(0x99, 0, 99), BUF(0x10014, 10, 1), BUF(0x88, 0, 88)),
		      NOTHING(0, 0));
	struct plan p;

	begin_plan(&p, &req, 4096, 1);
	NEXT_IS(&p, 0x1000, 1, SEG(0x10000, 30, 1));
	assert_int_equal(p.desc.num_elems, 2);
	nothing_is_left(&p);
}

/* A full descriptor before only zero-length elements reports that nothing follows. */
static void zero_length_elements_after_the_last_byte_do_not_count(void **state)
{
	struct stag_xfer_req req = CHAIN(ELEM(0x1000, 1, BUF(0x10000, 10, 1), BUF(0x20000, 0, 2)),
					 NOTHING(0x5000, 5), ELEM(0x6000, 6, BUF(0x30000, 0, 3)));
	struct plan p;

	begin_plan(&p, &req, 10, 1);
	NEXT_IS(&p, 0x1000, 1, SEG(0x10000, 10, 1));
	nothing_is_left(&p);
}

/* ---- where descriptors end --------------------------------------------- */

static void another_remote_key_ends_a_descriptor(void **state)
{
	struct stag_xfer_req req =
		CHAIN(ELEM(0x1000, 1, BUF(0x10000, 16, 1)), ELEM(0x1010, 2, BUF(0x10010, 16, 1)));
	struct plan p;

	begin_plan(&p, &req, 4096, 4);
	NEXT_IS(&p, 0x1000, 1, SEG(0x10000, 16, 1));
	last_ended(&p, STAG_XFER_END_KEY);
	NEXT_IS(&p, 0x1010, 2, SEG(0x10010, 16, 1));
	nothing_is_left(&p);
}

/* A gap of one byte, an overlap of one byte, the same place again, a place before it. */
static void a_remote_range_that_is_not_adjacent_ends_a_descriptor(void **state)
{
	static const uint64_t elsewhere[] = {0x1011, 0x100f, 0x1000, 0xff0, 0, TOP - 15};

	for (size_t i = 0; i < COUNT(elsewhere); i++) {
		struct stag_xfer_req req = CHAIN(ELEM(0x1000, 1, BUF(0x10000, 16, 1)),
						 ELEM(elsewhere[i], 1, BUF(0x10010, 16, 1)));
		struct plan p;

		begin_plan(&p, &req, 4096, 4);
		NEXT_IS(&p, 0x1000, 1, SEG(0x10000, 16, 1));
		last_ended(&p, STAG_XFER_END_GAP);
		assert_int_equal(p.cursor.offset, 0);
		NEXT_IS(&p, elsewhere[i], 1, SEG(0x10010, 16, 1));
		nothing_is_left(&p);
	}
}

/* The gap is the reason given, because it would end the descriptor at any limits. */
static void a_full_descriptor_before_a_gap_ends_for_the_gap(void **state)
{
	struct stag_xfer_req req =
		CHAIN(ELEM(0x1000, 1, BUF(0x10000, 16, 1)), ELEM(0x2000, 1, BUF(0x20000, 16, 1)));
	struct plan p;

	begin_plan(&p, &req, 16, 1);
	NEXT_IS(&p, 0x1000, 1, SEG(0x10000, 16, 1));
	last_ended(&p, STAG_XFER_END_GAP);
}

static void a_buffer_without_a_segment_left_ends_a_descriptor(void **state)
{
	struct stag_xfer_req req =
		CHAIN(ELEM(0x1000, 1, BUF(0x10000, 4, 1), BUF(0x20000, 4, 1), BUF(0x30000, 4, 1)),
		      ELEM(0x100c, 1, BUF(0x40000, 4, 1)));
	struct plan p;

	begin_plan(&p, &req, 4096, 2);
	NEXT_IS(&p, 0x1000, 1, SEG(0x10000, 4, 1), SEG(0x20000, 4, 1));
	last_ended(&p, STAG_XFER_END_SEGMENTS);
	assert_int_equal(p.cursor.elem, 0);
	assert_int_equal(p.cursor.offset, 8);
	assert_int_equal(p.cursor.buf, 2);
	assert_int_equal(p.cursor.buf_offset, 0);
	NEXT_IS(&p, 0x1008, 1, SEG(0x30000, 4, 1), SEG(0x40000, 4, 1));
	nothing_is_left(&p);
}

static void limits_of_one_byte_and_one_segment_are_kept(void **state)
{
	struct stag_xfer_req req =
		CHAIN(ELEM(0x1000, 1, BUF(0x10000, 2, 1)), ELEM(0x1002, 1, BUF(0x20000, 1, 1)));
	struct plan p;

	begin_plan(&p, &req, 1, 1);
	assert_int_equal(stag_xfer_count(&p.limits, &req, NULL), 3);
	NEXT_IS(&p, 0x1000, 1, SEG(0x10000, 1, 1));
	NEXT_IS(&p, 0x1001, 1, SEG(0x10001, 1, 1));
	NEXT_IS(&p, 0x1002, 1, SEG(0x20000, 1, 1));
	nothing_is_left(&p);
}

static void limits_of_zero_give_no_descriptor_and_no_endless_loop(void **state)
{
	struct stag_xfer_req req = CHAIN(ELEM(0x1000, 1, BUF(0x10000, 2, 1)));
	static const struct stag_xfer_limits zero[] = {{0, 1}, {1, 0}, {0, 0}};

	for (size_t i = 0; i < COUNT(zero); i++) {
		assert_int_equal(stag_xfer_count(&zero[i], &req, NULL), 0);
		assert_int_equal(stag_xfer_explain(stderr, &zero[i], &req), EINVAL);
	}
}

/* ---- local neighbours -------------------------------------------------- */

static void adjacent_buffers_share_a_segment_across_elements(void **state)
{
	struct stag_xfer_req req = CHAIN(
		ELEM(0x1000, 1, BUF(0x10000, 16, 1)),
		ELEM(0x1010, 1, BUF(0x10010, 16, 1), BUF(0x10020, 16, 1), BUF(0x50000, 16, 1)),
		ELEM(0x1040, 1, BUF(0x50010, 16, 1)));
	struct plan p;

	begin_plan(&p, &req, 4096, 2);
	NEXT_IS(&p, 0x1000, 1, SEG(0x10000, 48, 1), SEG(0x50000, 32, 1));
	assert_int_equal(p.desc.num_elems, 3);
	nothing_is_left(&p);
}

static void adjacent_buffers_with_two_keys_have_a_segment_each(void **state)
{
	struct stag_xfer_req req = CHAIN(ELEM(0x1000, 1, BUF(0x10000, 16, 1), BUF(0x10010, 16, 2)),
					 ELEM(0x1020, 1, BUF(0x10020, 16, 2), BUF(0x10030, 16, 1)));
	struct plan p;

	begin_plan(&p, &req, 4096, 4);
	NEXT_IS(&p, 0x1000, 1, SEG(0x10000, 16, 1), SEG(0x10010, 32, 2), SEG(0x10030, 16, 1));
	nothing_is_left(&p);
}

/* The second comes first in memory; or they overlap; or there is a byte between. */
static void buffers_that_are_not_adjacent_have_a_segment_each(void **state)
{
	static const uint64_t elsewhere[] = {0xfff0, 0x1000f, 0x10011, 0x10000};

	for (size_t i = 0; i < COUNT(elsewhere); i++) {
		struct stag_xfer_req req =
			CHAIN(ELEM(0x1000, 1, BUF(0x10000, 16, 1), BUF(elsewhere[i], 16, 1)));
		struct plan p;

		begin_plan(&p, &req, 4096, 2);
		NEXT_IS(&p, 0x1000, 1, SEG(0x10000, 16, 1), SEG(elsewhere[i], 16, 1));
		nothing_is_left(&p);
	}
}

/* An adjacent buffer extends the last segment when no other is left. */
static void an_adjacent_buffer_joins_when_segments_are_used_up(void **state)
{
	struct stag_xfer_req req =
		CHAIN(ELEM(0x1000, 1, BUF(0x10000, 4, 1), BUF(0x20000, 4, 1)),
		      ELEM(0x1008, 1, BUF(0x20004, 4, 1)), ELEM(0x100c, 1, BUF(0x10004, 4, 1)));
	struct plan p;

	begin_plan(&p, &req, 4096, 2);
	NEXT_IS(&p, 0x1000, 1, SEG(0x10000, 4, 1), SEG(0x20000, 8, 1));
	last_ended(&p, STAG_XFER_END_SEGMENTS);
	NEXT_IS(&p, 0x100c, 1, SEG(0x10004, 4, 1));
	nothing_is_left(&p);
}

/* ---- large numbers ----------------------------------------------------- */

static void a_buffer_of_5_GiB_takes_5120_descriptors_of_1_MiB(void **state)
{
	struct stag_xfer_req req = CHAIN(ELEM(0x1000, 1, BUF(0x100000000, 5 * GIB, 1)));
	struct plan p;
	uint64_t n = 0, total;

	begin_plan(&p, &req, 1 << 20, 1);
	assert_int_equal(stag_xfer_check(&req, &total, NULL), 0);
	assert_int_equal(total, 5 * GIB);
	assert_int_equal(stag_xfer_count(&p.limits, &req, NULL), 5120);
	for (; n < 5120; n++)
		NEXT_IS(&p, 0x1000 + (n << 20), 1, SEG(0x100000000 + (n << 20), 1 << 20, 1));
	nothing_is_left(&p);
}

static void the_largest_limit_is_kept_by_a_larger_buffer(void **state)
{
	struct stag_xfer_req req = CHAIN(ELEM(0x1000, 1, BUF(0x100000000, 5 * GIB, 1)),
					 ELEM(0x1000 + 5 * GIB, 1, BUF(0x900000000, 5 * GIB, 1)));
	const uint64_t most = UINT32_MAX;
	struct plan p;

	begin_plan(&p, &req, UINT32_MAX, 8);
	NEXT_IS(&p, 0x1000, 1, SEG(0x100000000, most, 1));
	last_ended(&p, STAG_XFER_END_SIZE);
	NEXT_IS(&p, 0x1000 + most, 1, SEG(0x100000000 + most, 5 * GIB - most, 1),
		SEG(0x900000000, 2 * most - 5 * GIB, 1));
	last_ended(&p, STAG_XFER_END_SIZE);
	NEXT_IS(&p, 0x1000 + 2 * most, 1,
		SEG(0x900000000 + 2 * most - 5 * GIB, 10 * GIB - 2 * most, 1));
	nothing_is_left(&p);
}

/* Adjacent buffers of more than 4 GiB together never overflow the length field of a segment. */
static void adjacent_buffers_beyond_4_GiB_do_not_wrap_a_segment(void **state)
{
	struct stag_xfer_req req = CHAIN(ELEM(0, 1, BUF(0, 3 * GIB, 1), BUF(3 * GIB, 3 * GIB, 1)));
	const uint64_t most = UINT32_MAX;
	struct plan p;

	begin_plan(&p, &req, UINT32_MAX, 8);
	NEXT_IS(&p, 0, 1, SEG(0, most, 1));
	NEXT_IS(&p, most, 1, SEG(most, 6 * GIB - most, 1));
	nothing_is_left(&p);
}

/* A range may end at 2^64; address 0 is not adjacent to it. */
static void ranges_do_not_continue_at_address_0(void **state)
{
	struct stag_xfer_req remote =
		CHAIN(ELEM(TOP - 15, 1, BUF(0x10000, 16, 1)), ELEM(0, 1, BUF(0x10010, 16, 1)));
	struct stag_xfer_req local = CHAIN(ELEM(0x1000, 1, BUF(TOP - 15, 16, 1), BUF(0, 16, 1)));
	struct plan p;

	begin_plan(&p, &remote, 4096, 1);
	NEXT_IS(&p, TOP - 15, 1, SEG(0x10000, 16, 1));
	last_ended(&p, STAG_XFER_END_GAP);
	NEXT_IS(&p, 0, 1, SEG(0x10010, 16, 1));
	nothing_is_left(&p);

	begin_plan(&p, &local, 4096, 2);
	NEXT_IS(&p, 0x1000, 1, SEG(TOP - 15, 16, 1), SEG(0, 16, 1));
	nothing_is_left(&p);
}

static void a_range_that_ends_at_the_top_is_divided_up_to_there(void **state)
{
	struct stag_xfer_req req = CHAIN(ELEM(TOP - 9, 1, BUF(TOP - 9, 10, 1)));
	struct plan p;

	begin_plan(&p, &req, 4, 1);
	NEXT_IS(&p, TOP - 9, 1, SEG(TOP - 9, 4, 1));
	NEXT_IS(&p, TOP - 5, 1, SEG(TOP - 5, 4, 1));
	NEXT_IS(&p, TOP - 1, 1, SEG(TOP - 1, 2, 1));
	nothing_is_left(&p);
}

/* ---- invalid requests --------------------------------------------------- */

static void is_refused(const struct stag_xfer_req *req, size_t elem)
{
	const struct stag_xfer_limits limits = {100, 1};
	uint64_t total = 4711;
	size_t bad = 4711;

	assert_int_equal(stag_xfer_check(req, &total, &bad), EINVAL);
	assert_int_equal(bad, elem);
	assert_int_equal(total, 4711);
	assert_int_equal(stag_xfer_check(req, NULL, NULL), EINVAL);
	assert_int_equal(stag_xfer_explain(stderr, &limits, req), EINVAL);
}

#define FINE ELEM(0x1000, 1, BUF(0x10000, 16, 1))

static void a_request_without_an_op_a_list_or_with_flags_is_refused(void **state)
{
	struct stag_xfer_req req = CHAIN(FINE, FINE);

	req.op = 0;
	is_refused(&req, 2);
	req.op = STAG_XFER_WRITE + 1;
	is_refused(&req, 2);
	req.op = STAG_XFER_READ;
	req.flags = 1;
	is_refused(&req, 2);
	req.flags = 0;
	assert_int_equal(stag_xfer_check(&req, NULL, NULL), 0);
	req.elems = NULL;
	is_refused(&req, 2);
}

static void an_element_without_its_list_is_refused(void **state)
{
	struct stag_xfer_req req = CHAIN(FINE, FINE, ((struct stag_xfer_elem){NULL, 1, 1, 1}));

	is_refused(&req, 2);
}

static void a_buffer_beyond_the_address_space_is_refused(void **state)
{
	struct stag_xfer_req fits = CHAIN(FINE, ELEM(0, 1, BUF(TOP - 15, 16, 1)));
	struct stag_xfer_req one_over = CHAIN(FINE, ELEM(0, 1, BUF(0, 1, 1), BUF(TOP - 15, 17, 1)));
	struct stag_xfer_req far_over = CHAIN(FINE, ELEM(0, 1, BUF(1, TOP, 1), BUF(2, TOP, 1)));

	assert_int_equal(stag_xfer_check(&fits, NULL, NULL), 0);
	is_refused(&one_over, 1);
	is_refused(&far_over, 1);
}

static void a_remote_range_beyond_the_address_space_is_refused(void **state)
{
	struct stag_xfer_req fits =
		CHAIN(ELEM(TOP - 15, 1, BUF(0, 10, 1), BUF(0, 6, 1)), FINE, NOTHING(TOP, 1));
	struct stag_xfer_req over = CHAIN(FINE, ELEM(TOP - 15, 1, BUF(0, 10, 1), BUF(0, 7, 1)));

	assert_int_equal(stag_xfer_check(&fits, NULL, NULL), 0);
	is_refused(&over, 1);
}

/* The sum of all lengths must not wrap either. */
static void lengths_whose_sum_wraps_are_refused(void **state)
{
	const uint64_t half = (uint64_t)1 << 63;
	struct stag_xfer_req in_one =
		CHAIN(FINE, FINE, ELEM(0, 1, BUF(0, half, 1), BUF(0, half, 1)));
	struct stag_xfer_req together =
		CHAIN(ELEM(0, 1, BUF(0, half, 1)), ELEM(0, 1, BUF(0, half - 1, 1)), NOTHING(0, 0),
		      ELEM(0, 1, BUF(0, 1, 1)));
	uint64_t total;

	is_refused(&in_one, 2);
	is_refused(&together, 3);
	together.num_elems = 3;
	assert_int_equal(stag_xfer_check(&together, &total, NULL), 0);
	assert_true(total == TOP);
}

/* ---- consecutive requests in one descriptor ---------------------------- */

static void an_adjacent_next_request_joins_the_descriptor(void **state)
{
	struct stag_xfer_req first = CHAIN(ELEM(0x1000, 1, BUF(0x10000, 16, 1)), NOTHING(0, 0));
	struct stag_xfer_req empty = CHAIN(NOTHING(0x77, 7), ELEM(0x66, 6, BUF(0, 0, 6)));
	struct stag_xfer_req second =
		CHAIN(NOTHING(0, 0), ELEM(0x1010, 1, BUF(0x10010, 16, 1), BUF(0x20000, 50, 1)));
	struct stag_xfer_cursor cursor = {0};
	struct plan p;

	begin_plan(&p, &first, 64, 2);
	assert_true(plan_extend(&p.limits, &first, &p.cursor, &p.desc));
	assert_true(plan_extend(&p.limits, &empty, &cursor, &p.desc));
	assert_int_equal(cursor.elem, 2);

	cursor = (struct stag_xfer_cursor){0};
	assert_false(plan_extend(&p.limits, &second, &cursor, &p.desc));
	desc_holds(&p.desc, 0x1000, 1,
		   LIST(struct ibv_sge, SEG(0x10000, 32, 1), SEG(0x20000, 32, 1)));
	assert_int_equal(p.desc.num_elems, 2);
	last_ended(&p, STAG_XFER_END_SIZE);
	assert_int_equal(cursor.elem, 1);
	assert_int_equal(cursor.offset, 48);
	assert_int_equal(cursor.buf, 1);
	assert_int_equal(cursor.buf_offset, 32);

	p.req = &second;
	p.cursor = cursor;
	NEXT_IS(&p, 0x1040, 1, SEG(0x20020, 18, 1));
	nothing_is_left(&p);
}

/* Checks that `second` does not fit behind the first, for this reason, and stays whole. */
static void stays_out(struct plan *p, struct stag_xfer_req second, enum stag_xfer_end why)
{
	struct stag_xfer_req first = CHAIN(ELEM(0x1000, 1, BUF(0x10000, 16, 1)));
	struct stag_xfer_limits limits = p->limits;
	struct stag_xfer_cursor cursor = {0};

	begin_plan(p, &first, limits.max_transfer, limits.max_segments);
	assert_true(plan_extend(&limits, &first, &p->cursor, &p->desc));
	assert_false(plan_extend(&limits, &second, &cursor, &p->desc));
	desc_holds(&p->desc, 0x1000, 1, LIST(struct ibv_sge, SEG(0x10000, 16, 1)));
	assert_int_equal(p->desc.num_elems, 1);
	last_ended(p, why);
	assert_int_equal(cursor.elem, 0);
	assert_int_equal(cursor.offset, 0);
}

static void a_next_request_that_does_not_fit_stays_out(void **state)
{
	struct plan p = {.limits = {64, 1}};

	stays_out(&p, CHAIN(ELEM(0x2000, 1, BUF(0x10010, 16, 1))), STAG_XFER_END_GAP);
	stays_out(&p, CHAIN(ELEM(0x1010, 2, BUF(0x10010, 16, 1))), STAG_XFER_END_KEY);
	stays_out(&p, CHAIN(ELEM(0x1010, 1, BUF(0x20000, 16, 1))), STAG_XFER_END_SEGMENTS);
	p.limits.max_transfer = 16;
	stays_out(&p, CHAIN(ELEM(0x1010, 1, BUF(0x10010, 16, 1))), STAG_XFER_END_SIZE);
}

/* ---- explaining -------------------------------------------------------- */

static void explains_as(const struct stag_xfer_limits *limits, const struct stag_xfer_req *req,
			const char *wanted)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	assert_int_equal(stag_xfer_explain(out, limits, req), 0);
	fclose(out);
	assert_string_equal(text, wanted);
	free(text);
}

#define HEADINGS                                                                                   \
	"number  remote range                       key            bytes  segments  elements     " \
	"    ends because\n"

static void figure_7_is_explained(void **state)
{
	struct stag_xfer_req req = FIGURE_7;
	const struct stag_xfer_limits limits = {LEN_70 + LEN_72A, 4};

	explains_as(&limits, &req,
		    "write; limits of a descriptor: bytes 4096, segments 4\n" HEADINGS
		    "     1  0000000000500000-0000000000500fff  00000050        4096         2"
		    "  0-1              full, with 4096 bytes; divides element 1 after 1096 bytes\n"
		    "     2  0000000000501000-0000000000501963  00000050        2404         2"
		    "  1-2              nothing follows\n"
		    "sum: elements 3, bytes 6500, descriptors 2, coalesced 2, divided 1\n");
}

static void every_reason_to_end_is_explained(void **state)
{
	struct stag_xfer_req req =
		CHAIN(NOTHING(0, 0), ELEM(0x1000, 1, BUF(0x10000, 8, 1)), NOTHING(0, 0),
		      ELEM(0x1008, 1, BUF(0x10008, 4, 1), BUF(0x20000, 4, 0x22)), NOTHING(0, 0),
		      ELEM(TOP - 1, 0x22, BUF(0x20000, 2, 1)), ELEM(0, 0x22, BUF(0x20002, 20, 1)));
	const struct stag_xfer_limits limits = {16, 1};

	req.op = STAG_XFER_READ;
	explains_as(
		&limits, &req,
		"read; limits of a descriptor: bytes 16, segments 1\n" HEADINGS
		"     1  0000000000001000-000000000000100b  00000001          12         1"
		"  2 of 1-3         segments used up (1), and buffer 1 of element 3 is elsewhere,"
		" at 0x20000 with key 0x22; divides element 3 after 4 bytes\n"
		"     2  000000000000100c-000000000000100f  00000001           4         1"
		"  3                element 5 has another key, 0x22\n"
		"     3  fffffffffffffffe-ffffffffffffffff  00000022           2         1"
		"  5                element 6 is elsewhere, at 0x0\n"
		"     4  0000000000000000-000000000000000f  00000022          16         1"
		"  6                full, with 16 bytes; divides element 6 after 16 bytes\n"
		"     5  0000000000000010-0000000000000013  00000022           4         1"
		"  6                nothing follows\n"
		"sum: elements 7, bytes 38, descriptors 5, coalesced 1, divided 2\n");
}

static void an_explanation_that_cannot_be_written_is_an_error(void **state)
{
	struct stag_xfer_req req = FIGURE_7;
	const struct stag_xfer_limits limits = {1, 1};
	FILE *out = fopen("/dev/full", "w");

	if (!out)
		skip();
	setvbuf(out, NULL, _IONBF, 0);
	assert_int_equal(stag_xfer_explain(out, &limits, &req), EIO);
	fclose(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(figure_6_an_element_of_three_buffers_is_one_descriptor),
		cmocka_unit_test(figure_6_contiguous_buffers_22_24_26_are_one_segment),
		cmocka_unit_test(figure_7_70_and_72A_are_descriptor_80_72B_and_74_are_82),
		cmocka_unit_test(figure_7_is_the_same_for_a_read),
		cmocka_unit_test(figure_8_200A_is_descriptor_80_200B_and_202_are_82),
		cmocka_unit_test(figure_9_the_transfers_are_counted_before_the_first),
		cmocka_unit_test(figure_9_the_loop_runs_as_often_as_counted),
		cmocka_unit_test(descriptor_82_is_the_same_whenever_it_is_formed),
		cmocka_unit_test(a_plan_resumed_anywhere_gives_the_same_descriptors),
		cmocka_unit_test(a_descriptor_without_its_segment_list_is_the_same),
		cmocka_unit_test(an_empty_request_takes_no_descriptor),
		cmocka_unit_test(zero_length_buffers_do_not_end_a_segment),
		cmocka_unit_test(zero_length_elements_after_the_last_byte_do_not_count),
		cmocka_unit_test(another_remote_key_ends_a_descriptor),
		cmocka_unit_test(a_remote_range_that_is_not_adjacent_ends_a_descriptor),
		cmocka_unit_test(a_full_descriptor_before_a_gap_ends_for_the_gap),
		cmocka_unit_test(a_buffer_without_a_segment_left_ends_a_descriptor),
		cmocka_unit_test(limits_of_one_byte_and_one_segment_are_kept),
		cmocka_unit_test(limits_of_zero_give_no_descriptor_and_no_endless_loop),
		cmocka_unit_test(adjacent_buffers_share_a_segment_across_elements),
		cmocka_unit_test(adjacent_buffers_with_two_keys_have_a_segment_each),
		cmocka_unit_test(buffers_that_are_not_adjacent_have_a_segment_each),
		cmocka_unit_test(an_adjacent_buffer_joins_when_segments_are_used_up),
		cmocka_unit_test(a_buffer_of_5_GiB_takes_5120_descriptors_of_1_MiB),
		cmocka_unit_test(the_largest_limit_is_kept_by_a_larger_buffer),
		cmocka_unit_test(adjacent_buffers_beyond_4_GiB_do_not_wrap_a_segment),
		cmocka_unit_test(ranges_do_not_continue_at_address_0),
		cmocka_unit_test(a_range_that_ends_at_the_top_is_divided_up_to_there),
		cmocka_unit_test(a_request_without_an_op_a_list_or_with_flags_is_refused),
		cmocka_unit_test(an_element_without_its_list_is_refused),
		cmocka_unit_test(a_buffer_beyond_the_address_space_is_refused),
		cmocka_unit_test(a_remote_range_beyond_the_address_space_is_refused),
		cmocka_unit_test(lengths_whose_sum_wraps_are_refused),
		cmocka_unit_test(an_adjacent_next_request_joins_the_descriptor),
		cmocka_unit_test(a_next_request_that_does_not_fit_stays_out),
		cmocka_unit_test(figure_7_is_explained),
		cmocka_unit_test(every_reason_to_end_is_explained),
		cmocka_unit_test(an_explanation_that_cannot_be_written_is_an_error),
	};

	return cmocka_run_group_tests_name("xfer plan", tests, NULL, NULL);
}
