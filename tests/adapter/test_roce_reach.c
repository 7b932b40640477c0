// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_roce_reach.c - queue pairs of roce0 find their peer on networks that do not carry everything.
 *
 * The network is simulated: connect() is wrapped.
 */
#include "roce_pair.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

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
	to_rtr_at(&p.a, p.b.qp->qp_num, gid_of(LOST_ADDRESS), NULL);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(one_direction_is_enough, open_network,
						close_network),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
