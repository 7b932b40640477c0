/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client.h - a client of stag torture pool: shared by client.c, which submits operations and
 * collects their results, and life.c, which starts and ends the processes.
 */
#ifndef STAG_APP_TORTURE_CLIENT_H
#define STAG_APP_TORTURE_CLIENT_H

#include "torture.h"

#define DEPTH	    8u
#define PROBE_DEPTH 64u
#define PROBE_NAMES 64u
#define INSERTED    (1ull << 62) /* flag of objects that were inserted and have no name */

struct flight { /* an operation in flight */
	bool used;
	uint8_t act; /* as submitted; the entry's may change */
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
	uint8_t states[SLOTS]; /* enum slot_state, of the client's own slots */
	unsigned int num_orphans;
	struct { /* values that found no free slot: deleted next */
		uint64_t object;
		struct stag_pool_ptr ptr;
	} orphans[DEPTH];
};

enum slot_state {
	SLOT_USED,
	SLOT_FREE,  /* its value was deleted, or never existed */
	SLOT_TAKEN, /* reserved for a value that is being inserted */
};

bool client_start_one(
	struct client *c); /* submits a random operation; false: the journal is full */
bool client_start_probe(struct client *c);
void client_collect(struct client *c); /* records the operations that have returned */
uint32_t client_draw_length(struct client *c);
struct entry *entry_begin(struct journal *d, uint32_t *index);
uint8_t entry_outcome(struct client *c, struct entry *d, int error);
void client_finish_read(struct client *c, const struct flight *f, struct entry *d, uint64_t length);
bool slot_read(const struct slot *s, uint64_t *object, struct stag_pool_ptr *ptr);
void slot_write(struct slot *s, uint64_t object, const struct stag_pool_ptr *ptr);

#endif
