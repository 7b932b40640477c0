/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * initiator.h - an initiator's objects: requests, commands, and the line to the target. The index of this room.
 *
 *   initiator.c       states: connecting, time limits, lost lines, reconnecting
 *   create.c          creation, connecting, logout, end
 *   calls.c           the public calls
 *   login.c           a login on this side: requests out, responses in; no sockets
 *   session.c         PDUs from the target, in full feature phase
 *   io.c              requests, and the commands that they are divided into
 *   abort.c           aborts commands that time out
 *   probe.c           queries the properties of the unit
 *   tcp.c             a line over TCP
 *   tls.c             keys of TLS
 *   verbs*.c          lines over verbs: iSER and one-shot (verbs.h); lend.c: their memory
 *   sense.c           statuses and sense data as errno values
 *   discover.c        lists the targets of a portal
 *   luns.c            lists the units of a target
 *   url.c             parses URLs
 *
 * Words:
 *   request   an operation that the caller submitted
 *   command   one SCSI command: a whole request, or a part of it
 *   line      a connection of some transport: when it is lost, another one replaces it
 *
 * The state of an initiator. Only initiator_set_state() changes it, and asserts that the move is legal:
 *
 *   DOWN -> CONNECTING -> LOGIN -> PROBE -> LIVE       a discovery session skips PROBE
 *     ^         |           |        |       |
 *     +---------+-----------+--------+-------+         the line is lost: commands wait, up to retry_ms
 *     |
 *     +-> GONE                                         given up
 *
 * One thread at a time uses a stag_block: no locks. A function that finds the line lost returns -errno, up to
 * initiator_step(), which alone closes it.
 */
#ifndef STAG_BLOCK_INITIATOR_H
#define STAG_BLOCK_INITIATOR_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/list.h"
#include "block/block.h"
#include "block/iscsi/iscsi.h"
#include "block/scsi/codes.h"
#include "stag/stagdv.h"
#include "tls/tls.h"

#define INITIATOR_DEPTH	    128
#define INITIATOR_MAX_DEPTH 4096
#define INITIATOR_RECV_MAX  (256u << 10) /* MaxRecvDataSegmentLength of the initiator, over TCP */
#define INITIATOR_SMALL	    8192	 /* data of a PDU over verbs, in both directions */
#define WORD_MAX	    256		 /* bytes of a user, secret or host */

/* ---- url.c --------------------------------------------------------------------- */

struct initiator_url {
	uint32_t transport; /* enum stag_block_transport */
	char user[WORD_MAX], secret[WORD_MAX];
	char host[WORD_MAX], port[6];
	char target[STAG_BLOCK_NAME_MAX];
	uint16_t lun;
};

/* Parses a URL. whole: it has a target and LUN, else it has not. Returns -EINVAL, and sets the error text. */
int initiator_url_parse(const char *text, bool whole, struct initiator_url *out);
/* Parses "HOST[:PORT][,TAG]" of a redirection. Returns -EINVAL. */
int initiator_url_parse_address(const char *text, char host[WORD_MAX], char port[6]);

/* ---- login.c ------------------------------------------------------------ */

/* A login on the initiator's side. */
struct initiator_login {
	const char *initiator, *target; /* target NULL: discovery */
	const char *user, *secret, *peer_user, *peer_secret;
	struct key_wishes wishes;
	struct negotiation keys;
	uint8_t isid[ISID_LEN];
	uint16_t tsih;
	uint32_t cmd_sn, itt;
	uint32_t stat_sn; /* of the last response */
	enum login_stage stage;
	unsigned int rounds;
	bool offered; /* the operational keys have been sent */
	bool more;    /* the target's list continues: the next request is empty */
	enum { ENTRY_METHOD, ENTRY_HASH, ENTRY_PROOF, ENTRY_PROVEN } chap;
	enum chap_algorithm algorithm;
	uint8_t id, challenge[CHAP_CHALLENGE_LEN]; /* sent to the target */
	char redirect[WORD_MAX];
	struct text_in in;
	struct text_out out; /* data of the next request */
};

enum initiator_login_result { ENTRY_GOES_ON, ENTRY_DONE, ENTRY_REDIRECTED };

/* Begins a login. The caller has set the fields up to cmd_sn. */
void initiator_login_begin(struct initiator_login *e);
/* Makes the next request; its data is in e->out. */
void initiator_login_request(struct initiator_login *e, struct pdu *request);
/* Handles a response. Returns enum initiator_login_result, or -EACCES, -ENOENT, -EBUSY or -EPROTO with an error text. */
int initiator_login_receive(struct initiator_login *e, const struct pdu *response,
			    const void *data);

/* ---- lines ---------------------------------------------------------------------------- */

struct stag_block;
struct initiator_cmd;
struct initiator_line;
struct initiator_region;

/*
 * A transport. No call blocks; descriptors to wait for are in the epoll set of struct stag_block. Received PDUs are
 * passed to initiator_*(). A negative result of those, and of the calls here, means that the line is lost.
 */
struct initiator_line_ops {
	enum stag_block_transport kind;
	const char *name;
	bool rdma; /* uses the keys of RFC 7145; no digests, no unsolicited data */
	/* Begins to connect; poll() calls initiator_connected() later. */
	int (*open)(struct stag_block *b, const struct sockaddr *to, socklen_t len,
		    struct initiator_line **out);
	/* Queues a PDU, and copies its data. */
	int (*send)(struct initiator_line *l, struct pdu *p, const void *data, uint32_t len);
	/*
	 * Sends a command, with unsolicited data, or lends its memory. Returns a positive errno value if this command cannot be
	 * sent.
	 */
	int (*command)(struct initiator_line *l, struct initiator_cmd *c, struct pdu *p);
	/* Sends solicited data. NULL: the transport has no R2Ts. */
	int (*r2t)(struct initiator_line *l, struct initiator_cmd *c, const struct pdu *r);
	int (*poll)(struct initiator_line *l);	/* reads what there is, writes what it can */
	int (*flush)(struct initiator_line *l); /* writes what it can */
	/* Call it before sleeping. Returns 1 if poll() has work now. NULL: not needed. */
	int (*arm)(struct initiator_line *l);
	/* Ends a command: its memory is the caller's again. */
	void (*forget)(struct initiator_line *l, struct initiator_cmd *c);
	/* Register memory that the caller lent. NULL: the transport does not use it. */
	int (*lend)(struct initiator_line *l, struct initiator_region *r);
	void (*unlend)(struct initiator_line *l, struct initiator_region *r);
	void (*close)(struct initiator_line *l);
};

extern const struct initiator_line_ops initiator_one_shot_line, initiator_iser_line,
	initiator_tcp_line;
#define NUM_LINES 3

struct initiator_line {
	const struct initiator_line_ops *ops;
	struct stag_block *b;
	uint32_t encoding; /* enum stagdv_one_shot */
};

/* ---- requests and commands --------------------------------------------------------------- */

struct initiator_request {
	struct list link; /* in io.queue or io.done; in none while all its commands are in flight */
	uint32_t op, flags;
	uint64_t offset, length;
	uint64_t issued; /* bytes that became commands */
	bool all_issued;
	unsigned int in_flight; /* commands */
	int error;
	uint32_t sense;
	uint64_t since; /* clock_ns() of its submission */
	void *user;
	int n_iov;
	struct iovec iov[];
};

#define CMD_PARAMS 24

struct initiator_cmd {
	struct list link;		   /* in io.spare, io.in_flight or io.retry */
	struct initiator_request *request; /* NULL: a command of the probe */
	uint32_t itt;
	uint16_t index, generation; /* that make up itt */
	uint8_t cdb[16];
	bool reads, writes;
	bool sent;		 /* the target may have received it */
	uint64_t begun, sent_at; /* clock_ns() of the first and of the last attempt */
	uint32_t cmd_sn;
	uint32_t length;
	const struct iovec *iov; /* data: length bytes from byte skip on */
	int n_iov;
	uint64_t skip;
	uint32_t got, data_sn; /* Data-In: bytes received, next DataSN */
	/* Data-Out: end of the bytes that were unsolicited or solicited; next R2TSN */
	uint32_t asked, r2t_sn;
	unsigned int tries, losses;
	struct iovec own;
	uint8_t params[CMD_PARAMS]; /* parameter list of an UNMAP */
};

/*
 * Returns the iovecs of bytes [from, from + len) of a command's data: at most max. *covered: the bytes that they have.
 */
int initiator_cmd_slice(const struct initiator_cmd *c, uint32_t from, uint32_t len,
			struct iovec *out, int max, uint32_t *covered);
void initiator_cmd_gather(const struct initiator_cmd *c, uint32_t from, uint32_t len, uint8_t *to);
void initiator_cmd_scatter(const struct initiator_cmd *c, uint32_t to, uint32_t len,
			   const uint8_t *from);
uint32_t initiator_cmd_crc(const struct initiator_cmd *c, uint32_t from, uint32_t len,
			   uint32_t crc);

/* ---- an initiator --------------------------------------------------------------------------- */

enum initiator_state { INIT_DOWN, INIT_CONNECTING, INIT_LOGIN, INIT_PROBE, INIT_LIVE, INIT_GONE };

#define MAX_ADDRESSES 8
#define MAX_REDIRECTS 4

struct initiator_address {
	struct sockaddr_storage addr;
	socklen_t len;
};

struct initiator_region {
	struct list link;
	uint8_t *addr;
	size_t length;
	struct ibv_mr *mr; /* of the current line, or NULL */
};

struct initiator_tls {
	enum tls_mode mode;
	struct tls_context *context; /* of TCP; NULL: off */
	struct stagdv_tls *rdma;     /* of verbs; NULL: off, or there is no software adapter */
};

/* The contents of URL and attributes; fixed from initiator_create() on. */
struct initiator_config {
	struct initiator_url url;
	char initiator[STAG_BLOCK_NAME_MAX];
	char peer_user[WORD_MAX], peer_secret[WORD_MAX]; /* what the target proves to know */
	bool discovery, header_digest, data_digest;
	bool retries;	     /* a lost connection is established again */
	uint32_t depth;	     /* commands in flight at most */
	uint64_t timeout_ns; /* for connecting and logging in */
	uint64_t retry_ns;   /* for reconnecting, before the unit is given up */
	uint64_t ping_ns;    /* of silence before a NOP-Out, and then for its answer */
	uint64_t command_ns; /* 0: no limit */
	uint64_t abort_ns;   /* for the response to a task management request */
	struct initiator_tls tls;
};

/* Addresses of the target, and transports to try. */
struct initiator_route {
	struct initiator_address addresses[MAX_ADDRESSES], redirected;
	unsigned int num_addresses, next; /* next: counts attempts; an index modulo num_addresses */
	unsigned int redirects;
	bool is_redirected; /* the next attempt goes to redirected */
	bool plain;	    /* the next attempt is without TLS: the target does not speak it */
	const struct initiator_line_ops *transports[NUM_LINES + 1]; /* to try, up to a NULL */
	const struct initiator_line_ops **candidates;		    /* those left to try */
};

/* The current attempt to connect, and what became of the ones before. Times are clock_ns(). */
struct initiator_attempt {
	bool was_connected; /* the last attempt got a connection, whatever happened then */
	bool no_tls;	    /* it was closed on the beginning of TLS */
	bool ever_live;
	uint64_t end;		/* limit of the connection and its login; 0: none is being made */
	uint64_t next, give_up; /* in DOWN: the next attempt; the end of all attempts */
	uint64_t backoff;	/* ns */
	int error;		/* errno value of the last line, or of the end */
	char words[512];	/* its text */
};

/* iSCSI's own state of a session (RFC 7143 §4.2.2). */
struct initiator_session {
	struct initiator_login *login; /* NULL after it */
	struct keys keys;
	uint8_t isid[ISID_LEN];
	uint16_t tsih;
	uint32_t cmd_sn, exp_stat_sn, max_cmd_sn;
	uint64_t heard, pinged; /* clock_ns() of the last PDU; of the unanswered NOP-Out, or 0 */
	bool logged_out;
};

/* Requests and commands, each in one of these lists. */
struct initiator_queues {
	struct initiator_cmd *cmds; /* depth, and one for the probe */
	struct list spare;	    /* commands that are free */
	struct list in_flight;
	struct list retry; /* commands to be sent again */
	struct list queue; /* requests that are not divided into commands yet, or not all of them */
	struct list done;  /* requests for the caller to poll */
	unsigned int num_in_flight;
	uint64_t pause_end; /* clock_ns(): the target is busy until then; 0: it is not */
};

struct stag_block {
	enum initiator_state state;
	struct initiator_config config;
	struct initiator_route route;
	struct initiator_attempt attempt;
	struct initiator_line *line; /* NULL in DOWN and GONE */
	struct initiator_session session;
	struct initiator_queues io;
	struct list regions; /* struct initiator_region: memory that the caller lent */
	uint64_t now;	     /* clock_ns() of the current step */

	struct {
		int epoll, timer;
		uint64_t alarm; /* what the timer is set to; 0: it is not */
		bool wakes_fd;	/* the caller has the descriptor, and may sleep on it */
	} events;

	struct {
		enum abort_step { ABORT_NONE, ABORT_TASK, ABORT_UNIT } step;
		uint32_t tag;	    /* of the task management request in flight */
		uint32_t itt;	    /* the command that it is about */
		uint64_t end;	    /* clock_ns(): limit of its response */
		unsigned int count; /* requests so far: makes tags differ */
	} abort;

	struct {
		unsigned int step;
		bool active;
		uint8_t data[512];
	} probe;

	struct {
		uint8_t *
			data; /* room for REPORT_LUNS_MAX bytes; NULL: the session is for one unit */
		uint32_t len;
	} report; /* of REPORT LUNS: all that the probe of such a session asks for */

	struct {
		uint32_t unmap, zero, compare;
	} limits; /* blocks of one command; 0: the unit cannot */

	struct {
		struct text_in *list; /* response to a text request */
		uint32_t tag;
		bool done;
	} text;

	struct stag_block_info info;
};

/* initiator.c */
void initiator_step(struct stag_block *b);  /* does all that can be done now */
void initiator_start(struct stag_block *b); /* sends queued requests, when nothing is in flight */
int initiator_sleep(struct stag_block *b, int timeout_ms); /* until there is something to do */
int initiator_left_ms(uint64_t end);
void initiator_set_state(struct stag_block *b, enum initiator_state to);
/*
 * Switches an established connection to the next transport, if it does not support the current one. Returns
 * -EPROTONOSUPPORT if there is none.
 */
int initiator_fall_back(struct stag_block *b, const char *why);

/* create.c */
int initiator_create(const char *url, bool whole, const struct stag_block_attr *attr,
		     struct stag_block **out);
void initiator_destroy(struct stag_block *b); /* without a logout */
int initiator_bring_up(struct stag_block *b); /* waits for LIVE. Returns 0 or -errno */
void initiator_log_out(struct stag_block *b); /* waits a moment for the response */
/* Resolves a host to at most max addresses. Returns their number, or -EHOSTUNREACH with an error text. */
int initiator_resolve(const char *host, const char *port, struct initiator_address *to,
		      unsigned int max);

/* tls.c */
int initiator_tls_create(struct stag_block *b, uint32_t mode);
void initiator_tls_destroy(struct stag_block *b);
int initiator_tls_set(struct stag_block *b, struct rdma_cm_id *id); /* before it connects */
void initiator_tls_note(struct stag_block *b, const struct stagdv_tls_info *info);

/* session.c */
int initiator_connected(struct stag_block *b); /* called by a line */
int initiator_received(struct stag_block *b, const struct pdu *p, const uint8_t *data);
/* Finds the command of a Data-In, to whose memory the data goes. Returns NULL after a violation. */
struct initiator_cmd *initiator_data_in(struct stag_block *b, const struct pdu *p);
int initiator_data_came(struct stag_block *b, struct initiator_cmd *c, const struct pdu *p);
/* Counts and logs a violation of the protocol. Returns -EPROTO. */
int initiator_violation(struct stag_block *b, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Sends a PDU as an immediate one. */
int initiator_send(struct stag_block *b, struct pdu *p, const void *data, uint32_t len);
struct initiator_cmd *initiator_find(struct stag_block *b, uint32_t itt);

/* io.c */
int initiator_io_check(const struct stag_block *b, const struct stag_block_io *io);
int initiator_io_queue(struct stag_block *b, const struct stag_block_io *io);
int initiator_io_launch(struct stag_block *b); /* sends as many commands as the window allows */
int initiator_io_send(struct stag_block *b, struct initiator_cmd *c);
uint64_t initiator_io_lun(const struct stag_block *b); /* in the format of PDUs */
/* Gives a command a new tag, and resets its progress. */
void initiator_io_prepare(struct stag_block *b, struct initiator_cmd *c);
/* Handles the final status of a command. */
int initiator_io_response(struct stag_block *b, struct initiator_cmd *c, uint8_t response,
			  uint8_t status, const uint8_t *sense, uint32_t len);
void initiator_io_aborted(struct stag_block *b, struct initiator_cmd *c, int error);
void initiator_io_requeue(struct stag_block *b); /* the line is lost: commands are sent again */
void initiator_io_fail_all(struct stag_block *b, int error); /* there will be no other line */
void initiator_io_free_all(struct stag_block *b);	     /* drops completed requests */

/* abort.c */
int initiator_abort_tick(struct stag_block *b); /* in LIVE. Returns 0 or -errno */
/* Returns when the tick is due at the latest, in clock_ns(); 0: not at all. */
uint64_t initiator_abort_alarm(const struct stag_block *b);
int initiator_abort_response(struct stag_block *b, const struct pdu *p);

/* probe.c */
#define REPORT_LUNS_MAX 32776			  /* 4096 units */
int initiator_probe_resume(struct stag_block *b); /* repeats the current query, if there is one */
/* Queries all properties, or the capacity only. */
int initiator_probe_begin(struct stag_block *b, bool all);
int initiator_probe_response(struct stag_block *b, struct initiator_cmd *c, uint8_t status,
			     uint32_t sense);

/* sense.c */
#define SENSE(key, asc, ascq) ((uint32_t)(key) << 16 | (uint32_t)(asc) << 8 | (ascq))
uint32_t initiator_sense_parse(const uint8_t *sense, uint32_t len); /* 0: none */
int initiator_sense_errno(uint8_t status, uint32_t sense);	    /* 0: no error */
/* Returns whether the command was not begun, or may be repeated. */
bool initiator_sense_retries(uint32_t sense);

/* Returns a <= b in serial number arithmetic (RFC 1982). */
static inline bool sn_le(uint32_t a, uint32_t b)
{
	return (int32_t)(b - a) >= 0;
}

#endif
