// SPDX-License-Identifier: BSD-2-Clause
/* manager.c - the public interface: managers, rails, submitting and returning requests. */
#include "xfer.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/export.h"

#define DEFAULT_DESCRIPTORS  256
#define MAX_DESCRIPTORS	     65536
#define DEFAULT_MAX_TRANSFER (1u << 20)
#define DEFAULT_MAX_LOSSES   5
#define DEFAULT_WINDOW	     (16u << 20)
#define DEFAULT_TURN	     (1u << 20)
#define ALL_FLAGS	     (STAG_XFER_UNCONFIRMED | STAG_XFER_NO_MERGE | STAG_XFER_FED)

void xfer_complain(struct stag_xfer *x, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(x->error, sizeof(x->error), fmt, args);
	va_end(args);
}

/* Begins a public call: clears the error text. */
static void enter_manager(struct stag_xfer *x)
{
	x->error[0] = '\0';
}

/*
 * Ends a public call. Debug builds check the manager, every time or, with many descriptors, from
 * time to time.
 */
static void leave_manager(struct stag_xfer *x)
{
	assert(!x->check_every || ++x->calls % x->check_every || xfer_is_valid(x));
	(void)x;
}

/* ---- create and destroy ---- */

static bool is_sane(const struct stag_xfer_attr *attr)
{
	return !attr->comp_mask && !(attr->flags & ~(unsigned int)ALL_FLAGS) &&
	       attr->descriptors <= MAX_DESCRIPTORS;
}

static void configure(struct stag_xfer *x, const struct stag_xfer_attr *attr)
{
	uint32_t transfer = attr->max_transfer ? attr->max_transfer : DEFAULT_MAX_TRANSFER;

	if (attr->peer_max_transfer && attr->peer_max_transfer < transfer)
		transfer = attr->peer_max_transfer;
	for (int op = STAG_XFER_READ; op <= STAG_XFER_WRITE; op++)
		x->limits[op] = (struct stag_xfer_limits){transfer, attr->max_segments};
	x->flags = attr->flags;
	x->descriptors = attr->descriptors ? attr->descriptors : DEFAULT_DESCRIPTORS;
	x->max_losses = attr->max_losses ? attr->max_losses : DEFAULT_MAX_LOSSES;
	x->window = attr->window ? attr->window : DEFAULT_WINDOW;
	x->turn = attr->turn ? attr->turn : DEFAULT_TURN;
}

static void fill_pool(struct stag_xfer *x)
{
	for (uint32_t i = x->descriptors; i--;) {
		x->records[i].next = x->free;
		x->free = &x->records[i];
	}
}

STAG_EXPORT struct stag_xfer *stag_xfer_create(const struct stag_xfer_attr *attr)
{
	static const struct stag_xfer_attr defaults;
	static atomic_uint next_id;
	struct stag_xfer *x;

	if (attr && !is_sane(attr)) {
		errno = EINVAL;
		return NULL;
	}
	x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	configure(x, attr ? attr : &defaults);
	x->records = calloc(x->descriptors, sizeof(*x->records));
	if (!x->records) {
		free(x);
		return NULL;
	}
	x->id = (uint8_t)atomic_fetch_add(&next_id, 1);
	x->check_every = secure_getenv("STAG_XFER_CHECK") ? 1 + x->descriptors / 128 : 0;
	fill_pool(x);
	return x;
}

STAG_EXPORT int stag_xfer_destroy(struct stag_xfer *x)
{
	enter_manager(x);
	if (x->in_flight_reqs) {
		xfer_complain(x, "cannot destroy the manager: %llu requests are in flight",
			      (unsigned long long)x->in_flight_reqs);
		return EBUSY;
	}
	if (x->mr)
		ibv_dereg_mr(x->mr);
	free(x->sges);
	free(x->records);
	free(x);
	return 0;
}

/* ---- rails ---- */

/* Allocates segments for all records: no rail added later allows more. */
static int give_segments(struct stag_xfer *x)
{
	uint32_t read = x->limits[STAG_XFER_READ].max_segments;
	uint32_t write = x->limits[STAG_XFER_WRITE].max_segments;
	size_t each = read > write ? read : write;

	x->sges = calloc(x->descriptors * each, sizeof(*x->sges));
	if (!x->sges)
		return -ENOMEM;
	for (uint32_t i = 0; i < x->descriptors; i++)
		x->records[i].wr.sg_list = x->sges + i * each;
	return 0;
}

/* Allocates what depends on the first rail. */
static int settle_in(struct stag_xfer *x, struct ibv_pd *pd)
{
	if (x->sges)
		return 0;
	x->mr = ibv_reg_mr(pd, &x->scratch, sizeof(x->scratch),
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!x->mr) {
		int err = errno;

		xfer_complain(x, "register %zu bytes: %s", sizeof(x->scratch), strerror(err));
		return -err;
	}
	if (give_segments(x)) {
		ibv_dereg_mr(x->mr);
		x->mr = NULL;
		xfer_complain(x, "no memory for the segments of %u descriptors", x->descriptors);
		return -ENOMEM;
	}
	x->pd = pd;
	x->confirm_sge = (struct ibv_sge){.addr = (uintptr_t)&x->scratch, .lkey = x->mr->lkey};
	return 0;
}

static int add_rail(struct stag_xfer *x, struct ibv_qp *qp)
{
	struct rail *rail = &x->rails[x->num_rails];
	struct stag_xfer_limits before[STAG_XFER_WRITE + 1];
	int err;

	*rail = (struct rail){.x = x, .number = (uint8_t)x->num_rails++};
	memcpy(before, x->limits, sizeof(before));
	err = rail_adopt(x, rail, qp, true);
	if (!err)
		err = settle_in(x, qp->pd);
	if (err) {
		memcpy(x->limits, before, sizeof(before));
		x->num_rails--;
	}
	return err;
}

STAG_EXPORT int stag_xfer_add_rail(struct stag_xfer *x, struct ibv_qp *qp, unsigned int *rail)
{
	int err;

	enter_manager(x);
	if (x->started) {
		xfer_complain(x, "rails can be added only before the first request is submitted");
		return EBUSY;
	}
	if (x->num_rails == STAG_XFER_MAX_RAILS) {
		xfer_complain(x, "the manager has %u rails already, the maximum", x->num_rails);
		return ENOSPC;
	}
	err = add_rail(x, qp);
	if (!err && rail)
		*rail = x->num_rails - 1;
	return -err;
}

/* Returns whether the queue pair has left RTS, which no completion reports on an idle rail. */
static bool is_dead(const struct rail *rail)
{
	struct ibv_qp_attr attr = {0};
	struct ibv_qp_init_attr init;

	return ibv_query_qp(rail->qp, &attr, IBV_QP_STATE, &init) == 0 &&
	       attr.qp_state >= IBV_QPS_SQD;
}

STAG_EXPORT int stag_xfer_rebind(struct stag_xfer *x, unsigned int number, struct ibv_qp *qp)
{
	struct rail *rail;
	int err;

	enter_manager(x);
	if (number >= x->num_rails) {
		xfer_complain(x, "there is no rail %u", number);
		return EINVAL;
	}
	rail = &x->rails[number];
	if (qp && rail->state == RAIL_UP && !is_dead(rail)) {
		xfer_complain(x, "rail %u is up", number);
		return EBUSY;
	}
	xfer_reap(x);
	rail_abandon(rail);
	err = qp ? rail_adopt(x, rail, qp, false) : 0;
	xfer_pump(x);
	leave_manager(x);
	return -err;
}

STAG_EXPORT bool stag_xfer_rail_up(const struct stag_xfer *x, unsigned int rail)
{
	return rail < x->num_rails && x->rails[rail].state == RAIL_UP;
}

/* ---- posting ---- */

static bool takes_more(const struct rail *rail)
{
	return rail->state == RAIL_UP && !rail->exclusive && !rail->full &&
	       rail->records < rail->max_records;
}

/*
 * Returns the rail with the least data in flight, or NULL if none is suitable. For a suspect record
 * it must be empty.
 */
static struct rail *pick_rail(struct stag_xfer *x, bool suspect)
{
	struct rail *best = NULL;

	for (unsigned int i = 0; i < x->num_rails; i++) {
		struct rail *rail = &x->rails[i];

		rail_make_room(rail);
		if (!takes_more(rail) || (suspect && rail->records))
			continue;
		if (!best || rail->bytes < best->bytes)
			best = rail;
	}
	return best;
}

/*
 * Returns how many bytes may be posted: the rest of the window. No limit if the rail is empty: a
 * descriptor that is longer than the window is posted alone.
 */
static uint64_t window_room(const struct rail *rail)
{
	if (!rail->bytes)
		return UINT64_MAX;
	return rail->bytes < rail->x->window ? rail->x->window - rail->bytes : 0;
}

/* Posts lost records again. Returns true if none is left. */
static bool post_lost(struct stag_xfer *x)
{
	struct record *rec;

	while ((rec = x->lost.head)) {
		struct rail *rail;

		lost_prepare(x, rec);
		rail = pick_rail(x, record_is_suspect(rec));
		if (rec != x->lost.head)
			continue; /* posting a list broke a rail */
		if (!rail || record_wire_bytes(rec) > window_room(rail))
			return false;
		record_list_pop(&x->lost);
		rail_put(rail, rec);
	}
	return true;
}

static void post_new(struct stag_xfer *x)
{
	struct stag_xfer_req *req;

	while ((req = x->queue.head) && !x->lost.head) {
		struct rail *rail = pick_rail(x, req->alone);
		struct record *rec;

		if (req != x->queue.head)
			continue;
		rec = rail ? queue_form(x, window_room(rail)) : NULL;
		if (!rec)
			return;
		x->paused = false;
		rail_put(rail, rec);
	}
}

static bool has_rail(const struct stag_xfer *x)
{
	for (unsigned int i = 0; i < x->num_rails; i++)
		if (x->rails[i].state == RAIL_UP)
			return true;
	return false;
}

static void note_pause(struct stag_xfer *x)
{
	if (x->paused || !x->queue.head || x->plugged || !has_rail(x))
		return;
	x->paused = true;
	x->counters.pauses++;
}

void xfer_pump(struct stag_xfer *x)
{
	for (unsigned int i = 0; i < x->num_rails; i++)
		if (x->rails[i].state == RAIL_UP && x->rails[i].full)
			rail_post(&x->rails[i]);
	if (post_lost(x) && !x->plugged)
		post_new(x);
	for (unsigned int i = 0; i < x->num_rails; i++)
		rail_settle(&x->rails[i]);
	note_pause(x);
}

/* ---- submitting requests ---- */

static void init_request(struct stag_xfer *x, struct stag_xfer_req *req, uint64_t total)
{
	req->error = 0;
	req->status = IBV_WC_SUCCESS;
	req->cursor = (struct stag_xfer_cursor){0};
	req->bytes_total = total;
	req->bytes_done = req->transfers = req->transfers_done = 0;
	req->follower = req->touched_next = NULL;
	req->bytes_formed = 0;
	req->in_flight = req->in_lost = req->losses = 0;
	req->loss_mark = x->loss_mark;
	req->outcome = 0;
	req->alone = req->touched = false;
	req->phase = REQ_NONE; /* its memory may be new: there is no phase before this one */
}

STAG_EXPORT int stag_xfer_submit(struct stag_xfer *x, struct stag_xfer_req *req)
{
	uint64_t total;
	size_t bad;

	enter_manager(x);
	if (!x->num_rails) {
		xfer_complain(x, "there is no rail");
		return EINVAL;
	}
	if (stag_xfer_check(req, &total, &bad)) {
		xfer_complain(x,
			      bad < req->num_elems ? "element %zu is invalid"
						   : "the request is not sound",
			      bad);
		return EINVAL;
	}
	init_request(x, req, total);
	x->started = true;
	x->in_flight_reqs++;
	queue_add(x, req);
	if (!x->plugged)
		xfer_pump(x);
	leave_manager(x);
	return 0;
}

STAG_EXPORT int stag_xfer_cancel(struct stag_xfer *x, struct stag_xfer_req *req)
{
	enter_manager(x);
	if (req->phase == REQ_NONE || req->phase == REQ_DONE) {
		xfer_complain(x, "the request is not in flight");
		return ENOENT;
	}
	req_end(x, req, ECANCELED, IBV_WC_SUCCESS);
	lost_forget(x, req);
	req_settle(x, req);
	xfer_pump(x);
	leave_manager(x);
	return 0;
}

STAG_EXPORT void stag_xfer_plug(struct stag_xfer *x)
{
	x->plugged++;
}

STAG_EXPORT void stag_xfer_unplug(struct stag_xfer *x)
{
	enter_manager(x);
	assert(x->plugged);
	if (--x->plugged == 0)
		xfer_pump(x);
	leave_manager(x);
}

/* ---- returning requests ---- */

static void reap_cq(struct stag_xfer *x, struct ibv_cq *cq)
{
	struct ibv_wc wc[32];
	int n;

	do {
		n = ibv_poll_cq(cq, 32, wc);
		for (int i = 0; i < n; i++)
			rail_take(x, &wc[i]);
	} while (n == 32);
	for (unsigned int i = 0; n < 0 && i < x->num_rails; i++)
		if (x->rails[i].cq == cq)
			rail_abandon(&x->rails[i]);
}

bool xfer_owns_cq(const struct stag_xfer *x, unsigned int number)
{
	for (unsigned int i = 0; i < number; i++)
		if (x->rails[i].cq == x->rails[number].cq && x->rails[i].state != RAIL_DOWN)
			return false;
	return x->rails[number].state != RAIL_DOWN;
}

void xfer_reap(struct stag_xfer *x)
{
	if (x->flags & STAG_XFER_FED)
		return;
	for (unsigned int i = 0; i < x->num_rails; i++)
		if (xfer_owns_cq(x, i))
			reap_cq(x, x->rails[i].cq);
}

static int take_done(struct stag_xfer *x, struct stag_xfer_req **done, int max)
{
	int n = 0;

	for (struct stag_xfer_req *req; n < max && (req = x->done.head); n++) {
		req_list_remove(&x->done, req);
		req_set_phase(req, REQ_NONE);
		x->in_flight_reqs--;
		done[n] = req;
	}
	return n;
}

STAG_EXPORT int stag_xfer_poll(struct stag_xfer *x, struct stag_xfer_req **done, int max)
{
	int n;

	enter_manager(x);
	xfer_reap(x);
	xfer_pump(x);
	req_call_progress(x);
	n = take_done(x, done, max);
	leave_manager(x);
	return n;
}

STAG_EXPORT bool stag_xfer_take(struct stag_xfer *x, const struct ibv_wc *wc)
{
	enter_manager(x);
	return rail_take(x, wc);
}

/* ---- queries ------ */

STAG_EXPORT int stag_xfer_query_limits(const struct stag_xfer *x, enum stag_xfer_op op,
				       struct stag_xfer_limits *limits)
{
	if (!x->num_rails || (op != STAG_XFER_READ && op != STAG_XFER_WRITE))
		return EINVAL;
	*limits = x->limits[op];
	return 0;
}

STAG_EXPORT int stag_xfer_query_counters(const struct stag_xfer *x, struct stag_xfer_counters *c,
					 size_t size)
{
	memcpy(c, &x->counters, size < sizeof(*c) ? size : sizeof(*c));
	return 0;
}

STAG_EXPORT const char *stag_xfer_error(const struct stag_xfer *x)
{
	return x->error;
}
