// SPDX-License-Identifier: BSD-2-Clause
/*
 * world.c - see world.h.
 *
 * Links carry records in order until they break, which loses the records in flight. Heartbeats and their echoes
 * do not depend on links: they may be late, lost, out of order, or from a link that is gone. The roll backend
 * carries a request out when it arrives, even if the requester has died by then.
 */
#include "world.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "dice.h"

#define MAX_NODES   4
#define MAX_RECORDS 4096
#define MAX_ROLLS   1024
#define MAX_EVENTS  8192
#define US	    1000ull

/* true in a mutant that takes a broken connection as proof that the process ended: the test has to find that. */
#ifndef WORLD_CLOSED_PROVES
#define WORLD_CLOSED_PROVES false
#endif

/* A list of records. sums[n] is a hash of the first n, so that a length and one sum compare two lists. */
struct history {
	unsigned int len;
	uint64_t ids[MAX_RECORDS];
	uint64_t sums[MAX_RECORDS + 1];
};

struct node {
	struct role role;
	bool up;
	unsigned int life;
	uint64_t paused_until; /* 0: not paused */
	bool adapter_runs;     /* while paused */
	bool pulse_runs;       /* while paused: only the thread that makes decisions stands still */
	int64_t rate;	       /* parts per million by which its clock is fast */
	uint64_t offset;
	uint64_t saved; /* the epoch in its state directory */

	struct history log;
	unsigned int applied; /* records of a primary's log that readers can see */
	uint64_t lease;	      /* until when its adapter serves reads, by its own clock */
	int follows;	      /* index of its primary; -1: none */
	bool connecting;
	struct { /* the primary that it was linked to last, and whose process it watches */
		bool is_there;
		unsigned int node, life;
		uint64_t epoch;
	} watched;
	unsigned int swaps; /* in flight to the roll backend */
};

struct link {
	bool primary_up, standby_up; /* as each side sees it */
	bool streaming,
		in_stream; /* records are sent; the standby's adapter places them without its software */
	bool broken;	   /* messages in flight are lost */
	unsigned int number; /* how many links these two nodes have had */
	uint64_t last[2]; /* arrival of the last message: [0] to the primary, [1] to the standby */
};

enum what {
	EVENT_TICK,
	EVENT_PULSE,
	EVENT_CLIENT,
	EVENT_CHAOS,
	EVENT_RETURN,
	EVENT_BEAT,
	EVENT_ECHO,
	EVENT_RECORD,
	EVENT_CONFIRM,
	EVENT_COPY,
	EVENT_SYNCED,
	EVENT_SYNCACK,
	EVENT_HANDOVER,
	EVENT_LINK_LOST,
	EVENT_CLOSED,
	EVENT_GONE,
	EVENT_CONNECT,
	EVENT_FENCED,
	EVENT_BACKEND_READ,
	EVENT_BACKEND_SWAP,
	EVENT_WAS_READ,
	EVENT_WAS_SWAPPED,
	EVENT_CHANGED,
};

struct event {
	uint64_t at, order;
	enum what what;
	unsigned int node, peer; /* receiver, sender */
	unsigned int life;	 /* the life of node that it is for; 0: any */
	unsigned int link;
	uint64_t a, b, c;
};

struct world {
	struct world_setup setup;
	struct world_sum *sum;
	uint64_t now;
	uint64_t orders;
	bool peace;
	struct node nodes[MAX_NODES];
	struct link links[MAX_NODES][MAX_NODES]; /* primary, standby */
	uint64_t cut_until[MAX_NODES][MAX_NODES], backend_cut_until[MAX_NODES];
	uint64_t backend_back, slow_until;
	struct roll rolls[MAX_ROLLS]; /* by revision; [0] is unused */
	unsigned int revision;
	struct roll wants[MAX_ROLLS]; /* the roll that each swap wants to write */
	unsigned int num_wants;

	struct history committed;
	uint64_t served_epoch;
	unsigned int owner[MAX_ROLLS *
			   2]; /* by epoch: the node and life that acknowledged in it; 0: none */
	uint64_t next_id;
	const char *fault;

	struct event heap[MAX_EVENTS];
	unsigned int num_events;
};

static void violate(struct world *w, const char *what)
{
	if (!w->fault)
		w->fault = what;
}

/* ---- messages in flight ---------------------------------------------------------------- */

static bool is_before(const struct event *a, const struct event *b)
{
	return a->at != b->at ? a->at < b->at : a->order < b->order;
}

static void push(struct world *w, struct event e)
{
	unsigned int i = w->num_events++;

	if (w->num_events == MAX_EVENTS)
		abort();
	e.order = ++w->orders;
	for (; i && is_before(&e, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = e;
}

static struct event pop(struct world *w)
{
	struct event first = w->heap[0], last = w->heap[--w->num_events];
	unsigned int i = 0, child;

	for (; (child = 2 * i + 1) < w->num_events; i = child) {
		if (child + 1 < w->num_events && is_before(&w->heap[child + 1], &w->heap[child]))
			child++;
		if (!is_before(&w->heap[child], &last))
			break;
		w->heap[i] = w->heap[child];
	}
	w->heap[i] = last;
	return first;
}

static uint64_t between(uint64_t least, uint64_t most)
{
	return least + dice(most - least + 1);
}

static uint64_t delay(struct world *w)
{
	uint64_t most = one_in(50) && !w->peace ? 8 * NS_PER_MS : 60 * US;

	return between(5 * US, w->now < w->slow_until ? 40 * most : most);
}

static uint64_t clock_of(const struct world *w, const struct node *n)
{
	return n->offset + w->now + (uint64_t)((int64_t)(w->now / 1000) * n->rate / 1000);
}

static unsigned int index_of(const struct world *w, const struct node *n)
{
	return (unsigned int)(n - w->nodes);
}

/* Members are called n0 and so on. */
static unsigned int node_in_seat(const struct node *n, unsigned int seat)
{
	return (unsigned int)n->role.roll.members[seat].name[1] - '0';
}

static int seat_of(const struct node *n, unsigned int node)
{
	char name[] = {'n', (char)('0' + node), 0};

	return roll_seat(&n->role.roll, name);
}

static bool is_cut(const struct world *w, unsigned int from, unsigned int to)
{
	return w->now < w->cut_until[from][to];
}

/* ---- histories ---------------------------------------------------------------------------- */

static void add_record(struct world *w, struct history *h, uint64_t id)
{
	uint64_t x = h->sums[h->len] ^ id;

	if (h->len + 1 >= MAX_RECORDS) {
		w->peace = true; /* the list is full: no more faults */
		return;
	}
	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
	h->ids[h->len++] = id;
	h->sums[h->len] = x ^ x >> 29;
}

static bool has_all(const struct history *h, const struct history *of, unsigned int len)
{
	return h->len >= len && h->sums[len] == of->sums[len];
}

static void commit(struct world *w, const struct history *h, unsigned int len, uint64_t epoch)
{
	if (len > w->committed.len && epoch < w->served_epoch)
		violate(w, "acknowledged a record that a later primary lacks");
	for (unsigned int i = w->committed.len; i < len; i++)
		add_record(w, &w->committed, h->ids[i]);
	if (!has_all(h, &w->committed, len))
		violate(w, "acknowledged a record that contradicts a committed one");
}

static void begin_serving(struct world *w, struct node *n, uint64_t epoch, uint64_t number)
{
	if (n->log.len != number)
		violate(w, "serves from another record number than the roll says");
	n->applied = n->log.len;
	w->sum->epochs++;
	/*
	 * The node was stopped after it had won the swap, and another node in sync was promoted since: it must not
	 * serve reads.
	 */
	if (epoch < w->served_epoch) {
		if (n->role.lease)
			violate(w, "has a lease although a later primary serves");
		return;
	}
	if (epoch == w->served_epoch)
		violate(w, "an epoch was served twice");
	if (!has_all(&n->log, &w->committed, w->committed.len))
		violate(w, "a primary lacks a committed record");
	w->served_epoch = epoch;
	commit(w, &n->log, n->log.len, epoch);
}

static void acknowledge(struct world *w, struct node *n, uint64_t number, uint64_t epoch)
{
	unsigned int us = index_of(w, n) + 1 + n->life * 16;

	if (number > n->log.len) {
		violate(w, "acknowledged a record that it does not have");
		return;
	}
	if (w->owner[epoch] && w->owner[epoch] != us)
		violate(w, "two nodes acknowledged in one epoch");
	w->owner[epoch] = us;
	w->sum->acknowledged += number - n->applied;
	n->applied = (unsigned int)number;
	commit(w, &n->log, n->applied, epoch);
}

/* ---- links ----------------------------------------------------------------------------------- */

static struct link *link_of(struct world *w, const struct event *e, bool to_standby)
{
	return to_standby ? &w->links[e->peer][e->node] : &w->links[e->node][e->peer];
}

static void lose_link(struct world *w, unsigned int primary, unsigned int standby)
{
	struct link *l = &w->links[primary][standby];
	uint64_t soon = one_in(3) ? 40 * NS_PER_MS : 200 * US;

	if (l->broken)
		return;
	l->broken = true;
	push(w, (struct event){.at = w->now + between(0, soon),
			       .what = EVENT_LINK_LOST,
			       .node = primary,
			       .peer = standby,
			       .link = l->number});
	push(w, (struct event){.at = w->now + between(0, soon),
			       .what = EVENT_CLOSED,
			       .node = standby,
			       .peer = primary,
			       .link = l->number});
}

static void send_on_link(struct world *w, bool to_standby, struct event e)
{
	struct link *l = link_of(w, &e, to_standby);

	if (to_standby ? !l->primary_up : !l->standby_up)
		return;
	if (is_cut(w, e.peer, e.node) || (!w->peace && one_in(2000)))
		lose_link(w, to_standby ? e.peer : e.node, to_standby ? e.node : e.peer);
	if (l->broken)
		return;
	e.link = l->number;
	e.at = w->now + delay(w);
	if (e.at <= l->last[to_standby])
		e.at = l->last[to_standby] + 1;
	l->last[to_standby] = e.at;
	push(w, e);
}

static void send_record(struct world *w, unsigned int from, unsigned int to, unsigned int number)
{
	send_on_link(w, true,
		     (struct event){.what = EVENT_RECORD,
				    .node = to,
				    .peer = from,
				    .a = number,
				    .b = w->nodes[from].log.ids[number - 1]});
}

static void send_aside(struct world *w, struct event e)
{
	if (is_cut(w, e.peer, e.node) || (!w->peace && one_in(100)))
		return;
	e.at = w->now + delay(w);
	push(w, e);
}

static void unlink_standby(struct world *w, struct node *n, unsigned int peer)
{
	struct link *l = &w->links[index_of(w, n)][peer];

	if (!l->primary_up)
		return;
	l->primary_up = false;
	lose_link(w, index_of(w, n), peer);
}

static void resync(struct world *w, struct node *n, unsigned int peer)
{
	unsigned int us = index_of(w, n);
	struct link *l = &w->links[us][peer];

	l->streaming = true;
	send_on_link(w, true,
		     (struct event){.what = EVENT_COPY, .node = peer, .peer = us, .a = n->applied});
	for (unsigned int i = n->applied; i < n->log.len; i++)
		send_record(w, us, peer, i + 1);
	send_on_link(
		w, true,
		(struct event){.what = EVENT_SYNCED, .node = peer, .peer = us, .a = n->role.epoch});
}

/* ---- the backend -------------------------------------------------------------------------------- */

static bool is_backend_lost(struct world *w, unsigned int node)
{
	return w->now < w->backend_back || w->now < w->backend_cut_until[node] ||
	       (!w->peace && one_in(100));
}

static void send_roll_answer(struct world *w, const struct event *request, enum what what,
			     uint64_t b, uint64_t c)
{
	struct event e = {.what = what,
			  .node = request->node,
			  .life = request->life,
			  .a = request->a,
			  .b = b,
			  .c = c};

	if (is_backend_lost(w, e.node)) {
		e.at = w->now + between(1, 20) * NS_PER_MS;
		e.b = what == EVENT_WAS_READ ? 1 : ROLL_UNKNOWN;
	} else {
		e.at = w->now + between(50 * US, one_in(20) ? 5 * NS_PER_MS : 300 * US);
	}
	push(w, e);
}

static void request_roll(struct world *w, struct node *n, struct event e)
{
	e.node = index_of(w, n);
	e.life = n->life;
	if (!is_backend_lost(w, e.node)) {
		e.at = w->now +
		       between(50 * US, !w->peace && one_in(20) ? 30 * NS_PER_MS : 300 * US);
		n->swaps += e.what == EVENT_BACKEND_SWAP;
		push(w, e);
		/* The requester times out a late swap; the backend still carries it out. */
		if (e.at > w->now + 10 * NS_PER_MS && e.what == EVENT_BACKEND_SWAP)
			push(w, (struct event){.at = w->now + 8 * NS_PER_MS,
					       .what = EVENT_WAS_SWAPPED,
					       .node = e.node,
					       .life = e.life,
					       .a = e.a,
					       .b = ROLL_UNKNOWN});
		return;
	}
	e.at = w->now + between(1, 20) * NS_PER_MS;
	e.b = e.what == EVENT_BACKEND_READ ? 1 : ROLL_UNKNOWN;
	e.c = 0;
	e.what = e.what == EVENT_BACKEND_READ ? EVENT_WAS_READ : EVENT_WAS_SWAPPED;
	push(w, e);
}

static void backend_swap(struct world *w, const struct event *e)
{
	const struct roll *want = &w->wants[e->c];

	w->nodes[e->node].swaps--;
	if (e->b != w->revision) {
		send_roll_answer(w, e, EVENT_WAS_SWAPPED, ROLL_LOST, 0);
		return;
	}
	if (!roll_is_valid(want))
		violate(w, "swapped in an invalid roll");
	if (w->revision + 1 == MAX_ROLLS)
		abort();
	w->rolls[++w->revision] = *want;
	send_roll_answer(w, e, EVENT_WAS_SWAPPED, ROLL_WON, w->revision);
	for (unsigned int i = 0; i < w->setup.nodes; i++)
		if (!is_backend_lost(w, i))
			push(w, (struct event){.at = w->now + between(100 * US, 2 * NS_PER_MS),
					       .what = EVENT_CHANGED,
					       .node = i,
					       .a = w->revision});
}

/* ---- actions of a node ------------------------------------------------------------------------- */

static void retire(struct world *w, struct node *n)
{
	for (unsigned int i = 0; i < w->setup.nodes; i++)
		unlink_standby(w, n, i);
	/* Records that were not acknowledged are discarded. */
	n->log.len = n->applied;
}

static void follow(struct world *w, struct node *n, unsigned int seat)
{
	unsigned int us = index_of(w, n);

	for (unsigned int i = 0; i < w->setup.nodes; i++) {
		if (w->links[i][us].standby_up)
			lose_link(w, i, us);
		w->links[i][us].standby_up = false;
	}
	n->follows = (int)node_in_seat(n, seat);
}

static void trace(const struct world *w, const struct node *n, const struct role_action *a)
{
	static const char *const names[] = {"read",  "swap",	    "fence",	"follow", "lease",
					    "serve", "retire",	    "beat",	"echo",	  "resync",
					    "cut",   "acknowledge", "handover", "save"};

	if (a->what == ROLE_BEAT || a->what == ROLE_ECHO || a->what == ROLE_LEASE)
		return;
	log_debug("%llu us: n%u %s, epoch %llu, %u of %u applied: %s seat %u number %llu revision "
		  "%llu, in sync %x, wants %x",
		  (unsigned long long)w->now / US, index_of(w, n), role_state_name(n->role.state),
		  (unsigned long long)n->role.epoch, n->applied, n->log.len, names[a->what],
		  a->seat, (unsigned long long)a->number, (unsigned long long)a->revision,
		  n->role.roll.in_sync, n->role.want.in_sync);
}

static void do_action(struct world *w, struct node *n, const struct role_action *a)
{
	unsigned int us = index_of(w, n);

	trace(w, n, a);
	switch (a->what) {
	case ROLE_READ:
		request_roll(w, n, (struct event){.what = EVENT_BACKEND_READ});
		break;
	case ROLE_SWAP:
		if (w->num_wants == MAX_ROLLS)
			abort();
		w->wants[w->num_wants] = *role_wanted(&n->role);
		request_roll(w, n,
			     (struct event){.what = EVENT_BACKEND_SWAP,
					    .a = a->id,
					    .b = a->revision,
					    .c = w->num_wants++});
		break;
	case ROLE_FENCE:
		push(w, (struct event){.at = w->now + between(10 * US, 1 * NS_PER_MS),
				       .what = EVENT_FENCED,
				       .node = us,
				       .life = n->life});
		break;
	case ROLE_FOLLOW:
		follow(w, n, a->seat);
		break;
	case ROLE_LEASE:
		n->lease = a->time;
		break;
	case ROLE_SERVE:
		begin_serving(w, n, a->epoch, a->number);
		break;
	case ROLE_RETIRE:
		retire(w, n);
		break;
	case ROLE_BEAT:
		send_aside(w, (struct event){.what = EVENT_BEAT,
					     .node = node_in_seat(n, a->seat),
					     .peer = us,
					     .a = a->epoch,
					     .b = a->time,
					     .c = a->revision});
		break;
	case ROLE_ECHO:
		send_aside(w, (struct event){.what = EVENT_ECHO,
					     .node = node_in_seat(n, a->seat),
					     .peer = us,
					     .a = a->epoch,
					     .b = a->time});
		break;
	case ROLE_RESYNC:
		resync(w, n, node_in_seat(n, a->seat));
		break;
	case ROLE_CUT:
		/* A node that was removed from the roll has no seat any more: cut its link, too. */
		for (unsigned int i = 0; i < w->setup.nodes; i++)
			if (seat_of(n, i) < 0 || seat_of(n, i) == (int)a->seat)
				unlink_standby(w, n, i);
		w->sum->dropped++;
		break;
	case ROLE_ANSWER:
		acknowledge(w, n, a->number, a->epoch);
		break;
	case ROLE_HANDOVER:
		send_on_link(w, true,
			     (struct event){.what = EVENT_HANDOVER,
					    .node = node_in_seat(n, a->seat),
					    .peer = us,
					    .a = a->epoch,
					    .b = a->number,
					    .c = a->revision});
		w->sum->handed++;
		break;
	case ROLE_SAVE:
		n->saved = a->epoch;
		break;
	}
}

static uint64_t a_while(void)
{
	return between(100 * US, one_in(3) ? 150 * NS_PER_MS : 30 * NS_PER_MS);
}

static void pause_node(struct world *w, struct node *n)
{
	if (!n->up || n->paused_until)
		return;
	n->paused_until = w->now + a_while();
	n->adapter_runs = one_in(2);
	n->pulse_runs = n->adapter_runs && one_in(2);
	if (n->pulse_runs)
		push(w, (struct event){.at = w->now + dice(w->setup.times.lease.beat),
				       .what = EVENT_PULSE,
				       .node = index_of(w, n),
				       .life = n->life});
}

/*
 * Does the node's pending actions, those of the pulse first. It may be paused between two of them: it does the rest
 * when it continues.
 */
static void do_actions(struct world *w, struct node *n)
{
	struct role_action a;

	while (!n->paused_until && (role_next_pulse(&n->role, &a) || role_next(&n->role, &a))) {
		do_action(w, n, &a);
		if (!w->peace && w->setup.faults & FAULT_PAUSE &&
		    one_in(a.what == ROLE_SWAP ? 10 : 1000))
			pause_node(w, n);
	}
}

/* ---- lives ------------------------------------------------------------------------------------- */

static void start_node(struct world *w, struct node *n, bool creates)
{
	unsigned int us = index_of(w, n);
	struct roll_member member = {.order = us};
	uint8_t uuid[ROLL_UUID_LEN] = {1};

	snprintf(member.name, sizeof(member.name), "n%u", us);
	snprintf(member.address, sizeof(member.address), "h%u:1", us);
	n->up = true;
	n->follows = -1;
	n->life++;
	n->connecting = n->watched.is_there = false;
	n->log.len = n->applied = 0;
	n->lease = 0;
	n->offset = dice(1000 * NS_PER_S) + NS_PER_S;
	role_init(&n->role, &w->setup.times, member.name, n->saved, clock_of(w, n));
	if (creates)
		role_create(&n->role, uuid, &member, false);
	push(w, (struct event){.at = w->now + dice(2 * NS_PER_MS),
			       .what = EVENT_TICK,
			       .node = us,
			       .life = n->life});
	do_actions(w, n);
}

static void stop_node(struct world *w, struct node *n, uint64_t back)
{
	unsigned int us = index_of(w, n);

	for (unsigned int i = 0; i < w->setup.nodes; i++) {
		if (w->links[us][i].primary_up)
			lose_link(w, us, i);
		if (w->links[i][us].standby_up)
			lose_link(w, i, us);
		w->links[us][i].primary_up = w->links[i][us].standby_up = false;
	}
	n->up = false;
	n->lease = 0;
	n->paused_until = 0;
	push(w, (struct event){.at = back, .what = EVENT_RETURN, .node = us, .life = n->life});
	w->sum->crashes++;
}

static void on_return(struct world *w, const struct event *e)
{
	struct node *n = &w->nodes[e->node];

	if (!n->up)
		start_node(w, n, false);
}

/*
 * True if another node has an up-to-date copy, and no swap in flight from this node could make its copy the
 * only one.
 */
static bool may_crash(const struct world *w, unsigned int node)
{
	const struct roll *roll = &w->rolls[w->revision];
	unsigned int others = 0;

	for (unsigned int i = 0; i < w->setup.nodes; i++) {
		const struct node *n = &w->nodes[i];
		int seat = seat_of(n, i);
		bool holds = n->role.synced || n->role.state == ROLE_PRIMARY ||
			     n->role.state == ROLE_HANDING;

		if (i != node && n->up && seat >= 0 && roll_in_sync(roll, (unsigned int)seat) &&
		    n->role.epoch == roll->epoch && holds)
			others++;
	}
	return w->revision && others && !w->nodes[node].swaps && w->nodes[node].up;
}

/* ---- events ------------------------------------------------------------------------------------ */

static void try_connect(struct world *w, struct node *n)
{
	unsigned int us = index_of(w, n);
	bool ready = n->role.state == ROLE_STANDBY || n->role.state == ROLE_OUTSIDE;

	if (n->follows < 0 || !ready || n->connecting || w->links[n->follows][us].standby_up)
		return;
	if (is_cut(w, us, (unsigned int)n->follows) || is_cut(w, (unsigned int)n->follows, us))
		return;
	n->connecting = true;
	push(w, (struct event){.at = w->now + 2 * delay(w),
			       .what = EVENT_CONNECT,
			       .node = (unsigned int)n->follows,
			       .peer = us});
}

/* Delivers proof that the watched process has ended: soon, late, or never. */
static void deliver_proof_of_end(struct world *w, struct node *n)
{
	n->watched.is_there = false;
	if (one_in(4))
		return;
	push(w, (struct event){.at = w->now + between(0, one_in(4) ? 60 * NS_PER_MS : 100 * US),
			       .what = EVENT_GONE,
			       .node = index_of(w, n),
			       .peer = n->watched.node,
			       .life = n->life,
			       .a = n->watched.epoch});
}

static void watch_process(struct world *w, struct node *n)
{
	const struct node *of = &w->nodes[n->watched.node];

	if (n->watched.is_there && (!of->up || of->life != n->watched.life))
		deliver_proof_of_end(w, n);
}

static void on_tick(struct world *w, struct node *n, const struct event *e)
{
	uint64_t beat = w->setup.times.lease.beat;

	watch_process(w, n);
	role_time(&n->role, clock_of(w, n));
	do_actions(w, n);
	if (n->role.state == ROLE_REFUSED) {
		if (strstr(n->role.why, "only copy"))
			violate(w, "the only copy is lost");
		stop_node(w, n, w->now + 3 * NS_PER_MS);
		return;
	}
	try_connect(w, n);
	push(w, (struct event){.at = w->now + between(beat / 2, beat),
			       .what = EVENT_TICK,
			       .node = e->node,
			       .life = n->life});
}

static void on_connect(struct world *w, struct node *n, const struct event *e)
{
	struct node *peer = &w->nodes[e->peer];
	struct link *l = &w->links[e->node][e->peer];
	struct roll_member member = {.order = e->peer};
	uint64_t now = clock_of(w, n);
	int seat = seat_of(n, e->peer);

	peer->connecting = false;
	if (!peer->up || peer->paused_until || peer->follows != (int)e->node ||
	    (peer->role.state != ROLE_STANDBY && peer->role.state != ROLE_OUTSIDE))
		return;
	snprintf(member.name, sizeof(member.name), "n%u", e->peer);
	snprintf(member.address, sizeof(member.address), "h%u:1", e->peer);
	if (seat < 0) {
		role_join(&n->role, now, &member);
		return;
	}
	if (l->primary_up) {
		unlink_standby(w, n, e->peer);
		role_link_down(&n->role, now, (unsigned int)seat);
	}
	*l = (struct link){.primary_up = true, .standby_up = true, .number = l->number + 1};
	if (role_link_up(&n->role, now, (unsigned int)seat, peer->role.synced, peer->role.epoch,
			 peer->log.len) != 0)
		l->primary_up = l->standby_up = false;
	else
		l->streaming = l->in_stream = n->role.peers[seat].ready;
	peer->watched.is_there = l->standby_up && peer->role.epoch == n->role.epoch;
	peer->watched.node = e->node;
	peer->watched.life = n->life;
	peer->watched.epoch = n->role.epoch;
}

static void on_record(struct world *w, struct node *n, const struct event *e)
{
	struct link *l = link_of(w, e, true);

	if (e->a == n->log.len + 1) {
		add_record(w, &n->log, e->b);
	} else if (e->a > n->log.len) {
		role_torn(&n->role, clock_of(w, n));
		l->standby_up = false;
		lose_link(w, e->peer, e->node);
		return;
	} else if (n->log.ids[e->a - 1] != e->b) {
		violate(w, "a standby has a different record of that number");
	}
	send_on_link(
		w, false,
		(struct event){.what = EVENT_CONFIRM, .node = e->peer, .peer = e->node, .a = e->a});
}

static void on_copy(struct world *w, struct node *n, const struct event *e)
{
	role_copying(&n->role, clock_of(w, n));
	n->log.len = 0;
	for (unsigned int i = 0; i < e->a; i++)
		add_record(w, &n->log, w->committed.ids[i]);
}

static void on_synced(struct world *w, struct node *n, const struct event *e)
{
	link_of(w, e, true)->in_stream = true;
	role_synced(&n->role, clock_of(w, n), e->a);
	send_on_link(
		w, false,
		(struct event){
			.what = EVENT_SYNCACK, .node = e->peer, .peer = e->node, .a = n->log.len});
}

static void on_fenced(struct world *w, struct node *n, const struct event *e)
{
	for (unsigned int i = 0; i < w->setup.nodes; i++) {
		if (w->links[i][e->node].standby_up)
			lose_link(w, i, e->node);
		w->links[i][e->node].standby_up = false;
	}
	role_fenced(&n->role, clock_of(w, n), n->log.len);
}

/* False for a message of a link that is gone: it does not arrive. */
static bool is_link_there(struct world *w, const struct event *e)
{
	struct link *l;

	switch (e->what) {
	case EVENT_RECORD:
	case EVENT_COPY:
	case EVENT_SYNCED:
	case EVENT_HANDOVER:
		l = link_of(w, e, true);
		if (l->number == e->link && !l->standby_up)
			lose_link(w, e->peer, e->node);
		return l->number == e->link && l->standby_up;
	case EVENT_CONFIRM:
	case EVENT_SYNCACK:
		l = link_of(w, e, false);
		return l->number == e->link && l->primary_up;
	default:
		return true;
	}
}

static void on_closed(struct world *w, const struct event *e)
{
	struct link *l = link_of(w, e, true);

	if (l->number != e->link)
		return;
	l->standby_up = false;
	if (WORLD_CLOSED_PROVES && w->nodes[e->node].watched.is_there)
		deliver_proof_of_end(w, &w->nodes[e->node]);
}

static void on_link_lost(struct world *w, struct node *n, const struct event *e)
{
	struct link *l = link_of(w, e, false);

	if (l->number != e->link || !l->primary_up)
		return;
	l->primary_up = false;
	if (seat_of(n, e->peer) >= 0)
		role_link_down(&n->role, clock_of(w, n), (unsigned int)seat_of(n, e->peer));
}

static void handle_event(struct world *w, struct node *n, const struct event *e)
{
	uint64_t now = clock_of(w, n);
	int peer = seat_of(n, e->peer);

	switch (e->what) {
	case EVENT_TICK:
		on_tick(w, n, e);
		break;
	case EVENT_BEAT:
		if (peer >= 0)
			role_heard(&n->role, now, (unsigned int)peer, e->a, e->b, e->c);
		break;
	case EVENT_ECHO:
		if (peer >= 0)
			role_echoed(&n->role, now, (unsigned int)peer, e->a, e->b);
		break;
	case EVENT_RECORD:
		on_record(w, n, e);
		break;
	case EVENT_CONFIRM:
		if (peer >= 0)
			role_confirmed(&n->role, now, (unsigned int)peer, e->a);
		break;
	case EVENT_COPY:
		on_copy(w, n, e);
		break;
	case EVENT_SYNCED:
		on_synced(w, n, e);
		break;
	case EVENT_SYNCACK:
		if (peer >= 0)
			role_resynced(&n->role, now, (unsigned int)peer, e->a);
		break;
	case EVENT_HANDOVER:
		role_handover(&n->role, now, e->a, e->b, e->c, one_in(4));
		break;
	case EVENT_LINK_LOST:
		on_link_lost(w, n, e);
		break;
	case EVENT_CLOSED:
		on_closed(w, e);
		break;
	case EVENT_GONE:
		if (peer >= 0)
			role_gone(&n->role, now, (unsigned int)peer, e->a);
		break;
	case EVENT_CONNECT:
		on_connect(w, n, e);
		break;
	case EVENT_FENCED:
		on_fenced(w, n, e);
		break;
	case EVENT_WAS_READ:
		role_read(&n->role, now, e->b ? -ETIMEDOUT : 0, e->c, &w->rolls[e->c]);
		break;
	case EVENT_WAS_SWAPPED:
		role_swapped(&n->role, now, e->a, (enum roll_result)e->b, e->c);
		break;
	case EVENT_CHANGED:
		role_changed(&n->role, now, e->a, &w->rolls[e->a]);
		break;
	case EVENT_PULSE:
	case EVENT_CLIENT:
	case EVENT_CHAOS:
	case EVENT_RETURN:
	case EVENT_BACKEND_READ:
	case EVENT_BACKEND_SWAP:
		abort();
	}
	do_actions(w, n);
}

/* Handles an event as the pulse of a paused node does. */
static void pulse(struct world *w, struct node *n, const struct event *e)
{
	int peer = seat_of(n, e->peer);
	struct role_action a;

	if (e->what == EVENT_BEAT && peer >= 0)
		role_pulse_heard(&n->role, clock_of(w, n), (unsigned int)peer, e->a, e->b);
	else if (e->what == EVENT_ECHO && peer >= 0)
		role_pulse_echoed(&n->role, clock_of(w, n), (unsigned int)peer, e->a, e->b);
	else
		role_pulse(&n->role, clock_of(w, n));
	while (role_next_pulse(&n->role, &a))
		do_action(w, n, &a);
}

static void on_pulse(struct world *w, struct node *n, const struct event *e)
{
	struct event next = *e;

	if (!n->paused_until || !n->pulse_runs)
		return;
	pulse(w, n, e);
	next.at = w->now + w->setup.times.lease.beat / 2;
	push(w, next);
}

/* A paused node's software handles an event when it continues; its adapter may place a record at once. */
static void deliver(struct world *w, const struct event *e)
{
	struct node *n = &w->nodes[e->node];
	bool by_adapter =
		e->what == EVENT_RECORD && n->adapter_runs && link_of(w, e, true)->in_stream;

	if (e->what == EVENT_CONNECT && !n->up)
		w->nodes[e->peer].connecting = false;
	if (!n->up || (e->life && e->life != n->life))
		return;
	if (e->what == EVENT_PULSE) {
		on_pulse(w, n, e);
		return;
	}
	if (n->paused_until && n->pulse_runs && (e->what == EVENT_BEAT || e->what == EVENT_ECHO))
		pulse(w, n, e);
	if (n->paused_until && !by_adapter) {
		struct event later = *e;

		later.at = n->paused_until;
		push(w, later);
		return;
	}
	if (is_link_there(w, e))
		handle_event(w, n, e);
}

/* ---- clients ------------------------------------------------------------------------------------- */

static void read_from(struct world *w, struct node *n)
{
	if (!n->up || (n->paused_until && !n->adapter_runs))
		return;
	if (clock_of(w, n) >= n->lease) {
		w->sum->refused_reads++;
		return;
	}
	w->sum->reads++;
	if (n->applied < w->committed.len || !has_all(&n->log, &w->committed, w->committed.len))
		violate(w, "a read saw a superseded value");
}

static void write_to(struct world *w, struct node *n)
{
	unsigned int us = index_of(w, n);

	if (!n->up || n->paused_until || !role_may_change(&n->role, clock_of(w, n)))
		return;
	add_record(w, &n->log, ++w->next_id);
	for (unsigned int i = 0; i < w->setup.nodes; i++)
		if (w->links[us][i].primary_up && w->links[us][i].streaming)
			send_record(w, us, i, n->log.len);
	role_placed(&n->role, clock_of(w, n), n->log.len);
	do_actions(w, n);
}

static void on_client(struct world *w)
{
	struct node *n = &w->nodes[dice(w->setup.nodes)];

	if (one_in(2))
		read_from(w, n);
	else
		write_to(w, n);
	push(w, (struct event){.at = w->now + between(20 * US, 400 * US), .what = EVENT_CLIENT});
}

/* ---- trouble --------------------------------------------------------------------------------------- */

static void cut_off(struct world *w, unsigned int one)
{
	unsigned int other = (unsigned int)dice(w->setup.nodes);
	uint64_t until = w->now + a_while();

	w->cut_until[one][other] = until;
	if (one_in(2))
		w->cut_until[other][one] = until;
}

static void backend_trouble(struct world *w, unsigned int node)
{
	if (one_in(3))
		w->backend_back = w->now + a_while();
	else
		w->backend_cut_until[node] = w->now + a_while();
}

static void hand_over(struct world *w)
{
	for (unsigned int i = 0; i < w->setup.nodes; i++) {
		struct node *n = &w->nodes[i];

		if (!n->up || n->paused_until)
			continue;
		if (role_switch(&n->role, clock_of(w, n), (unsigned int)dice(w->setup.nodes)) == 0)
			do_actions(w, n);
	}
}

static void remove_member(struct world *w, struct node *n)
{
	if (!n->up || n->paused_until || !one_in(4))
		return;
	if (role_leave(&n->role, clock_of(w, n), (unsigned int)dice(w->setup.nodes)) == 0)
		do_actions(w, n);
}

static void inject_fault(struct world *w)
{
	unsigned int node = (unsigned int)dice(w->setup.nodes);
	unsigned int fault = 1u << dice(7) & w->setup.faults;
	struct node *n = &w->nodes[node];

	log_debug("%llu us: n%u: fault %x", (unsigned long long)w->now / US, node, fault);
	switch (fault) {
	case FAULT_CRASH:
		if (may_crash(w, node))
			stop_node(w, n, w->now + a_while());
		break;
	case FAULT_PAUSE:
		pause_node(w, n);
		break;
	case FAULT_CUT:
		cut_off(w, node);
		break;
	case FAULT_BACKEND:
		backend_trouble(w, node);
		break;
	case FAULT_SLOW:
		w->slow_until = w->now + a_while();
		break;
	case FAULT_SWITCH:
		hand_over(w);
		break;
	case FAULT_MEMBER:
		remove_member(w, n);
		break;
	}
}

static void make_peace(struct world *w)
{
	w->peace = true;
	w->backend_back = w->slow_until = 0;
	memset(w->cut_until, 0, sizeof(w->cut_until));
	memset(w->backend_cut_until, 0, sizeof(w->backend_cut_until));
}

static void on_chaos(struct world *w)
{
	if (w->now > w->setup.trouble || w->peace) {
		make_peace(w);
		return;
	}
	inject_fault(w);
	push(w,
	     (struct event){.at = w->now + between(1, 2 * w->setup.between), .what = EVENT_CHAOS});
}

/* ---- a run -------------------------------------------------------------------------------------------- */

static void resume(struct world *w, struct node *n)
{
	if (!n->paused_until || w->now < n->paused_until)
		return;
	n->paused_until = 0;
	do_actions(w, n);
}

static void run_one_event(struct world *w)
{
	struct event e = pop(w);

	w->now = e.at;
	w->sum->steps++;
	for (unsigned int i = 0; i < w->setup.nodes; i++)
		resume(w, &w->nodes[i]);
	switch (e.what) {
	case EVENT_CLIENT:
		on_client(w);
		break;
	case EVENT_CHAOS:
		on_chaos(w);
		break;
	case EVENT_RETURN:
		on_return(w, &e);
		break;
	case EVENT_BACKEND_READ:
		send_roll_answer(w, &e, EVENT_WAS_READ, 0, w->revision);
		break;
	case EVENT_BACKEND_SWAP:
		backend_swap(w, &e);
		break;
	default:
		deliver(w, &e);
		break;
	}
}

static unsigned int num_in_sync(const struct world *w)
{
	return (unsigned int)__builtin_popcount(w->rolls[w->revision].in_sync);
}

/* Some time after the last fault, there is a primary, it acknowledges changes, and all nodes are in sync. */
static void check_peace(struct world *w, unsigned int answered_before)
{
	const struct roll *roll = &w->rolls[w->revision];
	unsigned int primary = (unsigned int)roll->members[roll->primary].name[1] - '0';

	if (w->nodes[primary].role.state != ROLE_PRIMARY)
		violate(w, "no primary after the faults ended");
	else if (w->committed.len == answered_before)
		violate(w, "nothing was acknowledged after the faults ended");
	else if (num_in_sync(w) != w->setup.nodes)
		violate(w, "not all nodes are in sync after the faults ended");
}

static void run_until(struct world *w, uint64_t until)
{
	while (!w->fault && w->heap[0].at <= until)
		run_one_event(w);
}

static void begin_world(struct world *w)
{
	for (unsigned int i = 0; i < w->setup.nodes; i++)
		w->nodes[i].rate = (int64_t)dice(2 * w->setup.drift + 1) - w->setup.drift;
	for (unsigned int i = 0; i < w->setup.nodes; i++)
		start_node(w, &w->nodes[i], i == 0);
	push(w, (struct event){.at = 5 * NS_PER_MS, .what = EVENT_CLIENT});
	push(w, (struct event){.at = 30 * NS_PER_MS, .what = EVENT_CHAOS});
}

const char *world_run(const struct world_setup *setup, struct world_sum *sum)
{
	static struct world w;
	unsigned int before;

	memset(&w, 0, sizeof(w));
	w.setup = *setup;
	w.sum = sum;
	begin_world(&w);
	run_until(&w, setup->trouble + 300 * NS_PER_MS);
	before = w.committed.len;
	run_until(&w, setup->trouble + 1000 * NS_PER_MS);
	if (!w.fault)
		check_peace(&w, before);
	return w.fault;
}
