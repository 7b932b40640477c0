/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * console_files.h - the built web console: files that the server serves.
 */
#ifndef STAG_APP_CONSOLE_FILES_H
#define STAG_APP_CONSOLE_FILES_H

#include <stddef.h>

struct console_file {
	const char *path; /* in a request: "/index.html", "/assets/main.js" */
	const char *type; /* of its content */
	const char *etag; /* without quotes */
	const unsigned char *bytes;
	size_t length;
	const unsigned char *packed; /* compressed by gzip; NULL: not smaller than bytes */
	size_t packed_length;
};

extern const struct console_file console_files[];
extern const unsigned int num_console_files; /* 0: built without the console */

#endif
