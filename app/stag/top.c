// SPDX-License-Identifier: BSD-2-Clause
/*
 * top.c - stag top: shows processes with the adapter, their connections and the daemons, at an interval.
 *
 * On a terminal the screen is updated in place. Otherwise each update but the first is printed as a block: it has rates,
 * from the difference to the one before.
 */
#include "top.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "live.h"
#include "stag.h"

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

/* ---- updates ---- */

static bool found_any(const struct top_look *l)
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

static bool print_update(const struct top_look *now, const struct top_look *before,
			 const struct top_options *o)
{
	struct top_rows rows;
	bool good = top_rows_make(&rows, now, before, o);

	if (!good)
		complain("out of memory");
	else if (o->json)
		top_print_json(&rows, o, now);
	else
		top_print(&rows, o);
	top_rows_drop(&rows);
	return good && fflush(stdout) == 0;
}

/* Prints updates as blocks. With --pid it ends when the process does. */
static int show_blocks(struct top_options *o, struct top_look *first)
{
	struct top_look before = *first, now;
	bool good = true;

	catch_signals();
	for (uint64_t i = 0; good && (o->count == 0 || i < o->count); i++) {
		sleep_until(next_time(&before, o));
		if (interrupted)
			break;
		top_look(&now, o);
		if (o->pid && !found_any(&now)) {
			top_forget(&now);
			break;
		}
		good = print_update(&now, &before, o);
		top_forget(&before);
		before = now;
	}
	top_forget(&before);
	return good ? EXIT_OK : EXIT_FAILED;
}

static enum top_wish draw_until_due(const struct top_look *now, const struct top_look *before,
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

static int show_screen(struct top_options *o, struct top_look *first)
{
	struct top_look before = {.ns = 0}, now = *first;
	uint64_t looks = 1;

	while (draw_until_due(&now, &before, o) != TOP_END && (o->count == 0 || looks < o->count)) {
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

static int run_top(struct top_options *o)
{
	struct top_look first;

	top_look(&first, o);
	if (o->pid && !found_any(&first)) {
		complain_for(
			ESRCH, NULL,
			"process %u does not use the adapter, or is not yours; 'stag top' shows "
			"those that do",
			o->pid);
		top_forget(&first);
		return EXIT_FAILED;
	}
	return !o->json && top_screen_open() ? show_screen(o, &first) : show_blocks(o, &first);
}

/* ---- options ---- */

static bool parse_user(void *to, const struct cli_option *option, char *text)
{
	struct top_options *o = to;
	const struct passwd *p = getpwnam(text);
	char *end;

	o->user = p ? p->pw_uid : (uid_t)strtoul(text, &end, 10);
	o->of_user = true;
	if (!p && (end == text || *end)) {
		complain_for(ENOENT, text, "--user: there is no user '%s'", text);
		return false;
	}
	if (geteuid() == 0 || o->user == geteuid())
		return true;
	complain_for(EPERM, text,
		     "only root may see processes of '%s'; try: sudo stag top --user %s", text,
		     text);
	return false;
}

static bool parse_order(void *to, const struct cli_option *option, char *text)
{
	struct top_options *o = to;

	for (o->order = 0; o->order < TOP_ORDERS; o->order++)
		if (strcmp(text, top_order_word(o->order)) == 0)
			return true;
	complain("--sort must be traffic, requests, latency or pid, not '%s'", text);
	return false;
}

/* Offers the processes that use the adapter. */
static void list_processes(struct cli_words *w, char *const *args)
{
	json_t *all = live_ask_all("counters"), *process;
	char pid[16];
	size_t i;

	json_array_foreach (all, i, process) {
		snprintf(pid, sizeof(pid), "%d",
			 (int)json_integer_value(json_object_get(process, "pid")));
		cli_offer(w, pid, json_string_value(json_object_get(process, "program")));
	}
	json_decref(all);
}

static const struct cli_option top_table[] = {
	{"interval", .value = "S", CLI_SECONDS_AT(struct top_options, interval, 0.01, 86400),
	 .help = "seconds between two updates (1)"},
	{"count", .value = "N", CLI_NUMBER_AT(struct top_options, count, 1, UINT64_MAX),
	 .help = "end after N updates"},
	{"pid", .value = "PID", CLI_NUMBER_AT(struct top_options, pid, 1, INT32_MAX),
	 .list = list_processes, .help = "only this process"},
	{"user", .value = "USER", .type = CLI_USER, .parse = parse_user,
	 .help = "only processes of this user"},
	{"connections", CLI_FLAG_AT(struct top_options, connections),
	 .help = "the connections of all processes in one list"},
	{"sort", .value = "ORDER", .type = CLI_TEXT, .parse = parse_order,
	 .words = "traffic requests latency pid",
	 .help = "traffic, requests, latency or pid (traffic)"},
	{"json", CLI_FLAG_AT(struct top_options, json), .help = "one line of JSON for each update"},
	{0},
};

static const struct cli_verb top_verb = {.name = ""};

static const struct cli_noun top_noun = {
	.call = "stag top",
	.name = "top",
	.summary = "show what the adapter does in every process: connections, rates, latencies",
	.about =
		"Shows the processes of this machine that use the adapter, those with most traffic "
		"first, with their connections, and the daemons (stagd(8)) with their pools, "
		"stores and targets: rates, and the times within which half (P50) and 99 of 100 "
		"(P99) of all requests were done. Root sees the processes of all users. On a "
		"terminal the screen is updated in place; otherwise each update is printed below "
		"the last.",
	.notes =
		"Keys: q quits; arrows, j, k, page up and page down move; p lists by process, c by "
		"connection; s changes the order; space updates at once.",
	.examples =
		"stag top\n"
		"stag top --json --count 1 | jq '.processes[] | {program, tx_bytes_per_s, p99_us}'",
	.verbs = &top_verb,
	.num_verbs = 1,
	.options = top_table,
};

static int start_top(const struct command *self, int argc, char **argv)
{
	struct top_options o = {.interval = 1};
	struct cli_call call;
	int rc;

	return cli_parse(&top_noun, argc, argv, &o, &call, &rc) ? run_top(&o) : rc;
}

const struct command top_command = {.noun = &top_noun, .run = start_top};
