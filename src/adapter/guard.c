// SPDX-License-Identifier: BSD-2-Clause
/*
 * guard.c - regions to which a word elsewhere opens and closes access.
 *
 * The word says which side owns the memory now. The side that changes it cannot wait for us, so
 * every access first announces itself in a cell that the other side can see (a hazard), and
 * then reads the word: either the access finds the word changed and leaves the memory alone, or
 * the other side finds the cell (both are sequentially consistent). The meaning of the word is
 * defined by the program that registered the region.
 */
#include "adapter/guard.h"

#include <errno.h>

#include "base/log.h"

/* The cell that this thread used last: it is probably free again. */
static __thread uint32_t last_cell;

int guard_check(const struct stagdv_guard *g)
{
	if (g->comp_mask || !g->word || (uintptr_t)g->word % sizeof(*g->word) ||
	    (g->hazards && (!g->n_hazards || !g->hazard)) ||
	    (uintptr_t)g->hazards % sizeof(*g->hazards)) {
		log_info("mr: invalid guard: no word, or inconsistent hazard cells");
		return -EINVAL;
	}
	return 0;
}

static uint64_t *take_cell(const struct stagdv_guard *g)
{
	uint32_t at = last_cell < g->n_hazards ? last_cell : 0;

	for (uint32_t i = 0; i < g->n_hazards; i++) {
		uint64_t nobody = 0;

		if (__atomic_load_n(&g->hazards[at], __ATOMIC_RELAXED) == 0 &&
		    __atomic_compare_exchange_n(&g->hazards[at], &nobody, g->hazard, false,
						__ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
			last_cell = at;
			return &g->hazards[at];
		}
		if (++at == g->n_hazards)
			at = 0;
	}
	return NULL;
}

enum key_fault guard_enter(const struct stagdv_guard *g, uint64_t **cell)
{
	*cell = NULL;
	if (__atomic_load_n(g->word, __ATOMIC_RELAXED) != g->expected)
		return KEY_INVALID; /* permanently closed: nothing to announce */
	if (g->hazards) {
		*cell = take_cell(g);
		if (!*cell)
			return KEY_BUSY;
	}
	if (__atomic_load_n(g->word, __ATOMIC_SEQ_CST) == g->expected)
		return KEY_OK;
	guard_leave(*cell);
	*cell = NULL;
	return KEY_INVALID;
}

void guard_leave(uint64_t *cell)
{
	if (cell)
		__atomic_store_n(cell, 0, __ATOMIC_RELEASE);
}
