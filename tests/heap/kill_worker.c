// SPDX-License-Identifier: BSD-2-Clause
/*
 * kill_worker.c - a process that uses all of the heap at once, as long as it lives.
 *
 * What it allocates says what it is, and is looked at before it is freed. Letters go through boxes
 * from one process to another: the one that takes a letter frees it. It measures how long each call
 * takes, without the time that its threads waited for a processor, were stopped, or got memory from the
 * kernel and gave it back.
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
	bool others; /* was another's letter */
};

struct worker {
	const char *name;
	unsigned int number;
	struct office *office;
	struct desk *desk;
	struct stag_heap *heap;
	struct ibv_pd *pd; /* NULL: it plays an adapter itself */
	unsigned int device;
	struct piece piece[PIECES];
	unsigned int n;
	/* measuring */
	uint64_t began, excused, delays, delays_at;
};

static _Noreturn void give_up(struct worker *w, const char *what)
{
	fprintf(stderr, "worker %u: %s: %s\n", w->number, what, stag_heap_error());
	_exit(50);
}

/* ---- how long calls take ------------------------------------------------------ */

static _Atomic uint64_t in_system;

/*
 * Instead of the C library's: the kernel has a lock for a file while it gives or takes memory of it, and
 * who has that may wait for a processor. It is never kept by a process that dies or is stopped.
 */
int fallocate(int fd, int mode, off_t offset, off_t length)
{
	uint64_t since = clock_ns();
	int rc = (int)syscall(SYS_fallocate, fd, mode, offset, length);

	atomic_fetch_add(&in_system, clock_ns() - since);
	return rc;
}

/* How long this thread has waited for a processor, while it could have run. */
static uint64_t delay_of(int tasks, const char *tid)
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

/* How long somebody, somewhere in the machine, has. */
static uint64_t pressure(void)
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
 * Any thread may have what the others need, and not be running. Those of one that has ended are not
 * known: where threads end, what the whole machine says has to do.
 */
static uint64_t delays(enum call call)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *e;
	uint64_t sum = call == DETACH ? pressure() : 0;

	while (call != DETACH && tasks && (e = readdir(tasks)))
		if (e->d_name[0] != '.')
			sum += delay_of(dirfd(tasks), e->d_name);
	if (tasks)
		closedir(tasks);
	return sum;
}

/* Delays are looked up now and then: those of a few milliseconds before a call count as its own. */
static void begin(struct worker *w, enum call call)
{
	w->began = clock_ns();
	if (w->began - w->delays_at > FRESH_NS || call == DETACH) {
		w->delays = delays(call);
		w->began = w->delays_at = clock_ns();
	}
	w->excused = atomic_load(&w->desk->stopped) + atomic_load(&in_system);
	atomic_store(&w->desk->call, call);
}

static void end(struct worker *w)
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
		begin(w, call);                                                                    \
		__auto_type result_ = (expression);                                                \
		end(w);                                                                            \
		result_;                                                                           \
	})

/* ---- letters --------------------------------------------------------------------- */

static uint64_t mark_at(uint64_t serial, uint64_t offset)
{
	return (serial + offset) * 0x9e3779b97f4a7c15u;
}

/* After the first two words: something in each page, and the last word. 0: no more. */
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
		fprintf(stderr, "%p: no letter: %#llx\n", at, (unsigned long long)size);
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
		give_up(w, "memory that is not as it was left");
}

/* ---- what it does ----------------------------------------------------------------- */

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
		give_up(w, "no memory");
	return at;
}

static void throw_away(struct worker *w, void *at, bool others)
{
	expect_whole(w, at);
	begin(w, others ? FREE_OTHERS : FREE);
	stag_heap_free(w->heap, at);
	end(w);
}

static void drop_one(struct worker *w)
{
	unsigned int i = (unsigned int)dice(w->n);
	struct piece piece = w->piece[i];

	w->piece[i] = w->piece[--w->n];
	throw_away(w, piece.at, piece.others);
}

static void keep(struct worker *w, void *at, bool others)
{
	if (w->n == PIECES)
		drop_one(w);
	w->piece[w->n++] = (struct piece){at, others};
}

static void make_one(struct worker *w)
{
	void *at = new_letter(w);

	if (at)
		keep(w, at, false);
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

static void got(struct worker *w, uintptr_t letter)
{
	if (letter == 0)
		return;
	expect_whole(w, (void *)letter);
	if (one_in(2))
		throw_away(w, (void *)letter, true);
	else
		keep(w, (void *)letter, true);
}

/* What was in the box is ours, as what is put in is not any more. */
static void post_one(struct worker *w)
{
	void *at = new_letter(w);

	if (!at)
		return;
	if (timed(w, SHARE, stag_heap_share(w->heap, at)) != 0)
		give_up(w, "a letter that cannot be shared");
	got(w, atomic_exchange(&w->office->box[dice(BOXES)], (uintptr_t)at));
}

static void take_one(struct worker *w)
{
	got(w, atomic_exchange(&w->office->box[dice(BOXES)], 0));
}

static void share_for_a_while(struct worker *w)
{
	struct piece *piece = &w->piece[dice(w->n)];
	void *at = piece->at;

	if (piece->others) /* its writer may be dead: it would be gone */
		return;
	if (timed(w, SHARE, stag_heap_share(w->heap, at)) != 0 ||
	    timed(w, UNSHARE, stag_heap_unshare(w->heap, at)) != 0)
		give_up(w, "a piece that cannot be shared for a while");
	if (one_in(2) && timed(w, SHARE, stag_heap_share(w->heap, at)) != 0)
		give_up(w, "a piece that cannot be shared again");
}

/* Or, without a device, does what an adapter does for a peer that accesses it. */
static void use_keys(struct worker *w)
{
	void *at = w->piece[dice(w->n)].at;
	struct stag_heap_keys keys;

	if (w->pd) {
		if (timed(w, KEYS, stag_heap_keys(w->heap, w->device, at, &keys)) != 0)
			give_up(w, "no keys");
		return;
	}
	atomic_store(&w->heap->self->hazards[dice(HEAP_HAZARDS)],
		     one_in(2) ? heap_index(w->heap, at) + 1 : 0);
}

static void expect_sound(struct worker *w)
{
	if (timed(w, CHECK, stag_heap_check(w->heap, stderr)) != 0)
		give_up(w, "not sound");
}

/* ---- coming and going --------------------------------------------------------------- */

static void come(struct worker *w)
{
	struct stag_heap_attr attr = {.retain_ms = RETAIN_MS};

	w->heap = timed(w, ATTACH, stag_heap_attach(w->name, &attr));
	if (!w->heap)
		give_up(w, "cannot attach");
	if (w->pd &&
	    timed(w, ADD_DEVICE, stag_heap_add_device(w->heap, w->pd, NULL, &w->device)) != 0)
		give_up(w, "cannot add a device");
}

static void go(struct worker *w)
{
	while (w->n > 0 && !one_in(30))
		drop_one(w);
	w->n = 0;
	if (timed(w, DETACH, stag_heap_detach(w->heap, false)) != 0)
		give_up(w, "cannot detach");
	w->heap = NULL;
}

static void stay_away(struct worker *w)
{
	go(w);
	atomic_store(&w->desk->away, 1);
	while (atomic_load(&w->office->pause))
		usleep(1000);
	atomic_store(&w->desk->away, 0);
	come(w);
}

static void seldom(struct worker *w)
{
	switch (dice(40)) {
	case 0:
		go(w);
		come(w);
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

static void live(struct worker *w)
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
		seldom(w);
}

/* Half of them have a device. */
static void open_device(struct worker *w)
{
	struct ibv_context **contexts;

	if (w->number % 2 != 0)
		return;
	contexts = rdma_get_devices(NULL);
	w->pd = contexts && contexts[0] ? ibv_alloc_pd(contexts[0]) : NULL;
	if (!w->pd)
		give_up(w, "no device");
}

int work(const char *heap, unsigned int number)
{
	struct worker w = {.name = heap, .number = number};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpriority(PRIO_PROCESS, 0,
		    -15); /* if we may: how long others make us wait is not the question */
	w.office = mmap(NULL, sizeof(*w.office), PROT_READ | PROT_WRITE, MAP_SHARED, KILL_FD, 0);
	if (w.office == MAP_FAILED)
		return 1;
	w.desk = &w.office->desk[number];
	/* What attaching has to do, but before there are threads: then it waits for nothing. */
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	open_device(&w);
	come(&w);
	for (;;) {
		if (atomic_load(&w.office->pause))
			stay_away(&w);
		live(&w);
	}
}
