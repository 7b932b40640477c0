/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rsocket.h - sockets over verbs: shared by the files of this folder.
 *
 * A consumer of <infiniband/verbs.h> and <rdma/rdma_cma.h>, and of nothing else: it runs on any
 * device that rdma_cm finds. A socket's number is the descriptor of its event channel, so it never
 * collides with another file.
 */
#ifndef STAG_RSOCKET_RSOCKET_H
#define STAG_RSOCKET_RSOCKET_H

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>

#include "base/export.h"
#include "base/list.h"
#include "base/lock.h"
#include "rsocket/flow.h"
#include "rsocket/proto.h"

#define RS_SEND_LOW	2048  /* a writer waits for this much room, to avoid tiny messages */
#define RS_TRANSFER_MAX 65536 /* maximum bytes of one write */
#define RS_BUFFER_MIN	(2 * RS_SEND_LOW)
#define RS_BUFFER_MAX	(1u << 29) /* a message's value has 29 bits */
#define RS_QUEUE_MIN	16
#define RS_QUEUE_MAX	0xFFFE /* credits have 16 bits */
#define RS_CTRL_MAX	4      /* control messages in flight */
#define RS_CTRL_WRS	(2u * RS_CTRL_MAX)

/*
 * Receives beyond the credits that we grant. Control messages need no credit, and over iWARP a
 * message that finds no receive ends the connection. The number that can arrive while no thread
 * polls is bounded: grants follow data that we sent, and we send no more than we were granted, so a
 * few for each half of the window and of the ring, and the two that end a connection.
 */
#define RS_RECV_SPARE 16

/*
 *  INIT -> BOUND -> LISTENING
 *   |        |
 *   +--------+-> RESOLVING_ADDR -> RESOLVING_ROUTE -> CONNECTING --+
 *                                                                  +-> CONNECTED
 *   (from a listening socket)                          ACCEPTING --+       |
 *                                                                          +-> DISCONNECTED
 *   any of the opening states -> CONNECT_ERROR                             +-> ERROR
 */
enum rs_state {
	RS_INIT,
	RS_BOUND,
	RS_LISTENING,
	RS_RESOLVING_ADDR,
	RS_RESOLVING_ROUTE,
	RS_CONNECTING,
	RS_ACCEPTING,
	RS_CONNECT_ERROR,
	RS_CONNECTED,
	RS_DISCONNECTED, /* data received before can still be read */
	RS_ERROR,
	RS_STATES
};

/* The purpose of a work request: the upper half of its wr_id. The lower half is a number. */
enum rs_wr {
	RS_WR_RECV,   /* number: the receive's message slot */
	RS_WR_DATA,   /* number: bytes of the send ring to free */
	RS_WR_DIRECT, /* like RS_WR_DATA, for a write into an iomap */
	RS_WR_IOMAP,
	RS_WR_CTRL,
	RS_WR_QUIET /* the first of two; the second one's completion counts for both */
};

/* A buffer registered with the device. */
struct rs_buffer {
	uint8_t *at;
	struct ibv_mr *mr;
};

/* Sizes that can be set before connecting, and that accepted sockets inherit. */
struct rs_config {
	uint32_t sbuf_size, rbuf_size;
	uint16_t sq_size, rq_size;
	uint16_t inline_size;
	uint16_t iomaps; /* entries that a peer may map here */
};

/* Options of a socket, as setsockopt() and fcntl() set them. */
struct rs_options {
	struct rs_config config;
	int file_flags; /* O_NONBLOCK */
	bool reuse_addr, keep_alive, oob_inline, no_delay, v6_only;
	int keep_idle;
	struct linger linger;
	void *route; /* RDMA_ROUTE, until it is used */
	socklen_t route_len;
};

/* The connection manager's side of a socket. */
struct rs_conn {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	unsigned retries;
	bool watched; /* the service thread reads its events */
	bool closing; /* rclose() has been called */
	bool hung_up; /* we disconnected */
	bool gone;    /* the connection manager has reported the end of the connection */
};

/* A listening socket's queue. */
struct rs_backlog {
	unsigned limit;
	unsigned unaccepted; /* children that raccept() has not returned */
	bool paused;	     /* the queue is full */
	struct list ready;   /* children to return, by child.link */
};

/* A socket that a listener made, until raccept() returns it. */
struct rs_child {
	bool pending; /* raccept() cannot return it yet */
	int listener_fd;
	unsigned long long listener_serial;
	struct list link; /* in the listener's backlog.ready */
};

/* The queue pair's side of a socket: completion queue and registered buffers. */
struct rs_endpoint {
	bool open;
	bool msg_mode; /* messages are Sends (iWARP), not immediate data */
	bool hushed;   /* accepted over iWARP: sends nothing before the peer's first message */
	struct ibv_comp_channel *comp;
	struct ibv_cq *cq;
	bool cq_armed;
	unsigned cq_unacked;
	struct rs_buffer sbuf, rbuf;
	struct rs_buffer msgs; /* receive buffers, RS_MSG_LEN bytes each */
	struct rs_buffer ctrl; /* announcements in flight: RS_CTRL_MAX regions */
	struct rs_buffer
		slots; /* the peer writes its announcements here: RS_SLOTS regions, then the iomap */
	struct rs_offer peer;
};

/* Room of the send queue. */
struct rs_send_queue {
	unsigned left; /* free work requests, without those reserved for control messages */
	unsigned ctrl_put, ctrl_get; /* control messages posted and completed */
};

/* Memory mapped by riomap(), here and at the peer. */
struct rs_iomaps {
	struct rs_iomap *targets;    /* the peer's mappings of our memory: config.iomaps entries */
	struct rs_mapping *mappings; /* ours of the peer's memory: peer.iomaps entries */
	struct rs_buffer text;	     /* announcements of our mappings */
	struct list local;	     /* mappings that riomap() made */
	unsigned unsent;	     /* mappings not announced yet */
};

/*
 * Lock order: recv_lock or send_lock, then lock. A reader holds recv_lock and
 * a writer send_lock for the length of a call, even asleep. lock protects all
 * fields, except those that never change while the socket lives and those
 * marked. Bytes are copied and data is posted with lock released: the reader's
 * and the writer's own parts of the rings are theirs.
 *
 * References: one of the table, one of each call in progress.
 */
struct rsocket {
	int fd;
	unsigned long long serial; /* distinguishes it from a later socket with the same number */
	int domain;
	int refs; /* protected by table.c's lock */
	struct lock lock;
	struct lock send_lock;
	struct lock recv_lock;

	enum rs_state state;
	bool readable; /* the two halves of a connection */
	bool writable;
	int err;	     /* SO_ERROR: a positive errno */
	struct list waiters; /* threads that sleep until this socket changes: rs_waiter */

	struct rs_options opt;
	struct rs_conn conn;
	struct rs_backlog backlog; /* of a listening socket */
	struct rs_child child;	   /* of a socket that a listener made */
	struct rs_endpoint ep;
	struct flow_tx tx;
	struct flow_rx rx;
	struct rs_send_queue sq;
	struct rs_iomaps iomap;
};

/* A thread that sleeps until a socket changes. */
struct rs_waiter {
	struct list link;
	int wake_fd;
};

static inline bool rs_is_opening(const struct rsocket *rs)
{
	return rs->state >= RS_RESOLVING_ADDR && rs->state <= RS_ACCEPTING;
}

/* Returns whether the socket is or was connected. */
static inline bool rs_was_connected(const struct rsocket *rs)
{
	return rs->state >= RS_CONNECTED;
}

static inline bool rs_nonblocking(const struct rsocket *rs, int flags)
{
	return rs->opt.file_flags & O_NONBLOCK || flags & MSG_DONTWAIT;
}

/* Converts -errno to the public functions' -1 and errno. */
static inline ssize_t rs_result(ssize_t ret)
{
	if (ret >= 0)
		return ret;
	errno = (int)-ret;
	return -1;
}

/*
 * Like rs_result(), but restores errno on success, for calls that may have polled many times
 * before: some programs read errno at the end of a stream.
 */
static inline ssize_t rs_result_or(ssize_t ret, int errno_before)
{
	if (ret >= 0)
		errno = errno_before;
	return rs_result(ret);
}

/* table.c */
struct rsocket *rs_new(int domain, const struct rs_config *config); /* NULL if memory runs out */
int rs_table_insert(struct rsocket *rs);  /* at rs->fd; adds a reference */
void rs_table_remove(struct rsocket *rs); /* and drops that reference */
void rs_wait_alone(struct rsocket *rs);	  /* until the caller's reference is the last */
struct rsocket *rs_get(int fd);		  /* adds a reference; NULL if fd is no rsocket */
void rs_put(struct rsocket *rs);	  /* drops a reference; the last one frees the socket */

/* Declares `rs` with a reference to the end of the scope, or returns EBADF. */
static inline void rs_put_scope(struct rsocket **rs)
{
	if (*rs)
		rs_put(*rs);
}
#define RS_GET_OR_RETURN(rs, fd)                                                                   \
	__attribute__((cleanup(rs_put_scope))) struct rsocket *rs = rs_get(fd);                    \
	if (!rs)                                                                                   \
	return rs_result(-EBADF)

/* state.c */
void rs_set_state(struct rsocket *rs, enum rs_state state);
void rs_fail(struct rsocket *rs, int err); /* the connection broke; err is positive */

/* config.c */
const struct rs_config *rs_defaults(void);
unsigned rs_polling_us(void); /* how long to poll before sleeping */

/* wait.c */
int rs_wake_fd(void); /* this thread's descriptor, or -errno */
void rs_wake_fd_clear(int fd);
void rs_wake(struct rsocket *rs); /* wakes every other thread that sleeps on rs */
/*
 * Sleeps until fd (-1: none) is readable, another thread wakes this one, or timeout_ms (-1:
 * unlimited) has passed. Releases the lock meanwhile. Returns 1 if fd is readable, 0 if woken, or
 * -errno: -EINTR, -ETIMEDOUT.
 */
int rs_sleep(struct rsocket *rs, int fd, int timeout_ms);
/*
 * Waits until a connection is established. Returns -EAGAIN, -ENOTCONN, or the error that prevented
 * it.
 */
int rs_wait_connected(struct rsocket *rs, bool nonblock);

/* endpoint.c */
int rs_endpoint_open(struct rsocket *rs); /* creates queues and buffers, posts the receives */
void rs_endpoint_close(struct rsocket *rs);
void rs_offer_make(const struct rsocket *rs, struct rs_offer *offer);
void rs_offer_take(struct rsocket *rs, const struct rs_offer *offer); /* applies the peer's offer */
int rs_buffer_new(struct rs_buffer *b, struct ibv_pd *pd, size_t size, int access);
void rs_buffer_free(struct rs_buffer *b);

/* post.c */
unsigned rs_message_wrs(const struct rsocket *rs); /* work requests that a written message takes */
int rs_post_receives(struct rsocket *rs, const uint32_t *slots, unsigned n);
int rs_post_message(struct rsocket *rs, enum rs_wr kind, uint32_t number, uint32_t msg);
int rs_post_write(struct rsocket *rs, struct ibv_sge *sge, int n_sge, bool in_line, enum rs_wr kind,
		  uint32_t number, const struct rs_region *to);
int rs_post_write_message(struct rsocket *rs, struct ibv_sge *sge, int n_sge, bool in_line,
			  enum rs_wr kind, uint32_t number, const struct rs_region *to,
			  uint32_t msg);

/* progress.c */
void rs_progress(struct rsocket *rs); /* processes completions, and announces grants that are due */
void rs_grant(struct rsocket *rs);
void rs_lost(struct rsocket *rs); /* the connection ended without a message of the peer */
/* returns true if it was not armed: check again before sleeping */
bool rs_arm(struct rsocket *rs);
void rs_take_cq_event(struct rsocket *rs);
bool rs_ctrl_room(const struct rsocket *rs);
/*
 * Waits for ready(). Returns 0, -EAGAIN if it must not block, -EINTR, or -ETIMEDOUT at the deadline
 * (ns; 0: none).
 */
int rs_wait(struct rsocket *rs, bool (*ready)(const struct rsocket *), bool nonblock,
	    uint64_t deadline);

/* service.c: a thread that reads the connection manager's events when no other thread does. */
int rs_watch(struct rsocket *rs);
void rs_unwatch(struct rsocket *rs);
/*
 * MPA requires the initiator to send first, and the kernel's siw drops a connection on which the
 * responder does. So an accepted socket sends nothing on its own; the service thread waits for the
 * peer's first message, and then announces grants that are due.
 */
int rs_hush(struct rsocket *rs);
void rs_unhush(struct rsocket *rs);

/* conn.c */
void rs_read_events(struct rsocket *rs);
void rs_hang_up(struct rsocket *rs); /* disconnects, only once */

/* accept.c */
void rs_accept_request(struct rsocket *listener, struct rdma_cm_id *id,
		       const struct rdma_conn_param *param, const void *data);
void rs_child_settled(struct rsocket *child); /* it connected or failed */
void rs_listener_abandon(struct rsocket *listener);

/* send.c */
bool rs_can_send(const struct rsocket *rs);
/* A position in an array of vectors. */
struct rs_cursor {
	const struct iovec *iov;
	int left;      /* vectors left */
	size_t offset; /* in the first of them */
};
size_t rs_iov_length(const struct iovec *iov, int n);
void rs_cursor_copy(struct rs_cursor *c, void *buf, size_t n, bool to_iov);
/* Copies a span of bytes to the send ring; fills up to 2 sge and returns how many. */
int rs_stage(struct rsocket *rs, struct rs_cursor *from, const struct flow_span *span,
	     struct ibv_sge sge[2]);
uint32_t rs_transfer_size(const struct rsocket *rs, size_t left, uint32_t limit);

/* recv.c */
bool rs_can_receive(const struct rsocket *rs);

/* close.c */
/* Removes the socket from the table and ends the connection. The caller keeps its reference. */
void rs_close(struct rsocket *rs);

/* iomap.c */
void rs_iomap_updated(struct rsocket *rs, uint32_t index); /* the peer has rewritten the entry */
int rs_iomaps_send(struct rsocket *rs, int flags);	   /* announces new mappings to the peer */
void rs_iomaps_free(struct rsocket *rs);

#endif
