// SPDX-License-Identifier: BSD-2-Clause
/*
 * load.c - the load that a benchmark of storage puts on a partition or a unit.
 */
#include "load.h"

#include <string.h>

#include "base/clock.h"
#include "stag.h"
#include "store.h"

static bool choose_op(const struct load_options *o, struct load *l)
{
	l->op = o->op ? o->op : "read";
	if (strcmp(l->op, "mix") == 0) {
		l->writes = o->writes ? o->writes : 50;
		return true;
	}
	l->writes = strcmp(l->op, "write") == 0 ? 100 : 0;
	if (o->writes)
		complain("--writes needs --op mix");
	return !o->writes;
}

static bool parse_size(const struct load_options *o, uint64_t *size)
{
	if (o->size && !store_parse_size("--size", o->size, NULL, size))
		return false;
	if (*size > LOAD_MAX_SIZE)
		complain("--size must be at most 64M");
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

bool load_check(const struct load_options *o, struct load *l)
{
	*l = (struct load){.size = 4096, .depth = o->depth, .secs = o->secs};
	if (!choose_op(o, l) || !parse_size(o, &l->size))
		return false;
	if (l->writes == 0 || o->force)
		return true;
	complain("--op %s overwrites the data in the %s; allow it with --force", l->op, o->what);
	return false;
}
