// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_histogram.c - times are counted in the right bucket, quantiles are close, and concurrent
 * threads lose no count.
 */
#include "base/histogram.h"
#include "base/sample.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* Each bucket ends where the next begins, and includes its own end, as Prometheus' le does. */
static void buckets_are_adjacent(void **state)
{
	assert_int_equal(stag_histogram_upper(0), 256);
	assert_int_equal(stag_histogram_upper(STAG_HISTOGRAM_BUCKETS - 2), 1ull << 36);
	assert_int_equal(stag_histogram_upper(STAG_HISTOGRAM_BUCKETS - 1), INT64_MAX);
	assert_int_equal(stag_histogram_bucket(0), 0);
	for (unsigned int i = 0; i < STAG_HISTOGRAM_BUCKETS - 1; i++) {
		uint64_t end = stag_histogram_upper(i);

		assert_int_equal(stag_histogram_bucket(end), i);
		assert_int_equal(stag_histogram_bucket(end + 1), i + 1);
		assert_true(i == 0 || stag_histogram_upper(i - 1) < end);
	}
	assert_int_equal(stag_histogram_bucket(UINT64_MAX), STAG_HISTOGRAM_BUCKETS - 1);
}

/* No bucket but the first is wider than a quarter of its lower bound. */
static void buckets_are_at_most_a_quarter_wide(void **state)
{
	for (unsigned int i = 1; i < STAG_HISTOGRAM_BUCKETS - 1; i++) {
		uint64_t low = stag_histogram_upper(i - 1), high = stag_histogram_upper(i);

		assert_true((high - low) * 4 <= low);
	}
}

static void count_and_sum_are_those_of_the_times(void **state)
{
	static struct histogram h;
	struct stag_histogram s = {.count = 0};

	histogram_add(&h, 100);
	histogram_add(&h, 1000);
	histogram_add(&h, 200ull * 1000000000);
	histogram_sum(&h, &s);
	assert_int_equal(s.count, 3);
	assert_int_equal(s.sum_ns, 200ull * 1000000000 + 1100);
	assert_int_equal(s.max_ns, 200ull * 1000000000);
	assert_int_equal(s.bucket[0], 1);
	assert_int_equal(s.bucket[stag_histogram_bucket(1000)], 1);
	assert_int_equal(s.bucket[STAG_HISTOGRAM_BUCKETS - 1], 1);
	histogram_sum(&h, &s); /* summed twice: as of two histograms */
	assert_int_equal(s.count, 6);
	assert_int_equal(s.bucket[0], 2);
}

/* A plain histogram counts the same; and two of them can be added. */
static void plain_histograms_count_the_same_and_add_up(void **state)
{
	static struct histogram h;
	struct stag_histogram a = {.count = 0}, b = {.count = 0}, c = {.count = 0};

	for (uint64_t ns = 1; ns < 1ull << 40; ns = ns * 3 + 1) {
		histogram_add(&h, ns);
		histogram_count(ns & 1 ? &a : &b, ns);
	}
	histogram_sum(&h, &c);
	stag_histogram_add(&a, &b);
	assert_memory_equal(&a, &c, sizeof(a));
}

/* All of the first events are sampled, then fewer, and never with a constant gap. */
static void sampling_gaps_vary(void **state)
{
	struct sample s = {.next = 0};
	uint64_t taken = 0, last = 0, gaps = 0;

	for (uint64_t seen = 0; seen < 64 + 16000; seen++) {
		if (!sample_is_due(&s, seen))
			continue;
		sample_take(&s, seen);
		taken++;
		gaps |= 1ull << (seen - last < 63 ? seen - last : 63);
		last = seen;
		assert_true(seen > 64 || taken == seen + 1);
	}
	assert_true(taken > 64 + 16000 / 24 && taken < 64 + 16000 / 8);
	assert_true(__builtin_popcountll(gaps) > 8);
}

static void quantiles_are_close_to_exact(void **state)
{
	static struct histogram h;
	struct stag_histogram s = {.count = 0};

	assert_true(stag_histogram_quantile(&s, 0.5) == 0);
	for (uint64_t us = 1; us <= 1000; us++)
		histogram_add(&h, us * 1000);
	histogram_sum(&h, &s);
	for (double q = 0.01; q < 1; q += 0.01) {
		double right = q * 1e6, got = stag_histogram_quantile(&s, q);

		assert_true(got > right * 0.8 && got < right * 1.25);
	}
	assert_true(stag_histogram_quantile(&s, 1) == 1e6);
	assert_true(stag_histogram_quantile(&s, 0) < 1.3e3);
}

/* With one time alone, every quantile is at most that time, and in its bucket. */
static void one_time_is_every_quantile(void **state)
{
	static struct histogram h;
	struct stag_histogram s = {.count = 0};

	histogram_add(&h, 70ull * 1000000000); /* beyond the last bucket's end */
	histogram_sum(&h, &s);
	assert_true(stag_histogram_quantile(&s, 1) == 70e9);
	assert_true(stag_histogram_quantile(&s, 0.5) >= (double)(1ull << 36));
	assert_true(stag_histogram_quantile(&s, 0.5) <= 70e9);
}

#define THREADS	   4
#define PER_THREAD 20000

static struct histogram shared;

static void *add_many(void *arg)
{
	uint64_t n = *(uint64_t *)arg;

	for (uint64_t i = 0; i < PER_THREAD; i++)
		histogram_add(&shared, n * PER_THREAD + i);
	return NULL;
}

static void concurrent_threads_lose_no_count(void **state)
{
	struct stag_histogram s = {.count = 0};
	pthread_t thread[THREADS];
	uint64_t number[THREADS], total = THREADS * PER_THREAD;

	for (uint64_t i = 0; i < THREADS; i++) {
		number[i] = i;
		assert_int_equal(pthread_create(&thread[i], NULL, add_many, &number[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	histogram_sum(&shared, &s);
	assert_int_equal(s.count, total);
	assert_int_equal(s.max_ns, total - 1);
	assert_int_equal(s.sum_ns, total * (total - 1) / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_are_adjacent),
		cmocka_unit_test(buckets_are_at_most_a_quarter_wide),
		cmocka_unit_test(count_and_sum_are_those_of_the_times),
		cmocka_unit_test(plain_histograms_count_the_same_and_add_up),
		cmocka_unit_test(sampling_gaps_vary),
		cmocka_unit_test(quantiles_are_close_to_exact),
		cmocka_unit_test(one_time_is_every_quantile),
		cmocka_unit_test(concurrent_threads_lose_no_count),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
