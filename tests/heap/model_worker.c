// SPDX-License-Identifier: BSD-2-Clause
/*
 * model_worker.c - a process of the model test: it allocates, frees, hands over and checks objects
 * at random.
 */
#include "model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGEST (8 * MIB)
#define BUDGET	(24 * MIB) /* bytes of live objects */

/* ---- shared memory ---- */

static uint64_t town_size(void)
{
	return sizeof(struct town) + taken_bytes(AREA);
}

struct town *town_map(int fd)
{
	void *town = mmap(NULL, town_size(), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (ftruncate(fd, (off_t)town_size()) != 0)
		return NULL;
	return town == MAP_FAILED ? NULL : town;
}

void town_unmap(struct town *town)
{
	munmap(town, town_size());
}

static bool ring_put(struct ring *r, const struct object *o)
{
	uint32_t put = atomic_load(&r->put);

	if (put - atomic_load(&r->get) == PARCELS)
		return false;
	r->parcel[put % PARCELS] = *o;
	atomic_store(&r->put, put + 1);
	return true;
}

static bool ring_get(struct ring *r, struct object *o)
{
	uint32_t get = atomic_load(&r->get);

	if (get == atomic_load(&r->put))
		return false;
	*o = r->parcel[get % PARCELS];
	atomic_store(&r->get, get + 1);
	return true;
}
/* ---- contents of objects ---- */

uint64_t next_serial(struct worker *w)
{
	return ++w->serial * WORKERS + w->number;
}

void expect_contents(struct worker *w, const struct object *o)
{
	uint64_t at;

	if (!object_holds(o, o->at, o->size, &at))
		fail_object(w, o, "does not hold what was written, at byte %llu",
			    (unsigned long long)at);
	if (stag_heap_usable_size(w->heap, o->at) != o->usable)
		fail_object(w, o, "%llu bytes were usable", (unsigned long long)o->usable);
}

/* ---- list of live objects ---- */

void enlist(struct worker *w, const struct object *o)
{
	w->object[w->n++] = *o;
	w->bytes += o->usable;
}

struct object delist(struct worker *w, uint64_t i)
{
	struct object o = w->object[i];

	w->object[i] = w->object[--w->n];
	w->bytes -= o.usable;
	return o;
}

/* Checks new memory at o->at (owned by no other object, aligned, large enough), then fills it. */
static void check_and_enlist(struct worker *w, struct object *o, uint64_t alignment)
{
	o->usable = stag_heap_usable_size(w->heap, o->at);
	if (o->usable < o->size)
		fail_object(w, o, "only %llu are usable", (unsigned long long)o->usable);
	if ((uintptr_t)o->at % alignment != 0)
		fail_object(w, o, "not aligned to %llu", (unsigned long long)alignment);
	if (!taken_mark(&w->taken, o))
		fail_object(w, o, "part of it belongs to another object");
	if (one_in(4))
		o->size = o->usable;
	o->serial = next_serial(w);
	o->whole = one_in(64);
	object_fill(o, o->at);
	enlist(w, o);
	w->tally->bytes += o->size;
}

static void unmark(struct worker *w, const struct object *o)
{
	if (!taken_clear(&w->taken, o))
		fail_object(w, o, "its ownership marks are gone");
}

static void check_and_delist(struct worker *w, const struct object *o)
{
	expect_contents(w, o);
	unmark(w, o);
	stag_heap_free(w->heap, o->at);
}

static void free_one(struct worker *w)
{
	struct object o;

	if (w->n == 0)
		return;
	o = delist(w, dice(w->n));
	check_and_delist(w, &o);
	w->tally->frees++;
}

/* ---- steps ---- */

/* Returns a random size, mostly one that a size class serves; runs of blocks are slow. */
static uint64_t any_size(void)
{
	return dice_size(one_in(4) ? LARGEST : LARGEST / 128);
}

static void expect_full(struct worker *w, const struct object *o)
{
	if (errno != ENOMEM)
		fail_object(w, o, "%s: %s", strerror(errno), stag_heap_error());
	w->tally->full++;
	for (int i = 0; i < 8; i++)
		free_one(w);
}

static void expect_zero(struct worker *w, const struct object *o)
{
	uint64_t step_random = o->size <= 64 * 1024 || one_in(8) ? 1 : 509;

	for (uint64_t i = 0; i < o->size; i += step_random)
		if (o->at[i])
			fail_object(w, o, "byte %llu is not zero", (unsigned long long)i);
}

static void step_alloc(struct worker *w)
{
	struct object o = {.size = any_size()};

	o.at = stag_heap_alloc(w->heap, o.size);
	if (!o.at)
		return expect_full(w, &o);
	check_and_enlist(w, &o, HEAP_MIN_OBJECT);
	w->tally->allocs++;
}

static void step_calloc(struct worker *w)
{
	uint64_t n = 1 + dice(9);
	struct object o = {.size = (any_size() + n - 1) / n * n};

	o.at = stag_heap_calloc(w->heap, n, o.size / n);
	if (!o.at)
		return expect_full(w, &o);
	expect_zero(w, &o);
	check_and_enlist(w, &o, HEAP_MIN_OBJECT);
	w->tally->callocs++;
}

static void step_aligned(struct worker *w)
{
	uint64_t most = (uint64_t)__builtin_ctzll(w->heap->geo.block_size);
	uint64_t alignment = 1ull << dice(one_in(16) ? most + 1 : 13);
	struct object o = {.size = any_size()};

	o.at = stag_heap_aligned(w->heap, alignment, o.size);
	if (!o.at)
		return expect_full(w, &o);
	check_and_enlist(w, &o, alignment);
	w->tally->aligneds++;
}

static void step_realloc(struct worker *w)
{
	struct object old, o = {0};
	uint64_t at;

	if (w->n == 0)
		return;
	old = delist(w, dice(w->n));
	expect_contents(w, &old);
	unmark(w, &old); /* before the call: another process may own it before realloc returns */
	o.size = one_in(2) ? any_size() : 1 + dice(2 * old.size);
	if (o.size > LARGEST)
		o.size = LARGEST;
	o.at = stag_heap_realloc(w->heap, old.at, o.size);
	if (!o.at) {
		taken_mark(&w->taken, &old);
		enlist(w, &old);
		return expect_full(w, &o);
	}
	if (!object_holds(&old, o.at, o.size, &at))
		fail_object(w, &o, "byte %llu is not what it was", (unsigned long long)at);
	check_and_enlist(w, &o, HEAP_MIN_OBJECT);
	w->tally->reallocs++;
	w->tally->moved += o.at != old.at;
}

static void step_check_contents(struct worker *w)
{
	if (w->n)
		expect_contents(w, &w->object[dice(w->n)]);
}

struct stag_heap_keys keys_of(struct worker *w, unsigned int device, const struct object *o)
{
	struct stag_heap_keys first, last;

	if (stag_heap_keys(w->heap, w->device[device], o->at, &first) ||
	    stag_heap_keys(w->heap, w->device[device], o->at + o->size - 1, &last))
		fail_object(w, o, "no keys: %s", stag_heap_error());
	if (first.rkey != last.rkey || first.lkey != last.lkey || !first.rkey || !first.lkey)
		fail_object(w, o, "two keys");
	w->tally->keys++;
	return first;
}

static void step_keys(struct worker *w)
{
	if (w->n)
		keys_of(w, (unsigned int)dice(DEVICES), &w->object[dice(w->n)]);
}

static void step_share(struct worker *w)
{
	struct object *o;

	if (w->n == 0)
		return;
	o = &w->object[dice(w->n)];
	if (one_in(2) ? stag_heap_share(w->heap, o->at) : stag_heap_unshare(w->heap, o->at))
		fail_object(w, o, "%s", stag_heap_error());
	w->tally->shared++;
}

/*
 * Hands an object to another process or thread, shared or not: both stay valid as long as no
 * process dies.
 */
static void step_give(struct worker *w)
{
	uint64_t i;

	if (w->n == 0)
		return;
	i = dice(w->n);
	if (w->object[i].size > MIB && !one_in(8))
		return;
	if (one_in(2) && stag_heap_share(w->heap, w->object[i].at))
		fail_object(w, &w->object[i], "%s", stag_heap_error());
	if (!ring_put(&w->town->ring[w->number][dice(WORKERS)], &w->object[i]))
		return;
	delist(w, i);
	w->tally->given++;
}

static void receive(struct worker *w, unsigned int from)
{
	struct object o;

	while (w->n < OBJECTS - 1 && ring_get(&w->town->ring[from][w->number], &o)) {
		w->tally->got++;
		if (one_in(2)) {
			check_and_delist(w, &o);
		} else {
			expect_contents(w, &o);
			enlist(w, &o);
		}
	}
}

static void step_receive(struct worker *w)
{
	for (unsigned int i = 0; i < WORKERS; i++)
		if (i != w->number)
			receive(w, i);
}

/* Runs the worker's second thread, which frees the objects it receives. */
static void *free_received_objects(void *arg)
{
	struct worker *w = arg;
	struct ring *ring = &w->town->ring[w->number][w->number];
	struct object o;

	for (;;) {
		bool last = atomic_load(&w->over);

		while (ring_get(ring, &o))
			check_and_delist(w, &o);
		if (last)
			return NULL;
		usleep(200);
	}
}

/* ---- the worker's life ---- */

static void step_adapter(struct worker *w)
{
	loan_borrow(w);
	loan_take_back(w);
	if (one_in(8))
		loan_offer(w);
}
static void signal_arrival(struct worker *w, enum moment moment)
{
	atomic_fetch_add(&w->town->arrived[moment], 1);
}

static bool all_arrived(struct worker *w, enum moment moment)
{
	return atomic_load(&w->town->arrived[moment]) == WORKERS;
}

static void wait_for_all(struct worker *w, enum moment moment)
{
	signal_arrival(w, moment);
	while (!all_arrived(w, moment))
		usleep(500);
}

static void step_rare(struct worker *w)
{
	if (one_in(10)) {
		stag_heap_trim(w->heap);
		w->tally->trims++;
	}
	if (one_in(1000) && stag_heap_check(w->heap, stderr) != 0)
		fail_msg("process %u: its heap fails the consistency check", w->number);
	if (one_in(20))
		w->wanted = one_in(4) ? 0 : dice_size(OBJECTS / 2);
	step_adapter(w);
}

static void add_objects(struct worker *w)
{
	static void (*const steps[])(struct worker *) = {
		step_alloc,   step_alloc,   step_alloc,		 step_alloc, step_alloc,
		step_calloc,  step_aligned, step_check_contents, step_keys,  step_keys,
		step_realloc, step_realloc, step_share,		 step_give,  free_one};

	steps[dice(sizeof(steps) / sizeof(steps[0]))](w);
}

static void remove_objects(struct worker *w)
{
	static void (*const steps[])(struct worker *) = {
		free_one,     free_one,	 free_one,	     step_give,
		step_receive, step_keys, step_check_contents};

	steps[dice(sizeof(steps) / sizeof(steps[0]))](w);
}

static void step_random(struct worker *w)
{
	if (w->n > w->wanted || w->bytes > BUDGET)
		remove_objects(w);
	else
		add_objects(w);
	if (one_in(50))
		step_receive(w);
	if (one_in(100))
		step_rare(w);
	w->tally->steps++;
}

static void worker_open(struct worker *w, const char *name)
{
	struct stag_heap_attr attr = {.retain_ms = RETAIN_MS};

	w->town = town_map(MODEL_FD);
	assert_non_null(w->town);
	w->tally = &w->town->tally[w->number];
	w->heap = stag_heap_attach(name, &attr);
	if (!w->heap)
		fail_msg("%s", stag_heap_error());
	w->taken = (struct taken){w->heap->area, w->town->words};
	w->contexts = rdma_get_devices(NULL);
	for (int i = 0; i < DEVICES; i++) {
		w->pd[i] = ibv_alloc_pd(w->contexts[0]);
		assert_int_equal(stag_heap_add_device(w->heap, w->pd[i], NULL, &w->device[i]), 0);
	}
	loan_open(w);
	wait_for_all(w, CONNECTED);
	assert_int_equal(pthread_create(&w->sweeper, NULL, free_received_objects, w), 0);
}

/* Stops giving and lending, waits for the objects in flight, and frees everything. */
static void wind_up(struct worker *w)
{
	while (w->lending) {
		step_receive(w);
		loan_borrow(w);
		loan_take_back(w);
	}
	signal_arrival(w, QUIET);
	while (!all_arrived(w, QUIET)) {
		while (w->n)
			free_one(w);
		step_receive(w);
		loan_borrow(w);
		usleep(200);
	}
	step_receive(w);
	while (w->n)
		free_one(w);
	atomic_store(&w->over, true);
	pthread_join(w->sweeper, NULL);
	wait_for_all(w, FREED);
}

static void worker_close(struct worker *w)
{
	struct stag_heap_stats stats;

	assert_int_equal(stag_heap_query(w->heap, &stats, sizeof(stats)), 0);
	w->tally->taken = stats.blocks_taken;
	w->tally->released = stats.blocks_released;
	w->tally->made = stats.registrations_made;
	w->tally->stale = stats.stale_found;
	wait_for_all(w, TRIMMED);
	while (!all_arrived(w, LOOKED_AT))
		usleep(500);
	assert_int_equal(stag_heap_detach(w->heap, false), 0);
	loan_close(w);
	for (int i = 0; i < DEVICES; i++)
		assert_int_equal(ibv_dealloc_pd(w->pd[i]), 0);
	rdma_free_devices(w->contexts);
	town_unmap(w->town);
}

int model_worker_main(char **argv)
{
	struct worker *w = calloc(1, sizeof(*w));
	uint64_t steps = strtoull(argv[4], NULL, 0);

	assert_non_null(w);
	w->number = (unsigned int)atoi(argv[3]);
	dice_start_with(strtoull(argv[5], NULL, 0));
	worker_open(w, argv[2]);
	for (uint64_t i = 0; i < steps; i++)
		step_random(w);
	wind_up(w);
	stag_heap_trim(w->heap);
	worker_close(w);
	free(w);
	return 0;
}
