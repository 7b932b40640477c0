/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * library.h - what the libraries log (STAG_LOG) is an event as any other, of the object "library".
 */
#ifndef STAG_APP_LIBRARY_H
#define STAG_APP_LIBRARY_H

/* Before the program is run once more with the adapter: its log goes into a pipe, unless the user named a file. */
void library_prepare(void);
/* In the program that was run: a thread reads it. */
void library_begin(void);
void library_end(void); /* what is in the pipe still is told */

#endif
