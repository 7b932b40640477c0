/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * xfer.h - the transfer manager: many pieces in, few RDMA reads and writes out.
 *
 * A request is a read or a write with a chain of elements; an element is a list
 * of local buffers and one contiguous range of remote memory. The manager turns
 * requests into the fewest descriptors (RDMA work requests) that the limits
 * allow: neighbours that are contiguous on the remote side coalesce, what is too
 * large is divided, and a request waits where it is when descriptors run out. No
 * call ever answers ENOMEM or EAGAIN because a queue is full.
 *
 * A plain consumer of verbs: it runs on any device, over queue pairs (rails) that
 * the caller has connected. It allocates when a manager is made and a rail is
 * added, and never again.
 *
 * Threads: a manager and its requests belong to one thread at a time.
 *
 * What is done. On InfiniBand and RoCE a completed write is in the peer's memory.
 * On iWARP it has only left this machine, and is lost if the connection breaks then.
 * So on iWARP the manager counts a write as done when a read that was posted
 * after it on the same queue pair has completed; it posts one without length where
 * none of the caller's follows. (STAG_XFER_UNCONFIRMED does without.)
 *
 * Order. On one rail, requests that are no longer than a turn complete in the order
 * in which they were submitted, whatever longer ones are under way. Longer ones,
 * all requests on several rails, and those that a connection was lost under, complete
 * when their own last byte is done.
 * Between requests under way at the same time nothing is promised about
 * the order in which bytes arrive; a request that is submitted after another has
 * completed comes after it.
 *
 * Fairness. A request that has taken a turn (attr.turn bytes) lets the others go
 * first. So before the first descriptor of a request there go, on the rail that it takes, at
 * most the window (attr.window bytes, which are posted already), and for each request that
 * waits before it one turn and the rest of the descriptor that ends the turn.
 *
 * Calls return 0 or an errno value, as verbs does; stag_xfer_error() says more.
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
	uint64_t length; /* any, zero too */
	uint32_t lkey;	 /* of a region in the rails' protection domain; on iWARP a read wants it to
			    allow IBV_ACCESS_REMOTE_WRITE as well */
	uint32_t reserved;
};

/* Its remote range is as long as its buffers are together. */
struct stag_xfer_elem {
	const struct stag_xfer_buf *bufs;
	uint32_t num_bufs;
	uint32_t rkey;
	uint64_t remote_addr;
};

/* A place in a chain: every byte before it belongs to some descriptor. */
struct stag_xfer_cursor {
	size_t elem;	 /* current element; num_elems: the end */
	uint64_t offset; /* bytes of this element that are before it */
	uint32_t buf;	 /* the buffer where it stands, of this element */
	uint32_t reserved;
	uint64_t buf_offset; /* bytes of this buffer that are before it */
};

struct stag_xfer_req;

/*
 * Called from stag_xfer_poll() when more of the request is done, at most once a completion.
 * It may submit and cancel; it may not poll or destroy.
 */
typedef void (*stag_xfer_progress)(struct stag_xfer_req *req, uint64_t bytes_done,
				   uint64_t bytes_total);

struct stag_xfer_req {
	/* What is asked. The caller's to set, and to leave alone until the request is complete. */
	enum stag_xfer_op op;
	unsigned int flags; /* zero */
	const struct stag_xfer_elem *elems;
	size_t num_elems;
	stag_xfer_progress progress; /* may be NULL */
	void *context;		     /* the caller's own */

	/* How it ended: set when it is complete. bytes_done below says how far it came. */
	int error;		   /* 0, EIO (see status), ECANCELED */
	enum ibv_wc_status status; /* of the work completion that failed it, else IBV_WC_SUCCESS */

	/* Its state, at any time between two calls. */
	struct stag_xfer_cursor cursor; /* the next byte that is not in a descriptor yet */
	uint64_t bytes_total;
	uint64_t bytes_done;	 /* known to be done */
	uint64_t transfers;	 /* descriptors formed that hold bytes of it */
	uint64_t transfers_done; /* of these, known to be done */

	/* The manager's own. */
	struct stag_xfer_req *next, *prev, *follower, *touched_next;
	uint64_t bytes_formed, turn_left;
	uint32_t in_flight, in_lost, losses, loss_mark;
	int outcome;
	uint8_t phase, alone, touched;
};

/* ---- planning: no manager, no device ----------------------------------- */

struct stag_xfer_limits {
	uint32_t max_transfer; /* bytes of a descriptor, at least 1 */
	uint32_t max_segments; /* local segments of a descriptor, at least 1 */
};

/* Why a descriptor ends where it does. */
enum stag_xfer_end {
	STAG_XFER_END_CHAIN = 1, /* nothing follows */
	STAG_XFER_END_SIZE,	 /* it holds max_transfer bytes */
	STAG_XFER_END_SEGMENTS, /* it holds max_segments segments, and the next buffer is elsewhere */
	STAG_XFER_END_GAP,	/* the next element's remote range is elsewhere */
	STAG_XFER_END_KEY,	/* the next element has another remote key */
};

struct stag_xfer_desc {
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t length;
	uint32_t num_sge;
	uint32_t num_elems; /* elements that have bytes in it */
	enum stag_xfer_end end;
	struct ibv_sge *sge; /* the caller's, room for max_segments; NULL: not wanted */
};

/*
 * Checks a request: EINVAL where its op is none, flags are set, a list is missing, or a range
 * or the sum of lengths passes the end of the address space. Then bad_elem (may be NULL)
 * becomes the element; num_elems: it is the request itself. Else total (may be NULL) becomes
 * the sum of all lengths.
 */
int stag_xfer_check(const struct stag_xfer_req *req, uint64_t *total, size_t *bad_elem);

/*
 * Forms the next descriptor from the cursor on, and moves the cursor past it. The cursor of
 * all zeroes is the beginning. Takes as much as the limits allow: so, called until it
 * answers false (nothing is left), it gives the fewest descriptors there can be. The
 * request must have passed stag_xfer_check().
 */
bool stag_xfer_form(const struct stag_xfer_limits *limits, const struct stag_xfer_req *req,
		    struct stag_xfer_cursor *cursor, struct stag_xfer_desc *desc);

/* How many descriptors the request takes from the cursor on; NULL: from the beginning. */
uint64_t stag_xfer_count(const struct stag_xfer_limits *limits, const struct stag_xfer_req *req,
			 const struct stag_xfer_cursor *cursor);

/* Prints every descriptor of the request, and why it ends where it does. */
int stag_xfer_explain(FILE *out, const struct stag_xfer_limits *limits,
		      const struct stag_xfer_req *req);

/* ---- the manager ------------------------------------------------------- */

struct stag_xfer;

#define STAG_XFER_MAX_RAILS 16

/*
 * The manager's work request ids have these upper 16 bits; a caller that posts to the same queue
 * pairs keeps away from them.
 */
#define STAG_XFER_WR_ID_TAG 0x57a6

enum stag_xfer_flags {
	/* A write is done when its completion comes, on iWARP too: what was done may be lost
	 * with the connection. */
	STAG_XFER_UNCONFIRMED = 1 << 0,
	/* Requests are not merged with each other. */
	STAG_XFER_NO_MERGE = 1 << 1,
	/* The caller polls the CQs, which are its own as well: completions come by
	 * stag_xfer_take(), and stag_xfer_poll() leaves the CQs alone. */
	STAG_XFER_FED = 1 << 2,
};

/* Zero in any field: the default. */
struct stag_xfer_attr {
	uint64_t comp_mask;	    /* zero */
	unsigned int flags;	    /* enum stag_xfer_flags */
	uint32_t descriptors;	    /* of the manager, over all rails; 256. At most 65536. */
	uint32_t max_transfer;	    /* the caller's limit, bytes; 1 MiB */
	uint32_t peer_max_transfer; /* the peer's; none */
	uint32_t max_segments;	    /* the caller's limit; none */
	uint32_t max_losses; /* connections lost under a request without a byte done, until it
				       fails; 5 */
	uint64_t window;     /* bytes posted at a time on a rail; 16 MiB, at least one descriptor */
	uint64_t turn;	     /* bytes that a request posts before others get theirs; 1 MiB */
};

/* NULL and errno: EINVAL, ENOMEM. attr may be NULL. The caller destroys it. */
struct stag_xfer *stag_xfer_create(const struct stag_xfer_attr *attr);

/* EBUSY while requests are under way: cancel them, and poll until they have come back. */
int stag_xfer_destroy(struct stag_xfer *x);

/*
 * Adds a connected queue pair (RTS). It and its send CQ stay the caller's, and must outlive the
 * rail. The CQ may be shared, with other rails too; a caller that takes completions from it by itself
 * hands the manager's to stag_xfer_take() (STAG_XFER_FED; without it, polls drop what is not the
 * manager's). Rails of one manager share a protection domain.
 * The limits of the manager become the least of what its rails allow, so all rails are added
 * before the first submit: EBUSY afterwards. rail becomes its number, from 0.
 * EINVAL: the queue pair or its CQ is too small, or not connected; ENOSPC: no more rails.
 */
int stag_xfer_add_rail(struct stag_xfer *x, struct ibv_qp *qp, unsigned int *rail);

/*
 * Replaces the queue pair of a rail that is down by a connected one. What was not known to be
 * done on the old one is posted again, there or on other rails. The old one may have been
 * destroyed; if not, it must be in the error state. The caller makes sure that the peer, too, has
 * seen the end of the old connection (its disconnected event), so that nothing of it arrives later.
 * A rail that had nothing to do did not notice the end of its connection: that its queue pair
 * is in the error state is enough then, and it must not have been destroyed.
 * qp NULL: there is no new one yet; the old one has ended, whatever the manager knows, and may have
 * been destroyed. What was posted on it is lost at once, and the rail is down.
 * A caller that hears of the end of a connection (its disconnected event) while the rail is up calls this
 * with NULL: some devices (Linux 6.1's siw) swallow what is posted then, and no completion ever tells.
 * What was under way on a broken connection and goes on by another rail may arrive twice: late bytes
 * of the broken one, the same ones, may land after the request is complete. Until the peer, too, has seen
 * the end of it, put no other bytes into that remote memory.
 * EBUSY: the rail is up; EINVAL: the new queue pair allows less than the manager's limits.
 */
int stag_xfer_rebind(struct stag_xfer *x, unsigned int rail, struct ibv_qp *qp);

/* Is the rail in use? It goes down when a work request on it fails; polling finds that out. */
bool stag_xfer_rail_up(const struct stag_xfer *x, unsigned int rail);

/* Queues the request, and posts what can be posted now. It is the manager's until a poll
 * returns it. EINVAL: see stag_xfer_check(), or no rail was ever added; then it is not taken. */
int stag_xfer_submit(struct stag_xfer *x, struct stag_xfer_req *req);

/*
 * Moves everything on, and returns up to max requests that are complete, as their
 * number. Never blocks.
 */
int stag_xfer_poll(struct stag_xfer *x, struct stag_xfer_req **done, int max);

/* One completion that the caller took from a CQ; false: it is not the manager's. */
bool stag_xfer_take(struct stag_xfer *x, const struct ibv_wc *wc);

/*
 * Polls until at least one request is complete, or timeout_ms is over (-1: no limit): then 0. Also 0
 * when nothing is posted, so that nothing can come: no request is under way, all rails
 * are down, or the manager is plugged.
 * Sleeps on the completion channels where every rail's send CQ has one, else spins. It takes
 * and acknowledges every event of these channels.
 */
int stag_xfer_wait(struct stag_xfer *x, struct stag_xfer_req **done, int max, int timeout_ms);

/*
 * Nothing of it is posted any more. What is posted already runs its course: the request comes back from
 * a poll, with ECANCELED, or as complete if nothing was left to stop. ENOENT: it is not
 * under way.
 */
int stag_xfer_cancel(struct stag_xfer *x, struct stag_xfer_req *req);

/* Between these, which nest, submitted requests gather and merge; nothing new is posted. */
void stag_xfer_plug(struct stag_xfer *x);
void stag_xfer_unplug(struct stag_xfer *x);

/* The limits in force for reads or writes: the least of device, peer and caller. */
int stag_xfer_query_limits(const struct stag_xfer *x, enum stag_xfer_op op,
			   struct stag_xfer_limits *limits);

struct stag_xfer_counters {
	uint64_t comp_mask;
	uint64_t requests, elements, bytes; /* complete without an error */
	uint64_t failed, canceled;
	uint64_t descriptors; /* formed */
	uint64_t coalesced;   /* elements that joined the descriptor of the element before */
	uint64_t divided;     /* times that a descriptor ended inside an element */
	uint64_t merged;      /* requests that joined the descriptor of the request before */
	uint64_t pauses;   /* times that requests had to wait: no descriptor, or the window full */
	uint64_t reposted; /* descriptors posted again on another connection */
	uint64_t confirms; /* reads without length that confirm writes */
	uint64_t posts;	   /* calls of ibv_post_send() */
	uint64_t losses;   /* times a rail went down */
};

/* Fills at most size bytes. */
int stag_xfer_query_counters(const struct stag_xfer *x, struct stag_xfer_counters *c, size_t size);

/* The last call's complaint, naming the object and the cause; "" if it had none. */
const char *stag_xfer_error(const struct stag_xfer *x);

#ifdef __cplusplus
}
#endif

#endif
