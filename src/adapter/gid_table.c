// SPDX-License-Identifier: BSD-2-Clause
/*
 * gid_table.c - which addresses the GID table of roce0 has, and in which order.
 *
 * Pure: no malloc, no locks, no log. libstag-found.so, which shows the table in /sys, has it too.
 */
#include "adapter/gid.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

bool gid_is_equal(const union ibv_gid *a, const union ibv_gid *b)
{
	return !memcmp(a, b, sizeof(*a));
}

bool gid_is_v4(const union ibv_gid *gid)
{
	return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)gid->raw);
}

void gid_from_addr(const struct sockaddr *addr, union ibv_gid *out)
{
	sa_family_t family;

	memset(out, 0, sizeof(*out));
	memcpy(&family, &addr->sa_family,
	       sizeof(family)); /* a caller may have written it as sin_family */
	if (family == AF_INET) {
		out->raw[10] = out->raw[11] = 0xff;
		memcpy(out->raw + 12, &((const struct sockaddr_in *)addr)->sin_addr, 4);
	} else if (family == AF_INET6) {
		memcpy(out->raw, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
	}
}

enum rank { GLOBAL_V4, GLOBAL_V6, LINK_LOCAL, LOOPBACK, RANKS, NEVER = RANKS };

static bool is_link_local(const union ibv_gid *gid)
{
	if (gid_is_v4(gid))
		return gid->raw[12] == 169 && gid->raw[13] == 254;
	return IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)gid->raw);
}

static enum rank rank_of(const struct ifaddrs *a, const union ibv_gid *gid)
{
	if (!(a->ifa_flags & IFF_UP))
		return NEVER;
	if (a->ifa_flags & IFF_LOOPBACK) /* ::1 would be no GID of RoCE */
		return gid_is_v4(gid) && gid->raw[12] == 127 ? LOOPBACK : NEVER;
	if (is_link_local(gid))
		return LINK_LOCAL;
	return gid_is_v4(gid) ? GLOBAL_V4 : GLOBAL_V6;
}

bool gid_from_ifaddr(const struct ifaddrs *a, union ibv_gid *gid)
{
	if (!a->ifa_addr ||
	    (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6))
		return false;
	gid_from_addr(a->ifa_addr, gid);
	return true;
}

int gid_table_find(const struct gid_table *t, const union ibv_gid *gid)
{
	for (unsigned i = 0; i < t->len; i++)
		if (t->at[i].ifindex && gid_is_equal(&t->at[i].gid, gid))
			return (int)i;
	return -1;
}

bool gid_table_is_equal(const struct gid_table *a, const struct gid_table *b)
{
	for (unsigned i = 0; i < GID_MAX_TABLE; i++)
		if (a->at[i].ifindex != b->at[i].ifindex ||
		    (a->at[i].ifindex && !gid_is_equal(&a->at[i].gid, &b->at[i].gid)))
			return false;
	return true;
}

static void add(struct gid_table *t, const union ibv_gid *gid, uint32_t ifindex)
{
	unsigned at = 0;

	while (at < t->len && t->at[at].ifindex)
		at++;
	if (at == t->len && t->len < GID_MAX_TABLE)
		t->len++;
	if (at == t->len)
		return;
	t->at[at] = (struct gid_entry){.gid = *gid, .ifindex = ifindex};
	t->used++;
}

/* Adds the addresses of one rank that are not there yet. */
static void add_rank(struct gid_table *t, const struct ifaddrs *addrs, enum rank rank)
{
	for (const struct ifaddrs *a = addrs; a; a = a->ifa_next) {
		union ibv_gid gid;

		if (gid_from_ifaddr(a, &gid) && rank_of(a, &gid) == rank &&
		    gid_table_find(t, &gid) < 0)
			add(t, &gid, if_nametoindex(a->ifa_name) ?: 1);
	}
}

static bool is_there(const struct ifaddrs *addrs, const union ibv_gid *wanted)
{
	for (const struct ifaddrs *a = addrs; a; a = a->ifa_next) {
		union ibv_gid gid;

		if (gid_from_ifaddr(a, &gid) && rank_of(a, &gid) != NEVER &&
		    gid_is_equal(&gid, wanted))
			return true;
	}
	return false;
}

static void drop_gone(struct gid_table *t, const struct ifaddrs *addrs)
{
	for (unsigned i = 0; i < t->len; i++) {
		if (!t->at[i].ifindex || is_there(addrs, &t->at[i].gid))
			continue;
		t->at[i] = (struct gid_entry){.ifindex = 0};
		t->used--;
	}
}

void gid_table_update(struct gid_table *t, const struct ifaddrs *addrs)
{
	if (t->len < GID_MIN_TABLE)
		t->len = GID_MIN_TABLE;
	drop_gone(t, addrs);
	add_rank(t, addrs, GLOBAL_V4);
	add_rank(t, addrs, GLOBAL_V6);
	if (!t->used)
		add_rank(t, addrs, LINK_LOCAL);
	if (!t->used)
		add_rank(t, addrs, LOOPBACK);
	if (t->used + 2 > t->len && t->len < GID_MAX_TABLE)
		t->len = t->used + 2 < GID_MAX_TABLE ? t->used + 2 : GID_MAX_TABLE;
}

void gid_table_add_last_resort(struct gid_table *t)
{
	struct sockaddr_in lo = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	union ibv_gid gid;

	if (t->at[0].ifindex)
		return;
	gid_from_addr((struct sockaddr *)&lo, &gid);
	t->at[0] = (struct gid_entry){.gid = gid, .ifindex = 1};
	t->used++;
}
