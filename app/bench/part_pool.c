// SPDX-License-Identifier: BSD-2-Clause
/*
 * part_pool.c - nodes of a pool, and a load on them: for `stag bench pool` and bench/pool. Needs
 * the software adapter.
 *
 *   stag bench part pool node ROLL STATE NAME PORT [create=MIB] [lease=MS] [software]
 *   stag bench part pool OP WHERE SIZE CLIENTS DEPTH SECS [poll] [json]
 *   stag bench part pool memory WHERE SIZE COUNT
 *
 * node serves until it is killed. OP is read, get, insert, update or put: each of CLIENTS, all of
 * them in one thread, keeps DEPTH operations in flight; those that completed together are replaced
 * by one call. With poll the thread never sleeps; otherwise it sleeps after IDLE_NS without a
 * completion. Inserted values are deleted at the end.
 *
 * Prints, divided by tabs: operations per second, microseconds of processor time per operation, and
 * the median and 99th percentile of the latency in microseconds. memory prints how many bytes of
 * the pool a value of SIZE takes.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "part.h"
#include "stag/pool.h"

#define KEYS	 10000u
#define MANY	 (64ull << 20) /* at most, bytes of values to read */
#define MAX_MADE (1u << 22)
#define BATCH	 64
#define IDLE_NS	 20000u
#define USER	 "bench"
#define SECRET	 "of the benchmark, of its clients"

/* ---- a node ---- */

static int serve_node(int argc, char **argv)
{
	const struct stag_pool_user users[] = {
		{.name = USER,
		 .secret = SECRET,
		 .rights = STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE}};
	struct stag_pool_node_attr attr = {.pool = "bench",
					   .secret = "of the benchmark, of its nodes",
					   .address = "127.0.0.1",
					   .users = users,
					   .num_users = 1};
	char advertise[32];

	if (argc < 6)
		bench_die("node needs ROLL STATE NAME PORT");
	attr.roll = argv[2];
	attr.state = argv[3];
	attr.node = argv[4];
	attr.port = (uint16_t)strtoul(argv[5], NULL, 10);
	snprintf(advertise, sizeof(advertise), "127.0.0.1:%u", attr.port);
	attr.advertise = advertise;
	for (int i = 6; i < argc; i++) {
		if (strncmp(argv[i], "create=", 7) == 0) {
			attr.flags |= STAG_POOL_CREATE;
			attr.size = strtoull(argv[i] + 7, NULL, 10) << 20;
		} else if (strncmp(argv[i], "lease=", 6) == 0) {
			attr.lease_ms = (uint32_t)strtoul(argv[i] + 6, NULL, 10);
			attr.promote_ms = attr.lease_ms + attr.lease_ms / 5;
		} else if (strcmp(argv[i], "software") == 0) {
			attr.flags |= STAG_POOL_NO_MIRROR;
		}
	}
	mkdir(attr.state, 0700);
	if (!stag_pool_node_start(&attr))
		bench_die("%s", stag_pool_error());
	for (;;)
		pause();
}

/* ---- a load ---- */

struct flight {
	struct client *client;
	uint8_t *memory;
	unsigned int key;
	uint64_t began;
};

struct client {
	struct stag_pool *pool;
	struct flight *flights;
	uint8_t *memory;
};

static struct {
	uint32_t op;
	const char *where;
	size_t size;
	unsigned int clients, depth, keys;
	uint64_t ns;
	bool poll;
	uint64_t dice;
	struct stag_pool_ptr *ptrs;
	uint8_t *value; /* values that exist before */
	bool json;
	struct part_figures figures;
	struct stag_pool_ptr *made; /* MAX_MADE: pointers of inserted values */
	size_t num_made;
	unsigned int under_way;
	bool over;
} load;

static struct stag_pool *open_pool(unsigned int depth)
{
	struct stag_pool_attr attr = {.user = USER, .secret = SECRET, .depth = depth};
	struct stag_pool *pool = stag_pool_open(load.where, &attr);

	if (!pool)
		bench_die("%s", stag_pool_error());
	return pool;
}

static unsigned int any_key(void)
{
	load.dice = load.dice * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)((load.dice >> 33) % load.keys);
}

static bool by_name(void)
{
	return load.op == STAG_POOL_GET || load.op == STAG_POOL_PUT;
}

/*
 * Runs n operations, many at a time, outside of the measurement; set() prepares the i-th, and
 * `user` receives its pointer.
 */
static void run_operations(size_t n, void (*set)(struct stag_pool_io *io, size_t i, char name[16]))
{
	struct stag_pool *pool = open_pool(BATCH);
	struct stag_pool_io io[BATCH];
	struct stag_pool_done done[BATCH];
	char names[BATCH][16];
	int got;

	for (size_t i = 0; i < n;) {
		int k = 0, left;

		for (; k < BATCH && i < n; k++, i++) {
			io[k] = (struct stag_pool_io){0};
			set(&io[k], i, names[k]);
		}
		if (stag_pool_submit(pool, io, k) != 0)
			bench_die("submit: %s", stag_pool_error());
		for (left = k; left > 0; left -= got) {
			if (stag_pool_wait(pool, -1) != 0)
				bench_die("wait: %s", stag_pool_error());
			got = stag_pool_poll(pool, done, BATCH);
			for (k = 0; k < got; k++) {
				if (done[k].error)
					bench_die("operation %u: %s", done[k].op,
						  strerror(done[k].error));
				if (done[k].user)
					*(struct stag_pool_ptr *)done[k].user = done[k].ptr;
			}
		}
	}
	stag_pool_close(pool);
}

static void set_fill(struct stag_pool_io *io, size_t i, char name[16])
{
	io->op = by_name() ? STAG_POOL_PUT : STAG_POOL_INSERT;
	io->from = load.value;
	io->length = load.size;
	io->user = &load.ptrs[i];
	snprintf(name, 16, "key%05zu", i);
	io->name = by_name() ? name : NULL;
}

static void set_delete(struct stag_pool_io *io, size_t i, char name[16])
{
	(void)name;
	io->op = STAG_POOL_DELETE;
	io->ptr = load.op == STAG_POOL_INSERT ? load.made[i] : load.ptrs[i];
}

/* Inserts the values that are read or updated later. */
static void fill_pool(struct client *c)
{
	load.keys = load.size && MANY / load.size < KEYS ? (unsigned int)(MANY / load.size) : KEYS;
	load.ptrs = bench_zeroed(load.keys * sizeof(*load.ptrs));
	load.value = c->memory;
	if (load.op != STAG_POOL_INSERT)
		run_operations(load.keys, set_fill);
}

/* Prepares the next operation of a flight; name is a buffer for its name. */
static struct stag_pool_io next_io(struct flight *f, uint64_t now, char name[16])
{
	struct stag_pool_io io = {.op = load.op, .user = f, .length = load.size};

	f->key = any_key();
	if (by_name()) {
		snprintf(name, 16, "key%05u", f->key);
		io.name = name;
	} else {
		io.ptr = load.ptrs[f->key];
	}
	if (load.op == STAG_POOL_READ || load.op == STAG_POOL_GET)
		io.to = f->memory;
	else
		io.from = f->memory;
	f->began = now;
	return io;
}

/* Submits all flights of one client. */
static void submit_flight(struct flight **flights, int n)
{
	struct stag_pool_io io[BATCH];
	char names[BATCH][16];
	uint64_t now = clock_ns();
	int rc;

	for (int i = 0; i < n; i++)
		io[i] = next_io(flights[i], now, names[i]);
	load.under_way += (unsigned int)n;
	rc = stag_pool_submit(flights[0]->client->pool, io, n);
	if (rc != 0)
		bench_die("submit: %s (%s)", strerror(rc), stag_pool_error());
}

static void submit_all_flights(struct client *c)
{
	struct flight *flights[BATCH];

	for (unsigned int k = 0; k < load.depth;) {
		int n = 0;

		while (n < BATCH && k < load.depth)
			flights[n++] = &c->flights[k++];
		submit_flight(flights, n);
	}
}

static void finish_operation(const struct stag_pool_done *done, uint64_t now)
{
	struct flight *f = done->user;
	uint64_t ns = now - f->began;

	if (done->error)
		bench_die("operation %u: %s (%s)", done->op, strerror(done->error),
			  stag_pool_error());
	load.under_way--;
	if (load.op == STAG_POOL_INSERT && load.num_made < MAX_MADE)
		load.made[load.num_made++] = done->ptr;
	if (load.over)
		return;
	times_note(&load.figures.times, ns);
	load.figures.operations++;
}

/* Returns how many operations completed. */
static int poll_client(struct client *c)
{
	struct stag_pool_done done[BATCH];
	struct flight *flights[BATCH];
	int n = stag_pool_poll(c->pool, done, BATCH);
	uint64_t now = n > 0 ? clock_ns() : 0;

	for (int i = 0; i < n; i++) {
		finish_operation(&done[i], now);
		flights[i] = done[i].user;
	}
	if (n > 0 && !load.over)
		submit_flight(flights, n);
	return n;
}

static void sleep_for_any(struct client *c, struct pollfd *fds)
{
	for (unsigned int i = 0; i < load.clients; i++)
		fds[i] = (struct pollfd){.fd = stag_pool_fd(c[i].pool), .events = POLLIN};
	poll(fds, load.clients, 1);
}

static void run_load(struct client *c)
{
	struct pollfd *fds = bench_zeroed(load.clients * sizeof(*fds));
	uint64_t now = clock_ns(), until = now + load.ns, busy = now;

	for (unsigned int i = 0; i < load.clients; i++)
		submit_all_flights(&c[i]);
	while ((now = clock_ns()) < until || load.figures.operations == 0) {
		int n = 0;

		for (unsigned int i = 0; i < load.clients; i++)
			n += poll_client(&c[i]);
		if (n > 0)
			busy = now;
		else if (!load.poll && now - busy > IDLE_NS)
			sleep_for_any(c, fds);
	}
	free(fds);
}

static void delete_inserted(struct client *c)
{
	load.over = true;
	while (load.under_way)
		for (unsigned int i = 0; i < load.clients; i++)
			poll_client(&c[i]);
	if (!by_name())
		run_operations(load.op == STAG_POOL_INSERT ? load.num_made : load.keys, set_delete);
}

static void make_client(struct client *c)
{
	c->pool = open_pool(load.depth);
	c->memory = bench_zeroed(load.depth * load.size);
	c->flights = bench_zeroed(load.depth * sizeof(*c->flights));
	if (load.size && stag_pool_lend(c->pool, c->memory, load.depth * load.size) != 0)
		bench_die("lend: %s", stag_pool_error());
	for (unsigned int k = 0; k < load.depth; k++) {
		c->flights[k].client = c;
		c->flights[k].memory = c->memory + k * load.size;
	}
}

static int measure_load(uint32_t op, int argc, char **argv)
{
	struct client *c;

	if (argc < 7)
		bench_die("%s needs WHERE SIZE CLIENTS DEPTH SECS [poll] [json]", argv[1]);
	load.op = op;
	load.where = argv[2];
	load.size = strtoul(argv[3], NULL, 10);
	load.clients = (unsigned int)strtoul(argv[4], NULL, 10);
	load.depth = (unsigned int)strtoul(argv[5], NULL, 10);
	load.ns = (uint64_t)(strtod(argv[6], NULL) * 1e9);
	for (int i = 7; i < argc; i++) {
		load.poll |= strcmp(argv[i], "poll") == 0;
		load.json |= strcmp(argv[i], "json") == 0;
	}
	load.made = bench_zeroed(MAX_MADE * sizeof(*load.made));
	c = bench_zeroed(load.clients * sizeof(*c));
	for (unsigned int i = 0; i < load.clients; i++)
		make_client(&c[i]);
	fill_pool(&c[0]);
	part_load_begin(&load.figures);
	run_load(c);
	part_load_end(&load.figures, load.json);
	delete_inserted(c);
	return 0;
}

/* ---- memory ---- */

static uint64_t used_now(struct stag_pool *pool)
{
	struct stag_pool_info info = {0};
	int rc = stag_pool_query(pool, &info, sizeof(info));

	if (rc != 0)
		bench_die("query: %s", stag_pool_error());
	return info.used;
}

static int measure_memory(int argc, char **argv)
{
	uint64_t count = argc > 4 ? strtoull(argv[4], NULL, 10) : 0, before;
	struct stag_pool_ptr ptr;
	struct stag_pool *pool;
	uint8_t *value;

	if (count == 0)
		bench_die("memory needs WHERE SIZE COUNT");
	load.where = argv[2];
	load.size = strtoul(argv[3], NULL, 10);
	load.depth = 64;
	value = bench_zeroed(load.size);
	pool = open_pool(load.depth);
	before = used_now(pool);
	for (uint64_t i = 0; i < count; i++) {
		int rc = stag_pool_insert(pool, value, load.size, &ptr);

		if (rc != 0)
			bench_die("insert: %s (%s)", strerror(rc), stag_pool_error());
	}
	printf("%.2f\n", (double)(used_now(pool) - before) / (double)count);
	stag_pool_close(pool);
	return 0;
}

int part_pool(int argc, char **argv)
{
	static const struct {
		const char *name;
		uint32_t op;
	} ops[] = {{"read", STAG_POOL_READ},
		   {"get", STAG_POOL_GET},
		   {"insert", STAG_POOL_INSERT},
		   {"update", STAG_POOL_UPDATE},
		   {"put", STAG_POOL_PUT}};

	if (argc < 2)
		bench_die("needs node, memory, read, get, insert, update or put");
	if (strcmp(argv[1], "node") == 0)
		return serve_node(argc, argv);
	if (strcmp(argv[1], "memory") == 0)
		return measure_memory(argc, argv);
	for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
		if (strcmp(argv[1], ops[i].name) == 0)
			return measure_load(ops[i].op, argc, argv);
	bench_die("no operation '%s'", argv[1]);
}
