// SPDX-License-Identifier: BSD-2-Clause
/*
 * hint.c - bitmaps in shared memory in which the next set bit is found in a few steps.
 *
 * Each level has a bit for each word of the one below, set if that word may have bits. They are
 * hints only: setting goes up, clearing goes up and checks again, and a process that dies in
 * between leaves a bit that is wrongly set or clear. The authoritative state is elsewhere
 * (desc.state, `freed`).
 */
#include "heap.h"

static uint32_t words_of(uint32_t bits)
{
	return (bits + 63) / 64;
}

size_t hint_size(uint32_t bits)
{
	size_t words = 0;

	do {
		bits = words_of(bits);
		words += bits;
	} while (bits > 1);
	return words * sizeof(uint64_t);
}

void hint_init(struct hint_map *map, void *memory, uint32_t bits)
{
	_Atomic uint64_t *words = memory;

	map->bits = bits;
	map->levels = 0;
	do {
		map->level[map->levels++] = words;
		bits = words_of(bits);
		words += bits;
	} while (bits > 1);
}

void hint_fill(struct hint_map *map)
{
	uint32_t bits = map->bits;

	for (unsigned int level = 0; level < map->levels; level++) {
		for (uint32_t i = 0; i < bits / 64; i++)
			heap_store(&map->level[level][i], UINT64_MAX);
		if (bits % 64 != 0)
			heap_store(&map->level[level][bits / 64], (1ull << (bits % 64)) - 1);
		bits = words_of(bits);
	}
}

void hint_set(struct hint_map *map, uint32_t bit)
{
	for (unsigned int level = 0; level < map->levels; level++, bit /= 64) {
		_Atomic uint64_t *word = &map->level[level][bit / 64];
		uint64_t mask = 1ull << (bit % 64);

		if (!(atomic_load(word) & mask))
			atomic_fetch_or(word, mask);
	}
}

/* Checks the word below again after clearing its bit: another thread may have set a bit there. */
void hint_clear(struct hint_map *map, uint32_t bit)
{
	for (unsigned int level = 0; level < map->levels; level++, bit /= 64) {
		_Atomic uint64_t *word = &map->level[level][bit / 64];
		uint64_t mask = 1ull << (bit % 64);
		uint64_t left = atomic_fetch_and(word, ~mask) & ~mask;

		if (level > 0 && atomic_load(&map->level[level - 1][bit]) != 0)
			atomic_fetch_or(word, mask);
		if (left != 0)
			break;
	}
}

bool hint_test(const struct hint_map *map, uint32_t bit)
{
	return (heap_load(&map->level[0][bit / 64]) >> (bit % 64)) & 1;
}

/* Another process may have set a bit behind the last one. */
static uint32_t within(uint32_t bit, uint32_t bits)
{
	return bit < bits ? bit : HINT_NONE;
}

static uint32_t next_at(const struct hint_map *map, unsigned int level, uint32_t from)
{
	uint32_t bits = map->bits;
	uint64_t word;

	for (unsigned int i = 0; i < level; i++)
		bits = words_of(bits);
	if (from >= bits)
		return HINT_NONE;
	word = atomic_load(&map->level[level][from / 64]) >> (from % 64);
	if (word != 0)
		return within(from + (uint32_t)__builtin_ctzll(word), bits);
	if (level + 1 >= map->levels || level + 1 >= HEAP_HINT_LEVELS)
		return HINT_NONE;
	for (uint32_t up = from / 64 + 1;; up++) {
		up = next_at(map, level + 1, up);
		if (up == HINT_NONE)
			return HINT_NONE;
		word = atomic_load(&map->level[level][up]);
		if (word != 0)
			return within(up * 64 + (uint32_t)__builtin_ctzll(word), bits);
	}
}

uint32_t hint_next(const struct hint_map *map, uint32_t from)
{
	return next_at(map, 0, from);
}
