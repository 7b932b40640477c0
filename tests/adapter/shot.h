/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shot.h - helpers for tests of one-shot sends: advertise memory with a command, access it as the
 * peer, close it.
 *
 * A command's body is BODY bytes and begins with the STag, because a peer without one-shot sends
 * finds the STag nowhere else.
 */
#ifndef STAG_TEST_SHOT_H
#define STAG_TEST_SHOT_H

#include "side.h"

#include <stag/stagdv.h>

#define BODY 64

struct lend {
	struct ibv_sge *memory;
	int n;
	unsigned access; /* 0: both remote read and remote write */
	uint64_t iova;
	uint32_t reference;
	unsigned flags; /* besides IBV_SEND_SIGNALED, which is added where the side is not quiet */
};

/*
 * Returns the request that advertise() would post, for a test to change first. The body is the
 * first BODY bytes of the region.
 */
struct stagdv_advertise command(struct side *s, struct ibv_sge *body, const struct lend *l);
uint64_t advertise(struct side *s, const struct region *body, const struct lend *l, uint32_t *stag);
uint64_t close_stag(struct side *s, const struct region *body, uint32_t stag, unsigned flags);
/* Posts a read or a write of the peer's memory under an STag. */
uint64_t post_remote(struct side *s, enum ibv_wr_opcode op, const struct region *local, size_t len,
		     uint32_t stag, uint64_t to);

enum stagdv_one_shot encoding(const struct side *s);
struct stagdv_counters counted(const struct side *s);
struct stagdv_counters counted_in_all(const struct side *s);
unsigned open_stags(struct ibv_context *ctx);
struct stagdv_stag life_of(struct ibv_context *ctx, uint32_t stag); /* the latest with that STag */

/*
 * Expects the receive to be a command. Returns the STag that it advertises, from its header or its
 * body.
 */
uint32_t expect_command(struct side *s, uint64_t wr_id, const struct region *in);
/* Expects the receive to be the close of a command. */
void expect_end(struct side *s, uint64_t wr_id, uint32_t stag, uint32_t reference);
/* Expects owner to end the connection because of its peer's mistake, and both to be notified. */
void expect_over(struct side *owner, struct side *peer, enum ibv_event_type event);

#endif
