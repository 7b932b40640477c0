/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stagdv.h - what verbs lacks: direct verbs of the stag software adapter.
 *
 * Every call works on objects of a stag device only. On an object of any other
 * device it answers EOPNOTSUPP unless its comment names a fallback. Attribute
 * structures begin with a comp_mask, and queries take the caller's size, so
 * that programs built against an older header go on working.
 */
#ifndef STAG_STAGDV_H
#define STAG_STAGDV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>
#include <stag/histogram.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Is this device the software adapter? Works on any device. */
bool stagdv_is_supported(struct ibv_device *device);

enum stagdv_ability {
	STAGDV_ABILITY_IMM = 1 << 0,	   /* immediate data (RFC 7306) to peers that agreed */
	STAGDV_ABILITY_ATOMIC = 1 << 1,	   /* atomics (RFC 7306) to peers that agreed */
	STAGDV_ABILITY_SEND_IMM = 1 << 2,  /* send with immediate to stag peers */
	STAGDV_ABILITY_MW = 1 << 3,	   /* memory windows, type 1 and 2 */
	STAGDV_ABILITY_FAST_REG = 1 << 4,  /* stagdv_alloc_fast_mr(), stagdv_post_fast_reg() */
	STAGDV_ABILITY_CRC_HW = 1 << 5,	   /* CRC32C by processor instructions */
	STAGDV_ABILITY_TRACE = 1 << 6,	   /* this process writes a trace (STAG_TRACE) */
	STAGDV_ABILITY_GUARD = 1 << 7,	   /* stagdv_reg_guarded_mr() */
	STAGDV_ABILITY_STORE = 1 << 8,	   /* stagdv_reg_store_mr(), stagdv_connect_store() */
	STAGDV_ABILITY_FLUSH = 1 << 9,	   /* stagdv_wr_barrier() to peers that agreed */
	STAGDV_ABILITY_ONE_SHOT = 1 << 10, /* stagdv_post_send_advertise(), _close() on the wire */
	STAGDV_ABILITY_KEYED = 1 << 11,	   /* stagdv_reg_mr_keyed(), stagdv_choose_key() */
	STAGDV_ABILITY_LEASE = 1 << 12,	   /* stagdv_set_mr_lease() */
	STAGDV_ABILITY_MIRROR = 1 << 13,   /* stagdv_mirror_mr() */
};

struct stagdv_device_attr {
	uint64_t comp_mask;
	uint64_t abilities; /* enum stagdv_ability */
	uint32_t version;   /* of libstag-verbs: major << 16 | minor << 8 | patch */
	uint32_t max_ulpdu; /* the largest DDP segment that is sent */
	uint8_t crc;	    /* 1: asked of every peer, 0: only where the peer asks */
	uint8_t markers;    /* 1: asked of every peer */
	uint8_t extensions; /* 1: offered to every peer */
	uint8_t reserved[5];
};

/* Fills at most size bytes of attr. 0, EINVAL, EOPNOTSUPP. */
int stagdv_query_device(struct ibv_context *context, struct stagdv_device_attr *attr, size_t size);

/* What passed, since the queue pair was created or the library was loaded. */
struct stagdv_counters {
	uint64_t comp_mask;
	uint64_t tx_msgs, rx_msgs;	 /* RDMAP messages, requests and responses */
	uint64_t tx_bytes, rx_bytes;	 /* on the stream, headers included */
	uint64_t tx_payload, rx_payload; /* payload alone */
	uint64_t tx_fpdus, rx_fpdus;
	uint64_t tx_calls, rx_calls; /* system calls that send and receive */
	uint64_t tx_again, rx_again; /* of these, those that found the socket full or empty */
	uint64_t crc_errors;
	uint64_t terminates_sent, terminates_received;
	uint64_t engine_wakeups;		 /* device only: times the engine thread woke */
	uint64_t connects, accepts, disconnects; /* device only */
	uint64_t posts;		    /* work requests that were posted to the send queue */
	uint64_t receives;	    /* and to the receive queue; device: to shared ones, too */
	uint64_t completions;	    /* work completions that were delivered, of both */
	uint64_t registrations;	    /* device only: keys given to memory, by whatever call */
	uint64_t advertised;	    /* STags made by stagdv_post_send_advertise() */
	uint64_t closed, withdrawn; /* of these: by the peer; by stagdv_withdraw() */
	uint64_t orphaned;	    /* of these: by the end of their connection */
	uint64_t late;		    /* accesses to such an STag after that, all refused */
	uint64_t lease_refusals;    /* accesses of the peer's to a region whose lease was over */
	uint64_t forwards;	    /* writes of others that it sent on (stagdv_mirror_mr()), */
	uint64_t forwarded_bytes;   /* as messages of their own; and their payload */
	uint64_t mirror_stalls; /* times that it stopped reading its peer until mirrors went on */
};

/* Fills at most size bytes. 0, EINVAL, EOPNOTSUPP. */
int stagdv_query_counters(struct ibv_context *context, struct stagdv_counters *c, size_t size);
int stagdv_query_qp_counters(struct ibv_qp *qp, struct stagdv_counters *c, size_t size);

/*
 * What this queue pair's connection agreed on; ENOTCONN before it is connected. On a real adapter: one_shot alone, the
 * rest is zero.
 */
struct stagdv_qp_attr {
	uint64_t comp_mask;
	uint64_t
		abilities; /* what the peer agreed to: _IMM, _ATOMIC, _SEND_IMM, _FLUSH, _ONE_SHOT */
	uint32_t mulpdu;
	uint16_t ird, ord;
	uint8_t crc;
	uint8_t markers_tx, markers_rx;
	uint8_t initiator;
	uint8_t mpa_rev;
	uint8_t stag_peer; /* the peer speaks the extensions */
	uint8_t one_shot;  /* enum stagdv_one_shot */
	uint8_t reserved[1];
};

int stagdv_query_qp(struct ibv_qp *qp, struct stagdv_qp_attr *attr, size_t size);

/*
 * Fast registration: a key without memory, given memory later by a work
 * request in the send queue's order, and taken back by IBV_WR_LOCAL_INV or by
 * the peer's send with invalidate. On a real adapter: EOPNOTSUPP (user-space
 * verbs has no such request there; use a type-2 memory window).
 */
struct ibv_mr *stagdv_alloc_fast_mr(struct ibv_pd *pd, uint32_t max_sge);

struct stagdv_fast_reg {
	uint64_t comp_mask;
	uint64_t wr_id;
	struct ibv_mr *mr;	 /* from stagdv_alloc_fast_mr(), not valid at present */
	struct ibv_sge *sg_list; /* memory of regions of the same protection domain */
	int num_sge;	     /* at most the queue pair's max_send_sge and the region's max_sge */
	unsigned int access; /* enum ibv_access_flags */
	uint64_t iova;	     /* address of the first byte to the peer */
	uint32_t key;	     /* the new key: mr->rkey with any other low 8 bits */
	unsigned int send_flags; /* IBV_SEND_SIGNALED, IBV_SEND_FENCE */
};

/* Posts it; from its completion on mr->lkey and mr->rkey are wr->key. Errors as ibv_post_send(). */
int stagdv_post_fast_reg(struct ibv_qp *qp, struct stagdv_fast_reg *wr);

/*
 * A region that closes when a word changes: by this process or another, at any
 * time, without a call. Before each access to its memory, a peer's or the local side's, of
 * any kind and through windows too, the adapter
 *   1. puts hazard into a cell of hazards[] that is zero,
 *   2. compares *word with expected: if they differ, the access is refused as one with an
 *      invalid key is,
 *   3. accesses the memory, and sets the cell to zero.
 * So whoever changes the word, and then finds no cell with that hazard, has the memory to himself:
 * no access is under way, and none will come. The adapter waits for no one but, where all cells are
 * taken, for one of its own accesses to end. An access is one copy or one system call that does not
 * block; a long message is many. On storage (stagdv_connect_store()) it lasts as long as the
 * medium takes.
 *
 * Both sides access word and cells atomically, sequentially consistent. They stay mapped until the
 * region is deregistered, and the cells are for the adapter of this process alone to set.
 */
struct stagdv_guard {
	uint64_t comp_mask;   /* zero */
	const uint64_t *word; /* aligned to 8 bytes, as hazards is */
	uint64_t expected;
	uint64_t *hazards; /* NULL: compare only */
	uint32_t n_hazards;
	uint64_t hazard; /* not zero */
};

/*
 * As ibv_reg_mr(); guard is copied. ibv_dereg_mr() frees it. It cannot be registered again, nor be
 * a part of a fast registration. On a real adapter: EOPNOTSUPP; use ibv_reg_mr() there, whose keys stay good
 * until it is deregistered.
 */
struct ibv_mr *stagdv_reg_guarded_mr(struct ibv_pd *pd, void *addr, size_t length,
				     unsigned int access, const struct stagdv_guard *guard);

/* ---- regions that outlive a machine --------------------------------------- */

/*
 * As ibv_reg_mr(), but under a key that the caller chose: that by which peers know the same memory on another machine.
 * All 32 bits are the caller's, who makes them hard to guess, or has stagdv_choose_key() do it; the upper 24 are not
 * zero, and no other key of this process has them (EEXIST). After ibv_dereg_mr() the same key may be chosen again.
 * On a real adapter: EOPNOTSUPP (it chooses by itself; tell peers a key of each machine).
 */
struct ibv_mr *stagdv_reg_mr_keyed(struct ibv_pd *pd, void *addr, size_t length,
				   unsigned int access, uint32_t rkey);

/* A key for it that cannot be guessed from others, and that is free in this process now. 0, EOPNOTSUPP. */
int stagdv_choose_key(struct ibv_context *context, uint32_t *rkey);

/*
 * From until_ns (CLOCK_BOOTTIME) on peers are refused at this region, windows bound to it included, whatever they
 * want, as if they had no right to it. 0: no lease, which is how a region begins; 1: it is over. One store, which waits
 * for nobody: meant to be called often. What this side does with the memory has no lease, nor have STags of other
 * calls over the same memory (fast registration, stagdv_post_send_advertise(), another region).
 *
 * A read is answered with bytes that were in the memory within the lease, an atomic when it was carried out within it
 * (one that was not may have been carried out, but is not answered), and what comes behind a write is looked at
 * only if all of the write was placed within it: the adapter looks at the clock before it touches the memory and again
 * behind that, for each segment. So neither a process that stands still for a minute between two instructions nor an answer
 * that waits in a queue makes an old value look like a new one. To end peers' access before its time, and to know that it
 * has ended, there are ibv_modify_qp() and ibv_dereg_mr(): when they return nothing is under way.
 *
 * EINVAL: it is a fast region or on storage. On a real adapter: EOPNOTSUPP.
 */
int stagdv_set_mr_lease(struct ibv_mr *mr, uint64_t until_ns);

/*
 * A region with a copy at another machine: what peers write to it, on whatever queue pair and through windows too, the adapter sends
 * on to the copy as RDMA Writes of another queue pair, before the program hears of anything that the writer did afterwards.
 * What this side writes, atomics and receives are not forwarded, nor is what comes on the mirror's own queue pair.
 *
 * In order: what the program posts on the mirror's queue pair after it has seen a message of the writer's goes
 * behind all that was forwarded of that writer until then. So one read behind it confirms both. What is forwarded
 * is what the region has when it leaves: where two write to the same bytes, what was placed last arrives last. A segment
 * goes on when it has come whole; what is only half here when a connection ends is not forwarded.
 *
 * Where the mirror's queue pair has no room the writer's queue pair stops reading, and no other. No ring of mirrors: two
 * regions that mirror each other would never come to rest.
 */
enum stagdv_mirror_flags {
	/* What stands behind a write waits until the copy's side has confirmed it (by a read behind it). */
	STAGDV_MIRROR_CONFIRM = 1 << 0,
	/* When the mirror has ended the region's writers are: each at the end of its next write. */
	STAGDV_MIRROR_STRICT = 1 << 1,
};

struct stagdv_mirror {
	uint64_t comp_mask;
	struct ibv_qp *qp;    /* connected, of any protection domain of this process */
	uint64_t remote_addr; /* of the copy's first byte, */
	uint32_t rkey;	      /* with the right to write there */
	unsigned int flags;   /* enum stagdv_mirror_flags */
};

/*
 * From its return on; several a region, one for each queue pair. It ends when the connection of its queue pair does, in whatever
 * way: without STAGDV_MIRROR_STRICT writers go on without it. The program hears of that as of any end of a
 * connection, and by IBV_EVENT_QP_FATAL also where the peer closed it in good order. Until stagdv_unmirror_mr(), or
 * the end of all its mirrors, ibv_dereg_mr() answers EBUSY; the region cannot be registered again meanwhile.
 *
 * EINVAL (a fast or guarded region, or one on storage; STAGDV_MIRROR_CONFIRM where there are no reads), ENOTCONN, ENOMEM,
 * EEXIST (this queue pair mirrors it already). On a real adapter: EOPNOTSUPP; the program forwards there.
 */
int stagdv_mirror_mr(struct ibv_mr *mr, const struct stagdv_mirror *mirror);

/*
 * What comes from now on is not forwarded; what came before still is, unless its region is deregistered. 0; ENOENT: there is no
 * such mirror; ENOTCONN: it had ended, and is forgotten now.
 */
int stagdv_unmirror_mr(struct ibv_mr *mr, struct ibv_qp *qp);

/* ---- storage ------------------------------------------------------------ */

/*
 * Regions whose bytes are in a file or on a block device. A peer reaches one with plain reads, writes and
 * atomics, as it reaches memory: a standard peer notices nothing but the time it takes. A queue pair
 * of this process reaches it without a network (stagdv_connect_store()).
 *
 * The adapter moves the bytes with io_uring: between the medium and the caller's memory directly where both are
 * aligned, through memory of its own, of which there is a bound, otherwise. Where that is used up a
 * peer's connection pauses. On a real adapter all of this answers EOPNOTSUPP.
 */
struct stagdv_medium;

enum stagdv_medium_flags {
	STAGDV_MEDIUM_BUFFERED = 1 << 0, /* through the page cache, although O_DIRECT works there */
	STAGDV_MEDIUM_VOLATILE = 1 << 1, /* memory: nothing outlives power, so nothing is flushed */
	STAGDV_MEDIUM_SHARED = 1 << 2,	 /* other processes have it open too, each with this flag */
};

/* Zero in any field but fd: the default. */
struct stagdv_medium_attr {
	uint64_t comp_mask;
	int fd; /* a file, block device or shared memory object, open for what is wanted; duplicated */
	unsigned int flags;	/* enum stagdv_medium_flags */
	uint64_t staging_bytes; /* memory for what is under way; 16 MiB */
	uint64_t cache_bytes;	/* memory for what is kept (cache_ms); 64 MiB */
	uint32_t depth;		/* operations under way; 256 */
	uint32_t block;		/* unit of O_DIRECT: 0: as the medium says */
};

/* EINVAL, ENOMEM, ENOSYS (no io_uring: the message in the log says why). */
struct stagdv_medium *stagdv_open_medium(struct ibv_context *context,
					 const struct stagdv_medium_attr *attr);
int stagdv_close_medium(struct stagdv_medium *medium); /* EBUSY while regions use it */

struct stagdv_medium_counters {
	uint64_t comp_mask;
	uint64_t reads, writes, flushes, atomics; /* operations on the medium */
	uint64_t read_bytes, written_bytes;
	uint64_t copied_bytes;	 /* through memory of the adapter's */
	uint64_t submits;	 /* system calls */
	uint64_t errors, pauses; /* pauses: a connection waited for staging memory */
	uint64_t cache_hits, cache_misses, cache_bytes;
	/* From when they were asked for to their end; of reads and writes some, of flushes all. */
	struct stag_histogram read_times, write_times, flush_times;
};

int stagdv_query_medium(struct stagdv_medium *medium, struct stagdv_medium_counters *c,
			size_t size);

/*
 * What is given up of the order of verbs. Nothing: to who uses this queue pair, as if each work request was carried out
 * before the next one, and completed in turn (those that share no byte, and reads, are under way at once; others may see
 * them in any order). IBV_SEND_FENCE (here for every opcode: waits for all before, and those behind it until it has
 * begun) and barriers hold in every mode.
 */
enum stagdv_relax {
	STAGDV_RELAX_WRITES = 1 << 0,	   /* of two writes that overlap either may win */
	STAGDV_RELAX_READS = 1 << 1,	   /* a read may miss a write posted before it */
	STAGDV_RELAX_LATER = 1 << 2,	   /* a read may see a write posted behind it */
	STAGDV_RELAX_ATOMICS = 1 << 3,	   /* the same for atomics, which stay atomic */
	STAGDV_RELAX_COMPLETIONS = 1 << 4, /* completions come as they are ready */
};

/* What a completed write, or an answered read behind it, has reached at least. */
enum stagdv_level {
	STAGDV_LEVEL_VISIBLE,  /* every later read sees it, whoever's */
	STAGDV_LEVEL_ACCEPTED, /* the caller's memory is free again; nothing else */
	STAGDV_LEVEL_DURABLE,  /* flushed: it outlives power */
};

/* Of one work request, in ibv_send_wr.send_flags: instead of the queue pair's level. */
#define STAGDV_SEND_ACCEPTED (1u << 24)
#define STAGDV_SEND_VISIBLE  (1u << 25)
#define STAGDV_SEND_DURABLE  (1u << 26)

struct stagdv_store_attr {
	uint64_t comp_mask;
	uint64_t offset, length; /* in the medium; offset a multiple of its block */
	unsigned int access;	 /* enum ibv_access_flags: remote read, write, atomic */
	uint32_t relax;		 /* enum stagdv_relax, for what peers send */
	uint32_t level;		 /* enum stagdv_level, likewise */
	uint32_t cache_ms;	 /* how long what was read or written is kept in memory; 0: not */
	uint64_t iova; /* what peers call its first byte; a multiple of the block and of 8 */
};

/*
 * The region's rkey is for peers, and for queue pairs of stagdv_connect_store(); its addresses count from iova. It has
 * no lkey: what is on storage is no place for a receive. ibv_dereg_mr() ends it when nothing of it is
 * under way.
 */
struct ibv_mr *stagdv_reg_store_mr(struct ibv_pd *pd, struct stagdv_medium *medium,
				   const struct stagdv_store_attr *attr);

enum stagdv_store_mask {
	STAGDV_STORE_ACCESS = 1 << 0, /* from now on, open connections too */
	STAGDV_STORE_RELAX = 1 << 1,
	STAGDV_STORE_LEVEL = 1 << 2,
	STAGDV_STORE_CACHE = 1 << 3,
	STAGDV_STORE_LENGTH = 1 << 4, /* longer, never shorter */
};

int stagdv_modify_store_mr(struct ibv_mr *mr, const struct stagdv_store_attr *attr, int mask);

struct stagdv_store_qp_attr {
	uint64_t comp_mask;
	uint32_t relax; /* besides what each region gives up */
	uint32_t level; /* enum stagdv_level */
	uint32_t depth; /* work requests carried out at once; 0: max_send_wr */
};

/*
 * Connects a queue pair in INIT to the store regions of its protection domain, in this process: from now on it is
 * in RTS. It takes reads, writes, writes with immediate (the immediate comes out of its own receive queue),
 * atomics, local operations. A bad key, bounds or right: IBV_WC_REM_ACCESS_ERR, and the queue pair is in error, as with a
 * peer. An error of the medium: IBV_WC_REM_OP_ERR for that request alone in the relaxed modes, and error state else;
 * vendor_err is its errno value. A write that was accepted (STAGDV_LEVEL_ACCEPTED) and fails afterwards: error state, in
 * every mode.
 */
int stagdv_connect_store(struct ibv_qp *qp, const struct stagdv_store_qp_attr *attr);
int stagdv_query_store_qp(struct ibv_qp *qp, struct stagdv_store_qp_attr *attr, size_t size);

/* Of enum stagdv_store_mask a queue pair has STAGDV_STORE_RELAX and _LEVEL: for what is posted from now on. */
int stagdv_modify_store_qp(struct ibv_qp *qp, const struct stagdv_store_qp_attr *attr, int mask);

struct stagdv_barrier {
	uint64_t comp_mask;
	uint64_t wr_id;
	uint32_t rkey; /* a region that it is about; all that was posted before is covered */
	unsigned int send_flags; /* IBV_SEND_SIGNALED */
};

/*
 * Completes (as IBV_WC_RDMA_READ to a peer, IBV_WC_DRIVER1 locally) when all that was posted before on this queue pair is
 * complete and durable; what is posted behind waits for it. To a stag peer that agreed it is a flush; to any other
 * a read without length behind the writes: durable then only where the peer's region has that level.
 */
int stagdv_wr_barrier(struct ibv_qp *qp, struct stagdv_barrier *barrier);

/* ---- connections --------------------------------------------------------- */

struct rdma_cm_id;

/*
 * A connected TCP socket whose peer is about to ask for an RDMA connection, and of whose bytes none was read: as if the
 * listening id had accepted it. For who serves several protocols at one port, and tells them apart by the first byte:
 * here it is 'M'. The socket is the adapter's from now on, whatever is returned. EINVAL: the id does not listen; ENOMEM.
 * On a real adapter: EOPNOTSUPP (its ports are not TCP's).
 */
int stagdv_adopt(struct rdma_cm_id *listener, int fd);

/* ---- one-shot sends ------------------------------------------------------- */

/*
 * A command and the memory that it is about in one post; its end, and the memory back, in one completion.
 *
 * stagdv_post_send_advertise() makes an STag for a list of memory, puts it into the header of the send, and transmits.
 * The peer reads and writes through it, and ends the command with stagdv_post_send_close(): before that send is
 * delivered here, the STag has been closed and freed. The STag is good for this connection alone, and ends with it.
 *
 * Between stag peers that agreed on an encoding the STag is in the header. To any other peer the same calls are a fast
 * registration and a send (the STag is in the body, if at all: stag_at), and a send with invalidate; a peer that
 * answers with a plain send leaves the STag to stagdv_withdraw().
 *
 * On a real adapter the same calls are a registration and a send, and a send with invalidate where the device has that, or a
 * plain one. What differs there:
 *   - the memory is one range (pieces one behind the other are: else E2BIG), pinned for the command, and iova its
 *     own address (else EOPNOTSUPP);
 *   - lkeys of the memory are not looked at, and the STag is good for any connection of the protection domain;
 *   - completions are the device's: never STAGDV_WC_*, and IBV_WC_WITH_INV if it says so. Whatever the answer was, it
 *     is stagdv_withdraw() that ends the STag here, and has the reference. What is left ends when the queue pair is
 *     destroyed, or set to error or reset by ibv_modify_qp() (rdma_disconnect() does that);
 *   - 4,096 of a queue pair at once (else ENOMEM), and none of the ibv_wr_ kind (EOPNOTSUPP).
 *
 * Which encoding: the side that accepts a connection says (STAG_ONE_SHOT), where the other side has them too.
 */
enum stagdv_one_shot {
	STAGDV_ONE_SHOT_NONE,	 /* a standard peer: send, send with invalidate */
	STAGDV_ONE_SHOT_LITERAL, /* opcodes 8 and 12, always solicited; no immediate data */
	STAGDV_ONE_SHOT_OPCODES, /* opcodes 13 and 12: what is preferred */
	STAGDV_ONE_SHOT_BITS,	 /* bits 12 and 13 of DDP's control word */
	STAGDV_ONE_SHOT_REGION,	 /* a real adapter: a region's key, send, send with invalidate */
	STAGDV_ONE_SHOT_PLAIN,	 /* one that cannot invalidate: a region's key, send, send */
};

#define STAGDV_ADVERTISE_SGE 512 /* pieces of memory behind one STag */

struct stagdv_advertise {
	uint64_t comp_mask;
	uint64_t wr_id;
	struct ibv_sge *sg_list; /* the body, as in ibv_send_wr */
	int num_sge;
	unsigned int send_flags; /* IBV_SEND_SIGNALED, _SOLICITED, _INLINE, _FENCE */
	struct ibv_sge *memory;	 /* of regions of the same protection domain; the list is copied */
	int num_memory;
	unsigned int access; /* IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE */
	uint64_t iova;	     /* the address of the first byte to the peer */
	uint32_t reference;  /* the caller's number of the command: comes back with its end */
	/*
	 * Where in the first piece of the body the STag is put, in network order, to whatever peer; -1: nowhere. A piece
	 * that is not inline needs local write access for it.
	 */
	int32_t stag_at;
};

/*
 * As ibv_post_send(); *stag is valid at once. EINVAL, ENOMEM (the queue is full, or memory), EPERM (memory that is not
 * the caller's to lend): nothing was sent, and there is no STag.
 */
int stagdv_post_send_advertise(struct ibv_qp *qp, struct stagdv_advertise *wr, uint32_t *stag);

/*
 * In send_flags of a send that advertises: another work request follows at once, which goes out with it. Until then it
 * may stay where it is.
 */
#define STAGDV_SEND_MORE (1u << 28)

struct stagdv_close {
	uint64_t comp_mask;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
	unsigned int send_flags;
	uint32_t stag; /* the peer's, as it was advertised */
};

int stagdv_post_send_close(struct ibv_qp *qp, struct stagdv_close *wr);

/*
 * Both between ibv_wr_start() and ibv_wr_complete(), with the wr_id and wr_flags of qp; errors drop the list, as any other's
 * in it. *stag is valid at once, and withdrawn if the list is aborted or fails. The body of a send that closes is what
 * ibv_wr_set_sge() and its neighbours say; that of one that advertises is wr's.
 */
int stagdv_wr_send_advertise(struct ibv_qp_ex *qp, const struct stagdv_advertise *wr,
			     uint32_t *stag);
int stagdv_wr_send_close(struct ibv_qp_ex *qp, uint32_t stag);

/*
 * In send_flags of an IBV_WR_SEND_WITH_INV of ibv_post_send(): it is a send that closes invalidate_rkey, as that of
 * stagdv_post_send_close() is, and stands in a list with others (the data before it, say). A real adapter ignores it.
 */
#define STAGDV_SEND_CLOSE (1u << 27)

/*
 * In wc_flags of a receive. ADVERTISED: invalidated_rkey is an STag of the peer's that this send lends. CLOSED (with
 * IBV_WC_WITH_INV): invalidated_rkey is an STag of ours that is closed and freed, and vendor_err the reference that
 * it was made with. A close of what this connection did not advertise, or twice, ends the connection
 * (Terminate: cannot invalidate), and nothing else: the receive completes with IBV_WC_REM_INV_REQ_ERR, and the STag
 * that the peer named in vendor_err.
 */
#define STAGDV_WC_ADVERTISED (1u << 24)
#define STAGDV_WC_CLOSED     (1u << 25)

/*
 * Takes back what was advertised on this queue pair: from now on it is refused. The reference it was made with goes to
 * *reference (may be NULL). For an STag that the peer will not close: its close would be a second one. ENOENT: there is no
 * such STag any more, or never was. On a real adapter it ends every STag, whatever the peer said.
 */
int stagdv_withdraw(struct ibv_qp *qp, uint32_t stag, uint32_t *reference);

enum stagdv_stag_end {
	STAGDV_STAG_OPEN,
	STAGDV_STAG_CLOSED,
	STAGDV_STAG_WITHDRAWN,
	STAGDV_STAG_ORPHANED
};

/* An STag's life. */
struct stagdv_stag {
	uint32_t stag, reference;
	uint32_t qp_num;
	uint32_t end;		/* enum stagdv_stag_end */
	uint64_t length;	/* bytes lent */
	uint64_t made, ended;	/* CLOCK_MONOTONIC, ns; ended 0: it is open */
	uint32_t reads, writes; /* the peer's messages through it */
	uint32_t late;		/* accesses after its end, all refused */
	uint32_t late_qp_num;	/* the queue pair on which the last of them came */
};

/*
 * The ledger: all that are open, and the last 4,096 that are not, oldest first. Fills at most n entries of size bytes each;
 * returns how many there are, or -errno.
 */
int stagdv_query_stags(struct ibv_context *context, struct stagdv_stag *list, size_t n,
		       size_t size);

#ifdef __cplusplus
}
#endif

#endif
