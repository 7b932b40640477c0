// SPDX-License-Identifier: BSD-2-Clause
/*
 * kill_worker.c - a process that exercises every part of the heap until it is killed.
 *
 * Each allocation's contents identify it and are checked before it is freed. Letters go through
 * boxes from one process to another: the process that takes a letter frees it. The worker measures
 * how long each call takes, without the time that its threads waited for a processor, were stopped,
 * or allocated and released memory in the kernel.
 */
#include "kill.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <rdma/rdma_cma.h>

#include "base/clock.h"
#include "dice.h"

#define PIECES	  48u
#define LARGEST	  (1500ul << 10)
#define RETAIN_MS 5
#define FRESH_NS  (5 * NS_PER_MS)
#define LONG_NS	  (20 * NS_PER_MS)

struct piece {
	void *at;
	bool others; /* the letter came from another process */
};

struct worker {
	const char *name;
	unsigned int number;
	struct office *office;
	struct desk *desk;
	struct stag_heap *heap;
	struct ibv_pd *pd; /* NULL: the worker emulates an adapter itself */
	unsigned int device;
	struct piece piece[PIECES];
	unsigned int n;
	/* time measurement */
	uint64_t began, excused, delays, delays_at;
};

static _Noreturn void fail_worker(struct worker *w, const char *what)
{
	fprintf(stderr, "worker %u: %s: %s\n", w->number, what, stag_heap_error());
	_exit(50);
}

/* ---- how long calls take ------------------------------------------------------ */

static _Atomic uint64_t in_system;

/*
 * Replaces the C library's fallocate(): the kernel holds a lock on the file while it allocates or
 * releases its memory, and the thread that holds the lock may wait for a processor. A process that
 * dies or is stopped never keeps that lock.
 */
int fallocate(int fd, int mode, off_t offset, off_t length)
{
	uint64_t since = clock_ns();
	int rc = (int)syscall(SYS_fallocate, fd, mode, offset, length);

	atomic_fetch_add(&in_system, clock_ns() - since);
	return rc;
}

/* Returns how long this thread was runnable but waited for a processor. */
static uint64_t thread_delay(int tasks, const char *tid)
{
	unsigned long long ran = 0, waited = 0;
	char path[300], text[128];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "%s/schedstat", tid);
	fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? waited : 0;
}

/* Returns how long any task of the machine has waited for a processor. */
static uint64_t machine_delay(void)
{
	FILE *file = fopen("/proc/pressure/cpu", "re");
	unsigned long long us = 0;

	if (!file)
		return 0;
	if (fscanf(file, "some %*s %*s %*s total=%llu", &us) != 1)
		us = 0;
	fclose(file);
	return us * 1000;
}

/*
 * Returns the delays of all threads of this process: any thread may hold a lock that the others
 * need, and not be running. Delays of threads that have ended are not known: for calls that end
 * threads, use the delay of the whole machine.
 */
static uint64_t delays(enum call call)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *e;
	uint64_t sum = call == DETACH ? machine_delay() : 0;

	while (call != DETACH && tasks && (e = readdir(tasks)))
		if (e->d_name[0] != '.')
			sum += thread_delay(dirfd(tasks), e->d_name);
	if (tasks)
		closedir(tasks);
	return sum;
}

/*
 * Starts measuring a call. Delays are read only from time to time: those of the few milliseconds
 * before a call count as the call's own.
 */
static void begin_call(struct worker *w, enum call call)
{
	w->began = clock_ns();
	if (w->began - w->delays_at > FRESH_NS || call == DETACH) {
		w->delays = delays(call);
		w->began = w->delays_at = clock_ns();
	}
	w->excused = atomic_load(&w->desk->stopped) + atomic_load(&in_system);
	atomic_store(&w->desk->call, call);
}

static void end_call(struct worker *w)
{
	enum call call = (enum call)atomic_load(&w->desk->call);
	uint64_t took = clock_ns() - w->began, excused = 0;

	if (took > LONG_NS)
		excused = delays(call) - w->delays + atomic_load(&w->desk->stopped) +
			  atomic_load(&in_system) - w->excused;
	took = took > excused ? took - excused : 0;
	if (took > atomic_load(&w->desk->longest[call]))
		atomic_store(&w->desk->longest[call], took);
	if (call == DETACH)
		w->delays_at = 0;
	atomic_fetch_add(&w->desk->calls, 1);
	atomic_store(&w->desk->call, NO_CALL);
}

#define timed(w, call, expression)                                                                 \
	({                                                                                         \
		begin_call(w, call);                                                               \
		__auto_type result_ = (expression);                                                \
		end_call(w);                                                                       \
		result_;                                                                           \
	})

/* ---- letters --------------------------------------------------------------------- */

static uint64_t mark_at(uint64_t serial, uint64_t offset)
{
	return (serial + offset) * 0x9e3779b97f4a7c15u;
}

/*
 * Returns the offset of the next marked word after the first two: one in each page, and the last
 * word. 0: no more.
 */
static uint64_t next_mark(uint64_t offset, uint64_t size)
{
	if (offset == size - 8)
		return 0;
	return offset + 2048 + 8 <= size - 8 ? offset + 2048 : size - 8;
}

void letter_write(void *at, uint64_t size, uint64_t serial)
{
	uint64_t *head = at;

	head[0] = size;
	head[1] = serial;
	for (uint64_t offset = 16; offset != 0; offset = next_mark(offset, size)) {
		uint64_t mark = mark_at(serial, offset);

		memcpy((char *)at + offset, &mark, sizeof(mark));
	}
}

bool letter_is_whole(const void *at)
{
	const uint64_t *head = at;
	uint64_t size = head[0], serial = head[1];

	if (size < LETTER_MIN || size > LARGEST * 2) {
		fprintf(stderr, "%p: not a letter: %#llx\n", at, (unsigned long long)size);
		return false;
	}
	for (uint64_t offset = 16; offset != 0; offset = next_mark(offset, size)) {
		uint64_t mark = mark_at(serial, offset);

		if (memcmp((const char *)at + offset, &mark, sizeof(mark)) == 0)
			continue;
		fprintf(stderr, "%p: letter %llu of %llu bytes: wrong at %llu\n", at,
			(unsigned long long)serial, (unsigned long long)size,
			(unsigned long long)offset);
		return false;
	}
	return true;
}

static void write_letter(struct worker *w, void *at, uint64_t size)
{
	letter_write(at, size, atomic_fetch_add(&w->office->serials, 1));
}

static void expect_whole(struct worker *w, const void *at)
{
	if (!letter_is_whole(at))
		fail_worker(w, "memory changed since it was written");
}

/* ---- actions ----------------------------------------------------------------------- */

static uint64_t some_size(void)
{
	uint64_t size = dice_size(one_in(20) ? LARGEST : one_in(4) ? 100000 : 4000);

	return size < LETTER_MIN ? LETTER_MIN : size;
}

static void *new_letter(struct worker *w)
{
	uint64_t size = some_size();
	void *at;

	switch (dice(6)) {
	case 0:
		at = timed(w, CALLOC, stag_heap_calloc(w->heap, 1, size));
		break;
	case 1:
		at = timed(w, ALIGNED, stag_heap_aligned(w->heap, 16ull << dice(13), size));
		break;
	default:
		at = timed(w, ALLOC, stag_heap_alloc(w->heap, size));
	}
	if (at)
		write_letter(w, at, size);
	else if (errno != ENOMEM)
		fail_worker(w, "no memory");
	return at;
}

static void free_piece(struct worker *w, void *at, bool others)
{
	expect_whole(w, at);
	begin_call(w, others ? FREE_OTHERS : FREE);
	stag_heap_free(w->heap, at);
	end_call(w);
}

static void drop_one(struct worker *w)
{
	unsigned int i = (unsigned int)dice(w->n);
	struct piece piece = w->piece[i];

	w->piece[i] = w->piece[--w->n];
	free_piece(w, piece.at, piece.others);
}

static void keep_piece(struct worker *w, void *at, bool others)
{
	if (w->n == PIECES)
		drop_one(w);
	w->piece[w->n++] = (struct piece){at, others};
}

static void make_one(struct worker *w)
{
	void *at = new_letter(w);

	if (at)
		keep_piece(w, at, false);
}

static void resize_one(struct worker *w)
{
	struct piece *piece = &w->piece[dice(w->n)];
	uint64_t size = some_size();
	void *at;

	expect_whole(w, piece->at);
	at = timed(w, REALLOC, stag_heap_realloc(w->heap, piece->at, size));
	if (!at)
		return;
	piece->others &= at == piece->at;
	piece->at = at;
	write_letter(w, at, size);
}

static void take_from_box(struct worker *w, uintptr_t letter)
{
	if (letter == 0)
		return;
	expect_whole(w, (void *)letter);
	if (one_in(2))
		free_piece(w, (void *)letter, true);
	else
		keep_piece(w, (void *)letter, true);
}

/*
 * Swaps a letter into a box: the letter that was in the box is ours now, the one put in is not any
 * more.
 */
static void post_one(struct worker *w)
{
	void *at = new_letter(w);

	if (!at)
		return;
	if (timed(w, SHARE, stag_heap_share(w->heap, at)) != 0)
		fail_worker(w, "letter cannot be shared");
	take_from_box(w, atomic_exchange(&w->office->box[dice(BOXES)], (uintptr_t)at));
}

static void take_one(struct worker *w)
{
	take_from_box(w, atomic_exchange(&w->office->box[dice(BOXES)], 0));
}

static void share_for_a_while(struct worker *w)
{
	struct piece *piece = &w->piece[dice(w->n)];
	void *at = piece->at;

	if (piece->others) /* its writer may be dead: unsharing would free it */
		return;
	if (timed(w, SHARE, stag_heap_share(w->heap, at)) != 0 ||
	    timed(w, UNSHARE, stag_heap_unshare(w->heap, at)) != 0)
		fail_worker(w, "piece cannot be shared temporarily");
	if (one_in(2) && timed(w, SHARE, stag_heap_share(w->heap, at)) != 0)
		fail_worker(w, "piece cannot be shared again");
}

/* Looks up keys; without a device, does what an adapter does for a peer's access. */
static void use_keys(struct worker *w)
{
	void *at = w->piece[dice(w->n)].at;
	struct stag_heap_keys keys;

	if (w->pd) {
		if (timed(w, KEYS, stag_heap_keys(w->heap, w->device, at, &keys)) != 0)
			fail_worker(w, "no keys");
		return;
	}
	atomic_store(&w->heap->self->hazards[dice(HEAP_HAZARDS)],
		     one_in(2) ? heap_index(w->heap, at) + 1 : 0);
}

static void expect_sound(struct worker *w)
{
	if (timed(w, CHECK, stag_heap_check(w->heap, stderr)) != 0)
		fail_worker(w, "heap fails its consistency check");
}

/* ---- attaching and detaching --------------------------------------------------------- */

static void attach_heap(struct worker *w)
{
	struct stag_heap_attr attr = {.retain_ms = RETAIN_MS};

	w->heap = timed(w, ATTACH, stag_heap_attach(w->name, &attr));
	if (!w->heap)
		fail_worker(w, "cannot attach");
	if (w->pd &&
	    timed(w, ADD_DEVICE, stag_heap_add_device(w->heap, w->pd, NULL, &w->device)) != 0)
		fail_worker(w, "cannot add a device");
}

static void detach_heap(struct worker *w)
{
	while (w->n > 0 && !one_in(30))
		drop_one(w);
	w->n = 0;
	if (timed(w, DETACH, stag_heap_detach(w->heap, false)) != 0)
		fail_worker(w, "cannot detach");
	w->heap = NULL;
}

static void detach_until_pause_ends(struct worker *w)
{
	detach_heap(w);
	atomic_store(&w->desk->away, 1);
	while (atomic_load(&w->office->pause))
		usleep(1000);
	atomic_store(&w->desk->away, 0);
	attach_heap(w);
}

static void step_rare(struct worker *w)
{
	switch (dice(40)) {
	case 0:
		detach_heap(w);
		attach_heap(w);
		break;
	case 1:
		expect_sound(w);
		break;
	case 2 ... 10:
		timed(w, REAP, stag_heap_reap(w->heap, 0));
		break;
	default:
		timed(w, TRIM, stag_heap_trim(w->heap));
	}
}

static void run_until_killed(struct worker *w)
{
	uint64_t what = dice(100);

	if (what < 30 || w->n == 0)
		make_one(w);
	else if (what < 50)
		drop_one(w);
	else if (what < 60)
		resize_one(w);
	else if (what < 72)
		post_one(w);
	else if (what < 84)
		take_one(w);
	else if (what < 90)
		share_for_a_while(w);
	else if (what < 98)
		use_keys(w);
	else
		step_rare(w);
}

/* Opens a device in half of the workers. */
static void open_device(struct worker *w)
{
	struct ibv_context **contexts;

	if (w->number % 2 != 0)
		return;
	contexts = rdma_get_devices(NULL);
	w->pd = contexts && contexts[0] ? ibv_alloc_pd(contexts[0]) : NULL;
	if (!w->pd)
		fail_worker(w, "no device");
}

int kill_worker_main(const char *heap, unsigned int number)
{
	struct worker w = {.name = heap, .number = number};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpriority(PRIO_PROCESS, 0,
		    -15); /* if permitted: the time that others make us wait is not measured */
	w.office = mmap(NULL, sizeof(*w.office), PROT_READ | PROT_WRITE, MAP_SHARED, KILL_FD, 0);
	if (w.office == MAP_FAILED)
		return 1;
	w.desk = &w.office->desk[number];
	/*
	 * Does the membarrier registration of stag_heap_attach() before there are threads: then it
	 * does not wait.
	 */
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	open_device(&w);
	attach_heap(&w);
	for (;;) {
		if (atomic_load(&w.office->pause))
			detach_until_pause_ends(&w);
		run_until_killed(&w);
	}
}
