/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lossy.h - a disk that records every operation, so that any state that a power loss might leave
 * can be reconstructed.
 *
 * Sits between every medium that is opened and its ring (media_open() is wrapped), and between the
 * management and its file (store_io). A write has a moment at which it is in the disk's cache, and
 * a later one at which it is reported; a flush has a start and a report. All of these are events,
 * in one sequence with the test's own notes. Afterwards the sequence is replayed: power may fail
 * after each event. A sector then holds its last durable contents (a flush that started after that
 * write was reported has been reported itself; or the write was durable and is reported), or
 * anything written to it since. Sectors are independent, so that every combination of one version
 * for each is a possible state.
 */
#ifndef STAG_TEST_STORE_LOSSY_H
#define STAG_TEST_STORE_LOSSY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECTOR 512u

/* The properties that the media report for the file, wherever it really is. */
enum lossy_way { THROUGH_PAGES, DIRECT_512, DIRECT_4096, NUM_WAYS };

void lossy_open(const char *path, enum lossy_way way);
void lossy_close(void); /* after all media are closed */

/* Forgets the record: the file's contents count as durable. No operation may be in flight. */
void lossy_begin(uint64_t seed);
void lossy_nudge(void);		/* wakes a thread that waits for completions */
unsigned long lossy_note(void); /* adds an event of the test's own; returns its time */
unsigned long lossy_events(void);

/* ---- replay ---- */

struct version { /* a version of a sector; the first is the initial one */
	uint8_t bytes[SECTOR];
	unsigned long checked; /* for the test */
};

/* Go back to before the first event, and on to the next one; false: there is none. */
void lossy_rewind(void);
bool lossy_next(void);
unsigned long lossy_time(void); /* time of the last event */

/*
 * Return the sectors written since the beginning, and the versions that each may hold after a power
 * loss now: n >= 1, oldest first.
 */
unsigned int lossy_touched(const uint32_t **sectors);
struct version *lossy_may_hold(uint32_t sector, unsigned int *n);
const uint8_t *lossy_initial(uint32_t sector);

#endif
