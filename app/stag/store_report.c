// SPDX-License-Identifier: BSD-2-Clause
/*
 * store_report.c - stag store: what there is, as text and as JSON; and how far something is.
 */
#include "store.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "control.h"

/* ---- JSON ------------------------------------------------------------------------- */

void store_dump(json_t *o)
{
	json_dumpf(o, stdout, JSON_INDENT(2));
	puts("");
	json_decref(o);
}

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

json_t *store_partition_json(const struct stag_store_partition *p)
{
	json_t *rights = json_array();
	char text[128];

	for (unsigned int i = 0; i < p->num_rights; i++) {
		store_right_words(&p->rights[i], text, sizeof(text));
		json_array_append_new(rights, json_string(text));
	}
	store_order_words(p->relax, text, sizeof(text));
	return json_pack("{s:s s:o s:o s:o s:o s:s s:s s:o s:o}", "name", p->name, "id",
			 number(p->id), "offset", number(p->offset), "size", number(p->size),
			 "alignment", number(p->alignment), "order", text, "level",
			 store_level_word(p->level), "cache_ms", number(p->cache_ms), "rights",
			 rights);
}

json_t *store_json(struct stag_store *store, const char *path)
{
	struct stag_store_info info;
	struct stag_store_partition p;
	json_t *partitions, *counters;
	char uuid[37];

	if (stag_store_query(store, &info, sizeof(info)) != 0)
		return NULL;
	partitions = json_array();
	for (uint32_t i = 0; stag_store_next(store, &i, &p);)
		json_array_append_new(partitions, store_partition_json(&p));
	store_uuid_word(info.uuid, uuid);
	counters = info.served_by ? control_ask(STORE_KIND, (int)info.served_by, "counters") : NULL;
	return json_pack("{s:s s:s s:s s:o s:o s:o s:o s:o s:i s:i s:i s:o s:o s:o* s:o}", "path",
			 path, "label", info.label, "uuid", uuid, "size", number(info.size),
			 "present", number(info.present), "used", number(info.used), "largest_gap",
			 number(info.largest_gap), "generation", number(info.generation), "block",
			 (int)info.block, "version", (int)info.version, "copies", (int)info.copies,
			 "owner", number(info.owner), "served_by", number(info.served_by),
			 "counters", counters, "partitions", partitions);
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
	snprintf(text, sizeof(text), "%s OF IT ARE MISSING: see 'stag store check'",
		 store_size_word(info->size - info->present, size, sizeof(size)));
	print_line("truncated", text);
}

static long long count_of(json_t *counters, const char *key)
{
	return json_integer_value(json_object_get(counters, key));
}

/* Who serves it counts; of another user's server nothing is known. */
static void print_counters(uint32_t pid)
{
	json_t *c = control_ask(STORE_KIND, (int)pid, "counters");
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
		print_counters(info->served_by);
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
		   p->num_rights == 0 ? "the owner of the store, and nobody else"
				      : "otherwise the owner of the store, and nobody else");
}

/* ---- progress -------------------------------------------------------------------------- */

#define BAR 30

static struct {
	const char *name;
	uint64_t since;
	bool shown;
} progress;

static void show(void *arg, uint64_t done, uint64_t total)
{
	uint64_t spent = clock_ns() - progress.since;
	int full = (int)((double)done / (double)total * BAR);
	char bar[BAR + 1], a[32], b[32];

	if (spent < NS_PER_S || done == 0)
		return;
	memset(bar, '.', BAR);
	memset(bar, '#', (size_t)full);
	bar[BAR] = '\0';
	fprintf(stderr, "\r%s: zeroes [%s] %s of %s, %.0f s left \033[K", progress.name, bar,
		store_size_word(done, a, sizeof(a)), store_size_word(total, b, sizeof(b)),
		(double)spent / 1e9 * (double)(total - done) / (double)done);
	progress.shown = true;
}

void store_show_progress(struct stag_store *store, const char *name)
{
	progress.name = name;
	progress.since = clock_ns();
	progress.shown = false;
	if (isatty(STDERR_FILENO))
		stag_store_on_progress(store, show, NULL);
}

void store_end_progress(void)
{
	if (progress.shown)
		fputs("\r\033[K", stderr);
}
