/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mirror.h - forwarding of what peers write: the region's mirrors, the writer's receiver, the mirror's sender.
 *
 *   writer's queue pair            region              mirror's queue pair, one for each copy
 *   rx: segment placed, CRC good --> mirrors --> tx: forwards, a ring --> RDMA Write to the copy
 *        |  no room: stalls          (mirror.c)      |  in turn with what the program posts
 *        v                                           v
 *   next message of the writer  <-- confirmed, where asked for --- a read behind them came back
 *
 * What is forwarded is read from the region when it leaves, not when it came: where somebody writes there again in
 * between, the later bytes go, and go again with the forward of their own, so that in the end the copy is the region,
 * whoever was first.
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

#define MIRROR_GATES 8 /* confirmations that a writer can wait for at once */

/* ---- mirror.c ---------------------------------------------------------------- */

int mirror_add(struct stag_mr *mr, const struct stagdv_mirror *attr);
int mirror_remove(struct stag_mr *mr, const void *name); /* -ENOENT; -ENOTCONN: it had ended */

int mirror_end_mr(struct stag_mr *mr);	/* -EBUSY: some of its mirrors are alive */
void mirror_end_qp(struct stag_qp *qp); /* it is destroyed: those over it have ended */
void mirror_leave(struct stag_qp *qp);	/* removes it from those that wait for a mirror */
void mirrors_after_fork(void);

/* What was written: the region is held by the caller. */
struct mirror_piece {
	struct key_slot *region;
	uint64_t off;
	uint32_t len;
};

struct mirror_gates {
	struct {
		uint64_t id;  /* of a mirror */
		uint64_t seq; /* of the last forward that it has to confirm */
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
void mirror_kick(struct key_slot *region); /* what they have is sent; the region is held */
int mirror_pass(struct mirror_gates *g);   /* 0: all came; -EAGAIN, -EPIPE */
uint64_t mirror_turns(void);		   /* changes when it is worth trying again */
/* The writer waits since before turn was asked for: rx_mirror_resume() when there is a chance. */
void mirror_line_up(struct stag_qp *qp, uint64_t turn);

void mirror_tell(void); /* there may be room, or a confirmation; any lock may be held but leaves */

/* ---- rx_mirror.c --------------------------------------------------------------- */

void rx_mirror_resume(struct stag_qp *qp);

/* ---- tx_forward.c ------------------------------------------------------------------ */

struct forward {
	uint32_t stag; /* the region, */
	uint64_t life;
	struct stag_pd *pd;
	uint64_t to; /* and where in it */
	uint32_t len;
	uint32_t rkey; /* the same there */
	uint64_t remote;
	uint32_t before; /* requests from this index of the send queue on go behind it */
};

int tx_forwards_init(struct stag_qp *qp);  /* -ENOMEM; more than once is allowed */
void tx_forwards_drop(struct stag_qp *qp); /* the connection has ended */
void tx_forwards_free(struct stag_qp *qp);
/* false: no room; mirror_tell() follows when there is. seq: its number, for tx_forward_confirmed(). */
bool tx_forward_add(struct stag_qp *qp, const struct forward *f, bool confirm, uint64_t *seq);
bool tx_forward_confirmed(struct stag_qp *qp, uint64_t seq); /* false: mirror_tell() follows */
void tx_forwards_answered(struct stag_qp *qp);		     /* the read behind them came back */

#endif
