/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * asleep.h - waits until another thread of this program waits.
 */
#ifndef STAG_TEST_ASLEEP_H
#define STAG_TEST_ASLEEP_H

#include <sys/types.h>

/*
 * Returns when the thread (gettid()) is asleep in the kernel. If it was on its way
 * and waits for a lock by chance, what follows is only easier for the test to pass.
 */
void await_asleep(pid_t tid);

#endif
