/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * copy.h - between storage and a file, in pieces that are under way at once.
 *
 * What the storage is, and how a piece gets there, is told by copy_ops.
 */
#ifndef STAG_APP_COPY_H
#define STAG_APP_COPY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <jansson.h>

#include "progress.h"

#define COPY_PIECE  (256u << 10)
#define COPY_PIECES 16u

struct copy;

/* bool: false, having complained. */
struct copy_ops {
	/* Begins piece n: between its memory and the storage. */
	bool (*post)(struct copy *c, uint64_t n, uint64_t at, uint32_t length);
	bool (*wait)(struct copy *c);	/* until one is done, or more: copy_piece_done() */
	bool (*finish)(struct copy *c); /* all that was written is durable */
	/* May be NULL: what else is told at the end, in o, or where that is NULL to a file. */
	void (*tell)(struct copy *c, json_t *o, FILE *to);
};

/* What was asked for; NULL: as much as there is. */
struct copy_range {
	const char *file; /* NULL or "-": stdin, stdout */
	const char *offset, *length;
	bool json;
};

struct copy {
	const struct copy_ops *ops;
	const char *kind, *where; /* "partition"; which */
	uint64_t size;		  /* of the storage */
	uint32_t block;		  /* where it may begin */
	bool out;		  /* to the file */
	uint8_t *memory;	  /* COPY_PIECES of COPY_PIECE bytes */
	uint64_t done;		  /* bytes, from the first on */

	/* copy.c alone */
	int fd;
	uint64_t at, length; /* length UINT64_MAX: as much as comes */
	struct progress progress;
	uint64_t put, get; /* pieces begun and ended */
	struct {
		uint32_t length;
		bool done;
	} piece[COPY_PIECES];
};

uint8_t *copy_memory(struct copy *c, uint64_t n);
void copy_piece_done(struct copy *c, uint64_t n);
void copy_end_line(struct copy *c);			      /* before a complaint in the middle */
int copy_run(struct copy *c, const struct copy_range *range); /* exit code */

#endif
