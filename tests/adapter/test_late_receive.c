// SPDX-License-Identifier: BSD-2-Clause
/* test_late_receive.c - on stag0, a send of a stag peer waits for a receive that is posted a little late. */
#include "side.h"

#include <stdlib.h>

#include "base/clock.h"

static int open_pair(void **state)
{
	struct pair *p = calloc(1, sizeof(*p));

	pair_open(p, NULL, NULL);
	*state = p;
	return 0;
}

static int close_pair(void **state)
{
	pair_close(*state);
	free(*state);
	return 0;
}

static void a_send_waits_for_a_late_receive(void **state)
{
	struct pair *p = *state;
	struct region *from = own_region(&p->a, 64), *to = own_region(&p->b, 64);

	for (int i = 0; i < 20; i++) {
		uint64_t sent = post_send(&p->a, from, 0, 64), received;

		expect_sent(&p->a, sent);
		for (uint64_t began = clock_ns(); clock_ns() - began < 5 * NS_PER_MS;)
			expect_nothing(&p->b);
		received = post_receive(&p->b, to, 0, 64);
		expect_received(&p->b, received);
	}
}

/* What follows comes behind it, in order. */
static void requests_behind_it_keep_their_order(void **state)
{
	struct pair *p = *state;
	struct region *from = own_region(&p->a, 64), *to = own_region(&p->b, 64);
	uint64_t sent[3], received[3];

	for (int i = 0; i < 3; i++)
		sent[i] = post_send(&p->a, from, 0, 64);
	for (int i = 0; i < 3; i++)
		expect_sent(&p->a, sent[i]);
	for (int i = 0; i < 3; i++) {
		received[i] = post_receive(&p->b, to, 0, 64);
		expect_received(&p->b, received[i]);
	}
}

static void it_does_not_wait_for_ever(void **state)
{
	struct pair *p = *state;
	uint64_t began = clock_ns();

	post_send(&p->a, own_region(&p->a, 64), 0, 64);
	expect_disconnected(&p->b);
	assert_true(clock_ns() - began >= 900 * NS_PER_MS);
	expect_disconnected(&p->a);
	expect_state(&p->b, IBV_QPS_ERR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_send_waits_for_a_late_receive, open_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(requests_behind_it_keep_their_order, open_pair,
						close_pair),
		cmocka_unit_test_setup_teardown(it_does_not_wait_for_ever, open_pair, close_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
