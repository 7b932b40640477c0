// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_bench.c - stag store bench: measures how fast a partition is read and written, local or remote.
 *
 * --depth operations are in flight: completed ones are posted again, in one list. The benchmark uses only the queue pair
 * of an endpoint, as any program could. A write to a peer completes when it has been sent; here it counts when the
 * response to a zero-length read after it proves that it has arrived.
 */
#include "store_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "load.h"
#include "progress.h"
#include "stag.h"
#include "store.h"

#define BATCH                                                                                      \
	16u /* completions polled at once: few, so that the medium does not wait for the next request */
#define WARM_MOST (NS_PER_S / 4)

struct slot {
	struct ibv_send_wr wr;
	struct ibv_send_wr confirm; /* a zero-length read after a remote write */
	struct ibv_sge sge;
	uint64_t since;
};

struct bench {
	struct stag_store_endpoint *e;
	struct stag_store_connect_attr attr;
	struct store_figures f;
	uint64_t writes; /* percent */
	struct progress progress;
	double secs;
	bool sequential, sleep;
	uint64_t places, next; /* in the partition, of --size each; the next one, if sequential */
	uint64_t dice;	       /* state of the random numbers */
	uint8_t *memory;
	struct ibv_mr *mr;
	struct slot *slots;
	uint32_t in_flight;
};

/* ---- settings --------------------------------------------------------------------------------- */

static bool apply_options(struct bench *b, const struct store_options *o)
{
	const struct load_options load = {o->op,   o->writes,	o->size, o->depth,
					  o->secs, "partition", o->force};
	struct load l;

	b->sequential = o->sequential;
	b->sleep = o->sleep;
	if (!load_check(&load, &l))
		return false;
	b->attr.relax = o->p.relax;
	b->attr.level = o->p.level;
	b->attr.flags = o->what & STAG_STORE_CHANGE_LEVEL ? STAG_STORE_HAS_LEVEL : 0;
	b->attr.qp.cap.max_send_wr = l.depth * 2;
	b->secs = l.secs;
	b->writes = l.writes;
	b->f.op = l.op;
	b->f.size = l.size;
	b->f.depth = l.depth;
	b->f.where = o->where;
	b->f.pattern = o->sequential ? "sequential" : "random";
	b->f.wait = o->sleep ? "sleep" : "poll";
	return true;
}

/* A remote partition is used with its own settings: order and level of a queue pair cannot be chosen. */
static bool check_partition(const struct bench *b, const struct store_options *o)
{
	if (b->places == 0)
		complain("--size: %s has only %llu bytes", o->where,
			 (unsigned long long)b->e->size);
	else if (b->writes && b->e->access != STAG_STORE_WRITE)
		complain_for(EACCES, o->where, "%s: you may read it, but not write it", o->where);
	else if (b->e->id && o->what != 0)
		complain("%s is remote: --order and --level are settings of the partition there, "
			 "see 'stag store set'",
			 o->where);
	else
		return true;
	return false;
}

/* ---- operations --------------------------------------------------------------------------------- */

/* Chooses the next operation of a slot. */
static void choose_operation(struct bench *b, struct slot *s)
{
	uint64_t place = b->sequential ? b->next++ % b->places : load_dice(&b->dice) % b->places;
	bool writes = load_writes(b->writes, &b->dice);

	s->wr.opcode = writes ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
	s->wr.send_flags = writes && b->e->id ? 0 : IBV_SEND_SIGNALED;
	s->wr.wr.rdma.remote_addr = b->e->base + place * b->f.size;
}

/* Appends a slot's requests to a list. Returns the new end of the list. */
static struct ibv_send_wr **append(struct ibv_send_wr **end, struct slot *s)
{
	*end = &s->wr;
	if (s->wr.send_flags & IBV_SEND_SIGNALED)
		return &s->wr.next;
	s->wr.next = &s->confirm;
	return &s->confirm.next;
}

/* Posts a list of requests. */
static bool post(struct bench *b, struct ibv_send_wr *first, uint32_t n)
{
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(b->e->qp, first, &bad);

	if (rc != 0)
		complain("cannot post a work request: %s", strerror(rc));
	b->in_flight += n;
	return rc == 0;
}

static void init_slot(struct bench *b, struct slot *s, uint32_t i)
{
	s->sge = (struct ibv_sge){(uintptr_t)b->memory + i * b->f.size, (uint32_t)b->f.size,
				  b->mr->lkey};
	s->wr = (struct ibv_send_wr){.wr_id = i, .sg_list = &s->sge, .num_sge = 1};
	s->wr.wr.rdma.rkey = b->e->rkey;
	s->confirm = (struct ibv_send_wr){
		.wr_id = i, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED};
	s->confirm.wr.rdma.rkey = b->e->rkey;
	s->confirm.wr.rdma.remote_addr = b->e->base;
}

static bool post_all(struct bench *b)
{
	struct ibv_send_wr *first = NULL, **end = &first;
	uint64_t now = clock_ns();

	for (uint32_t i = 0; i < b->f.depth; i++) {
		struct slot *s = &b->slots[i];

		init_slot(b, s, i);
		s->since = now;
		choose_operation(b, s);
		end = append(end, s);
	}
	*end = NULL;
	return post(b, first, b->f.depth);
}

/* Waits for completions, asleep or polling. Returns -1 after it has complained. */
static int wait_for_completions(struct bench *b, struct ibv_wc *wc)
{
	struct ibv_cq *cq = b->e->qp->send_cq, *which;
	void *context;
	int n;

	while ((n = ibv_poll_cq(cq, (int)BATCH, wc)) == 0) {
		if (!b->sleep)
			continue;
		if (ibv_req_notify_cq(cq, 0) != 0)
			break;
		n = ibv_poll_cq(cq, (int)BATCH, wc);
		if (n != 0)
			return n;
		if (ibv_get_cq_event(cq->channel, &which, &context) != 0)
			break;
		ibv_ack_cq_events(cq, 1);
	}
	if (n <= 0)
		complain("cannot get completions: %s", strerror(errno));
	return n > 0 ? n : -1;
}

/* Counts completed operations, and posts them again if `again`. */
static bool count_and_repost(struct bench *b, const struct ibv_wc *wc, uint32_t n, uint64_t now,
			     bool again)
{
	struct ibv_send_wr *first = NULL, **end = &first;

	b->in_flight -= n;
	for (uint32_t i = 0; i < n; i++) {
		struct slot *s = &b->slots[wc[i].wr_id % b->f.depth];

		if (wc[i].status != IBV_WC_SUCCESS) {
			complain("an operation failed: %s", ibv_wc_status_str(wc[i].status));
			return false;
		}
		times_note(&b->f.times, now - s->since);
		s->since = now;
		if (again)
			choose_operation(b, s);
		end = append(end, s);
	}
	*end = NULL;
	return !again || post(b, first, n);
}

static void show_progress(struct bench *b, uint64_t now)
{
	char note[48];

	if (!progress_is_due(&b->progress, now))
		return;
	snprintf(note, sizeof(note), "%.0f operations/s",
		 (double)b->f.times.n * 1e9 / (double)(now - b->progress.since));
	progress_spent(&b->progress, note);
}

/* Runs until then. Operations in flight at the end are not counted. */
static bool run_until(struct bench *b, uint64_t until)
{
	struct ibv_wc wc[BATCH];
	uint64_t now;
	int n;

	do {
		n = wait_for_completions(b, wc);
		now = clock_ns();
		show_progress(b, now);
	} while (n > 0 && count_and_repost(b, wc, (uint32_t)n, now, true) && now < until);
	progress_end(&b->progress);
	return n > 0 && now >= until;
}

static bool drain(struct bench *b)
{
	struct ibv_wc wc[BATCH];
	int n = 1;

	while (b->in_flight > 0) {
		n = wait_for_completions(b, wc);
		if (n < 0 || !count_and_repost(b, wc, (uint32_t)n, clock_ns(), false))
			return false;
	}
	return true;
}

static bool measure(struct bench *b)
{
	uint64_t warm = (uint64_t)(b->secs * 1e9 / 4), since;
	struct store_figures *f = &b->f;

	if (!post_all(b) || !run_until(b, clock_ns() + (warm < WARM_MOST ? warm : WARM_MOST)))
		return false;
	f->times = (struct times){0};
	progress_begin(&b->progress, f->where, PROGRESS_TIME, (uint64_t)(b->secs * NS_PER_S));
	since = clock_ns();
	f->cpu = load_cpu_ns();
	if (!run_until(b, since + (uint64_t)(b->secs * 1e9)))
		return false;
	f->cpu = load_cpu_ns() - f->cpu;
	f->ns = clock_ns() - since;
	f->operations = f->times.n;
	return true;
}

/* ---- from the beginning to the end ------------------------------------------------------------------ */

static bool register_memory(struct bench *b)
{
	size_t bytes = (b->f.size * b->f.depth + 4095) / 4096 * 4096;

	b->slots = calloc(b->f.depth, sizeof(*b->slots));
	b->memory = aligned_alloc(4096, bytes);
	if (b->memory) {
		for (size_t i = 0; i < bytes; i++)
			b->memory[i] = (uint8_t)load_dice(&b->dice);
		b->mr = ibv_reg_mr(b->e->qp->pd, b->memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	}
	if (!b->slots || !b->mr)
		complain("cannot register memory: %s", strerror(errno));
	return b->slots && b->mr;
}

static bool run_bench(struct bench *b, const struct store_options *o)
{
	char order[64];
	bool ok;

	b->places = b->e->size / b->f.size;
	if (!check_partition(b, o) || !register_memory(b))
		return false;
	store_order_words(b->e->relax, order, sizeof(order));
	b->f.order = order;
	ok = measure(b) && drain(b);
	if (ok)
		store_print_figures(&b->f, o->json);
	return ok;
}

int store_bench(const struct store_options *o)
{
	struct bench *b = calloc(1, sizeof(*b));
	bool ok = false;

	if (!b || !apply_options(b, o)) {
		free(b);
		return EXIT_USAGE;
	}
	if (getrandom(&b->dice, sizeof(b->dice), 0) < 0 || b->dice == 0)
		b->dice = clock_ns();
	b->e = store_connect(o, &b->attr);
	if (b->e) {
		ok = run_bench(b, o);
		stag_store_disconnect(b->e);
	}
	if (b->mr)
		ibv_dereg_mr(b->mr);
	free(b->memory);
	free(b->slots);
	free(b);
	return ok ? EXIT_OK : EXIT_FAILED;
}
