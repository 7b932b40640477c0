// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_event.c - the events of stagd: what one source repeats pushes nothing else out, and is counted.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "event.h"

/* Returns how many of the events have both texts in them. */
static unsigned int count_events(const char *object, const char *text)
{
	json_t *all = events_since(0, 0), *e;
	unsigned int n = 0;
	size_t i;

	json_array_foreach (all, i, e)
		n += strcmp(json_string_value(json_object_get(e, "object")), object) == 0 &&
		     strstr(json_string_value(json_object_get(e, "text")), text) != NULL;
	json_decref(all);
	return n;
}

static void refused_logins_do_not_push_others_out(void **state)
{
	event_add(EVENT_INFO, "daemon", "an act of the operator");
	event_add(EVENT_WARN, "library", "a fault of the disk");
	for (int i = 0; i < 20000; i++)
		event_add(EVENT_WARN, "library", "pool shop: 10.0.0.%d:%d: user '%x' was refused",
			  i % 250, i, i * 7919);
	assert_int_equal(count_events("daemon", "an act"), 1);
	assert_int_equal(count_events("library", "a fault"), 1);
	assert_in_range(count_events("library", "was refused"), EVENTS_ALIKE, EVENTS_KEPT);
}

/* Logs a refusal that is like no other. */
static void refuse(const char *object, unsigned int i)
{
	char name[24];

	for (unsigned int c = 0; c < sizeof(name); c++, i /= 20)
		name[c] = c + 1 < sizeof(name) ? (char)('a' + i % 20) : '\0';
	event_add(EVENT_WARN, object, "refused: login of %s", name);
}

/* Logs more refusals than are kept, which takes as long as the rate of all lines demands. */
static void refuse_more_than_is_kept(const char *object)
{
	uint64_t before = events_last();

	for (unsigned int i = 0; events_last() - before < EVENTS_KEPT + 20; i++)
		refuse(object, i);
}

static void slow_refusals_push_nothing_else_out(void **state)
{
	(void)state;
	event_add(EVENT_INFO, "target up", "a logged in");
	event_add(EVENT_INFO, "store disk", "was formatted");
	refuse_more_than_is_kept("target other");
	refuse_more_than_is_kept("store disk");
	assert_int_equal(count_events("target up", "a logged in"), 1);
	assert_int_equal(count_events("store disk", "was formatted"), 1);
	assert_int_equal(count_events("target other", "refused: "), EVENTS_KEPT);
}

static void refusals_do_not_use_up_the_rate_of_other_lines(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 10 * EVENTS_KEPT; i++)
		refuse("watch far", i);
	event_add(EVENT_INFO, "watch far", "b is primary");
	assert_int_equal(count_events("watch far", "b is primary"), 1);
}

static void the_number_of_those_left_out_is_told_when_they_stop(void **state)
{
	const struct timespec nap = {.tv_nsec = 50000000};
	unsigned int tries = 0;

	for (int i = 0; i < 1000; i++)
		event_add(EVENT_WARN, "target up", "login %d was refused", i);
	while (count_events("target up", " more like this)") == 0 && tries++ < 1200) {
		nanosleep(&nap, NULL);
		events_tell_left_out();
	}
	assert_in_range(count_events("target up", " more like this)"), 1, 100);
}

/* Lines without end that all differ are limited, too. */
static void one_kind_of_object_cannot_fill_the_log(void **state)
{
	char text[16];
	uint64_t before = events_last();

	for (unsigned int i = 0; i < 20000; i++) {
		for (unsigned int n = i, c = 0; c < sizeof(text); c++, n /= 20)
			text[c] = c + 1 < sizeof(text) ? (char)('a' + n % 20) : '\0';
		event_add(EVENT_WARN, "store x", "%s", text);
	}
	assert_in_range(events_last() - before, 100, 10000);
}

static void events_are_in_the_order_of_their_ids(void **state)
{
	json_t *all = events_since(0, 0), *e;
	json_int_t before = 0;
	size_t i;

	json_array_foreach (all, i, e) {
		assert_true(json_integer_value(json_object_get(e, "id")) > before);
		before = json_integer_value(json_object_get(e, "id"));
	}
	assert_int_equal(before, events_last());
	json_decref(all);
}

/* Names come from peers; a terminal that shows the log must not obey them. */
static void text_has_no_control_characters(void **state)
{
	char text[] = "a\x1b[31m\nb\x7f\xc2\x9b"
		      "c\xc2\xa9\xc3\xbc\xff\xe2\x82";

	(void)state;
	event_make_printable(text);
	assert_string_equal(text, "a?[31m?b???c\xc2\xa9\xc3\xbc???");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refused_logins_do_not_push_others_out),
		cmocka_unit_test(slow_refusals_push_nothing_else_out),
		cmocka_unit_test(refusals_do_not_use_up_the_rate_of_other_lines),
		cmocka_unit_test(the_number_of_those_left_out_is_told_when_they_stop),
		cmocka_unit_test(one_kind_of_object_cannot_fill_the_log),
		cmocka_unit_test(events_are_in_the_order_of_their_ids),
		cmocka_unit_test(text_has_no_control_characters),
	};

	if (!freopen("/dev/null", "w", stderr))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
