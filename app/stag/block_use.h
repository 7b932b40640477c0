/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block_use.h - stag block discover, info, read, write, bench, sessions and stags: what their files share.
 */
#ifndef STAG_APP_BLOCK_USE_H
#define STAG_APP_BLOCK_USE_H

#include <stdbool.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "block_words.h"
#include "stag/block.h"

#define BLOCK_MAX_SECRET 256

struct block_use {
	const char *url;  /* of sessions and stags: a target, or NULL */
	const char *file; /* NULL or "-": stdin, stdout */
	const char *user, *secret_file, *peer_user, *peer_secret_file, *initiator;
	const char *offset, *length;
	const char *op, *writes, *size, *depth, *connections, *secs; /* of bench */
	bool digests, json, sequential, sleep, force, stags;
	struct stag_block_attr attr;
};

/* block.c: the first line of a file. False, having complained. */
bool block_read_secret(const char *path, char out[BLOCK_MAX_SECRET]);

/* block_use.c: argv[0] is what is to be done. false: not one of these. */
struct command;
bool block_use_verb(const struct command *self, int argc, char **argv, int *rc);
int block_failed(const struct block_use *u, int error); /* says what to do about it; EXIT_FAILED */
struct suggestion;
void block_use_suggest(struct suggestion *s); /* considers them */

/* block_copy.c, block_bench.c, block_live.c: exit codes */
int block_read(const struct block_use *u);
int block_write(const struct block_use *u);
int block_bench(const struct block_use *u);
int block_sessions(const struct block_use *u);
int block_stags(const struct block_use *u);

/* block_own.c: of this process */
json_t *block_own_stags_json(void);
void block_print_own_stags(FILE *to);

#endif
