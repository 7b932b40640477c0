// SPDX-License-Identifier: BSD-2-Clause
/*
 * none.c - a stagd that was built without the console: no files.
 */
#include "console_files.h"

const struct console_file console_files[] = {{NULL, NULL, NULL, NULL, 0, NULL, 0}};
const unsigned int num_console_files = 0;
