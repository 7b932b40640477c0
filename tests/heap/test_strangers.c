// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_strangers.c - heaps beside other users of the machine, who take names, truncate objects, and
 * write what they like into what they may write.
 *
 * Tests with two users run as root only: a child runs this program again as another user, and
 * executes orders. The others use modes and files of this user's.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/shm.h"
#include "heap/heap.h"

#define KIB	 1024ull
#define MIB	 (1024ull * 1024)
#define STRANGER 65534u

static char name[STAG_HEAP_NAME_MAX];

/* ---- a child that is another user ------------------------------------------------- */

enum order {
	CREATE,
	ATTACH,
	ALLOC,
	WRITE,
	READ,
	TRUNCATE,
	DETACH,
	TAKE_NAMES,
	LEAVE_NAMES,
	OPEN_HOME
};

struct bidding {
	enum order order;
	uint64_t argument;
	unsigned int mode;
	char name[96];
};

struct child {
	pid_t pid;
	int to;
};

/* Takes or removes the names that the directory of a user has: a file, a link, a directory, a pipe. */
static uint64_t take_names(uid_t user, bool take)
{
	char path[4][64];
	uint64_t done = 0;

	for (unsigned int i = 0; i < 4; i++)
		snprintf(path[i], sizeof(path[i]),
			 i == 0 ? "/dev/shm/stag-%u" : "/dev/shm/stag-%u.%u", user, i);
	if (!take) {
		done += unlink(path[0]) == 0;
		done += unlink(path[1]) == 0;
		done += rmdir(path[2]) == 0;
		done += unlink(path[3]) == 0;
		return done;
	}
	done += close(open(path[0], O_RDWR | O_CREAT | O_EXCL, 0666)) == 0;
	done += symlink("/tmp", path[1]) == 0;
	done += mkdir(path[2], 0777) == 0 && chmod(path[2], 0777) == 0;
	done += mkfifo(path[3], 0666) == 0;
	return done;
}

static uint64_t open_home(uid_t user)
{
	struct stat st;
	int fd = shm_open_home(user, true);

	return fd >= 0 && fstat(fd, &st) == 0 && close(fd) == 0 ? st.st_ino : 0;
}

static uint64_t execute_order(struct stag_heap **heap, const struct bidding *b)
{
	struct stag_heap_attr attr = {.max_blocks = 64, .retain_ms = -1, .mode = b->mode};

	switch (b->order) {
	case CREATE:
		*heap = stag_heap_create(b->name, &attr);
		return *heap ? 0 : (uint64_t)errno;
	case ATTACH:
		*heap = stag_heap_attach(b->name, &attr);
		return *heap ? 0 : (uint64_t)errno;
	case ALLOC:
		return (uintptr_t)stag_heap_alloc(*heap, b->argument);
	case WRITE:
		*(volatile unsigned char *)b->argument = 42;
		return 0;
	case READ:
		return *(volatile unsigned char *)b->argument;
	case TRUNCATE:
		return (uint64_t)ftruncate((*heap)->files.fd, 0);
	case DETACH:
		return (uint64_t)stag_heap_detach(*heap, b->argument);
	case TAKE_NAMES:
		return take_names((uid_t)b->argument, true);
	case LEAVE_NAMES:
		return take_names((uid_t)b->argument, false);
	case OPEN_HOME:
		return open_home((uid_t)b->argument);
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

static struct child start_child(uid_t user)
{
	struct child child;
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	child.pid = fork();
	assert_true(child.pid >= 0);
	if (child.pid == 0) {
		if (dup2(ends[1], 3) == 3)
			fcntl(3, F_SETFD, 0);
		if (user != 0 && (setgroups(0, NULL) || setgid(user) || setuid(user)))
			_exit(98);
		execl("/proc/self/exe", "test_heap_strangers", "serve", NULL);
		_exit(99);
	}
	close(ends[1]);
	child.to = ends[0];
	return child;
}

static uint64_t order_child(struct child *child, enum order order, const char *heap,
			    unsigned int mode, uint64_t argument)
{
	struct bidding b = {.order = order, .argument = argument, .mode = mode};
	uint64_t answer;

	snprintf(b.name, sizeof(b.name), "%s", heap);
	assert_int_equal(write(child->to, &b, sizeof(b)), sizeof(b));
	assert_int_equal(read(child->to, &answer, sizeof(answer)), sizeof(answer));
	return answer;
}

/* Gives the order to all before any answers; all answers must be the same. */
static void order_all(struct child *all, unsigned int n, enum order order, uint64_t argument)
{
	struct bidding b = {.order = order, .argument = argument};
	uint64_t first = 0, answer;

	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(write(all[i].to, &b, sizeof(b)), sizeof(b));
	for (unsigned int i = 0; i < n; i++) {
		assert_int_equal(read(all[i].to, &answer, sizeof(answer)), sizeof(answer));
		assert_int_not_equal(answer, 0);
		assert_true(i == 0 || answer == first);
		first = answer;
	}
}

static void end_child(struct child *child)
{
	int status;

	close(child->to);
	assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
	assert_int_equal(status, 0);
}

static void need_root(void)
{
	if (geteuid() == 0)
		return;
	print_message("needs root, to run a child as another user\n");
	skip();
}

/* ---- two users ---------------------------------------------------------------------- */

static struct stag_heap *make_heap(unsigned int mode)
{
	struct stag_heap_attr attr = {
		.block_size = 256 * KIB, .max_blocks = 16, .retain_ms = -1, .mode = mode};
	struct stag_heap *heap = stag_heap_create(name, &attr);

	if (!heap)
		fail_msg("%s", stag_heap_error());
	return heap;
}

static uid_t owner_of(const struct stag_heap *heap)
{
	struct stat st;

	assert_int_equal(fstat(heap->files.fd, &st), 0);
	return st.st_uid;
}

/* Whoever truncates an object ends the processes that have mapped it. */
static void a_strangers_heap_of_the_same_name_is_not_attached(void **state)
{
	struct stag_heap *heap;
	struct child stranger;
	unsigned char *ours;
	char path[128];

	need_root();
	stranger = start_child(STRANGER);
	assert_int_equal(order_child(&stranger, CREATE, name, 0666, 0), 0);
	heap = make_heap(0666);
	assert_int_equal(owner_of(heap), 0);
	ours = stag_heap_alloc(heap, 100 * KIB);
	memset(ours, 7, 100 * KIB);
	assert_int_equal(order_child(&stranger, TRUNCATE, "", 0, 0), 0);
	for (unsigned int i = 0; i < 100 * KIB; i++)
		assert_int_equal(ours[i], 7);
	assert_non_null(stag_heap_alloc(heap, MIB));
	assert_int_equal(stag_heap_check(heap, stderr), 0);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	kill(stranger.pid, SIGKILL); /* his own mapping is gone */
	waitpid(stranger.pid, NULL, 0);
	close(stranger.to);
	snprintf(path, sizeof(path), "/dev/shm/stag-%u/heap.%s", STRANGER, name);
	unlink(path);
}

/* A user who has no directory yet: other tests run as root, too. */
static uid_t somebody(void)
{
	return 1000000u + (uid_t)getpid();
}

static void remove_home(uid_t user)
{
	char path[64];

	for (unsigned int i = 0; i < 8; i++) {
		snprintf(path, sizeof(path), i == 0 ? "/dev/shm/stag-%u" : "/dev/shm/stag-%u.%u",
			 user, i);
		rmdir(path);
	}
}

static void names_that_a_stranger_has_taken_do_not_hinder(void **state)
{
	struct child stranger, first, second, third;
	uint64_t ptr;

	need_root();
	stranger = start_child(STRANGER);
	first = start_child(somebody());
	second = start_child(somebody());
	third = start_child(somebody());
	assert_int_equal(order_child(&stranger, TAKE_NAMES, "", 0, somebody()), 4);
	assert_int_equal(order_child(&first, CREATE, name, 0, 0), 0);
	ptr = order_child(&first, ALLOC, "", 0, 64);
	assert_int_not_equal(ptr, 0);
	order_child(&first, WRITE, "", 0, ptr);
	assert_int_equal(order_child(&second, CREATE, name, 0, 0), 0);
	assert_int_equal(order_child(&second, READ, "", 0, ptr), 42);
	/* Processes that come after the stranger has gone find the heap, too. */
	assert_int_equal(order_child(&stranger, LEAVE_NAMES, "", 0, somebody()), 4);
	assert_int_equal(order_child(&third, ATTACH, name, 0, 0), 0);
	assert_int_equal(order_child(&third, READ, "", 0, ptr), 42);
	order_child(&third, DETACH, "", 0, false);
	order_child(&second, DETACH, "", 0, false);
	order_child(&first, DETACH, "", 0, false);
	end_child(&third);
	end_child(&second);
	end_child(&first);
	end_child(&stranger);
	remove_home(somebody());
}

static void anothers_heap_is_attached_by_naming_its_owner(void **state)
{
	char full[STAG_HEAP_NAME_MAX + STAG_HEAP_OWNER_MAX];
	struct stag_heap *heap;
	struct child stranger;
	uint64_t ptr;

	need_root();
	stranger = start_child(STRANGER);
	assert_int_equal(order_child(&stranger, CREATE, name, 0, 0), 0);
	ptr = order_child(&stranger, ALLOC, "", 0, 64);
	assert_null(stag_heap_attach(name, NULL));
	assert_int_equal(errno, ENOENT);
	snprintf(full, sizeof(full), "%u/%s", STRANGER, name);
	heap = stag_heap_attach(full, NULL);
	assert_non_null(heap);
	assert_int_equal(owner_of(heap), STRANGER);
	*(unsigned char *)ptr = 17;
	assert_int_equal(order_child(&stranger, READ, "", 0, ptr), 17);
	assert_int_equal(stag_heap_detach(heap, true), 0);
	order_child(&stranger, DETACH, "", 0, false);
	assert_null(stag_heap_create(full, NULL));
	assert_int_equal(errno, EACCES);
	assert_non_null(strstr(stag_heap_error(), "only user 65534 can create it"));
	end_child(&stranger);
}

/* Makes a heap of the stranger's with this path of its huge pages, which any of its users could write, and removes it as root. */
static void remove_heap_with(const char *huge_path)
{
	char full[STAG_HEAP_NAME_MAX + STAG_HEAP_OWNER_MAX], path[128];
	struct child stranger = start_child(STRANGER);
	size_t len = strlen(huge_path) + 1;
	int fd;

	assert_int_equal(order_child(&stranger, CREATE, name, 0, 0), 0);
	snprintf(path, sizeof(path), "/dev/shm/stag-%u/heap.%s", STRANGER, name);
	snprintf(full, sizeof(full), "%u/%s", STRANGER, name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(pwrite(fd, huge_path, len, offsetof(struct heap_header, huge_path)), len);
	close(fd);
	assert_int_equal(stag_heap_unlink(full), 0);
	assert_int_not_equal(access(path, F_OK), 0);
	order_child(&stranger, DETACH, "", 0, false);
	end_child(&stranger);
}

static void removal_of_anothers_heap_removes_no_third_users_file(void **state)
{
	char file[128];

	need_root();
	snprintf(file, sizeof(file), "/tmp/" HEAP_HUGE "%s.0123abcd", name);
	close(open(file, O_RDWR | O_CREAT, 0600));
	remove_heap_with(file);
	assert_int_equal(access(file, F_OK), 0);
	assert_int_equal(chown(file, STRANGER, STRANGER), 0);
	remove_heap_with(file);
	assert_int_not_equal(access(file, F_OK), 0);
}

/* Of several processes, each of which finds no directory, one makes it and all use it. */
static void processes_that_start_at_once_use_one_directory(void **state)
{
	struct child many[6];
	char other[64];

	need_root();
	for (unsigned int round = 0; round < 5; round++) {
		for (unsigned int i = 0; i < 6; i++)
			many[i] = start_child(somebody());
		order_all(many, 6, OPEN_HOME, somebody());
		for (unsigned int i = 0; i < 6; i++)
			end_child(&many[i]);
		snprintf(other, sizeof(other), "/dev/shm/stag-%u.1", somebody());
		assert_int_not_equal(access(other, F_OK), 0);
		remove_home(somebody());
	}
}

static void users_share_a_heap_if_both_want_it(void **state)
{
	char full[STAG_HEAP_NAME_MAX + STAG_HEAP_OWNER_MAX];
	struct stag_heap *heap;
	struct child stranger;
	unsigned char *ptr;

	need_root();
	stranger = start_child(STRANGER);
	snprintf(full, sizeof(full), "0/%s", name);
	heap = make_heap(0600);
	assert_int_equal(order_child(&stranger, ATTACH, full, 0666, 0), EACCES);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	heap = make_heap(0666);
	ptr = stag_heap_alloc(heap, 64);
	assert_int_equal(order_child(&stranger, ATTACH, full, 0, 0), EACCES);
	assert_int_equal(order_child(&stranger, ATTACH, full, 0666, 0), 0);
	order_child(&stranger, WRITE, "", 0, (uintptr_t)ptr);
	assert_int_equal(*ptr, 42);
	order_child(&stranger, DETACH, "", 0, false);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	end_child(&stranger);
}

/* ---- one user ------------------------------------------------------------------------ */

static const char *object_path(void)
{
	static char path[128];

	snprintf(path, sizeof(path), "/dev/shm/stag-%u/heap.%s", geteuid(), name);
	return path;
}

static void expect_refused(const struct stag_heap_attr *attr, int error, const char *words)
{
	assert_null(stag_heap_attach(name, attr));
	assert_int_equal(errno, error);
	if (!strstr(stag_heap_error(), words))
		fail_msg("%s", stag_heap_error());
}

static void a_heap_that_others_may_write_is_attached_only_on_request(void **state)
{
	struct stag_heap_attr group = {.mode = 0660}, all = {.mode = 0666};
	struct stag_heap *heap = make_heap(0666);

	assert_int_equal(stag_heap_detach(heap, true), 0);
	expect_refused(NULL, EACCES, "other users may write it (mode 666)");
	expect_refused(&group, EACCES, "other users may write it (mode 666)");
	heap = stag_heap_attach(name, &all);
	assert_non_null(heap);
	assert_int_equal(stag_heap_detach(heap, true), 0);
	assert_int_equal(chmod(object_path(), 0660), 0);
	expect_refused(NULL, EACCES, "other users may write it (mode 660)");
	heap = stag_heap_attach(name, &group);
	assert_non_null(heap);
	assert_int_equal(stag_heap_detach(heap, false), 0);
}

/* Mapped beyond its end, it would end this process with SIGBUS. */
static void a_heap_that_is_shorter_than_it_says_is_refused(void **state)
{
	struct stag_heap *heap = make_heap(0);
	uint64_t size = heap->plan.size, control = heap->plan.control_size;
	uint64_t lengths[] = {size - 1, control, control - 1, 4096, 100, 0};

	assert_int_equal(stag_heap_detach(heap, true), 0);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		assert_int_equal(truncate(object_path(), (off_t)lengths[i]), 0);
		expect_refused(NULL, EPROTO, "not a heap");
	}
	assert_int_equal(unlink(object_path()), 0);
}

static void an_object_of_another_kind_is_refused(void **state)
{
	struct stag_heap *heap = make_heap(0);
	char other[160];

	snprintf(other, sizeof(other), "%s.other", object_path());
	assert_int_equal(stag_heap_detach(heap, true), 0);
	assert_int_equal(link(object_path(), other), 0);
	expect_refused(NULL, EACCES, "2 names");
	assert_int_equal(unlink(object_path()), 0);
	assert_int_equal(symlink(other, object_path()), 0);
	expect_refused(NULL, EPROTO, "not a heap");
	assert_null(stag_heap_look(name));
	assert_int_equal(errno, EPROTO);
	assert_int_equal(unlink(object_path()), 0);
	assert_int_equal(mkfifo(object_path(), 0600), 0);
	expect_refused(NULL, EPROTO, "not a heap");
	assert_null(stag_heap_look(name));
	assert_int_equal(unlink(object_path()), 0);
	assert_int_equal(unlink(other), 0);
}

/* A file of holes that says it has a million blocks takes long to read, and costs its owner nothing. */
static void an_object_of_holes_is_refused_without_reading_it(void **state)
{
	struct heap_header header = {.magic = HEAP_MAGIC,
				     .version = HEAP_VERSION,
				     .max_procs = STAG_HEAP_MAX_PROCS,
				     .address = 0x300000000000,
				     .block_size = 4 * MIB,
				     .max_blocks = HEAP_MAX_BLOCKS};
	int fd = open(object_path(), O_RDWR | O_CREAT | O_EXCL, 0600);

	assert_true(fd >= 0);
	assert_int_equal(layout_plan(&header, HEAP_PAGE), 0);
	assert_int_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	assert_int_equal(ftruncate(fd, (off_t)header.size), 0);
	assert_null(stag_heap_look(name));
	assert_int_equal(errno, EPROTO);
	expect_refused(NULL, EPROTO, "not a heap");
	assert_int_equal(unlink(object_path()), 0);
	close(fd);
}

/* ---- what other processes write --------------------------------------------------------- */

/* The header is read once: what another process writes there later has no effect. */
static void a_header_that_changes_later_is_not_used(void **state)
{
	struct stag_heap *heap = make_heap(0);
	struct stag_heap_stats stats;
	uint64_t size = heap->plan.size;
	void *ptr[100];

	memset(heap->header, 0xee, offsetof(struct heap_header, gate));
	for (unsigned int i = 0; i < 100; i++)
		assert_non_null(ptr[i] = stag_heap_alloc(heap, 1 + i * 500));
	for (unsigned int i = 0; i < 100; i++)
		stag_heap_free(heap, ptr[i]);
	stag_heap_trim(heap);
	stag_heap_reap(heap, STAG_HEAP_REAP_SHARED);
	assert_int_equal(stag_heap_query(heap, &stats, sizeof(stats)), 0);
	assert_int_equal(stats.size, size);
	assert_int_equal(stag_heap_check(heap, stderr), 0);
	assert_int_equal(stag_heap_detach(heap, false), 0);
	assert_int_not_equal(access(object_path(), F_OK), 0);
}

/* Writes random words into the tables and the hints, but not into the headers of blocks. */
static void corrupt_tables(int fd, const struct heap_header *plan, unsigned int seed)
{
	srandom(seed);
	for (int i = 0; i < 2000; i++) {
		uint64_t word = (uint64_t)random() << (random() % 34), size = 1u << random() % 4;
		uint64_t at = HEAP_PAGE + (uint64_t)random() % (plan->control_size - HEAP_PAGE);

		if (random() % 2)
			at = plan->descs_offset +
			     (uint64_t)random() % (64 * sizeof(struct heap_desc));
		assert_int_equal(pwrite(fd, &word, size, (off_t)(at / size * size)), size);
	}
}

/* As `stag heap reap OWNER/NAME` does for root. */
static void tools_survive_tables_that_another_user_has_written(void **state)
{
	struct stag_heap *heap = make_heap(0);
	struct heap_header plan = heap->plan;
	int fd = open(object_path(), O_RDWR | O_CLOEXEC);

	stag_heap_share(heap, stag_heap_alloc(heap, 64));
	stag_heap_share(heap, stag_heap_alloc(heap, 600 * KIB));
	assert_int_equal(stag_heap_detach(heap, true), 0);
	for (unsigned int seed = 0; seed < 200; seed++) {
		struct stag_heap_stats stats;

		corrupt_tables(fd, &plan, seed);
		heap = stag_heap_attach(name, NULL);
		assert_non_null(heap);
		stag_heap_reap(heap, STAG_HEAP_REAP_SHARED);
		stag_heap_trim(heap);
		corrupt_tables(fd, &plan, seed + 1000);
		assert_int_equal(stag_heap_query(heap, &stats, sizeof(stats)), 0);
		stag_heap_reap(heap, STAG_HEAP_REAP_SHARED);
		stag_heap_trim(heap);
		assert_int_equal(stag_heap_detach(heap, true), 0);
	}
	close(fd);
	assert_int_equal(unlink(object_path()), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_strangers_heap_of_the_same_name_is_not_attached),
		cmocka_unit_test(names_that_a_stranger_has_taken_do_not_hinder),
		cmocka_unit_test(anothers_heap_is_attached_by_naming_its_owner),
		cmocka_unit_test(removal_of_anothers_heap_removes_no_third_users_file),
		cmocka_unit_test(processes_that_start_at_once_use_one_directory),
		cmocka_unit_test(users_share_a_heap_if_both_want_it),
		cmocka_unit_test(a_heap_that_others_may_write_is_attached_only_on_request),
		cmocka_unit_test(a_heap_that_is_shorter_than_it_says_is_refused),
		cmocka_unit_test(an_object_of_another_kind_is_refused),
		cmocka_unit_test(an_object_of_holes_is_refused_without_reading_it),
		cmocka_unit_test(a_header_that_changes_later_is_not_used),
		cmocka_unit_test(tools_survive_tables_that_another_user_has_written),
	};

	if (argc == 2 && strcmp(argv[1], "serve") == 0)
		serve_orders(3);
	snprintf(name, sizeof(name), "test-strangers.%d", getpid());
	return cmocka_run_group_tests_name("heap/strangers", tests, NULL, NULL);
}
