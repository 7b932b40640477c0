/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * block.h - block storage over RDMA and TCP: logical units of a target, and who uses them.
 *
 * The target speaks iSCSI (RFC 7143) over TCP to every initiator there is, iSER (RFC 7145) over verbs, and one-shot
 * between stag peers: the same PDUs, in sends that lend the command's memory in their header (stagdv.h). The
 * initiator takes the best of the three that the target can: it asks, and says which one it got.
 *
 * Calls return 0 or an errno value, or NULL and errno; stag_block_error() says more. Structs of the caller's begin with
 * comp_mask, which is zero; zero in a field is its default.
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

/* The calling thread's last complaint, naming the object and the cause. */
const char *stag_block_error(void);

enum stag_block_transport {
	STAG_BLOCK_BEST,     /* the first of these that the peer can, from below upwards */
	STAG_BLOCK_TCP,	     /* iSCSI */
	STAG_BLOCK_ISER,     /* iSER: STags in the bodies of sends */
	STAG_BLOCK_ONE_SHOT, /* STags in the headers of sends */
};

/* ---- counters -------------------------------------------------------------- */

/* Of a target, a session of it, or an initiator. */
struct stag_block_counters {
	uint64_t comp_mask;
	uint64_t commands, reads, writes,
		errors; /* errors: that ended with a status other than good */
	uint64_t read_bytes, written_bytes;
	uint64_t posts, completions,
		registrations;	    /* verbs: work requests, completions, keys given to memory */
	uint64_t stags, stags_open; /* lent (initiator) or seen lent (target); of these, now */
	uint64_t logins, logouts, lost,
		retried;     /* connections lost; commands sent again after that */
	uint64_t violations; /* of the protocol, by the peer */
	/* Of commands that ended well: from when they came (initiator: were submitted) to their end. */
	struct stag_histogram read_times, write_times;
};

/* ---- a target -------------------------------------------------------------- */

struct stag_block_target;

enum stag_block_target_flags {
	STAG_BLOCK_ANY_PORT = 1 << 0,	 /* a free one; stag_block_target_port() says which */
	STAG_BLOCK_NO_TCP = 1 << 1,	 /* no iSCSI over TCP */
	STAG_BLOCK_NO_RDMA = 1 << 2,	 /* neither iSER nor one-shot */
	STAG_BLOCK_NO_ONE_SHOT = 1 << 3, /* iSER to stag peers, too */
	STAG_BLOCK_NO_SPIN = 1 << 4,	 /* sleeps as soon as there is nothing to do */
};

struct stag_block_target_attr {
	uint64_t comp_mask;
	const char *name;		   /* iqn.…, eui.… or naa.… */
	const char *alias;		   /* may be NULL */
	const char *address;		   /* to listen on; NULL: all */
	uint16_t port;			   /* of TCP and of RDMA: STAG_BLOCK_PORT */
	uint32_t flags;			   /* enum stag_block_target_flags */
	uint32_t max_sessions;		   /* 1024 */
	uint64_t staging_bytes;		   /* bound of the memory for data under way; 64 MiB */
	const char *user, *secret;	   /* CHAP: what an initiator has to prove; NULL: nothing */
	const char *own_user, *own_secret; /* and what we prove if it asks */
	void (*log)(void *arg,
		    const char *line); /* logins, refusals, violations; NULL: the log of STAG_LOG */
	void *log_arg;
	uint32_t spin_us; /* requests in quick succession are waited for awake, so long; 50 */
};

/* Listens, and serves from threads of its own. It has no logical units yet. */
struct stag_block_target *stag_block_target_start(const struct stag_block_target_attr *attr);
void stag_block_target_stop(
	struct stag_block_target *target); /* sessions are logged out, then dropped */
uint16_t stag_block_target_port(const struct stag_block_target *target);

enum stag_block_lun_flags {
	STAG_BLOCK_READ_ONLY = 1 << 0,
	STAG_BLOCK_WRITE_BACK =
		1 << 1, /* a write is durable by SYNCHRONIZE CACHE or FUA only; else at once */
};

struct stag_block_lun {
	uint64_t comp_mask;
	uint16_t lun;
	uint32_t flags;	    /* enum stag_block_lun_flags */
	uint32_t block;	    /* 512 or 4096; 512 */
	const char *where;  /* "PATH:PARTITION" of a store, or a file or block device by its path */
	const char *serial; /* NULL: made of where */
	const char *product;
};

/* At any time; initiators hear of it by unit attentions. EEXIST, ENOENT, EACCES, EBUSY (remove, commands under way: waits a while). */
int stag_block_target_add(struct stag_block_target *target, const struct stag_block_lun *lun);
int stag_block_target_remove(struct stag_block_target *target, uint16_t lun);
int stag_block_target_resized(struct stag_block_target *target,
			      uint16_t lun); /* look at its size again */

struct stag_block_session {
	uint64_t comp_mask;
	uint64_t id;
	uint32_t transport; /* enum stag_block_transport */
	uint32_t encoding;  /* enum stagdv_one_shot */
	char initiator[STAG_BLOCK_NAME_MAX];
	char address[64];
	struct stag_block_counters counters;
};

int stag_block_target_query(struct stag_block_target *target, struct stag_block_counters *counters,
			    size_t size);
/* Sessions by their id. false: no more. Start with id 0. */
bool stag_block_target_next(struct stag_block_target *target, struct stag_block_session *session);

/* The life of an STag that an initiator lent for a command, as the target saw it. */
struct stag_block_stag {
	uint32_t stag;
	uint32_t
		end; /* enum stagdv_stag_end: closed by the response; withdrawn: left to the initiator */
	uint64_t session;
	uint32_t itt;	/* the command's tag */
	uint16_t lun;	/* its unit */
	uint8_t opcode; /* and what it was: the first byte of its CDB */
	uint8_t reserved;
	uint64_t length;      /* bytes that it was to move */
	uint64_t made, ended; /* CLOCK_MONOTONIC, ns: when it came; ended 0: it is open */
	char initiator[STAG_BLOCK_NAME_MAX];
	char address[64];
};

/*
 * The ledger: the last 4,096 that have ended, oldest first, and all that are open. Fills at most n entries of size bytes each; returns
 * how many there are, or -errno.
 */
int stag_block_target_stags(struct stag_block_target *target, struct stag_block_stag *list,
			    size_t n, size_t size);

/* ---- an initiator ------------------------------------------------------------ */

struct stag_block;

struct stag_block_attr {
	uint64_t comp_mask;
	uint32_t
		transport; /* enum stag_block_transport; one that the target cannot: EPROTONOSUPPORT */
	const char *initiator;		     /* name; NULL: one made of this host's */
	const char *user, *secret;	     /* CHAP: what we prove; NULL: as in the URL */
	const char *peer_user, *peer_secret; /* and what the target has to prove */
	uint32_t depth;			     /* commands under way; 128 */
	int timeout_ms;			     /* to connect and log in; 5000 */
	int retry_ms; /* how long a lost connection is sought anew, commands waiting; 30000, < 0: not */
	bool header_digest, data_digest; /* TCP only */
	int command_ms; /* how long a command may take, before it is aborted: ETIMEDOUT; 60000, < 0: for ever */
};

/*
 * url: SCHEME://[USER[%SECRET]@]HOST[:PORT]/TARGET/LUN, as libiscsi's; the scheme stag takes the best transport, iser and iscsi theirs.
 * ECONNREFUSED, ETIMEDOUT, EACCES (login), ENOENT (no such target or LUN).
 */
struct stag_block *stag_block_open(const char *url, const struct stag_block_attr *attr);
void stag_block_close(struct stag_block *b); /* logs out; what is under way is aborted */

struct stag_block_info {
	uint64_t comp_mask;
	uint32_t transport; /* what is in use */
	uint32_t encoding;  /* enum stagdv_one_shot, of one-shot */
	uint32_t block;
	uint64_t size;	       /* bytes */
	uint32_t max_transfer; /* bytes of one command; a longer one is divided */
	bool read_only, write_back, unmaps;
	char vendor[9], product[17], revision[5], serial[64];
	char target[STAG_BLOCK_NAME_MAX];
	struct stag_block_counters counters;
};

int stag_block_query(struct stag_block *b, struct stag_block_info *info, size_t size);

/* Memory that commands will use: registered once. Other memory is registered for each command. */
int stag_block_lend(struct stag_block *b, void *addr, size_t length);
int stag_block_unlend(struct stag_block *b, void *addr); /* EBUSY while commands use it */

enum stag_block_op {
	STAG_BLOCK_READ,
	STAG_BLOCK_WRITE,
	STAG_BLOCK_FLUSH,
	STAG_BLOCK_UNMAP,
	STAG_BLOCK_ZERO,
	STAG_BLOCK_COMPARE_WRITE, /* iov: what has to be there, then as much to write instead; EILSEQ: it was not */
};

#define STAG_BLOCK_FUA (1u << 0) /* of a write: durable when it completes */

struct stag_block_io {
	uint64_t comp_mask;
	uint32_t op;		 /* enum stag_block_op */
	uint32_t flags;		 /* STAG_BLOCK_FUA */
	uint64_t offset, length; /* bytes, multiples of the block */
	const struct iovec
		*iov; /* the list is copied; the memory is the command's until it is done */
	int n_iov;
	void *user; /* comes back */
};

struct stag_block_done {
	void *user;
	int error; /* 0, or an errno value: EIO, ENOSPC, EROFS, EILSEQ, ETIMEDOUT, ECANCELED, ENODEV, ... */
	uint32_t sense; /* key << 16 | asc << 8 | ascq, where the target gave one */
};

/* Never waits: what finds no room queues. EINVAL; ENODEV: the connection is lost for good. */
int stag_block_submit(struct stag_block *b, const struct stag_block_io *io);
int stag_block_poll(struct stag_block *b, struct stag_block_done *done,
		    int n); /* how many; never waits */
int stag_block_wait(struct stag_block *b,
		    int timeout_ms); /* until a poll finds something; ETIMEDOUT */
int stag_block_fd(
	struct stag_block *b); /* readable then, too; poll() to the end before waiting for it */

/* One at a time. The errno value of what went wrong. */
int stag_block_read(struct stag_block *b, void *to, uint64_t offset, size_t length);
int stag_block_write(struct stag_block *b, const void *from, uint64_t offset, size_t length,
		     unsigned int flags);
int stag_block_flush(struct stag_block *b);

/* Calls fn for each target and address that the portal (SCHEME://[USER[%SECRET]@]HOST[:PORT]) names. */
int stag_block_discover(const char *portal, const struct stag_block_attr *attr,
			void (*fn)(void *arg, const char *target, const char *address), void *arg);

#ifdef __cplusplus
}
#endif

#endif
