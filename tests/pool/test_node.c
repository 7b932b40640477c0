// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_node.c - nodes of a pool, each in a process of its own, so that they can be killed; and a client on bare verbs.
 *
 * Some tests are with adapters that have nothing beyond verbs: no chosen keys, no lease. Their client is the
 * library's, which gets a FRESH answer from the primary before it delivers what it has read.
 *
 * `test_pool_node TEST caught` is for a build with a deliberate fault: it succeeds if that test fails.
 */
#include "raw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dice.h"
#include "pool/role/roll.h"

#define SECRET	       "a secret of the nodes, long enough"
#define WORD	       "a word that the client knows"
#define SIZE	       (16ull << 20)
#define NUM_VALUES     40
#define STAGING_SLICES 32u /* as node.h has it */
#define PATIENCE_S     60

#define await(condition)                                                                           \
	do {                                                                                       \
		time_t until_ = time(NULL) + PATIENCE_S;                                           \
		while (!(condition)) {                                                             \
			if (time(NULL) > until_)                                                   \
				fail_msg("%s:%d: timed out waiting for %s", __FILE__, __LINE__,    \
					 #condition);                                              \
			nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);                   \
		}                                                                                  \
	} while (0)

/* ---- a node, in a process ------------------------------------------------------------------ */

static atomic_bool to_stall;
static int stall_pipe[2];
static atomic_uint torn; /* how often the node received bytes that are no record */

/*
 * The node's log callback. With to_stall, blocks the node's thread when it links a standby; its adapter
 * continues.
 */
static void on_log_line(void *arg, int level, const char *line)
{
	char go;

	if (strstr(line, "is no record"))
		torn++;
	if (strstr(line, "ends without")) {
		puts(line);
		fflush(stdout);
	}
	if (strstr(line, " is linked") && atomic_exchange(&to_stall, false))
		while (read(stall_pipe[0], &go, 1) < 0)
			continue;
}

static void print_answer(struct stag_pool_node *node, char what)
{
	struct stag_pool_node_info info = {0};

	stag_pool_node_query(node, &info, sizeof(info));
	if (what == 'h') {
		printf("%llx\n",
		       (unsigned long long)pool_hash((void *)(uintptr_t)info.address, info.size));
	} else if (what == 's') {
		printf("%d\n", stag_pool_node_switchover(node, NULL));
	} else if (what == 'p') {
		to_stall = true;
		printf("0\n");
	} else if (what == 'r') {
		printf("%d\n", (int)write(stall_pipe[1], "r", 1));
	} else {
		unsigned int standbys = 0;

		for (unsigned int i = 0; i < info.num_members; i++)
			standbys += info.members[i].role == STAG_POOL_ROLE_STANDBY;
		printf("%u %u %u %llu %llu %u %llu %llu %llu\n", info.role, info.port, standbys,
		       (unsigned long long)info.epoch, (unsigned long long)info.number, torn,
		       (unsigned long long)info.changes,
		       (unsigned long long)info.change_times.count,
		       (unsigned long long)info.replication_times.count);
	}
	fflush(stdout);
}

/* test_node node NAME STATE ROLL create|join [PORT]; SHORT in the environment: with short timeouts */
static int be_node(int argc, char **argv)
{
	const struct stag_pool_user users[] = {
		{.name = "writer",
		 .secret = WORD,
		 .rights = STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_WRITE},
		{.name = "reader", .secret = WORD, .rights = STAG_POOL_RIGHT_READ},
		{.name = "admin",
		 .secret = WORD,
		 .rights = STAG_POOL_RIGHT_READ | STAG_POOL_RIGHT_ADMIN},
		{.name = "blind", .secret = WORD, .rights = STAG_POOL_RIGHT_WRITE},
	};
	struct stag_pool_node_attr attr = {
		.pool = "test",
		.node = argv[2],
		.state = argv[3],
		.roll = argv[4],
		.secret = SECRET,
		.address = "127.0.0.1",
		.port = argc > 6 ? (uint16_t)atoi(argv[6]) : 0,
		.flags = (argc > 6 ? 0 : STAG_POOL_ANY_PORT) |
			 (argv[5][0] == 'c' ? STAG_POOL_CREATE : 0),
		.size = SIZE,
		.users = users,
		.num_users = sizeof(users) / sizeof(users[0]),
		.beat_us = 20000,
		.lease_ms = 1000,
		.promote_ms = 1200,
		.log_bytes = 4 << 20,
		.log = on_log_line,
	};
	struct stag_pool_node *node;
	char what;

	if (getenv("SHORT")) {
		attr.beat_us = 5000;
		attr.lease_ms = 40;
		attr.promote_ms = 50;
	}
	node = pipe(stall_pipe) == 0 ? stag_pool_node_start(&attr) : NULL;
	printf("%d\n", node ? 0 : errno);
	fflush(stdout);
	while (node && read(STDIN_FILENO, &what, 1) == 1)
		print_answer(node, what);
	close(stall_pipe[1]);
	stag_pool_node_stop(node);
	return 0;
}

struct node {
	const char *name;
	pid_t pid;
	int in;
	FILE *out;
};

struct story {
	char dir[64];
	struct node a, b, c;
	struct raw raw;
	uint64_t id[2];
	struct stag_pool_ptr ptrs[NUM_VALUES];
	unsigned int count;
	bool plain;	  /* nodes use nothing beyond verbs */
	const char *user; /* NULL: "writer" */
};

static char self[512];
static bool has_fault; /* the build is to be caught */

static int start_node(struct story *s, struct node *n, const char *how)
{
	char state[128], roll[128];
	int in[2], out[2], rc = -1;

	snprintf(state, sizeof(state), "%s/%s", s->dir, n->name);
	snprintf(roll, sizeof(roll), "file:%s/roll", s->dir);
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	n->pid = fork();
	if (n->pid == 0) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		close(in[1]);
		close(out[0]);
		if (s->plain)
			setenv("STAG_DV", "off", 1);
		execl(self, self, "node", n->name, state, roll, how, NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	n->in = in[1];
	n->out = fdopen(out[0], "r");
	assert_int_equal(fscanf(n->out, "%d", &rc), 1);
	return rc;
}

static void stop_and_reap(struct node *n)
{
	if (!n->pid)
		return;
	kill(n->pid, SIGCONT); /* a failed test may have left it stopped */
	close(n->in);
	waitpid(n->pid, NULL, 0);
	fclose(n->out);
	n->pid = 0;
}

/* Returns the number that the node prints for a command. */
static int send_command(struct node *n, char what)
{
	int rc = -1;

	assert_int_equal(write(n->in, &what, 1), 1);
	assert_int_equal(fscanf(n->out, "%d", &rc), 1);
	return rc;
}

static void kill_node(struct node *n)
{
	kill(n->pid, SIGKILL);
	stop_and_reap(n);
}

struct news {
	unsigned int role, port, standbys;
	unsigned long long epoch, number;
	unsigned int torn;
	unsigned long long changes, timed, replicated;
};

static struct news query_node(struct node *n)
{
	struct news w = {0};

	assert_int_equal(write(n->in, "q", 1), 1);
	assert_int_equal(fscanf(n->out, "%u %u %u %llu %llu %u %llu %llu %llu", &w.role, &w.port,
				&w.standbys, &w.epoch, &w.number, &w.torn, &w.changes, &w.timed,
				&w.replicated),
			 9);
	return w;
}

static unsigned long long hash_of(struct node *n)
{
	unsigned long long hash = 0;

	assert_int_equal(write(n->in, "h", 1), 1);
	assert_int_equal(fscanf(n->out, "%llx", &hash), 1);
	return hash;
}

static bool is_primary(struct node *n)
{
	return query_node(n).role == STAG_POOL_ROLE_PRIMARY;
}

static bool are_same(struct node *a, struct node *b)
{
	return query_node(a).number == query_node(b).number && hash_of(a) == hash_of(b);
}

/* ---- the client --------------------------------------------------------------------------------- */

static int try_opening(struct story *s, struct node *n, bool again)
{
	int rc =
		raw_open(&s->raw, (uint16_t)query_node(n).port, s->user ? s->user : "writer", WORD);

	if (rc == 0)
		rc = raw_attach(&s->raw, s->id, again);
	if (rc != 0)
		raw_close(&s->raw);
	s->raw.sequence = s->count;
	return rc;
}

static size_t value_of(unsigned int i, uint8_t *value)
{
	size_t length = i * 37 % 3000;

	for (size_t k = 0; k < length; k++)
		value[k] = (uint8_t)(i + k * 7);
	return length;
}

static int insert(struct story *s, unsigned int i, struct stag_pool_ptr *ptr)
{
	uint8_t value[4096];
	struct pool_request rq = {.op = STAG_POOL_INSERT,
				  .flags = POOL_HAS_VALUE,
				  .length = (uint32_t)value_of(i, value),
				  .value = value,
				  .sequence = i + 1,
				  .acknowledged = i > 0 ? i - 1 : 0};
	struct pool_answer answer;
	int rc = raw_request(&s->raw, &rq, &answer);

	if (rc != 0)
		return rc;
	*ptr = answer.ptr;
	return (int)answer.status;
}

static void insert_some(struct story *s, unsigned int n)
{
	while (n-- > 0) {
		assert_int_equal(insert(s, s->count, &s->ptrs[s->count]), 0);
		s->count++;
	}
}

static void expect_all(struct story *s)
{
	uint8_t want[4096], got[4096];

	for (unsigned int i = 0; i < s->count; i++) {
		size_t length = sizeof(got);

		assert_int_equal(raw_read(&s->raw, &s->ptrs[i], got, &length), 0);
		assert_int_equal(length, value_of(i, want));
		assert_memory_equal(got, want, length);
	}
}

/* ---- stories -------------------------------------------------------------------------------------- */

static int set_up(void **state)
{
	struct story *s = calloc(1, sizeof(*s));

	strcpy(s->dir, "/tmp/stag-pool-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	s->a.name = "a";
	s->b.name = "b";
	s->c.name = "c";
	dice_fill(s->id, sizeof(s->id));
	*state = s;
	return 0;
}

static int tear_down(void **state)
{
	struct story *s = *state;
	char line[128];

	raw_close(&s->raw);
	stop_and_reap(&s->a);
	stop_and_reap(&s->b);
	stop_and_reap(&s->c);
	snprintf(line, sizeof(line), "rm -rf %s", s->dir);
	assert_int_equal(system(line), 0);
	free(s);
	return 0;
}

static void start_both(struct story *s)
{
	assert_int_equal(start_node(s, &s->a, "create"), 0);
	assert_int_equal(start_node(s, &s->b, "join"), 0);
	await(query_node(&s->a).standbys == 1);
}

/*
 * Acknowledged values are on the standby when the primary is killed, under the same pointers; and the other way
 * around.
 */
static void pointers_outlive_the_primary(void **state)
{
	struct story *s = *state;
	struct stag_pool_ptr again;

	start_both(s);
	await(try_opening(s, &s->a, false) == 0);
	insert_some(s, NUM_VALUES / 2);
	expect_all(s);
	kill_node(&s->a);
	raw_close(&s->raw);
	await(is_primary(&s->b));
	await(try_opening(s, &s->b, true) == 0);
	expect_all(s);
	/* The last insert is retried, as if its answer had been lost: it is carried out once. */
	assert_int_equal(insert(s, s->count - 1, &again), 0);
	assert_memory_equal(&again, &s->ptrs[s->count - 1], sizeof(again));
	insert_some(s, NUM_VALUES / 4);

	assert_int_equal(start_node(s, &s->a, "join"), 0);
	await(query_node(&s->b).standbys == 1);
	await(are_same(&s->a, &s->b));
	insert_some(s, NUM_VALUES / 4);
	await(are_same(&s->a, &s->b));
	kill_node(&s->b);
	raw_close(&s->raw);
	await(is_primary(&s->a));
	await(try_opening(s, &s->a, true) == 0);
	expect_all(s);
}

/* The first of two standbys is promoted; the other follows it, and is promoted in turn. */
static void standbys_are_promoted_one_after_the_other(void **state)
{
	struct story *s = *state;

	start_both(s);
	assert_int_equal(start_node(s, &s->c, "join"), 0);
	await(query_node(&s->a).standbys == 2);
	await(try_opening(s, &s->a, false) == 0);
	insert_some(s, 10);
	kill_node(&s->a);
	raw_close(&s->raw);
	await(is_primary(&s->b) || is_primary(&s->c));
	if (is_primary(&s->c)) { /* on a machine too busy for the first one */
		struct node b = s->b;

		s->b = s->c;
		s->c = b;
	}
	await(try_opening(s, &s->b, true) == 0);
	insert_some(s, 10);
	await(query_node(&s->b).standbys == 1);
	await(are_same(&s->b, &s->c));
	kill_node(&s->b);
	raw_close(&s->raw);
	await(is_primary(&s->c));
	await(try_opening(s, &s->c, true) == 0);
	expect_all(s);
	insert_some(s, 10);
}

/* A standby that is killed is dropped from the in-sync set, and the changes that waited for it are acknowledged. */
static void a_standby_is_not_waited_for_long(void **state)
{
	struct story *s = *state;

	start_both(s);
	await(try_opening(s, &s->a, false) == 0);
	insert_some(s, 5);
	kill_node(&s->b);
	insert_some(s, 5);
	expect_all(s);
	assert_int_equal(query_node(&s->a).epoch, 1);
	assert_int_equal(start_node(s, &s->b, "join"), 0);
	await(query_node(&s->a).standbys == 1);
	await(are_same(&s->a, &s->b));
}

/* A primary that was stopped neither acknowledges nor serves reads when it continues. */
static void a_primary_that_was_stopped_is_refused(void **state)
{
	struct story *s = *state;
	struct stag_pool_ptr ptr;
	uint8_t got[4096];
	size_t length = sizeof(got);

	start_both(s);
	await(try_opening(s, &s->a, false) == 0);
	insert_some(s, 5);
	kill(s->a.pid, SIGSTOP);
	await(is_primary(&s->b));
	kill(s->a.pid, SIGCONT);
	assert_int_equal(raw_read(&s->raw, &s->ptrs[0], got, &length), -ENOTCONN);
	assert_true(insert(s, s->count, &ptr) < 0);
	raw_close(&s->raw);
	await(try_opening(s, &s->b, true) == 0);
	expect_all(s);
	insert_some(s, 5);
	await(query_node(&s->b).standbys == 1);
	await(are_same(&s->a, &s->b));
	raw_close(&s->raw);
	assert_int_equal(try_opening(s, &s->a, true), -EREMCHG);
}

/* A primary hands over on request, and stays in sync. */
static void a_primary_hands_over(void **state)
{
	struct story *s = *state;

	start_both(s);
	await(try_opening(s, &s->a, false) == 0);
	insert_some(s, 10);
	assert_int_equal(send_command(&s->a, 's'), 0);
	await(is_primary(&s->b));
	raw_close(&s->raw);
	await(try_opening(s, &s->b, true) == 0);
	expect_all(s);
	insert_some(s, 10);
	await(query_node(&s->b).standbys == 1);
	await(are_same(&s->a, &s->b));
}

static struct stag_pool *open_as(const char *user, struct node *n)
{
	struct stag_pool_attr attr = {
		.user = user, .secret = WORD, .timeout_ms = PATIENCE_S * 1000};
	char where[32];
	struct stag_pool *pool;

	snprintf(where, sizeof(where), "127.0.0.1:%u", query_node(n).port);
	pool = stag_pool_open(where, &attr);
	assert_non_null(pool);
	return pool;
}

/* A switchover that names no node goes to the same seat whether a client or the primary's own program requests it. */
static void switchovers_choose_the_same_successor(void **state)
{
	struct story *s = *state;
	struct stag_pool *pool;

	start_both(s);
	assert_int_equal(start_node(s, &s->c, "join"), 0);
	await(query_node(&s->a).standbys == 2);
	/* EBUSY until the standbys have connected to the new primary. */
	await(send_command(&s->a, 's') == 0);
	await(is_primary(&s->b));
	await(send_command(&s->b, 's') == 0);
	await(is_primary(&s->a));
	pool = open_as("admin", &s->a);
	await(stag_pool_switchover(pool, NULL) == 0);
	await(is_primary(&s->b) || is_primary(&s->c));
	assert_true(is_primary(&s->b));
	stag_pool_close(pool);
}

/* A primary times every change and a sample of the records; a standby times neither. */
static void primary_measures_latencies(void **state)
{
	struct story *s = *state;
	struct news w;

	start_both(s);
	await(try_opening(s, &s->a, false) == 0);
	insert_some(s, 10);
	await((w = query_node(&s->a)).changes > 10 && w.timed == w.changes);
	assert_true(w.replicated > 0 && w.replicated <= w.changes);
	w = query_node(&s->b);
	assert_int_equal(w.timed, 0);
	assert_int_equal(w.replicated, 0);
}

/* No client is admitted without a secret; a user that may only read cannot write. */
static void clients_must_prove_their_secret(void **state)
{
	struct story *s = *state;
	struct stag_pool_ptr ptr;
	uint16_t port;

	assert_int_equal(start_node(s, &s->a, "create"), 0);
	await(is_primary(&s->a));
	port = (uint16_t)query_node(&s->a).port;
	assert_int_equal(raw_open(&s->raw, port, "writer", "not the word it should be"), -EACCES);
	assert_int_equal(raw_open(&s->raw, port, "nobody", WORD), -EACCES);
	assert_int_equal(raw_open(&s->raw, port, "reader", WORD), 0);
	assert_int_equal(raw_attach(&s->raw, s->id, false), 0);
	assert_int_equal(insert(s, 0, &ptr), EACCES);
}

/* The node reads values from the client's memory: short ones in one record, long ones in many. */
static void values_are_pulled(void **state)
{
	static uint8_t want[RAW_MEMORY], got[RAW_MEMORY];
	const uint32_t lengths[] = {0, 1, 100000, POOL_DIRECT_MAX, POOL_DIRECT_MAX + 1, RAW_MEMORY};
	struct story *s = *state;

	start_both(s);
	await(try_opening(s, &s->a, false) == 0);
	dice_fill(want, sizeof(want));
	for (unsigned int i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct pool_request rq = {.op = STAG_POOL_INSERT,
					  .flags = POOL_HAS_VALUE,
					  .source = POOL_SOURCE_PULL,
					  .length = lengths[i],
					  .source_address = (uintptr_t)s->raw.memory,
					  .key = s->raw.memory_mr->rkey,
					  .acknowledged = i};
		struct pool_answer answer;
		size_t length = sizeof(got);

		memcpy(s->raw.memory, want, lengths[i]);
		assert_int_equal(raw_request(&s->raw, &rq, &answer), 0);
		assert_int_equal(answer.status, 0);
		memset(s->raw.memory, 0, RAW_MEMORY);
		assert_int_equal(raw_read(&s->raw, &answer.ptr, got, &length), 0);
		assert_int_equal(length, lengths[i]);
		assert_memory_equal(got, want, length);
	}
	await(are_same(&s->a, &s->b));
}

/* ---- adapters with nothing beyond verbs ------------------------------------------------------------ */

static int set_up_plain(void **state)
{
	set_up(state);
	((struct story *)*state)->plain = true;
	return 0;
}

/* Inserts or updates (op) the first value. */
static void store_first(struct story *s, uint8_t op, const char *value)
{
	struct pool_request rq = {.op = op,
				  .flags = POOL_HAS_VALUE,
				  .ptr = s->ptrs[0],
				  .length = (uint32_t)strlen(value) + 1,
				  .value = value,
				  .sequence = s->count + 1,
				  .acknowledged = s->count};
	struct pool_answer answer;

	if (op == STAG_POOL_UPDATE)
		rq.flags |= POOL_HAS_PTR;
	assert_int_equal(raw_request(&s->raw, &rq, &answer), 0);
	assert_int_equal(answer.status, 0);
	s->ptrs[0] = answer.ptr;
	s->count++;
}

static void expect_first(struct stag_pool *pool, const struct story *s, const char *value)
{
	char to[16] = "";
	size_t length = sizeof(to);

	assert_int_equal(stag_pool_read(pool, &s->ptrs[0], to, &length, NULL), 0);
	assert_string_equal(to, value);
}

static struct stag_pool *begin_plain(struct story *s)
{
	struct stag_pool *pool;

	start_both(s);
	await(try_opening(s, &s->a, false) == 0);
	store_first(s, STAG_POOL_INSERT, "old");
	assert_int_equal(s->raw.facts.flags & ~NODE_EVENTS, NODE_UNLEASED);
	assert_int_not_equal(s->raw.facts.rkey, s->raw.facts.key);
	pool = open_as("reader", &s->a);
	expect_first(pool, s, "old");
	return pool;
}

static void expect_standbys(struct story *s, unsigned int standbys)
{
	await(query_node(&s->b).standbys == standbys);
	await(are_same(&s->a, &s->b));
}

/*
 * The stalled primary's adapter serves reads of an old value: they are not delivered, and it does not answer
 * FRESH.
 */
static void reads_without_a_fresh_answer_are_not_delivered(void **state)
{
	struct story *s = *state;
	struct stag_pool *pool = begin_plain(s);
	struct pool_request fresh = {.op = POOL_OP_FRESH};
	struct pool_answer answer;
	struct raw still;
	char to[16];
	size_t length = sizeof(to);

	assert_int_equal(send_command(&s->a, 'p'), 0);
	assert_int_equal(start_node(s, &s->c, "join"), 0);
	await(is_primary(&s->b));
	still = s->raw;
	await(try_opening(s, &s->b, true) == 0);
	store_first(s, STAG_POOL_UPDATE, "new");
	/* Once a read sent after the FRESH request has completed, the request has arrived, too. */
	assert_int_equal(raw_send(&still, &fresh), 0);
	assert_int_equal(raw_read(&still, &s->ptrs[0], to, &length), 0);
	assert_string_equal(to, "old");
	expect_first(pool, s, "new");

	assert_int_equal(send_command(&s->a, 'r'), 1);
	assert_int_equal(raw_receive(&still, &fresh, &answer), -ENOTCONN);
	raw_close(&still);
	expect_standbys(s, 2);
	expect_first(pool, s, "new");
	stag_pool_close(pool);
}

/* Takes the roll's lock: the roll backend does no swap until it is closed. */
static int hold_roll(const struct story *s)
{
	char lock[128];
	int fd;

	snprintf(lock, sizeof(lock), "%s/roll.lock", s->dir);
	fd = open(lock, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	return fd;
}

static bool has_lease(struct stag_pool *pool)
{
	struct stag_pool_info info = {0};

	assert_int_equal(stag_pool_query(pool, &info, sizeof(info)), 0);
	return info.lease_us != 0;
}

/*
 * A primary whose standby is silent and cannot be dropped has no lease: it answers FRESH only when it has one
 * again.
 */
static void primary_without_a_lease_does_not_answer_fresh(void **state)
{
	struct story *s = *state;
	struct stag_pool *pool = begin_plain(s);
	struct pool_request fresh = {.op = POOL_OP_FRESH};
	struct pool_answer answer;
	struct ibv_wc wc;
	int roll = hold_roll(s);

	kill(s->b.pid, SIGSTOP);
	await(!has_lease(pool));
	assert_int_equal(raw_send(&s->raw, &fresh), 0);
	await(ibv_poll_cq(s->raw.cq, 1, &wc) == 1); /* the send has completed */
	for (int i = 0; i < 20; i++) {
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
		assert_int_equal(ibv_poll_cq(s->raw.cq, 1, &wc), 0);
	}
	kill(s->b.pid, SIGCONT);
	close(roll);
	assert_int_equal(raw_receive(&s->raw, &fresh, &answer), 0);
	assert_int_equal(answer.status, 0);
	expect_first(pool, s, "old");
	stag_pool_close(pool);
}

/* Reads posted to a stopped primary are served by its adapter once it continues, and are not delivered. */
static void reads_from_a_stopped_primary_are_not_delivered(void **state)
{
	enum { READS = 32 };
	static char to[READS][16];
	struct stag_pool_done done[READS];
	struct story *s = *state;
	struct stag_pool *pool = begin_plain(s);

	kill(s->a.pid, SIGSTOP);
	await(is_primary(&s->b));
	raw_close(&s->raw);
	await(try_opening(s, &s->b, true) == 0);
	store_first(s, STAG_POOL_UPDATE, "new");
	for (int i = 0; i < READS; i++) {
		struct stag_pool_io io = {.op = STAG_POOL_READ,
					  .ptr = s->ptrs[0],
					  .to = to[i],
					  .length = sizeof(to[i])};

		assert_int_equal(stag_pool_submit(pool, &io, 1), 0);
	}
	kill(s->a.pid, SIGCONT);
	for (int got = 0; got < READS;) {
		assert_int_equal(stag_pool_wait(pool, PATIENCE_S * 1000), 0);
		got += stag_pool_poll(pool, done + got, READS - got);
	}
	for (int i = 0; i < READS; i++) {
		assert_int_equal(done[i].error, 0);
		assert_string_equal(to[i], "new");
	}
	expect_standbys(s, 1);
	stag_pool_close(pool);
}

/* ---- values that are staged ---------------------------------------------------------------------- */

static void open_writer(struct story *s, struct node *n)
{
	await(try_opening(s, n, false) == 0);
	assert_int_equal(s->raw.facts.staging_length, NODE_SLICE);
	assert_int_equal(s->raw.open, (1u << NODE_SLOTS) - 1);
}

static unsigned int any_slot(struct story *s, uint32_t length)
{
	uint32_t shorts = (1u << NODE_SHORTS) - 1;
	uint32_t open = s->raw.open & (length <= NODE_SHORT ? shorts : ~shorts);

	assert_int_not_equal(open, 0);
	return (unsigned int)__builtin_ctz(open);
}

static void expect_stored(struct story *s, const struct stag_pool_ptr *ptr, const void *want,
			  size_t length)
{
	static uint8_t got[RAW_MEMORY];
	size_t found = sizeof(got);

	assert_int_equal(raw_read(&s->raw, ptr, got, &found), 0);
	assert_int_equal(found, length);
	assert_memory_equal(got, want, length);
}

/* Waits until all slots are open: a slot reopens when all nodes have applied its value. */
static void await_slots(struct story *s)
{
	struct pool_request rq = {.op = POOL_OP_NODES, .length = sizeof(struct node_status)};
	struct pool_answer answer;

	await((rq.sequence = ++s->raw.sequence, raw_request(&s->raw, &rq, &answer) == 0) &&
	      s->raw.open == (1u << NODE_SLOTS) - 1);
}

static struct stag_pool_ptr insert_staged(struct story *s, const uint8_t *value, uint32_t length)
{
	unsigned int slot = any_slot(s, length);
	struct pool_request rq;
	struct pool_answer answer;

	assert_int_equal(raw_stage(&s->raw, slot, 0, value, length), 0);
	rq = raw_staged(&s->raw, slot, length);
	assert_int_equal(raw_request(&s->raw, &rq, &answer), 0);
	assert_int_equal(answer.status, 0);
	return answer.ptr;
}

static const uint32_t staged_lengths[] = {
	1, 5000, NODE_SHORT, NODE_SHORT + 1, POOL_DIRECT_MAX, POOL_DIRECT_MAX + 1, NODE_LONG};
#define NUM_STAGED (sizeof(staged_lengths) / sizeof(staged_lengths[0]))

/* A staged value is on both standbys, one of which joined later, and outlives the primary. */
static void staged_values_outlive_the_primary(void **state)
{
	static uint8_t want[RAW_MEMORY];
	struct stag_pool_ptr ptrs[3 * NUM_STAGED];
	struct story *s = *state;
	struct pool_request half;
	struct pool_answer answer;
	unsigned int n = 0;

	start_both(s);
	open_writer(s, &s->a);
	dice_fill(want, sizeof(want));
	for (unsigned int i = 0; i < NUM_STAGED; i++, n++) {
		ptrs[n] = insert_staged(s, want, staged_lengths[i]);
		await_slots(s);
	}
	/* Half of a value is written before the third node joins. */
	assert_int_equal(raw_stage(&s->raw, 0, 0, want, NODE_SHORT / 2), 0);
	assert_int_equal(start_node(s, &s->c, "join"), 0);
	await(query_node(&s->a).standbys == 2);
	assert_int_equal(
		raw_stage(&s->raw, 0, NODE_SHORT / 2, want + NODE_SHORT / 2, NODE_SHORT / 2), 0);
	half = raw_staged(&s->raw, 0, NODE_SHORT);
	assert_int_equal(raw_request(&s->raw, &half, &answer), 0);
	expect_stored(s, &answer.ptr, want, NODE_SHORT);
	await_slots(s);
	for (unsigned int i = 0; i < NUM_STAGED; i++, n++) {
		ptrs[n] = insert_staged(s, want, staged_lengths[i]);
		expect_stored(s, &ptrs[n], want, staged_lengths[i]);
		await_slots(s);
	}
	await(are_same(&s->a, &s->b));
	await(are_same(&s->a, &s->c));
	assert_int_equal(query_node(&s->b).torn, 0);
	assert_int_equal(query_node(&s->c).torn, 0);
	s->count = (unsigned int)s->raw.sequence;
	kill_node(&s->a);
	raw_close(&s->raw);
	await(is_primary(&s->b) || is_primary(&s->c));
	await(try_opening(s, is_primary(&s->b) ? &s->b : &s->c, true) == 0);
	for (unsigned int i = 0; i < NUM_STAGED; i++, n++)
		ptrs[n] = insert_staged(s, want,
					staged_lengths[i] < NODE_SHORT ? staged_lengths[i] : 7);
	for (unsigned int i = 0; i < n; i++) {
		uint32_t length = staged_lengths[i % NUM_STAGED];

		if (i >= 2 * NUM_STAGED && length >= NODE_SHORT)
			length = 7;
		expect_stored(s, &ptrs[i], want, length);
	}
}

/* The adapter forwards what clients of each protection domain write. */
static void staged_values_of_who_may_not_read_outlive_the_primary(void **state)
{
	static uint8_t want[RAW_MEMORY];
	struct stag_pool_ptr ptrs[NUM_STAGED];
	struct story *s = *state;

	s->user = "blind";
	start_both(s);
	open_writer(s, &s->a);
	dice_fill(want, sizeof(want));
	for (unsigned int i = 0; i < NUM_STAGED; i++) {
		ptrs[i] = insert_staged(s, want, staged_lengths[i]);
		await_slots(s);
	}
	await(are_same(&s->a, &s->b));
	assert_int_equal(query_node(&s->b).torn, 0);
	kill_node(&s->a);
	raw_close(&s->raw);
	s->user = NULL;
	s->id[0]++;
	await(is_primary(&s->b));
	await(try_opening(s, &s->b, false) == 0);
	for (unsigned int i = 0; i < NUM_STAGED; i++)
		expect_stored(s, &ptrs[i], want, staged_lengths[i]);
}

/* The primary dies with values in slots, requested or not. Staged again at the next primary, each exists once. */
static void values_staged_on_a_lost_link_are_staged_again(void **state)
{
	static uint8_t want[NODE_SHORT], other[NODE_SHORT];
	struct stag_pool_ptr first, again;
	struct story *s = *state;
	struct pool_request rq;
	struct pool_answer answer;

	start_both(s);
	open_writer(s, &s->a);
	dice_fill(want, sizeof(want));
	first = insert_staged(s, want, sizeof(want));
	assert_int_equal(raw_stage(&s->raw, 3, 0, other, sizeof(other)), 0);
	s->count = (unsigned int)s->raw.sequence;
	kill_node(&s->a);
	raw_close(&s->raw);
	await(is_primary(&s->b));
	await(try_opening(s, &s->b, true) == 0);
	/* Retry the insert, as if its answer had been lost. */
	assert_int_equal(raw_stage(&s->raw, 3, 0, other, sizeof(other)), 0);
	rq = raw_staged(&s->raw, 3, sizeof(other));
	rq.acknowledged = 0;
	rq.sequence = s->raw.sequence;
	assert_int_equal(raw_request(&s->raw, &rq, &answer), 0);
	again = answer.ptr;
	assert_memory_equal(&again, &first, sizeof(first));
	expect_stored(s, &first, want, sizeof(want));
}

/*
 * A client that names more bytes than it wrote gets zeroes, not another client's bytes, and all nodes store the
 * same.
 */
static void slots_are_cleared_for_their_next_client(void **state)
{
	static uint8_t secret[NODE_SHORT], zeroes[NODE_SHORT];
	struct story *s = *state;
	struct pool_request rq;
	struct pool_answer answer;

	start_both(s);
	memset(secret, 's', sizeof(secret));
	for (unsigned int i = 0; i < STAGING_SLICES + 4; i++) {
		open_writer(s, &s->a);
		if (i % 2)
			assert_int_equal(raw_stage(&s->raw, 0, 0, "x", 1), 0);
		rq = raw_staged(&s->raw, 0, NODE_SHORT);
		assert_int_equal(raw_request(&s->raw, &rq, &answer), 0);
		zeroes[0] = i % 2 ? 'x' : 0;
		expect_stored(s, &answer.ptr, zeroes, NODE_SHORT);
		assert_int_equal(raw_stage(&s->raw, 1, 0, secret, NODE_SHORT), 0);
		await_slots(s);
		assert_int_equal(raw_stage(&s->raw, 0, 0, secret, NODE_SHORT), 0);
		raw_close(&s->raw);
		s->id[0]++;
	}
	await(are_same(&s->a, &s->b));
	assert_int_equal(query_node(&s->b).torn, 0);
}

/*
 * An acknowledged value stays in its slot until the standby has applied it, however soon the client writes
 * again.
 */
static void slot_opens_after_every_node_has_applied_it(void **state)
{
	static uint8_t want[20000];
	struct story *s = *state;
	unsigned int slot;
	struct pool_request rq;
	struct pool_answer answer;

	start_both(s);
	open_writer(s, &s->a);
	/* A fault shows when the standby is slower than the next value: it may take many. */
	for (unsigned int i = 0; i < 100 || (has_fault && i < 10000 && query_node(&s->b).torn == 0);
	     i++) {
		memset(want, (int)i, sizeof(want));
		if ((s->raw.open & 1) == 0)
			await_slots(s);
		slot = any_slot(s, sizeof(want));
		assert_int_equal(raw_stage(&s->raw, slot, 0, want, sizeof(want)), 0);
		rq = raw_staged(&s->raw, slot, sizeof(want));
		rq.op = STAG_POOL_PUT;
		rq.name = "one";
		rq.name_length = 3;
		assert_int_equal(raw_request(&s->raw, &rq, &answer), 0);
		assert_int_equal(answer.status, 0);
	}
	await(are_same(&s->a, &s->b));
	assert_int_equal(query_node(&s->b).torn, 0);
}

static uint64_t count_objects(struct story *s)
{
	struct pool_request rq = {.op = POOL_OP_NODES, .length = sizeof(struct node_status)};
	struct pool_answer answer;
	struct node_status status;

	assert_int_equal(raw_request(&s->raw, &rq, &answer), 0);
	assert_int_equal(answer.length, sizeof(status));
	memcpy(&status, answer.bytes, sizeof(status));
	return status.objects;
}

/* Expects that the request ends the connection of its client, and that no object was created. */
static void expect_disconnected(struct story *s, struct pool_request *rq, unsigned int objects)
{
	struct pool_answer answer;

	assert_true(raw_request(&s->raw, rq, &answer) < 0);
	raw_close(&s->raw);
	s->id[0]++;
	open_writer(s, &s->a);
	assert_int_equal(count_objects(s), objects);
}

static void slots_are_their_clients_alone(void **state)
{
	static uint8_t want[NODE_SHORT];
	struct story *s = *state;
	struct raw other = {0};
	struct pool_request rq;
	uint64_t id[2] = {1, 2};
	uint32_t key;

	start_both(s);
	open_writer(s, &s->a);
	/* A slot's key is valid on its own connection only. */
	assert_int_equal(raw_open(&other, (uint16_t)query_node(&s->a).port, "writer", WORD), 0);
	assert_int_equal(raw_attach(&other, id, false), 0);
	other.slot_rkey[0] = s->raw.slot_rkey[0];
	other.facts.staging_address = s->raw.facts.staging_address;
	raw_stage(&other, 0, 0, want, 100);
	rq = (struct pool_request){.op = POOL_OP_NODES, .length = 4096};
	assert_true(raw_request(&other, &rq, &(struct pool_answer){0}) < 0);
	raw_close(&other);
	/* The request does not invalidate the slot's key, so the slot is still open to writes. */
	rq = raw_staged(&s->raw, 2, 100);
	s->raw.ends = 0;
	expect_disconnected(s, &rq, 0);
	/* The request names another slot than the one whose key it invalidates. */
	rq = raw_staged(&s->raw, 2, 100);
	rq.source_address += NODE_SHORT;
	expect_disconnected(s, &rq, 0);
	/* The request names more bytes than the slot has. */
	rq = raw_staged(&s->raw, 2, NODE_SHORT + 1);
	expect_disconnected(s, &rq, 0);
	/* The request names an address outside of the slots. */
	rq = raw_staged(&s->raw, 2, 100);
	rq.source_address = UINT64_MAX;
	expect_disconnected(s, &rq, 0);
	/* The client writes with a key that its request has invalidated. */
	key = s->raw.slot_rkey[0];
	insert_staged(s, want, sizeof(want));
	s->raw.slot_rkey[0] = key;
	raw_stage(&s->raw, 0, 0, want, 100);
	rq = (struct pool_request){.op = POOL_OP_NODES, .length = 4096};
	expect_disconnected(s, &rq, 1);
	insert_staged(s, want, sizeof(want));
	await(are_same(&s->a, &s->b) && query_node(&s->a).standbys == 1);
}

/* Takes the roll's lock and returns true if two nodes are in sync; the roll cannot change then. */
static bool hold_roll_of_two(const struct story *s, int *lock, struct roll *roll)
{
	char path[128], text[ROLL_MAX_TEXT + 1];
	const char *why;
	ssize_t len;
	int fd;

	*lock = hold_roll(s);
	snprintf(path, sizeof(path), "%s/roll", s->dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	len = read(fd, text, sizeof(text));
	close(fd);
	if (len > 0 && roll_from_text(text, (size_t)len, roll, NULL, &why) == 0 &&
	    roll->in_sync == (ROLL_BIT(0) | ROLL_BIT(1)))
		return true;
	close(*lock);
	return false;
}

/*
 * While the roll is locked, a handover can be neither accepted nor revoked. A stopping primary does not wait
 * for that; its successor is promoted once the roll can be changed.
 */
static void a_node_stops_even_if_the_roll_is_locked(void **state)
{
	struct story *s = *state;
	struct node *primary, *standby;
	char line[512] = "";
	struct roll roll;
	int lock;

	setenv("SHORT", "1", 1);
	start_both(s);
	unsetenv("SHORT");
	await(hold_roll_of_two(s, &lock, &roll));
	primary = strcmp(roll.members[roll.primary].name, "a") == 0 ? &s->a : &s->b;
	standby = primary == &s->a ? &s->b : &s->a;
	close(primary->in);
	while (!strstr(line, "ends without a handover: "))
		assert_non_null(fgets(line, sizeof(line), primary->out));
	waitpid(primary->pid, NULL, 0);
	fclose(primary->out);
	primary->pid = 0;
	close(lock);
	await(is_primary(standby));
}

/*
 * A node whose `promote` is shorter than the primary's lease could be promoted while the primary still serves:
 * it is refused.
 */
static void node_with_unsafe_times_does_not_follow(void **state)
{
	struct story *s = *state;

	assert_int_equal(start_node(s, &s->a, "create"), 0);
	await(is_primary(&s->a));
	setenv("SHORT", "1", 1);
	assert_int_equal(start_node(s, &s->c, "join"), 0);
	unsetenv("SHORT");
	await(query_node(&s->c).role == STAG_POOL_ROLE_REFUSED);
	assert_int_equal(start_node(s, &s->b, "join"), 0);
	await(query_node(&s->b).role == STAG_POOL_ROLE_STANDBY);
	assert_int_equal(try_opening(s, &s->a, false), 0);
	insert_some(s, 5);
	assert_int_equal(query_node(&s->a).epoch, 1);
	expect_all(s);
}

static void on_abort(int signal)
{
	(void)signal;
	_exit(0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(pointers_outlive_the_primary, set_up, tear_down),
		cmocka_unit_test_setup_teardown(standbys_are_promoted_one_after_the_other, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_standby_is_not_waited_for_long, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_primary_that_was_stopped_is_refused, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_primary_hands_over, set_up, tear_down),
		cmocka_unit_test_setup_teardown(switchovers_choose_the_same_successor, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(primary_measures_latencies, set_up, tear_down),
		cmocka_unit_test_setup_teardown(clients_must_prove_their_secret, set_up, tear_down),
		cmocka_unit_test_setup_teardown(values_are_pulled, set_up, tear_down),
		cmocka_unit_test_setup_teardown(reads_without_a_fresh_answer_are_not_delivered,
						set_up_plain, tear_down),
		cmocka_unit_test_setup_teardown(primary_without_a_lease_does_not_answer_fresh,
						set_up_plain, tear_down),
		cmocka_unit_test_setup_teardown(reads_from_a_stopped_primary_are_not_delivered,
						set_up_plain, tear_down),
		cmocka_unit_test_setup_teardown(staged_values_outlive_the_primary, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(
			staged_values_of_who_may_not_read_outlive_the_primary, set_up, tear_down),
		cmocka_unit_test_setup_teardown(values_staged_on_a_lost_link_are_staged_again,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(slots_are_cleared_for_their_next_client, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(slot_opens_after_every_node_has_applied_it, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(slots_are_their_clients_alone, set_up, tear_down),
		cmocka_unit_test_setup_teardown(node_with_unsafe_times_does_not_follow, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_node_stops_even_if_the_roll_is_locked, set_up,
						tear_down),
	};

	if (argc >= 6 && strcmp(argv[1], "node") == 0)
		return be_node(argc, argv);
	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 77;
	signal(SIGPIPE, SIG_IGN);
	dice_start();
	has_fault = argc > 2;
	if (has_fault)
		signal(SIGABRT, on_abort);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL) != has_fault;
}
