// SPDX-License-Identifier: BSD-2-Clause
/*
 * stagdv.c - direct verbs: the calls of <stag/stagdv.h>.
 */
#include "verbs/verbs.h"

#include <stdio.h>
#include <string.h>

#include "adapter/mirror.h"
#include "adapter/rc.h"
#include "adapter/store.h"
#include "base/crc32c.h"
#include "base/lock.h"
#include "stag/stagdv.h"
#include "wire/wire.h"

STAG_EXPORT bool stagdv_is_supported(struct ibv_device *device)
{
	return is_our_device(device);
}

/* Copies at most the caller's size. Returns -EINVAL if not even comp_mask fits. */
static int copy_out(void *dst, size_t size, const void *src, size_t ours)
{
	if (size < sizeof(uint64_t))
		return -EINVAL;
	memset(dst, 0, size);
	memcpy(dst, src, size < ours ? size : ours);
	return 0;
}

/* "0.1.0" as 0x000100 */
static uint32_t library_version(void)
{
	unsigned major = 0, minor = 0, patch = 0;

	sscanf(STAG_VERSION, "%u.%u.%u", &major, &minor, &patch);
	return major << 16 | minor << 8 | patch;
}

static uint64_t device_abilities(enum face face)
{
	uint64_t abilities = STAGDV_ABILITY_MW | STAGDV_ABILITY_FAST_REG | STAGDV_ABILITY_GUARD |
			     STAGDV_ABILITY_STORE | STAGDV_ABILITY_KEYED | STAGDV_ABILITY_LEASE;

	if (face == FACE_IWARP)
		abilities |= STAGDV_ABILITY_MIRROR;
	if (config()->extensions)
		abilities |= STAGDV_ABILITY_IMM | STAGDV_ABILITY_ATOMIC | STAGDV_ABILITY_SEND_IMM |
			     STAGDV_ABILITY_FLUSH;
	if (config()->extensions && config()->one_shot != SHOT_NONE)
		abilities |= STAGDV_ABILITY_ONE_SHOT;
	if (strcmp(crc32c_implementation(), "portable") != 0)
		abilities |= STAGDV_ABILITY_CRC_HW;
	if (config()->trace)
		abilities |= STAGDV_ABILITY_TRACE;
	return abilities;
}

STAG_EXPORT int stagdv_query_device(struct ibv_context *context, struct stagdv_device_attr *attr,
				    size_t size)
{
	if (!is_ours(context))
		return EOPNOTSUPP;

	struct stagdv_device_attr ours = {
		.abilities = device_abilities(face_of(context)),
		.version = library_version(),
		.max_ulpdu = MPA_MAX_ULPDU,
		.crc = config()->crc,
		.markers = config()->markers,
		.extensions = config()->extensions,
	};

	return -copy_out(attr, size, &ours, sizeof(ours));
}

STAG_EXPORT int stagdv_query_counters(struct ibv_context *context, struct stagdv_counters *c,
				      size_t size)
{
	struct stagdv_counters ours = {0};

	if (!is_ours(context))
		return EOPNOTSUPP;
	device_counters(&ours);
	return -copy_out(c, size, &ours, sizeof(ours));
}

STAG_EXPORT int stagdv_query_qp_counters(struct ibv_qp *qp, struct stagdv_counters *c, size_t size)
{
	struct stagdv_counters ours = {0};

	if (!is_ours(qp->context))
		return EOPNOTSUPP;
	qp_counters(to_stag_qp(qp), &ours);
	return -copy_out(c, size, &ours, sizeof(ours));
}

static uint64_t link_abilities(const struct qp_link *link)
{
	return (link->caps & MPA_EXT_IMM ? STAGDV_ABILITY_IMM : 0) |
	       (link->caps & MPA_EXT_ATOMIC ? STAGDV_ABILITY_ATOMIC : 0) |
	       (link->caps & MPA_EXT_SEND_IMM ? STAGDV_ABILITY_SEND_IMM : 0) |
	       (link->caps & MPA_EXT_FLUSH ? STAGDV_ABILITY_FLUSH : 0) |
	       (link->caps & MPA_EXT_ONE_SHOT ? STAGDV_ABILITY_ONE_SHOT : 0);
}

static uint8_t one_shot_of(enum shot_encoding e)
{
	switch (e) {
	case SHOT_LITERAL:
		return STAGDV_ONE_SHOT_LITERAL;
	case SHOT_OPCODES:
		return STAGDV_ONE_SHOT_OPCODES;
	case SHOT_BITS:
		return STAGDV_ONE_SHOT_BITS;
	case SHOT_NONE:
		break;
	}
	return STAGDV_ONE_SHOT_NONE;
}

/* Only one_shot is known of a real adapter's connection. */
static int query_foreign_qp(struct ibv_qp *qp, struct stagdv_qp_attr *attr, size_t size)
{
	struct stagdv_qp_attr ours = {0};
	int err = foreign_one_shot(qp, &ours.one_shot);

	return err ? err : copy_out(attr, size, &ours, sizeof(ours));
}

STAG_EXPORT int stagdv_query_qp(struct ibv_qp *ibv, struct stagdv_qp_attr *attr, size_t size)
{
	struct stag_qp *qp = to_stag_qp(ibv);

	if (!is_ours(ibv->context))
		return -query_foreign_qp(ibv, attr, size);

	HOLD_FOR_SCOPE(&qp->tx_lock);
	if (!qp->link.mpa_rev) {
		if (qp->rc && ibv->state == IBV_QPS_RTS)
			reach_ask(qp);
		return ENOTCONN;
	}

	struct stagdv_qp_attr ours = {
		.abilities = link_abilities(&qp->link),
		.mulpdu = qp_tx_mulpdu(qp),
		.ird = qp->link.ird,
		.ord = qp->link.ord,
		.crc = qp->link.crc,
		.markers_tx = qp->link.markers_tx,
		.markers_rx = qp->link.markers_rx,
		.initiator = qp->link.initiator,
		.mpa_rev = qp->link.mpa_rev,
		.stag_peer = qp->link.stag_peer,
		.one_shot = one_shot_of(qp->link.one_shot),
	};

	return -copy_out(attr, size, &ours, sizeof(ours));
}

STAG_EXPORT struct ibv_mr *stagdv_alloc_fast_mr(struct ibv_pd *pd, uint32_t max_sge)
{
	struct stag_mr *mr = NULL;

	if (!is_ours(pd->context))
		return fail_with(EOPNOTSUPP);
	if (max_sge < 1 || max_sge > STAG_FAST_MR_SGE) {
		log_info("mr: fast region of %u pieces requested; 1 to %d are possible", max_sge,
			 STAG_FAST_MR_SGE);
		return fail_with(EINVAL);
	}
	FACE_RETURN(mr_alloc_fast(to_stag_pd(pd), max_sge, &mr), &mr->ibv);
}

STAG_EXPORT int stagdv_post_fast_reg(struct ibv_qp *qp, struct stagdv_fast_reg *wr)
{
	if (!is_ours(qp->context))
		return EOPNOTSUPP;
	if (wr->comp_mask || !wr->mr || !is_ours(wr->mr->context)) {
		log_info("qp %u: fast registration without a region of this device", qp->qp_num);
		return EINVAL;
	}
	return -qp_post_fast_reg(to_stag_qp(qp), wr);
}

STAG_EXPORT struct ibv_mr *stagdv_reg_guarded_mr(struct ibv_pd *pd, void *addr, size_t length,
						 unsigned int access,
						 const struct stagdv_guard *guard)
{
	struct stag_mr *mr = NULL;

	if (!is_ours(pd->context))
		return fail_with(EOPNOTSUPP);
	FACE_RETURN(mr_reg(to_stag_pd(pd), addr, length, (uintptr_t)addr, access, guard, &mr),
		    &mr->ibv);
}

/* ---- regions that outlive a machine ------------------------------------- */

STAG_EXPORT struct ibv_mr *stagdv_reg_mr_keyed(struct ibv_pd *pd, void *addr, size_t length,
					       unsigned int access, uint32_t rkey)
{
	struct stag_mr *mr = NULL;

	if (!is_ours(pd->context))
		return fail_with(EOPNOTSUPP);
	FACE_RETURN(mr_reg_keyed(to_stag_pd(pd), addr, length, access, rkey, &mr), &mr->ibv);
}

STAG_EXPORT int stagdv_choose_key(struct ibv_context *context, uint32_t *rkey)
{
	if (!is_ours(context))
		return EOPNOTSUPP;
	*rkey = key_choose();
	return 0;
}

STAG_EXPORT int stagdv_set_mr_lease(struct ibv_mr *mr, uint64_t until_ns)
{
	if (!is_ours(mr->context))
		return EOPNOTSUPP;
	return -mr_set_lease(to_stag_mr(mr), until_ns);
}

STAG_EXPORT int stagdv_mirror_mr(struct ibv_mr *mr, const struct stagdv_mirror *mirror)
{
	if (!is_ours(mr->context))
		return EOPNOTSUPP;
	if (!mirror->qp || !is_ours(mirror->qp->context)) {
		log_info("mr 0x%08x: a mirror without a queue pair of this device", mr->rkey);
		return EINVAL;
	}
	return -mirror_add(to_stag_mr(mr), mirror);
}

STAG_EXPORT int stagdv_unmirror_mr(struct ibv_mr *mr, struct ibv_qp *qp)
{
	if (!is_ours(mr->context))
		return EOPNOTSUPP;
	return -mirror_remove(to_stag_mr(mr), qp);
}

/* ---- storage ----------------------------------------------------------- */

static struct stag_medium *to_medium(struct stagdv_medium *m)
{
	return (struct stag_medium *)m;
}

STAG_EXPORT struct stagdv_medium *stagdv_open_medium(struct ibv_context *context,
						     const struct stagdv_medium_attr *attr)
{
	struct stag_medium *m = NULL;

	if (!is_ours(context))
		return fail_with(EOPNOTSUPP);
	FACE_RETURN(medium_open(to_stag_ctx(context), attr, &m), (struct stagdv_medium *)m);
}

STAG_EXPORT int stagdv_close_medium(struct stagdv_medium *medium)
{
	return -medium_close(to_medium(medium));
}

STAG_EXPORT int stagdv_query_medium(struct stagdv_medium *medium, struct stagdv_medium_counters *c,
				    size_t size)
{
	struct stagdv_medium_counters ours;

	medium_query(to_medium(medium), &ours);
	return -copy_out(c, size, &ours, sizeof(ours));
}

STAG_EXPORT struct ibv_mr *stagdv_reg_store_mr(struct ibv_pd *pd, struct stagdv_medium *medium,
					       const struct stagdv_store_attr *attr)
{
	struct stag_mr *mr = NULL;

	if (!is_ours(pd->context))
		return fail_with(EOPNOTSUPP);
	FACE_RETURN(store_mr_reg(to_stag_pd(pd), to_medium(medium), attr, &mr), &mr->ibv);
}

STAG_EXPORT int stagdv_modify_store_mr(struct ibv_mr *mr, const struct stagdv_store_attr *attr,
				       int mask)
{
	if (!is_ours(mr->context))
		return EOPNOTSUPP;
	return -store_mr_modify(to_stag_mr(mr), attr, mask);
}

STAG_EXPORT int stagdv_connect_store(struct ibv_qp *qp, const struct stagdv_store_qp_attr *attr)
{
	static const struct stagdv_store_qp_attr defaults;

	if (!is_ours(qp->context))
		return EOPNOTSUPP;
	return -store_qp_connect(to_stag_qp(qp), attr ? attr : &defaults);
}

STAG_EXPORT int stagdv_query_store_qp(struct ibv_qp *qp, struct stagdv_store_qp_attr *attr,
				      size_t size)
{
	struct stagdv_store_qp_attr ours = {0};
	int err;

	if (!is_ours(qp->context))
		return EOPNOTSUPP;
	err = store_qp_query(to_stag_qp(qp), &ours);
	return -(err ? err : copy_out(attr, size, &ours, sizeof(ours)));
}

STAG_EXPORT int stagdv_modify_store_qp(struct ibv_qp *qp, const struct stagdv_store_qp_attr *attr,
				       int mask)
{
	if (!is_ours(qp->context))
		return EOPNOTSUPP;
	return -store_qp_modify(to_stag_qp(qp), attr, mask);
}

STAG_EXPORT int stagdv_wr_barrier(struct ibv_qp *qp, struct stagdv_barrier *barrier)
{
	if (!is_ours(qp->context))
		return EOPNOTSUPP;
	if (barrier->comp_mask) {
		log_info("qp %u: barrier with unknown fields in comp_mask", qp->qp_num);
		return EINVAL;
	}
	return -qp_post_barrier(to_stag_qp(qp), barrier);
}

/* ---- one-shot sends ----------------------------------------------------- */

STAG_EXPORT int stagdv_post_send_advertise(struct ibv_qp *qp, struct stagdv_advertise *wr,
					   uint32_t *stag)
{
	if (wr->comp_mask) {
		log_info("qp %u: send that advertises with unknown fields in comp_mask",
			 qp->qp_num);
		return EINVAL;
	}
	if (!is_ours(qp->context))
		return -foreign_advertise(qp, wr, stag);
	return -qp_post_advertise(to_stag_qp(qp), wr, stag);
}

STAG_EXPORT int stagdv_post_send_close(struct ibv_qp *qp, struct stagdv_close *wr)
{
	if (wr->comp_mask) {
		log_info("qp %u: send that closes with unknown fields in comp_mask", qp->qp_num);
		return EINVAL;
	}
	if (!is_ours(qp->context))
		return -foreign_close(qp, wr);
	return -qp_post_close(to_stag_qp(qp), wr);
}

STAG_EXPORT int stagdv_wr_send_advertise(struct ibv_qp_ex *qp, const struct stagdv_advertise *wr,
					 uint32_t *stag)
{
	if (!is_ours(qp->qp_base.context))
		return EOPNOTSUPP;
	return wr_send_advertise(qp, wr, stag);
}

STAG_EXPORT int stagdv_wr_send_close(struct ibv_qp_ex *qp, uint32_t stag)
{
	if (!is_ours(qp->qp_base.context))
		return EOPNOTSUPP;
	return wr_send_close(qp, stag);
}

STAG_EXPORT int stagdv_withdraw(struct ibv_qp *qp, uint32_t stag, uint32_t *reference)
{
	uint32_t unasked;

	if (!is_ours(qp->context))
		return -foreign_withdraw(qp, stag, reference);
	return shot_end(to_stag_qp(qp), stag, STAGDV_STAG_WITHDRAWN,
			reference ? reference : &unasked)
		       ? ENOENT
		       : 0;
}

STAG_EXPORT int stagdv_query_stags(struct ibv_context *context, struct stagdv_stag *list, size_t n,
				   size_t size)
{
	if (!is_ours(context))
		return -EOPNOTSUPP;
	if (size < sizeof(uint64_t))
		return -EINVAL;
	return (int)ledger_query(list, n, size);
}
