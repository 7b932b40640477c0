// SPDX-License-Identifier: BSD-2-Clause
/*
 * 16-pool-node - a program that is a node of a pool itself: all of its copies share the same
 * values, and any of them may be lost.
 *
 *     cc 16-pool-node.c -lstag -o 16-pool-node
 *     stag run -- ./16-pool-node a /run/user/1000/club       # and b, and c
 *
 * The first copy creates the pool, the others join it. Each puts a line under its name, and prints
 * all values whenever the primary or the number of nodes in sync changes. It ends at the end of its
 * standard input; a primary hands over first. The roll is kept in a file, so all copies are on one
 * machine; with etcd://... instead they may be on several.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <stag/pool.h>

/* For copies that trust each other, on a machine without other users. */
#define SECRET "what all members of the club know"

static void die(const char *what)
{
	fprintf(stderr, "16-pool-node: %s: %s\n", what, stag_pool_error());
	exit(1);
}

static struct stag_pool_node *start_node(const char *name, const char *directory)
{
	static const struct stag_pool_user member = {
		.name = "member",
		.secret = SECRET,
		.rights = STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE};
	struct stag_pool_node_attr attr = {.pool = "club",
					   .node = name,
					   .secret = SECRET,
					   .address = "127.0.0.1",
					   .flags = STAG_POOL_ANY_PORT | STAG_POOL_CREATE,
					   .size = 16 << 20,
					   .users = &member,
					   .num_users = 1,
					   /* long enough for a busy machine */
					   .beat_us = 20000,
					   .lease_ms = 800,
					   .promote_ms = 1000};
	char roll[256], state[256];
	struct stag_pool_node *node;

	mkdir(directory, 0700);
	snprintf(roll, sizeof(roll), "file:%s/roll", directory);
	snprintf(state, sizeof(state), "%s/%s", directory, name);
	attr.roll = roll;
	attr.state = state;
	node = stag_pool_node_start(&attr);
	if (!node && errno == EEXIST) { /* the pool exists: join it */
		attr.flags &= ~STAG_POOL_CREATE;
		node = stag_pool_node_start(&attr);
	}
	if (!node)
		die("node");
	return node;
}

static struct stag_pool *open_pool(struct stag_pool_node *node)
{
	struct stag_pool_attr attr = {.user = "member", .secret = SECRET};
	struct stag_pool_node_info info = {0};
	struct stag_pool *pool;
	char where[32];

	stag_pool_node_query(node, &info, sizeof(info));
	snprintf(where, sizeof(where), "127.0.0.1:%u", info.port);
	pool = stag_pool_open(where, &attr);
	if (!pool)
		die("open");
	return pool;
}

static unsigned int count_standbys(const struct stag_pool_node_info *info)
{
	unsigned int count = 0;

	for (uint32_t i = 0; i < info->num_members; i++)
		count += info->members[i].role == STAG_POOL_ROLE_STANDBY;
	return count;
}

static void print_values(struct stag_pool *pool, const struct stag_pool_node_info *info)
{
	struct stag_pool_entry entry = {0};

	printf("epoch %llu, %s, %u in sync:", (unsigned long long)info->epoch,
	       info->role == STAG_POOL_ROLE_PRIMARY ? "primary" : "standby", count_standbys(info));
	while (stag_pool_next(pool, &entry)) {
		char line[100];
		size_t length = sizeof(line);

		if (stag_pool_get(pool, entry.name, line, &length, NULL) == 0)
			printf(" '%.*s'", (int)length, line);
	}
	puts("");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	struct stag_pool_node_info now = {0}, before = {0};
	struct stag_pool_node *node;
	struct stag_pool *pool;
	char line[100];

	if (argc != 3) {
		fputs("usage: 16-pool-node NAME DIRECTORY\n", stderr);
		return 2;
	}
	node = start_node(argv[1], argv[2]);
	pool = open_pool(node);
	snprintf(line, sizeof(line), "%s was here", argv[1]);
	if (stag_pool_put(pool, argv[1], line, strlen(line), 0, NULL) != 0)
		die("put");
	while (poll(&in, 1, 50) == 0) {
		stag_pool_node_query(node, &now, sizeof(now));
		if (now.role != before.role || now.epoch != before.epoch ||
		    count_standbys(&now) != count_standbys(&before))
			print_values(pool, &now);
		before = now;
	}
	stag_pool_close(pool);
	stag_pool_node_stop(node);
	return 0;
}
