// SPDX-License-Identifier: BSD-2-Clause
/*
 * heap_user NAME - a process with a heap, for test_heap. It does what it reads, a line each, and says "ok".
 *
 *     alloc SIZE    share    free    trim    churn N    leave
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stag/heap.h"

#define MOST 100

static void *have[MOST];
static int n;

static void churn(struct stag_heap *heap, uint64_t times)
{
	while (times--) {
		stag_heap_free(heap, stag_heap_alloc(heap, 8 << 20));
		stag_heap_trim(heap);
	}
}

static int obey(struct stag_heap *heap, const char *what, uint64_t number)
{
	if (!strcmp(what, "alloc") && n < MOST) {
		have[n] = stag_heap_alloc(heap, number);
		return have[n++] ? 0 : 1;
	}
	if (!strcmp(what, "share"))
		return stag_heap_share(heap, have[n - 1]);
	if (!strcmp(what, "free"))
		stag_heap_free(heap, have[--n]);
	else if (!strcmp(what, "trim"))
		stag_heap_trim(heap);
	else if (!strcmp(what, "churn"))
		churn(heap, number);
	else
		return 1;
	return 0;
}

int main(int argc, char **argv)
{
	struct stag_heap_attr attr = {.max_blocks = 64, .retain_ms = -1};
	struct stag_heap *heap = argc == 2 ? stag_heap_create(argv[1], &attr) : NULL;
	char line[64], what[16];
	unsigned long long number;

	if (!heap) {
		fprintf(stderr, "heap_user: %s\n", stag_heap_error());
		return 1;
	}
	puts("ok");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		number = 0;
		if (sscanf(line, "%15s %llu", what, &number) < 1)
			continue;
		if (!strcmp(what, "leave"))
			break;
		puts(obey(heap, what, number) ? "failed" : "ok");
		fflush(stdout);
	}
	return stag_heap_detach(heap, false);
}
