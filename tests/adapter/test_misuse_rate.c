// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_misuse_rate.c - peers cannot flood the log of misuse, nor keep the program's own mistakes out of it. White-box.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "adapter/misuse.h"
#include "base/clock.h"

static char text[1 << 18];

static unsigned count_lines(const char *words)
{
	int fd = open(getenv("STAG_LOG_FILE"), O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);
	unsigned lines = 0;

	close(fd);
	text[n > 0 ? n : 0] = '\0';
	for (const char *at = text; (at = strstr(at, words)); at++)
		lines++;
	return lines;
}

/* A peer that makes one connection after the other: each mistake is another object's. */
static void peer_cannot_flood_the_log(void **state)
{
	uint64_t began = clock_ns();

	for (uint64_t qp = 0; qp < 5000; qp++)
		peer_misuse("peer", qp, "qp %u: the peer is hostile", (unsigned)qp);
	/* a burst of 50, and one a second */
	assert_in_range(count_lines("hostile"), 50, 51 + (clock_ns() - began) / NS_PER_S);
	misuse("program", 1, "qp 1: the program errs");
	assert_int_equal(count_lines("the program errs"), 1);
}

/* A mistake that the program repeats is not a new one because peers made many in between. */
static void peers_do_not_make_the_programs_mistakes_new(void **state)
{
	misuse("repeated", 1, "qp 1: the program repeats itself");
	for (uint64_t qp = 0; qp < 5000; qp++)
		peer_misuse("peer", qp, "qp %u: the peer is hostile", (unsigned)qp);
	misuse("repeated", 1, "qp 1: the program repeats itself");
	assert_int_equal(count_lines("repeats itself"), 1);
}

static void suppressed_lines_are_counted(void **state)
{
	unsigned before = count_lines("hostile");
	uint64_t object = 100000;

	while (count_lines("hostile") == before) {
		peer_misuse("peer", object++, "qp 2: the peer is hostile");
		/* the rate allows one a second */
	}
	assert_true(count_lines("other lines about misuse by peers were not logged") >= 1);
}

static void programs_mistakes_are_limited_too(void **state)
{
	uint64_t began = clock_ns();

	for (uint64_t i = 0; i < 5000; i++)
		misuse("many", i, "object %u: mistaken", (unsigned)i);
	assert_in_range(count_lines("mistaken"), 1, 51 + 5 * (clock_ns() - began) / NS_PER_S);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(peer_cannot_flood_the_log),
		cmocka_unit_test(peers_do_not_make_the_programs_mistakes_new),
		cmocka_unit_test(suppressed_lines_are_counted),
		cmocka_unit_test(programs_mistakes_are_limited_too),
	};
	char log[] = "/tmp/stag-test-XXXXXX";
	int failed;

	if (!getenv("STAG_LOG_FILE")) { /* read at load time: start again */
		close(mkstemp(log));
		unsetenv("STAG_LOG");
		setenv("STAG_LOG_FILE", log, 1);
		execv("/proc/self/exe", argv);
		return 1;
	}
	failed = cmocka_run_group_tests_name("misuse rate", tests, NULL, NULL);
	unlink(getenv("STAG_LOG_FILE"));
	return failed;
}
