/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm.h - the librdmacm face, and the set-up of connections below it: MPA's for stag0, and InfiniBand's messages over TCP
 * for roce0.
 *
 * From the top down:
 *   id.c, resolve.c, connect.c, endpoint.c, resources.c ...   the rdma_* calls
 *   event.c       event channels: notifications to the program
 *   listener.c    a listening socket, and peers without a complete Request
 *   conn.c        one TCP connection on its way to a queue pair; conn.h has its parts
 *   negotiate.c   the outcome of two MPA frames; pure
 *   roce.c        what the messages of roce0 say, and what they make of a queue pair
 *   ud.h          ids of datagrams: lookups instead of connections, and multicast
 *
 * Locks: the engine lock protects everything here except the queues of the
 * event channels, which have a leaf lock each, and the count of events that the
 * program holds (event.c). Nothing blocks with the engine lock held. Callbacks
 * of the engine run with it held, so that a thread that holds it may destroy an
 * object.
 *
 * Real adapters: an rdma_cm_id exists before it is known which device it will
 * use, so the choice is made once for the process (real.c):
 *
 *   no real RDMA device       ours, always
 *   STAG_CM=real              every rdma_* call goes to rdma-core's librdmacm
 *   STAG_CM=stag, auto, unset ours
 */
#ifndef STAG_CM_H
#define STAG_CM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include "adapter/adapter.h"
#include "base/export.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/log.h"
#include "wire/cm_message.h"

#define CM_MAX_PRIVATE	 255  /* the length in a conn_param is one byte */
#define CM_BACKLOG	 1024 /* the kernel's default, if the program gives none */
#define CM_MAX_BACKLOG	 4096
#define CM_MAX_HALF_OPEN 1024 /* peers of one listener that have not sent a whole Request */

struct cm_id;
struct conn;
struct conn_protocol;
struct listener;
struct lookup;
struct lookup_listener;
struct lookup_request;

/* ---- negotiate.c: two frames, one agreement ---------------------------- */

/* Parameters that an application requests for a connection. */
struct conn_wish {
	uint16_t ird, ord;
	/* roce0 only */
	uint32_t qpn;
	uint8_t retry_count, rnr_retry_count;
	bool flow_control, srq;
	bool encrypted; /* set by conn.c */
	uint8_t private_len;
	uint8_t private_data[CM_MAX_PRIVATE];
};

/*
 * The form of our Request. A peer that closed the connection on an enhanced one gets the plain one.
 */
enum request_form { REQUEST_ENHANCED, REQUEST_PLAIN };
void negotiate_request(const struct conn_wish *w, enum request_form form, struct mpa_frame *req);

/* Makes our Reply to a Request, and the link that follows from the two. */
void negotiate_reply(const struct mpa_frame *req, const struct conn_wish *w, struct mpa_frame *rep,
		     struct qp_link *link);

/* Makes a Reply that rejects. */
void negotiate_reject(const struct mpa_frame *req, const struct conn_wish *w,
		      struct mpa_frame *rep);

/* Derives the link from a Reply to our Request; or returns the fault to terminate with. */
struct wire_fault negotiate_link(const struct mpa_frame *req, const struct mpa_frame *rep,
				 const struct conn_wish *w, struct qp_link *link);

/*
 * Returns what a frame tells the application: private data, which stays the frame's, and the depths that it may use
 * (RFC 6581 §5).
 */
void negotiate_param(const struct mpa_frame *peer, struct rdma_conn_param *p);

/* ---- conn.c, conn_*.c: one connection being set up --------------------- */

/*
 *   active:   TCP --connected--> [TLS_OUT -->] REPLY --frame--> handed over
 *              ^                    |            |
 *              +--refused, closed---+------------+   (conn_active.c: how often)
 *   passive:  [HELLO --> [TLS_IN -->]] REQUEST --frame--> ASKED --accept--> ANSWERING --sent--> handed over
 *                                  +-----reject--> ANSWERING --sent--> closed
 *
 * On roce0 the connection is not handed over, but stays:
 *
 *   active:   REPLY --REP--> [REPLIED --rdma_establish-->] LIVE         LIVE --DREQ, closed--> gone
 *   passive:  ANSWERING --sent--> AWAIT_RTU --RTU--> LIVE               LIVE --rdma_disconnect--> LEAVING --DREP--> gone
 *
 * TCP: connecting, or waiting to try again. HELLO: the first byte of the peer will say whether it speaks TLS. The parts in
 * brackets: unless TLS is off.
 *
 * From any state: ENDED, when the peer closes, violates the protocol, or times out.
 */
enum conn_state {
	CONN_TCP,
	CONN_TLS_OUT,
	CONN_REPLY,
	CONN_HELLO,
	CONN_TLS_IN,
	CONN_REQUEST,
	CONN_ASKED,
	CONN_ANSWERING,
	CONN_REPLIED,
	CONN_AWAIT_RTU,
	CONN_LIVE,
	CONN_LEAVING,
	CONN_ENDED
};

struct conn {
	struct list link; /* in a list of its source; on the active side in the dial queue */
	const struct conn_protocol
		*protocol;	   /* NULL until the first byte of a passive connection */
	struct cm_id *id;	   /* NULL until a passive connection is presented */
	struct listener *listener; /* while half open, or waiting to be presented */
	struct source *source;	   /* as long as that */
	enum conn_state state;
	int fd; /* -1 once the stream owns it */
	struct stream *stream;
	struct watch watch;
	struct timer timer;	/* overall deadline, not extended by progress */
	uint64_t turn;		/* sequence number in the dial queue */
	unsigned age;		/* the engine's age, which a fork increments */
	struct timer redial;	/* fires shortly after the peer refused, */
	uint64_t refused_until; /* until this time */
	bool was_reset;		/* one reset has already been retried */
	struct conn_wish wish;
	enum request_form form;
	bool dialled_again;
	bool secured;		/* TLS_OUT: the handshake is done, the Request waits for its turn */
	bool plain;		/* the peer does not speak TLS, and need not */
	struct list shake_link; /* TLS_IN: waits until the engine has time for handshakes */
	bool rejecting;		/* ANSWERING: the Reply is a reject */
	struct qp_link agreed;	/* ANSWERING */
	struct mpa_frame ours, peer; /* peer's private data points into rx */
	struct cm_message theirs;    /* roce0: the last one */
	size_t rx_len;
	size_t tx_len, tx_off;
	uint8_t rx[MPA_FRAME_MAX];
	uint8_t tx[MPA_FRAME_MAX];
};

/* Starts to connect id to its destination. Returns -errno of socket, bind or connect. */
int conn_connect(struct cm_id *id, const struct conn_wish *w, struct conn **out);
/* Takes over an accepted socket, even if it fails. */
int conn_accepted(struct listener *l, int fd);
/*
 * Makes an id for the Request, and notifies the program. Returns -errno if the connection is gone.
 */
int conn_present(struct conn *c, struct cm_id *listener, struct cm_id **child);
/*
 * Answers a Request. The connection is freed after reject; after accept, too, once the Reply is
 * sent.
 */
int conn_accept(struct conn *c, const struct conn_wish *w);
int conn_send_reject(struct conn *c, const struct conn_wish *w);
void conn_destroy(struct conn *c); /* tells the peer, or resets the connection; c may be NULL */
/* roce0: confirms a reply, or takes the request that was answered as confirmed. Returns -errno. */
int conn_establish(struct conn *c);
void conn_disconnect(
	struct conn *c); /* roce0, connected or awaiting the peer; id_ended() follows */

/* ---- listener.c -------------------------------------------------------- */

/* A peer's address, without its port; of IPv6, the network of 64 bits. */
struct source {
	struct list link;	/* in listener.sources */
	struct list turn;	/* in listener.turns, while any is waiting */
	struct list half_open;	/* conn.link, oldest first: the Request is incomplete */
	struct list waiting;	/* conn.link, oldest first: Requests not presented yet */
	struct list shakes;	/* conn.shake_link, oldest first: wait for a handshake */
	struct list shake_turn; /* in the line of tls.c, while any does */
	unsigned n_half_open, n_waiting;
	int family;
	uint8_t address[8];
};

struct listener {
	struct cm_id *id;
	struct watch watch;
	struct timer retry;	  /* fires after accept() ran out of descriptors or memory */
	struct list sources;	  /* of those below, oldest first */
	struct list turns;	  /* of those with Requests to be presented, in their turn */
	struct cm_id *unanswered; /* the id presented last; its asked_by is this listener */
	struct timer answer;	  /* how long the next Requests wait for its answer */
	bool in_bulk;		  /* Requests no longer wait for each other */
	unsigned n_half_open, n_waiting;
	unsigned backlog;
	unsigned
		undelivered; /* Requests that were presented, and that the program has not fetched */
	uint64_t delivered_at;	  /* when the program last fetched one */
	uint64_t dropped;	  /* peers that had to make room for others */
	uint64_t logged, told_at; /* how many of them were logged, and when */
	bool short_of_fds;	  /* descriptors or memory ran out; until retry */
	bool paused;		  /* for either reason: accepts no connections */
};

int listener_create(struct cm_id *id, int fd, int backlog, struct listener **out);
void listener_destroy(struct listener *l);
int listener_add(struct listener *l, struct conn *c);	  /* -ENOMEM */
void listener_remove(struct listener *l, struct conn *c); /* half open or waiting */
void listener_asked(struct listener *l, struct conn *c);  /* its Request is complete */
/* the Request presented last was accepted, rejected or destroyed */
void listener_answered(struct listener *l);
void listener_delivered(struct listener *l); /* the program has fetched a Request */

/* ---- tls.c: whether connections are encrypted -------------------------- */

struct id_tls {
	enum tls_mode mode;
	struct tls_context *context; /* NULL if off; holds a reference */
	bool chosen;		     /* by stagdv_set_tls(); otherwise by the environment */
};

/* Completes the choice of an id that is about to connect or listen. Returns -errno, having logged why. */
int id_choose_tls(struct cm_id *id);
void id_drop_tls(struct cm_id *id);
/* Returns whether a call must fail because rdma-core would carry it out, and TLS is required. */
bool tls_forbids_real(void);

/*
 * The engine's time for handshakes of strangers. Returns whether there is some; if not, c waits, and fn is called when
 * its turn comes. The sources take turns.
 */
bool handshake_may_run(struct conn *c, void (*fn)(struct conn *c));
bool handshake_waits(const struct conn *c);
void handshake_leave(struct conn *c); /* takes c off the line, if it waits there */
void handshake_ran(uint64_t ns);      /* reports how long it took */

/* ---- event.c: channels and events -------------------------------------- */

struct cm_channel {
	struct rdma_event_channel cm; /* fd: a semaphore eventfd that counts the queue */
	struct lock lock;
	struct list events;
};

struct cm_event {
	struct rdma_cm_event cm; /* must be first */
	struct list link;
	/* the id that waits for its acknowledgement: the listener of a request */
	struct cm_id *owner;
	enum rdma_cm_event_type type; /* the program may overwrite the one in cm */
	uint8_t private_data[CM_MAX_PRIVATE];
};

static inline struct cm_channel *to_cm_channel(struct rdma_event_channel *c)
{
	return (struct cm_channel *)c;
}

int cm_channel_open(struct rdma_event_channel **out);
void cm_channel_close(struct rdma_event_channel *channel); /* channel may be NULL */

/* Posts an event without private data or depths. */
void event_post(struct cm_id *id, enum rdma_cm_event_type type, int status);
/* Posts an event with what the peer said of the connection (NULL: nothing); copies its private data. */
void event_post_conn(struct cm_id *id, enum rdma_cm_event_type type, int status,
		     const struct rdma_conn_param *peer);
/* Posts an event of a datagram id; copies its private data, unless that has no length. */
void event_post_ud(struct cm_id *id, enum rdma_cm_event_type type, int status,
		   const struct rdma_ud_param *told);
/* Posts a request to listener, with child as its new id. Returns -ENOMEM. */
int event_post_request(struct cm_id *listener, struct cm_id *child,
		       const struct rdma_conn_param *peer);
int event_post_ud_request(struct cm_id *listener, struct cm_id *child,
			  const struct rdma_ud_param *told);
/* Drops the events queued for id, and destroys the children of its requests. */
void event_drop(struct cm_id *id);
void event_move(struct cm_id *id, struct cm_channel *to);
bool event_pending(struct cm_id *id);
/* Returns once every fetched event of id is acknowledged. Logs which are not, if that takes more than a second. */
void event_wait_acks(struct cm_id *id);

/* ---- id.c -------------------------------------------------------------- */

/*
 *   IDLE -> BOUND -> LISTENING
 *   IDLE, BOUND -> ADDR_RESOLVED -> ROUTE_RESOLVED -> CONNECTING -> CONNECTED -> CLOSED
 *   REQUESTED (a listener's child) -> ACCEPTING -> CONNECTED -> CLOSED
 *
 * ACCEPTING: the Reply is sent, and the peer's first FPDU is awaited, or its RTU on roce0. If a
 * set-up fails, the id is CLOSED. On roce0 there are also:
 *
 *   CONNECTING -> ANSWERED -> CONNECTED     the peer has accepted, and the program, whose queue pair the id does not
 *                                           know, has to confirm
 *   CONNECTED -> LEFT -> CLOSED             the peer has disconnected, the program has not
 */
enum id_state {
	ID_IDLE,
	ID_BOUND,
	ID_ADDR_RESOLVED,
	ID_ROUTE_RESOLVED,
	ID_LISTENING,
	ID_CONNECTING,
	ID_ANSWERED,
	ID_REQUESTED,
	ID_ACCEPTING,
	ID_CONNECTED,
	ID_LEFT,
	ID_CLOSED,
};

/* roce0: where a connection leads, and what it gives its queue pair; see roce.c. */
struct id_path {
	bool begun, known; /* a REQ was sent, or came; the peer's part is known, too */
	uint8_t sgid_index;
	union ibv_gid gid, peer_gid;
	uint32_t peer_qpn, sq_psn, rq_psn;
	uint8_t initiator_depth, responder_resources;
	uint8_t retry_count, rnr_retry_count; /* for our requests */
	uint8_t mtu, timeout;
};

struct cm_id {
	struct rdma_cm_id cm; /* must be first */
	unsigned num;	      /* number in log messages */
	enum id_state state;
	enum face
		face; /* of its device; a listener's, once it has one, does not bind its children */
	bool sync;    /* has a private channel; each call waits for its event */
	int fd;	      /* bound socket, not yet listening or connecting; -1: none */
	struct conn *conn; /* during connection set-up; on roce0 to the end */
	struct listener *listener;
	struct listener *asked_by;  /* REQUESTED: the listener that waits for our answer */
	uint32_t qpn;		    /* number of its queue pair; the program may free the pointer */
	bool has_qp;		    /* qpn is valid */
	bool port_fixed;	    /* the program chose the source port, or queried it early */
	bool disconnecting;	    /* the program requested it */
	struct timer first;	    /* ACCEPTING: the deadline of the first FPDU */
	uint8_t peer_ird, peer_ord; /* REQUESTED: the peer's offer */

	/* of datagrams: ud.h */
	struct lookup *lookup;		 /* CONNECTING */
	struct lookup_listener *lookups; /* LISTENING */
	struct lookup_request *request;	 /* REQUESTED */
	struct list groups;		 /* of multicast */
	uint32_t qkey;			 /* 0: none yet */

	bool reuse, afonly, has_afonly, has_tos; /* options */
	uint8_t tos;
	uint8_t ack_timeout; /* see set_ack_timeout() */
	bool has_ack_timeout;
	struct id_path path;

	struct ibv_qp_init_attr *ep_attr; /* rdma_create_ep(): for the children of a listener */
	struct ibv_pd *ep_pd;
	void *ep_private; /* rdma_create_ep(): ai_connect */
	size_t ep_private_len;

	struct id_tls tls;
	/* events that the program has fetched and not acknowledged: in all, and by type; see event.c */
	unsigned owed, owed_of[RDMA_CM_EVENT_TIMEWAIT_EXIT + 1];
};

static inline struct cm_id *to_cm_id(struct rdma_cm_id *id)
{
	return (struct cm_id *)id;
}

/* Creates an id; channel NULL: a synchronous id. Returns -errno. */
int id_create(struct rdma_event_channel *channel, void *context, enum rdma_port_space ps,
	      enum ibv_qp_type type, struct cm_id **out);
void id_destroy(struct cm_id *id); /* closes everything, waits for acknowledgements */
void id_set_state(struct cm_id *id, enum id_state to);
const char *id_state_str(enum id_state s);
/* Assigns the device of its face, the default protection domain and the port to the id. Returns -errno. */
int id_bind_device(struct cm_id *id);
/* Gives the id the device of its queue pair's domain, if it may still change. Returns false if it must not. */
bool id_follow_pd(struct cm_id *id, const struct ibv_pd *pd);
/* Creates the id of a listener's new connection, or lookup, between these addresses. */
int id_create_child(struct cm_id *listener, enum face face, const struct sockaddr_storage *local,
		    const struct sockaddr_storage *peer, struct cm_id **out);

/*
 * Returns -1 and sets errno for the caller, and logs the reason at STAG_LOG=info. id is NULL if it
 * was never created.
 */
int id_error(const struct cm_id *id, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/*
 * Ends a call that returned ret: releases the engine lock, after which another thread may destroy
 * the id. A synchronous id waits for its event, which becomes id->event. Returns 0, or -1 and
 * errno.
 */
int id_complete(struct cm_id *id, int ret);

/* ---- connect.c: how conn.c notifies an id ----------------------------- */

/* Returns the id's queue pair, looked up by number: the program may have destroyed it meanwhile. */
struct stag_qp *id_find_qp(const struct cm_id *id);
/* Returns the queue pair of an id of stag0 that is being connected, or connected; NULL if it is gone. */
struct stag_qp *id_qp(struct cm_id *id);
/* Passes a stream to the id's queue pair; takes the stream even if it fails. */
int id_attach(struct cm_id *id, struct stream *s, const struct qp_link *link);
void id_connected(struct cm_id *id, const struct rdma_conn_param *reply);
void id_accepted(struct cm_id *id, const struct qp_link *link);
void id_failed(struct cm_id *id, int status, const struct rdma_conn_param *reply);
/* roce0: */
void id_answered(struct cm_id *id,
		 const struct rdma_conn_param *reply); /* by the peer; see ANSWERED */
void id_awaits_peer(struct cm_id *id);		       /* its answer was sent */
void id_accept_done(struct cm_id *id);		       /* the peer has confirmed it */
void id_refused(struct cm_id *id, int reason, const struct rdma_conn_param *told);
void id_peer_left(struct cm_id *id);
void id_ended(struct cm_id *id, int status); /* after conn_disconnect() */

void id_close(struct cm_id *id);	   /* closes its connections and listeners */
void id_drop_request(struct cm_id *child); /* the program will never fetch it */
void id_set_qp(struct cm_id *id, uint32_t qpn);
void id_qp_gone(struct cm_id *id); /* its queue pair is about to be destroyed */

/* ---- roce.c: ids of roce0 ---------------------------------------------- */

uint8_t roce_depth(uint8_t told); /* a depth that a peer tells, as far as the device has it */
uint8_t roce_space(const struct cm_id *id); /* enum cm_space */
int roce_find_route(struct cm_id *id);	    /* -ENOMEM */
void roce_find_address(struct cm_id *id);   /* the GIDs of its addresses */
void roce_request(struct cm_id *id, const struct conn_wish *w,
		  struct cm_message *m); /* makes a REQ */
void roce_requested(struct cm_id *child, const struct cm_message *req);
void roce_accepting(struct cm_id *id, const struct conn_wish *w);
void roce_reply(struct cm_id *id, const struct conn_wish *w,
		struct cm_message *m); /* makes a REP */
void roce_replied(struct cm_id *id, const struct cm_message *rep);
/* For rdma_init_qp_attr(): the attributes of attr->qp_state. Returns -EINVAL if it is too early. */
int roce_qp_attr(const struct cm_id *id, struct ibv_qp_attr *attr, int *mask);
int roce_to_rts(struct cm_id *id); /* moves its queue pair. Returns -errno */
void roce_to_err(struct cm_id *id);

/* ---- address.c: socket addresses --------------------------------------- */

socklen_t address_len(const struct sockaddr *a); /* returns 0 if neither IPv4 nor IPv6 */
bool address_is_any(const struct sockaddr *a);
uint16_t address_port(const struct sockaddr *a);		       /* network order */
bool address_same(const struct sockaddr *a, const struct sockaddr *b); /* compares the port, too */
void address_set_port(struct sockaddr *a, uint16_t port);
void address_loopback(int family, struct sockaddr_storage *out);
void address_any(int family, struct sockaddr_storage *out);
void address_unmap(struct sockaddr_storage *a); /* ::ffff:a.b.c.d becomes a.b.c.d */
const char *address_str(const struct sockaddr *a, char *buf, size_t size);
/* Finds the local address of packets from src (NULL: any) to dst. Returns -errno. */
int address_source(const struct sockaddr *src, const struct sockaddr *dst,
		   struct sockaddr_storage *out);
#define ADDRESS_STR_LEN 64

/* Opens a TCP socket, of datagrams UDP, with id's options, CLOEXEC and non-blocking. Returns -errno. */
int socket_open(const struct cm_id *id, int family);
#define ACK_TIMEOUT_MAX 31
void socket_limit_silence(const struct cm_id *id, int fd); /* by RDMA_OPTION_ID_ACK_TIMEOUT */
/*
 * Opens and binds a socket; connections in TIME_WAIT do not prevent it. Port 0 is chosen now, or,
 * for an outgoing connection, by connect(), which may reuse a port that is connected to another
 * destination.
 */
enum bind_port { BIND_PORT_NOW, BIND_PORT_LATE };
int socket_bound(const struct cm_id *id, const struct sockaddr *addr, enum bind_port when);

/* ---- device.c ---------------------------------------------------------- */

bool cm_has_face(enum face face); /* may all ids use it? */
bool cm_may_use(const struct cm_id *id, enum face face);
enum face cm_first_face(void); /* of ids whose peer and queue pair do not say otherwise */
struct ibv_pd *default_pd(enum face face); /* a single one, never freed; NULL + errno */

/* ---- real.c: rdma-core's library --------------------------------------- */

/* Calls of later releases of rdma-core: not every <rdma/rdma_cma.h> declares them, and the real library may lack them. */
int rdma_query_addrinfo(struct rdma_cm_id *id, struct rdma_addrinfo **info);
int rdma_resolve_addrinfo(struct rdma_cm_id *id, const char *node, const char *service,
			  const struct rdma_addrinfo *hints);
int rdma_write_cm_event(struct rdma_cm_id *id, enum rdma_cm_event_type event, int status,
			uint64_t arg);

#define NEWER_CM_FUNCTIONS(F)                                                                      \
	F(query_addrinfo, "RDMACM_1.4")                                                            \
	F(resolve_addrinfo, "RDMACM_1.4")                                                          \
	F(write_cm_event, "RDMACM_1.4")

#define REAL_CM_FUNCTIONS(F)                                                                       \
	F(accept, "RDMACM_1.0")                                                                    \
	F(ack_cm_event, "RDMACM_1.0")                                                              \
	F(bind_addr, "RDMACM_1.0")                                                                 \
	F(connect, "RDMACM_1.0")                                                                   \
	F(create_ep, "RDMACM_1.0")                                                                 \
	F(create_event_channel, "RDMACM_1.0")                                                      \
	F(create_id, "RDMACM_1.0")                                                                 \
	F(create_qp, "RDMACM_1.0")                                                                 \
	F(create_qp_ex, "RDMACM_1.0")                                                              \
	F(create_srq, "RDMACM_1.0")                                                                \
	F(create_srq_ex, "RDMACM_1.0")                                                             \
	F(destroy_ep, "RDMACM_1.0")                                                                \
	F(destroy_event_channel, "RDMACM_1.0")                                                     \
	F(destroy_id, "RDMACM_1.0")                                                                \
	F(destroy_qp, "RDMACM_1.0")                                                                \
	F(destroy_srq, "RDMACM_1.0")                                                               \
	F(disconnect, "RDMACM_1.0")                                                                \
	F(establish, "RDMACM_1.2")                                                                 \
	F(event_str, "RDMACM_1.0")                                                                 \
	F(free_devices, "RDMACM_1.0")                                                              \
	F(freeaddrinfo, "RDMACM_1.0")                                                              \
	F(get_cm_event, "RDMACM_1.0")                                                              \
	F(get_devices, "RDMACM_1.0")                                                               \
	F(get_dst_port, "RDMACM_1.0")                                                              \
	F(get_remote_ece, "RDMACM_1.3")                                                            \
	F(get_request, "RDMACM_1.0")                                                               \
	F(get_src_port, "RDMACM_1.0")                                                              \
	F(getaddrinfo, "RDMACM_1.0")                                                               \
	F(init_qp_attr, "RDMACM_1.2")                                                              \
	F(join_multicast, "RDMACM_1.0")                                                            \
	F(join_multicast_ex, "RDMACM_1.1")                                                         \
	F(leave_multicast, "RDMACM_1.0")                                                           \
	F(listen, "RDMACM_1.0")                                                                    \
	F(migrate_id, "RDMACM_1.0")                                                                \
	F(notify, "RDMACM_1.0")                                                                    \
	F(reject, "RDMACM_1.0")                                                                    \
	F(reject_ece, "RDMACM_1.3")                                                                \
	F(resolve_addr, "RDMACM_1.0")                                                              \
	F(resolve_route, "RDMACM_1.0")                                                             \
	F(set_local_ece, "RDMACM_1.3")                                                             \
	F(set_option, "RDMACM_1.0")

struct real_cm {
#define REAL_CM_POINTER(name, version) __typeof__(&rdma_##name) name;
	REAL_CM_FUNCTIONS(REAL_CM_POINTER)
	NEWER_CM_FUNCTIONS(REAL_CM_POINTER) /* or NULL */
#undef REAL_CM_POINTER
};

/*
 * Fills the table. Returns how many functions rdma-core's library lacks (all, if it is not
 * installed).
 */
unsigned real_cm_resolve(struct real_cm *table);
/*
 * Returns the table if this process's calls go to rdma-core, else NULL. Called by every rdma_*
 * call.
 */
const struct real_cm *real_cm(void);

/* First line of a public function: forwards the call to rdma-core if the process chose it. */
#define PASS_TO_REAL(call)                                                                         \
	do {                                                                                       \
		const struct real_cm *real_lib = real_cm();                                        \
		if (__builtin_expect(real_lib != NULL, 0))                                         \
			return real_lib->call;                                                     \
	} while (0)

#define PASS_TO_REAL_VOID(call)                                                                    \
	do {                                                                                       \
		const struct real_cm *real_lib = real_cm();                                        \
		if (__builtin_expect(real_lib != NULL, 0)) {                                       \
			real_lib->call;                                                            \
			return;                                                                    \
		}                                                                                  \
	} while (0)

#endif
