// SPDX-License-Identifier: BSD-2-Clause
/* ah.c - address handles: where the datagrams of UD queue pairs go. */
#include "adapter/ah.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "adapter/gid.h"
#include "adapter/misuse.h"
#include "adapter/pd.h"
#include "base/log.h"
#include "wire/datagram.h"

#define NEXT_HEADER_UDP 17

static int refuse(const char *why, unsigned value)
{
	misuse(why, 0, "ah: %s (%u)", why, value);
	return -EINVAL;
}

static bool is_zero(const union ibv_gid *gid)
{
	static const union ibv_gid zero;

	return gid_is_equal(gid, &zero);
}

static int find_way(struct ud_path *p)
{
	if (datagram_is_mgid(p->dgid.raw))
		p->way = UD_GROUP;
	else if (gid_is_local(&p->dgid))
		p->way = UD_NEAR;
	else if (is_zero(&p->dgid) || gid_is_v4(&p->sgid) != gid_is_v4(&p->dgid))
		return refuse("its dgid cannot be reached from the GID at sgid_index", 0);
	else
		p->way = UD_FAR;
	return 0;
}

static int find_path(const struct ibv_ah_attr *attr, struct ud_path *p)
{
	struct gid_entry entry;

	if (!attr->is_global)
		return refuse("a RoCE address needs a GID: is_global is 0", 0);
	if (attr->port_num != 1)
		return refuse("no such port", attr->port_num);
	if (!gid_get(attr->grh.sgid_index, &entry))
		return refuse("there is no GID at sgid_index", attr->grh.sgid_index);
	*p = (struct ud_path){
		.sgid = entry.gid,
		.dgid = attr->grh.dgid,
		.ifindex = entry.ifindex,
		.flow_label = attr->grh.flow_label & 0xfffff,
		.traffic_class = attr->grh.traffic_class,
		.hop_limit = attr->grh.hop_limit ? attr->grh.hop_limit : 1,
	};
	return find_way(p);
}

int ah_create(struct stag_pd *pd, const struct ibv_ah_attr *attr, struct stag_ah **out)
{
	static atomic_uint next = 1;
	struct ud_path path;
	struct stag_ah *ah;
	int err = find_path(attr, &path);

	if (err)
		return err;
	ah = calloc(1, sizeof(*ah));
	if (!ah)
		return -ENOMEM;
	ah->ibv.context = pd->ibv.context;
	ah->ibv.pd = &pd->ibv;
	ah->ibv.handle = atomic_fetch_add(&next, 1);
	ah->pd = pd;
	ah->path = path;
	atomic_fetch_add(&pd->users, 1);
	*out = ah;
	return 0;
}

void ah_destroy(struct stag_ah *ah)
{
	if (!ah)
		return;
	atomic_fetch_sub(&ah->pd->users, 1);
	free(ah);
}

int ah_from_wc(const struct ibv_wc *wc, const struct ibv_grh *grh, uint8_t port_num,
	       struct ibv_ah_attr *out)
{
	struct ibv_ah_attr attr = {.dlid = wc->slid,
				   .sl = wc->sl,
				   .src_path_bits = wc->dlid_path_bits,
				   .port_num = port_num};
	struct grh seen;
	union ibv_gid here;
	int index, err;

	*out = attr;
	if (!(wc->wc_flags & IBV_WC_GRH))
		return 0;
	err = grh_get((const uint8_t *)grh, &seen);
	if (err)
		return err;
	if (seen.next_header != NEXT_HEADER_UDP && seen.version == 6)
		return -EPROTONOSUPPORT;
	if (datagram_is_mgid(seen.dgid)) /* no address of this machine */
		return -EINVAL;
	memcpy(here.raw, seen.dgid, sizeof(here.raw));
	index = gid_index_from(&here);
	if (index < 0)
		return -ENOENT;
	attr.is_global = 1;
	attr.grh.sgid_index = (uint8_t)index;
	attr.grh.flow_label = seen.flow_label;
	attr.grh.hop_limit = seen.hop_limit;
	attr.grh.traffic_class = seen.traffic_class;
	memcpy(attr.grh.dgid.raw, seen.sgid, sizeof(seen.sgid));
	*out = attr;
	return 0;
}
