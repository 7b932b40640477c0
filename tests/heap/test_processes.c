// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_processes.c - several processes with one heap: the same addresses, memory that passes
 * between processes, and reclaiming after one dies.
 *
 * The parent runs each test; a child executes its orders, one at a time. Children execute this
 * program again instead of only forking, because ThreadSanitizer does not allow threads in a forked
 * child.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "heap/heap.h"

#define KIB 1024ull
#define MIB (1024ull * 1024)

static char name[STAG_HEAP_NAME_MAX];

/* ---- a child that executes orders -------------------------------------------------- */

enum order { ALLOC, FREE, SHARE, UNSHARE, READ_BYTE, FILL, TRIM, REAP, CHECK, DETACH, CREATE };

struct bidding {
	enum order order;
	uint64_t argument, size;
};

struct child {
	pid_t pid;
	int to;
};

static uint64_t execute_order(struct stag_heap **heap, const struct bidding *b)
{
	void *ptr = (void *)b->argument;

	switch (b->order) {
	case ALLOC:
		return (uintptr_t)stag_heap_alloc(*heap, b->argument);
	case FREE:
		stag_heap_free(*heap, ptr);
		return 0;
	case SHARE:
		return (uint64_t)stag_heap_share(*heap, ptr);
	case UNSHARE:
		return (uint64_t)stag_heap_unshare(*heap, ptr);
	case READ_BYTE:
		return *(unsigned char *)ptr;
	case FILL:
		memset(ptr, 0xa5, b->size);
		return 0;
	case TRIM:
		return stag_heap_trim(*heap);
	case REAP:
		return stag_heap_reap(*heap, (unsigned int)b->argument);
	case CHECK:
		return (uint64_t)stag_heap_check(*heap, stderr);
	case DETACH:
		return (uint64_t)stag_heap_detach(*heap, b->argument);
	case CREATE:
		*heap = stag_heap_create(name, NULL);
		return *heap ? 0 : (uint64_t)errno;
	}
	return 0;
}

static void serve_orders(int from)
{
	struct stag_heap *heap = NULL;
	struct bidding b;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(from, &b, sizeof(b)) == (ssize_t)sizeof(b)) {
		uint64_t answer = execute_order(&heap, &b);

		if (write(from, &answer, sizeof(answer)) != (ssize_t)sizeof(answer))
			break;
	}
	_exit(0);
}

static uint64_t order_child(struct child *child, enum order order, uint64_t argument, uint64_t size)
{
	struct bidding b = {order, argument, size};
	uint64_t answer;

	assert_int_equal(write(child->to, &b, sizeof(b)), sizeof(b));
	assert_int_equal(read(child->to, &answer, sizeof(answer)), sizeof(answer));
	return answer;
}

/* Executes this program again, with one end of a socket at descriptor 3. */
static struct child execute_self(const char *what)
{
	struct child child;
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	child.pid = fork();
	assert_true(child.pid >= 0);
	if (child.pid == 0) {
		if (dup2(ends[1], 3) == 3)
			fcntl(3, F_SETFD, 0);
		execl("/proc/self/exe", "test_heap_processes", what, name, NULL);
		_exit(99);
	}
	close(ends[1]);
	child.to = ends[0];
	return child;
}

static struct child start_child(void)
{
	struct child child = execute_self("serve");

	assert_int_equal(order_child(&child, CREATE, 0, 0), 0);
	return child;
}

static void kill_child(struct child *child)
{
	int status;

	kill(child->pid, SIGKILL);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	close(child->to);
}

static void expect_exit(struct child *child)
{
	int status;

	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	close(child->to);
	assert_int_equal(status, 0);
}

static void end_child(struct child *child)
{
	assert_int_equal(order_child(child, DETACH, false, 0), 0);
	kill_child(child);
}

/* ---- checks in the parent ------------------------------------------------------------- */

static struct stag_heap *make_heap(uint64_t block_size, uint32_t max_blocks)
{
	struct stag_heap_attr attr = {.block_size = block_size,
				      .max_blocks = max_blocks,
				      .retain_ms = -1,
				      .flags = STAG_HEAP_EXCLUSIVE};
	struct stag_heap *heap;

	snprintf(name, sizeof(name), "test-processes.%d", getpid());
	stag_heap_unlink(name); /* left by a test that failed */
	heap = stag_heap_create(name, &attr);
	if (!heap)
		fail_msg("%s: %s", strerror(errno), stag_heap_error());
	return heap;
}

static struct stag_heap_stats query(struct stag_heap *heap)
{
	struct stag_heap_stats stats;

	assert_int_equal(stag_heap_query(heap, &stats, sizeof(stats)), 0);
	return stats;
}

static bool exists(void)
{
	char path[128];

	snprintf(path, sizeof(path), "/dev/shm/stag-%u/heap.%s", geteuid(), name);
	return access(path, F_OK) == 0;
}

static void expect_sound(struct stag_heap *heap)
{
	assert_int_equal(stag_heap_check(heap, stderr), 0);
}

static void check_and_destroy_heap(struct stag_heap *heap)
{
	expect_sound(heap);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	assert_false(exists());
}

static uint64_t committed(struct stag_heap *heap)
{
	struct stat st;

	assert_int_equal(fstat(heap->files.fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

/* ---- the same memory -------------------------------------------------------------- */

static void a_pointer_means_the_same_everywhere(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	unsigned char *mine = stag_heap_alloc(heap, 100);
	unsigned char *theirs = (unsigned char *)order_child(&child, ALLOC, 5 * MIB, 0);

	*mine = 42;
	assert_int_equal(order_child(&child, READ_BYTE, (uintptr_t)mine, 0), 42);
	order_child(&child, FILL, (uintptr_t)theirs, 5 * MIB);
	assert_int_equal(theirs[5 * MIB - 1], 0xa5);
	assert_int_equal(query(heap).processes, 2);
	end_child(&child);
	assert_int_equal(query(heap).processes, 1);
	stag_heap_free(heap, mine);
	check_and_destroy_heap(heap);
}

/* Each process allocates in blocks of its own: it never depends on another process's lock. */
static void processes_do_not_share_blocks(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	void *mine = stag_heap_alloc(heap, 64), *theirs = (void *)order_child(&child, ALLOC, 64, 0);

	assert_int_not_equal(heap_index(heap, mine), heap_index(heap, theirs));
	end_child(&child);
	stag_heap_free(heap, mine);
	check_and_destroy_heap(heap);
}

static void memory_freed_by_another_process_is_reused(void **state)
{
	static const size_t sizes[] = {16, 64, 5000, 100000, 500000, 3 * MIB};
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	uint64_t before = committed(heap);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		for (int round = 0; round < 200; round++) {
			void *ptr = stag_heap_alloc(heap, sizes[i]);

			assert_non_null(ptr);
			order_child(&child, FREE, (uintptr_t)ptr, 0);
		}
	assert_int_equal(query(heap).allocations, 0);
	stag_heap_trim(heap);
	assert_int_equal(query(heap).blocks, 0);
	assert_int_equal(committed(heap), before);
	end_child(&child);
	check_and_destroy_heap(heap);
}

/* Figure 7: an empty block that is not yet returned to the system changes its owner unchanged. */
static void an_idle_block_keeps_its_block_id_across_owners(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	void *ptrs[9], *theirs; /* in three blocks: one is retained for an object, one as a whole */
	uint64_t id;

	for (int i = 0; i < 9; i++)
		ptrs[i] = stag_heap_alloc(heap, MIB);
	id = atomic_load(&heap->descs[0].block_id);
	for (int i = 0; i < 9; i++)
		stag_heap_free(heap, ptrs[i]);
	theirs = (void *)order_child(&child, ALLOC, MIB, 0);
	assert_true(heap_index(heap, theirs) <= 2);
	assert_int_equal(atomic_load(&heap->descs[heap_index(heap, theirs)].block_id), id);
	order_child(&child, FREE, (uintptr_t)theirs, 0);
	order_child(&child, TRIM, 0, 0);
	theirs = (void *)order_child(&child, ALLOC, MIB, 0);
	assert_int_equal(atomic_load(&heap->descs[heap_index(heap, theirs)].block_id), id + 1);
	end_child(&child);
	check_and_destroy_heap(heap);
}

static void one_process_may_use_all_blocks_that_another_freed(void **state)
{
	struct stag_heap *heap = make_heap(256 * KIB, 16);
	struct child child = start_child();
	void *ptrs[64];
	int n = 0;

	while ((ptrs[n] = stag_heap_alloc(heap, 100000)))
		n++;
	assert_int_equal(order_child(&child, ALLOC, 100000, 0), 0);
	while (n-- > 0)
		stag_heap_free(heap, ptrs[n]);
	stag_heap_trim(heap);
	for (n = 0; order_child(&child, ALLOC, 100000, 0) != 0; n++)
		;
	assert_true(n >= 14);
	assert_null(stag_heap_alloc(heap, 1));
	end_child(&child);
	assert_non_null(stag_heap_alloc(heap, 1));
	check_and_destroy_heap(heap);
}

/* ---- death -------------------------------------------------------------------------- */

static void memory_of_a_dead_process_is_reclaimed(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	uint64_t before = committed(heap);

	for (size_t size = 1; size < 6 * MIB; size = size * 2 + 1)
		assert_int_not_equal(order_child(&child, ALLOC, size, 0), 0);
	kill_child(&child);
	while (query(heap).processes != 1) /* the maintainer thread may still be reaping */
		stag_heap_reap(heap, 0);
	assert_int_equal(query(heap).blocks, 0);
	assert_int_equal(committed(heap), before);
	check_and_destroy_heap(heap);
}

static void dead_processes_are_reaped_in_the_background(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();

	order_child(&child, ALLOC, 64, 0);
	assert_int_equal(query(heap).blocks, 1);
	kill_child(&child);
	while (query(heap).processes != 1)
		usleep(10000);
	assert_int_equal(query(heap).blocks, 0);
	check_and_destroy_heap(heap);
}

static void a_full_heap_reaps_dead_processes(void **state)
{
	struct stag_heap *heap = make_heap(256 * KIB, 16);
	struct child child = start_child();

	while (order_child(&child, ALLOC, 700 * KIB, 0) != 0)
		;
	assert_null(stag_heap_alloc(heap, 700 * KIB));
	kill_child(&child);
	assert_non_null(stag_heap_alloc(heap, 700 * KIB));
	check_and_destroy_heap(heap);
}

static void share_all(struct child *child, uint64_t *ptrs, const size_t *sizes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		ptrs[i] = order_child(child, ALLOC, sizes[i], 0);
		order_child(child, FILL, ptrs[i], sizes[i]);
		assert_int_equal(order_child(child, SHARE, ptrs[i], 0), 0);
		order_child(child, ALLOC, sizes[i], 0); /* not shared */
	}
}

static const size_t shared_sizes[] = {24, 6000, 100000, 600000, 5 * MIB};
#define NUM_SHARED (sizeof(shared_sizes) / sizeof(shared_sizes[0]))

static void shared_memory_of_a_dead_process_lives_until_it_is_freed(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	uint64_t before = committed(heap), ptrs[NUM_SHARED];

	share_all(&child, ptrs, shared_sizes, NUM_SHARED);
	kill_child(&child);
	while (query(heap).processes != 1)
		stag_heap_reap(heap, 0);
	expect_sound(heap);
	for (size_t i = 0; i < NUM_SHARED; i++) {
		assert_int_equal(*(unsigned char *)(ptrs[i] + shared_sizes[i] - 1), 0xa5);
		assert_true(stag_heap_usable_size(heap, (void *)ptrs[i]) >= shared_sizes[i]);
		stag_heap_free(heap, (void *)ptrs[i]);
	}
	stag_heap_trim(heap);
	assert_int_equal(query(heap).blocks, 0);
	assert_int_equal(committed(heap), before);
	check_and_destroy_heap(heap);
}

static void reap_shared_frees_shared_memory_of_dead_processes(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	uint64_t ptrs[NUM_SHARED];

	share_all(&child, ptrs, shared_sizes, NUM_SHARED);
	kill_child(&child);
	while (query(heap).processes != 1)
		stag_heap_reap(heap, 0);
	assert_true(query(heap).blocks >= 2);
	assert_true(stag_heap_reap(heap, STAG_HEAP_REAP_SHARED) >= 5 * MIB);
	assert_int_equal(query(heap).blocks, 0);
	check_and_destroy_heap(heap);
}

static void sharing_can_be_revoked(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	uint64_t ptr = order_child(&child, ALLOC, 64, 0),
		 run = order_child(&child, ALLOC, 5 * MIB, 0);

	order_child(&child, SHARE, ptr, 0);
	order_child(&child, SHARE, run, 0);
	assert_int_equal(stag_heap_unshare(heap, (void *)ptr), 0);
	assert_int_equal(order_child(&child, UNSHARE, run, 0), 0);
	kill_child(&child);
	while (query(heap).processes != 1)
		stag_heap_reap(heap, 0);
	assert_int_equal(query(heap).blocks, 0);
	check_and_destroy_heap(heap);
}

/*
 * A shared object stops being shared when the owner frees it, or collects it after another process
 * freed it.
 */
static void freeing_ends_sharing(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	uint64_t a = order_child(&child, ALLOC, 64, 0), b = order_child(&child, ALLOC, 64, 0);

	order_child(&child, ALLOC, 64, 0); /* keeps the span allocated */
	order_child(&child, SHARE, a, 0);
	order_child(&child, SHARE, b, 0);
	order_child(&child, FREE, a, 0);
	stag_heap_free(heap, (void *)b);
	order_child(&child, TRIM, 0, 0);
	assert_int_equal(order_child(&child, ALLOC, 64, 0), a);
	assert_int_equal(order_child(&child, ALLOC, 64, 0), b);
	expect_sound(heap);
	kill_child(&child);
	while (query(heap).processes != 1)
		stag_heap_reap(heap, 0);
	assert_int_equal(query(heap).blocks, 0);
	check_and_destroy_heap(heap);
}

/*
 * Block entries that name a dead process in the middle of a transition: each transition is
 * completed.
 */
static void transitions_begun_by_a_dead_process_are_completed(void **state)
{
	static const enum block_phase phases[] = {BLOCK_TAKING, BLOCK_RELEASING};
	struct stag_heap *heap = make_heap(0, 64);

	for (size_t i = 0; i < 2; i++) {
		struct child child = start_child();
		uint64_t run = order_child(&child, ALLOC, 9 * MIB, 0),
			 one = order_child(&child, ALLOC, 64, 0);
		uint32_t indices[] = {heap_index(heap, (void *)run), heap_index(heap, (void *)one)};

		for (size_t k = 0; k < 2; k++) {
			_Atomic uint64_t *word = &heap->descs[indices[k]].state;

			atomic_store(word, (atomic_load(word) & ~0xffull) | phases[i]);
		}
		kill_child(&child);
		while (query(heap).processes != 1)
			stag_heap_reap(heap, 0);
		assert_int_equal(query(heap).blocks, 0);
		expect_sound(heap);
		for (uint32_t k = 0; k < heap->geo.max_blocks; k++)
			assert_int_equal(desc_phase(atomic_load(&heap->descs[k].state)),
					 BLOCK_OPEN);
	}
	check_and_destroy_heap(heap);
}

/* Freed bits whose hints were never set because the process that freed them died. */
static void a_free_without_its_hint_is_found(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	void *ptrs[20];

	for (int i = 0; i < 20; i++) /* objects of several spans */
		ptrs[i] = stag_heap_alloc(heap, 100000);
	for (int i = 0; i < 20; i++) {
		order_child(&child, FREE, (uintptr_t)ptrs[i], 0);
		atomic_store(&heap->hints.pending[heap_index(heap, ptrs[i])], 0);
		hint_clear(&heap->hints.pending_blocks, heap_index(heap, ptrs[i]));
	}
	kill_child(&child);
	while (query(heap).processes != 1)
		stag_heap_reap(heap, 0);
	stag_heap_trim(heap);
	assert_int_equal(query(heap).blocks, 0);
	check_and_destroy_heap(heap);
}

/* An idle block whose hint was lost, and its neighbours' hints with it. */
static void an_idle_block_without_its_hint_is_found(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	uint64_t run = order_child(&child, ALLOC, 5 * MIB, 0);

	order_child(&child, FREE, run, 0);
	hint_clear(&heap->hints.idle_runs, heap_index(heap, (void *)run));
	kill_child(&child);
	while (query(heap).processes != 1)
		stag_heap_reap(heap, 0);
	assert_int_equal(query(heap).blocks, 1);
	stag_heap_trim(heap);
	assert_int_equal(query(heap).blocks, 0);
	check_and_destroy_heap(heap);
}

/* The slot of a block is not reused while an access under an old key may be in flight. */
static void a_slot_with_a_hazard_is_passed_over(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	void *one = stag_heap_alloc(heap, 64), *run = stag_heap_alloc(heap, 9 * MIB);
	uint32_t index = heap_index(heap, one), first = heap_index(heap, run);

	stag_heap_free(heap, one);
	stag_heap_free(heap, run);
	stag_heap_trim(heap);
	atomic_store(&heap->self->hazards[5], index + 1);
	atomic_store(&heap->self->hazards[9], first + 1);
	one = stag_heap_alloc(heap, 64);
	run = stag_heap_alloc(heap, 9 * MIB);
	assert_int_not_equal(heap_index(heap, one), index);
	assert_true(heap_index(heap, run) + 2 < first);
	stag_heap_free(heap, one);
	stag_heap_free(heap, run);
	stag_heap_trim(heap);
	atomic_store(&heap->self->hazards[5], 0);
	atomic_store(&heap->self->hazards[9], 0);
	one = stag_heap_alloc(heap, 64);
	run = stag_heap_alloc(heap, 9 * MIB);
	assert_int_equal(heap_index(heap, one), index);
	assert_int_equal(heap_index(heap, run), first);
	check_and_destroy_heap(heap);
}

/* A process that died while it took a slot may not have checked for an access still in flight. */
static void a_slot_with_a_hazard_is_passed_over_after_its_taker_died(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	void *theirs = (void *)order_child(&child, ALLOC, 64, 0),
	     *run = stag_heap_alloc(heap, 9 * MIB);
	uint64_t taking =
		(atomic_load(&heap->descs[heap_index(heap, theirs)].state) & 0xff00) | BLOCK_TAKING;
	uint32_t first = heap_index(heap, run);

	stag_heap_free(heap, run);
	stag_heap_trim(heap);
	atomic_store(&heap->self->hazards[5], first + 1);
	atomic_store(&heap->descs[first + 1].state, taking);
	atomic_store(&heap->descs[first + 2].state, taking);
	kill_child(&child);
	while (query(heap).processes != 1)
		stag_heap_reap(heap, 0);
	assert_int_equal(desc_phase(atomic_load(&heap->descs[first + 1].state)), BLOCK_OPEN);
	run = stag_heap_alloc(heap, 5 * MIB);
	assert_true(heap_index(heap, run) + 1 < first);
	atomic_store(&heap->self->hazards[5], 0);
	stag_heap_free(heap, run);
	check_and_destroy_heap(heap);
}

/* ---- attaching and detaching ------------------------------------------------------------- */

static void the_last_detach_removes_the_heap(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();

	assert_int_equal(stag_heap_detach(heap, false), 0);
	assert_true(exists());
	end_child(&child);
	assert_false(exists());
}

static void heap_stays_on_request_or_while_shared_memory_is_left(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	unsigned char *ptr;

	assert_int_equal(stag_heap_detach(heap, true), 0);
	assert_true(exists());
	heap = stag_heap_attach(name, NULL);
	assert_non_null(heap);
	ptr = stag_heap_alloc(heap, 64);
	*ptr = 99;
	stag_heap_share(heap, ptr);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	heap = stag_heap_attach(name, NULL);
	assert_non_null(heap);
	assert_int_equal(*ptr, 99);
	stag_heap_free(heap, ptr);
	check_and_destroy_heap(heap);
}

static void dead_processes_do_not_keep_a_heap(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();

	order_child(&child, ALLOC, 64, 0);
	kill_child(&child);
	check_and_destroy_heap(heap);
}

static void names_and_numbers_are_checked(void **state)
{
	struct stag_heap_attr attr = {.block_size = 12345};
	char longest[STAG_HEAP_NAME_MAX + 8];

	memset(longest, 'x', sizeof(longest));
	longest[STAG_HEAP_NAME_MAX] = '\0';
	assert_null(stag_heap_create("", NULL));
	assert_int_equal(errno, EINVAL);
	assert_null(stag_heap_create("a/b", NULL));
	assert_int_equal(errno, EINVAL);
	assert_null(stag_heap_create(longest, NULL));
	assert_int_equal(errno, EINVAL);
	snprintf(name, sizeof(name), "test-processes.%d", getpid());
	assert_null(stag_heap_create(name, &attr));
	assert_int_equal(errno, EINVAL);
	assert_null(stag_heap_attach(name, NULL));
	assert_int_equal(errno, ENOENT);
	assert_int_equal(stag_heap_unlink(name), ENOENT);
	assert_false(exists());
}

static void an_object_that_is_no_heap_is_refused(void **state)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof(path), "/dev/shm/stag-%u/heap.%s", geteuid(), name);
	file = fopen(path, "w");
	assert_non_null(file);
	for (int i = 0; i < 10000; i++)
		fputs("no heap", file);
	fclose(file);
	assert_null(stag_heap_attach(name, NULL));
	assert_int_equal(errno, EPROTO);
	assert_null(stag_heap_create(name, NULL));
	assert_int_equal(errno, EPROTO);
	unlink(path);
}

static void an_address_in_use_is_reported_as_such(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	void *address = heap->header;

	assert_null(stag_heap_attach(name, NULL));
	assert_int_equal(errno, EADDRINUSE);
	assert_int_equal(stag_heap_detach(heap, true), 0);
	assert_ptr_equal(mmap(address, 4096, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
			 address);
	assert_null(stag_heap_attach(name, NULL));
	assert_int_equal(errno, EADDRINUSE);
	assert_non_null(strstr(stag_heap_error(), "address"));
	munmap(address, 4096);
	heap = stag_heap_attach(name, NULL);
	assert_non_null(heap);
	check_and_destroy_heap(heap);
}

static void processes_that_are_attached_survive_an_unlink(void **state)
{
	struct stag_heap *heap = make_heap(0, 64), *other;
	struct child child = start_child();
	uint64_t ptr;

	assert_int_equal(stag_heap_unlink(name), 0);
	assert_false(exists());
	ptr = order_child(&child, ALLOC, 64, 0);
	order_child(&child, FILL, ptr, 64);
	assert_int_equal(*(unsigned char *)ptr, 0xa5);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	other = make_heap(0, 64);
	assert_int_equal(query(other).processes, 1);
	end_child(&child);
	assert_true(exists());
	check_and_destroy_heap(other);
}

static void attaching_beyond_the_process_limit_is_refused(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child children[STAG_HEAP_MAX_PROCS - 1], one_more;

	for (size_t i = 0; i < STAG_HEAP_MAX_PROCS - 1; i++)
		children[i] = start_child();
	one_more = execute_self("serve");
	assert_int_equal(order_child(&one_more, CREATE, 0, 0), EUSERS);
	kill_child(&children[7]);
	assert_int_equal(order_child(&one_more, CREATE, 0, 0), 0);
	end_child(&one_more);
	for (size_t i = 0; i < STAG_HEAP_MAX_PROCS - 1; i++)
		if (i != 7)
			end_child(&children[i]);
	check_and_destroy_heap(heap);
}

static void a_forked_child_must_attach_itself(void **state)
{
#if defined(__SANITIZE_THREAD__)
	skip();
#endif
	struct stag_heap *heap = make_heap(0, 64), *own;
	void *ptr = stag_heap_alloc(heap, 64);
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (stag_heap_alloc(heap, 64) || errno != EINVAL)
			_exit(1);
		if (stag_heap_alloc(heap, MIB) || errno != EINVAL)
			_exit(2);
		own = stag_heap_attach(name, NULL);
		if (!own || !stag_heap_alloc(own, 64))
			_exit(3);
		stag_heap_free(own, ptr);
		_exit(stag_heap_detach(own, false) || stag_heap_detach(heap, false) ? 4 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_int_equal(query(heap).allocations, 0);
	check_and_destroy_heap(heap);
}

#define refused(call) (errno = 0, !(call) && errno == EINVAL && stag_heap_error()[0] != '\0')

/* Returns the number of the first call that does not refuse an inherited heap. */
static int calls_that_do_not_refuse(struct stag_heap *heap, void *ptr)
{
	struct stag_heap_process process;
	struct stag_heap_stats stats;
	struct stag_heap_block block;
	struct stag_heap_keys keys;
	unsigned int device;
	uint32_t at = 0;

	if (!refused(stag_heap_alloc(heap, 64)) || !refused(stag_heap_alloc(heap, MIB)) ||
	    !refused(stag_heap_calloc(heap, 3, 64)) || !refused(stag_heap_aligned(heap, 64, 64)))
		return 1;
	if (!refused(stag_heap_realloc(heap, ptr, 1000)) ||
	    !refused(stag_heap_realloc(heap, NULL, 64)) ||
	    !refused(stag_heap_usable_size(heap, ptr)))
		return 2;
	if (stag_heap_share(heap, ptr) != EINVAL || stag_heap_unshare(heap, ptr) != EINVAL)
		return 3;
	if (!refused(stag_heap_trim(heap)) || !refused(stag_heap_reap(heap, 0)))
		return 4;
	if (stag_heap_add_device(heap, NULL, NULL, &device) != EINVAL ||
	    stag_heap_remove_device(heap, 0) != EINVAL ||
	    stag_heap_keys(heap, 0, ptr, &keys) != EINVAL)
		return 5;
	if (stag_heap_query(heap, &stats, sizeof(stats)) != EINVAL ||
	    !refused(stag_heap_next_block(heap, &at, &block)) ||
	    !refused(stag_heap_next_process(heap, &at, &process)))
		return 6;
	if (stag_heap_check(heap, NULL) != 1)
		return 7;
	stag_heap_free(heap, NULL);
	return stag_heap_detach(heap, false) == 0 ? 0 : 8;
}

static void expect_success(pid_t pid)
{
	int status;

	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* Forks and calls from a thread that has used the heap, and from one that has not. */
static void *fork_and_call(void *arg)
{
	struct stag_heap *heap = arg;
	pid_t pid = fork();

	if (pid == 0)
		_exit(calls_that_do_not_refuse(heap, heap->area + heap->geo.header_size));
	expect_success(pid);
	return NULL;
}

static void every_call_refuses_an_inherited_heap(void **state)
{
#if defined(__SANITIZE_THREAD__)
	skip();
#endif
	struct stag_heap *heap = make_heap(0, 64);
	void *ptr = stag_heap_alloc(heap, 64);
	pthread_t thread;

	fork_and_call(heap);
	assert_int_equal(pthread_create(&thread, NULL, fork_and_call, heap), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	stag_heap_free(heap, ptr);
	check_and_destroy_heap(heap);
}

/* A heap that is opened only to look at it refuses all other calls, too. */
static void every_call_refuses_a_read_only_view(void **state)
{
	struct stag_heap *heap = make_heap(0, 64), *picture;
	void *ptr = stag_heap_alloc(heap, 64);
	struct stag_heap_keys keys;
	unsigned int device;

	assert_int_equal(stag_heap_share(heap, ptr), 0);
	assert_int_equal(stag_heap_detach(heap, true), 0);
	picture = stag_heap_look(name);
	assert_non_null(picture);
	assert_true(refused(stag_heap_alloc(picture, 64)));
	assert_true(refused(stag_heap_alloc(picture, MIB)));
	assert_true(refused(stag_heap_realloc(picture, ptr, 1000)));
	assert_true(refused(stag_heap_usable_size(picture, ptr)));
	assert_int_equal(stag_heap_share(picture, ptr), EINVAL);
	assert_int_equal(stag_heap_unshare(picture, ptr), EINVAL);
	assert_true(refused(stag_heap_trim(picture)));
	assert_true(refused(stag_heap_reap(picture, 0)));
	assert_int_equal(stag_heap_add_device(picture, NULL, NULL, &device), EINVAL);
	assert_int_equal(stag_heap_remove_device(picture, 0), EINVAL);
	assert_int_equal(stag_heap_keys(picture, 0, ptr, &keys), EINVAL);
	assert_int_equal(stag_heap_detach(picture, false), 0);
	heap = stag_heap_attach(name, NULL);
	stag_heap_free(heap, ptr);
	check_and_destroy_heap(heap);
}

/*
 * No process was left to remove the name: the next process to attach finds the heap, and the
 * objects that were shared in it.
 */
static void a_heap_whose_last_process_was_killed_can_be_attached(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();
	unsigned char *shared = (unsigned char *)order_child(&child, ALLOC, 64, 0);

	order_child(&child, FILL, (uintptr_t)shared, 64);
	order_child(&child, SHARE, (uintptr_t)shared, 0);
	order_child(&child, ALLOC, 5 * MIB, 0);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	kill_child(&child);
	assert_true(exists());
	heap = stag_heap_create(name, NULL);
	assert_non_null(heap);
	assert_int_equal(query(heap).processes, 1);
	assert_int_equal(query(heap).blocks, 1);
	assert_int_equal(shared[63], 0xa5);
	expect_sound(heap);
	stag_heap_free(heap, shared);
	assert_int_equal(query(heap).blocks, 0);
	check_and_destroy_heap(heap);
}

/* Attaches, forks, and dies before its child does. */
static void leave_a_fork(int from)
{
	struct stag_heap *heap = stag_heap_attach(name, NULL);
	char byte;

	if (!heap || !stag_heap_alloc(heap, 64))
		_exit(1);
	if (fork() == 0)
		_exit(read(from, &byte, 1) == 0 ? 0 : 1);
	_exit(0);
}

static void a_fork_does_not_keep_its_dead_parent_alive(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = execute_self("fork");
	int status;

	assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
	assert_int_equal(status, 0);
	while (query(heap).processes != 1)
		stag_heap_reap(heap, 0);
	close(child.to);
	check_and_destroy_heap(heap);
}

static void attach_and_detach(void)
{
	struct stag_heap_attr attr = {.max_blocks = 64};

	for (int i = 0; i < 200; i++) {
		struct stag_heap *heap = stag_heap_create(name, &attr);

		if (!heap)
			_exit(1);
		for (int k = 0; k < 8; k++)
			stag_heap_free(heap, stag_heap_alloc(heap, (size_t)(i * k * 31)));
		if (stag_heap_check(heap, stderr) != 0 || stag_heap_detach(heap, false) != 0)
			_exit(2);
	}
	_exit(0);
}

/* No process ends up in a heap that others cannot find, and the last one removes the name. */
static void concurrent_attach_and_detach_is_safe(void **state)
{
	struct child children[3];

	for (int i = 0; i < 3; i++)
		children[i] = execute_self("come-and-go");
	for (int i = 0; i < 3; i++)
		expect_exit(&children[i]);
	assert_false(exists());
}

/* ---- read-only views ---------------------------------------------------------------------- */

/* Creates a heap that only a child has attached. */
static struct child create_heap_of_child(void)
{
	struct stag_heap *heap = make_heap(0, 64);
	struct child child = start_child();

	assert_int_equal(stag_heap_detach(heap, true), 0);
	return child;
}

static struct stag_heap *open_view(void)
{
	struct stag_heap *heap = stag_heap_look(name);

	if (!heap)
		fail_msg("%s: %s", strerror(errno), stag_heap_error());
	return heap;
}

static void a_view_shows_all_of_the_heap(void **state)
{
	struct child child = create_heap_of_child();
	uint64_t small = order_child(&child, ALLOC, 64, 0),
		 large = order_child(&child, ALLOC, 5 * MIB, 0);
	struct stag_heap *heap = NULL;
	struct stag_heap_process process;
	struct stag_heap_block block;
	uint32_t i = 0, seen = 0;

	order_child(&child, SHARE, large, 0);
	heap = open_view();
	expect_sound(heap);
	assert_int_equal(query(heap).blocks, 2);
	assert_int_equal(query(heap).allocations, 2);
	assert_int_equal(query(heap).allocated_bytes, 64 + 5 * MIB);
	assert_int_equal(query(heap).shared, 1);
	assert_int_equal(query(heap).processes, 1);
	assert_int_equal(query(heap).dead_processes, 0);
	assert_true(small - query(heap).address < query(heap).size);
	assert_true(stag_heap_next_process(heap, &i, &process));
	assert_int_equal(process.pid, child.pid);
	assert_false(process.dead);
	assert_int_equal(process.blocks_taken, 2);
	assert_false(stag_heap_next_process(heap, &i, &process));
	for (i = 0; stag_heap_next_block(heap, &i, &block); seen++) {
		assert_int_equal(block.owner_pid, child.pid);
		assert_int_equal(block.owner, process.number);
		assert_int_equal(block.allocations, 1);
		assert_int_equal(block.shared, large - block.address < block.size);
	}
	assert_int_equal(seen, 2);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	order_child(&child, FREE, large, 0);
	end_child(&child);
}

/* A view shows the heap at the time it was opened; the next one is independent of it. */
static void a_view_leaves_no_trace_in_the_heap(void **state)
{
	struct child child = create_heap_of_child();
	uint64_t ptr = order_child(&child, ALLOC, 5 * MIB, 0);
	struct stag_heap *heap = open_view(), *later;
	uint64_t before = committed(heap);
	struct stat st[2];

	assert_int_equal(fstat(heap->files.fd, &st[0]), 0);
	query(heap);
	expect_sound(heap);
	assert_null(stag_heap_alloc(heap, 64));
	assert_int_equal(stag_heap_trim(heap), 0);
	assert_int_equal(stag_heap_reap(heap, STAG_HEAP_REAP_SHARED), 0);
	assert_int_equal(fstat(heap->files.fd, &st[1]), 0);
	assert_int_equal(st[0].st_mtim.tv_nsec, st[1].st_mtim.tv_nsec);
	order_child(&child, FREE, ptr, 0);
	order_child(&child, TRIM, 0, 0);
	assert_int_equal(query(heap).blocks, 0); /* entries are read when they are reported */
	assert_true(committed(heap) <= before - 5 * MIB);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	assert_true(exists());
	later = open_view();
	assert_int_equal(query(later).processes, 1);
	end_child(&child);
	assert_false(exists());
	assert_int_equal(stag_heap_detach(later, false), 0);
}

static void a_view_shows_dead_processes_without_reaping_them(void **state)
{
	struct child child = create_heap_of_child();
	struct stag_heap_process process;

	order_child(&child, ALLOC, 64, 0);
	kill_child(&child);
	for (int again = 0; again < 2; again++) {
		struct stag_heap *heap = open_view();
		uint32_t i = 0;

		assert_int_equal(query(heap).processes, 1);
		assert_int_equal(query(heap).dead_processes, 1);
		assert_int_equal(query(heap).blocks, 1);
		assert_true(stag_heap_next_process(heap, &i, &process));
		assert_true(process.dead);
		expect_sound(heap);
		assert_int_equal(stag_heap_detach(heap, false), 0);
	}
	check_and_destroy_heap(stag_heap_attach(name, NULL));
}

static int is_ours(const char *found, void *arg)
{
	return strcmp(found, arg) == 0 ? 42 : 0;
}

static void heaps_are_listed(void **state)
{
	struct stag_heap *heap = make_heap(0, 64);

	assert_int_equal(stag_heap_list(is_ours, name), 42);
	check_and_destroy_heap(heap);
	assert_int_equal(stag_heap_list(is_ours, name), 0);
	assert_null(stag_heap_look(name));
	assert_int_equal(errno, ENOENT);
}

/*
 * Writes random words into the process table, the descriptor table, the hints, and the first
 * block's header.
 */
static void corrupt_heap(int fd, const struct heap_header *header, unsigned int seed)
{
	uint64_t control = header->control_size, wild = UINT64_MAX / (seed + 2);

	srandom(seed);
	assert_int_equal(pwrite(fd, &wild, 8, offsetof(struct heap_header, descs_offset)), 8);
	for (int i = 0; i < 500; i++) {
		uint64_t word = (uint64_t)random() << (random() % 34), size = 1u << random() % 4;
		uint64_t at = HEAP_PAGE + (uint64_t)random() % (control - HEAP_PAGE);

		if (random() % 2)
			at = header->descs_offset + (uint64_t)random() % 256;
		else if (random() % 2)
			at = header->area_offset + (uint64_t)random() % (16 * KIB);
		assert_int_equal(pwrite(fd, &word, size, (off_t)(at / size * size)), size);
	}
}

/*
 * The file to remove or to punch holes into is not taken from the shared object: any user may have
 * put that there, naming a file of someone else's.
 */
static void a_heap_that_names_a_foreign_file_does_not_damage_it(void **state)
{
	struct stag_heap *heap = make_heap(256 * KIB, 4);
	char path[128], theirs[] = "/tmp/stag-heap.of-others.XXXXXX";
	struct heap_header header;
	int fd, victim = mkstemp(theirs);

	assert_int_equal(write(victim, "precious", 8), 8);
	assert_int_equal(stag_heap_detach(heap, true), 0);
	snprintf(path, sizeof(path), "/dev/shm/stag-%u/heap.%s", geteuid(), name);
	fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	snprintf(header.huge_path, sizeof(header.huge_path), "%s", theirs);
	header.huge_shift = 21;
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	assert_null(stag_heap_attach(name, NULL));
	assert_int_equal(errno, EPROTO);
	assert_null(stag_heap_look(name));
	assert_int_equal(errno, EPROTO);
	header.huge_shift = 0;
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	assert_int_equal(stag_heap_unlink(name), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(unlink(theirs), 0);
	close(victim);
	close(fd);
}

/* Any user may put a file there: a view of it must do no harm. */
static void a_view_of_a_corrupt_heap_does_not_crash(void **state)
{
	struct stag_heap *heap = make_heap(256 * KIB, 4);
	struct child child = start_child();
	struct heap_header header;
	uint64_t nowhere = 0;
	char path[128];
	void *good;
	int fd;

	order_child(&child, ALLOC, 64, 0);
	order_child(&child, ALLOC, 600 * KIB, 0);
	assert_int_equal(stag_heap_detach(heap, true), 0);
	kill_child(&child);
	snprintf(path, sizeof(path), "/dev/shm/stag-%u/heap.%s", geteuid(), name);
	fd = open(path, O_RDWR);
	assert_int_equal(heap_read_header(fd, &header), 0);
	good = malloc(header.size);
	assert_int_equal(pread(fd, good, header.size, 0), header.size);
	for (unsigned int i = 0; i < 200; i++) {
		assert_int_equal(pwrite(fd, good, header.size, 0), header.size);
		corrupt_heap(fd, &header, i);
		heap = open_view();
		query(heap);
		if (i % 50 == 0)
			assert_true(stag_heap_check(heap, NULL) > 0);
		assert_int_equal(stag_heap_detach(heap, false), 0);
	}
	assert_int_equal(pwrite(fd, &nowhere, 8, offsetof(struct heap_header, address)), 8);
	assert_null(stag_heap_look(name));
	assert_int_equal(errno, EPROTO);
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	assert_int_equal(ftruncate(fd, (off_t)header.control_size), 0);
	heap = open_view();
	query(heap);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	assert_int_equal(ftruncate(fd, 5000), 0);
	assert_null(stag_heap_look(name));
	assert_int_equal(errno, EPROTO);
	unlink(path);
	close(fd);
	free(good);
}

static void run_as_child(const char *what)
{
	if (strcmp(what, "serve") == 0)
		serve_orders(3);
	else if (strcmp(what, "fork") == 0)
		leave_a_fork(3);
	else
		attach_and_detach();
}

/* ---- late notices of frees --------------------------------------------------------------- */

/*
 * A block that passes from this process to the child while a free in it has not been reported to
 * the owner yet.
 */
struct late {
	struct stag_heap *heap;
	struct child child;
	uint32_t index;
	uint64_t group;
	void *theirs; /* the child's object in that block */
};

static uint64_t group_of(struct stag_heap *heap, struct heap_span *span)
{
	return 1ull << (span_first(heap, span) >> heap->geo.group_shift);
}

/* Does the first half of a free by another process: span_free_remote(). */
static struct late free_and_pause(void)
{
	struct late l = {.heap = make_heap(0, 64)};
	char *first = stag_heap_alloc(l.heap, 64), *second = stag_heap_alloc(l.heap, 64);
	struct heap_span *span =
		block_spans(l.heap, heap_block_at(l.heap, heap_index(l.heap, first)));
	uint32_t number;

	l.child = start_child();
	l.index = heap_index(l.heap, first);
	while (heap_load(&span->owner) != thread_here.thread->tag)
		span++;
	number = (uint32_t)((uintptr_t)first - heap_load(&span->base)) / 64;
	l.group = group_of(l.heap, span);
	atomic_fetch_or(
		&block_bits(l.heap, heap_block_at(l.heap, l.index), l.heap->geo.freed_offset,
			    span_first(l.heap, span))[number / 64],
		1ull << (number % 64));
	order_child(&l.child, FREE, (uintptr_t)second, 0); /* so that the owner collects */
	return l;
}

static void pass_block_to_child(struct late *l)
{
	stag_heap_trim(l->heap);
	assert_int_equal(query(l->heap).blocks, 0);
	/* not in a retained span, which is checked in any case */
	l->theirs = (void *)order_child(&l->child, ALLOC, 500000, 0);
	assert_int_equal(heap_index(l->heap, l->theirs), l->index);
	assert_int_equal(group_of(l->heap, block_spans(l->heap, heap_block_at(l->heap, l->index)) +
						   l->heap->geo.header_slices),
			 l->group);
}

/* Checks that the child collects the object of its own that we freed. */
static void expect_free_is_collected(struct late *l)
{
	stag_heap_trim(l->heap);
	order_child(&l->child, TRIM, 0, 0);
	assert_int_equal(query(l->heap).blocks, 0);
	end_child(&l->child);
	check_and_destroy_heap(l->heap);
}

static void a_late_notice_of_a_free_reaches_the_new_owner(void **state)
{
	struct late l = free_and_pause();

	pass_block_to_child(&l);
	span_tell_owner(l.heap, l.index, l.group);
	stag_heap_trim(l.heap);
	stag_heap_free(l.heap, l.theirs);
	expect_free_is_collected(&l);
}

/* The freeing process read the owner before the owner changed. */
static void a_notice_to_the_old_owner_does_not_suppress_later_ones(void **state)
{
	struct late l = free_and_pause();

	stag_heap_trim(l.heap);
	atomic_fetch_or(&l.heap->hints.pending[l.index], l.group);
	pass_block_to_child(&l);
	hint_set(&l.heap->hints.pending_blocks, l.index);
	stag_heap_free(l.heap, l.theirs);
	expect_free_is_collected(&l);
}

static void a_spurious_notice_of_a_free_does_not_lose_others(void **state)
{
	struct late l = free_and_pause();

	pass_block_to_child(&l);
	stag_heap_free(l.heap, l.theirs);
	hint_set(&l.heap->hints.pending_blocks, l.index);
	expect_free_is_collected(&l);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pointer_means_the_same_everywhere),
		cmocka_unit_test(processes_do_not_share_blocks),
		cmocka_unit_test(a_late_notice_of_a_free_reaches_the_new_owner),
		cmocka_unit_test(a_notice_to_the_old_owner_does_not_suppress_later_ones),
		cmocka_unit_test(a_spurious_notice_of_a_free_does_not_lose_others),
		cmocka_unit_test(memory_freed_by_another_process_is_reused),
		cmocka_unit_test(an_idle_block_keeps_its_block_id_across_owners),
		cmocka_unit_test(one_process_may_use_all_blocks_that_another_freed),
		cmocka_unit_test(memory_of_a_dead_process_is_reclaimed),
		cmocka_unit_test(dead_processes_are_reaped_in_the_background),
		cmocka_unit_test(a_full_heap_reaps_dead_processes),
		cmocka_unit_test(shared_memory_of_a_dead_process_lives_until_it_is_freed),
		cmocka_unit_test(reap_shared_frees_shared_memory_of_dead_processes),
		cmocka_unit_test(sharing_can_be_revoked),
		cmocka_unit_test(freeing_ends_sharing),
		cmocka_unit_test(transitions_begun_by_a_dead_process_are_completed),
		cmocka_unit_test(a_free_without_its_hint_is_found),
		cmocka_unit_test(an_idle_block_without_its_hint_is_found),
		cmocka_unit_test(a_slot_with_a_hazard_is_passed_over),
		cmocka_unit_test(a_slot_with_a_hazard_is_passed_over_after_its_taker_died),
		cmocka_unit_test(the_last_detach_removes_the_heap),
		cmocka_unit_test(heap_stays_on_request_or_while_shared_memory_is_left),
		cmocka_unit_test(dead_processes_do_not_keep_a_heap),
		cmocka_unit_test(names_and_numbers_are_checked),
		cmocka_unit_test(an_object_that_is_no_heap_is_refused),
		cmocka_unit_test(an_address_in_use_is_reported_as_such),
		cmocka_unit_test(processes_that_are_attached_survive_an_unlink),
		cmocka_unit_test(attaching_beyond_the_process_limit_is_refused),
		cmocka_unit_test(a_forked_child_must_attach_itself),
		cmocka_unit_test(every_call_refuses_an_inherited_heap),
		cmocka_unit_test(every_call_refuses_a_read_only_view),
		cmocka_unit_test(a_heap_whose_last_process_was_killed_can_be_attached),
		cmocka_unit_test(a_fork_does_not_keep_its_dead_parent_alive),
		cmocka_unit_test(concurrent_attach_and_detach_is_safe),
		cmocka_unit_test(a_view_shows_all_of_the_heap),
		cmocka_unit_test(a_view_leaves_no_trace_in_the_heap),
		cmocka_unit_test(a_view_shows_dead_processes_without_reaping_them),
		cmocka_unit_test(heaps_are_listed),
		cmocka_unit_test(a_view_of_a_corrupt_heap_does_not_crash),
		cmocka_unit_test(a_heap_that_names_a_foreign_file_does_not_damage_it),
	};

	if (argc == 3) {
		snprintf(name, sizeof(name), "%s", argv[2]);
		run_as_child(argv[1]);
	}
	return cmocka_run_group_tests_name("heap/processes", tests, NULL, NULL);
}
