/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * protocol.h - the protocol between a client and a node, above the form of their messages (wire.c).
 *
 * A client connects twice (admit.h). The challenge says which epoch the node knows, and where the primary is, if
 * it is another node. Only a primary admits clients: elsewhere a proof is refused, in a way that allows a retry
 * with a new hello. From the accept on, both sides keep NODE_DEPTH receives of NODE_MESSAGE bytes posted.
 *
 * A client has at most NODE_DEPTH unanswered requests on a connection. So a receive is never missing, however
 * requests and answers are bundled into messages. The client reposts the receive of an answer before it sends more
 * requests. Each sequence number is answered once on a connection, in any order. The node does not interpret the
 * sequence numbers of requests that change nothing (READ, GET, LIST, NODES, SWITCH, FORGET, FRESH); the client
 * chooses them so that its own unanswered requests differ.
 *
 * The first request is ATTACH. Its ptr.address and ptr.generation are the client's 128-bit id, which is random,
 * and the same on every node that the client moves to.
 *
 * The outcomes of a client's changes are kept in a slot of the pool's memory. A client without a slot gets one by
 * ENROL, and sends no change before ENROL is answered: by then every node that may be primary next knows the slot.
 * So a client that says in ATTACH that it has a slot (version 1), and has none, is forgotten: ESTALE, the outcome of
 * its changes in flight is unknown; it may attach again as a new client, on the same connection. If version is 0,
 * and key is NODE_ENROL_LATER, ATTACH makes no slot, and the answer says NODE_ENROLS; if key is 0, ATTACH enrols the
 * client, too. EUSERS: there are too many clients with slots. The answer to ENROL has the same bytes as that to
 * ATTACH. When a slot can be taken away: node/expire.c.
 *
 * The message of ATTACH has epoch 0; all later messages have the epoch of its answer, and another epoch ends the
 * connection. The answer's bytes are struct node_facts. A client without the right to write needs no slot: its
 * changes fail with EACCES.
 *
 * Values are inline if they fit in a message. With POOL_SOURCE_PULL the node reads a value from the client's
 * memory (REMOTE_READ, until the answer). A key of 0 means the STag that this message advertises
 * (STAGDV_WC_ADVERTISED); a message has at most one such request. The message of the answer may close the STag
 * (stagdv_post_send_close()); otherwise the client withdraws it. In READ and GET, `length` is the room for the
 * value: in the answer, or with POOL_SOURCE_PULL in the client's memory, which the node writes (REMOTE_WRITE)
 * before it sends an answer without bytes. EMSGSIZE: the value is longer; ptr.length says how long.
 *
 * One-sided reads are valid within the lease, which the node's adapter enforces. A node whose adapter cannot says
 * so (NODE_UNLEASED): its client sends FRESH when its reads are done, and delivers them when FRESH is answered.
 * One answer covers all reads that were done before the FRESH was sent.
 *
 * With POOL_SOURCE_STAGED the client has written the value by RDMA Write to a slot of its own in the node's
 * memory, from the beginning of the slot, and source_address is the slot's address. It may write only to open
 * slots. A message of answers may end with one of op POOL_OP_STAGING, whose bytes are an array of struct
 * node_slot: one for each slot that is open from now on, with its key. The message of the request is a send with
 * invalidate of that key, and has no other request. So no peer can write to the slot any more when the node sees
 * the request, and the value is in the slot, here and on every standby to which the node's adapter has forwarded
 * it. The layout of slots is below. A client without an open slot sends the value in another way.
 *
 * A connection ends when the node is primary no more, or when its adapter refused a read because the lease had
 * expired. Then the client connects to the other nodes, attaches with its id to the one with the highest epoch, and
 * sends the unanswered requests again.
 *
 * All numbers are little endian.
 */
#ifndef STAG_POOL_PROTOCOL_H
#define STAG_POOL_PROTOCOL_H

#include <stag/pool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/role/roll.h"

#define NODE_DEPTH   64u
#define NODE_MESSAGE 16384u
#define NODE_READS                                                                                 \
	16u /* RDMA Reads of a client in flight in the node's adapter, at most: accepted with the connection */

enum node_flags {
	/*
	 * The adapter enforces no lease on the region: reads are delivered when a FRESH that was sent later is
	 * answered.
	 */
	NODE_UNLEASED = 1 << 0,
	/*
	 * The user may use some names only. The client has no key of the region, and requests what it reads. Values whose
	 * names are not for it do not exist for it by pointer (ENOENT), and are refused by name (EACCES).
	 */
	NODE_LIMITED = 1 << 1,
	NODE_ENROLS = 1 << 2, /* the client has the right to write, and no slot yet */
	NODE_EVENTS = 1 << 3, /* the node answers EVENTS */
};

#define NODE_ENROL_LATER 1u /* in ATTACH */

/* The layout of a client's part of the staging memory: slots for short values, then slots for longer ones. */
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

/* A slot that is open from now on. */
struct node_slot {
	uint32_t slot, rkey;
};

/* The bytes of the answer to ATTACH. */
struct node_facts {
	uint64_t address, size; /* of the region */
	uint64_t index_at, num_buckets;
	uint64_t name_key[2]; /* of the names' hash; 0: the client may not read */
	uint32_t key;	      /* the key in pointers */
	uint32_t
		rkey; /* of the region at this node: equal to key if the adapter lets us choose it. 0: the client may not read, and no key would let it */
	uint64_t staging_address, staging_length; /* this client's slots; length 0: none */
	uint32_t flags;				  /* enum node_flags */
	uint32_t rights;			  /* STAG_POOL_RIGHT_* */
	uint8_t uuid[ROLL_UUID_LEN];
	char pool[ROLL_NAME_LEN]; /* name of the pool */
};

struct node_member {
	char name[ROLL_NAME_LEN];
	char address[ROLL_ADDRESS_LEN]; /* HOST:PORT */
	uint32_t role;			/* enum stag_pool_role */
	uint64_t number;		/* of the last record that the node is known to have */
	uint64_t done, total;		/* bytes copied, of a joining node */
};

/* The bytes of the answer to NODES. */
struct node_status {
	uint8_t uuid[ROLL_UUID_LEN];
	char pool[ROLL_NAME_LEN];
	uint64_t epoch, number;
	uint64_t size, address;
	uint64_t objects, bytes, names;
	uint64_t used; /* bytes of memory that are not free */
	uint32_t num_members;
	uint32_t
		lease_us; /* remaining lease in microseconds; UINT32_MAX: the primary is alone, and needs none */
	struct node_member members[ROLL_MAX_NODES];
	struct { /* clients of the primary; counts are since it is running */
		uint64_t connected, paused, pauses, evicted;
		uint64_t slots, max_slots, reclaimed;
	} clients;
	/* Of each member; 0 for users without the right to administer. Earlier versions end before it. */
	uint32_t secrets[ROLL_MAX_NODES]; /* enum stag_pool_member_secret */
};

#define NODE_STATUS_MIN offsetof(struct node_status, secrets)

/* The bytes of the answer to EVENTS: lines of the nodes' logs, oldest first. */
struct node_event {
	uint64_t id;	      /* in the list of the node that answers; from 1 */
	uint64_t run, number; /* the process of its node, and the line's number there, from 1 */
	uint64_t age_us;
	uint32_t level; /* of syslog(3) */
	uint32_t reserved;
	char node[ROLL_NAME_LEN];
	char text[STAG_POOL_EVENT_MAX];
};

_Static_assert(sizeof(struct node_event) == 104 + STAG_POOL_EVENT_MAX, "as it is sent");
_Static_assert(sizeof(struct node_facts) == 160, "as it is sent");
_Static_assert(sizeof(struct node_member) == 184, "as it is sent");
_Static_assert(sizeof(struct node_status) == 208 + ROLL_MAX_NODES * 188, "as it is sent");

#endif
