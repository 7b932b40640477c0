// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_role.c - failover in simulated pools (world.h) under random faults: no acknowledged record may be lost,
 * and no superseded value be read.
 *
 * `test_pool_role caught` is for a build with a deliberate fault: it succeeds if a violation or an assertion
 * shows it. STAG_WORLD=seed runs the world of that seed alone; STAG_LOG=debug traces it.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "dice.h"
#include "world.h"

#define DRIFT                                                                                      \
	100000 /* parts per million: far more than a real clock's, so that a missing margin shows */

static struct role_times quick_times(void)
{
	struct role_times t = role_defaults;

	t.lease.drift = DRIFT;
	t.lease.promote = one_in(2) ? t.lease.lease : t.lease.promote;
	t.link = 60 * NS_PER_MS;
	return t;
}

static struct world_setup a_setup(unsigned int faults)
{
	return (struct world_setup){
		.nodes = 2 + (unsigned int)dice(3),
		.faults = faults,
		.trouble = (50 + dice(1500)) * NS_PER_MS,
		.between = (1 + dice(16)) * NS_PER_MS,
		.times = quick_times(),
		.drift = DRIFT,
	};
}

static const char *one_world(uint64_t seed, unsigned int faults, struct world_sum *sum)
{
	struct world_setup setup;

	dice_start_with(seed);
	setup = a_setup(faults);
	return world_run(&setup, sum);
}

/* Runs worlds until one reports a violation. Returns that violation, or NULL. */
static const char *many_worlds(unsigned long count, unsigned int faults, struct world_sum *sum)
{
	for (unsigned long i = 0; i < count; i++) {
		uint64_t seed = dice(UINT64_MAX);
		struct world_setup setup;
		const char *fault;

		dice_start_with(seed);
		setup = a_setup(faults);
		fault = world_run(&setup, sum);
		if (fault) {
			printf("world %lu, STAG_WORLD=%#llx: %s\n", i, (unsigned long long)seed,
			       fault);
			return fault;
		}
		dice_start_with(seed + 1);
	}
	return NULL;
}

static void acknowledged_records_survive_and_reads_are_not_stale(void **state)
{
	struct world_sum sum = {0};
	const char *fault = many_worlds(scaled(150), FAULT_ALL, &sum);

	printf("%llu steps, %llu acknowledged, %llu reads, %llu refused, %llu primaries, %llu "
	       "crashes, "
	       "%llu switchovers, %llu links cut\n",
	       (unsigned long long)sum.steps, (unsigned long long)sum.acknowledged,
	       (unsigned long long)sum.reads, (unsigned long long)sum.refused_reads,
	       (unsigned long long)sum.epochs, (unsigned long long)sum.crashes,
	       (unsigned long long)sum.handed, (unsigned long long)sum.dropped);
	assert_null(fault);
}

/* A failed assertion of src/pool/role has found the fault, too. */
static void on_abort(int signal)
{
	_exit(0);
}

static int find_the_fault(void)
{
	struct world_sum sum = {0};

	signal(SIGABRT, on_abort);
	return many_worlds(5000, FAULT_ALL, &sum) ? 0 : 1;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(acknowledged_records_survive_and_reads_are_not_stale),
	};

	if (getenv("STAG_WORLD"))
		return one_world(strtoull(getenv("STAG_WORLD"), NULL, 0), FAULT_ALL,
				 &(struct world_sum){0}) != NULL;
	dice_start();
	if (argc > 1 && strcmp(argv[1], "caught") == 0)
		return find_the_fault();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
