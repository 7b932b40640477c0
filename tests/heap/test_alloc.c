// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_alloc.c - the heap within one process: sizes, alignments, realloc, misuse, a full heap, and
 * memory that is returned to the system.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "heap/heap.h"

#define KIB 1024ull
#define MIB (1024ull * 1024)

static char name[STAG_HEAP_NAME_MAX];

static struct stag_heap *make_heap(uint64_t block_size, uint32_t max_blocks, int retain_ms)
{
	struct stag_heap_attr attr = {.block_size = block_size,
				      .max_blocks = max_blocks,
				      .retain_ms = retain_ms,
				      .flags = STAG_HEAP_EXCLUSIVE};
	struct stag_heap *heap;

	snprintf(name, sizeof(name), "test-alloc.%d", getpid());
	stag_heap_unlink(name); /* left by a test that failed */
	heap = stag_heap_create(name, &attr);
	if (!heap)
		fail_msg("%s: %s", strerror(errno), stag_heap_error());
	return heap;
}

static void expect_sound(struct stag_heap *heap)
{
	assert_int_equal(stag_heap_check(heap, stderr), 0);
}

/* Checks that after trimming no block is left: everything has been freed. */
static void expect_empty(struct stag_heap *heap)
{
	struct stag_heap_stats stats;

	stag_heap_trim(heap);
	expect_sound(heap);
	do { /* the maintainer thread may still be releasing the last block */
		assert_int_equal(stag_heap_query(heap, &stats, sizeof(stats)), 0);
		assert_int_equal(stats.allocations, 0);
	} while (stats.blocks != 0 && usleep(1000) == 0);
}

static void check_and_destroy_heap(struct stag_heap *heap)
{
	char path[128];

	expect_sound(heap);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	snprintf(path, sizeof(path), "/dev/shm/stag-%u/heap.%s", geteuid(), name);
	assert_int_equal(access(path, F_OK), -1);
}

/* Lists the sizes at which the layout changes, and their neighbours. */
static size_t boundary_sizes(struct stag_heap *heap, size_t *sizes)
{
	size_t n = 0;

	sizes[n++] = 0;
	for (unsigned int i = 0; i < heap->geo.num_classes; i++)
		for (int d = -1; d <= 1; d++)
			sizes[n++] = heap->geo.classes[i].size + (size_t)d;
	for (uint64_t k = 9;
	     k <= heap->geo.medium_slices + 1 && k << heap->geo.slice_shift < 3 * MIB;
	     k += 1 + k / 4)
		for (int d = -1; d <= 1; d++)
			sizes[n++] = (k << heap->geo.slice_shift) + (size_t)d;
	for (uint64_t k = heap->geo.medium_slices << heap->geo.slice_shift; k <= 16 * MIB; k *= 2)
		for (int d = -1; d <= 1; d++)
			sizes[n++] = k + (size_t)d;
	return n;
}

static void fill(void *ptr, size_t size, unsigned int seed)
{
	memset(ptr, (int)(seed * 37 + 11), size);
}

static void expect_filled(const void *ptr, size_t size, unsigned int seed)
{
	const unsigned char *bytes = ptr;

	if (size == 0)
		return;
	assert_int_equal(*bytes, (unsigned char)(seed * 37 + 11));
	if (memcmp(bytes, bytes + 1, size - 1) != 0)
		fail_msg("%zu bytes at %p are not all the same", size, ptr);
}

static void check_every_size(uint64_t block_size)
{
	struct stag_heap *heap = make_heap(block_size, 1024, -1);
	static size_t sizes[1024];
	static void *ptrs[1024];
	size_t n = boundary_sizes(heap, sizes);

	for (size_t i = 0; i < n; i++) {
		ptrs[i] = stag_heap_alloc(heap, sizes[i]);
		assert_non_null(ptrs[i]);
		assert_int_equal((uintptr_t)ptrs[i] % 16, 0);
		assert_true(stag_heap_usable_size(heap, ptrs[i]) >= sizes[i]);
		assert_true(stag_heap_usable_size(heap, ptrs[i]) <= sizes[i] + 16 + sizes[i] / 8 ||
			    sizes[i] > heap->geo.small_max);
		fill(ptrs[i], stag_heap_usable_size(heap, ptrs[i]), (unsigned int)i);
	}
	expect_sound(heap);
	for (size_t i = 0; i < n; i++)
		expect_filled(ptrs[i], stag_heap_usable_size(heap, ptrs[i]), (unsigned int)i);
	for (size_t i = 0; i < n; i += 2)
		stag_heap_free(heap, ptrs[i]);
	for (size_t i = 1; i < n; i += 2)
		stag_heap_free(heap, ptrs[i]);
	expect_empty(heap);
	check_and_destroy_heap(heap);
}

static void every_size_keeps_its_bytes_to_itself(void **state)
{
	check_every_size(4 * MIB);
}

static void every_size_keeps_its_bytes_to_itself_in_the_smallest_blocks(void **state)
{
	check_every_size(256 * KIB);
}

static void every_size_keeps_its_bytes_to_itself_in_blocks_that_are_no_power_of_two(void **state)
{
	check_every_size(3 * MIB + 4 * KIB);
}

static void every_size_keeps_its_bytes_to_itself_in_large_blocks(void **state)
{
	check_every_size(64 * MIB);
}

/*
 * Losses: an eighth by rounding up, from 128 bytes on; a sixteenth at the end of a span; the
 * header.
 */
static void fragmentation_is_bounded_as_stated(void **state)
{
	struct stag_heap *heap = make_heap(0, 64, -1);

	for (size_t size = 129; size <= heap->geo.small_max; size += 1 + size / 300) {
		const struct size_class *c = &heap->geo.classes[class_of(heap, size)];

		assert_true(c->size >= size && c->size <= size + size / 8 + 1);
		assert_true((c->slices << heap->geo.slice_shift) - c->count * c->size <=
			    (c->slices << heap->geo.slice_shift) / 16);
	}
	assert_true(heap->geo.header_size <= heap->geo.block_size / 28);
	check_and_destroy_heap(heap);
}

static void zero_size_allocations_have_distinct_pointers(void **state)
{
	struct stag_heap *heap = make_heap(0, 16, -1);
	void *a = stag_heap_alloc(heap, 0), *b = stag_heap_alloc(heap, 0);

	assert_non_null(a);
	assert_non_null(b);
	assert_ptr_not_equal(a, b);
	stag_heap_free(heap, a);
	stag_heap_free(heap, b);
	stag_heap_free(heap, NULL);
	check_and_destroy_heap(heap);
}

static void alignment_is_as_requested(void **state)
{
	struct stag_heap *heap = make_heap(0, 512, -1);
	static void *ptrs[1024];
	size_t n = 0;

	for (size_t alignment = 1; alignment <= 4 * MIB; alignment *= 2)
		for (size_t size = 1; size <= 6 * MIB; size = size * 5 + 3) {
			void *ptr = stag_heap_aligned(heap, alignment, size);

			assert_non_null(ptr);
			assert_int_equal((uintptr_t)ptr % alignment, 0);
			assert_true(stag_heap_usable_size(heap, ptr) >= size);
			fill(ptr, size, (unsigned int)n);
			ptrs[n++] = ptr;
		}
	expect_sound(heap);
	while (n-- > 0) {
		assert_int_equal(*(unsigned char *)ptrs[n], (unsigned char)(n * 37 + 11));
		stag_heap_free(heap, ptrs[n]);
	}
	expect_empty(heap);
	check_and_destroy_heap(heap);
}

static void impossible_alignments_are_refused(void **state)
{
	struct stag_heap *heap = make_heap(0, 16, -1);
	static const size_t wrong[] = {0, 3, 48, 8 * MIB};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		errno = 0;
		assert_null(stag_heap_aligned(heap, wrong[i], 64));
		assert_int_equal(errno, EINVAL);
	}
	check_and_destroy_heap(heap);
}

static void realloc_keeps_the_contents_that_fit(void **state)
{
	struct stag_heap *heap = make_heap(0, 256, -1);
	static const size_t sizes[] = {1,	100,	 17,	   5000, 130 * KIB, 4 * MIB,
				       9 * MIB, 2 * MIB, 60 * KIB, 333,	 0};
	char *ptr = stag_heap_realloc(heap, NULL, 1);
	size_t had = 1;

	assert_non_null(ptr);
	*ptr = 11;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ptr = stag_heap_realloc(heap, ptr, sizes[i]);
		assert_non_null(ptr);
		expect_filled(ptr, had < sizes[i] ? had : sizes[i], 0);
		fill(ptr, sizes[i], 0);
		had = sizes[i];
	}
	stag_heap_free(heap, ptr);
	expect_empty(heap);
	check_and_destroy_heap(heap);
}

static void realloc_stays_in_place_if_the_new_size_fits(void **state)
{
	struct stag_heap *heap = make_heap(0, 16, -1);
	void *ptr = stag_heap_alloc(heap, 1000);

	assert_ptr_equal(stag_heap_realloc(heap, ptr, stag_heap_usable_size(heap, ptr)), ptr);
	assert_ptr_equal(stag_heap_realloc(heap, ptr, 600), ptr);
	stag_heap_free(heap, ptr);
	check_and_destroy_heap(heap);
}

static void calloc_gives_zeroes_and_does_not_wrap(void **state)
{
	struct stag_heap *heap = make_heap(0, 16, -1);
	void *dirty = stag_heap_alloc(heap, 3000);
	unsigned char *clean;

	fill(dirty, 3000, 5);
	stag_heap_free(heap, dirty);
	clean = stag_heap_calloc(heap, 3, 1000);
	assert_ptr_equal(clean, dirty);
	for (size_t i = 0; i < 3000; i++)
		assert_int_equal(clean[i], 0);
	stag_heap_free(heap, clean);
	errno = 0;
	assert_null(stag_heap_calloc(heap, SIZE_MAX / 2, 3));
	assert_int_equal(errno, ENOMEM);
	check_and_destroy_heap(heap);
}

/* ---- misuse ------------------------------------------------------------------- */

struct misuse {
	void (*act)(struct stag_heap *heap);
	const char *words;
};

static void free_twice(struct stag_heap *heap)
{
	void *ptr = stag_heap_alloc(heap, 64);

	stag_heap_free(heap, ptr);
	stag_heap_free(heap, ptr);
}

static void free_kept_twice(struct stag_heap *heap)
{
	void *ptr = stag_heap_alloc(heap, 300000);

	stag_heap_free(heap, stag_heap_alloc(heap, 1));
	stag_heap_free(heap, ptr);
	stag_heap_free(heap, ptr);
}

static void free_medium_twice(struct stag_heap *heap)
{
	void *ptr = stag_heap_alloc(heap, 512 * KIB);

	stag_heap_free(heap, ptr);
	stag_heap_free(heap, ptr);
}

static void free_large_twice(struct stag_heap *heap)
{
	void *ptr = stag_heap_alloc(heap, 5 * MIB);

	stag_heap_free(heap, ptr);
	stag_heap_free(heap, ptr);
}

static void *free_elsewhere(void *arg)
{
	void **args = arg;

	stag_heap_free(args[0], args[1]);
	return NULL;
}

static void free_by_another_thread(struct stag_heap *heap, void *ptr)
{
	void *args[] = {heap, ptr};
	pthread_t thread;

	pthread_create(&thread, NULL, free_elsewhere, args);
	pthread_join(thread, NULL);
}

static void free_twice_by_others(struct stag_heap *heap)
{
	void *ptr = stag_heap_alloc(heap, 64);

	free_by_another_thread(heap, ptr);
	free_by_another_thread(heap, ptr);
}

static void free_after_another(struct stag_heap *heap)
{
	void *ptr = stag_heap_alloc(heap, 64);

	free_by_another_thread(heap, ptr);
	stag_heap_free(heap, ptr);
	stag_heap_trim(heap);
}

static void free_stack(struct stag_heap *heap)
{
	int here;

	stag_heap_free(heap, &here);
}

static void free_inside(struct stag_heap *heap)
{
	stag_heap_free(heap, (char *)stag_heap_alloc(heap, 64) + 16);
}

static void free_inside_medium(struct stag_heap *heap)
{
	stag_heap_free(heap, (char *)stag_heap_alloc(heap, 512 * KIB) + 256 * KIB);
}

static void free_inside_large(struct stag_heap *heap)
{
	stag_heap_free(heap, (char *)stag_heap_alloc(heap, 9 * MIB) + 5 * MIB);
}

static void free_header(struct stag_heap *heap)
{
	stag_heap_alloc(heap, 64);
	stag_heap_free(heap, heap->area);
}

static void free_open_slot(struct stag_heap *heap)
{
	stag_heap_free(heap, heap->area + (3ull << heap->geo.block_shift));
}

static void realloc_foreign_pointer(struct stag_heap *heap)
{
	stag_heap_realloc(heap, &name, 64);
}

/* Runs the misuse in a child, and checks the message on its stderr. */
static void expect_abort(const struct misuse *misuse)
{
	char words[512] = "";
	int out[2], status;
	pid_t pid;

	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (pid == 0) {
		dup2(out[1], STDERR_FILENO);
		signal(SIGABRT, SIG_DFL);
		misuse->act(make_heap(0, 16, -1));
		_exit(0);
	}
	close(out[1]);
	for (ssize_t n, at = 0; (n = read(out[0], words + at, sizeof(words) - 1 - (size_t)at)) > 0;)
		at += n;
	close(out[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	snprintf(name, sizeof(name), "test-alloc.%d", pid);
	stag_heap_unlink(name);
	if (!strstr(words, misuse->words))
		fail_msg("\"%s\" instead of \"%s\"", words, misuse->words);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void misuse_prints_a_message_and_aborts(void **state)
{
	static const struct misuse all[] = {
		{free_twice, "freed twice"},
		{free_medium_twice, "no allocation"},
		{free_kept_twice, "freed twice"},
		{free_large_twice, "no allocation"},
		{free_twice_by_others, "freed twice"},
		{free_after_another, "freed twice"},
		{free_stack, "no allocation"},
		{free_inside, "no allocation"},
		{free_inside_medium, "no allocation"},
		{free_inside_large, "no allocation"},
		{free_header, "no allocation"},
		{free_open_slot, "no allocation"},
		{realloc_foreign_pointer, "no allocation"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		expect_abort(&all[i]);
}

static void a_foreign_pointer_has_no_size_and_cannot_be_shared(void **state)
{
	struct stag_heap *heap = make_heap(0, 16, -1);
	char *ptr = stag_heap_alloc(heap, 100);

	assert_int_equal(stag_heap_usable_size(heap, &heap), 0);
	assert_int_equal(stag_heap_usable_size(heap, ptr + 16), 0);
	assert_int_equal(stag_heap_share(heap, &heap), ENOENT);
	assert_int_equal(stag_heap_share(heap, ptr + 16), ENOENT);
	assert_int_equal(stag_heap_share(heap, ptr), 0);
	stag_heap_free(heap, ptr);
	assert_int_equal(stag_heap_share(heap, ptr), ENOENT);
	check_and_destroy_heap(heap);
}

/* ---- retained memory ------------------------------------------------------------------ */

/*
 * The next allocation of its size and alignment reuses it; trimming, or an allocation that finds no
 * other memory, releases it.
 */
static void a_freed_medium_object_is_retained_for_reuse(void **state)
{
	struct stag_heap *heap = make_heap(0, 2, -1);
	void *ptr = stag_heap_alloc(heap, MIB), *other;

	stag_heap_free(heap, stag_heap_alloc(heap, 1));
	assert_int_equal(stag_heap_share(heap, ptr), 0);
	stag_heap_free(heap, ptr);
	assert_int_equal(stag_heap_share(heap, ptr), ENOENT);
	expect_sound(heap);
	assert_null(stag_heap_alloc(heap, ((1ull << 32) << heap->geo.slice_shift) + MIB));
	assert_ptr_equal(stag_heap_alloc(heap, MIB - 1), ptr);
	stag_heap_free(heap, ptr);
	stag_heap_trim(heap);
	ptr = stag_heap_alloc(heap, 512 * KIB);
	assert_true((uintptr_t)ptr % (256 * KIB) != 0);
	stag_heap_free(heap, ptr);
	other = stag_heap_aligned(heap, 256 * KIB, 512 * KIB);
	assert_true((uintptr_t)other % (256 * KIB) == 0);
	stag_heap_free(heap, other);
	expect_empty(heap);

	ptr = stag_heap_alloc(heap, 5 * MIB / 4);
	stag_heap_free(heap, ptr);
	other = stag_heap_alloc(heap, 7 * MIB);
	assert_non_null(other);
	stag_heap_free(heap, other);
	expect_empty(heap);
	check_and_destroy_heap(heap);
}

static uint32_t count_spans(struct stag_heap *heap)
{
	uint32_t n = 0;

	for (uint32_t i = heap->geo.header_slices; i < heap->geo.num_slices; i++)
		n += heap_load(&block_spans(heap, heap_block_at(heap, 0))[i].owner) != 0;
	return n;
}

/* Some spans have one free object, others half of theirs: those are used before a new span. */
static void partly_used_spans_are_filled_before_new_ones(void **state)
{
	enum { SPANS = 40, SIZE = 512 };
	struct stag_heap *heap = make_heap(0, 16, -1);
	uint32_t count = heap->geo.classes[class_of(heap, SIZE)].count, n = 0;
	void **set = calloc((size_t)SPANS * count, sizeof(*set));

	for (uint32_t i = 0; i < SPANS * count; i++)
		set[i] = stag_heap_alloc(heap, SIZE);
	assert_int_equal(count_spans(heap), SPANS);
	for (uint32_t i = 0; i < SPANS / 2; i++, n++)
		stag_heap_free(heap, set[i * count]);
	for (uint32_t i = SPANS / 2 * count; i < SPANS * count; i += 2, n++)
		stag_heap_free(heap, set[i]);
	for (; n > 0; n--)
		assert_non_null(stag_heap_alloc(heap, SIZE));
	assert_int_equal(count_spans(heap), SPANS);
	free(set);
	check_and_destroy_heap(heap);
}

/* Replacing objects in full spans needs an eighth more, and a span; no further block. */
static void steady_replacement_needs_little_more_than_the_live_bytes(void **state)
{
	enum { LIVE = 1024, SIZE = 2048 };
	struct stag_heap *heap = make_heap(0, 16, -1);
	static void *set[LIVE];
	uint64_t dice = 88172645463325252u;
	uint32_t count = heap->geo.classes[class_of(heap, SIZE)].count, spans;

	for (int i = 0; i < LIVE; i++)
		set[i] = stag_heap_alloc(heap, SIZE);
	for (int i = 0; i < 300000; i++) {
		dice ^= dice << 13;
		dice ^= dice >> 7;
		dice ^= dice << 17;
		stag_heap_free(heap, set[dice % LIVE]);
		set[dice % LIVE] = stag_heap_alloc(heap, SIZE);
	}
	spans = count_spans(heap);
	assert_true(spans > LIVE / count);
	assert_true(spans * count <= LIVE + LIVE / 8 + count);
	for (int i = 0; i < LIVE; i++)
		stag_heap_free(heap, set[i]);
	expect_empty(heap);
	check_and_destroy_heap(heap);
}

/* ---- a full heap ---------------------------------------------------------------- */

static size_t fill_heap(struct stag_heap *heap, size_t size, void **ptrs, size_t most)
{
	size_t n = 0;

	while (n < most && (ptrs[n] = stag_heap_alloc(heap, size)))
		n++;
	return n;
}

static void a_full_heap_returns_enomem_and_recovers(void **state)
{
	struct stag_heap *heap = make_heap(256 * KIB, 16, -1);
	static const size_t sizes[] = {256, 4000, 30000, 60000, 200000, 700000};
	static void *ptrs[20000];

	for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t size = sizes[i % 6], n = fill_heap(heap, size, ptrs, 20000);

		assert_int_equal(errno, ENOMEM);
		assert_true(n < 20000 && n * size > 16 * 256 * KIB / 3);
		assert_non_null(strstr(stag_heap_error(), name));
		expect_sound(heap);
		while (n-- > 0)
			stag_heap_free(heap, ptrs[n]);
	}
	expect_empty(heap);
	check_and_destroy_heap(heap);
}

static void allocations_larger_than_the_heap_are_refused(void **state)
{
	struct stag_heap *heap = make_heap(256 * KIB, 16, -1);
	static const size_t sizes[] = {4 * MIB, 8 * MIB, SIZE_MAX / 2, SIZE_MAX};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		errno = 0;
		assert_null(stag_heap_alloc(heap, sizes[i]));
		assert_int_equal(errno, ENOMEM);
		assert_null(stag_heap_aligned(heap, 64 * KIB, sizes[i]));
	}
	expect_empty(heap);
	check_and_destroy_heap(heap);
}

/* ---- memory returned to the system --------------------------------------------------- */

static uint64_t committed(struct stag_heap *heap)
{
	struct stat st;

	assert_int_equal(fstat(heap->files.fd, &st), 0);
	return (uint64_t)st.st_blocks * 512;
}

static void trim_releases_memory_to_the_system(void **state)
{
	struct stag_heap *heap = make_heap(0, 256, -1);
	uint64_t before = committed(heap), most;
	static void *ptrs[400];
	size_t n = 0;

	for (size_t size = 1; size < 7 * MIB; size += 1 + size / 12)
		fill(ptrs[n++] = stag_heap_alloc(heap, size), size, 1);
	assert_true(n < 400);
	most = committed(heap);
	assert_true(most > before + 60 * MIB);
	while (n-- > 0)
		stag_heap_free(heap, ptrs[n]);
	assert_int_equal(committed(heap), most);
	assert_true(stag_heap_trim(heap) >= 60 * MIB);
	assert_int_equal(committed(heap), before);
	expect_empty(heap);
	check_and_destroy_heap(heap);
}

static void idle_blocks_are_released_after_the_retention_time(void **state)
{
	struct stag_heap *heap = make_heap(0, 256, 50);
	uint64_t before = committed(heap);
	static void *ptrs[1000];
	size_t n = fill_heap(heap, 40000, ptrs, 1000);

	ptrs[0] = stag_heap_realloc(heap, ptrs[0], 5 * MIB);
	assert_true(committed(heap) > before);
	while (n-- > 0)
		stag_heap_free(heap, ptrs[n]);
	while (committed(heap) != before)
		usleep(1000);
	expect_empty(heap);
	check_and_destroy_heap(heap);
}

static void a_retained_block_of_a_large_object_is_reused(void **state)
{
	struct stag_heap *heap = make_heap(0, 256, -1);
	void *a = stag_heap_alloc(heap, 6 * MIB), *b;
	struct stag_heap_stats stats;

	stag_heap_free(heap, a);
	b = stag_heap_alloc(heap, 6 * MIB - 5000);
	assert_ptr_equal(a, b);
	stag_heap_query(heap, &stats, sizeof(stats));
	assert_int_equal(stats.blocks_released, 0);
	stag_heap_free(heap, b);
	check_and_destroy_heap(heap);
}

/* ---- threads ------------------------------------------------------------------------ */

struct worker {
	struct stag_heap *heap;
	_Atomic(void *) *slots;
	unsigned int seed;
	int rounds;
};

/* Puts its allocations where any thread takes and frees them. */
static void *allocate_and_free_others(void *arg)
{
	struct worker *w = arg;
	unsigned int dice = w->seed;

	for (int i = 0; i < w->rounds; i++) {
		size_t size = 1 + (size_t)(rand_r(&dice) % 64) * (size_t)(rand_r(&dice) % 2000);
		unsigned char *ptr = stag_heap_alloc(w->heap, size);

		assert_non_null(ptr);
		ptr[0] = ptr[size - 1] = (unsigned char)size;
		ptr = atomic_exchange(&w->slots[rand_r(&dice) % 256], ptr);
		stag_heap_free(w->heap, ptr);
	}
	return NULL;
}

static void threads_free_allocations_of_other_threads(void **state)
{
	struct stag_heap *heap = make_heap(0, 256, 20);
	static _Atomic(void *) slots[256];
	struct worker workers[4];
	pthread_t threads[4];

	for (int round = 0; round < 2; round++) {
		for (unsigned int i = 0; i < 4; i++) {
			workers[i] = (struct worker){heap, slots, i + 1, 20000};
			pthread_create(&threads[i], NULL, allocate_and_free_others, &workers[i]);
		}
		for (unsigned int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
	}
	for (unsigned int i = 0; i < 256; i++)
		stag_heap_free(heap, atomic_exchange(&slots[i], NULL));
	expect_empty(heap);
	check_and_destroy_heap(heap);
}

static void a_new_thread_reuses_the_slot_of_an_ended_one(void **state)
{
	struct stag_heap *heap = make_heap(0, 16, -1);

	for (int i = 0; i < 100; i++)
		free_by_another_thread(heap, stag_heap_alloc(heap, 64));
	assert_int_equal(heap->local.num_threads, 2);
	expect_empty(heap);
	check_and_destroy_heap(heap);
}

/* Trims from another thread: the first thread, now idle, must count as outside the heap. */
static void *trim_from_thread(void *arg)
{
	stag_heap_trim(arg);
	return NULL;
}

static void freeing_null_does_not_block_a_trim_by_another_thread(void **state)
{
	struct stag_heap *heap = make_heap(0, 64, -1);
	struct stag_heap_stats stats;
	pthread_t other;

	stag_heap_free(heap, NULL);
	stag_heap_free(heap, stag_heap_alloc(heap, 100));
	stag_heap_free(heap, NULL);
	assert_int_equal(pthread_create(&other, NULL, trim_from_thread, heap), 0);
	pthread_join(other, NULL);
	assert_int_equal(stag_heap_query(heap, &stats, sizeof(stats)), 0);
	assert_int_equal(stats.blocks, 0);
	check_and_destroy_heap(heap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(freeing_null_does_not_block_a_trim_by_another_thread),
		cmocka_unit_test(every_size_keeps_its_bytes_to_itself),
		cmocka_unit_test(every_size_keeps_its_bytes_to_itself_in_the_smallest_blocks),
		cmocka_unit_test(
			every_size_keeps_its_bytes_to_itself_in_blocks_that_are_no_power_of_two),
		cmocka_unit_test(every_size_keeps_its_bytes_to_itself_in_large_blocks),
		cmocka_unit_test(fragmentation_is_bounded_as_stated),
		cmocka_unit_test(zero_size_allocations_have_distinct_pointers),
		cmocka_unit_test(alignment_is_as_requested),
		cmocka_unit_test(impossible_alignments_are_refused),
		cmocka_unit_test(realloc_keeps_the_contents_that_fit),
		cmocka_unit_test(realloc_stays_in_place_if_the_new_size_fits),
		cmocka_unit_test(calloc_gives_zeroes_and_does_not_wrap),
		cmocka_unit_test(misuse_prints_a_message_and_aborts),
		cmocka_unit_test(a_foreign_pointer_has_no_size_and_cannot_be_shared),
		cmocka_unit_test(a_freed_medium_object_is_retained_for_reuse),
		cmocka_unit_test(partly_used_spans_are_filled_before_new_ones),
		cmocka_unit_test(steady_replacement_needs_little_more_than_the_live_bytes),
		cmocka_unit_test(a_full_heap_returns_enomem_and_recovers),
		cmocka_unit_test(allocations_larger_than_the_heap_are_refused),
		cmocka_unit_test(trim_releases_memory_to_the_system),
		cmocka_unit_test(idle_blocks_are_released_after_the_retention_time),
		cmocka_unit_test(a_retained_block_of_a_large_object_is_reused),
		cmocka_unit_test(threads_free_allocations_of_other_threads),
		cmocka_unit_test(a_new_thread_reuses_the_slot_of_an_ended_one),
	};

	return cmocka_run_group_tests_name("heap/alloc", tests, NULL, NULL);
}
