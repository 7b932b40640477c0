/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * steps.h - an engine without a thread: it does what engine.c does, but only when
 * the fuzz target calls it. Runs are deterministic, and a lock that is not held or
 * not released is detected.
 */
#ifndef STAG_FUZZ_STEPS_H
#define STAG_FUZZ_STEPS_H

void steps_begin(void);	       /* begins a run, with the same random numbers as the last */
void steps_run(void);	       /* runs the queued work */
void steps_ready(void);	       /* reports the awaited events to every watch */
void steps_pass_time(void);    /* fires every timer */
void steps_keep_watches(void); /* those that there are stay, as those of an open port do */
void steps_check_idle(
	void); /* checks that no other watch, no timer and no work is left, and no lock is held */

#endif
