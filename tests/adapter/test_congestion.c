// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_congestion.c - connections within a machine whose congestion control paces, in a network namespace of the test.
 *
 * STAG_CONGESTION decides, if it is set.
 */
#include "roce_pair.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "adapter/congestion.h"

#define SKIPPED 77
#define PACED	"bbr"

static bool write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

static bool open_namespace(void)
{
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
	int fd, rc;

	if (unshare(CLONE_NEWNET) && unshare(CLONE_NEWUSER | CLONE_NEWNET))
		return false;
	fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	rc = ioctl(fd, SIOCSIFFLAGS, &lo);
	close(fd);
	return !rc && write_file("/proc/sys/net/ipv4/tcp_congestion_control", PACED);
}

/* Returns how many TCP sockets this process has with this congestion control. */
static unsigned sockets_with(const char *name, unsigned *others)
{
	unsigned n = 0;

	*others = 0;
	for (int fd = 0; fd < 256; fd++) {
		char is[16] = "";
		socklen_t len = sizeof(is);

		if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, is, &len))
			continue;
		if (strcmp(is, name) == 0)
			n++;
		else
			(*others)++;
	}
	return n;
}

static void connections_within_the_machine_are_not_paced(void **state)
{
	const char *wanted = getenv("STAG_CONGESTION") ? getenv("STAG_CONGESTION") : "reno";
	struct roce_pair p;
	unsigned others;

	roce_open(&p, NULL);
	exchange(&p);
	/* The listener, and both ends of the connection */
	assert_int_equal(sockets_with(wanted, &others), 3);
	assert_int_equal(others, 0);
	roce_close(&p);
}

static void peers_on_other_machines_get_what_the_system_chose(void **state)
{
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	struct sockaddr_in far = {.sin_family = AF_INET, .sin_addr = {inet_addr("192.0.2.77")}};
	socklen_t len = sizeof(here);
	int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0),
	    accepted;
	char name[16];

	congestion_before_listen(listener);
	assert_int_equal(bind(listener, (struct sockaddr *)&here, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&here, &len), 0);
	congestion_before_connect(fd, (struct sockaddr *)&far);
	len = sizeof(name);
	assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
	assert_string_equal(name, PACED);
	assert_int_equal(connect(fd, (struct sockaddr *)&here, sizeof(here)), 0);
	accepted = accept(listener, NULL, NULL);
	assert_true(accepted >= 0);
	congestion_after_accept(accepted, (struct sockaddr *)&far);
	len = sizeof(name);
	assert_int_equal(getsockopt(accepted, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
	assert_string_equal(name, PACED);
	close(accepted);
	close(fd);
	close(listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(connections_within_the_machine_are_not_paced),
		cmocka_unit_test(peers_on_other_machines_get_what_the_system_chose),
	};

	if (!open_namespace())
		return SKIPPED;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
