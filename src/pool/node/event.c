// SPDX-License-Identifier: BSD-2-Clause
/*
 * event.c - what happens to a node, in words: its log, and the last lines of it, which clients may request.
 *
 * A standby sends its lines to its primary, one at a time, so that a client of the primary finds those of all nodes. A line
 * is identified by its node, the process of it (`run`) and its number there: a node that is sent a line twice keeps it once.
 * Lines carry their age and no time of day, which may differ between nodes.
 */
#include "pool/node/node.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"

/* ---- the last lines ------------------------------------------------------------------------ */

void events_begin(struct node_events *e)
{
	lock_init(&e->lock);
	e->run = (uint64_t)random_u32() << 32 | random_u32();
}

void events_end(struct node_events *e)
{
	lock_destroy(&e->lock);
}

static void keep(struct node_events *e, const struct node_event *one, uint64_t at)
{
	struct node_kept *k = &e->list[e->count % EVENTS_KEPT];

	assert(lock_held(&e->lock));
	k->event = *one;
	k->event.id = ++e->count;
	k->at = at;
}

static void keep_own(struct stag_pool_node *n, enum log_level level, const char *line)
{
	struct node_events *e = &n->events;
	struct node_event one = {.run = e->run, .level = (uint32_t)log_priority(level)};

	memcpy(one.node, n->conf.name, sizeof(one.node));
	memcpy(one.text, line, strnlen(line, sizeof(one.text) - 1));
	HOLD_FOR_SCOPE(&e->lock);
	one.number = ++e->number;
	keep(e, &one, clock_boot_ns());
}

/* Returns the id of the oldest line that is kept, or of the next one. */
static uint64_t oldest(const struct node_events *e)
{
	return e->count > EVENTS_KEPT ? e->count - EVENTS_KEPT + 1 : 1;
}

static bool is_kept(const struct node_events *e, const struct node_event *one)
{
	for (uint64_t id = oldest(e); id <= e->count; id++) {
		const struct node_event *k = &e->list[(id - 1) % EVENTS_KEPT].event;

		if (k->run == one->run && k->number >= one->number)
			return true;
	}
	return false;
}

void events_take(struct stag_pool_node *n, const struct node_event *one)
{
	struct node_events *e = &n->events;
	uint64_t now = clock_boot_ns(), age = one->age_us * 1000;

	HOLD_FOR_SCOPE(&e->lock);
	if (!is_kept(e, one))
		keep(e, one, age < now ? now - age : 0);
}

static void copy_event(const struct node_kept *k, uint64_t now, struct node_event *to)
{
	*to = k->event;
	to->age_us = (now - k->at) / 1000;
}

unsigned int events_list(struct node_events *e, uint64_t since, struct node_event *to,
			 unsigned int room)
{
	uint64_t now, id;
	unsigned int n = 0;

	HOLD_FOR_SCOPE(&e->lock);
	now = clock_boot_ns(); /* other threads keep lines: none is later */
	id = since >= oldest(e) ? since + 1 : oldest(e);
	for (; id <= e->count && n < room; id++)
		copy_event(&e->list[(id - 1) % EVENTS_KEPT], now, &to[n++]);
	return n;
}

/* ---- from a standby to its primary ----------------------------------------------------------- */

bool events_next_own(struct node_events *e, uint64_t *since, struct node_event *to)
{
	while (events_list(e, *since, to, 1) == 1) {
		*since = to->id;
		if (to->run == e->run)
			return true;
	}
	return false;
}

/* ---- the log --------------------------------------------------------------------------------- */

void node_log(struct stag_pool_node *n, enum log_level level, const char *fmt, ...)
{
	char line[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	if (level == LOG_LEVEL_ERR && !n->program.started)
		node_set_fault(n, line);
	keep_own(n, level, line);
	if (n->conf.log)
		n->conf.log(n->conf.log_arg, log_priority(level), line);
	else
		log_at(level, "node %s: %s", n->conf.name, line);
}

/* ---- becoming primary -------------------------------------------------------------------------- */

void takeover_begin(struct stag_pool_node *n)
{
	const struct role *r = &n->role;
	struct node_takeover *t = &n->takeover;

	memcpy(t->from, r->roll.members[r->roll.primary].name, sizeof(t->from));
	t->since = n->now;
	if (r->gone == r->epoch)
		snprintf(t->cause, sizeof(t->cause), "its process has ended");
	else
		snprintf(t->cause, sizeof(t->cause),
			 "primary unreachable: no heartbeat for %llu ms, so its lease expired",
			 (unsigned long long)((n->now - r->heard) / NS_PER_MS));
}

void takeover_report(struct stag_pool_node *n)
{
	struct node_takeover *t = &n->takeover;

	if (!t->from[0]) /* it created the pool */
		return;
	if (n->role.fence == ROLE_FENCE_TAKE)
		node_log(n, LOG_LEVEL_INFO, "switchover: %s took over from %s, which handed over",
			 n->conf.name, t->from);
	else
		node_log(n, LOG_LEVEL_WARN,
			 "failover: %s took over from %s within %llu ms of its loss; %s: %s",
			 n->conf.name, t->from,
			 (unsigned long long)((node_read_clock(n) - t->since) / NS_PER_MS), t->from,
			 t->cause);
	t->from[0] = '\0';
}

/* ---- expired leases ------------------------------------------------------------------------------ */

/* Logs once a second: the pulse, which counts them, must not wait for a log. */
void lapses_report(struct stag_pool_node *n)
{
	struct node_events *e = &n->events;
	uint64_t lapses = atomic_load_explicit(&n->pulse.lapses, memory_order_relaxed);

	if (lapses == e->lapses_told || n->now - e->lapses_told_at < NS_PER_S)
		return;
	node_log(n, LOG_LEVEL_WARN,
		 "lease expired %llu times: this machine, the network or a standby was too slow, "
		 "and clients had to wait",
		 (unsigned long long)(lapses - e->lapses_told));
	e->lapses_told = lapses;
	e->lapses_told_at = n->now;
}
