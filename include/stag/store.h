/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store.h - a file, a block device or memory as RDMA endpoints: partitions that are
 * read and written with verbs, near and far.
 *
 * A store is initialised once (stag_store_format()) and has named partitions, each with a size, rights,
 * an order, a durability and a cache time of its own. The two copies of its table, and all
 * else about its format, are in docs/STORE-FORMAT.md.
 *
 * A program reaches a partition through a queue pair. stag_store_connect() makes one: to a store of this
 * machine without a network or a daemon, or to one that somebody serves (stag_store_serve(), `stag store
 * serve`) over any verbs device. From then on both are the same: ibv_post_send() with IBV_WR_RDMA_READ,
 * _RDMA_WRITE, _RDMA_WRITE_WITH_IMM, _ATOMIC_*, addresses that count from 0, and the key in the endpoint.
 * A program that knows nothing of this header connects with rdma_cm, and finds address, key and
 * length in the private data (struct stag_store_welcome).
 *
 * Local queue pairs and serving need the software adapter (`stag run`); management needs no
 * device at all.
 *
 * Threads: calls on one store are made by one thread at a time; different stores and endpoints do not know
 * of each other. Calls return 0 or an errno value, or NULL and errno; stag_store_error() says
 * more. Structs of the caller's begin with comp_mask, which is zero.
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

#define STAG_STORE_NAME_MAX	  64 /* with its final zero; letters, digits, ".", "_", "-" */
#define STAG_STORE_MAX_PARTITIONS 256
#define STAG_STORE_MAX_RIGHTS	  32 /* of a partition */
#define STAG_STORE_PORT		  7174

/* ---- settings ------------------------------------------------------------ */

enum stag_store_access { STAG_STORE_NONE, STAG_STORE_READ, STAG_STORE_WRITE };

/* Whom a right is for. */
enum stag_store_who {
	STAG_STORE_LOCAL,  /* any user of this machine */
	STAG_STORE_USER,   /* a user id */
	STAG_STORE_GROUP,  /* a group id, of the process's groups */
	STAG_STORE_REMOTE, /* any peer */
	STAG_STORE_NET,	   /* peers of an IPv4 or IPv6 network */
	STAG_STORE_TOKEN,  /* peers that show this secret; it crosses the network as it is */
};

struct stag_store_right {
	uint8_t who;	/* enum stag_store_who */
	uint8_t access; /* enum stag_store_access */
	uint8_t family; /* NET: AF_INET, AF_INET6 */
	uint8_t prefix; /* NET: bits */
	uint32_t id;	/* USER, GROUP */
	union {
		uint8_t address[16]; /* NET: network order, zero behind the prefix */
		uint8_t token[32];   /* TOKEN: what stag_store_token() makes of the secret */
	};
};

/*
 * What a partition's users can do without, one by one. All zero is the order of verbs: as if each
 * work request of a queue pair was carried out before the next, and completed in turn.
 * IBV_SEND_FENCE and barriers order in every mode: what is posted behind waits for all
 * that was posted before.
 */
enum stag_store_relax {
	STAG_STORE_RELAX_WRITES = 1 << 0,      /* of two writes that overlap either may win */
	STAG_STORE_RELAX_READS = 1 << 1,       /* a read may miss a write posted before it */
	STAG_STORE_RELAX_LATER = 1 << 2,       /* a read may see a write posted behind it */
	STAG_STORE_RELAX_ATOMICS = 1 << 3,     /* the same for atomics, which stay atomic */
	STAG_STORE_RELAX_COMPLETIONS = 1 << 4, /* completions come as they are ready */

	STAG_STORE_ANY_PROCESSING = 0xf,
	STAG_STORE_ANY_COMPLETION = STAG_STORE_RELAX_COMPLETIONS,
};

/* What a completed write has reached at least. */
enum stag_store_level {
	STAG_STORE_VISIBLE, /* every later read, of whomever, sees it; a crash of the machine may undo it */
	STAG_STORE_ACCEPTED, /* its bytes have been taken from the caller's memory; nothing else */
	STAG_STORE_DURABLE,  /* on the medium, its cache flushed: it outlives power */
};

struct stag_store_partition {
	uint64_t comp_mask;
	uint64_t id; /* unique in this store, for ever */
	char name[STAG_STORE_NAME_MAX];
	uint64_t offset;    /* in the file or device; of a new one 0: wherever it fits */
	uint64_t size;	    /* a multiple of the store's block */
	uint64_t alignment; /* of offset: a power of two; 0: the store's block */
	uint32_t relax;	    /* enum stag_store_relax, for those who do not say otherwise */
	uint32_t level;	    /* enum stag_store_level, likewise */
	uint32_t cache_ms;  /* how long what was read or written is kept in memory; 0: not at all */
	uint32_t num_rights;
	/*
	 * The first that fits decides; if none does, who formatted the store may write, others nothing. Whoever
	 * may open the file itself can go around this: its mode is what binds local users.
	 */
	struct stag_store_right rights[STAG_STORE_MAX_RIGHTS];
};

/* What a right keeps of a secret: neither the secret nor what a peer shows can be had from it. */
int stag_store_token(const void *secret, size_t len, uint8_t token[32]);

/* ---- management ------------------------------------------------------------ */

struct stag_store;

/* The calling thread's last complaint, naming the object and the cause. */
const char *stag_store_error(void);

#define STAG_STORE_DATA_OFFSET (2ull << 20) /* partitions begin here, behind the table */

struct stag_store_attr {
	uint64_t comp_mask;
	uint64_t size;	/* of the whole: of a new file, or to use of what is there; 0: all of it */
	uint32_t block; /* what is written at once: a power of two, 512 to 65536; 4096 */
	char label[STAG_STORE_NAME_MAX];
};

enum stag_store_flags {
	STAG_STORE_FORCE = 1 << 0,  /* format: over whatever is there; remove: although in use */
	STAG_STORE_LOOK = 1 << 1,   /* open: to look only; every change is refused */
	STAG_STORE_REPAIR = 1 << 2, /* check: mend what can be */
};

/*
 * Makes a store of a file (created if need be, for its owner alone), a block device, or memory ("mem:NAME", a POSIX
 * shared memory object). attr may be NULL. EEXIST: it holds something; stag_store_error() says what. EBUSY:
 * it is mounted, or a store in use, which STAG_STORE_FORCE does not help against.
 */
int stag_store_format(const char *path, const struct stag_store_attr *attr, unsigned int flags);

/*
 * Looks at both copies of the table and at all partitions; tells out (may be NULL). The number of faults (that are
 * left), or -errno. STAG_STORE_REPAIR writes a bad copy anew from the good one, and nothing where there is none.
 */
int stag_store_check(const char *path, unsigned int flags, FILE *out);

/*
 * For management, and for use. The table may be changed by any number of openers. A change is on the medium
 * before its call returns: in both copies, or in one where the other cannot be written (copies, below). A
 * call that fails has changed nothing, unless its error says that nobody knows. After a crash there is
 * the table of before or after, never a mix. Without the permission to write the file, changes answer
 * EACCES. EPROTO: no store, or a newer one. EBADMSG: both copies are damaged.
 */
struct stag_store *stag_store_open(const char *path, unsigned int flags);
void stag_store_close(struct stag_store *store);

struct stag_store_info {
	uint64_t comp_mask;
	uint8_t uuid[16];
	char label[STAG_STORE_NAME_MAX];
	uint64_t size, used, largest_gap;
	uint64_t present;    /* length of the file or device; less than size: truncated */
	uint64_t generation; /* counts changes of the table */
	uint32_t block, version, num_partitions;
	uint32_t copies;    /* good ones of the table: 2, or 1, and stag_store_check() mends it */
	uint32_t owner;	    /* user id who formatted it */
	uint32_t served_by; /* process id; 0: nobody */
};

/*
 * All of these go by the table as it is now, whoever changed it. ESTALE: the path leads to another file than when it
 * was opened, or to another store.
 */
int stag_store_query(struct stag_store *store, struct stag_store_info *info, size_t size);

/* Partitions by their place. false: no more. Start with *index 0. */
bool stag_store_next(struct stag_store *store, uint32_t *index,
		     struct stag_store_partition *partition);
int stag_store_find(struct stag_store *store, const char *name,
		    struct stag_store_partition *partition);

/* How far a call on this store is that has to write zeroes. From the calling thread, some times a second. */
typedef void (*stag_store_progress)(void *arg, uint64_t done, uint64_t total);
void stag_store_on_progress(struct stag_store *store, stag_store_progress fn, void *arg);

/*
 * EEXIST, ENOSPC, EINVAL; EBUSY: somebody still uses what was there. Fills id, offset and alignment. A new partition
 * reads as zeroes, whatever was in its place.
 */
int stag_store_add(struct stag_store *store, struct stag_store_partition *partition);

enum stag_store_change {
	STAG_STORE_CHANGE_RIGHTS = 1 << 0,
	STAG_STORE_CHANGE_RELAX = 1 << 1,
	STAG_STORE_CHANGE_LEVEL = 1 << 2,
	STAG_STORE_CHANGE_CACHE = 1 << 3,
	STAG_STORE_CHANGE_NAME = 1 << 4,
	STAG_STORE_CHANGE_SIZE =
		1 << 5, /* grows into the gap behind it; ENOSPC. Never shrinks: EINVAL */
};

/*
 * Changes the partition with partition->id. Whoever has it open (endpoints, servers, in whatever process) goes by the new
 * rights, level, order and cache time within a second, without reconnecting.
 */
int stag_store_change(struct stag_store *store, const struct stag_store_partition *partition,
		      unsigned int what);

/*
 * Gone. A file gives its space back; elsewhere the bytes stay until the next partition there is added. EBUSY:
 * in use, without STAG_STORE_FORCE. With it, its users are refused within a second, and nobody gets its
 * place before the last of them has let go.
 */
int stag_store_remove(struct stag_store *store, const char *name, unsigned int flags);

/* The file or device has grown (size 0: take all of it), or is to grow (a file) to size bytes. Never shrinks: EINVAL. */
int stag_store_grow(struct stag_store *store, uint64_t size);

/* ---- endpoints ------------------------------------------------------------- */

struct stag_store_endpoint {
	struct rdma_cm_id *id; /* of a remote one; NULL: local */
	struct ibv_qp *qp;
	uint32_t rkey;
	uint64_t base; /* the address of the first byte */
	uint64_t size;
	/* When it was connected; near, stagdv_query_store_qp() says what holds now: */
	uint32_t relax, level;
	uint32_t access; /* enum stag_store_access */
	uint32_t block;
};

struct stag_store_connect_attr {
	uint64_t comp_mask;
	struct ibv_qp_init_attr
		qp;	   /* its completion queues may be NULL: made for it, and freed with it */
	struct ibv_pd *pd; /* NULL: a default one */
	const char *token; /* a secret for STAG_STORE_TOKEN; may be NULL */
	uint32_t relax;	   /* local: in addition to the partition's */
	uint32_t level;	   /* local: instead of the partition's, with STAG_STORE_HAS_LEVEL */
	uint32_t flags;	   /* enum stag_store_connect_flags */
	int timeout_ms;	   /* 2000 */
};

enum stag_store_connect_flags {
	STAG_STORE_HAS_LEVEL = 1 << 0,
};

/*
 * where: "PATH:PARTITION" (a path has a "/" in it, or begins with "mem:"), or "HOST[:PORT]/PARTITION" with an address or
 * a name; an IPv6 address in brackets. EACCES: no right to it; ENOENT; ECONNREFUSED; ETIMEDOUT.
 */
struct stag_store_endpoint *stag_store_connect(const char *where,
					       const struct stag_store_connect_attr *attr);
void stag_store_disconnect(struct stag_store_endpoint *endpoint);

/* What was asked of a store, and what of it the cache had. */
struct stag_store_counters {
	uint64_t comp_mask;
	uint64_t reads, writes, flushes, atomics; /* operations */
	uint64_t read_bytes, written_bytes;
	uint64_t errors;
	uint64_t cache_hits, cache_misses; /* reads that it had all of, or not */
	uint64_t cache_bytes;		   /* that it holds now */
	/* On the medium, from when they were asked for to their end; of reads and writes some, of flushes all. */
	struct stag_histogram read_times, write_times, flush_times;
};

/*
 * Of all endpoints that this process has in the store, near ones: they share a medium. As much of it as size has room for.
 * EOPNOTSUPP: it is far, and its server counts (stag_store_query_server()).
 */
int stag_store_query_endpoint(const struct stag_store_endpoint *endpoint,
			      struct stag_store_counters *counters, size_t size);

/* What a server's rdma_accept() carries; all in network order. The request: a struct stag_store_hello. */
struct stag_store_hello {
	char magic[8]; /* "stagstor" */
	uint8_t version, reserved[7];
	char partition[STAG_STORE_NAME_MAX];
	uint8_t token[32]; /* the secret's SHA-256, or zeroes */
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
	STAG_STORE_ANY_PORT = 1 << 0, /* a free one; stag_store_server_port() says which */
};

struct stag_store_server_attr {
	uint64_t comp_mask;
	const char *address;		     /* to listen on; NULL: all */
	uint16_t port;			     /* STAG_STORE_PORT */
	uint32_t flags;			     /* enum stag_store_server_flags */
	uint32_t max_connections;	     /* 1024 */
	uint64_t staging_bytes, cache_bytes; /* bounds of its memory; 64 MiB each */
};

/* Serves all partitions, from threads of its own. EBUSY: somebody else serves this store. */
struct stag_store_server *stag_store_serve(struct stag_store *store,
					   const struct stag_store_server_attr *attr);
uint16_t stag_store_server_port(const struct stag_store_server *server);
void stag_store_server_stop(struct stag_store_server *server);

/* Of all its connections, since it was started. From any thread. */
int stag_store_query_server(struct stag_store_server *server, struct stag_store_counters *counters,
			    size_t size);

#ifdef __cplusplus
}
#endif

#endif
