/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * link.h - connections of this process to itself; the accepting ends serve a region on storage.
 */
#ifndef STAG_TEST_LINK_H
#define STAG_TEST_LINK_H

#include <rdma/rdma_cma.h>

struct link_end { /* the connecting end, and the accepting end */
	struct rdma_cm_id *near, *far;
};

struct links {
	struct rdma_cm_id *listener;
	struct ibv_pd *pd; /* protection domain of the accepting ends */
	uint16_t port;
};

void links_open(struct links *l);
void links_close(struct links *l);

/* Connects a new pair of ends. near_pd holds the memory of the connecting end. */
void link_open(struct links *l, struct link_end *e, struct ibv_pd *near_pd, struct ibv_cq *near_cq,
	       struct ibv_cq *far_cq);
void link_close(struct link_end *e);

#endif
