/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test.h - shared by the tests of bytes: cmocka, a random generator with a fixed seed, buffers that
 * end at a guard page.
 */
#ifndef STAG_TEST_WIRE_H
#define STAG_TEST_WIRE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "wire/wire.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static uint64_t dice_state = 0x9e3779b97f4a7c15u;

/* xorshift64 with a fixed seed: the same numbers in every run. */
static inline uint64_t dice(void)
{
	dice_state ^= dice_state << 13;
	dice_state ^= dice_state >> 7;
	dice_state ^= dice_state << 17;
	return dice_state;
}

static inline void fill_with_noise(uint8_t *p, size_t len)
{
	while (len--)
		*p++ = (uint8_t)dice();
}

/* Returns len bytes that end at an inaccessible page: a read past them crashes. */
static inline uint8_t *alloc_before_guard_page(size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t room = (len + page - 1) / page * page + page;
	uint8_t *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	assert_int_equal(mprotect(p + room - page, page, PROT_NONE), 0);
	return p + room - page - len;
}

static inline void free_before_guard_page(uint8_t *p, size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t room = (len + page - 1) / page * page + page;

	munmap(p + len + page - room, room);
}

#define assert_no_fault(f) assert_false((f).set)

#define assert_fault(seen, wanted)                                                                 \
	do {                                                                                       \
		struct wire_fault seen_ = (seen), wanted_ = (wanted);                              \
		assert_true(seen_.set);                                                            \
		assert_int_equal(seen_.layer, wanted_.layer);                                      \
		assert_int_equal(seen_.etype, wanted_.etype);                                      \
		assert_int_equal(seen_.code, wanted_.code);                                        \
	} while (0)

#endif
