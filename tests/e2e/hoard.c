// SPDX-License-Identifier: BSD-2-Clause
/*
 * hoard.c - preloaded: free() does nothing.
 *
 * For a program that frees memory that one of its threads still uses, and so works
 * or crashes depending on the scheduler. With this library it works.
 */
#include <stdlib.h>

__attribute__((visibility("default"))) void free(void *p)
{
}
