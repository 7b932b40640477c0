// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_processes.c - several processes change one table, and some are killed during a change.
 */
#include "room.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dice.h"

#define CHILDREN 4u
#define KEPT	 6u /* partitions that a changer keeps */

static char path[64];

static pid_t start_process(void (*what)(unsigned int who), unsigned int who)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		what(who);
		_exit(0);
	}
	return pid;
}

static void expect_ends_well(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- no change is lost -------------------------------------------------------------- */

static unsigned long rounds;

static void exit_on_error(int rc)
{
	if (rc == 0)
		return;
	fprintf(stderr, "%d: %s\n", rc, stag_store_error());
	_exit(1);
}

/* Increments a counter in each partition's settings, and adds and removes a partition. */
static void increment_counters(unsigned int who)
{
	struct stag_store *store = stag_store_open(path, 0);
	struct stag_store_partition p = {.size = 4096};
	char name[16];

	exit_on_error(store ? 0 : errno);
	snprintf(name, sizeof(name), "count%u", who);
	for (unsigned long i = 0; i < rounds; i++) {
		exit_on_error(stag_store_find(store, name, &p));
		p.cache_ms++;
		exit_on_error(stag_store_change(store, &p, STAG_STORE_CHANGE_CACHE));
		p = (struct stag_store_partition){.size = 4096};
		snprintf(p.name, sizeof(p.name), "t%u.%lu", who, i);
		exit_on_error(stag_store_add(store, &p));
		exit_on_error(i % 8 == 0 ? 0 : stag_store_remove(store, p.name, 0));
	}
	stag_store_close(store);
}

static void no_change_of_concurrent_processes_is_lost(void **state)
{
	struct stag_store_info info;
	struct stag_store *store;
	pid_t pids[CHILDREN];
	char name[16];

	rounds = scaled(100);
	snprintf(path, sizeof(path), "%s", room_path("shared"));
	make_store(path, 16 * MIB, 4096);
	store = open_store(path);
	for (unsigned int i = 0; i < CHILDREN; i++) {
		snprintf(name, sizeof(name), "count%u", i);
		add(store, name, 4096);
	}
	for (unsigned int i = 0; i < CHILDREN; i++)
		pids[i] = start_process(increment_counters, i);
	for (unsigned int i = 0; i < CHILDREN; i++)
		expect_ends_well(pids[i]);
	for (unsigned int i = 0; i < CHILDREN; i++) {
		snprintf(name, sizeof(name), "count%u", i);
		assert_int_equal(find(store, name).cache_ms, rounds);
	}
	assert_int_equal(stag_store_query(store, &info, sizeof(info)), 0);
	assert_int_equal(info.num_partitions, CHILDREN + CHILDREN * ((rounds + 7) / 8));
	assert_int_equal(info.generation,
			 1 + CHILDREN + CHILDREN * (3 * rounds - (rounds + 7) / 8));
	assert_int_equal(stag_store_check(path, 0, stdout), 0);
	stag_store_close(store);
}

/* ---- killed processes -------------------------------------------------------------------- */

static struct {
	_Atomic uint64_t begun, done; /* changes, by their generation */
} * progress;

/* The n-th change follows from n alone: add the next partition, or remove the oldest. */
static uint64_t oldest_of(uint64_t changes)
{
	return changes <= KEPT ? 0 : (changes - KEPT) / 2;
}

static uint64_t newest_of(uint64_t changes)
{
	return changes <= KEPT ? changes : KEPT + (changes - KEPT + 1) / 2;
}

static void change_for_ever(unsigned int who)
{
	struct stag_store *store = stag_store_open(path, 0);

	exit_on_error(store ? 0 : errno);
	for (uint64_t n = store->now.table.generation - 1;; n++) {
		struct stag_store_partition p = {.size = 4096};

		atomic_store(&progress->begun, n + 1);
		if (newest_of(n + 1) > newest_of(n)) {
			snprintf(p.name, sizeof(p.name), "p%llu", (unsigned long long)newest_of(n));
			exit_on_error(stag_store_add(store, &p));
		} else {
			snprintf(p.name, sizeof(p.name), "p%llu", (unsigned long long)oldest_of(n));
			exit_on_error(stag_store_remove(store, p.name, 0));
		}
		atomic_store(&progress->done, n + 1);
	}
}

/*
 * Checks that the table is the result of all changes that are done, with or without the one begun.
 */
static void expect_valid_table(void)
{
	struct stag_store *store = open_store(path);
	uint64_t changes = store->now.table.generation - 1;
	char name[32];

	assert_true(changes >= atomic_load(&progress->done));
	assert_true(changes <= atomic_load(&progress->begun));
	assert_int_equal(count(store), newest_of(changes) - oldest_of(changes));
	for (uint64_t i = oldest_of(changes); i < newest_of(changes); i++) {
		snprintf(name, sizeof(name), "p%llu", (unsigned long long)i);
		find(store, name);
	}
	stag_store_close(store);
}

static void a_killed_process_leaves_a_valid_table(void **state)
{
	unsigned long kills = scaled(120), mended = 0;

	snprintf(path, sizeof(path), "%s", room_path("killed"));
	make_store(path, 4 * MIB, 4096);
	progress = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(progress != MAP_FAILED);
	for (unsigned long i = 0; i < kills; i++) {
		uint64_t from = atomic_load(&progress->done);
		pid_t pid = start_process(change_for_ever, 0);

		while (atomic_load(&progress->done) < from + 2 && waitpid(pid, NULL, WNOHANG) == 0)
			nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
		nanosleep(&(struct timespec){.tv_nsec = (long)dice(2000000)}, NULL);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		expect_valid_table();
		mended += (unsigned long)stag_store_check(path, 0, NULL);
		if (one_in(2))
			assert_int_equal(stag_store_check(path, STAG_STORE_REPAIR, NULL), 0);
	}
	print_message("%lu killed in %llu changes, %lu of them between the copies\n", kills,
		      (unsigned long long)atomic_load(&progress->done), mended);
	munmap(progress, 4096);
}

/* ---- concurrent readers ---------------------------------------------------------------------- */

static void concurrent_readers_see_a_valid_table(void **state)
{
	struct stag_store *store;
	unsigned long seen = 0;
	uint64_t last = 0;
	pid_t pid;

	snprintf(path, sizeof(path), "%s", room_path("watched"));
	make_store(path, 4 * MIB, 4096);
	progress = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(progress != MAP_FAILED);
	store = open_store(path);
	pid = start_process(change_for_ever, 0);
	while (seen < scaled(1000)) {
		struct stag_store *look;
		uint64_t changes;

		if (!store_changed(store))
			continue;
		assert_int_equal(store_refresh(store), 0);
		changes = store->now.table.generation - 1;
		assert_true(changes >= last);
		assert_int_equal(store->now.table.n, newest_of(changes) - oldest_of(changes));
		look = stag_store_open(path, STAG_STORE_LOOK);
		assert_non_null(look);
		stag_store_close(look);
		last = changes;
		seen++;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	stag_store_close(store);
	munmap(progress, 4096);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_change_of_concurrent_processes_is_lost),
		cmocka_unit_test(a_killed_process_leaves_a_valid_table),
		cmocka_unit_test(concurrent_readers_see_a_valid_table),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
