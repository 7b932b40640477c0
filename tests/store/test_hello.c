// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_hello.c - partition names, and the private data of connection requests and replies.
 */
#include "room.h"

#include "dice.h"
#include "store/endpoint.h"

static void expect_local(const char *text, const char *path, const char *partition)
{
	struct where w;

	assert_int_equal(where_parse(text, &w), 0);
	assert_true(w.local);
	assert_string_equal(w.path, path);
	assert_string_equal(w.partition, partition);
}

static void expect_remote(const char *text, const char *host, uint16_t port, const char *partition)
{
	struct where w;

	assert_int_equal(where_parse(text, &w), 0);
	assert_false(w.local);
	assert_string_equal(w.host, host);
	assert_int_equal(w.port, port);
	assert_string_equal(w.partition, partition);
}

static void valid_names_are_parsed(void **state)
{
	expect_local("/srv/shop.img:goods", "/srv/shop.img", "goods");
	expect_local("./shop:img:goods", "./shop:img", "goods");
	expect_local("mem:shop:goods", "mem:shop", "goods");
	expect_remote("shop/goods", "shop", STAG_STORE_PORT, "goods");
	expect_remote("10.0.0.1:80/goods", "10.0.0.1", 80, "goods");
	expect_remote("[fe80::1]/goods", "fe80::1", STAG_STORE_PORT, "goods");
	expect_remote("[::1]:65535/goods", "::1", 65535, "goods");
}

static void invalid_names_are_refused(void **state)
{
	static const char *const bad[] = {
		"",	      "goods",	     ":goods",	      "/goods",	      "shop.img:goods",
		"/srv/shop:", "host/",	     "host:/goods",   "host:0/goods", "host:65536/goods",
		"host:x/g",   "::1/goods",   "[::1/goods",    "[::1]x/goods", "[]/goods",
		"/srv/goods", "host/go ods", "host:1:2/goods"};
	char lengthy[WHERE_MAX + 64];
	struct where w;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		if (where_parse(bad[i], &w) != -EINVAL)
			fail_msg("'%s' is accepted", bad[i]);
	assert_int_equal(where_parse(NULL, &w), -EINVAL);
	memset(lengthy, 'x', sizeof(lengthy));
	memcpy(lengthy + sizeof(lengthy) - 6, "/goods", 6);
	lengthy[sizeof(lengthy) - 1] = 0;
	assert_int_equal(where_parse(lengthy, &w), -EINVAL);
	lengthy[0] = '/';
	lengthy[sizeof(lengthy) - 6] = ':';
	assert_int_equal(where_parse(lengthy, &w), -EINVAL);
}

/* printf goods | sha256sum */
static const uint8_t mark_of_goods[] = {0x08, 0x98, 0x57, 0xf9, 0xc4, 0x07, 0x94, 0x17,
					0x15, 0xfa, 0xed, 0x7f, 0x73, 0x21, 0xa5};

static void a_hello_is_parsed(void **state)
{
	struct stag_store_hello sent, got;
	const uint8_t *shown;
	uint8_t token[32] = {1};

	assert_int_equal(hello_make(&sent, "goods", NULL), 0);
	assert_int_equal(hello_read(&sent, sizeof(sent), &got, &shown), 0);
	assert_memory_equal(got.partition, mark_of_goods, sizeof(got.partition));
	assert_null(shown);
	assert_int_equal(hello_make(&sent, "goods", token), 0);
	assert_int_equal(hello_read(&sent, sizeof(sent), &got, &shown), 0);
	assert_memory_equal(shown, token, sizeof(token));
}

/* Tries each length and each changed byte: the message is parsed as its bytes say, or rejected. */
static void a_damaged_hello_is_rejected(void **state)
{
	struct stag_store_hello sent, got;
	const uint8_t *shown;
	uint8_t *bytes = (uint8_t *)&sent;

	assert_int_equal(hello_make(&sent, "goods", NULL), 0);
	assert_int_equal(hello_read(NULL, 0, &got, &shown), -EPROTO);
	for (size_t len = 0; len < sizeof(sent); len++)
		assert_int_equal(hello_read(&sent, len, &got, &shown), -EPROTO);
	for (size_t i = 0; i < offsetof(struct stag_store_hello, token); i++)
		for (unsigned int flip = 1; flip < 256; flip++) {
			bytes[i] ^= (uint8_t)flip;
			if (hello_read(&sent, sizeof(sent), &got, &shown) == 0)
				assert_true(i >= offsetof(struct stag_store_hello, partition));
			bytes[i] ^= (uint8_t)flip;
		}
}

static void an_invalid_welcome_is_rejected(void **state)
{
	struct stag_store_endpoint e = {.rkey = 77,
					.size = MIB,
					.relax = STORE_ALL_RELAX,
					.level = STAG_STORE_DURABLE,
					.access = STAG_STORE_READ,
					.block = 512},
				   got = {0};
	struct stag_store_welcome w;
	uint8_t *bytes = (uint8_t *)&w;

	welcome_make(&w, &e);
	assert_int_equal(welcome_read(&w, sizeof(w), &got), 0);
	assert_memory_equal(&e, &got, sizeof(e));
	for (size_t len = 0; len < sizeof(w); len++)
		assert_int_equal(welcome_read(&w, len, &got), -EPROTO);
	for (unsigned long n = lessened(20000); n > 0; n--) {
		welcome_make(&w, &e);
		bytes[dice(sizeof(w))] = (uint8_t)dice(256);
		bytes[dice(sizeof(w))] = (uint8_t)dice(256);
		if (welcome_read(&w, sizeof(w), &got) != 0)
			continue;
		assert_in_range(got.access, STAG_STORE_NONE, STAG_STORE_WRITE);
		assert_in_range(got.level, STAG_STORE_VISIBLE, STAG_STORE_DURABLE);
		assert_true(got.base + got.size >= got.base);
		assert_in_range(got.block, STORE_BLOCK_MIN, STORE_BLOCK_MAX);
	}
}

static void a_refusal_has_a_reason(void **state)
{
	static const int errors[] = {[REFUSED_RIGHT] = -EACCES,
				     [REFUSED_NAME] = -ENOENT,
				     [REFUSED_PROTOCOL] = -EPROTO,
				     [REFUSED_FULL] = -ECONNREFUSED,
				     [REFUSED_FAULT] = -EIO};
	struct stag_store_refusal r;

	for (int i = REFUSED_RIGHT; i <= REFUSED_FAULT; i++) {
		refusal_make(&r, (enum refusal)i);
		assert_int_equal(refusal_read(&r, sizeof(r), "shop/goods"), errors[i]);
	}
	assert_int_equal(refusal_read(&r, sizeof(r) - 1, "shop/goods"), -ECONNREFUSED);
	assert_int_equal(refusal_read(NULL, 0, "shop/goods"), -ECONNREFUSED);
	r.reason = 200;
	assert_int_equal(refusal_read(&r, sizeof(r), "shop/goods"), -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(valid_names_are_parsed),
		cmocka_unit_test(invalid_names_are_refused),
		cmocka_unit_test(a_hello_is_parsed),
		cmocka_unit_test(a_damaged_hello_is_rejected),
		cmocka_unit_test(an_invalid_welcome_is_rejected),
		cmocka_unit_test(a_refusal_has_a_reason),
	};

	dice_start();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
