// SPDX-License-Identifier: BSD-2-Clause
/*
 * xfer_cases.c - the cases of stag bench part xfer: the transfer manager beside posting by hand.
 *
 * A case moves the same bytes in turn through the manager and by its yardsticks. Before anything is
 * timed, what the manager moved is compared byte by byte.
 */
#include "part.h"

#include <dlfcn.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "stag.h"

#define LINE	    64
#define MIN_ROUNDS  5
#define MAX_ROUNDS  100000
#define BATCH_PIECE 1852 /* 270,000 of them are 500 MB */
#define BATCH_MOST  270000

/* The elements that a case moves, of one buffer each. */
struct work {
	struct stag_xfer_elem *elems;
	struct stag_xfer_buf *bufs;
	struct stag_xfer_req *reqs; /* one for each element, or one for all */
	size_t n, size, num_reqs;
	uint64_t span; /* of remote memory, from the first to the last byte */
	struct hand_style style;
};

/* Order of the pieces in memory. */
enum { LOCAL_APART = 1, LOCAL_RANDOM = 2, REMOTE_APART = 4, REQUEST_EACH = 8 };

static struct {
	struct bench_options o;
	struct bench_link l;
	struct stag_xfer *x;
	uint64_t (*malloc_calls)(void); /* of the library that counts allocations, or NULL */
} b;

/* ---- the work ---- */

static size_t stride_of(size_t size, bool apart)
{
	return apart ? (size + LINE - 1) / LINE * LINE + LINE : size;
}

static uint32_t dice(void)
{
	static uint64_t x = 88172645463325252u;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return (uint32_t)(x >> 16);
}

static void shuffle(uint32_t *v, size_t n)
{
	for (size_t i = n; i > 1; i--) {
		size_t j = dice() % i;
		uint32_t t = v[i - 1];

		v[i - 1] = v[j];
		v[j] = t;
	}
}

static uint32_t *numbers(size_t n, bool shuffled)
{
	uint32_t *v = bench_memory(n * sizeof(*v));

	for (size_t i = 0; i < n; i++)
		v[i] = (uint32_t)i;
	if (shuffled)
		shuffle(v, n);
	return v;
}

static struct work make_work(size_t n, size_t size, unsigned int where)
{
	size_t local = stride_of(size, where & (LOCAL_APART | LOCAL_RANDOM));
	size_t remote = stride_of(size, where & REMOTE_APART);
	uint32_t *slot = numbers(n, where & LOCAL_RANDOM);
	struct work w = {.n = n, .size = size, .span = (n - 1) * remote + size};

	w.num_reqs = where & REQUEST_EACH ? n : 1;
	w.elems = bench_memory(n * sizeof(*w.elems));
	w.bufs = bench_memory(n * sizeof(*w.bufs));
	w.reqs = bench_memory(w.num_reqs * sizeof(*w.reqs));
	for (size_t i = 0; i < n; i++) {
		w.bufs[i].addr = (uintptr_t)b.l.memory + slot[i] * local;
		w.bufs[i].length = size;
		w.bufs[i].lkey = b.l.mr->lkey;
		w.elems[i] = (struct stag_xfer_elem){.bufs = &w.bufs[i],
						     .num_bufs = 1,
						     .rkey = b.l.rkey,
						     .remote_addr = b.l.remote + i * remote};
	}
	munmap(slot, n * sizeof(*slot));
	return w;
}

static void free_work(struct work *w)
{
	munmap(w->elems, w->n * sizeof(*w->elems));
	munmap(w->bufs, w->n * sizeof(*w->bufs));
	munmap(w->reqs, w->num_reqs * sizeof(*w->reqs));
}

/* Prepares requests for the first n elements. */
static void fill_requests(struct work *w, size_t n)
{
	memset(w->reqs, 0, w->num_reqs * sizeof(*w->reqs));
	for (size_t i = 0; i < w->num_reqs; i++) {
		w->reqs[i].op = b.o.op;
		w->reqs[i].elems = &w->elems[i];
		w->reqs[i].num_elems = w->num_reqs == 1 ? n : 1;
	}
}

/* ---- three ways to move it ---- */

static void by_manager(struct work *w, size_t n)
{
	struct stag_xfer_req *done[64];
	size_t left = w->num_reqs;

	stag_xfer_plug(b.x);
	for (size_t i = 0; i < w->num_reqs; i++)
		if (stag_xfer_submit(b.x, &w->reqs[i]))
			bench_die("transfer manager: %s", stag_xfer_error(b.x));
	stag_xfer_unplug(b.x);
	while (left) {
		int got = stag_xfer_poll(b.x, done, 64);

		for (int i = 0; i < got; i++)
			if (done[i]->error)
				bench_die("a request failed: %s (%s)", strerror(done[i]->error),
					  ibv_wc_status_str(done[i]->status));
		left -= (size_t)got;
	}
}

static void each_by_itself(struct work *w, size_t n)
{
	hand_post_each(&b.l, b.o.op, w->elems, n, &w->style);
}

static void bytes_alone(struct work *w, size_t n)
{
	hand_post_chunks(&b.l, b.o.op, 0, b.l.memory, b.l.mr->lkey, n * w->size);
}

/* ---- figures ---- */

static uint64_t target_cpu(void)
{
	return b.l.target ? bench_clock(b.l.cpu_time) : 0;
}

static void count_mallocs(struct bench_series *s, uint64_t before)
{
	if (b.malloc_calls)
		s->mallocs =
			(s->mallocs < 0 ? 0 : s->mallocs) + (int64_t)(b.malloc_calls() - before);
}

/* Runs it once, and records its time. */
static void take_sample(struct bench_series *s, struct work *w, size_t n,
			void (*move)(struct work *, size_t))
{
	uint64_t mallocs, theirs = target_cpu(), mine, start, ns;

	if (s->rounds == s->room)
		return;
	fill_requests(w, n);
	mallocs = b.malloc_calls ? b.malloc_calls() : 0;
	mine = bench_clock(CLOCK_PROCESS_CPUTIME_ID);
	start = clock_ns();
	move(w, n);
	ns = clock_ns() - start;
	s->cpu += bench_clock(CLOCK_PROCESS_CPUTIME_ID) - mine;
	count_mallocs(s, mallocs);
	s->target_cpu += target_cpu() - theirs;
	s->wall += ns;
	s->ns[s->rounds++] = ns;
	s->elements += n;
	s->bytes += n * w->size;
}

static uint64_t descriptors(void)
{
	struct stag_xfer_counters c = {0};

	stag_xfer_query_counters(b.x, &c, sizeof(c));
	return c.descriptors;
}

static void report_case(struct bench_result *r, struct work *w)
{
	report_result(r);
	free_work(w);
}

/* ---- correctness ---- */

/* Fills local memory with new bytes; with zeroes where a read will place data. */
static void fill_local(size_t size)
{
	static uint64_t seed;
	uint64_t *words = (void *)b.l.memory;

	seed += 0x10000000000;
	for (size_t i = 0; i < size / 8; i++)
		words[i] = b.o.op == STAG_XFER_READ ? 0 : bench_pattern(8 * i + seed);
}

/* Moves it once through the manager, fetches the result by hand, and compares. */
static void verify_transfer(struct work *w)
{
	char *there = bench_memory(w->span);
	struct ibv_mr *mr = ibv_reg_mr(b.l.pd, there, w->span,
				       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);

	if (!mr)
		bench_die("cannot register %zu MiB: %s", (size_t)w->span >> 20, strerror(errno));
	fill_local(b.l.size);
	fill_requests(w, w->n);
	by_manager(w, w->n);
	hand_post_chunks(&b.l, STAG_XFER_READ, 0, there, mr->lkey, w->span);
	for (size_t i = 0; i < w->n; i++)
		if (memcmp(there + (w->elems[i].remote_addr - b.l.remote),
			   (void *)(uintptr_t)w->bufs[i].addr, w->size))
			bench_die("element %zu was not transferred correctly", i);
	ibv_dereg_mr(mr);
	munmap(there, w->span);
}

/* Finds the fastest way to post by hand, by trying the first n elements. */
static void find_style(struct work *w, size_t n)
{
	static const unsigned int lists[] = {16, 64, 256};
	uint64_t best = UINT64_MAX;

	for (unsigned int i = 0; i < 6; i++) {
		struct hand_style style = {lists[i / 2], i % 2};
		uint64_t start;

		if (style.in_line && (b.o.op == STAG_XFER_READ || w->size > b.l.max_inline))
			continue;
		hand_post_each(&b.l, b.o.op, w->elems, n, &style);
		start = clock_ns();
		hand_post_each(&b.l, b.o.op, w->elems, n, &style);
		if (clock_ns() - start < best) {
			best = clock_ns() - start;
			w->style = style;
		}
	}
}

/* ---- the cases ---- */

struct bench_case {
	const char *name;
	void (*run)(const struct bench_case *c);
	size_t (*memory)(const struct bench_case *c);
	unsigned int where;
};

static size_t elements_memory(const struct bench_case *c)
{
	return b.o.elements * stride_of(b.o.size, true);
}

static size_t batches_memory(const struct bench_case *c)
{
	return b.o.pieces * stride_of(BATCH_PIECE, true);
}

static size_t large_memory(const struct bench_case *c)
{
	return b.o.bytes;
}

static bool has_time_left(const struct bench_result *r, uint64_t start)
{
	double secs = (double)(clock_ns() - start) / NS_PER_S;
	size_t rounds = r->series[0].rounds;

	report_progress(r->name, (size_t)(100 * secs), (size_t)(100 * b.o.secs));
	return rounds < MIN_ROUNDS || (secs < b.o.secs && rounds < r->series[0].room);
}

static void run_elements(const struct bench_case *c)
{
	struct bench_result r = {.unit = UNIT_ELEMENTS};
	struct work w = make_work(b.o.elements, b.o.size, c->where);
	struct bench_series *manager = report_series(&r, "manager", NULL, MAX_ROUNDS);
	struct bench_series *each = report_series(&r, "each", "each by itself", MAX_ROUNDS);
	struct bench_series *alone = report_series(&r, "alone", "its bytes alone", MAX_ROUNDS);
	uint64_t start, formed;

	snprintf(r.name, sizeof(r.name), "%s", c->name);
	snprintf(r.what, sizeof(r.what), "%zu %s of %zu B", w.n,
		 w.num_reqs > 1 ? "requests" : "elements", w.size);
	verify_transfer(&w);
	find_style(&w, w.n);
	formed = descriptors();
	start = clock_ns();
	do {
		take_sample(manager, &w, w.n, by_manager);
		take_sample(each, &w, w.n, each_by_itself);
		take_sample(alone, &w, w.n, bytes_alone);
	} while (has_time_left(&r, start));
	manager->descriptors = (descriptors() - formed) / manager->rounds;
	report_case(&r, &w);
}

/*
 * Returns a number of pieces: at most 270000, with quantiles of 128, 12416 and 119296 at 50, 90 and
 * 99 %.
 */
static size_t pieces_at(double quantile)
{
	static const struct {
		double at, pieces;
	} known[] = {{0, 1}, {0.5, 128}, {0.9, 12416}, {0.99, 119296}, {1, BATCH_MOST}};
	int i = 1;

	while (quantile > known[i].at)
		i++;
	/* geometric interpolation between two quantiles */
	double share = (quantile - known[i - 1].at) / (known[i].at - known[i - 1].at);
	double log_low = log(known[i - 1].pieces);
	double log_high = log(known[i].pieces);

	return (size_t)ceil(exp(log_low + share * (log_high - log_low)) * (double)b.o.pieces /
			    BATCH_MOST);
}

static void run_batches(const struct bench_case *c)
{
	struct bench_result r = {.unit = UNIT_BATCH};
	struct work w = make_work(b.o.pieces, BATCH_PIECE, c->where);
	size_t rounds = b.o.batches;
	struct bench_series *manager = report_series(&r, "manager", NULL, rounds);
	struct bench_series *alone = report_series(&r, "alone", "its bytes alone", rounds);
	struct bench_series *each = report_series(&r, "each", "each by itself", rounds);
	uint32_t *order = numbers(rounds, true);

	snprintf(r.name, sizeof(r.name), "%s", c->name);
	snprintf(r.what, sizeof(r.what), "%zu batches, p99", rounds);
	verify_transfer(&w);
	find_style(&w, pieces_at(0.9));
	for (size_t i = 0; i < rounds; i++) {
		double at = rounds > 1 ? (double)order[i] / (double)(rounds - 1) : 0.5;
		size_t n = pieces_at(at);

		report_progress(r.name, i, rounds);
		take_sample(manager, &w, n, by_manager);
		take_sample(alone, &w, n, bytes_alone);
		take_sample(each, &w, n, each_by_itself);
	}
	munmap(order, rounds * sizeof(*order));
	report_case(&r, &w);
}

static void run_large(const struct bench_case *c)
{
	struct bench_result r = {.unit = UNIT_BANDWIDTH};
	struct work w = make_work(1, b.o.bytes, 0);
	struct bench_series *manager = report_series(&r, "manager", NULL, MAX_ROUNDS);
	struct bench_series *alone = report_series(&r, "alone", "a loop of 1 MiB", MAX_ROUNDS);
	uint64_t start, formed;

	snprintf(r.name, sizeof(r.name), "%s", c->name);
	snprintf(r.what, sizeof(r.what), "one request of %zu MiB", w.size >> 20);
	verify_transfer(&w);
	formed = descriptors();
	start = clock_ns();
	do {
		take_sample(manager, &w, 1, by_manager);
		take_sample(alone, &w, 1, bytes_alone);
	} while (has_time_left(&r, start));
	manager->descriptors = (descriptors() - formed) / manager->rounds;
	report_case(&r, &w);
}

static void plan_transfers(struct work *w, size_t n)
{
	static struct ibv_sge sges[256];
	struct stag_xfer_desc desc = {.sge = sges};
	struct stag_xfer_cursor cursor = {0};
	struct stag_xfer_limits limits;

	if (stag_xfer_query_limits(b.x, b.o.op, &limits))
		bench_die("transfer manager: %s", stag_xfer_error(b.x));
	if (limits.max_segments > 256)
		limits.max_segments = 256;
	while (stag_xfer_form(&limits, w->reqs, &cursor, &desc))
		;
}

static void fill_each(struct work *w, size_t n)
{
	size_t at = 0;

	while (at < n)
		at += hand_fill(&b.l, b.o.op, w->elems + at, n - at, &w->style);
}

static void run_plan(const struct bench_case *c)
{
	struct bench_result r = {.unit = UNIT_PLAN};
	struct work w = make_work(b.o.elements, b.o.size, c->where);
	struct bench_series *manager = report_series(&r, "manager", NULL, MAX_ROUNDS);
	struct bench_series *each =
		report_series(&r, "each", "a work request for each", MAX_ROUNDS);
	struct stag_xfer_limits limits;
	uint64_t start;

	snprintf(r.name, sizeof(r.name), "%s", c->name);
	snprintf(r.what, sizeof(r.what), "%zu elements of %zu B", w.n, w.size);
	w.style.list = 64;
	start = clock_ns();
	do {
		take_sample(manager, &w, w.n, plan_transfers);
		take_sample(each, &w, w.n, fill_each);
	} while (has_time_left(&r, start));
	fill_requests(&w, w.n);
	stag_xfer_query_limits(b.x, b.o.op, &limits);
	manager->descriptors = stag_xfer_count(&limits, w.reqs, NULL);
	report_case(&r, &w);
}

static const struct bench_case cases[] = {
	{"elements", run_elements, elements_memory, LOCAL_APART},
	{"elements_random", run_elements, elements_memory, LOCAL_RANDOM},
	{"elements_contiguous", run_elements, elements_memory, 0},
	{"requests", run_elements, elements_memory, LOCAL_APART | REQUEST_EACH},
	{"batches", run_batches, batches_memory, LOCAL_RANDOM},
	{"batches_apart", run_batches, batches_memory, LOCAL_RANDOM | REMOTE_APART},
	{"large", run_large, large_memory, 0},
	{"plan", run_plan, elements_memory, LOCAL_APART},
	{"plan_contiguous", run_plan, elements_memory, 0},
};

#define N_CASES (sizeof(cases) / sizeof(*cases))

/* ---- the run ---- */

static void make_manager(void)
{
	struct stag_xfer_attr attr = {.descriptors = (uint32_t)b.o.descriptors};

	b.x = stag_xfer_create(&attr);
	if (!b.x)
		bench_die("cannot create a transfer manager: %s", strerror(errno));
	if (stag_xfer_add_rail(b.x, b.l.managed.qp, NULL))
		bench_die("transfer manager: %s", stag_xfer_error(b.x));
}

static void begin_report(void)
{
	const char *device = ibv_get_device_name(b.l.managed.id->verbs->device);
	const char *op = b.o.op == STAG_XFER_READ ? "read" : "write";
	struct bench_head head = {.format = b.o.format, .subject = "manager"};

	snprintf(head.title, sizeof(head.title), "%ss by %s, target %s at %s, %u descriptors", op,
		 device, b.l.target_polls ? "polling" : "asleep", b.l.address,
		 (unsigned int)b.o.descriptors);
	head.json = json_pack("{s:s s:s s:s s:b s:i}", "device", device, "address", b.l.address,
			      "op", op, "target_polls", b.l.target_polls, "descriptors",
			      (int)b.o.descriptors);
	report_begin(&head);
}

int bench_measure(const struct bench_options *o)
{
	size_t memory = 0;

	b.o = *o;
	for (size_t i = 0; i < N_CASES; i++)
		if (bench_wants(&b.o, cases[i].name) && cases[i].memory(&cases[i]) > memory)
			memory = cases[i].memory(&cases[i]);
	if (!memory) {
		complain("no such case; 'stag bench part xfer --help' names them");
		return EXIT_USAGE;
	}
	*(void **)&b.malloc_calls = dlsym(RTLD_DEFAULT, "bench_malloc_calls");
	bench_link_open(&b.l, &b.o, memory);
	make_manager();
	begin_report();
	for (size_t i = 0; i < N_CASES; i++)
		if (bench_wants(&b.o, cases[i].name))
			cases[i].run(&cases[i]);
	report_end();
	if (stag_xfer_destroy(b.x))
		bench_die("transfer manager: %s", stag_xfer_error(b.x));
	bench_link_close(&b.l);
	return EXIT_OK;
}
