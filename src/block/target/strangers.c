// SPDX-License-Identifier: BSD-2-Clause
/*
 * strangers.c - connections without a session: those that have not logged in yet, and those that are closing.
 *
 * Their number is limited, in all and per address. When there is one more, another one makes room: a closing one, else a silent one,
 * else one whose login takes long, else one whose login has just begun, else a parked one; the oldest of its kind, and of the address
 * that has most. An address with more than its share loses one of its own. So every connection is accepted at once: none waits in
 * TCP's queue behind others that do not log in. Addresses (of IPv6: networks, base/source.h) are counted by a hash, which is exact
 * enough; it has a key, so that nobody can choose an address that is counted with another one.
 *
 * Their refusals are logged once a second, with the number of those left out.
 */
#include "block/target/target.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/random.h"
#include "base/siphash.h"
#include "base/source.h"

#define MAX_STRANGERS  256
#define MAX_PER_SOURCE 64
#define WORDS	       256

/* ---- refusals ----------------------------------------------------------------------- */

static const struct rate_limit one_a_second = RATE_LIMIT(1, 1);

void target_refused(struct target_conn *c, const char *fmt, ...)
{
	struct stag_block_target *t = c->target;
	char words[WORDS], more[64] = "";
	uint32_t left_out;
	va_list args;

	t->counters.refused++;
	va_start(args, fmt);
	vsnprintf(words, sizeof(words), fmt, args);
	va_end(args);
	target_audit(c, "login", STAG_AUDIT_REFUSED, words);
	if (!rate_allows(&t->strangers.log_rate, &one_a_second, clock_ns(), &left_out))
		return;
	if (left_out)
		snprintf(more, sizeof(more), " (and %u others before)", left_out);
	target_log(t, "refused: login from %s: %s%s", c->peer, words, more);
}

/* Logs what was left out, even if no other refusal follows. */
static void log_left_out(struct stag_block_target *t)
{
	struct rate *r = &t->strangers.log_rate;
	uint32_t left_out = 0;

	if (atomic_load_explicit(&r->suppressed, memory_order_relaxed) &&
	    rate_allows(r, &one_a_second, clock_ns(), &left_out))
		target_log(t, "refused: %u other logins", left_out);
}

/* ---- the list ------------------------------------------------------------------------ */

void target_strangers_init(struct stag_block_target *t)
{
	list_init(&t->strangers.list);
	for (int i = 0; i < 2; i++)
		t->strangers.key[i] = (uint64_t)random_u32() << 32 | random_u32();
}

static uint8_t source_of(const struct target_conn *c)
{
	uint8_t source[SOURCE_ROOM];
	size_t len = source_of_text(c->peer, source);

	return (uint8_t)siphash(c->target->strangers.key, source, len);
}

void target_stranger_add(struct target_conn *c)
{
	struct stag_block_target *t = c->target;

	c->source = source_of(c);
	list_add_tail(&t->strangers.list, &c->stranger);
	t->strangers.count++;
	t->strangers.of_source[c->source]++;
}

void target_stranger_remove(struct target_conn *c)
{
	struct stag_block_target *t = c->target;

	if (list_empty(&c->stranger))
		return;
	list_del(&c->stranger);
	t->strangers.count--;
	t->strangers.of_source[c->source]--;
}

/* ---- making room ----------------------------------------------------------------------- */

enum rank { RANK_CLOSING, RANK_SILENT, RANK_SLOW, RANK_FRESH, RANK_PARKED };

static enum rank rank_of(const struct target_conn *c)
{
	const struct stag_block_target *t = c->target;

	if (c->state == CONN_CLOSING)
		return RANK_CLOSING;
	if (c->state == CONN_PARKED)
		return RANK_PARKED;
	if (!c->login && !c->spoke && c->ops->is_silent)
		return RANK_SILENT;
	return t->loop.now - c->begun > t->config.limits.slow_login_ns ? RANK_SLOW : RANK_FRESH;
}

static bool goes_before(const struct target_conn *a, const struct target_conn *b)
{
	const unsigned int *count = a->target->strangers.of_source;

	if (rank_of(a) != rank_of(b))
		return rank_of(a) < rank_of(b);
	return count[a->source] > count[b->source];
}

/* Returns a stranger other than c, or NULL. only_source: one of the same source as c. */
static struct target_conn *find_lowest(struct stag_block_target *t, const struct target_conn *c,
				       bool only_source)
{
	struct target_conn *best = NULL;

	list_for_each (it, &t->strangers.list) {
		struct target_conn *other = list_entry(it, struct target_conn, stranger);

		if (other == c || (only_source && other->source != c->source))
			continue;
		if (!best || goes_before(other, best))
			best = other;
	}
	return best;
}

/* Returns the connection that makes room. Something may have arrived from one that seemed to be silent. */
static struct target_conn *choose(struct stag_block_target *t, const struct target_conn *c,
				  bool only_source)
{
	struct target_conn *found;

	while ((found = find_lowest(t, c, only_source)) && rank_of(found) == RANK_SILENT &&
	       !found->ops->is_silent(found))
		found->spoke = true;
	return found;
}

static void drop(struct target_conn *c)
{
	if (c->state != CONN_CLOSING)
		target_refused(c, "not completed, and others are waiting");
	target_conn_end(c);
}

void target_strangers_limit(struct target_conn *c)
{
	struct stag_block_target *t = c->target;

	if (t->strangers.of_source[c->source] > MAX_PER_SOURCE)
		drop(choose(t, c, true));
	else if (t->strangers.count > MAX_STRANGERS)
		drop(choose(t, c, false));
}

/* If there are descriptors for a few connections only, those that log in without delay do so one after the other. */
bool target_strangers_drop_one(struct stag_block_target *t)
{
	struct target_conn *c = choose(t, NULL, false);

	if (!c || (rank_of(c) >= RANK_FRESH && t->strangers.of_source[c->source] == 1))
		return false;
	drop(c);
	return true;
}

void target_strangers_tick(struct stag_block_target *t)
{
	log_left_out(t);
}
