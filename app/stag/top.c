// SPDX-License-Identifier: BSD-2-Clause
/*
 * top.c - stag top: processes with the adapter, their connections and the daemons, again and again.
 *
 * On a terminal in place; else a block for each look, when there has been one before it: so rates are always there.
 */
#include "top.h"

#include <getopt.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "rhythm.h"
#include "stag.h"
#include "verb.h"

static const char help_text[] =
	"usage: stag top [--interval S] [--count N] [--pid PID] [--user USER] [--json]\n\n"
	"The processes of this machine that use the adapter, those with most traffic first, their\n"
	"connections below, and the daemons (stagd(8)) with their pools, stores and targets:\n"
	"rates, and the times that half (P50) and 99 of 100 (P99) of all requests were done in.\n"
	"Root sees those of all users. In place on a terminal; else a block for each look.\n\n"
	"  --interval S       seconds between two looks (1)\n"
	"  --count N          look so many times, then end\n"
	"  --pid PID          this process alone\n"
	"  --user USER        processes of this user alone\n"
	"  --connections      connections of all processes in one list\n"
	"  --sort ORDER       traffic, requests, latency or pid (traffic)\n"
	"  --json             for programs: a line for each look\n"
	"  -h, --help\n\n"
	"Keys: q quit; arrows, j, k, page up and down move; p by process, c by connection; s "
	"another\n"
	"order; space looks at once.\n\n"
	"  stag top\n"
	"  stag top --json --count 1 | jq '.processes[] | {program, tx_bytes_per_s, p99_us}'\n";

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
	interrupted = number;
}

static void catch_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

/* ---- looks ---- */

static bool is_there(const struct top_look *l)
{
	return json_array_size(l->processes) || json_array_size(l->daemons);
}

static void sleep_until(uint64_t ns)
{
	const struct timespec at = {.tv_sec = (time_t)(ns / NS_PER_S),
				    .tv_nsec = (long)(ns % NS_PER_S)};

	while (!interrupted && clock_ns() < ns)
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

static uint64_t next_time(const struct top_look *l, const struct top_options *o)
{
	return l->ns + (uint64_t)(o->interval * 1e9);
}

static bool report(const struct top_look *now, const struct top_look *before,
		   const struct top_options *o)
{
	struct top_rows rows;
	bool good = top_rows_make(&rows, now, before, o);

	if (!good)
		complain("no memory");
	else if (o->json)
		top_print_json(&rows, o, now);
	else
		top_print(&rows, o);
	top_rows_drop(&rows);
	return good && fflush(stdout) == 0;
}

/* A process that has ended is no more to look at. */
static int in_blocks(struct top_options *o, struct top_look *first)
{
	struct top_look before = *first, now;
	bool good = true;

	catch_signals();
	for (uint64_t i = 0; good && (o->count == 0 || i < o->count); i++) {
		sleep_until(next_time(&before, o));
		if (interrupted)
			break;
		top_look(&now, o);
		if (o->pid && !is_there(&now)) {
			top_forget(&now);
			break;
		}
		good = report(&now, &before, o);
		top_forget(&before);
		before = now;
	}
	top_forget(&before);
	return good ? EXIT_OK : EXIT_FAILED;
}

static enum top_wish draw(const struct top_look *now, const struct top_look *before,
			  struct top_options *o)
{
	enum top_wish wish = TOP_DRAW;

	while (wish == TOP_DRAW) {
		struct top_rows rows;

		if (!top_rows_make(&rows, now, before, o))
			wish = TOP_END;
		else
			top_screen_draw(&rows, o);
		top_rows_drop(&rows);
		if (wish != TOP_END)
			wish = top_screen_wait(next_time(now, o), o);
	}
	return wish;
}

static int in_place(struct top_options *o, struct top_look *first)
{
	struct top_look before = {.ns = 0}, now = *first;
	uint64_t looks = 1;

	while (draw(&now, &before, o) != TOP_END && (o->count == 0 || looks < o->count)) {
		top_forget(&before);
		before = now;
		top_look(&now, o);
		looks++;
	}
	top_screen_close();
	top_forget(&before);
	top_forget(&now);
	return EXIT_OK;
}

/* ---- options ---- */

static bool set_user(struct top_options *o, const char *text)
{
	const struct passwd *p = getpwnam(text);
	char *end;

	o->user = p ? p->pw_uid : (uid_t)strtoul(text, &end, 10);
	o->of_user = true;
	if (!p && (end == text || *end)) {
		complain("there is no user '%s'", text);
		return false;
	}
	if (geteuid() == 0 || o->user == geteuid())
		return true;
	complain("only root may look at processes of '%s'; try: sudo stag top --user %s", text,
		 text);
	return false;
}

static bool set_order(struct top_options *o, const char *text)
{
	for (o->order = 0; o->order < TOP_ORDERS; o->order++)
		if (strcmp(text, top_order_word(o->order)) == 0)
			return true;
	complain("--sort wants traffic, requests, latency or pid, not '%s'", text);
	return false;
}

static bool set_pid(struct top_options *o, const char *text)
{
	char *end;
	unsigned long pid = strtoul(text, &end, 10);

	o->pid = (int)pid;
	if (end != text && !*end && *text != '-' && pid && pid <= INT32_MAX)
		return true;
	complain("--pid wants a number from 1 on, not '%s'", text);
	return false;
}

static bool take_option(struct top_options *o, int name, const char *text)
{
	switch (name) {
	case 'i':
		return rhythm_interval(text, &o->interval);
	case 'n':
		return rhythm_count(text, &o->count);
	case 'p':
		return set_pid(o, text);
	case 'u':
		return set_user(o, text);
	case 's':
		return set_order(o, text);
	case 'c':
		o->connections = true;
		return true;
	case 'j':
		o->json = true;
		return true;
	default:
		return false;
	}
}

static int top(struct top_options *o)
{
	struct top_look first;

	top_look(&first, o);
	if (o->pid && !is_there(&first)) {
		complain("process %d does not use the adapter, or is not yours; 'stag top' shows "
			 "those "
			 "that do",
			 o->pid);
		top_forget(&first);
		return EXIT_FAILED;
	}
	return !o->json && top_screen_open() ? in_place(o, &first) : in_blocks(o, &first);
}

static int run(const struct command *self, int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"interval", required_argument, NULL, 'i'},
						{"count", required_argument, NULL, 'n'},
						{"pid", required_argument, NULL, 'p'},
						{"user", required_argument, NULL, 'u'},
						{"connections", no_argument, NULL, 'c'},
						{"sort", required_argument, NULL, 's'},
						{"json", no_argument, NULL, 'j'},
						{0}};
	struct top_options o = {.interval = 1};
	int c;

	while ((c = verb_option("stag top", argc, argv, "h", options)) != -1) {
		if (c == 'h') {
			fputs(self->help, stdout);
			return EXIT_OK;
		}
		if (!take_option(&o, c, optarg))
			return usage_error(self);
	}
	if (optind < argc) {
		complain("what is '%s' for? stag top --pid looks at one process", argv[optind]);
		return usage_error(self);
	}
	return top(&o);
}

const struct command top_command = {
	.name = "top",
	.summary = "what the adapter does in every process: connections, rates, latencies",
	.help = help_text,
	.run = run,
};
