// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_kill.c - four processes use a heap, and are killed at random moments, again and again.
 *
 * From time to time all workers detach and only the killer remains attached: once the shared memory
 * of the dead is reclaimed, the heap must hold the killer's own allocations and nothing else. Some
 * workers are stopped for a while and then continue. No call of a survivor may take longer than
 * PATIENCE_NS, not counting time spent waiting for a processor.
 *
 * 120 deaths; 2000 with STAG_LONG.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/clock.h"
#include "dice.h"
#include "kill.h"

#define DEATHS	    120ul
#define MANY_DEATHS 2000ul
#define ROUND	    25ul /* deaths between two pauses in which all workers are detached */
#define PATIENCE_NS (100 * NS_PER_MS)
#define OWN	    5u

static const char *const call_name[NUM_CALLS] = {
	[NO_CALL] = "none",    [ATTACH] = "attach",   [ADD_DEVICE] = "add_device",
	[ALLOC] = "alloc",     [CALLOC] = "calloc",   [ALIGNED] = "aligned",
	[REALLOC] = "realloc", [FREE] = "free",	      [FREE_OTHERS] = "free of another process's",
	[SHARE] = "share",     [UNSHARE] = "unshare", [KEYS] = "keys",
	[TRIM] = "trim",       [REAP] = "reap",	      [CHECK] = "check",
	[DETACH] = "detach",
};

static char name[STAG_HEAP_NAME_MAX];
static struct stag_heap *heap;
static struct office *office;
static pid_t worker[WORKERS];
static uint64_t stopped_since[WORKERS]; /* 0: not stopped */
static void *own[OWN];
static uint64_t own_blocks, own_memory;
static unsigned long died_in[NUM_CALLS], stops, left_shared;

/* ---- workers ------------------------------------------------------------------- */

static void start_worker(unsigned int i)
{
	char number[16];

	snprintf(number, sizeof(number), "%u", i);
	worker[i] = fork();
	assert_true(worker[i] >= 0);
	if (worker[i] == 0) {
		execl("/proc/self/exe", "worker", "--worker", name, number, NULL);
		_exit(99);
	}
}

/* Fails if a worker exited by itself: it exits only when it has found an error. */
static void expect_all_alive(void)
{
	int status;
	pid_t pid = waitpid(-1, &status, WNOHANG);

	if (pid > 0)
		fail_msg("a worker (%d) ended by itself: %#x", pid, status);
}

static void kill_one(unsigned int i)
{
	int status;

	kill(worker[i], SIGKILL);
	assert_int_equal(waitpid(worker[i], &status, 0), worker[i]);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		fail_msg("worker %u ended by itself: %#x", i, status);
	died_in[atomic_load(&office->desk[i].call)]++;
	stopped_since[i] = 0;
}

static void sleep_a_moment(uint64_t ns)
{
	struct timespec ts = {.tv_nsec = (long)ns};

	nanosleep(&ts, NULL);
}

/* Checks that the other workers make progress while one is stopped, wherever it was stopped. */
static void expect_progress_without(unsigned int stopped)
{
	for (unsigned int i = 0; i < WORKERS; i++) {
		uint64_t calls = atomic_load(&office->desk[i].calls);

		while (i != stopped && atomic_load(&office->desk[i].calls) < calls + 20) {
			expect_all_alive();
			sleep_a_moment(NS_PER_MS / 10);
		}
	}
}

static void stop_one(unsigned int i)
{
	int status;

	stopped_since[i] = clock_ns();
	kill(worker[i], SIGSTOP);
	assert_int_equal(waitpid(worker[i], &status, WUNTRACED), worker[i]);
	if (!WIFSTOPPED(status))
		fail_msg("worker %u ended by itself: %#x", i, status);
	stops++;
	expect_progress_without(i);
}

/* Continues a stopped worker. Time from here on counts as waiting for a processor. */
static void continue_one(unsigned int i)
{
	if (stopped_since[i] == 0)
		return;
	atomic_fetch_add(&office->desk[i].stopped, clock_ns() - stopped_since[i]);
	stopped_since[i] = 0;
	kill(worker[i], SIGCONT);
}

/* ---- checks after the deaths --------------------------------------------------------- */

static struct stag_heap_stats query(void)
{
	struct stag_heap_stats stats;

	assert_int_equal(stag_heap_query(heap, &stats, sizeof(stats)), 0);
	return stats;
}

static uint64_t committed(void)
{
	struct stat st;

	assert_int_equal(fstat(heap->files.fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void expect_own_memory_intact(void)
{
	for (unsigned int i = 0; i < OWN; i++)
		assert_true(letter_is_whole(own[i]));
	assert_int_equal(stag_heap_check(heap, stderr), 0);
}

static void wait_until_away(void)
{
	atomic_store(&office->pause, 1);
	for (unsigned int i = 0; i < WORKERS; i++)
		while (!atomic_load(&office->desk[i].away)) {
			expect_all_alive();
			sleep_a_moment(NS_PER_MS / 10);
		}
}

/* Frees the letters left in the boxes. Their writers are dead; the letters must be intact. */
static void empty_boxes(void)
{
	for (unsigned int i = 0; i < BOXES; i++) {
		uintptr_t letter = atomic_exchange(&office->box[i], 0);

		if (letter == 0)
			continue;
		assert_true(letter_is_whole((void *)letter));
		stag_heap_free(heap, (void *)letter);
	}
}

/*
 * Checks the block table: an open entry without a hint, or one that still names a process, is lost
 * memory.
 */
static void expect_entries(void)
{
	for (uint32_t i = 0; i < MAX_BLOCKS; i++) {
		uint64_t state = atomic_load(&heap->descs[i].state);

		if (desc_phase(state) == BLOCK_OPEN)
			assert_int_equal(hint_next(&heap->hints.open, i), i);
		else if (desc_phase(state) == BLOCK_LIVE)
			assert_int_equal(desc_slot(state), heap->slot);
		else
			assert_int_equal(desc_phase(state), BLOCK_TAIL);
	}
	for (unsigned int i = 0; i < STAG_HEAP_MAX_PROCS; i++)
		for (unsigned int k = 0; k < HEAP_HAZARDS; k++)
			assert_int_equal(atomic_load(&heap->procs[i].hazards[k]), 0);
}

/*
 * Checks that every slot can be used. This also releases pages that came back because a process
 * read the header of a released block.
 */
static void use_every_slot(void)
{
	static void *ptr[MAX_BLOCKS];
	unsigned int n = 0, open = 0;

	for (uint32_t i = 0; i < MAX_BLOCKS; i++)
		open += desc_phase(atomic_load(&heap->descs[i].state)) == BLOCK_OPEN;
	while (n < MAX_BLOCKS && (ptr[n] = stag_heap_alloc(heap, BLOCK_SIZE * 3 / 4)))
		n++;
	assert_int_equal(n, open);
	while (n-- > 0)
		stag_heap_free(heap, ptr[n]);
	stag_heap_trim(heap);
}

static void expect_nothing_leaked(void)
{
	wait_until_away();
	while (query().processes != 1) /* the maintainer thread may still be reaping */
		stag_heap_reap(heap, 0);
	empty_boxes();
	left_shared += query().shared;
	stag_heap_reap(heap, STAG_HEAP_REAP_SHARED);
	stag_heap_trim(heap);
	use_every_slot();
	expect_own_memory_intact();
	assert_int_equal(query().allocations, OWN);
	assert_int_equal(query().blocks, own_blocks);
	assert_int_equal(committed(), own_memory);
	expect_entries();
	atomic_store(&office->pause, 0);
}

/* ---- the story ----------------------------------------------------------------------- */

static void open_heap(void)
{
	static const size_t sizes[OWN] = {40, 700, 20000, 120000, 600000};
	struct stag_heap_attr attr = {.block_size = BLOCK_SIZE,
				      .max_blocks = MAX_BLOCKS,
				      .retain_ms = -1,
				      .flags = STAG_HEAP_EXCLUSIVE};

	snprintf(name, sizeof(name), "test-kill.%d", getpid());
	heap = stag_heap_create(name, &attr);
	if (!heap)
		fail_msg("%s", stag_heap_error());
	for (unsigned int i = 0; i < OWN; i++) {
		own[i] = stag_heap_alloc(heap, sizes[i]);
		assert_non_null(own[i]);
		letter_write(own[i], sizes[i], i);
	}
	stag_heap_trim(heap);
	own_blocks = query().blocks;
	own_memory = committed();
}

static void map_shared_state(void)
{
	int fd = memfd_create("office", 0);

	assert_int_equal(dup2(fd, KILL_FD), KILL_FD); /* without FD_CLOEXEC */
	close(fd);
	assert_int_equal(ftruncate(KILL_FD, sizeof(*office)), 0);
	office = mmap(NULL, sizeof(*office), PROT_READ | PROT_WRITE, MAP_SHARED, KILL_FD, 0);
	assert_true(office != MAP_FAILED);
}

/* Kills a worker at a random point, inside a call or between two calls. */
static void one_death(void)
{
	unsigned int i = (unsigned int)dice(WORKERS), other = (unsigned int)dice(WORKERS);

	sleep_a_moment(dice_size(8 * NS_PER_MS));
	if (one_in(10))
		stop_one(other);
	if (one_in(2))
		continue_one(other);
	kill_one(i);
	start_worker(i);
	continue_one(other);
	expect_all_alive();
	if (one_in(4))
		stag_heap_reap(heap, 0);
	if (one_in(8))
		expect_own_memory_intact();
}

static void print_summary(unsigned long deaths)
{
	uint64_t calls = 0;

	for (unsigned int i = 0; i < WORKERS; i++)
		calls += atomic_load(&office->desk[i].calls);
	printf("%lu deaths, %lu stops, %llu calls, %lu shared letters of the dead\ndied in:",
	       deaths, stops, (unsigned long long)calls, left_shared);
	for (unsigned int i = 0; i < NUM_CALLS; i++)
		printf(" %s %lu", call_name[i], died_in[i]);
	printf("\nlongest call of a survivor, us:");
	for (unsigned int i = 1; i < NUM_CALLS; i++) {
		uint64_t most = 0;

		for (unsigned int k = 0; k < WORKERS; k++)
			if (atomic_load(&office->desk[k].longest[i]) > most)
				most = atomic_load(&office->desk[k].longest[i]);
		printf(" %s %llu", call_name[i], (unsigned long long)(most / 1000));
	}
	printf("\n");
}

/* Returns the time limit for a call, scaled by how much other load slows this machine. */
static uint64_t call_time_limit(void)
{
	double load, usual = 2.0 * (double)sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t most = is_slow_build() ? 10 * PATIENCE_NS : PATIENCE_NS;

	if (getloadavg(&load, 1) != 1 || load < usual)
		return most;
	return (uint64_t)((double)most * load / usual);
}

static void expect_calls_within_limit(void)
{
	uint64_t most = call_time_limit();

	for (unsigned int k = 0; k < WORKERS; k++)
		for (unsigned int i = 1; i < NUM_CALLS; i++)
			if (atomic_load(&office->desk[k].longest[i]) > most)
				fail_msg("worker %u waited too long in %s", k, call_name[i]);
}

static void survivors_continue_after_kills_and_no_memory_leaks(void **state)
{
	unsigned long deaths = lessened(getenv("STAG_LONG") ? MANY_DEATHS : DEATHS);

	open_heap();
	map_shared_state();
	for (unsigned int i = 0; i < WORKERS; i++)
		start_worker(i);
	for (unsigned long n = 1; n <= deaths; n++) {
		one_death();
		if (n % ROUND == 0 || n == deaths)
			expect_nothing_leaked();
	}
	for (unsigned int i = 0; i < WORKERS; i++)
		kill_one(i);
	print_summary(deaths);
	expect_calls_within_limit();
	for (unsigned int i = 0; i < OWN; i++)
		stag_heap_free(heap, own[i]);
	while (query().processes != 1)
		stag_heap_reap(heap, 0);
	stag_heap_reap(heap, STAG_HEAP_REAP_SHARED);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	assert_int_equal(stag_heap_unlink(name), ENOENT);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(survivors_continue_after_kills_and_no_memory_leaks),
	};

	dice_start();
	if (argc == 4 && strcmp(argv[1], "--worker") == 0)
		return kill_worker_main(argv[2], (unsigned int)atoi(argv[3]));
	return cmocka_run_group_tests_name("heap/kill", tests, NULL, NULL);
}
