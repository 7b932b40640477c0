/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * console_files.h - the web page, as it was built: files for the server to give out.
 */
#ifndef STAG_APP_CONSOLE_FILES_H
#define STAG_APP_CONSOLE_FILES_H

#include <stddef.h>

struct console_file {
	const char *path; /* "/" + its name, as it is asked for: "/index.html", "/assets/main.js" */
	const char *type; /* of its content */
	const char *etag; /* without its quotes */
	const unsigned char *bytes;
	size_t length;
	const unsigned char *packed; /* by gzip; NULL: that would not be shorter */
	size_t packed_length;
};

extern const struct console_file console_files[];
extern const unsigned int num_console_files; /* 0: built without */

#endif
