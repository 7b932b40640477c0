/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * adapter.h - the software RNIC: its objects, and who may call what.
 *
 * The two faces (src/verbs, src/cm) turn public calls into calls on these
 * objects. Functions return 0 or a count, or -errno; constructors take the
 * address of the result.
 *
 * Locks, in the order in which they are taken (a later one may be taken while
 * holding an earlier one, never the other way round):
 *
 *   engine        one, recursive; held while a watch, timer or work callback
 *                 runs; guards all state of conn.c and src/cm but the queues of
 *                 event channels
 *   channel->cqs_lock  the completion queues of a channel
 *   cq->qps_lock  the queue pairs of a completion queue, while somebody makes
 *                 progress for it
 *   qp->rx_lock   the receive side of a queue pair
 *   mirror.c's lock  which region has which mirrors
 *   qp->tx_lock   the send queue and the send side; qp->state is written under it
 *   qp->shots.lock  the STags of its sends
 *   qp->rq_lock, srq->lock, cq->lock, channel->lock, ctx->async_lock, the key
 *   table's and the timers' locks: leaves, held for a few lines
 *
 * Who moves data (see engine.c): a work request is sent by the thread that
 * posts it; a thread that polls an empty completion queue reads the sockets of
 * that queue's queue pairs; the engine thread does both when nobody else does.
 */
#ifndef STAG_ADAPTER_H
#define STAG_ADAPTER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <infiniband/verbs.h>

#include "base/list.h"
#include "stag/stagdv.h"
#include "wire/wire.h"

struct stag_qp;
struct stag_cq;
struct key_slot;
struct stream;
struct store_peer;
struct peer_request;
struct store_region; /* store.h, as the next three */
struct stag_medium;
struct lane;
struct store_qp;

/* ---- limits: what a query of the device says --------------------------- */

#define STAG_MAX_QP	 65536
#define STAG_MAX_QP_WR	 32768
#define STAG_MAX_SGE	 32
#define STAG_MAX_INLINE	 4096
#define STAG_MAX_CQE	 (1 << 20)
#define STAG_MAX_CQ	 65536
#define STAG_MAX_SRQ_WR	 32768
#define STAG_MAX_RD_ATOM 128 /* IRD and ORD */
#define STAG_MAX_MSG	 0xffffffffu
#define STAG_MAX_PRIVATE (255 - MPA_ENHANCED_LEN - MPA_EXT_LEN)
#define STAG_FAST_MR_SGE 512

/* ---- config.c: the environment, read once ------------------------------ */

struct stag_config {
	bool crc;		     /* STAG_CRC: ask for CRCs (default on) */
	bool markers;		     /* STAG_MARKERS: ask the peer for markers (default off) */
	bool extensions;	     /* STAG_EXTENSIONS: offer the stag extensions (default on) */
	enum shot_encoding one_shot; /* STAG_ONE_SHOT: of one-shot sends, where the peer connects
				      * (default SHOT_OPCODES); SHOT_NONE: no such sends at all */
	bool p2p;		     /* STAG_P2P: offer RFC 6581 peer-to-peer mode (default on) */
	unsigned mpa_rev;	     /* STAG_MPA_REV: 1 or 2 (default 2) */
	unsigned first_delay_ms;     /* STAG_FIRST_DELAY: pause before the first FPDU to a
				  * peer that is not stag (default 10): siw listens for it only
				  * some time after it sent its Reply */
	unsigned connect_timeout_ms; /* STAG_CONNECT_TIMEOUT: TCP and MPA set-up (default 10000) */
	unsigned refused_retry_ms;   /* STAG_REFUSED_RETRY: how long a refused TCP connect is tried
				    * again before the program hears of it (default 200) */
	unsigned part_id;	/* STAG_PART_ID: vendor_part_id, by which some programs choose */
	const char *trace;	/* STAG_TRACE: pcapng file, %p in it becomes the process id */
	const char *congestion; /* STAG_CONGESTION: TCP congestion control, NULL: the system's */
};

const struct stag_config *config(void);

/* ---- engine.c: the thread that serves sleepers ------------------------- */

/* Readiness of a descriptor, told to fn on the engine thread, engine lock held. */
struct watch {
	int fd;
	uint32_t events; /* EPOLLIN, EPOLLOUT; level-triggered */
	void (*fn)(struct watch *w, uint32_t revents);
	uint32_t slot; /* these are private to engine.c */
	unsigned forks;
	uint64_t cookie;
};

/* fn runs once on the engine thread, engine lock held, at or after deadline. */
struct timer {
	uint64_t deadline; /* clock_ns() */
	void (*fn)(struct timer *t);
	struct list link;
	bool armed;
};

/* fn runs once, soon, on the engine thread, engine lock held. */
struct work {
	void (*fn)(struct work *w);
	struct list link;
	bool queued;
};

int engine_start(void); /* idempotent; starts the thread */
void engine_lock(void); /* recursive */
void engine_unlock(void);
bool engine_locked(void); /* by this thread; for asserts */

/*
 * add and del are called with the engine lock held; mod from anywhere while the
 * watch is added. After del returns fn does not run again.
 */
int watch_add(struct watch *w, int fd, uint32_t events, void (*fn)(struct watch *, uint32_t));
int watch_mod(struct watch *w, uint32_t events);
void watch_del(struct watch *w); /* harmless on one that was zeroed and never added */

/* set: from anywhere (re-arms); cancel: with the engine lock held. Zero-initialise a timer first. */
void timer_set(struct timer *t, uint64_t deadline, void (*fn)(struct timer *));
void timer_cancel(struct timer *t);

/* queue: from anywhere, also twice; cancel: with the engine lock held. */
void work_queue(struct work *w, void (*fn)(struct work *));
void work_cancel(struct work *w);

/* ---- stream.c: bytes in order, both ways ------------------------------- */

/*
 * A queue pair asks its stream for bytes and does not know what it is. send and
 * recv return a count, 0 at end of file (recv), or -errno; -EAGAIN where nothing
 * can be moved now.
 */
struct stream_ops {
	ssize_t (*send)(struct stream *s, const struct iovec *iov, int n);
	ssize_t (*recv)(struct stream *s, const struct iovec *iov, int n);
	void (*shutdown)(struct stream *s); /* no more bytes from us; what was sent still arrives */
	void (*abort)(struct stream *s);    /* drop everything, the peer sees a reset */
	void (*close)(struct stream *s);    /* free; no abort of what was sent */
	int (*ready)(struct stream *s);	    /* POLLIN, POLLOUT: what could be done now */
	unsigned (*emss)(struct stream *s); /* bytes of a TCP segment now */
	unsigned (*unsent)(struct stream *s); /* bytes not yet acknowledged by the peer */
};

struct trace_conn;

struct stream {
	const struct stream_ops *ops;
	int fd;			  /* to wait on; -1 where there is none */
	struct trace_conn *trace; /* NULL unless STAG_TRACE */
	uint64_t tx_calls, rx_calls, tx_again, rx_again, tx_bytes, rx_bytes;
	struct sockaddr_storage local, peer;
};

/* Takes over a connected, non-blocking TCP socket (not on failure). */
int stream_open_tcp(struct stream **out, int fd, bool initiator);
static inline void stream_close(struct stream *s)
{
	if (s)
		s->ops->close(s);
}

/* ---- trace.c: what passes a stream, as pcapng -------------------------- */

/* NULL when tracing is off or cannot be (logged once). local and peer name the packets. */
struct trace_conn *trace_open(const struct sockaddr_storage *local,
			      const struct sockaddr_storage *peer, bool initiator);
void trace_bytes(struct trace_conn *t, bool sent, const struct iovec *iov, int n, size_t len);
void trace_close(struct trace_conn *t, bool reset); /* FIN or RST packets; frees */

/* ---- device.c ---------------------------------------------------------- */

struct stag_device {
	struct ibv_device ibv; /* first; */
	uint8_t tail[1024];    /* zeroes: provider libraries look behind ibv_device */
};

struct async_item { /* a queued asynchronous event */
	struct list link;
	struct ibv_async_event event;
};

struct stag_ctx {
	struct list link;
	atomic_int refs; /* the program's, and one of each PD, CQ and channel */
	pthread_mutex_t async_lock;
	struct list async_events; /* async_item; the eventfd counts them */
	struct verbs_context v;	  /* last: v.context is what the program holds */
};

static inline struct stag_ctx *to_stag_ctx(struct ibv_context *c)
{
	return container_of(c, struct stag_ctx, v.context);
}

struct stag_device *stag_device(void); /* the one and only; valid for the process's life */

/*
 * A context with everything but the function pointers of v (src/verbs fills
 * those). async_fd is a semaphore eventfd.
 */
int ctx_create(struct stag_ctx **out);
void ctx_destroy(struct stag_ctx *ctx); /* the program's part; what still uses it keeps it */
void ctx_get(struct stag_ctx *ctx);
void ctx_put(struct stag_ctx *ctx);
void ctx_async(struct stag_ctx *ctx, const struct ibv_async_event *ev); /* queue; never blocks */
int ctx_get_async(struct stag_ctx *ctx,
		  struct ibv_async_event *ev);		       /* a read() of async_fd: -EAGAIN.. */
void ctx_drop_async(struct stag_ctx *ctx, const void *object); /* forget undelivered events of it */

/* Sleeps until the program has acknowledged all events of an object that it was handed. */
void wait_for_acks(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acked,
		   uint32_t handed);

void device_query(struct ibv_device_attr_ex *attr);
void device_query_port(struct ibv_port_attr *attr);
void device_gid(unsigned index, union ibv_gid *gid);
#define STAG_GID_COUNT 1
void device_counters(struct stagdv_counters *c); /* totals, live queue pairs included */
extern struct stag_totals {
	_Atomic uint64_t engine_wakeups, connects, accepts, disconnects;
	_Atomic uint64_t registrations;	  /* but of one-shot sends */
	_Atomic uint64_t shared_receives; /* posted to SRQs */
} stag_totals;

/* ---- pd.c -------------------------------------------------------------- */

struct stag_pd {
	struct ibv_pd ibv;
	atomic_int users;	/* regions, windows, queue pairs, SRQs, parent domains */
	struct stag_pd *parent; /* of a parent domain: the domain that it stands for */
};

static inline struct stag_pd *to_stag_pd(struct ibv_pd *pd)
{
	return (struct stag_pd *)pd;
}

int pd_alloc(struct stag_ctx *ctx, struct stag_pd **out);
int pd_dealloc(struct stag_pd *pd);	     /* -EBUSY while something uses it */
struct stag_pd *pd_root(struct stag_pd *pd); /* through parent domains */

/* ---- keys.c: the table of STags ---------------------------------------- */

enum key_kind { KEY_MR, KEY_FAST_MR, KEY_MW1, KEY_MW2, KEY_STORE, KEY_SHOT };

/* Why an access was refused; each side has its own words for it. */
enum key_fault {
	KEY_OK,
	KEY_INVALID, /* no such key, or nothing behind it */
	KEY_BOUNDS,
	KEY_RIGHTS,
	KEY_OTHER_PD,
	KEY_OTHER_QP,
	KEY_WRAP,
	KEY_BUSY,     /* no hazard cell is free: again, a little later */
	KEY_ON_STORE, /* it is no memory: store_get() */
	KEY_LAPSED,   /* its lease is over */
};

const char *key_fault_str(enum key_fault f);

/*
 * One slot of the table. Slots are never freed, so that a look-up needs no
 * lock: a reader raises users, then checks that stag is still what it looked
 * for; an owner clears stag, then waits for users to fall to zero.
 */
struct key_slot {
	_Atomic uint32_t stag; /* 0: nobody may use it */
	_Atomic uint32_t users;
	uint32_t key;  /* the whole key while allocated, valid or not */
	uint64_t life; /* another each time that it becomes usable: a tag may come again */
	uint8_t kind;  /* enum key_kind */
	bool allocated;
	uint8_t key_turn, key_step; /* the low bits of the key when it was allocated; odd */
	unsigned access;
	struct stag_pd *pd;
	struct stag_qp *qp;	 /* KEY_MW2, KEY_SHOT: the only queue pair that may use it */
	struct shot *shot;	 /* KEY_SHOT: one_shot.c's */
	struct key_slot *parent; /* windows: the region below */
	uint64_t base;		 /* TO of the first byte */
	uint64_t win_off;	 /* windows: where in the region they begin */
	uint64_t len;
	unsigned nseg;
	struct iovec one;		  /* the memory, where nseg is 1 */
	struct iovec *seg;		  /* &one, or an array of nseg */
	const struct stagdv_guard *guard; /* NULL: none; else asked before each access */
	_Atomic uint64_t lease;		  /* peers' ends then (clock_boot_ns()); 0: it does not */
	struct store_region *store;	  /* KEY_STORE: where it is instead of in memory */
	_Atomic uint32_t lent;		  /* of users: operations on storage, which take a while */
	atomic_int windows;		  /* bound to this region; and STags of sends over it */
	struct list *_Atomic mirrors;	  /* mirror.c: those of this region, or NULL */
};

/* Memory found behind a key. The references are held until key_put(). */
struct key_map {
	struct key_slot *slot[2]; /* the key's, and its parent's if it is a window */
	uint64_t *cell;		  /* the hazard of a guarded region, or NULL */
	unsigned n;		  /* pieces */
	size_t len;		  /* their sum: may be less than asked where pieces run out */
	struct iovec iov[8];
};

/*
 * Maps [to, to+len) of stag for an access by qp (in pd): on KEY_OK fills map and
 * holds references until key_put(map); otherwise holds none. access: the rights
 * needed, all of them. qp NULL: a local access, windows are not allowed then.
 * Of a guarded region also the hazard is set until key_put(). Where all cells are taken key_get()
 * waits for one, which only those may do who hold none; key_try_get() answers KEY_BUSY.
 */
enum key_fault key_get(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp, uint64_t to,
		       uint64_t len, unsigned access, struct key_map *map);
enum key_fault key_try_get(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp, uint64_t to,
			   uint64_t len, unsigned access, struct key_map *map);
void key_put(struct key_map *map);

/*
 * Another range under the key that the map holds, for the same access; NULL: it is another key's, or
 * outside, or the region is not in one piece. Then key_get() says what is true.
 */
static inline uint8_t *key_near(const struct key_map *map, uint32_t stag, uint64_t to, uint64_t len)
{
	const struct key_slot *s = map->slot[0];

	if (!s || s->key != stag || s->nseg != 1 || s->parent || to < s->base ||
	    to - s->base > s->len || len > s->len - (to - s->base))
		return NULL;
	return (uint8_t *)s->seg->iov_base + (to - s->base);
}

/* A reference to a slot seen before: false when its tag is no longer stag. */
bool key_hold(struct key_slot *slot, uint32_t stag);
/* The same where memory behind it is remembered, too: false also when it has got other memory since. */
bool key_hold_again(struct key_slot *slot, uint32_t stag, uint64_t life);
void key_release(struct key_slot *slot);

/* The region whose memory the map has; NULL: the references are with somebody else, or there are none. */
static inline struct key_slot *key_region(const struct key_map *map)
{
	return map->slot[1] ? map->slot[1] : map->slot[0];
}

static inline bool key_is_leased(const struct key_slot *region)
{
	return atomic_load_explicit(&region->lease, memory_order_relaxed);
}

/*
 * Is its lease over? An access by a peer begins within the lease
 * (key_get()); who asks again when he has copied knows that what he has was there within it, however long he slept.
 */
bool key_has_lapsed(const struct key_slot *region);
/* A peer's access is refused: what has to be counted is. */
void key_refused(struct stag_qp *qp, uint32_t stag, enum key_fault f);

int key_alloc(enum key_kind kind, struct stag_pd *pd, struct key_slot **out); /* -ENOMEM */
/* The slot of just this tag: -EEXIST, -ENOMEM, -EINVAL (it is nobody's). */
int key_alloc_as(enum key_kind kind, struct stag_pd *pd, uint32_t stag, struct key_slot **out);
uint32_t key_choose(void); /* a tag whose slot is free now, and which it did not have last */
void key_publish(struct key_slot *slot, uint32_t stag); /* from now on usable under stag */
void key_revoke(struct key_slot *slot);	  /* unusable; returns when no access is under way */
uint32_t key_next(struct key_slot *slot); /* another tag for it: see next_key() */
struct key_slot *key_find(uint32_t stag); /* with a reference, or NULL: nobody may use it */
void key_each_shot(void (*fn)(const struct shot *s, void *arg), void *arg); /* published ones */
void key_free(struct key_slot *slot);	     /* revokes; the slot's next tag differs */
struct key_slot *key_slot_of(uint32_t stag); /* the allocated slot with that index, or NULL */

/* ---- guard.c: regions that a word elsewhere closes ---------------------- */

int guard_check(const struct stagdv_guard *g); /* -EINVAL: it makes no sense */
/* Before an access: on KEY_OK the hazard is in *cell (NULL where there is none) until guard_leave(). */
enum key_fault guard_enter(const struct stagdv_guard *g, uint64_t **cell);
void guard_leave(uint64_t *cell); /* NULL is allowed */

/* ---- mr.c, mw.c -------------------------------------------------------- */

struct stag_mr {
	struct ibv_mr ibv; /* lkey == rkey == STag */
	struct key_slot *slot;
	unsigned max_sge;	    /* fast regions */
	struct stagdv_guard guard;  /* where slot->guard is set */
	struct store_region *store; /* of a region on storage: its own, as slot->store */
	struct list mirrors;	    /* mirror.c */
};

struct stag_mw {
	struct ibv_mw ibv;
	struct key_slot *slot;
};

static inline struct stag_mr *to_stag_mr(struct ibv_mr *mr)
{
	return (struct stag_mr *)mr;
}

static inline struct stag_mw *to_stag_mw(struct ibv_mw *mw)
{
	return (struct stag_mw *)mw;
}

/* guard: NULL, or copied */
int mr_reg(struct stag_pd *pd, void *addr, size_t len, uint64_t iova, unsigned access,
	   const struct stagdv_guard *guard, struct stag_mr **out);
int mr_reg_keyed(struct stag_pd *pd, void *addr, size_t len, unsigned access, uint32_t key,
		 struct stag_mr **out); /* also -EEXIST: somebody has that index */
int mr_set_lease(struct stag_mr *mr, uint64_t until);
/* flags: enum ibv_rereg_mr_flags; on failure the region is as before. */
int mr_rereg(struct stag_mr *mr, int flags, struct stag_pd *pd, void *addr, size_t len,
	     unsigned access);
int mr_dereg(struct stag_mr *mr);      /* -EBUSY while windows are bound to it, or it is mirrored */
int mirror_end_mr(struct stag_mr *mr); /* -EBUSY: some of its mirrors are alive */
void mirror_end_qp(struct stag_qp *qp); /* it is destroyed: those over it have ended */
void mirror_leave(struct stag_qp *qp);	/* it waits for no mirror any more; engine lock held */
void mirrors_after_fork(void);
int mr_alloc_fast(struct stag_pd *pd, unsigned max_sge, struct stag_mr **out);

int mw_alloc(struct stag_pd *pd, enum ibv_mw_type type, struct stag_mw **out);
int mw_dealloc(struct stag_mw *mw);

/* ---- one_shot.c, ledger.c: STags that go with sends ---------------------- */

struct shot;

/* Those of one queue pair. */
struct shots {
	pthread_mutex_t lock;	/* behind tx_lock, before the key table's */
	struct list open, idle; /* shot.link; idle: the longest first */
	unsigned count;		/* in both */
	uint64_t advertised, closed, withdrawn, orphaned;
	_Atomic uint64_t late;
};

void shots_init(struct stag_qp *qp);
void shots_free(struct stag_qp *qp);
/* Lends the memory of wr: -ENOMEM, -EINVAL, -EPERM (logged). */
int shot_open(struct stag_qp *qp, const struct stagdv_advertise *wr, uint32_t *stag);
/* 0: it is refused from now on. -ENOENT: no such is open; -EACCES: it is another queue pair's. */
int shot_end(struct stag_qp *qp, uint32_t stag, enum stagdv_stag_end how, uint32_t *reference);
void shots_orphan(struct stag_qp *qp);		   /* all of them: the connection has ended */
void shot_read(const struct key_slot *k);	   /* the peer does, if it is one; rx_lock held, */
void shot_written(const struct key_slot *k);	   /* and a reference to the slot */
void shot_late(struct stag_qp *qp, uint32_t stag); /* refused; was it one once? */
bool shot_is_open(const struct shot *s);	   /* of a slot that is held, as the next */
void shot_describe(const struct shot *s, struct stagdv_stag *out);

void ledger_add(const struct stagdv_stag *stag); /* one that ends */
/* Counts one that came on this queue pair; false: the STag is not in there. */
bool ledger_late(uint32_t stag, uint32_t qp_num, struct stagdv_stag *out);
ssize_t ledger_query(void *list, size_t n, size_t size); /* as stagdv_query_stags() */
void ledger_after_fork(void);

/* ---- channel.c, cq.c --------------------------------------------------- */

struct stag_channel {
	struct ibv_comp_channel ibv; /* fd: a semaphore eventfd that counts queued events */
	pthread_mutex_t lock;
	struct list ready;	  /* stag_cq.ready: completion queues with an event */
	pthread_mutex_t cqs_lock; /* cqs; taken before any qps_lock */
	struct list cqs;	  /* stag_cq.channel_link */
	atomic_int sleepers;	  /* threads in channel_get_event() */
	atomic_bool watched; /* one of them watches the sockets; no one else may claim any then */
};

static inline struct stag_channel *to_stag_channel(struct ibv_comp_channel *c)
{
	return (struct stag_channel *)c;
}

int channel_create(struct stag_ctx *ctx, struct stag_channel **out);
int channel_destroy(struct stag_channel *ch);			     /* -EBUSY while a CQ uses it */
int channel_get_event(struct stag_channel *ch, struct stag_cq **cq); /* blocks unless O_NONBLOCK */

struct cqe {
	struct ibv_wc wc;
	uint64_t ts; /* CLOCK_MONOTONIC ns, where the queue wants time stamps */
	uint64_t wall_ts;
};

#define CQ_MAX_CLAIM 32

/* Who watches the sockets of a completion queue's queue pairs instead of the engine. */
enum cq_claim { CLAIM_NONE, CLAIM_POLLER, CLAIM_SLEEPER };

struct stag_cq {
	union {
		struct ibv_cq ibv;
		struct ibv_cq_ex ibv_ex;
	};
	struct stag_channel *channel;
	atomic_int users; /* queue pairs */

	pthread_mutex_t lock; /* the ring and arming */
	struct cqe *ring;
	uint32_t mask; /* ring entries - 1; the ring grows on demand, up to any number */
	_Atomic uint32_t put, get; /* free-running */
	bool overflowed;	   /* more than ibv.cqe entries at once: told once */
	bool wants_ts;
	enum { CQ_IDLE, CQ_ARMED_SOLICITED, CQ_ARMED } armed;
	uint32_t events_sent;	  /* completion events that the program was handed */
	uint32_t async_sent;	  /* the same for asynchronous ones */
	struct list ready;	  /* in channel->ready */
	unsigned ready_count;	  /* events of this queue that wait there */
	struct list channel_link; /* in channel->cqs */

	pthread_mutex_t qps_lock;	       /* progress; see engine.c */
	struct list qps;		       /* qp_attachment.link */
	_Atomic unsigned n_qps;		       /* written under qps_lock */
	_Atomic unsigned n_on_store;	       /* of these, those on storage */
	struct stag_qp *claimed[CQ_MAX_CLAIM]; /* whose sockets the poller watches */
	unsigned n_claimed;
	_Atomic int claim;	      /* enum cq_claim: by whom */
	_Atomic uint32_t empty_polls; /* that found it empty, and looked; since it was armed */
	_Atomic uint32_t poll_ticks;  /* so that the engine sees that somebody polls */
	uint32_t seen_ticks;	      /* engine's */
	struct list polled_link;      /* in the engine's list of queues with claims */
	atomic_bool in_polled;

	struct cqe cur;		 /* ibv_start_poll()'s current entry; src/verbs' */
	pthread_mutex_t ex_lock; /* held from ibv_start_poll() to ibv_end_poll() */
};

static inline struct stag_cq *to_stag_cq(struct ibv_cq *cq)
{
	return (struct stag_cq *)cq;
}

int cq_create(struct stag_ctx *ctx, int cqe, struct stag_channel *ch, void *cq_context,
	      bool timestamps, struct stag_cq **out);
int cq_destroy(struct stag_cq *cq); /* -EBUSY while a QP uses it; waits for acks */
int cq_resize(struct stag_cq *cq, int cqe);
int cq_arm(struct stag_cq *cq, bool solicited_only);
bool cq_is_armed(struct stag_cq *cq);
/* Takes up to n completions; makes progress when there are none. */
int cq_poll(struct stag_cq *cq, int n, struct ibv_wc *wc);
/* The same for one, with time stamps: 1, 0 */
int cq_poll_one(struct stag_cq *cq, struct cqe *out);

/* For the queue pair: adds a completion, raises an event if armed. */
void cq_push(struct stag_cq *cq, const struct ibv_wc *wc, bool solicited);
void cq_forget_qp(struct stag_cq *cq, uint32_t qpn); /* a destroyed QP's completions vanish */

/* ---- srq.c, rq.c: receive buffers -------------------------------------- */

struct rwqe {
	uint64_t wr_id;
	uint32_t num_sge;
	uint32_t length;
	struct ibv_sge sge[]; /* max_sge of them */
};

/* A ring of receive work requests; rwqe i is at mem + (i & mask) * stride. */
struct rq {
	uint8_t *mem;
	size_t stride;
	uint32_t mask;
	uint32_t put, get;
	uint32_t max_wr, max_sge;
};

int rq_init(struct rq *rq, uint32_t max_wr, uint32_t max_sge);
void rq_free(struct rq *rq);
/* Copies one request in: -ENOMEM when full, -EINVAL */
int rq_put(struct rq *rq, const struct ibv_recv_wr *wr);
struct rwqe *rq_peek(struct rq *rq); /* the oldest, or NULL */

struct stag_srq {
	struct ibv_srq ibv;
	struct stag_pd *pd;
	uint32_t num;
	atomic_int users;
	pthread_mutex_t lock;
	struct rq rq;
	uint32_t limit;	     /* 0: not armed */
	uint32_t async_sent; /* events that the program was handed */
};

static inline struct stag_srq *to_stag_srq(struct ibv_srq *srq)
{
	return (struct stag_srq *)srq;
}

int srq_create(struct stag_ctx *ctx, struct stag_pd *pd, struct ibv_srq_attr *attr,
	       void *srq_context, struct stag_srq **out); /* attr: in, and out what was given */
int srq_modify(struct stag_srq *srq, const struct ibv_srq_attr *attr, int mask);
void srq_query(struct stag_srq *srq, struct ibv_srq_attr *attr);
int srq_destroy(struct stag_srq *srq);
int srq_post(struct stag_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
/* Takes the oldest request into *out (room for the srq's max_sge); false when empty. */
bool srq_take(struct stag_srq *srq, struct rwqe *out);

/* ---- qp.c, sq.c, qp_tx.c, qp_rx.c -------------------------------------- */

/*
 * RFC 5040's stream states, as a queue pair lives them:
 *
 *   IDLE --qp_attach--> RTS --disconnect, peer's FIN--> CLOSING --both done--> ERROR
 *    |                   |                                 |
 *    +--modify ERR-------+--fault, Terminate, reset--------+-----------------> ERROR
 *
 * ibv_qp.state follows: RESET and INIT are IDLE; RTR and RTS are RTS; SQD is
 * CLOSING; ERR is ERROR. Only qp_set_state() writes it.
 */
enum qp_state { QP_IDLE, QP_RTS, QP_CLOSING, QP_ERROR };

/* Work request opcodes beyond enum ibv_wr_opcode */
#define STAG_WR_FAST_REG  0x80
#define STAG_WR_BARRIER	  0x81 /* stagdv_wr_barrier() */
#define STAG_WR_ADVERTISE 0x82 /* stagdv_post_send_advertise() */
#define STAG_WR_CLOSE	  0x83 /* stagdv_post_send_close() */

#define RTR_STAG 1 /* where a message without payload needs a tag, this one is named */

struct wqe {
	uint64_t wr_id;
	uint32_t opcode; /* enum ibv_wr_opcode or STAG_WR_* */
	uint32_t send_flags;
	uint32_t num_sge;
	uint32_t length;      /* of all SGEs or of the inline data */
	struct ibv_sge *sge;  /* this entry's own array (max_send_sge) */
	uint8_t *inline_data; /* NULL, or the payload, copied (max_inline bytes) */
	uint64_t remote_addr;
	uint32_t rkey;
	uint32_t imm_or_inv; /* immediate (network order), or the STag that goes in the header */
	uint64_t compare_add, swap;
	struct stag_mw *mw; /* bind */
	struct stag_mr *mr; /* fast registration: memory from iov, else bind: the region */
	uint64_t bind_addr, bind_len;
	unsigned bind_access;
	/* from here the adapter's own */
	bool done;	 /* may be retired when it is the oldest */
	bool retired;	 /* has completed before its turn; only its entry is waited for */
	uint8_t status;	 /* enum ibv_wc_status, where done */
	bool sent;	 /* all of it is in the stream's hands; reads wait for their data still */
	uint16_t error;	 /* of a medium: the errno value behind IBV_WC_REM_OP_ERR */
	uint64_t tx_end; /* stream offset behind its last byte */
	uint32_t rx_off; /* reads: bytes that came */
};

struct sq {
	struct wqe *wqe;
	uint8_t *slab; /* SGEs and inline data */
	uint32_t mask, max_wr, max_sge, max_inline;
	uint32_t put;	   /* next free */
	uint32_t tx;	   /* next to transmit */
	uint32_t get;	   /* oldest not retired */
	uint32_t reserved; /* entries behind put that a builder fills (ibv_wr_*) */
};

struct qp_tx; /* qp_tx.c's */
struct qp_rx; /* qp_rx.c's */

/* What the two peers agreed on while the connection was set up. */
struct qp_link {
	bool initiator;
	bool crc;
	bool markers_tx, markers_rx;
	uint8_t mpa_rev;
	bool p2p;    /* an RTR opens the stream */
	uint8_t rtr; /* initiator: the one to send (one bit of enum mpa_rtr) */
	bool stag_peer;
	unsigned caps;		     /* enum mpa_ext_cap; 0 towards a standard peer */
	enum shot_encoding one_shot; /* SHOT_NONE without MPA_EXT_ONE_SHOT */
	uint16_t ird, ord;
	uint64_t hold_until;  /* clock_ns(): send no FPDU before (0: no hold) */
	bool wait_first;      /* responder: send nothing before the first FPDU came */
	const uint8_t *ahead; /* bytes read behind the frame (a hasty peer); copied */
	size_t ahead_len;
};

/*
 * What a queue pair tells whoever connected it. Called on the engine thread,
 * engine lock held, each at most once a connection.
 */
struct qp_events {
	void (*established)(void *arg);	 /* responder with p2p or wait_first: the first FPDU came */
	void (*disconnected)(void *arg); /* the stream has ended, in whatever way */
};

struct qp_attachment { /* a queue pair's place in a completion queue's list */
	struct list link;
	struct stag_qp *qp;
};

struct stag_qp {
	union {
		struct ibv_qp ibv;
		struct ibv_qp_ex ibv_ex;
	};
	struct stag_pd *pd;
	struct stag_cq *scq, *rcq;
	struct stag_srq *srq;
	bool sig_all;
	bool has_send_ops; /* created with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS */
	uint64_t send_ops;
	struct ibv_qp_attr attr; /* what was set by modify, for query */
	struct ibv_qp_cap cap;

	pthread_mutex_t rx_lock, tx_lock, rq_lock;
	_Atomic int state;     /* enum qp_state; written under tx_lock by qp_set_state() */
	struct stream *stream; /* from qp_attach() until the end */
	struct qp_link link;
	uint32_t link_no;      /* tx_lock: the how manyth connection */
	struct sq sq;	       /* tx_lock */
	struct rq rq;	       /* rq_lock */
	struct qp_tx *tx;      /* tx_lock */
	struct qp_rx *rx;      /* rx_lock */
	bool rtr_read_pending; /* the RTR was a read: its answer is nobody's */

	struct watch watch;		    /* the engine's eye on the stream */
	struct stag_cq *_Atomic claimed_by; /* the queue whose poller watches instead */
	struct qp_attachment in_scq, in_rcq;
	struct timer hold_timer, linger_timer;
	unsigned linger_count;	/* times that the linger timer found bytes on their way */
	bool lingering;		/* ended by us; the stream closes when the peer has read that */
	struct work event_work; /* brings qp_events to the engine thread */
	atomic_bool tell_established, tell_disconnected, want_fail; /* what event_work has to do */
	const struct qp_events *events;
	void *events_arg;

	pthread_mutex_t arm_lock;	 /* a leaf; see qp_arm() */
	uint32_t idle_polls;		 /* of the poller that claimed it, with no byte */
	atomic_bool tx_blocked;		 /* the stream is full: somebody must watch for room */
	atomic_bool tx_sending;		 /* what the stream has may not have completed yet */
	struct stagdv_counters counters; /* each field written under tx_lock or rx_lock */
	uint64_t recv_posts;		 /* rq_lock */
	uint64_t recv_completions;	 /* rx_lock; those of the send side: counters.completions */
	_Atomic uint64_t lease_refusals;
	struct shots shots;	  /* one_shot.c */
	atomic_int windows;	  /* type-2 windows bound to it */
	atomic_int mirrors;	  /* that send over it */
	struct list stall_link;	  /* mirror.c: while it waits for a mirror */
	struct qp_media *media;	  /* medium.c: those that its poller polls too; or NULL */
	struct store_qp *store;	  /* tx_lock: where it is connected to storage; or NULL */
	atomic_bool on_store;	  /* the same, for those who do not hold it */
	struct store_peer *peer;  /* store_peer.c: its peer uses storage; or NULL. Both locks */
	atomic_bool serves_store; /* the same, for those who hold none */
	atomic_bool rx_paused;	  /* nobody reads the stream: see rx_store.c. rx_lock */
	uint32_t async_sent;	  /* asynchronous events that the program was handed */
	struct list all_link;	  /* in the table of all queue pairs */

	/* src/verbs/wr.c: the builder behind ibv_wr_* */
	int wr_err;
	uint32_t wr_start_put; /* sq.put at ibv_wr_start() */
};

static inline struct stag_qp *to_stag_qp(struct ibv_qp *qp)
{
	return (struct stag_qp *)qp;
}

/* Creates in RESET; attr->cap is rounded up to what was given. */
int qp_create(struct stag_ctx *ctx, struct ibv_qp_init_attr_ex *attr, struct stag_qp **out);
int qp_destroy(struct stag_qp *qp); /* aborts a live connection; waits for acks of async events */
int qp_modify(struct stag_qp *qp, const struct ibv_qp_attr *attr, int mask);
void qp_query(struct stag_qp *qp, struct ibv_qp_attr *attr, struct ibv_qp_init_attr *init);
void qp_counters(struct stag_qp *qp, struct stagdv_counters *c);
struct stag_qp *qp_by_num(uint32_t qpn); /* engine lock held */

/*
 * Gives a connected stream to a queue pair in INIT (or RTR, RTS as left there by
 * a program that moves it itself): from here the QP owns the stream and goes to
 * RTS. -EINVAL when it is not in a state to be connected. Engine lock held.
 */
int qp_attach(struct stag_qp *qp, struct stream *s, const struct qp_link *link);

/* Who is told; engine lock held. NULL: nobody, from now on. */
void qp_set_events(struct stag_qp *qp, const struct qp_events *ev, void *arg);

/*
 * Orderly: what is posted is still sent, then FIN; receives are flushed when the
 * peer has closed too (or after a while). Returns at once; disconnected() follows.
 */
int qp_disconnect(struct stag_qp *qp);

/* -errno as ibv_post_send(); *bad is the first request not taken. */
int qp_post_send(struct stag_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int qp_post_recv(struct stag_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int qp_post_fast_reg(struct stag_qp *qp, const struct stagdv_fast_reg *wr);
int qp_post_barrier(struct stag_qp *qp, const struct stagdv_barrier *b);
int qp_post_advertise(struct stag_qp *qp, const struct stagdv_advertise *a, uint32_t *stag);
int qp_post_close(struct stag_qp *qp, const struct stagdv_close *c);
int qp_bind_mw1(struct stag_qp *qp, struct stag_mw *mw, struct ibv_mw_bind *bind);

/*
 * For builders of work requests (sq.c, src/verbs/wr.c), all under tx_lock: take
 * the next free entry (NULL: full), fill it, check it, and publish all entries
 * taken since at once; or drop them. sq_check() gives what ibv_post_send() would.
 */
bool sq_may_post(struct stag_qp *qp); /* is it in a state to take any? asked once a list */
struct wqe *sq_take(struct stag_qp *qp);
int sq_check(struct stag_qp *qp, const struct wqe *w);
void sq_publish(struct stag_qp *qp); /* and transmits */
void sq_drop(struct stag_qp *qp);    /* and withdraws what they were to lend */
/* Takes, fills and checks one that lends memory, in one; -errno. */
int sq_add_advertise(struct stag_qp *qp, const struct stagdv_advertise *a, uint32_t *stag);
/* Copies a payload into the entry; -EINVAL when it is longer than max_inline. */
int sq_set_inline(struct stag_qp *qp, struct wqe *w, size_t num, const struct ibv_data_buf *buf);
int sq_set_sges(struct stag_qp *qp, struct wqe *w, size_t num, const struct ibv_sge *sge);

/* Inside the adapter: a forked child's locks are nobody's */
void keys_after_fork(void);
void qp_table_after_fork(void);

/* engine.c */
void engine_note_polled(struct stag_cq *cq); /* somebody polls it: look after it, soon */
void engine_note_asked(void); /* a peer waits for an answer of ours: it may soon ask again */
void engine_help(void);	      /* a poller does what the engine has to do now */
void engine_forget_polled(struct stag_cq *cq); /* engine lock held */

/* claim.c: who watches which socket; qps_lock held but for the last */
bool claim_is_slept_on(const struct stag_cq *cq); /* by one who watches the sockets */
void claim_all(struct stag_cq *cq, enum cq_claim how);
bool claim_one(struct stag_cq *cq, struct stag_qp *qp, enum cq_claim how);
void claim_drop(struct stag_cq *cq, struct stag_qp *qp);
void claim_release(struct stag_cq *cq); /* all of them, back to the engine */
void cq_progress(struct stag_cq *cq);	/* on behalf of a poller; takes qps_lock, if it is free */
void qp_arm(struct stag_qp *qp);	/* tells the engine what to watch of this queue pair */
void channel_wake(struct stag_channel *ch, struct stag_cq *cq);	  /* queues an event */
void channel_forget(struct stag_channel *ch, struct stag_cq *cq); /* its queued events */

/* Inside the adapter */
void qp_set_state(struct stag_qp *qp, enum qp_state to); /* tx_lock held */
int qp_tx_init(struct stag_qp *qp);			 /* at attach */
void qp_tx_free(struct stag_qp *qp);
void qp_tx_run(struct stag_qp *qp); /* tx_lock held: sends what can be sent */
void qp_tx_terminate(struct stag_qp *qp, const struct terminate *t); /* tx_lock held; last words */
void qp_tx_release(struct stag_qp *qp);		   /* tx_lock held: the first FPDU may go */
void qp_tx_finish(struct stag_qp *qp);		   /* tx_lock held: FIN once all is sent */
bool qp_tx_broken(const struct stag_qp *qp);	   /* tx_lock held: the stream refused something */
bool qp_tx_pending(const struct stag_qp *qp);	   /* tx_lock held: is there anything to send? */
struct wqe *qp_tx_oldest_read(struct stag_qp *qp); /* tx_lock held: awaiting a response, or NULL */
struct wqe *qp_tx_read_came(struct stag_qp *qp);   /* tx_lock held: it is no longer awaited */
struct wqe *qp_tx_read_by_msn(struct stag_qp *qp, uint32_t msn); /* the same: the one so numbered */
void qp_tx_read_done(struct stag_qp *qp);			 /* tx_lock held: it came */
/*
 * tx_lock held; false: beyond IRD. store: it is answered from there. gate: and not before all writes to
 * storage up to this number have their level.
 */
bool qp_tx_respond_read(struct stag_qp *qp, const struct rdmap_read_req *r,
			struct peer_request *store, uint64_t gate);
bool qp_tx_respond_atomic(struct stag_qp *qp, const struct rdmap_atomic_req *r,
			  struct peer_request *store, uint64_t gate);
struct terminate qp_tx_reason(const struct stag_qp *qp); /* tx_lock held: why it gave up */
unsigned qp_tx_mulpdu(const struct stag_qp *qp);	 /* 0: not connected */
void sq_retire(struct stag_qp *qp); /* tx_lock held: completions of what is done, in order */
void sq_flush(struct stag_qp *qp);  /* tx_lock held */
void sq_complete(struct stag_qp *qp, const struct wqe *w); /* tx_lock held: as its status says */
int sq_post_prepared(struct stag_qp *qp, const struct wqe *model, size_t num,
		     const struct ibv_sge *sge);
void sq_complete_local(struct stag_qp *qp, struct wqe *w); /* tx_lock held: executes bind,
							    * invalidate, fast registration */
bool wqe_is_local(const struct wqe *w);
bool wqe_awaits_response(const struct wqe *w);
int mw_bind(struct stag_mw *mw, struct stag_qp *qp, struct stag_mr *mr, uint32_t rkey,
	    uint64_t addr, uint64_t len, unsigned access);
int key_invalidate(uint32_t stag, struct stag_pd *pd, struct stag_qp *qp); /* -EACCES, -ENOENT */
void key_unbind(struct key_slot *slot); /* revokes a window, and parts it from its region */
void key_unbind_qp(struct stag_qp *qp); /* type-2 windows do not outlive their queue pair */
int mr_fast_reg(struct stag_mr *mr, struct stag_pd *pd, const struct ibv_sge *sge, unsigned n,
		uint64_t iova, uint32_t key, unsigned access);
/*
 * The end of a connection. qp_fail() takes rx_lock and tx_lock held; term NULL: no
 * Terminate is sent. qp_fail_later() is for where rx_lock cannot be had.
 */
void qp_fail(struct stag_qp *qp, const struct terminate *term, enum ibv_event_type event);
void qp_fail_later(struct stag_qp *qp);
void qp_peer_closed(struct stag_qp *qp, bool orderly); /* rx_lock and tx_lock held */
void qp_async(struct stag_qp *qp, enum ibv_event_type type);
void qp_tell_established(struct stag_qp *qp);
void qp_push_recv(struct stag_qp *qp, const struct ibv_wc *wc, bool solicited); /* rx_lock held */
void rx_flush(struct stag_qp *qp);  /* rx_lock held: the receives, and the one in progress */
int qp_rx_init(struct stag_qp *qp); /* at attach */
void qp_rx_free(struct stag_qp *qp);
struct wire_fault rx_read_fault(enum key_fault f); /* of a read's or an atomic's place */
void rx_consume_ahead(struct stag_qp *qp);	   /* rx_lock held: what came with the set-up */
/* Reads and handles what is there; true if anything came. Takes rx_lock (false if it is taken). */
bool qp_progress(struct stag_qp *qp);

#endif
