/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pool.h - replicated remote memory: values on a primary and its standbys, and pointers to them that
 * outlive the machine they point to.
 *
 * A pool is served by nodes (stag_pool_node_start(), `stagd`), which have the same memory at the same address, under the
 * same key. Whoever uses it opens it (stag_pool_open()) and stores values: an insert returns a remote pointer, which is good
 * on whichever node is primary; a put stores under a name. Reads go to the memory itself, without the node's
 * software. A change is on every standby that is in sync before it is acknowledged, and happens once, however often it
 * had to be sent. What is promised under which faults: docs/HA.md.
 *
 * Threads: calls on one pool are made by one thread at a time; different ones do not know of each other.
 *
 * Calls return 0 or an errno value, or NULL and errno; stag_pool_error() says more. Structs of the caller's begin with
 * comp_mask, which is zero; zero in a field is its default.
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

#define STAG_POOL_PORT	     7175
#define STAG_POOL_NAME_MAX   255	/* bytes of a value's name; any but zero bytes */
#define STAG_POOL_VALUE_MAX  (1u << 30) /* bytes of a value */
#define STAG_POOL_NODES_MAX  16
#define STAG_POOL_SECRET_MIN 16 /* characters of a secret */
#define STAG_POOL_SECRET_MAX 128
#define STAG_POOL_MEMORY                                                                           \
	0x200000000000ull /* where the memory of a pool is, unless its creator chooses: an address that programs leave free */

/* The calling thread's last complaint, naming the object and the cause. */
const char *stag_pool_error(void);

/*
 * To a value in the pool. It may be kept, copied, stored, sent to others who use the pool: it is good until the value
 * is deleted or has grown out of its place, over any number of failovers, and is "gone" (ENOENT) from then on, whatever
 * is in its place.
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
	STAG_POOL_RIGHT_ADMIN = 1 << 2, /* switch over, replace nodes */
};

/* ---- a client ---------------------------------------------------------------- */

struct stag_pool;

struct stag_pool_attr {
	uint64_t comp_mask;
	const char *user;   /* who we are, to the nodes; "client" */
	const char *secret; /* what we both know; it does not cross the network */
	uint32_t depth;	    /* operations under way, the others queue; 64 */
	int timeout_ms;	    /* to open; 0: 5000, or until all addresses refuse */
	int retry_ms; /* how long a primary is sought anew, operations waiting; 30000, < 0: for ever */
};

/*
 * where: "HOST[:PORT][,HOST[:PORT]...]" of any of its nodes; an IPv6 address in brackets. The others are found from there.
 * ECONNREFUSED, ETIMEDOUT, EACCES: no such user, or another secret; EPROTO: a node that could not prove itself.
 */
struct stag_pool *stag_pool_open(const char *where, const struct stag_pool_attr *attr);
void stag_pool_close(struct stag_pool *pool); /* operations under way: nobody knows */

/* Memory that values are written from and read to: registered once. Other memory is copied, or registered each time. */
int stag_pool_lend(struct stag_pool *pool, void *addr, size_t length);
int stag_pool_unlend(struct stag_pool *pool, void *addr); /* EBUSY while operations use it */

enum stag_pool_op {
	/* As the operands say: a value is inserted, a value and a pointer update, a pointer alone deletes. */
	STAG_POOL_IMPLICIT,
	STAG_POOL_INSERT, /* value -> pointer */
	STAG_POOL_UPDATE, /* pointer, value -> pointer: the same, unless the value did not fit in its place */
	STAG_POOL_READ,	  /* pointer -> value */
	STAG_POOL_DELETE, /* pointer */
	STAG_POOL_PUT,	  /* name, value -> pointer */
	STAG_POOL_GET,	  /* name -> value, pointer */
	STAG_POOL_REMOVE, /* name */
};

enum stag_pool_flags {
	/* update, delete, put, remove: only if the value's version is `version`; else EILSEQ, and done.version says which */
	STAG_POOL_COMPARE = 1 << 0,
	STAG_POOL_EXCLUSIVE = 1 << 1, /* put: only if there is no such name; else EEXIST */
	STAG_POOL_VALUE = 1 << 2,     /* implicit: there is a value, of length bytes, perhaps 0 */
};

struct stag_pool_io {
	uint64_t comp_mask;
	uint32_t op;	  /* enum stag_pool_op */
	uint32_t flags;	  /* enum stag_pool_flags */
	const char *name; /* copied; put, get, remove */
	struct stag_pool_ptr ptr;
	uint64_t version;
	const void *from; /* insert, update, put: the value; the operation's until it is done */
	void *to;	  /* read, get: where to; likewise */
	size_t length;	  /* of from, or of the room at to */
	void *user;	  /* comes back */
};

struct stag_pool_done {
	void *user;
	int error; /* 0, or an errno value: ENOENT (gone), ENOSPC, EMSGSIZE (length says how much), EILSEQ, EEXIST, EACCES, ... */
	uint32_t op;
	struct stag_pool_ptr ptr; /* of the value as it is now */
	uint64_t version;	  /* a number that no other change of the pool has */
	uint64_t length;	  /* of the value */
};

/*
 * A batch of n, in one message where that is possible; each is an operation of its own, done on its own. Operations under way at
 * the same time may be carried out in any order. Never waits: what finds no room queues. EINVAL: none was taken. ENOTCONN: no
 * primary was found for retry_ms, and what was under way has been answered with ETIMEDOUT: nobody knows.
 */
int stag_pool_submit(struct stag_pool *pool, const struct stag_pool_io *io, int n);
int stag_pool_poll(struct stag_pool *pool, struct stag_pool_done *done,
		   int n); /* how many; never waits */
int stag_pool_wait(struct stag_pool *pool,
		   int timeout_ms);	  /* until a poll finds something; ETIMEDOUT */
int stag_pool_fd(struct stag_pool *pool); /* readable then, too; poll until none is found first */

/* One at a time. The errno value of what went wrong. ptr: to the value as it is now; may be NULL where it only returns. */
int stag_pool_insert(struct stag_pool *pool, const void *value, size_t length,
		     struct stag_pool_ptr *ptr);
int stag_pool_update(struct stag_pool *pool, struct stag_pool_ptr *ptr, const void *value,
		     size_t length);
/* Only if its version is *version, which becomes the new one, or on EILSEQ the one it has. */
int stag_pool_compare_update(struct stag_pool *pool, struct stag_pool_ptr *ptr, uint64_t *version,
			     const void *value, size_t length);
/* *length: the room, then the value's length; EMSGSIZE: it is longer, and *length says how long. version may be NULL. */
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
	uint64_t cursor; /* the library's */
};

/*
 * Names, in no order. false: no more, or an error (errno). Start with an entry of zeroes. What is put or removed meanwhile may be
 * seen or not; what was there all the time is seen once.
 */
bool stag_pool_next(struct stag_pool *pool, struct stag_pool_entry *entry);

/* ---- a map of pointers --------------------------------------------------------- */

/*
 * The client's own hash map of pointers by a key of any bytes. Nothing of it is in the pool.
 */
struct stag_pool_map;

struct stag_pool_map *stag_pool_map_create(void);
void stag_pool_map_destroy(struct stag_pool_map *map);
int stag_pool_map_set(struct stag_pool_map *map, const void *key, size_t length,
		      const struct stag_pool_ptr *ptr); /* ENOMEM */
bool stag_pool_map_get(const struct stag_pool_map *map, const void *key, size_t length,
		       struct stag_pool_ptr *ptr);
bool stag_pool_map_remove(struct stag_pool_map *map, const void *key, size_t length);
size_t stag_pool_map_count(const struct stag_pool_map *map);

/* ---- what there is --------------------------------------------------------------- */

enum stag_pool_role {
	STAG_POOL_ROLE_UNKNOWN, /* it does not answer */
	STAG_POOL_ROLE_PRIMARY,
	STAG_POOL_ROLE_STANDBY, /* in sync: it may become primary */
	STAG_POOL_ROLE_JOINING, /* it is being resynchronised */
	STAG_POOL_ROLE_WAITING, /* it has no place: the coordination does not answer, or does not name it */
	STAG_POOL_ROLE_REFUSED, /* it will not serve, until it is started anew */
};

struct stag_pool_member {
	char name[64];
	char address[96]; /* HOST:PORT */
	uint32_t role;	  /* enum stag_pool_role */
	uint32_t reserved;
	uint64_t number;      /* of its last record */
	uint64_t done, total; /* bytes, of a joining one */
};

struct stag_pool_info {
	uint64_t comp_mask;
	uint8_t uuid[16];
	char name[64];
	uint64_t epoch;
	uint64_t size, address; /* of the memory */
	uint64_t objects, bytes, names;
	uint64_t used; /* bytes of memory that are not free */
	uint64_t reads, retried_reads,
		asked_reads; /* ours: one-sided; torn and read again; that a node had to serve */
	uint64_t changes, retries, failovers; /* ours */
	uint32_t rights;		      /* STAG_POOL_RIGHT_* */
	uint32_t num_members;
	struct stag_pool_member members[STAG_POOL_NODES_MAX];
	uint64_t number; /* of the primary's last record: who has it lags behind by none */
	uint64_t
		lease_us; /* for which the primary may serve unless it hears of its standbys; STAG_POOL_NO_LEASE: it is alone */
};

#define STAG_POOL_NO_LEASE UINT64_MAX

int stag_pool_query(struct stag_pool *pool, struct stag_pool_info *info, size_t size);

/* The node of this name becomes primary; nobody's operation fails. NULL: whoever is next. EBUSY: it is not in sync; EACCES. */
int stag_pool_switchover(struct stag_pool *pool, const char *node);

/* The coordination forgets a node that will not return. EBUSY: it is in sync, or primary. */
int stag_pool_forget(struct stag_pool *pool, const char *node);

/* ---- a node ---------------------------------------------------------------------- */

struct stag_pool_node;

enum stag_pool_node_flags {
	STAG_POOL_CREATE = 1 << 0,   /* a pool that is not there yet; EEXIST */
	STAG_POOL_ANY_PORT = 1 << 1, /* a free one; stag_pool_node_query() says which */
	STAG_POOL_OVERWRITE =
		1 << 2, /* what is deleted is overwritten; of the whole pool, at its creation */
	STAG_POOL_NO_MIRROR =
		1 << 3, /* values are forwarded by software, where the adapter could */
};

/* Who is admitted, by what secret, to do what. */
struct stag_pool_user {
	const char *name, *secret;
	uint32_t rights; /* STAG_POOL_RIGHT_* */
};

struct stag_pool_node_attr {
	uint64_t comp_mask;
	const char *pool; /* its name */
	const char *node; /* ours, unique in the pool; NULL: the host's name */
	const char *
		roll; /* who is primary: "file:PATH", or "etcd://HOST:PORT[,HOST:PORT...]/KEY[?OPTION...]", "etcds:" (docs/HA.md) */
	const char *state;     /* our directory: key, epoch, name */
	const char *secret;    /* of nodes, to each other */
	const char *address;   /* to listen on; NULL: all */
	const char *advertise; /* how others reach us, HOST[:PORT]; NULL: address */
	uint16_t port;	       /* STAG_POOL_PORT */
	uint32_t flags;	       /* enum stag_pool_node_flags */
	/* create: */
	uint64_t size;	  /* of the memory */
	uint64_t memory;  /* its address; 0: STAG_POOL_MEMORY */
	uint32_t clients; /* 1024 */

	const struct stag_pool_user *users;
	uint32_t num_users;
	uint32_t beat_us;    /* between heartbeats; 2000 */
	uint32_t lease_ms;   /* a primary without a standby's answer for this long refuses; 20 */
	uint32_t promote_ms; /* a standby that has heard nothing for this long takes over; 24 */
	uint32_t expire_s;   /* a client that was not seen for this long is forgotten; 3600 */
	uint64_t log_bytes;  /* records under way, in each node's memory; 16 MiB */
	void (*log)(void *arg, const char *line); /* NULL: the log of STAG_LOG */
	void *log_arg;
};

/*
 * Checks the attributes that are set, and the three times together, without starting anything. EINVAL: stag_pool_error()
 * says which of them is wrong, and why. A field of zero or NULL is not checked; users are if `secret` is set.
 */
int stag_pool_node_check(const struct stag_pool_node_attr *attr);

/* What a state directory says about its node. */
struct stag_pool_node_state {
	uint64_t comp_mask;
	uint8_t uuid[16]; /* of the pool */
	char node[64];	  /* the node's name */
	uint64_t epoch;	  /* the highest that the node has seen; 0: it was never in the pool */
};

/* ENOENT: no node has used this directory yet. EBADMSG: damaged. EPERM: others than its owner may read it. */
int stag_pool_node_query_state(const char *directory, struct stag_pool_node_state *state,
			       size_t size);

/* The roll: the pool's membership record. */
struct stag_pool_roll {
	uint64_t comp_mask;
	uint8_t uuid[16];  /* of the pool */
	uint64_t epoch;	   /* one more with every new primary */
	uint64_t revision; /* one more with every change of the roll */
	uint32_t num_members;
	uint32_t reserved;
	/* role: primary, standby (in sync), or unknown. Of the other fields, name and address are set. */
	struct stag_pool_member members[STAG_POOL_NODES_MAX];
};

/* Reads the roll, in the place that stag_pool_node_attr.roll names. ENOENT: there is none; others: it cannot be reached. */
int stag_pool_query_roll(const char *where, struct stag_pool_roll *roll, size_t size);

/*
 * Serves from threads of its own: as what the coordination says, from the beginning and later. EADDRINUSE: something is at
 * the pool's address, or the port; EBUSY: another node has the state directory; ENOENT: no such pool, and no STAG_POOL_CREATE; EEXIST: there is
 * one; EOPNOTSUPP: no adapter; ENOTRECOVERABLE: it was the only copy. stag_pool_error() says more.
 */
struct stag_pool_node *stag_pool_node_start(const struct stag_pool_node_attr *attr);
void stag_pool_node_stop(struct stag_pool_node *node); /* a primary hands over first, if it can */
/*
 * To the standby of this name, NULL: whoever is next; when it returns, that one is primary. EPERM: we are not; EBUSY: it is not in sync;
 * ETIMEDOUT: the coordination does not answer.
 */
int stag_pool_node_switchover(struct stag_pool_node *node, const char *to);
/*
 * Other users, from now on. Who is no user any more, or has another secret or other rights, is asked for its proof again; the others do not
 * notice. EINVAL: nothing has changed.
 */
int stag_pool_node_set_users(struct stag_pool_node *node, const struct stag_pool_user *users,
			     uint32_t num_users);

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
		reads; /* carried out; reads: those that clients could not do themselves */
	uint64_t records, record_bytes; /* sent to each standby */
	uint64_t mirrored_bytes;	/* of values that the adapter forwarded */
	uint64_t promotions, lapses, resyncs;
	uint64_t refused; /* admissions */
	uint32_t num_members;
	struct stag_pool_member members[STAG_POOL_NODES_MAX];
	char why[128];			    /* it waits, or has refused; empty: it does not */
	struct stag_histogram change_times; /* of a primary: from when one came to its answer */
	struct stag_histogram
		replication_times; /* from a record's leaving for the standbys, until all that are in sync have it */
};

int stag_pool_node_query(struct stag_pool_node *node, struct stag_pool_node_info *info,
			 size_t size);

#ifdef __cplusplus
}
#endif

#endif
