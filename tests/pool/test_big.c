// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_big.c - uploads of large values: through failovers, beside small values, and from clients that are
 * killed. The nodes are processes of their own; this process is the client.
 *
 * Values are 64 MiB long, less under a sanitizer, 1 GiB with STAG_LONG; a quarter of that in tests with several.
 */
#include "raw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dice.h"
#include "stag/pool.h"

#define SECRET	   "a secret of the nodes, long enough"
#define WORD	   "a word that the client knows"
#define PATIENCE_S 100
#define MIB	   ((size_t)1 << 20)
#define TORN	   (5 * MIB / 2) /* a few chunks, the last one partial */

#define await(condition)                                                                           \
	do {                                                                                       \
		time_t until_ = time(NULL) + PATIENCE_S;                                           \
		while (!(condition)) {                                                             \
			if (time(NULL) > until_)                                                   \
				fail_msg("%s:%d: timed out waiting for %s", __FILE__, __LINE__,    \
					 #condition);                                              \
			nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);                   \
		}                                                                                  \
	} while (0)

static size_t longest(void)
{
	unsigned long mib = scaled(64);

	return mib > 64 ? 1024 * MIB : mib < 4 ? 4 * MIB : mib * MIB;
}

static size_t quite_long(void)
{
	return longest() / 4 < 4 * MIB ? 4 * MIB : longest() / 4;
}

/* ---- a node, in a process ------------------------------------------------------------------ */

static void print_answer(struct stag_pool_node *node, char what)
{
	struct stag_pool_node_info info = {0};
	unsigned int standbys = 0;

	stag_pool_node_query(node, &info, sizeof(info));
	for (unsigned int i = 0; i < info.num_members; i++)
		standbys += info.members[i].role == STAG_POOL_ROLE_STANDBY;
	if (what == 'h')
		printf("%llx\n",
		       (unsigned long long)pool_hash((void *)(uintptr_t)info.address, info.size));
	else if (what == 's')
		printf("%d\n", stag_pool_node_switchover(node, NULL));
	else
		printf("%u %u %u %llu %llu %llu\n", info.role, info.port, standbys,
		       (unsigned long long)info.epoch, (unsigned long long)info.number,
		       (unsigned long long)info.used);
	fflush(stdout);
}

/* test_big node NAME STATE ROLL create|join PORT SIZE */
static int be_node(char **argv)
{
	const struct stag_pool_user users[] = {
		{.name = "writer",
		 .secret = WORD,
		 .rights = STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE}};
	struct stag_pool_node_attr attr = {
		.pool = "big",
		.node = argv[2],
		.state = argv[3],
		.roll = argv[4],
		.secret = SECRET,
		.address = "127.0.0.1",
		.port = (uint16_t)atoi(argv[6]),
		.flags = (atoi(argv[6]) ? 0 : STAG_POOL_ANY_PORT) |
			 (argv[5][0] == 'c' ? STAG_POOL_CREATE : 0),
		.size = strtoull(argv[7], NULL, 10),
		.users = users,
		.num_users = 1,
		.beat_us = 20000,
		.lease_ms = 500,
		.promote_ms = 600,
		.expire_s = 1,
		.log_bytes = 4 << 20,
	};
	struct stag_pool_node *node = stag_pool_node_start(&attr);
	char what;

	printf("%d\n", node ? 0 : errno);
	fflush(stdout);
	while (node && read(STDIN_FILENO, &what, 1) == 1)
		print_answer(node, what);
	stag_pool_node_stop(node);
	return 0;
}

struct node {
	const char *name;
	unsigned int port; /* the same when it is started again */
	pid_t pid;
	int in;
	FILE *out;
};

struct story {
	char dir[64];
	struct node a, b;
	struct stag_pool *pool;
	uint8_t *from, *to;
	size_t length; /* of each, and of a value */
};

static char self[512];

struct news {
	unsigned int role, port, standbys;
	unsigned long long epoch, number, used;
};

static struct news query_node(struct node *n)
{
	struct news w = {0};

	assert_int_equal(write(n->in, "q", 1), 1);
	assert_int_equal(fscanf(n->out, "%u %u %u %llu %llu %llu", &w.role, &w.port, &w.standbys,
				&w.epoch, &w.number, &w.used),
			 6);
	return w;
}

static void start_node(struct story *s, struct node *n, const char *how)
{
	char state[128], roll[128], port[16], size[32];
	int in[2], out[2], rc = -1;

	snprintf(state, sizeof(state), "%s/%s", s->dir, n->name);
	snprintf(roll, sizeof(roll), "file:%s/roll", s->dir);
	snprintf(port, sizeof(port), "%u", n->port);
	snprintf(size, sizeof(size), "%zu", (s->length * 5 / 2 + 2 * MIB) & ~(MIB - 1));
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	n->pid = fork();
	if (n->pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		execl(self, self, "node", n->name, state, roll, how, port, size, NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	n->in = in[1];
	n->out = fdopen(out[0], "r");
	assert_int_equal(fscanf(n->out, "%d", &rc), 1);
	assert_int_equal(rc, 0);
	n->port = query_node(n).port;
}

static void stop_and_reap(struct node *n)
{
	if (!n->pid)
		return;
	close(n->in);
	waitpid(n->pid, NULL, 0);
	fclose(n->out);
	n->pid = 0;
}

static void kill_node(struct node *n)
{
	kill(n->pid, SIGKILL);
	stop_and_reap(n);
}

static unsigned long long hash_of(struct node *n)
{
	unsigned long long hash = 0;

	assert_int_equal(write(n->in, "h", 1), 1);
	assert_int_equal(fscanf(n->out, "%llx", &hash), 1);
	return hash;
}

static bool are_same(struct node *a, struct node *b)
{
	return query_node(a).number == query_node(b).number && hash_of(a) == hash_of(b);
}

static bool is_primary(struct node *n)
{
	return query_node(n).role == STAG_POOL_ROLE_PRIMARY;
}

/* ---- the client -------------------------------------------------------------------------------- */

static struct stag_pool *open_pool(struct story *s)
{
	struct stag_pool_attr attr = {.user = "writer",
				      .secret = WORD,
				      .timeout_ms = PATIENCE_S * 1000,
				      .retry_ms = PATIENCE_S * 1000};
	struct stag_pool *pool;
	char where[64];

	snprintf(where, sizeof(where), "127.0.0.1:%u,127.0.0.1:%u", s->a.port, s->b.port);
	pool = stag_pool_open(where, &attr);
	if (!pool)
		fail_msg("%s", stag_pool_error());
	return pool;
}

static void expect_read(struct story *s, const struct stag_pool_ptr *ptr, const uint8_t *want,
			size_t length)
{
	size_t got = s->length;

	memset(s->to, 0, length);
	assert_int_equal(stag_pool_read(s->pool, ptr, s->to, &got, NULL), 0);
	assert_int_equal(got, length);
	/* assert_memory_equal() would be slow: it compares byte by byte. */
	assert_true(memcmp(s->to, want, length) == 0);
}

static void submit_insert(struct story *s, const void *from, size_t length)
{
	struct stag_pool_io io = {.op = STAG_POOL_INSERT, .from = from, .length = length};

	assert_int_equal(stag_pool_submit(s->pool, &io, 1), 0);
}

/* Drives the client for a millisecond, and fetches a completion if there is one. */
static bool is_done(struct story *s, struct stag_pool_done *done)
{
	stag_pool_wait(s->pool, 1);
	return stag_pool_poll(s->pool, done, 1) == 1;
}

/* ---- stories -------------------------------------------------------------------------------------- */

static void *map_memory(size_t length)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(at != MAP_FAILED);
	return at;
}

static int set_up_for(void **state, size_t length)
{
	struct story *s = calloc(1, sizeof(*s));

	s->length = length;
	strcpy(s->dir, "/dev/shm/stag-big-XXXXXX");
	if (!mkdtemp(s->dir)) {
		strcpy(s->dir, "/tmp/stag-big-XXXXXX");
		assert_non_null(mkdtemp(s->dir));
	}
	s->a.name = "a";
	s->b.name = "b";
	s->from = map_memory(s->length);
	s->to = map_memory(s->length);
	dice_fill(s->from, s->length);
	start_node(s, &s->a, "create");
	start_node(s, &s->b, "join");
	await(query_node(&s->a).standbys == 1);
	s->pool = open_pool(s);
	*state = s;
	return 0;
}

static int set_up_long(void **state)
{
	return set_up_for(state, longest());
}

static int set_up(void **state)
{
	return set_up_for(state, quite_long());
}

static int tear_down(void **state)
{
	struct story *s = *state;
	char line[128];

	stag_pool_close(s->pool);
	stop_and_reap(&s->a);
	stop_and_reap(&s->b);
	munmap(s->from, s->length);
	munmap(s->to, s->length);
	snprintf(line, sizeof(line), "rm -rf %s", s->dir);
	assert_int_equal(system(line), 0);
	free(s);
	return 0;
}

/*
 * A long value is inserted, updated, read from the next primary, updated there, read from the first one, and
 * deleted.
 */
static void a_long_value_outlives_its_primary(void **state)
{
	struct story *s = *state;
	struct stag_pool_ptr ptr;
	size_t length = s->length;

	assert_int_equal(stag_pool_insert(s->pool, s->from, length, &ptr), 0);
	expect_read(s, &ptr, s->from, length);
	s->from[length / 2] ^= 1;
	s->from[length - 1] ^= 1;
	assert_int_equal(stag_pool_update(s->pool, &ptr, s->from, length - 1), 0);
	await(are_same(&s->a, &s->b));
	await(query_node(&s->a).standbys == 1);
	kill_node(&s->a);
	expect_read(s, &ptr, s->from, length - 1);
	start_node(s, &s->a, "join");
	await(query_node(&s->b).standbys == 1);
	s->from[0] ^= 1;
	assert_int_equal(stag_pool_update(s->pool, &ptr, s->from, length), 0);
	await(are_same(&s->a, &s->b));
	await(query_node(&s->b).standbys == 1);
	kill_node(&s->b);
	expect_read(s, &ptr, s->from, length);
	assert_int_equal(stag_pool_delete(s->pool, &ptr), 0);
	assert_int_equal(stag_pool_read(s->pool, &ptr, s->to, &length, NULL), ENOENT);
	start_node(s, &s->b, "join");
	await(query_node(&s->a).standbys == 1);
	await(are_same(&s->a, &s->b));
}

/* Waits for the standby first: on a slow machine it may have been dropped from the in-sync set. */
static void kill_primary(struct story *s)
{
	await(query_node(&s->a).standbys == 1);
	kill_node(&s->a);
}

static void kill_standby(struct story *s)
{
	kill_node(&s->b);
}

static int try_switching(struct story *s)
{
	int rc = -1;

	assert_int_equal(write(s->a.in, "s", 1), 1);
	assert_int_equal(fscanf(s->a.out, "%d", &rc), 1);
	return rc;
}

static void switch_over(struct story *s)
{
	await(try_switching(s) == 0);
}

/* Chunks that the standby copies, and records that arrive meanwhile, do not disturb each other. */
static void standby_returns(struct story *s)
{
	kill_node(&s->b);
	start_node(s, &s->b, "join");
}

static void disturb_upload(struct story *s, void (*disturb)(struct story *s))
{
	unsigned long long begun = query_node(&s->a).number;
	struct stag_pool_done done = {.error = -1};
	bool over = false;

	submit_insert(s, s->from, s->length);
	/* Some chunks have arrived, others have not. */
	while (!over && query_node(&s->a).number < begun + 4)
		over = is_done(s, &done);
	disturb(s);
	while (!over)
		over = is_done(s, &done);
	assert_int_equal(done.error, 0);
	expect_read(s, &done.ptr, s->from, s->length);
	assert_int_equal(stag_pool_delete(s->pool, &done.ptr), 0);
}

/* The value exists once, and whole, whatever happens to the nodes during its upload. */
static void upload_survives_changes_of_nodes(void **state)
{
	struct story *s = *state;

	disturb_upload(s, standby_returns);
	await(query_node(&s->a).standbys == 1);
	await(are_same(&s->a, &s->b));
	disturb_upload(s, kill_standby);
	start_node(s, &s->b, "join");
	await(query_node(&s->a).standbys == 1);
	disturb_upload(s, kill_primary);
	start_node(s, &s->a, "join");
	await(query_node(&s->b).standbys == 1);
	await(are_same(&s->a, &s->b));
	{ /* the primary is s->a from here on */
		struct node a = s->a;

		s->a = s->b;
		s->b = a;
	}
	disturb_upload(s, switch_over);
	await(is_primary(&s->b));
	await(query_node(&s->b).standbys == 1);
	await(are_same(&s->a, &s->b));
}

/* A client is killed during its upload: its memory is freed, and the nodes' memories are the same. */
static void upload_of_a_killed_client_is_freed(void **state)
{
	struct story *s = *state;
	struct news before = query_node(&s->a);
	pid_t child = fork();

	if (child == 0) { /* exec: an adapter cannot be used after a fork */
		char port[16];

		snprintf(port, sizeof(port), "%u", s->a.port);
		execl(self, self, "insert", port, NULL);
		_exit(127);
	}
	await(query_node(&s->a).number > before.number + 6);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	/* A complete value is removed here; a partial upload is freed when its client expires. */
	await((stag_pool_remove(s->pool, "value"), query_node(&s->a).used < before.used + MIB));
	await(are_same(&s->a, &s->b));
	submit_insert(s, s->from, MIB);
	await(is_done(s, &(struct stag_pool_done){0}));
}

/* test_big insert PORT: uploads until it is killed */
static int be_client(char **argv)
{
	struct stag_pool_attr attr = {.user = "writer", .secret = WORD};
	uint8_t *value = mmap(NULL, quite_long(), PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct stag_pool *pool;
	char where[64];

	snprintf(where, sizeof(where), "127.0.0.1:%s", argv[2]);
	pool = stag_pool_open(where, &attr);
	while (pool && value != MAP_FAILED &&
	       stag_pool_put(pool, "value", value, quite_long(), 0, NULL) == 0)
		continue;
	return 1;
}

/* A value that does not fit fails with ENOSPC; a short one still fits. */
static void value_that_does_not_fit_is_refused(void **state)
{
	struct story *s = *state;
	struct stag_pool_ptr first, second, other;
	size_t length = s->length;

	assert_int_equal(stag_pool_insert(s->pool, s->from, length, &first), 0);
	assert_int_equal(stag_pool_insert(s->pool, s->from, length, &second), 0);
	assert_int_equal(stag_pool_insert(s->pool, s->from, length, &other), ENOSPC);
	assert_int_equal(stag_pool_update(s->pool, &first, s->from, length), ENOSPC);
	expect_read(s, &first, s->from, length);
	assert_int_equal(stag_pool_insert(s->pool, s->from, 64, &other), 0);
	assert_int_equal(stag_pool_delete(s->pool, &first), 0);
	assert_int_equal(stag_pool_insert(s->pool, s->from, length, &first), 0);
	expect_read(s, &first, s->from, length);
	await(are_same(&s->a, &s->b));
}

/* Short values come and go beside long ones, and the standby stays in sync. */
static void short_values_do_not_wait_for_long_ones(void **state)
{
	struct story *s = *state;
	struct stag_pool *other = open_pool(s);
	struct stag_pool_done done = {.error = -1};
	struct stag_pool_ptr ptr;
	unsigned long count = 0;
	bool over = false;

	submit_insert(s, s->from, s->length);
	while (!over) {
		assert_int_equal(stag_pool_insert(other, s->from, 64, &ptr), 0);
		assert_int_equal(stag_pool_delete(other, &ptr), 0);
		over = is_done(s, &done);
		count++;
	}
	assert_int_equal(done.error, 0);
	print_message("%lu inserts and deletes of short values during one of %zu MiB\n", count,
		      s->length / MIB);
	if (!is_slow_build())
		assert_true(count > s->length / (16 * MIB));
	stag_pool_close(other);
}

static void fill_words(uint8_t *at, size_t length, uint64_t word)
{
	for (size_t i = 0; i + sizeof(word) <= length; i += sizeof(word))
		memcpy(at + i, &word, sizeof(word));
}

static uint64_t expect_words(const uint8_t *at, size_t length)
{
	uint64_t first, word;

	memcpy(&first, at, sizeof(first));
	for (size_t i = 0; i + sizeof(word) <= length; i += sizeof(word)) {
		memcpy(&word, at + i, sizeof(word));
		assert_int_equal(word, first);
	}
	return first;
}

/* A reader during updates gets one whole version, never an older one than before. */
static void no_mixed_value_is_read(void **state)
{
	struct story *s = *state;
	struct stag_pool *other = open_pool(s);
	struct stag_pool_io io = {.op = STAG_POOL_UPDATE, .from = s->from, .length = TORN};
	struct stag_pool_info info = {0};
	struct stag_pool_done done;
	uint64_t last = 0, got;
	size_t length;

	fill_words(s->from, TORN, 1);
	assert_int_equal(stag_pool_insert(s->pool, s->from, io.length, &io.ptr), 0);
	for (uint64_t n = 2; n < 2 + scaled(50); n++) {
		fill_words(s->from, io.length, n);
		assert_int_equal(stag_pool_submit(s->pool, &io, 1), 0);
		do {
			length = TORN;
			assert_int_equal(stag_pool_read(other, &io.ptr, s->to, &length, NULL), 0);
			assert_int_equal(length, io.length);
			got = expect_words(s->to, length);
			assert_true(got >= last && got <= n);
			last = got;
		} while (!is_done(s, &done));
		assert_int_equal(done.error, 0);
	}
	assert_int_equal(stag_pool_query(other, &info, sizeof(info)), 0);
	print_message("%llu reads, %llu of them retried, %llu by the node\n",
		      (unsigned long long)info.reads, (unsigned long long)info.retried_reads,
		      (unsigned long long)info.asked_reads);
	stag_pool_close(other);
}

/* A reader that knows the place of a body notices that its memory was reused. */
static void a_body_that_was_freed_is_no_value(void **state)
{
	struct story *s = *state;
	const uint64_t id[2] = {5, 6};
	struct stag_pool_ptr ptr;
	struct pool_read read;
	enum pool_step step;
	struct raw raw;
	uint64_t n = 1;

	fill_words(s->from, RAW_MEMORY, n);
	assert_int_equal(stag_pool_insert(s->pool, s->from, RAW_MEMORY, &ptr), 0);
	assert_int_equal(raw_open(&raw, (uint16_t)s->a.port, "writer", WORD), 0);
	assert_int_equal(raw_attach(&raw, id, false), 0);
	pool_read_start(&read, raw.facts.address, raw.facts.size, &ptr, NULL, 0);
	assert_int_equal(raw_fetch(&raw, read.address, read.length), 0);
	step = pool_read_feed(&read, raw.memory, raw.memory + sizeof(struct pool_object));
	assert_true(step == POOL_MORE && read.body);
	do {
		fill_words(s->from, RAW_MEMORY, ++n);
		assert_int_equal(stag_pool_update(s->pool, &ptr, s->from, RAW_MEMORY), 0);
		assert_int_equal(raw_fetch(&raw, read.address, read.length), 0);
	} while (raw.memory[0] == 1);
	step = pool_read_feed(&read, NULL, raw.memory);
	assert_true(step == POOL_MORE && !read.body);
	expect_read(s, &ptr, s->from, RAW_MEMORY);
	raw_close(&raw);
}

/* A READ request for a long value makes the node write it to the client's memory. */
static void a_node_writes_a_long_value(void **state)
{
	struct story *s = *state;
	struct pool_request rq = {
		.op = STAG_POOL_READ, .flags = POOL_HAS_PTR, .source = POOL_SOURCE_PULL};
	const uint64_t id[2] = {1, 2};
	struct pool_answer answer;
	struct raw raw;

	assert_int_equal(stag_pool_insert(s->pool, s->from, RAW_MEMORY, &rq.ptr), 0);
	assert_int_equal(raw_open(&raw, (uint16_t)s->a.port, "writer", WORD), 0);
	assert_int_equal(raw_attach(&raw, id, false), 0);
	rq.source_address = (uintptr_t)raw.memory;
	rq.key = raw.memory_mr->rkey;
	rq.length = RAW_MEMORY;
	assert_int_equal(raw_request(&raw, &rq, &answer), 0);
	assert_int_equal(answer.status, 0);
	assert_int_equal(answer.ptr.length, RAW_MEMORY);
	assert_true(memcmp(raw.memory, s->from, RAW_MEMORY) == 0);
	rq.length = RAW_MEMORY - 1;
	rq.sequence = 0;
	assert_int_equal(raw_request(&raw, &rq, &answer), 0);
	assert_int_equal(answer.status, EMSGSIZE);
	raw_close(&raw);
}

/* A client names more memory than it has registered: it loses its connection, and no other client is affected. */
static void source_that_is_too_short_ends_its_connection(void **state)
{
	struct story *s = *state;
	struct pool_request rq = {.op = STAG_POOL_INSERT,
				  .flags = POOL_HAS_VALUE,
				  .source = POOL_SOURCE_PULL,
				  .length = 3 * RAW_MEMORY / 2};
	unsigned long long used = query_node(&s->a).used;
	const uint64_t id[2] = {3, 4};
	struct stag_pool_ptr ptr;
	struct pool_answer answer;
	struct raw raw;

	assert_int_equal(raw_open(&raw, (uint16_t)s->a.port, "writer", WORD), 0);
	assert_int_equal(raw_attach(&raw, id, false), 0);
	rq.source_address = (uintptr_t)raw.memory;
	rq.key = raw.memory_mr->rkey;
	assert_true(raw_request(&raw, &rq, &answer) < 0);
	raw_close(&raw);
	assert_int_equal(stag_pool_insert(s->pool, s->from, MIB, &ptr), 0);
	expect_read(s, &ptr, s->from, MIB);
	assert_int_equal(stag_pool_delete(s->pool, &ptr), 0);
	await(query_node(&s->a).used < used + MIB);
	await(are_same(&s->a, &s->b));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_long_value_outlives_its_primary, set_up_long,
						tear_down),
		cmocka_unit_test_setup_teardown(upload_survives_changes_of_nodes, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(upload_of_a_killed_client_is_freed, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(value_that_does_not_fit_is_refused, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(short_values_do_not_wait_for_long_ones, set_up_long,
						tear_down),
		cmocka_unit_test_setup_teardown(no_mixed_value_is_read, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_body_that_was_freed_is_no_value, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_node_writes_a_long_value, set_up, tear_down),
		cmocka_unit_test_setup_teardown(source_that_is_too_short_ends_its_connection,
						set_up, tear_down),
	};

	if (argc == 8 && strcmp(argv[1], "node") == 0)
		return be_node(argv);
	if (argc == 3 && strcmp(argv[1], "insert") == 0)
		return be_client(argv);
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 77;
	signal(SIGPIPE, SIG_IGN);
	dice_start();
	if (argc == 2)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
