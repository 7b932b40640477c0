// SPDX-License-Identifier: BSD-2-Clause
/* test_roce_addresses.c - programs on roce0 learn of changes of the machine's addresses, in a network namespace of the test. */
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

static bool open_namespace(void)
{
	struct ifreq r = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK};

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return false;
	return !set_address("127.1.1.1") && !set(SIOCSIFFLAGS, &r);
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
		cmocka_unit_test(the_last_context_takes_the_descriptor_along),
	};

	if (!open_namespace()) {
		fprintf(stderr, "a network namespace cannot be made here\n");
		return SKIPPED;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
