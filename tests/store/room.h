/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * room.h - helpers that the tests of the store share: a folder in memory for the stores, and short
 * names for common calls.
 */
#ifndef STAG_TEST_STORE_ROOM_H
#define STAG_TEST_STORE_ROOM_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "store/store.h"

#define KIB   1024ull
#define MIB   (1024ull * KIB)
#define START STAG_STORE_DATA_OFFSET

/* The folder is removed when the program ends. */
/* Path of a file in it; eight results stay valid at once. */
const char *room_path(const char *name);
void room_clear(void); /* removes all files in it */

void make_file(const char *path, uint64_t size);
void put_bytes(const char *path, uint64_t offset, const void *bytes, size_t len);
void get_bytes(const char *path, uint64_t offset, void *bytes, size_t len);
void flip_byte(const char *path, uint64_t offset);
bool is_zero_at(const char *path, uint64_t offset, uint64_t len);

void make_store(const char *path, uint64_t size, uint32_t block);
struct stag_store *open_store(const char *path);
struct stag_store_partition add(struct stag_store *store, const char *name, uint64_t size);
int try_add(struct stag_store *store, const char *name, uint64_t size, uint64_t offset,
	    uint64_t alignment);
struct stag_store_partition find(struct stag_store *store, const char *name);
uint32_t count(struct stag_store *store);

/* Checks that stag_store_error() contains these words. */
void assert_says(const char *words);
void assert_same_partition(const struct stag_store_partition *a,
			   const struct stag_store_partition *b);
/* Compares all but the generation. */
bool is_same_table(const struct table *a, const struct table *b);

#endif
