/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store.h - stag store: what its files share.
 */
#ifndef STAG_APP_STORE_H
#define STAG_APP_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <jansson.h>

#include "stag/store.h"
#include "store_words.h"

/* ---- store_report.c --------------------------------------------------------------- */

void store_print(const struct stag_store_info *info, const char *path);
void store_print_list(struct stag_store *store);
void store_print_partition(const struct stag_store_partition *p);
void store_dump(json_t *o); /* prints JSON to stdout, and drops the reference */

/* Shows the progress of a long operation on a terminal; note says what is done with the bytes. */
void store_show_progress(struct stag_store *store, const char *name, const char *note);
void store_end_progress(void);

#endif
