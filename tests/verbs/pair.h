/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair.h - two queue pairs of one context, connected over loopback by hand, without a connection
 * manager. For white-box tests, which are linked with the library's objects.
 */
#ifndef STAG_TEST_VERBS_PAIR_H
#define STAG_TEST_VERBS_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "verbs/verbs.h"

#define PAIR_BUF 4096

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_cq *cq;	 /* CQ of both queue pairs */
	struct ibv_cq_ex *cq_ex; /* the same CQ, as an extended one */
	struct ibv_qp *a, *b;	 /* connected, in RTS */
	struct ibv_mr *mr;	 /* all of buf, all access rights */
	uint8_t buf[2 * PAIR_BUF];
	uint8_t *mine, *theirs; /* halves of buf: a's side, b's side */
};

#define PAIR_ACCESS                                                                                \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |               \
	 IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND)

struct ibv_device *find_stag(
	struct ibv_device **list); /* returns NULL if stag0 is not in the list */
struct ibv_context *open_stag(void);

struct pair *pair_open(void);
void pair_close(struct pair *p);

/* Polls until a completion has come; fails the test after half a minute. */
struct ibv_wc wait_wc(struct pair *p);
void post_recv(struct pair *p, struct ibv_qp *qp, uint64_t wr_id, void *addr, uint32_t len);

#endif
