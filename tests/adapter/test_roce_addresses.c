// SPDX-License-Identifier: BSD-2-Clause
/* test_roce_addresses.c - roce0 when addresses of the machine change or go, in a network namespace of the test. */
#include "roce_pair.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/qp.h"
#include "adapter/rc.h"

#define SKIPPED 77

static int set(unsigned long request, struct ifreq *r)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int rc = ioctl(fd, request, r);

	close(fd);
	return rc;
}

static int set_address(const char *address)
{
	struct ifreq r = {.ifr_name = "lo"};
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {inet_addr(address)}};

	memcpy(&r.ifr_addr, &a, sizeof(a));
	return set(SIOCSIFADDR, &r);
}

static int set_up(bool up)
{
	struct ifreq r = {.ifr_name = "lo", .ifr_flags = (short)(up ? IFF_UP | IFF_RUNNING : 0)};

	return set(SIOCSIFFLAGS, &r);
}

static bool open_namespace(void)
{
	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return false;
	return !set_address("127.1.1.1") && !set_up(true);
}

static unsigned count_descriptors(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static bool has_gid(const struct end *e, const char *address)
{
	uint32_t wanted = inet_addr(address);
	union ibv_gid gid;

	assert_int_equal(ibv_query_gid(e->ctx, 1, 0, &gid), 0);
	return !memcmp(gid.raw + 12, &wanted, sizeof(wanted));
}

/* The table is not looked at before the event. */
static void a_change_of_the_addresses_is_an_event(void **state)
{
	struct end e, other;

	end_open(&e, NULL);
	end_open(&other, NULL);
	assert_true(has_gid(&e, "127.1.1.1"));
	assert_int_equal(set_address("127.1.1.2"), 0);
	expect_event(&e, IBV_EVENT_GID_CHANGE);
	expect_event(&other, IBV_EVENT_GID_CHANGE);
	await(has_gid(&e, "127.1.1.2")); /* the old address may go before the new one comes */
	end_close(&e);
	assert_int_equal(set_address("127.1.1.1"), 0);
	expect_event(&other, IBV_EVENT_GID_CHANGE);
	end_close(&other);
}

static bool waits_for_receive(const struct end *e)
{
	struct stag_qp *qp = to_stag_qp(e->qp);
	bool waits;

	lock_acquire(&qp->tx_lock);
	waits = qp->rc->hold & RC_HOLD_RNR;
	lock_release(&qp->tx_lock);
	return waits;
}

/* With rnr_retry 7, and so without an end of its own. TCP's probes find out, after a few seconds. */
static void a_wait_for_a_receive_ends_with_the_network(void **state)
{
	static const struct ways brief = {.timeout = 14, .retry_cnt = 1};
	struct roce_pair p;

	roce_open(&p, &brief);
	post_send_(&p.a, 1, 0, 8);
	await(waits_for_receive(&p.a));
	assert_int_equal(set_up(false), 0);
	expect_wc(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR);
	assert_int_equal(set_up(true), 0);
	roce_close(&p);
}

/* The port that the first queue pair opened stays. */
static void the_last_context_takes_the_descriptor_along(void **state)
{
	unsigned before = count_descriptors();
	struct end e;

	end_open(&e, NULL);
	end_close(&e);
	assert_int_equal(count_descriptors(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_change_of_the_addresses_is_an_event),
		cmocka_unit_test(a_wait_for_a_receive_ends_with_the_network),
		cmocka_unit_test(the_last_context_takes_the_descriptor_along),
	};

	if (!open_namespace()) {
		fprintf(stderr, "a network namespace cannot be made here\n");
		return SKIPPED;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
