/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz.h - shared by the fuzz targets: reading the fuzzer's bytes from the front,
 * copies of exact size for a sanitizer, and checks that are in every build.
 */
#ifndef STAG_FUZZ_H
#define STAG_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An assert that is in release builds, too: the target exists for it. */
#define CHECK(claim)                                                                               \
	do {                                                                                       \
		if (!(claim)) {                                                                    \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #claim);        \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct input {
	const uint8_t *p;
	size_t len;
};

/* Returns the next bytes of the input as a number; zeroes at its end. */
static inline uint64_t take(struct input *in, size_t bytes)
{
	uint64_t v = 0;

	while (bytes-- && in->len) {
		v = v << 8 | *in->p++;
		in->len--;
	}
	return v;
}

/* Returns the rest of the input in a block of exactly its size, which the caller frees. */
static inline uint8_t *copy_of(const void *p, size_t len)
{
	uint8_t *copy = calloc(1, len ? len : 1);

	CHECK(copy);
	if (len)
		memcpy(copy, p, len);
	return copy;
}

#endif
