// SPDX-License-Identifier: BSD-2-Clause
/* test_turns.c - the order in which users and their clients take turns. */
#include "pool/node/turns.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define MANY 100

static struct turns turns;
static struct turn_place many[MANY], one, other;

static int set_up(void **state)
{
	turns_init(&turns);
	for (int i = 0; i < MANY; i++) {
		turn_place_init(&many[i], &turns, 7);
		turns_add(&turns, &many[i]);
	}
	turn_place_init(&one, &turns, 8);
	turn_place_init(&other, &turns, 9);
	return 0;
}

/* Returns how many turns pass until it is this client's. */
static unsigned int turns_until(const struct turn_place *p)
{
	unsigned int n = 0;

	for (; turns_first(&turns) != p; n++)
		turns_next(&turns);
	return n;
}

static void a_user_with_many_clients_has_no_more_turns_than_one_with_one(void **state)
{
	turns_add(&turns, &one);
	turns_add(&turns, &other);
	for (int i = 0; i < 10; i++) {
		assert_true(turns_until(&one) <= 2);
		turns_next(&turns);
	}
}

static void clients_of_a_user_take_turns(void **state)
{
	for (int i = 0; i < 2 * MANY; i++) {
		assert_ptr_equal(turns_first(&turns), &many[i % MANY]);
		turns_next(&turns);
	}
}

static void a_client_that_is_removed_has_no_turn(void **state)
{
	turns_add(&turns, &one);
	for (int i = 0; i < MANY; i++)
		turns_remove(&many[i]);
	turns_remove(&many[0]);
	turns_remove(&other); /* it does not wait */
	for (int i = 0; i < 3; i++) {
		assert_ptr_equal(turns_first(&turns), &one);
		turns_next(&turns);
	}
	turns_remove(&one);
	assert_true(turns_empty(&turns));
}

static void all_can_be_removed_and_come_again(void **state)
{
	turns_add(&turns, &one);
	turns_clear(&turns);
	assert_true(turns_empty(&turns));
	turns_add(&turns, &many[5]);
	assert_ptr_equal(turns_first(&turns), &many[5]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, set_up)
	const struct CMUnitTest tests[] = {
		TEST(a_user_with_many_clients_has_no_more_turns_than_one_with_one),
		TEST(clients_of_a_user_take_turns),
		TEST(a_client_that_is_removed_has_no_turn),
		TEST(all_can_be_removed_and_come_again),
	};

	return cmocka_run_group_tests_name("turns of users and clients", tests, NULL, NULL);
}
