// SPDX-License-Identifier: BSD-2-Clause
/*
 * load.c - what a benchmark of storage keeps under way, as it was asked for.
 */
#include "load.h"

#include <string.h>

#include "base/clock.h"
#include "stag.h"
#include "store.h"

static bool parse_op(const struct load_words *w, struct load *l)
{
	static const char *const ops[] = {"read", "mix", "write"};
	size_t i = 0;

	if (w->op)
		while (i < 3 && strcmp(ops[i], w->op) != 0)
			i++;
	if (i == 3) {
		complain("--op wants read, write or mix, not '%s'", w->op);
		return false;
	}
	l->op = ops[i];
	l->writes = 50 * i;
	if (i == 1)
		return store_parse_number("--writes", w->writes, 1, 99, &l->writes);
	if (w->writes)
		complain("--writes is for --op mix");
	return !w->writes;
}

static bool parse_size(const struct load_words *w, uint64_t *size)
{
	if (w->size && !store_parse_size("--size", w->size, NULL, size))
		return false;
	if (*size > LOAD_MAX_SIZE)
		complain("--size is 64M at the most");
	return *size <= LOAD_MAX_SIZE;
}

/* xorshift64 */
uint64_t load_dice(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

bool load_writes(uint64_t percent, uint64_t *dice)
{
	return percent == 100 || (percent && load_dice(dice) % 100 < percent);
}

uint64_t load_cpu_ns(void)
{
	return clock_read(CLOCK_PROCESS_CPUTIME_ID);
}

bool load_parse(const struct load_words *w, struct load *l)
{
	uint64_t depth = 32;

	*l = (struct load){.size = 4096, .secs = 1};
	if (!parse_op(w, l) || !parse_size(w, &l->size) || !store_parse_secs(w->secs, &l->secs) ||
	    !store_parse_number("--depth", w->depth, 1, LOAD_MAX_DEPTH, &depth))
		return false;
	l->depth = (uint32_t)depth;
	if (l->writes == 0 || w->force)
		return true;
	complain("--op %s overwrites what is in the %s: it wants --force", l->op, w->what);
	return false;
}
