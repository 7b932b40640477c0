/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store_use.h - stag store serve, read and write: what their files share.
 */
#ifndef STAG_APP_STORE_USE_H
#define STAG_APP_STORE_USE_H

#include <stdbool.h>
#include <stdint.h>

#include "stag/store.h"

struct store_use {
	const char *where; /* a path for serve */
	const char *file;  /* NULL or "-": stdin, stdout */
	const char *address, *port;
	const char *offset, *length, *token;
	bool json;
};

/* store_use.c: argv[0] is what is to be done. false: not one of these. */
struct command;
bool store_use_verb(const struct command *self, int argc, char **argv, int *rc);

/* store_serve.c, store_copy.c: exit codes */
int store_serve(const struct store_use *u);
int store_read(const struct store_use *u);
int store_write(const struct store_use *u);

#endif
