// SPDX-License-Identifier: BSD-2-Clause
/*
 * progress.c - writes the progress line (progress.h).
 */
#include "progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "store_words.h"

#define BAR	  24
#define DELAY_NS  NS_PER_S	 /* before the line appears */
#define UPDATE_NS (NS_PER_S / 5) /* between two updates */

/* "[######....] ", or "" */
static void draw_bar(const struct progress *p, uint64_t done, char bar[BAR + 4])
{
	size_t full = p->total ? (size_t)((double)done / (double)p->total * BAR) : 0;

	*bar = '\0';
	if (!p->total)
		return;
	memset(bar + 1, '.', BAR);
	memset(bar + 1, '#', full < BAR ? full : BAR);
	bar[0] = '[';
	strcpy(bar + 1 + BAR, "] ");
}

static void write_amount(const struct progress *p, uint64_t done, char *text, size_t size)
{
	char a[32], b[32];

	if (p->unit == PROGRESS_TIME && p->total)
		snprintf(text, size, "%.0f of %.0f s", (double)done / NS_PER_S,
			 (double)p->total / NS_PER_S);
	else if (p->unit == PROGRESS_TIME)
		snprintf(text, size, "%.0f s", (double)done / NS_PER_S);
	else if (p->total)
		snprintf(text, size, "%s of %s", store_size_word(done, a, sizeof(a)),
			 store_size_word(p->total, b, sizeof(b)));
	else
		snprintf(text, size, "%s", store_size_word(done, a, sizeof(a)));
}

/* Writes ", 812 MB/s, 3 s left", if the unit is bytes and some are done. */
static void write_speed(const struct progress *p, uint64_t spent, uint64_t done, char *text,
			size_t size)
{
	size_t n;

	*text = '\0';
	if (p->unit != PROGRESS_BYTES || !spent || !done)
		return;
	n = (size_t)snprintf(text, size, ", %.*f MB/s", done < spent / 100 ? 2 : 0,
			     (double)done * 1e3 / (double)spent);
	if (p->total > done && n < size)
		snprintf(text + n, size - n, ", %.0f s left",
			 (double)spent / NS_PER_S * (double)(p->total - done) / (double)done);
}

void progress_line(const struct progress *p, uint64_t spent_ns, uint64_t done, const char *note,
		   char *text, size_t size)
{
	char bar[BAR + 4], much[80], fast[64];

	draw_bar(p, done, bar);
	write_amount(p, done, much, sizeof(much));
	write_speed(p, spent_ns, done, fast, sizeof(fast));
	snprintf(text, size, "%s: %s%s%s%s%s", p->what, bar, much, fast, note ? ", " : "",
		 note ? note : "");
}

void progress_begin(struct progress *p, const char *what, enum progress_unit unit, uint64_t total)
{
	*p = (struct progress){.what = what,
			       .unit = unit,
			       .total = total,
			       .since = clock_ns(),
			       .terminal = isatty(STDERR_FILENO)};
}

bool progress_is_due(const struct progress *p, uint64_t now)
{
	return p->terminal && now - p->since >= DELAY_NS && now - p->shown >= UPDATE_NS;
}

void progress_show(struct progress *p, uint64_t done, const char *note)
{
	uint64_t now = p->terminal ? clock_ns() : 0;
	char line[256];

	if (!progress_is_due(p, now))
		return;
	p->shown = now;
	progress_line(p, now - p->since, done, note, line, sizeof(line));
	fprintf(stderr, "\r%s \033[K", line);
}

void progress_spent(struct progress *p, const char *note)
{
	if (p->terminal)
		progress_show(p, clock_ns() - p->since, note);
}

void progress_end(struct progress *p)
{
	if (p->shown)
		fputs("\r\033[K", stderr);
	p->shown = 0;
}
