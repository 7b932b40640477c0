/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * protocol.h - how a client and a node talk to each other, beyond the form of their messages (wire.c).
 *
 * A client connects twice (admit.h): the challenge says which epoch the node knows of and where the primary is, if it is
 * not here. Only a primary takes clients in: a proof elsewhere gets a refusal that is worth trying again, with a hello. From
 * the accept on both sides have NODE_DEPTH receives of NODE_MESSAGE bytes posted.
 *
 * A client has at most NODE_DEPTH requests under way on a connection, answered or not being what counts: so no receive is
 * ever missing, however requests and answers are bundled into messages. It posts the receive of an answer again before it asks for
 * more. A sequence is answered once on a connection, in any order; those of reads (READ, GET, LIST, NODES, SWITCH, FORGET, FRESH) are the
 * client's own affair, and best taken from the same count.
 *
 * The first request is ATTACH. Its ptr.address and ptr.generation are the client's 128-bit id, which is random, and the
 * same on whatever node it goes on; version 1: it was attached before (ESTALE: the pool has forgotten it, and nobody knows what came of
 * what it had asked for; it may attach anew, on the same connection). Its message has epoch 0; all that follow have the epoch of the answer's, and what has another one
 * ends the connection. The answer's bytes are struct node_facts. A client without the right to write is not kept in the
 * pool's memory: ATTACH is answered all the same, and changes are EACCES.
 *
 * Values: inline as far as a message goes; POOL_SOURCE_PULL: the node reads them from the client's memory (REMOTE_READ, until the
 * answer). A key of 0 is the STag that this very message advertises (STAGDV_WC_ADVERTISED), of one such request a message; the
 * answer's message may close it (stagdv_post_send_close()): what it does not close the client withdraws. Of READ and GET, `length` is how much room there is: inline in the answer, or with POOL_SOURCE_PULL written to the
 * client's memory (REMOTE_WRITE) before the answer, which then has no bytes. EMSGSIZE: it is longer; ptr.length says how long.
 *
 * Reads that the client does by itself: within the lease, which the node's adapter minds. One that cannot says so (NODE_UNLEASED): there
 * the client asks for FRESH when its reads are done, and delivers them when that is answered. One answer is good for all
 * that was done before it was asked for.
 *
 * POOL_SOURCE_STAGED: the client has written the value to a slot of its own in the node's memory, by RDMA Write, from the slot's beginning
 * on, and source_address is that. It writes to slots that are open: the answers that a message has may be followed by one with op
 * POOL_OP_STAGING, whose bytes are struct node_slot's, one for each slot that is open from then on, and its key. The request's message is a send with
 * invalidate of that key, with no other request in it: nobody can write to the slot when the node hears of it, and what is there is the value,
 * here and at every standby, to which the node's adapter has forwarded it. Which slots there are: below. A client with no slot that is
 * open uses another way.
 *
 * A connection ends when the node is not primary any more, or its adapter refused a read because the lease was over: the client
 * asks around, the highest epoch wins, attaches there with its id and asks again for what was not answered.
 *
 * Everything is little endian.
 */
#ifndef STAG_POOL_PROTOCOL_H
#define STAG_POOL_PROTOCOL_H

#include <stdint.h>

#include "pool/role/roll.h"

#define NODE_DEPTH   64u
#define NODE_MESSAGE 16384u
#define NODE_READS                                                                                 \
	16u /* of the client's, under way in the node's adapter: what it is accepted with */

enum node_flags {
	/* The region has no lease that its adapter minds: what was read is delivered when FRESH, asked for later, is answered. */
	NODE_UNLEASED = 1 << 0,
};

/* A client's part of the staging memory: slots for values that are short, then for longer ones. */
#define NODE_SHORTS 16u
#define NODE_SHORT  65536u
#define NODE_LONGS  3u
#define NODE_LONG   (1u << 20)
#define NODE_SLOTS  (NODE_SHORTS + NODE_LONGS)
#define NODE_SLICE  (NODE_SHORTS * NODE_SHORT + NODE_LONGS * NODE_LONG)

static inline uint32_t node_slot_at(uint32_t slot)
{
	return slot < NODE_SHORTS ? slot * NODE_SHORT
				  : NODE_SHORTS * NODE_SHORT + (slot - NODE_SHORTS) * NODE_LONG;
}

static inline uint32_t node_slot_size(uint32_t slot)
{
	return slot < NODE_SHORTS ? NODE_SHORT : NODE_LONG;
}

/* It is open. */
struct node_slot {
	uint32_t slot, rkey;
};

/* The answer to ATTACH. */
struct node_facts {
	uint64_t address, size; /* of the region */
	uint64_t index_at, num_buckets;
	uint32_t key; /* in pointers */
	uint32_t
		rkey; /* of the region at this node: the same where the adapter lets us choose it */
	uint64_t staging_address, staging_length; /* of this client; length 0: there is none */
	uint32_t flags;				  /* enum node_flags */
	uint32_t rights;			  /* STAG_POOL_RIGHT_* */
	uint8_t uuid[ROLL_UUID_LEN];
	char pool[ROLL_NAME_LEN]; /* its name */
};

struct node_member {
	char name[ROLL_NAME_LEN];
	char address[ROLL_ADDRESS_LEN]; /* HOST:PORT */
	uint32_t role;			/* enum stag_pool_role */
	uint64_t number;		/* of the last record it is known to have */
	uint64_t done, total;		/* bytes, of a joining one */
};

/* The answer to NODES. */
struct node_status {
	uint8_t uuid[ROLL_UUID_LEN];
	char pool[ROLL_NAME_LEN];
	uint64_t epoch, number;
	uint64_t size, address;
	uint64_t objects, bytes, names;
	uint64_t used; /* bytes of memory that are not free */
	uint32_t num_members;
	uint32_t lease_us; /* that are left; UINT32_MAX: the primary is alone, and needs none */
	struct node_member members[ROLL_MAX_NODES];
};

_Static_assert(sizeof(struct node_facts) == 144, "as it is sent");
_Static_assert(sizeof(struct node_member) == 184, "as it is sent");
_Static_assert(sizeof(struct node_status) == 152 + ROLL_MAX_NODES * 184, "as it is sent");

#endif
