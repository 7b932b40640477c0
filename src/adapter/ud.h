/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ud.h - datagrams: UD queue pairs.
 *
 * A message is one datagram (wire/datagram.h). It travels in one of three ways, which its address handle says:
 *
 *   UD_NEAR   to a queue pair of this machine: by a socket of AF_UNIX that each UD queue pair has, named by its number in
 *             the abstract namespace, which is the network's own, like ports are. Such a socket loses nothing: a sender
 *             that finds it full waits, at most UD_PATIENCE_NS, and less if requests to other queue pairs wait behind.
 *             Then it loses what it sends to that queue pair, at once, until the socket has room again. The socket holds
 *             few messages (net.unix.max_dgram_qlen), but long ones: requests that wait travel together, in a train
 *   UD_FAR    to another machine: by UDP, from the sender's port to the port in the queue pair's number
 *   UD_GROUP  to a multicast group (mcast.h): by UDP
 *
 * A send completes when the kernel has its datagram. A datagram is for a queue pair if the number and the Q_Key are its own; if
 * there is no receive, it waits at most UD_HOLD_NS for one, so that a program that is slow for a moment loses nothing;
 * then it is dropped, as the standard has it. So are all others, without a word.
 *
 * ud.c has life and states, ud_tx.c sends, ud_rx.c receives, ud_port.c reads the UDP socket that the queue pairs of a port
 * share.
 */
#ifndef STAG_UD_H
#define STAG_UD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>

#include "adapter/ah.h"
#include "adapter/engine.h"
#include "adapter/srq.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/lock.h"
#include "wire/datagram.h"

#define UD_PATIENCE_NS	      (2 * NS_PER_S) /* a busy machine lets a thread wait for half a second */
#define UD_PATIENCE_SHARED_NS (600 * NS_PER_MS) /* where requests to others wait behind */
#define UD_MAX_FULL	      64
#define UD_HOLD_NS	      (2 * NS_PER_S)
#define UD_BATCH	      16    /* datagrams read in one call */
#define UD_TRAIN	      16384 /* bytes of a train */
#define UD_NEAR_BATCH	      4 /* trains read in one call, into the memory of UD_BATCH datagrams */
#define UD_MAX_HELD	      1024

struct qp_port;
struct stag_qp;
struct wqe;

struct ud_dest { /* where a work request goes */
	struct ud_path path;
	uint32_t qpn, qkey;
	bool set;
};

/* Room for some datagrams that recvmmsg() reads. */
struct ud_batch {
	struct mmsghdr msg[UD_BATCH];
	struct iovec iov[UD_BATCH];
	struct sockaddr_storage from[UD_BATCH];
	_Alignas(16) uint8_t control[UD_BATCH][64];
	uint8_t bytes[UD_BATCH][DATAGRAM_MAX + 4];
};

/* A destination whose socket is full. */
struct ud_full {
	uint32_t qpn;	/* 0: the UDP socket of the port */
	uint64_t since; /* clock_ns() */
	bool given_up;	/* what does not fit is dropped at once */
};

struct ud {
	struct stag_qp *qp;
	/* tx_lock */
	struct ud_dest *dest; /* of each entry of the send queue */
	int tx_fd;	      /* AF_UNIX, without a name; -1 until the next near send */
	uint32_t mtu;
	bool failed; /* a request has failed: soon in ERR */
	struct ud_full full[UD_MAX_FULL];
	unsigned n_full;
	struct {		   /* do requests to other destinations wait behind the next one? */
		uint32_t tx, upto; /* the next one, and the first that has not been looked at */
		bool others;
	} behind;
	int spent_fd; /* a tx_fd that was replaced, for the engine to close; or -1 */
	uint8_t out[UD_TRAIN];
	struct {		  /* what is in out, for the next try */
		uint32_t tx, put; /* of the send queue, when it was packed */
		uint32_t n;	  /* requests; 0: nothing */
		size_t len;
	} packed;
	/* engine lock */
	struct watch tx_watch; /* for room: of tx_fd, connected to the full socket */
	struct timer tx_timer;
	struct work tx_work, fail_work;

	_Atomic uint32_t qkey;
	atomic_bool open; /* in RTR, RTS or SQD: takes datagrams */
	/* rx_lock */
	int rx_fd; /* AF_UNIX, named by the queue pair's number */
	struct ud_batch *batch;
	struct list held; /* datagrams that wait for a receive */
	_Atomic unsigned n_held;
	uint64_t held_since;
	bool dry; /* no receive has come for too long: nothing is held */
	struct timer held_timer;
	struct srq_waiter waiter;

	atomic_uint groups; /* that it is attached to */
	bool counted;	    /* in ud_port.pollers; arm_lock */
};

/* What the UD queue pairs of a port share. */
struct ud_port {
	struct lock lock;	/* held while reading; acquired before any rx_lock */
	struct ud_batch *batch; /* NULL until the first datagram */
	atomic_bool hot;	/* datagrams came lately: pollers read the socket */
	atomic_int pollers;	/* queue pairs that a poller has claimed */
	unsigned idle;		/* reads in a row without a datagram */
};

/* ---- ud.c: hooks ------------------------------------------------------- */

/* At creation and destruction of a UD queue pair, under the engine lock. -EADDRINUSE: try another number. */
int ud_create(struct stag_qp *qp);
void ud_destroy(struct stag_qp *qp);
void ud_after_fork(struct stag_qp *qp);

/* A UD queue pair goes to RTR, to RTS or back to RESET; in ERR qp_flush() is called as for others. Under tx_lock. */
void ud_moved(struct stag_qp *qp, enum ibv_qp_state from);

void ud_arm(
	struct stag_qp
		*qp); /* from qp_arm(), under arm_lock: a poller has claimed it, or not any more */

/* ---- ud_tx.c ------------------------------------------------------------ */

int ud_socket_name(uint32_t qpn, struct sockaddr_storage *out); /* returns its length */

/* Sets where a work request goes. ah NULL: nowhere. */
void ud_set_dest(struct stag_qp *qp, const struct wqe *w, struct ibv_ah *ah, uint32_t qpn,
		 uint32_t qkey);
const char *ud_check(struct stag_qp *qp,
		     const struct wqe *w); /* why it cannot be posted; or NULL */

/* Sends what is posted, and completes it. Under tx_lock; the queue pair is in RTS. */
void ud_run(struct stag_qp *qp);
void ud_watch_room(struct work *w);
void ud_fail_soon(struct stag_qp *qp); /* the queue pair goes to ERR */

/* ---- ud_rx.c ------------------------------------------------------------ */

/* Reads and delivers what has come. Returns whether there was anything. */
bool ud_progress(struct stag_qp *qp);
void ud_on_near(struct watch *w, uint32_t revents);
void ud_receive_posted(struct stag_qp *qp);
void ud_drop_held(struct stag_qp *qp);
void ud_on_shared_receive(struct srq_waiter *w);

/*
 * Delivers a datagram, decoded from buf, which is overwritten: the 40 bytes go before the payload. Checks the Q_Key.
 * Returns false if the queue pair holds it. Under rx_lock.
 */
bool ud_deliver(struct stag_qp *qp, const struct datagram *d, uint8_t *buf);
struct ud_batch *ud_new_batch(void);
void ud_rewind_batch(struct ud_batch *b, int n); /* prepares the first n for the next call */

/* ---- ud_port.c ---------------------------------------------------------- */

int ud_port_open(struct qp_port *port);
void ud_port_close(struct qp_port *port);
void ud_port_arm(struct qp_port *port);
bool ud_port_read(struct qp_port *port);
/* Sets the source of a datagram to the address that it came from. Returns false if its port is not that of the source QPN. */
bool ud_from_network(const struct msghdr *m, struct datagram *d);

/* The port's UDP socket has something. On the engine thread. */
void ud_arrived(struct qp_port *port);

#endif
