/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * colour.h - colours of output: on a terminal, unless NO_COLOR is set (no-color.org); always with CLICOLOR_FORCE.
 */
#ifndef STAG_APP_COLOUR_H
#define STAG_APP_COLOUR_H

#include <stdbool.h>

enum colour { COLOUR_NONE, COLOUR_RED, COLOUR_GREEN, COLOUR_YELLOW, COLOUR_CYAN, COLOUR_BOLD };

/*
 * Applies --color: auto, always or never. It is kept in the environment, so that it holds when a command executes itself
 * again. Returns false after it has complained.
 */
bool colour_set(const char *when);
bool colour_wanted(void);
const char *colour(enum colour which); /* the escape sequence; "": without colours */

#endif
