// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_steady.c - once a heap has the memory that its processes need, allocations and key lookups
 * make no system call and no registration.
 *
 * Two processes allocate, look keys up, free, and hand objects to each other to be freed there.
 * After a warm-up, each turns on a switch after which its thread may make no system call: the
 * kernel sends SIGSYS for the first (syscall user dispatch; since Linux 5.11, on x86). The heap's
 * own thread and the adapter's are exempt. The counters show that no registration was made.
 *
 * Each calls getppid() before and after, as a mark for an observer outside: steady.sh.
 */
#include "side.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dice.h"
#include "stag/heap.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#ifndef PR_SYS_DISPATCH_ON
#define PR_SYS_DISPATCH_ON 1
#endif
#ifndef SYSCALL_DISPATCH_FILTER_ALLOW
#define SYSCALL_DISPATCH_FILTER_ALLOW 0
#define SYSCALL_DISPATCH_FILTER_BLOCK 1
#endif

#define FD     1000
#define STEPS  1000000ul /* after a tenth of it to warm up */
#define WINDOW 32	 /* objects of one process */
#define RING   16	 /* in flight to the other process */
#define BLOCK  (4u << 20)
#define FLOOR  10 /* blocks of each process that never become empty */

static const size_t sizes[] = {16,    64,    100,    700,    1000,   5000,
			       20000, 65536, 100000, 200000, 300000, 1 << 20};

struct ring {
	_Atomic uint32_t put, get;
	void *ptr[RING];
};

/* Shared by the two processes. */
struct table {
	_Atomic uint32_t arrived[4];
	struct ring ring[2]; /* to each process */
	struct stag_heap_stats before[2], after[2];
	uint64_t handed[2];
	bool watched[2];
};

struct worker {
	int number;
	struct table *table;
	struct stag_heap *heap;
	struct ibv_context **contexts;
	struct ibv_pd *pd;
	unsigned int device;
	void *window[WINDOW];
	void *run;
};

/* ---- the switch ---- */

static volatile char selector = SYSCALL_DISPATCH_FILTER_ALLOW;

static void report_system_call(int sig, siginfo_t *info, void *context)
{
	selector = SYSCALL_DISPATCH_FILTER_ALLOW;
	fail_msg("system call %d, at %p", info->si_syscall, info->si_call_addr);
}

/*
 * Returns false if this kernel has no syscall user dispatch, or a sanitizer makes calls of its own.
 */
static bool can_watch(void)
{
	struct sigaction act = {.sa_sigaction = report_system_call, .sa_flags = SA_SIGINFO};

	if (is_slow_build())
		return false;
	sigaction(SIGSYS, &act, NULL);
	return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector) == 0;
}

/* ---- a process ---- */

static struct table *map_table(void)
{
	void *table = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, FD, 0);

	assert_ptr_not_equal(table, MAP_FAILED);
	return table;
}

static void wait_for_other(struct worker *w, int where)
{
	atomic_fetch_add(&w->table->arrived[where], 1);
	while (atomic_load(&w->table->arrived[where]) < 2)
		usleep(500);
}

static void look_up(struct worker *w, const void *ptr)
{
	struct stag_heap_keys k;
	int err = stag_heap_keys(w->heap, w->device, ptr, &k);

	if (err)
		fail_msg("%s", stag_heap_error());
}

static void *allocate_object(struct worker *w, size_t size)
{
	char *ptr = stag_heap_alloc(w->heap, size);

	if (!ptr)
		fail_msg("%s", stag_heap_error());
	*ptr = 1;
	look_up(w, ptr);
	return ptr;
}

static bool hand_object_over(struct worker *w, void *ptr)
{
	struct ring *r = &w->table->ring[!w->number];
	uint32_t put = atomic_load(&r->put);

	if (put - atomic_load(&r->get) == RING)
		return false;
	r->ptr[put % RING] = ptr;
	atomic_store(&r->put, put + 1);
	w->table->handed[w->number]++;
	return true;
}

static void free_received_objects(struct worker *w)
{
	struct ring *r = &w->table->ring[w->number];
	uint32_t get = atomic_load(&r->get);

	if (get == atomic_load(&r->put))
		return;
	look_up(w, r->ptr[get % RING]);
	stag_heap_free(w->heap, r->ptr[get % RING]);
	atomic_store(&r->get, get + 1);
}

/* Replaces the process's one large object, of a size that only this process uses. */
static void replace_large_object(struct worker *w)
{
	stag_heap_free(w->heap, w->run);
	w->run = allocate_object(w, (w->number ? 5 : 9) * (size_t)BLOCK / 2);
}

static void step_random(struct worker *w)
{
	void **slot = &w->window[dice(WINDOW)];

	if (!*slot || !one_in(2) || !hand_object_over(w, *slot))
		stag_heap_free(w->heap, *slot);
	*slot = allocate_object(w, sizes[dice(sizeof(sizes) / sizeof(sizes[0]))]);
	free_received_objects(w);
	if (one_in(100))
		replace_large_object(w);
}

/* Fills blocks with one small object each, so that they stay; the working set fits in them. */
static void fill_base_blocks(struct worker *w)
{
	void *all[FLOOR * 16];
	char *last = NULL;

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		all[i] = allocate_object(w, BLOCK / 16);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		char *block = (char *)((uintptr_t)all[i] & ~(uintptr_t)(BLOCK - 1));

		if (block != last)
			last = block;
		else
			stag_heap_free(w->heap, all[i]);
	}
}

/*
 * Looks up keys in every block, so that every object the other process may hand over is in a block
 * registered here.
 */
static void look_up_all_keys(struct worker *w)
{
	struct stag_heap_block block;

	for (uint32_t i = 0; stag_heap_next_block(w->heap, &i, &block);)
		look_up(w, (char *)(uintptr_t)block.address + block.size - 1);
}

/*
 * Warms up, including a first run from the system: the dice may not choose the first one only after
 * counting began.
 */
static void warm_up(struct worker *w)
{
	fill_base_blocks(w);
	replace_large_object(w);
	wait_for_other(w, 0);
	look_up_all_keys(w);
	wait_for_other(w, 1);
	for (unsigned long i = 0; i < lessened(STEPS / 10); i++)
		step_random(w);
	wait_for_other(w, 2);
}

static void run_steady_state(struct worker *w)
{
	unsigned long steps = lessened(STEPS);

	w->table->watched[w->number] = can_watch();
	stag_heap_query(w->heap, &w->table->before[w->number], sizeof(struct stag_heap_stats));
	getppid();
	if (w->table->watched[w->number])
		selector = SYSCALL_DISPATCH_FILTER_BLOCK;
	for (unsigned long i = 0; i < steps; i++)
		step_random(w);
	selector = SYSCALL_DISPATCH_FILTER_ALLOW;
	getppid();
	stag_heap_query(w->heap, &w->table->after[w->number], sizeof(struct stag_heap_stats));
	wait_for_other(w, 3);
}

static int steady_worker_main(char **argv)
{
	struct worker w = {.number = atoi(argv[3]), .table = map_table()};
	struct stag_heap_attr attr = {.retain_ms = atoi(argv[4])};

	dice_start_with(strtoull(argv[5], NULL, 0));
	w.heap = stag_heap_attach(argv[2], &attr);
	if (!w.heap)
		fail_msg("%s", stag_heap_error());
	w.contexts = rdma_get_devices(NULL);
	w.pd = ibv_alloc_pd(w.contexts[0]);
	assert_int_equal(stag_heap_add_device(w.heap, w.pd, NULL, &w.device), 0);
	warm_up(&w);
	run_steady_state(&w);
	assert_int_equal(stag_heap_check(w.heap, stderr), 0);
	assert_int_equal(stag_heap_detach(w.heap, false), 0);
	assert_int_equal(ibv_dealloc_pd(w.pd), 0);
	rdma_free_devices(w.contexts);
	return 0;
}

/* ---- the test ---- */

static pid_t start_worker(const char *heap, int number, int retain_ms)
{
	char n[16], retain[16], seed[32];
	pid_t pid;

	snprintf(n, sizeof(n), "%d", number);
	snprintf(retain, sizeof(retain), "%d", retain_ms);
	snprintf(seed, sizeof(seed), "%llu", (unsigned long long)dice(UINT64_MAX));
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl("/proc/self/exe", "worker", "--worker", heap, n, retain, seed, NULL);
		_exit(127);
	}
	assert_true(pid > 0);
	return pid;
}

/* Waits for both, and reports the first that failed: the other only waits for it in vain. */
static void expect_success(const pid_t *pids)
{
	for (int i = 0; i < 2; i++) {
		int status;
		pid_t pid = wait(&status);

		if (status) {
			kill(pids[pid == pids[0]], SIGKILL);
			fail_msg("process %d: %#x", pid, status);
		}
	}
}

static void expect_no_new_registrations(const struct table *t, int i)
{
	const struct stag_heap_stats *a = &t->before[i], *b = &t->after[i];

	assert_int_equal(b->registrations_made, a->registrations_made);
	assert_int_equal(b->stale_found, a->stale_found);
	assert_int_equal(b->blocks_released, a->blocks_released);
	assert_true(b->registrations_saved >= a->registrations_saved + lessened(STEPS));
	assert_true(t->handed[i] > 0);
	print_message("process %d: %lu look-ups, %lu objects handed over, %lu registrations before "
		      "and none since%s\n",
		      i, b->registrations_saved - a->registrations_saved, t->handed[i],
		      a->registrations_made, t->watched[i] ? ", no system call" : "");
}

static void run_two_workers(int retain_ms)
{
	struct stag_heap_attr attr = {.max_blocks = 64,
				      .block_size = BLOCK,
				      .retain_ms = -1,
				      .flags = STAG_HEAP_EXCLUSIVE};
	char name[STAG_HEAP_NAME_MAX];
	struct stag_heap *heap;
	struct table *table;
	pid_t pids[2];
	int fd = memfd_create("table", 0);

	assert_int_equal(ftruncate(fd, sizeof(struct table)), 0);
	assert_int_equal(dup2(fd, FD), FD);
	close(fd);
	table = map_table();
	snprintf(name, sizeof(name), "test-steady.%d", getpid());
	heap = stag_heap_create(name, &attr);
	if (!heap)
		fail_msg("%s", stag_heap_error());
	for (int i = 0; i < 2; i++)
		pids[i] = start_worker(name, i, retain_ms);
	expect_success(pids);
	for (int i = 0; i < 2; i++)
		expect_no_new_registrations(table, i);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	munmap(table, sizeof(*table));
	close(FD);
}

static void the_steady_state_makes_no_system_call(void **state)
{
	run_two_workers(-1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_steady_state_makes_no_system_call),
	};

	if (argc == 6 && strcmp(argv[1], "--worker") == 0)
		return steady_worker_main(argv);
	dice_start();
	return cmocka_run_group_tests_name("the heap's steady state", tests, NULL, NULL);
}
