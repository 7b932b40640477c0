/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * steps.h - an engine without a thread: it does what engine.c does, but only when
 * the target says so. Runs are the same each time, and a lock that somebody
 * forgot to hold or to give back shows.
 */
#ifndef STAG_FUZZ_STEPS_H
#define STAG_FUZZ_STEPS_H

void steps_begin(void);	     /* a new run: the same dice as in the last */
void steps_run(void);	     /* what was queued as work */
void steps_ready(void);	     /* every watch hears what it waits for */
void steps_pass_time(void);  /* every timer is due */
void steps_check_idle(void); /* no watch, timer or work is left, no lock is held */

#endif
