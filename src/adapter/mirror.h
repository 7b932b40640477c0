/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mirror.h - forwarding of peers' writes: the region's mirrors, the writer's receiver, the mirror's sender.
 *
 *   writer's queue pair            region              mirror's queue pair, one for each copy
 *   rx: segment placed, CRC good --> mirrors --> tx: forwards, a ring --> RDMA Write to the copy
 *        |  no room: stalls          (mirror.c)      |  in turn with what the program posts
 *        v                                           v
 *   next message of the writer  <-- confirmed, where asked for --- a read behind them came back
 *
 * The bytes of a forward are read from the region when they are sent, not when they were received. If another write changes
 * them in between, the later bytes are sent, and once more with their own forward, so that in the end the copy equals the
 * region, whichever write was first.
 */
#ifndef STAG_MIRROR_H
#define STAG_MIRROR_H

#include <stdbool.h>
#include <stdint.h>

#include "stag/stagdv.h"

struct key_slot;
struct stag_mr;
struct stag_pd;
struct stag_qp;

#define MIRROR_GATES 8 /* confirmations that a writer can wait for at the same time */

/* ---- mirror.c ---------------------------------------------------------------- */

int mirror_add(struct stag_mr *mr, const struct stagdv_mirror *attr);
/* -ENOENT; -ENOTCONN: removed, but it had ended before */
int mirror_remove(struct stag_mr *mr, const void *name);

int mirror_end_mr(struct stag_mr *mr); /* -EBUSY: some of its mirrors have not ended */
/* ends the mirrors over a queue pair that is being destroyed */
void mirror_end_qp(struct stag_qp *qp);
void mirror_leave(struct stag_qp *qp); /* removes it from those that wait for a mirror */
void mirrors_after_fork(void);

/* A range that was written. The caller holds the region. */
struct mirror_piece {
	struct key_slot *region;
	uint64_t off;
	uint32_t len;
};

struct mirror_gates {
	struct {
		uint64_t id;  /* number of a mirror */
		uint64_t seq; /* number of the last forward that the mirror has to confirm */
	} gate[MIRROR_GATES];
	unsigned n;
};

static inline bool gates_have_room(const struct mirror_gates *g, uint64_t id)
{
	for (unsigned i = 0; i < g->n; i++)
		if (g->gate[i].id == id)
			return true;
	return g->n < MIRROR_GATES;
}

static inline void gates_add(struct mirror_gates *g, uint64_t id, uint64_t seq)
{
	unsigned i = 0;

	while (i < g->n && g->gate[i].id != id)
		i++;
	g->gate[i].id = id;
	g->gate[i].seq = seq;
	g->n += i == g->n;
}

/*
 * Hands the piece to the mirrors from number *next on. The caller holds no tx_lock, here and in the next two. Returns 0; -EAGAIN
 * if a mirror has no room (*next is its number); -EPIPE if one has ended whose end stops the writer.
 */
int mirror_forward(struct stag_qp *writer, const struct mirror_piece *p, uint64_t *next,
		   struct mirror_gates *gates);
/* sends what the region's mirrors have enqueued; the caller holds the region */
void mirror_kick(struct key_slot *region);
int mirror_pass(struct mirror_gates *g); /* 0: all confirmed; -EAGAIN, -EPIPE */
uint64_t mirror_turns(void);		 /* changes when a stalled writer should retry */
/*
 * Enqueues a stalled writer for rx_mirror_resume(). turn: mirror_turns() from before its last
 * try.
 */
void mirror_line_up(struct stag_qp *qp, uint64_t turn);

void mirror_tell(void); /* wakes stalled writers; may be called with any lock but a leaf */

/* ---- rx_mirror.c --------------------------------------------------------------- */

void rx_mirror_resume(struct stag_qp *qp);

/* ---- tx_forward.c ------------------------------------------------------------------ */

struct forward {
	uint32_t stag; /* the region, */
	uint64_t life;
	struct stag_pd *pd;
	uint64_t to; /* and the TO in it */
	uint32_t len;
	uint32_t rkey; /* the copy: its key, and the TO there */
	uint64_t remote;
	uint32_t before; /* index of the send queue: requests from it on go behind this forward */
};

int tx_forwards_init(struct stag_qp *qp);  /* -ENOMEM; idempotent */
void tx_forwards_drop(struct stag_qp *qp); /* drops them: the connection has ended */
void tx_forwards_free(struct stag_qp *qp);
/*
 * Enqueues a forward. Returns false if there is no room: then mirror_tell() follows. seq: its
 * number, for tx_forward_confirmed().
 */
bool tx_forward_add(struct stag_qp *qp, const struct forward *f, bool confirm, uint64_t *seq);
bool tx_forward_confirmed(struct stag_qp *qp, uint64_t seq); /* false: mirror_tell() follows */
void tx_forwards_answered(struct stag_qp *qp); /* handles the response of the read that confirms */

#endif
