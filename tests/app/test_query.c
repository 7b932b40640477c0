// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_query.c - queries of several processes at once (app/control/query.c): complete, silent and too long responses.
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

#include "query.h"
#include "base/clock.h"

/* A process that is queried, and responds with this many bytes. */
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
	/* an abstract name, which need not be removed */
	snprintf(o->name.sun_path + 1, sizeof(o->name.sun_path) - 1, "test_query.%d.%s", getpid(),
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

static void add(struct queries *all, const struct other *o, uid_t uid)
{
	queries_add(all, &o->name, o->size, getpid(), uid);
}

static void test_a_response_is_received_completely(void **state)
{
	struct other short_one, long_one;
	struct queries all = {.n = 0};

	(void)state;
	start(&short_one, "short", 1);
	start(&long_one, "long", 8u << 20);
	add(&all, &short_one, QUERY_ANY_UID);
	add(&all, &long_one, getuid());
	queries_run(&all, "look\n", 60 * NS_PER_S);
	assert_int_equal(all.list[0].error, 0);
	assert_int_equal(all.list[0].length, 1);
	assert_int_equal(all.list[1].error, 0);
	assert_int_equal(all.list[1].length, 8u << 20);
	queries_free(&all);
	stop(&short_one);
	stop(&long_one);
	assert_string_equal(short_one.heard, "look\n");
}

/* The query ends long before the time limit, and the other responses arrive. */
static void test_a_response_that_is_too_long_ends_its_query(void **state)
{
	struct other good, endless;
	struct queries all = {.n = 0};

	(void)state;
	start(&good, "good", 100);
	start(&endless, "endless", SIZE_MAX);
	add(&all, &endless, QUERY_ANY_UID);
	add(&all, &good, QUERY_ANY_UID);
	errno = EAGAIN; /* left by an earlier call; it must not affect these queries */
	queries_run(&all, "look\n", 60 * NS_PER_S);
	assert_int_equal(all.list[0].error, ENOMEM);
	assert_int_equal(all.list[1].error, 0);
	assert_int_equal(all.list[1].length, 100);
	queries_free(&all);
	stop(&good);
	stop(&endless);
}

static void test_a_silent_process_times_out(void **state)
{
	struct other silent;
	struct queries all = {.n = 0};

	(void)state;
	listen_at(&silent, "silent", 0);
	add(&all, &silent, QUERY_ANY_UID);
	queries_run(&all, "look\n", 100 * NS_PER_MS);
	assert_int_equal(all.list[0].error, ETIMEDOUT);
	queries_free(&all);
	close(silent.listener);
}

static void test_an_empty_response_and_another_process_are_errors(void **state)
{
	struct other mute, another, gone;
	struct queries all = {.n = 0};

	(void)state;
	start(&mute, "mute", 0);
	listen_at(&another, "another", 0);
	listen_at(&gone, "gone", 0);
	close(gone.listener);
	add(&all, &mute, QUERY_ANY_UID);
	add(&all, &another, getuid() + 1);
	add(&all, &gone, QUERY_ANY_UID);
	queries_run(&all, "look\n", 60 * NS_PER_S);
	assert_int_equal(all.list[0].error, EPROTO);
	assert_int_equal(all.list[1].error, ESRCH);
	assert_int_equal(all.list[2].error, ECONNREFUSED);
	queries_free(&all);
	stop(&mute);
	close(another.listener);
}

/* One that sends much takes nothing from the others: they are received, and the sum stays within the budget. */
static void test_one_of_many_cannot_use_the_memory_of_all(void **state)
{
	struct other good, greedy;
	struct queries all = {.most = 64u << 10, .budget = 96u << 10};

	(void)state;
	start(&greedy, "greedy", SIZE_MAX);
	start(&good, "modest", 20000);
	add(&all, &greedy, QUERY_ANY_UID);
	add(&all, &good, QUERY_ANY_UID);
	queries_run(&all, "look\n", 60 * NS_PER_S);
	assert_int_equal(all.list[0].error, ENOMEM);
	assert_null(all.list[0].text);
	assert_int_equal(all.list[1].error, 0);
	assert_int_equal(all.list[1].length, 20000);
	assert_true(all.held <= all.budget);
	queries_free(&all);
	stop(&greedy);
	stop(&good);
}

static json_t *parse(const char *text)
{
	return query_json(&(struct query){.text = (char *)text, .length = strlen(text)});
}

static void test_deep_nesting_is_not_parsed(void **state)
{
	char deep[2 * (QUERY_DEPTH + 1) + 1] = "";
	json_t *o;

	(void)state;
	memset(deep, '[', QUERY_DEPTH + 1);
	memset(deep + QUERY_DEPTH + 1, ']', QUERY_DEPTH + 1);
	assert_null(parse(deep));
	deep[2 * QUERY_DEPTH + 1] = '\0';
	o = parse(deep + 1);
	assert_non_null(o);
	json_decref(o);
	o = parse("{\"a\": \"[[[[[[[[[[[[[[[[[[[[[[\\\"[[[[[\"}");
	assert_non_null(o);
	json_decref(o);
	assert_null(parse("]"));
	assert_null(parse("{\"a\""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_response_is_received_completely),
		cmocka_unit_test(test_a_response_that_is_too_long_ends_its_query),
		cmocka_unit_test(test_a_silent_process_times_out),
		cmocka_unit_test(test_an_empty_response_and_another_process_are_errors),
		cmocka_unit_test(test_one_of_many_cannot_use_the_memory_of_all),
		cmocka_unit_test(test_deep_nesting_is_not_parsed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
