/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * storage.h - a region on storage, memory beside it, and queue pairs on it, set up as a program
 * would.
 */
#ifndef STAG_TEST_STORAGE_H
#define STAG_TEST_STORAGE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "await.h"
#include "stag/stagdv.h"

#define KIB   1024u
#define MIB   (1024u * KIB)
#define SPACE (4u * MIB) /* size of the region, and of the memory */

#define ALL_RIGHTS (IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
#define NO_ORDER                                                                                   \
	(STAGDV_RELAX_WRITES | STAGDV_RELAX_READS | STAGDV_RELAX_LATER | STAGDV_RELAX_ATOMICS |    \
	 STAGDV_RELAX_COMPLETIONS)

enum backing { ON_DISK, ON_PAGES, IN_MEMORY, NUM_BACKINGS };

struct storage {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	bool borrowed; /* ctx and pd belong to the caller */
	int fd;
	struct stagdv_medium *medium;
	struct ibv_mr *region; /* all of the medium, all rights */
	uint8_t *mem;	       /* page-aligned */
	struct ibv_mr *mr;     /* of mem, with local write */
};

struct ibv_context *open_stag(void);
void storage_open(struct storage *s, enum backing b);
void storage_open_in(struct storage *s, enum backing b, struct ibv_pd *pd);
void storage_close(struct storage *s);

/* peek() reads from the medium, poke() writes to it. */
void peek(const struct storage *s, void *to, size_t n, uint64_t offset);
void poke(const struct storage *s, const void *from, size_t n, uint64_t offset);

struct user_wish { /* zero-initialized: the defaults */
	struct stagdv_store_qp_attr attr;
	uint32_t send_wr; /* 0: 64 */
	bool quiet;	  /* only IBV_SEND_SIGNALED work completes */
	bool channel;
	struct ibv_cq *cq; /* NULL: one of its own for each direction */
	struct ibv_srq *srq;
};

struct user {
	struct storage *s;
	struct ibv_comp_channel *channel;
	struct ibv_cq *scq, *rcq;
	bool own_cqs;
	struct ibv_qp *qp;
};

void user_open(struct user *u, struct storage *s, const struct user_wish *w);
void user_close(struct user *u);

/*
 * In these calls `at` is an offset in the memory and `offset` one in the region. Work requests are
 * signaled.
 */
struct ibv_sge piece(const struct storage *s, size_t at, uint32_t n);
struct ibv_send_wr request(struct user *u, uint64_t id, enum ibv_wr_opcode opcode,
			   struct ibv_sge *sge, uint64_t offset);
void post(struct user *u, struct ibv_send_wr *wr);
void post_write(struct user *u, uint64_t id, size_t at, uint32_t n, uint64_t offset, int flags);
void post_read(struct user *u, uint64_t id, size_t at, uint32_t n, uint64_t offset, int flags);
void post_add(struct user *u, uint64_t id, size_t at, uint64_t offset, uint64_t add);
void post_swap(struct user *u, uint64_t id, size_t at, uint64_t offset, uint64_t compare,
	       uint64_t swap);
void post_barrier(struct user *u, uint64_t id);
void post_receive(struct user *u, uint64_t id);

struct ibv_wc await_wc(struct ibv_cq *cq);     /* the next completion */
void expect_done(struct user *u, uint64_t id); /* the next send completion */
void expect_failed(struct user *u, uint64_t id, enum ibv_wc_status status);
void expect_state(struct user *u, enum ibv_qp_state state); /* waits until the state is reached */
void expect_on_medium(struct user *u, const void *bytes, size_t n, uint64_t offset);

#endif
