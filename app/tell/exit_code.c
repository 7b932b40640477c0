// SPDX-License-Identifier: BSD-2-Clause
/*
 * exit_code.c - the table of exit codes (exit_code.h).
 */
#include "exit_code.h"

#include <errno.h>
#include <stddef.h>

const struct exit_meaning exit_meanings[] = {
	{EXIT_OK, "done", "done"},
	{EXIT_FAILED, "failed", "failed, for any other reason"},
	{EXIT_USAGE, "usage", "wrong usage"},
	{EXIT_MISSING, "missing", "what was named does not exist"},
	{EXIT_CONFLICT, "conflict", "it exists already, has changed, is in use or holds data"},
	{EXIT_FULL, "full", "there is no room for it"},
	{EXIT_REFUSED, "refused", "this user may not do that, or is not authenticated"},
	{EXIT_DOWN, "down", "no server was reached"},
	{EXIT_UNKNOWN, "unknown", "it is unknown whether the change was made"},
	{0},
};

const char *exit_word(int code)
{
	for (const struct exit_meaning *m = exit_meanings; m->word; m++)
		if (m->code == code)
			return m->word;
	return exit_word(EXIT_FAILED);
}

int exit_code_of(int error)
{
	switch (error) {
	case ENOENT:
	case ENODEV:
	case ENXIO:
	case ESRCH:
		return EXIT_MISSING;
	case EEXIST:
	case EILSEQ:
	case EBUSY:
	case ENOTEMPTY:
	case EWOULDBLOCK:
	case EADDRINUSE:
		return EXIT_CONFLICT;
	case ENOSPC:
	case EDQUOT:
	case EFBIG:
		return EXIT_FULL;
	case EACCES:
	case EPERM:
	case EROFS:
		return EXIT_REFUSED;
	case ECONNREFUSED:
	case ECONNRESET:
	case ECONNABORTED:
	case EHOSTUNREACH:
	case EHOSTDOWN:
	case ENETUNREACH:
	case ENOTCONN:
	case ETIMEDOUT:
		return EXIT_DOWN;
	case ESTALE:
		return EXIT_UNKNOWN;
	default:
		return EXIT_FAILED;
	}
}
