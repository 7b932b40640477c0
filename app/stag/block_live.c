// SPDX-License-Identifier: BSD-2-Clause
/*
 * block_live.c - stag block sessions and stags: query the targets of this user, and print the answers.
 */
#include "block_control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "stag.h"
#include "store.h"
#include "tls_words.h"

/* ---- queries ------------------------------------------------------------------------------ */

/* Is this the target with that name or port? which NULL: any target matches. */
static bool matches_target(json_t *target, const char *which)
{
	const char *name = json_string_value(json_object_get(target, "name"));
	char port[8];

	snprintf(port, sizeof(port), "%d",
		 (int)json_integer_value(json_object_get(target, "port")));
	return name && (!which || strcmp(which, name) == 0 || strcmp(which, port) == 0);
}

/* Returns an array of answers, or NULL after it has complained. */
static json_t *query_targets(const struct block_use *u, const char *word)
{
	json_t *all = control_query_all(BLOCK_KIND, word), *list = json_array(), *o;
	size_t i;

	for (i = 0; (o = json_array_get(all, i)); i++)
		if (matches_target(o, u->url))
			json_array_append(list, o);
	json_decref(all);
	if (json_array_size(list) > 0)
		return list;
	json_decref(list);
	if (u->url)
		complain_for(
			ECONNREFUSED, u->url,
			"no target %s of this user runs on this machine; 'stag block sessions' "
			"lists those that do",
			u->url);
	else
		complain_for(ECONNREFUSED, NULL,
			     "no target of this user runs on this machine; 'stag block serve' and "
			     "stagd(8) run one");
	return NULL;
}

/* ---- output -------------------------------------------------------------------------------- */

static const char *text_of(json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "?";
}

static long long number_of(json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static void print_head(json_t *target)
{
	printf("%s, port %lld, process %lld\n", text_of(target, "name"), number_of(target, "port"),
	       number_of(target, "pid"));
}

static void print_counters(const char *who, json_t *c)
{
	char in[32], out[32];

	printf("%-24.24s %10lld %10lld %9s %9s %9lld %9lld %6lld %8lld %6lld %6lld\n", who,
	       number_of(c, "reads"), number_of(c, "writes"),
	       store_size_word((uint64_t)number_of(c, "read_bytes"), in, sizeof(in)),
	       store_size_word((uint64_t)number_of(c, "written_bytes"), out, sizeof(out)),
	       number_of(c, "posts"), number_of(c, "completions"), number_of(c, "registrations"),
	       number_of(c, "stags"), number_of(c, "stags_open"), number_of(c, "errors"));
}

static void print_tls(json_t *tls)
{
	if (json_is_object(tls))
		printf(", %s, %s%s\n", text_of(tls, "version"), text_of(tls, "cipher"),
		       tls_kernel_text(json_string_value(json_object_get(tls, "kernel"))));
	else
		printf(", not encrypted\n");
}

static void print_sessions(json_t *target)
{
	json_t *s;
	size_t i;

	print_head(target);
	json_array_foreach (json_object_get(target, "sessions"), i, s) {
		bool has_user = json_is_string(json_object_get(s, "user"));

		printf("  session %lld: %s%s%s from %s, %s, encoding %s", number_of(s, "id"),
		       text_of(s, "initiator"), has_user ? ", user " : "",
		       has_user ? text_of(s, "user") : "", text_of(s, "address"),
		       text_of(s, "transport"), text_of(s, "encoding"));
		print_tls(json_object_get(s, "tls"));
	}
	printf("%-24s %10s %10s %9s %9s %9s %9s %6s %8s %6s %6s\n", "", "reads", "writes", "read",
	       "written", "posts", "compl.", "reg.", "STags", "open", "errors");
	json_array_foreach (json_object_get(target, "sessions"), i, s) {
		char who[32];

		snprintf(who, sizeof(who), "session %lld", number_of(s, "id"));
		print_counters(who, json_object_get(s, "counters"));
	}
	print_counters("all, since the start", json_object_get(target, "counters"));
}

static const char *command_word(int opcode, char *text, size_t size)
{
	static const struct {
		int opcode;
		const char *word;
	} words[] = {{0x12, "INQUIRY"},	   {0x28, "READ(10)"},	     {0x2a, "WRITE(10)"},
		     {0x42, "UNMAP"},	   {0x88, "READ(16)"},	     {0x89, "COMPARE AND WRITE"},
		     {0x8a, "WRITE(16)"},  {0x93, "WRITE SAME(16)"}, {0x9e, "READ CAPACITY"},
		     {0xa0, "REPORT LUNS"}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (words[i].opcode == opcode)
			return words[i].word;
	snprintf(text, size, "0x%02x", (unsigned int)opcode);
	return text;
}

static void print_stag(json_t *s, uint64_t now)
{
	long long made = number_of(s, "made"), ended = number_of(s, "ended");
	char text[8], life[32] = "-";

	if (ended)
		snprintf(life, sizeof(life), "%.1f", (double)(ended - made) / 1e3);
	printf("0x%08llx  %-9s %10.3f %10s %7lld  0x%08llx %4lld  %-17s %9lld  %s %s\n",
	       number_of(s, "stag"), text_of(s, "end"), (double)((long long)now - made) / 1e9, life,
	       number_of(s, "session"), number_of(s, "itt"), number_of(s, "lun"),
	       command_word((int)number_of(s, "opcode"), text, sizeof(text)),
	       number_of(s, "length"), text_of(s, "initiator"), text_of(s, "address"));
}

static void print_stags(json_t *target)
{
	uint64_t now = clock_ns();
	json_t *s;
	size_t i;

	print_head(target);
	printf("%-10s  %-9s %10s %10s %7s  %-10s %4s  %-17s %9s  %s\n", "STag", "end", "s ago",
	       "life us", "session", "task", "LUN", "command", "bytes", "lent by");
	json_array_foreach (json_object_get(target, "stags"), i, s)
		print_stag(s, now);
}

static int print_answers(const struct block_use *u, const char *word, void (*print)(json_t *target))
{
	json_t *list = query_targets(u, word), *target;
	size_t i;

	if (!list)
		return EXIT_FAILED;
	if (u->json) {
		store_dump(list);
		return EXIT_OK;
	}
	json_array_foreach (list, i, target)
		print(target);
	json_decref(list);
	return EXIT_OK;
}

int block_sessions(const struct block_use *u)
{
	return print_answers(u, "sessions", print_sessions);
}

int block_stags(const struct block_use *u)
{
	return print_answers(u, "stags", print_stags);
}
