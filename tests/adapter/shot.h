/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shot.h - the verbs of stories about one-shot sends: a command that lends memory, what the peer does with it, its end.
 *
 * A command's body is BODY bytes, and begins with the STag: to a peer that has no one-shot sends it is nowhere else.
 */
#ifndef STAG_TEST_SHOT_H
#define STAG_TEST_SHOT_H

#include "side.h"

#include <stag/stagdv.h>

#define BODY 64

struct lend {
	struct ibv_sge *memory;
	int n;
	unsigned access; /* 0: both to read and to write */
	uint64_t iova;
	uint32_t reference;
	unsigned flags; /* besides IBV_SEND_SIGNALED, where the side is not quiet */
};

/*
 * Returns the request that advertise() would post, to be changed before; the body is body's
 * first BODY bytes.
 */
struct stagdv_advertise command(struct side *s, struct ibv_sge *body, const struct lend *l);
uint64_t advertise(struct side *s, const struct region *body, const struct lend *l, uint32_t *stag);
uint64_t close_stag(struct side *s, const struct region *body, uint32_t stag, unsigned flags);
/* A read or a write of the peer's memory under a tag. */
uint64_t post_remote(struct side *s, enum ibv_wr_opcode op, const struct region *local, size_t len,
		     uint32_t stag, uint64_t to);

enum stagdv_one_shot encoding(const struct side *s);
struct stagdv_counters counted(const struct side *s);
struct stagdv_counters counted_in_all(const struct side *s);
unsigned open_stags(struct ibv_context *ctx);
struct stagdv_stag life_of(struct ibv_context *ctx, uint32_t stag); /* the last one of that tag */

/* The receive was a command; the STag that it lends, as its header or its body says. */
uint32_t expect_command(struct side *s, uint64_t wr_id, const struct region *in);
/* The receive was its end. */
void expect_end(struct side *s, uint64_t wr_id, uint32_t stag, uint32_t reference);
/* owner ends the connection for what its peer did; both hear of it. */
void expect_over(struct side *owner, struct side *peer, enum ibv_event_type event);

#endif
