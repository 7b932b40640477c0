/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool_words.h - pools as text and as JSON, for stag, stagd and its API.
 */
#ifndef STAG_APP_POOL_WORDS_H
#define STAG_APP_POOL_WORDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "stag/pool.h"

const char *pool_role_word(uint32_t role); /* enum stag_pool_role */

/*
 * Says why a value of this length found no place (ENOSPC) in a pool of this size, of which `room` bytes are free; size 0: not
 * known. Returns whether memory that is freed would help.
 */
bool pool_full_words(uint64_t length, uint64_t size, uint64_t room, char *text, size_t text_size);

json_t *pool_info_json(const struct stag_pool_info *i);	     /* as a client sees it */
json_t *pool_node_json(const struct stag_pool_node_info *i); /* as a node sees itself */

#endif
