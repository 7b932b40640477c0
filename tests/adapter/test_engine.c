// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_engine.c - a program that closes descriptors it does not know, the engine's among them.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "side.h"

/* Returns the first descriptor from `from` on that links to this target, or -1. */
static int descriptor_of(const char *what, int from)
{
	char path[64], to[64];

	for (int fd = from; fd < 256; fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		n = readlink(path, to, sizeof(to) - 1);
		if (n > 0 && strncmp(to, what, strlen(what)) == 0)
			return fd;
	}
	return -1;
}

static bool is_engine(const char *task)
{
	char path[300], name[32] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%s/comm", task);
	f = fopen(path, "r");
	if (f && !fgets(name, sizeof(name), f))
		name[0] = 0;
	if (f)
		fclose(f);
	return strcmp(name, "stag-engine\n") == 0;
}

static bool has_engine(void)
{
	DIR *dir = opendir("/proc/self/task");
	bool found = false;

	assert_non_null(dir);
	for (struct dirent *e; (e = readdir(dir));)
		found |= is_engine(e->d_name);
	closedir(dir);
	return found;
}

/* Polls the CQ, so that the engine notes a poller and checks its claims meanwhile. */
static bool has_ended(struct side *s)
{
	struct ibv_wc wc;

	poll_wc(s, s->rcq, &wc);
	poll_wc(s, s->scq, &wc);
	return !has_engine();
}

/*
 * An engine whose descriptors were closed does not spin: its connections end, both sides are
 * notified, and later connections get a new engine.
 */
static void engine_whose_descriptors_were_closed_ends(void **state)
{
	struct pair p;
	int fd;

	pair_open(&p, NULL, NULL);
	ping(&p);
	fd = descriptor_of("anon_inode:[eventpoll]", 3);
	assert_true(fd >= 0 && descriptor_of("anon_inode:[eventpoll]", fd + 1) < 0);
	close(fd);
	await(has_ended(&p.a));
	expect_state(&p.a, IBV_QPS_ERR);
	expect_state(&p.b, IBV_QPS_ERR);
	expect_async(&p.a, IBV_EVENT_QP_FATAL);
	expect_async(&p.b, IBV_EVENT_QP_FATAL);
	expect_disconnected(&p.a);
	expect_disconnected(&p.b);
	pair_close(&p);

	pair_open(&p, NULL, NULL);
	assert_true(has_engine());
	ping(&p);
	pair_close(&p);
}

/*
 * A file that the program opened under a closed descriptor number is untouched after the engine has
 * ended.
 */
static void engine_leaves_reused_descriptor_numbers_alone(void **state)
{
	int mine = open("/dev/null", O_RDONLY | O_CLOEXEC), taken[8], n = 0;
	struct sockaddr_storage peer;
	struct pair p;

	assert_true(mine >= 0);
	pair_open(&p, NULL, NULL);
	for (int fd = 2; n < 8 && (fd = descriptor_of("socket:", fd + 1)) >= 0;)
		if (getpeername(fd, (struct sockaddr *)&peer, &(socklen_t){sizeof(peer)}) == 0)
			taken[n++] = fd;
	assert_int_equal(n, 2);
	taken[n++] = descriptor_of("anon_inode:[eventpoll]", 3);
	for (int i = 0; i < n; i++)
		assert_int_equal(dup2(mine, taken[i]), taken[i]);
	await(has_ended(&p.a));
	pair_close(&p);
	for (int i = 0; i < n; i++)
		assert_int_equal(close(taken[i]), 0);
	close(mine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(engine_whose_descriptors_were_closed_ends),
		cmocka_unit_test(engine_leaves_reused_descriptor_numbers_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
