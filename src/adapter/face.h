/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * face.h - what differs between the two faces of the adapter, stag0 (iWARP) and roce0 (RoCE v2).
 *
 *   attributes of device and port   face.c
 *   GIDs                            gid.h: the machine's addresses
 *   numbers of queue pairs          port.h: a TCP and UDP port, and an index behind it
 *   states, modify and query        roce_qp.h, qp_moves.h
 *   how queue pairs meet            reach.h; on stag0 that is src/cm
 *   completion and errors           rc.h: acknowledgements, RNR, NAKs
 *   datagrams                       ud.h; stag0 has none
 *
 * The streams, the messages on them and the memory are the same.
 */
#ifndef STAG_FACE_H
#define STAG_FACE_H

#include <infiniband/verbs.h>

#define ROCE_PKEY	 0xffff
#define ROCE_MAX_MSG	 (1u << 31)
#define ROCE_MAX_GROUPS	 1024 /* of multicast */
#define ROCE_GROUP_QPS	 256
#define ROCE_MAX_AH	 (1 << 20)
#define ROCE_SQ_TIMEOUTS 31 /* the largest ACK timeout and RNR timer, 5 bits */

void face_roce_attr(
	struct ibv_device_attr *a); /* changes the attributes of stag0 to those of roce0 */
void face_roce_port(struct ibv_port_attr *a);

#endif
