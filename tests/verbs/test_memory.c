// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_memory.c - registering memory, and refusing memory that the kernel would refuse to pin.
 */
#include "pair.h"

#include <stdlib.h>
#include <sys/mman.h>

struct domain {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
};

static uint8_t memory[8192];

static int open_domain(void **state)
{
	struct domain *d = calloc(1, sizeof(*d));

	d->ctx = open_stag();
	d->pd = ibv_alloc_pd(d->ctx);
	*state = d;
	return d->pd ? 0 : -1;
}

static int close_domain(void **state)
{
	struct domain *d = *state;

	assert_int_equal(ibv_dealloc_pd(d->pd), 0);
	assert_int_equal(ibv_close_device(d->ctx), 0);
	free(d);
	return 0;
}

static void expect_refused(struct domain *d, void *addr, size_t len, unsigned access, int err)
{
	errno = 0;
	assert_null(ibv_reg_mr(d->pd, addr, len, access));
	assert_int_equal(errno, err);
}

static void region_reports_its_address_and_length(void **state)
{
	struct domain *d = *state;
	struct ibv_mr *mr = ibv_reg_mr(d->pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);

	assert_non_null(mr);
	assert_ptr_equal(mr->context, d->ctx);
	assert_ptr_equal(mr->pd, d->pd);
	assert_ptr_equal(mr->addr, memory);
	assert_int_equal(mr->length, sizeof(memory));
	assert_int_equal(ibv_dealloc_pd(d->pd), EBUSY);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* perftest always passes IBV_ACCESS_RELAXED_ORDERING: optional flags may be ignored. */
static void optional_access_flags_are_ignored(void **state)
{
	struct domain *d = *state;
	struct ibv_mr *mr = ibv_reg_mr(d->pd, memory, sizeof(memory),
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_OPTIONAL_RANGE);

	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void remote_write_needs_local_write(void **state)
{
	expect_refused(*state, memory, sizeof(memory), IBV_ACCESS_REMOTE_WRITE, EINVAL);
	expect_refused(*state, memory, sizeof(memory), IBV_ACCESS_REMOTE_ATOMIC, EINVAL);
}

static void unknown_access_flags_are_refused(void **state)
{
	expect_refused(*state, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | 1 << 10, EINVAL);
}

static void unmapped_memory_is_refused(void **state)
{
	uint8_t *hole =
		mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(hole, MAP_FAILED);
	assert_int_equal(munmap(hole + 4096, 4096), 0);
	expect_refused(*state, hole, 3 * 4096, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	expect_refused(*state, hole + 4096 + 8, 8, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	expect_refused(*state, hole + 4095, 2, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	munmap(hole, 3 * 4096);
}

/* Read-only memory can be registered for reading only. */
static void read_only_memory_is_refused_for_writing(void **state)
{
	struct domain *d = *state;
	void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr;

	assert_ptr_not_equal(page, MAP_FAILED);
	expect_refused(d, page, 4096, IBV_ACCESS_LOCAL_WRITE, EFAULT);
	mr = ibv_reg_mr(d->pd, page, 4096, IBV_ACCESS_REMOTE_READ);
	assert_non_null(mr);
	assert_int_equal(ibv_dereg_mr(mr), 0);
	munmap(page, 4096);
}

static void range_that_wraps_is_refused(void **state)
{
	expect_refused(*state, memory, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE, EINVAL);
}

static void a_key_is_not_used_again_at_once(void **state)
{
	struct domain *d = *state;
	struct ibv_mr *mr = ibv_reg_mr(d->pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
	uint32_t key = mr->rkey;

	assert_int_equal(ibv_dereg_mr(mr), 0);
	mr = ibv_reg_mr(d->pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
	assert_int_not_equal(mr->rkey, key);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static int compare_keys(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* An old key is not issued again, however many regions are registered later. */
static void a_key_is_not_used_again_for_long(void **state)
{
	enum { N = 40000 };
	struct domain *d = *state;
	uint32_t *keys = calloc(N, sizeof(*keys));

	for (unsigned i = 0; i < N; i++) {
		struct ibv_mr *mr = ibv_reg_mr(d->pd, memory, 4096, 0);

		keys[i] = mr->rkey;
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	qsort(keys, N, sizeof(*keys), compare_keys);
	for (unsigned i = 1; i < N; i++)
		assert_int_not_equal(keys[i], keys[i - 1]);
	free(keys);
}

static void re_registration_moves_a_region(void **state)
{
	struct domain *d = *state;
	struct ibv_mr *mr = ibv_reg_mr(d->pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);

	assert_int_equal(
		ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, memory + 4096, 1024, 0), 0);
	assert_ptr_equal(mr->addr, memory + 4096);
	assert_int_equal(mr->length, 1024);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

/* ibv_rereg_mr() does not return errno values: negative results, with errno set. */
static void failed_re_registration_keeps_the_region(void **state)
{
	struct domain *d = *state;
	struct ibv_mr *mr = ibv_reg_mr(d->pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);

	errno = 0;
	assert_int_equal(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(ibv_rereg_mr(mr, 1 << 5, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
				      IBV_ACCESS_REMOTE_WRITE),
			 IBV_REREG_MR_ERR_INPUT);
	assert_ptr_equal(mr->addr, memory);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

static void both_window_types_are_allocated(void **state)
{
	struct domain *d = *state;

	for (enum ibv_mw_type type = IBV_MW_TYPE_1; type <= IBV_MW_TYPE_2; type++) {
		struct ibv_mw *mw = ibv_alloc_mw(d->pd, type);

		assert_non_null(mw);
		assert_int_equal(mw->type, type);
		assert_ptr_equal(mw->pd, d->pd);
		assert_int_equal(ibv_dealloc_mw(mw), 0);
	}
	errno = 0;
	assert_null(ibv_alloc_mw(d->pd, 3));
	assert_int_equal(errno, EINVAL);
}

static void advise_mr_needs_regions_of_its_domain(void **state)
{
	struct domain *d = *state;
	struct ibv_mr *mr = ibv_reg_mr(d->pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = 4096, .lkey = mr->lkey};

	assert_int_equal(ibv_advise_mr(d->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), 0);
	sge.length = 4097;
	assert_int_equal(ibv_advise_mr(d->pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1), ENOENT);
	assert_int_equal(ibv_advise_mr(d->pd, 99, 0, &sge, 1), EOPNOTSUPP);
	assert_int_equal(ibv_dereg_mr(mr), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(region_reports_its_address_and_length),
		cmocka_unit_test(optional_access_flags_are_ignored),
		cmocka_unit_test(remote_write_needs_local_write),
		cmocka_unit_test(unknown_access_flags_are_refused),
		cmocka_unit_test(unmapped_memory_is_refused),
		cmocka_unit_test(read_only_memory_is_refused_for_writing),
		cmocka_unit_test(range_that_wraps_is_refused),
		cmocka_unit_test(a_key_is_not_used_again_at_once),
		cmocka_unit_test(a_key_is_not_used_again_for_long),
		cmocka_unit_test(re_registration_moves_a_region),
		cmocka_unit_test(failed_re_registration_keeps_the_region),
		cmocka_unit_test(both_window_types_are_allocated),
		cmocka_unit_test(advise_mr_needs_regions_of_its_domain),
	};

	return cmocka_run_group_tests(tests, open_domain, close_domain);
}
