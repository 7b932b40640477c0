// SPDX-License-Identifier: BSD-2-Clause
/*
 * operation.c - the table of operations: what clients request of nodes.
 *
 * All that depends on the operation alone is here, once: messages are checked by it (wire.c), nodes choose the handler and
 * check rights by it (node/serve.c), clients check operands and know what may be sent again (client/).
 */
#include "pool/memory/memory.h"

#define PTR   POOL_TAKES_PTR
#define NAME  POOL_TAKES_NAME
#define VALUE POOL_TAKES_VALUE
#define ROOM  POOL_TAKES_ROOM
#define RD    STAG_POOL_RIGHT_READ
#define WR    STAG_POOL_RIGHT_WRITE
#define ADMIN STAG_POOL_RIGHT_ADMIN
#define CMP   POOL_COMPARE
#define EXCL  POOL_EXCLUSIVE

const struct pool_operation pool_operations[POOL_OP_MAX] = {
	/*                      name      operands      flags       rights  reach  handler */
	[STAG_POOL_INSERT] = {"insert", VALUE, 0, WR, POOL_REACH_NEW, POOL_DO_CHANGE},
	[STAG_POOL_UPDATE] = {"update", PTR | VALUE, CMP, WR, POOL_REACH_PTR, POOL_DO_CHANGE},
	[STAG_POOL_READ] = {"read", PTR | ROOM, 0, RD, POOL_REACH_PTR, POOL_DO_READ},
	[STAG_POOL_DELETE] = {"delete", PTR, CMP, WR, POOL_REACH_PTR, POOL_DO_CHANGE},
	[STAG_POOL_PUT] = {"put", NAME | VALUE, CMP | EXCL, WR, POOL_REACH_NAME, POOL_DO_CHANGE},
	[STAG_POOL_GET] = {"get", NAME | ROOM, 0, RD, POOL_REACH_NAME, POOL_DO_READ},
	[STAG_POOL_REMOVE] = {"remove", NAME, CMP, WR, POOL_REACH_NAME, POOL_DO_CHANGE},
	[POOL_OP_ATTACH] = {"attach", 0, 0, 0, POOL_REACH_NOTHING, POOL_DO_ATTACH},
	[POOL_OP_DETACH] = {"detach", 0, 0, WR, POOL_REACH_NOTHING, POOL_DO_DETACH},
	[POOL_OP_LIST] = {"list", ROOM, 0, RD, POOL_REACH_NAMES, POOL_DO_LIST},
	[POOL_OP_NODES] = {"nodes", ROOM, 0, 0, POOL_REACH_NOTHING, POOL_DO_NODES},
	[POOL_OP_SWITCH] = {"switch", POOL_TAKES_ANY_NAME, 0, ADMIN, POOL_REACH_NOTHING,
			    POOL_DO_ADMINISTER},
	[POOL_OP_FORGET] = {"forget", NAME, 0, ADMIN, POOL_REACH_NOTHING, POOL_DO_ADMINISTER},
	[POOL_OP_FRESH] = {"fresh", 0, 0, RD, POOL_REACH_NOTHING, POOL_DO_FRESH},
	[POOL_OP_EVENTS] = {"events", ROOM, 0, ADMIN, POOL_REACH_NOTHING, POOL_DO_EVENTS},
	[POOL_OP_ENROL] = {"enrol", 0, 0, WR, POOL_REACH_NOTHING, POOL_DO_ENROL},
};

uint8_t pool_op_implied(bool has_value, bool has_ptr)
{
	if (has_value)
		return has_ptr ? STAG_POOL_UPDATE : STAG_POOL_INSERT;
	return has_ptr ? STAG_POOL_DELETE : STAG_POOL_IMPLICIT;
}

uint32_t pool_op_needs(uint8_t op)
{
	const struct pool_operation *o = pool_operation(op);

	return o ? o->rights : UINT32_MAX;
}

const char *pool_op_name(uint8_t op)
{
	const struct pool_operation *o = pool_operation(op);

	return o ? o->name : "unknown";
}
