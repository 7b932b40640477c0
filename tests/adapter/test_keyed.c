// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_keyed.c - regions under a key that the program chose.
 */
#include "raw_peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <stag/stagdv.h>

#define LEN    4096
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static uint32_t choose(struct side *s)
{
	uint32_t key = 0;

	assert_int_equal(stagdv_choose_key(s->ctx, &key), 0);
	return key;
}

/* Registers the memory of r under this key. */
static void rename_region(struct side *s, struct region *r, uint32_t key)
{
	assert_int_equal(ibv_dereg_mr(r->mr), 0);
	r->mr = stagdv_reg_mr_keyed(s->pd, r->at, r->len, ACCESS, key);
	assert_non_null(r->mr);
	assert_int_equal(r->mr->rkey, key);
	assert_int_equal(r->mr->lkey, key);
}

static void write_and_check(struct pair *p, struct region *to, unsigned seed)
{
	struct region *from = own_region(&p->a, LEN), *back = own_region(&p->a, LEN);

	fill(from->at, LEN, seed);
	expect_sent(&p->a, post_write(&p->a, from, 0, LEN, to, 0));
	expect_sent(&p->a, post_read(&p->a, back, 0, LEN, to, 0));
	expect_filled(back->at, LEN, seed);
	expect_filled(to->at, LEN, seed);
	drop_region(&p->a, from);
	drop_region(&p->a, back);
}

static void region_is_known_by_its_chosen_key(void **state)
{
	struct pair *p = *state;
	struct region *r = lend_region(&p->b, LEN, ACCESS);

	rename_region(&p->b, r, choose(&p->b));
	write_and_check(p, r, 1);
	drop_region(&p->b, r);
}

/* A node that returns registers other memory under the same key. */
static void same_key_can_be_chosen_again(void **state)
{
	struct pair *p = *state;
	struct region *first = lend_region(&p->b, LEN, ACCESS), *second;
	uint32_t key = choose(&p->b);

	rename_region(&p->b, first, key);
	write_and_check(p, first, 2);
	drop_region(&p->b, first);
	second = lend_region(&p->b, LEN, ACCESS);
	rename_region(&p->b, second, key);
	write_and_check(p, second, 3);
	drop_region(&p->b, second);
}

/*
 * A response without a CRC that waits for room in its stream points to memory. If that memory was
 * deregistered and the key names other memory, no byte of the old memory is sent.
 */
static void read_response_in_flight_ends_when_its_key_is_reused(void **state)
{
	const size_t much = 32u << 20;
	const struct scene_wish w = {.peer.extensions = true};
	struct scene s = {.others = *state};
	struct rdmap_read_req q = {.sink_stag = 0x100, .size = (uint32_t)much};
	struct stagdv_counters c = {0};
	struct region *first, *second;
	uint8_t *bytes = malloc(1 << 16);

	scene_open(&s, &w);
	first = lend_region(&s.us, much, ACCESS);
	second = lend_region(&s.us, much, ACCESS);
	q.src_stag = choose(&s.us);
	q.src_to = (uintptr_t)first->at;
	rename_region(&s.us, first, q.src_stag);
	raw_read(&s.peer, &q);
	await(!stagdv_query_qp_counters(s.us.qp, &c, sizeof(c)) && c.tx_bytes > 65536);
	assert_int_equal(ibv_dereg_mr(first->mr), 0);
	first->mr = NULL;
	memset(first->at, 0x22, much);
	rename_region(&s.us, second, q.src_stag);
	for (ssize_t n; (n = recv(s.peer.fd, bytes, 1 << 16, 0)) > 0;)
		assert_null(memmem(bytes, (size_t)n, "\x22\x22\x22\x22\x22\x22\x22\x22", 8));
	free(bytes);
	ping(s.others);
	scene_close(&s);
}

static void index_in_use_is_refused(void **state)
{
	struct pair *p = *state;
	struct region *r = lend_region(&p->b, LEN, ACCESS);

	errno = 0;
	assert_null(stagdv_reg_mr_keyed(p->b.pd, r->at, LEN, ACCESS, r->mr->rkey));
	assert_int_equal(errno, EEXIST);
	assert_null(stagdv_reg_mr_keyed(p->b.pd, r->at, LEN, ACCESS, r->mr->rkey ^ 1));
	assert_int_equal(errno, EEXIST);
	drop_region(&p->b, r);
}

static void invalid_attributes_are_refused(void **state)
{
	struct pair *p = *state;
	struct region *r = own_region(&p->b, LEN);
	uint32_t key = choose(&p->b);

	assert_null(stagdv_reg_mr_keyed(p->b.pd, r->at, LEN, ACCESS, 0));
	assert_int_equal(errno, EINVAL);
	assert_null(stagdv_reg_mr_keyed(p->b.pd, r->at, LEN, ACCESS, 0xff));
	assert_int_equal(errno, EINVAL);
	assert_null(stagdv_reg_mr_keyed(p->b.pd, r->at, LEN, IBV_ACCESS_REMOTE_WRITE, key));
	assert_int_equal(errno, EINVAL);
	assert_null(stagdv_reg_mr_keyed(p->b.pd, (void *)64, LEN, ACCESS, key));
	assert_int_equal(errno, EFAULT);
	rename_region(&p->b, r, key); /* no region was left behind */
	drop_region(&p->b, r);
}

static int compare_numbers(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* The indexes use all 24 bits, and no two are equal. */
static void any_index_can_be_chosen(void **state)
{
	enum { N = 256 };
	struct pair *p = *state;
	struct region *r = own_region(&p->b, 64);
	struct ibv_mr *mr[N];
	uint32_t key[N], gap = 0;

	for (int i = 0; i < N; i++) {
		key[i] = choose(&p->b);
		mr[i] = stagdv_reg_mr_keyed(p->b.pd, r->at, 64, 0, key[i]);
		assert_non_null(mr[i]);
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(ibv_dereg_mr(mr[i]), 0);
	qsort(key, N, sizeof(*key), compare_numbers);
	for (int i = 1; i < N; i++) {
		assert_int_not_equal(key[i] >> 8, key[i - 1] >> 8);
		gap = key[i] - key[i - 1] > gap ? key[i] - key[i - 1] : gap;
	}
	assert_true(key[0] < 1u << 30 && key[N - 1] > 3u << 30 && gap < 1u << 30);
	drop_region(&p->b, r);
}

/* A slot that was chosen by index is used again, and its old key is not issued by chance. */
static void ordinary_regions_skip_chosen_indexes(void **state)
{
	enum { N = 2000 };
	struct pair *p = *state;
	struct region *r = own_region(&p->b, 64);
	uint32_t key = choose(&p->b), last = key;
	struct ibv_mr *named = stagdv_reg_mr_keyed(p->b.pd, r->at, 64, 0, key);

	assert_non_null(named);
	for (int i = 0; i < N; i++) {
		struct ibv_mr *mr = ibv_reg_mr(p->b.pd, r->at, 64, 0);

		assert_non_null(mr);
		assert_int_not_equal(mr->rkey >> 8, key >> 8);
		assert_int_not_equal(mr->rkey, last);
		last = mr->rkey;
		assert_int_equal(ibv_dereg_mr(mr), 0);
	}
	assert_int_equal(ibv_dereg_mr(named), 0);
	drop_region(&p->b, r);
}

static int connect_pair(void **state)
{
	static struct pair p;

	pair_open(&p, NULL, NULL);
	*state = &p;
	return 0;
}

static int close_pair(void **state)
{
	ping(*state);
	pair_close(*state);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(region_is_known_by_its_chosen_key),
		cmocka_unit_test(same_key_can_be_chosen_again),
		cmocka_unit_test(read_response_in_flight_ends_when_its_key_is_reused),
		cmocka_unit_test(index_in_use_is_refused),
		cmocka_unit_test(invalid_attributes_are_refused),
		cmocka_unit_test(any_index_can_be_chosen),
		cmocka_unit_test(ordinary_regions_skip_chosen_indexes),
	};

	return cmocka_run_group_tests_name("chosen keys", tests, connect_pair, close_pair);
}
