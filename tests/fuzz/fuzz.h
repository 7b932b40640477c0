/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz.h - what the fuzz targets share: the fuzzer's bytes, taken from the front,
 * copies that end where a sanitizer watches, and checks that no build leaves out.
 */
#ifndef STAG_FUZZ_H
#define STAG_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An assert that is there in a release build too: it is what the target is for. */
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

/* The next bytes of the input as a number; zeroes when it has run out. */
static inline uint64_t take(struct input *in, size_t bytes)
{
	uint64_t v = 0;

	while (bytes-- && in->len) {
		v = v << 8 | *in->p++;
		in->len--;
	}
	return v;
}

/* The rest of the input in a block of exactly its size. The caller frees it. */
static inline uint8_t *copy_of(const void *p, size_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	CHECK(copy);
	if (len)
		memcpy(copy, p, len);
	return copy;
}

#endif
