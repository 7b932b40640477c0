// SPDX-License-Identifier: BSD-2-Clause
/* gid.c - the GID table of this machine, and GIDs as addresses. */
#include "adapter/gid.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "adapter/device.h"
#include "adapter/engine.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#define MAX_AGE_NS    NS_PER_S
#define HEADERS	      96  /* of a RoCE packet, at most: Linux, iboe_get_mtu() */
#define MAX_ADDRESSES 512 /* of this machine, those that are not in the table included */

static struct {
	struct lock lock; /* adapter.h has its place */
	uint64_t read_at; /* clock_ns(); 0: never */
	bool stale;	  /* to be read again, however young it is */
	struct work tell; /* that it has changed */
	struct gid_table table;
	union ibv_gid local[MAX_ADDRESSES];
	unsigned n_local;
} machine = {.lock = LOCK_INITIALIZER};

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

static void note_local(const struct ifaddrs *addrs)
{
	machine.n_local = 0;
	for (const struct ifaddrs *a = addrs; a && machine.n_local < MAX_ADDRESSES; a = a->ifa_next)
		if (gid_from_ifaddr(a, &machine.local[machine.n_local]))
			machine.n_local++;
}

static void on_change(struct work *w)
{
	ctx_async_all(IBV_EVENT_GID_CHANGE);
}

static void read_addresses(void)
{
	struct ifaddrs *addrs = NULL;

	if (getifaddrs(&addrs))
		log_err("gid: cannot read the machine's addresses: %s", strerror(errno));
	gid_table_update(&machine.table, addrs);
	gid_table_add_last_resort(&machine.table);
	note_local(addrs);
	if (addrs)
		freeifaddrs(addrs);
}

/* The caller may hold any lock: the engine tells. */
static void refresh(void)
{
	struct gid_table before;
	uint64_t now = clock_ns();
	bool is_first = !machine.read_at;

	assert(lock_held(&machine.lock));
	if (!is_first && !machine.stale && now - machine.read_at < MAX_AGE_NS)
		return;
	before = machine.table;
	machine.read_at = now;
	machine.stale = false;
	read_addresses();
	if (!is_first && !gid_table_is_equal(&before, &machine.table))
		work_queue(&machine.tell, on_change);
}

void gid_refresh(void)
{
	lock_acquire(&machine.lock);
	machine.stale = true;
	refresh();
	lock_release(&machine.lock);
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
	at = gid_table_find(&machine.table, gid);
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

static int index_of_family(bool v4)
{
	int at = 0;

	lock_acquire(&machine.lock);
	for (unsigned i = machine.table.len; i-- > 0;)
		if (machine.table.at[i].ifindex && gid_is_v4(&machine.table.at[i].gid) == v4)
			at = (int)i;
	lock_release(&machine.lock);
	return at;
}

int gid_index_from(const union ibv_gid *gid)
{
	int at = gid_index(gid);

	if (at < 0 && gid_is_local(gid))
		at = index_of_family(gid_is_v4(gid));
	return at;
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
	gid_watch_after_fork();
}
