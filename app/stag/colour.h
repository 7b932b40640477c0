/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * colour.h - colours of what is printed: on a terminal only, and not where NO_COLOR is set (no-color.org);
 * always with CLICOLOR_FORCE.
 */
#ifndef STAG_APP_COLOUR_H
#define STAG_APP_COLOUR_H

#include <stdbool.h>

enum colour { COLOUR_NONE, COLOUR_RED, COLOUR_GREEN, COLOUR_YELLOW, COLOUR_CYAN, COLOUR_BOLD };

/* --color: auto, always, never; in the environment, so that it holds when a command is run once more. False, having complained. */
bool colour_set(const char *when);
bool colour_wanted(void);
const char *colour(enum colour which); /* what to print: "" where there are none */

#endif
