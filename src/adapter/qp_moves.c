// SPDX-License-Identifier: BSD-2-Clause
/* qp_moves.c - the attributes of each change of a queue pair's state. */
#include "adapter/qp_moves.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#define PKEY   IBV_QP_PKEY_INDEX
#define PORT   IBV_QP_PORT
#define ACCESS IBV_QP_ACCESS_FLAGS
#define QKEY   IBV_QP_QKEY
#define ALT    IBV_QP_ALT_PATH
#define CUR    IBV_QP_CUR_STATE
#define MIG    IBV_QP_PATH_MIG_STATE
#define RNR    IBV_QP_MIN_RNR_TIMER
#define NOTIFY IBV_QP_EN_SQD_ASYNC_NOTIFY
#define PATH   (IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define RETRY  (IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY)

enum kind { RC, UC, UD, KINDS };

struct rule {
	enum ibv_qp_state from, to;
	struct {
		int required, optional;
	} of[KINDS];
};

static const struct rule rules[] = {
	{IBV_QPS_RESET,
	 IBV_QPS_INIT,
	 {[RC] = {PKEY | PORT | ACCESS, 0},
	  [UC] = {PKEY | PORT | ACCESS, 0},
	  [UD] = {PKEY | PORT | QKEY, 0}}},
	{IBV_QPS_INIT,
	 IBV_QPS_INIT,
	 {[RC] = {0, PKEY | PORT | ACCESS},
	  [UC] = {0, PKEY | PORT | ACCESS},
	  [UD] = {0, PKEY | PORT | QKEY}}},
	{IBV_QPS_INIT,
	 IBV_QPS_RTR,
	 {[RC] = {PATH | IBV_QP_MAX_DEST_RD_ATOMIC | RNR, ALT | ACCESS | PKEY},
	  [UC] = {PATH, ALT | ACCESS | PKEY},
	  [UD] = {0, PKEY | QKEY}}},
	{IBV_QPS_RTR,
	 IBV_QPS_RTS,
	 {[RC] = {RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC, CUR | ALT | ACCESS | RNR | MIG},
	  [UC] = {IBV_QP_SQ_PSN, CUR | ALT | ACCESS | MIG},
	  [UD] = {IBV_QP_SQ_PSN, CUR | QKEY}}},
	{IBV_QPS_RTS,
	 IBV_QPS_RTS,
	 {[RC] = {0, CUR | ACCESS | ALT | MIG | RNR},
	  [UC] = {0, CUR | ACCESS | ALT | MIG},
	  [UD] = {0, CUR | QKEY}}},
	{IBV_QPS_RTS, IBV_QPS_SQD, {[RC] = {0, NOTIFY}, [UC] = {0, NOTIFY}, [UD] = {0, NOTIFY}}},
	{IBV_QPS_SQD,
	 IBV_QPS_SQD,
	 {[RC] = {0, PORT | IBV_QP_AV | RETRY | IBV_QP_MAX_QP_RD_ATOMIC |
			     IBV_QP_MAX_DEST_RD_ATOMIC | ALT | ACCESS | PKEY | RNR | MIG},
	  [UC] = {0, IBV_QP_AV | ALT | ACCESS | PKEY | MIG},
	  [UD] = {0, PKEY | QKEY}}},
	{IBV_QPS_SQD,
	 IBV_QPS_RTS,
	 {[RC] = {0, CUR | ACCESS | ALT | MIG | RNR},
	  [UC] = {0, CUR | ACCESS | ALT | MIG},
	  [UD] = {0, CUR | QKEY}}},
	{IBV_QPS_SQE,
	 IBV_QPS_RTS,
	 {[RC] = {-1, 0}, [UC] = {0, CUR | ACCESS}, [UD] = {0, CUR | QKEY}}},
};

static enum kind kind_of(enum ibv_qp_type type)
{
	return type == IBV_QPT_UD ? UD : type == IBV_QPT_UC ? UC : RC;
}

static bool may_claim_state(enum ibv_qp_state from)
{
	return from == IBV_QPS_RTR || from == IBV_QPS_RTS || from == IBV_QPS_SQD ||
	       from == IBV_QPS_SQE;
}

int qp_move_check(enum ibv_qp_type type, enum ibv_qp_state from, enum ibv_qp_state to, int mask,
		  int *wrong)
{
	int rest = mask & ~IBV_QP_STATE, required = 0, optional = 0;
	bool found = to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET);

	*wrong = 0;
	for (size_t i = 0; i < sizeof(rules) / sizeof(*rules) && !found; i++) {
		found = rules[i].from == from && rules[i].to == to;
		if (found) {
			required = rules[i].of[kind_of(type)].required;
			optional = rules[i].of[kind_of(type)].optional;
		}
	}
	if (!found || required < 0)
		return -EINVAL;
	*wrong = (required & ~rest) | (rest & ~(required | optional));
	if ((rest & CUR) && !may_claim_state(from))
		*wrong |= CUR;
	return *wrong ? -EINVAL : 0;
}
