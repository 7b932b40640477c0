/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stagdv.h - direct verbs of the stag software adapter: features that verbs lacks.
 *
 * Every call works on objects of a stag device only. On an object of any other device it
 * returns EOPNOTSUPP unless its comment names a fallback. Attribute structures begin with a
 * comp_mask, and queries take the caller's size, so that programs built against an older header
 * keep working.
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

/*
 * Is this device the software adapter? Works on any device.
 *
 * The adapter may show two devices, stag0 and roce0. Their memory is one: a queue pair of either can be created with
 * protection domain, completion queues and shared receive queue of the other (ibv_create_qp_ex() with the context that
 * chooses its device, and a bit in comp_mask besides IBV_QP_INIT_ATTR_PD, as the header ignores the context without one;
 * rdma_create_qp() of an id that a request of a peer made), and then keys of that domain work on it.
 */
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
	uint8_t crc;	    /* 1: requested of every peer; 0: only if the peer requests it */
	uint8_t markers;    /* 1: requested of every peer */
	uint8_t extensions; /* 1: offered to every peer */
	uint8_t reserved[5];
};

/* Fills at most size bytes of attr. 0, EINVAL, EOPNOTSUPP. */
int stagdv_query_device(struct ibv_context *context, struct stagdv_device_attr *attr, size_t size);

/* Traffic since the queue pair was created, or since the library was loaded. */
struct stagdv_counters {
	uint64_t comp_mask;
	uint64_t tx_msgs, rx_msgs;	 /* RDMAP messages, requests and responses */
	uint64_t tx_bytes, rx_bytes;	 /* on the stream, headers included */
	uint64_t tx_payload, rx_payload; /* payload alone */
	uint64_t tx_fpdus, rx_fpdus;
	uint64_t tx_calls, rx_calls; /* system calls that send and receive */
	uint64_t tx_again, rx_again; /* how many of these found the socket full or empty */
	uint64_t crc_errors;
	uint64_t terminates_sent, terminates_received;
	uint64_t engine_wakeups;		 /* device only: times the engine thread woke */
	uint64_t connects, accepts, disconnects; /* device only */
	uint64_t posts;				 /* work requests posted to the send queue */
	/* work requests posted to the receive queue; device: to shared ones, too */
	uint64_t receives;
	uint64_t completions;	    /* work completions delivered, for both */
	uint64_t registrations;	    /* device only: keys given to memory, by any call */
	uint64_t advertised;	    /* STags made by stagdv_post_send_advertise() */
	uint64_t closed, withdrawn; /* how many of them ended by the peer; by stagdv_withdraw() */
	uint64_t orphaned;	    /* how many of them ended with their connection */
	uint64_t late;		    /* accesses to such an STag after its end, all refused */
	uint64_t lease_refusals;    /* the peer's accesses to a region whose lease had expired */
	uint64_t forwards; /* other connections' writes that it forwarded (stagdv_mirror_mr()), */
	uint64_t forwarded_bytes; /* as messages of their own; and their payload */
	uint64_t mirror_stalls;	  /* times that it stopped reading until mirrors had room */
};

/* Fills at most size bytes. 0, EINVAL, EOPNOTSUPP. */
int stagdv_query_counters(struct ibv_context *context, struct stagdv_counters *c, size_t size);
int stagdv_query_qp_counters(struct ibv_qp *qp, struct stagdv_counters *c, size_t size);

/*
 * Fills in the parameters that this queue pair's connection agreed on. Returns ENOTCONN before
 * it is connected. A queue pair of roce0 meets its peer when it first sends, or when this is called in RTS: call again. On a real adapter: one_shot alone, the rest is zero.
 */
struct stagdv_qp_attr {
	uint64_t comp_mask;
	/* capabilities of the peer: _IMM, _ATOMIC, _SEND_IMM, _FLUSH, _ONE_SHOT */
	uint64_t abilities;
	uint32_t mulpdu;
	uint16_t ird, ord;
	uint8_t crc;
	uint8_t markers_tx, markers_rx;
	uint8_t initiator;
	uint8_t mpa_rev;
	uint8_t stag_peer; /* the peer supports the extensions */
	uint8_t one_shot;  /* enum stagdv_one_shot */
	uint8_t reserved[1];
};

int stagdv_query_qp(struct ibv_qp *qp, struct stagdv_qp_attr *attr, size_t size);

/*
 * Fast registration: a key without memory, which is given memory later by a work request, in
 * the send queue's order, and invalidated by IBV_WR_LOCAL_INV or by the peer's Send with
 * Invalidate. On a real adapter: EOPNOTSUPP (user-space verbs has no such request there; use a
 * type-2 memory window).
 */
struct ibv_mr *stagdv_alloc_fast_mr(struct ibv_pd *pd, uint32_t max_sge);

struct stagdv_fast_reg {
	uint64_t comp_mask;
	uint64_t wr_id;
	struct ibv_mr *mr;	 /* of stagdv_alloc_fast_mr(), not valid at present */
	struct ibv_sge *sg_list; /* memory of regions of the same protection domain */
	int num_sge;	     /* at most the queue pair's max_send_sge and the region's max_sge */
	unsigned int access; /* enum ibv_access_flags */
	uint64_t iova;	     /* the first byte's address for the peer */
	uint32_t key;	     /* the new key: mr->rkey with any other low 8 bits */
	unsigned int send_flags; /* IBV_SEND_SIGNALED, IBV_SEND_FENCE */
};

/*
 * Posts the request. Once it completes, mr->lkey and mr->rkey are wr->key. Errors as
 * ibv_post_send().
 */
int stagdv_post_fast_reg(struct ibv_qp *qp, struct stagdv_fast_reg *wr);

/*
 * A region to which access ends when a word changes: by this process or another, at any time,
 * without a call. Before each access to its memory, by a peer or locally, of any kind, also
 * through windows, the adapter
 *
 * 1. puts hazard into a cell of hazards[] that is zero,
 *
 * 2. compares *word with expected: if they differ, the access is refused like one with an
 * invalid key,
 *
 * 3. accesses the memory, and sets the cell to zero.
 *
 * So a thread that changes the word, and then finds no cell with that hazard, owns the memory:
 * no access is in flight, and none will follow. The adapter waits for nobody, except for one of
 * its own accesses if all cells are taken. An access is one copy or one system call that does
 * not block; a long message has many. On storage (stagdv_connect_store()) it lasts as long as
 * the medium takes.
 *
 * Both sides access word and cells atomically, sequentially consistent. Word and cells stay
 * mapped until the region is deregistered, and only this process's adapter writes the cells.
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
 * Like ibv_reg_mr(); guard is copied. ibv_dereg_mr() frees the region. It cannot be
 * re-registered, nor be part of a fast registration. On a real adapter: EOPNOTSUPP; use
 * ibv_reg_mr() there, whose keys stay valid until the region is deregistered.
 */
struct ibv_mr *stagdv_reg_guarded_mr(struct ibv_pd *pd, void *addr, size_t length,
				     unsigned int access, const struct stagdv_guard *guard);

/* ---- regions that outlive a machine --------------------------------------- */

/*
 * Like ibv_reg_mr(), but under a key that the caller chooses: the one by which peers know the
 * same memory on another machine. The caller chooses all 32 bits, and makes them hard to guess,
 * or calls stagdv_choose_key(); the upper 24 must not be zero, nor those of another key of this
 * process (EEXIST). After ibv_dereg_mr() the same key may be chosen again. On a real adapter:
 * EOPNOTSUPP (the adapter chooses keys; send peers a key for each machine).
 */
struct ibv_mr *stagdv_reg_mr_keyed(struct ibv_pd *pd, void *addr, size_t length,
				   unsigned int access, uint32_t rkey);

/*
 * Chooses such a key, which cannot be guessed from others and is free in this process now.
 * Returns 0 or EOPNOTSUPP.
 */
int stagdv_choose_key(struct ibv_context *context, uint32_t *rkey);

/*
 * From until_ns (CLOCK_BOOTTIME) on, every access of peers to this region, also through
 * windows, is refused as if they had no rights. 0: no lease, as for a new region; 1: expired.
 * The call is a plain store, which waits for nobody: it may be called often. Local access has
 * no lease, nor have STags of other calls over the same memory (fast registration,
 * stagdv_post_send_advertise(), another region).
 *
 * A read is answered with bytes that were in the memory within the lease. An atomic is
 * acknowledged if it was carried out within the lease (otherwise it may have been carried out,
 * but is not acknowledged). A message behind a write is handled only if all of the write was
 * placed within the lease. For each segment the adapter checks the clock before it touches the
 * memory and again afterwards. So neither a process that is suspended for a minute between two
 * instructions, nor a response that waits in a queue, makes an old value look current. To end
 * peers' access early, and to know that it has ended, use ibv_modify_qp() and ibv_dereg_mr():
 * when they return, no access is in flight.
 *
 * EINVAL: a fast region, or one on storage. On a real adapter: EOPNOTSUPP.
 */
int stagdv_set_mr_lease(struct ibv_mr *mr, uint64_t until_ns);

/*
 * A region with a copy on another machine: the adapter forwards peers' writes to it, from any
 * queue pair and through windows, too, to the copy as RDMA Writes on another queue pair, before
 * it reports any later message of the writer to the program. Local writes, atomics and receives
 * are not forwarded, nor are writes that come on the mirror's own queue pair.
 *
 * Order: a request that the program posts on the mirror's queue pair after it has received a
 * message of a writer goes behind everything forwarded from that writer until then. So one read
 * behind it confirms both. A forward has the bytes that the region has when it is sent: if two
 * writers write the same bytes, those placed last arrive last. A segment is forwarded when it
 * is complete; an incomplete one, when a connection ends, is not.
 *
 * If the mirror's queue pair has no room, the writer's queue pair stops reading, and no other
 * does. Mirrors must not form a ring: two regions that mirror each other would never come to
 * rest.
 */
enum stagdv_mirror_flags {
	/*
	 * A message behind a write waits until the copy's side has confirmed the write (by a
	 * read behind it).
	 */
	STAGDV_MIRROR_CONFIRM = 1 << 0,
	/*
	 * When the mirror has ended, the region's writers are disconnected, each at the end of
	 * its next write.
	 */
	STAGDV_MIRROR_STRICT = 1 << 1,
};

struct stagdv_mirror {
	uint64_t comp_mask;
	struct ibv_qp *qp;    /* connected, of any protection domain of this process */
	uint64_t remote_addr; /* address of the copy's first byte, */
	uint32_t rkey;	      /* and its key, with the right to write */
	unsigned int flags;   /* enum stagdv_mirror_flags */
};

/*
 * Starts a mirror, from the return of the call on. A region may have several, one for each
 * queue pair. A mirror ends with the connection of its queue pair: without
 * STAGDV_MIRROR_STRICT, writers go on without it. The program learns of that by the end of the
 * connection, and by IBV_EVENT_QP_FATAL even if the peer closed it in order. Until
 * stagdv_unmirror_mr(), or the end of all its mirrors, ibv_dereg_mr() returns EBUSY, and the
 * region cannot be re-registered.
 *
 * EINVAL (a fast or guarded region, or one on storage; STAGDV_MIRROR_CONFIRM without reads),
 * ENOTCONN, ENOMEM, EEXIST (this queue pair mirrors it already). On a real adapter: EOPNOTSUPP;
 * the program has to forward.
 */
int stagdv_mirror_mr(struct ibv_mr *mr, const struct stagdv_mirror *mirror);

/*
 * Later writes are not forwarded; earlier ones still are, unless their region is deregistered.
 * Returns 0; ENOENT: no such mirror; ENOTCONN: it had ended, and is removed now.
 */
int stagdv_unmirror_mr(struct ibv_mr *mr, struct ibv_qp *qp);

/* ---- storage ------------------------------------------------------------ */

/*
 * Regions whose bytes are in a file or on a block device. A peer uses one with plain reads,
 * writes and atomics, like memory: a standard peer notices only the latency. A queue pair of
 * this process uses it without a network (stagdv_connect_store()).
 *
 * The adapter moves the bytes with io_uring: directly between the medium and the caller's
 * memory if both are aligned, otherwise through a bounded amount of its own memory. When that
 * is used up, a peer's connection pauses. On a real adapter all of these calls return
 * EOPNOTSUPP.
 */
struct stagdv_medium;

enum stagdv_medium_flags {
	STAGDV_MEDIUM_BUFFERED = 1 << 0, /* through the page cache, even if O_DIRECT works */
	STAGDV_MEDIUM_VOLATILE = 1 << 1, /* memory: lost with power, so nothing is flushed */
	STAGDV_MEDIUM_SHARED = 1 << 2, /* other processes have it open, too, each with this flag */
};

/* Zero in any field but fd: the default. */
struct stagdv_medium_attr {
	uint64_t comp_mask;
	int fd; /* a file, block device or shared memory object, open for the needed access; duplicated */
	unsigned int flags;	/* enum stagdv_medium_flags */
	uint64_t staging_bytes; /* memory for operations in flight; 16 MiB */
	uint64_t cache_bytes;	/* memory for cached data (cache_ms); 64 MiB */
	uint32_t depth;		/* operations in flight; 256 */
	uint32_t block;		/* unit of O_DIRECT; 0: the medium's own */
};

/* Returns NULL and errno: EINVAL, ENOMEM, ENOSYS (no io_uring: the log says why). */
struct stagdv_medium *stagdv_open_medium(struct ibv_context *context,
					 const struct stagdv_medium_attr *attr);
int stagdv_close_medium(struct stagdv_medium *medium); /* EBUSY while regions use it */

struct stagdv_medium_counters {
	uint64_t comp_mask;
	uint64_t reads, writes, flushes, atomics; /* operations on the medium */
	uint64_t read_bytes, written_bytes;
	uint64_t copied_bytes;	 /* copied through the adapter's memory */
	uint64_t submits;	 /* system calls */
	uint64_t errors, pauses; /* pauses: times that a connection waited for staging memory */
	uint64_t cache_hits, cache_misses, cache_bytes;
	/* From the request to its end; reads and writes are sampled, flushes all timed. */
	struct stag_histogram read_times, write_times, flush_times;
};

int stagdv_query_medium(struct stagdv_medium *medium, struct stagdv_medium_counters *c,
			size_t size);

/*
 * Relaxations of the order of verbs. Without any, the user of this queue pair sees each work
 * request carried out before the next one, and completed in order (requests that share no byte,
 * and reads, are in flight at the same time; others may see them in any order). IBV_SEND_FENCE
 * (here for every opcode: it waits for all earlier requests, and later ones wait until it has
 * begun) and barriers hold in every mode.
 */
enum stagdv_relax {
	STAGDV_RELAX_WRITES = 1 << 0,	   /* either of two overlapping writes may win */
	STAGDV_RELAX_READS = 1 << 1,	   /* a read may miss a write posted before it */
	STAGDV_RELAX_LATER = 1 << 2,	   /* a read may see a write posted after it */
	STAGDV_RELAX_ATOMICS = 1 << 3,	   /* the same for atomics, which stay atomic */
	STAGDV_RELAX_COMPLETIONS = 1 << 4, /* completions come in any order */
};

/* The state that a completed write, or a write before an answered read, has reached at least. */
enum stagdv_level {
	STAGDV_LEVEL_VISIBLE,  /* every later read sees it, from any connection */
	STAGDV_LEVEL_ACCEPTED, /* the caller's memory may be reused; nothing else */
	STAGDV_LEVEL_DURABLE,  /* flushed: it survives a power failure */
};

/* For one work request, in ibv_send_wr.send_flags: overrides the queue pair's level. */
#define STAGDV_SEND_ACCEPTED (1u << 24)
#define STAGDV_SEND_VISIBLE  (1u << 25)
#define STAGDV_SEND_DURABLE  (1u << 26)

struct stagdv_store_attr {
	uint64_t comp_mask;
	uint64_t offset, length; /* in the medium; offset a multiple of its block */
	unsigned int access;	 /* enum ibv_access_flags: remote read, write, atomic */
	uint32_t relax;		 /* enum stagdv_relax, for peers' requests */
	uint32_t level;		 /* enum stagdv_level, for peers' requests */
	/* how long data that was read or written stays in memory; 0: not at all */
	uint32_t cache_ms;
	uint64_t iova; /* the first byte's address for peers; a multiple of the block and of 8 */
};

/*
 * The region's rkey is for peers, and for queue pairs of stagdv_connect_store(); its addresses
 * count from iova. It has no lkey: it cannot take receives. ibv_dereg_mr() waits until none of
 * its operations is in flight.
 */
struct ibv_mr *stagdv_reg_store_mr(struct ibv_pd *pd, struct stagdv_medium *medium,
				   const struct stagdv_store_attr *attr);

enum stagdv_store_mask {
	STAGDV_STORE_ACCESS = 1 << 0, /* takes effect at once, also for open connections */
	STAGDV_STORE_RELAX = 1 << 1,
	STAGDV_STORE_LEVEL = 1 << 2,
	STAGDV_STORE_CACHE = 1 << 3,
	STAGDV_STORE_LENGTH = 1 << 4, /* it may grow, never shrink */
};

int stagdv_modify_store_mr(struct ibv_mr *mr, const struct stagdv_store_attr *attr, int mask);

struct stagdv_store_qp_attr {
	uint64_t comp_mask;
	uint32_t relax; /* in addition to each region's own */
	uint32_t level; /* enum stagdv_level */
	uint32_t depth; /* work requests in flight; 0: max_send_wr */
};

/*
 * Connects a queue pair in INIT to the store regions of its protection domain, in this process;
 * it is in RTS from then on. It takes reads, writes, writes with immediate (the immediate
 * completes one of its own receives), atomics, and local operations. A bad key, range or right:
 * IBV_WC_REM_ACCESS_ERR, and the queue pair goes to ERROR, as with a peer. An error of the
 * medium: IBV_WC_REM_OP_ERR for that request alone in the relaxed modes, otherwise ERROR as
 * well; vendor_err is its errno value. A write that was accepted (STAGDV_LEVEL_ACCEPTED) and
 * fails later: ERROR, in every mode.
 */
int stagdv_connect_store(struct ibv_qp *qp, const struct stagdv_store_qp_attr *attr);
int stagdv_query_store_qp(struct ibv_qp *qp, struct stagdv_store_qp_attr *attr, size_t size);

/*
 * A queue pair takes STAGDV_STORE_RELAX and _LEVEL of enum stagdv_store_mask, for requests
 * posted from now on.
 */
int stagdv_modify_store_qp(struct ibv_qp *qp, const struct stagdv_store_qp_attr *attr, int mask);

struct stagdv_barrier {
	uint64_t comp_mask;
	uint64_t wr_id;
	uint32_t rkey;		 /* any valid region; everything posted before is covered */
	unsigned int send_flags; /* IBV_SEND_SIGNALED */
};

/*
 * Completes (as IBV_WC_RDMA_READ to a peer, IBV_WC_DRIVER1 locally) when everything posted
 * before on this queue pair is complete and durable; later requests wait for it. To a stag peer
 * that agreed it is a flush. To any other peer it is a zero-length read behind the writes: they
 * are durable then only if the peer's region has that level.
 */
int stagdv_wr_barrier(struct ibv_qp *qp, struct stagdv_barrier *barrier);

/* ---- connections --------------------------------------------------------- */

struct rdma_cm_id;

/*
 * Hands over a connected TCP socket whose peer is about to request an RDMA connection, and of
 * which no byte was read, as if the listening id had accepted it. For a program that serves
 * several protocols on one port, and distinguishes them by the first byte: here it is 'M' of a
 * peer on stag0, and 's' of one on roce0. The adapter owns the socket from then on, whatever is
 * returned. EINVAL: the id does not listen; ENOMEM. On a real adapter: EOPNOTSUPP (its ports are
 * not TCP's).
 */
int stagdv_adopt(struct rdma_cm_id *listener, int fd);

/* ---- TLS ------------------------------------------------------------------ */

/*
 * Encrypts connections with TLS 1.3, by certificates or by pre-shared keys. The peer must be stag,
 * too: the handshake precedes MPA's Request. Without these calls the environment decides: STAG_TLS,
 * see libstag-verbs(7). Functions return 0 or an errno value.
 */
struct stagdv_tls; /* certificates and keys */

/*
 * Off: neither offered nor accepted. Allowed: a listener accepts both; who connects tries TLS, and
 * then without if the peer does not speak it, which an attacker between them can bring about.
 * Required: nothing else is accepted.
 */
enum stagdv_tls_mode { STAGDV_TLS_OFF, STAGDV_TLS_ALLOWED, STAGDV_TLS_REQUIRED };

/*
 * Files are PEM, and read at once. A listener needs cert and key, or pre-shared keys; with ca it
 * demands a certificate of who connects. Who connects needs ca, or a pre-shared key of 16 to 64
 * bytes. What is not used is zero.
 */
struct stagdv_tls_attr {
	const char *cert; /* own certificate, then those that lead to the authority */
	const char *key;  /* its private key; nobody but the owner may have access to the file */
	const char *ca;	  /* authorities of the peers' certificates */
	const char
		*name; /* DNS name or address that a listener's certificate must have; NULL: any */
	const char *identity; /* of the pre-shared key, up to 128 bytes */
	const uint8_t *psk;
	size_t psk_len;
	/*
	 * A listener's keys: writes the key of an identity, up to 64 bytes, and returns its length, or
	 * a negative number if there is none. Called on the adapter's thread: it must not block, nor
	 * call verbs or rdma_cm.
	 */
	int (*find_psk)(void *arg, const char *identity, uint8_t *key);
	void *arg;   /* valid as long as anything uses this stagdv_tls */
	bool kernel; /* let the kernel encrypt, if it can */
};

/* On failure the reason is written to why: which file, and what is wrong. ENOSYS: OpenSSL is missing. */
int stagdv_create_tls(struct stagdv_tls **out, const struct stagdv_tls_attr *attr, size_t size,
		      char *why, size_t why_size);
void stagdv_destroy_tls(struct stagdv_tls *tls); /* ids that it was set on continue to use it */
/*
 * Sets it on an id that neither listens nor connects yet. On a real adapter: EOPNOTSUPP, unless mode
 * is off.
 */
int stagdv_set_tls(struct rdma_cm_id *id, struct stagdv_tls *tls, enum stagdv_tls_mode mode);

/* What the kernel does of a connection's TLS, a bit each. OpenSSL 3.0 lets it encrypt, and decrypts itself. */
enum stagdv_tls_kernel {
	STAGDV_TLS_KERNEL_SENDS = 1 << 0,
	STAGDV_TLS_KERNEL_RECEIVES = 1 << 1,
};

struct stagdv_tls_info {
	uint8_t encrypted;
	uint8_t by_key; /* by a pre-shared key, not by certificates */
	uint8_t kernel; /* bits of enum stagdv_tls_kernel */
	char version[16];
	char cipher[40];
	/*
	 * Whom the peer proved to be: to a listener the identity of the key; else the common name in
	 * the certificate. Empty: it proved nothing, or is a listener that has the same key.
	 */
	char peer[129];
};

/* For an id with a connection, or a request for one. ENOTCONN: it has neither. */
int stagdv_query_tls(struct rdma_cm_id *id, struct stagdv_tls_info *out, size_t size);

/* ---- one-shot sends ------------------------------------------------------- */

/*
 * One-shot sends: a command and its memory in one post; the end of the command, and the return
 * of the memory, in one completion.
 *
 * stagdv_post_send_advertise() makes an STag for a list of memory, puts it into the header of
 * the send, and transmits. The peer reads and writes through the STag, and ends the command
 * with stagdv_post_send_close(): before that send is delivered here, the STag has been closed
 * and freed. The STag is valid for this connection only, and ends with it.
 *
 * Between stag peers that agreed on an encoding the STag is in the header. To any other peer
 * the same calls are a fast registration and a send (the STag is in the body, if at all:
 * stag_at), and a Send with Invalidate. If the peer answers with a plain send,
 * stagdv_withdraw() ends the STag.
 *
 * On a real adapter the same calls are a registration and a send, and a Send with Invalidate if
 * the device has that, otherwise a plain one. The differences there:
 *
 * - The memory is one range (adjacent pieces; otherwise E2BIG), pinned for the command, and
 * iova is its own address (otherwise EOPNOTSUPP).
 *
 * - lkeys of the memory are not checked, and the STag is valid for any connection of the
 * protection domain.
 *
 * - Completions are the device's: never STAGDV_WC_*, and IBV_WC_WITH_INV if it reports that.
 * Whatever the answer was, stagdv_withdraw() ends the STag, and returns the reference. The rest
 * ends when the queue pair is destroyed, or set to error or reset by ibv_modify_qp()
 * (rdma_disconnect() does that).
 *
 * - A queue pair has at most 4,096 at a time (otherwise ENOMEM), and none of the ibv_wr_ kind
 * (EOPNOTSUPP).
 *
 * The side that accepts a connection chooses the encoding (STAG_ONE_SHOT), if the other side
 * supports one-shot sends, too.
 */
enum stagdv_one_shot {
	STAGDV_ONE_SHOT_NONE,	 /* a standard peer: send, send with invalidate */
	STAGDV_ONE_SHOT_LITERAL, /* opcodes 8 and 12, always solicited; no immediate data */
	STAGDV_ONE_SHOT_OPCODES, /* opcodes 13 and 12: the default */
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
	uint64_t iova;	     /* the first byte's address for the peer */
	uint32_t reference;  /* the caller's number for the command: returned when it ends */
	/*
	 * Offset in the first piece of the body at which the STag is written, in network order,
	 * for any peer; -1: not at all. A piece that is not inline needs local write access for
	 * it.
	 */
	int32_t stag_at;
};

/*
 * Like ibv_post_send(); *stag is valid at once. EINVAL, ENOMEM (the queue is full, or memory
 * runs out), EPERM (memory that the caller may not advertise): nothing was sent, and there is
 * no STag.
 */
int stagdv_post_send_advertise(struct ibv_qp *qp, struct stagdv_advertise *wr, uint32_t *stag);

/*
 * In send_flags of a send that advertises: another work request follows at once, and is
 * transmitted with it. Until then the send may be delayed.
 */
#define STAGDV_SEND_MORE (1u << 28)

struct stagdv_close {
	uint64_t comp_mask;
	uint64_t wr_id;
	struct ibv_sge *sg_list;
	int num_sge;
	unsigned int send_flags;
	uint32_t stag; /* the peer's, as advertised */
};

int stagdv_post_send_close(struct ibv_qp *qp, struct stagdv_close *wr);

/*
 * Both are called between ibv_wr_start() and ibv_wr_complete(), with the wr_id and wr_flags of
 * qp; an error drops the list, like any other error in it. *stag is valid at once, and
 * withdrawn if the list is aborted or fails. The body of a send that closes is set by
 * ibv_wr_set_sge() and similar calls; the body of one that advertises is wr's.
 */
int stagdv_wr_send_advertise(struct ibv_qp_ex *qp, const struct stagdv_advertise *wr,
			     uint32_t *stag);
int stagdv_wr_send_close(struct ibv_qp_ex *qp, uint32_t stag);

/*
 * In send_flags of an IBV_WR_SEND_WITH_INV of ibv_post_send(): the send closes invalidate_rkey,
 * like stagdv_post_send_close(), and may be in a list with other requests (such as the data
 * before it). A real adapter ignores it.
 */
#define STAGDV_SEND_CLOSE (1u << 27)

/*
 * In wc_flags of a receive. ADVERTISED: invalidated_rkey is an STag that this send of the peer
 * advertises. CLOSED (with IBV_WC_WITH_INV): invalidated_rkey is an STag of ours that is closed
 * and freed, and vendor_err is its reference. If the peer closes an STag that this connection
 * did not advertise, or closes one twice, only the connection ends (Terminate: cannot
 * invalidate): the receive completes with IBV_WC_REM_INV_REQ_ERR, and vendor_err is the STag
 * that the peer named.
 */
#define STAGDV_WC_ADVERTISED (1u << 24)
#define STAGDV_WC_CLOSED     (1u << 25)

/*
 * Ends an STag that was advertised on this queue pair: access through it is refused from now
 * on. Its reference is returned in *reference (may be NULL). For an STag that the peer will not
 * close: a later close would be the second one. ENOENT: no such STag is open. On a real adapter
 * this ends every STag, whatever the peer sent.
 */
int stagdv_withdraw(struct ibv_qp *qp, uint32_t stag, uint32_t *reference);

enum stagdv_stag_end {
	STAGDV_STAG_OPEN,
	STAGDV_STAG_CLOSED,
	STAGDV_STAG_WITHDRAWN,
	STAGDV_STAG_ORPHANED
};

/* The life of an STag. */
struct stagdv_stag {
	uint32_t stag, reference;
	uint32_t qp_num;
	uint32_t end;		/* enum stagdv_stag_end */
	uint64_t length;	/* bytes advertised */
	uint64_t made, ended;	/* CLOCK_MONOTONIC, ns; ended 0: still open */
	uint32_t reads, writes; /* the peer's messages through it */
	uint32_t late;		/* accesses after its end, all refused */
	uint32_t late_qp_num;	/* the queue pair on which the last of them came */
};

/*
 * The ledger: all STags that are open, and the last 4,096 that ended, oldest first. Fills at
 * most n entries of size bytes each. Returns how many there are, or -errno.
 */
int stagdv_query_stags(struct ibv_context *context, struct stagdv_stag *list, size_t n,
		       size_t size);

#ifdef __cplusplus
}
#endif

#endif
