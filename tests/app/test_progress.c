// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_progress.c - the progress line (app/stag/progress.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "complain.h"
#include "progress.h"

#define MIB (1ull << 20)

void complain(const char *fmt, ...)
{
}

static const char *line(struct progress *p, uint64_t spent, uint64_t done, const char *note)
{
	static char text[256];

	progress_line(p, spent, done, note, text, sizeof(text));
	return text;
}

static void bytes_have_a_bar_a_rate_and_the_time_left(void **state)
{
	struct progress p = {.what = "goods", .unit = PROGRESS_BYTES, .total = 400 * MIB};

	assert_string_equal(
		line(&p, 2 * NS_PER_S, 100 * MIB, NULL),
		"goods: [######..................] 100 MiB of 400 MiB, 52 MB/s, 6 s left");
	assert_string_equal(
		line(&p, 8 * NS_PER_S, 400 * MIB, "zeroes"),
		"goods: [########################] 400 MiB of 400 MiB, 52 MB/s, zeroes");
}

/* A stream has no total, a time has no rate, and more may be done than the total. */
static void an_unknown_total_has_neither_bar_nor_time_left(void **state)
{
	struct progress stream = {.what = "-", .unit = PROGRESS_BYTES};
	struct progress clock = {.what = "load", .unit = PROGRESS_TIME, .total = 10 * NS_PER_S};

	assert_string_equal(line(&stream, NS_PER_S, 100 * MIB, NULL), "-: 100 MiB, 105 MB/s");
	assert_string_equal(line(&stream, NS_PER_S, 0, NULL), "-: 0 bytes");
	assert_string_equal(line(&clock, 0, 3 * NS_PER_S, "7 puts"),
			    "load: [#######.................] 3 of 10 s, 7 puts");
	assert_string_equal(line(&clock, 0, 12 * NS_PER_S, NULL),
			    "load: [########################] 12 of 10 s");
}

/* No line in the first second, none too soon after another, and none without a terminal. */
static void there_is_no_line_before_a_second_or_without_a_terminal(void **state)
{
	struct progress p;
	uint64_t now;

	progress_begin(&p, "x", PROGRESS_TIME, 0);
	p.terminal = true;
	now = p.since;
	assert_false(progress_is_due(&p, now + NS_PER_S - 1));
	assert_true(progress_is_due(&p, now + NS_PER_S));
	p.shown = now + NS_PER_S;
	assert_false(progress_is_due(&p, now + NS_PER_S + NS_PER_MS));
	assert_true(progress_is_due(&p, now + 2 * NS_PER_S));
	p.terminal = false;
	assert_false(progress_is_due(&p, now + 9 * NS_PER_S));
}

/* Reads until the line is erased; it may arrive in pieces. */
static void read_to_the_end(int terminal, char *text, size_t size)
{
	size_t have = 0;

	while (have < 4 || strcmp(text + have - 4, "\r\033[K") != 0) {
		ssize_t n = read(terminal, text + have, size - 1 - have);

		assert_true(n > 0);
		have += (size_t)n;
		text[have] = '\0';
	}
}

/* On a terminal a line appears after a second, and is erased at the end. */
static void the_line_is_removed_at_the_end(void **state)
{
	int terminal = posix_openpt(O_RDWR | O_NOCTTY), old = dup(STDERR_FILENO), side;
	char text[256] = "";
	struct progress p;

	if (terminal < 0 || grantpt(terminal) || unlockpt(terminal))
		skip();
	side = open(ptsname(terminal), O_RDWR | O_NOCTTY);
	dup2(side, STDERR_FILENO);
	progress_begin(&p, "x", PROGRESS_BYTES, 4 * MIB);
	p.since -= 2 * NS_PER_S;
	progress_show(&p, MIB, NULL);
	progress_end(&p);
	dup2(old, STDERR_FILENO);
	read_to_the_end(terminal, text, sizeof(text));
	assert_non_null(strstr(text, "\rx: [######...."));
	assert_true(p.terminal);
	close(side);
	close(old);
	close(terminal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_have_a_bar_a_rate_and_the_time_left),
		cmocka_unit_test(an_unknown_total_has_neither_bar_nor_time_left),
		cmocka_unit_test(there_is_no_line_before_a_second_or_without_a_terminal),
		cmocka_unit_test(the_line_is_removed_at_the_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
