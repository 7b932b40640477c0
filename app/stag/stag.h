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

/* Exit codes; `stag run` ends as the program that it ran, or with one of the last two. */
enum {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_CANNOT_EXECUTE = 126,
	EXIT_NOT_FOUND = 127,
};

struct command {
	const char *name;
	const char *summary;					       /* one line */
	const char *help;					       /* what --help prints */
	int (*run)(const struct command *self, int argc, char **argv); /* argv[0]: its own name */
};

/* main.c */
void complain(const char *fmt, ...)
	__attribute__((format(printf, 1, 2))); /* "stag: ..." to stderr */
int usage_error(const struct command *c);      /* where to read more; EXIT_USAGE */

/* run.c, info.c, heap.c, store.c, block.c, bench.c */
extern const struct command run_command, info_command, heap_command, store_command, block_command,
	bench_command;

/*
 * preload.c: the library that makes a program's verbs ours.
 *
 * find looks at chosen (NULL: nothing was), at STAG_LIB, where stag is installed,
 * and in the build tree; it says on stderr where it looked when it is nowhere.
 */
int preload_find(const char *chosen, char *path, size_t size);
int preload_set(const char *library); /* LD_PRELOAD, behind what is there already */
/* Runs this command once more, with the adapter: returns where it is there already, or cannot be had. argv[0]: the command's name. */
int preload_self(int argc, char **argv);

/* serve.c: what commands that serve have in common */
bool serve_port(const char *text, uint16_t usual, uint16_t *port); /* false, having complained */
void serve_begin(sigset_t *ends); /* before there are threads; ends: what tells it to stop */

/* program.c: what will be executed, and whether it can be preloaded at all */
int program_find(const char *name, char *path, size_t size); /* as execvp() would: -errno */
const char *program_obstacle(const char *path); /* why LD_PRELOAD will not work, or NULL */

#endif
