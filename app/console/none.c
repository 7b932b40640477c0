// SPDX-License-Identifier: BSD-2-Clause
/*
 * none.c - an empty list of files, for a stagd built without the console.
 */
#include "console_files.h"

const struct console_file console_files[] = {{NULL, NULL, NULL, NULL, 0, NULL, 0}};
const unsigned int num_console_files = 0;
