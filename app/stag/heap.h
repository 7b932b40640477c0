/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap.h - stag heap: what its files share.
 *
 * heap_view.h reads a heap and adds up, heap_report.c prints that, heap_top.c does both at an interval.
 */
#ifndef STAG_APP_HEAP_H
#define STAG_APP_HEAP_H

#include "heap_view.h"

/* heap_report.c */
void heap_print_list(const struct heap_view *views, size_t n);
void heap_print(const struct heap_view *view);
const char *heap_size_word(uint64_t bytes, char *text, size_t size); /* "1.5 MiB" */

/* heap_top.c: shows one heap, or all (NULL), count times (0: until interrupted). Returns an exit code. */
int heap_top(const char *name, double interval, uint64_t count, bool as_json);

#endif
