/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store_use.h - stag store serve, read, write and bench: what their files share.
 */
#ifndef STAG_APP_STORE_USE_H
#define STAG_APP_STORE_USE_H

#include <stdbool.h>
#include <stdint.h>

#include "stag/store.h"
#include "times.h"

struct store_use {
	const char *where; /* a path for serve */
	const char *file;  /* NULL or "-": stdin, stdout */
	const char *address, *port;
	const char *offset, *length, *token;
	const char *op, *size, *depth, *secs, *writes, *order, *level; /* of bench */
	bool json, sequential, sleep, force;
};

/* store_use.c: argv[0] is what is to be done. false: not one of these. */
struct command;
bool store_use_verb(const struct command *self, int argc, char **argv, int *rc);

/* store_serve.c, store_copy.c, store_bench.c: exit codes */
int store_serve(const struct store_use *u);
int store_read(const struct store_use *u);
int store_write(const struct store_use *u);
int store_bench(const struct store_use *u);

/* store_copy.c: with the token, if there is one; NULL, having complained */
struct stag_store_endpoint *store_connect(const struct store_use *u,
					  struct stag_store_connect_attr *attr);

/* ---- store_bench_report.c ------------------------------------------------------- */

struct store_figures {
	const char *where, *op, *pattern, *order, *wait;
	uint64_t size;
	uint32_t depth;
	uint64_t operations, ns, cpu; /* cpu: nanoseconds of this process */
	struct times times;
};

void store_print_figures(const struct store_figures *f, bool json);

#endif
