// SPDX-License-Identifier: BSD-2-Clause
/*
 * misuse.c - reports misuse of verbs: see misuse.h.
 */
#include "adapter/misuse.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/rate.h"

#define KINDS 128 /* remembered; then the oldest is forgotten, and counted from 1 again */
#define ROOM  800

struct seen {
	const char *kind; /* NULL: free */
	uint64_t object;
	uint64_t times;
	uint64_t logged; /* of these */
};

static struct lock seen_lock = LOCK_INITIALIZER; /* a leaf; protects all of side, except the rate */
static struct {
	struct seen seen[KINDS];
	unsigned oldest;
	struct rate rate;
} side[2]; /* by enum misuse_by: peers do not make us forget the program's mistakes */

static struct seen *find_seen(enum misuse_by by, const char *kind, uint64_t object)
{
	struct seen *seen = side[by].seen, *s;

	for (unsigned i = 0; i < KINDS; i++)
		if (seen[i].kind == kind && seen[i].object == object)
			return &seen[i];
	s = &seen[side[by].oldest++ % KINDS];
	*s = (struct seen){.kind = kind, .object = object};
	return s;
}

static bool is_power_of_ten(uint64_t n)
{
	while (n % 10 == 0)
		n /= 10;
	return n == 1;
}

/* Counts one more, and returns which one it is, or 0 if it is not to be logged. *left_out: how many were not logged. */
static uint64_t count(enum misuse_by by, const char *kind, uint64_t object, uint64_t *left_out,
		      uint32_t *others)
{
	static const struct rate_limit limits[] = {
		[BY_PROGRAM] = RATE_LIMIT(5, 50),
		[BY_PEER] = RATE_LIMIT(1, 50),
	};
	struct seen *s;

	HOLD_FOR_SCOPE(&seen_lock);
	s = find_seen(by, kind, object);
	s->times++;
	if (!is_power_of_ten(s->times) ||
	    !rate_allows(&side[by].rate, &limits[by], clock_ns(), others))
		return 0;
	s->logged++;
	*left_out = s->times - s->logged;
	return s->times;
}

void misuse_log(enum misuse_by by, const char *kind, uint64_t object, const char *fmt, ...)
{
	char line[ROOM], more[160] = "";
	uint64_t times, left_out = 0;
	uint32_t others = 0;
	bool all = log_level >= LOG_LEVEL_INFO;
	va_list args;

	if (log_level < LOG_LEVEL_WARN)
		return;
	times = count(by, kind, object, &left_out, &others);
	if (!times && !all)
		return;
	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	if (times > 1 && !all)
		snprintf(more, sizeof(more), " (the %lluth time; %llu were not logged)",
			 (unsigned long long)times, (unsigned long long)left_out);
	log_at(times ? LOG_LEVEL_WARN : LOG_LEVEL_INFO, "%s%s", line, more);
	if (others && !all)
		log_warn("%u other lines about misuse%s were not logged, to limit their number; "
			 "STAG_LOG=info logs each",
			 others, by == BY_PEER ? " by peers" : "");
}

void misuse_after_fork(void)
{
	lock_init(&seen_lock);
}
