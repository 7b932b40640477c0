/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xfer.h - the transfer manager: turns many pieces into few RDMA reads and writes.
 *
 * A request is a read or a write with a chain of elements; an element is a list of local buffers
 * and one contiguous range of remote memory. The manager turns requests into the fewest descriptors
 * (RDMA work requests) that the limits allow: neighbours that are contiguous on the remote side are
 * coalesced, pieces that are too large are divided, and a request waits in place while no
 * descriptor is free. No call returns ENOMEM or EAGAIN because a queue is full.
 *
 * The manager is a plain consumer of verbs: it runs on any device, over queue pairs (rails) that
 * the caller has connected. It allocates memory when a manager is created and a rail is added, and
 * never again.
 *
 * Threads: a manager and its requests belong to one thread at a time.
 *
 * Completion: on InfiniBand and RoCE a completed write is in the peer's memory. On iWARP it has
 * only left this machine, and is lost if the connection breaks then. So on iWARP the manager counts
 * a write as done when a read that was posted after it on the same queue pair has completed; it
 * posts a zero-length read if none of the caller's follows. (STAG_XFER_UNCONFIRMED turns this off.)
 *
 * Order: on one rail, requests that are no longer than a turn complete in the order in which they
 * were submitted, whatever longer ones are in flight. Longer requests, all requests on several
 * rails, and requests in flight on a connection that was lost, complete when their own last byte is
 * done. The order in which bytes of concurrent requests arrive is undefined; a request that is
 * submitted after another has completed comes after it.
 *
 * Fairness: a request that has posted a turn (attr.turn bytes) yields to the others. So the
 * descriptors before a request's first one are, on the rail that it uses, at most the window
 * (attr.window bytes, already posted) and, for each request that waits before it, one turn and the
 * rest of the descriptor that ends the turn.
 *
 * Calls return 0 or an errno value, as verbs do; stag_xfer_error() returns the details.
 */
#ifndef STAG_XFER_H
#define STAG_XFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <infiniband/verbs.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- requests ---------------------------------------------------------- */

enum stag_xfer_op {
	STAG_XFER_READ = 1, /* remote memory to local buffers */
	STAG_XFER_WRITE,    /* local buffers to remote memory */
};

struct stag_xfer_buf {
	uint64_t addr;
	uint64_t length; /* bytes, may be zero */
	/*
	 * of a region in the rails' protection domain; on iWARP a read requires that it also allows
	 * IBV_ACCESS_REMOTE_WRITE
	 */
	uint32_t lkey;
	uint32_t reserved;
};

/* One contiguous remote range, as long as its local buffers together. */
struct stag_xfer_elem {
	const struct stag_xfer_buf *bufs;
	uint32_t num_bufs;
	uint32_t rkey;
	uint64_t remote_addr;
};

/* A position in a chain: every byte before it belongs to some descriptor. */
struct stag_xfer_cursor {
	size_t elem;	 /* current element; num_elems at the end */
	uint64_t offset; /* bytes of this element before the position */
	uint32_t buf;	 /* index of the current buffer in this element */
	uint32_t reserved;
	uint64_t buf_offset; /* bytes of this buffer before the position */
};

struct stag_xfer_req;

/*
 * Called from stag_xfer_poll() when more bytes of the request are done, at most once per
 * completion. It may submit and cancel requests; it must not poll or destroy the manager.
 */
typedef void (*stag_xfer_progress)(struct stag_xfer_req *req, uint64_t bytes_done,
				   uint64_t bytes_total);

struct stag_xfer_req {
	/* The request, set by the caller and left unchanged until the request is complete. */
	enum stag_xfer_op op;
	unsigned int flags; /* must be zero */
	const struct stag_xfer_elem *elems;
	size_t num_elems;
	stag_xfer_progress progress; /* may be NULL */
	void *context;		     /* for the caller's use */

	/*
	 * The result, set when the request is complete. bytes_done below says how many bytes were
	 * transferred.
	 */
	int error;		   /* 0, EIO (see status), ECANCELED */
	enum ibv_wc_status status; /* of the work completion that failed it, else IBV_WC_SUCCESS */

	/* The progress, valid at any time between two calls. */
	struct stag_xfer_cursor cursor; /* the next byte that is not in a descriptor yet */
	uint64_t bytes_total;
	uint64_t bytes_done;	 /* bytes known to be done */
	uint64_t transfers;	 /* descriptors formed that hold bytes of this request */
	uint64_t transfers_done; /* descriptors of these known to be done */

	/* Private to the manager. */
	struct stag_xfer_req *next, *prev, *follower, *touched_next;
	uint64_t bytes_formed, turn_left;
	uint32_t in_flight, in_lost, losses, loss_mark;
	int outcome;
	uint8_t phase, alone, touched;
};

/* ---- planning: requires no manager and no device ----------------------- */

struct stag_xfer_limits {
	uint32_t max_transfer; /* bytes of a descriptor, at least 1 */
	uint32_t max_segments; /* local segments of a descriptor, at least 1 */
};

/* The reason why a descriptor ends where it does. */
enum stag_xfer_end {
	STAG_XFER_END_CHAIN = 1, /* the chain ends */
	STAG_XFER_END_SIZE,	 /* the descriptor holds max_transfer bytes */
	/* the descriptor holds max_segments segments, and the next buffer is not contiguous */
	STAG_XFER_END_SEGMENTS,
	STAG_XFER_END_GAP, /* the next element's remote range is not contiguous */
	STAG_XFER_END_KEY, /* the next element has another remote key */
};

struct stag_xfer_desc {
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t length;
	uint32_t num_sge;
	uint32_t num_elems; /* number of elements that have bytes in it */
	enum stag_xfer_end end;
	/* array of the caller's with room for max_segments; NULL: not filled */
	struct ibv_sge *sge;
};

/*
 * Checks a request. Returns EINVAL if its op is invalid, flags are set, a list is missing, or a
 * range or the sum of lengths passes the end of the address space; then sets bad_elem (may be NULL)
 * to the index of the element, or to num_elems if the request itself is at fault. On success sets
 * total (may be NULL) to the sum of all lengths.
 */
int stag_xfer_check(const struct stag_xfer_req *req, uint64_t *total, size_t *bad_elem);

/*
 * Forms the next descriptor from the cursor on, and advances the cursor past it. A zeroed cursor is
 * the beginning. A descriptor holds as much as the limits allow, so calling this until it returns
 * false (nothing is left) gives the minimal number of descriptors. The request must have passed
 * stag_xfer_check().
 */
bool stag_xfer_form(const struct stag_xfer_limits *limits, const struct stag_xfer_req *req,
		    struct stag_xfer_cursor *cursor, struct stag_xfer_desc *desc);

/*
 * Returns the number of descriptors that the request takes from the cursor on; cursor NULL: from
 * the beginning.
 */
uint64_t stag_xfer_count(const struct stag_xfer_limits *limits, const struct stag_xfer_req *req,
			 const struct stag_xfer_cursor *cursor);

/* Prints every descriptor of the request, and why it ends where it does. */
int stag_xfer_explain(FILE *out, const struct stag_xfer_limits *limits,
		      const struct stag_xfer_req *req);

/* ---- the manager ------------------------------------------------------- */

struct stag_xfer;

#define STAG_XFER_MAX_RAILS 16

/*
 * The upper 16 bits of all work request ids of the manager. A caller that posts to the same queue
 * pairs must not use them.
 */
#define STAG_XFER_WR_ID_TAG 0x57a6

enum stag_xfer_flags {
	/*
	 * Counts a write as done when its completion arrives, on iWARP too: such a write may be
	 * lost with the connection.
	 */
	STAG_XFER_UNCONFIRMED = 1 << 0,
	/* Does not merge requests with each other. */
	STAG_XFER_NO_MERGE = 1 << 1,
	/*
	 * The caller polls the CQs, which it shares with the manager, and passes completions to
	 * stag_xfer_take(); stag_xfer_poll() does not poll the CQs.
	 */
	STAG_XFER_FED = 1 << 2,
};

/* A field that is zero has its default, given in the comment. */
struct stag_xfer_attr {
	uint64_t comp_mask;	    /* must be zero */
	unsigned int flags;	    /* enum stag_xfer_flags */
	uint32_t descriptors;	    /* of the manager, over all rails; 256, at most 65536 */
	uint32_t max_transfer;	    /* the caller's limit, in bytes; 1 MiB */
	uint32_t peer_max_transfer; /* the peer's limit, in bytes; none */
	uint32_t max_segments;	    /* the caller's limit; none */
	/* connections lost in a row under a request, without a byte done, before it fails; 5 */
	uint32_t max_losses;
	uint64_t window; /* bytes posted at a time on a rail; 16 MiB, at least one descriptor */
	uint64_t turn;	 /* bytes that a request posts before it yields to others; 1 MiB */
};

/*
 * Creates a manager, which the caller destroys. attr may be NULL. Returns NULL and sets errno
 * (EINVAL, ENOMEM) on failure.
 */
struct stag_xfer *stag_xfer_create(const struct stag_xfer_attr *attr);

/*
 * Destroys a manager. Returns EBUSY while requests are in flight: cancel them, and poll until they
 * have been returned.
 */
int stag_xfer_destroy(struct stag_xfer *x);

/*
 * Adds a connected queue pair (state RTS) as a rail. The queue pair and its send CQ remain the
 * caller's and must outlive the rail. The CQ may be shared, with other rails too; a caller that
 * polls it itself passes the manager's completions to stag_xfer_take() (STAG_XFER_FED; without that
 * flag, polls drop completions that are not the manager's). Rails of one manager share a protection
 * domain. The limits of the manager become the minimum of its rails' limits, so all rails must be
 * added before the first submit: EBUSY afterwards. Sets rail to the rail's number, from 0. Returns
 * EINVAL if the queue pair or its CQ is too small, or not connected; ENOSPC if the manager has no
 * room for more rails.
 */
int stag_xfer_add_rail(struct stag_xfer *x, struct ibv_qp *qp, unsigned int *rail);

/*
 * Replaces the queue pair of a rail that is down by a connected one. Descriptors that were not
 * known to be done on the old queue pair are posted again, on this or other rails. The old queue
 * pair may have been destroyed; if not, it must be in the error state. The caller ensures that the
 * peer, too, has seen the end of the old connection (its disconnected event), so that nothing of it
 * arrives later. An idle rail does not notice the end of its connection: in this case it suffices
 * that its queue pair is in the error state, and the queue pair must not have been destroyed.
 *
 * qp NULL: there is no new queue pair yet; the old connection has ended, even if the manager has
 * not noticed, and its queue pair may have been destroyed. Everything posted on it counts as lost
 * at once, and the rail is down. A caller that learns of the end of a connection (its disconnected
 * event) while the rail is up calls this with NULL: some devices (siw of Linux 6.1) swallow work
 * requests that are posted then, and never complete them.
 *
 * Data in flight on a broken connection that is posted again on another rail may arrive twice: late
 * bytes of the broken connection, with the same content, may land after the request is complete. Do
 * not put other bytes into that remote memory until the peer, too, has seen the end of the
 * connection.
 *
 * Returns EBUSY if the rail is up; EINVAL if the new queue pair allows less than the manager's
 * limits.
 */
int stag_xfer_rebind(struct stag_xfer *x, unsigned int rail, struct ibv_qp *qp);

/*
 * Returns whether the rail is in use. A rail goes down when a work request on it fails; polling
 * detects that.
 */
bool stag_xfer_rail_up(const struct stag_xfer *x, unsigned int rail);

/*
 * Queues the request, and posts as much as possible. The request belongs to the manager until a
 * poll returns it. Returns EINVAL, and does not take the request, if stag_xfer_check() would, or if
 * no rail was ever added.
 */
int stag_xfer_submit(struct stag_xfer *x, struct stag_xfer_req *req);

/*
 * Makes progress, and stores up to max completed requests in done. Returns their number. Never
 * blocks.
 */
int stag_xfer_poll(struct stag_xfer *x, struct stag_xfer_req **done, int max);

/*
 * Processes a completion that the caller polled from a CQ. Returns false if it is not the
 * manager's.
 */
bool stag_xfer_take(struct stag_xfer *x, const struct ibv_wc *wc);

/*
 * Polls until at least one request is complete, or until timeout_ms have passed (-1: no limit),
 * which returns 0. Also returns 0 if nothing is posted, so that nothing can complete: no request is
 * in flight, all rails are down, or the manager is plugged. Sleeps on the completion channels if
 * every rail's send CQ has one; spins otherwise. It reads and acknowledges every event of these
 * channels.
 */
int stag_xfer_wait(struct stag_xfer *x, struct stag_xfer_req **done, int max, int timeout_ms);

/*
 * Cancels a request: nothing more of it is posted. Descriptors that are already posted complete
 * normally. The request is returned by a poll, with ECANCELED, or as complete if nothing was left
 * to stop. Returns ENOENT if the request is not in flight.
 */
int stag_xfer_cancel(struct stag_xfer *x, struct stag_xfer_req *req);

/*
 * Between plug and unplug, which nest, submitted requests accumulate and merge; nothing new is
 * posted.
 */
void stag_xfer_plug(struct stag_xfer *x);
void stag_xfer_unplug(struct stag_xfer *x);

/*
 * Queries the limits in force for reads or writes: the minimum of the device's, the peer's and the
 * caller's.
 */
int stag_xfer_query_limits(const struct stag_xfer *x, enum stag_xfer_op op,
			   struct stag_xfer_limits *limits);

struct stag_xfer_counters {
	uint64_t comp_mask;
	uint64_t requests, elements, bytes; /* completed without an error */
	uint64_t failed, canceled;
	uint64_t descriptors; /* descriptors formed */
	uint64_t coalesced;   /* elements that joined the descriptor of the previous element */
	uint64_t divided;     /* times that a descriptor ended inside an element */
	uint64_t merged;      /* requests that joined the descriptor of the previous request */
	uint64_t pauses;   /* times that requests had to wait for a descriptor or for the window */
	uint64_t reposted; /* descriptors posted again on another connection */
	uint64_t confirms; /* zero-length reads that confirm writes */
	uint64_t posts;	   /* calls of ibv_post_send() */
	uint64_t losses;   /* times a rail went down */
};

/* Fills at most size bytes of the caller's struct. */
int stag_xfer_query_counters(const struct stag_xfer *x, struct stag_xfer_counters *c, size_t size);

/*
 * Returns the error text of the last call, which names the object and the cause; "" if the call
 * succeeded.
 */
const char *stag_xfer_error(const struct stag_xfer *x);

#ifdef __cplusplus
}
#endif

#endif
