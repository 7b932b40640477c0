// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_progress.c - the line that says how far something is (app/stag/progress.h).
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

static void bytes_have_a_bar_a_rate_and_an_end(void **state)
{
	struct progress p = {.what = "goods", .unit = PROGRESS_BYTES, .total = 400 * MIB};

	assert_string_equal(
		line(&p, 2 * NS_PER_S, 100 * MIB, NULL),
		"goods: [######..................] 100 MiB of 400 MiB, 52 MB/s, 6 s left");
	assert_string_equal(
		line(&p, 8 * NS_PER_S, 400 * MIB, "zeroes"),
		"goods: [########################] 400 MiB of 400 MiB, 52 MB/s, zeroes");
}

/* A stream has no length, a clock no rate; and more may come than was said. */
static void what_is_not_known_is_not_said(void **state)
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

/* Nothing in the first second, nothing too often, and nothing at all where nobody looks. */
static void it_is_quiet_where_it_should_be(void **state)
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

/* Until the line is wiped; it may come in pieces. */
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

/* On a terminal, over a second: a line that goes away again. */
static void a_terminal_sees_it_and_then_not(void **state)
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
		cmocka_unit_test(bytes_have_a_bar_a_rate_and_an_end),
		cmocka_unit_test(what_is_not_known_is_not_said),
		cmocka_unit_test(it_is_quiet_where_it_should_be),
		cmocka_unit_test(a_terminal_sees_it_and_then_not),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
