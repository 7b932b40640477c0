/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * disk.h - a medium whose bytes are in memory: requests are carried out in order when it is polled,
 * unless the fuzz target holds them, or makes them fail.
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

bool disk_open(void);	/* call it once; false: io_uring is not available, which media need */
void disk_settle(void); /* carries out all requests */

#endif
