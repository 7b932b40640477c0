// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_role.c - who is primary: worlds full of trouble, in which nothing that was answered may be lost, and nothing
 * old be read.
 *
 * As `test_pool_role caught` it is about a build with a fault: it has to be found. STAG_WORLD=seed runs one world, which
 * STAG_LOG=debug tells.
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

#define DRIFT 100000 /* ten per cent: more than any clock, so that a missing margin is seen */

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

/* Runs worlds until one goes wrong: what went wrong, or NULL. */
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

static void nothing_answered_is_lost_and_nothing_old_is_read(void **state)
{
	struct world_sum sum = {0};
	const char *fault = many_worlds(scaled(150), FAULT_ALL, &sum);

	printf("%llu steps, %llu answered, %llu reads, %llu refused, %llu primaries, %llu crashes, "
	       "%llu handed over, %llu "
	       "dropped\n",
	       (unsigned long long)sum.steps, (unsigned long long)sum.answered,
	       (unsigned long long)sum.reads, (unsigned long long)sum.refused_reads,
	       (unsigned long long)sum.epochs, (unsigned long long)sum.crashes,
	       (unsigned long long)sum.handed, (unsigned long long)sum.dropped);
	assert_null(fault);
}

/* An assertion finds it, too. */
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
		cmocka_unit_test(nothing_answered_is_lost_and_nothing_old_is_read),
	};

	if (getenv("STAG_WORLD"))
		return one_world(strtoull(getenv("STAG_WORLD"), NULL, 0), FAULT_ALL,
				 &(struct world_sum){0}) != NULL;
	dice_start();
	if (argc > 1 && strcmp(argv[1], "caught") == 0)
		return find_the_fault();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
