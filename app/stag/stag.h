/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stag.h - the command `stag`: what its files share. One file a subcommand.
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

/* run.c, info.c, top.c, doctor.c, heap.c, store.c, block.c, pool.c, completion.c */
extern const struct command run_command, info_command, top_command, doctor_command, heap_command,
	store_command, block_command, pool_command, completion_command;

/* serve.c: what commands that serve have in common */
bool serve_port(const char *text, uint16_t usual, uint16_t *port); /* false, having complained */
void serve_begin(sigset_t *ends); /* before there are threads; ends: what tells it to stop */

/* program.c: what will be executed, and whether it can be preloaded at all */
int program_find(const char *name, char *path, size_t size); /* as execvp() would: -errno */
const char *program_obstacle(const char *path); /* why LD_PRELOAD will not work, or NULL */

#endif
