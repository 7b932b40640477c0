// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_huge.c - one request of 5 GiB, read and written, in one buffer and one element.
 *
 * The memory at each end is 64 MiB, mapped repeatedly into a range of 5 GiB. The posted work
 * requests must cover both ranges in order, without a gap or overlap.
 */
#include "dice.h"
#include "spy.h"
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHEET (64ull << 20)

/* Maps a range of len bytes that repeats the same 64 MiB. */
static uint8_t *map_sheets(uint64_t len)
{
	int fd = memfd_create("sheet", MFD_CLOEXEC);
	uint8_t *at =
		mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, SHEET), 0);
	assert_ptr_not_equal(at, MAP_FAILED);
	for (uint64_t off = 0; off < len; off += SHEET)
		assert_ptr_equal(mmap(at + off, SHEET, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_FIXED, fd, 0),
				 at + off);
	close(fd);
	return at;
}

struct walk {
	uint64_t near, far; /* where the next descriptor must begin */
};

static void check_next_descriptor(struct spy *spy, const struct spy_wr *wr)
{
	struct walk *w = spy->context;

	if (spy_is_confirm(wr))
		return;
	assert_int_equal(wr->num_sge, 1);
	assert_int_equal(wr->sge[0].addr, w->near);
	assert_int_equal(wr->remote_addr, w->far);
	w->near += wr->length;
	w->far += wr->length;
}

static struct region lay_out(struct ibv_pd *pd, uint64_t len, int access)
{
	struct region r = {.at = map_sheets(len), .len = len};

	r.mr = ibv_reg_mr(pd, r.at, len, access);
	assert_non_null(r.mr);
	return r;
}

static void unmap_regions(struct region *r)
{
	assert_int_equal(ibv_dereg_mr(r->mr), 0);
	munmap(r->at, r->len);
}

static void move_huge(struct desk *d, enum stag_xfer_op op, struct region *near, struct region *far)
{
	struct walk walk = {.near = (uintptr_t)near->at, .far = (uintptr_t)far->at};
	struct spy spy = {.posted = check_next_descriptor, .context = &walk};
	struct work w;

	dice_fill(near->at, SHEET);
	dice_fill(far->at, SHEET);
	work_init(&w, op, near, 0, far, 0, near->len);
	spy_start(&spy, &d->pair);
	submit(d, &w);
	while (!w.returned) { /* the time limit restarts whenever bytes are moved */
		uint64_t done = w.req.bytes_done;

		await(poll_one(d) || w.req.bytes_done != done);
	}
	spy_stop(&spy);
	assert_int_equal(w.req.error, 0);
	assert_int_equal(w.req.bytes_done, near->len);
	assert_int_equal(w.req.transfers_done, near->len >> 20);
	assert_int_equal(walk.near, (uintptr_t)near->at + near->len);
	assert_memory_equal(near->at, far->at, SHEET);
}

static void five_gib_move_in_one_request(void **state)
{
	const uint64_t len = (lessened(5ull << 30) + SHEET - 1) / SHEET * SHEET;
	int sink = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct pair_wish wish = {.send_wr = 256};
	struct region near, far;
	struct desk d;

	if (is_slow_build())
		skip();
	desk_open(&d, &wish, NULL, 1);
	near = lay_out(d.pair.near_pd, len, sink);
	far = lay_out(d.pair.far_pd, len, sink | IBV_ACCESS_REMOTE_READ);
	move_huge(&d, STAG_XFER_WRITE, &near, &far);
	move_huge(&d, STAG_XFER_READ, &near, &far);
	unmap_regions(&near);
	unmap_regions(&far);
	desk_close(&d);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(five_gib_move_in_one_request),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
