// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_crc32c.c - every implementation of CRC32C that this processor supports gives the RFC's
 * values, and the same as one bit at a time.
 *
 * Includes the source: crc32c_update() uses only the fastest one.
 */
#include "../../src/base/crc32c.c"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../wire/test.h"

struct way {
	const char *name;
	crc32c_fn fn;
};

static size_t implementations_here(struct way *w)
{
	size_t n = 0;

	w[n++] = (struct way){"portable", update_portable};
	w[n++] = (struct way){crc32c_implementation(), update};
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul"))
		w[n++] = (struct way){"sse4.2", update_sse42};
#endif
	return n;
}

/* Computes RFC 5044 §4.4's polynomial division, as plainly as possible. */
static uint32_t bit_by_bit(uint32_t crc, const uint8_t *p, size_t len)
{
	while (len--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = times_x(crc);
	}
	return crc;
}

static void assert_all_implementations_agree(uint32_t crc, const uint8_t *p, size_t len)
{
	struct way ways[4];
	size_t n = implementations_here(ways);
	uint32_t wanted = bit_by_bit(crc, p, len);

	for (size_t i = 0; i < n; i++)
		if (ways[i].fn(crc, p, len) != wanted)
			fail_msg("%s: wrong for %zu bytes at %p", ways[i].name, len, (void *)p);
}

/* Copies to an odd address, with a guard on either side. */
static void assert_copy_is_right(crc32c_copy_fn fn, uint32_t crc, const uint8_t *p, size_t len)
{
	static uint8_t room[FPDU_MAX_LEN + 64 + 2];
	uint8_t *to = room + 1 + dice() % 64;

	to[-1] = to[len] = 0xa5;
	assert_int_equal(fn(crc, to, p, len), crc32c_update_portable(crc, p, len));
	assert_memory_equal(to, p, len);
	assert_int_equal(to[-1], 0xa5);
	assert_int_equal(to[len], 0xa5);
}

static void assert_copies_are_right(uint32_t crc, const uint8_t *p, size_t len)
{
	assert_copy_is_right(copy_in_steps, crc, p, len);
	assert_copy_is_right(copy, crc, p, len);
}

static void assert_crc_on_the_wire(const uint8_t *bytes, size_t len, const uint8_t wanted[4])
{
	struct way ways[4];
	size_t n = implementations_here(ways);
	uint8_t field[4];

	for (size_t i = 0; i < n; i++) {
		crc32c_put(field, ways[i].fn(CRC32C_INIT, bytes, len));
		assert_memory_equal(field, wanted, 4);
	}
}

static void the_check_string_gives_e3069283(void **state)
{
	assert_int_equal(~crc32c_update(CRC32C_INIT, "123456789", 9), 0xe3069283);
	assert_int_equal(~crc32c_update_portable(CRC32C_INIT, "123456789", 9), 0xe3069283);
}

static void an_empty_update_does_not_change_the_crc(void **state)
{
	assert_int_equal(crc32c_update(CRC32C_INIT, NULL, 0), CRC32C_INIT);
	assert_int_equal(crc32c_update_portable(0x12345678, NULL, 0), 0x12345678);
}

/* RFC 5044 appendix B: the first Send of a stream, behind the marker at its start. */
static void rfc5044_first_vector_with_its_marker(void **state)
{
	uint8_t raw[4 + 2 + 18 + 24] = {0};
	static const uint8_t lead[] = {0x00, 0x2a, 0x41, 0x43};
	static const uint8_t wanted[] = {0x52, 0x23, 0x99, 0x83};

	memcpy(raw + 4, lead, sizeof(lead));
	raw[4 + 15] = 1; /* MSN */

	assert_crc_on_the_wire(raw, sizeof(raw), wanted);
}

/* The second: a marker inside, 20 bytes from the FPDU's beginning. */
static void rfc5044_second_vector_with_its_marker(void **state)
{
	uint8_t raw[2 + 18 + 4 + 24] = {0x00, 0x2a, 0x41, 0x43};
	static const uint8_t wanted[] = {0x84, 0x92, 0x58, 0x98};

	raw[15] = 2;	/* MSN */
	raw[23] = 0x14; /* FPDUPTR */

	assert_crc_on_the_wire(raw, sizeof(raw), wanted);
}

static void crc_field_is_least_significant_byte_first(void **state)
{
	uint8_t field[4];

	crc32c_put(field, ~0x11223344u);
	assert_int_equal(field[0], 0x44);
	assert_int_equal(field[3], 0x11);
	assert_true(crc32c_matches(field, ~0x11223344u));
	assert_false(crc32c_matches(field, ~0x11223345u));
}

/* Every length across the step sizes: words, lanes, rounds of lanes, vectors, blocks. */
static void all_implementations_agree_on_every_length(void **state)
{
	static uint8_t noise[4200];

	fill_with_noise(noise, sizeof(noise));
	for (size_t len = 0; len <= sizeof(noise); len += len < 1600 ? 1 : 7)
		assert_all_implementations_agree((uint32_t)dice(), noise, len);
}

static void all_implementations_agree_at_every_alignment(void **state)
{
	static uint8_t noise[2048 + 64];

	fill_with_noise(noise, sizeof(noise));
	for (size_t off = 0; off < 64; off++)
		assert_all_implementations_agree(CRC32C_INIT, noise + off, 1000 + dice() % 1048);
}

static void all_implementations_agree_on_long_buffers(void **state)
{
	static uint8_t noise[FPDU_MAX_LEN + 64];

	fill_with_noise(noise, sizeof(noise));
	for (int i = 0; i < 20; i++)
		assert_all_implementations_agree((uint32_t)dice(), noise + dice() % 64,
						 FPDU_MAX_LEN - dice() % 9000);
}

static void a_crc_taken_in_pieces_is_the_same(void **state)
{
	static uint8_t noise[20000];
	uint32_t whole;

	fill_with_noise(noise, sizeof(noise));
	whole = crc32c_update_portable(CRC32C_INIT, noise, sizeof(noise));
	for (int i = 0; i < 200; i++) {
		uint32_t crc = CRC32C_INIT;
		size_t done = 0;

		while (done < sizeof(noise)) {
			size_t n = dice() % (sizeof(noise) - done + 1);

			crc = crc32c_update(crc, noise + done, n);
			done += n;
		}
		assert_int_equal(crc, whole);
	}
}

static void no_implementation_reads_past_the_end(void **state)
{
	for (size_t len = 1; len < 1200; len += 1 + len / 40) {
		uint8_t *p = alloc_before_guard_page(len);

		fill_with_noise(p, len);
		assert_all_implementations_agree(CRC32C_INIT, p, len);
		free_before_guard_page(p, len);
	}
}

static void copies_have_the_bytes_and_their_crc(void **state)
{
	static uint8_t noise[FPDU_MAX_LEN + 64];

	fill_with_noise(noise, sizeof(noise));
	for (size_t len = 0; len <= 4200; len += len < 1600 ? 1 : 7)
		assert_copies_are_right((uint32_t)dice(), noise + dice() % 64, len);
	for (int i = 0; i < 20; i++)
		assert_copies_are_right(CRC32C_INIT, noise + dice() % 64,
					FPDU_MAX_LEN - dice() % 9000);
}

static void no_copy_reads_past_the_end(void **state)
{
	for (size_t len = 1; len < 1200; len += 1 + len / 40) {
		uint8_t *p = alloc_before_guard_page(len);

		fill_with_noise(p, len);
		assert_copies_are_right(CRC32C_INIT, p, len);
		free_before_guard_page(p, len);
	}
}

static void change_bytes(volatile uint8_t *p, size_t len)
{
	for (;;)
		for (size_t i = 0; i < len; i++)
			p[i]++;
}

/* The source of a copy may change at any time: the CRC is that of the copied bytes all the same. */
static void a_copy_under_change_has_its_own_crc(void **state)
{
	static uint8_t to[8192];
	crc32c_copy_fn ways[] = {copy_in_steps, copy};
	uint8_t *source =
		mmap(NULL, sizeof(to), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	unsigned wrong = 0;
	pid_t other;

	assert_ptr_not_equal(source, MAP_FAILED);
	other = fork();
	if (other == 0)
		change_bytes(source, sizeof(to));
	assert_true(other > 0);
	for (int i = 0; i < 2000; i++) {
		uint32_t crc = ways[i % 2](CRC32C_INIT, to, source, sizeof(to));

		wrong += crc != crc32c_update_portable(CRC32C_INIT, to, sizeof(to));
	}
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	assert_int_equal(wrong, 0);
	munmap(source, sizeof(to));
}

static void one_wrong_bit_is_detected_at_any_position(void **state)
{
	uint8_t noise[300];
	uint32_t good;

	fill_with_noise(noise, sizeof(noise));
	good = crc32c_update(CRC32C_INIT, noise, sizeof(noise));
	for (size_t bit = 0; bit < 8 * sizeof(noise); bit++) {
		noise[bit / 8] ^= (uint8_t)(1 << bit % 8);
		assert_int_not_equal(crc32c_update(CRC32C_INIT, noise, sizeof(noise)), good);
		noise[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_check_string_gives_e3069283),
		cmocka_unit_test(an_empty_update_does_not_change_the_crc),
		cmocka_unit_test(rfc5044_first_vector_with_its_marker),
		cmocka_unit_test(rfc5044_second_vector_with_its_marker),
		cmocka_unit_test(crc_field_is_least_significant_byte_first),
		cmocka_unit_test(all_implementations_agree_on_every_length),
		cmocka_unit_test(all_implementations_agree_at_every_alignment),
		cmocka_unit_test(all_implementations_agree_on_long_buffers),
		cmocka_unit_test(a_crc_taken_in_pieces_is_the_same),
		cmocka_unit_test(no_implementation_reads_past_the_end),
		cmocka_unit_test(copies_have_the_bytes_and_their_crc),
		cmocka_unit_test(no_copy_reads_past_the_end),
		cmocka_unit_test(a_copy_under_change_has_its_own_crc),
		cmocka_unit_test(one_wrong_bit_is_detected_at_any_position),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
