// SPDX-License-Identifier: BSD-2-Clause
/* limits.c - the limits of a queue pair and its device, and the sizes of a rail that follow. */
#include "xfer.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* Known capabilities of a queue pair. */
struct caps {
	uint32_t max_transfer;
	uint32_t read_sge, write_sge;
	uint32_t depth; /* of its send queue */
	uint32_t reads; /* reads that may be in flight */
	bool iwarp;
};

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Returns the smaller limit. Zero means that there is none. */
static uint32_t narrower(uint32_t a, uint32_t b)
{
	return !b ? a : !a ? b : least(a, b);
}

/*
 * The kernel's siw up to Linux 6.x does not report the state of a queue pair (it returns 0), so on
 * iWARP that counts as connected; if it is not, the first post fails.
 */
static bool is_connected(const struct ibv_qp_attr *attr, bool iwarp)
{
	return attr->qp_state == IBV_QPS_RTS || (iwarp && attr->qp_state == IBV_QPS_RESET);
}

static int query_qp(struct stag_xfer *x, struct ibv_qp *qp, struct caps *caps, uint8_t *port)
{
	struct ibv_qp_attr attr = {0};
	struct ibv_qp_init_attr init = {0};
	int err = ibv_query_qp(qp, &attr,
			       IBV_QP_STATE | IBV_QP_CAP | IBV_QP_PORT | IBV_QP_MAX_QP_RD_ATOMIC |
				       IBV_QP_MAX_DEST_RD_ATOMIC,
			       &init);

	if (err) {
		xfer_complain(x, "queue pair %u: query: %s", qp->qp_num, strerror(err));
		return -err;
	}
	if (!is_connected(&attr, caps->iwarp)) {
		xfer_complain(x, "queue pair %u: not connected (state %d)", qp->qp_num,
			      attr.qp_state);
		return -EINVAL;
	}
	caps->depth = attr.cap.max_send_wr;
	caps->read_sge = caps->write_sge = attr.cap.max_send_sge;
	/* The kernel's siw swaps the two. */
	caps->reads = attr.max_rd_atomic ? attr.max_rd_atomic : attr.max_dest_rd_atomic;
	*port = attr.port_num ? attr.port_num : 1;
	return 0;
}

static int query(struct stag_xfer *x, struct ibv_qp *qp, struct caps *caps)
{
	struct ibv_device_attr device;
	struct ibv_port_attr port;
	uint8_t number;
	int err;

	*caps = (struct caps){.iwarp = qp->context->device->transport_type == IBV_TRANSPORT_IWARP};
	err = query_qp(x, qp, caps, &number);
	if (err)
		return err;
	err = ibv_query_device(qp->context, &device);
	if (!err)
		err = ibv_query_port(qp->context, number, &port);
	if (err) {
		xfer_complain(x, "queue pair %u: cannot query its device: %s", qp->qp_num,
			      strerror(err));
		return -err;
	}
	caps->max_transfer = port.max_msg_sz;
	caps->read_sge = narrower(caps->read_sge, (uint32_t)device.max_sge_rd);
	return 0;
}

/* ---- the CQ's room, divided among the rails that share it ---- */

static uint32_t cq_share(const struct stag_xfer *x, const struct ibv_cq *cq)
{
	uint32_t sharers = 0;

	for (unsigned int i = 0; i < x->num_rails; i++)
		sharers += x->rails[i].cq == cq;
	return (uint32_t)cq->cqe / (sharers ? sharers : 1);
}

/* Sets how many records and confirms the rail may hold, and how many records share one proof. */
static int divide_depth(struct stag_xfer *x, struct rail *rail)
{
	uint32_t depth = least(rail->depth, cq_share(x, rail->cq)), usable;

	rail->max_confirms =
		!rail->confirming ? 0 : least(least(RAIL_CONFIRMS, rail->reads), depth / 2);
	if (depth < 1 + (uint32_t)rail->confirming) {
		xfer_complain(
			x,
			"queue pair %u: its send queue (%u) or its share of the CQ (%d entries) is "
			"too small",
			rail->qp_num, rail->depth, rail->cq->cqe);
		return -EINVAL;
	}
	rail->max_records = depth - rail->max_confirms;
	usable = least(rail->max_records, x->descriptors);
	rail->proof_records = rail->confirming ? usable / 2 : least(usable / 4, 16);
	rail->proof_bytes = x->window / 4;
	if (!rail->proof_records)
		rail->proof_records = 1;
	return 0;
}

static int divide_depths(struct stag_xfer *x, const struct ibv_cq *cq)
{
	int err = 0;

	for (unsigned int i = 0; i < x->num_rails && !err; i++)
		if (x->rails[i].cq == cq)
			err = divide_depth(x, &x->rails[i]);
	return err;
}

/* ---- assigning a queue pair to a rail ---- */

static bool is_a_rail(const struct stag_xfer *x, const struct ibv_qp *qp)
{
	for (unsigned int i = 0; i < x->num_rails; i++)
		if (x->rails[i].state != RAIL_DOWN && x->rails[i].qp == qp)
			return true;
	return false;
}

static int check(struct stag_xfer *x, struct ibv_qp *qp, const struct caps *caps)
{
	if (qp->qp_type != IBV_QPT_RC) {
		xfer_complain(x, "queue pair %u: its type is not RC", qp->qp_num);
		return -EINVAL;
	}
	if (is_a_rail(x, qp)) {
		xfer_complain(x, "queue pair %u: is already a rail of this manager", qp->qp_num);
		return -EINVAL;
	}
	if (x->pd && qp->pd != x->pd) {
		xfer_complain(x, "queue pair %u: in another protection domain than the other rails",
			      qp->qp_num);
		return -EINVAL;
	}
	if (!caps->write_sge || !caps->read_sge) {
		xfer_complain(x, "queue pair %u: its send queue allows no segments", qp->qp_num);
		return -EINVAL;
	}
	if (caps->iwarp && !(x->flags & STAG_XFER_UNCONFIRMED) && !caps->reads) {
		xfer_complain(
			x,
			"queue pair %u: its connection allows no reads, which confirm writes on "
			"iWARP; allow reads, or set STAG_XFER_UNCONFIRMED",
			qp->qp_num);
		return -EINVAL;
	}
	return 0;
}

static void narrow_limits(struct stag_xfer *x, const struct caps *caps)
{
	struct stag_xfer_limits *read = &x->limits[STAG_XFER_READ];
	struct stag_xfer_limits *write = &x->limits[STAG_XFER_WRITE];

	read->max_transfer = write->max_transfer = narrower(read->max_transfer, caps->max_transfer);
	read->max_segments = narrower(read->max_segments, caps->read_sge);
	write->max_segments = narrower(write->max_segments, caps->write_sge);
}

static int check_limits(struct stag_xfer *x, struct ibv_qp *qp, const struct caps *caps)
{
	const struct stag_xfer_limits *read = &x->limits[STAG_XFER_READ];
	const struct stag_xfer_limits *write = &x->limits[STAG_XFER_WRITE];

	if (caps->read_sge >= read->max_segments && caps->write_sge >= write->max_segments &&
	    narrower(caps->max_transfer, read->max_transfer) >= read->max_transfer)
		return 0;
	xfer_complain(x,
		      "queue pair %u: allows less than the manager uses: %u bytes, %u segments "
		      "(reads: %u), not %u, %u (reads: %u)",
		      qp->qp_num, caps->max_transfer, caps->write_sge, caps->read_sge,
		      write->max_transfer, write->max_segments, read->max_segments);
	return -EINVAL;
}

static void connect_rail(struct stag_xfer *x, struct rail *rail, struct ibv_qp *qp,
			 const struct caps *caps)
{
	rail->qp = qp;
	rail->qp_num = qp->qp_num;
	rail->cq = qp->send_cq;
	rail->iwarp = caps->iwarp;
	rail->confirming = caps->iwarp && !(x->flags & STAG_XFER_UNCONFIRMED);
	rail->depth = caps->depth;
	rail->reads = caps->reads;
	rail->next_seq = 1;
	rail->proved = rail->wrote = rail->proof = 0;
	rail->since = 0;
	rail->bytes_since = 0;
	rail->confirm_put = 0;
}

int rail_adopt(struct stag_xfer *x, struct rail *rail, struct ibv_qp *qp, bool narrow)
{
	struct rail before = *rail;
	struct caps caps;
	int err = query(x, qp, &caps);

	if (!err)
		err = check(x, qp, &caps);
	if (!err && !narrow)
		err = check_limits(x, qp, &caps);
	if (err)
		return err;
	connect_rail(x, rail, qp, &caps);
	err = divide_depths(x, rail->cq);
	if (err) {
		*rail = before;
		divide_depths(x, qp->send_cq); /* restores the others' shares */
		return err;
	}
	if (narrow)
		narrow_limits(x, &caps);
	rail_set_state(rail, RAIL_UP);
	return 0;
}
