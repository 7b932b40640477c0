/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client.h - the inside of a client: operations in flight, the nodes, and what happens when the primary changes.
 *
 * Terms. An *op* is an operation of the program, or one of the library itself. It is *read* from the pool's memory
 * (one-sided, if possible), or *asked*: sent to the node as a request in a message. A *change* has a sequence number, which it
 * keeps until it is answered, on any connection. The *link* is the connection to the primary. A *peer* is an address at
 * which a node may be; a *call* to it finds out whether it is primary.
 *
 *     client.c   open, close, submit, poll, wait            ask.c      messages, sequence numbers, answers
 *     calls.c    calls that wait, names, queries            read.c     one-sided reads and lookups
 *     link.c     device, queue pair, completions            memory.c   lent memory, the library's buffers
 *     body.c     one-sided reads of long values             where.c    addresses
 *     seek.c     finding the primary: calls, admission      stage.c    values written to the node's memory
 *
 *	            admits us, and knows our secret                  answers ATTACH
 *	SEEKING  ------------------------------------->  ATTACHING  --------------->  UP
 *	   ^                                                 |                          |
 *	   +-------------------------------------------------+--------------------------+   lost, or another has a higher epoch
 *
 * There is no thread: the program's calls drive all of this. While operations are in flight and the primary is silent, the
 * other nodes are called, because a primary that hangs does not report it. The link stays until another node has proven
 * itself.
 *
 * Of the other rooms of src/pool, this one includes memory and admit, never node.
 */
#ifndef STAG_POOL_CLIENT_H
#define STAG_POOL_CLIENT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "dv/dv.h"
#include "pool/admit/admit.h"
#include "pool/admit/fail.h"
#include "pool/admit/protocol.h"
#include "pool/admit/tls.h"
#include "pool/memory/memory.h"

#define CLIENT_DEPTH	 64u /* operations in flight, unless the program sets another number */
#define CLIENT_MAX_DEPTH 4096u
#define CLIENT_SMALL	 1024u /* bytes of an op's own buffer for reads */
#define CLIENT_PEERS	 32u
#define CLIENT_PIECES	 8u /* of long values, in flight */
#define CLIENT_BATCH	 32 /* completions, or work requests, handled at once */
#define CLIENT_INLINE	 (NODE_MESSAGE - POOL_MESSAGE_HEADER - POOL_REQUEST_HEADER - 264u)
#define CLIENT_OWN	 (1ull << 63) /* marks the sequence numbers of requests that change nothing */
#define CLIENT_LOOK	 512u	      /* bytes of a value that a lookup reads at once */

#define CALL_NS	     (2000 * NS_PER_MS) /* after which an unanswered call is given up */
#define QUIET_NS     (30 * NS_PER_MS)	/* of silence, after which the other nodes are called */
#define QUIET_MAX_NS (1000 * NS_PER_MS)
#define DEAF_NS                                                                                    \
	(5000 * NS_PER_MS) /* of silence to calls as well, after which the link is given up */
#define REFRESH_NS (500 * NS_PER_MS) /* between queries of the list of members */
#define SPIN_NS	   50000u	     /* of polling before sleeping */

/* ---- memory ---------------------------------------------------------------------- */

struct loan {
	struct loan *next;
	uint8_t *at;
	size_t length;
	struct ibv_mr *mr; /* NULL: no device is in use yet */
	unsigned int users;
};

/* A buffer of the library. Some of each size are kept for reuse. */
struct buffer {
	struct buffer *next;
	size_t size;
	struct ibv_mr *mr;
	uint8_t bytes[];
};

#define BUFFER_SHIFT 12 /* of the smallest size */
#define BUFFER_SIZES                                                                               \
	9 /* each twice as large as the one before: the last has room for a value of POOL_DIRECT_MAX and its header */

/* ---- operations ------------------------------------------------------------------- */

enum op_stage {
	OP_IDLE,
	OP_TO_READ, /* in the list to_read */
	OP_READING, /* in the adapter */
	OP_READ,    /* in the list unproven, or proving */
	OP_TO_ASK,  /* in the list to_ask */
	OP_ASKED,   /* in a message */
	OP_DONE,    /* in the list done, or being looked at by the call that waits for it */
};

enum op_for {
	OP_FOR_POLL, /* the program fetches its outcome with stag_pool_poll() */
	OP_FOR_CALL, /* a call of the library waits for it, and frees it */
	OP_FOR_US,   /* the library's own: the periodic query of members, or FRESH */
};

/* The way of a value to the node. */
enum op_way {
	WAY_INLINE, /* in the message */
	WAY_STAGED, /* written to a slot before the message */
	WAY_PULLED, /* fetched by the node */
};

struct client_message;

struct op {
	struct op *next; /* in the list that its stage implies */
	struct stag_pool_io io;
	struct stag_pool_done outcome;
	enum op_stage stage;
	uint32_t index; /* in client_queue.ops */
	uint32_t
		serial; /* distinguishes uses of this struct, so that a late answer is not taken for another op's */
	uint16_t name_length;
	uint8_t wire_op; /* opcode of the request: enum stag_pool_op or enum pool_op */
	enum op_for whose;
	bool sent;	     /* was in a message once, so it may have been carried out */
	uint64_t sequence;   /* 0: none yet */
	uint64_t taken_back; /* when it was first requeued, after a link was lost; 0: never */
	struct client_message *message;
	uint8_t way;  /* enum op_way: of its value */
	uint8_t slot; /* with WAY_STAGED */

	/* For one-sided reads. */
	bool begun; /* on this link */
	union {
		struct pool_read read;
		struct pool_lookup lookup;
	};
	uint8_t *small;		      /* CLIENT_SMALL bytes, registered */
	uint8_t *head, *stored;	      /* buffers that it is being read to */
	uint64_t posted, arrived;     /* bytes of a body */
	struct pool_hashing *hashing; /* of a body; NULL: not allocated yet */
	uint32_t lkey;
	/* Memory in use. */
	struct buffer *buffer;
	struct loan *loan;
	struct ibv_mr *mr; /* registered for this op only */
	uint32_t stag;	   /* advertised */
	bool advertised;

	void *answer; /* bytes of an answer that is no value; outcome.length says how many */
	char name[STAG_POOL_NAME_MAX + 1];
};

struct client_op_list {
	struct op *first, *last;
	uint32_t count;
};

/* ---- messages ----------------------------------------------------------------------- */

struct client_message {
	struct client_message *next; /* in the list of free messages */
	uint8_t *bytes;		     /* NODE_MESSAGE bytes */
	uint16_t index;
	uint16_t unanswered; /* requests in it without an answer */
	bool posted;	     /* the adapter is still using it */
};

/* ---- nodes ---------------------------------------------------------------------------- */

enum call_stage { CALL_NONE, CALL_ADDRESS, CALL_ROUTE, CALL_CONNECT };

/* An address at which a node may be. */
struct client_peer {
	char address[ROLL_ADDRESS_LEN];
	struct sockaddr_storage sockaddr;
	bool given; /* by the program, not learnt from a node */
	/* The call in flight. */
	enum call_stage stage;
	bool proves; /* it is the second connect, with the proof */
	struct rdma_cm_id *id;
	struct admit_session session;
	uint8_t greeting[ADMIT_ASK_MAX];
	int greeting_len;
	uint64_t since;
	/* Between calls. */
	uint64_t again;	     /* when to call next */
	uint64_t answered;   /* when the node answered last, */
	uint64_t claimed;    /* and the epoch that it claimed */
	unsigned int absent; /* failed calls in a row */
	unsigned int
		thrown; /* times in a row that the node admitted us, and disconnected us at once */
};

enum link_stage { LINK_SEEKING, LINK_ATTACHING, LINK_UP };

struct client_link {
	enum link_stage stage;
	struct rdma_cm_id *id;
	struct client_peer *peer;
	bool one_shot;
	bool enrolling; /* ENROL is in flight */
	uint64_t since; /* when the node admitted us */
	uint64_t epoch; /* while attaching: the epoch that the node claimed */
	struct node_facts facts;
	uint32_t open;			/* slots that we may write to, one bit each */
	uint32_t slot_rkey[NODE_SLOTS]; /* keys of these slots */
	uint64_t heard; /* when the node last sent something, or had nothing to answer */
	uint64_t quiet; /* ns of silence after which the other nodes are called */
	uint64_t refreshed;
};

/* The attributes that the pool was opened with. */
struct client_conf {
	char user[NAME_LEN];
	char *secret;
	uint32_t depth;	     /* operations in flight, at most */
	uint32_t requests;   /* of these, requests to the node, at most */
	uint64_t retry_ns;   /* how long a primary is sought; 0: for ever */
	const struct dv *dv; /* NULL: no one-shot sends */
	struct pool_tls tls;
};

/* The nodes, and which of them is primary (seek.c). */
struct client_nodes {
	struct rdma_event_channel *events;
	struct client_peer peers[CLIENT_PEERS];
	unsigned int num_peers;
	unsigned int calls; /* in flight */
	uint64_t epoch;	    /* the highest of a node that has proven itself */
	uint8_t uuid[ROLL_UUID_LEN];
	bool has_uuid;
	uint64_t sought; /* since when there is no primary */
	bool lost;	 /* there was none for retry_ns */
	uint64_t
		taken_back; /* the earliest time of the operations that wait for a link; 0: none does */
	bool has_queried; /* the list of members was fetched once: only known nodes can be called */
	int refused;	  /* -errno: why a node refused us */
};

/* The device that nodes are reached by, and the messages on it (link.c). */
struct client_device {
	struct ibv_context *verbs;
	uint8_t reads; /* RDMA Reads in flight on a queue pair, at most */
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	bool armed, rang; /* rang: something has completed since it was armed */
	uint32_t polls;	  /* since then */
	struct ibv_mr *receives_mr, *messages_mr;
	uint8_t *receives, *messages_at; /* NODE_MESSAGE bytes each */
	struct client_message *messages, *free_messages;
};

/* This client's identity in the pool, and the sequence of its changes (ask.c). */
struct client_self {
	uint64_t id[2];
	bool enrolled; /* the pool has a slot for our outcomes: changes can be sent */
	uint64_t next_sequence;
	uint64_t lowest; /* that is unanswered */
	struct op *window[POOL_WINDOW];
};

/* Operations, by stage. */
struct client_queue {
	struct op **ops; /* all of them, by index */
	uint32_t num_ops;
	struct client_op_list idle, to_read, to_ask, done;
	struct client_op_list unproven,
		proving; /* read, not known to be fresh; those that the FRESH in flight is about */
	const struct op *prover;	   /* that FRESH request */
	struct client_op_list bodies;	   /* being read, with more pieces to be posted */
	uint32_t pieces;		   /* of bodies, in the adapter */
	uint32_t reading, asking, uploads; /* in the adapter; not answered; of those, long values */
	struct slab {
		struct slab *next;
		struct ibv_mr *mr;
		uint8_t *small;
		struct op ops[64];
	} * slabs;
};

/* Registered memory (memory.c). */
struct client_memory {
	struct loan *loans;
	struct buffer *buffers[BUFFER_SIZES];
	uint32_t kept[BUFFER_SIZES];
};

/* For callers that sleep, here or in a poll of their own. */
struct client_waiting {
	int epoll, timer, bell; /* descriptors; -1: not requested */
	uint64_t timer_at;
	bool rung; /* the bell */
	bool look; /* the connection manager may have an event */
};

/* The page of names that stag_pool_next() walks over. */
struct client_names {
	uint8_t *page; /* entries: struct pool_listed */
	uint32_t length, at;
	uint64_t cursor; /* of the entry that is next */
};

/* The page of events that stag_pool_next_event() walks over. */
struct client_events {
	uint8_t *page; /* entries: struct node_event */
	uint32_t length, at;
	uint64_t cursor; /* of the last one taken */
	uint64_t epoch;	 /* of the primary that answered */
};

struct stag_pool {
	struct client_conf conf;
	struct client_nodes nodes;
	struct client_link link;
	struct client_device device;
	struct client_self self;
	struct client_queue queue;
	struct client_memory memory;
	struct client_waiting waiting;
	struct client_names names;
	struct client_events events;
	struct stag_pool_info counts; /* only the fields that count what this client did */
};

/* ---- client.c -------------------------------------------------------------------------- */

/* Does everything that can be done without waiting. */
void client_step(struct stag_pool *p);
void client_new_id(struct stag_pool *p); /* continues as a new client */
/*
 * Sleeps until something may have changed, at most until `until`. Returns how much longer it took, if the process
 * or the machine was stopped.
 */
uint64_t client_sleep(struct stag_pool *p, uint64_t until);
int client_watch(struct stag_pool *p,
		 int fd); /* adds a descriptor for callers that wait elsewhere */
struct op *client_op_get(struct stag_pool *p); /* NULL: out of memory */
void client_op_put(struct stag_pool *p, struct op *op);
void client_op_push(struct client_op_list *list, struct op *op);
void client_op_push_front(struct client_op_list *list, struct op *op);
struct op *client_op_pop(struct client_op_list *list);
/*
 * Notes since when operations wait, after the link was lost and they were requeued. It counts from the first
 * time.
 */
void client_op_requeue(struct stag_pool *p, uint64_t now);
/* Finishes an operation; error is an errno value. */
void client_op_finish(struct stag_pool *p, struct op *op, int error);
/* Starts an operation from its beginning. */
void client_op_start(struct stag_pool *p, struct op *op);
/* Returns 0, or -errno if the io is invalid. */
int client_op_set(struct op *op, const struct stag_pool_io *io);

/* ---- where.c ------------------------------------------------------------------------ */

int where_add_list(struct stag_pool *p, const char *where);
/* Adds an address, unless it is known. Returns NULL if it is invalid, or there are too many. */
struct client_peer *where_add(struct stag_pool *p, const char *address);

/* ---- seek.c --------------------------------------------------------------------------- */

void seek_step(struct stag_pool *p, uint64_t now);
void seek_start(struct stag_pool *p, uint64_t now); /* called when there is no link */
/* Notes that a link to the peer has ended, after `lasted` ns. */
void seek_note_end(struct client_peer *peer, uint64_t lasted);
void seek_stop(struct stag_pool *p); /* cancels all calls */
void seek_status(struct stag_pool *p, const void *bytes,
		 uint32_t length);	       /* bytes: struct node_status */
uint64_t seek_next(const struct stag_pool *p); /* when seek_step() has something to do */

/* ---- link.c ---------------------------------------------------------------------------- */

/* Prepares to use this device. Returns -ENODEV, -ENOMEM, ... */
int link_use_device(struct stag_pool *p, struct ibv_context *verbs);
int link_make_qp(struct stag_pool *p, struct rdma_cm_id *id, bool for_hello);
/* Adopts the connection of a node that has proven itself. */
void link_adopt(struct stag_pool *p, struct client_peer *peer, uint64_t now);
void link_attached(struct stag_pool *p, const struct pool_message *message,
		   const struct pool_answer *answer);
void link_enrolled(struct stag_pool *p, const struct pool_message *message,
		   const struct pool_answer *answer);
void link_lost(struct stag_pool *p, uint64_t now);
bool link_poll(struct stag_pool *p, uint64_t now); /* true: there may be more completions */
void link_close(struct stag_pool *p);
void link_free_device(struct stag_pool *p);
bool link_arm(struct stag_pool *p); /* before sleeping; false: poll once more first */

enum wr_kind { WR_RECEIVE, WR_MESSAGE, WR_READ, WR_BODY };
static inline uint64_t wr_id_of(enum wr_kind kind, uint32_t index)
{
	return (uint64_t)index << 8 | kind;
}

/* ---- ask.c ------------------------------------------------------------------------------ */

int ask_attach(struct stag_pool *p);
void ask_pump(struct stag_pool *p);
/* Handles a received message. Returns false if it is invalid. */
bool ask_handle_message(struct stag_pool *p, const void *bytes, size_t length);
void ask_sent(struct stag_pool *p, uint32_t message);
void ask_closed(struct stag_pool *p, uint32_t stag);   /* the peer closed an advertised STag */
void ask_lost(struct stag_pool *p);		       /* the link was lost */
void ask_forgotten(struct stag_pool *p);	       /* the pool has forgotten this client */
void ask_not_enrolled(struct stag_pool *p, int error); /* the pool has no slot for this client */
/* Releases the sequence number of an op that was answered, or is given up. */
void ask_release(struct stag_pool *p, struct op *op);

static inline bool ask_is_change(const struct op *op)
{
	return op->wire_op == STAG_POOL_IMPLICIT ||
	       (!pool_op_is_own(op->wire_op) && pool_op_changes(op->wire_op));
}

/* ---- stage.c ---------------------------------------------------------------------------- */

/* Finds a slot for a value of this length. Returns false if none is open, or staging does not pay. */
bool stage_find(const struct stag_pool *p, size_t length, uint8_t *slot);
int stage_request(struct stag_pool *p, struct op *op, struct pool_request *rq);
/* Posts the value, and then the message, which invalidates the slot. */
int stage_post(struct stag_pool *p, struct op *op, struct ibv_send_wr *message);
bool stage_hear(struct stag_pool *p, const struct pool_answer *answer); /* false: invalid */

/* ---- read.c ----------------------------------------------------------------------------- */

void read_start(struct stag_pool *p, struct op *op);
void read_pump(struct stag_pool *p);
void read_arrived(struct stag_pool *p, uint32_t index, bool is_piece); /* is_piece: of a body */
void read_lost(struct stag_pool *p);
/* Sends FRESH if reads wait for a proof that they are fresh. */
void read_prove(struct stag_pool *p);
void read_proven(struct stag_pool *p, const struct op *prover, int error);

/* ---- body.c ------------------------------------------------------------------------------ */

int body_start(struct stag_pool *p, struct op *op); /* -errno */
void body_pump(struct stag_pool *p);
bool body_arrived(struct stag_pool *p, struct op *op); /* a piece has arrived; true: the last one */
void body_lost(struct stag_pool *p);		       /* the link was lost */

/* ---- memory.c --------------------------------------------------------------------------- */

int memory_lend(struct stag_pool *p, void *at, size_t length);
int memory_unlend(struct stag_pool *p, void *at);
int memory_register_all(struct stag_pool *p); /* for a new device */
void memory_deregister_all(struct stag_pool *p);
void memory_free_all(struct stag_pool *p);
/* Returns the lkey of the program's memory for this op: lent, or registered for it with this access. -errno. */
int memory_use(struct stag_pool *p, struct op *op, const void *at, size_t length, int access,
	       uint32_t *lkey, uint32_t *rkey);
bool memory_is_lent(const struct stag_pool *p, const void *at, size_t length);
int memory_buffer(struct stag_pool *p, struct op *op, size_t size);
void memory_release(struct stag_pool *p, struct op *op); /* everything that the op uses */
int memory_register_slab(struct stag_pool *p, struct slab *slab);

#endif
