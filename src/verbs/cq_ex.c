// SPDX-License-Identifier: BSD-2-Clause
/*
 * cq_ex.c - extended completion queues: one entry at a time, read field by field.
 *
 * Between ibv_start_poll() and ibv_end_poll() the queue belongs to one thread; with
 * IBV_CREATE_CQ_ATTR_SINGLE_THREADED the program guarantees that itself.
 */
#include "verbs/verbs.h"

#define TIMESTAMP_FLAGS                                                                            \
	(IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK)
#define SUPPORTED_FIELDS (IBV_WC_STANDARD_FLAGS | TIMESTAMP_FLAGS)
#define SUPPORTED_FLAGS	 (IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN)
#define SUPPORTED_MASK	 (IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD)

static struct stag_cq *to_cq(struct ibv_cq_ex *ex)
{
	return container_of(ex, struct stag_cq, ibv_ex);
}

/* Makes the next entry the current one. Returns ENOENT if there is none. */
static int next_poll(struct ibv_cq_ex *ex)
{
	struct stag_cq *cq = to_cq(ex);

	if (!cq_poll_one(cq, &cq->cur))
		return ENOENT;
	ex->wr_id = cq->cur.wc.wr_id;
	ex->status = cq->cur.wc.status;
	return 0;
}

static int start_poll_alone(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	return attr && attr->comp_mask ? EINVAL : next_poll(ex);
}

static void end_poll_alone(struct ibv_cq_ex *ex)
{
}

static int start_poll(struct ibv_cq_ex *ex, struct ibv_poll_cq_attr *attr)
{
	lock_acquire(&to_cq(ex)->ex_lock);

	int ret = start_poll_alone(ex, attr);

	if (ret) /* the program does not call ibv_end_poll() then */
		lock_release(&to_cq(ex)->ex_lock);
	return ret;
}

static void end_poll(struct ibv_cq_ex *ex)
{
	lock_release(&to_cq(ex)->ex_lock);
}

static enum ibv_wc_opcode read_opcode(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.wc.opcode;
}

static uint32_t read_vendor_err(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.wc.vendor_err;
}

static uint32_t read_byte_len(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.wc.byte_len;
}

/* Also serves ibv_wc_read_invalidated_rkey(). */
static __be32 read_imm_data(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.wc.imm_data;
}

static uint32_t read_qp_num(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.wc.qp_num;
}

static uint32_t read_src_qp(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.wc.src_qp;
}

static unsigned int read_wc_flags(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.wc.wc_flags;
}

static uint32_t read_slid(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.wc.slid;
}

static uint8_t read_sl(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.wc.sl;
}

static uint8_t read_dlid_path_bits(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.wc.dlid_path_bits;
}

static uint64_t read_completion_ts(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.ts;
}

static uint64_t read_completion_wallclock_ns(struct ibv_cq_ex *ex)
{
	return to_cq(ex)->cur.wall_ts;
}

void cq_ex_init(struct stag_cq *cq, bool single_threaded)
{
	struct ibv_cq_ex *ex = &cq->ibv_ex;

	ex->start_poll = single_threaded ? start_poll_alone : start_poll;
	ex->next_poll = next_poll;
	ex->end_poll = single_threaded ? end_poll_alone : end_poll;
	ex->read_opcode = read_opcode;
	ex->read_vendor_err = read_vendor_err;
	ex->read_byte_len = read_byte_len;
	ex->read_imm_data = read_imm_data;
	ex->read_qp_num = read_qp_num;
	ex->read_src_qp = read_src_qp;
	ex->read_wc_flags = read_wc_flags;
	ex->read_slid = read_slid;
	ex->read_sl = read_sl;
	ex->read_dlid_path_bits = read_dlid_path_bits;
	ex->read_completion_ts = read_completion_ts;
	ex->read_completion_wallclock_ns = read_completion_wallclock_ns;
}

static int cq_ex_check(const struct ibv_context *context, const struct ibv_cq_init_attr_ex *attr)
{
	if (attr->comp_mask & ~(uint32_t)SUPPORTED_MASK) {
		log_info("cq: unknown attributes, comp_mask %#x", attr->comp_mask);
		return -EOPNOTSUPP;
	}
	if (attr->wc_flags & ~(uint64_t)SUPPORTED_FIELDS) {
		log_info("cq: an iWARP adapter does not report these fields: wc_flags %#llx",
			 (unsigned long long)attr->wc_flags);
		return -EOPNOTSUPP;
	}
	if ((attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) &&
	    (attr->flags & ~(uint32_t)SUPPORTED_FLAGS)) {
		log_info("cq: unknown flags %#x", attr->flags);
		return -EOPNOTSUPP;
	}
	return cq_check_attr(context, attr->channel, attr->comp_vector);
}

struct ibv_cq_ex *verbs_create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr)
{
	uint32_t flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attr->flags : 0;
	struct stag_cq *cq = NULL;
	int err = cq_ex_check(context, attr);

	if (!err)
		err = cq_create(to_stag_ctx(context), (int)attr->cqe,
				attr->channel ? to_stag_channel(attr->channel) : NULL,
				attr->cq_context, attr->wc_flags & TIMESTAMP_FLAGS, &cq);
	if (!err) {
		cq_ex_init(cq, flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED);
		/* An overrun loses nothing, so to ignore it is not to report it. */
		cq->overflowed = flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
	}
	FACE_RETURN(err, &cq->ibv_ex);
}
