/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * target.h - a target's objects: connections, logins, sessions, tasks and their pieces. The index of this room.
 *
 *   portal.c   accepts            ->  struct target_conn      a connection of a transport
 *   login*.c   authenticates      ->  struct target_session   an initiator's; it has one connection (MaxConnections=1)
 *   session.c  orders commands    ->  struct target_task      a SCSI command
 *   task.c     moves its data     ->  struct target_piece     as much data as a buffer holds
 *
 * All objects belong to the target's thread (target.c). A protocol error of the peer ends its connection, and with it the
 * session (ErrorRecoveryLevel 0): its tasks wait until unit and transport have returned their pieces, and send nothing more.
 *
 * A connection's state. Only set_state() in conn.c changes it, and asserts that the move is legal:
 *
 *   LOGIN ---+--> FULL --+--> CLOSING ---> DEAD      CLOSING: queued PDUs are sent, received ones are dropped
 *     |      ^           |                   ^
 *     +-> PARKED --------+                   |       PARKED: waits until the session that it replaces has no task left
 *     |      |           |                   |
 *     +------+-----------+-------------------+       the peer is lost, or broke the protocol
 */
#ifndef STAG_BLOCK_TARGET_H
#define STAG_BLOCK_TARGET_H

#include <pthread.h>
#include <sys/socket.h>

#include "base/audit.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/rate.h"
#include "block/block.h"
#include "block/iscsi/iscsi.h"
#include "block/scsi/scsi.h"
#include "block/unit/unit.h"
#include "stag/stagdv.h"
#include "tls/tls.h"

struct stag_block_target;
struct target_conn;
struct target_session;
struct target_task;
struct target_piece;

/* ---- login.c, login_chap.c ------------------------------------------------------ */

/* A right to use the target (rights.c). */
struct target_right {
	char *initiator; /* pattern of names; NULL: any */
	char *user, *secret;
	struct scsi_view view;
};

/* Requirements and preferences of a target for logins: the same for all connections of a kind. */
struct target_login_rules {
	const char *target, *alias;
	const char *user, *secret, *own_user, *own_secret;
	struct target_right *rights; /* none: whoever authenticates as user may use all units */
	uint32_t num_rights;
	struct key_wishes wishes;
};

enum target_login_result {
	LOGIN_GOES_ON, /* a response is due */
	LOGIN_REFUSED, /* a response is due, the last one */
	LOGIN_AGREED, /* agreed: target_login_finish() makes the response once there is a session */
};

/* The keys of a request's security stage; they point into its list. */
struct chap_words {
	const char *method, *list, *name, *response, *peer_id, *peer_challenge;
};

struct target_login {
	const struct target_login_rules *rules;
	enum login_stage stage;
	bool begun, discovery, authenticated;
	unsigned int requests;
	uint8_t isid[ISID_LEN];
	uint16_t tsih, cid;
	uint32_t cmd_sn;
	char initiator[STAG_BLOCK_NAME_MAX], target[STAG_BLOCK_NAME_MAX];
	const char *user;     /* that it has authenticated as, in the rules; NULL: none */
	char claimed[64];     /* CHAP user that the initiator claimed to be, for the log */
	const char *tls_user; /* whose key the connection is encrypted by; NULL: it is not */
	bool lacks_tls;	      /* TLS is required, and the connection is not encrypted */
	enum login_status status;
	struct negotiation keys;
	struct {
		enum { CHAP_IDLE, CHAP_OFFERED, CHAP_CHALLENGED, CHAP_PROVEN } state;
		enum chap_algorithm algorithm;
		uint8_t id, challenge[CHAP_CHALLENGE_LEN];
		struct chap_words said;
	} chap;
	struct pdu request; /* the last one */
	struct text_in in;
	struct text_out out; /* of the response */
};

struct target_login *target_login_new(const struct target_login_rules *rules);
void target_login_free(struct target_login *l);
/* Handles a request. The response is in *response, its data in l->out; the caller sets StatSN and MaxCmdSN. */
enum target_login_result target_login_receive(struct target_login *l, const struct pdu *request,
					      const void *data, struct pdu *response);
/* After LOGIN_AGREED: makes the response for a session with this TSIH, or the refusal that status says. */
enum target_login_result target_login_finish(struct target_login *l, enum login_status status,
					     uint16_t tsih, struct pdu *response);

/* login_chap.c: handles the keys of the security stage. */
void target_login_chap(struct target_login *l);

/* rights.c */
int target_rights_create(const struct stag_block_target_attr *a, struct target_login_rules *rules);
void target_rights_destroy(struct target_login_rules *rules);
bool target_right_matches(const struct target_right *r, const char *initiator);
const struct target_right *target_rights_next(const struct target_login_rules *rules,
					      const char *initiator,
					      const struct target_right *before);
/* Returns whether an initiator has a right that requires a user, or one that does not. */
bool target_rights_have(const struct target_login_rules *rules, const char *initiator,
			bool with_user);
/* Returns the right that applies to an initiator that has authenticated as user (NULL: not at all), or NULL. */
const struct target_right *target_rights_find(const struct target_login_rules *rules,
					      const char *initiator, const char *user);
/* Returns whether there is such a right, or none is required. */
bool target_rights_allow(const struct target_login_rules *rules, const char *initiator,
			 const char *user);

/* ---- transports -------------------------------------------------------------------- */

/*
 * A transport of PDUs and data: over TCP (tcp.c) as Data-In, R2T and Data-Out; over verbs (rdma.c) by RDMA Writes and
 * Reads to and from the memory that the command's send lent, and that its response closes.
 *
 * data_in and data_out take over a piece, and return it by target_piece_moved(), from inside the call or later, in the
 * order of the calls. After forget(), and after the end of the connection, pieces are returned with -ECANCELED.
 */
struct target_transport {
	enum stag_block_transport kind;
	bool collapses; /* the status can travel with the last data-in */
	bool rdma;	/* no unsolicited data, no digests */
	/* May a piece be memory of the unit itself, which others may write to meanwhile? NULL: no. */
	bool (*borrows)(const struct target_conn *c);
	/* Queues a PDU, and copies its data. Fails only by ending the connection. */
	void (*send)(struct target_conn *c, struct pdu *p, const void *data, uint32_t len);
	/* Queues the response, the last PDU of a task. */
	void (*respond)(struct target_task *t, struct pdu *p, const void *data, uint32_t len);
	void (*data_in)(struct target_piece *p, bool with_status);
	void (*data_out)(struct target_piece *p); /* fetches from byte got on */
	/* Sends nothing more for a task, and drops data that arrives for it. */
	void (*forget)(struct target_task *t);
	void (*flush)(struct target_conn *c);
	/* Has nothing arrived since the beginning, handled or not? NULL: not known. */
	bool (*is_silent)(const struct target_conn *c);
	/* Reads again: the buffer or session that the connection waited for is there. */
	void (*resume)(struct target_conn *c);
	/* Does the peer have data to receive, or to send? */
	bool (*owes)(const struct target_conn *c);
	void (*close)(struct target_conn *c); /* closes descriptors, and returns all pieces */
	void (*free)(struct target_conn *c);
};

/* A descriptor in the epoll set of the target's thread. */
struct target_watch {
	void (*ready)(struct target_watch *w, uint32_t events);
	int fd;
	struct stag_block_target *target; /* for ready() */
};

/* Waits for a buffer: in the order of arrival in its session, and sessions in turns. */
struct target_waiter {
	struct list link; /* empty: not waiting */
	void (*go)(struct target_waiter *w);
};

enum target_conn_state { CONN_LOGIN, CONN_PARKED, CONN_FULL, CONN_CLOSING, CONN_DEAD };

struct target_conn {
	struct list link;     /* in target->conns.list or .dead */
	struct list dirty;    /* in target->conns.dirty: has something to flush */
	struct list stranger; /* in target->strangers.list while it has no session */
	uint8_t source;	      /* hash of the peer's address or network */
	bool spoke;	      /* something has arrived, which may not be handled yet */
	struct stag_block_target *target;
	const struct target_transport *ops;
	enum target_conn_state state;
	struct target_session *session; /* in FULL; NULL when it has ended */
	struct target_login *login;	/* until FULL */
	uint32_t stat_sn;
	uint16_t cid;
	uint8_t encoding; /* enum stagdv_one_shot: how STags are lent and closed */
	/* clock_ns() of its beginning (or of CLOSING), and of the last PDU */
	uint64_t begun, heard;
	/* clock_ns() up to which the peer has moved as much data as it had to, or had none to move */
	uint64_t moved;
	uint32_t ping;		    /* TTT of the NOP-In that is not answered; TAG_NONE: none */
	uint64_t pinged;	    /* clock_ns() of that NOP-In */
	struct stagdv_tls_info tls; /* what is in force */
	char peer[64], local[64];
};

/* Counts for the target, and for the connection's session if it has one. */
#define target_conn_count_all(c, counter, n)                                                       \
	do {                                                                                       \
		(c)->target->counters.counter += (unsigned int)(n);                                \
		if ((c)->session)                                                                  \
			(c)->session->counters.counter += (unsigned int)(n);                       \
	} while (0)
#define target_conn_count(c, counter) target_conn_count_all(c, counter, 1)

/* ---- conn.c ------------------------------------------------------------------------- */

const char *target_conn_state_name(enum target_conn_state state);
void target_conn_open(struct stag_block_target *t, struct target_conn *c,
		      const struct target_transport *ops);
/* Handles a complete PDU; its data belongs to the caller. Transports handle SCSI commands and Data-Outs themselves. */
void target_conn_received(struct target_conn *c, const struct pdu *p, const uint8_t bhs[BHS_LEN],
			  const void *data);
/* Sends a PDU with sequence numbers. */
void target_conn_send(struct target_conn *c, struct pdu *p, const void *data, uint32_t len);
void target_conn_reject(struct target_conn *c, enum reject_reason why, const uint8_t bhs[BHS_LEN]);
/* Rejects a PDU, and counts a violation of the protocol. */
void target_conn_reject_violation(struct target_conn *c, enum reject_reason why,
				  const uint8_t bhs[BHS_LEN]);
void target_conn_finish(struct target_conn *c); /* ends it after sending what is queued */
void target_conn_end(struct target_conn *c);	/* ends it now, and its session */
/* Counts, logs and ends: the peer broke the protocol. */
void target_conn_violation(struct target_conn *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Reports a decision about the peer (base/audit.h). */
void target_audit(const struct target_conn *c, const char *action, enum stag_audit_outcome outcome,
		  const char *reason);
void target_conn_tick(struct target_conn *c, uint64_t now); /* checks time limits */
/* Does not count time in which the target itself stood still. */
void target_conn_forgive(struct target_conn *c, uint64_t lost_ns);

/* A peer that is slower holds buffers as if it moved nothing. */
#define TARGET_LEAST_RATE (16u << 10) /* bytes a second */

/* Counts data that the peer has sent. */
static inline void target_conn_moved(struct target_conn *c, uint64_t now, uint32_t bytes)
{
	c->moved += bytes * (NS_PER_S / TARGET_LEAST_RATE);
	if (c->moved > now)
		c->moved = now;
}
void target_conn_unpark(struct target_conn *c); /* tries again to open the session */
/* Sets the sequence numbers of a PDU. status: it takes a StatSN. */
void target_conn_number(struct target_conn *c, struct pdu *p, bool status);
void target_conn_dirty(struct target_conn *c); /* flushes it at the end of the round */

/* ---- session.c ------------------------------------------------------------------------ */

#define SESSION_WINDOW	  128 /* commands */
#define SESSION_IMMEDIATE 32  /* immediate commands besides */
#define TASK_BUCKETS	  64

struct target_session {
	struct list link; /* in target->sessions.list */
	struct stag_block_target *target;
	struct target_conn *conn; /* NULL: ended, waits for its tasks */
	uint64_t id;
	uint16_t tsih;
	uint8_t isid[ISID_LEN];
	bool discovery;
	char initiator[STAG_BLOCK_NAME_MAX];
	const char *user; /* that it has authenticated as; NULL: none */
	struct keys keys;
	struct scsi_nexus *nexus; /* NULL in discovery sessions */
	uint32_t exp_cmd_sn, max_cmd_sn;
	struct list buckets[TASK_BUCKETS]; /* tasks by ITT */
	unsigned int n_tasks;
	unsigned int n_immediate; /* commands and task management requests */
	/* R2Ts and open first bursts: data that only this connection can bring */
	unsigned int awaiting;
	unsigned int buffers; /* that its tasks hold (buffers.c) */
	struct list waiters;  /* struct target_waiter, in the order of arrival */
	struct list waits;    /* in target->buffers.waiters while there is one */
	uint64_t waits_since; /* clock_ns() of its last turn, or of the first waiter */
	struct list held;     /* struct held_request: requests that came too early, by CmdSN */
	unsigned int n_held;
	struct text_in *text; /* a text request that is not complete */
	uint32_t next_ttt;
	struct stag_block_counters counters;
	struct stag_owner *who; /* stags.c */
};

/* Opens a session for a login. *wait: set if it has to wait until the session that it replaces has ended. */
enum login_status target_session_open(struct target_conn *c, struct target_session **out,
				      bool *wait);
/* Aborts its tasks. The session is freed with the last of them. */
void target_session_end(struct target_session *s);
void target_session_maybe_free(struct target_session *s);
void target_session_request(struct target_session *s, const struct pdu *p,
			    const uint8_t bhs[BHS_LEN], const void *data);
/*
 * Makes a task for a command. Then the transport gets its data, and calls target_session_command(). fault: what the
 * transport found wrong with the command, or NULL. Returns NULL if there is no task: the command was rejected or
 * ignored, or has ended the connection.
 */
struct target_task *target_session_admit(struct target_session *s, const struct pdu *p,
					 const uint8_t bhs[BHS_LEN], const uint8_t *ahs,
					 const char *fault);
/* Starts a task whose PDU is complete, when it is its turn. */
void target_session_command(struct target_task *t);
/* Opens the window by one: a request has ended. */
void target_session_retire(struct target_session *s, bool immediate);
uint32_t target_session_ttt(struct target_session *s);
/* Finds a task that has not responded yet. */
struct target_task *target_session_find(struct target_session *s, uint32_t itt);
void target_session_request_logout(struct target_session *s); /* by an asynchronous message */

/* session_text.c */
void target_session_text(struct target_session *s, const struct pdu *p, const void *data);

/* ---- tmf.c -------------------------------------------------------------------------------- */

/* A task management request, until the tasks that it aborts have ended. */
struct target_tmf {
	struct list link; /* in target->tasks.tmfs */
	struct target_session *session;
	uint32_t itt;
	bool immediate;
	uint8_t function; /* enum scsi_tmf */
	uint64_t lun;
	uint32_t ref_tag;
	uint64_t born;	 /* it concerns tasks up to this number */
	uint8_t outcome; /* enum task_outcome */
};
void target_tmf_receive(struct target_session *s, const struct pdu *p);
/* Responds to those whose tasks have left the units. */
void target_tmf_finish_ready(struct stag_block_target *t);
void target_tmf_session_gone(struct target_session *s);

/* ---- task.c ------------------------------------------------------------------------------- */

#define TASK_PIECES 4 /* pieces of one task in flight */

/* A work request that is posted, or queued to be: of a piece, a message or a receive. */
struct target_verb {
	struct list link;
	enum { VERB_RECEIVE, VERB_SEND, VERB_WRITE, VERB_READ } kind;
};

/*
 * A piece's state, changed in task.c only:
 *
 *   data-in    NEW -> AT_UNIT -> READY -> MOVING      replies and borrowed memory skip AT_UNIT
 *   data-out   NEW -> MOVING -> AT_UNIT               a first burst that is complete skips MOVING
 */
enum target_piece_state {
	PIECE_NEW,
	PIECE_AT_UNIT, /* io is in the unit's hands */
	PIECE_READY,   /* the data has been read, and is not handed to the transport yet */
	PIECE_MOVING,  /* the transport sends or fetches the data */
};

/* A part of a task's data that is moved at once. */
struct target_piece {
	struct list link; /* in task->pieces, in order */
	struct target_task *task;
	struct units_buffer *buffer; /* NULL: bytes are in the task itself, or borrowed */
	bool borrowed;		     /* bytes are the unit's own memory: lun_return(io) */
	uint32_t lkey;		     /* of bytes, unless they are in the task */
	uint8_t *bytes;
	uint32_t offset, len; /* in the task's data, either way */
	uint32_t got; /* data-out: bytes that have arrived, from the beginning of the piece */
	enum target_piece_state state;
	struct lun_io io;

	/* tcp*.c */
	struct list wait; /* data-out: in task->wanted, until all of it was solicited and came */
	uint32_t ttt, data_sn; /* of its R2T */
	bool asked;	       /* an R2T is outstanding */
	/* End of the bytes that the R2T solicits, from the beginning of the piece */
	uint32_t asked_end;

	/* rdma*.c */
	struct target_verb verb;
	struct target_reply_slot *slot; /* registered copy of its bytes, if they are in no buffer */
};

/*
 * A task's state. Only set_state() in task.c changes it, and asserts that the move is legal.
 *
 *   NEW ----------> CANCELLED ---------------------------------> ABORTED
 *    |  target_task_start()                                         ^
 *    +-> READING ----------------------+-----------------+          | from all of these:
 *    +-> WRITING -------------------+  |                 v          | target_task_abort()
 *    +-> COLLECTING -> WORKING -----+--+-> ENDING -> RESPONDED      |
 *    +-> WORKING -> WORKING         |  |                 ^          |
 *    +-> REPLYING <-(COLLECTING, WORKING) ---------------+ -------- +
 *    +-> ENDING
 *
 * READING and REPLYING go to RESPONDED directly where the status travels with the last data-in.
 *
 * What is not in the state, because it is independent of it:
 *   fault       the data that arrives with the command, before and after the start, may be unusable
 *   first_open  the initiator may go on sending its first burst after the command has failed
 *   immediate   a property of the request
 *   advancing   guards against recursion
 *   lent        the life of the initiator's STag (stags.c); its end comes with the response, or after it
 */
enum target_task_state {
	TASK_NEW,	 /* its PDU is arriving, or it is held until its turn */
	TASK_CANCELLED,	 /* aborted before target_task_start(), which ends it */
	TASK_READING,	 /* data: unit -> initiator */
	TASK_REPLYING,	 /* data: cmd.reply -> initiator; the status is known */
	TASK_WRITING,	 /* data: initiator -> unit */
	TASK_COLLECTING, /* data: initiator -> buffer, for SCSI itself */
	TASK_WORKING,	 /* cmd.io is in the unit's hands */
	TASK_ENDING,	 /* the status is known; the response waits until no data-out is expected */
	TASK_RESPONDED,	 /* freed when the last reference is dropped */
	TASK_ABORTED,	 /* sends nothing more; freed when the last reference is dropped */
};

/* The first thing that is wrong with data-out that has arrived. */
enum target_data_fault {
	DATA_GOOD,
	DATA_DAMAGED,	/* a wrong digest or DataSN: the command fails when all data has come */
	DATA_NO_MEMORY, /* no buffer for unsolicited data, which is dropped: TASK SET FULL */
};

struct target_task {
	struct list link;	   /* in its session's bucket */
	struct target_waiter wait; /* for a buffer */
	struct target_session *session;
	uint64_t born;	/* number of the task, counted by the target */
	uint64_t since; /* clock_ns() of its arrival */
	uint32_t itt, cmd_sn;
	enum target_task_state state;
	bool immediate; /* not counted in the window */
	bool advancing; /* its steps are being done, further out in the call stack */
	/* One for each callback that will come (unit, transport), and for running calls */
	unsigned int refs;
	unsigned int at_unit; /* operations in the unit's hands: of pieces, and cmd.io */
	uint32_t expected_in, expected_out;
	uint32_t total;	     /* bytes to move */
	uint32_t unit_end;   /* the same in whole blocks, for the unit */
	uint32_t next, done; /* bytes that have a piece; bytes moved */
	int result;	     /* first failure, or 0 */
	struct list pieces;
	unsigned int n_pieces;
	struct target_piece *collected; /* kept until the task ends */

	/* unsolicited data */
	struct target_piece *first; /* its place; NULL: there is none, or it is dropped */
	uint32_t first_got, first_max;
	bool first_open; /* more will come */
	enum target_data_fault fault;

	/* tcp*.c */
	struct list wanted; /* pieces with data to be solicited */
	unsigned int r2ts;  /* outstanding */
	uint32_t r2t_sn, data_sn, unsolicited_sn;

	/* rdma*.c */
	bool lent;     /* the initiator lent memory for the data: */
	uint32_t stag; /* its STag */
	uint64_t base; /* the address of byte 0 of the data */
	uint64_t lent_at;

	struct scsi_cmd cmd;
};

static inline bool target_task_is_aborted(const struct target_task *t)
{
	return t->state == TASK_CANCELLED || t->state == TASK_ABORTED;
}

const char *target_task_state_name(enum target_task_state state);
/* Makes a task of a command PDU and its AHS. Returns NULL if memory runs out. */
struct target_task *target_task_new(struct target_session *s, const struct pdu *p,
				    const uint8_t *ahs);
/* Gets a buffer for unsolicited data. Returns -EAGAIN if there is none; then w (or NULL) waits for one. */
int target_task_first_buffer(struct target_task *t, struct target_waiter *w);
/* Notes what is wrong with data-out; the first fault counts. */
void target_task_data_fault(struct target_task *t, enum target_data_fault fault);
/* Executes a task whose turn it is. A cancelled one ends. Call it once for each task. */
void target_task_start(struct target_task *t);
/* Counts unsolicited data that has arrived. */
void target_task_unsolicited(struct target_task *t, uint32_t len, bool final);
/* Ends a task without a response. */
void target_task_abort(struct target_task *t);
/* Called by the transport: a piece has been sent or fetched (0), or dropped (-errno). */
void target_piece_moved(struct target_piece *p, int result);
/* Fills in status and residual count. */
void target_task_fill(const struct target_task *t, struct pdu *p);

/* ---- spare.c ------------------------------------------------------------------------------ */

struct target_task *target_task_alloc(struct stag_block_target *t); /* not cleared */
void target_task_put(struct stag_block_target *t, struct target_task *k);
/* Appends a piece to a task. b: the buffer that bytes are in, or NULL. */
struct target_piece *target_piece_new(struct target_task *t, struct units_buffer *b, uint8_t *bytes,
				      uint32_t offset, uint32_t len);
void target_piece_free(struct target_piece *p);
/* Frees a piece that is in no list. */
void target_piece_put(struct stag_block_target *t, struct target_piece *p);
void target_spare_free(struct stag_block_target *t);

/* ---- tcp*.c ------------------------------------------------------------------------------- */

/* Makes a connection of a connected socket, which belongs to the target from now on. */
int target_tcp_adopt(struct stag_block_target *t, int fd);

/* ---- tls.c -------------------------------------------------------------------------------- */

struct target_tcp;

/* TLS by the secrets of CHAP users. */
struct target_tls {
	enum tls_mode mode;
	struct lock lock;	    /* of the keys: any thread may look one up */
	struct iscsi_tls_key *keys; /* two for each user */
	size_t num_keys;
	struct tls_context *context; /* of TCP; NULL: off */
	struct stagdv_tls *rdma;     /* of verbs; NULL: off */
	/* Strangers' handshakes get a share of the thread's time. */
	struct list waiting; /* struct target_tcp: shake.link; nobody overtakes them */
	int64_t credit;	     /* ns; negative: the last one took longer than there was time */
	uint64_t counted;    /* clock_ns() */
};

int target_tls_create(struct stag_block_target *t, const struct stag_block_target_attr *attr);
int target_tls_replace_keys(
	struct stag_block_target *t); /* after the users of the rules have changed */
void target_tls_destroy(struct stag_block_target *t); /* after the last connection has ended */
/* Returns whether a handshake may go on now; if not, target_tcp_shake() is called for it later. */
bool target_tls_may_shake(struct target_tcp *c);
void target_tls_shook(struct stag_block_target *t, uint64_t ns); /* counts its time */
/* Lets handshakes go on that have waited. */
void target_tls_serve(struct stag_block_target *t);
/* Returns how long the thread may sleep, at most timeout_ms. */
int target_tls_sleep(const struct stag_block_target *t, int timeout_ms);
/* Requires or allows TLS for connections that the adapter accepts. */
int target_tls_set_rdma(struct stag_block_target *t, struct rdma_cm_id *listener);
/* Tells the login what the connection's encryption says about the initiator. */
void target_tls_inform(const struct target_conn *c, struct target_login *l);

/* ---- rdma*.c ------------------------------------------------------------------------------ */

/* Objects that all connections over verbs share. */
struct target_rdma_portal {
	struct rdma_event_channel *events;
	struct rdma_cm_id *listener;
	struct ibv_comp_channel *completions;
	struct target_watch event_watch, completion_watch;
	struct list busy; /* struct target_rdma: connections whose completion queues are polled */
	unsigned int n_busy;
	uint8_t *whole; /* room for a PDU that was received in two parts */
	bool one_shot;	/* offered to peers */
	bool adopts;	/* RDMA connections are accepted by the TCP socket */
};

int target_rdma_open(struct stag_block_target *t, const struct stag_block_target_attr *attr);
void target_rdma_close(struct stag_block_target *t);   /* stops listening */
void target_rdma_destroy(struct stag_block_target *t); /* after the last connection has ended */
/* Returns whether target_rdma_adopt() takes sockets that are connections of RDMA. */
bool target_rdma_adopts(const struct stag_block_target *t);
void target_rdma_adopt(struct stag_block_target *t, int fd);
int target_rdma_poll(struct stag_block_target *t); /* Returns the number of completions. */
int target_rdma_arm(struct stag_block_target *t);  /* The same; after 0 the channel is armed. */

/* ---- stags.c ------------------------------------------------------------------------------- */

struct target_stags;

int target_stags_create(struct target_stags **out);
void target_stags_destroy(struct target_stags *l);
void target_stags_opened(struct target_task *k);			  /* records k->stag */
void target_stags_ended(struct target_task *k, enum stagdv_stag_end how); /* records its end */
void target_stags_session_gone(struct target_session *s);
/* Lists closed STags, oldest first, then open ones: at most n. Returns how many there are. */
size_t target_stags_query(struct stag_block_target *t, struct stag_block_stag *list, size_t n);

/* ---- acts.c -------------------------------------------------------------------------------- */

/* Reports a command that has ended to the audit log, if its initiator has no right to it, or took reservations from others. */
void target_audit_command(const struct target_task *t);
/* Reports a reset of a unit or of the target, which aborts what others do, and its outcome. */
void target_audit_reset(struct target_session *s, const struct pdu *p, uint8_t function,
			enum task_outcome outcome);

/* ---- strangers.c ----------------------------------------------------------------------------- */

void target_strangers_init(struct stag_block_target *t);
void target_stranger_add(struct target_conn *c);
void target_stranger_remove(struct target_conn *c); /* does nothing if it is none */
/* Ends another stranger, if there are too many with c: of its source, or in all. */
void target_strangers_limit(struct target_conn *c);
/* Ends a stranger for want of descriptors. Returns false if none should end. */
bool target_strangers_drop_one(struct stag_block_target *t);
void target_strangers_tick(struct stag_block_target *t);
/* Counts, audits and logs that a connection does not get a session. */
void target_refused(struct target_conn *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- portal.c ------------------------------------------------------------------------------- */

#define MAX_LISTENERS 8

struct target_portal {
	struct target_watch watch[MAX_LISTENERS];
	unsigned int n;
	uint16_t port;
	bool full; /* no descriptor for a connection: none is accepted for now */
};

int target_portal_open(struct stag_block_target *t, const struct stag_block_target_attr *attr);
void target_portal_close(struct stag_block_target *t);
void target_portal_resume(struct stag_block_target *t); /* accepts again */
/* Formats ADDRESS:PORT. */
void target_portal_name(const struct sockaddr *a, socklen_t len, char out[64]);

/* ---- target.c -------------------------------------------------------------------------------- */

/* wait.c */
struct target_wait {
	uint64_t spin_ns;    /* limit of spinning */
	unsigned int points; /* earned by short waits */
};

struct epoll_event;

void target_wait_init(struct target_wait *w, uint32_t spin_us);
/* Waits as epoll_wait() does, and meanwhile serves verbs and units. */
int target_wait_events(struct stag_block_target *t, struct epoll_event *events, int most,
		       int timeout_ms);

struct target_limits {
	uint64_t login_ns;	/* for a login */
	uint64_t slow_login_ns; /* of a login, after which it may have to make room */
	uint64_t ping_ns;	/* of silence, before a NOP-In is sent */
	uint64_t answer_ns;	/* for the answer to it */
	uint64_t data_ns;	/* that data the peer has to send or receive may be late */
	uint64_t scarce_ns;	/* the same, while a session without any buffer waits for one */
	uint64_t starved_ns;	/* of waiting, before that */
	uint64_t close_ns;	/* for the peer to close a connection in CLOSING */
};

#define TARGET_WORDS 8

/* Rules that were replaced: sessions point to their users and views. Their secrets are wiped. */
struct target_replaced {
	struct list link;
	struct target_login_rules rules;
	char *words[TARGET_WORDS];
};

/* A target. All of it belongs to its thread, but for calls. */
struct stag_block_target {
	struct {
		char *words[TARGET_WORDS]; /* copies of the caller's strings */
		struct target_login_rules rules, rdma_rules;
		struct list replaced; /* struct target_replaced */
		struct target_limits limits;
		uint32_t max_sessions;
		void (*log)(void *arg, const char *line);
		void *log_arg;
	} config;

	struct units *units;
	struct scsi_target *scsi;
	int state_dir; /* of reservations that survive a restart; -1: none */
	struct target_portal portal;
	struct target_tls tls;
	struct target_rdma_portal rdma;
	struct target_stags *stags;
	struct stag_block_counters counters; /* including those of sessions that have ended */

	struct {
		int epoll;
		struct target_wait wait;
		struct target_watch units_watch, call_watch;
		uint64_t now, next_tick; /* clock_ns() */
		uint64_t served;	 /* clock_ns() of the last round */
	} loop;

	struct {
		struct list list, dirty, dead; /* struct target_conn: link, dirty, link */
		unsigned int count;
		bool unpark_due; /* a session has ended: parked logins may go on */
	} conns;

	struct {
		struct list list; /* struct target_conn: stranger, oldest first */
		unsigned int count;
		unsigned int of_source[256]; /* by struct target_conn.source */
		uint64_t key[2];	     /* of its hash */
		struct rate log_rate;
	} strangers;

	struct {
		struct list list; /* struct target_session */
		unsigned int count;
		uint64_t last_id;
		uint16_t last_tsih;
	} sessions;

	struct {
		uint64_t born; /* number of the last task */
		struct list tmfs;
		bool tmf_due;			 /* an aborted task has made progress */
		struct list spare, spare_pieces; /* to be used again (spare.c) */
		unsigned int n_spare, n_spare_pieces;
	} tasks;

	struct {
		struct list waiters; /* struct target_session: waits, in turns */
		unsigned int in_use;
		struct target_session *turn; /* whose waiter is being called; it may take one */
		bool returned;		     /* a buffer was returned since the last turns */
		bool scarce;		     /* a session has waited long, and has none */
	} buffers;

	struct {
		bool requested;
		uint64_t deadline; /* clock_ns(): sessions may log out until then */
	} stop;

	struct {
		pthread_t thread;
		struct lock lock;  /* guards queue, and done and left of each call */
		struct list queue; /* struct target_call */
	} calls;
};

int target_create(const struct stag_block_target_attr *attr, struct stag_block_target **out);
void target_destroy(struct stag_block_target *t);
/* Does all work that there is, waits for more up to timeout_ms, and does that. */
void target_step(struct stag_block_target *t, int timeout_ms);
int target_watch(struct stag_block_target *t, struct target_watch *w, uint32_t events);
int target_rewatch(struct stag_block_target *t, struct target_watch *w, uint32_t events);
void target_unwatch(struct stag_block_target *t, struct target_watch *w);
/* Replaces the users, secrets and rights; on failure all stays as it was. */
int target_replace_rules(struct stag_block_target *t, const struct stag_block_target_attr *attr);
void target_log(struct stag_block_target *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- buffers.c --------------------------------------------------------------------------------- */

/*
 * Returns a buffer, or NULL if the session may not have one now. w: is queued then (or NULL); w->go() is called when it
 * may try again.
 */
struct units_buffer *target_buffer(struct target_session *s, struct target_waiter *w);
void target_buffer_put(struct target_session *s, struct units_buffer *b);
void target_buffer_forget(struct target_session *s, struct target_waiter *w); /* waits no longer */
void target_buffers_serve(struct stag_block_target *t); /* calls waiters, in turns */
/* Returns whether a session that has no buffer has waited since then. */
bool target_buffers_starve(const struct stag_block_target *t, uint64_t since);

/* calls.c: calls of other threads, which the target's thread executes. */

#define CALL_WORDS 512

struct target_call {
	struct list link;
	/* -EINPROGRESS: finish_call() will follow */
	int (*fn)(struct stag_block_target *t, struct target_call *c);
	const void *in;
	void *out;
	uint16_t lun;
	int result; /* 0 or -errno */
	bool done;
	bool left; /* the caller has timed out: freed when it is done */
	char words[CALL_WORDS];
	pthread_cond_t cond;
};
void target_calls_run(struct stag_block_target *t);

#endif
