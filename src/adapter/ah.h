/* SPDX-License-Identifier: BSD-2-Clause */
/* ah.h - address handles: where the datagrams of UD queue pairs go. */
#ifndef STAG_AH_H
#define STAG_AH_H

#include <stdint.h>
#include <infiniband/verbs.h>

struct stag_pd;

/* How a datagram travels: to a queue pair of this machine, of another one, or to a multicast group. */
enum ud_way { UD_NEAR, UD_FAR, UD_GROUP };

/* The part of a destination that an address handle has. */
struct ud_path {
	union ibv_gid sgid, dgid;
	uint32_t ifindex; /* of sgid's interface */
	uint32_t flow_label;
	uint8_t traffic_class, hop_limit;
	enum ud_way way;
};

struct stag_ah {
	struct ibv_ah ibv;
	struct stag_pd *pd;
	struct ud_path path;
};

static inline struct stag_ah *to_stag_ah(struct ibv_ah *ah)
{
	return (struct stag_ah *)ah;
}

/* Work requests copy what they need: a handle may be destroyed while they wait. */
int ah_create(struct stag_pd *pd, const struct ibv_ah_attr *attr, struct stag_ah **out);
void ah_destroy(struct stag_ah *ah);

/* Finds out where a received datagram came from, as libibverbs does. grh: the first 40 bytes of its receive. */
int ah_from_wc(const struct ibv_wc *wc, const struct ibv_grh *grh, uint8_t port_num,
	       struct ibv_ah_attr *out);

#endif
