/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * client.h - the inside of a client: what is under way, to whom, and what becomes of it when the primary is another.
 *
 * Words. An *op* is an operation of the program's, or one of the library's own. It is *read* from the pool's memory (one-sided, as far as that goes), or *asked*
 * for: a request in a message. A *change* is asked for under a sequence, which it keeps until it is answered, on whatever
 * connection. The *link* is the connection to the primary. A *seat* is an address where a node may be; it is *called* to find out
 * whether the primary is there.
 *
 *     client.c        open, close, the calls that submit and wait     ask.c           messages, sequences, answers
 *     calls.c         one at a time, names, what there is             read.c          one-sided reads and lookups
 *     link.c          device, queue pair, completions                 memory.c        lent memory, buffers of our own
 *     body.c          one-sided reads of long values                  where.c         addresses
 *     seek.c          who is primary: calls, admission                stage.c         values written to the node's memory
 *
 *	            claims to be it, and knows our secret            answers ATTACH
 *	SEEKING  ------------------------------------->  ATTACHING  --------------->  UP
 *	   ^                                                 |                          |
 *	   +-------------------------------------------------+--------------------------+   lost, or another one has a higher epoch
 *
 * Whoever calls into the library drives all of this: there is no thread. While something is under way and nothing is heard, the other
 * nodes are called: a primary that hangs does not say so. The link stays until another node has proven itself.
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
#include "pool/memory/memory.h"

#define CLIENT_DEPTH	 64u /* operations under way, unless the program says */
#define CLIENT_MAX_DEPTH 4096u
#define CLIENT_SMALL	 1024u /* bytes of an op's own buffer for reads */
#define CLIENT_SEATS	 32u
#define CLIENT_PIECES	 8u /* of long values, under way */
#define CLIENT_BATCH	 32 /* completions, work requests in one go */
#define CLIENT_INLINE	 (NODE_MESSAGE - POOL_MESSAGE_HEADER - POOL_REQUEST_HEADER - 264u)
#define CLIENT_OWN	 (1ull << 63) /* in the sequence of what changes nothing */
#define CLIENT_LOOK	 512u	      /* bytes of a value that a lookup reads at once */

#define CALL_NS	     (2000 * NS_PER_MS) /* a call without an answer is given up */
#define QUIET_NS     (30 * NS_PER_MS)	/* without an answer: the others are called */
#define QUIET_MAX_NS (1000 * NS_PER_MS)
#define DEAF_NS	     (5000 * NS_PER_MS) /* ... and the node itself does not answer a call, either */
#define REFRESH_NS   (500 * NS_PER_MS)	/* between questions who is there */
#define SPIN_NS	     50000u		/* before we sleep */

/* ---- memory ---------------------------------------------------------------------- */

struct loan {
	struct loan *next;
	uint8_t *at;
	size_t length;
	struct ibv_mr *mr; /* NULL: no device yet */
	unsigned int users;
};

/* Of our own; as long as there are few of its size, kept. */
struct buffer {
	struct buffer *next;
	size_t size;
	struct ibv_mr *mr;
	uint8_t bytes[];
};

#define BUFFER_SHIFT 12 /* the smallest */
#define BUFFER_SIZES                                                                               \
	9 /* doubling: a value of POOL_DIRECT_MAX and what is before it fits in the last */

/* ---- operations ------------------------------------------------------------------- */

enum op_stage {
	OP_IDLE,
	OP_TO_READ, /* in the list to_read */
	OP_READING, /* in the adapter */
	OP_READ,    /* in the list unproven, or proving */
	OP_TO_ASK,  /* in the list to_ask */
	OP_ASKED,   /* in a message */
	OP_DONE,    /* in the list done, or its call looks at it */
};

enum op_for {
	OP_FOR_POLL, /* the program fetches its outcome with stag_pool_poll() */
	OP_FOR_CALL, /* a call of ours waits for it, and puts it away */
	OP_FOR_US,   /* who is there: asked now and then */
};

/* How a value gets to the node. */
enum op_way {
	WAY_INLINE, /* in the message */
	WAY_STAGED, /* before it, to a slot */
	WAY_PULLED, /* it is fetched */
};

struct client_message;

struct op {
	struct op *next; /* of the list that its stage says */
	struct stag_pool_io io;
	struct stag_pool_done outcome;
	enum op_stage stage;
	uint32_t index;	 /* in client.ops */
	uint32_t serial; /* so that nobody answers one who was here before */
	uint16_t name_length;
	uint8_t wire_op; /* what is asked for: enum stag_pool_op, enum pool_op */
	enum op_for whose;
	bool sent;	     /* it was in a message once: it may have been carried out */
	uint64_t sequence;   /* 0: none yet */
	uint64_t taken_back; /* when it was first, from a link that was lost; 0: never */
	struct client_message *message;
	uint8_t way;  /* enum op_way: of its value, in the message */
	uint8_t slot; /* of WAY_STAGED */

	/* Reading. */
	bool begun; /* with this link */
	union {
		struct pool_read read;
		struct pool_lookup lookup;
	};
	uint8_t *small;		      /* CLIENT_SMALL bytes, registered */
	uint8_t *head, *stored;	      /* where it is being read to */
	uint64_t posted, arrived;     /* of a body, bytes */
	struct pool_hashing *hashing; /* the same; NULL: none yet */
	uint32_t lkey;
	/* Memory that it uses. */
	struct buffer *buffer;
	struct loan *loan;
	struct ibv_mr *mr; /* registered for it alone */
	uint32_t stag;	   /* advertised */
	bool advertised;

	void *answer; /* of what is no value: its bytes, as many as outcome.length says */
	char name[STAG_POOL_NAME_MAX + 1];
};

struct client_op_list {
	struct op *first, *last;
	uint32_t count;
};

/* ---- messages ----------------------------------------------------------------------- */

struct client_message {
	struct client_message *next; /* of those that are free */
	uint8_t *bytes;		     /* NODE_MESSAGE */
	uint16_t index;
	uint16_t unanswered; /* requests in it */
	bool posted;	     /* the adapter has it still */
};

/* ---- nodes ---------------------------------------------------------------------------- */

enum call_stage { CALL_NONE, CALL_ADDRESS, CALL_ROUTE, CALL_CONNECT };

/* Where a node may be. */
struct seat {
	char address[ROLL_ADDRESS_LEN];
	struct sockaddr_storage sockaddr;
	bool given; /* by the program */
	/* The call under way. */
	enum call_stage stage;
	bool proves; /* it is the second connect */
	struct rdma_cm_id *id;
	struct admit_session session;
	uint8_t greeting[ADMIT_MAX];
	int greeting_len;
	uint64_t since;
	/* When none is: */
	uint64_t again;	     /* when to call */
	uint64_t answered;   /* when it answered the last time, */
	uint64_t claimed;    /* and which epoch it knew of */
	unsigned int absent; /* calls in a row that nobody took */
	unsigned int thrown; /* times in a row that it let us in, and had sent us away at once */
};

enum link_stage { LINK_SEEKING, LINK_ATTACHING, LINK_UP };

struct client_link {
	enum link_stage stage;
	struct rdma_cm_id *id;
	struct seat *seat;
	bool one_shot;
	uint64_t since; /* when it let us in */
	uint64_t epoch; /* while it is attaching: what it claimed */
	struct node_facts facts;
	uint32_t open;			/* slots that we may write to, a bit each, */
	uint32_t slot_rkey[NODE_SLOTS]; /* and their keys */
	uint64_t heard; /* the last time that it said something, or had nothing to say */
	uint64_t quiet; /* how long that may be, until the others are called */
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
};

/* The nodes, and which of them is primary (seek.c). */
struct client_nodes {
	struct rdma_event_channel *events;
	struct seat seats[CLIENT_SEATS];
	unsigned int num_seats;
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
	bool attached; /* once, under this id */
	uint64_t next_sequence;
	uint64_t lowest; /* sequence that is not answered */
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
	struct stag_pool_info counts; /* only the fields that count what this client did */
};

/* ---- client.c -------------------------------------------------------------------------- */

/* All that can be done without waiting. */
void client_step(struct stag_pool *p);
void client_new_id(struct stag_pool *p); /* as one who was never here */
/* Until something may have changed; at most until `until`. How much longer it took: the process, or its machine, stood still. */
uint64_t client_sleep(struct stag_pool *p, uint64_t until);
int client_watch(struct stag_pool *p, int fd); /* for who waits elsewhere */
struct op *client_op_get(struct stag_pool *p); /* NULL: no memory */
void client_op_put(struct stag_pool *p, struct op *op);
void client_op_push(struct client_op_list *list, struct op *op);
void client_op_push_front(struct client_op_list *list, struct op *op);
struct op *client_op_pop(struct client_op_list *list);
/* The link is lost: how long they wait counts from the first time. */
void client_op_requeue(struct stag_pool *p, uint64_t now);
/* Its outcome is there: error is an errno value. */
void client_op_finish(struct stag_pool *p, struct op *op, int error);
/* From the beginning. */
void client_op_start(struct stag_pool *p, struct op *op);
/* 0, or -errno: an io that makes no sense. */
int client_op_set(struct op *op, const struct stag_pool_io *io);

/* ---- where.c ------------------------------------------------------------------------ */

int where_add_list(struct stag_pool *p, const char *where);
/* One more; not if it is known. NULL: it is no address, or there are too many. */
struct seat *where_add(struct stag_pool *p, const char *address);

/* ---- seek.c --------------------------------------------------------------------------- */

void seek_step(struct stag_pool *p, uint64_t now);
void seek_start(struct stag_pool *p, uint64_t now);	/* there is no link */
void seek_note_end(struct seat *seat, uint64_t lasted); /* a link to it; nanoseconds */
void seek_stop(struct stag_pool *p);			/* calls, all */
void seek_status(struct stag_pool *p, const void *bytes, uint32_t length); /* struct node_status */
uint64_t seek_next(const struct stag_pool *p); /* when there will be something to do */

/* ---- link.c ---------------------------------------------------------------------------- */

/* -ENODEV, -ENOMEM, ...: what is needed to go by this device. */
int link_use_device(struct stag_pool *p, struct ibv_context *verbs);
int link_make_qp(struct stag_pool *p, struct rdma_cm_id *id, bool for_hello);
/* The node at the other end has proven itself. */
void link_adopt(struct stag_pool *p, struct seat *seat, uint64_t now);
void link_attached(struct stag_pool *p, const struct pool_message *message,
		   const struct pool_answer *answer);
void link_lost(struct stag_pool *p, uint64_t now);
bool link_poll(struct stag_pool *p, uint64_t now); /* true: there may be more */
void link_close(struct stag_pool *p);
void link_free_device(struct stag_pool *p);
bool link_arm(struct stag_pool *p); /* false: look first */

enum wr_kind { WR_RECEIVE, WR_MESSAGE, WR_READ, WR_BODY };
static inline uint64_t wr_id_of(enum wr_kind kind, uint32_t index)
{
	return (uint64_t)index << 8 | kind;
}

/* ---- ask.c ------------------------------------------------------------------------------ */

int ask_attach(struct stag_pool *p);
void ask_pump(struct stag_pool *p);
/* What came in a receive. false: no sense is in it. */
bool ask_handle_message(struct stag_pool *p, const void *bytes, size_t length);
void ask_sent(struct stag_pool *p, uint32_t message);
void ask_closed(struct stag_pool *p, uint32_t stag);  /* the peer closed what was advertised */
void ask_lost(struct stag_pool *p);		      /* with the link */
void ask_forgotten(struct stag_pool *p);	      /* the pool does not know us any more */
void ask_release(struct stag_pool *p, struct op *op); /* its sequence is answered, or given up */

static inline bool ask_is_change(const struct op *op)
{
	return op->wire_op == STAG_POOL_IMPLICIT ||
	       (!pool_op_is_own(op->wire_op) && pool_op_changes(op->wire_op));
}

/* ---- stage.c ---------------------------------------------------------------------------- */

/* A slot for a value of this length: false: none is open, or it is not worth it. */
bool stage_find(const struct stag_pool *p, size_t length, uint8_t *slot);
int stage_request(struct stag_pool *p, struct op *op, struct pool_request *rq);
/* The value, and then the message, which ends the slot. */
int stage_post(struct stag_pool *p, struct op *op, struct ibv_send_wr *message);
bool stage_hear(struct stag_pool *p, const struct pool_answer *answer); /* false: no sense */

/* ---- read.c ----------------------------------------------------------------------------- */

void read_start(struct stag_pool *p, struct op *op);
void read_pump(struct stag_pool *p);
void read_arrived(struct stag_pool *p, uint32_t index, bool is_piece); /* of a body */
void read_lost(struct stag_pool *p);
void read_prove(
	struct stag_pool *p); /* asks whether what was read is fresh, where that is not certain */
void read_proven(struct stag_pool *p, const struct op *prover, int error);

/* ---- body.c ------------------------------------------------------------------------------ */

int body_start(struct stag_pool *p, struct op *op); /* -errno */
void body_pump(struct stag_pool *p);
bool body_arrived(struct stag_pool *p, struct op *op); /* a piece of it; true: the last */
void body_lost(struct stag_pool *p);		       /* all of them */

/* ---- memory.c --------------------------------------------------------------------------- */

int memory_lend(struct stag_pool *p, void *at, size_t length);
int memory_unlend(struct stag_pool *p, void *at);
int memory_register_all(struct stag_pool *p); /* for a device that is new */
void memory_deregister_all(struct stag_pool *p);
void memory_free_all(struct stag_pool *p);
/* The lkey of memory of the program's, for this op: lent, or registered for it with access. -errno. */
int memory_use(struct stag_pool *p, struct op *op, const void *at, size_t length, int access,
	       uint32_t *lkey, uint32_t *rkey);
bool memory_is_lent(const struct stag_pool *p, const void *at, size_t length);
int memory_buffer(struct stag_pool *p, struct op *op, size_t size);
void memory_release(struct stag_pool *p, struct op *op); /* all that the op uses */
int memory_register_slab(struct stag_pool *p, struct slab *slab);

#endif
