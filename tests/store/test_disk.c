// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_disk.c - the bytes on disk are those that docs/STORE-FORMAT.md specifies.
 */
#include "room.h"

#include <stdlib.h>

#include "base/crc32c.h"

static struct table table, again;
static uint8_t image[DISK_IMAGE_MAX];

static uint32_t le32(size_t at)
{
	return (uint32_t)image[at] | (uint32_t)image[at + 1] << 8 | (uint32_t)image[at + 2] << 16 |
	       (uint32_t)image[at + 3] << 24;
}

static uint64_t le64(size_t at)
{
	return le32(at) | (uint64_t)le32(at + 4) << 32;
}

static int prepare(void **state)
{
	struct stag_store_partition *p = &table.entries[0];

	memset(&table, 0, sizeof(table));
	for (int i = 0; i < 16; i++)
		table.uuid[i] = (uint8_t)i;
	table.generation = 7;
	table.size = 8 * MIB;
	table.block = 4096;
	table.owner = 1000;
	table.next_id = 9;
	table.n = 2;
	memcpy(table.label, "shop", 5);
	*p = (struct stag_store_partition){.id = 3,
					   .name = "log",
					   .offset = 3 * MIB,
					   .size = 4096,
					   .alignment = 4096,
					   .relax = 31,
					   .level = STAG_STORE_DURABLE,
					   .cache_ms = 500,
					   .num_rights = 3};
	p->rights[0] =
		(struct stag_store_right){.who = STAG_STORE_USER, .access = 2, .id = 0x01020304};
	p->rights[1] = (struct stag_store_right){.who = STAG_STORE_NET,
						 .access = 1,
						 .family = AF_INET6,
						 .prefix = 32,
						 .address = {0x20, 0x01, 0x0d, 0xb8}};
	p->rights[2] = (struct stag_store_right){.who = STAG_STORE_TOKEN, .access = 2};
	for (int i = 0; i < 32; i++)
		p->rights[2].token[i] = (uint8_t)i;
	table.entries[1] = (struct stag_store_partition){
		.id = 8, .name = "goods", .offset = 4 * MIB, .size = MIB, .alignment = 8192};
	memset(image, 0x55, sizeof(image));
	return 0;
}

static void every_field_is_in_its_place(void **state)
{
	static const uint8_t net[8] = {4, 1, 6, 32, 0, 0, 0, 0};

	assert_int_equal(disk_encode(&table, 1, image), 4096 + 2 * 1408);
	assert_memory_equal(image, "StagStor", 8);
	assert_int_equal(le32(8), 1);
	assert_int_equal(le32(12), 0);
	assert_memory_equal(image + 16, table.uuid, 16);
	assert_int_equal(le64(32), 7);
	assert_int_equal(le64(40), 8 * MIB);
	assert_int_equal(le32(48), 4096);
	assert_int_equal(le32(52), 1000);
	assert_string_equal((char *)image + 56, "shop");
	assert_int_equal(le64(120), 9);
	assert_int_equal(le32(128), 2);
	assert_int_equal(le32(132), 1408);
	assert_int_equal(le32(136), 2816);
	assert_int_equal(le32(144), 1);
	assert_int_equal(le64(4096), 3);
	assert_string_equal((char *)image + 4096 + 8, "log");
	assert_int_equal(le64(4096 + 72), 3 * MIB);
	assert_int_equal(le64(4096 + 80), 4096);
	assert_int_equal(le64(4096 + 88), 4096);
	assert_int_equal(le32(4096 + 96), 31);
	assert_int_equal(le32(4096 + 100), 2);
	assert_int_equal(le32(4096 + 104), 500);
	assert_int_equal(le32(4096 + 108), 3);
	assert_int_equal(le32(4096 + 128 + 4), 0x01020304);
	assert_memory_equal(image + 4096 + 128 + 40, net, 8);
	assert_memory_equal(image + 4096 + 128 + 48, table.entries[0].rights[1].address, 16);
	assert_memory_equal(image + 4096 + 128 + 88, table.entries[0].rights[2].token, 32);
	assert_int_equal(le64(4096 + 1408), 8);
	assert_int_equal(image[sizeof(image) - 1], 0x55);
}

/* Expected values computed by another program from the document. */
static void the_bytes_are_those_of_version_1(void **state)
{
	size_t len = disk_encode(&table, 1, image);

	assert_int_equal(le32(140), 0x171e7b4d);
	assert_int_equal(le32(4092), 0x1d900a68);
	assert_int_equal(~crc32c_update(CRC32C_INIT, image + 4096, len - 4096) & UINT32_MAX,
			 le32(140));
}

static void an_encoded_table_is_decoded_unchanged(void **state)
{
	for (unsigned int copy = 0; copy < 2; copy++) {
		size_t len = disk_encode(&table, copy, image);

		assert_int_equal(disk_decode(image, len, copy, &again), 0);
		assert_true(table_is_same(&table, &again));
		assert_int_equal(disk_decode(image, len, 1 - copy, &again), -EBADMSG);
		assert_int_equal(disk_decode(image, len - 1, copy, &again), -EBADMSG);
		assert_int_equal(disk_decode(image, 4095, copy, &again), -ENODATA);
	}
}

static void a_damaged_server_record_is_rejected(void **state)
{
	uint8_t record[16];

	disk_put_server(record, 4711);
	assert_int_equal(disk_get_server(record), 4711);
	for (size_t i = 0; i < sizeof(record); i++) {
		record[i] ^= 4;
		assert_int_equal(disk_get_server(record), 0);
		record[i] ^= 4;
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(every_field_is_in_its_place, prepare),
		cmocka_unit_test_setup(the_bytes_are_those_of_version_1, prepare),
		cmocka_unit_test_setup(an_encoded_table_is_decoded_unchanged, prepare),
		cmocka_unit_test(a_damaged_server_record_is_rejected),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
