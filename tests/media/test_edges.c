// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_edges.c - several writers of parts of the same blocks, which also count in the same words:
 * threads, media of one file, and processes. No write is lost.
 */
#include "backing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "dice.h"

#define SIZE	 (64 * KIB)
#define WRITERS	 4
#define SLICE	 100 /* bytes: a block has slices of five writers and more */
#define COUNTERS 3
#define AT_ONCE	 8

struct writer {
	struct medium *t;
	unsigned int number;
	unsigned long rounds;
	int error;
	pthread_t thread;
};

/*
 * Returns the offset of a writer's slice: slices alternate all over the medium; the words used as
 * counters belong to no writer.
 */
static uint64_t slice_at(unsigned int writer, uint64_t i)
{
	return 4096 + (i * WRITERS + writer) * SLICE;
}

#define SLICES ((SIZE - 4096) / SLICE / WRITERS)

struct worker {
	struct deed deed;
	uint8_t bytes[SLICE];
};

static bool is_done(struct writer *w, struct worker *k)
{
	if (!atomic_load(&k->deed.done))
		return false;
	if (k->deed.op.result)
		w->error = k->deed.op.result;
	return true;
}

/* Writes the round's byte to slice i, or increments a word. */
static void start_operation(struct writer *w, struct worker *k, uint64_t i, uint8_t round)
{
	memset(k->bytes, round, SLICE);
	k->deed = i % 4 == 3 ? add_of(8 * (i % COUNTERS))
			     : write_of(k->bytes, SLICE, slice_at(w->number, i));
	begin(w->t, &k->deed);
}

static void *write_all(void *arg)
{
	struct writer *w = arg;
	struct worker *workers = calloc(AT_ONCE, sizeof(*workers));
	uint64_t until = deadline();

	for (unsigned long round = 1; round <= w->rounds && !w->error; round++) {
		for (uint64_t i = 0; i < SLICES; i += AT_ONCE) {
			for (uint64_t k = 0; k < AT_ONCE && i + k < SLICES; k++)
				start_operation(w, &workers[k], i + k, (uint8_t)round);
			media_kick(w->t->m);
			for (uint64_t k = 0; k < AT_ONCE && i + k < SLICES; k++)
				while (!is_done(w, &workers[k]) && !too_late(until))
					media_poll(w->t->m);
		}
	}
	free(workers);
	return NULL;
}

static unsigned long counted_per_round(void)
{
	unsigned long n = 0;

	for (uint64_t i = 0; i < SLICES; i++)
		n += i % 4 == 3;
	return n;
}

static void expect_all(struct medium *t, unsigned long rounds)
{
	uint64_t words[COUNTERS], sum = 0;
	uint8_t bytes[SLICE];

	memset(bytes, (uint8_t)rounds, SLICE);
	for (unsigned int n = 0; n < WRITERS; n++)
		for (uint64_t i = 0; i < SLICES; i++)
			if (i % 4 != 3)
				expect_on_medium(t, bytes, SLICE, slice_at(n, i));
	peek(t, words, sizeof(words), 0);
	for (int i = 0; i < COUNTERS; i++)
		sum += words[i];
	assert_int_equal(sum, WRITERS * rounds * counted_per_round());
}

static unsigned long rounds_on(enum backing b)
{
	return lessened(b == ON_TMPFS || b == IN_MEMORY ? 40 : 3);
}

static void run_threads(struct medium *media[WRITERS], unsigned long rounds)
{
	struct writer writers[WRITERS];

	for (unsigned int i = 0; i < WRITERS; i++) {
		writers[i] = (struct writer){.t = media[i], .number = i, .rounds = rounds};
		assert_int_equal(pthread_create(&writers[i].thread, NULL, write_all, &writers[i]),
				 0);
	}
	for (unsigned int i = 0; i < WRITERS; i++) {
		pthread_join(writers[i].thread, NULL);
		assert_int_equal(writers[i].error, 0);
	}
	expect_all(media[0], rounds);
}

static void threads_lose_no_writes(void **state)
{
	for (int b = 0; b < NUM_BACKINGS; b++) {
		struct medium t, *same[WRITERS] = {&t, &t, &t, &t};

		if (!open_medium(&t, (enum backing)b, SIZE, NULL))
			continue;
		run_threads(same, rounds_on((enum backing)b));
		close_medium(&t);
	}
}

/* Each thread has a medium of its own, as processes have. */
static void media_of_one_file_lose_no_writes(void **state)
{
	static const enum backing backings[] = {ON_DISK, ON_TMPFS};

	for (int b = 0; b < 2; b++) {
		struct media_attr attr = {.flags = MEDIA_SHARED};
		struct medium t[WRITERS], *each[WRITERS];

		assert_true(open_medium(&t[0], backings[b], SIZE, &attr));
		attr.fd = t[0].fd;
		for (int i = 0; i < WRITERS; i++) {
			each[i] = &t[i];
			t[i].fd = t[0].fd;
			if (i)
				assert_int_equal(media_open(&t[i].m, &attr), 0);
		}
		run_threads(each, rounds_on(backings[b]));
		for (int i = 1; i < WRITERS; i++)
			media_close(t[i].m);
		close_medium(&t[0]);
	}
}

/* ---- locks between media, step by step ---- */

static uint8_t *blocks;	    /* two blocks, aligned */
static struct faulty of[2]; /* the edges of two media of one file */

static void open_two(struct medium *t)
{
	struct media_attr attr = {.flags = MEDIA_SHARED};

	assert_int_equal(posix_memalign((void **)&blocks, 4096, 8192), 0);
	assert_true(open_medium(&t[0], ON_DISK, SIZE, &attr));
	attr.fd = t[1].fd = t[0].fd;
	assert_int_equal(media_open(&t[1].m, &attr), 0);
	for (int i = 0; i < 2; i++)
		inject_between(&t[i], &of[i], let_pass);
}

static void close_two(struct medium *t)
{
	media_close(t[1].m);
	close_medium(&t[0]);
	free(blocks);
}

/* Waits long enough for several attempts, and for a search for dead owners. */
static void expect_still_waiting(struct medium *t, struct deed *d, atomic_ulong *tries)
{
	unsigned long until = atomic_load(tries) + 70;

	media_kick(t->m);
	await((media_poll(t->m), atomic_load(tries) >= until));
	assert_false(atomic_load(&d->done));
}

/*
 * Starts an operation of one medium whose completion is held back, and then one of the other
 * medium, which must wait.
 */
static void expect_second_waits(struct deed first, struct deed second)
{
	struct medium t[2];

	open_two(t);
	if (!media_is_direct(t[0].m)) {
		close_two(t);
		skip();
	}
	first.iov.iov_base = memset(blocks, 1, 4096);
	second.iov.iov_base = memset(blocks + 4096, 2, 4096);
	atomic_store(&of[0].holds, true);
	begin(&t[0], &first);
	media_kick(t[0].m);
	await((media_poll(t[0].m), atomic_load(&of[0].n_events) > 0));
	begin(&t[1], &second);
	expect_still_waiting(&t[1], &second, &of[1].seen[MEDIA_IO_TIMEOUT]);
	assert_int_equal(of[1].seen[MEDIA_IO_READ] + of[1].seen[MEDIA_IO_WRITE], 0);
	atomic_store(&of[0].holds, false);
	assert_int_equal(end(&t[0], &first), 0);
	assert_int_equal(end(&t[1], &second), 0);
	/* The second one's bytes are there: the whole block, or its part. */
	if (second.op.length < 4096)
		memset(blocks + second.op.offset, 2, second.op.length);
	expect_on_medium(&t[0], second.op.length < 4096 ? blocks : blocks + 4096, 4096, 0);
	close_two(t);
}

static void a_write_of_a_part_waits_for_a_write_of_the_block(void **state)
{
	expect_second_waits(write_of(NULL, 4096, 0), write_of(NULL, 100, 50));
}

static void a_write_of_a_block_waits_for_a_write_of_a_part(void **state)
{
	expect_second_waits(write_of(NULL, 100, 50), write_of(NULL, 4096, 0));
}

static pid_t start_writer(int fd, unsigned int number, unsigned long rounds)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct media_attr attr = {.fd = fd, .flags = MEDIA_SHARED};
		struct medium t = {.fd = fd};
		struct writer w = {.t = &t, .number = number, .rounds = rounds};

		if (media_open(&t.m, &attr))
			_exit(1);
		write_all(&w);
		media_close(t.m);
		_exit(w.error ? 2 : 0);
	}
	return pid;
}

static void processes_lose_no_writes(void **state)
{
	static const enum backing backings[] = {ON_DISK, ON_PAGES, ON_TMPFS};

	for (int b = 0; b < 3; b++) {
		unsigned long rounds = rounds_on(backings[b]);
		struct medium t = {.fd = make_file(backings[b], SIZE, NULL)};
		pid_t pids[WRITERS];
		int status;

		for (unsigned int i = 0; i < WRITERS; i++)
			pids[i] = start_writer(t.fd, i, rounds);
		for (unsigned int i = 0; i < WRITERS; i++) {
			assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
			assert_int_equal(status, 0);
		}
		expect_all(&t, rounds);
		close(t.fd);
	}
}

/* Kills a writer at a random moment, most often in the middle of an operation. */
static void locks_of_killed_processes_are_taken_over(void **state)
{
	for (int round = 0; round < 20; round++) {
		struct media_attr attr = {.flags = MEDIA_SHARED};
		struct medium t;
		uint8_t bytes[SLICE] = {1};
		pid_t pid;
		int status;

		assert_true(open_medium(&t, ON_TMPFS, SIZE, &attr));
		pid = start_writer(t.fd, 0, 1000000);
		await((peek(&t, bytes, SLICE, slice_at(0, 0)), bytes[5] != 0));
		usleep((useconds_t)dice(3000));
		kill(pid, SIGKILL);
		for (int i = 0; i < 20; i++) {
			assert_int_equal(perform(&t, add_of(0)), 0);
			assert_int_equal(perform(&t, write_of(bytes, SLICE, slice_at(0, i))), 0);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		close_medium(&t);
	}
}

static void table_path(const struct medium *t, char *path, size_t size)
{
	struct stat st;

	assert_int_equal(fstat(t->fd, &st), 0);
	snprintf(path, size, "/dev/shm/stag-media.%llx.%llx", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
}

/* The shared table is removed when the last medium is closed. */
static void the_last_close_removes_the_table(void **state)
{
	struct media_attr attr = {.flags = MEDIA_SHARED};
	struct media *other;
	struct medium t;
	char path[64];

	assert_true(open_medium(&t, ON_TMPFS, SIZE, &attr));
	attr.fd = t.fd;
	assert_int_equal(media_open(&other, &attr), 0);
	table_path(&t, path, sizeof(path));
	assert_int_equal(access(path, F_OK), 0);
	media_close(other);
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(perform(&t, add_of(0)), 0);
	close_medium(&t);
	assert_int_not_equal(access(path, F_OK), 0);
}

static void wait_for_kill(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

/* Opens the medium in a child, which then calls `then`; the parent continues when it is open. */
static pid_t start_holder(int fd, void (*then)(void))
{
	struct media_attr attr = {.fd = fd, .flags = MEDIA_SHARED};
	struct media *m;
	int is_open[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(is_open), 0);
	pid = fork();
	if (pid == 0) {
		if (media_open(&m, &attr) == 0 && write(is_open[1], "", 1) == 1)
			then();
		_exit(1);
	}
	close(is_open[1]);
	assert_int_equal(read(is_open[0], &byte, 1), 1);
	close(is_open[0]);
	return pid;
}

static void kill_and_wait(pid_t pid)
{
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static bool has_table(const struct medium *t)
{
	char path[64];

	table_path(t, path, sizeof(path));
	return access(path, F_OK) == 0;
}

static void hold_and_die(const struct medium *t)
{
	pid_t pid = start_holder(t->fd, wait_for_kill);

	assert_true(has_table(t));
	kill_and_wait(pid);
}

/*
 * Makes a table as if another process had died. Its name can never be one of ours, in other tests
 * either.
 */
static void make_foreign_table(const struct medium *t, char *path, size_t size)
{
	char other[64];

	snprintf(other, sizeof(other), "/dev/shm/strange.%d", getpid());
	table_path(t, path, size);
	close(open(other, O_RDWR | O_CREAT | O_EXCL, 0666));
	assert_int_equal(chown(other, 65534, 65534), 0);
	assert_int_equal(rename(other, path), 0);
}

/*
 * Opening any other medium removes a dead process's table; that of a live process stays, and so
 * does another user's.
 */
static void tables_of_dead_processes_are_removed(void **state)
{
	struct media_attr attr = {.flags = MEDIA_SHARED};
	struct medium dead = {.fd = make_file(ON_TMPFS, SIZE, NULL)};
	struct medium live = {.fd = make_file(ON_TMPFS, SIZE, NULL)};
	struct medium strange = {.fd = make_file(ON_TMPFS, SIZE, NULL)}, t;
	pid_t holder = start_holder(live.fd, wait_for_kill);
	bool is_root = geteuid() == 0;
	char path[64];

	if (is_root)
		make_foreign_table(&strange, path, sizeof(path));
	hold_and_die(&dead);

	assert_true(open_medium(&t, ON_TMPFS, SIZE, &attr));

	await(!has_table(&dead)); /* other tests may be removing it, too */
	assert_true(has_table(&live));
	assert_true(has_table(&t));
	assert_int_equal(has_table(&strange), is_root);
	kill_and_wait(holder);
	close_medium(&t);
	if (is_root)
		unlink(path);
	close(dead.fd);
	close(live.fd);
	close(strange.fd);
}

static void exit_without_close(void)
{
	exit(0);
}

/* A program need not close its media. */
static void exiting_without_close_leaves_no_table(void **state)
{
	struct medium t = {.fd = make_file(ON_TMPFS, SIZE, NULL)};
	pid_t pid = start_holder(t.fd, exit_without_close);
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_false(has_table(&t));
	close(t.fd);
}

/* A child forked without notice keeps a descriptor, but neither a lock nor the table. */
static void a_bare_forked_child_keeps_no_lock_and_no_table(void **state)
{
	struct media_attr attr = {.flags = MEDIA_SHARED};
	struct media *other;
	struct medium t;
	pid_t pid;

	assert_true(open_medium(&t, ON_TMPFS, SIZE, &attr));
	attr.fd = t.fd;
	assert_int_equal(media_open(&other, &attr), 0);
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
	if (pid == 0)
		wait_for_kill();
	media_close(other);
	assert_int_equal(media_open(&other, &attr), 0);
	media_close(other);
	media_close(t.m);
	assert_false(has_table(&t));
	kill_and_wait(pid);
	close(t.fd);
}

static void an_object_that_is_no_table_is_refused(void **state)
{
	struct media_attr attr = {.flags = MEDIA_SHARED};
	struct medium t = {.fd = make_file(ON_TMPFS, SIZE, NULL)};
	char path[64];
	int object;

	attr.fd = t.fd;
	table_path(&t, path, sizeof(path));
	object = open(path, O_RDWR | O_CREAT, 0600);
	assert_int_equal(write(object, path, sizeof(path)), sizeof(path));
	assert_int_equal(media_open(&t.m, &attr), -EPROTO);
	close(object);
	unlink(path);
	assert_int_equal(media_open(&t.m, &attr), 0);
	close_medium(&t);
}

static void need_root(void)
{
	if (geteuid() == 0)
		return;
	print_message("needs root, to make a file of another user\n");
	skip();
}

/* Processes that come when the stranger has gone use the same table as those before. */
static void a_name_that_a_stranger_has_taken_does_not_hinder(void **state)
{
	struct media_attr attr = {.flags = MEDIA_SHARED};
	struct medium t = {.fd = make_file(ON_TMPFS, SIZE, NULL)};
	char path[64], second[72];
	struct media *other;

	need_root();
	attr.fd = t.fd;
	make_foreign_table(&t, path, sizeof(path));
	snprintf(second, sizeof(second), "%s.1", path);
	assert_int_equal(media_open(&t.m, &attr), 0);
	assert_int_equal(access(second, F_OK), 0);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(media_open(&other, &attr), 0);
	assert_int_not_equal(access(path, F_OK), 0);
	media_close(other);
	assert_int_equal(access(second, F_OK), 0);
	assert_int_equal(perform(&t, add_of(0)), 0);
	close_medium(&t);
	assert_int_not_equal(access(second, F_OK), 0);
}

/* Opens the medium and waits for its end. A byte in the pipe says that it is open. */
static pid_t start_opener(int fd, int pipe_end)
{
	struct media_attr attr = {.fd = fd, .flags = MEDIA_SHARED};
	struct media *m;
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	if (media_open(&m, &attr) == 0 && write(pipe_end, "", 1) == 1)
		wait_for_kill();
	_exit(1);
}

/* Counts the tables of the medium that are not the stranger's. */
static unsigned int count_tables(const char *path)
{
	DIR *dir = opendir("/dev/shm");
	const char *base = path + strlen("/dev/shm/");
	struct dirent *e;
	unsigned int n = 0;
	struct stat st;

	while ((e = readdir(dir)))
		n += strncmp(e->d_name, base, strlen(base)) == 0 &&
		     strchr(".", e->d_name[strlen(base)]) &&
		     fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		     st.st_uid == geteuid();
	closedir(dir);
	return n;
}

/* Another user, who takes the name and leaves it, again and again. */
static pid_t start_stranger(const char *path)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (setgid(65534) || setuid(65534))
		_exit(1);
	for (;;) {
		int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0666);

		sched_yield();
		if (fd >= 0)
			close(fd);
		unlink(path);
		sched_yield();
	}
}

/* If they used two tables, they would not see each other's writes. */
static void processes_find_one_table_while_a_stranger_takes_its_name(void **state)
{
	need_root();
	for (int round = 0; round < 10; round++) {
		struct medium t = {.fd = make_file(ON_TMPFS, SIZE, NULL)};
		pid_t pid[4], stranger;
		int is_open[2];
		char path[64], byte;

		assert_int_equal(pipe(is_open), 0);
		table_path(&t, path, sizeof(path));
		stranger = start_stranger(path);
		for (int i = 0; i < 4; i++)
			pid[i] = start_opener(t.fd, is_open[1]);
		for (int i = 0; i < 4; i++)
			assert_int_equal(read(is_open[0], &byte, 1), 1);
		assert_int_equal(count_tables(path), 1);
		kill_and_wait(stranger);
		for (int i = 0; i < 4; i++)
			kill_and_wait(pid[i]);
		close(is_open[0]);
		close(is_open[1]);
		unlink(path); /* if it is the stranger's; the next open removes tables of the dead */
		close(t.fd);
	}
}

static void become_nobody(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
		_exit(255);
}

/* Returns the error of another user who opens the path to read it, or 0. */
static int open_as_nobody(const char *path)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		become_nobody();
		_exit(open(path, O_RDONLY | O_CLOEXEC) < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 255);
	return WEXITSTATUS(status);
}

/* Whoever can open the table, even only to read it, can lock it. */
static void only_users_who_may_write_the_file_can_open_its_table(void **state)
{
	static const struct {
		mode_t file, table;
		int error; /* of another user */
	} cases[] = {
		{0600, 0600, EACCES}, {0644, 0600, EACCES}, {0444, 0600, EACCES},
		{0640, 0600, EACCES}, {0664, 0660, EACCES}, {0666, 0666, 0},
	};

	need_root();
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct media_attr attr = {.flags = MEDIA_SHARED};
		struct stat table;
		struct medium t;
		char path[64];

		t.fd = attr.fd = make_file(ON_TMPFS, SIZE, NULL);
		assert_int_equal(fchmod(t.fd, cases[i].file), 0);
		assert_int_equal(media_open(&t.m, &attr), 0);
		table_path(&t, path, sizeof(path));
		assert_int_equal(stat(path, &table), 0);
		assert_int_equal(table.st_mode & 0777, cases[i].table);
		assert_int_equal(open_as_nobody(path), cases[i].error);
		media_close(t.m);
		assert_false(has_table(&t));
		close(t.fd);
	}
}

/* Another user, who locks the table for ever. Returns when it is locked. */
static pid_t start_locker(const char *path)
{
	int is_locked[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe(is_locked), 0);
	pid = fork();
	if (pid == 0) {
		int fd;

		become_nobody();
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && flock(fd, LOCK_EX) == 0 && write(is_locked[1], "", 1) == 1)
			wait_for_kill();
		_exit(1);
	}
	close(is_locked[1]);
	assert_int_equal(read(is_locked[0], &byte, 1), 1);
	close(is_locked[0]);
	return pid;
}

/* A user who may write the file may also lock its table: others get an error, and do not wait for ever. */
static void a_locked_table_is_an_error(void **state)
{
	struct media_attr attr = {.flags = MEDIA_SHARED};
	struct media *other;
	struct medium t;
	char path[64];
	pid_t locker;

	need_root();
	t.fd = attr.fd = make_file(ON_TMPFS, SIZE, NULL);
	assert_int_equal(fchmod(t.fd, 0666), 0);
	assert_int_equal(media_open(&t.m, &attr), 0);
	table_path(&t, path, sizeof(path));
	locker = start_locker(path);
	alarm(60);
	assert_int_equal(media_open(&other, &attr), -EBUSY);
	assert_int_equal(perform(&t, add_of(0)), 0);
	media_close(t.m);
	alarm(0);
	assert_true(has_table(&t));
	kill_and_wait(locker);
	assert_int_equal(media_open(&t.m, &attr), 0);
	assert_int_equal(perform(&t, add_of(0)), 0);
	media_close(t.m);
	assert_false(has_table(&t));
	close(t.fd);
}

static int seed_dice(void **state)
{
	dice_start();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(threads_lose_no_writes),
		cmocka_unit_test(media_of_one_file_lose_no_writes),
		cmocka_unit_test(a_write_of_a_part_waits_for_a_write_of_the_block),
		cmocka_unit_test(a_write_of_a_block_waits_for_a_write_of_a_part),
		cmocka_unit_test(processes_lose_no_writes),
		cmocka_unit_test(locks_of_killed_processes_are_taken_over),
		cmocka_unit_test(the_last_close_removes_the_table),
		cmocka_unit_test(tables_of_dead_processes_are_removed),
		cmocka_unit_test(exiting_without_close_leaves_no_table),
		cmocka_unit_test(a_bare_forked_child_keeps_no_lock_and_no_table),
		cmocka_unit_test(an_object_that_is_no_table_is_refused),
		cmocka_unit_test(a_name_that_a_stranger_has_taken_does_not_hinder),
		cmocka_unit_test(processes_find_one_table_while_a_stranger_takes_its_name),
		cmocka_unit_test(only_users_who_may_write_the_file_can_open_its_table),
		cmocka_unit_test(a_locked_table_is_an_error),
	};

	return cmocka_run_group_tests_name("media/edges", tests, seed_dice, NULL);
}
