// SPDX-License-Identifier: BSD-2-Clause
/*
 * ahead.c - the future state of the region: the words that records which are made, but not applied, will change.
 *
 * A hash table by offset, and a queue of the words that each record has put there. When a record is applied, its
 * words are removed, unless a later record has changed them; when a record is given up, the words before it are
 * restored.
 */
#include "pool/memory/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int pool_ahead_create(struct pool_ahead *a, unsigned int bits)
{
	uint32_t n = 1u << bits;

	*a = (struct pool_ahead){.mask = n - 1};
	a->slots =
		calloc(n, sizeof(*a->slots)); /* fresh zero pages: untouched slots take no memory */
	a->notes = malloc(n * sizeof(*a->notes));
	if (!a->slots || !a->notes) {
		pool_ahead_destroy(a);
		return -ENOMEM;
	}
	return 0;
}

void pool_ahead_destroy(struct pool_ahead *a)
{
	free(a->slots);
	free(a->notes);
	*a = (struct pool_ahead){0};
}

/* Half of the table stays empty, so that chains are short. */
uint32_t pool_ahead_room(const struct pool_ahead *a)
{
	uint32_t noted = a->put - a->get;

	return noted < a->mask / 2 ? a->mask / 2 - noted : 0;
}

static uint32_t home_of(const struct pool_ahead *a, uint64_t offset)
{
	return (uint32_t)(offset / 8 * 0x9e3779b97f4a7c15u >> 32) & a->mask;
}

/* Returns the slot of an offset, or the empty slot where it would be. */
static struct pool_ahead_slot *slot_of(const struct pool_ahead *a, uint64_t offset)
{
	uint32_t i = home_of(a, offset);

	while (a->slots[i].offset != offset && a->slots[i].offset != 0)
		i = (i + 1) & a->mask;
	return &a->slots[i];
}

bool pool_ahead_get(const struct pool_ahead *a, uint64_t offset, uint64_t *value)
{
	const struct pool_ahead_slot *slot;

	if (a->used == 0)
		return false;
	slot = slot_of(a, offset);
	if (slot->offset != offset)
		return false;
	*value = slot->value;
	return true;
}

/* Removes a slot. Moves later entries of its cluster into the hole, unless the hole is before their home slot. */
static void remove_slot(struct pool_ahead *a, struct pool_ahead_slot *slot)
{
	uint32_t hole = (uint32_t)(slot - a->slots);
	uint32_t i = hole;

	for (;;) {
		i = (i + 1) & a->mask;
		if (a->slots[i].offset == 0)
			break;
		if (((i - home_of(a, a->slots[i].offset)) & a->mask) >= ((i - hole) & a->mask)) {
			a->slots[hole] = a->slots[i];
			hole = i;
		}
	}
	a->slots[hole].offset = 0;
	a->used--;
}

void pool_ahead_set(struct pool_ahead *a, uint64_t offset, uint64_t value, uint64_t number)
{
	struct pool_ahead_slot *slot = slot_of(a, offset);
	struct pool_ahead_note *note = &a->notes[a->put & a->mask];
	bool is_new = slot->offset != offset;

	assert(a->put - a->get <= a->mask);
	*note = (struct pool_ahead_note){.number = number, .offset = offset};
	if (!is_new) {
		note->value = slot->value;
		note->before = slot->number;
	}
	a->put++;
	a->used += is_new;
	*slot = (struct pool_ahead_slot){offset, value, number};
}

void pool_ahead_settle(struct pool_ahead *a, uint64_t number)
{
	for (; a->get != a->put; a->get++) {
		const struct pool_ahead_note *note = &a->notes[a->get & a->mask];
		struct pool_ahead_slot *slot;

		if (note->number > number)
			break;
		slot = slot_of(a, note->offset);
		if (slot->offset == note->offset && slot->number <= number)
			remove_slot(a, slot);
	}
}

void pool_ahead_undo(struct pool_ahead *a, uint64_t number)
{
	for (; a->put != a->get; a->put--) {
		const struct pool_ahead_note *note = &a->notes[(a->put - 1) & a->mask];
		struct pool_ahead_slot *slot = slot_of(a, note->offset);

		if (note->number != number)
			break;
		if (note->before != 0)
			*slot = (struct pool_ahead_slot){note->offset, note->value, note->before};
		else
			remove_slot(a, slot);
	}
}
