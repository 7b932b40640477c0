/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * disk.h - a medium whose bytes are in memory: what is asked of it is done when it is polled, in order,
 * unless the target holds it back, or lets it fail.
 */
#ifndef STAG_FUZZ_DISK_H
#define STAG_FUZZ_DISK_H

#include "adapter/store.h"

#define DISK_SIZE 262144

struct disk {
	struct stag_medium medium;
	uint8_t bytes[DISK_SIZE];
	bool held, failing;
};

extern struct disk disk;

bool disk_open(void);	/* once; false: this system has no io_uring, which a medium begins with */
void disk_settle(void); /* all that was asked of it is done */

#endif
