/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stag.h - the command `stag`: what its files share. Each command has a file.
 */
#ifndef STAG_APP_STAG_H
#define STAG_APP_STAG_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "cli.h"
#include "preload.h"

struct command {
	const struct cli_noun *noun;
	int (*run)(const struct command *self, int argc, char **argv); /* argv[0]: its own name */
};

/* run.c, info.c, top.c, doctor.c, heap.c, store.c, block.c, pool.c, access.c, completion.c */
extern const struct command run_command, info_command, top_command, doctor_command, heap_command,
	store_command, block_command, pool_command, token_command, audit_command,
	completion_command;

/* serve.c: for commands that serve */
/* Parses --port; NULL is the default. Returns false after it has complained. */
bool serve_port(const char *text, uint16_t usual, uint16_t *port);
/* Blocks the signals that stop a server, and returns them in *ends. Call before starting threads. */
void serve_begin(sigset_t *ends);

/* program.c */
int program_find(const char *name, char *path,
		 size_t size);			/* finds it as execvp() does; returns -errno */
const char *program_obstacle(const char *path); /* why LD_PRELOAD has no effect, or NULL */

#endif
