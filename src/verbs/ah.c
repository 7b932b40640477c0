// SPDX-License-Identifier: BSD-2-Clause
/*
 * ah.c - address handles and multicast: for datagrams, which roce0 has and iWARP lacks.
 */
#include "verbs/verbs.h"

static bool has_datagrams(const struct ibv_context *context, const char *what)
{
	if (face_of(context) == FACE_ROCE)
		return true;
	log_info("device: %s: iWARP has no datagrams", what);
	return false;
}

static struct ibv_ah *create(struct ibv_pd *pd, const struct ibv_ah_attr *attr)
{
	struct stag_ah *ah = NULL;
	int err = ah_create(pd_root(to_stag_pd(pd)), attr, &ah);

	if (!err)
		ah->ibv.pd = pd;
	FACE_RETURN(err, &ah->ibv);
}

STAG_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	if (!is_ours(pd->context))
		return real()->create_ah(pd, attr);
	if (!has_datagrams(pd->context, __func__))
		return fail_with(EOPNOTSUPP);
	return create(pd, attr);
}

STAG_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
						 struct ibv_grh *grh, uint8_t port_num)
{
	struct ibv_ah_attr attr;
	int err;

	if (!is_ours(pd->context))
		return real()->create_ah_from_wc(pd, wc, grh, port_num);
	if (!has_datagrams(pd->context, __func__))
		return fail_with(EOPNOTSUPP);
	err = ah_from_wc(wc, grh, port_num, &attr);
	return err ? fail_with(-err) : create(pd, &attr);
}

STAG_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
				    struct ibv_wc *wc, struct ibv_grh *grh,
				    struct ibv_ah_attr *attr)
{
	if (!is_ours(context))
		return real()->init_ah_from_wc(context, port_num, wc, grh, attr);
	if (!has_datagrams(context, __func__))
		return minus_one(-EOPNOTSUPP);
	return minus_one(ah_from_wc(wc, grh, port_num, attr));
}

STAG_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	if (!is_ours(ah->context))
		return real()->destroy_ah(ah);
	ah_destroy(to_stag_ah(ah));
	return 0;
}

STAG_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (!is_ours(qp->context))
		return real()->attach_mcast(qp, gid, lid);
	if (!has_datagrams(qp->context, __func__))
		return EOPNOTSUPP;
	return -mcast_attach(to_stag_qp(qp), gid);
}

STAG_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (!is_ours(qp->context))
		return real()->detach_mcast(qp, gid, lid);
	if (!has_datagrams(qp->context, __func__))
		return EOPNOTSUPP;
	return -mcast_detach(to_stag_qp(qp), gid);
}

/* Datagrams are the kernel's, which finds the link-layer address. */
STAG_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					    uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	if (!is_ours(context))
		return real()->resolve_eth_l2_from_gid(context, attr, eth_mac, vid);
	log_info("device: %s: the kernel finds link-layer addresses", __func__);
	return EOPNOTSUPP;
}
