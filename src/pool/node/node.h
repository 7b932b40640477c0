/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * node.h - the inside of a node: its thread, all that it owns, and its pulse.
 *
 *	node.c       start, stop, query, switchover: the program's calls
 *	check.c      calls that need no running node
 *	loop.c       the thread: reports events to the role (role.h), carries out its actions
 *	memory.c     the region: mapping, registration, lease; the log
 *	conn.c       a connection: its queue pair, its messages, its end
 *	listen.c     the listener, and events of connections
 *	door.c       admits or refuses connection requests, in a thread of its own
 *	serve.c      clients: requests, and answers once all standbys in sync have their records
 *	pull.c       values that are read from, or written to, a client's memory
 *	body.c       bodies of long values, in our region and in the standbys'
 *	staging.c    values that clients write to our memory, and that the adapter forwards
 *	link.c       a primary and its standbys: records, confirmations
 *	pulse.c      heartbeats, echoes and leases, in a thread of their own
 *	follow.c     a standby and its primary: the ring, echoes, fencing
 *	resolve.c    looks up the address of a node
 *	watch.c      whether the process of a standby's primary has ended
 *	resync.c     resynchronises a standby
 *	link_wire.c  messages between nodes
 *	expire.c     slots of clients: forgets absent ones, makes room; overwrites deleted values
 *	saver.c      writes the state directory, in a thread of its own
 *	status.c     what the node reports about itself and the others
 *	users.c      the users that the program sets
 *	secrets.c    the secrets of the nodes: which ones the others accept, and which one to try
 *	report.c     what clients were allowed and refused (base/audit.h)
 *
 * A round of the loop handles, in this order: completions, descriptors (connections, the roll, the program's
 * requests; not in every round), echoes and heartbeats, time. Then requests become records, records are sent to
 * the standbys, and answers are sent to clients. Records are applied and acknowledged when the role says so, at
 * any of these events. No connection is freed before the end of a round, because a completion may still refer
 * to it.
 *
 * Only the thread touches any of it, except struct node_program, which its lock protects, and what the lock of struct
 * node_pulse protects: the role, whose functions are called by ROLE_EVENT(). Only the thread changes the role's state, so
 * it reads the role without the lock.
 *
 * Of the other rooms of src/pool, this one includes memory, role and admit.
 */
#ifndef STAG_POOL_NODE_H
#define STAG_POOL_NODE_H

#include <pthread.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/rate.h"
#include "dv/dv.h"
#include "pool/admit/admit.h"
#include "pool/node/link.h"
#include "pool/admit/protocol.h"
#include "pool/memory/memory.h"
#include "pool/role/role.h"
#include "pool/node/turns.h"
#include "pool/admit/tls.h"
#include "pool/admit/users.h"
#include "pool/role/state.h"

#define PULL_SLOTS   16u /* of POOL_DIRECT_MAX bytes each, shared by all clients (pull.c) */
#define CLIENT_PULLS 16u /* transfers of a client at a time; further requests of it wait */

/*
 * The protection domains of clients: no other connection has a queue pair in them. The region can be read remotely in
 * the readers' domain only, so its key opens nothing for the queue pairs of other clients, whoever has told it to them.
 */
enum node_domain { DOMAIN_READERS, DOMAIN_OTHERS, NODE_DOMAINS };

/* ---- connections (conn.c) --------------------------------------------------------- */

struct node_conn;

/* A posted work request: wr_id is its address. */
struct node_work {
	void (*done)(struct node_work *work, const struct ibv_wc *wc); /* called on success only */
	struct node_conn *conn;
};

struct node_message {
	struct node_work work;
	struct list
		link; /* in the list of free messages, or of those that wait to be carried out */
	uint8_t *bytes;
	uint32_t length;
	uint32_t advertised;  /* STag that the sender advertised with it; 0: none */
	uint32_t invalidated; /* key of ours that it has invalidated; 0: none */
	/* Used for received messages (serve.c): */
	uint64_t came;	    /* n->now at its arrival */
	size_t where;	    /* offset of its next request */
	uint16_t left;	    /* requests in it that were not carried out yet */
	unsigned int pulls; /* transfers that still use it */
};

struct node_conn_ops {
	void (*event)(struct node_conn *c, struct rdma_cm_event *event); /* CM events of its id */
	void (*received)(struct node_conn *c, struct node_message *m);
	void (*sent)(struct node_conn *c); /* a message is free again; may be NULL */
	void (*ended)(struct node_conn *
			      c); /* called at the end of the round in which the connection ended */
	void (*free)(struct node_conn *c); /* called when the queue pair is destroyed */
};

struct node_conn {
	struct stag_pool_node *node;
	const struct node_conn_ops *ops;
	struct rdma_cm_id *id;
	struct list link; /* in the node's list of connections, or of ended ones */
	struct node_cq *cq;
	bool up, over;
	struct node_work
		lost; /* for work requests without a completion: it is used only if they fail */
	uint8_t *memory;
	struct ibv_mr *mr;
	struct node_message *messages; /* 2 * depth: for receiving, for sending */
	unsigned int depth, sends;
	struct list out;     /* free messages for sending */
	unsigned int unsent; /* messages in the send queue */
	unsigned int beats;  /* heartbeats or echoes that were posted; of the pulse (pulse.c) */
	uint64_t
		sent_at; /* when one of them was sent last, or the first of them posted, or a piece of a value moved */
};

/* Takes the id over, until node_conn_leave(). */
void node_conn_begin(struct node_conn *c, struct stag_pool_node *n, const struct node_conn_ops *ops,
		     struct rdma_cm_id *id);
/* Creates the queue pair and the messages, and posts the receives. */
int node_conn_prepare(struct node_conn *c, struct node_cq *cq, struct ibv_pd *pd,
		      unsigned int depth, unsigned int sends);
void node_conn_leave(struct node_conn *c); /* ends the connection; may be called several times */
struct node_message *node_conn_message(struct node_conn *c); /* NULL: all messages are in flight */
int node_conn_send(struct node_conn *c, struct node_message *m);
/* -ENOMEM: the send queue is full, and nothing was posted; other errors end the connection. */
int node_conn_post(struct node_conn *c, struct ibv_send_wr *wr);
int node_conn_receive(struct node_conn *c, struct node_message *m); /* reposts the receive */
void node_conn_completed(const struct ibv_wc *wc);
void node_conns_free_ended(struct stag_pool_node *n);

/* ---- clients (serve.c) -------------------------------------------------------------- */

struct client;

struct client_reply {
	struct list
		link; /* in the node's list of waiting replies, or the client's list of ready or free ones */
	struct client *client;
	struct pool_answer answer; /* without bytes */
	uint64_t came; /* when the change arrived that it answers; 0: it answers no change */
};

/*
 *	         requests            an answer cannot be stored, or too many transfers
 *	IDLE  -------------> WAITING ----------------------------------------------> PAUSED
 *	 ^                    |   ^                                                     |
 *	 +--------------------+   +-----------------------------------------------------+
 *	   all are carried out     answers were sent, or a transfer has ended
 */
enum client_state {
	CLIENT_IDLE,	/* no request waits */
	CLIENT_WAITING, /* among the clients that take turns */
	CLIENT_PAUSED,	/* its requests wait until it takes its answers, or delivers its values */
};

struct client {
	struct node_conn conn;
	enum client_state state;
	struct turn_place turn;		/* with CLIENT_WAITING: among the clients that take turns */
	struct list inbox;		/* its messages, to be carried out */
	unsigned int unanswered;	/* requests: at most NODE_DEPTH */
	unsigned int pulls, pull_slots; /* transfers in flight; slots that they use */
	struct pull_slot *own_slot; /* NULL: it has needed none beside the shared ones (pull.c) */
	bool slow;		    /* it is paused because it does not take its answers */
	struct pool_who who;
	char name[ROLL_NAME_LEN], address[64];
	uint32_t rights;
	uint64_t proven;	  /* mark of the secret that it has proven (secrets.c) */
	struct pool_scope *scope; /* names that its user may use; NULL: all */
	enum node_domain domain;  /* readers: may read all values, and so one-sidedly */
	bool greeted;		  /* it has sent ATTACH */
	bool enrolled;		  /* it has a slot in the region, who.slot, */
	bool reclaimed;		  /* which was taken away: it gets another one at its next change */
	struct client_reply replies[NODE_DEPTH];
	struct list free_replies, ready;
	struct node_message *writing; /* message that answers are being written to */
	size_t used;
	struct list dirty;	   /* in the node's list of clients with answers to send */
	struct stage_slice *slice; /* its slots for staged values; NULL: none */
};

/* ---- staged values (staging.c) -------------------------------------------------------- */

enum slot_state {
	SLOT_SHUT, /* not writable; to be opened again */
	SLOT_OPEN, /* writable by its client */
	SLOT_TAKEN, /* its client has sent a request about it; not writable until every node has applied the record */
};

struct stage_slot {
	struct list link; /* in the list of taken slots, ordered by `end` */
	struct stage_slice *slice;
	enum slot_state state;
	struct ibv_mw *mw;
	uint32_t rkey;
	uint32_t index;	    /* among all slots */
	uint32_t length;    /* of the value that the last record names */
	uint64_t end;	    /* position of the log behind the last record that refers to the slot */
	const void *asking; /* message with a request that has to be tried again */
	bool touched;	    /* may contain something else than zeroes */
};

struct stage_slice {
	struct client *client; /* NULL: unassigned */
	struct stage_slot slots[NODE_SLOTS];
};

#define STAGING_SLICES 32u
#define STAGING_SENDS  8u /* slots in flight to a standby */
#define STAGING_SLOTS  (STAGING_SLICES * NODE_SLOTS)

struct node_staging {
	uint8_t *at; /* NULL: no staging memory */
	struct ibv_mr *mr[NODE_DOMAINS];
	struct stage_slice *slices;
	unsigned int next; /* slice to assign next */
	struct list taken; /* taken slots */
};

/* ---- standbys (link.c) ---------------------------------------------------------------- */

#define LINK_CONFIRMS 8u
#define LINK_BODIES   8u /* pieces of bodies in flight: heartbeats and records queue behind them */
#define LINK_DEPTH    16u

struct standby {
	struct node_conn conn;
	char name[ROLL_NAME_LEN];
	uint8_t mark[ADMIT_MARK_LEN]; /* with which it was admitted */
	int seat;		      /* -1: not assigned yet */
	bool waiting;		      /* its hello has arrived, and it waits for a seat */
	struct link_hello hello;
	struct link_secrets secrets; /* marks 0: it has not said which it accepts */
	struct ibv_pd *pd;
	struct ibv_mr *log_mr, *region_mr, *own_mr, *staging_mr;
	bool mirrors;		     /* staged values are forwarded to it */
	uint8_t same[STAGING_SLOTS]; /* whether each slot has the same bytes there as here */
	struct node_work caught;     /* for slots that we send, to make them equal */
	unsigned int catching;	     /* such sends in flight */
	struct link_own { /* memory that the standby writes to, and that confirming reads go to */
		struct link_echo echo;
		uint64_t sink[LINK_CONFIRMS];
	} * own;
	uint64_t sent;	    /* position of the log up to which records were sent */
	uint64_t applied;   /* position of the log up to which the standby has applied them */
	uint64_t number;    /* of the last record that the standby has applied */
	uint64_t confirmed; /* number of the last record that is in its ring */
	uint64_t bodies, bodies_there; /* pieces that were sent, and that are in its region */
	unsigned int window;	       /* pieces that may be in flight: fewer if they take long */
	uint64_t copied, total;
	uint64_t echoed; /* send time of the last heartbeat that it echoed */
	struct link_confirm {
		struct node_work work;
		uint64_t number, bodies;
		uint64_t at; /* when the confirmation was requested */
		bool busy;
	} confirms[LINK_CONFIRMS];
};

/* ---- the primary (follow.c, resync.c) ---------------------------------------------------- */

/*
 *	IDLE --> HELLO                                (one connection: it is rejected, with a challenge)
 *	IDLE --> PROOF --> LINKED --> STREAMING       (another: the memory was up to date)
 *	                      |           ^
 *	                      v           |
 *	                   COPYING --> CATCHING_UP    (it was not)
 *
 * Bytes that are no record after the last one lead to IDLE: nothing more is applied.
 */
enum follow_state {
	FOLLOW_IDLE,   /* just created, or bytes in the ring were no record */
	FOLLOW_HELLO,  /* the first connect: says which node we are */
	FOLLOW_PROOF,  /* the second connect: answers the challenge */
	FOLLOW_LINKED, /* accepted; our hello, with the place of our ring, is sent */
	FOLLOW_COPYING, /* reads the chunks of the region that differ, and applies records meanwhile */
	FOLLOW_CATCHING_UP, /* has all chunks; applies records up to the number that the primary named */
	FOLLOW_STREAMING, /* up to date: applies records as they come */
};

#define COPY_CHUNK  65536u
#define COPY_WINDOW LINK_HASHES_MAX
#define COPY_READS  16u

struct follow_copy {
	uint64_t chunks, next;	/* of 64 KiB; next: the first whose hash was not requested yet */
	uint64_t first;		/* chunk of the window */
	unsigned int count, at; /* chunks in the window; the next one to be read */
	bool differs[COPY_WINDOW];
	unsigned int reading;
	bool asked;
	uint64_t until; /* number of the record to catch up to */
	uint8_t *head;	/* buffer for the first chunk, whose superblock is not copied as it is */
	struct ibv_mr *head_mr;
	struct copy_read {
		struct node_work work;
		uint64_t chunk;
		bool busy;
	} reads[COPY_READS];
};

struct follow {
	struct node_conn conn;
	enum follow_state state;
	unsigned int seat;
	uint64_t since;		 /* when the primary last showed a sign of life */
	bool cut;		 /* fenced: nothing more is accepted from it */
	struct resolve *resolve; /* lookup of its address, in flight */
	struct sockaddr_storage to;
	struct admit_session session;
	struct link_secrets secrets; /* marks 0: the primary has not said which it accepts */
	uint8_t greeting[ADMIT_ASK_MAX];
	int greeting_len;
	struct ibv_pd *pd;
	uint8_t *ring_at;
	struct link_beat *beat; /* written by the primary */
	struct ibv_mr *ring_mr, *beat_mr, *region_mr, *staging_mr;
	struct pool_ring ring;
	struct pool_staging
		staging; /* memory that the primary's adapter forwards to; at NULL: none */
	struct link_welcome welcome;
	uint64_t heard,
		settled; /* send time of the last heartbeat; number of the last record that the primary has applied */
	struct link_echo echo; /* under the lock of the pulse */
	uint64_t told;	       /* position in the ring that was last reported to the primary */
	uint64_t told_event;   /* id of the last event that was sent to the primary */
	bool telling;	       /* which has not acknowledged it yet */
	struct follow_copy copy;
};

/* ---- the node --------------------------------------------------------------------------- */

struct pull_slot;

/* Descriptors that the thread waits for. */
enum node_fd {
	NODE_FD_TIMER,
	NODE_FD_WAKE,
	NODE_FD_COMPLETIONS,
	NODE_FD_CONNECTIONS,
	NODE_FD_ROLLS,
	NODE_FDS
};

struct saver {
	pthread_t thread;
	bool running;
	int dir;
	struct lock lock; /* protects the fields below */
	pthread_cond_t told;
	bool pending, closing;
	struct pool_state state;
};

/* The attributes that the node was started with. Set before its thread runs; a standby adopts its primary's log_size and flags. */
struct node_conf {
	char pool[NAME_LEN], name[NAME_LEN], where[512]; /* where: the roll's place */
	struct roll_member us;				 /* this node, as the roll will have it */
	struct pool_format format;			 /* of the region, if we create it */
	uint32_t flags;					 /* enum stag_pool_node_flags */
	uint32_t tls;					 /* enum stag_pool_tls */
	uint32_t expire_s;	 /* seconds after which an absent client is forgotten */
	uint64_t client_timeout; /* ns after which a client that makes no progress is evicted */
	uint32_t user_clients;	 /* connections that one user may have */
	uint64_t
		retry; /* ns for which the slot of a client is not taken away, unless its user has too many */
	uint64_t log_size;				     /* bytes, a power of two */
	void (*log)(void *arg, int level, const char *line); /* NULL: log.h */
	void *log_arg;
};

/* Encrypted connections (tls.c). */
struct node_tls {
	struct lock lock;
	struct users users;	     /* a copy, under the lock */
	struct stagdv_tls *listener; /* NULL: off */
	struct pool_tls visitor;
	bool by_key; /* the users' secrets are the listener's keys */
};

/* Between the program's threads and the node's. `lock` protects all of it. */
struct node_program {
	struct lock lock;
	pthread_cond_t told; /* a field below has changed */
	bool stopping, started;
	int start_error;		  /* errno value */
	struct stag_pool_node_info shown; /* the snapshot that queries return */
	const char *
		switch_to; /* requested switchover: a node's name, or "" for roll_next(); NULL: none */
	int switched;	   /* its result; -EINPROGRESS: not known yet */
	bool leaving;	   /* the node stops after it */
	struct users_change *new_users; /* users to adopt; NULL: none */
};

/* The thread and its event loop. */
struct node_loop {
	pthread_t thread;
	int epoll, timer, wake; /* descriptors */
	bool busy;		/* this round did something */
	uint64_t busy_at, heard_at, shown_at;
	uint64_t asked_at; /* when a completion of a client came last */
};

/*
 * Heartbeats, echoes and leases (pulse.c). `lock` protects the role, and the rest, unless it is atomic. The node's thread
 * sets the pointers, and withdraws them before what they point to ends.
 */
struct node_pulse {
	struct lock lock;
	pthread_t thread;
	bool running;
	_Atomic bool over;
	_Atomic uint64_t round_at;		  /* when the node's thread began its last round */
	struct standby *standbys[ROLL_MAX_NODES]; /* linked; by seat */
	struct follow *primary;			  /* linked, and records are applied */
	uint64_t settled; /* number of the last record that the region has, or an earlier one */
	uint64_t lease;	  /* until when clients may read the region, as the role decided last */
	_Atomic uint64_t lapses;
};

#define DOOR_SOURCES 1024u

/*
 * The door (door.c). `lock` protects the node's `admit` and its users, and the fields up to num_waiting. The other
 * fields belong to the door's thread, or to the node's, as it says there.
 */
struct node_door {
	struct lock lock;
	uint64_t epoch;
	char primary[ROLL_ADDRESS_LEN]; /* for challenges; empty: this node, or unknown */
	char greedy
		[ROLL_ADDRESS_LEN]; /* the last address that was refused for making too many requests */
	struct door_member {	    /* of each seat in the roll */
		char name[ROLL_NAME_LEN];
		uint8_t mark[ADMIT_MARK_LEN]; /* of the name */
		uint64_t refused_at;	      /* last; 0: never. Anybody can claim to be it */
	} members[ROLL_MAX_NODES];
	unsigned int lists;  /* of users, that were adopted so far */
	struct list waiting; /* admitted, to be accepted */
	_Atomic unsigned int num_waiting;
	_Atomic uint64_t refused, limited; /* limited: not judged, because there were too many */
	pthread_t thread;
	bool running;
	struct rdma_event_channel *events;
	int stop;			      /* a descriptor */
	uint64_t revision, logged, logged_at; /* of the node's thread */
	enum role_state state;		      /* too */
	uint64_t key[2];		      /* from here on: of the door's thread */
	uint64_t tokens, filled_at;
	struct door_source { /* all addresses that hash to it */
		uint64_t since, known_at;
		unsigned int requests; /* since then */
	} sources[DOOR_SOURCES];
};

/* A completion queue, and how much of it is spoken for. */
struct node_cq {
	struct ibv_cq *cq;
	int size, used;
};

/* The adapter that all connections of the node use. */
struct node_adapter {
	const struct dv *dv; /* NULL: it has nothing beyond verbs */
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct node_cq clients;
	struct node_cq
		links; /* of nodes: apart, so that the pulse reads their sockets, and no others */
	uint8_t reads; /* RDMA Reads in flight on a connection, each way, at most */
	struct ibv_pd *pd[NODE_DOMAINS];
};

/* The region, the staging memory, and the log. */
struct node_memory {
	struct pool_region region;
	bool mapped;
	/* The others' has no remote access; NULL: no client has needed it yet. */
	struct ibv_mr *region_mr[NODE_DOMAINS];
	struct node_staging staging;
	uint64_t staging_length; /* bytes, as the primary says; of a standby */
	struct pool_log log;
	uint64_t settled;    /* position of the log up to which the region has its records */
	uint64_t posted;     /* number of the last record that was reported to the role */
	uint64_t full_since; /* when the log ran full; 0: it has room */
	struct node_census { /* of a standby: its used memory, counted once a second (status.c) */
		uint64_t span, free;  /* so far */
		uint64_t begun, used; /* of the last count */
	} census;
};

/* The state directory. */
struct node_disk {
	int dir; /* descriptor */
	struct pool_state state;
	struct saver saver;
};

/* What the primary knows about a slot in the region's table of clients. */
struct client_slot {
	uint64_t who;	       /* hash of the user's name; 0: free */
	uint64_t seen;	       /* when its client last made a change, or its connection ended */
	struct client *client; /* NULL: not connected */
	bool owed; /* not connected, and an answer was perhaps not sent: the client will ask again */
};

/* A primary's clients. */
struct node_serve {
	bool running; /* clients are admitted */
	struct pool_core core;
	unsigned int num_clients;
	struct turns turns;	 /* clients with requests */
	unsigned int num_paused; /* clients that do not take their answers */
	uint64_t answer_bytes;	 /* written for clients */
	uint64_t watched_at;	 /* when slow clients were looked for */
	struct rate eviction_lines;
	struct list replies;	   /* waiting for their records */
	struct list switchovers;   /* replies waiting for another node to be primary */
	struct list unsent;	   /* clients with answers to send */
	struct client_slot *slots; /* of the region's table of clients (expire.c) */
	uint64_t expired_at;
};

/* Transfers between values and clients' memory (pull.c). */
struct node_pulling {
	struct list pulls, idle_pulls;
	struct pull_slot *slots;
	struct list free_slots;
	unsigned int num_free_slots;
};

/* A primary's standbys (link.c). */
struct node_standbys {
	struct standby *links[ROLL_MAX_NODES]; /* by seat */
	unsigned int num_waiting;	       /* links without a seat yet */
	struct { /* the record whose replication is being timed; number 0: none */
		uint64_t number, since;
	} timed;
};

/* A standby's primary (follow.c). */
struct node_primary {
	struct follow *link; /* NULL: none */
	int seat;	     /* to be followed; -1: none */
	uint64_t retry_at;
	unsigned int tries; /* failed in a row */
	/* The secrets that it accepts, as far as we know: those that it told us, or the one that it accepted. */
	struct link_secrets accepts;
	unsigned int first; /* of our secrets, the one to try first */
	unsigned int proof; /* how to prove ourselves: secret_to_prove() */
	bool refused;	    /* every way was refused, which is logged */
};

/* Proof that a primary's process has ended (life.h). */
struct node_proof {
	struct life own;
	struct {	/* of the primary that we were linked to last */
		int fd; /* -1: nothing proves its end */
		unsigned int seat;
		uint64_t epoch;
	} primary;
};

#define EVENTS_KEPT    128
#define REFUSALS_ALIKE 32 /* kinds of refusals whose last line is known */

/* The last lines of this node's log, and of its standbys'. */
struct node_events {
	struct lock lock; /* protects the next four; node_log() takes it last */
	uint64_t run;	  /* of this process */
	uint64_t number;  /* of our last line */
	uint64_t count;	  /* id of the last line; line n is at (n - 1) % EVENTS_KEPT */
	struct node_kept {
		struct node_event event;
		uint64_t at; /* ns */
	} list[EVENTS_KEPT];
	struct rate refusals;
	struct refused_alike { /* also under the lock */
		uint64_t key;
		uint64_t logged_at;  /* 0: free */
		uint32_t suppressed; /* since then */
	} alike[REFUSALS_ALIKE];
	uint64_t lapses_told, lapses_told_at; /* used by the node's thread only */
};

/* Set when the old primary is fenced, for the report of the failover. */
struct node_takeover {
	char from[ROLL_NAME_LEN]; /* the old primary; empty: none was */
	char cause[96];
	uint64_t since;
};

struct stag_pool_node {
	struct node_conf conf;
	struct node_program program;
	struct node_tls tls;
	struct node_loop loop;
	uint64_t now;	 /* the time of this round, read after what it has seen */
	char fault[512]; /* why the start failed; empty: not known */

	struct role role; /* under the lock of the pulse: ROLE_EVENT() */
	struct node_pulse pulse;
	struct rolls *rolls;
	const char *why; /* the last reason of the role's that was logged */
	struct {	 /* a switchover that the program requested */
		bool running;
		bool leaves; /* the node stops after it */
	} switchover;

	struct users users;
	struct link_secrets
		secrets; /* marks of the nodes' secrets: users; 0 until the roll was read */
	struct admit *admit;
	struct node_door door;
	struct node_adapter adapter;
	struct list conns, ended; /* connections; those that ended in this round */
	struct node_memory memory;
	struct node_disk disk;
	struct node_serve serve;
	struct node_pulling pulling;
	struct node_standbys standbys;
	struct node_primary primary;
	struct node_proof proof;
	struct node_events events;
	struct node_takeover takeover;
	struct stag_pool_node_info info; /* counters, and what status.c fills in */
};

/* event.c */
/* Logs a line, and keeps it; safe from any thread. */
void node_log(struct stag_pool_node *n, enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void events_begin(struct node_events *e);
void events_end(struct node_events *e);
void events_take(struct stag_pool_node *n, const struct node_event *one); /* of a standby */
/* Stores the events after the id `since`, oldest first, as many as there is room for; returns how many. */
unsigned int events_list(struct node_events *e, uint64_t since, struct node_event *to,
			 unsigned int room);
/* Stores the next event of this node after *since, and advances *since. Returns false if there is none. */
bool events_next_own(struct node_events *e, uint64_t *since, struct node_event *to);
void takeover_begin(struct stag_pool_node *n);	/* to be called when the old primary is fenced */
void takeover_report(struct stag_pool_node *n); /* logs the failover or the switchover */
void lapses_report(struct stag_pool_node *n);	/* logs expired leases */

/* node.c */
void node_set_fault(struct stag_pool_node *n, const char *why); /* why the start fails */
void node_report_started(struct stag_pool_node *n, int error);
void node_wake(
	struct stag_pool_node *n); /* wakes the thread, after the program has requested something */

/* check.c */
/* Returns the times that the attributes set, and the defaults of the others. */
struct role_times check_times(const struct stag_pool_node_attr *attr);

/* users.c */
/* What the program wants to be adopted, and the result: 0 or -errno, with the reason. */
struct users_change {
	struct users list;
	bool secret; /* the secret of the nodes changes, not the users */
	int result;
	char why[256];
};

/*
 * Makes a list of users, with the secrets of the nodes (also: NULL or the second one). Returns -errno, having set the error
 * text (fail.h).
 */
int users_make(struct users *s, const char *secret, const char *also,
	       const struct stag_pool_user *users, uint32_t n);

/* secrets.c */
/* Returns what identifies a secret in this pool, without telling it; 0: no secret. */
uint64_t secret_mark(const struct stag_pool_node *n, const char *secret);
bool secret_has_mark(const struct stag_pool_node *n, const struct user *user, uint64_t mark);
void secrets_note(struct stag_pool_node *n); /* the roll was read, or n->users have changed */
/* Tells the other end of a link which secrets of the nodes we accept. */
union link_message secrets_to_tell(const struct stag_pool_node *n);
void secrets_tell(struct stag_pool_node *n); /* tells it on all links */
/*
 * Checks that every node that accepts one of our secrets now, accepts one of the new ones, too. Returns 0, or -EBUSY and
 * the reason.
 */
int secrets_check(const struct stag_pool_node *n, const struct users *to, char *why, size_t size);
const char *secret_to_prove(const struct stag_pool_node *n); /* to the primary */
/* Tries another way next, because the primary has refused this one. Returns false if it has refused all of them. */
bool secret_was_refused(struct stag_pool_node *n);
void secret_was_accepted(struct stag_pool_node *n);
/* Notes which secrets the primary accepts: the next connection begins with one of them. */
void secret_heard(struct stag_pool_node *n, const struct link_secrets *accepts);
/* Begins again: with the first of our secrets that the primary accepts. */
void secret_start_over(struct stag_pool_node *n);
/* Returns what a status says about the secrets of the node in a seat: enum stag_pool_member_secret. */
uint32_t secret_status(const struct stag_pool_node *n, unsigned int seat);
/* Returns -errno, with the text of pool_fail(). */
int tls_open_node(struct stag_pool_node *n, const struct pool_tls_files *files);
void tls_close_node(struct stag_pool_node *n);
/* Connects with this secret from now on; without the hint, a node of an earlier version is reached. */
void tls_prove(struct stag_pool_node *n, const char *secret, bool hinted);
void tls_adopt_users(struct stag_pool_node *n); /* n->users have changed */
void users_adopt(
	struct stag_pool_node *n); /* adopts a new list of users, if the program has set one */

/* loop.c */
void *node_run_loop(void *arg);
void node_act(
	struct stag_pool_node *n); /* carries out the role's actions; called after each event */
uint64_t node_read_clock(struct stag_pool_node *n);

/* pulse.c */
int pulse_start(struct stag_pool_node *n);
void pulse_stop(struct stag_pool_node *n);
/* Carries out the actions of the role that are the pulse's. The caller holds the lock. */
void pulse_act(struct stag_pool_node *n);
void pulse_set_standby(struct stag_pool_node *n, unsigned int seat,
		       struct standby *l); /* NULL: none */
void pulse_set_primary(struct stag_pool_node *n, struct follow *f);
void pulse_forget_primary(struct stag_pool_node *n, const struct follow *f);
/* Tells the primary how far its records are applied. Returns -errno if that could not be sent now. */
int pulse_report_applied(struct follow *f, uint64_t applied, uint64_t number);

/* Calls a function of the role that changes it; node_act() follows. */
#define ROLE_EVENT(n, call)                                                                        \
	do {                                                                                       \
		lock_acquire(&(n)->pulse.lock);                                                    \
		call;                                                                              \
		lock_release(&(n)->pulse.lock);                                                    \
	} while (0)

/* status.c */
void node_show(struct stag_pool_node *n);     /* updates the snapshot that the program queries */
void node_snapshot(struct stag_pool_node *n); /* the same, periodically */
void node_status(struct stag_pool_node *n, struct node_status *status);

/* memory.c */
int memory_create(struct stag_pool_node *n);
/* Makes memory as the primary describes it. -ESTALE: there is a different one already. */
int memory_join(struct stag_pool_node *n, const struct link_facts *facts);
void memory_destroy(struct stag_pool_node *n);
/* Registers the region for what the node sends to clients of this domain. */
int memory_open_for(struct stag_pool_node *n, enum node_domain domain);
int memory_lease(struct stag_pool_node *n, uint64_t until);
int memory_log(struct stag_pool_node *n);
int memory_settle(struct stag_pool_node *n,
		  uint64_t number); /* applies the records up to this number */

/* listen.c */
int listen_open(struct stag_pool_node *n, const char *address, uint16_t port);
void listen_events(struct stag_pool_node *n);
void listen_describe_peer(struct rdma_cm_id *id, char *to, size_t room);
/* flags are those of getaddrinfo(). */
int listen_address(const char *host_port, uint16_t port, int flags, struct sockaddr_storage *to);

/* door.c */
int door_open(struct stag_pool_node *n);
int door_start(struct stag_pool_node *n);
void door_stop(struct stag_pool_node *n);
void door_close(struct stag_pool_node *n);
void door_update(struct stag_pool_node *n);
void door_accept(struct stag_pool_node *n);
/* Returns whether the node of this seat was refused just now. */
bool door_refuses(struct stag_pool_node *n, unsigned int seat);

/* resolve.c: the same in the background */
struct resolve;
struct resolve *resolve_start(const char *host_port); /* NULL: no memory, or no thread */
int resolve_poll(struct resolve *r, struct sockaddr_storage *to); /* -EINPROGRESS: not known yet */
void resolve_end(struct resolve *r); /* Takes NULL; also while the lookup is in flight */

/* serve.c */
int serve_accept(struct stag_pool_node *n, struct rdma_cm_id *id, const struct admit_session *s);
int serve_start(struct stag_pool_node *n);
void serve_stop(struct stag_pool_node *n);
void serve_requests(struct stag_pool_node *n);
/* Releases the answers to records up to this number, which are applied. */
void serve_answers(struct stag_pool_node *n, uint64_t number);
void serve_flush(struct stag_pool_node *n);
/* Disconnects clients whose user changed. */
void serve_users(struct stag_pool_node *n);
/* Answers switchover requests with EBUSY if the handover was taken back. */
void serve_fail_switchovers(struct stag_pool_node *n);
/* Reposts the receive of a message that nothing uses any more. */
void serve_message_done(struct node_message *m);
/* Carries out a change whose value is complete, and whose message arrived at `came`. -EAGAIN: later. */
int serve_change(struct client *k, const struct pool_request *request, uint64_t came,
		 struct pool_answer *answer);
int serve_reply(struct client *k,
		const struct pool_answer *answer); /* sent when its record is applied */
void *serve_record_room(struct stag_pool_node *n, size_t need, size_t *room);

/* Ends the connection of a client that misbehaves, or is too slow, and reports why. */
void serve_evict(struct client *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void serve_resume(struct client *k);	    /* called when a paused client may continue */
void serve_watch(struct stag_pool_node *n); /* evicts clients that make no progress */

/* report.c */
struct pool_request;
/* Reports that somebody at the other end of id was admitted, or refused with this reason. */
void report_admission(struct stag_pool_node *n, struct rdma_cm_id *id, const char *user,
		      const char *refused);
/* Reports a request of a client that was refused with this reason. */
void report_refusal(const struct client *k, const struct pool_request *request, const char *reason);
/* Reports an act of administration, with its result: 0 or -errno. */
void report_act(const struct client *k, const struct pool_request *request, int result);

/* expire.c */
int expire_begin(struct stag_pool_node *n);
void expire_end(struct stag_pool_node *n);
/* Takes a slot away from another client if there is none for k. -EAGAIN: later. */
int expire_make_room(struct client *k);
void expire_enrolled(struct client *k); /* k has a slot now */
void expire_detached(struct client *k); /* it has given it back */
void expire_used(struct client *k);	/* it has made a change */
void expire_left(struct client *k);	/* its connection has ended */
void expire_clients(struct stag_pool_node *n);
void expire_values(struct stag_pool_node *n);

/* saver.c */
int saver_start(struct saver *s, int dir);
void saver_save(struct saver *s, const struct pool_state *state);
void saver_stop(struct saver *s); /* writes a pending state first */

/* pull.c */
int pulls_create(struct stag_pool_node *n);
void pulls_destroy(struct stag_pool_node *n);
int pull_start(struct client *k, struct node_message *m, const struct pool_request *request);
void pulls_step(struct stag_pool_node *n);
void pulls_forget(struct client *k);
void pulls_free_slot(struct client *k); /* called when the client's queue pair is destroyed */
/* Evicts clients whose transfers make no progress for this long, in ns; with 0 counts from now on. */
void pulls_watch(struct stag_pool_node *n, uint64_t timeout);

/* body.c */
/* Returns the number of the last record that is applied here and on every linked standby. */
uint64_t body_quiet(const struct stag_pool_node *n);
/*
 * Places bytes of a body at an offset of the region, here and on every standby, followed by a record. No client
 * reads them yet. since: the last record that touched the place, or made it the body's. -EAGAIN: later;
 * -EOPNOTSUPP: send them as a record instead.
 */
int body_place(struct stag_pool_node *n, uint64_t since, uint64_t offset, const void *bytes,
	       uint32_t length);
/* Reports that this many of the pieces sent are in place, ns after they were sent. */
void body_confirmed(struct standby *l, uint64_t pieces, uint64_t ns);

/* staging.c */
/* Makes the staging memory of a primary. If that fails, or is not wanted, software forwards values. */
void node_staging_open(struct stag_pool_node *n);
void node_staging_start(struct stag_pool_node *n);   /* called while nothing is in flight */
void node_staging_destroy(struct stag_pool_node *n); /* called when no client is left */
/* Returns the memory that records refer to, for the node that made them. */
struct pool_staging node_staging_own(const struct stag_pool_node *n);
void node_staging_assign(struct client *k); /* assigns a slice, if one is free */
void node_staging_leave(struct client *k);  /* called when the client's queue pair is destroyed */
/* Opens slots that can be opened, and announces them in the message that k is writing. */
void node_staging_announce(struct client *k);
int node_staging_change(struct client *k, struct node_message *m,
			const struct pool_request *request);
/* Shuts the slot of a request that is refused, so that it is opened again. */
void node_staging_refuse(struct client *k, const struct node_message *m,
			 const struct pool_request *request);
void node_staging_release(
	struct stag_pool_node *n);	    /* frees slots whose records every node has applied */
int node_staging_mirror(struct standby *l); /* starts forwarding to this standby */
void node_staging_unmirror(struct standby *l);
/*
 * Sends staged values that unsent records refer to, and that were not forwarded. Returns false if some could not
 * be sent.
 */
bool node_staging_catch_up(struct standby *l);

/* link.c */
int link_accept(struct stag_pool_node *n, struct rdma_cm_id *id, const struct admit_session *s);
void links_poll(struct stag_pool_node *n);
void links_acknowledged(struct stag_pool_node *n,
			uint64_t number);  /* every standby in sync has the records up to number */
void links_send(struct stag_pool_node *n); /* sends new records */
void links_release(
	struct stag_pool_node *n); /* frees the part of the log that all standbys have applied */
void link_handover(struct stag_pool_node *n, const struct role_action *a);
int link_send(struct standby *l, const union link_message *said);
void link_cut(struct stag_pool_node *n, unsigned int seat);
void links_end(struct stag_pool_node *n);

/* watch.c: proof that a primary's process has ended (life.h) */
void watch_begin(struct stag_pool_node *n, unsigned int seat, const uint8_t token[LIFE_TOKEN_LEN]);
void watch_end(struct stag_pool_node *n);
void watch_poll(struct stag_pool_node *n);
void watch_own_life(struct stag_pool_node *n);

/* follow.c */
void follow_start(struct stag_pool_node *n, unsigned int seat);
void follow_end(struct stag_pool_node *n);
void follow_fence(struct stag_pool_node *n);
void follow_poll(struct stag_pool_node *n);
void follow_become(struct follow *f, enum follow_state state); /* the only writer of its state */
int follow_send(struct follow *f, const union link_message *said);
bool follow_knows_secrets(
	const struct follow *f); /* the primary has welcomed us, and knows LINK_SECRETS */

/* resync.c */
void copy_begin(struct follow *f);
void copy_end(struct follow *f);
void copy_hashes(struct follow *f, const struct link_hashes *hashes);
void copy_catch_up(struct follow *f, uint64_t number);
void copy_step(struct follow *f);
bool copy_lets_apply(const struct follow *f, unsigned int *most);
void copy_answer(struct standby *l, const union link_message *asked); /* the primary's side */

#endif
