// SPDX-License-Identifier: BSD-2-Clause
/*
 * noun_pool.c - stag bench pool: replicated memory beside redis and memcached.
 *
 * The pool has two nodes, which are child processes. A change is acknowledged when both have it, so
 * the equivalent in redis is a SET followed by a WAIT for its replica.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define SYNC_MOST (10 * NS_PER_S)

struct pool_case {
	const char *name, *what;
	const char *op;
	uint64_t size;
	unsigned int clients, depth;
	bool quick;
};

static const struct pool_case cases[] = {
	{"read_64_1", "64 bytes read by a pointer, one-sided", "read", 64, 1, 1, true},
	{"get_64_1", "64 bytes read by name", "get", 64, 1, 1, true},
	{"update_64_1", "64 bytes changed on both nodes", "update", 64, 1, 1, true},
	{"insert_64_1", "64 bytes inserted on both nodes", "insert", 64, 1, 1, false},
	{"read_64_8x16", "64 bytes read, 8 clients, 16 at once each", "read", 64, 8, 16, true},
	{"read_64_50x16", "64 bytes read, 50 clients, 16 at once each", "read", 64, 50, 16, false},
	{"update_64_8", "64 bytes changed on both nodes, 8 clients", "update", 64, 8, 1, true},
	{"update_64_50x16", "64 bytes changed on both nodes, 50 clients, 16 at once each", "update",
	 64, 50, 16, false},
	{"read_64k_8x4", "64 KiB read, 8 clients, 4 at once each", "read", 65536, 8, 4, false},
	{"read_1m_1x4", "1 MiB read, 4 at once", "read", 1 << 20, 1, 4, true},
	{"update_1m_1x4", "1 MiB changed on both nodes, 4 at once", "update", 1 << 20, 1, 4, false},
};

static struct {
	uint16_t pool[2], redis, wait, replica, memcached;
} ports;

static bool is_change(const struct pool_case *p)
{
	return strcmp(p->op, "update") == 0 || strcmp(p->op, "insert") == 0;
}

static void add_yards(struct suite_case *c, const struct pool_case *p)
{
	if (p->size >= 1 << 20) {
		suite_yardstick(c, "adapter", "RDMA of 1 MiB by the adapter alone, without a pool");
		return;
	}
	if (is_change(p)) {
		suite_yardstick(c, "redis", "redis SET, and WAIT for one replica");
		return;
	}
	suite_yardstick(c, "redis", "redis GET");
	suite_yardstick(c, "memcached", "memcached get, one thread");
	if (p->clients * p->depth == 1)
		suite_yardstick(c, "tcp", "a round trip of 64 bytes, polled at both ends");
}

static void list_pool_cases(struct suite *s)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct pool_case *p = &cases[i];
		struct suite_case *c = suite_add(s, &suite_pool, p->name, p->quick);

		if (!c)
			continue;
		snprintf(c->what, sizeof(c->what), "%s", p->what);
		c->unit = p->size >= 1 << 20 ? "GB/s" : "k/s";
		c->size = p->size;
		c->own = p;
		add_yards(c, p);
	}
}

/* ---- servers ---- */

static bool start_node(struct suite *s, int which, uint16_t port, const char *roll)
{
	char state[160], at[8], create[32];
	const char *const words[] = {"STAG_CRC=off",
				     child_self(),
				     "bench",
				     "part",
				     "pool",
				     "node",
				     roll,
				     state,
				     which ? "second" : "first",
				     at,
				     "lease=500",
				     which ? NULL : create,
				     NULL};

	snprintf(state, sizeof(state), "%s/node%d", s->shm, which);
	snprintf(at, sizeof(at), "%u", port);
	snprintf(create, sizeof(create), "create=%d", s->o.quick ? 256 : 1024);
	return child_serve(s, which ? CPU_ANY : CPU_SERVER, port, words) > 0;
}

/* Reads it from the roll. */
static unsigned int are_in_sync(const char *file)
{
	json_t *roll = json_load_file(file, 0, NULL), *members = json_object_get(roll, "members"),
	       *m;
	unsigned int n = 0;
	size_t i;
	const char *name;

	if (json_is_object(members))
		json_object_foreach (members, name, m)
			n += json_is_true(json_object_get(m, "in-sync"));
	json_array_foreach (members, i, m)
		n += json_is_true(json_object_get(m, "in-sync"));
	json_decref(roll);
	return n;
}

static bool start_pool(struct suite *s)
{
	const struct timespec pause = {.tv_nsec = 10 * NS_PER_MS};
	uint64_t deadline = clock_ns() + SYNC_MOST;
	char roll[160];

	ports.pool[0] = place_port();
	do
		ports.pool[1] = place_port();
	while (ports.pool[1] == ports.pool[0]);
	snprintf(roll, sizeof(roll), "file:%s/roll", s->shm);
	if (!start_node(s, 0, ports.pool[0], roll) || !start_node(s, 1, ports.pool[1], roll))
		return false;
	while (are_in_sync(roll + strlen("file:")) < 2 && clock_ns() < deadline &&
	       !child_interrupted)
		nanosleep(&pause, NULL);
	return are_in_sync(roll + strlen("file:")) == 2;
}

static bool start_one_redis(struct suite *s, enum child_cpu cpu, uint16_t *port, uint16_t of)
{
	char at[8], primary[8];
	const char *const words[] = {"redis-server",
				     "--bind",
				     "127.0.0.1",
				     "--dir",
				     s->shm,
				     "--save",
				     "",
				     "--appendonly",
				     "no",
				     "--repl-diskless-sync-delay",
				     "0",
				     "--port",
				     at,
				     of ? "--replicaof" : NULL,
				     "127.0.0.1",
				     primary,
				     NULL};

	*port = place_port();
	snprintf(at, sizeof(at), "%u", *port);
	snprintf(primary, sizeof(primary), "%u", of);
	return child_serve(s, cpu, *port, words) > 0;
}

static json_t *load_object(struct suite *s, const char *kind, uint16_t port, const char *op,
			   const struct pool_case *p, double secs)
{
	char at[8], size[24], clients[16], depth[16], time[24];
	const char *const words[] = {"bench", "part", "object", kind,	at,	op,  size,
				     clients, depth,  time,	"poll", "json", NULL};

	snprintf(at, sizeof(at), "%u", port);
	snprintf(size, sizeof(size), "%llu", (unsigned long long)p->size);
	snprintf(clients, sizeof(clients), "%u", p->clients);
	snprintf(depth, sizeof(depth), "%u", p->depth);
	snprintf(time, sizeof(time), "%g", secs);
	return child_stag(s, CPU_CLIENT, words);
}

/* a WAIT is answered once the replica has connected */
static bool await_replica(struct suite *s)
{
	static const struct pool_case one = {.size = 64, .clients = 1, .depth = 1};
	uint64_t deadline = clock_ns() + SYNC_MOST;
	json_t *o = NULL;

	while (!o && clock_ns() < deadline && !child_interrupted)
		o = load_object(s, "redis", ports.wait, "setwait", &one, 0.1);
	json_decref(o);
	return o != NULL;
}

static void start_redis(struct suite *s)
{
	if (!yard_have(s, &suite_pool, "redis", "redis-server", "redis-server"))
		return;
	if (start_one_redis(s, CPU_SERVER, &ports.redis, 0) &&
	    start_one_redis(s, CPU_SERVER, &ports.wait, 0) &&
	    start_one_redis(s, CPU_ANY, &ports.replica, ports.wait) && await_replica(s))
		return;
	suite_missing(s, &suite_pool, "redis", NULL, "redis did not start: %.120s",
		      child_complaint());
}

static void start_memcached(struct suite *s)
{
	char at[8];
	const char *const words[] = {"memcached", "-l", "127.0.0.1", "-p",
				     at,	  "-U", "0",	     "-t",
				     "1",	  "-m", "1024",	     getuid() == 0 ? "-u" : NULL,
				     "root",	  NULL};

	if (!yard_have(s, &suite_pool, "memcached", "memcached", "memcached"))
		return;
	ports.memcached = place_port();
	snprintf(at, sizeof(at), "%u", ports.memcached);
	if (child_serve(s, CPU_SERVER, ports.memcached, words) < 0)
		suite_missing(s, &suite_pool, "memcached", NULL, "memcached did not start: %.120s",
			      child_complaint());
}

static void begin_pool(struct suite *s)
{
	if (!start_pool(s))
		for (unsigned int i = 0; i < s->num_cases; i++)
			if (s->cases[i].noun == &suite_pool)
				suite_failed(&s->cases[i], child_complaint());
	start_redis(s);
	start_memcached(s);
}

/* ---- a run ---- */

static double scale_of(const struct pool_case *p)
{
	return p->size >= 1 << 20 ? (double)p->size / 1e9 : 1e-3;
}

static bool take_stag(struct suite *s, const struct pool_case *p, struct suite_sample *to)
{
	char where[64], size[24], clients[16], depth[16], secs[24];
	const char *const words[] = {"STAG_CRC=off", "bench", "part", "pool", p->op,  where, size,
				     clients,	     depth,   secs,   "poll", "json", NULL};

	snprintf(where, sizeof(where), "127.0.0.1:%u,127.0.0.1:%u", ports.pool[0], ports.pool[1]);
	snprintf(size, sizeof(size), "%llu", (unsigned long long)p->size);
	snprintf(clients, sizeof(clients), "%u", p->clients);
	snprintf(depth, sizeof(depth), "%u", p->depth);
	snprintf(secs, sizeof(secs), "%g", s->o.secs);
	return yard_sample(child_stag(s, CPU_CLIENT, words), to, scale_of(p));
}

/* Converts round trips to operations per second. */
static bool take_tcp(struct suite *s, struct suite_sample *to)
{
	char trips[24];
	const char *const words[] = {"bench", "part", "tcp", "pingpong", "-j",
				     "-s",    "64",   "-n",  trips,	 NULL};
	const char *key;
	json_t *v;

	snprintf(trips, sizeof(trips), "%d", s->o.secs < 0.02 ? 200 : (int)(s->o.secs * 40000));
	if (!yard_pair(child_stag(s, CPU_ANY, words), to))
		return false;
	to->value = 500 / to->value; /* half a round trip in microseconds: thousands per second */
	to->cpu_us *= 2;
	to->server_us *= 2;
	json_object_foreach (to->latency, key, v)
		json_real_set(v, 2 * json_real_value(v));
	return true;
}

static bool take_adapter(struct suite *s, const struct pool_case *p, struct suite_sample *to)
{
	char secs[24];
	const char *const words[] = {
		"STAG_CRC=off", "bench", "part", "verbs",   is_change(p) ? "write_bw" : "read_bw",
		"-j",		"-e",	 "-s",	 "1048576", "-t",
		secs,		NULL};

	snprintf(secs, sizeof(secs), "%g", s->o.secs);
	return yard_pair(child_stag(s, CPU_ANY, words), to);
}

static bool take_pool_sample(struct suite *s, struct suite_case *c, unsigned int series,
			     struct suite_sample *to)
{
	const struct pool_case *p = c->own;
	const char *name = c->series[series].name;
	bool change = is_change(p);

	if (series == 0)
		return take_stag(s, p, to);
	if (strcmp(name, "tcp") == 0)
		return take_tcp(s, to);
	if (strcmp(name, "adapter") == 0)
		return take_adapter(s, p, to);
	if (strcmp(name, "memcached") == 0)
		return yard_sample(load_object(s, name, ports.memcached, "get", p, s->o.secs), to,
				   scale_of(p));
	return yard_sample(load_object(s, name, change ? ports.wait : ports.redis,
				       change ? "setwait" : "get", p, s->o.secs),
			   to, scale_of(p));
}

static void measure_pool(struct suite *s, struct suite_case *c, unsigned int pass)
{
	suite_turns(s, c, pass, take_pool_sample);
}

const struct suite_noun suite_pool = {"pool", "replicated memory beside redis and memcached",
				      list_pool_cases, begin_pool, measure_pool};
