/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store_words.h - stores and partitions as text and as JSON, for stag, stagd and its API.
 */
#ifndef STAG_APP_STORE_WORDS_H
#define STAG_APP_STORE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "stag/store.h"

/* ---- store_words.c: text to numbers and back ---------------------------------- */

/* The sizes that "50%", "max" and "+1G" are relative to. */
struct store_room {
	uint64_t whole;	  /* of all partitions together */
	uint64_t largest; /* largest gap: "max" */
	uint64_t now;	  /* present size, to which "+1G" adds */
	uint32_t block;
};

/* Parses "4096", "512K", "10G", "50%", "max", "+1G"; room NULL: only the first three. Returns false after it has complained. */
bool store_parse_size(const char *option, const char *text, const struct store_room *room,
		      uint64_t *size);
bool store_parse_offset(const char *text, uint64_t *offset); /* parses --offset, which may be 0 */
bool store_parse_order(const char *text, uint32_t *relax);
bool store_parse_level(const char *text, uint32_t *level);
bool store_parse_cache(const char *text, uint32_t *ms);
/* "user:alice:write", "net:10.0.0.0/8:read", "remote:none", "token:FILE:write"; "owner" adds no right. */
bool store_parse_right(const char *text, struct stag_store_partition *p);

const char *store_size_word(uint64_t bytes, char *text, size_t size); /* "1.5 GiB" */
const char *store_level_word(uint32_t level);
const char *store_access_word(uint8_t access);
void store_order_words(uint32_t relax, char *text, size_t size);
void store_right_words(const struct stag_store_right *r, char *text, size_t size);
void store_user_word(uint32_t uid, char *text, size_t size);
void store_uuid_word(const uint8_t uuid[16], char text[37]);

#define STORE_KIND "store" /* kind of server (control.h) */

/* ---- store_json.c ----------------------------------------------------------------- */

json_t *store_partition_json(const struct stag_store_partition *p);
/* Return NULL on failure: stag_store_error(). store_json() queries the process that serves the store for its counters. */
json_t *store_json(struct stag_store *store, const char *path);
json_t *store_table_json(struct stag_store *store, const char *path);
json_t *store_counters_json(const struct stag_store_counters *c);

/* Queries the process that serves a store for its counters; NULL: it does not answer. */
json_t *store_ask_counters(const struct stag_store_info *info);

#endif
