// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_bench.c - stag block bench: measures how fast a unit is read and written, over any transport.
 *
 * Each connection keeps --depth operations in flight: a completed operation is submitted again. The benchmark uses
 * only the calls of <stag/block.h>, and the counters that they keep, as any program could.
 */
#include "block_bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "load.h"
#include "progress.h"
#include "stag.h"
#include "store.h"

#define BATCH                                                                                      \
	16 /* completions polled at once: few, so that the target does not wait for the next request */
#define WARM_MOST (NS_PER_S / 4)

struct slot {
	struct iovec iov;
	uint64_t since;
};

struct link {
	struct stag_block *b;
	struct slot *slots;
	uint8_t *memory;
	uint64_t next; /* next place, if sequential */
};

struct bench {
	const struct block_use *use;
	struct block_figures f;
	struct stag_block_attr attr;
	uint64_t writes; /* percent */
	double secs;
	uint64_t places; /* in the unit, of --size each */
	uint64_t dice;	 /* state of the random numbers */
	struct link *links;
	uint32_t num_links;
	uint64_t in_flight;
	int epoll; /* watches all links, if --sleep */
	struct progress progress;
	uint64_t begun;
};

/* ---- settings ------------------------------------------------------------------------------- */

static bool apply_options(struct bench *b, const struct block_use *u)
{
	const struct load_options load = {u->op,   u->writes, u->size, u->depth,
					  u->secs, "unit",    u->force};
	struct load l;

	if (!load_check(&load, &l))
		return false;
	b->secs = l.secs;
	b->writes = l.writes;
	b->f.op = l.op;
	b->f.size = l.size;
	b->f.depth = l.depth;
	b->f.connections = u->connections;
	b->f.pattern = u->sequential ? "sequential" : "random";
	b->f.stags = u->stags;
	b->f.wait = u->sleep ? "sleep" : "poll";
	b->attr = u->attr;
	b->attr.depth = b->f.depth;
	b->attr.retry_ms = -1; /* a measurement across a lost connection means nothing */
	return true;
}

static bool check_unit(const struct bench *b, const struct stag_block_info *i)
{
	if (i->size < b->f.size)
		complain("--size: the unit has only %llu bytes", (unsigned long long)i->size);
	else if (b->f.size % i->block)
		complain("--size must be a multiple of the unit's blocks of %u bytes", i->block);
	else if (b->writes && i->read_only)
		complain("the unit is read only");
	else
		return true;
	return false;
}

/* ---- operations ------------------------------------------------------------------------------- */

/* Submits an operation of another kind at another place. */
static bool submit(struct bench *b, struct link *l, struct slot *s)
{
	uint64_t place = b->use->sequential ? l->next++ : load_dice(&b->dice);
	bool writes = load_writes(b->writes, &b->dice);
	struct stag_block_io io = {.op = writes ? STAG_BLOCK_WRITE : STAG_BLOCK_READ,
				   .offset = place % b->places * b->f.size,
				   .length = b->f.size,
				   .iov = &s->iov,
				   .n_iov = 1,
				   .user = s};

	if (stag_block_submit(l->b, &io) != 0) {
		complain("%s", stag_block_error());
		return false;
	}
	b->in_flight++;
	return true;
}

static bool submit_all(struct bench *b)
{
	uint64_t now = clock_ns();

	for (uint32_t i = 0; i < b->num_links; i++)
		for (uint32_t j = 0; j < b->f.depth; j++) {
			b->links[i].slots[j].since = now;
			if (!submit(b, &b->links[i], &b->links[i].slots[j]))
				return false;
		}
	return true;
}

/* Counts completed operations, and submits each again if `again`. */
static bool count_and_resubmit(struct bench *b, struct link *l, const struct stag_block_done *done,
			       int n, bool again)
{
	uint64_t now = clock_ns();

	b->in_flight -= (uint64_t)n;
	for (int i = 0; i < n; i++) {
		struct slot *s = done[i].user;

		if (done[i].error) {
			complain("an operation failed: %s", strerror(done[i].error));
			return false;
		}
		times_note(&b->f.times, now - s->since);
		s->since = now;
		if (again && !submit(b, l, s))
			return false;
	}
	return true;
}

/* Returns how many operations completed on all connections, or -1 after it has complained. */
static int poll_links(struct bench *b, bool again)
{
	struct stag_block_done done[BATCH];
	int sum = 0;

	for (uint32_t i = 0; i < b->num_links; i++) {
		struct link *l = &b->links[i];
		int n = stag_block_poll(l->b, done, BATCH);

		if (n > 0 && !count_and_resubmit(b, l, done, n, again))
			return -1;
		sum += n;
	}
	return sum;
}

static void sleep_for_some(struct bench *b)
{
	struct epoll_event e;

	epoll_wait(b->epoll, &e, 1, 1000);
}

/* ---- a run --------------------------------------------------------------------------------------- */

static void show_progress(struct bench *b, uint64_t now)
{
	char note[48];

	if (!progress_is_due(&b->progress, now))
		return;
	snprintf(note, sizeof(note), "%.0f operations/s",
		 (double)b->f.times.n * 1e9 / (double)(now - b->begun));
	progress_spent(&b->progress, note);
}

/* Runs until then, and until one operation has completed. Operations in flight at the end are not counted. */
static bool run_until(struct bench *b, uint64_t until)
{
	uint64_t now = clock_ns();
	int n = 0;

	b->begun = now;
	while (n >= 0 && (now < until || b->f.times.n == 0)) {
		n = poll_links(b, true);
		if (n == 0 && b->use->sleep)
			sleep_for_some(b);
		now = clock_ns();
		show_progress(b, now);
	}
	return n >= 0;
}

static bool drain(struct bench *b)
{
	while (b->in_flight > 0) {
		int n = poll_links(b, false);

		if (n < 0)
			return false;
		if (n == 0 && b->use->sleep)
			sleep_for_some(b);
	}
	return true;
}

static void add_counters(struct block_costs *c, const struct stag_block_counters *k, int sign)
{
	c->posts += sign * (int64_t)k->posts;
	c->completions += sign * (int64_t)k->completions;
	c->registrations += sign * (int64_t)k->registrations;
	c->stags += sign * (int64_t)k->stags;
	c->commands += sign * (int64_t)k->commands;
}

static void add_costs(struct bench *b, int sign)
{
	struct stag_block_info info;

	for (uint32_t i = 0; i < b->num_links; i++) {
		stag_block_query(b->links[i].b, &info, sizeof(info));
		add_counters(&b->f.costs, &info.counters, sign);
	}
}

static bool measure(struct bench *b)
{
	uint64_t warm = (uint64_t)(b->secs * 1e9 / 4), since;
	struct block_figures *f = &b->f;

	if (!submit_all(b) || !run_until(b, clock_ns() + (warm < WARM_MOST ? warm : WARM_MOST)))
		return false;
	f->times = (struct times){0};
	add_costs(b, -1);
	since = clock_ns();
	f->cpu = load_cpu_ns();
	if (!run_until(b, since + (uint64_t)(b->secs * 1e9)))
		return false;
	f->cpu = load_cpu_ns() - f->cpu;
	f->ns = clock_ns() - since;
	f->operations = f->times.n;
	add_costs(b, 1);
	return true;
}

/* ---- from the beginning to the end ------------------------------------------------------------------ */

static bool allocate_link(struct bench *b, struct link *l)
{
	size_t bytes = (b->f.size * b->f.depth + 4095) / 4096 * 4096;

	l->slots = calloc(b->f.depth, sizeof(*l->slots));
	l->memory = aligned_alloc(4096, bytes);
	if (!l->slots || !l->memory || stag_block_lend(l->b, l->memory, bytes) != 0) {
		complain("out of memory");
		return false;
	}
	for (size_t i = 0; i < bytes; i++)
		l->memory[i] = (uint8_t)load_dice(&b->dice);
	for (uint32_t i = 0; i < b->f.depth; i++)
		l->slots[i].iov = (struct iovec){l->memory + i * b->f.size, b->f.size};
	return true;
}

/* Watches the descriptor only if the benchmark sleeps: the library makes it readable only after it was requested. */
static bool watch_link(const struct bench *b, const struct link *l)
{
	struct epoll_event e = {.events = EPOLLIN};

	if (!b->use->sleep || epoll_ctl(b->epoll, EPOLL_CTL_ADD, stag_block_fd(l->b), &e) == 0)
		return true;
	complain("cannot wait for completions: %s", strerror(errno));
	return false;
}

static bool connect_all(struct bench *b)
{
	struct stag_block_info info;

	while (b->num_links < b->f.connections) {
		struct link *l = &b->links[b->num_links];

		l->b = stag_block_open(b->use->url, &b->attr);
		if (!l->b)
			return block_failed(b->use, errno) == EXIT_OK;
		b->num_links++;
		stag_block_query(l->b, &info, sizeof(info));
		if (!check_unit(b, &info) || !allocate_link(b, l) || !watch_link(b, l))
			return false;
		b->places = info.size / b->f.size;
		b->f.transport = block_transport_word(info.transport);
		l->next = b->places / b->f.connections * (b->num_links - 1);
	}
	return true;
}

static void disconnect_all(struct bench *b)
{
	for (uint32_t i = 0; i < b->num_links; i++) {
		stag_block_close(b->links[i].b);
		free(b->links[i].memory);
		free(b->links[i].slots);
	}
}

static bool run_bench(struct bench *b)
{
	bool ok;

	b->links = calloc(b->f.connections, sizeof(*b->links));
	b->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!b->links || b->epoll < 0) {
		complain("cannot allocate connections: %s", strerror(errno));
		return false;
	}
	if (getrandom(&b->dice, sizeof(b->dice), 0) < 0 || b->dice == 0)
		b->dice = clock_ns();
	progress_begin(&b->progress, b->use->url, PROGRESS_TIME, (uint64_t)(b->secs * NS_PER_S));
	ok = connect_all(b) && measure(b);
	progress_end(&b->progress);
	ok = ok && drain(b);
	if (ok)
		block_print_figures(&b->f, b->use->json);
	disconnect_all(b);
	return ok;
}

int block_bench(const struct block_use *u)
{
	struct bench *b = calloc(1, sizeof(*b));
	bool ok;

	if (!b)
		return EXIT_FAILED;
	b->epoll = -1;
	b->use = u;
	b->f.url = u->url;
	if (!apply_options(b, u)) {
		free(b);
		return EXIT_USAGE;
	}
	ok = run_bench(b);
	if (b->epoll >= 0)
		close(b->epoll);
	free(b->links);
	free(b);
	return ok ? EXIT_OK : EXIT_FAILED;
}
