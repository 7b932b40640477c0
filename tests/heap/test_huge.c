// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_huge.c - heaps in huge pages (hugetlbfs), and the messages where there are none.
 *
 * Huge pages belong to the machine, and only root can reserve them. As root this program mounts a
 * hugetlbfs in a private mount namespace and reserves some pages while it runs; a child runs the
 * tests, so that the pages are returned however it ends. The kernel's counters in
 * /sys/kernel/mm/hugepages show how many are used.
 */
#include "other.h"
#include "side.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap/heap.h"

#define MIB   (1ul << 20)
#define HUGE  (2 * MIB)
#define BLOCK (4 * MIB)
#define PAGES 24 /* pages to reserve */

static char dir[] = "/tmp/stag-test-huge.XXXXXX";
static char name[STAG_HEAP_NAME_MAX];

/* ---- huge pages of the machine ---- */

static const char count_path[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
static const char free_path[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

static long read_number(const char *path)
{
	FILE *file = fopen(path, "re");
	long n = -1;

	if (!file)
		return -1;
	if (fscanf(file, "%ld", &n) != 1)
		n = -1;
	fclose(file);
	return n;
}

static void write_number(const char *path, long n)
{
	FILE *file = fopen(path, "we");

	if (!file)
		return;
	fprintf(file, "%ld\n", n);
	fclose(file);
}

static long free_pages(void)
{
	return read_number(free_path);
}

static int hide_pages(void **state)
{
	write_number(count_path, 0);
	return free_pages() == 0 ? 0 : -1;
}

static int show_pages(void **state)
{
	write_number(count_path, PAGES);
	return 0;
}

static unsigned int files_there(void)
{
	DIR *d = opendir(dir);
	unsigned int n = 0;

	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d));)
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

/* ---- tests ---- */

static struct stag_heap *create(unsigned int flags, uint64_t block_size)
{
	struct stag_heap_attr attr = {.block_size = block_size,
				      .max_blocks = 64,
				      .retain_ms = -1,
				      .flags = flags | STAG_HEAP_EXCLUSIVE};

	snprintf(name, sizeof(name), "test-huge.%d", getpid());
	return stag_heap_create(name, &attr);
}

static struct stag_heap *create_huge(void)
{
	struct stag_heap *heap = create(STAG_HEAP_HUGE, BLOCK);

	if (!heap)
		fail_msg("%s", stag_heap_error());
	return heap;
}

static void destroy_heap(struct stag_heap *heap)
{
	assert_int_equal(stag_heap_check(heap, stderr), 0);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	assert_int_equal(files_there(), 0);
}

/* Blocks take huge pages from the system, and return them. */
static void blocks_are_huge_pages(void **state)
{
	static const size_t sizes[] = {1, 5000, 200000, MIB, 3 * MIB, 9 * MIB};
	long before = free_pages();
	struct stag_heap *heap = create_huge();

	assert_int_equal(free_pages(), before);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint8_t *ptr = stag_heap_alloc(heap, sizes[i]);
		size_t usable = stag_heap_usable_size(heap, ptr);

		assert_non_null(ptr);
		assert_true(before - free_pages() >= (long)(sizes[i] / HUGE + 1));
		fill(ptr, usable, (unsigned int)i);
		expect_filled(ptr, usable, (unsigned int)i);
		stag_heap_free(heap, ptr);
		stag_heap_trim(heap);
		assert_int_equal(free_pages(), before);
	}
	destroy_heap(heap);
}

static void another_process_sees_the_same_huge_pages(void **state)
{
	struct stag_heap *heap = create_huge();
	size_t sizes[] = {1000, 5 * MIB};
	struct other other;

	other_start(&other, name);
	for (int i = 0; i < 2; i++) {
		uint8_t *ptr = other_alloc(&other, sizes[i]);

		other_fill(&other, ptr, sizes[i], 0x5a);
		for (size_t k = 0; k < sizes[i]; k++)
			assert_int_equal(ptr[k], 0x5a);
		memset(ptr, 0xa5, sizes[i]);
		assert_true(other_finds(&other, ptr, sizes[i], 0xa5));
		stag_heap_free(heap, ptr);
	}
	other_end(&other);
	destroy_heap(heap);
}

static void keys_give_access_to_huge_pages(void **state)
{
	struct stag_heap *heap = create_huge();
	struct ibv_context **contexts = rdma_get_devices(NULL);
	struct ibv_pd *pd = ibv_alloc_pd(contexts[0]);
	struct stag_heap_keys k;
	struct other other;
	struct side side;
	unsigned int device;
	uint8_t *ptr;

	other_start(&other, name);
	assert_int_equal(stag_heap_add_device(heap, pd, NULL, &device), 0);
	ptr = stag_heap_alloc(heap, 5 * MIB);
	assert_int_equal(stag_heap_keys(heap, device, ptr, &k), 0);
	side_listen(&side, &(struct side_wish){.pd = pd});
	other_access(&other, side_port(&side), ACCESS_WRITE, k.rkey, (uintptr_t)ptr, 5 * MIB, 0x77);
	side_take_request(&side);
	assert_int_equal(side_accept(&side), 0);
	expect_cm(&side, RDMA_CM_EVENT_ESTABLISHED);
	assert_true(other_answer(&other));
	side_close(&side);
	for (size_t i = 0; i < 5 * MIB; i++)
		assert_int_equal(ptr[i], 0x77);
	stag_heap_free(heap, ptr);
	other_end(&other);
	destroy_heap(heap);
	assert_int_equal(ibv_dealloc_pd(pd), 0);
	rdma_free_devices(contexts);
}

/*
 * Allocating more than the pages available returns an error, never raises a signal, and existing
 * allocations stay usable.
 */
static void running_out_of_huge_pages_returns_enomem(void **state)
{
	struct stag_heap *heap = create_huge();
	void *ptrs[PAGES + 1];
	int n = 0;

	while ((ptrs[n] = stag_heap_alloc(heap, HUGE))) {
		memset(ptrs[n], n + 1, HUGE);
		assert_true(++n <= PAGES);
	}
	assert_int_equal(errno, ENOMEM);
	assert_true(n > 0);
	assert_int_equal(stag_heap_check(heap, stderr), 0);
	while (n-- > 0) {
		assert_int_equal(*(uint8_t *)ptrs[n], n + 1);
		stag_heap_free(heap, ptrs[n]);
	}
	ptrs[0] = stag_heap_alloc(heap, 5 * MIB);
	assert_non_null(ptrs[0]);
	stag_heap_free(heap, ptrs[0]);
	destroy_heap(heap);
}

static void unlink_removes_both_files(void **state)
{
	struct stag_heap *heap = create_huge();

	assert_int_equal(files_there(), 1);
	assert_int_equal(stag_heap_unlink(name), 0);
	assert_int_equal(files_there(), 0);
	assert_int_equal(stag_heap_detach(heap, false), 0);
}

/* Simulates a name that was removed by hand. */
static void no_huge_pages_leak_after_the_name_is_removed(void **state)
{
	struct stag_heap *heap = create_huge();
	char path[128];

	snprintf(path, sizeof(path), "/dev/shm/stag-%u/heap.%s", geteuid(), name);
	assert_int_equal(unlink(path), 0);
	destroy_heap(heap);
}

static void blocks_consist_of_whole_pages(void **state)
{
	struct stag_heap *heap;

	assert_null(create(STAG_HEAP_HUGE, MIB));
	assert_int_equal(errno, EINVAL);
	heap = create(STAG_HEAP_TRY_HUGE, MIB);
	assert_non_null(heap);
	assert_int_equal(files_there(), 0);
	destroy_heap(heap);
}

static void try_huge_uses_huge_pages_if_available(void **state)
{
	struct stag_heap *heap = create(STAG_HEAP_TRY_HUGE, BLOCK);
	long before = free_pages();
	void *ptr = stag_heap_alloc(heap, 1);

	assert_non_null(ptr);
	assert_int_equal(free_pages(), before - 2);
	stag_heap_free(heap, ptr);
	destroy_heap(heap);
}

static void expect_none(const char *advice)
{
	struct stag_heap *heap;
	void *ptr;

	assert_null(create(STAG_HEAP_HUGE, BLOCK));
	assert_int_equal(errno, ENOMEM);
	if (!strstr(stag_heap_error(), advice))
		fail_msg("\"%s\" does not say %s", stag_heap_error(), advice);
	heap = create(STAG_HEAP_TRY_HUGE, BLOCK);
	assert_non_null(heap);
	ptr = stag_heap_alloc(heap, 5 * MIB);
	assert_non_null(ptr);
	memset(ptr, 1, 5 * MIB);
	stag_heap_free(heap, ptr);
	assert_int_equal(stag_heap_detach(heap, false), 0);
}

static void without_huge_pages_the_error_says_how_to_get_them(void **state)
{
	expect_none("/proc/sys/vm/nr_hugepages");
	assert_int_equal(files_there(), 0);
}

static void without_a_mount_the_error_says_how_to_get_one(void **state)
{
	assert_int_equal(umount2(dir, MNT_DETACH), 0);
	expect_none("mount -t hugetlbfs");
}

/* Runs without root, too: huge pages are either available, or the error says how to get them. */
static void huge_pages_are_available_or_the_error_says_why(void **state)
{
	struct stag_heap *heap = create(STAG_HEAP_HUGE, BLOCK);

	if (heap)
		assert_int_equal(stag_heap_detach(heap, false), 0);
	else
		assert_non_null(strstr(stag_heap_error(), "huge"));
}

/* ---- mounts, root and the child process ---- */

/* Unmounts other hugetlbfs mounts, in this namespace only, so that the heap finds ours. */
static void unmount_others(void)
{
	FILE *mounts = setmntent("/proc/mounts", "re");
	struct mntent *entry;

	if (!mounts)
		return;
	while ((entry = getmntent(mounts)))
		if (strcmp(entry->mnt_type, "hugetlbfs") == 0)
			umount2(entry->mnt_dir, MNT_DETACH);
	endmntent(mounts);
}

static bool have_mount(void)
{
	if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return false;
	unmount_others();
	return mkdtemp(dir) && mount("none", dir, "hugetlbfs", 0, "pagesize=2M") == 0;
}

static int run_all_tests(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(blocks_are_huge_pages),
		cmocka_unit_test(another_process_sees_the_same_huge_pages),
		cmocka_unit_test(keys_give_access_to_huge_pages),
		cmocka_unit_test(running_out_of_huge_pages_returns_enomem),
		cmocka_unit_test(unlink_removes_both_files),
		cmocka_unit_test(no_huge_pages_leak_after_the_name_is_removed),
		cmocka_unit_test(blocks_consist_of_whole_pages),
		cmocka_unit_test(try_huge_uses_huge_pages_if_available),
		cmocka_unit_test_setup_teardown(without_huge_pages_the_error_says_how_to_get_them,
						hide_pages, show_pages),
		cmocka_unit_test(without_a_mount_the_error_says_how_to_get_one),
	};

	return cmocka_run_group_tests_name("huge pages", tests, NULL, NULL);
}

static int run_unprivileged_test(const char *why)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(huge_pages_are_available_or_the_error_says_why),
	};

	printf("the rest is skipped: %s\n", why);
	return cmocka_run_group_tests_name("huge pages", tests, NULL, NULL);
}

/* Runs the tests in a child; this process restores the machine's settings. */
static int run_tests_in_child(long before)
{
	int status = 0;
	pid_t pid;

	/* The child is in this process group, gets the signal too, and exits. */
	signal(SIGTERM, SIG_IGN);
	pid = fork();
	if (pid == 0) {
		signal(SIGTERM, SIG_DFL);
		exit(run_all_tests());
	}
	waitpid(pid, &status, 0);
	write_number(count_path, before);
	umount2(dir, MNT_DETACH);
	rmdir(dir);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Takes a lock until this process ends: two runs at once would count each other's pages. */
static bool take_exclusive_lock(void)
{
	int fd = open(count_path, O_RDONLY | O_CLOEXEC);

	return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
}

int main(int argc, char **argv)
{
	long before;
	int status;

	if (other_main(argc, argv, &status))
		return status;
	before = read_number(count_path);
	if (geteuid() != 0 || before < 0)
		return run_unprivileged_test("not root, or no huge pages of 2 MiB here");
	if (!take_exclusive_lock())
		return run_unprivileged_test("another run of this test holds the lock");
	if (before > 0)
		return run_unprivileged_test("other programs use the machine's huge pages");
	if (!have_mount())
		return run_unprivileged_test("a hugetlbfs may not be mounted");
	write_number(count_path, PAGES);
	if (free_pages() == PAGES)
		return run_tests_in_child(before);
	write_number(count_path, before);
	umount2(dir, MNT_DETACH);
	rmdir(dir);
	return run_unprivileged_test("the kernel has no huge pages to give");
}
