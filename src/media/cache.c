// SPDX-License-Identifier: BSD-2-Clause
/*
 * cache.c - keeps data read or written lately, for as long as the operation requested.
 *
 * Everything is on the medium as well (write-through): dropping a unit loses nothing, and
 * operations without a cache time read the medium. A unit is valid as long as its stamp is
 * (share.c); every write, of any process, changes the stamp before it begins and after it ends. So
 * data read concurrently with a write is never kept, and a write does not need to invalidate units.
 */
#include "media/medium.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"

#define NONE	    UINT32_MAX
#define MOST_KEPT   (1u << 20) /* longer operations would only evict others */
#define NOT_TO_KEEP UINT64_MAX

struct unit {
	uint64_t number; /* unit number on the medium */
	uint64_t stamp;
	uint64_t until; /* clock_ns() */
	uint32_t next;	/* next unit in its bucket */
	uint32_t newer, older;
	uint32_t keep_ms; /* 0: free */
};

struct cache {
	uint8_t *memory;
	uint32_t n_units, n_buckets, fresh; /* units from fresh on were never used */
	uint32_t newest, oldest, free;
	struct unit *units;
	uint32_t *buckets;
};

/* ---- create and destroy ---- */

static struct cache *cache_open(uint64_t bytes)
{
	struct cache *c = calloc(1, sizeof(*c));
	uint64_t n = bytes / CACHE_UNIT;

	if (!c)
		return NULL;
	c->n_units = n > 1u << 28 ? 1u << 28 : n < 4 ? 4 : (uint32_t)n;
	c->n_buckets = 1u << (32 - __builtin_clz(c->n_units));
	c->newest = c->oldest = c->free = NONE;
	c->units = calloc(c->n_units, sizeof(*c->units));
	c->buckets = malloc(c->n_buckets * sizeof(*c->buckets));
	c->memory = mmap(NULL, (uint64_t)c->n_units * CACHE_UNIT, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!c->units || !c->buckets || c->memory == MAP_FAILED) {
		cache_close(c);
		return NULL;
	}
	memset(c->buckets, 0xff, c->n_buckets * sizeof(*c->buckets));
	return c;
}

void cache_close(struct cache *c)
{
	if (!c)
		return;
	if (c->memory && c->memory != MAP_FAILED)
		munmap(c->memory, (uint64_t)c->n_units * CACHE_UNIT);
	free(c->units);
	free(c->buckets);
	free(c);
}

/*
 * The first operation that requests caching creates the cache, before it does anything else, so
 * that its own writes are tracked.
 */
bool cache_prepare(struct media *m)
{
	assert(lock_held(&m->lock));
	if (m->cache)
		return true;
	if (!m->places && places_open(m))
		return false;
	m->cache = cache_open(m->cache_limit);
	if (!m->cache)
		log_warn("medium %d: no memory for its cache: data is not cached", m->fd);
	return m->cache;
}

/* ---- units ---- */

static uint32_t *bucket_of(struct cache *c, uint64_t number)
{
	return &c->buckets[(number * 0x9e3779b97f4a7c15u) >> 32 & (c->n_buckets - 1)];
}

static uint8_t *memory_of(struct cache *c, const struct unit *u)
{
	return c->memory + (uint64_t)(u - c->units) * CACHE_UNIT;
}

static struct unit *find_unit(struct cache *c, uint64_t number)
{
	for (uint32_t i = *bucket_of(c, number); i != NONE; i = c->units[i].next)
		if (c->units[i].number == number)
			return &c->units[i];
	return NULL;
}

static void unlink_age(struct cache *c, struct unit *u)
{
	*(u->newer == NONE ? &c->newest : &c->units[u->newer].older) = u->older;
	*(u->older == NONE ? &c->oldest : &c->units[u->older].newer) = u->newer;
}

static void link_newest(struct cache *c, struct unit *u)
{
	uint32_t i = (uint32_t)(u - c->units);

	u->newer = NONE;
	u->older = c->newest;
	*(c->newest == NONE ? &c->oldest : &c->units[c->newest].newer) = i;
	c->newest = i;
}

static void drop_unit(struct media *m, struct unit *u)
{
	struct cache *c = m->cache;
	uint32_t i = (uint32_t)(u - c->units), *at = bucket_of(c, u->number);

	while (*at != i)
		at = &c->units[*at].next;
	*at = u->next;
	unlink_age(c, u);
	u->keep_ms = 0;
	u->next = c->free;
	c->free = i;
	m->counters.cache_bytes -= CACHE_UNIT;
}

static uint64_t stamp_of(struct media *m, uint64_t number)
{
	return places_stamp(m, number * CACHE_UNIT, (number + 1) * CACHE_UNIT);
}

static struct unit *find_good(struct media *m, uint64_t number, uint64_t now)
{
	struct unit *u = find_unit(m->cache, number);

	if (!u)
		return NULL;
	if (u->until > now && u->stamp == stamp_of(m, number))
		return u;
	drop_unit(m, u);
	return NULL;
}

static struct unit *take_unit(struct media *m, uint64_t number)
{
	struct cache *c = m->cache;
	struct unit *u = find_unit(c, number);
	uint32_t *bucket;

	if (u)
		drop_unit(m, u);
	if (c->free == NONE && c->fresh == c->n_units)
		drop_unit(m, &c->units[c->oldest]);
	if (c->free != NONE) {
		u = &c->units[c->free];
		c->free = u->next;
	} else {
		u = &c->units[c->fresh++];
	}
	bucket = bucket_of(c, number);
	u->number = number;
	u->next = *bucket;
	*bucket = (uint32_t)(u - c->units);
	link_newest(c, u);
	m->counters.cache_bytes += CACHE_UNIT;
	return u;
}

/* ---- reading from it ---- */

static bool has_all(struct media *m, uint64_t first, uint64_t last, uint64_t now)
{
	for (uint64_t n = first; n <= last; n++)
		if (!find_good(m, n, now))
			return false;
	return true;
}

static void use(struct media *m, struct unit *u, uint64_t now)
{
	u->until = now + u->keep_ms * NS_PER_MS;
	unlink_age(m->cache, u);
	link_newest(m->cache, u);
}

static void copy_out(struct media *m, struct media_op *op, uint64_t now)
{
	uint64_t at = op->offset, end = op->offset + op->length;

	while (at < end) {
		struct unit *u = find_unit(m->cache, at / CACHE_UNIT);
		uint64_t n = least(end - at, CACHE_UNIT - at % CACHE_UNIT);

		iov_scatter(op, memory_of(m->cache, u) + at % CACHE_UNIT, n);
		iov_advance(op, n);
		use(m, u, now);
		at += n;
	}
}

bool cache_read(struct media *m, struct media_op *op)
{
	uint64_t now = clock_ns();

	assert(lock_held(&m->lock));
	if (op->length == 0 || op->length > MOST_KEPT || !cache_prepare(m))
		return false;
	if (!has_all(m, op->offset / CACHE_UNIT, (op->offset + op->length - 1) / CACHE_UNIT, now)) {
		m->counters.cache_misses++;
		return false;
	}
	copy_out(m, op, now);
	m->counters.cache_hits++;
	m->counters.copied_bytes += op->length;
	return true;
}

/* ---- keeping ---- */

/* Drops expired units from time to time, including those that are never read again. */
static void drop_stale(struct media *m, uint64_t now)
{
	for (int i = 0; i < 2 && m->cache->oldest != NONE; i++) {
		struct unit *u = &m->cache->units[m->cache->oldest];

		if (u->until > now && u->stamp == stamp_of(m, u->number))
			return;
		drop_unit(m, u);
	}
}

void cache_begin(struct media *m, struct media_op *op)
{
	struct media_op_state *s = &op->state;

	assert(lock_held(&m->lock));
	s->stamp = NOT_TO_KEEP;
	if (!op->cache_ms || op->kind == MEDIA_ATOMIC || op->length > MOST_KEPT || !m->cache ||
	    m->untracked || (op->kind == MEDIA_WRITE && !s->tracked))
		return;
	s->stamp = places_stamp(m, s->start, s->end);
}

/* Returns whether no write has touched the range since the step began, and none is in flight. */
static bool is_unchanged(struct media *m, const struct media_op *op)
{
	const struct media_op_state *s = &op->state;
	unsigned int mine = op->kind == MEDIA_WRITE;

	return places_writers(m, s->start, s->end) <= mine &&
	       places_stamp(m, s->start, s->end) == s->stamp;
}

static void keep_unit(struct media *m, struct media_op *op, uint64_t number, uint64_t now)
{
	const struct media_op_state *s = &op->state;
	struct unit *u = take_unit(m, number);
	uint8_t *memory = memory_of(m->cache, u);
	uint64_t at = number * CACHE_UNIT;

	if (s->buffer) {
		memcpy(memory, s->buffer + (at - s->start), CACHE_UNIT);
	} else {
		struct media_op place = *op;

		iov_advance(&place, at - s->start);
		iov_gather(&place, memory, CACHE_UNIT);
	}
	/* A write changes the stamp once more when it leaves, which follows. */
	u->stamp = stamp_of(m, number) + (op->kind == MEDIA_WRITE);
	u->keep_ms = op->cache_ms;
	u->until = now + op->cache_ms * NS_PER_MS;
}

static void forget(struct media *m, uint64_t first, uint64_t end)
{
	for (uint64_t n = first; n < end; n++) {
		struct unit *u = find_unit(m->cache, n);

		if (u)
			drop_unit(m, u);
	}
}

/*
 * Keeps the first `done` bytes of the step. Their validity is checked after the units have their
 * stamps: another process may write at any moment.
 */
void cache_keep(struct media *m, struct media_op *op, uint64_t done)
{
	const struct media_op_state *s = &op->state;
	uint64_t first = (s->start + CACHE_UNIT - 1) / CACHE_UNIT;
	uint64_t end = (s->start + done) / CACHE_UNIT, now;

	assert(lock_held(&m->lock));
	if (!op->cache_ms || !m->cache)
		return;
	now = clock_ns();
	drop_stale(m, now);
	if (s->stamp == NOT_TO_KEEP)
		return;
	for (uint64_t n = first; n < end; n++)
		keep_unit(m, op, n, now);
	if (!is_unchanged(m, op))
		forget(m, first, end);
}
