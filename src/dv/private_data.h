/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * private_data.h - how much private data the connection managers of InfiniBand and RoCE carry with RDMA_PS_TCP: the
 * parts of libstag send no more on any transport. The peer sees the whole field, filled up with zeroes. (iWARP: 512.)
 */
#ifndef STAG_DV_PRIVATE_DATA_H
#define STAG_DV_PRIVATE_DATA_H

#define PRIVATE_IN_REQUEST 56
#define PRIVATE_IN_REJECT  148
#define PRIVATE_IN_ACCEPT  196

#endif
