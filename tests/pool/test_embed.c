// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_embed.c - a program that is a node of a pool and a client of itself, through libstag's public calls.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "pool/memory/memory.h"
#include "stag/pool.h"

#define SECRET	"a secret of the nodes"
#define ADDRESS ((char *)(uintptr_t)POOL_DEFAULT_ADDRESS)
#define SIZE	(8u << 20)

#define ALL (STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE | STAG_POOL_RIGHT_ADMIN)

static char dir[] = "/dev/shm/stag-embed-XXXXXX", roll[64], states[64];
static const struct stag_pool_user first[] = {
	{.name = "ann", .secret = "what ann knows alone", .rights = ALL},
	{.name = "bob", .secret = "what bob knows alone", .rights = ALL},
	{.name = "eve", .secret = "what eve knows alone", .rights = ALL},
};

static struct stag_pool_node_attr attributes(void)
{
	return (struct stag_pool_node_attr){.pool = "test",
					    .node = "a",
					    .roll = roll,
					    .state = states,
					    .secret = SECRET,
					    .address = "127.0.0.1",
					    .flags = STAG_POOL_CREATE | STAG_POOL_ANY_PORT,
					    .size = SIZE,
					    .users = first,
					    .num_users = 3};
}

static int make_dir(void **state)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	snprintf(roll, sizeof(roll), "file:%s/roll", dir);
	snprintf(states, sizeof(states), "%s/a", dir);
	return 0;
}

static int remove_dir(void **state)
{
	char command[100];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static struct stag_pool *open_pool_of(struct stag_pool_node *node, const struct stag_pool_user *as)
{
	struct stag_pool_attr attr = {.user = as->name, .secret = as->secret, .retry_ms = 500};
	struct stag_pool_node_info info = {0};
	char where[32];

	assert_int_equal(stag_pool_node_query(node, &info, sizeof(info)), 0);
	snprintf(where, sizeof(where), "127.0.0.1:%u", info.port);
	return stag_pool_open(where, &attr);
}

/* Returns how often the client had to find a new primary. */
static uint64_t failovers(struct stag_pool *pool)
{
	struct stag_pool_info info = {0};

	assert_int_equal(stag_pool_query(pool, &info, sizeof(info)), 0);
	return info.failovers;
}

/*
 * A user that did not change keeps its connection; one with fewer rights reconnects with those; a removed one is
 * expect_start_fails.
 */
static void users_change_while_it_runs(void **state)
{
	struct stag_pool_user later[] = {first[0], first[1]};
	struct stag_pool_node_attr attr = attributes();
	struct stag_pool_node *node = stag_pool_node_start(&attr);
	struct stag_pool *pools[3];

	assert_non_null(node);
	for (int i = 0; i < 3; i++) {
		pools[i] = open_pool_of(node, &first[i]);
		assert_non_null(pools[i]);
		assert_int_equal(stag_pool_put(pools[i], first[i].name, "x", 1, 0, NULL), 0);
	}
	later[1].rights = STAG_POOL_RIGHT_READ;
	assert_int_equal(stag_pool_node_set_users(node, later, 2), 0);

	assert_int_equal(stag_pool_put(pools[0], "ann", "y", 1, 0, NULL), 0);
	assert_int_equal(failovers(pools[0]), 0);
	assert_int_equal(stag_pool_put(pools[1], "bob", "y", 1, 0, NULL), EACCES);
	assert_int_not_equal(stag_pool_put(pools[2], "eve", "y", 1, 0, NULL), 0);
	assert_null(open_pool_of(node, &first[2]));
	assert_int_equal(errno, EACCES);
	for (int i = 0; i < 3; i++)
		stag_pool_close(pools[i]);
	stag_pool_node_stop(node);
}

/* Returns how many names the client's list has. */
static unsigned int count_names(struct stag_pool *pool)
{
	struct stag_pool_entry entry = {0};
	unsigned int n = 0;

	while (stag_pool_next(pool, &entry))
		n++;
	return n;
}

/* A user with prefixes uses names inside as anybody does, also long values, and learns nothing of others. */
static void prefixes_limit_a_user(void **state)
{
	static const char *const prefixes[] = {"app/"};
	static char want[700000], got[sizeof(want)];
	struct stag_pool_user both[] = {first[0], first[1]};
	struct stag_pool_node_attr attr = attributes();
	struct stag_pool_info info = {0};
	struct stag_pool_node *node;
	struct stag_pool *ann, *bob;
	struct stag_pool_ptr ptr;
	size_t length = sizeof(got);

	both[1].prefixes = prefixes;
	both[1].num_prefixes = 1;
	attr.users = both;
	attr.num_users = 2;
	node = stag_pool_node_start(&attr);
	assert_non_null(node);
	ann = open_pool_of(node, &both[0]);
	bob = open_pool_of(node, &both[1]);
	assert_non_null(ann);
	assert_non_null(bob);
	memset(want, 'w', sizeof(want));
	assert_int_equal(stag_pool_put(ann, "other", "x", 1, 0, &ptr), 0);
	assert_int_equal(stag_pool_put(bob, "app/long", want, sizeof(want), 0, NULL), 0);
	assert_int_equal(stag_pool_put(bob, "app/short", "short", 5, 0, NULL), 0);
	assert_int_equal(stag_pool_get(bob, "app/long", got, &length, NULL), 0);
	assert_int_equal(length, sizeof(want));
	assert_memory_equal(got, want, sizeof(want));
	length = sizeof(got);
	assert_int_equal(stag_pool_get(bob, "app/short", got, &length, NULL), 0);
	assert_int_equal(length, 5);
	length = sizeof(got);
	assert_int_equal(stag_pool_get(bob, "other", got, &length, NULL), EACCES);
	length = sizeof(got);
	assert_int_equal(stag_pool_read(bob, &ptr, got, &length, NULL), ENOENT);
	assert_int_equal(stag_pool_put(bob, "other", "y", 1, 0, NULL), EACCES);
	assert_int_equal(count_names(bob), 2);
	assert_int_equal(count_names(ann), 3);
	assert_int_equal(stag_pool_query(bob, &info, sizeof(info)), 0);
	assert_int_equal(info.limited, 1);

	/* Without the prefix, its client authenticates again, and finds more. */
	both[1].num_prefixes = 0;
	assert_int_equal(stag_pool_node_set_users(node, both, 2), 0);
	length = sizeof(got);
	assert_int_equal(stag_pool_get(bob, "other", got, &length, NULL), 0);
	assert_int_equal(failovers(ann), 0);
	stag_pool_close(ann);
	stag_pool_close(bob);
	stag_pool_node_stop(node);
}

static void invalid_users_change_nothing(void **state)
{
	struct stag_pool_user twice[] = {first[0], first[0]},
			      short_one = {.name = "ann", .secret = "short", .rights = ALL};
	const char *empty = "";
	struct stag_pool_node_attr attr = attributes();
	struct stag_pool_node *node = stag_pool_node_start(&attr);
	struct stag_pool *pool;

	assert_non_null(node);
	assert_int_equal(stag_pool_node_set_users(node, twice, 2), EINVAL);
	assert_non_null(strstr(stag_pool_error(), "twice"));
	assert_int_equal(stag_pool_node_set_users(node, &short_one, 1), EINVAL);
	short_one = (struct stag_pool_user){
		.name = "ann", .secret = SECRET, .num_prefixes = 1, .prefixes = &empty};
	assert_int_equal(stag_pool_node_set_users(node, &short_one, 1), EINVAL);
	assert_non_null(strstr(stag_pool_error(), "prefix"));
	short_one.num_prefixes = STAG_POOL_PREFIXES_MAX + 1;
	assert_int_equal(stag_pool_node_set_users(node, &short_one, 1), EINVAL);
	pool = open_pool_of(node, &first[1]);
	assert_non_null(pool);
	stag_pool_close(pool);
	stag_pool_node_stop(node);
}

static void expect_start_fails(struct stag_pool_node_attr *attr, int error, const char *words)
{
	assert_null(stag_pool_node_start(attr));
	assert_int_equal(errno, error);
	if (!strstr(stag_pool_error(), words))
		fail_msg("'%s' does not say '%s'", stag_pool_error(), words);
}

/*
 * The region has the same address on every node: if that is taken, the node does not start, and names the
 * mapping.
 */
static void mapped_memory_in_the_way_is_reported(void **state)
{
	struct stag_pool_node_attr attr = attributes();
	void *there = mmap(ADDRESS + 65536, 4096, PROT_READ,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	char words[100];

	assert_ptr_equal(there, ADDRESS + 65536);
	snprintf(words, sizeof(words), "%#llx to %#llx is taken, by %llx-", POOL_DEFAULT_ADDRESS,
		 POOL_DEFAULT_ADDRESS + SIZE, POOL_DEFAULT_ADDRESS + 65536);
	expect_start_fails(&attr, EADDRINUSE, words);
	munmap(there, 4096);
}

static void failed_start_says_why(void **state)
{
	struct stag_pool_node_attr attr = attributes();
	struct stag_pool_node *node;

	attr.flags = STAG_POOL_ANY_PORT;
	expect_start_fails(&attr, ENOENT, "no such pool in file:");
	attr.roll = "nowhere";
	expect_start_fails(&attr, EINVAL, "the roll nowhere");
	attr = attributes();
	attr.secret = "short";
	expect_start_fails(&attr, EINVAL, "a secret has 16 to 128 characters");
	attr = attributes();
	attr.node = "a b";
	expect_start_fails(&attr, EINVAL, "'a b' is no name of a node");
	attr = attributes();
	attr.lease_ms = 1;
	expect_start_fails(&attr, EINVAL, "half of the lease");

	attr = attributes();
	node = stag_pool_node_start(&attr);
	assert_non_null(node);
	expect_start_fails(&attr, EBUSY, "another node holds it");
	attr.node = "b";
	attr.state = dir;
	attr.memory = POOL_DEFAULT_ADDRESS + (1ull << 30);
	expect_start_fails(&attr, EEXIST, "a pool in file:");
	stag_pool_node_stop(node);
}

int main(void)
{
#define IN_DIR(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)
	const struct CMUnitTest tests[] = {
		IN_DIR(users_change_while_it_runs),   IN_DIR(prefixes_limit_a_user),
		IN_DIR(invalid_users_change_nothing), IN_DIR(mapped_memory_in_the_way_is_reported),
		IN_DIR(failed_start_says_why),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
