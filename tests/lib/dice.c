// SPDX-License-Identifier: BSD-2-Clause
/*
 * dice.c - reproducible random numbers: see dice.h.
 */
#include "dice.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static uint64_t state;

void dice_start(void)
{
	const char *seed = getenv("STAG_SEED");

	if (seed)
		state = strtoull(seed, NULL, 0);
	else if (getrandom(&state, sizeof(state), 0) != sizeof(state))
		abort();
	printf("STAG_SEED=%#llx\n", (unsigned long long)state);
	fflush(stdout);
}

void dice_start_with(uint64_t seed)
{
	state = seed;
}

/* splitmix64 */
static uint64_t next_random(void)
{
	uint64_t x = state += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

uint64_t dice(uint64_t sides)
{
	return next_random() % sides;
}

uint64_t dice_size(uint64_t most)
{
	unsigned int bits = 64 - (unsigned int)__builtin_clzll(most);
	uint64_t n = 1 + dice(1ull << dice(bits + 1) % 64);

	return n < most ? n : most;
}

bool one_in(uint64_t n)
{
	return dice(n) == 0;
}

void dice_fill(void *at, size_t len)
{
	uint8_t *p = at;

	for (size_t i = 0; i < len; i += sizeof(uint64_t)) {
		uint64_t x = next_random();

		memcpy(p + i, &x, len - i < sizeof(x) ? len - i : sizeof(x));
	}
}

bool is_slow_build(void)
{
	return SANITIZED;
}

unsigned long lessened(unsigned long count)
{
	const char *divide = getenv("STAG_TEST_DIVIDE");
	unsigned long by = divide ? strtoul(divide, NULL, 0) : SANITIZED ? 25 : 1;

	return count / by ? count / by : 1;
}

unsigned long scaled(unsigned long count)
{
	return lessened(getenv("STAG_LONG") ? 10 * count : count);
}
