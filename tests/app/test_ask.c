// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_ask.c - asking several processes at once (app/control/ask.c): who answers, who says nothing, and who says too much.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "ask.h"
#include "base/clock.h"

/* Somebody who is asked, and says so many bytes. */
struct other {
	struct sockaddr_un name;
	socklen_t size;
	int listener;
	size_t bytes;
	pthread_t thread;
	char heard[16];
};

static void listen_at(struct other *o, const char *word, size_t bytes)
{
	*o = (struct other){.name.sun_family = AF_UNIX, .bytes = bytes};
	/* abstract: a name that nobody has to remove */
	snprintf(o->name.sun_path + 1, sizeof(o->name.sun_path) - 1, "test_ask.%d.%s", getpid(),
		 word);
	o->size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			      strlen(o->name.sun_path + 1));
	o->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(o->listener >= 0);
	assert_int_equal(bind(o->listener, (struct sockaddr *)&o->name, o->size), 0);
	assert_int_equal(listen(o->listener, 1), 0);
}

static void *answer(void *arg)
{
	static const char text[65536] = {'x'};
	struct other *o = arg;
	int fd = accept(o->listener, NULL, NULL);
	ssize_t n = 1;

	if (recv(fd, o->heard, sizeof(o->heard) - 1, 0) <= 0)
		n = 0;
	while (n > 0 && o->bytes > 0) {
		n = send(fd, text, o->bytes < sizeof(text) ? o->bytes : sizeof(text), MSG_NOSIGNAL);
		o->bytes -= n > 0 ? (size_t)n : 0;
	}
	close(fd);
	return NULL;
}

static void start(struct other *o, const char *word, size_t bytes)
{
	listen_at(o, word, bytes);
	assert_int_equal(pthread_create(&o->thread, NULL, answer, o), 0);
}

static void stop(struct other *o)
{
	pthread_join(o->thread, NULL);
	close(o->listener);
}

static void add(struct asks *all, const struct other *o, uid_t uid)
{
	asks_add(all, &o->name, o->size, getpid(), uid);
}

static void test_who_answers_is_heard_whole(void **state)
{
	struct other short_one, long_one;
	struct asks all = {.n = 0};

	(void)state;
	start(&short_one, "short", 1);
	start(&long_one, "long", 8u << 20);
	add(&all, &short_one, ASK_ANYBODY);
	add(&all, &long_one, getuid());
	asks_run(&all, "look\n", 60 * NS_PER_S);
	assert_int_equal(all.ask[0].error, 0);
	assert_int_equal(all.ask[0].length, 1);
	assert_int_equal(all.ask[1].error, 0);
	assert_int_equal(all.ask[1].length, 8u << 20);
	asks_drop(&all);
	stop(&short_one);
	stop(&long_one);
	assert_string_equal(short_one.heard, "look\n");
}

/* Long before its time is over, and the others are heard. */
static void test_who_says_too_much_is_left(void **state)
{
	struct other good, endless;
	struct asks all = {.n = 0};

	(void)state;
	start(&good, "good", 100);
	start(&endless, "endless", SIZE_MAX);
	add(&all, &endless, ASK_ANYBODY);
	add(&all, &good, ASK_ANYBODY);
	errno = EAGAIN; /* from some call before: it says nothing about these */
	asks_run(&all, "look\n", 60 * NS_PER_S);
	assert_int_equal(all.ask[0].error, ENOMEM);
	assert_int_equal(all.ask[1].error, 0);
	assert_int_equal(all.ask[1].length, 100);
	asks_drop(&all);
	stop(&good);
	stop(&endless);
}

static void test_who_says_nothing_is_waited_for_and_left(void **state)
{
	struct other silent;
	struct asks all = {.n = 0};

	(void)state;
	listen_at(&silent, "silent", 0);
	add(&all, &silent, ASK_ANYBODY);
	asks_run(&all, "look\n", 100 * NS_PER_MS);
	assert_int_equal(all.ask[0].error, ETIMEDOUT);
	asks_drop(&all);
	close(silent.listener);
}

static void test_who_hangs_up_or_is_another_is_told(void **state)
{
	struct other mute, another, gone;
	struct asks all = {.n = 0};

	(void)state;
	start(&mute, "mute", 0);
	listen_at(&another, "another", 0);
	listen_at(&gone, "gone", 0);
	close(gone.listener);
	add(&all, &mute, ASK_ANYBODY);
	add(&all, &another, getuid() + 1);
	add(&all, &gone, ASK_ANYBODY);
	asks_run(&all, "look\n", 60 * NS_PER_S);
	assert_int_equal(all.ask[0].error, EPROTO);
	assert_int_equal(all.ask[1].error, ESRCH);
	assert_int_equal(all.ask[2].error, ECONNREFUSED);
	asks_drop(&all);
	stop(&mute);
	close(another.listener);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_answers_is_heard_whole),
		cmocka_unit_test(test_who_says_too_much_is_left),
		cmocka_unit_test(test_who_says_nothing_is_waited_for_and_left),
		cmocka_unit_test(test_who_hangs_up_or_is_another_is_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
