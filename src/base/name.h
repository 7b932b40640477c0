/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * name.h - names of pools, nodes, users, stores and partitions: 1 to 63 letters, digits, dots, dashes and underscores.
 */
#ifndef STAG_BASE_NAME_H
#define STAG_BASE_NAME_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define NAME_LEN 64 /* room for a name with its terminating zero */

static inline bool name_is_valid(const char *name)
{
	static const char allowed[] =
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
	size_t len = strnlen(name, NAME_LEN);

	return len > 0 && len < NAME_LEN && strspn(name, allowed) == len;
}

#endif
