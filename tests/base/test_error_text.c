// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_error_text.c - the text of an error: truncated to its buffer, and printable.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/error_text.h"

static void the_error_is_returned_unchanged(void **state)
{
	char text[32];

	assert_int_equal(error_text_set(text, sizeof(text), -5, "disk %d: %s", 3, "gone"), -5);
	assert_string_equal(text, "disk 3: gone");
}

static void a_long_text_is_truncated_to_its_buffer(void **state)
{
	char text[8];

	error_text_set(text, sizeof(text), 1, "%s", "longer than that");
	assert_string_equal(text, "longer ");
}

/* A name that a peer chose must not send control sequences to a terminal. */
static void control_characters_become_question_marks(void **state)
{
	char text[32];

	error_text_set(text, sizeof(text), 1, "%s", "a\x1b[2Jb\nc\x7f");
	assert_string_equal(text, "a?[2Jb?c?");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_error_is_returned_unchanged),
		cmocka_unit_test(a_long_text_is_truncated_to_its_buffer),
		cmocka_unit_test(control_characters_become_question_marks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
