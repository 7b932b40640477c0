// SPDX-License-Identifier: BSD-2-Clause
/*
 * object.c - contents and ownership of the model test's objects: see object.h.
 */
#include "object.h"

#include <string.h>

#define PAGE	   4096u
#define GRAIN	   16u
#define SMALL	   PAGE
#define END	   64u
#define EDGES_MOST 64u /* limit of the page boundaries that are filled */
#define EDGES	   16u

/* ---- contents ---- */

static uint64_t mixed(uint64_t x)
{
	x = (x ^ x >> 32) * 0x9e3779b97f4a7c15u;
	return x ^ x >> 29;
}

static uint64_t seed_of(const struct object *o)
{
	return mixed(mixed((uintptr_t)o->at + o->serial * 0xd1342543de82ef95u) + o->size);
}

/* Processes the bytes in [from, to). Returns false at the first mismatch. */
typedef bool (*piece_fn)(uint64_t seed, uint8_t *base, uint64_t from, uint64_t to, uint64_t *wrong);

static uint64_t word_at(uint64_t seed, uint64_t offset)
{
	return mixed(seed + offset / 8) >> offset % 8 * 8;
}

static bool write_piece(uint64_t seed, uint8_t *base, uint64_t from, uint64_t to, uint64_t *wrong)
{
	while (from < to) {
		uint64_t word = word_at(seed, from), n = 8 - from % 8;

		if (n > to - from)
			n = to - from;
		memcpy(base + from, &word, n);
		from += n;
	}
	return true;
}

static bool check_piece(uint64_t seed, uint8_t *base, uint64_t from, uint64_t to, uint64_t *wrong)
{
	while (from < to) {
		uint64_t word = word_at(seed, from), n = 8 - from % 8;

		if (n > to - from)
			n = to - from;
		if (memcmp(base + from, &word, n) != 0) {
			*wrong = from;
			return false;
		}
		from += n;
	}
	return true;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Calls fn for the last bytes of each page together with the first bytes of the next. */
static bool each_edge(const struct object *o, uint8_t *base, uint64_t size, piece_fn fn,
		      uint64_t *wrong)
{
	uint64_t seed = seed_of(o), first = PAGE - (uintptr_t)o->at % PAGE;
	uint64_t edges = (o->size - first) / PAGE + 1;
	bool all = edges <= EDGES_MOST;

	for (uint64_t i = 0; i < (all ? edges : EDGES); i++) {
		uint64_t edge = first + PAGE * (all ? i : mixed(seed + i) % edges);

		if (!fn(seed, base, smaller(edge - 8, size), smaller(edge + 8, size), wrong))
			return false;
	}
	return true;
}

static bool each_piece(const struct object *o, uint8_t *base, uint64_t size, piece_fn fn,
		       uint64_t *wrong)
{
	uint64_t seed = seed_of(o);

	size = smaller(size, o->size);
	if (o->whole || o->size <= SMALL)
		return fn(seed, base, 0, size, wrong);
	return fn(seed, base, 0, smaller(END, size), wrong) &&
	       fn(seed, base, smaller(o->size - END, size), size, wrong) &&
	       each_edge(o, base, size, fn, wrong);
}

void object_fill(const struct object *o, uint8_t *base)
{
	each_piece(o, base, o->size, write_piece, NULL);
}

bool object_holds(const struct object *o, const uint8_t *base, uint64_t size, uint64_t *wrong)
{
	return each_piece(o, (uint8_t *)base, size, check_piece, wrong);
}

/* ---- ownership ---- */

uint64_t taken_bytes(uint64_t area_size)
{
	return area_size / GRAIN / 8;
}

static bool each_word(const struct taken *t, const struct object *o, bool mark)
{
	uint64_t at = (uint64_t)((char *)o->at - t->area) / GRAIN, end = at + o->usable / GRAIN;
	bool right = true;

	while (at < end) {
		uint64_t n = smaller(64 - at % 64, end - at);
		uint64_t bits = (n == 64 ? UINT64_MAX : (1ull << n) - 1) << at % 64;
		_Atomic uint64_t *word = &t->words[at / 64];
		uint64_t had = mark ? atomic_fetch_or(word, bits) : atomic_fetch_and(word, ~bits);

		right = right && (had & bits) == (mark ? 0 : bits);
		at += n;
	}
	return right;
}

bool taken_mark(const struct taken *t, const struct object *o)
{
	return each_word(t, o, true);
}

bool taken_clear(const struct taken *t, const struct object *o)
{
	return each_word(t, o, false);
}
