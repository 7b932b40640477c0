/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * asleep.h - waits until another thread of this program sleeps.
 */
#ifndef STAG_TEST_ASLEEP_H
#define STAG_TEST_ASLEEP_H

#include <sys/types.h>

/*
 * Returns when the thread (gettid()) sleeps in the kernel. If it sleeps only because of a lock on
 * its way to the wait in question, the test that follows is only easier to pass.
 */
void await_asleep(pid_t tid);

#endif
