/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store_peer.h - a connection whose peer uses regions on storage: its operations in flight.
 *
 * Created when the peer first names such a region, and kept until its last operation is done,
 * however the connection ended: a write that was received is carried out. It serves both
 * directions. rx_store.c receives the peer's writes into buffers, and hands those to the lane;
 * tx_store.c hands the peer's reads, atomics and flushes to the lane, and their results to the
 * code that frames responses.
 *
 * Locks: store_peer.lock is the lane's lock, too. It is acquired after tx_lock, and before
 * those of the media. The end of an operation is handled under that lock alone. The
 * consequences for the queue pair (a message to deliver, a response to frame, a buffer that the
 * receiver waited for) are handled a little later, by the same thread, without it
 * (peers_serve()).
 */
#ifndef STAG_STORE_PEER_H
#define STAG_STORE_PEER_H

#include "adapter/store.h"
#include "base/lock.h"
#include "wire/wire.h"

#define PEER_DEPTH  256			     /* most operations in flight with the media */
#define PEER_WRITES 256			     /* most writes of the peer in the lane */
#define PEER_AHEAD  (16 * MEDIA_BUFFER_SIZE) /* most bytes read before they can be sent */

/* Memory between the stream and a medium. Several operations may share it. */
struct peer_buffer {
	uint8_t *memory;
	struct media *media; /* the medium that it belongs to; NULL: the connection's own */
	struct peer_supply *supply;
	unsigned refs;
};

/*
 * Buffers for one direction. They are the medium's. If the medium has none left, the connection
 * uses one of its own, so that others who hold the medium's buffers cannot stop it.
 */
struct peer_supply {
	struct store_peer *peer;
	struct media_waiter waiter;
	struct stag_medium *from; /* the medium whose buffer it waits for */
	bool waiting;		  /* waiter.granted will be called */
	struct peer_buffer *spare;
	struct peer_buffer own;
};

struct store_peer {
	struct lock lock;
	atomic_int refs;    /* one until its end, and one while it is listed for service */
	struct stag_qp *qp; /* NULL: the connection has ended */
	unsigned users;	    /* threads that serve qp; peer_leave() waits for them */
	bool ended;
	struct lane lane;
	uint32_t ops;		    /* operations in the lane */
	struct stag_medium **media; /* media that it has used, with a reference each; rx_lock */
	unsigned n_media;

	/* The peer's writes: rx_store.c. */
	struct peer_supply in;
	struct list writes;	  /* peer_write.link: writes that others wait for, in order */
	uint64_t last_write;	  /* number of the last one */
	_Atomic uint64_t reached; /* all writes up to this number have reached their level */
	uint32_t n_writes;
	_Atomic int failed; /* -errno of the first write that failed */
	bool rx_waits;	    /* the receiver waits for room, or for its turn */

	/* The peer's requests: tx_store.c. */
	struct peer_supply out;
	struct list requests;	    /* peer_request.link: requests that are not all in the lane */
	uint32_t ahead;		    /* bytes in pieces, not sent yet */
	struct peer_buffer *buffer; /* the buffer for the next piece, used up to `used` */
	uint32_t used;

	bool told;
	struct list news;
	struct work work;
};

/* ---- store_peer.c ---------------------------------------------------------- */

struct store_peer *peer_of(struct stag_qp *qp); /* creates it at first; NULL: no memory */
/* Keeps a reference to the medium, and has it polled from now on. Returns 0 or -ENOMEM. */
int peer_use(struct store_peer *p, struct stag_medium *m);
/* Ends it with the connection. Acquires locks behind the engine's. Takes NULL. */
void peer_leave(struct store_peer *p);

struct peer_buffer *peer_take(struct peer_supply *s, struct stag_medium *m); /* NULL: none now */
struct peer_buffer *peer_try_take(struct peer_supply *s, struct stag_medium *m); /* never waits */
void peer_give(struct peer_buffer *b);		   /* drops a reference; NULL is allowed */
bool peer_is_starved(const struct peer_supply *s); /* got none, and will not be granted one */
void peer_add(struct store_peer *p, struct lane_op *op);
void peer_done(struct store_peer *p); /* called by the operation's done */
void peer_tell(struct store_peer *p); /* lists it for service by this thread or the engine */

/*
 * Around calls that run callbacks: peers listed meanwhile are kept by this thread, and served
 * at the end. The caller holds no lock that comes after qps_lock.
 */
void peers_listen(struct list *news);
void peers_serve(struct list *news);

/* ---- rx_store.c ------------------------------------------------------------ */

void rx_store_serve(struct stag_qp *qp, struct store_peer *p);

/* ---- tx_store.c ------------------------------------------------------------ */

struct peer_request; /* a read, an atomic or a flush */

/* Hands those that wait to the lane, as far as it takes them. */
void peer_advance(struct store_peer *p);
void peer_rest(struct store_peer *p); /* no request follows for now */
/* Would a write there overtake a request that came before it? */
bool peer_overtakes(struct store_peer *p, const struct store_map *map, uint64_t len);

struct peer_request *peer_read(struct store_peer *p, const struct store_map *map, uint32_t stag,
			       uint64_t to, uint32_t size);
struct peer_request *peer_atomic(struct store_peer *p, const struct store_map *map,
				 const struct rdmap_atomic_req *r);
struct peer_request *peer_flush(struct store_peer *p);
void peer_begin(struct peer_request *r); /* its response has a place in the queue */
void peer_drop(struct peer_request *r);	 /* the response is not needed; NULL is allowed */

/* Is (more of) the response ready? fault: it never will be. */
bool peer_is_ready(struct peer_request *r, struct wire_fault *fault);
/*
 * Returns the next bytes of a read, at most want, in up to n pieces, each with a buffer for
 * peer_give().
 */
unsigned peer_take_data(struct peer_request *r, size_t want, struct iovec *iov,
			struct peer_buffer **buffers, unsigned n);
uint64_t peer_found(const struct peer_request *r); /* the value that an atomic found */

#endif
