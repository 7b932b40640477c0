/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * node.h - the inside of a node: one thread, and all that it owns.
 *
 *	node.c       start, stop, query, switchover: the program's calls
 *	check.c      calls that need no running node
 *	loop.c       the thread: reports events to the role (role.h), carries out its actions
 *	memory.c     the region: mapping, registration, lease; the log
 *	conn.c       a connection: its queue pair, its messages, its end
 *	listen.c     the listener: admits or refuses connection requests
 *	serve.c      clients: requests, and answers once all standbys in sync have their records
 *	pull.c       values that are read from, or written to, a client's memory
 *	body.c       bodies of long values, in our region and in the standbys'
 *	staging.c    values that clients write to our memory, and that the adapter forwards
 *	link.c       a primary and its standbys: records, confirmations, heartbeats
 *	follow.c     a standby and its primary: the ring, echoes, fencing
 *	resolve.c    looks up the address of a node
 *	watch.c      whether the process of a standby's primary has ended
 *	resync.c     resynchronises a standby
 *	link_wire.c  messages between nodes
 *	expire.c     forgets absent clients, overwrites deleted values
 *	saver.c      writes the state directory, in a thread of its own
 *	status.c     what the node reports about itself and the others
 *	users.c      the users that the program sets
 *
 * A round of the loop handles, in this order: completions, descriptors (connections, the roll, the program's
 * requests; not in every round), echoes and heartbeats, time. Then requests become records, records are sent to
 * the standbys, and answers are sent to clients. Records are applied and acknowledged when the role says so, at
 * any of these events. No connection is freed before the end of a round, because a completion may still refer
 * to it.
 *
 * Only the thread touches any of it, except struct node_program, which its lock protects.
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
#include "dv/dv.h"
#include "pool/admit/admit.h"
#include "pool/node/link.h"
#include "pool/admit/protocol.h"
#include "pool/memory/memory.h"
#include "pool/role/role.h"
#include "pool/admit/users.h"
#include "pool/role/state.h"

#define PULL_SLOTS 16u /* of POOL_DIRECT_MAX bytes each (pull.c) */

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
	bool up, over;
	struct node_work
		lost; /* for work requests without a completion: it is used only if they fail */
	uint8_t *memory;
	struct ibv_mr *mr;
	struct node_message *messages; /* 2 * depth: for receiving, for sending */
	unsigned int depth, sends;
	struct list out; /* free messages for sending */
};

/* Takes the id over, until node_conn_leave(). */
void node_conn_begin(struct node_conn *c, struct stag_pool_node *n, const struct node_conn_ops *ops,
		     struct rdma_cm_id *id);
/* Creates the queue pair and the messages, and posts the receives. */
int node_conn_prepare(struct node_conn *c, struct ibv_pd *pd, unsigned int depth,
		      unsigned int sends);
void node_conn_leave(struct node_conn *c); /* ends the connection; may be called several times */
struct node_message *node_conn_message(struct node_conn *c); /* NULL: all messages are in flight */
int node_conn_send(struct node_conn *c, struct node_message *m);
/* -ENOMEM: the send queue is full, and nothing was posted; other errors end the connection. */
int node_conn_post(struct node_conn *c, struct ibv_send_wr *wr);
int node_conn_receive(struct node_conn *c, struct node_message *m); /* reposts the receive */
int node_conn_inline_write(struct node_conn *c, const void *bytes, uint32_t length, uint64_t to,
			   uint32_t rkey);
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

struct client {
	struct node_conn conn;
	struct pool_who who;
	char name[ROLL_NAME_LEN];
	uint32_t rights;
	bool attached, greeted; /* attached: recorded in the region; greeted: has sent ATTACH */
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
	struct ibv_mr *mr;
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
	int seat;     /* -1: not assigned yet */
	bool waiting; /* its hello has arrived, and it waits for a seat */
	struct link_hello hello;
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
	uint8_t greeting[ADMIT_MAX];
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
	struct link_echo echo;
	uint64_t told; /* position in the ring that was last reported to the primary */
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
	uint32_t expire_s; /* seconds after which an absent client is forgotten */
	uint64_t log_size; /* bytes, a power of two */
	void (*log)(void *arg, const char *line); /* NULL: log.h */
	void *log_arg;
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
	struct users *new_users; /* users to adopt; NULL: none */
};

/* The thread and its event loop. */
struct node_loop {
	pthread_t thread;
	int epoll, timer, wake; /* descriptors */
	bool busy;		/* this round did something */
	uint64_t busy_at, heard_at, shown_at;
};

/* The adapter that all connections of the node use. */
struct node_adapter {
	const struct dv *dv; /* NULL: it has nothing beyond verbs */
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	int cq_size, cq_used;
	uint8_t reads;	   /* RDMA Reads in flight on a connection, each way, at most */
	struct ibv_pd *pd; /* of clients: no other connection has a queue pair in it */
};

/* The region, the staging memory, and the log. */
struct node_memory {
	struct pool_region region;
	bool mapped;
	struct ibv_mr *region_mr;
	uint64_t lease; /* until when clients may read the region, as the role decided last */
	struct node_staging staging;
	uint64_t staging_length; /* bytes, as the primary says; of a standby */
	struct pool_log log;
	uint64_t settled;    /* position of the log up to which the region has its records */
	uint64_t posted;     /* number of the last record that was reported to the role */
	uint64_t full_since; /* when the log ran full; 0: it has room */
};

/* The state directory. */
struct node_disk {
	int dir; /* descriptor */
	struct pool_state state;
	struct saver saver;
};

/* A primary's clients. */
struct node_serve {
	bool running; /* clients are admitted */
	struct pool_core core;
	unsigned int num_clients;
	struct list inbox;	 /* messages of clients, to be carried out */
	struct list replies;	 /* waiting for their records */
	struct list switchovers; /* replies waiting for another node to be primary */
	struct list unsent;	 /* clients with answers to send */
	uint64_t *seen; /* when each client of the region was last seen, by its slot there */
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

struct stag_pool_node {
	struct node_conf conf;
	struct node_program program;
	struct node_loop loop;
	uint64_t now;	 /* the time of this round, read after what it has seen */
	char fault[512]; /* why the start failed; empty: not known */

	struct role role;
	struct rolls *rolls;
	const char *why; /* the last reason of the role's that was logged */
	struct {	 /* a switchover that the program requested */
		bool running;
		bool leaves; /* the node stops after it */
	} switchover;

	struct users users;
	struct admit *admit;
	struct node_adapter adapter;
	struct list conns, ended; /* connections; those that ended in this round */
	struct node_memory memory;
	struct node_disk disk;
	struct node_serve serve;
	struct node_pulling pulling;
	struct node_standbys standbys;
	struct node_primary primary;
	struct node_proof proof;
	struct stag_pool_node_info info; /* counters, and what status.c fills in */
};

/* node.c */
void node_log(struct stag_pool_node *n, enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void node_report_started(struct stag_pool_node *n, int error);
void node_wake(
	struct stag_pool_node *n); /* wakes the thread, after the program has requested something */

/* check.c */
/* Returns the times that the attributes set, and the defaults of the others. */
struct role_times check_times(const struct stag_pool_node_attr *attr);

/* users.c */
/* Makes a list of users, with the secret of the nodes. Returns -errno, having set the error text (fail.h). */
int users_make(struct users *s, const char *secret, const struct stag_pool_user *users, uint32_t n);
void users_adopt(
	struct stag_pool_node *n); /* adopts a new list of users, if the program has set one */

/* loop.c */
void *node_run_loop(void *arg);
void node_act(
	struct stag_pool_node *n); /* carries out the role's actions; called after each event */
uint64_t node_read_clock(struct stag_pool_node *n);

/* status.c */
void node_show(struct stag_pool_node *n);     /* updates the snapshot that the program queries */
void node_snapshot(struct stag_pool_node *n); /* the same, periodically */
void node_status(struct stag_pool_node *n, struct node_status *status);

/* memory.c */
int memory_create(struct stag_pool_node *n);
/* Makes memory as the primary describes it. -ESTALE: there is a different one already. */
int memory_join(struct stag_pool_node *n, const struct link_facts *facts);
void memory_destroy(struct stag_pool_node *n);
int memory_lease(struct stag_pool_node *n, uint64_t until);
int memory_log(struct stag_pool_node *n);
int memory_settle(struct stag_pool_node *n,
		  uint64_t number); /* applies the records up to this number */

/* listen.c */
int listen_open(struct stag_pool_node *n, const char *address, uint16_t port);
void listen_events(struct stag_pool_node *n);
/* flags are those of getaddrinfo(). */
int listen_address(const char *host_port, uint16_t port, int flags, struct sockaddr_storage *to);

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
void serve_users(struct stag_pool_node *n, const struct users *before);
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

void serve_keep_alive(struct node_conn *c); /* notes that the client has been seen, if it is one */

/* expire.c */
int expire_begin(struct stag_pool_node *n);
void expire_end(struct stag_pool_node *n);
void expire_seen(struct client *k);
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
void link_beat(struct stag_pool_node *n, const struct role_action *a);
void link_handover(struct stag_pool_node *n, const struct role_action *a);
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
void follow_echo(struct stag_pool_node *n, const struct role_action *a);
void follow_become(struct follow *f, enum follow_state state); /* the only writer of its state */
int follow_send(struct follow *f, const union link_message *said);

/* resync.c */
void copy_begin(struct follow *f);
void copy_end(struct follow *f);
void copy_hashes(struct follow *f, const struct link_hashes *hashes);
void copy_catch_up(struct follow *f, uint64_t number);
void copy_step(struct follow *f);
bool copy_lets_apply(const struct follow *f, unsigned int *most);
void copy_answer(struct standby *l, const union link_message *asked); /* the primary's side */

#endif
