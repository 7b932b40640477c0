/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lossy.h - a disk that remembers everything it was told, so that it can be had as power might have left it.
 *
 * Comes between every medium that is opened and its ring (media_open() is wrapped), and between the management and
 * its file (store_io). What is written has a moment at which it is in the disk's cache, and a later one at which that is
 * reported; a flush is begun and reported. All of these are events, in one row with what the test notes itself. Afterwards
 * the row is gone through again: behind each event power may go. A sector then holds what it last held for sure (a flush that
 * was begun after that was reported has been reported itself; or the write was durable and is reported), or
 * anything that it held since. Sectors know nothing of each other, so that every choice of one for each is a state.
 */
#ifndef STAG_TEST_STORE_LOSSY_H
#define STAG_TEST_STORE_LOSSY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SECTOR 512u

/* What the media are made to believe of the file, wherever it is. */
enum lossy_way { THROUGH_PAGES, DIRECT_512, DIRECT_4096, NUM_WAYS };

void lossy_open(const char *path, enum lossy_way way);
void lossy_close(void); /* when all media are closed */

/* Forgets what was: what is in the file is what is there for sure. Nothing is under way. */
void lossy_begin(uint64_t seed);
void lossy_nudge(void);		/* who sleeps until something has happened looks at what has */
unsigned long lossy_note(void); /* the time: an event of the test's own */
unsigned long lossy_events(void);

/* ---- afterwards ---- */

struct version { /* of a sector; the first was there at the beginning */
	uint8_t bytes[SECTOR];
	unsigned long checked; /* for the test */
};

/* From a beginning at which no event has happened, to the next event; false: there is none. */
void lossy_rewind(void);
bool lossy_next(void);
unsigned long lossy_time(void); /* of the last event */

/* Sectors that were written to since the beginning, and what each may hold after a cut here: n >= 1, oldest first. */
unsigned int lossy_touched(const uint32_t **sectors);
struct version *lossy_may_hold(uint32_t sector, unsigned int *n);
const uint8_t *lossy_initial(uint32_t sector);

#endif
