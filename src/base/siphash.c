// SPDX-License-Identifier: BSD-2-Clause
/*
 * siphash.c - see siphash.h.
 */
#include "base/siphash.h"

#include <endian.h>
#include <string.h>

struct sip {
	uint64_t v0, v1, v2, v3;
};

static inline uint64_t rotate(uint64_t x, unsigned int bits)
{
	return x << bits | x >> (64 - bits);
}

static inline void mix_round(struct sip *s)
{
	s->v0 += s->v1;
	s->v1 = rotate(s->v1, 13) ^ s->v0;
	s->v0 = rotate(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = rotate(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = rotate(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = rotate(s->v1, 17) ^ s->v2;
	s->v2 = rotate(s->v2, 32);
}

static inline void add_word(struct sip *s, uint64_t word)
{
	s->v3 ^= word;
	mix_round(s);
	mix_round(s);
	s->v0 ^= word;
}

/* Returns the last bytes, fewer than a word, with the length in the uppermost byte. */
static uint64_t last_word(const uint8_t *rest, size_t length)
{
	uint64_t word = 0;

	memcpy(&word, rest, length % sizeof(word));
	return le64toh(word) | (uint64_t)length << 56;
}

uint64_t siphash(const uint64_t key[2], const void *bytes, size_t length)
{
	struct sip s = {.v0 = key[0] ^ 0x736f6d6570736575u,
			.v1 = key[1] ^ 0x646f72616e646f6du,
			.v2 = key[0] ^ 0x6c7967656e657261u,
			.v3 = key[1] ^ 0x7465646279746573u};
	const uint8_t *at = bytes;
	uint64_t word;

	for (size_t left = length; left >= sizeof(word); left -= sizeof(word), at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		add_word(&s, le64toh(word));
	}
	add_word(&s, last_word(at, length));
	s.v2 ^= 0xff;
	for (unsigned int i = 0; i < 4; i++)
		mix_round(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
