// SPDX-License-Identifier: BSD-2-Clause
/*
 * ah.c - address handles and multicast: datagram services, which iWARP lacks.
 */
#include "verbs/verbs.h"

static int no_datagrams(const char *what)
{
	log_info("device: %s: iWARP has no datagrams", what);
	return EOPNOTSUPP;
}

STAG_EXPORT struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	if (!is_ours(pd->context))
		return real()->create_ah(pd, attr);
	return fail_with(no_datagrams("ibv_create_ah"));
}

STAG_EXPORT struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc,
						 struct ibv_grh *grh, uint8_t port_num)
{
	if (!is_ours(pd->context))
		return real()->create_ah_from_wc(pd, wc, grh, port_num);
	return fail_with(no_datagrams("ibv_create_ah_from_wc"));
}

STAG_EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port_num,
				    struct ibv_wc *wc, struct ibv_grh *grh,
				    struct ibv_ah_attr *attr)
{
	if (!is_ours(context))
		return real()->init_ah_from_wc(context, port_num, wc, grh, attr);
	return minus_one(-no_datagrams("ibv_init_ah_from_wc"));
}

STAG_EXPORT int ibv_destroy_ah(struct ibv_ah *ah)
{
	if (!is_ours(ah->context))
		return real()->destroy_ah(ah);
	return no_datagrams("ibv_destroy_ah");
}

STAG_EXPORT int ibv_attach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (!is_ours(qp->context))
		return real()->attach_mcast(qp, gid, lid);
	return no_datagrams("ibv_attach_mcast");
}

STAG_EXPORT int ibv_detach_mcast(struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid)
{
	if (!is_ours(qp->context))
		return real()->detach_mcast(qp, gid, lid);
	return no_datagrams("ibv_detach_mcast");
}

STAG_EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr,
					    uint8_t eth_mac[ETHERNET_LL_SIZE], uint16_t *vid)
{
	if (!is_ours(context))
		return real()->resolve_eth_l2_from_gid(context, attr, eth_mac, vid);
	return no_datagrams("ibv_resolve_eth_l2_from_gid");
}
