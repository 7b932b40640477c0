// SPDX-License-Identifier: BSD-2-Clause
/*
 * body.c - bodies of long values: copied to our region, and written to the standbys directly from there, not
 * through the log.
 *
 * This is safe because no client reads a body before the record that makes it a value, which follows on the same
 * queue pairs: the confirmation of that record confirms the bytes. But software applies records later than they
 * arrive, whereas an RDMA Write takes effect at once. So the place must belong to the body for good, on every
 * node, before anything is written to it: record `since` must be applied everywhere. A standby that is still
 * copying may copy older bytes over newer ones: for that standby the pieces are records, in their order.
 *
 * A record that changes nothing follows each piece. By its number the role knows that bytes are in flight: a
 * standby that does not confirm it is dropped from the in-sync set, and a handover waits until all have it. So
 * memories are equal wherever the same record was applied.
 */
#include "pool/node/node.h"

#include <errno.h>
#include <string.h>

uint64_t body_quiet(const struct stag_pool_node *n)
{
	uint64_t quiet = pool_superblock(&n->memory.region)->number;

	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (n->standbys.links[s] && n->standbys.links[s]->number < quiet)
			quiet = n->standbys.links[s]->number;
	return quiet;
}

/*
 * Returns 0 if a piece may be written to this standby, -EAGAIN if it has to wait, -EOPNOTSUPP if it must be a
 * record.
 */
static int may_place(const struct stag_pool_node *n, unsigned int seat, uint64_t since)
{
	const struct standby *l = n->standbys.links[seat];

	if (!n->role.peers[seat].ready)
		return -EOPNOTSUPP;
	if (l->conn.over || l->number < since || l->bodies - l->bodies_there >= l->window)
		return -EAGAIN;
	return 0;
}

static int may_place_everywhere(const struct stag_pool_node *n, uint64_t since)
{
	int rc = pool_superblock(&n->memory.region)->number < since ? -EAGAIN : 0;

	for (unsigned int s = 0; s < ROLL_MAX_NODES && rc != -EOPNOTSUPP; s++) {
		int here = n->standbys.links[s] ? may_place(n, s, since) : 0;

		rc = here != 0 ? here : rc;
	}
	return rc;
}

static int add_mark(struct stag_pool_node *n)
{
	size_t room, used;
	void *at = serve_record_room(n, POOL_RECORD_META, &room);
	int rc = at ? pool_mark(&n->serve.core, at, room, &used) : -EAGAIN;

	if (rc == 0)
		pool_log_add(&n->memory.log, used);
	return rc;
}

/* Writes a piece to a standby's region, or disconnects the standby if the write cannot be posted. */
static void write_body(struct standby *l, uint64_t offset, uint32_t length)
{
	struct stag_pool_node *n = l->conn.node;
	struct ibv_sge sge = {(uintptr_t)n->memory.region.at + offset, length, l->region_mr->lkey};
	struct ibv_send_wr wr = {
		.wr_id = (uintptr_t)&l->conn.lost,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.wr.rdma = {n->memory.region.address + offset, l->hello.region_rkey},
	};

	l->bodies++;
	n->info.record_bytes += length;
	if (node_conn_post(&l->conn, &wr) != 0)
		node_conn_leave(&l->conn);
}

/*
 * Adapts the window: heartbeats queue behind pieces, so a link on which pieces take a part of the lease gets fewer
 * at a time.
 */
void body_confirmed(struct standby *l, uint64_t pieces, uint64_t ns)
{
	if (pieces == l->bodies_there)
		return;
	l->bodies_there = pieces;
	if (ns > l->conn.node->role.times.lease.lease / 4)
		l->window = l->window > 1 ? l->window / 2 : 1;
	else if (l->window < LINK_BODIES)
		l->window++;
}

int body_place(struct stag_pool_node *n, uint64_t since, uint64_t offset, const void *bytes,
	       uint32_t length)
{
	int rc = may_place_everywhere(n, since);

	if (rc == 0)
		rc = add_mark(n);
	if (rc != 0)
		return rc;
	memcpy(n->memory.region.at + offset, bytes, length);
	for (unsigned int s = 0; s < ROLL_MAX_NODES; s++)
		if (n->standbys.links[s])
			write_body(n->standbys.links[s], offset, length);
	return 0;
}
