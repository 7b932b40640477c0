/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool.h - replicated remote memory: values on a primary and its standbys, and pointers to them that outlive the
 * machine they point to.
 *
 * A pool is served by nodes (stag_pool_node_start(), `stagd`), which have the same memory at the same address,
 * under the same key. A client opens the pool (stag_pool_open()) and stores values: an insert returns a remote
 * pointer, which is valid on whichever node is primary; a put stores a value under a name. Reads access the memory
 * itself, without the node's software. A change is on every standby that is in sync before it is acknowledged, and
 * happens exactly once, however often it had to be sent. docs/HA.md says what is guaranteed under which faults.
 *
 * Threads: one thread at a time may make calls on a pool; different pools are independent of each other.
 *
 * Calls return 0 or an errno value, or NULL and errno; stag_pool_error() has the text. Structs of the caller begin
 * with comp_mask, which must be zero; zero in a field selects its default.
 */
#ifndef STAG_POOL_H
#define STAG_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stag/histogram.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STAG_POOL_PORT	       7175
#define STAG_POOL_NAME_MAX     255	  /* bytes of a value's name, which has no zero bytes */
#define STAG_POOL_VALUE_MAX    (1u << 30) /* bytes of a value */
#define STAG_POOL_NODES_MAX    16
#define STAG_POOL_PREFIXES_MAX 16 /* of names, of a user */
#define STAG_POOL_SECRET_MIN   16 /* characters of a secret, at least */
#define STAG_POOL_SECRET_MAX   128
#define STAG_POOL_MEMORY                                                                           \
	0x200000000000ull /* default address of a pool's memory, which programs leave free */

/* Returns the text of the calling thread's last error, naming the object and the cause. */
const char *stag_pool_error(void);

/*
 * A pointer to a value in the pool. It may be kept, copied, stored, and sent to other clients of the pool. It is
 * valid, over any number of failovers, until the value is deleted, or is moved because an update did not fit in
 * its place. From then on it is "gone" (ENOENT), whatever is in its place.
 */
struct stag_pool_ptr {
	uint64_t address;
	uint32_t key;
	uint32_t
		length; /* of the value when the pointer was made: a hint that saves a second read */
	uint64_t generation;
};

enum stag_pool_rights {
	STAG_POOL_RIGHT_READ = 1 << 0,
	STAG_POOL_RIGHT_WRITE = 1 << 1,
	STAG_POOL_RIGHT_ADMIN = 1 << 2, /* switch over, forget nodes */
};

/* ---- a client ---------------------------------------------------------------- */

struct stag_pool;

/*
 * Whether connections are encrypted, with TLS 1.3, by keys that are made of the secrets or by certificates. Off: neither offered nor
 * accepted. Allowed: nodes accept both; who connects tries TLS, and then without if the node does not speak it, which
 * an attacker in between can bring about. Required: nothing else is accepted. The software adapter has it, others do
 * not.
 */
enum stag_pool_tls { STAG_POOL_TLS_OFF, STAG_POOL_TLS_ALLOWED, STAG_POOL_TLS_REQUIRED };

struct stag_pool_attr {
	uint64_t comp_mask;
	const char *user;   /* our name; NULL: "client" */
	const char *secret; /* shared with the nodes; it is never sent over the network */
	uint32_t depth;	    /* operations in flight; further ones are queued; 64 */
	int timeout_ms;	    /* for stag_pool_open(); 0: 5000, or until all addresses refuse */
	int retry_ms; /* how long to seek a primary after it was lost, while operations wait; 30000; < 0: for ever */
	uint32_t tls; /* enum stag_pool_tls */
	/* PEM files: our certificate, its key, and the authorities of the nodes' certificates. NULL: by keys */
	const char *tls_cert, *tls_key, *tls_ca;
};

/*
 * Opens a pool. where: "HOST[:PORT][,HOST[:PORT]...]" of any of its nodes, an IPv6 address in brackets; the other
 * nodes are found from there. ECONNREFUSED, ETIMEDOUT; EACCES: no such user, or wrong secret; EPROTO: a node could
 * not prove itself.
 */
struct stag_pool *stag_pool_open(const char *where, const struct stag_pool_attr *attr);
void stag_pool_close(struct stag_pool *pool); /* the outcome of operations in flight is unknown */

/*
 * Registers memory once, for values to be written from and read to. Other memory is copied, or registered for each
 * operation.
 */
int stag_pool_lend(struct stag_pool *pool, void *addr, size_t length);
int stag_pool_unlend(struct stag_pool *pool, void *addr); /* EBUSY while operations use it */

enum stag_pool_op {
	/* By its operands: a value alone is inserted, a value and a pointer update, a pointer alone deletes. */
	STAG_POOL_IMPLICIT,
	STAG_POOL_INSERT, /* value -> pointer */
	STAG_POOL_UPDATE, /* pointer, value -> pointer: the same one, unless the value did not fit in its place */
	STAG_POOL_READ,	  /* pointer -> value */
	STAG_POOL_DELETE, /* pointer */
	STAG_POOL_PUT,	  /* name, value -> pointer */
	STAG_POOL_GET,	  /* name -> value, pointer */
	STAG_POOL_REMOVE, /* name */
};

enum stag_pool_flags {
	/*
	 * update, delete, put, remove: only if the value has this `version`; else EILSEQ, and done.version says
	 * which
	 */
	STAG_POOL_COMPARE = 1 << 0,
	STAG_POOL_EXCLUSIVE = 1 << 1, /* put: only if the name does not exist; else EEXIST */
	STAG_POOL_VALUE = 1 << 2,     /* implicit: there is a value, of length bytes, possibly 0 */
};

struct stag_pool_io {
	uint64_t comp_mask;
	uint32_t op;	  /* enum stag_pool_op */
	uint32_t flags;	  /* enum stag_pool_flags */
	const char *name; /* for put, get, remove; copied */
	struct stag_pool_ptr ptr;
	uint64_t version;
	const void *
		from; /* for insert, update, put: the value; must not change until the operation is done */
	void *to;      /* for read, get: the buffer; in use until the operation is done */
	size_t length; /* bytes at from, or of the buffer at to */
	void *user;    /* returned in stag_pool_done */
};

struct stag_pool_done {
	void *user;
	int error; /* 0, or an errno value: ENOENT (gone), ENOSPC, EMSGSIZE (length says how long the value is), EILSEQ, EEXIST, EACCES, ... */
	uint32_t op;
	struct stag_pool_ptr ptr; /* to the value as it is now */
	uint64_t version;	  /* of the value: unique among all changes of the pool */
	uint64_t length;	  /* of the value */
};

/*
 * Submits n operations, in one message if possible; each is carried out, and completes, on its own. Operations in
 * flight at the same time may be carried out in any order. Never waits: operations that find no room are queued.
 * EINVAL: none was submitted. ENOTCONN: no primary was found for retry_ms, and operations in flight have completed
 * with ETIMEDOUT: their outcome is unknown.
 */
int stag_pool_submit(struct stag_pool *pool, const struct stag_pool_io *io, int n);
int stag_pool_poll(struct stag_pool *pool, struct stag_pool_done *done,
		   int n); /* returns how many; never waits */
int stag_pool_wait(struct stag_pool *pool,
		   int timeout_ms); /* until an operation has completed; ETIMEDOUT */
int stag_pool_fd(
	struct stag_pool *
		pool); /* readable when an operation has completed; first poll until none is found */

/*
 * Calls that wait for one operation. Return 0 or an errno value. ptr: to the value as it is now; may be NULL if it
 * is only an output.
 */
int stag_pool_insert(struct stag_pool *pool, const void *value, size_t length,
		     struct stag_pool_ptr *ptr);
int stag_pool_update(struct stag_pool *pool, struct stag_pool_ptr *ptr, const void *value,
		     size_t length);
/* Updates the value only if it has version *version, which becomes the new one, or on EILSEQ the present one. */
int stag_pool_compare_update(struct stag_pool *pool, struct stag_pool_ptr *ptr, uint64_t *version,
			     const void *value, size_t length);
/*
 * *length: in, the room; out, the length of the value. EMSGSIZE: the value is longer, and *length says how long.
 * version may be NULL.
 */
int stag_pool_read(struct stag_pool *pool, const struct stag_pool_ptr *ptr, void *to,
		   size_t *length, uint64_t *version);
int stag_pool_delete(struct stag_pool *pool, const struct stag_pool_ptr *ptr);

int stag_pool_put(struct stag_pool *pool, const char *name, const void *value, size_t length,
		  unsigned int flags, struct stag_pool_ptr *ptr);
int stag_pool_get(struct stag_pool *pool, const char *name, void *to, size_t *length,
		  uint64_t *version);
int stag_pool_remove(struct stag_pool *pool, const char *name);

struct stag_pool_entry {
	uint64_t comp_mask;
	char name[STAG_POOL_NAME_MAX + 1];
	struct stag_pool_ptr ptr;
	uint64_t version;
	uint64_t cursor; /* internal */
};

/*
 * Lists the names, in no order. Returns false at the end, or on an error (errno). Start with an entry of zeroes. A
 * name that is put or removed meanwhile may be listed or not; a name that exists all the time is listed once.
 */
bool stag_pool_next(struct stag_pool *pool, struct stag_pool_entry *entry);

/* ---- a map of pointers --------------------------------------------------------- */

/* A hash map of pointers, in the program's own memory, by keys of any bytes. The pool does not know it. */
struct stag_pool_map;

struct stag_pool_map *stag_pool_map_create(void);
void stag_pool_map_destroy(struct stag_pool_map *map);
int stag_pool_map_set(struct stag_pool_map *map, const void *key, size_t length,
		      const struct stag_pool_ptr *ptr); /* ENOMEM */
bool stag_pool_map_get(const struct stag_pool_map *map, const void *key, size_t length,
		       struct stag_pool_ptr *ptr);
bool stag_pool_map_remove(struct stag_pool_map *map, const void *key, size_t length);
size_t stag_pool_map_count(const struct stag_pool_map *map);

/* ---- queries --------------------------------------------------------------------- */

enum stag_pool_role {
	STAG_POOL_ROLE_UNKNOWN, /* it does not respond */
	STAG_POOL_ROLE_PRIMARY,
	STAG_POOL_ROLE_STANDBY, /* in sync: it may become primary */
	STAG_POOL_ROLE_JOINING, /* it is being resynchronised */
	STAG_POOL_ROLE_WAITING, /* it has no role: the roll backend does not respond, or the roll does not name it */
	STAG_POOL_ROLE_REFUSED, /* it will not serve until it is restarted */
};

/*
 * What the primary knows about the nodes' secret that a node accepts, for users with the right to administer. A mark in
 * the upper 24 bits tells one secret from another: stag_pool_secret_mark().
 */
enum stag_pool_member_secret {
	STAG_POOL_SECRET_KNOWN = 1 << 0, /* the node has said which secrets it accepts */
	STAG_POOL_SECRET_FIRST = 1 << 1, /* it accepts the first secret of the primary */
	STAG_POOL_SECRET_SECOND =
		1
		<< 2, /* it accepts the second one, which the primary has while they are rotated */
	STAG_POOL_SECRET_TWO = 1 << 3,		 /* it accepts two */
	STAG_POOL_SECRET_MARK = (int)0xffffff00, /* the mark of its first one */
};

struct stag_pool_member {
	char name[64];
	char address[96];     /* HOST:PORT */
	uint32_t role;	      /* enum stag_pool_role */
	uint32_t secret;      /* enum stag_pool_member_secret; 0: not known */
	uint64_t number;      /* of its last record */
	uint64_t done, total; /* bytes copied, and to be copied, of a joining node */
};

struct stag_pool_info {
	uint64_t comp_mask;
	uint8_t uuid[16];
	char name[64];
	uint64_t epoch;
	uint64_t size, address; /* of the pool's memory */
	uint64_t objects, bytes, names;
	uint64_t used; /* bytes of memory that are not free */
	uint64_t reads, retried_reads,
		asked_reads; /* this client's: one-sided; torn and retried; served by a node */
	uint64_t changes, retries, failovers; /* this client's */
	uint32_t rights;		      /* STAG_POOL_RIGHT_* */
	uint32_t num_members;
	struct stag_pool_member members[STAG_POOL_NODES_MAX];
	uint64_t
		number; /* of the primary's last record: a member with the same number does not lag */
	uint64_t
		lease_us; /* how long the primary may still serve without hearing from its standbys; STAG_POOL_NO_LEASE: it is alone */
	uint32_t
		limited; /* 1: the user may read and write only values whose names have certain prefixes */
	uint32_t reserved;
	/* The primary's, as in stag_pool_node_info. */
	uint64_t clients, paused, pauses, evicted;
	uint64_t slots, max_slots, reclaimed;
	/* How this client's connection to the primary is encrypted, as in struct stagdv_tls_info; empty if it is not. */
	char tls_version[16], tls_cipher[40];
	uint8_t tls_kernel, tls_reserved[7];
};

#define STAG_POOL_NO_LEASE UINT64_MAX

int stag_pool_query(struct stag_pool *pool, struct stag_pool_info *info, size_t size);

/* Returns the mark of a secret of the nodes in a pool, in the upper 24 bits; 0: no memory. */
uint32_t stag_pool_secret_mark(const uint8_t uuid[16], const char *secret);

/*
 * Makes the node of this name primary, or with NULL the next one in order; no operation fails. EBUSY: the node is
 * not in sync; EACCES.
 */
int stag_pool_switchover(struct stag_pool *pool, const char *node);

/* Removes a node that will not return from the roll. EBUSY: it is in sync, or primary. */
int stag_pool_forget(struct stag_pool *pool, const char *node);

#define STAG_POOL_EVENT_MAX 232

/* A line of a node's log. */
struct stag_pool_event {
	uint64_t comp_mask;
	uint64_t run,
		number;	 /* of the node's process, and of the line there: they tell events apart */
	uint64_t age_us; /* how long ago it was */
	uint32_t level;	 /* as of syslog(3): 3 error, 4 warning, 6 information, 7 debugging */
	uint32_t reserved;
	char node[64];
	char text[STAG_POOL_EVENT_MAX];
	uint64_t cursor; /* internal */
};

/*
 * Fetches the next event of the pool's nodes: the primary keeps the last ones of its own, and of its standbys. Start with
 * an event of zeroes; call it again with the same one. Returns false if there are no more (errno 0), or on an error: EACCES
 * without the right to administer, EOPNOTSUPP if the primary keeps none. After a change of primary another node answers, and
 * events that were seen may come again.
 */
bool stag_pool_next_event(struct stag_pool *pool, struct stag_pool_event *event);

/* ---- a node ---------------------------------------------------------------------- */

struct stag_pool_node;

enum stag_pool_node_flags {
	STAG_POOL_CREATE = 1 << 0,   /* create the pool; EEXIST if it exists */
	STAG_POOL_ANY_PORT = 1 << 1, /* listen on a free port; stag_pool_node_query() says which */
	STAG_POOL_OVERWRITE =
		1 << 2, /* overwrite deleted values; for the whole pool, set at its creation */
	STAG_POOL_NO_MIRROR = 1 << 3, /* let software forward values, even if the adapter could */
};

/*
 * A user: a name with a secret and rights. With prefixes, the rights to read and write are for values whose names begin
 * with one of them, and for no others: neither by name nor by pointer. Values without names are among the others.
 */
struct stag_pool_user {
	const char *name, *secret;
	uint32_t rights;	     /* STAG_POOL_RIGHT_* */
	uint32_t num_prefixes;	     /* at most STAG_POOL_PREFIXES_MAX; 0: all values */
	const char *const *prefixes; /* of 1 to STAG_POOL_NAME_MAX bytes each */
	const char *
		also; /* another secret that is accepted, too, while the secret is rotated; NULL: none */
};

struct stag_pool_node_attr {
	uint64_t comp_mask;
	const char *pool; /* name of the pool */
	const char *node; /* name of this node, unique in the pool; NULL: the host's name */
	const char *
		roll; /* place of the roll: "file:PATH", "etcd://HOST:PORT[,HOST:PORT...]/KEY[?OPTION...]", or "etcds:..." (docs/HA.md) */
	const char *state;     /* directory of this node, for its key, epoch and name */
	const char *secret;    /* shared by the nodes of the pool */
	const char *address;   /* to listen on; NULL: all addresses */
	const char *advertise; /* address for other nodes and clients, HOST[:PORT]; NULL: address */
	uint16_t port;	       /* 0: STAG_POOL_PORT */
	uint32_t flags;	       /* enum stag_pool_node_flags */
	/* With STAG_POOL_CREATE: */
	uint64_t size;	  /* of the memory, in bytes */
	uint64_t memory;  /* its address; 0: STAG_POOL_MEMORY */
	uint32_t clients; /* that can write at a time; 1024 */

	const struct stag_pool_user *users;
	uint32_t num_users;
	uint32_t beat_us;    /* interval between heartbeats; 2000 */
	uint32_t lease_ms;   /* how long a primary serves after a heartbeat that was echoed; 20 */
	uint32_t promote_ms; /* silence of the primary after which a standby promotes itself; 24 */
	uint32_t expire_s;   /* time after which an absent client is forgotten; 3600 */
	uint64_t log_bytes;  /* of records in flight, in each node's memory; 16 MiB */
	uint32_t tls;	     /* enum stag_pool_tls */
	/* called with each line of the log and its level, as of syslog(3); NULL: the log of STAG_LOG */
	void (*log)(void *arg, int level, const char *line);
	void *log_arg;
	uint32_t
		client_timeout_ms; /* time after which a client is disconnected that takes no answers, or does not deliver a value; 30000 */
	uint32_t
		retry_s; /* time for which a client may retry a change: its outcome is kept, even if others need room; 60 */
	uint32_t user_clients; /* connections that one user may have at a node; 16384 */
	/* PEM files: the node's certificate, its key, and the authorities of all others' certificates. NULL: by keys */
	const char *tls_cert, *tls_key, *tls_ca;
	const char *
		also; /* another secret of the nodes that is accepted, too, while it is rotated; NULL: none */
};

/*
 * Checks the attributes that are set, and the three times together, without starting anything. EINVAL:
 * stag_pool_error() says which of them is wrong, and why. A field of zero or NULL is not checked; users are
 * checked if `secret` is set.
 */
int stag_pool_node_check(const struct stag_pool_node_attr *attr);

/* The content of a node's state directory. */
struct stag_pool_node_state {
	uint64_t comp_mask;
	uint8_t uuid[16]; /* of the pool */
	char node[64];	  /* the node's name */
	uint64_t epoch;	  /* the highest that the node has seen; 0: it was never in the pool */
};

/*
 * Reads a state directory. ENOENT: no node has used it yet; EBADMSG: damaged; EPERM: others than its owner may
 * read it.
 */
int stag_pool_node_query_state(const char *directory, struct stag_pool_node_state *state,
			       size_t size);

/* The roll: the pool's membership record. */
struct stag_pool_roll {
	uint64_t comp_mask;
	uint8_t uuid[16];  /* of the pool */
	uint64_t epoch;	   /* incremented with every new primary */
	uint64_t revision; /* increases with every change of the roll */
	uint32_t num_members;
	uint32_t reserved;
	/* Only name, address and role are set; role: primary, standby (in sync), or unknown. */
	struct stag_pool_member members[STAG_POOL_NODES_MAX];
};

/*
 * Reads the roll from the place that stag_pool_node_attr.roll names. ENOENT: there is none; other errors: it
 * cannot be read.
 */
int stag_pool_query_roll(const char *where, struct stag_pool_roll *roll, size_t size);

/*
 * Starts a node, with threads of its own, in the role that the roll gives it, now and later. EADDRINUSE: something
 * is mapped at the pool's address, or the port is taken; EBUSY: another node holds the state directory; ENOENT: no
 * such pool, and no STAG_POOL_CREATE; EEXIST: the pool exists; EOPNOTSUPP: no adapter; ENOTRECOVERABLE: this node
 * had the only copy of the memory, which is lost.
 */
struct stag_pool_node *stag_pool_node_start(const struct stag_pool_node_attr *attr);
void stag_pool_node_stop(
	struct stag_pool_node *node); /* a primary hands over first, if it can; takes NULL */
/*
 * Hands over to the standby of this name, or with NULL to the next one in order; when the call returns, that node
 * is primary. EPERM: this node is not primary; EBUSY: the standby is not in sync; ETIMEDOUT: the roll backend does
 * not respond.
 */
int stag_pool_node_switchover(struct stag_pool_node *node, const char *to);
/*
 * Replaces the users. Clients of users that are removed, have other rights, or have lost the secret that the client has
 * proven, must authenticate again; others are not affected. EINVAL: nothing has changed.
 */
int stag_pool_node_set_users(struct stag_pool_node *node, const struct stag_pool_user *users,
			     uint32_t num_users);
/*
 * Replaces the secret of the nodes, and the second one that is accepted, too (also; NULL: none). Links between nodes
 * stay. EBUSY: a node of the pool is not known to accept any of them, and could not come back; EINVAL. Then nothing has
 * changed, and stag_pool_error() says why.
 */
int stag_pool_node_set_secret(struct stag_pool_node *node, const char *secret, const char *also);

struct stag_pool_node_info {
	uint64_t comp_mask;
	uint8_t uuid[16];
	uint64_t epoch, number;
	uint32_t role; /* enum stag_pool_role */
	uint16_t port;
	uint32_t clients;
	uint64_t size, address, used;
	uint64_t objects, bytes, names;
	uint64_t changes,
		reads; /* carried out; reads: only those that clients could not do by themselves */
	uint64_t records, record_bytes; /* sent to each standby */
	uint64_t mirrored_bytes;	/* bytes of values that the adapter forwarded */
	uint64_t promotions, lapses, resyncs;
	uint64_t refused; /* admissions that were refused */
	uint32_t num_members;
	struct stag_pool_member members[STAG_POOL_NODES_MAX];
	char why[128]; /* why the node waits, or has refused to serve; empty: neither */
	struct stag_histogram
		change_times; /* as primary: from the arrival of a change to its answer */
	struct stag_histogram
		replication_times; /* from sending a record to the standbys until all that are in sync have it */
	uint64_t paused;  /* clients whose requests wait because they do not take their answers */
	uint64_t pauses;  /* times that a client was paused */
	uint64_t evicted; /* clients that were disconnected: too slow, or against the protocol */
	uint64_t slots, max_slots; /* for the outcomes of clients that write: in use, and all */
	uint64_t reclaimed;	   /* slots that were taken away because others needed them */
	uint64_t limited; /* connection requests that were not judged: too many in a second */
};

int stag_pool_node_query(struct stag_pool_node *node, struct stag_pool_node_info *info,
			 size_t size);

#ifdef __cplusplus
}
#endif

#endif
