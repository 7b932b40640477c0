/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block.h - block storage over RDMA and TCP: a target that serves logical units, and an initiator that uses one.
 *
 * The target supports iSCSI (RFC 7143) over TCP, for any initiator, iSER (RFC 7145) over verbs, and one-shot between
 * stag peers: the same PDUs, in sends that lend the command's memory in their header (stagdv.h). The initiator
 * negotiates the best of the three transports that the target supports, and reports which one it uses
 * (stag_block_query()).
 *
 * Calls return 0 or an errno value, or a pointer, or NULL with errno set; stag_block_error() has the text. Structs that
 * the caller fills begin with comp_mask, which must be zero unless it says otherwise. A field that is zero has its default value.
 */
#ifndef STAG_BLOCK_H
#define STAG_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stag/histogram.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STAG_BLOCK_PORT	    3260
#define STAG_BLOCK_NAME_MAX 224 /* an iSCSI name, with its final zero */
#define STAG_BLOCK_MAX_LUNS 256

/* Returns the text of the last error in the calling thread: it names the object and the cause. */
const char *stag_block_error(void);

enum stag_block_transport {
	STAG_BLOCK_BEST,     /* the last one in this list that the peer supports */
	STAG_BLOCK_TCP,	     /* iSCSI */
	STAG_BLOCK_ISER,     /* iSER: STags in the bodies of sends */
	STAG_BLOCK_ONE_SHOT, /* STags in the headers of sends */
};

/*
 * Whether connections are encrypted, with TLS 1.3 and keys that are made of the CHAP users' secrets, for all three
 * transports. Off: neither offered nor accepted. Allowed: a target accepts both; an initiator tries TLS, and then without
 * if the target does not speak it, which an attacker between them can bring about. Required: nothing else is accepted.
 */
enum stag_block_tls { STAG_BLOCK_TLS_OFF, STAG_BLOCK_TLS_ALLOWED, STAG_BLOCK_TLS_REQUIRED };

/* How a connection is encrypted. */
struct stag_block_tls_info {
	bool encrypted;
	uint8_t kernel;	  /* 1: the kernel encrypts; 2: it decrypts; 3: both */
	char version[16]; /* "TLSv1.3"; empty: not encrypted */
	char cipher[40];
};

/* ---- counters -------------------------------------------------------------- */

/* Counters of a target, of one of its sessions, or of an initiator. */
struct stag_block_counters {
	uint64_t comp_mask;
	uint64_t commands, reads, writes;
	uint64_t errors; /* commands that ended with a status other than GOOD */
	uint64_t read_bytes, written_bytes;
	uint64_t posts, completions; /* verbs: work requests, and their completions */
	uint64_t registrations;	     /* verbs: memory regions registered */
	/* STags lent (initiator) or seen lent (target); those open now */
	uint64_t stags, stags_open;
	uint64_t logins, logouts;
	uint64_t lost;	     /* connections lost */
	uint64_t retried;    /* commands sent again after that */
	uint64_t violations; /* of the protocol, by the peer */
	/* Duration of successful commands: from arrival (initiator: from submission) to the end. */
	struct stag_histogram read_times, write_times;
	uint64_t refused; /* logins refused, or not completed in time (target) */
	uint64_t
		evicted; /* sessions ended because the initiator moved no data, or did not answer */
};

/* ---- a target -------------------------------------------------------------- */

struct stag_block_target;

enum stag_block_target_flags {
	STAG_BLOCK_ANY_PORT = 1 << 0,	 /* chooses a free port: see stag_block_target_port() */
	STAG_BLOCK_NO_TCP = 1 << 1,	 /* no iSCSI over TCP */
	STAG_BLOCK_NO_RDMA = 1 << 2,	 /* neither iSER nor one-shot */
	STAG_BLOCK_NO_ONE_SHOT = 1 << 3, /* uses iSER with stag peers, too */
	STAG_BLOCK_NO_SPIN = 1 << 4,	 /* does not spin before it sleeps (spin_us) */
};

/*
 * A right to use a target. With rights only initiators that have one may log in; the first one that fits applies. initiator is a
 * name, or a pattern with * and ?; NULL: any name. user and secret: CHAP; NULL: those of the target, if it has any. luns: the units
 * that the initiator sees, such as "0,2,8-15"; NULL: all. flags: STAG_BLOCK_READ_ONLY.
 */
struct stag_block_right {
	uint64_t comp_mask;
	const char *initiator;
	const char *user, *secret;
	const char *luns;
	uint32_t flags;
};

/* comp_mask of struct stag_block_target_attr: the fields below are set. */
#define STAG_BLOCK_TARGET_RIGHTS (1ull << 0) /* rights, num_rights */
#define STAG_BLOCK_TARGET_STATE	 (1ull << 1) /* state */
#define STAG_BLOCK_TARGET_TLS	 (1ull << 2) /* tls */

struct stag_block_target_attr {
	uint64_t comp_mask;
	const char *name;	/* iqn.…, eui.… or naa.… */
	const char *alias;	/* may be NULL */
	const char *address;	/* to listen on; NULL: all addresses */
	uint16_t port;		/* for TCP and RDMA; default: STAG_BLOCK_PORT */
	uint32_t flags;		/* enum stag_block_target_flags */
	uint32_t max_sessions;	/* default: 1024 */
	uint64_t staging_bytes; /* limit of the memory for data in flight; default: 64 MiB */
	/* CHAP: initiators must authenticate with these; NULL: they need not */
	const char *user, *secret;
	/* CHAP: authenticate the target, if the initiator requires it */
	const char *own_user, *own_secret;
	/* Called by the target's thread for logins, refused logins, violations; NULL: they go to the log (STAG_LOG). */
	void (*log)(void *arg, const char *line);
	void *log_arg;
	/* Limit of spinning for the next request while requests come in quick succession; default: 50 */
	uint32_t spin_us;
	const struct stag_block_right *rights; /* copied */
	uint32_t num_rights;
	/*
	 * Directory for persistent reservations that survive a restart, if an initiator requests that (APTPL). It is created if
	 * it does not exist. NULL: none survives.
	 */
	const char *state;
	/* enum stag_block_tls; requires a user and secret, or a right that has them. */
	uint32_t tls;
};

/* Starts a target that listens, and serves from a thread of its own. It has no logical units yet. */
struct stag_block_target *stag_block_target_start(const struct stag_block_target_attr *attr);
/* Requests all sessions to log out, then drops those that have not, and frees the target. */
void stag_block_target_stop(struct stag_block_target *target);
uint16_t stag_block_target_port(const struct stag_block_target *target);
/*
 * Replaces user, secret, own_user, own_secret and the rights by those of attr, whose other fields are not used. They apply to logins
 * from now on; sessions stay. On failure all stays as it was.
 */
int stag_block_target_set_rights(struct stag_block_target *target,
				 const struct stag_block_target_attr *attr);

enum stag_block_lun_flags {
	STAG_BLOCK_READ_ONLY = 1 << 0,
	/* Writes are durable after SYNCHRONIZE CACHE or with FUA only; without this flag, on completion. */
	STAG_BLOCK_WRITE_BACK = 1 << 1,
};

struct stag_block_lun {
	uint64_t comp_mask;
	uint16_t lun;
	uint32_t flags;	    /* enum stag_block_lun_flags */
	uint32_t block;	    /* 512 or 4096; default: 512 */
	const char *where;  /* "PATH:PARTITION" of a store, or the path of a file or block device */
	const char *serial; /* NULL: derived from the backing */
	const char *product;
};

/*
 * Add, remove or resize a unit, at any time. Initiators are notified by unit attentions. Return EEXIST, ENOENT, EACCES,
 * or EBUSY: commands of a unit to be removed are still in flight after a while.
 */
int stag_block_target_add(struct stag_block_target *target, const struct stag_block_lun *lun);
int stag_block_target_remove(struct stag_block_target *target, uint16_t lun);
/* Reads the size of the unit's backing again. */
int stag_block_target_resized(struct stag_block_target *target, uint16_t lun);

/* comp_mask of struct stag_block_session, set by the caller: the struct has this field, to be filled in. */
#define STAG_BLOCK_SESSION_TLS (1ull << 0) /* tls */

struct stag_block_session {
	uint64_t comp_mask;
	uint64_t id;
	uint32_t transport; /* enum stag_block_transport */
	uint32_t encoding;  /* enum stagdv_one_shot */
	char initiator[STAG_BLOCK_NAME_MAX];
	char address[64];
	struct stag_block_counters counters;
	char user[STAG_BLOCK_NAME_MAX]; /* that it has authenticated as; empty: none */
	struct stag_block_tls_info tls;
};

int stag_block_target_query(struct stag_block_target *target, struct stag_block_counters *counters,
			    size_t size);
/* Fills in the session with the next higher id. Begin with id 0. Returns false if there is none. */
bool stag_block_target_next(struct stag_block_target *target, struct stag_block_session *session);

/* An STag that an initiator lent for a command, as the target saw it. */
struct stag_block_stag {
	uint32_t stag;
	/* enum stagdv_stag_end: closed by the response; withdrawn: left to the initiator */
	uint32_t end;
	uint64_t session;
	uint32_t itt;	/* initiator task tag of the command */
	uint16_t lun;	/* of its unit */
	uint8_t opcode; /* of the command: the first byte of its CDB */
	uint8_t reserved;
	uint64_t length;      /* bytes of the command's data */
	uint64_t made, ended; /* CLOCK_MONOTONIC, ns: arrival; end, or 0 if it is open */
	char initiator[STAG_BLOCK_NAME_MAX];
	char address[64];
};

/*
 * Lists the last 4,096 STags that have ended, oldest first, and all open ones. Fills at most n entries of size bytes
 * each. Returns how many there are, or -errno.
 */
int stag_block_target_stags(struct stag_block_target *target, struct stag_block_stag *list,
			    size_t n, size_t size);

/* ---- an initiator ------------------------------------------------------------ */

struct stag_block;

/* comp_mask of struct stag_block_attr: the field below is set. */
#define STAG_BLOCK_ATTR_TLS (1ull << 0) /* tls */

struct stag_block_attr {
	uint64_t comp_mask;
	/* enum stag_block_transport; EPROTONOSUPPORT if the target does not support it */
	uint32_t transport;
	const char *initiator;	   /* name; NULL: derived from the host name */
	const char *user, *secret; /* CHAP: authenticate the initiator; NULL: those of the URL */
	/* CHAP: the target must authenticate with these; NULL: it need not */
	const char *peer_user, *peer_secret;
	uint32_t depth; /* commands in flight; default: 128 */
	int timeout_ms; /* for connecting and logging in; default: 5000 */
	int retry_ms; /* how long to retry a lost connection, while commands wait; default: 30000; < 0: not at all */
	bool header_digest, data_digest; /* CRC32C; TCP only */
	int command_ms; /* after which a command is aborted (ETIMEDOUT); default: 60000; < 0: no limit */
	/* enum stag_block_tls; requires a user and secret. EPROTONOSUPPORT if the target does not speak it */
	uint32_t tls;
};

/*
 * Connects and logs in. url: SCHEME://[USER[%SECRET]@]HOST[:PORT]/TARGET/LUN, as in libiscsi. The scheme stag negotiates
 * the best transport; iser and iscsi use that one. Errors: ECONNREFUSED, ETIMEDOUT, EACCES (login), ENOENT (no such
 * target or LUN).
 */
struct stag_block *stag_block_open(const char *url, const struct stag_block_attr *attr);
void stag_block_close(struct stag_block *b); /* logs out, and aborts commands in flight */

struct stag_block_info {
	uint64_t comp_mask;
	uint32_t transport; /* enum stag_block_transport in use */
	uint32_t encoding;  /* enum stagdv_one_shot, with one-shot */
	uint32_t block;
	uint64_t size;	       /* bytes */
	uint32_t max_transfer; /* bytes of one command; a longer operation is divided */
	bool read_only, write_back, unmaps;
	char vendor[9], product[17], revision[5], serial[64];
	char target[STAG_BLOCK_NAME_MAX];
	struct stag_block_counters counters;
	struct stag_block_tls_info tls; /* of the connection */
};

int stag_block_query(struct stag_block *b, struct stag_block_info *info, size_t size);

/* Registers memory that commands will use, once. Other memory is registered for each command. */
int stag_block_lend(struct stag_block *b, void *addr, size_t length);
int stag_block_unlend(struct stag_block *b, void *addr); /* Returns EBUSY while commands use it. */

enum stag_block_op {
	STAG_BLOCK_READ,
	STAG_BLOCK_WRITE,
	STAG_BLOCK_FLUSH,
	STAG_BLOCK_UNMAP,
	STAG_BLOCK_ZERO,
	STAG_BLOCK_COMPARE_WRITE, /* iov: data to compare with, then as much to write if it is equal; EILSEQ: it is not */
};

#define STAG_BLOCK_FUA (1u << 0) /* a write is durable on completion */

struct stag_block_io {
	uint64_t comp_mask;
	uint32_t op;		 /* enum stag_block_op */
	uint32_t flags;		 /* STAG_BLOCK_FUA */
	uint64_t offset, length; /* bytes, multiples of the block */
	const struct iovec *iov; /* copied; the memory belongs to the command until it is done */
	int n_iov;
	void *user; /* returned in struct stag_block_done */
};

struct stag_block_done {
	void *user;
	int error; /* 0, or an errno value: EIO, ENOSPC, EROFS, EILSEQ, ETIMEDOUT, ECANCELED, ENODEV, ... */
	uint32_t sense; /* key << 16 | asc << 8 | ascq, if the target sent sense data, else 0 */
};

/* Queues an operation, and never blocks. Returns EINVAL, or ENODEV if reconnecting was given up. */
int stag_block_submit(struct stag_block *b, const struct stag_block_io *io);
/* Reaps at most n completed operations, and never blocks. Returns their number. */
int stag_block_poll(struct stag_block *b, struct stag_block_done *done, int n);
/* Waits until a poll finds something. Returns ETIMEDOUT. */
int stag_block_wait(struct stag_block *b, int timeout_ms);
/* Returns a descriptor that becomes readable when a poll finds something. Poll until it returns 0 before waiting for it. */
int stag_block_fd(struct stag_block *b);

/* Do one operation, and wait for its end. */
int stag_block_read(struct stag_block *b, void *to, uint64_t offset, size_t length);
int stag_block_write(struct stag_block *b, const void *from, uint64_t offset, size_t length,
		     unsigned int flags);
int stag_block_flush(struct stag_block *b);

/* Calls fn for each target and address that a portal (SCHEME://[USER[%SECRET]@]HOST[:PORT]) lists. */
int stag_block_discover(const char *portal, const struct stag_block_attr *attr,
			void (*fn)(void *arg, const char *target, const char *address), void *arg);
/* Calls fn for each LUN of a target (SCHEME://[USER[%SECRET]@]HOST[:PORT]/TARGET), in ascending order. */
int stag_block_list(const char *url, const struct stag_block_attr *attr,
		    void (*fn)(void *arg, uint16_t lun), void *arg);

#ifdef __cplusplus
}
#endif

#endif
