// SPDX-License-Identifier: BSD-2-Clause
/*
 * heap_report.c - stag heap: prints heaps as text.
 */
#include "heap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "colour.h"
#include "stag.h"

const char *heap_size_word(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double value = (double)bytes;
	size_t unit = 0;

	while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(*units)) {
		value /= 1024;
		unit++;
	}
	snprintf(text, size, "%.*f %s", unit == 0 || value >= 100 || value == (int)value ? 0 : 1,
		 value, units[unit]);
	return text;
}

/* ---- all heaps ------------------------------------------------------------------ */

void heap_print_list(const struct heap_view *views, size_t n)
{
	char size[16], memory[16], bytes[16];

	if (!n) {
		puts("this user has no heaps");
		return;
	}
	printf("%-24s %-14s %9s %8s %9s %12s %9s %9s %5s\n", "NAME", "ADDRESS", "SIZE", "BLOCKS",
	       "MEMORY", "ALLOCATIONS", "BYTES", "PROCESSES", "DEAD");
	for (size_t i = 0; i < n; i++) {
		const struct stag_heap_stats *s = &views[i].stats;
		bool red = s->dead_processes && colour_wanted();

		if (views[i].error) {
			printf("%-24s %s\n", views[i].name, views[i].error);
			continue;
		}
		printf("%-24s %#-14llx %9s %8llu %9s %12llu %9s %9llu %s%5llu%s\n", views[i].name,
		       (unsigned long long)s->address, heap_size_word(s->size, size, sizeof(size)),
		       (unsigned long long)s->blocks,
		       heap_size_word(s->block_bytes, memory, sizeof(memory)),
		       (unsigned long long)s->allocations,
		       heap_size_word(s->allocated_bytes, bytes, sizeof(bytes)),
		       (unsigned long long)s->processes, red ? colour(COLOUR_RED) : "",
		       (unsigned long long)s->dead_processes, red ? colour(COLOUR_NONE) : "");
	}
}

/* ---- one heap --------------------------------------------------------------------- */

static void print_line(const char *label)
{
	printf("    %-14s", label);
}

static void print_sums(const struct heap_view *view)
{
	const struct stag_heap_stats *s = &view->stats;
	char a[16], b[16];

	printf("heap %s\n", view->name);
	print_line("address");
	printf("%#llx, %s of addresses\n", (unsigned long long)s->address,
	       heap_size_word(s->size, a, sizeof(a)));
	print_line("blocks");
	printf("%llu of %llu, of %s; %s of memory\n", (unsigned long long)s->blocks,
	       (unsigned long long)s->max_blocks, heap_size_word(s->block_size, a, sizeof(a)),
	       heap_size_word(s->block_bytes, b, sizeof(b)));
	print_line("allocations");
	printf("%llu, %s; %llu of them shared\n", (unsigned long long)s->allocations,
	       heap_size_word(s->allocated_bytes, a, sizeof(a)), (unsigned long long)s->shared);
	print_line("processes");
	printf("%llu; %llu have left or died so far\n", (unsigned long long)s->processes,
	       (unsigned long long)s->reaped);
	if (s->dead_processes) {
		print_line("");
		printf("%llu dead: 'stag heap reap %s' frees what they had allocated\n",
		       (unsigned long long)s->dead_processes, view->name);
	}
}

static void print_user(const struct heap_user *user)
{
	const struct stag_heap_process *p = &user->process;
	char pid[16], memory[16], bytes[16];
	bool red = p->dead && colour_wanted();

	snprintf(pid, sizeof(pid), "%d", p->pid);
	printf("%s%8s %-16.16s%s %7llu %9s %12llu %9s %8llu", red ? colour(COLOUR_RED) : "",
	       p->pid ? pid : "nobody", p->dead ? "(dead)" : user->program,
	       red ? colour(COLOUR_NONE) : "", (unsigned long long)user->blocks,
	       heap_size_word(user->block_bytes, memory, sizeof(memory)),
	       (unsigned long long)user->allocations,
	       heap_size_word(user->allocated_bytes, bytes, sizeof(bytes)),
	       (unsigned long long)user->shared);
	if (p->pid)
		printf(" %8llu %8llu %6llu %8llu %8llu %8llu", (unsigned long long)p->blocks_taken,
		       (unsigned long long)p->blocks_released, (unsigned long long)p->registrations,
		       (unsigned long long)p->registrations_made,
		       (unsigned long long)p->registrations_saved,
		       (unsigned long long)p->stale_found);
	puts("");
}

static void print_users(const struct heap_view *view)
{
	if (!view->num_users && !view->nobody.blocks)
		return;
	printf("\n%8s %-16s %7s %9s %12s %9s %8s %8s %8s %6s %8s %8s %8s\n", "PID", "PROGRAM",
	       "BLOCKS", "MEMORY", "ALLOCATIONS", "BYTES", "SHARED", "TAKEN", "RELEASED", "KEYS",
	       "MADE", "SAVED", "STALE");
	for (unsigned int i = 0; i < view->num_users; i++)
		print_user(&view->users[i]);
	if (view->nobody.blocks)
		print_user(&view->nobody);
}

static void print_blocks(const struct heap_view *view)
{
	char size[16], bytes[16], owner[16];

	if (!view->num_blocks)
		return;
	printf("\n%8s %10s %-14s %9s %8s %12s %9s %8s\n", "INDEX", "BLOCKID", "ADDRESS", "SIZE",
	       "OWNER", "ALLOCATIONS", "BYTES", "SHARED");
	for (size_t i = 0; i < view->num_blocks; i++) {
		const struct stag_heap_block *b = &view->blocks[i];

		snprintf(owner, sizeof(owner), "%d", b->owner_pid);
		printf("%8u %10llu %#-14llx %9s %8s %12llu %9s %8llu\n", b->index,
		       (unsigned long long)b->block_id, (unsigned long long)b->address,
		       heap_size_word(b->size, size, sizeof(size)), b->owner < 0 ? "-" : owner,
		       (unsigned long long)b->allocations,
		       heap_size_word(b->allocated_bytes, bytes, sizeof(bytes)),
		       (unsigned long long)b->shared);
	}
}

void heap_print(const struct heap_view *view)
{
	print_sums(view);
	print_users(view);
	print_blocks(view);
	if (view->faults == 0)
		puts("\nsound");
	else if (view->faults > 0)
		printf("\n%d fault%s:\n%s", view->faults, view->faults == 1 ? "" : "s",
		       view->fault_text);
}
