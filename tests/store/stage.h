/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stage.h - helpers that the tests of endpoints share: a store, an optional server, and users with
 * memory that access local ("near") and remote ("far") partitions through the same calls.
 */
#ifndef STAG_TEST_STORE_STAGE_H
#define STAG_TEST_STORE_STAGE_H

#include "room.h"

#define USER_MEMORY (256 * KIB)

struct stage {
	char path[128];
	struct stag_store *store;
	struct stag_store_server *server; /* NULL: all users are near */
};

struct user {
	struct stag_store_endpoint *e;
	uint8_t *mem;
	struct ibv_mr *mr;
};

void stage_open(struct stage *s, bool far);
void stage_close(struct stage *s);
void start_server(struct stage *s);

/* Returns the partition's name as a program near or far writes it. */
const char *where_is(const struct stage *s, const char *partition);
struct stag_store_right right_of(const struct stage *s, uint8_t access); /* for any user */
void set_rights(struct stage *s, const char *partition, const struct stag_store_right *r,
		uint32_t n);
void allow(struct stage *s, const char *partition, uint8_t access);

/* Returns 0 or errno. */
int try_enter(struct user *u, const struct stage *s, const char *partition,
	      const struct stag_store_connect_attr *attr);
void enter(struct user *u, const struct stage *s, const char *partition);
void leave(struct user *u);

/* Posts one operation, and waits for its outcome. */
enum ibv_wc_status do_write(struct user *u, uint64_t at, const void *bytes, uint32_t len);
enum ibv_wc_status do_read(struct user *u, uint64_t at, uint32_t len); /* into mem */
enum ibv_wc_status do_add(struct user *u, uint64_t at, uint64_t by);   /* old value in mem */
bool reads_as(struct user *u, uint64_t at, const void *bytes, uint32_t len);

/*
 * Sets the log's destination and executes the program again: the libraries read it before main().
 */
void log_to_memory(char **argv);
/* Returns whether a line with both words was logged after *since. Moves *since to the end. */
bool is_logged(off_t *since, const char *word, const char *other);

#endif
