/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store.h - a file, a block device or memory as RDMA endpoints: partitions that are read and
 * written with verbs, locally and remotely.
 *
 * A store is formatted once (stag_store_format()) and has named partitions, each with a size,
 * rights, an ordering, a durability and a cache time of its own. docs/STORE-FORMAT.md describes its
 * format, with the two copies of its table.
 *
 * A program reaches a partition through a queue pair. stag_store_connect() creates one: to a store
 * of this machine without a network or a daemon, or to a store that is served (stag_store_serve(),
 * `stag store serve`) over any verbs device. Both are used alike: ibv_post_send() with
 * IBV_WR_RDMA_READ, _RDMA_WRITE, _RDMA_WRITE_WITH_IMM, _ATOMIC_*, addresses that count from 0, and
 * the key in the endpoint. A program that does not use this header connects with rdma_cm, and finds
 * address, key and length in the private data (struct stag_store_welcome).
 *
 * Local queue pairs and serving require the software adapter (`stag run`); management requires no
 * device at all.
 *
 * Threads: calls on one store are made by one thread at a time; different stores and endpoints are
 * independent. Calls return 0 or an errno value, or NULL and errno; stag_store_error() returns the
 * details. The caller's structs begin with comp_mask, which must be zero.
 */
#ifndef STAG_STORE_H
#define STAG_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <rdma/rdma_cma.h>
#include <infiniband/verbs.h>
#include <stag/histogram.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STAG_STORE_NAME_MAX	  64 /* with its terminating zero; letters, digits, ".", "_", "-" */
#define STAG_STORE_MARK		  15 /* bytes of a partition in struct stag_store_hello */
#define STAG_STORE_MAX_PARTITIONS 256
#define STAG_STORE_MAX_RIGHTS	  32 /* per partition */
#define STAG_STORE_PORT		  7174

/* ---- settings ------------------------------------------------------------ */

enum stag_store_access { STAG_STORE_NONE, STAG_STORE_READ, STAG_STORE_WRITE };

/* The kind of subject that a right applies to. */
enum stag_store_who {
	STAG_STORE_LOCAL,  /* any user of this machine */
	STAG_STORE_USER,   /* a user id */
	STAG_STORE_GROUP,  /* a group id, primary or supplementary */
	STAG_STORE_REMOTE, /* any peer */
	STAG_STORE_NET,	   /* peers of an IPv4 or IPv6 network */
	/* peers that present this secret, which crosses the network in clear text */
	STAG_STORE_TOKEN,
};

struct stag_store_right {
	uint8_t who;	/* enum stag_store_who */
	uint8_t access; /* enum stag_store_access */
	uint8_t family; /* NET: AF_INET, AF_INET6 */
	uint8_t prefix; /* NET: bits */
	uint32_t id;	/* USER, GROUP */
	union {
		uint8_t address[16]; /* NET: network order, zero after the prefix */
		uint8_t token[32];   /* TOKEN: the result of stag_store_token() for the secret */
	};
};

/*
 * Ordering guarantees that a partition's users can do without, one by one. Zero is the order of
 * verbs: as if each work request of a queue pair was executed before the next, and completed in
 * order. IBV_SEND_FENCE and barriers order in every mode: a later work request waits for all
 * earlier ones.
 */
enum stag_store_relax {
	STAG_STORE_RELAX_WRITES = 1 << 0,      /* of two writes that overlap either may win */
	STAG_STORE_RELAX_READS = 1 << 1,       /* a read may miss a write posted before it */
	STAG_STORE_RELAX_LATER = 1 << 2,       /* a read may see a write posted after it */
	STAG_STORE_RELAX_ATOMICS = 1 << 3,     /* the same for atomics, which stay atomic */
	STAG_STORE_RELAX_COMPLETIONS = 1 << 4, /* completions arrive in any order */

	STAG_STORE_ANY_PROCESSING = 0xf,
	STAG_STORE_ANY_COMPLETION = STAG_STORE_RELAX_COMPLETIONS,
};

/* The state that a completed write has reached at least. */
enum stag_store_level {
	/* every later read, by any user, sees it; a crash of the machine may undo it */
	STAG_STORE_VISIBLE,
	STAG_STORE_ACCEPTED, /* its bytes have been read from the caller's memory; nothing else */
	STAG_STORE_DURABLE,  /* on the medium, its cache flushed: survives a loss of power */
};

struct stag_store_partition {
	uint64_t comp_mask;
	uint64_t id; /* unique in this store, never reused */
	char name[STAG_STORE_NAME_MAX];
	/* in the file or device; 0 in a new partition: any place where it fits */
	uint64_t offset;
	uint64_t size;	    /* a multiple of the store's block */
	uint64_t alignment; /* of offset: a power of two; 0: the store's block */
	uint32_t relax;	    /* enum stag_store_relax, unless a user chooses otherwise */
	uint32_t level;	    /* enum stag_store_level, likewise */
	uint32_t cache_ms;  /* how long data read or written is cached in memory; 0: not cached */
	uint32_t num_rights;
	/*
	 * The first right that matches decides; if none does, the user who formatted the store may
	 * write, and others have no access. A user who may open the file itself can bypass this:
	 * the file's mode is what binds local users.
	 */
	struct stag_store_right rights[STAG_STORE_MAX_RIGHTS];
};

/*
 * Derives the token that a right stores from a secret: neither the secret nor the value that a peer
 * presents can be derived from it.
 */
int stag_store_token(const void *secret, size_t len, uint8_t token[32]);

/* ---- management ------------------------------------------------------------ */

struct stag_store;

/* Returns the text of the calling thread's last error, which names the object and the cause. */
const char *stag_store_error(void);

#define STAG_STORE_DATA_OFFSET (2ull << 20) /* partitions begin here, after the table */

struct stag_store_attr {
	uint64_t comp_mask;
	/* total size: of a new file, or the part of an existing one to use; 0: all of it */
	uint64_t size;
	uint32_t block; /* write unit: a power of two, 512 to 65536; 4096 */
	char label[STAG_STORE_NAME_MAX];
};

enum stag_store_flags {
	/* format: overwrite existing content; remove: even if it has data, or is in use */
	STAG_STORE_FORCE = 1 << 0,
	STAG_STORE_LOOK = 1 << 1,   /* open: read-only; every change is refused */
	STAG_STORE_REPAIR = 1 << 2, /* check: repair what can be repaired */
};

/*
 * Formats a file (created if necessary, accessible to its owner alone), a block device, or memory
 * ("mem:NAME", a POSIX shared memory object) as a store. attr may be NULL. Returns EEXIST if it has
 * content; stag_store_error() says which. Returns EBUSY if it is mounted, a store in use, or locked
 * by another process (flock(2)), such as a block target that serves it, even with STAG_STORE_FORCE.
 */
int stag_store_format(const char *path, const struct stag_store_attr *attr, unsigned int flags);

/*
 * Checks both copies of the table and all partitions; prints faults to out (may be NULL). Returns
 * the number of faults (after repair), or -errno. STAG_STORE_REPAIR rewrites a bad copy from the
 * good one, and does nothing if both are bad.
 */
int stag_store_check(const char *path, unsigned int flags, FILE *out);

/*
 * Opens a store for management and use. Any number of openers may change the table. A change is on
 * the medium before its call returns: in both copies, or in one if the other cannot be written
 * (copies, below). A call that fails has changed nothing, unless its error text says that the
 * outcome is unknown. After a crash the table is the old or the new one, never a mix. Without
 * permission to write the file, changes return EACCES. Returns EPROTO if it is no store, or of a
 * newer version; EBADMSG if both copies are damaged.
 */
struct stag_store *stag_store_open(const char *path, unsigned int flags);
void stag_store_close(struct stag_store *store);

struct stag_store_info {
	uint64_t comp_mask;
	uint8_t uuid[16];
	char label[STAG_STORE_NAME_MAX];
	uint64_t size, used, largest_gap;
	uint64_t present;    /* length of the file or device; less than size if truncated */
	uint64_t generation; /* number of changes of the table so far */
	uint32_t block, version, num_partitions;
	/* intact copies of the table: 2, or 1, which stag_store_check() repairs */
	uint32_t copies;
	uint32_t owner;	    /* id of the user who formatted it */
	uint32_t served_by; /* process id of the server; 0: none */
};

/*
 * These calls read the current table, including changes by other openers. They return ESTALE if the
 * path leads to another file, or to another store, than when it was opened.
 */
int stag_store_query(struct stag_store *store, struct stag_store_info *info, size_t size);

/* Iterates over the partitions by offset. Start with *index 0; returns false at the end. */
bool stag_store_next(struct stag_store *store, uint32_t *index,
		     struct stag_store_partition *partition);
int stag_store_find(struct stag_store *store, const char *name,
		    struct stag_store_partition *partition);

/*
 * Progress of a call on this store that has to write zeroes, or to search for data. Called from the calling thread, a few
 * times a second.
 */
typedef void (*stag_store_progress)(void *arg, uint64_t done, uint64_t total);
void stag_store_on_progress(struct stag_store *store, stag_store_progress fn, void *arg);

/*
 * Adds a partition, and fills in id, offset and alignment. A new partition reads as zeroes,
 * whatever was in its place. Returns EEXIST, ENOSPC, EINVAL; EBUSY if a removed partition in its
 * place still has users.
 */
int stag_store_add(struct stag_store *store, struct stag_store_partition *partition);

enum stag_store_change {
	STAG_STORE_CHANGE_RIGHTS = 1 << 0,
	STAG_STORE_CHANGE_RELAX = 1 << 1,
	STAG_STORE_CHANGE_LEVEL = 1 << 2,
	STAG_STORE_CHANGE_CACHE = 1 << 3,
	STAG_STORE_CHANGE_NAME = 1 << 4,
	STAG_STORE_CHANGE_SIZE =
		1 << 5, /* grows into the gap after it; ENOSPC. Never shrinks: EINVAL */
};

/*
 * Changes the partition with partition->id. Endpoints and servers that have it open, in any
 * process, apply the new rights, level, ordering and cache time within a second, without
 * reconnecting.
 */
int stag_store_change(struct stag_store *store, const struct stag_store_partition *partition,
		      unsigned int what);

/*
 * Removes a partition. A file returns its space to the file system; elsewhere the bytes stay until
 * the next partition in that place is added. Returns EBUSY if it is in use, and ENOTEMPTY if it has
 * been written (any byte is not zero), unless STAG_STORE_FORCE is set. With it, the users are refused
 * within a second, and the place is not reused before the last of them has closed the partition.
 */
int stag_store_remove(struct stag_store *store, const char *name, unsigned int flags);

/*
 * Grows the store to the present size of the file or device (size 0), or grows a file to size
 * bytes. Never shrinks: EINVAL.
 */
int stag_store_grow(struct stag_store *store, uint64_t size);

/* ---- endpoints ------------------------------------------------------------- */

struct stag_store_endpoint {
	struct rdma_cm_id *id; /* of a remote endpoint; NULL: local */
	struct ibv_qp *qp;
	uint32_t rkey;
	uint64_t base; /* address of the first byte */
	uint64_t size;
	/*
	 * As of the connect; for a local endpoint stagdv_query_store_qp() returns the current
	 * values:
	 */
	uint32_t relax, level;
	uint32_t access; /* enum stag_store_access */
	uint32_t block;
};

struct stag_store_connect_attr {
	uint64_t comp_mask;
	struct ibv_qp_init_attr
		qp; /* completion queues may be NULL: they are created, and destroyed with the endpoint */
	struct ibv_pd *pd; /* NULL: a default protection domain */
	const char *token; /* a secret for STAG_STORE_TOKEN; may be NULL */
	uint32_t relax;	   /* local: in addition to the partition's */
	uint32_t level;	   /* local: instead of the partition's, with STAG_STORE_HAS_LEVEL */
	uint32_t flags;	   /* enum stag_store_connect_flags */
	int timeout_ms;	   /* 2000 */
};

enum stag_store_connect_flags {
	STAG_STORE_HAS_LEVEL = 1 << 0,
	/*
	 * Remote: TLS 1.3 by a key that both sides derive from the token, which is required; the
	 * server needs it, too (tls). Needs the software adapter.
	 */
	STAG_STORE_TLS = 1 << 1,
};

/*
 * Connects to a partition. where: "PATH:PARTITION" (a path contains a "/", or begins with "mem:"),
 * or "HOST[:PORT]/PARTITION" with an address or a name; an IPv6 address in brackets. Returns NULL
 * and errno: EACCES without a right to it; ENOENT; ECONNREFUSED; ETIMEDOUT.
 */
struct stag_store_endpoint *stag_store_connect(const char *where,
					       const struct stag_store_connect_attr *attr);
void stag_store_disconnect(struct stag_store_endpoint *endpoint);

/* Operations on a store, and how many of them the cache served. */
struct stag_store_counters {
	uint64_t comp_mask;
	uint64_t reads, writes, flushes, atomics; /* operations */
	uint64_t read_bytes, written_bytes;
	uint64_t errors;
	uint64_t cache_hits, cache_misses; /* reads served completely from the cache, or not */
	uint64_t cache_bytes;		   /* bytes cached now */
	/*
	 * Times on the medium, from request to completion: a sample of reads and writes, all
	 * flushes.
	 */
	struct stag_histogram read_times, write_times, flush_times;
	/* Of a server: connections now; requests to connect that were refused since it started; */
	uint64_t connections, refused;
	uint64_t evicted; /* and connections that it ended because the client took no answers */
};

/*
 * Queries the counters of all local endpoints that this process has in the store: they share a
 * medium. Fills at most size bytes of the caller's struct. Returns EOPNOTSUPP for a remote
 * endpoint: its server has the counters (stag_store_query_server()).
 */
int stag_store_query_endpoint(const struct stag_store_endpoint *endpoint,
			      struct stag_store_counters *counters, size_t size);

/*
 * Private data of a connection to a server: the request has a struct stag_store_hello, the reply a struct
 * stag_store_welcome in network order. A request has 56 bytes because InfiniBand and RoCE carry no more.
 */
struct stag_store_hello {
	char magic[8]; /* "stagstor" */
	uint8_t version;
	uint8_t partition[STAG_STORE_MARK]; /* the first bytes of the SHA-256 of its name */
	uint8_t token[32];		    /* SHA-256 of the secret, or zeroes */
};

struct stag_store_welcome {
	char magic[8];
	uint8_t version, access, level, reserved;
	uint32_t rkey;
	uint64_t base, size;
	uint32_t relax, block;
};

/* ---- serving --------------------------------------------------------------- */

struct stag_store_server;

enum stag_store_server_flags {
	STAG_STORE_ANY_PORT = 1 << 0, /* any free port; stag_store_server_port() returns it */
};

struct stag_store_server_attr {
	uint64_t comp_mask;
	const char *address;		     /* address to listen on; NULL: all */
	uint16_t port;			     /* STAG_STORE_PORT */
	uint32_t flags;			     /* enum stag_store_server_flags */
	uint32_t max_connections;	     /* 1024 */
	uint64_t staging_bytes, cache_bytes; /* limits of its memory; 64 MiB each */
	/*
	 * A client that takes no answers for this time is disconnected; 30,000 by default. With
	 * STAG_STORE_SERVER_CLIENT_TIMEOUT in comp_mask.
	 */
	uint32_t client_timeout_ms;
	/*
	 * enum stagdv_tls_mode: whether clients may, or must, encrypt their connections by their tokens
	 * (STAG_STORE_TLS). With STAG_STORE_SERVER_TLS in comp_mask; otherwise the environment decides.
	 */
	uint32_t tls;
};

enum stag_store_server_mask {
	STAG_STORE_SERVER_CLIENT_TIMEOUT = 1 << 0,
	STAG_STORE_SERVER_TLS = 1 << 1,
};

/*
 * Serves all partitions, from threads of its own. Returns EBUSY if another process serves this
 * store.
 */
struct stag_store_server *stag_store_serve(struct stag_store *store,
					   const struct stag_store_server_attr *attr);
uint16_t stag_store_server_port(const struct stag_store_server *server);
void stag_store_server_stop(struct stag_store_server *server);

/* Queries the counters of all its connections since the start. Callable from any thread. */
int stag_store_query_server(struct stag_store_server *server, struct stag_store_counters *counters,
			    size_t size);

#ifdef __cplusplus
}
#endif

#endif
