// SPDX-License-Identifier: BSD-2-Clause
/*
 * shown.c - which devices this process shows, and what it tells of them.
 *
 * Only system calls: a program may call stat() or open() in a signal handler, or between fork() and exec().
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "adapter/gid.h"
#include "adapter/guid.h"
#include "found/found.h"
#include "found/text.h"

/* ---- STAG_DEVICE ---- */

enum choice { UNKNOWN, NONE, ROCE, BOTH };

/* The adapter, too, reads the variable once. */
static _Atomic(enum choice) choice;

static enum choice read_choice(void)
{
	const char *device = secure_getenv("STAG_DEVICE");

	if (device && strcasecmp(device, "roce") == 0)
		return ROCE;
	return device && strcasecmp(device, "both") == 0 ? BOTH : NONE;
}

/* Before other threads may change the environment. */
__attribute__((constructor)) bool shown_any(void)
{
	enum choice c = atomic_load_explicit(&choice, memory_order_relaxed);

	if (!__environ) /* the C library has not come to that yet, and secure_getenv() would read it */
		return false;
	if (c == UNKNOWN) {
		c = read_choice();
		atomic_store_explicit(&choice, c, memory_order_relaxed);
	}
	return c != NONE;
}

/* ---- addresses ---- */

enum { MAX_ADDRESSES = 512, ANSWER_SIZE = 16384 };

/* Memory for one call: it has no room on the stack of a signal handler. */
struct scratch {
	struct shown shown;
	struct gid_table gids;
	struct ifaddrs addrs[MAX_ADDRESSES];
	struct sockaddr_storage sockaddrs[MAX_ADDRESSES];
	char names[MAX_ADDRESSES][IFNAMSIZ];
	unsigned num_addrs;
	char answer[ANSWER_SIZE] __attribute__((aligned(NLMSG_ALIGNTO)));
};

bool shown_netdev(uint32_t ifindex, char name[IFNAMSIZ])
{
	return ifindex && if_indextoname(ifindex, name);
}

static unsigned interface_flags(int fd, const char *name)
{
	struct ifreq r = {.ifr_flags = 0};

	memcpy(r.ifr_name, name, IFNAMSIZ);
	return ioctl(fd, SIOCGIFFLAGS, &r) == 0 ? (unsigned short)r.ifr_flags : 0;
}

/* Takes an address as getifaddrs() would: the local one of a pair, under the label of its interface. */
static void take_address(struct scratch *m, const struct ifaddrmsg *msg, size_t len)
{
	unsigned at = m->num_addrs;
	const void *address = NULL, *local = NULL, *label = NULL;
	size_t size = msg->ifa_family == AF_INET ? 4 : 16, label_len = 0;

	for (const struct rtattr *a = IFA_RTA(msg); RTA_OK(a, len); a = RTA_NEXT(a, len)) {
		if (a->rta_type == IFA_ADDRESS && RTA_PAYLOAD(a) == size)
			address = RTA_DATA(a);
		else if (a->rta_type == IFA_LOCAL && RTA_PAYLOAD(a) == size)
			local = RTA_DATA(a);
		else if (a->rta_type == IFA_LABEL && RTA_PAYLOAD(a) <= IFNAMSIZ) {
			label = RTA_DATA(a);
			label_len = RTA_PAYLOAD(a);
		}
	}
	if (local)
		address = local;
	if (!address || at == MAX_ADDRESSES || !shown_netdev(msg->ifa_index, m->names[at]))
		return;
	if (label)
		memcpy(m->names[at], label, label_len);
	m->sockaddrs[at].ss_family = msg->ifa_family;
	if (msg->ifa_family == AF_INET)
		memcpy(&((struct sockaddr_in *)&m->sockaddrs[at])->sin_addr, address, size);
	else
		memcpy(&((struct sockaddr_in6 *)&m->sockaddrs[at])->sin6_addr, address, size);
	m->addrs[at].ifa_name = m->names[at];
	m->addrs[at].ifa_addr = (struct sockaddr *)&m->sockaddrs[at];
	if (at)
		m->addrs[at - 1].ifa_next = &m->addrs[at];
	m->num_addrs++;
}

/* Takes the messages of a datagram. Returns false after the last one. */
static bool take_answer(struct scratch *m, size_t len)
{
	for (const struct nlmsghdr *h = (struct nlmsghdr *)m->answer; NLMSG_OK(h, len);
	     h = NLMSG_NEXT(h, len)) {
		const struct ifaddrmsg *msg = NLMSG_DATA(h);

		if (h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
			return false;
		if (h->nlmsg_type == RTM_NEWADDR &&
		    (msg->ifa_family == AF_INET || msg->ifa_family == AF_INET6))
			take_address(m, msg, IFA_PAYLOAD(h));
	}
	return true;
}

/* Reads the machine's addresses: getifaddrs() calls malloc(). */
static void read_addresses(struct scratch *m)
{
	struct {
		struct nlmsghdr head;
		struct ifaddrmsg msg;
	} ask = {.head = {.nlmsg_len = sizeof(ask),
			  .nlmsg_type = RTM_GETADDR,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	ssize_t n;

	if (fd < 0)
		return;
	if (send(fd, &ask, sizeof(ask), 0) == sizeof(ask))
		do
			n = recv(fd, m->answer, sizeof(m->answer), 0);
		while ((n < 0 && errno == EINTR) || (n > 0 && take_answer(m, (size_t)n)));
	for (unsigned i = 0; i < m->num_addrs; i++)
		m->addrs[i].ifa_flags = interface_flags(fd, m->names[i]);
	close(fd);
}

static void show_addresses(struct scratch *m, struct shown_device *d)
{
	read_addresses(m);
	gid_table_update(&m->gids, m->num_addrs ? m->addrs : NULL);
	gid_table_add_last_resort(&m->gids);
	d->num_gids = m->gids.len;
	for (unsigned i = 0; i < m->gids.len; i++) {
		memcpy(d->gids[i].raw, m->gids.at[i].gid.raw, sizeof(d->gids[i].raw));
		d->gids[i].ifindex = m->gids.at[i].ifindex;
	}
}

/* stag0 has one GID, made from the GUID. */
static void show_link_local(const struct shown *s, struct shown_device *d)
{
	uint64_t guid = node_guid();

	d->num_gids = 1;
	d->gids[0].raw[0] = 0xfe;
	d->gids[0].raw[1] = 0x80;
	memcpy(d->gids[0].raw + 8, &guid, sizeof(guid));
	d->gids[0].ifindex = s->devices[0].gids[0].ifindex;
}

/* ---- the card ---- */

static bool is_hex(const char *s, size_t n)
{
	return strspn(s, "0123456789abcdef") >= n;
}

/* Is it an address such as 0000:03:00.0? */
static bool is_pci_address(const char *name, size_t len)
{
	size_t domain = strspn(name, "0123456789abcdef");

	return domain >= 4 && len == domain + 8 && name[domain] == ':' &&
	       is_hex(name + domain + 1, 2) && name[domain + 3] == ':' &&
	       is_hex(name + domain + 4, 2) && name[domain + 6] == '.' &&
	       is_hex(name + domain + 7, 1);
}

bool shown_card(const char *net_link, char card[FOUND_PATH])
{
	static const char devices[] = "../../devices/";
	const char *name = net_link + strlen(devices), *end = NULL;
	struct text t;

	if (strncmp(net_link, devices, strlen(devices)) != 0)
		return false;
	for (size_t len; *name; name += len + (name[len] == '/')) {
		len = strcspn(name, "/");
		if (is_pci_address(name, len))
			end = name + len;
	}
	if (!end)
		return false;
	text_begin(&t, card, FOUND_PATH);
	text_add(&t, "/sys/devices/");
	text_add_bytes(&t, net_link + strlen(devices), (size_t)(end - net_link) - strlen(devices));
	return !t.too_long;
}

static bool kernel_has(const char *path)
{
	char to[1];

	/* EINVAL: it is there, and is no link */
	return syscall(SYS_readlinkat, AT_FDCWD, path, to, sizeof(to)) >= 0 || errno == EINVAL;
}

static void show_card(struct shown *s)
{
	char link[sizeof("/sys/class/net/") + IFNAMSIZ] = "/sys/class/net/", target[FOUND_PATH];
	ssize_t n;

	if (!shown_netdev(s->devices[0].gids[0].ifindex, s->netdev))
		s->netdev[0] = '\0';
	strcat(link, s->netdev);
	n = syscall(SYS_readlinkat, AT_FDCWD, link, target, sizeof(target) - 1);
	target[n > 0 ? n : 0] = '\0';
	s->parent_is_real = shown_card(target, s->parent) && kernel_has(s->parent);
	if (s->parent_is_real)
		return;
	strcpy(s->parent, "/sys/devices/virtual/stag/card");
	s->num_cpus = (unsigned)sysconf(_SC_NPROCESSORS_CONF);
}

/* ---- all of it ---- */

static void show_devices(struct scratch *m)
{
	struct shown *s = &m->shown;

	s->kernel_has = kernel_has;
	s->guid = be64toh(node_guid());
	s->num_devices = atomic_load_explicit(&choice, memory_order_relaxed) == BOTH ? 2 : 1;
	s->devices[0].name = "roce0";
	s->devices[0].roce = true;
	s->devices[0].dev_name = "uverbs200";
	show_addresses(m, &s->devices[0]);
	s->devices[1].name = "stag0";
	show_link_local(s, &s->devices[1]);
	show_card(s);
}

struct shown *shown_get(void)
{
	struct scratch *m =
		mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (m == MAP_FAILED)
		return NULL;
	show_devices(m);
	return &m->shown;
}

void shown_put(struct shown *s)
{
	munmap(s, sizeof(struct scratch));
}
