/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client.h - a client of stag torture pool: what client.c, which calls and collects, and
 * life.c, which has it live and die, share.
 */
#ifndef STAG_APP_TORTURE_CLIENT_H
#define STAG_APP_TORTURE_CLIENT_H

#include "torture.h"

#define DEPTH	    8u
#define PROBE_DEPTH 64u
#define PROBE_NAMES 64u
#define INSERTED    (1ull << 62) /* objects that are no names */

struct flight { /* an operation under way */
	bool used;
	uint8_t act; /* as it was called */
	uint32_t entry;
	unsigned int slot; /* SLOTS: none */
	uint8_t *memory;
};

struct client {
	struct torture *t;
	struct journal *journal;
	unsigned int id;
	struct dice dice;
	struct stag_pool *pool;
	uint64_t next_value;
	unsigned int depth, in_flight;
	bool only_reads;
	struct flight flights[PROBE_DEPTH];
	uint64_t name_versions[NAMES];
	struct {
		uint64_t object, version;
	} slot_versions[SLOTS];
	uint8_t states[SLOTS]; /* enum slot_state, of our own */
	unsigned int num_orphans;
	struct { /* values without a slot: to be deleted next */
		uint64_t object;
		struct stag_pool_ptr ptr;
	} orphans[DEPTH];
};

enum slot_state {
	SLOT_USED,
	SLOT_FREE,  /* its value is gone, or was never there */
	SLOT_TAKEN, /* for a value that is being inserted */
};

bool client_start_one(struct client *c); /* some operation or other; false: the journal is full */
bool client_start_probe(struct client *c);
void client_collect(struct client *c); /* what has returned */
uint32_t client_draw_length(struct client *c);
struct entry *entry_begin(struct journal *d, uint32_t *index);
uint8_t entry_outcome(struct client *c, struct entry *d, int error);
void client_finish_read(struct client *c, const struct flight *f, struct entry *d, uint64_t length);
bool slot_read(const struct slot *s, uint64_t *object, struct stag_pool_ptr *ptr);
void slot_write(struct slot *s, uint64_t object, const struct stag_pool_ptr *ptr);

#endif
