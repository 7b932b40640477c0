// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_step.c - a process dies at each instruction of each critical section.
 *
 * The victim stops before the section, and is single-stepped through it with ptrace until it is
 * killed: after a given number of instructions, or after a given number of changes of the shared
 * memory (two deaths differ only if such a change lies between them). The survivor, which is this
 * process, then checks that the heap is consistent, that its own memory and the shared memory are
 * untouched, and that after reaping not a page more is used than before.
 *
 * With STAG_LONG the victim dies after every change, and after every instruction or as many as
 * there is time for; else at random points. A first argument selects sections by name, with "*" as
 * a wildcard.
 */
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <rdma/rdma_cma.h>

#include "dice.h"
#include "heap/heap.h"

#define KIB	     1024ul
#define BLOCK	     (256 * KIB)
#define MAX_BLOCKS   130u /* hint maps of two levels, with two slots alone in their word */
#define RUN	     (300 * KIB)
#define MEDIUM	     (100 * KIB)
#define PIECES	     64u
#define STEPS_IN_ALL 1000000ul /* instructions of one section with STAG_LONG: half a minute */
#define SELDOM	     4ul       /* run one section in so many where programs are slow */
#define MOST_WATCH   (1024 * KIB)

#if defined(__SANITIZE_THREAD__)
#define THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define THREAD_SANITIZED 1
#endif
#endif
#ifndef THREAD_SANITIZED
#define THREAD_SANITIZED 0
#endif

/*
 * A section: what the survivor does around it, what the victim does to prepare, and the traced act.
 */
struct scene {
	const char *name;
	/* Approximate totals, to choose a death from; changes 0: choose by steps. */
	unsigned int steps, changes;
	bool stranger; /* the victim has not attached the heap when it starts */
	bool device;   /* the victim has a device */
	void (*before)(void);
	void (*prepare)(struct stag_heap *heap);
	void (*meanwhile)(void); /* run by the survivor while the victim waits */
	void (*act)(struct stag_heap *heap);
	void (*after)(void); /* run by the survivor after the victim is dead and reaped */
};

/* Memory that both processes share, outside the heap. */
struct note {
	void *ptr[PIECES];
	size_t size[PIECES];
	unsigned int n;		    /* number of ptr[], or a value of the scene's own */
	volatile unsigned int done; /* how far the victim came */
	unsigned int device;
};

static struct stag_heap *heap;
static struct note *note, *others; /* the victim's note; that of a victim that died before */
static char name[STAG_HEAP_NAME_MAX], other_name[STAG_HEAP_NAME_MAX];
static char where[160];

#define expect(what)                                                                               \
	do {                                                                                       \
		if (!(what))                                                                       \
			fail_msg("%s: failed: %s", where, #what);                                  \
	} while (0)

/* ---- filled objects -------------------------------------------------------------- */

static uint8_t byte_of(const void *ptr, size_t i)
{
	return (uint8_t)((uintptr_t)ptr / 16 + i * 7 + i / 251);
}

static void fill(void *ptr, size_t size)
{
	for (size_t i = 0; i < size; i++)
		((uint8_t *)ptr)[i] = byte_of(ptr, i);
}

static bool is_filled(const void *ptr, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (((const uint8_t *)ptr)[i] != byte_of(ptr, i))
			return false;
	return true;
}

static void *piece(struct stag_heap *from, size_t size)
{
	void *ptr = stag_heap_alloc(from, size);

	if (ptr)
		fill(ptr, size);
	return ptr;
}

static void note_piece(struct stag_heap *from, size_t size)
{
	note->ptr[note->n] = piece(from, size);
	note->size[note->n++] = size;
}

static const size_t three_sizes[] = {64, MEDIUM, RUN};

static void note_three(struct stag_heap *from)
{
	for (unsigned int i = 0; i < 3; i++)
		note_piece(from, three_sizes[i]);
}

static void share_all(struct stag_heap *from)
{
	for (unsigned int i = 0; i < note->n; i++)
		stag_heap_share(from, note->ptr[i]);
}

static void expect_filled(const struct note *of, unsigned int from, unsigned int to)
{
	for (unsigned int i = from; i < to; i++)
		expect(is_filled(of->ptr[i], of->size[i]));
}

/* ---- the survivor's own objects --------------------------------------------------- */

static const size_t own_sizes[] = {24, 700, 5000, MEDIUM, RUN};
#define NUM_OWN (sizeof(own_sizes) / sizeof(own_sizes[0]))
static void *own[NUM_OWN];
static uint64_t own_blocks, own_memory;

static struct stag_heap_stats query(struct stag_heap *of)
{
	struct stag_heap_stats stats;

	expect(stag_heap_query(of, &stats, sizeof(stats)) == 0);
	return stats;
}

static uint64_t committed(void)
{
	struct stat st;

	expect(fstat(heap->files.fd, &st) == 0);
	return (uint64_t)st.st_blocks * 512;
}

/*
 * Creates the heap. The topmost slots stay open, to leave room for a victim's run. Only the test
 * reaps.
 */
static void open_heap(void)
{
	struct stag_heap_attr attr = {.block_size = BLOCK,
				      .max_blocks = MAX_BLOCKS,
				      .retain_ms = -1,
				      .flags = STAG_HEAP_EXCLUSIVE};
	void *top;

	snprintf(name, sizeof(name), "test-step.%d", getpid());
	snprintf(other_name, sizeof(other_name), "test-step.%d.other", getpid());
	heap = stag_heap_create(name, &attr);
	if (!heap)
		fail_msg("%s", stag_heap_error());
	maintain_stop(heap);
	top = stag_heap_alloc(heap, RUN);
	for (size_t i = 0; i < NUM_OWN; i++)
		expect((own[i] = piece(heap, own_sizes[i])) != NULL);
	stag_heap_share(heap, own[1]);
	stag_heap_share(heap, own[4]);
	stag_heap_free(heap, top);
	stag_heap_trim(heap);
	own_blocks = query(heap).blocks;
	own_memory = committed();
}

static int close_heap(void **state)
{
	if (!heap)
		return 0;
	for (size_t i = 0; i < NUM_OWN; i++)
		stag_heap_free(heap, own[i]);
	stag_heap_detach(heap, false);
	heap = NULL;
	return 0;
}

/*
 * Checks the hints. A missing one costs memory: an open entry that is never found, an idle one that
 * is never released.
 */
static void expect_hints(void)
{
	for (uint32_t i = 0; i < MAX_BLOCKS; i++) {
		enum block_phase phase = desc_phase(atomic_load(&heap->descs[i].state));

		expect(phase == BLOCK_OPEN || phase == BLOCK_LIVE || phase == BLOCK_TAIL);
		if (phase == BLOCK_OPEN)
			expect(hint_next(&heap->hints.open, i) == i);
	}
}

static void expect_no_other_process(void)
{
	expect(query(heap).processes == 1);
	for (unsigned int i = 1; i < STAG_HEAP_MAX_PROCS; i++)
		for (unsigned int k = 0; k < HEAP_HAZARDS; k++)
			expect(atomic_load(&heap->procs[i].hazards[k]) == 0);
}

/* Checks that the heap works before the dead are reaped: nothing waits for them. */
static void expect_usable(void)
{
	for (size_t i = 0; i < 3; i++) {
		void *ptr = piece(heap, three_sizes[i]);

		expect(ptr != NULL);
		expect(is_filled(ptr, three_sizes[i]));
		stag_heap_free(heap, ptr);
	}
	expect(stag_heap_check(heap, stderr) == 0);
}

static void expect_own(void)
{
	for (size_t i = 0; i < NUM_OWN; i++)
		expect(is_filled(own[i], own_sizes[i]));
}

/* Checks that only the survivor's own memory is left. */
static void expect_as_before(void)
{
	stag_heap_reap(heap, STAG_HEAP_REAP_SHARED);
	stag_heap_trim(heap);
	expect(stag_heap_check(heap, stderr) == 0);
	expect(query(heap).allocations == NUM_OWN);
	expect(query(heap).blocks == own_blocks);
	expect(committed() == own_memory);
	expect_hints();
	expect_own();
}

/* ---- the victim -------------------------------------------------------------------- */

static void get_device(struct stag_heap *own_heap)
{
	struct ibv_context **contexts = rdma_get_devices(NULL);
	struct ibv_pd *pd = contexts ? ibv_alloc_pd(contexts[0]) : NULL;

	if (!pd || stag_heap_add_device(own_heap, pd, NULL, &note->device) != 0)
		_exit(91);
}

/* Leaves a hazard as if a peer's access to the survivor's memory was in flight. */
static void leave_a_hazard(struct stag_heap *own_heap)
{
	atomic_store(&own_heap->self->hazards[7], heap_index(own_heap, own[0]) + 1);
}

static struct stag_heap *start_as_victim(const struct scene *scene)
{
	struct stag_heap_attr attr = {.retain_ms = -1};
	struct stag_heap *own_heap = stag_heap_attach(name, &attr);

	if (!own_heap)
		_exit(90);
	maintain_stop(own_heap);
	leave_a_hazard(own_heap);
	if (scene->device)
		get_device(own_heap);
	return own_heap;
}

static void run_victim(const struct scene *scene)
{
	struct stag_heap *own_heap;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	own_heap = scene->stranger ? NULL : start_as_victim(scene);
	if (scene->prepare)
		scene->prepare(own_heap);
	if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
		_exit(92);
	raise(SIGSTOP);
	scene->act(own_heap);
	raise(SIGSTOP);
	_exit(0);
}

static void expect_stop(pid_t pid, int sig)
{
	int status;

	expect(waitpid(pid, &status, 0) == pid);
	if (!WIFSTOPPED(status) || WSTOPSIG(status) != sig)
		fail_msg("%s: the victim did not stop as expected (%#x)", where, status);
}

static pid_t start_victim(const struct scene *scene)
{
	pid_t pid;

	memset(note, 0, sizeof(*note));
	if (scene->before)
		scene->before();
	pid = fork();
	expect(pid >= 0);
	if (pid == 0)
		run_victim(scene);
	expect_stop(pid, SIGSTOP);
	if (scene->meanwhile)
		scene->meanwhile();
	return pid;
}

/* Steps one instruction. Returns false when the victim has finished its act. */
static bool step_victim(pid_t pid)
{
	int status;

	expect(ptrace(PTRACE_SINGLESTEP, pid, 0, 0) == 0);
	expect(waitpid(pid, &status, 0) == pid);
	if (!WIFSTOPPED(status))
		fail_msg("%s: the victim did not stop as expected (%#x)", where, status);
	return WSTOPSIG(status) == SIGTRAP;
}

static void kill_victim(pid_t pid)
{
	int status;

	kill(pid, SIGKILL);
	expect(waitpid(pid, &status, 0) == pid);
	expect(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* ---- changes of the shared memory ------------------------------------------------------ */

/* Copies of the shared memory, as of the last comparison. */
static struct {
	uint8_t *copy;
	size_t used;
	bool changed;
} watched;

static void watch_memory(const void *at, size_t size)
{
	uint8_t *copy = watched.copy + watched.used;

	watched.used += size;
	expect(watched.used <= MOST_WATCH);
	if (memcmp(copy, at, size) == 0)
		return;
	memcpy(copy, at, size);
	watched.changed = true;
}

/* Watches a block's header only if its memory is allocated: reading it would allocate it. */
static void watch_block(uint32_t index)
{
	uint64_t state = atomic_load(&heap->descs[index].state);
	enum block_phase phase = desc_phase(state);

	if (phase != BLOCK_LIVE && phase != BLOCK_IDLE && phase != BLOCK_ORPHAN)
		return;
	watch_memory(heap_block_at(heap, index),
		     desc_is_run(state) ? HEAP_PAGE : heap->geo.header_size);
}

static const uint8_t *other_table; /* block table of the second heap; NULL: there is none */

static void map_other(void)
{
	char path[128];
	void *at;
	int fd;

	snprintf(path, sizeof(path), "/dev/shm/stag-%u/heap.%s", geteuid(), other_name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	at = mmap(NULL, heap->header->control_size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	expect(at != MAP_FAILED);
	other_table = at;
}

static void unmap_other(void)
{
	if (other_table)
		munmap((void *)other_table, heap->header->control_size);
	other_table = NULL;
}

static bool has_changed(void)
{
	const struct heap_header *header = heap->header;

	watched.used = 0;
	watched.changed = false;
	watch_memory(header, sizeof(*header));
	watch_memory(heap->procs, 4 * sizeof(heap->procs[0]));
	watch_memory(heap->descs, header->control_size - header->descs_offset);
	for (uint32_t i = 0; i < MAX_BLOCKS; i++)
		watch_block(i);
	if (other_table)
		watch_memory(other_table, header->control_size);
	return watched.changed;
}

/* ---- deaths ----------------------------------------------------------------------------- */

struct length {
	unsigned long steps, changes;
};

static struct length walk_victim(pid_t pid, unsigned long steps, unsigned long changes)
{
	struct length gone = {0};

	if (changes != ULONG_MAX)
		has_changed();
	while (gone.steps < steps && gone.changes < changes && step_victim(pid)) {
		gone.steps++;
		if (changes != ULONG_MAX)
			gone.changes += has_changed();
	}
	return gone;
}

static struct length kill_and_check(const struct scene *scene, unsigned long steps,
				    unsigned long changes)
{
	pid_t pid = start_victim(scene);
	struct length gone;

	map_other();
	gone = walk_victim(pid, steps, changes);
	kill_victim(pid);
	unmap_other();
	expect_usable();
	stag_heap_reap(heap, 0);
	expect_no_other_process();
	expect(stag_heap_check(heap, stderr) == 0);
	expect_own();
	if (scene->after)
		scene->after();
	expect_as_before();
	return gone;
}

static void kill_after_changes(const struct scene *scene, unsigned long n)
{
	snprintf(where, sizeof(where), "%s, after change %lu", scene->name, n);
	kill_and_check(scene, ULONG_MAX, n);
}

static void kill_after_steps(const struct scene *scene, unsigned long n)
{
	snprintf(where, sizeof(where), "%s, after %lu instructions", scene->name, n);
	kill_and_check(scene, n, ULONG_MAX);
}

/*
 * Kills after every change, and after as many instructions as there is time for: if that is all of
 * them, in order.
 */
static void kill_everywhere(const struct scene *scene)
{
	struct length all;
	unsigned long n;

	snprintf(where, sizeof(where), "%s, to its end", scene->name);
	all = kill_and_check(scene, ULONG_MAX - 1, ULONG_MAX - 1);
	for (unsigned long i = 1; i <= all.changes; i++)
		kill_after_changes(scene, i);
	n = lessened(STEPS_IN_ALL) / (all.steps / 2);
	n = n < all.steps ? n : all.steps;
	for (unsigned long i = 0; i < n; i++)
		kill_after_steps(scene, n == all.steps ? i : dice(all.steps));
	printf("%s: %lu instructions, %lu changes; died after %lu and %lu of them\n", scene->name,
	       all.steps, all.changes, n, all.changes);
}

/* Kills at random points; long sections less often. */
static void kill_at_random(const struct scene *scene)
{
	unsigned long n = lessened(scene->steps < 3000 ? 3 : 1);

	for (unsigned long i = 0; i < n; i++) {
		if (scene->changes != 0 && one_in(2))
			kill_after_changes(scene, 1 + dice(scene->changes));
		else
			kill_after_steps(scene, dice(scene->steps));
		print_message("%s\n", where);
	}
}

static void run_scene(void **state)
{
	const struct scene *scene = *state;

	if (!heap)
		open_heap();
	if (getenv("STAG_LONG"))
		kill_everywhere(scene);
	else if (lessened(SELDOM) == SELDOM || one_in(SELDOM))
		kill_at_random(scene);
	else
		skip();
}

/* ---- sections: allocating ----------------------------------------------------------------- */

static void leave_idle_block(void)
{
	int64_t index = block_take(heap);

	expect(index >= 0);
	block_make_idle(heap, (uint32_t)index);
}

static void leave_idle_run(void)
{
	stag_heap_free(heap, stag_heap_alloc(heap, RUN));
}

static void take_small(struct stag_heap *own_heap)
{
	stag_heap_alloc(own_heap, 64);
}

static void take_medium(struct stag_heap *own_heap)
{
	stag_heap_alloc(own_heap, MEDIUM);
}

static void take_run(struct stag_heap *own_heap)
{
	stag_heap_alloc(own_heap, RUN);
}

static void take_aligned_run(struct stag_heap *own_heap)
{
	stag_heap_aligned(own_heap, 64 * KIB, RUN);
}

/* ---- sections: freeing ---------------------------------------------------------------------- */

static void have_three(struct stag_heap *own_heap)
{
	note_three(own_heap);
}

static void have_run(struct stag_heap *own_heap)
{
	note_piece(own_heap, RUN);
}

static void alloc_and_free_run(struct stag_heap *own_heap)
{
	stag_heap_free(own_heap, stag_heap_alloc(own_heap, RUN));
}

static void have_two_blocks(struct stag_heap *own_heap)
{
	for (int i = 0; i < 4; i++)
		note_piece(own_heap, MEDIUM);
}

static void alloc_and_free_many(struct stag_heap *own_heap)
{
	for (size_t size = 16; size < 2 * MEDIUM; size *= 3)
		note_piece(own_heap, size);
	for (unsigned int i = 0; i < note->n; i++)
		stag_heap_free(own_heap, note->ptr[i]);
}

static void free_noted(struct stag_heap *own_heap)
{
	for (unsigned int i = 0; i < note->n; i++)
		stag_heap_free(own_heap, note->ptr[i]);
}

static void trim(struct stag_heap *own_heap)
{
	stag_heap_trim(own_heap);
}

/* ---- sections: memory of another process ---------------------------------------------------- */

static uint64_t had_before;

static void give_small(void)
{
	had_before = query(heap).allocations;
	note_piece(heap, 64);
}

static void give_medium(void)
{
	had_before = query(heap).allocations;
	note_piece(heap, MEDIUM);
}

static void give_run(void)
{
	had_before = query(heap).allocations;
	note_piece(heap, RUN);
}

/* Frees the objects, or checks that they are untouched. */
static void free_or_expect_untouched(void)
{
	uint64_t now = query(heap).allocations;

	expect(now == had_before || now == had_before + 1);
	if (now == had_before)
		return;
	expect_filled(note, 0, 1);
	stag_heap_free(heap, note->ptr[0]);
}

/* ---- sections: sharing ---------------------------------------------------------------------- */

static void share_noted(struct stag_heap *own_heap)
{
	for (; note->done < note->n; note->done++)
		stag_heap_share(own_heap, note->ptr[note->done]);
}

static void free_shared(unsigned int from, unsigned int to)
{
	expect_filled(note, from, to);
	for (unsigned int i = from; i < to; i++)
		stag_heap_free(heap, note->ptr[i]);
}

static void free_newly_shared(void)
{
	free_shared(0, note->done);
}

static void have_shared_three(struct stag_heap *own_heap)
{
	note_three(own_heap);
	share_all(own_heap);
}

static void unshare_noted(struct stag_heap *own_heap)
{
	for (; note->done < note->n; note->done++)
		stag_heap_unshare(own_heap, note->ptr[note->done]);
}

static void free_still_shared(void)
{
	free_shared(note->done + 1, note->n);
}

static void have_shared_many(struct stag_heap *own_heap)
{
	for (unsigned int i = 0; i < 40; i++)
		note_piece(own_heap, 2000);
	share_all(own_heap);
}

/* Frees the survivor's half of the objects. */
static void free_every_other(void)
{
	for (unsigned int i = 0; i < 40; i += 2)
		stag_heap_free(heap, note->ptr[i]);
}

static void take_many(struct stag_heap *own_heap)
{
	for (int i = 0; i < 60; i++)
		stag_heap_alloc(own_heap, 2000);
}

static void free_the_rest(void)
{
	for (unsigned int i = 1; i < 40; i += 2)
		free_shared(i, i + 1);
}

static void have_shared_piece(struct stag_heap *own_heap)
{
	note_piece(own_heap, 3000);
	share_all(own_heap);
}

static void grow(struct stag_heap *own_heap)
{
	stag_heap_realloc(own_heap, note->ptr[0], 3 * note->size[0]);
}

/* ---- sections: after another process's death ------------------------------------------------ */

static void have_shared_three_and_more(struct stag_heap *own_heap)
{
	have_shared_three(own_heap);
	for (unsigned int i = 0; i < 3; i++)
		piece(own_heap, three_sizes[i]);
	stag_heap_free(own_heap, stag_heap_alloc(own_heap, 2 * RUN));
}

static const struct scene dying = {.name = "dying", .prepare = have_shared_three_and_more};
static const struct scene dying_with_run = {
	.name = "dying in release", .prepare = alloc_and_free_run, .act = trim};

/*
 * Kills a victim after so many instructions of its act, without reaping; its note is kept in
 * `others`.
 */
static void kill_without_reaping(const struct scene *scene, unsigned long steps)
{
	pid_t pid = start_victim(scene);

	walk_victim(pid, steps, ULONG_MAX);
	kill_victim(pid);
	*others = *note;
	memset(note, 0, sizeof(*note));
}

static void leave_a_corpse(void)
{
	kill_without_reaping(&dying, 0);
}

/* Kills a victim at a random point of a release. */
static void leave_a_half_released_run(void)
{
	kill_without_reaping(&dying_with_run, dice(2000));
}

static void leave_orphans(void)
{
	leave_a_corpse();
	stag_heap_reap(heap, 0);
	expect_filled(others, 0, 3);
	*note = *others;
}

static void reap(struct stag_heap *own_heap)
{
	stag_heap_reap(own_heap, 0);
}

static void reap_shared(struct stag_heap *own_heap)
{
	stag_heap_reap(own_heap, STAG_HEAP_REAP_SHARED);
}

static void free_shared_of_first_victim(void)
{
	expect_filled(others, 0, 3);
	for (unsigned int i = 0; i < 3; i++)
		stag_heap_free(heap, others->ptr[i]);
}

static void free_one_by_one(struct stag_heap *own_heap)
{
	for (; note->done < note->n; note->done++)
		stag_heap_free(own_heap, note->ptr[note->done]);
}

/* ---- sections: attaching and detaching ------------------------------------------------------ */

static void attach(struct stag_heap *none)
{
	struct stag_heap_attr attr = {.retain_ms = -1};

	stag_heap_attach(name, &attr);
}

static struct stag_heap *create_other(void)
{
	struct stag_heap_attr attr = {
		.block_size = BLOCK, .max_blocks = MAX_BLOCKS, .retain_ms = -1};

	return stag_heap_create(other_name, &attr);
}

static void create(struct stag_heap *none)
{
	create_other();
}

static void detach(struct stag_heap *own_heap)
{
	stag_heap_detach(own_heap, false);
}

static struct stag_heap *other_heap; /* of the victim */

static void have_other(struct stag_heap *none)
{
	other_heap = create_other();
	if (!other_heap)
		_exit(93);
	maintain_stop(other_heap);
	for (unsigned int i = 0; i < 3; i++)
		piece(other_heap, three_sizes[i]);
	stag_heap_free(other_heap, stag_heap_alloc(other_heap, RUN));
}

static void have_other_with_shared(struct stag_heap *none)
{
	have_other(none);
	note_three(other_heap);
	share_all(other_heap);
}

static void detach_other(struct stag_heap *none)
{
	stag_heap_detach(other_heap, false);
}

static void detach_and_keep_other(struct stag_heap *none)
{
	stag_heap_detach(other_heap, true);
}

static bool other_exists(void)
{
	char path[128];

	snprintf(path, sizeof(path), "/dev/shm/stag-%u/heap.%s", geteuid(), other_name);
	return access(path, F_OK) == 0;
}

/*
 * Attaches whatever was left of the second heap: it must be consistent and empty, and the last
 * detach removes it.
 */
static void use_other(void)
{
	struct stag_heap *left = create_other();
	void *ptr;

	expect(left != NULL);
	expect(stag_heap_check(left, stderr) == 0);
	expect(query(left).processes == 1);
	expect((ptr = piece(left, RUN)) != NULL);
	stag_heap_free(left, ptr);
	stag_heap_reap(left, STAG_HEAP_REAP_SHARED);
	stag_heap_trim(left);
	expect(stag_heap_check(left, stderr) == 0);
	expect(query(left).blocks == 0);
	for (uint32_t i = 0; i < MAX_BLOCKS; i++) {
		expect(desc_phase(atomic_load(&left->descs[i].state)) == BLOCK_OPEN);
		expect(hint_next(&left->hints.open, i) == i);
	}
	expect(stag_heap_detach(left, false) == 0);
	expect(!other_exists());
}

static void use_other_with_shared(void)
{
	struct stag_heap *left = create_other();

	expect(left != NULL);
	if (query(left).blocks != 0)
		expect_filled(note, 0, 3);
	expect(stag_heap_detach(left, false) == 0);
	use_other();
}

/* ---- sections: keys ------------------------------------------------------------------------- */

static void get_keys(struct stag_heap *own_heap)
{
	struct stag_heap_keys keys;

	stag_heap_keys(own_heap, note->device, own[0], &keys);
	stag_heap_keys(own_heap, note->device, own[4], &keys);
}

static void remove_device(struct stag_heap *own_heap)
{
	stag_heap_remove_device(own_heap, note->device);
}

/* ---- all of them ---------------------------------------------------------------------------- */

static const struct scene scenes[] = {
	{.name = "block from the system", .steps = 5100, .changes = 50, .act = take_small},
	{.name = "block from the system, medium", .steps = 2800, .changes = 26, .act = take_medium},
	{.name = "idle block",
	 .steps = 3600,
	 .changes = 46,
	 .before = leave_idle_block,
	 .act = take_small},
	{.name = "run from the system", .steps = 3400, .changes = 12, .act = take_run},
	{.name = "idle run", .steps = 400, .changes = 4, .before = leave_idle_run, .act = take_run},
	{.name = "idle run that does not fit",
	 .steps = 3700,
	 .changes = 13,
	 .before = leave_idle_run,
	 .act = take_aligned_run},
	{.name = "run freed", .steps = 2500, .changes = 5, .prepare = have_run, .act = free_noted},
	{.name = "blocks made idle",
	 .steps = 5100,
	 .changes = 58,
	 .prepare = have_two_blocks,
	 .act = free_noted},
	{.name = "run released",
	 .steps = 2000,
	 .changes = 14,
	 .prepare = alloc_and_free_run,
	 .act = trim},
	{.name = "trim", .steps = 5300, .changes = 65, .prepare = alloc_and_free_many, .act = trim},
	{.name = "free of another process's object",
	 .steps = 2600,
	 .changes = 4,
	 .before = give_small,
	 .act = free_noted,
	 .after = free_or_expect_untouched},
	{.name = "free of another process's slices",
	 .steps = 2600,
	 .changes = 4,
	 .before = give_medium,
	 .act = free_noted,
	 .after = free_or_expect_untouched},
	{.name = "free of another process's run",
	 .steps = 2500,
	 .changes = 5,
	 .before = give_run,
	 .act = free_noted,
	 .after = free_or_expect_untouched},
	{.name = "share",
	 .steps = 600,
	 .changes = 7,
	 .prepare = have_three,
	 .act = share_noted,
	 .after = free_newly_shared},
	{.name = "unshare",
	 .steps = 600,
	 .changes = 3,
	 .prepare = have_shared_three,
	 .act = unshare_noted,
	 .after = free_still_shared},
	{.name = "collect on allocation",
	 .steps = 6800,
	 .changes = 221,
	 .prepare = have_shared_many,
	 .meanwhile = free_every_other,
	 .act = take_many,
	 .after = free_the_rest},
	{.name = "collect on trim",
	 .steps = 1700,
	 .changes = 4,
	 .prepare = have_shared_many,
	 .meanwhile = free_every_other,
	 .act = trim,
	 .after = free_the_rest},
	{.name = "realloc of a shared object",
	 .steps = 4600,
	 .changes = 35,
	 .prepare = have_shared_piece,
	 .act = grow},
	{.name = "reap",
	 .steps = 10000,
	 .changes = 16,
	 .meanwhile = leave_a_corpse,
	 .act = reap,
	 .after = free_shared_of_first_victim},
	{.name = "reap of shared objects",
	 .steps = 14000,
	 .changes = 34,
	 .meanwhile = leave_a_corpse,
	 .act = reap_shared},
	{.name = "reap of a process that died in release",
	 .steps = 10000,
	 .changes = 15,
	 .meanwhile = leave_a_half_released_run,
	 .act = reap},
	{.name = "last frees in orphans",
	 .steps = 6200,
	 .changes = 16,
	 .before = leave_orphans,
	 .act = free_one_by_one,
	 .after = free_still_shared},
	{.name = "unshare in orphans",
	 .steps = 4000,
	 .changes = 21,
	 .before = leave_orphans,
	 .act = unshare_noted,
	 .after = free_still_shared},
	{.name = "attach", .steps = 27000, .changes = 3, .stranger = true, .act = attach},
	{.name = "attach in a dead process's place",
	 .steps = 36000,
	 .changes = 21,
	 .stranger = true,
	 .before = leave_a_corpse,
	 .act = attach,
	 .after = free_shared_of_first_victim},
	{.name = "create",
	 .steps = 42000,
	 .changes = 0,
	 .stranger = true,
	 .act = create,
	 .after = use_other},
	{.name = "detach",
	 .steps = 11000,
	 .changes = 16,
	 .prepare = have_shared_three_and_more,
	 .act = detach},
	{.name = "detach of the last process",
	 .steps = 16000,
	 .changes = 0,
	 .stranger = true,
	 .prepare = have_other,
	 .act = detach_other,
	 .after = use_other},
	{.name = "detach of the last process, keep",
	 .steps = 13000,
	 .changes = 0,
	 .stranger = true,
	 .prepare = have_other,
	 .act = detach_and_keep_other,
	 .after = use_other},
	{.name = "detach of the last process, shared",
	 .steps = 13000,
	 .changes = 0,
	 .stranger = true,
	 .prepare = have_other_with_shared,
	 .act = detach_other,
	 .after = use_other_with_shared},
	{.name = "registration", .steps = 65000, .changes = 4, .device = true, .act = get_keys},
	{.name = "block from the system, registered",
	 .steps = 38000,
	 .changes = 50,
	 .device = true,
	 .act = take_small},
	{.name = "run released, registered",
	 .steps = 3000,
	 .changes = 15,
	 .device = true,
	 .prepare = alloc_and_free_run,
	 .act = trim},
	{.name = "device removed",
	 .steps = 3000,
	 .changes = 1,
	 .device = true,
	 .prepare = get_keys,
	 .act = remove_device},
	{.name = "detach with registrations",
	 .steps = 13000,
	 .changes = 4,
	 .device = true,
	 .prepare = get_keys,
	 .act = detach},
};

#define NUM_SCENES (sizeof(scenes) / sizeof(scenes[0]))

/* Returns whether this process may ptrace a child. */
static bool may_trace(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(ptrace(PTRACE_TRACEME, 0, 0, 0) == 0 ? 0 : 1);
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

/*
 * Pins this process to one processor: two processes that take turns at each instruction are twice
 * as fast there.
 */
static void pin_to_this_processor(void)
{
	cpu_set_t here;

	CPU_ZERO(&here);
	CPU_SET((size_t)sched_getcpu(), &here);
	sched_setaffinity(0, sizeof(here), &here);
}

static void *shared_page(size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		exit(1);
	return at;
}

int main(int argc, char **argv)
{
	struct CMUnitTest tests[NUM_SCENES];

	if (THREAD_SANITIZED || !may_trace()) {
		puts(THREAD_SANITIZED ? "skipped: ThreadSanitizer is about threads, not about "
					"dying processes"
				      : "skipped: ptrace is not permitted here");
		return 77;
	}
	dice_start();
	pin_to_this_processor();
	note = shared_page(sizeof(*note));
	others = shared_page(sizeof(*others));
	watched.copy = shared_page(MOST_WATCH);
	for (size_t i = 0; i < NUM_SCENES; i++)
		tests[i] = (struct CMUnitTest){.name = scenes[i].name,
					       .test_func = run_scene,
					       .initial_state = (void *)&scenes[i]};
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("heap/step", tests, NULL, close_heap);
}
