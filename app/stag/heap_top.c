// SPDX-License-Identifier: BSD-2-Clause
/*
 * heap_top.c - stag heap top: shows the processes of the heaps, with rates, at an interval.
 *
 * On a terminal the screen is updated in place; otherwise each update prints a line for each process, for awk and grep.
 */
#include "heap.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "stag.h"

struct sample {
	struct heap_view *views;
	size_t hidden; /* heaps that are left out */
	size_t n;
	uint64_t ns;
};

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = number;
}

/* ---- samples -------------------------------------------------------------------- */

static int sample_heap(struct sample *s, const char *name)
{
	int rc;

	s->views = calloc(1, sizeof(*s->views));
	if (!s->views)
		return -ENOMEM;
	rc = heap_view_take(s->views, name, 0);
	s->n = 1;
	return rc;
}

static int sample_heaps(struct sample *s, const char *name)
{
	s->ns = clock_ns();
	if (name)
		return sample_heap(s, name);
	s->views = heap_view_all(&s->n, &s->hidden);
	return s->views ? 0 : -ENOMEM;
}

static void free_sample(struct sample *s)
{
	for (size_t i = 0; i < s->n; i++)
		heap_view_clear(&s->views[i]);
	free(s->views);
	*s = (struct sample){0};
}

static bool is_same(const struct stag_heap_process *a, const struct stag_heap_process *b)
{
	return a->number == b->number && a->pid == b->pid && a->start_time == b->start_time &&
	       a->blocks_taken >= b->blocks_taken;
}

static const struct heap_user *find_before(const struct sample *s, const char *name,
					   const struct stag_heap_process *p)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct heap_view *view = &s->views[i];

		if (strcmp(view->name, name) != 0)
			continue;
		for (unsigned int k = 0; k < view->num_users; k++)
			if (is_same(p, &view->users[k].process))
				return &view->users[k];
	}
	return NULL;
}

/* Sets the rates. A process that was not in the sample before has done everything since then. */
static void set_rates(struct sample *now, const struct sample *before)
{
	static const struct heap_user none;
	double seconds = (double)(now->ns - before->ns) / 1e9;

	if (!before->views)
		return;
	for (size_t i = 0; i < now->n; i++)
		for (unsigned int k = 0; k < now->views[i].num_users; k++) {
			struct heap_user *u = &now->views[i].users[k];
			const struct stag_heap_process *p = &u->process, *q;
			const struct heap_user *was = find_before(before, now->views[i].name, p);

			q = was ? &was->process : &none.process;
			u->taken_rate = (double)(p->blocks_taken - q->blocks_taken) / seconds;
			u->released_rate =
				(double)(p->blocks_released - q->blocks_released) / seconds;
			u->made_rate =
				(double)(p->registrations_made - q->registrations_made) / seconds;
		}
}

/* ---- output ----------------------------------------------------------------- */

static void print_titles(bool with_time)
{
	if (with_time)
		printf("%-8s ", "TIME");
	printf("%-24s %8s %-16s %7s %9s %12s %9s %8s %8s %6s %8s %8s\n", "HEAP", "PID", "PROGRAM",
	       "BLOCKS", "MEMORY", "ALLOCATIONS", "BYTES", "TAKEN/S", "GIVEN/S", "KEYS", "MADE/S",
	       "STALE");
}

/* Writes a size without spaces: a column is one word. */
static const char *size_column(uint64_t bytes, char *text, size_t size)
{
	char *space;

	heap_size_word(bytes, text, size);
	space = strchr(text, ' ');
	memmove(space, space + 1, strlen(space));
	return text;
}

static void print_user(const char *time, const char *name, const struct heap_user *u)
{
	const struct stag_heap_process *p = &u->process;
	char pid[16], memory[16], bytes[16];

	snprintf(pid, sizeof(pid), "%d", p->pid);
	if (time)
		printf("%-8s ", time);
	printf("%-24s %8s %-16.16s %7llu %9s %12llu %9s", name, p->pid ? pid : "-",
	       !p->pid	     ? "(nobody)"
	       : p->dead     ? "(dead)"
	       : *u->program ? u->program
			     : "?",
	       (unsigned long long)u->blocks, size_column(u->block_bytes, memory, sizeof(memory)),
	       (unsigned long long)u->allocations,
	       size_column(u->allocated_bytes, bytes, sizeof(bytes)));
	printf(" %8.0f %8.0f %6llu %8.0f %8llu\n", u->taken_rate, u->released_rate,
	       (unsigned long long)p->registrations, u->made_rate,
	       (unsigned long long)p->stale_found);
}

static void clock_word(char text[16])
{
	time_t now = time(NULL);
	struct tm tm;

	strftime(text, 16, "%H:%M:%S", localtime_r(&now, &tm));
}

static void print_users(const struct sample *s, const char *time)
{
	for (size_t i = 0; i < s->n; i++) {
		const struct heap_view *view = &s->views[i];

		for (unsigned int k = 0; k < view->num_users; k++)
			print_user(time, view->name, &view->users[k]);
		if (view->nobody.blocks || (!view->num_users && !view->error))
			print_user(time, view->name, &view->nobody);
	}
}

static void print_in_place(const struct sample *s)
{
	char now[16];

	clock_word(now);
	printf("\033[H\033[Jstag heap top, %s; %zu heap%s\n\n", now, s->n, s->n == 1 ? "" : "s");
	print_titles(false);
	print_users(s, NULL);
}

static void print_lines(const struct sample *s, bool first)
{
	char now[16];

	clock_word(now);
	if (first)
		print_titles(true);
	print_users(s, now);
}

static void print_json(const struct sample *s)
{
	json_t *heaps = json_array(), *all;

	for (size_t i = 0; i < s->n; i++)
		json_array_append_new(heaps, heap_json(&s->views[i]));
	all = json_pack("{s:I s:o}", "time", (json_int_t)time(NULL), "heaps", heaps);
	json_dumpf(all, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
	puts("");
	json_decref(all);
}

/* ---- the loop ---------------------------------------------------------------------------- */

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

static void sleep_for(double seconds)
{
	struct timespec ts = {.tv_sec = (time_t)seconds};

	ts.tv_nsec = (long)((seconds - (double)ts.tv_sec) * 1e9);
	nanosleep(&ts, NULL);
}

int heap_top(const char *name, double interval, uint64_t count, bool as_json)
{
	struct sample before = {0}, now;
	bool in_place = isatty(STDOUT_FILENO) && !as_json;
	int rc = 0;

	catch_signals();
	for (uint64_t i = 0; !interrupted && (count == 0 || i < count); i++) {
		if (i)
			sleep_for(interval);
		rc = sample_heaps(&now, name);
		if (rc) {
			complain_for(
				-rc, name, "%s",
				now.views && now.views->error ? now.views->error : strerror(-rc));
			free_sample(&now);
			break;
		}
		set_rates(&now, &before);
		if (as_json)
			print_json(&now);
		else if (in_place)
			print_in_place(&now);
		else
			print_lines(&now, i == 0);
		if (fflush(stdout) != 0)
			break;
		free_sample(&before);
		before = now;
	}
	free_sample(&before);
	return rc ? EXIT_FAILED : EXIT_OK;
}
