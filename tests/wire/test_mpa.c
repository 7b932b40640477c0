// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_mpa.c - start-up frames of every kind, whole, in pieces and malformed, and the size of an
 * FPDU.
 */
#include "test.h"

#include <errno.h>

enum { REQUEST = false, REPLY = true };

static const uint8_t private_data[MPA_MAX_PRIVATE] = {'h', 'e', 'l', 'l', 'o', 0, 0xff};

/* Writes a frame's fixed part, as a peer might. */
static size_t write_fixed(uint8_t *buf, bool reply, uint8_t flags, uint8_t rev, uint16_t length)
{
	memcpy(buf, reply ? "MPA ID Rep Frame" : "MPA ID Req Frame", 16);
	buf[16] = flags;
	buf[17] = rev;
	put_be16(buf + 18, length);
	return MPA_FRAME_LEN;
}

/* Writes a frame with length bytes of private data that begin with these. */
static size_t write_frame(uint8_t *buf, bool reply, uint8_t flags, uint8_t rev, uint16_t length,
			  const void *lead, size_t lead_len)
{
	write_fixed(buf, reply, flags, rev, length);
	memset(buf + MPA_FRAME_LEN, 0xcc, length);
	memcpy(buf + MPA_FRAME_LEN, lead, lead_len);
	return MPA_FRAME_LEN + (size_t)length;
}

static void assert_same_frame(const struct mpa_frame *a, const struct mpa_frame *b)
{
	assert_int_equal(a->reply, b->reply);
	assert_int_equal(a->flags, b->flags);
	assert_int_equal(a->rev, b->rev);
	assert_int_equal(a->p2p, b->p2p);
	assert_int_equal(a->rtr, b->rtr);
	assert_int_equal(a->ird, b->ird);
	assert_int_equal(a->ord, b->ord);
	assert_int_equal(a->ext.version, b->ext.version);
	assert_int_equal(a->ext.encoding, b->ext.encoding);
	assert_int_equal(a->ext.caps, b->ext.caps);
	assert_int_equal(a->private_len, b->private_len);
	if (a->private_len)
		assert_memory_equal(a->private_data, b->private_data, a->private_len);
}

static void assert_survives_encode_and_decode(const struct mpa_frame *f)
{
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame seen;
	int len = mpa_encode(f, buf, sizeof(buf));

	assert_true(len >= MPA_FRAME_LEN);
	assert_int_equal(mpa_decode(buf, (size_t)len, f->reply, &seen), len);
	assert_same_frame(f, &seen);
}

/* ---- frames that we write ------------------------------------------------ */

static void revision_1_request_is_the_rfcs_bytes(void **state)
{
	const struct mpa_frame f = {.flags = MPA_CRC, .rev = 1};
	uint8_t wanted[MPA_FRAME_LEN], buf[MPA_FRAME_MAX];

	write_fixed(wanted, REQUEST, 0x40, 1, 0);

	assert_int_equal(mpa_encode(&f, buf, sizeof(buf)), MPA_FRAME_LEN);
	assert_memory_equal(buf, wanted, MPA_FRAME_LEN);
}

/* A is in the IRD word with B; C and D are in the ORD word. */
static void enhanced_block_has_each_bit_in_its_place(void **state)
{
	static const struct {
		uint8_t rtr, block[4];
	} cases[] = {
		{0, {0x80, 0x10, 0x00, 0x20}},
		{MPA_RTR_SEND, {0xc0, 0x10, 0x00, 0x20}},
		{MPA_RTR_WRITE, {0x80, 0x10, 0x80, 0x20}},
		{MPA_RTR_READ, {0x80, 0x10, 0x40, 0x20}},
		{MPA_RTR_SEND | MPA_RTR_WRITE | MPA_RTR_READ, {0xc0, 0x10, 0xc0, 0x20}},
	};
	uint8_t buf[MPA_FRAME_MAX];

	for (size_t i = 0; i < COUNT(cases); i++) {
		const struct mpa_frame f = {.flags = MPA_ENHANCED,
					    .rev = 2,
					    .p2p = true,
					    .rtr = cases[i].rtr,
					    .ird = 16,
					    .ord = 32};

		assert_int_equal(mpa_encode(&f, buf, sizeof(buf)), MPA_FRAME_LEN + 4);
		assert_int_equal(get_be16(buf + 18), 4);
		assert_memory_equal(buf + MPA_FRAME_LEN, cases[i].block, 4);
	}
}

static void rtr_options_are_not_sent_outside_peer_to_peer_mode(void **state)
{
	const struct mpa_frame f = {
		.flags = MPA_ENHANCED, .rev = 2, .rtr = MPA_RTR_WRITE, .ird = 1, .ord = 1};
	static const uint8_t wanted[] = {0x00, 0x01, 0x00, 0x01};
	uint8_t buf[MPA_FRAME_MAX];

	mpa_encode(&f, buf, sizeof(buf));

	assert_memory_equal(buf + MPA_FRAME_LEN, wanted, 4);
}

static void extension_block_follows_the_enhanced_one(void **state)
{
	const struct mpa_frame f = {.reply = true,
				    .flags = MPA_ENHANCED | MPA_EXT_ACCEPT,
				    .rev = 2,
				    .ext = {.version = 1, .encoding = 2, .caps = 0x1234},
				    .private_data = private_data,
				    .private_len = 5};
	static const uint8_t wanted[] = {0, 0,	  0,	0,   'S', 't', 'A', 'g', 1,
					 2, 0x12, 0x34, 'h', 'e', 'l', 'l', 'o'};
	uint8_t buf[MPA_FRAME_MAX];

	assert_int_equal(mpa_encode(&f, buf, sizeof(buf)), MPA_FRAME_LEN + sizeof(wanted));
	assert_int_equal(get_be16(buf + 18), sizeof(wanted));
	assert_memory_equal(buf + MPA_FRAME_LEN, wanted, sizeof(wanted));
}

static void offer_of_extensions_adds_one_bit_and_no_byte(void **state)
{
	struct mpa_frame f = {.flags = MPA_ENHANCED, .rev = 2};
	uint8_t plain[MPA_FRAME_MAX], offer[MPA_FRAME_MAX];
	int len = mpa_encode(&f, plain, sizeof(plain));

	f.flags |= MPA_EXT_OFFER;

	assert_int_equal(mpa_encode(&f, offer, sizeof(offer)), len);
	assert_int_equal(offer[16], plain[16] | 0x02);
	offer[16] = plain[16];
	assert_memory_equal(offer, plain, (size_t)len);
}

static void private_data_that_does_not_fit_is_refused(void **state)
{
	static const struct {
		bool reply;
		uint8_t flags;
		size_t blocks;
	} cases[] = {{REQUEST, 0, 0},
		     {REQUEST, MPA_ENHANCED, 4},
		     {REPLY, MPA_ENHANCED, 4},
		     {REPLY, MPA_ENHANCED | MPA_EXT_ACCEPT, 12}};
	uint8_t buf[MPA_FRAME_MAX];

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct mpa_frame f = {.reply = cases[i].reply,
				      .flags = cases[i].flags,
				      .rev = 2,
				      .private_data = private_data,
				      .private_len = MPA_MAX_PRIVATE - cases[i].blocks};

		assert_int_equal(mpa_encode(&f, buf, sizeof(buf)), MPA_FRAME_MAX);
		assert_int_equal(mpa_encode(&f, buf, MPA_FRAME_MAX - 1), -EMSGSIZE);
		f.private_len++;
		assert_int_equal(mpa_encode(&f, buf, sizeof(buf)), -EMSGSIZE);
		f.private_len = SIZE_MAX;
		assert_int_equal(mpa_encode(&f, buf, sizeof(buf)), -EMSGSIZE);
	}
}

static void no_byte_is_written_beyond_the_buffer(void **state)
{
	const struct mpa_frame f = {.flags = MPA_ENHANCED, .rev = 2};

	for (size_t size = 0; size < MPA_FRAME_LEN + 4; size++) {
		uint8_t *buf = alloc_before_guard_page(size);

		assert_int_equal(mpa_encode(&f, buf, size), -EMSGSIZE);
		free_before_guard_page(buf, size);
	}
}

/* ---- encode and decode --------------------------------------------------- */

static void every_kind_of_frame_survives_encode_and_decode(void **state)
{
	for (unsigned flags = 0; flags < 256; flags++) {
		struct mpa_frame f = {.flags = (uint8_t)flags,
				      .rev = 2,
				      .private_data = private_data,
				      .private_len = flags};

		if (flags & MPA_ENHANCED) {
			f.p2p = flags & MPA_CRC;
			f.rtr = f.p2p ? flags & 7 : 0;
			f.ird = (uint16_t)(dice() & MPA_IRD_MASK);
			f.ord = (uint16_t)(dice() & MPA_IRD_MASK);
		}
		assert_survives_encode_and_decode(&f);
		f.reply = true;
		if (flags & MPA_EXT_ACCEPT) {
			if (!(flags & MPA_ENHANCED))
				continue;
			f.ext = (struct mpa_ext){1, (uint8_t)dice(), (uint16_t)dice()};
		}
		assert_survives_encode_and_decode(&f);
	}
}

static void largest_and_unnegotiated_depths_survive_encode_and_decode(void **state)
{
	static const uint16_t depths[] = {0, 1, 128, 0x3ffe, MPA_DEPTH_NONE};

	for (size_t i = 0; i < COUNT(depths); i++)
		for (size_t k = 0; k < COUNT(depths); k++) {
			const struct mpa_frame f = {.flags = MPA_ENHANCED,
						    .rev = 2,
						    .p2p = true,
						    .rtr = MPA_RTR_WRITE | MPA_RTR_READ,
						    .ird = depths[i],
						    .ord = depths[k]};

			assert_survives_encode_and_decode(&f);
		}
}

/* ---- frames that siw sends (measured, Linux 6.1) ------------------------- */

static void request_of_siw_is_decoded(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	static const uint8_t enhanced[] = {0x00, 0x01, 0x00, 0x01};
	size_t len = write_frame(buf, REQUEST, 0x10, 2, 4, enhanced, 4);
	struct mpa_frame f;

	assert_int_equal(mpa_decode(buf, len, REQUEST, &f), len);
	assert_same_frame(&f,
			  &(struct mpa_frame){.flags = MPA_ENHANCED, .rev = 2, .ird = 1, .ord = 1});
}

/* siw does not support markers, and rejects with 20 01 0000; then it closes. */
static void reject_of_markers_by_siw_is_decoded(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	size_t len = write_fixed(buf, REPLY, 0x20, 1, 0);
	struct mpa_frame f;

	assert_int_equal(mpa_decode(buf, len, REPLY, &f), len);
	assert_same_frame(&f, &(struct mpa_frame){.reply = true, .flags = MPA_REJECT, .rev = 1});
}

/* The peer echoes every flag of the request, our offer and its own GSO bit among them. */
static void echoed_reserved_bits_do_not_accept_the_extensions(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	static const uint8_t enhanced[] = {0x00, 0x80, 0x00, 0x80};
	size_t len = write_frame(buf, REPLY, 0x10 | 0x40 | 0x02 | 0x08 | 0x04, 2, 4, enhanced, 4);
	struct mpa_frame f;

	assert_int_equal(mpa_decode(buf, len, REPLY, &f), len);
	assert_int_equal(f.flags, 0x10 | 0x40 | 0x02 | 0x08 | 0x04);
	assert_int_equal(f.ird, 128);
	assert_int_equal(f.ext.version, 0);
	assert_int_equal(f.private_len, 0);
}

static void revision_0_is_treated_as_1(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	size_t len = write_fixed(buf, REQUEST, 0, 0, 0);
	struct mpa_frame f;

	assert_int_equal(mpa_decode(buf, len, REQUEST, &f), len);
	assert_int_equal(f.rev, 1);
}

/* ---- reserved bits and blocks -------------------------------------------- */

static void s_is_a_reserved_bit_before_revision_2(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	size_t len = write_frame(buf, REQUEST, MPA_ENHANCED | MPA_CRC, 1, 2, "hi", 2);
	struct mpa_frame f;

	assert_int_equal(mpa_decode(buf, len, REQUEST, &f), len);
	assert_int_equal(f.flags, MPA_CRC);
	assert_int_equal(f.private_len, 2);
	assert_memory_equal(f.private_data, "hi", 2);
}

static void rtr_options_are_ignored_outside_peer_to_peer_mode(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	static const uint8_t enhanced[] = {0x40, 0x02, 0xc0, 0x03};
	size_t len = write_frame(buf, REQUEST, MPA_ENHANCED, 2, 4, enhanced, 4);
	struct mpa_frame f;

	assert_int_equal(mpa_decode(buf, len, REQUEST, &f), len);
	assert_false(f.p2p);
	assert_int_equal(f.rtr, 0);
	assert_int_equal(f.ird, 2);
	assert_int_equal(f.ord, 3);
}

static void extension_block_without_the_magic_is_no_accept(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	static const uint8_t blocks[] = {0, 1, 0, 1, 'S', 't', 'a', 'g', 1, 0, 0, 7};
	size_t len = write_frame(buf, REPLY, MPA_ENHANCED | MPA_EXT_ACCEPT, 2, 20, blocks, 12);
	struct mpa_frame f;

	assert_int_equal(mpa_decode(buf, len, REPLY, &f), len);
	assert_int_equal(f.flags, MPA_ENHANCED);
	assert_int_equal(f.ext.version, 0);
	assert_ptr_equal(f.private_data, buf + MPA_FRAME_LEN + 4);
	assert_int_equal(f.private_len, 16);
}

/* Another implementation may have set the reserved bit; a part of the magic is not the magic. */
static void partial_extension_block_is_no_accept(void **state)
{
	static const uint8_t blocks[] = {0, 1, 0, 1, 'S', 't', 'A', 'g', 1, 0, 0};

	for (uint16_t length = 4; length <= sizeof(blocks); length++) {
		uint8_t *buf = alloc_before_guard_page((size_t)MPA_FRAME_LEN + length);
		size_t len = write_frame(buf, REPLY, MPA_ENHANCED | MPA_EXT_ACCEPT, 2, length,
					 blocks, length);
		struct mpa_frame f;

		assert_int_equal(mpa_decode(buf, len, REPLY, &f), len);
		assert_int_equal(f.flags, MPA_ENHANCED);
		assert_int_equal(f.private_len, length - 4);
		free_before_guard_page(buf, len);
	}
}

static void extension_block_without_the_enhanced_block_is_no_accept(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	static const uint8_t block[] = {'S', 't', 'A', 'g', 1, 0, 0, 7};
	size_t len = write_frame(buf, REPLY, MPA_EXT_ACCEPT, 2, 8, block, 8);
	struct mpa_frame f;

	assert_int_equal(mpa_decode(buf, len, REPLY, &f), len);
	assert_int_equal(f.flags, 0);
	assert_int_equal(f.private_len, 8);
}

static void a_request_never_carries_an_extension_block(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	static const uint8_t blocks[] = {0, 1, 0, 1, 'S', 't', 'A', 'g', 1, 0, 0, 7};
	size_t len = write_frame(buf, REQUEST, MPA_ENHANCED | MPA_EXT_ACCEPT, 2, 12, blocks, 12);
	struct mpa_frame f;

	assert_int_equal(mpa_decode(buf, len, REQUEST, &f), len);
	assert_int_equal(f.flags, MPA_ENHANCED | MPA_EXT_ACCEPT);
	assert_int_equal(f.ext.version, 0);
	assert_int_equal(f.private_len, 8);
}

/* ---- partial and malicious frames ---------------------------------------- */

static void each_prefix_of_a_frame_returns_eagain(void **state)
{
	uint8_t whole[MPA_FRAME_MAX];
	const struct mpa_frame sent = {.reply = true,
				       .flags = MPA_ENHANCED | MPA_EXT_ACCEPT,
				       .rev = 2,
				       .ext = {1, 0, 7},
				       .private_data = private_data,
				       .private_len = 100};
	int len = mpa_encode(&sent, whole, sizeof(whole));

	for (size_t n = 0; n < (size_t)len; n++) {
		uint8_t *prefix = alloc_before_guard_page(n);
		struct mpa_frame f = {.rev = 77};

		memcpy(prefix, whole, n);
		assert_int_equal(mpa_decode(prefix, n, REPLY, &f), -EAGAIN);
		assert_int_equal(f.rev, 77); /* outputs on success only */
		free_before_guard_page(prefix, n);
	}
}

static void bytes_behind_a_frame_are_not_consumed(void **state)
{
	uint8_t buf[MPA_FRAME_MAX + 10];
	size_t len = write_fixed(buf, REQUEST, 0, 1, 0);
	struct mpa_frame f;

	memset(buf + len, 0xee, 10);
	assert_int_equal(mpa_decode(buf, len + 10, REQUEST, &f), len);
	assert_int_equal(f.private_len, 0);
}

/*
 * Two initiators that connect to each other, or another protocol, are detected at the first byte
 * that differs.
 */
static void wrong_key_is_refused_at_its_first_wrong_byte(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame f;

	write_fixed(buf, REQUEST, 0, 1, 0);
	assert_int_equal(mpa_decode(buf, 9, REPLY, &f), -EAGAIN); /* "MPA ID Re" */
	assert_int_equal(mpa_decode(buf, 10, REPLY, &f), -EPROTO);
	assert_int_equal(mpa_decode(buf, MPA_FRAME_LEN, REPLY, &f), -EPROTO);
	for (size_t i = 0; i < 16; i++) {
		write_fixed(buf, REQUEST, 0, 1, 0);
		buf[i] ^= 0x20;
		assert_int_equal(mpa_decode(buf, i, REQUEST, &f), -EAGAIN);
		assert_int_equal(mpa_decode(buf, i + 1, REQUEST, &f), -EPROTO);
	}
}

static void a_revision_above_2_is_refused(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame f;

	for (unsigned rev = 3; rev < 256; rev++) {
		write_fixed(buf, REQUEST, 0, (uint8_t)rev, 0);
		assert_int_equal(mpa_decode(buf, 17, REQUEST, &f), -EAGAIN);
		assert_int_equal(mpa_decode(buf, 18, REQUEST, &f), -EPROTO);
	}
}

static void private_data_above_512_is_refused_unread(void **state)
{
	static const uint16_t lengths[] = {513, 0x02ff, 0x0300, 0x7fff, 0xffff};
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame f;

	for (size_t i = 0; i < COUNT(lengths); i++) {
		write_fixed(buf, REQUEST, 0, 1, lengths[i]);
		assert_int_equal(mpa_decode(buf, MPA_FRAME_LEN, REQUEST, &f), -EPROTO);
	}
	write_fixed(buf, REQUEST, 0, 1, 512);
	assert_int_equal(mpa_decode(buf, MPA_FRAME_LEN, REQUEST, &f), -EAGAIN);
}

static void private_data_too_short_for_the_enhanced_block_is_refused(void **state)
{
	uint8_t buf[MPA_FRAME_MAX];
	struct mpa_frame f;

	for (uint16_t length = 0; length < 4; length++) {
		write_fixed(buf, REPLY, MPA_ENHANCED, 2, length);
		assert_int_equal(mpa_decode(buf, MPA_FRAME_LEN, REPLY, &f), -EPROTO);
	}
}

/* ---- the size of an FPDU ------------------------------------------------- */

static void an_fpdu_is_a_multiple_of_four(void **state)
{
	for (size_t n = 0; n <= 65535; n++) {
		assert_true(fpdu_pad(n) < 4);
		assert_int_equal(fpdu_len(n) % 4, 0);
		assert_int_equal(fpdu_len(n), 2 + n + fpdu_pad(n) + 4);
	}
	assert_true(fpdu_len(65535) <= FPDU_MAX_LEN);
}

/* 1460: the MSS of Ethernet; siw fills 1456 bytes of it. */
static void mulpdu_fills_a_segment(void **state)
{
	assert_int_equal(mpa_mulpdu(1460, false), 1454);
	assert_int_equal(mpa_mulpdu(1460, true), 1454 - 4 * 3);
	assert_int_equal(mpa_mulpdu(1461, false), 1454);
	assert_int_equal(mpa_mulpdu(1024, true), 1024 - 6 - 4 * 2);
	assert_int_equal(mpa_mulpdu(1025, true), 1025 - 6 - 4 * 3 - 1);
}

static void mulpdu_stays_in_its_range(void **state)
{
	for (int markers = 0; markers < 2; markers++) {
		assert_int_equal(mpa_mulpdu(0, markers), 128);
		assert_int_equal(mpa_mulpdu(5, markers), 128);
		assert_int_equal(mpa_mulpdu(134, markers), 128);
		assert_int_equal(mpa_mulpdu(1 << 20, markers), 64768);
		assert_int_equal(mpa_mulpdu(UINT32_MAX, markers), 64768);
	}
}

static void fpdu_of_mulpdu_size_with_markers_fits_its_segment(void **state)
{
	for (unsigned emss = 160; emss < 66000; emss += 1 + emss % 7)
		for (uint64_t pos = 0; pos < MARKER_INTERVAL; pos += 4) {
			size_t plain = fpdu_len(mpa_mulpdu(emss, false));
			size_t len = fpdu_len(mpa_mulpdu(emss, true));

			assert_true(plain <= emss);
			assert_true(markers_raw_len(pos, len) <= emss);
			pos += emss > 4000 ? 28 : 0;
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(revision_1_request_is_the_rfcs_bytes),
		cmocka_unit_test(enhanced_block_has_each_bit_in_its_place),
		cmocka_unit_test(rtr_options_are_not_sent_outside_peer_to_peer_mode),
		cmocka_unit_test(extension_block_follows_the_enhanced_one),
		cmocka_unit_test(offer_of_extensions_adds_one_bit_and_no_byte),
		cmocka_unit_test(private_data_that_does_not_fit_is_refused),
		cmocka_unit_test(no_byte_is_written_beyond_the_buffer),
		cmocka_unit_test(every_kind_of_frame_survives_encode_and_decode),
		cmocka_unit_test(largest_and_unnegotiated_depths_survive_encode_and_decode),
		cmocka_unit_test(request_of_siw_is_decoded),
		cmocka_unit_test(reject_of_markers_by_siw_is_decoded),
		cmocka_unit_test(echoed_reserved_bits_do_not_accept_the_extensions),
		cmocka_unit_test(revision_0_is_treated_as_1),
		cmocka_unit_test(s_is_a_reserved_bit_before_revision_2),
		cmocka_unit_test(rtr_options_are_ignored_outside_peer_to_peer_mode),
		cmocka_unit_test(extension_block_without_the_magic_is_no_accept),
		cmocka_unit_test(partial_extension_block_is_no_accept),
		cmocka_unit_test(extension_block_without_the_enhanced_block_is_no_accept),
		cmocka_unit_test(a_request_never_carries_an_extension_block),
		cmocka_unit_test(each_prefix_of_a_frame_returns_eagain),
		cmocka_unit_test(bytes_behind_a_frame_are_not_consumed),
		cmocka_unit_test(wrong_key_is_refused_at_its_first_wrong_byte),
		cmocka_unit_test(a_revision_above_2_is_refused),
		cmocka_unit_test(private_data_above_512_is_refused_unread),
		cmocka_unit_test(private_data_too_short_for_the_enhanced_block_is_refused),
		cmocka_unit_test(an_fpdu_is_a_multiple_of_four),
		cmocka_unit_test(mulpdu_fills_a_segment),
		cmocka_unit_test(mulpdu_stays_in_its_range),
		cmocka_unit_test(fpdu_of_mulpdu_size_with_markers_fits_its_segment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
