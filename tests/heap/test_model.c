// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_model.c - four processes use every call of the heap at random, and each keeps a list of the
 * objects that it should have.
 *
 * Every object is filled, and checked before it is freed, grown, handed on or lent. A map that all
 * processes share shows whether two objects overlap. Objects are handed to other processes and to
 * another thread, and freed there; some are lent over the adapter: the borrower reads them with the
 * key it was sent, checks the contents, and writes new ones. Blocks go back to the system all the
 * time: they are retained for some milliseconds only, and trimmed at random. In the end all objects
 * are freed, and nothing may be left.
 *
 * With STAG_LONG ten million steps for each process, else some ten thousand.
 */
#include "model.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define STEPS	   30000ul
#define STEPS_SLOW 62500ul /* under a sanitizer; lessened() makes it a 25th */
#define STEPS_LONG 10000000ul
#define ENOUGH	   100000ul /* steps of all processes after which each action must have happened */

struct story {
	char name[STAG_HEAP_NAME_MAX];
	struct stag_heap *heap;
	struct town *town;
	pid_t pid[WORKERS];
};

static uint64_t how_many_steps(void)
{
	return lessened(getenv("STAG_LONG") ? STEPS_LONG : is_slow_build() ? STEPS_SLOW : STEPS);
}

static pid_t start_worker(struct story *s, int number)
{
	char n[16], steps[32], seed[32];
	pid_t pid;

	snprintf(n, sizeof(n), "%d", number);
	snprintf(steps, sizeof(steps), "%llu", (unsigned long long)how_many_steps());
	snprintf(seed, sizeof(seed), "%llu", (unsigned long long)dice(UINT64_MAX));
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/proc/self/exe", "worker", "--worker", s->name, n, steps, seed, NULL);
		_exit(127);
	}
	assert_true(pid > 0);
	return pid;
}

static void story_open(struct story *s, uint64_t block_size)
{
	struct stag_heap_attr attr = {.block_size = block_size,
				      .max_blocks = (uint32_t)(AREA / block_size),
				      .retain_ms = RETAIN_MS,
				      .flags = STAG_HEAP_EXCLUSIVE};
	int fd = memfd_create("town", 0);

	assert_int_equal(dup2(fd, MODEL_FD), MODEL_FD);
	close(fd);
	s->town = town_map(MODEL_FD);
	assert_non_null(s->town);
	snprintf(s->name, sizeof(s->name), "test-model.%d", getpid());
	s->heap = stag_heap_create(s->name, &attr);
	if (!s->heap)
		fail_msg("%s", stag_heap_error());
	for (int i = 0; i < WORKERS; i++)
		s->pid[i] = start_worker(s, i);
}

static void expect_all_well(struct story *s, int options)
{
	for (int i = 0; i < WORKERS; i++) {
		int status;
		pid_t pid = s->pid[i] ? waitpid(s->pid[i], &status, options) : 0;

		if (pid == 0)
			continue;
		s->pid[i] = 0;
		if (pid > 0 && status == 0)
			continue;
		for (int k = 0; k < WORKERS; k++)
			if (s->pid[k])
				kill(s->pid[k], SIGKILL);
		stag_heap_detach(s->heap, false);
		stag_heap_unlink(s->name);
		fail_msg("process %d has failed: %#x", i, status);
	}
}

/* Checks that the heap is empty after all workers have freed and trimmed everything. */
static void expect_nothing_left(struct story *s)
{
	struct stag_heap_stats stats;
	uint64_t words = taken_bytes(AREA) / 8;

	while (atomic_load(&s->town->arrived[TRIMMED]) < WORKERS) {
		expect_all_well(s, WNOHANG);
		usleep(5000);
	}
	assert_int_equal(stag_heap_check(s->heap, stderr), 0);
	do { /* a maintainer thread may still be releasing the last block */
		stag_heap_trim(s->heap);
		assert_int_equal(stag_heap_query(s->heap, &stats, sizeof(stats)), 0);
		assert_int_equal(stats.allocations, 0);
		assert_int_equal(stats.allocated_bytes, 0);
	} while (stats.blocks != 0 && usleep(1000) == 0);
	assert_int_equal(stats.block_bytes, 0);
	assert_int_equal(stag_heap_check(s->heap, stderr), 0);
	for (uint64_t i = 0; i < words; i++)
		assert_int_equal(s->town->words[i], 0);
	atomic_store(&s->town->arrived[LOOKED_AT], WORKERS);
}

static struct tally sum(const struct town *town)
{
	struct tally all = {0};

	for (int i = 0; i < WORKERS; i++)
		for (size_t k = 0; k < sizeof(all) / sizeof(uint64_t); k++)
			((uint64_t *)&all)[k] += ((const uint64_t *)&town->tally[i])[k];
	return all;
}

/* Prints the tally and checks that every action happened. */
static void expect_all_tried(const struct tally *t)
{
	print_message("%lu steps: %lu alloc, %lu calloc, %lu aligned, %lu realloc (%lu moved), %lu "
		      "keys, %lu share, %lu MiB\n",
		      t->steps, t->allocs, t->callocs, t->aligneds, t->reallocs, t->moved, t->keys,
		      t->shared, t->bytes / MIB);
	print_message("%lu given away, %lu of them to other processes; %lu trims, %lu times full; "
		      "%lu lent, %lu read and written over the adapter\n",
		      t->given, t->got, t->trims, t->full, t->lent, t->borrowed);
	print_message("%lu blocks taken, %lu released; %lu registrations, %lu found stale\n",
		      t->taken, t->released, t->made, t->stale);
	if (t->steps < ENOUGH)
		return; /* in a short run, chance may skip an action */
	assert_true(t->given > t->got && t->got > 0 && t->moved > 0 && t->borrowed > 0);
	assert_true(t->released > 0 && t->stale > 0);
}

static void run_model(uint64_t block_size)
{
	struct story s = {0};
	struct tally all;

	story_open(&s, block_size);
	expect_nothing_left(&s);
	expect_all_well(&s, 0);
	all = sum(s.town);
	expect_all_tried(&all);
	assert_int_equal(stag_heap_detach(s.heap, false), 0);
	town_unmap(s.town);
	close(MODEL_FD);
}

static void objects_keep_their_contents_in_blocks_of_4_mib(void **state)
{
	run_model(4 * MIB);
}

static void objects_keep_their_contents_in_blocks_of_256_kib(void **state)
{
	run_model(MIB / 4);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(objects_keep_their_contents_in_blocks_of_4_mib),
		cmocka_unit_test(objects_keep_their_contents_in_blocks_of_256_kib),
	};

	if (argc == 6 && strcmp(argv[1], "--worker") == 0)
		return model_worker_main(argv);
	dice_start();
	return cmocka_run_group_tests_name("the heap's model", tests, NULL, NULL);
}
