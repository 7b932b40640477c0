// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_format.c - what can be formatted as a store, what is refused, and which existing contents
 * are recognised.
 */
#include "room.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/loop.h>

static int clear(void **state)
{
	room_clear();
	return 0;
}

static int format(const char *path, uint64_t size, uint32_t block, unsigned int flags)
{
	struct stag_store_attr attr = {.size = size, .block = block};

	return stag_store_format(path, &attr, flags);
}

/* ---- formatting ------------------------------------------------------------------- */

static void a_new_file_becomes_a_store(void **state)
{
	const char *path = room_path("new");
	struct stag_store_attr attr = {.size = 10 * MIB, .label = "shop"};
	struct stag_store_info info;
	struct stag_store *store;
	struct stat st;

	assert_int_equal(stag_store_format(path, &attr, 0), 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 10 * MIB);
	assert_int_equal(st.st_mode & 0777, 0600);
	store = open_store(path);
	assert_int_equal(stag_store_query(store, &info, sizeof(info)), 0);
	assert_string_equal(info.label, "shop");
	assert_int_equal(info.size, 10 * MIB);
	assert_int_equal(info.present, 10 * MIB);
	assert_int_equal(info.used, 0);
	assert_int_equal(info.largest_gap, 8 * MIB);
	assert_int_equal(info.generation, 1);
	assert_int_equal(info.block, 4096);
	assert_int_equal(info.version, 1);
	assert_int_equal(info.num_partitions, 0);
	assert_int_equal(info.copies, 2);
	assert_int_equal(info.owner, geteuid());
	assert_int_equal(info.served_by, 0);
	assert_int_equal(info.uuid[6] >> 4, 4);
	stag_store_close(store);
}

static void memory_becomes_a_store(void **state)
{
	char name[64], path[96];
	struct stag_store *store;

	snprintf(name, sizeof(name), "mem:test.%d", (int)getpid());
	snprintf(path, sizeof(path), "/dev/shm/stag-%u/store.test.%d", geteuid(), (int)getpid());
	assert_int_equal(format(name, 4 * MIB, 0, 0), 0);
	store = open_store(name);
	add(store, "p", 64 * KIB);
	stag_store_close(store);
	assert_int_equal(stag_store_check(name, 0, NULL), 0);
	assert_int_equal(stag_store_check(path, 0, NULL), 0);
	unlink(path);
	assert_int_equal(format("mem:", 4 * MIB, 0, 0), EINVAL);
	assert_int_equal(format("mem:a/b", 4 * MIB, 0, 0), EINVAL);
	assert_int_equal(format("mem:0/a/b", 4 * MIB, 0, 0), EINVAL);
}

/* Strangers make files in /dev/shm before us; in our directory only we can. */
static void a_file_that_a_stranger_made_is_no_store_of_ours(void **state)
{
	char name[64], path[96];

	snprintf(name, sizeof(name), "mem:test.%d", (int)getpid());
	snprintf(path, sizeof(path), "/dev/shm/stag-store.test.%d", (int)getpid());
	make_file(path, 8 * MIB);
	if (geteuid() == 0)
		assert_int_equal(chown(path, 65534, 65534), 0);
	assert_int_equal(format(name, 4 * MIB, 0, 0), 0);
	assert_int_equal(unlink(path), 0);
	stag_store_close(open_store(name)); /* it is not there */
	snprintf(path, sizeof(path), "/dev/shm/stag-%u/store.test.%d", geteuid(), (int)getpid());
	assert_int_equal(unlink(path), 0);
}

static void expect_no_store(const char *name)
{
	assert_null(stag_store_open(name, 0));
	assert_int_equal(errno, EACCES);
	assert_non_null(strstr(stag_store_error(), "is no file of user"));
}

static void memory_that_belongs_to_others_too_does_not_open(void **state)
{
	char name[64], full[64], path[96], other[112];

	snprintf(name, sizeof(name), "mem:test.%d", (int)getpid());
	snprintf(full, sizeof(full), "mem:%u/test.%d", geteuid(), (int)getpid());
	snprintf(path, sizeof(path), "/dev/shm/stag-%u/store.test.%d", geteuid(), (int)getpid());
	snprintf(other, sizeof(other), "%s.other", path);
	assert_int_equal(format(full, 4 * MIB, 0, 0), 0);
	stag_store_close(open_store(name));
	assert_int_equal(link(path, other), 0);
	expect_no_store(name);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(symlink(other, path), 0);
	assert_null(stag_store_open(name, 0));
	assert_int_equal(rename(other, path), 0);
	stag_store_close(open_store(full));
	if (geteuid() == 0) {
		assert_int_equal(chown(path, 65534, 65534), 0);
		expect_no_store(name);
	}
	assert_int_equal(unlink(path), 0);
}

static void an_existing_file_is_used_whole_or_in_part(void **state)
{
	const char *path = room_path("there");
	struct stag_store_info info;
	struct stag_store *store;

	make_file(path, 6 * MIB + 1000);
	assert_int_equal(format(path, 0, 0, 0), 0);
	store = open_store(path);
	stag_store_query(store, &info, sizeof(info));
	assert_int_equal(info.size, 6 * MIB);
	assert_int_equal(info.present, 6 * MIB + 1000);
	stag_store_close(store);
	assert_int_equal(format(path, 3 * MIB, 65536, STAG_STORE_FORCE), 0);
	store = open_store(path);
	stag_store_query(store, &info, sizeof(info));
	assert_int_equal(info.size, 3 * MIB);
	stag_store_close(store);
	assert_int_equal(format(path, 9 * MIB, 512, STAG_STORE_FORCE), 0);
	store = open_store(path);
	stag_store_query(store, &info, sizeof(info));
	assert_int_equal(info.present, 9 * MIB);
	stag_store_close(store);
}

static void an_older_caller_gets_the_shorter_struct_it_knows(void **state)
{
	const char *path = room_path("short");
	struct stag_store_info info;
	struct stag_store *store;

	make_store(path, 4 * MIB, 0);
	store = open_store(path);
	memset(&info, 0x55, sizeof(info));
	assert_int_equal(stag_store_query(store, &info, offsetof(struct stag_store_info, size)), 0);
	assert_int_equal(info.comp_mask, 0);
	assert_int_equal(info.size, 0x5555555555555555);
	stag_store_close(store);
}

/* ---- invalid arguments -------------------------------------------------------------- */

static void invalid_geometry_is_refused(void **state)
{
	static const struct {
		uint64_t size;
		uint32_t block;
		const char *words;
	} cases[] = {
		{4 * MIB, 256, "a power of two"},    {4 * MIB, 1000, "a power of two"},
		{4 * MIB, 131072, "a power of two"}, {4 * MIB, 4095, "a power of two"},
		{0, 4096, "specify its size"},	     {1, 512, "a multiple"},
		{4 * MIB + 100, 512, "a multiple"},  {512, 512, "too small"},
		{2 * MIB, 512, "too small"},	     {1ull << 63, 4096, "a multiple"},
	};
	const char *path = room_path("impossible");

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(format(path, cases[i].size, cases[i].block, 0), EINVAL);
		assert_says(cases[i].words);
		assert_int_equal(access(path, F_OK), -1);
	}
	assert_int_equal(format(path, 2 * MIB + 512, 512, 0), 0);
}

static void wrong_arguments_are_refused(void **state)
{
	struct stag_store_attr attr = {.size = 4 * MIB};

	assert_int_equal(stag_store_format("", &attr, 0), EINVAL);
	assert_int_equal(stag_store_format(NULL, &attr, 0), EINVAL);
	assert_int_equal(stag_store_format(room_path("x"), NULL, 0), EINVAL);
	assert_int_equal(stag_store_format(room_path("x"), &attr, STAG_STORE_LOOK), EINVAL);
	snprintf(attr.label, sizeof(attr.label), "a b");
	assert_int_equal(stag_store_format(room_path("x"), &attr, 0), EINVAL);
	memset(attr.label, 'a', sizeof(attr.label));
	assert_int_equal(stag_store_format(room_path("x"), &attr, 0), EINVAL);
	attr.label[0] = '\0';
	attr.comp_mask = 1;
	assert_int_equal(stag_store_format(room_path("x"), &attr, 0), EINVAL);
	attr.comp_mask = 0;
	assert_int_equal(stag_store_format("/dev/null", &attr, STAG_STORE_FORCE), EINVAL);
	assert_says("neither a file nor a block device");
	assert_int_equal(stag_store_format("/dev/shm", &attr, STAG_STORE_FORCE), EISDIR);
	assert_int_equal(stag_store_format(room_path("no/x"), &attr, 0), ENOENT);
	mkfifo(room_path("pipe"), 0600);
	assert_int_equal(stag_store_format(room_path("pipe"), &attr, 0), EINVAL);
	assert_null(stag_store_open(room_path("pipe"), 0));
	assert_int_equal(errno, EINVAL);
}

static void a_file_that_is_no_store_does_not_open(void **state)
{
	const char *path = room_path("none");

	assert_null(stag_store_open(path, 0));
	assert_int_equal(errno, ENOENT);
	make_file(path, 0);
	assert_null(stag_store_open(path, 0));
	assert_int_equal(errno, EPROTO);
	assert_says("is no store; 'stag store format'");
	make_file(path, 4 * MIB);
	assert_null(stag_store_open(path, STAG_STORE_LOOK));
	assert_int_equal(errno, EPROTO);
	assert_int_equal(stag_store_check(path, STAG_STORE_REPAIR, NULL), -EPROTO);
	assert_true(is_zero_at(path, 0, 4 * MIB));
	assert_null(stag_store_open(path, STAG_STORE_FORCE));
	assert_int_equal(errno, EINVAL);
}

/* ---- existing contents ------------------------------------------------------------------ */

static void make_with_command(const char *command, const char *path)
{
	char line[512];

	make_file(path, 8 * MIB);
	snprintf(line, sizeof(line), "PATH=$PATH:/sbin:/usr/sbin; %s %s >/dev/null 2>&1", command,
		 path);
	if (system(line) != 0)
		fail_msg("%s", line);
}

/*
 * Checks that the contents are recognised, named and not changed; and that force overwrites them.
 */
static void expect_refused(const char *path, const char *words)
{
	uint8_t *before = malloc(8 * MIB), *after = malloc(8 * MIB);

	assert_true(before && after);
	get_bytes(path, 0, before, 8 * MIB);
	assert_int_equal(format(path, 0, 0, 0), EEXIST);
	assert_says(words);
	assert_says(path);
	get_bytes(path, 0, after, 8 * MIB);
	assert_memory_equal(before, after, 8 * MIB);
	free(before);
	free(after);
	assert_int_equal(format(path, 0, 0, STAG_STORE_FORCE), 0);
	assert_int_equal(stag_store_check(path, 0, NULL), 0);
	assert_int_equal(format(path, 0, 0, 0), EEXIST);
	assert_says("holds a store already");
}

static void an_existing_file_system_is_recognised(void **state)
{
	make_with_command("mkfs.ext4 -q -L photos", room_path("ext4"));
	expect_refused(room_path("ext4"), "holds a file system (ext4, label photos)");
}

static void existing_swap_space_is_recognised(void **state)
{
	make_with_command("mkswap", room_path("swap"));
	expect_refused(room_path("swap"), "holds swap space");
}

static void an_existing_encrypted_volume_is_recognised(void **state)
{
	static const char luks[] = "LUKS\xba\xbe\0\1";

	make_file(room_path("luks"), 8 * MIB);
	put_bytes(room_path("luks"), 0, luks, 8);
	put_bytes(room_path("luks"), 168, "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee", 36);
	expect_refused(room_path("luks"), "holds an encrypted volume (crypto_LUKS)");
}

static uint32_t crc32(const uint8_t *p, size_t len)
{
	uint32_t crc = ~0u;

	while (len-- > 0) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
	}
	return ~crc;
}

/*
 * Writes a GPT header at sector 1 or at the end, as UEFI specifies (§5.3), with room for 128
 * entries.
 */
static void put_gpt(const char *path, uint64_t at, uint64_t other, uint64_t entries, uint64_t last)
{
	uint8_t h[512] = "EFI PART\0\0\1\0\x5c\0\0", none[128 * 128] = {0};
	uint32_t word;
	uint64_t first = 34, usable = last - 33;

	memcpy(h + 24, &at, 8);
	memcpy(h + 32, &other, 8);
	memcpy(h + 40, &first, 8);
	memcpy(h + 48, &usable, 8);
	memset(h + 56, 0x77, 16);
	memcpy(h + 72, &entries, 8);
	h[80] = h[84] = 128;
	word = crc32(none, sizeof(none));
	memcpy(h + 88, &word, 4);
	word = crc32(h, 92);
	memcpy(h + 16, &word, 4);
	put_bytes(path, at * 512, h, sizeof(h));
}

static void make_gpt(const char *path)
{
	uint8_t mbr[66] = {0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0x3f};
	uint64_t last = 8 * MIB / 512 - 1;

	make_file(path, 8 * MIB);
	mbr[64] = 0x55;
	mbr[65] = 0xaa;
	put_bytes(path, 446, mbr, sizeof(mbr));
	put_gpt(path, 1, last, 2, last);
	put_gpt(path, last, 1, last - 32, last);
}

static void an_existing_partition_table_is_recognised(void **state)
{
	make_gpt(room_path("gpt"));
	expect_refused(room_path("gpt"), "holds a partition table (gpt)");
	assert_true(is_zero_at(room_path("gpt"), 8 * MIB - 512, 8)); /* its backup at the end */
}

static void existing_data_of_an_unknown_kind_is_recognised(void **state)
{
	const char *path = room_path("data");

	make_file(path, 8 * MIB);
	put_bytes(path, 777777, "x", 1);
	expect_refused(path, "from byte 777777 on");
	make_file(path, 8 * MIB);
	put_bytes(path, 2 * MIB - 1, "x", 1);
	expect_refused(path, "from byte 2097151 on");
	make_file(path, 100);
	put_bytes(path, 99, "x", 1);
	assert_int_equal(format(path, 4 * MIB, 0, 0), EEXIST);
	assert_says("from byte 99 on");
}

static void an_existing_store_is_recognised(void **state)
{
	const char *path = room_path("store");
	struct stag_store_attr attr = {.size = 8 * MIB, .label = "shop"};
	struct stag_store *store;

	assert_int_equal(stag_store_format(path, &attr, 0), 0);
	store = open_store(path);
	add(store, "goods", MIB);
	add(store, "people", MIB);
	assert_int_equal(stag_store_format(path, &attr, 0), EEXIST);
	assert_says("holds a store already: shop, with 2 partitions, the first is goods");
	flip_byte(path, 100);
	assert_int_equal(stag_store_format(path, &attr, 0), EEXIST);
	assert_says("holds a store already");
	flip_byte(path, MIB + 100);
	assert_int_equal(stag_store_format(path, &attr, 0), EEXIST);
	assert_says("damaged");
	assert_int_equal(stag_store_format(path, &attr, STAG_STORE_FORCE), 0);
	assert_int_equal(stag_store_query(store, &(struct stag_store_info){0}, 8), ESTALE);
	assert_says("is another store");
	assert_int_equal(try_add(store, "late", MIB, 0, 0), ESTALE);
	stag_store_close(store);
}

static void a_store_in_use_is_not_formatted(void **state)
{
	const char *path = room_path("used");
	struct stag_store_partition p;
	struct stag_store *store;
	int fd;

	make_store(path, 8 * MIB, 0);
	store = open_store(path);
	p = add(store, "p", MIB);
	fd = store_use(store, p.id, &p);
	assert_true(fd >= 0);
	assert_int_equal(format(path, 0, 0, STAG_STORE_FORCE), EBUSY);
	assert_says("partitions in use");
	close(fd);
	fd = store_serve_lock(store);
	assert_true(fd >= 0);
	assert_int_equal(format(path, 0, 0, STAG_STORE_FORCE), EBUSY);
	assert_says("serves");
	close(fd);
	assert_int_equal(count(store), 1);
	assert_int_equal(format(path, 0, 0, STAG_STORE_FORCE), 0);
	stag_store_close(store);
}

/* A block target locks the file that it serves (flock(2)), even if it only reads it. */
static void a_file_that_a_target_serves_is_never_overwritten(void **state)
{
	static const int modes[] = {LOCK_EX, LOCK_SH};
	const char *path = room_path("unit");

	make_file(path, 8 * MIB);
	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		assert_int_equal(flock(fd, modes[i] | LOCK_NB), 0);
		assert_int_equal(format(path, 0, 0, 0), EBUSY);
		assert_int_equal(format(path, 0, 0, STAG_STORE_FORCE), EBUSY);
		assert_says("another process has it locked");
		close(fd);
	}
	assert_int_equal(format(path, 0, 0, 0), 0);
}

/* ---- devices ---------------------------------------------------------------------------- */

/* Attaches a loop device, which is detached at its last close. */
static int attach_loop(const char *file, uint32_t sector, char device[32])
{
	struct loop_config config = {.block_size = sector, .info.lo_flags = LO_FLAGS_AUTOCLEAR};
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), loop, n;

	if (control < 0)
		return -1;
	n = ioctl(control, LOOP_CTL_GET_FREE);
	close(control);
	snprintf(device, 32, "/dev/loop%d", n);
	loop = n < 0 ? -1 : open(device, O_RDWR | O_CLOEXEC);
	if (loop < 0)
		return -1;
	config.fd = (uint32_t)open(file, O_RDWR | O_CLOEXEC);
	if (ioctl(loop, LOOP_CONFIGURE, &config) != 0) {
		close(loop);
		loop = -1;
	}
	close((int)config.fd);
	return loop;
}

static void a_block_device_becomes_a_store(void **state)
{
	const char *file = room_path("disk");
	struct stag_store *store;
	struct stag_store_partition p;
	char device[32];
	int loop, held;

	make_file(file, 8 * MIB);
	loop = attach_loop(file, 512, device);
	if (loop < 0)
		skip();
	put_bytes(device, 3 * MIB, "old", 3);
	assert_int_equal(format(device, 9 * MIB, 0, 0), ENOSPC);
	assert_says("the device has 8388608 bytes");
	held = open(device, O_RDONLY | O_EXCL | O_CLOEXEC);
	assert_int_equal(format(device, 0, 0, STAG_STORE_FORCE), EBUSY);
	assert_says("in use by the system");
	close(held);
	assert_int_equal(format(device, 0, 0, 0), 0);
	store = open_store(device);
	p = add(store, "p", 6 * MIB);
	assert_true(is_zero_at(device, p.offset, p.size));
	put_bytes(device, 3 * MIB, "new", 3);
	assert_int_equal(stag_store_grow(store, 0), 0);
	assert_int_equal(stag_store_grow(store, 16 * MIB), ENOSPC);
	assert_int_equal(stag_store_remove(store, "p", 0), ENOTEMPTY);
	assert_int_equal(stag_store_remove(store, "p", STAG_STORE_FORCE), 0);
	add(store, "q", 6 * MIB);
	assert_true(is_zero_at(device, p.offset, p.size));
	stag_store_close(store);
	assert_int_equal(stag_store_check(device, 0, NULL), 0);
	close(loop);
}

static void a_block_size_below_the_sector_size_is_refused(void **state)
{
	struct stag_store_info info;
	struct stag_store *store;
	char device[32];
	int loop;

	make_file(room_path("4kn"), 8 * MIB);
	loop = attach_loop(room_path("4kn"), 4096, device);
	if (loop < 0)
		skip();
	assert_int_equal(format(device, 0, 512, 0), EINVAL);
	assert_says("less than the device's sector size, 4096");
	assert_int_equal(format(device, 0, 0, 0), 0);
	store = open_store(device);
	assert_int_equal(stag_store_query(store, &info, sizeof(info)), 0);
	assert_int_equal(info.block, 4096);
	stag_store_close(store);
	close(loop);
}

static void control_characters_of_a_label_are_not_printed(void **state)
{
	make_with_command("mkfs.ext4 -q -L $(printf 'a\\033[2Jb')", room_path("rude"));
	assert_int_equal(format(room_path("rude"), 0, 0, 0), EEXIST);
	assert_says("label a?[2Jb");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_new_file_becomes_a_store, clear),
		cmocka_unit_test_setup(memory_becomes_a_store, clear),
		cmocka_unit_test_setup(a_file_that_a_stranger_made_is_no_store_of_ours, clear),
		cmocka_unit_test_setup(memory_that_belongs_to_others_too_does_not_open, clear),
		cmocka_unit_test_setup(an_existing_file_is_used_whole_or_in_part, clear),
		cmocka_unit_test_setup(an_older_caller_gets_the_shorter_struct_it_knows, clear),
		cmocka_unit_test_setup(invalid_geometry_is_refused, clear),
		cmocka_unit_test_setup(wrong_arguments_are_refused, clear),
		cmocka_unit_test_setup(a_file_that_is_no_store_does_not_open, clear),
		cmocka_unit_test_setup(an_existing_file_system_is_recognised, clear),
		cmocka_unit_test_setup(existing_swap_space_is_recognised, clear),
		cmocka_unit_test_setup(an_existing_encrypted_volume_is_recognised, clear),
		cmocka_unit_test_setup(an_existing_partition_table_is_recognised, clear),
		cmocka_unit_test_setup(existing_data_of_an_unknown_kind_is_recognised, clear),
		cmocka_unit_test_setup(an_existing_store_is_recognised, clear),
		cmocka_unit_test_setup(a_store_in_use_is_not_formatted, clear),
		cmocka_unit_test_setup(a_file_that_a_target_serves_is_never_overwritten, clear),
		cmocka_unit_test_setup(a_block_device_becomes_a_store, clear),
		cmocka_unit_test_setup(a_block_size_below_the_sector_size_is_refused, clear),
		cmocka_unit_test_setup(control_characters_of_a_label_are_not_printed, clear),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
