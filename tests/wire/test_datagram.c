// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_datagram.c - datagrams of UD queue pairs byte for byte, damaged ones, and the 40 bytes before the payload.
 */
#include "test.h"

#include <errno.h>
#include <string.h>

#include "wire/datagram.h"

#define PAYLOAD 100

static const uint8_t v4_a[16] = {[10] = 0xff, [11] = 0xff, 192, 168, 0, 1};
static const uint8_t v4_b[16] = {[10] = 0xff, [11] = 0xff, 192, 168, 0, 2};
static const uint8_t v6_a[16] = {0xfd, 1, [15] = 1};
static const uint8_t v6_b[16] = {0xfd, 1, [15] = 2};
static const uint8_t group_v4[16] = {[10] = 0xff, [11] = 0xff, 239, 1, 2, 3};
static const uint8_t group_v6[16] = {0xff, 0x01, [15] = 7};

static struct datagram example(void)
{
	struct datagram d = {
		.flags = DATAGRAM_SOLICITED | DATAGRAM_IMM,
		.traffic_class = 0x20,
		.hop_limit = 64,
		.flow_label = 0x12345,
		.src_qpn = 0x80ff03,
		.dst_qpn = 0x90ff04,
		.qkey = 0x11111111,
		.imm = 0x01020304,
		.length = PAYLOAD,
	};

	memcpy(d.sgid, v4_a, 16);
	memcpy(d.dgid, v4_b, 16);
	return d;
}

/* Encodes a datagram with a payload of noise. */
static void encode(const struct datagram *d, bool seal, uint8_t buf[DATAGRAM_MAX])
{
	datagram_encode(d, buf);
	fill_with_noise(buf + DATAGRAM_HDR, d->length);
	if (seal)
		datagram_seal(buf, d->length);
}

static void assert_refused(const uint8_t *buf, size_t len)
{
	struct datagram seen;
	bool sealed;

	assert_int_equal(datagram_decode(buf, len, &seen, &sealed), -EPROTO);
}

static void header_is_68_bytes_in_order(void **state)
{
	static const uint8_t wanted[] = {
		's',  'U',  'D',  '0',	1,    3,   0x20, 64,   0,    1,	   0x23, 0x45, 0, 0x80,
		0xff, 3,    0,	  0x90, 0xff, 4,   0x11, 0x11, 0x11, 0x11, 4,	 3,    2, 1,
		0,    0,    0,	  100,	0,    0,   0,	 0,    0,    0,	   0,	 0,    0, 0,
		0xff, 0xff, 192,  168,	0,    1,   0,	 0,    0,    0,	   0,	 0,    0, 0,
		0,    0,    0xff, 0xff, 192,  168, 0,	 2,    0,    0,	   0,	 0};
	struct datagram d = example();
	uint8_t buf[DATAGRAM_HDR];

	datagram_encode(&d, buf);
	assert_int_equal(sizeof(wanted), DATAGRAM_HDR);
	assert_memory_equal(buf, wanted, sizeof(wanted));
}

static void datagram_comes_back_as_it_was_encoded(void **state)
{
	struct datagram d = example(), seen;
	uint8_t buf[DATAGRAM_MAX], again[DATAGRAM_HDR];
	bool sealed;

	for (int seal = 0; seal < 2; seal++) {
		encode(&d, seal, buf);
		assert_int_equal(datagram_decode(buf, DATAGRAM_HDR + PAYLOAD, &seen, &sealed), 0);
		assert_int_equal(sealed, seal);
		datagram_encode(&seen, again);
		datagram_encode(&d, buf);
		assert_memory_equal(again, buf, DATAGRAM_HDR);
	}
}

/* Every single bit, of the header and of the payload. */
static void damaged_bit_is_found_with_crc(void **state)
{
	struct datagram d = example();
	uint8_t buf[DATAGRAM_MAX];

	encode(&d, true, buf);
	for (unsigned bit = 0; bit < (DATAGRAM_HDR + PAYLOAD) * 8; bit++) {
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_refused(buf, DATAGRAM_HDR + PAYLOAD);
		buf[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

static void truncated_datagram_is_refused(void **state)
{
	struct datagram d = example();
	uint8_t buf[DATAGRAM_MAX], *exact;

	for (int seal = 0; seal < 2; seal++) {
		encode(&d, seal, buf);
		for (size_t len = 0; len < DATAGRAM_HDR + PAYLOAD; len++) {
			exact = alloc_before_guard_page(len);
			memcpy(exact, buf, len);
			assert_refused(exact, len);
			free_before_guard_page(exact, len);
		}
		assert_refused(buf, DATAGRAM_HDR + PAYLOAD + 1);
	}
}

static void length_beyond_the_largest_mtu_is_refused(void **state)
{
	static uint8_t buf[DATAGRAM_MAX + 1];
	struct datagram d = example(), seen;
	bool sealed;

	d.length = DATAGRAM_PAYLOAD;
	datagram_encode(&d, buf);
	assert_int_equal(datagram_decode(buf, DATAGRAM_MAX, &seen, &sealed), 0);
	d.length++;
	datagram_encode(&d, buf);
	assert_refused(buf, DATAGRAM_MAX + 1);
}

#define REFUSED(change)                                                                            \
	do {                                                                                       \
		struct datagram d = example();                                                     \
		uint8_t buf[DATAGRAM_MAX];                                                         \
		change;                                                                            \
		encode(&d, false, buf);                                                            \
		assert_refused(buf, DATAGRAM_HDR + PAYLOAD);                                       \
	} while (0)

/* Values that no peer sends, in a datagram without a CRC. */
static void impossible_field_is_refused(void **state)
{
	REFUSED(d.flags |= 0x04);
	REFUSED(d.flow_label = 0x100000);
	REFUSED(d.src_qpn = 0);
	REFUSED(d.src_qpn = 1);
	REFUSED(d.src_qpn = 0xffffff);
	REFUSED(d.src_qpn = 0x1000000);
	REFUSED(d.dst_qpn = 0);
	REFUSED(d.dst_qpn = 1);
	REFUSED(d.dst_qpn = 0x1000000);
	REFUSED(d.flags &= (uint8_t)~DATAGRAM_IMM);
}

/* An MGID goes with QPN 0xffffff, and neither without the other. */
static void multicast_needs_both_number_and_group(void **state)
{
	struct datagram group = example(), seen;
	uint8_t bytes[DATAGRAM_MAX];
	bool sealed;

	REFUSED(d.dst_qpn = DATAGRAM_MULTICAST);
	REFUSED(memcpy(d.dgid, group_v4, 16));
	REFUSED(memcpy(d.dgid, group_v6, 16));
	group.dst_qpn = DATAGRAM_MULTICAST;
	memcpy(group.dgid, group_v6, 16);
	encode(&group, false, bytes);
	assert_int_equal(datagram_decode(bytes, DATAGRAM_HDR + PAYLOAD, &seen, &sealed), 0);
}

static void other_version_is_refused(void **state)
{
	struct datagram d = example();
	uint8_t buf[DATAGRAM_MAX];

	encode(&d, false, buf);
	buf[4] = 2;
	assert_refused(buf, DATAGRAM_HDR + PAYLOAD);
}

static void noise_is_refused(void **state)
{
	uint8_t buf[DATAGRAM_MAX];

	for (int i = 0; i < 1000; i++) {
		size_t len = (size_t)(dice() % (sizeof(buf) + 1));

		fill_with_noise(buf, len);
		assert_refused(buf, len);
	}
}

static void train_is_cut_into_whole_datagrams(void **state)
{
	struct datagram d = example();
	uint8_t buf[2 * DATAGRAM_MAX];
	size_t one = DATAGRAM_HDR + PAYLOAD;

	encode(&d, false, buf);
	encode(&d, false, buf + one);
	assert_int_equal(datagram_first(buf, 2 * one), one);
	assert_int_equal(datagram_first(buf + one, one), one);
	assert_int_equal(datagram_first(buf, one - 1), 0);
	assert_int_equal(datagram_first(buf, DATAGRAM_HDR - 1), 0);
	d.length = DATAGRAM_PAYLOAD + 1;
	datagram_encode(&d, buf);
	assert_int_equal(datagram_first(buf, sizeof(buf)), 0);
}

/* ---- the 40 bytes ---- */

/* As rxe and mlx5 write them: zeroes, then an IPv4 header with its checksum. */
static void grh_of_ipv4_is_a_header_at_20(void **state)
{
	static const uint8_t wanted[40] = {
		[20] = 0x45, [21] = 0x20, [22] = 0,   [23] = 156, [24] = 0,
		[25] = 0,    [26] = 0x40, [27] = 0,   [28] = 64,  [29] = 17,
		[30] = 0xb8, [31] = 0xdd, [32] = 192, [33] = 168, [34] = 0,
		[35] = 1,    [36] = 192,  [37] = 168, [38] = 0,	  [39] = 2};
	struct datagram d = example();
	uint8_t grh[40];

	memset(grh, 0xee, sizeof(grh));
	grh_put(&d, grh);
	assert_true(grh_is_v4(&d));
	assert_memory_equal(grh, wanted, sizeof(wanted));
}

static void grh_of_ipv6_is_a_header_at_0(void **state)
{
	struct datagram d = example();
	uint8_t grh[40];

	memcpy(d.sgid, v6_a, 16);
	memcpy(d.dgid, v6_b, 16);
	grh_put(&d, grh);
	assert_false(grh_is_v4(&d));
	assert_memory_equal(grh, ((uint8_t[]){0x62, 0x01, 0x23, 0x45, 0, 136, 17, 64}), 8);
	assert_memory_equal(grh + 8, v6_a, 16);
	assert_memory_equal(grh + 24, v6_b, 16);
}

static void grh_is_read_back(void **state)
{
	static const uint8_t *const sgid[] = {v4_a, v6_a, v4_a, v4_a};
	static const uint8_t *const dgid[] = {v4_b, v6_b, group_v6, group_v4};
	static const uint8_t version[] = {4, 6, 6, 4};
	struct datagram d = example();
	uint8_t bytes[40];
	struct grh g;

	for (unsigned i = 0; i < COUNT(sgid); i++) {
		memcpy(d.sgid, sgid[i], 16);
		memcpy(d.dgid, dgid[i], 16);
		grh_put(&d, bytes);
		assert_int_equal(grh_get(bytes, &g), 0);
		assert_int_equal(g.version, version[i]);
		assert_int_equal(g.traffic_class, d.traffic_class);
		assert_int_equal(g.hop_limit, d.hop_limit);
		assert_int_equal(g.next_header, 17);
		assert_memory_equal(g.sgid, sgid[i], 16);
		assert_memory_equal(g.dgid, dgid[i], 16);
	}
}

/* The first 20 bytes of an IPv4 one are undefined: the checksum says which it is. */
static void grh_that_looks_like_ipv6_is_ipv4_if_the_checksum_is_right(void **state)
{
	struct datagram d = example();
	uint8_t bytes[40];
	struct grh g;

	grh_put(&d, bytes);
	bytes[0] = 0x60;
	assert_int_equal(grh_get(bytes, &g), 0);
	assert_int_equal(g.version, 4);
	bytes[31] ^= 1;
	assert_int_equal(grh_get(bytes, &g), 0);
	assert_int_equal(g.version, 6);
}

static void grh_of_no_ip_is_refused(void **state)
{
	uint8_t bytes[40] = {0};
	struct grh g;

	assert_int_equal(grh_get(bytes, &g), -EPROTONOSUPPORT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(header_is_68_bytes_in_order),
		cmocka_unit_test(datagram_comes_back_as_it_was_encoded),
		cmocka_unit_test(damaged_bit_is_found_with_crc),
		cmocka_unit_test(truncated_datagram_is_refused),
		cmocka_unit_test(length_beyond_the_largest_mtu_is_refused),
		cmocka_unit_test(impossible_field_is_refused),
		cmocka_unit_test(multicast_needs_both_number_and_group),
		cmocka_unit_test(other_version_is_refused),
		cmocka_unit_test(noise_is_refused),
		cmocka_unit_test(train_is_cut_into_whole_datagrams),
		cmocka_unit_test(grh_of_ipv4_is_a_header_at_20),
		cmocka_unit_test(grh_of_ipv6_is_a_header_at_0),
		cmocka_unit_test(grh_is_read_back),
		cmocka_unit_test(grh_that_looks_like_ipv6_is_ipv4_if_the_checksum_is_right),
		cmocka_unit_test(grh_of_no_ip_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
