// SPDX-License-Identifier: BSD-2-Clause
/*
 * checker.c - checks whether any order that the queue pairs promise explains what a random program
 * saw.
 *
 * Each word that a step touched is an event. Three things order events directly: the order that the
 * queue pair promises, a completion that was seen before another step was posted, and a write that
 * comes before the reads of its value. From these the checker derives more: a read of one write
 * precedes every later write to that word, and any other write that precedes the read also precedes
 * the write that it read. If the derived order has a cycle, no promised order explains the run.
 *
 * The checker relies only on what stagdv.h promises, not on how the adapter keeps the order.
 */
#include "order.h"

#include <stdio.h>
#include <string.h>

#include "stag/stagdv.h"

#define MOST_EVENTS (MOST_QPS * MOST_STEPS * MOST_SPAN + 2 * WORDS)
#define SET_WORDS   ((MOST_EVENTS + 63) / 64)

struct event {
	uint8_t word;
	bool reads, writes;
	uint64_t found, value;
	int from; /* the event that wrote the value this one found */
};

static struct {
	struct event event[MOST_EVENTS];
	int n, sets;
	uint64_t after[MOST_EVENTS][SET_WORDS]; /* bit b of row a: event b comes after event a */
	int first[MOST_QPS][MOST_STEPS];	/* index of the event of a step's first word */
	bool changed;
	char why[256];
} j;

static bool comes_after(int a, int b)
{
	return j.after[a][b / 64] >> b % 64 & 1;
}

static void add_order(int a, int b)
{
	if (comes_after(a, b))
		return;
	j.after[a][b / 64] |= 1ull << b % 64;
	j.changed = true;
}

static int add_event(unsigned int word, bool reads, uint64_t found, bool writes, uint64_t value)
{
	j.event[j.n] = (struct event){.word = (uint8_t)word,
				      .reads = reads,
				      .found = found,
				      .writes = writes,
				      .value = value};
	return j.n++;
}

static void add_step(const struct step *s)
{
	for (unsigned int i = 0; i < s->span; i++) {
		unsigned int w = s->word + i;
		bool swapped = s->kind == STEP_SWAP && s->found[i] == s->compare;

		if (s->kind == STEP_READ)
			add_event(w, true, s->found[i], false, 0);
		else if (s->kind == STEP_WRITE)
			add_event(w, false, 0, true, s->value[i]);
		else if (s->kind == STEP_ADD)
			add_event(w, true, s->found[i], true, s->found[i] + 1);
		else
			add_event(w, true, s->found[i], swapped, s->value[i]);
	}
}

/* ---- order known directly ---- */

static bool is_atomic(const struct step *s)
{
	return s->kind == STEP_ADD || s->kind == STEP_SWAP;
}

/* Returns whether the promised order holds between two overlapping steps of a queue pair. */
static bool overlap_is_ordered(const struct step *a, const struct step *b, uint32_t relax)
{
	if (is_atomic(a) || is_atomic(b))
		return !(relax & STAGDV_RELAX_ATOMICS);
	if (a->kind == STEP_WRITE)
		return !(relax &
			 (b->kind == STEP_WRITE ? STAGDV_RELAX_WRITES : STAGDV_RELAX_READS));
	return b->kind == STEP_WRITE && !(relax & STAGDV_RELAX_LATER);
}

/*
 * Returns whether a fenced step waits for this one. Over a connection a fence waits as verbs has
 * it: for reads and atomics only.
 */
static bool fence_waits_for(const struct queue *q, const struct step *s)
{
	return !q->remote || s->kind != STEP_WRITE;
}

static bool is_ordered(const struct queue *q, unsigned int a, unsigned int b)
{
	const struct step *x = &q->step[a], *y = &q->step[b];

	for (unsigned int i = a + 1; i <= b; i++)
		if ((q->step[i].fence && fence_waits_for(q, x)) || q->step[i].kind == STEP_BARRIER)
			return true;
	if (x->word >= y->word + y->span || y->word >= x->word + x->span)
		return false;
	return overlap_is_ordered(x, y, q->relax);
}

static void order_steps(const struct program *p, unsigned int q1, unsigned int s1, unsigned int q2,
			unsigned int s2)
{
	for (int a = 0; a < p->queue[q1].step[s1].span; a++)
		for (int b = 0; b < p->queue[q2].step[s2].span; b++)
			add_order(j.first[q1][s1] + a, j.first[q2][s2] + b);
}

/*
 * Returns whether step a had completed before step b was posted. The completion of an accepted
 * write only frees its memory, so it does not count.
 */
static bool completed_before_post(const struct step *a, const struct step *b)
{
	if (a->kind != STEP_READ && a->level == STAGDV_LEVEL_ACCEPTED)
		return false;
	return a->done < b->posted;
}

static void add_promised_order(const struct program *p)
{
	for (unsigned int q = 0; q < p->n_queues; q++)
		for (unsigned int s = 0; s < p->queue[q].n_steps; s++)
			for (unsigned int r = 0; r < p->n_queues; r++)
				for (unsigned int t = 0; t < p->queue[r].n_steps; t++)
					if ((q == r && s < t && is_ordered(&p->queue[q], s, t)) ||
					    completed_before_post(&p->queue[q].step[s],
								  &p->queue[r].step[t]))
						order_steps(p, q, s, r, t);
}

static bool fail_at_event(const char *what, int e)
{
	snprintf(j.why, sizeof(j.why), "%s: word %u, %#llx", what, j.event[e].word,
		 (unsigned long long)(j.event[e].reads ? j.event[e].found : j.event[e].value));
	return false;
}

static bool find_writer(int e)
{
	for (int w = 0; w < j.n; w++)
		if (w != e && j.event[w].writes && j.event[w].word == j.event[e].word &&
		    j.event[w].value == j.event[e].found) {
			j.event[e].from = w;
			add_order(w, e);
			return true;
		}
	return fail_at_event("a value that no step wrote", e);
}

static bool find_writers(void)
{
	for (int e = 0; e < j.n; e++)
		if (j.event[e].reads && !find_writer(e))
			return false;
	for (int e = 0; e < j.n; e++)
		for (int f = 0; f < e; f++)
			if (j.event[e].reads && j.event[e].writes && j.event[f].reads &&
			    j.event[f].writes && j.event[e].from == j.event[f].from)
				return fail_at_event("two atomics found the same value", e);
	return true;
}

static void collect_events(const struct program *p)
{
	int last;

	memset(&j, 0, offsetof(typeof(j), why));
	for (unsigned int w = 0; w < WORDS; w++)
		add_event(w, false, 0, true, p->initial[w]);
	for (unsigned int q = 0; q < p->n_queues; q++)
		for (unsigned int s = 0; s < p->queue[q].n_steps; s++) {
			j.first[q][s] = j.n;
			add_step(&p->queue[q].step[s]);
		}
	last = j.n;
	for (unsigned int w = 0; w < WORDS; w++)
		add_event(w, true, p->final[w], false, 0);
	for (int e = WORDS; e < last; e++) {
		add_order(j.event[e].word, e); /* the first events are the initial values */
		add_order(e, last + j.event[e].word);
	}
	j.sets = (j.n + 63) / 64;
}

/* ---- derived order ---- */

static void close_transitively(void)
{
	for (int k = 0; k < j.n; k++)
		for (int a = 0; a < j.n; a++)
			if (comes_after(a, k))
				for (int i = 0; i < j.sets; i++)
					j.after[a][i] |= j.after[k][i];
}

static void derive_order(int reader, int other)
{
	int from = j.event[reader].from;

	if (other == from || other == reader || j.event[other].word != j.event[reader].word)
		return;
	if (comes_after(other, reader))
		add_order(other, from);
	if (comes_after(from, other))
		add_order(reader, other);
}

const char *check_history(const struct program *p)
{
	collect_events(p);
	add_promised_order(p);
	if (!find_writers())
		return j.why;
	do {
		j.changed = false;
		close_transitively();
		for (int r = 0; r < j.n; r++)
			for (int w = 0; j.event[r].reads && w < j.n; w++)
				if (j.event[w].writes)
					derive_order(r, w);
	} while (j.changed);
	for (int e = 0; e < j.n; e++)
		if (comes_after(e, e)) {
			fail_at_event("no promised order explains this value", e);
			return j.why;
		}
	return NULL;
}
