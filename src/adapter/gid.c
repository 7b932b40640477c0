// SPDX-License-Identifier: BSD-2-Clause
/* gid.c - the GID table of roce0: the machine's addresses. */
#include "adapter/gid.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#define MAX_AGE_NS    NS_PER_S
#define HEADERS	      96  /* of a RoCE packet, at most: Linux, iboe_get_mtu() */
#define MAX_ADDRESSES 512 /* of this machine, those that are not in the table included */

static struct {
	struct lock lock; /* a leaf */
	uint64_t read_at; /* clock_ns(); 0: never */
	struct gid_table table;
	union ibv_gid local[MAX_ADDRESSES];
	unsigned n_local;
} machine = {.lock = LOCK_INITIALIZER};

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
	memset(out, 0, sizeof(*out));
	if (addr->sa_family == AF_INET) {
		out->raw[10] = out->raw[11] = 0xff;
		memcpy(out->raw + 12, &((const struct sockaddr_in *)addr)->sin_addr, 4);
	} else if (addr->sa_family == AF_INET6) {
		memcpy(out->raw, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
	}
}

socklen_t gid_to_addr(const union ibv_gid *gid, uint32_t ifindex, uint16_t port,
		      struct sockaddr_storage *out)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
	struct sockaddr_in *four = (struct sockaddr_in *)out;

	memset(out, 0, sizeof(*out));
	if (gid_is_v4(gid)) {
		four->sin_family = AF_INET;
		four->sin_port = htons(port);
		memcpy(&four->sin_addr, gid->raw + 12, 4);
		return sizeof(*four);
	}
	six->sin6_family = AF_INET6;
	six->sin6_port = htons(port);
	memcpy(&six->sin6_addr, gid->raw, 16);
	if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
		six->sin6_scope_id = ifindex;
	return sizeof(*six);
}

const char *gid_text(const union ibv_gid *gid, char buf[GID_TEXT])
{
	if (gid_is_v4(gid))
		inet_ntop(AF_INET, gid->raw + 12, buf, GID_TEXT);
	else
		inet_ntop(AF_INET6, gid->raw, buf, GID_TEXT);
	return buf;
}

/* ---- which addresses, and in which order ---- */

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

static bool to_gid(const struct ifaddrs *a, union ibv_gid *gid)
{
	if (!a->ifa_addr ||
	    (a->ifa_addr->sa_family != AF_INET && a->ifa_addr->sa_family != AF_INET6))
		return false;
	gid_from_addr(a->ifa_addr, gid);
	return true;
}

static int find(const struct gid_table *t, const union ibv_gid *gid)
{
	for (unsigned i = 0; i < t->len; i++)
		if (t->at[i].ifindex && gid_is_equal(&t->at[i].gid, gid))
			return (int)i;
	return -1;
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
		uint32_t ifindex = if_nametoindex(a->ifa_name);
		union ibv_gid gid;

		if (to_gid(a, &gid) && rank_of(a, &gid) == rank && find(t, &gid) < 0)
			add(t, &gid, ifindex ? ifindex : 1);
	}
}

static bool is_there(const struct ifaddrs *addrs, const union ibv_gid *wanted)
{
	for (const struct ifaddrs *a = addrs; a; a = a->ifa_next) {
		union ibv_gid gid;

		if (to_gid(a, &gid) && rank_of(a, &gid) != NEVER && gid_is_equal(&gid, wanted))
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

/* ---- this machine's ---- */

/* A network without any address, not even of the loopback interface. */
static void add_last_resort(struct gid_table *t)
{
	struct sockaddr_in lo = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	union ibv_gid gid;

	if (t->at[0].ifindex)
		return;
	gid_from_addr((struct sockaddr *)&lo, &gid);
	t->at[0] = (struct gid_entry){.gid = gid, .ifindex = 1};
	t->used++;
}

static void note_local(const struct ifaddrs *addrs)
{
	machine.n_local = 0;
	for (const struct ifaddrs *a = addrs; a && machine.n_local < MAX_ADDRESSES; a = a->ifa_next)
		if (to_gid(a, &machine.local[machine.n_local]))
			machine.n_local++;
}

static void refresh(void)
{
	uint64_t now = clock_ns();
	struct ifaddrs *addrs = NULL;

	if (machine.read_at && now - machine.read_at < MAX_AGE_NS)
		return;
	machine.read_at = now;
	if (getifaddrs(&addrs))
		log_err("gid: cannot read the machine's addresses: %s", strerror(errno));
	gid_table_update(&machine.table, addrs);
	add_last_resort(&machine.table);
	note_local(addrs);
	if (addrs)
		freeifaddrs(addrs);
}

unsigned gid_table_len(void)
{
	unsigned len;

	lock_acquire(&machine.lock);
	refresh();
	len = machine.table.len;
	lock_release(&machine.lock);
	return len;
}

bool gid_get(unsigned index, struct gid_entry *out)
{
	bool filled;

	lock_acquire(&machine.lock);
	refresh();
	filled = index < machine.table.len && machine.table.at[index].ifindex;
	if (filled)
		*out = machine.table.at[index];
	lock_release(&machine.lock);
	return filled;
}

int gid_index(const union ibv_gid *gid)
{
	int at;

	lock_acquire(&machine.lock);
	refresh();
	at = find(&machine.table, gid);
	lock_release(&machine.lock);
	return at;
}

bool gid_is_local(const union ibv_gid *gid)
{
	bool is = gid_is_v4(gid) && gid->raw[12] == 127;

	lock_acquire(&machine.lock);
	refresh();
	for (unsigned i = 0; i < machine.n_local && !is; i++)
		is = gid_is_equal(&machine.local[i], gid);
	lock_release(&machine.lock);
	return is;
}

static unsigned interface_mtu(uint32_t ifindex)
{
	CLEANUP_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct ifreq r = {.ifr_mtu = 0};

	if (fd < 0 || !if_indextoname(ifindex, r.ifr_name) || ioctl(fd, SIOCGIFMTU, &r))
		return 1500;
	return (unsigned)r.ifr_mtu;
}

enum ibv_mtu gid_mtu(void)
{
	struct gid_entry first;
	unsigned room = gid_get(0, &first) ? interface_mtu(first.ifindex) : 1500;
	enum ibv_mtu mtu = IBV_MTU_4096;

	room = room > HEADERS ? room - HEADERS : 0;
	while (mtu > IBV_MTU_256 && room < 128u << mtu)
		mtu--;
	return mtu;
}

void gid_after_fork(void)
{
	lock_init(&machine.lock);
}
