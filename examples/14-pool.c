// SPDX-License-Identifier: BSD-2-Clause
/*
 * 14-pool - pointers that stay valid when the machine that they point to is lost.
 *
 *     cc 14-pool.c -lstag -o 14-pool
 *     stag pool create shop --size 64M --node a --serve &
 *     stag pool join shop --node b --serve &
 *     SECRET=... stag run -- ./14-pool 127.0.0.1:7175,127.0.0.1:7176     # of the user client, in the file 'secrets'
 *
 * It inserts values, keeps the pointers, and reads and updates the values by them, over and over.
 * Kill the primary meanwhile: no operation fails, no pointer changes, and every acknowledged change
 * is there. It ends after it has seen a failover.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stag/pool.h>

#define VALUES 200

struct good {
	uint32_t number, sold;
};

static void die(const char *what)
{
	fprintf(stderr, "14-pool: %s: %s\n", what, stag_pool_error());
	exit(1);
}

static struct stag_pool_map *insert_all(struct stag_pool *pool)
{
	struct stag_pool_map *map = stag_pool_map_create();
	struct stag_pool_ptr ptr;

	for (uint32_t i = 0; i < VALUES; i++) {
		struct good good = {.number = i};

		if (stag_pool_insert(pool, &good, sizeof(good), &ptr) != 0 ||
		    stag_pool_map_set(map, &i, sizeof(i), &ptr) != 0)
			die("insert");
	}
	return map;
}

/*
 * Reads each value, without the node's software; then updates it, which returns when every node has
 * the change.
 */
static void update_all(struct stag_pool *pool, const struct stag_pool_ptr *ptr, uint32_t number,
		       uint32_t sold)
{
	struct stag_pool_ptr same = *ptr;
	struct good good;
	size_t length = sizeof(good);

	if (stag_pool_read(pool, ptr, &good, &length, NULL) != 0)
		die("read");
	if (good.number != number || good.sold != sold) {
		fprintf(stderr, "14-pool: good %" PRIu32 " was lost\n", number);
		exit(1);
	}
	good.sold++;
	if (stag_pool_update(pool, &same, &good, sizeof(good)) != 0)
		die("update");
}

static uint64_t count_failovers(struct stag_pool *pool)
{
	struct stag_pool_info info = {0};

	if (stag_pool_query(pool, &info, sizeof(info)) != 0)
		die("query");
	return info.failovers;
}

int main(int argc, char **argv)
{
	struct stag_pool_attr attr = {.user = "client", .secret = getenv("SECRET")};
	struct stag_pool *pool = argc == 2 ? stag_pool_open(argv[1], &attr) : NULL;
	struct stag_pool_map *map;
	struct stag_pool_ptr ptr;
	uint64_t seen = 0;
	uint32_t round = 0;

	if (argc != 2) {
		fputs("usage: SECRET=... 14-pool HOST[:PORT][,HOST[:PORT]...]\n", stderr);
		return 2;
	}
	if (!pool)
		die("open");
	map = insert_all(pool);
	printf("inserted %d values; now kill the primary\n", VALUES);
	fflush(stdout);
	for (; seen == 0; round++) { /* and one more round after the failover */
		seen = count_failovers(pool);
		for (uint32_t i = 0; i < VALUES; i++) {
			stag_pool_map_get(map, &i, sizeof(i), &ptr);
			update_all(pool, &ptr, i, round);
		}
	}
	printf("%d pointers were good over %" PRIu64 " failover, %" PRIu32
	       " times each; nothing was lost\n",
	       VALUES, seen, round);
	stag_pool_map_destroy(map);
	stag_pool_close(pool);
	return 0;
}
