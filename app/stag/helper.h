/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * helper.h - commands that are programs of their own in libexec: stag-bench and stag-torture.
 *
 * `stag bench WORD...` replaces itself by stag-bench with the same words ("stag", "bench",
 * WORD...), so usage, exit codes and signals are those of one program.
 */
#ifndef STAG_APP_HELPER_H
#define STAG_APP_HELPER_H

struct command;

/*
 * Runs the program "stag-" plus the command's name; argv[0] is that name. Returns an exit code if
 * the program cannot be executed.
 */
int helper_exec(const struct command *self, int argc, char **argv);

/* main() of such a program: argv is {"stag", command's name, WORD...}. Returns the exit code. */
int helper_main(const struct command *self, int argc, char **argv);

#endif
