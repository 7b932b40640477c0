// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_history.c - series of a sample, computed from two snapshots.
 *
 * Every counter here rises by 100 a second, by the clock of its reader. So each rate must be 100, whenever it is sampled.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"
#include "history.h"

#define PER_S 100

/* Sets counters to their values this many ms after the start. */
static json_t *read_at(unsigned int ms)
{
	json_int_t n = (json_int_t)ms * PER_S / 1000;

	return json_pack("{s:I s:I s:I s:I s:I}", "reads", n, "writes", n, "tx_bytes", n,
			 "tx_payload", n, "number", n);
}

static json_t *at(json_t *o, unsigned int ms)
{
	json_object_set_new(o, "now_ns", json_integer((json_int_t)(ms * NS_PER_MS)));
	return o;
}

static json_t *pool(const char *name, unsigned int ms)
{
	json_t *o = json_pack("{s:s s:s}", "name", name, "role", "primary");

	json_object_update_new(o, read_at(ms));
	return at(o, ms);
}

static json_t *watch(unsigned int ms)
{
	json_t *o = json_pack("{s:s s:b}", "name", "far", "answers", 1);

	json_object_update_new(o, read_at(ms));
	return at(o, ms);
}

static json_t *store(unsigned int ms)
{
	return at(json_pack("{s:s s:o}", "name", "disk", "counters", read_at(ms)), ms);
}

static json_t *process(int pid, unsigned int ms)
{
	return at(json_pack("{s:i s:o}", "pid", pid, "counters", read_at(ms)), ms);
}

/* A daemon with a pool, one with a watch and a store, and the adapter of the first, each read at its own time. */
static struct snapshot look(unsigned int pool_ms, unsigned int watch_ms, unsigned int store_ms,
			    unsigned int live_ms)
{
	return (struct snapshot){
		.daemons = json_pack("[{s:i s:[o]} {s:i s:[o] s:[o]}]", "pid", 1, "pools",
				     pool("shop", pool_ms), "pid", 2, "watches", watch(watch_ms),
				     "stores", store(store_ms)),
		.lives = json_pack("[o]", process(1, live_ms)),
	};
}

static json_t *series_between(struct snapshot before, struct snapshot now)
{
	json_t *series = series_of(&now, &before);

	json_decref(before.daemons);
	json_decref(before.lives);
	json_decref(now.daemons);
	json_decref(now.lives);
	return series;
}

static void is_rate(const json_t *series, const char *name)
{
	assert_true(json_is_real(json_object_get(series, name)));
	assert_float_equal(json_real_value(json_object_get(series, name)), PER_S, 0.001);
}

static void all_are_right(json_t *series)
{
	is_rate(series, "pool/shop/changes_per_s");
	is_rate(series, "pool/shop/reads_per_s");
	is_rate(series, "pool/shop/read_bytes_per_s");
	is_rate(series, "pool/far/changes_per_s");
	is_rate(series, "store/disk/read_per_s");
	is_rate(series, "store/disk/write_per_s");
	is_rate(series, "adapter/tx_bytes_per_s");
	json_decref(series);
}

/* One process delays the first snapshot after the others were read, and does not delay the next one. */
static void a_slow_process_does_not_distort_the_rates_of_others(void **state)
{
	all_are_right(series_between(look(1000, 1000, 1000, 1000), look(2000, 2000, 2000, 2000)));
	all_are_right(series_between(look(1000, 1000, 1000, 1000), look(2000, 2500, 7000, 6000)));
	all_are_right(series_between(look(2000, 2500, 7000, 6000), look(7500, 7500, 7500, 7500)));
}

/* A watch polls in its own rhythm. If it has not polled again, the rate is unknown, not zero. */
static void an_object_without_a_new_reading_has_no_rate(void **state)
{
	json_t *series = series_between(look(1000, 1000, 1000, 1000), look(2000, 1000, 2000, 2000));

	is_rate(series, "pool/shop/changes_per_s");
	assert_null(json_object_get(series, "pool/far/changes_per_s"));
	json_decref(series);
}

static void the_first_snapshot_has_no_rates(void **state)
{
	struct snapshot before = {0}, now = look(1000, 1000, 1000, 1000);
	json_t *series = series_of(&now, &before);

	assert_null(json_object_get(series, "pool/shop/changes_per_s"));
	assert_null(json_object_get(series, "pool/shop/read_bytes_per_s"));
	assert_null(json_object_get(series, "store/disk/read_per_s"));
	assert_null(json_object_get(series, "adapter/tx_bytes_per_s"));
	assert_non_null(json_object_get(series, "adapter/processes"));
	json_decref(series);
	json_decref(now.daemons);
	json_decref(now.lives);
}

/* A process reports its own time, which may be anything. */
static void an_implausible_clock_gives_no_rate(void **state)
{
	static const char *const clocks[] = {"\"late\"", "1.5", "null", "-1", "0", "1000000000"};

	for (size_t i = 0; i < sizeof(clocks) / sizeof(clocks[0]); i++) {
		struct snapshot before = look(1000, 1000, 1000, 1000);
		struct snapshot now = look(2000, 2000, 2000, 2000);
		json_t *series;

		json_object_set_new(json_array_get(now.lives, 0), "now_ns",
				    json_loads(clocks[i], JSON_DECODE_ANY, NULL));
		series = series_between(before, now);
		assert_null(json_object_get(series, "adapter/tx_bytes_per_s"));
		json_decref(series);
	}
}

/* ---- the primary of a pool ---- */

/* A primary; `ms` and the time of its changes are those of its last reading. */
static json_t *primary(const char *uuid, int epoch, unsigned int ms, json_int_t upper_ns)
{
	json_t *o = pool("shop", ms);
	json_t *h = json_pack("{s:i s:i s:I s:[[I i]]}", "count", (int)ms, "sum_ns", 0, "max_ns",
			      upper_ns, "buckets", upper_ns, (int)ms);

	json_object_set_new(o, "uuid", json_string(uuid));
	json_object_set_new(o, "epoch", json_integer(epoch));
	json_object_set_new(o, "latency", json_pack("{s:o}", "change", h));
	return o;
}

#define FAST	    (NS_PER_MS)
#define SLOW	    (8 * NS_PER_S)
#define OTHER_SPEED 10 /* how many times faster the counters of the other primary rise */

/* Two daemons with a primary each, and a daemon that watches the first pool. */
static struct snapshot two(const char *uuid, int epoch, const char *other, int other_epoch,
			   unsigned int ms)
{
	json_t *watcher = json_pack("{s:i s:[{s:s s:s s:b s:i s:I}]}", "pid", 3, "watches", "name",
				    "shop", "uuid", uuid, "answers", 1, "lag", 0, "now_ns",
				    (json_int_t)(ms * NS_PER_MS));
	json_t *far = primary(other, other_epoch, OTHER_SPEED * ms, SLOW);

	at(far, ms);
	return (struct snapshot){
		.daemons =
			json_pack("[{s:i s:[o]} {s:i s:[o]} o]", "pid", 1, "pools",
				  primary(uuid, epoch, ms, FAST), "pid", 2, "pools", far, watcher),
		.lives = json_array(),
		.own = watcher,
	};
}

/* Removes the daemon of the first primary: it is on another machine. */
static struct snapshot without_the_first(struct snapshot s, int epoch)
{
	json_t *watch = json_array_get(json_object_get(s.own, "watches"), 0);

	json_object_set_new(watch, "epoch", json_integer(epoch));
	json_object_set_new(watch, "number", json_integer(0));
	json_array_remove(s.daemons, 0);
	return s;
}

static double value_of(const json_t *series, const char *name)
{
	assert_true(json_is_real(json_object_get(series, name)));
	return json_real_value(json_object_get(series, name));
}

static void only_the_first_is_sampled(json_t *series)
{
	is_rate(series, "pool/shop/changes_per_s");
	is_rate(series, "pool/shop/reads_per_s");
	assert_true(value_of(series, "pool/shop/change_p99_us") <= FAST / 1000.0);
	json_decref(series);
}

/* Two pools of one name on a machine: that of the daemon that samples counts. Its clients see none of the other's times. */
static void another_pool_of_the_same_name_is_not_mixed_in(void **state)
{
	only_the_first_is_sampled(
		series_between(two("one", 4, "two", 9, 1000), two("one", 4, "two", 9, 2000)));
}

/* A primary that was stopped, and continues, still reports that it is primary, and the time that it stood still. */
static void a_deposed_primary_is_not_sampled(void **state)
{
	only_the_first_is_sampled(
		series_between(two("one", 4, "one", 3, 1000), two("one", 4, "one", 3, 2000)));
}

/* The watch of the pool knows the epoch of a primary on another machine. */
static void a_primary_of_an_earlier_epoch_than_the_watch_knows_is_not_sampled(void **state)
{
	json_t *series = series_between(without_the_first(two("one", 4, "one", 3, 1000), 4),
					without_the_first(two("one", 4, "one", 3, 2000), 4));

	assert_null(json_object_get(series, "pool/shop/change_p99_us"));
	assert_float_equal(value_of(series, "pool/shop/changes_per_s"), 0, 0.001);
	json_decref(series);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slow_process_does_not_distort_the_rates_of_others),
		cmocka_unit_test(an_object_without_a_new_reading_has_no_rate),
		cmocka_unit_test(the_first_snapshot_has_no_rates),
		cmocka_unit_test(an_implausible_clock_gives_no_rate),
		cmocka_unit_test(another_pool_of_the_same_name_is_not_mixed_in),
		cmocka_unit_test(a_deposed_primary_is_not_sampled),
		cmocka_unit_test(a_primary_of_an_earlier_epoch_than_the_watch_knows_is_not_sampled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
