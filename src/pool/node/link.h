/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * link.h - messages between a primary and its standby, and what they write to each other's memory.
 *
 *	standby                                        primary
 *	hello {name, ring, beat, in sync?, epoch, number} -->
 *	                                            <-- welcome {echo, region, position, number, resync?}
 *	        <--- records in the ring, heartbeats; bodies of long values, directly to the region
 *	        ---> echoes, with the position of the last record applied
 * to resynchronise:
 *	ask {chunks}                                -->
 *	                                            <-- hashes
 *	        ---> reads of those that differ
 *	copied                                      -->
 *	                                            <-- catch up {number}
 *	synced {number}                             -->
 * at the start, and when the nodes' secrets change, if both say that they know this message:
 *	secrets {marks}                             <->
 * from welcome on, one at a time:
 *	event {a line of the log}                   -->
 *	                                            <-- event taken
 *
 * Heartbeats and echoes in memory carry a checksum: a reader that finds one half written reads it again later.
 */
#ifndef STAG_POOL_LINK_H
#define STAG_POOL_LINK_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "pool/admit/protocol.h"
#include "pool/admit/users.h"
#include "pool/role/life.h"
#include "pool/memory/memory.h"
#include "pool/role/roll.h"

/* Sent in the welcome of the admission: what the standby's memory must be like. */
struct link_facts {
	uint64_t log_size;
	uint32_t flags;	  /* STAG_POOL_OVERWRITE */
	uint32_t staging; /* pages of POOL_PAGE of the staging memory, which is forwarded */
	uint32_t lease_us, promote_us; /* the primary's */
	uint8_t superblock[POOL_FIXED];
};

/* The primary writes it to the standby's memory. */
struct link_beat {
	uint64_t sent, epoch, revision;
	uint64_t settled; /* number of the last record that the primary has applied */
	uint64_t check;
};

/* The standby writes it to the primary's memory. */
struct link_echo {
	uint64_t sent, epoch;	  /* copied from the heartbeat; 0: none was received yet */
	uint64_t applied, number; /* position in the ring, and number of the record */
	uint64_t check;
};

enum link_what {
	LINK_HELLO = 1,
	LINK_WELCOME,
	LINK_ASK,
	LINK_HASHES,
	LINK_COPIED,
	LINK_CATCH_UP,
	LINK_SYNCED,
	LINK_HANDOVER,
	LINK_SECRETS,
	LINK_EVENT,
	LINK_EVENT_TAKEN,
	LINK_WHATS,
};

enum link_features {
	LINK_KNOWS_SECRETS =
		1 << 0, /* earlier versions end the link at a message that they do not know */
	LINK_TAKES_EVENTS = 1 << 1, /* of a primary: it keeps its standbys' events */
};

#define LINK_HASHES_MAX 128u

struct link_hello {
	uint32_t what;
	uint32_t synced;
	uint64_t epoch, number;
	uint64_t ring, beat; /* addresses */
	uint32_t ring_rkey, beat_rkey;
	uint64_t ring_size;
	uint64_t staging; /* address; 0: none, as the primary has none */
	uint32_t staging_rkey;
	uint32_t order;
	uint32_t
		region_rkey; /* lets the primary write to the standby's region, which is at the same address */
	uint32_t features;		    /* enum link_features */
	char address[ROLL_ADDRESS_LEN + 4]; /* where other nodes reach it */
	char name[ROLL_NAME_LEN];	    /* of the mark with which the node was admitted */
};

struct link_welcome {
	uint32_t what;
	uint32_t resync;
	uint64_t echo, region; /* addresses */
	uint32_t echo_rkey, region_rkey;
	uint64_t position,
		number; /* of the log: records start at this position, after this record */
	uint64_t epoch; /* of that record */
	uint32_t seat;
	uint32_t features; /* enum link_features */
	uint8_t life
		[LIFE_TOKEN_LEN]; /* token of the primary's process; zeroes: nothing proves its end */
};

struct link_ask {
	uint32_t what;
	uint32_t count;
	uint64_t first;
	uint64_t done, total; /* bytes */
};

struct link_hashes {
	uint32_t what;
	uint32_t count;
	uint64_t first;
	uint64_t hashes[LINK_HASHES_MAX];
};

struct link_number { /* copied, catch up, synced, handover, event taken */
	uint32_t what;
	uint32_t leaves; /* handover: the old primary stops, and will not follow */
	uint64_t number;
	uint64_t revision;
};

/* The secrets of the nodes that the sender accepts (secrets.c). */
struct link_secrets {
	uint32_t what;
	uint32_t reserved;
	uint64_t marks[USER_SECRETS]; /* 0: none; the first one is tried first */
};

struct link_event {
	uint32_t what, reserved;
	struct node_event event;
};

union link_message {
	uint32_t what;
	struct link_hello hello;
	struct link_welcome welcome;
	struct link_ask ask;
	struct link_hashes hashes;
	struct link_number number;
	struct link_secrets secrets;
	struct link_event event;
};

/* link_wire.c. Writes a message to `to`: returns its length, or -ENOBUFS. Reads one: -EBADMSG if it is invalid. */
int link_message_write(const union link_message *said, uint64_t epoch, void *to, size_t room);
int link_message_read(const void *at, size_t length, union link_message *heard, uint64_t *epoch);

uint64_t link_check(const void *block, size_t words); /* checksum over all words but the last */

#endif
