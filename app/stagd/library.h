/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * library.h - turns lines that the libraries log (STAG_LOG) into events of the object "library".
 */
#ifndef STAG_APP_LIBRARY_H
#define STAG_APP_LIBRARY_H

/* Directs the libraries' log to a pipe, unless the user named a file. Call it before exec with the adapter preloaded. */
void library_prepare(void);
/* Starts a thread that reads the pipe, after exec. */
void library_begin(void);
void library_end(void); /* logs what is left in the pipe, and stops the thread */

#endif
