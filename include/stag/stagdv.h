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

#ifdef __cplusplus
extern "C" {
#endif

/* Is this device the software adapter? Works on any device. */
bool stagdv_is_supported(struct ibv_device *device);

enum stagdv_ability {
	STAGDV_ABILITY_IMM = 1 << 0,	  /* immediate data (RFC 7306) to peers that agreed */
	STAGDV_ABILITY_ATOMIC = 1 << 1,	  /* atomics (RFC 7306) to peers that agreed */
	STAGDV_ABILITY_SEND_IMM = 1 << 2, /* send with immediate to stag peers */
	STAGDV_ABILITY_MW = 1 << 3,	  /* memory windows, type 1 and 2 */
	STAGDV_ABILITY_FAST_REG = 1 << 4, /* stagdv_alloc_fast_mr(), stagdv_post_fast_reg() */
	STAGDV_ABILITY_CRC_HW = 1 << 5,	  /* CRC32C by processor instructions */
	STAGDV_ABILITY_TRACE = 1 << 6,	  /* this process writes a trace (STAG_TRACE) */
	STAGDV_ABILITY_GUARD = 1 << 7,	  /* stagdv_reg_guarded_mr() */
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
};

/* Fills at most size bytes. 0, EINVAL, EOPNOTSUPP. */
int stagdv_query_counters(struct ibv_context *context, struct stagdv_counters *c, size_t size);
int stagdv_query_qp_counters(struct ibv_qp *qp, struct stagdv_counters *c, size_t size);

/* What this queue pair's connection agreed on; ENOTCONN before it is connected. */
struct stagdv_qp_attr {
	uint64_t comp_mask;
	uint64_t abilities; /* what the peer agreed to: _IMM, _ATOMIC, _SEND_IMM */
	uint32_t mulpdu;
	uint16_t ird, ord;
	uint8_t crc;
	uint8_t markers_tx, markers_rx;
	uint8_t initiator;
	uint8_t mpa_rev;
	uint8_t stag_peer; /* the peer speaks the extensions */
	uint8_t reserved[2];
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
 * block; a long message is many.
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

#ifdef __cplusplus
}
#endif

#endif
