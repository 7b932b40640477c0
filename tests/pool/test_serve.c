// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_serve.c - clients that want too much, or take and deliver nothing, beside an honest one that must not notice. The
 * node is in this process; the greedy clients are on bare verbs, behind a valve.
 */
#include "raw.h"
#include "valve.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/audit.h"
#include "base/clock.h"
#include "stag/pool.h"

#define SECRET	   "a secret of the nodes, long enough"
#define WORD	   "a word that the clients know"
#define PATIENCE_S 60
#define SLOTS	   64u /* for clients that write; one of them is for administrators */
#define RD	   STAG_POOL_RIGHT_READ
#define WR	   STAG_POOL_RIGHT_WRITE

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

/* ---- the node ------------------------------------------------------------------------------ */

struct story {
	char dir[64];
	struct stag_pool_node *node;
	uint16_t port;
	struct stag_pool *honest;
	uint32_t user_clients; /* connections of a user; 0: the default */
	char line
		[256]; /* the first line of the node's log about a client that it has disconnected */
	char audit[256]; /* the first record of the audit log about one */
	atomic_uint lines, audited;
};

static const struct stag_pool_user users[] = {
	{.name = "writer", .secret = WORD, .rights = RD | WR},
	{.name = "greedy", .secret = WORD, .rights = RD | WR},
	{.name = "reader", .secret = WORD, .rights = RD},
	{.name = "admin", .secret = WORD, .rights = RD | WR | STAG_POOL_RIGHT_ADMIN}};

/* Called by the node's thread only. */
static void on_log_line(void *arg, int level, const char *line)
{
	struct story *s = arg;

	if (!strstr(line, "is disconnected"))
		return;
	if (s->lines == 0)
		snprintf(s->line, sizeof(s->line), "%s", line);
	s->lines++;
}

/* Called by the node's thread only. */
static void on_audit(const struct stag_audit_record *r, void *arg)
{
	struct story *s = arg;

	if (strcmp(r->action, "evict") != 0)
		return;
	if (s->audited == 0 && r->outcome == STAG_AUDIT_REFUSED)
		snprintf(s->audit, sizeof(s->audit), "%s %s %s %s %s", r->user, r->from, r->action,
			 r->object, r->reason);
	s->audited++;
}

static struct stag_pool_node_info query(const struct story *s)
{
	struct stag_pool_node_info info = {0};

	assert_int_equal(stag_pool_node_query(s->node, &info, sizeof(info)), 0);
	return info;
}

static void start(struct story *s, uint32_t client_timeout_ms)
{
	char roll[80], state[80], where[32];
	struct stag_pool_node_attr attr = {.pool = "test",
					   .node = "a",
					   .roll = roll,
					   .state = state,
					   .secret = SECRET,
					   .address = "127.0.0.1",
					   .flags = STAG_POOL_CREATE | STAG_POOL_ANY_PORT,
					   .size = 32u << 20,
					   .clients = SLOTS,
					   .users = users,
					   .num_users = sizeof(users) / sizeof(users[0]),
					   .log = on_log_line,
					   .log_arg = s,
					   .user_clients = s->user_clients,
					   .client_timeout_ms = client_timeout_ms};
	static struct audit_sink sink;
	struct stag_pool_attr as = {.user = "writer", .secret = WORD, .timeout_ms = 60000};

	snprintf(roll, sizeof(roll), "file:%s/roll", s->dir);
	snprintf(state, sizeof(state), "%s/a", s->dir);
	sink = (struct audit_sink){on_audit, s};
	audit_set_sink(&sink);
	s->node = stag_pool_node_start(&attr);
	assert_non_null(s->node);
	await(query(s).role == STAG_POOL_ROLE_PRIMARY);
	s->port = query(s).port;
	snprintf(where, sizeof(where), "127.0.0.1:%u", s->port);
	s->honest = stag_pool_open(where, &as);
	assert_non_null(s->honest);
}

static int set_up(void **state)
{
	struct story *s = calloc(1, sizeof(*s));

	strcpy(s->dir, "/tmp/stag-serve-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	*state = s;
	return 0;
}

static int tear_down(void **state)
{
	struct story *s = *state;
	char command[100];
	int rc;

	stag_pool_close(s->honest);
	stag_pool_node_stop(s->node);
	audit_set_sink(NULL);
	snprintf(command, sizeof(command), "rm -rf %s", s->dir);
	rc = system(command);
	free(s);
	return rc;
}

/* ---- the honest client ------------------------------------------------------------------------ */

#define ROUNDS 20

/*
 * The client changes and reads values, one after the other. All must be answered; each within a second, except
 * that the machine may stall a few.
 */
static void expect_served(struct story *s, size_t length)
{
	uint8_t *value = malloc(length), *got = malloc(length);
	struct stag_pool_info info = {0};
	unsigned int late = 0;

	for (unsigned int i = 0; i < ROUNDS; i++) {
		uint64_t began = clock_ns();
		size_t room = length;

		memset(value, (int)(i + 1), length);
		assert_int_equal(stag_pool_put(s->honest, "honest", value, length, 0, NULL), 0);
		assert_int_equal(stag_pool_get(s->honest, "honest", got, &room, NULL), 0);
		assert_int_equal(stag_pool_query(s->honest, &info, sizeof(info)), 0);
		assert_int_equal(room, length);
		assert_memory_equal(got, value, length);
		late += clock_ns() - began > NS_PER_S;
	}
	assert_true(late < ROUNDS / 2);
	assert_int_equal(info.failovers, 0);
	free(value);
	free(got);
}

/* ---- greedy ones --------------------------------------------------------------------------------- */

struct greedy {
	struct valve valve;
	struct raw raw;
};

static void start_greedy(struct story *s, struct greedy *g, const char *user)
{
	static uint64_t next_id;
	const uint64_t id[2] = {++next_id, 77};

	valve_open(&g->valve, s->port);
	assert_int_equal(raw_open(&g->raw, g->valve.port, user, WORD), 0);
	assert_int_equal(raw_attach(&g->raw, id, false), 0);
}

static void end_greedy(struct greedy *g)
{
	raw_close(&g->raw);
	valve_close(&g->valve);
}

/* Sends `count` copies of a request in one message, and this message several times; stops when it is disconnected. */
static void flood(struct greedy *g, struct pool_request *rq, unsigned int count,
		  unsigned int messages)
{
	while (messages-- > 0)
		if (raw_send_many(&g->raw, rq, count) != 0)
			return;
}

/* The node has disconnected this many clients, and has said whom and why, in the log and in the audit log. */
static void expect_evicted(struct story *s, unsigned int count, const char *user, const char *cause)
{
	char begin[80], end[160];

	await(s->lines == count && s->audited == count);
	snprintf(begin, sizeof(begin), "client %s at 127.0.0.1:", user);
	snprintf(end, sizeof(end), " is disconnected: %s", cause);
	assert_non_null(strstr(s->line, begin));
	assert_non_null(strstr(s->line, end));
	snprintf(begin, sizeof(begin), "%s 127.0.0.1:", user);
	snprintf(end, sizeof(end), " evict pool test %s", cause);
	assert_memory_equal(s->audit, begin, strlen(begin));
	assert_non_null(strstr(s->audit, end));
	await(query(s).clients == 1);
	assert_int_equal(query(s).evicted, count);
}

/* ---- tests ----------------------------------------------------------------------------------------- */

/* 60 messages of 200 requests each: much more than a client may have unanswered. */
static void flood_of_requests_ends_only_its_client(void **state)
{
	struct story *s = *state;
	struct pool_request rq = {.op = POOL_OP_NODES, .length = NODE_MESSAGE};
	struct greedy g;

	start(s, 0);
	start_greedy(s, &g, "reader");
	g.valve.shut[VALVE_TO_CLIENT] = true;
	flood(&g, &rq, 200, 60);
	expect_served(s, 100);
	expect_evicted(s, 1, "reader", "200 requests unanswered, and 64 are allowed");
	end_greedy(&g);
}

/* Requests long answers until the node cannot send more, or has had enough of it. */
static void fill_up(struct story *s, struct greedy *g)
{
	struct pool_request rq = {
		.op = STAG_POOL_GET, .name = "long", .name_length = 4, .length = NODE_MESSAGE};

	g->valve.shut[VALVE_TO_CLIENT] = true;
	while (query(s).paused == 0 && query(s).evicted == 0) {
		uint64_t reads = query(s).reads;

		flood(g, &rq, 8, 1);
		await(query(s).paused != 0 || query(s).evicted != 0 || query(s).reads >= reads + 8);
	}
}

/* The answers arrive when the client takes them again. */
static void client_that_takes_no_answers_is_paused(void **state)
{
	struct story *s = *state;
	struct pool_request rq = {.op = POOL_OP_NODES, .length = NODE_MESSAGE};
	uint8_t value[15000] = {1};
	struct greedy g;

	start(s, 0);
	assert_int_equal(stag_pool_put(s->honest, "long", value, sizeof(value), 0, NULL), 0);
	start_greedy(s, &g, "reader");
	fill_up(s, &g);
	expect_served(s, 100);
	assert_int_equal(query(s).paused, 1);
	assert_int_equal(query(s).evicted, 0);

	g.valve.shut[VALVE_TO_CLIENT] = false;
	assert_int_equal(raw_send(&g.raw, &rq), 0);
	assert_int_equal(raw_await_answer(&g.raw, rq.sequence), 0);
	await(query(s).paused == 0);
	end_greedy(&g);
}

static void client_that_never_takes_answers_is_evicted(void **state)
{
	struct story *s = *state;
	uint8_t value[15000] = {1};
	struct greedy g;

	start(s, 1000);
	assert_int_equal(stag_pool_put(s->honest, "long", value, sizeof(value), 0, NULL), 0);
	start_greedy(s, &g, "reader");
	fill_up(s, &g);
	expect_served(s, 100);
	expect_evicted(s, 1, "reader", "64 messages of answers are not taken, for ");
	assert_int_equal(query(s).paused, 0);
	expect_served(s, 100);
	end_greedy(&g);
}

#define STALLERS 3

/* Requests changes whose values the node has to fetch, and does not deliver them. */
static void stall(struct greedy *g)
{
	struct pool_request rq = {.op = STAG_POOL_INSERT,
				  .flags = POOL_HAS_VALUE,
				  .source = POOL_SOURCE_PULL,
				  .length = 200000,
				  .source_address = (uintptr_t)g->raw.memory,
				  .key = g->raw.memory_mr->rkey};

	for (unsigned int i = 0; i < 16; i++) {
		rq.sequence = 0;
		assert_int_equal(raw_send(&g->raw, &rq), 0);
		raw_await_sent(&g->raw);
	}
}

/* More clients than there are shared slots for values hold what they get; the honest one's values are fetched all the same. */
static void clients_that_deliver_no_values_keep_no_memory(void **state)
{
	struct story *s = *state;
	struct greedy g[STALLERS];

	start(s, 6000);
	for (unsigned int i = 0; i < STALLERS; i++) {
		start_greedy(s, &g[i], "greedy");
		g[i].valve.shut[VALVE_TO_CLIENT] = true; /* the node's RDMA Reads do not arrive */
		stall(&g[i]);
	}
	expect_served(s, 2u << 20);
	expect_evicted(s, STALLERS, "greedy", "a value of 200000 bytes is not delivered, for ");
	expect_served(s, 2u << 20);
	for (unsigned int i = 0; i < STALLERS; i++)
		end_greedy(&g[i]);
}

/* ---- slots ------------------------------------------------------------------------------------------ */

static int insert(struct raw *r, uint64_t sequence, struct stag_pool_ptr *ptr)
{
	struct pool_request rq = {.op = STAG_POOL_INSERT,
				  .flags = POOL_HAS_VALUE,
				  .length = 1,
				  .value = "x",
				  .sequence = sequence,
				  .acknowledged = sequence - 1};
	struct pool_answer answer;
	int rc = raw_request(r, &rq, &answer);

	if (rc == 0 && ptr)
		*ptr = answer.ptr;
	return rc == 0 ? (int)answer.status : rc;
}

static void open_raw(const struct story *s, struct raw *r, const char *user, const uint64_t id[2],
		     bool again)
{
	assert_int_equal(raw_open(r, s->port, user, WORD), 0);
	assert_int_equal(raw_attach(r, id, again), 0);
}

/* Clients of one user that each make a change, and die without a word: more than there are slots. */
static void die_again_and_again(const struct story *s)
{
	for (uint64_t i = 1; i <= 2 * SLOTS; i++) {
		const uint64_t id[2] = {i, 1000};
		struct raw r;

		open_raw(s, &r, "greedy", id, false);
		assert_int_equal(insert(&r, 1, NULL), 0);
		raw_close(&r);
	}
}

static void dead_clients_lock_nobody_out(void **state)
{
	struct story *s = *state;

	start(s, 0);
	die_again_and_again(s);
	expect_served(s, 100);
	assert_true(query(s).slots < SLOTS);
	await(query(s).reclaimed >= SLOTS); /* the node shows its counters from time to time */
}

/* A client that only looks, or reads, needs no slot, whatever its rights. */
static void slot_is_for_changes_only(void **state)
{
	struct story *s = *state;
	struct stag_pool_info info = {0};
	size_t room = 0;

	start(s, 0);
	assert_int_equal(stag_pool_get(s->honest, "none", NULL, &room, NULL), ENOENT);
	assert_int_equal(stag_pool_query(s->honest, &info, sizeof(info)), 0);
	assert_int_equal(info.slots, 0);
	assert_int_equal(info.max_slots, SLOTS);
	assert_int_equal(info.clients, 1);
	expect_served(s, 100);
	assert_int_equal(stag_pool_query(s->honest, &info, sizeof(info)), 0);
	assert_int_equal(info.slots, 1);
}

/* Others that die take the slot of no client that may still retry. */
static void retry_finds_its_outcome_beside_dead_clients(void **state)
{
	struct story *s = *state;
	const uint64_t id[2] = {7, 7};
	struct stag_pool_ptr first, second;
	struct raw r;

	start(s, 0);
	open_raw(s, &r, "writer", id, false);
	assert_int_equal(insert(&r, 1, &first), 0);
	raw_close(&r);
	die_again_and_again(s);
	open_raw(s, &r, "writer", id, true);
	assert_int_equal(insert(&r, 1, &second), 0);
	assert_memory_equal(&first, &second, sizeof(first));
	await(query(s).objects == 2 * SLOTS + 1);
	raw_close(&r);
}

/* Its user has most of the slots, and it was idle for the longest time. */
static void client_that_lost_its_slot_repeats_nothing(void **state)
{
	struct story *s = *state;
	const uint64_t id[2] = {8, 8};
	struct raw r, again;

	start(s, 0);
	open_raw(s, &r, "greedy", id, false);
	assert_int_equal(insert(&r, 1, NULL), 0);
	die_again_and_again(s);
	assert_int_equal(raw_open(&again, s->port, "greedy", WORD), 0);
	assert_int_equal(raw_attach(&again, id, true), ESTALE);
	raw_close(&again);
	assert_int_equal(insert(&r, 1, NULL), ESTALE);
	assert_int_equal(insert(&r, 2, NULL), 0);
	assert_int_equal(insert(&r, 2, NULL), 0);
	await(query(s).objects == 2 * SLOTS + 2);
	raw_close(&r);
}

/* Administrators use the slots that are left for them; then another client needs one. */
static void administrators_lock_nobody_out(void **state)
{
	struct story *s = *state;
	const uint64_t ids[2][2] = {{9, 9}, {10, 10}};
	struct raw admin, r;

	start(s, 0);
	die_again_and_again(s);
	open_raw(s, &admin, "admin", ids[0], false);
	assert_int_equal(insert(&admin, 1, NULL), 0);
	await(query(s).slots == SLOTS);
	open_raw(s, &r, "writer", ids[1], false);
	assert_int_equal(insert(&r, 1, NULL), 0);
	raw_close(&r);
	raw_close(&admin);
}

/* Clients of one user hold all slots for other than administrators, and a request of each is in flight: its value does not come. */
static void slots_in_use_lock_nobody_out(void **state)
{
	struct story *s = *state;
	struct greedy *g = calloc(SLOTS, sizeof(*g));

	start(s, 0);
	for (unsigned int i = 0; i < SLOTS - 1; i++) {
		start_greedy(s, &g[i], "greedy");
		g[i].valve.shut[VALVE_TO_CLIENT] = true;
		stall(&g[i]);
	}
	await(query(s).slots == SLOTS - 1);
	expect_served(s, 100);
	/* None, if the request of a client came late: then it has lost its slot, and not its connection. */
	assert_int_equal(query(s).reclaimed, 1);
	assert_true(query(s).evicted <= 1);
	if (query(s).evicted) {
		assert_non_null(strstr(s->line, "client greedy at 127.0.0.1:"));
		assert_non_null(
			strstr(s->line, "its user has 63 of 64 slots, and another user needs one"));
	}
	for (unsigned int i = 0; i < SLOTS - 1; i++)
		end_greedy(&g[i]);
	free(g);
}

#define CONNECTIONS 4

static void one_user_has_a_limit_of_connections(void **state)
{
	struct story *s = *state;
	struct raw r[CONNECTIONS], more;

	s->user_clients = CONNECTIONS;
	start(s, 0);
	for (unsigned int i = 0; i < CONNECTIONS; i++)
		assert_int_equal(raw_open(&r[i], s->port, "greedy", WORD), 0);
	assert_int_equal(raw_open(&more, s->port, "greedy", WORD), -EAGAIN);
	assert_int_equal(raw_open(&more, s->port, "reader", WORD), 0);
	raw_close(&more);
	expect_served(s, 100);
	assert_int_equal(stag_pool_node_set_users(s->node, users, sizeof(users) / sizeof(users[0])),
			 0);
	assert_int_equal(raw_open(&more, s->port, "greedy", WORD), -EAGAIN);
	raw_close(&r[0]);
	await(raw_open(&r[0], s->port, "greedy", WORD) == 0);
	for (unsigned int i = 0; i < CONNECTIONS; i++)
		raw_close(&r[i]);
}

/* A client that claims a slot which it does not have gets none, and nobody loses one. */
static void unknown_client_takes_no_slot(void **state)
{
	struct story *s = *state;
	const uint64_t id[2] = {11, 11};
	struct stag_pool_info before = {0}, info = {0};
	struct raw r;

	start(s, 0);
	die_again_and_again(s);
	assert_int_equal(stag_pool_query(s->honest, &before, sizeof(before)), 0);
	assert_int_equal(raw_open(&r, s->port, "writer", WORD), 0);
	assert_int_equal(raw_attach(&r, id, true), ESTALE);
	assert_int_equal(stag_pool_query(s->honest, &info, sizeof(info)), 0);
	assert_int_equal(info.slots, SLOTS - 1);
	assert_int_equal(info.reclaimed, before.reclaimed);
	raw_close(&r);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(flood_of_requests_ends_only_its_client, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(client_that_takes_no_answers_is_paused, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(client_that_never_takes_answers_is_evicted, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(clients_that_deliver_no_values_keep_no_memory,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(dead_clients_lock_nobody_out, set_up, tear_down),
		cmocka_unit_test_setup_teardown(slot_is_for_changes_only, set_up, tear_down),
		cmocka_unit_test_setup_teardown(retry_finds_its_outcome_beside_dead_clients, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(client_that_lost_its_slot_repeats_nothing, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(administrators_lock_nobody_out, set_up, tear_down),
		cmocka_unit_test_setup_teardown(slots_in_use_lock_nobody_out, set_up, tear_down),
		cmocka_unit_test_setup_teardown(one_user_has_a_limit_of_connections, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(unknown_client_takes_no_slot, set_up, tear_down),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
