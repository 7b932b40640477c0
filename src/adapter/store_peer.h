/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * store_peer.h - a connection whose peer uses regions on storage: what is under way for it.
 *
 * Made when the peer first names such a region, and kept until its last operation is done, however the
 * connection ended: a write that came is carried out. Two directions meet in it. rx_store.c takes a peer's
 * writes into buffers, and those into the lane; tx_store.c takes its reads, atomics and flushes into the lane, and
 * gives their answers to who frames them.
 *
 * Locks: store_peer.lock is the lane's too. It comes behind tx_lock, and before those of the media. An operation's end
 * is told with that lock alone held; what follows from it for the queue pair (a message that may be delivered, an answer
 * that may be framed, a buffer that a socket waited for) is done a little later, by the same thread, with none
 * (peers_serve()).
 */
#ifndef STAG_STORE_PEER_H
#define STAG_STORE_PEER_H

#include "adapter/store.h"
#include "base/lock.h"
#include "wire/wire.h"

#define PEER_DEPTH  256			     /* operations with the media */
#define PEER_WRITES 256			     /* of the peer's writes, in the lane */
#define PEER_AHEAD  (16 * MEDIA_BUFFER_SIZE) /* bytes read before they can be sent */

/* Memory between the stream and a medium, shared by what is in it. */
struct peer_buffer {
	uint8_t *memory;
	struct media *media; /* whose it is; NULL: the connection's own */
	struct peer_supply *supply;
	unsigned refs;
};

/*
 * Buffers for one direction: the medium's; and where that has none left one of the connection's own, so that those
 * who hold the others without end cannot stop this one.
 */
struct peer_supply {
	struct store_peer *peer;
	struct media_waiter waiter;
	struct stag_medium *from; /* whom it waits for */
	bool waiting;		  /* granted will be called */
	struct peer_buffer *spare;
	struct peer_buffer own;
};

struct store_peer {
	struct lock lock;
	atomic_int refs;    /* one until its end, one of each news */
	struct stag_qp *qp; /* NULL: the connection has ended */
	unsigned users;	    /* threads that are with qp: it waits for them */
	bool ended;
	struct lane lane;
	uint32_t ops;		    /* in the lane */
	struct stag_medium **media; /* that it has used, a reference each; rx_lock */
	unsigned n_media;

	/* the peer's writes: rx_store.c */
	struct peer_supply in;
	struct list writes;	  /* peer_write.link: those that others wait for, in order */
	uint64_t last_write;	  /* number of the last one */
	_Atomic uint64_t reached; /* all up to this number have their level */
	uint32_t n_writes;
	_Atomic int failed; /* -errno: a write did */
	bool rx_waits;	    /* the receiver does, for room or for its turn */

	/* the peer's requests: tx_store.c */
	struct peer_supply out;
	struct list requests; /* peer_request.link: those that are not in the lane as a whole */
	uint32_t ahead;	      /* bytes in pieces */
	struct peer_buffer *buffer; /* in which the next piece gets its place */
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

struct peer_buffer *peer_take(struct peer_supply *s, struct stag_medium *m);	 /* NULL: not now */
struct peer_buffer *peer_try_take(struct peer_supply *s, struct stag_medium *m); /* does not wait */
void peer_give(struct peer_buffer *b);		   /* a reference; NULL is allowed */
bool peer_is_starved(const struct peer_supply *s); /* it got none, and will not be told of one */
void peer_add(struct store_peer *p, struct lane_op *op);
void peer_done(struct store_peer *p); /* one of those, by its done */
void peer_tell(struct store_peer *p); /* there is something for its queue pair */

/*
 * Around whatever calls back: news that come in between are kept by this thread, and served at
 * the end. No lock behind qps_lock held.
 */
void peers_listen(struct list *news);
void peers_serve(struct list *news);

/* ---- rx_store.c ------------------------------------------------------------ */

void rx_store_serve(struct stag_qp *qp, struct store_peer *p);

/* ---- tx_store.c ------------------------------------------------------------ */

struct peer_request; /* a read, an atomic or a flush */

/* Hands those that wait to the lane, as far as it takes them. */
void peer_advance(struct store_peer *p);
void peer_rest(struct store_peer *p); /* nothing more comes at present */
/* Would a write there go before a request that came before it? */
bool peer_overtakes(struct store_peer *p, const struct store_map *map, uint64_t len);

struct peer_request *peer_read(struct store_peer *p, const struct store_map *map, uint32_t stag,
			       uint64_t to, uint32_t size);
struct peer_request *peer_atomic(struct store_peer *p, const struct store_map *map,
				 const struct rdmap_atomic_req *r);
struct peer_request *peer_flush(struct store_peer *p);
void peer_begin(struct peer_request *r); /* it has its place in the queue of answers */
void peer_drop(struct peer_request *r);	 /* nobody waits for its answer; NULL is allowed */

/* Can (more of) its answer be given? fault: never. */
bool peer_is_ready(struct peer_request *r, struct wire_fault *fault);
/* The next bytes of a read, want at the most, in up to n pieces; each with a buffer for peer_give(). */
unsigned peer_take_data(struct peer_request *r, size_t want, struct iovec *iov,
			struct peer_buffer **buffers, unsigned n);
uint64_t peer_found(const struct peer_request *r); /* by an atomic */

#endif
