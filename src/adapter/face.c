// SPDX-License-Identifier: BSD-2-Clause
/* face.c - the attributes of roce0 and of its port, where they differ from those of stag0. */
#include "adapter/face.h"

#include "adapter/gid.h"
#include "adapter/port.h"

void face_roce_attr(struct ibv_device_attr *a)
{
	int numbers = (int)port_max_qps();

	if (a->max_qp > numbers)
		a->max_qp = numbers;
	/* Programs compare with IBV_ATOMIC_HCA; atomics are atomic for every process of this host. */
	a->atomic_cap = IBV_ATOMIC_HCA;
	a->device_cap_flags |= IBV_DEVICE_RC_RNR_NAK_GEN;
	a->max_ah = ROCE_MAX_AH;
	a->max_mcast_grp = ROCE_MAX_GROUPS;
	a->max_mcast_qp_attach = ROCE_GROUP_QPS;
	a->max_total_mcast_qp_attach = ROCE_MAX_GROUPS * ROCE_GROUP_QPS;
	a->local_ca_ack_delay = 15; /* 4.096 us * 2^15: threads answer, not hardware */
}

void face_roce_port(struct ibv_port_attr *a)
{
	a->active_mtu = gid_mtu();
	a->gid_tbl_len = (int)gid_table_len();
	a->max_msg_sz = ROCE_MAX_MSG;
	a->max_vl_num = 1;
}
