/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * misuse.h - reports misuse of verbs at the default log level, and limits how often.
 *
 * The log goes to the standard error of programs that know nothing of it, and peers cause some of the lines. So the same
 * kind of misuse of the same object is logged the first, the 10th, the 100th time and so on, with the number of times;
 * and all kinds and objects together are limited by a rate, one for the program's own mistakes and one for those of
 * peers, so that a peer cannot suppress the program's. At STAG_LOG=info every one is logged.
 */
#ifndef STAG_MISUSE_H
#define STAG_MISUSE_H

#include <stdint.h>

enum misuse_by { BY_PROGRAM, BY_PEER };

/*
 * kind: a string of static lifetime, whose address (not its text) identifies the kind; __func__ where a function has
 * one kind. object: its number. Not for the data path of correct programs: it takes a lock. Preserves errno.
 */
void misuse_log(enum misuse_by by, const char *kind, uint64_t object, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#define misuse(kind, object, ...)      misuse_log(BY_PROGRAM, kind, object, __VA_ARGS__)
#define peer_misuse(kind, object, ...) misuse_log(BY_PEER, kind, object, __VA_ARGS__)

void misuse_after_fork(
	void); /* in the child: the lock may be held by a thread that does not exist here */

#endif
