// SPDX-License-Identifier: BSD-2-Clause
/*
 * heap_cases.c - the cases of stag bench part heap: the registered heap beside the malloc() of the
 * process, and beside registering by hand.
 *
 * A round of a series is some thousand operations. The series of a case take turns, round by round.
 * The first word of each allocation is written.
 */
#include "part.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "heap_peer.h"
#include "base/clock.h"
#include "stag.h"
#include "stag/heap.h"

#define MIN_ROUNDS   5
#define MAX_ROUNDS   10000
#define MAX_SET	     1024 /* a power of two */
#define MAX_SET_HUGE 32	  /* of 1 MiB each; also a power of two */
#define RING	     1024
#define TRIES	     3
#define MAX_COUNT    (1u << 26)
#define SPARSE	     (64ull << 30)
#define BLOCK	     (4ull << 20)
#define ALWAYS	     static inline __attribute__((always_inline))

/* A queue of allocations from one process to the other. */
struct ring {
	_Atomic uint64_t put __attribute__((aligned(64)));
	_Atomic uint64_t got __attribute__((aligned(64)));
	void *slot[RING] __attribute__((aligned(64)));
	struct bench_mate *mate; /* of this round */
	uint64_t attach_ns;
};

static struct {
	struct bench_options o;
	struct stag_heap *heap;
	const struct bench_peer *peer; /* NULL: none was preloaded */
	struct ibv_context *verbs;
	struct ibv_pd *pd;
	unsigned int device; /* its number in the heap */
	struct ring *ring;
	char name[STAG_HEAP_NAME_MAX];
	const char *malloc_name;
	size_t size;		   /* of an allocation */
	size_t live;		   /* number of live allocations */
	void *set[MAX_SET];	   /* of the heap */
	void *malloc_set[MAX_SET]; /* of malloc() */
	void *peer_set[MAX_SET];   /* of the peer */
	uint64_t dice;
} b;

/* ---- three allocators ---- */

ALWAYS void *take_heap(size_t size)
{
	return stag_heap_alloc(b.heap, size);
}

ALWAYS void give_heap(void *ptr)
{
	stag_heap_free(b.heap, ptr);
}

ALWAYS void *take_malloc(size_t size)
{
	return malloc(size);
}

ALWAYS void give_malloc(void *ptr)
{
	free(ptr);
}

ALWAYS void *take_peer(size_t size)
{
	return b.peer->take(size);
}

ALWAYS void give_peer(void *ptr)
{
	b.peer->give(ptr);
}

ALWAYS void *take(void *(*from)(size_t), size_t size)
{
	void *ptr = from(size);

	if (!ptr)
		bench_die("cannot allocate %zu bytes", size);
	*(volatile uint64_t *)ptr = 1;
	return ptr;
}

/* ---- parts of a round, the same for each ---- */

ALWAYS void fill(void **set, void *(*from)(size_t))
{
	for (size_t i = 0; i < b.live; i++)
		set[i] = take(from, b.size);
}

ALWAYS void empty(void **set, void (*to)(void *))
{
	for (size_t i = 0; i < b.live; i++)
		to(set[i]);
}

/* Frees a random allocation, and makes a new one in its place. */
ALWAYS void churn(void **set, void *(*from)(size_t), void (*to)(void *), uint64_t n)
{
	size_t size = b.size, mask = b.live - 1;
	uint64_t dice = b.dice;

	for (uint64_t i = 0; i < n; i++) {
		size_t at;

		dice ^= dice << 13;
		dice ^= dice >> 7;
		dice ^= dice << 17;
		at = dice & mask;
		to(set[at]);
		set[at] = take(from, size);
	}
	b.dice = dice;
}

ALWAYS void produce(void *(*from)(size_t), uint64_t n)
{
	struct ring *ring = b.ring;
	uint64_t put = atomic_load(&ring->put), until = put + n;

	for (; put < until; put++) {
		while (put - atomic_load_explicit(&ring->got, memory_order_acquire) >= RING)
			mate_relax(ring->mate);
		ring->slot[put % RING] = take(from, b.size);
		atomic_store_explicit(&ring->put, put + 1, memory_order_release);
	}
	while (atomic_load_explicit(&ring->got, memory_order_acquire) != until)
		mate_relax(ring->mate);
}

ALWAYS void consume(void (*to)(void *), uint64_t n)
{
	struct ring *ring = b.ring;
	uint64_t got = atomic_load(&ring->got), until = got + n;

	for (; got < until; got++) {
		while (got == atomic_load_explicit(&ring->put, memory_order_acquire))
			mate_relax(ring->mate);
		to(ring->slot[got % RING]);
		atomic_store_explicit(&ring->got, got + 1, memory_order_release);
	}
}

static void fill_heap(void)
{
	fill(b.set, take_heap);
}

static void empty_heap(void)
{
	empty(b.set, give_heap);
}

static void churn_heap(uint64_t n)
{
	churn(b.set, take_heap, give_heap, n);
}

static void produce_heap(uint64_t n)
{
	produce(take_heap, n);
}

static void consume_heap(uint64_t n)
{
	consume(give_heap, n);
}

static void fill_malloc(void)
{
	fill(b.malloc_set, take_malloc);
}

static void empty_malloc(void)
{
	empty(b.malloc_set, give_malloc);
}

static void churn_malloc(uint64_t n)
{
	churn(b.malloc_set, take_malloc, give_malloc, n);
}

static void produce_malloc(uint64_t n)
{
	produce(take_malloc, n);
}

static void consume_malloc(uint64_t n)
{
	consume(give_malloc, n);
}

static void fill_peer(void)
{
	fill(b.peer_set, take_peer);
}

static void empty_peer(void)
{
	empty(b.peer_set, give_peer);
}

static void churn_peer(uint64_t n)
{
	churn(b.peer_set, take_peer, give_peer, n);
}

/* ---- keys ---- */

static volatile uint64_t sink;

static void look_up_keys(uint64_t n)
{
	struct stag_heap *heap = b.heap;
	unsigned int device = b.device;
	struct stag_heap_keys keys = {0};
	uint64_t sum = 0;

	for (uint64_t i = 0; i < n; i++) {
		if (stag_heap_keys(heap, device, b.set[i % MAX_SET], &keys))
			bench_die("cannot get keys: %s", stag_heap_error());
		sum += keys.lkey;
	}
	sink = sum;
}

static void ready_heap(uint64_t n)
{
	struct stag_heap_keys keys = {0};
	uint64_t sum = 0;

	for (uint64_t i = 0; i < n; i++) {
		void *ptr = take(take_heap, b.size);

		if (stag_heap_keys(b.heap, b.device, ptr, &keys))
			bench_die("cannot get keys: %s", stag_heap_error());
		sum += keys.lkey ^ keys.rkey;
		give_heap(ptr);
	}
	sink = sum;
}

static void ready_registered(uint64_t n)
{
	uint64_t sum = 0;

	for (uint64_t i = 0; i < n; i++) {
		void *ptr = take(take_malloc, b.size);
		struct ibv_mr *mr = ibv_reg_mr(
			b.pd, ptr, b.size,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);

		if (!mr)
			bench_die("cannot register %zu bytes: %s", b.size, strerror(errno));
		sum += mr->lkey ^ mr->rkey;
		ibv_dereg_mr(mr);
		give_malloc(ptr);
	}
	sink = sum;
}

static void open_device(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i] && !b.verbs; i++)
		if (!strcmp(ibv_get_device_name(list[i]), b.o.device))
			b.verbs = ibv_open_device(list[i]);
	if (list)
		ibv_free_device_list(list);
	b.pd = b.verbs ? ibv_alloc_pd(b.verbs) : NULL;
	if (!b.pd)
		bench_die("no device %s here, or it cannot be used", b.o.device);
}

static void close_device(void)
{
	ibv_dealloc_pd(b.pd);
	ibv_close_device(b.verbs);
	b.pd = NULL;
	b.verbs = NULL;
}

/* ---- creating and attaching heaps ---- */

static void create_heap(void)
{
	struct stag_heap_attr attr = {
		.flags = STAG_HEAP_EXCLUSIVE, .block_size = BLOCK, .max_blocks = SPARSE / BLOCK};

	b.heap = stag_heap_create(b.name, &attr);
	if (!b.heap)
		bench_die("heap: %s", stag_heap_error());
}

static void create_registered_heap(void)
{
	open_device();
	create_heap();
	if (stag_heap_add_device(b.heap, b.pd, NULL, &b.device))
		bench_die("heap: %s", stag_heap_error());
}

static void detach_heap(uint64_t n)
{
	if (stag_heap_detach(b.heap, false))
		bench_die("heap: %s", stag_heap_error());
	b.heap = NULL;
}

static void attach_heap(uint64_t n)
{
	b.heap = stag_heap_attach(b.name, NULL);
	if (!b.heap)
		bench_die("heap: %s", stag_heap_error());
}

static void attach_and_detach(uint64_t n)
{
	uint64_t start = clock_ns();

	attach_heap(0);
	b.ring->attach_ns = clock_ns() - start;
	detach_heap(0);
}

/* ---- figures ---- */

/* The work of a series in a round: in this process, and in the mate. */
struct parts {
	bench_part mine, theirs; /* either may be NULL */
	struct bench_mate *mate;
	const uint64_t *ns; /* which time counts, if not the longer of the two */
};

static void play_round(struct bench_series *s, const struct parts *parts, uint64_t n)
{
	uint64_t ns = 0, cpu = 0, their_ns = 0, their_cpu = 0, start;

	b.ring->mate = parts->mate;
	if (parts->theirs)
		mate_begin(parts->mate, parts->theirs, n);
	if (parts->mine) {
		cpu = bench_clock(CLOCK_THREAD_CPUTIME_ID);
		start = clock_ns();
		parts->mine(n);
		ns = clock_ns() - start;
		cpu = bench_clock(CLOCK_THREAD_CPUTIME_ID) - cpu;
	}
	if (parts->theirs)
		mate_await(parts->mate, &their_ns, &their_cpu);
	s->wall += ns > their_ns ? ns : their_ns;
	s->cpu += cpu;
	s->target_cpu += their_cpu;
	s->elements += n;
	s->bytes += n * b.size;
	s->ns[s->rounds++] = parts->ns ? *parts->ns : ns > their_ns ? ns : their_ns;
}

/* Returns the shortest time of a round of n, without interruptions. */
static uint64_t try_round(const struct parts *parts, uint64_t n)
{
	uint64_t ns[TRIES], least = UINT64_MAX;
	struct bench_series s = {.ns = ns};

	while (s.rounds < TRIES) {
		play_round(&s, parts, n);
		if (ns[s.rounds - 1] < least)
			least = ns[s.rounds - 1];
	}
	return least;
}

/*
 * Finds a number of operations for which a round is long compared to its start and short compared
 * to the case.
 */
static uint64_t find_count(const struct parts *parts)
{
	uint64_t want = (uint64_t)(b.o.secs * NS_PER_S / 100), n = 64;

	if (parts->ns)
		return 1;
	if (want < NS_PER_MS / 10)
		want = NS_PER_MS / 10;
	while (n < MAX_COUNT && try_round(parts, n) < want)
		n *= 2;
	return n;
}

static bool has_time_left(const struct bench_result *r, uint64_t start)
{
	double secs = (double)(clock_ns() - start) / NS_PER_S;
	size_t rounds = r->series[0].rounds;

	report_progress(r->name, (size_t)(100 * secs), (size_t)(100 * b.o.secs));
	return rounds < MIN_ROUNDS || (secs < b.o.secs && rounds < MAX_ROUNDS);
}

static void run_series(struct bench_result *r, const struct parts *parts)
{
	uint64_t n[3] = {0}, start;

	for (unsigned int i = 0; i < r->num_series; i++)
		n[i] = find_count(&parts[i]);
	start = clock_ns();
	do
		for (unsigned int i = 0; i < r->num_series; i++)
			play_round(&r->series[i], &parts[i], n[i]);
	while (has_time_left(r, start));
	report_result(r);
}

/* ---- the cases ---- */

struct heap_case {
	const char *name, *what;
	void (*run)(const struct heap_case *c);
	size_t size;
};

static struct bench_result begin_case(const struct heap_case *c, enum bench_unit unit)
{
	struct bench_result r = {.unit = unit};

	snprintf(r.name, sizeof(r.name), "%s", c->name);
	snprintf(r.what, sizeof(r.what), "%s", c->what);
	b.size = c->size;
	b.live = c->size >= 1 << 20 ? MAX_SET_HUGE : MAX_SET;
	report_series(&r, "heap", NULL, MAX_ROUNDS);
	return r;
}

static void open_all(struct bench_result *r)
{
	bench_pin(1);
	create_heap();
	fill_heap();
	fill_malloc();
	if (!b.peer)
		return;
	report_series(r, b.peer->name, b.peer->words, MAX_ROUNDS);
	if (b.peer->create(b.name))
		bench_die("%s cannot create a heap", b.peer->name);
	fill_peer();
}

static void join_all(uint64_t n)
{
	attach_heap(0);
	fill_heap();
	fill_malloc();
	if (!b.peer)
		return;
	if (b.peer->attach(b.name))
		bench_die("%s cannot attach a heap", b.peer->name);
	fill_peer();
}

static void leave_all(uint64_t n)
{
	empty_heap();
	empty_malloc();
	detach_heap(0);
	if (!b.peer)
		return;
	empty_peer();
	b.peer->detach();
}

static void close_all(void)
{
	leave_all(0);
	if (b.peer)
		b.peer->remove(b.name);
}

static void run_churn(const struct heap_case *c)
{
	struct bench_result r = begin_case(c, UNIT_OPERATION);
	struct parts parts[3] = {
		{.mine = churn_heap}, {.mine = churn_malloc}, {.mine = churn_peer}};

	report_series(&r, b.malloc_name, b.malloc_name, MAX_ROUNDS);
	open_all(&r);
	run_series(&r, parts);
	close_all();
}

/* Each of the two processes has a working set of its own; malloc() shares nothing. */
static void run_churn2(const struct heap_case *c)
{
	struct bench_result r = begin_case(c, UNIT_OPERATION);
	struct bench_mate *mate = mate_start(MATE_PROCESS);
	struct parts parts[3] = {{.mine = churn_heap, .theirs = churn_heap, .mate = mate},
				 {.mine = churn_malloc, .theirs = churn_malloc, .mate = mate},
				 {.mine = churn_peer, .theirs = churn_peer, .mate = mate}};

	report_series(&r, b.malloc_name, b.malloc_name, MAX_ROUNDS);
	open_all(&r);
	mate_do(mate, join_all);
	run_series(&r, parts);
	mate_do(mate, leave_all);
	mate_end(mate);
	close_all();
}

/* memory of malloc() can only be passed to another thread */
static void run_cross(const struct heap_case *c)
{
	struct bench_result r = begin_case(c, UNIT_OPERATION);
	struct bench_mate *process = mate_start(MATE_PROCESS), *thread = mate_start(MATE_THREAD);
	struct parts parts[2] = {
		{.mine = produce_heap, .theirs = consume_heap, .mate = process},
		{.mine = produce_malloc, .theirs = consume_malloc, .mate = thread}};

	bench_pin(1);
	report_series(&r, b.malloc_name, "between threads", MAX_ROUNDS);
	create_heap();
	mate_do(process, attach_heap);
	run_series(&r, parts);
	mate_do(process, detach_heap);
	mate_end(process);
	mate_end(thread);
	detach_heap(0);
}

static void run_ready(const struct heap_case *c)
{
	struct bench_result r = begin_case(c, UNIT_OPERATION);
	struct parts parts[2] = {{.mine = ready_heap}, {.mine = ready_registered}};

	bench_pin(1);
	report_series(&r, "registered", "malloc, ibv_reg_mr", MAX_ROUNDS);
	create_registered_heap();
	run_series(&r, parts);
	detach_heap(0);
	close_device();
}

static void run_keys(const struct heap_case *c)
{
	struct bench_result r = begin_case(c, UNIT_OPERATION);
	struct parts parts = {.mine = look_up_keys};

	bench_pin(1);
	create_registered_heap();
	fill_heap();
	run_series(&r, &parts);
	empty_heap();
	detach_heap(0);
	close_device();
}

static void run_attach(const struct heap_case *c)
{
	struct bench_result r = begin_case(c, UNIT_TIME);
	struct bench_mate *mate = mate_start(MATE_PROCESS);
	struct parts parts = {.theirs = attach_and_detach, .mate = mate, .ns = &b.ring->attach_ns};

	create_heap();
	fill_heap();
	run_series(&r, &parts);
	mate_end(mate);
	empty_heap();
	detach_heap(0);
}

static const struct heap_case cases[] = {
	{"churn_64", "64 B, one process", run_churn, 64},
	{"churn_4k", "4 KiB, one process", run_churn, 4096},
	{"churn_1m", "1 MiB, one process", run_churn, 1 << 20},
	{"churn2_64", "64 B, two processes", run_churn2, 64},
	{"churn2_4k", "4 KiB, two processes", run_churn2, 4096},
	{"churn2_1m", "1 MiB, two processes", run_churn2, 1 << 20},
	{"cross_64", "64 B, freed by another", run_cross, 64},
	{"cross_4k", "4 KiB, freed by another", run_cross, 4096},
	{"cross_1m", "1 MiB, freed by another", run_cross, 1 << 20},
	{"ready_4k", "4 KiB and its keys", run_ready, 4096},
	{"ready_1m", "1 MiB and its keys", run_ready, 1 << 20},
	{"keys", "keys of an allocation", run_keys, 16384},
	{"attach", "a heap of 64 GiB", run_attach, 16384},
};

#define N_CASES (sizeof(cases) / sizeof(*cases))

/* ---- the run ---- */

static void prepare_memory(const struct bench_options *o)
{
	b.o = *o;
	b.dice = 88172645463325252u;
	b.ring = mmap(NULL, sizeof(*b.ring), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	if (b.ring == MAP_FAILED)
		bench_die("out of memory: %s", strerror(errno));
	snprintf(b.name, sizeof(b.name), "stag-bench-%d", (int)getpid());
	b.malloc_name = dlsym(RTLD_DEFAULT, "mi_version") ? "mimalloc" : "malloc";
	b.peer = dlsym(RTLD_DEFAULT, "bench_peer");
}

static void begin_report(void)
{
	struct bench_head head = {.format = b.o.format, .subject = "heap"};

	snprintf(head.title, sizeof(head.title),
		 "registered heap; the ratio says how many times as fast it is");
	head.json = json_pack("{s:s s:s}", "device", b.o.device, "malloc", b.malloc_name);
	report_begin(&head);
}

int bench_heap_measure(const struct bench_options *o)
{
	bool any = false;
	cpu_set_t all;

	prepare_memory(o);
	for (size_t i = 0; i < N_CASES; i++)
		any |= bench_wants(o, cases[i].name);
	if (!any) {
		complain("no such case; 'stag bench part heap --help' names them");
		return EXIT_USAGE;
	}
	sched_getaffinity(0, sizeof(all), &all);
	begin_report();
	for (size_t i = 0; i < N_CASES; i++) {
		if (!bench_wants(o, cases[i].name))
			continue;
		cases[i].run(&cases[i]);
		sched_setaffinity(0, sizeof(all), &all);
	}
	report_end();
	return EXIT_OK;
}
