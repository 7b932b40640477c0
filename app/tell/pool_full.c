// SPDX-License-Identifier: BSD-2-Clause
/*
 * pool_full.c - why a value found no room in a pool, in words.
 */
#include "pool_words.h"

#include <stdio.h>

#include "store_words.h"

bool pool_full_words(uint64_t length, uint64_t size, uint64_t room, char *text, size_t text_size)
{
	char value[32], memory[32], left[32];

	store_size_word(length, value, sizeof(value));
	store_size_word(size, memory, sizeof(memory));
	store_size_word(room, left, sizeof(left));
	if (!size)
		snprintf(text, text_size, "the pool is full");
	else if (length > size)
		snprintf(text, text_size, "the value (%s) is larger than the pool (%s)", value,
			 memory);
	else if (length <= room)
		snprintf(text, text_size,
			 "no place in the pool is large enough for %s, although %s of %s are free",
			 value, left, memory);
	else
		snprintf(text, text_size, "there is no room for %s: %s of the pool's %s are free",
			 value, left, memory);
	return !size || (length <= size && length > room);
}
