// SPDX-License-Identifier: BSD-2-Clause
/*
 * test_rights.c - what a user's rights let it do: a node in this process, and clients on bare verbs, which try what
 * the library would not.
 *
 * `test_pool_rights TEST caught` is for a build with a deliberate fault: it succeeds if that test fails.
 */
#include "raw.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/audit.h"

#define SECRET	   "a secret of the nodes, long enough"
#define WORD	   "a word that the client knows"
#define SIZE	   (16ull << 20)
#define PATIENCE_S 60

#define RD    STAG_POOL_RIGHT_READ
#define WR    STAG_POOL_RIGHT_WRITE
#define ADMIN STAG_POOL_RIGHT_ADMIN

#define USER(n, r)                                                                                 \
	{                                                                                          \
		.name = (n), .secret = WORD, .rights = (r)                                         \
	}
#define LIMITED(n, r)                                                                              \
	{                                                                                          \
		.name = (n), .secret = WORD, .rights = (r), .num_prefixes = 2, .prefixes = own     \
	}

static const char *const own[] = {"app/", "tmp/"};
static const struct stag_pool_user users[] = {
	USER("both", RD | WR),
	USER("reader", RD),
	USER("writer", WR),
	USER("admin", ADMIN),
	USER("nobody", 0),
	LIMITED("app", RD | WR),
	/* one for each combination of rights */
	USER("r0", 0),
	USER("r1", 1),
	USER("r2", 2),
	USER("r3", 3),
	USER("r4", 4),
	USER("r5", 5),
	USER("r6", 6),
	USER("r7", 7),
};

struct story {
	char dir[64];
	struct stag_pool_node *node;
	uint16_t port;
	struct raw honest; /* user "both" */
};

/* ---- the node and its clients --------------------------------------------------------------- */

static bool is_primary(struct story *s)
{
	struct stag_pool_node_info info = {0};

	assert_int_equal(stag_pool_node_query(s->node, &info, sizeof(info)), 0);
	s->port = info.port;
	return info.role == STAG_POOL_ROLE_PRIMARY;
}

static void open_client(struct story *s, struct raw *r, const char *user)
{
	static uint64_t last = 100;
	const uint64_t id[2] = {++last, 7};
	time_t until = time(NULL) + PATIENCE_S;
	int rc;

	while ((rc = raw_open(r, s->port, user, WORD)) == -EAGAIN && time(NULL) < until)
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	assert_int_equal(rc, 0);
	assert_int_equal(raw_attach(r, id, false), 0);
}

static int set_up(void **state)
{
	struct story *s = calloc(1, sizeof(*s));
	time_t until = time(NULL) + PATIENCE_S;
	char roll[128], states[128];
	struct stag_pool_node_attr attr = {.pool = "test",
					   .node = "a",
					   .roll = roll,
					   .state = states,
					   .secret = SECRET,
					   .address = "127.0.0.1",
					   .flags = STAG_POOL_CREATE | STAG_POOL_ANY_PORT,
					   .size = SIZE,
					   .memory = POOL_DEFAULT_ADDRESS,
					   .users = users,
					   .num_users = sizeof(users) / sizeof(users[0])};

	strcpy(s->dir, "/dev/shm/stag-rights-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	snprintf(roll, sizeof(roll), "file:%s/roll", s->dir);
	snprintf(states, sizeof(states), "%s/a", s->dir);
	s->node = stag_pool_node_start(&attr);
	assert_non_null(s->node);
	while (!is_primary(s) && time(NULL) < until)
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	open_client(s, &s->honest, "both");
	*state = s;
	return 0;
}

static int tear_down(void **state)
{
	struct story *s = *state;
	char command[128];
	int rc;

	raw_close(&s->honest);
	stag_pool_node_stop(s->node);
	snprintf(command, sizeof(command), "rm -rf %s", s->dir);
	rc = system(command);
	free(s);
	return rc;
}

/* Returns the answer's status. */
static int insert(struct raw *r, const char *value, struct stag_pool_ptr *ptr)
{
	struct pool_request rq = {.op = STAG_POOL_INSERT,
				  .flags = POOL_HAS_VALUE,
				  .length = (uint32_t)strlen(value),
				  .value = value,
				  .acknowledged = r->sequence};
	struct pool_answer answer;

	assert_int_equal(raw_request(r, &rq, &answer), 0);
	*ptr = answer.ptr;
	return (int)answer.status;
}

static void expect_reads(struct raw *r, const struct stag_pool_ptr *ptr, const char *value)
{
	char got[256];
	size_t length = sizeof(got);

	assert_int_equal(raw_read(r, ptr, got, &length), 0);
	assert_int_equal(length, strlen(value));
	assert_memory_equal(got, value, length);
}

/* ---- one-sided reads ------------------------------------------------------------------------- */

/* Reads the region with a key that another user has told. */
static void try_key_of(struct story *s, const char *user, const struct stag_pool_ptr *ptr)
{
	struct raw thief;

	open_client(s, &thief, user);
	thief.facts.rkey = s->honest.facts.rkey;
	assert_int_equal(raw_fetch(&thief, ptr->address, 64), -ENOTCONN);
	raw_close(&thief);
}

static void a_key_does_not_read_for_who_may_not_read(void **state)
{
	static const char *const thieves[] = {"writer", "admin", "nobody", "app"};
	struct story *s = *state;
	struct stag_pool_ptr ptr;
	struct raw reader;

	assert_int_equal(insert(&s->honest, "not for everybody", &ptr), 0);
	for (unsigned int i = 0; i < sizeof(thieves) / sizeof(thieves[0]); i++) {
		try_key_of(s, thieves[i], &ptr);
		expect_reads(&s->honest, &ptr, "not for everybody");
	}
	open_client(s, &reader, "reader");
	expect_reads(&reader, &ptr, "not for everybody");
	raw_close(&reader);
}

static void who_may_not_read_is_told_no_key(void **state)
{
	struct story *s = *state;
	struct raw writer;

	open_client(s, &writer, "writer");
	assert_int_not_equal(s->honest.facts.rkey, 0);
	assert_int_equal(writer.facts.rkey, 0);
	assert_true(s->honest.facts.name_key[0] != 0 && s->honest.facts.name_key[1] != 0);
	assert_true(writer.facts.name_key[0] == 0 && writer.facts.name_key[1] == 0);
	raw_close(&writer);
	open_client(s, &writer, "app");
	assert_int_equal(writer.facts.rkey, 0);
	assert_true(writer.facts.name_key[0] == 0 && writer.facts.name_key[1] == 0);
	assert_int_equal(writer.facts.flags & NODE_LIMITED, NODE_LIMITED);
	raw_close(&writer);
}

/* A value reaches the pool in each way from a user that may only write. */
static void who_may_not_read_writes_all_the_same(void **state)
{
	static const char value[] = "written, never read";
	struct story *s = *state;
	struct stag_pool_ptr ptr;
	struct pool_answer answer;
	struct pool_request rq;
	struct raw writer;

	open_client(s, &writer, "writer");
	assert_int_equal(insert(&writer, value, &ptr), 0);
	expect_reads(&s->honest, &ptr, value);

	assert_int_not_equal(writer.open, 0);
	assert_int_equal(raw_stage(&writer, 0, 0, value, sizeof(value) - 1), 0);
	rq = raw_staged(&writer, 0, sizeof(value) - 1);
	assert_int_equal(raw_request(&writer, &rq, &answer), 0);
	assert_int_equal(answer.status, 0);
	expect_reads(&s->honest, &answer.ptr, value);

	memcpy(writer.memory, value, sizeof(value));
	rq = (struct pool_request){.op = STAG_POOL_INSERT,
				   .flags = POOL_HAS_VALUE,
				   .source = POOL_SOURCE_PULL,
				   .length = sizeof(value) - 1,
				   .source_address = (uintptr_t)writer.memory,
				   .key = writer.memory_mr->rkey,
				   .acknowledged = writer.sequence};
	assert_int_equal(raw_request(&writer, &rq, &answer), 0);
	assert_int_equal(answer.status, 0);
	expect_reads(&s->honest, &answer.ptr, value);
	raw_close(&writer);
}

/* ---- each operation -------------------------------------------------------------------------- */

/* Stores a value under a name. Returns the answer's status. */
static int put(struct raw *r, const char *name, const char *value, struct stag_pool_ptr *ptr)
{
	struct pool_request rq = {.op = STAG_POOL_PUT,
				  .flags = POOL_HAS_VALUE,
				  .name = name,
				  .name_length = (uint16_t)strlen(name),
				  .length = (uint32_t)strlen(value),
				  .value = value,
				  .acknowledged = r->sequence};
	struct pool_answer answer;

	assert_int_equal(raw_request(r, &rq, &answer), 0);
	if (ptr)
		*ptr = answer.ptr;
	return (int)answer.status;
}

/* Makes a request with the operands that the operation takes. */
static struct pool_request make_request(const struct raw *r, uint8_t op, const char *name,
					const struct stag_pool_ptr *ptr)
{
	struct pool_request rq = {.op = op, .acknowledged = r->sequence};

	if (pool_op_takes(op, POOL_TAKES_VALUE)) {
		rq.flags |= POOL_HAS_VALUE;
		rq.value = "changed";
		rq.length = 7;
	}
	if (pool_op_takes(op, POOL_TAKES_PTR)) {
		rq.flags |= POOL_HAS_PTR;
		rq.ptr = *ptr;
	}
	if (pool_op_takes(op, POOL_TAKES_NAME) || pool_op_takes(op, POOL_TAKES_ANY_NAME)) {
		rq.name = name;
		rq.name_length = (uint16_t)strlen(name);
	}
	if (pool_op_takes(op, POOL_TAKES_ROOM))
		rq.length = 4096;
	return rq;
}

/* Returns the status of the answer, which is left in *answer. */
static int request(struct raw *r, uint8_t op, const char *name, const struct stag_pool_ptr *ptr,
		   struct pool_answer *answer)
{
	struct pool_request rq = make_request(r, op, name, ptr);

	assert_int_equal(raw_request(r, &rq, answer), 0);
	return (int)answer->status;
}

/* What each operation needs, said a second time. */
static const struct {
	uint32_t rights;
	bool told;
} needs[POOL_OP_MAX] = {
	[STAG_POOL_INSERT] = {WR, true},  [STAG_POOL_UPDATE] = {WR, true},
	[STAG_POOL_READ] = {RD, true},	  [STAG_POOL_DELETE] = {WR, true},
	[STAG_POOL_PUT] = {WR, true},	  [STAG_POOL_GET] = {RD, true},
	[STAG_POOL_REMOVE] = {WR, true},  [POOL_OP_ATTACH] = {0, true},
	[POOL_OP_EVENTS] = {ADMIN, true}, [POOL_OP_DETACH] = {WR, true},
	[POOL_OP_LIST] = {RD, true},	  [POOL_OP_NODES] = {0, true},
	[POOL_OP_SWITCH] = {ADMIN, true}, [POOL_OP_FORGET] = {ADMIN, true},
	[POOL_OP_FRESH] = {RD, true},	  [POOL_OP_ENROL] = {WR, true},
};

static void every_operation_is_in_the_table(void **state)
{
	for (unsigned int op = 0; op < POOL_OP_MAX; op++) {
		const struct pool_operation *o = pool_operation((uint8_t)op);

		assert_int_equal(o != NULL, needs[op].told);
		if (o)
			assert_int_equal(o->rights, needs[op].rights);
	}
}

/* Requests every operation on values that the honest client has just made. */
static void try_all(struct story *s, struct raw *r, uint32_t rights)
{
	struct stag_pool_ptr ptr;
	struct pool_answer answer;

	for (unsigned int op = 0; op < POOL_OP_MAX; op++) {
		bool refused = (needs[op].rights & ~rights) != 0;
		int status;

		if (!needs[op].told || op == POOL_OP_ATTACH || op == POOL_OP_DETACH)
			continue;
		assert_int_equal(put(&s->honest, "target", "as it was", &ptr), 0);
		status = request(r, (uint8_t)op, "target", &ptr, &answer);
		if ((status == EACCES) != refused)
			fail_msg("rights %u: %s: status %d", rights, pool_op_name((uint8_t)op),
				 status);
		if (!refused)
			continue;
		assert_int_equal(answer.length, 0);
		expect_reads(&s->honest, &ptr, "as it was");
	}
	assert_int_equal(request(r, POOL_OP_DETACH, "", &ptr, &answer) == EACCES, !(rights & WR));
}

static void an_operation_is_refused_without_its_rights(void **state)
{
	struct story *s = *state;
	char user[] = "r0";
	struct raw r;

	for (uint32_t rights = 0; rights < 8; rights++) {
		user[1] = (char)('0' + rights);
		open_client(s, &r, user);
		assert_int_equal(r.facts.rights, rights);
		try_all(s, &r, rights);
		raw_close(&r);
	}
}

/* ---- prefixes -------------------------------------------------------------------------------- */

struct limits {
	struct raw app;			   /* user "app" */
	struct stag_pool_ptr in, out, new; /* values inside, outside, and without a name */
};

static void start_limits(struct story *s, struct limits *l)
{
	open_client(s, &l->app, "app");
	assert_int_equal(put(&s->honest, "app/one", "as it was", &l->in), 0);
	assert_int_equal(put(&s->honest, "other/one", "not for app", &l->out), 0);
	assert_int_equal(insert(&s->honest, "no name", &l->new), 0);
}

static void names_outside_the_prefixes_are_refused(void **state)
{
	static const char *const outside[] = {"other/one", "other/absent", "app",
					      "ap",	   "tmp",	   "App/x"};
	struct story *s = *state;
	struct pool_answer answer;
	struct limits l;

	start_limits(s, &l);
	for (unsigned int op = 0; op < POOL_OP_MAX; op++) {
		if (!needs[op].told || pool_operations[op].reach != POOL_REACH_NAME)
			continue;
		for (unsigned int i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
			assert_int_equal(request(&l.app, (uint8_t)op, outside[i], NULL, &answer),
					 EACCES);
			assert_true(answer.length == 0 && answer.version == 0);
		}
	}
	expect_reads(&s->honest, &l.out, "not for app");
	assert_int_equal(request(&l.app, STAG_POOL_INSERT, "", NULL, &answer), EACCES);
	raw_close(&l.app);
}

static void values_outside_the_prefixes_do_not_exist(void **state)
{
	struct story *s = *state;
	struct pool_answer answer;
	struct limits l;

	start_limits(s, &l);
	for (unsigned int op = 0; op < POOL_OP_MAX; op++) {
		if (!needs[op].told || pool_operations[op].reach != POOL_REACH_PTR)
			continue;
		assert_int_equal(request(&l.app, (uint8_t)op, "", &l.out, &answer), ENOENT);
		assert_true(answer.length == 0 && answer.version == 0);
		assert_int_equal(request(&l.app, (uint8_t)op, "", &l.new, &answer), ENOENT);
		assert_true(answer.length == 0 && answer.version == 0);
	}
	expect_reads(&s->honest, &l.out, "not for app");
	expect_reads(&s->honest, &l.new, "no name");
	raw_close(&l.app);
}

static void names_inside_the_prefixes_are_used(void **state)
{
	struct story *s = *state;
	struct pool_answer answer;
	struct limits l;

	start_limits(s, &l);
	assert_int_equal(request(&l.app, STAG_POOL_GET, "app/one", NULL, &answer), 0);
	assert_int_equal(answer.length, 9);
	assert_memory_equal(answer.bytes, "as it was", 9);
	assert_int_equal(request(&l.app, STAG_POOL_READ, "", &l.in, &answer), 0);
	assert_int_equal(request(&l.app, STAG_POOL_UPDATE, "", &l.in, &answer), 0);
	expect_reads(&s->honest, &answer.ptr, "changed");
	assert_int_equal(request(&l.app, STAG_POOL_DELETE, "", &answer.ptr, &answer), 0);
	assert_int_equal(request(&l.app, STAG_POOL_PUT, "tmp/x", NULL, &answer), 0);
	expect_reads(&s->honest, &answer.ptr, "changed");
	assert_int_equal(request(&l.app, STAG_POOL_GET, "app/absent", NULL, &answer), ENOENT);
	assert_int_equal(request(&l.app, STAG_POOL_REMOVE, "tmp/x", NULL, &answer), 0);
	raw_close(&l.app);
}

static void a_list_has_the_names_inside_only(void **state)
{
	struct story *s = *state;
	struct pool_answer answer;
	struct pool_listed listed;
	struct pool_request rq;
	unsigned int parts = 0;
	struct limits l;
	char name[32];

	start_limits(s, &l);
	for (unsigned int i = 0; i < 300; i++) {
		snprintf(name, sizeof(name), "other/%u", i);
		assert_int_equal(put(&s->honest, name, "x", NULL), 0);
	}
	rq = make_request(&l.app, POOL_OP_LIST, "", NULL);
	do { /* the index is searched in parts: only one has a name */
		rq.sequence = 0;
		assert_int_equal(raw_request(&l.app, &rq, &answer), 0);
		assert_int_equal(answer.status, 0);
		rq.version = answer.version;
		if (answer.length == 0)
			continue;
		parts++;
		assert_int_equal(answer.length, sizeof(listed) + 8);
		memcpy(&listed, answer.bytes, sizeof(listed));
		assert_int_equal(listed.name_length, 7);
		assert_memory_equal((const char *)answer.bytes + sizeof(listed), "app/one", 7);
	} while (answer.version != 0);
	assert_int_equal(parts, 1);
	raw_close(&l.app);
}

/* A long value is written from the region to the client's memory, in a domain in which nobody reads the region. */
static void long_values_inside_are_fetched(void **state)
{
	static uint8_t want[RAW_MEMORY];
	struct story *s = *state;
	struct pool_answer answer;
	struct pool_request rq;
	struct limits l;

	start_limits(s, &l);
	for (unsigned int i = 0; i < sizeof(want); i++)
		want[i] = (uint8_t)(i * 31 >> 3);
	memcpy(l.app.memory, want, sizeof(want));
	rq = make_request(&l.app, STAG_POOL_PUT, "app/long", NULL);
	rq.source = POOL_SOURCE_PULL;
	rq.value = NULL;
	rq.length = sizeof(want);
	rq.source_address = (uintptr_t)l.app.memory;
	rq.key = l.app.memory_mr->rkey;
	assert_int_equal(raw_request(&l.app, &rq, &answer), 0);
	assert_int_equal(answer.status, 0);
	memset(l.app.memory, 0, sizeof(want));
	rq = make_request(&l.app, STAG_POOL_GET, "app/long", NULL);
	rq.source = POOL_SOURCE_PULL;
	rq.length = sizeof(want);
	rq.source_address = (uintptr_t)l.app.memory;
	rq.key = l.app.memory_mr->rkey;
	assert_int_equal(raw_request(&l.app, &rq, &answer), 0);
	assert_int_equal(answer.status, 0);
	assert_int_equal(answer.ptr.length, sizeof(want));
	assert_memory_equal(l.app.memory, want, sizeof(want));
	raw_close(&l.app);
}

/* A refused request gives its slot back. */
static void slots_outlast_refusals(void **state)
{
	struct story *s = *state;
	struct pool_answer answer;
	struct pool_request rq;
	struct limits l;

	start_limits(s, &l);
	for (unsigned int i = 0; i < 3 * NODE_SHORTS; i++) {
		assert_int_equal(l.app.open, (1u << NODE_SLOTS) - 1);
		assert_int_equal(raw_stage(&l.app, 0, 0, "value", 5), 0);
		rq = raw_staged(&l.app, 0, 5);
		rq.op = STAG_POOL_PUT;
		rq.name = "other/one";
		rq.name_length = 9;
		assert_int_equal(raw_request(&l.app, &rq, &answer), 0);
		assert_int_equal(answer.status, EACCES);
	}
	expect_reads(&s->honest, &l.out, "not for app");
	raw_close(&l.app);
}

/* ---- reports --------------------------------------------------------------------------------- */

static struct {
	pthread_mutex_t lock;
	char lines[16][512];
	unsigned int count;
} reports = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void keep_report(const struct stag_audit_record *r, void *arg)
{
	pthread_mutex_lock(&reports.lock);
	if (reports.count < 16)
		snprintf(reports.lines[reports.count++], sizeof(reports.lines[0]),
			 "%s %s %s %.10s %s %d %s%s", r->room, r->object, r->user, r->from,
			 r->action, r->outcome, r->reason ? r->reason : "-",
			 r->flags & STAG_AUDIT_ADMINISTRATION ? ", of administration" : "");
	pthread_mutex_unlock(&reports.lock);
}

/* Waits for a report: an answer may overtake it. */
static void expect_report(const char *want)
{
	time_t until = time(NULL) + PATIENCE_S;
	bool found = false;

	while (!found && time(NULL) < until) {
		pthread_mutex_lock(&reports.lock);
		for (unsigned int i = 0; i < reports.count; i++)
			found |= strcmp(reports.lines[i], want) == 0;
		pthread_mutex_unlock(&reports.lock);
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	}
	if (!found)
		fail_msg("no report '%s'; the first is '%s'", want, reports.lines[0]);
}

static void decisions_are_reported(void **state)
{
	static const struct audit_sink sink = {.call = keep_report};
	struct story *s = *state;
	struct pool_answer answer;
	struct limits l;
	struct raw r;

	audit_set_sink(&sink);
	start_limits(s, &l);
	expect_report("pool pool test app 127.0.0.1: login 0 -");
	assert_int_equal(raw_open(&r, s->port, "app", "not the word of this user"), -EACCES);
	expect_report("pool pool test app 127.0.0.1: login 1 wrong secret, or no such user");
	assert_int_equal(request(&l.app, STAG_POOL_PUT, "other/one", NULL, &answer), EACCES);
	expect_report("pool pool test app 127.0.0.1: put other/one 1 no right to this name");
	assert_int_equal(request(&l.app, STAG_POOL_READ, "", &l.out, &answer), ENOENT);
	expect_report("pool pool test app 127.0.0.1: read 1 no right to this value");
	assert_int_equal(request(&l.app, POOL_OP_SWITCH, "b", NULL, &answer), EACCES);
	expect_report("pool pool test app 127.0.0.1: switch b 1 no right to administer");
	open_client(s, &r, "admin");
	assert_int_equal(request(&r, POOL_OP_FORGET, "b", NULL, &answer), ENOENT);
	expect_report("pool pool test admin 127.0.0.1: forget b 2 No such file or directory, of "
		      "administration");
	audit_set_sink(NULL);
	raw_close(&r);
	raw_close(&l.app);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static void on_abort(int signal)
{
	(void)signal;
	_exit(0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_key_does_not_read_for_who_may_not_read),
		TEST(who_may_not_read_is_told_no_key),
		TEST(who_may_not_read_writes_all_the_same),
		cmocka_unit_test(every_operation_is_in_the_table),
		TEST(an_operation_is_refused_without_its_rights),
		TEST(names_outside_the_prefixes_are_refused),
		TEST(values_outside_the_prefixes_do_not_exist),
		TEST(names_inside_the_prefixes_are_used),
		TEST(a_list_has_the_names_inside_only),
		TEST(long_values_inside_are_fetched),
		TEST(slots_outlast_refusals),
		TEST(decisions_are_reported),
	};

	if (argc > 2)
		signal(SIGABRT, on_abort);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL) != (argc > 2);
}
