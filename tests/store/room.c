// SPDX-License-Identifier: BSD-2-Clause
/*
 * room.c - helpers for tests of the store: see room.h.
 */
#include "room.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64];
static pid_t maker;

void room_clear(void)
{
	DIR *dir = opendir(folder);
	const struct dirent *e;

	while (dir && (e = readdir(dir)))
		if (e->d_name[0] != '.')
			unlinkat(dirfd(dir), e->d_name, 0);
	if (dir)
		closedir(dir);
}

static void remove_folder(void)
{
	if (getpid() != maker)
		return;
	room_clear();
	rmdir(folder);
}

const char *room_path(const char *name)
{
	static char paths[8][PATH_MAX];
	static unsigned int next;
	char *path = paths[next++ % 8];

	if (!folder[0]) {
		snprintf(folder, sizeof(folder), "/dev/shm/stag-test.XXXXXX");
		assert_non_null(mkdtemp(folder));
		maker = getpid();
		atexit(remove_folder);
	}
	snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
	return path;
}

void make_file(const char *path, uint64_t size)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	close(fd);
}

void put_bytes(const char *path, uint64_t offset, const void *bytes, size_t len)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, (off_t)offset), len);
	close(fd);
}

void get_bytes(const char *path, uint64_t offset, void *bytes, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, bytes, len, (off_t)offset), len);
	close(fd);
}

void flip_byte(const char *path, uint64_t offset)
{
	uint8_t byte;

	get_bytes(path, offset, &byte, 1);
	byte ^= 0x41;
	put_bytes(path, offset, &byte, 1);
}

bool is_zero_at(const char *path, uint64_t offset, uint64_t len)
{
	uint8_t *bytes = malloc(len);
	bool zero = true;

	assert_non_null(bytes);
	get_bytes(path, offset, bytes, len);
	for (uint64_t i = 0; i < len && zero; i++)
		zero = bytes[i] == 0;
	free(bytes);
	return zero;
}

void make_store(const char *path, uint64_t size, uint32_t block)
{
	struct stag_store_attr attr = {.size = size, .block = block};

	if (stag_store_format(path, &attr, STAG_STORE_FORCE) != 0)
		fail_msg("%s", stag_store_error());
}

struct stag_store *open_store(const char *path)
{
	struct stag_store *store = stag_store_open(path, 0);

	if (!store)
		fail_msg("%s", stag_store_error());
	return store;
}

int try_add(struct stag_store *store, const char *name, uint64_t size, uint64_t offset,
	    uint64_t alignment)
{
	struct stag_store_partition p = {.size = size, .offset = offset, .alignment = alignment};

	snprintf(p.name, sizeof(p.name), "%s", name);
	return stag_store_add(store, &p);
}

struct stag_store_partition add(struct stag_store *store, const char *name, uint64_t size)
{
	if (try_add(store, name, size, 0, 0) != 0)
		fail_msg("%s", stag_store_error());
	return find(store, name);
}

struct stag_store_partition find(struct stag_store *store, const char *name)
{
	struct stag_store_partition p;

	if (stag_store_find(store, name, &p) != 0)
		fail_msg("%s", stag_store_error());
	return p;
}

uint32_t count(struct stag_store *store)
{
	struct stag_store_info info;

	assert_int_equal(stag_store_query(store, &info, sizeof(info)), 0);
	return info.num_partitions;
}

void assert_says(const char *words)
{
	if (!strstr(stag_store_error(), words))
		fail_msg("the error \"%s\" does not contain \"%s\"", stag_store_error(), words);
}

void assert_same_partition(const struct stag_store_partition *a,
			   const struct stag_store_partition *b)
{
	assert_string_equal(a->name, b->name);
	assert_memory_equal(a, b, sizeof(*a));
}

bool is_same_table(const struct table *a, const struct table *b)
{
	return memcmp(a->uuid, b->uuid, sizeof(a->uuid)) == 0 && a->size == b->size &&
	       a->next_id == b->next_id && a->block == b->block && a->owner == b->owner &&
	       strcmp(a->label, b->label) == 0 && a->n == b->n &&
	       memcmp(a->entries, b->entries, a->n * sizeof(a->entries[0])) == 0;
}
