// SPDX-License-Identifier: BSD-2-Clause
/*
 * verbs_number.c - queue pairs that are connected by number and GID, with ibv_modify_qp().
 *
 * Numbers travel over the pair's socket, as programs without rdma_cm send them over one of their own.
 */
#include "pair.h"
#include "verbs_link.h"

#include <stdlib.h>
#include <string.h>

#define PORT 1

struct place { /* where a side's queue pairs are */
	union ibv_gid gid;
	uint16_t lid;
	enum ibv_mtu mtu;
};

static struct place here, there;

static struct ibv_context *open_named(const char *name)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *ctx = NULL;

	for (int i = 0; list && i < n && !ctx; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			ctx = ibv_open_device(list[i]);
	ibv_free_device_list(list);
	if (!ctx)
		pair_die("no device %s", name);
	return ctx;
}

static void learn_places(void)
{
	struct ibv_context *dev = open_named(options.device);
	struct ibv_port_attr attr;

	if (ibv_query_port(dev, PORT, &attr) || ibv_query_gid(dev, PORT, 0, &here.gid))
		pair_die("port %d of %s", PORT, options.device);
	here.lid = attr.lid;
	here.mtu = attr.active_mtu;
	lane_use(dev);
	pair_tell(&here, sizeof(here));
	pair_hear(&there, sizeof(there));
}

static void modify(struct ibv_qp *qp, struct ibv_qp_attr attr, int mask)
{
	int err = ibv_modify_qp(qp, &attr, IBV_QP_STATE | mask);

	if (err)
		pair_die("ibv_modify_qp to state %d: %s", attr.qp_state, strerror(err));
}

static void to_init(struct ibv_qp *qp)
{
	modify(qp,
	       (struct ibv_qp_attr){.qp_state = IBV_QPS_INIT,
				    .port_num = PORT,
				    .qp_access_flags = IBV_ACCESS_LOCAL_WRITE |
						       IBV_ACCESS_REMOTE_WRITE |
						       IBV_ACCESS_REMOTE_READ},
	       IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

static void to_rts(struct ibv_qp *qp, uint32_t peer)
{
	uint8_t reads = (uint8_t)(lane.reads < 16 ? lane.reads : 16);

	modify(qp,
	       (struct ibv_qp_attr){.qp_state = IBV_QPS_RTR,
				    .path_mtu = here.mtu < there.mtu ? here.mtu : there.mtu,
				    .dest_qp_num = peer,
				    .max_dest_rd_atomic = reads,
				    .min_rnr_timer = 12,
				    .ah_attr = {.is_global = 1,
						.port_num = PORT,
						.dlid = there.lid,
						.grh = {.dgid = there.gid, .hop_limit = 64}}},
	       IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		       IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	modify(qp,
	       (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .timeout = 18,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = reads},
	       IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
		       IBV_QP_MAX_QP_RD_ATOMIC);
}

void number_connect(struct ibv_qp **qps, size_t n, size_t measured)
{
	uint32_t *mine = calloc(n, sizeof(*mine)), *theirs = calloc(n, sizeof(*theirs));

	if (!mine || !theirs)
		pair_die("no memory for %zu numbers", n);
	for (size_t i = 0; i < n; i++) {
		struct ibv_qp_init_attr attr = lane_attributes(i == measured);

		qps[i] = ibv_create_qp(lane.pd, &attr);
		if (!qps[i])
			pair_die("ibv_create_qp, number %zu", i);
		to_init(qps[i]);
		mine[i] = qps[i]->qp_num;
	}
	pair_tell(mine, n * sizeof(*mine));
	pair_hear(theirs, n * sizeof(*theirs));
	for (size_t i = 0; i < n; i++)
		to_rts(qps[i], theirs[i]);
	free(mine);
	free(theirs);
}

void number_open(void)
{
	size_t n = options.idle + 1;

	learn_places();
	lane.qps = calloc(n, sizeof(struct ibv_qp *));
	if (!lane.qps)
		pair_die("no memory for %zu queue pairs", n);
	number_connect(lane.qps, n, options.idle / 2);
	lane.qp = lane.qps[options.idle / 2];
	pair_meet(NULL); /* all of the peer's are ready */
}
