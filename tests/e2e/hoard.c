// SPDX-License-Identifier: BSD-2-Clause
/*
 * hoard.c - preloaded: free() does nothing.
 *
 * For a program that frees what a thread of its own still uses, and so works or
 * crashes as the scheduler likes. Here it works.
 */
#include <stdlib.h>

__attribute__((visibility("default"))) void free(void *p)
{
}
