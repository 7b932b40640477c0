// SPDX-License-Identifier: BSD-2-Clause
/*
 * fuzz_mpa.c - arbitrary start-up frames and markers.
 *
 * The first byte chooses the property below that the rest is for.
 */
#include "fuzz.h"

#include <errno.h>

#include "wire/wire.h"

enum { DECODE_REQUEST, DECODE_REPLY, ENCODE, INSERT, STRIP, KINDS };

static void check_same(const struct mpa_frame *a, const struct mpa_frame *b)
{
	CHECK(a->reply == b->reply && a->flags == b->flags && a->rev == b->rev);
	CHECK(a->p2p == b->p2p && a->rtr == b->rtr && a->ird == b->ird && a->ord == b->ord);
	CHECK(a->ext.version == b->ext.version && a->ext.encoding == b->ext.encoding);
	CHECK(a->ext.caps == b->ext.caps && a->private_len == b->private_len);
	CHECK(!a->private_len || !memcmp(a->private_data, b->private_data, a->private_len));
}

/* A decoded frame can be encoded, and is decoded to the same. */
static void check_comes_back(const struct mpa_frame *f)
{
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame again;
	int len = mpa_encode(f, buf, sizeof(buf));

	CHECK(len >= MPA_FRAME_LEN && len <= MPA_FRAME_MAX);
	CHECK(mpa_decode(buf, (size_t)len, f->reply, &again) == len);
	check_same(f, &again);
}

/* Bytes of an incomplete frame: with some more bytes they become one. */
static void check_can_become_a_frame(const uint8_t *p, size_t len, bool reply)
{
	uint8_t buf[MPA_FRAME_MAX] = {0};
	struct mpa_frame f;

	CHECK(len < sizeof(buf));
	memcpy(buf, reply ? "MPA ID Rep Frame" : "MPA ID Req Frame", 16);
	buf[17] = 1;
	if (len)
		memcpy(buf, p, len);
	if (len < MPA_FRAME_LEN)
		buf[19] = buf[18] == MPA_MAX_PRIVATE >> 8 ? 0 : MPA_ENHANCED_LEN;
	CHECK(mpa_decode(buf, sizeof(buf), reply, &f) > 0);
}

static void check_decoded(const uint8_t *p, size_t len, int used, const struct mpa_frame *f)
{
	CHECK((size_t)used <= len && used <= MPA_FRAME_MAX);
	CHECK(f->private_data >= p + MPA_FRAME_LEN);
	CHECK(f->private_data + f->private_len == p + used);
	CHECK(f->rev == 1 || f->rev == 2);
	CHECK((f->flags & MPA_ENHANCED) || (!f->p2p && !f->rtr && !f->ird && !f->ord));
	CHECK(f->p2p || !f->rtr);
	check_comes_back(f);
}

static void decode(const uint8_t *p, size_t len, bool reply)
{
	struct mpa_frame f;
	int ret = mpa_decode(p, len, reply, &f);

	if (ret == -EAGAIN) {
		check_can_become_a_frame(p, len, reply);
	} else if (ret < 0) {
		CHECK(ret == -EPROTO);
	} else {
		check_decoded(p, len, ret, &f);
		for (size_t n = 0; n < (size_t)ret; n++)
			CHECK(mpa_decode(p, n, reply, &f) == -EAGAIN);
	}
}

/* Any frame that can be encoded is decoded to the same, except for what no frame can express. */
static void encode(struct input in)
{
	struct mpa_frame f = {.reply = take(&in, 1) & 1,
			      .flags = (uint8_t)take(&in, 1),
			      .rev = take(&in, 1) & 1 ? 2 : 1,
			      .p2p = take(&in, 1) & 1,
			      .rtr = take(&in, 1) & 7,
			      .ird = (uint16_t)take(&in, 2),
			      .ord = (uint16_t)take(&in, 2)};
	uint8_t buf[MPA_FRAME_MAX];
	size_t size = take(&in, 2) % (sizeof(buf) + 1);
	struct mpa_frame seen;
	int len;

	f.ext = (struct mpa_ext){(uint8_t)take(&in, 1), (uint8_t)take(&in, 1),
				 (uint16_t)take(&in, 2)};
	f.private_data = in.p;
	f.private_len = in.len;
	len = mpa_encode(&f, buf, size);
	if (len < 0) {
		CHECK(len == -EMSGSIZE);
		return;
	}
	CHECK((size_t)len <= size);
	CHECK(mpa_decode(buf, (size_t)len, f.reply, &seen) == len);
	CHECK(seen.private_len == in.len);
	CHECK(!in.len || !memcmp(seen.private_data, in.p, in.len));
	if (seen.flags & MPA_ENHANCED)
		CHECK(seen.ird == (f.ird & MPA_IRD_MASK) && seen.ord == (f.ord & MPA_IRD_MASK));
	check_comes_back(&seen);
}

static void insert(struct input in)
{
	uint64_t pos = take(&in, 8);
	uint8_t *fpdu = copy_of(in.p, in.len);
	size_t raw_len = markers_raw_len(pos, in.len);
	uint8_t *raw = malloc(raw_len + 1), *back = malloc(in.len + 1);

	CHECK(raw && back);
	CHECK(markers_insert(pos, fpdu, in.len, raw) == raw_len);
	CHECK(markers_strip(pos, raw, raw_len, back) == (int)in.len);
	CHECK(!memcmp(back, in.p, in.len));
	CHECK(markers_strip(pos, raw, raw_len, raw) == (int)in.len);
	CHECK(!memcmp(raw, in.p, in.len));
	free(fpdu);
	free(raw);
	free(back);
}

static void strip(struct input in)
{
	uint64_t pos = take(&in, 2);
	uint8_t *raw = copy_of(in.p, in.len), *fpdu = malloc(in.len + 1);
	int len;

	CHECK(fpdu);
	len = markers_strip(pos, raw, in.len, fpdu);
	if (len < 0) {
		CHECK(len == -EPROTO);
	} else {
		CHECK(markers_raw_len(pos, (size_t)len) == in.len);
	}
	free(raw);
	free(fpdu);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};
	unsigned kind = (unsigned)take(&in, 1) % KINDS;

	if (kind == DECODE_REQUEST || kind == DECODE_REPLY) {
		uint8_t *exact = copy_of(in.p, in.len);

		decode(exact, in.len, kind == DECODE_REPLY);
		free(exact);
	} else if (kind == ENCODE) {
		encode(in);
	} else if (kind == INSERT) {
		insert(in);
	} else {
		strip(in);
	}
	return 0;
}
