/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block_words.h - block targets as text and as JSON, for stag, stagd and its API.
 */
#ifndef STAG_APP_BLOCK_WORDS_H
#define STAG_APP_BLOCK_WORDS_H

#include <jansson.h>
#include <stdint.h>

#include "stag/block.h"

#define BLOCK_KIND "block" /* kind of server (control.h) */

const char *block_transport_word(uint32_t transport);
const char *block_end_word(uint32_t end); /* enum stagdv_stag_end */

/* Both say how a connection is encrypted: as "no" or "TLSv1.3, CIPHER"; as null or an object. */
const char *block_tls_word(const struct stag_block_tls_info *t, char *text, size_t size);
json_t *block_tls_json(const struct stag_block_tls_info *t);

json_t *block_counters_json(const struct stag_block_counters *c);
json_t *block_sessions_json(struct stag_block_target *target);
json_t *block_stags_json(struct stag_block_target *target);

#endif
