// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_report.c - stag store: prints stores and partitions as text and as JSON; shows progress.
 */
#include "store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "progress.h"

void store_dump(json_t *o)
{
	json_dumpf(o, stdout, JSON_INDENT(2));
	puts("");
	json_decref(o);
}

/* ---- text -------------------------------------------------------------------------- */

static void print_line(const char *label, const char *value)
{
	printf("    %-12s %s\n", label, value);
}

static void print_health(const struct stag_store_info *info)
{
	char text[128], size[32];

	snprintf(text, sizeof(text), "generation %" PRIu64 ", %s", info->generation,
		 info->copies == 2 ? "both copies good" : "ONE GOOD COPY: see 'stag store check'");
	print_line("table", text);
	if (info->present >= info->size)
		return;
	snprintf(text, sizeof(text), "%s ARE MISSING AT THE END: see 'stag store check'",
		 store_size_word(info->size - info->present, size, sizeof(size)));
	print_line("truncated", text);
}

static long long count_of(json_t *counters, const char *key)
{
	return json_integer_value(json_object_get(counters, key));
}

/* Prints the counters of the process that serves the store; those of another user's process are not available. */
static void print_counters(const struct stag_store_info *info)
{
	json_t *c = store_ask_counters(info);
	long long hits = count_of(c, "cache_hits"), misses = count_of(c, "cache_misses");
	char text[128], a[32], b[32];

	if (!c)
		return;
	snprintf(text, sizeof(text), "%lld (%s), %lld writes (%s)", count_of(c, "reads"),
		 store_size_word((uint64_t)count_of(c, "read_bytes"), a, sizeof(a)),
		 count_of(c, "writes"),
		 store_size_word((uint64_t)count_of(c, "written_bytes"), b, sizeof(b)));
	print_line("reads", text);
	snprintf(text, sizeof(text), "%lld hits, %lld misses, %s kept", hits, misses,
		 store_size_word((uint64_t)count_of(c, "cache_bytes"), a, sizeof(a)));
	print_line("cache", text);
	snprintf(text, sizeof(text), "%lld connected, %lld refused, %lld evicted",
		 count_of(c, "connections"), count_of(c, "refused"), count_of(c, "evicted"));
	print_line("clients", text);
	json_decref(c);
}

void store_print(const struct stag_store_info *info, const char *path)
{
	char text[160], size[32], used[32], gap[32];

	printf("%s%s%s\n", path, info->label[0] ? "  " : "", info->label);
	store_uuid_word(info->uuid, text);
	print_line("uuid", text);
	snprintf(text, sizeof(text), "%s, %s used, largest gap %s",
		 store_size_word(info->size, size, sizeof(size)),
		 store_size_word(info->used, used, sizeof(used)),
		 store_size_word(info->largest_gap, gap, sizeof(gap)));
	print_line("size", text);
	print_line("block", store_size_word(info->block, size, sizeof(size)));
	store_user_word(info->owner, text, sizeof(text));
	print_line("owner", text);
	snprintf(text, sizeof(text), "%u", info->num_partitions);
	print_line("partitions", text);
	print_health(info);
	snprintf(text, sizeof(text), "process %u", info->served_by);
	print_line("served by", info->served_by != 0 ? text : "nobody");
	if (info->served_by != 0)
		print_counters(info);
}

static void print_row(const struct stag_store_partition *p)
{
	char size[32], order[80], right[128];

	store_order_words(p->relax, order, sizeof(order));
	printf("%-20s %14" PRIu64 " %10s  %-8s %-8s %7u ", p->name, p->offset,
	       store_size_word(p->size, size, sizeof(size)), order, store_level_word(p->level),
	       p->cache_ms);
	for (unsigned int i = 0; i < p->num_rights; i++) {
		store_right_words(&p->rights[i], right, sizeof(right));
		printf(" %s", right);
	}
	puts(p->num_rights == 0 ? " owner" : "");
}

void store_print_list(struct stag_store *store)
{
	struct stag_store_partition p;

	printf("%-20s %14s %10s  %-8s %-8s %7s  %s\n", "NAME", "OFFSET", "SIZE", "ORDER", "LEVEL",
	       "CACHE", "RIGHTS");
	for (uint32_t i = 0; stag_store_next(store, &i, &p);)
		print_row(&p);
}

void store_print_partition(const struct stag_store_partition *p)
{
	char text[160], size[32];

	puts(p->name);
	snprintf(text, sizeof(text), "%" PRIu64, p->id);
	print_line("id", text);
	snprintf(text, sizeof(text), "%s (%" PRIu64 " bytes) at %" PRIu64 ", aligned to %" PRIu64,
		 store_size_word(p->size, size, sizeof(size)), p->size, p->offset, p->alignment);
	print_line("size", text);
	store_order_words(p->relax, text, sizeof(text));
	print_line("order", text);
	print_line("level", store_level_word(p->level));
	snprintf(text, sizeof(text), "%u ms", p->cache_ms);
	print_line("cache", p->cache_ms != 0 ? text : "none");
	for (unsigned int i = 0; i < p->num_rights; i++) {
		store_right_words(&p->rights[i], text, sizeof(text));
		print_line(i == 0 ? "rights" : "", text);
	}
	print_line(p->num_rights == 0 ? "rights" : "",
		   p->num_rights == 0 ? "only the owner of the store"
				      : "otherwise only the owner of the store");
}

/* ---- progress -------------------------------------------------------------------------- */

static struct progress progress;

static void show_progress(void *arg, uint64_t done, uint64_t total)
{
	const char *note = arg;

	progress.total = total;
	progress_show(&progress, done, note);
}

void store_show_progress(struct stag_store *store, const char *name, const char *note)
{
	progress_begin(&progress, name, PROGRESS_BYTES, 0);
	if (progress.terminal)
		stag_store_on_progress(store, show_progress, (void *)note);
}

void store_end_progress(void)
{
	progress_end(&progress);
}
