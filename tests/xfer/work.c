// SPDX-License-Identifier: BSD-2-Clause
/*
 * work.c - helpers for tests of the manager: see work.h.
 */
#include "work.h"

#include <stdlib.h>
#include <string.h>

#include "dice.h"

void desk_open(struct desk *d, const struct pair_wish *wish, const struct stag_xfer_attr *attr,
	       size_t len)
{
	unsigned int number;

	pair_open(&d->pair, wish);
	d->near = near_region(&d->pair, len);
	d->far = far_region(&d->pair, len, BOTH_WAYS);
	d->model = malloc(len);
	assert_non_null(d->model);
	dice_fill(d->near->at, len);
	for (size_t i = 0; i < len; i++)
		d->far->at[i] = (uint8_t)~d->near->at[i];
	assert_non_null(d->x = stag_xfer_create(attr));
	for (unsigned int i = 0; i < d->pair.wish.rails; i++)
		assert_int_equal(stag_xfer_add_rail(d->x, pair_qp(&d->pair, i), &number), 0);
}

void desk_close(struct desk *d)
{
	assert_int_equal(stag_xfer_destroy(d->x), 0);
	pair_close(&d->pair);
	free(d->model);
}

void work_init(struct work *w, enum stag_xfer_op op, const struct region *near, size_t near_off,
	       const struct region *far, size_t far_off, uint64_t len)
{
	*w = (struct work){
		.req = {.op = op, .elems = &w->elem, .num_elems = 1, .context = w},
		.elem = {.bufs = &w->buf,
			 .num_bufs = 1,
			 .rkey = far->mr->rkey,
			 .remote_addr = (uintptr_t)far->at + far_off},
		.buf = {.addr = (uintptr_t)near->at + near_off,
			.length = len,
			.lkey = near->mr->lkey},
	};
}

void desk_work(struct desk *d, struct work *w, enum stag_xfer_op op, size_t off, uint64_t len)
{
	work_init(w, op, d->near, off, d->far, off, len);
}

void submit(struct desk *d, struct work *w)
{
	if (stag_xfer_submit(d->x, &w->req))
		fail_msg("submit failed: %s", stag_xfer_error(d->x));
}

static void report_disconnects(struct desk *d)
{
	for (unsigned int i = 0; i < d->pair.wish.rails; i++)
		if (pair_ended_unreported(&d->pair, i) && stag_xfer_rail_up(d->x, i))
			assert_int_equal(stag_xfer_rebind(d->x, i, NULL), 0);
}

struct work *poll_one(struct desk *d)
{
	struct stag_xfer_req *done;
	struct work *w;
	int n = stag_xfer_poll(d->x, &done, 1);

	report_disconnects(d);
	pair_serve(&d->pair);
	if (!n)
		return NULL;
	w = done->context;
	w->returned++;
	return w;
}

struct work *await_one(struct desk *d)
{
	struct work *w;

	await((w = poll_one(d)));
	return w;
}

void expect_done(struct desk *d, struct work *w)
{
	assert_ptr_equal(await_one(d), w);
	assert_int_equal(w->req.error, 0);
	assert_int_equal(w->req.status, IBV_WC_SUCCESS);
	assert_int_equal(w->req.bytes_done, w->buf.length);
	assert_int_equal(w->req.transfers, w->req.transfers_done);
}

void expect_same(struct desk *d, size_t off, size_t len)
{
	assert_memory_equal(d->near->at + off, d->far->at + off, len);
}

struct stag_xfer_counters counters(const struct desk *d)
{
	struct stag_xfer_counters c;

	assert_int_equal(stag_xfer_query_counters(d->x, &c, sizeof(c)), 0);
	return c;
}

static bool has_ended(struct desk *d, unsigned int rail)
{
	return !stag_xfer_rail_up(d->x, rail) || !pair_is_up(&d->pair, rail);
}

void await_rail_down(struct desk *d, unsigned int rail)
{
	await((assert_null(poll_one(d)), has_ended(d, rail)));
}

void reconnect_rail(struct desk *d, unsigned int rail)
{
	struct rdma_cm_id *old = pair_replace(&d->pair, rail);

	/* The manager may not have noticed the disconnect. */
	if (stag_xfer_rail_up(d->x, rail))
		assert_int_equal(stag_xfer_rebind(d->x, rail, NULL), 0);
	if (stag_xfer_rebind(d->x, rail, pair_qp(&d->pair, rail)))
		fail_msg("rail %u: %s", rail, stag_xfer_error(d->x));
	pair_discard(old);
}

/* Polls once; returns the number of requests that came back. */
static unsigned int poll_and_reconnect(struct desk *d)
{
	unsigned int came = poll_one(d) != NULL;

	for (unsigned int i = 0; i < d->pair.wish.rails; i++)
		if (has_ended(d, i))
			reconnect_rail(d, i);
	return came;
}

void await_returned(struct desk *d, unsigned int count)
{
	for (; count; count--)
		await(poll_and_reconnect(d));
	for (int i = 0; i < 20; i++)
		assert_null(poll_one(d));
}
