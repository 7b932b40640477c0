/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * last_run.h - the last run of the daemon with each INI file, so that 'stag doctor' can say why one does not run.
 *
 * A file for each INI file, in the directory of the control sockets: RUN/last-HASH.json, as long as the daemon runs, and after it
 * has ended with an error or was killed. A daemon that ends as it was told to removes it.
 *
 *	{"pid": 4711, "start": ticks, "boot": ID, "config": PATH, "began": RFC3339, "ended": RFC3339|null, "error": TEXT|null}
 */
#ifndef STAG_APP_LAST_RUN_H
#define STAG_APP_LAST_RUN_H

#include <jansson.h>

/* Leaves the record of another daemon that runs with the same INI file. Errors are ignored: it is for the doctor alone. */
void last_run_begin(const char *config);
void last_run_end(const char *error); /* NULL: it was told to end */

/* Returns the records that this user may read, without those whose INI file is gone, each with "lives": true|false. */
json_t *last_runs(void);

#endif
