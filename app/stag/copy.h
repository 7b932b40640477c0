/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * copy.h - copies between storage and a file, in pieces of which several are in flight.
 *
 * struct copy_ops transfers a piece to or from the storage: a partition, or a unit.
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

/* Functions that return bool return false after they have complained. */
struct copy_ops {
	/* Starts the transfer of piece n between its memory and the storage. */
	bool (*post)(struct copy *c, uint64_t n, uint64_t at, uint32_t length);
	bool (*wait)(struct copy *c);	/* waits until at least one is done: copy_piece_done() */
	bool (*finish)(struct copy *c); /* makes all that was written durable */
	/* Adds to the report at the end: to o, or if that is NULL to a file. May be NULL. */
	void (*report)(struct copy *c, json_t *o, FILE *to);
};

/* The options of the command; NULL: not given. */
struct copy_range {
	const char *file; /* NULL or "-": stdin, stdout */
	const char *offset, *length;
	bool json;
};

struct copy {
	const struct copy_ops *ops;
	const char *kind, *where; /* kind: "partition" or "unit"; where: which one */
	uint64_t size;		  /* of the storage */
	uint32_t block;		  /* bytes that --offset is a multiple of */
	bool out;		  /* from the storage to the file */
	uint8_t *memory;	  /* COPY_PIECES of COPY_PIECE bytes */
	uint64_t done;		  /* bytes from the first on that are done */

	/* private to copy.c */
	int fd;
	uint64_t at, length; /* length UINT64_MAX: up to the end of the input */
	struct progress progress;
	uint64_t put, get; /* numbers of pieces started and finished */
	struct {
		uint32_t length;
		bool done;
	} piece[COPY_PIECES];
};

uint8_t *copy_memory(struct copy *c, uint64_t n);
void copy_piece_done(struct copy *c, uint64_t n);
void copy_end_line(struct copy *c); /* ends the progress line; call before complaining */
int copy_run(struct copy *c, const struct copy_range *range); /* exit code */

#endif
