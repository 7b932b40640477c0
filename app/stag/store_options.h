/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store_options.h - stag store: its options, and the files that run its verbs.
 */
#ifndef STAG_APP_STORE_OPTIONS_H
#define STAG_APP_STORE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "stag/store.h"
#include "times.h"

#define STORE_MAX_FIRST 64 /* partitions that format can make */

struct store_options {
	const char *where; /* a path; of read, write and bench a partition */
	union {
		const char *name; /* of a partition */
		const char *file; /* of read and write; NULL or "-": stdin, stdout */
	};
	const char *new_name;
	const char *size, *block, *label, *offset, *align;
	const char *address, *port, *length, *token;
	const char *op;				 /* of bench; NULL: read */
	uint64_t writes;			 /* of bench: percent of a mix; 0: not given */
	uint32_t depth;				 /* of bench */
	double secs;				 /* of bench */
	const char *partitions[STORE_MAX_FIRST]; /* NAME=SIZE */
	unsigned int num_partitions;
	struct stag_store_partition p; /* the settings of --order, --level, --cache and --allow */
	unsigned int what;	       /* which of them were given: enum stag_store_change */
	const char *
		tls; /* off, required, or of serve allowed; NULL: off, or the environment decides */
	bool force, repair, json, sequential, sleep;
};

/* store_manage.c, store_serve.c, store_copy.c, store_bench.c: exit codes */
int store_format(const struct store_options *o);
int store_list(const struct store_options *o);
int store_show(const struct store_options *o);
int store_add(const struct store_options *o);
int store_set(const struct store_options *o);
int store_rename(const struct store_options *o);
int store_rm(const struct store_options *o);
int store_grow(const struct store_options *o);
int store_check(const struct store_options *o);
int store_serve(const struct store_options *o);
int store_read(const struct store_options *o);
int store_write(const struct store_options *o);
int store_bench(const struct store_options *o);

/* store_manage.c: prints the error, and what to do about it. Returns EXIT_FAILED. */
int store_failed(const char *path, int error);

/* store_copy.c: connects with --token, if it is given. Returns NULL after it has complained. */
struct stag_store_endpoint *store_connect(const struct store_options *o,
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
