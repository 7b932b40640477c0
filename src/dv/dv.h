/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dv.h - the software adapter's calls beyond verbs (stagdv.h), if the program has the adapter.
 *
 * libstag is not linked to the adapter: the calls exist if the program was started by `stag run`,
 * or is linked to libstag-verbs.
 */
#ifndef STAG_DV_H
#define STAG_DV_H

#include "stag/stagdv.h"

struct dv {
	typeof(stagdv_is_supported) *is_supported;
	typeof(stagdv_reg_guarded_mr) *reg_guarded;
	typeof(stagdv_reg_mr_keyed) *reg_keyed;
	typeof(stagdv_choose_key) *choose_key;
	typeof(stagdv_set_mr_lease) *set_lease;
	typeof(stagdv_mirror_mr) *mirror;
	typeof(stagdv_unmirror_mr) *unmirror;

	/* storage */
	typeof(stagdv_open_medium) *open_medium;
	typeof(stagdv_close_medium) *close_medium;
	typeof(stagdv_query_medium) *query_medium;
	typeof(stagdv_reg_store_mr) *reg_mr;
	typeof(stagdv_modify_store_mr) *modify_mr;
	typeof(stagdv_connect_store) *connect;
	typeof(stagdv_modify_store_qp) *modify_qp;
	typeof(stagdv_wr_barrier) *barrier;

	/* connections, and one-shot sends */
	typeof(stagdv_adopt) *adopt;
	typeof(stagdv_create_tls) *create_tls;
	typeof(stagdv_destroy_tls) *destroy_tls;
	typeof(stagdv_set_tls) *set_tls;
	typeof(stagdv_query_tls) *query_tls;
	typeof(stagdv_query_qp) *query_qp;
	typeof(stagdv_query_qp_counters) *query_counters;
	typeof(stagdv_post_send_advertise) *advertise;
	typeof(stagdv_withdraw) *withdraw;
};

/*
 * Returns NULL if the program has no adapter, or one that lacks any of these calls, or if STAG_DV
 * is "off", which limits libstag to plain verbs.
 */
const struct dv *dv_find(void);
/*
 * Queries what a connected queue pair has agreed on with its peer. Queue pairs of roce0 meet shortly after the connection
 * manager has connected them, and know it then: waits for that, half a second at most. Returns 0, or an errno value.
 */
int dv_query_peer(const struct dv *dv, struct ibv_qp *qp, struct stagdv_qp_attr *attr);
/*
 * Returns whether a queue pair of the device `other` can use protection domains, completion queues and regions of
 * `context`: it is the same device, or both are the software adapter's, which has two (stagdv.h).
 */
bool dv_shares(const struct ibv_context *context, const struct ibv_context *other);
/* Returns NULL if the adapter has no device. Of its two, prefers stag0, whose connections also forward and speak TLS. */
struct ibv_context *dv_open_first(const struct dv *dv);

#endif
