// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_roce_reach.c - queue pairs of roce0 find their peer on networks that do not carry everything, and on machines
 * whose addresses change.
 *
 * The network and the addresses are simulated: connect() and getifaddrs() are wrapped.
 */
#include "roce_pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/qp.h"
#include "adapter/rc.h"
#include "wire/wire.h"

/* An address of this machine to which no packet gets through. */
#define LOST_ADDRESS "127.9.9.9"

/* ---- a network that loses packets ---- */

static int full, filler[2];	   /* a listener whose queue is full, and what fills it: */
static struct sockaddr_in nowhere; /* Linux drops the SYNs that come to its address */
static atomic_uint lost;	   /* connections that began and will not end */

int __real_connect(int fd, const struct sockaddr *to, socklen_t len);
int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len);

static bool is_lost(const struct sockaddr *to)
{
	const struct sockaddr_in *four = (const struct sockaddr_in *)to;

	return to->sa_family == AF_INET && four->sin_addr.s_addr == inet_addr(LOST_ADDRESS);
}

int __wrap_connect(int fd, const struct sockaddr *to, socklen_t len)
{
	if (!is_lost(to))
		return __real_connect(fd, to, len);
	atomic_fetch_add(&lost, 1);
	return __real_connect(fd, (struct sockaddr *)&nowhere, sizeof(nowhere));
}

static int open_network(void **state)
{
	socklen_t len = sizeof(nowhere);

	nowhere = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	full = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(full, (struct sockaddr *)&nowhere, sizeof(nowhere)), 0);
	assert_int_equal(listen(full, 0), 0);
	assert_int_equal(getsockname(full, (struct sockaddr *)&nowhere, &len), 0);
	for (int i = 0; i < 2; i++) {
		filler[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		assert_true(__real_connect(filler[i], (struct sockaddr *)&nowhere,
					   sizeof(nowhere)) == 0 ||
			    errno == EINPROGRESS);
	}
	return 0;
}

static int close_network(void **state)
{
	for (int i = 0; i < 2; i++)
		close(filler[i]);
	close(full);
	return 0;
}

static union ibv_gid gid_of(const char *address)
{
	union ibv_gid gid = {.raw = {[10] = 0xff, [11] = 0xff}};

	assert_int_equal(inet_pton(AF_INET, address, gid.raw + 12), 1);
	return gid;
}

/* ---- a machine whose addresses change ---- */

enum { MOST_ADDRESSES = 2 };

static struct ifaddrs entries[MOST_ADDRESSES];
static struct sockaddr_in addresses[MOST_ADDRESSES];
static _Atomic unsigned n_addresses; /* 0: those of the real machine */

int __real_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out);
void __real_freeifaddrs(struct ifaddrs *list);
void __wrap_freeifaddrs(struct ifaddrs *list);

int __wrap_getifaddrs(struct ifaddrs **out)
{
	unsigned n = atomic_load(&n_addresses);

	if (!n)
		return __real_getifaddrs(out);
	for (unsigned i = 0; i < n; i++)
		entries[i] = (struct ifaddrs){.ifa_next = i + 1 < n ? &entries[i + 1] : NULL,
					      .ifa_name = (char *)"eth0",
					      .ifa_flags = IFF_UP,
					      .ifa_addr = (struct sockaddr *)&addresses[i]};
	*out = entries;
	return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *list)
{
	if (list != entries)
		__real_freeifaddrs(list);
}

/* Returns the index of an address in the GID table, or -1. */
static int index_of(const struct end *e, const char *address)
{
	union ibv_gid wanted = gid_of(address), gid;

	for (int i = 0; ibv_query_gid(e->ctx, 1, i, &gid) == 0; i++)
		if (!memcmp(&gid, &wanted, sizeof(gid)))
			return i;
	return -1;
}

/* The engine reads the addresses, too. */
static void set_addresses(const char *first, const char *second)
{
	engine_lock();
	addresses[0] = (struct sockaddr_in){AF_INET, 0, {inet_addr(first)}, {0}};
	if (second)
		addresses[1] = (struct sockaddr_in){AF_INET, 0, {inet_addr(second)}, {0}};
	atomic_store(&n_addresses, second ? 2 : 1);
	engine_unlock();
}

/* ---- a peer that hangs up ---- */

static int open_listener(uint16_t *port)
{
	struct sockaddr_in lo = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t len = sizeof(lo);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&lo, sizeof(lo)), 0);
	assert_int_equal(listen(fd, 16), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&lo, &len), 0);
	*port = ntohs(lo.sin_port);
	return fd;
}

static struct hello hear(int listener)
{
	uint8_t buf[HELLO_LEN];
	struct hello h;
	int fd = accept(listener, NULL, NULL);

	assert_true(fd >= 0);
	assert_int_equal(recv(fd, buf, sizeof(buf), MSG_WAITALL), sizeof(buf));
	assert_int_equal(hello_decode(buf, sizeof(buf), &h), HELLO_LEN);
	close(fd);
	return h;
}

/* Returns a hello that was not said yet. */
static struct hello hear_next(int listener, const struct end *e)
{
	const struct reach *r = &to_stag_qp(e->qp)->rc->reach;
	struct hello h;
	uint32_t said;

	engine_lock();
	said = r->epoch;
	engine_unlock();
	do
		h = hear(listener);
	while (h.epoch <= said);
	return h;
}

static void expect_from(const struct hello *h, const char *address)
{
	union ibv_gid gid = gid_of(address);

	assert_memory_equal(h->from_gid, gid.raw, sizeof(gid.raw));
}

/* ---- tests ---- */

/*
 * The first queue pair has the smaller number, so its stream goes before the other's, once it is connected. It never is.
 * Both have something to send.
 */
static void one_direction_is_enough(void **state)
{
	struct roce_pair p;

	end_open(&p.a, NULL);
	end_open(&p.b, NULL);
	assert_true(p.a.qp->qp_num < p.b.qp->qp_num);
	to_init(&p.a, NULL);
	to_rtr_by(&p.a, p.b.qp->qp_num, (struct ibv_global_route){.dgid = gid_of(LOST_ADDRESS)},
		  NULL);
	to_rts(&p.a, NULL);
	post_recv_(&p.a, 1, 0, 8);
	post_send_(&p.a, 2, 0, 8);
	await(atomic_load(&lost) > 0);
	end_connect(&p.b, p.a.qp->qp_num, NULL);
	post_recv_(&p.b, 3, 0, 8);
	post_send_(&p.b, 4, 0, 8);
	expect_wc(p.b.scq, 4, IBV_WC_SUCCESS);
	expect_wc(p.a.rcq, 1, IBV_WC_SUCCESS);
	expect_wc(p.a.scq, 2, IBV_WC_SUCCESS);
	expect_wc(p.b.rcq, 3, IBV_WC_SUCCESS);
	roce_close(&p);
}

static void a_queue_pair_keeps_its_address_when_the_machine_loses_it(void **state)
{
	struct ibv_global_route path = {.dgid = gid_of("127.0.0.1")};
	struct hello h;
	struct end e;
	uint16_t port;
	int listener = open_listener(&port);

	end_open(&e, NULL);
	set_addresses("127.0.5.1", "127.0.5.2");
	await(index_of(&e, "127.0.5.2") > 0);
	path.sgid_index = (uint8_t)index_of(&e, "127.0.5.2");
	to_init(&e, NULL);
	to_rtr_by(&e, (uint32_t)port << 8 | 7, path, NULL);
	to_rts(&e, NULL);
	post_send_(&e, 1, 0, 8);
	h = hear(listener);
	expect_from(&h, "127.0.5.2");

	set_addresses("127.0.5.1", "127.0.5.3");
	await(index_of(&e, "127.0.5.3") == path.sgid_index);
	h = hear_next(listener, &e);
	expect_from(&h, "127.0.5.2");

	set_addresses("127.0.5.1", NULL);
	await(index_of(&e, "127.0.5.3") < 0);
	h = hear_next(listener, &e);
	expect_from(&h, "127.0.5.2");

	atomic_store(&n_addresses, 0);
	end_close(&e);
	close(listener);
}

/* Without a notice of the kernel: the program sees the change first. */
static void a_table_that_is_found_changed_is_an_event(void **state)
{
	struct end e;

	end_open(&e, NULL);
	set_addresses("127.0.6.1", NULL);
	await(index_of(&e, "127.0.6.1") >= 0);
	expect_event(&e, IBV_EVENT_GID_CHANGE);
	set_addresses("127.0.6.2", NULL);
	await(index_of(&e, "127.0.6.2") >= 0);
	expect_event(&e, IBV_EVENT_GID_CHANGE);
	atomic_store(&n_addresses, 0);
	end_close(&e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_direction_is_enough, open_network,
						close_network),
		cmocka_unit_test(a_queue_pair_keeps_its_address_when_the_machine_loses_it),
		cmocka_unit_test(a_table_that_is_found_changed_is_an_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
