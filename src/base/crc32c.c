// SPDX-License-Identifier: BSD-2-Clause
/*
 * crc32c.c - CRC32C (RFC 5044 §4.4, the Castagnoli polynomial), by whatever the
 * processor has for it.
 *
 * All values are bit-reflected: the coefficient of x^0 is the top bit. Tables
 * and constants are computed once, before main(), rather than written down.
 */
#include "base/crc32c.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

#define POLY	  0x82f63b78u /* reflected */
#define SLICES	  8
#define COPY_STEP 3072 /* three of the longest lanes below */
#define CONSTRUCTED                                                                                \
	__attribute__((constructor(101))) /* runs before constructors without a priority */

typedef uint32_t (*crc32c_fn)(uint32_t crc, const uint8_t *p, size_t len);
typedef uint32_t (*crc32c_copy_fn)(uint32_t crc, uint8_t *to, const uint8_t *p, size_t len);

/* ---- portable: eight tables, eight bytes a step ------------------------- */

static uint32_t slice[SLICES][256]; /* slice[k][b]: byte b, then k zero bytes */

static uint32_t times_x(uint32_t v)
{
	return v >> 1 ^ (v & 1 ? POLY : 0);
}

static void fill_slices(void)
{
	for (unsigned b = 0; b < 256; b++) {
		uint32_t v = b;

		for (int bit = 0; bit < 8; bit++)
			v = times_x(v);
		slice[0][b] = v;
	}
	for (unsigned k = 1; k < SLICES; k++)
		for (unsigned b = 0; b < 256; b++)
			slice[k][b] = slice[k - 1][b] >> 8 ^ slice[0][slice[k - 1][b] & 0xff];
}

static uint32_t update_portable(uint32_t crc, const uint8_t *p, size_t len)
{
	for (; len >= 8; p += 8, len -= 8) {
		uint64_t v = get_le64(p) ^ crc;

		crc = 0;
#pragma GCC unroll 8
		for (unsigned k = 0; k < SLICES; k++)
			crc ^= slice[SLICES - 1 - k][v >> 8 * k & 0xff];
	}
	while (len--)
		crc = crc >> 8 ^ slice[0][(crc ^ *p++) & 0xff];
	return crc;
}

uint32_t crc32c_update_portable(uint32_t crc, const void *data, size_t len)
{
	return update_portable(crc, data, len);
}

/* ---- dispatch ----------------------------------------------------------- */

static crc32c_fn update = update_portable;
static const char *update_name = "portable";

/*
 * Copies and then sums the copy, never the source, which may change meanwhile. A step still is in
 * the first-level cache when it is summed.
 */
static uint32_t copy_in_steps(uint32_t crc, uint8_t *to, const uint8_t *p, size_t len)
{
	while (len) {
		size_t n = len < COPY_STEP ? len : COPY_STEP;

		memcpy(to, p, n);
		crc = update(crc, to, n);
		to += n;
		p += n;
		len -= n;
	}
	return crc;
}

static crc32c_copy_fn copy = copy_in_steps;

#if defined(__x86_64__)
/* ---- x86: the crc32 instruction, three at a time ------------------------ */

#define SSE42  __attribute__((target("sse4.2,pclmul")))
#define AVX512 __attribute__((target("sse4.2,pclmul,avx512f,avx512vl,vpclmulqdq")))

/*
 * The crc32 instruction has a latency of three cycles and a throughput of one per cycle, so a
 * buffer is cut into three lanes of equal length. Lane k's CRC is then moved past the lanes behind
 * it by a multiplication with x^(8n) for n bytes. A product of two reflected 32-bit values read as
 * 64 bits has one factor x too many, and the crc32 that reduces it contributes x^32, so the
 * constant is x^(8n-33).
 */
#define LANE_MAX_WORDS 128 /* 8 bytes each; three lanes: 3 KiB a round */
#define LANE_MIN_WORDS 4 /* with fewer than 3 of them, joining the lanes costs more than it gains */

static uint32_t lane_shift[2 * LANE_MAX_WORDS + 1]; /* [w]: x^(64w-33) */

/* x^n mod P */
static uint32_t power_of_x(unsigned n)
{
	uint32_t v = 0x80000000u;

	while (n--)
		v = times_x(v);
	return v;
}

static void fill_lane_shifts(void)
{
	uint32_t v = power_of_x(64 - 33);

	for (unsigned w = 1; w <= 2 * LANE_MAX_WORDS; w++) {
		lane_shift[w] = v;
		for (int i = 0; i < 64; i++)
			v = times_x(v);
	}
}

SSE42 static inline uint64_t shifted(uint64_t crc, size_t words)
{
	__m128i product = _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)crc),
					       _mm_cvtsi32_si128((int)lane_shift[words]), 0);

	return (uint64_t)_mm_cvtsi128_si64(product);
}

/* Three lanes of `words` words each. */
SSE42 static inline uint32_t update_lanes(uint32_t crc, const uint8_t *p, size_t words)
{
	const uint8_t *q = p + 8 * words, *r = q + 8 * words;
	uint64_t a = crc, b = 0, c = 0;

	for (size_t i = 0; i < words - 1; i++) {
		a = _mm_crc32_u64(a, get_le64(p + 8 * i));
		b = _mm_crc32_u64(b, get_le64(q + 8 * i));
		c = _mm_crc32_u64(c, get_le64(r + 8 * i));
	}
	a = _mm_crc32_u64(a, get_le64(q - 8));
	b = _mm_crc32_u64(b, get_le64(r - 8));
	/* The last word of the last lane is reduced together with the other two lanes. */
	c = _mm_crc32_u64(
		c, get_le64(r + 8 * (words - 1)) ^ shifted(a, 2 * words) ^ shifted(b, words));
	return (uint32_t)c;
}

SSE42 static inline uint32_t update_serial(uint32_t crc, const uint8_t *p, size_t len)
{
	uint64_t v = crc;

	for (; len >= 8; p += 8, len -= 8)
		v = _mm_crc32_u64(v, get_le64(p));
	crc = (uint32_t)v;
	if (len & 4) {
		uint32_t w;

		memcpy(&w, p, sizeof(w));
		crc = _mm_crc32_u32(crc, w);
		p += 4;
	}
	if (len & 2) {
		uint16_t w;

		memcpy(&w, p, sizeof(w));
		crc = _mm_crc32_u16(crc, w);
		p += 2;
	}
	return len & 1 ? _mm_crc32_u8(crc, *p) : crc;
}

SSE42 static uint32_t update_sse42(uint32_t crc, const uint8_t *p, size_t len)
{
	while (len >= 24 * LANE_MIN_WORDS) {
		size_t words = len / 24 < LANE_MAX_WORDS ? len / 24 : LANE_MAX_WORDS;

		crc = update_lanes(crc, p, words);
		p += 24 * words;
		len -= 24 * words;
	}
	return update_serial(crc, p, len);
}

/* ---- x86: carry-less products of 64 bytes at a time --------------------- */

/*
 * A vector of 16-byte pieces is moved past n bytes by two products for each piece: its first eight
 * bytes times x^(8n+32), its last eight times x^(8n-32); the products themselves contribute 32 of
 * the required 64, and 0 more. The result is 16 bytes with the same CRC as the buffer.
 */
#define FOLD_BLOCK 256 /* four vectors */

static uint64_t fold_256[2], fold_64[2], fold_16[2];

static void fill_fold(uint64_t k[2], unsigned bytes)
{
	k[0] = (uint64_t)power_of_x(8 * bytes + 32) << 1;
	k[1] = (uint64_t)power_of_x(8 * bytes - 32) << 1;
}

static void fill_folds(void)
{
	fill_fold(fold_256, 256);
	fill_fold(fold_64, 64);
	fill_fold(fold_16, 16);
}

AVX512 static inline __m512i moved(__m512i v, __m512i k, __m512i next)
{
	__m512i lo = _mm512_clmulepi64_epi128(v, k, 0x00);
	__m512i hi = _mm512_clmulepi64_epi128(v, k, 0x11);

	return _mm512_ternarylogic_epi64(lo, hi, next, 0x96); /* exclusive or of the three */
}

AVX512 static inline __m128i moved_16(__m128i v, __m128i k, __m128i next)
{
	__m128i lo = _mm_clmulepi64_si128(v, k, 0x00);
	__m128i hi = _mm_clmulepi64_si128(v, k, 0x11);

	return _mm_ternarylogic_epi64(lo, hi, next, 0x96);
}

AVX512 static inline __m512i spread(const uint64_t k[2])
{
	return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)k));
}

/* The CRC of the 64 bytes that a vector holds. */
AVX512 static inline uint32_t reduce(__m512i v)
{
	__m128i k = _mm_loadu_si128((const __m128i *)fold_16);
	__m128i x = _mm512_castsi512_si128(v);

	x = moved_16(x, k, _mm512_extracti32x4_epi32(v, 1));
	x = moved_16(x, k, _mm512_extracti32x4_epi32(v, 2));
	x = moved_16(x, k, _mm512_extracti32x4_epi32(v, 3));
	return (uint32_t)_mm_crc32_u64(_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(x)),
				       (uint64_t)_mm_extract_epi64(x, 1));
}

/* Reads 64 bytes once, so that the bytes summed are the bytes stored (to NULL: not stored). */
AVX512 static inline __m512i taken(uint8_t *to, const uint8_t *p)
{
	__m512i v = _mm512_loadu_si512(p);

	if (to)
		_mm512_storeu_si512(to, v);
	return v;
}

/* Returns the destination n bytes further, or NULL if there is none. */
static inline uint8_t *copy_at(uint8_t *to, size_t n)
{
	return to ? to + n : NULL;
}

/*
 * Folds four independent vectors at a time, then one at a time. Returns with fewer than 64 bytes
 * left, at the end of [p, p + len).
 */
AVX512 static inline __attribute__((always_inline)) uint32_t fold_blocks(uint32_t crc, uint8_t *to,
									 const uint8_t *p,
									 size_t len)
{
	__m512i k = spread(fold_256);
	__m512i v[4];
	size_t at = 0;

	for (int i = 0; i < 4; i++, at += 64)
		v[i] = taken(copy_at(to, at), p + at);
	v[0] = _mm512_xor_si512(v[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
	while (len - at >= FOLD_BLOCK)
		for (int i = 0; i < 4; i++, at += 64)
			v[i] = moved(v[i], k, taken(copy_at(to, at), p + at));
	k = spread(fold_64);
	for (int i = 1; i < 4; i++)
		v[i] = moved(v[i - 1], k, v[i]);
	for (; len - at >= 64; at += 64)
		v[3] = moved(v[3], k, taken(copy_at(to, at), p + at));
	return reduce(v[3]);
}

AVX512 static uint32_t update_folding(uint32_t crc, const uint8_t *p, size_t len)
{
	size_t rest = len % 64;

	return update_serial(fold_blocks(crc, NULL, p, len), p + len - rest, rest);
}

AVX512 static uint32_t copy_folding(uint32_t crc, uint8_t *to, const uint8_t *p, size_t len)
{
	size_t rest = len % 64;

	crc = fold_blocks(crc, to, p, len);
	memcpy(to + len - rest, p + len - rest, rest);
	return update_serial(crc, to + len - rest, rest);
}

SSE42 static uint32_t update_avx512(uint32_t crc, const uint8_t *p, size_t len)
{
	return len < FOLD_BLOCK ? update_sse42(crc, p, len) : update_folding(crc, p, len);
}

SSE42 static uint32_t copy_avx512(uint32_t crc, uint8_t *to, const uint8_t *p, size_t len)
{
	if (len >= FOLD_BLOCK)
		return copy_folding(crc, to, p, len);
	memcpy(to, p, len);
	return update_sse42(crc, to, len);
}

static void choose(void)
{
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul"))
		return;
	fill_lane_shifts();
	update = update_sse42;
	update_name = "sse4.2";
	if (!__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("vpclmulqdq"))
		return;
	fill_folds();
	update = update_avx512;
	copy = copy_avx512;
	update_name = "avx512";
}

#elif defined(__aarch64__)
/* ---- ARMv8: the crc32c instructions ------------------------------------- */

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

/* Written as assembler: gcc and clang differ in how a single function enables the intrinsics. */
static inline uint32_t crc32cx(uint32_t crc, uint64_t v)
{
	__asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(v));
	return crc;
}

static inline uint32_t crc32cb(uint32_t crc, uint8_t v)
{
	__asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)v));
	return crc;
}

static uint32_t update_armv8(uint32_t crc, const uint8_t *p, size_t len)
{
	for (; len >= 8; p += 8, len -= 8)
		crc = crc32cx(crc, get_le64(p));
	while (len--)
		crc = crc32cb(crc, *p++);
	return crc;
}

static void choose(void)
{
	if (!(getauxval(AT_HWCAP) & HWCAP_CRC32))
		return;
	update = update_armv8;
	update_name = "armv8";
}

#else

static void choose(void)
{
}
#endif

/* ---- choice of the implementation --------------------------------------- */

CONSTRUCTED static void crc32c_start(void)
{
	fill_slices();
	choose();
}

uint32_t crc32c_update(uint32_t crc, const void *data, size_t len)
{
	return update(crc, data, len);
}

uint32_t crc32c_copy(uint32_t crc, void *to, const void *from, size_t len)
{
	return copy(crc, to, from, len);
}

const char *crc32c_implementation(void)
{
	return update_name;
}
