/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * exit_code.h - the exit codes of stag: one table, for the commands, their JSON errors, --help and stag(1).
 */
#ifndef STAG_APP_EXIT_CODE_H
#define STAG_APP_EXIT_CODE_H

/* `stag run` ends with the exit code of the program that it ran, or with one of the last two. */
enum exit_code {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_MISSING = 3,
	EXIT_CONFLICT = 4,
	EXIT_FULL = 5,
	EXIT_REFUSED = 6,
	EXIT_DOWN = 7,
	EXIT_UNKNOWN = 8,
	EXIT_CANNOT_EXECUTE = 126,
	EXIT_NOT_FOUND = 127,
};

struct exit_meaning {
	int code;
	const char *word; /* in JSON */
	const char *help;
};

extern const struct exit_meaning exit_meanings[]; /* of all commands but run; ended by {0} */

/* Returns the word of a code: "missing". */
const char *exit_word(int code);
/* Returns the code for an errno value; EXIT_FAILED if none is more precise. */
int exit_code_of(int error);

#endif
