/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block_use.h - stag block: what its files share.
 */
#ifndef STAG_APP_BLOCK_USE_H
#define STAG_APP_BLOCK_USE_H

#include <stdbool.h>
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "block_words.h"
#include "stag/block.h"

#define BLOCK_MAX_SECRET     256
#define BLOCK_MAX_INITIATORS 256

#define BLOCK_SPIN_DEFAULT UINT32_MAX

struct block_use {
	const char *url;  /* of sessions and stags: a target, or NULL */
	const char *file; /* NULL or "-": stdin, stdout */
	const char *user, *secret_file, *peer_user, *peer_secret_file, *initiator;
	const char *tls; /* off, allowed or required; NULL: off */
	const char *offset, *length;
	/* of bench */
	const char *op;	 /* NULL: read */
	uint64_t writes; /* percent of a mix; 0: not given */
	const char *size;
	uint32_t depth, connections;
	double secs;
	/* of serve */
	const char *name, *address, *port, *own_user, *own_secret_file, *state;
	uint32_t max_sessions;		 /* 0: default */
	uint32_t spin;			 /* microseconds, or BLOCK_SPIN_DEFAULT */
	char *luns[STAG_BLOCK_MAX_LUNS]; /* NUMBER=WHERE[,WORD]... */
	unsigned int num_luns;
	char *initiators[BLOCK_MAX_INITIATORS]; /* PATTERN [WORD]... */
	unsigned int num_initiators;

	bool digests, json, sequential, sleep, force, stags;
	struct stag_block_attr attr;
};

/* block_use.c: reads the first line of a file. Returns false after it has complained. */
bool block_read_secret(const char *path, char out[BLOCK_MAX_SECRET]);
/* Sets u->attr, with the secrets, while run() runs. Returns its exit code. */
int block_run_with_secrets(struct block_use *u, int (*run)(const struct block_use *u));
enum stag_block_tls block_tls_mode(const struct block_use *u);
/* Prints the error of the last call and what to do about it. Returns EXIT_FAILED. */
int block_failed(const struct block_use *u, int error);

/* block_discover.c, block_use.c, block_serve.c: exit codes */
int block_discover(const struct block_use *u);
int block_info(const struct block_use *u);
int block_serve(const struct block_use *u);

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
