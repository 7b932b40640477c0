// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_roce.c - arbitrary hellos of roce0.
 *
 * The first byte chooses: bytes that are decoded, or a hello that is encoded and decoded again.
 */
#include "fuzz.h"

#include <errno.h>

#include "wire/wire.h"

/* A decoded hello is encoded to bytes that are decoded to the same. */
static void check_comes_back(const struct hello *h)
{
	uint8_t buf[HELLO_LEN], again[HELLO_LEN];
	struct hello seen;

	hello_encode(h, buf);
	CHECK(hello_decode(buf, sizeof(buf), &seen) == HELLO_LEN);
	hello_encode(&seen, again);
	CHECK(!memcmp(buf, again, sizeof(buf)));
	for (size_t n = 0; n < HELLO_LEN; n++)
		CHECK(hello_decode(buf, n, &seen) == -EAGAIN);
}

static void decode(struct input in)
{
	uint8_t *exact = copy_of(in.p, in.len);
	struct hello h;
	int r = hello_decode(exact, in.len, &h);

	CHECK(r == HELLO_LEN || r == -EAGAIN || r == -EPROTO);
	CHECK(r != -EAGAIN || in.len < HELLO_LEN);
	if (r == HELLO_LEN) {
		CHECK(in.len >= HELLO_LEN);
		CHECK(h.from_qpn <= HELLO_MAX_24 && h.to_qpn <= HELLO_MAX_24);
		CHECK(h.sq_psn <= HELLO_MAX_24 && h.rq_psn <= HELLO_MAX_24);
		check_comes_back(&h);
	}
	free(exact);
}

static void encode(struct input in)
{
	static const uint8_t kinds[] = {HELLO_ASK, HELLO_READY, HELLO_NO};
	struct hello h = {.kind = kinds[take(&in, 1) % 3],
			  .type = take(&in, 1) & 1 ? HELLO_UC : HELLO_RC,
			  .flags = (uint16_t)take(&in, 2),
			  .caps = (uint16_t)take(&in, 2),
			  .ird = (uint16_t)take(&in, 2),
			  .ord = (uint16_t)take(&in, 2),
			  .from_qpn = (uint32_t)take(&in, 3),
			  .to_qpn = (uint32_t)take(&in, 3),
			  .sq_psn = (uint32_t)take(&in, 3),
			  .rq_psn = (uint32_t)take(&in, 3),
			  .process = take(&in, 8),
			  .life = (uint32_t)take(&in, 4),
			  .epoch = (uint32_t)take(&in, 4)};

	for (int i = 0; i < 16; i++) {
		h.from_gid[i] = (uint8_t)take(&in, 1);
		h.to_gid[i] = (uint8_t)take(&in, 1);
	}
	check_comes_back(&h);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	if (take(&in, 1) & 1)
		encode(in);
	else
		decode(in);
	return 0;
}
