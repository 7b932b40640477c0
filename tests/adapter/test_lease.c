// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_lease.c - regions whose lease ends: at each check of the clock, for each kind of access.
 *
 * The test supplies the clock (CLOCK_BOOTTIME). It stands still until the adapter has read it as
 * often as the test says, and is past the lease from then on; so a pause of any length lies between
 * any two checks.
 */
#include "raw_peer.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <stag/stagdv.h>

#define LEN	   4096
#define BIG	   60000
#define LEASE	   1000000000u
#define SINK_STAG  0x01020304
#define SINK_TO	   0x1000
#define FOR_EVER   1000000
#define ALL_REMOTE (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define ALL_ACCESS (ALL_REMOTE | IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND)

static const uint8_t junk[BIG] = {[0 ... BIG - 1] = 0xee};

/* ---- the clock ---- */

static atomic_int checks_left = FOR_EVER; /* clock checks left before the lease is over */
static atomic_int clock_checks;

int __real_clock_gettime(clockid_t clock, struct timespec *ts);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ts);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ts)
{
	if (clock != CLOCK_BOOTTIME)
		return __real_clock_gettime(clock, ts);
	atomic_fetch_add(&clock_checks, 1);
	*ts = (struct timespec){.tv_sec = atomic_fetch_sub(&checks_left, 1) > 0 ? 0 : 1};
	return 0;
}

static void let_lapse_after(int n)
{
	atomic_store(&clock_checks, 0);
	atomic_store(&checks_left, n);
}

/* ---- a peer, and a region advertised to it ---- */

static struct region *open_leased(struct scene *s, void **state, size_t len)
{
	struct scene_wish w = {.peer.extensions = true};
	struct region *r;

	*s = (struct scene){.others = *state};
	scene_open(s, &w);
	post_receive(&s->us, own_region(&s->us, 64), 0, 64);
	r = lend_region(&s->us, len, ALL_ACCESS);
	assert_int_equal(stagdv_set_mr_lease(r->mr, LEASE), 0);
	let_lapse_after(FOR_EVER);
	return r;
}

static uint64_t addr(const struct region *r)
{
	return (uintptr_t)r->at;
}

static uint64_t refusals(struct side *s)
{
	struct stagdv_counters c;

	assert_int_equal(stagdv_query_qp_counters(s->qp, &c, sizeof(c)), 0);
	return c.lease_refusals;
}

/*
 * Expects a refusal for a lapsed lease: at_once by the receiver, else when the response was about
 * to be sent.
 */
static void expect_lapsed(struct scene *s, bool at_once)
{
	expect_refused(s, FAULT_RDMAP_ACCESS,
		       at_once ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_FATAL);
	assert_int_equal(refusals(&s->us), 1);
	scene_close(s);
}

static void end_well(struct scene *s)
{
	assert_int_equal(refusals(&s->us), 0);
	raw_finish(&s->peer);
	expect_closed(s);
	scene_close(s);
}

/* ---- reads ---- */

static void post_peer_read(struct scene *s, const struct region *r, size_t len)
{
	struct rdmap_read_req q = {.sink_stag = SINK_STAG,
				   .sink_to = SINK_TO,
				   .size = (uint32_t)len,
				   .src_stag = r->mr->rkey,
				   .src_to = addr(r)};

	raw_read(&s->peer, &q);
}

static void expect_read_response(struct scene *s, const struct region *r, size_t len)
{
	struct raw_fpdu *f = malloc(sizeof(*f));
	size_t off = 0;

	do {
		raw_take(&s->peer, f);
		assert_int_equal(f->h.opcode, RDMAP_READ_RESP);
		assert_in_range(off + f->len, 0, len);
		assert_memory_equal(f->payload, r->at + off, f->len);
		off += f->len;
	} while (!f->h.last);
	assert_int_equal(off, len);
	free(f);
}

/*
 * A read of one segment checks the clock at its arrival, before the copy, and after the copy;
 * after the third check it is not refused any more.
 */
static void read_is_refused_at_each_clock_check(void **state)
{
	const size_t sizes[] = {64, 40000}; /* copied into the batch, and sent beside it */

	for (int i = 0; i < 2; i++) {
		for (int n = 0; n <= 3; n++) {
			struct scene s;
			struct region *r = open_leased(&s, state, BIG);

			fill(r->at, BIG, 3);
			let_lapse_after(n);
			post_peer_read(&s, r, sizes[i]);
			if (n < 3) {
				expect_lapsed(&s, n == 0);
				continue;
			}
			expect_read_response(&s, r, sizes[i]);
			assert_int_equal(atomic_load(&clock_checks), 3);
			end_well(&s);
		}
	}
}

/* A long response of which some segments were sent: the peer never gets all of it. */
static void long_read_response_stops_when_the_lease_ends(void **state)
{
	const size_t much = 4u << 20;
	struct scene s;
	struct region *r = open_leased(&s, state, much);

	let_lapse_after(20);
	post_peer_read(&s, r, much);
	expect_hangup_at_last(&s.peer);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	assert_int_equal(refusals(&s.us), 1);
	scene_close(&s);
}

/* If the lease expires before the response can be sent, the bytes sent were copied within it. */
static void delayed_read_response_has_bytes_copied_within_the_lease(void **state)
{
	const size_t much = 32u << 20;
	struct scene s;
	struct region *r = open_leased(&s, state, much);
	struct raw_fpdu *f = malloc(sizeof(*f));
	struct stagdv_counters c = {0};
	size_t came = 0;

	memset(r->at, 0x11, much);
	post_peer_read(&s, r, much);
	await(!stagdv_query_qp_counters(s.us.qp, &c, sizeof(c)) && c.tx_bytes > 65536);
	let_lapse_after(0);
	memset(r->at, 0x22, much); /* a successor's value, or a half-finished copy */
	for (ssize_t n; (n = recv(s.peer.fd, f->payload, sizeof(f->payload), 0)) > 0;
	     came += (size_t)n)
		assert_null(memmem(f->payload, (size_t)n, "\x22\x22\x22\x22\x22\x22\x22\x22", 8));
	assert_in_range(came, 1, much - 1);
	expect_broken(&s, IBV_EVENT_QP_FATAL);
	free(f);
	scene_close(&s);
}

/* ---- writes ---- */

/*
 * Nothing is touched before the first check has passed; and nothing is delivered behind a write
 * that was placed too late.
 */
static void write_is_refused_at_each_clock_check(void **state)
{
	for (int n = 0; n <= 3; n++) {
		struct scene s;
		struct region *r = open_leased(&s, state, LEN);

		let_lapse_after(n);
		raw_write(&s.peer, r->mr->rkey, addr(r), junk, 64);
		if (n < 3) {
			expect_terminate(&s.peer, FAULT_RDMAP_ACCESS);
			expect_broken(&s, IBV_EVENT_QP_ACCESS_ERR);
			if (n < 2)
				expect_zeroes(r->at, LEN);
			assert_int_equal(refusals(&s.us), 1);
			scene_close(&s);
			continue;
		}
		raw_send(&s.peer, junk, 1);
		expect_received(&s.us, 1);
		assert_memory_equal(r->at, junk, 64);
		assert_int_equal(atomic_load(&clock_checks), 3);
		end_well(&s);
	}
}

static void large_write_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_leased(&s, state, BIG);

	let_lapse_after(0);
	raw_write(&s.peer, r->mr->rkey, addr(r), junk, BIG);
	expect_refused(&s, FAULT_RDMAP_ACCESS, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, BIG);
	scene_close(&s);
}

static void write_through_a_window_is_refused(void **state)
{
	struct scene s;
	struct region *r = open_leased(&s, state, LEN);
	struct ibv_mw *mw = ibv_alloc_mw(s.us.pd, IBV_MW_TYPE_1);
	struct ibv_mw_bind bind = {.wr_id = note_posted(&s.us, false),
				   .send_flags = IBV_SEND_SIGNALED,
				   .bind_info = {.mr = r->mr,
						 .addr = addr(r),
						 .length = r->len,
						 .mw_access_flags = ALL_REMOTE}};

	assert_non_null(mw);
	assert_int_equal(ibv_bind_mw(s.us.qp, mw, &bind), 0);
	expect_sent(&s.us, bind.wr_id);
	let_lapse_after(0);
	raw_write(&s.peer, mw->rkey, addr(r), junk, 64);
	expect_refused(&s, FAULT_RDMAP_ACCESS, IBV_EVENT_QP_ACCESS_ERR);
	expect_zeroes(r->at, LEN);
	assert_int_equal(ibv_dealloc_mw(mw), 0);
	scene_close(&s);
}

/* ---- atomics ---- */

/*
 * An atomic that was carried out too late is not acknowledged, nor carried out again when the
 * lease is extended.
 */
static void atomic_is_refused_at_each_clock_check(void **state)
{
	for (int n = 0; n <= 3; n++) {
		struct scene s;
		struct region *r = open_leased(&s, state, LEN);
		struct rdmap_atomic_req q = {.op = RDMAP_FETCH_ADD,
					     .id = 1,
					     .stag = r->mr->rkey,
					     .to = addr(r),
					     .data = 1,
					     .compare_mask = UINT64_MAX};
		struct raw_fpdu *f = malloc(sizeof(*f));
		struct terminate t;
		uint64_t value;

		let_lapse_after(n);
		raw_atomic(&s.peer, &q);
		if (n < 3) {
			raw_take_terminate(&s.peer, &t);
			assert_string_equal(wire_fault_str(t.fault),
					    wire_fault_str(FAULT_RDMAP_ACCESS));
			expect_broken(&s, n ? IBV_EVENT_QP_FATAL : IBV_EVENT_QP_ACCESS_ERR);
		} else {
			raw_take(&s.peer, f);
			assert_int_equal(f->h.opcode, RDMAP_ATOMIC_RESP);
		}
		memcpy(&value, r->at, sizeof(value));
		assert_int_equal(value, n >= 2);
		free(f);
		if (n < 3)
			scene_close(&s);
		else
			end_well(&s);
	}
}

/* ---- accesses and regions without a lease ---- */

static void local_accesses_need_no_lease(void **state)
{
	struct scene s;
	struct region *r = open_leased(&s, state, LEN);
	struct raw_fpdu *f = malloc(sizeof(*f));
	uint64_t id;

	let_lapse_after(0);
	fill(r->at, LEN, 5);
	id = post_send(&s.us, r, 0, LEN);
	raw_take(&s.peer, f);
	assert_memory_equal(f->payload, r->at, LEN);
	expect_sent(&s.us, id);
	raw_send(&s.peer, junk, 1);
	expect_received(&s.us, 1);
	id = post_receive(&s.us, r, 0, LEN);
	raw_send(&s.peer, junk, 64);
	expect_received(&s.us, id);
	assert_memory_equal(r->at, junk, 64);
	assert_int_equal(atomic_load(&clock_checks), 0);
	free(f);
	end_well(&s);
}

static void extended_lease_keeps_the_region_open(void **state)
{
	struct scene s;
	struct region *r = open_leased(&s, state, LEN);

	let_lapse_after(0);
	assert_int_equal(stagdv_set_mr_lease(r->mr, 2 * LEASE), 0);
	post_peer_read(&s, r, 64);
	expect_read_response(&s, r, 64);
	assert_int_equal(stagdv_set_mr_lease(r->mr, 0), 0);
	post_peer_read(&s, r, 64);
	expect_read_response(&s, r, 64);
	assert_int_equal(stagdv_set_mr_lease(r->mr, 1), 0);
	post_peer_read(&s, r, 64);
	expect_lapsed(&s, true);
}

static void some_regions_cannot_be_leased(void **state)
{
	struct pair *p = *state;
	struct ibv_mr *fast = stagdv_alloc_fast_mr(p->a.pd, 1);

	assert_non_null(fast);
	assert_int_equal(stagdv_set_mr_lease(fast, LEASE), EINVAL);
	assert_int_equal(ibv_dereg_mr(fast), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(read_is_refused_at_each_clock_check),
		cmocka_unit_test(long_read_response_stops_when_the_lease_ends),
		cmocka_unit_test(delayed_read_response_has_bytes_copied_within_the_lease),
		cmocka_unit_test(write_is_refused_at_each_clock_check),
		cmocka_unit_test(large_write_is_refused),
		cmocka_unit_test(write_through_a_window_is_refused),
		cmocka_unit_test(atomic_is_refused_at_each_clock_check),
		cmocka_unit_test(local_accesses_need_no_lease),
		cmocka_unit_test(extended_lease_keeps_the_region_open),
		cmocka_unit_test(some_regions_cannot_be_leased),
	};

	return cmocka_run_group_tests_name("leases", tests, others_open, others_close);
}
